#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the layer says
 *
 * It is a guest in somebody else's program: without RINGBROKER_LEASE_LOG nothing but why there is
 * no device is ever written, to standard error. Any thread; no system call but the write.
 */

/* Opens the log, "-" for standard error; NULL closes it. */
void say_open(const char *path);

/* A line of the log, if there is one. */
void say(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));

/* Likewise, but no more than some ten in a second: what a program may do a million times. */
void say_rarely(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));

/* A line on standard error; and of the log, if that is elsewhere. */
void say_error(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
