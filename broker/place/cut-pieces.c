/* SPDX-License-Identifier: MIT */
/* Cuts by time: pieces for a device that has no room for the whole plan */
#include <math.h>
#include <stdlib.h>

#include "place/cut-private.h"
#include "util/cleanup.h"

/* Return the device beside the CPU with the largest room. */
static uint32_t roomiest(const struct place_cut_basis *basis)
{
	uint32_t ret = 1;

	for (uint32_t d = 2; d < basis->n_devices; d++)
		if (basis->devices[d].room_bytes > basis->devices[ret].room_bytes)
			ret = d;
	return ret;
}

/* A segment on the device, or on the CPU if it does not gain there */
struct piece {
	double gain_ns;
	uint64_t bytes; /* of constants */
};

static struct piece piece_of(struct cut_model *model, const struct place_cut_device *device,
			     const float *gain_ns, uint16_t first, uint16_t end)
{
	const struct cut_range range = cut_measure(model, first, end);
	struct piece piece = {.gain_ns = -cut_around_ns(device, &range)};

	for (uint16_t i = first; i < end; i++)
		piece.gain_ns += (double)gain_ns[i];
	piece.bytes = range.touched_bytes - (uint64_t)(range.in_bytes + range.out_bytes);
	return piece;
}

/* Predict what the device saves with the pieces worth most per byte, as far as they have room. */
static double saved_ns(struct cut_model *model, const struct place_cut_device *device,
		       const float *gain_ns, const struct cut_choice *choice)
{
	struct piece pieces[CUT_MAX_SEGMENTS];
	uint64_t room_bytes = device->room_bytes;
	double ns = 0;

	for (uint32_t i = 0; i <= choice->n; i++)
		pieces[i] = piece_of(model, device, gain_ns, i > 0 ? choice->firsts[i - 1] : 0,
				     i < choice->n ? choice->firsts[i] : model->plan->n_nodes);
	for (;;) {
		struct piece *best = NULL;

		for (uint32_t i = 0; i <= choice->n; i++)
			if (pieces[i].gain_ns > 0 && pieces[i].bytes <= room_bytes &&
			    (!best || pieces[i].gain_ns * (double)best->bytes >
					      best->gain_ns * (double)pieces[i].bytes))
				best = &pieces[i];
		if (!best)
			return ns;
		ns += best->gain_ns;
		room_bytes -= best->bytes;
		best->gain_ns = 0;
	}
}

bool cut_choose_pieces(struct cut_model *model, const struct cut_wish *wish, struct cut_choice *ret)
{
	const uint32_t d = roomiest(model->basis);
	const struct place_cut_device *device = &model->basis->devices[d];
	_cleanup_(freep) float *gain_ns = calloc(model->plan->n_nodes, sizeof(*gain_ns));
	struct cut_wish known = *wish;
	double whole_ns, ns;

	whole_ns = cut_predict(model, model->plan->max_count).ns[RBK_DEVICE_CPU];
	if (!gain_ns || isinf(whole_ns))
		return false;
	for (uint16_t i = 0; i < model->plan->n_nodes; i++)
		gain_ns[i] =
			(float)(cut_node_ns(model, i, RBK_DEVICE_CPU) - cut_node_ns(model, i, d));
	/* The wish may be for another device, which shares the CPU's processors. */
	known.memory_bytes = device->room_bytes;
	known.types = device->types;
	known.gain_ns = gain_ns;
	known.submission_ns = (float)cut_submission_ns(device);
	known.link_bytes_per_ns = device->profile.down_bytes_per_ns;
	cut_points(model->plan, &known, ret);
	if (ret->n == 0)
		return true;
	ns = whole_ns + ret->n * CUT_HOP_NS - saved_ns(model, device, gain_ns, ret);
	ret->whole_ns = (float)whole_ns;
	ret->cut_ns = (float)ns;
	if (ns >= whole_ns) {
		ret->n = 0;
		ret->why = RBK_CUT_NO_GAIN;
	}
	return true;
}
