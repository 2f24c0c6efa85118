#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Samples and their percentiles
 */
#include <stddef.h>

struct samples {
	double *values;
	size_t n;
	size_t n_max;
};

#define SAMPLES_INIT \
	{            \
		0    \
	}

void samples_deinit(struct samples *samples);

/*
 * Reserve room for @n more samples and touch it, so that samples_add() causes no page fault.
 * Return: 0; -ENOMEM.
 */
int samples_reserve(struct samples *samples, size_t n);

/* Drop the values and keep the room. */
void samples_clear(struct samples *samples);

/* Add a value. There must be room. */
static inline void samples_add(struct samples *samples, double value)
{
	samples->values[samples->n++] = value;
}

/* Return how many more values samples_add() may add. */
static inline size_t samples_room(const struct samples *samples)
{
	return samples->n_max - samples->n;
}

/*
 * Return the value that @percent of the samples do not exceed (nearest rank). Sorts the values, of
 * which there must be at least one.
 */
double samples_percentile(struct samples *samples, double percent);
