#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tasks that are graphs, in virtual time: brokerd's way to place segments beside others
 *
 * Devices run one node at a time, without interruption. A node starts when all that it needs has
 * ended and has come to its device; transfers disturb nothing and need no device.
 */
#include <stdbool.h>
#include <stdint.h>

#include "place/graph.h"

enum graph_policy {
	GRAPH_OURS,  /* place/graph.h's advice, and a choice when a node is ready */
	GRAPH_HEFT,  /* the schedule of HEFT, followed to the letter */
	GRAPH_PEFT,  /* that of PEFT */
	GRAPH_DMDAS, /* StarPU's dmdas: earliest end when ready, queues by upward rank */
	GRAPH_POLICIES
};
extern const char *const graph_policy_names[GRAPH_POLICIES];

/* Behaviour of devices that no prediction has */
struct graph_truth {
	double noise; /* standard deviation of the logarithm of a node's time */
	/*
	 * Other programs take half of a device at random times, a third of the time: the device
	 * takes twice as long. Telemetry tells brokerd.
	 */
	bool is_contended;
	uint64_t seed;
};

struct graph_result {
	double span_ns; /* from 0 to the last end */
	double busy_ns[PLACE_GRAPH_DEVICES];
	double first_ns[PLACE_GRAPH_DEVICES]; /* start of its first node */
	double last_ns[PLACE_GRAPH_DEVICES];  /* end of its last node; both 0: it ran none */
	uint32_t n_run[PLACE_GRAPH_DEVICES];  /* nodes */
	double link_bytes[PLACE_GRAPH_DEVICES][PLACE_GRAPH_DEVICES]; /* moved [from][to] */
	double moved_bytes;                                          /* over all links */
	uint32_t n_left_plan; /* nodes that ran elsewhere than where the advice has them */
};

/* A node of a task on its device, for pictures */
struct graph_event {
	double start_ns, end_ns;
	uint32_t task;
	uint16_t node;
	uint8_t device;
};

struct graph_run {
	struct place_graph *graph; /* with predicted times; GRAPH_OURS: with advice */
	struct graph_truth truth;
	uint32_t n_tasks;     /* of the same graph, all there from the beginning */
	uint32_t n_in_flight; /* tasks that have begun at most */
	/* NULL, or room for n_tasks x n_nodes events, in the order of their ends */
	struct graph_event *events;
};

/*
 * Run tasks under a policy.
 * Return: 0 or -ENOMEM.
 */
int graph_run(const struct graph_run *run, enum graph_policy policy, struct graph_result *ret);
