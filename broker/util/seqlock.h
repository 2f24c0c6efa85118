#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Data that one thread publishes and any may read
 *
 * Data of whole words: @words has room for two copies, 2 * @n_words. @sequence counts how many were
 * written.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The one writing thread: the next. */
void seqlock_write(_Atomic uint32_t *sequence, _Atomic uint64_t *words, size_t n_words,
		   const void *data);
/* Any thread: the last one. Return: false if there was none yet. */
bool seqlock_read(const _Atomic uint32_t *sequence, const _Atomic uint64_t *words, size_t n_words,
		  void *ret);
