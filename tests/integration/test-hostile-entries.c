/* SPDX-License-Identifier: MIT */
/*
 * Entries and indices from a hostile client, against a live broker
 *
 * Sends millions of entries, most of them valid entries with one field changed. Each must complete
 * exactly once, with the result that abi.h documents. predict() is a second implementation of that
 * documentation, and shares no code with the broker. A neighbour computes meanwhile and must not
 * notice.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "shm/ring.h"
#include "support/describe.h"
#include "support/test.h"

enum {
	N_ENTRIES = 4096,
	ARENA_BYTES = 1 << 20,
	SMALL_BYTES = 8192,
	MAX_COUNT = 64,
	ROW_BYTES = 64, /* of every tensor */
	N_TABLES = 64,
	TABLE_BYTES = 512,
	TABLES_BYTES = N_TABLES * TABLE_BYTES,
	TABLES_ID = 6, /* arena that no task writes; arenas 0 and 5 do not exist */
	NO_ID = 5,
	N_IDS = 7,
	N_PLANS = 4,
	BATCH = 1024,
};

/* ---- The client and what it owns ---- */

/* A plan, as the oracle knows it. */
struct known_plan {
	uint32_t id;
	uint32_t max_count;
	uint32_t n_refs;
	uint64_t fixed_bytes, row_bytes; /* bytes of each tensor */
	uint64_t written;                /* bit i: reference i is written */
};

/* An arena, as the oracle knows it. Arenas with the same memory overlap. */
struct known_arena {
	bool exists, immutable;
	uint64_t bytes;
	int memory;
};

struct hostile {
	int fd, memfd, tables_fd;
	uint8_t *base;
	uint8_t *tables;
	struct raw_ring ring;
	struct known_plan plans[N_PLANS];
	struct known_arena arenas[N_IDS];
	uint64_t seed;
	/* The oracle's state of the open chain. */
	bool chain_open, chain_broken;
	/* Indexed by sequence number modulo BATCH * 2. */
	int32_t wanted[N_ENTRIES * 2];
	uint8_t is_due[N_ENTRIES * 2];
	struct rbk_sqe sent[N_ENTRIES * 2];
};

static void make_plans(struct hostile *h)
{
	struct describe *d = describe_new("rows", MAX_COUNT);

	h->plans[0] =
		(struct known_plan){hostile_plan(h->fd, hostile_add()), 1, 3, ROW_BYTES, 0, 4};
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_input(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_node(d, "Mul", "mul", "x,y", "z");
	h->plans[1] = (struct known_plan){hostile_plan(h->fd, d), MAX_COUNT, 3, 0, ROW_BYTES, 4};

	d = describe_new("many", MAX_COUNT);
	for (unsigned int i = 0; i < 4; i++) {
		char name[2] = {(char)('a' + i)};

		describe_input(d, name, DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	}
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_node(d, "Add", "left", "a,b", "y");
	describe_node(d, "Add", "right", "c,d", "z");
	h->plans[2] = (struct known_plan){hostile_plan(h->fd, d), MAX_COUNT, 6, 0, ROW_BYTES, 48};

	d = describe_new("state", MAX_COUNT);
	describe_state(d, "s", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_node(d, "Mul", "update", "s,x", "s");
	h->plans[3] = (struct known_plan){hostile_plan(h->fd, d), MAX_COUNT, 2, 0, ROW_BYTES, 1};
}

static uint32_t pick(struct hostile *h, uint32_t n)
{
	return (uint32_t)(harness_random(&h->seed) >> 33) % n;
}

/* Choose @n references that a plan accepts, each in another slot of 4 KiB. */
static void good_refs(struct hostile *h, uint64_t *refs, uint32_t n)
{
	uint32_t at = pick(h, 128);

	for (uint32_t i = 0; i < n; i++)
		refs[i] = RBK_REF(1, ((at + i) % 128) * 4096);
}

/* Return @ref, or a reference to no arena instead of one to the tables, which no task may write. */
static uint64_t not_tables(uint64_t ref)
{
	return RBK_REF_ARENA(ref) == TABLES_ID ? RBK_REF(NO_ID, RBK_REF_OFFSET(ref)) : ref;
}

/* Return an arbitrary reference. */
static uint64_t any_ref(struct hostile *h)
{
	uint64_t offset = (uint64_t)pick(h, ARENA_BYTES / 64) * 64;

	switch (pick(h, 8)) {
	case 0:
		offset += 1 + pick(h, 63);
		break;
	case 1:
		offset = ARENA_BYTES - 64 + (uint64_t)pick(h, 3) * 64;
		break;
	case 2:
		offset = ((1ull << 48) - 1) & harness_random(&h->seed);
		break;
	case 3:
		offset = (1ull << 48) - 64;
		break;
	case 4:
		return not_tables(harness_random(&h->seed));
	default:
		break;
	}
	return RBK_REF(pick(h, 6) < 5 ? pick(h, 6) : 65535 - pick(h, 3), offset);
}

static void client_begin(struct hostile *h, uint64_t seed)
{
	int constant = raw_memfd(ARENA_BYTES, false, IMMUTABLE);
	int small = raw_memfd(SMALL_BYTES, false, SHRINK_GROW);
	uint32_t id;

	memset(h, 0, sizeof(*h));
	h->seed = seed;
	h->fd = hostile_session();
	h->memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW);
	h->base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, h->memfd, 0);
	assert_ptr_not_equal(h->base, MAP_FAILED);
	assert_int_equal(raw_arena_add(h->fd, h->memfd, ARENA_BYTES, NULL, NULL), 0);
	assert_int_equal(raw_arena_add(h->fd, constant, ARENA_BYTES, NULL, NULL), 0);
	assert_int_equal(
		raw_arena_add(h->fd, h->memfd, ARENA_BYTES | RBK_WIRE_ARENA_FIX, NULL, NULL), 0);
	assert_int_equal(raw_arena_add(h->fd, small, SMALL_BYTES, NULL, NULL), 0);
	close(constant);
	close(small);
	/* The id between them is free again. */
	h->tables_fd = raw_memfd(TABLES_BYTES, false, SHRINK_GROW);
	h->tables = mmap(NULL, TABLES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, h->tables_fd, 0);
	assert_ptr_not_equal(h->tables, MAP_FAILED);
	assert_int_equal(raw_arena_add(h->fd, h->tables_fd, TABLES_BYTES, &id, NULL), 0);
	assert_int_equal(id, NO_ID);
	/* Without RBK_WIRE_ARENA_FIX, each table would take a request to another thread. */
	assert_int_equal(
		raw_arena_add(h->fd, h->tables_fd, TABLES_BYTES | RBK_WIRE_ARENA_FIX, &id, NULL),
		0);
	assert_int_equal(id, TABLES_ID);
	assert_int_equal(raw_remove(h->fd, RBK_WIRE_ARENA_REMOVE, NO_ID), 0);
	h->arenas[1] = (struct known_arena){true, false, ARENA_BYTES, 0};
	h->arenas[2] = (struct known_arena){true, true, ARENA_BYTES, 1};
	h->arenas[3] = (struct known_arena){true, false, ARENA_BYTES, 0};
	h->arenas[4] = (struct known_arena){true, false, SMALL_BYTES, 2};
	h->arenas[TABLES_ID] = (struct known_arena){true, false, TABLES_BYTES, 3};
	make_plans(h);
	raw_ring_add(h->fd, N_ENTRIES, &h->ring);
	/* The first half of the tables is valid; each of the others has one bad reference. */
	for (uint32_t i = 0; i < N_TABLES; i++) {
		uint64_t *table = (uint64_t *)(h->tables + i * TABLE_BYTES);

		good_refs(h, table, 6);
		if (i >= N_TABLES / 2)
			table[pick(h, 6)] = any_ref(h);
	}
}

static void client_end(struct hostile *h)
{
	raw_ring_close(&h->ring);
	munmap(h->base, ARENA_BYTES);
	munmap(h->tables, TABLES_BYTES);
	close(h->memfd);
	close(h->tables_fd);
	close(h->fd);
}

/* ---- Making entries ---- */

static void make_good(struct hostile *h, struct rbk_sqe *sqe)
{
	const struct known_plan *plan;
	uint32_t kind = pick(h, 16);

	memset(sqe, 0, sizeof(*sqe));
	sqe->strategy = (uint8_t)(pick(h, 4) ? RBK_STRATEGY_AUTO : RBK_STRATEGY_ONLY_CPU);
	sqe->priority = (uint8_t)pick(h, RBK_PRIORITY_COUNT);
	if (pick(h, 8) == 0)
		sqe->flags = RBK_SQE_LINK;
	switch (kind) {
	case 0:
	case 1:
		sqe->opcode = RBK_OP_NOP;
		return;
	case 2:
		sqe->opcode = RBK_OP_CANCEL;
		sqe->target = harness_random(&h->seed) | 1ull << 63;
		return;
	case 3:
		sqe->opcode = RBK_OP_BARRIER;
		sqe->flags = 0;
		return;
	case 4:
		sqe->opcode = (uint8_t)(RBK_OP_PREFETCH + pick(h, 2));
		sqe->plan_id = h->plans[pick(h, N_PLANS)].id;
		return;
	default:
		break;
	}

	plan = &h->plans[pick(h, N_PLANS)];
	sqe->opcode = RBK_OP_RUN;
	sqe->plan_id = plan->id;
	sqe->count = 1 + pick(h, plan->max_count);
	sqe->deadline_us = pick(h, 4) ? 0 : pick(h, 1000000);
	/* Without a GPU, WAIT_MEMORY never waits. */
	if (pick(h, 8) == 0)
		sqe->flags |= RBK_SQE_WAIT_MEMORY;
	if (plan->n_refs <= RBK_SQE_REFS && pick(h, 4)) {
		good_refs(h, sqe->refs, plan->n_refs);
		return;
	}
	sqe->flags |= RBK_SQE_ARG_TABLE;
	sqe->table = RBK_REF(TABLES_ID, (uint64_t)pick(h, N_TABLES) * TABLE_BYTES);
	sqe->n_refs = plan->n_refs;
}

static uint32_t odd_number(struct hostile *h)
{
	static const uint32_t odd[] = {0,  1,   2,   3,     5,     63,        64,       65,
				       66, 255, 256, 65535, 65536, INT32_MAX, 1u << 31, UINT32_MAX};

	return pick(h, 2) ? odd[pick(h, sizeof(odd) / sizeof(*odd))]
			  : (uint32_t)harness_random(&h->seed);
}

/* Change one field. */
static void mutate(struct hostile *h, struct rbk_sqe *sqe)
{
	switch (pick(h, 12)) {
	case 0:
		sqe->opcode = (uint8_t)(pick(h, 2) ? pick(h, 8) : odd_number(h));
		break;
	case 1:
		sqe->flags = (uint8_t)(pick(h, 2) ? pick(h, 8) : odd_number(h));
		break;
	case 2:
		sqe->strategy = (uint8_t)(pick(h, 2) ? pick(h, 8) : odd_number(h));
		break;
	case 3:
		sqe->priority = (uint8_t)odd_number(h);
		break;
	case 4:
		sqe->plan_id = pick(h, 2) ? sqe->plan_id ^ 1u << pick(h, 32) : odd_number(h);
		break;
	case 5:
		sqe->count = odd_number(h);
		break;
	case 6:
		sqe->deadline_us = odd_number(h);
		break;
	case 7:
		sqe->n_refs = odd_number(h);
		break;
	case 8:
		sqe->state_rows = odd_number(h);
		break;
	default:
		sqe->refs[pick(h, RBK_SQE_REFS)] =
			pick(h, 8) ? any_ref(h)
				   : not_tables((uint64_t)odd_number(h) << pick(h, 33));
		break;
	}
	/* The target of a CANCEL must not exist, so that its result is known. */
	if (sqe->opcode == RBK_OP_CANCEL)
		sqe->target |= 1ull << 63;
}

/* ---- The oracle ---- */

static int predict_ref(const struct hostile *h, uint64_t ref, uint64_t bytes, bool written)
{
	uint32_t id = (uint32_t)(ref >> 48);
	uint64_t offset = ref & 0xffffffffffffull;

	if (ref == 0)
		return -EINVAL;
	if (id >= N_IDS || !h->arenas[id].exists)
		return -EBADF;
	if (offset & 63)
		return -EINVAL;
	if (offset + bytes > h->arenas[id].bytes)
		return -EFAULT;
	return written && h->arenas[id].immutable ? -EACCES : 0;
}

static int predict_run(const struct hostile *h, const struct rbk_sqe *sqe)
{
	const struct known_plan *plan = NULL;
	const uint64_t *refs = sqe->refs;
	uint64_t bytes;
	int res;

	for (unsigned int i = 0; i < N_PLANS; i++)
		if (h->plans[i].id == sqe->plan_id)
			plan = &h->plans[i];
	if (!plan)
		return -ENOENT;
	if (sqe->count < 1 || sqe->count > plan->max_count)
		return -ERANGE;

	if (sqe->flags & RBK_SQE_ARG_TABLE) {
		if (sqe->n_refs != plan->n_refs || sqe->state_rows)
			return -EINVAL;
		for (unsigned int i = 0; i < 3; i++)
			if (sqe->table_reserved[i])
				return -EINVAL;
		res = predict_ref(h, sqe->table, plan->n_refs * 8ull, false);
		if (res)
			return res;
		/* Other memory may be changing. */
		assert_int_equal(sqe->table >> 48, TABLES_ID);
		refs = (const uint64_t *)(h->tables + (sqe->table & 0xffffffffffffull));
	} else {
		if (plan->n_refs > RBK_SQE_REFS)
			return -EINVAL;
		for (unsigned int i = plan->n_refs; i < RBK_SQE_REFS; i++)
			if (refs[i])
				return -EINVAL;
	}

	bytes = plan->fixed_bytes + plan->row_bytes * sqe->count;
	for (unsigned int i = 0; i < plan->n_refs; i++) {
		res = predict_ref(h, refs[i], bytes, plan->written >> i & 1);
		if (res)
			return res;
	}
	for (unsigned int i = 0; i < plan->n_refs; i++) {
		for (unsigned int k = 0; k < plan->n_refs; k++) {
			uint64_t a = refs[i] & 0xffffffffffffull, b = refs[k] & 0xffffffffffffull;

			if (i != k && plan->written >> i & 1 && a < b + bytes && b < a + bytes &&
			    h->arenas[refs[i] >> 48].memory == h->arenas[refs[k] >> 48].memory)
				return -EINVAL;
		}
	}
	/* The broker has no GPU. */
	return sqe->strategy == RBK_STRATEGY_ONLY_GPU ? -ENODEV : 0;
}

static bool rest_is_zero(const struct rbk_sqe *sqe, unsigned int first_ref)
{
	for (unsigned int i = first_ref; i < RBK_SQE_REFS; i++)
		if (sqe->refs[i])
			return false;
	return sqe->plan_id == 0 && sqe->count == 0;
}

static int predict_alone(const struct hostile *h, const struct rbk_sqe *sqe)
{
	bool named = sqe->strategy & 0x80;

	if (sqe->flags > 15 || sqe->priority > 3 || (named && (sqe->strategy & 0x7f) > 15) ||
	    (!named && sqe->strategy > 7))
		return -EINVAL;
	if (sqe->opcode != RBK_OP_RUN && sqe->flags & (sqe->opcode == RBK_OP_PREFETCH ? 6 : 14))
		return -EINVAL;
	switch (sqe->opcode) {
	case RBK_OP_NOP:
		return rest_is_zero(sqe, 0) ? 0 : -EINVAL;
	case RBK_OP_RUN:
		return predict_run(h, sqe);
	case RBK_OP_CANCEL:
		return rest_is_zero(sqe, 1) ? -ENOENT : -EINVAL;
	case RBK_OP_BARRIER:
		return rest_is_zero(sqe, 0) && !(sqe->flags & RBK_SQE_LINK) ? 0 : -EINVAL;
	case RBK_OP_PREFETCH:
	case RBK_OP_EVICT:
		for (unsigned int i = 0; i < N_PLANS; i++)
			if (h->plans[i].id == sqe->plan_id)
				return -EOPNOTSUPP;
		return -ENOENT;
	default:
		return -EINVAL;
	}
}

/* Return the result of an entry as part of its chain; entries are passed in order. */
static int predict(struct hostile *h, const struct rbk_sqe *sqe)
{
	int res = predict_alone(h, sqe);
	/*
	 * -ENODEV, and -ENOENT of a CANCEL, are found when an entry starts; an entry that is
	 * cancelled with its chain never starts.
	 */
	bool is_refused = res && res != -ENOENT && res != -ENODEV;

	is_refused |= res == -ENOENT && sqe->opcode != RBK_OP_CANCEL;
	if (h->chain_open && sqe->opcode == RBK_OP_BARRIER) {
		res = -EINVAL;
		is_refused = true;
	}
	if (h->chain_open && h->chain_broken && !is_refused)
		res = -ECANCELED;
	h->chain_broken = res < 0;
	h->chain_open = sqe->flags & RBK_SQE_LINK;
	return res;
}

/* ---- The millions ---- */

static void fail_entry(const struct hostile *h, uint32_t slot, int res)
{
	const struct rbk_sqe *sqe = &h->sent[slot];

	for (unsigned int i = 0; i < RBK_SQE_REFS; i++)
		print_message("reference %u: arena %u, offset 0x%llx\n", i,
			      RBK_REF_ARENA(sqe->refs[i]),
			      (unsigned long long)RBK_REF_OFFSET(sqe->refs[i]));
	fail_msg("opcode %u flags 0x%x strategy 0x%x priority %u plan 0x%x count %u: result %d, "
		 "expected %d",
		 sqe->opcode, sqe->flags, sqe->strategy, sqe->priority, sqe->plan_id, sqe->count,
		 res, h->wanted[slot]);
}

/* Take all completions. Return: their number. */
static unsigned int collect(struct hostile *h, uint64_t n_sent)
{
	uint32_t tail = rbk_ring_observe(&h->ring.cq->cq_tail), n = tail - h->ring.head;
	struct rbk_cqe cqe;
	uint32_t slot;

	assert_true(n <= N_ENTRIES);
	for (uint32_t i = 0; i < n; i++) {
		cqe = h->ring.cq->cqes[h->ring.head++ & (N_ENTRIES - 1)];
		slot = cqe.user_data % (N_ENTRIES * 2);
		if (cqe.user_data >= n_sent || cqe.user_data + N_ENTRIES * 2 < n_sent ||
		    !h->is_due[slot])
			fail_msg("a completion of entry %llu, which is not due",
				 (unsigned long long)cqe.user_data);
		h->is_due[slot] = 0;
		if (cqe.res != h->wanted[slot])
			fail_entry(h, slot, cqe.res);
		if (cqe.res && cqe.device != RBK_DEVICE_NONE)
			fail_msg("a refused entry ran on device %u", cqe.device);
	}
	rbk_ring_publish(&h->ring.sq->cq_head, h->ring.head);
	return n;
}

TEST(test_entries__millions, hostile_begin, hostile_end)
{
	uint64_t n_total = test_scaled(10000000), n_sent = 0, n_done = 0, n_mutated = 0;
	uint64_t n_refused = 0, progress_ns;
	static struct hostile hostile;
	struct hostile *h = &hostile;
	struct rbk_sqe sqe;
	unsigned int n;

	client_begin(h, 0x9e3779b97f4a7c15u);
	progress_ns = harness_now_ns();
	while (n_done < n_total) {
		while (n_sent < n_total && n_sent - n_done < BATCH) {
			make_good(h, &sqe);
			if (pick(h, 4)) {
				mutate(h, &sqe);
				n_mutated++;
			}
			/*
			 * A table in other memory may change, so that its result cannot be
			 * predicted.
			 */
			if (sqe.flags & RBK_SQE_ARG_TABLE &&
			    RBK_REF_ARENA(sqe.table) != TABLES_ID &&
			    RBK_REF_ARENA(sqe.table) < N_IDS)
				sqe.table = RBK_REF(pick(h, 2) ? TABLES_ID : NO_ID, 0);
			sqe.user_data = n_sent;
			h->wanted[n_sent % (N_ENTRIES * 2)] = predict(h, &sqe);
			n_refused += h->wanted[n_sent % (N_ENTRIES * 2)] != 0;
			h->is_due[n_sent % (N_ENTRIES * 2)] = 1;
			h->sent[n_sent % (N_ENTRIES * 2)] = sqe;
			*raw_ring_next(&h->ring) = sqe;
			n_sent++;
			if (n_sent % 64 == 0)
				raw_ring_publish(&h->ring);
		}
		raw_ring_publish(&h->ring);
		n = collect(h, n_sent);
		n_done += n;
		if (n)
			progress_ns = harness_now_ns();
		else if (harness_now_ns() - progress_ns > 20000000000)
			fail_msg("no completion for 20 s after %llu of %llu",
				 (unsigned long long)n_done, (unsigned long long)n_sent);
	}
	for (unsigned int i = 0; i < N_ENTRIES * 2; i++)
		assert_int_equal(h->is_due[i], 0);
	/* Check that good and bad entries are mixed. */
	assert_true(n_mutated > n_total / 2);
	assert_true(n_refused > n_total / 4 && n_refused < n_total * 3 / 4);
	print_message("%llu entries, %llu mutated, %llu refused; the neighbour got %llu results, "
		      "one round took %.1f ms at most\n",
		      (unsigned long long)n_total, (unsigned long long)n_mutated,
		      (unsigned long long)n_refused,
		      (unsigned long long)(neighbour_results(neighbour) - results_before),
		      (double)neighbour_take_longest_ns(neighbour) / 1e6);
	client_end(h);
}

/* ---- Memory that changes while it is read ---- */

struct scribbler {
	struct hostile *h;
	atomic_bool stop;
};

static void *scribble_entries(void *data)
{
	struct scribbler *s = data;
	uint64_t seed = 4711, *words = (uint64_t *)s->h->ring.sq->sqes;

	while (!s->stop) {
		uint64_t random = harness_random(&seed);

		__atomic_store_n(&words[random % (64 * 8)],
				 random & 1 ? harness_random(&seed) : random >> 40,
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *scribble_tables(void *data)
{
	struct scribbler *s = data;
	uint64_t seed = 4712, *words = (uint64_t *)s->h->tables;

	while (!s->stop) {
		uint64_t random = harness_random(&seed), slot = random >> 8 & 0x7f;

		__atomic_store_n(&words[random % 6],
				 random & 1ull << 60 ? random : RBK_REF(1, slot * 4096),
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

/*
 * Change entries, or tables, while the broker reads them. Each entry completes once, whatever the
 * broker has copied.
 */
static void race(void *(*scribble)(void *), uint64_t n_rounds)
{
	static struct hostile hostile;
	struct hostile *h = &hostile;
	struct scribbler scribbler = {.h = h};
	struct rbk_cqe cqe;
	pthread_t thread;

	client_begin(h, 31);
	assert_int_equal(pthread_create(&thread, NULL, scribble, &scribbler), 0);
	for (uint64_t round = 0; round < n_rounds; round++) {
		for (unsigned int i = 0; i < 32; i++) {
			struct rbk_sqe *sqe = raw_ring_next(&h->ring), good;

			make_good(h, &good);
			good.flags &= (uint8_t)~RBK_SQE_LINK;
			if (good.flags & RBK_SQE_ARG_TABLE)
				good.table = RBK_REF(TABLES_ID, 0);
			/* The scribbler writes the same slots; both use atomic stores. */
			for (unsigned int k = 0; k < sizeof(good) / sizeof(uint64_t); k++)
				__atomic_store_n((uint64_t *)sqe + k, ((uint64_t *)&good)[k],
						 __ATOMIC_RELAXED);
		}
		raw_ring_publish(&h->ring);
		for (unsigned int i = 0; i < 32; i++) {
			if (!raw_ring_take(&h->ring, &cqe))
				fail_msg("completion %u of round %llu is missing", i,
					 (unsigned long long)round);
			assert_true(cqe.res <= 0 && cqe.res > -4096);
		}
		assert_int_equal(rbk_ring_observe(&h->ring.cq->cq_tail), h->ring.head);
	}
	scribbler.stop = true;
	pthread_join(thread, NULL);
	client_end(h);
}

TEST(test_entries__changing_while_read, hostile_begin, hostile_end)
{
	race(scribble_entries, test_scaled(20000));
}

TEST(test_tables__changing_while_read, hostile_begin, hostile_end)
{
	race(scribble_tables, test_scaled(20000));
}

/* ---- Indices ---- */

static void nudge(struct raw_ring *ring)
{
	send(ring->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Open a session with a ring on which @n NOPs have completed. */
static int begin_nops(struct raw_ring *ring, unsigned int n)
{
	int fd = hostile_session();
	struct rbk_cqe cqe;

	raw_ring_add(fd, 64, ring);
	for (unsigned int i = 0; i < n; i++) {
		memset(raw_ring_next(ring), 0, sizeof(struct rbk_sqe));
		raw_ring_publish(ring);
		assert_true(raw_ring_take(ring, &cqe));
	}
	return fd;
}

TEST(test_indices__impossible_tail, hostile_begin, hostile_end)
{
	static const int32_t tails[] = {65, 1000, INT32_MAX, INT32_MIN, -1, -64};
	struct raw_ring ring;
	int fd;

	for (unsigned int i = 0; i < sizeof(tails) / sizeof(*tails); i++) {
		fd = begin_nops(&ring, 100);
		rbk_ring_publish(&ring.sq->sq_tail, ring.tail + (uint32_t)tails[i]);
		nudge(&ring);
		raw_expect_closed(fd);
		assert_int_not_equal(ring.cq->closed, 0);
		raw_ring_close(&ring);
		close(fd);
	}
	broker_wait_log(&broker, "the client's ring indices are invalid");
}

struct spinner {
	struct raw_ring *ring;
	atomic_bool stop;
};

static void *scribble_indices(void *data)
{
	struct spinner *s = data;
	uint64_t seed = 99;

	while (!s->stop) {
		uint64_t random = harness_random(&seed);

		__atomic_store_n(&s->ring->sq->cq_wait, (uint32_t)random, __ATOMIC_RELAXED);
		if (random % 64 == 0)
			__atomic_store_n(&s->ring->sq->cq_head, (uint32_t)(random >> 32),
					 __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST(test_indices__changing_for_ever, hostile_begin, hostile_end)
{
	for (unsigned int round = 0; round < 20; round++) {
		struct raw_ring ring;
		struct spinner spinner = {.ring = &ring};
		int fd = begin_nops(&ring, 10);
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, scribble_indices, &spinner), 0);
		for (unsigned int i = 0; i < 200; i++) {
			memset(raw_ring_next(&ring), 0, sizeof(struct rbk_sqe));
			raw_ring_publish(&ring);
			nudge(&ring);
		}
		spinner.stop = true;
		pthread_join(thread, NULL);
		raw_ring_close(&ring);
		close(fd);
	}
}

/* ---- Bells ---- */

static void *flood_bell(void *data)
{
	struct spinner *s = data;
	char bytes[64];

	while (!s->stop) {
		if (send(s->ring->bell, "xxxxxxxxxxxxxxxxxxxx", 20, MSG_DONTWAIT | MSG_NOSIGNAL) <
		    0)
			recv(s->ring->bell, bytes, sizeof(bytes), MSG_DONTWAIT);
		send(s->ring->bell, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	return NULL;
}

/*
 * The broker ignores the doorbell of a client that rings without need for a while, but serves its
 * entries.
 */
TEST(test_bell__flood, hostile_begin, hostile_end)
{
	struct broker_usage before, after;
	struct raw_ring ring;
	struct spinner spinner = {.ring = &ring};
	int fd = begin_nops(&ring, 10);
	struct rbk_cqe cqe;
	pthread_t thread;
	uint64_t until_ns;

	assert_int_equal(pthread_create(&thread, NULL, flood_bell, &spinner), 0);
	broker_usage(&broker, &before);
	until_ns = harness_now_ns() + 1000000000;
	while (harness_now_ns() < until_ns) {
		memset(raw_ring_next(&ring), 0, sizeof(struct rbk_sqe));
		raw_ring_publish(&ring);
		assert_true(raw_ring_take(&ring, &cqe));
		harness_sleep_ms(5);
	}
	broker_usage(&broker, &after);
	/* The broker serves the neighbour meanwhile. */
	neighbour_finish_round(neighbour);
	spinner.stop = true;
	pthread_join(thread, NULL);
	raw_ring_close(&ring);
	close(fd);
}

TEST(test_bell__closed, hostile_begin, hostile_end)
{
	struct raw_ring ring;
	int fd = begin_nops(&ring, 10);
	struct rbk_stats stats;

	close(ring.bell);
	ring.bell = -1;
	for (unsigned int i = 0; i < 20; i++) {
		rbk_ring_announce_sleep(&ring.sq->cq_wait, i + 1);
		memset(raw_ring_next(&ring), 0, sizeof(struct rbk_sqe));
		raw_ring_publish(&ring);
	}
	harness_sleep_ms(20);
	assert_int_equal(rbk_stats(observer, &stats), 0);
	assert_int_equal(stats.sessions, 3);
	raw_ring_close(&ring);
	close(fd);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(170))
