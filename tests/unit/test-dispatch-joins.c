/* SPDX-License-Identifier: MIT */
/* The dispatcher and entries that wait for several earlier ones (RBK_SQE_AFTER). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loop/loop.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/restore-bench.h"

enum { LINK = RBK_SQE_LINK };

#define AFTER(...) ((const uint16_t[RBK_SQE_AFTER_MAX]){__VA_ARGS__})

static void put_after(struct bench *bench, struct rbk_sqe sqe, const uint16_t *after, uint8_t flags)
{
	sqe.flags |= RBK_SQE_AFTER | flags;
	memcpy(sqe.after, after, sizeof(sqe.after));
	rig_put(&bench->ring, &sqe);
}

static void put_join(struct bench *bench, uint64_t user_data, const uint16_t *after)
{
	put_after(bench, (struct rbk_sqe){.user_data = user_data}, after, 0);
}

static void put_run_after(struct bench *bench, const struct session_plan *plan, uint64_t user_data,
			  const uint16_t *after)
{
	put_after(bench, run_entry(bench, plan, user_data), after, 0);
}

/* --- when it starts --- */

TEST(test_join__starts_after_all)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, 0);
	put_run(&bench, bench.queued, 2, 0);
	put_run(&bench, bench.queued, 3, 0);
	put_run_after(&bench, bench.queued, 4, AFTER(3, 1));
	put_join(&bench, 5, AFTER(3));
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 3);
	finish(&bench, bench.cpu, 3, 0);
	expect_cqe(&bench, 3, 0);
	expect_none(&bench);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	expect_none(&bench);
	/* The second one has not completed: only entry 5 waits for it. */
	assert_true(fake_begin(bench.cpu, 4));
	finish(&bench, bench.cpu, 4, 0);
	expect_cqe(&bench, 4, 0);
	expect_none(&bench);
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 2, 0);
	expect_cqe(&bench, 5, 0);
}

/* An entry need not wait for those that have completed: a tiny task then runs inline as ever. */
TEST(test_join__of_completed_entries)
{
	BENCH(bench, 1, N_ENTRIES);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	put_run(&bench, bench.queued, 2, 0);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 2, 0);
	put_run_after(&bench, bench.tiny, 3, AFTER(1, 2));
	put_join(&bench, 4, AFTER(1, 2, 3));
	rig_work(&bench.rig);
	for (uint64_t i = 1; i <= 4; i++)
		expect_cqe(&bench, i, 0);
	assert_int_equal(bench.cpu->n_inline, 1);
}

/* One entry may be named twice, and by many. */
TEST(test_join__names_twice)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, 0);
	put_join(&bench, 2, AFTER(1, 1, 1));
	put_join(&bench, 3, AFTER(2, 1, 0, 2, 1, 0, 0, 2));
	rig_work(&bench.rig);
	expect_none(&bench);
	finish(&bench, bench.cpu, 1, 0);
	for (uint64_t i = 1; i <= 3; i++)
		expect_cqe(&bench, i, 0);
}

TEST(test_join__with_a_table)
{
	uint64_t *table;
	struct rbk_sqe sqe;

	BENCH(bench, 1, N_ENTRIES);
	table = (uint64_t *)(bench.arena->exec.base + 16384);
	sqe = run_entry(&bench, bench.queued, 2);
	memcpy(table, sqe.refs, 2 * sizeof(*table));
	memset(sqe.refs, 0, sizeof(sqe.refs));
	sqe.flags = RBK_SQE_ARG_TABLE;
	sqe.table = RBK_REF(bench.arena->id, 16384);
	sqe.n_refs = 2;
	put_run(&bench, bench.queued, 1, 0);
	put_after(&bench, sqe, AFTER(1), 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 1);
	finish(&bench, bench.cpu, 1, 0);
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, 0);
}

/* --- failures --- */

TEST(test_join__fails_with_one)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, 0);
	put_run(&bench, bench.queued, 2, 0);
	put_run_after(&bench, bench.queued, 3, AFTER(1, 2));
	put_run_after(&bench, bench.queued, 4, AFTER(1));
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 1, -EIO);
	expect_cqe(&bench, 1, -EIO);
	/* It completes once all that it names have completed: they may use what it does. */
	expect_none(&bench);
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 2, 0);
	assert_int_equal(expect_cqe(&bench, 3, -ECANCELED).device, RBK_DEVICE_NONE);
	expect_cqe(&bench, 4, -ECANCELED);
	assert_int_equal(bench.cpu->n_submitted, 2);
}

/* A failure is remembered for as long as the entry can be named. */
TEST(test_join__names_one_that_failed)
{
	BENCH(bench, 1, N_ENTRIES);
	bench.cpu->inline_res = -ENOMEM;
	put_run(&bench, bench.tiny, 1, 0);
	put_bad(&bench, 2, 0);
	put_cancel(&bench, 3, 77, 0);
	put_bare(&bench, RBK_OP_NOP, 4, 0);
	put_run(&bench, bench.queued, 5, 0);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 5, -EIO);
	expect_cqe(&bench, 1, -ENOMEM);
	expect_cqe(&bench, 2, -ERANGE);
	expect_cqe(&bench, 3, -ENOENT);
	expect_cqe(&bench, 4, 0);
	expect_cqe(&bench, 5, -EIO);
	for (uint16_t i = 6; i < 3 + N_ENTRIES; i++) {
		put_join(&bench, i, AFTER((uint16_t)(i - 1 - i % 5)));
		rig_work(&bench.rig);
		expect_cqe(&bench, i, i % 5 == 3 ? 0 : -ECANCELED);
	}
}

TEST(test_join__fails_with_one_of_a_chain)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, LINK);
	put_run(&bench, bench.queued, 2, 0);
	put_join(&bench, 3, AFTER(1));
	put_join(&bench, 4, AFTER(1));
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 1, -EIO);
	expect_cqe(&bench, 1, -EIO);
	for (uint64_t i = 2; i <= 4; i++)
		expect_cqe(&bench, i, -ECANCELED);
}

TEST(test_join__is_cancelled)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, 0);
	put_run_after(&bench, bench.queued, 2, AFTER(1));
	put_cancel(&bench, 3, 2, 0);
	put_cancel(&bench, 4, 2, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 3, 0);
	expect_cqe(&bench, 4, -ENOENT);
	expect_none(&bench);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, -ECANCELED);
}

/* --- names that name nothing --- */

TEST(test_join__names_no_entry)
{
	BENCH(bench, 1, N_ENTRIES);
	put_join(&bench, 1, AFTER(1));
	put_join(&bench, 2, AFTER(1, 0, 0, 0, 0, 0, 0, 2));
	put_join(&bench, 3, AFTER(0));
	put_after(&bench, (struct rbk_sqe){.opcode = RBK_OP_BARRIER, .user_data = 4}, AFTER(1), 0);
	rig_work(&bench.rig);
	for (uint64_t i = 1; i <= 4; i++)
		expect_cqe(&bench, i, -EINVAL);
	for (uint64_t i = 5; i <= 20; i++) {
		put_bare(&bench, RBK_OP_NOP, i, 0);
		rig_work(&bench.rig);
		expect_cqe(&bench, i, 0);
	}
	put_join(&bench, 21, AFTER(N_ENTRIES));
	put_join(&bench, 22, AFTER(N_ENTRIES + 1));
	put_join(&bench, 23, AFTER(UINT16_MAX));
	rig_work(&bench.rig);
	expect_cqe(&bench, 21, 0);
	expect_cqe(&bench, 22, -EINVAL);
	expect_cqe(&bench, 23, -EINVAL);
}

/* Words that hold distances hold no references. */
TEST(test_join__too_many_references)
{
	struct rbk_sqe sqe;

	BENCH(bench, 1, N_ENTRIES);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	sqe = run_entry(&bench, bench.queued, 2);
	sqe.refs[2] = sqe.refs[1] + 4096;
	put_after(&bench, sqe, AFTER(1), 0);
	put_after(&bench, (struct rbk_sqe){.user_data = 3, .refs = {1}}, AFTER(1), 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, -EINVAL);
	expect_cqe(&bench, 3, -EINVAL);
}

TEST(test_join__not_negotiated)
{
	BENCH(bench, 1, N_ENTRIES);
	bench.rig.session->features &= ~RBK_FEAT_AFTER;
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	put_join(&bench, 2, AFTER(1));
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, -EOPNOTSUPP);
}

/* --- with chains and barriers --- */

TEST(test_join__within_a_chain)
{
	BENCH(bench, 1, N_ENTRIES);
	for (unsigned int first = 0; first < 2; first++) {
		put_run(&bench, bench.queued, 1, 0);
		put_run(&bench, bench.queued, 2, LINK);
		put_after(&bench, run_entry(&bench, bench.queued, 3), AFTER(2), LINK);
		put_run(&bench, bench.queued, 4, 0);
		rig_work(&bench.rig);
		finish(&bench, bench.cpu, first ? 1 : 2, 0);
		assert_int_equal(bench.cpu->n_tasks, 1);
		finish(&bench, bench.cpu, first ? 2 : 1, 0);
		expect_cqe(&bench, first ? 1 : 2, 0);
		expect_cqe(&bench, first ? 2 : 1, 0);
		assert_int_equal(bench.cpu->n_tasks, 1);
		finish(&bench, bench.cpu, 3, 0);
		expect_cqe(&bench, 3, 0);
		finish(&bench, bench.cpu, 4, 0);
		expect_cqe(&bench, 4, 0);
	}
}

TEST(test_join__within_a_chain_that_fails)
{
	BENCH(bench, 1, N_ENTRIES);
	for (unsigned int which = 0; which < 2; which++) {
		put_run(&bench, bench.queued, 1, 0);
		put_run(&bench, bench.queued, 2, LINK);
		put_after(&bench, run_entry(&bench, bench.queued, 3), AFTER(2), LINK);
		put_bare(&bench, RBK_OP_NOP, 4, LINK);
		rig_work(&bench.rig);
		finish(&bench, bench.cpu, 1 + which, -EIO);
		expect_cqe(&bench, 1 + which, -EIO);
		expect_none(&bench);
		finish(&bench, bench.cpu, 2 - which, 0);
		expect_cqe(&bench, 2 - which, 0);
		expect_cqe(&bench, 3, -ECANCELED);
		expect_cqe(&bench, 4, -ECANCELED);
		/* The chain goes on to be broken. */
		put_after(&bench, (struct rbk_sqe){.user_data = 5}, AFTER(4), 0);
		put_bare(&bench, RBK_OP_NOP, 6, 0);
		rig_work(&bench.rig);
		expect_cqe(&bench, 5, -ECANCELED);
		expect_cqe(&bench, 6, 0);
	}
}

TEST(test_join__with_barriers)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, 0);
	put_join(&bench, 2, AFTER(1));
	put_bare(&bench, RBK_OP_BARRIER, 3, 0);
	put_join(&bench, 4, AFTER(1, 3));
	rig_work(&bench.rig);
	expect_none(&bench);
	finish(&bench, bench.cpu, 1, 0);
	for (uint64_t i = 1; i <= 4; i++)
		expect_cqe(&bench, i, 0);
}

/* --- many, and random ones --- */

/* Tasks that wait for one are started in batches: others are served in between. */
TEST(test_join__a_ring_waits_for_one)
{
	enum { N = RBK_MAX_RING_ENTRIES };
	struct rbk_cqe cqe;
	uint64_t n_taken = 0;

	BENCH(bench, 1, N);
	put_run(&bench, bench.queued, 0, 0);
	for (uint16_t i = 1; i < N; i++)
		put_join(&bench, i, AFTER(i));
	rig_work(&bench.rig);
	expect_none(&bench);
	fake_finish(bench.cpu, 0, 0);
	for (unsigned int n_turns = 0; n_taken < N; n_turns++) {
		uint64_t n_before = n_taken;

		assert_true(n_turns < N);
		dispatch_tasks(bench.rig.dispatch);
		while (rig_take(&bench.ring, &cqe)) {
			assert_fields(cqe, (user_data, n_taken), (res, 0));
			n_taken++;
		}
		assert_true(n_taken - n_before <= 256);
	}
}

/* A ring is removed while all its entries wait for one. */
TEST(test_join__ring_ends)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, LINK);
	for (uint16_t i = 2; i <= N_ENTRIES; i++)
		put_after(&bench, (struct rbk_sqe){.user_data = i}, AFTER((uint16_t)(i - 1), 1),
			  i % 3 ? LINK : 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.ring.ring->n_in_flight, N_ENTRIES);
	assert_true(fake_begin(bench.cpu, 1));
	assert_int_equal(session_ring_remove(bench.rig.session, 5, bench.ring.ring->id), 0);
	assert_false(rig_has_answer(&bench.rig));
	finish(&bench, bench.cpu, 1, 0);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_int_equal(bench.rig.session->n_added_rings, 0);
}

/* Return true if the next broker would know that entry 0 has failed, for which all but entry 1
 * wait. */
static bool is_failure_known(const struct session_ring *ring, uint64_t n)
{
	const uint32_t live = RBK_TASK_TAKEN | RBK_TASK_POSTED;
	bool is_told = false, is_needed = false;

	for (uint32_t i = 0; i < ring->n_entries; i++) {
		const struct rbk_task_record *record = &ring->records[i];

		is_told |= record->sq_index == 0 && (record->flags & RBK_TASK_FAILED);
		is_needed |= record->sq_index > 1 && record->sq_index <= n &&
			     (record->flags & live) == RBK_TASK_TAKEN &&
			     !(record->flags & RBK_TASK_AFTER_FAILED);
	}
	return is_told || !is_needed;
}

/* New entries do not replace the record of a failure before those that waited know of it. */
TEST(test_join__failure_is_kept)
{
	enum { N = 1024, N_WAITING = 1000 };
	struct dispatch_ring *hostile = NULL;
	uint32_t n_new = 0;

	BENCH(bench, 1, N);
	put_run(&bench, bench.queued, 0, 0);
	put_run(&bench, bench.queued, 1, 0);
	for (uint16_t i = 2; i <= N_WAITING; i++)
		put_join(&bench, i, AFTER(i, (uint16_t)(i - 1)));
	rig_work(&bench.rig);
	fake_finish(bench.cpu, 0, -EIO);
	while (bench.ring.ring->n_in_flight > N_WAITING + n_new || n_new == 0) {
		assert_true(n_new < N - N_WAITING - 1);
		dispatch_tasks(bench.rig.dispatch);
		put_run(&bench, bench.queued, ++n_new + N_WAITING, 0);
		dispatch_poll(bench.rig.dispatch, &hostile);
		assert_true(is_failure_known(bench.ring.ring, N_WAITING));
	}
	assert_true(n_new > 4);
	finish(&bench, bench.cpu, 1, 0);
	assert_int_equal(bench.ring.ring->n_in_flight, n_new);
}

/* A slot that is kept makes no room for a completion: the client has consumed none yet. */
TEST(test_join__kept_slots_make_no_room)
{
	enum { N = 1024 };
	const struct session_ring *ring;
	struct rbk_cqe cqe;

	BENCH(bench, 1, N);
	ring = bench.ring.ring;
	put_run(&bench, bench.queued, 0, 0);
	for (uint16_t i = 1; i < N; i++)
		put_join(&bench, i, AFTER(i));
	rig_work(&bench.rig);
	fake_finish(bench.cpu, 0, -EIO);
	put_bare(&bench, RBK_OP_NOP, N, 0);
	rig_work(&bench.rig);
	assert_int_equal(ring->n_in_flight, 0);
	assert_int_equal(ring->cq_tail - ring->sq->cq_head, N);
	put_bare(&bench, RBK_OP_NOP, N + 1, 0);
	assert_int_equal(dispatch_poll_ring(bench.rig.dispatch, rig_dispatch_ring(&bench.ring)), 0);
	for (uint64_t i = 0; i < N + 2; i++) {
		if (i == N)
			rig_work(&bench.rig);
		assert_true(rig_take(&bench.ring, &cqe));
		assert_fields(cqe, (user_data, i), (res, i == 0 ? -EIO : i < N ? -ECANCELED : 0));
	}
}

enum { MANY = 4000 };

/* Entries of the random test: what each names, and how it has ended */
struct entry {
	uint16_t after[RBK_SQE_AFTER_MAX];
	bool links, has_ended;
	int res;
};

static struct entry entries[MANY + 1];

/* Return what an entry must wait for: 0: nothing; 1: an entry in flight; -1: it fails. */
static int obstacle(uint64_t i)
{
	bool waits = false, fails = false;

	for (unsigned int k = 0; k < RBK_SQE_AFTER_MAX + 1; k++) {
		const uint64_t distance = k == RBK_SQE_AFTER_MAX ? i > 0 && entries[i - 1].links
								 : entries[i].after[k];
		const struct entry *named = &entries[i - distance];

		if (distance == 0)
			continue;
		waits |= !named->has_ended;
		fails |= named->has_ended && named->res < 0;
	}
	return waits ? 1 : fails ? -1 : 0;
}

static void put_random(struct bench *bench, uint64_t i)
{
	struct rbk_sqe sqe = rand() % 4
				     ? run_entry(bench, rand() % 3 ? bench->queued : bench->tiny, i)
				     : (struct rbk_sqe){.user_data = i};
	struct entry *entry = &entries[i];
	bool names = false;

	*entry = (struct entry){.links = i < MANY - 1 && rand() % 5 == 0};
	for (unsigned int k = 0; k < RBK_SQE_AFTER_MAX && i > 0; k++) {
		const uint64_t most = i < N_ENTRIES ? i : N_ENTRIES;

		if (rand() % 12 == 0)
			entry->after[k] = (uint16_t)(1 + (uint64_t)rand() % most);
		names |= entry->after[k] > 0;
	}
	if (names)
		put_after(bench, sqe, entry->after, entry->links ? LINK : 0);
	else {
		sqe.flags = entry->links ? LINK : 0;
		rig_put(&bench->ring, &sqe);
	}
}

/* Check that every task that the executor has may run, and that all that may run has begun. */
static void check_held(const struct bench *bench, uint64_t n_put)
{
	unsigned int n_held = 0;

	for (unsigned int i = 0; i < bench->cpu->n_tasks; i++)
		assert_int_equal(obstacle(fake_user_data(bench->cpu->tasks[i])), 0);
	for (uint64_t i = 0; i < n_put; i++)
		n_held += !entries[i].has_ended;
	assert_int_equal(n_held, bench->ring.ring->n_in_flight);
}

static void take_all(struct bench *bench)
{
	struct rbk_cqe cqe;

	while (rig_take(&bench->ring, &cqe)) {
		struct entry *entry = &entries[cqe.user_data];
		const int before = obstacle(cqe.user_data);

		assert_false(entry->has_ended);
		/* The rest of a chain that has failed need not wait. */
		if (before == 1)
			assert_true(cqe.res == -ECANCELED && entries[cqe.user_data - 1].links &&
				    entries[cqe.user_data - 1].res < 0);
		if (before < 0 && cqe.res != -ECANCELED)
			fail_msg("entry %llu completed with %d after a failure",
				 (unsigned long long)cqe.user_data, cqe.res);
		if (before == 0 && cqe.res == -ECANCELED)
			fail_msg("entry %llu was cancelled without a reason",
				 (unsigned long long)cqe.user_data);
		entry->has_ended = true;
		entry->res = cqe.res;
	}
}

/* Random graphs, on a ring whose indices wrap around, beside a model of what must happen. */
TEST(test_join__random)
{
	uint64_t n_put = 0, n_failed = 0, n_cancelled = 0;

	srand(20);
	BENCH(bench, 1, N_ENTRIES);
	rig_ring_set_index(&bench.ring, UINT32_MAX - 1000);
	while (n_put < MANY || bench.ring.ring->n_in_flight > 0) {
		for (int n = rand() % 6; n > 0 && n_put < MANY &&
					 bench.ring.ring->n_in_flight + (unsigned int)n < N_ENTRIES;
		     n--) {
			put_random(&bench, n_put++);
			if (rand() % 2)
				continue;
			rig_work(&bench.rig);
			take_all(&bench);
		}
		rig_work(&bench.rig);
		take_all(&bench);
		check_held(&bench, n_put);
		if (bench.cpu->n_tasks > 0) {
			const uint32_t which = (uint32_t)rand() % bench.cpu->n_tasks;
			const int res = rand() % 16 ? 0 : -EIO;

			n_failed += res < 0;
			finish(&bench, bench.cpu, fake_user_data(bench.cpu->tasks[which]), res);
			take_all(&bench);
		}
	}
	for (uint64_t i = 0; i < MANY; i++) {
		assert_true(entries[i].has_ended);
		n_cancelled += entries[i].res == -ECANCELED;
	}
	/* Failures spread, and end. */
	assert_true(n_failed > 50);
	assert_in_range(n_cancelled, MANY / 16, MANY / 2);
}

/* --- the death of brokers --- */

static void put_graph(struct bench *bench)
{
	put_run(bench, bench->queued, 1, 0);
	put_bad(bench, 2, 0);
	put_bare(bench, RBK_OP_NOP, 3, 0);
	put_run_after(bench, bench->queued, 4, AFTER(1, 3));
	put_run_after(bench, bench->queued, 5, AFTER(1, 4));
	put_join(bench, 6, AFTER(4, 1));
	put_run(bench, bench->queued, 7, LINK);
	put_after(bench, run_entry(bench, bench->queued, 8), AFTER(4), LINK);
	put_run(bench, bench->tiny, 9, 0);
	put_run(bench, bench->queued, 10, 0);
	put_run_after(bench, bench->tiny, 11, AFTER(1, 2, 3));
	put_run_after(bench, bench->queued, 12, AFTER(6));
	put_run_after(bench, bench->queued, FAILING, AFTER(2));
}

static void put_more(struct bench *bench)
{
	put_join(bench, 14, AFTER(1));
	put_join(bench, 15, AFTER(13));
	put_join(bench, 16, AFTER(5));
}

/* The last entries name some that have failed or succeeded, maybe at an earlier broker. */
static const struct script graph = {
	.put = put_graph,
	.put_rest = put_more,
	.n_entries = 16,
	.res = {[2] = -ERANGE,
		[6] = -ECANCELED,
		[12] = -ECANCELED,
		[FAILING] = -EIO,
		[14] = -ECANCELED,
		[15] = -ECANCELED},
};

TEST(test_join__death_after_each_store)
{
	BROKERS(brokers, 1);
	unsigned int n_stores;

	rig_ring_set_index(&brokers.first.ring, UINT32_MAX - 5);
	put_graph(&brokers.first);
	n_stores = step(&graph, &brokers.first, &brokers.second);
	if (n_stores == 0)
		skip();
	assert_true(n_stores > 64 || test_is_scaled_down());
}

TEST(test_join__death_of_the_next_broker)
{
	BROKERS(brokers, 1);
	HEIR(third, 1);

	put_graph(&brokers.first);
	rig_work(&brokers.first.rig);
	bequeath(&brokers.first, &brokers.second);
	if (step(&graph, &brokers.second, &third) == 0)
		skip();
}

/* Consume the completions of @n NOPs, which move the index of the next entry on. */
static void pass(struct bench *bench, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		put_bare(bench, RBK_OP_NOP, 0, 0);
		rig_work(&bench->rig);
		expect_cqe(bench, 0, 0);
	}
}

enum { LATER = 4 /* user_data of an entry whose failure has the place of that of FAILING */ };

/* Entry FAILING, entries that wait for it, and all up to entry LATER, which is not put. */
static void put_far(struct bench *bench)
{
	put_run(bench, bench->queued, FAILING, 0);
	put_run(bench, bench->queued, 1, 0);
	put_run_after(bench, bench->queued, 2, AFTER(1, 2));
	put_run_after(bench, bench->queued, 3, AFTER(3, 2));
	rig_work(&bench->rig);
	pass(bench, 2 * N_ENTRIES - 4);
}

static void put_rest_of_far(struct bench *bench)
{
	for (uint64_t i = LATER + 1; i < FAILING - 1; i++)
		put_bare(bench, RBK_OP_NOP, i, 0);
}

/* The last entry comes when FAILING has failed, and takes its slot, unless that is still needed. */
static void run_far(struct bench *bench)
{
	const uint32_t n_before = 2 * N_ENTRIES + FAILING - 1 - LATER;

	do {
		rig_work(&bench->rig);
		if (fake_begin(bench->cpu, FAILING))
			fake_finish(bench->cpu, FAILING, -EIO);
		rig_work(&bench->rig);
		if (bench->ring.sq->sq_tail == n_before)
			put_run(bench, bench->queued, FAILING - 1, 0);
		rig_work(&bench->rig);
		if (fake_begin(bench->cpu, LATER))
			fake_finish(bench->cpu, LATER, -ERANGE);
		rig_work(&bench->rig);
		fake_finish_all(bench->cpu, 0);
	} while (rig_work(&bench->rig) > 0 || bench->cpu->n_tasks > 0);
}

static const struct script far = {
	.run = run_far,
	.n_entries = FAILING,
	.res = {[2] = -ECANCELED, [3] = -ECANCELED, [LATER] = -ERANGE, [FAILING] = -EIO},
};

/* An entry far behind fails before the one whose failure has the same place. */
TEST(test_join__death_after_a_later_failure)
{
	BROKERS(brokers, 1);

	put_far(&brokers.first);
	put_bad(&brokers.first, LATER, 0);
	put_rest_of_far(&brokers.first);
	if (step(&far, &brokers.first, &brokers.second) == 0)
		skip();
}

/* It fails after that one, when a task that named both still waits for another. */
TEST(test_join__death_before_a_later_failure)
{
	BROKERS(brokers, 1);

	put_far(&brokers.first);
	put_run(&brokers.first, brokers.first.queued, LATER, 0);
	put_rest_of_far(&brokers.first);
	if (step(&far, &brokers.first, &brokers.second) == 0)
		skip();
}

/* It has failed, and the other one cannot be repeated: it fails before those that name it return.
 */
TEST(test_join__death_while_restoring_failures)
{
	struct script script = far;
	BROKERS(brokers, 1);
	HEIR(third, 1);

	script.res[FAILING] = -ECONNRESET;
	put_far(&brokers.first);
	put_bad(&brokers.first, LATER, 0);
	put_rest_of_far(&brokers.first);
	rig_work(&brokers.first.rig);
	brokers.first.ring.ring->records[0].flags |= RBK_TASK_BEGUN;
	bequeath(&brokers.first, &brokers.second);
	if (step(&script, &brokers.second, &third) == 0)
		skip();
}
