#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Arenas: clients' memfds, checked and mapped
 *
 * The functions decide, on receipt, whether a descriptor can be trusted as an arena. It must be a
 * memfd, not hugetlb, of exactly the announced size, sealed against shrinking and growing, with
 * every page allocated. An arena that is also sealed against writing is immutable.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"
#include "util/dma-buf.h"

enum {
	ARENA_E_UNSUITABLE = 1, /* the client's fault; the message says what is wrong */
	ARENA_MESSAGE_BYTES = 256,
};

/* Bytes that a thread faults in or unmaps in one slice, about a millisecond. */
#define ARENA_STEP_BYTES (2ull << 20)

/*
 * Check that @fd, a memfd, has the announced size, all pages allocated and the seals of an arena.
 * Examines only the file, so the reactor may call it, too.
 * Return: 0; ARENA_E_UNSUITABLE; a negative errno.
 */
int arena_check(int fd, uint64_t bytes, char message[ARENA_MESSAGE_BYTES]);

/*
 * Check @fd and map it into @ret (base, bytes, immutable, dev, ino; fd is -1; the rest is zeroed).
 * No page is faulted in. @fd stays the caller's and may be closed afterwards.
 * Return: 0; ARENA_E_UNSUITABLE; a negative errno (out of memory or mappings).
 */
int arena_map(int fd, uint64_t bytes, struct exec_arena *ret, char message[ARENA_MESSAGE_BYTES]);

/*
 * Check that @fd is a dma-buf that a device may have made as an arena of @bytes.
 * Return: 0, with its description; ARENA_E_UNSUITABLE.
 */
int arena_check_dma_buf(int fd, uint64_t bytes, struct dma_buf_about *ret,
			char message[ARENA_MESSAGE_BYTES]);

/*
 * Return true if the processor may access dma-bufs of @exporter without a device that exports them:
 * their pages are the machine's memory.
 */
bool arena_is_host_memory(const char *exporter);

/*
 * Map a dma-buf that was checked, as arena_map() does. Pages are faulted in when they are touched.
 */
int arena_map_dma_buf(int fd, uint64_t bytes, struct exec_arena *ret,
		      char message[ARENA_MESSAGE_BYTES]);

/*
 * Fault in @bytes of a mapped arena from @offset on, as far as memory allows. Pages that a client
 * may remove (see arena_fix()) may be gone again at once. Faulting them in waits for processes that
 * punch holes there. A closers.h thread.
 */
void arena_populate(const struct exec_arena *arena, uint64_t offset, uint64_t bytes);

/*
 * Seal a memfd so that no page can be removed any more, not even through the clients' mappings.
 * Some kernels no longer wrap such a memfd for a device. The seal waits, without limit, for
 * processes that write to the memfd. A closers.h thread.
 * Return: true if the seal was added.
 */
bool arena_fix(int fd);
/* Return true if every page is allocated. */
bool arena_is_whole(int fd, uint64_t bytes);

/*
 * Unmap ARENA_STEP_BYTES at the end of the arena, which shrinks. An arena that was never mapped is
 * accepted. Any thread.
 * Return: true if no mapping is left; false: call it again.
 */
bool arena_unmap(struct exec_arena *arena);
