/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing fdinfo_parse()
 *
 * The input is the text. The result must not depend on the bytes after the text, and foreign lines
 * appended to the text must not change it.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/fdinfo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool is_same(struct reading a, struct reading b)
{
	return a.is_valid == b.is_valid && (!a.is_valid || a.value == b.value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const char more[] = "\nother-memory-vram:\t7 KiB\nno colon\ndrm-memory-vram:\t1";
	struct fdinfo info, again;
	char *text;
	int r;

	if (bytes > FDINFO_MAX_BYTES)
		return 0;
	/*
	 * The allocation has exactly the text's size, so that a sanitizer detects an overrun of one
	 * byte.
	 */
	text = calloc(1, bytes ? bytes : 1);
	assert(text);
	if (bytes)
		memcpy(text, data, bytes);
	r = fdinfo_parse(text, bytes, &info);
	assert(r == 0 || r == FDINFO_E_NOT_DRM);
	free(text);
	if (bytes > 0 && data[bytes - 1] != '\n')
		return 0;

	text = malloc(bytes + sizeof(more));
	assert(text);
	if (bytes)
		memcpy(text, data, bytes);
	memcpy(text + bytes, more, sizeof(more));
	assert(fdinfo_parse(text, bytes + sizeof(more) - 1, &again) == r);
	free(text);
	if (r)
		return 0;
	assert(memchr(info.pdev, '\0', sizeof(info.pdev)));
	assert(strlen(info.pdev) >= 12);
	assert(strcmp(info.pdev, again.pdev) == 0 && info.client_id == again.client_id);
	assert(is_same(info.vram_bytes, again.vram_bytes));
	assert(is_same(info.gtt_bytes, again.gtt_bytes));
	assert(is_same(info.busy_ns, again.busy_ns));
	return 0;
}
