#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Records of a device, indexed by handle
 *
 * Any thread may call these functions at any time; Vulkan requires that one thread at a time uses a
 * handle. A lock is held for some tens of instructions, or for the time to move a part of the table
 * to a larger array. A record is a struct whose first member is its handle, a uint64_t that is
 * never 0.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TABLE_PARTS = 32 };

struct table {
	size_t record_bytes;
	struct table_part {
		pthread_mutex_t lock;
		char *slots;              /* records; handle 0: free slot */
		uint32_t n_slots, n_used; /* n_slots is 0 or a power of two */
	} __attribute__((__aligned__(64))) parts[TABLE_PARTS];
};

void table_init(struct table *table, size_t record_bytes);
/* Free the table after calling @drop, if not NULL, for each remaining record. */
void table_deinit(struct table *table, void (*drop)(const void *record, void *context),
		  void *context);

/* Add a record, whose handle must be new. Return: 0 or -ENOMEM. */
int table_add(struct table *table, const void *record);
/* Remove or find a record. Return: false if the handle is unknown. */
bool table_remove(struct table *table, uint64_t handle, void *ret);
bool table_find(struct table *table, uint64_t handle, void *ret);
/* Replace the record of the same handle. Return: false if the handle is unknown. */
bool table_replace(struct table *table, const void *record);
