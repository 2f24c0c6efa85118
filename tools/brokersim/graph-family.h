#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Graph families: task graphs of the scheduling literature, drawn from a seed
 *
 * Device 0 is a processor, the others are accelerators of different speeds. Node times are 10 us to
 * 10 ms. Transfers between devices take 10 us plus a time in proportion to the bytes.
 */
#include <stdint.h>

#include "place/graph.h"

struct graph_family {
	const char *name;
	const char *about;
	/*
	 * Make a graph with about @size nodes: the nearest number that the family has. The mean
	 * transfer time between different devices is @comm_ratio times the mean execution time, but
	 * at least the 10 us of a transfer without bytes. @n_devices: 1 to PLACE_GRAPH_DEVICES.
	 * Equal arguments make equal graphs.
	 * Return: 0 or -ENOMEM.
	 */
	int (*make)(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
		    struct place_graph **ret);
};

extern const struct graph_family graph_families[];
extern const uint32_t n_graph_families;
