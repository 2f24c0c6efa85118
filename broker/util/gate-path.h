#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Where the device gate of a broker is
 *
 * A folder beside the broker's socket, and named after it: gate for brokerd.sock, the name by
 * default, x.gate for x.sock and for x. There a file system of BPF's is mounted as long as there is
 * a gate, with what is pinned:
 *
 *	holders       the map of those who may pass, which the broker writes
 *	ID            the link that keeps the gate of the cgroup with that number closed
 *	ID-record     the map with that gate's record
 *
 * So a broker has at most one such folder, and two brokers have different ones.
 */
#include "shm/admin-path.h"

#define GATE_HOLDERS "holders"
#define GATE_RECORD  "-record"

/* Writes the path of the one of @socket_path. Return: 0; -ENAMETOOLONG: cut short. */
static inline int gate_path_of(const char *socket_path, char *ret, size_t bytes)
{
	return rbk_path_beside(socket_path, "gate", false, ret, bytes);
}
