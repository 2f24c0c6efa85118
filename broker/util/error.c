/* SPDX-License-Identifier: MIT */
/* Back-traces of failures: one debug line per hop, without stored state. */
#include "util/error.h"

#include <errno.h>
#include <string.h>

#include "util/log.h"

int error_trace_(int error, const char *file, int line, const char *function, int is_origin)
{
	if (error == 0)
		return 0;

	log_debug(LOG_DETAIL, "%s: %s (%d) in %s() at %s:%d", is_origin ? "origin" : "  from",
		  error < 0 ? strerror(-error) : "unconsumed outcome", error, function, file, line);
	return error < 0 ? error : -ENOTRECOVERABLE;
}
