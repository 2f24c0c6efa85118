/* SPDX-License-Identifier: MIT */
/* Threads that are paused at random: see pauses.h */
#include "support/pauses.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"

enum {
	MAX_THREADS = 16,
	MOST_PAUSE_NS = 300000,
	MOST_GAP_NS = 300000,
};

static struct {
	pid_t threads[MAX_THREADS];
	unsigned int n_threads;
	pthread_t pauser;
	_Atomic bool is_over;
	_Atomic uint32_t seed, n_pauses;
} pauses;

static void sleep_ns(uint64_t ns)
{
	const struct timespec time = {.tv_nsec = (long)ns};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

/* The multiplier is Knuth's, of the golden ratio. */
static uint32_t scramble(uint32_t n)
{
	return n * 2654435761u;
}

static void on_signal(int number)
{
	const uint32_t random = scramble(atomic_fetch_add(&pauses.seed, 1));
	const int error = errno;

	sleep_ns(random % MOST_PAUSE_NS);
	atomic_fetch_add(&pauses.n_pauses, 1);
	errno = error;
}

static void *pauser_main(void *data)
{
	for (uint32_t i = 7; !atomic_load(&pauses.is_over); i++) {
		const unsigned int which = (scramble(i) >> 16) % pauses.n_threads;

		syscall(SYS_tgkill, getpid(), pauses.threads[which], SIGUSR1);
		sleep_ns(scramble(i * i) % MOST_GAP_NS);
	}
	return NULL;
}

/* Threads of the broker block this signal as well. */
int __real_pthread_sigmask(int how, const sigset_t *set, sigset_t *ret_old);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *ret_old);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *ret_old)
{
	sigset_t without;

	if (!set)
		return __real_pthread_sigmask(how, NULL, ret_old);
	without = *set;
	sigdelset(&without, SIGUSR1);
	return __real_pthread_sigmask(how, &without, ret_old);
}

static bool is_of_broker(const char *tid)
{
	char path[64], name[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", tid);
	file = fopen(path, "re");
	assert_non_null(file);
	(void)!fgets(name, sizeof(name), file);
	fclose(file);
	return strncmp(name, "rb-", 3) == 0;
}

static void find_threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	const struct dirent *entry;

	assert_non_null(folder);
	pauses.threads[0] = (pid_t)syscall(SYS_gettid);
	pauses.n_threads = 1;
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.' || !is_of_broker(entry->d_name))
			continue;
		assert_true(pauses.n_threads < MAX_THREADS);
		pauses.threads[pauses.n_threads++] = (pid_t)atoi(entry->d_name);
	}
	closedir(folder);
	assert_true(pauses.n_threads > 1);
}

void pauses_begin(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	find_threads();
	atomic_store(&pauses.n_pauses, 0);
	atomic_store(&pauses.is_over, false);
	assert_int_equal(pthread_create(&pauses.pauser, NULL, pauser_main, NULL), 0);
}

uint64_t pauses_run_ns(void)
{
	const char *seconds = getenv("RBK_PAUSES_S");

	return (seconds ? strtoull(seconds, NULL, 10) : 1) * 1000000000u;
}

void pauses_end(void)
{
	atomic_store(&pauses.is_over, true);
	pthread_join(pauses.pauser, NULL);
	assert_int_not_equal(atomic_load(&pauses.n_pauses), 0);
}
