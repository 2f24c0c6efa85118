/* SPDX-License-Identifier: MIT */
/*
 * The closer threads, whose jobs clients can make last: which job waits for which, and how closing
 * a connection treats pending messages.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/closers.h"
#include "support/test.h"
#include "tenant/account.h"

enum { N_ACCOUNTS = 50 };

struct fixture {
	struct loop *loop;
	struct closers *closers;
	struct account_book *book;
	struct account *accounts[N_ACCOUNTS];
};

static void begin(struct fixture *f)
{
	const struct account_limits limits = {{0}};

	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(closers_new(f->loop, &f->closers), 0);
	assert_int_equal(account_book_new(&f->book), 0);
	for (unsigned int i = 0; i < N_ACCOUNTS; i++)
		assert_int_equal(account_new(f->book, "tenant", &limits, &f->accounts[i]), 0);
}

static void end(struct fixture *f)
{
	closers_free(f->closers);
	for (unsigned int i = 0; i < N_ACCOUNTS; i++)
		account_unref(f->accounts[i]);
	account_book_free(f->book);
	loop_free(f->loop);
}

struct job {
	struct closers_job job;
	sem_t *gate; /* NULL: does not wait */
	char thread_name[16];
	unsigned int order;
};

static unsigned int n_done;

static void job_run(struct closers_job *job)
{
	struct job *j = container_of(job, struct job, job);

	pthread_getname_np(pthread_self(), j->thread_name, sizeof(j->thread_name));
	if (j->gate)
		sem_wait(j->gate);
}

static void job_done(struct closers_job *job)
{
	container_of(job, struct job, job)->order = ++n_done;
}

static void submit(struct fixture *f, struct job *job, unsigned int account, sem_t *gate)
{
	*job = (struct job){.job = {.run = job_run, .done = job_done}, .gate = gate};
	closers_submit(f->closers, f->accounts[account], &job->job);
}

static void wait_for(struct fixture *f, const struct job *job)
{
	while (job->order == 0)
		assert_true(loop_turn(f->loop, true) >= 0);
}

/* Jobs of one account run in order behind a stuck job; other accounts' jobs do not wait. */
TEST(test_closers__own_lane)
{
	struct job stuck, behind[64], other;
	struct fixture f;
	sem_t gate;

	n_done = 0;
	begin(&f);
	sem_init(&gate, 0, 0);
	submit(&f, &stuck, 0, &gate);
	for (unsigned int i = 0; i < 64; i++)
		submit(&f, &behind[i], 0, NULL);
	submit(&f, &other, 1, NULL);
	wait_for(&f, &other);
	assert_int_equal(other.order, 1);
	/* The job runs in a closer, not in the setup thread. */
	assert_string_equal(other.thread_name, "rb-closer");
	assert_int_equal(closers_n_jobs(f.closers), 65);
	sem_post(&gate);
	wait_for(&f, &behind[63]);
	for (unsigned int i = 0; i < 64; i++)
		assert_int_equal(behind[i].order, 3 + i);
	assert_int_equal(closers_n_jobs(f.closers), 0);
	end(&f);
}

static unsigned int n_armed;

void __real_loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns);
void __wrap_loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns);

void __wrap_loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns)
{
	n_armed++;
	__real_loop_timer_arm(timer, delay_ns);
}

/* Threads that the reactor has started and ended: it would wait for the process's memory map. */
static unsigned int n_by_reactor;
static pthread_t reactor;

int __real_thread_start(pthread_t *thread, const char *name, void *(*main)(void *data), void *data);
int __wrap_thread_start(pthread_t *thread, const char *name, void *(*main)(void *data), void *data);
int __real_pthread_join(pthread_t thread, void **ret);
int __wrap_pthread_join(pthread_t thread, void **ret);

int __wrap_thread_start(pthread_t *thread, const char *name, void *(*main)(void *data), void *data)
{
	if (pthread_equal(pthread_self(), reactor))
		n_by_reactor++;
	return __real_thread_start(thread, name, main, data);
}

int __wrap_pthread_join(pthread_t thread, void **ret)
{
	if (pthread_equal(pthread_self(), reactor))
		n_by_reactor++;
	return __real_pthread_join(thread, ret);
}

/*
 * Many accounts are stuck, each with a thread, and the next account still gets a thread. When the
 * stuck jobs end, most threads exit.
 */
TEST(test_closers__stuck_threads)
{
	struct closers_report report, before;
	struct job stuck[N_ACCOUNTS - 1], other;
	unsigned int n_most = 0;
	struct fixture f;
	sem_t gate;

	n_done = 0;
	reactor = pthread_self();
	begin(&f);
	n_by_reactor = 0;
	closers_describe(f.closers, &before);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < N_ACCOUNTS - 1; i++)
		submit(&f, &stuck[i], i, &gate);
	submit(&f, &other, N_ACCOUNTS - 1, NULL);
	while (other.order == 0) {
		assert_true(loop_turn(f.loop, true) >= 0);
		closers_describe(f.closers, &report);
		assert_true(report.n_stuck < report.n_threads_max);
		n_most = report.n_threads > n_most ? report.n_threads : n_most;
	}
	assert_int_equal(n_done, 1);
	/* The turn that completes the other job may already end its thread. */
	assert_true(n_most >= N_ACCOUNTS);
	for (unsigned int i = 0; i < N_ACCOUNTS - 1; i++)
		sem_post(&gate);
	for (unsigned int i = 0; i < N_ACCOUNTS - 1; i++)
		wait_for(&f, &stuck[i]);
	assert_int_equal(n_done, N_ACCOUNTS);
	do {
		submit(&f, &other, 0, NULL);
		wait_for(&f, &other);
		closers_describe(f.closers, &report);
	} while (report.n_threads >= N_ACCOUNTS - 12);
	assert_true(report.n_threads >= before.n_threads);
	assert_int_equal(n_by_reactor, 0);
	end(&f);
}

/* A new job does not delay jobs that wait for a thread already. */
TEST(test_closers__line)
{
	struct job stuck[4], waiting[8];
	struct fixture f;
	sem_t gate;

	n_done = 0;
	begin(&f);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < 4; i++)
		submit(&f, &stuck[i], i, &gate);
	n_armed = 0;
	for (unsigned int i = 0; i < 8; i++)
		submit(&f, &waiting[i], 4 + i, NULL);
	assert_int_equal(n_armed, 1);
	for (unsigned int i = 0; i < 4; i++)
		sem_post(&gate);
	end(&f);
	assert_int_equal(n_done, 12);
}

/* Threads whose job takes too long are described; jobs behind them wait. */
TEST(test_closers__describe)
{
	struct closers_report report;
	struct job stuck[2], behind;
	struct fixture f;
	sem_t gate;

	n_done = 0;
	begin(&f);
	sem_init(&gate, 0, 0);
	closers_describe(f.closers, &report);
	assert_true(report.n_threads > 0 && report.n_threads <= report.n_threads_max);
	assert_int_equal(report.n_stuck + report.n_waiting + report.n_ever_stuck, 0);
	submit(&f, &stuck[0], 0, &gate);
	submit(&f, &stuck[1], 1, &gate);
	submit(&f, &behind, 0, NULL);
	do {
		closers_describe(f.closers, &report);
		assert_fields(report, (n_waiting, 1), (n_ever_stuck, report.n_stuck));
	} while (report.n_stuck < 2);
	sem_post(&gate);
	sem_post(&gate);
	wait_for(&f, &behind);
	while (closers_n_jobs(f.closers) > 0)
		assert_true(loop_turn(f.loop, true) >= 0);
	closers_describe(f.closers, &report);
	assert_fields(report, (n_stuck + report.n_waiting, 0), (n_ever_stuck, 2));
	end(&f);
}

/* --- Connections --- */

static void send_message(int fd, size_t n_bytes, const int *fds, unsigned int n_fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * CLOSERS_MESSAGE_FDS)];
	} control = {.header = {.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS,
				.cmsg_len = CMSG_LEN(sizeof(int) * n_fds)}};
	struct iovec iov = {.iov_base = "12345678", .iov_len = n_bytes};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * n_fds);
	}
	assert_int_equal(sendmsg(fd, &message, 0), n_bytes);
}

/* Unread messages of all kinds, the empty one first, which looks like the end of the stream. */
TEST(test_hang_up__unread)
{
	int ends[2], watched[2], many[CLOSERS_MESSAGE_FDS];
	char byte;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, watched), 0);
	for (unsigned int i = 0; i < CLOSERS_MESSAGE_FDS; i++)
		many[i] = watched[1];
	send_message(ends[1], 0, NULL, 0);
	send_message(ends[1], 8, NULL, 0);
	send_message(ends[1], 0, &watched[1], 1);
	send_message(ends[1], 4, many, CLOSERS_MESSAGE_FDS);
	close(watched[1]);
	assert_int_equal(shutdown(ends[0], SHUT_RDWR), 0);
	assert_true(closers_may_have_fds(ends[0]));
	assert_int_equal(recv(watched[0], &byte, 1, MSG_DONTWAIT), -1);
	closers_hang_up(ends[0]);
	assert_int_equal(recv(watched[0], &byte, 1, MSG_DONTWAIT), 0);
	assert_int_equal(fcntl(ends[0], F_GETFD), -1);
	close(ends[1]);
	close(watched[0]);
}

static void expect_nothing_unread(bool is_closed, unsigned int n_read)
{
	int ends[2];
	char byte;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	for (unsigned int i = 0; i < n_read; i++) {
		send_message(ends[1], 8, NULL, 0);
		assert_int_equal(recv(ends[0], &byte, 1, 0), 1);
	}
	if (is_closed)
		close(ends[1]);
	assert_int_equal(shutdown(ends[0], SHUT_RDWR), 0);
	assert_false(closers_may_have_fds(ends[0]));
	closers_hang_up(ends[0]);
	if (!is_closed)
		close(ends[1]);
}

TEST(test_hang_up__nothing_unread)
{
	for (unsigned int n_read = 0; n_read < 3; n_read++) {
		expect_nothing_unread(false, n_read);
		expect_nothing_unread(true, n_read);
	}
}
