/* SPDX-License-Identifier: MIT */
/*
 * Cuts by time: see cut-devices.h
 *
 * All steps take time in proportion to nodes and operands, or to the units, whose number is
 * bounded, and edges between them.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "place/cut-private.h"
#include "place/graph.h"
#include "shm/plan-wire.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/number.h"

enum {
	/* Units and edges between them, at most */
	UNITS_MOST = 256,
	EDGES_MOST = 4096,
	/* A unit is full at this part of the plan's time; a larger one if there are too many. */
	PARTS = 64,
	PARTS_LEAST = CUT_MAX_SEGMENTS * PARTS / UNITS_MOST,
	UNITS_PER_PART = UNITS_MOST / PARTS,
	LONG_PARTS = 8,          /* a node is long at this part of a full unit */
	SEARCH_STEPS = 1u << 15, /* divided by the number of units, each takes some 25 ns */
	SEARCH_STEPS_MOST = 1024,
};

enum { CUT_E_MANY = 1 }; /* too many segments, or edges: larger units have fewer */

/* Least time of a unit, in ns: some submissions */
static const double least_unit_ns = 50000;
/* Time that a segment adds to a task of one row, all on the CPU: brokerbench graphs measures 500 */
static const double row_hop_ns = 2000;
/* Share that these may add to such a task, which gains nothing */
static const double most_loss = 0.1;
/* Share that segments may add if all are on one device, where a task may have to run, at least */
static const double least_loss_on_one = 0.25;

struct cutter {
	struct cut_model model;
	uint32_t n_units;
	uint16_t first[UNITS_MOST + 1]; /* node */
	/* Units with execution and what crosses; the rest as place/graph.h has it */
	struct place_graph *graph;
	struct cut_times unit_ns[UNITS_MOST]; /* nodes alone */

	/* Units as segments */
	bool begins[UNITS_MOST]; /* a segment begins with the unit */
	uint8_t device[UNITS_MOST];
	uint16_t segment_of[UNITS_MOST];
	uint32_t n_segments;
	uint16_t first_unit[UNITS_MOST + 1]; /* by segment */
	float end_ns[UNITS_MOST];
	struct cut_range ranges[UNITS_MOST]; /* of the segment that begins with the unit */
};

static struct cutter *cutter_free(struct cutter *cutter)
{
	if (!cutter)
		return NULL;
	place_graph_free(cutter->graph);
	cut_model_deinit(&cutter->model);
	free(cutter);
	return NULL;
}
DEFINE_CLEANUP(struct cutter *, cutter_free)

/* --- Units --- */

/* Return true if node @i reads what a node from @first on has written. */
static bool follows(const struct cutter *cutter, uint16_t i, uint16_t first)
{
	const struct node *node = &cutter->model.plan->nodes[i];

	for (uint32_t k = 0; k < node->n_in; k++) {
		const uint16_t writer = node->in[k] == PLAN_NO_TENSOR
						? PLAN_NO_NODE
						: cutter->model.writer[node->in[k]];

		if (writer != PLAN_NO_NODE && writer >= first)
			return true;
	}
	return false;
}

/* Return true if a node behind @i reads what node @k has written. */
static bool is_read_later(const struct cutter *cutter, uint16_t k, uint16_t i)
{
	const struct node *node = &cutter->model.plan->nodes[k];

	for (uint32_t o = 0; o < node->n_out; o++) {
		const uint16_t reader = node->out[o] == PLAN_NO_TENSOR
						? PLAN_NO_NODE
						: cutter->model.reader[node->out[o]];

		if (reader != PLAN_NO_NODE && reader > i)
			return true;
	}
	return false;
}

/* Return true if devices would save time by having a unit and the node after it apart. */
static bool is_better_apart(const struct cutter *cutter, const struct cut_times *unit,
			    const struct cut_times *node)
{
	struct cut_times both = *unit;

	cut_add_times(&cutter->model, &both, node);
	return cut_least_of(&cutter->model, &both) >=
	       cut_least_of(&cutter->model, unit) + cut_least_of(&cutter->model, node) + CUT_HOP_NS;
}

/*
 * Join neighbouring nodes to units. A unit ends where it is full, where a node is for another
 * device, where a node needs none of the unit, since that begins a branch, and before a long node
 * if others wait for the unit, too. Nodes that are computed along with others stay with them.
 */
static void make_units(struct cutter *cutter, double whole_ns, uint32_t n_parts)
{
	const struct plan *plan = cutter->model.plan;
	const double full_ns = fmax(least_unit_ns, whole_ns / n_parts);
	const uint32_t n_most = n_parts * UNITS_PER_PART;
	const double long_ns = full_ns / LONG_PARTS;
	struct cut_times unit = {{0}};
	bool others_wait = false;
	uint16_t joined = 0;

	cutter->n_units = 1;
	for (uint16_t i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];
		const uint16_t first = cutter->first[cutter->n_units - 1];
		const struct cut_times times = cut_node_times(&cutter->model, i);
		const double unit_ns = cut_least_of(&cutter->model, &unit),
			     ns = cut_least_of(&cutter->model, &times);
		bool is_end = unit_ns >= full_ns || is_better_apart(cutter, &unit, &times);

		/* Half of the units are for what takes time. */
		if (cutter->n_units < n_most / 2 || unit_ns >= long_ns || ns >= long_ns)
			is_end |= !follows(cutter, i, first);
		is_end |= ns >= long_ns && others_wait;
		if (is_end && i > joined && i > first && cutter->n_units < n_most) {
			cutter->first[cutter->n_units++] = i;
			unit = (struct cut_times){{0}};
			others_wait = false;
		}
		cut_add_times(&cutter->model, &unit, &times);
		/* The next node may read it; later ones are others. */
		others_wait |= is_read_later(cutter, i, (uint16_t)(i + 1));
		if (node->sum != PLAN_NO_NODE && node->sum > joined)
			joined = node->sum;
		if (node->activation != PLAN_NO_NODE && node->activation > joined)
			joined = node->activation;
	}
	cutter->first[cutter->n_units] = plan->n_nodes;
}

static uint32_t unit_of(const struct cutter *cutter, uint16_t node)
{
	uint32_t low = 0, high = cutter->n_units;

	while (high - low > 1) {
		const uint32_t middle = (low + high) / 2;

		if (cutter->first[middle] <= node)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Add what unit @u reads of others to the graph. Return: false: there are too many edges. */
static bool add_edges(struct cutter *cutter, uint32_t u, uint32_t *edge_to)
{
	const struct plan *plan = cutter->model.plan;
	struct place_graph *graph = cutter->graph;
	uint32_t n = graph->first[u];

	cutter->model.mark++;
	for (uint16_t i = cutter->first[u]; i < cutter->first[u + 1]; i++)
		for (uint32_t k = 0; k < plan->nodes[i].n_in; k++) {
			const uint16_t t = plan->nodes[i].in[k];
			uint32_t from;

			if (t == PLAN_NO_TENSOR || cutter->model.writer[t] == PLAN_NO_NODE ||
			    cutter->model.writer[t] >= cutter->first[u] ||
			    cutter->model.seen[t] == cutter->model.mark)
				continue;
			cutter->model.seen[t] = cutter->model.mark;
			from = unit_of(cutter, cutter->model.writer[t]);
			if (edge_to[from] < graph->first[u] || edge_to[from] >= n) {
				if (n == EDGES_MOST)
					return false;
				edge_to[from] = n;
				graph->from[n] = from;
				graph->edge_bytes[n++] = 0;
			}
			graph->edge_bytes[edge_to[from]] += (float)cut_bytes_of(&cutter->model, t);
		}
	graph->first[u + 1] = n;
	return true;
}

/* Return the time in which a unit's part of the task's own tensors crosses a link. */
static double bound_ns(const struct cutter *cutter, uint32_t u, const struct place_profile *profile)
{
	double ns = 0;

	if (!(profile->up_bytes_per_ns > 0) || !(profile->down_bytes_per_ns > 0))
		return 0;
	for (uint16_t i = cutter->first[u]; i < cutter->first[u + 1]; i++) {
		const struct node *node = &cutter->model.plan->nodes[i];

		for (uint32_t k = 0; k < node->n_in; k++)
			if (node->in[k] != PLAN_NO_TENSOR &&
			    cutter->model.plan->tensors[node->in[k]].kind == RBK_TENSOR_INPUT)
				ns += (double)cut_bytes_of(&cutter->model, node->in[k]) /
				      (double)profile->up_bytes_per_ns;
		for (uint32_t k = 0; k < node->n_out; k++)
			if (node->out[k] != PLAN_NO_TENSOR &&
			    cutter->model.plan->tensors[node->out[k]].kind == RBK_TENSOR_OUTPUT)
				ns += (double)cut_bytes_of(&cutter->model, node->out[k]) /
				      (double)profile->down_bytes_per_ns;
	}
	return ns;
}

static float per_byte(float bytes_per_ns)
{
	return bytes_per_ns > 0 ? 1 / bytes_per_ns : 0;
}

/* Note how long it takes until what one device has written is on another. */
static void set_links(const struct place_cut_basis *basis, struct place_graph *graph)
{
	for (uint32_t a = 0; a < basis->n_devices; a++)
		for (uint32_t b = 0; b < basis->n_devices; b++) {
			const struct place_profile *from = &basis->devices[a].profile;
			const struct place_profile *to = &basis->devices[b].profile;

			graph->link_ns[a][b] = from->link_ns + to->link_ns +
					       (float)cut_submission_ns(&basis->devices[b]);
			graph->link_ns_per_byte[a][b] =
				per_byte(from->down_bytes_per_ns) + per_byte(to->up_bytes_per_ns);
		}
}

/* Return the most edges that there may be: operands, or what is allowed. */
static uint32_t most_edges(const struct plan *plan)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < plan->n_nodes && n < EDGES_MOST; i++)
		n += plan->nodes[i].n_in;
	return min_u32(n, EDGES_MOST);
}

/* Make the graph of units. Return: 0; CUT_E_MANY; -ENOMEM. */
static int make_graph(struct cutter *cutter)
{
	const struct place_cut_basis *basis = cutter->model.basis;
	uint32_t edge_to[UNITS_MOST] = {0};

	cutter->graph = place_graph_free(cutter->graph);
	if (place_graph_new(cutter->n_units, most_edges(cutter->model.plan), basis->n_devices,
			    &cutter->graph))
		return error_origin(-ENOMEM);
	for (uint32_t u = 0; u < cutter->n_units; u++) {
		if (!add_edges(cutter, u, edge_to))
			return CUT_E_MANY;
		for (uint32_t d = 0; d < basis->n_devices; d++) {
			double ns =
				cut_has_room(&basis->devices[d], cutter->model.plan) ? 0 : INFINITY;

			for (uint16_t i = cutter->first[u]; i < cutter->first[u + 1]; i++)
				ns += cut_node_ns(&cutter->model, i, d);
			cutter->unit_ns[u].ns[d] = ns;
			cutter->graph->exec_ns[u * basis->n_devices + d] =
				(float)(ns + bound_ns(cutter, u, &basis->devices[d].profile));
		}
	}
	cutter->graph->n_edges = cutter->graph->first[cutter->n_units];
	set_links(basis, cutter->graph);
	return 0;
}

/* --- Segments --- */

/* Number the segments, which begin where @begins says. */
static void number_segments(struct cutter *cutter)
{
	cutter->n_segments = 0;
	for (uint32_t u = 0; u < cutter->n_units; u++) {
		if (u == 0 || cutter->begins[u])
			cutter->first_unit[cutter->n_segments++] = (uint16_t)u;
		cutter->segment_of[u] = (uint16_t)(cutter->n_segments - 1);
		cutter->end_ns[cutter->n_segments - 1] = -1;
	}
	cutter->first_unit[cutter->n_segments] = (uint16_t)cutter->n_units;
}

/* Return when all have ended that a segment needs; below 0: it is not known yet. */
static float ready_ns(const struct cutter *cutter, uint32_t s)
{
	const struct place_graph *graph = cutter->graph;
	const uint32_t first = cutter->first_unit[s], end = cutter->first_unit[s + 1];
	float ns = 0;

	for (uint32_t e = graph->first[first]; e < graph->first[end]; e++) {
		const uint32_t from = cutter->segment_of[graph->from[e]];

		if (from == s)
			continue;
		if (cutter->end_ns[from] < 0)
			return -1;
		ns = max_float(ns, cutter->end_ns[from]);
	}
	return ns;
}

/* Return the time of segment @s on a device. */
static double segment_ns(const struct cutter *cutter, uint32_t s, uint32_t d)
{
	const uint32_t first = cutter->first_unit[s];
	double ns = cut_around_ns(&cutter->model.basis->devices[d], &cutter->ranges[first]);

	for (uint32_t u = first; u < cutter->first_unit[s + 1]; u++)
		ns += cutter->unit_ns[u].ns[d];
	return ns;
}

/*
 * Run the segments where their units are, in the order of the schedule, or later if they need
 * others that come later.
 * Return: the time of the last end; INFINITY: a device lacks a part of its segments.
 */
static float run_segments(struct cutter *cutter)
{
	const struct place_graph *graph = cutter->graph;
	float free_ns[RBK_MAX_DEVICES] = {0}, span_ns = 0, ns;
	uint32_t n_left;

	number_segments(cutter);
	n_left = cutter->n_segments;
	for (uint32_t k = 0; n_left > 0; k = (k + 1) % cutter->n_units) {
		const uint32_t s = cutter->segment_of[graph->order[k]];
		const uint32_t d = cutter->device[cutter->first_unit[s]];

		if (cutter->end_ns[s] >= 0)
			continue;
		ns = ready_ns(cutter, s);
		if (ns < 0)
			continue;
		ns = max_float(ns, free_ns[d]) + (float)segment_ns(cutter, s, d);
		cutter->end_ns[s] = free_ns[d] = ns;
		span_ns = max_float(span_ns, ns);
		n_left--;
	}
	return span_ns;
}

static bool has_too_many_refs(const struct cut_range *range)
{
	return range->n_in + range->n_out > RBK_MAX_REFS;
}

/*
 * Join neighbouring segments of one device unless the end comes later.
 * Return: the time of the last end.
 */
static float join_segments(struct cutter *cutter)
{
	float span_ns = run_segments(cutter), ns;
	uint32_t before = 0; /* first unit of the segment before */

	for (uint32_t u = 1; u < cutter->n_units; u++) {
		const struct cut_range apart = cutter->ranges[before];
		uint32_t end = u + 1;

		if (!cutter->begins[u])
			continue;
		while (end < cutter->n_units && !cutter->begins[end])
			end++;
		if (cutter->device[u] == cutter->device[before]) {
			cutter->ranges[before] = cut_measure(&cutter->model, cutter->first[before],
							     cutter->first[end]);
			cutter->begins[u] = false;
			ns = has_too_many_refs(&cutter->ranges[before]) ? INFINITY
									: run_segments(cutter);
			if (ns <= span_ns) {
				span_ns = ns;
				continue;
			}
			cutter->begins[u] = true;
			cutter->ranges[before] = apart;
		}
		before = u;
	}
	run_segments(cutter);
	return span_ns;
}

/* Move segments that touch less than the threshold to the CPU. Return: true if there are any. */
static bool leave_small(struct cutter *cutter)
{
	bool ret = false;

	for (uint32_t s = 0; s < cutter->n_segments; s++) {
		const uint32_t first = cutter->first_unit[s];

		if (cutter->device[first] == RBK_DEVICE_CPU ||
		    cutter->ranges[first].touched_bytes >= cutter->model.basis->threshold_bytes)
			continue;
		memset(&cutter->device[first], RBK_DEVICE_CPU, cutter->first_unit[s + 1] - first);
		ret = true;
	}
	return ret;
}

/* Return true if segments run on more than one device. */
static bool is_apart(const struct cutter *cutter)
{
	for (uint32_t u = 1; u < cutter->n_units; u++)
		if (cutter->device[u] != cutter->device[0])
			return true;
	return false;
}

/*
 * Choose segments, of units of which a full one is one of @n_parts of the plan. Sets *ret_ns to the
 * predicted time of the plan.
 * Return: 0; CUT_E_MANY; -ENOMEM.
 */
static int make_segments(struct cutter *cutter, double whole_ns, uint32_t n_parts, float *ret_ns)
{
	int r;

	make_units(cutter, whole_ns, n_parts);
	r = make_graph(cutter);
	if (r)
		return r;
	for (uint32_t u = 0; u < cutter->n_units; u++) {
		cutter->ranges[u] =
			cut_measure(&cutter->model, cutter->first[u], cutter->first[u + 1]);
		if (has_too_many_refs(&cutter->ranges[u]))
			return CUT_E_MANY;
	}
	place_graph_improve(cutter->graph,
			    min_u32(SEARCH_STEPS / cutter->n_units, SEARCH_STEPS_MOST));
	memcpy(cutter->device, cutter->graph->device, cutter->n_units);
	memset(cutter->begins, true, sizeof(cutter->begins));
	*ret_ns = join_segments(cutter);
	if (leave_small(cutter))
		*ret_ns = join_segments(cutter);
	return cutter->n_segments > CUT_MAX_SEGMENTS ? CUT_E_MANY : 0;
}

/*
 * Return true if submissions of segments add too much to a task of one row, which gains nothing. A
 * plan that only the CPU can run as a whole is for large tasks, or would not be worth a cut.
 */
static bool loses_rows(struct cutter *cutter, const struct cut_times *whole)
{
	struct cut_times row;

	if (cutter->model.plan->max_count == 1 || !cut_is_whole(&cutter->model, whole))
		return false;
	row = cut_predict(&cutter->model, 1);
	return cutter->n_segments * row_hop_ns > most_loss * cut_least_of(&cutter->model, &row);
}

/*
 * Return true if a task of which all segments are on one device, where it may have to run, loses
 * more than others gain: what crosses between segments goes over the device's link.
 */
static bool loses_on_one(const struct cutter *cutter, double whole_ns, double span_ns)
{
	double least_ns = INFINITY;

	for (uint32_t d = 0; d < cutter->model.basis->n_devices; d++) {
		double ns = 0;

		for (uint32_t s = 0; s < cutter->n_segments; s++)
			ns += segment_ns(cutter, s, d);
		least_ns = fmin(least_ns, ns);
	}
	return least_ns > whole_ns * fmax(1 + least_loss_on_one, whole_ns / span_ns);
}

/* Return why a plan stays whole whose segments would end after @span_ns; 0: it is cut. */
static enum rbk_cut why_whole(struct cutter *cutter, const struct cut_times *whole, float span_ns)
{
	const double gain = 1 + (double)cutter->model.basis->min_gain;
	const double whole_ns = cut_least_of(&cutter->model, whole);

	if (!is_apart(cutter) || (double)span_ns * gain > whole_ns ||
	    loses_on_one(cutter, whole_ns, (double)span_ns))
		return RBK_CUT_NO_GAIN;
	return loses_rows(cutter, whole) ? RBK_CUT_SMALL : RBK_CUT_UNKNOWN;
}

static void choose(struct cutter *cutter, const struct cut_times *whole, float span_ns,
		   struct cut_choice *ret)
{
	const enum rbk_cut why = why_whole(cutter, whole, span_ns);

	*ret = (struct cut_choice){
		.why = why ? why : RBK_CUT_FASTER,
		.whole_ns = (float)cut_least_of(&cutter->model, whole),
		.cut_ns = is_apart(cutter) ? span_ns : 0,
	};
	for (uint32_t s = 1; !why && s < cutter->n_segments; s++)
		ret->firsts[ret->n++] = cutter->first[cutter->first_unit[s]];
}

/* --- The choice --- */

static bool choose_by_schedule(struct cutter *cutter, struct cut_choice *ret)
{
	const struct plan *plan = cutter->model.plan;
	uint32_t n_parts = PARTS;
	struct cut_times whole;
	float span_ns = 0;
	double whole_ns;
	int r;

	/* Tasks that stay on the CPU */
	if ((plan->max_count > 1 && plan->max_count < cutter->model.basis->min_count) ||
	    plan_touched_bytes(plan, plan->max_count) < cutter->model.basis->threshold_bytes) {
		*ret = (struct cut_choice){.why = RBK_CUT_SMALL};
		return true;
	}
	whole = cut_predict(&cutter->model, plan->max_count);
	whole_ns = cut_least_of(&cutter->model, &whole);
	if (isinf(whole_ns))
		return false;
	do {
		r = make_segments(cutter, whole_ns, n_parts, &span_ns);
		n_parts /= UNITS_MOST / CUT_MAX_SEGMENTS;
	} while (r == CUT_E_MANY && n_parts >= PARTS_LEAST);
	if (r)
		return false;
	choose(cutter, &whole, span_ns, ret);
	return true;
}

bool place_cut_points(const struct place_cut_basis *basis, const struct plan *plan,
		      const struct cut_wish *wish, struct cut_choice *ret)
{
	_cleanup_(cutter_freep) struct cutter *cutter = NULL;

	if (plan->pinned)
		return false;
	cutter = calloc(1, sizeof(*cutter));
	if (!cutter || cut_model_init(&cutter->model, basis, plan))
		return false;
	/* States are updated in order. */
	return plan->has_state || !cut_has_any_room(&cutter->model)
		       ? cut_choose_pieces(&cutter->model, wish, ret)
		       : choose_by_schedule(cutter, ret);
}

int place_cut_graph(const struct place_cut_basis *basis, const struct plan *plan,
		    struct place_graph **ret)
{
	_cleanup_(cutter_freep) struct cutter *cutter = calloc(1, sizeof(*cutter));
	uint32_t n_parts = PARTS;
	struct cut_times whole;
	double whole_ns;
	int r;

	if (!cutter || cut_model_init(&cutter->model, basis, plan))
		return error_origin(-ENOMEM);
	whole = cut_predict(&cutter->model, plan->max_count);
	whole_ns = cut_least_of(&cutter->model, &whole);
	if (isinf(whole_ns))
		return error_origin(-EOPNOTSUPP);
	do {
		make_units(cutter, whole_ns, n_parts);
		r = make_graph(cutter);
		n_parts /= 2;
	} while (r == CUT_E_MANY);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(cutter->graph);
	return 0;
}

uint64_t place_cut_bytes(uint32_t n_devices, size_t desc_bytes)
{
	const uint64_t n_tensors = desc_bytes / sizeof(struct rbk_plan_tensor);
	const uint64_t n_nodes = desc_bytes / sizeof(struct rbk_plan_node);

	return sizeof(struct cutter) + place_graph_bytes(UNITS_MOST, EDGES_MOST, n_devices) +
	       n_tensors * (2 * sizeof(uint16_t) + sizeof(uint32_t)) + n_nodes * sizeof(float);
}
