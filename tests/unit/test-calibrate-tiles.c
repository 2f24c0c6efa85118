/* SPDX-License-Identifier: MIT */
/*
 * The calibrator's choice of tile shapes
 *
 * The devices compute like the reference, take as long as a script says, and may be wrong with one
 * shape.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/calibrate.h"
#include "reference/reference.h"
#include "shm/half.h"
#include "support/test.h"
#include "util/checked.h"
#include "util/clock.h"

enum { N_TILES = 3, NONE = N_TILES };

struct device {
	struct executor executor;
	uint64_t run_ns[N_TILES], half_run_ns[N_TILES]; /* the latter 0: same as the former */
	unsigned int wrong;                             /* shape with wrong results; NONE: none */
	unsigned int n_tiles;
	struct exec_tiles prepared; /* tiles that the plan was prepared with */
	bool is_computed;           /* by an earlier run */
	unsigned int n_wrong;

	/* The calibrator's next step. */
	calibrate_step_fn *run, *done;
	void *data;
	struct exec_task *task;
	unsigned int n_results, n_failures;
};

static struct device *device_of(struct executor *executor)
{
	return container_of(executor, struct device, executor);
}

static void op_import(struct executor *executor, struct exec_arena *arena)
{
}

static int op_prepare(struct executor *executor, struct plan *plan)
{
	struct device *device = device_of(executor);

	executor_get_tiles(executor, &device->prepared);
	device->is_computed = false;
	return 0;
}

static void op_release(struct executor *executor, struct plan *plan)
{
}

static bool op_tile(struct executor *executor, enum exec_tile_op op, unsigned int i,
		    struct exec_tile *ret)
{
	*ret = (struct exec_tile){8, (uint8_t)(32 * (1 + i))};
	return i < device_of(executor)->n_tiles;
}

static const struct executor_ops ops = {
	.arena_import = op_import,
	.arena_release = op_import,
	.plan_prepare = op_prepare,
	.plan_release = op_release,
	.tile = op_tile,
};

static bool is_of_half(const struct plan *plan)
{
	return plan->tensors[plan->n_tensors - 1].dtype == RBK_DTYPE_F16;
}

/* Change the element by a hundredth. */
static void spoil(const struct plan *plan, void *element)
{
	uint16_t *half = element;

	if (is_of_half(plan))
		*half = half_from_float(half_to_float(*half) * 1.01f);
	else
		*(float *)element *= 1.01f;
}

/* Return the shape for the plan's only node, in the class of its result. */
static unsigned int tile_of(const struct device *device, const struct plan *plan)
{
	const struct shape *y = &plan->tensors[plan->n_tensors - 1].shape;
	const bool is_conv = y->rank == 4;
	const uint64_t rows = is_conv ? y->dims[1] : y->dims[0];
	const uint64_t cols = is_conv ? (uint64_t)y->dims[2] * y->dims[3] : y->dims[1];
	const enum exec_tile_op op = is_conv            ? EXEC_TILE_CONV
				     : is_of_half(plan) ? EXEC_TILE_MATMUL_HALF
							: EXEC_TILE_MATMUL;

	return device->prepared.of[op][exec_tile_class(rows, cols, 1)];
}

/*
 * Cached results: the reference is slow, and the calibrator gives a plan the same inputs for each
 * shape and device. A result is kept by plan name, and holds while the inputs are the same.
 */
struct result {
	char name[RBK_NAME_BYTES];
	uint8_t *bindings; /* all bindings in sequence; the last is the output */
	uint64_t bytes;
};

static uint64_t binding_bytes(const struct plan *plan, unsigned int i)
{
	return plan->bindings[i].fixed_bytes + plan->bindings[i].row_bytes;
}

static struct result *result_of(const struct plan *plan)
{
	static struct result results[64];

	for (unsigned int i = 0; i < ARRAY_SIZE(results); i++) {
		if (strcmp(results[i].name, plan->name) == 0)
			return &results[i];
		if (!results[i].bindings) {
			snprintf(results[i].name, sizeof(results[i].name), "%s", plan->name);
			return &results[i];
		}
	}
	fail_msg("too many plans");
	return NULL;
}

static void run_reference(const struct plan *plan, void *const *bindings)
{
	const unsigned int output = plan->n_bindings - 1;
	struct result *result = result_of(plan);
	uint64_t all_bytes = 0, bytes = 0;
	bool is_same;

	for (unsigned int i = 0; i <= output; i++)
		all_bytes += binding_bytes(plan, i);
	is_same = result->bytes == all_bytes;
	for (unsigned int i = 0; i < output; bytes += binding_bytes(plan, i++))
		is_same = is_same && memcmp(result->bindings + bytes, bindings[i],
					    binding_bytes(plan, i)) == 0;
	if (is_same) {
		memcpy(bindings[output], result->bindings + bytes, binding_bytes(plan, output));
		return;
	}
	reference_run(plan, 1, bindings);
	free(result->bindings);
	result->bindings = malloc(all_bytes);
	assert_non_null(result->bindings);
	result->bytes = all_bytes;
	bytes = 0;
	for (unsigned int i = 0; i <= output; bytes += binding_bytes(plan, i++))
		memcpy(result->bindings + bytes, bindings[i], binding_bytes(plan, i));
}

static void compute(struct device *device, struct exec_task *task)
{
	const struct plan *plan = task->plan;
	void *bindings[RBK_MAX_REFS];
	uint64_t run_ns = 1000;

	if (strncmp(plan->name, "tile-", 5) == 0) {
		const unsigned int tile = tile_of(device, plan);

		for (unsigned int i = 0; i < plan->n_bindings; i++)
			bindings[i] = task->refs[i].arena->base + task->refs[i].offset;
		if (!device->is_computed)
			run_reference(plan, bindings);
		if (!device->is_computed && tile == device->wrong) {
			device->n_wrong++;
			spoil(plan, bindings[plan->n_bindings - 1]);
		}
		device->is_computed = true;
		run_ns = is_of_half(plan) && device->half_run_ns[0] ? device->half_run_ns[tile]
								    : device->run_ns[tile];
	}
	task->res = 0;
	task->start_ticks = 1;
	task->end_ticks = 1 + clock_ns_to_ticks(run_ns);
}

static void step_setup(void *context, calibrate_step_fn *run, calibrate_step_fn *done, void *data)
{
	struct device *device = context;

	device->run = run;
	device->done = done;
	device->data = data;
}

static bool step_charge(void *context, struct executor *executor, uint64_t device_bytes,
			uint64_t host_bytes)
{
	return true;
}

static void step_run(void *context, struct executor *executor, struct exec_task *task,
		     calibrate_step_fn *done, void *data)
{
	struct device *device = context;

	step_setup(context, NULL, done, data);
	device->task = task;
}

static void step_result(void *context, struct executor *executor,
			const struct calibrate_samples *samples)
{
	struct device *device = context;

	device->n_results++;
	device->n_failures += samples == NULL;
}

static void calibrate(struct device *device)
{
	const struct calibrate_ops steps = {
		.setup = step_setup,
		.charge = step_charge,
		.run = step_run,
		.result = step_result,
		.context = device,
	};
	struct executor *executors[1] = {&device->executor};
	struct calibrator *calibrator;

	device->executor.ops = &ops;
	device->executor.info = (struct executor_info){.kind = EXECUTOR_SOFTWARE_GPU, .name = ""};
	assert_int_equal(calibrator_new(&steps, executors, 1, &calibrator), 0);
	calibrator_start(calibrator, 1);
	while (device->done) {
		calibrate_step_fn *done = device->done;

		device->done = NULL;
		if (device->task)
			compute(device, device->task);
		else
			device->run(device->data);
		device->task = NULL;
		done(device->data);
	}
	assert_int_equal(device->n_results, 1);
	assert_int_equal(device->n_failures, 0);
	calibrator_free(calibrator);
}

/* FEW_ROWS of a Conv has no probe: another pipeline computes it. */
static void expect_all(struct device *device, unsigned int tile, unsigned int guess)
{
	struct exec_tiles tiles;

	executor_get_tiles(&device->executor, &tiles);
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++)
		for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++)
			assert_int_equal(
				tiles.of[op][class],
				op == EXEC_TILE_CONV && class == EXEC_TILE_FEW_ROWS ? guess : tile);
}

TEST(test_tiles__fastest)
{
	struct device device = {
		.run_ns = {9000000, 7000000, 8000000}, .wrong = NONE, .n_tiles = N_TILES};

	calibrate(&device);
	expect_all(&device, 1, 0);
}

/* The fastest shape by far has one element, in a corner, off by a hundredth. */
TEST(test_tiles__never_wrong)
{
	struct device device = {
		.run_ns = {9000000, 1000000, 8000000}, .wrong = 1, .n_tiles = N_TILES};

	calibrate(&device);
	assert_true(device.n_wrong > 0);
	expect_all(&device, 2, 0);
}

/* A wrong shape is not chosen even if it is the guess. */
TEST(test_tiles__guess_is_wrong)
{
	struct device device = {
		.run_ns = {1000000, 9000000, 8000000}, .wrong = 0, .n_tiles = N_TILES};

	calibrate(&device);
	expect_all(&device, 2, 0);
}

/* The fastest shape for float32 may not be the fastest for float16. */
TEST(test_tiles__each_type)
{
	struct device device = {.run_ns = {9000000, 7000000, 8000000},
				.half_run_ns = {6000000, 7000000, 3000000},
				.wrong = NONE,
				.n_tiles = N_TILES};
	struct exec_tiles tiles;

	calibrate(&device);
	executor_get_tiles(&device.executor, &tiles);
	for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++) {
		assert_int_equal(tiles.of[EXEC_TILE_MATMUL][class], 1);
		assert_int_equal(tiles.of[EXEC_TILE_MATMUL_HALF][class], 2);
	}
}

TEST(test_tiles__no_choice)
{
	struct device device = {.run_ns = {1000000}, .wrong = 0, .n_tiles = 1};

	calibrate(&device);
	assert_int_equal(device.n_wrong, 0);
	expect_all(&device, 0, 0);
}

TEST(test_choose__ignores_little_gain)
{
	struct calibrate_tiles measured = {{0}};
	struct exec_tiles tiles = {{{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}}};

	/*
	 * MatMul: the large class gains less than repeated measurements differ by, the small class
	 * more.
	 */
	measured.exec_ns[0] = 99;
	measured.exec_ns[1] = 100;
	measured.exec_ns[EXEC_MAX_TILES] = 90;
	measured.exec_ns[EXEC_MAX_TILES + 1] = 100;
	measured.exec_ns[EXEC_MAX_TILES + 2] = 80;
	calibrate_tiles_choose(&measured, &tiles);
	assert_int_equal(tiles.of[EXEC_TILE_MATMUL][EXEC_TILE_LARGE], 1);
	assert_int_equal(tiles.of[EXEC_TILE_MATMUL][EXEC_TILE_SMALL], 2);
	/* The class was not measured. */
	assert_int_equal(tiles.of[EXEC_TILE_CONV][EXEC_TILE_SMALL], 1);
}

TEST_MAIN(NULL, NULL, clock_init())
