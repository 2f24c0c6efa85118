/* SPDX-License-Identifier: MIT */
/* Attacks by entries of rings: rows 1, 5, 8, 10, 11, 13, 16 and 17; see attack.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attack/attack.h"
#include "shm/ring.h"
#include "support/describe.h"

static const uint64_t patience_ns = 120000000000;

/* Rows with more sessions reduce all sizes, so that memory suffices. */
enum { MANY_SESSIONS = 64 };

/* A session with an arena, which every row of this file has. */
struct victim {
	int fd;
	int memfd;
	uint32_t arena_id;
	uint32_t plan_id;
	struct raw_ring ring;
};

static void open_with(struct attack *attack, struct victim *victim, int memfd, uint64_t bytes,
		      struct describe *describe, uint32_t n_entries)
{
	struct rbk_wire_arena_add add = {.request = {.type = RBK_WIRE_ARENA_ADD, .cookie = 3},
					 .bytes = bytes};
	struct rbk_wire_id_reply reply = {{0}};
	int r;

	victim->fd = attack_connect(attack);
	victim->memfd = memfd;
	attack_send(attack, victim->fd, &add, sizeof(add), &memfd, 1);
	if (attack_receive(attack, victim->fd, &reply, sizeof(reply)))
		attack_fail(attack, "the attacker has no arena: %s", reply.reply.text);
	victim->arena_id = reply.id;
	r = attack_plan_add(attack, victim->fd, describe, &victim->plan_id);
	if (r)
		attack_fail(attack, "the attacker has no plan: %s", strerror(-r));
	raw_ring_add(victim->fd, n_entries, &victim->ring);
}

static int memfd_of(uint64_t bytes)
{
	return raw_memfd(bytes, false, F_SEAL_SHRINK | F_SEAL_GROW);
}

/*
 * Take a completion.
 * Return: false if there is none.
 */
static bool try_take(struct raw_ring *ring, struct rbk_cqe *ret)
{
	if (rbk_ring_observe(&ring->cq->cq_tail) == ring->head)
		return false;
	*ret = ring->cq->cqes[ring->head++ & (ring->n_entries - 1)];
	rbk_ring_publish(&ring->sq->cq_head, ring->head);
	return true;
}

static struct rbk_cqe take(struct attack *attack, struct raw_ring *ring)
{
	const uint64_t begin_ns = harness_now_ns();
	struct rbk_cqe cqe;

	while (!try_take(ring, &cqe)) {
		uint64_t waited_ns = harness_now_ns() - begin_ns;

		if (waited_ns > patience_ns)
			attack_fail(attack, "row %u: a task of the attacker has not ended",
				    attack->row);
		if (waited_ns > 200000)
			usleep(200);
	}
	return cqe;
}

static void put_run(struct victim *victim, uint64_t x, uint64_t y, uint64_t z,
		    unsigned int strategy, uint64_t user_data)
{
	*raw_ring_next(&victim->ring) = (struct rbk_sqe){
		.opcode = RBK_OP_RUN,
		.strategy = (uint8_t)strategy,
		.plan_id = victim->plan_id,
		.user_data = user_data,
		.count = 1,
		.refs = {RBK_REF(victim->arena_id, x), RBK_REF(victim->arena_id, y),
			 RBK_REF(victim->arena_id, z)},
	};
}

/*
 * Write the references of a RUN into the table at offset @table of the arena, which is mapped at
 * @arena. They are the three pages behind the table's.
 */
static void write_table(const struct victim *victim, char *arena, uint64_t table)
{
	for (unsigned int i = 0; i < 3; i++)
		((uint64_t *)(arena + table))[i] =
			RBK_REF(victim->arena_id, table + 4096 * (i + 1));
}

static void put_by_table(struct victim *victim, uint64_t table, uint8_t flags)
{
	*raw_ring_next(&victim->ring) = (struct rbk_sqe){
		.opcode = RBK_OP_RUN,
		.flags = RBK_SQE_ARG_TABLE | flags,
		.strategy = RBK_STRATEGY_ONLY_CPU,
		.plan_id = victim->plan_id,
		.count = 1,
		.table = RBK_REF(victim->arena_id, table),
		.n_refs = 3,
	};
}

/* ---- 1: a plan of many parts, more tasks at once than a device has slots ---- */

void attack_parts(struct attack *attack, unsigned int thread)
{
	enum { SIDE = 192, BYTES = SIDE * SIDE * 4, N_TASKS = 40 };
	const unsigned int n_products = attack->is_slow ? 4 : 12;
	unsigned int n = attack_share(attack, thread, NULL);
	/* The results are not checked, so with many sessions all tasks share one output. */
	const uint64_t n_outputs = attack->n_sessions > MANY_SESSIONS ? 1 : N_TASKS;
	struct victim *victims = calloc(n ? n : 1, sizeof(*victims));

	for (unsigned int i = 0; i < n; i++)
		open_with(attack, &victims[i], memfd_of((n_outputs + 2) * BYTES),
			  (n_outputs + 2) * BYTES, attack_describe_products(SIDE, n_products), 64);
	do {
		for (unsigned int i = 0; i < n; i++) {
			for (uint64_t k = 0; k < N_TASKS; k++)
				put_run(&victims[i], 0, BYTES, (2 + k % n_outputs) * BYTES,
					k % 2 ? RBK_STRATEGY_ONLY_GPU : RBK_STRATEGY_PREFER_GPU, k);
			raw_ring_publish(&victims[i].ring);
		}
		for (unsigned int i = 0; i < n; i++)
			for (unsigned int k = 0; k < N_TASKS; k++) {
				struct rbk_cqe cqe = take(attack, &victims[i].ring);

				if (cqe.res)
					attack_fail(attack, "row 1: a task failed: %s",
						    strerror(-cqe.res));
				attack_count(attack, 0);
			}
	} while (n > 0 && attack_goes_on(attack));
	free(victims);
}

/* ---- 5: long products on the processor ---- */

static void cancel_all(struct attack *attack, struct victim *victims, unsigned int n,
		       unsigned int n_tasks)
{
	for (unsigned int i = 0; i < n; i++) {
		const uint64_t begin_ns = harness_now_ns();
		unsigned int n_left = n_tasks;

		for (uint64_t k = 0; k < n_tasks; k++)
			*raw_ring_next(&victims[i].ring) = (struct rbk_sqe){
				.opcode = RBK_OP_CANCEL, .user_data = 1000 + k, .target = k};
		raw_ring_publish(&victims[i].ring);
		/* Take the completion of each task and of each CANCEL. */
		for (unsigned int k = 0; k < 2 * n_tasks && n_left > 0; k++) {
			struct rbk_cqe cqe = take(attack, &victims[i].ring);

			n_left -= cqe.user_data < 1000;
		}
		attack_note_longest(attack, harness_now_ns() - begin_ns);
	}
}

void attack_products(struct attack *attack, unsigned int thread)
{
	enum { N_TASKS = 8, N_PRODUCTS = 6 };
	const uint64_t bytes = (uint64_t)attack->side * attack->side * 4;
	unsigned int n = attack_share(attack, thread, NULL);
	struct victim *victims = calloc(n ? n : 1, sizeof(*victims));
	/* All sessions read and write the same tensors: the results are not checked. */
	int memfd = memfd_of((N_TASKS + 2) * bytes);

	for (unsigned int i = 0; i < n; i++) {
		open_with(attack, &victims[i], memfd, (N_TASKS + 2) * bytes,
			  attack_describe_products(attack->side, N_PRODUCTS), 32);
		for (uint64_t k = 0; k < N_TASKS; k++)
			put_run(&victims[i], 0, bytes, (2 + k) * bytes, RBK_STRATEGY_ONLY_CPU, k);
		raw_ring_publish(&victims[i].ring);
	}
	while (n > 0 && attack_goes_on(attack)) {
		for (unsigned int i = 0; i < n; i++) {
			struct rbk_cqe cqe;

			while (try_take(&victims[i].ring, &cqe)) {
				attack_count(attack, cqe.res);
				put_run(&victims[i], 0, bytes, (2 + cqe.user_data) * bytes,
					RBK_STRATEGY_ONLY_CPU, cqe.user_data);
				raw_ring_publish(&victims[i].ring);
			}
		}
		usleep(1000);
	}
	/* Cancel one session's tasks; the broker cleans up after the others' end. */
	if (thread == 0 && n > 0)
		cancel_all(attack, victims, 1, N_TASKS);
	free(victims);
}

/* ---- 8: CANCEL of unknown tasks, which searches all tasks ---- */

enum { CANCEL_ENTRIES = 32768, CANCEL_BATCH = 64, FEWER = 32 };

/* Return the number of linked entries behind the long task of one session's chain. */
static unsigned int n_to_hold(const struct attack *attack)
{
	return attack->n_sessions > MANY_SESSIONS ? 30000 / FEWER : 30000;
}

static uint64_t cancel_ns(struct attack *attack, struct victim *victim, uint64_t target)
{
	const uint64_t begin_ns = harness_now_ns();

	*raw_ring_next(&victim->ring) =
		(struct rbk_sqe){.opcode = RBK_OP_CANCEL, .user_data = 2, .target = target};
	raw_ring_publish(&victim->ring);
	while (take(attack, &victim->ring).user_data != 2)
		;
	return harness_now_ns() - begin_ns;
}

/*
 * Return a target whose CANCEL takes long each time, because it searches all tasks; any target if
 * none does.
 */
static uint64_t find_collision(struct attack *attack, struct victim *victim)
{
	const uint64_t end_ns = harness_now_ns() + 500000000;
	uint64_t usual_ns = UINT64_MAX, ns;

	for (uint64_t i = 0; i < 100; i++) {
		ns = cancel_ns(attack, victim, 100 + i);
		usual_ns = ns < usual_ns ? ns : usual_ns;
	}
	for (uint64_t target = 200; harness_now_ns() < end_ns && attack_goes_on(attack); target++) {
		bool is_slow = true;

		for (unsigned int k = 0; k < 4 && is_slow; k++)
			is_slow = cancel_ns(attack, victim, target) > usual_ns + 100000;
		if (is_slow)
			return target;
	}
	return 200;
}

/* Submit a long task, and a chain of n_to_hold() entries behind it, all with one user_data. */
static void hold_many(struct attack *attack, struct victim *victim)
{
	const uint64_t bytes = (uint64_t)attack->side * attack->side * 4;

	put_run(victim, 0, bytes, 2 * bytes, RBK_STRATEGY_ONLY_CPU, 1);
	victim->ring.sq->sqes[(victim->ring.tail - 1) & (victim->ring.n_entries - 1)].flags =
		RBK_SQE_LINK;
	for (unsigned int i = 0; i < n_to_hold(attack); i++)
		*raw_ring_next(&victim->ring) = (struct rbk_sqe){
			.opcode = RBK_OP_NOP, .flags = RBK_SQE_LINK, .user_data = 1};
	/* Without LINK, this entry ends the chain. */
	*raw_ring_next(&victim->ring) = (struct rbk_sqe){.opcode = RBK_OP_NOP, .user_data = 1};
	raw_ring_publish(&victim->ring);
}

void attack_cancels(struct attack *attack, unsigned int thread)
{
	enum { N_PRODUCTS = 6 };
	const uint64_t bytes = (uint64_t)attack->side * attack->side * 4;
	unsigned int n = attack_share(attack, thread, NULL);
	struct victim *victims = calloc(n ? n : 1, sizeof(*victims));
	unsigned int *n_held = calloc(n ? n : 1, sizeof(*n_held));
	uint64_t *targets = calloc(n ? n : 1, sizeof(*targets));
	int memfd = memfd_of(3 * bytes);
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < n; i++)
		open_with(attack, &victims[i], memfd, 3 * bytes,
			  attack_describe_products(attack->side, N_PRODUCTS),
			  attack->n_sessions > MANY_SESSIONS ? CANCEL_ENTRIES / FEWER
							     : CANCEL_ENTRIES);
	while (n > 0 && attack_goes_on(attack))
		for (unsigned int i = 0; i < n && attack_goes_on(attack); i++) {
			/* Completions of the chain make room for the next chain. */
			while (try_take(&victims[i].ring, &cqe)) {
				attack_count(attack, 0);
				if (cqe.user_data == 1)
					n_held[i]--;
			}
			if (n_held[i] == 0) {
				hold_many(attack, &victims[i]);
				n_held[i] = n_to_hold(attack) + 2;
				if (!targets[i])
					targets[i] = find_collision(attack, &victims[i]);
				if (rbk_ring_observe(&victims[i].ring.cq->cq_tail) !=
				    victims[i].ring.head)
					continue;
			}
			for (unsigned int k = 0; k < CANCEL_BATCH; k++)
				*raw_ring_next(&victims[i].ring) =
					(struct rbk_sqe){.opcode = RBK_OP_CANCEL,
							 .user_data = 3,
							 .target = targets[i]};
			raw_ring_publish(&victims[i].ring);
			for (unsigned int k = 0; k < CANCEL_BATCH;) {
				cqe = take(attack, &victims[i].ring);
				n_held[i] -= cqe.user_data == 1;
				if (cqe.user_data != 3)
					continue;
				attack_count(attack, cqe.res);
				k++;
			}
		}
	free(targets);
	free(n_held);
	free(victims);
}

/* ---- 10: argument tables, tensors and entries in memory with punched holes ---- */

struct puncher {
	struct attack *attack;
	int fds[2]; /* arena and submission ring; -1: none */
	uint64_t bytes[2];
	_Atomic bool stop;
	pthread_t thread;
};

static void *puncher_main(void *data)
{
	struct puncher *puncher = data;
	const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

	while (!atomic_load(&puncher->stop))
		for (unsigned int i = 0; i < 2; i++)
			if (puncher->fds[i] >= 0)
				fallocate(puncher->fds[i], punch, 0, (off_t)puncher->bytes[i]);
	return NULL;
}

/*
 * Punch holes while the broker reads. The table is in the middle of the arena: a page fault there
 * sleeps until the whole hole is made. The broker then reads zeros, so no task here must succeed.
 */
void attack_punch(struct attack *attack, unsigned int thread)
{
	enum { N_ENTRIES = 64 };
	const uint64_t bytes = attack->arena_bytes, table = bytes / 2 & ~(uint64_t)4095;
	unsigned int n = attack_share(attack, thread, NULL);
	struct victim *victims = calloc(n ? n : 1, sizeof(*victims));
	int memfd = memfd_of(bytes);
	char *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	struct puncher puncher = {.attack = attack, .fds = {memfd, -1}, .bytes = {bytes, 0}};
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < n; i++)
		open_with(attack, &victims[i], memfd, bytes, attack_describe_add(), N_ENTRIES);
	if (n == 0 || arena == MAP_FAILED ||
	    pthread_create(&puncher.thread, NULL, puncher_main, &puncher))
		return;
	while (attack_goes_on(attack)) {
		for (unsigned int i = 0; i < n; i++) {
			/* Writing the table brings its pages back until the next hole. */
			write_table(&victims[i], arena, table);
			for (unsigned int k = 0; k < 16; k++)
				put_by_table(&victims[i], table, 0);
			raw_ring_publish(&victims[i].ring);
		}
		for (unsigned int i = 0; i < n; i++)
			for (unsigned int k = 0; k < 16; k++) {
				cqe = take(attack, &victims[i].ring);
				attack_count(attack, cqe.res);
			}
	}
	atomic_store(&puncher.stop, true);
	pthread_join(puncher.thread, NULL);
	free(victims);
}

/* ---- 11: the broker refills what the client has punched ---- */

void attack_refill(struct attack *attack, unsigned int thread)
{
	enum { N_TASKS = 4 };
	const uint32_t side = attack->n_sessions > MANY_SESSIONS ? 128 : 1024;
	const uint64_t bytes = (uint64_t)side * side * 4, arena_bytes = (N_TASKS + 2) * bytes;
	unsigned int n = attack_share(attack, thread, NULL);
	struct victim *victims = calloc(n ? n : 1, sizeof(*victims));
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < n; i++) {
		struct describe *d = describe_new("copy", 1);

		describe_input(d, "x", DESCRIBE_DIMS(side, side));
		describe_input(d, "y", DESCRIBE_DIMS(side, side));
		describe_output(d, "z", DESCRIBE_DIMS(side, side));
		describe_node(d, "Add", "", "x,y", "z");
		open_with(attack, &victims[i], memfd_of(arena_bytes), arena_bytes, d, 16);
	}
	while (n > 0 && attack_goes_on(attack)) {
		for (unsigned int i = 0; i < n; i++) {
			fallocate(victims[i].memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				  (off_t)arena_bytes);
			for (uint64_t k = 0; k < N_TASKS; k++)
				put_run(&victims[i], 0, bytes, (2 + k) * bytes,
					RBK_STRATEGY_ONLY_CPU, k);
			raw_ring_publish(&victims[i].ring);
		}
		for (unsigned int i = 0; i < n; i++)
			for (unsigned int k = 0; k < N_TASKS; k++) {
				cqe = take(attack, &victims[i].ring);
				attack_count(attack, cqe.res);
			}
	}
	free(victims);
}

/* ---- 13: many rings of one tenant, all of them full of small tasks ---- */

void attack_many_rings(struct attack *attack, unsigned int thread)
{
	enum { N_ENTRIES = 64 };
	const unsigned int n_each = attack->n_sessions > MANY_SESSIONS ? 1 : 16;
	unsigned int n = attack_share(attack, thread, NULL), n_rings = n * n_each;
	struct victim *victims = calloc(n_rings ? n_rings : 1, sizeof(*victims));
	int memfd = memfd_of(4096);
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < n_rings; i++) {
		if (i % n_each == 0) {
			open_with(attack, &victims[i], memfd, 4096, attack_describe_add(),
				  N_ENTRIES);
			continue;
		}
		victims[i] = victims[i - 1];
		raw_ring_add(victims[i].fd, N_ENTRIES, &victims[i].ring);
	}
	while (n_rings > 0 && attack_goes_on(attack))
		for (unsigned int i = 0; i < n_rings; i++) {
			while (try_take(&victims[i].ring, &cqe))
				attack_count(attack, cqe.res);
			while (victims[i].ring.tail - victims[i].ring.head < N_ENTRIES)
				put_run(&victims[i], 0, 64, 128, RBK_STRATEGY_ONLY_CPU, 0);
			raw_ring_publish(&victims[i].ring);
		}
	free(victims);
}

/* ---- 16 and 17: argument tables, in chains, and of removed rings ---- */

enum { TABLE_ENTRIES = 64, TABLE_ARENA_BYTES = 4 * 4096 };

/* Open an arena with a table at its start. The arena is not fixed, so a thread copies the table. */
static char *open_with_table(struct attack *attack, struct victim *victim)
{
	int memfd = memfd_of(TABLE_ARENA_BYTES);
	char *arena = mmap(NULL, TABLE_ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);

	if (arena == MAP_FAILED)
		attack_fail(attack, "the attacker cannot map its arena");
	open_with(attack, victim, memfd, TABLE_ARENA_BYTES, attack_describe_add(), TABLE_ENTRIES);
	write_table(victim, arena, 0);
	return arena;
}

void attack_links(struct attack *attack, unsigned int thread)
{
	unsigned int n = attack_share(attack, thread, NULL);
	struct victim *victims = calloc(n ? n : 1, sizeof(*victims));
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < n; i++)
		open_with_table(attack, &victims[i]);
	while (n > 0 && attack_goes_on(attack)) {
		for (unsigned int i = 0; i < n; i++) {
			for (unsigned int k = 0; k < TABLE_ENTRIES; k++)
				put_by_table(&victims[i], 0,
					     k + 1 < TABLE_ENTRIES ? RBK_SQE_LINK : 0);
			raw_ring_publish(&victims[i].ring);
		}
		for (unsigned int i = 0; i < n; i++)
			for (unsigned int k = 0; k < TABLE_ENTRIES; k++) {
				cqe = take(attack, &victims[i].ring);
				if (cqe.res)
					attack_fail(attack, "row %u: a linked task failed: %s",
						    attack->row, strerror(-cqe.res));
				attack_count(attack, 0);
			}
	}
	free(victims);
}

/* Remove the ring, or end its session, while tables of its entries are copied. */
void attack_tables(struct attack *attack, unsigned int thread)
{
	unsigned int n = attack_share(attack, thread, NULL);
	struct victim victim;
	char *arena;

	for (unsigned int round = 0; n > 0 && attack_goes_on(attack); round++) {
		arena = open_with_table(attack, &victim);
		for (unsigned int i = 0; i < 8; i++) {
			for (unsigned int k = 0; k < TABLE_ENTRIES; k++)
				put_by_table(&victim, 0, k % 2 ? RBK_SQE_LINK : 0);
			raw_ring_publish(&victim.ring);
			if (i == 7 && round % 2)
				break;
			raw_remove(victim.fd, RBK_WIRE_RING_REMOVE, victim.ring.id);
			raw_ring_close(&victim.ring);
			attack_count(attack, 0);
			raw_ring_add(victim.fd, TABLE_ENTRIES, &victim.ring);
		}
		close(victim.fd);
		raw_ring_close(&victim.ring);
		close(victim.memfd);
		munmap(arena, TABLE_ARENA_BYTES);
	}
}
