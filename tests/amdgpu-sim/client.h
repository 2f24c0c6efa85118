#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Clients: open file descriptions of a card, the kernel's struct drm_file
 *
 * A descriptor of a simulated card refers to the empty regular file DIR/cardN. Its file offset
 * identifies the client, so that dup(), fork() and SCM_RIGHTS share the client as they share a
 * struct drm_file. A lock on the open file description tells every process when the last duplicate
 * is closed, even by kill -9.
 */
#include "state.h"

/* The client that a descriptor refers to. */
struct sim_fd {
	struct sim_card *card; /* NULL: not a descriptor of a card */
	uint32_t slot;
};

/*
 * Open a node of @card. Takes the lock itself.
 * Return: descriptor; -ENODEV if the card is unplugged; -EMFILE if it has too many clients; or
 * another negative errno.
 */
int sim_client_open(struct sim_card *card, uint32_t node_minor, int flags);

/* Return true if @fd is a client of a card; then set @ret. The lock may be held. */
bool sim_client_of_fd(int fd, struct sim_fd *ret);

/* Return the card whose file has this device and inode, or NULL. */
struct sim_card *sim_card_of_inode(dev_t dev, ino_t ino);

/* Free the objects of dead clients. Lock held. */
void sim_client_reap(struct sim_card *card);
