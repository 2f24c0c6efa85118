/* SPDX-License-Identifier: MIT */
/*
 * Scratch layout: tensors that live at the same time never share bytes
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan-layout.h"
#include "reference/reference.h"
#include "support/one-op.h"
#include "support/test.h"

/* Return true if node @n writes tensor @t, itself or by a node fused with it. */
static bool writes(const struct plan *plan, unsigned int n, unsigned int t)
{
	const struct node *node = &plan->nodes[n];

	for (unsigned int j = 0; j < node->n_out; j++)
		if (node->out[j] == t)
			return true;
	return (node->sum != PLAN_NO_NODE && writes(plan, node->sum, t)) ||
	       (node->activation != PLAN_NO_NODE && writes(plan, node->activation, t));
}

/* Return true if node @i needs tensor @t, as an output or as a value that a later node reads. */
static bool is_live(const struct plan *plan, unsigned int t, unsigned int i)
{
	bool written = false, needed = false;

	for (unsigned int n = 0; n < plan->n_nodes; n++) {
		written |= n <= i && writes(plan, n, t);
		needed |= n >= i && writes(plan, n, t);
		for (unsigned int j = 0; j < plan->nodes[n].n_in; j++)
			needed |= n >= i && plan->nodes[n].in[j] == t;
	}
	return written && needed;
}

/* Return true if one node computes both tensors by fusion. Only the last of them is ever stored. */
static bool are_together(const struct plan *plan, unsigned int a, unsigned int b)
{
	for (unsigned int n = 0; n < plan->n_nodes; n++)
		if (plan->nodes[n].computed_by == PLAN_NO_NODE && plan->nodes[n].n_out == 1 &&
		    writes(plan, n, a) && writes(plan, n, b))
			return true;
	return false;
}

/* Return true if two tensors that are live at node @i may have the same bytes. */
static bool may_share(const struct plan *plan, unsigned int a, unsigned int b, unsigned int i)
{
	const unsigned int from = writes(plan, i, a) ? b : a, to = from == a ? b : a;

	if (plan->tensors[a].root != plan->tensors[b].root)
		return false;
	if (are_together(plan, a, b))
		return true;
	return writes(plan, i, to) && plan->nodes[i].op->in_place && !is_live(plan, from, i + 1);
}

/* Return true if tensor @t is in the plan's scratch block. */
static bool is_laid_out(const struct plan *plan, unsigned int t)
{
	return plan->tensors[plan->tensors[t].root].kind == RBK_TENSOR_SCRATCH;
}

/*
 * Check that no live tensors overlap.
 * Return: the maximum of bytes live at once, the lower bound of every layout.
 */
static uint64_t check_layout(const struct plan *plan)
{
	uint64_t most = 0;

	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		uint64_t sum = 0;
		bool is_shared;

		for (unsigned int t = 0; t < plan->n_tensors; t++) {
			const struct tensor *a = &plan->tensors[t];

			if (!is_laid_out(plan, t))
				continue;
			assert_int_equal(a->scratch_offset % PLAN_SCRATCH_ALIGN, 0);
			assert_true(a->scratch_offset + a->max_bytes <= plan->scratch_bytes);
			if (!is_live(plan, t, i))
				continue;
			is_shared = false;
			for (unsigned int u = 0; u < t; u++)
				is_shared |=
					plan->tensors[u].root == a->root && is_live(plan, u, i);
			sum += is_shared ? 0
					 : (a->max_bytes + PLAN_SCRATCH_ALIGN - 1) /
						   PLAN_SCRATCH_ALIGN * PLAN_SCRATCH_ALIGN;
			for (unsigned int u = 0; u < t; u++) {
				const struct tensor *b = &plan->tensors[u];

				if (!is_laid_out(plan, u) || !is_live(plan, u, i) ||
				    may_share(plan, t, u, i))
					continue;
				if (a->scratch_offset < b->scratch_offset + b->max_bytes &&
				    b->scratch_offset < a->scratch_offset + a->max_bytes)
					fail_msg("\"%s\" and \"%s\" overlap in node %u", a->name,
						 b->name, i);
			}
		}
		if (sum > most)
			most = sum;
	}
	return most;
}

/*
 * Make a plan of random nodes, each of which reads earlier tensors: Relu of a tensor, its product
 * with a constant, or the sum of two tensors or of a tensor and a vector.
 */
static struct plan *random_plan(uint64_t *random)
{
	struct describe *d = describe_new("", 7);
	unsigned int n = 4 + reference_random(random) % 40, rows[64];
	char in[32], out[16];

	describe_input(d, "t0", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	rows[0] = 64;
	for (unsigned int i = 1; i < n; i++) {
		unsigned int a = (unsigned int)(reference_random(random) % i);
		unsigned int b = (unsigned int)(reference_random(random) % i);

		snprintf(out, sizeof(out), "t%u", i);
		if (i + 1 == n)
			describe_inferred(d, out, RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		else
			describe_scratch(d, out);
		if (reference_random(random) % 4 == 0 && rows[a] < 4096) {
			/* [count,r] x [r,k] with a constant changes the size. */
			char constant[16];
			uint32_t width = 1 + (uint32_t)(reference_random(random) % 200);

			snprintf(constant, sizeof(constant), "c%u", i);
			describe_constant(d, constant, RBK_REF(1, 0),
					  DESCRIBE_DIMS(rows[a], width));
			snprintf(in, sizeof(in), "t%u,%s", a, constant);
			describe_node(d, "MatMul", "", in, out);
			rows[i] = width;
		} else if (reference_random(random) % 4 == 0) {
			/* If the previous node is a product, this sum is fused with it. */
			char list[16];

			snprintf(list, sizeof(list), "l%u", i);
			describe_constant(d, list, RBK_REF(1, 0), DESCRIBE_DIMS(rows[i - 1]));
			snprintf(in, sizeof(in), "%s,t%u", list, i - 1);
			describe_node(d, "Add", "", in, out);
			rows[i] = rows[i - 1];
		} else if (rows[a] == rows[b]) {
			snprintf(in, sizeof(in), "t%u,t%u", a, b);
			describe_node(d, "Add", "", in, out);
			rows[i] = rows[a];
		} else {
			snprintf(in, sizeof(in), "t%u", a);
			describe_node(d, "Relu", "", in, out);
			rows[i] = rows[a];
		}
	}
	return expect_plan(d);
}

TEST(test_layout__random_graphs)
{
	uint64_t random = 42, total = 0, least = 0, separate = 0, n_sums = 0;

	for (unsigned int i = 0; i < 300; i++) {
		struct plan *plan = random_plan(&random);

		least += check_layout(plan);
		for (unsigned int n = 0; n < plan->n_nodes; n++)
			n_sums += plan->nodes[n].sum != PLAN_NO_NODE;
		total += plan->scratch_bytes;
		for (unsigned int t = 0; t < plan->n_tensors; t++) {
			if (plan->tensors[t].kind == RBK_TENSOR_SCRATCH)
				separate += plan->tensors[t].max_bytes;
		}
		plan_free(plan);
	}
	/*
	 * An addend lives until the fused product that adds it. Some of the plans have such sums.
	 */
	assert_true(n_sums > 0);
	/* Sharing works: close to the lower bound, far below separate places. */
	assert_true(total >= least);
	assert_true(total < least + least / 10);
	assert_true(total < separate * 7 / 10);
}

TEST(test_layout__two_outputs_of_one_node)
{
	struct describe *d = describe_new("", 1);
	struct plan *plan;

	describe_input(d, "x", DESCRIBE_DIMS(64));
	describe_scratch(d, "values");
	describe_inferred(d, "indices", RBK_TENSOR_SCRATCH, RBK_DTYPE_I64);
	describe_output(d, "y", DESCRIBE_DIMS(64));
	describe_node(d, "TopK", "", "x", "values,indices");
	describe_attr_int(d, "k", 64);
	describe_node(d, "Relu", "", "values", "y");
	plan = expect_plan(d);
	/* No node reads the indices, but the node writes them beside the values. */
	check_layout(plan);
	assert_int_equal(plan->scratch_bytes, 256 + 512);
	plan_free(plan);
}

/* A scratch tensor with its expected offset. */
struct want {
	uint64_t bytes;
	struct plan_life life;
	uint64_t offset;
};

static void lay_out(struct plan *plan, const struct plan_life *lives)
{
	char message[PLAN_MESSAGE_BYTES];
	struct layout layout;

	assert_int_equal(layout_init(&layout, plan, lives), 0);
	for (uint32_t i = 0; i < layout.n_blocks; i++)
		layout_place(&layout, plan, i);
	assert_int_equal(layout_end(&layout, plan, message), 0);
	layout_deinit(&layout);
}

static void check_offsets(const struct want *wants, uint16_t n, uint64_t total)
{
	struct tensor tensors[16] = {0};
	struct plan_life lives[16] = {0};
	struct plan plan = {.tensors = tensors, .n_tensors = n};

	for (unsigned int i = 0; i < n; i++) {
		tensors[i].kind = RBK_TENSOR_SCRATCH;
		tensors[i].max_bytes = wants[i].bytes;
		tensors[i].root = (uint16_t)i;
		lives[i] = wants[i].life;
	}
	lay_out(&plan, lives);
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(tensors[i].scratch_offset, wants[i].offset);
	assert_int_equal(plan.scratch_bytes, total);
}

/* A later tensor is placed in the smallest gap that holds it, whether the first or the last. */
TEST(test_layout__best_fit)
{
	const struct want last[] = {
		{2048, {0, 1}, 0},   {1024, {0, 0}, 2048}, {1024, {0, 1}, 3072},
		{768, {0, 0}, 4096}, {768, {0, 1}, 4864},  {768, {1, 1}, 4096},
		{512, {1, 1}, 2048}, {500, {1, 1}, 2560},
	};
	const struct want first[] = {
		{2048, {0, 1}, 0},   {512, {0, 0}, 2048}, {512, {0, 1}, 2560}, {512, {0, 0}, 3072},
		{512, {0, 0}, 3584}, {512, {0, 1}, 4096}, {512, {1, 1}, 2048},
	};

	check_offsets(last, 8, 5632);
	check_offsets(first, 7, 4608);
}

/* Many scratch tensors, for direct calls of the layout. */
struct crowd {
	struct tensor tensors[RBK_MAX_PLAN_TENSORS];
	struct plan_life lives[RBK_MAX_PLAN_TENSORS];
	uint16_t placed[RBK_MAX_PLAN_TENSORS];
	struct plan plan;
};

static struct crowd *crowd_new(uint64_t *random, uint16_t n, uint16_t longest)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));

	crowd->plan = (struct plan){.tensors = crowd->tensors, .n_tensors = n};
	for (uint16_t i = 0; i < n; i++) {
		crowd->tensors[i].kind = RBK_TENSOR_SCRATCH;
		crowd->tensors[i].root = i;
		crowd->tensors[i].max_bytes = 1 + reference_random(random) % (64 * 256);
		crowd->lives[i].first = (uint16_t)(reference_random(random) % n);
		crowd->lives[i].last =
			(uint16_t)(crowd->lives[i].first + reference_random(random) % longest);
	}
	return crowd;
}

static bool crowd_meets(const struct crowd *crowd, uint16_t a, uint16_t b)
{
	return crowd->lives[a].first <= crowd->lives[b].last &&
	       crowd->lives[b].first <= crowd->lives[a].last;
}

static uint64_t padded(const struct tensor *tensor)
{
	return (tensor->max_bytes + PLAN_SCRATCH_ALIGN - 1) / PLAN_SCRATCH_ALIGN *
	       PLAN_SCRATCH_ALIGN;
}

/*
 * Return the best-fit offset of @t, by comparing it with each of the @n placed tensors in the order
 * of their offsets.
 */
static uint64_t best_fit(const struct crowd *crowd, uint16_t n, uint16_t t)
{
	uint64_t end = 0, best = UINT64_MAX, best_bytes = UINT64_MAX;

	for (uint16_t i = 0; i < n; i++) {
		const struct tensor *other = &crowd->tensors[crowd->placed[i]];

		if (!crowd_meets(crowd, crowd->placed[i], t))
			continue;
		if (other->scratch_offset > end &&
		    other->scratch_offset - end >= padded(&crowd->tensors[t]) &&
		    other->scratch_offset - end < best_bytes) {
			best_bytes = other->scratch_offset - end;
			best = end;
		}
		if (other->scratch_offset + padded(other) > end)
			end = other->scratch_offset + padded(other);
	}
	return best == UINT64_MAX ? end : best;
}

/* Check that the fast algorithm makes the same layouts. */
TEST(test_layout__as_by_comparing_all)
{
	uint64_t random = 7;

	for (unsigned int round = 0; round < 40; round++) {
		const uint16_t n = 300, longest = round % 2 ? n / 8 : 6;
		struct crowd *crowd = crowd_new(&random, n, longest);

		lay_out(&crowd->plan, crowd->lives);
		for (uint16_t i = 0; i < n; i++) {
			uint16_t largest = PLAN_NO_TENSOR, at = i;

			for (uint16_t t = 0; t < n; t++)
				if (crowd->tensors[t].root == t &&
				    (largest == PLAN_NO_TENSOR ||
				     padded(&crowd->tensors[t]) > padded(&crowd->tensors[largest])))
					largest = t;
			assert_int_equal(crowd->tensors[largest].scratch_offset,
					 best_fit(crowd, i, largest));
			/* Mark the tensor as placed. */
			crowd->tensors[largest].root = PLAN_NO_TENSOR;
			for (; at > 0 && crowd->tensors[crowd->placed[at - 1]].scratch_offset >
						 crowd->tensors[largest].scratch_offset;
			     at--)
				crowd->placed[at] = crowd->placed[at - 1];
			crowd->placed[at] = largest;
		}
		free(crowd);
	}
}

/*
 * With more tensors than the search for gaps considers, no bytes are shared and waste is limited.
 */
TEST(test_layout__more_than_is_searched)
{
	uint64_t random = 8, most = 0, sum;
	struct crowd *crowd = crowd_new(&random, RBK_MAX_PLAN_TENSORS, RBK_MAX_PLAN_TENSORS / 4);

	lay_out(&crowd->plan, crowd->lives);
	for (uint16_t a = 0; a < RBK_MAX_PLAN_TENSORS; a++) {
		const struct tensor *x = &crowd->tensors[a];

		sum = 0;
		for (uint16_t b = 0; b < RBK_MAX_PLAN_TENSORS; b++) {
			const struct tensor *y = &crowd->tensors[b];

			/* Sum up tensors that are live at the node that makes tensor a. */
			if (crowd->lives[b].first <= crowd->lives[a].first &&
			    crowd->lives[a].first <= crowd->lives[b].last)
				sum += padded(y);
			if (a != b && crowd_meets(crowd, a, b) &&
			    x->scratch_offset < y->scratch_offset + padded(y) &&
			    y->scratch_offset < x->scratch_offset + padded(x))
				fail_msg("%u and %u overlap", a, b);
		}
		most = sum > most ? sum : most;
		assert_true(x->scratch_offset + padded(x) <= crowd->plan.scratch_bytes);
	}
	assert_true(crowd->plan.scratch_bytes >= most);
	assert_true(crowd->plan.scratch_bytes < 3 * most);
	free(crowd);
}
