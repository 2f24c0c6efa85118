/* SPDX-License-Identifier: MIT */
/*
 * Readers concurrent with the writer: no reader sees a torn record, and both whole and interrupted
 * reads occur
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "stats/stats.h"
#include "support/test.h"
#include "tenant-page.h"

enum { N_READERS = 2, N_READS = 30000, N_DEVICES = 2 };

struct race {
	struct stats *stats;
	struct stats_tenant *tenant;
	struct stats_plan plan;
	struct rbk_stats_view view;
	_Atomic uint32_t n_reading;
	_Atomic uint32_t n_mixed; /* records that mix two versions */
	_Atomic uint32_t n_lost;  /* log records that were overwritten */
	_Atomic uint32_t n_read;
};

static void read_figures(struct race *race)
{
	const void *record = rbk_stats_record(&race->view, RBK_STATS_SECTION_TENANTS, 0);
	struct rbk_stats_tenant totals;

	if (!rbk_stats_copy(&totals, record, sizeof(totals)))
		return;
	/* Compare the first and the last of the figures that are set together. */
	if (totals.weight != totals.host_used || totals.weight != totals.devices[1].gtt_max ||
	    totals.weight != totals.n_evictions)
		atomic_fetch_add(&race->n_mixed, 1);
}

static void read_log(struct race *race, uint64_t behind)
{
	const struct rbk_stats_tenant *record =
		rbk_stats_record(&race->view, RBK_STATS_SECTION_TENANTS, 0);
	uint64_t head = __atomic_load_n(&record->log_head, __ATOMIC_ACQUIRE);
	struct rbk_stats_decision decision;

	if (head < behind)
		return;
	if (!rbk_stats_decision(&race->view, head - behind, &decision)) {
		atomic_fetch_add(&race->n_lost, 1);
		return;
	}
	atomic_fetch_add(&race->n_read, 1);
	/* Task i of test_race() has i in all its figures. */
	if (decision.user_data != head - behind || decision.ended_at_ns != decision.user_data ||
	    decision.count != (uint32_t)decision.user_data ||
	    decision.exec_ns != (float)(decision.user_data & 0xffff))
		atomic_fetch_add(&race->n_mixed, 1);
}

static void *reader(void *data)
{
	struct race *race = data;

	for (unsigned int i = 0; i < N_READS; i++) {
		read_figures(race);
		/* The newest record, and the oldest, which is overwritten next. */
		read_log(race, 1);
		read_log(race, STATS_LOG_RECORDS);
		read_log(race, STATS_LOG_RECORDS + 1);
		if (i % 64 == 0)
			sched_yield();
	}
	atomic_fetch_sub(&race->n_reading, 1);
	return NULL;
}

TEST(test_race)
{
	static struct race race;
	struct rbk_stats_tenant figures = {.weight = 0};
	const struct stats_plan_about about = {"a plan whose name is 32 bytes..", 1, 1, 1, &race};
	pthread_t threads[N_READERS];

	assert_int_equal(stats_new(N_DEVICES, 0, &race.stats), 0);
	assert_int_equal(stats_tenant_new(race.stats, 1, "race", &race.tenant), 0);
	assert_int_equal(tenant_page_map(race.tenant, 0), 0);
	assert_true(rbk_stats_view(&race.view, race.tenant->page.header,
				   race.tenant->page.header->page_bytes));
	stats_plan_init(&race.plan, race.tenant, &about, 0);
	atomic_store(&race.n_reading, N_READERS);
	for (unsigned int i = 0; i < N_READERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, reader, &race), 0);

	for (uint64_t i = 0; atomic_load(&race.n_reading) > 0; i++) {
		const struct stats_task task = {
			.user_data = i,
			.ended_ns = i,
			.exec_ns = i & 0xffff,
			.count = (uint32_t)i,
			.device = (uint8_t)(i & 1),
			.reason = RBK_REASON_COST_MODEL,
		};

		stats_task_done(&race.plan, &task);
		figures.weight++;
		figures.host_used = figures.n_evictions = figures.weight;
		figures.devices[1].gtt_max = figures.weight;
		stats_set_tenant(race.tenant, &figures);
		if (i % 1000 == 0)
			sched_yield();
	}
	for (unsigned int i = 0; i < N_READERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&race.n_mixed), 0);
	assert_true(atomic_load(&race.n_read) > 0);
	assert_true(atomic_load(&race.n_lost) > 0);

	/* A writer that died half way does not block readers for ever. */
	stats_begin(&race.tenant->totals->sequence);
	{
		struct rbk_stats_tenant totals;

		assert_false(rbk_stats_copy(&totals, race.tenant->totals, sizeof(totals)));
	}
	stats_end(&race.tenant->totals->sequence);
	stats_plan_deinit(&race.plan);
	stats_free(race.stats);
}
