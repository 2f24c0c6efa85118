#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Buffer objects: where they are, who has a handle, what leaves when memory is short
 *
 * All with the lock held. Errors are the kernel's, as negative errno: what the ioctl returns.
 */
#include "state.h"

struct sim_usage {
	uint64_t vram_bytes;
	uint64_t visible_bytes;
	uint64_t gtt_bytes;
};

/* What one client holds, as amdgpu_vm_get_memory() sums it up. */
struct sim_client_memory {
	uint64_t total_bytes[3];  /* by enum sim_place, whatever was asked for there */
	uint64_t placed_bytes[3]; /* by enum sim_place, whatever is there */
	uint64_t shared_bytes[3]; /* of those placed, what others hold too */
	uint64_t evicted_bytes;
	uint64_t requested_vram_bytes;
	uint64_t requested_gtt_bytes;
};

/* What is in use on the card, other-vram and other-gtt included. */
void sim_memory_usage(const struct sim_card *card, struct sim_usage *ret);
void sim_memory_of_client(const struct sim_card *card, uint32_t slot,
			  struct sim_client_memory *ret);

/*
 * Makes a zeroed object of @bytes (not 0) in one of @domains (AMDGPU_GEM_DOMAIN_*), evicting and
 * spilling as the kernel does. It has no handle yet.
 * Return: 0, -ENOMEM, or -errno of the file behind it.
 */
int sim_object_create(struct sim_card *card, uint64_t bytes, uint64_t alignment, uint64_t domains,
		      uint64_t flags, struct sim_object **ret);

/* An object of @kind that has no bytes of its own, placed at SIM_PLACE_CPU. Return: 0 or -ENOMEM.
 */
int sim_object_adopt(struct sim_card *card, enum sim_object_kind kind, uint64_t bytes,
		     struct sim_object **ret);

/* Frees an object that neither handle nor descriptor holds; else nothing. */
void sim_object_release(struct sim_card *card, struct sim_object *object);

/*
 * The object is used by a submission: it is the last to be evicted, imports and userptrs are bound,
 * and what was evicted comes back if there is room.
 */
void sim_object_use(struct sim_card *card, struct sim_object *object);

/* Frees exported objects whose last descriptor is gone. */
void sim_memory_reap(struct sim_card *card);

/* Evicts until what others use fits too: for other-vram growing. */
void sim_memory_squeeze(struct sim_card *card);

/* Evicts all of VRAM (suspend). */
void sim_memory_evict_all(struct sim_card *card);

/* Counts anew what is derived from the tables. */
void sim_memory_recount(struct sim_card *card);

/* Handles are numbered from 1. Return: 0, or -ENOMEM. */
int sim_handle_create(struct sim_card *card, uint32_t slot, struct sim_object *object,
		      uint32_t *ret_handle);
/* Return: the object, or NULL if @handle is not one of the client in @slot. */
struct sim_object *sim_handle_object(struct sim_card *card, uint32_t slot, uint32_t handle);
/* Return: the client's handle of @object, or 0. */
uint32_t sim_handle_find(const struct sim_card *card, uint32_t slot,
			 const struct sim_object *object);
/* Return: 0 or -EINVAL. */
int sim_handle_close(struct sim_card *card, uint32_t slot, uint32_t handle);
void sim_handle_close_all(struct sim_card *card, uint32_t slot);
