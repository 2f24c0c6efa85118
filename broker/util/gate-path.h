#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Path of a broker's device gate
 *
 * The gate is a folder beside the broker's socket, named after it: gate for brokerd.sock, the
 * default name, x.gate for x.sock and for x. While there is a gate, a BPF file system is mounted on
 * the folder, with these pinned objects:
 *
 *	holders       the map of the processes that may pass, which the broker writes
 *	ID            the link that keeps the gate of the cgroup with that number closed
 *	ID-record     the map with that gate's record
 *
 * So a broker has at most one such folder, and two brokers have different folders.
 */
#include "shm/admin-path.h"

#define GATE_HOLDERS "holders"
#define GATE_RECORD  "-record"

/*
 * Write the path of the gate of @socket_path.
 * Return: 0; -ENAMETOOLONG: the path was cut.
 */
static inline int gate_path_of(const char *socket_path, char *ret, size_t bytes)
{
	return rbk_path_beside(socket_path, "gate", false, ret, bytes);
}
