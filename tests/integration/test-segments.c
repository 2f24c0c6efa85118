/* SPDX-License-Identifier: MIT */
/*
 * Plans that are cut into segments, through a real broker with a software Vulkan device
 *
 * Constants are permutation matrices with signs, so that every device computes the same bits, and
 * the test knows the result.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "integration/harness.h"
#include "support/test.h"

enum {
	GPU = RBK_DEVICE_GPU,
	WIDTH = 512, /* a matrix has 1 MiB */
	ROWS = 64,
	MAX_LAYERS = 16,
	N_ENTRIES = 32,
	TENSOR_BYTES = ROWS * WIDTH * 4,
};

static const uint64_t mib = 1 << 20;

static struct broker broker;
static struct rbk *rbk;
static struct rbk_ring *ring;
static struct rbk_arena *arena; /* x, then N_ENTRIES results */

static void begin(const struct broker_options *options)
{
	broker_start(&broker, options);
	rbk = broker_connect(&broker, "segments");
	assert_int_equal(rbk_ring_new(rbk, N_ENTRIES, &ring, NULL), 0);
	assert_int_equal(rbk_arena_new(rbk, (1 + N_ENTRIES) * TENSOR_BYTES, &arena, NULL), 0);
	for (unsigned int i = 0; i < ROWS * WIDTH; i++)
		((float *)rbk_arena_data(arena))[i] = (float)(i % 4001);
}

static void end(void)
{
	rbk_disconnect(rbk);
	broker_stop(&broker);
}

/* Layer @l moves column @k there, and changes the sign of odd columns. */
static uint32_t moved(uint32_t l, uint32_t k)
{
	return (k * (2 * l + 3) + l) % WIDTH;
}

/* Make constants for @n layers. */
static struct rbk_arena *layers(uint32_t n)
{
	struct rbk_arena *constants;
	float *at;

	assert_int_equal(rbk_arena_new(rbk, n * mib, &constants, NULL), 0);
	at = rbk_arena_data(constants);
	memset(at, 0, n * mib);
	for (uint32_t l = 0; l < n; l++)
		for (uint32_t k = 0; k < WIDTH; k++)
			at[((size_t)l * WIDTH + k) * WIDTH + moved(l, k)] = k % 2 ? -1 : 1;
	assert_int_equal(rbk_arena_seal(constants, NULL), 0);
	return constants;
}

static struct rbk_plan *make_plan(struct rbk_builder *builder, uint32_t max_count)
{
	struct rbk_plan *plan;
	struct rbk_error error;

	if (rbk_plan_new(rbk, builder, max_count, &plan, &error))
		fail_msg("%s", error.text);
	rbk_builder_free(builder);
	return plan;
}

static const uint32_t rows_dims[] = {RBK_DIM_COUNT, WIDTH}, square[] = {WIDTH, WIDTH};

/* y = x through @n layers */
static struct rbk_plan *chain_new(uint32_t n)
{
	struct rbk_builder *b = rbk_builder_new("chain");
	struct rbk_arena *constants = layers(n);
	unsigned int from = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, rows_dims), to, w;
	struct rbk_plan *plan;
	char name[16];

	for (uint32_t l = 0; l < n; l++) {
		snprintf(name, sizeof(name), "w%u", l);
		w = rbk_builder_constant(b, name, RBK_DTYPE_F32, 2, square, constants, l * mib);
		snprintf(name, sizeof(name), "t%u", l);
		to = l + 1 == n ? rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows_dims)
				: rbk_builder_scratch(b, name, RBK_DTYPE_F32, 2, rows_dims);
		rbk_builder_binary(b, "MatMul", from, w, to);
		from = to;
	}
	plan = make_plan(b, ROWS);
	rbk_arena_free(constants);
	return plan;
}

/* Expect @times x after @n_layers layers. */
static void expect_times(uint32_t n_layers, uint32_t slot, uint32_t n_rows, float times)
{
	const float *x = rbk_arena_data(arena);
	const float *y = x + (1 + slot) * (TENSOR_BYTES / 4);

	for (uint32_t row = 0; row < n_rows; row++)
		for (uint32_t k = 0; k < WIDTH; k++) {
			float want = times * x[row * WIDTH + k];
			uint32_t at = k;

			for (uint32_t l = 0; l < n_layers; l++) {
				want = at % 2 ? -want : want;
				at = moved(l, at);
			}
			if (y[row * WIDTH + at] != want)
				fail_msg("slot %u, row %u: %g at %u instead of %g", slot, row,
					 (double)y[row * WIDTH + at], at, (double)want);
		}
}

static void expect_right(uint32_t n_layers, uint32_t slot, uint32_t n_rows)
{
	expect_times(n_layers, slot, n_rows, 1);
}

static void put(const struct rbk_plan *plan, uint32_t slot, uint32_t n_rows, unsigned int strategy)
{
	const uint64_t out = (1 + slot) * TENSOR_BYTES;
	const uint64_t refs[] = {rbk_arena_ref(arena, 0), rbk_arena_ref(arena, out)};
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	assert_non_null(sqe);
	memset((char *)rbk_arena_data(arena) + out, 0xff, TENSOR_BYTES);
	rbk_prep_run(sqe, rbk_plan_id(plan), n_rows, refs, 2);
	rbk_sqe_set_strategy(sqe, strategy);
	rbk_sqe_set_data64(sqe, slot);
}

static struct rbk_cqe take(void)
{
	const struct rbk_cqe *cqe = NULL;
	struct rbk_cqe copy;

	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, harness_slow_ns(60000000000)), 0);
	copy = *cqe;
	rbk_cqe_seen(ring, cqe);
	return copy;
}

static struct rbk_cqe run(const struct rbk_plan *plan, uint32_t n_rows, unsigned int strategy)
{
	put(plan, 0, n_rows, strategy);
	rbk_submit(ring);
	return take();
}

static struct rbk_plan_memory memory_on_gpu(const struct rbk_plan *plan)
{
	struct rbk_plan_memory memory[RBK_MAX_DEVICES];
	unsigned int n;

	assert_int_equal(rbk_plan_memory(plan, memory, RBK_MAX_DEVICES, &n, NULL), 0);
	assert_in_range(n, GPU + 1, RBK_MAX_DEVICES);
	return memory[GPU];
}

/* --- larger than the device --- */

/* A plan of twice the device's memory keeps a part of it there; the CPU does the rest. */
TEST(test_segments__larger_than_the_device)
{
	enum { N_LAYERS = 12, N_TASKS = 20 };
	static const char *const args[] = {"--gpu=software", "--device-memory=6M", NULL};
	struct rbk_plan_memory memory;
	struct rbk_plan_info info;
	struct rbk_plan *plan;
	struct rbk_cqe cqe;

	begin(&(struct broker_options){.args = args});
	plan = chain_new(N_LAYERS);
	rbk_plan_info(plan, &info);
	assert_true(info.devices & 1u << GPU);
	memory = memory_on_gpu(plan);
	assert_int_equal(memory.state, RBK_MEMORY_RESIDENT);
	assert_in_range(memory.resident_bytes, 2 * mib, 6 * mib);
	assert_in_range(memory.required_bytes, N_LAYERS * mib, UINT64_MAX);

	cqe = run(plan, ROWS, RBK_STRATEGY_PREFER_GPU);
	assert_fields(cqe, (res, 0), (reason, RBK_REASON_MEMORY_CONSTRAINT));
	assert_true(cqe.flags & RBK_CQE_PARTITIONED);
	expect_right(N_LAYERS, 0, ROWS);

	/* All of it on one device: on the GPU, the segments take turns in its memory. */
	cqe = run(plan, ROWS, RBK_STRATEGY_ONLY_CPU);
	assert_fields(cqe, (res, 0), (device, RBK_DEVICE_CPU), (flags, 0));
	expect_right(N_LAYERS, 0, ROWS);
	cqe = run(plan, 3, RBK_STRATEGY_ONLY_GPU);
	assert_fields(cqe, (res, 0), (device, GPU), (flags, 0));
	expect_right(N_LAYERS, 0, 3);
	assert_in_range(memory_on_gpu(plan).resident_bytes, 0, 6 * mib);

	/* More tasks than crossing blocks */
	for (uint32_t i = 0; i < N_TASKS; i++)
		put(plan, i, 1 + i % ROWS, i % 4 ? RBK_STRATEGY_PREFER_GPU : RBK_STRATEGY_ONLY_CPU);
	rbk_submit(ring);
	for (uint32_t i = 0; i < N_TASKS; i++)
		assert_int_equal(take().res, 0);
	for (uint32_t i = 0; i < N_TASKS; i++)
		expect_right(N_LAYERS, i, 1 + i % ROWS);
	rbk_plan_free(plan);
	end();
}

/* A plan of twice the device's memory, whose tasks add what some layers give to states: segments on
 * both devices update them. */
TEST(test_segments__update_states)
{
	enum { N_LAYERS = 12, EACH = 4, N_STATES = N_LAYERS / EACH, N_TASKS = 6 };
	static const char *const args[] = {"--gpu=software", "--device-memory=6M", NULL};
	static const uint32_t dims[] = {ROWS, WIDTH};
	static const unsigned int strategies[] = {RBK_STRATEGY_PREFER_GPU, RBK_STRATEGY_ONLY_CPU,
						  RBK_STRATEGY_ONLY_GPU};
	struct rbk_builder *b = rbk_builder_new("states");
	uint64_t refs[2 + N_STATES];
	unsigned int from, to, w, s, y;
	struct rbk_arena *constants;
	struct rbk_plan *plan;
	char name[16];

	begin(&(struct broker_options){.args = args});
	constants = layers(N_LAYERS);
	from = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims);
	y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims);
	for (uint32_t l = 0; l < N_LAYERS; l++) {
		snprintf(name, sizeof(name), "w%u", l);
		w = rbk_builder_constant(b, name, RBK_DTYPE_F32, 2, square, constants, l * mib);
		snprintf(name, sizeof(name), "t%u", l);
		to = l + 1 < N_LAYERS ? rbk_builder_scratch(b, name, RBK_DTYPE_F32, 2, dims) : y;
		rbk_builder_binary(b, "MatMul", from, w, to);
		from = to;
		if (l % EACH < EACH - 1)
			continue;
		snprintf(name, sizeof(name), "s%u", l);
		s = rbk_builder_state(b, name, RBK_DTYPE_F32, 2, dims);
		rbk_builder_binary(b, "Add", s, to, s);
	}
	plan = make_plan(b, 1);
	rbk_arena_free(constants);

	for (uint32_t i = 0; i < 2 + N_STATES; i++)
		refs[i] = rbk_arena_ref(arena, i * TENSOR_BYTES);
	memset((char *)rbk_arena_data(arena) + TENSOR_BYTES, 0, (1 + N_STATES) * TENSOR_BYTES);
	for (uint32_t i = 0; i < N_TASKS; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		assert_non_null(sqe);
		rbk_prep_run(sqe, rbk_plan_id(plan), 1, refs, 2 + N_STATES);
		rbk_sqe_set_strategy(sqe, strategies[i % 3]);
		rbk_sqe_set_flags(sqe, i + 1 < N_TASKS ? RBK_SQE_LINK : 0);
	}
	rbk_submit(ring);
	for (uint32_t i = 0; i < N_TASKS; i++) {
		const struct rbk_cqe cqe = take();

		assert_int_equal(cqe.res, 0);
		if (i % 3 == 0)
			assert_true(cqe.flags & RBK_CQE_PARTITIONED);
	}
	expect_right(N_LAYERS, 0, ROWS);
	for (uint32_t i = 1; i <= N_STATES; i++)
		expect_times(i * EACH, i, ROWS, N_TASKS);
	rbk_plan_free(plan);
	end();
}

/* Segments leave and return as the tenant's limit changes, while tasks go on. */
TEST(test_segments__limit_changes)
{
	enum { N_LAYERS = 12, N_ROUNDS = 12 };
	static const char *const args[] = {"--gpu=software", "--device-memory=40M", NULL};
	static const char *const low = "[tenant default]\nvram-max = 4MiB\n";
	static const char *const high = "[tenant default]\nvram-max = 30MiB\n";
	static const char *const none = "[tenant default]\nvram-max = 0\n";
	struct rbk_plan *plan;
	uint64_t deadline_ns;

	begin(&(struct broker_options){.args = args, .policy = low});
	plan = chain_new(N_LAYERS);
	assert_in_range(memory_on_gpu(plan).resident_bytes, mib, 4 * mib);
	for (uint32_t round = 0; round < N_ROUNDS; round++) {
		broker_write_policy(&broker, round % 3 == 0 ? high : round % 3 == 1 ? none : low);
		for (uint32_t i = 0; i < 8; i++)
			put(plan, i, ROWS, RBK_STRATEGY_PREFER_GPU);
		rbk_submit(ring);
		kill(broker.pid, SIGHUP);
		for (uint32_t i = 0; i < 8; i++)
			assert_int_equal(take().res, 0);
		for (uint32_t i = 0; i < 8; i++)
			expect_right(N_LAYERS, i, ROWS);
	}
	/* With room for all, all are there in the end; without any, none is. */
	broker_write_policy(&broker, high);
	kill(broker.pid, SIGHUP);
	deadline_ns = harness_now_ns() + harness_slow_ns(30000000000);
	while (memory_on_gpu(plan).resident_bytes < N_LAYERS * mib) {
		assert_true(harness_now_ns() < deadline_ns);
		assert_int_equal(run(plan, ROWS, RBK_STRATEGY_PREFER_GPU).res, 0);
	}
	assert_int_equal(run(plan, ROWS, RBK_STRATEGY_PREFER_GPU).device, GPU);
	broker_write_policy(&broker, none);
	kill(broker.pid, SIGHUP);
	while (memory_on_gpu(plan).resident_bytes > 0) {
		assert_true(harness_now_ns() < deadline_ns);
		harness_sleep_ms(5);
	}
	assert_int_equal(run(plan, ROWS, RBK_STRATEGY_PREFER_GPU).device, RBK_DEVICE_CPU);
	expect_right(N_LAYERS, 0, ROWS);
	rbk_plan_free(plan);
	end();
}

/* Two devices have more of the plan than one; what crosses between them is in host memory. */
TEST(test_segments__two_devices)
{
	enum { N_LAYERS = 12, SECOND = GPU + 1 };
	static const char *const args[] = {"--gpu=software:2", "--device-memory=8M", NULL};
	struct rbk_plan_memory memory[RBK_MAX_DEVICES];
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(30000000000);
	struct rbk_plan *plan;
	unsigned int n;

	begin(&(struct broker_options){.args = args});
	plan = chain_new(N_LAYERS);
	do {
		assert_true(harness_now_ns() < end_ns);
		assert_int_equal(run(plan, ROWS, RBK_STRATEGY_PREFER_GPU).res, 0);
		expect_right(N_LAYERS, 0, ROWS);
		assert_int_equal(rbk_plan_memory(plan, memory, RBK_MAX_DEVICES, &n, NULL), 0);
		assert_int_equal(n, SECOND + 1);
	} while (memory[GPU].resident_bytes < 4 * mib || memory[SECOND].resident_bytes < 4 * mib);
	for (uint32_t i = 0; i < 8; i++)
		put(plan, i, ROWS, RBK_STRATEGY_PREFER_GPU);
	rbk_submit(ring);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(take().res, 0);
	for (uint32_t i = 0; i < 8; i++)
		expect_right(N_LAYERS, i, ROWS);
	rbk_plan_free(plan);
	end();
}

/* --- operators that the device lacks --- */

/* y = (sine of x w as float64) v: no shader computes the sine of float64. */
static struct rbk_plan *sine_new(void)
{
	struct rbk_builder *b = rbk_builder_new("sine");
	struct rbk_arena *constants = layers(2);
	unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, rows_dims);
	unsigned int w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, square, constants, 0);
	unsigned int v = rbk_builder_constant(b, "v", RBK_DTYPE_F32, 2, square, constants, mib);
	unsigned int p = rbk_builder_scratch(b, "p", RBK_DTYPE_F32, 2, rows_dims);
	unsigned int d = rbk_builder_scratch(b, "d", RBK_DTYPE_F64, 2, rows_dims);
	unsigned int s = rbk_builder_scratch(b, "s", RBK_DTYPE_F64, 2, rows_dims);
	unsigned int f = rbk_builder_scratch(b, "f", RBK_DTYPE_F32, 2, rows_dims);
	unsigned int y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows_dims);
	struct rbk_plan *plan;
	unsigned int node;

	rbk_builder_binary(b, "MatMul", x, w, p);
	node = rbk_builder_node(b, "Cast", "", &p, 1, &d, 1);
	rbk_builder_attr_int(b, node, "to", 11);
	rbk_builder_unary(b, "Sin", d, s);
	node = rbk_builder_node(b, "Cast", "", &s, 1, &f, 1);
	rbk_builder_attr_int(b, node, "to", 1);
	rbk_builder_binary(b, "MatMul", f, v, y);
	plan = make_plan(b, ROWS);
	rbk_arena_free(constants);
	return plan;
}

TEST(test_segments__lacks_operator)
{
	static const char *const args[] = {"--gpu=software", NULL};
	const float *x, *y;
	struct rbk_plan_info info;
	struct rbk_plan *plan;
	struct rbk_cqe cqe;

	begin(&(struct broker_options){.args = args});
	x = rbk_arena_data(arena);
	y = x + TENSOR_BYTES / 4;
	plan = sine_new();
	/* No GPU runs all of it. */
	rbk_plan_info(plan, &info);
	assert_int_equal(info.devices, 1u << RBK_DEVICE_CPU);
	cqe = run(plan, ROWS, RBK_STRATEGY_PREFER_GPU);
	assert_fields(cqe, (res, 0));
	assert_true(cqe.flags & RBK_CQE_PARTITIONED);
	for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
		const uint32_t k = i % WIDTH, at = moved(0, k);
		const double sine = sin(k % 2 ? -(double)x[i] : (double)x[i]);
		const double want = at % 2 ? -sine : sine;

		assert_float_equal(y[i / WIDTH * WIDTH + moved(1, at)], want, 1e-6);
	}
	assert_int_equal(run(plan, ROWS, RBK_STRATEGY_ONLY_GPU).res, -ENODEV);
	rbk_plan_free(plan);
	end();
}

/* --- cut at random --- */

TEST(test_segments__at_random)
{
	enum { N_LAYERS = 8 };
	const char *args[] = {"--gpu=software", NULL, NULL};
	struct rbk_plan *plan;
	char seed[32];

	for (unsigned int i = 1; i <= 3; i++) {
		snprintf(seed, sizeof(seed), "--cut=%u", i);
		args[1] = seed;
		begin(&(struct broker_options){.args = args});
		plan = chain_new(N_LAYERS);
		for (unsigned int k = 0; k < 4; k++) {
			static const unsigned int strategies[] = {
				RBK_STRATEGY_AUTO, RBK_STRATEGY_ONLY_GPU, RBK_STRATEGY_ONLY_CPU,
				RBK_STRATEGY_PARTITION};

			assert_int_equal(run(plan, 1 + 20 * k, strategies[k]).res, 0);
			expect_right(N_LAYERS, 0, 1 + 20 * k);
		}
		rbk_plan_free(plan);
		end();
	}
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(120))
