/* SPDX-License-Identifier: MIT */
/*
 * Limits that the system sets for this process: see allowance.h.
 *
 * The number of files that brokerd has open depends on its devices and on how it watches the
 * processors. Where the limit is too low, it also depends on how far brokerd got, since brokerd
 * does without some files that it could not open. So the error names at once a limit that suffices
 * for all of them, not only for the file that was missing this time.
 */
#include "daemon/allowance.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "session/server.h"
#include "util/cleanup.h"
#include "util/log.h"
#include "util/number.h"

/* Numbers of descriptors that do not belong to tenants, except where stated. */
enum {
	DRIVER_FDS = 128, /* drivers' and other temporary descriptors */
	OWN_FDS = 15,     /* the same for a low limit: sockets, one accepted */
	METRICS_FDS = 20,
	ADMIN_FDS = 8,
	LEAST_FDS = 8,    /* minimum for tenants */
	FEW_FDS = 64,     /* for tenants, kept before any for the server */
	ENOUGH_FDS = 100, /* for files open at the start: probes, devices' drivers */
};

/* One session takes two descriptors; the soft limit of 1,024 is for programs that use select(). */
static uint64_t raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 1024;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		getrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur;
}

/*
 * Make the table of descriptors as long as it will ever be, but at most a MiB of the kernel's
 * memory. When the table of a process of several threads grows, the process waits for all
 * processors (the kernel's expand_files()) for milliseconds, and that would happen while the
 * reactor accepts. The table never shrinks. If there is no memory for it, the table grows when it
 * has to.
 */
static void reserve_descriptors(uint64_t limit)
{
	enum { MOST = 131072 };
	int last = (int)(limit < MOST ? limit : MOST) - 1;

	close_fd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, last));
}

/* Count the descriptors that are open, approximately. */
static uint64_t count_descriptors(void)
{
	uint64_t n = 0;
	DIR *folder = opendir("/proc/self/fd");

	while (folder && readdir(folder))
		n++;
	if (folder)
		closedir(folder);
	return n;
}

static uint64_t others_of(bool has_metrics)
{
	return OWN_FDS + ADMIN_FDS + (has_metrics ? METRICS_FDS : 0);
}

/*
 * Return the number of @n descriptors that tenants may have, so that their sessions, the waiting
 * connections and the threads that close clients' descriptors do not use up all descriptors
 * together. If there are few, sessions have priority.
 */
static uint64_t tenants_part(uint64_t n)
{
	const uint64_t own = server_own_fds();

	if (n <= FEW_FDS)
		return n;
	return n - FEW_FDS < own ? FEW_FDS : n - own;
}

static void log_files(uint64_t limit, uint64_t needed)
{
	log_error(LOG_START_FAILED,
		  "brokerd may have %llu open files, but needs %llu: raise the limit (LimitNOFILE= "
		  "in the unit, or ulimit -n)",
		  ull(limit), ull(needed));
}

int allowance_descriptors(bool has_metrics, uint64_t *ret)
{
	const uint64_t others = others_of(has_metrics);
	uint64_t limit = raise_descriptor_limit(), open = count_descriptors(), used = open + others;

	reserve_descriptors(limit);
	if (limit > 1024) {
		*ret = limit - DRIVER_FDS - SERVER_ADMIN_SESSIONS - server_own_fds();
		return 0;
	}
	if (limit < used + LEAST_FDS) {
		log_files(limit, (open < ENOUGH_FDS ? ENOUGH_FDS : open) + others + LEAST_FDS);
		return ALLOWANCE_E_FILES;
	}
	*ret = tenants_part(limit - used);
	if (*ret > limit / 2)
		*ret = limit / 2;
	return 0;
}

uint64_t allowance_watches(void)
{
	FILE *file = fopen("/proc/sys/fs/inotify/max_user_watches", "re");
	unsigned long long n = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%llu", &n) != 1)
		n = 0;
	fclose(file);
	return n / 2;
}

bool allowance_explain(int r, bool has_metrics)
{
	switch (r) {
	case -EMFILE:
		log_files(raise_descriptor_limit(),
			  ENOUGH_FDS + others_of(has_metrics) + LEAST_FDS);
		return true;
	case -ENOMEM:
	case -EAGAIN:
		/* -EAGAIN is how threads are refused, also for lack of memory. */
		log_error(
			LOG_START_FAILED,
			"cannot start: memory or a thread could not be allocated (%s): raise the "
			"limits (MemoryMax=, LimitAS= and TasksMax= in the unit, or ulimit -v and "
			"ulimit -u)",
			strerror(-r));
		return true;
	default:
		return false;
	}
}
