/* SPDX-License-Identifier: MIT */
/*
 * Sealing memfds that clients can write, faulting in their pages, wrapping them for devices and
 * sending sockets. A client can make these calls wait as long as it likes; other tenants do not
 * wait for them.
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"

enum { N_ENTRIES = 64, ARENA_BYTES = 1 << 20 };

/*
 * A call that waits: for the lock of a memfd that a client writes, for holes punched while pages
 * are faulted in, or for the kernel's collection of sockets.
 */
static struct gate {
	atomic_bool is_held;
	_Atomic unsigned int n_waiting;
	sem_t let_go;
} lock, holes, writers, garbage;

static void gate_pass(struct gate *gate)
{
	if (!atomic_load(&gate->is_held))
		return;
	gate->n_waiting++;
	sem_wait(&gate->let_go);
	gate->n_waiting--;
}

static void gate_hold(struct gate *gate)
{
	sem_init(&gate->let_go, 0, 0);
	atomic_store(&gate->is_held, true);
}

static void gate_release(struct gate *gate)
{
	atomic_store(&gate->is_held, false);
	sem_post(&gate->let_go);
}

/* fcntl() of 64-bit file offsets. Sealing an area before its client has it never waits. */
int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...)
{
	va_list args;
	long arg;

	va_start(args, command);
	arg = va_arg(args, long);
	va_end(args);
	if (command == F_ADD_SEALS && (arg & F_SEAL_FUTURE_WRITE) && !(arg & F_SEAL_SHRINK))
		gate_pass(&lock);
	return __real_fcntl64(fd, command, arg);
}

int __real_madvise(void *base, size_t n_bytes, int advice);
int __wrap_madvise(void *base, size_t n_bytes, int advice);
int __wrap_madvise(void *base, size_t n_bytes, int advice)
{
	if (n_bytes == ARENA_BYTES)
		gate_pass(&holes);
	return __real_madvise(base, n_bytes, advice);
}

static pthread_t reactor;

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	/* Only the bell, the last of three descriptors in an answer, is a socket. */
	if (message->msg_controllen == CMSG_SPACE(3 * sizeof(int))) {
		assert_false(pthread_equal(pthread_self(), reactor));
		gate_pass(&garbage);
	}
	return __real_sendmsg(fd, message, flags);
}

static uint64_t used(const struct rig *rig, enum account_slot slot)
{
	return account_used(rig->session->tenant->account, slot);
}

enum { N_SEGMENTS = 4, SEGMENT_BYTES = ARENA_BYTES / N_SEGMENTS };

static struct {
	/* arenas wrapped, and imported with wrapped memory */
	_Atomic unsigned int n_wrapped, n_imported;
	/* [1] is duplicated for each wrapped descriptor; [0] ends when all are closed */
	int pipes[2];
} device;

static void wrap(struct executor *executor, struct exec_arena *arena)
{
	struct exec_wraps *wraps = malloc(sizeof(*wraps) + N_SEGMENTS * sizeof(wraps->fds[0]));

	gate_pass(&writers);
	assert_non_null(wraps);
	assert_true(arena->fd >= 0);
	wraps->n = N_SEGMENTS;
	for (unsigned int i = 0; i < N_SEGMENTS; i++)
		wraps->fds[i] = fcntl(device.pipes[1], F_DUPFD_CLOEXEC, 0);
	arena->wraps[executor->index] = wraps;
	device.n_wrapped++;
}

static void import(struct executor *executor, struct exec_arena *arena)
{
	device.n_imported += arena->wraps[executor->index] != NULL;
}

/* Begin with a device 1 that has memfds wrapped. */
static void begin_wrapping(struct rig *rig)
{
	device.n_wrapped = device.n_imported = 0;
	assert_int_equal(pipe(device.pipes), 0);
	rig_init(rig, 2);
	rig->fakes[1].ops.arena_wrap = wrap;
	rig->fakes[1].ops.arena_import = import;
	rig->fakes[1].executor.info.arena_segment_bytes = SEGMENT_BYTES;
}

static void end_wrapping(struct rig *rig)
{
	char byte;

	rig_deinit(rig);
	close(device.pipes[1]);
	assert_int_equal(read(device.pipes[0], &byte, 1), 0);
	close(device.pipes[0]);
}

/* Make a ring whose bell is rung, and which is not sealed yet. */
static struct session_ring *begin_ring(struct rig *rig)
{
	struct rbk_wire_ring reply;
	struct session_ring *ring;

	assert_int_equal(session_ring_add(rig->session, 1, N_ENTRIES), 0);
	assert_int_equal(rig_answer(rig, RBK_WIRE_RING_ADD, &reply, sizeof(reply)), 0);
	ring = rig->session->rings[reply.id];
	gate_hold(&lock);
	assert_int_equal(send(ring->client_fds[RING_FD_BELL], "", 1, 0), 1);
	while (lock.n_waiting == 0)
		assert_true(loop_turn(rig->loop, false) >= 0);
	return ring;
}

/* Ask for an arena, which is not prepared while the gate is held. */
static void begin_arena(struct rig *rig, struct gate *gate)
{
	int fd = rig_memfd(ARENA_BYTES, false);

	gate_hold(gate);
	assert_int_equal(session_arena_add(rig->session, 1, &fd, ARENA_BYTES, true), 0);
	while (gate->n_waiting == 0)
		assert_true(loop_turn(rig->loop, false) >= 0);
}

/*
 * Check that another tenant gets a ring and an arena while the first tenant's memory is being
 * sealed or faulted in: a thread of the first tenant's own account does that.
 */
static void others_are_served(struct rig *rig, struct gate *gate)
{
	struct account *own = rig->session->account;
	struct rig_ring ring;

	atomic_store(&gate->is_held, false);
	rig->session->account = tenants_broker_account(rig->tenants);
	rig_ring_new(rig, N_ENTRIES, &ring);
	assert_true(rig_arena_new(rig, ARENA_BYTES, false)->exec.is_fixed);
	rig->session->account = own;
	rig_ring_deinit(&ring);
	assert_int_equal(gate->n_waiting, 1);
}

TEST(test_seal__ring)
{
	struct session_ring *ring;

	RIG(rig, 1);
	ring = begin_ring(&rig);
	others_are_served(&rig, &lock);
	assert_int_equal(ring->state, RING_SEALING);
	gate_release(&lock);
	while (ring->state == RING_SEALING)
		assert_true(loop_turn(rig.loop, true) >= 0);
	assert_int_equal(ring->state, RING_READY);
}

/* Make a ring, whose answer is not sent while sockets are collected. */
static void begin_answer(struct rig *rig)
{
	gate_hold(&garbage);
	assert_int_equal(session_ring_add(rig->session, 1, N_ENTRIES), 0);
	while (garbage.n_waiting == 0)
		assert_true(loop_turn(rig->loop, false) >= 0);
}

TEST(test_seal__answer)
{
	struct rbk_wire_ring reply;

	RIG(rig, 1);
	begin_answer(&rig);
	others_are_served(&rig, &garbage);
	gate_release(&garbage);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_ADD, &reply, sizeof(reply)), 0);
	while (rig.session->rings[reply.id]->state == RING_ANSWERING)
		assert_true(loop_turn(rig.loop, true) >= 0);
	assert_int_equal(rig.session->rings[reply.id]->state, RING_QUIET);
}

/*
 * A client that has the answer asks for the ring's removal before the reactor knows that the answer
 * was sent.
 */
TEST(test_seal__removed_at_once)
{
	struct session_ring *ring;

	RIG(rig, 1);
	begin_answer(&rig);
	ring = rig.session->rings[0];
	assert_int_equal(session_ring_remove(rig.session, 2, ring->id), 0);
	rig_settle(&rig);
	assert_ptr_equal(rig.session->rings[0], ring);
	gate_release(&garbage);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_ADD, NULL, 0), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_null(rig.session->rings[0]);
}

static void expect_arena(struct gate *gate)
{
	struct rbk_wire_id_reply reply;

	RIG(rig, 1);
	begin_arena(&rig, gate);
	others_are_served(&rig, gate);
	assert_int_equal(rig.session->arena_slots[1]->state, SLOT_PREPARING);
	gate_release(gate);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)), 0);
	assert_true(rig.session->arenas[reply.id]->exec.is_fixed);
	/* The memfd's descriptor is closed; those of the connection and the ring remain. */
	assert_int_equal(used(&rig, ACCOUNT_FDS), 1 + 4);
}

TEST(test_seal__arena)
{
	expect_arena(&lock);
}

/* The client punches holes while its pages are faulted in. */
TEST(test_seal__populate)
{
	expect_arena(&holes);
}

/* Dma-bufs are charged while they are open, that is, as long as the arena exists. */
TEST(test_seal__wrap)
{
	struct rbk_wire_id_reply reply;
	struct rig rig;

	begin_wrapping(&rig);
	begin_arena(&rig, &writers);
	others_are_served(&rig, &writers);
	assert_int_equal(rig.session->arena_slots[1]->state, SLOT_PREPARING);
	gate_release(&writers);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)), 0);
	assert_int_equal(device.n_imported, 2);
	assert_int_equal(used(&rig, ACCOUNT_FDS), 1 + 4 + 2 * N_SEGMENTS);
	assert_int_equal(session_arena_remove(rig.session, 2, reply.id), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_REMOVE, NULL, 0), 0);
	assert_int_equal(used(&rig, ACCOUNT_FDS), 1 + 4 + N_SEGMENTS);
	end_wrapping(&rig);
}

/* Immutable memory is not wrapped, nor is memory of a tenant without enough descriptors left. */
TEST(test_seal__not_wrapped)
{
	struct account_limits limits;
	struct rig rig;

	begin_wrapping(&rig);
	rig_arena_new(&rig, ARENA_BYTES, true);
	for (unsigned int i = 0; i < ACCOUNT_SLOT_COUNT; i++)
		limits.max[i] = UINT64_MAX;
	/* The memfd takes one descriptor meanwhile. */
	limits.max[ACCOUNT_FDS] = used(&rig, ACCOUNT_FDS) + 1 + N_SEGMENTS - 1;
	account_set_limits(rig.session->tenant->account, &limits);
	rig_arena_new(&rig, ARENA_BYTES, false);
	assert_int_equal(device.n_wrapped, 0);
	limits.max[ACCOUNT_FDS]++;
	account_set_limits(rig.session->tenant->account, &limits);
	rig_arena_new(&rig, ARENA_BYTES, false);
	assert_int_equal(device.n_wrapped, 1);
	assert_int_equal(device.n_imported, 1);
	end_wrapping(&rig);
}

/*
 * The session ends while the call waits. Its memory stays charged, the broker's end does not wait,
 * and all is released with the lock.
 */
TEST(test_seal__session_ends)
{
	struct gate *const gates[] = {&lock, &garbage, &lock, &holes, &writers};
	enum { N_RINGS = 2 }; /* the first N_RINGS gates concern rings */

	for (unsigned int i = 0; i < ARRAY_SIZE(gates); i++) {
		struct account *account;
		struct rig rig;

		begin_wrapping(&rig);
		account = account_ref(rig.session->tenant->account);
		if (i >= N_RINGS)
			begin_arena(&rig, gates[i]);
		else if (i > 0)
			begin_answer(&rig);
		else
			begin_ring(&rig);
		server_end_sessions(rig.server, "the test says so");
		while (!session_waits_for_closers(rig.session)) {
			rig_settle(&rig);
			assert_true(loop_turn(rig.loop, false) >= 0);
		}
		assert_int_equal(rig.server->n_sessions, 1);
		assert_true(account_used(account, ACCOUNT_MAPPINGS) > 0);
		gate_release(gates[i]);
		while (rig.server->n_sessions > 0) {
			rig_settle(&rig);
			assert_true(loop_turn(rig.loop, false) >= 0);
		}
		assert_int_equal(account_used(account, ACCOUNT_MAPPINGS), 0);
		assert_int_equal(account_used(account, ACCOUNT_RINGS), 0);
		assert_int_equal(account_used(account, ACCOUNT_ARENA_BYTES), 0);
		/* The client still has the descriptors of the ring that was sent. */
		assert_int_equal(account_used(account, ACCOUNT_FDS), i == 0 ? 4 : 0);
		account_unref(account);
		end_wrapping(&rig);
	}
}

TEST_MAIN(NULL, NULL, reactor = pthread_self())
