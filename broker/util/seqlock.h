#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Data that one thread publishes and any thread may read
 *
 * The data are whole words: @words has room for two copies, 2 * @n_words. @sequence counts
 * published copies.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Publish the next copy. The writing thread only. */
void seqlock_write(_Atomic uint32_t *sequence, _Atomic uint64_t *words, size_t n_words,
		   const void *data);
/*
 * Read the last copy. Any thread.
 * Return: false if none was published yet.
 */
bool seqlock_read(const _Atomic uint32_t *sequence, const _Atomic uint64_t *words, size_t n_words,
		  void *ret);
