#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Clients: open file descriptions of a card, the kernel's struct drm_file
 *
 * A descriptor of a simulated card is one of the empty regular file DIR/cardN. Its file offset says
 * which client it is, so that dup(), fork() and SCM_RIGHTS share the client as they share a struct
 * drm_file; a lock on the open file description tells every process when the last duplicate is
 * gone, kill -9 or not.
 */
#include "state.h"

/* What a descriptor is. */
struct sim_fd {
	struct sim_card *card; /* NULL: not a card's */
	uint32_t slot;
};

/*
 * Opens a node of @card. Takes the lock itself.
 * Return: descriptor, -ENODEV if it is unplugged, -EMFILE if there are too many, or -errno.
 */
int sim_client_open(struct sim_card *card, uint32_t node_minor, int flags);

/* Return: is @fd a client of a card? @ret is set if so. Lock held or not. */
bool sim_client_of_fd(int fd, struct sim_fd *ret);

/* The card whose file has this device and inode, or NULL. */
struct sim_card *sim_card_of_inode(dev_t dev, ino_t ino);

/* Frees what dead clients held. Lock held. */
void sim_client_reap(struct sim_card *card);
