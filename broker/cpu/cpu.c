/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor: set-up
 *
 * This file resolves options, starts and ends workers, and prepares and releases plans. pool-hot.c
 * and run-*-hot.c have the code that runs per task; everything that it needs is allocated here.
 */
#include "cpu/cpu.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/internal.h"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/plural.h"

enum { DEFAULT_MAX_TASKS = 4096, DEFAULT_SPIN_NS = 20000, SCRATCH_ALIGN = 4096 };

/* Least time between two looks of the reactor, which take up to 100 ns, while it runs a task. */
enum { LOOK_NS = 2000 };

/* Packed forms, or steps, freed per plan_shrink() call, beside CHUNKS_UNMAP_BYTES */
enum { SHRINK_PACKS = 256, SHRINK_STEPS = 4096 };

static void cpu_plan_free(struct cpu_executor *cpu, struct cpu_plan *compiled)
{
	if (!compiled)
		return;
	cpu_compile_deinit(compiled);
	cpu_fill_deinit(cpu, compiled);
	for (unsigned int i = 0; i < compiled->n_packs; i++)
		cpu_pack_unref(&cpu->packs, compiled->packs[i]);
	chunks_unmap(&cpu->memory, compiled->scratch, compiled->scratch_map_bytes);
	free(compiled->blocks);
	free(compiled->packs);
	free(compiled->steps);
	free(compiled);
}

/* Compute the size of the plan's blocks, see struct cpu_plan. */
static int scratch_size(const struct cpu_executor *cpu, const struct plan *plan,
			struct cpu_plan *compiled)
{
	const unsigned int n_spare =
		cpu->n_workers < CPU_MAX_SPARE_BLOCKS ? cpu->n_workers : CPU_MAX_SPARE_BLOCKS;
	const unsigned int n_blocks = cpu->n_workers + 3 + n_spare;
	uint64_t stride, bytes;

	if (plan->scratch_bytes + compiled->work_bytes == 0)
		return 0;
	if (!checked_align(cpu_work_offset(plan) + compiled->work_bytes, SCRATCH_ALIGN, &stride) ||
	    !checked_mul(stride, n_blocks, &bytes))
		return error_origin(-ENOMEM);
	compiled->scratch_stride = stride;
	compiled->scratch_map_bytes = chunks_map_bytes(bytes);
	if (compiled->scratch_map_bytes == 0)
		return error_origin(-ENOMEM);
	compiled->n_blocks = n_blocks;
	compiled->n_spare = n_spare;
	return 0;
}

static int scratch_map(struct cpu_executor *cpu, struct cpu_plan *compiled)
{
	const size_t blocks_bytes = compiled->n_blocks * sizeof(*compiled->blocks);

	if (compiled->scratch_map_bytes == 0 || compiled->scratch)
		return 0;
	compiled->blocks = aligned_alloc(alignof(struct cpu_block), blocks_bytes);
	if (!compiled->blocks)
		return error_origin(-ENOMEM);
	memset(compiled->blocks, 0, blocks_bytes);
	compiled->scratch =
		chunks_map(&cpu->memory, compiled->scratch_stride * (uint64_t)compiled->n_blocks,
			   &compiled->scratch_map_bytes);
	return compiled->scratch ? 0 : error_origin(-ENOMEM);
}

static uint64_t cpu_plan_bytes(const struct cpu_plan *compiled)
{
	uint64_t bytes = sizeof(*compiled) + compiled->n_steps * sizeof(*compiled->steps) +
			 compiled->n_packs * (sizeof(*compiled->packs) + sizeof(struct cpu_pack)) +
			 compiled->n_blocks * sizeof(*compiled->blocks) +
			 compiled->scratch_map_bytes;

	for (unsigned int i = 0; i < compiled->n_packs; i++)
		bytes += compiled->packs[i]->map_bytes;
	return bytes;
}

static uint64_t picoseconds(double ns)
{
	return ns <= 0 ? 0 : ns < 0x1p40 ? (uint64_t)(ns * 1000) : UINT64_MAX;
}

/* Report the overhead as the line through the overheads of the smallest and the largest count. */
static void tell_overhead(const struct cpu_plan *compiled, struct plan *plan)
{
	const double one = compiled->overhead_one_ns;
	double row = 0;

	if (plan->max_count > 1 && compiled->overhead_max_ns > one)
		row = (compiled->overhead_max_ns - one) / (plan->max_count - 1);
	plan->overhead_row_ps = picoseconds(row);
	plan->overhead_fixed_ps = picoseconds(one - row);
}

/*
 * Free the last SHRINK_STEPS steps, unless these are all: the array may take a hundred megabytes.
 * Return: true if steps were freed.
 */
static bool shrink_steps(struct cpu_plan *compiled)
{
	struct cpu_step *rest;

	if (compiled->n_steps <= SHRINK_STEPS)
		return false;
	compiled->n_steps -= SHRINK_STEPS;
	rest = reallocarray(compiled->steps, compiled->n_steps, sizeof(*rest));
	if (rest)
		compiled->steps = rest;
	return true;
}

/*
 * Free packed forms, their sources, steps and scratch, a part per call: the time to unmap is
 * proportional to the bytes.
 */
static int cpu_plan_shrink(struct executor *executor, struct plan *plan)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	struct cpu_plan *compiled = plan->exec[executor->index];
	const uint64_t begin_bytes = cpu->packs.bytes;
	struct cpu_pack **last;

	if (!compiled)
		return 0;
	plan->device_state[executor->index] = PLAN_DEVICE_UNSUPPORTED;
	if (cpu_fill_shrink(cpu, compiled))
		return EXECUTOR_E_MORE;
	cpu_fill_deinit(cpu, compiled);
	for (unsigned int n = 0; compiled->n_packs > 0; n++) {
		if (n == SHRINK_PACKS || begin_bytes - cpu->packs.bytes >= CHUNKS_UNMAP_BYTES)
			return EXECUTOR_E_MORE;
		last = &compiled->packs[compiled->n_packs - 1];
		*last = cpu_pack_unref_some(&cpu->packs, *last, CHUNKS_UNMAP_BYTES);
		compiled->n_packs -= !*last;
	}
	if (shrink_steps(compiled) ||
	    chunks_unmap_some(&cpu->memory, compiled->scratch, &compiled->scratch_map_bytes,
			      CHUNKS_UNMAP_BYTES))
		return EXECUTOR_E_MORE;
	compiled->scratch = NULL;
	return 0;
}

/*
 * Give up a plan for which memory did not suffice, a part per call, since it may hold much.
 * Return: EXECUTOR_E_MORE; -ENOMEM, all is freed.
 */
static int give_up_some(struct executor *executor, struct plan *plan)
{
	const unsigned int index = executor->index;
	int r = cpu_plan_shrink(executor, plan);

	if (r)
		return r;
	cpu_plan_free(cpu_executor_from(executor), plan->exec[index]);
	plan->exec[index] = NULL;
	plan->host_bytes[index] = 0;
	plan->device_state[index] = PLAN_DEVICE_NO_MEMORY;
	return error_origin(-ENOMEM);
}

static int cpu_plan_measure(struct executor *executor, struct plan *plan)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	const unsigned int index = executor->index;
	struct cpu_plan *compiled = plan->exec[index];
	int r;

	if (!(plan->ops_devices & OP_ON_CPU)) {
		plan->device_state[index] = PLAN_DEVICE_UNSUPPORTED;
		return EXECUTOR_E_UNSUPPORTED;
	}
	if (!compiled)
		compiled = plan->exec[index] = calloc(1, sizeof(*compiled));
	if (!compiled)
		return error_origin(-ENOMEM);
	compiled->n_bindings = plan->n_bindings;
	if (!compiled->has_failed) {
		r = cpu_compile(cpu, plan, compiled);
		if (r == EXECUTOR_E_MORE)
			return r;
		if (!r)
			r = scratch_size(cpu, plan, compiled);
		compiled->has_failed = r < 0;
	}
	if (compiled->has_failed)
		return give_up_some(executor, plan);
	plan->n_steps = compiled->n_steps;
	tell_overhead(compiled, plan);
	plan->host_bytes[index] = cpu_plan_bytes(compiled) + cpu_fill_bytes(compiled);
	return 0;
}

static int cpu_plan_compile(struct executor *executor, struct plan *plan)
{
	struct cpu_executor *cpu = cpu_executor_from(executor);
	struct cpu_plan *compiled = plan->exec[executor->index];
	int r;

	if (!compiled)
		return 0;
	if (!compiled->has_failed) {
		r = cpu_fill(cpu, compiled);
		if (r == EXECUTOR_E_MORE)
			return r;
		if (!r)
			r = scratch_map(cpu, compiled);
		compiled->has_failed = r < 0;
	}
	/* On failure plan_prepare() reports the error. */
	return compiled->has_failed ? cpu_plan_shrink(executor, plan) : 0;
}

static int cpu_plan_prepare(struct executor *executor, struct plan *plan)
{
	const unsigned int index = executor->index;
	struct cpu_plan *compiled = plan->exec[index];
	int r = 0;

	plan->device_state[index] = PLAN_DEVICE_NO_MEMORY;
	if (!compiled || compiled->compiler)
		do
			r = cpu_plan_measure(executor, plan);
		while (r == EXECUTOR_E_MORE);
	if (r)
		return r < 0 ? error_fold(r) : r;
	do
		r = cpu_plan_compile(executor, plan);
	while (r == EXECUTOR_E_MORE);
	compiled = plan->exec[index];
	if (compiled->has_failed)
		return give_up_some(executor, plan);
	plan->host_bytes[index] = cpu_plan_bytes(compiled);
	plan->device_state[index] = PLAN_DEVICE_READY;
	return 0;
}

static void cpu_plan_release(struct executor *executor, struct plan *plan)
{
	cpu_plan_free(cpu_executor_from(executor), plan->exec[executor->index]);
	plan->exec[executor->index] = NULL;
	plan->host_bytes[executor->index] = 0;
	plan->device_state[executor->index] = PLAN_DEVICE_UNSUPPORTED;
}

/* Arenas are already mapped in this address space. */
static void cpu_arena_import(struct executor *executor, struct exec_arena *arena)
{
	arena->import[executor->index] = arena->base;
}

static void cpu_arena_release(struct executor *executor, struct exec_arena *arena)
{
	arena->import[executor->index] = NULL;
}

static struct executor *cpu_free(struct executor *executor)
{
	struct cpu_executor *cpu;

	if (!executor)
		return NULL;
	cpu = cpu_executor_from(executor);
	atomic_store_explicit(&cpu->stop, true, memory_order_relaxed);
	atomic_store_explicit(&cpu->n_active, cpu->n_workers, memory_order_relaxed);
	/* Pairs with the fence in worker_sleep(). */
	atomic_thread_fence(memory_order_seq_cst);
	if (cpu->workers)
		cpu_pool_wake(cpu, cpu->n_workers);
	/* Join all workers before freeing any: each looks into the others' queues until it ends. */
	for (unsigned int i = 0; cpu->workers && i < cpu->n_workers; i++)
		if (cpu->workers[i].started)
			pthread_join(cpu->workers[i].thread, NULL);
	for (unsigned int i = 0; cpu->workers && i <= cpu->n_workers; i++) {
		struct cpu_worker *worker = &cpu->workers[i];

		spsc_deinit(&worker->done);
		free(worker->queue.slots);
		for (unsigned int layer = 0; layer < CPU_LAYERS; layer++)
			free(worker->layers[layer].context.workspace);
	}
	chunks_deinit(&cpu->memory);
	free(cpu->urgent.slots);
	free(cpu->inline_context.workspace);
	free(cpu->workers);
	free(cpu);
	return NULL;
}

static void cpu_freep(struct cpu_executor **cpu)
{
	if (*cpu)
		cpu_free(&(*cpu)->executor);
}

static const struct executor_ops cpu_ops = {
	.arena_import = cpu_arena_import,
	.arena_release = cpu_arena_release,
	.plan_measure = cpu_plan_measure,
	.plan_compile = cpu_plan_compile,
	.plan_prepare = cpu_plan_prepare,
	.plan_shrink = cpu_plan_shrink,
	.plan_release = cpu_plan_release,
	.run_inline = cpu_pool_run_inline,
	.run_here = cpu_pool_run_here,
	.submit = cpu_pool_submit,
	.flush = cpu_pool_flush,
	.reap = cpu_pool_reap,
	.abandon = cpu_pool_abandon,
	.free = cpu_free,
};

/* About half of one thread's rate with n = 32 on Zen 4, by level */
static uint32_t blocked_flops_per_ns(enum cpu_simd level)
{
	switch (level) {
	case CPU_SIMD_AVX512:
		return 56;
	case CPU_SIMD_AVX2:
		return 40;
	default:
		return 12;
	}
}

/* Return the kernels of the highest level that the processor, the build and the options allow. */
static const struct cpu_kernels *choose_kernels(enum cpu_simd cap)
{
	const struct cpu_kernels *kernels = NULL;

	if (cap == CPU_SIMD_AUTO)
		return cpu_kernels_get(CPU_SIMD_AUTO);
	for (int level = (int)cap; !kernels && level > CPU_SIMD_AUTO; level--)
		kernels = cpu_kernels_get((enum cpu_simd)level);
	return kernels;
}

static bool queue_init(struct cpu_queue *queue, uint32_t n_slots)
{
	queue->mask = n_slots - 1;
	queue->slots = calloc(n_slots, sizeof(*queue->slots));
	return queue->slots != NULL;
}

static int layer_init(struct cpu_layer *layer, struct cpu_worker *worker,
		      const _Atomic uint32_t *n_waiting, void (*serve)(struct cpu_pause *pause))
{
	layer->worker = worker;
	layer->pause = (struct cpu_pause){
		.n_waiting = n_waiting,
		.state = &cpu_calm_state,
		.leave = EXEC_CANCELLED,
		.serve = serve,
	};
	layer->context.pause = &layer->pause;
	layer->context.workspace = aligned_alloc(CPU_WORKSPACE_ALIGN, CPU_WORKSPACE_BYTES);
	return layer->context.workspace ? 0 : error_origin(-ENOMEM);
}

/* Initialise what the reactor needs to run tasks itself. */
static int reactor_init(struct cpu_executor *cpu)
{
	struct cpu_worker *worker = cpu_reactor_worker(cpu);

	worker->cpu = cpu;
	worker->index = cpu->n_workers;
	worker->processor = -1;
	return layer_init(&worker->layers[CPU_LAYER_BASE], worker, &cpu_one_waiting,
			  cpu_reactor_serve);
}

static int worker_init(struct cpu_executor *cpu, struct cpu_worker *worker, unsigned int index,
		       int processor)
{
	worker->cpu = cpu;
	worker->index = index;
	worker->processor = processor;
	for (unsigned int i = 0; i < CPU_LAYERS; i++) {
		/* No task runs in between an urgent task. */
		int r = layer_init(&worker->layers[i], worker,
				   i == CPU_LAYER_BETWEEN ? &cpu_none_waiting : &cpu->n_urgent,
				   cpu_worker_serve);

		if (r)
			return error_fold(r);
	}
	if (!queue_init(&worker->queue, cpu->max_tasks) ||
	    !spsc_init(&worker->done, cpu->max_tasks))
		return error_origin(-ENOMEM);
	return 0;
}

/* List the processors that this process may use. Return: their number, at least 1. */
static unsigned int list_processors(cpu_set_t *ret)
{
	CPU_ZERO(ret);
	if (sched_getaffinity(0, sizeof(*ret), ret) < 0 || CPU_COUNT(ret) == 0)
		CPU_SET(0, ret);
	return (unsigned int)CPU_COUNT(ret);
}

int cpu_executor_new(const struct cpu_options *options, struct waker *waker, struct executor **ret)
{
	_cleanup_(cpu_freep) struct cpu_executor *cpu = NULL;
	const uint32_t max_tasks = options->max_tasks ? options->max_tasks : DEFAULT_MAX_TASKS;
	unsigned int n_processors, n_workers;
	int processor = -1, r;
	cpu_set_t processors;

	n_processors = list_processors(&processors);
	n_workers = options->n_workers ? options->n_workers : n_processors;
	if (n_workers > CPU_MAX_WORKERS && !options->n_workers)
		n_workers = CPU_MAX_WORKERS;
	if (n_workers > CPU_MAX_WORKERS || (unsigned int)options->simd >= CPU_SIMD_COUNT ||
	    (max_tasks & (max_tasks - 1)) || max_tasks > 1u << 20)
		return error_origin(-EINVAL);

	cpu = aligned_alloc(alignof(struct cpu_executor), sizeof(*cpu));
	if (!cpu)
		return error_origin(-ENOMEM);
	memset(cpu, 0, sizeof(*cpu));
	cpu->executor.ops = &cpu_ops;
	cpu->executor.waker = waker;
	chunks_init(&cpu->memory, CHUNKS_LARGE);
	cpu_pack_cache_init(&cpu->packs, &cpu->memory);
	cpu->kernels = choose_kernels(options->simd);
	cpu->layout_wish = options->layout;
	cpu->max_tasks = max_tasks;
	cpu->processors = processors;
	cpu->n_workers = cpu->n_in_use = n_workers;
	atomic_init(&cpu->n_active, n_workers);
	cpu->look_ticks = clock_ns_to_ticks(LOOK_NS);
	cpu->spin_ticks = clock_ns_to_ticks(options->spin_ns    ? options->spin_ns
					    : n_processors <= 2 ? 0
								: DEFAULT_SPIN_NS);
	cpu->inline_context.workspace = aligned_alloc(CPU_WORKSPACE_ALIGN, CPU_WORKSPACE_BYTES);
	cpu->workers =
		aligned_alloc(alignof(struct cpu_worker), (n_workers + 1) * sizeof(*cpu->workers));
	if (!queue_init(&cpu->urgent, max_tasks) || !cpu->inline_context.workspace ||
	    !cpu->workers) {
		free(cpu->workers);
		cpu->workers = NULL;
		return error_origin(-ENOMEM);
	}
	memset(cpu->workers, 0, (n_workers + 1) * sizeof(*cpu->workers));

	r = reactor_init(cpu);
	if (r)
		return error_fold(r);
	for (unsigned int i = 0; i < n_workers; i++) {
		if (!options->no_pin && n_workers <= n_processors)
			do
				processor++;
			while (!CPU_ISSET(processor, &processors));
		r = worker_init(cpu, &cpu->workers[i], i, processor);
		if (r)
			return error_fold(r);
	}
	for (unsigned int i = 0; i < n_workers; i++) {
		r = cpu_worker_start(&cpu->workers[i]);
		if (r)
			return error_fold(r);
	}

	snprintf(cpu->name, sizeof(cpu->name), "CPU, %u worker%s", n_workers, plural(n_workers));
	cpu->executor.info = (struct executor_info){
		.kind = EXECUTOR_CPU,
		.name = cpu->name,
		.driver = "ringbroker",
		.paths = cpu->kernels->name,
		.types = OP_ANY_TYPE,
		.n_threads = n_workers,
		.share_min_ns = n_workers > 1 ? CPU_SHARE_MIN_NS : 0,
		.blocked_flops_per_ns = blocked_flops_per_ns(cpu->kernels->level),
	};
	*ret = &steal_ptr(cpu)->executor;
	return 0;
}
