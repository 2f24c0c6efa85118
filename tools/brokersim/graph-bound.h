#pragma once
/* SPDX-License-Identifier: MIT */
/* Lower bounds of the makespan of a graph of any size, for devices that are idle at first */

struct place_graph;

/*
 * Return the largest of the bounds in nanoseconds; 0 without memory. No two edges of the graph join
 * the same nodes.
 */
double graph_bound_ns(const struct place_graph *graph);
