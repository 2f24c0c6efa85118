/* SPDX-License-Identifier: MIT */
/*
 * Arenas of sessions: a large arena is faulted in and unmapped in steps, between which the thread
 * does other jobs
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/arena-memory.h"
#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"

/* many steps and a remainder */
static const uint64_t bytes = 96 * ARENA_STEP_BYTES + 4096;

static uint64_t used(const struct rig *rig, enum account_slot slot)
{
	return account_used(rig->session->account, slot);
}

/*
 * Jobs of the setup thread and of the lane that are submitted after an arena and complete before
 * it.
 */
struct other {
	struct offload_job job;
	struct closers_job lane_job;
	struct rig *rig;
	bool is_done, was_before;
};

/*
 * The memory and the descriptor to watch, the last thread that released them, and the setup thread.
 */
static void *_Atomic watched_base;
static atomic_int watched_fd = -1;
static _Atomic pthread_t last_holder, setup_thread, last_faulter;
static _Atomic unsigned int n_faulted, n_unmapped, n_unmapped_by_setup;

int __real_munmap(void *base, size_t n_bytes);
int __wrap_munmap(void *base, size_t n_bytes);
int __real_close(int fd);
int __wrap_close(int fd);

int __wrap_munmap(void *base, size_t n_bytes)
{
	if (base == watched_base)
		last_holder = pthread_self();
	if (watched_base && (char *)base >= (char *)watched_base &&
	    (char *)base < (char *)watched_base + bytes) {
		n_unmapped++;
		n_unmapped_by_setup += pthread_equal(pthread_self(), setup_thread) != 0;
	}
	return __real_munmap(base, n_bytes);
}

int __real_madvise(void *base, size_t n_bytes, int advice);
int __wrap_madvise(void *base, size_t n_bytes, int advice);
int __wrap_madvise(void *base, size_t n_bytes, int advice)
{
	last_faulter = pthread_self();
	n_faulted++;
	return __real_madvise(base, n_bytes, advice);
}

int __wrap_close(int fd)
{
	if (fd == watched_fd) {
		last_holder = pthread_self();
		watched_fd = -1;
	}
	return __real_close(fd);
}

/*
 * Freeing all pages of a file takes long. Check that neither the reactor nor the setup thread did
 * it.
 */
static void expect_freed_elsewhere(void)
{
	assert_true(last_holder != 0);
	assert_false(pthread_equal(last_holder, pthread_self()));
	assert_false(pthread_equal(last_holder, setup_thread));
	watched_base = NULL;
	watched_fd = -1;
	last_holder = 0;
}

static void other_run(struct offload_job *job)
{
	setup_thread = pthread_self();
}

static void other_finish(struct other *other)
{
	const struct session_arena *arena = other->rig->session->arena_slots[1];

	other->is_done = true;
	other->was_before =
		arena && (arena->state == SLOT_PREPARING || arena->state == SLOT_RELEASING);
}

static void other_done(struct offload_job *job)
{
	other_finish(container_of(job, struct other, job));
}

static void other_run_in_lane(struct closers_job *job)
{
}

static void other_done_in_lane(struct closers_job *job)
{
	other_finish(container_of(job, struct other, lane_job));
}

static void other_begin(struct other *other, struct rig *rig)
{
	*other = (struct other){.job = {.run = other_run, .done = other_done}, .rig = rig};
	offload_submit(rig->offload, &other->job);
}

/* Find out which thread is the setup thread. */
static void other_run_now(struct other *other, struct rig *rig)
{
	other_begin(other, rig);
	while (!other->is_done)
		assert_true(loop_turn(rig->loop, true) >= 0);
}

static void other_begin_in_lane(struct other *other, struct rig *rig)
{
	*other = (struct other){
		.lane_job = {.run = other_run_in_lane, .done = other_done_in_lane},
		.rig = rig,
	};
	closers_submit(rig->server->closers, rig->session->account, &other->lane_job);
}

/* Register an arena, and submit another job to the account's thread behind it. */
static void add_begin(struct rig *rig, struct other *other)
{
	int fd = rig_memfd(bytes, false);

	n_faulted = 0;
	assert_int_equal(session_arena_add(rig->session, 1, &fd, bytes, false), 0);
	other_begin_in_lane(other, rig);
}

TEST(test_arena__in_steps)
{
	struct rbk_wire_id_reply reply;
	struct offload_report report;
	struct session_arena *arena;
	struct other other;

	RIG(rig, 1);
	other_run_now(&other, &rig);
	add_begin(&rig, &other);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)), 0);
	assert_true(other.is_done && other.was_before);
	arena = rig.session->arenas[reply.id];
	assert_int_equal(arena->exec.bytes, bytes);
	memset(arena->exec.base, 1, bytes);
	watched_base = arena->exec.base;
	/* Larger slices would delay other jobs by more than a millisecond or two. */
	assert_int_equal(n_faulted, bytes / ARENA_STEP_BYTES + 1);
	offload_describe(rig.offload, &report);
	assert_int_equal(report.causes[OFFLOAD_ARENA_MAP].n_slices, 1);

	n_unmapped = 0;
	assert_int_equal(session_arena_remove(rig.session, 2, reply.id), 0);
	while (n_unmapped == 0)
		assert_true(loop_turn(rig.loop, true) >= 0);
	other_begin_in_lane(&other, &rig);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_REMOVE, NULL, 0), 0);
	assert_true(other.is_done && other.was_before);
	offload_describe(rig.offload, &report);
	assert_int_equal(report.causes[OFFLOAD_ARENA_UNMAP].n_slices, 1);
	assert_int_equal(n_unmapped, bytes / ARENA_STEP_BYTES + 1);
	assert_int_equal(n_unmapped_by_setup, 0);
	assert_false(pthread_equal(last_faulter, setup_thread));
	expect_freed_elsewhere();
	assert_int_equal(used(&rig, ACCOUNT_ARENA_BYTES), 0);
}

/* The session ends while its arena is half mapped: the rest is not begun. */
TEST(test_arena__session_ends)
{
	struct other other;
	struct rig rig;

	rig_init(&rig, 1);
	other_run_now(&other, &rig);
	add_begin(&rig, &other);
	while (!other.is_done)
		assert_true(loop_turn(rig.loop, true) >= 0);
	assert_true(other.was_before);
	watched_base = rig.session->arena_slots[1]->exec.base;
	watched_fd = rig.session->arena_slots[1]->fd;
	session_end(rig.session, false, "the test says so");
	rig_deinit(&rig);
	/* Usually two steps; a third if one turn of the loop handles both. */
	assert_true(n_faulted < 8);
	assert_int_equal(watched_fd, -1);
	expect_freed_elsewhere();
}

/* Mapping finds that the arena is not writable. Closing its descriptor frees its pages, too. */
TEST(test_arena__unsuitable)
{
	struct other other;
	struct rig rig;
	int fd = rig_memfd(bytes, false);

	rig_init(&rig, 1);
	other_run_now(&other, &rig);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	watched_fd = fd;
	assert_int_equal(session_arena_add(rig.session, 1, &fd, bytes, false), 0);
	assert_int_equal(fd, -1);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, NULL, 0), -EINVAL);
	/* rig_deinit() aborts if charges remain. */
	rig_deinit(&rig);
	assert_int_equal(watched_fd, -1);
	expect_freed_elsewhere();
}

/* Pages stay charged to the tenant until they are freed, and the tenant's end waits for that. */
TEST(test_arena__freed_late)
{
	struct rbk_wire_id_reply reply;
	struct rig_stuck stuck;
	int fd;

	RIG(rig, 1);
	fd = rig_memfd(bytes, false);
	assert_int_equal(session_arena_add(rig.session, 1, &fd, bytes, false), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)), 0);
	rig_stick(&rig, rig.session->account, &stuck);
	assert_int_equal(session_arena_remove(rig.session, 2, reply.id), 0);
	while (rig.session->n_lane_jobs == 0)
		rig_settle(&rig);
	assert_int_equal(used(&rig, ACCOUNT_ARENA_BYTES), bytes);
	session_end(rig.session, false, "the test says so");
	rig_settle(&rig);
	assert_true(session_waits_for_closers(rig.session));
	assert_int_equal(used(&rig, ACCOUNT_ARENA_BYTES), bytes);
	rig_unstick(&stuck);
}

/* A job of the tenant, which waits for the gate or records how much was released before it. */
struct own {
	struct offload_job job;
	const atomic_bool *gate; /* run() waits until it is set; NULL: for nothing */
	atomic_bool is_running;  /* set by run() */
	bool is_done;
};

static _Atomic unsigned int n_released; /* releases by the setup thread */
static unsigned int n_before_release;

static void count_release(struct executor *executor, struct exec_arena *exec)
{
	n_released++;
}

static void own_run(struct offload_job *job)
{
	struct own *own = container_of(job, struct own, job);

	atomic_store(&own->is_running, true);
	while (own->gate && !atomic_load(own->gate))
		usleep(100);
	n_before_release += !own->gate && n_released == 0;
}

static void own_done(struct offload_job *job)
{
	container_of(job, struct own, job)->is_done = true;
}

static void own_begin(struct own *own, struct rig *rig, const atomic_bool *gate)
{
	*own = (struct own){
		.job = {.run = own_run,
			.done = own_done,
			.owner = &rig->session->tenant->setup,
			.cause = OFFLOAD_LOAD},
		.gate = gate,
	};
	offload_submit(rig->offload, &own->job);
}

/*
 * A session's memory is freed before other jobs of its tenant, when the session ends and when it
 * removes an arena.
 */
TEST(test_arena__before_own_jobs)
{
	enum { N = 50 };
	struct rbk_wire_id_reply reply;
	struct own gate_job, jobs[N];
	struct rig rig;

	for (unsigned int ends = 0; ends < 2; ends++) {
		atomic_bool gate = false;
		int fd = rig_memfd(bytes, false);

		n_released = n_before_release = 0;
		rig_init(&rig, 1);
		rig.fakes[0].ops.arena_release = count_release;
		assert_int_equal(session_arena_add(rig.session, 1, &fd, bytes, false), 0);
		assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)), 0);
		own_begin(&gate_job, &rig, &gate);
		/* A job that waits for the thread gives way to the release. */
		while (!atomic_load(&gate_job.is_running))
			usleep(100);
		for (unsigned int i = 0; i < N; i++)
			own_begin(&jobs[i], &rig, NULL);
		if (ends)
			session_end(rig.session, false, "the test says so");
		else
			assert_int_equal(session_arena_remove(rig.session, 2, reply.id), 0);
		rig_settle(&rig);
		/* The tenant's lane unmaps the arena first. */
		while (rig.session->n_lane_jobs > 0)
			assert_true(loop_turn(rig.loop, true) >= 0);
		assert_int_equal(n_released, 0);
		atomic_store(&gate, true);
		while (!jobs[N - 1].is_done)
			assert_true(loop_turn(rig.loop, true) >= 0);
		assert_int_equal(n_before_release, 0);
		assert_int_equal(n_released, 1);
		rig_deinit(&rig);
	}
}

static void punch_import(struct executor *executor, struct exec_arena *exec)
{
	assert_int_equal(fallocate(exec->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   (off_t)exec->bytes),
			 0);
}

/*
 * A client punches holes as long as it can. Its last chance is after faulting-in and import. A
 * fixed arena has no missing pages.
 */
TEST(test_arena__punched_before_sealed)
{
	enum { PAGE = 4096, N_PAGES = 256 };
	struct rbk_wire_id_reply reply;
	struct session_arena *arena;
	unsigned char is_there[N_PAGES];
	int fd;

	RIG(rig, 1);
	rig.fakes[0].ops.arena_import = punch_import;
	fd = rig_memfd(N_PAGES * PAGE, false);
	assert_int_equal(session_arena_add(rig.session, 1, &fd, N_PAGES * PAGE, true), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply)), 0);
	arena = rig.session->arenas[reply.id];
	assert_true(arena->exec.is_fixed);
	assert_int_equal(used(&rig, ACCOUNT_FDS), 1);
	assert_int_equal(mincore(arena->exec.base, sizeof(is_there) * PAGE, is_there), 0);
	for (unsigned int i = 0; i < N_PAGES; i++)
		assert_true(is_there[i] & 1);
}

/* An arena that lacks pages it is charged for is refused before any thread works on it. */
TEST(test_arena__sparse)
{
	int fd;

	RIG(rig, 1);
	fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	assert_int_equal(session_arena_add(rig.session, 1, &fd, bytes, false), 0);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(used(&rig, ACCOUNT_ARENA_BYTES), 0);
	assert_true(rig.session->is_ending);
}
