/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing shader_whole_axes() and shader_rewrite()
 *
 * The input is a module's words, which may break all rules, as by an id that is defined twice. The
 * instructions of a rewritten one must have valid lengths.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/shader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const size_t n_words = bytes / sizeof(uint32_t);
	uint32_t *words = malloc(n_words ? n_words * sizeof(*words) : 1), *rewritten;
	size_t n_rewritten;

	assert(words);
	memcpy(words, data, n_words * sizeof(*words));
	assert(shader_whole_axes(words, n_words) <= SHADER_ALL_AXES);
	rewritten = shader_rewrite(words, n_words, 64, &n_rewritten);
	assert(shader_can_rewrite(words, n_words) || !rewritten);
	if (rewritten) {
		for (size_t at = 5; at < n_rewritten; at += rewritten[at] >> 16)
			assert(rewritten[at] >> 16 > 0 && rewritten[at] >> 16 <= n_rewritten - at);
	}
	free(rewritten);
	free(words);
	return 0;
}
