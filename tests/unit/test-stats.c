/* SPDX-License-Identifier: MIT */
/* Counts and pages: counters, slots, the log, resets, pages that are mapped and unmapped */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "stats/stats.h"
#include "support/test.h"
#include "tenant-page.h"
#include "util/checked.h"

enum { N_DEVICES = 2, GPU = 1 };

struct kit {
	struct stats *stats;
	struct stats_tenant *tenant;
	struct rbk_stats_view view;
	uint64_t now_ns;
};

static struct rbk_stats_view view_of(const struct stats_page *page)
{
	struct rbk_stats_view view = {.page = NULL};

	assert_non_null(page->header);
	assert_true(rbk_stats_view(&view, page->header, page->header->page_bytes));
	return view;
}

static int setup(void **state)
{
	static struct kit kit;

	kit = (struct kit){.now_ns = 1000};
	assert_int_equal(stats_new(N_DEVICES, kit.now_ns, &kit.stats), 0);
	assert_int_equal(stats_tenant_new(kit.stats, 7, "web", &kit.tenant), 0);
	assert_int_equal(tenant_page_map(kit.tenant, kit.now_ns), 0);
	kit.view = view_of(&kit.tenant->page);
	*state = &kit;
	return 0;
}

static int teardown(void **state)
{
	struct kit *kit = *state;

	list_for_each_safe (node, &kit->tenant->plans)
		stats_plan_deinit(container_of(node, struct stats_plan, link));
	stats_free(kit->stats);
	return 0;
}

/* Initialise @plan, which must not lie on a test's stack: teardown still visits it. */
static void plan_init(struct kit *kit, struct stats_plan *plan, uint32_t id)
{
	char name[RBK_NAME_BYTES] = "";
	struct stats_plan_about about = {name, id, 5, 0xabcdef, plan};

	snprintf(name, sizeof(name), "plan-%u", id);
	stats_plan_init(plan, kit->tenant, &about, ++kit->now_ns);
}

static struct rbk_stats_tenant totals_of(const struct rbk_stats_view *view)
{
	struct rbk_stats_tenant totals;

	assert_true(rbk_stats_copy(&totals, rbk_stats_record(view, RBK_STATS_SECTION_TENANTS, 0),
				   sizeof(totals)));
	return totals;
}

/* A copy of a plan's slot with N_DEVICES devices. */
union plan_copy {
	struct rbk_stats_plan plan;
	uint64_t words[(sizeof(struct rbk_stats_plan) +
			N_DEVICES * sizeof(struct rbk_stats_plan_device)) /
		       sizeof(uint64_t)];
};

static void plan_copy(const struct rbk_stats_view *view, uint32_t slot, union plan_copy *ret)
{
	assert_true(rbk_stats_copy(ret->words,
				   rbk_stats_record(view, RBK_STATS_SECTION_PLANS, slot),
				   sizeof(ret->words)));
}

static struct stats_task task_make(uint64_t user_data)
{
	return (struct stats_task){
		.user_data = user_data,
		.ended_ns = 5000 + user_data,
		.queue_ns = 2000,
		.exec_ns = 3000,
		.predicted_ns = 2500,
		.other_ns = 9000,
		.count = 12,
		.device = GPU,
		.reason = RBK_REASON_COST_MODEL,
	};
}

/* --- Layout --- */

TEST(test_layout__sections, setup, teardown)
{
	struct kit *kit = *state;
	struct rbk_stats_view root;

	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_TENANTS), 1);
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_PLANS), STATS_MAX_PLANS);
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_DECISIONS),
			 STATS_LOG_RECORDS);
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_SEGMENTS),
			 STATS_SEGMENT_RECORDS);
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_SLICES),
			 STATS_SLICE_RECORDS);
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_DEVICES), N_DEVICES);
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_BROKER), 0);
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_CONTENTION), 0);
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_THREADS), 0);
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_DELAYS), 1);
	assert_null(rbk_stats_record(&kit->view, RBK_STATS_SECTION_BROKER, 0));
	assert_null(rbk_stats_record(&kit->view, RBK_STATS_SECTION_TENANTS, 1));
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_MAX_SECTIONS), 0);
	assert_fields(kit->view, (bytes, stats_tenant_page_bytes(kit->stats)),
		      (page->kind, RBK_STATS_TENANT), (page->pid, getpid()));

	assert_null(stats_root(kit->stats)->header);
	assert_int_equal(stats_root_map(kit->stats, kit->now_ns), 0);
	root = view_of(stats_root(kit->stats));
	assert_fields(root, (page->kind, RBK_STATS_ROOT),
		      (bytes, stats_root_page_bytes(kit->stats)));
	assert_int_equal(rbk_stats_count(&root, RBK_STATS_SECTION_BROKER), 1);
	assert_int_equal(rbk_stats_count(&root, RBK_STATS_SECTION_PLANS), 0);
	assert_int_equal(rbk_stats_count(&root, RBK_STATS_SECTION_TENANTS), STATS_MAX_TENANTS);
	assert_int_equal(rbk_stats_count(&root, RBK_STATS_SECTION_CONTENTION), 1);
	assert_int_equal(rbk_stats_count(&root, RBK_STATS_SECTION_THREADS), STATS_MAX_THREADS);
	assert_int_equal(rbk_stats_count(&root, RBK_STATS_SECTION_DELAYS), STATS_MAX_TENANTS);
}

/* Read all that a reader may. A sanitizer detects reads outside the page. */
static void read_all(const struct rbk_stats_view *view)
{
	struct rbk_stats_decision decision;
	struct rbk_stats_segment segment;
	struct rbk_stats_slice slice;
	union {
		struct rbk_stats_thread thread;
		struct rbk_stats_delay delay;
		struct rbk_stats_contention contention;
		struct rbk_stats_tenant tenant;
		uint64_t words[1024];
	} copy;
	static const size_t sizes[RBK_STATS_SECTION_COUNT] = {
		[RBK_STATS_SECTION_TENANTS] = sizeof(copy.tenant),
		[RBK_STATS_SECTION_CONTENTION] = sizeof(copy.contention),
		[RBK_STATS_SECTION_THREADS] = sizeof(copy.thread),
		[RBK_STATS_SECTION_DELAYS] = sizeof(copy.delay),
	};

	for (unsigned int id = 0; id < RBK_STATS_MAX_SECTIONS; id++) {
		uint32_t n = rbk_stats_count(view, id);
		const uint32_t indexes[] = {0, 1, n / 2, n - 1, n, n + 1, UINT32_MAX};

		for (unsigned int i = 0; i < ARRAY_SIZE(indexes); i++) {
			const void *record = rbk_stats_record(view, id, indexes[i]);

			assert_true((record != NULL) == (indexes[i] < n));
			if (record)
				rbk_stats_copy(&copy, record,
					       sizes[id] ? sizes[id] : sizeof(uint64_t));
		}
	}
	rbk_stats_decision(view, 0, &decision);
	rbk_stats_decision(view, UINT64_MAX, &decision);
	rbk_stats_segment(view, 0, &segment);
	rbk_stats_segment(view, UINT64_MAX, &segment);
	rbk_stats_slice(view, 0, &slice);
	rbk_stats_slice(view, UINT64_MAX, &slice);
}

/* Corrupted pages of each kind, in memory with nothing mapped after it. */
TEST(test_layout__garbage, setup, teardown)
{
	static const uint32_t values[] = {
		0,         1,  2,  7,    8,           16,       64,
		72,        80, 88, 4096, 0x7fffffffu, 1u << 31, UINT32_MAX - 7,
		UINT32_MAX};
	struct kit *kit = *state;
	struct rbk_stats_view view, of_kind[2] = {kit->view};
	uint32_t seed = 1, n_read = 0;

	assert_int_equal(stats_root_map(kit->stats, kit->now_ns), 0);
	of_kind[1] = view_of(stats_root(kit->stats));
	for (unsigned int kind = 0; kind < 2; kind++) {
		uint64_t bytes = of_kind[kind].bytes;
		uint32_t *copy = malloc(bytes);

		assert_non_null(copy);
		for (unsigned int i = 0; i < 4000; i++) {
			/* A view depends only on the header. */
			memcpy(copy, of_kind[kind].page, i ? sizeof(*of_kind[kind].page) : bytes);
			for (unsigned int n = i % 4 + 1; n > 0; n--) {
				seed = seed * 1664525 + 1013904223;
				copy[(seed >> 8) % (sizeof(*of_kind[kind].page) / sizeof(*copy))] =
					i % 2 ? values[seed % ARRAY_SIZE(values)]
					      : seed ^ seed >> 13;
			}
			if (rbk_stats_view(&view, copy, bytes)) {
				read_all(&view);
				n_read++;
			}
		}
		free(copy);
	}
	assert_true(n_read > 100);
}

/* Each inconsistency of a header is detected. Additions of later versions are accepted. */
TEST(test_layout__nonsense, setup, teardown)
{
	struct kit *kit = *state;
	uint64_t bytes = kit->view.bytes;
	struct rbk_stats_header *copy = aligned_alloc(4096, bytes);
	struct rbk_stats_section *plans, *log, *segments, *slices;
	struct rbk_stats_view view = {.page = NULL};

	assert_non_null(copy);
	plans = &copy->sections[RBK_STATS_SECTION_PLANS];
	log = &copy->sections[RBK_STATS_SECTION_DECISIONS];
	segments = &copy->sections[RBK_STATS_SECTION_SEGMENTS];
	slices = &copy->sections[RBK_STATS_SECTION_SLICES];
#define REFUSED(change)                                           \
	do {                                                      \
		memcpy(copy, kit->view.page, bytes);              \
		change;                                           \
		assert_false(rbk_stats_view(&view, copy, bytes)); \
	} while (0)
	REFUSED(copy->magic++);
	REFUSED(copy->abi_major++);
	REFUSED(copy->page_bytes++);
	REFUSED(copy->page_bytes -= 4096);
	REFUSED(copy->n_devices = RBK_MAX_DEVICES + 1);
	REFUSED(copy->n_devices = UINT32_MAX);
	/* One more device than the stride has room for. */
	REFUSED(copy->n_devices = N_DEVICES + 1);
	REFUSED(copy->n_sections = RBK_STATS_LEAST_SECTIONS - 1);
	REFUSED(copy->n_sections = 0);
	REFUSED(plans->offset = 8);
	REFUSED(plans->offset += 4);
	/* Beyond the sections that follow, and beyond the end. */
	REFUSED(plans->offset += 8192 + STATS_OWN_SESSIONS * sizeof(struct rbk_stats_session) +
				 STATS_OWN_LEASES * sizeof(struct rbk_stats_lease) +
				 STATS_REFUSED_RECORDS * sizeof(struct rbk_stats_refused));
	REFUSED(plans->offset = UINT32_MAX - 7);
	REFUSED(plans->stride -= 8);
	REFUSED(plans->stride += 1);
	REFUSED(plans->stride = UINT32_MAX - 7);
	REFUSED(plans->count = UINT32_MAX);
	REFUSED(plans->count += 200);
	REFUSED(log->count = 1000);
	REFUSED(log->stride = 32);
	REFUSED(segments->count = 1000);
	REFUSED(segments->stride = 64);
	REFUSED(slices->count = 1000);
	REFUSED(slices->stride = 56);
#undef REFUSED
	memcpy(copy, kit->view.page, bytes);
	assert_false(rbk_stats_view(&view, copy, sizeof(*copy) - 1));
	assert_true(rbk_stats_view(&view, copy, bytes));
	/* A later minor version: more sections, longer records. */
	copy->abi_minor++;
	copy->n_sections++;
	plans->stride += 64;
	plans->count /= 2;
	assert_true(rbk_stats_view(&view, copy, bytes));
	assert_ptr_equal(rbk_stats_record(&view, RBK_STATS_SECTION_PLANS, 1),
			 (char *)copy + plans->offset + plans->stride);
	/*
	 * An earlier minor version: sections that it does not have are absent, whatever is in their
	 * place.
	 */
	memcpy(copy, kit->view.page, bytes);
	copy->abi_minor = 0;
	copy->n_sections = RBK_STATS_LEAST_SECTIONS;
	copy->sections[RBK_STATS_SECTION_DELAYS].offset = 1;
	assert_true(rbk_stats_view(&view, copy, bytes));
	assert_int_equal(rbk_stats_count(&view, RBK_STATS_SECTION_TENANTS), 1);
	assert_int_equal(rbk_stats_count(&view, RBK_STATS_SECTION_DELAYS), 0);
	assert_null(rbk_stats_record(&view, RBK_STATS_SECTION_DELAYS, 0));
	free(copy);
}

TEST(test_layout__buckets)
{
	uint64_t ns, last_ns = 0;

	for (unsigned int i = 0; i < RBK_STATS_BUCKETS; i++) {
		ns = rbk_stats_bucket_ns(i);
		assert_true(i == 0 ? ns == 0 : ns > last_ns);
		/* From the fifth on, a bucket is at most a quarter wider than its lower bound. */
		if (i > 4)
			assert_true((ns - last_ns) * 4 <= last_ns);
		assert_int_equal(rbk_stats_bucket(ns), i);
		if (i > 0)
			assert_int_equal(rbk_stats_bucket(ns - 1), i - 1);
		last_ns = ns;
	}
	assert_int_equal(rbk_stats_bucket(UINT64_MAX), RBK_STATS_BUCKETS - 1);
	assert_true(last_ns > 100 * 1000000000ull);
}

/* Only the broker can write. */
TEST(test_page__is_sealed, setup, teardown)
{
	struct kit *kit = *state;
	int fd = kit->tenant->page.fd;
	char path[64];
	void *map;
	int other;

	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_equal(map, MAP_FAILED);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 4096), -1);
	assert_int_equal(ftruncate(fd, 1 << 24), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(mprotect(map, 4096, PROT_READ | PROT_WRITE), -1);
	munmap(map, 4096);
	/* Reopening the file does not allow writing either. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDWR | O_CLOEXEC);
	if (other >= 0) {
		map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
		assert_ptr_equal(map, MAP_FAILED);
		close(other);
	}
}

/* --- Counts --- */

TEST(test_count__queued, setup, teardown)
{
	struct kit *kit = *state;
	struct stats_task task = task_make(1);
	struct rbk_stats_decision decision = {0};
	struct rbk_stats_tenant totals;
	static struct stats_plan plan;
	union plan_copy copy;

	plan_init(kit, &plan, 3);
	stats_task_done(&plan, &task);
	task.exec_ns = 2000;
	task.flags = RBK_DECISION_EXPLORED | RBK_DECISION_DEADLINE_MISSED;
	stats_task_done(&plan, &task);
	task.flags = RBK_DECISION_PARTITIONED;
	task.split_count = 5;
	stats_task_done(&plan, &task);
	task = task_make(2);
	task.device = RBK_DEVICE_CPU;
	task.reason = RBK_REASON_CPU_FALLBACK;
	task.res = -EIO;
	stats_task_done(&plan, &task);
	task.device = RBK_DEVICE_NONE;
	task.reason = RBK_REASON_MEMORY_CONSTRAINT;
	task.res = -ENOMEM;
	stats_task_done(&plan, &task);
	stats_bytes(kit->tenant, 10, 20);
	stats_device_time(kit->tenant, GPU, 8000);
	stats_device_time(kit->tenant, GPU, 5000);
	stats_device_time(kit->tenant, RBK_DEVICE_CPU, 600);
	stats_throttled(kit->tenant, 30, 1);

	totals = totals_of(&kit->view);
	assert_int_equal(totals.number, 7);
	assert_string_equal(totals.name, "web");
	assert_fields(totals, (n_tasks, 5), (n_inline, 0), (inline_ns, 0), (n_errors, 2),
		      (n_deadlines_missed, 1), (n_partitioned, 1), (n_explored, 1),
		      (queue_ns, 4 * 2000), (exec_ns, 3000 + 2000 + 2000 + 3000),
		      (reasons[RBK_REASON_COST_MODEL], 3), (reasons[RBK_REASON_CPU_FALLBACK], 1),
		      (reasons[RBK_REASON_MEMORY_CONSTRAINT], 1), (copied_bytes, 10),
		      (transferred_bytes, 20), (throttled_ns, 30), (n_throttled, 1),
		      (devices[GPU].n_tasks, 3), (devices[GPU].exec_ns, 7000),
		      (devices[GPU].device_ns, 13000), (devices[RBK_DEVICE_CPU].device_ns, 600),
		      (devices[RBK_DEVICE_CPU].n_failed, 1));
	assert_int_equal(totals.queue_histogram[rbk_stats_bucket(2000)], 4);
	assert_int_equal(totals.latency_histogram[rbk_stats_bucket(5000)], 2);
	assert_int_equal(totals.latency_histogram[rbk_stats_bucket(4000)], 2);
	assert_int_equal(stats_device_counts(kit->stats, GPU)->n_tasks, 3);
	assert_int_equal(stats_device_counts(kit->stats, GPU)->device_ns, 13000);

	plan_copy(&kit->view, plan.slot, &copy);
	assert_int_equal(copy.plan.state, RBK_STATS_PLAN_LIVE);
	assert_string_equal(copy.plan.name, "plan-3");
	assert_fields(copy.plan, (plan_id, 3), (session, 5), (fingerprint, 0xabcdef),
		      (reasons[RBK_REASON_COST_MODEL], 3),
		      (last_reason, RBK_REASON_MEMORY_CONSTRAINT), (last_device, RBK_DEVICE_NONE),
		      (devices[GPU].n_tasks, 3));
	/* Split tasks do not count for a single device's predictions. */
	assert_fields(copy.plan.devices[GPU], (n_predicted, 2), (predicted_ns, 5000),
		      (predicted_exec_ns, 5000), (error_ns, 500 + 500));
	/* Nor do failed tasks. */
	assert_fields(copy.plan.devices[RBK_DEVICE_CPU], (n_predicted, 0), (n_failed, 1));

	assert_int_equal(totals.log_head, 5);
	assert_true(rbk_stats_decision(&kit->view, 2, &decision));
	assert_fields(decision, (user_data, 1), (ended_at_ns, 5001), (plan_id, 3), (session, 5),
		      (count, 12), (split_count, 5), (predicted_ns, 2500), (other_ns, 9000),
		      (queue_ns, 2000), (exec_ns, 2000), (device, GPU),
		      (reason, RBK_REASON_COST_MODEL), (flags, RBK_DECISION_PARTITIONED),
		      (plan, plan.slot));
	assert_true(rbk_stats_decision(&kit->view, 4, &decision));
	assert_fields(decision, (res, -ENOMEM), (device, RBK_DEVICE_NONE));
	assert_false(rbk_stats_decision(&kit->view, 5, &decision));
}

static void count_inline(struct stats_plan *plan, const struct stats_task *task)
{
	if (stats_inline_is_due(plan, task->reason, task->res, task->flags))
		stats_inline_begin(plan, task);
	stats_inline_gather(plan, task->exec_ns);
}

static void run_inline(struct stats_plan *plan, unsigned int n, uint8_t reason)
{
	const struct stats_task task = {.exec_ns = 100, .count = 1, .reason = reason};

	for (unsigned int i = 0; i < n; i++)
		count_inline(plan, &task);
}

TEST(test_count__inline, setup, teardown)
{
	struct kit *kit = *state;
	struct stats_task failed = {.exec_ns = 100,
				    .reason = RBK_REASON_BELOW_THRESHOLD,
				    .res = -EIO,
				    .flags = RBK_DECISION_DEADLINE_MISSED};
	struct rbk_stats_tenant totals;
	static struct stats_plan plan, other;
	union plan_copy copy;

	plan_init(kit, &plan, 1);
	plan_init(kit, &other, 2);
	run_inline(&plan, STATS_INLINE_SAMPLE + 10, RBK_REASON_BELOW_THRESHOLD);
	run_inline(&other, 3, RBK_REASON_USER_PREFERENCE);
	totals = totals_of(&kit->view);
	assert_int_equal(totals.n_tasks, STATS_INLINE_SAMPLE);
	stats_flush(kit->stats);
	totals = totals_of(&kit->view);
	assert_fields(totals, (n_tasks, STATS_INLINE_SAMPLE + 13),
		      (n_inline, STATS_INLINE_SAMPLE + 13),
		      (exec_ns, 100 * (STATS_INLINE_SAMPLE + 13)), (inline_ns, totals.exec_ns),
		      (devices[RBK_DEVICE_CPU].n_tasks, STATS_INLINE_SAMPLE + 13),
		      (devices[RBK_DEVICE_CPU].device_ns, totals.exec_ns),
		      (reasons[RBK_REASON_BELOW_THRESHOLD], STATS_INLINE_SAMPLE + 10),
		      (reasons[RBK_REASON_USER_PREFERENCE], 3));
	/*
	 * Logged: the plan's first task, the one after a full batch, and the other plan's first
	 * task.
	 */
	assert_int_equal(totals.log_head, 3);

	/* Tasks with another reason are counted separately, and failures at once. */
	run_inline(&plan, 5, RBK_REASON_USER_PREFERENCE);
	count_inline(&plan, &failed);
	totals = totals_of(&kit->view);
	assert_fields(totals, (reasons[RBK_REASON_USER_PREFERENCE], 8), (n_errors, 1),
		      (n_deadlines_missed, 1));
	/* A removed plan leaves no task uncounted. */
	stats_plan_deinit(&plan);
	totals = totals_of(&kit->view);
	assert_int_equal(totals.n_tasks, STATS_INLINE_SAMPLE + 19);
	plan_copy(&kit->view, 0, &copy);
	assert_fields(copy.plan, (state, RBK_STATS_PLAN_GONE), (n_inline, STATS_INLINE_SAMPLE + 16),
		      (devices[0].n_failed, 1),
		      (last_flags, RBK_DECISION_INLINE | RBK_DECISION_DEADLINE_MISSED));
	run_inline(&other, 1, RBK_REASON_USER_PREFERENCE);
	assert_false(list_is_empty(&kit->tenant->gathered));
	stats_plan_deinit(&other);
	assert_true(list_is_empty(&kit->tenant->gathered));
	assert_int_equal(stats_device_counts(kit->stats, 0)->n_tasks, STATS_INLINE_SAMPLE + 20);
}

/* --- The log --- */

TEST(test_log__wraps, setup, teardown)
{
	const uint64_t n = 3 * STATS_LOG_RECORDS + 5;
	struct kit *kit = *state;
	struct rbk_stats_decision decision;
	static struct stats_plan plan;
	struct stats_task task;

	plan_init(kit, &plan, 1);
	for (uint64_t i = 0; i < n; i++) {
		task = task_make(i);
		stats_task_done(&plan, &task);
	}
	assert_int_equal(totals_of(&kit->view).log_head, n);
	for (uint64_t i = 0; i < n + STATS_LOG_RECORDS; i++) {
		bool is_there = i < n && i >= n - STATS_LOG_RECORDS;

		assert_int_equal(rbk_stats_decision(&kit->view, i, &decision), is_there);
		if (is_there)
			assert_int_equal(decision.user_data, i);
	}
}

/* Flushing visits only a few plans, however many have tasks to be counted. */
TEST(test_count__many_plans, setup, teardown)
{
	enum { N = 2 * STATS_MAX_GATHERING };
	struct kit *kit = *state;
	static struct stats_plan plans[N];
	uint32_t n = 0;

	for (uint32_t i = 0; i < N; i++) {
		plan_init(kit, &plans[i], i);
		run_inline(&plans[i], 3, RBK_REASON_BELOW_THRESHOLD);
	}
	list_for_each (node, &kit->tenant->gathered)
		n++;
	assert_int_equal(n, STATS_MAX_GATHERING);
	assert_int_equal(totals_of(&kit->view).n_tasks, 3 * (N - n));
	stats_flush(kit->stats);
	assert_int_equal(totals_of(&kit->view).n_tasks, 3 * N);
	assert_int_equal(kit->tenant->n_gathering, 0);
	for (uint32_t i = 0; i < N; i++)
		stats_plan_deinit(&plans[i]);
}

/* --- Slots --- */

/* The page of a tenant with many plans lists those with slots, and visits no others. */
TEST(test_slots__page_for_many, setup, teardown)
{
	const struct rbk_stats_tenant none = {.weight = 1};
	enum { N = STATS_MAX_PLANS + 10 };
	struct kit *kit = *state;
	static struct stats_plan plans[N];

	tenant_page_unmap(kit->tenant, 2000);
	for (uint32_t i = 0; i < N; i++)
		plan_init(kit, &plans[i], i);
	plans[N - 1].slot = 4711;
	assert_int_equal(tenant_page_map(kit->tenant, 3000), 0);
	kit->view = view_of(&kit->tenant->page);
	assert_int_equal(plans[N - 1].slot, 4711);
	plans[N - 1].slot = STATS_NO_SLOT;
	assert_int_equal(plans[STATS_MAX_PLANS - 1].slot, STATS_MAX_PLANS - 1);
	assert_int_equal(plans[STATS_MAX_PLANS].slot, STATS_NO_SLOT);
	stats_set_tenant(kit->tenant, &none);
	assert_int_equal(totals_of(&kit->view).n_plans_unlisted, N - STATS_MAX_PLANS);
	for (uint32_t i = 0; i < N; i++)
		stats_plan_deinit(&plans[i]);
}

TEST(test_slots__overflow, setup, teardown)
{
	const struct rbk_stats_tenant none = {.weight = 1};
	struct kit *kit = *state;
	struct stats_plan *plans = calloc(STATS_MAX_PLANS + 4, sizeof(*plans));
	struct stats_task task = task_make(1);
	struct rbk_stats_decision decision;
	union plan_copy copy;

	assert_non_null(plans);
	for (uint32_t i = 0; i < STATS_MAX_PLANS + 3; i++)
		plan_init(kit, &plans[i], i);
	assert_int_equal(plans[STATS_MAX_PLANS - 1].slot, STATS_MAX_PLANS - 1);
	assert_int_equal(plans[STATS_MAX_PLANS].slot, STATS_NO_SLOT);
	stats_set_tenant(kit->tenant, &none);
	assert_int_equal(totals_of(&kit->view).n_plans_unlisted, 3);
	/* Plans without a slot still count for the tenant. */
	stats_task_done(&plans[STATS_MAX_PLANS], &task);
	run_inline(&plans[STATS_MAX_PLANS], 1, RBK_REASON_BELOW_THRESHOLD);
	stats_flush(kit->stats);
	assert_int_equal(totals_of(&kit->view).n_tasks, 2);
	assert_true(rbk_stats_decision(&kit->view, 0, &decision));
	assert_int_equal(decision.plan, STATS_NO_SLOT);

	/* A removed plan's slot is reused, the oldest first, and starts at zero. */
	stats_task_done(&plans[20], &task);
	stats_plan_deinit(&plans[30]);
	stats_plan_deinit(&plans[20]);
	stats_plan_deinit(&plans[20]);
	plan_copy(&kit->view, 20, &copy);
	assert_fields(copy.plan, (state, RBK_STATS_PLAN_GONE), (devices[GPU].n_tasks, 1));
	plan_init(kit, &plans[STATS_MAX_PLANS + 3], 9999);
	assert_int_equal(plans[STATS_MAX_PLANS + 3].slot, 20);
	plan_copy(&kit->view, 20, &copy);
	assert_fields(copy.plan, (state, RBK_STATS_PLAN_LIVE), (plan_id, 9999),
		      (devices[GPU].n_tasks, 0));
	assert_int_equal(kit->tenant->n_gone, 1);
	for (uint32_t i = 0; i < STATS_MAX_PLANS + 4; i++)
		stats_plan_deinit(&plans[i]);
	stats_set_tenant(kit->tenant, &none);
	assert_int_equal(totals_of(&kit->view).n_plans_unlisted, 0);
	free(plans);
}

/* Without a page everything but plans is counted. With a new page, plans are counted again. */
TEST(test_page__comes_and_goes, setup, teardown)
{
	const struct rbk_stats_plan_device figures[N_DEVICES] = {{.estimate_ns = 1}};
	const struct stats_plan_memory memory = {.n_evictions = 1};
	struct kit *kit = *state;
	struct stats_task task = task_make(1);
	const struct rbk_stats_header *old;
	struct rbk_stats_tenant totals;
	struct rbk_stats_decision decision;
	static struct stats_plan plan, gone;
	union plan_copy copy;
	int fd;

	plan_init(kit, &plan, 1);
	plan_init(kit, &gone, 2);
	stats_task_done(&plan, &task);
	run_inline(&plan, 3, RBK_REASON_BELOW_THRESHOLD);
	fd = dup(kit->tenant->page.fd);
	old = mmap(NULL, kit->view.bytes, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(old, MAP_FAILED);
	tenant_page_unmap(kit->tenant, 2000);
	tenant_page_unmap(kit->tenant, 3000);
	assert_null(kit->tenant->page.header);

	/* A reader that has mapped the page keeps it. */
	assert_true(rbk_stats_view(&kit->view, old, old->page_bytes));
	assert_fields(*old, (flags, RBK_STATS_CLOSED), (updated_at_ns, 2000));
	assert_int_equal(totals_of(&kit->view).n_tasks, 4);
	stats_task_done(&plan, &task);
	stats_set_plan(&plan, figures, N_DEVICES, &memory);
	stats_plan_deinit(&gone);
	assert_int_equal(totals_of(&kit->view).n_tasks, 4);
	munmap((void *)old, kit->view.bytes);
	close(fd);

	assert_int_equal(tenant_page_map(kit->tenant, 4000), 0);
	assert_int_equal(tenant_page_map(kit->tenant, 4000), 0);
	kit->view = view_of(&kit->tenant->page);
	totals = totals_of(&kit->view);
	assert_fields(totals, (n_tasks, 5), (flags, RBK_STATS_TENANT_USED | RBK_STATS_TENANT_PAGE),
		      (log_first, totals.log_head));
	assert_int_equal(plan.slot, 0);
	plan_copy(&kit->view, 0, &copy);
	assert_fields(copy.plan, (plan_id, 1), (devices[GPU].n_tasks, 0));
	plan_copy(&kit->view, 1, &copy);
	assert_int_equal(copy.plan.state, RBK_STATS_PLAN_FREE);
	stats_task_done(&plan, &task);
	assert_true(rbk_stats_decision(&kit->view, totals.log_first, &decision));
	plan_copy(&kit->view, 0, &copy);
	assert_int_equal(copy.plan.devices[GPU].n_tasks, 1);
}

/* --- Resets --- */

static void reset_all(struct stats_tenant *tenant, uint64_t now_ns)
{
	uint32_t n_records = 0;

	for (uint32_t i = 0; i < tenant->n_plans; i++)
		assert_non_null(stats_tenant_reset_plan(tenant));
	while (stats_tenant_reset_record(tenant, n_records))
		n_records++;
	assert_int_equal(n_records, tenant->next_slot);
	stats_tenant_reset(tenant, now_ns);
	/* Tasks gathered before a reset are not counted after it. */
	stats_flush(tenant->stats);
	assert_int_equal(tenant->totals->n_tasks, 0);
}

TEST(test_reset, setup, teardown)
{
	const struct rbk_stats_tenant figures = {.weight = 9, .host_used = 77};
	const struct rbk_stats_plan_device learned[N_DEVICES] = {
		{.speedup = 3, .is_trusted = 1, .contention = 16}};
	const struct stats_plan_memory memory = {.n_evictions = 1};
	struct kit *kit = *state;
	struct stats_task task = task_make(1);
	struct rbk_stats_tenant totals;
	struct stats_tenant *other;
	static struct stats_plan plan, other_plan;
	union plan_copy copy;

	assert_int_equal(stats_tenant_new(kit->stats, 8, "other", &other), 0);
	plan_init(kit, &plan, 1);
	plan_init(kit, &other_plan, 2);
	stats_task_done(&plan, &task);
	run_inline(&plan, 2, RBK_REASON_BELOW_THRESHOLD);
	stats_set_tenant(kit->tenant, &figures);
	stats_set_plan(&plan, learned, N_DEVICES, &memory);
	plan_copy(&kit->view, 0, &copy);
	assert_fields(copy.plan.devices[0], (is_trusted, 1), (contention, 16));
	stats_bytes(other, 1, 1);
	stats_reactor_ran(kit->tenant);

	run_inline(&other_plan, 2, RBK_REASON_BELOW_THRESHOLD);
	reset_all(kit->tenant, 5000);
	assert_ptr_equal(stats_tenant_reset_plan(kit->tenant), &plan);
	assert_ptr_equal(stats_tenant_reset_plan(kit->tenant), &other_plan);
	totals = totals_of(&kit->view);
	assert_fields(totals, (n_tasks, 0), (exec_ns, 0), (inline_ns, 0), (n_reactor, 0),
		      (reasons[RBK_REASON_COST_MODEL], 0), (devices[GPU].device_ns, 0));
	assert_int_equal(totals.queue_histogram[rbk_stats_bucket(2000)], 0);
	assert_int_equal(totals.latency_histogram[rbk_stats_bucket(5000)], 0);
	assert_fields(totals, (log_head, 3), (log_first, 3), (weight, 9), (host_used, 77));
	assert_string_equal(totals.name, "web");
	plan_copy(&kit->view, 0, &copy);
	assert_int_equal(copy.plan.state, RBK_STATS_PLAN_LIVE);
	assert_string_equal(copy.plan.name, "plan-1");
	assert_fields(copy.plan, (devices[GPU].n_tasks, 0), (reasons[RBK_REASON_COST_MODEL], 0));
	assert_true(copy.plan.devices[0].speedup == 0);
	assert_fields(copy.plan.devices[0], (is_trusted, 0), (contention, 0));
	assert_fields(*kit->view.page, (n_resets, 1), (reset_at_ns, 5000));
	assert_int_equal(other->totals->copied_bytes, 1);
	assert_int_equal(stats_device_counts(kit->stats, GPU)->n_tasks, 1);
	/* Tasks gathered before the reset still count for the device. */
	assert_int_equal(stats_device_counts(kit->stats, RBK_DEVICE_CPU)->n_tasks, 4);

	reset_all(kit->tenant, 6000);
	reset_all(other, 6000);
	assert_null(stats_tenant_reset_plan(other));
	assert_false(stats_tenant_reset_record(other, 0));
	stats_reset(kit->stats, 6000);
	assert_int_equal(other->totals->copied_bytes, 0);
	assert_int_equal(stats_device_counts(kit->stats, GPU)->n_tasks, 0);
	assert_int_equal(kit->view.page->n_resets, 2);
	stats_task_done(&plan, &task);
	assert_int_equal(totals_of(&kit->view).n_tasks, 1);
}

/* --- The root page --- */

TEST(test_root__tenants, setup, teardown)
{
	struct rbk_stats_broker broker = {.n_sessions = 3};
	const struct rbk_stats_broker *shown;
	const struct rbk_stats_upkeep upkeep = {.n_setup_waiting = 5, .mended[2] = {.n_lost = 9}};
	struct rbk_stats_upkeep seen;
	const struct rbk_stats_device figures = {.name = "card", .success_rate = 0.5};
	struct kit *kit = *state;
	struct stats_task task = task_make(1);
	struct stats_tenant *many[STATS_MAX_TENANTS], *first;
	struct rbk_stats_tenant totals;
	struct rbk_stats_device device;
	struct rbk_stats_view root;
	static struct stats_plan plan;

	/* Without a root page nothing happens. */
	stats_set_broker(kit->stats, &broker);
	stats_set_upkeep(kit->stats, &upkeep);
	stats_update_root(kit->stats);
	plan_init(kit, &plan, 1);
	stats_task_done(&plan, &task);
	stats_set_device(kit->stats, GPU, &figures);
	assert_int_equal(stats_root_map(kit->stats, 1), 0);
	root = view_of(stats_root(kit->stats));
	assert_int_equal(totals_of(&root).n_tasks, 1);
	assert_int_equal(totals_of(&root).number, 7);
	assert_true(rbk_stats_copy(&device, rbk_stats_record(&root, RBK_STATS_SECTION_DEVICES, GPU),
				   sizeof(device)));
	assert_fields(device, (n_tasks, 1), (index, GPU));
	assert_string_equal(device.name, "card");
	assert_true(device.success_rate == 0.5);
	/* A tenant's page has no record of the broker's other work. */
	stats_set_upkeep(kit->stats, &upkeep);
	assert_true(rbk_stats_copy(&seen, rbk_stats_record(&root, RBK_STATS_SECTION_UPKEEP, 0),
				   sizeof(seen)));
	assert_fields(seen, (n_setup_waiting, 5), (mended[2].n_lost, 9));
	assert_int_equal(rbk_stats_count(&kit->view, RBK_STATS_SECTION_UPKEEP), 0);
	/* A tenant's page has the devices' names only. */
	assert_true(rbk_stats_copy(&device,
				   rbk_stats_record(&kit->view, RBK_STATS_SECTION_DEVICES, GPU),
				   sizeof(device)));
	assert_string_equal(device.name, "card");
	assert_int_equal(device.n_tasks, 0);
	assert_true(device.success_rate == 0);

	stats_task_done(&plan, &task);
	stats_update_root(kit->stats);
	assert_int_equal(totals_of(&root).n_tasks, 2);
	assert_int_equal(rbk_stats_used(&root, RBK_STATS_SECTION_TENANTS), 1);
	assert_int_equal(rbk_stats_used(&root, RBK_STATS_SECTION_DELAYS), 1);

	for (uint32_t i = 0; i < STATS_MAX_TENANTS; i++)
		assert_int_equal(stats_tenant_new(kit->stats, 100 + i, "many", &many[i]), 0);
	stats_set_broker(kit->stats, &broker);
	/* One update copies a part of the tenants, so that a turn of the reactor stays short. */
	for (unsigned int i = 0; i < STATS_MAX_TENANTS / 64; i++) {
		assert_int_equal(rbk_stats_used(&root, RBK_STATS_SECTION_TENANTS), 64 * i + 1);
		stats_update_root(kit->stats);
	}
	shown = rbk_stats_record(&root, RBK_STATS_SECTION_BROKER, 0);
	assert_fields(*shown, (n_tenants_unlisted, 1), (n_sessions, 3));
	assert_int_equal(many[STATS_MAX_TENANTS - 1]->root_slot, STATS_NO_SLOT);

	/* The record of a freed tenant is used for the next one. */
	assert_int_equal(many[0]->root_slot, 1);
	stats_tenant_free(many[0]);
	assert_true(rbk_stats_copy(&totals, rbk_stats_record(&root, RBK_STATS_SECTION_TENANTS, 1),
				   sizeof(totals)));
	assert_int_equal(totals.flags, 0);
	stats_update_root(kit->stats);
	assert_true(rbk_stats_copy(&totals, rbk_stats_record(&root, RBK_STATS_SECTION_TENANTS, 1),
				   sizeof(totals)));
	assert_fields(totals, (number, 100 + STATS_MAX_TENANTS - 1),
		      (flags, RBK_STATS_TENANT_USED));

	first = stats_first_tenant(kit->stats);
	stats_tenant_last(first);
	assert_ptr_not_equal(stats_first_tenant(kit->stats), first);
	assert_ptr_equal(stats_tenant_find(kit->stats, 7), kit->tenant);
	assert_null(stats_tenant_find(kit->stats, 100));

	stats_root_unmap(kit->stats, 2);
	stats_update_root(kit->stats);
	assert_int_equal(stats_root_map(kit->stats, 3), 0);
	root = view_of(stats_root(kit->stats));
	/*
	 * Mapping the root page copies as many tenants as a broker usually has, for readers that
	 * look only once.
	 */
	assert_true(!many[256]->is_changed && many[257]->is_changed);
	for (unsigned int i = 0; i < STATS_MAX_TENANTS / 64; i++)
		stats_update_root(kit->stats);
	assert_int_equal(totals_of(&root).n_tasks, 2);
}

static struct rbk_stats_delay delay_of(const struct rbk_stats_view *view, uint32_t index)
{
	struct rbk_stats_delay delay;

	assert_true(rbk_stats_copy(&delay, rbk_stats_record(view, RBK_STATS_SECTION_DELAYS, index),
				   sizeof(delay)));
	return delay;
}

TEST(test_delays, setup, teardown)
{
	struct kit *kit = *state;
	const struct rbk_stats_contention contention = {
		.sequence = 99, /* ignored */
		.source = RBK_STATS_SOURCE_EBPF,
		.factor = 2.5,
		.sentences = {{"none"}},
	};
	const struct rbk_stats_thread thread = {.tid = 12, .delay = {.wait_ns = 3}};
	struct rbk_stats_delay whole = {.flags = RBK_STATS_DELAY_USED, .wait_ns = 5},
			       own = {.flags = RBK_STATS_DELAY_USED, .wait_ns = 4};
	const struct rbk_stats_contention *shown;
	const struct rbk_stats_thread *threads;
	struct stats_tenant *other;
	struct rbk_stats_view root;

	whole.causes[2].n_preemptions = 77;
	/* Without a root page, the figures are written only to the tenant's page. */
	stats_set_contention(kit->stats, &contention);
	stats_set_thread(kit->stats, 0, &thread);
	stats_set_n_threads(kit->stats, 2);
	stats_set_delay(kit->tenant, &whole, &own);
	assert_int_equal(delay_of(&kit->view, 0).wait_ns, 4);

	assert_int_equal(stats_tenant_new(kit->stats, 8, "other", &other), 0);
	assert_int_equal(stats_root_map(kit->stats, 1), 0);
	root = view_of(stats_root(kit->stats));
	stats_set_contention(kit->stats, &contention);
	shown = rbk_stats_record(&root, RBK_STATS_SECTION_CONTENTION, 0);
	assert_fields(*shown, (sequence, 2), (source, RBK_STATS_SOURCE_EBPF));
	assert_true(shown->factor == 2.5);
	assert_string_equal(shown->sentences[0], "none");

	threads = rbk_stats_record(&root, RBK_STATS_SECTION_THREADS, 0);
	for (uint32_t i = 0; i < 4; i++)
		stats_set_thread(kit->stats, i, &thread);
	stats_set_thread(kit->stats, STATS_MAX_THREADS, &thread);
	stats_set_n_threads(kit->stats, 4);
	assert_fields(threads[3], (tid, 12), (delay.wait_ns, 3));
	stats_set_n_threads(kit->stats, 3);
	assert_int_equal(threads[2].tid, 12);
	assert_fields(threads[3], (tid, 0), (delay.wait_ns, 0));

	/*
	 * At the index of the tenant's record. The tenant's own figures are not in the root page.
	 */
	stats_set_delay(other, &whole, &own);
	assert_int_equal(delay_of(&root, 0).flags, 0);
	assert_int_equal(delay_of(&root, 1).wait_ns, 5);
	assert_int_equal(delay_of(&root, 1).causes[2].n_preemptions, 77);
	assert_int_equal(delay_of(&kit->view, 0).wait_ns, 4);
	stats_tenant_free(other);
	assert_int_equal(delay_of(&root, 1).flags, 0);
	assert_int_equal(delay_of(&root, 1).wait_ns, 0);
	/* Nor are figures of a tenant added after the last update. */
	assert_int_equal(stats_tenant_new(kit->stats, 9, "late", &other), 0);
	stats_set_delay(other, &whole, &own);
	assert_int_equal(delay_of(&root, 1).flags, 0);
}

TEST(test_heartbeat, setup, teardown)
{
	struct kit *kit = *state;
	uint64_t n_updates = kit->view.page->n_updates;

	assert_true(n_updates >= 1);
	stats_heartbeat(kit->stats, 123456, -5, 99);
	assert_fields(*kit->view.page, (n_updates, n_updates + 1), (updated_at_ns, 123456),
		      (monotonic_offset_ns, -5), (realtime_offset_ns, 99));
}

TEST(test_tenant__hostile_name, setup, teardown)
{
	struct kit *kit = *state;
	struct stats_tenant *tenant;
	char name[200];

	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	name[0] = '\n';
	name[1] = (char)0xff;
	assert_int_equal(stats_tenant_new(kit->stats, 9, name, &tenant), 0);
	assert_memory_equal(tenant->own.name, "??aaa", 5);
	assert_int_equal(strlen(tenant->own.name), RBK_STATS_NAME_BYTES - 1);
}

TEST(test_allocation__fails, setup, teardown)
{
	struct kit *kit = *state;
	struct stats_tenant *tenant = NULL;
	struct stats *stats = NULL;

	fail_alloc_at(1);
	assert_int_equal(stats_new(1, 0, &stats), -ENOMEM);
	assert_true(fail_alloc_stop());
	assert_null(stats);
	for (unsigned int n = 1;; n++) {
		int r;

		fail_alloc_at(n);
		r = stats_tenant_new(kit->stats, 10, "x", &tenant);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(tenant);
	}
	assert_non_null(tenant);
	assert_null(stats_free(NULL));
	assert_null(stats_tenant_free(NULL));
	assert_null(stats_tenant_free(tenant));
}
