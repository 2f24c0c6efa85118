/* SPDX-License-Identifier: MIT */
/*
 * Rings of sessions: the threads that make and free their memory, and requests of clients meanwhile
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"

enum { N_ENTRIES = 64 };

/* Slow system calls, counted by the thread that makes them. */
static struct {
	pthread_t reactor;
	unsigned int n_on_reactor, n_elsewhere;
	unsigned int n_memfds_to_fail;
	bool watches_fail;
	unsigned int nth_watch; /* number of the watch that fails */
} calls;

static void note_call(void)
{
	if (pthread_equal(pthread_self(), calls.reactor))
		calls.n_on_reactor++;
	else
		calls.n_elsewhere++;
}

int __real_memfd_create(const char *name, unsigned int flags);
int __wrap_memfd_create(const char *name, unsigned int flags);
int __wrap_memfd_create(const char *name, unsigned int flags)
{
	note_call();
	if (calls.n_memfds_to_fail > 0) {
		calls.n_memfds_to_fail--;
		errno = EMFILE;
		return -1;
	}
	return __real_memfd_create(name, flags);
}

int __real_inotify_add_watch(int fd, const char *path, uint32_t mask);
int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask);
int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	if (calls.watches_fail && --calls.nth_watch == 0) {
		errno = ENOSPC;
		return -1;
	}
	return __real_inotify_add_watch(fd, path, mask);
}

int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes)
{
	note_call();
	return __real_munmap(address, bytes);
}

static void watch_calls(void)
{
	calls.reactor = pthread_self();
	calls.n_on_reactor = calls.n_elsewhere = 0;
}

/* A job that keeps the setup thread busy until it is let go. */
struct plug {
	struct offload_job job;
	sem_t let_go;
	bool is_done;
};

static void plug_run(struct offload_job *job)
{
	sem_wait(&container_of(job, struct plug, job)->let_go);
}

static void plug_done(struct offload_job *job)
{
	container_of(job, struct plug, job)->is_done = true;
}

static void plug_in(struct plug *plug, struct rig *rig)
{
	*plug = (struct plug){.job = {.run = plug_run, .done = plug_done}};
	sem_init(&plug->let_go, 0, 0);
	offload_submit(rig->offload, &plug->job);
}

static void plug_out(struct plug *plug, struct rig *rig)
{
	sem_post(&plug->let_go);
	while (!plug->is_done)
		assert_true(loop_turn(rig->loop, true) >= 0);
	sem_destroy(&plug->let_go);
}

static uint64_t used(const struct rig *rig, enum account_slot slot)
{
	return account_used(rig->session->account, slot);
}

TEST(test_ring__made_and_freed_elsewhere)
{
	struct rig_ring ring;

	RIG(rig, 1);
	watch_calls();
	rig_ring_new(&rig, N_ENTRIES, &ring);
	assert_int_equal(calls.n_on_reactor, 0);
	assert_true(calls.n_elsewhere >= 2);
	assert_int_equal(used(&rig, ACCOUNT_RINGS), 1);

	watch_calls();
	assert_int_equal(session_ring_remove(rig.session, 1, ring.ring->id), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_int_equal(calls.n_on_reactor, 0);
	assert_true(calls.n_elsewhere >= 2);
	assert_int_equal(used(&rig, ACCOUNT_RINGS), 0);
	rig_ring_deinit(&ring);
}

/* The setup thread allocates a large ring in slices, between which other tenants' jobs run. */
TEST(test_ring__made_in_slices)
{
	enum { LARGE = 32768, STEP_BYTES = 1 << 20 };
	struct offload_report before, after;
	struct rig_ring ring;

	RIG(rig, 1);
	rig_ring_new(&rig, N_ENTRIES, &ring);
	rig_ring_deinit(&ring);
	offload_describe(rig.offload, &before);
	rig_ring_new(&rig, LARGE, &ring);
	offload_describe(rig.offload, &after);
	assert_int_equal(before.causes[OFFLOAD_RING].n_slices, 1);
	assert_in_range(after.causes[OFFLOAD_RING].n_slices - 1,
			(ring.ring->sq_bytes + ring.ring->cq_bytes) / STEP_BYTES,
			(ring.ring->sq_bytes + ring.ring->cq_bytes) / STEP_BYTES + 1);
	rig_ring_deinit(&ring);
}

/*
 * A ring is charged at once, and the request is answered when the ring is ready. The reactor does
 * not wait, and no id is assigned twice.
 */
TEST(test_ring__id_is_reserved)
{
	struct rbk_wire_ring first, second;
	struct plug plug;

	RIG(rig, 1);
	plug_in(&plug, &rig);
	assert_int_equal(session_ring_add(rig.session, 1, N_ENTRIES), 0);
	assert_int_equal(session_ring_add(rig.session, 2, N_ENTRIES), 0);
	assert_int_equal(used(&rig, ACCOUNT_RINGS), 2);
	assert_int_equal(used(&rig, ACCOUNT_TASKS), 2 * N_ENTRIES);
	assert_false(rig_has_answer(&rig));
	/* An unfinished ring cannot be removed by guessing its id. */
	assert_int_equal(session_ring_remove(rig.session, 3, 0), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_REMOVE, NULL, 0), -ENOENT);

	plug_out(&plug, &rig);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_ADD, &first, sizeof(first)), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_ADD, &second, sizeof(second)), 0);
	assert_int_not_equal(first.id, second.id);
}

/* The id is free again when the memory is, and only then is the client answered. */
TEST(test_ring__removal_waits)
{
	struct rig_ring ring;
	struct plug plug;

	RIG(rig, 1);
	rig_ring_new(&rig, N_ENTRIES, &ring);
	plug_in(&plug, &rig);
	assert_int_equal(session_ring_remove(rig.session, 1, 0), 0);
	assert_false(rig_has_answer(&rig));
	assert_int_equal(ring.cq->closed, 1);
	assert_int_equal(used(&rig, ACCOUNT_RINGS), 1);
	assert_int_equal(session_ring_remove(rig.session, 2, 0), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_REMOVE, NULL, 0), -ENOENT);
	plug_out(&plug, &rig);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_int_equal(used(&rig, ACCOUNT_RINGS), 0);
	assert_null(rig.session->rings[0]);
	rig_ring_deinit(&ring);
}

/*
 * The session ends while rings are being made, are ready, and are being freed. rig_deinit() checks
 * the charges.
 */
TEST(test_ring__session_ends)
{
	struct rig_ring ready, removed;
	struct plug plug;

	RIG(rig, 1);
	rig_ring_new(&rig, N_ENTRIES, &ready);
	rig_ring_new(&rig, N_ENTRIES, &removed);
	plug_in(&plug, &rig);
	assert_int_equal(session_ring_remove(rig.session, 1, 1), 0);
	assert_int_equal(session_ring_add(rig.session, 2, N_ENTRIES), 0);
	rig_settle(&rig);
	session_end(rig.session, false, "the test says so");
	rig_settle(&rig);
	assert_int_equal(rig.server->n_sessions, 1);
	plug_out(&plug, &rig);
	rig_ring_deinit(&ready);
	rig_ring_deinit(&removed);
}

/* Fail to make a ring: the client is told, nothing stays charged, and the session goes on. */
static int fail_to_make(void *context, struct session_ring *ring)
{
	return -ENOMEM;
}

TEST(test_ring__cannot_be_made)
{
	struct server_hooks *hooks;
	struct rig_ring ring;

	RIG(rig, 1);
	hooks = &rig.server->options.hooks;
	hooks->ring_make = fail_to_make;
	assert_int_equal(session_ring_add(rig.session, 1, N_ENTRIES), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_ADD, NULL, 0), -ENOMEM);
	while (rig.session->rings[0])
		rig_settle(&rig);
	assert_int_equal(used(&rig, ACCOUNT_RINGS), 0);
	assert_int_equal(used(&rig, ACCOUNT_TASKS), 0);
	*hooks = dispatch_hooks(rig.dispatch);
	rig_ring_new(&rig, N_ENTRIES, &ring);
	rig_ring_deinit(&ring);
}

/* The same, but the client cannot be told: its session ends, and the ring is ended only once. */
TEST(test_ring__cannot_be_made_nor_answered)
{
	for (unsigned int i = 0; i < 2; i++) {
		struct server_hooks *hooks;
		struct rig rig;

		rig_init(&rig, 1);
		hooks = &rig.server->options.hooks;
		/* Failure at the end, or before any memory is allocated. */
		hooks->ring_make = fail_to_make;
		calls.n_memfds_to_fail = i;
		assert_int_equal(session_ring_add(rig.session, 1, N_ENTRIES), 0);
		assert_int_equal(shutdown(rig.session->fd, SHUT_WR), 0);
		while (rig.server->n_sessions > 0) {
			assert_true(loop_turn(rig.loop, false) >= 0);
			rig_settle(&rig);
		}
		assert_int_equal(calls.n_memfds_to_fail, 0);
		rig_deinit(&rig);
	}
}

/*
 * If the kernel does not refuse descriptors for the broker, they are noticed before they are
 * received.
 */
TEST(test_ring__descriptor_in_bell)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS,
				.cmsg_len = CMSG_LEN(sizeof(int))}};
	struct iovec iov = {.iov_base = "", .iov_len = 1};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	struct rig_ring ring;
	int yes = 1;

	RIG(rig, 1);
	rig_ring_new(&rig, N_ENTRIES, &ring);
	setsockopt(ring.ring->bell_fd, SOL_SOCKET, SO_PASSRIGHTS, &yes, sizeof(yes));
	ring.ring->bell_refuses_fds = false;
	assert_int_equal(send(ring.bell, "", 1, 0), 1);
	session_ring_drain_bell(ring.ring);
	assert_false(rig.session->is_ending);
	memcpy(CMSG_DATA(&control.header), &rig.fd, sizeof(int));
	assert_int_equal(sendmsg(ring.bell, &message, 0), 1);
	session_ring_drain_bell(ring.ring);
	assert_true(rig.session->is_ending);
	rig_ring_deinit(&ring);
}

/* Before its first doorbell a ring is not read. Then a thread of its account seals it. */
TEST(test_ring__sealed_at_first_bell)
{
	struct rbk_wire_ring reply;
	struct session_ring *ring;
	struct rig_stuck stuck;

	RIG(rig, 1);
	assert_int_equal(session_ring_add(rig.session, 1, N_ENTRIES), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_ADD, &reply, sizeof(reply)), 0);
	ring = rig.session->rings[reply.id];
	while (ring->state == RING_ANSWERING)
		assert_true(loop_turn(rig.loop, true) >= 0);
	assert_int_equal(ring->state, RING_QUIET);
	assert_int_not_equal(ring->cq->sq_wait, 0);
	assert_int_equal(rig.dispatch->n_rings, 0);
	rig_stick(&rig, rig.session->account, &stuck);
	/* The client's end of the socket is in this process until the ring is sealed. */
	assert_int_equal(send(ring->client_fds[RING_FD_BELL], "", 1, 0), 1);
	while (ring->state == RING_QUIET)
		assert_true(loop_turn(rig.loop, true) >= 0);
	assert_int_equal(ring->state, RING_SEALING);
	assert_int_equal(rig.dispatch->n_rings, 0);
	rig_unstick(&stuck);
	while (ring->state == RING_SEALING)
		assert_true(loop_turn(rig.loop, true) >= 0);
	assert_int_equal(ring->state, RING_READY);
	assert_int_equal(rig.dispatch->n_rings, 1);
	assert_int_equal(ring->cq->sq_wait, 0);
}

/* Each part of a ring that the client keeps stays charged until the client releases it. */
TEST(test_ring__kept_parts_stay_charged)
{
	uint64_t host, fds;
	struct rig_ring ring;
	uint64_t kept;

	RIG(rig, 1);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fds = used(&rig, ACCOUNT_FDS);
	rig_ring_new(&rig, N_ENTRIES, &ring);
	assert_int_equal(session_ring_remove(rig.session, 1, ring.ring->id), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	kept = used(&rig, ACCOUNT_HOST_BYTES) - host;
	assert_true(kept >= ring.sq_bytes + ring.cq_bytes);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds + 4);
	assert_int_equal(used(&rig, ACCOUNT_MAPPINGS), 0);
	assert_int_equal(used(&rig, ACCOUNT_TASKS), 0);
	assert_int_equal(used(&rig, ACCOUNT_WATCHES), 2);

	/* One kept area keeps the whole ring charged. */
	munmap(ring.sq, ring.sq_bytes);
	rig_settle(&rig);
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host + kept);
	assert_false(holds_look(rig.server, rig.session->account));
	munmap((void *)ring.cq, ring.cq_bytes);
	assert_true(holds_look(rig.server, rig.session->account));
	assert_true(used(&rig, ACCOUNT_HOST_BYTES) < host + kept - ring.sq_bytes);
	assert_int_equal(used(&rig, ACCOUNT_WATCHES), 0);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds + 4);
	close(ring.bell);
	assert_true(holds_look(rig.server, rig.session->account));
	assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host);
	assert_int_equal(used(&rig, ACCOUNT_FDS), fds);
}

/* A tenant that keeps as many areas as it may have watches gets no further ring. */
TEST(test_ring__no_watches_left)
{
	struct account_limits limits;
	struct rig_ring ring;

	RIG(rig, 1);
	memset(&limits, 0xff, sizeof(limits));
	limits.max[ACCOUNT_WATCHES] = 3;
	account_set_limits(rig.session->tenant->account, &limits);
	rig_ring_new(&rig, N_ENTRIES, &ring);
	assert_int_equal(session_ring_remove(rig.session, 1, ring.ring->id), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_int_equal(session_ring_add(rig.session, 2, N_ENTRIES), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_ADD, NULL, 0), -EDQUOT);
	rig_ring_deinit(&ring);
	rig_ring_new(&rig, N_ENTRIES, &ring);
	rig_ring_deinit(&ring);
}

/* A client that releases its areas first is answered when its charges are undone. */
TEST(test_ring__released_first_by_client)
{
	struct rig_ring ring;
	uint64_t host, fds;
	uint32_t id;

	RIG(rig, 1);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	fds = used(&rig, ACCOUNT_FDS);
	for (unsigned int i = 0; i < 3; i++) {
		rig_ring_new(&rig, N_ENTRIES, &ring);
		id = ring.ring->id;
		rig_ring_deinit(&ring);
		assert_int_equal(session_ring_remove(rig.session, 1, id), 0);
		assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
		assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host);
		assert_int_equal(used(&rig, ACCOUNT_FDS), fds);
	}
}

/*
 * If the kernel has no watch left for a ring's memory, the ring is refused and nothing else
 * changes.
 */
TEST(test_ring__cannot_be_watched)
{
	struct rig_ring ring;
	uint64_t host;

	RIG(rig, 1);
	host = used(&rig, ACCOUNT_HOST_BYTES);
	for (unsigned int i = 1; i <= 2; i++) {
		calls.nth_watch = i;
		calls.watches_fail = true;
		assert_int_equal(session_ring_add(rig.session, 1, N_ENTRIES), 0);
		assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_ADD, NULL, 0), -ENOSPC);
		calls.watches_fail = false;
		while (rig.session->rings[0])
			rig_settle(&rig);
		assert_int_equal(used(&rig, ACCOUNT_HOST_BYTES), host);
	}
	rig_ring_new(&rig, N_ENTRIES, &ring);
	rig_ring_deinit(&ring);
}

/*
 * A client that cannot map the areas of a restored ring asks the next broker with the last ones, so
 * no entry may have run.
 */
TEST(test_restored_ring__begins_when_the_bell_is_rung)
{
	const struct rbk_sqe nop = {.opcode = RBK_OP_NOP};
	struct rig_ring ring;
	struct rig_areas areas;
	int fds[2];

	RIG(rig, 1);
	rig_ring_new(&rig, N_ENTRIES, &ring);
	rig_put(&ring, &nop);
	rig_areas_copy(&ring, &areas);
	for (unsigned int i = 0; i < 2; i++)
		fds[i] = fcntl(areas.fds[i], F_DUPFD_CLOEXEC, 3);
	assert_int_equal(session_ring_restore(rig.session, 2, N_ENTRIES, fds), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_RESTORE, NULL, 0), 0);
	for (unsigned int i = 0; i < 10; i++) {
		rig_settle(&rig);
		rig_work(&rig);
		usleep(1000);
	}
	assert_int_equal(rig.session->rings[1]->state, RING_QUIET);
	assert_int_equal(rig.session->rings[1]->cq->sq_head, 0);
	rig_areas_deinit(&areas);
	rig_ring_deinit(&ring);
}

/* A client may ask for the ring's removal before it is told that the ring is there. */
TEST(test_ring__removed_before_its_answer)
{
	struct rbk_wire_ring made;
	struct rbk_wire_reply removed;
	struct rig_stuck stuck;

	RIG(rig, 1);
	rig_stick_live(&rig, rig.session->account, &stuck);
	assert_int_equal(session_ring_add(rig.session, 7, N_ENTRIES), 0);
	while (rig.session->rings[0]->state != RING_ANSWERING)
		rig_settle(&rig);
	assert_int_equal(session_ring_remove(rig.session, 8, 0), 0);
	rig_unstick(&stuck);
	while (rig.session->rings[0])
		rig_settle(&rig);
	assert_int_equal(recv(rig.fd, &made, sizeof(made), MSG_DONTWAIT), sizeof(made));
	assert_int_equal(made.reply.type, RBK_WIRE_RING_ADD);
	assert_int_equal(made.reply.cookie, 7);
	assert_int_equal(recv(rig.fd, &removed, sizeof(removed), MSG_DONTWAIT), sizeof(removed));
	assert_int_equal(removed.type, RBK_WIRE_RING_REMOVE);
	assert_int_equal(removed.cookie, 8);
}
