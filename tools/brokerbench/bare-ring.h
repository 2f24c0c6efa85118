#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Bare rings
 *
 * The floor under every figure: two pinned threads that bounce the ABI's two entry types through
 * the ABI's two areas with acquire and release and nothing else. No look at what an entry says, no
 * sleeping, no clock, no bell.
 */
#include <stdint.h>

#include "samples.h"

struct bare_ring;

/*
 * Maps rings of @n_entries (a power of two) and starts the other side's thread, pinned to
 * @peer_cpu, asleep. Return: 0; negative errno.
 */
int bare_ring_new(uint32_t n_entries, int peer_cpu, struct bare_ring **ret);

/* Ends the thread. Return: NULL. */
struct bare_ring *bare_ring_free(struct bare_ring *ring);

/* Rounds for bench_compare(); data is the ring. Nanoseconds per round trip of one entry: */
int bare_ring_round_trips(void *data, uint64_t budget_ns, struct samples *samples);

/* Millions of entries per second, with @batch entries per publication: */
struct bare_ring_batch {
	struct bare_ring *ring;
	uint32_t batch;
};
int bare_ring_throughput(void *data, uint64_t budget_ns, struct samples *samples);
