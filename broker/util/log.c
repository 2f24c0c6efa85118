/* SPDX-License-Identifier: MIT */
/* Log lines: formatted into a bounded buffer, cleaned, written with one write(2). */
#include "util/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic int log_level_ = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_level_, level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
	return atomic_load_explicit(&log_level_, memory_order_relaxed);
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[1024];
	size_t n = 0;
	va_list args;
	int written;

	if (level > log_get_level())
		return;

	if (!isatty(STDERR_FILENO))
		n = snprintf(line, sizeof(line), "<%d>", level);
	n += snprintf(line + n, sizeof(line) - n, "brokerd: ");

	va_start(args, format);
	written = vsnprintf(line + n, sizeof(line) - n - 1, format, args);
	va_end(args);
	if (written < 0)
		return;

	for (char *c = line + n; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	n = strlen(line);
	line[n++] = '\n';

	/* A full or closed standard error must not stop the daemon: the line is lost. */
	if (write(STDERR_FILENO, line, n) < 0)
		return;
}
