/* SPDX-License-Identifier: MIT */
/*
 * What tests of the dispatcher share
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "unit/dispatch-bench.h"

void bench_begin(struct bench *bench, uint32_t n_devices, uint32_t n_entries)
{
	rig_init(&bench->rig, n_devices);
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
