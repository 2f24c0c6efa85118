#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Faults on arena pages
 *
 * A page of a client's memfd may be impossible to bring in (its cgroup is out of memory, say), and
 * the access that needs it raises SIGBUS in whichever thread made it. The handler looks the address
 * up in a table of arena mappings, puts a zero page over it so that the access goes on, and marks
 * the arena; the reactor then ends that session. A fault elsewhere is a defect of ours and is
 * fatal, as by default.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Installs the handler. Once, before any thread starts. Return: 0 or negative errno. */
int sigbus_init(void);

/*
 * Adds a mapping. Reactor thread. @flag is set by the handler and must live until the removal.
 * Return: 0; -ENOSPC where the table is full.
 */
int sigbus_add(void *base, size_t bytes, atomic_bool *flag, int *ret_slot);

/* Before the mapping is undone. Negative slots are ignored. Reactor or setup thread. */
void sigbus_remove(int slot);

/* Has a fault been handled since the last call? Reactor thread. */
bool sigbus_happened(void);
