/* SPDX-License-Identifier: MIT */
/*
 * Cuts by time: see cut-devices.h
 *
 * All steps take time in proportion to nodes and operands, or to the units, whose number is
 * bounded, and edges between them.
 */
#include "place/cut-devices.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "place/graph.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/number.h"

enum {
	/* Units and edges between them, at most */
	UNITS_MOST = 512,
	EDGES_MOST = 4096,
	/* A unit is full at this part of the plan's time; a larger one if there are too many. */
	PARTS = 64,
	PARTS_LEAST = 8,
	UNITS_PER_PART = UNITS_MOST / PARTS,
	LONG_PARTS = 8,      /* a node is long at this part of a full unit */
	SEARCH_STEPS = 1024, /* of 64 units; fewer if there are more */
};

enum { CUT_E_MANY = 1 }; /* too many segments, or edges: larger units have fewer */

/* Least time of a unit, in ns: some submissions */
static const double least_unit_ns = 50000;
/* Time between the end of a segment and the start of another that waits for it */
static const double hop_ns = 10000;
/* Share that these may add to a task of one row, which gains nothing */
static const double most_loss = 0.1;

struct cutter {
	const struct place_cut_basis *basis;
	const struct plan *plan;
	uint32_t count; /* rows of the task that is predicted */
	uint32_t n_units;
	uint16_t first[UNITS_MOST + 1]; /* node */
	/* Units with execution and what crosses; the rest as place/graph.h has it */
	struct place_graph *graph;
	uint16_t *writer, *reader; /* by tensor: node that writes it, last that reads it */

	/* Units as segments */
	bool begins[UNITS_MOST]; /* a segment begins with the unit */
	uint8_t device[UNITS_MOST];
	uint16_t segment_of[UNITS_MOST];
	uint32_t n_segments;
	uint16_t first_unit[UNITS_MOST + 1]; /* by segment */
	float end_ns[UNITS_MOST];
};

static struct cutter *cutter_free(struct cutter *cutter)
{
	if (!cutter)
		return NULL;
	place_graph_free(cutter->graph);
	free(cutter->writer);
	free(cutter->reader);
	free(cutter);
	return NULL;
}
DEFINE_CLEANUP(struct cutter *, cutter_free)

/* --- Times of nodes --- */

static double submission_ns(const struct place_cut_device *device)
{
	return (double)device->profile.task_ns + hop_ns;
}

/* Return true if the device has the operator, and memory that holds the types. */
static bool has_node(const struct place_cut_device *device, const struct plan *plan,
		     const struct node *node)
{
	if (!(node->devices & device->kind))
		return false;
	for (uint32_t i = 0; device->types && i < (uint32_t)node->n_in + node->n_out; i++) {
		const uint16_t t = i < node->n_in ? node->in[i] : node->out[i - node->n_in];

		if (t != PLAN_NO_TENSOR && !(device->types & OP_TYPE(plan->tensors[t].dtype)))
			return false;
	}
	return true;
}

static uint64_t bytes_of(const struct cutter *cutter, uint16_t t)
{
	return tensor_bytes(&cutter->plan->tensors[t], cutter->count);
}

/* Return the time that bound tensors of a node take to a device or back. */
static double bound_ns(const struct cutter *cutter, const struct place_profile *profile,
		       const struct node *node)
{
	double ns = 0;

	if (!(profile->up_bytes_per_ns > 0) || !(profile->down_bytes_per_ns > 0))
		return 0;
	for (uint32_t i = 0; i < (uint32_t)node->n_in + node->n_out; i++) {
		const bool is_input = i < node->n_in;
		const uint16_t t = is_input ? node->in[i] : node->out[i - node->n_in];

		if (t == PLAN_NO_TENSOR ||
		    cutter->plan->tensors[t].kind !=
			    (is_input ? RBK_TENSOR_INPUT : RBK_TENSOR_OUTPUT))
			continue;
		ns += (double)profile->link_ns +
		      (double)bytes_of(cutter, t) / (double)(is_input ? profile->up_bytes_per_ns
								      : profile->down_bytes_per_ns);
	}
	return ns;
}

/* Return the time of a node on a device; INFINITY: the device lacks it. */
static double node_ns(const struct cutter *cutter, uint16_t i, uint32_t d)
{
	const struct place_cut_device *device = &cutter->basis->devices[d];
	const struct node *node = &cutter->plan->nodes[i];
	double ns = 0, work_ns;

	if (!has_node(device, cutter->plan, node))
		return INFINITY;
	if (node->computed_by == PLAN_NO_NODE)
		ns = place_profile_cost_ns(&device->profile, node->op->family, &node->cost, 1,
					   cutter->count, &work_ns);
	return ns + bound_ns(cutter, &device->profile, node);
}

/* Times by device */
struct times {
	double ns[RBK_MAX_DEVICES];
};

static double least_of(const struct cutter *cutter, const struct times *times)
{
	double ns = INFINITY;

	for (uint32_t d = 0; d < cutter->basis->n_devices; d++)
		ns = fmin(ns, times->ns[d]);
	return ns;
}

static struct times node_times(const struct cutter *cutter, uint16_t i)
{
	struct times ret = {{0}};

	for (uint32_t d = 0; d < cutter->basis->n_devices; d++)
		ret.ns[d] = node_ns(cutter, i, d);
	return ret;
}

static void add_times(const struct cutter *cutter, struct times *sum, const struct times *times)
{
	for (uint32_t d = 0; d < cutter->basis->n_devices; d++)
		sum->ns[d] += times->ns[d];
}

/* Return true if the plan's tenant has room for all of it on the device. */
static bool has_room(const struct place_cut_device *device, const struct plan *plan)
{
	return plan->constant_bytes <= device->room_bytes &&
	       plan->scratch_bytes <= device->room_bytes - plan->constant_bytes;
}

/* Return true if a device beside the CPU has room. */
static bool has_any_room(const struct place_cut_basis *basis, const struct plan *plan)
{
	for (uint32_t d = 1; d < basis->n_devices; d++)
		if (has_room(&basis->devices[d], plan))
			return true;
	return false;
}

/* Return the time of the whole plan on a device; INFINITY: it lacks memory or an operator. */
static double predict_whole(const struct cutter *cutter, uint32_t d)
{
	const struct place_cut_device *device = &cutter->basis->devices[d];
	double ns = has_room(device, cutter->plan) ? submission_ns(device) : INFINITY;

	for (uint16_t i = 0; i < cutter->plan->n_nodes && !isinf(ns); i++)
		ns += node_ns(cutter, i, d);
	return ns;
}

/* Predict a task of @count rows of the whole plan on each device. */
static struct times predict(struct cutter *cutter, uint32_t count)
{
	struct times ret = {{0}};

	cutter->count = count;
	for (uint32_t d = 0; d < cutter->basis->n_devices; d++)
		ret.ns[d] = predict_whole(cutter, d);
	return ret;
}

/* Return true if a device beside the CPU can run the whole plan. */
static bool is_whole(const struct cutter *cutter, const struct times *whole)
{
	for (uint32_t d = 1; d < cutter->basis->n_devices; d++)
		if (!isinf(whole->ns[d]))
			return true;
	return false;
}

/* --- Units --- */

static void find_uses(struct cutter *cutter)
{
	const struct plan *plan = cutter->plan;

	for (uint16_t t = 0; t < plan->n_tensors; t++)
		cutter->writer[t] = cutter->reader[t] = PLAN_NO_NODE;
	for (uint16_t i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];

		for (uint32_t k = 0; k < node->n_in; k++)
			if (node->in[k] != PLAN_NO_TENSOR)
				cutter->reader[node->in[k]] = i;
		for (uint32_t k = 0; k < node->n_out; k++)
			if (node->out[k] != PLAN_NO_TENSOR)
				cutter->writer[node->out[k]] = i;
	}
}

/* Return true if node @i reads what a node from @first on has written. */
static bool follows(const struct cutter *cutter, uint16_t i, uint16_t first)
{
	const struct node *node = &cutter->plan->nodes[i];

	for (uint32_t k = 0; k < node->n_in; k++) {
		const uint16_t writer =
			node->in[k] == PLAN_NO_TENSOR ? PLAN_NO_NODE : cutter->writer[node->in[k]];

		if (writer != PLAN_NO_NODE && writer >= first)
			return true;
	}
	return false;
}

/* Return true if a node behind @i reads what node @k has written. */
static bool is_read_later(const struct cutter *cutter, uint16_t k, uint16_t i)
{
	const struct node *node = &cutter->plan->nodes[k];

	for (uint32_t o = 0; o < node->n_out; o++) {
		const uint16_t reader = node->out[o] == PLAN_NO_TENSOR
						? PLAN_NO_NODE
						: cutter->reader[node->out[o]];

		if (reader != PLAN_NO_NODE && reader > i)
			return true;
	}
	return false;
}

/* Return true if devices would save time by having a unit and the node after it apart. */
static bool is_better_apart(const struct cutter *cutter, const struct times *unit,
			    const struct times *node)
{
	struct times both = *unit;

	add_times(cutter, &both, node);
	return least_of(cutter, &both) >= least_of(cutter, unit) + least_of(cutter, node) + hop_ns;
}

/*
 * Join neighbouring nodes to units. A unit ends where it is full, where a node is for another
 * device, where a node needs none of the unit, since that begins a branch, and before a long node
 * if others wait for the unit, too. Nodes that are computed along with others stay with them.
 */
static void make_units(struct cutter *cutter, double whole_ns, uint32_t n_parts)
{
	const struct plan *plan = cutter->plan;
	const double full_ns = fmax(least_unit_ns, whole_ns / n_parts);
	const uint32_t n_most = n_parts * UNITS_PER_PART;
	const double long_ns = full_ns / LONG_PARTS;
	struct times unit = {{0}};
	bool others_wait = false;
	uint16_t joined = 0;

	cutter->n_units = 1;
	for (uint16_t i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];
		const uint16_t first = cutter->first[cutter->n_units - 1];
		const struct times times = node_times(cutter, i);
		const double unit_ns = least_of(cutter, &unit), ns = least_of(cutter, &times);
		bool is_end = unit_ns >= full_ns || is_better_apart(cutter, &unit, &times);

		/* Half of the units are for what takes time. */
		if (cutter->n_units < n_most / 2 || unit_ns >= long_ns || ns >= long_ns)
			is_end |= !follows(cutter, i, first);
		is_end |= ns >= long_ns && others_wait;
		if (is_end && i > joined && i > first && cutter->n_units < n_most) {
			cutter->first[cutter->n_units++] = i;
			unit = (struct times){{0}};
			others_wait = false;
		}
		add_times(cutter, &unit, &times);
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
	const struct plan *plan = cutter->plan;
	struct place_graph *graph = cutter->graph;
	uint32_t n = graph->first[u];

	for (uint16_t i = cutter->first[u]; i < cutter->first[u + 1]; i++)
		for (uint32_t k = 0; k < plan->nodes[i].n_in; k++) {
			const uint16_t t = plan->nodes[i].in[k];
			uint32_t from;

			if (t == PLAN_NO_TENSOR || cutter->writer[t] == PLAN_NO_NODE ||
			    cutter->writer[t] >= cutter->first[u])
				continue;
			from = unit_of(cutter, cutter->writer[t]);
			if (edge_to[from] < graph->first[u] || edge_to[from] >= n) {
				if (n == EDGES_MOST)
					return false;
				edge_to[from] = n;
				graph->from[n] = from;
				graph->edge_bytes[n++] = 0;
			}
			graph->edge_bytes[edge_to[from]] += (float)bytes_of(cutter, t);
		}
	graph->first[u + 1] = n;
	return true;
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
					       (float)submission_ns(&basis->devices[b]);
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
	const struct place_cut_basis *basis = cutter->basis;
	uint32_t edge_to[UNITS_MOST] = {0};

	cutter->graph = place_graph_free(cutter->graph);
	if (place_graph_new(cutter->n_units, most_edges(cutter->plan), basis->n_devices,
			    &cutter->graph))
		return error_origin(-ENOMEM);
	for (uint32_t u = 0; u < cutter->n_units; u++) {
		if (!add_edges(cutter, u, edge_to))
			return CUT_E_MANY;
		for (uint32_t d = 0; d < basis->n_devices; d++) {
			double ns = has_room(&basis->devices[d], cutter->plan) ? 0 : INFINITY;

			for (uint16_t i = cutter->first[u]; i < cutter->first[u + 1]; i++)
				ns += node_ns(cutter, i, d);
			cutter->graph->exec_ns[u * basis->n_devices + d] = (float)ns;
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

/* Return when all that a segment needs is on its device; below 0: it is not known yet. */
static float ready_ns(const struct cutter *cutter, uint32_t s)
{
	const struct place_graph *graph = cutter->graph;
	const uint32_t first = cutter->first_unit[s], end = cutter->first_unit[s + 1];
	float ns = 0;

	for (uint32_t e = graph->first[first]; e < graph->first[end]; e++) {
		const uint32_t from = graph->from[e];

		if (cutter->segment_of[from] == s)
			continue;
		if (cutter->end_ns[cutter->segment_of[from]] < 0)
			return -1;
		ns = max_float(ns, cutter->end_ns[cutter->segment_of[from]] +
					   place_graph_transfer_ns(graph, e, cutter->device[from],
								   cutter->device[first]));
	}
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
		ns = max_float(ns, free_ns[d]) + (float)submission_ns(&cutter->basis->devices[d]);
		for (uint32_t u = cutter->first_unit[s]; u < cutter->first_unit[s + 1]; u++)
			ns += graph->exec_ns[u * graph->n_devices + d];
		cutter->end_ns[s] = free_ns[d] = ns;
		span_ns = max_float(span_ns, ns);
		n_left--;
	}
	return span_ns;
}

/*
 * Join neighbouring segments of one device unless the end comes later.
 * Return: the time of the last end.
 */
static float join_segments(struct cutter *cutter)
{
	float span_ns = run_segments(cutter), ns;

	for (uint32_t u = 1; u < cutter->n_units; u++) {
		if (!cutter->begins[u] || cutter->device[u] != cutter->device[u - 1])
			continue;
		cutter->begins[u] = false;
		ns = run_segments(cutter);
		if (ns <= span_ns)
			span_ns = ns;
		else
			cutter->begins[u] = true;
	}
	run_segments(cutter);
	return span_ns;
}

/* Return the bytes of a tensor that the placer counts as touched by segment @s. */
static uint64_t touched_bytes(const struct cutter *cutter, uint32_t s, uint16_t t, bool is_written)
{
	uint16_t other;

	if (t == PLAN_NO_TENSOR)
		return 0;
	if (cutter->plan->tensors[t].kind != RBK_TENSOR_SCRATCH)
		return bytes_of(cutter, t);
	other = is_written ? cutter->reader[t] : cutter->writer[t];
	if (other == PLAN_NO_NODE || cutter->segment_of[unit_of(cutter, other)] == s)
		return 0;
	return bytes_of(cutter, t);
}

/* Move segments that touch less than the threshold to the CPU. Return: true if there are any. */
static bool leave_small(struct cutter *cutter)
{
	const struct plan *plan = cutter->plan;
	uint64_t bytes = 0;
	bool ret = false;

	for (uint32_t u = 0; u < cutter->n_units; u++) {
		const uint32_t s = cutter->segment_of[u];

		if (u == 0 || cutter->begins[u])
			bytes = 0;
		for (uint16_t i = cutter->first[u]; i < cutter->first[u + 1]; i++) {
			const struct node *node = &plan->nodes[i];

			for (uint32_t k = 0; k < node->n_in; k++)
				bytes += touched_bytes(cutter, s, node->in[k], false);
			for (uint32_t k = 0; k < node->n_out; k++)
				bytes += touched_bytes(cutter, s, node->out[k], true);
		}
		if (u + 1 < cutter->n_units && !cutter->begins[u + 1])
			continue;
		if (bytes >= cutter->basis->threshold_bytes || cutter->device[u] == RBK_DEVICE_CPU)
			continue;
		for (uint32_t i = u + 1; i-- > 0 && cutter->segment_of[i] == s;)
			cutter->device[i] = RBK_DEVICE_CPU;
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
	place_graph_improve(cutter->graph,
			    SEARCH_STEPS * PARTS / (uint32_t)max_u64(cutter->n_units, PARTS));
	memcpy(cutter->device, cutter->graph->device, cutter->n_units);
	memset(cutter->begins, true, sizeof(cutter->begins));
	*ret_ns = join_segments(cutter);
	if (leave_small(cutter))
		*ret_ns = join_segments(cutter);
	return cutter->n_segments > CUT_MAX_SEGMENTS ? CUT_E_MANY : 0;
}

static bool make_arrays(struct cutter *cutter)
{
	cutter->writer = calloc(cutter->plan->n_tensors, sizeof(*cutter->writer));
	cutter->reader = calloc(cutter->plan->n_tensors, sizeof(*cutter->reader));
	return cutter->writer && cutter->reader;
}

/*
 * Return true if submissions of segments add too much to a task of one row, which gains nothing. A
 * plan that only the CPU can run as a whole is for large tasks, or would not be worth a cut.
 */
static bool loses_rows(struct cutter *cutter, const struct times *whole)
{
	const struct times row = predict(cutter, 1);

	return is_whole(cutter, whole) &&
	       cutter->n_segments * hop_ns > most_loss * least_of(cutter, &row);
}

/* Return why a plan stays whole whose segments would end after @span_ns; 0: it is cut. */
static enum rbk_cut why_whole(struct cutter *cutter, const struct times *whole, float span_ns)
{
	const double gain = 1 + (double)cutter->basis->min_gain;

	if (!is_apart(cutter) || (double)span_ns * gain > least_of(cutter, whole))
		return RBK_CUT_NO_GAIN;
	return loses_rows(cutter, whole) ? RBK_CUT_SMALL : RBK_CUT_UNKNOWN;
}

static void choose(struct cutter *cutter, const struct times *whole, float span_ns,
		   struct cut_choice *ret)
{
	const enum rbk_cut why = why_whole(cutter, whole, span_ns);

	*ret = (struct cut_choice){
		.why = why ? why : RBK_CUT_FASTER,
		.whole_ns = (float)least_of(cutter, whole),
		.cut_ns = is_apart(cutter) ? span_ns : 0,
	};
	for (uint32_t s = 1; !why && s < cutter->n_segments; s++)
		ret->firsts[ret->n++] = cutter->first[cutter->first_unit[s]];
}

bool place_cut_points(const struct place_cut_basis *basis, const struct plan *plan,
		      struct cut_choice *ret)
{
	_cleanup_(cutter_freep) struct cutter *cutter = NULL;
	uint32_t n_parts = PARTS;
	struct times whole;
	float span_ns = 0;
	double whole_ns;
	int r;

	/* States are updated in order, and what no device has room for is cut into pieces. */
	if (plan->pinned || plan->has_state || !has_any_room(basis, plan))
		return false;
	/* Tasks of few rows stay on the CPU. */
	if (plan->max_count > 1 && plan->max_count < basis->min_count) {
		*ret = (struct cut_choice){.why = RBK_CUT_SMALL};
		return true;
	}
	cutter = calloc(1, sizeof(*cutter));
	if (!cutter)
		return false;
	cutter->basis = basis;
	cutter->plan = plan;
	whole = predict(cutter, plan->max_count);
	whole_ns = least_of(cutter, &whole);
	if (isinf(whole_ns) || !make_arrays(cutter))
		return false;
	find_uses(cutter);
	do {
		r = make_segments(cutter, whole_ns, n_parts, &span_ns);
		n_parts /= 2;
	} while (r == CUT_E_MANY && n_parts >= PARTS_LEAST);
	if (r)
		return false;
	choose(cutter, &whole, span_ns, ret);
	return true;
}

uint64_t place_cut_bytes(uint32_t n_devices, uint64_t n_tensors)
{
	return sizeof(struct cutter) + place_graph_bytes(UNITS_MOST, EDGES_MOST, n_devices) +
	       2 * n_tensors * sizeof(uint16_t);
}
