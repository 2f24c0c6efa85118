/* SPDX-License-Identifier: MIT */
/* The setup thread: order, threads, re-submission, ending, signals, failing set-up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
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
};

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *data);

static bool fail_pthread_create;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *data)
{
	return fail_pthread_create ? EAGAIN : __real_pthread_create(thread, attr, start, data);
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

static void test_offload__in_order(void **state)
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

static void test_offload__submit_never_blocks(void **state)
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
	/* We are here although the first has not finished. */
	assert_int_equal(next_done, 0);
	atomic_store(&gate, true);
	while (next_done < ARRAY_SIZE(works))
		assert_true(loop_turn(world->loop, true) >= 0);
}

static void test_offload__done_only_in_turn(void **state)
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
	/* One job each time, so one wake-up each time, not a spin. */
	assert_in_range(n_turns, 20, 100);

	/* A job may free what it is part of. */
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

static void test_free__waits_for_all(void **state)
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
		offload_submit(world->offload, &works[i].job);
	}
	works[19].n_again = 1;
	works[19].next_run = NULL;
	works[19].next_done = NULL;
	assert_null(offload_free(world->offload));
	world->offload = NULL;
	for (unsigned int i = 0; i < ARRAY_SIZE(works); i++)
		assert_int_equal(works[i].n_dones, i == 19 ? 2 : 1);
	assert_null(offload_free(NULL));
}

static void test_thread__signals(void **state)
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
	/* The reactor's own mask is as it was. */
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	assert_false(sigismember(&mask, SIGTERM));
}

static void test_new__failures(void **state)
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

	/* Out of descriptors. */
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

static void test_watch_and_timer__allocation(void **state)
{
	struct world *world = *state;
	struct loop_watch *watch = NULL;
	struct loop_timer *timer = NULL;
	int r;

	fail_alloc_at(1);
	r = loop_watch(world->loop, 0, 1, noop_event, NULL, &watch);
	assert_true(fail_alloc_stop());
	assert_int_equal(r, -ENOMEM);
	assert_null(watch);
	/* The heap, then the timer itself. */
	for (unsigned int n = 1; n <= 2; n++) {
		fail_alloc_at(n);
		r = loop_timer_new(world->loop, noop_timer, NULL, &timer);
		assert_true(fail_alloc_stop());
		assert_int_equal(r, -ENOMEM);
		assert_null(timer);
	}
	assert_int_equal(loop_timer_new(world->loop, noop_timer, NULL, &timer), 0);
	loop_timer_free(timer);
}

int main(void)
{
#define OFFLOAD_TEST(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)
	const struct CMUnitTest tests[] = {
		OFFLOAD_TEST(test_offload__in_order),
		OFFLOAD_TEST(test_offload__submit_never_blocks),
		OFFLOAD_TEST(test_offload__done_only_in_turn),
		OFFLOAD_TEST(test_free__waits_for_all),
		OFFLOAD_TEST(test_thread__signals),
		OFFLOAD_TEST(test_new__failures),
		OFFLOAD_TEST(test_watch_and_timer__allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
