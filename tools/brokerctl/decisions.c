/* SPDX-License-Identifier: MIT */
/*
 * brokerctl decisions: where tasks ran, and why
 *
 * The command reads the decision logs of tenant pages. --last prints the records of all tenants in
 * the order in which their tasks ended. --follow continues each log from its last position and
 * counts the records that were overwritten before being read. Following reads shared memory only;
 * the broker is asked whether it still runs only when its heartbeat has stopped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "logs.h"
#include "output.h"
#include "util/plural.h"

enum { LAST_DEFAULT = 20, LAST_MAX = 1000000 };

static const long poll_ns = 20000000;
/* interval of checks for new tenants and the heartbeat: 0.5 s */
static const unsigned int polls_per_look = 25;
static const unsigned int looks_without_beat = 4;

struct source {
	uint32_t number;
	uint64_t next; /* index in the log */
};

struct decisions {
	struct control *control;
	struct pages pages;
	struct source *sources;
	unsigned int n_sources;
	bool is_json;
	uint64_t n_beats; /* n_updates of the first page at the last check */
	unsigned int n_silent;
};

/* --- One record --- */

static const char *const flag_names[] = {
	[0] = "deadline-missed", [1] = "partitioned", [2] = "explored",
	[7] = "held-back",       [8] = "inline",      [9] = "moved",
};
enum { N_FLAGS = sizeof(flag_names) / sizeof(flag_names[0]) };

static int64_t realtime_ns(const struct tenant_page *tenant,
			   const struct rbk_stats_decision *decision)
{
	int64_t offset_ns =
		__atomic_load_n(&tenant->view.page->realtime_offset_ns, __ATOMIC_RELAXED);

	return (int64_t)decision->ended_at_ns + offset_ns;
}

static void print_json(const struct tenant_page *tenant, const struct rbk_stats_decision *decision)
{
	char name[RBK_NAME_BYTES];

	log_plan_name(tenant, decision, name);
	json_begin();
	json_string("type", "decision");
	json_unsigned("index", decision->sequence - 1);
	json_signed("time_ns", realtime_ns(tenant, decision));
	json_string("tenant", tenant->name);
	json_unsigned("session", decision->session);
	json_unsigned("plan_id", decision->plan_id);
	json_string("plan", name);
	json_unsigned("user_data", decision->user_data);
	json_unsigned("count", decision->count);
	json_optional("device",
		      decision->device == RBK_DEVICE_NONE ? UINT64_MAX : decision->device);
	json_string("reason", rbk_reason_name(decision->reason));
	json_number("predicted_ns", (double)decision->predicted_ns);
	json_number("other_ns", (double)decision->other_ns);
	json_number("queue_ns", (double)decision->queue_ns);
	json_number("exec_ns", (double)decision->exec_ns);
	json_unsigned("split_count", decision->split_count);
	json_signed("res", decision->res);
	json_array("flags");
	for (unsigned int i = 0; i < N_FLAGS; i++)
		if (flag_names[i] && (decision->flags & 1u << i))
			json_string(NULL, flag_names[i]);
	json_array_end();
	json_end();
}

static void print_text(const struct tenant_page *tenant, const struct rbk_stats_decision *decision)
{
	int64_t ns = realtime_ns(tenant, decision);
	time_t seconds = (time_t)(ns / 1000000000);
	char name[RBK_NAME_BYTES], clock[32], device[16] = "-";
	struct tm local;

	log_plan_name(tenant, decision, name);
	localtime_r(&seconds, &local);
	strftime(clock, sizeof(clock), "%H:%M:%S", &local);
	if (decision->device == RBK_DEVICE_CPU)
		snprintf(device, sizeof(device), "CPU");
	else if (decision->device < RBK_MAX_DEVICES)
		snprintf(device, sizeof(device), "GPU%u", decision->device);
	printf("%s.%06d  %s  #%llu  %s  x%u  %s  %s", clock, (int)(ns % 1000000000 / 1000),
	       text_name(tenant->name), (unsigned long long)decision->sequence - 1,
	       name[0] ? text_name(name) : "?", decision->count, device,
	       rbk_reason_name(decision->reason));
	printf("  queue %s  exec %s", text_ns((double)decision->queue_ns),
	       text_ns((double)decision->exec_ns));
	if (decision->predicted_ns > 0)
		printf("  predicted %s", text_ns((double)decision->predicted_ns));
	if (decision->other_ns > 0)
		printf("  elsewhere %s", text_ns((double)decision->other_ns));
	if (decision->split_count)
		printf("  %u row%s on a GPU", decision->split_count, plural(decision->split_count));
	if (decision->res)
		printf("  %s%s%s", mark_begin(MARK_FAULT), strerror(-decision->res),
		       mark_end(MARK_FAULT));
	for (unsigned int i = 0; i < N_FLAGS; i++)
		if (flag_names[i] && (decision->flags & 1u << i))
			printf("  %s", flag_names[i]);
	putchar('\n');
}

static void print_entry(const struct decisions *decisions, const struct log_entry *entry)
{
	const struct tenant_page *tenant = &decisions->pages.tenants[entry->tenant];

	if (decisions->is_json)
		print_json(tenant, &entry->decision);
	else
		print_text(tenant, &entry->decision);
}

static void print_lost(const struct decisions *decisions, unsigned int tenant, uint64_t n)
{
	const char *name = decisions->pages.tenants[tenant].name;

	if (decisions->is_json) {
		json_begin();
		json_string("type", "lost");
		json_string("tenant", name);
		json_unsigned("records", n);
		json_end();
	} else {
		printf("(%llu record%s of tenant %s overwritten before being read)\n",
		       (unsigned long long)n, plural(n), text_name(name));
	}
}

/* --- The logs --- */

/* Return: EXIT_* */
static int print_last(const struct decisions *decisions, uint64_t n_last)
{
	struct log_entry *entries;
	size_t n, n_old = 0;

	if (log_read(&decisions->pages, &entries, &n))
		return control_fail(EXIT_FAILED, "out of memory");
	/* Records that arrived after match_sources() are printed by follow(). */
	for (size_t i = 0; i < n; i++)
		if (entries[i].decision.sequence <= decisions->sources[entries[i].tenant].next)
			entries[n_old++] = entries[i];
	for (size_t i = n_old > n_last ? n_old - n_last : 0; i < n_old; i++)
		print_entry(decisions, &entries[i]);
	free(entries);
	return EXIT_OK;
}

/*
 * Print the tenant's new records.
 * Return: the number of records printed.
 */
static unsigned int print_new(struct decisions *decisions, unsigned int i)
{
	const struct tenant_page *tenant = &decisions->pages.tenants[i];
	struct source *source = &decisions->sources[i];
	uint64_t first = log_first(tenant), head = log_head(tenant);
	uint64_t oldest = log_oldest(tenant, head), n_lost = 0;
	struct log_entry entry = {.tenant = i};
	unsigned int n = 0;

	/* Records before a reset do not count as lost. */
	if (source->next < first)
		source->next = first;
	if (source->next < oldest) {
		n_lost = oldest - source->next;
		source->next = oldest;
	}
	for (; source->next < head; source->next++) {
		if (rbk_stats_decision(&tenant->view, source->next, &entry.decision)) {
			print_entry(decisions, &entry);
			n++;
		} else {
			n_lost++;
		}
	}
	if (n_lost > 0)
		print_lost(decisions, i, n_lost);
	return n;
}

/* Set the position in each page's log; known tenants keep theirs. */
static int match_sources(struct decisions *decisions, bool from_beginning)
{
	const struct pages *pages = &decisions->pages;
	struct source *sources = calloc(pages->n_tenants + 1, sizeof(*sources));

	if (!sources)
		return control_fail(EXIT_FAILED, "out of memory");
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		const struct tenant_page *tenant = &pages->tenants[i];
		uint64_t head = log_head(tenant);

		sources[i].number = tenant->number;
		sources[i].next = from_beginning ? log_oldest(tenant, head) : head;
		for (unsigned int k = 0; k < decisions->n_sources; k++)
			if (decisions->sources[k].number == tenant->number)
				sources[i].next = decisions->sources[k].next;
	}
	free(decisions->sources);
	decisions->sources = sources;
	decisions->n_sources = pages->n_tenants;
	return EXIT_OK;
}

/*
 * Check that the broker runs. Its heartbeat shows that without a request; ask the broker only if
 * the heartbeat has stopped.
 * Return: EXIT_*.
 */
static int check_broker(struct decisions *decisions)
{
	const struct rbk_stats_header *page = decisions->pages.root.page
						      ? decisions->pages.root.page
						      : decisions->pages.tenants[0].view.page;
	uint64_t n_beats = rbk_stats_load(&page->n_updates);
	struct rbk_error none = {"the broker is gone"};
	struct rbk_stats stats;
	int r;

	if (n_beats != decisions->n_beats) {
		decisions->n_beats = n_beats;
		decisions->n_silent = 0;
		return EXIT_OK;
	}
	if (++decisions->n_silent < looks_without_beat)
		return EXIT_OK;
	decisions->n_silent = 0;
	r = rbk_stats(decisions->control->rbk, &stats);
	return r ? control_refused(decisions->control, r, &none) : EXIT_OK;
}

/* Return: EXIT_* */
static int update_pages(struct decisions *decisions)
{
	struct rbk_error error = {""};
	int r = pages_update(decisions->control->rbk, &decisions->pages, &error);

	return r ? control_refused(decisions->control, r, &error) : EXIT_OK;
}

static int follow(struct decisions *decisions)
{
	const struct timespec pause = {.tv_nsec = poll_ns};
	int status = EXIT_OK;

	for (unsigned int n = 1; status == EXIT_OK; n++) {
		for (unsigned int i = 0; i < decisions->pages.n_tenants; i++)
			print_new(decisions, i);
		if (!output_flush())
			return EXIT_OK;
		nanosleep(&pause, NULL);
		if (n % polls_per_look)
			continue;
		status = check_broker(decisions);
		/* Print records written before a page was closed or the broker died. */
		for (unsigned int i = 0; i < decisions->pages.n_tenants; i++)
			print_new(decisions, i);
		if (status == EXIT_OK)
			status = update_pages(decisions);
		if (status == EXIT_OK)
			status = match_sources(decisions, true);
	}
	return status;
}

int run_decisions(struct control *control, const struct arguments *arguments)
{
	const char *last = arguments->values[OPT_LAST];
	const bool follows = arguments->values[OPT_FOLLOW];
	struct decisions decisions = {.control = control, .is_json = arguments->values[OPT_JSON]};
	uint64_t n_last = LAST_DEFAULT;
	int status;

	if (last && !pages_number(last, LAST_MAX, &n_last))
		return control_misuse(arguments, "--last takes a number up to %d", LAST_MAX);

	status = control_map(control, arguments->values[OPT_TENANT], &decisions.pages);
	if (status == EXIT_OK)
		status = match_sources(&decisions, false);
	if (status == EXIT_OK && (last || !follows))
		status = print_last(&decisions, n_last);
	if (status == EXIT_OK && follows)
		status = follow(&decisions);
	free(decisions.sources);
	pages_unmap(&decisions.pages);
	return status;
}
