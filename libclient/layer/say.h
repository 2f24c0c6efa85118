#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Log of the layer
 *
 * The layer runs inside other programs. Without RINGBROKER_LEASE_LOG it writes only the reason why
 * there is no device, to standard error. Any thread; a line takes two system calls, getpid() and
 * write().
 */

/* Open the log, "-" for standard error; NULL closes it. */
void say_open(const char *path);

/* Write a line to the log, if there is one. */
void say(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));

/*
 * Write a line to the log, but at most some ten per second: for events that a program may cause in
 * large numbers.
 */
void say_rarely(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));

/* Write a line to standard error, and to the log if that is another file. */
void say_error(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
