/* SPDX-License-Identifier: MIT */
/*
 * Processes to watch: the thread's part
 *
 * A process is identified by its number and its start time, read while the reactor's descriptor
 * still refers to it. So a reused number is noticed, without keeping a descriptor per process. For
 * processes that /proc hides, only the number is known, and the probes see the start time. All
 * tables have a bound; a process without room is counted as dropped.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contention/run-queue-private.h"
#include "util/clock.h"
#include "util/log.h"

enum { TASK_BYTES = 4096 };

static void drop(struct run_queue *rq)
{
	atomic_fetch_add_explicit(&rq->n_dropped, 1, memory_order_relaxed);
}

/* Return true if the probes are in use. */
static bool has_probes(const struct run_queue *rq)
{
	return run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF;
}

static bool read_task(const struct run_queue *rq, pid_t pid, pid_t tid, struct proc_task *ret)
{
	char text[TASK_BYTES];
	size_t bytes;

	if (tid)
		bytes = proc_read(text, sizeof(text), "%s/self/task/%d/stat", rq->proc_path, tid);
	else
		bytes = proc_read(text, sizeof(text), "%s/%d/stat", rq->proc_path, pid);
	return proc_parse_task(text, bytes, ret);
}

/* --- Processes --- */

static struct run_queue_watched_process *find_process(struct run_queue *rq, pid_t pid,
						      uint16_t tenant)
{
	for (uint32_t i = 0; i < rq->n_processes; i++)
		if (rq->processes[i].pid == pid &&
		    (tenant == RUN_QUEUE_NO_TENANT || rq->processes[i].tenant == tenant))
			return &rq->processes[i];
	return NULL;
}

static void forget_process(struct run_queue *rq, struct run_queue_watched_process *process)
{
	struct run_queue_watched_process *other;
	pid_t pid = process->pid;
	int r = 0;

	memset(process, 0, sizeof(*process));
	while (rq->n_processes > 0 && rq->processes[rq->n_processes - 1].pid == 0)
		rq->n_processes--;
	if (!has_probes(rq))
		return;
	/* Another tenant may watch the process, too. */
	other = find_process(rq, pid, RUN_QUEUE_NO_TENANT);
	r = other ? probes_set_process(rq->probes, pid, other->tenant)
		  : probes_unset_process(rq->probes, pid);
	if (r)
		log_debug(LOG_DETAIL, "process %d: %s", pid, strerror(-r));
	rq->needs_walk = true;
}

bool run_queue_look_up(const struct run_queue *rq, pid_t pid, int pidfd, uint64_t *ret_start_ticks)
{
	struct pollfd pollfd = {.fd = pidfd, .events = POLLIN};
	struct proc_task task = {.start_ticks = 0};

	/* The process has ended, or /proc hides it: then only its existence is known. */
	if (!read_task(rq, pid, 0, &task) && pidfd < 0)
		return false;
	*ret_start_ticks = task.start_ticks;
	/* If it has not ended by now, the start time was its own. */
	return pidfd < 0 || poll(&pollfd, 1, 0) <= 0;
}

static bool is_there(const struct run_queue *rq, pid_t pid, uint64_t start_ticks)
{
	struct proc_task task;

	if (start_ticks == 0)
		return kill(pid, 0) == 0 || errno != ESRCH;
	return read_task(rq, pid, 0, &task) && task.start_ticks == start_ticks;
}

static void watch_process(struct run_queue *rq, const struct run_queue_command *command)
{
	struct run_queue_watched_process *process;

	if (!is_there(rq, command->pid, command->start_ticks))
		return;
	process = find_process(rq, command->pid, command->tenant);
	if (process && process->start_ticks != command->start_ticks) {
		forget_process(rq, process);
		process = NULL;
	}
	if (process) {
		process->n_watches++;
		return;
	}
	for (uint32_t i = 0; i < RUN_QUEUE_WATCHED_PROCESSES && !process; i++)
		if (rq->processes[i].pid == 0) {
			process = &rq->processes[i];
			rq->n_processes = i >= rq->n_processes ? i + 1 : rq->n_processes;
		}
	if (!process) {
		drop(rq);
		return;
	}
	*process = (struct run_queue_watched_process){command->pid, command->tenant, 1,
						      command->start_ticks};
	if (!has_probes(rq))
		return;
	if (probes_set_process(rq->probes, command->pid, command->tenant))
		drop(rq);
	rq->needs_walk = true;
}

static void unwatch_process(struct run_queue *rq, const struct run_queue_command *command)
{
	struct run_queue_watched_process *process = find_process(rq, command->pid, command->tenant);

	if (process && --process->n_watches == 0)
		forget_process(rq, process);
}

void run_queue_check_processes(struct run_queue *rq, uint64_t now_ns)
{
	rq->checked_ns = now_ns;
	for (uint32_t i = 0; i < rq->n_processes; i++)
		if (rq->processes[i].pid &&
		    !is_there(rq, rq->processes[i].pid, rq->processes[i].start_ticks))
			forget_process(rq, &rq->processes[i]);
}

/* --- Cgroups --- */

static struct run_queue_watched_cgroup *find_cgroup(struct run_queue *rq, const char *path,
						    uint16_t tenant)
{
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_CGROUPS; i++)
		if (rq->cgroups[i].path && rq->cgroups[i].tenant == tenant &&
		    strcmp(rq->cgroups[i].path, path) == 0)
			return &rq->cgroups[i];
	return NULL;
}

static void forget_cgroup(struct run_queue *rq, struct run_queue_watched_cgroup *cgroup)
{
	if (has_probes(rq) && cgroup->id) {
		int r = probes_unset_cgroup(rq->probes, cgroup->id);

		if (r)
			log_debug(LOG_DETAIL, "cgroup %s: %s", cgroup->path, strerror(-r));
		for (uint32_t i = 0; i < RUN_QUEUE_MAX_CGROUPS; i++)
			if (&rq->cgroups[i] != cgroup && rq->cgroups[i].path &&
			    rq->cgroups[i].id == cgroup->id)
				probes_set_cgroup(rq->probes, cgroup->id, rq->cgroups[i].tenant);
		rq->needs_walk = true;
	}
	free(cgroup->path);
	memset(cgroup, 0, sizeof(*cgroup));
}

static void watch_cgroup(struct run_queue *rq, const struct run_queue_command *command)
{
	struct run_queue_watched_cgroup *cgroup = find_cgroup(rq, command->path, command->tenant);
	uint64_t id = rq->names ? cgroup_names_id(rq->names, command->path) : 0;

	if (cgroup && cgroup->id != id) {
		/* The cgroup was removed and created again. */
		uint32_t n_watches = cgroup->n_watches;

		forget_cgroup(rq, cgroup);
		cgroup->n_watches = n_watches;
	} else if (cgroup) {
		cgroup->n_watches++;
		return;
	}
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_CGROUPS && !cgroup; i++)
		if (!rq->cgroups[i].path)
			cgroup = &rq->cgroups[i];
	if (!cgroup || !(cgroup->path = strdup(command->path))) {
		drop(rq);
		return;
	}
	cgroup->id = id;
	cgroup->tenant = command->tenant;
	cgroup->n_watches++;
	if (!has_probes(rq) || !id)
		return;
	if (probes_set_cgroup(rq->probes, id, command->tenant))
		drop(rq);
	rq->needs_walk = true;
}

static void unwatch_cgroup(struct run_queue *rq, const struct run_queue_command *command)
{
	struct run_queue_watched_cgroup *cgroup = find_cgroup(rq, command->path, command->tenant);

	if (cgroup && --cgroup->n_watches == 0)
		forget_cgroup(rq, cgroup);
}

/* --- Tenants --- */

/* Forget causes attributed to a slot's former tenant. */
static void forget_causes(struct run_queue *rq, uint16_t slot)
{
	const uint32_t who = (uint32_t)RUN_QUEUE_TENANT << 16 | slot;

	for (uint32_t i = 0; i < RUN_QUEUE_MAX_THREADS; i++)
		if (rq->threads[i].subject)
			delay_causes_forget(&rq->threads[i].subject->causers, who);
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_TENANTS; i++)
		if (rq->tenants[i].subject)
			delay_causes_forget(&rq->tenants[i].subject->causers, who);
}

static void end_tenant(struct run_queue *rq, uint16_t slot)
{
	struct run_queue_tenant *tenant = &rq->tenants[slot];

	for (uint32_t i = 0; i < rq->n_processes; i++)
		if (rq->processes[i].pid && rq->processes[i].tenant == slot)
			forget_process(rq, &rq->processes[i]);
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_CGROUPS; i++)
		if (rq->cgroups[i].path && rq->cgroups[i].tenant == slot)
			forget_cgroup(rq, &rq->cgroups[i]);
	if (tenant->generation)
		forget_causes(rq, slot);
	free(tenant->subject);
	memset(tenant, 0, sizeof(*tenant));
	run_queue_unpublish_tenant(rq, slot);
	if (rq->probes)
		probes_clear_tenant(rq->probes, slot);
}

static void begin_tenant(struct run_queue *rq, uint16_t slot, uint32_t generation)
{
	struct run_queue_tenant *tenant = &rq->tenants[slot];
	struct delay_counts delays;

	tenant->generation = generation;
	tenant->subject = run_queue_subject_new(rq, rq->n_tables);
	if (!tenant->subject) {
		drop(rq);
		return;
	}
	run_queue_sum_tenant(rq, slot, &tenant->subject->base, &delays);
	delay_window_init(&tenant->subject->window, clock_now_ns(), &delays);
	for (uint32_t i = 0; rq->probes && i < rq->n_tables; i++)
		delay_causes_begin(&tenant->subject->causers, i,
				   probes_tenant(rq->probes, slot, i)->causers);
}

/* Return true if the slot has that generation, beginning its tenant if it is new. */
static bool meet_tenant(struct run_queue *rq, uint16_t slot, uint32_t generation)
{
	/* Pairs with the stores in run_queue_add_tenant() and run_queue_remove_tenant(). */
	uint32_t slot_state = atomic_load_explicit(&rq->slot_states[slot], memory_order_acquire);

	if (slot_state == RUN_QUEUE_SLOT_FREE ||
	    atomic_load_explicit(&rq->slot_generations[slot], memory_order_relaxed) != generation)
		return false;
	if (rq->tenants[slot].generation == 0)
		begin_tenant(rq, slot, generation);
	return rq->tenants[slot].generation == generation;
}

static void run(struct run_queue *rq, const struct run_queue_command *command)
{
	if (!meet_tenant(rq, command->tenant, command->generation))
		return;
	switch (command->kind) {
	case RUN_QUEUE_WATCH_PROCESS:
		watch_process(rq, command);
		break;
	case RUN_QUEUE_UNWATCH_PROCESS:
		unwatch_process(rq, command);
		break;
	case RUN_QUEUE_WATCH_CGROUP:
		watch_cgroup(rq, command);
		break;
	case RUN_QUEUE_UNWATCH_CGROUP:
		unwatch_cgroup(rq, command);
		break;
	}
}

void run_queue_begin_counts(struct run_queue *rq)
{
	struct delay_counts delays;

	for (uint32_t i = 0; i < RUN_QUEUE_MAX_THREADS; i++) {
		if (!rq->threads[i].tid || !rq->threads[i].subject)
			continue;
		if (!has_probes(rq))
			run_queue_read_thread(rq, i);
		run_queue_sum_thread(rq, i, &rq->threads[i].subject->base, &delays);
	}
	for (uint16_t i = 0; i < RUN_QUEUE_MAX_TENANTS; i++) {
		struct run_queue_tenant *tenant = &rq->tenants[i];

		tenant->throttled_base_ns = tenant->throttled_ns;
		if (tenant->subject)
			run_queue_sum_tenant(rq, i, &tenant->subject->base, &delays);
	}
	rq->reported_ns = 0;
}

void run_queue_take_news(struct run_queue *rq, uint64_t now_ns)
{
	uint32_t n_resets = atomic_load_explicit(&rq->n_resets, memory_order_relaxed);
	struct run_queue_command *command;

	while ((command = spsc_pop(&rq->commands))) {
		run(rq, command);
		free(command);
	}
	for (uint16_t i = 0; i < RUN_QUEUE_MAX_TENANTS; i++) {
		/* Pairs with the stores in run_queue_add_tenant() and run_queue_remove_tenant(). */
		uint32_t slot_state =
			atomic_load_explicit(&rq->slot_states[i], memory_order_acquire);

		if (slot_state == RUN_QUEUE_SLOT_USED)
			meet_tenant(rq, i,
				    atomic_load_explicit(&rq->slot_generations[i],
							 memory_order_relaxed));
		if (slot_state != RUN_QUEUE_SLOT_ENDING)
			continue;
		end_tenant(rq, i);
		/* Pairs with the load in run_queue_add_tenant(): the slot is as if never used. */
		atomic_store_explicit(&rq->slot_states[i], RUN_QUEUE_SLOT_FREE,
				      memory_order_release);
	}
	if (n_resets != rq->n_resets_done) {
		rq->n_resets_done = n_resets;
		run_queue_begin_counts(rq);
	}
}

/* --- The broker's threads --- */

static void set_role(struct run_queue *rq, uint32_t slot, uint8_t role)
{
	uint8_t before = atomic_load_explicit(&rq->roles[slot], memory_order_relaxed);

	atomic_store_explicit(&rq->roles[slot], role, memory_order_relaxed);
	/* Pairs with the load in run_queue_read(). */
	if (before != role && (before == RUN_QUEUE_WORKER || role == RUN_QUEUE_WORKER))
		atomic_fetch_add_explicit(&rq->n_changes, 1, memory_order_release);
}

static void end_thread(struct run_queue *rq, uint32_t slot)
{
	struct run_queue_thread *thread = &rq->threads[slot];

	set_role(rq, slot, RUN_QUEUE_NO_ROLE);
	atomic_store_explicit(&rq->pinned[slot], RUN_QUEUE_ANY_PROCESSOR, memory_order_relaxed);
	if (has_probes(rq))
		probes_set_thread(rq->probes, slot, 0);
	close_fd(thread->schedstat_fd);
	close_fd(thread->status_fd);
	free(thread->subject);
	memset(thread, 0, sizeof(*thread));
	thread->schedstat_fd = thread->status_fd = -1;
}

static enum run_queue_role role_of(const struct run_queue *rq, pid_t tid, const char *name)
{
	if (tid == rq->pid)
		return RUN_QUEUE_REACTOR;
	return strncmp(name, "rb-cpu-", 7) == 0 ? RUN_QUEUE_WORKER : RUN_QUEUE_OTHER;
}

/* Set a thread's name; threads are named after they started. */
static void set_name(struct run_queue *rq, uint32_t slot, const char *name)
{
	struct run_queue_thread *thread = &rq->threads[slot];

	memcpy(thread->name, name, sizeof(thread->name));
	thread->role = role_of(rq, thread->tid, name);
	set_role(rq, slot, (uint8_t)thread->role);
}

static void begin_thread(struct run_queue *rq, uint32_t slot, pid_t tid,
			 const struct proc_task *task)
{
	struct run_queue_thread *thread = &rq->threads[slot];
	struct delay_counts delays;

	thread->tid = tid;
	thread->start_ticks = task->start_ticks;
	thread->is_listed = true;
	if (has_probes(rq)) {
		if (probes_set_thread(rq->probes, slot, tid))
			drop(rq);
		rq->needs_walk = true;
	} else {
		run_queue_read_thread(rq, slot);
	}
	thread->subject = run_queue_subject_new(rq, 1);
	if (thread->subject) {
		run_queue_sum_thread(rq, slot, &thread->subject->base, &delays);
		delay_window_init(&thread->subject->window, clock_now_ns(), &delays);
		if (rq->probes)
			delay_causes_begin(&thread->subject->causers, 0,
					   probes_thread(rq->probes, slot)->causers);
	} else {
		drop(rq);
	}
	set_name(rq, slot, task->name);
	if (slot >= atomic_load_explicit(&rq->n_slots, memory_order_relaxed))
		/* Pairs with the load in run_queue_read(). */
		atomic_store_explicit(&rq->n_slots, slot + 1, memory_order_release);
}

static void see_thread(struct run_queue *rq, pid_t tid)
{
	uint32_t n = atomic_load_explicit(&rq->n_slots, memory_order_relaxed);
	uint32_t slot = n < RUN_QUEUE_MAX_THREADS ? n : RUN_QUEUE_MAX_THREADS;
	struct run_queue_thread *thread;
	struct proc_task task;

	if (!read_task(rq, 0, tid, &task))
		return;
	for (uint32_t i = 0; i < n; i++) {
		thread = &rq->threads[i];
		if (thread->tid == 0 && slot == RUN_QUEUE_MAX_THREADS)
			slot = i;
		if (thread->tid != tid)
			continue;
		if (thread->start_ticks == task.start_ticks) {
			thread->is_listed = true;
			if (strcmp(thread->name, task.name) != 0)
				set_name(rq, i, task.name);
			return;
		}
		end_thread(rq, i);
		begin_thread(rq, i, tid, &task);
		return;
	}
	if (slot == RUN_QUEUE_MAX_THREADS)
		drop(rq);
	else
		begin_thread(rq, slot, tid, &task);
}

void run_queue_list_threads(struct run_queue *rq, uint64_t now_ns)
{
	uint32_t n = atomic_load_explicit(&rq->n_slots, memory_order_relaxed);
	char path[RUN_QUEUE_ROOT_BYTES + 16];
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/self/task", rq->proc_path);
	folder = opendir(path);
	if (!folder)
		return;
	for (uint32_t i = 0; i < n; i++)
		rq->threads[i].is_listed = false;
	while ((entry = readdir(folder))) {
		char *end;
		long tid = strtol(entry->d_name, &end, 10);

		if (*end == '\0' && tid > 0 && tid <= INT32_MAX)
			see_thread(rq, (pid_t)tid);
	}
	closedir(folder);
	for (uint32_t i = 0; i < n; i++)
		if (rq->threads[i].tid && !rq->threads[i].is_listed)
			end_thread(rq, i);
}

void run_queue_forget_all(struct run_queue *rq)
{
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_THREADS; i++) {
		close_fd(rq->threads[i].schedstat_fd);
		close_fd(rq->threads[i].status_fd);
		free(rq->threads[i].subject);
	}
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_TENANTS; i++)
		free(rq->tenants[i].subject);
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_CGROUPS; i++)
		free(rq->cgroups[i].path);
}
