#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Bare rings
 *
 * The floor under every figure: two pinned threads exchange the ABI's two entry types through the
 * ABI's two areas, with acquire and release operations. They do not interpret entries, sleep, read
 * clocks or ring doorbells.
 */
#include <stdint.h>

#include "samples.h"

struct bare_ring;

/*
 * Map rings of @n_entries (a power of two) and start the other side's thread, pinned to @peer_cpu
 * and asleep.
 * Return: 0; a negative errno.
 */
int bare_ring_new(uint32_t n_entries, int peer_cpu, struct bare_ring **ret);

/*
 * End the thread and free the rings.
 * Return: NULL.
 */
struct bare_ring *bare_ring_free(struct bare_ring *ring);

/*
 * Run a round for bench_compare(); data is the ring. Samples are nanoseconds per round trip of one
 * entry.
 */
int bare_ring_round_trips(void *data, uint64_t budget_ns, struct samples *samples);

/*
 * Data of a throughput round. Samples are millions of entries per second, with @batch entries per
 * publication.
 */
struct bare_ring_batch {
	struct bare_ring *ring;
	uint32_t batch;
};
int bare_ring_throughput(void *data, uint64_t budget_ns, struct samples *samples);
