/* SPDX-License-Identifier: MIT */
/* brokertop's row of outside programs, and programs whose memory has gone to host memory */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "picture.h"
#include "support/stats-scene.h"
#include "support/test.h"

static struct model model;
static struct picture picture;
static struct canvas canvas;
static const struct origin origin = {.is_recorded = true};

static int setup(void **state)
{
	picture_init(&picture);
	return model_init(&model) || canvas_resize(&canvas, 320, 40);
}

static int teardown(void **state)
{
	picture_deinit(&picture);
	model_deinit(&model);
	canvas_deinit(&canvas);
	return 0;
}

static bool is_shown(int width, const char *text)
{
	char *all = NULL;
	size_t bytes;
	bool is_there;
	FILE *file;

	assert_int_equal(canvas_resize(&canvas, width, 40), 0);
	picture_draw(&picture, &model, &origin, &canvas, true);
	file = open_memstream(&all, &bytes);
	assert_non_null(file);
	canvas_print(&canvas, file, CANVAS_NO_COLOURS);
	assert_int_equal(fclose(file), 0);
	is_there = strstr(all, text) != NULL;
	free(all);
	return is_there;
}

static void press(int code)
{
	const struct input input = {code, 0, 0};
	struct change change = {0};

	input_handle(&picture, &model, NULL, &change, canvas.width, &input);
	assert_int_equal(picture_update(&picture, &model), 0);
}

/* The row names the busiest program that has no lease. */
TEST(test_outside, setup, teardown)
{
	struct rbk_stats_broker *broker;
	struct pages pages;

	for (unsigned int i = 0; i < 2; i++) {
		stats_scene_make(STATS_SCENE_THREE, 1 + i, &pages);
		broker = (void *)rbk_stats_record(&pages.root, RBK_STATS_SECTION_BROKER, 0);
		if (i > 0) {
			broker->outside[0] = (struct rbk_stats_outside){
				.pid = 7, .busy_percent = 9, .comm = "no"};
			broker->outside[1] =
				(struct rbk_stats_outside){.pid = 8, .busy_percent = 31};
			memcpy(broker->outside[1].comm, "glx\033gears123456", 16);
		}
		assert_int_equal(model_update(&model, &pages, 0, 0), 0);
		pages_unmap(&pages);
		assert_int_equal(picture_update(&picture, &model), 0);
		assert_int_equal(is_shown(320, "  outside: glx?gears123456 31%"), i > 0);
		assert_int_equal(is_shown(320, "  outside  "), i == 0);
	}
}

/* The list and the sheet of a lease say how much memory has gone, and why it stays there. */
TEST(test_sleeping, setup, teardown)
{
	static const char *const ends[] = {"go there, while it sleeps",
					   "go there, held until it is woken"};
	struct rbk_stats_lease *lease;
	struct pages pages;

	for (unsigned int i = 0; i < 2; i++) {
		stats_scene_make(STATS_SCENE_THREE, 1 + i, &pages);
		lease = (void *)rbk_stats_record(&pages.root, RBK_STATS_SECTION_LEASES, 0);
		lease->granted_bytes = UINT64_C(1) << 50; /* it comes first */
		lease->movable_bytes = 384 << 20;
		lease->moved_bytes = 256 << 20;
		lease->flags |= i == 0 ? RBK_STATS_LEASE_SLEEPS : RBK_STATS_LEASE_HELD;
		assert_int_equal(model_update(&model, &pages, 0, 0), 0);
		pages_unmap(&pages);
		assert_int_equal(picture_update(&picture, &model), 0);
		press(i == 0 ? '6' : INPUT_ESCAPE);
		assert_true(is_shown(320, "MOVED"));
		assert_true(is_shown(320, " 256 MiB "));
		press(INPUT_ENTER);
		assert_true(is_shown(320, "in host memory 256 MiB of 384 MiB that can "));
		assert_true(is_shown(320, ends[i]));
	}
}

TEST_MAIN(NULL, NULL)
