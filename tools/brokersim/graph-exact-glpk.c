/* SPDX-License-Identifier: MIT */
/*
 * The optimum of a small graph, by GLPK
 *
 * Variables: the makespan T, a start s of each node, binary x for each node and device, 1 for the
 * node's device, and binary y for each two nodes that no path joins, 1 if the first one runs before
 * the second.
 *
 *   sum over d of x = 1
 *   end = s + sum over d of execution x <= T
 *   s(j) >= end(i) + sum over e of transfer(d, e) x(j, e) - M (1 - x(i, d))      edge i to j, any d
 *   s(j) >= end(i) - M (1 - y) - M (2 - x(i, d) - x(j, d))                       i before j, any d
 *   s(i) >= end(j) - M y       - M (2 - x(i, d) - x(j, d))                       j before i, any d
 *
 * For an edge M is the longest transfer from the device. For an order M is the known makespan less
 * the longest ways to the one node and from the other. Times are scaled to this makespan.
 */
#include "graph-exact.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <glpk.h>

#include "place/graph.h"
#include "util/cleanup.h"
#include "util/error.h"

/* Relative: room above the known makespan, so that its own schedule remains feasible */
#define SLACK 1e-6

struct program {
	const struct place_graph *graph;
	glp_prob *problem;
	double unit_ns;
	double *head, *tail; /* of each node: longest ways to its start and from its end */
	uint64_t *before;    /* nodes with a path to the node, as masks */
	int *columns;        /* the row that is being made */
	double *values;
	int n_terms;
};

static int start_column(uint32_t node)
{
	return 2 + (int)node;
}

static int device_column(const struct program *program, uint32_t node, uint32_t device)
{
	const struct place_graph *graph = program->graph;

	return 2 + (int)(graph->n_nodes + node * graph->n_devices + device);
}

/* Return an execution time; 0 where the node cannot run, because x is 0 there. */
static double exec(const struct program *program, uint32_t node, uint32_t device)
{
	const struct place_graph *graph = program->graph;
	double ns = (double)graph->exec_ns[node * graph->n_devices + device];

	return isinf(ns) ? 0 : ns / program->unit_ns;
}

static double least_exec(const struct program *program, uint32_t node)
{
	const struct place_graph *graph = program->graph;
	double least = INFINITY;

	for (uint32_t d = 0; d < graph->n_devices; d++)
		least = fmin(least, (double)graph->exec_ns[node * graph->n_devices + d]);
	return least / program->unit_ns;
}

static void add_term(struct program *program, int column, double value)
{
	/* A row names each column once. */
	for (int k = 1; k <= program->n_terms; k++) {
		if (program->columns[k] == column) {
			program->values[k] += value;
			return;
		}
	}
	program->columns[++program->n_terms] = column;
	program->values[program->n_terms] = value;
}

/* Add the terms of @sign times a node's end. */
static void add_end(struct program *program, uint32_t node, double sign)
{
	add_term(program, start_column(node), sign);
	for (uint32_t d = 0; d < program->graph->n_devices; d++)
		add_term(program, device_column(program, node, d), sign * exec(program, node, d));
}

/* Make a row of the terms; its sum is at least @least. */
static void finish_row(struct program *program, int type, double least)
{
	int row = glp_add_rows(program->problem, 1);

	glp_set_mat_row(program->problem, row, program->n_terms, program->columns, program->values);
	glp_set_row_bnds(program->problem, row, type, least, least);
	program->n_terms = 0;
}

static void add_edge(struct program *program, uint32_t edge, uint32_t to)
{
	const struct place_graph *graph = program->graph;
	uint32_t from = graph->from[edge], n = graph->n_devices;

	for (uint32_t d = 0; d < n; d++) {
		double longest = 0;

		add_term(program, start_column(to), 1);
		add_end(program, from, -1);
		for (uint32_t e = 0; e < n; e++) {
			double ns = (double)place_graph_transfer_ns(graph, edge, d, e) /
				    program->unit_ns;

			add_term(program, device_column(program, to, e), -ns);
			longest = fmax(longest, ns);
		}
		add_term(program, device_column(program, from, d), -longest);
		finish_row(program, GLP_LO, -longest);
	}
}

/* Require that @first ends before @second starts, if both use @device and y is @is_first. */
static void add_order(struct program *program, uint32_t first, uint32_t second, uint32_t device,
		      int y, bool is_first)
{
	double big = 1 + SLACK - program->tail[first] - program->head[second];

	add_term(program, start_column(second), 1);
	add_end(program, first, -1);
	add_term(program, device_column(program, first, device), -big);
	add_term(program, device_column(program, second, device), -big);
	add_term(program, y, is_first ? -big : big);
	finish_row(program, GLP_LO, is_first ? -3 * big : -2 * big);
}

/* Find paths and their lengths, each node on its fastest device and without transfers. */
static void find_paths(struct program *program)
{
	const struct place_graph *graph = program->graph;

	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
			uint32_t from = graph->from[e];

			program->before[i] |= program->before[from] | 1ull << from;
			program->head[i] = fmax(program->head[i],
						program->head[from] + least_exec(program, from));
		}
	}
	for (uint32_t i = graph->n_nodes; i-- > 0;) {
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
			uint32_t from = graph->from[e];

			program->tail[from] = fmax(program->tail[from],
						   program->tail[i] + least_exec(program, i));
		}
	}
}

static void add_node(struct program *program, uint32_t node)
{
	const struct place_graph *graph = program->graph;

	glp_set_col_bnds(program->problem, start_column(node), GLP_LO, program->head[node], 0);
	for (uint32_t d = 0; d < graph->n_devices; d++) {
		int column = device_column(program, node, d);

		glp_set_col_kind(program->problem, column, GLP_BV);
		if (isinf(graph->exec_ns[node * graph->n_devices + d]))
			glp_set_col_bnds(program->problem, column, GLP_FX, 0, 0);
		add_term(program, column, 1);
	}
	finish_row(program, GLP_FX, 1);
	add_term(program, 1, 1);
	add_end(program, node, -1);
	finish_row(program, GLP_LO, program->tail[node]);
	for (uint32_t e = graph->first[node]; e < graph->first[node + 1]; e++)
		add_edge(program, e, node);
	for (uint32_t i = 0; i < node; i++) {
		int y;

		if (program->before[node] >> i & 1)
			continue;
		y = glp_add_cols(program->problem, 1);
		glp_set_col_kind(program->problem, y, GLP_BV);
		for (uint32_t d = 0; d < graph->n_devices; d++) {
			add_order(program, i, node, d, y, true);
			add_order(program, node, i, d, y, false);
		}
	}
}

int graph_exact_glpk(const struct place_graph *graph, double upper_ns, double seconds,
		     double *ret_ns)
{
	uint32_t n = graph->n_nodes;
	_cleanup_(freep) double *ways = calloc(2 * n + 1, sizeof(*ways));
	_cleanup_(freep) uint64_t *before = calloc(n + 1, sizeof(*before));
	_cleanup_(freep) int *columns = calloc(n * (graph->n_devices + 1) + 4, sizeof(*columns));
	_cleanup_(freep) double *values = calloc(n * (graph->n_devices + 1) + 4, sizeof(*values));
	struct program program = {
		.graph = graph,
		.unit_ns = upper_ns,
		.head = ways,
		.tail = ways + n,
		.before = before,
		.columns = columns,
		.values = values,
	};
	glp_iocp options;
	int r;

	if (!ways || !before || !columns || !values)
		return error_origin(-ENOMEM);
	glp_term_out(GLP_OFF);
	program.problem = glp_create_prob();
	glp_set_obj_dir(program.problem, GLP_MIN);
	glp_add_cols(program.problem, 1 + (int)(n * (1 + graph->n_devices)));
	glp_set_col_bnds(program.problem, 1, GLP_DB, 0, 1 + SLACK);
	glp_set_obj_coef(program.problem, 1, 1);
	find_paths(&program);
	for (uint32_t i = 0; i < n; i++)
		add_node(&program, i);

	glp_init_iocp(&options);
	options.presolve = GLP_ON;
	options.tm_lim = (int)fmin(seconds * 1000, 1e6);
	r = glp_intopt(program.problem, &options);
	if (r == 0 && glp_mip_status(program.problem) == GLP_OPT) {
		*ret_ns = fmin(upper_ns, glp_mip_obj_val(program.problem) * upper_ns);
	} else if (r == GLP_ENOPFS || r == GLP_ENODFS ||
		   (r == 0 && glp_mip_status(program.problem) == GLP_NOFEAS)) {
		/* No schedule is as short as the known one, to the solver's tolerance. */
		*ret_ns = upper_ns;
		r = 0;
	} else {
		*ret_ns = 0;
		r = GRAPH_EXACT_E_LIMIT;
	}
	glp_delete_prob(program.problem);
	return r;
}
