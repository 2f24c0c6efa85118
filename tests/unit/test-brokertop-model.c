/* SPDX-License-Identifier: MIT */
/* brokertop's figures: rates, resets, clock jumps, records that change owners, recordings. */
#include <math.h>
#include <string.h>

#include "model.h"
#include "support/stats-scene.h"
#include "support/test.h"

static struct model model;

static int setup(void **state)
{
	return model_init(&model);
}

static int teardown(void **state)
{
	model_deinit(&model);
	return 0;
}

static void show_with(enum stats_scene scene, unsigned int moment, unsigned int what)
{
	struct pages pages;

	stats_scene_make(scene, moment, &pages);
	assert_int_equal(model_update(&model, &pages, 0, what), 0);
	pages_unmap(&pages);
}

static void show(enum stats_scene scene, unsigned int moment)
{
	show_with(scene, moment, MODEL_PLANS | MODEL_DECISIONS);
}

static struct rbk_stats_tenant *tenant_record(const struct pages *pages, uint32_t index)
{
	return (void *)rbk_stats_record(&pages->root, RBK_STATS_SECTION_TENANTS, index);
}

static bool is_near(double value, double wanted)
{
	return fabs(value - wanted) <= 0.05 * wanted;
}

TEST(test_rates__of_two_updates, setup, teardown)
{
	show(STATS_SCENE_THREE, 0);
	assert_false(model.has_rates);
	assert_true(model.tenants[0].tasks_per_s < 0);
	assert_true(model.sessions[0].tasks_per_s < 0);
	assert_true(model.plans[0].tasks_per_s < 0);
	assert_true(model.devices[RBK_DEVICE_GPU].tasks_per_s < 0);
	assert_true(model_evictions(&model) < 0);
	show(STATS_SCENE_THREE, 1);
	assert_true(model.has_rates);
	assert_true(is_near(model.devices[RBK_DEVICE_GPU].tasks_per_s, 1000));
	assert_true(model_evictions(&model) == 0);
	assert_true(is_near(model.tasks_per_s, 210 + 47900 + 98));
	assert_true(is_near(model.gpu_per_s, 206 + 1900 + 98));
	assert_true(is_near(model_tenant(&model, 2)->tasks_per_s, 47900));
	assert_true(is_near(model_tenant(&model, 2)->gpu_part, 1900.0 / 47900));
	/* The result is a bucket's upper end; a bucket is at most a quarter wide. */
	assert_in_range((int)model_tenant(&model, 1)->p50_ns, 3900000, 4900000);
	assert_null(model_tenant(&model, 99));
	assert_true(is_near(model.sessions[0].tasks_per_s, 210));
	assert_ptr_equal(model.sessions[0].tenant, model_tenant(&model, 1));
	assert_true(model.worst_part > 0.7 && strcmp(model.worst.comm, "rsync") == 0);
}

/* The bubbles of all tenants, as a part of the time between two updates. */
TEST(test_rates__of_bubbles, setup, teardown)
{
	const uint64_t bubbles_ns[] = {120000000, 60000000};
	struct pages pages;

	show(STATS_SCENE_THREE, 0);
	assert_true(model.devices[RBK_DEVICE_GPU].bubble_part <= 0);
	stats_scene_make(STATS_SCENE_THREE, 1, &pages);
	for (uint32_t i = 0; i < 2; i++)
		tenant_record(&pages, i)->devices[RBK_DEVICE_GPU].bubble_ns = bubbles_ns[i];
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_true(is_near(model.devices[RBK_DEVICE_GPU].bubble_part, 0.18));
	assert_true(model.devices[RBK_DEVICE_CPU].bubble_part == 0);
}

/* Showing the same update again changes no rate and counts nothing twice. */
TEST(test_rates__same_update_again, setup, teardown)
{
	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	show(STATS_SCENE_THREE, 1);
	assert_true(is_near(model.tasks_per_s, 210 + 47900 + 98));
}

/* A count that went back is no rate, whatever it has reached since. */
TEST(test_rates__after_a_reset, setup, teardown)
{
	struct pages pages;

	show(STATS_SCENE_THREE, 5);
	show(STATS_SCENE_THREE, 6);
	stats_scene_make(STATS_SCENE_THREE, 7, &pages);
	for (uint32_t i = 0; i < 3; i++) {
		struct rbk_stats_tenant *tenant = tenant_record(&pages, i);

		tenant->n_tasks = 10;
		memset(tenant->latency_histogram, 0, sizeof(tenant->latency_histogram));
	}
	((struct rbk_stats_session *)rbk_stats_record(&pages.root, RBK_STATS_SECTION_SESSIONS, 0))
		->n_tasks = 5;
	((struct rbk_stats_device *)rbk_stats_record(&pages.root, RBK_STATS_SECTION_DEVICES,
						     RBK_DEVICE_GPU))
		->n_tasks = 5;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_false(model.has_rates);
	assert_true(model.tenants[0].tasks_per_s < 0 && model.tenants[0].p99_ns == 0);
	assert_true(model.sessions[0].tasks_per_s < 0 && model.sessions[1].tasks_per_s > 0);
	assert_true(model.devices[RBK_DEVICE_GPU].tasks_per_s < 0);
	stats_scene_make(STATS_SCENE_THREE, 8, &pages);
	for (uint32_t i = 0; i < 3; i++)
		tenant_record(&pages, i)->n_tasks = 30;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_true(model.tasks_per_s == 60);
}

/* The tasks of the time in which a view was not shown are no rate of the view's first second. */
TEST(test_rates__plans_shown_again, setup, teardown)
{
	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	assert_true(is_near(model.plans[0].tasks_per_s, 10));
	for (unsigned int i = 2; i < 30; i++)
		show_with(STATS_SCENE_THREE, i, 0);
	assert_int_equal(model.n_plans, 0);
	show(STATS_SCENE_THREE, 30);
	assert_true(model.plans[0].tasks_per_s < 0);
	show(STATS_SCENE_THREE, 31);
	assert_true(is_near(model.plans[0].tasks_per_s, 10));
}

/* Until the broker has updated its pages, they have the counts and shares of an earlier reader. */
TEST(test_rates__unsettled_pages, setup, teardown)
{
	struct rbk_stats_tenant *tenant;
	struct pages pages;

	stats_scene_make(STATS_SCENE_THREE, 40, &pages);
	for (uint32_t i = 0; i < 3; i++) {
		tenant = tenant_record(&pages, i);
		tenant->n_tasks = tenant->n_evictions = 1;
	}
	assert_int_equal(model_update(&model, &pages, 0, MODEL_UNSETTLED), 0);
	pages_unmap(&pages);
	assert_true(model_gpu_share(&model, &model.tenants[0].now) < 0);
	assert_true(isnan(model_load(&model.devices[RBK_DEVICE_CPU].now)));
	assert_true(isfinite(model_load(&model.devices[RBK_DEVICE_GPU].now)));
	show(STATS_SCENE_THREE, 41);
	assert_false(model.has_rates);
	assert_true(model.tenants[0].tasks_per_s < 0 && model.sessions[0].tasks_per_s < 0);
	assert_true(model_gpu_share(&model, &model.tenants[0].now) > 0);
	show(STATS_SCENE_THREE, 42);
	assert_true(is_near(model.tasks_per_s, 210 + 47900 + 98));
	assert_true(model_evictions(&model) == 0);
}

/* A session that the broker did not write at an update has the rate of the time between two. */
TEST(test_rates__sessions_written_in_turn, setup, teardown)
{
	struct rbk_stats_session *session;
	struct pages pages;

	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	assert_true(is_near(model.sessions[0].tasks_per_s, 210));
	for (unsigned int i = 2; i < 8; i++) {
		const unsigned int written = i - (i - 1) % 3;

		stats_scene_make(STATS_SCENE_THREE, i, &pages);
		session = (void *)rbk_stats_record(&pages.root, RBK_STATS_SECTION_SESSIONS, 0);
		session->sequence = 2 * (written + 1);
		session->n_tasks -= 210 * (i - written);
		assert_int_equal(model_update(&model, &pages, 0, 0), 0);
		pages_unmap(&pages);
		assert_true(is_near(model.sessions[0].tasks_per_s, 210));
	}
}

TEST(test_rates__after_a_pause, setup, teardown)
{
	struct pages pages;

	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	model_resume(&model);
	/* Nothing new has been read yet. */
	show(STATS_SCENE_THREE, 1);
	assert_true(model.has_rates);
	model_resume(&model);
	stats_scene_make(STATS_SCENE_THREE, 60, &pages);
	tenant_record(&pages, 0)->n_tasks += 1000000;
	assert_int_equal(model_update(&model, &pages, 0, MODEL_PLANS), 0);
	pages_unmap(&pages);
	assert_false(model.has_rates);
	assert_true(model.tenants[0].tasks_per_s < 0 && model.plans[0].tasks_per_s < 0);
	assert_true(model.sessions[0].tasks_per_s < 0);
	stats_scene_make(STATS_SCENE_THREE, 61, &pages);
	tenant_record(&pages, 0)->n_tasks += 1000000;
	assert_int_equal(model_update(&model, &pages, 0, MODEL_PLANS), 0);
	pages_unmap(&pages);
	assert_true(is_near(model.tasks_per_s, 210 + 47900 + 98));
}

/* A record that appears shortly before the end of an interval has no rates at that end. */
TEST(test_rates__within_an_interval, setup, teardown)
{
	struct rbk_stats_header *header;
	struct pages pages;

	show(STATS_SCENE_THREE, 30);
	show(STATS_SCENE_THREE, 31);
	for (unsigned int quarter = 1; quarter <= 4; quarter++) {
		stats_scene_make(STATS_SCENE_THREE, 32, &pages);
		header = (struct rbk_stats_header *)pages.root.page;
		header->updated_at_ns -= (4 - quarter) * 250000000ull;
		header->n_updates += quarter;
		tenant_record(&pages, 2)->flags = quarter < 3 ? 0 : RBK_STATS_TENANT_USED;
		tenant_record(&pages, 2)->n_tasks = 1000 + 100 * quarter;
		assert_int_equal(model_update(&model, &pages, 0, 0), 0);
		pages_unmap(&pages);
	}
	assert_true(model_tenant(&model, 1)->tasks_per_s >= 0);
	assert_true(model_tenant(&model, 3)->tasks_per_s < 0);
	/* The evictions that it had before are not evictions of this minute. */
	assert_true(model_evictions(&model) == 0);
	stats_scene_make(STATS_SCENE_THREE, 33, &pages);
	header = (struct rbk_stats_header *)pages.root.page;
	header->n_updates += 5;
	tenant_record(&pages, 2)->n_tasks = 1300 + 100 * 5;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_true(is_near(model_tenant(&model, 3)->tasks_per_s, 400));
}

/* An interval may span several updates of the broker: it includes late tasks of all of them. */
TEST(test_latencies__of_the_whole_interval, setup, teardown)
{
	const uint64_t late_ns = 1000000000;
	struct rbk_stats_header *header;
	struct pages pages;

	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	assert_true(model.tenants[0].p99_ns < (double)late_ns);
	for (unsigned int quarter = 1; quarter <= 4; quarter++) {
		stats_scene_make(STATS_SCENE_THREE, 2, &pages);
		header = (struct rbk_stats_header *)pages.root.page;
		header->updated_at_ns -= (4 - quarter) * 250000000ull;
		header->n_updates += quarter;
		tenant_record(&pages, 0)->latency_histogram[rbk_stats_bucket(late_ns)] += 100000;
		assert_int_equal(model_update(&model, &pages, 0, 0), 0);
		pages_unmap(&pages);
		assert_true(quarter == 4 || model.tenants[0].p99_ns < (double)late_ns);
	}
	assert_true(model.tenants[0].p99_ns >= (double)late_ns);
	assert_true(model.latency_p99_ns >= (double)late_ns);
}

/* Memory is allocated for used records; records behind them are not even read. */
TEST(test_records__as_many_as_are_used, setup, teardown)
{
	struct rbk_stats_header *header;
	struct pages pages;
	uint32_t n_tenants, n_sessions, n_free;

	show(STATS_SCENE_THREE, 1);
	n_tenants = model.n_tenants;
	n_sessions = model.n_sessions;
	n_free = n_sessions - model.n_connected;
	for (unsigned int i = 1; i < 3; i++) {
		stats_scene_make(STATS_SCENE_THREE, 1 + i, &pages);
		header = (struct rbk_stats_header *)pages.root.page;
		header->sections[RBK_STATS_SECTION_TENANTS].n_free = n_tenants - 3 + i;
		header->sections[RBK_STATS_SECTION_SESSIONS].n_free = n_free + i;
		assert_int_equal(model_update(&model, &pages, 0, 0), 0);
		pages_unmap(&pages);
		assert_fields(model, (n_tenants, 3 - i), (n_sessions, n_sessions - n_free - i),
			      (n_connected, model.n_sessions));
		assert_true(model.tenants[0].is_used);
	}
	assert_null(model_tenant(&model, 3));
	/* The records are used again, without history. */
	show(STATS_SCENE_THREE, 4);
	assert_fields(model, (n_tenants, n_tenants), (n_sessions, n_sessions));
	assert_non_null(model_tenant(&model, 3));

	/* A page that claims more free records than it has shows none. */
	stats_scene_make(STATS_SCENE_THREE, 5, &pages);
	header = (struct rbk_stats_header *)pages.root.page;
	for (unsigned int i = 0; i < RBK_STATS_SECTION_COUNT; i++)
		header->sections[i].n_free = UINT32_MAX;
	assert_int_equal(model_update(&model, &pages, 0, MODEL_PLANS | MODEL_DECISIONS), 0);
	pages_unmap(&pages);
	assert_fields(model, (n_tenants, 0), (n_sessions, 0));
}

TEST(test_rates__time_went_back, setup, teardown)
{
	show(STATS_SCENE_THREE, 100);
	show(STATS_SCENE_THREE, 101);
	assert_true(model.has_rates);
	show(STATS_SCENE_THREE, 3);
	assert_false(model.has_rates);
	show(STATS_SCENE_THREE, 4);
	assert_true(is_near(model.tasks_per_s, 210 + 47900 + 98));
}

TEST(test_rates__another_broker, setup, teardown)
{
	struct pages pages;

	show(STATS_SCENE_THREE, 1);
	show(STATS_SCENE_THREE, 2);
	stats_scene_make(STATS_SCENE_THREE, 3, &pages);
	((struct rbk_stats_header *)pages.root.page)->pid++;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_false(model.has_rates);
	assert_true(model.tenants[0].tasks_per_s < 0 && model.sessions[0].tasks_per_s < 0);
	assert_true(model.devices[RBK_DEVICE_GPU].tasks_per_s < 0);
	assert_true(model_evictions(&model) < 0);
}

/* A record that belongs to another tenant now does not inherit counts. */
TEST(test_rates__record_with_another_owner, setup, teardown)
{
	struct pages pages;

	show(STATS_SCENE_THREE, 1);
	stats_scene_make(STATS_SCENE_THREE, 2, &pages);
	((struct rbk_stats_tenant *)rbk_stats_record(&pages.root, RBK_STATS_SECTION_TENANTS, 0))
		->number = 77;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_true(model_tenant(&model, 77)->tasks_per_s < 0);
	assert_null(model_tenant(&model, 1));
	/* The sessions' tenant is not shown any more. */
	assert_null(model.sessions[0].tenant);
}

TEST(test_view_of_one_tenant, setup, teardown)
{
	struct pages pages;

	stats_scene_make(STATS_SCENE_THREE, 1, &pages);
	assert_int_equal(model_update(&model, &pages, 2, MODEL_PLANS | MODEL_DECISIONS), 0);
	pages_unmap(&pages);
	assert_null(model_tenant(&model, 1));
	assert_non_null(model_tenant(&model, 2));
	assert_int_equal(model.n_plans, 8);
	assert_false(model_shows_lease(&model, model_lease(&model, 1)));
	assert_true(model_shows_lease(&model, model_lease(&model, 2)));
	for (uint32_t i = 0; i < model.n_decisions; i++)
		assert_int_equal(model.decisions[i].tenant, 2);
}

static struct rbk_stats_lease *lease_record(const struct pages *pages, uint32_t index)
{
	return (void *)rbk_stats_record(&pages->root, RBK_STATS_SECTION_LEASES, index);
}

/* Leases that begin, end or change owners are shown as the page has them. */
TEST(test_leases__come_and_go, setup, teardown)
{
	const struct model_lease *lease;
	struct pages pages;

	show(STATS_SCENE_THREE, 1);
	lease = model_lease(&model, 2);
	assert_non_null(lease);
	assert_string_equal(lease->now.name, "ffmpeg");
	assert_ptr_equal(lease->tenant, model_tenant(&model, 2));
	assert_true(model_lease_used(lease) == 472 * 0x1p20);
	assert_null(model_lease(&model, 0));
	assert_true(model_tenant(&model, 2)->leased_bytes[RBK_DEVICE_GPU] == 512u << 20);

	/*
	 * The first lease has ended; the second has another tenant, and a device that does not
	 * exist.
	 */
	stats_scene_make(STATS_SCENE_THREE, 2, &pages);
	lease_record(&pages, 0)->number = 0;
	lease_record(&pages, 1)->number = 9;
	lease_record(&pages, 1)->tenant = 3;
	lease_record(&pages, 1)->device = UINT32_MAX;
	memset(lease_record(&pages, 2)->name, 'x', RBK_STATS_NAME_BYTES);
	lease_record(&pages, 2)->tenant = 77;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_null(model_lease(&model, 1));
	assert_null(model_lease(&model, 2));
	assert_ptr_equal(model_lease(&model, 9)->tenant, model_tenant(&model, 3));
	lease = model_lease(&model, 3);
	assert_null(lease->tenant);
	assert_int_equal(strlen(lease->now.name), RBK_STATS_NAME_BYTES - 1);
	for (uint32_t i = 1; i <= 3; i++)
		assert_true(model_tenant(&model, i)->leased_bytes[RBK_DEVICE_GPU] == 0);
}

/* Rates of leases are of the last interval; without a report, or after another lease, none are. */
TEST(test_leases__rates, setup, teardown)
{
	const struct model_lease *lease;
	struct pages pages;

	show(STATS_SCENE_THREE, 1);
	lease = model_lease(&model, 1);
	assert_true(lease->had_part < 0 && lease->wait_part < 0 && lease->parts_per_s < 0);
	show(STATS_SCENE_THREE, 2);
	assert_true(fabs(lease->had_part - .2) < 1e-9 && fabs(lease->wait_part - .1) < 1e-9);
	assert_true(lease->parts_per_s == 400 && lease->submissions_per_s == 480);
	lease = model_lease(&model, 2);
	assert_true(lease->had_part < 0 && lease->wait_part < 0);
	assert_true(lease->parts_per_s < 0 && lease->submissions_per_s < 0);

	/* It had the device all the time, and its first report is of older parts. */
	stats_scene_make(STATS_SCENE_THREE, 3, &pages);
	lease_record(&pages, 0)->slice_ns += 100000000000;
	lease_record(&pages, 1)->n_parts = lease_record(&pages, 1)->n_submissions = 1000000;
	lease_record(&pages, 2)->number = 8;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_true(model_lease(&model, 1)->had_part == 1);
	assert_true(model_lease(&model, 2)->parts_per_s < 0);
	assert_true(model_lease(&model, 8)->had_part < 0);
}

/* Memory is allocated for the used leases, up to the free records at the end. */
TEST(test_leases__as_many_as_are_used, setup, teardown)
{
	struct rbk_stats_header *header;
	struct pages pages;

	show(STATS_SCENE_THREE, 1);
	assert_int_equal(model.n_leases, 4);
	stats_scene_make(STATS_SCENE_THREE, 2, &pages);
	header = (struct rbk_stats_header *)pages.root.page;
	header->sections[RBK_STATS_SECTION_LEASES].n_free = 2;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_int_equal(model.n_leases, 2);
	assert_null(model_lease(&model, 3));
	/* A broker without the section of leases. */
	stats_scene_make(STATS_SCENE_THREE, 3, &pages);
	header = (struct rbk_stats_header *)pages.root.page;
	header->n_sections = RBK_STATS_SECTION_LEASES;
	assert_true(rbk_stats_view(&pages.root, header, header->page_bytes));
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_int_equal(model.n_leases, 0);
	assert_true(model_tenant(&model, 1)->leased_bytes[RBK_DEVICE_GPU] == 0);
	show(STATS_SCENE_THREE, 4);
	assert_non_null(model_lease(&model, 3));
}

TEST(test_decisions__newest_first, setup, teardown)
{
	show(STATS_SCENE_THREE, 1);
	assert_int_equal(model.n_decisions, 3 * 64);
	for (uint32_t i = 1; i < model.n_decisions; i++)
		assert_true(model.decisions[i - 1].now.ended_at_ns >=
			    model.decisions[i].now.ended_at_ns);
	assert_string_equal(strchr(model.decisions[0].plan_name, '-'), "-0");
}

TEST(test_history__five_minutes, setup, teardown)
{
	double values[MODEL_SECONDS];

	for (unsigned int i = 0; i < 100; i++)
		show(STATS_SCENE_THREE, i);
	model_series(&model, &model.devices[1].load, values);
	assert_true(isnan(values[MODEL_SECONDS - 101]));
	for (unsigned int i = 0; i < 100; i++)
		assert_true(values[MODEL_SECONDS - 100 + i] ==
			    (20 + (i < 75 ? i : 150 - i)) / 100.0);
	/* Two evictions at moment 30 were more than a minute ago. */
	assert_true(model_evictions(&model) == 0);
	/* No update was read for a while. */
	show(STATS_SCENE_THREE, 110);
	model_series(&model, &model.devices[1].load, values);
	assert_true(isnan(values[MODEL_SECONDS - 5]) && isfinite(values[MODEL_SECONDS - 1]));
	/* No update was read for longer than the history. */
	show(STATS_SCENE_THREE, 1000);
	model_series(&model, &model.devices[1].load, values);
	assert_true(isnan(values[MODEL_SECONDS - 2]) && isfinite(values[MODEL_SECONDS - 1]));
}

/* The parts of tenants are kept beside the whole, in bytes and in tasks per second. */
TEST(test_history__of_tenants, setup, teardown)
{
	double all[MODEL_SECONDS], part[MODEL_SECONDS];

	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	model_series(&model, &model.memory, all);
	assert_true(is_near(all[MODEL_SECONDS - 1], 6.4 * 0x1p30));
	model_tenant_series(&model, model_tenant(&model, 1)->history->memory, part);
	assert_true(is_near(part[MODEL_SECONDS - 1], 3.9 * 0x1p30));
	assert_true(is_near(part[MODEL_SECONDS - 2], 3.9 * 0x1p30));
	assert_true(isnan(part[0]));
	model_tenant_series(&model, model_tenant(&model, 2)->history->tasks, part);
	assert_true(is_near(part[MODEL_SECONDS - 1], 47900) && isnan(part[MODEL_SECONDS - 2]));
	/* A thousand tenants have histories of which the memory is bounded. */
	show(STATS_SCENE_MANY, 2);
	show(STATS_SCENE_MANY, 3);
	assert_int_equal(model.n_histories, MODEL_MAX_HISTORIES);
	show(STATS_SCENE_CPU, 4);
	assert_in_range(model.n_histories, 0, 1);
}

TEST(test_history__evictions_of_a_minute, setup, teardown)
{
	show(STATS_SCENE_THREE, 28);
	show(STATS_SCENE_THREE, 29);
	show(STATS_SCENE_THREE, 30);
	assert_true(model_evictions(&model) == 2);
	show(STATS_SCENE_THREE, 89);
	assert_true(model_evictions(&model) == 2);
	show(STATS_SCENE_THREE, 90);
	assert_true(model_evictions(&model) == 0);
}

TEST(test_memory__reserves, setup, teardown)
{
	struct rbk_stats_device *gpu;
	struct pages pages;

	show(STATS_SCENE_THREE, 1);
	assert_true(model.devices[RBK_DEVICE_GPU].reserved_bytes == 0);
	assert_true(model_keeps_reserves(&model, RBK_DEVICE_GPU));
	/* llm has freed memory of its reserve, and other tenants have taken it. */
	stats_scene_make(STATS_SCENE_THREE, 2, &pages);
	tenant_record(&pages, 0)->devices[RBK_DEVICE_GPU].memory_used = 0;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_true(model.devices[RBK_DEVICE_GPU].reserved_bytes == 3 * 0x1p30);
	gpu = &model.devices[RBK_DEVICE_GPU].now;
	gpu->memory_charged = (uint64_t)(1.7 * 0x1p30);
	assert_true(model_keeps_reserves(&model, RBK_DEVICE_GPU));
	gpu->memory_outside = 4ull << 30;
	assert_false(model_keeps_reserves(&model, RBK_DEVICE_GPU));
}

/* The times of a plan on GPUs are the least of all, each by itself, as in brokerctl plans. */
TEST(test_plans__times_of_several_gpus, setup, teardown)
{
	const struct model_plan *plan;
	struct rbk_stats_plan *record;
	struct rbk_stats_view *view;
	struct pages pages;

	stats_scene_make(STATS_SCENE_THREE, 1, &pages);
	view = &pages.tenants[0].view;
	/* The record grows into the next one. */
	view->n_devices = 3;
	view->sections[RBK_STATS_SECTION_PLANS].count = 1;
	view->sections[RBK_STATS_SECTION_PLANS].stride += sizeof(struct rbk_stats_plan_device);
	record = (void *)rbk_stats_record(view, RBK_STATS_SECTION_PLANS, 0);
	record->devices[RBK_DEVICE_GPU].contention = 32;
	record->devices[RBK_DEVICE_GPU + 1] = (struct rbk_stats_plan_device){
		.estimate_ns = 5e6, .speedup = 6.2, .state = RBK_MEMORY_EVICTED};
	assert_int_equal(model_update(&model, &pages, 0, MODEL_PLANS), 0);
	plan = &model.plans[0];
	assert_fields(*plan, (gpu, 1), (gpu_now, 2), (state, RBK_MEMORY_RESIDENT));
	assert_true(plan->gpu_ns == 4.1e6 && plan->gpu_now_ns == 5e6 && plan->speedup == 7.6);
	/* Without times the first GPU stands for all of them. */
	((struct rbk_stats_header *)pages.root.page)->n_updates++;
	record->devices[RBK_DEVICE_GPU].estimate_ns = 0;
	record->devices[RBK_DEVICE_GPU + 1].estimate_ns = 0;
	assert_int_equal(model_update(&model, &pages, 0, MODEL_PLANS), 0);
	plan = &model.plans[0];
	assert_fields(*plan, (gpu, 1), (gpu_now, 0));
	assert_true(plan->gpu_ns == 0 && plan->gpu_now_ns == 0);
	pages_unmap(&pages);
}

TEST(test_absurd_figures__stay_finite, setup, teardown)
{
	for (unsigned int i = 0; i < 20; i++)
		show(STATS_SCENE_HOSTILE, i);
	assert_true(isfinite(model.tasks_per_s) && isfinite(model_evictions(&model)));
}
