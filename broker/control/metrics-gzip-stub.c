/* SPDX-License-Identifier: MIT */
/* Stub for builds without zlib: texts are sent as they are. */
#include "control/metrics-gzip.h"

bool metrics_gzip(const char *data, size_t bytes, char **ret_data, size_t *ret_bytes)
{
	return false;
}
