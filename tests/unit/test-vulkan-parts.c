/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan executor: plans in parts, urgent tasks, small tasks in one submission, and tasks over
 * ranges of rows
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"
#include "vulkan/record-private.h"

#define N DESCRIBE_COUNT
#define D DESCRIBE_DIMS

enum { GPU = RBK_DEVICE_GPU };

/*
 * Run all parts of a job, starting with @part.
 * Return: the last part's result.
 */
static int run_parts(struct rig *rig, struct job *job, unsigned int part)
{
	const unsigned int n = job->task.plan->n_parts[GPU];

	for (; part < n; part++) {
		job->task.part = (uint16_t)part;
		rig_run(rig, job);
		if (job->task.res)
			return job->task.res;
		assert_true(job->task.end_ticks >= job->task.start_ticks);
	}
	return 0;
}

static struct plan *fixed_plan(unsigned int which)
{
	struct describe *d = describe_new("fixed", which == 6 ? RIG_MAX_COUNT : 1);

	switch (which) {
	case 0:
		describe_input(d, "x", D(90, 70));
		describe_input(d, "w", D(70, 150));
		describe_scratch(d, "xw");
		describe_scratch(d, "positive");
		describe_scratch(d, "soft");
		describe_inferred(d, "turned", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_inferred(d, "sum", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "MatMul", "", "x,w", "xw");
		describe_node(d, "Relu", "", "xw", "positive");
		describe_node(d, "Softmax", "", "positive", "soft");
		describe_node(d, "Transpose", "", "soft", "turned");
		describe_node(d, "ReduceSum", "", "xw", "sum");
		describe_attr_ints(d, "axes", DESCRIBE_INTS(0));
		break;
	case 1:
		describe_input(d, "x", D(7, 70, 30));
		describe_input(d, "w", D(7, 30, 40));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "MatMul", "", "x,w", "y");
		break;
	case 2:
		describe_input(d, "x", D(3, 8, 20, 20));
		describe_input(d, "w", D(16, 8, 3, 3));
		describe_scratch(d, "c");
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "Conv", "", "x,w", "c");
		describe_node(d, "MaxPool", "", "c", "y");
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2, 2));
		break;
	case 3:
		/* In place: a workgroup that ran twice would be visible. */
		describe_input(d, "x", D(33000));
		describe_state(d, "s", D(33000));
		describe_node(d, "Add", "", "s,x", "s");
		break;
	case 4:
		describe_input(d, "x", D(40, 500));
		describe_output(d, "v", D(40, 5));
		describe_inferred(d, "i", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
		describe_node(d, "TopK", "", "x", "v,i");
		describe_attr_int(d, "k", 5);
		break;
	case 5:
		describe_input(d, "a", D(60, 90));
		describe_input(d, "b", D(60, 130));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "Gemm", "", "a,b", "y");
		describe_attr_int(d, "transA", 1);
		break;
	case 6:
		/* Softmax over rows: a task cannot be split by rows, but may have fewer. */
		describe_input(d, "x", D(N, 3000));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "Softmax", "", "x", "y");
		describe_attr_int(d, "axis", 0);
		break;
	default:
		describe_free(d);
		return NULL;
	}
	return reference_plan(d, NULL);
}

static void check_same(uint32_t force)
{
	struct plan *whole, *cut;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (unsigned int which = 0; (whole = fixed_plan(which)); which++) {
		const uint32_t least = which == 6 ? 3 : 1;

		cut = fixed_plan(which);
		rig_prepare(&rig, whole);
		assert_int_equal(whole->n_parts[GPU], 1);
		rig.executor->part_bytes = 20000;
		rig.executor->part_flops = 100000;
		rig_prepare(&rig, cut);
		rig.executor->part_bytes = 0;
		rig.executor->part_flops = 0;
		assert_true(cut->n_parts[GPU] > 2);
		for (uint32_t count = cut->max_count; count >= least; count = count / 2) {
			struct job one, many;

			job_init(&rig, &one, whole, count, which + 1);
			job_init(&rig, &many, cut, count, which + 1);
			rig_run(&rig, &one);
			assert_int_equal(one.task.res, 0);
			assert_true(job_check(&one, 1e-4, 1e-4));
			for (int again = 0; again < 2; again++) {
				job_reset(&many);
				assert_int_equal(run_parts(&rig, &many, 0), 0);
				assert_true(job_check(&many, 1e-4, 1e-4));
				for (unsigned int i = 0; i < many.want.n; i++)
					assert_memory_equal(job_binding(&many, i),
							    job_binding(&one, i),
							    many.want.bytes[i]);
			}
			job_deinit(&rig, &one);
			job_deinit(&rig, &many);
			if (count == 1)
				break;
		}
		rig_release(&rig, whole);
		rig_release(&rig, cut);
	}
	rig_deinit(&rig);
}

TEST(test_parts__same_bits)
{
	check_same(VULKAN_FORCE_PLAIN);
}

TEST(test_parts__same_bits_shared)
{
	check_same(VULKAN_FORCE_SHARED);
}

TEST(test_parts__same_bits_copied)
{
	check_same(VULKAN_FORCE_STAGED | VULKAN_FORCE_UPLOAD);
}

/* If rows can be split, the dispatcher splits them, and the executor makes no parts. */
TEST(test_parts__not_by_rows)
{
	struct plan *plan = rig_scratch_plan(333);
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	rig.executor->part_bytes = 100;
	plan->row_grain = 1;
	rig_prepare(&rig, plan);
	assert_int_equal(plan->n_parts[GPU], 1);
	rig_release(&rig, plan);
	/* Rows are not split below a grain. */
	plan = rig_scratch_plan(333);
	plan->row_grain = 16;
	rig_prepare(&rig, plan);
	assert_true(plan->n_parts[GPU] > 1);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/* Prepare a plan in parts, and load it with one slot. */
static struct plan *one_slot_plan(struct rig *rig, unsigned int which)
{
	struct plan *plan = fixed_plan(which);

	rig->executor->part_bytes = 20000;
	assert_int_equal(rig->executor->ops->plan_prepare(rig->executor, plan), 0);
	rig->executor->part_bytes = 0;
	assert_true(plan->n_parts[GPU] > 2);
	assert_int_equal(rig_load(rig, plan, EXEC_TIER_VRAM, 1), 0);
	return plan;
}

/* Eight tasks share one slot: its holder continues, and waiting tasks block no other plan. */
TEST(test_parts__one_slot)
{
	struct plan *plan, *small = rig_scratch_plan(33);
	unsigned int n_done = 0, n_jobs = 0, small_at = 8;
	struct job jobs[8], other;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	plan = one_slot_plan(&rig, 0);
	rig_prepare(&rig, small);
	for (unsigned int i = 0; i < 8; i++) {
		job_init(&rig, &jobs[i], plan, 1, i + 1);
		rig_submit(&rig, &jobs[i].task);
	}
	job_init(&rig, &other, small, 3, 1);
	rig_submit(&rig, &other.task);
	while (n_done < 9) {
		struct exec_task *task = rig_reap(&rig);

		assert_int_equal(task->res, 0);
		if (task == &other.task) {
			small_at = n_jobs;
			n_done++;
			continue;
		}
		/* Tasks complete in order, since there is one slot. */
		assert_ptr_equal(task, &jobs[n_jobs].task);
		if (task->part + 1u < plan->n_parts[GPU]) {
			task->part++;
			rig_submit(&rig, task);
		} else {
			n_jobs++;
			n_done++;
		}
	}
	/* The small task did not wait behind tasks without a slot. */
	assert_int_equal(small_at, 0);
	for (unsigned int i = 0; i < 8; i++) {
		assert_true(job_check(&jobs[i], 1e-4, 1e-4));
		job_deinit(&rig, &jobs[i]);
	}
	assert_true(job_check(&other, 1e-6, 1e-6));
	job_deinit(&rig, &other);
	rig_release(&rig, plan);
	rig_release(&rig, small);
	rig_deinit(&rig);
}

/* All tasks wait while one has the only slot; then urgent tasks come first. */
TEST(test_urgent__overtakes)
{
	static const unsigned int order[] = {2, 4, 0, 1, 3, 5};
	struct job first, jobs[6];
	struct plan *plan;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	plan = one_slot_plan(&rig, 1);
	job_init(&rig, &first, plan, 1, 9);
	rig_run(&rig, &first);
	assert_int_equal(first.task.res, 0);
	for (unsigned int i = 0; i < 6; i++) {
		job_init(&rig, &jobs[i], plan, 1, i + 1);
		jobs[i].task.is_urgent = i == 2 || i == 4;
		rig_submit(&rig, &jobs[i].task);
	}
	assert_int_equal(run_parts(&rig, &first, 1), 0);
	for (unsigned int i = 0; i < 6; i++) {
		struct job *job = &jobs[order[i]];

		assert_ptr_equal(rig_reap(&rig), &job->task);
		assert_int_equal(run_parts(&rig, job, 1), 0);
		assert_true(job_check(job, 1e-4, 1e-4));
	}
	for (unsigned int i = 0; i < 6; i++)
		job_deinit(&rig, &jobs[i]);
	job_deinit(&rig, &first);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

struct fault_script {
	_Atomic int wait;
	_Atomic int n_waits;
};

static enum vulkan_fault fault(void *context, enum vulkan_fault_point point)
{
	struct fault_script *script = context;

	if (point != VULKAN_FAULT_WAIT)
		return VULKAN_FAULT_NONE;
	atomic_fetch_add(&script->n_waits, 1);
	return atomic_load(&script->wait);
}

/* The device is lost before and while a part runs: the task fails, and its slot is free again. */
TEST(test_parts__lost)
{
	struct fault_script script = {0};
	const struct executor_ops *ops;
	struct job job, other;
	struct plan *plan;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.fault = fault, .fault_context = &script});
	ops = rig.executor->ops;
	plan = one_slot_plan(&rig, 0);
	job_init(&rig, &job, plan, 1, 1);
	job_init(&rig, &other, plan, 1, 2);
	for (unsigned int how = 0; how < 2; how++) {
		job_reset(&job);
		job.task.part = 0;
		rig_run(&rig, &job);
		assert_int_equal(job.task.res, 0);
		/* This task waits for the slot. */
		job_reset(&other);
		other.task.part = 0;
		rig_submit(&rig, &other.task);
		job.task.part = 1;
		if (how == 0)
			ops->lose(rig.executor, "a test says so");
		else
			atomic_store(&script.wait, VULKAN_FAULT_LOST);
		/* Both tasks fail, in any order. */
		rig_submit(&rig, &job.task);
		rig_reap(&rig);
		rig_reap(&rig);
		assert_int_equal(job.task.res, -EIO);
		assert_int_equal(other.task.res, -EIO);
		rig_unload(&rig, plan);
		atomic_store(&script.wait, VULKAN_FAULT_NONE);
		assert_int_equal(ops->reopen(rig.executor), 0);
		assert_int_equal(rig_load(&rig, plan, EXEC_TIER_VRAM, 1), 0);
		/* The task's slot and its contents are lost. */
		job.task.part = 1;
		rig_run(&rig, &job);
		assert_int_equal(job.task.res, -EIO);
		job_reset(&job);
		assert_int_equal(run_parts(&rig, &job, 0), 0);
		assert_true(job_check(&job, 1e-4, 1e-4));
	}

	/* The device is lost and the plan unloaded between two parts. */
	job_reset(&job);
	job.task.part = 0;
	rig_run(&rig, &job);
	ops->lose(rig.executor, "a test says so");
	rig_unload(&rig, plan);
	assert_int_equal(ops->reopen(rig.executor), 0);
	job.task.part = 1;
	rig_run(&rig, &job);
	assert_int_equal(job.task.res, -EIO);
	job_deinit(&rig, &job);
	job_deinit(&rig, &other);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

enum { SHARED_JOBS = 24, SHARED_TRIES = 300 };
/* A fraction of a microsecond for each of these tasks */
#define SHORT_TICKS_PER_WORK 0.05f

/*
 * Small tasks share submissions: there are fewer waits than tasks. On a busy machine a task of the
 * software device takes too long for that, so the plan forgets what it has learned. Each task's
 * time is its share, so the sum does not exceed the elapsed time. If a submission fails, all its
 * tasks fail.
 */
TEST(test_shared__submissions)
{
	struct plan *plan = rig_scratch_plan(33);
	struct fault_script script = {0};
	static struct job jobs[SHARED_JOBS];
	bool was_shared = false;
	_Atomic float *learned;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.fault = fault, .fault_context = &script});
	rig_prepare(&rig, plan);
	assert_true(plan->footprint[GPU].max_slots >= SHARED_JOBS);
	for (unsigned int i = 0; i < SHARED_JOBS; i++)
		job_init(&rig, &jobs[i], plan, 1 + i % RIG_MAX_COUNT, i + 1);
	learned = &((struct vk_plan *)plan->exec[GPU])->ticks_per_work;
	for (unsigned int try = 0; try < SHARED_TRIES && !was_shared; try++) {
		const int n_waits = atomic_load(&script.n_waits);
		const uint64_t since = clock_ticks();
		uint64_t all = 0;

		for (unsigned int i = 0; i < SHARED_JOBS; i++) {
			job_reset(&jobs[i]);
			assert_int_equal(rig.executor->ops->submit(rig.executor, &jobs[i].task), 0);
		}
		rig.executor->ops->flush(rig.executor);
		for (unsigned int i = 0; i < SHARED_JOBS; i++) {
			assert_ptr_equal(rig_reap(&rig), &jobs[i].task);
			assert_int_equal(jobs[i].task.res, 0);
			assert_int_equal(jobs[i].task.busy_ticks, 0);
			assert_true(jobs[i].task.start_ticks >= since);
			all += jobs[i].task.end_ticks - jobs[i].task.start_ticks;
		}
		assert_true(all <= clock_ticks() - since);
		for (unsigned int i = 0; i < SHARED_JOBS; i++)
			assert_true(job_check(&jobs[i], 1e-6, 1e-6));
		was_shared = atomic_load(&script.n_waits) - n_waits < SHARED_JOBS;
		assert_true(atomic_load(learned) > 0);
		atomic_store(learned, SHORT_TICKS_PER_WORK);
	}
	assert_true(was_shared);

	atomic_store(&script.wait, VULKAN_FAULT_LOST);
	for (unsigned int i = 0; i < SHARED_JOBS; i++) {
		job_reset(&jobs[i]);
		assert_int_equal(rig.executor->ops->submit(rig.executor, &jobs[i].task), 0);
	}
	rig.executor->ops->flush(rig.executor);
	for (unsigned int i = 0; i < SHARED_JOBS; i++) {
		assert_ptr_equal(rig_reap(&rig), &jobs[i].task);
		assert_int_equal(jobs[i].task.res, -EIO);
	}
	for (unsigned int i = 0; i < SHARED_JOBS; i++)
		job_deinit(&rig, &jobs[i]);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

/*
 * Run one task's rows as many concurrent tasks over the same arenas at other offsets. Results are
 * identical, and each task copies only its own rows.
 */
static void check_rows(uint32_t force)
{
	enum { ROWS = 96, CHUNK = 7, ROW_BYTES = 16 * sizeof(float) };
	struct describe *d = describe_new("rows", ROWS);
	struct exec_task tasks[ROWS / CHUNK + 1];
	struct exec_ref refs[ROWS / CHUNK + 1][2];
	uint64_t copied = 0, bytes = 2 * ROWS * ROW_BYTES;
	unsigned int n = 0;
	struct job whole, split;
	struct plan *plan;
	struct rig rig;

	describe_input(d, "x", D(N, 16));
	describe_scratch(d, "soft");
	describe_output(d, "y", D(N, 16));
	describe_node(d, "Softmax", "", "x", "soft");
	describe_node(d, "Add", "", "soft,x", "y");
	plan = reference_plan(d, NULL);
	rig_init(&rig, &(struct vulkan_options){.force = force});
	rig_prepare(&rig, plan);
	job_init(&rig, &whole, plan, ROWS, 5);
	job_init(&rig, &split, plan, ROWS, 5);
	rig_run(&rig, &whole);
	assert_int_equal(whole.task.res, 0);
	assert_int_equal(whole.task.copied_bytes, force & VULKAN_FORCE_STAGED ? bytes : 0);
	for (uint32_t row = 0; row < ROWS; row += CHUNK, n++) {
		tasks[n] = (struct exec_task){
			.plan = plan,
			.refs = refs[n],
			.count = row + CHUNK <= ROWS ? CHUNK : ROWS - row,
			.state = EXEC_QUEUED,
		};
		for (unsigned int i = 0; i < 2; i++)
			refs[n][i] = (struct exec_ref){
				split.refs[i].arena,
				split.refs[i].offset + (uint64_t)row * ROW_BYTES,
			};
		assert_int_equal(rig.executor->ops->submit(rig.executor, &tasks[n]), 0);
	}
	rig.executor->ops->flush(rig.executor);
	for (unsigned int i = 0; i < n; i++) {
		struct exec_task *task = rig_reap(&rig);

		assert_int_equal(task->res, 0);
		copied += task->copied_bytes;
	}
	assert_int_equal(copied, whole.task.copied_bytes);
	assert_true(job_check(&split, 1e-5, 1e-5));
	assert_memory_equal(job_binding(&split, 1), job_binding(&whole, 1), split.want.bytes[1]);
	job_deinit(&rig, &whole);
	job_deinit(&rig, &split);
	rig_release(&rig, plan);
	rig_deinit(&rig);
}

TEST(test_rows__in_place)
{
	check_rows(0);
}

TEST(test_rows__staged)
{
	check_rows(VULKAN_FORCE_STAGED);
}

TEST(test_rows__copied_by_the_device)
{
	check_rows(VULKAN_FORCE_UPLOAD);
}

TEST(test_rows__staged_and_copied)
{
	check_rows(VULKAN_FORCE_STAGED | VULKAN_FORCE_UPLOAD);
}

int main(void)
{
	return rig_main();
}
