/* SPDX-License-Identifier: MIT */
/* See metrics-gzip.h. */
#include "control/metrics-gzip.h"

#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

enum {
	LEVEL = 1,
	WINDOW_BITS = 15 + 16, /* 16: with gzip's header */
	MEMORY_LEVEL = 8,      /* 256 KiB with this window */
};

bool metrics_gzip(const char *data, size_t bytes, char **ret_data, size_t *ret_bytes)
{
	z_stream stream = {.next_in = (z_const Bytef *)data, .avail_in = (uInt)bytes};
	char *to = NULL, *smaller;
	size_t room;
	bool is_done = false;

	if (bytes > UINT_MAX / 2 || deflateInit2(&stream, LEVEL, Z_DEFLATED, WINDOW_BITS,
						 MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
		return false;
	/* Pages of this memory that the result does not reach are never touched. */
	room = deflateBound(&stream, bytes);
	to = malloc(room);
	if (to) {
		stream.next_out = (Bytef *)to;
		stream.avail_out = (uInt)room;
		is_done = deflate(&stream, Z_FINISH) == Z_STREAM_END;
	}
	deflateEnd(&stream);
	if (!is_done) {
		free(to);
		return false;
	}
	smaller = realloc(to, stream.total_out);
	*ret_data = smaller ? smaller : to;
	*ret_bytes = stream.total_out;
	return true;
}
