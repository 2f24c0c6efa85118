#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * DIR/root: the parts of /dev and /sys of a simulated card
 *
 * The tree consists of ordinary files, folders and links. Values are written into the files when
 * they change, so that even a descriptor kept open reads the new values. Used memory is written
 * when its file is opened.
 */
#include "state.h"

/* Write the PCI address, such as "0000:e3:00.0". */
void sim_card_address(const struct sim_card *card, char address[16]);

/*
 * Make the files that all cards share.
 * Return: 0 or a negative errno.
 */
int sim_sysroot_create(void);
/*
 * Make or remove a card's nodes and attributes when it is plugged in or unplugged.
 * Return: 0 or a negative errno.
 */
int sim_sysroot_plug(const struct sim_card *card);
void sim_sysroot_unplug(const struct sim_card *card);
/* Write all values; remove the attributes of absent sensors. Lock held. */
void sim_sysroot_refresh(const struct sim_card *card);
/* Write the values of used memory. Lock held. */
void sim_sysroot_refresh_memory(const struct sim_card *card);

/*
 * Map @path to its place below DIR/root.
 * Return: false if the simulator does not answer for @path.
 */
bool sim_sysroot_map(const char *path, char ret[SIM_PATH_MAX]);
/* Map a path below DIR/root back; return @path itself for any other path. */
const char *sim_sysroot_unmap(const char *path);

/* Return the card whose attribute a path below DIR/root names, links resolved, or NULL. */
struct sim_card *sim_sysroot_card_of(const char *path);

/* Return the card and minor of a path such as /dev/dri/renderD128, or NULL. */
struct sim_card *sim_card_of_node(const char *path, uint32_t *ret_minor);
