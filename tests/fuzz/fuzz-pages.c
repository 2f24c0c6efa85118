/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing the readers of statistics pages
 *
 * The input is a recording whose pages may have any content. Pages that rbk_stats_view() accepts
 * are read as brokertop reads them, twice, so that rates exist, and every view is drawn. No access
 * may be out of bounds, and cells may hold only characters that a terminal shows.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "input.h"
#include "picture.h"
#include "recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void draw(struct picture *picture, const struct model *model, struct canvas *canvas)
{
	static const int keys[] = {'1',         INPUT_DOWN, INPUT_ENTER, '2',         't',
				   'T',         '3',        INPUT_END,   '4',         INPUT_DOWN,
				   INPUT_ENTER, '5',        INPUT_DOWN,  INPUT_ENTER, '6',
				   INPUT_DOWN,  INPUT_ENTER};
	static const struct origin origin = {.is_recorded = true};
	struct change change = {.kind = CHANGE_NONE};

	assert(picture_update(picture, model) == 0);
	for (unsigned int i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const struct input input = {.code = keys[i]};

		assert(input_handle(picture, model, NULL, &change, canvas->width, &input) ==
		       INPUT_NOTHING);
		assert(picture_update(picture, model) == 0);
		picture_draw(picture, model, &origin, canvas, true);
		for (int k = 0; k < canvas->width * canvas->height; k++)
			assert(canvas->cells[k].code >= ' ' && canvas->cells[k].code <= '~');
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct recording_moment moment = {.end = 0};
	struct canvas canvas = {.is_ascii = true};
	struct picture picture;
	struct pages pages;
	struct model model;
	int fd = memfd_create("recording", MFD_CLOEXEC), r;

	assert(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
	assert(model_init(&model) == 0 && canvas_resize(&canvas, 130, 30) == 0);
	picture_init(&picture);
	while ((r = recording_find(fd, moment.end, &moment)) == 0 &&
	       (r = recording_read(fd, &moment, &pages)) == 0) {
		assert(model_update(&model, &pages, 0, MODEL_PLANS | MODEL_DECISIONS) == 0);
		pages_unmap(&pages);
		draw(&picture, &model, &canvas);
	}
	assert(r == RECORDING_E_END || r == RECORDING_E_INVALID);
	picture_deinit(&picture);
	canvas_deinit(&canvas);
	model_deinit(&model);
	close(fd);
	return 0;
}
