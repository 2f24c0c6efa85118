/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages made by hand
 *
 * The layout is a broker's, with any number of records. The pages are the reader's own memory, so
 * that tests may change them.
 */
#include "support/stats-scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GIB 0x1p30
#define MIB 0x1p20

enum { HOSTILE_TENANTS = 8, LOG_RECORDS = 64, MANY_TENANTS = 1000, MANY_SESSIONS = 10000 };
/* 2026-11-20 14:02:31 UTC, three days after the broker began. */
static const uint64_t began_ns = 5000000000, up_ns = 274320000000000, second_ns = 1000000000;
static const int64_t realtime_offset_ns = 1795183351000000000 - 274320000000000 - 5000000000;

const char *stats_scene_name(unsigned int scene)
{
	static const char *const names[STATS_SCENE_COUNT] = {"three", "cpu", "own", "many",
							     "hostile"};

	return scene < STATS_SCENE_COUNT ? names[scene] : NULL;
}

/* --- Pages --- */

struct counts {
	uint32_t n[RBK_STATS_SECTION_COUNT];
};

static struct rbk_stats_view page_new(uint32_t kind, uint32_t n_devices, unsigned int moment,
				      const struct counts *counts)
{
	const uint32_t strides[RBK_STATS_SECTION_COUNT] = {
		sizeof(struct rbk_stats_tenant),
		sizeof(struct rbk_stats_plan) + n_devices * sizeof(struct rbk_stats_plan_device),
		sizeof(struct rbk_stats_decision),
		sizeof(struct rbk_stats_broker),
		sizeof(struct rbk_stats_device),
		sizeof(struct rbk_stats_contention),
		sizeof(struct rbk_stats_thread),
		sizeof(struct rbk_stats_delay),
		sizeof(struct rbk_stats_session),
		sizeof(struct rbk_stats_lease),
		sizeof(struct rbk_stats_upkeep),
		sizeof(struct rbk_stats_refused),
		sizeof(struct rbk_stats_reload),
		sizeof(struct rbk_stats_waiting),
		sizeof(struct rbk_stats_segment),
		sizeof(struct rbk_stats_slice),
	};
	struct rbk_stats_header header = {
		.magic = RBK_STATS_MAGIC,
		.abi_major = RBK_STATS_ABI_MAJOR,
		.abi_minor = RBK_STATS_ABI_MINOR,
		.kind = kind,
		.n_devices = n_devices,
		.pid = 4711,
		.n_sections = RBK_STATS_SECTION_COUNT,
		.started_at_ns = began_ns,
		.period_ns = second_ns / 4,
		.n_updates = 100 + moment,
		.updated_at_ns = began_ns + up_ns + moment * second_ns,
		.realtime_offset_ns = realtime_offset_ns,
		.reset_at_ns = began_ns,
	};
	uint64_t bytes = sizeof(header);
	struct rbk_stats_view view;
	void *page;

	for (unsigned int i = 0; i < RBK_STATS_SECTION_COUNT; i++) {
		if (counts->n[i] == 0)
			continue;
		header.sections[i] = (struct rbk_stats_section){
			.offset = (uint32_t)bytes,
			.stride = strides[i],
			.count = counts->n[i],
		};
		bytes += (uint64_t)strides[i] * counts->n[i];
	}
	bytes = (bytes + 4095) & ~4095ull;
	header.page_bytes = bytes;
	page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		abort();
	memcpy(page, &header, sizeof(header));
	if (!rbk_stats_view(&view, page, bytes))
		abort();
	return view;
}

static void *record(const struct rbk_stats_view *view, unsigned int section, uint32_t index)
{
	return (void *)rbk_stats_record(view, section, index);
}

static void add_tenant_page(struct pages *pages, const struct rbk_stats_view *view,
			    const struct rbk_stats_tenant *tenant)
{
	struct tenant_page *page;

	pages->tenants = realloc(pages->tenants, (pages->n_tenants + 1) * sizeof(*pages->tenants));
	if (!pages->tenants)
		abort();
	page = &pages->tenants[pages->n_tenants++];
	page->view = *view;
	page->number = tenant->number;
	memcpy(page->name, tenant->name, sizeof(page->name));
	page->name[sizeof(page->name) - 1] = '\0';
	memcpy(record(view, RBK_STATS_SECTION_TENANTS, 0), tenant, sizeof(*tenant));
}

/* --- Three tenants --- */

struct about {
	const char *name;
	uint32_t weight;
	uint64_t n_sessions, n_plans;
	double vram, vram_max, reserve, share;
	uint64_t tasks_per_s, gpu_per_s;
	double p50_ns, p99_ns;
	uint64_t n_evictions;
	double wait_ns;
	enum rbk_reason reason;
};

static const struct about three[] = {
	{"llm", 50, 1, 3, 3.9 * GIB, 4 * GIB, 3 * GIB, 0.52, 210, 206, 3.9e6, 5.7e6, 0, 0.1e6,
	 RBK_REASON_COST_MODEL},
	{"web", 30, 6, 8, 1.1 * GIB, 2 * GIB, 0.5 * GIB, 0.31, 47900, 1900, 5.9e3, 40e3, 0, 0.2e6,
	 RBK_REASON_BELOW_THRESHOLD},
	{"batch", 20, 2, 3, 0.6 * GIB, 8 * GIB, 0, 0.17, 98, 98, 30e6, 85e6, 2, 3.8e6,
	 RBK_REASON_USER_PREFERENCE},
};
enum { N_THREE = sizeof(three) / sizeof(three[0]), N_LEASES = 3 };

/* Add @n tasks, of which one in 50 takes @p99_ns. */
static void histogram(uint64_t buckets[RBK_STATS_BUCKETS], uint64_t n, double p50_ns, double p99_ns)
{
	unsigned int middle = rbk_stats_bucket((uint64_t)p50_ns);

	buckets[rbk_stats_bucket((uint64_t)p99_ns)] += n / 50;
	buckets[middle - 1] += n / 4;
	buckets[middle] += n - n / 50 - n / 4;
}

static struct rbk_stats_tenant tenant_of(const struct about *about, uint32_t number,
					 unsigned int moment)
{
	const uint64_t seconds = 1000 + moment, n = seconds * about->tasks_per_s;
	uint64_t n_slow;
	struct rbk_stats_tenant tenant = {
		.number = number,
		.flags = RBK_STATS_TENANT_USED | RBK_STATS_TENANT_NAMED | RBK_STATS_TENANT_PAGE,
		.weight = about->weight,
		.n_tasks = n,
		.n_inline = n / 2,
		.n_reactor = n / 4,
		.queue_ns = n * 1000,
		.exec_ns = n * 20000,
		.copied_bytes = n * 100,
		.transferred_bytes = n * 4096,
		.log_head = 1000,
		/* The evictions happen at moment 30. */
		.n_evictions = about->n_evictions * (moment >= 30),
		.n_returns = about->n_evictions,
		.n_sessions = about->n_sessions,
		.n_plans = about->n_plans,
		.host_used = (uint64_t)(64 * MIB) * number,
		.host_max = UINT64_MAX,
	};

	snprintf(tenant.name, sizeof(tenant.name), "%s", about->name);
	tenant.devices[RBK_DEVICE_CPU] = (struct rbk_stats_tenant_device){
		.n_tasks = seconds * (about->tasks_per_s - about->gpu_per_s),
		.share = 1.0 / N_THREE,
		.memory_used = tenant.host_used,
		.memory_max = UINT64_MAX,
		.memory_high = UINT64_MAX,
	};
	tenant.devices[RBK_DEVICE_GPU] = (struct rbk_stats_tenant_device){
		.n_tasks = seconds * about->gpu_per_s,
		.share = about->share,
		.memory_used = (uint64_t)about->vram,
		.memory_max = (uint64_t)about->vram_max,
		.memory_reserve = (uint64_t)about->reserve,
		.memory_high = UINT64_MAX,
		.gtt_max = UINT64_MAX,
	};
	tenant.reasons[about->reason] = n - n / 20;
	tenant.reasons[RBK_REASON_CONTENTION] = n / 20;
	/* Ten seconds of each minute are slower, so that graphs are not flat. */
	n_slow = (n - n / 2) / seconds * (moment / 60 * 10 + (moment % 60 < 10 ? moment % 60 : 10));
	histogram(tenant.latency_histogram, n - n / 2 - n_slow, about->p50_ns, about->p99_ns);
	histogram(tenant.latency_histogram, n_slow, about->p50_ns, 4 * about->p99_ns);
	histogram(tenant.queue_histogram, n - n / 2, about->p50_ns / 4, about->p99_ns / 4);
	return tenant;
}

static void delay_of(const struct about *about, struct rbk_stats_delay *ret)
{
	*ret = (struct rbk_stats_delay){
		.flags = RBK_STATS_DELAY_USED | RBK_STATS_DELAY_KNOWN,
		.run_ns = 90 * second_ns,
		.wait_ns = 4 * second_ns,
		.n_waits = 12345,
		.n_preemptions = 77,
		.p50_ns = (uint64_t)(about->wait_ns / 10),
		.p99_ns = (uint64_t)about->wait_ns,
		.max_ns = (uint64_t)(3 * about->wait_ns),
		.n_causes = 1,
		.causes[0] = {.pid = 99, .wait_ns = 3 * second_ns, .n_preemptions = 70},
	};
	strcpy(ret->causes[0].comm, "rsync");
	strcpy(ret->causes[0].cgroup, "/system.slice/backup.service");
}

static void fill_cpu(struct rbk_stats_device *cpu)
{
	*cpu = (struct rbk_stats_device){
		.kind = 0,
		.n_released = 4,
		.backlog_ns = 120000,
		.contention = 1.4,
		.utilization = 0.64,
		.n_servers = 8,
		.memory_used = RBK_STATS_ABSENT,
		.memory_outside = RBK_STATS_ABSENT,
		.memory_budget = RBK_STATS_ABSENT,
		.gtt_total = RBK_STATS_ABSENT,
		.gtt_used = RBK_STATS_ABSENT,
		.load_percent = RBK_STATS_ABSENT,
		.clock_hz = RBK_STATS_ABSENT,
		.temperature_millicelsius = RBK_STATS_ABSENT,
		.power_microwatts = RBK_STATS_ABSENT,
		.n_driver_evictions = RBK_STATS_ABSENT,
		.paths = "avx2",
	};
	strcpy(cpu->name, "CPU, 8 workers");
}

static void fill_gpu(struct rbk_stats_device *gpu, uint32_t index, double outside,
		     unsigned int moment)
{
	/* The load rises and falls twice in five minutes. */
	const unsigned int phase = moment % 150, load = phase < 75 ? phase : 150 - phase;

	*gpu = (struct rbk_stats_device){
		.index = index,
		.kind = 1,
		.n_tasks = 1000 * moment,
		.n_queued = 2,
		.n_released = 1,
		.backlog_ns = 800000,
		.contention = 1,
		.utilization = 0.8,
		.memory_total = (uint64_t)(8 * GIB),
		.memory_used = (uint64_t)((5.6 + outside) * GIB),
		.memory_outside = (uint64_t)(outside * GIB),
		.memory_budget = (uint64_t)((7.6 - outside) * GIB),
		.memory_charged = (uint64_t)(5.6 * GIB),
		.gtt_total = (uint64_t)(15.6 * GIB),
		.gtt_used = (uint64_t)(0.4 * GIB),
		.load_percent = 20 + load,
		.clock_hz = 1340000000,
		.temperature_millicelsius = 71000,
		.power_microwatts = 134000000,
		.paths = "udmabuf,exported",
	};
	strcpy(gpu->name, "AMD Radeon RX 580 (POLARIS10)");
	strcpy(gpu->driver, "radv");
}

static void fill_broker(const struct rbk_stats_view *root, uint64_t n_tenants, uint64_t n_sessions,
			uint64_t n_plans)
{
	struct rbk_stats_broker *broker = record(root, RBK_STATS_SECTION_BROKER, 0);
	struct rbk_stats_contention *contention = record(root, RBK_STATS_SECTION_CONTENTION, 0);
	struct rbk_stats_thread *thread = record(root, RBK_STATS_SECTION_THREADS, 0);
	struct about worker = {.wait_ns = 1.9e6};

	broker->n_tenants = n_tenants;
	broker->n_sessions = n_sessions;
	broker->host_bytes = (uint64_t)(384 * MIB);
	broker->host_max = (uint64_t)(12 * GIB);
	broker->n_plans = n_plans;
	*contention = (struct rbk_stats_contention){
		.source = RBK_STATS_SOURCE_EBPF,
		.flags = RBK_STATS_CONTENDED | RBK_STATS_CONTENTION_ACTS,
		.n_workers = 5,
		.n_workers_total = 8,
		.factor = 1.4,
		.n_began = 1,
	};
	thread->tid = 4712;
	thread->role = RBK_STATS_ROLE_WORKER;
	strcpy(thread->name, "worker-0");
	delay_of(&worker, &thread->delay);
}

/*
 * Return a lease of a program that drives the GPU itself. The first lease's program runs normally,
 * the second waits, the third needs attention.
 */
static struct rbk_stats_lease lease_of(uint32_t number, uint32_t tenant, unsigned int moment)
{
	static const char *const names[N_LEASES] = {"llama-server", "ffmpeg", "vkcube"};
	static const uint32_t flags[N_LEASES] = {
		RBK_STATS_LEASE_SHARING,
		RBK_STATS_LEASE_WAITING,
		RBK_STATS_LEASE_OVER | RBK_STATS_LEASE_SHRINKING | RBK_STATS_LEASE_SHARING |
			RBK_STATS_LEASE_BACKGROUND | RBK_STATS_LEASE_QUEUED,
	};
	uint32_t i = (number - 1) % N_LEASES;
	struct rbk_stats_lease lease = {
		.sequence = 2 * (moment + 1),
		.number = number,
		.tenant = tenant,
		.device = RBK_DEVICE_GPU,
		.flags = flags[i],
		.pid = 4300 + number,
		.uid = 1000,
		.n_members = 1 + (i == 0),
		.opened_at_ns = began_ns + up_ns - number * 90 * second_ns,
		.min_bytes = (uint64_t)(64 * MIB),
		.wish_bytes = (uint64_t)(512 * MIB),
		.max_bytes = (uint64_t)(1024 * MIB),
		.granted_bytes = (uint64_t)(512 * MIB),
		.credited_bytes = (uint64_t)((480 + moment % 2) * MIB),
		.object_bytes = (uint64_t)(32 * MIB),
		.used_bytes = (uint64_t)(460 * MIB),
		.extra_bytes = (uint64_t)(12 * MIB),
		.peak_bytes = (uint64_t)(500 * MIB),
		.seen_bytes = i == 1 ? RBK_STATS_ABSENT : (uint64_t)((472 + 100 * i) * MIB),
		.waiting_bytes = i == 1 ? (uint64_t)(128 * MIB) : 0,
		.n_objects = 211,
		.n_refused = i,
		.busy_ns = i == 1 ? RBK_STATS_ABSENT : 20 * second_ns + moment * second_ns / 4,
		.busy_percent = i == 1 ? RBK_STATS_ABSENT : 25,
		.n_submissions = RBK_STATS_ABSENT,
		.n_parts = RBK_STATS_ABSENT,
		.n_slices = RBK_STATS_ABSENT,
		.n_whole = RBK_STATS_ABSENT,
		.n_unsliced = RBK_STATS_ABSENT,
	};

	if (lease.flags & RBK_STATS_LEASE_SHARING) {
		lease.slice_ns = (100 + moment) * second_ns / 5 * (1 + i);
		lease.slice_wait_ns = (100 + moment) * second_ns / 10 * (1 + i);
		lease.n_overdue = i;
		lease.n_submissions = (100 + moment) * 480 * (1 + i);
		lease.n_parts = (100 + moment) * 400 * (1 + i);
		lease.n_slices = (100 + moment) * 60 * (1 + i);
		lease.n_whole = i;
		lease.n_unsliced = 3 * i;
		lease.longest_part_ns = 612000 * (1 + i);
		lease.longest_wait_ns = 7300000 * (1 + i);
		lease.queued_ns = lease.flags & RBK_STATS_LEASE_QUEUED ? 4200000 : 0;
	}

	snprintf(lease.name, sizeof(lease.name), "%s", names[i]);
	return lease;
}

static struct rbk_stats_session session_of(uint32_t number, uint32_t tenant, const char *name,
					   uint64_t tasks_per_s, uint64_t n_plans,
					   unsigned int moment)
{
	struct rbk_stats_session session = {
		.sequence = 2 * (moment + 1),
		.number = number,
		.tenant = tenant,
		.pid = 1000 + number,
		.uid = 100 + tenant,
		.began_at_ns = began_ns + up_ns - number * 60 * second_ns,
		.n_tasks = (1000 + moment) * tasks_per_s,
		.n_gpu_tasks = (1000 + moment) * tasks_per_s / 4,
		.copied_bytes = (1000 + moment) * tasks_per_s * 100,
		.n_in_flight = number % 5,
		.n_rings = 1,
		.n_arenas = 1,
		.arena_bytes = (uint64_t)(16 * MIB),
		.n_plans = n_plans,
		.n_plans_resident = n_plans > 1 ? n_plans - 1 : n_plans,
		.memory_used = (uint64_t)(64 * MIB) * n_plans,
		.n_evictions = number % 3,
		.gpu_ns = (1000 + moment) * tasks_per_s * 1000,
		.p50_ns = 40000 + 1000 * number,
		.p99_ns = 900000 + 10000 * number,
	};

	snprintf(session.name, sizeof(session.name), "%s", name);
	snprintf(session.comm, sizeof(session.comm), "%s-server", name);
	return session;
}

static void fill_decisions(const struct rbk_stats_view *view, unsigned int moment)
{
	const struct rbk_stats_header *page = view->page;

	for (uint64_t index = 1000 - LOG_RECORDS; index < 1000; index++) {
		const bool is_cpu = index % 3 == 0;

		*(struct rbk_stats_decision *)record(
			view, RBK_STATS_SECTION_DECISIONS,
			index % LOG_RECORDS) = (struct rbk_stats_decision){
			.sequence = index + 1,
			.ended_at_ns = page->updated_at_ns - (1000 - index) * 7000000,
			.user_data = index,
			.plan_id = 1,
			.session = 1,
			.count = 128,
			.predicted_ns = is_cpu ? 40000 : 4100000,
			.other_ns = is_cpu ? 4100000 : 40000,
			.queue_ns = 3000,
			.exec_ns = is_cpu ? 41000 : 4500000 + moment,
			.device = is_cpu ? RBK_DEVICE_CPU : RBK_DEVICE_GPU,
			.reason = is_cpu ? RBK_REASON_BELOW_THRESHOLD : RBK_REASON_COST_MODEL,
			.res = index == 990 ? -5 : 0,
		};
	}
}

static void fill_plan(const struct rbk_stats_view *view, uint32_t slot, const char *tenant,
		      unsigned int moment)
{
	struct rbk_stats_plan *plan = record(view, RBK_STATS_SECTION_PLANS, slot);

	*plan = (struct rbk_stats_plan){
		.state = RBK_STATS_PLAN_LIVE,
		.session = 1,
		.plan_id = slot + 1,
		.fingerprint = 0x1234567890abcdef,
		.made_at_ns = began_ns + up_ns / 2 + slot,
		.count = 128,
		.last_device = RBK_DEVICE_GPU,
		.last_reason = slot == 1 ? RBK_REASON_MEMORY_CONSTRAINT : RBK_REASON_COST_MODEL,
		.n_evictions = slot,
		.n_returns = slot / 2,
	};
	snprintf(plan->name, sizeof(plan->name), "%s-%u", tenant, slot);
	plan->reasons[RBK_REASON_COST_MODEL] = 1000 + 10 * moment;
	plan->devices[RBK_DEVICE_CPU] = (struct rbk_stats_plan_device){
		.n_tasks = 10,
		.estimate_ns = 31e6,
		.predicted_exec_ns = 1000000,
		.error_ns = 40000,
		.mean_error = 0.71,
		.contention = 16,
		.speedup = 1,
		.state = RBK_MEMORY_RESIDENT,
	};
	plan->devices[RBK_DEVICE_GPU] = (struct rbk_stats_plan_device){
		.n_tasks = 1000 + 10 * moment,
		.estimate_ns = 4.1e6,
		.mean_error = 0.04,
		.speedup = 7.6,
		.is_trusted = 1,
		.state = slot == 1 ? RBK_MEMORY_EVICTED : RBK_MEMORY_RESIDENT,
		.tier = RBK_TIER_VRAM,
		.resident_bytes = slot == 1 ? 0 : (uint64_t)(400 * MIB),
		.footprint_bytes = (uint64_t)(400 * MIB),
	};
}

static void make_tenant_page(struct pages *pages, const struct about *about, uint32_t number,
			     uint32_t n_sessions, unsigned int moment)
{
	const struct counts counts = {
		.n = {
			[RBK_STATS_SECTION_TENANTS] = 1,
			[RBK_STATS_SECTION_PLANS] = (uint32_t)about->n_plans + 1,
			[RBK_STATS_SECTION_DECISIONS] = LOG_RECORDS,
			[RBK_STATS_SECTION_DEVICES] = 2,
			[RBK_STATS_SECTION_DELAYS] = 1,
			[RBK_STATS_SECTION_SESSIONS] = n_sessions,
			[RBK_STATS_SECTION_LEASES] = 2,
		}};
	struct rbk_stats_view view = page_new(RBK_STATS_TENANT, 2, moment, &counts);
	const struct rbk_stats_tenant tenant = tenant_of(about, number, moment);
	struct rbk_stats_device *gpu = record(&view, RBK_STATS_SECTION_DEVICES, 1);

	gpu->index = RBK_DEVICE_GPU;
	gpu->kind = 1;
	gpu->memory_total = (uint64_t)(8 * GIB);
	strcpy(gpu->name, "AMD Radeon RX 580 (POLARIS10)");
	delay_of(about, record(&view, RBK_STATS_SECTION_DELAYS, 0));
	for (uint32_t slot = 0; slot < about->n_plans; slot++)
		fill_plan(&view, slot, about->name, moment);
	fill_decisions(&view, moment);
	for (uint32_t i = 0; i < n_sessions; i++)
		*(struct rbk_stats_session *)record(&view, RBK_STATS_SECTION_SESSIONS, i) =
			session_of(i + 1, number, about->name, about->tasks_per_s / n_sessions, 2,
				   moment);
	*(struct rbk_stats_lease *)record(&view, RBK_STATS_SECTION_LEASES, 0) =
		lease_of(number, number, moment);
	add_tenant_page(pages, &view, &tenant);
}

static void make_three(unsigned int moment, struct pages *ret)
{
	const struct counts counts = {.n = {
					      [RBK_STATS_SECTION_TENANTS] = N_THREE + 2,
					      [RBK_STATS_SECTION_BROKER] = 1,
					      [RBK_STATS_SECTION_DEVICES] = 2,
					      [RBK_STATS_SECTION_CONTENTION] = 1,
					      [RBK_STATS_SECTION_THREADS] = 2,
					      [RBK_STATS_SECTION_DELAYS] = N_THREE + 2,
					      [RBK_STATS_SECTION_SESSIONS] = 12,
					      [RBK_STATS_SECTION_LEASES] = N_LEASES + 1,
				      }};
	struct rbk_stats_view root = page_new(RBK_STATS_ROOT, 2, moment, &counts);
	uint32_t n_sessions = 0;

	ret->root = root;
	ret->has_all = true;
	fill_broker(&root, N_THREE, 9, 14);
	fill_cpu(record(&root, RBK_STATS_SECTION_DEVICES, 0));
	fill_gpu(record(&root, RBK_STATS_SECTION_DEVICES, 1), RBK_DEVICE_GPU, 0.8, moment);
	for (uint32_t i = 0; i < N_THREE; i++) {
		const struct about *about = &three[i];

		*(struct rbk_stats_tenant *)record(&root, RBK_STATS_SECTION_TENANTS, i) =
			tenant_of(about, i + 1, moment);
		delay_of(about, record(&root, RBK_STATS_SECTION_DELAYS, i));
		make_tenant_page(ret, about, i + 1, 0, moment);
		*(struct rbk_stats_lease *)record(&root, RBK_STATS_SECTION_LEASES, i) =
			lease_of(i + 1, i + 1, moment);
		for (uint32_t k = 0; k < about->n_sessions; k++) {
			struct rbk_stats_session *session =
				record(&root, RBK_STATS_SECTION_SESSIONS, n_sessions++);

			*session =
				session_of(n_sessions, i + 1, about->name,
					   about->tasks_per_s / about->n_sessions,
					   k ? 1 : about->n_plans - about->n_sessions + 1, moment);
		}
	}
}

/* --- Others --- */

static void make_cpu(unsigned int moment, struct pages *ret)
{
	static const struct about only = {"default", 100,  1, 2,   0,
					  0,         0,    0, 500, 0,
					  20e3,      90e3, 0, 0,   RBK_REASON_GPU_UNAVAILABLE};
	const struct counts counts = {.n = {
					      [RBK_STATS_SECTION_TENANTS] = 1,
					      [RBK_STATS_SECTION_BROKER] = 1,
					      [RBK_STATS_SECTION_DEVICES] = 1,
				      }};
	struct rbk_stats_view root = page_new(RBK_STATS_ROOT, 1, moment, &counts);
	struct rbk_stats_broker *broker = record(&root, RBK_STATS_SECTION_BROKER, 0);

	ret->root = root;
	broker->n_tenants = broker->n_sessions = 1;
	/* Nearly at the limit. */
	broker->host_bytes = (uint64_t)(11.6 * GIB);
	broker->host_max = (uint64_t)(12 * GIB);
	broker->n_plans = 2;
	broker->flags = RBK_STATS_BROKER_FORCE_CPU;
	fill_cpu(record(&root, RBK_STATS_SECTION_DEVICES, 0));
	*(struct rbk_stats_tenant *)record(&root, RBK_STATS_SECTION_TENANTS, 0) =
		tenant_of(&only, 1, moment);
}

static void make_many(unsigned int moment, struct pages *ret)
{
	enum { N_GPUS = 4 };
	const struct counts counts = {.n = {
					      [RBK_STATS_SECTION_TENANTS] = MANY_TENANTS,
					      [RBK_STATS_SECTION_BROKER] = 1,
					      [RBK_STATS_SECTION_DEVICES] = N_GPUS + 1,
					      [RBK_STATS_SECTION_CONTENTION] = 1,
					      [RBK_STATS_SECTION_THREADS] = 1,
					      [RBK_STATS_SECTION_DELAYS] = MANY_TENANTS,
					      [RBK_STATS_SECTION_SESSIONS] = MANY_SESSIONS,
				      }};
	struct rbk_stats_view root = page_new(RBK_STATS_ROOT, N_GPUS + 1, moment, &counts);
	char name[32];

	ret->root = root;
	fill_broker(&root, MANY_TENANTS, MANY_SESSIONS, MANY_SESSIONS);
	fill_cpu(record(&root, RBK_STATS_SECTION_DEVICES, 0));
	for (uint32_t i = 1; i <= N_GPUS; i++)
		fill_gpu(record(&root, RBK_STATS_SECTION_DEVICES, i), i, 0.5, moment);
	for (uint32_t i = 0; i < MANY_TENANTS; i++) {
		const struct about about = {
			.name = name,
			.weight = 1 + i % 7,
			.n_sessions = MANY_SESSIONS / MANY_TENANTS,
			.n_plans = 10,
			.vram = (1 + i % 9) * MIB,
			.vram_max = GIB,
			.tasks_per_s = 1 + i,
			.gpu_per_s = i / 2,
			.p50_ns = 1000 + i,
			.p99_ns = 9000 + i,
			.reason = RBK_REASON_COST_MODEL,
		};

		snprintf(name, sizeof(name), "tenant-%04u", i);
		*(struct rbk_stats_tenant *)record(&root, RBK_STATS_SECTION_TENANTS, i) =
			tenant_of(&about, i + 1, moment);
	}
	for (uint32_t i = 0; i < MANY_SESSIONS; i++)
		*(struct rbk_stats_session *)record(&root, RBK_STATS_SECTION_SESSIONS, i) =
			session_of(i + 1, 1 + i % MANY_TENANTS, "worker", i % 1000, 1, moment);
}

/* Make pages with every byte that could control a terminal, and with nonsensical figures. */
static void make_hostile(unsigned int moment, struct pages *ret)
{
	static const char *const names[HOSTILE_TENANTS] = {
		"\033]0;owned\007\033[2J", "\x9b\x32J\x90q\x9c",       "a\nb\tc\rd\be",
		"\xff\xfe\xc0\x80",        "\xe2\x80\xae\xe2\x80\x8f", "\xf0\x9f\x92\xa9",
		"\x01\x02\x7f%s%n",        "\xe2\x96\x88\xe2\x96\x88",
	};
	const struct rbk_stats_view *view;
	uint64_t *word;

	make_three(moment, ret);
	view = &ret->root;
	/* Every word after a record's first two is the largest value, or a NaN. */
	for (unsigned int section = 0; section < RBK_STATS_SECTION_COUNT; section++)
		for (uint32_t i = 0; i < rbk_stats_count(view, section); i++) {
			word = record(view, section, i);
			for (uint32_t k = 2; k < view->sections[section].stride / 8; k++)
				word[k] = (k + i + moment) % 3 ? UINT64_MAX : 0x7ff8000000000001;
		}
	for (uint32_t i = 0; i < rbk_stats_count(view, RBK_STATS_SECTION_TENANTS); i++) {
		struct rbk_stats_tenant *tenant = record(view, RBK_STATS_SECTION_TENANTS, i);

		/* The name has no terminator. */
		memset(tenant->name, '\033', sizeof(tenant->name));
		if (i > 0)
			strcpy(tenant->name, names[i]);
		tenant->flags = UINT32_MAX;
		tenant->number = i + 1;
	}
	for (unsigned int i = 0; i < ret->n_tenants; i++) {
		struct rbk_stats_plan *plan =
			record(&ret->tenants[i].view, RBK_STATS_SECTION_PLANS, 0);

		memset(plan->name, '\033', sizeof(plan->name));
		strcpy(ret->tenants[i].name, names[i]);
		for (uint32_t k = 0; k < 3; k++) {
			plan = record(&ret->tenants[i].view, RBK_STATS_SECTION_PLANS, k);
			snprintf(plan->name, sizeof(plan->name), "%s", names[(i + k) % 8]);
			plan->last_reason = plan->last_device = 0xff;
			plan->devices[1].state = 0xfe;
		}
	}
	for (uint32_t i = 0; i < 6; i++) {
		struct rbk_stats_session *session = record(view, RBK_STATS_SECTION_SESSIONS, i);

		session->number = i + 1;
		snprintf(session->name, sizeof(session->name), "%s", names[i]);
		memset(session->comm, '\x9b', sizeof(session->comm));
	}
	for (uint32_t i = 0; i < N_LEASES; i++) {
		struct rbk_stats_lease *lease = record(view, RBK_STATS_SECTION_LEASES, i);

		lease->number = i + 1;
		lease->tenant = i + 1;
		snprintf(lease->name, sizeof(lease->name), "%s", names[i]);
	}
}

void stats_scene_make(enum stats_scene scene, unsigned int moment, struct pages *ret)
{
	*ret = (struct pages){.tenants = NULL};
	switch (scene) {
	case STATS_SCENE_THREE:
		make_three(moment, ret);
		break;
	case STATS_SCENE_CPU:
		make_cpu(moment, ret);
		break;
	case STATS_SCENE_OWN:
		make_tenant_page(ret, &three[1], 2, 6, moment);
		break;
	case STATS_SCENE_MANY:
		make_many(moment, ret);
		break;
	case STATS_SCENE_HOSTILE:
		make_hostile(moment, ret);
		break;
	case STATS_SCENE_COUNT:
		abort();
	}
}
