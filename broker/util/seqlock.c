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
#include "util/seqlock.h"

#include <string.h>

void seqlock_write(_Atomic uint32_t *sequence, _Atomic uint64_t *words, size_t n_words,
		   const void *data)
{
	uint32_t next = atomic_load_explicit(sequence, memory_order_relaxed) + 1;
	_Atomic uint64_t *copy = words + (next & 1) * n_words;
	uint64_t word;

	/* Who sees a word of this copy sees the sequence of the one before, too: see there. */
	atomic_thread_fence(memory_order_release);
	for (size_t i = 0; i < n_words; i++) {
		memcpy(&word, (const char *)data + i * sizeof(word), sizeof(word));
		atomic_store_explicit(&copy[i], word, memory_order_relaxed);
	}
	/* Pairs with the acquire load in seqlock_read(). */
	atomic_store_explicit(sequence, next, memory_order_release);
}

bool seqlock_read(const _Atomic uint32_t *sequence, const _Atomic uint64_t *words, size_t n_words,
		  void *ret)
{
	const _Atomic uint64_t *copy;
	uint32_t now;
	uint64_t word;

	do {
		now = atomic_load_explicit(sequence, memory_order_acquire);
		if (now == 0)
			return false;
		copy = words + (now & 1) * n_words;
		for (size_t i = 0; i < n_words; i++) {
			word = atomic_load_explicit(&copy[i], memory_order_relaxed);
			memcpy((char *)ret + i * sizeof(word), &word, sizeof(word));
		}
		/* Pairs with the release fence in seqlock_write(). */
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(sequence, memory_order_relaxed) != now);
	return true;
}
