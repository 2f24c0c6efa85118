#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * DIR/root: the parts of /dev and /sys that a simulated card has
 *
 * Ordinary files, folders and links. Values are written into the files when they change, so that
 * even a descriptor kept open reads fresh ones; how much memory is used is written when the file is
 * opened.
 */
#include "state.h"

/* "0000:e3:00.0" and so on. */
void sim_card_address(const struct sim_card *card, char address[16]);

/* Makes what all cards share. Return: 0 or -errno. */
int sim_sysroot_create(void);
/* Makes or removes a card's nodes and attributes: plugged, unplugged. Return: 0 or -errno. */
int sim_sysroot_plug(const struct sim_card *card);
void sim_sysroot_unplug(const struct sim_card *card);
/* Writes all values; attributes of absent sensors are removed. Lock held. */
void sim_sysroot_refresh(const struct sim_card *card);
/* Writes those that say how much memory is used. Lock held. */
void sim_sysroot_refresh_memory(const struct sim_card *card);

/*
 * Where @path is below DIR/root, into @ret.
 * Return: false if it is not one that the simulator answers for.
 */
bool sim_sysroot_map(const char *path, char ret[SIM_PATH_MAX]);
/* The same, the other way; @path itself if it is not below DIR/root. */
const char *sim_sysroot_unmap(const char *path);

/* The card whose attribute a path below DIR/root names, links resolved; NULL: none. */
struct sim_card *sim_sysroot_card_of(const char *path);

/* The card and minor of a path such as /dev/dri/renderD128; NULL: none. */
struct sim_card *sim_card_of_node(const char *path, uint32_t *ret_minor);
