/* SPDX-License-Identifier: MIT */
/*
 * Reacting to CPU contention caused by other processes
 *
 * A timer looks every 10 ms from when the dispatcher gets work until it has none. While the CPU is
 * contended the timer continues for a moment after that, so that requests that come one by one are
 * not each judged anew. After that, the verdict stays unchanged until there is work again. A broker
 * without work needs no verdict, and must not wake up.
 *
 * A tenant's share of the contention is the time that its processes made the broker's threads wait,
 * divided by all that these waited, over about the last 200 ms in which they did wait. Both sums
 * decay alike: while work is placed elsewhere and no thread waits, the share stays.
 *
 * The log has a line at the beginning and one at the end of contention, but at most one such pair
 * in ten seconds: further ones are counted, and the next line reports the count. For the log,
 * contention begins once it has lasted a quarter of a second: before that its cause is unknown, and
 * a shorter one is not worth a line. The thread that collects causes waits for a processor, too. So
 * the line is delayed by up to five seconds if the source reports causes and has not reported one
 * yet.
 */
#include "contention/contention.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contention/contention-judge.h"
#include "cpu/cpu.h"
#include "dispatch/dispatch.h"
#include "loop/loop.h"
#include "session/session.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/list.h"
#include "util/log.h"
#include "util/number.h"
#include "util/plural.h"
#include "util/proc.h"

static const uint64_t look_ns = 10000000;
/*
 * Look period after the last work during contention: linger_ns at look_ns, then linger_look_ns if a
 * client reads statistics.
 */
static const uint64_t linger_ns = 100000000;
static const uint64_t linger_look_ns = 100000000;
/* Older verdicts no longer apply. */
static const uint64_t stale_ns = 10000000000;
/*
 * Time of hurried reports for a new reader of statistics, so that the second update shows what the
 * first requested.
 */
static const uint64_t fresh_ns = 1000000000;
static const uint64_t fade_ns = 200000000;
static const uint64_t say_after_ns = 250000000;
static const uint64_t say_anyway_ns = 5000000000;
static const uint64_t say_again_ns = 10000000000;

/* Longest path: per session, the run queue keeps the path and this module a copy. */
static const size_t max_cgroup_bytes = (SERVER_OBSERVED_BYTES - 256) / 2;

/* A tenant that has sessions. */
struct watched_tenant {
	struct list_node link; /* in contention.tenants */
	const struct tenant *tenant;
	uint16_t slot; /* RUN_QUEUE_NO_TENANT */
	uint32_t n_sessions;
	uint64_t caused_ns; /* as of the last look */
	double faded_ns;    /* time that it caused lately, decayed */
	float share;        /* last share passed to the dispatcher */
};

/* A session's process. */
struct watched_session {
	struct watched_tenant *tenant;
	pid_t pid;    /* 0: not watched */
	char *cgroup; /* NULL: no cgroup is watched for it */
};

/* State of the log for the current contention. */
enum said { SAID_NOTHING, SAID_LATER, SAID_BEGIN };

struct contention {
	struct contention_options options;
	struct dispatch *dispatch;
	struct loop_timer *timer;
	struct loop_timer *fresh_timer; /* until it expires, reports are hurried */
	struct list_node tenants;
	char *own_cgroup; /* NULL: unknown */
	bool is_off;      /* there is no source, and never was */
	bool hides_others;
	bool is_armed;
	bool is_watched, is_fresh;
	enum run_queue_source source;  /* as of the last look */
	uint64_t looked_ns, worked_ns; /* times of the last look and of the last work */
	bool is_needed; /* the CPU did work since the last sample that no other device could do */

	struct run_queue_totals totals; /* as of the last look */
	double faded_wait_ns;
	struct contention_judge judge;
	struct contention_verdict verdict;

	/* Actions in force. */
	float factor;
	uint32_t n_workers;
	bool is_told;

	uint64_t n_began, began_at_ns, contended_ns;
	uint64_t began_ns; /* last beginning, as clock_now_ns() */
	enum said said;
	uint64_t said_ns;  /* last logged beginning; 0: never */
	uint64_t n_unsaid; /* beginnings since then */
};

static uint32_t n_workers_total(const struct contention *contention)
{
	const uint32_t n = contention->options.cpu->info.n_threads;

	return n ? n : 1;
}

/* --- Processes to watch --- */

/*
 * Return true if this process is in @cgroup, or below: other processes that belong to no tenant
 * then are, too.
 */
static bool is_own_cgroup(const struct contention *contention, const char *cgroup)
{
	const char *own = contention->own_cgroup;
	size_t n = strlen(cgroup);

	if (strcmp(cgroup, "/") == 0)
		return true;
	return own && strncmp(own, cgroup, n) == 0 && (own[n] == '/' || own[n] == '\0');
}

static struct watched_tenant *find_tenant(const struct contention *contention,
					  const struct tenant *tenant)
{
	list_for_each (node, &contention->tenants) {
		struct watched_tenant *watched = container_of(node, struct watched_tenant, link);

		if (watched->tenant == tenant)
			return watched;
	}
	return NULL;
}

static struct watched_tenant *watch_tenant(struct contention *contention,
					   const struct tenant *tenant)
{
	struct run_queue *rq = contention->options.run_queue;
	struct watched_tenant *watched = calloc(1, sizeof(*watched));

	if (!watched)
		return NULL;
	watched->tenant = tenant;
	watched->slot = run_queue_add_tenant(rq);
	watched->caused_ns = run_queue_caused_ns(rq, watched->slot);
	list_append(&contention->tenants, &watched->link);
	return watched;
}

static void unwatch_tenant(struct contention *contention, struct watched_tenant *tenant)
{
	if (--tenant->n_sessions > 0)
		return;
	if (tenant->share > 0)
		dispatch_set_own_contention(contention->dispatch, tenant->tenant, 0);
	run_queue_remove_tenant(contention->options.run_queue, tenant->slot);
	list_remove(&tenant->link);
	free(tenant);
}

static void set_pace(struct contention *contention)
{
	enum run_queue_pace pace = RUN_QUEUE_PACE_IDLE;

	if (contention->is_fresh || (contention->is_armed && contention->verdict.is_contended))
		pace = RUN_QUEUE_PACE_CONTENDED;
	else if (contention->is_armed)
		pace = RUN_QUEUE_PACE_BUSY;
	else if (contention->is_watched)
		pace = RUN_QUEUE_PACE_SESSIONS;
	run_queue_set_pace(contention->options.run_queue, pace);
}

/* Watch a session's process. Without memory it is not watched. */
static void on_session_added(void *context, struct session *session, int pidfd, const char *cgroup)
{
	struct contention *contention = context;
	struct run_queue *rq = contention->options.run_queue;
	struct watched_session *watched;
	struct watched_tenant *tenant;

	/* 0: the process is in a pid namespace that this process does not see. */
	if (session->pid <= 0 || contention->is_off)
		return;
	watched = calloc(1, sizeof(*watched));
	if (!watched)
		return;
	tenant = find_tenant(contention, session->tenant);
	if (!tenant)
		tenant = watch_tenant(contention, session->tenant);
	if (!tenant) {
		free(watched);
		return;
	}
	tenant->n_sessions++;
	watched->tenant = tenant;
	if (run_queue_watch_process(rq, session->pid, pidfd, tenant->slot))
		watched->pid = session->pid;
	if (cgroup && strlen(cgroup) < max_cgroup_bytes && !is_own_cgroup(contention, cgroup))
		watched->cgroup = strdup(cgroup);
	if (watched->cgroup && !run_queue_watch_cgroup(rq, watched->cgroup, tenant->slot)) {
		free(watched->cgroup);
		watched->cgroup = NULL;
	}
	session->observed = watched;
}

static void on_session_removed(void *context, struct session *session)
{
	struct contention *contention = context;
	struct run_queue *rq = contention->options.run_queue;
	struct watched_session *watched = session->observed;

	if (!watched)
		return;
	if (watched->pid)
		run_queue_unwatch_process(rq, watched->pid, watched->tenant->slot);
	if (watched->cgroup)
		run_queue_unwatch_cgroup(rq, watched->cgroup, watched->tenant->slot);
	unwatch_tenant(contention, watched->tenant);
	free(watched->cgroup);
	free(watched);
	session->observed = NULL;
}

struct server_observer contention_observer(struct contention *contention)
{
	return (struct server_observer){
		.session_added = on_session_added,
		.session_removed = on_session_removed,
		.context = contention,
	};
}

uint16_t contention_slot(const struct contention *contention, uint32_t tenant)
{
	list_for_each (node, &contention->tenants) {
		struct watched_tenant *watched = container_of(node, struct watched_tenant, link);

		if (watched->tenant->number == tenant)
			return watched->slot;
	}
	return RUN_QUEUE_NO_TENANT;
}

static const struct tenant *tenant_of(const struct contention *contention, uint16_t slot)
{
	if (slot == RUN_QUEUE_NO_TENANT)
		return NULL;
	list_for_each (node, &contention->tenants) {
		struct watched_tenant *watched = container_of(node, struct watched_tenant, link);

		if (watched->slot == slot)
			return watched->tenant;
	}
	return NULL;
}

uint32_t contention_tenant(const struct contention *contention, uint16_t slot)
{
	const struct tenant *tenant = tenant_of(contention, slot);

	return tenant ? tenant->number : 0;
}

/* --- The log --- */

/* Return the source's name for people. */
static const char *place_of(enum run_queue_source source)
{
	static const char *const places[] = {
		[RUN_QUEUE_SOURCE_AUTO] = "nothing",
		[RUN_QUEUE_SOURCE_EBPF] = "eBPF",
		[RUN_QUEUE_SOURCE_SCHEDSTAT] = "/proc/PID/schedstat",
		[RUN_QUEUE_SOURCE_PSI] = "/proc/pressure/cpu",
		[RUN_QUEUE_SOURCE_STAT] = "/proc/stat",
		[RUN_QUEUE_SOURCE_NONE] = "nothing",
	};

	return places[source];
}

const char *contention_watched_by(const struct contention *contention)
{
	static const char *const sentences[] = {
		[RUN_QUEUE_SOURCE_AUTO] = "not watched",
		[RUN_QUEUE_SOURCE_EBPF] = "watched by eBPF",
		[RUN_QUEUE_SOURCE_SCHEDSTAT] = "watched by /proc/PID/schedstat",
		[RUN_QUEUE_SOURCE_PSI] = "watched by /proc/pressure/cpu",
		[RUN_QUEUE_SOURCE_STAT] = "watched by /proc/stat",
		[RUN_QUEUE_SOURCE_NONE] = "not watched",
	};

	return sentences[run_queue_source(contention->options.run_queue)];
}

/*
 * Describe the main causer of the workers' waits.
 * Return: true if one is known.
 */
static bool describe_cause(const struct contention *contention, char *text, size_t bytes)
{
	const struct run_queue *rq = contention->options.run_queue;
	struct run_queue_report report;
	const struct tenant *tenant;

	snprintf(text, bytes, "%s does not tell by which program", place_of(contention->source));
	if (!run_queue_workers(rq, &report))
		return false;
	for (uint32_t i = 0; i < report.n_causes && i < RUN_QUEUE_TOP; i++) {
		const struct run_queue_cause *cause = &report.causes[i];
		char where[32] = "in another PID namespace";
		const char *in = cause->pid ? " in " : ", in ";

		if (cause->is_own || cause->pid == getpid())
			continue;
		tenant = tenant_of(contention, cause->tenant);
		/* A process outside the broker's container has no number in it. */
		if (cause->pid)
			snprintf(where, sizeof(where), "process %d", (int)cause->pid);
		snprintf(text, bytes, "most by %s, %s%s%s%s%s", cause->comm, where,
			 cause->cgroup[0] ? in : "", cause->cgroup, tenant ? ", of tenant " : "",
			 tenant ? tenant_name(tenant) : "");
		return true;
	}
	return false;
}

static void say_begin(struct contention *contention, const char *cause, uint64_t now_ns)
{
	const struct contention_verdict *verdict = &contention->verdict;
	const uint32_t n_total = n_workers_total(contention);
	const uint32_t n = contention->options.observes ? n_total : verdict->n_workers;
	char unsaid[64] = "";

	if (contention->n_unsaid > 0)
		snprintf(unsaid, sizeof(unsaid), "; contended %llu time%s since the last such line",
			 ull(contention->n_unsaid), plural(contention->n_unsaid));
	log_info(
		LOG_CONTENTION_BEGAN,
		"the CPU is contended (%s): tasks take %.1f times as long on it; %u of %u worker%s "
		"%s used%s%s",
		cause, (double)verdict->factor, n, n_total, plural(n_total), n == 1 ? "is" : "are",
		contention->options.observes ? ", because placement ignores contention" : "",
		unsaid);
	contention->said = SAID_BEGIN;
	contention->said_ns = now_ns;
	contention->n_unsaid = 0;
}

/* Log the beginning, if it is due. */
static void consider_saying(struct contention *contention, uint64_t now_ns)
{
	const uint64_t lasted_ns = now_ns - contention->began_ns;
	char cause[RUN_QUEUE_PATH_BYTES + 128];

	if (lasted_ns < say_after_ns ||
	    (contention->said_ns != 0 && now_ns - contention->said_ns < say_again_ns))
		return;
	if (describe_cause(contention, cause, sizeof(cause)) ||
	    contention->source != RUN_QUEUE_SOURCE_EBPF || lasted_ns >= say_anyway_ns)
		say_begin(contention, cause, now_ns);
}

static void say(struct contention *contention, uint64_t now_ns)
{
	if (contention->verdict.is_contended) {
		if (contention->said == SAID_LATER)
			consider_saying(contention, now_ns);
		return;
	}
	if (contention->said == SAID_BEGIN)
		log_info(LOG_CONTENTION_ENDED, "the CPU is no longer contended, after %.1f s",
			 (double)(now_ns - contention->began_ns) / 1e9);
	else if (contention->said == SAID_LATER)
		contention->n_unsaid++;
	contention->said = SAID_NOTHING;
}

/* Check the source: probes may be detached by others, and cgroups can lose their files. */
static void look_at_source(struct contention *contention)
{
	const struct run_queue *rq = contention->options.run_queue;
	enum run_queue_source source = run_queue_source(rq);
	const char *why = "", *sentence;

	if (source == contention->source)
		return;
	contention->source = source;
	if (source == RUN_QUEUE_SOURCE_EBPF) {
		log_info(LOG_CONTENTION_SOURCE, "CPU contention is now watched by %s",
			 place_of(source));
		return;
	}
	for (unsigned int i = 0; (sentence = run_queue_sentence(rq, i)); i++)
		why = sentence;
	log_warning(LOG_CONTENTION_SOURCE, "CPU contention is now watched by %s: %s",
		    place_of(source), why);
}

/* --- Looks, and reactions --- */

/* Update the tenants' shares. If the source was replaced, its counts restart, and so do these. */
static void look_at_shares(struct contention *contention, const struct run_queue_totals *totals,
			   uint64_t elapsed_ns)
{
	const double fading = 1 / (1 + (double)elapsed_ns / (double)fade_ns);
	uint64_t wait_ns = saturating_sub(totals->wait_ns, contention->totals.wait_ns), all_ns = 0;

	if (!totals->has_workers)
		wait_ns = 0;
	list_for_each (node, &contention->tenants) {
		struct watched_tenant *tenant = container_of(node, struct watched_tenant, link);
		uint64_t caused_ns =
			run_queue_caused_ns(contention->options.run_queue, tenant->slot);
		uint64_t own_ns = saturating_sub(caused_ns, tenant->caused_ns);

		tenant->caused_ns = caused_ns;
		tenant->faded_ns = tenant->faded_ns * fading + (double)own_ns;
		all_ns += own_ns;
	}
	/* The reactor's waits are part of the time that tenants caused, but not of wait_ns. */
	contention->faded_wait_ns =
		contention->faded_wait_ns * fading + (double)(wait_ns > all_ns ? wait_ns : all_ns);
}

static void tell_shares(struct contention *contention, bool is_contended)
{
	const double all_ns = contention->faded_wait_ns;

	list_for_each (node, &contention->tenants) {
		struct watched_tenant *tenant = container_of(node, struct watched_tenant, link);
		float share = 0;

		if (is_contended && all_ns > 0 && tenant->faded_ns > 0)
			share = tenant->faded_ns < all_ns ? (float)(tenant->faded_ns / all_ns) : 1;
		if (share == 0 && tenant->share == 0)
			continue;
		/*
		 * Repeat an unchanged share: the dispatcher forgets it with the tenant's last ring.
		 */
		tenant->share = share;
		dispatch_set_own_contention(contention->dispatch, tenant->tenant, share);
	}
}

static void act(struct contention *contention)
{
	const struct contention_verdict *verdict = &contention->verdict;
	const bool acts = !contention->options.observes;
	struct placer *placer = dispatch_placer(contention->dispatch);
	const float factor = acts ? verdict->factor : 1;
	const bool is_contended = acts && verdict->is_contended;
	const uint32_t n_workers =
		acts && verdict->n_workers ? verdict->n_workers : n_workers_total(contention);

	/* Log the factor in observing mode, too. */
	dispatch_log_contention(contention->dispatch, verdict->is_contended ? verdict->factor : 1);
	for (uint8_t i = 0; factor != contention->factor && i < RBK_MAX_DEVICES; i++)
		if (i == RBK_DEVICE_CPU || contention->options.software_gpus >> i & 1)
			placer_set_contention(placer, i, factor, clock_now_ns());
	if (n_workers != contention->n_workers)
		placer_limit_servers(placer, RBK_DEVICE_CPU, n_workers);
	if (n_workers != contention->n_workers || is_contended != contention->is_told)
		cpu_executor_limit(contention->options.cpu, n_workers, is_contended);
	if (is_contended != contention->is_told)
		dispatch_set_contended(contention->dispatch, is_contended);
	contention->factor = factor;
	contention->n_workers = n_workers;
	contention->is_told = is_contended;
	tell_shares(contention, is_contended);
}

/* Feed the judge. Figures read by the watching thread may be unchanged since the last time. */
static void feed(struct contention *contention, const struct run_queue_totals *totals)
{
	const struct contention_sample sample = {
		.at_ns = totals->at_ns,
		.has_workers = totals->has_workers,
		.has_processors = totals->has_processors,
		.has_stall = totals->has_stall,
		.run_ns = totals->run_ns,
		.wait_ns = totals->wait_ns,
		.n_preemptions = totals->n_preemptions,
		.idle_wait_ns = totals->idle_wait_ns,
		.idle_ns = totals->idle_ns,
		.others_ns = totals->others_ns,
		.steal_ns = totals->steal_ns,
		.stall_ns = totals->stall_ns,
		.n_processors = totals->n_processors,
		.is_needed = contention->is_needed,
	};

	if (totals->at_ns == contention->totals.at_ns)
		return;
	contention->is_needed = false;
	contention->verdict = *contention_judge_feed(&contention->judge, &sample);
}

static void look(struct contention *contention, uint64_t now_ns)
{
	const bool was_contended = contention->verdict.is_contended;
	const uint64_t elapsed_ns = now_ns - contention->looked_ns;
	struct run_queue_totals totals = {.at_ns = 0};

	look_at_source(contention);
	run_queue_read(contention->options.run_queue, &totals);
	contention->is_needed |=
		placer_is_needed(dispatch_placer(contention->dispatch), RBK_DEVICE_CPU);
	feed(contention, &totals);
	look_at_shares(contention, &totals, elapsed_ns);
	contention->totals = totals;
	contention->looked_ns = now_ns;
	if (was_contended)
		contention->contended_ns += elapsed_ns;
	if (!was_contended && contention->verdict.is_contended) {
		contention->n_began++;
		contention->began_ns = now_ns;
		contention->began_at_ns = clock_ticks_to_ns(clock_ticks());
		contention->said = SAID_LATER;
	}
	say(contention, now_ns);
	act(contention);
}

static void on_timer(void *data)
{
	struct contention *contention = data;
	const uint64_t now_ns = clock_now_ns();
	uint64_t next_ns = look_ns;

	look(contention, now_ns);
	if (dispatch_is_working(contention->dispatch))
		contention->worked_ns = now_ns;
	else if (!contention->verdict.is_contended &&
		 contention->n_workers == n_workers_total(contention))
		next_ns = 0;
	else if (now_ns - contention->worked_ns >= linger_ns)
		next_ns = contention->is_watched ? linger_look_ns : 0;
	contention->is_armed = next_ns > 0;
	if (contention->is_armed)
		loop_timer_arm(contention->timer, next_ns);
	set_pace(contention);
}

/* Reset the verdict, whose observations are too old. */
static void forget(struct contention *contention)
{
	const struct contention_config config = contention->judge.config;
	const uint32_t n_workers = n_workers_total(contention);

	if (contention->said == SAID_BEGIN)
		log_info(LOG_CONTENTION_ENDED,
			 "the CPU was contended when the broker last had work; it has none now");
	contention->said = SAID_NOTHING;
	contention_judge_init(&contention->judge, &config, n_workers);
	contention->verdict = (struct contention_verdict){.factor = 1, .n_workers = n_workers};
	act(contention);
}

void contention_work_begins(void *context)
{
	struct contention *contention = context;
	const uint64_t now_ns = clock_now_ns();

	if (!contention->dispatch || contention->is_off)
		return;
	contention->worked_ns = now_ns;
	/* The timer may have been armed for later. */
	loop_timer_arm(contention->timer, look_ns);
	if (contention->is_armed)
		return;
	contention->is_armed = true;
	if (now_ns - contention->looked_ns > stale_ns)
		forget(contention);
	/* Unobserved time does not count. */
	contention->looked_ns = now_ns;
	set_pace(contention);
}

/* --- The rest --- */

void contention_status(const struct contention *contention, struct contention_status *ret)
{
	struct run_queue_totals totals = {.at_ns = 0};

	/* Include tenants that connected while there was no work. */
	run_queue_read(contention->options.run_queue, &totals);
	*ret = (struct contention_status){
		.is_contended = contention->verdict.is_contended,
		.observes = contention->options.observes,
		.factor = contention->verdict.factor,
		.n_workers = contention->n_workers,
		.n_workers_total = n_workers_total(contention),
		.n_began = contention->n_began,
		.began_at_ns = contention->began_at_ns,
		.contended_ns = contention->contended_ns,
		.n_unwatched = totals.n_unwatched,
		.n_dropped = totals.n_dropped,
	};
}

bool contention_hides_others(const struct contention *contention)
{
	return contention->hides_others;
}

struct run_queue *contention_run_queue(const struct contention *contention)
{
	return contention->options.run_queue;
}

void contention_set_observes(struct contention *contention, bool observes)
{
	contention->options.observes = observes;
	if (contention->dispatch)
		act(contention);
}

static void on_fresh(void *data)
{
	struct contention *contention = data;

	contention->is_fresh = false;
	set_pace(contention);
}

void contention_set_watched(struct contention *contention, bool is_watched)
{
	contention->is_watched = contention->is_fresh = is_watched;
	if (is_watched)
		loop_timer_arm(contention->fresh_timer, fresh_ns);
	else
		loop_timer_disarm(contention->fresh_timer);
	set_pace(contention);
	/* Arm the timer, so that the end is seen. */
	if (is_watched && !contention->is_armed && contention->verdict.is_contended) {
		contention->is_armed = true;
		contention->looked_ns = clock_now_ns();
		loop_timer_arm(contention->timer, look_ns);
	}
}

void contention_reset(struct contention *contention)
{
	contention->n_began = contention->contended_ns = 0;
	/* A contention in progress keeps its beginning. */
	if (!contention->verdict.is_contended)
		contention->began_at_ns = 0;
	run_queue_reset(contention->options.run_queue);
}

void contention_start(struct contention *contention, struct dispatch *dispatch)
{
	contention->dispatch = dispatch;
}

/* Return true if /proc shows processes only to their users. */
static bool has_hidepid(void)
{
	_cleanup_(fclosep) FILE *file = fopen("/proc/self/mountinfo", "re");
	_cleanup_(freep) char *line = NULL;
	const char *option;
	char path[8];
	bool is_hidden = false;
	size_t bytes = 0;

	while (file && getline(&line, &bytes, file) >= 0) {
		if (sscanf(line, "%*s %*s %*s %*s %7s", path) != 1 || strcmp(path, "/proc") != 0)
			continue;
		/* The last mount on that path counts. */
		option = strstr(line, "hidepid=");
		is_hidden = option && strncmp(option, "hidepid=0", 9) != 0 &&
			    strncmp(option, "hidepid=off", 11) != 0;
	}
	return is_hidden;
}

int contention_new(const struct contention_options *options, struct contention **ret)
{
	_cleanup_(contention_freep) struct contention *contention = calloc(1, sizeof(*contention));
	const struct contention_config config = CONTENTION_CONFIG_DEFAULT;
	const char *own_cgroup = options->own_cgroup;
	char path[2 * PATH_MAX];
	int r;

	if (!contention)
		return error_origin(-ENOMEM);
	contention->options = *options;
	list_init(&contention->tenants);
	contention->source = run_queue_source(options->run_queue);
	contention->is_off = contention->source == RUN_QUEUE_SOURCE_NONE;
	if (!own_cgroup && proc_own_cgroup(path, sizeof(path)))
		own_cgroup = path;
	contention->own_cgroup = own_cgroup ? strdup(own_cgroup) : NULL;
	contention->hides_others = has_hidepid();
	contention->factor = 1;
	contention->n_workers = n_workers_total(contention);
	contention->verdict =
		(struct contention_verdict){.factor = 1, .n_workers = contention->n_workers};
	contention_judge_init(&contention->judge, &config, contention->n_workers);
	r = loop_timer_new(options->loop, on_fresh, contention, &contention->fresh_timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_timer, contention, &contention->timer);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(contention);
	return 0;
}

struct contention *contention_free(struct contention *contention)
{
	if (!contention)
		return NULL;
	loop_timer_free(contention->timer);
	loop_timer_free(contention->fresh_timer);
	free(contention->own_cgroup);
	free(contention);
	return NULL;
}
