#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The allocations of a device, by their handles
 *
 * Any thread may call these at any time; what belongs to one handle is, as Vulkan has it, for one
 * thread at a time to change. A lock is held for some tens of instructions, never for longer than
 * it takes to move a part of the table to a larger place.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct object;

struct allocation {
	uint64_t handle;       /* never 0 */
	uint64_t bytes;        /* whole pages */
	struct object *object; /* of several owners; else NULL */
	uint32_t gpus;         /* bits: of the device's, which have an instance each */
	uint8_t heap;
	bool is_charged; /* to each of these, out of its credit */
};

enum { TABLE_PARTS = 32 };

struct table {
	struct table_part {
		pthread_mutex_t lock;
		struct allocation *slots; /* handle 0: free */
		uint32_t n_slots, n_used; /* the former 0 or a power of two */
	} __attribute__((__aligned__(64))) parts[TABLE_PARTS];
};

void table_init(struct table *table);
/* Calls @drop for each that is left. */
void table_deinit(struct table *table, void (*drop)(const struct allocation *, void *),
		  void *context);

/* A handle that it has not. Return: 0 or -ENOMEM. */
int table_add(struct table *table, const struct allocation *allocation);
/* Return: false: it has not. */
bool table_remove(struct table *table, uint64_t handle, struct allocation *ret);
bool table_find(struct table *table, uint64_t handle, struct allocation *ret);
/* Return: false, nothing changed: it has not. */
bool table_set_object(struct table *table, uint64_t handle, struct object *object);
