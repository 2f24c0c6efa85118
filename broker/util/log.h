#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The log
 *
 * One line per event, of a kind that has a stable name and identifier (util/log-events.h). Under
 * systemd a line becomes an entry of the journal, with the kind and what the line is about in
 * fields of their own; else it goes to standard error, prefixed with the level in the form that
 * the journal understands ("<3>") where that is not a terminal. Whoever stops an error logs it,
 * once; library-like rooms log at debug level only; the hot path never logs.
 *
 * Any thread may call, and none ever waits: what the journal or standard error cannot take at once
 * is lost and counted, and the next line that is taken says so. Of one kind 100 lines are written
 * in ten seconds (LOG_DETAIL: all); the rest is counted likewise. Bytes that could steer a terminal
 * or are no UTF-8 are replaced: the text may hold names that a client chose.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/log-events.h"

enum log_level {
	LOG_LEVEL_ERROR = 3, /* the numbers are those of syslog */
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

/* What a line is about, as far as it is known; see LOG_OF(). */
struct log_about {
	const char *tenant; /* NULL: none */
	const char *plan;
	uint32_t session; /* 0: none */
	pid_t pid;        /* of the client; 0: neither this nor uid is known */
	uid_t uid;
	bool has_device;
	uint32_t device;
};
#define LOG_OF(...)      (&(const struct log_about){__VA_ARGS__})
#define LOG_OF_DEVICE(n) LOG_OF(.has_device = true, .device = (n))

/* Where the journal takes entries. */
#define LOG_JOURNAL_PATH "/run/systemd/journal/socket"

/* Lines above @level are dropped. The default is LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/*
 * Writes to the journal at @path from now on if standard error is connected to a journal
 * ($JOURNAL_STREAM); before there is a second thread. Return: does it?
 */
bool log_open_journal(const char *path);

/*
 * Makes a line what the log would make of it: each byte that could steer a terminal, or is no
 * UTF-8, becomes '?'.
 */
void log_clean(char *text);

/* @about may be NULL. */
void log_line(enum log_level level, enum log_event event, const struct log_about *about,
	      const char *format, ...) __attribute__((format(printf, 4, 5)));

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

#define log_error_of(about, event, ...)   log_line(LOG_LEVEL_ERROR, event, about, __VA_ARGS__)
#define log_warning_of(about, event, ...) log_line(LOG_LEVEL_WARNING, event, about, __VA_ARGS__)
#define log_info_of(about, event, ...)    log_line(LOG_LEVEL_INFO, event, about, __VA_ARGS__)
#define log_debug_of(about, event, ...)                                       \
	do {                                                                  \
		if (log_get_level() >= LOG_LEVEL_DEBUG)                       \
			log_line(LOG_LEVEL_DEBUG, event, about, __VA_ARGS__); \
	} while (0)

#define log_error(event, ...)   log_error_of(NULL, event, __VA_ARGS__)
#define log_warning(event, ...) log_warning_of(NULL, event, __VA_ARGS__)
#define log_info(event, ...)    log_info_of(NULL, event, __VA_ARGS__)
#define log_debug(event, ...)   log_debug_of(NULL, event, __VA_ARGS__)
