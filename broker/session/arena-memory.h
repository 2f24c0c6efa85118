#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Arenas: clients' memfds, checked and mapped
 *
 * Whether a descriptor can be trusted as an arena is decided here, on receipt: it is a memfd, not
 * hugetlb, of exactly the announced size, sealed against shrinking and growing, with every page
 * allocated. Sealed against writing as well it is immutable. See design.md §3.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"

enum {
	ARENA_E_UNSUITABLE = 1, /* the client's doing; the message says what is wrong */
	ARENA_MESSAGE_BYTES = 256,
};

/* Bytes that a thread faults in or unmaps in one slice: a millisecond, as a rule. */
#define ARENA_STEP_BYTES (2ull << 20)

/*
 * Has @fd, a memfd, the size that was announced, with every page allocated, and no fewer seals than
 * an arena needs? Looks at the file alone, so the reactor may ask, too.
 * Return: 0; ARENA_E_UNSUITABLE; negative errno.
 */
int arena_check(int fd, uint64_t bytes, char message[ARENA_MESSAGE_BYTES]);

/*
 * Checks @fd and maps it into @ret (base, bytes, immutable, dev, ino, fd is -1; the rest is
 * zeroed); no page is faulted in.
 * @fd stays the caller's and may be closed afterwards.
 * Return: 0; ARENA_E_UNSUITABLE; negative errno (out of memory or mappings).
 */
int arena_map(int fd, uint64_t bytes, struct exec_arena *ret, char message[ARENA_MESSAGE_BYTES]);

/*
 * Faults in @bytes of a mapped arena from @offset on, as far as memory allows. Pages that a client
 * may take away (see arena_fix()) may be gone again at once, and faulting them in waits for whoever
 * punches holes there: a thread of closers.h.
 */
void arena_populate(const struct exec_arena *arena, uint64_t offset, uint64_t bytes);

/*
 * Sees to it that no page of a memfd can be taken away any more, which holds for the clients'
 * mappings, too. Some kernels wrap it no more for a device then. Waits for whoever writes to the
 * memfd, as long as that takes: a thread of closers.h. Return: can it?
 */
bool arena_fix(int fd);
/* Is every page of it there? */
bool arena_is_whole(int fd, uint64_t bytes);

/*
 * Unmaps ARENA_STEP_BYTES at the end of the arena, which is shorter then. Accepts what was never
 * mapped. Any thread. Return: true if nothing is left; false: call it again.
 */
bool arena_unmap(struct exec_arena *arena);
