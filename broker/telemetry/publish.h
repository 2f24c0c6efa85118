#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What one thread publishes and any may read
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "telemetry/telemetry.h"

/*
 * Any data of whole words: @words has room for two copies, 2 * @n_words. @sequence counts how many
 * were written.
 */

/* The one writing thread: the next. */
void publish_write_words(_Atomic uint32_t *sequence, _Atomic uint64_t *words, size_t n_words,
			 const void *data);
/* Any thread: the last one. Return: false if there was none yet. */
bool publish_read_words(const _Atomic uint32_t *sequence, const _Atomic uint64_t *words,
			size_t n_words, void *ret);

/* Samples of a device. */
enum { PUBLISH_WORDS = sizeof(struct device_reading) / sizeof(uint64_t) };
_Static_assert(sizeof(struct device_reading) % sizeof(uint64_t) == 0, "copied by words");

struct publish {
	_Atomic uint32_t sequence; /* how many were written */
	_Atomic uint64_t words[2][PUBLISH_WORDS];
};

/* The one writing thread: the next reading. Sets reading->n_samples. */
void publish_write(struct publish *publish, struct device_reading *reading);
/* Any thread: the last one. Return: false if there was none yet. */
bool publish_read(const struct publish *publish, struct device_reading *ret);
/* Any thread: how many there were. */
uint32_t publish_count(const struct publish *publish);
