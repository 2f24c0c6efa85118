/* SPDX-License-Identifier: MIT */
/*
 * Records of a device, indexed by handle
 *
 * The table uses open addressing, in parts that have their own locks. Records lie in the table
 * itself, so an object of the program needs no allocation here. Removing a record moves up the
 * records behind it. There are no tombstones, so a table that is filled and emptied for days does
 * not get slower.
 */
#include "libclient/layer/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 16 };

/* Handles are addresses or small numbers: the upper bits of the product depend on all bits. */
static uint64_t mix(uint64_t handle)
{
	return handle * 0x9e3779b97f4a7c15ull;
}

static struct table_part *part_of(struct table *table, uint64_t handle)
{
	return &table->parts[mix(handle) >> 59];
}
_Static_assert(TABLE_PARTS == 1 << (64 - 59), "the upper bits");

static uint32_t home_of(const struct table_part *part, uint64_t handle)
{
	return (uint32_t)(mix(handle) >> 27) & (part->n_slots - 1);
}

/* Return slot @at. Its first member is the handle. */
static void *slot_of(const struct table *table, const struct table_part *part, uint32_t at)
{
	return part->slots + (size_t)at * table->record_bytes;
}

static uint64_t handle_at(const struct table *table, const struct table_part *part, uint32_t at)
{
	return *(const uint64_t *)slot_of(table, part, at);
}

void table_init(struct table *table, size_t record_bytes)
{
	memset(table, 0, sizeof(*table));
	table->record_bytes = record_bytes;
	for (unsigned int i = 0; i < TABLE_PARTS; i++)
		pthread_mutex_init(&table->parts[i].lock, NULL);
}

void table_deinit(struct table *table, void (*drop)(const void *record, void *context),
		  void *context)
{
	for (unsigned int i = 0; i < TABLE_PARTS; i++) {
		struct table_part *part = &table->parts[i];

		for (uint32_t j = 0; j < part->n_slots; j++)
			if (drop && handle_at(table, part, j))
				drop(slot_of(table, part, j), context);
		free(part->slots);
		pthread_mutex_destroy(&part->lock);
	}
}

/* Return the slot of @handle, or the free slot for it; one slot must be free. Under the lock. */
static uint32_t seek(const struct table *table, const struct table_part *part, uint64_t handle)
{
	uint32_t at = home_of(part, handle);
	uint64_t other;

	while ((other = handle_at(table, part, at)) != 0 && other != handle)
		at = (at + 1) & (part->n_slots - 1);
	return at;
}

/* Return the record of @handle, or NULL. Under the lock. */
static void *find(const struct table *table, const struct table_part *part, uint64_t handle)
{
	uint32_t at;

	if (part->n_slots == 0)
		return NULL;
	at = seek(table, part, handle);
	return handle_at(table, part, at) ? slot_of(table, part, at) : NULL;
}

static int grow(const struct table *table, struct table_part *part)
{
	struct table_part larger = {.n_slots = part->n_slots ? part->n_slots * 2 : FIRST_SLOTS};

	larger.slots = calloc(larger.n_slots, table->record_bytes);
	if (!larger.slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < part->n_slots; i++) {
		uint64_t handle = handle_at(table, part, i);

		if (handle)
			memcpy(slot_of(table, &larger, seek(table, &larger, handle)),
			       slot_of(table, part, i), table->record_bytes);
	}
	free(part->slots);
	part->slots = larger.slots;
	part->n_slots = larger.n_slots;
	return 0;
}

int table_add(struct table *table, const void *record)
{
	const uint64_t handle = *(const uint64_t *)record;
	struct table_part *part = part_of(table, handle);
	int r = 0;

	pthread_mutex_lock(&part->lock);
	if (part->n_used * 4 >= part->n_slots * 3)
		r = grow(table, part);
	if (!r) {
		memcpy(slot_of(table, part, seek(table, part, handle)), record,
		       table->record_bytes);
		part->n_used++;
	}
	pthread_mutex_unlock(&part->lock);
	return r;
}

/* Free a slot, and move displaced records behind it nearer to their home. */
static void take_out(const struct table *table, struct table_part *part, uint32_t hole)
{
	uint32_t mask = part->n_slots - 1;
	uint64_t handle;

	for (uint32_t at = (hole + 1) & mask; (handle = handle_at(table, part, at)) != 0;
	     at = (at + 1) & mask) {
		uint32_t home = home_of(part, handle);

		/* A record must not move before its home. */
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		memcpy(slot_of(table, part, hole), slot_of(table, part, at), table->record_bytes);
		hole = at;
	}
	memset(slot_of(table, part, hole), 0, table->record_bytes);
	part->n_used--;
}

bool table_remove(struct table *table, uint64_t handle, void *ret)
{
	struct table_part *part = part_of(table, handle);
	void *record;

	pthread_mutex_lock(&part->lock);
	record = find(table, part, handle);
	if (record) {
		memcpy(ret, record, table->record_bytes);
		take_out(table, part, seek(table, part, handle));
	}
	pthread_mutex_unlock(&part->lock);
	return record;
}

bool table_find(struct table *table, uint64_t handle, void *ret)
{
	struct table_part *part = part_of(table, handle);
	const void *record;

	pthread_mutex_lock(&part->lock);
	record = find(table, part, handle);
	if (record)
		memcpy(ret, record, table->record_bytes);
	pthread_mutex_unlock(&part->lock);
	return record;
}

bool table_replace(struct table *table, const void *record)
{
	const uint64_t handle = *(const uint64_t *)record;
	struct table_part *part = part_of(table, handle);
	void *old;

	pthread_mutex_lock(&part->lock);
	old = find(table, part, handle);
	if (old)
		memcpy(old, record, table->record_bytes);
	pthread_mutex_unlock(&part->lock);
	return old;
}
