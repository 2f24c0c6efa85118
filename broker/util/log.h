#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The log
 *
 * One line per event, of a kind that has a stable name and identifier (util/log-events.h). Under
 * systemd a line becomes an entry of the journal, with the kind and the line's subject in separate
 * fields. Otherwise it is written to standard error. If that is connected to a journal whose socket
 * takes no entries, the line is prefixed with the level in the form that the journal understands
 * ("<3>"). The function that handles an error logs it, once. Library-like rooms log at debug level
 * only; the hot path never logs.
 *
 * Any thread may call, and no call ever waits: a line that the journal or standard error cannot
 * take at once is lost and counted, and the next line that is taken reports the count. At most 100
 * lines of one kind are written in ten seconds (LOG_DETAIL: all); the rest is counted likewise.
 * Bytes that could steer a terminal or are not UTF-8 are replaced: the text may hold names that a
 * client chose.
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

/* Subject of a line, as far as it is known; see LOG_OF(). */
struct log_about {
	const char *tenant; /* NULL: none */
	const char *plan;
	uint32_t session; /* 0: none */
	pid_t pid;        /* process of the client; 0: pid and uid are unknown */
	uid_t uid;
	bool has_device;
	uint32_t device;
};
#define LOG_OF(...)      (&(const struct log_about){__VA_ARGS__})
#define LOG_OF_DEVICE(n) LOG_OF(.has_device = true, .device = (n))

/* Socket on which the journal accepts entries. */
#define LOG_JOURNAL_PATH "/run/systemd/journal/socket"

/* Set the level; lines above @level are dropped. The default is LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/*
 * Write to the journal at @path from now on, if standard error is connected to a journal
 * ($JOURNAL_STREAM). Call before there is a second thread.
 * Return: true if lines go to the journal.
 */
bool log_open_journal(const char *path);

/* Replace with '?' each byte that could steer a terminal, or is not UTF-8, as the log does. */
void log_clean(char *text);

/* Log a line; @about may be NULL. */
void log_line(enum log_level level, enum log_event event, const struct log_about *about,
	      const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * Limit for lines that clients can cause at will: one line per second from one place, or for one
 * reason. Initially zeroed; one thread at a time.
 */
struct log_limit {
	uint64_t logged_ns;
	uint64_t n_unlogged; /* lines not written since logged_ns */
};

/*
 * Return true if the line may be written at @now_ns (clock_now_ns()); *ret_n_unlogged is then the
 * number of unwritten lines before it. Otherwise count the line as unwritten.
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
