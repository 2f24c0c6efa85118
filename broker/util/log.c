/* SPDX-License-Identifier: MIT */
/* Log lines: formatted into a bounded buffer, cleaned, written with one write(2). */
#include "util/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic int log_level_ = LOG_LEVEL_INFO;
static _Atomic unsigned int n_lost; /* lines, since the last that said so */

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_level_, level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
	return atomic_load_explicit(&log_level_, memory_order_relaxed);
}

/*
 * Whoever reads standard error may have stopped: a pipe that is full would stop us, too. One that
 * poll() calls writable takes a line of this length whole (PIPE_BUF).
 */
static bool stderr_is_writable(void)
{
	struct pollfd poll_fd = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLOUT);
}

static void write_line(enum log_level level, const char *format, va_list args)
{
	char line[1024];
	size_t n = 0;
	int written;

	if (!isatty(STDERR_FILENO))
		n = snprintf(line, sizeof(line), "<%d>", level);
	n += snprintf(line + n, sizeof(line) - n, "brokerd: ");
	written = vsnprintf(line + n, sizeof(line) - n - 1, format, args);
	if (written < 0)
		return;

	for (char *c = line + n; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	n = strlen(line);
	line[n++] = '\n';
	if (!stderr_is_writable() || write(STDERR_FILENO, line, n) < 0)
		atomic_fetch_add_explicit(&n_lost, 1, memory_order_relaxed);
}

static void write_formatted(enum log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(level, format, args);
	va_end(args);
}

bool log_limit_pass(struct log_limit *limit, uint64_t now_ns, uint64_t *ret_n_unlogged)
{
	const uint64_t period_ns = 1000000000;

	if (limit->logged_ns && now_ns - limit->logged_ns < period_ns) {
		limit->n_unlogged++;
		return false;
	}
	*ret_n_unlogged = limit->n_unlogged;
	limit->n_unlogged = 0;
	limit->logged_ns = now_ns;
	return true;
}

void log_line(enum log_level level, const char *format, ...)
{
	unsigned int lost;
	va_list args;

	if (level > log_get_level())
		return;
	if (atomic_load_explicit(&n_lost, memory_order_relaxed) > 0 && stderr_is_writable()) {
		lost = atomic_exchange_explicit(&n_lost, 0, memory_order_relaxed);
		write_formatted(LOG_LEVEL_WARNING, "%u log lines were lost", lost);
	}
	va_start(args, format);
	write_line(level, format, args);
	va_end(args);
}
