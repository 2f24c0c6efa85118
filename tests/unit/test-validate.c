/* SPDX-License-Identifier: MIT */
/*
 * Validation of entries: each errno that struct rbk_sqe documents, on both sides of its boundary.
 * An entry valid in all but one respect must fail for that one. The diagnosis of refused entries
 * must agree about all of them.
 */
#include <string.h>

#include <errno.h>

#include "dispatch/validate.h"
#include "shm/sqe-check.h"
#include "support/test.h"
#include "util/checked.h"

enum {
	PAGE = 4096,
	/* Arenas. */
	FIRST = 0,
	SEALED = 1,
	TWIN = 2,  /* the memory of FIRST again */
	OTHER = 3, /* the inode number of FIRST on another device */
	GAP = 4,   /* no arena */
	TABLES = 5,
	N_ARENAS = 6,
	/* Plans, by their number of bindings. */
	TWO = 0,
	FIVE = 1,
	SIX = 2,
	WIDEST = 3,
	HOLE = 4, /* no plan */
	N_PLANS = 5,
	MAX_COUNT = 8,
	ROW_BYTES = 64,
};

#define PLAN_ID(slot) ((3u << 16) | (slot))

struct bench {
	/* Twice the arena's size, with valid references beyond its end. */
	_Alignas(64) uint64_t tables[2 * PAGE / sizeof(uint64_t)];
	struct session session;
	struct session_arena arenas[N_ARENAS], *arena_slots[N_ARENAS];
	/* one more slot than N_PLANS */
	struct session_plan slots[N_PLANS + 1], *plan_slots[N_PLANS + 1];
	struct plan plans[N_PLANS];
	struct exec_ref refs[RBK_MAX_REFS];
	struct session_plan *plan;
};

/* Only TABLES has memory: reading any other arena would crash. */
static void bench_init(struct bench *bench)
{
	static const uint16_t n_bindings[] = {2, 5, 6, RBK_MAX_REFS};

	memset(bench, 0, sizeof(*bench));
	for (unsigned int i = 0; i < N_ARENAS; i++) {
		bench->arenas[i].exec = (struct exec_arena){
			.bytes = PAGE, .is_fixed = true, .dev = 7, .ino = 100 + i};
		bench->arena_slots[i] = i == GAP ? NULL : &bench->arenas[i];
	}
	bench->arenas[SEALED].exec.immutable = true;
	bench->arenas[TWIN].exec.ino = bench->arenas[FIRST].exec.ino;
	bench->arenas[OTHER].exec.ino = bench->arenas[FIRST].exec.ino;
	bench->arenas[OTHER].exec.dev = 8;
	bench->arenas[TABLES].exec.base = (uint8_t *)bench->tables;
	for (unsigned int i = 0; i < HOLE; i++) {
		bench->plans[i].max_count = MAX_COUNT;
		bench->plans[i].n_bindings = n_bindings[i];
		for (unsigned int k = 0; k < n_bindings[i]; k++)
			bench->plans[i].bindings[k].fixed_bytes = 1;
		bench->plans[i].bindings[n_bindings[i] - 1].written = true;
		bench->slots[i] = (struct session_plan){.plan = &bench->plans[i], .id = PLAN_ID(i)};
		bench->plan_slots[i] = &bench->slots[i];
	}
	bench->slots[N_PLANS] = (struct session_plan){.plan = bench->plans, .id = PLAN_ID(N_PLANS)};
	bench->plan_slots[N_PLANS] = &bench->slots[N_PLANS];
	bench->plans[TWO].bindings[0] = (struct plan_binding){.row_bytes = ROW_BYTES};
	bench->plans[TWO].bindings[1] =
		(struct plan_binding){.row_bytes = ROW_BYTES, .written = true};
	bench->session.arenas = bench->arena_slots;
	bench->session.n_arenas = N_ARENAS;
	bench->session.plans = bench->plan_slots;
	bench->session.n_plans = N_PLANS;
}

/* Return a valid entry of the plan of two bindings, which reads @x and writes @y. */
static struct rbk_sqe run(uint32_t count, uint64_t x, uint64_t y)
{
	return (struct rbk_sqe){
		.opcode = RBK_OP_RUN, .plan_id = PLAN_ID(TWO), .count = count, .refs = {x, y}};
}

/* Return a valid entry of plan @slot, with reference i at i * 64 in FIRST. */
static struct rbk_sqe run_wide(struct bench *bench, unsigned int slot)
{
	struct rbk_sqe sqe = {.opcode = RBK_OP_RUN, .plan_id = PLAN_ID(slot), .count = 1};
	unsigned int n = bench->plans[slot].n_bindings;

	for (unsigned int i = 0; i < n; i++)
		bench->tables[i] = RBK_REF(FIRST, i * 64 % PAGE);
	if (n > RBK_SQE_REFS) {
		sqe.flags = RBK_SQE_ARG_TABLE;
		sqe.table = RBK_REF(TABLES, 0);
		sqe.n_refs = n;
	} else {
		memcpy(sqe.refs, bench->tables, n * sizeof(uint64_t));
	}
	return sqe;
}

#define expect_judged(bench, res, ...) expect_judged_(bench, res, __VA_ARGS__, __LINE__)
static void expect_judged_(struct bench *bench, int res, struct rbk_sqe sqe, int line)
{
	int got = validate_entry(&bench->session, &sqe, bench->refs, &bench->plan);
	struct sqe_fault fault = {.field = ""};

	if (got != res)
		fail_msg("line %d: %d, not %d", line, got, res);
	got = dispatch_find_fault(&bench->session, &sqe, false, SQE_ANY_DISTANCE, &fault);
	if (got != res)
		fail_msg("line %d: the diagnosis is %d (%s: %s), not %d", line, got, fault.field,
			 fault.reason, res);
	if (res && (!fault.field[0] || !fault.reason[0]))
		fail_msg("line %d: the diagnosis has no field or no reason", line);
}

/* ---- All entries ---- */

TEST(test_opcode__unknown)
{
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = RBK_OP_COUNT; i < 256; i++)
		expect_judged(&bench, -EINVAL, (struct rbk_sqe){.opcode = (uint8_t)i});
	expect_judged(&bench, 0, (struct rbk_sqe){.opcode = RBK_OP_NOP});
	expect_judged(&bench, 0, (struct rbk_sqe){.opcode = RBK_OP_BARRIER});
	expect_judged(&bench, 0, (struct rbk_sqe){.opcode = RBK_OP_CANCEL});
}

TEST(test_flags__unknown_or_out_of_place)
{
	static const uint8_t bare[] = {RBK_OP_NOP, RBK_OP_CANCEL, RBK_OP_BARRIER, RBK_OP_PREFETCH,
				       RBK_OP_EVICT};
	struct rbk_sqe sqe;
	struct bench bench;

	bench_init(&bench);
	for (unsigned int flags = 0; flags < 256; flags++) {
		if (flags & RBK_SQE_ARG_TABLE)
			continue;
		sqe = run(1, RBK_REF(FIRST, 0), RBK_REF(FIRST, 64));
		sqe.flags = (uint8_t)flags;
		expect_judged(&bench,
			      flags & ~(unsigned int)RBK_SQE_FLAGS ? -EINVAL
			      : flags & RBK_SQE_AFTER              ? -EOPNOTSUPP
								   : 0,
			      sqe);
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(bare); i++) {
		sqe = (struct rbk_sqe){.opcode = bare[i], .flags = RBK_SQE_ARG_TABLE};
		expect_judged(&bench, -EINVAL, sqe);
		sqe.flags = RBK_SQE_PARTITION;
		expect_judged(&bench, -EINVAL, sqe);
	}
	sqe = (struct rbk_sqe){.opcode = RBK_OP_NOP, .flags = RBK_SQE_LINK};
	expect_judged(&bench, 0, sqe);
	sqe.opcode = RBK_OP_CANCEL;
	expect_judged(&bench, 0, sqe);
	sqe.opcode = RBK_OP_BARRIER;
	expect_judged(&bench, -EINVAL, sqe);
}

TEST(test_strategy__each)
{
	struct rbk_sqe sqe = run(1, RBK_REF(FIRST, 0), RBK_REF(FIRST, 64));
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 0; i < 256; i++) {
		sqe.strategy = (uint8_t)i;
		expect_judged(&bench,
			      i < RBK_STRATEGY_COUNT || (i >= 0x80 && i < 0x80 + RBK_MAX_DEVICES)
				      ? 0
				      : -EINVAL,
			      sqe);
	}
}

TEST(test_priority__each)
{
	struct rbk_sqe sqe = run(1, RBK_REF(FIRST, 0), RBK_REF(FIRST, 64));
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 0; i < 256; i++) {
		sqe.priority = (uint8_t)i;
		expect_judged(&bench, i < RBK_PRIORITY_COUNT ? 0 : -EINVAL, sqe);
	}
}

/* ---- Entries without operands ---- */

TEST(test_bare__reserved)
{
	static const uint8_t bare[] = {RBK_OP_NOP, RBK_OP_BARRIER};
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 0; i < ARRAY_SIZE(bare); i++) {
		struct rbk_sqe sqe = {.opcode = bare[i], .user_data = UINT64_MAX};

		expect_judged(&bench, 0, sqe);
		sqe.plan_id = 1;
		expect_judged(&bench, -EINVAL, sqe);
		sqe.plan_id = 0;
		sqe.count = 1;
		expect_judged(&bench, -EINVAL, sqe);
		sqe.count = 0;
		for (unsigned int k = 0; k < RBK_SQE_REFS; k++) {
			sqe.refs[k] = 1ull << 63;
			expect_judged(&bench, -EINVAL, sqe);
			sqe.refs[k] = 0;
		}
	}
}

TEST(test_cancel__reserved)
{
	struct rbk_sqe sqe = {.opcode = RBK_OP_CANCEL, .target = UINT64_MAX};
	struct bench bench;

	bench_init(&bench);
	expect_judged(&bench, 0, sqe);
	sqe.plan_id = 1;
	expect_judged(&bench, -EINVAL, sqe);
	sqe.plan_id = 0;
	sqe.count = 1;
	expect_judged(&bench, -EINVAL, sqe);
	sqe.count = 0;
	for (unsigned int k = 0; k < 4; k++) {
		sqe.cancel_reserved[k] = 1;
		expect_judged(&bench, -EINVAL, sqe);
		sqe.cancel_reserved[k] = 0;
	}
}

/* RBK_FEAT_RESIDENCY was not negotiated. */
TEST(test_residency__not_offered)
{
	struct rbk_sqe sqe = {.opcode = RBK_OP_PREFETCH, .plan_id = PLAN_ID(TWO)};
	struct bench bench;

	bench_init(&bench);
	expect_judged(&bench, -EOPNOTSUPP, sqe);
	sqe.opcode = RBK_OP_EVICT;
	expect_judged(&bench, -EOPNOTSUPP, sqe);
	sqe.plan_id = PLAN_ID(HOLE);
	expect_judged(&bench, -ENOENT, sqe);
}

TEST(test_residency__form)
{
	struct rbk_sqe sqe = {.opcode = RBK_OP_PREFETCH, .plan_id = PLAN_ID(TWO)};
	struct bench bench;

	bench_init(&bench);
	bench.session.features = RBK_FEAT_RESIDENCY;
	for (sqe.opcode = RBK_OP_PREFETCH; sqe.opcode <= RBK_OP_EVICT; sqe.opcode++) {
		for (unsigned int strategy = 0; strategy < 256; strategy++) {
			bool is_named = strategy >= RBK_STRATEGY_DEVICE(0) &&
					strategy < RBK_STRATEGY_DEVICE(RBK_MAX_DEVICES);

			sqe.strategy = (uint8_t)strategy;
			expect_judged(&bench,
				      is_named || strategy == RBK_STRATEGY_AUTO ? 0 : -EINVAL, sqe);
		}
		sqe.strategy = 0;
		for (unsigned int flags = 0; flags < 256; flags++) {
			unsigned int allowed = RBK_SQE_LINK | RBK_SQE_AFTER;

			if (sqe.opcode == RBK_OP_PREFETCH)
				allowed |= RBK_SQE_WAIT_MEMORY;
			sqe.flags = (uint8_t)flags;
			expect_judged(&bench,
				      flags & ~allowed        ? -EINVAL
				      : flags & RBK_SQE_AFTER ? -EOPNOTSUPP
							      : 0,
				      sqe);
		}
		sqe.flags = 0;
		sqe.count = 1;
		expect_judged(&bench, -EINVAL, sqe);
		sqe.count = 0;
		for (unsigned int i = 0; i < RBK_SQE_REFS; i++) {
			sqe.refs[i] = 1ull << 63;
			expect_judged(&bench, -EINVAL, sqe);
			sqe.refs[i] = 0;
		}
	}
}

/* ---- The plan ---- */

TEST(test_plan__must_exist)
{
	struct rbk_sqe sqe = run(1, RBK_REF(FIRST, 0), RBK_REF(FIRST, 64));
	static const uint32_t wrong[] = {(2u << 16) | TWO, (4u << 16) | TWO, TWO,
					 PLAN_ID(HOLE),    PLAN_ID(N_PLANS), PLAN_ID(0xffff),
					 UINT32_MAX,       1u << 31};
	struct bench bench;

	bench_init(&bench);
	expect_judged(&bench, 0, sqe);
	assert_ptr_equal(bench.plan, &bench.slots[TWO]);
	for (unsigned int i = 0; i < ARRAY_SIZE(wrong); i++) {
		sqe.plan_id = wrong[i];
		expect_judged(&bench, -ENOENT, sqe);
	}
	/* The slot has its next plan, so the old id is invalid. */
	bench.slots[TWO].id = (4u << 16) | TWO;
	sqe.plan_id = PLAN_ID(TWO);
	expect_judged(&bench, -ENOENT, sqe);
	sqe.plan_id = (4u << 16) | TWO;
	expect_judged(&bench, 0, sqe);
}

TEST(test_count__bounds)
{
	static const uint32_t counts[] = {0, 1, MAX_COUNT, MAX_COUNT + 1, UINT32_MAX};
	static const int results[] = {-ERANGE, 0, 0, -ERANGE, -ERANGE};
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 0; i < ARRAY_SIZE(counts); i++)
		expect_judged(&bench, results[i],
			      run(counts[i], RBK_REF(FIRST, 0), RBK_REF(FIRST, 2048)));
}

/* ---- References ---- */

TEST(test_ref__resolved)
{
	struct bench bench;

	bench_init(&bench);
	expect_judged(&bench, 0, run(2, RBK_REF(SEALED, 64), RBK_REF(OTHER, 128)));
	assert_ptr_equal(bench.refs[0].arena, &bench.arenas[SEALED].exec);
	assert_int_equal(bench.refs[0].offset, 64);
	assert_ptr_equal(bench.refs[1].arena, &bench.arenas[OTHER].exec);
	assert_int_equal(bench.refs[1].offset, 128);
}

TEST(test_ref__no_arena)
{
	static const uint16_t ids[] = {GAP, N_ARENAS, 0x8000, 0xffff};
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 0; i < ARRAY_SIZE(ids); i++) {
		expect_judged(&bench, -EBADF, run(1, RBK_REF(ids[i], 0), RBK_REF(FIRST, 64)));
		expect_judged(&bench, -EBADF, run(1, RBK_REF(FIRST, 0), RBK_REF(ids[i], 64)));
	}
}

TEST(test_ref__misaligned)
{
	static const uint64_t offsets[] = {1, 4, 32, 63, 65, 96, (1ull << 48) - 1};
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 0; i < ARRAY_SIZE(offsets); i++) {
		expect_judged(&bench, -EINVAL,
			      run(1, RBK_REF(FIRST, offsets[i]), RBK_REF(OTHER, 0)));
		expect_judged(&bench, -EINVAL,
			      run(1, RBK_REF(OTHER, 0), RBK_REF(FIRST, offsets[i])));
	}
}

/* Up to the last byte of the arena, and no further. */
TEST(test_ref__beyond_the_arena)
{
	static const uint64_t offsets[] = {PAGE - 64, PAGE, PAGE + 64, 1ull << 47,
					   (1ull << 48) - 64};
	struct bench bench;

	bench_init(&bench);
	for (unsigned int side = 0; side < 2; side++) {
		uint64_t last = RBK_REF(FIRST, PAGE - MAX_COUNT * ROW_BYTES);
		uint64_t over = RBK_REF(FIRST, PAGE - MAX_COUNT * ROW_BYTES + 64);
		uint64_t other = RBK_REF(OTHER, 0);

		expect_judged(&bench, 0, run(MAX_COUNT, side ? other : last, side ? last : other));
		expect_judged(&bench, -EFAULT,
			      run(MAX_COUNT, side ? other : over, side ? over : other));
		expect_judged(&bench, 0,
			      run(MAX_COUNT - 1, side ? other : over, side ? over : other));
		for (unsigned int i = 0; i < ARRAY_SIZE(offsets); i++) {
			uint64_t ref = RBK_REF(FIRST, offsets[i]);

			expect_judged(&bench, i ? -EFAULT : 0,
				      run(1, side ? other : ref, side ? ref : other));
		}
		bench.plans[TWO].bindings[side].row_bytes = 0;
		bench.plans[TWO].bindings[side].fixed_bytes = PAGE;
		expect_judged(
			&bench, 0,
			run(1, RBK_REF(side ? OTHER : FIRST, 0), RBK_REF(side ? FIRST : OTHER, 0)));
		bench.plans[TWO].bindings[side].fixed_bytes = PAGE + 1;
		expect_judged(
			&bench, -EFAULT,
			run(1, RBK_REF(side ? OTHER : FIRST, 0), RBK_REF(side ? FIRST : OTHER, 0)));
		bench.plans[TWO].bindings[side] =
			(struct plan_binding){.row_bytes = ROW_BYTES, .written = side};
	}
}

/* The largest possible plan at the largest count: no sum wraps around. */
TEST(test_ref__largest_plan)
{
	uint64_t bytes;
	struct bench bench;

	bench_init(&bench);
	bench.plans[TWO].max_count = INT32_MAX;
	bench.plans[TWO].bindings[0].row_bytes = PLAN_MAX_BYTES / INT32_MAX;
	bytes = bench.plans[TWO].bindings[0].row_bytes * INT32_MAX;
	bench.plans[TWO].bindings[1] = (struct plan_binding){.fixed_bytes = 64, .written = true};
	bench.arenas[FIRST].exec.bytes = (bytes + 63) & ~63ull;
	expect_judged(&bench, 0, run(INT32_MAX, RBK_REF(FIRST, 0), RBK_REF(OTHER, 0)));
	expect_judged(&bench, -EFAULT, run(INT32_MAX, RBK_REF(FIRST, 64), RBK_REF(OTHER, 0)));
	expect_judged(&bench, -EFAULT,
		      run(INT32_MAX, RBK_REF(FIRST, (1ull << 48) - 64), RBK_REF(OTHER, 0)));
	/* An output in the input's last bytes overlaps it. */
	expect_judged(&bench, -EINVAL,
		      run(INT32_MAX, RBK_REF(FIRST, 0),
			  RBK_REF(FIRST, bench.arenas[FIRST].exec.bytes - 64)));
}

TEST(test_ref__immutable_output)
{
	struct bench bench;

	bench_init(&bench);
	expect_judged(&bench, 0, run(1, RBK_REF(SEALED, 0), RBK_REF(FIRST, 0)));
	expect_judged(&bench, -EACCES, run(1, RBK_REF(FIRST, 0), RBK_REF(SEALED, 0)));
	expect_judged(&bench, -EFAULT, run(1, RBK_REF(FIRST, 0), RBK_REF(SEALED, PAGE)));
}

TEST(test_ref__unused)
{
	struct rbk_sqe sqe = run(1, RBK_REF(FIRST, 0), RBK_REF(FIRST, 64));
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 2; i < RBK_SQE_REFS; i++) {
		sqe.refs[i] = RBK_REF(FIRST, 128);
		expect_judged(&bench, -EINVAL, sqe);
		sqe.refs[i] = 0;
	}
	expect_judged(&bench, 0, sqe);
}

/* ---- Overlaps ---- */

/* Adjacent tensors are valid; one shared byte is not. */
TEST(test_overlap__by_one_byte)
{
	static const struct {
		uint64_t in_bytes, out_bytes, in, out;
		int res;
	} cases[] = {
		{64, 64, 0, 64, 0},        {65, 64, 0, 64, -EINVAL}, {64, 64, 64, 0, 0},
		{64, 65, 64, 0, -EINVAL},  {64, 64, 0, 0, -EINVAL},  {256, 1, 0, 192, -EINVAL},
		{1, 256, 192, 0, -EINVAL}, {256, 64, 0, 256, 0},     {193, 64, 0, 192, -EINVAL},
		{192, 64, 0, 192, 0},
	};
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		bench.plans[TWO].bindings[0] =
			(struct plan_binding){.fixed_bytes = cases[i].in_bytes};
		bench.plans[TWO].bindings[1] =
			(struct plan_binding){.fixed_bytes = cases[i].out_bytes, .written = true};
		expect_judged(&bench, cases[i].res,
			      run(1, RBK_REF(FIRST, cases[i].in), RBK_REF(FIRST, cases[i].out)));
	}
}

TEST(test_overlap__grows_with_count)
{
	struct bench bench;

	bench_init(&bench);
	for (uint32_t count = 1; count <= MAX_COUNT; count++)
		expect_judged(&bench, count <= 4 ? 0 : -EINVAL,
			      run(count, RBK_REF(FIRST, 0), RBK_REF(FIRST, 4 * ROW_BYTES)));
}

/* Memory is identified by device and inode, not by the arena's id. */
TEST(test_overlap__two_arenas_of_one_memfd)
{
	struct bench bench;

	bench_init(&bench);
	expect_judged(&bench, -EINVAL, run(1, RBK_REF(FIRST, 0), RBK_REF(TWIN, 0)));
	expect_judged(&bench, -EINVAL, run(2, RBK_REF(TWIN, 0), RBK_REF(FIRST, 64)));
	expect_judged(&bench, 0, run(1, RBK_REF(TWIN, 0), RBK_REF(FIRST, 64)));
	expect_judged(&bench, 0, run(1, RBK_REF(FIRST, 0), RBK_REF(OTHER, 0)));
	expect_judged(&bench, 0, run(1, RBK_REF(SEALED, 0), RBK_REF(FIRST, 0)));
}

/* Inputs may be identical; outputs and states may not. */
TEST(test_overlap__inputs_and_outputs)
{
	struct rbk_sqe sqe;
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 0; i < 5; i++) {
		for (unsigned int k = 0; k < 5; k++) {
			sqe = run_wide(&bench, FIVE);
			bench.plans[FIVE].bindings[3].written = true;
			sqe.refs[i] = sqe.refs[k];
			expect_judged(&bench, i != k && (i >= 3 || k >= 3) ? -EINVAL : 0, sqe);
		}
	}
}

/* ---- Argument tables ---- */

TEST(test_table__five_and_six)
{
	const uint64_t sixth = RBK_REF(FIRST, 5 * 64);
	struct rbk_sqe sqe, two[2];
	struct bench bench;

	bench_init(&bench);
	expect_judged(&bench, 0, run_wide(&bench, FIVE));
	expect_judged(&bench, 0, run_wide(&bench, SIX));
	/*
	 * Six references do not fit into an entry, even if the next entry begins with a valid
	 * reference.
	 */
	two[0] = run_wide(&bench, FIVE);
	two[0].plan_id = PLAN_ID(SIX);
	memcpy(&two[1], &sixth, sizeof(sixth));
	assert_int_equal(validate_entry(&bench.session, two, bench.refs, &bench.plan), -EINVAL);
	/* Five references may be in a table. */
	sqe = run_wide(&bench, SIX);
	sqe.plan_id = PLAN_ID(FIVE);
	sqe.n_refs = 5;
	expect_judged(&bench, 0, sqe);
}

TEST(test_table__widest)
{
	struct rbk_sqe sqe;
	struct bench bench;

	bench_init(&bench);
	sqe = run_wide(&bench, WIDEST);
	expect_judged(&bench, 0, sqe);
	for (unsigned int i = 0; i < RBK_MAX_REFS; i++) {
		assert_ptr_equal(bench.refs[i].arena, &bench.arenas[FIRST].exec);
		assert_int_equal(bench.refs[i].offset, i * 64);
	}
	/* The table's last reference is validated, too. */
	bench.tables[RBK_MAX_REFS - 1] = RBK_REF(GAP, 0);
	expect_judged(&bench, -EBADF, sqe);
	bench.tables[RBK_MAX_REFS - 1] = RBK_REF(SEALED, 0);
	expect_judged(&bench, -EACCES, sqe);
	bench.tables[RBK_MAX_REFS - 1] = RBK_REF(FIRST, PAGE);
	expect_judged(&bench, -EFAULT, sqe);
	bench.tables[RBK_MAX_REFS - 1] = RBK_REF(FIRST, 32);
	expect_judged(&bench, -EINVAL, sqe);
	bench.tables[RBK_MAX_REFS - 1] = RBK_REF(FIRST, 0);
	expect_judged(&bench, -EINVAL, sqe);
	bench.tables[RBK_MAX_REFS - 1] = RBK_REF(OTHER, 0);
	expect_judged(&bench, 0, sqe);
}

TEST(test_table__wrong_number)
{
	static const uint32_t wrong[] = {0, 1, 5, 7, 64, 65, UINT32_MAX, 6u | 1u << 31};
	struct rbk_sqe sqe;
	struct bench bench;

	bench_init(&bench);
	sqe = run_wide(&bench, SIX);
	for (unsigned int i = 0; i < ARRAY_SIZE(wrong); i++) {
		sqe.n_refs = wrong[i];
		expect_judged(&bench, -EINVAL, sqe);
	}
	/* A plan without bindings needs no table. */
	bench.plans[SIX].n_bindings = 0;
	sqe.n_refs = 0;
	expect_judged(&bench, -EINVAL, sqe);
}

TEST(test_table__reserved)
{
	struct rbk_sqe sqe;
	struct bench bench;

	bench_init(&bench);
	sqe = run_wide(&bench, SIX);
	sqe.state_rows = 1;
	expect_judged(&bench, -EINVAL, sqe);
	sqe.state_rows = 0;
	for (unsigned int i = 0; i < 3; i++) {
		sqe.table_reserved[i] = 1;
		expect_judged(&bench, -EINVAL, sqe);
		sqe.table_reserved[i] = 0;
	}
	expect_judged(&bench, 0, sqe);
}

/* The table is a reference itself, read up to its last byte and no further. */
TEST(test_table__position)
{
	struct rbk_sqe sqe;
	struct bench bench;

	bench_init(&bench);
	sqe = run_wide(&bench, WIDEST);
	memcpy((char *)bench.tables + PAGE - 512, bench.tables, 512);
	sqe.table = RBK_REF(TABLES, PAGE - 512);
	expect_judged(&bench, 0, sqe);
	memcpy((char *)bench.tables + PAGE - 448, bench.tables, 512);
	sqe.table = RBK_REF(TABLES, PAGE - 448);
	expect_judged(&bench, -EFAULT, sqe);
	sqe.table = RBK_REF(TABLES, (1ull << 48) - 64);
	expect_judged(&bench, -EFAULT, sqe);
	sqe.table = RBK_REF(TABLES, 8);
	expect_judged(&bench, -EINVAL, sqe);
	sqe.table = RBK_REF(GAP, 0);
	expect_judged(&bench, -EBADF, sqe);
	sqe.table = RBK_REF(N_ARENAS, 0);
	expect_judged(&bench, -EBADF, sqe);
	/* The table is only read, so it may be immutable. */
	bench.arenas[TABLES].exec.immutable = true;
	sqe.table = RBK_REF(TABLES, 0);
	expect_judged(&bench, 0, sqe);
}

/* A reference of a plan that was never set: the number of references is wrong. */
TEST(test_ref__never_set)
{
	struct rbk_sqe sqe;
	struct bench bench;

	bench_init(&bench);
	/* As in a broker, no arena has id 0. */
	bench.arena_slots[0] = NULL;
	expect_judged(&bench, 0, run(1, RBK_REF(TWIN, 0), RBK_REF(OTHER, 0)));
	expect_judged(&bench, -EINVAL, run(1, RBK_REF(TWIN, 0), 0));
	expect_judged(&bench, -EINVAL, run(1, 0, RBK_REF(OTHER, 0)));
	expect_judged(&bench, -EBADF, run(1, 64, RBK_REF(OTHER, 0)));
	sqe = run_wide(&bench, SIX);
	for (unsigned int i = 0; i < 6; i++)
		bench.tables[i] = RBK_REF(TWIN, i * 64);
	expect_judged(&bench, 0, sqe);
	bench.tables[5] = 0;
	expect_judged(&bench, -EINVAL, sqe);
	sqe.table = 0;
	expect_judged(&bench, -EINVAL, sqe);
}

/* ---- Diagnosis ---- */

static struct sqe_fault diagnose(struct bench *bench, struct rbk_sqe sqe, bool is_in_chain)
{
	struct sqe_fault fault = {.field = ""};

	assert_int_not_equal(
		dispatch_find_fault(&bench->session, &sqe, is_in_chain, SQE_ANY_DISTANCE, &fault),
		0);
	return fault;
}

/* The field, and what would be right. */
TEST(test_fault__field_and_reason)
{
	struct sqe_fault fault;
	struct rbk_sqe sqe;
	struct bench bench;

	bench_init(&bench);
	bench.arena_slots[0] = NULL;
	fault = diagnose(&bench, run(1, RBK_REF(TWIN, 0), RBK_REF(OTHER, 100)), false);
	assert_string_equal(fault.field, "refs[1]");
	assert_non_null(strstr(fault.reason, "offset 100 of arena 3"));
	assert_non_null(strstr(fault.reason, "multiple of 64"));
	fault = diagnose(&bench, run(1, RBK_REF(TWIN, 0), 0), false);
	assert_string_equal(fault.field, "refs[1]");
	assert_non_null(strstr(fault.reason, "no reference"));
	fault = diagnose(&bench, run(1, RBK_REF(0xffffu, 0), RBK_REF(OTHER, 0)), false);
	assert_string_equal(fault.field, "refs[0]");
	assert_non_null(strstr(fault.reason, "RBK_REF_INVALID"));
	fault = diagnose(&bench, run(9, RBK_REF(TWIN, 0), RBK_REF(OTHER, 0)), false);
	assert_string_equal(fault.field, "count");
	assert_non_null(strstr(fault.reason, "1 to 8"));
	sqe = run(1, RBK_REF(TWIN, 0), RBK_REF(OTHER, 0));
	sqe.refs[2] = RBK_REF(TWIN, 64);
	fault = diagnose(&bench, sqe, false);
	assert_string_equal(fault.field, "refs[2]");
	assert_non_null(strstr(fault.reason, "takes 2 references"));
	sqe = run_wide(&bench, SIX);
	sqe.n_refs = 5;
	fault = diagnose(&bench, sqe, false);
	assert_string_equal(fault.field, "n_refs");
	assert_non_null(strstr(fault.reason, "5 references, and the plan takes 6"));
	fault = diagnose(&bench, (struct rbk_sqe){.opcode = RBK_OP_BARRIER}, true);
	assert_string_equal(fault.field, "opcode");
	assert_non_null(strstr(fault.reason, "in a chain"));
	fault = diagnose(&bench, (struct rbk_sqe){.opcode = RBK_OP_CANCEL, .refs = {1, 0, 7}},
			 false);
	assert_string_equal(fault.field, "cancel_reserved[1]");
}

/* ---- Joins ---- */

static struct rbk_sqe after(struct rbk_sqe sqe, uint16_t distance)
{
	sqe.flags |= RBK_SQE_AFTER;
	sqe.after[5] = distance;
	return sqe;
}

TEST(test_after__with_each_operation)
{
	struct rbk_sqe sqe = run(1, RBK_REF(FIRST, 0), RBK_REF(FIRST, 64));
	struct bench bench;

	bench_init(&bench);
	bench.session.features = RBK_FEAT_AFTER | RBK_FEAT_RESIDENCY;
	expect_judged(&bench, 0, after(sqe, 1));
	assert_ptr_equal(bench.plan, &bench.slots[TWO]);
	assert_int_equal(bench.refs[1].offset, 64);
	expect_judged(&bench, -EINVAL, after(sqe, 0));
	sqe.refs[2] = 1;
	expect_judged(&bench, -EINVAL, after(sqe, 1));
	expect_judged(&bench, 0, after(run_wide(&bench, SIX), 1));
	expect_judged(&bench, -EINVAL, after(run_wide(&bench, FIVE), 1));
	expect_judged(&bench, 0, after((struct rbk_sqe){.opcode = RBK_OP_NOP}, UINT16_MAX));
	expect_judged(&bench, 0, after((struct rbk_sqe){.opcode = RBK_OP_CANCEL, .target = 1}, 1));
	expect_judged(&bench, -EINVAL, after((struct rbk_sqe){.opcode = RBK_OP_BARRIER}, 1));
	for (uint8_t op = RBK_OP_PREFETCH; op <= RBK_OP_EVICT; op++)
		expect_judged(&bench, 0,
			      after((struct rbk_sqe){.opcode = op, .plan_id = PLAN_ID(FIVE)}, 1));
}

TEST(test_after__fault)
{
	struct sqe_fault fault;
	struct rbk_sqe sqe;
	struct bench bench;

	bench_init(&bench);
	sqe = after((struct rbk_sqe){.opcode = RBK_OP_NOP}, 4);
	fault = diagnose(&bench, sqe, false);
	assert_non_null(strstr(fault.reason, "RBK_FEAT_AFTER"));
	bench.session.features = RBK_FEAT_AFTER;
	assert_int_equal(dispatch_find_fault(&bench.session, &sqe, false, 4, &fault), 0);
	assert_int_equal(dispatch_find_fault(&bench.session, &sqe, false, 3, &fault), -EINVAL);
	assert_string_equal(fault.field, "after[5]");
	assert_non_null(strstr(fault.reason, "no entry 4 places before"));
	assert_non_null(strstr(fault.reason, "the last 3"));
	fault = diagnose(&bench, after(run_wide(&bench, FIVE), 1), false);
	assert_string_equal(fault.field, "flags");
	assert_non_null(strstr(fault.reason, "need a table"));
}

static uint64_t random64(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* Valid entries of each kind, with one word, byte or bit changed: both verdicts are the same. */
TEST(test_fault__any_mutation)
{
	static const uint64_t odd[] = {0,
				       1,
				       2,
				       5,
				       6,
				       7,
				       63,
				       64,
				       65,
				       4096,
				       RBK_REF(OTHER, 64),
				       RBK_REF(GAP, 0),
				       RBK_REF(SEALED, 0),
				       RBK_REF(TABLES, 0),
				       PLAN_ID(FIVE),
				       PLAN_ID(HOLE),
				       UINT32_MAX,
				       UINT64_MAX};
	unsigned int n_refused = 0, n_accepted = 0;
	uint64_t seed = 88172645463325252u;
	struct bench bench;

	bench_init(&bench);
	for (unsigned int i = 0; i < 400000; i++) {
		struct rbk_sqe sqe = {.opcode = (uint8_t)(i % RBK_OP_COUNT)};
		struct sqe_fault fault;
		size_t at;
		int got, res;

		bench.session.features =
			(i & 64 ? RBK_FEAT_RESIDENCY : 0) | (i & 128 ? RBK_FEAT_AFTER : 0);
		if (sqe.opcode == RBK_OP_RUN)
			sqe = run_wide(&bench, random64(&seed) % HOLE);
		else if (sqe.opcode == RBK_OP_PREFETCH || sqe.opcode == RBK_OP_EVICT)
			sqe.plan_id = PLAN_ID(FIVE);
		if (i & 256) {
			sqe.flags |= RBK_SQE_AFTER;
			sqe.after[random64(&seed) % RBK_SQE_AFTER_MAX] = (uint16_t)(1 + i % 9);
		}
		if (random64(&seed) % 2) {
			((uint8_t *)&sqe)[random64(&seed) % sizeof(sqe)] ^=
				(uint8_t)(1 << random64(&seed) % 8);
		} else {
			at = random64(&seed) % 8;
			((uint64_t *)&sqe)[at] = odd[random64(&seed) % ARRAY_SIZE(odd)];
		}
		/* Only TABLES has memory to read a table from. */
		if (sqe.flags & RBK_SQE_ARG_TABLE && RBK_REF_ARENA(sqe.table) != TABLES)
			sqe.table = RBK_REF(GAP, RBK_REF_OFFSET(sqe.table));
		res = validate_entry(&bench.session, &sqe, bench.refs, &bench.plan);
		got = dispatch_find_fault(&bench.session, &sqe, false, SQE_ANY_DISTANCE, &fault);
		if (got != res)
			fail_msg("mutation %u: the diagnosis is %d, not %d", i, got, res);
		n_refused += res != 0;
		n_accepted += res == 0;
	}
	assert_true(n_refused > 20000 && n_accepted > 20000);
}
