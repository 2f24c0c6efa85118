/* SPDX-License-Identifier: MIT */
/*
 * Threads and clocks of simulated processes: util/thread.h, util/clock.h, and what the broker and
 * the library use of pthread.h and semaphore.h (--wrap)
 *
 * The state of a lock or a semaphore lies in its own memory, so it ends with its process.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>

#include "simulator/machine.h"
#include "util/clock.h"
#include "util/thread.h"

#define CALL(type, name, ...)            \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

/* --- Clocks --- */

struct clock clock_state_ = {.ns_mult = 1ull << 32, .tick_mult = 1ull << 32, .use_tsc = 0};

void clock_init(void)
{
}

uint64_t clock_read_ns(clockid_t clock)
{
	return sim_read_clock();
}

uint64_t clock_now_ns(void)
{
	return sim_read_clock();
}

uint64_t clock_boot_ns(void)
{
	return sim_read_clock();
}

CALL(int, clock_gettime, clockid_t clock, struct timespec *ret)
{
	const uint64_t now_ns = sim_read_clock();

	*ret = (struct timespec){
		.tv_sec = (time_t)(now_ns / 1000000000u),
		.tv_nsec = (long)(now_ns % 1000000000u),
	};
	return 0;
}

static uint64_t time_ns(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

CALL(int, nanosleep, const struct timespec *time, struct timespec *rest)
{
	sim_step();
	sim_wait(NULL, 0, NULL, sim_now_ns() + time_ns(time));
	return 0;
}

CALL(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *time, void *rest)
{
	sim_step();
	sim_wait(NULL, 0, NULL,
		 flags & TIMER_ABSTIME ? time_ns(time) : sim_now_ns() + time_ns(time));
	return 0;
}

CALL(int, usleep, useconds_t us)
{
	sim_step();
	sim_wait(NULL, 0, NULL, sim_now_ns() + (uint64_t)us * 1000u);
	return 0;
}

/* --- Threads --- */

int thread_start(pthread_t *thread, const char *name, void *(*main)(void *data), void *data)
{
	sim_step();
	if (sim_call_fails())
		return -EAGAIN;
	*thread = (pthread_t)sim_thread_start(name, main, data);
	return 0;
}

int thread_set_slice(uint64_t slice_ns)
{
	return THREAD_E_NO_SLICES;
}

int thread_set_nice(int nice)
{
	return 0;
}

int thread_leave_processor(void)
{
	return THREAD_E_NO_OTHER;
}

void thread_nap(uint32_t ns)
{
}

int thread_nice(void)
{
	return 0;
}

/* All accesses are in one order. */
int thread_fence_others(void)
{
	sim_step();
	return sim_call_fails() ? -ENOMEM : 0;
}

CALL(int, pthread_create, pthread_t *thread, const void *attr, void *(*main)(void *), void *data)
{
	sim_step();
	if (sim_call_fails())
		return EAGAIN;
	*thread = (pthread_t)sim_thread_start("thread", main, data);
	return 0;
}

CALL(int, pthread_join, pthread_t thread, void **ret)
{
	sim_thread_join((unsigned int)thread);
	return 0;
}

CALL(pthread_t, pthread_self, void)
{
	return (pthread_t)sim_thread();
}

CALL(int, pthread_setname_np, pthread_t thread, const char *name)
{
	return 0;
}

CALL(int, pthread_once, pthread_once_t *once, void (*fn)(void))
{
	if (*once == PTHREAD_ONCE_INIT) {
		*once = 1;
		fn();
	}
	return 0;
}

/* The hooks would stay when the process is gone; no simulated process forks. */
CALL(int, pthread_atfork, void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	return 0;
}

/* --- Locks --- */

enum { UNLOCKED, LOCKED = 0x10cced };

static uint32_t *word_of(void *object)
{
	return object;
}

CALL(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
	*word_of(mutex) = UNLOCKED;
	return 0;
}

CALL(int, pthread_mutex_destroy, pthread_mutex_t *mutex)
{
	sim_check(*word_of(mutex) == UNLOCKED);
	return 0;
}

CALL(int, pthread_mutex_lock, pthread_mutex_t *mutex)
{
	sim_step();
	while (*word_of(mutex) != UNLOCKED)
		sim_wait(NULL, 0, mutex, SIM_NEVER);
	*word_of(mutex) = LOCKED;
	return 0;
}

CALL(int, pthread_mutex_trylock, pthread_mutex_t *mutex)
{
	sim_step();
	if (*word_of(mutex) != UNLOCKED)
		return EBUSY;
	*word_of(mutex) = LOCKED;
	return 0;
}

CALL(int, pthread_mutex_unlock, pthread_mutex_t *mutex)
{
	sim_check(*word_of(mutex) == LOCKED);
	*word_of(mutex) = UNLOCKED;
	sim_wake(mutex, 1);
	sim_step();
	return 0;
}

/* --- Conditions: the address alone matters. --- */

CALL(int, pthread_cond_init, pthread_cond_t *cond, const pthread_condattr_t *attr)
{
	return 0;
}

CALL(int, pthread_cond_destroy, pthread_cond_t *cond)
{
	return 0;
}

static int cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ns)
{
	bool is_woken;

	sim_check(*word_of(mutex) == LOCKED);
	*word_of(mutex) = UNLOCKED;
	sim_wake(mutex, 1);
	is_woken = sim_wait(NULL, 0, cond, deadline_ns);
	__wrap_pthread_mutex_lock(mutex);
	return is_woken ? 0 : ETIMEDOUT;
}

CALL(int, pthread_cond_wait, pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	return cond_wait_until(cond, mutex, SIM_NEVER);
}

CALL(int, pthread_cond_timedwait, pthread_cond_t *cond, pthread_mutex_t *mutex, const void *end)
{
	return cond_wait_until(cond, mutex, time_ns(end));
}

CALL(int, pthread_cond_signal, pthread_cond_t *cond)
{
	sim_wake(cond, 1);
	sim_step();
	return 0;
}

CALL(int, pthread_cond_broadcast, pthread_cond_t *cond)
{
	sim_wake(cond, UINT32_MAX);
	sim_step();
	return 0;
}

/* --- Semaphores --- */

CALL(int, sem_init, sem_t *sem, int is_shared, unsigned int value)
{
	*word_of(sem) = value;
	return 0;
}

CALL(int, sem_destroy, sem_t *sem)
{
	return 0;
}

CALL(int, sem_post, sem_t *sem)
{
	++*word_of(sem);
	sim_wake(sem, 1);
	sim_step();
	return 0;
}

CALL(int, sem_wait, sem_t *sem)
{
	sim_step();
	while (*word_of(sem) == 0)
		sim_wait(NULL, 0, sem, SIM_NEVER);
	--*word_of(sem);
	return 0;
}
