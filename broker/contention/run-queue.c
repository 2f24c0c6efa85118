/* SPDX-License-Identifier: MIT */
/*
 * The thread that watches the run queue, and the fallback order of sources
 *
 * The thread does the work that is due and sleeps until the next is. The period depends on the
 * pace, which the reactor may change thousands of times a second. A pace of tasks in flight is held
 * for a while after it ended, so that the thread is not woken each time. While there are no
 * sessions, it sleeps without a timeout. Work that is due at about the same time is done together,
 * so that the pace of a second means one wake per second.
 *
 * The reactor passes the processes to watch by a queue of commands, and by a state per tenant's
 * slot that both may change: the reactor takes free slots and returns used ones, the thread frees
 * them. So the reactor never waits, and returning a slot cannot fail for lack of room in the queue.
 * Unwatching cannot fail either: the queue keeps room for it.
 *
 * Probes can be detached from outside: by a privileged process, or because their owner's links were
 * closed. The thread was switched while it slept, so the probes must have seen at least that. If
 * they saw nothing, the next source is used. Their maps stay until the end, as the reactor may be
 * reading them.
 */
#include "contention/run-queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "contention/run-queue-private.h"
#include "util/crash.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"
#include "util/thread.h"

enum { OWN_WAKES = 8 }; /* wake-ups that the thread's own record may miss */

static const uint64_t hold_ns = 50000000u;        /* hold time of the pace of tasks in flight */
static const uint64_t walk_again_ns = 5000000u;   /* least time between two walks */
static const uint64_t check_again_ns = 50000000u; /* least time between two checks of processes */
static const uint64_t totals_ns = 10000000u;
static const uint64_t often_ns = 100000000u;

static const char *const source_names[] = {
	[RUN_QUEUE_SOURCE_AUTO] = "auto",           [RUN_QUEUE_SOURCE_EBPF] = "ebpf",
	[RUN_QUEUE_SOURCE_SCHEDSTAT] = "schedstat", [RUN_QUEUE_SOURCE_PSI] = "psi",
	[RUN_QUEUE_SOURCE_STAT] = "stat",           [RUN_QUEUE_SOURCE_NONE] = "none",
};

const char *run_queue_source_name(enum run_queue_source source)
{
	return source <= RUN_QUEUE_SOURCE_NONE ? source_names[source] : "none";
}

void run_queue_say(struct run_queue *rq, const char *format, ...)
{
	uint32_t n = atomic_load_explicit(&rq->n_sentences, memory_order_relaxed);
	va_list args;

	if (n == RUN_QUEUE_MAX_SENTENCES)
		return;
	va_start(args, format);
	vsnprintf(rq->sentences[n], sizeof(rq->sentences[n]), format, args);
	va_end(args);
	/* Pairs with the load in run_queue_sentence(). */
	atomic_store_explicit(&rq->n_sentences, n + 1, memory_order_release);
}

const char *run_queue_sentence(const struct run_queue *rq, unsigned int i)
{
	if (!rq || i >= atomic_load_explicit(&rq->n_sentences, memory_order_acquire))
		return NULL;
	return rq->sentences[i];
}

void run_queue_choose(struct run_queue *rq, enum run_queue_source from)
{
	char why[RUN_QUEUE_WHY_BYTES];
	enum run_queue_source source;

	for (source = from; source < RUN_QUEUE_SOURCE_NONE; source++) {
		bool has = false;

		if (source == RUN_QUEUE_SOURCE_SCHEDSTAT)
			has = run_queue_has_schedstat(rq, why);
		else if (source == RUN_QUEUE_SOURCE_PSI)
			has = run_queue_has_pressure(rq, why);
		else if (source == RUN_QUEUE_SOURCE_STAT)
			has = run_queue_has_stat(rq, why);
		if (has)
			break;
		run_queue_say(rq, "%s: %.240s", run_queue_source_name(source), why);
	}
	/* Pairs with the loads of the reactor. */
	atomic_store_explicit(&rq->source, source, memory_order_release);
}

/* Return true if work last done at @last_ns is due; an eighth too early is good enough. */
static bool is_due(uint64_t now_ns, uint64_t last_ns, uint64_t period_ns)
{
	return last_ns == 0 || now_ns - last_ns >= period_ns - period_ns / 8;
}

/* Return the pace, held as above. */
static uint32_t hold(struct run_queue *rq, uint64_t now_ns)
{
	uint32_t wanted = pace_get(&rq->pace);

	if (wanted >= rq->held_pace) {
		rq->held_pace = wanted;
		rq->held_until_ns = wanted >= RUN_QUEUE_PACE_BUSY ? now_ns + hold_ns : 0;
	} else if (now_ns >= rq->held_until_ns) {
		rq->held_pace = wanted;
	}
	return rq->held_pace;
}

/*
 * Return the time of the next walk. A walk takes time in proportion to the number of tasks on the
 * machine; walks take at most a twentieth of a processor, whatever the number.
 */
static uint64_t next_walk_ns(const struct run_queue *rq)
{
	uint64_t again_ns = 20 * rq->walk_cost_ns;

	return rq->walked_ns ? rq->walked_ns + (again_ns > walk_again_ns ? again_ns : walk_again_ns)
			     : 0;
}

static void walk(struct run_queue *rq, uint64_t now_ns)
{
	uint64_t start_ns;
	int r;

	if (!rq->needs_walk || run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF) {
		rq->needs_walk = false;
		return;
	}
	if (now_ns < next_walk_ns(rq))
		return;
	if (is_due(now_ns, rq->checked_ns, check_again_ns))
		run_queue_check_processes(rq, now_ns);
	rq->needs_walk = false;
	rq->walked_ns = now_ns;
	start_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	r = probes_walk(rq->probes);
	rq->walk_cost_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
	rq->has_walk_failed = r != 0;
	if (r) {
		log_debug(LOG_DETAIL, "cannot walk the tasks: %s", strerror(-r));
		atomic_fetch_add_explicit(&rq->n_dropped, 1, memory_order_relaxed);
	}
}

static void lose(struct run_queue *rq)
{
	run_queue_say(rq, "ebpf: another program detached the probes while brokerd ran; restart "
			  "brokerd to attach them again.");
	run_queue_choose(rq, RUN_QUEUE_SOURCE_SCHEDSTAT);
	run_queue_begin_counts(rq);
	log_warning(LOG_CONTENTION_SOURCE,
		    "another program detached the scheduler probes: CPU contention is now watched "
		    "by %s",
		    run_queue_source_name(run_queue_source(rq)));
	rq->is_new_list = true;
}

/* Return the thread's own record; NULL: it has no slot. */
static const struct run_queue_record *own_record(const struct run_queue *rq)
{
	pid_t tid = gettid();
	uint32_t n = atomic_load_explicit(&rq->n_slots, memory_order_relaxed);

	for (uint32_t i = 0; i < n; i++)
		if (rq->threads[i].tid == tid)
			return probes_thread(rq->probes, i);
	return NULL;
}

/* Check that the probes are still attached. */
static void beat(struct run_queue *rq, uint64_t now_ns)
{
	const struct run_queue_record *own = own_record(rq);
	uint64_t n_switches = 0, n_waits = 0, n_own;
	struct rusage usage;
	bool is_lost;

	getrusage(RUSAGE_THREAD, &usage);
	n_own = (uint64_t)usage.ru_nvcsw;
	for (uint32_t i = 0; i < probes_n_processors(rq->probes); i++)
		n_switches += __atomic_load_n(&probes_processor(rq->probes, i)->n_switches,
					      __ATOMIC_RELAXED);
	if (own)
		n_waits = __atomic_load_n(&own->n_waits, __ATOMIC_RELAXED) +
			  __atomic_load_n(&own->n_idle_waits, __ATOMIC_RELAXED);
	if (rq->has_beat && n_own == rq->beat_own)
		return;
	is_lost = rq->has_beat && n_switches == rq->beat_switches;
	/* Switches are seen, but no wake-ups, although each sleep of this thread ends with one. */
	if (rq->has_beat && n_waits > 0 && n_waits == rq->beat_waits) {
		if (n_own - rq->beat_own < OWN_WAKES)
			return;
		is_lost = true;
	}
	rq->has_beat = true;
	rq->beat_own = n_own;
	rq->beat_switches = n_switches;
	rq->beat_waits = n_waits;
	rq->beaten_ns = now_ns;
	if (is_lost)
		lose(rq);
}

static uint64_t report_period_ns(uint32_t pace)
{
	return pace >= RUN_QUEUE_PACE_CONTENDED ? often_ns : run_queue_second_ns;
}

static uint64_t totals_period_ns(const struct run_queue *rq, uint32_t pace)
{
	if (run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF)
		return pace >= RUN_QUEUE_PACE_BUSY ? often_ns : run_queue_second_ns;
	return pace >= RUN_QUEUE_PACE_BUSY ? totals_ns : run_queue_second_ns;
}

static void report(struct run_queue *rq, uint64_t now_ns)
{
	struct run_queue_cost cost = {0, 0};

	if (is_due(now_ns, rq->throttled_ns, run_queue_second_ns)) {
		rq->throttled_ns = now_ns;
		run_queue_read_throttled(rq);
		if (run_queue_source(rq) == RUN_QUEUE_SOURCE_SCHEDSTAT)
			run_queue_read_tenants(rq);
	}
	run_queue_make_reports(rq, now_ns);
	if (run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF) {
		probes_cost(rq->probes, &cost);
		atomic_store_explicit(&rq->cost_events, cost.n_events, memory_order_relaxed);
		atomic_store_explicit(&rq->cost_ns, cost.event_ns, memory_order_relaxed);
	}
}

/* Do the work that is due. */
static void work(struct run_queue *rq, uint32_t pace, uint64_t now_ns)
{
	if (pace == RUN_QUEUE_PACE_IDLE) {
		walk(rq, now_ns);
		return;
	}
	if (rq->is_new_list || is_due(now_ns, rq->listed_ns, run_queue_second_ns)) {
		rq->is_new_list = false;
		rq->listed_ns = now_ns;
		rq->needs_walk |= rq->has_walk_failed;
		run_queue_list_threads(rq, now_ns);
		run_queue_read_mask(rq);
		run_queue_check_processes(rq, now_ns);
	}
	walk(rq, now_ns);
	if (run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF &&
	    is_due(now_ns, rq->beaten_ns, report_period_ns(pace)))
		beat(rq, now_ns);
	if (is_due(now_ns, rq->read_ns, totals_period_ns(rq, pace))) {
		rq->read_ns = now_ns;
		if (run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF)
			run_queue_read_processors(rq, now_ns, often_ns);
		else
			run_queue_read_totals(rq, now_ns);
	}
	if (is_due(now_ns, rq->reported_ns, report_period_ns(pace))) {
		rq->reported_ns = now_ns;
		report(rq, now_ns);
	}
}

static void sleep_until_due(struct run_queue *rq, uint32_t pace)
{
	uint64_t due_ns = UINT64_MAX, now_ns;

	if (rq->needs_walk)
		due_ns = next_walk_ns(rq);
	if (pace_get(&rq->pace) < pace)
		due_ns = min_u64(due_ns, rq->held_until_ns);
	if (pace > RUN_QUEUE_PACE_IDLE) {
		due_ns = min_u64(due_ns, rq->listed_ns + run_queue_second_ns);
		due_ns = min_u64(due_ns, rq->read_ns + totals_period_ns(rq, pace));
		due_ns = min_u64(due_ns, rq->reported_ns + report_period_ns(pace));
	}
	now_ns = clock_now_ns();
	if (due_ns > now_ns)
		pace_sleep(&rq->pace, pace, due_ns == UINT64_MAX ? UINT64_MAX : due_ns - now_ns);
}

/* Return: 0, also if another source must be used; -ENOMEM. */
static int load_probes(struct run_queue *rq)
{
	char why[RUN_QUEUE_WHY_BYTES] = "";
	int r = PROBES_E_UNAVAILABLE;

	/* The probes identify threads by their numbers in /proc. */
	if (run_queue_has_threads(rq, why))
		r = probes_new(why, &rq->probes);
	if (r == PROBES_E_UNAVAILABLE) {
		run_queue_say(rq, "ebpf: %.240s", why);
		if (!rq->defers_probes)
			run_queue_choose(rq, RUN_QUEUE_SOURCE_SCHEDSTAT);
		return 0;
	}
	if (r)
		return error_fold(r);
	rq->n_tables = probes_n_processors(rq->probes);
	/* The first totals then include time stolen before. */
	run_queue_read_processors(rq, clock_now_ns(), 0);
	/* Pairs with the loads of the reactor. */
	atomic_store_explicit(&rq->source, RUN_QUEUE_SOURCE_EBPF, memory_order_release);
	return 0;
}

/* Load the probes when clients that wait for the broker have had its processors for a second. */
static void load_later(struct run_queue *rq)
{
	const uint64_t due_ns = clock_now_ns() + run_queue_second_ns;
	uint64_t now_ns;

	while ((now_ns = clock_now_ns()) < due_ns) {
		if (atomic_load_explicit(&rq->stop, memory_order_relaxed))
			return;
		pace_sleep(&rq->pace, RUN_QUEUE_PACE_IDLE, due_ns - now_ns);
	}
	if (load_probes(rq))
		run_queue_say(rq, "ebpf: there is no memory for the probes.");
}

static void *run_queue_thread_main(void *data)
{
	struct run_queue *rq = data;
	uint64_t now_ns;
	uint32_t pace;
	int r;

	crash_thread.is_own = true;
	/* Before the first command, so that the tables of all subjects have their size. */
	if (rq->defers_probes)
		load_later(rq);
	r = run_queue_keep_privileges(rq->probes && probes_need_privilege(rq->probes));
	if (r)
		log_debug(LOG_DETAIL, "cannot give up the privileges of the probes: %s",
			  strerror(-r));
	while (!atomic_load_explicit(&rq->stop, memory_order_relaxed)) {
		now_ns = clock_now_ns();
		/* Pairs with tell(): earlier commands are visible. */
		if (atomic_exchange_explicit(&rq->has_news, false, memory_order_acquire))
			run_queue_take_news(rq, now_ns);
		pace = hold(rq, now_ns);
		work(rq, pace, now_ns);
		sleep_until_due(rq, pace);
	}
	return NULL;
}

/* --- The reactor's part --- */

/* Notify the thread of commands. */
static void tell(struct run_queue *rq)
{
	/* Pairs with the exchange in run_queue_thread_main(). */
	if (!atomic_exchange_explicit(&rq->has_news, true, memory_order_release))
		pace_interrupt(&rq->pace);
}

void run_queue_set_pace(struct run_queue *rq, enum run_queue_pace pace)
{
	if (rq && rq->has_thread)
		pace_set(&rq->pace, pace);
}

uint16_t run_queue_add_tenant(struct run_queue *rq)
{
	if (!rq || !rq->has_thread)
		return RUN_QUEUE_NO_TENANT;
	for (uint16_t i = 0; i < RUN_QUEUE_MAX_TENANTS; i++) {
		/* Pairs with the store in run_queue_take_news(). */
		if (atomic_load_explicit(&rq->slot_states[i], memory_order_acquire) !=
		    RUN_QUEUE_SLOT_FREE)
			continue;
		atomic_fetch_add_explicit(&rq->slot_generations[i], 1, memory_order_relaxed);
		atomic_store_explicit(&rq->slot_states[i], RUN_QUEUE_SLOT_USED,
				      memory_order_release);
		tell(rq);
		return i;
	}
	rq->n_unwatched++;
	return RUN_QUEUE_NO_TENANT;
}

static bool is_used(const struct run_queue *rq, uint16_t tenant)
{
	return rq && tenant < RUN_QUEUE_MAX_TENANTS &&
	       atomic_load_explicit(&rq->slot_states[tenant], memory_order_relaxed) ==
		       RUN_QUEUE_SLOT_USED;
}

void run_queue_remove_tenant(struct run_queue *rq, uint16_t tenant)
{
	if (!is_used(rq, tenant))
		return;
	atomic_store_explicit(&rq->slot_states[tenant], RUN_QUEUE_SLOT_ENDING,
			      memory_order_release);
	/* The tenant's watches end with the slot. */
	rq->n_owed -= rq->n_owed_of[tenant];
	rq->n_owed_of[tenant] = 0;
	tell(rq);
}

/*
 * Send a command.
 * Return: true if it was sent; otherwise it was counted as dropped.
 */
static bool command(struct run_queue *rq, enum run_queue_command_kind kind, uint16_t tenant,
		    pid_t pid, uint64_t start_ticks, const char *path)
{
	struct run_queue_command *command;
	size_t path_bytes = strlen(path) + 1;

	command = malloc(sizeof(*command) + path_bytes);
	if (command) {
		command->kind = kind;
		command->tenant = tenant;
		command->generation =
			atomic_load_explicit(&rq->slot_generations[tenant], memory_order_relaxed);
		command->pid = pid;
		command->start_ticks = start_ticks;
		memcpy(command->path, path, path_bytes);
		if (spsc_push(&rq->commands, command)) {
			tell(rq);
			return true;
		}
		free(command);
	}
	atomic_fetch_add_explicit(&rq->n_dropped, 1, memory_order_relaxed);
	return false;
}

static bool watch(struct run_queue *rq, enum run_queue_command_kind kind, uint16_t tenant,
		  pid_t pid, uint64_t start_ticks, const char *path)
{
	if (spsc_room(&rq->commands) < rq->n_owed + 2) {
		atomic_fetch_add_explicit(&rq->n_dropped, 1, memory_order_relaxed);
		return false;
	}
	if (!command(rq, kind, tenant, pid, start_ticks, path))
		return false;
	rq->n_owed++;
	rq->n_owed_of[tenant]++;
	return true;
}

static void unwatch(struct run_queue *rq, enum run_queue_command_kind kind, uint16_t tenant,
		    pid_t pid, const char *path)
{
	if (!is_used(rq, tenant) || rq->n_owed_of[tenant] == 0)
		return;
	rq->n_owed--;
	rq->n_owed_of[tenant]--;
	command(rq, kind, tenant, pid, 0, path);
}

bool run_queue_watch_process(struct run_queue *rq, pid_t pid, int pidfd, uint16_t tenant)
{
	uint64_t start_ticks;

	return is_used(rq, tenant) && pid > 0 && run_queue_look_up(rq, pid, pidfd, &start_ticks) &&
	       watch(rq, RUN_QUEUE_WATCH_PROCESS, tenant, pid, start_ticks, "");
}

void run_queue_unwatch_process(struct run_queue *rq, pid_t pid, uint16_t tenant)
{
	unwatch(rq, RUN_QUEUE_UNWATCH_PROCESS, tenant, pid, "");
}

bool run_queue_watch_cgroup(struct run_queue *rq, const char *path, uint16_t tenant)
{
	return is_used(rq, tenant) && watch(rq, RUN_QUEUE_WATCH_CGROUP, tenant, 0, 0, path);
}

void run_queue_unwatch_cgroup(struct run_queue *rq, const char *path, uint16_t tenant)
{
	unwatch(rq, RUN_QUEUE_UNWATCH_CGROUP, tenant, 0, path);
}

void run_queue_reset(struct run_queue *rq)
{
	if (!rq || !rq->has_thread)
		return;
	atomic_fetch_add_explicit(&rq->n_resets, 1, memory_order_relaxed);
	tell(rq);
}

void run_queue_cost(struct run_queue *rq, struct run_queue_cost *ret)
{
	*ret = (struct run_queue_cost){0, 0};
	if (!rq)
		return;
	ret->n_events = atomic_load_explicit(&rq->cost_events, memory_order_relaxed);
	ret->event_ns = atomic_load_explicit(&rq->cost_ns, memory_order_relaxed);
}

/* --- Creation and end --- */

/* Find the mount points. */
static int find_roots(struct run_queue *rq, const struct run_queue_options *options)
{
	const char *proc = options->proc_path ? options->proc_path : "/proc";
	size_t bytes;
	int r;

	if (snprintf(rq->proc_path, sizeof(rq->proc_path), "%s", proc) >=
	    (int)sizeof(rq->proc_path))
		return error_origin(-ENAMETOOLONG);
	bytes = proc_read(rq->text, sizeof(rq->text), "%s/self/mounts", rq->proc_path);
	if (!proc_parse_mounts(rq->text, bytes, "cpu", rq->cpu_cgroup_path,
			       sizeof(rq->cpu_cgroup_path)))
		rq->cpu_cgroup_path[0] = '\0';
	if (!proc_parse_mounts(rq->text, bytes, NULL, rq->cgroup_path, sizeof(rq->cgroup_path)))
		rq->cgroup_path[0] = '\0';
	if (options->cgroup_path && snprintf(rq->cgroup_path, sizeof(rq->cgroup_path), "%s",
					     options->cgroup_path) >= (int)sizeof(rq->cgroup_path))
		return error_origin(-ENAMETOOLONG);
	if (rq->cgroup_path[0]) {
		r = cgroup_names_new(rq->cgroup_path, &rq->names);
		if (r)
			return error_fold(r);
	}
	return 0;
}

/* Choose the first source. Return: as load_probes(). */
static int choose_first(struct run_queue *rq, const struct run_queue_options *options)
{
	if (options->source > RUN_QUEUE_SOURCE_EBPF) {
		run_queue_choose(rq, options->source);
		return 0;
	}
	if (options->defers_probes)
		run_queue_choose(rq, RUN_QUEUE_SOURCE_SCHEDSTAT);
	rq->defers_probes = options->defers_probes && run_queue_source(rq) != RUN_QUEUE_SOURCE_NONE;
	return rq->defers_probes ? 0 : load_probes(rq);
}

int run_queue_new(const struct run_queue_options *options, struct run_queue **ret)
{
	_cleanup_(run_queue_freep) struct run_queue *rq = calloc(1, sizeof(*rq));
	int r;

	if (!rq)
		return error_origin(-ENOMEM);
	rq->pace.fd = rq->stat_fd = rq->pressure_fd = -1;
	rq->pid = getpid();
	rq->tick_ns = run_queue_second_ns / (uint64_t)sysconf(_SC_CLK_TCK);
	rq->is_new_list = true;
	for (uint32_t i = 0; i < RUN_QUEUE_MAX_THREADS; i++) {
		rq->threads[i].schedstat_fd = rq->threads[i].status_fd = -1;
		atomic_init(&rq->roles[i], RUN_QUEUE_NO_ROLE);
		atomic_init(&rq->pinned[i], RUN_QUEUE_ANY_PROCESSOR);
	}
	r = pace_init(&rq->pace, RUN_QUEUE_PACE_CONTENDED);
	if (r)
		return error_fold(r);
	if (!spsc_init(&rq->commands, RUN_QUEUE_MAX_COMMANDS))
		return error_origin(-ENOMEM);
	r = find_roots(rq, options);
	if (r)
		return error_fold(r);
	run_queue_read_mask(rq);
	r = choose_first(rq, options);
	if (r)
		return error_fold(r);
	if (run_queue_source(rq) != RUN_QUEUE_SOURCE_NONE) {
		r = thread_start(&rq->thread, "rb-run-queue", run_queue_thread_main, rq);
		if (r)
			return error_fold(r);
		rq->has_thread = true;
	}
	*ret = steal_ptr(rq);
	return 0;
}

struct run_queue *run_queue_free(struct run_queue *rq)
{
	struct run_queue_command *command;

	if (!rq)
		return NULL;
	if (rq->has_thread) {
		atomic_store_explicit(&rq->stop, true, memory_order_relaxed);
		pace_interrupt(&rq->pace);
		pthread_join(rq->thread, NULL);
	}
	if (rq->commands.slots)
		while ((command = spsc_pop(&rq->commands)))
			free(command);
	spsc_deinit(&rq->commands);
	run_queue_forget_all(rq);
	probes_free(rq->probes);
	cgroup_names_free(rq->names);
	close_fd(rq->stat_fd);
	close_fd(rq->pressure_fd);
	pace_deinit(&rq->pace);
	free(rq);
	return NULL;
}
