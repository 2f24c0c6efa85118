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
 * Makes room for @n more and touches it, so that samples_add() meets no page fault.
 * Return: 0; -ENOMEM.
 */
int samples_reserve(struct samples *samples, size_t n);

/* Forgets the values, keeps the room. */
void samples_clear(struct samples *samples);

/* There must be room. */
static inline void samples_add(struct samples *samples, double value)
{
	samples->values[samples->n++] = value;
}

/* How many more samples_add() may add. */
static inline size_t samples_room(const struct samples *samples)
{
	return samples->n_max - samples->n;
}

/*
 * The value that @percent of the samples do not exceed (nearest rank). Sorts the values. There
 * must be one at least.
 */
double samples_percentile(struct samples *samples, double percent);
