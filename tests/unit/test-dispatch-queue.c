/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher and the order of tasks: priorities, deadlines, tenants that share a device,
 * urgency, tasks that move to another device, quotas, and the broker's own tasks.
 */
#include <string.h>

#include <errno.h>
#include <unistd.h>

#include "loop/loop.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "unit/fail-alloc.h"
#include "util/clock.h"

enum { WIDE = 16, MAX_ROWS = 512, Y_OFFSET = MAX_ROWS * WIDE * 4, ENTRIES = 256 };

struct kit {
	struct bench bench;
	struct tenant other;
	struct rig_ring ring; /* the other tenant's */
	struct session_plan *plan;
	struct fake *cpu, *gpu;
};

/* Each row takes the CPU a microsecond; the GPU is four times as fast. */
static void kit_begin(struct kit *kit, uint32_t n_devices, struct tenant other)
{
	const struct bench_speed speeds[RIG_MAX_DEVICES] = {{.bytes_per_ns = 0.128f},
							    {.bytes_per_ns = 0.512f}};
	struct place_config config = PLACE_CONFIG_DEFAULT;

	memset(kit, 0, sizeof(*kit));
	config.threshold_bytes = 1;
	config.min_count = 1;
	config.exploration = 0;
	bench_begin_placement(&kit->bench, n_devices, ENTRIES, &config, speeds);
	kit->bench.rig.session->features =
		RBK_FEAT_RESIDENCY | RBK_FEAT_PARTITION | RBK_FEAT_PRIORITY | RBK_FEAT_STRATEGIES;
	kit->other = other;
	rig_ring_new_for(&kit->bench.rig, &kit->other, ENTRIES, &kit->ring);
	kit->plan = bench_relu(&kit->bench, WIDE, MAX_ROWS);
	kit->cpu = kit->bench.cpu;
	kit->gpu = kit->bench.gpu;
	kit->cpu->row_ns = 1000;
	kit->gpu->row_ns = 250;
}

static const struct tenant plain = {.weight = 100, .priority_max = RBK_PRIORITY_URGENT};

static void kit_end(struct kit *kit)
{
	rig_ring_deinit(&kit->ring);
	bench_end(&kit->bench);
	/* The dispatcher has dropped its reference. */
	assert_int_equal(kit->other.n_refs, 1);
}

#define KIT(name, ...) SCOPED(kit, name, kit_begin, kit_end, __VA_ARGS__)

static struct rbk_sqe entry(const struct kit *kit, uint64_t user_data)
{
	return bench_entry(kit->plan, kit->bench.arena, Y_OFFSET, 10, user_data);
}

static void put_on(struct kit *kit, struct rig_ring *ring, uint64_t user_data, uint8_t strategy)
{
	struct rbk_sqe sqe = entry(kit, user_data);

	sqe.strategy = strategy;
	rig_put(ring, &sqe);
}

/*
 * Complete the oldest task that @fake has.
 * Return: the task's user_data.
 */
static uint64_t step(struct kit *kit, struct fake *fake)
{
	uint64_t user_data;

	assert_true(fake->n_tasks > 0);
	user_data = fake_user_data(fake->tasks[0]);
	finish(&kit->bench, fake, user_data, 0);
	return user_data;
}

static void expect_order(struct kit *kit, const uint64_t *order, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(step(kit, kit->cpu), order[i]);
	assert_int_equal(kit->cpu->n_tasks, 0);
	for (unsigned int i = 0; i < n; i++)
		expect_cqe(&kit->bench, order[i], 0);
}

#define EXPECT_ORDER(kit, ...)                             \
	expect_order(kit, (const uint64_t[]){__VA_ARGS__}, \
		     sizeof((const uint64_t[]){__VA_ARGS__}) / 8)

/* --- Within a tenant --- */

static void put_priorities(struct kit *kit)
{
	static const uint8_t priorities[] = {RBK_PRIORITY_LOW, RBK_PRIORITY_NORMAL,
					     RBK_PRIORITY_HIGH, RBK_PRIORITY_URGENT};
	struct rbk_sqe sqe;

	kit->cpu->capacity = 1;
	put_on(kit, &kit->bench.ring, 9, RBK_STRATEGY_ONLY_CPU);
	rig_work(&kit->bench.rig);
	for (unsigned int i = 0; i < 8; i++) {
		sqe = entry(kit, i);
		sqe.priority = priorities[i % 4];
		sqe.strategy = RBK_STRATEGY_ONLY_CPU;
		rig_put(&kit->bench.ring, &sqe);
	}
	rig_work(&kit->bench.rig);
}

TEST(test_priority__classes)
{
	KIT(kit, 1, plain);
	/* Only classes up to the tenant's maximum are distinguished. */
	kit.bench.rig.session->tenant->priority_max = RBK_PRIORITY_URGENT;
	dispatch_limits_changed(kit.bench.rig.dispatch);
	put_priorities(&kit);
	EXPECT_ORDER(&kit, 9, 3, 7, 2, 6, 1, 5, 0, 4);
	kit.bench.rig.session->tenant->priority_max = RBK_PRIORITY_NORMAL;
	dispatch_limits_changed(kit.bench.rig.dispatch);
	put_priorities(&kit);
	EXPECT_ORDER(&kit, 9, 1, 2, 3, 5, 6, 7, 0, 4);
}

TEST(test_priority__not_agreed_upon)
{
	KIT(kit, 1, plain);
	kit.bench.rig.session->features = RBK_FEAT_RESIDENCY;
	put_priorities(&kit);
	EXPECT_ORDER(&kit, 9, 0, 1, 2, 3, 4, 5, 6, 7);
}

/* The nearest deadline first. A task without one counts as due in a second, and none is dropped. */
TEST(test_deadline__order)
{
	static const uint32_t deadlines_us[] = {0, 5000000, 900000, UINT32_MAX, 500000, 0};

	KIT(kit, 1, plain);
	kit.cpu->capacity = 1;
	put_on(&kit, &kit.bench.ring, 9, RBK_STRATEGY_ONLY_CPU);
	rig_work(&kit.bench.rig);
	for (unsigned int i = 0; i < 6; i++) {
		struct rbk_sqe sqe = entry(&kit, i);

		sqe.strategy = RBK_STRATEGY_ONLY_CPU;
		sqe.deadline_us = deadlines_us[i];
		rig_put(&kit.bench.ring, &sqe);
	}
	rig_work(&kit.bench.rig);
	EXPECT_ORDER(&kit, 9, 4, 2, 0, 5, 1, 3);
}

TEST(test_deadline__missed)
{
	KIT(kit, 2, plain);
	for (unsigned int i = 0; i < 8; i++) {
		struct rbk_sqe sqe = entry(&kit, i);

		sqe.strategy = i % 2 ? RBK_STRATEGY_ONLY_CPU : RBK_STRATEGY_AUTO;
		sqe.deadline_us = i < 4 ? 1 : UINT32_MAX;
		rig_put(&kit.bench.ring, &sqe);
	}
	rig_work(&kit.bench.rig);
	for (unsigned int n = 0; n < 8;) {
		struct rbk_cqe cqe;

		step(&kit, kit.cpu->n_tasks > 0 ? kit.cpu : kit.gpu);
		while (rig_take(&kit.bench.ring, &cqe)) {
			assert_fields(cqe, (res, 0),
				      (flags, cqe.user_data < 4 ? RBK_CQE_DEADLINE_MISSED : 0));
			n++;
		}
	}
}

/* --- Between tenants --- */

/*
 * Assert the shares of two tenants that both have a backlog. Per task, the first tenant's leased
 * programs use the device for the time of @leased_tasks tasks.
 */
static void share(uint32_t weight, uint32_t other_weight, uint8_t device, double leased_tasks)
{
	enum { INTERVAL = 10 };
	const unsigned int n = 120,
			   wanted = (unsigned int)(n * (weight - leased_tasks * other_weight) /
						   (weight + other_weight));
	unsigned int n_own = 0;
	struct rbk_sqe sqe;
	struct fake *fake;
	uint64_t ns;

	KIT(kit, 2, (struct tenant){.weight = other_weight, .priority_max = RBK_PRIORITY_NORMAL});
	fake = &kit.bench.rig.fakes[device];
	fake->capacity = 1;
	kit.bench.rig.session->tenant->weight = weight;
	dispatch_limits_changed(kit.bench.rig.dispatch);
	for (unsigned int i = 0; i < n; i++) {
		/* Tasks are long enough that a batch has only few of one tenant. */
		sqe = bench_entry(kit.plan, kit.bench.arena, Y_OFFSET, MAX_ROWS, 1);
		sqe.strategy = RBK_STRATEGY_DEVICE(device);
		rig_put(&kit.bench.ring, &sqe);
		sqe.user_data = 2;
		rig_put(&kit.ring, &sqe);
	}
	rig_work(&kit.bench.rig);
	for (unsigned int i = 0; i < n; i++) {
		n_own += step(&kit, fake) == 1;
		if (i % INTERVAL < INTERVAL - 1)
			continue;
		ns = INTERVAL * fake->row_ns * MAX_ROWS;
		dispatch_note_engine_time(kit.bench.rig.dispatch, device, ns, ns);
		dispatch_charge_leased(kit.bench.rig.dispatch, kit.bench.rig.session->tenant,
				       device, (uint64_t)(leased_tasks * (double)ns));
	}
	assert_in_range(n_own, wanted - 6, wanted + 6);
	/* All tasks complete in the end. */
	while (fake->n_tasks > 0)
		step(&kit, fake);
	assert_fields(kit, (bench.ring.cq->cq_tail, n), (ring.cq->cq_tail, n));
}

TEST(test_share__by_weight)
{
	for (uint8_t device = CPU; device <= GPU; device++) {
		share(100, 100, device, 0);
		share(100, 300, device, 0);
		share(5000, 1000, device, 0);
	}
}

TEST(test_share__includes_leased_time)
{
	share(100, 100, GPU, 0.5);
	share(300, 100, GPU, 1);
}

/*
 * A tenant without tasks on the device overtakes the tasks that others have there, whatever they
 * are, but not forever.
 */
TEST(test_urgent__tenant_without_tasks)
{
	unsigned int n_urgent = 0;

	KIT(kit, 1, plain);
	put_on(&kit, &kit.bench.ring, 1, RBK_STRATEGY_ONLY_CPU);
	rig_work(&kit.bench.rig);
	assert_false(kit.cpu->tasks[0]->is_urgent);
	put_on(&kit, &kit.bench.ring, 1, RBK_STRATEGY_ONLY_CPU);
	put_on(&kit, &kit.ring, 2, RBK_STRATEGY_ONLY_CPU);
	put_on(&kit, &kit.ring, 3, RBK_STRATEGY_ONLY_CPU);
	rig_work(&kit.bench.rig);
	assert_int_equal(kit.cpu->n_tasks, 4);
	for (unsigned int i = 1; i < 4; i++)
		assert_int_equal(kit.cpu->tasks[i]->is_urgent,
				 fake_user_data(kit.cpu->tasks[i]) == 2);
	finish(&kit.bench, kit.cpu, 3, 0);
	finish(&kit.bench, kit.cpu, 2, 0);
	/* Tasks come one after the other, while the first two never begin. */
	for (unsigned int i = 0; i < 100; i++) {
		put_on(&kit, &kit.ring, 4, RBK_STRATEGY_ONLY_CPU);
		rig_work(&kit.bench.rig);
		if (kit.cpu->n_tasks < 3)
			break;
		n_urgent += kit.cpu->tasks[2]->is_urgent;
		if (!kit.cpu->tasks[2]->is_urgent)
			break;
		finish(&kit.bench, kit.cpu, 4, 0);
	}
	assert_in_range(n_urgent, 1, 50);
}

/* --- Moving --- */

static void expect_counted(const struct kit *kit, unsigned int cpu, unsigned int gpu)
{
	assert_fields(kit->plan->memory, (n_on_device[CPU], cpu), (n_on_device[GPU], gpu));
}

static unsigned int take_all(struct kit *kit)
{
	unsigned int n = 0;
	struct rbk_cqe cqe;

	while (rig_take(&kit->bench.ring, &cqe)) {
		assert_fields(cqe, (res, 0), (device, CPU));
		n += cqe.user_data < 1000;
	}
	return n;
}

/* The GPU accepts no more tasks: the CPU runs those that are queued for it. */
TEST(test_moved__to_the_idle_device)
{
	const struct device_load *loads;
	unsigned int n = 0, n_at_first;
	struct rbk_sqe sqe;

	KIT(kit, 2, plain);
	loads = kit.bench.rig.dispatch->loads;
	kit.gpu->capacity = 0;
	for (uint64_t i = 0; i < 100; i++) {
		sqe = bench_entry(kit.plan, kit.bench.arena, Y_OFFSET, MAX_ROWS, i);
		rig_put(&kit.bench.ring, &sqe);
	}
	/* A task that must not move. */
	put_on(&kit, &kit.bench.ring, 1000, RBK_STRATEGY_ONLY_GPU);
	rig_work(&kit.bench.rig);
	n_at_first = kit.plan->memory.n_on_device[GPU];
	assert_true(n_at_first > 20);
	for (unsigned int i = 0; i < 10000 && n < 90; i++) {
		expect_counted(&kit, loads[CPU].n_queued + loads[CPU].n_held, loads[GPU].n_queued);
		/* Each time the CPU becomes idle, it may get some of the GPU's tasks. */
		if (kit.cpu->n_tasks == 0) {
			put_on(&kit, &kit.bench.ring, 1001, RBK_STRATEGY_ONLY_CPU);
			usleep(500);
			rig_work(&kit.bench.rig);
		}
		step(&kit, kit.cpu);
		n += take_all(&kit);
	}
	assert_true(n >= 90 && n > 100 - n_at_first);
	kit.gpu->capacity = 1;
	while (kit.plan->n_in_flight > 0) {
		rig_work(&kit.bench.rig);
		step(&kit, kit.gpu->n_tasks > 0 ? kit.gpu : kit.cpu);
	}
	expect_counted(&kit, 0, 0);
}

/* The GPU hangs and no other event occurs: tasks queued for it move. */
TEST(test_moved__from_hanging_device)
{
	const struct device_load *loads;
	struct rbk_sqe sqe;

	KIT(kit, 2, plain);
	loads = kit.bench.rig.dispatch->loads;
	kit.gpu->capacity = 1;
	for (uint64_t i = 0; i < 100; i++) {
		sqe = bench_entry(kit.plan, kit.bench.arena, Y_OFFSET, MAX_ROWS, i);
		rig_put(&kit.bench.ring, &sqe);
	}
	rig_work(&kit.bench.rig);
	assert_int_equal(loads[GPU].n_held, 1);
	/* The CPU completes its tasks, and is idle then. */
	while (kit.cpu->n_tasks > 0)
		step(&kit, kit.cpu);
	/* On a slow machine, all tasks may have moved by now. */
	for (unsigned int i = 0; i < 1000 && loads[GPU].n_queued > 0; i++) {
		dispatch_await_balance(kit.bench.rig.dispatch);
		assert_true(loop_turn(kit.bench.rig.loop, true) >= 0);
		rig_work(&kit.bench.rig);
		while (kit.cpu->n_tasks > 0)
			step(&kit, kit.cpu);
	}
	assert_int_equal(loads[GPU].n_queued, 0);
	step(&kit, kit.gpu);
}

/* A task that named a missing device runs on the CPU, even if a GPU is idle. */
TEST(test_moved__not_if_device_was_named)
{
	struct rbk_sqe sqe;

	KIT(kit, 2, plain);
	kit.cpu->capacity = 0;
	for (uint64_t i = 0; i < 20; i++) {
		sqe = bench_entry(kit.plan, kit.bench.arena, Y_OFFSET, MAX_ROWS, i);
		sqe.strategy = RBK_STRATEGY_DEVICE(9);
		rig_put(&kit.bench.ring, &sqe);
		rig_work(&kit.bench.rig);
	}
	expect_counted(&kit, 20, 0);
	kit.cpu->capacity = 20;
	while (kit.plan->n_in_flight > 0) {
		rig_work(&kit.bench.rig);
		step(&kit, kit.cpu);
	}
	assert_int_equal(take_all(&kit), 20);
}

/* When the last task leaves a device, residency, which may wait for it, is told. */
TEST(test_moved__tells_residency)
{
	struct place_config config;

	KIT(kit, 2, plain);
	kit.gpu->capacity = 0;
	for (uint64_t i = 0; i < 5; i++)
		put_on(&kit, &kit.bench.ring, i, RBK_STRATEGY_PREFER_GPU);
	rig_work(&kit.bench.rig);
	expect_counted(&kit, 0, 5);
	kit.plan->memory.leaving = 1u << GPU;
	config = *placer_config(kit.bench.rig.dispatch->placer);
	config.force_cpu = true;
	dispatch_configure(kit.bench.rig.dispatch, &config);
	expect_counted(&kit, 5, 0);
	assert_fields(*kit.bench.rig.residency, (n_idle, 1), (idle_device, GPU));
	kit.plan->memory.leaving = 0;
	rig_work(&kit.bench.rig);
	for (uint64_t i = 0; i < 5; i++) {
		assert_int_equal(step(&kit, kit.cpu), i);
		assert_int_equal(expect_cqe(&kit.bench, i, 0).reason, RBK_REASON_GPU_UNAVAILABLE);
	}
}

/* Tasks in an executor stay; queued ones move to the CPU, except those for the GPU only. */
TEST(test_force_cpu__while_queued)
{
	struct place_config config;
	struct rbk_cqe cqe;

	KIT(kit, 2, plain);
	kit.gpu->capacity = 1;
	put_on(&kit, &kit.bench.ring, 1, RBK_STRATEGY_PREFER_GPU);
	rig_work(&kit.bench.rig);
	for (uint64_t i = 2; i < 6; i++)
		put_on(&kit, &kit.bench.ring, i, RBK_STRATEGY_DEVICE(GPU));
	put_on(&kit, &kit.bench.ring, 6, RBK_STRATEGY_ONLY_GPU);
	rig_work(&kit.bench.rig);
	config = *placer_config(kit.bench.rig.dispatch->placer);
	config.force_cpu = true;
	dispatch_configure(kit.bench.rig.dispatch, &config);
	put_on(&kit, &kit.bench.ring, 7, RBK_STRATEGY_PREFER_GPU);
	put_on(&kit, &kit.bench.ring, 8, RBK_STRATEGY_ONLY_GPU);
	rig_work(&kit.bench.rig);
	assert_int_equal(expect_cqe(&kit.bench, 8, -ENODEV).device, RBK_DEVICE_NONE);
	for (uint64_t i = 2; i < 8; i++) {
		if (i == 6)
			continue;
		assert_int_equal(step(&kit, kit.cpu), i);
		cqe = expect_cqe(&kit.bench, i, 0);
		assert_fields(cqe, (device, CPU), (reason, RBK_REASON_GPU_UNAVAILABLE));
	}
	assert_int_equal(kit.cpu->n_tasks, 0);
	assert_int_equal(step(&kit, kit.gpu), 1);
	assert_int_equal(expect_cqe(&kit.bench, 1, 0).device, GPU);
	assert_int_equal(step(&kit, kit.gpu), 6);
	assert_int_equal(expect_cqe(&kit.bench, 6, 0).device, GPU);

	config.force_cpu = false;
	dispatch_configure(kit.bench.rig.dispatch, &config);
	put_on(&kit, &kit.bench.ring, 9, RBK_STRATEGY_PREFER_GPU);
	rig_work(&kit.bench.rig);
	assert_int_equal(step(&kit, kit.gpu), 9);
	expect_cqe(&kit.bench, 9, 0);
}

/* Inline tasks also report the reason. */
TEST(test_force_cpu__inline)
{
	struct place_config config = PLACE_CONFIG_DEFAULT;

	BENCH(bench, 2, N_ENTRIES);
	put_run(&bench, bench.tiny, 1, 0);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 1, 0).reason, RBK_REASON_BELOW_THRESHOLD);
	config.force_cpu = true;
	dispatch_configure(bench.rig.dispatch, &config);
	put_run(&bench, bench.tiny, 2, 0);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 2, 0).reason, RBK_REASON_GPU_UNAVAILABLE);
	config.force_cpu = false;
	dispatch_configure(bench.rig.dispatch, &config);
	put_run(&bench, bench.tiny, 3, 0);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 3, 0).reason, RBK_REASON_BELOW_THRESHOLD);
	assert_int_equal(bench.cpu->n_inline, 3);
}

/* A review skips plans that are being removed: the setup thread may be releasing them. */
TEST(test_review__leaving_plans)
{
	static const uint8_t leaving[] = {SLOT_REMOVING, SLOT_RELEASING};
	struct place_config config = PLACE_CONFIG_DEFAULT;
	uint8_t before;

	BENCH(bench, 2, N_ENTRIES);
	assert_int_equal(bench.tiny->inline_reason, RBK_REASON_BELOW_THRESHOLD);
	before = bench.tiny->state;
	config.force_cpu = true;
	for (unsigned int i = 0; i < ARRAY_SIZE(leaving); i++) {
		bench.tiny->state = leaving[i];
		dispatch_configure(bench.rig.dispatch, &config);
		dispatch_drain_device(bench.rig.dispatch, GPU, true);
		assert_int_equal(bench.tiny->inline_reason, RBK_REASON_BELOW_THRESHOLD);
	}
	bench.tiny->state = before;
	dispatch_configure(bench.rig.dispatch, &config);
	assert_int_equal(bench.tiny->inline_reason, RBK_REASON_GPU_UNAVAILABLE);
}

/*
 * Tasks that run inline wait for no device. So a review ignores the devices' present work, and it
 * neither explores nor probes.
 */
TEST(test_review__while_the_cpu_is_busy)
{
	static const struct bench_speed speeds[] = {{0.01f, 1}, {1000, 1}};
	const struct place_config config = PLACE_CONFIG_DEFAULT;
	struct bench bench;

	bench_begin_placement(&bench, 2, N_ENTRIES, &config, speeds);
	assert_int_equal(bench.tiny->inline_reason, RBK_REASON_BELOW_THRESHOLD);
	for (unsigned int i = 1; i <= 4; i++)
		put_strategy(&bench, i, RBK_STRATEGY_ONLY_CPU);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 4);
	dispatch_configure(bench.rig.dispatch, &config);
	assert_int_equal(bench.tiny->inline_reason, RBK_REASON_BELOW_THRESHOLD);
	bench_end(&bench);
}

/* --- Quotas --- */

/* Run the parts of a reactor's turn that the rig does not run. */
static void turn(struct kit *kit)
{
	struct dispatch *dispatch = kit->bench.rig.dispatch;

	rig_work(&kit->bench.rig);
	if (rig_dispatch_ring(&kit->ring)->is_throttled)
		dispatch_sleep_rings(dispatch, false);
	flow_await_refill(dispatch);
	assert_true(loop_turn(kit->bench.rig.loop, false) >= 0);
}

/* Put NOPs until the ring is throttled. */
static void use_up_quota(struct kit *kit)
{
	const struct rbk_sqe nop = {.opcode = RBK_OP_NOP};
	struct dispatch_ring *ring = rig_dispatch_ring(&kit->ring);
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < 1000000 && !ring->is_throttled; i++) {
		if (kit->ring.sq_tail - kit->ring.cq_head < ENTRIES)
			rig_put(&kit->ring, &nop);
		if (i % 64 == 0)
			rig_work(&kit->bench.rig);
		while (rig_take(&kit->ring, &cqe))
			;
	}
	assert_true(ring->is_throttled);
}

/* A quota delays the tenant's queued tasks and its entries; other tenants are not affected. */
TEST(test_quota__holds_its_tenant)
{
	struct dispatch_ring *ring;
	struct dispatch *dispatch;
	struct rbk_cqe cqe;
	uint64_t until_ns;
	uint32_t sq_head;

	/* The quota is so small that it takes minutes to refill. */
	KIT(kit, 1, (struct tenant){.weight = 100, .cpu_max = 1e-8f});
	dispatch = kit.bench.rig.dispatch;
	ring = rig_dispatch_ring(&kit.ring);
	use_up_quota(&kit);
	turn(&kit);
	assert_false(ring->is_active);
	/* Further entries are not read. */
	sq_head = kit.ring.cq->sq_head;
	put_on(&kit, &kit.ring, 1, RBK_STRATEGY_ONLY_CPU);
	turn(&kit);
	assert_int_equal(kit.ring.cq->sq_head, sq_head);
	/* The ring's bell does not change that. */
	dispatch_ring_bell(dispatch, kit.ring.ring);
	rig_work(&kit.bench.rig);
	assert_false(ring->is_active);
	put_on(&kit, &kit.bench.ring, 2, RBK_STRATEGY_ONLY_CPU);
	dispatch_ring_bell(dispatch, kit.bench.ring.ring);
	rig_work(&kit.bench.rig);
	assert_int_equal(step(&kit, kit.cpu), 2);
	expect_cqe(&kit.bench, 2, 0);
	/* With a higher limit, the ring continues by itself. */
	kit.other.cpu_max = 0.01f;
	dispatch_limits_changed(dispatch);
	until_ns = clock_now_ns() + 30000000000;
	while (kit.cpu->n_tasks == 0 && clock_now_ns() < until_ns)
		turn(&kit);
	assert_int_not_equal(kit.ring.cq->sq_head, sq_head);
	assert_int_equal(step(&kit, kit.cpu), 1);
	while (rig_take(&kit.ring, &cqe))
		assert_int_equal(cqe.res, 0);
	assert_int_equal(cqe.user_data, 1);
}

/* A new limit takes effect at once. */
TEST(test_quota__is_lifted)
{
	uint64_t until_ns;
	struct rbk_cqe cqe;

	KIT(kit, 1, (struct tenant){.weight = 100, .cpu_max = 0.00001f});
	use_up_quota(&kit);
	turn(&kit);
	put_on(&kit, &kit.ring, 1, RBK_STRATEGY_ONLY_CPU);
	turn(&kit);
	kit.other.cpu_max = 0;
	dispatch_limits_changed(kit.bench.rig.dispatch);
	until_ns = clock_now_ns() + 30000000000;
	while (kit.cpu->n_tasks == 0 && clock_now_ns() < until_ns)
		turn(&kit);
	assert_int_equal(step(&kit, kit.cpu), 1);
	while (rig_take(&kit.ring, &cqe))
		assert_int_equal(cqe.res, 0);
}

/* Closing a ring does not wait for a quota. */
TEST(test_quota__ring_closes)
{
	KIT(kit, 1, (struct tenant){.weight = 100, .cpu_max = 0.00001f});
	for (uint64_t i = 0; i < 5; i++)
		put_on(&kit, &kit.ring, i, RBK_STRATEGY_ONLY_CPU);
	rig_work(&kit.bench.rig);
	use_up_quota(&kit);
	turn(&kit);
	assert_int_equal(session_ring_remove(kit.bench.rig.session, 5, kit.ring.ring->id), 0);
	rig_work(&kit.bench.rig);
	while (kit.cpu->n_tasks > 0)
		step(&kit, kit.cpu);
	assert_int_equal(rig_answer(&kit.bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	expect_counted(&kit, 0, 0);
}

/* A tenant's debt outlives its rings until it is paid, and no longer. */
TEST(test_flow__outlives_its_rings)
{
	struct dispatch *dispatch;

	KIT(kit, 1, (struct tenant){.weight = 100, .cpu_max = 1e-8f});
	dispatch = kit.bench.rig.dispatch;
	use_up_quota(&kit);
	assert_int_equal(session_ring_remove(kit.bench.rig.session, 5, kit.ring.ring->id), 0);
	assert_int_equal(rig_answer(&kit.bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	rig_ring_deinit(&kit.ring);
	assert_int_equal(kit.other.n_refs, 2);
	/* A new ring of the tenant is still throttled. */
	rig_ring_new_for(&kit.bench.rig, &kit.other, ENTRIES, &kit.ring);
	assert_int_equal(kit.other.n_refs, 2);
	rig_put(&kit.ring, &(const struct rbk_sqe){.opcode = RBK_OP_NOP});
	rig_work(&kit.bench.rig);
	assert_int_equal(kit.ring.cq->sq_head, 0);
	assert_int_equal(session_ring_remove(kit.bench.rig.session, 6, kit.ring.ring->id), 0);
	assert_int_equal(rig_answer(&kit.bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_int_equal(kit.other.n_refs, 2);
	kit.other.cpu_max = 0;
	dispatch_limits_changed(dispatch);
	for (unsigned int i = 0; i < 100000 && kit.other.n_refs > 1; i++)
		assert_true(loop_turn(kit.bench.rig.loop, true) >= 0);
	assert_int_equal(kit.other.n_refs, 1);
	assert_int_equal(dispatch->n_rings, 1);
}

/* A tenant that causes the contention stays on the CPU; another tenant's tasks leave. */
TEST(test_contention__moves_other_tenants)
{
	const struct tenant stranger = plain;
	struct dispatch *dispatch;
	struct rbk_cqe cqe;

	KIT(kit, 2, plain);
	dispatch = kit.bench.rig.dispatch;
	/* Without contention, the CPU is twice as fast. */
	placer_set_contention(dispatch_placer(dispatch), GPU, 8, clock_now_ns());
	put_on(&kit, &kit.bench.ring, 1, RBK_STRATEGY_AUTO);
	rig_work(&kit.bench.rig);
	assert_int_equal(step(&kit, kit.cpu), 1);
	assert_int_equal(expect_cqe(&kit.bench, 1, 0).device, CPU);

	placer_set_contention(dispatch_placer(dispatch), CPU, 10, clock_now_ns());
	dispatch_set_own_contention(dispatch, &kit.other, 1);
	dispatch_set_own_contention(dispatch, &stranger, 1);
	put_on(&kit, &kit.bench.ring, 2, RBK_STRATEGY_AUTO);
	put_on(&kit, &kit.ring, 3, RBK_STRATEGY_AUTO);
	rig_work(&kit.bench.rig);
	assert_int_equal(step(&kit, kit.gpu), 2);
	assert_int_equal(step(&kit, kit.cpu), 3);
	assert_int_equal(expect_cqe(&kit.bench, 2, 0).device, GPU);
	assert_true(rig_take(&kit.ring, &cqe));
	assert_int_equal(cqe.device, CPU);

	dispatch_set_own_contention(dispatch, &kit.other, 0);
	put_on(&kit, &kit.ring, 4, RBK_STRATEGY_AUTO);
	rig_work(&kit.bench.rig);
	assert_int_equal(step(&kit, kit.gpu), 4);
	assert_true(rig_take(&kit.ring, &cqe));
	assert_int_equal(cqe.device, GPU);
}

/* --- The broker's own tasks --- */

struct own {
	struct dispatch_own own;
	struct exec_ref refs[2];
	unsigned int n_done;
	int res;
	struct dispatch *again; /* run the task once more */
};

static void on_own_done(struct dispatch_own *own, int res)
{
	struct own *test = container_of(own, struct own, own);

	test->n_done++;
	test->res = res;
	if (test->again)
		assert_int_equal(dispatch_run_own(test->again, own), -ECANCELED);
}

static void own_init(struct own *own, const struct kit *kit, uint8_t device)
{
	memset(own, 0, sizeof(*own));
	own->refs[0].arena = own->refs[1].arena = &kit->bench.arena->exec;
	own->refs[1].offset = Y_OFFSET;
	own->own.exec.plan = kit->plan->plan;
	own->own.exec.refs = own->refs;
	own->own.exec.count = 10;
	own->own.device = device;
	own->own.done = on_own_done;
}

static void own_finish(struct fake *fake, struct own *own, int res)
{
	assert_ptr_equal(fake->tasks[0], &own->own.exec);
	fake->n_tasks--;
	memmove(fake->tasks, fake->tasks + 1, fake->n_tasks * sizeof(*fake->tasks));
	own->own.exec.res = exec_task_begin(&own->own.exec) ? res : -ECANCELED;
	fake->done[fake->n_done++] = &own->own.exec;
}

TEST(test_own_task__starts_when_idle)
{
	struct own first, second, none;
	struct dispatch *dispatch;

	KIT(kit, 2, plain);
	dispatch = kit.bench.rig.dispatch;
	own_init(&first, &kit, GPU);
	own_init(&second, &kit, GPU);
	own_init(&none, &kit, 5);
	assert_int_equal(dispatch_run_own(dispatch, &none.own), -ENODEV);
	/* An own task does not start while a task is on the device or queued for it. */
	put_on(&kit, &kit.bench.ring, 1, RBK_STRATEGY_ONLY_GPU);
	rig_work(&kit.bench.rig);
	assert_int_equal(dispatch_run_own(dispatch, &first.own), 0);
	assert_int_equal(dispatch_run_own(dispatch, &second.own), 0);
	assert_int_equal(own_start(dispatch), 0);
	kit.gpu->capacity = 1;
	put_on(&kit, &kit.bench.ring, 2, RBK_STRATEGY_ONLY_GPU);
	rig_work(&kit.bench.rig);
	fake_finish(kit.gpu, 1, 0);
	kit.gpu->capacity = 0;
	rig_work(&kit.bench.rig);
	assert_int_equal(own_start(dispatch), 0);
	kit.gpu->capacity = 8;
	rig_work(&kit.bench.rig);
	assert_int_equal(step(&kit, kit.gpu), 2);
	/* Only one own task runs at a time. */
	assert_int_equal(own_start(dispatch), 1);
	assert_int_equal(own_start(dispatch), 0);
	assert_true(dispatch->flush_mask & 1u << GPU);
	/* Clients' tasks come after this own task, and before the next. */
	put_on(&kit, &kit.bench.ring, 3, RBK_STRATEGY_ONLY_GPU);
	rig_work(&kit.bench.rig);
	own_finish(kit.gpu, &first, -EIO);
	rig_work(&kit.bench.rig);
	assert_fields(first, (n_done, 1), (res, -EIO));
	assert_int_equal(own_start(dispatch), 0);
	assert_int_equal(step(&kit, kit.gpu), 3);
	assert_int_equal(own_start(dispatch), 1);
	own_finish(kit.gpu, &second, 0);
	rig_work(&kit.bench.rig);
	assert_fields(second, (n_done, 1), (res, 0));
	for (uint64_t i = 1; i <= 3; i++)
		expect_cqe(&kit.bench, i, 0);
	expect_none(&kit.bench);
	assert_int_equal(dispatch->n_submitted, 0);
}

TEST(test_own_task__stop)
{
	struct dispatch *dispatch;
	struct own running, waiting;

	KIT(kit, 2, plain);
	dispatch = kit.bench.rig.dispatch;
	own_init(&running, &kit, CPU);
	own_init(&waiting, &kit, CPU);
	running.again = waiting.again = dispatch;
	assert_int_equal(dispatch_run_own(dispatch, &running.own), 0);
	assert_int_equal(dispatch_run_own(dispatch, &waiting.own), 0);
	assert_int_equal(own_start(dispatch), 1);
	dispatch_stop(dispatch);
	assert_fields(waiting, (n_done, 1), (res, -ECANCELED));
	assert_int_equal(running.n_done, 0);
	assert_int_equal(dispatch->n_submitted, 1);
	own_finish(kit.cpu, &running, 0);
	rig_work(&kit.bench.rig);
	assert_fields(running, (n_done, 1), (res, -ECANCELED));
}

static void abandon(struct executor *executor, struct exec_task *task)
{
	fail_msg("not called");
}

/* A measurement that has begun, and may take long on a slow machine, does not hold up the end. */
TEST(test_own_task__stop_begun)
{
	for (unsigned int can_stop = 0; can_stop < 2; can_stop++) {
		struct dispatch *dispatch;
		struct own running;

		KIT(kit, 2, plain);
		dispatch = kit.bench.rig.dispatch;
		if (can_stop)
			kit.cpu->ops.abandon = abandon;
		own_init(&running, &kit, CPU);
		running.again = dispatch;
		assert_int_equal(dispatch_run_own(dispatch, &running.own), 0);
		assert_int_equal(own_start(dispatch), 1);
		assert_true(exec_task_begin(&running.own.exec));
		dispatch_stop(dispatch);
		assert_int_equal(atomic_load(&running.own.exec.state),
				 can_stop ? EXEC_CANCELLED : EXEC_RUNNING);
		own_finish(kit.cpu, &running, -ECANCELED);
		rig_work(&kit.bench.rig);
		assert_fields(running, (n_done, 1), (res, -ECANCELED));
	}
}

/* --- No memory --- */

TEST(test_no_memory__rings_and_plans)
{
	unsigned int n_failed = 0;
	struct server_hooks hooks;
	struct session_plan slot;
	int r;

	KIT(kit, 2, plain);
	hooks = dispatch_hooks(kit.bench.rig.dispatch);
	for (unsigned int n = 1;; n++) {
		slot = (struct session_plan){.plan = kit.plan->plan, .session = kit.plan->session};
		fail_alloc_at(n);
		r = hooks.plan_ready(hooks.context, &slot);
		if (!fail_alloc_stop())
			break;
		n_failed++;
		assert_int_equal(r, -ENOMEM);
		/* Free the plan, as session-plan.c does when it is rejected. */
		hooks.plan_freed(hooks.context, &slot);
	}
	assert_int_equal(r, 0);
	hooks.plan_freed(hooks.context, &slot);
	assert_true(n_failed >= 1);

	n_failed = 0;
	for (unsigned int n = 1;; n++) {
		struct session_ring ring = {
			.session = kit.bench.rig.session,
			.n_entries = 4,
			.cq = kit.ring.ring->cq,
		};
		struct tenant *own = ring.session->tenant;
		struct tenant third = {.weight = 1, .n_refs = 1};

		ring.session->tenant = &third;
		fail_alloc_at(n);
		r = hooks.ring_make(hooks.context, &ring);
		if (r == 0)
			r = hooks.ring_added(hooks.context, &ring);
		ring.session->tenant = own;
		if (!fail_alloc_stop()) {
			assert_int_equal(r, 0);
			ring.is_closing = true;
			hooks.ring_closing(hooks.context, &ring);
			hooks.ring_freed(hooks.context, &ring);
			hooks.ring_unmake(hooks.context, &ring);
			assert_int_equal(third.n_refs, 1);
			break;
		}
		n_failed++;
		assert_int_equal(r, -ENOMEM);
		hooks.ring_unmake(hooks.context, &ring);
		assert_int_equal(third.n_refs, 1);
	}
	/* The ring, the chunk of its tasks, its flow, and the placer's part of the flow. */
	assert_true(n_failed >= 4);
}

TEST(test_no_memory__dispatcher)
{
	struct dispatch_options options;
	struct dispatch *dispatch;
	unsigned int n_failed = 0;
	int r;

	KIT(kit, 2, plain);
	options = kit.bench.rig.dispatch->options;
	options.spin_ns = -1;
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = dispatch_new(&options, &dispatch);
		if (!fail_alloc_stop())
			break;
		n_failed++;
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(r, 0);
	assert_true(n_failed >= 6);
	/* Rings of this dispatcher adapt their spin times. */
	assert_true(dispatch->min_spin_ticks < dispatch->max_spin_ticks);
	dispatch_free(dispatch);
}
