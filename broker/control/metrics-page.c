/* SPDX-License-Identifier: MIT */
/*
 * A statistics page as metrics
 *
 * What is one number of one record is in tables; what is more has a function. A family's samples
 * stand together, so the page is copied first and gone through once for each family: 5 KB for each
 * tenant, which stay in the processor's cache.
 *
 * What nobody knows (RBK_STATS_ABSENT), what has no limit, and what is no number is left out: an
 * absent series is what Prometheus takes for "not known". Counts begin when the broker starts or
 * when they were last reset; which of the two is in the tables.
 */
#include "control/metrics-page.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/checked.h"
#include "util/error.h"

enum {
	/* A name, each character escaped, with what makes it unique. */
	LABEL_BYTES = 2 * RBK_STATS_NAME_BYTES + 32,
	NAP_NS = 100000,
	MAX_NAPS = 100, /* of one copy of a page */
};

/* Of all leases that a tenant has of a device: their programs come and go, and get no series. */
struct lease_sum {
	uint64_t n, granted_bytes, capped_bytes, credited_bytes, used_bytes, seen_bytes;
	bool is_seen;
};

struct tenant_copy {
	struct rbk_stats_tenant figures;
	struct rbk_stats_delay delay;
	char label[LABEL_BYTES];
	struct lease_sum leases[RBK_MAX_DEVICES];
};

struct metrics_page {
	struct rbk_stats_header header; /* those members that are used */
	struct rbk_stats_broker broker;
	struct rbk_stats_contention contention;
	bool has_contention;
	struct rbk_stats_delay roles[2]; /* of reactor and workers, as far as they are summed up */
	bool has_roles;
	uint32_t n_devices;
	struct rbk_stats_device devices[RBK_MAX_DEVICES];
	bool has_leases;
	uint32_t n_tenants, max_tenants;
	uint64_t *hashes; /* of the tenants' labels */
	struct tenant_copy tenants[];
};

/* ---- Copying ---- */

int metrics_page_new(const struct rbk_stats_view *view, struct metrics_page **ret)
{
	size_t n = rbk_stats_count(view, RBK_STATS_SECTION_TENANTS);
	_cleanup_(metrics_page_freep) struct metrics_page *page =
		calloc(1, sizeof(*page) + n * sizeof(page->tenants[0]));

	if (!page)
		return error_origin(-ENOMEM);
	page->hashes = calloc(n ? n : 1, sizeof(page->hashes[0]));
	if (!page->hashes)
		return error_origin(-ENOMEM);
	page->max_tenants = (uint32_t)n;
	*ret = steal_ptr(page);
	return 0;
}

struct metrics_page *metrics_page_free(struct metrics_page *page)
{
	if (!page)
		return NULL;
	free(page->hashes);
	free(page);
	return NULL;
}

static void copy_record(void *to, const void *record, size_t bytes, unsigned int *n_naps)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};

	while (!rbk_stats_copy(to, record, bytes) && *n_naps < MAX_NAPS) {
		nanosleep(&nap, NULL);
		++*n_naps;
	}
}

static void copy_header(struct metrics_page *page, const struct rbk_stats_view *view)
{
	const struct rbk_stats_header *from = view->page;
	struct rbk_stats_header *to = &page->header;

	/* First, or what is copied may be newer than the page says that it is. */
	to->n_updates = rbk_stats_load(&from->n_updates);
	to->updated_at_ns = rbk_stats_load(&from->updated_at_ns);
	to->n_resets = rbk_stats_load(&from->n_resets);
	to->reset_at_ns = rbk_stats_load(&from->reset_at_ns);
	to->realtime_offset_ns = __atomic_load_n(&from->realtime_offset_ns, __ATOMIC_RELAXED);
	to->started_at_ns = from->started_at_ns;
	to->abi_major = from->abi_major;
	to->abi_minor = from->abi_minor;
}

/* Adds a thread to what its role is said to wait: times together, percentiles of the worst. */
static void add_thread(struct rbk_stats_delay *role, const struct rbk_stats_delay *thread)
{
	role->flags |= thread->flags;
	role->wait_ns += thread->wait_ns;
	role->n_waits += thread->n_waits;
	role->n_preemptions += thread->n_preemptions;
	if (thread->p50_ns > role->p50_ns)
		role->p50_ns = thread->p50_ns;
	if (thread->p99_ns > role->p99_ns)
		role->p99_ns = thread->p99_ns;
	if (thread->max_ns > role->max_ns)
		role->max_ns = thread->max_ns;
}

static void copy_threads(struct metrics_page *page, const struct rbk_stats_view *view,
			 unsigned int *n_naps)
{
	const struct rbk_stats_thread *record;
	struct rbk_stats_thread thread;
	uint32_t i = 0;

	memset(page->roles, 0, sizeof(page->roles));
	page->has_roles = false;
	while ((record = rbk_stats_record(view, RBK_STATS_SECTION_THREADS, i++))) {
		copy_record(&thread, record, sizeof(thread), n_naps);
		if (thread.tid == 0 || !(thread.delay.flags & RBK_STATS_DELAY_USED) ||
		    (thread.role != RBK_STATS_ROLE_REACTOR && thread.role != RBK_STATS_ROLE_WORKER))
			continue;
		page->has_roles = true;
		add_thread(&page->roles[thread.role - RBK_STATS_ROLE_REACTOR], &thread.delay);
	}
}

/* FNV-1a. */
static uint64_t hash(const char *text)
{
	uint64_t value = 0xcbf29ce484222325u;

	for (; *text; text++)
		value = (value ^ (unsigned char)*text) * 0x100000001b3u;
	return value;
}

/*
 * Two series of one name would make a scraper refuse all of them. Names are unique while the policy
 * is right; should two be equal, the later one has its number added, by a character that no name of
 * a policy has.
 */
static void label_tenant(struct metrics_page *page, struct tenant_copy *tenant)
{
	uint32_t index = (uint32_t)(tenant - page->tenants);
	char name[2 * RBK_STATS_NAME_BYTES];

	tenant->figures.name[RBK_STATS_NAME_BYTES - 1] = '\0';
	metrics_escape(name, sizeof(name), tenant->figures.name);
	snprintf(tenant->label, sizeof(tenant->label), "tenant=\"%s\"", name);
	page->hashes[index] = hash(tenant->label);
	for (uint32_t i = 0; i < index; i++) {
		if (page->hashes[i] != page->hashes[index] ||
		    strcmp(page->tenants[i].label, tenant->label) != 0)
			continue;
		snprintf(tenant->label, sizeof(tenant->label), "tenant=\"%s#%u\"", name,
			 tenant->figures.number);
		return;
	}
}

static void copy_tenants(struct metrics_page *page, const struct rbk_stats_view *view,
			 unsigned int *n_naps)
{
	const struct rbk_stats_tenant *record;
	const struct rbk_stats_delay *delay;
	struct tenant_copy *tenant;

	page->n_tenants = 0;
	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_TENANTS) &&
			     page->n_tenants < page->max_tenants;
	     i++) {
		record = rbk_stats_record(view, RBK_STATS_SECTION_TENANTS, i);
		if (!(__atomic_load_n(&record->flags, __ATOMIC_RELAXED) & RBK_STATS_TENANT_USED))
			continue;
		tenant = &page->tenants[page->n_tenants];
		copy_record(&tenant->figures, record, sizeof(tenant->figures), n_naps);
		if (!(tenant->figures.flags & RBK_STATS_TENANT_USED))
			continue;
		delay = rbk_stats_record(view, RBK_STATS_SECTION_DELAYS, i);
		if (delay)
			copy_record(&tenant->delay, delay, sizeof(tenant->delay), n_naps);
		else
			tenant->delay.flags = 0;
		label_tenant(page, tenant);
		page->n_tenants++;
	}
}

static struct tenant_copy *find_tenant(struct metrics_page *page, uint32_t number)
{
	for (uint32_t i = 0; i < page->n_tenants; i++)
		if (page->tenants[i].figures.number == number)
			return &page->tenants[i];
	return NULL;
}

static void copy_leases(struct metrics_page *page, const struct rbk_stats_view *view,
			unsigned int *n_naps)
{
	const uint32_t n = rbk_stats_used(view, RBK_STATS_SECTION_LEASES);
	const struct rbk_stats_lease *record;
	struct rbk_stats_lease lease;
	struct tenant_copy *tenant;
	struct lease_sum *sum;

	page->has_leases = rbk_stats_count(view, RBK_STATS_SECTION_LEASES) > 0;
	for (uint32_t i = 0; i < page->n_tenants; i++)
		memset(page->tenants[i].leases, 0, sizeof(page->tenants[i].leases));
	for (uint32_t i = 0; i < n; i++) {
		record = rbk_stats_record(view, RBK_STATS_SECTION_LEASES, i);
		if (__atomic_load_n(&record->number, __ATOMIC_RELAXED) == 0)
			continue;
		copy_record(&lease, record, sizeof(lease), n_naps);
		tenant = find_tenant(page, lease.tenant);
		if (lease.number == 0 || !tenant || lease.device >= page->n_devices)
			continue;
		sum = &tenant->leases[lease.device];
		sum->n++;
		sum->granted_bytes += lease.granted_bytes;
		if (lease.flags & RBK_STATS_LEASE_CAPPED)
			sum->capped_bytes += lease.granted_bytes;
		sum->credited_bytes += lease.credited_bytes;
		sum->used_bytes += lease.used_bytes + lease.extra_bytes;
		if (lease.seen_bytes != RBK_STATS_ABSENT) {
			sum->is_seen = true;
			sum->seen_bytes += lease.seen_bytes;
		}
	}
}

void metrics_page_take(struct metrics_page *page, const struct rbk_stats_view *view)
{
	const struct rbk_stats_broker *broker = rbk_stats_record(view, RBK_STATS_SECTION_BROKER, 0);
	const struct rbk_stats_contention *contention =
		rbk_stats_record(view, RBK_STATS_SECTION_CONTENTION, 0);
	unsigned int n_naps = 0;

	copy_header(page, view);
	if (broker)
		copy_record(&page->broker, broker, sizeof(page->broker), &n_naps);
	page->has_contention = contention != NULL;
	if (contention)
		copy_record(&page->contention, contention, sizeof(page->contention), &n_naps);
	page->n_devices = 0;
	while (page->n_devices < view->n_devices &&
	       page->n_devices < rbk_stats_count(view, RBK_STATS_SECTION_DEVICES)) {
		struct rbk_stats_device *device = &page->devices[page->n_devices];

		copy_record(device,
			    rbk_stats_record(view, RBK_STATS_SECTION_DEVICES, page->n_devices),
			    sizeof(*device), &n_naps);
		device->name[RBK_STATS_NAME_BYTES - 1] = '\0';
		device->driver[RBK_STATS_NAME_BYTES - 1] = '\0';
		device->paths[RBK_STATS_NAME_BYTES - 1] = '\0';
		page->n_devices++;
	}
	copy_tenants(page, view, &n_naps);
	copy_leases(page, view, &n_naps);
	copy_threads(page, view, &n_naps);
}

/* ---- Tables ---- */

/* What a member is. */
enum scale {
	COUNT,   /* a number as it is */
	NUMBER,  /* likewise, of 32 bits */
	NS,      /* in seconds */
	PERCENT, /* of 1 */
	MILLI,
	MICRO,
	REAL,
	MOMENT, /* on the broker's clock; CLOCK_REALTIME in seconds */
	FLAG,   /* of 32 bits: is it set? */
};

enum since {
	SINCE_NOTHING = 0, /* nobody knows, or it is no count */
	SINCE_START,
	SINCE_RESET,
};

/* A family of which each record has one sample. */
struct member {
	struct metrics_family family;
	enum scale scale;
	size_t offset;
	uint32_t flag;
	enum since since;
};

#define GAUGE(type, member, scale, name, help)                                     \
	{                                                                          \
		{name, help, METRICS_GAUGE}, scale, offsetof(struct type, member), \
	}
#define FLAG_OF(type, member, flag, name, help)                                         \
	{                                                                               \
		{name, help, METRICS_GAUGE}, FLAG, offsetof(struct type, member), flag, \
	}
#define COUNTER(type, member, scale, since, name, help)                                        \
	{                                                                                      \
		{name, help, METRICS_COUNTER}, scale, offsetof(struct type, member), 0, since, \
	}

static const struct member header_members[] = {
	GAUGE(rbk_stats_header, started_at_ns, MOMENT, "start_time_seconds",
	      "When the broker started"),
	GAUGE(rbk_stats_header, updated_at_ns, MOMENT, "statistics_updated_timestamp_seconds",
	      "When the broker last brought these figures up to date; it does several times a "
	      "second"),
	COUNTER(rbk_stats_header, n_resets, COUNT, SINCE_START, "statistics_resets",
		"How often all counts began anew, as an administrator asked"),
};

static const struct member broker_members[] = {
	GAUGE(rbk_stats_broker, n_sessions, COUNT, "sessions", "Clients that are connected"),
	GAUGE(rbk_stats_broker, n_rings, COUNT, "rings", "Rings that clients have"),
	GAUGE(rbk_stats_broker, n_arenas, COUNT, "arenas", "Arenas that clients have"),
	GAUGE(rbk_stats_broker, n_plans, COUNT, "plans", "Plans that clients have"),
	GAUGE(rbk_stats_broker, n_tenants, COUNT, "tenants", "Tenants that there are"),
	GAUGE(rbk_stats_broker, n_tenants_unlisted, COUNT, "tenants_unlisted",
	      "Tenants that these figures have no room for"),
	GAUGE(rbk_stats_broker, n_in_flight, COUNT, "tasks_in_flight",
	      "Tasks that were taken and are not complete"),
	GAUGE(rbk_stats_broker, host_bytes, COUNT, "host_memory_charged_bytes",
	      "Host memory that tenants are charged for"),
	COUNTER(rbk_stats_broker, n_completed, COUNT, SINCE_START, "entries_completed",
		"Entries that were answered, those that compute nothing and refused ones among "
		"them"),
	COUNTER(rbk_stats_broker, copied_bytes, COUNT, SINCE_START, "copied_bytes",
		"Tensor bytes that a processor copied"),
	COUNTER(rbk_stats_broker, transferred_bytes, COUNT, SINCE_START, "transferred_bytes",
		"Bytes that devices moved by themselves"),
	COUNTER(rbk_stats_broker, n_ended_hostile, COUNT, SINCE_START, "sessions_ended_hostile",
		"Sessions that were ended for breaking a rule"),
	GAUGE(rbk_stats_broker, longest_turn_ns, NS, "reactor_longest_turn_seconds",
	      "The longest turn of the thread that serves all clients, since statistics began"),
	GAUGE(rbk_stats_broker, longest_turn_cpu_ns, NS, "reactor_longest_turn_cpu_seconds",
	      "The most processor time that a turn of that thread took, but for turns of ring "
	      "entries alone"),
	FLAG_OF(rbk_stats_broker, flags, RBK_STATS_BROKER_FORCE_CPU, "force_cpu",
		"Is every task that may run on the CPU made to, as an administrator asked"),
};

static const struct member contention_members[] = {
	FLAG_OF(rbk_stats_contention, flags, RBK_STATS_CONTENDED, "contended",
		"Do the broker's workers wait for processors because of others"),
	GAUGE(rbk_stats_contention, factor, REAL, "contention_ratio",
	      "How many times longer tasks take on the CPU because of others"),
	GAUGE(rbk_stats_contention, n_workers, NUMBER, "workers_used", "CPU workers that are used"),
	GAUGE(rbk_stats_contention, n_workers_total, NUMBER, "workers",
	      "CPU workers that there are"),
	COUNTER(rbk_stats_contention, n_began, COUNT, SINCE_RESET, "contentions",
		"How often the CPU became contended"),
	COUNTER(rbk_stats_contention, contended_ns, NS, SINCE_RESET, "contended_seconds",
		"Time in which the CPU was contended"),
};

static const struct member device_members[] = {
	COUNTER(rbk_stats_device, n_failed, COUNT, SINCE_RESET, "device_task_errors",
		"Tasks that ran there and failed"),
	COUNTER(rbk_stats_device, n_explored, COUNT, SINCE_RESET, "device_explored_tasks",
		"Tasks that ran there so that the broker learns"),
	COUNTER(rbk_stats_device, exec_ns, NS, SINCE_RESET, "device_execution_seconds",
		"Times of its tasks from start to end, together"),
	COUNTER(rbk_stats_device, device_ns, NS, SINCE_RESET, "device_busy_seconds",
		"Time that its servers worked, together"),
	GAUGE(rbk_stats_device, n_servers, NUMBER, "device_servers",
	      "Tasks that it works on at once"),
	GAUGE(rbk_stats_device, utilization, REAL, "device_utilization_ratio",
	      "How busy the broker keeps its servers"),
	GAUGE(rbk_stats_device, backlog_ns, NS, "device_backlog_seconds",
	      "Predicted time until it has nothing left to do"),
	GAUGE(rbk_stats_device, n_queued, COUNT, "device_queued_tasks",
	      "Tasks that wait in the broker"),
	GAUGE(rbk_stats_device, n_released, COUNT, "device_released_tasks",
	      "Tasks that the device has"),
	GAUGE(rbk_stats_device, success_rate, REAL, "device_success_ratio",
	      "Tasks that went well, of the last ones"),
	COUNTER(rbk_stats_device, n_opened, COUNT, SINCE_START, "device_breaker_opened",
		"How often its breaker opened, because too many tasks failed"),
	COUNTER(rbk_stats_device, n_stalls, NUMBER, SINCE_START, "device_stalls",
		"How often it had tasks and made no progress"),
	GAUGE(rbk_stats_device, contention, REAL, "device_contention_ratio",
	      "How many times longer execution takes than undisturbed"),
	GAUGE(rbk_stats_device, explored_share, REAL, "device_explored_ratio",
	      "Execution time that was lost to learning"),
	FLAG_OF(rbk_stats_device, flags, RBK_STATS_DEVICE_LOST, "device_lost",
		"Is it gone, and being reopened"),
	FLAG_OF(rbk_stats_device, flags, RBK_STATS_DEVICE_DRAINED, "device_drained",
		"Is nothing new placed there, as an administrator asked"),
	GAUGE(rbk_stats_device, memory_total, COUNT, "device_memory_size_bytes",
	      "Memory of its own"),
	GAUGE(rbk_stats_device, memory_used, COUNT, "device_memory_used_bytes",
	      "Of that, used by everybody"),
	GAUGE(rbk_stats_device, memory_outside, COUNT, "device_memory_outside_bytes",
	      "Of that, used by other programs than the broker"),
	GAUGE(rbk_stats_device, memory_budget, COUNT, "device_memory_budget_bytes",
	      "Of that, what all tenants together can have"),
	GAUGE(rbk_stats_device, memory_charged, COUNT, "device_memory_charged_bytes",
	      "Of that, what tenants are charged for"),
	GAUGE(rbk_stats_device, gtt_total, COUNT, "device_gtt_size_bytes",
	      "Host memory that it can use"),
	GAUGE(rbk_stats_device, gtt_used, COUNT, "device_gtt_used_bytes",
	      "Of that, used by everybody"),
	COUNTER(rbk_stats_device, n_driver_evictions, COUNT, SINCE_NOTHING,
		"device_driver_evictions",
		"Buffers that its driver moved out of device memory, since it was loaded"),
	GAUGE(rbk_stats_device, load_percent, PERCENT, "device_load_ratio",
	      "How busy it is with everybody's work, as its driver says"),
	GAUGE(rbk_stats_device, memory_load_percent, PERCENT, "device_memory_load_ratio",
	      "How busy its memory is, likewise"),
	GAUGE(rbk_stats_device, clock_hz, COUNT, "device_clock_hertz", "Its clock"),
	GAUGE(rbk_stats_device, memory_clock_hz, COUNT, "device_memory_clock_hertz",
	      "Its memory's clock"),
	GAUGE(rbk_stats_device, temperature_millicelsius, MILLI, "device_temperature_celsius",
	      "Its temperature"),
	GAUGE(rbk_stats_device, power_microwatts, MICRO, "device_power_watts", "What it draws"),
};

static const struct member tenant_members[] = {
	GAUGE(rbk_stats_tenant, weight, NUMBER, "tenant_weight",
	      "Its share of devices, against the others'"),
	GAUGE(rbk_stats_tenant, n_sessions, COUNT, "tenant_sessions", "Clients that are connected"),
	GAUGE(rbk_stats_tenant, n_plans, COUNT, "tenant_plans", "Plans that they have"),
	FLAG_OF(rbk_stats_tenant, flags, RBK_STATS_TENANT_DRAINED, "tenant_drained",
		"Is no new work of it taken, as an administrator asked"),
	COUNTER(rbk_stats_tenant, n_inline, COUNT, SINCE_RESET, "tenant_inline_tasks",
		"Tasks that ran at once, without a queue"),
	COUNTER(rbk_stats_tenant, n_errors, COUNT, SINCE_RESET, "tenant_task_errors",
		"Tasks that failed"),
	COUNTER(rbk_stats_tenant, n_deadlines_missed, COUNT, SINCE_RESET, "tenant_deadlines_missed",
		"Tasks that were complete after their deadline"),
	COUNTER(rbk_stats_tenant, n_partitioned, COUNT, SINCE_RESET, "tenant_partitioned_tasks",
		"Tasks that were split over devices"),
	COUNTER(rbk_stats_tenant, n_explored, COUNT, SINCE_RESET, "tenant_explored_tasks",
		"Tasks that ran where they did so that the broker learns"),
	COUNTER(rbk_stats_tenant, exec_ns, NS, SINCE_RESET, "tenant_execution_seconds",
		"Times of its tasks from start to end, together"),
	COUNTER(rbk_stats_tenant, copied_bytes, COUNT, SINCE_RESET, "tenant_copied_bytes",
		"Tensor bytes that a processor copied"),
	COUNTER(rbk_stats_tenant, transferred_bytes, COUNT, SINCE_RESET, "tenant_transferred_bytes",
		"Bytes that devices moved by themselves"),
	COUNTER(rbk_stats_tenant, n_throttled, COUNT, SINCE_RESET, "tenant_throttlings",
		"How often its CPU quota was used up"),
	COUNTER(rbk_stats_tenant, throttled_ns, NS, SINCE_RESET, "tenant_throttled_seconds",
		"Time in which its CPU quota held its tasks up"),
	COUNTER(rbk_stats_tenant, n_evictions, COUNT, SINCE_START, "tenant_evictions",
		"Plans that had to leave device memory"),
	COUNTER(rbk_stats_tenant, n_returns, COUNT, SINCE_START, "tenant_returns",
		"Plans that came back to device memory"),
	COUNTER(rbk_stats_tenant, n_memory_constraints, COUNT, SINCE_START,
		"tenant_memory_constraints", "Tasks that ran elsewhere for want of device memory"),
	COUNTER(rbk_stats_tenant, n_refused, COUNT, SINCE_START, "tenant_requests_refused",
		"Requests that were refused because a limit was reached"),
	GAUGE(rbk_stats_tenant, host_used, COUNT, "tenant_host_memory_bytes",
	      "Host memory that it is charged for"),
	GAUGE(rbk_stats_tenant, host_max, COUNT, "tenant_host_memory_max_bytes",
	      "Its limit; none: it has no limit"),
};

static const struct member tenant_device_members[] = {
	COUNTER(rbk_stats_tenant_device, n_tasks, COUNT, SINCE_RESET, "tenant_device_tasks",
		"Tasks that ran there; split ones where most of it ran"),
	COUNTER(rbk_stats_tenant_device, n_failed, COUNT, SINCE_RESET, "tenant_device_task_errors",
		"Tasks that ran there and failed"),
	COUNTER(rbk_stats_tenant_device, exec_ns, NS, SINCE_RESET,
		"tenant_device_execution_seconds",
		"Times of its tasks there from start to end, together"),
	COUNTER(rbk_stats_tenant_device, device_ns, NS, SINCE_RESET, "tenant_device_busy_seconds",
		"Time that the device's servers worked on them, together"),
	GAUGE(rbk_stats_tenant_device, share, REAL, "tenant_device_share_ratio",
	      "Its part of what all tenants use of the device"),
	GAUGE(rbk_stats_tenant_device, memory_used, COUNT, "tenant_device_memory_used_bytes",
	      "Device memory that it is charged for; of the CPU host memory"),
	GAUGE(rbk_stats_tenant_device, memory_max, COUNT, "tenant_device_memory_max_bytes",
	      "Its limit; none: it has no limit"),
	GAUGE(rbk_stats_tenant_device, memory_reserve, COUNT, "tenant_device_memory_reserve_bytes",
	      "What it is never denied"),
	GAUGE(rbk_stats_tenant_device, memory_high, COUNT, "tenant_device_memory_high_bytes",
	      "Beyond that it is the first to give memory back"),
	GAUGE(rbk_stats_tenant_device, gtt_used, COUNT, "tenant_device_gtt_used_bytes",
	      "Host memory that the device uses for it"),
	GAUGE(rbk_stats_tenant_device, gtt_max, COUNT, "tenant_device_gtt_max_bytes",
	      "Its limit; none: it has no limit"),
};

/* ---- Writing ---- */

/* A moment on the broker's clock, on CLOCK_REALTIME; 0 if that makes no sense. */
static uint64_t realtime_of(const struct metrics_page *page, uint64_t at_ns)
{
	int64_t moment;

	if (at_ns > INT64_MAX ||
	    __builtin_add_overflow((int64_t)at_ns, page->header.realtime_offset_ns, &moment) ||
	    moment < 0)
		return 0;
	return (uint64_t)moment;
}

static void write_created(const struct metrics_page *page, struct metrics_text *text,
			  enum since since, const char *labels, const char *more)
{
	const struct rbk_stats_header *header = &page->header;

	if (since != SINCE_NOTHING)
		metrics_created(text, labels, more,
				realtime_of(page, since == SINCE_RESET ? header->reset_at_ns
								       : header->started_at_ns));
}

static void write_member(const struct metrics_page *page, struct metrics_text *text,
			 const struct member *member, const void *record, const char *labels,
			 const char *more)
{
	static const unsigned int digits[] = {[NS] = 9, [PERCENT] = 2, [MILLI] = 3, [MICRO] = 6};
	const char *at = (const char *)record + member->offset;
	uint64_t value = 0;
	uint32_t word;
	double real;

	switch (member->scale) {
	case REAL:
		memcpy(&real, at, sizeof(real));
		metrics_real(text, NULL, labels, more, real);
		return;
	case NUMBER:
	case FLAG:
		memcpy(&word, at, sizeof(word));
		metrics_count(text, NULL, labels, more,
			      member->scale == FLAG ? (word & member->flag) != 0 : word);
		return;
	case MOMENT:
		memcpy(&value, at, sizeof(value));
		metrics_decimal(text, NULL, labels, more, realtime_of(page, value), 9);
		return;
	case COUNT:
	case NS:
	case PERCENT:
	case MILLI:
	case MICRO:
		break;
	}
	memcpy(&value, at, sizeof(value));
	/* Absent, without a limit, or less than nothing. */
	if (value > INT64_MAX)
		return;
	metrics_decimal(text, NULL, labels, more, value,
			member->scale == COUNT ? 0 : digits[member->scale]);
	if (member->family.type == METRICS_COUNTER)
		write_created(page, text, member->since, labels, more);
}

static void write_members(const struct metrics_page *page, struct metrics_text *text,
			  const struct member *members, size_t n, const void *record)
{
	for (size_t i = 0; i < n; i++) {
		metrics_begin(text, &members[i].family);
		write_member(page, text, &members[i], record, NULL, NULL);
	}
}

static const char *reason_name(unsigned int reason)
{
	static const char *const names[RBK_REASON_COUNT] = {
		[RBK_REASON_NONE] = "reason=\"none\"",
		[RBK_REASON_GPU_AVAILABLE] = "reason=\"gpu-available\"",
		[RBK_REASON_GPU_UNAVAILABLE] = "reason=\"gpu-unavailable\"",
		[RBK_REASON_CPU_FALLBACK] = "reason=\"cpu-fallback\"",
		[RBK_REASON_COST_MODEL] = "reason=\"cost-model\"",
		[RBK_REASON_MEMORY_CONSTRAINT] = "reason=\"memory-constraint\"",
		[RBK_REASON_USER_PREFERENCE] = "reason=\"user-preference\"",
		[RBK_REASON_BELOW_THRESHOLD] = "reason=\"below-threshold\"",
		[RBK_REASON_CONTENTION] = "reason=\"contention\"",
		[RBK_REASON_BREAKER_OPEN] = "reason=\"breaker-open\"",
	};

	return names[reason];
}

static void write_reasons(const struct metrics_page *page, struct metrics_text *text,
			  const uint64_t *reasons, const char *labels)
{
	for (unsigned int i = 0; i < RBK_REASON_COUNT; i++) {
		metrics_count(text, NULL, labels, reason_name(i), reasons[i]);
		write_created(page, text, SINCE_RESET, labels, reason_name(i));
	}
}

static void write_build(const struct metrics_page *page, struct metrics_text *text,
			const char *version)
{
	static const struct metrics_family family = {
		"build", "The broker's version, and that of its statistics pages", METRICS_INFO};
	char labels[LABEL_BYTES], name[64];

	metrics_escape(name, sizeof(name), version);
	snprintf(labels, sizeof(labels), "version=\"%s\",statistics=\"%u.%u\"", name,
		 page->header.abi_major, page->header.abi_minor);
	metrics_begin(text, &family);
	metrics_count(text, NULL, labels, NULL, 1);
}

static void write_turns(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family family = {
		"reactor_turn_overruns",
		"Turns of the thread that serves all clients that took more than ten budgets, by "
		"what took most of them",
		METRICS_COUNTER};
	static const char *const labels[RBK_TURN_CAUSES] = {
		[RBK_TURN_ENTRIES] = "cause=\"entries\"",
		[RBK_TURN_COMPLETIONS] = "cause=\"completions\"",
		[RBK_TURN_MESSAGES] = "cause=\"messages\"",
		[RBK_TURN_PLANS] = "cause=\"plans\"",
		[RBK_TURN_RINGS] = "cause=\"rings\"",
		[RBK_TURN_CONNECTIONS] = "cause=\"connections\"",
		[RBK_TURN_ENDS] = "cause=\"ends\"",
		[RBK_TURN_BELLS] = "cause=\"bells\"",
		[RBK_TURN_RESIDENCY] = "cause=\"residency\"",
		[RBK_TURN_JOBS] = "cause=\"jobs\"",
		[RBK_TURN_TIMERS] = "cause=\"timers\"",
		[RBK_TURN_STATISTICS] = "cause=\"statistics\"",
		[RBK_TURN_KERNEL] = "cause=\"kernel\"",
		[RBK_TURN_OTHER] = "cause=\"other\"",
	};

	metrics_begin(text, &family);
	for (unsigned int i = 0; i < RBK_TURN_CAUSES; i++) {
		metrics_count(text, NULL, labels[i], NULL, page->broker.n_turn_overruns[i]);
		write_created(page, text, SINCE_RESET, labels[i], NULL);
	}
}

/* ---- Waiting for a processor ---- */

static void write_delay(const struct metrics_page *page, struct metrics_text *text,
			const struct rbk_stats_delay *delay, const char *labels)
{
	/* Who knows no more than the counts knows no percentiles. */
	if (delay->flags & RBK_STATS_DELAY_KNOWN) {
		metrics_decimal(text, NULL, labels, "quantile=\"0.5\"", delay->p50_ns, 9);
		metrics_decimal(text, NULL, labels, "quantile=\"0.99\"", delay->p99_ns, 9);
		metrics_decimal(text, NULL, labels, "quantile=\"1\"", delay->max_ns, 9);
	}
	metrics_decimal(text, "_sum", labels, NULL, delay->wait_ns, 9);
	metrics_count(text, "_count", labels, NULL, delay->n_waits);
	write_created(page, text, SINCE_RESET, labels, NULL);
}

static void write_roles(const struct metrics_page *page, struct metrics_text *text)
{
	static const char *const labels[] = {"role=\"reactor\"", "role=\"worker\""};
	static const struct metrics_family delay = {
		"run_queue_delay_seconds",
		"How long the broker's threads waited for a processor; quantiles of the last ten "
		"seconds, the worst thread's",
		METRICS_SUMMARY,
	};
	static const struct metrics_family preemptions = {
		"preemptions", "How often somebody else was put in place of one of these threads",
		METRICS_COUNTER};

	metrics_begin(text, &delay);
	for (size_t i = 0; page->has_roles && i < ARRAY_SIZE(labels); i++)
		write_delay(page, text, &page->roles[i], labels[i]);
	metrics_begin(text, &preemptions);
	for (size_t i = 0; page->has_roles && i < ARRAY_SIZE(labels); i++) {
		if (!(page->roles[i].flags & RBK_STATS_DELAY_KNOWN))
			continue;
		metrics_count(text, NULL, labels[i], NULL, page->roles[i].n_preemptions);
		write_created(page, text, SINCE_RESET, labels[i], NULL);
	}
}

static void write_tenant_delays(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family delay = {
		"tenant_run_queue_delay_seconds",
		"How long its clients' threads waited for a processor; quantiles of the last ten "
		"seconds",
		METRICS_SUMMARY,
	};
	static const struct metrics_family caused = {
		"tenant_caused_delay_seconds",
		"How long the broker's threads waited because its clients ran", METRICS_COUNTER};
	const struct tenant_copy *tenant;

	metrics_begin(text, &delay);
	for (tenant = page->tenants; tenant < page->tenants + page->n_tenants; tenant++)
		if (tenant->delay.flags & RBK_STATS_DELAY_USED)
			write_delay(page, text, &tenant->delay, tenant->label);
	metrics_begin(text, &caused);
	for (tenant = page->tenants; tenant < page->tenants + page->n_tenants; tenant++) {
		if (!(tenant->delay.flags & RBK_STATS_DELAY_KNOWN))
			continue;
		metrics_decimal(text, NULL, tenant->label, NULL, tenant->delay.caused_ns, 9);
		write_created(page, text, SINCE_RESET, tenant->label, NULL);
	}
}

/* ---- Devices ---- */

static void device_label(char label[static 32], uint32_t index)
{
	snprintf(label, 32, "device=\"%u\"", index);
}

static void write_device_info(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family family = {
		"device", "What a device is, and how it reaches clients' memory", METRICS_INFO};
	static const char *const kinds[] = {"cpu", "gpu", "software-gpu"};
	char labels[4 * LABEL_BYTES], name[LABEL_BYTES], driver[LABEL_BYTES], paths[LABEL_BYTES];

	metrics_begin(text, &family);
	for (uint32_t i = 0; i < page->n_devices; i++) {
		const struct rbk_stats_device *device = &page->devices[i];

		metrics_escape(name, sizeof(name), device->name);
		metrics_escape(driver, sizeof(driver), device->driver);
		metrics_escape(paths, sizeof(paths), device->paths);
		snprintf(labels, sizeof(labels),
			 "device=\"%u\",name=\"%s\",driver=\"%s\",kind=\"%s\",paths=\"%s\"", i,
			 name, driver,
			 device->kind < ARRAY_SIZE(kinds) ? kinds[device->kind] : "unknown", paths);
		metrics_count(text, NULL, labels, NULL, 1);
	}
}

static void write_breakers(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family family = {
		"device_breaker_state",
		"Is its breaker closed (it is used), open (it failed too often) or probing",
		METRICS_GAUGE};
	static const char *const states[] = {
		[RBK_STATS_BREAKER_CLOSED] = "state=\"closed\"",
		[RBK_STATS_BREAKER_OPEN] = "state=\"open\"",
		[RBK_STATS_BREAKER_PROBING] = "state=\"probing\"",
	};
	char label[32];

	metrics_begin(text, &family);
	for (uint32_t i = 0; i < page->n_devices; i++) {
		device_label(label, i);
		for (uint32_t state = 0; state < ARRAY_SIZE(states); state++)
			metrics_count(text, NULL, label, states[state],
				      page->devices[i].breaker == state);
	}
}

static void write_devices(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family tasks = {
		"device_tasks", "Tasks that ran there, by why they did", METRICS_COUNTER};
	char label[32];

	write_device_info(page, text);
	metrics_begin(text, &tasks);
	for (uint32_t i = 0; i < page->n_devices; i++) {
		device_label(label, i);
		write_reasons(page, text, page->devices[i].reasons, label);
	}
	write_breakers(page, text);
	for (size_t k = 0; k < ARRAY_SIZE(device_members); k++) {
		metrics_begin(text, &device_members[k].family);
		for (uint32_t i = 0; i < page->n_devices; i++) {
			device_label(label, i);
			write_member(page, text, &device_members[k], &page->devices[i], label,
				     NULL);
		}
	}
}

/* ---- Tenants ---- */

/*
 * Bounds of buckets, which are bounds of the page's finer ones, so that no count has to be divided.
 * Each is twice the one before where tasks usually are, four times that at the ends.
 */
static const struct {
	unsigned int bucket; /* the first of the page's that is beyond */
	const char *label;
} bounds[] = {
	{12, "le=\"1.024e-06\""},           {20, "le=\"4.096e-06\""},
	{24, "le=\"8.192e-06\""},           {28, "le=\"1.6384e-05\""},
	{32, "le=\"3.2768e-05\""},          {36, "le=\"6.5536e-05\""},
	{40, "le=\"0.000131072\""},         {44, "le=\"0.000262144\""},
	{48, "le=\"0.000524288\""},         {52, "le=\"0.001048576\""},
	{56, "le=\"0.002097152\""},         {60, "le=\"0.004194304\""},
	{64, "le=\"0.008388608\""},         {68, "le=\"0.016777216\""},
	{72, "le=\"0.033554432\""},         {76, "le=\"0.067108864\""},
	{80, "le=\"0.134217728\""},         {84, "le=\"0.268435456\""},
	{88, "le=\"0.536870912\""},         {92, "le=\"1.073741824\""},
	{100, "le=\"4.294967296\""},        {108, "le=\"17.179869184\""},
	{RBK_STATS_BUCKETS, "le=\"+Inf\""},
};

static void write_histogram(const struct metrics_page *page, struct metrics_text *text,
			    const uint64_t *histogram, uint64_t sum_ns, const char *labels)
{
	unsigned int bucket = 0;
	uint64_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++) {
		while (bucket < bounds[i].bucket)
			n += histogram[bucket++];
		metrics_count(text, "_bucket", labels, bounds[i].label, n);
	}
	metrics_decimal(text, "_sum", labels, NULL, sum_ns, 9);
	metrics_count(text, "_count", labels, NULL, n);
	write_created(page, text, SINCE_RESET, labels, NULL);
}

static void write_latencies(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family queue = {
		"tenant_queue_seconds",
		"Times of tasks from admission to start, but of those that ran inline",
		METRICS_HISTOGRAM};
	static const struct metrics_family latency = {
		"tenant_latency_seconds",
		"Times of tasks from admission to end, but of those that ran inline",
		METRICS_HISTOGRAM};

	metrics_begin(text, &queue);
	for (uint32_t i = 0; i < page->n_tenants; i++) {
		const struct rbk_stats_tenant *tenant = &page->tenants[i].figures;

		write_histogram(page, text, tenant->queue_histogram, tenant->queue_ns,
				page->tenants[i].label);
	}
	metrics_begin(text, &latency);
	for (uint32_t i = 0; i < page->n_tenants; i++) {
		const struct rbk_stats_tenant *tenant = &page->tenants[i].figures;
		uint64_t exec_ns = tenant->exec_ns > tenant->inline_ns
					   ? tenant->exec_ns - tenant->inline_ns
					   : 0;

		write_histogram(page, text, tenant->latency_histogram, tenant->queue_ns + exec_ns,
				page->tenants[i].label);
	}
}

static void write_tenants(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family tasks = {
		"tenant_tasks",
		"Tasks that were placed and completed, by why they ran where they did",
		METRICS_COUNTER};
	char device[32];

	metrics_begin(text, &tasks);
	for (uint32_t i = 0; i < page->n_tenants; i++)
		write_reasons(page, text, page->tenants[i].figures.reasons, page->tenants[i].label);
	for (size_t k = 0; k < ARRAY_SIZE(tenant_members); k++) {
		metrics_begin(text, &tenant_members[k].family);
		for (uint32_t i = 0; i < page->n_tenants; i++)
			write_member(page, text, &tenant_members[k], &page->tenants[i].figures,
				     page->tenants[i].label, NULL);
	}
	for (size_t k = 0; k < ARRAY_SIZE(tenant_device_members); k++) {
		metrics_begin(text, &tenant_device_members[k].family);
		for (uint32_t i = 0; i < page->n_tenants; i++) {
			for (uint32_t n = 0; n < page->n_devices; n++) {
				device_label(device, n);
				write_member(page, text, &tenant_device_members[k],
					     &page->tenants[i].figures.devices[n],
					     page->tenants[i].label, device);
			}
		}
	}
	write_latencies(page, text);
	write_tenant_delays(page, text);
}

/* ---- Leases ---- */

static const struct lease_member {
	size_t offset; /* in struct lease_sum */
	bool is_seen;  /* only where that is */
	struct metrics_family family;
} lease_members[] = {
	{offsetof(struct lease_sum, n),
	 false,
	 {"leases", "Leases that programs have of the device's memory", METRICS_GAUGE}},
	{offsetof(struct lease_sum, granted_bytes),
	 false,
	 {"lease_granted_bytes", "Device memory that its leases were granted", METRICS_GAUGE}},
	{offsetof(struct lease_sum, capped_bytes),
	 false,
	 {"lease_capped_bytes", "What of that the kernel holds programs to, too", METRICS_GAUGE}},
	{offsetof(struct lease_sum, credited_bytes),
	 false,
	 {"lease_credited_bytes", "What was handed out to programs of what was granted",
	  METRICS_GAUGE}},
	{offsetof(struct lease_sum, used_bytes),
	 false,
	 {"lease_used_bytes", "What programs say that they and their drivers use of it",
	  METRICS_GAUGE}},
	{offsetof(struct lease_sum, seen_bytes),
	 true,
	 {"lease_seen_bytes", "What the kernel says that these programs use", METRICS_GAUGE}},
};

static void write_leases(const struct metrics_page *page, struct metrics_text *text)
{
	const struct lease_sum *sum;
	char device[32];
	uint64_t value;

	for (size_t k = 0; page->has_leases && k < ARRAY_SIZE(lease_members); k++) {
		metrics_begin(text, &lease_members[k].family);
		for (uint32_t i = 0; i < page->n_tenants; i++) {
			for (uint32_t n = RBK_DEVICE_GPU; n < page->n_devices; n++) {
				sum = &page->tenants[i].leases[n];
				if (lease_members[k].is_seen && !sum->is_seen)
					continue;
				device_label(device, n);
				memcpy(&value, (const char *)sum + lease_members[k].offset,
				       sizeof(value));
				metrics_count(text, NULL, page->tenants[i].label, device, value);
			}
		}
	}
}

void metrics_page_write(const struct metrics_page *page, const char *version,
			struct metrics_text *text)
{
	write_build(page, text, version);
	write_members(page, text, header_members, ARRAY_SIZE(header_members), &page->header);
	write_members(page, text, broker_members, ARRAY_SIZE(broker_members), &page->broker);
	write_turns(page, text);
	if (page->has_contention)
		write_members(page, text, contention_members, ARRAY_SIZE(contention_members),
			      &page->contention);
	write_roles(page, text);
	write_devices(page, text);
	write_tenants(page, text);
	write_leases(page, text);
	metrics_end(text);
}
