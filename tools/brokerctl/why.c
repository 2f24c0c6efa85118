/* SPDX-License-Identifier: MIT */
/*
 * brokerctl why: why a task, a plan, a tenant or a session was slow, or an entry was refused;
 * leases are in why-lease.c
 *
 * The answer begins with the cause that took longest. judge.c divides the times in the decision
 * log; sentences add what counters and states show. Users other than administrators see their own
 * tenant's page, and of other tenants' tasks only that something else delayed their own. A tenant
 * without sessions has no page: the root page has its limits and totals.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "judge.h"
#include "logs.h"
#include "output.h"
#include "reasons.h"
#include "records.h"
#include "segments.h"
#include "shm/sqe-check.h"
#include "util/plural.h"
#include "why-lease.h"

enum { MAX_FACTS = 32, FACT_BYTES = 384, MAX_JUDGED = 1000, MAX_REFUSED = 5 };

enum subject {
	SUBJECT_ANY,
	SUBJECT_TASK,
	SUBJECT_PLAN,
	SUBJECT_TENANT,
	SUBJECT_SESSION,
	SUBJECT_LEASE,
};
/* NULL ends the list for control_wrong_word(). */
static const char *const subject_names[] = {NULL,      "task",  "plan", "tenant",
					    "session", "lease", NULL};

struct why {
	struct pages pages; /* all pages that this user may read */
	struct log_entry *entries;
	size_t n_entries;
	struct refused_entry *refused;
	size_t n_refused;
	struct segment_entry *segments;
	size_t n_segments;

	enum subject subject;
	unsigned int tenant;                     /* index in pages; UINT_MAX: it has no page */
	const struct rbk_stats_decision *task;   /* for SUBJECT_TASK, unless it was refused */
	const struct rbk_stats_refused *refusal; /* for SUBJECT_TASK that was refused */
	uint32_t session;                        /* for SUBJECT_SESSION */
	struct lease_subject lease;              /* for SUBJECT_LEASE */
	uint32_t slot;                 /* of the plan (SUBJECT_PLAN) or of the task's plan */
	struct rbk_stats_tenant about; /* the tenant's record */

	struct judge judge;
	struct busy *busy; /* the judge's */
	struct verdict verdict;
	struct task_segments task_segments; /* for SUBJECT_TASK */
	char facts[MAX_FACTS][FACT_BYTES];
	unsigned int n_facts;

	/* the plan, or the task's plan; state FREE: not known */
	union plan_copy plan;
};

__attribute__((format(printf, 2, 3))) static void fact(struct why *why, const char *format, ...)
{
	va_list args;

	if (why->n_facts == MAX_FACTS)
		return;
	va_start(args, format);
	vsnprintf(why->facts[why->n_facts++], FACT_BYTES, format, args);
	va_end(args);
}

static const struct tenant_page *page_of(const struct why *why)
{
	return &why->pages.tenants[why->tenant];
}

static bool has_page(const struct why *why)
{
	return why->tenant != UINT_MAX;
}

/* --- What is meant --- */

/* Return true if the tenant is the one that --tenant names, or if --tenant is absent. */
static bool is_wanted(const struct why *why, unsigned int tenant, const char *wanted)
{
	const struct tenant_page *page = &why->pages.tenants[tenant];
	uint64_t number;

	return !wanted || strcmp(page->name, wanted) == 0 ||
	       (pages_number(wanted, UINT32_MAX, &number) && page->number == number);
}

/* Find the slot of a plan that lives in @session, or UINT32_MAX. */
static uint32_t find_slot(const struct why *why, unsigned int tenant, uint32_t session,
			  uint32_t plan_id)
{
	const struct rbk_stats_view *view = &why->pages.tenants[tenant].view;
	union plan_copy plan;

	for (uint32_t k = 0; k < rbk_stats_count(view, RBK_STATS_SECTION_PLANS); k++)
		if (page_copy_plan(view, k, &plan) && plan.plan.plan_id == plan_id &&
		    plan.plan.session == session && plan.plan.state == RBK_STATS_PLAN_LIVE)
			return k;
	return UINT32_MAX;
}

/* Prefer the latest refused entry with @user_data to a task that ended before. */
static void find_refusal(struct why *why, uint64_t user_data, const char *wanted)
{
	for (size_t i = why->n_refused; i-- > 0;) {
		const struct rbk_stats_refused *refused = &why->refused[i].refused;

		if (refused->user_data != user_data ||
		    !is_wanted(why, why->refused[i].tenant, wanted))
			continue;
		if (why->task && why->task->ended_at_ns > refused->refused_at_ns)
			return;
		why->subject = SUBJECT_TASK;
		why->tenant = why->refused[i].tenant;
		why->task = NULL;
		why->refusal = refused;
		why->slot = find_slot(why, why->tenant, refused->session, refused->plan_id);
		return;
	}
}

/*
 * Find the latest task with the given user_data, or the task with the log index after a '#'; the
 * latest of all if @name is NULL.
 */
static bool find_task(struct why *why, const char *name, const char *wanted)
{
	const bool is_index = name && name[0] == '#';
	uint64_t number = 0;

	if (name && !pages_number(name + is_index, UINT64_MAX, &number))
		return false;
	for (size_t i = why->n_entries; i-- > 0;) {
		const struct rbk_stats_decision *decision = &why->entries[i].decision;

		if (!is_wanted(why, why->entries[i].tenant, wanted) ||
		    (name && (is_index ? decision->sequence - 1 : decision->user_data) != number))
			continue;
		why->subject = SUBJECT_TASK;
		why->tenant = why->entries[i].tenant;
		why->task = decision;
		why->slot = decision->plan;
		break;
	}
	if (name && !is_index)
		find_refusal(why, number, wanted);
	return why->subject == SUBJECT_TASK;
}

/* Find a plan by name or id; a live plan before one that is gone, and the latest of several. */
static bool find_plan(struct why *why, const char *name, const char *wanted)
{
	uint64_t id, best_at_ns = 0;
	bool is_id = pages_number(name, UINT32_MAX, &id), is_live = false, was_found = false;
	union plan_copy plan;

	for (unsigned int i = 0; i < why->pages.n_tenants; i++) {
		const struct rbk_stats_view *view = &why->pages.tenants[i].view;

		if (!is_wanted(why, i, wanted))
			continue;
		for (uint32_t k = 0; k < rbk_stats_count(view, RBK_STATS_SECTION_PLANS); k++) {
			bool lives;

			if (!page_copy_plan(view, k, &plan) ||
			    (strcmp(plan.plan.name, name) != 0 &&
			     !(is_id && plan.plan.plan_id == id)))
				continue;
			lives = plan.plan.state == RBK_STATS_PLAN_LIVE;
			if (was_found && (is_live > lives ||
					  (is_live == lives && plan.plan.made_at_ns < best_at_ns)))
				continue;
			was_found = true;
			is_live = lives;
			best_at_ns = plan.plan.made_at_ns;
			why->subject = SUBJECT_PLAN;
			why->tenant = i;
			why->slot = k;
		}
	}
	return was_found;
}

/* Find the record of a tenant without a page. Return: false if the root page has none. */
static bool find_record(const struct pages *pages, const char *name, struct rbk_stats_tenant *ret)
{
	const struct rbk_stats_view *root = &pages->root;
	uint32_t number;

	if (!pages_find_number(pages, name, &number))
		return false;
	for (uint32_t i = 0; i < rbk_stats_used(root, RBK_STATS_SECTION_TENANTS); i++)
		if (tenant_copy(root, i, ret) && ret->number == number)
			return true;
	return false;
}

static bool find_tenant(struct why *why, const char *name)
{
	for (unsigned int i = 0; i < why->pages.n_tenants; i++) {
		if (!is_wanted(why, i, name))
			continue;
		why->subject = SUBJECT_TENANT;
		why->tenant = i;
		return true;
	}
	if (!find_record(&why->pages, name, &why->about))
		return false;
	why->subject = SUBJECT_TENANT;
	why->tenant = UINT_MAX;
	return true;
}

/*
 * Explain why a task or plan of the tenant @wanted was not found, if the tenant is the reason.
 * Return: EXIT_OK if it is not, otherwise EXIT_FAILED after an error message.
 */
static int check_wanted(const struct why *why, const char *wanted)
{
	struct rbk_stats_tenant tenant;

	for (unsigned int i = 0; i < why->pages.n_tenants; i++)
		if (is_wanted(why, i, wanted))
			return EXIT_OK;
	if (find_record(&why->pages, wanted, &tenant))
		return control_fail(EXIT_FAILED,
				    "tenant %s has no session now: its tasks and plans are listed "
				    "only while it has; see brokerctl why tenant %s",
				    text_name(tenant.name), text_name(tenant.name));
	return control_fail(EXIT_FAILED, "there is no tenant %s%s", text_name(wanted),
			    why->pages.has_all ? "; see brokerctl tenants" : " that you may see");
}

/* Return true if the page has session @number: as connected, in the log, or with refused entries.
 */
static bool has_session(const struct why *why, unsigned int tenant, uint32_t number)
{
	const struct rbk_stats_view *view = &why->pages.tenants[tenant].view;
	struct rbk_stats_session session;

	for (uint32_t k = 0; k < rbk_stats_count(view, RBK_STATS_SECTION_SESSIONS); k++)
		if (session_copy(view, k, &session) && session.number == number)
			return true;
	for (size_t i = 0; i < why->n_entries; i++)
		if (why->entries[i].tenant == tenant && why->entries[i].decision.session == number)
			return true;
	for (size_t i = 0; i < why->n_refused; i++)
		if (why->refused[i].tenant == tenant && why->refused[i].refused.session == number)
			return true;
	return false;
}

static bool find_session(struct why *why, const char *name, const char *wanted)
{
	uint64_t number;

	if (!pages_number(name, UINT32_MAX, &number))
		return false;
	for (unsigned int i = 0; i < why->pages.n_tenants; i++) {
		if (!is_wanted(why, i, wanted) || !has_session(why, i, (uint32_t)number))
			continue;
		why->subject = SUBJECT_SESSION;
		why->tenant = i;
		why->session = (uint32_t)number;
		return true;
	}
	return false;
}

static bool find_lease(struct why *why, const char *name, const char *wanted)
{
	if (!why_lease_find(&why->pages, name, wanted, &why->lease))
		return false;
	why->subject = SUBJECT_LEASE;
	return true;
}

/* Return: EXIT_*, after an error message if nothing was found. */
static int find_subject(struct why *why, const struct arguments *arguments)
{
	const char *wanted = arguments->values[OPT_TENANT], *name = arguments->operands[0];
	enum subject subject = SUBJECT_ANY;
	uint64_t number;
	bool is_last;

	if (arguments->n_operands == 2) {
		for (unsigned int i = SUBJECT_TASK; i <= SUBJECT_LEASE; i++)
			if (strcmp(subject_names[i], name) == 0)
				subject = (enum subject)i;
		if (subject == SUBJECT_ANY)
			return control_wrong_word(arguments, name, &subject_names[SUBJECT_TASK]);
		name = arguments->operands[1];
	}
	is_last = subject == SUBJECT_TASK && strcmp(name, "last") == 0;
	if (((subject == SUBJECT_ANY || subject == SUBJECT_TASK) &&
	     find_task(why, is_last ? NULL : name, wanted)) ||
	    ((subject == SUBJECT_ANY || subject == SUBJECT_PLAN) && find_plan(why, name, wanted)) ||
	    ((subject == SUBJECT_ANY || subject == SUBJECT_TENANT) && find_tenant(why, name)) ||
	    ((subject == SUBJECT_ANY || subject == SUBJECT_LEASE) &&
	     find_lease(why, name, wanted)) ||
	    (subject == SUBJECT_SESSION && find_session(why, name, wanted)))
		return EXIT_OK;
	if (wanted && check_wanted(why, wanted))
		return EXIT_FAILED;
	if (subject == SUBJECT_ANY && strcmp(name, "last") == 0)
		return control_fail(EXIT_FAILED,
				    "there is no task, plan, tenant or lease last; 'why task "
				    "last' explains the latest task");
	if (is_last)
		return control_fail(EXIT_FAILED,
				    "no task is logged: none has ended, or their tenants have no "
				    "session any more");
	if (subject == SUBJECT_TASK && !pages_number(name + (name[0] == '#'), UINT64_MAX, &number))
		return control_fail(EXIT_USAGE,
				    "%s is no task: give its user_data, # and its index in the "
				    "log, or last",
				    text_name(name));
	if (subject == SUBJECT_TASK)
		return control_fail(EXIT_FAILED,
				    "no task %s is logged: it has not ended, or was overwritten, "
				    "or was so small that it was not logged, or its tenant has no "
				    "session any more",
				    text_name(name));
	return control_fail(EXIT_FAILED, "there is no %s %s%s",
			    subject == SUBJECT_ANY ? "task, plan, tenant or lease"
						   : subject_names[subject],
			    text_name(name), why->pages.has_all ? "" : " that this user may see");
}

/* --- Judging --- */

static bool is_of_subject(const struct why *why, const struct log_entry *entry)
{
	const struct rbk_stats_decision *decision = &entry->decision;

	if (entry->tenant != why->tenant)
		return false;
	if (why->subject == SUBJECT_TENANT)
		return true;
	if (why->subject == SUBJECT_SESSION)
		return decision->session == why->session;
	if (why->subject == SUBJECT_TASK)
		return decision == why->task;
	return decision->plan_id == why->plan.plan.plan_id &&
	       decision->session == why->plan.plan.session;
}

/* Set the rates of the links to GPUs, as far as this user may know them. */
static void take_rates(const struct why *why, double bytes_per_ns[RBK_MAX_DEVICES])
{
	const struct rbk_stats_view *root = &why->pages.root;
	struct rbk_stats_device device;

	for (uint32_t i = RBK_DEVICE_GPU; root->page && i < root->n_devices; i++) {
		device_copy(root, i, &device);
		bytes_per_ns[i] = device.up_bytes_per_ns;
	}
}

/* Return the average transfer time of this tenant's tasks on GPUs. */
static double mean_transfer_ns(const struct why *why, const double bytes_per_ns[RBK_MAX_DEVICES])
{
	uint64_t n_gpu_tasks = 0;
	double best = 0;

	for (uint32_t i = RBK_DEVICE_GPU; i < RBK_MAX_DEVICES; i++) {
		n_gpu_tasks += why->about.devices[i].n_tasks;
		best = bytes_per_ns[i] > best ? bytes_per_ns[i] : best;
	}
	return best > 0 ? mean_of(why->about.transferred_bytes, n_gpu_tasks) / best : 0;
}

/* Find the segments of a task of the log. Return: their number; 0: none are known. */
static uint32_t find_segments(const struct why *why, const struct log_entry *entry,
			      const struct segment_entry **ret)
{
	uint32_t n;

	*ret = segments_find(why->segments, why->n_segments, entry->tenant, &entry->decision, &n);
	return n;
}

static void add_busy(struct why *why, struct busy busy, unsigned int tenant)
{
	if (busy.ended_ns == 0)
		return;
	busy.tenant = tenant;
	why->busy[why->judge.n_busy++] = busy;
	if (busy.ended_ns - busy.began_ns > why->judge.longest_ns)
		why->judge.longest_ns = busy.ended_ns - busy.began_ns;
}

/* Note when the devices were busy: with tasks, or with their segments. */
static void gather_busy(struct why *why)
{
	const struct segment_entry *segments;

	for (size_t i = 0; i < why->n_entries; i++) {
		const struct log_entry *entry = &why->entries[i];
		const bool is_own = entry->tenant == why->tenant;

		for (uint32_t n = find_segments(why, entry, &segments), k = 0; k < n; k++)
			add_busy(why, busy_of_segment(&segments[k].segment, is_own), entry->tenant);
		if (!segments)
			add_busy(why, busy_of(&entry->decision, is_own), entry->tenant);
	}
	busy_sort(why->busy, why->judge.n_busy);
}

/* Return: EXIT_* */
static int judge_all(struct why *why)
{
	unsigned int n_judged = 0;

	why->busy = calloc(why->n_entries + why->n_segments + 1, sizeof(*why->busy));
	if (!why->busy)
		return control_fail(EXIT_FAILED, "out of memory");
	why->judge = (struct judge){
		.busy = why->busy,
		.is_throttled = why->about.n_throttled > 0,
		.has_returned = why->plan.plan.n_returns > 0,
	};
	take_rates(why, why->judge.bytes_per_ns);
	why->judge.transfer_ns = mean_transfer_ns(why, why->judge.bytes_per_ns);
	gather_busy(why);
	for (size_t i = why->n_entries; i-- > 0 && n_judged < MAX_JUDGED;) {
		const struct segment_entry *segments;
		uint32_t n;

		if (!is_of_subject(why, &why->entries[i]))
			continue;
		n = find_segments(why, &why->entries[i], &segments);
		judge_add(&why->judge, &why->entries[i].decision, segments, n, &why->verdict);
		if (why->task)
			why->task_segments = (struct task_segments){
				.of = segments, .n = n, .pages = &why->pages, .judge = &why->judge};
		n_judged++;
	}
	return EXIT_OK;
}

/* --- What else is known --- */

/* Return the number of segments that the tenant's log has room for; 0: the broker logs none. */
static uint32_t n_logged_segments(const struct why *why)
{
	return rbk_stats_count(&page_of(why)->view, RBK_STATS_SECTION_SEGMENTS);
}

/* Return true if the task's plan is cut, but its segments were overwritten. */
static bool has_lost_segments(const struct why *why)
{
	return why->task && why->task->device != RBK_DEVICE_NONE && why->task_segments.n == 0 &&
	       why->plan.plan.state != RBK_STATS_PLAN_FREE && why->plan.plan.n_segments > 1 &&
	       n_logged_segments(why) > 0;
}

static void task_facts(struct why *why)
{
	const struct rbk_stats_decision *task = why->task;
	char path[FACT_BYTES - 64];

	if (why->task_segments.n > 0) {
		segments_path(&why->task_segments, path, sizeof(path));
		fact(why, "%s: %s",
		     judge_n_beside(why->task_segments.of, why->task_segments.n) == 0
			     ? "its segments ran one after the other"
			     : "the critical path through its segments",
		     path);
		fact(why, "they ran longest on %s; as a whole, the task counts as %s: %s",
		     device_label(task->device), rbk_reason_name(task->reason),
		     reason_meaning(task->reason));
	} else {
		fact(why, "it ran on %s: %s (%s)", device_label(task->device),
		     reason_meaning(task->reason), rbk_reason_name(task->reason));
	}
	if (task->predicted_ns > 0)
		fact(why, "%s was predicted %s, and it took %s", text_ns(task->predicted_ns),
		     why->task_segments.n == 0 ? "there"
		     : judge_n_beside(why->task_segments.of, why->task_segments.n) > 0
			     ? "for the longest way through them"
			     : "for all of them",
		     text_ns(task->exec_ns));
	if (task->other_ns > 0)
		fact(why, "%s was predicted on the best of the other devices",
		     text_ns(task->other_ns));
	if (task->device == RBK_DEVICE_CPU && judge_contention(task) > 1)
		fact(why,
		     "other programs kept the CPU busy then: tasks took %.2f times as long "
		     "there",
		     judge_contention(task));
	if (task->flags & RBK_DECISION_MOVED && why->task_segments.n == 0)
		fact(why, "it was queued on another device at first");
	if (task->flags & RBK_DECISION_HELD_BACK)
		fact(why, "it waited for leased programs that share it: ringbroker-leases(7)");
	if (has_lost_segments(why))
		fact(why,
		     "where each of its segments ran is not logged any more: the log has the last "
		     "%u segments of a tenant; 'brokerctl trace' records them as they run",
		     n_logged_segments(why));
	if (task->flags & RBK_DECISION_PARTITIONED && task->split_count > 0)
		fact(why, "it was split: %u of its %u row%s on a GPU", task->split_count,
		     task->count, plural(task->count));
	if (task->flags & RBK_DECISION_DEADLINE_MISSED)
		fact(why, "it missed its deadline");
	if (task->res < 0)
		fact(why, "it failed: %s", strerror(-task->res));
}

/* Say what is predicted for the plan on a device where it has run. */
static void time_fact(struct why *why, uint32_t i, const struct rbk_stats_plan_device *device)
{
	const double factor = stats_contention_factor(device->contention);

	if (device->n_tasks == 0 || !(device->estimate_ns > 0))
		return;
	if (factor > 1)
		fact(why, "a task takes %s alone on %s, and %s now: contention makes it %.2f times",
		     text_ns(device->estimate_ns), device_label(i), text_ns(stats_now_ns(device)),
		     factor);
	else
		fact(why, "a task takes %s alone on %s, and as long now",
		     text_ns(device->estimate_ns), device_label(i));
	if (!device->is_trusted && device->mean_error > 0)
		fact(why, "predictions for %s are not trusted: the last ones were off by %s",
		     device_label(i), text_percent(device->mean_error, 1));
}

/* Return true if the refused entry is one of what the question is about. */
static bool is_refused_of_subject(const struct why *why, const struct refused_entry *entry)
{
	const struct rbk_stats_refused *refused = &entry->refused;

	if (entry->tenant != why->tenant)
		return false;
	switch (why->subject) {
	case SUBJECT_TENANT:
		return true;
	case SUBJECT_SESSION:
		return refused->session == why->session;
	case SUBJECT_PLAN:
		return refused->plan_id == why->plan.plan.plan_id &&
		       refused->session == why->plan.plan.session;
	default:
		return refused == why->refusal;
	}
}

/*
 * Find the first of the last MAX_REFUSED refused entries of the subject.
 * Return: its index; why->n_refused: there is none.
 */
static size_t first_refused(const struct why *why)
{
	size_t first = why->n_refused;
	unsigned int n = 0;

	for (size_t i = why->n_refused; i-- > 0 && n < MAX_REFUSED;)
		if (is_refused_of_subject(why, &why->refused[i])) {
			first = i;
			n++;
		}
	return first;
}

static void refused_facts(struct why *why)
{
	if (why->refusal) {
		fact(why, "%s: %s", why->refusal->field, why->refusal->reason);
		return;
	}
	if (why->subject == SUBJECT_TENANT && why->about.n_entries_refused > 0)
		fact(why, "%" PRIu64 " of its entries %s invalid, and refused",
		     why->about.n_entries_refused,
		     why->about.n_entries_refused == 1 ? "was" : "were");
	for (size_t i = first_refused(why); i < why->n_refused; i++) {
		const struct rbk_stats_refused *refused = &why->refused[i].refused;

		if (is_refused_of_subject(why, &why->refused[i]))
			fact(why,
			     "a %s of session %u with user_data %" PRIu64
			     " was refused with %s: %s: %s",
			     sqe_op_name(refused->opcode), refused->session, refused->user_data,
			     sqe_errno_name(refused->res), refused->field, refused->reason);
	}
}

static void plan_facts(struct why *why)
{
	const struct rbk_stats_plan *plan = &why->plan.plan;
	char cut[TEXT_CUT_BYTES];

	for (uint32_t i = 0; i < page_of(why)->view.n_devices; i++)
		time_fact(why, i, &plan->devices[i]);
	for (uint32_t i = RBK_DEVICE_GPU; i < page_of(why)->view.n_devices; i++) {
		const struct rbk_stats_plan_device *device = &plan->devices[i];

		if (device->state == RBK_MEMORY_UNSUPPORTED)
			fact(why, "%s cannot run the plan", device_label(i));
		else if (device->state == RBK_MEMORY_EVICTED)
			fact(why, "the plan is not in the memory of %s now", device_label(i));
		else if (device->state == RBK_MEMORY_NEVER_FITS)
			fact(why,
			     "the plan never fits into the memory of %s that its tenant may "
			     "have",
			     device_label(i));
		else if (device->state == RBK_MEMORY_LOST)
			fact(why, "%s is lost, or refused the plan", device_label(i));
		else if (device->tier == RBK_TIER_GTT)
			fact(why, "the plan is in host memory, which %s reads over its bus",
			     device_label(i));
	}
	text_cut(plan, cut);
	if (cut[0] && page_of(why)->view.n_devices > 1)
		fact(why, "%s", cut);
	if (plan->n_segments > 1)
		fact(why, "segments in device memory now: %u of %u", plan->n_segments_resident,
		     plan->n_segments);
	if (plan->n_streamed > 0)
		fact(why, "segments were brought into device memory just for a task %u time%s",
		     plan->n_streamed, plural(plan->n_streamed));
	if (plan->n_evictions > 0)
		fact(why, "the plan left device memory %" PRIu64 " time%s and came back %" PRIu64,
		     plan->n_evictions, plural(plan->n_evictions), plan->n_returns);
	if (plan->n_memory_constraints > 0)
		fact(why, "%" PRIu64 " of its %s went elsewhere for want of device memory",
		     plan->n_memory_constraints,
		     plan->n_segments > 1 ? "tasks' segments" : "tasks");
}

static void reason_facts(struct why *why, const uint64_t reasons[RBK_STATS_MAX_REASONS])
{
	uint64_t n_all = 0;

	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++)
		n_all += reasons[i];
	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++)
		if (reasons[i] > 0)
			fact(why, "%s of its tasks ran where they did because: %s (%s)",
			     text_percent((double)reasons[i], (double)n_all), reason_meaning(i),
			     rbk_reason_name(i));
}

static void delay_facts(struct why *why)
{
	struct rbk_stats_delay delay;

	if (!has_page(why))
		return;
	if (!delay_copy(&page_of(why)->view, 0, &delay) || delay.wait_ns == 0)
		return;
	fact(why, "its clients' processes waited %s for processors",
	     text_ns((double)delay.wait_ns));
	for (uint32_t i = 0; i < delay.n_causes; i++)
		fact(why, "recently, %s of that while %s ran in %s",
		     text_ns((double)delay.causes[i].wait_ns),
		     delay.causes[i].comm[0] ? text_name(delay.causes[i].comm) : "others",
		     delay.causes[i].cgroup[0] ? text_name(delay.causes[i].cgroup)
					       : "an unknown cgroup");
}

/* State what a tenant may have, for an answer about a tenant without logged tasks. */
static void limit_facts(struct why *why)
{
	const struct rbk_stats_tenant *about = &why->about;
	const struct rbk_stats_view *view =
		why->pages.root.page ? &why->pages.root : &page_of(why)->view;

	if (!(about->flags & RBK_STATS_TENANT_NAMED))
		fact(why, "the configuration no longer names it: it ends with its last session");
	fact(why, "its weight is now %" PRIu32 ", and it may have %s of host memory", about->weight,
	     about->host_max == UINT64_MAX ? "any amount" : text_bytes(about->host_max));
	for (uint32_t i = RBK_DEVICE_GPU; i < view->n_devices; i++) {
		const struct rbk_stats_tenant_device *device = &about->devices[i];

		fact(why,
		     "on %s it may now have %s, of which %s are reserved for it; above %s its "
		     "plans "
		     "are evicted first",
		     device_label(i), text_bytes(device->memory_max),
		     text_bytes(device->memory_reserve), text_bytes(device->memory_high));
	}
	if (about->flags & RBK_STATS_TENANT_CHANGED)
		fact(why, "an administrator has changed its limits since the configuration was "
			  "read");
}

/* State what a tenant without logged tasks has done, and what to do next. */
static void idle_facts(struct why *why)
{
	const struct rbk_stats_tenant *about = &why->about;
	const char *name = text_name(about->name);

	if (about->n_tasks == 0)
		fact(why, "it has run no task since the broker started, or since its counts were "
			  "reset");
	else
		fact(why,
		     "it has run %" PRIu64 " task%s since the broker started, or since its counts "
		     "were reset, %" PRIu64 " of them with errors",
		     about->n_tasks, plural(about->n_tasks), about->n_errors);
	limit_facts(why);
	if (about->n_sessions > 0)
		fact(why,
		     "next: see what its %" PRIu64 " client%s (brokerctl sessions --tenant=%s)",
		     about->n_sessions, about->n_sessions == 1 ? " does" : "s do", name);
	else
		fact(why,
		     "next: no client of it is connected now; start one that its match keys in "
		     "brokerd.conf(5) select (brokerd --check-config prints them), and see which "
		     "tenant it gets (brokerctl sessions)");
}

static void tenant_facts(struct why *why)
{
	const struct rbk_stats_tenant *about = &why->about;

	if (about->n_throttled > 0)
		fact(why,
		     "the tenant's CPU quota held its tasks up %" PRIu64 " time%s, %s together",
		     about->n_throttled, plural(about->n_throttled),
		     text_ns((double)about->throttled_ns));
	if (about->flags & RBK_STATS_TENANT_DRAINED)
		fact(why, "the tenant is drained now: its rings are not read any further");
	if (about->n_memory_constraints > 0)
		fact(why,
		     "%" PRIu64 " of the tenant's tasks, or segments of tasks, went elsewhere for "
		     "want of device memory",
		     about->n_memory_constraints);
	if (why->subject != SUBJECT_TENANT)
		return;
	if (about->n_evictions > 0)
		fact(why, "its plans were evicted %" PRIu64 " time%s and came back %" PRIu64,
		     about->n_evictions, plural(about->n_evictions), about->n_returns);
	if (about->n_refused > 0)
		fact(why, "%" PRIu64 " request%s beyond a limit, and refused", about->n_refused,
		     about->n_refused == 1 ? " was" : "s were");
}

static void broker_facts(struct why *why)
{
	const struct rbk_stats_view *root = &why->pages.root;
	struct rbk_stats_contention contention;
	struct rbk_stats_broker broker;
	struct rbk_stats_device device;

	if (!root->page)
		return;
	broker_copy(root, &broker);
	contention_copy(root, &contention);
	if (broker.flags & RBK_STATS_BROKER_FORCE_CPU)
		fact(why, "force-cpu is on now: nothing runs on a GPU");
	if (contention.flags & RBK_STATS_CONTENDED)
		fact(why,
		     "other programs keep the CPU busy now: tasks take %.2f times as long there",
		     contention.factor);
	for (uint32_t i = RBK_DEVICE_GPU; i < root->n_devices; i++) {
		device_copy(root, i, &device);
		if (device.flags & RBK_STATS_DEVICE_LOST)
			fact(why, "%s is lost now", device_label(i));
		if (device.breaker != RBK_STATS_BREAKER_CLOSED)
			fact(why, "%s failed too often: its breaker is %s now", device_label(i),
			     stats_breaker_name(device.breaker));
		if (device.flags & RBK_STATS_DEVICE_DRAINED)
			fact(why, "%s is drained now", device_label(i));
	}
}

static void verdict_facts(struct why *why)
{
	const struct verdict *verdict = &why->verdict;

	if (verdict->n_ahead > 0)
		fact(why,
		     "%" PRIu64 " other execution%s logged kept the device busy "
		     "meanwhile",
		     verdict->n_ahead, verdict->n_ahead == 1 ? " that is" : "s that are");
	if (why->subject == SUBJECT_TASK)
		return;
	if (verdict->n_late > 0)
		fact(why, "%" PRIu64 " of %" PRIu64 " task%s missed the deadline", verdict->n_late,
		     verdict->n_tasks, plural(verdict->n_tasks));
	if (verdict->n_failed > 0)
		fact(why, "%" PRIu64 " of %" PRIu64 " task%s failed", verdict->n_failed,
		     verdict->n_tasks, plural(verdict->n_tasks));
}

static void gather_facts(struct why *why)
{
	verdict_facts(why);
	refused_facts(why);
	if (why->refusal)
		return;
	if (why->task)
		task_facts(why);
	if (why->plan.plan.state != RBK_STATS_PLAN_FREE) {
		plan_facts(why);
		if (why->subject == SUBJECT_PLAN)
			reason_facts(why, why->plan.plan.reasons);
	}
	if (why->subject == SUBJECT_TENANT && why->verdict.n_tasks == 0)
		idle_facts(why);
	if (why->subject == SUBJECT_TENANT)
		reason_facts(why, why->about.reasons);
	tenant_facts(why);
	delay_facts(why);
	broker_facts(why);
}

/* --- The answer --- */

/* Write a name such as "task 42 of plan large of tenant web". */
static void name_subject(const struct why *why, char *text, size_t bytes)
{
	const char *tenant = text_name(why->about.name);
	const char *plan = why->plan.plan.state != RBK_STATS_PLAN_FREE
				   ? text_name(why->plan.plan.name)
				   : "that is gone";

	if (why->refusal && why->plan.plan.state == RBK_STATS_PLAN_FREE)
		snprintf(text, bytes, "task %" PRIu64 " of tenant %s", why->refusal->user_data,
			 tenant);
	else if (why->subject == SUBJECT_SESSION)
		snprintf(text, bytes, "session %u of tenant %s", why->session, tenant);
	else if (why->subject == SUBJECT_TASK)
		snprintf(text, bytes, "task %" PRIu64 " of plan %s of tenant %s",
			 why->task ? why->task->user_data : why->refusal->user_data, plan, tenant);
	else if (why->subject == SUBJECT_PLAN)
		snprintf(text, bytes, "plan %s of tenant %s", plan, tenant);
	else
		snprintf(text, bytes, "tenant %s", tenant);
}

static void print_text(const struct why *why)
{
	const struct verdict *verdict = &why->verdict;
	double n = verdict->n_tasks ? (double)verdict->n_tasks : 1;
	enum cause order[N_CAUSES];
	unsigned int n_causes = judge_order(verdict, order);
	char name[256];

	name_subject(why, name, sizeof(name));
	if (why->refusal)
		printf("%s: a %s of session %u, refused with %s\n", name,
		       sqe_op_name(why->refusal->opcode), why->refusal->session,
		       sqe_errno_name(why->refusal->res));
	else if (n_causes == 0 && !has_page(why))
		printf("%s: no client of it is connected, and no task is logged\n", name);
	else if (n_causes == 0)
		printf("%s: no task of it is logged\n", name);
	else if (why->subject == SUBJECT_TASK)
		printf("%s: %s, of which %s %s\n", name, text_ns(verdict->total_ns),
		       text_ns(verdict->ns[order[0]]), cause_phrase(order[0]));
	else
		printf("%s: %s a task, mean of the last %" PRIu64 ", of which %s %s\n", name,
		       text_ns(verdict->total_ns / n), verdict->n_tasks,
		       text_ns(verdict->ns[order[0]] / n), cause_phrase(order[0]));
	for (unsigned int i = 0; i < n_causes; i++)
		printf("  %9s  %6s  %s\n", text_ns(verdict->ns[order[i]] / n),
		       text_percent(verdict->ns[order[i]], verdict->total_ns),
		       cause_phrase(order[i]));
	for (unsigned int i = 0; i < why->n_facts; i++)
		printf("  - %s\n", why->facts[i]);
	segments_table(&why->task_segments, "Segments");
}

static void print_refused(const struct why *why)
{
	json_array("refused");
	for (size_t i = first_refused(why); i < why->n_refused; i++) {
		const struct rbk_stats_refused *refused = &why->refused[i].refused;

		if (!is_refused_of_subject(why, &why->refused[i]))
			continue;
		json_item();
		json_unsigned("session", refused->session);
		json_unsigned("user_data", refused->user_data);
		json_unsigned("plan_id", refused->plan_id);
		json_string("operation", sqe_op_name(refused->opcode));
		json_number("res", refused->res);
		json_string("field", refused->field);
		json_string("reason", refused->reason);
		json_object_end();
	}
	json_array_end();
}

static void print_json(const struct why *why)
{
	const struct verdict *verdict = &why->verdict;
	const bool has_plan = why->plan.plan.state != RBK_STATS_PLAN_FREE;
	enum cause order[N_CAUSES];
	unsigned int n_causes = judge_order(verdict, order);

	json_begin();
	json_string("type", "why");
	json_string("what", subject_names[why->subject]);
	json_string("tenant", why->about.name);
	json_string("plan", has_plan ? why->plan.plan.name : NULL);
	if (why->task)
		json_unsigned("user_data", why->task->user_data);
	else if (why->refusal)
		json_unsigned("user_data", why->refusal->user_data);
	else
		json_optional("user_data", UINT64_MAX);
	json_unsigned("tasks", verdict->n_tasks);
	json_unsigned("deadlines_missed", verdict->n_late);
	json_unsigned("errors", verdict->n_failed);
	json_number("total_ns", verdict->total_ns);
	json_array("causes");
	for (unsigned int i = 0; i < n_causes; i++) {
		json_item();
		json_string("cause", cause_name(order[i]));
		json_number("ns", verdict->ns[order[i]]);
		json_number("share", verdict->ns[order[i]] / verdict->total_ns);
		json_string("meaning", cause_phrase(order[i]));
		json_object_end();
	}
	json_array_end();
	json_array("facts");
	for (unsigned int i = 0; i < why->n_facts; i++)
		json_string(NULL, why->facts[i]);
	json_array_end();
	if (has_lost_segments(why))
		json_raw("segments", "null");
	else
		segments_json(&why->task_segments);
	json_optional("session", why->subject == SUBJECT_SESSION ? why->session : UINT64_MAX);
	json_unsigned("entries_refused", why->about.n_entries_refused);
	print_refused(why);
	json_end();
}

/* Return: EXIT_* */
static int answer(struct why *why, const struct arguments *arguments)
{
	int status = find_subject(why, arguments);

	if (status)
		return status;
	if (why->subject == SUBJECT_LEASE)
		return why_lease_answer(&why->pages, &why->lease, arguments->values[OPT_JSON]);
	if (has_page(why))
		tenant_copy(&page_of(why)->view, 0, &why->about);
	if (why->subject != SUBJECT_TENANT && why->subject != SUBJECT_SESSION &&
	    page_copy_plan(&page_of(why)->view, why->slot, &why->plan) && why->task &&
	    (why->plan.plan.plan_id != why->task->plan_id ||
	     why->plan.plan.session != why->task->session))
		why->plan.plan.state = RBK_STATS_PLAN_FREE;
	status = judge_all(why);
	if (status)
		return status;
	gather_facts(why);
	if (arguments->values[OPT_JSON])
		print_json(why);
	else
		print_text(why);
	return EXIT_OK;
}

int run_why(struct control *control, const struct arguments *arguments)
{
	struct why why = {.n_entries = 0};
	/* Map other tenants, too: their tasks may have delayed this one. */
	int status = control_map(control, NULL, &why.pages);

	if (status)
		return status;
	/* Segments after tasks: those of every task that is read are there. */
	if (log_read(&why.pages, &why.entries, &why.n_entries) ||
	    segments_read(&why.pages, &why.segments, &why.n_segments) ||
	    refused_read(&why.pages, &why.refused, &why.n_refused))
		status = control_fail(EXIT_FAILED, "out of memory");
	else
		status = answer(&why, arguments);
	free(why.busy);
	free(why.segments);
	free(why.refused);
	free(why.entries);
	pages_unmap(&why.pages);
	return status;
}
