#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Log lines
 *
 * One line per event to standard error, prefixed with the level in the form that the journal
 * understands ("<3>") when standard error is not a terminal. Whoever stops an error logs it, once;
 * library-like rooms log at debug level only; the hot path never logs. Any thread may call. A line
 * that standard error cannot take at once is lost and counted; the next one that it takes says so.
 * Control characters in the formatted text are replaced: it may hold names that a client chose.
 */
#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR = 3, /* the numbers are those of syslog */
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

/* Lines above @level are dropped. The default is LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * For lines that clients can cause as often as they like: of one place, or one reason, one a
 * second. Zeroed at first; of one thread.
 */
struct log_limit {
	uint64_t logged_ns;
	uint64_t n_unlogged; /* since then */
};

/*
 * May the line be written now, at @now_ns (clock_now_ns())? Counts it as unlogged if not.
 * Return: true, and *ret_n_unlogged lines before it were not.
 */
bool log_limit_pass(struct log_limit *limit, uint64_t now_ns, uint64_t *ret_n_unlogged);

#define log_error(...)   log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                          \
	do {                                                    \
		if (log_get_level() >= LOG_LEVEL_DEBUG)         \
			log_line(LOG_LEVEL_DEBUG, __VA_ARGS__); \
	} while (0)
