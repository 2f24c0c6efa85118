#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Nearest neighbours: the vote, and the exact reference
 */
#include <stddef.h>
#include <stdint.h>

#include "images.h"

enum { NEIGHBOURS_MAX = 16 };

/*
 * The class of an image whose neighbours are @nearest, the nearest first: that of most of them; of
 * classes with as many, the one with the nearest. Return: below IMAGE_CLASSES.
 */
unsigned int neighbours_vote(const int64_t *nearest, unsigned int n, const uint8_t *labels);

/*
 * The @n (at most NEIGHBOURS_MAX and @train->n) images of @train nearest to @image by squared
 * Euclidean distance, the nearest first, the lower index first at equal distance. In integers, so
 * without any rounding.
 */
void neighbours_find(const struct images *train, const uint8_t *image, unsigned int n,
		     int64_t *ret_nearest);

/*
 * A number for the neighbours of image @image, in their order. The sum over all images, in whatever
 * order, tells whether two runs found the same ones.
 */
uint64_t neighbours_fingerprint(size_t image, const int64_t *nearest, unsigned int n);
