#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * State of the layer in this process: its connection, the devices, and the locks of both
 *
 * It lives in pages that fork() wipes, as everything that process_pages() returns: see gpu.c.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/layer/environment.h"

struct gpu;
struct rbk;

struct process {
	uint32_t is_set_up;
	pthread_mutex_t list_lock; /* dispatch.c's */
	pthread_mutex_t lock;
	pthread_rwlock_t using;
	struct environment environment;
	bool is_watched; /* a thread waits for the connection's end */
	struct rbk *rbk;
	uint64_t connection; /* atomic: how often it was made */
	uint64_t retry_at_ns;
	struct gpu *gpus; /* atomic; none is ever removed */
};

/* NULL before process_init(). */
extern struct process *layer_process;

/* Return: 0 or -ENOMEM. */
int process_init(void);

/* Return: memory that is zeroed, and zeroed again in children; NULL: there is none. */
void *process_pages(size_t bytes);

/* Read the environment, once. Under lock, which works as it is in zeroed memory. */
void process_set_up(void);

/* The lock of dispatch.c's lists. */
pthread_mutex_t *process_list_lock(void);

/* Return: RINGBROKER_LEASE_WAIT. */
uint64_t process_wait_ns(void);
