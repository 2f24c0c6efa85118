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
 * Vote on the class of an image with neighbours @nearest, the nearest first. The most frequent
 * class wins; among equally frequent classes, the class of the nearest neighbour.
 * Return: a class below IMAGE_CLASSES.
 */
unsigned int neighbours_vote(const int64_t *nearest, unsigned int n, const uint8_t *labels);

/*
 * Find the @n images of @train nearest to @image by squared Euclidean distance, the nearest first,
 * the lower index first at equal distance. @n is at most NEIGHBOURS_MAX and @train->n. Distances
 * are integers, without rounding.
 */
void neighbours_find(const struct images *train, const uint8_t *image, unsigned int n,
		     int64_t *ret_nearest);

/*
 * Return a hash of the ordered neighbours of image @image. Two runs found the same neighbours if
 * the sums over all images, in any order, are equal.
 */
uint64_t neighbours_fingerprint(size_t image, const int64_t *nearest, unsigned int n);
