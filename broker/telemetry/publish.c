/* SPDX-License-Identifier: MIT */
/*
 * A sequence lock of two copies
 *
 * With one copy, a reader would have to wait while the writer is half way, and the writer may have
 * been pre-empted there; the reader can be the reactor. So the writer fills the copy that nobody is
 * directed to and then moves the sequence. A reader is disturbed only if a whole new reading was
 * published meanwhile and another begun, which it sees by the sequence having moved; samples are
 * milliseconds apart, so it practically never has to repeat.
 *
 * The words are relaxed atomics: reading one while it is written is then defined, and thrown away.
 */
#include "telemetry/publish.h"

#include <string.h>

void publish_write(struct publish *publish, struct device_reading *reading)
{
	uint32_t sequence = atomic_load_explicit(&publish->sequence, memory_order_relaxed);
	uint64_t words[PUBLISH_WORDS];

	reading->n_samples = sequence + 1;
	memcpy(words, reading, sizeof(words));
	/* Who sees a word of this reading sees the sequence of the one before, too: see there. */
	atomic_thread_fence(memory_order_release);
	for (unsigned int i = 0; i < PUBLISH_WORDS; i++)
		atomic_store_explicit(&publish->words[(sequence + 1) & 1][i], words[i],
				      memory_order_relaxed);
	/* Pairs with the acquire load in publish_read(). */
	atomic_store_explicit(&publish->sequence, sequence + 1, memory_order_release);
}

bool publish_read(const struct publish *publish, struct device_reading *ret)
{
	uint64_t words[PUBLISH_WORDS];
	uint32_t sequence;

	do {
		sequence = atomic_load_explicit(&publish->sequence, memory_order_acquire);
		if (sequence == 0)
			return false;
		for (unsigned int i = 0; i < PUBLISH_WORDS; i++)
			words[i] = atomic_load_explicit(&publish->words[sequence & 1][i],
							memory_order_relaxed);
		/* Pairs with the release fence in publish_write(). */
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&publish->sequence, memory_order_relaxed) != sequence);
	memcpy(ret, words, sizeof(words));
	return true;
}

uint32_t publish_count(const struct publish *publish)
{
	return atomic_load_explicit(&publish->sequence, memory_order_acquire);
}
