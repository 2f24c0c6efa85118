/* SPDX-License-Identifier: MIT */
/*
 * Sources in /proc, for machines without probes
 *
 *	schedstat  each worker's time on a processor and waiting for one, to the nanosecond, and how
 *	           often it was switched out while runnable. Kernels that do not count delays have
 *	           the file, too, or report 0; so it is tested with a thread that runs and sleeps
 *	psi        time in which some task waited: in our own cgroup, or if we are in none, in all
 *	stat       share of the processors that is idle or used by others, in ticks
 *
 * The last is read with all sources, and with the probes for the hypervisor's steal time. Reading
 * takes time in proportion to the number of processors, so at most a hundredth of the time is spent
 * on it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "contention/run-queue-private.h"
#include "util/clock.h"
#include "util/seqlock.h"

enum {
	SMALL_BYTES = 4096,
	MAX_TASKS = 2048, /* tasks of tenants per look */
	TRIES = 20,
};

static const uint64_t burn_ns = 200000u;

bool run_queue_has_threads(struct run_queue *rq, char ret_why[static RUN_QUEUE_WHY_BYTES])
{
	char path[RUN_QUEUE_ROOT_BYTES + 64];

	snprintf(path, sizeof(path), "%s/self/task/%d", rq->proc_path, gettid());
	if (access(path, F_OK) == 0)
		return true;
	snprintf(ret_why, RUN_QUEUE_WHY_BYTES,
		 "%.64s does not show brokerd's own threads: mount a /proc of the same PID "
		 "namespace there (mount -t proc proc /proc).",
		 rq->proc_path);
	return false;
}

/* --- schedstat --- */

static bool read_own_schedstat(const struct run_queue *rq, struct proc_schedstat *ret)
{
	char text[128];
	size_t bytes =
		proc_read(text, sizeof(text), "%s/self/task/%d/schedstat", rq->proc_path, gettid());

	return proc_parse_schedstat(text, bytes, ret);
}

bool run_queue_has_schedstat(struct run_queue *rq, char ret_why[static RUN_QUEUE_WHY_BYTES])
{
	const struct timespec moment = {0, 50000};
	struct proc_schedstat before, after;

	if (!run_queue_has_threads(rq, ret_why))
		return false;
	if (!read_own_schedstat(rq, &before)) {
		snprintf(ret_why, RUN_QUEUE_WHY_BYTES,
			 "%.64s/PID/schedstat cannot be read; it needs a kernel with "
			 "CONFIG_SCHED_INFO (by CONFIG_SCHEDSTATS or CONFIG_TASK_DELAY_ACCT).",
			 rq->proc_path);
		return false;
	}
	for (unsigned int i = 0; i < TRIES; i++) {
		uint64_t start_ns = clock_now_ns();

		while (clock_now_ns() - start_ns < burn_ns)
			;
		nanosleep(&moment, NULL);
		if (read_own_schedstat(rq, &after) && after.run_ns > before.run_ns &&
		    after.n_waits > before.n_waits)
			return true;
	}
	snprintf(ret_why, RUN_QUEUE_WHY_BYTES,
		 "the figures in %.64s/PID/schedstat do not change: this kernel does not count "
		 "waiting threads; it needs CONFIG_SCHEDSTATS.",
		 rq->proc_path);
	return false;
}

/* Read a file of a thread, which stays open in *fd if the thread has a low slot. */
static size_t read_thread_file(struct run_queue *rq, uint32_t slot, int *fd, const char *name,
			       char *ret, size_t bytes)
{
	char path[RUN_QUEUE_ROOT_BYTES + 64];

	if (slot >= RUN_QUEUE_OPEN_THREADS)
		return proc_read(ret, bytes, "%s/self/task/%d/%s", rq->proc_path,
				 rq->threads[slot].tid, name);
	if (*fd < 0) {
		snprintf(path, sizeof(path), "%s/self/task/%d/%s", rq->proc_path,
			 rq->threads[slot].tid, name);
		*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	}
	return *fd < 0 ? 0 : proc_read_fd(*fd, ret, bytes);
}

void run_queue_read_thread(struct run_queue *rq, uint32_t slot)
{
	struct run_queue_thread *thread = &rq->threads[slot];
	struct proc_schedstat figures;
	char text[SMALL_BYTES];
	size_t bytes;

	bytes = read_thread_file(rq, slot, &thread->schedstat_fd, "schedstat", text, sizeof(text));
	if (proc_parse_schedstat(text, bytes, &figures)) {
		thread->read.run_ns = figures.run_ns;
		thread->read.wait_ns = figures.wait_ns;
		thread->read.n_waits = figures.n_waits;
	}
	bytes = read_thread_file(rq, slot, &thread->status_fd, "status", text, sizeof(text));
	proc_parse_involuntary(text, bytes, &thread->read.n_involuntary);
}

/* --- psi --- */

/*
 * Open the pressure file of our own cgroup, or of the machine.
 * Return: -1: there is none.
 */
static int open_pressure(struct run_queue *rq)
{
	char path[2 * RUN_QUEUE_ROOT_BYTES + SMALL_BYTES], own[SMALL_BYTES], text[SMALL_BYTES];
	size_t bytes;
	int fd = -1;

	bytes = proc_read(text, sizeof(text), "%s/self/cgroup", rq->proc_path);
	if (rq->cgroup_path[0] && proc_parse_cgroup(text, bytes, NULL, own, sizeof(own)) &&
	    strcmp(own, "/") != 0) {
		snprintf(path, sizeof(path), "%s%s/cpu.pressure", rq->cgroup_path, own);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	}
	if (fd < 0) {
		snprintf(path, sizeof(path), "%s/pressure/cpu", rq->proc_path);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	}
	return fd;
}

static bool read_pressure(struct run_queue *rq, uint64_t *ret_ns)
{
	char text[SMALL_BYTES];

	if (rq->pressure_fd < 0)
		rq->pressure_fd = open_pressure(rq);
	return rq->pressure_fd >= 0 &&
	       proc_parse_pressure(text, proc_read_fd(rq->pressure_fd, text, sizeof(text)), ret_ns);
}

bool run_queue_has_pressure(struct run_queue *rq, char ret_why[static RUN_QUEUE_WHY_BYTES])
{
	uint64_t ns;

	if (read_pressure(rq, &ns))
		return true;
	rq->pressure_fd = close_fd(rq->pressure_fd);
	snprintf(ret_why, RUN_QUEUE_WHY_BYTES,
		 "%.64s/pressure/cpu cannot be read; it needs a kernel with CONFIG_PSI, started "
		 "with psi=1.",
		 rq->proc_path);
	return false;
}

/* --- stat --- */

static bool read_stat(struct run_queue *rq, struct proc_stat *ret)
{
	uint64_t mask[PROC_MASK_WORDS];
	char path[RUN_QUEUE_ROOT_BYTES + 16];

	for (unsigned int i = 0; i < PROC_MASK_WORDS; i++)
		mask[i] = atomic_load_explicit(&rq->mask[i], memory_order_relaxed);
	if (rq->stat_fd < 0) {
		snprintf(path, sizeof(path), "%s/stat", rq->proc_path);
		rq->stat_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	}
	return rq->stat_fd >= 0 &&
	       proc_parse_stat(rq->text, proc_read_fd(rq->stat_fd, rq->text, sizeof(rq->text)),
			       mask, rq->tick_ns, ret);
}

bool run_queue_has_stat(struct run_queue *rq, char ret_why[static RUN_QUEUE_WHY_BYTES])
{
	struct proc_stat stat;

	if (read_stat(rq, &stat))
		return true;
	snprintf(ret_why, RUN_QUEUE_WHY_BYTES,
		 "%.64s/stat has no figures of the processors that brokerd may use; is /proc "
		 "mounted?",
		 rq->proc_path);
	return false;
}

void run_queue_read_processors(struct run_queue *rq, uint64_t now_ns, uint64_t least_ns)
{
	uint64_t again_ns = rq->stat_cost_ns * 100, begin_ns, used_ns;
	struct proc_stat stat;

	if (again_ns < least_ns)
		again_ns = least_ns;
	if (rq->stat_ns && now_ns - rq->stat_ns < again_ns - again_ns / 8)
		return;
	rq->stat_ns = now_ns;
	begin_ns = clock_now_ns();
	if (!read_stat(rq, &stat)) {
		rq->read.has_processors = false;
		return;
	}
	rq->stat_cost_ns = clock_now_ns() - begin_ns;
	used_ns = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
	atomic_store_explicit(&rq->steal_ns, stat.steal_ns, memory_order_relaxed);
	rq->read.has_processors = true;
	rq->read.n_processors = stat.n_processors;
	rq->read.idle_ns = stat.idle_ns;
	rq->read.steal_ns = stat.steal_ns;
	if (rq->is_new_mask)
		rq->read.others_ns = 0;
	rq->is_new_mask = false;
	/* The difference of ticks and nanoseconds fluctuates, so it may only grow. */
	if (stat.busy_ns > used_ns && stat.busy_ns - used_ns > rq->read.others_ns)
		rq->read.others_ns = stat.busy_ns - used_ns;
}

/* --- Totals --- */

void run_queue_read_totals(struct run_queue *rq, uint64_t now_ns)
{
	enum run_queue_source source = run_queue_source(rq);
	uint32_t n = atomic_load_explicit(&rq->n_slots, memory_order_relaxed);
	struct run_queue_totals *totals = &rq->read;
	const uint64_t least_ns = 10 * run_queue_ms_ns;

	run_queue_read_processors(rq, now_ns, least_ns);
	totals->has_workers = false;
	totals->run_ns = totals->wait_ns = totals->n_preemptions = 0;
	for (uint32_t i = 0; source == RUN_QUEUE_SOURCE_SCHEDSTAT && i < n; i++) {
		if (rq->threads[i].tid == 0 || rq->threads[i].role != RUN_QUEUE_WORKER)
			continue;
		run_queue_read_thread(rq, i);
		totals->has_workers = true;
		totals->run_ns += rq->threads[i].read.run_ns;
		totals->wait_ns += rq->threads[i].read.wait_ns;
		totals->n_preemptions += rq->threads[i].read.n_involuntary;
	}
	totals->has_stall = source == RUN_QUEUE_SOURCE_PSI && read_pressure(rq, &totals->stall_ns);
	totals->at_ns = clock_now_ns();
	seqlock_write(&rq->totals.sequence, rq->totals.words[0], sizeof(*totals) / sizeof(uint64_t),
		      totals);
}

static void set_mask(struct run_queue *rq, const cpu_set_t *set)
{
	uint64_t words[PROC_MASK_WORDS];
	bool is_new = false;

	_Static_assert(sizeof(words) == sizeof(*set), "as many processors");
	memcpy(words, set, sizeof(words));
	for (unsigned int i = 0; i < PROC_MASK_WORDS; i++) {
		if (words[i] == atomic_load_explicit(&rq->mask[i], memory_order_relaxed))
			continue;
		atomic_store_explicit(&rq->mask[i], words[i], memory_order_relaxed);
		is_new = true;
	}
	rq->is_new_mask |= is_new;
	/* Pairs with the load in run_queue_read(). */
	if (is_new)
		atomic_fetch_add_explicit(&rq->n_changes, 1, memory_order_release);
}

/* Return the only processor in @set, or RUN_QUEUE_ANY_PROCESSOR. */
static uint16_t one_of(const cpu_set_t *set)
{
	if (CPU_COUNT(set) == 1)
		for (uint16_t i = 0; i < PROC_MAX_PROCESSORS; i++)
			if (CPU_ISSET(i, set))
				return i;
	return RUN_QUEUE_ANY_PROCESSOR;
}

void run_queue_read_mask(struct run_queue *rq)
{
	uint32_t n = atomic_load_explicit(&rq->n_slots, memory_order_relaxed);
	cpu_set_t all, one;

	CPU_ZERO(&all);
	for (uint32_t i = 0; i < n; i++) {
		if (!rq->threads[i].tid || rq->threads[i].role != RUN_QUEUE_WORKER ||
		    sched_getaffinity(rq->threads[i].tid, sizeof(one), &one) < 0)
			continue;
		CPU_OR(&all, &all, &one);
		atomic_store_explicit(&rq->pinned[i], one_of(&one), memory_order_relaxed);
	}
	/*
	 * Without workers: the mask that they will inherit; on a machine with too many processors,
	 * all.
	 */
	if (CPU_COUNT(&all) == 0 && sched_getaffinity(rq->pid, sizeof(all), &all) < 0)
		memset(&all, 0xff, sizeof(all));
	set_mask(rq, &all);
}

/* --- Tenants --- */

/* Add the figures of all threads of a process. */
static void add_process(struct run_queue *rq, pid_t pid, uint32_t *tasks_left,
			struct proc_schedstat *sum)
{
	char path[RUN_QUEUE_ROOT_BYTES + 64], text[128];
	struct proc_schedstat one;
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/%d/task", rq->proc_path, pid);
	folder = opendir(path);
	if (!folder)
		return;
	while (*tasks_left > 0 && (entry = readdir(folder))) {
		size_t bytes;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		(*tasks_left)--;
		bytes = proc_read(text, sizeof(text), "%s/%s/schedstat", path, entry->d_name);
		if (!proc_parse_schedstat(text, bytes, &one))
			continue;
		sum->run_ns += one.run_ns;
		sum->wait_ns += one.wait_ns;
		sum->n_waits += one.n_waits;
	}
	closedir(folder);
}

/* Return the growth of a sum; threads that ended make it smaller. */
static uint64_t growth(uint64_t now, uint64_t *last)
{
	uint64_t grown = now > *last ? now - *last : 0;

	*last = now;
	return grown;
}

static void read_tenant(struct run_queue *rq, uint16_t slot, uint32_t *tasks_left)
{
	struct run_queue_tenant *tenant = &rq->tenants[slot];
	struct proc_schedstat sum = {0, 0, 0};

	for (uint32_t i = 0; i < rq->n_processes; i++)
		if (rq->processes[i].pid && rq->processes[i].tenant == slot)
			add_process(rq, rq->processes[i].pid, tasks_left, &sum);
	if (!tenant->has_last) {
		tenant->has_last = true;
		tenant->last_run_ns = sum.run_ns;
		tenant->last_wait_ns = sum.wait_ns;
		tenant->last_waits = sum.n_waits;
		return;
	}
	tenant->read.run_ns += growth(sum.run_ns, &tenant->last_run_ns);
	tenant->read.wait_ns += growth(sum.wait_ns, &tenant->last_wait_ns);
	tenant->read.n_waits += growth(sum.n_waits, &tenant->last_waits);
}

void run_queue_read_tenants(struct run_queue *rq)
{
	uint32_t tasks_left = MAX_TASKS;
	uint32_t n = atomic_load_explicit(&rq->n_slots, memory_order_relaxed);

	for (uint32_t i = 0; i < n; i++)
		if (rq->threads[i].tid && rq->threads[i].role != RUN_QUEUE_WORKER)
			run_queue_read_thread(rq, i);
	/* Each look begins with another tenant, so that all are read. */
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_TENANTS; i++) {
		uint16_t slot = (uint16_t)((rq->next_tenant + i) % RUN_QUEUE_MAX_TENANTS);

		if (rq->tenants[slot].generation && tasks_left > 0)
			read_tenant(rq, slot, &tasks_left);
	}
	rq->next_tenant = (rq->next_tenant + 1) % RUN_QUEUE_MAX_TENANTS;
}

/* --- Cgroups of tenants --- */

enum figure { THROTTLED, THROTTLED_FIRST_VERSION, STALLED };

static uint64_t key_of(enum figure figure, const char *path)
{
	uint64_t key = 0xcbf29ce484222325u ^ (uint64_t)figure;

	for (; *path; path++)
		key = (key ^ (uint8_t)*path) * 0x100000001b3u;
	return key | 1;
}

/* Add the growth of a figure since the last look; nothing at the first. */
static void see_figure(struct run_queue_tenant *tenant, uint64_t key, uint64_t ns, uint64_t *sum)
{
	struct run_queue_throttled *throttled, *found = NULL;

	for (unsigned int i = 0; i < RUN_QUEUE_TENANT_CGROUPS; i++) {
		throttled = &tenant->throttled[i];
		if (throttled->key == key) {
			found = throttled;
			break;
		}
		if (throttled->key == 0 && !found)
			found = throttled;
	}
	if (!found || found->is_seen)
		return;
	if (found->key != key)
		*found = (struct run_queue_throttled){.key = key, .last_ns = ns};
	found->is_seen = true;
	*sum += growth(ns, &found->last_ns);
}

static void see_cgroup(struct run_queue *rq, struct run_queue_tenant *tenant, const char *path)
{
	char text[SMALL_BYTES];
	uint64_t ns;
	size_t bytes;

	if (!rq->cgroup_path[0])
		return;
	bytes = proc_read(text, sizeof(text), "%s%s/cpu.stat", rq->cgroup_path, path);
	if (proc_parse_throttled(text, bytes, &ns))
		see_figure(tenant, key_of(THROTTLED, path), ns, &tenant->throttled_ns);
	if (run_queue_source(rq) != RUN_QUEUE_SOURCE_PSI || strcmp(path, "/") == 0)
		return;
	bytes = proc_read(text, sizeof(text), "%s%s/cpu.pressure", rq->cgroup_path, path);
	if (proc_parse_pressure(text, bytes, &ns))
		see_figure(tenant, key_of(STALLED, path), ns, &tenant->read.wait_ns);
}

static void see_process(struct run_queue *rq, struct run_queue_tenant *tenant, pid_t pid)
{
	char text[SMALL_BYTES], path[SMALL_BYTES];
	uint64_t ns;
	size_t bytes;

	bytes = proc_read(text, sizeof(text), "%s/%d/cgroup", rq->proc_path, pid);
	if (proc_parse_cgroup(text, bytes, NULL, path, sizeof(path)))
		see_cgroup(rq, tenant, path);
	if (!rq->cpu_cgroup_path[0] || !proc_parse_cgroup(text, bytes, "cpu", path, sizeof(path)))
		return;
	bytes = proc_read(text, sizeof(text), "%s%s/cpu.stat", rq->cpu_cgroup_path, path);
	if (proc_parse_throttled(text, bytes, &ns))
		see_figure(tenant, key_of(THROTTLED_FIRST_VERSION, path), ns,
			   &tenant->throttled_ns);
}

void run_queue_read_throttled(struct run_queue *rq)
{
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_CGROUPS; i++)
		if (rq->cgroups[i].path)
			see_cgroup(rq, &rq->tenants[rq->cgroups[i].tenant], rq->cgroups[i].path);
	for (uint32_t i = 0; i < rq->n_processes; i++)
		if (rq->processes[i].pid)
			see_process(rq, &rq->tenants[rq->processes[i].tenant],
				    rq->processes[i].pid);
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_TENANTS; i++)
		for (unsigned int j = 0; j < RUN_QUEUE_TENANT_CGROUPS; j++) {
			struct run_queue_throttled *throttled = &rq->tenants[i].throttled[j];

			/* No task of that tenant is in the cgroup any more. */
			if (!throttled->is_seen)
				throttled->key = 0;
			throttled->is_seen = false;
		}
}
