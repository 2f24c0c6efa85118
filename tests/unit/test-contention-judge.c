/* SPDX-License-Identifier: MIT */
/*
 * The judge of contention on simulated machines (processors.h): contention begins and ends in time,
 * work and workers move without oscillation, and invalid figures do no harm.
 */
#include <math.h>
#include <string.h>

#include "support/test.h"
#include "unit/processors.h"

static const uint64_t ms = 1000000;

/* Maximum times until placement has moved work away, and back. */
enum { SHIFT_MS = 50, RETURN_MS = 200 };

/* Hogs for a second, then none for half a second, after @settle_ns; twice. */
struct siege {
	uint32_t n, n_workers, n_hogs;
	double demand;
	float break_even;
	uint32_t most_shifts; /* limit in that second; 0: 1 */
};

static void besiege(const struct siege *siege, uint64_t settle_ns)
{
	struct processors processors;
	const uint32_t most_shifts = siege->most_shifts ? siege->most_shifts : 1;
	uint64_t since_ns;

	processors_init(&processors, siege->n, siege->n_workers);
	processors.demand = siege->demand;
	processors.break_even = siege->break_even;
	processors_run(&processors, settle_ns);
	assert_fields(processors, (n_begun, 0), (n_shifts, 0));
	for (unsigned int i = 0; i < 2; i++) {
		processors_forget(&processors);
		since_ns = processors.now_ns;
		processors.n_hogs = siege->n_hogs;
		processors_run(&processors, 1000 * ms);
		assert_fields(processors, (n_begun, 1), (n_ended, 0));
		assert_in_range(processors.begun_ns - since_ns, 1, SHIFT_MS * ms);
		assert_true(processors.least_workers < siege->n_workers || siege->n_workers == 1);
		if (siege->break_even > 0) {
			assert_in_range(processors.n_shifts, 1, most_shifts);
			assert_in_range(processors.first_away_ns - since_ns, 1, SHIFT_MS * ms);
		}

		processors_forget(&processors);
		since_ns = processors.now_ns;
		processors.n_hogs = 0;
		processors_run(&processors, 500 * ms);
		assert_fields(processors, (n_begun, 0), (n_ended, 1));
		assert_in_range(processors.ended_ns - since_ns, 1, RETURN_MS * ms);
		assert_in_range(processors.all_back_ns - since_ns, 1, RETURN_MS * ms);
		assert_in_range(processors.n_shifts, 0, 1);
		if (processors.n_shifts)
			assert_in_range(processors.here_ns - since_ns, 1, RETURN_MS * ms);
		assert_true(processors.verdict.factor == 1);
		assert_int_equal(processors.verdict.n_workers, siege->n_workers);
	}
}

/* Let hogs start and stop at any time between two samples. */
static void besiege_at_all_times(const struct siege *siege, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (uint64_t late_ns = 0; late_ns < 10 * ms; late_ns += ms)
			besiege(&siege[i], 500 * ms + late_ns);
}

TEST(test_hogs__on_every_processor)
{
	const struct siege sieges[] = {
		{2, 2, 2, 1, 0},       {2, 2, 2, 1, 1.5f},    {2, 2, 2, 0.2, 1.5f, 5},
		{2, 2, 8, 0.5, 2, 3},  {2, 2, 32, 1, 0},      {2, 2, 32, 1, 4, 3},
		{2, 2, 32, 0.2, 3, 3}, {1, 1, 1, 1, 1.5f},    {8, 8, 8, 1, 1.5f},
		{8, 8, 32, 0.5, 2, 3}, {64, 64, 64, 1, 1.5f}, {64, 64, 1024, 1, 1.5f, 3},
	};

	(void)state;
	besiege_at_all_times(sieges, sizeof(sieges) / sizeof(sieges[0]));
}

TEST(test_hogs__on_some_processors)
{
	const struct siege sieges[] = {
		{2, 2, 1, 1, 0},
		{2, 2, 1, 1, 1.2f, 3},
		{64, 64, 40, 1, 1.2f, 3},
	};

	(void)state;
	besiege_at_all_times(sieges, sizeof(sieges) / sizeof(sieges[0]));
}

/* The measured factor is the real one, whether work stays or moves. */
TEST(test_factor__is_the_real_one)
{
	const uint32_t hogs_each[] = {0, 1, 3, 7};
	struct processors processors;

	(void)state;
	for (size_t i = 0; i < sizeof(hogs_each) / sizeof(hogs_each[0]); i++) {
		double sum = 0;

		processors_init(&processors, 4, 4);
		processors.n_hogs = 4 * hogs_each[i];
		processors_run(&processors, 500 * ms);
		for (unsigned int j = 0; j < 100; j++) {
			processors_run(&processors, 10 * ms);
			sum += (double)processors.verdict.factor / 100;
		}
		assert_true(fabs(sum / (1 + hogs_each[i]) - 1) < 0.25);
	}
}

/*
 * Many hogs per processor use as much of it as one does. Work that has moved away must not return
 * often to find out.
 */
TEST(test_hold__seldom_retried)
{
	struct processors processors;

	(void)state;
	processors_init(&processors, 2, 2);
	processors.break_even = 3;
	processors_run(&processors, 500 * ms);
	processors.n_hogs = 8;
	processors_run(&processors, 10000 * ms);
	assert_in_range(processors.n_shifts, 1, 9);
	processors_forget(&processors);
	processors_run(&processors, 20000 * ms);
	assert_in_range(processors.n_shifts, 0, 4);
	assert_true(processors.worked_ns < 2 * 20000 * ms / 200);
	/* Work still returns now and then, and finds fewer hogs. */
	processors.n_hogs = 2;
	processors_run(&processors, 60000 * ms);
	assert_true(processors.verdict.factor < 3);
	assert_int_equal(processors.n_ended, 0);
}

/*
 * A meek program uses all the time that hogs leave, also after they are gone. Work returns to find
 * that out.
 */
TEST(test_hold__until_work_returns)
{
	struct processors processors;

	(void)state;
	processors_init(&processors, 2, 2);
	processors.break_even = 1.5f;
	processors.is_meek = true;
	processors_run(&processors, 500 * ms);
	assert_int_equal(processors.n_begun, 0);
	processors.n_hogs = 2;
	processors_run(&processors, 2000 * ms);
	assert_fields(processors, (n_begun, 1), (n_shifts, 1));
	processors.n_hogs = 0;
	processors_run(&processors, 30000 * ms);
	assert_fields(processors, (n_begun, 1), (n_ended, 1), (n_shifts, 2));
	assert_true(processors.verdict.factor == 1);
	assert_int_equal(processors.verdict.n_workers, 2);
}

/* Fast changes are averaged, slow changes are followed, and no period causes oscillation. */
TEST(test_duty__bounded)
{
	const struct {
		uint64_t period_ns;
		uint32_t most_begun;
	} cases[] = {{1000, 6}, {400, 13}, {200, 3}, {140, 3}, {100, 2}, {50, 2}, {10, 2}, {4, 2}};
	struct processors processors;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (unsigned int goes = 0; goes < 2; goes++) {
			const uint64_t n_periods = 5000 / cases[i].period_ns;

			processors_init(&processors, 2, 2);
			processors.break_even = goes ? 1.5f : 0;
			processors.n_hogs = 2;
			processors.hogs_period_ns = cases[i].period_ns * ms;
			processors_run(&processors, 5000 * ms);
			assert_in_range(processors.n_begun, 1, cases[i].most_begun);
			assert_in_range(processors.n_shifts, 0, 2 * n_periods + 2);
		}
}

/* Small and rare use by other programs is no contention. */
TEST(test_noise__ignored)
{
	struct processors processors;

	(void)state;
	processors_init(&processors, 2, 2);
	processors.break_even = 1.5f;
	processors.demand = 0.5;
	for (unsigned int i = 0; i < 200; i++) {
		processors.n_hogs = i % 2;
		processors_run(&processors, i % 2 ? 2 * ms : 60 * ms);
	}
	assert_int_equal(processors.n_begun, 0);
	assert_in_range(processors.n_shifts, 0, 20);
}

/*
 * Throttling by a quota and steal by the hypervisor slow tasks down, but no program causes
 * contention.
 */
TEST(test_others__no_contention)
{
	struct processors processors;

	(void)state;
	processors_init(&processors, 2, 2);
	processors.quota = 0.5;
	processors_run(&processors, 3000 * ms);
	assert_fields(processors, (n_begun, 0), (least_workers, 2));
	assert_true(processors.verdict.factor > 1.5f && processors.verdict.factor < 4);

	processors_init(&processors, 2, 2);
	processors.steal = 0.5;
	processors_run(&processors, 3000 * ms);
	assert_fields(processors, (n_begun, 0), (least_workers, 2));
	assert_true(processors.verdict.factor > 1.7f && processors.verdict.factor < 2.4f);
	/* Work that moves away for this reason does not return at once. */
	processors.break_even = 1.5f;
	processors_forget(&processors);
	processors_run(&processors, 3000 * ms);
	assert_in_range(processors.n_shifts, 0, 12);
}

/* More workers than processors preempt each other. */
TEST(test_others__own_workers)
{
	struct contention_sample sample = {
		.has_workers = true,
		.has_processors = true,
		.n_processors = 2,
	};
	const struct contention_config config = CONTENTION_CONFIG_DEFAULT;
	const struct contention_verdict *verdict = NULL;
	struct contention_judge judge;

	(void)state;
	contention_judge_init(&judge, &config, 8);
	for (unsigned int i = 1; i < 100; i++) {
		sample.at_ns += 10 * ms;
		sample.run_ns += 20 * ms;
		sample.wait_ns += 60 * ms;
		sample.n_preemptions += 10;
		verdict = contention_judge_feed(&judge, &sample);
		assert_false(verdict->is_contended);
	}
	assert_int_equal(verdict->n_workers, 8);
	assert_true(verdict->factor > 3.5f && verdict->factor < 4.5f);
}

/* Preemptions without waits are no contention, nor are waits without preemptions. */
TEST(test_signals__both)
{
	const struct contention_config config = CONTENTION_CONFIG_DEFAULT;

	(void)state;
	for (unsigned int signals = 0; signals < 4; signals++) {
		struct contention_sample sample = {.has_workers = true};
		struct contention_judge judge;
		bool has_begun = false;

		contention_judge_init(&judge, &config, 2);
		for (unsigned int i = 1; i < 50; i++) {
			sample.at_ns += 10 * ms;
			sample.run_ns += 10 * ms;
			sample.wait_ns += signals & 1 ? 10 * ms : 0;
			sample.n_preemptions += signals & 2 ? 3 : 0;
			has_begun |= contention_judge_feed(&judge, &sample)->has_begun;
		}
		assert_int_equal(has_begun, signals == 3);
	}
}

/*
 * With fewer workers each gets more time, but all of them would compete again. More workers are
 * tried seldom.
 */
TEST(test_workers__back_off)
{
	struct processors processors;
	uint32_t n_raised = 0, before;

	(void)state;
	processors_init(&processors, 4, 4);
	processors.n_hogs = 4;
	processors_run(&processors, 1000 * ms);
	assert_true(processors.verdict.is_contended);
	assert_in_range(processors.verdict.n_workers, 1, 3);
	for (unsigned int i = 0; i < 500; i++) {
		before = processors.verdict.n_workers;
		processors_run(&processors, 10 * ms);
		n_raised += processors.verdict.n_workers > before;
	}
	assert_in_range(n_raised, 0, 10);
	assert_fields(processors, (n_begun, 1), (n_ended, 0));
}

/* If no other device can do the work, no worker is given up, nor for some time afterwards. */
TEST(test_workers__needed)
{
	struct processors processors;

	(void)state;
	for (uint32_t n_hogs = 4; n_hogs <= 16; n_hogs *= 4) {
		processors_init(&processors, 4, 4);
		processors.n_hogs = n_hogs;
		processors.demand = 1;
		processors.is_needed = true;
		processors_run(&processors, 3000 * ms);
		assert_true(processors.verdict.is_contended);
		assert_true(processors.verdict.factor > 1.25f);
		assert_int_equal(processors.least_workers, 4);
		processors.is_needed = false;
		processors_run(&processors, 900 * ms);
		assert_int_equal(processors.least_workers, 4);
		processors_run(&processors, 200 * ms);
		assert_in_range(processors.verdict.n_workers, 1, 3);
		/* The next sample restores all workers. */
		processors.is_needed = true;
		processors_run(&processors, 10 * ms);
		assert_int_equal(processors.verdict.n_workers, 4);
		assert_true(processors.verdict.is_contended);
		/* Being needed once in a while suffices, and nothing oscillates. */
		processors_forget(&processors);
		for (unsigned int i = 0; i < 10; i++) {
			processors.is_needed = true;
			processors_run(&processors, 10 * ms);
			processors.is_needed = false;
			processors_run(&processors, 700 * ms);
		}
		assert_fields(processors, (least_workers, 4), (n_ended, 0));
		/* The end of contention is detected as usual. */
		processors.n_hogs = 0;
		processors_run(&processors, 1000 * ms);
		assert_false(processors.verdict.is_contended);
		assert_int_equal(processors.verdict.n_workers, 4);
	}
}

/* Sources with fewer figures are less precise, but still in time and without oscillation. */
TEST(test_sources__with_fewer_figures)
{
	const struct {
		bool workers, processors, stall;
		float break_even;
		uint32_t most_shifts;
	} sources[] = {
		{true, false, false, 0, 0}, {true, false, false, 1.5f, 30},
		{false, true, true, 0, 0},  {false, true, true, 1.5f, 3},
		{false, true, false, 0, 0}, {false, true, false, 1.25f, 3},
		{false, false, true, 0, 0}, {false, false, true, 1.5f, 30},
	};
	struct processors processors;
	uint64_t since_ns;

	(void)state;
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		processors_init(&processors, 2, 2);
		processors.hides_workers = !sources[i].workers;
		processors.hides_processors = !sources[i].processors;
		processors.shows_stall = sources[i].stall;
		processors.break_even = sources[i].break_even;
		processors_run(&processors, 500 * ms);
		assert_int_equal(processors.n_begun, 0);
		processors.n_hogs = 4;
		since_ns = processors.now_ns;
		processors_run(&processors, 1000 * ms);
		assert_int_equal(processors.n_begun, 1);
		assert_in_range(processors.begun_ns - since_ns, 1, SHIFT_MS * ms);
		assert_in_range(processors.n_shifts, 0, sources[i].most_shifts);
		processors_forget(&processors);
		processors.n_hogs = 0;
		since_ns = processors.now_ns;
		processors_run(&processors, 1000 * ms);
		assert_int_equal(processors.n_ended, 1);
		assert_in_range(processors.ended_ns - since_ns, 1, 500 * ms);
		assert_true(processors.verdict.factor == 1);
	}
}

TEST(test_sources__without_figures)
{
	struct processors processors;

	(void)state;
	processors_init(&processors, 2, 2);
	processors.n_hogs = 4;
	processors_run(&processors, 500 * ms);
	assert_true(processors.verdict.is_contended);
	/* The source is lost during contention. */
	processors.hides_workers = processors.hides_processors = true;
	processors_run(&processors, 500 * ms);
	assert_false(processors.verdict.is_contended);
	assert_true(processors.verdict.factor == 1);
	assert_int_equal(processors.verdict.n_workers, 2);
}

/* Samples at irregular times, one of them after a long pause. */
TEST(test_samples__at_any_times)
{
	const uint64_t periods_ns[] = {100000, 1000000, 3000000, 25000000, 40000000};
	struct processors processors;
	uint64_t since_ns;

	(void)state;
	for (size_t i = 0; i < sizeof(periods_ns) / sizeof(periods_ns[0]); i++) {
		processors_init(&processors, 2, 2);
		processors.sample_ns = periods_ns[i];
		processors.break_even = 1.5f;
		processors_run(&processors, 200 * ms);
		processors.n_hogs = 2;
		since_ns = processors.now_ns;
		processors_run(&processors, 1000 * ms);
		assert_in_range(processors.begun_ns - since_ns, 1, SHIFT_MS * ms + periods_ns[i]);
		assert_in_range(processors.n_shifts, 1, 5);
		processors.n_hogs = 0;
		since_ns = processors.now_ns;
		processors_run(&processors, 500 * ms);
		assert_in_range(processors.ended_ns - since_ns, 1, RETURN_MS * ms + periods_ns[i]);
		processors.sample_ns = 100000 * ms;
		processors_run(&processors, 100000 * ms);
		assert_false(processors.verdict.is_contended);
		assert_true(processors.verdict.factor == 1);
	}
}

/* ---- Invalid figures ---- */

static void expect_sane(const struct contention_judge *judge)
{
	const struct contention_verdict *verdict = &judge->verdict;

	assert_true(verdict->factor >= 1 && verdict->factor <= 100);
	assert_in_range(verdict->n_workers, 1, judge->n_workers);
	assert_false(verdict->has_begun && !verdict->is_contended);
}

TEST(test_clock__jumps)
{
	struct processors processors;
	float factor;

	(void)state;
	processors_init(&processors, 2, 2);
	processors.n_hogs = 2;
	processors_run(&processors, 500 * ms);
	assert_true(processors.verdict.is_contended);
	factor = processors.verdict.factor;
	/* The clock goes back: the judge continues with its last verdict. */
	processors.now_ns = processors.sampled_ns = 1000;
	processors_run(&processors, 10 * ms);
	assert_true(processors.verdict.is_contended);
	assert_true(processors.verdict.factor == factor);
	processors_run(&processors, 500 * ms);
	assert_true(processors.verdict.is_contended);
	assert_true(processors.verdict.factor > 1.3f);
	/* The clock jumps ahead, almost to its maximum. */
	processors.now_ns = UINT64_MAX - 2000 * ms;
	processors_run(&processors, 1000 * ms);
	assert_true(processors.verdict.is_contended);
	processors.n_hogs = 0;
	processors_run(&processors, 500 * ms);
	assert_false(processors.verdict.is_contended);
	assert_true(processors.verdict.factor == 1);
}

/* Counters of several processors, read one after another, may decrease slightly. */
TEST(test_counters__decrease_slightly)
{
	struct processors processors;
	uint64_t since_ns;

	(void)state;
	processors_init(&processors, 2, 2);
	processors.jitters = true;
	processors.sample.idle_ns = processors.sample.others_ns = processors.sample.wait_ns =
		1000 * ms;
	processors_run(&processors, 500 * ms);
	assert_int_equal(processors.n_begun, 0);
	processors.n_hogs = 4;
	since_ns = processors.now_ns;
	processors_run(&processors, 1000 * ms);
	assert_int_equal(processors.n_begun, 1);
	assert_in_range(processors.begun_ns - since_ns, 1, SHIFT_MS * ms);
	assert_int_equal(processors.n_ended, 0);
	processors.n_hogs = 0;
	since_ns = processors.now_ns;
	processors_run(&processors, 500 * ms);
	assert_int_equal(processors.n_ended, 1);
	assert_in_range(processors.ended_ns - since_ns, 1, RETURN_MS * ms);
}

/* Time used by other programs may be accounted for late: their use has not decreased. */
TEST(test_counters__late)
{
	struct processors processors;
	uint64_t since_ns;

	(void)state;
	processors_init(&processors, 2, 2);
	processors.is_coarse = true;
	processors.break_even = 1.5f;
	processors_run(&processors, 500 * ms);
	assert_int_equal(processors.n_begun, 0);
	for (unsigned int i = 0; i < 5; i++) {
		processors_forget(&processors);
		processors.n_hogs = 4;
		since_ns = processors.now_ns;
		processors_run(&processors, 1000 * ms);
		assert_fields(processors, (n_begun, 1), (n_ended, 0));
		assert_in_range(processors.first_away_ns - since_ns, 1, SHIFT_MS * ms);
		assert_in_range(processors.n_shifts, 1, 3);
		processors.n_hogs = 0;
		since_ns = processors.now_ns;
		processors_run(&processors, 1000 * ms);
		assert_int_equal(processors.n_ended, 1);
		assert_in_range(processors.here_ns - since_ns, 1, RETURN_MS * ms);
		assert_in_range(processors.ended_ns - since_ns, 1, 2 * RETURN_MS * ms);
	}
}

TEST(test_counters__wrap_around)
{
	struct processors processors;

	(void)state;
	processors_init(&processors, 2, 2);
	processors.sample.run_ns = processors.sample.wait_ns = processors.sample.others_ns =
		processors.sample.n_preemptions = UINT64_MAX - 300 * ms;
	processors.n_hogs = 2;
	for (unsigned int i = 0; i < 200; i++) {
		processors_run(&processors, 10 * ms);
		expect_sane(&processors.judge);
	}
	assert_true(processors.verdict.is_contended);
	assert_true(processors.verdict.factor < 3);
	assert_int_equal(processors.n_ended, 0);
}

static uint64_t draw_word(uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	switch (*random >> 40 & 7) {
	case 0:
		return UINT64_MAX - (*random >> 60);
	case 1:
		return *random >> 62;
	default:
		return *random >> (*random >> 50 & 63);
	}
}

TEST(test_figures__arbitrary)
{
	const struct contention_config config = CONTENTION_CONFIG_DEFAULT;
	struct contention_judge judge;
	uint64_t random = 7;

	(void)state;
	contention_judge_init(&judge, &config, 5);
	for (unsigned int i = 0; i < 200000; i++) {
		struct contention_sample sample = judge.last;
		uint64_t *const words[] = {
			&sample.run_ns,       &sample.wait_ns,  &sample.n_preemptions,
			&sample.idle_wait_ns, &sample.idle_ns,  &sample.others_ns,
			&sample.steal_ns,     &sample.stall_ns, &sample.at_ns,
		};

		for (size_t j = 0; j < sizeof(words) / sizeof(words[0]); j++)
			*words[j] += draw_word(&random) >> (i % 3 ? 30 : 0);
		if (i % 17 == 0) {
			sample.has_workers = draw_word(&random) & 1;
			sample.has_processors = draw_word(&random) & 1;
			sample.has_stall = draw_word(&random) & 1;
			sample.n_processors = (uint32_t)draw_word(&random);
		}
		contention_judge_feed(&judge, &sample);
		expect_sane(&judge);
	}
}

TEST(test_config__invalid_values)
{
	const struct contention_config configs[] = {
		{0},
		{.begin_factor = NAN, .end_factor = NAN, .end_after_ns = UINT64_MAX},
		{.begin_factor = INFINITY, .end_factor = -1, .window_ns = UINT64_MAX},
		{.begin_factor = 1, .end_factor = 50, .max_back_off_ns = UINT64_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
		struct processors processors;

		processors_init(&processors, 2, 2);
		contention_judge_init(&processors.judge, &configs[i], 0);
		assert_int_equal(processors.judge.n_workers, 1);
		for (unsigned int j = 0; j < 100; j++) {
			processors.n_hogs = j / 25 % 2 * 4;
			processors_run(&processors, 10 * ms);
			expect_sane(&processors.judge);
		}
	}
}

/* With no processors counted, their figures are unknown. */
TEST(test_processors__none)
{
	struct contention_sample sample = {.has_workers = true, .has_processors = true};
	const struct contention_config config = CONTENTION_CONFIG_DEFAULT;
	struct contention_judge judge;

	(void)state;
	contention_judge_init(&judge, &config, 2);
	for (unsigned int i = 0; i < 100; i++) {
		sample.at_ns += 10 * ms;
		sample.run_ns += i < 50 ? 10 * ms : 0;
		sample.wait_ns += i < 50 ? 10 * ms : 0;
		sample.n_preemptions++;
		sample.others_ns += 10 * ms;
		contention_judge_feed(&judge, &sample);
		expect_sane(&judge);
		if (i == 49)
			assert_true(judge.verdict.is_contended);
	}
	assert_false(judge.verdict.is_contended);
}
