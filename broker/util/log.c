/* SPDX-License-Identifier: MIT */
/*
 * The log
 *
 * A line is formatted into a bounded buffer, cleaned, and written with one system call that cannot
 * wait. The journal's own protocol is a datagram of KEY=VALUE lines, stable and documented. The
 * corresponding call of libsystemd would wait for a journal that is busy or stopped, and the
 * reactor with it.
 */
#include "util/log.h"

#include <fcntl.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/plural.h"
#include "util/utf8.h"

enum {
	LINE_BYTES = 1024,
	FIELDS_BYTES = 768,
	NAME_BYTES = 128, /* longest value of a line's subject */
	BURST_LINES = 100,
};

static const uint64_t burst_ns = 10000000000u;

static const struct {
	const char *name, *id;
} kinds[LOG_N_EVENTS] = {
#define LOG_KIND(constant, name, id) [LOG_##constant] = {name, id},
	LOG_EVENTS(LOG_KIND)
#undef LOG_KIND
};

/*
 * Burst limit of one kind of lines. Threads may race at the end of a period: a line more or less
 * passes.
 */
struct burst {
	_Atomic uint64_t began_ns;
	_Atomic unsigned int n; /* lines since then, unwritten ones included */
};

static _Atomic int log_level_ = LOG_LEVEL_INFO;
static _Atomic unsigned int n_lost; /* lines lost since the last report */
static struct burst bursts[LOG_N_EVENTS];
static bool is_journal; /* standard error is connected to a journal */
static int journal_fd = -1;
static struct sockaddr_un journal_address;

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_level_, level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
	return atomic_load_explicit(&log_level_, memory_order_relaxed);
}

bool log_open_journal(const char *path)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat status;

	if (journal_fd >= 0)
		close(journal_fd);
	journal_fd = -1;
	/* If standard error was redirected, lines must go to its new target. */
	is_journal = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
		     fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device &&
		     status.st_ino == inode;
	if (!is_journal || strlen(path) >= sizeof(journal_address.sun_path))
		return false;
	journal_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	strcpy(journal_address.sun_path, path);
	journal_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return journal_fd >= 0;
}

/* --- Cleaning --- */

void log_clean(char *text)
{
	uint32_t code;
	size_t n;

	for (char *c = text; *c; c += n) {
		n = utf8_decode(c, &code);
		if (n > 0 && !utf8_steers(code))
			continue;
		n = n > 0 ? n : 1;
		memset(c, '?', n);
	}
}

/* --- Output --- */

/*
 * Return true if standard error can take a line. Its reader may have stopped, and a full pipe would
 * block this thread. A pipe that poll() reports writable takes a line of this length whole
 * (PIPE_BUF).
 */
static bool stderr_is_writable(void)
{
	struct pollfd poll_fd = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLOUT);
}

/*
 * Write @text, which is cleaned.
 * Return: true if it was taken.
 */
static bool write_plain(enum log_level level, const char *text)
{
	char line[LINE_BYTES];
	int n = 0;

	/* Only the journal reads the level, and removes it. */
	if (is_journal)
		n = snprintf(line, sizeof(line), "<%d>", level);
	n += snprintf(line + n, sizeof(line) - (size_t)n, "brokerd: %s", text);
	if (n > LINE_BYTES - 2)
		n = LINE_BYTES - 2;
	line[n++] = '\n';
	return stderr_is_writable() && write(STDERR_FILENO, line, (size_t)n) >= 0;
}

/* A journal entry. The buffer has room for every field: values are cut to NAME_BYTES. */
struct entry {
	char text[FIELDS_BYTES + LINE_BYTES];
	size_t n;
};

__attribute__((format(printf, 2, 3))) static void append(struct entry *entry, const char *format,
							 ...)
{
	va_list args;

	va_start(args, format);
	entry->n += (size_t)vsnprintf(entry->text + entry->n, sizeof(entry->text) - entry->n,
				      format, args);
	va_end(args);
}

static void append_name(struct entry *entry, const char *key, const char *name)
{
	char value[NAME_BYTES];

	snprintf(value, sizeof(value), "%s", name);
	log_clean(value);
	append(entry, "%s=%s\n", key, value);
}

/*
 * Write @text, which is cleaned, to the journal.
 * Return: true if it was taken, or if the journal cannot take it now (*ret_is_lost).
 */
static bool write_journal(enum log_level level, enum log_event event, const struct log_about *about,
			  const char *text, bool *ret_is_lost)
{
	struct entry entry = {.n = 0};

	append(&entry,
	       "PRIORITY=%d\nSYSLOG_IDENTIFIER=brokerd\nMESSAGE_ID=%s\nRINGBROKER_EVENT=%s\n",
	       level, kinds[event].id, kinds[event].name);
	if (about && about->tenant)
		append_name(&entry, "TENANT", about->tenant);
	if (about && about->plan)
		append_name(&entry, "PLAN", about->plan);
	if (about && about->session)
		append(&entry, "SESSION=%u\n", about->session);
	if (about && about->pid)
		append(&entry, "PID=%d\nUID=%u\n", (int)about->pid, (unsigned int)about->uid);
	if (about && about->has_device)
		append(&entry, "DEVICE=%u\n", about->device);
	append(&entry, "MESSAGE=%s\n", text);

	*ret_is_lost = sendto(journal_fd, entry.text, entry.n, MSG_DONTWAIT | MSG_NOSIGNAL,
			      (struct sockaddr *)&journal_address, sizeof(journal_address)) < 0;
	return !*ret_is_lost || errno == EAGAIN || errno == ENOBUFS;
}

/* Return: true if the line was taken. */
static bool write_text(enum log_level level, enum log_event event, const struct log_about *about,
		       char *text)
{
	bool is_lost;

	log_clean(text);
	if (journal_fd >= 0 && write_journal(level, event, about, text, &is_lost))
		return !is_lost;
	return write_plain(level, text);
}

__attribute__((format(printf, 2, 3))) static bool write_own(enum log_event event,
							    const char *format, ...)
{
	char text[LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return write_text(LOG_LEVEL_WARNING, event, NULL, text);
}

/* --- Limits --- */

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

/*
 * Return true if the line may be written. *ret_n_before gets the unwritten lines of the period
 * before.
 */
static bool burst_pass(struct burst *burst, unsigned int *ret_n_before)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t began_ns = atomic_load_explicit(&burst->began_ns, memory_order_relaxed);
	unsigned int n;

	*ret_n_before = 0;
	if ((began_ns == 0 || now_ns - began_ns >= burst_ns) &&
	    atomic_compare_exchange_strong_explicit(&burst->began_ns, &began_ns, now_ns,
						    memory_order_relaxed, memory_order_relaxed)) {
		n = atomic_exchange_explicit(&burst->n, 1, memory_order_relaxed);
		*ret_n_before = n > BURST_LINES ? n - BURST_LINES : 0;
		return true;
	}
	return atomic_fetch_add_explicit(&burst->n, 1, memory_order_relaxed) < BURST_LINES;
}

/* Report lost and limited lines before the next line. */
static void say_unwritten(enum log_event event, unsigned int n_limited)
{
	unsigned int lost = atomic_exchange_explicit(&n_lost, 0, memory_order_relaxed);

	if (lost > 0 &&
	    !write_own(LOG_LINES_LOST, "%u log line%s lost", lost, lost == 1 ? " was" : "s were"))
		atomic_fetch_add_explicit(&n_lost, lost, memory_order_relaxed);
	if (n_limited > 0 &&
	    !write_own(LOG_LINES_LIMITED, "%u line%s of %s exceeded the limit and were not logged",
		       n_limited, plural(n_limited), kinds[event].name))
		atomic_fetch_add_explicit(&n_lost, n_limited, memory_order_relaxed);
}

void log_line(enum log_level level, enum log_event event, const struct log_about *about,
	      const char *format, ...)
{
	unsigned int n_limited = 0;
	char text[LINE_BYTES];
	va_list args;
	int written;

	if (level > log_get_level() ||
	    (event != LOG_DETAIL && !burst_pass(&bursts[event], &n_limited)))
		return;
	if (n_limited > 0 || atomic_load_explicit(&n_lost, memory_order_relaxed) > 0)
		say_unwritten(event, n_limited);
	va_start(args, format);
	written = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (written >= 0 && !write_text(level, event, about, text))
		atomic_fetch_add_explicit(&n_lost, 1, memory_order_relaxed);
}
