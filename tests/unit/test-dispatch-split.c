/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher and tasks of several submissions: long tasks cut by rows, plans in parts, and
 * tasks split over two devices; and every event that can end such a task in the middle.
 */
#include <string.h>

#include <errno.h>

#include "support/test.h"
#include "unit/dispatch-bench.h"

enum {
	WIDE = 16, /* floats of a row: 64 bytes, so any row can begin a submission */
	MAX_ROWS = 4096,
	ARENA_BYTES = 2 * MAX_ROWS * WIDE * 4,
	Y_OFFSET = MAX_ROWS * WIDE * 4,
	MAX_SUBMISSION_NS = 100000,
};

#define ALL_FEATURES \
	(RBK_FEAT_RESIDENCY | RBK_FEAT_PARTITION | RBK_FEAT_PRIORITY | RBK_FEAT_STRATEGIES)

struct kit {
	struct bench bench;
	struct session_arena *arena;
	struct session_plan *plan;
	struct fake *cpu, *gpu;
	uint8_t rows[MAX_ROWS]; /* times that each row was computed */
};

/* Each row takes a device 1 us; submissions take up to 0.1 ms. */
static void kit_begin(struct kit *kit, uint32_t n_devices, uint32_t n_entries)
{
	const struct bench_speed speeds[RIG_MAX_DEVICES] = {
		{.bytes_per_ns = 0.128f}, {.bytes_per_ns = 0.128f}, {.bytes_per_ns = 0.128f}};
	struct place_config config = PLACE_CONFIG_DEFAULT;

	memset(kit, 0, sizeof(*kit));
	config.submission_max_ns = MAX_SUBMISSION_NS;
	bench_begin_placement(&kit->bench, n_devices, n_entries, &config, speeds);
	kit->bench.rig.session->features = ALL_FEATURES;
	kit->arena = rig_arena_new(&kit->bench.rig, ARENA_BYTES, false);
	kit->plan = bench_relu(&kit->bench, WIDE, MAX_ROWS);
	kit->cpu = kit->bench.cpu;
	kit->gpu = kit->bench.gpu;
	kit->cpu->row_ns = kit->gpu->row_ns = 1000;
}

static void put(struct kit *kit, uint32_t count, uint64_t user_data, uint8_t strategy)
{
	struct rbk_sqe sqe = bench_entry(kit->plan, kit->arena, Y_OFFSET, count, user_data);

	sqe.strategy = strategy;
	rig_put(&kit->bench.ring, &sqe);
}

/* Return the first row of @fake's oldest submission, by its references, which must agree. */
static uint32_t first_row(const struct kit *kit, const struct fake *fake, uint32_t width)
{
	const struct exec_task *task = fake->tasks[0];
	uint64_t row_bytes = width * 4ull;

	assert_true(fake->n_tasks > 0);
	assert_ptr_equal(task->refs[0].arena, &kit->arena->exec);
	assert_int_equal(task->refs[0].offset % row_bytes, 0);
	assert_int_equal(task->refs[0].offset % RBK_REF_ALIGN, 0);
	assert_int_equal(task->refs[1].offset, task->refs[0].offset + Y_OFFSET);
	return (uint32_t)(task->refs[0].offset / row_bytes);
}

/* Complete the oldest submission of @fake. */
static void step(struct kit *kit, struct fake *fake, int res)
{
	uint32_t first = first_row(kit, fake, WIDE), count = fake->tasks[0]->count;

	assert_in_range(first + count, 1, MAX_ROWS);
	for (uint32_t i = first; i < first + count && res == 0; i++)
		kit->rows[i]++;
	finish(&kit->bench, fake, fake_user_data(fake->tasks[0]), res);
}

static void expect_rows_once(struct kit *kit, uint32_t count)
{
	for (uint32_t i = 0; i < MAX_ROWS; i++)
		assert_int_equal(kit->rows[i], i < count);
	memset(kit->rows, 0, sizeof(kit->rows));
}

static struct rbk_cqe expect_done(struct kit *kit, uint64_t user_data, int res, uint8_t device,
				  uint8_t reason, uint16_t flags)
{
	struct rbk_cqe cqe = expect_cqe(&kit->bench, user_data, res);

	assert_fields(cqe, (device, device), (reason, reason), (flags, flags));
	return cqe;
}

static void expect_idle(const struct kit *kit)
{
	assert_fields(*kit, (bench.rig.dispatch->n_queued, 0), (bench.rig.dispatch->n_submitted, 0),
		      (plan->n_in_flight, 0));
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		assert_int_equal(kit->plan->memory.n_on_device[i], 0);
	assert_int_equal(kit->arena->n_in_flight, 0);
}

/* --- Long tasks --- */

static void run_rows(struct kit *kit, uint32_t width, uint32_t count)
{
	struct session_plan *plan = bench_relu(&kit->bench, width, MAX_ROWS);
	uint32_t grain = plan->plan->row_grain, next = 0, n_submissions = 0, n;
	struct rbk_sqe sqe = bench_entry(plan, kit->arena, Y_OFFSET, count, 7);
	struct rbk_cqe cqe;

	sqe.strategy = RBK_STRATEGY_ONLY_GPU;
	rig_put(&kit->bench.ring, &sqe);
	rig_work(&kit->bench.rig);
	while (kit->gpu->n_tasks > 0) {
		assert_int_equal(kit->gpu->n_tasks, 1);
		assert_int_equal(first_row(kit, kit->gpu, width), next);
		n = kit->gpu->tasks[0]->count;
		assert_int_equal(kit->gpu->tasks[0]->part, 0);
		assert_true(n % grain == 0 || next + n == count);
		/* As predicted, or the minimum. */
		assert_true(n <= grain || n * width <= 100 * WIDE + WIDE);
		next += n;
		n_submissions++;
		expect_none(&kit->bench);
		kit->gpu->row_ns = 1000 * width / WIDE + 1;
		finish(&kit->bench, kit->gpu, 7, 0);
	}
	assert_int_equal(next, count);
	assert_true(n_submissions >= (uint64_t)count * width / (101 * WIDE));
	cqe = expect_done(kit, 7, 0, GPU, RBK_REASON_USER_PREFERENCE, 0);
	/* exec_ns lasts from the beginning of the first submission to the end of the last. */
	assert_true(cqe.exec_ns + 10 >= kit->gpu->row_ns);
	assert_int_equal(plan->memory.n_on_device[GPU], 0);
	assert_int_equal(kit->arena->n_in_flight, 0);
}

TEST(test_rows__each_computed_once)
{
	static const uint32_t counts[] = {1, 99, 100, 101, 199, 777, MAX_ROWS - 1, MAX_ROWS};
	static const uint32_t widths[] = {WIDE, 4, 5, 1};
	struct kit kit;

	for (unsigned int w = 0; w < 4; w++) {
		kit_begin(&kit, 2, N_ENTRIES);
		for (unsigned int i = 0; i < 8; i++)
			run_rows(&kit, widths[w], counts[i]);
		bench_end(&kit.bench);
	}
}

/* Each submission of a task queues anew, and the other tenant's task goes first. */
TEST(test_rows__other_tenant_between_submissions)
{
	struct tenant other = {.weight = 100, .priority_max = RBK_PRIORITY_URGENT};
	struct rig_ring own, ring;
	struct kit kit;

	kit_begin(&kit, 1, N_ENTRIES);
	rig_ring_new_for(&kit.bench.rig, &other, N_ENTRIES, &ring);
	put(&kit, 1000, 1, RBK_STRATEGY_AUTO);
	rig_work(&kit.bench.rig);
	assert_int_equal(kit.cpu->n_tasks, 1);
	own = kit.bench.ring;
	kit.bench.ring = ring;
	put(&kit, 10, 2, RBK_STRATEGY_AUTO);
	kit.bench.ring = own;
	rig_work(&kit.bench.rig);
	finish(&kit.bench, kit.cpu, 1, 0);
	assert_int_equal(fake_user_data(kit.cpu->tasks[0]), 2);
	finish(&kit.bench, kit.cpu, 2, 0);
	while (kit.cpu->n_tasks > 0)
		finish(&kit.bench, kit.cpu, 1, 0);
	expect_cqe(&kit.bench, 1, 0);
	rig_ring_deinit(&ring);
	bench_end(&kit.bench);
}

/* A task with a state is not cut, because a state is updated once and completely. */
TEST(test_rows__not_with_a_state)
{
	struct kit kit;

	kit_begin(&kit, 2, N_ENTRIES);
	kit.plan->plan->has_state = true;
	put(&kit, 1000, 1, RBK_STRATEGY_ONLY_GPU);
	put(&kit, 1000, 2, RBK_STRATEGY_PARTITION);
	rig_work(&kit.bench.rig);
	while (kit.gpu->n_tasks + kit.cpu->n_tasks > 0) {
		struct fake *fake = kit.gpu->n_tasks > 0 ? kit.gpu : kit.cpu;

		assert_int_equal(fake->tasks[0]->count, 1000);
		finish(&kit.bench, fake, fake_user_data(fake->tasks[0]), 0);
	}
	assert_int_equal(expect_cqe(&kit.bench, 1, 0).flags, 0);
	assert_int_equal(expect_cqe(&kit.bench, 2, 0).flags, 0);
	bench_end(&kit.bench);
}

/* Completed rows stay; only the failed rows and the remaining ones move to the CPU. */
TEST(test_rows__fail_in_the_middle)
{
	struct kit kit;

	for (uint32_t n_good = 0; n_good < 4; n_good++) {
		kit_begin(&kit, 2, N_ENTRIES);
		put(&kit, 400, 1, RBK_STRATEGY_PREFER_GPU);
		rig_work(&kit.bench.rig);
		for (uint32_t i = 0; i < n_good; i++)
			step(&kit, kit.gpu, 0);
		step(&kit, kit.gpu, -EIO);
		assert_fields(kit, (gpu->n_tasks, 0), (plan->memory.n_on_device[GPU], 0),
			      (plan->memory.n_on_device[CPU], 1));
		while (kit.cpu->n_tasks > 0)
			step(&kit, kit.cpu, 0);
		expect_rows_once(&kit, 400);
		/* More than two thirds of the rows were computed on the GPU, or fewer. */
		expect_done(&kit, 1, 0, n_good > 2 ? GPU : CPU, RBK_REASON_CPU_FALLBACK,
			    n_good ? RBK_CQE_PARTITIONED : 0);
		expect_idle(&kit);
		bench_end(&kit.bench);
	}
}

TEST(test_rows__cancel)
{
	struct kit kit;

	kit_begin(&kit, 2, N_ENTRIES);
	put(&kit, 400, 1, RBK_STRATEGY_ONLY_GPU);
	rig_work(&kit.bench.rig);
	put_cancel(&kit.bench, 2, 1, 0);
	rig_work(&kit.bench.rig);
	expect_cqe(&kit.bench, 2, 0);
	finish(&kit.bench, kit.gpu, 1, 0);
	expect_cqe(&kit.bench, 1, -ECANCELED);
	assert_int_equal(kit.gpu->n_tasks, 0);

	/*
	 * After its first submission, the task counts as running, although none is on the device.
	 */
	kit.gpu->capacity = 1;
	put(&kit, 400, 3, RBK_STRATEGY_ONLY_GPU);
	rig_work(&kit.bench.rig);
	kit.gpu->capacity = 0;
	step(&kit, kit.gpu, 0);
	assert_int_equal(kit.gpu->n_tasks, 0);
	put_cancel(&kit.bench, 4, 3, 0);
	rig_work(&kit.bench.rig);
	expect_cqe(&kit.bench, 4, -EALREADY);
	kit.gpu->capacity = 1;
	rig_work(&kit.bench.rig);
	while (kit.gpu->n_tasks > 0)
		step(&kit, kit.gpu, 0);
	expect_cqe(&kit.bench, 3, 0);
	expect_rows_once(&kit, 400);
	expect_idle(&kit);
	bench_end(&kit.bench);
}

/* The remaining rows are not computed. */
TEST(test_rows__ring_closes)
{
	struct kit kit;

	kit_begin(&kit, 2, N_ENTRIES);
	put(&kit, 1000, 1, RBK_STRATEGY_ONLY_GPU);
	rig_work(&kit.bench.rig);
	step(&kit, kit.gpu, 0);
	assert_true(fake_begin(kit.gpu, 1));
	assert_int_equal(session_ring_remove(kit.bench.rig.session, 5, kit.bench.ring.ring->id), 0);
	assert_false(rig_has_answer(&kit.bench.rig));
	step(&kit, kit.gpu, 0);
	assert_int_equal(kit.gpu->n_tasks, 0);
	assert_int_equal(rig_answer(&kit.bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	expect_idle(&kit);
	bench_end(&kit.bench);
}

/* --- Parts --- */

static void expect_part(const struct kit *kit, unsigned int part)
{
	assert_fields(*kit->gpu, (n_tasks, 1), (tasks[0]->part, part), (tasks[0]->count, 500),
		      (tasks[0]->refs[0].offset, 0));
}

static void begin_parts(struct kit *kit)
{
	kit_begin(kit, 2, N_ENTRIES);
	kit->plan->plan->n_parts[GPU] = 3;
	kit->plan->plan->splits_rows = false;
	put(kit, 500, 1, RBK_STRATEGY_PREFER_GPU);
	rig_work(&kit->bench.rig);
	expect_part(kit, 0);
}

TEST(test_parts__one_after_the_other)
{
	struct place_report report;
	struct kit kit;

	begin_parts(&kit);
	for (unsigned int i = 0; i < 3; i++) {
		expect_part(&kit, i);
		expect_none(&kit.bench);
		finish(&kit.bench, kit.gpu, 1, 0);
	}
	expect_done(&kit, 1, 0, GPU, RBK_REASON_USER_PREFERENCE, 0);
	expect_idle(&kit);
	/* The parts are learned from as one execution of three times the length. */
	place_plan_report(kit.bench.rig.dispatch->placer, kit.plan->place, GPU, 500, &report);
	assert_int_equal(report.n_done, 1);
	assert_true(report.mean_ns > 2.9 * 500 * 1000 && report.mean_ns < 3.1 * 500 * 1000);
	bench_end(&kit.bench);
}

TEST(test_parts__fail)
{
	struct kit kit;

	begin_parts(&kit);
	finish(&kit.bench, kit.gpu, 1, 0);
	finish(&kit.bench, kit.gpu, 1, -EIO);
	/* The CPU begins anew, with its own number of parts. */
	assert_fields(kit, (gpu->n_tasks, 0), (cpu->tasks[0]->part, 0),
		      (cpu->tasks[0]->count, 500));
	finish(&kit.bench, kit.cpu, 1, 0);
	expect_done(&kit, 1, 0, CPU, RBK_REASON_CPU_FALLBACK, 0);
	expect_idle(&kit);
	bench_end(&kit.bench);

	/* A state may be half updated, so the task fails. */
	begin_parts(&kit);
	kit.plan->plan->has_state = true;
	finish(&kit.bench, kit.gpu, 1, 0);
	expect_part(&kit, 1);
	finish(&kit.bench, kit.gpu, 1, -EIO);
	expect_done(&kit, 1, -EIO, GPU, RBK_REASON_USER_PREFERENCE, 0);
	expect_idle(&kit);
	bench_end(&kit.bench);
}

/* Only the first part can be cancelled; later parts of a begun task all run. */
TEST(test_parts__cancel_and_close)
{
	struct kit kit;

	begin_parts(&kit);
	put_cancel(&kit.bench, 2, 1, 0);
	rig_work(&kit.bench.rig);
	expect_cqe(&kit.bench, 2, 0);
	finish(&kit.bench, kit.gpu, 1, 0);
	expect_cqe(&kit.bench, 1, -ECANCELED);
	assert_int_equal(kit.gpu->n_tasks, 0);
	bench_end(&kit.bench);

	begin_parts(&kit);
	finish(&kit.bench, kit.gpu, 1, 0);
	put_cancel(&kit.bench, 2, 1, 0);
	rig_work(&kit.bench.rig);
	expect_cqe(&kit.bench, 2, -EALREADY);
	assert_int_equal(session_ring_remove(kit.bench.rig.session, 5, kit.bench.ring.ring->id), 0);
	expect_part(&kit, 1);
	finish(&kit.bench, kit.gpu, 1, 0);
	expect_part(&kit, 2);
	assert_false(rig_has_answer(&kit.bench.rig));
	finish(&kit.bench, kit.gpu, 1, 0);
	assert_int_equal(rig_answer(&kit.bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	expect_idle(&kit);
	bench_end(&kit.bench);
}

/* --- Two devices --- */

static void begin_halves(struct kit *kit, uint32_t count)
{
	kit_begin(kit, 2, N_ENTRIES);
	put(kit, count, 1, RBK_STRATEGY_PARTITION);
	rig_work(&kit->bench.rig);
	assert_fields(*kit, (gpu->n_tasks, 1), (cpu->n_tasks, 1));
	assert_int_equal(first_row(kit, kit->gpu, WIDE), 0);
	assert_fields(*kit->plan, (memory.n_on_device[GPU], 1), (memory.n_on_device[CPU], 1),
		      (n_in_flight, 1));
}

static bool has_half(const struct kit *kit)
{
	const struct dispatch_ring *ring = kit->bench.ring.ring->dispatch;

	return container_of(ring->in_flight.next, struct task, link)->half != NULL;
}

/* Two halves in any order, each in one or several submissions, give one completion. */
TEST(test_halves__join)
{
	static const uint32_t counts[] = {2, 3, 64, 151, 999, MAX_ROWS};
	struct kit kit;

	for (unsigned int i = 0; i < 12; i++) {
		struct fake *first, *second;
		struct rbk_cqe cqe;

		begin_halves(&kit, counts[i / 2]);
		first = i % 2 ? kit.cpu : kit.gpu;
		second = i % 2 ? kit.gpu : kit.cpu;
		while (first->n_tasks > 0)
			step(&kit, first, 0);
		expect_none(&kit.bench);
		while (second->n_tasks > 0)
			step(&kit, second, 0);
		cqe = expect_cqe(&kit.bench, 1, 0);
		assert_fields(cqe, (flags, RBK_CQE_PARTITIONED),
			      (reason, RBK_REASON_USER_PREFERENCE));
		assert_true(cqe.device == CPU || cqe.device == GPU);
		expect_rows_once(&kit, counts[i / 2]);
		expect_idle(&kit);
		expect_none(&kit.bench);
		assert_int_equal(kit.bench.rig.session->stats.tasks[cqe.device], 1);
		bench_end(&kit.bench);
	}
}

/* The completion names the device that computed most rows. */
TEST(test_halves__completion_names_main_device)
{
	struct place_config config = PLACE_CONFIG_DEFAULT;
	struct bench_speed speeds[2] = {{0}};

	for (unsigned int fast = 0; fast < 2; fast++) {
		struct kit kit = {0};

		speeds[fast].bytes_per_ns = 0.512f;
		speeds[!fast].bytes_per_ns = 0.128f;
		bench_begin_placement(&kit.bench, 2, N_ENTRIES, &config, speeds);
		kit.bench.rig.session->features = ALL_FEATURES;
		kit.cpu = kit.bench.cpu;
		kit.gpu = kit.bench.gpu;
		kit.arena = rig_arena_new(&kit.bench.rig, ARENA_BYTES, false);
		kit.plan = bench_relu(&kit.bench, WIDE, MAX_ROWS);
		put(&kit, 1000, 1, RBK_STRATEGY_PARTITION);
		rig_work(&kit.bench.rig);
		step(&kit, kit.gpu, 0);
		step(&kit, kit.cpu, 0);
		expect_done(&kit, 1, 0, (uint8_t)fast, RBK_REASON_USER_PREFERENCE,
			    RBK_CQE_PARTITIONED);
		expect_rows_once(&kit, 1000);
		bench_end(&kit.bench);
	}
}

/* A task is not split if it did not ask for that, or the feature was not negotiated. */
TEST(test_halves__only_if_permitted)
{
	struct rbk_sqe sqe;
	struct kit kit;

	kit_begin(&kit, 2, N_ENTRIES);
	kit.bench.rig.session->features = RBK_FEAT_RESIDENCY;
	put(&kit, 50, 1, RBK_STRATEGY_PARTITION);
	sqe = bench_entry(kit.plan, kit.arena, Y_OFFSET, 50, 2);
	sqe.flags = RBK_SQE_PARTITION;
	rig_put(&kit.bench.ring, &sqe);
	rig_work(&kit.bench.rig);
	for (uint64_t i = 1; i <= 2; i++) {
		struct fake *fake = kit.cpu->n_tasks > 0 ? kit.cpu : kit.gpu;

		assert_int_equal(fake->tasks[0]->count, 50);
		finish(&kit.bench, fake, i, 0);
		assert_int_equal(expect_cqe(&kit.bench, i, 0).flags, 0);
	}
	bench_end(&kit.bench);
}

/* The CPU computes the rows of a GPU that fails at any point of its half. */
TEST(test_halves__gpu_fails)
{
	struct kit kit;

	for (uint32_t n_good = 0; n_good < 2; n_good++) {
		for (uint32_t is_first = 0; is_first < 2; is_first++) {
			begin_halves(&kit, 999);
			while (!is_first && kit.cpu->n_tasks > 0)
				step(&kit, kit.cpu, 0);
			for (uint32_t i = 0; i < n_good; i++)
				step(&kit, kit.gpu, 0);
			step(&kit, kit.gpu, -EIO);
			expect_none(&kit.bench);
			assert_int_equal(kit.plan->memory.n_on_device[GPU], 0);
			while (kit.cpu->n_tasks > 0)
				step(&kit, kit.cpu, 0);
			expect_done(&kit, 1, 0, CPU, RBK_REASON_CPU_FALLBACK,
				    n_good ? RBK_CQE_PARTITIONED : 0);
			expect_rows_once(&kit, 999);
			expect_idle(&kit);
			bench_end(&kit.bench);
		}
	}
}

/* A failure of the CPU fails the task; rows that the GPU has not begun are dropped. */
TEST(test_halves__cpu_fails)
{
	struct kit kit;

	begin_halves(&kit, 999);
	step(&kit, kit.cpu, -ENOMEM);
	expect_none(&kit.bench);
	assert_false(fake_begin(kit.gpu, 1));
	step(&kit, kit.gpu, 0);
	assert_int_equal(kit.gpu->n_tasks, 0);
	assert_int_equal(expect_cqe(&kit.bench, 1, -ENOMEM).reason, RBK_REASON_USER_PREFERENCE);
	expect_idle(&kit);
	bench_end(&kit.bench);

	/* The GPU has begun: the dispatcher waits for the submission, and submits no more. */
	begin_halves(&kit, 999);
	assert_true(fake_begin(kit.gpu, 1));
	step(&kit, kit.cpu, -ENOMEM);
	expect_none(&kit.bench);
	step(&kit, kit.gpu, 0);
	assert_int_equal(kit.gpu->n_tasks, 0);
	expect_cqe(&kit.bench, 1, -ENOMEM);
	expect_idle(&kit);
	bench_end(&kit.bench);

	/* The GPU's half is still queued. */
	kit_begin(&kit, 2, N_ENTRIES);
	kit.gpu->capacity = 0;
	put(&kit, 999, 1, RBK_STRATEGY_PARTITION);
	rig_work(&kit.bench.rig);
	step(&kit, kit.cpu, -ENOMEM);
	expect_cqe(&kit.bench, 1, -ENOMEM);
	expect_idle(&kit);
	bench_end(&kit.bench);

	/* If both fail, the first failure is the result. */
	begin_halves(&kit, 999);
	assert_true(fake_begin(kit.gpu, 1));
	step(&kit, kit.cpu, -ENOMEM);
	step(&kit, kit.gpu, -EIO);
	expect_cqe(&kit.bench, 1, -ENOMEM);
	expect_none(&kit.bench);
	expect_idle(&kit);
	bench_end(&kit.bench);
}

/* State of a half when the CANCEL comes: queued, in the executor, or begun. */
enum progress { QUEUED, HELD, BEGUN };

static void cancel_halves(enum progress cpu, enum progress gpu)
{
	bool is_late = cpu == BEGUN || gpu == BEGUN;
	struct kit kit;

	kit_begin(&kit, 2, N_ENTRIES);
	kit.cpu->capacity = cpu != QUEUED;
	kit.gpu->capacity = gpu != QUEUED;
	put(&kit, 999, 1, RBK_STRATEGY_PARTITION);
	rig_work(&kit.bench.rig);
	if (cpu == BEGUN)
		assert_true(fake_begin(kit.cpu, 1));
	if (gpu == BEGUN)
		assert_true(fake_begin(kit.gpu, 1));
	put_cancel(&kit.bench, 2, 1, 0);
	rig_work(&kit.bench.rig);
	expect_cqe(&kit.bench, 2, is_late ? -EALREADY : 0);
	kit.cpu->capacity = kit.gpu->capacity = 1;
	while (kit.cpu->n_tasks + kit.gpu->n_tasks > 0 ||
	       kit.bench.ring.cq->cq_tail == kit.bench.ring.cq_head) {
		rig_work(&kit.bench.rig);
		for (unsigned int i = 0; i < 2; i++) {
			struct fake *fake = i ? kit.gpu : kit.cpu;

			if (fake->n_tasks == 0)
				continue;
			if (atomic_load(&fake->tasks[0]->state) == EXEC_CANCELLED)
				finish(&kit.bench, fake, 1, 0);
			else
				step(&kit, fake, 0);
		}
	}
	expect_cqe(&kit.bench, 1, is_late ? 0 : -ECANCELED);
	expect_none(&kit.bench);
	expect_rows_once(&kit, is_late ? 999 : 0);
	expect_idle(&kit);
	bench_end(&kit.bench);
}

TEST(test_halves__cancel)
{
	for (enum progress cpu = QUEUED; cpu <= BEGUN; cpu++)
		for (enum progress gpu = QUEUED; gpu <= BEGUN; gpu++)
			cancel_halves(cpu, gpu);
}

TEST(test_halves__ring_closes)
{
	struct kit kit;

	begin_halves(&kit, 999);
	assert_true(fake_begin(kit.gpu, 1));
	assert_int_equal(session_ring_remove(kit.bench.rig.session, 5, kit.bench.ring.ring->id), 0);
	finish(&kit.bench, kit.cpu, 1, 0);
	assert_false(rig_has_answer(&kit.bench.rig));
	finish(&kit.bench, kit.gpu, 1, 0);
	assert_int_equal(rig_answer(&kit.bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_int_equal(kit.cpu->n_tasks + kit.gpu->n_tasks, 0);
	expect_idle(&kit);
	bench_end(&kit.bench);
}

/* A split task is one member of its chain. */
TEST(test_halves__in_a_chain)
{
	struct rbk_sqe sqe;
	struct kit kit;

	kit_begin(&kit, 2, N_ENTRIES);
	sqe = bench_entry(kit.plan, kit.arena, Y_OFFSET, 60, 1);
	sqe.strategy = RBK_STRATEGY_PARTITION;
	sqe.flags = RBK_SQE_LINK;
	rig_put(&kit.bench.ring, &sqe);
	put_bare(&kit.bench, RBK_OP_NOP, 2, 0);
	put_bare(&kit.bench, RBK_OP_BARRIER, 3, 0);
	rig_work(&kit.bench.rig);
	step(&kit, kit.cpu, 0);
	expect_none(&kit.bench);
	step(&kit, kit.gpu, 0);
	expect_cqe(&kit.bench, 1, 0);
	expect_cqe(&kit.bench, 2, 0);
	expect_cqe(&kit.bench, 3, 0);
	bench_end(&kit.bench);
}

/*
 * Only a limited number of tasks are split at a time; further tasks run on one device, and later
 * ones are split again.
 */
TEST(test_halves__pool)
{
	unsigned int n_split = 0, n_whole = 0;
	struct rbk_cqe cqe;
	struct kit kit;

	kit_begin(&kit, 2, 128);
	for (uint64_t i = 0; i < 100; i++)
		put(&kit, 64, i, RBK_STRATEGY_PARTITION);
	rig_work(&kit.bench.rig);
	assert_null(kit.bench.rig.dispatch->free_halves);
	assert_true(has_half(&kit));
	for (unsigned int i = 0; i < 100;) {
		if (kit.gpu->n_tasks > 0)
			step(&kit, kit.gpu, 0);
		if (kit.cpu->n_tasks > 0)
			step(&kit, kit.cpu, 0);
		while (rig_take(&kit.bench.ring, &cqe)) {
			assert_int_equal(cqe.res, 0);
			n_split += cqe.flags == RBK_CQE_PARTITIONED;
			n_whole += cqe.flags == 0;
			i++;
		}
	}
	assert_int_equal(n_split, 64);
	assert_int_equal(n_whole, 36);
	expect_idle(&kit);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(kit.rows[i], 100);
	put(&kit, 64, 1, RBK_STRATEGY_PARTITION);
	rig_work(&kit.bench.rig);
	assert_true(has_half(&kit));
	bench_end(&kit.bench);
}
