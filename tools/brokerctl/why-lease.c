/* SPDX-License-Identifier: MIT */
/*
 * brokerctl why lease: where a lease's time on its device went
 *
 * The time from the first logged timeslice of the lease to the last one is divided among causes:
 * having the device, keeping it busy after the lease was to stop, and waiting. A wait is explained
 * by the timeslices of others that overlap it, and by tasks of plans. While the lease's own work is
 * under way it does not wait.
 *
 * Devices do work in the order in which it came. Where timeslices overlap, because one was overdue,
 * the device worked for the one that began first, until a timeslice that began after it was to end
 * has ended in time: then nothing of it was in front of others, as if its program was stopped. So
 * the lease may also wait, or be overdue, behind an overdue one while it has the device. Programs
 * whose work is not done for 50 ms may tell that it is: such an end proves nothing.
 *
 * Users other than administrators see the timeslices of their own tenant only. What these do not
 * cover of a wait was behind leases of other tenants, if some ended a timeslice of this lease.
 */
#include "why-lease.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "logs.h"
#include "output.h"
#include "records.h"
#include "util/plural.h"

enum { MAX_FACTS = 16, FACT_BYTES = 512, MAX_NAMED = 5, MAX_CAUSES = MAX_NAMED + 8 };

/* A tenant that has more of the device than its weight gives it, by this much, is over its share.
 */
static const double share_slack = 0.05;
/* The broker waits so long for the end of a timeslice before it gives the device to others. */
static const uint64_t grace_ns = 50000000;
/* Smaller parts of the time are left out: times are converted to the broker's clock one by one. */
static const double least_part = 0.0005;

/* Another lease behind which this one waited. */
struct behind {
	uint32_t lease;
	unsigned int tenant; /* index in pages */
	uint8_t priority;    /* enum rbk_priority */
	double ns;
	uint64_t n_overdue; /* its overdue timeslices, among those that were waited for */
	uint64_t tail_ns;   /* the longest time that one of these took after it was to end */
	size_t last;        /* its last such timeslice, plus 1 */
};

struct lease_cause {
	const char *name; /* as in JSON */
	double ns;
	char phrase[256];
	const struct behind *behind; /* NULL: no particular lease */
};

struct answer {
	const struct pages *pages;
	const struct lease_subject *subject;
	struct slice_entry *entries; /* all of the pages, sorted */
	size_t n_entries;
	uint64_t *until_ns; /* of each entry: end of the time for which the device worked for it */

	uint64_t n_slices, n_overdue, n_late; /* of the lease, logged */
	uint64_t n_overdue_behind;            /* of n_overdue: behind overdue ones of others */
	uint64_t n_for_others;                /* that were to end for other tenants */
	/* longest time that the device worked for an overdue one after that was to end */
	uint64_t tail_ns;
	uint64_t first_ns, last_ns; /* begin and end of the time seen */
	uint8_t device, priority;   /* of the last one */
	double held_ns, tails_ns, plans_ns, others_ns, unknown_ns;
	struct behind *behind;
	size_t n_behind;

	/* the tenant's parts of the device's time meanwhile; 0: not known, or not shared */
	double share, weight_share;

	struct lease_cause causes[MAX_CAUSES];
	unsigned int n_causes;
	char facts[MAX_FACTS][FACT_BYTES];
	unsigned int n_facts;
};

/* --- What is meant --- */

static bool is_named(const char *text, const char *name, uint32_t number)
{
	uint64_t parsed;

	return strcmp(text, name) == 0 ||
	       (pages_number(text, UINT32_MAX, &parsed) && parsed == number);
}

/* Return the index of the tenant's page, or UINT_MAX. */
static unsigned int page_of(const struct pages *pages, uint32_t tenant)
{
	for (unsigned int i = 0; i < pages->n_tenants; i++)
		if (pages->tenants[i].number == tenant)
			return i;
	return UINT_MAX;
}

static bool find_listed(const struct pages *pages, const struct rbk_stats_view *view,
			const char *name, const char *wanted, struct lease_subject *ret)
{
	struct rbk_stats_lease lease;
	bool was_found = false;

	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_LEASES); i++) {
		const char *tenant;

		if (!lease_copy(view, i, &lease) || !is_named(name, lease.name, lease.number) ||
		    (was_found && lease.opened_at_ns < ret->lease.opened_at_ns))
			continue;
		tenant = tenant_name(view, lease.tenant);
		if (wanted && !is_named(wanted, tenant ? tenant : "", lease.tenant))
			continue;
		was_found = true;
		*ret = (struct lease_subject){.number = lease.number,
					      .tenant = page_of(pages, lease.tenant),
					      .tenant_number = lease.tenant,
					      .is_listed = true,
					      .lease = lease};
		snprintf(ret->tenant_name, sizeof(ret->tenant_name), "%s", tenant ? tenant : "-");
	}
	return was_found;
}

static bool has_slice(const struct tenant_page *page, uint64_t lease)
{
	struct rbk_stats_slice slice;
	uint64_t index, head = slices_head(page, &index);

	for (; index < head; index++)
		if (slice_copy(page, index, &slice) && slice.lease == lease)
			return true;
	return false;
}

/* Return the name of a tenant, "?" if it is not shown any more. Static storage. */
static const char *name_of_tenant(const struct pages *pages, uint32_t number)
{
	const unsigned int page = page_of(pages, number);
	const char *name = page != UINT_MAX   ? pages->tenants[page].name
			   : pages->root.page ? tenant_name(&pages->root, number)
					      : NULL;

	return name ? name : "?";
}

/* Find a lease that has ended by the loss of its device. */
static bool find_lost(const struct pages *pages, uint64_t number, const char *wanted,
		      struct lease_subject *ret)
{
	struct rbk_stats_reset resets[RBK_STATS_ALL_RESETS];
	const unsigned int n = resets_read(pages, resets);

	for (unsigned int i = 0; i < n; i++) {
		const char *tenant = name_of_tenant(pages, resets[i].tenant);

		if (resets[i].lease != number ||
		    (wanted && !is_named(wanted, tenant, resets[i].tenant)))
			continue;
		*ret = (struct lease_subject){.number = (uint32_t)number,
					      .tenant = page_of(pages, resets[i].tenant),
					      .tenant_number = resets[i].tenant};
		snprintf(ret->tenant_name, sizeof(ret->tenant_name), "%s", tenant);
		return true;
	}
	return false;
}

/* Find a lease that has ended by its timeslices, or by the loss of its device. */
static bool find_logged(const struct pages *pages, const char *name, const char *wanted,
			struct lease_subject *ret)
{
	uint64_t number;

	if (!pages_number(name, UINT32_MAX, &number))
		return false;
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		const struct tenant_page *page = &pages->tenants[i];

		if ((wanted && !is_named(wanted, page->name, page->number)) ||
		    !has_slice(page, number))
			continue;
		*ret = (struct lease_subject){
			.number = (uint32_t)number, .tenant = i, .tenant_number = page->number};
		memcpy(ret->tenant_name, page->name, sizeof(ret->tenant_name));
		return true;
	}
	return find_lost(pages, number, wanted, ret);
}

bool why_lease_find(const struct pages *pages, const char *name, const char *wanted,
		    struct lease_subject *ret)
{
	if (pages->root.page && find_listed(pages, &pages->root, name, wanted, ret))
		return true;
	for (unsigned int i = 0; i < pages->n_tenants && !pages->root.page; i++)
		if (find_listed(pages, &pages->tenants[i].view, name, wanted, ret))
			return true;
	return find_logged(pages, name, wanted, ret);
}

/* --- Where the time went --- */

static bool is_own(const struct answer *answer, const struct slice_entry *entry)
{
	return entry->tenant == answer->subject->tenant &&
	       entry->slice.lease == answer->subject->number;
}

static struct behind *behind_of(struct answer *answer, const struct slice_entry *entry)
{
	struct behind *behind;

	for (size_t i = 0; i < answer->n_behind; i++)
		if (answer->behind[i].lease == entry->slice.lease &&
		    answer->behind[i].tenant == entry->tenant)
			return &answer->behind[i];
	/* There is room for as many as there are timeslices. */
	behind = &answer->behind[answer->n_behind++];
	*behind = (struct behind){.lease = entry->slice.lease, .tenant = entry->tenant};
	return behind;
}

static void add_behind(struct answer *answer, size_t index, uint64_t ns)
{
	const struct rbk_stats_slice *slice = &answer->entries[index].slice;
	struct behind *behind = behind_of(answer, &answer->entries[index]);
	const uint64_t tail_ns = slice->ended_at_ns - slice->closed_at_ns;

	behind->ns += (double)ns;
	behind->priority = slice->priority;
	if (!(slice->flags & RBK_STATS_SLICE_OVERDUE) || behind->last == index + 1)
		return;
	behind->last = index + 1;
	behind->n_overdue++;
	behind->tail_ns = tail_ns > behind->tail_ns ? tail_ns : behind->tail_ns;
}

/*
 * Attribute a part of the time of the lease's timeslice @own, and of its wait, to timeslices of
 * others that began before. @first: one before which no timeslice lasted until @from_ns.
 * Return: the time attributed.
 */
static uint64_t add_others(struct answer *answer, size_t first, size_t own, uint64_t from_ns,
			   uint64_t to_ns)
{
	uint64_t until_ns = from_ns, sum_ns = 0;

	for (size_t i = first; i < own; i++) {
		uint64_t low = answer->entries[i].slice.began_at_ns, high = answer->until_ns[i];

		low = low > until_ns ? low : until_ns;
		high = high < to_ns ? high : to_ns;
		if (is_own(answer, &answer->entries[i]) || low >= high)
			continue;
		add_behind(answer, i, high - low);
		until_ns = high;
		sum_ns += high - low;
	}
	return sum_ns;
}

/* Add a timeslice of the lease. *first: as in add_others(), for the one before. */
static void add_slice(struct answer *answer, size_t own, size_t *first)
{
	const struct rbk_stats_slice *slice = &answer->entries[own].slice;
	const uint64_t began_ns = slice->began_at_ns, ended_ns = slice->ended_at_ns;
	const uint64_t closed_ns = slice->closed_at_ns > began_ns ? slice->closed_at_ns : ended_ns;
	uint64_t wanted_ns = slice->wanted_at_ns ? slice->wanted_at_ns : began_ns;
	uint64_t rest_ns, plans_ns, held_ns, tail_ns;

	/* It does not wait while its own work is under way. */
	if (answer->n_slices > 0 && wanted_ns < answer->last_ns)
		wanted_ns = answer->last_ns;
	wanted_ns = wanted_ns < began_ns ? wanted_ns : began_ns;
	while (*first < own && (answer->entries[*first].slice.device < slice->device ||
				answer->until_ns[*first] <= wanted_ns))
		++*first;
	rest_ns = began_ns - wanted_ns;
	rest_ns -= add_others(answer, *first, own, wanted_ns, began_ns);
	plans_ns = slice->plans_ns < rest_ns ? slice->plans_ns : rest_ns;
	held_ns = closed_ns - began_ns;
	held_ns -= add_others(answer, *first, own, began_ns, closed_ns);
	tail_ns = ended_ns - closed_ns;
	tail_ns -= add_others(answer, *first, own, closed_ns, ended_ns);
	answer->plans_ns += (double)plans_ns;
	answer->unknown_ns += (double)(rest_ns - plans_ns);
	answer->held_ns += (double)held_ns;
	answer->tails_ns += (double)tail_ns;
	if (answer->n_slices++ == 0)
		answer->first_ns = wanted_ns;
	answer->last_ns = ended_ns;
	answer->device = slice->device;
	answer->priority = slice->priority;
	answer->n_late += !!(slice->flags & RBK_STATS_SLICE_LATE);
	answer->n_for_others += !!(slice->flags & RBK_STATS_SLICE_FOR_OTHERS);
	if (!(slice->flags & RBK_STATS_SLICE_OVERDUE))
		return;
	answer->n_overdue++;
	answer->n_overdue_behind += tail_ns < grace_ns;
	answer->tail_ns = tail_ns > answer->tail_ns ? tail_ns : answer->tail_ns;
}

static bool has_ended_in_time(const struct rbk_stats_slice *slice)
{
	return slice->closed_at_ns == 0 || slice->ended_at_ns < slice->closed_at_ns + grace_ns / 2;
}

/*
 * Find until when the device worked for each timeslice.
 * Return: 0; -ENOMEM.
 */
static int find_ends(struct answer *answer)
{
	const struct slice_entry *entries = answer->entries;
	const size_t n = answer->n_entries;
	/* first end in time, of a timeslice and those that began later on the device */
	uint64_t *first_ns = calloc(n + 1, sizeof(*first_ns));

	answer->until_ns = calloc(n + 1, sizeof(*answer->until_ns));
	if (!first_ns || !answer->until_ns) {
		free(first_ns);
		return -ENOMEM;
	}
	for (size_t i = n; i-- > 0;) {
		const struct rbk_stats_slice *slice = &entries[i].slice;
		size_t next = i + 1;

		first_ns[i] = has_ended_in_time(slice) ? slice->ended_at_ns : UINT64_MAX;
		if (next < n && entries[next].slice.device == slice->device &&
		    first_ns[next] < first_ns[i])
			first_ns[i] = first_ns[next];
		answer->until_ns[i] = slice->ended_at_ns;
		if (!(slice->flags & RBK_STATS_SLICE_OVERDUE))
			continue;
		while (next < n && entries[next].slice.device == slice->device &&
		       entries[next].slice.began_at_ns < slice->closed_at_ns)
			next++;
		if (next < n && entries[next].slice.device == slice->device &&
		    first_ns[next] < answer->until_ns[i])
			answer->until_ns[i] = first_ns[next];
	}
	free(first_ns);
	return 0;
}

/* Return the weight of a tenant that has a page. */
static double weight_of(const struct answer *answer, unsigned int tenant)
{
	struct rbk_stats_tenant about;

	tenant_copy(&answer->pages->tenants[tenant].view, 0, &about);
	return about.weight;
}

/*
 * Compare the tenant's part of the device's time with what its weight gives it. Background leases
 * of others count only for a background lease.
 */
static void compare_share(struct answer *answer)
{
	const unsigned int own = answer->subject->tenant, n = answer->pages->n_tenants;
	double *used_ns = calloc(n + 1, sizeof(*used_ns));
	double all_ns = 0, weights = 0;
	uint64_t covered_ns = answer->first_ns;

	/* Without memory the share is not known. */
	for (size_t i = 0; i < answer->n_entries && used_ns; i++) {
		const struct rbk_stats_slice *slice = &answer->entries[i].slice;
		uint64_t low = slice->began_at_ns, high = answer->until_ns[i];

		low = low > covered_ns ? low : covered_ns;
		high = high < answer->last_ns ? high : answer->last_ns;
		if (slice->device != answer->device || low >= high ||
		    (slice->priority == RBK_PRIORITY_LOW && answer->priority != RBK_PRIORITY_LOW))
			continue;
		used_ns[answer->entries[i].tenant] += (double)(high - low);
		all_ns += (double)(high - low);
		covered_ns = high;
	}
	for (unsigned int i = 0; i < n && used_ns; i++)
		weights += used_ns[i] > 0 ? weight_of(answer, i) : 0;
	if (used_ns && all_ns > used_ns[own] && weights > 0) {
		answer->share = used_ns[own] / all_ns;
		answer->weight_share = weight_of(answer, own) / weights;
	}
	free(used_ns);
}

static int compare_behind(const void *a, const void *b)
{
	const double first = ((const struct behind *)a)->ns,
		     second = ((const struct behind *)b)->ns;

	return (first < second) - (first > second);
}

/* Return: EXIT_* */
static int judge(struct answer *answer)
{
	size_t first = 0;

	if (slices_read(answer->pages, &answer->entries, &answer->n_entries) || find_ends(answer))
		return control_fail(EXIT_FAILED, "out of memory");
	answer->behind = calloc(answer->n_entries + 1, sizeof(*answer->behind));
	if (!answer->behind)
		return control_fail(EXIT_FAILED, "out of memory");
	for (size_t i = 0; i < answer->n_entries; i++)
		if (is_own(answer, &answer->entries[i]))
			add_slice(answer, i, &first);
	if (answer->n_behind > 0)
		qsort(answer->behind, answer->n_behind, sizeof(*answer->behind), compare_behind);
	if (!answer->pages->has_all && answer->n_for_others > 0) {
		answer->others_ns = answer->unknown_ns;
		answer->unknown_ns = 0;
	}
	if (answer->pages->has_all && answer->n_slices > 0)
		compare_share(answer);
	return EXIT_OK;
}

/* --- Causes --- */

/* Return the name of a lease, if it is still listed; "?" otherwise. */
static const char *name_of(const struct answer *answer, uint32_t number, unsigned int tenant)
{
	const struct rbk_stats_view *view = &answer->pages->tenants[tenant].view;
	struct rbk_stats_lease lease;

	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_LEASES); i++)
		if (lease_copy(view, i, &lease) && lease.number == number)
			return text_name(lease.name);
	return "?";
}

__attribute__((format(printf, 4, 5))) static struct lease_cause *add_cause(struct answer *answer,
									   const char *name,
									   double ns,
									   const char *format, ...)
{
	struct lease_cause *cause;
	va_list args;
	unsigned int at = answer->n_causes;

	if (!(ns > least_part * (double)(answer->last_ns - answer->first_ns)) || at == MAX_CAUSES)
		return NULL;
	for (; at > 0 && answer->causes[at - 1].ns < ns; at--)
		answer->causes[at] = answer->causes[at - 1];
	answer->n_causes++;
	cause = &answer->causes[at];
	*cause = (struct lease_cause){.name = name, .ns = ns};
	va_start(args, format);
	vsnprintf(cause->phrase, sizeof(cause->phrase), format, args);
	va_end(args);
	return cause;
}

static void gather_causes(struct answer *answer)
{
	double idle_ns = (double)(answer->last_ns - answer->first_ns), rest_ns = 0;
	size_t n_rest = 0;

	for (size_t i = 0; i < answer->n_behind; i++) {
		const struct behind *behind = &answer->behind[i];
		struct lease_cause *cause;

		idle_ns -= behind->ns;
		if (i >= MAX_NAMED) {
			rest_ns += behind->ns;
			n_rest++;
			continue;
		}
		cause = add_cause(answer, "wait-lease", behind->ns,
				  "waiting behind lease %u (%s of tenant %s, priority %s)",
				  behind->lease, name_of(answer, behind->lease, behind->tenant),
				  text_name(answer->pages->tenants[behind->tenant].name),
				  slice_priority(behind->priority));
		if (cause)
			cause->behind = behind;
	}
	idle_ns -= answer->held_ns + answer->tails_ns + answer->plans_ns + answer->others_ns +
		   answer->unknown_ns;
	add_cause(answer, "wait-leases", rest_ns, "waiting behind %zu other lease%s", n_rest,
		  plural(n_rest));
	add_cause(answer, "wait-others", answer->others_ns,
		  "waiting behind leases of other tenants");
	add_cause(answer, "wait-plans", answer->plans_ns,
		  "waiting for tasks of plans, whose turn it was");
	add_cause(answer, "wait", answer->unknown_ns,
		  "waiting, though no timeslice of another lease is logged then");
	add_cause(answer, "held", answer->held_ns, "having the device");
	add_cause(answer, "tail", answer->tails_ns,
		  "keeping the device busy after its programs were to stop");
	add_cause(answer, "idle", idle_ns, "without work for the device");
}

/* --- Facts --- */

__attribute__((format(printf, 2, 3))) static void fact(struct answer *answer, const char *format,
						       ...)
{
	va_list args;

	if (answer->n_facts == MAX_FACTS)
		return;
	va_start(args, format);
	vsnprintf(answer->facts[answer->n_facts++], FACT_BYTES, format, args);
	va_end(args);
}

/* Return the number of overdue timeslices since the lease was opened, as far as is known. */
static uint64_t n_overdue(const struct answer *answer)
{
	const uint64_t n = answer->subject->is_listed ? answer->subject->lease.n_overdue : 0;

	return n > answer->n_overdue ? n : answer->n_overdue;
}

static void overdue_facts(struct answer *answer)
{
	static const char remedy[] =
		"start them with --max-part (brokerctl exec), or with exec-max-part of their "
		"tenant (brokerd.conf), which divides longer submissions";
	const uint64_t n = n_overdue(answer);
	const uint64_t n_own = answer->n_overdue - answer->n_overdue_behind;

	if (n_own > 0)
		fact(answer,
		     "it was overdue %" PRIu64 " time%s: it kept the device for up to %s after its "
		     "programs were to stop, and others are given the device after 50 ms; %s",
		     n_own, plural(n_own), text_ns((double)answer->tail_ns), remedy);
	if (answer->n_overdue_behind > 0)
		fact(answer,
		     "it was overdue %" PRIu64
		     " time%s only because the device still worked for an "
		     "overdue timeslice of others",
		     answer->n_overdue_behind, plural(answer->n_overdue_behind));
	if (n > 0 && answer->n_overdue == 0)
		fact(answer,
		     "it was overdue %" PRIu64
		     " time%s: its programs kept the device for more than "
		     "50 ms after they were to stop, and such a timeslice is logged when it ends; "
		     "if "
		     "they are not stopped, %s",
		     n, plural(n), remedy);
	for (size_t i = 0; i < answer->n_behind; i++) {
		const struct behind *behind = &answer->behind[i];

		if (behind->n_overdue > 0 && i < MAX_NAMED)
			fact(answer,
			     "lease %u was overdue %" PRIu64
			     " time%s while this one waited, for up "
			     "to %s after it was to stop: see brokerctl why lease %u",
			     behind->lease, behind->n_overdue, plural(behind->n_overdue),
			     text_ns((double)behind->tail_ns), behind->lease);
	}
}

/* Tell what of the programs' work the layer could not divide. */
static void parts_facts(struct answer *answer)
{
	const struct rbk_stats_lease *lease = &answer->subject->lease;

	if (!answer->subject->is_listed || lease->n_submissions == RBK_STATS_ABSENT)
		return;
	if (lease->n_whole > 0)
		fact(answer,
		     "%" PRIu64 " of its command buffers stayed whole from a command on that "
		     "cannot be set up again in another part, such as one of drawing: others wait "
		     "for all that follows; computations are divided if they come before it, or "
		     "are recorded in command buffers of their own",
		     lease->n_whole);
	if (lease->n_unsliced > 0)
		fact(answer,
		     "%" PRIu64 " of its dispatches took longer than a part and stayed whole, "
		     "since their shaders have atomic operations or would notice: others wait for "
		     "each of them; smaller dispatches help, such as those of smaller batches",
		     lease->n_unsliced);
}

static void memory_facts(struct answer *answer)
{
	const struct rbk_stats_lease *lease = &answer->subject->lease;
	uint64_t used = lease->used_bytes + lease->extra_bytes;

	if (!answer->subject->is_listed)
		return;
	if (lease->seen_bytes != RBK_STATS_ABSENT && lease->seen_bytes > used)
		used = lease->seen_bytes;
	if (lease->flags & RBK_STATS_LEASE_WAITING)
		fact(answer, "it waits for %s of device memory now, and has %s",
		     text_bytes(lease->waiting_bytes), text_bytes(lease->granted_bytes));
	if (lease->flags & RBK_STATS_LEASE_OVER)
		fact(answer, "its programs use %s of device memory now, and were granted %s",
		     text_bytes(used), text_bytes(lease->granted_bytes));
	if (lease->n_refused > 0)
		fact(answer,
		     "%" PRIu64 " of its allocations %s refused: it has %s, and may have at most "
		     "%s",
		     lease->n_refused, lease->n_refused == 1 ? "was" : "were",
		     text_bytes(lease->granted_bytes), text_bytes(lease->max_bytes));
}

static void sleep_facts(struct answer *answer)
{
	const struct rbk_stats_lease *lease = &answer->subject->lease;
	const char *moved = "";
	char text[96];

	if (!answer->subject->is_listed)
		return;
	if (lease->moved_bytes > 0) {
		snprintf(text, sizeof(text), "; %s of their memory is in host memory now",
			 text_bytes(lease->moved_bytes));
		moved = text;
	}
	if (lease->flags & RBK_STATS_LEASE_HELD)
		fact(answer,
		     "its programs are held: each waits in its next submission until brokerctl "
		     "lease wake %u%s",
		     answer->subject->number, moved);
	else if (lease->flags & RBK_STATS_LEASE_SLEEPS)
		fact(answer,
		     "it sleeps: memory of its programs goes to host memory while they are idle, "
		     "until brokerctl lease wake %u, or until others that wait for room have it%s",
		     answer->subject->number, moved);
	else if (lease->moved_bytes > 0)
		fact(answer,
		     "%s of its programs' memory is in host memory, and comes back with their next "
		     "submissions as far as there is room",
		     text_bytes(lease->moved_bytes));
}

/* Clocks are converted for each record; a device is not reset twice in so short a time. */
static bool is_same_time(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns < b_ns + 1000000 && b_ns < a_ns + 1000000;
}

/* Name the program that was the reason for a reset, by its own record if that is shown. */
static void name_culprit(const struct answer *answer, const struct rbk_stats_reset *reset,
			 const struct rbk_stats_reset *all, unsigned int n, char *ret, size_t bytes)
{
	const struct rbk_stats_reset *culprit = all;
	char pid[32] = "";
	bool is_own_tenant;

	while (culprit < all + n &&
	       !(is_same_time(culprit->at_ns, reset->at_ns) && culprit->device == reset->device &&
		 culprit->cause == RBK_STATS_RESET_OWN))
		culprit++;
	if (culprit == all + n) {
		if (reset->cause == RBK_STATS_RESET_LEASE)
			snprintf(ret, bytes, "lease %u", reset->by_lease);
		else
			snprintf(ret, bytes, "a program of another tenant");
		return;
	}
	is_own_tenant = culprit->tenant == answer->subject->tenant_number;
	if (culprit->pid)
		snprintf(pid, sizeof(pid), " (pid %u)", culprit->pid);
	snprintf(ret, bytes, "%s%s of lease %u%s%s", text_name(culprit->name), pid, culprit->lease,
		 is_own_tenant ? "" : ", tenant ",
		 is_own_tenant ? "" : text_name(name_of_tenant(answer->pages, culprit->tenant)));
}

static void reset_fact(struct answer *answer, const struct rbk_stats_reset *reset,
		       const struct rbk_stats_reset *all, unsigned int n)
{
	const struct pages *pages = answer->pages;
	/* A tenant's page may be closed; the root page is not. */
	const uint64_t now_ns =
		rbk_stats_load(pages->root.page ? &pages->root.page->updated_at_ns
						: &pages->tenants[0].view.page->updated_at_ns);
	const bool is_certain = reset->flags & RBK_STATS_RESET_CERTAIN;
	const char *had = text_ns((double)reset->had_ms * 1e6);
	char who[256], lead[96];

	name_culprit(answer, reset, all, n, who, sizeof(who));
	snprintf(lead, sizeof(lead), "device %u was reset under its work %s ago", reset->device,
		 text_ns(now_ns > reset->at_ns ? (double)(now_ns - reset->at_ns) : 0));
	if (reset->cause == RBK_STATS_RESET_OWN && is_certain)
		fact(answer,
		     "%s: its own work took longer than the kernel allows, or was faulty; long "
		     "work "
		     "can be divided (brokerctl exec --max-part)",
		     lead);
	else if (reset->cause == RBK_STATS_RESET_OWN)
		fact(answer,
		     "%s: it had the device for %s until then, so its own work may be the reason; "
		     "long work can be divided (brokerctl exec --max-part)",
		     lead, had);
	else if (reset->cause == RBK_STATS_RESET_PLANS)
		fact(answer, "%s, because of a plan's task", lead);
	else if (reset->cause == RBK_STATS_RESET_UNKNOWN)
		fact(answer, "%s; it is not known for whose work", lead);
	else if (is_certain)
		fact(answer, "%s: %s is the reason, by its own statement", lead, who);
	else
		fact(answer, "%s: %s had it for %s until then, and may be the reason", lead, who,
		     had);
}

static void reset_facts(struct answer *answer)
{
	struct rbk_stats_reset resets[RBK_STATS_ALL_RESETS];
	const unsigned int n = resets_read(answer->pages, resets);

	for (unsigned int i = 0; i < n; i++)
		if (resets[i].lease == answer->subject->number &&
		    resets[i].tenant == answer->subject->tenant_number)
			reset_fact(answer, &resets[i], resets, n);
}

static void gather_facts(struct answer *answer)
{
	const struct lease_subject *subject = answer->subject;

	sleep_facts(answer);
	if (subject->is_listed && !(subject->lease.flags & RBK_STATS_LEASE_SHARING))
		fact(answer,
		     "its programs do not share the device's time, since nothing gives them a "
		     "priority, or brokerctl lease --priority=none has ended it: they neither "
		     "wait nor are waited for; brokerctl lease %u --priority=background has them "
		     "share it from now on, and so do, for leases of which it was not ended, "
		     "--priority of brokerctl exec and exec-priority of their tenant "
		     "(brokerd.conf)",
		     subject->number);
	else if (answer->n_slices == 0)
		fact(answer, "its programs are held back only while others use the device, too, "
			     "and a timeslice is logged when it ends");
	reset_facts(answer);
	overdue_facts(answer);
	parts_facts(answer);
	if (answer->n_late > 0)
		fact(answer,
		     "%" PRIu64 " of its %" PRIu64 " timeslice%s came only after it had waited for "
		     "more than a second: others have a higher priority; brokerctl lease %u "
		     "--priority=normal or urgent raises its own at once, and --priority of "
		     "brokerctl exec, or exec-priority of its tenant (brokerd.conf), for good",
		     answer->n_late, answer->n_slices, plural(answer->n_slices), subject->number);
	if (answer->share > answer->weight_share + share_slack)
		fact(answer,
		     "its tenant is over its share: it had %s of the time for which leases had the "
		     "device, and its weight gives it %s while others want it, too; then leases of "
		     "the same priority come first",
		     text_percent(answer->share, 1), text_percent(answer->weight_share, 1));
	memory_facts(answer);
}

/* --- The answer --- */

static void print_text(const struct answer *answer)
{
	const struct lease_subject *subject = answer->subject;
	const double seen_ns = (double)(answer->last_ns - answer->first_ns);

	printf("lease %u", subject->number);
	if (subject->is_listed)
		printf(" (%s)", text_name(subject->lease.name));
	printf(" of tenant %s", text_name(subject->tenant_name));
	if (!subject->is_listed)
		printf(", which has ended");
	if (answer->n_causes == 0)
		printf(": no timeslice of it is logged\n");
	else
		printf(": %s seen, in %" PRIu64 " timeslice%s, of which %s %s\n", text_ns(seen_ns),
		       answer->n_slices, plural(answer->n_slices), text_ns(answer->causes[0].ns),
		       answer->causes[0].phrase);
	for (unsigned int i = 0; i < answer->n_causes; i++)
		printf("  %9s  %6s  %s\n", text_ns(answer->causes[i].ns),
		       text_percent(answer->causes[i].ns, seen_ns), answer->causes[i].phrase);
	for (unsigned int i = 0; i < answer->n_facts; i++)
		printf("  - %s\n", answer->facts[i]);
}

static void print_cause(const struct answer *answer, const struct lease_cause *cause)
{
	const struct behind *behind = cause->behind;

	json_item();
	json_string("cause", cause->name);
	json_number("ns", cause->ns);
	json_number("share", cause->ns / (double)(answer->last_ns - answer->first_ns));
	json_string("meaning", cause->phrase);
	json_optional("lease", behind ? behind->lease : UINT64_MAX);
	json_string("tenant", behind ? answer->pages->tenants[behind->tenant].name : NULL);
	json_string("priority", behind ? slice_priority(behind->priority) : NULL);
	json_object_end();
}

static void print_json(const struct answer *answer)
{
	const struct lease_subject *subject = answer->subject;

	json_begin();
	json_string("type", "why-lease");
	json_string("what", "lease");
	json_string("tenant", subject->tenant_name);
	json_unsigned("lease", subject->number);
	json_string("lease_name", subject->is_listed ? subject->lease.name : NULL);
	json_string("priority", answer->n_slices ? slice_priority(answer->priority) : NULL);
	json_boolean("has_ended", !subject->is_listed);
	json_unsigned("timeslices", answer->n_slices);
	json_unsigned("late", answer->n_late);
	json_unsigned("overdue", n_overdue(answer));
	json_unsigned("overdue_behind_others", answer->n_overdue_behind);
	json_unsigned("tail_ns", answer->tail_ns);
	if (answer->weight_share > 0) {
		json_number("tenant_share", answer->share);
		json_number("tenant_weight_share", answer->weight_share);
	} else {
		json_raw("tenant_share", "null");
		json_raw("tenant_weight_share", "null");
	}
	json_unsigned("total_ns", answer->last_ns - answer->first_ns);
	json_array("causes");
	for (unsigned int i = 0; i < answer->n_causes; i++)
		print_cause(answer, &answer->causes[i]);
	json_array_end();
	json_array("facts");
	for (unsigned int i = 0; i < answer->n_facts; i++)
		json_string(NULL, answer->facts[i]);
	json_array_end();
	json_end();
}

int why_lease_answer(const struct pages *pages, const struct lease_subject *subject, bool is_json)
{
	struct answer answer = {.pages = pages, .subject = subject};
	int status = judge(&answer);

	if (status == EXIT_OK) {
		gather_causes(&answer);
		gather_facts(&answer);
		if (is_json)
			print_json(&answer);
		else
			print_text(&answer);
	}
	free(answer.behind);
	free(answer.until_ns);
	free(answer.entries);
	return status;
}
