#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The folder of the administrators' socket, and its earlier path
 *
 * By default the socket is in a folder of its own (shm/admin-path.h), which a container that mounts
 * the clients' folder does not get. Programs of earlier builds look beside the clients' socket; a
 * symbolic link leads them out of that folder, and leads to nothing in such a container. The next
 * version has no link.
 *
 * Nothing here applies if --admin-socket names another path. A failure is not fatal: the broker
 * reports a socket that it cannot make, and a missing link stops older programs only. One thread.
 */
#include <stdbool.h>

struct options;

/*
 * Make the folder if it is missing. If it is this user's, permit entry to the administrators' group
 * and, if users are named, to every user; the socket's mode and the broker then decide. Permissions
 * that the folder has already stay, because other brokers may share it.
 * Return: false if another user owns the folder, or the path leads elsewhere; logs why. The broker
 * then has no administrators' socket, because that user could put an impostor in its place.
 */
bool admin_folder_make(const struct options *options);

/* Make the link at the earlier path. Call after the clients' socket belongs to this broker. */
void admin_link_make(const struct options *options);

/* Remove the link, if there is one. */
void admin_link_remove(const struct options *options);
