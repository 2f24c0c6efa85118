/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing saved times
 *
 * The input is what placer_save() writes. Whatever it is, a plan of a fingerprint in it gets
 * predictions that are finite and above 0, goes on learning, and can be saved again.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unit/placer-bench.h"

enum {
	AT_KEYS = 8,
	AT_FINGERPRINT = AT_KEYS + 8 * RBK_MAX_DEVICES,
	NOW_S = 1000000,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(struct placer_bench *bench, const uint64_t *keys)
{
	char *text = NULL;
	size_t n;
	FILE *stream;

	for (uint32_t count = 1; count < 1u << 24; count *= 7)
		for (uint8_t device = 0; device < 2; device++) {
			float ns =
				place_predict_ns(bench->placer, bench->place_plan, device, count);

			assert(isfinite(ns) && ns > 0);
			placer_bench_learn(bench, device, count, 1e6);
			ns = place_predict_ns(bench->placer, bench->place_plan, device, count);
			assert(isfinite(ns) && ns > 0);
		}
	stream = open_memstream(&text, &n);
	assert(stream);
	placer_save(bench->placer, keys, NOW_S, PLACER_SAVE_ALL, stream);
	assert(fclose(stream) == 0);
	assert(placer_restore(bench->placer, keys, NOW_S, text, n) == 0);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint64_t keys[RBK_MAX_DEVICES] = {1, 2};
	struct placer_bench bench;
	int r;

	placer_bench_init(&bench, 2, NULL);
	if (bytes >= AT_FINGERPRINT + sizeof(uint64_t)) {
		memcpy(keys, data + AT_KEYS, 2 * sizeof(*keys));
		memcpy(&bench.plan.fingerprint, data + AT_FINGERPRINT, sizeof(uint64_t));
	}
	r = placer_restore(bench.placer, keys, NOW_S, data, bytes);
	assert(r == 0 || r == PLACER_E_IMPOSSIBLE);
	placer_bench_renew(&bench);
	check(&bench, keys);
	placer_bench_deinit(&bench);
	return 0;
}
