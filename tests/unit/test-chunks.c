/* SPDX-License-Identifier: MIT */
/* Memory in pieces of whole pages: see util/chunks.h. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "reference/reference.h"
#include "support/test.h"
#include "util/chunks.h"

/* Return: true if all bytes are zero. */
static bool is_zero(const uint8_t *bytes, size_t n)
{
	return n == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

/* Pieces of all sizes neither overlap nor contain bytes of earlier pieces. */
static void check_pieces(enum chunks_kind kind)
{
	enum { N = 64, ROUNDS = 4000, MOST_SHIFT = 25 };
	struct {
		uint8_t *at;
		size_t bytes, map_bytes;
		bool is_committed;
	} pieces[N] = {0};
	struct chunks chunks;
	uint64_t seed = 1;

	chunks_init(&chunks, kind);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		const unsigned int k = (unsigned int)(reference_random(&seed) % N);
		const unsigned int shift = (unsigned int)(reference_random(&seed) % MOST_SHIFT);

		if (!pieces[k].at) {
			pieces[k].bytes = 1 + reference_random(&seed) % (2ull << shift);
			pieces[k].at =
				chunks_reserve(&chunks, pieces[k].bytes, &pieces[k].map_bytes);
			assert_non_null(pieces[k].at);
			assert_int_equal(pieces[k].map_bytes, chunks_map_bytes(pieces[k].bytes));
			pieces[k].is_committed = false;
		} else if (!pieces[k].is_committed) {
			assert_int_equal(chunks_commit(&chunks, pieces[k].at, pieces[k].map_bytes),
					 0);
			assert_true(is_zero(pieces[k].at, 1));
			assert_true(is_zero(pieces[k].at + pieces[k].map_bytes - 4096, 4096));
			pieces[k].at[0] = pieces[k].at[pieces[k].map_bytes - 1] = (uint8_t)(k + 1);
			pieces[k].is_committed = true;
		} else {
			assert_int_equal(pieces[k].at[0], k + 1);
			assert_int_equal(pieces[k].at[pieces[k].map_bytes - 1], k + 1);
			while (chunks_unmap_some(&chunks, pieces[k].at, &pieces[k].map_bytes,
						 CHUNKS_UNMAP_BYTES))
				assert_int_equal(pieces[k].at[0], k + 1);
			pieces[k].at = NULL;
		}
	}
	for (unsigned int k = 0; k < N; k++)
		chunks_unmap(&chunks, pieces[k].at, pieces[k].map_bytes);
	chunks_deinit(&chunks);
}

TEST(test_chunks__pieces)
{
	check_pieces(CHUNKS_SMALL);
	check_pieces(CHUNKS_LARGE);
}

/* Return the resident bytes of the mapping that contains @address. */
static unsigned long resident_bytes(const void *address)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	unsigned long begin, end, kib = 0;
	bool is_there = false;
	char line[512];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			is_there = (uintptr_t)address >= begin && (uintptr_t)address < end;
		else if (is_there && sscanf(line, "Rss: %lu kB", &kib) == 1)
			break;
	}
	fclose(file);
	return kib << 10;
}

/* Small chunks use memory only for written pages, however large a piece is. */
TEST(test_chunks__small_pages)
{
	static const size_t sizes[] = {4096, 100000, 3 << 20, 40 << 20};
	struct chunks chunks;
	size_t map_bytes;
	uint8_t *at;

	chunks_init(&chunks, CHUNKS_SMALL);
	for (unsigned int i = 0; i < 4; i++) {
		at = chunks_map(&chunks, sizes[i], &map_bytes);
		assert_non_null(at);
		at[sizes[i] / 2] = 1;
		assert_in_range(resident_bytes(at + sizes[i] / 2), 4096, 8192);
		chunks_unmap(&chunks, at, map_bytes);
	}
	chunks_deinit(&chunks);
}
