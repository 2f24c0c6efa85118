/* SPDX-License-Identifier: MIT */
/* The event loop on real descriptors: pipes, sockets, eventfds, and thousands of them. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "loop/loop.h"
#include "support/test.h"
#include "util/checked.h"
#include "util/clock.h"

#define MS 1000000ull

struct probe {
	struct loop *loop;
	struct loop_watch *watch;
	struct loop_timer *timer;
	struct probe *victim;
	int fd;
	unsigned int n_calls;
	uint32_t events;
	uint64_t at_ns;
	char order;
};

static char order[64];

/* The simulated kernel: the real one, one without the setup flags, or one without io_uring. */
static int kernel_answer;
static bool kernel_is_old;

int __real_io_uring_queue_init_params(unsigned int entries, struct io_uring *ring,
				      struct io_uring_params *params);
int __wrap_io_uring_queue_init_params(unsigned int entries, struct io_uring *ring,
				      struct io_uring_params *params);

static struct io_uring *last_ring;

int __wrap_io_uring_queue_init_params(unsigned int entries, struct io_uring *ring,
				      struct io_uring_params *params)
{
	if (kernel_answer)
		return kernel_answer;
	if (kernel_is_old && params->flags & IORING_SETUP_SINGLE_ISSUER)
		return -EINVAL;
	last_ring = ring;
	return __real_io_uring_queue_init_params(entries, ring, params);
}

/* The simulated result of entering the kernel, for n_enter_answers calls. */
static int enter_answer;
static unsigned int n_enter_answers, n_enters_refused;

static bool is_refusing(void)
{
	if (n_enter_answers == 0)
		return false;
	n_enter_answers--;
	n_enters_refused++;
	return true;
}

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned int n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned int n);
int __real_io_uring_get_events(struct io_uring *ring);
int __wrap_io_uring_get_events(struct io_uring *ring);

/* Requests of watches that seem to fail with -ENOMEM. */
static unsigned int n_to_fail;

int __wrap_io_uring_submit(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	unsigned int head;
	int r;

	if (is_refusing())
		return enter_answer;
	r = __real_io_uring_submit(ring);
	io_uring_for_each_cqe(ring, head, cqe) if (cqe->user_data > 1 && n_to_fail > 0)
	{
		cqe->res = -ENOMEM;
		cqe->flags = 0;
		n_to_fail--;
	}
	return r;
}

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned int n)
{
	return is_refusing() ? enter_answer : __real_io_uring_submit_and_wait(ring, n);
}

int __wrap_io_uring_get_events(struct io_uring *ring)
{
	return is_refusing() ? enter_answer : __real_io_uring_get_events(ring);
}

static int test_setup(void **state)
{
	struct loop *loop = NULL;
	int r = loop_new(&loop);

	if (r == -ENOSYS || r == -EPERM) {
		print_message("io_uring is not available: %s\n", strerror(-r));
		exit(77);
	}
	order[0] = 0;
	*state = loop;
	return r;
}

static int test_teardown(void **state)
{
	/* A test that failed may leave watches, which no loop is freed with. */
	if (!test_was_left)
		loop_free(*state);
	/*
	 * A worker of the kernel ends the requests of the ring. Until it has, events of this
	 * thread's next ring may come late, and tests count turns.
	 */
	usleep(2000);
	return 0;
}

/*
 * Run turns until no event comes.
 * Return: the number of handlers that ran.
 */
static int drain(struct loop *loop)
{
	int n = 0, r;

	for (int idle = 0; idle < 4; idle++) {
		r = loop_turn(loop, false);
		assert_true(r >= 0);
		n += r;
		if (r)
			idle = -1;
	}
	return n;
}

/* Sleep in turns until @probe was called @n times; the test's time limit ends a hang. */
static void turn_until(struct loop *loop, const struct probe *probe, unsigned int n)
{
	while (probe->n_calls < n)
		assert_true(loop_turn(loop, true) >= 0);
}

static void on_event(void *data, uint32_t events)
{
	struct probe *probe = data;

	probe->n_calls++;
	probe->events = events;
}

static void on_event_read(void *data, uint32_t events)
{
	struct probe *probe = data;
	char buffer[4096];

	on_event(data, events);
	while (read(probe->fd, buffer, sizeof(buffer)) > 0)
		;
}

static void on_timer(void *data)
{
	struct probe *probe = data;

	probe->n_calls++;
	probe->at_ns = clock_now_ns();
	if (probe->order)
		strncat(order, &probe->order, 1);
}

static void make_pipe(int fds[2])
{
	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
}

static void put(int fd)
{
	assert_int_equal(write(fd, "x", 1), 1);
}

TEST(test_watch__each_new_event, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	int fds[2];

	make_pipe(fds);
	probe.fd = fds[0];
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event_read, &probe, &probe.watch), 0);
	assert_int_equal(drain(loop), 0);

	for (unsigned int i = 1; i <= 10000; i++) {
		put(fds[1]);
		assert_int_equal(drain(loop), 1);
		assert_int_equal(probe.n_calls, i);
		assert_true(probe.events & POLLIN);
	}

	/* Without a new event, an undrained descriptor causes no further call. */
	loop_unwatch(probe.watch);
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event, &probe, &probe.watch), 0);
	probe.n_calls = 0;
	put(fds[1]);
	assert_int_equal(drain(loop), 1);
	assert_int_equal(drain(loop), 0);
	put(fds[1]);
	assert_int_equal(drain(loop), 1);
	loop_unwatch(probe.watch);
	close(fds[0]);
	close(fds[1]);
}

TEST(test_watch__ready_before, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	int fds[2];

	make_pipe(fds);
	put(fds[1]);
	probe.fd = fds[0];
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event_read, &probe, &probe.watch), 0);
	turn_until(loop, &probe, 1);
	loop_unwatch(probe.watch);
	close(fds[0]);
	close(fds[1]);
}

TEST(test_watch__hangup, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event, &probe, &probe.watch), 0);
	drain(loop);
	assert_int_equal(probe.n_calls, 0);
	close(fds[1]);
	turn_until(loop, &probe, 1);
	assert_true(probe.events & POLLHUP);
	loop_unwatch(probe.watch);
	close(fds[0]);
}

TEST(test_watch__bad_descriptor, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	int fds[2];

	make_pipe(fds);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event, &probe, &probe.watch), 0);
	/* Reported once, not forever. */
	assert_int_equal(drain(loop), 1);
	assert_int_equal(probe.events, POLLNVAL);

	/* Rewatched, and now the descriptor is open. */
	make_pipe(fds);
	assert_int_equal(drain(loop), 0);
	loop_rewatch(probe.watch);
	assert_int_equal(drain(loop), 0);
	put(fds[1]);
	assert_int_equal(drain(loop), 1);
	assert_int_equal(probe.events, POLLIN);
	loop_unwatch(probe.watch);
	close(fds[0]);
	close(fds[1]);
}

TEST(test_watch__two_on_one_descriptor, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe in = {.loop = loop}, out = {.loop = loop};
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	in.fd = fds[0];
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event_read, &in, &in.watch), 0);
	assert_int_equal(loop_watch(loop, fds[0], POLLOUT, on_event, &out, &out.watch), 0);
	drain(loop);
	assert_int_equal(in.n_calls, 0);
	assert_int_equal(out.n_calls, 1);
	loop_unwatch(out.watch);
	put(fds[1]);
	drain(loop);
	assert_int_equal(in.n_calls, 1);
	assert_int_equal(out.n_calls, 1);
	loop_unwatch(in.watch);
	close(fds[0]);
	close(fds[1]);
}

TEST(test_rewatch__leftover, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	int fds[2];

	make_pipe(fds);
	put(fds[1]);
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event, &probe, &probe.watch), 0);
	assert_int_equal(drain(loop), 1);

	/* The unread byte is reported again, once for each call. */
	for (unsigned int i = 2; i < 100; i++) {
		loop_rewatch(probe.watch);
		loop_rewatch(probe.watch);
		turn_until(loop, &probe, i);
		assert_int_equal(drain(loop), 0);
	}

	/* Emptied: not reported, but still watched. */
	assert_int_equal(read(fds[0], (char[8]){0}, 8), 1);
	probe.n_calls = 0;
	loop_rewatch(probe.watch);
	assert_int_equal(drain(loop), 0);
	put(fds[1]);
	assert_int_equal(drain(loop), 1);

	/* Unwatched at each stage of a rewatch. */
	loop_rewatch(probe.watch);
	loop_unwatch(probe.watch);
	assert_int_equal(drain(loop), 0);
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event, &probe, &probe.watch), 0);
	loop_rewatch(probe.watch);
	assert_int_equal(drain(loop), 1);
	loop_rewatch(probe.watch);
	loop_turn(loop, false);
	loop_unwatch(probe.watch);
	assert_int_equal(drain(loop), 0);
	close(fds[0]);
	close(fds[1]);
}

static void on_event_unwatch(void *data, uint32_t events)
{
	struct probe *probe = data;

	on_event(data, events);
	probe->watch = loop_unwatch(probe->watch);
	if (probe->victim)
		probe->victim->watch = loop_unwatch(probe->victim->watch);
}

/*
 * One event is reported until the caller rewatches; then bytes that came meanwhile are reported as
 * well.
 */
TEST(test_watch_once__until_asked, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	int fds[2];

	make_pipe(fds);
	probe.fd = fds[0];
	assert_int_equal(loop_watch_once(loop, fds[0], POLLIN, on_event_read, &probe, &probe.watch),
			 0);
	drain(loop);
	assert_int_equal(probe.n_calls, 0);
	for (unsigned int i = 0; i < 10; i++) {
		assert_int_equal(write(fds[1], "x", 1), 1);
		drain(loop);
	}
	turn_until(loop, &probe, 1);
	assert_int_equal(probe.n_calls, 1);
	/* The watch reports the bytes that came meanwhile. */
	loop_rewatch(probe.watch);
	turn_until(loop, &probe, 2);
	/* Two calls of loop_rewatch() count as one. */
	loop_rewatch(probe.watch);
	loop_rewatch(probe.watch);
	drain(loop);
	loop_rewatch(probe.watch);
	drain(loop);
	assert_int_equal(probe.n_calls, 2);
	assert_int_equal(write(fds[1], "x", 1), 1);
	turn_until(loop, &probe, 3);
	/* Unwatched while idle, and while armed. */
	probe.watch = loop_unwatch(probe.watch);
	assert_int_equal(loop_watch_once(loop, fds[0], POLLIN, on_event_read, &probe, &probe.watch),
			 0);
	drain(loop);
	probe.watch = loop_unwatch(probe.watch);
	assert_int_equal(write(fds[1], "x", 1), 1);
	drain(loop);
	assert_int_equal(probe.n_calls, 3);
	close(fds[0]);
	close(fds[1]);
}

TEST(test_unwatch__self_in_handler, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	int fds[2];

	make_pipe(fds);
	put(fds[1]);
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event_unwatch, &probe, &probe.watch),
			 0);
	assert_int_equal(drain(loop), 1);
	put(fds[1]);
	assert_int_equal(drain(loop), 0);
	assert_null(probe.watch);
	close(fds[0]);
	close(fds[1]);

	/* After an error the kernel holds no request, and the memory is freed at once. */
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event_unwatch, &probe, &probe.watch),
			 0);
	assert_int_equal(drain(loop), 1);
}

TEST(test_unwatch__other_in_handler, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe a = {.loop = loop}, b = {.loop = loop};
	int fds_a[2], fds_b[2];

	a.victim = &b;
	b.victim = &a;
	make_pipe(fds_a);
	make_pipe(fds_b);
	assert_int_equal(loop_watch(loop, fds_a[0], POLLIN, on_event_unwatch, &a, &a.watch), 0);
	assert_int_equal(loop_watch(loop, fds_b[0], POLLIN, on_event_unwatch, &b, &b.watch), 0);
	drain(loop);
	put(fds_a[1]);
	put(fds_b[1]);
	/* Both completions are pending; the first handler prevents the other's call. */
	assert_int_equal(drain(loop), 1);
	assert_int_equal(a.n_calls + b.n_calls, 1);
	close(fds_a[0]);
	close(fds_a[1]);
	close(fds_b[0]);
	close(fds_b[1]);
}

TEST(test_unwatch__close_after, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop}, next = {.loop = loop};
	int fds[2], fds_next[2];

	for (int i = 0; i < 1000; i++) {
		make_pipe(fds);
		assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event, &probe, &probe.watch),
				 0);
		if (i & 1)
			loop_turn(loop, false);
		put(fds[1]);
		if (i & 2)
			loop_turn(loop, false);
		probe.n_calls = 0;
		loop_unwatch(probe.watch);
		close(fds[0]);
		close(fds[1]);

		/* The same number, perhaps the same memory: only the new watch's events arrive. */
		make_pipe(fds_next);
		assert_int_equal(fds_next[0], fds[0]);
		next.n_calls = 0;
		assert_int_equal(
			loop_watch(loop, fds_next[0], POLLIN, on_event, &next, &next.watch), 0);
		assert_int_equal(drain(loop), 0);
		put(fds_next[1]);
		/* The kernel may bring the event a little later than four turns. */
		turn_until(loop, &next, 1);
		assert_int_equal(drain(loop), 0);
		assert_int_equal(probe.n_calls, 0);
		assert_int_equal(next.n_calls, 1);
		loop_unwatch(next.watch);
		close(fds_next[0]);
		close(fds_next[1]);
	}
}

/* The file must be released after a turn of the loop: the peer sees end of file. */
TEST(test_unwatch__releases_file, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	int fds[2];

	make_pipe(fds);
	assert_int_equal(loop_watch(loop, fds[1], POLLERR, on_event, &probe, &probe.watch), 0);
	drain(loop);
	loop_unwatch(probe.watch);
	close(fds[1]);
	drain(loop);
	assert_int_equal(read(fds[0], (char[8]){0}, 8), 0);
	close(fds[0]);
}

TEST(test_watch__thousands, test_setup, test_teardown)
{
	enum { N_WATCHES = 10000 };
	struct loop *loop = *state;
	struct probe *probes = calloc(N_WATCHES, sizeof(*probes));
	struct rlimit limit;
	int n_watches = N_WATCHES, n;

	assert_non_null(probes);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur < N_WATCHES + 64)
		n_watches = (int)limit.rlim_cur - 64;
	assert_true(n_watches >= 2000);

	for (int i = 0; i < n_watches; i++) {
		probes[i].loop = loop;
		probes[i].fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		assert_true(probes[i].fd >= 0);
		assert_int_equal(loop_watch(loop, probes[i].fd, POLLIN, on_event_read, &probes[i],
					    &probes[i].watch),
				 0);
	}
	assert_int_equal(drain(loop), 0);

	/* More events at once than the completion queue has entries: none is lost. */
	for (unsigned int round = 1; round <= 3; round++) {
		for (int i = 0; i < n_watches; i++)
			assert_int_equal(eventfd_write(probes[i].fd, 1), 0);
		n = drain(loop);
		assert_true(n >= n_watches);
		for (int i = 0; i < n_watches; i++)
			assert_true(probes[i].n_calls >= round);
	}

	/* A single event is found among many watches. */
	for (int i = 0; i < n_watches; i += 997) {
		probes[i].n_calls = 0;
		assert_int_equal(eventfd_write(probes[i].fd, 1), 0);
		turn_until(loop, &probes[i], 1);
		assert_int_equal(drain(loop), 0);
	}

	/* All unwatched at once, with events pending. */
	for (int i = 0; i < n_watches; i++) {
		eventfd_write(probes[i].fd, 1);
		probes[i].n_calls = 0;
		loop_unwatch(probes[i].watch);
		close(probes[i].fd);
	}
	assert_int_equal(drain(loop), 0);
	for (int i = 0; i < n_watches; i++)
		assert_int_equal(probes[i].n_calls, 0);
	free(probes);
}

TEST(test_new__no_io_uring, test_setup, test_teardown)
{
	static const int answers[] = {-ENOSYS, -EPERM, -ENOMEM, -EINVAL};
	struct loop *loop = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		kernel_answer = answers[i];
		assert_int_equal(loop_new(&loop), answers[i]);
		kernel_answer = 0;
		assert_null(loop);
	}
}

TEST(test_free__closed_in_flight, test_setup, test_teardown)
{
	struct loop *loop = NULL;
	struct probe probe = {.fd = -1};
	int fds[2];

	/* The leak checker and valgrind report such a watch if it is not freed. */
	assert_int_equal(loop_new(&loop), 0);
	make_pipe(fds);
	for (int i = 0; i < 600; i++) {
		assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event, &probe, &probe.watch),
				 0);
		if (i % 3)
			loop_turn(loop, false);
		loop_unwatch(probe.watch);
	}
	assert_null(loop_free(loop));
	assert_null(loop_free(NULL));
	assert_null(loop_unwatch(NULL));
	assert_null(loop_timer_free(NULL));
	close(fds[0]);
	close(fds[1]);
}

/* Short of memory or completion entries, or interrupted: events are late, but none is lost. */
TEST(test_turn__kernel_busy, test_setup, test_teardown)
{
	enum { N_WATCHES = 700 };
	static const int answers[] = {-EBUSY, -EAGAIN, -EINTR};
	struct loop *loop = *state;
	struct probe probes[N_WATCHES];
	struct probe timer = {.loop = loop};

	for (size_t a = 0; a < ARRAY_SIZE(answers); a++) {
		enter_answer = answers[a];
		n_enters_refused = 0;
		assert_int_equal(loop_timer_new(loop, on_timer, &timer, &timer.timer), 0);
		for (int i = 0; i < N_WATCHES; i++) {
			probes[i] = (struct probe){.loop = loop};
			probes[i].fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
			assert_true(probes[i].fd >= 0);
			assert_int_equal(loop_watch(loop, probes[i].fd, POLLIN, on_event_read,
						    &probes[i], &probes[i].watch),
					 0);
		}
		/* More changes than submission entries, and none is accepted. */
		n_enter_answers = 5;
		loop_timer_arm(timer.timer, 1 * MS);
		assert_int_equal(loop_turn(loop, false), 0);
		assert_int_equal(loop_turn(loop, true), 0);
		for (int i = 0; i < N_WATCHES; i++)
			assert_int_equal(eventfd_write(probes[i].fd, 1), 0);
		timer.n_calls = 0;
		turn_until(loop, &timer, 1);
		for (int i = 0; i < N_WATCHES; i++)
			turn_until(loop, &probes[i], 1);
		assert_int_equal(n_enters_refused, 5);

		n_enter_answers = 3;
		for (int i = 0; i < N_WATCHES; i++) {
			probes[i].watch = loop_unwatch(probes[i].watch);
			close(probes[i].fd);
		}
		loop_timer_free(timer.timer);
		drain(loop);
	}

	/* Other errors are returned to the caller. */
	enter_answer = -EFAULT;
	n_enter_answers = 1;
	assert_int_equal(loop_turn(loop, true), -EFAULT);
}

TEST(test_turn__sleeps, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe timer = {.loop = loop};
	struct timespec cpu_0, cpu_1;
	uint64_t start_ns, cpu_ns;
	int n_turns = 0;

	assert_int_equal(loop_timer_new(loop, on_timer, &timer, &timer.timer), 0);
	start_ns = clock_now_ns();
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_0);
	loop_timer_arm(timer.timer, 300 * MS);
	/*
	 * Signals also end turns, even unhandled ones, but there are far fewer of them than a
	 * spinning loop has turns.
	 */
	while (!timer.n_calls) {
		assert_true(loop_turn(loop, true) >= 0);
		n_turns++;
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_1);
	cpu_ns =
		(uint64_t)(cpu_1.tv_sec - cpu_0.tv_sec) * 1000 * MS + cpu_1.tv_nsec - cpu_0.tv_nsec;
	assert_true(timer.at_ns - start_ns >= 300 * MS);
	assert_true(cpu_ns < 30 * MS);
	assert_true(n_turns <= 100);
	loop_timer_free(timer.timer);
}

/* Return the kernel time of two million idle turns, in us. */
static uint64_t idle_system_us(struct loop *loop)
{
	struct rusage before, after;

	getrusage(RUSAGE_THREAD, &before);
	for (int i = 0; i < 2000000; i++)
		assert_int_equal(loop_turn(loop, false), 0);
	getrusage(RUSAGE_THREAD, &after);
	return (uint64_t)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 +
	       after.ru_stime.tv_usec - before.ru_stime.tv_usec;
}

/* An idle turn makes no system call, so its kernel time is far below that of one. */
TEST(test_turn__idle_is_cheap, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	uint64_t system_us = UINT64_MAX;
	int fds[2];

	make_pipe(fds);
	assert_int_equal(loop_watch(loop, fds[0], POLLIN, on_event, &probe, &probe.watch), 0);
	assert_int_equal(loop_timer_new(loop, on_timer, &probe, &probe.timer), 0);
	loop_timer_arm(probe.timer, 3600 * 1000 * MS);
	drain(loop);
	/*
	 * Two million of the cheapest calls take more than 100 ms of kernel time. Time of other
	 * work may be charged to this thread, but not in every round.
	 */
	for (int i = 0; i < 10 && system_us >= 50000; i++)
		system_us = idle_system_us(loop);
	assert_true(system_us < 50000);
	loop_timer_free(probe.timer);
	loop_unwatch(probe.watch);
	close(fds[0]);
	close(fds[1]);
}

/* Return: false if the test took so long that other timers were due first. */
static bool try_order(struct loop *loop)
{
	static const struct {
		uint64_t delay_ns;
		char name;
	} cases[] = {
		{30 * MS, 'c'}, {10 * MS, 'a'}, {50 * MS, 'e'}, {20 * MS, 'b'}, {40 * MS, 'd'},
	};
	struct probe probes[ARRAY_SIZE(cases)] = {{.fd = -1}};
	uint64_t start_ns = clock_now_ns();
	bool in_time;

	order[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		probes[i].order = cases[i].name;
		assert_int_equal(loop_timer_new(loop, on_timer, &probes[i], &probes[i].timer), 0);
		loop_timer_arm(probes[i].timer, cases[i].delay_ns);
		/* The kernel already waits for a later timer when an earlier one is armed. */
		assert_in_range(loop_turn(loop, false), 0, i + 1);
	}
	in_time = clock_now_ns() - start_ns < 9 * MS;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		turn_until(loop, &probes[i], 1);
	if (in_time)
		assert_string_equal(order, "abcde");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(probes[i].n_calls, 1);
		assert_true(probes[i].at_ns - start_ns >= cases[i].delay_ns);
		loop_timer_free(probes[i].timer);
	}
	return in_time;
}

TEST(test_timer__order, test_setup, test_teardown)
{
	while (!try_order(*state))
		;
}

/* Return: false if the test took so long that a timer was due before it was rearmed. */
static bool try_rearm(struct loop *loop)
{
	struct probe a = {.order = 'a'}, b = {.order = 'b'}, c = {.order = 'c'};
	uint64_t start_ns;
	bool in_time;

	assert_int_equal(loop_timer_new(loop, on_timer, &a, &a.timer), 0);
	assert_int_equal(loop_timer_new(loop, on_timer, &b, &b.timer), 0);
	assert_int_equal(loop_timer_new(loop, on_timer, &c, &c.timer), 0);
	loop_timer_disarm(a.timer);

	order[0] = '\0';
	start_ns = clock_now_ns();
	loop_timer_arm(a.timer, 5 * MS);
	loop_timer_arm(b.timer, 10 * MS);
	loop_timer_arm(c.timer, 3600 * 1000 * MS);
	loop_turn(loop, false);
	in_time = clock_now_ns() - start_ns < 5 * MS;
	if (in_time) {
		loop_timer_arm(a.timer, 30 * MS); /* later */
		loop_timer_arm(c.timer, 1 * MS);  /* earlier */
		loop_timer_disarm(b.timer);
		loop_timer_disarm(b.timer);
		turn_until(loop, &a, 1);
		assert_string_equal(order, "ca");
		assert_true(a.at_ns - start_ns >= 30 * MS);
		assert_int_equal(b.n_calls, 0);

		/* A timer fires once, and may be freed while armed. */
		loop_timer_arm(b.timer, 1 * MS);
		loop_timer_arm(c.timer, UINT64_MAX);
		turn_until(loop, &b, 1);
		assert_string_equal(order, "cab");
		loop_timer_arm(a.timer, 3600 * 1000 * MS);
		loop_turn(loop, false);
		a.timer = loop_timer_free(a.timer);
		loop_timer_arm(b.timer, 5 * MS);
		turn_until(loop, &b, 2);
		assert_int_equal(a.n_calls, 1);
	}
	loop_timer_free(a.timer);
	loop_timer_free(b.timer);
	loop_timer_free(c.timer);
	return in_time;
}

TEST(test_timer__rearm_and_disarm, test_setup, test_teardown)
{
	while (!try_rearm(*state))
		;
}

static void on_timer_again(void *data)
{
	struct probe *probe = data;

	on_timer(data);
	if (probe->n_calls < 50)
		loop_timer_arm(probe->timer, 0);
	else
		probe->timer = loop_timer_free(probe->timer);
}

TEST(test_timer__in_handler, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {.loop = loop};
	int n;

	assert_int_equal(loop_timer_new(loop, on_timer_again, &probe, &probe.timer), 0);
	loop_timer_arm(probe.timer, 0);
	while (probe.timer) {
		n = loop_turn(loop, true);
		assert_in_range(n, 0, 1);
	}
	assert_int_equal(probe.n_calls, 50);
}

TEST(test_timer__thousands, test_setup, test_teardown)
{
	enum { N_TIMERS = 3000 };
	struct loop *loop = *state;
	struct probe *probes = calloc(N_TIMERS, sizeof(*probes));
	uint64_t *due_ns = calloc(N_TIMERS, sizeof(*due_ns));
	unsigned int seed = 1, n_left = 0;

	assert_non_null(probes);
	assert_non_null(due_ns);
	for (int i = 0; i < N_TIMERS; i++)
		assert_int_equal(loop_timer_new(loop, on_timer, &probes[i], &probes[i].timer), 0);
	for (int i = 0; i < 4 * N_TIMERS; i++) {
		int at = rand_r(&seed) % N_TIMERS;
		uint64_t delay_ns = rand_r(&seed) % 50 * MS;

		if (rand_r(&seed) % 4 == 0) {
			loop_timer_disarm(probes[at].timer);
			due_ns[at] = 0;
		} else {
			due_ns[at] = clock_now_ns() + delay_ns;
			loop_timer_arm(probes[at].timer, delay_ns);
		}
	}
	for (int i = 0; i < N_TIMERS; i++)
		n_left += due_ns[i] != 0;
	assert_true(n_left > 1000);
	while (n_left > 0) {
		int n = loop_turn(loop, true);

		assert_in_range(n, 0, n_left);
		n_left -= (unsigned int)n;
	}
	for (int i = 0; i < N_TIMERS; i++) {
		assert_int_equal(probes[i].n_calls, due_ns[i] != 0);
		if (due_ns[i])
			assert_true(probes[i].at_ns >= due_ns[i]);
		loop_timer_free(probes[i].timer);
	}
	free(due_ns);
	free(probes);
}

/* A watch is retried after -ENOMEM: a ring whose bell is not watched would wait forever. */
TEST(test_watch_once__out_of_memory, test_setup, test_teardown)
{
	struct loop *loop = *state;
	struct probe probe = {0}, other = {0};
	int fds[2];

	make_pipe(fds);
	put(fds[1]);
	assert_int_equal(loop_watch_once(loop, fds[0], POLLIN, on_event, &probe, &probe.watch), 0);
	assert_int_equal(loop_watch_once(loop, fds[0], POLLIN, on_event, &other, &other.watch), 0);
	n_to_fail = 3;
	assert_int_equal(loop_turn(loop, false), 0);
	assert_int_equal(n_to_fail, 1);
	assert_int_equal(probe.n_calls + other.n_calls, 0);

	/* One watch is removed meanwhile; the other fails once more, and then reports. */
	other.watch = loop_unwatch(other.watch);
	loop_rewatch(probe.watch);
	while (probe.n_calls == 0)
		assert_true(loop_turn(loop, n_to_fail == 0) >= 0);
	assert_int_equal(n_to_fail, 0);
	assert_int_equal(probe.events, POLLIN);
	loop_rewatch(probe.watch);
	turn_until(loop, &probe, 2);
	assert_int_equal(other.n_calls, 0);

	/* A loop may be freed while it waits to retry. */
	n_to_fail = 1;
	loop_rewatch(probe.watch);
	assert_int_equal(loop_turn(loop, false), 0);
	loop_unwatch(probe.watch);
	close(fds[0]);
	close(fds[1]);
}

/* The ring cannot do what the loop does not ask for. */
TEST(test_ring__is_restricted, test_setup, test_teardown)
{
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;

	sqe = io_uring_get_sqe(last_ring);
	assert_non_null(sqe);
	io_uring_prep_openat(sqe, AT_FDCWD, "/dev/null", O_RDONLY, 0);
	assert_int_equal(__real_io_uring_submit(last_ring), 1);
	assert_int_equal(io_uring_wait_cqe(last_ring, &cqe), 0);
	assert_int_equal(cqe->res, -EACCES);
	io_uring_cqe_seen(last_ring, cqe);
}

int main(void)
{
	int n_failed = test_run(NULL, NULL);

	kernel_is_old = true;
	return n_failed + test_run(NULL, NULL);
}
