/* SPDX-License-Identifier: MIT */
/*
 * Nearest neighbours in plain integers
 *
 * The computation deliberately differs from the plan's: it sums squared differences, while the plan
 * multiplies matrices. The two agree only if both are right. The largest distance, 784 times 255
 * squared, is 51 million and fits 32 bits.
 */
#include "neighbours.h"

static int32_t distance(const uint8_t *restrict a, const uint8_t *restrict b)
{
	int32_t sum = 0;

	for (size_t i = 0; i < IMAGE_PIXELS; i++) {
		const int32_t difference = (int32_t)a[i] - (int32_t)b[i];

		sum += difference * difference;
	}
	return sum;
}

unsigned int neighbours_vote(const int64_t *nearest, unsigned int n, const uint8_t *labels)
{
	unsigned int votes[IMAGE_CLASSES] = {0};
	unsigned int best = 0;

	for (unsigned int i = 0; i < n; i++)
		votes[labels[nearest[i]]]++;
	/* Count classes in the order of their nearest member: a later class needs more votes. */
	for (unsigned int i = 0; i < n; i++) {
		const unsigned int label = labels[nearest[i]];

		if (i == 0 || votes[label] > votes[best])
			best = label;
	}
	return best;
}

void neighbours_find(const struct images *train, const uint8_t *image, unsigned int n,
		     int64_t *ret_nearest)
{
	int32_t kept[NEIGHBOURS_MAX];
	unsigned int n_kept = 0;

	for (size_t i = 0; i < train->n; i++) {
		const int32_t d = distance(image, train->pixels + i * IMAGE_PIXELS);
		unsigned int at;

		if (n_kept == n && d >= kept[n - 1])
			continue;
		/* Drop the farthest one. At equal distance the earlier image stays in front. */
		at = n_kept < n ? n_kept++ : n - 1;
		for (; at > 0 && kept[at - 1] > d; at--) {
			kept[at] = kept[at - 1];
			ret_nearest[at] = ret_nearest[at - 1];
		}
		kept[at] = d;
		ret_nearest[at] = (int64_t)i;
	}
}

uint64_t neighbours_fingerprint(size_t image, const int64_t *nearest, unsigned int n)
{
	uint64_t hash = 0xcbf29ce484222325u ^ image;

	/* FNV-1a over words, with the high half folded in: detects mistakes, not intent. */
	for (unsigned int i = 0; i < n; i++) {
		hash = (hash ^ (uint64_t)nearest[i]) * 0x100000001b3u;
		hash ^= hash >> 32;
	}
	return hash;
}
