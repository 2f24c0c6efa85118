/* SPDX-License-Identifier: MIT */
/* Threads beside the reactor: broker/util/thread.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include <cmocka.h>

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

/* Not by memcmp(): the kernel fills in only the signals that there are. */
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

static void test_start__signals(void **state)
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
}

static void *wait_for(void *data)
{
	pthread_mutex_t *until = data;

	pthread_mutex_lock(until);
	pthread_mutex_unlock(until);
	return NULL;
}

static void test_start__name_is_cut(void **state)
{
	pthread_mutex_t until = PTHREAD_MUTEX_INITIALIZER;
	char name[32] = "";
	pthread_t thread;

	pthread_mutex_lock(&until);
	assert_int_equal(thread_start(&thread, "rb-a-very-long-name", wait_for, &until), 0);
	assert_int_equal(pthread_getname_np(thread, name, sizeof(name)), 0);
	assert_string_equal(name, "rb-a-very-long-");
	pthread_mutex_unlock(&until);
	pthread_join(thread, NULL);
}

static void test_start__no_more_threads(void **state)
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start__signals),
		cmocka_unit_test(test_start__name_is_cut),
		cmocka_unit_test(test_start__no_more_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
