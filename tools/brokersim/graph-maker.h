#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Graph maker: nodes and edges one by one, then a place_graph with times
 *
 * A family adds each node after its predecessors, and names the kernel that the node runs.
 * graph_maker_finish() draws the times of kernels and devices from the seed.
 */
#include <stdint.h>

#include "util/cleanup.h"

struct graph_maker;
struct place_graph;

enum graph_kernel {
	GRAPH_RANDOM,         /* unrelated times on all devices */
	GRAPH_RANDOM_PARTIAL, /* the same; a few percent of the nodes cannot use one device */
	GRAPH_POTRF,
	GRAPH_GETRF,
	GRAPH_TRSM,
	GRAPH_SYRK,
	GRAPH_GEMM,
	GRAPH_FFT_CALL,
	GRAPH_FFT_BUTTERFLY,
	GRAPH_NORM,
	GRAPH_PROJECTION,
	GRAPH_ATTENTION,
	GRAPH_ADD,
	GRAPH_MONTAGE_PROJECT,
	GRAPH_MONTAGE_DIFFERENCE,
	GRAPH_MONTAGE_CONCAT,
	GRAPH_MONTAGE_MODEL,
	GRAPH_MONTAGE_BACKGROUND,
	GRAPH_MONTAGE_TABLE,
	GRAPH_MONTAGE_ADD,
	GRAPH_MONTAGE_SHRINK,
	N_GRAPH_KERNELS,
};

/* A maker remembers the first failed allocation, ignores what follows, and fails at the end. */
int graph_maker_new(uint64_t seed, struct graph_maker **ret);
struct graph_maker *graph_maker_free(struct graph_maker *maker);

/*
 * Add a node that runs @kernel and takes @scale times its usual time.
 * Return: its number.
 */
uint32_t graph_maker_node(struct graph_maker *maker, enum graph_kernel kernel, double scale);

/* Add an edge between two nodes, @from < @to, that moves @weight times the usual bytes. */
void graph_maker_edge(struct graph_maker *maker, uint32_t from, uint32_t to, double weight);

/* Make the graph; its transfers as in graph_family.make(). Return: 0 or -ENOMEM. */
int graph_maker_finish(struct graph_maker *maker, uint32_t n_devices, double comm_ratio,
		       struct place_graph **ret);

DEFINE_CLEANUP(struct graph_maker *, graph_maker_free)
