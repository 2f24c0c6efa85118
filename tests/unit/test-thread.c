/* SPDX-License-Identifier: MIT */
/* Threads: broker/util/thread.h */
#include <stdbool.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/test.h"
#include "util/clock.h"
#include "util/thread.h"

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

/* error of system calls by thread.c, or 0 */
static int syscall_error;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	va_list args;
	long a, b, c, d;

	if (syscall_error) {
		errno = syscall_error;
		return -1;
	}
	va_start(args, number);
	a = va_arg(args, long);
	b = va_arg(args, long);
	c = va_arg(args, long);
	d = va_arg(args, long);
	va_end(args);
	return __real_syscall(number, a, b, c, d);
}

/* memcmp() would not do: the kernel fills in only the signals that exist. */
static bool is_same(const sigset_t *a, const sigset_t *b)
{
	for (int signal = 1; signal < SIGRTMAX; signal++)
		if (sigismember(a, signal) != sigismember(b, signal))
			return false;
	return true;
}

static void *see_mask(void *data)
{
	pthread_sigmask(SIG_SETMASK, NULL, data);
	return NULL;
}

TEST(test_start__signals)
{
	sigset_t before, after, seen;
	pthread_t thread;

	sigemptyset(&seen);
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	assert_int_equal(thread_start(&thread, "rb-test", see_mask, &seen), 0);
	pthread_join(thread, NULL);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_true(is_same(&before, &after));
	assert_true(sigismember(&seen, SIGTERM) && sigismember(&seen, SIGHUP));
	assert_true(sigismember(&seen, SIGINT) && sigismember(&seen, SIGUSR1));
	assert_false(sigismember(&seen, SIGBUS) || sigismember(&seen, SIGSEGV));
	assert_false(sigismember(&seen, SIGILL) || sigismember(&seen, SIGFPE));
	assert_false(sigismember(&seen, SIGABRT) || sigismember(&seen, SIGTRAP));
	assert_false(sigismember(&seen, SIGSYS));
}

static void *see_name(void *data)
{
	pthread_getname_np(pthread_self(), data, 32);
	return NULL;
}

TEST(test_start__name_is_cut)
{
	char name[32] = "";
	pthread_t thread;

	assert_int_equal(thread_start(&thread, "rb-a-very-long-name", see_name, name), 0);
	pthread_join(thread, NULL);
	assert_string_equal(name, "rb-a-very-long-");
}

TEST(test_start__no_more_threads)
{
	sigset_t before, after;
	pthread_t thread;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	fail_pthread_create = true;
	assert_int_equal(thread_start(&thread, "rb-test", see_mask, NULL), -EAGAIN);
	fail_pthread_create = false;
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_true(is_same(&before, &after));
}

/* The kernel's struct sched_attr in its first version. */
struct attr {
	uint32_t bytes, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t slice_ns, deadline_ns, period_ns;
};

static struct attr read_attr(void)
{
	struct attr attr = {.bytes = sizeof(attr)};

	assert_int_equal(syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0), 0);
	return attr;
}

static int set_slice(uint64_t slice_ns, int policy, int error, struct attr *ret)
{
	const struct sched_param param = {.sched_priority = 0};
	int r;

	assert_int_equal(sched_setscheduler(0, policy, &param), 0);
	assert_int_equal(setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 7), 0);
	syscall_error = error;
	r = thread_set_slice(slice_ns);
	syscall_error = 0;
	*ret = read_attr();
	return r;
}

/* Runs in its own thread, because the slice is permanent. */
static void *set_slices(void *data)
{
	struct attr before = read_attr(), attr;

	if (before.slice_ns == 0) {
		assert_int_equal(set_slice(300000, SCHED_OTHER, 0, &attr), THREAD_E_NO_SLICES);
		return data;
	}
	assert_int_equal(set_slice(300000, SCHED_OTHER, EPERM, &attr), -EPERM);
	assert_int_equal(attr.slice_ns, before.slice_ns);
	assert_int_equal(set_slice(300000, SCHED_IDLE, 0, &attr), THREAD_E_NO_SLICES);
	assert_int_equal(attr.policy, SCHED_IDLE);
	assert_int_equal(set_slice(300000, SCHED_BATCH, 0, &attr), 0);
	assert_fields(attr, (policy, SCHED_BATCH), (slice_ns, 300000), (nice, 7));
	/* The slice is raised to the minimum. */
	assert_int_equal(set_slice(1, SCHED_OTHER, 0, &attr), 0);
	assert_fields(attr, (policy, SCHED_OTHER), (slice_ns, 100000), (nice, 7));
	return data;
}

TEST(test_slice)
{
	const struct attr before = read_attr();
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, set_slices, NULL), 0);
	pthread_join(thread, NULL);
	assert_int_equal(read_attr().slice_ns, before.slice_ns);
}

static void *read_attr_of_new(void *data)
{
	*(struct attr *)data = read_attr();
	return data;
}

/* Runs in its own thread, because the nice level is permanent. */
static void *set_nices(void *data)
{
	const struct sched_param param = {.sched_priority = 0};
	struct attr before = read_attr(), attr;
	int nicer = before.nice + 5;
	pthread_t thread;

	syscall_error = EPERM;
	assert_int_equal(thread_set_nice(nicer), -EPERM);
	assert_int_equal(thread_nice(), 0);
	syscall_error = 0;
	assert_int_equal(thread_nice(), before.nice);
	assert_int_equal(thread_set_nice(nicer), 0);
	assert_int_equal(thread_nice(), nicer);
	assert_int_equal(read_attr().slice_ns, before.slice_ns);
	assert_true(thread_set_slice(300000) >= 0);
	assert_int_equal(thread_nice(), nicer);

	/* Raising the priority again needs privilege. A new thread starts with its own values. */
	attr = read_attr();
	if (thread_set_nice(-5) == 0) {
		assert_int_equal(read_attr().slice_ns, attr.slice_ns);
		assert_int_equal(thread_nice(), -5);
		assert_int_equal(pthread_create(&thread, NULL, read_attr_of_new, &attr), 0);
		pthread_join(thread, NULL);
		assert_int_equal(attr.nice, 0);
	} else {
		assert_int_equal(thread_set_nice(-5), -EPERM);
		assert_int_equal(pthread_create(&thread, NULL, read_attr_of_new, &attr), 0);
		pthread_join(thread, NULL);
	}
	assert_int_equal(attr.slice_ns, before.slice_ns);

	/* SCHED_IDLE has no nice level. */
	assert_int_equal(sched_setscheduler(0, SCHED_IDLE, &param), 0);
	assert_int_equal(thread_set_nice(3), 0);
	assert_int_equal(thread_nice(), 0);
	assert_int_equal(read_attr().policy, SCHED_IDLE);
	return data;
}

TEST(test_nice)
{
	const int nice = read_attr().nice;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, set_nices, NULL), 0);
	pthread_join(thread, NULL);
	assert_int_equal(read_attr().nice, nice);
}

/* The thread is elsewhere at least once in many calls: the scheduler may bring it back at once. */
TEST(test_leave_processor)
{
	cpu_set_t all, here, now;
	bool has_left = false;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	for (unsigned int i = 0; i < 100 && !has_left && CPU_COUNT(&all) > 1; i++) {
		const int before = sched_getcpu();

		assert_int_equal(thread_leave_processor(), 0);
		has_left = sched_getcpu() != before;
	}
	assert_true(has_left || CPU_COUNT(&all) == 1);
	assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
	assert_true(CPU_EQUAL(&now, &all));

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
	assert_int_equal(thread_leave_processor(), THREAD_E_NO_OTHER);
	assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
	assert_true(CPU_EQUAL(&now, &here));
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

TEST(test_nap)
{
	const uint64_t begin_ns = clock_now_ns();

	thread_nap(200000);
	assert_true(clock_now_ns() - begin_ns >= 200000);
}
