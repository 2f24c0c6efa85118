/* SPDX-License-Identifier: MIT */
/*
 * Suggestions for mistyped names
 *
 * The distance is that of optimal string alignment: inserted, omitted, replaced letters, and
 * swapped neighbours. At most a third of the word may be wrong: beyond that a guess annoys more
 * than it helps.
 */
#include "util/suggest.h"

#include <string.h>

#include "util/number.h"

enum { NAME_MAX_BYTES = 40 };

/* Return the distance; both words are shorter than NAME_MAX_BYTES. */
static unsigned int distance(const char *a, const char *b)
{
	const unsigned int n = (unsigned int)strlen(a), m = (unsigned int)strlen(b);
	/* The current row and the two before it. */
	unsigned int rows[3][NAME_MAX_BYTES + 1];

	for (unsigned int i = 0; i <= n; i++) {
		unsigned int *row = rows[i % 3], *above = rows[(i + 2) % 3];

		row[0] = i;
		for (unsigned int k = 1; k <= m; k++) {
			if (i == 0) {
				row[k] = k;
				continue;
			}
			row[k] = min_u32(min_u32(above[k], row[k - 1]) + 1,
					 above[k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				row[k] = min_u32(row[k], rows[(i + 1) % 3][k - 2] + 1);
		}
	}
	return rows[n % 3][m];
}

const char *suggest(const char *word, const char *const *names)
{
	const size_t n = strlen(word);
	unsigned int best = (unsigned int)(n < 3 ? 1 : (n + 2) / 3) + 1, n_begin = 0;
	const char *nearest = NULL, *begins = NULL;

	if (n == 0 || n >= NAME_MAX_BYTES)
		return NULL;
	for (; *names; names++) {
		unsigned int d;

		if (strlen(*names) >= NAME_MAX_BYTES)
			continue;
		if (strncmp(*names, word, n) == 0) {
			begins = *names;
			n_begin++;
		}
		d = distance(word, *names);
		if (d < best && d < strlen(*names)) {
			best = d;
			nearest = *names;
		}
	}
	return n_begin == 1 ? begins : nearest;
}
