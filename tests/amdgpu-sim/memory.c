/* SPDX-License-Identifier: MIT */
/*
 * Buffer objects
 *
 * The simulator imitates the kernel's behaviour when VRAM is short:
 *
 * - A buffer for VRAM alone evicts the least recently used buffers of all clients to GTT (ttm_bo.c,
 * ttm_bo_mem_space() and ttm_mem_evict_first(); amdgpu_ttm.c, amdgpu_evict_flags()). If that frees
 * too little, the buffer itself is placed in GTT, without an error (amdgpu_gem.c,
 * amdgpu_gem_create_ioctl(): "initial_domain |= AMDGPU_GEM_DOMAIN_GTT").
 * - A buffer for VRAM or GTT, as Mesa's are, takes VRAM if there is room, else GTT, and evicts no
 * buffer.
 * - A buffer that a submission uses is to return to its preferred place (amdgpu_cs.c,
 * amdgpu_cs_bo_validate()). The kernel may evict other buffers for that too, within a budget of
 * bytes per second; the simulator returns the buffer only when there is room. A buffer for VRAM or
 * GTT returns only on newer kernels.
 * - Buffers that the CPU must reach lie in the visible part; all others are placed from the other
 * end (amdgpu_object.c, amdgpu_bo_placement_from_domain(): TTM_PL_FLAG_TOPDOWN).
 *
 * Memory of "the rest of the system" (other-vram) is pinned: only the control program releases it.
 *
 * The bytes of an object are a sparse file of its own. So they cost nothing until touched. The
 * file's descriptor can serve as a dma-buf, which any process can map with or without the
 * simulator. Unlinking the file releases the memory after the last mapping is gone, as in the
 * kernel.
 */
#include "memory.h"
#include "chips.h"
#include "sys.h"
#include "util/number.h"
#include <libdrm/drm.h>
#include <libdrm/amdgpu_drm.h>
#include <stdio.h>
#include <string.h>

#define DOMAINS_ON_CHIP (AMDGPU_GEM_DOMAIN_GDS | AMDGPU_GEM_DOMAIN_GWS | AMDGPU_GEM_DOMAIN_OA)

/* The rest of the system fills the invisible part first, as all memory without CPU access does. */
static uint64_t other_visible_bytes(const struct sim_card *card)
{
	uint64_t invisible = card->vram_bytes - card->visible_bytes;
	uint64_t used = card->vram_used_bytes - card->visible_used_bytes;

	return saturating_sub(card->other_vram_bytes, saturating_sub(invisible, used));
}

static uint64_t free_vram_bytes(const struct sim_card *card)
{
	return saturating_sub(card->vram_bytes, card->vram_used_bytes + card->other_vram_bytes);
}

static uint64_t free_visible_bytes(const struct sim_card *card)
{
	return saturating_sub(card->visible_bytes,
			      card->visible_used_bytes + other_visible_bytes(card));
}

static uint64_t free_gtt_bytes(const struct sim_card *card)
{
	return saturating_sub(card->gtt_bytes, card->gtt_used_bytes + card->other_gtt_bytes);
}

void sim_memory_usage(const struct sim_card *card, struct sim_usage *ret)
{
	ret->vram_bytes = min_u64(card->vram_used_bytes + card->other_vram_bytes, card->vram_bytes);
	ret->visible_bytes =
		min_u64(card->visible_used_bytes + other_visible_bytes(card), card->visible_bytes);
	ret->gtt_bytes = min_u64(card->gtt_used_bytes + card->other_gtt_bytes, card->gtt_bytes);
}

static bool must_be_visible(const struct sim_object *object)
{
	return object->flags & AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED;
}

/* Charge the object at its place. */
static void charge(struct sim_card *card, const struct sim_object *object)
{
	if (object->place == SIM_PLACE_VRAM) {
		card->vram_used_bytes += object->bytes;
		card->visible_used_bytes += object->visible_bytes;
	} else if (object->place == SIM_PLACE_GTT) {
		card->gtt_used_bytes += object->bytes;
	}
}

static void uncharge(struct sim_card *card, const struct sim_object *object)
{
	if (object->place == SIM_PLACE_VRAM) {
		card->vram_used_bytes -= object->bytes;
		card->visible_used_bytes -= object->visible_bytes;
	} else if (object->place == SIM_PLACE_GTT) {
		card->gtt_used_bytes -= object->bytes;
	}
}

static void place_in_vram(struct sim_card *card, struct sim_object *object)
{
	uint64_t invisible = saturating_sub(free_vram_bytes(card), free_visible_bytes(card));

	object->place = SIM_PLACE_VRAM;
	object->visible_bytes =
		must_be_visible(object) ? object->bytes : saturating_sub(object->bytes, invisible);
	charge(card, object);
}

static bool fits_in_vram(const struct sim_card *card, const struct sim_object *object)
{
	if (must_be_visible(object) && object->bytes > free_visible_bytes(card))
		return false;
	return object->bytes <= free_vram_bytes(card);
}

static void place_in_gtt_or_cpu(struct sim_card *card, struct sim_object *object)
{
	object->visible_bytes = 0;
	object->place = object->bytes <= free_gtt_bytes(card) ? SIM_PLACE_GTT : SIM_PLACE_CPU;
	charge(card, object);
}

static void evict(struct sim_card *card, struct sim_object *object)
{
	uncharge(card, object);
	place_in_gtt_or_cpu(card, object);
	/* amdgpu_object.c, amdgpu_bo_move_notify(); amdgpu_ttm.c, amdgpu_bo_move(). */
	card->n_evictions++;
	card->n_bytes_moved += object->bytes;
}

/* Return the object in VRAM that was used longest ago, other than @except, or NULL. */
static struct sim_object *least_recently_used(struct sim_card *card,
					      const struct sim_object *except, bool visible_only)
{
	struct sim_object *found = NULL;

	for (uint32_t i = 0; i < card->n_objects; i++) {
		struct sim_object *object = &card->objects[i];

		if (object->kind == SIM_OBJECT_NONE || object->place != SIM_PLACE_VRAM)
			continue;
		if (object == except || (visible_only && !object->visible_bytes))
			continue;
		if (!found || object->last_use < found->last_use)
			found = object;
	}
	return found;
}

/*
 * Evict other objects until @object fits into VRAM.
 * Return: true if it fits.
 */
static bool make_room(struct sim_card *card, const struct sim_object *object)
{
	/* Like ttm, do not evict every object in vain. */
	if (object->bytes > saturating_sub(card->vram_bytes, card->other_vram_bytes))
		return false;
	if (must_be_visible(object) && object->bytes > card->visible_bytes)
		return false;
	while (!fits_in_vram(card, object)) {
		bool visible_only = object->bytes <= free_vram_bytes(card);
		struct sim_object *victim = least_recently_used(card, object, visible_only);

		if (!victim)
			return false;
		evict(card, victim);
	}
	return true;
}

/* amdgpu_object.c, amdgpu_bo_validate_size(). */
static bool is_size_valid(const struct sim_card *card, uint64_t bytes, uint64_t domains)
{
	if (domains & AMDGPU_GEM_DOMAIN_GTT)
		return bytes < card->gtt_bytes;
	if (domains & AMDGPU_GEM_DOMAIN_VRAM)
		return bytes < card->vram_bytes;
	return true;
}

/* amdgpu_object.c, amdgpu_bo_create(), for these domains. Return: 0 or -ENOMEM. */
static int place(struct sim_card *card, struct sim_object *object, uint64_t domains)
{
	if (domains & DOMAINS_ON_CHIP) {
		object->place = SIM_PLACE_CHIP;
		return 0;
	}
	/*
	 * Unlike the kernel, a card can be set to fail when it is full. The two memories of an APU
	 * are one pool.
	 */
	if (!card->may_spill && domains & AMDGPU_GEM_DOMAIN_VRAM &&
	    !sim_chip_is_apu(&sim_chips[card->chip]))
		domains &= ~(uint64_t)AMDGPU_GEM_DOMAIN_GTT;
	if (!is_size_valid(card, object->bytes, domains))
		return -ENOMEM;
	if (domains & AMDGPU_GEM_DOMAIN_VRAM) {
		bool is_alone = !(domains & AMDGPU_GEM_DOMAIN_GTT);

		if (fits_in_vram(card, object) ||
		    (is_alone && card->may_spill && make_room(card, object))) {
			place_in_vram(card, object);
			return 0;
		}
	}
	if (domains & AMDGPU_GEM_DOMAIN_GTT && object->bytes <= free_gtt_bytes(card)) {
		place_in_gtt_or_cpu(card, object);
		return 0;
	}
	if (domains & AMDGPU_GEM_DOMAIN_CPU || !domains) {
		object->place = SIM_PLACE_CPU;
		return 0;
	}
	return -ENOMEM;
}

/* Place an object with the retries of amdgpu_gem.c, amdgpu_gem_create_ioctl(). */
static int place_with_retries(struct sim_card *card, struct sim_object *object, uint64_t domains)
{
	int r = place(card, object, domains);

	if (r && must_be_visible(object) && card->may_spill) {
		object->flags &= ~(uint64_t)AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED;
		r = place(card, object, domains);
	}
	if (r && domains == AMDGPU_GEM_DOMAIN_VRAM && card->may_spill) {
		domains |= AMDGPU_GEM_DOMAIN_GTT;
		r = place(card, object, domains);
	}
	object->preferred = domains;
	return r;
}

static int take_entry(struct sim_card *card, struct sim_object **ret)
{
	struct sim_object *object = NULL;

	for (uint32_t i = 0; i < card->n_objects && !object; i++) {
		if (card->objects[i].kind == SIM_OBJECT_NONE)
			object = &card->objects[i];
	}
	if (!object) {
		if (card->n_objects == SIM_MAX_OBJECTS)
			return -ENOMEM;
		object = &card->objects[card->n_objects++];
	}
	memset(object, 0, sizeof(*object));
	object->id = ++card->next_object_id;
	object->last_use = ++card->use_clock;
	*ret = object;
	return 0;
}

static int create_file(struct sim_card *card, struct sim_object *object)
{
	struct stat about;
	char name[64];
	int fd, r;

	sim_object_file_name(card, object->id, name);
	fd = sim_open_file(name, O_RDWR | O_CREAT | O_EXCL);
	if (fd < 0)
		return fd;
	r = fchmod(fd, 0666) || ftruncate(fd, (off_t)object->bytes) ? -errno : 0;
	if (!r)
		r = sys_fstat(fd, &about);
	if (!r)
		object->ino = about.st_ino;
	close(fd);
	return r;
}

static void remove_file(struct sim_card *card, const struct sim_object *object)
{
	char name[64], path[SIM_PATH_MAX + 64];

	sim_object_file_name(card, object->id, name);
	snprintf(path, sizeof(path), "%s/%s", sim.dir, name);
	unlink(path);
}

int sim_object_create(struct sim_card *card, uint64_t bytes, uint64_t alignment, uint64_t domains,
		      uint64_t flags, struct sim_object **ret)
{
	struct sim_object *object;
	int r;

	/* Exported objects without descriptors may fill the card. */
	sim_memory_reap(card);
	r = take_entry(card, &object);
	if (r)
		return r;
	object->bytes = (bytes + SIM_PAGE_BYTES - 1) & ~(uint64_t)(SIM_PAGE_BYTES - 1);
	object->alignment = alignment;
	object->flags = flags;

	r = place_with_retries(card, object, domains);
	if (r)
		return r;
	r = create_file(card, object);
	if (r) {
		uncharge(card, object);
		remove_file(card, object);
		return r;
	}
	/* Take the entry only here, so that it stays free on every failure above. */
	object->kind = SIM_OBJECT_MEMORY;
	*ret = object;
	return 0;
}

int sim_object_adopt(struct sim_card *card, enum sim_object_kind kind, uint64_t bytes,
		     struct sim_object **ret)
{
	struct sim_object *object;
	int r;

	r = take_entry(card, &object);
	if (r)
		return r;
	object->bytes = bytes;
	object->place = SIM_PLACE_CPU;
	object->preferred = AMDGPU_GEM_DOMAIN_GTT;
	object->kind = kind;
	*ret = object;
	return 0;
}

/*
 * Return true if a descriptor of the exported object exists anywhere: each holds a lock on the
 * object's file.
 */
static bool has_descriptors(struct sim_card *card, const struct sim_object *object)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SIM_LOCK_BASE, .l_len = 1};
	char name[64];
	int fd, r;

	if (!object->is_exported)
		return false;
	sim_object_file_name(card, object->id, name);
	fd = sim_open_file(name, O_RDWR);
	if (fd < 0)
		return false;
	r = fcntl(fd, F_OFD_GETLK, &lock);
	close(fd);
	return !r && lock.l_type != F_UNLCK;
}

static void free_object(struct sim_card *card, struct sim_object *object)
{
	uncharge(card, object);
	if (object->kind == SIM_OBJECT_MEMORY)
		remove_file(card, object);
	object->kind = SIM_OBJECT_NONE;
}

void sim_object_release(struct sim_card *card, struct sim_object *object)
{
	if (object->n_handles)
		return;
	if (has_descriptors(card, object))
		card->n_orphans++;
	else
		free_object(card, object);
}

void sim_memory_reap(struct sim_card *card)
{
	uint32_t n_left = card->n_orphans;

	for (uint32_t i = 0; i < card->n_objects && n_left; i++) {
		struct sim_object *object = &card->objects[i];

		if (object->kind == SIM_OBJECT_NONE || object->n_handles)
			continue;
		n_left--;
		if (!has_descriptors(card, object)) {
			free_object(card, object);
			card->n_orphans--;
		}
	}
}

/*
 * Return true if GTT is not the object's preferred place. A buffer for VRAM or GTT stays in GTT
 * until Linux 6.10 made GTT the fallback (amdgpu_object.c: TTM_PL_FLAG_FALLBACK).
 */
static bool wants_back(const struct sim_card *card, const struct sim_object *object)
{
	if (card->kernel == SIM_KERNEL_6_1)
		return object->preferred == AMDGPU_GEM_DOMAIN_VRAM;
	return object->preferred == AMDGPU_GEM_DOMAIN_VRAM ||
	       (object->preferred & AMDGPU_GEM_DOMAIN_VRAM &&
		!sim_chip_is_apu(&sim_chips[card->chip]));
}

void sim_object_use(struct sim_card *card, struct sim_object *object)
{
	object->last_use = ++card->use_clock;
	if (object->place == SIM_PLACE_CPU) {
		/*
		 * amdgpu_dma_buf.c and amdgpu_gem_userptr_ioctl() allow imports and userptrs in GTT
		 * alone.
		 */
		if (object->preferred & AMDGPU_GEM_DOMAIN_GTT ||
		    object->preferred & AMDGPU_GEM_DOMAIN_VRAM)
			place_in_gtt_or_cpu(card, object);
	}
	if (object->place == SIM_PLACE_GTT && wants_back(card, object) &&
	    fits_in_vram(card, object)) {
		uncharge(card, object);
		place_in_vram(card, object);
		card->n_bytes_moved += object->bytes;
	}
}

void sim_memory_squeeze(struct sim_card *card)
{
	while (card->vram_used_bytes + card->other_vram_bytes > card->vram_bytes ||
	       card->visible_used_bytes + other_visible_bytes(card) > card->visible_bytes) {
		bool visible_only =
			card->vram_used_bytes + card->other_vram_bytes <= card->vram_bytes;
		struct sim_object *victim = least_recently_used(card, NULL, visible_only);

		if (!victim)
			return;
		evict(card, victim);
	}
}

void sim_memory_evict_all(struct sim_card *card)
{
	struct sim_object *victim;

	while ((victim = least_recently_used(card, NULL, false)))
		evict(card, victim);
}

void sim_memory_recount(struct sim_card *card)
{
	for (uint32_t i = 0; i < card->n_objects; i++)
		card->objects[i].n_handles = 0;
	for (uint32_t i = 0; i < card->n_handles; i++) {
		if (card->handles[i].owner)
			card->objects[card->handles[i].object].n_handles++;
	}

	card->vram_used_bytes = 0;
	card->visible_used_bytes = 0;
	card->gtt_used_bytes = 0;
	card->n_orphans = 0;
	for (uint32_t i = 0; i < card->n_objects; i++) {
		struct sim_object *object = &card->objects[i];

		if (object->kind == SIM_OBJECT_NONE)
			continue;
		charge(card, object);
		/* The next reaping frees an object without handle and descriptor. */
		if (!object->n_handles)
			card->n_orphans++;
	}
}

int sim_handle_create(struct sim_card *card, uint32_t slot, struct sim_object *object,
		      uint32_t *ret_handle)
{
	uint32_t at;

	for (at = 0; at < card->n_handles && card->handles[at].owner; at++)
		;
	if (at == SIM_MAX_HANDLES)
		return -ENOMEM;
	if (at == card->n_handles)
		card->n_handles++;
	card->handles[at] = (struct sim_handle){.owner = slot + 1,
						.object = (uint32_t)(object - card->objects)};
	/* Imported again after its last handle was closed, the object is no longer an orphan. */
	if (!object->n_handles++ && object->is_exported)
		card->n_orphans--;
	*ret_handle = at + 1;
	return 0;
}

struct sim_object *sim_handle_object(struct sim_card *card, uint32_t slot, uint32_t handle)
{
	if (!handle || handle > card->n_handles || card->handles[handle - 1].owner != slot + 1)
		return NULL;
	return &card->objects[card->handles[handle - 1].object];
}

uint32_t sim_handle_find(const struct sim_card *card, uint32_t slot,
			 const struct sim_object *object)
{
	for (uint32_t i = 0; i < card->n_handles; i++) {
		const struct sim_handle *handle = &card->handles[i];

		if (handle->owner == slot + 1 && &card->objects[handle->object] == object)
			return i + 1;
	}
	return 0;
}

int sim_handle_close(struct sim_card *card, uint32_t slot, uint32_t handle)
{
	struct sim_object *object = sim_handle_object(card, slot, handle);

	if (!object)
		return -EINVAL;
	card->handles[handle - 1].owner = 0;
	object->n_handles--;
	sim_object_release(card, object);
	return 0;
}

void sim_handle_close_all(struct sim_card *card, uint32_t slot)
{
	for (uint32_t i = 0; i < card->n_handles; i++) {
		if (card->handles[i].owner == slot + 1)
			sim_handle_close(card, slot, i + 1);
	}
}

void sim_memory_of_client(const struct sim_card *card, uint32_t slot, struct sim_client_memory *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (uint32_t i = 0; i < card->n_handles; i++) {
		const struct sim_object *object = &card->objects[card->handles[i].object];
		enum sim_place wanted = SIM_PLACE_CPU;

		if (card->handles[i].owner != slot + 1 || object->place == SIM_PLACE_CHIP)
			continue;
		if (object->preferred & AMDGPU_GEM_DOMAIN_VRAM) {
			wanted = SIM_PLACE_VRAM;
			ret->requested_vram_bytes += object->bytes;
			if (object->place != SIM_PLACE_VRAM)
				ret->evicted_bytes += object->bytes;
		} else if (object->preferred & AMDGPU_GEM_DOMAIN_GTT) {
			wanted = SIM_PLACE_GTT;
			ret->requested_gtt_bytes += object->bytes;
		}
		ret->total_bytes[wanted] += object->bytes;
		ret->placed_bytes[object->place] += object->bytes;
		if (object->n_handles > 1 || object->is_exported ||
		    object->kind == SIM_OBJECT_IMPORT)
			ret->shared_bytes[object->place] += object->bytes;
	}
}
