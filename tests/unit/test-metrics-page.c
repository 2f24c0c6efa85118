/* SPDX-License-Identifier: MIT */
/*
 * A page as metrics: every family byte by byte, and invalid pages
 *
 *   test-metrics-page [--write]
 *   --write: write the golden file anew
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control/metrics-page.h"
#include "fail-alloc.h"
#include "support/test.h"
#include "tests/unit/metrics-rig.h"
#include "util/checked.h"

/* The page that the rig fills, in OpenMetrics; the plain format follows from it. */
static const char golden_file[] = METRICS_DATA "/metrics.openmetrics";
static bool writes_golden_file;

static const struct metrics_process process = {
	.started_ns = 1700000000120000000,
	.cpu_ns = 12345678901,
	.resident_bytes = 50331648,
	.virtual_bytes = 1610612736,
	.n_fds = 37,
	.max_fds = 524288,
};

static struct metrics_text take(const struct metrics_rig *rig, enum metrics_format format)
{
	struct metrics_text text = {.format = format};
	struct metrics_page *page;

	assert_int_equal(metrics_page_new(&rig->view, &page), 0);
	metrics_page_take(page, &rig->view);
	metrics_page_write(page, "1.2.3", &process, &text);
	metrics_page_free(page);
	assert_false(text.is_out_of_memory);
	/* The tests read it as a string; AddressSanitizer's strict checks want its end. */
	text.data = realloc(text.data, text.bytes + 1);
	assert_non_null(text.data);
	text.data[text.bytes] = '\0';
	return text;
}

/* Return the value of the sample that begins with @name, or NULL; valid until the next call. */
static const char *value_of(const struct metrics_text *text, const char *name)
{
	static char value[64];
	const char *at = text->data, *end = text->data + text->bytes, *line;
	size_t n = strlen(name);

	for (; at < end; at = line + 1) {
		line = memchr(at, '\n', (size_t)(end - at));
		if ((size_t)(line - at) <= n || memcmp(at, name, n) != 0 || at[n] != ' ')
			continue;
		snprintf(value, sizeof(value), "%.*s", (int)(line - at - (long)n - 1), at + n + 1);
		return value;
	}
	return NULL;
}

static unsigned int count_of(const struct metrics_text *text, const char *part)
{
	const char *at = text->data, *end = text->data + text->bytes;
	unsigned int n = 0;

	while ((at = memmem(at, (size_t)(end - at), part, strlen(part)))) {
		at += strlen(part);
		n++;
	}
	return n;
}

static void expect_text(const struct metrics_text *text, const char *what, const char *golden,
			size_t n)
{
	for (size_t i = 0, line = 1; i < n && i < text->bytes; i++) {
		if (golden[i] != text->data[i])
			fail_msg("%s:%zu differs: ...%.*s", what, line,
				 (int)(text->bytes - i < 60 ? text->bytes - i : 60),
				 text->data + i);
		line += golden[i] == '\n';
	}
	assert_int_equal(n, text->bytes);
}

/*
 * Return the plain format of @open, for free(): without units, creation times and the end mark, and
 * with names of samples where OpenMetrics has those of families.
 */
static char *plain_of(const struct metrics_text *open, size_t *ret_bytes)
{
	char *text = strndup(open->data, open->bytes), *plain, *end, name[128], kind[16];
	FILE *to = open_memstream(&plain, ret_bytes);

	for (char *line = text; *line; line = end + 1) {
		bool is_help = strncmp(line, "# HELP ", 7) == 0;

		end = strchr(line, '\n');
		if (is_help || strncmp(line, "# TYPE ", 7) == 0) {
			sscanf(is_help ? end + 1 : line, "# TYPE %127s %15s", name, kind);
			fprintf(to, "%.7s%s%s", line, name,
				strcmp(kind, "counter") == 0 ? "_total"
				: strcmp(kind, "info") == 0  ? "_info"
							     : "");
			if (!is_help && strcmp(kind, "info") == 0)
				fputs(" gauge\n", to);
			else
				fwrite(line + 7 + strlen(name), 1,
				       (size_t)(end + 1 - line) - 7 - strlen(name), to);
		} else if (line[0] != '#' &&
			   memcmp(line + strcspn(line, "{ ") - 8, "_created", 8) != 0) {
			fwrite(line, 1, (size_t)(end + 1 - line), to);
		}
	}
	fclose(to);
	free(text);
	return plain;
}

TEST(test_golden)
{
	struct metrics_text open, text;
	char *expected;
	FILE *file;
	size_t n;

	METRICS_RIG(rig, 3);
	metrics_rig_fill(&rig);
	open = take(&rig, METRICS_OPEN);
	file = fopen(golden_file, writes_golden_file ? "w+" : "r");
	assert_non_null(file);
	if (writes_golden_file)
		assert_int_equal(fwrite(open.data, 1, open.bytes, file), open.bytes);
	rewind(file);
	expected = malloc(open.bytes + 1);
	n = fread(expected, 1, open.bytes + 1, file);
	fclose(file);
	expect_text(&open, golden_file, expected, n);
	free(expected);

	text = take(&rig, METRICS_PLAIN);
	expected = plain_of(&open, &n);
	expect_text(&text, "the plain format", expected, n);
	free(expected);
	metrics_text_deinit(&text);
	metrics_text_deinit(&open);
}

/*
 * Buckets are the sums of the page's buckets: bounds agree, and no task is lost or counted twice.
 */
TEST(test_buckets)
{
	static const char sample[] = "ringbroker_tenant_queue_seconds_bucket{tenant=\"web\",le=\"";
	const size_t n_sample = sizeof(sample) - 1;
	struct metrics_text text;
	char bound[32], *end;
	const char *at;
	uint64_t n = 0;
	unsigned int n_bounds = 0;

	METRICS_RIG(rig, 1);
	metrics_rig_fill(&rig);
	text = take(&rig, METRICS_PLAIN);
	at = text.data;
	while ((at = memmem(at, (size_t)(text.data + text.bytes - at), sample, n_sample))) {
		uint64_t expected = 0, here;
		double seconds;

		at += n_sample;
		snprintf(bound, sizeof(bound), "%.*s", (int)strcspn(at, "\""), at);
		seconds = strtod(bound, &end);
		assert_int_equal(*end, '\0');
		here = strtoull(strchr(at, ' ') + 1, NULL, 10);
		for (unsigned int i = 0; i < RBK_STATS_BUCKETS; i++)
			if (isinf(seconds) || (double)rbk_stats_bucket_ns(i) < seconds * 1e9 - 0.5)
				expected += rig.tenants[0].queue_histogram[i];
		assert_int_equal(here, expected);
		assert_true(here > n);
		n = here;
		n_bounds++;
	}
	assert_int_equal(n_bounds, 23);
	assert_int_equal(n, RBK_STATS_BUCKETS);
	assert_string_equal(
		value_of(&text, "ringbroker_tenant_queue_seconds_count{tenant=\"web\"}"), "128");
	/* Inline tasks are excluded, because they are in no bucket. */
	assert_string_equal(
		value_of(&text, "ringbroker_tenant_latency_seconds_sum{tenant=\"web\"}"),
		"4.000001006");
	metrics_text_deinit(&text);
}

TEST(test_hostile_names)
{
	struct metrics_text text;

	METRICS_RIG(rig, 6);
	metrics_rig_fill(&rig);
	metrics_rig_tenant(&rig, 0, "\"} 1\nringbroker_evil 2\n#");
	metrics_rig_tenant(&rig, 1, "\x1b[31m\\");
	/* Names that became equal get a number. */
	metrics_rig_tenant(&rig, 2, "same\x80");
	metrics_rig_tenant(&rig, 3, "same\x81");
	metrics_rig_tenant(&rig, 4, "");
	/* Names of full length without a terminator, with every character escaped. */
	metrics_rig_tenant(&rig, 5, "x");
	memset(rig.tenants[5].name, '"', sizeof(rig.tenants[5].name));
	memset(rig.devices[1].name, '\\', sizeof(rig.devices[1].name));
	memset(rig.devices[1].driver, '\n', sizeof(rig.devices[1].driver));
	memset(rig.devices[1].paths, 0xff, sizeof(rig.devices[1].paths));
	rig.devices[1].kind = 77;
	text = take(&rig, METRICS_OPEN);
	assert_int_equal(count_of(&text, "\nringbroker_evil"), 0);
	assert_int_equal(count_of(&text, "\x1b"), 0);
	assert_non_null(value_of(&text, "ringbroker_tenant_weight{tenant=\"\\\"} 1?ringbroker_evil "
					"2?#\"}"));
	assert_non_null(value_of(&text, "ringbroker_tenant_weight{tenant=\"?[31m\\\\\"}"));
	assert_string_equal(value_of(&text, "ringbroker_tenant_weight{tenant=\"same?\"}"), "102");
	assert_string_equal(value_of(&text, "ringbroker_tenant_weight{tenant=\"same?#4\"}"), "103");
	assert_non_null(value_of(&text, "ringbroker_tenant_weight{tenant=\"\"}"));
	assert_int_equal(count_of(&text, "ringbroker_tenant_weight{"), 6);
	/* No name ends its label early. */
	assert_int_equal(count_of(&text, "kind=\"unknown\""), 1);
	metrics_text_deinit(&text);
}

TEST(test_absurd_numbers)
{
	struct metrics_text text;

	METRICS_RIG(rig, 1);
	metrics_rig_fill(&rig);
	rig.devices[1].utilization = (double)NAN;
	rig.devices[1].contention = (double)INFINITY;
	rig.devices[1].success_rate = -1;
	rig.devices[1].temperature_millicelsius = (uint64_t)-5000;
	rig.devices[1].memory_used = RBK_STATS_ABSENT;
	rig.devices[1].breaker = 99;
	rig.tenants[0].host_max = RBK_STATS_ABSENT;
	rig.tenants[0].inline_ns = UINT64_MAX;
	rig.tenants[0].reasons[3] = UINT64_MAX;
	rig.tenants[0].queue_histogram[0] = UINT64_MAX;
	rig.header->realtime_offset_ns = INT64_MIN;
	text = take(&rig, METRICS_OPEN);
	assert_null(value_of(&text, "ringbroker_device_utilization_ratio{device=\"1\"}"));
	assert_non_null(value_of(&text, "ringbroker_device_utilization_ratio{device=\"0\"}"));
	assert_null(value_of(&text, "ringbroker_device_contention_ratio{device=\"1\"}"));
	assert_null(value_of(&text, "ringbroker_device_success_ratio{device=\"1\"}"));
	assert_null(value_of(&text, "ringbroker_device_temperature_celsius{device=\"1\"}"));
	assert_null(value_of(&text, "ringbroker_device_memory_used_bytes{device=\"1\"}"));
	assert_null(value_of(&text, "ringbroker_tenant_host_memory_max_bytes{tenant=\"web\"}"));
	assert_string_equal(value_of(&text, "ringbroker_start_time_seconds"), "0");
	assert_int_equal(count_of(&text, "breaker_state{device=\"1\",state=\"open\"} 0"), 1);
	assert_int_equal(count_of(&text, " NaN"), 0);
	assert_int_equal(count_of(&text, " nan"), 0);
	assert_int_equal(count_of(&text, " -"), 0);
	metrics_text_deinit(&text);
}

/*
 * Records that an older broker's page lacks are left out, and no other bytes are read in their
 * place.
 */
TEST(test_old_page)
{
	struct metrics_text text;

	METRICS_RIG(rig, 1);
	metrics_rig_fill(&rig);
	for (unsigned int i = RBK_STATS_LEAST_SECTIONS; i < RBK_STATS_SECTION_COUNT; i++)
		rig.view.sections[i] = (struct rbk_stats_section){.offset = 0};
	text = take(&rig, METRICS_PLAIN);
	assert_null(value_of(&text, "ringbroker_contention_ratio"));
	assert_null(value_of(&text, "ringbroker_setup_jobs_waiting"));
	assert_int_equal(count_of(&text, "ringbroker_device_stall_slots_total"), 0);
	assert_int_equal(count_of(&text, "ringbroker_run_queue_delay_seconds_sum"), 0);
	assert_int_equal(count_of(&text, "ringbroker_tenant_run_queue_delay_seconds_sum"), 0);
	assert_non_null(value_of(&text, "ringbroker_sessions"));
	metrics_text_deinit(&text);
	rig.view.sections[RBK_STATS_SECTION_TENANTS].count = 0;
	text = take(&rig, METRICS_PLAIN);
	assert_int_equal(count_of(&text, "tenant=\""), 0);
	metrics_text_deinit(&text);
}

/* A record that stays in the middle of an update, as of a hung broker. */
TEST(test_odd_sequence)
{
	struct metrics_text text;

	METRICS_RIG(rig, 2);
	metrics_rig_fill(&rig);
	rig.tenants[1].sequence = 1;
	rig.devices[0].sequence = 3;
	text = take(&rig, METRICS_PLAIN);
	assert_string_equal(value_of(&text, "ringbroker_tenant_weight{tenant=\"batch\"}"), "101");
	metrics_text_deinit(&text);
}

/* Counters that restart report a new creation time. */
TEST(test_reset)
{
	static const char created[] = "ringbroker_tenant_task_errors_created{tenant=\"web\"}";
	static const char evictions[] = "ringbroker_tenant_evictions_created{tenant=\"web\"}";
	struct metrics_text text;

	METRICS_RIG(rig, 1);
	metrics_rig_fill(&rig);
	rig.header->n_resets = 0;
	rig.header->reset_at_ns = rig.header->started_at_ns;
	text = take(&rig, METRICS_OPEN);
	assert_string_equal(value_of(&text, created), "1700000001");
	assert_string_equal(value_of(&text, "ringbroker_statistics_resets_total"), "0");
	metrics_text_deinit(&text);
	rig.header->n_resets = 1;
	rig.header->reset_at_ns += 59500000000;
	text = take(&rig, METRICS_OPEN);
	assert_string_equal(value_of(&text, created), "1700000060.5");
	assert_string_equal(value_of(&text, evictions), "1700000001");
	assert_string_equal(value_of(&text, "ringbroker_statistics_resets_total"), "1");
	metrics_text_deinit(&text);
}

static void *change(void *data)
{
	struct rbk_stats_tenant *tenant = data;
	uint32_t sequence = tenant->sequence;

	/* The name and the weight belong together. */
	for (unsigned int i = 0; i < 200000; i++) {
		__atomic_store_n(&tenant->sequence, ++sequence, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_RELEASE);
		__atomic_store_n(&tenant->weight, 'a' + i % 26, __ATOMIC_RELAXED);
		__atomic_store_n((uint64_t *)tenant->name, 'a' + i % 26, __ATOMIC_RELAXED);
		__atomic_store_n(&tenant->sequence, ++sequence, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* A reader never sees half of an update, however frequent updates are. */
TEST(test_race)
{
	unsigned int n_seen = 0, last = 0, weight;
	pthread_t thread;
	char name;

	METRICS_RIG(rig, 1);
	metrics_rig_fill(&rig);
	metrics_rig_tenant(&rig, 0, "a");
	rig.tenants[0].weight = 'a';
	assert_int_equal(pthread_create(&thread, NULL, change, &rig.tenants[0]), 0);
	do {
		struct metrics_text text = take(&rig, METRICS_PLAIN);
		const char *at = memmem(text.data, text.bytes, "_weight{tenant=", 15);

		assert_non_null(at);
		assert_int_equal(sscanf(at, "_weight{tenant=\"%c\"} %u", &name, &weight), 2);
		assert_int_equal(name, weight);
		n_seen += weight != last;
		last = weight;
		metrics_text_deinit(&text);
	} while (pthread_tryjoin_np(thread, NULL) != 0);
	assert_true(n_seen > 0);
}

/* Figures of this process are plausible; figures that the kernel does not report are left out. */
TEST(test_process)
{
	static const struct metrics_process none = {
		.started_ns = RBK_STATS_ABSENT,
		.cpu_ns = RBK_STATS_ABSENT,
		.resident_bytes = RBK_STATS_ABSENT,
		.virtual_bytes = RBK_STATS_ABSENT,
		.n_fds = RBK_STATS_ABSENT,
		.max_fds = RBK_STATS_ABSENT,
	};
	struct metrics_process before = {0}, after;
	struct metrics_text text = {.format = METRICS_OPEN};
	struct timespec now;
	int fd;

	metrics_process_take(&before);
	clock_gettime(CLOCK_REALTIME, &now);
	assert_true(before.started_ns / 1000000000 <= (uint64_t)now.tv_sec);
	assert_true(before.started_ns / 1000000000 + 3600 > (uint64_t)now.tv_sec);
	assert_true(before.cpu_ns > 0 && before.cpu_ns != RBK_STATS_ABSENT);
	assert_true(before.resident_bytes >= 1 << 16 &&
		    before.resident_bytes < before.virtual_bytes);
	assert_true(before.n_fds >= 3 && before.n_fds < before.max_fds);
	fd = dup(STDERR_FILENO);
	after = before;
	metrics_process_take(&after);
	close(fd);
	assert_int_equal(after.n_fds, before.n_fds + 1);
	assert_int_equal(after.started_ns, before.started_ns);
	assert_true(after.cpu_ns > before.cpu_ns);

	metrics_process_write(&none, &text);
	assert_int_equal(count_of(&text, "# TYPE process_"), 6);
	assert_int_equal(count_of(&text, "\nprocess_"), 0);
	metrics_text_deinit(&text);
}

TEST(test_memory)
{
	struct metrics_text text = {.format = METRICS_PLAIN};
	struct metrics_page *page;

	METRICS_RIG(rig, 1);
	metrics_rig_fill(&rig);
	for (unsigned int n = 1; n <= 2; n++) {
		fail_alloc_at(n);
		assert_int_equal(metrics_page_new(&rig.view, &page), -ENOMEM);
		assert_true(fail_alloc_stop());
	}
	assert_int_equal(metrics_page_new(&rig.view, &page), 0);
	metrics_page_take(page, &rig.view);
	fail_alloc_at(2);
	metrics_page_write(page, "1", &process, &text);
	assert_true(fail_alloc_stop());
	assert_true(text.is_out_of_memory);
	metrics_text_deinit(&text);
	metrics_page_free(page);
}

int main(int argc, char **argv)
{
	writes_golden_file = argc > 1 && strcmp(argv[1], "--write") == 0;
	return test_run(NULL, NULL);
}
