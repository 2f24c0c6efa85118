/* SPDX-License-Identifier: MIT */
/* Entries that are valid but for one field, and the oracle of their results; see odd-entries.h. */
#include "integration/odd-entries.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "shm/ring.h"
#include "support/describe.h"
#include "support/test.h"

enum {
	ARENA_BYTES = 1 << 20,
	SMALL_BYTES = 8192,
	MAX_COUNT = 64,
	ROW_BYTES = 64, /* of every tensor */
	N_TABLES = 64,
	TABLE_BYTES = 512,
	TABLES_BYTES = N_TABLES * TABLE_BYTES,
	NO_ID = 5, /* arenas 0 and 5 do not exist */
	PER_PUBLISH = 64,
};

/* ---- The client's objects ---- */

static void make_plans(struct odd_entries *odd)
{
	struct describe *d = describe_new("rows", MAX_COUNT);

	odd->plans[0] =
		(struct odd_plan){hostile_plan(odd->fd, hostile_add()), 1, 3, ROW_BYTES, 0, 4};
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_input(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_node(d, "Mul", "mul", "x,y", "z");
	odd->plans[1] = (struct odd_plan){hostile_plan(odd->fd, d), MAX_COUNT, 3, 0, ROW_BYTES, 4};

	d = describe_new("many", MAX_COUNT);
	for (unsigned int i = 0; i < 4; i++) {
		char name[2] = {(char)('a' + i)};

		describe_input(d, name, DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	}
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_node(d, "Add", "left", "a,b", "y");
	describe_node(d, "Add", "right", "c,d", "z");
	odd->plans[2] = (struct odd_plan){hostile_plan(odd->fd, d), MAX_COUNT, 6, 0, ROW_BYTES, 48};

	d = describe_new("state", MAX_COUNT);
	describe_state(d, "s", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_node(d, "Mul", "update", "s,x", "s");
	odd->plans[3] = (struct odd_plan){hostile_plan(odd->fd, d), MAX_COUNT, 2, 0, ROW_BYTES, 1};
}

uint32_t odd_entries_pick(struct odd_entries *odd, uint32_t n)
{
	return (uint32_t)(harness_random(&odd->seed) >> 33) % n;
}

/* Choose @n references that a plan accepts, each in another slot of 4 KiB. */
static void good_refs(struct odd_entries *odd, uint64_t *refs, uint32_t n)
{
	uint32_t at = odd_entries_pick(odd, 128);

	for (uint32_t i = 0; i < n; i++)
		refs[i] = RBK_REF(1, ((at + i) % 128) * 4096);
}

/* Return @ref, or a reference to no arena instead of one to the tables, which no task may write. */
static uint64_t not_tables(uint64_t ref)
{
	return RBK_REF_ARENA(ref) == ODD_TABLES_ID ? RBK_REF(NO_ID, RBK_REF_OFFSET(ref)) : ref;
}

/* Return an arbitrary reference. */
static uint64_t any_ref(struct odd_entries *odd)
{
	uint64_t offset = (uint64_t)odd_entries_pick(odd, ARENA_BYTES / 64) * 64;

	switch (odd_entries_pick(odd, 8)) {
	case 0:
		offset += 1 + odd_entries_pick(odd, 63);
		break;
	case 1:
		offset = ARENA_BYTES - 64 + (uint64_t)odd_entries_pick(odd, 3) * 64;
		break;
	case 2:
		offset = ((1ull << 48) - 1) & harness_random(&odd->seed);
		break;
	case 3:
		offset = (1ull << 48) - 64;
		break;
	case 4:
		return not_tables(harness_random(&odd->seed));
	default:
		break;
	}
	return RBK_REF(odd_entries_pick(odd, 6) < 5 ? odd_entries_pick(odd, 6)
						    : 65535 - odd_entries_pick(odd, 3),
		       offset);
}

void odd_entries_begin(struct odd_entries *odd, int fd, uint64_t seed, bool is_scribbling)
{
	int constant = raw_memfd(ARENA_BYTES, false, IMMUTABLE);
	int small = raw_memfd(SMALL_BYTES, false, SHRINK_GROW);
	uint32_t id;

	memset(odd, 0, sizeof(*odd));
	odd->seed = seed;
	odd->is_scribbling = is_scribbling;
	odd->fd = fd;
	odd->memfd = raw_memfd(ARENA_BYTES, false, SHRINK_GROW);
	odd->base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, odd->memfd, 0);
	assert_ptr_not_equal(odd->base, MAP_FAILED);
	assert_int_equal(raw_arena_add(odd->fd, odd->memfd, ARENA_BYTES, NULL, NULL), 0);
	assert_int_equal(raw_arena_add(odd->fd, constant, ARENA_BYTES, NULL, NULL), 0);
	assert_int_equal(
		raw_arena_add(odd->fd, odd->memfd, ARENA_BYTES | RBK_WIRE_ARENA_FIX, NULL, NULL),
		0);
	assert_int_equal(raw_arena_add(odd->fd, small, SMALL_BYTES, NULL, NULL), 0);
	close(constant);
	close(small);
	/* The id between them is free again. */
	odd->tables_fd = raw_memfd(TABLES_BYTES, false, SHRINK_GROW);
	odd->tables =
		mmap(NULL, TABLES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, odd->tables_fd, 0);
	assert_ptr_not_equal(odd->tables, MAP_FAILED);
	assert_int_equal(raw_arena_add(odd->fd, odd->tables_fd, TABLES_BYTES, &id, NULL), 0);
	assert_int_equal(id, NO_ID);
	/* Without RBK_WIRE_ARENA_FIX, each table would take a request to another thread. */
	assert_int_equal(raw_arena_add(odd->fd, odd->tables_fd, TABLES_BYTES | RBK_WIRE_ARENA_FIX,
				       &id, NULL),
			 0);
	assert_int_equal(id, ODD_TABLES_ID);
	assert_int_equal(raw_remove(odd->fd, RBK_WIRE_ARENA_REMOVE, NO_ID), 0);
	odd->arenas[1] = (struct odd_arena){true, false, ARENA_BYTES, 0};
	odd->arenas[2] = (struct odd_arena){true, true, ARENA_BYTES, 1};
	odd->arenas[3] = (struct odd_arena){true, false, ARENA_BYTES, 0};
	odd->arenas[4] = (struct odd_arena){true, false, SMALL_BYTES, 2};
	odd->arenas[ODD_TABLES_ID] = (struct odd_arena){true, false, TABLES_BYTES, 3};
	make_plans(odd);
	raw_ring_add(odd->fd, ODD_ENTRIES, &odd->ring);
	/* The first half of the tables is valid; each of the others has one bad reference. */
	for (uint32_t i = 0; i < N_TABLES; i++) {
		uint64_t *table = (uint64_t *)(odd->tables + i * TABLE_BYTES);

		good_refs(odd, table, 6);
		if (i >= N_TABLES / 2)
			table[odd_entries_pick(odd, 6)] = any_ref(odd);
	}
}

void odd_entries_end(struct odd_entries *odd)
{
	raw_ring_close(&odd->ring);
	munmap(odd->base, ARENA_BYTES);
	munmap(odd->tables, TABLES_BYTES);
	close(odd->memfd);
	close(odd->tables_fd);
	close(odd->fd);
}

/* ---- Making entries ---- */

void odd_entries_make(struct odd_entries *odd, struct rbk_sqe *sqe)
{
	const struct odd_plan *plan;
	uint32_t kind = odd_entries_pick(odd, 16);

	memset(sqe, 0, sizeof(*sqe));
	sqe->strategy =
		(uint8_t)(odd_entries_pick(odd, 4) ? RBK_STRATEGY_AUTO : RBK_STRATEGY_ONLY_CPU);
	sqe->priority = (uint8_t)odd_entries_pick(odd, RBK_PRIORITY_COUNT);
	if (odd_entries_pick(odd, 8) == 0)
		sqe->flags = RBK_SQE_LINK;
	switch (kind) {
	case 0:
	case 1:
		sqe->opcode = RBK_OP_NOP;
		return;
	case 2:
		sqe->opcode = RBK_OP_CANCEL;
		sqe->target = harness_random(&odd->seed) | 1ull << 63;
		return;
	case 3:
		sqe->opcode = RBK_OP_BARRIER;
		sqe->flags = 0;
		return;
	case 4:
		sqe->opcode = (uint8_t)(RBK_OP_PREFETCH + odd_entries_pick(odd, 2));
		sqe->plan_id = odd->plans[odd_entries_pick(odd, ODD_PLANS)].id;
		return;
	default:
		break;
	}

	plan = &odd->plans[odd_entries_pick(odd, ODD_PLANS)];
	sqe->opcode = RBK_OP_RUN;
	sqe->plan_id = plan->id;
	sqe->count = 1 + odd_entries_pick(odd, plan->max_count);
	sqe->deadline_us = odd_entries_pick(odd, 4) ? 0 : odd_entries_pick(odd, 1000000);
	/* Without a GPU, WAIT_MEMORY never waits. */
	if (odd_entries_pick(odd, 8) == 0)
		sqe->flags |= RBK_SQE_WAIT_MEMORY;
	if (plan->n_refs <= RBK_SQE_REFS && odd_entries_pick(odd, 4)) {
		good_refs(odd, sqe->refs, plan->n_refs);
		return;
	}
	sqe->flags |= RBK_SQE_ARG_TABLE;
	sqe->table =
		RBK_REF(ODD_TABLES_ID, (uint64_t)odd_entries_pick(odd, N_TABLES) * TABLE_BYTES);
	sqe->n_refs = plan->n_refs;
}

static uint32_t odd_number(struct odd_entries *odd)
{
	static const uint32_t edges[] = {0,     1,         2,        3,         5,   63,
					 64,    65,        66,       255,       256, 65535,
					 65536, INT32_MAX, 1u << 31, UINT32_MAX};

	return odd_entries_pick(odd, 2)
		       ? edges[odd_entries_pick(odd, sizeof(edges) / sizeof(*edges))]
		       : (uint32_t)harness_random(&odd->seed);
}

/* Return a reference to change one of @sqe into. */
static uint64_t odd_ref(struct odd_entries *odd, const struct rbk_sqe *sqe)
{
	uint64_t near;

	switch (odd_entries_pick(odd, 8)) {
	case 0:
		return not_tables((uint64_t)odd_number(odd) << odd_entries_pick(odd, 33));
	case 1:
	case 2:
		/* Close to another tensor, in the same memory: they overlap, or just do not. */
		near = sqe->refs[odd_entries_pick(odd, RBK_SQE_REFS)];
		near = RBK_REF(
			odd_entries_pick(odd, 2) ? RBK_REF_ARENA(near) : 3,
			RBK_REF_OFFSET(near + ROW_BYTES * (odd_entries_pick(odd, 131) - 65ull)));
		return not_tables(near);
	default:
		return any_ref(odd);
	}
}

/* Let a valid entry wait for a few earlier ones, if there is room for their distances. */
static void make_join(struct odd_entries *odd, struct rbk_sqe *sqe)
{
	const uint32_t most = odd->n_sent < ODD_ENTRIES ? (uint32_t)odd->n_sent : ODD_ENTRIES;

	if (sqe->opcode == RBK_OP_BARRIER || sqe->refs[3] || sqe->refs[4] || most == 0)
		return;
	sqe->flags |= RBK_SQE_AFTER;
	for (uint32_t n = 1 + odd_entries_pick(odd, 3); n > 0; n--)
		sqe->after[odd_entries_pick(odd, 8)] =
			(uint16_t)(1 + odd_entries_pick(odd, odd_entries_pick(odd, 2) && most > 8
								     ? 8
								     : most));
}

/* Change one field. */
static void mutate(struct odd_entries *odd, struct rbk_sqe *sqe)
{
	switch (odd_entries_pick(odd, 13)) {
	case 0:
		sqe->opcode = (uint8_t)(odd_entries_pick(odd, 2) ? odd_entries_pick(odd, 8)
								 : odd_number(odd));
		break;
	case 1:
		sqe->flags = (uint8_t)(odd_entries_pick(odd, 2) ? odd_entries_pick(odd, 8)
								: odd_number(odd));
		break;
	case 2:
		sqe->strategy = (uint8_t)(odd_entries_pick(odd, 2) ? odd_entries_pick(odd, 8)
								   : odd_number(odd));
		break;
	case 3:
		sqe->priority = (uint8_t)odd_number(odd);
		break;
	case 4:
		sqe->plan_id = odd_entries_pick(odd, 2)
				       ? sqe->plan_id ^ 1u << odd_entries_pick(odd, 32)
				       : odd_number(odd);
		break;
	case 5:
		sqe->count = odd_number(odd);
		break;
	case 6:
		sqe->deadline_us = odd_number(odd);
		break;
	case 7:
		sqe->n_refs = odd_number(odd);
		break;
	case 8:
		sqe->state_rows = odd_number(odd);
		break;
	case 9:
		sqe->after[odd_entries_pick(odd, 8)] = (uint16_t)odd_number(odd);
		break;
	default:
		sqe->refs[odd_entries_pick(odd, RBK_SQE_REFS)] = odd_ref(odd, sqe);
		break;
	}
	/* The target of a CANCEL must not exist, so that its result is known. */
	if (sqe->opcode == RBK_OP_CANCEL)
		sqe->target |= 1ull << 63;
}

/* ---- The oracle ---- */

static int predict_ref(const struct odd_entries *odd, uint64_t ref, uint64_t bytes, bool written)
{
	uint32_t id = (uint32_t)(ref >> 48);
	uint64_t offset = ref & 0xffffffffffffull;

	if (ref == 0)
		return -EINVAL;
	if (id >= ODD_ARENAS || !odd->arenas[id].exists)
		return -EBADF;
	if (offset & 63)
		return -EINVAL;
	if (offset + bytes > odd->arenas[id].bytes)
		return -EFAULT;
	return written && odd->arenas[id].immutable ? -EACCES : 0;
}

static int predict_run(const struct odd_entries *odd, const struct rbk_sqe *sqe)
{
	const struct odd_plan *plan = NULL;
	const uint64_t *refs = sqe->refs;
	uint64_t bytes;
	int res;

	for (unsigned int i = 0; i < ODD_PLANS; i++)
		if (odd->plans[i].id == sqe->plan_id)
			plan = &odd->plans[i];
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
		res = predict_ref(odd, sqe->table, plan->n_refs * 8ull, false);
		if (res)
			return res;
		/* Other memory may be changing. */
		assert_int_equal(sqe->table >> 48, ODD_TABLES_ID);
		refs = (const uint64_t *)(odd->tables + (sqe->table & 0xffffffffffffull));
	} else {
		if (plan->n_refs > RBK_SQE_REFS)
			return -EINVAL;
		for (unsigned int i = plan->n_refs; i < RBK_SQE_REFS; i++)
			if (refs[i])
				return -EINVAL;
	}

	bytes = plan->fixed_bytes + plan->row_bytes * sqe->count;
	for (unsigned int i = 0; i < plan->n_refs; i++) {
		res = predict_ref(odd, refs[i], bytes, plan->written >> i & 1);
		if (res)
			return res;
	}
	for (unsigned int i = 0; i < plan->n_refs; i++) {
		for (unsigned int k = 0; k < plan->n_refs; k++) {
			uint64_t a = refs[i] & 0xffffffffffffull, b = refs[k] & 0xffffffffffffull;

			if (i != k && plan->written >> i & 1 && a < b + bytes && b < a + bytes &&
			    odd->arenas[refs[i] >> 48].memory == odd->arenas[refs[k] >> 48].memory)
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

static int predict_residency(const struct odd_entries *odd, const struct rbk_sqe *sqe)
{
	bool exists = false;

	for (unsigned int i = 0; i < ODD_PLANS; i++)
		exists |= odd->plans[i].id == sqe->plan_id;
	if (!exists)
		return -ENOENT;
	for (unsigned int i = 0; i < RBK_SQE_REFS; i++)
		if (sqe->refs[i])
			return -EINVAL;
	if (sqe->count || (sqe->strategy > 0 && sqe->strategy < 0x80))
		return -EINVAL;
	/* The processor has no memory of its own, and there is no other device to release memory.
	 */
	return sqe->opcode == RBK_OP_EVICT && sqe->strategy == RBK_STRATEGY_AUTO ? 0 : -ENODEV;
}

static int predict_alone(const struct odd_entries *odd, const struct rbk_sqe *sqe)
{
	bool named = sqe->strategy & 0x80;
	struct rbk_sqe rest;

	if (sqe->flags > 31 || sqe->priority > 3 || (named && (sqe->strategy & 0x7f) > 15) ||
	    (!named && sqe->strategy > 7))
		return -EINVAL;
	if (sqe->opcode != RBK_OP_RUN && sqe->flags & (sqe->opcode == RBK_OP_PREFETCH ? 6 : 14))
		return -EINVAL;
	if (sqe->flags & RBK_SQE_AFTER) {
		if (sqe->opcode == RBK_OP_BARRIER || !(sqe->refs[3] | sqe->refs[4]))
			return -EINVAL;
		rest = *sqe;
		rest.flags &= 15;
		rest.refs[3] = rest.refs[4] = 0;
		return predict_alone(odd, &rest);
	}
	switch (sqe->opcode) {
	case RBK_OP_NOP:
		return rest_is_zero(sqe, 0) ? 0 : -EINVAL;
	case RBK_OP_RUN:
		return predict_run(odd, sqe);
	case RBK_OP_CANCEL:
		return rest_is_zero(sqe, 1) ? -ENOENT : -EINVAL;
	case RBK_OP_BARRIER:
		return rest_is_zero(sqe, 0) && !(sqe->flags & RBK_SQE_LINK) ? 0 : -EINVAL;
	case RBK_OP_PREFETCH:
	case RBK_OP_EVICT:
		return predict_residency(odd, sqe);
	default:
		return -EINVAL;
	}
}

/*
 * Return what the entries that @sqe names make of it: 0; -ECANCELED: one has failed; -EINVAL: one
 * is none.
 */
static int predict_join(const struct odd_entries *odd, const struct rbk_sqe *sqe)
{
	int res = 0;

	for (unsigned int i = 0; i < 8 && sqe->flags & RBK_SQE_AFTER; i++) {
		const uint64_t distance = sqe->after[i];

		if (distance > ODD_ENTRIES || distance > odd->n_sent)
			return -EINVAL;
		if (distance > 0 && odd->wanted[(odd->n_sent - distance) % ODD_WINDOW] < 0)
			res = -ECANCELED;
	}
	return res;
}

/* Return the result of an entry as part of its chain; entries are passed in order. */
static int predict(struct odd_entries *odd, const struct rbk_sqe *sqe)
{
	int res = predict_alone(odd, sqe);
	/*
	 * -ENODEV, and -ENOENT of a CANCEL, are found when an entry starts; an entry that is
	 * cancelled with its chain never starts.
	 */
	bool is_refused = res && res != -ENOENT && res != -ENODEV;

	int joined = predict_join(odd, sqe);

	is_refused |= res == -ENOENT && sqe->opcode != RBK_OP_CANCEL;
	if (!is_refused && joined) {
		res = joined;
		is_refused = joined == -EINVAL;
	}
	if (odd->chain_open && sqe->opcode == RBK_OP_BARRIER) {
		res = -EINVAL;
		is_refused = true;
	}
	if (odd->chain_open && odd->chain_broken && !is_refused)
		res = -ECANCELED;
	odd->chain_broken = res < 0;
	odd->chain_open = sqe->flags & RBK_SQE_LINK;
	return res;
}

/* ---- Steps ---- */

/* Write to entries and tables that the broker is reading. */
static void scribble(struct odd_entries *odd)
{
	uint64_t *entries = (uint64_t *)odd->ring.sq->sqes, *tables = (uint64_t *)odd->tables;

	for (unsigned int i = 0; i < 32; i++) {
		uint64_t random = harness_random(&odd->seed);
		/* One of the entries that were published last, or the first six words of a table.
		 */
		uint32_t index = odd->ring.tail - 1 - (uint32_t)(random >> 8) % PER_PUBLISH;
		uint64_t *word =
			random & 1 ? &entries[(index & (ODD_ENTRIES - 1)) * 8 + (random >> 16) % 8]
				   : &tables[(random >> 8) % N_TABLES * TABLE_BYTES / 8 +
					     (random >> 16) % 6];

		__atomic_store_n(word,
				 random & 2 ? harness_random(&odd->seed)
					    : RBK_REF(1, (random >> 20) % 128 * 4096),
				 __ATOMIC_RELAXED);
	}
}

/* Copy @sqe into the ring, whose entries this thread may be scribbling on. */
static void put(struct odd_entries *odd, const struct rbk_sqe *sqe)
{
	uint64_t *to = (uint64_t *)raw_ring_next(&odd->ring), words[sizeof(*sqe) / 8];

	memcpy(words, sqe, sizeof(words));
	for (unsigned int i = 0; i < sizeof(*sqe) / 8; i++)
		__atomic_store_n(&to[i], words[i], __ATOMIC_RELAXED);
}

static void put_one(struct odd_entries *odd)
{
	const uint32_t slot = (uint32_t)(odd->n_sent % ODD_WINDOW);
	struct rbk_sqe *sqe = &odd->sent[slot];

	odd_entries_make(odd, sqe);
	if (odd_entries_pick(odd, 4) == 0)
		make_join(odd, sqe);
	if (odd_entries_pick(odd, 4)) {
		mutate(odd, sqe);
		odd->n_changed++;
	}
	/* A table in other memory may change, so that its result cannot be predicted. */
	if (sqe->flags & RBK_SQE_ARG_TABLE && RBK_REF_ARENA(sqe->table) != ODD_TABLES_ID &&
	    RBK_REF_ARENA(sqe->table) < ODD_ARENAS)
		sqe->table = RBK_REF(odd_entries_pick(odd, 2) ? ODD_TABLES_ID : NO_ID, 0);
	sqe->user_data = odd->n_sent;
	if (!odd->is_scribbling)
		odd->wanted[slot] = (int16_t)predict(odd, sqe);
	odd->is_due[slot] = 1;
	put(odd, sqe);
	odd->n_sent++;
}

/* Describe an entry whose result is not the documented one. */
static const char *say_entry(struct odd_entries *odd, uint32_t slot, int res)
{
	const struct rbk_sqe *sqe = &odd->sent[slot];
	size_t n;

	snprintf(odd->failure, sizeof(odd->failure),
		 "opcode %u flags 0x%x strategy 0x%x priority %u plan 0x%x count %u: result %d, "
		 "expected %d; references",
		 sqe->opcode, sqe->flags, sqe->strategy, sqe->priority, sqe->plan_id, sqe->count,
		 res, odd->wanted[slot]);
	for (unsigned int i = 0; i < RBK_SQE_REFS; i++) {
		n = strlen(odd->failure);
		snprintf(odd->failure + n, sizeof(odd->failure) - n, " %llx",
			 (unsigned long long)sqe->refs[i]);
	}
	return odd->failure;
}

static const char *judge(struct odd_entries *odd, const struct rbk_cqe *cqe)
{
	const uint32_t slot = (uint32_t)(cqe->user_data % ODD_WINDOW);

	if (cqe->res > 0 || cqe->res <= -ODD_ERRORS) {
		snprintf(odd->failure, sizeof(odd->failure), "a completion with result %d",
			 cqe->res);
		return odd->failure;
	}
	odd->n_results[-cqe->res]++;
	if (odd->is_scribbling)
		return NULL;
	if (cqe->user_data >= odd->n_sent || cqe->user_data + ODD_WINDOW < odd->n_sent ||
	    !odd->is_due[slot]) {
		snprintf(odd->failure, sizeof(odd->failure),
			 "a completion of entry %llu, which is not due",
			 (unsigned long long)cqe->user_data);
		return odd->failure;
	}
	odd->is_due[slot] = 0;
	if (cqe->res != odd->wanted[slot])
		return say_entry(odd, slot, cqe->res);
	if (cqe->res && cqe->device != RBK_DEVICE_NONE)
		return "a refused entry ran on a device";
	return NULL;
}

const char *odd_entries_step(struct odd_entries *odd, uint64_t n_most)
{
	uint32_t tail;

	while (n_most > 0 && odd->n_sent - odd->n_done < ODD_ENTRIES) {
		put_one(odd);
		n_most--;
		if (odd->n_sent % PER_PUBLISH > 0)
			continue;
		raw_ring_publish(&odd->ring);
		if (odd->is_scribbling)
			scribble(odd);
	}
	raw_ring_publish(&odd->ring);
	tail = rbk_ring_observe(&odd->ring.cq->cq_tail);
	if (tail - odd->ring.head > odd->n_sent - odd->n_done)
		return "more completions than entries";
	while (odd->ring.head != tail) {
		struct rbk_cqe cqe = odd->ring.cq->cqes[odd->ring.head++ & (ODD_ENTRIES - 1)];
		const char *sentence = judge(odd, &cqe);

		if (sentence)
			return sentence;
		odd->n_done++;
	}
	rbk_ring_publish(&odd->ring.sq->cq_head, odd->ring.head);
	return NULL;
}
