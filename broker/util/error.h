#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Errors, in two tracks
 *
 * Functions that can fail return int. Zero is success. A negative errno is a failure of ours: it is
 * passed up unchanged and never matched on. A positive MODULE_E_* is a documented outcome that the
 * direct caller consumes; a client can only cause positive ones. error_origin() marks the origin of
 * a failure and error_fold() each hop, so that the log holds a short back-trace.
 */

/*
 * Log "origin" with function and line at debug level.
 * Return: @error, which must be negative.
 */
#define error_origin(error) error_trace_((error), __FILE__, __LINE__, __func__, 1)

/* Log a hop; an unconsumed positive outcome becomes -ENOTRECOVERABLE. */
#define error_fold(error) error_trace_((error), __FILE__, __LINE__, __func__, 0)

int error_trace_(int error, const char *file, int line, const char *function, int is_origin);
