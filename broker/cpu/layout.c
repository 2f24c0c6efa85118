/* SPDX-License-Identifier: MIT */
/*
 * Pictures with channels last
 *
 * ONNX stores pictures channel after channel. Windows are computed faster if all channels of a
 * pixel are adjacent: vectors then hold channels, for which every tap, stride and padding is the
 * same. A scratch tensor may lie in either order. A task's tensors, and tensors that other
 * operators read or write, must keep ONNX's order, so pictures are converted at these places.
 *
 * A node is computed in one order or the other, however its pictures lie; steps of its own convert
 * the differences before and after it. A node's output lies in the order of its computation if
 * possible. So a choice is one bit per node. Its price is the time that nodes with channels first
 * take longer, plus the time of conversions. The cheapest choice is a minimal cut. This file only
 * improves an initial choice: all windows that gain, and the nodes between them. It improves by
 * single nodes, and by whole regions that do not pay. A few rounds find the gains of real networks.
 *
 * A client's network may be large. Therefore choosing is a list of stages, each uniform over all
 * nodes or all tensors, and cpu_layout_choose() does some items per call.
 */
#include "cpu/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/compile.h"
#include "plan/executor.h"
#include "util/checked.h"
#include "util/error.h"

/* Nodes, tensors and operands per call: less than half a millisecond */
enum { PART_STEPS = 8192 };

/* Cost of a conversion: start-up time, and bytes read or written per nanosecond */
static const double conversion_ns = 150, conversion_bytes_per_ns = 5;

/*
 * Maximum size of a converted tensor, which needs memory of its own; or half of the plan's scratch,
 * if that is more
 */
static const uint64_t conversion_max_bytes = 16 << 20;

/* A reader of a picture: an element of a list, stored by node and input */
struct reader {
	uint32_t node, next;
	bool is_picture; /* the node treats it as a picture: it follows the node's choice */
};
#define NO_READER UINT32_MAX

struct chooser {
	struct cpu_layout *layout;
	const struct plan *plan;
	bool *may;           /* by node: can be computed with channels last */
	bool *is_bound;      /* by tensor: cannot lie with channels last */
	double *gain_ns;     /* by node: time saved by channels last */
	uint32_t *writers;   /* by tensor: the node that writes it; UINT32_MAX: none */
	uint32_t *first;     /* by tensor: the head of its readers' list */
	uint32_t *n_readers; /* by tensor: readers in its list; a node may read it often */
	uint32_t *n_last;    /* by tensor: readers that need channels last */
	uint32_t *region;    /* by node: its parent in a union-find forest */
	double *saved_ns;    /* by region: time saved by its present choice */
	struct reader *list; /* n_nodes * OP_MAX_INPUTS readers */
	enum cpu_layout_wish wish;
	bool has_improved; /* in the current round, or the last one */
	bool is_best;      /* the last round improved nothing */

	unsigned int stage; /* index into stages */
	uint32_t next;      /* next item of the stage */
	uint32_t n_steps;   /* steps taken by the current call */
};

static double conversion_of(const struct chooser *chooser, uint16_t t)
{
	const struct tensor *tensor = &chooser->plan->tensors[t];
	const double bytes = (double)(tensor->fixed_bytes + tensor->row_bytes);
	const uint64_t half = chooser->plan->scratch_bytes / 2;

	if (tensor->max_bytes > (half > conversion_max_bytes ? half : conversion_max_bytes))
		return 1e18;
	return conversion_ns + bytes / conversion_bytes_per_ns;
}

static bool wants_last(const struct chooser *chooser, uint32_t reader)
{
	return chooser->list[reader].is_picture &&
	       chooser->layout->is_last[chooser->list[reader].node];
}

/* Return the cost of all conversions of @t, for its writer and its readers. */
static double price_of_tensor(const struct chooser *chooser, uint16_t t)
{
	const struct cpu_layout *layout = chooser->layout;
	const uint32_t writer = chooser->writers[t];
	const bool written_last = writer != UINT32_MAX && layout->is_last[writer];
	const bool lies_last = written_last && !chooser->is_bound[t];
	const uint32_t n_last = chooser->n_last[t];
	const uint32_t n =
		(written_last != lies_last) + (lies_last ? chooser->n_readers[t] - n_last : n_last);

	return n ? n * conversion_of(chooser, t) : 0;
}

static void set_last(struct chooser *chooser, uint32_t i, bool is_last)
{
	const struct node *node = &chooser->plan->nodes[i];

	if (chooser->layout->is_last[i] == is_last)
		return;
	chooser->layout->is_last[i] = is_last;
	for (unsigned int k = 0; k < node->n_in; k++)
		if (cpu_layout_has_in(chooser->plan, node, k))
			chooser->n_last[node->in[k]] += is_last ? 1 : UINT32_MAX;
}

/* Return all costs that depend on the choice for node @i. */
static double price_of_node(struct chooser *chooser, uint32_t i)
{
	const struct plan *plan = chooser->plan;
	const struct node *node = &plan->nodes[i];
	double ns = chooser->layout->is_last[i] ? 0 : chooser->gain_ns[i];

	chooser->n_steps += (uint32_t)node->n_in + node->n_out;
	for (unsigned int k = 0; k < node->n_in; k++)
		if (cpu_layout_has_in(plan, node, k))
			ns += price_of_tensor(chooser, node->in[k]);
	for (unsigned int k = 0; k < node->n_out; k++)
		if (cpu_layout_has_out(plan, node, k))
			ns += price_of_tensor(chooser, plan_result(plan, node, k));
	return ns;
}

/* ---- Choice ---- */

/* Choose windows that gain, and then the nodes that read them. */
static void choose_first(struct chooser *chooser, uint32_t i)
{
	const struct node *node = &chooser->plan->nodes[i];
	bool reads = false;

	for (unsigned int k = 0; k < node->n_in; k++)
		if (cpu_layout_has_in(chooser->plan, node, k) &&
		    chooser->writers[node->in[k]] != UINT32_MAX)
			reads |= chooser->layout->is_last[chooser->writers[node->in[k]]];
	chooser->n_steps += node->n_in;
	set_last(chooser, i,
		 chooser->may[i] &&
			 (chooser->gain_ns[i] > 0 || (reads && chooser->gain_ns[i] == 0)));
}

/* Flip the choice for node @i if that is cheaper: one item of a round. */
static void improve(struct chooser *chooser, uint32_t i)
{
	const bool *is_last = chooser->layout->is_last;
	double before, after;

	if (i == 0) {
		chooser->is_best = !chooser->has_improved;
		chooser->has_improved = false;
	}
	if (chooser->is_best || !chooser->may[i])
		return;
	before = price_of_node(chooser, i);
	set_last(chooser, i, !is_last[i]);
	after = price_of_node(chooser, i);
	if (after < before)
		chooser->has_improved = true;
	else
		set_last(chooser, i, !is_last[i]);
}

static uint32_t region_of(struct chooser *chooser, uint32_t i)
{
	while (chooser->region[i] != i)
		i = chooser->region[i] = chooser->region[chooser->region[i]];
	return i;
}

static void begin_region(struct chooser *chooser, uint32_t i)
{
	chooser->region[i] = i;
}

/* Join nodes that are computed with channels last and pass pictures to each other. */
static void find_region(struct chooser *chooser, uint32_t t)
{
	const uint32_t writer = chooser->writers[t];

	if (writer == UINT32_MAX || !chooser->layout->is_last[writer])
		return;
	chooser->n_steps += chooser->n_readers[t];
	for (uint32_t k = chooser->first[t]; k != NO_READER; k = chooser->list[k].next)
		if (wants_last(chooser, k))
			chooser->region[region_of(chooser, chooser->list[k].node)] =
				region_of(chooser, writer);
}

static void save_by_node(struct chooser *chooser, uint32_t i)
{
	if (chooser->layout->is_last[i])
		chooser->saved_ns[region_of(chooser, i)] += chooser->gain_ns[i];
}

static void save_by_tensor(struct chooser *chooser, uint32_t t)
{
	const bool *is_last = chooser->layout->is_last;
	uint32_t node = chooser->writers[t];

	chooser->n_steps += chooser->n_readers[t];
	for (uint32_t k = chooser->first[t]; k != NO_READER; k = chooser->list[k].next)
		if (wants_last(chooser, k) && (node == UINT32_MAX || !is_last[node]))
			node = chooser->list[k].node;
	if (node != UINT32_MAX && is_last[node])
		chooser->saved_ns[region_of(chooser, node)] -=
			price_of_tensor(chooser, (uint16_t)t);
}

/* Reset the nodes of regions that do not pay. */
static void take_back(struct chooser *chooser, uint32_t i)
{
	if (chooser->layout->is_last[i] && chooser->saved_ns[region_of(chooser, i)] <= 0)
		set_last(chooser, i, false);
}

/* For tests: choose channels last wherever possible. */
static void take_wish(struct chooser *chooser, uint32_t i)
{
	if (chooser->wish == CPU_LAYOUT_EVERY)
		chooser->layout->is_last[i] = chooser->may[i];
}

static void lie(struct chooser *chooser, uint32_t t)
{
	chooser->layout->lies_last[t] = !chooser->is_bound[t] &&
					chooser->writers[t] != UINT32_MAX &&
					chooser->layout->is_last[chooser->writers[t]];
}

/* ---- The plan ---- */

static void add_reader(struct chooser *chooser, uint32_t node, unsigned int input)
{
	const uint16_t t = chooser->plan->nodes[node].in[input];
	const uint32_t at = node * OP_MAX_INPUTS + input;

	chooser->list[at] = (struct reader){
		.node = node,
		.next = chooser->first[t],
		.is_picture = cpu_layout_has_in(chooser->plan, &chooser->plan->nodes[node], input),
	};
	chooser->first[t] = at;
	chooser->n_readers[t]++;
}

static void look_at(struct chooser *chooser, uint32_t i)
{
	const struct plan *plan = chooser->plan;
	const struct node *node = &plan->nodes[i];
	const struct cpu_op *op = cpu_op_of(node->op->kind);

	/* A view shares its tensor's bytes, so it fixes their order. */
	if (node->op->kind == OP_RESHAPE &&
	    plan->tensors[node->in[0]].root == plan->tensors[node->out[0]].root)
		chooser->is_bound[node->in[0]] = true;
	if (node->computed_by != PLAN_NO_NODE)
		return;
	chooser->n_steps += (uint32_t)node->n_in + node->n_out;
	for (unsigned int k = 0; k < node->n_in; k++)
		if (cpu_layout_is_picture(cpu_layout_tensor(plan, node->in[k])))
			add_reader(chooser, i, k);
	for (unsigned int k = 0; k < node->n_out; k++)
		if (cpu_layout_has_out(plan, node, k))
			chooser->writers[plan_result(plan, node, k)] = i;
	chooser->may[i] = op->may_be_last && op->may_be_last(plan, node);
	if (chooser->may[i])
		chooser->gain_ns[i] = op->last_gain_ns ? op->last_gain_ns(plan, node) : 0;
}

static struct chooser *chooser_free(struct chooser *chooser)
{
	if (!chooser)
		return NULL;
	free(chooser->may);
	free(chooser->is_bound);
	free(chooser->gain_ns);
	free(chooser->writers);
	free(chooser->first);
	free(chooser->n_readers);
	free(chooser->n_last);
	free(chooser->region);
	free(chooser->saved_ns);
	free(chooser->list);
	free(chooser);
	return NULL;
}

static int chooser_init(struct chooser *chooser, struct cpu_layout *layout)
{
	const struct plan *plan = layout->plan;

	chooser->layout = layout;
	chooser->plan = plan;
	chooser->has_improved = true;
	chooser->may = calloc(plan->n_nodes, sizeof(*chooser->may));
	chooser->is_bound = calloc(plan->n_tensors, sizeof(*chooser->is_bound));
	chooser->gain_ns = calloc(plan->n_nodes, sizeof(*chooser->gain_ns));
	chooser->writers = calloc(plan->n_tensors, sizeof(*chooser->writers));
	chooser->first = calloc(plan->n_tensors, sizeof(*chooser->first));
	chooser->n_readers = calloc(plan->n_tensors, sizeof(*chooser->n_readers));
	chooser->n_last = calloc(plan->n_tensors, sizeof(*chooser->n_last));
	chooser->region = calloc(plan->n_nodes, sizeof(*chooser->region));
	chooser->saved_ns = calloc(plan->n_nodes, sizeof(*chooser->saved_ns));
	chooser->list = calloc(plan->n_nodes, OP_MAX_INPUTS * sizeof(*chooser->list));
	if (!chooser->may || !chooser->is_bound || !chooser->gain_ns || !chooser->writers ||
	    !chooser->first || !chooser->n_readers || !chooser->n_last || !chooser->region ||
	    !chooser->saved_ns || !chooser->list)
		return error_origin(-ENOMEM);
	for (uint32_t t = 0; t < plan->n_tensors; t++) {
		chooser->writers[t] = UINT32_MAX;
		chooser->first[t] = NO_READER;
		chooser->is_bound[t] = plan->tensors[t].kind != RBK_TENSOR_SCRATCH;
	}
	return 0;
}

int cpu_layout_init(struct cpu_layout *layout, const struct plan *plan, enum cpu_layout_wish wish)
{
	*layout = (struct cpu_layout){.plan = plan};
	layout->is_last = calloc(plan->n_nodes, sizeof(*layout->is_last));
	layout->lies_last = calloc(plan->n_tensors, sizeof(*layout->lies_last));
	if (!layout->is_last || !layout->lies_last)
		return error_origin(-ENOMEM);
	if (!plan->fuses || wish == CPU_LAYOUT_NONE)
		return 0;
	layout->chooser = calloc(1, sizeof(*layout->chooser));
	if (!layout->chooser)
		return error_origin(-ENOMEM);
	layout->chooser->wish = wish;
	return chooser_init(layout->chooser, layout);
}

enum items { BY_NODE, BY_TENSOR };

static const struct {
	enum items items;
	bool is_choice; /* part of the choice; skipped for CPU_LAYOUT_EVERY */
	void (*item)(struct chooser *chooser, uint32_t index);
} stages[] = {
	{BY_NODE, false, look_at},         {BY_NODE, false, take_wish},
	{BY_NODE, true, choose_first},     {BY_NODE, true, improve},
	{BY_NODE, true, improve},          {BY_NODE, true, improve},
	{BY_NODE, true, improve},          {BY_NODE, true, begin_region},
	{BY_TENSOR, true, find_region},    {BY_NODE, true, save_by_node},
	{BY_TENSOR, true, save_by_tensor}, {BY_NODE, true, take_back},
	{BY_TENSOR, false, lie},
};

static uint32_t n_items(const struct chooser *chooser, unsigned int stage)
{
	if (stages[stage].is_choice && chooser->wish == CPU_LAYOUT_EVERY)
		return 0;
	return stages[stage].items == BY_NODE ? chooser->plan->n_nodes : chooser->plan->n_tensors;
}

int cpu_layout_choose(struct cpu_layout *layout)
{
	struct chooser *chooser = layout->chooser;

	if (!chooser)
		return 0;
	chooser->n_steps = 0;
	for (; chooser->stage < ARRAY_SIZE(stages); chooser->stage++) {
		while (chooser->next < n_items(chooser, chooser->stage)) {
			if (chooser->n_steps >= PART_STEPS)
				return EXECUTOR_E_MORE;
			chooser->n_steps++;
			stages[chooser->stage].item(chooser, chooser->next++);
		}
		chooser->next = 0;
	}
	layout->chooser = chooser_free(chooser);
	return 0;
}

void cpu_layout_deinit(struct cpu_layout *layout)
{
	layout->chooser = chooser_free(layout->chooser);
	free(layout->is_last);
	free(layout->lies_last);
}
