/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan executor as the dispatcher sees it: accounting, many tasks at once, cancellation, lost
 * devices, the cache on disk. test-vulkan-load.c tests loading.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"
#include "unit/fail-alloc.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

#define N DESCRIBE_COUNT
#define D DESCRIBE_DIMS

enum { GPU = RBK_DEVICE_GPU, MAX = RIG_MAX_COUNT };

TEST(test_plan__unsupported)
{
	struct describe *d = describe_new("large k", 1);
	struct plan *plan;
	struct rig rig;

	describe_input(d, "x", D(1, 1000));
	describe_output(d, "y", D(1, 300));
	describe_inferred(d, "i", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
	describe_node(d, "TopK", "", "x", "y,i");
	describe_attr_int(d, "k", 300);
	plan = reference_plan(d, NULL);
	rig_init(&rig, &(struct vulkan_options){0});
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan),
			 EXECUTOR_E_UNSUPPORTED);
	assert_int_equal(plan->device_state[GPU], PLAN_DEVICE_UNSUPPORTED);
	plan_free(plan);

	/*
	 * A software device refuses a loop with too many iterations instead of computing wrong
	 * results.
	 */
	if (rig.executor->info.kind != EXECUTOR_SOFTWARE_GPU) {
		rig_deinit(&rig);
		return;
	}
	d = describe_new("long", 1);
	describe_input(d, "x", D(1, 1000000));
	describe_input(d, "w", D(1000000, 1));
	describe_output(d, "y", D(1, 1));
	describe_node(d, "MatMul", "", "x,w", "y");
	plan = reference_plan(d, NULL);
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan),
			 EXECUTOR_E_UNSUPPORTED);
	assert_int_equal(plan->device_state[GPU], PLAN_DEVICE_UNSUPPORTED);
	plan_free(plan);
	rig_deinit(&rig);
}

/* More tasks than slots and than a batch; BUSY if the queue is full; no task is lost. */
TEST(test_submit__many)
{
	static struct job jobs[300];
	unsigned int n_done = 0, n_submitted = 0;
	struct plan *plan = rig_scratch_plan(33);
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	rig_prepare(&rig, plan);
	for (unsigned int i = 0; i < 300; i++)
		job_init(&rig, &jobs[i], plan, 1 + i % MAX, i + 1);
	while (rig.executor->ops->submit(rig.executor, &jobs[n_submitted].task) == 0)
		n_submitted++;
	assert_int_equal(n_submitted, 256);
	assert_int_equal(rig.executor->ops->submit(rig.executor, &jobs[n_submitted].task),
			 EXECUTOR_E_BUSY);
	rig.executor->ops->flush(rig.executor);
	for (; n_done < 300; n_done++) {
		struct exec_task *task = rig_reap(&rig);

		assert_ptr_equal(task, &jobs[n_done].task);
		assert_int_equal(task->res, 0);
		assert_true(task->end_ticks >= task->start_ticks);
		assert_int_equal(task->copied_bytes, 0);
		assert_int_equal(task->transferred_bytes, rig_transferred_bytes(&rig, task));
		if (n_submitted < 300)
			rig_submit(&rig, &jobs[n_submitted++].task);
	}
	for (unsigned int i = 0; i < 300; i++) {
		assert_true(job_check(&jobs[i], 1e-6, 1e-6));
		job_deinit(&rig, &jobs[i]);
	}
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/* Wait for @ns. A long wait sleeps, so that other threads run, such as the queue's. */
static void wait_ns(uint64_t ns)
{
	const uint64_t end_ns = clock_now_ns() + ns;

	if (ns > 100000)
		nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
	while (clock_now_ns() < end_ns)
		;
}

/*
 * A task cancelled before it ran completes with -ECANCELED and no output; otherwise it runs. Both
 * must occur. Waits become longer until the task ran first once, however late the queue's thread
 * gets a CPU.
 */
TEST(test_cancel__race)
{
	unsigned int n_cancelled = 0, n_ran = 0;
	uint64_t longest_ns = 25000;
	struct plan *plan = rig_scratch_plan(33);
	struct rig rig;
	struct job job;

	rig_init(&rig, &(struct vulkan_options){0});
	rig_prepare(&rig, plan);
	job_init(&rig, &job, plan, 3, 1);
	for (int i = 0; i < 2000 && (i < 50 || !n_cancelled || !n_ran); i++) {
		uint8_t queued = EXEC_QUEUED;
		bool cancelled;

		job_reset(&job);
		rig_submit(&rig, &job.task);
		wait_ns((uint64_t)(i % 100) * longest_ns / 100);
		cancelled =
			atomic_compare_exchange_strong(&job.task.state, &queued, EXEC_CANCELLED);
		assert_ptr_equal(rig_reap(&rig), &job.task);
		assert_int_equal(job.task.res, cancelled ? -ECANCELED : 0);
		assert_int_equal(job.task.copied_bytes, 0);
		if (cancelled)
			assert_memory_equal(job_binding(&job, 1), job.want.bindings[1],
					    job.want.bytes[1]);
		else
			assert_true(job_check(&job, 1e-6, 1e-6));
		n_cancelled += cancelled;
		n_ran += !cancelled;
		if (i >= 50 && n_ran == 0 && longest_ns < 500000000)
			longest_ns += longest_ns / 8;
	}
	assert_true(n_cancelled > 0);
	assert_true(n_ran > 0);
	job_deinit(&rig, &job);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

struct fault_script {
	_Atomic int submit, wait, open; /* answers, enum vulkan_fault */
	_Atomic int n_waits, n_opens;
};

static enum vulkan_fault fault(void *context, enum vulkan_fault_point point)
{
	struct fault_script *script = context;

	if (point == VULKAN_FAULT_SUBMIT)
		return atomic_load(&script->submit);
	if (point == VULKAN_FAULT_OPEN) {
		atomic_fetch_add(&script->n_opens, 1);
		return atomic_load(&script->open);
	}
	if (point != VULKAN_FAULT_WAIT)
		return VULKAN_FAULT_NONE;
	atomic_fetch_add(&script->n_waits, 1);
	return atomic_load(&script->wait);
}

/* Lose the device: its tasks fail, later tasks fail, and its memory is freed. */
static void lose(bool at_submit)
{
	struct fault_script script = {0};
	struct vulkan_usage usage;
	struct plan *plan = rig_scratch_plan(33), *late = rig_scratch_plan(7);
	struct job jobs[10];
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.fault = fault, .fault_context = &script});
	rig_prepare(&rig, plan);
	for (int i = 0; i < 10; i++)
		job_init(&rig, &jobs[i], plan, 3, 1);
	rig_run(&rig, &jobs[0]);
	assert_int_equal(jobs[0].task.res, 0);
	atomic_store(at_submit ? &script.submit : &script.wait, VULKAN_FAULT_LOST);
	for (int i = 0; i < 10; i++) {
		job_reset(&jobs[i]);
		assert_int_equal(rig.executor->ops->submit(rig.executor, &jobs[i].task), 0);
	}
	rig.executor->ops->flush(rig.executor);
	for (int i = 0; i < 10; i++) {
		assert_ptr_equal(rig_reap(&rig), &jobs[i].task);
		assert_int_equal(jobs[i].task.res, -EIO);
	}
	vulkan_usage(rig.executor, &usage);
	assert_true(usage.lost);
	assert_true(rig.executor->ops->is_lost(rig.executor));
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, late), 0);
	assert_int_equal(rig_load(&rig, late, EXEC_TIER_VRAM, 1), -EIO);
	rig_release(&rig, late);
	for (int i = 0; i < 10; i++)
		job_deinit(&rig, &jobs[i]);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

TEST(test_lost__at_submit)
{
	lose(true);
}

TEST(test_lost__at_wait)
{
	lose(false);
}

/* Lose and reopen the device several times. Plans and arenas prepared before work again. */
static void reopen(uint32_t force)
{
	struct plan *plan, *scratch = rig_scratch_plan(33), *late = rig_scratch_plan(7);
	struct fault_script script = {0};
	struct vulkan_usage usage;
	struct exec_arena arena, registered_late;
	const struct executor_ops *ops;
	struct rig rig;
	struct job job;

	rig_init(&rig, &(struct vulkan_options){
			       .fault = fault, .fault_context = &script, .force = force});
	ops = rig.executor->ops;
	reference_arena_init(&arena, 64 * 64 * 4, 3);
	plan = rig_product_plan(&arena, 0, 64, 64);
	rig_prepare(&rig, plan);
	rig_prepare(&rig, scratch);
	job_init(&rig, &job, plan, 3, 1);
	assert_int_equal(ops->reopen(rig.executor), 0);
	for (int round = 0; round < 6; round++) {
		bool at_submit = round % 2;

		atomic_store(at_submit ? &script.submit : &script.wait, VULKAN_FAULT_LOST);
		job_reset(&job);
		rig_run(&rig, &job);
		assert_int_equal(job.task.res, -EIO);
		assert_true(ops->is_lost(rig.executor));
		if (round == 0)
			assert_int_equal(ops->plan_prepare(rig.executor, late), 0);
		if (round == 3)
			rig_arena_init(&rig, &registered_late, 8192);
		rig_unload(&rig, plan);
		rig_unload(&rig, scratch);
		vulkan_usage(rig.executor, &usage);
		assert_int_equal(usage.device_bytes, 0);
		atomic_store(&script.submit, VULKAN_FAULT_NONE);
		atomic_store(&script.wait, VULKAN_FAULT_NONE);

		/* While the device is away, calls fail without harm. */
		atomic_store(&script.open, VULKAN_FAULT_LOST);
		for (int i = 0; i < round; i++) {
			assert_int_equal(ops->reopen(rig.executor), -EIO);
			assert_true(ops->is_lost(rig.executor));
			assert_int_equal(rig_load(&rig, plan, EXEC_TIER_VRAM, 1), -EIO);
			job_reset(&job);
			rig_run(&rig, &job);
			assert_int_equal(job.task.res, -EIO);
		}
		atomic_store(&script.open, VULKAN_FAULT_NONE);
		assert_int_equal(ops->reopen(rig.executor), 0);
		assert_false(ops->is_lost(rig.executor));

		/* Only the plan that was not loaded again is missing. */
		job_reset(&job);
		rig_run(&rig, &job);
		assert_int_equal(job.task.res, -ENOMEM);
		assert_false(ops->is_lost(rig.executor));
		assert_int_equal(rig_load(&rig, plan, EXEC_TIER_VRAM, 1 + round % 4), 0);
		assert_int_equal(rig_load(&rig, scratch, EXEC_TIER_VRAM, 2), 0);
		job_reset(&job);
		rig_run(&rig, &job);
		assert_int_equal(job.task.res, 0);
		assert_true(job_check(&job, 1e-5, 1e-5));
		assert_true((job.task.copied_bytes == 0) == (force == 0));
	}
	assert_int_equal(rig_load(&rig, late, EXEC_TIER_VRAM, 1), 0);
	rig_arena_deinit(&rig, &registered_late);
	job_deinit(&rig, &job);
	rig_release(&rig, plan);
	rig_release(&rig, scratch);
	rig_release(&rig, late);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

TEST(test_reopen__in_place)
{
	reopen(0);
}

TEST(test_reopen__staged)
{
	reopen(VULKAN_FORCE_STAGED);
}

/* The device is still away when the executor is freed. */
TEST(test_reopen__never)
{
	struct fault_script script = {0};
	struct plan *plan = rig_scratch_plan(33);
	struct rig rig;
	struct job job;

	rig_init(&rig, &(struct vulkan_options){.fault = fault, .fault_context = &script});
	rig_prepare(&rig, plan);
	job_init(&rig, &job, plan, 3, 1);
	atomic_store(&script.submit, VULKAN_FAULT_LOST);
	rig_run(&rig, &job);
	rig_unload(&rig, plan);
	atomic_store(&script.open, VULKAN_FAULT_LOST);
	assert_int_equal(rig.executor->ops->reopen(rig.executor), -EIO);
	job_deinit(&rig, &job);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/* A device that cannot be opened has no executor. */
TEST(test_open__fails)
{
	struct fault_script script = {.open = VULKAN_FAULT_LOST};
	const struct vulkan_options options = {
		.mode = rig_mode(), .fault = fault, .fault_context = &script};
	struct vulkan *vulkan;
	struct waker waker;

	assert_int_equal(waker_init(&waker), 0);
	assert_int_equal(vulkan_open(&options, &waker, &vulkan), 0);
	assert_int_equal(atomic_load(&script.n_opens), 1);
	assert_int_equal(vulkan_n_executors(vulkan), 0);
	assert_non_null(strstr(vulkan_sentence(vulkan, 0), "cannot be opened"));
	vulkan_free(vulkan);
	waker_deinit(&waker);
}

/* After a timeout no task completes before the device has finished with it. */
TEST(test_lost__timeout)
{
	struct fault_script script = {0};
	struct plan *plan = rig_scratch_plan(33);
	struct exec_task *none;
	struct vulkan_usage usage;
	struct job job, meanwhile, later;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.fault = fault, .fault_context = &script});
	rig_prepare(&rig, plan);
	job_init(&rig, &job, plan, 3, 1);
	job_init(&rig, &meanwhile, plan, 3, 1);
	job_init(&rig, &later, plan, 3, 1);
	atomic_store(&script.n_waits, 0);
	atomic_store(&script.wait, VULKAN_FAULT_TIMEOUT);
	rig_submit(&rig, &job.task);
	while (atomic_load(&script.n_waits) < 3)
		usleep(100);
	assert_int_equal(rig.executor->ops->reap(rig.executor, &none, 1), 0);
	vulkan_usage(rig.executor, &usage);
	assert_true(usage.lost);
	/* A later task fails at once, without waiting for the hanging one. */
	rig_run(&rig, &meanwhile);
	assert_int_equal(meanwhile.task.res, -EIO);

	/* The hanging task completes in the end, with its result. The device stays lost. */
	atomic_store(&script.wait, VULKAN_FAULT_NONE);
	assert_ptr_equal(rig_reap(&rig), &job.task);
	assert_int_equal(job.task.res, 0);
	assert_true(job_check(&job, 1e-6, 1e-6));
	rig_run(&rig, &later);
	assert_int_equal(later.task.res, -EIO);
	job_deinit(&rig, &job);
	job_deinit(&rig, &meanwhile);
	job_deinit(&rig, &later);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/* An arena that cannot be imported: -EXDEV for plans without staging; later plans stage it. */
TEST(test_arena__refused)
{
	struct plan *before = rig_scratch_plan(33), *after = rig_scratch_plan(33);
	struct exec_arena odd;
	struct rig rig;
	struct job job;

	rig_init(&rig, &(struct vulkan_options){0});
	rig_prepare(&rig, before);
	job_init(&rig, &job, before, 3, 1);
	rig_run(&rig, &job);
	assert_int_equal(job.task.res, 0);

	/* The arena is not aligned to a page. */
	odd = job.arenas[0];
	odd.base += 64;
	odd.bytes -= 64;
	odd.import[GPU] = NULL;
	rig.executor->ops->arena_import(rig.executor, &odd);
	assert_null(odd.import[GPU]);
	job.refs[0].arena = &odd;
	job.refs[0].offset -= 64;
	atomic_store(&job.task.state, EXEC_QUEUED);
	rig_run(&rig, &job);
	assert_int_equal(job.task.res, -EXDEV);
	assert_false(rig.executor->ops->is_lost(rig.executor));
	rig_prepare(&rig, after);
	job.task.plan = after;
	atomic_store(&job.task.state, EXEC_QUEUED);
	rig_run(&rig, &job);
	assert_int_equal(job.task.res, 0);
	assert_int_equal(job.task.copied_bytes, job.want.bytes[0]);
	job.refs[0].arena = &job.arenas[0];
	job.refs[0].offset += 64;
	assert_true(job_check(&job, 1e-6, 1e-6));
	rig.executor->ops->arena_release(rig.executor, &odd);
	job_deinit(&rig, &job);
	rig_release(&rig, before);
	rig_release(&rig, after);
	rig_deinit(&rig);
}

static void run_once(const struct vulkan_options *options)
{
	struct plan *plan = rig_scratch_plan(33);
	struct rig rig;
	struct job job;

	rig_init(&rig, options);
	rig_prepare(&rig, plan);
	job_init(&rig, &job, plan, 3, 1);
	rig_run(&rig, &job);
	assert_int_equal(job.task.res, 0);
	assert_true(job_check(&job, 1e-6, 1e-6));
	job_deinit(&rig, &job);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/* The cache on disk is written as a whole. Damaged, truncated and foreign caches are replaced. */
TEST(test_cache__damaged)
{
	char dir[] = "/tmp/test-vulkan-cache-XXXXXX", pattern[64], *path;
	struct vulkan_options options = {.cache_dir = dir};
	struct stat st;
	glob_t found;
	int fd;

	assert_non_null(mkdtemp(dir));
	run_once(&options);
	snprintf(pattern, sizeof(pattern), "%s/*", dir);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_int_equal(found.gl_pathc, 1);
	path = found.gl_pathv[0];
	assert_non_null(strstr(path, "/vulkan-"));
	assert_int_equal(stat(path, &st), 0);
	run_once(&options);

	for (int damage = 0; damage < 4; damage++) {
		struct stat after;

		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		switch (damage) {
		case 0:
			assert_int_equal(pwrite(fd, "\xff\xff", 2, st.st_size - 3), 2);
			break;
		case 1:
			assert_int_equal(ftruncate(fd, st.st_size / 2), 0);
			break;
		case 2:
			assert_int_equal(ftruncate(fd, 0), 0);
			break;
		case 3:
			assert_int_equal(pwrite(fd, "other", 5, 0), 5);
			break;
		}
		close(fd);
		run_once(&options);
		assert_int_equal(stat(path, &after), 0);
		assert_int_equal(after.st_size, st.st_size);
	}
	assert_int_equal(unlink(path), 0);
	globfree(&found);
	assert_int_equal(rmdir(dir), 0);

	/* Without a writable folder there is no cache, but no failure either. */
	options.cache_dir = "/proc/self/no-such-folder";
	run_once(&options);
}

TEST(test_open__failing_allocations)
{
	const struct vulkan_options options = {.mode = rig_mode(), .cache_dir = "/proc/self"};
	struct vulkan *vulkan;
	struct waker waker;
	unsigned int n;
	int r;

	assert_int_equal(waker_init(&waker), 0);
	for (n = 1;; n++) {
		vulkan = NULL;
		fail_alloc_at(n);
		r = vulkan_open(&options, &waker, &vulkan);
		if (!fail_alloc_stop())
			break;
		/* A failed search for extensions may go unreported: then arenas are staged. */
		assert_true(r == -ENOMEM || r == 0);
		vulkan_free(vulkan);
	}
	assert_int_equal(r, 0);
	assert_int_equal(vulkan_n_executors(vulkan), 1);
	assert_true(n > 5);
	vulkan_free(vulkan);
	waker_deinit(&waker);
}

struct preparer {
	struct rig *rig;
	struct exec_arena *arena;
	_Atomic bool stop;
	unsigned int n;
};

static void *prepare_and_release(void *argument)
{
	struct preparer *preparer = argument;
	struct rig *rig = preparer->rig;

	while (!atomic_load(&preparer->stop) || preparer->n < 3) {
		struct plan *plan = rig_product_plan(preparer->arena, 0, 32, 64);
		struct exec_arena arena;

		rig_prepare(rig, plan);
		rig_arena_init(rig, &arena, 10000);
		rig_release(rig, plan);
		rig_arena_deinit(rig, &arena);
		preparer->n++;
	}
	return NULL;
}

/* Setup functions run concurrently with tasks. */
TEST(test_prepare__beside_tasks)
{
	struct plan *plan = rig_scratch_plan(333);
	struct preparer preparer = {0};
	struct exec_arena arena;
	pthread_t thread;
	struct rig rig;
	struct job job;

	rig_init(&rig, &(struct vulkan_options){.force = VULKAN_FORCE_STAGED});
	reference_arena_init(&arena, 64 * 64 * 4, 3);
	rig_prepare(&rig, plan);
	job_init(&rig, &job, plan, 3, 1);
	preparer.rig = &rig;
	preparer.arena = &arena;
	assert_int_equal(pthread_create(&thread, NULL, prepare_and_release, &preparer), 0);
	for (int i = 0; i < 200; i++) {
		job_reset(&job);
		job.task.count = 1 + i % 3;
		rig_run(&rig, &job);
		assert_int_equal(job.task.res, 0);
	}
	atomic_store(&preparer.stop, true);
	pthread_join(thread, NULL);
	job.task.count = 3;
	job_reset(&job);
	rig_run(&rig, &job);
	assert_true(job_check(&job, 1e-6, 1e-6));
	job_deinit(&rig, &job);
	rig_release(&rig, plan);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* A missing device is reported. A software device is used only on request. */
TEST(test_open__modes)
{
	struct vulkan_options options = {.mode = VULKAN_NONE};
	struct vulkan *vulkan;
	struct waker waker;

	assert_int_equal(waker_init(&waker), 0);
	assert_int_equal(vulkan_open(&options, &waker, &vulkan), 0);
	assert_int_equal(vulkan_n_executors(vulkan), 0);
	assert_int_equal(vulkan_n_sentences(vulkan), 1);
	assert_null(vulkan_executor(vulkan, 0));
	assert_null(vulkan_sentence(vulkan, 1));
	assert_null(vulkan_free(vulkan));

	options.mode = VULKAN_AUTO;
	assert_int_equal(vulkan_open(&options, &waker, &vulkan), 0);
	for (unsigned int i = 0; i < vulkan_n_executors(vulkan); i++)
		assert_int_equal(vulkan_executor(vulkan, i)->info.kind, EXECUTOR_GPU);
	if (vulkan_n_executors(vulkan) == 0)
		assert_non_null(strstr(vulkan_sentence(vulkan, 0), "--gpu=software"));
	vulkan_free(vulkan);

	options.mode = rig_mode();
	options.force = VULKAN_FORCE_STAGED;
	assert_int_equal(vulkan_open(&options, &waker, &vulkan), 0);
	assert_int_equal(vulkan_executor(vulkan, 0)->info.kind,
			 options.mode == VULKAN_SOFTWARE ? EXECUTOR_SOFTWARE_GPU : EXECUTOR_GPU);
	assert_string_equal(vulkan_executor(vulkan, 0)->info.paths, "staged");
	assert_null(vulkan_executor(vulkan, 0)->ops->run_inline);
	assert_true(vulkan_n_sentences(vulkan) > 0);
	vulkan_free(vulkan);
	waker_deinit(&waker);
}

struct loaded {
	char names[512][256];
	unsigned int n;
};

static int note_loaded(struct dl_phdr_info *info, size_t size, void *data)
{
	struct loaded *loaded = data;

	if (info->dlpi_name && info->dlpi_name[0] == '/' &&
	    loaded->n < sizeof(loaded->names) / sizeof(loaded->names[0]))
		snprintf(loaded->names[loaded->n++], sizeof(loaded->names[0]), "%s",
			 info->dlpi_name);
	return 0;
}

/* A driver of several libraries breaks if only some are unloaded, so all stay loaded. */
TEST(test_open__keeps_libraries)
{
	static struct loaded loaded;
	void *library;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	dl_iterate_phdr(note_loaded, &loaded);
	assert_true(loaded.n > 3);
	rig_deinit(&rig);
	for (unsigned int i = 0; i < loaded.n; i++) {
		library = dlopen(loaded.names[i], RTLD_NOW | RTLD_NOLOAD);
		if (!library)
			fail_msg("%s was unloaded", loaded.names[i]);
		dlclose(library);
	}
}

int main(void)
{
	return rig_main();
}
