/* SPDX-License-Identifier: MIT */
/* Dispatcher bench; see dispatch-bench.h. */
#include <errno.h>

#include "plan/cut-points.h"
#include "session/segments.h"
#include "support/one-op.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

static struct place_profile profile_of(const struct bench_speed *speed)
{
	struct place_profile profile = {
		.name = "fake",
		.source = "fake",
		.is_valid = speed->bytes_per_ns > 0,
		.n_servers = speed->n_servers ? speed->n_servers : 1,
		.n_servers_per_task = 1,
		.share_min_ns = 1,
		.task_ns = 1,
		.node_ns = 1,
	};

	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
			profile.rates[i][k] = (struct place_rate){
				.flops_per_ns = 1000,
				.bytes_per_ns = speed->bytes_per_ns,
			};
	return profile;
}

static void bench_complete(struct bench *bench, uint32_t n_entries);

void bench_begin_placement(struct bench *bench, uint32_t n_devices, uint32_t n_entries,
			   const struct place_config *config, const struct bench_speed *speeds)
{
	struct place_profile profiles[RIG_MAX_DEVICES];
	struct rig_placement placement = {.config = config};

	for (uint32_t i = 0; i < n_devices; i++) {
		profiles[i] = profile_of(&speeds[i]);
		placement.profiles[i] = &profiles[i];
		if (profiles[i].is_valid)
			assert_null(place_profile_refusal(&profiles[i]));
	}
	rig_init_placement(&bench->rig, n_devices, &placement);
	bench_complete(bench, n_entries);
}

void bench_begin(struct bench *bench, uint32_t n_devices, uint32_t n_entries)
{
	rig_init(&bench->rig, n_devices);
	bench_complete(bench, n_entries);
}

static void bench_complete(struct bench *bench, uint32_t n_entries)
{
	rig_ring_new(&bench->rig, n_entries, &bench->ring);
	bench->arena = rig_arena_new(&bench->rig, 65536, false);
	bench->tiny = rig_relu(&bench->rig, false);
	bench->queued = rig_relu(&bench->rig, true);
	bench->cpu = &bench->rig.fakes[CPU];
	bench->gpu = &bench->rig.fakes[GPU];
}

void bench_end(struct bench *bench)
{
	rig_ring_deinit(&bench->ring);
	rig_deinit(&bench->rig);
}

void put_bare(struct bench *bench, uint8_t opcode, uint64_t user_data, uint8_t flags)
{
	rig_put(&bench->ring,
		&(const struct rbk_sqe){.opcode = opcode, .user_data = user_data, .flags = flags});
}

struct rbk_sqe run_entry(const struct bench *bench, const struct session_plan *plan,
			 uint64_t user_data)
{
	return (struct rbk_sqe){
		.opcode = RBK_OP_RUN,
		.plan_id = plan->id,
		.user_data = user_data,
		.count = 1,
		.refs = {RBK_REF(bench->arena->id, 0), RBK_REF(bench->arena->id, 4096)},
	};
}

void put_run(struct bench *bench, const struct session_plan *plan, uint64_t user_data,
	     uint8_t flags)
{
	struct rbk_sqe sqe = run_entry(bench, plan, user_data);

	sqe.flags = flags;
	rig_put(&bench->ring, &sqe);
}

void put_strategy(struct bench *bench, uint64_t user_data, uint8_t strategy)
{
	struct rbk_sqe sqe = run_entry(bench, bench->queued, user_data);

	sqe.strategy = strategy;
	rig_put(&bench->ring, &sqe);
}

void put_bad(struct bench *bench, uint64_t user_data, uint8_t flags)
{
	struct rbk_sqe sqe = run_entry(bench, bench->queued, user_data);

	sqe.count = 0;
	sqe.flags = flags;
	rig_put(&bench->ring, &sqe);
}

void put_cancel(struct bench *bench, uint64_t user_data, uint64_t target, uint8_t flags)
{
	rig_put(&bench->ring, &(const struct rbk_sqe){.opcode = RBK_OP_CANCEL,
						      .user_data = user_data,
						      .target = target,
						      .flags = flags});
}

struct describe *bench_chain(void)
{
	struct describe *d = describe_new("chain", 8);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_node(d, "Relu", "", "x", "a");
	describe_node(d, "Abs", "", "a", "b");
	describe_node(d, "Neg", "", "b", "y");
	return d;
}

uint64_t bench_cut_seed(struct describe *describe)
{
	struct plan *plan = expect_plan(describe);
	struct cut_wish wish = {.seed = 0};
	struct cut_choice choice;

	do {
		wish.seed++;
		cut_points(plan, &wish, &choice);
	} while (choice.n + 1 != plan->n_nodes);
	plan_free(plan);
	return wish.seed;
}

struct session_plan *bench_cut_plan(struct bench *bench, struct describe *describe,
				    struct describe *same)
{
	struct session_plan *plan;

	bench->rig.server->options.cut_seed = bench_cut_seed(same);
	plan = rig_plan_new(&bench->rig, describe);
	bench->rig.server->options.cut_seed = 0;
	assert_non_null(plan->segments);
	assert_int_equal(plan->segments->n, plan->plan->n_nodes);
	return plan;
}

struct session_plan *bench_relu(struct bench *bench, uint32_t width, uint32_t max_count)
{
	struct describe *describe = describe_new("relu", max_count);
	struct session_plan *plan;

	describe_input(describe, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, width));
	describe_output(describe, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, width));
	describe_node(describe, "Relu", "it", "x", "y");
	plan = rig_plan_new(&bench->rig, describe);
	plan->inline_max_count = 0;
	return plan;
}

struct rbk_sqe bench_entry(const struct session_plan *plan, const struct session_arena *arena,
			   uint64_t y_offset, uint32_t count, uint64_t user_data)
{
	return (struct rbk_sqe){
		.opcode = RBK_OP_RUN,
		.plan_id = plan->id,
		.user_data = user_data,
		.count = count,
		.refs = {RBK_REF(arena->id, 0), RBK_REF(arena->id, y_offset)},
	};
}

struct rbk_cqe expect_cqe_(struct bench *bench, uint64_t user_data, int res, int line)
{
	struct rbk_cqe cqe;

	if (!rig_take(&bench->ring, &cqe))
		fail_msg("line %d: no completion", line);
	if (cqe.user_data != user_data || cqe.res != res)
		fail_msg("line %d: %llu completed with %d, not %llu with %d", line,
			 (unsigned long long)cqe.user_data, cqe.res, (unsigned long long)user_data,
			 res);
	return cqe;
}

void expect_none_(struct bench *bench, int line)
{
	struct rbk_cqe cqe;

	if (rig_take(&bench->ring, &cqe))
		fail_msg("line %d: %llu completed with %d", line, (unsigned long long)cqe.user_data,
			 cqe.res);
}

void finish(struct bench *bench, struct fake *fake, uint64_t user_data, int res)
{
	fake_finish(fake, user_data, res);
	rig_work(&bench->rig);
}

void bench_break_gpu(struct bench *bench)
{
	uint8_t state = bench->queued->plan->device_state[GPU];
	struct rbk_cqe cqe;

	bench->queued->plan->device_state[GPU] = PLAN_DEVICE_READY;
	for (unsigned int i = 0; i < 100; i++) {
		put_strategy(bench, 1, RBK_STRATEGY_DEVICE(GPU));
		rig_work(&bench->rig);
		if (bench->gpu->n_tasks == 0)
			break;
		finish(bench, bench->gpu, 1, -EIO);
		finish(bench, bench->cpu, 1, 0);
		expect_cqe(bench, 1, 0);
	}
	assert_int_equal(bench->gpu->n_tasks, 0);
	finish(bench, bench->cpu, 1, 0);
	cqe = expect_cqe(bench, 1, 0);
	assert_int_equal(cqe.device, CPU);
	assert_int_equal(cqe.reason, RBK_REASON_BREAKER_OPEN);
	bench->queued->plan->device_state[GPU] = state;
}

void bench_pin(struct bench *bench, struct session_plan *plan, uint8_t device)
{
	const struct server_hooks hooks = dispatch_hooks(bench->rig.dispatch);
	uint32_t inline_max_count = plan->inline_max_count;

	assert_int_equal(plan->n_in_flight, 0);
	hooks.plan_freed(hooks.context, plan);
	plan->plan->pinned = device != RBK_DEVICE_NONE;
	plan->plan->pinned_device = plan->plan->pinned ? device : 0;
	assert_int_equal(hooks.plan_ready(hooks.context, plan), 0);
	plan->inline_max_count = inline_max_count;
}
