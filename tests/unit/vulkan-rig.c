/* SPDX-License-Identifier: MIT */
/* See vulkan-rig.h. */
#include "unit/vulkan-rig.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/test.h"
#include "util/clock.h"
#include "util/cleanup.h"
#include "util/log.h"
#include "vulkan/record-private.h"

enum { PAGE = 4096, GUARD = 0xa5 };

enum vulkan_mode rig_mode(void)
{
	const char *wanted = getenv("RBK_TEST_GPU");

	return wanted && strcmp(wanted, "real") == 0 ? VULKAN_AUTO : VULKAN_SOFTWARE;
}

bool rig_available(void)
{
	const struct vulkan_options options = {.mode = rig_mode()};
	struct vulkan *vulkan = NULL;
	struct waker waker;
	bool available;

	if (waker_init(&waker) || vulkan_open(&options, &waker, &vulkan))
		return false;
	available = vulkan_n_executors(vulkan) > 0;
	if (!available)
		printf("skipped: %s\n", vulkan_sentence(vulkan, 0));
	vulkan_free(vulkan);
	waker_deinit(&waker);
	return available;
}

int rig_main(void)
{
	clock_init();
	log_set_level(LOG_LEVEL_ERROR);
	if (!rig_available())
		return 77;
	return test_run(NULL, NULL);
}

void rig_init(struct rig *rig, const struct vulkan_options *options)
{
	struct vulkan_options of_mode = *options;

	memset(rig, 0, sizeof(*rig));
	of_mode.mode = rig_mode();
	assert_int_equal(waker_init(&rig->waker), 0);
	assert_int_equal(vulkan_open(&of_mode, &rig->waker, &rig->vulkan), 0);
	assert_true(vulkan_n_executors(rig->vulkan) > 0);
	rig->executor = vulkan_executor(rig->vulkan, 0);
	rig->executor->index = RBK_DEVICE_GPU;
	/* As a dispatcher with processors to spare; a software device does not poll. */
	atomic_store(&rig->executor->may_poll, true);
}

void rig_deinit(struct rig *rig)
{
	struct vulkan_usage usage;

	vulkan_usage(rig->executor, &usage);
	assert_int_equal(usage.device_bytes, 0);
	assert_int_equal(usage.host_bytes, 0);
	assert_int_equal(usage.n_blocks, 0);
	assert_int_equal(usage.n_imports, 0);
	assert_null(rig->executor->ops->free(rig->executor));
	assert_null(vulkan_executor(rig->vulkan, 0));
	vulkan_free(rig->vulkan);
	waker_deinit(&rig->waker);
}

/*
 * Mappings of arenas that no device imported, kept for the next arena of the same size: to map and
 * fault in memory takes longer than most tests of an operator. Used by one thread.
 */
static struct spare {
	uint8_t *base; /* NULL: free */
	uint64_t bytes;
} spares[64];

static uint8_t *spare_take(uint64_t bytes)
{
	for (size_t i = 0; i < sizeof(spares) / sizeof(*spares); i++) {
		uint8_t *base = spares[i].base;

		if (!base || spares[i].bytes != bytes)
			continue;
		spares[i].base = NULL;
		return base;
	}
	return NULL;
}

/* Keep a mapping of @bytes, in place of an older one if there are too many. */
static void spare_keep(uint8_t *base, uint64_t bytes)
{
	static size_t next;
	struct spare *spare = &spares[next++ % (sizeof(spares) / sizeof(*spares))];

	if (spare->base)
		munmap(spare->base, spare->bytes + PAGE);
	*spare = (struct spare){.base = base, .bytes = bytes};
}

/* Map @fd, or private memory if it is -1, with an inaccessible page behind it. */
static uint8_t *map_guarded(int fd, uint64_t bytes)
{
	const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	uint8_t *base = mmap(NULL, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(base, MAP_FAILED);
	assert_ptr_equal(mmap(base, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0), base);
	return base;
}

static uint8_t *map_memfd(uint64_t bytes, int *fdp)
{
	int fd = memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	*fdp = fd;
	return map_guarded(fd, bytes);
}

void rig_arena_init(struct rig *rig, struct exec_arena *arena, uint64_t bytes)
{
	_cleanup_(close_fdp) int fd = -1;
	static ino_t next_ino = 1000;
	uint8_t *base;

	bytes = (bytes + PAGE - 1) / PAGE * PAGE;
	base = rig ? map_memfd(bytes, &fd) : spare_take(bytes);
	if (!base)
		base = map_guarded(-1, bytes);
	memset(base, GUARD, bytes);
	*arena = (struct exec_arena){.base = base, .bytes = bytes, .dev = 2, .ino = next_ino++};
	arena->fd = fd;
	if (rig) {
		rig->executor->ops->arena_wrap(rig->executor, arena);
		rig->executor->ops->arena_import(rig->executor, arena);
	}
	arena->fd = -1;
}

void rig_arena_deinit(struct rig *rig, struct exec_arena *arena)
{
	if (rig)
		rig->executor->ops->arena_release(rig->executor, arena);
	exec_arena_unwrap(arena);
	if (rig)
		munmap(arena->base, arena->bytes + PAGE);
	else
		spare_keep(arena->base, arena->bytes);
}

void *job_binding(struct job *job, unsigned int binding)
{
	return job->refs[binding].arena->base + job->refs[binding].offset;
}

void job_reset(struct job *job)
{
	for (unsigned int i = 0; i < job->want.n; i++) {
		uint8_t *base = job->arenas[i].base;
		uint64_t from = job->refs[i].offset, to = from + job->want.bytes[i];

		memset(base, GUARD, from);
		memset(base + to, GUARD, job->arenas[i].bytes - to);
		memcpy(base + from, job->want.bindings[i], job->want.bytes[i]);
	}
	job->task.res = 1;
	job->task.copied_bytes = UINT64_MAX;
	job->task.transferred_bytes = UINT64_MAX;
	atomic_store(&job->task.state, EXEC_QUEUED);
}

#ifdef __SANITIZE_ADDRESS__
static const bool is_sanitized = true;
#else
static const bool is_sanitized;
#endif

void job_init(struct rig *rig, struct job *job, struct plan *plan, uint32_t count, uint64_t seed)
{
	memset(job, 0, sizeof(*job));
	reference_buffers_init(&job->want, plan, count, seed);
	for (unsigned int i = 0; i < job->want.n; i++) {
		uint64_t bytes = job->want.bytes[i];

		/* A CPU reads tensors of any alignment, but a sanitizer would report it. */
		if (rig || is_sanitized)
			bytes = (bytes + RBK_REF_ALIGN - 1) & ~(RBK_REF_ALIGN - 1ul);
		rig_arena_init(rig, &job->arenas[i], PAGE + bytes);
		job->refs[i].arena = &job->arenas[i];
		job->refs[i].offset = job->arenas[i].bytes - bytes;
	}
	job->task.plan = plan;
	job->task.refs = job->refs;
	job->task.count = count;
	job_reset(job);
}

void job_deinit(struct rig *rig, struct job *job)
{
	for (unsigned int i = 0; i < job->want.n; i++)
		rig_arena_deinit(rig, &job->arenas[i]);
	reference_buffers_deinit(&job->want);
}

/* Return the first of @n bytes that is not GUARD; @n: none. */
static uint64_t first_written(const uint8_t *bytes, uint64_t n)
{
	/* Two equal neighbours each: memcmp() looks at many bytes at once. */
	if (!n || (bytes[0] == GUARD && memcmp(bytes, bytes + 1, n - 1) == 0))
		return n;
	for (uint64_t i = 0; i < n; i++)
		if (bytes[i] != GUARD)
			return i;
	return n;
}

bool job_is_untouched(const struct job *job)
{
	for (unsigned int i = 0; i < job->want.n; i++) {
		const struct exec_arena *arena = &job->arenas[i];
		uint64_t from = job->refs[i].offset, to = from + job->want.bytes[i];
		uint64_t before = first_written(arena->base, from);
		uint64_t behind = first_written(arena->base + to, arena->bytes - to);

		if (before < from || behind < arena->bytes - to) {
			fprintf(stderr, "binding %u: byte %lld from its begin written\n", i,
				before < from ? (long long)before - (long long)from
					      : (long long)(job->want.bytes[i] + behind));
			return false;
		}
		if (!job->task.plan->bindings[i].written &&
		    memcmp(arena->base + from, job->want.bindings[i], job->want.bytes[i]) != 0) {
			fprintf(stderr, "binding %u: an input was written\n", i);
			return false;
		}
	}
	return true;
}

bool job_check(struct job *job, double rtol, double atol)
{
	const struct plan *plan = job->task.plan;
	struct reference_buffers got = job->want, want;
	bool good;

	reference_buffers_copy(&want, &job->want);
	reference_run(plan, job->task.count, want.bindings);
	for (unsigned int i = 0; i < got.n; i++)
		got.bindings[i] = job_binding(job, i);
	good = reference_buffers_close(plan, job->task.count, &got, &want, rtol, atol);
	reference_buffers_deinit(&want);
	return job_is_untouched(job) && good;
}

void rig_submit(struct rig *rig, struct exec_task *task)
{
	assert_int_equal(rig->executor->ops->submit(rig->executor, task), 0);
	rig->executor->ops->flush(rig->executor);
}

struct exec_task *rig_reap(struct rig *rig)
{
	uint64_t deadline_ns = clock_now_ns() + 120ull * 1000 * 1000 * 1000;
	struct exec_task *task = NULL;

	for (;;) {
		struct pollfd pollfd = {.fd = rig->waker.fd, .events = POLLIN};

		waker_arm(&rig->waker);
		if (rig->executor->ops->reap(rig->executor, &task, 1) == 1) {
			waker_disarm(&rig->waker);
			return task;
		}
		poll(&pollfd, 1, 1000);
		waker_disarm(&rig->waker);
		assert_true(clock_now_ns() < deadline_ns);
	}
}

void rig_run(struct rig *rig, struct job *job)
{
	rig_submit(rig, &job->task);
	assert_ptr_equal(rig_reap(rig), &job->task);
}

uint64_t rig_transferred_bytes(const struct rig *rig, const struct exec_task *task)
{
	const struct plan *plan = task->plan;
	uint64_t bytes = 0;

	if (rig->executor->info.kind != EXECUTOR_GPU || rig->executor->info.is_integrated)
		return 0;
	for (uint16_t i = 0; i < plan->n_bindings; i++)
		bytes += tensor_bytes(&plan->tensors[plan->bindings[i].tensor], task->count);
	return bytes;
}

struct exec_block *rig_block_new(struct rig *rig, const struct plan *plan)
{
	struct exec_block *block;

	block = calloc(1, sizeof(*block) + plan->n_constants * sizeof(*block->constants));
	assert_non_null(block);
	block->constants = (struct exec_constant *)(block + 1);
	block->n_constants = plan->n_constants;
	for (uint32_t i = 0; i < plan->n_constants; i++)
		block->constants[i] = (struct exec_constant){
			.arena = plan->constants[i].arena,
			.offset = plan->constants[i].offset,
			.bytes = plan->constants[i].bytes,
		};
	assert_int_equal(exec_block_layout(block, &rig->executor->info), 0);
	return block;
}

int rig_block_load(struct rig *rig, struct exec_block *block)
{
	int r;

	do {
		r = rig->executor->ops->block_load(rig->executor, block);
	} while (r == EXECUTOR_E_MORE);
	return r;
}

int rig_plan_load(struct rig *rig, struct plan *plan, const struct exec_load *load)
{
	int r;

	do
		r = rig->executor->ops->plan_load(rig->executor, plan, load);
	while (r == EXECUTOR_E_MORE);
	if (r == 0) {
		const struct vk_plan *made = plan->exec[RBK_DEVICE_GPU];

		/* The driver has allocated no more than the plan is charged for. */
		assert_in_range(made->command_memory.used_bytes, 1,
				load->n_slots * made->command_memory_bytes);
	}
	return r;
}

int rig_load(struct rig *rig, struct plan *plan, enum exec_tier tier, uint32_t n_slots)
{
	const struct exec_block *blocks[16];
	uint64_t offsets[16];
	const struct exec_load load = {
		.tier = tier, .n_slots = n_slots, .blocks = blocks, .offsets = offsets};
	struct rig_loaded *loaded = rig->loaded;
	struct exec_block *block;
	int r;

	while (loaded->plan)
		loaded++;
	assert_true(loaded < rig->loaded + RIG_MAX_LOADED);
	assert_true(plan->n_constants <= 16);
	block = rig_block_new(rig, plan);
	block->tier = tier;
	for (uint32_t i = 0; i < plan->n_constants; i++) {
		blocks[i] = block;
		offsets[i] = block->constants[i].block_offset;
	}
	r = block->bytes ? rig_block_load(rig, block) : 0;
	if (!r)
		r = rig_plan_load(rig, plan, &load);
	if (r) {
		rig->executor->ops->plan_unload(rig->executor, plan);
		rig->executor->ops->block_unload(rig->executor, block);
		free(block);
		return r;
	}
	*loaded = (struct rig_loaded){plan, block};
	return 0;
}

void rig_unload(struct rig *rig, struct plan *plan)
{
	rig->executor->ops->plan_unload(rig->executor, plan);
	for (unsigned int i = 0; i < RIG_MAX_LOADED; i++)
		if (rig->loaded[i].plan == plan) {
			rig->executor->ops->block_unload(rig->executor, rig->loaded[i].block);
			free(rig->loaded[i].block);
			rig->loaded[i].plan = NULL;
		}
}

void rig_prepare(struct rig *rig, struct plan *plan)
{
	assert_int_equal(rig->executor->ops->plan_prepare(rig->executor, plan), 0);
	assert_int_equal(plan->device_state[RBK_DEVICE_GPU], PLAN_DEVICE_EVICTED);
	assert_int_equal(
		rig_load(rig, plan, EXEC_TIER_VRAM, plan->footprint[RBK_DEVICE_GPU].max_slots), 0);
}

void rig_release(struct rig *rig, struct plan *plan)
{
	rig_unload(rig, plan);
	rig->executor->ops->plan_release(rig->executor, plan);
	assert_null(plan->exec[RBK_DEVICE_GPU]);
	plan_free(plan);
}

struct plan *rig_product_plan(struct exec_arena *arena, uint64_t offset, uint32_t rows,
			      uint32_t cols)
{
	struct describe *d = describe_new("product", RIG_MAX_COUNT);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, rows));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, offset), DESCRIBE_DIMS(rows, cols));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, cols));
	describe_node(d, "MatMul", "", "x,w", "y");
	return reference_plan(d, arena);
}

struct plan *rig_scratch_plan(uint32_t cols)
{
	struct describe *d = describe_new("scratch", RIG_MAX_COUNT);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, cols));
	describe_scratch(d, "twice");
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, cols));
	describe_node(d, "Add", "", "x,x", "twice");
	describe_node(d, "Mul", "", "twice,x", "z");
	return reference_plan(d, NULL);
}
