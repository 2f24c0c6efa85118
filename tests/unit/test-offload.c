/* SPDX-License-Identifier: MIT */
/*
 * The setup thread: order, turns, threads, re-submission, cancelling, ending, signals, failing
 * set-up
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "loop/turn.h"
#include "support/test.h"
#include "util/checked.h"
#include "util/clock.h"

struct world {
	struct loop *loop;
	struct offload *offload;
};

struct work {
	struct offload_job job;
	struct world *world;
	pthread_t reactor;
	unsigned int number;
	unsigned int n_runs, n_dones, n_again;
	uint64_t sleep_ns;
	unsigned int *next_run, *next_done;
	_Atomic bool *gate;
	sigset_t mask;
	char thread_name[16];
	/* For jobs in virtual time: ns per slice, those in which it waits, and number of slices. */
	uint64_t slice_ns, wait_ns;
	unsigned int n_slices;
	bool was_cancelled;
};

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *data);

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
ssize_t __real_write(int fd, const void *bytes, size_t n_bytes);
ssize_t __wrap_write(int fd, const void *bytes, size_t n_bytes);

uint64_t __real_clock_now_ns(void);
uint64_t __wrap_clock_now_ns(void);

uint64_t __real_clock_read_ns(clockid_t clock);
uint64_t __wrap_clock_read_ns(clockid_t clock);

static bool fail_pthread_create;
static _Thread_local unsigned int n_mutex_locks, n_mutexes_held;
static atomic_uint n_writes_under_mutex;
static _Atomic uint64_t virtual_ns; /* ns added to the clock: the time that jobs pretend to take */
static _Atomic bool is_virtual;     /* the clock shows virtual_ns alone */
static _Atomic uint64_t waited_ns;  /* part of virtual_ns in which jobs pretend to wait */

uint64_t __wrap_clock_now_ns(void)
{
	uint64_t now_ns = atomic_load(&is_virtual) ? 0 : __real_clock_now_ns();

	return now_ns + atomic_load(&virtual_ns);
}

/* The thread's processor time. */
uint64_t __wrap_clock_read_ns(clockid_t clock)
{
	return atomic_load(&is_virtual) ? atomic_load(&virtual_ns) - atomic_load(&waited_ns)
					: __real_clock_read_ns(clock);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *data)
{
	return fail_pthread_create ? EAGAIN : __real_pthread_create(thread, attr, start, data);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	n_mutex_locks++;
	n_mutexes_held++;
	return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	n_mutexes_held--;
	return __real_pthread_mutex_unlock(mutex);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n_bytes)
{
	if (n_mutexes_held > 0)
		atomic_fetch_add(&n_writes_under_mutex, 1);
	return __real_write(fd, bytes, n_bytes);
}

static int test_setup(void **state)
{
	static struct world world;
	int r = loop_new(&world.loop);

	if (r == -ENOSYS || r == -EPERM) {
		print_message("io_uring is not available: %s\n", strerror(-r));
		exit(77);
	}
	if (r)
		return r;
	r = offload_new(world.loop, &world.offload);
	*state = &world;
	return r;
}

static int test_teardown(void **state)
{
	struct world *world = *state;

	world->offload = offload_free(world->offload);
	world->loop = loop_free(world->loop);
	atomic_store(&is_virtual, false);
	return 0;
}

static void work_run(struct offload_job *job)
{
	struct work *work = container_of(job, struct work, job);
	struct timespec sleep = {.tv_nsec = (long)work->sleep_ns};

	assert_false(pthread_equal(pthread_self(), work->reactor));
	pthread_getname_np(pthread_self(), work->thread_name, sizeof(work->thread_name));
	pthread_sigmask(SIG_SETMASK, NULL, &work->mask);
	while (work->gate && !atomic_load(work->gate))
		usleep(100);
	if (work->sleep_ns)
		nanosleep(&sleep, NULL);
	if (work->next_run)
		assert_int_equal((*work->next_run)++, work->number);
	work->n_runs++;
}

static void work_done(struct offload_job *job)
{
	struct work *work = container_of(job, struct work, job);

	assert_true(pthread_equal(pthread_self(), work->reactor));
	if (work->next_done)
		assert_int_equal((*work->next_done)++, work->number);
	work->n_dones++;
	assert_int_equal(work->n_runs, work->n_dones);
	if (work->n_again > 0) {
		work->n_again--;
		offload_submit(work->world->offload, job);
	}
}

static void work_done_free(struct offload_job *job)
{
	struct work *work = container_of(job, struct work, job);

	(*work->next_done)++;
	free(work);
}

static struct work work_make(struct world *world)
{
	return (struct work){
		.job = {.run = work_run, .done = work_done},
		.world = world,
		.reactor = pthread_self(),
	};
}

TEST(test_offload__in_order, test_setup, test_teardown)
{
	enum { N_JOBS = 5000 };
	struct world *world = *state;
	struct work *works = calloc(N_JOBS, sizeof(*works));
	unsigned int next_run = 0, next_done = 0;

	assert_non_null(works);
	for (unsigned int i = 0; i < N_JOBS; i++) {
		works[i] = work_make(world);
		works[i].number = i;
		works[i].next_run = &next_run;
		works[i].next_done = &next_done;
		offload_submit(world->offload, &works[i].job);
		if (i % 64 == 0)
			assert_true(loop_turn(world->loop, false) >= 0);
	}
	while (next_done < N_JOBS)
		assert_true(loop_turn(world->loop, true) >= 0);
	for (unsigned int i = 0; i < N_JOBS; i++)
		assert_int_equal(works[i].n_dones, 1);
	assert_string_equal(works[0].thread_name, "rb-setup");
	free(works);
}

TEST(test_offload__submit_never_blocks, test_setup, test_teardown)
{
	struct world *world = *state;
	struct work works[100];
	_Atomic bool gate = false;
	unsigned int next_done = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(works); i++) {
		works[i] = work_make(world);
		works[i].number = i;
		works[i].next_done = &next_done;
		works[i].gate = &gate;
		offload_submit(world->offload, &works[i].job);
		assert_true(loop_turn(world->loop, false) >= 0);
	}
	/* The second job completes while the first is still running. */
	assert_int_equal(next_done, 0);
	atomic_store(&gate, true);
	while (next_done < ARRAY_SIZE(works))
		assert_true(loop_turn(world->loop, true) >= 0);
}

/*
 * A thread that loses its processor while it holds a mutex stops the reactor until the thread runs
 * again. A thread that wakes the reactor before it unlocks the mutex loses its processor to the
 * reactor, with the same result.
 */
TEST(test_offload__no_mutex_on_the_reactor, test_setup, test_teardown)
{
	enum { N_JOBS = 300 };
	struct world *world = *state;
	struct work works[N_JOBS];
	unsigned int next_done = 0, n_before = n_mutex_locks;

	atomic_store(&n_writes_under_mutex, 0);
	for (unsigned int i = 0; i < N_JOBS; i++) {
		works[i] = work_make(world);
		works[i].number = i;
		works[i].next_done = &next_done;
		offload_submit(world->offload, &works[i].job);
		if (i % 16 == 0)
			assert_true(loop_turn(world->loop, false) >= 0);
	}
	while (next_done < N_JOBS)
		assert_true(loop_turn(world->loop, true) >= 0);
	assert_int_equal(n_mutex_locks, n_before);
	assert_int_equal(atomic_load(&n_writes_under_mutex), 0);
}

TEST(test_offload__done_only_in_turn, test_setup, test_teardown)
{
	struct world *world = *state;
	struct work work = work_make(world), barrier = work_make(world);
	unsigned int n_turns = 0;

	work.n_again = 20;
	offload_submit(world->offload, &work.job);
	usleep(20000);
	assert_int_equal(work.n_dones, 0);
	while (work.n_dones < 21) {
		assert_true(loop_turn(world->loop, true) >= 0);
		n_turns++;
	}
	/* Each turn completes one job, so there is one wake-up per job and no spinning. */
	assert_in_range(n_turns, 20, 100);

	/* A job's done() may free the structure that contains the job. */
	for (unsigned int i = 0; i < 10; i++) {
		struct work *heap = calloc(1, sizeof(*heap));

		assert_non_null(heap);
		*heap = work_make(world);
		heap->job.done = work_done_free;
		heap->next_done = &barrier.number;
		offload_submit(world->offload, &heap->job);
	}
	while (barrier.number < 10)
		assert_true(loop_turn(world->loop, true) >= 0);
}

static uint64_t n_readings;

static uint64_t read_steps(void)
{
	return ++n_readings;
}

/* However many jobs have run, done() calls leave most of a turn to other work. */
TEST(test_offload__done_in_slices, test_setup, test_teardown)
{
	enum { N = 200, STEPS = 64, PART = 4 };
	struct world *world = *state;
	struct turn *turn = loop_current(world->loop);
	struct work *works = calloc(N, sizeof(*works));
	unsigned int n_done = 0, most = 0;
	struct offload_report report;

	assert_non_null(works);
	for (unsigned int i = 0; i < N; i++) {
		works[i] = work_make(world);
		works[i].number = i;
		works[i].next_done = &n_done;
		offload_submit(world->offload, &works[i].job);
	}
	do {
		usleep(1000);
		offload_describe(world->offload, &report);
	} while (report.n_waiting > 0 || report.running.ns > 0);
	turn->read_ticks = read_steps;
	turn->budget_ticks = STEPS;
	while (n_done < N) {
		const unsigned int n_before = n_done;

		assert_true(loop_turn(world->loop, true) >= 0);
		most = n_done - n_before > most ? n_done - n_before : most;
	}
	assert_in_range(most, 1, STEPS / PART);
	free(works);
}

/* ---- Turns, in virtual time ---- */

enum { MAX_SLICES = 100000 };
static struct work *slices[MAX_SLICES]; /* jobs, in the order in which their slices ran */
static unsigned int n_slices;

/* Advance the virtual clock by slice_ns, in each of n_slices slices. */
static void slice_run(struct offload_job *job)
{
	struct work *work = container_of(job, struct work, job);

	assert_false(job->has_more);
	if (work->gate)
		while (!atomic_load(work->gate))
			usleep(100);
	assert_true(n_slices < MAX_SLICES);
	slices[n_slices++] = work;
	atomic_fetch_add(&virtual_ns, work->slice_ns);
	atomic_fetch_add(&waited_ns, work->wait_ns);
	work->n_runs++;
	job->has_more = --work->n_slices > 0;
}

static void slice_done(struct offload_job *job)
{
	struct work *work = container_of(job, struct work, job);

	work->n_dones++;
	work->was_cancelled = job->is_cancelled;
	if (work->next_done)
		(*work->next_done)++;
}

static struct work slice_make(struct world *world, struct fair_flow *owner, uint32_t weight,
			      unsigned int n)
{
	struct work work = work_make(world);

	work.job = (struct offload_job){
		.run = slice_run,
		.done = slice_done,
		.owner = owner,
		.weight = weight,
		.cause = OFFLOAD_PLAN_PREPARE,
	};
	work.slice_ns = 1000000;
	work.n_slices = n;
	return work;
}

static void finish(struct world *world, unsigned int *n_done, unsigned int n)
{
	while (*n_done < n)
		assert_true(loop_turn(world->loop, true) >= 0);
}

static void begin_slices(struct world *world, struct work *gate_work, _Atomic bool *gate)
{
	atomic_store(&is_virtual, true);
	n_slices = 0;
	atomic_store(gate, false);
	*gate_work = slice_make(world, NULL, 0, 1);
	gate_work->gate = gate;
	offload_submit(world->offload, &gate_work->job);
}

TEST(test_turns__weights, test_setup, test_teardown)
{
	enum { N = 2200 };
	struct world *world = *state;
	struct fair_flow owners[2];
	struct work gate_work, works[2];
	unsigned int n_done = 0, n[2] = {0, 0};
	const struct offload_stats *stats;
	struct offload_report report;
	_Atomic bool gate;

	begin_slices(world, &gate_work, &gate);
	for (unsigned int i = 0; i < 2; i++) {
		fair_flow_init(&owners[i]);
		works[i] = slice_make(world, &owners[i], i == 0 ? 1000 : 100, N);
		works[i].next_done = &n_done;
		offload_submit(world->offload, &works[i].job);
	}
	works[1].slice_ns *= 5;
	atomic_store(&gate, true);
	finish(world, &n_done, 2);

	/* Count slices until the first job is complete: 10:1 by time, so 50:1 by slices. */
	for (unsigned int i = 1; n[0] < N; i++)
		n[slices[i] == &works[1]]++;
	assert_in_range(n[1], N / 50 - 2, N / 50 + 2);
	assert_int_equal(works[0].n_runs, N);
	assert_int_equal(works[1].n_runs, N);
	assert_int_equal(works[0].n_dones, 1);
	assert_int_equal(owners[0].spent, N * 1000000ull);
	assert_int_equal(owners[1].spent, N * 5000000ull);
	offload_describe(world->offload, &report);
	stats = &report.causes[OFFLOAD_PLAN_PREPARE];
	assert_fields(*stats, (n_slices, 2 * N + 1), (total_ns, (6ull * N + 1) * 1000000),
		      (longest_ns, 5000000));
	assert_int_equal(report.causes[OFFLOAD_RING].n_slices, 0);
}

/* A job that waits keeps other owners' jobs waiting, but spends no processor time. */
TEST(test_turns__waits_of_jobs, test_setup, test_teardown)
{
	enum { N = 100 };
	struct world *world = *state;
	struct work gate_work, works[2];
	struct fair_flow owners[2];
	unsigned int n_done = 0, n = 0;
	_Atomic bool gate;

	begin_slices(world, &gate_work, &gate);
	for (unsigned int i = 0; i < 2; i++) {
		fair_flow_init(&owners[i]);
		works[i] = slice_make(world, &owners[i], 0, N);
		works[i].next_done = &n_done;
		offload_submit(world->offload, &works[i].job);
	}
	works[1].slice_ns *= 10;
	works[1].wait_ns = 9 * works[0].slice_ns;
	atomic_store(&gate, true);
	finish(world, &n_done, 2);
	for (unsigned int i = 1, n_others = 0; n_others < N; i++) {
		n_others += slices[i] == &works[0];
		n += slices[i] == &works[1];
	}
	assert_in_range(n, N / 10 - 2, N / 10 + 2);
	assert_int_equal(owners[0].spent, N * 1000000ull);
	assert_int_equal(owners[1].spent, N * 1000000ull);
	assert_int_equal(works[1].job.cpu_ns, 1000000);
}

static void expect_time(const struct offload_time *time, uint64_t ns, enum offload_cause cause,
			uint32_t tenant)
{
	assert_fields(*time, (ns, ns), (cause, cause), (tenant, tenant));
}

/* Jobs that wait behind a running job: their number, the longest wait and its cause. */
TEST(test_report__waits, test_setup, test_teardown)
{
	struct world *world = *state;
	struct offload_report report;
	struct fair_flow owner;
	struct work gate_work, works[3];
	unsigned int n_done = 0;
	_Atomic bool gate;

	fair_flow_init(&owner);
	begin_slices(world, &gate_work, &gate);
	do {
		offload_describe(world->offload, &report);
	} while (report.n_waiting > 0);
	expect_time(&report.running, 0, OFFLOAD_PLAN_PREPARE, 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(works); i++) {
		works[i] = slice_make(world, &owner, 0, 1);
		works[i].job.tenant = 7 + i;
		works[i].job.cause = i == 1 ? OFFLOAD_RING : OFFLOAD_ARENA_MAP;
		works[i].slice_ns = (i + 1) * 1000000;
		works[i].next_done = &n_done;
		offload_submit(world->offload, &works[i].job);
	}
	/* The running slice has taken 7 ms so far, which is the longest. */
	atomic_fetch_add(&virtual_ns, 7000000);
	offload_describe(world->offload, &report);
	assert_int_equal(report.n_waiting, 3);
	expect_time(&report.running, 7000000, OFFLOAD_PLAN_PREPARE, 0);
	assert_fields(report, (causes[OFFLOAD_PLAN_PREPARE].longest_ns, 7000000),
		      (longest_wait.ns, 0));
	/* A cancelled job does not wait. */
	offload_cancel(world->offload, &works[1].job);
	offload_describe(world->offload, &report);
	assert_int_equal(report.n_waiting, 2);
	atomic_store(&gate, true);
	finish(world, &n_done, ARRAY_SIZE(works));

	/* The gate took 8 ms in the end. The last job waited for the gate and for the first job. */
	offload_describe(world->offload, &report);
	assert_int_equal(report.n_waiting, 0);
	expect_time(&report.running, 0, OFFLOAD_OTHER, 0);
	expect_time(&report.longest_wait, 9000000, OFFLOAD_ARENA_MAP, 9);
	assert_fields(report, (causes[OFFLOAD_PLAN_PREPARE].longest_ns, 8000000),
		      (causes[OFFLOAD_PLAN_PREPARE].longest_tenant, 0),
		      (causes[OFFLOAD_ARENA_MAP].longest_ns, 3000000),
		      (causes[OFFLOAD_ARENA_MAP].longest_tenant, 9),
		      (causes[OFFLOAD_RING].n_slices, 0));

	offload_reset(world->offload);
	offload_describe(world->offload, &report);
	assert_fields(report, (longest_wait.ns, 0), (causes[OFFLOAD_ARENA_MAP].n_slices, 0));
}

/*
 * A neighbour's job waits for one slice of a flooding tenant, however many jobs that tenant has
 * waiting.
 */
TEST(test_turns__flood, test_setup, test_teardown)
{
	enum { N_FLOOD = 10000 };
	struct world *world = *state;
	struct work *flood = calloc(N_FLOOD, sizeof(*flood)), gate_work, other;
	struct fair_flow flooding, neighbour;
	unsigned int n_done = 0, at;
	_Atomic bool gate;

	assert_non_null(flood);
	fair_flow_init(&flooding);
	fair_flow_init(&neighbour);
	begin_slices(world, &gate_work, &gate);
	for (unsigned int i = 0; i < N_FLOOD; i++) {
		flood[i] = slice_make(world, &flooding, 0, 2);
		flood[i].next_done = &n_done;
		offload_submit(world->offload, &flood[i].job);
	}
	other = slice_make(world, &neighbour, 0, 1);
	other.next_done = &n_done;
	offload_submit(world->offload, &other.job);
	atomic_store(&gate, true);
	finish(world, &n_done, N_FLOOD + 1);
	for (at = 0; slices[at] != &other; at++)
		;
	assert_in_range(at, 1, 2);

	/*
	 * Jobs of one owner begin in order. A job with more slices continues behind all its owner's
	 * jobs.
	 */
	for (unsigned int i = 0, n = 1; n < n_slices; n++)
		if (slices[n] != &other)
			assert_ptr_equal(slices[n], &flood[i++ % N_FLOOD]);
	free(flood);
}

/*
 * A client with ten thousand jobs disconnects: none of its jobs runs, and no single turn calls all
 * their done().
 */
TEST(test_cancel__waiting, test_setup, test_teardown)
{
	enum { N = 10000 };
	struct world *world = *state;
	struct work *works = calloc(N, sizeof(*works)), gate_work, last;
	struct fair_flow owner;
	unsigned int n_done = 0, n_turns = 0;
	_Atomic bool gate;

	assert_non_null(works);
	fair_flow_init(&owner);
	begin_slices(world, &gate_work, &gate);
	for (unsigned int i = 0; i < N; i++) {
		works[i] = slice_make(world, &owner, 0, 1);
		works[i].next_done = &n_done;
		offload_submit(world->offload, &works[i].job);
	}
	last = slice_make(world, &owner, 0, 1);
	for (unsigned int i = 0; i < N; i++)
		offload_cancel(world->offload, &works[i].job);
	/*
	 * Cancelling a job twice is the same as once. offload_cancel() does not call done() itself.
	 */
	offload_cancel(world->offload, &works[0].job);
	assert_int_equal(n_done, 0);
	offload_submit(world->offload, &last.job);
	while (n_done < N) {
		assert_true(loop_turn(world->loop, true) >= 0);
		n_turns++;
	}
	/* All done() calls were made although the thread is still busy with the gate's job. */
	assert_int_equal(gate_work.n_dones, 0);
	assert_true(n_turns >= N / 200);
	atomic_store(&gate, true);
	while (!last.n_dones)
		assert_true(loop_turn(world->loop, true) >= 0);
	for (unsigned int i = 0; i < N; i++) {
		assert_fields(works[i], (n_runs, 0), (n_dones, 1));
		assert_true(works[i].was_cancelled);
		assert_false(works[i].job.has_begun);
	}
	assert_false(last.was_cancelled);
	assert_true(fair_flow_is_idle(&owner));
	assert_int_equal(owner.spent, last.slice_ns);
	free(works);
}

/*
 * Check that jobs that go first run before their owner's other jobs from their first slice on, one
 * after the other. Check that another owner still gets its normal share of the time.
 */
TEST(test_turns__first_jobs_of_an_owner, test_setup, test_teardown)
{
	enum { N = 20, PARTS = 30, FIRST = N / 2, SECOND = FIRST + 4 };
	struct world *world = *state;
	struct work gate_work, works[N], other;
	unsigned int n_done = 0, n_own = 0, n_other = 0;
	struct fair_flow owners[2];
	_Atomic bool gate;

	begin_slices(world, &gate_work, &gate);
	fair_flow_init(&owners[0]);
	fair_flow_init(&owners[1]);
	for (unsigned int i = 0; i < N; i++) {
		bool goes_first = i == FIRST || i == SECOND;

		works[i] = slice_make(world, &owners[0], 0, goes_first ? PARTS : 100);
		works[i].next_done = &n_done;
		works[i].job.goes_first = goes_first;
		offload_submit(world->offload, &works[i].job);
	}
	other = slice_make(world, &owners[1], 0, 1000);
	other.next_done = &n_done;
	offload_submit(world->offload, &other.job);
	atomic_store(&gate, true);
	finish(world, &n_done, N + 1);

	for (unsigned int i = 1; n_own < 2 * PARTS; i++) {
		if (slices[i] == &other) {
			n_other++;
			continue;
		}
		assert_ptr_equal(slices[i], &works[n_own < PARTS ? FIRST : SECOND]);
		n_own++;
	}
	assert_in_range(n_other, 2 * PARTS - 2, 2 * PARTS);
}

static _Atomic bool is_half_done, is_let_go;

/* Wait in the fifth slice until the test lets the job go on. */
static void half_run(struct offload_job *job)
{
	const struct work *work = container_of(job, struct work, job);

	if (work->n_runs == 4) {
		atomic_store(&is_half_done, true);
		while (!atomic_load(&is_let_go))
			usleep(100);
	}
	slice_run(job);
}

/*
 * An owner with one long slice that then had no job for a moment gets no second slice before the
 * other owner's sliced job has caught up.
 */
TEST(test_turns__no_pause_between_slices, test_setup, test_teardown)
{
	enum { PARTS = 100 };
	struct world *world = *state;
	struct work gate_work, long_works[2], sliced;
	struct fair_flow owners[2];
	unsigned int n_done = 0;
	_Atomic bool gate;

	atomic_store(&is_half_done, false);
	atomic_store(&is_let_go, false);
	begin_slices(world, &gate_work, &gate);
	for (unsigned int i = 0; i < 2; i++) {
		fair_flow_init(&owners[i]);
		long_works[i] = slice_make(world, &owners[0], 0, 1);
		long_works[i].slice_ns *= 2 * PARTS;
		long_works[i].next_done = &n_done;
	}
	sliced = slice_make(world, &owners[1], 0, PARTS);
	sliced.job.run = half_run;
	sliced.next_done = &n_done;
	offload_submit(world->offload, &long_works[0].job);
	offload_submit(world->offload, &sliced.job);
	atomic_store(&gate, true);
	while (n_done < 1 || !atomic_load(&is_half_done))
		assert_true(loop_turn(world->loop, false) >= 0);
	offload_submit(world->offload, &long_works[1].job);
	atomic_store(&is_let_go, true);
	finish(world, &n_done, 3);
	assert_ptr_equal(slices[1], &long_works[0]);
	for (unsigned int i = 0; i < PARTS; i++)
		assert_ptr_equal(slices[2 + i], &sliced);
	assert_ptr_equal(slices[2 + PARTS], &long_works[1]);
}

/* Always ask for another slice. */
static void endless_run(struct offload_job *job)
{
	struct work *work = container_of(job, struct work, job);

	usleep(100);
	work->n_runs++;
	if (work->gate)
		atomic_store(work->gate, true);
	job->has_more = true;
}

/* Run until the job is cancelled. */
static void stubborn_run(struct offload_job *job)
{
	struct work *work = container_of(job, struct work, job);

	work->n_runs++;
	atomic_store(work->gate, true);
	while (!atomic_load(&job->is_cancelled))
		usleep(100);
	job->has_more = true;
}

TEST(test_cancel__begun, test_setup, test_teardown)
{
	static void (*const runs[])(struct offload_job * job) = {endless_run, stubborn_run};
	struct world *world = *state;
	struct fair_flow owner;
	_Atomic bool gate;

	fair_flow_init(&owner);
	for (unsigned int i = 0; i < ARRAY_SIZE(runs); i++) {
		struct work work = slice_make(world, &owner, 0, 1);

		work.job.run = runs[i];
		work.gate = &gate;
		atomic_store(&gate, false);
		offload_submit(world->offload, &work.job);
		while (!atomic_load(&gate))
			usleep(100);
		assert_true(loop_turn(world->loop, false) >= 0);
		assert_int_equal(work.n_dones, 0);
		offload_cancel(world->offload, &work.job);
		while (!work.n_dones)
			assert_true(loop_turn(world->loop, true) >= 0);
		assert_true(work.was_cancelled);
		assert_true(work.job.has_begun);
		assert_true(work.n_runs >= 1);
		/* Submit the same job again, and do not cancel it. */
		work.job.run = slice_run;
		work.gate = NULL;
		work.n_slices = 1;
		offload_submit(world->offload, &work.job);
		while (work.n_dones < 2)
			assert_true(loop_turn(world->loop, true) >= 0);
		assert_false(work.was_cancelled);
	}

	/* Cancelling a job does not undo the slices that have run. */
	{
		struct work work = slice_make(world, &owner, 0, 1);
		const uint64_t spent = atomic_load(&owner.spent);

		offload_submit(world->offload, &work.job);
		/* The owner is charged when the slice has ended. */
		while (atomic_load(&owner.spent) == spent)
			usleep(1000);
		offload_cancel(world->offload, &work.job);
		while (!work.n_dones)
			assert_true(loop_turn(world->loop, true) >= 0);
		assert_int_equal(work.n_runs, 1);
	}
}

/* An owner ends with its last job, and a new owner begins at the same address. */
TEST(test_owner__new_at_the_same_address, test_setup, test_teardown)
{
	struct world *world = *state;

	for (unsigned int i = 0; i < 100; i++) {
		struct fair_flow *owner = malloc(sizeof(*owner));
		struct work works[4];
		unsigned int n_done = 0;

		assert_non_null(owner);
		fair_flow_init(owner);
		for (unsigned int j = 0; j < ARRAY_SIZE(works); j++) {
			works[j] = slice_make(world, owner, 1 + i * 100, 1 + j);
			works[j].next_done = &n_done;
			offload_submit(world->offload, &works[j].job);
		}
		offload_cancel(world->offload, &works[i % ARRAY_SIZE(works)].job);
		finish(world, &n_done, ARRAY_SIZE(works));
		free(owner);
		n_slices = 0;
	}
}

TEST(test_free__waits_for_all, test_setup, test_teardown)
{
	struct world *world = *state;
	struct work works[20];
	unsigned int next_run = 0, next_done = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(works); i++) {
		works[i] = work_make(world);
		works[i].number = i;
		works[i].next_run = &next_run;
		works[i].next_done = &next_done;
		works[i].sleep_ns = 1000000;
		if (i == 19) {
			works[i].n_again = 1;
			works[i].next_run = NULL;
			works[i].next_done = NULL;
		}
		offload_submit(world->offload, &works[i].job);
	}
	assert_null(offload_free(world->offload));
	world->offload = NULL;
	for (unsigned int i = 0; i < ARRAY_SIZE(works); i++)
		assert_int_equal(works[i].n_dones, i == 19 ? 2 : 1);
	assert_null(offload_free(NULL));
}

TEST(test_thread__signals, test_setup, test_teardown)
{
	static const int open[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT};
	static const int blocked[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGPIPE, SIGUSR1, SIGALRM};
	struct world *world = *state;
	struct work work = work_make(world);
	sigset_t mask;

	offload_submit(world->offload, &work.job);
	while (!work.n_dones)
		assert_true(loop_turn(world->loop, true) >= 0);
	for (size_t i = 0; i < ARRAY_SIZE(open); i++)
		assert_false(sigismember(&work.mask, open[i]));
	for (size_t i = 0; i < ARRAY_SIZE(blocked); i++)
		assert_true(sigismember(&work.mask, blocked[i]));
	/* The reactor's own mask is unchanged. */
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	assert_false(sigismember(&mask, SIGTERM));
}

TEST(test_new__failures, test_setup, test_teardown)
{
	struct world *world = *state;
	struct offload *offload = NULL;
	struct rlimit limit, low;
	struct loop *loop = NULL;
	unsigned int n;
	int r;

	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = offload_new(world->loop, &offload);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(offload);
	}
	assert_int_equal(r, 0);
	assert_true(n >= 3);
	offload = offload_free(offload);

	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = loop_new(&loop);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(loop);
	}
	assert_int_equal(r, 0);
	loop = loop_free(loop);

	fail_pthread_create = true;
	r = offload_new(world->loop, &offload);
	fail_pthread_create = false;
	assert_int_equal(r, -EAGAIN);
	assert_null(offload);

	/* No file descriptors are left. */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	r = offload_new(world->loop, &offload);
	assert_int_equal(r, -EMFILE);
	r = loop_new(&loop);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(r, -EMFILE);
	assert_null(offload);
	assert_null(loop);
}

static void noop_event(void *data, uint32_t events)
{
}

static void noop_timer(void *data)
{
}

TEST(test_watch_and_timer__allocation, test_setup, test_teardown)
{
	struct world *world = *state;
	struct loop_watch *watch = NULL;
	struct loop_timer *timer = NULL;
	struct loop *loop = NULL;
	int r;

	fail_alloc_at(1);
	r = loop_watch(world->loop, 0, 1, noop_event, NULL, &watch);
	assert_true(fail_alloc_stop());
	assert_int_equal(r, -ENOMEM);
	assert_null(watch);
	/*
	 * The loop allocated the heap for its own timer, so only the new timer is allocated here.
	 */
	fail_alloc_at(1);
	r = loop_timer_new(world->loop, noop_timer, NULL, &timer);
	assert_true(fail_alloc_stop());
	assert_int_equal(r, -ENOMEM);
	assert_null(timer);
	assert_int_equal(loop_timer_new(world->loop, noop_timer, NULL, &timer), 0);
	loop_timer_free(timer);
	/* Three allocations: the loop, the heap, the loop's timer. */
	for (unsigned int n = 1; n <= 3; n++) {
		fail_alloc_at(n);
		r = loop_new(&loop);
		assert_true(fail_alloc_stop());
		assert_int_equal(r, -ENOMEM);
		assert_null(loop);
	}
}
