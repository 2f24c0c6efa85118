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
struct options;

/*
 * Make the folder if it is missing. If it is this user's, permit entry to the administrators' group
 * and, if users are named, to every user; the socket's mode and the broker then decide.
 */
void admin_folder_make(const struct options *options);

/* Make the link at the earlier path. Call after the clients' socket belongs to this broker. */
void admin_link_make(const struct options *options);

/* Remove the link, if there is one. */
void admin_link_remove(const struct options *options);
