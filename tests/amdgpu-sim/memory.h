#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Buffer objects: placement, handles, and eviction when memory is short
 *
 * All functions need the lock held. Errors are the kernel's, as negative errno: the result of the
 * ioctl.
 */
#include "state.h"

struct sim_usage {
	uint64_t vram_bytes;
	uint64_t visible_bytes;
	uint64_t gtt_bytes;
};

/* Memory of one client, as amdgpu_vm_get_memory() sums it. */
struct sim_client_memory {
	uint64_t total_bytes[3];  /* bytes by enum sim_place, whatever their requested domain */
	uint64_t placed_bytes[3]; /* bytes by enum sim_place of their present place */
	uint64_t shared_bytes[3]; /* part of placed_bytes that other clients also hold */
	uint64_t evicted_bytes;
	uint64_t requested_vram_bytes;
	uint64_t requested_gtt_bytes;
};

/* Sum the memory in use on the card, other-vram and other-gtt included. */
void sim_memory_usage(const struct sim_card *card, struct sim_usage *ret);
void sim_memory_of_client(const struct sim_card *card, uint32_t slot,
			  struct sim_client_memory *ret);

/*
 * Make a zeroed object of @bytes (not 0) in one of @domains (AMDGPU_GEM_DOMAIN_*), evicting and
 * spilling as the kernel does. The object has no handle yet.
 * Return: 0, -ENOMEM, or a negative errno of the object's file.
 */
int sim_object_create(struct sim_card *card, uint64_t bytes, uint64_t alignment, uint64_t domains,
		      uint64_t flags, struct sim_object **ret);

/*
 * Make an object of @kind without bytes of its own, placed at SIM_PLACE_CPU.
 * Return: 0 or -ENOMEM.
 */
int sim_object_adopt(struct sim_card *card, enum sim_object_kind kind, uint64_t bytes,
		     struct sim_object **ret);

/* Free an object without handle and descriptor; leave any other object. */
void sim_object_release(struct sim_card *card, struct sim_object *object);

/*
 * Record that a submission uses the object: it becomes the last to be evicted, imports and userptrs
 * are bound, and an evicted object returns if there is room.
 */
void sim_object_use(struct sim_card *card, struct sim_object *object);

/* Free exported objects whose last descriptor is closed. */
void sim_memory_reap(struct sim_card *card);

/* Evict until the memory of the rest of the system fits too: for a growing other-vram. */
void sim_memory_squeeze(struct sim_card *card);

/* Evict all objects from VRAM (suspend). */
void sim_memory_evict_all(struct sim_card *card);

/* Recompute the figures that are derived from the tables. */
void sim_memory_recount(struct sim_card *card);

/*
 * Make a handle; handles are numbered from 1.
 * Return: 0, or -ENOMEM.
 */
int sim_handle_create(struct sim_card *card, uint32_t slot, struct sim_object *object,
		      uint32_t *ret_handle);
/* Return the object, or NULL if @handle is not a handle of the client in @slot. */
struct sim_object *sim_handle_object(struct sim_card *card, uint32_t slot, uint32_t handle);
/* Return the client's handle of @object, or 0. */
uint32_t sim_handle_find(const struct sim_card *card, uint32_t slot,
			 const struct sim_object *object);
/*
 * Close a handle.
 * Return: 0 or -EINVAL.
 */
int sim_handle_close(struct sim_card *card, uint32_t slot, uint32_t handle);
void sim_handle_close_all(struct sim_card *card, uint32_t slot);
