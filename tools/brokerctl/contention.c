/* SPDX-License-Identifier: MIT */
/*
 * brokerctl contention: which threads wait for a processor, and because of which programs
 *
 * Administrators see the CPU's state, every thread of the broker and every tenant; other users see
 * their own tenant. The broker does not update the figures while no client reads them. The command
 * therefore waits for two updates: the first makes the broker start gathering, the second publishes
 * the result.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "monitor/json-figures.h"
#include "output.h"
#include "records.h"
#include "util/plural.h"

static const char *const roles[] = {
	[RBK_STATS_ROLE_OTHER] = "other",
	[RBK_STATS_ROLE_REACTOR] = "reactor",
	[RBK_STATS_ROLE_WORKER] = "worker",
};

#define NAME_OF(names, i) ((i) < sizeof(names) / sizeof((names)[0]) ? (names)[i] : "unknown")

/* Return: true if the thread exists. */
static bool thread_copy(const struct rbk_stats_view *root, uint32_t index,
			struct rbk_stats_thread *ret)
{
	page_copy(root, RBK_STATS_SECTION_THREADS, index, ret, sizeof(*ret));
	ret->name[sizeof(ret->name) - 1] = '\0';
	delay_end_strings(&ret->delay);
	return ret->tid != 0;
}

/* Return: true if the tenant exists and is watched. */
static bool watched_copy(const struct rbk_stats_view *view, uint32_t index,
			 struct rbk_stats_tenant *ret, struct rbk_stats_delay *ret_delay)
{
	bool is_watched = delay_copy(view, index, ret_delay);

	return tenant_copy(view, index, ret) && is_watched;
}

/* --- JSON --- */

static void json_contention(const struct rbk_stats_view *root)
{
	int64_t offset_ns = __atomic_load_n(&root->page->realtime_offset_ns, __ATOMIC_RELAXED);
	struct rbk_stats_contention contention;

	contention_copy(root, &contention);
	json_begin();
	json_string("type", "contention");
	json_string("source", contention_source_name(contention.source));
	json_array("sentences");
	for (unsigned int i = 0; i < RBK_STATS_MAX_SENTENCES && contention.sentences[i][0]; i++)
		json_string(NULL, contention.sentences[i]);
	json_array_end();
	json_figures_part(contention_figures, &contention, offset_ns, "contended", "contended_ns");
	json_string("action", contention.flags & RBK_STATS_CONTENTION_ACTS ? "act" : "observe");
	json_figures_part(contention_figures, &contention, 0, "n_unwatched", NULL);
	json_end();
}

static void json_delay(const struct rbk_stats_view *view, const struct rbk_stats_delay *delay)
{
	/* all bits set for figures that the source does not provide */
	const uint64_t unknown = delay->flags & RBK_STATS_DELAY_KNOWN ? 0 : UINT64_MAX;

	json_figures_part(delay_figures, delay, 0, NULL, "n_waits");
	json_optional("n_preemptions", delay->n_preemptions | unknown);
	json_figures_part(delay_figures, delay, 0, "n_involuntary", "n_migrations");
	json_optional("p50_ns", delay->p50_ns | unknown);
	json_optional("p99_ns", delay->p99_ns | unknown);
	json_optional("max_ns", delay->max_ns | unknown);
	json_array("causers");
	for (uint32_t i = 0; i < delay->n_causes; i++) {
		const struct rbk_stats_cause *cause = &delay->causes[i];

		json_item();
		json_string("comm", cause->comm);
		json_string("cgroup", cause->cgroup);
		json_optional("pid", cause->pid ? cause->pid : UINT64_MAX);
		json_string("tenant", tenant_name(view, cause->tenant));
		json_boolean("own", cause->flags & RBK_STATS_CAUSE_BROKER);
		json_unsigned("wait_ns", cause->wait_ns);
		json_unsigned("n_preemptions", cause->n_preemptions);
		json_object_end();
	}
	json_array_end();
}

static void json_threads(const struct rbk_stats_view *root)
{
	struct rbk_stats_thread thread;

	for (uint32_t i = 0; i < rbk_stats_count(root, RBK_STATS_SECTION_THREADS); i++) {
		if (!thread_copy(root, i, &thread))
			break;
		json_begin();
		json_string("type", "thread");
		json_unsigned("tid", thread.tid);
		json_string("name", thread.name);
		json_string("role", NAME_OF(roles, thread.role));
		json_delay(root, &thread.delay);
		json_end();
	}
}

static void json_tenants(const struct rbk_stats_view *view)
{
	struct rbk_stats_tenant tenant;
	struct rbk_stats_delay delay;

	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_DELAYS); i++) {
		if (!watched_copy(view, i, &tenant, &delay))
			continue;
		json_begin();
		json_string("type", "tenant");
		json_unsigned("number", tenant.number);
		json_string("name", tenant.name);
		json_delay(view, &delay);
		json_figures_part(delay_figures, &delay, 0, "caused_ns", NULL);
		json_end();
	}
}

/* --- Tables --- */

static void print_status(const struct rbk_stats_view *root)
{
	static const char *const words[] = {
		[RBK_STATS_SOURCE_NONE] = "not watched",
		[RBK_STATS_SOURCE_EBPF] = "watched by eBPF",
		[RBK_STATS_SOURCE_SCHEDSTAT] = "watched by /proc/PID/schedstat",
		[RBK_STATS_SOURCE_PSI] = "watched by /proc/pressure/cpu",
		[RBK_STATS_SOURCE_STAT] = "watched by /proc/stat",
	};
	struct rbk_stats_contention contention;
	uint64_t now_ns = rbk_stats_load(&root->page->updated_at_ns);
	const char *acts;

	contention_copy(root, &contention);
	acts = contention.flags & RBK_STATS_CONTENTION_ACTS ? "acted on" : "only observed";
	if (contention.flags & RBK_STATS_CONTENDED)
		printf("The CPU is CONTENDED since %s: tasks take %.2f times as long; ",
		       text_ns((double)(now_ns - contention.began_at_ns)), contention.factor);
	else if (contention.source == RBK_STATS_SOURCE_NONE)
		printf("Whether the CPU is contended is not known; ");
	else
		printf("The CPU is not contended; ");
	printf("%s, %s; %u of %u worker%s used\n", NAME_OF(words, contention.source), acts,
	       contention.n_workers, contention.n_workers_total,
	       plural(contention.n_workers_total));
	if (contention.n_began > 0)
		printf("It was contended %llu time%s since the start or the last reset, %s "
		       "together, last %s ago\n",
		       (unsigned long long)contention.n_began, plural(contention.n_began),
		       text_ns((double)contention.contended_ns),
		       text_ns((double)(now_ns - contention.began_at_ns)));
	if (contention.n_unwatched + contention.n_dropped > 0)
		printf("Not watched, for lack of room: %llu tenant%s, %llu threads and processes\n",
		       (unsigned long long)contention.n_unwatched, plural(contention.n_unwatched),
		       (unsigned long long)contention.n_dropped);
	for (unsigned int i = 0; i < RBK_STATS_MAX_SENTENCES && contention.sentences[i][0]; i++)
		printf("%s\n", text_name(contention.sentences[i]));
	putchar('\n');
}

/* columns of both tables */
#define DELAY_HEADS                                                                          \
	"2ON CPU", "WAITED", "7WAITED IDLE", "6WAITS", "4P50", "1P99", "3MAX", "4PREEMPTED", \
		"8MIGRATED", "5THROTTLED"

static void delay_cells(const struct rbk_stats_delay *delay)
{
	bool is_known = delay->flags & RBK_STATS_DELAY_KNOWN;

	table_cell("%s", text_ns((double)delay->run_ns));
	table_cell("%s", text_ns((double)delay->wait_ns));
	table_cell("%s", text_ns((double)delay->idle_wait_ns));
	table_cell("%llu", (unsigned long long)delay->n_waits);
	table_cell("%s", text_ns((double)delay->p50_ns));
	table_cell("%s", text_ns((double)delay->p99_ns));
	table_cell("%s", text_ns((double)delay->max_ns));
	if (is_known)
		table_cell("%llu", (unsigned long long)delay->n_preemptions);
	else
		table_cell("-");
	table_cell("%llu", (unsigned long long)delay->n_migrations);
	table_cell("%llu", (unsigned long long)delay->n_throttled);
}

static void table_threads(const struct rbk_stats_view *root)
{
	static const char *const heads[] = {"<THREAD", "<4ROLE", "5TID", DELAY_HEADS, NULL};
	struct rbk_stats_thread thread;

	table_begin("Threads of the broker", heads);
	for (uint32_t i = 0; i < rbk_stats_count(root, RBK_STATS_SECTION_THREADS); i++) {
		if (!thread_copy(root, i, &thread))
			break;
		table_cell("%s", text_name(thread.name));
		table_cell("%s", NAME_OF(roles, thread.role));
		table_cell("%u", thread.tid);
		delay_cells(&thread.delay);
	}
	table_end();
}

static void table_tenants(const struct rbk_stats_view *view)
{
	static const char *const heads[] = {"<TENANT", DELAY_HEADS, "6BY QUOTA", "2CAUSED", NULL};
	struct rbk_stats_tenant tenant;
	struct rbk_stats_delay delay;

	table_begin("Tenants' processes", heads);
	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_DELAYS); i++) {
		if (!watched_copy(view, i, &tenant, &delay))
			continue;
		table_cell("%s", text_name(tenant.name));
		delay_cells(&delay);
		table_cell("%s", text_ns((double)delay.throttled_ns));
		table_cell("%s", text_ns((double)delay.caused_ns));
	}
	table_end();
}

/* Return the end of a path that is too long for a cell: ends tell paths apart. */
static const char *end_of(const char *path)
{
	const size_t n = strlen(path), room = TABLE_CELL_BYTES - 1;

	return n > room ? path + (n - room) : path;
}

static void cause_rows(const struct rbk_stats_view *view, const char *who,
		       const struct rbk_stats_delay *delay)
{
	for (uint32_t i = 0; i < delay->n_causes; i++) {
		const struct rbk_stats_cause *cause = &delay->causes[i];
		const char *tenant = tenant_name(view, cause->tenant);

		table_cell("%s", who);
		table_cell("%s", text_ns((double)cause->wait_ns));
		table_cell("%llu", (unsigned long long)cause->n_preemptions);
		table_cell("%s", cause->comm[0] ? text_name(cause->comm) : "-");
		if (cause->pid)
			table_cell("%u", cause->pid);
		else if (view->page->kind == RBK_STATS_ROOT)
			table_cell("in another PID namespace");
		else
			table_cell("-");
		if (cause->flags & RBK_STATS_CAUSE_BROKER)
			table_cell("the broker");
		else
			table_cell("%s", tenant ? text_name(tenant) : "-");
		table_cell("%s", cause->cgroup[0] ? end_of(text_name(cause->cgroup)) : "-");
	}
}

static void table_causes(const struct rbk_stats_view *view)
{
	static const char *const heads[] = {"<WHO WAITED", "WAITED",   "3PREEMPTED", "<FOR",
					    "2PROCESS",    "<1TENANT", "<1CGROUP",   NULL};
	struct rbk_stats_thread thread;
	struct rbk_stats_tenant tenant;
	struct rbk_stats_delay delay;

	table_begin("Programs that ran instead, in the last ten seconds", heads);
	for (uint32_t i = 0; i < rbk_stats_count(view, RBK_STATS_SECTION_THREADS); i++) {
		if (!thread_copy(view, i, &thread))
			break;
		cause_rows(view, text_name(thread.name), &thread.delay);
	}
	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_DELAYS); i++)
		if (watched_copy(view, i, &tenant, &delay))
			cause_rows(view, text_name(tenant.name), &delay);
	table_end();
}

/* --- All of it --- */

/*
 * Map the root page, or else the page of the own tenant.
 * Return: EXIT_*, after an error message if it is not EXIT_OK.
 */
static int map_page(struct control *control, struct rbk_stats_view *ret)
{
	struct rbk_error error = {""};
	int r = rbk_stats_map(control->rbk, RBK_STATS_ALL, 0, ret, &error);

	if (r == -EPERM)
		r = rbk_stats_map(control->rbk, RBK_STATS_OWN, 0, ret, &error);
	return r ? control_refused(control, r, &error) : EXIT_OK;
}

int run_contention(struct control *control, const struct arguments *arguments)
{
	const bool is_json = arguments->values[OPT_JSON];
	struct rbk_stats_view view;
	bool is_root, has_threads;
	struct rbk_stats_thread first;
	int status;

	status = control_connect(control);
	if (status == EXIT_OK)
		status = map_page(control, &view);
	if (status)
		return status;
	if (rbk_stats_count(&view, RBK_STATS_SECTION_DELAYS) == 0) {
		rbk_stats_unmap(&view);
		return control_fail(EXIT_FAILED, "this broker does not watch contention");
	}
	await_updates(&view);
	is_root = view.page->kind == RBK_STATS_ROOT;
	/* Without threads nothing is watched. */
	has_threads = is_root && thread_copy(&view, 0, &first);
	if (is_json) {
		if (is_root)
			json_contention(&view);
		json_threads(&view);
		json_tenants(&view);
	} else {
		if (is_root)
			print_status(&view);
		if (has_threads)
			table_threads(&view);
		if (has_threads || !is_root) {
			table_tenants(&view);
			table_causes(&view);
		}
	}
	rbk_stats_unmap(&view);
	return EXIT_OK;
}
