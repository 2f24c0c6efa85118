#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * State of the layer in this process: its connection, the devices, and the locks of both
 *
 * The state lies in pages that fork() wipes, as all memory of process_pages() does: a child finds
 * no connection, no devices, and free locks.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/layer/environment.h"
#include "libclient/layer/timeslice.h"

struct gpu;
struct mover;
struct rbk;

struct process {
	uint32_t is_set_up;
	pthread_mutex_t list_lock; /* lock of dispatch.c's lists */
	pthread_mutex_t lock;
	pthread_rwlock_t using;
	struct environment environment;
	bool is_watched; /* a thread waits for the connection's end */
	struct rbk *rbk;
	uint64_t connection; /* atomic: number of connections made so far */
	uint64_t retry_at_ns;
	struct gpu *gpus;     /* atomic; devices are never removed */
	uint32_t n_in_driver; /* atomic: threads of the layer that call the driver */
	uint32_t is_exiting;  /* atomic: they call it no more */
	pthread_mutex_t movers_lock;
	struct mover *movers;  /* of devices whose memory can be moved; under movers_lock */
	bool has_mover_thread; /* under movers_lock */
	uint64_t counts[TIMESLICE_COUNTS]; /* atomic: since the last log, without submissions */
};

/* NULL before process_init(). */
extern struct process *layer_process;

/* Return: 0 or -ENOMEM. */
int process_init(void);

/* Map zeroed pages that fork() zeroes again in children. Return: NULL without memory. */
void *process_pages(size_t bytes);

/* Read the environment, once. Under lock, which is valid in zeroed memory. */
void process_set_up(void);

/*
 * Start a thread in which all signals are blocked: they are for the program's threads. *ret is the
 * thread, to be joined; if @ret is NULL, it is detached.
 * Return: 0; an errno of pthread_create().
 */
int process_thread(pthread_t *ret, const char *name, void *(*run)(void *data), void *data);

/*
 * Begin and end a call of the driver in a thread of the layer. Return: false: the process ends, and
 * the driver may have done so already.
 */
bool process_enter_driver(void);
void process_leave_driver(void);

/* Return the lock of dispatch.c's lists. */
pthread_mutex_t *process_list_lock(void);

/* Return the value of RINGBROKER_LEASE_WAIT in ns. */
uint64_t process_wait_ns(void);
