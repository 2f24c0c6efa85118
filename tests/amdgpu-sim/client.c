/* SPDX-License-Identifier: MIT */
/*
 * Clients of a card
 *
 * A client begins with open(), and ends when the kernel reports that its lock has no holder; its
 * objects are then freed (drivers/gpu/drm/drm_file.c, drm_file_free(); amdgpu_kms.c,
 * amdgpu_driver_postclose_kms()). The simulator looks for dead clients before every query of used
 * memory and every allocation.
 */
#include "client.h"
#include "engine.h"
#include "memory.h"
#include "sys.h"
#include <string.h>

static struct flock lock_of(uint32_t slot)
{
	return (struct flock){.l_type = F_WRLCK,
			      .l_whence = SEEK_SET,
			      .l_start = SIM_LOCK_BASE + slot,
			      .l_len = 1};
}

static void forget(struct sim_card *card, uint32_t slot)
{
	sim_engine_forget(card, slot);
	sim_handle_close_all(card, slot);
	for (uint32_t i = 0; i < card->n_contexts; i++) {
		if (card->contexts[i].owner == slot + 1)
			card->contexts[i].owner = 0;
	}
	for (uint32_t i = 0; i < card->n_syncobjs; i++) {
		if (card->syncobjs[i].owner == slot + 1)
			card->syncobjs[i].owner = 0;
	}
	for (uint32_t i = 0; i < card->n_bo_lists; i++) {
		if (card->bo_lists[i].owner == slot + 1)
			card->bo_lists[i].owner = 0;
	}
	card->clients[slot].is_used = false;
}

void sim_client_reap(struct sim_card *card)
{
	char name[32];
	int fd;

	sim_card_file_name(card, name);
	fd = sim_open_file(name, O_RDWR);
	if (fd < 0)
		return;
	for (uint32_t slot = 0; slot < SIM_MAX_CLIENTS; slot++) {
		struct flock lock = lock_of(slot);

		if (!card->clients[slot].is_used)
			continue;
		if (!fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK)
			forget(card, slot);
	}
	close(fd);
	sim_memory_reap(card);
}

static int take_slot(struct sim_card *card, uint32_t node_minor, int fd)
{
	uint32_t slot;
	struct flock lock;

	sim_client_reap(card);
	for (slot = 0; slot < SIM_MAX_CLIENTS && card->clients[slot].is_used; slot++)
		;
	if (slot == SIM_MAX_CLIENTS)
		return -EMFILE;
	lock = lock_of(slot);
	if (fcntl(fd, F_OFD_SETLK, &lock) || lseek(fd, slot + 1, SEEK_SET) < 0)
		return -errno;
	card->clients[slot] = (struct sim_client){
		.is_used = true,
		.generation = card->generation,
		.node_minor = node_minor,
		.pid = getpid(),
		.client_id = ++card->next_client_id,
	};
	return 0;
}

int sim_client_open(struct sim_card *card, uint32_t node_minor, int flags)
{
	char name[32];
	int fd, r;

	sim_card_file_name(card, name);
	/* The caller's access mode is ignored: the lock needs read and write access. */
	fd = sim_open_file(name, O_RDWR | (flags & O_NONBLOCK));
	if (fd < 0)
		return fd;
	if (!(flags & O_CLOEXEC))
		fcntl(fd, F_SETFD, 0);

	sim_lock();
	r = card->is_plugged ? take_slot(card, node_minor, fd) : -ENODEV;
	sim_unlock();
	if (r) {
		close(fd);
		return r;
	}
	return fd;
}

struct sim_card *sim_card_of_inode(dev_t dev, ino_t ino)
{
	if (!sim.state || dev != sim.dev)
		return NULL;
	for (uint32_t i = 0; i < sim.state->n_cards; i++) {
		if (sim.state->cards[i].ino == ino)
			return &sim.state->cards[i];
	}
	return NULL;
}

bool sim_client_of_fd(int fd, struct sim_fd *ret)
{
	struct stat about;
	struct sim_card *card;
	off_t offset;

	if (!sim.state || sys_fstat(fd, &about))
		return false;
	card = sim_card_of_inode(about.st_dev, about.st_ino);
	if (!card)
		return false;
	offset = sys_lseek(fd, 0, SEEK_CUR);
	if (offset < 1 || offset > SIM_MAX_CLIENTS || !card->clients[offset - 1].is_used)
		return false;
	ret->card = card;
	ret->slot = (uint32_t)(offset - 1);
	return true;
}
