/* SPDX-License-Identifier: MIT */
/*
 * Sealing memfds that clients can write: the kernel has that wait for as long as a client likes,
 * and no other tenant waits for it.
 */
#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "support/session-rig.h"

enum { N_ENTRIES = 64, ARENA_BYTES = 1 << 20 };

/* The lock of a memfd that a client writes to. */
static struct {
	atomic_bool is_held;
	_Atomic unsigned int n_waiting;
	sem_t let_go;
} lock;

/* fcntl() of 64-bit file offsets. Sealing areas before clients have them waits for nobody. */
int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...)
{
	va_list args;
	long arg;

	va_start(args, command);
	arg = va_arg(args, long);
	va_end(args);
	if (command == F_ADD_SEALS && (arg & F_SEAL_FUTURE_WRITE) && !(arg & F_SEAL_SHRINK) &&
	    atomic_load(&lock.is_held)) {
		lock.n_waiting++;
		sem_wait(&lock.let_go);
		lock.n_waiting--;
	}
	return __real_fcntl64(fd, command, arg);
}

static void hold_lock(void)
{
	sem_init(&lock.let_go, 0, 0);
	atomic_store(&lock.is_held, true);
}

static void release_lock(void)
{
	atomic_store(&lock.is_held, false);
	sem_post(&lock.let_go);
}

static uint64_t used(const struct rig *rig, enum account_slot slot)
{
	return account_used(rig->session->tenant->account, slot);
}

/* A ring whose bell is rung, and which is not sealed. */
static struct session_ring *begin_ring(struct rig *rig)
{
	struct rbk_wire_ring reply;
	struct session_ring *ring;

	assert_int_equal(session_ring_add(rig->session, 1, N_ENTRIES), 0);
	assert_int_equal(rig_answer(rig, RBK_WIRE_RING_ADD, &reply, sizeof(reply)), 0);
	ring = rig->session->rings[reply.id];
	hold_lock();
	assert_int_equal(send(ring->client_fds[RING_FD_BELL], "", 1, 0), 1);
	while (lock.n_waiting == 0)
		assert_true(loop_turn(rig->loop, false) >= 0);
	return ring;
}

static void begin_arena(struct rig *rig)
{
	int fd = rig_memfd(ARENA_BYTES, false);

	hold_lock();
	assert_int_equal(session_arena_add(rig->session, 1, &fd, ARENA_BYTES, true), 0);
	while (lock.n_waiting == 0)
		assert_true(loop_turn(rig->loop, false) >= 0);
}

/*
 * Another tenant gets a ring and an arena while the first one's memory is being sealed: a thread of
 * its own account seals them.
 */
static void others_are_served(struct rig *rig)
{
	struct account *own = rig->session->account;
	struct rig_ring ring;

	atomic_store(&lock.is_held, false);
	rig->session->account = tenants_broker_account(rig->tenants);
	rig_ring_new(rig, N_ENTRIES, &ring);
	assert_true(rig_arena_new(rig, ARENA_BYTES, false)->exec.is_fixed);
	rig->session->account = own;
	rig_ring_deinit(&ring);
	assert_int_equal(lock.n_waiting, 1);
}

static void test_seal__ring(void **state)
{
	struct session_ring *ring;
	struct rig rig;

	rig_init(&rig, 1);
	ring = begin_ring(&rig);
	others_are_served(&rig);
	assert_int_equal(ring->state, RING_SEALING);
	release_lock();
	while (ring->state == RING_SEALING)
		assert_true(loop_turn(rig.loop, true) >= 0);
	assert_int_equal(ring->state, RING_READY);
	rig_deinit(&rig);
}

static void test_seal__arena(void **state)
{
	struct rbk_wire_id_reply reply;
	struct rig rig;

	rig_init(&rig, 1);
	begin_arena(&rig);
	others_are_served(&rig);
	assert_int_equal(rig.session->arena_slots[1]->state, SLOT_PREPARING);
	release_lock();
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)), 0);
	assert_true(rig.session->arenas[reply.id]->exec.is_fixed);
	/* The memfd's descriptor is closed: what is left is the connection and the ring. */
	assert_int_equal(used(&rig, ACCOUNT_FDS), 1 + 4);
	rig_deinit(&rig);
}

/*
 * The session ends while it waits: what it has stays charged, the broker's end does not wait, and
 * everything comes back with the lock.
 */
static void test_seal__session_ends(void **state)
{
	for (unsigned int is_arena = 0; is_arena < 2; is_arena++) {
		struct account *account;
		struct rig rig;

		rig_init(&rig, 1);
		account = account_ref(rig.session->tenant->account);
		if (is_arena)
			begin_arena(&rig);
		else
			begin_ring(&rig);
		server_end_sessions(rig.server, "the test says so");
		while (!session_waits_for_closers(rig.session)) {
			rig_settle(&rig);
			assert_true(loop_turn(rig.loop, false) >= 0);
		}
		assert_int_equal(rig.server->n_sessions, 1);
		assert_true(account_used(account, ACCOUNT_MAPPINGS) > 0);
		release_lock();
		while (rig.server->n_sessions > 0) {
			rig_settle(&rig);
			assert_true(loop_turn(rig.loop, false) >= 0);
		}
		assert_int_equal(account_used(account, ACCOUNT_MAPPINGS), 0);
		assert_int_equal(account_used(account, ACCOUNT_RINGS), 0);
		assert_int_equal(account_used(account, ACCOUNT_ARENA_BYTES), 0);
		account_unref(account);
		rig_deinit(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seal__ring),
		cmocka_unit_test(test_seal__arena),
		cmocka_unit_test(test_seal__session_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
