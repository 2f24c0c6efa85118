/* SPDX-License-Identifier: MIT */
/* Tests of plan/cut.c: the segments of a plan compute what the plan computes */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fail-alloc.h"
#include "plan/cut.h"
#include "plan/executor.h"
#include "reference/random-nets.h"
#include "reference/segments.h"
#include "shm/plan-wire.h"
#include "support/describe.h"
#include "support/test.h"

/* A plan with its description, as the broker has both when it cuts */
struct whole {
	void *desc;
	size_t desc_bytes;
	struct plan *plan;
	struct plan_arena_lookup lookup;
};

static struct exec_arena arena;

static void whole_init(struct whole *whole, struct describe *d)
{
	char message[PLAN_MESSAGE_BYTES] = "";

	whole->lookup = reference_arena_lookup(&arena);
	whole->desc = describe_finish(d, &whole->desc_bytes);
	if (plan_new(whole->desc, whole->desc_bytes, &whole->lookup, message, &whole->plan))
		fail_msg("%s", message);
}

static void whole_deinit(struct whole *whole)
{
	plan_free(whole->plan);
	free(whole->desc);
}

static struct cut *cut_at(const struct whole *whole, uint32_t n, const uint16_t *firsts)
{
	struct cut *cut;

	assert_int_equal(cut_new(whole->desc, whole->desc_bytes, whole->plan, firsts, n, &cut), 0);
	assert_int_equal(cut_n_segments(cut), n + 1);
	return cut;
}

#define CUT_AT(whole, ...)                                                  \
	cut_at(whole, sizeof((uint16_t[]){__VA_ARGS__}) / sizeof(uint16_t), \
	       (const uint16_t[]){__VA_ARGS__})

/*
 * Assert that the segments compute the same bits as the plan, in states, too: in order, and in
 * another order.
 */
static void check_results(const struct whole *whole, const struct cut *cut, uint32_t count)
{
	struct reference_buffers want, got, before;
	uint64_t order = 5;

	reference_check_beside(cut, &whole->lookup);
	reference_buffers_init(&want, whole->plan, count, 3);
	reference_buffers_copy(&before, &want);
	reference_run(whole->plan, count, want.bindings);
	for (unsigned int round = 0; round < 2; round++) {
		reference_buffers_copy(&got, &before);
		reference_run_segments(cut, &whole->lookup, count, got.bindings,
				       round > 0 ? &order : NULL);
		for (unsigned int i = 0; i < want.n; i++)
			assert_memory_equal(got.bindings[i], want.bindings[i], want.bytes[i]);
		reference_buffers_deinit(&got);
	}
	reference_buffers_deinit(&want);
	reference_buffers_deinit(&before);
}

static struct plan *segment_plan(const struct whole *whole, const struct cut *cut, uint32_t i)
{
	return reference_segment(cut, i, &whole->lookup);
}

static const struct tensor *tensor_of(const struct plan *plan, const char *name)
{
	for (uint16_t t = 0; t < plan->n_tensors; t++)
		if (strcmp(plan->tensors[t].name, name) == 0)
			return &plan->tensors[t];
	return NULL;
}

/* y = -(|x| + k), through scratch a and b */
static struct describe *chain(uint32_t max_count)
{
	struct describe *d = describe_new("chain", max_count);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_constant(d, "k", RBK_REF(REFERENCE_ARENA, 64), DESCRIBE_DIMS(8));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_node(d, "Abs", "first", "x", "a");
	describe_node(d, "Add", "", "a,k", "b");
	describe_node(d, "Neg", "last", "b", "y");
	return d;
}

/*
 * Assert that what a segment reads and writes of a grain of rows lies apart, and that the crossing
 * block has room for all grains. Return: true if the plan may have micro-batches.
 */
static bool check_grain(const struct whole *whole, const struct cut *cut)
{
	const uint64_t grain_bytes = cut_grain_bytes(cut), rows = cut_grain_rows(cut);

	if (cut_n_batches(cut) == 1)
		return false;
	assert_true(cut_n_batches(cut) * cut_n_segments(cut) <= CUT_MAX_SEGMENTS);
	assert_int_equal(rows % whole->plan->row_grain, 0);
	assert_int_equal(grain_bytes % PLAN_SCRATCH_ALIGN, 0);
	assert_true(((whole->plan->max_count - 1) / rows + 1) * grain_bytes <=
		    cut_crossing_bytes(cut));
	for (uint32_t i = 0; i < cut_n_segments(cut); i++) {
		const struct cut_segment *segment = cut_segment(cut, i);

		for (uint32_t a = 0; a < segment->n_refs; a++) {
			const struct cut_ref *ref = &segment->refs[a];
			const uint64_t end = ref->grain_offset +
					     rows * whole->plan->tensors[ref->tensor].row_bytes;

			if (ref->binding != CUT_NO_BINDING)
				continue;
			assert_int_equal(ref->grain_offset % PLAN_SCRATCH_ALIGN, 0);
			assert_true(end <= grain_bytes);
			for (uint32_t b = 0; b < segment->n_refs; b++)
				if (b != a && segment->refs[b].binding == CUT_NO_BINDING)
					assert_true(segment->refs[b].grain_offset <
							    ref->grain_offset ||
						    segment->refs[b].grain_offset >= end);
		}
	}
	return true;
}

TEST(test_cut__chain)
{
	const struct cut_segment *segment;
	struct whole whole;
	struct plan *plan;
	struct cut *cut;

	whole_init(&whole, chain(16));
	cut = CUT_AT(&whole, 1, 2);
	/* The segment between the two others needs both tensors that cross. */
	assert_int_equal(cut_crossing_bytes(cut), 2 * 16 * 8 * sizeof(float));
	segment = cut_segment(cut, 1);
	assert_int_equal(segment->first_node, 1);
	assert_int_equal(segment->n_nodes, 1);
	assert_true(segment->is_counted);
	assert_int_equal(segment->n_refs, 2);
	assert_int_equal(segment->refs[0].binding, CUT_NO_BINDING);
	assert_int_equal(segment->refs[1].binding, CUT_NO_BINDING);
	assert_int_not_equal(segment->refs[0].offset, segment->refs[1].offset);
	assert_int_equal(cut_segment(cut, 0)->refs[0].binding, 0);
	assert_int_equal(cut_segment(cut, 2)->refs[1].binding, 1);

	plan = segment_plan(&whole, cut, 1);
	assert_string_equal(plan->name, "chain");
	assert_int_equal(plan->n_constants, 1);
	assert_int_equal(plan->constants[0].offset, 64);
	assert_int_equal(plan->max_count, 16);
	assert_int_equal(tensor_of(plan, "a")->kind, RBK_TENSOR_INPUT);
	assert_int_equal(tensor_of(plan, "b")->kind, RBK_TENSOR_OUTPUT);
	assert_null(tensor_of(plan, "x"));
	plan_free(plan);

	/* 8 rows are as long as the alignment of tensors. */
	assert_true(check_grain(&whole, cut));
	assert_int_equal(cut_n_batches(cut), CUT_MAX_BATCHES);
	assert_int_equal(cut_grain_rows(cut), 8);
	assert_int_equal(cut_grain_bytes(cut), 2 * 8 * 8 * sizeof(float));

	check_results(&whole, cut, 1);
	check_results(&whole, cut, 7);
	check_results(&whole, cut, 16);
	cut_free(cut);
	whole_deinit(&whole);
}

/* One segment is the plan itself. */
TEST(test_cut__whole)
{
	struct whole whole;
	struct plan *plan;
	struct cut *cut;

	whole_init(&whole, chain(16));
	cut = cut_at(&whole, 0, NULL);
	assert_int_equal(cut_crossing_bytes(cut), 0);
	plan = segment_plan(&whole, cut, 0);
	assert_int_equal(plan->fingerprint, whole.plan->fingerprint);
	assert_int_equal(plan->scratch_bytes, whole.plan->scratch_bytes);
	plan_free(plan);
	cut_free(cut);
	whole_deinit(&whole);
}

/* Tensors of a long chain take turns in two places of the block. */
TEST(test_cut__shares_bytes)
{
	uint16_t firsts[CUT_MAX_SEGMENTS - 1];
	char from[RBK_NAME_BYTES], to[RBK_NAME_BYTES];
	struct describe *d = describe_new("", 1);
	struct whole whole;
	struct cut *cut;

	describe_input(d, "x", DESCRIBE_DIMS(64));
	describe_output(d, "y", DESCRIBE_DIMS(64));
	for (unsigned int i = 0; i < CUT_MAX_SEGMENTS; i++) {
		snprintf(from, sizeof(from), i == 0 ? "x" : "t%u", i - 1);
		snprintf(to, sizeof(to), i == CUT_MAX_SEGMENTS - 1 ? "y" : "t%u", i);
		if (i < CUT_MAX_SEGMENTS - 1)
			describe_scratch(d, to);
		describe_node(d, "Neg", "", from, to);
		if (i > 0)
			firsts[i - 1] = (uint16_t)i;
	}
	whole_init(&whole, d);
	cut = cut_at(&whole, CUT_MAX_SEGMENTS - 1, firsts);
	assert_int_equal(cut_crossing_bytes(cut), 2 * 64 * sizeof(float));
	assert_int_equal(cut_width(cut), 1);
	check_results(&whole, cut, 1);
	cut_free(cut);
	whole_deinit(&whole);
}

/* A later segment reads an output of the plan where the task has it. */
TEST(test_cut__output_read_later)
{
	struct describe *d = describe_new("", 4);
	struct whole whole;
	struct plan *plan;
	struct cut *cut;

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_node(d, "Abs", "", "x", "y");
	describe_node(d, "Neg", "", "y", "z");
	whole_init(&whole, d);
	cut = CUT_AT(&whole, 1);
	assert_int_equal(cut_crossing_bytes(cut), 0);
	assert_int_equal(cut_segment(cut, 1)->refs[0].binding, 1);
	assert_int_equal(cut_segment(cut, 1)->refs[1].binding, 2);
	plan = segment_plan(&whole, cut, 1);
	assert_false(plan->bindings[0].written);
	assert_true(plan->bindings[1].written);
	plan_free(plan);
	check_results(&whole, cut, 4);
	cut_free(cut);
	whole_deinit(&whole);
}

/*
 * y = -|s| + |-s|, s the floor of x: the two branches need only what is before them, and the
 * tensors in which they end are there at the same time.
 */
TEST(test_cut__branches)
{
	static const uint64_t needs[] = {0, 1 << 0, 1 << 1, 1 << 0, 1 << 3, 1 << 2 | 1 << 4};
	struct describe *d = describe_new("", 1);
	struct whole whole;
	struct cut *cut;

	describe_input(d, "x", DESCRIBE_DIMS(64));
	describe_output(d, "y", DESCRIBE_DIMS(64));
	for (unsigned int i = 0; i < 5; i++)
		describe_scratch(d, (const char *const[]){"s", "a", "b", "c", "e"}[i]);
	describe_node(d, "Floor", "", "x", "s");
	describe_node(d, "Abs", "", "s", "a");
	describe_node(d, "Neg", "", "a", "b");
	describe_node(d, "Neg", "", "s", "c");
	describe_node(d, "Abs", "", "c", "e");
	describe_node(d, "Add", "", "b,e", "y");
	whole_init(&whole, d);
	cut = CUT_AT(&whole, 1, 2, 3, 4, 5);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(cut_segment(cut, i)->needs, needs[i]);
	assert_int_equal(cut_width(cut), 2);
	/* In turn, three would do: b may lie where s was only if the other branch is done. */
	assert_int_equal(cut_crossing_bytes(cut), 5 * 64 * sizeof(float));
	check_results(&whole, cut, 1);
	cut_free(cut);
	whole_deinit(&whole);
}

/* Nodes before a state's writer read its old value, nodes after it the new. */
TEST(test_cut__states)
{
	static const uint16_t firsts[][3] = {{1, 2, 3}, {1}, {2}, {3}, {1, 3}};
	static const uint32_t n_firsts[] = {3, 1, 1, 1, 2};
	struct describe *d = describe_new("", 1);
	struct whole whole;
	struct cut *cut;

	describe_input(d, "x", DESCRIBE_DIMS(5));
	describe_state(d, "s", DESCRIBE_DIMS(5));
	describe_scratch(d, "sum");
	describe_output(d, "old", DESCRIBE_DIMS(5));
	describe_output(d, "new", DESCRIBE_DIMS(5));
	describe_node(d, "Neg", "", "s", "old");
	describe_node(d, "Add", "", "s,x", "sum");
	describe_node(d, "Abs", "", "sum", "s");
	describe_node(d, "Neg", "", "s", "new");
	whole_init(&whole, d);
	for (unsigned int i = 0; i < sizeof(n_firsts) / sizeof(n_firsts[0]); i++) {
		cut = cut_at(&whole, n_firsts[i], firsts[i]);
		check_results(&whole, cut, 1);
		cut_free(cut);
	}
	whole_deinit(&whole);
}

/* A segment without the task's count runs with count 1, whatever the task's is. */
TEST(test_cut__uncounted)
{
	struct describe *d = describe_new("", 8);
	struct whole whole;
	struct plan *plan;
	struct cut *cut;

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_input(d, "w", DESCRIBE_DIMS(4));
	describe_scratch(d, "positive");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_node(d, "Abs", "", "w", "positive");
	describe_node(d, "Mul", "", "x,positive", "y");
	whole_init(&whole, d);
	cut = CUT_AT(&whole, 1);
	assert_false(cut_segment(cut, 0)->is_counted);
	assert_true(cut_segment(cut, 1)->is_counted);
	/* The first segment would have to run before all micro-batches. */
	assert_int_equal(cut_n_batches(cut), 1);
	plan = segment_plan(&whole, cut, 0);
	assert_int_equal(plan->max_count, 1);
	plan_free(plan);
	check_results(&whole, cut, 8);
	cut_free(cut);
	whole_deinit(&whole);
}

/* A segment whose nodes nothing reads is still a plan with a result. */
TEST(test_cut__unread_nodes)
{
	struct describe *d = describe_new("", 1);
	struct whole whole;
	struct plan *plan;
	struct cut *cut;

	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_output(d, "y", DESCRIBE_DIMS(4));
	describe_node(d, "Abs", "", "x", "a");
	describe_node(d, "Neg", "", "a", "b");
	describe_node(d, "Abs", "", "x", "y");
	whole_init(&whole, d);
	cut = CUT_AT(&whole, 2);
	plan = segment_plan(&whole, cut, 0);
	assert_int_equal(tensor_of(plan, "a")->kind, RBK_TENSOR_SCRATCH);
	assert_int_equal(tensor_of(plan, "b")->kind, RBK_TENSOR_OUTPUT);
	plan_free(plan);
	check_results(&whole, cut, 1);
	cut_free(cut);
	whole_deinit(&whole);
}

/* A pin and forbidden fusion hold for every segment. */
TEST(test_cut__flags)
{
	struct describe *d = chain(4);
	struct whole whole;
	struct plan *plan;
	struct cut *cut;

	describe_pin(d, 1);
	describe_disable_fusion(d);
	whole_init(&whole, d);
	cut = CUT_AT(&whole, 2);
	for (uint32_t i = 0; i < 2; i++) {
		plan = segment_plan(&whole, cut, i);
		assert_true(plan->pinned);
		assert_int_equal(plan->pinned_device, 1);
		assert_false(plan->fuses);
		plan_free(plan);
	}
	cut_free(cut);
	whole_deinit(&whole);
}

/* --- attributes --- */

/* Attributes of all types, of which only a segment's own are in its description */
TEST(test_cut__attributes)
{
	struct describe *d = describe_new("", 1);
	struct describe_view view;
	struct whole whole;
	struct cut *cut;
	size_t bytes;
	void *desc;

	describe_input(d, "x", DESCRIBE_DIMS(1, 2, 6, 6));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_scratch(d, "c");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Transpose", "", "x", "a");
	describe_attr_ints(d, "perm", DESCRIBE_INTS(0, 1, 3, 2));
	describe_node(d, "MaxPool", "", "a", "b");
	describe_attr_string(d, "auto_pad", "SAME_UPPER");
	describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(3, 3));
	describe_attr_ints(d, "strides", DESCRIBE_INTS(2, 1));
	describe_node(d, "LeakyRelu", "", "b", "c");
	describe_attr_float(d, "alpha", 0.3f);
	describe_node(d, "Softmax", "", "c", "y");
	describe_attr_int(d, "axis", 1);
	whole_init(&whole, d);
	cut = CUT_AT(&whole, 1, 2, 3);
	check_results(&whole, cut, 1);
	assert_int_equal(cut_describe(cut, 1, &desc, &bytes), 0);
	view = describe_view(desc);
	assert_int_equal(view.header->n_attrs, 3);
	/* A string of 10 bytes takes 16, each of the two lists as many. */
	assert_int_equal(view.header->blob_bytes, 48);
	free(desc);
	cut_free(cut);
	whole_deinit(&whole);
}

/*
 * Thousands of nodes share thousands of attributes, which share their values: each is copied once,
 * and segments are not larger than the plan.
 */
TEST(test_cut__shared_attributes)
{
	enum { N_NODES = 2000, N_ATTRS = 2000 };
	struct describe *d = describe_new("", 1);
	char from[RBK_NAME_BYTES], to[RBK_NAME_BYTES], name[RBK_NAME_BYTES];
	struct describe_view view;
	struct whole whole;
	struct cut *cut;
	size_t bytes;
	void *desc;

	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_output(d, "y", DESCRIBE_DIMS(4));
	for (unsigned int i = 0; i < N_NODES; i++) {
		snprintf(from, sizeof(from), i == 0 ? "x" : "t%u", i - 1);
		snprintf(to, sizeof(to), i == N_NODES - 1 ? "y" : "t%u", i);
		if (i < N_NODES - 1)
			describe_scratch(d, to);
		describe_node(d, "LeakyRelu", "", from, to);
		if (i == 0)
			describe_attr_float(d, "alpha", 0.5f);
	}
	/* Attributes that no operator knows would be refused: the rest is of no node. */
	for (unsigned int i = 1; i < N_ATTRS; i++) {
		snprintf(name, sizeof(name), "a%u", i);
		describe_attr_ints(d, name, DESCRIBE_INTS(1, 2, 3, 4));
	}
	whole.lookup = reference_arena_lookup(&arena);
	whole.desc = describe_finish(d, &whole.desc_bytes);
	view = describe_view(whole.desc);
	for (unsigned int i = 0; i < N_NODES; i++) {
		view.nodes[i].first_attr = 0;
		view.nodes[i].n_attrs = 1;
	}
	for (unsigned int i = 1; i < N_ATTRS; i++)
		view.attrs[i].blob_offset = view.attrs[1].blob_offset;
	assert_int_equal(plan_new(whole.desc, whole.desc_bytes, &whole.lookup,
				  (char[PLAN_MESSAGE_BYTES]){0}, &whole.plan),
			 0);
	cut = CUT_AT(&whole, 1, N_NODES / 2);
	for (uint32_t i = 0; i < cut_n_segments(cut); i++) {
		assert_int_equal(cut_describe(cut, i, &desc, &bytes), 0);
		assert_int_equal(describe_view(desc).header->n_attrs, 1);
		assert_int_equal(describe_view(desc).header->blob_bytes, 8);
		assert_in_range(bytes, 1, whole.desc_bytes);
		free(desc);
	}
	check_results(&whole, cut, 1);
	cut_free(cut);
	whole_deinit(&whole);
}

/* --- limits and failures --- */

/* Describe @n inputs, as many scratch tensors, and two outputs that each need half of these. */
static struct describe *wide(unsigned int n)
{
	struct describe *d = describe_new("", 1);
	char x[RBK_NAME_BYTES], t[RBK_NAME_BYTES], halves[2][RBK_MAX_REFS * 8] = {"", ""};

	for (unsigned int i = 0; i < n; i++) {
		char *half = halves[i % 2];
		const size_t n_chars = strlen(half);

		snprintf(x, sizeof(x), "x%u", i);
		snprintf(t, sizeof(t), "t%u", i);
		describe_input(d, x, DESCRIBE_DIMS(2));
		describe_scratch(d, t);
		describe_node(d, "Neg", "", x, t);
		snprintf(half + n_chars, sizeof(halves[0]) - n_chars, n_chars ? ",%s" : "%s", t);
	}
	for (unsigned int i = 0; i < 2; i++) {
		snprintf(t, sizeof(t), "y%u", i);
		describe_inferred(d, t, RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "Concat", "", halves[i], t);
		describe_attr_int(d, "axis", 0);
	}
	return d;
}

/* A segment can have as many references as a task, and no more. */
TEST(test_cut__too_many_references)
{
	const uint16_t before_last[] = {RBK_MAX_REFS / 2}, later[] = {RBK_MAX_REFS / 2 + 1};
	struct whole whole;
	struct cut *cut;

	whole_init(&whole, wide(RBK_MAX_REFS / 2));
	cut = cut_at(&whole, 1, before_last);
	assert_int_equal(cut_segment(cut, 0)->n_refs, RBK_MAX_REFS);
	check_results(&whole, cut, 1);
	cut_free(cut);
	whole_deinit(&whole);

	whole_init(&whole, wide(RBK_MAX_REFS / 2 + 1));
	cut = NULL;
	assert_int_equal(cut_new(whole.desc, whole.desc_bytes, whole.plan, later, 1, &cut),
			 CUT_E_REFS);
	assert_null(cut);
	whole_deinit(&whole);
}

/* In a whole plan, each node works in place; between segments, two tensors are there at once. */
TEST(test_cut__too_large)
{
	struct describe *d = describe_new("", 1 << 20);
	const uint16_t first[] = {1}, both[] = {1, 2};
	struct whole whole;
	struct cut *cut;

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3 << 23));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 3 << 23));
	describe_node(d, "Relu", "", "x", "a");
	describe_node(d, "Abs", "", "a", "b");
	describe_node(d, "Neg", "", "b", "y");
	whole_init(&whole, d);
	assert_true(whole.plan->tensors[1].max_bytes <= PLAN_MAX_BYTES);
	cut = cut_at(&whole, 1, first);
	assert_true(cut_crossing_bytes(cut) <= PLAN_MAX_BYTES);
	cut = cut_free(cut);
	assert_int_equal(cut_new(whole.desc, whole.desc_bytes, whole.plan, both, 2, &cut),
			 CUT_E_BYTES);
	assert_null(cut);
	whole_deinit(&whole);
}

TEST(test_cut__no_memory)
{
	struct cut *cut = NULL;
	struct whole whole;
	void *desc = NULL;
	unsigned int n;
	size_t bytes;
	int r;

	whole_init(&whole, chain(16));
	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = cut_new(whole.desc, whole.desc_bytes, whole.plan, (const uint16_t[]){2}, 1,
			    &cut);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(cut);
	}
	assert_int_equal(r, 0);
	assert_in_range(n - 1, 6, 100);
	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = cut_describe(cut, 1, &desc, &bytes);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(desc);
	}
	assert_int_equal(r, 0);
	assert_in_range(n - 1, 5, 100);
	free(desc);
	cut_free(cut);
	whole_deinit(&whole);
}

/* --- random plans --- */

/* Networks with residuals, outputs in the middle and counts, cut at random */
TEST(test_cut__random_nets)
{
	uint16_t firsts[CUT_MAX_SEGMENTS];
	unsigned int n_segments = 0, n_crossing = 0, n_streams = 0;
	uint64_t random = 11;
	struct whole whole;
	struct cut *cut;
	uint32_t n;

	for (unsigned int round = 0; round < 300; round++) {
		whole_init(&whole, random_net_describe(round / 2, 3, round % 2));
		n = reference_firsts(whole.plan, &random, firsts);
		cut = cut_at(&whole, n, firsts);
		n_segments += cut_n_segments(cut);
		n_crossing += cut_crossing_bytes(cut) > 0;
		n_streams += check_grain(&whole, cut);
		check_results(&whole, cut, whole.plan->max_count);
		cut_free(cut);
		whole_deinit(&whole);
	}
	assert_in_range(n_segments, 600, UINT32_MAX);
	assert_in_range(n_crossing, 100, UINT32_MAX);
	assert_in_range(n_streams, 40, UINT32_MAX);
}

static void set_up_arena(void)
{
	reference_arena_init(&arena, RANDOM_NETS_ARENA_BYTES, 5);
}

TEST_MAIN(NULL, NULL, set_up_arena())
