#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Allocations of a device, indexed by handle
 *
 * Any thread may call these functions at any time; Vulkan requires that one thread at a time uses a
 * handle. A lock is held for some tens of instructions, or for the time to move a part of the table
 * to a larger array.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct object;

struct allocation {
	uint64_t handle;       /* never 0 */
	uint64_t bytes;        /* a multiple of the page size */
	struct object *object; /* a shared object; else NULL */
	uint32_t gpus;         /* bits: the device's gpus that have an instance */
	uint8_t heap;
	bool is_charged; /* to each of these gpus, out of its credit */
};

enum { TABLE_PARTS = 32 };

struct table {
	struct table_part {
		pthread_mutex_t lock;
		struct allocation *slots; /* handle 0: free slot */
		uint32_t n_slots, n_used; /* n_slots is 0 or a power of two */
	} __attribute__((__aligned__(64))) parts[TABLE_PARTS];
};

void table_init(struct table *table);
/* Free the table after calling @drop for each remaining allocation. */
void table_deinit(struct table *table, void (*drop)(const struct allocation *, void *),
		  void *context);

/* Add an allocation, whose handle must be new. Return: 0 or -ENOMEM. */
int table_add(struct table *table, const struct allocation *allocation);
/* Remove or find an allocation. Return: false if the handle is unknown. */
bool table_remove(struct table *table, uint64_t handle, struct allocation *ret);
bool table_find(struct table *table, uint64_t handle, struct allocation *ret);
/*
 * Set the allocation's object, which is charged from now on instead. Return: false if the handle is
 * unknown.
 */
bool table_set_object(struct table *table, uint64_t handle, struct object *object);
