#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * SIGBUS: faults on pages of arenas and rings
 *
 * The kernel may fail to bring in a page of a client's memfd, for example when its cgroup is out of
 * memory. The access then raises SIGBUS in the accessing thread. The handler looks up the address
 * in a table of mappings, maps a zero page there so that the access continues, and marks the arena
 * or ring. The reactor then ends that session. A fault elsewhere is a defect of the broker and is
 * fatal, as by default.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Install the handler. Call it once, before any thread starts. Return: 0, or a negative errno. */
int sigbus_init(void);

/*
 * Add a mapping. The handler sets @flag, which must live until the removal. Reactor thread.
 * Return: 0; -ENOSPC: the table is full.
 */
int sigbus_add(void *base, size_t bytes, atomic_bool *flag, int *ret_slot);

/*
 * Remove a mapping from the table, before unmapping it. Negative slots are ignored. Reactor or
 * setup thread.
 */
void sigbus_remove(int slot);

/* Return true if a fault was handled since the last call. Reactor thread. */
bool sigbus_happened(void);
