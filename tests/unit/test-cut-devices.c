/* SPDX-License-Identifier: MIT */
/* Tests of place/cut-devices.c: plans that several devices complete sooner than one */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place/cut-devices.h"
#include "fail-alloc.h"
#include "place/graph.h"
#include "support/one-op.h"
#include "support/test.h"

/* A product of 64 rows takes some 840 us at 10 GFLOP/s. */
enum { SIDE = 256, ROWS = 64, MATRIX_BYTES = SIDE * SIDE * 4, CPU = 0, GPU = 1, MOST = 3 };

static struct place_cut_basis *basis;
static struct cut_wish wish;

/* Devices that compute 10 GFLOP/s, whatever the operator, with a way between that takes no time */
static int setup(void **state)
{
	basis = calloc(1, sizeof(*basis) + MOST * sizeof(basis->devices[0]));
	assert_non_null(basis);
	basis->min_gain = 0.2f;
	basis->n_devices = 2;
	wish = (struct cut_wish){.devices = OP_ON_VULKAN, .memory_bytes = UINT64_MAX};
	for (unsigned int d = 0; d < MOST; d++) {
		struct place_cut_device *device = &basis->devices[d];

		device->room_bytes = UINT64_MAX;
		device->kind = d == CPU ? OP_ON_CPU : OP_ON_VULKAN;
		device->profile.is_valid = true;
		device->profile.n_servers = device->profile.n_servers_per_task = 1;
		device->profile.task_ns = d == CPU ? 0 : 20000;
		for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
			for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
				device->profile.rates[i][k] = (struct place_rate){
					.flops_per_ns = 10, .bytes_per_ns = 1000};
	}
	return 0;
}

static int teardown(void **state)
{
	free(basis);
	basis = NULL;
	return 0;
}

static void set_rate(unsigned int device, enum op_family family, float flops_per_ns)
{
	for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
		basis->devices[device].profile.rates[family][k].flops_per_ns = flops_per_ns;
}

/* Set what the tenant may have of the GPU's memory. */
static void set_room(uint64_t bytes)
{
	basis->devices[GPU].room_bytes = wish.memory_bytes = bytes;
}

static void set_link(float bytes_per_ns)
{
	basis->devices[GPU].profile.up_bytes_per_ns = bytes_per_ns;
	basis->devices[GPU].profile.down_bytes_per_ns = bytes_per_ns;
	basis->devices[GPU].profile.link_ns = 5000;
}

/* Describe a product of tensors that exist. */
static void product(struct describe *d, const char *from, const char *to)
{
	char w[RBK_NAME_BYTES + 1], in[2 * RBK_NAME_BYTES + 2];

	snprintf(w, sizeof(w), "w%s", to);
	describe_constant(d, w, RBK_REF(1, 0), DESCRIBE_DIMS(SIDE, SIDE));
	snprintf(in, sizeof(in), "%s,%s", from, w);
	describe_node(d, "MatMul", "", in, to);
}

static struct describe *begin(const char *name)
{
	struct describe *d = describe_new(name, 1);

	describe_input(d, "x", DESCRIBE_DIMS(ROWS, SIDE));
	describe_output(d, "y", DESCRIBE_DIMS(ROWS, SIDE));
	return d;
}

/* Add @n products in a row from @from, of which the first is @name0, the next @name1, ... */
static void chain(struct describe *d, const char *name, const char *from, unsigned int n)
{
	char tensor[RBK_NAME_BYTES], before[RBK_NAME_BYTES];

	snprintf(before, sizeof(before), "%s", from);
	for (unsigned int i = 0; i < n; i++) {
		snprintf(tensor, sizeof(tensor), "%s%u", name, i);
		describe_scratch(d, tensor);
		product(d, before, tensor);
		snprintf(before, sizeof(before), "%s", tensor);
	}
}

/* Describe two branches of @n products each, nodes 1 to 2n, between a node and their product. */
static struct describe *branches(unsigned int n)
{
	struct describe *d = begin("branches");
	char in[64];

	describe_scratch(d, "s");
	describe_node(d, "Tanh", "", "x", "s");
	chain(d, "a", "s", n);
	chain(d, "b", "s", n);
	snprintf(in, sizeof(in), "a%u,b%u", n - 1, n - 1);
	describe_node(d, "Mul", "", in, "y");
	return d;
}

/* Describe two products, a softmax, two products, and so on: nodes 2, 5, ... are softmax. */
static struct describe *mixed(unsigned int n)
{
	struct describe *d = begin("mixed");
	char from[RBK_NAME_BYTES] = "x", name[16];

	for (unsigned int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "t%u_", i);
		chain(d, name, from, 2);
		snprintf(from, sizeof(from), "t%u_1", i);
		snprintf(name, sizeof(name), i + 1 < n ? "p%u" : "y", i);
		if (i + 1 < n)
			describe_scratch(d, name);
		describe_node(d, "Softmax", "", from, name);
		snprintf(from, sizeof(from), "%s", name);
	}
	return d;
}

/* Assert where a plan is cut, and why: before the nodes of @wanted, 0 behind the last. */
static void check(struct describe *describe, enum rbk_cut why, const uint16_t *wanted)
{
	struct plan *plan = expect_plan(describe);
	struct cut_choice choice = {.why = RBK_CUT_UNKNOWN};

	assert_true(place_cut_points(basis, plan, &wish, &choice));
	for (uint32_t i = 0; i < choice.n; i++)
		assert_int_equal(choice.firsts[i], wanted[i]);
	assert_int_equal(wanted[choice.n], 0);
	assert_int_equal(choice.why, why);
	plan_free(plan);
}

static void check_undecided(struct describe *describe)
{
	struct plan *plan = expect_plan(describe);
	struct cut_choice choice = {.n = 7};

	assert_false(place_cut_points(basis, plan, &wish, &choice));
	assert_int_equal(choice.n, 7);
	plan_free(plan);
}

#define CHECK(describe, ...)       check(describe, RBK_CUT_FASTER, (const uint16_t[]){__VA_ARGS__, 0})
#define CHECK_WHOLE(describe, why) check(describe, why, (const uint16_t[]){0})

TEST(test_cut__branches, setup, teardown)
{
	CHECK(branches(1), 1, 2, 3);
	CHECK(branches(4), 1, 5, 9);
}

/* Segments would take longer than the whole plan on the faster device. */
TEST(test_cut__whole, setup, teardown)
{
	struct describe *d = begin("chain");

	chain(d, "t", "x", 8);
	describe_node(d, "Tanh", "", "t7", "y");
	CHECK_WHOLE(d, RBK_CUT_NO_GAIN);
	set_rate(GPU, OP_FAMILY_MATMUL, 100);
	CHECK_WHOLE(branches(4), RBK_CUT_NO_GAIN);
	set_rate(GPU, OP_FAMILY_MATMUL, 1);
	CHECK_WHOLE(branches(4), RBK_CUT_NO_GAIN);
	/* Segments would be shorter than what a submission takes. */
	set_rate(CPU, OP_FAMILY_MATMUL, 1000);
	set_rate(GPU, OP_FAMILY_MATMUL, 1000);
	CHECK_WHOLE(branches(1), RBK_CUT_NO_GAIN);
}

/* Twelve products take 5 ms on the GPU alone, and at least 3.4 ms on both devices. */
TEST(test_cut__gain, setup, teardown)
{
	struct plan *plan = expect_plan(branches(6));
	struct cut_choice choice;

	set_rate(GPU, OP_FAMILY_MATMUL, 20);
	assert_true(place_cut_points(basis, plan, &wish, &choice));
	assert_in_range(choice.n, 3, 13);
	assert_in_range((int)choice.whole_ns, 5000000, 5200000);
	assert_in_range((int)choice.cut_ns, 3400000, 3900000);
	basis->min_gain = 0.5f;
	assert_true(place_cut_points(basis, plan, &wish, &choice));
	assert_int_equal(choice.n, 0);
	assert_int_equal(choice.why, RBK_CUT_NO_GAIN);
	assert_in_range((int)choice.cut_ns, 3400000, 3900000);
	plan_free(plan);
}

/*
 * A GPU that is ten times as fast has memory for half of eight matrices, of which each saves .75
 * ms, or for what saves less than submissions.
 */
TEST(test_cut__pieces, setup, teardown)
{
	struct plan *plan = expect_plan(branches(4));
	struct cut_choice choice;

	set_rate(GPU, OP_FAMILY_MATMUL, 100);
	set_room(4 * MATRIX_BYTES + 200000);
	assert_true(place_cut_points(basis, plan, &wish, &choice));
	assert_int_equal(choice.why, RBK_CUT_TO_FIT);
	assert_in_range(choice.n, 7, 9);
	assert_in_range((int)choice.whole_ns, 6700000, 6800000);
	assert_in_range((int)choice.cut_ns, 3700000, 4000000);
	/* The room of this device counts, not that of others, such as a software device. */
	wish.memory_bytes = UINT64_MAX;
	assert_true(place_cut_points(basis, plan, &wish, &choice));
	assert_int_equal(choice.why, RBK_CUT_TO_FIT);
	assert_in_range(choice.n, 7, 9);
	/* Everything crosses a slow link for each piece. */
	set_link(0.05f);
	assert_true(place_cut_points(basis, plan, &wish, &choice));
	assert_int_equal(choice.n, 0);
	/* Nothing fits with what it computes with. */
	set_link(100);
	set_room(MATRIX_BYTES + 1000);
	assert_true(place_cut_points(basis, plan, &wish, &choice));
	assert_int_equal(choice.n, 0);
	assert_int_equal(choice.why, RBK_CUT_NO_DEVICE);
	plan_free(plan);
}

/*
 * Four branches read one large input: on the GPU the whole plan gets it once, and in segments each
 * segment does.
 */
TEST(test_cut__bound_once, setup, teardown)
{
	struct describe *d = describe_new("shared", 1);

	describe_input(d, "x", DESCRIBE_DIMS(16 * ROWS, SIDE));
	describe_output(d, "y", DESCRIBE_DIMS(16 * ROWS, SIDE));
	for (unsigned int i = 0; i < 4; i++)
		chain(d, (const char *const[]){"a", "b", "c", "d"}[i], "x", 1);
	describe_scratch(d, "ab");
	describe_scratch(d, "cd");
	describe_node(d, "Add", "", "a0,b0", "ab");
	describe_node(d, "Add", "", "c0,d0", "cd");
	describe_node(d, "Mul", "", "ab,cd", "y");
	/* 1 MiB crosses in 1 ms, a product takes 2.7 ms on the CPU and 0.13 ms on the GPU. */
	set_rate(CPU, OP_FAMILY_MATMUL, 50);
	set_rate(GPU, OP_FAMILY_MATMUL, 1000);
	set_link(1);
	CHECK_WHOLE(d, RBK_CUT_NO_GAIN);
}

/* A GPU is ten times as fast at products, and very slow at softmax. */
TEST(test_cut__operators, setup, teardown)
{
	set_rate(GPU, OP_FAMILY_MATMUL, 100);
	CHECK_WHOLE(mixed(3), RBK_CUT_NO_GAIN);
	set_rate(GPU, OP_FAMILY_SOFTMAX, 0.1f);
	CHECK(mixed(3), 2, 3, 5, 6, 8);
	/* 64 KiB cross in 65 us, then in 6.5 ms. */
	set_link(1);
	CHECK(mixed(3), 2, 3, 5, 6, 8);
	set_link(0.01f);
	CHECK_WHOLE(mixed(3), RBK_CUT_NO_GAIN);
}

/* Describe products of @rows rows with the sine of float64, which GPUs lack, after the third. */
static struct describe *lacking(uint32_t rows)
{
	struct describe *d = describe_new("lacking", rows);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, SIDE));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, SIDE));
	chain(d, "a", "x", 3);
	describe_inferred(d, "wide", RBK_TENSOR_SCRATCH, RBK_DTYPE_F64);
	describe_inferred(d, "sine", RBK_TENSOR_SCRATCH, RBK_DTYPE_F64);
	describe_scratch(d, "narrow");
	describe_node(d, "Cast", "", "a2", "wide");
	describe_attr_int(d, "to", 11);
	describe_node(d, "Sin", "", "wide", "sine");
	describe_node(d, "Cast", "", "sine", "narrow");
	describe_attr_int(d, "to", 1);
	chain(d, "b", "narrow", 2);
	describe_node(d, "Tanh", "", "b1", "y");
	return d;
}

/* A fast GPU gets what it has of a plan, if the way there is not too long. */
TEST(test_cut__lacking_operator, setup, teardown)
{
	struct cut_choice choice;
	struct plan *plan;

	set_rate(GPU, OP_FAMILY_MATMUL, 100);
	plan = expect_plan(lacking(ROWS));
	assert_true(place_cut_points(basis, plan, &wish, &choice));
	assert_int_equal(choice.n, 2);
	/* The casts are on either side. */
	assert_in_range(choice.firsts[0], 3, 4);
	assert_in_range(choice.firsts[1], 5, 6);
	plan_free(plan);
	set_link(0.01f);
	CHECK_WHOLE(lacking(ROWS), RBK_CUT_NO_GAIN);
	set_link(100);
	set_rate(GPU, OP_FAMILY_MATMUL, 9);
	CHECK_WHOLE(lacking(ROWS), RBK_CUT_NO_GAIN);
}

/* Devices that have no part in any cut */
TEST(test_cut__other_devices, setup, teardown)
{
	set_room(8 * MATRIX_BYTES - 1);
	CHECK_WHOLE(branches(4), RBK_CUT_NO_DEVICE);
	set_room(UINT64_MAX);
	basis->devices[GPU].types = OP_TYPE(RBK_DTYPE_F16);
	CHECK_WHOLE(branches(4), RBK_CUT_NO_GAIN);
	basis->devices[GPU].types = OP_TYPE(RBK_DTYPE_F32);
	CHECK(branches(4), 1, 5, 9);
	/* Two GPUs, and a CPU that is of no use */
	basis->n_devices = 3;
	set_rate(CPU, OP_FAMILY_MATMUL, 0.1f);
	CHECK(branches(4), 1, 5, 9);
	basis->devices[2].room_bytes = 0;
	CHECK_WHOLE(branches(4), RBK_CUT_NO_GAIN);
}

/* Placement keeps small tasks on the CPU, so their segments are there. */
TEST(test_cut__thresholds, setup, teardown)
{
	struct describe *d;

	/* A branch reads four matrices; its ends have 64 KiB each. */
	basis->threshold_bytes = 4 * MATRIX_BYTES + 2 * 65536;
	CHECK(branches(4), 1, 5, 9);
	basis->threshold_bytes++;
	CHECK_WHOLE(branches(4), RBK_CUT_NO_GAIN);
	basis->threshold_bytes = 8 * MATRIX_BYTES + 2 * 65536 + 1;
	CHECK_WHOLE(branches(4), RBK_CUT_SMALL);
	basis->threshold_bytes = 0;
	d = branches(4);
	describe_pin(d, GPU);
	check_undecided(d);
	d = branches(4);
	describe_state(d, "z", DESCRIBE_DIMS(1));
	describe_node(d, "Neg", "", "z", "z");
	CHECK_WHOLE(d, RBK_CUT_FITS);
}

/* Describe two branches of two products of @n rows each. */
static struct describe *rows(uint32_t n)
{
	struct describe *d = describe_new("rows", n);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, SIDE));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, SIDE));
	chain(d, "a", "x", 2);
	chain(d, "b", "x", 2);
	describe_node(d, "Mul", "", "a1,b1", "y");
	return d;
}

/*
 * A plan of up to 64 rows is cut if segments add little to a task of one row, which takes 10 us on
 * the CPU, or 52.
 */
TEST(test_cut__rows, setup, teardown)
{
	set_rate(CPU, OP_FAMILY_MATMUL, 50);
	set_rate(GPU, OP_FAMILY_MATMUL, 50);
	CHECK_WHOLE(rows(64), RBK_CUT_SMALL);
	set_rate(CPU, OP_FAMILY_MATMUL, 10);
	set_rate(GPU, OP_FAMILY_MATMUL, 10);
	CHECK(rows(64), 2, 4);
	basis->min_count = 65;
	CHECK_WHOLE(rows(64), RBK_CUT_SMALL);
	basis->min_count = 64;
	CHECK(rows(64), 2, 4);
}

/* Branches whose nodes take turns in the description are cut at each turn, if that is worth it. */
TEST(test_cut__branches_by_turns, setup, teardown)
{
	struct describe *d = begin("turns");
	char a[RBK_NAME_BYTES] = "x", b[RBK_NAME_BYTES] = "x";

	for (unsigned int i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "a%u_", i);
		chain(d, name, a, 1);
		snprintf(a, sizeof(a), "a%u_0", i);
		snprintf(name, sizeof(name), "b%u_", i);
		chain(d, name, b, 1);
		snprintf(b, sizeof(b), "b%u_0", i);
	}
	describe_node(d, "Mul", "", "a2_0,b2_0", "y");
	CHECK(d, 1, 2, 3, 4, 5, 6);
}

/* A product and the activation that is computed along with it stay together. */
TEST(test_cut__fused_nodes, setup, teardown)
{
	struct describe *d = begin("fused");

	chain(d, "a", "x", 1);
	describe_scratch(d, "ra");
	describe_node(d, "Relu", "", "a0", "ra");
	chain(d, "b", "x", 1);
	describe_scratch(d, "rb");
	describe_node(d, "Relu", "", "b0", "rb");
	describe_node(d, "Mul", "", "ra,rb", "y");
	CHECK(d, 2, 4);
}

/* Return a random plan of @n nodes: products, sums, and nodes that take no time, in branches. */
static struct describe *random_plan(unsigned int n, unsigned int seed)
{
	struct describe *d = begin("random");
	char in[64], to[RBK_NAME_BYTES];

	srand(seed);
	describe_constant(d, "w", RBK_REF(1, 0), DESCRIBE_DIMS(SIDE, SIDE));
	describe_scratch(d, "t0");
	describe_node(d, "Tanh", "", "x", "t0");
	for (unsigned int i = 1; i < n; i++) {
		const unsigned int a = i - 1 - (unsigned int)rand() % (i < 9 ? i : 9);
		const unsigned int b = i - 1 - (unsigned int)rand() % (i < 9 ? i : 9);

		snprintf(to, sizeof(to), i + 1 < n ? "t%u" : "y", i);
		if (i + 1 < n)
			describe_scratch(d, to);
		if (rand() % 3 > 0)
			snprintf(in, sizeof(in), "t%u,w", a);
		else
			snprintf(in, sizeof(in), "t%u,t%u", a, b);
		describe_node(d, strchr(in, 'w') ? "MatMul" : "Add", "", in, to);
	}
	return d;
}

/* A cut of any plan is one that cut_new() accepts. */
TEST(test_cut__any_plan, setup, teardown)
{
	static const unsigned int sizes[] = {2, 7, 40, 300, 3000};
	char message[PLAN_MESSAGE_BYTES];
	struct cut_choice choice;
	unsigned int n_cut = 0;

	basis->n_devices = MOST;
	for (unsigned int seed = 0; seed < 60; seed++) {
		struct describe *d = random_plan(sizes[seed % 5], seed);
		size_t desc_bytes;
		void *desc = describe_finish(d, &desc_bytes);
		struct plan *plan;
		struct cut *cut;

		set_link(seed % 2 ? 0.5f : 100);
		assert_int_equal(plan_new(desc, desc_bytes, &one_op_arenas, message, &plan), 0);
		assert_true(place_cut_points(basis, plan, &wish, &choice));
		assert_in_range(choice.n, 0, CUT_MAX_SEGMENTS - 1);
		for (uint32_t i = 0; i < choice.n; i++)
			assert_in_range(choice.firsts[i], i > 0 ? choice.firsts[i - 1] + 1 : 1,
					plan->n_nodes - 1);
		if (choice.n > 0) {
			assert_int_equal(
				cut_new(desc, desc_bytes, plan, choice.firsts, choice.n, &cut), 0);
			cut_free(cut);
			assert_true(choice.cut_ns * 1.2f <= choice.whole_ns);
		}
		n_cut += choice.n > 0;
		plan_free(plan);
		free(desc);
	}
	assert_in_range(n_cut, 10, 60);
}

/* Without memory others decide. */
TEST(test_cut__no_memory, setup, teardown)
{
	struct plan *plan = expect_plan(branches(4));
	struct cut_choice choice;
	unsigned int n;
	bool is_decided;

	for (n = 1;; n++) {
		fail_alloc_at(n);
		is_decided = place_cut_points(basis, plan, &wish, &choice);
		if (!fail_alloc_stop())
			break;
		assert_false(is_decided);
	}
	assert_true(is_decided);
	assert_int_equal(choice.n, 3);
	assert_in_range(n, 3, 10);
	plan_free(plan);
}

/* --- Graphs of units, for other programs --- */

/* Two branches are units of their own, which another one joins; times are those of the profiles. */
TEST(test_cut_graph__branches, setup, teardown)
{
	struct plan *plan = expect_plan(branches(2));
	struct place_graph *graph = NULL;
	float cpu_ns = 0;

	set_link(1);
	set_rate(GPU, OP_FAMILY_MATMUL, 20);
	assert_int_equal(place_cut_graph(basis, plan, &graph), 0);
	assert_int_equal(graph->n_devices, 2);
	/* The sum, a0, a1, b0, b1 and the product of both, some of them joined */
	assert_in_range(graph->n_nodes, 3, 6);
	assert_int_equal(graph->n_edges, graph->first[graph->n_nodes]);
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		cpu_ns += graph->exec_ns[2 * i + CPU];
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
			assert_in_range(graph->from[e], 0, i - 1);
			assert_int_equal(graph->edge_bytes[e], ROWS * SIDE * 4);
		}
	}
	assert_int_equal(graph->first[graph->n_nodes] - graph->first[graph->n_nodes - 1], 2);
	/* Four products of 839 us each, and little else */
	assert_in_range(cpu_ns, 4 * 838000, 4 * 850000);
	/* A way between devices: the link's fixed time, and a submission there */
	assert_true(graph->link_ns[CPU][GPU] >= 25000);
	assert_true(graph->link_ns_per_byte[GPU][CPU] == 1);
	place_graph_improve(graph, 256);
	assert_true(graph->span_ns < 0.5f * cpu_ns);
	place_graph_free(graph);
	plan_free(plan);
}

/* A device without room, or without the operator, has no time. */
TEST(test_cut_graph__unable, setup, teardown)
{
	struct plan *plan = expect_plan(branches(2));
	struct place_graph *graph = NULL;

	set_room(0);
	assert_int_equal(place_cut_graph(basis, plan, &graph), 0);
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		assert_true(isfinite(graph->exec_ns[2 * i + CPU]));
		assert_true(isinf(graph->exec_ns[2 * i + GPU]));
	}
	graph = place_graph_free(graph);
	basis->devices[CPU].kind = 0;
	assert_int_equal(place_cut_graph(basis, plan, &graph), -EOPNOTSUPP);
	assert_null(graph);
	plan_free(plan);
}

/* A plan of thousands of nodes has a few hundred units; without memory there is no graph. */
TEST(test_cut_graph__bounds, setup, teardown)
{
	struct describe *d = random_plan(3000, 5);
	char message[PLAN_MESSAGE_BYTES];
	struct place_graph *graph = NULL;
	struct plan *plan;
	size_t desc_bytes;
	void *desc = describe_finish(d, &desc_bytes);
	int r;

	assert_int_equal(plan_new(desc, desc_bytes, &one_op_arenas, message, &plan), 0);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = place_cut_graph(basis, plan, &graph);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(graph);
	}
	assert_int_equal(r, 0);
	assert_in_range(graph->n_nodes, 16, 256);
	place_graph_free(graph);
	plan_free(plan);
	free(desc);
}
