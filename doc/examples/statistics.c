/* SPDX-License-Identifier: MIT */
/*
 * Statistics: reads the tenant's figures from the page that the broker keeps in shared memory. The
 * page is mapped once; reading it makes no request and no system call.
 *
 *	cc statistics.c -o statistics $(pkg-config --cflags --libs ringbroker)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <ringbroker.h>
#include <ringbroker/stats.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define N_TASKS 100
#define N_ELEMS 16384

/*
 * Copy the tenant's record. A tenant page has one; rbk_stats_copy_record() fails if the broker died
 * while it changed the record.
 */
static bool read_tenant(const struct rbk_stats_view *view, struct rbk_stats_tenant *ret)
{
	return rbk_stats_copy_record(view, RBK_STATS_SECTION_TENANTS, 0, ret, sizeof(*ret));
}

/* Wait until the page counts @n tasks, but not much longer than the broker takes for an update. */
static bool await_tasks(const struct rbk_stats_view *view, uint64_t n, struct rbk_stats_tenant *ret)
{
	const struct timespec pause = {.tv_nsec = (long)(view->page->period_ns / 4)};

	for (int i = 0; i < 20; i++) {
		if (read_tenant(view, ret) && ret->n_tasks >= n)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

static void show(const struct rbk_stats_view *view, const struct rbk_stats_tenant *tenant)
{
	struct rbk_stats_decision last;
	uint64_t n = 0, half = 0;
	unsigned int bucket;

	for (unsigned int reason = 0; reason < RBK_REASON_COUNT; reason++) {
		if (tenant->reasons[reason])
			printf("%" PRIu64 " tasks placed by %s\n", tenant->reasons[reason],
			       rbk_reason_name(reason));
	}
	/* Tasks that ran on the reactor itself are in no histogram. */
	for (bucket = 0; bucket < RBK_STATS_BUCKETS; bucket++)
		n += tenant->latency_histogram[bucket];
	for (bucket = 0; bucket + 1 < RBK_STATS_BUCKETS && half * 2 < n; bucket++)
		half += tenant->latency_histogram[bucket];
	if (n)
		printf("half of %" PRIu64 " tasks took less than %" PRIu64 " us\n", n,
		       rbk_stats_bucket_ns(bucket) / 1000 + 1);
	if (tenant->log_head && rbk_stats_decision(view, tenant->log_head - 1, &last))
		printf("the last logged task ran on device %u in %.0f us: %s\n", last.device,
		       (double)last.exec_ns / 1000, rbk_reason_name(last.reason));
}

int main(void)
{
	struct rbk_stats_tenant before, after;
	struct rbk_error error;
	const uint32_t dims[] = {N_ELEMS};
	struct rbk_stats_view view;
	const struct rbk_cqe *cqe;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct rbk *rbk;
	int r;
	struct rbk_builder *b = rbk_builder_new("statistics");
	unsigned int in = rbk_builder_input(b, "in", RBK_DTYPE_F32, 1, dims);
	unsigned int out = rbk_builder_output(b, "out", RBK_DTYPE_F32, 1, dims);

	rbk_builder_unary(b, "Exp", in, out);
	if (rbk_connect(NULL, &rbk, &error) ||
	    rbk_arena_new(rbk, 2 * N_ELEMS * sizeof(float), &arena, &error) ||
	    rbk_plan_new(rbk, b, 1, &plan, &error) || rbk_ring_new(rbk, 1, &ring, &error) ||
	    rbk_stats_map(rbk, RBK_STATS_OWN, 0, &view, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	const uint64_t refs[] = {rbk_arena_ref(arena, 0),
				 rbk_arena_ref(arena, N_ELEMS * sizeof(float))};

	if (!read_tenant(&view, &before))
		return fprintf(stderr, "the page is not consistent\n"), 1;
	for (unsigned int i = 0; i < N_TASKS; i++) {
		rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(plan), 1, refs, 2);
		rbk_submit(ring);
		do
			r = rbk_wait_cqe(ring, &cqe);
		while (r == -EINTR); /* a signal was handled */
		if (r || cqe->res)
			return fprintf(stderr, "a task failed, or the broker is gone\n"), 1;
		rbk_cqe_seen(ring, cqe);
	}
	if (!await_tasks(&view, before.n_tasks + N_TASKS, &after))
		return fprintf(stderr, "the broker does not update its page\n"), 1;
	printf("tenant %s: %" PRIu64 " tasks more, %" PRIu64 " errors more\n", after.name,
	       after.n_tasks - before.n_tasks, after.n_errors - before.n_errors);
	show(&view, &after);
	rbk_stats_unmap(&view);
	rbk_disconnect(rbk);
	return after.n_errors == before.n_errors ? 0 : 1;
}
