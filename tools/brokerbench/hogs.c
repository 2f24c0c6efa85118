/* SPDX-License-Identifier: MIT */
/*
 * Hogs: processes that compete for the processors
 *
 * Their order is a word of shared memory, which they read between two units of work and sleep on as
 * a futex.
 */
#include "hogs.h"

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/util/cgroup.h"
#include "cgroup-v2.h"
#include "util/clock.h"

enum { MAX_HOGS = 1024, UNIT_STEPS = 2000 };

enum { LIMIT_S = 10 };

enum order { SLEEP, COMPUTE, STOP };

/* Progress of one hog; each is on its own cache line to avoid false sharing. */
struct progress {
	_Alignas(64) _Atomic uint64_t n;
};

struct shared {
	_Atomic uint32_t order;
	struct progress progress[MAX_HOGS];
};

struct hogs {
	struct shared *shared;
	unsigned int n;
	char cgroup[PATH_MAX]; /* path of the cgroup; empty: none was made */
	pid_t pids[MAX_HOGS];
};

/* Compute a chain of dependent multiplications, without memory accesses or system calls. */
static uint64_t compute(uint64_t value)
{
	for (unsigned int i = 0; i < UNIT_STEPS; i++)
		value = value * 6364136223846793005u + 1442695040888963407u;
	return value;
}

static void hog_main(struct shared *shared, struct progress *progress, int cpu,
		     const struct hogs_options *options, pid_t parent)
{
	const uint64_t limit_ns = (options->limit_s ? options->limit_s : LIMIT_S) * 1000000000ull;
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	volatile uint64_t value = 1;
	uint64_t end_ns = 0;
	cpu_set_t cpus;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (options->comm)
		prctl(PR_SET_NAME, options->comm);
	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	for (;;) {
		uint32_t order = atomic_load(&shared->order);

		if (order == STOP)
			_exit(0);
		if (order == SLEEP || (end_ns > 0 && clock_now_ns() > end_ns)) {
			end_ns = 0;
			syscall(SYS_futex, &shared->order, FUTEX_WAIT, order, NULL, NULL, 0);
			continue;
		}
		if (end_ns == 0)
			end_ns = clock_now_ns() + limit_ns;
		value = compute(value);
		atomic_fetch_add_explicit(&progress->n, 1, memory_order_relaxed);
	}
}

static uint64_t tell(struct hogs *hogs, enum order order)
{
	uint64_t now = clock_now_ns();

	atomic_store(&hogs->shared->order, order);
	syscall(SYS_futex, &hogs->shared->order, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return now;
}

uint64_t hogs_begin(struct hogs *hogs)
{
	return tell(hogs, COMPUTE);
}

uint64_t hogs_end(struct hogs *hogs)
{
	return tell(hogs, SLEEP);
}

struct hogs *hogs_free(struct hogs *hogs)
{
	if (!hogs)
		return NULL;
	if (hogs->shared != MAP_FAILED) {
		tell(hogs, STOP);
		for (unsigned int i = 0; i < hogs->n; i++)
			while (waitpid(hogs->pids[i], NULL, 0) < 0 && errno == EINTR)
				;
		munmap(hogs->shared, sizeof(*hogs->shared));
	}
	if (hogs->cgroup[0])
		rmdir(hogs->cgroup);
	free(hogs);
	return NULL;
}

static void make_cgroup(struct hogs *hogs, const char *name)
{
	char root[PATH_MAX / 2];

	if (!cgroup_find_root(root, sizeof(root)) || strlen(name) >= sizeof(root))
		return;
	snprintf(hogs->cgroup, sizeof(hogs->cgroup), "%s/%s", root, name);
	if (mkdir(hogs->cgroup, 0755) < 0 && errno != EEXIST)
		hogs->cgroup[0] = '\0';
}

int hogs_new(const struct hogs_options *options, struct hogs **ret)
{
	_cleanup_(hogs_freep) struct hogs *hogs = calloc(1, sizeof(*hogs));
	pid_t parent = getpid(), pid;
	cpu_set_t cpus;

	if (!hogs)
		return -ENOMEM;
	hogs->shared = mmap(NULL, sizeof(*hogs->shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (hogs->shared == MAP_FAILED || sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return -errno;
	if (options->cgroup)
		make_cgroup(hogs, options->cgroup);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		for (unsigned int i = 0;
		     CPU_ISSET(cpu, &cpus) && i < options->n_per_cpu && hogs->n < MAX_HOGS; i++) {
			pid = fork();
			if (pid < 0)
				return -errno;
			if (pid == 0)
				hog_main(hogs->shared, &hogs->shared->progress[hogs->n], cpu,
					 options, parent);
			hogs->pids[hogs->n++] = pid;
			if (hogs->cgroup[0])
				cgroup_v2_move(hogs->cgroup, pid);
		}
	}
	*ret = steal_ptr(hogs);
	return 0;
}
