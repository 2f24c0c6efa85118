/* SPDX-License-Identifier: MIT */
/*
 * Device memory as ordered by the reactor: blocks of constants and plans' working memory, their
 * sizes and contents, and failing allocations
 */
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/big-plan.h"
#include "support/test.h"
#include "unit/fail-alloc.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"
#include "util/log.h"
#include "vulkan/record-private.h"

#define N DESCRIBE_COUNT
#define D DESCRIBE_DIMS

enum { GPU = RBK_DEVICE_GPU, MAX = RIG_MAX_COUNT };

static uint64_t vram_used(struct rig *rig)
{
	return rig->executor->ops->memory_used(rig->executor, EXEC_TIER_VRAM);
}

static void run_and_check(struct rig *rig, struct plan *plan)
{
	struct job job;

	job_init(rig, &job, plan, 5, 1);
	rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	assert_true(job_check(&job, 1e-5, 1e-5));
	job_deinit(rig, &job);
}

/* Preparing takes no device memory; loading takes the footprint, for every number of slots. */
TEST(test_plan_load__exact)
{
	static const uint32_t forces[] = {0, VULKAN_FORCE_STAGED, VULKAN_FORCE_UPLOAD,
					  VULKAN_FORCE_UPLOAD | VULKAN_FORCE_STAGED};

	for (unsigned int i = 0; i < 4; i++) {
		struct plan *plan = rig_scratch_plan(1000);
		const struct executor_info *info;
		struct vulkan_usage usage;
		const struct vk_plan *made;
		struct rig rig;

		rig_init(&rig, &(struct vulkan_options){.force = forces[i]});
		info = &rig.executor->info;
		assert_true(info->memory_page_bytes >= 4096);
		assert_true(info->memory_align_bytes >= PLAN_SCRATCH_ALIGN);
		assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan), 0);
		assert_int_equal(plan->device_state[GPU], PLAN_DEVICE_EVICTED);
		assert_int_equal(vram_used(&rig), 0);
		assert_true(plan->host_bytes[GPU] > 0);
		assert_true(plan->footprint[GPU].max_slots >= 1);
		assert_true(plan->footprint[GPU].slot_device_bytes >= plan->scratch_bytes);
		made = plan->exec[GPU];
		for (uint32_t n = 1; n <= plan->footprint[GPU].max_slots; n++) {
			assert_int_equal(rig_load(&rig, plan, EXEC_TIER_VRAM, n), 0);
			vulkan_usage(rig.executor, &usage);
			assert_int_equal(vram_used(&rig), exec_footprint_device_bytes(
								  &plan->footprint[GPU], info, n));
			assert_int_equal(usage.device_bytes, vram_used(&rig));
			assert_int_equal(usage.host_bytes,
					 exec_footprint_host_bytes(&plan->footprint[GPU], info, n));
			run_and_check(&rig, plan);
			rig_unload(&rig, plan);
			assert_true(list_is_empty(&made->command_memory.pieces));
			vulkan_usage(rig.executor, &usage);
			assert_int_equal(vram_used(&rig), 0);
			assert_int_equal(usage.host_bytes, 0);
		}
		rig_release(&rig, plan);
		rig_deinit(&rig);
	}
}

/* Two plans with one block, and a plan with constants of two blocks: addresses are as given. */
TEST(test_block_load__shared)
{
	struct exec_arena arena;
	struct plan *a, *b;
	struct exec_block *block;
	struct rig rig;
	struct exec_load load = {.tier = EXEC_TIER_VRAM, .n_slots = 2};
	const struct exec_block *blocks[1];
	uint64_t offset;

	rig_init(&rig, &(struct vulkan_options){0});
	reference_arena_init(&arena, 64 * 64 * 4 + 256, 3);
	a = rig_product_plan(&arena, 256, 64, 64);
	b = rig_product_plan(&arena, 256, 32, 128);
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, a), 0);
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, b), 0);
	block = rig_block_new(&rig, a);
	assert_int_equal(rig_block_load(&rig, block), 0);
	assert_int_equal(vram_used(&rig), block->bytes);
	blocks[0] = block;
	offset = block->constants[0].block_offset;
	load.blocks = blocks;
	load.offsets = &offset;
	assert_int_equal(rig_plan_load(&rig, a, &load), 0);
	assert_int_equal(rig_plan_load(&rig, b, &load), 0);
	run_and_check(&rig, a);
	rig.executor->ops->plan_unload(rig.executor, a);
	run_and_check(&rig, b);
	rig_release(&rig, a);
	rig_release(&rig, b);
	rig.executor->ops->block_unload(rig.executor, block);
	assert_null(block->memory);
	free(block);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

static enum vulkan_fault count_submissions(void *context, enum vulkan_fault_point point)
{
	_Atomic unsigned int *n = context;

	if (point == VULKAN_FAULT_SUBMIT)
		atomic_fetch_add(n, 1);
	return VULKAN_FAULT_NONE;
}

/*
 * Load the plan, run it and unload it.
 * Return: the number of submissions that the load waited for.
 */
static unsigned int load_once(struct rig *rig, struct plan *plan, bool starts_cold,
			      const _Atomic unsigned int *n_submitted)
{
	const struct exec_load load = {
		.tier = EXEC_TIER_VRAM, .n_slots = 1, .starts_cold = starts_cold};
	const unsigned int before = atomic_load(n_submitted);
	unsigned int n;

	assert_int_equal(rig_plan_load(rig, plan, &load), 0);
	n = atomic_load(n_submitted) - before;
	run_and_check(rig, plan);
	rig->executor->ops->plan_unload(rig->executor, plan);
	return n;
}

/* Return true if each load needs a submission, to follow uploads or to copy. */
static bool is_always_told(struct rig *rig)
{
	struct vulkan_rates rates;

	vulkan_rates(rig->executor, &rates);
	return rates.has_queue || rates.direct.up_bytes_per_s == 0;
}

/*
 * A device may be busy for long. A load waits for it if its pipelines never ran, unless it starts
 * cold. A load also waits if the device has to clear memory or to follow uploads.
 */
TEST(test_plan_load__waits)
{
	_Atomic unsigned int n_submitted = 0;
	struct plan *sum = rig_scratch_plan(1000), *same = rig_scratch_plan(77);
	unsigned int n_always;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.fault = count_submissions,
						.fault_context = (void *)&n_submitted});
	n_always = is_always_told(&rig);
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, sum), 0);
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, same), 0);
	assert_int_equal(load_once(&rig, sum, true, &n_submitted), n_always);
	/* Only a load that runs the pipelines tells later loads that nothing is left to compile. */
	/* One submission per pipeline. */
	assert_int_equal(load_once(&rig, sum, false, &n_submitted), 2 + n_always);
	assert_int_equal(load_once(&rig, sum, false, &n_submitted), n_always);
	assert_int_equal(load_once(&rig, same, false, &n_submitted), n_always);
	rig_release(&rig, sum);
	rig_release(&rig, same);
	rig_deinit(&rig);
}

/* Make a plan of functions with one pipeline each. */
static struct plan *functions_plan(void)
{
	static const char *const functions[] = {"Neg",  "Exp",      "Sqrt", "Abs",  "Floor",
						"Ceil", "Softplus", "Sign", "Tanh", "Sigmoid"};
	enum { N_FUNCTIONS = sizeof(functions) / sizeof(functions[0]) };
	struct describe *d = describe_new("functions", MAX);
	char names[N_FUNCTIONS][4];

	describe_input(d, "x", D(N, 7));
	for (unsigned int i = 0; i < N_FUNCTIONS; i++) {
		snprintf(names[i], sizeof(names[i]), "y%u", i);
		describe_output(d, names[i], D(N, 7));
		describe_node(d, functions[i], "", "x", names[i]);
	}
	return reference_plan(d, NULL);
}

/* A driver that compiles at a pipeline's first run blocks the device for one pipeline at a time. */
TEST(test_plan_load__first_runs)
{
	_Atomic unsigned int n_submitted = 0;
	struct plan *plan = functions_plan();
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.fault = count_submissions,
						.fault_context = (void *)&n_submitted});
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan), 0);
	assert_int_equal(load_once(&rig, plan, false, &n_submitted), 10 + is_always_told(&rig));
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

enum { N_LONG = 3000 };

/* Make a plan y = -(-(-( ... x))) of N_LONG steps. */
static struct plan *long_plan(void)
{
	struct describe *d = describe_new("long", MAX);
	char from[RBK_NAME_BYTES] = "x", to[RBK_NAME_BYTES];

	describe_input(d, "x", D(N, 16));
	describe_output(d, "y", D(N, 16));
	for (unsigned int i = 0; i < N_LONG; i++) {
		snprintf(to, sizeof(to), i + 1 < N_LONG ? "s%u" : "y", i);
		if (i + 1 < N_LONG)
			describe_scratch(d, to);
		describe_node(d, "Neg", "", from, to);
		memcpy(from, to, sizeof(from));
	}
	return reference_plan(d, NULL);
}

/* Return the number of calls until the load is complete. */
static unsigned int count_load(struct rig *rig, struct plan *plan, const struct exec_load *load)
{
	unsigned int n = 1;
	int r;

	while ((r = rig->executor->ops->plan_load(rig->executor, plan, load)) == EXECUTOR_E_MORE)
		n++;
	assert_int_equal(r, 0);
	return n;
}

static unsigned int count_unload(struct rig *rig, struct plan *plan)
{
	unsigned int n = 1;
	int r;

	while ((r = rig->executor->ops->plan_unload_some(rig->executor, plan)) == EXECUTOR_E_MORE)
		n++;
	assert_int_equal(r, 0);
	rig->executor->ops->plan_unload(rig->executor, plan);
	return n;
}

/* A long plan is recorded and freed in parts. Its load can be undone after any part. */
TEST(test_plan_load__parts)
{
	const struct exec_load load = {.tier = EXEC_TIER_VRAM, .n_slots = 2, .starts_cold = true};
	struct plan *plan = long_plan();
	struct vulkan_usage usage;
	struct rig rig;
	unsigned int n, n_again;

	rig_init(&rig, &(struct vulkan_options){0});
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan), 0);
	n = count_load(&rig, plan, &load);
	run_and_check(&rig, plan);
	/* The pool, which takes as long as a part, is freed after all parts. */
	assert_int_equal(count_unload(&rig, plan), 3);
	/* A call that waits for a busy device in vain is no part: take the fewest calls of some
	 * loads. */
	for (unsigned int i = 0; i < 8 && (i < 2 || n > 2 * N_LONG / 500); i++) {
		n_again = count_load(&rig, plan, &load);
		count_unload(&rig, plan);
		n = n_again < n ? n_again : n;
	}
	/* A part has at most about a thousand steps, and at least 500. */
	assert_in_range(n, 2 * N_LONG / 1024 + 1, 2 * N_LONG / 500);

	for (unsigned int n_calls = 1; n_calls < n; n_calls++) {
		for (unsigned int i = 0; i < n_calls; i++)
			assert_int_equal(rig.executor->ops->plan_load(rig.executor, plan, &load),
					 EXECUTOR_E_MORE);
		if (n_calls % 2)
			count_unload(&rig, plan);
		else
			rig.executor->ops->plan_unload(rig.executor, plan);
		vulkan_usage(rig.executor, &usage);
		assert_int_equal(usage.device_bytes, 0);
		assert_int_equal(usage.host_bytes, 0);
	}
	/* A failed load leaves memory to be freed in parts, too. */
	for (unsigned int i = 1; i < n; i++)
		assert_int_equal(rig.executor->ops->plan_load(rig.executor, plan, &load),
				 EXECUTOR_E_MORE);
	rig.executor->ops->lose(rig.executor, "the test wants it");
	assert_int_equal(rig.executor->ops->plan_load(rig.executor, plan, &load), -EIO);
	vulkan_usage(rig.executor, &usage);
	assert_true(usage.host_bytes > 0);
	assert_int_equal(count_unload(&rig, plan), 3);
	assert_int_equal(rig.executor->ops->reopen(rig.executor), 0);
	count_load(&rig, plan, &load);
	run_and_check(&rig, plan);
	rig.executor->ops->plan_unload(rig.executor, plan);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/* Return the number of this process's compiler threads. */
static unsigned int count_compilers(void)
{
	char path[300], name[32];
	struct dirent *entry;
	unsigned int n = 0;
	DIR *dir;

	dir = opendir("/proc/self/task");
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(name, sizeof(name), file) && strcmp(name, "rb-compile\n") == 0)
			n++;
		fclose(file);
	}
	closedir(dir);
	return n;
}

/* A thread names itself, after it was started. */
static void await_compiler(void)
{
	for (unsigned int i = 0; i < 10000 && count_compilers() == 0; i++)
		usleep(100);
	assert_true(count_compilers() > 0);
}

/*
 * The whole plan is compiled, in several parts, and stays compiled. A call for a part does not wait
 * for its end.
 */
TEST(test_plan_compile__parts)
{
	struct plan *plan = functions_plan();
	const struct executor_ops *ops;
	unsigned int n_parts = 1, most = 0, n;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	ops = rig.executor->ops;
	while (ops->plan_compile(rig.executor, plan) == EXECUTOR_E_MORE) {
		n = count_compilers();
		most = n > most ? n : most;
		n_parts++;
	}
	assert_true(n_parts >= 3);
	assert_in_range(most, 1, 4);
	assert_int_equal(count_compilers(), 0);
	assert_int_equal(ops->plan_compile(rig.executor, plan), 0);
	rig_prepare(&rig, plan);
	run_and_check(&rig, plan);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/* A device lost meanwhile compiles nothing more; a reopened device compiles everything again. */
TEST(test_plan_compile__lost)
{
	const struct exec_load load = {.tier = EXEC_TIER_VRAM, .n_slots = 1};
	struct plan *plan = functions_plan();
	const struct executor_ops *ops;
	struct vulkan_usage usage;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	ops = rig.executor->ops;
	assert_int_equal(ops->plan_compile(rig.executor, plan), EXECUTOR_E_MORE);
	ops->lose(rig.executor, "the test wants it");
	assert_int_equal(ops->plan_compile(rig.executor, plan), 0);
	assert_int_equal(ops->plan_prepare(rig.executor, plan), 0);
	assert_int_equal(ops->reopen(rig.executor), 0);
	/* Loading does not wait for the compilation either. */
	assert_int_equal(ops->plan_load(rig.executor, plan, &load), EXECUTOR_E_MORE);
	await_compiler();
	vulkan_usage(rig.executor, &usage);
	assert_int_equal(usage.host_bytes, 0);
	assert_int_equal(ops->plan_compile(rig.executor, plan), EXECUTOR_E_MORE);
	assert_int_equal(rig_load(&rig, plan, EXEC_TIER_VRAM, 1), 0);
	run_and_check(&rig, plan);
	rig_unload(&rig, plan);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/* Make a plan of 4,095 Concats of 32 inputs each. */
static struct plan *large_plan(void)
{
	const struct plan_arena_lookup nothing = {.find = NULL};
	char message[PLAN_MESSAGE_BYTES];
	struct plan *plan;
	size_t bytes;
	void *desc = big_plan(BIG_FAN_IN, 4096, &bytes);

	assert_int_equal(plan_new(desc, bytes, &nothing, message, &plan), 0);
	free(desc);
	return plan;
}

/*
 * Check that a plan with more than a hundred thousand steps is lowered once and in parts, and is
 * loaded and unloaded in parts. The plan can be released after any of the first parts.
 */
TEST(test_plan_compile__many_steps)
{
	enum { N_STEPS = 4095 * 32, MOST_STEPS = 2048 + 32 /* maximum per part */ };
	const struct exec_load load = {.tier = EXEC_TIER_VRAM, .n_slots = 1};
	struct plan *plan = large_plan();
	const struct executor_ops *ops;
	unsigned int n_parts = 0;
	struct rig rig;
	int r;

	rig_init(&rig, &(struct vulkan_options){0});
	ops = rig.executor->ops;
	while (ops->plan_compile(rig.executor, plan) == EXECUTOR_E_MORE)
		n_parts++;
	/* Steps are added in a first pass and visited again in a second. */
	assert_true(n_parts >= 2 * (N_STEPS / MOST_STEPS));
	assert_int_equal(ops->plan_compile(rig.executor, plan), 0);
	assert_int_equal(ops->plan_prepare(rig.executor, plan), 0);
	assert_true(plan->host_bytes[GPU] > N_STEPS * 100);

	for (n_parts = 0; (r = ops->plan_load(rig.executor, plan, &load)) == EXECUTOR_E_MORE;)
		n_parts++;
	assert_int_equal(r, 0);
	/* Steps are recorded, then their addresses are filled in. */
	assert_true(n_parts >= N_STEPS / 1024 + N_STEPS / 8192);
	run_and_check(&rig, plan);
	while (ops->plan_unload_some(rig.executor, plan) == EXECUTOR_E_MORE)
		;
	ops->plan_unload(rig.executor, plan);
	for (n_parts = 0; ops->plan_shrink(rig.executor, plan) == EXECUTOR_E_MORE;)
		n_parts++;
	assert_in_range(n_parts, N_STEPS / 8192, N_STEPS / 8192 + 1);
	ops->plan_release(rig.executor, plan);

	for (unsigned int n = 1; n < 100; n += n) {
		for (unsigned int i = 0; i < n; i++)
			assert_int_equal(ops->plan_compile(rig.executor, plan), EXECUTOR_E_MORE);
		while (ops->plan_shrink(rig.executor, plan) == EXECUTOR_E_MORE)
			;
		ops->plan_release(rig.executor, plan);
		assert_null(plan->exec[GPU]);
	}
	plan_free(plan);
	rig_deinit(&rig);
}

/* Check that a plan keeps no room for steps of fused nodes. */
TEST(test_plan_prepare__no_room_for_more)
{
	enum { N_LAYERS = 50 };
	char at[8] = "x", in[20], product[8], sum[8], out[8];
	struct describe *d = describe_new("", MAX);
	const struct vk_lowered *lowered;
	struct exec_arena arena;
	struct plan *plan;
	struct rig rig;

	reference_arena_init(&arena, (8 * 8 + 8) * sizeof(float), 3);
	describe_input(d, "x", D(N, 8));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), D(8, 8));
	describe_constant(d, "b", RBK_REF(REFERENCE_ARENA, 8 * 8 * sizeof(float)), D(8));
	for (unsigned int i = 0; i < N_LAYERS; i++) {
		snprintf(product, sizeof(product), "p%u", i);
		snprintf(sum, sizeof(sum), "s%u", i);
		snprintf(out, sizeof(out), "y%u", i);
		describe_inferred(d, product, RBK_TENSOR_SCRATCH, RBK_DTYPE_F32);
		describe_inferred(d, sum, RBK_TENSOR_SCRATCH, RBK_DTYPE_F32);
		describe_inferred(d, out, i + 1 < N_LAYERS ? RBK_TENSOR_SCRATCH : RBK_TENSOR_OUTPUT,
				  RBK_DTYPE_F32);
		snprintf(in, sizeof(in), "%s,w", at);
		describe_node(d, "MatMul", "", in, product);
		snprintf(in, sizeof(in), "%s,b", product);
		describe_node(d, "Add", "", in, sum);
		describe_node(d, "Relu", "", sum, out);
		snprintf(at, sizeof(at), "%s", out);
	}
	plan = reference_plan(d, &arena);
	rig_init(&rig, &(struct vulkan_options){0});
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan), 0);
	lowered = &((const struct vk_plan *)plan->exec[GPU])->lowered;
	/* A device with kernels for matrices has one or two more steps. */
	assert_in_range(lowered->n_steps, N_LAYERS, N_LAYERS + 2);
	assert_in_range(malloc_usable_size(lowered->steps), 1,
			(lowered->n_steps + 1) * sizeof(*lowered->steps));
	rig_release(&rig, plan);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* If a device's memory is this process's, memory of plans and blocks is freed in parts. */
TEST(test_unload__in_parts)
{
	enum { ROWS = 4096, COLS = 4096, PARTS = ROWS * COLS * 4 / (4 << 20) };
	struct plan *product, *scratch = rig_scratch_plan(1 << 20);
	struct exec_load load = {.tier = EXEC_TIER_VRAM, .n_slots = 1};
	const struct executor_ops *ops;
	struct exec_arena arena;
	struct exec_block *block;
	unsigned int n_parts = 0;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	ops = rig.executor->ops;
	reference_arena_init(&arena, (uint64_t)ROWS * COLS * 4, 3);
	product = rig_product_plan(&arena, 0, ROWS, COLS);
	block = rig_block_new(&rig, product);
	assert_int_equal(rig_block_load(&rig, block), 0);
	while (ops->block_shrink(rig.executor, block) == EXECUTOR_E_MORE)
		n_parts++;
	if (rig_mode() == VULKAN_SOFTWARE)
		assert_in_range(n_parts, PARTS - 1, PARTS);
	ops->block_unload(rig.executor, block);
	assert_null(block->memory);
	/* Only loaded memory is freed in parts. */
	assert_int_equal(ops->block_load(rig.executor, block), EXECUTOR_E_MORE);
	for (n_parts = 0; ops->block_shrink(rig.executor, block) == EXECUTOR_E_MORE;)
		n_parts++;
	assert_true(n_parts <= block->loaded_bytes / (4 << 20));
	ops->block_unload(rig.executor, block);
	free(block);

	assert_int_equal(ops->plan_prepare(rig.executor, scratch), 0);
	assert_int_equal(rig_plan_load(&rig, scratch, &load), 0);
	for (n_parts = 0; ops->plan_unload_some(rig.executor, scratch) == EXECUTOR_E_MORE;)
		n_parts++;
	if (rig_mode() == VULKAN_SOFTWARE)
		assert_true(n_parts + 1 >= scratch->scratch_bytes / (4 << 20) &&
			    scratch->scratch_bytes >= 16 << 20);
	ops->plan_unload(rig.executor, scratch);
	rig_release(&rig, scratch);
	plan_free(product);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

struct pieces {
	struct exec_arena arenas[2];
	struct exec_constant constants[4];
	struct exec_block block;
};

/* Initialise constants of odd sizes from two arenas, one of them larger than one part. */
static void pieces_init(struct rig *rig, struct pieces *pieces)
{
	const uint64_t large = (20 << 20) + 5, offsets[] = {64, 0, 128 + large, 640};
	const uint64_t bytes[] = {1, large, 4097, 515};

	for (unsigned int i = 0; i < 2; i++) {
		rig_arena_init(rig, &pieces->arenas[i], i ? 4096 : large + 65536);
		reference_fill((float *)pieces->arenas[i].base, pieces->arenas[i].bytes / 4, i);
	}
	for (unsigned int i = 0; i < 4; i++)
		pieces->constants[i] = (struct exec_constant){
			.arena = &pieces->arenas[i == 0 || i == 3],
			.offset = offsets[i] & ~63ull,
			.bytes = bytes[i],
		};
	pieces->block = (struct exec_block){.n_constants = 4, .constants = pieces->constants};
	assert_int_equal(exec_block_layout(&pieces->block, &rig->executor->info), 0);
}

static void pieces_deinit(struct rig *rig, struct pieces *pieces)
{
	for (unsigned int i = 0; i < 2; i++)
		rig_arena_deinit(rig, &pieces->arenas[i]);
}

/* Fill memory that the next block is likely to get with nonzero bytes. */
static void make_dirty(struct rig *rig, struct pieces *pieces)
{
	struct exec_constant constant = {
		.arena = &pieces->arenas[0],
		.bytes = pieces->block.bytes,
	};
	struct exec_block block = {.n_constants = 1, .constants = &constant};

	assert_int_equal(exec_block_layout(&block, &rig->executor->info), 0);
	assert_int_equal(block.bytes, pieces->block.bytes);
	for (int again = 0; again < 3; again++) {
		assert_int_equal(rig_block_load(rig, &block), 0);
		rig->executor->ops->block_unload(rig->executor, &block);
	}
}

/* A block has the requested contents, whichever way it is loaded; gaps and tail are zero. */
TEST(test_block_load__contents)
{
	static const uint32_t forces[] = {0, VULKAN_FORCE_STAGED, VULKAN_FORCE_DMA};

	for (unsigned int way = 0; way < 3; way++) {
		uint64_t sum = 0, at = 0;
		struct pieces pieces;
		unsigned int n_parts = 1;
		uint8_t *got;
		struct rig rig;
		int r;

		rig_init(&rig, &(struct vulkan_options){.force = forces[way]});
		pieces_init(&rig, &pieces);
		for (unsigned int i = 0; i < 4; i++)
			sum += pieces.constants[i].bytes;
		make_dirty(&rig, &pieces);
		do {
			r = rig.executor->ops->block_load(rig.executor, &pieces.block);
			assert_int_equal(vram_used(&rig), pieces.block.bytes);
			n_parts += r == EXECUTOR_E_MORE;
		} while (r == EXECUTOR_E_MORE);
		assert_int_equal(r, 0);
		assert_true(n_parts >= 3);
		assert_int_equal(pieces.block.loaded_bytes, pieces.block.bytes);
		/* By default the fastest way is used; for a software device always the CPU. */
		if (way == 0 && rig.executor->info.kind != EXECUTOR_SOFTWARE_GPU) {
			assert_true(pieces.block.copied_bytes == sum ||
				    pieces.block.transferred_bytes == sum);
		} else {
			assert_int_equal(pieces.block.copied_bytes, way == 2 ? 0 : sum);
			assert_int_equal(pieces.block.transferred_bytes,
					 way == 0   ? 0
					 : way == 1 ? pieces.block.bytes
						    : sum);
		}

		got = malloc(pieces.block.bytes);
		assert_non_null(got);
		assert_int_equal(vulkan_block_read(rig.executor, &pieces.block, got), 0);
		for (unsigned int i = 0; i < 4; i++) {
			const struct exec_constant *constant = &pieces.constants[i];

			for (; at < constant->block_offset; at++)
				assert_int_equal(got[at], 0);
			assert_memory_equal(got + at, constant->arena->base + constant->offset,
					    constant->bytes);
			at += constant->bytes;
		}
		for (; at < pieces.block.bytes; at++)
			assert_int_equal(got[at], 0);
		free(got);
		rig.executor->ops->block_unload(rig.executor, &pieces.block);
		assert_int_equal(vram_used(&rig), 0);
		pieces_deinit(&rig, &pieces);
		rig_deinit(&rig);
	}
}

TEST(test_block_load__cancelled)
{
	static const uint32_t forces[] = {0, VULKAN_FORCE_STAGED, VULKAN_FORCE_DMA};

	for (unsigned int way = 0; way < 3; way++) {
		struct pieces pieces;
		struct rig rig;

		rig_init(&rig, &(struct vulkan_options){.force = forces[way]});
		pieces_init(&rig, &pieces);
		/*
		 * Cancel before the load, in the middle, and not at all. A cancelled block can be
		 * loaded again.
		 */
		atomic_store(&pieces.block.is_cancelled, true);
		assert_int_equal(rig.executor->ops->block_load(rig.executor, &pieces.block),
				 EXECUTOR_E_CANCELLED);
		assert_null(pieces.block.memory);
		atomic_store(&pieces.block.is_cancelled, false);
		assert_int_equal(rig.executor->ops->block_load(rig.executor, &pieces.block),
				 EXECUTOR_E_MORE);
		assert_true(pieces.block.loaded_bytes > 0);
		assert_true(pieces.block.loaded_bytes <= 8 << 20);
		atomic_store(&pieces.block.is_cancelled, true);
		assert_int_equal(rig.executor->ops->block_load(rig.executor, &pieces.block),
				 EXECUTOR_E_CANCELLED);
		/* The loaded part of the block is freed in parts. */
		assert_non_null(pieces.block.memory);
		while (rig.executor->ops->block_shrink(rig.executor, &pieces.block) ==
		       EXECUTOR_E_MORE)
			;
		rig.executor->ops->block_unload(rig.executor, &pieces.block);
		assert_null(pieces.block.memory);
		assert_int_equal(vram_used(&rig), 0);
		atomic_store(&pieces.block.is_cancelled, false);
		assert_int_equal(rig_block_load(&rig, &pieces.block), 0);
		/* A partly loaded block can be unloaded, too. */
		rig.executor->ops->block_unload(rig.executor, &pieces.block);
		assert_int_equal(rig.executor->ops->block_load(rig.executor, &pieces.block),
				 EXECUTOR_E_MORE);
		rig.executor->ops->block_unload(rig.executor, &pieces.block);
		assert_int_equal(vram_used(&rig), 0);
		/* The loaded part of a failed block is kept, to be freed in parts. */
		assert_int_equal(rig.executor->ops->block_load(rig.executor, &pieces.block),
				 EXECUTOR_E_MORE);
		rig.executor->ops->lose(rig.executor, "the test wants it");
		assert_int_equal(rig.executor->ops->block_load(rig.executor, &pieces.block), -EIO);
		assert_non_null(pieces.block.memory);
		while (rig.executor->ops->block_shrink(rig.executor, &pieces.block) ==
		       EXECUTOR_E_MORE)
			;
		rig.executor->ops->block_unload(rig.executor, &pieces.block);
		assert_int_equal(vram_used(&rig), 0);
		assert_int_equal(rig.executor->ops->reopen(rig.executor), 0);
		pieces_deinit(&rig, &pieces);
		rig_deinit(&rig);
	}
}

/* A plan's new memory does not show bytes of other owners. */
TEST(test_plan_load__cleared)
{
	struct plan *first = rig_scratch_plan(500), *second = rig_scratch_plan(500);
	struct rig rig;
	struct job job;

	rig_init(&rig, &(struct vulkan_options){.force = VULKAN_FORCE_STAGED});
	for (int again = 0; again < 10; again++) {
		if (again == 0)
			rig_prepare(&rig, first);
		else
			assert_int_equal(rig_load(&rig, first, EXEC_TIER_VRAM, 1), 0);
		job_init(&rig, &job, first, MAX, 1 + again);
		rig_run(&rig, &job);
		assert_true(job.task.copied_bytes == 2ull * MAX * 500 * 4);
		assert_true(vulkan_find_bytes(rig.executor, job.want.bindings[0], 64));
		rig_unload(&rig, first);
		if (again == 0)
			rig_prepare(&rig, second);
		else
			assert_int_equal(rig_load(&rig, second, EXEC_TIER_VRAM, 1), 0);
		assert_false(vulkan_find_bytes(rig.executor, job.want.bindings[0], 64));
		rig_unload(&rig, second);
		job_deinit(&rig, &job);
	}
	rig_release(&rig, first);
	rig_release(&rig, second);
	rig_deinit(&rig);
}

struct fault_script {
	int alloc_at; /* number of the failing allocation, from now; 0: none */
	int n_failed;
};

static enum vulkan_fault fault(void *context, enum vulkan_fault_point point)
{
	struct fault_script *script = context;

	if (point != VULKAN_FAULT_ALLOC || script->alloc_at == 0 || --script->alloc_at > 0)
		return VULKAN_FAULT_NONE;
	script->n_failed++;
	return VULKAN_FAULT_NO_MEMORY;
}

/*
 * The driver has no memory although the ledger does: the load fails with this error and leaks
 * nothing.
 */
TEST(test_load__driver_out_of_memory)
{
	static const uint32_t forces[] = {0, VULKAN_FORCE_STAGED};

	for (unsigned int way = 0; way < 2; way++) {
		struct fault_script script = {0};
		struct vulkan_usage usage;
		struct exec_arena arena;
		struct plan *plan;
		struct rig rig;
		int n;

		rig_init(&rig, &(struct vulkan_options){.force = forces[way],
							.fault = fault,
							.fault_context = &script});
		reference_arena_init(&arena, 64 * 64 * 4, 3);
		plan = rig_product_plan(&arena, 0, 64, 64);
		assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan), 0);
		for (n = 1; n < 20; n++) {
			script.alloc_at = n;
			script.n_failed = 0;
			if (rig_load(&rig, plan, EXEC_TIER_VRAM, 2) == 0)
				break;
			assert_int_equal(script.n_failed, 1);
			vulkan_usage(rig.executor, &usage);
			assert_int_equal(usage.device_bytes, 0);
			assert_int_equal(usage.host_bytes, 0);
			assert_int_equal(usage.n_blocks, 0);
			assert_false(rig.executor->ops->is_lost(rig.executor));
		}
		/* Allocations: the block, its staging buffer if staged, parameters. */
		if (way == 0 && rig.executor->info.kind == EXECUTOR_GPU)
			assert_in_range(n, 3, 4);
		else
			assert_int_equal(n, way == 0 ? 3 : 4);
		assert_int_equal(script.n_failed, 0);
		run_and_check(&rig, plan);
		rig_release(&rig, plan);
		rig_deinit(&rig);
		reference_arena_deinit(&arena);
	}
}

/* The same with the broker's own allocations failing. */
TEST(test_load__failing_allocations)
{
	const struct exec_block *blocks[1];
	uint64_t offset = 0;
	const struct exec_load load = {.n_slots = 2, .blocks = blocks, .offsets = &offset};
	struct vulkan_usage usage;
	struct exec_block *block;
	struct exec_arena arena;
	struct plan *plan;
	struct rig rig;
	unsigned int n, n_without_helper = 0;
	int r;

	rig_init(&rig, &(struct vulkan_options){.force = VULKAN_FORCE_STAGED});
	reference_arena_init(&arena, 64 * 64 * 4, 3);
	plan = rig_product_plan(&arena, 0, 64, 64);
	block = rig_block_new(&rig, plan);
	blocks[0] = block;
	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = rig.executor->ops->plan_prepare(rig.executor, plan);
		if (!r)
			r = rig.executor->ops->block_load(rig.executor, block);
		if (!r)
			r = rig_plan_load(&rig, plan, &load);
		if (!fail_alloc_stop())
			break;
		/*
		 * EXECUTOR_E_NO_MEMORY if a driver had no memory for its command buffers; 0 if a
		 * helper could not be started, whose shader the caller compiles.
		 */
		assert_true(r == -ENOMEM || r == EXECUTOR_E_NO_MEMORY || r == 0);
		n_without_helper += r == 0;
		rig.executor->ops->plan_unload(rig.executor, plan);
		rig.executor->ops->block_unload(rig.executor, block);
		rig.executor->ops->plan_release(rig.executor, plan);
		vulkan_usage(rig.executor, &usage);
		assert_int_equal(usage.device_bytes, 0);
		assert_int_equal(usage.host_bytes, 0);
		assert_int_equal(usage.n_blocks, 0);
	}
	assert_int_equal(r, 0);
	assert_true(n > 3 && n_without_helper <= 1);
	run_and_check(&rig, plan);
	rig_release(&rig, plan);
	rig.executor->ops->block_unload(rig.executor, block);
	free(block);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Rates are measured in both directions; rates that do not apply are 0. */
TEST(test_rates__measured)
{
	struct vulkan_rates rates;
	struct vulkan_usage usage;
	struct exec_memory memory;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	vulkan_rates(rig.executor, &rates);
	if (rig.executor->info.kind == EXECUTOR_SOFTWARE_GPU)
		assert_true(rates.direct.up_bytes_per_s > 0 && rates.direct.down_bytes_per_s > 0);
	assert_true(rates.staged.up_bytes_per_s > 0 && rates.staged.down_bytes_per_s > 0);
	if (strstr(rig.executor->info.paths, "host-import"))
		assert_true(rates.arena.up_bytes_per_s > 0 && rates.arena.down_bytes_per_s > 0);
	vulkan_usage(rig.executor, &usage);
	assert_int_equal(usage.device_bytes, 0);
	/* A software device has one memory, the CPU's. */
	if (rig.executor->info.kind == EXECUTOR_SOFTWARE_GPU) {
		assert_int_equal(rig.executor->info.gtt_bytes, 0);
		assert_false(rig.executor->info.is_integrated);
	}
	rig.executor->ops->memory_sample(rig.executor, &memory);
	assert_true(memory.has_budget || memory.budget_bytes == 0);
	rig_deinit(&rig);

	rig_init(&rig, &(struct vulkan_options){.force = VULKAN_FORCE_STAGED});
	vulkan_rates(rig.executor, &rates);
	assert_int_equal(rates.arena.up_bytes_per_s, 0);
	rig_deinit(&rig);
}

int main(int argc, char **argv)
{
	/* "-NAME": all tests except that. */
	if (argc > 1 && argv[1][0] == '-')
		cmocka_set_skip_filter(argv[1] + 1);
	clock_init();
	log_set_level(LOG_LEVEL_ERROR);
	if (!rig_available())
		return 77;
	return test_run(NULL, NULL);
}
