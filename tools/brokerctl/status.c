/* SPDX-License-Identifier: MIT */
/*
 * brokerctl status: the broker's state on one screen
 *
 * Warnings come last, where they stay visible. Administrators see the whole broker, other users
 * their own tenant.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "gate.h"
#include "monitor/interval.h"
#include "monitor/json-figures.h"
#include "objects.h"
#include "output.h"
#include "records.h"
#include "upkeep.h"
#include "util/plural.h"

enum { MAX_WARNINGS = 40, WARNING_BYTES = 640 };

/* Several update periods of the broker: if figures are older, the broker does not work properly. */
static const uint64_t silent_ns = 3000000000;
/*
 * Fraction of a limit above which a warning is printed: the next allocation may exceed the limit.
 */
static const double nearly = 0.95;

struct warnings {
	char texts[MAX_WARNINGS][WARNING_BYTES];
	unsigned int n, n_more;
};

struct status {
	struct control *control;
	const struct rbk_stats_view *view; /* of the root page, or of the own tenant's page */
	bool is_root;
	struct rbk_stats_broker broker; /* root page only, like contention */
	struct rbk_stats_contention contention;
	struct upkeep upkeep;
	bool has_reload; /* the broker reports reloads; else the next member is 0 */
	struct rbk_stats_reload reload;
	struct rbk_stats_waiting waiting;
	uint64_t reasons[RBK_STATS_MAX_REASONS], n_reasons;
	uint64_t n_over; /* tenants above a budget */
	bool has_leases; /* the broker reports leases; else the next three are 0 */
	uint64_t n_leases, n_leases_waiting, lease_bytes;
	int64_t age_ns; /* age of the figures */
	struct gate_views gates;
	struct warnings warnings;
};

__attribute__((format(printf, 2, 3))) static void warn(struct warnings *warnings,
						       const char *format, ...)
{
	va_list args;

	if (warnings->n == MAX_WARNINGS) {
		warnings->n_more++;
		return;
	}
	va_start(args, format);
	vsnprintf(warnings->texts[warnings->n++], WARNING_BYTES, format, args);
	va_end(args);
}

/* --- What is wrong --- */

static void judge_broker(struct status *status)
{
	const char *name = rbk_broker_name(status->control->rbk), *version = strrchr(name, ' ');
	struct warnings *warnings = &status->warnings;

	if (version && strcmp(version + 1, RINGBROKER_VERSION) != 0)
		warn(warnings, "the broker is %s, and this brokerctl %s", text_name(name),
		     RINGBROKER_VERSION);
	if (status->age_ns > (int64_t)silent_ns)
		warn(warnings, "the broker has written nothing for %s: it is stopped, or has hung",
		     text_ns((double)status->age_ns));
	if (!status->is_root)
		return;
	if (status->broker.flags & RBK_STATS_BROKER_FORCE_CPU)
		warn(warnings, "force-cpu is on: no task runs on a GPU (brokerctl force-cpu off)");
	if (status->broker.n_ended_hostile > 0)
		warn(warnings, "%" PRIu64 " session%s ended for breaking a rule: see the log",
		     status->broker.n_ended_hostile,
		     status->broker.n_ended_hostile == 1 ? " was" : "s were");
	if (status->broker.n_tenants_unlisted > 0)
		warn(warnings, "%" PRIu64 " tenant%s more than are listed",
		     status->broker.n_tenants_unlisted, plural(status->broker.n_tenants_unlisted));
}

static void judge_stalls(struct status *status, const struct rbk_stats_device *device)
{
	const struct rbk_stats_mended *mended = upkeep_mended(&status->upkeep, device->index);

	warn(&status->warnings,
	     "%s had tasks and made no progress, %" PRIu32 " time%s (%" PRIu64
	     " task%s moved, %" PRIu64 " task%s and %" PRIu64
	     " slot%s taken back): see the log (device-stalled)",
	     device_label(device->index), device->n_stalls, plural(device->n_stalls),
	     mended->n_moved, plural(mended->n_moved), mended->n_recalled,
	     plural(mended->n_recalled), mended->n_slots, plural(mended->n_slots));
}

static void judge_devices(struct status *status)
{
	const struct rbk_stats_view *view = status->view;
	struct warnings *warnings = &status->warnings;
	struct rbk_stats_device device;
	unsigned int n_gpus = 0;

	for (uint32_t i = 0; i < rbk_stats_count(view, RBK_STATS_SECTION_DEVICES); i++) {
		device_copy(view, i, &device);
		n_gpus += device.kind != RBK_DEVICE_KIND_CPU;
		if (device.flags & RBK_STATS_DEVICE_LOST)
			warn(warnings, "%s (%s) is lost; its tasks run on the CPU",
			     device_label(device.index), text_name(device.name));
		if (device.breaker != RBK_STATS_BREAKER_CLOSED)
			warn(warnings, "%s failed too often: its breaker is %s",
			     device_label(device.index), stats_breaker_name(device.breaker));
		if (device.n_stalls > 0)
			judge_stalls(status, &device);
		if (device.flags & RBK_STATS_DEVICE_DRAINED)
			warn(warnings, "%s is drained (brokerctl drain device %u --end)",
			     device_label(device.index), device.index);
	}
	if (n_gpus == 0)
		warn(warnings, "there is no GPU: everything runs on the CPU (brokerctl check)");
}

static void warn_of_upkeep(void *data, const char *text)
{
	warn(data, "%s", text);
}

/* Return: true if the tenant is above a budget. */
static bool judge_tenant(struct status *status, const struct rbk_stats_tenant *tenant)
{
	struct warnings *warnings = &status->warnings;
	bool is_over = false;

	if (tenant->flags & RBK_STATS_TENANT_DRAINED)
		warn(warnings, "tenant %s is drained (brokerctl drain tenant %s --end)",
		     text_name(tenant->name), text_name(tenant->name));
	for (uint32_t i = RBK_DEVICE_GPU; i < status->view->n_devices; i++) {
		const struct rbk_stats_tenant_device *device = &tenant->devices[i];

		if (device->memory_max == UINT64_MAX || device->memory_used == 0 ||
		    (double)device->memory_used < nearly * (double)device->memory_max)
			continue;
		is_over |= device->memory_used > device->memory_max;
		warn(warnings, "tenant %s has %s of the %s on %s that it may have",
		     text_name(tenant->name), text_bytes(device->memory_used),
		     text_bytes(device->memory_max), device_label(i));
	}
	if (tenant->host_max != UINT64_MAX && tenant->host_max > 0 &&
	    (double)tenant->host_used >= nearly * (double)tenant->host_max) {
		is_over |= tenant->host_used > tenant->host_max;
		warn(warnings, "tenant %s has %s of the %s of host memory that it may have",
		     text_name(tenant->name), text_bytes(tenant->host_used),
		     text_bytes(tenant->host_max));
	}
	return is_over;
}

static void judge_tenants(struct status *status)
{
	struct rbk_stats_tenant tenant;

	for (uint32_t i = 0; i < rbk_stats_used(status->view, RBK_STATS_SECTION_TENANTS); i++) {
		if (!tenant_copy(status->view, i, &tenant))
			continue;
		for (unsigned int k = RBK_REASON_NONE + 1; k < RBK_REASON_COUNT; k++) {
			status->reasons[k] += tenant.reasons[k];
			status->n_reasons += tenant.reasons[k];
		}
		status->n_over += judge_tenant(status, &tenant);
	}
}

static void count_leases(struct status *status)
{
	const struct rbk_stats_view *view = status->view;
	struct rbk_stats_lease lease;

	status->has_leases = view->sections[RBK_STATS_SECTION_LEASES].offset;
	if (!status->has_leases)
		return;
	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_LEASES); i++) {
		if (!lease_copy(view, i, &lease))
			continue;
		status->n_leases++;
		status->n_leases_waiting += !!(lease.flags & RBK_STATS_LEASE_WAITING);
		status->lease_bytes += lease.granted_bytes;
	}
}

/* Return the time since a moment of the page's clock. */
static const char *age_text(const struct status *status, uint64_t at_ns)
{
	const uint64_t now_ns =
		rbk_stats_load(&status->view->page->updated_at_ns) + (uint64_t)status->age_ns;

	return text_ns(now_ns > at_ns ? (double)(now_ns - at_ns) : 0);
}

/* Return "; and 2 more errors", or "". */
static const char *more_errors(const struct rbk_stats_reload *reload)
{
	static char text[64];

	text[0] = '\0';
	if (reload->n_errors > 1)
		snprintf(text, sizeof(text), "; and %" PRIu64 " more error%s", reload->n_errors - 1,
			 plural(reload->n_errors - 1));
	return text;
}

static void judge_reload(struct status *status)
{
	const struct rbk_stats_reload *reload = &status->reload;

	if (reload->n_refused > 0 && reload->refused_at_ns >= reload->accepted_at_ns)
		warn(&status->warnings,
		     "the configuration in force is older than its files, which were refused %s "
		     "ago: %s%s",
		     age_text(status, reload->refused_at_ns), text_name(reload->reason),
		     more_errors(reload));
}

static void judge_waiting(struct status *status)
{
	const struct rbk_stats_waiting *waiting = &status->waiting;

	if (waiting->n_keys > 0)
		warn(&status->warnings,
		     "%" PRIu64
		     " changed key%s of the configuration take%s effect at the next start "
		     "of brokerd (brokerctl restart): %s",
		     waiting->n_keys, plural(waiting->n_keys), waiting->n_keys == 1 ? "s" : "",
		     text_name(waiting->keys));
}

static void judge_contention(struct status *status)
{
	const struct rbk_stats_contention *contention = &status->contention;

	if (!status->is_root)
		return;
	if (contention->flags & RBK_STATS_CONTENDED)
		warn(&status->warnings,
		     "other programs keep the CPU busy: tasks take %.2f times as long (brokerctl "
		     "contention)",
		     contention->factor);
	for (unsigned int i = 0; i < RBK_STATS_MAX_SENTENCES && contention->sentences[i][0]; i++)
		warn(&status->warnings, "%s", text_name(contention->sentences[i]));
}

static void judge_gates(struct status *status)
{
	gate_views_read(status->control, &status->gates);
	for (unsigned int i = 0; i < status->gates.n; i++)
		if (status->gates.gates[i].is_gone)
			warn(&status->warnings,
			     "the gate of %s is gone with its cgroup: programs there open GPUs "
			     "without a lease (systemctl restart ringbroker-gate.service)",
			     gate_name(&status->gates.gates[i]));
	if (status->gates.n && status->gates.knows_holders && !status->gates.broker)
		warn(&status->warnings,
		     "new leases cannot pass the gate: this broker cannot write the gate's map");
}

static void status_fill(struct status *status, struct control *control, const struct pages *pages)
{
	*status = (struct status){.control = control, .is_root = pages->has_all};
	status->view = pages->has_all ? &pages->root : &pages->tenants[0].view;
	status->age_ns = page_age_ns(status->view->page);
	if (status->is_root) {
		broker_copy(status->view, &status->broker);
		contention_copy(status->view, &status->contention);
		status->has_reload = reload_copy(status->view, &status->reload);
		waiting_copy(status->view, &status->waiting);
	}
	judge_broker(status);
	upkeep_read(&status->upkeep, status->is_root ? status->view : NULL);
	upkeep_judge(&status->upkeep, warn_of_upkeep, &status->warnings);
	judge_devices(status);
	judge_tenants(status);
	count_leases(status);
	judge_contention(status);
	judge_gates(status);
	judge_reload(status);
	judge_waiting(status);
}

/* --- Printing --- */

static uint64_t up_ns(const struct status *status)
{
	const struct rbk_stats_header *page = status->view->page;

	return rbk_stats_load(&page->updated_at_ns) - page->started_at_ns;
}

/* Return the number of tenants that have memory of a device. */
static uint64_t count_charged(const struct rbk_stats_view *view, uint32_t device)
{
	struct rbk_stats_tenant tenant;
	uint64_t n = 0;

	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_TENANTS); i++)
		n += tenant_copy(view, i, &tenant) && tenant.devices[device].memory_used > 0;
	return n;
}

static void print_charged(const struct status *status, const struct rbk_stats_device *device)
{
	const uint64_t n = count_charged(status->view, device->index);

	printf("; %s of %s charged to %" PRIu64 " tenant%s", text_bytes(device->memory_charged),
	       text_bytes(device->memory_budget), n, plural(n));
}

/* Print the local time of a moment of the page's clock. */
static void print_clock(const struct status *status, uint64_t at_ns)
{
	const time_t seconds = (time_t)(since_1970_ns(status->view, at_ns) / 1000000000);
	struct tm local;
	char text[32];

	localtime_r(&seconds, &local);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
	fputs(text, stdout);
}

static void print_reload(const struct status *status)
{
	const struct rbk_stats_reload *reload = &status->reload;

	if (reload->n_accepted + reload->n_refused == 0)
		return;
	fputs("reload   ", stdout);
	if (reload->n_accepted > 0) {
		fputs("accepted ", stdout);
		print_clock(status, reload->accepted_at_ns);
	}
	if (reload->n_refused > 0) {
		printf("%srefused ", reload->n_accepted ? ", " : "");
		print_clock(status, reload->refused_at_ns);
		printf(" (%s ago): %s%s", age_text(status, reload->refused_at_ns),
		       text_name(reload->reason), more_errors(reload));
	}
	putchar('\n');
}

static void print_devices(const struct status *status)
{
	struct rbk_stats_device device;

	for (uint32_t i = 0; i < rbk_stats_count(status->view, RBK_STATS_SECTION_DEVICES); i++) {
		device_copy(status->view, i, &device);
		printf("  %-6s %s", device_label(device.index), text_name(device.name));
		if (device.paths[0])
			printf(", %s", text_name(device.paths));
		if (status->is_root) {
			printf(", %" PRIu64 " task%s, %s busy", device.n_tasks,
			       plural(device.n_tasks), text_percent(device.utilization, 1));
			if (device.index != RBK_DEVICE_CPU) {
				printf(", %s of %s used", text_bytes(device.memory_used),
				       text_bytes(device.memory_total));
				print_charged(status, &device);
			}
		}
		putchar('\n');
	}
}

static void print_tenants(const struct status *status)
{
	struct rbk_stats_tenant tenant;
	uint64_t n_tenants = 0, n_sessions = 0, n_plans = 0, n_tasks = 0;

	for (uint32_t i = 0; i < rbk_stats_used(status->view, RBK_STATS_SECTION_TENANTS); i++) {
		if (!tenant_copy(status->view, i, &tenant))
			continue;
		n_tenants++;
		n_sessions += tenant.n_sessions;
		n_plans += tenant.n_plans;
		n_tasks += tenant.n_tasks;
		if (!status->is_root)
			printf("tenant   %s, p99 %s\n", text_name(tenant.name),
			       text_ns(histogram_quantile(tenant.latency_histogram, 0.99)));
	}
	printf("tenants  %" PRIu64 " (%" PRIu64 " over a budget), %" PRIu64 " session%s, %" PRIu64
	       " plan%s, %" PRIu64 " task%s",
	       n_tenants, status->n_over, n_sessions, plural(n_sessions), n_plans, plural(n_plans),
	       n_tasks, plural(n_tasks));
	if (status->is_root)
		printf(", %" PRIu64 " in flight", status->broker.n_in_flight);
	putchar('\n');
}

static void print_leases(const struct status *status)
{
	if (!status->has_leases)
		return;
	printf("leases   %" PRIu64, status->n_leases);
	if (status->n_leases)
		printf(", %s granted", text_bytes(status->lease_bytes));
	if (status->n_leases_waiting)
		printf(", %" PRIu64 " wait%s for room", status->n_leases_waiting,
		       status->n_leases_waiting == 1 ? "s" : "");
	putchar('\n');
}

static void print_gates(const struct gate_views *gates)
{
	for (unsigned int i = 0; i < gates->n; i++) {
		const struct gate_view *gate = &gates->gates[i];

		printf("gate     %s, %s; %s\n", gate_name(gate),
		       gate->is_gone ? "gone with its cgroup, and open"
				     : "closed to programs without a lease",
		       gate->is_known ? gate_count_text(&gate->record)
				      : "this user may not see more");
	}
}

static void print_reasons(const struct status *status)
{
	bool is_first = true;

	if (status->n_reasons == 0)
		return;
	fputs("reasons ", stdout);
	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++) {
		if (status->reasons[i] == 0)
			continue;
		printf("%s %s %s", is_first ? "" : ",", rbk_reason_name(i),
		       text_percent((double)status->reasons[i], (double)status->n_reasons));
		is_first = false;
	}
	putchar('\n');
}

static void print_text(const struct status *status)
{
	const struct rbk_stats_contention *contention = &status->contention;

	printf("broker   %s, process %u, up %s\n", text_name(rbk_broker_name(status->control->rbk)),
	       status->view->page->pid, text_ns((double)up_ns(status)));
	printf("devices  %u\n", status->view->n_devices);
	print_devices(status);
	print_tenants(status);
	print_leases(status);
	if (status->is_root) {
		printf("CPU      %s, %u of %u workers used, watched by %s\n",
		       contention->flags & RBK_STATS_CONTENDED ? "CONTENDED" : "not contended",
		       contention->n_workers, contention->n_workers_total,
		       contention_source_name(contention->source));
	}
	upkeep_print(&status->upkeep);
	print_gates(&status->gates);
	print_reload(status);
	print_reasons(status);
	printf("warnings %u\n", status->warnings.n + status->warnings.n_more);
	for (unsigned int i = 0; i < status->warnings.n; i++)
		printf("  %s!%s %s\n", mark_begin(MARK_FAULT), mark_end(MARK_FAULT),
		       status->warnings.texts[i]);
	if (status->warnings.n_more)
		printf("  ! and %u more\n", status->warnings.n_more);
}

static void json_stalls(const struct status *status)
{
	const uint32_t n = rbk_stats_count(status->view, RBK_STATS_SECTION_DEVICES);
	struct rbk_stats_device device;

	json_array("stalls");
	for (uint32_t i = 0; status->is_root && i < n; i++) {
		device_copy(status->view, i, &device);
		json_item();
		json_unsigned("device", device.index);
		json_unsigned("stalls", device.n_stalls);
		json_figures(mended_figures, upkeep_mended(&status->upkeep, device.index));
		json_object_end();
	}
	json_array_end();
}

static void json_charges(const struct status *status)
{
	const uint32_t n = rbk_stats_count(status->view, RBK_STATS_SECTION_DEVICES);
	struct rbk_stats_device device;

	json_array("charges");
	for (uint32_t i = RBK_DEVICE_GPU; status->is_root && i < n; i++) {
		device_copy(status->view, i, &device);
		json_item();
		json_unsigned("device", device.index);
		json_optional("charged_bytes", device.memory_charged);
		json_optional("limit_bytes", device.memory_budget);
		json_unsigned("tenants_charged", count_charged(status->view, device.index));
		json_object_end();
	}
	json_array_end();
}

/* Print a time of the page's clock since 1970; null: @at_ns is 0. */
static void json_moment(const struct status *status, const char *name, uint64_t at_ns)
{
	json_optional(name, at_ns ? (uint64_t)since_1970_ns(status->view, at_ns) : UINT64_MAX);
}

static void json_reload(const struct status *status)
{
	const struct rbk_stats_reload *reload = &status->reload;

	json_object("reload");
	json_unsigned("accepted", reload->n_accepted);
	json_unsigned("refused", reload->n_refused);
	json_moment(status, "accepted_ns", reload->accepted_at_ns);
	json_moment(status, "refused_ns", reload->refused_at_ns);
	json_unsigned("refused_errors", reload->n_errors);
	json_string("refused_because", reload->reason[0] ? reload->reason : NULL);
	json_string("waiting_keys", status->waiting.n_keys ? status->waiting.keys : NULL);
	json_object_end();
}

static void print_json(const struct status *status)
{
	const struct rbk_stats_contention *contention = &status->contention;
	/* all bits set for figures that only the root page has */
	const uint64_t unknown = status->is_root ? 0 : UINT64_MAX;
	/* all bits set for figures that older brokers lack */
	const uint64_t untold = status->has_leases ? 0 : UINT64_MAX;

	json_begin();
	json_string("type", "status");
	json_string("broker", rbk_broker_name(status->control->rbk));
	json_string("brokerctl", RINGBROKER_VERSION);
	json_boolean("whole", status->is_root);
	json_unsigned("pid", status->view->page->pid);
	json_unsigned("up_ns", up_ns(status));
	json_signed("age_ns", status->age_ns);
	json_unsigned("devices", status->view->n_devices);
	json_optional("sessions", status->broker.n_sessions | unknown);
	json_optional("plans", status->broker.n_plans | unknown);
	json_optional("tenants", status->broker.n_tenants | unknown);
	json_optional("in_flight", status->broker.n_in_flight | unknown);
	json_optional("completed", status->broker.n_completed | unknown);
	json_unsigned("tenants_over", status->n_over);
	json_optional("leases", status->n_leases | untold);
	json_optional("leases_granted_bytes", status->lease_bytes | untold);
	json_optional("leases_waiting", status->n_leases_waiting | untold);
	json_boolean("force_cpu", status->broker.flags & RBK_STATS_BROKER_FORCE_CPU);
	json_boolean("contended", contention->flags & RBK_STATS_CONTENDED);
	json_number("contention", status->is_root ? contention->factor : NAN);
	upkeep_json(&status->upkeep);
	json_stalls(status);
	json_charges(status);
	if (status->has_reload)
		json_reload(status);
	json_array("gates");
	for (unsigned int i = 0; i < status->gates.n; i++)
		json_string(NULL, gate_name(&status->gates.gates[i]));
	json_array_end();
	json_object("reasons");
	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++)
		json_unsigned(rbk_reason_name(i), status->reasons[i]);
	json_object_end();
	json_array("warnings");
	for (unsigned int i = 0; i < status->warnings.n; i++)
		json_string(NULL, status->warnings.texts[i]);
	json_array_end();
	json_end();
}

int run_status(struct control *control, const struct arguments *arguments)
{
	struct status status;
	struct pages pages;
	int r = control_map_root(control, &pages);

	if (r)
		return r;
	status_fill(&status, control, &pages);
	if (arguments->values[OPT_JSON])
		print_json(&status);
	else
		print_text(&status);
	pages_unmap(&pages);
	return EXIT_OK;
}
