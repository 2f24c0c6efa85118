/* SPDX-License-Identifier: MIT */
/*
 * States of tasks that a broker has begun when it dies
 *
 * The devices are fakes, which compute here: a task multiplies words of its states by 3 and adds
 * its user_data. So the final bytes tell whether each update was applied once, in order.
 */
#include <errno.h>
#include <string.h>

#include "shm/ring.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/restore-bench.h"

enum {
	LINK = RBK_SQE_LINK,
	SMALL = 16, /* words of a state that takes one unit of undo memory */
	UNIT = RBK_UNDO_UNIT_BYTES / 4,
	LARGE = UNIT + 8, /* words of one that takes two */
	ARENA_BYTES = 16384,
	TABLE_OFFSET = 16384,
	FAR_BYTES = 1 << 18,
	OPERAND_BYTES = 2048, /* distance of operands of a plan in segments */
};

/* --- devices that compute --- */

enum { BROKEN = 10 /* user_data of a task that fails, and updates nothing */ };

/* Tasks change the first and the last words of a large state only, to be quick. */
static uint32_t next_word(uint32_t word)
{
	return word + 1 == 2 * SMALL ? UNIT : word + 1;
}

static bool is_computed(uint32_t word)
{
	return word < 2 * SMALL || word >= UNIT;
}

/* Compute the first @n words of each state of a task. */
static void update(const struct exec_task *task, uint32_t n)
{
	const struct plan *plan = task->plan;

	for (uint32_t i = 0; i < plan->n_bindings; i++) {
		const struct plan_binding *binding = &plan->bindings[i];
		const uint64_t bytes = binding->fixed_bytes + binding->row_bytes * task->count;
		const struct exec_ref *ref = &task->refs[i];
		uint32_t *words = (uint32_t *)(ref->arena->base + ref->offset);

		if (plan->tensors[binding->tensor].kind != RBK_TENSOR_STATE ||
		    fake_user_data(task) == BROKEN)
			continue;
		for (uint32_t k = 0; k < bytes / 4 && k < n; k = next_word(k))
			__atomic_store_n(&words[k], words[k] * 3 + (uint32_t)fake_user_data(task),
					 __ATOMIC_RELAXED);
	}
}

/* Begin a task of a fake that holds it, and compute the first @n words of its states. */
static void begin(struct fake *fake, uint64_t user_data, uint32_t n)
{
	assert_true(fake_begin(fake, user_data));
	for (unsigned int i = 0; i < fake->n_tasks; i++)
		if (fake_user_data(fake->tasks[i]) == user_data)
			update(fake->tasks[i], n);
}

/* Let all tasks run to their end. */
static void run_states(struct bench *bench)
{
	struct fake *cpu = bench->cpu;

	do {
		rig_work(&bench->rig);
		while (cpu->n_tasks > 0) {
			if (atomic_load(&cpu->tasks[0]->state) != EXEC_RUNNING)
				begin(cpu, fake_user_data(cpu->tasks[0]), UINT32_MAX);
			fake_finish(cpu, fake_user_data(cpu->tasks[0]),
				    fake_user_data(cpu->tasks[0]) == BROKEN ? -EIO : 0);
		}
	} while (rig_work(&bench->rig) > 0 || cpu->n_tasks > 0);
}

/* --- plans and entries --- */

/* Prepare s = Relu(s), [@n_words], or [count,@n_words] if @max_count > 1, for each of the brokers.
 */
static struct session_plan *plan_one(struct bench *bench, uint32_t n_words, uint32_t max_count)
{
	struct describe *describe = describe_new("state", max_count);

	if (max_count > 1)
		describe_state(describe, "s", DESCRIBE_DIMS(DESCRIBE_COUNT, n_words));
	else
		describe_state(describe, "s", DESCRIBE_DIMS(n_words));
	describe_node(describe, "Relu", "it", "s", "s");
	return rig_plan_new(&bench->rig, describe);
}

static const struct session_plan *plan_both(struct brokers *brokers, uint32_t n_words)
{
	const struct session_plan *plan = plan_one(&brokers->first, n_words, 1);

	assert_int_equal(plan_one(&brokers->second, n_words, 1)->id, plan->id);
	return plan;
}

static struct rbk_sqe entry(const struct session_plan *plan, const struct session_arena *arena,
			    uint64_t offset, uint64_t user_data)
{
	return (struct rbk_sqe){
		.opcode = RBK_OP_RUN,
		.plan_id = plan->id,
		.user_data = user_data,
		.count = 1,
		.refs = {RBK_REF(arena->id, offset)},
	};
}

static void put(struct bench *bench, const struct session_plan *plan, uint64_t offset,
		uint64_t user_data, uint8_t flags)
{
	struct rbk_sqe sqe = entry(plan, bench->arena, offset, user_data);

	sqe.flags = flags;
	rig_put(&bench->ring, &sqe);
}

/* The first broker dies, and what it wrote into the arena is there. */
static void die_with_arena(struct brokers *brokers)
{
	memcpy(brokers->second.arena->exec.base, brokers->first.arena->exec.base, ARENA_BYTES);
	die(brokers);
}

static uint32_t word(const struct bench *bench, uint64_t offset)
{
	return *(const uint32_t *)(bench->arena->exec.base + offset);
}

static uint32_t after(uint32_t value, uint64_t user_data)
{
	return value * 3 + (uint32_t)user_data;
}

static void check_words(const uint8_t *arena, uint64_t offset, uint32_t n, uint32_t value,
			unsigned int n_stores)
{
	const uint32_t *words = (const uint32_t *)(arena + offset);

	for (uint32_t i = 0; i < n; i++)
		if (words[i] != (is_computed(i) ? value : 0))
			fail_msg("after store %u word %u at %llu is %u, not %u", n_stores, i,
				 (unsigned long long)offset, words[i], value);
}

/* --- one death --- */

TEST(test_state__is_updated_once)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct session_plan *plan = plan_both(&brokers, SMALL);
	uint32_t *words = (uint32_t *)first->arena->exec.base;

	for (uint32_t i = 0; i < SMALL; i++)
		words[i] = 100 + i;
	put(first, plan, 0, 1, LINK);
	put(first, plan, 0, 2, LINK);
	put_bare(first, RBK_OP_NOP, 3, 0);
	rig_work(&first->rig);
	begin(first->cpu, 1, SMALL / 2);

	die_with_arena(&brokers);
	assert_int_equal(word(second, 0), after(100, 1));
	/* It has begun, whatever the next broker has done with it. */
	put_cancel(second, 4, 1, 0);
	rig_work(&second->rig);
	expect_cqe(second, 4, -EALREADY);
	run_states(second);
	for (uint64_t i = 1; i <= 3; i++)
		expect_cqe(second, i, 0);
	expect_none(second);
	words = (uint32_t *)second->arena->exec.base;
	for (uint32_t i = 0; i < SMALL; i++)
		assert_int_equal(words[i], after(after(100 + i, 1), 2));
	assert_int_equal(second->ring.ring->undo_taken, 0);
	/* Other tasks take the slots. One that has not begun is cancelled. */
	for (uint64_t i = 5; i <= 7; i++)
		put(second, plan, 0, i, 0);
	for (uint64_t i = 5; i <= 7; i++)
		put_cancel(second, 10 + i, i, 0);
	rig_work(&second->rig);
	fake_finish_all(second->cpu, 0);
	rig_work(&second->rig);
	for (uint64_t i = 5; i <= 7; i++)
		expect_cqe(second, 10 + i, 0);
	for (uint64_t i = 5; i <= 7; i++)
		expect_cqe(second, i, -ECANCELED);
	put(second, plan, 0, 9, 0);
	rig_work(&second->rig);
	finish(second, second->cpu, 9, -EIO);
	expect_cqe(second, 9, -EIO);
	assert_int_equal(second->ring.ring->undo_taken, 0);
}

/* The task was completely done, but not completed. */
TEST(test_state__was_updated)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct session_plan *plan = plan_both(&brokers, SMALL);

	put(first, plan, 0, 1, 0);
	rig_work(&first->rig);
	begin(first->cpu, 1, SMALL);
	fake_finish(first->cpu, 1, 0);
	die_with_arena(&brokers);
	run_states(second);
	expect_cqe(second, 1, 0);
	assert_int_equal(word(second, 0), after(0, 1));
}

/* The task was stopped after it had begun, and resumed. */
TEST(test_state__was_resumed)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct session_plan *plan = plan_both(&brokers, SMALL);

	put(first, plan, 0, 1, 0);
	rig_work(&first->rig);
	begin(first->cpu, 1, 5);
	first->cpu->tasks[0]->has_progress = true;
	finish(first, first->cpu, 1, EXEC_UNFINISHED);
	begin(first->cpu, 1, 7);
	die_with_arena(&brokers);
	run_states(second);
	expect_cqe(second, 1, 0);
	check_words(second->arena->exec.base, 0, SMALL, after(0, 1), 0);
}

/* A task that runs again may fail by itself. */
TEST(test_state__fails_at_last)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;

	put(first, plan_both(&brokers, SMALL), 0, 1, 0);
	rig_work(&first->rig);
	begin(first->cpu, 1, 1);
	die_with_arena(&brokers);
	begin(second->cpu, 1, 0);
	finish(second, second->cpu, 1, -EIO);
	expect_cqe(second, 1, -EIO);
	assert_int_equal(word(second, 0), 0);
	assert_int_equal(second->ring.ring->undo_taken, 0);
}

/* States lie in undo memory as <ringbroker/abi.h> says. */
TEST(test_state__two_of_a_task)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct session_plan *plan = NULL;
	const uint32_t *kept;
	struct rbk_sqe sqe;

	for (unsigned int i = 0; i < 2; i++) {
		struct describe *describe = describe_new("states", 1);

		describe_input(describe, "x", DESCRIBE_DIMS(SMALL));
		describe_state(describe, "s", DESCRIBE_DIMS(2));
		describe_state(describe, "t", DESCRIBE_DIMS(SMALL));
		describe_node(describe, "Relu", "a", "s", "s");
		describe_node(describe, "Add", "b", "x,t", "t");
		plan = rig_plan_new(i ? &second->rig : &first->rig, describe);
	}
	sqe = entry(plan, first->arena, 8192, 1);
	sqe.refs[1] = RBK_REF(first->arena->id, 4096);
	sqe.refs[2] = RBK_REF(first->arena->id, 0);
	((uint32_t *)first->arena->exec.base)[0] = 3;
	((uint32_t *)first->arena->exec.base)[1024] = 4;
	((uint32_t *)first->arena->exec.base)[2048] = 5;
	rig_put(&first->ring, &sqe);
	rig_work(&first->rig);
	begin(first->cpu, 1, 1);
	kept = (const uint32_t *)rbk_ring_undo(first->ring.cq, N_ENTRIES);
	assert_int_equal(kept[0], 4);
	assert_int_equal(kept[RBK_REF_ALIGN / 4], 3);
	die_with_arena(&brokers);
	assert_int_equal(word(second, 0), after(3, 1));
	run_states(second);
	expect_cqe(second, 1, 0);
	assert_int_equal(word(second, 0), after(3, 1));
	assert_int_equal(word(second, 4), after(0, 1));
	assert_int_equal(word(second, 4096), after(4, 1));
	assert_int_equal(word(second, 8192), 5);
}

/* Without undo memory, tasks that had begun fail, once, with those of their chains. */
static void check_not_kept(struct brokers *brokers, const struct session_plan *plan)
{
	struct bench *first = &brokers->first, *second = &brokers->second;

	put(first, plan, 0, 1, LINK);
	put(first, plan, 0, 2, LINK);
	put_bare(first, RBK_OP_NOP, 3, 0);
	put_run(first, first->queued, 4, LINK);
	put(first, plan, 4096, 5, 0);
	put(first, plan, 8192, 6, 0);
	rig_work(&first->rig);
	begin(first->cpu, 1, 1);

	die_with_arena(brokers);
	expect_cqe(second, 1, -ECONNRESET);
	expect_cqe(second, 2, -ECANCELED);
	expect_cqe(second, 3, -ECANCELED);
	/* These updates had not begun. */
	run_states(second);
	expect_cqe(second, 4, 0);
	expect_cqe(second, 6, 0);
	expect_cqe(second, 5, 0);
	expect_none(second);
	assert_int_equal(word(second, 4096), after(0, 5));
	assert_int_equal(word(second, 8192), after(0, 6));
}

/* Make the ring of a bench as for a client that knows neither RBK_FEAT_UNDO nor RBK_FEAT_AFTER. */
static void without_undo(struct bench *bench)
{
	bench->rig.session->features &= ~(RBK_FEAT_UNDO | RBK_FEAT_AFTER);
	if (bench->rig.session->n_added_rings == 0)
		return;
	remove_ring(bench);
	rig_ring_new(&bench->rig, N_ENTRIES, &bench->ring);
	assert_null(bench->ring.ring->undo);
	assert_true(bench->ring.cq_bytes < RBK_CQ_UNDO_BYTES(N_ENTRIES));
}

TEST(test_state__of_an_earlier_client)
{
	BROKERS(brokers, 1);

	without_undo(&brokers.first);
	without_undo(&brokers.second);
	check_not_kept(&brokers, plan_both(&brokers, SMALL));
}

/* Put a task on @n words, and tasks on the rest of the undo memory and on one unit too much. */
static void check_size(uint32_t n)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const uint32_t rest = 3 * UNIT;
	const bool is_too_large = n > RBK_UNDO_UNITS * UNIT - rest;
	struct session_arena *from = rig_arena_new(&first->rig, FAR_BYTES, false);
	struct session_arena *to = rig_arena_new(&second->rig, FAR_BYTES, false);
	struct rbk_sqe sqe = entry(plan_both(&brokers, n), from, 64, 1);

	assert_int_equal(from->id, to->id);
	rig_put(&first->ring, &sqe);
	put(first, plan_both(&brokers, rest), 0, 2, 0);
	put(first, plan_both(&brokers, SMALL), 14336, 3, 0);
	rig_work(&first->rig);
	begin(first->cpu, 1, n - 2);
	begin(first->cpu, 2, rest - 2);
	begin(first->cpu, 3, 1);
	memcpy(to->exec.base, from->exec.base, FAR_BYTES);
	die_with_arena(&brokers);
	run_states(second);
	expect_cqe(second, is_too_large ? 1 : 3, -ECONNRESET);
	if (!is_too_large)
		expect_cqe(second, 1, 0);
	expect_cqe(second, 2, 0);
	if (is_too_large)
		expect_cqe(second, 3, 0);
	expect_none(second);
	check_words(second->arena->exec.base, 0, rest, after(0, 2), 0);
	if (!is_too_large)
		check_words(to->exec.base, 64, n, after(0, 1), 0);
	assert_int_equal(second->ring.ring->undo_taken, 0);
}

TEST(test_state__as_large_as_the_room)
{
	check_size((RBK_UNDO_UNITS - 3) * UNIT);
}

TEST(test_state__too_large)
{
	check_size(RBK_UNDO_UNITS * UNIT + 1);
}

/* Tasks have places of several sizes, which others leave; the next brokers lay them anew. */
TEST(test_state__many_at_a_time)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct session_plan *small = plan_both(&brokers, SMALL);
	const struct session_plan *large = plan_both(&brokers, LARGE);
	uint32_t *words = (uint32_t *)first->arena->exec.base;
	HEIR(third, 1);

	plan_one(&third, SMALL, 1);
	plan_one(&third, LARGE, 1);
	for (uint32_t i = 0; i < ARENA_BYTES / 4; i++)
		words[i] = i;
	for (uint64_t i = 1; i <= 7; i++)
		put(first, i % 2 ? small : large, (i - 1) * 2048, i, 0);
	rig_work(&first->rig);
	for (uint64_t i = 1; i <= 6; i++)
		begin(first->cpu, i, UINT32_MAX);
	/* Task 1 takes unit 0, 2 the next two, and so on; 8 does not fit where 1 and 5 were. */
	finish(first, first->cpu, 1, 0);
	finish(first, first->cpu, 5, 0);
	put(first, large, 14336, 8, 0);
	rig_work(&first->rig);
	begin(first->cpu, 8, 7);
	begin(first->cpu, 7, 1);

	die_with_arena(&brokers);
	/* The second broker begins some of them again, and dies. */
	begin(second->cpu, 3, 5);
	begin(second->cpu, 8, UINT32_MAX);
	finish(second, second->cpu, 8, 0);
	memcpy(third.arena->exec.base, second->arena->exec.base, ARENA_BYTES);
	bequeath(second, &third);
	run_states(&third);
	for (uint64_t i = 0; i < 8; i++) {
		struct rbk_cqe cqe;

		assert_true(rig_take(&third.ring, &cqe));
		assert_int_equal(cqe.res, 0);
	}
	expect_none(&third);
	for (uint64_t i = 1; i <= 8; i++) {
		const uint32_t at = (uint32_t)(i - 1) * 512, n = i % 2 ? SMALL : LARGE;

		words = (uint32_t *)third.arena->exec.base + at;
		for (uint32_t k = 0; k < 512; k++)
			assert_int_equal(words[k],
					 k < n && is_computed(k) ? after(at + k, i) : at + k);
	}
	assert_int_equal(third.ring.ring->undo_taken, 0);
	remove_ring(&third);
}

/* Only the rows that a task has are its state. */
TEST(test_state__of_some_rows)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct session_plan *plan = plan_one(first, SMALL, 4);
	struct rbk_sqe sqe = entry(plan, first->arena, 0, 1);

	plan_one(second, SMALL, 4);
	sqe.count = 2;
	rig_put(&first->ring, &sqe);
	rig_work(&first->rig);
	begin(first->cpu, 1, UINT32_MAX);
	/* Another task's, or the program's own */
	((uint32_t *)first->arena->exec.base)[2 * SMALL] = 99;
	die_with_arena(&brokers);
	run_states(second);
	expect_cqe(second, 1, 0);
	assert_int_equal(word(second, (2 * SMALL - 1) * 4), after(0, 1));
	assert_int_equal(word(second, 2 * SMALL * 4), 99);
}

/* A table names the state, in another arena for each task. */
static void check_table(bool has_changed)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct session_plan *plan = plan_both(&brokers, SMALL);
	struct session_arena *from = rig_arena_new(&first->rig, FAR_BYTES, false);
	struct session_arena *to = rig_arena_new(&second->rig, FAR_BYTES, false);
	uint64_t *table = (uint64_t *)(first->arena->exec.base + TABLE_OFFSET);
	struct rbk_sqe sqe = entry(plan, first->arena, TABLE_OFFSET, 1);

	table[0] = RBK_REF(from->id, 512);
	table[8] = RBK_REF(first->arena->id, 0);
	sqe.flags = RBK_SQE_ARG_TABLE;
	sqe.refs[0] = 0;
	sqe.table = RBK_REF(first->arena->id, TABLE_OFFSET);
	sqe.n_refs = 1;
	rig_put(&first->ring, &sqe);
	sqe.table += 64;
	sqe.user_data = 2;
	rig_put(&first->ring, &sqe);
	rig_work(&first->rig);
	begin(first->cpu, 1, 3);
	begin(first->cpu, 2, SMALL);
	memcpy(to->exec.base, from->exec.base, FAR_BYTES);
	table[0] += has_changed ? 64 : 0;
	memcpy(second->arena->exec.base + TABLE_OFFSET, table, 128);
	die_with_arena(&brokers);
	run_states(second);
	expect_cqe(second, 1, has_changed ? -ECONNRESET : 0);
	expect_cqe(second, 2, 0);
	assert_int_equal(((uint32_t *)to->exec.base)[128], after(0, 1));
	assert_int_equal(word(second, 0), after(0, 2));
	assert_int_equal(second->ring.ring->undo_taken, 0);
}

TEST(test_state__in_a_table)
{
	check_table(false);
	check_table(true);
}

/* The next broker lacks the task's device, so nothing writes its state back. */
TEST(test_state__cannot_run_again)
{
	struct brokers brokers;
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct session_plan *plan;
	struct rbk_sqe sqe;

	bench_begin(first, 2, N_ENTRIES);
	heir_begin(second, 1);
	plan = plan_both(&brokers, SMALL);
	sqe = entry(plan, first->arena, 0, 1);
	sqe.strategy = RBK_STRATEGY_ONLY_GPU;
	sqe.flags = LINK;
	rig_put(&first->ring, &sqe);
	put(first, plan, 0, 2, 0);
	rig_work(&first->rig);
	begin(first->gpu, 1, 1);
	die_with_arena(&brokers);
	expect_cqe(second, 1, -ECONNRESET);
	expect_cqe(second, 2, -ECANCELED);
	expect_none(second);
	assert_int_equal(second->ring.ring->undo_taken, 0);
	brokers_end(&brokers);
}

/* --- death after each store --- */

static const struct session_plan *small, *large;
static int (*submit)(struct executor *executor, struct exec_task *task);
static unsigned int words_at_submit;

/* A device that begins tasks at the moment at which they are given to it */
static int begin_at_submit(struct executor *executor, struct exec_task *task)
{
	int r = submit(executor, task);

	if (r == 0 && exec_task_begin(task))
		update(task, words_at_submit);
	return r;
}

static void make_eager(struct bench *bench, unsigned int capacity)
{
	submit = bench->cpu->ops.submit;
	bench->cpu->ops.submit = begin_at_submit;
	bench->cpu->capacity = capacity;
	small = plan_one(bench, SMALL, 1);
	large = plan_one(bench, LARGE, 1);
	words_at_submit = UINT32_MAX;
}

static void put_states(struct bench *bench)
{
	put(bench, small, 0, 1, LINK);
	put(bench, small, 0, 2, LINK);
	put_bare(bench, RBK_OP_NOP, 3, LINK);
	put(bench, small, 0, 4, 0);
	put(bench, large, 4096, 5, LINK);
	put(bench, large, 4096, 6, 0);
	put(bench, small, 8192, 7, 0);
	put_run(bench, bench->queued, 8, 0);
	put(bench, small, 12288, 9, 0);
	put(bench, small, 14336, BROKEN, LINK);
	put(bench, small, 14336, BROKEN + 1, LINK);
	put(bench, small, 14336, BROKEN + 2, 0);
}

static void check_states(const uint8_t *arena, unsigned int n_stores)
{
	check_words(arena, 0, SMALL, after(after(after(0, 1), 2), 4), n_stores);
	check_words(arena, 4096, LARGE, after(after(0, 5), 6), n_stores);
	check_words(arena, 8192, SMALL, after(0, 7), n_stores);
	check_words(arena, 12288, SMALL, after(0, 9), n_stores);
	check_words(arena, 14336, SMALL, 0, n_stores);
}

static const struct script states = {
	.put = put_states,
	.run = run_states,
	.arena_bytes = ARENA_BYTES,
	.check = check_states,
	.n_entries = BROKEN + 2,
	.res = {[BROKEN] = -EIO, [BROKEN + 1] = -ECANCELED, [BROKEN + 2] = -ECANCELED},
};

/* Tasks get the undo memory that others have just left. */
TEST(test_death__with_states)
{
	BROKERS(brokers, 1);
	unsigned int n_stores;

	make_eager(&brokers.first, 2);
	make_eager(&brokers.second, 2);
	put_states(&brokers.first);
	n_stores = step(&states, &brokers.first, &brokers.second);
	if (n_stores == 0)
		skip();
	assert_true(n_stores > 4 * SMALL || test_is_scaled_down());
}

/* The first broker dies when tasks are half done, the second one at each store. */
TEST(test_death__with_states_of_the_next_broker)
{
	BROKERS(brokers, 1);
	HEIR(third, 1);

	make_eager(&brokers.first, 2);
	make_eager(&brokers.second, 2);
	make_eager(&third, 2);
	put_states(&brokers.first);
	words_at_submit = SMALL / 2;
	rig_work(&brokers.first.rig);
	words_at_submit = UINT32_MAX;
	memcpy(brokers.second.arena->exec.base, brokers.first.arena->exec.base, ARENA_BYTES);
	bequeath(&brokers.first, &brokers.second);
	if (step(&states, &brokers.second, &third) == 0)
		skip();
}

/* --- plans in segments --- */

/*
 * Five segments: the second and the last update a state, the others have none. Those of x and t run
 * once, whatever the count; a task has two rows.
 */
static struct describe *five_segments(void)
{
	struct describe *describe = describe_new("five", 2);

	describe_input(describe, "x", DESCRIBE_DIMS(SMALL));
	describe_output(describe, "y", DESCRIBE_DIMS(SMALL));
	describe_output(describe, "z", DESCRIBE_DIMS(SMALL));
	describe_state(describe, "s", DESCRIBE_DIMS(DESCRIBE_COUNT, SMALL / 2));
	describe_state(describe, "t", DESCRIBE_DIMS(SMALL));
	describe_scratch(describe, "a");
	describe_node(describe, "Neg", "", "x", "a");
	describe_node(describe, "Abs", "", "t", "t");
	describe_node(describe, "Abs", "", "a", "y");
	describe_node(describe, "Abs", "", "x", "z");
	describe_node(describe, "Relu", "", "s", "s");
	return describe;
}

static struct session_plan *make_cut(struct bench *bench)
{
	make_eager(bench, 2);
	return bench_cut_plan(bench, five_segments(), five_segments());
}

static void put_five(struct bench *bench, const struct session_plan *plan, uint64_t user_data,
		     uint8_t flags)
{
	struct rbk_sqe sqe = entry(plan, bench->arena, 0, user_data);

	sqe.count = 2;
	for (unsigned int i = 0; i < 5; i++)
		sqe.refs[i] = RBK_REF(bench->arena->id, i * OPERAND_BYTES);
	sqe.flags = flags;
	rig_put(&bench->ring, &sqe);
}

static void check_five(const uint8_t *arena, unsigned int n_stores)
{
	const uint32_t value = after(after(after(0, 1), 2), 3);

	check_words(arena, 3 * OPERAND_BYTES, SMALL, value, n_stores);
	check_words(arena, 4 * OPERAND_BYTES, SMALL, value, n_stores);
	check_words(arena, 5 * OPERAND_BYTES, SMALL, after(0, 4), n_stores);
}

static void put_segments(struct bench *bench, const struct session_plan *plan)
{
	put_five(bench, plan, 1, LINK);
	put_five(bench, plan, 2, LINK);
	put_five(bench, plan, 3, 0);
	put(bench, small, 5 * OPERAND_BYTES, 4, 0);
}

static const struct script in_segments = {
	.run = run_states,
	.arena_bytes = ARENA_BYTES,
	.check = check_five,
	.n_entries = 4,
};

/* The states of all segments are as before the task, whichever was running. */
TEST(test_death__in_segments)
{
	BROKERS(brokers, 1);
	const struct session_plan *plan = make_cut(&brokers.first);
	unsigned int n_stores;

	assert_int_equal(make_cut(&brokers.second)->id, plan->id);
	put_segments(&brokers.first, plan);
	n_stores = step(&in_segments, &brokers.first, &brokers.second);
	if (n_stores == 0)
		skip();
	assert_true(n_stores > 3 * 2 * SMALL || test_is_scaled_down());
}

/* The second broker, which dies at each store, has the plan in segments; the others have it whole.
 */
TEST(test_death__in_segments_of_the_next_broker)
{
	BROKERS(brokers, 1);
	const struct session_plan *plan;
	HEIR(third, 1);

	make_eager(&brokers.first, 2);
	plan = rig_plan_new(&brokers.first.rig, five_segments());
	assert_int_equal(make_cut(&brokers.second)->id, plan->id);
	make_eager(&third, 2);
	assert_int_equal(rig_plan_new(&third.rig, five_segments())->id, plan->id);
	put_segments(&brokers.first, plan);
	words_at_submit = SMALL / 2;
	rig_work(&brokers.first.rig);
	words_at_submit = UINT32_MAX;
	memcpy(brokers.second.arena->exec.base, brokers.first.arena->exec.base, ARENA_BYTES);
	bequeath(&brokers.first, &brokers.second);
	if (step(&in_segments, &brokers.second, &third) == 0)
		skip();
}

/* There was no room for the states when the first segment with states began: room that comes later
 * is not taken. */
TEST(test_state__room_after_the_first_segment)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first;
	const struct session_plan *plan = make_cut(first);

	make_cut(&brokers.second);
	first->ring.ring->undo_taken = UINT64_MAX;
	put_five(first, plan, 1, 0);
	rig_work(&first->rig);
	finish(first, first->cpu, 1, 0);
	first->ring.ring->undo_taken = 0;
	for (unsigned int i = 1; i < 4; i++)
		finish(first, first->cpu, 1, 0);
	assert_int_equal(first->cpu->n_tasks, 1);
	assert_int_equal(first->ring.ring->undo_taken, 0);
	die_with_arena(&brokers);
	expect_cqe(&brokers.second, 1, -ECONNRESET);
	assert_int_equal(word(&brokers.second, 4 * OPERAND_BYTES), after(0, 1));
}

/* A chain that cannot be repeated begins in one batch of restored entries and ends in another. */
TEST(test_death__without_undo)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct script script = {
		.n_entries = 10,
		.res = {[8] = -ECONNRESET, [9] = -ECANCELED, [10] = -ECANCELED},
	};
	const struct session_plan *plan;
	HEIR(third, 1);

	without_undo(first);
	without_undo(second);
	without_undo(&third);
	plan = plan_both(&brokers, SMALL);
	plan_one(&third, SMALL, 1);
	for (uint64_t i = 1; i <= 7; i++)
		put_run(first, first->queued, i, 0);
	put(first, plan, 0, 8, LINK);
	put_run(first, first->queued, 9, LINK);
	put_bare(first, RBK_OP_NOP, 10, 0);
	rig_work(&first->rig);
	assert_true(fake_begin(first->cpu, 8));
	bequeath(first, second);
	if (step(&script, second, &third) == 0)
		skip();
}

/* --- hostile areas --- */

/* Records that no broker writes; each says that its task had begun, and has states. */
/*
 * An entry is validated once more when it begins again, and a table may be another one then: what
 * was not compared with the record does not begin.
 */
TEST(test_hostile__begun_but_invalid)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct rbk_cq_area *cq = first->ring.ring->cq;
	const struct session_plan *plan = plan_both(&brokers, SMALL);
	struct rbk_cqe cqe;

	*rbk_ring_records(cq, N_ENTRIES) = (struct rbk_task_record){
		.sqe = entry(plan, second->arena, 1ull << 40, 1),
		.flags = RBK_TASK_TAKEN | RBK_TASK_BEGUN | RBK_TASK_UNDO,
		.n_undo = 1,
	};
	cq->commit = rbk_commit_word(1, 0, 0);
	first->ring.sq->sq_tail = 1;
	die(&brokers);
	run_states(second);
	assert_true(rig_take(&second->ring, &cqe));
	assert_int_equal(cqe.res, -ECONNRESET);
	first->ring.sq->sq_tail = 0;
}

TEST(test_hostile__undo)
{
	static const struct {
		uint16_t first, n;
		uint8_t opcode;
		int res;
	} records[] = {
		{0, 0, RBK_OP_RUN, -ECONNRESET},
		{65, 1, RBK_OP_RUN, -ECONNRESET},
		{64, 1, RBK_OP_RUN, -ECONNRESET},
		{63, 2, RBK_OP_RUN, -ECONNRESET},
		{0, 65, RBK_OP_RUN, -ECONNRESET},
		{65535, 65535, RBK_OP_RUN, -ECONNRESET},
		/* more than the plan has, and not a task with states */
		{0, 3, RBK_OP_RUN, -ECONNRESET},
		{0, 3, RBK_OP_NOP, 0},
		{0, 0, RBK_OP_NOP, -ECONNRESET},
		{63, 1, RBK_OP_RUN, 0},
		/* as much as is left, twice, in the same place */
		{7, 57, RBK_OP_NOP, 0},
		{7, 57, RBK_OP_NOP, -ECONNRESET},
	};
	enum { N = sizeof(records) / sizeof(records[0]) };
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct rbk_cq_area *cq = first->ring.ring->cq;
	struct rbk_task_record *own = rbk_ring_records(cq, N_ENTRIES);
	const struct session_plan *plan = plan_both(&brokers, SMALL);
	int res[N];
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < N; i++) {
		own[i] = (struct rbk_task_record){
			.sqe = entry(plan, second->arena, 64 * i, i),
			.sq_index = i,
			.flags = RBK_TASK_TAKEN | RBK_TASK_BEGUN | RBK_TASK_UNDO,
			.undo_first = records[i].first,
			.n_undo = records[i].n,
		};
		if (records[i].opcode == RBK_OP_NOP)
			own[i].sqe = (struct rbk_sqe){.opcode = RBK_OP_NOP, .user_data = i};
	}
	cq->commit = rbk_commit_word(N, 0, 0);
	first->ring.sq->sq_tail = N;
	memset(rbk_ring_undo(cq, N_ENTRIES), 1, RBK_UNDO_UNITS * RBK_UNDO_UNIT_BYTES);
	die(&brokers);
	run_states(second);
	for (unsigned int i = 0; i < N; i++) {
		assert_true(rig_take(&second->ring, &cqe));
		res[cqe.user_data] = cqe.res;
	}
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal(res[i], records[i].res);
	/* Its state is what the client says that it was. */
	assert_int_equal(word(second, 64 * 9), after(0x01010101, 9));
	assert_int_equal(second->ring.ring->undo_taken, 0);
	first->ring.sq->sq_tail = 0;
}
