/* SPDX-License-Identifier: MIT */
/*
 * Parsing /proc: see proc.h. Lines and words are views of the text: the text is never written, and
 * a malformed line is skipped, since kernels add to these files.
 */
#include "util/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/checked.h"
#include "util/cleanup.h"
#include "util/utf8.h"

struct view {
	const char *at, *end;
};

static size_t length(struct view view)
{
	return (size_t)(view.end - view.at);
}

/*
 * Take the text before @separator, and the separator, off @rest.
 * Return: false at the end.
 */
static bool take(struct view *rest, char separator, struct view *ret)
{
	const char *found;

	if (rest->at == rest->end)
		return false;
	found = memchr(rest->at, separator, length(*rest));
	ret->at = rest->at;
	ret->end = found ? found : rest->end;
	rest->at = found ? found + 1 : rest->end;
	return true;
}

/*
 * Take a word, with any number of blanks before it, off @rest.
 * Return: false at the end.
 */
static bool take_word(struct view *rest, struct view *ret)
{
	while (rest->at < rest->end && (*rest->at == ' ' || *rest->at == '\t'))
		rest->at++;
	return take(rest, ' ', ret) && length(*ret) > 0;
}

static bool is_equal(struct view view, const char *text)
{
	return length(view) == strlen(text) && memcmp(view.at, text, length(view)) == 0;
}

static bool skip(struct view *view, const char *prefix)
{
	size_t bytes = strlen(prefix);

	if (length(*view) < bytes || memcmp(view->at, prefix, bytes) != 0)
		return false;
	view->at += bytes;
	return true;
}

/* Parse a whole view as one unsigned decimal number. */
static bool to_number(struct view view, uint64_t *ret)
{
	uint64_t value = 0;

	if (view.at == view.end)
		return false;
	for (; view.at < view.end; view.at++)
		if (*view.at < '0' || *view.at > '9' || !checked_mul(value, 10, &value) ||
		    !checked_add(value, (uint64_t)(*view.at - '0'), &value))
			return false;
	*ret = value;
	return true;
}

static bool take_number(struct view *rest, uint64_t *ret)
{
	struct view word;

	return take_word(rest, &word) && to_number(word, ret);
}

bool proc_parse_schedstat(const char *text, size_t bytes, struct proc_schedstat *ret)
{
	struct view rest = {text, text + bytes}, line;
	struct proc_schedstat found;

	if (!take(&rest, '\n', &line) || !take_number(&line, &found.run_ns) ||
	    !take_number(&line, &found.wait_ns) || !take_number(&line, &found.n_waits))
		return false;
	*ret = found;
	return true;
}

bool proc_parse_involuntary(const char *text, size_t bytes, uint64_t *ret)
{
	struct view rest = {text, text + bytes}, line;

	while (take(&rest, '\n', &line))
		if (skip(&line, "nonvoluntary_ctxt_switches:\t"))
			return to_number(line, ret);
	return false;
}

bool proc_parse_task(const char *text, size_t bytes, struct proc_task *ret)
{
	enum { START_TIME = 22, STATE = 3 };
	struct view rest = {text, text + bytes}, word;
	const char *name, *name_end;
	uint64_t start_ticks;

	/* The name may hold anything, parentheses too; the fields after it do not. */
	name = memchr(text, '(', bytes);
	name_end = memrchr(text, ')', bytes);
	if (!name || !name_end || name_end < name)
		return false;
	rest.at = name_end + 1;
	for (unsigned int i = STATE; i < START_TIME; i++)
		if (!take_word(&rest, &word))
			return false;
	if (!take_number(&rest, &start_ticks))
		return false;
	copy_printable(name + 1, (size_t)(name_end - name - 1), ret->name, sizeof(ret->name));
	ret->start_ticks = start_ticks;
	return true;
}

bool proc_parse_pressure(const char *text, size_t bytes, uint64_t *ret_ns)
{
	struct view rest = {text, text + bytes}, line, word;
	uint64_t us, ns;

	while (take(&rest, '\n', &line)) {
		if (!skip(&line, "some "))
			continue;
		while (take_word(&line, &word))
			if (skip(&word, "total=") && to_number(word, &us) &&
			    checked_mul(us, 1000, &ns)) {
				*ret_ns = ns;
				return true;
			}
	}
	return false;
}

/* Add the figures of one processor's line, without its name. */
static bool add_processor(struct view line, struct proc_stat *stat, uint64_t tick_ns)
{
	/* user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice. */
	enum { IDLE = 3, IOWAIT = 4, STEAL = 7, FIGURES = 8 };
	struct proc_stat sum = *stat;
	uint64_t ticks, ns, *to;

	for (unsigned int i = 0; i < FIGURES; i++) {
		if (!take_number(&line, &ticks) || !checked_mul(ticks, tick_ns, &ns))
			return false;
		to = i == IDLE || i == IOWAIT ? &sum.idle_ns
		     : i == STEAL             ? &sum.steal_ns
					      : &sum.busy_ns;
		if (!checked_add(*to, ns, to))
			return false;
	}
	*stat = sum;
	stat->n_processors++;
	return true;
}

bool proc_parse_stat(const char *text, size_t bytes, const uint64_t mask[static PROC_MASK_WORDS],
		     uint64_t tick_ns, struct proc_stat *ret)
{
	struct proc_stat stat = {.n_processors = 0};
	struct view rest = {text, text + bytes}, line, name;
	uint64_t number;

	/* The processors' lines come first. */
	while (take(&rest, '\n', &line) && skip(&line, "cpu")) {
		if (!take(&line, ' ', &name) || length(name) == 0)
			continue;
		if (!to_number(name, &number) || number >= PROC_MAX_PROCESSORS ||
		    !(mask[number / 64] & (uint64_t)1 << number % 64))
			continue;
		/* The last line may have been cut. */
		if (rest.at == rest.end && (bytes == 0 || text[bytes - 1] != '\n'))
			break;
		add_processor(line, &stat, tick_ns);
	}
	if (stat.n_processors == 0)
		return false;
	*ret = stat;
	return true;
}

/* Return true if @name is in @list, which is separated by commas. */
static bool is_listed(struct view list, const char *name)
{
	struct view one;

	while (take(&list, ',', &one))
		if (is_equal(one, name))
			return true;
	return false;
}

static bool copy(struct view view, char *ret, size_t ret_bytes)
{
	if (length(view) >= ret_bytes || memchr(view.at, '\0', length(view)))
		return false;
	memcpy(ret, view.at, length(view));
	ret[length(view)] = '\0';
	return true;
}

bool proc_parse_cgroup(const char *text, size_t bytes, const char *controller, char *ret,
		       size_t ret_bytes)
{
	struct view rest = {text, text + bytes}, line, id, controllers;

	while (take(&rest, '\n', &line)) {
		if (!take(&line, ':', &id) || !take(&line, ':', &controllers) ||
		    length(line) == 0 || *line.at != '/')
			continue;
		if (controller ? is_listed(controllers, controller)
			       : is_equal(id, "0") && length(controllers) == 0)
			return copy(line, ret, ret_bytes);
	}
	return false;
}

bool proc_parse_throttled(const char *text, size_t bytes, uint64_t *ret_ns)
{
	struct view rest = {text, text + bytes}, line;
	uint64_t us, ns;

	while (take(&rest, '\n', &line)) {
		if (skip(&line, "throttled_usec ")) {
			if (!to_number(line, &us) || !checked_mul(us, 1000, &ns))
				return false;
			*ret_ns = ns;
			return true;
		}
		if (skip(&line, "throttled_time "))
			return to_number(line, ret_ns);
	}
	return false;
}

bool proc_parse_quota(const char *text, size_t bytes, uint64_t *ret_thousandths)
{
	struct view rest = {text, text + bytes}, line;
	uint64_t quota, period;

	if (!take(&rest, '\n', &line) || !take_number(&line, &quota) ||
	    !take_number(&line, &period) || period == 0 || !checked_mul(quota, 1000, &quota))
		return false;
	*ret_thousandths = quota / period;
	return true;
}

bool proc_parse_mounts(const char *text, size_t bytes, const char *controller, char *ret,
		       size_t ret_bytes)
{
	struct view rest = {text, text + bytes}, line, device, folder, type, options;

	while (take(&rest, '\n', &line)) {
		if (!take_word(&line, &device) || !take_word(&line, &folder) ||
		    !take_word(&line, &type) || !take_word(&line, &options))
			continue;
		/* A backslash is part of an escape; cgroups are not mounted at such paths. */
		if (*folder.at != '/' || memchr(folder.at, '\\', length(folder)))
			continue;
		if (controller ? is_equal(type, "cgroup") && is_listed(options, controller)
			       : is_equal(type, "cgroup2"))
			return copy(folder, ret, ret_bytes);
	}
	return false;
}

size_t proc_read_fd(int fd, char *ret, size_t bytes)
{
	size_t n = 0;
	ssize_t r;

	while (n + 1 < bytes) {
		r = pread(fd, ret + n, bytes - 1 - n, (off_t)n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			break;
		n += (size_t)r;
	}
	ret[n] = '\0';
	return n;
}

size_t proc_read(char *ret, size_t bytes, const char *format, ...)
{
	_cleanup_(close_fdp) int fd = -1;
	char path[4096 + 512];
	va_list args;
	int n;

	ret[0] = '\0';
	va_start(args, format);
	n = vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	if (n < 0 || n >= (int)sizeof(path))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return fd < 0 ? 0 : proc_read_fd(fd, ret, bytes);
}

bool proc_own_cgroup(char *ret, size_t bytes)
{
	char text[PROC_TEXT_BYTES];

	return proc_parse_cgroup(text, proc_read(text, sizeof(text), "/proc/self/cgroup"), NULL,
				 ret, bytes);
}
