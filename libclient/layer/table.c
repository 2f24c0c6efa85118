/* SPDX-License-Identifier: MIT */
/*
 * Allocations of a device, indexed by handle
 *
 * The table uses open addressing, in parts that have their own locks. Entries lie in the table
 * itself, so an allocation of the program needs no allocation here. Removing an entry moves up the
 * entries behind it. There are no tombstones, so a table that is filled and emptied for days does
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

void table_init(struct table *table)
{
	memset(table, 0, sizeof(*table));
	for (unsigned int i = 0; i < TABLE_PARTS; i++)
		pthread_mutex_init(&table->parts[i].lock, NULL);
}

void table_deinit(struct table *table, void (*drop)(const struct allocation *, void *),
		  void *context)
{
	for (unsigned int i = 0; i < TABLE_PARTS; i++) {
		struct table_part *part = &table->parts[i];

		for (uint32_t j = 0; j < part->n_slots; j++)
			if (part->slots[j].handle)
				drop(&part->slots[j], context);
		free(part->slots);
		pthread_mutex_destroy(&part->lock);
	}
}

/* Return the slot of @handle, or the free slot for it; one slot must be free. Under the lock. */
static uint32_t seek(const struct table_part *part, uint64_t handle)
{
	uint32_t at = home_of(part, handle);

	while (part->slots[at].handle && part->slots[at].handle != handle)
		at = (at + 1) & (part->n_slots - 1);
	return at;
}

static struct allocation *find(const struct table_part *part, uint64_t handle)
{
	struct allocation *slot;

	if (part->n_slots == 0)
		return NULL;
	slot = &part->slots[seek(part, handle)];
	return slot->handle ? slot : NULL;
}

static int grow(struct table_part *part)
{
	struct table_part larger = {.n_slots = part->n_slots ? part->n_slots * 2 : FIRST_SLOTS};

	larger.slots = calloc(larger.n_slots, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < part->n_slots; i++)
		if (part->slots[i].handle)
			larger.slots[seek(&larger, part->slots[i].handle)] = part->slots[i];
	free(part->slots);
	part->slots = larger.slots;
	part->n_slots = larger.n_slots;
	return 0;
}

int table_add(struct table *table, const struct allocation *allocation)
{
	struct table_part *part = part_of(table, allocation->handle);
	int r = 0;

	pthread_mutex_lock(&part->lock);
	if (part->n_used * 4 >= part->n_slots * 3)
		r = grow(part);
	if (!r) {
		part->slots[seek(part, allocation->handle)] = *allocation;
		part->n_used++;
	}
	pthread_mutex_unlock(&part->lock);
	return r;
}

/* Free a slot, and move displaced entries behind it nearer to their home. */
static void take_out(struct table_part *part, uint32_t hole)
{
	uint32_t mask = part->n_slots - 1;

	for (uint32_t at = (hole + 1) & mask; part->slots[at].handle; at = (at + 1) & mask) {
		uint32_t home = home_of(part, part->slots[at].handle);

		/* An entry must not move before its home. */
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		part->slots[hole] = part->slots[at];
		hole = at;
	}
	part->slots[hole].handle = 0;
	part->n_used--;
}

bool table_remove(struct table *table, uint64_t handle, struct allocation *ret)
{
	struct table_part *part = part_of(table, handle);
	struct allocation *slot;

	pthread_mutex_lock(&part->lock);
	slot = find(part, handle);
	if (slot) {
		*ret = *slot;
		take_out(part, (uint32_t)(slot - part->slots));
	}
	pthread_mutex_unlock(&part->lock);
	return slot;
}

bool table_find(struct table *table, uint64_t handle, struct allocation *ret)
{
	struct table_part *part = part_of(table, handle);
	struct allocation *slot;

	pthread_mutex_lock(&part->lock);
	slot = find(part, handle);
	if (slot)
		*ret = *slot;
	pthread_mutex_unlock(&part->lock);
	return slot;
}

bool table_set_object(struct table *table, uint64_t handle, struct object *object)
{
	struct table_part *part = part_of(table, handle);
	struct allocation *slot;

	pthread_mutex_lock(&part->lock);
	slot = find(part, handle);
	if (slot) {
		slot->object = object;
		slot->is_charged = false; /* the object is charged */
	}
	pthread_mutex_unlock(&part->lock);
	return slot;
}
