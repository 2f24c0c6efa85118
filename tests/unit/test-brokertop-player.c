/* SPDX-License-Identifier: MIT */
/* Recordings: a page is read as it was written, and looks the same when played backward. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "input.h"
#include "player.h"
#include "recorder.h"
#include "support/stats-scene.h"
#include "support/test.h"

static const uint64_t second_ns = 1000000000;

/* Return a file with the first @n moments of a scene. */
static FILE *record(enum stats_scene scene, unsigned int n)
{
	FILE *file = tmpfile();
	struct recorder recorder;
	struct pages pages;

	assert_non_null(file);
	recorder_init(&recorder, file);
	for (unsigned int i = 0; i < n; i++) {
		stats_scene_make(scene, i, &pages);
		assert_int_equal(recorder_write(&recorder, &pages), 0);
		pages_unmap(&pages);
	}
	recorder_deinit(&recorder);
	return file;
}

static void write_plain(FILE *file, const struct rbk_stats_view *view)
{
	assert_int_equal(fwrite(view->page, view->bytes, 1, file), 1);
}

/* Return a file as record() does, with pages in plain form. */
static FILE *record_plain(enum stats_scene scene, unsigned int n)
{
	FILE *file = tmpfile();
	struct pages pages;

	assert_non_null(file);
	for (unsigned int i = 0; i < n; i++) {
		stats_scene_make(scene, i, &pages);
		if (pages.root.page)
			write_plain(file, &pages.root);
		for (unsigned int k = 0; k < pages.n_tenants; k++)
			write_plain(file, &pages.tenants[k].view);
		pages_unmap(&pages);
	}
	assert_int_equal(fflush(file), 0);
	return file;
}

/* Assert that @file has the first @n moments of the scene with three tenants. */
static void expect_three(FILE *file, unsigned int n)
{
	struct recording_moment moment = {.end = 0};
	uint64_t last_ns = 0;
	struct pages pages;

	for (unsigned int i = 0; i < n; i++) {
		struct pages wanted;

		assert_int_equal(recording_find(fileno(file), moment.end, &moment), 0);
		assert_true(moment.at_ns > last_ns);
		last_ns = moment.at_ns;
		assert_int_equal(recording_read(fileno(file), &moment, &pages), 0);
		stats_scene_make(STATS_SCENE_THREE, i, &wanted);
		assert_int_equal(pages.n_tenants, 3);
		assert_int_equal(pages.root.bytes, wanted.root.bytes);
		assert_memory_equal(pages.root.page, wanted.root.page, pages.root.bytes);
		assert_string_equal(pages.tenants[2].name, "batch");
		pages_unmap(&wanted);
		pages_unmap(&pages);
	}
	assert_int_equal(recording_find(fileno(file), moment.end, &moment), RECORDING_E_END);
}

/* There are more moments than refer to one base. */
TEST(test_recording__reads_what_was_written)
{
	enum { N = 130 };
	FILE *file = record(STATS_SCENE_THREE, N);

	expect_three(file, N);
	fclose(file);
}

/* A base is at most 60 moments old, so that a damaged one costs at most a minute. */
TEST(test_recording__bases_are_near)
{
	enum { N = 130, MAX_AGE = 60 };
	FILE *file = record(STATS_SCENE_THREE, N);
	struct recording_moment moments[N];
	struct recording_page head;
	unsigned int n_bases = 0;

	for (unsigned int i = 0; i < N; i++) {
		assert_int_equal(
			recording_find(fileno(file), i ? moments[i - 1].end : 0, &moments[i]), 0);
		for (uint64_t at = moments[i].offset; at < moments[i].end;
		     at += sizeof(head) + head.data_bytes) {
			assert_int_equal(pread(fileno(file), &head, sizeof(head), (off_t)at),
					 sizeof(head));
			n_bases += head.base == RECORDING_NO_BASE;
			if (i > MAX_AGE)
				assert_true(head.base >= moments[i - MAX_AGE].offset);
		}
	}
	/* The pages are the root's and three tenants'. */
	assert_int_equal(n_bases, 4 * 3);
	fclose(file);
}

TEST(test_recording__reads_the_plain_form)
{
	FILE *file = record_plain(STATS_SCENE_THREE, 3);

	expect_three(file, 3);
	fclose(file);
}

/* A recording is much smaller than its pages, even when every decision in their logs changes. */
TEST(test_recording__is_compact)
{
	enum { N = 10 };
	FILE *file = record(STATS_SCENE_THREE, N), *plain = record_plain(STATS_SCENE_THREE, N);
	const long bytes = ftell(file), plain_bytes = ftell(plain);

	print_message("%ld bytes a moment, instead of %ld\n", bytes / N, plain_bytes / N);
	assert_in_range(bytes, 1, plain_bytes / 20);
	fclose(plain);
	fclose(file);
}

/* Every difference that is not one is refused, without an access outside the page. */
TEST(test_recording__wrong_differences)
{
	static const struct {
		unsigned char data[12];
		uint32_t bytes;
	} wrong[] = {
		{{0x80}, 1},
		/* A number of more than 64 bits, and one that ends with the data. */
		{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 12},
		{{0, 0x80}, 2},
		/* Bytes beyond the page, and beyond the data. */
		{{0xff, 0xff, 0xff, 0x7f, 1}, 5},
		{{0, 0xff, 0x7f}, 3},
	};
	FILE *file = record(STATS_SCENE_OWN, 2);
	struct recording_moment moment, second;
	struct recording_page head;
	struct pages pages;

	assert_int_equal(recording_find(fileno(file), 0, &moment), 0);
	assert_int_equal(recording_find(fileno(file), moment.end, &second), 0);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		uint64_t at = second.end - sizeof(wrong[0].data);

		assert_int_equal(
			pwrite(fileno(file), wrong[i].data, sizeof(wrong[i].data), (off_t)at),
			sizeof(wrong[i].data));
		head = (struct recording_page){
			.magic = RECORDING_MAGIC,
			.kind = RBK_STATS_TENANT,
			.tenant = 1,
			.data_bytes = wrong[i].bytes,
			.page_bytes = 65536,
			.base = RECORDING_NO_BASE,
		};
		at -= sizeof(head);
		assert_int_equal(pwrite(fileno(file), &head, sizeof(head), (off_t)at),
				 sizeof(head));
		moment = (struct recording_moment){
			.offset = at,
			.end = at + sizeof(head) + head.data_bytes,
		};
		assert_int_equal(recording_read(fileno(file), &moment, &pages),
				 RECORDING_E_INVALID);
	}
	fclose(file);
}

/* A base is a page in compact form, of the same size and without a base itself. */
TEST(test_recording__wrong_bases)
{
	FILE *file = record(STATS_SCENE_OWN, 3);
	struct recording_moment moments[3] = {{.end = 0}};
	struct recording_page head;
	struct pages pages;
	uint64_t base;

	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(
			recording_find(fileno(file), i ? moments[i - 1].end : 0, &moments[i]), 0);
	assert_int_equal(pread(fileno(file), &head, sizeof(head), (off_t)moments[2].offset),
			 sizeof(head));
	base = head.base;
	assert_int_equal(base, moments[0].offset);
	for (unsigned int i = 0; i < 4; i++) {
		head.base = (uint64_t[]){moments[1].offset, base + 8, UINT64_MAX - 1,
					 moments[2].offset}[i];
		assert_int_equal(
			pwrite(fileno(file), &head, sizeof(head), (off_t)moments[2].offset),
			sizeof(head));
		assert_int_equal(recording_read(fileno(file), &moments[2], &pages),
				 RECORDING_E_INVALID);
	}
	head.base = base;
	assert_int_equal(pwrite(fileno(file), &head, sizeof(head), (off_t)moments[2].offset),
			 sizeof(head));
	assert_int_equal(recording_read(fileno(file), &moments[2], &pages), 0);
	pages_unmap(&pages);
	fclose(file);
}

/* Recordings of a tenant's own page: each update is a moment. */
TEST(test_recording__without_a_root)
{
	struct recording_moment moment = {.end = 0};
	FILE *file = record(STATS_SCENE_OWN, 3);
	struct pages pages;

	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(recording_find(fileno(file), moment.end, &moment), 0);
		assert_int_equal(recording_read(fileno(file), &moment, &pages), 0);
		assert_null(pages.root.page);
		assert_int_equal(pages.n_tenants, 1);
		pages_unmap(&pages);
	}
	assert_int_equal(recording_find(fileno(file), moment.end, &moment), RECORDING_E_END);
	fclose(file);
}

TEST(test_recording__cut_short)
{
	FILE *file = record(STATS_SCENE_OWN, 1);
	struct recording_moment moment;
	struct pages pages;

	assert_int_equal(recording_find(fileno(file), 0, &moment), 0);
	/* The file is cut after the moment was found, and before. */
	assert_int_equal(ftruncate(fileno(file), (off_t)moment.end - 1), 0);
	assert_int_equal(recording_read(fileno(file), &moment, &pages), RECORDING_E_INVALID);
	assert_int_equal(ftruncate(fileno(file), (off_t)moment.end / 2), 0);
	assert_int_equal(recording_find(fileno(file), 0, &moment), RECORDING_E_INVALID);
	assert_int_equal(ftruncate(fileno(file), 100), 0);
	assert_int_equal(recording_read(fileno(file), &moment, &pages), RECORDING_E_INVALID);
	assert_int_equal(recording_find(fileno(file), 0, &moment), RECORDING_E_INVALID);
	fclose(file);
}

/* --- Playing --- */

struct stage {
	char path[64];
	FILE *file;
	struct player player;
	struct pages pages;
	uint32_t only;
	struct model model;
};

static void begin(struct stage *stage, enum stats_scene scene, unsigned int n)
{
	*stage = (struct stage){.file = record(scene, n)};
	snprintf(stage->path, sizeof(stage->path), "/proc/self/fd/%d", fileno(stage->file));
	assert_int_equal(player_open(&stage->player, stage->path), 0);
	assert_int_equal(stage->player.n_moments, n);
	assert_int_equal(model_init(&stage->model), 0);
}

static void end(struct stage *stage)
{
	player_close(&stage->player);
	pages_unmap(&stage->pages);
	model_deinit(&stage->model);
	fclose(stage->file);
}

static void show(struct stage *stage, uint32_t moment)
{
	stage->player.wanted = moment;
	assert_int_equal(
		player_show(&stage->player, NULL, &stage->pages, &stage->only, &stage->model), 0);
	assert_int_equal(stage->player.shown, moment);
}

static void expect_same(const struct model *left, const struct model *right)
{
	double a[MODEL_SECONDS], b[MODEL_SECONDS];

	assert_int_equal(left->updated_at_ns, right->updated_at_ns);
	assert_true(left->has_rates == right->has_rates);
	assert_true(left->tasks_per_s == right->tasks_per_s);
	assert_true(left->latency_p99_ns == right->latency_p99_ns);
	assert_int_equal(left->n_plans, right->n_plans);
	for (uint32_t i = 0; i < left->n_plans && left->has_rates; i++)
		assert_true(left->plans[i].tasks_per_s == right->plans[i].tasks_per_s);
	assert_int_equal(left->n_decisions, right->n_decisions);
	assert_true(model_evictions(left) == model_evictions(right));
	model_series(left, &left->tasks, a);
	model_series(right, &right->tasks, b);
	for (unsigned int i = 0; i < MODEL_SECONDS; i++)
		assert_true(a[i] == b[i] || (isnan(a[i]) && isnan(b[i])));
}

/* A moment has the same rates and history, whatever order of steps led to it. */
TEST(test_show__any_order)
{
	enum { N = 320 };
	static const uint32_t order[] = {N - 1, N - 2, 20, 21, 0, 1, 304, 305};
	struct stage forward, any;

	begin(&any, STATS_SCENE_THREE, N);
	for (unsigned int i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		begin(&forward, STATS_SCENE_THREE, N);
		for (uint32_t k = 0; k <= order[i]; k++)
			show(&forward, k);
		show(&any, order[i]);
		expect_same(&any.model, &forward.model);
		end(&forward);
	}
	end(&any);
}

/* A recording that was cut is played up to its last whole moment, which says so. */
TEST(test_open__cut)
{
	struct recording_moment moments[3];
	struct stage stage;
	uint64_t at = 0;
	FILE *file;

	begin(&stage, STATS_SCENE_THREE, 3);
	for (unsigned int i = 0; i < 3; i++)
		moments[i] = stage.player.moments[i];
	file = stage.file;
	for (unsigned int i = 0; i < 3; i++) {
		/* Cut in the last page, in the first one, and between two moments. */
		at = (const uint64_t[]){moments[2].end - 1,
					moments[2].offset + sizeof(struct recording_page),
					moments[2].offset}[i];
		assert_int_equal(ftruncate(fileno(file), (off_t)at), 0);
		player_close(&stage.player);
		assert_int_equal(player_open(&stage.player, stage.path), 0);
		assert_int_equal(stage.player.n_moments, 2);
		assert_true(stage.player.is_cut == (i < 2));
		stage.player.has_shown = false;
		show(&stage, 0);
		assert_false(player_is_at_cut(&stage.player));
		show(&stage, 1);
		assert_true(player_is_at_cut(&stage.player) == (i < 2));
	}
	player_close(&stage.player);
	/* A page whose head is cut may belong to the moment before, which is not whole then. */
	assert_int_equal(ftruncate(fileno(file), (off_t)moments[1].offset + 8), 0);
	assert_int_equal(player_open(&stage.player, stage.path), RECORDING_E_INVALID);
	/* Nothing is left that can be played. */
	assert_int_equal(ftruncate(fileno(file), (off_t)moments[0].end - 1), 0);
	assert_int_equal(player_open(&stage.player, stage.path), RECORDING_E_INVALID);
	end(&stage);
}

static const char *key(struct stage *stage, int code, uint64_t now_ns)
{
	const char *text;

	assert_true(player_handle(&stage->player, code, now_ns, &text));
	return text;
}

static const char *described(struct stage *stage)
{
	static char text[48];

	show(stage, stage->player.wanted);
	player_describe(&stage->player, text, sizeof(text));
	return text;
}

TEST(test_play)
{
	uint64_t now_ns = 1000 * second_ns;
	const char *text;
	struct stage stage;

	/* Moments of a scene are one second apart. */
	begin(&stage, STATS_SCENE_THREE, 6);
	show(&stage, 0);
	assert_false(player_run(&stage.player, now_ns));
	assert_string_equal(described(&stage), "1/6 playing");
	assert_int_equal(player_next_ns(&stage.player), now_ns + second_ns);
	now_ns += second_ns;
	assert_false(player_run(&stage.player, now_ns - 1));
	assert_string_equal(described(&stage), "1/6 playing");
	assert_false(player_run(&stage.player, now_ns));
	assert_string_equal(described(&stage), "2/6 playing");

	assert_null(key(&stage, ' ', now_ns));
	assert_string_equal(described(&stage), "2/6 paused");
	now_ns += 100 * second_ns;
	assert_false(player_run(&stage.player, now_ns));
	assert_int_equal(player_next_ns(&stage.player), UINT64_MAX);
	assert_string_equal(described(&stage), "2/6 paused");
	assert_null(key(&stage, INPUT_RIGHT, now_ns));
	assert_string_equal(described(&stage), "3/6 paused");
	assert_null(key(&stage, INPUT_LEFT, now_ns));
	assert_null(key(&stage, INPUT_LEFT, now_ns));
	assert_string_equal(described(&stage), "1/6 paused");
	assert_non_null(strstr(key(&stage, INPUT_LEFT, now_ns), "beginning"));

	/* Time in which the player was paused is not made up for. */
	assert_null(key(&stage, ' ', now_ns));
	assert_false(player_run(&stage.player, now_ns));
	assert_string_equal(described(&stage), "1/6 playing");
	assert_null(key(&stage, '+', now_ns));
	assert_string_equal(described(&stage), "1/6 playing 2x");
	assert_false(player_run(&stage.player, now_ns + second_ns));
	assert_string_equal(described(&stage), "3/6 playing 2x");
	for (unsigned int i = 0; i < 20; i++)
		key(&stage, '-', now_ns);
	assert_string_equal(described(&stage), "3/6 playing 1/8x");
	assert_int_equal(player_next_ns(&stage.player), now_ns + 8 * second_ns);

	/* The end of the recording. */
	now_ns += 1000 * second_ns;
	assert_true(player_run(&stage.player, now_ns));
	assert_string_equal(described(&stage), "6/6 the end");
	assert_false(player_run(&stage.player, now_ns + 1000 * second_ns));
	assert_non_null(strstr(key(&stage, INPUT_RIGHT, now_ns), "end"));
	assert_null(key(&stage, ' ', now_ns));
	assert_string_equal(described(&stage), "1/6 playing 1/8x");
	assert_non_null(strstr(key(&stage, 'G', now_ns), "end"));
	assert_string_equal(described(&stage), "6/6 the end");
	assert_null(key(&stage, 'g', now_ns));
	assert_string_equal(described(&stage), "1/6 paused");
	assert_false(player_handle(&stage.player, 'x', now_ns, &text));
	end(&stage);

	/* Each moment lasts as long as -d says; then a recording of one moment. */
	begin(&stage, STATS_SCENE_CPU, 2);
	stage.player.step_ns = 7 * second_ns;
	show(&stage, 0);
	player_run(&stage.player, now_ns);
	assert_int_equal(player_next_ns(&stage.player), now_ns + 7 * second_ns);
	end(&stage);
	begin(&stage, STATS_SCENE_CPU, 1);
	assert_true(player_run(&stage.player, now_ns));
	assert_string_equal(described(&stage), "1/1 the end");
	assert_null(key(&stage, ' ', now_ns));
	assert_string_equal(described(&stage), "1/1 the end");
	end(&stage);
}
