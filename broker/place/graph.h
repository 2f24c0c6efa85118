#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Graphs: where the parts of one task run, seen over all of them
 *
 * placer.h decides for one task what completes it first. A part of a task that is cut into segments
 * has others behind it: the device that ends it first may be the one that a longer way through the
 * graph needs, or far from where its result is read. place_graph_improve() therefore looks for a
 * schedule of the whole graph, from predicted times and transfers, with all devices idle. What it
 * finds is advice, for each node: an order (the node that begins earlier comes first), and what
 * each device costs beyond the node's own end there (bias_ns). Whoever places a node adds this to
 * the completion that is predicted now, with backlogs and contention, and takes the least sum: the
 * node follows the schedule while the devices do, and leaves it when its device falls behind.
 *
 * While several tasks of one graph are in flight, all devices are busy, and what a task takes of
 * their time matters, not when one node ends. Whoever places a node then adds, instead of bias_ns,
 * what the device costs the stream (reduced_ns), for each task in flight.
 *
 * The search begins with the best of ten: all nodes on the fastest device; HEFT (Topcuoglu, Hariri,
 * Wu, Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous Computing, 2002);
 * PEFT (Arabnejad, Barbosa, List Scheduling Algorithm for Heterogeneous Systems by an Optimistic
 * Cost Table, 2014); PEFT's choice of devices in HEFT's order; and HEFT's and PEFT's choices with
 * prices of the devices' time, of different weights (graph-price-hot.c). Each step of the
 * search changes the order or a device at one place, and the best schedule of all is kept.
 *
 * Nothing is allocated after place_graph_new(), and a step takes time in proportion to nodes, edges
 * and devices. Deterministic. One thread at a time.
 */
#include <stdbool.h>
#include <stdint.h>

#include "util/cleanup.h"

enum { PLACE_GRAPH_DEVICES = 16 };

/* Nodes are in an order in which each comes after those that it needs. All times: ns. */
struct place_graph {
	uint32_t n_nodes, n_edges, n_devices;
	/* Edges into node i are first[i], ..., first[i + 1] - 1; from[e] < i is the other end. */
	uint32_t *first, *from;
	float *edge_bytes;
	/* Execution of node i on device d: [i * n_devices + d]; INFINITY: d cannot run it */
	float *exec_ns;
	/* The part of the device's time that it takes, if others run beside it; 0: exec_ns */
	float *work_ns;
	/* A transfer between devices takes link_ns + bytes * link_ns_per_byte; 0 within one. */
	float link_ns[PLACE_GRAPH_DEVICES][PLACE_GRAPH_DEVICES];
	float link_ns_per_byte[PLACE_GRAPH_DEVICES][PLACE_GRAPH_DEVICES];

	/* Advice, since the first place_graph_improve() */
	float span_ns;  /* from the first start to the last end, in the best schedule */
	float *bias_ns; /* [i * n_devices + d]; INFINITY where exec_ns is */
	/*
	 * Reduced costs, likewise: by how much the time between two tasks of a stream grows at
	 * least if node i runs on device d, instead of where it costs least (graph-price-hot.c)
	 */
	float *reduced_ns;
	float *end_ns;   /* of each node, in that schedule */
	uint8_t *device; /* of each node, in that schedule */
	uint16_t *order; /* nodes by start in that schedule, ties by number */
};

/* Return the predicted time to move an edge's bytes from device @from to device @to. */
static inline float place_graph_transfer_ns(const struct place_graph *graph, uint32_t edge,
					    uint32_t from, uint32_t to)
{
	if (from == to)
		return 0;
	return graph->link_ns[from][to] +
	       graph->edge_bytes[edge] * graph->link_ns_per_byte[from][to];
}

/*
 * Make a graph whose arrays have room for @n_nodes, below 65536, and @n_edges, and contain zeros.
 * Its owner fills them, and may do so again at any time (place_graph_renew()).
 * Return: 0 or -ENOMEM.
 */
int place_graph_new(uint32_t n_nodes, uint32_t n_edges, uint32_t n_devices,
		    struct place_graph **ret);
struct place_graph *place_graph_free(struct place_graph *graph);

/* Return the bytes of host memory that place_graph_new() takes. */
uint64_t place_graph_bytes(uint32_t n_nodes, uint32_t n_edges, uint32_t n_devices);

/*
 * Times have changed: the next place_graph_improve() begins with the present schedule, and then
 * tries the constructions again.
 */
void place_graph_renew(struct place_graph *graph);

/*
 * Do @n_steps of the search, of which the first try further constructions. The first call makes
 * advice in any case, as does the one after place_graph_renew(). Each node must have a device.
 */
void place_graph_improve(struct place_graph *graph, uint32_t n_steps);

/*
 * Make the schedule of one of the constructions as its paper has it, where nodes may go into gaps
 * between others: for comparisons. @ret_start_ns and @ret_device have n_nodes elements.
 * Return: the time of the last end.
 */
enum place_graph_method { PLACE_GRAPH_HEFT, PLACE_GRAPH_PEFT };
float place_graph_construct(struct place_graph *graph, enum place_graph_method method,
			    float *ret_start_ns, uint8_t *ret_device);

DEFINE_CLEANUP(struct place_graph *, place_graph_free)
