#version 460
/* SPDX-License-Identifier: MIT */
/* GatherElements: one index per element. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "index.glsl"
#include "pieces.glsl"

/* Indices in order; the strides give an element's place in x for index 0 */
#define ELEMENTS_TOTAL     0
#define ELEMENTS_GROUPS    1
#define ELEMENTS_WIDE      2
#define ELEMENTS_LIMIT     3
#define ELEMENTS_STEP      4 /* along the axis of x */
#define ELEMENTS_RANK      5
#define ELEMENTS_DIMS      8 /* [8] */
#define ELEMENTS_STRIDES   16 /* [8]; 0 along the axis */

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENTS = 1; /* per invocation */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[ELEMENTS_TOTAL];

	if (group >= p.w[ELEMENTS_GROUPS])
		return;
	for (uint i = 0; i < ELEMENTS; i++) {
		uint index = (group * ELEMENTS + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
		uint rest = index, from = 0, at;

		if (index >= total)
			break;
		for (uint d = p.w[ELEMENTS_RANK]; d > 0; d--) {
			uint size = p.w[ELEMENTS_DIMS + d - 1];

			from += rest % size * p.w[ELEMENTS_STRIDES + d - 1];
			rest /= size;
		}
		if (!load_index(p.address[1], p.w[ELEMENTS_WIDE], index, p.w[ELEMENTS_LIMIT], at))
			report_out_of_range();
		from += at * p.w[ELEMENTS_STEP];
		move_piece(piece_at(p.address[0], from), piece_at(p.address[PARAM_OUT], index), true);
	}
}
