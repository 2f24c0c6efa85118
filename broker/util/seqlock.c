/* SPDX-License-Identifier: MIT */
/*
 * A sequence lock of two copies
 *
 * With one copy, a reader would have to wait during a write, and the writer may be preempted in it;
 * the reader can be the reactor. So the writer fills the copy that the sequence does not point to
 * and then moves the sequence. A reader must retry only if a whole new sample was published during
 * the read and another was begun; the moved sequence shows that. Samples are milliseconds apart, so
 * retries are very rare.
 *
 * The words are relaxed atomics: reading a word while it is written is then defined, and the value
 * is discarded.
 */
#include "util/seqlock.h"

#include <string.h>

void seqlock_write(_Atomic uint32_t *sequence, _Atomic uint64_t *words, size_t n_words,
		   const void *data)
{
	uint32_t next = atomic_load_explicit(sequence, memory_order_relaxed) + 1;
	_Atomic uint64_t *copy = words + (next & 1) * n_words;
	uint64_t word;

	/*
	 * A reader that sees a word of this copy also sees the previous sequence: see
	 * seqlock_read().
	 */
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
