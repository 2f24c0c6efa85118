#version 460
/* SPDX-License-Identifier: MIT */
/* OneHot: the values are off and on; for an index out of range, all elements are off. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "index.glsl"
#include "pieces.glsl"

/* Elements of the output in order; indices are int32 or, if wide, int64 */
#define ONE_HOT_TOTAL      0
#define ONE_HOT_GROUPS     1
#define ONE_HOT_WIDE       2
#define ONE_HOT_DEPTH      3
#define ONE_HOT_INNER      4

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENTS = 1; /* per invocation */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[ONE_HOT_TOTAL];

	if (group >= p.w[ONE_HOT_GROUPS])
		return;

	uint depth = p.w[ONE_HOT_DEPTH], inner = p.w[ONE_HOT_INNER];

	for (uint i = 0; i < ELEMENTS; i++) {
		uint index = (group * ELEMENTS + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
		uint plane, at;
		bool on;

		if (index >= total)
			break;
		plane = index / inner;
		on = load_index(p.address[0], p.w[ONE_HOT_WIDE], plane / depth * inner + index % inner,
				depth, at) &&
		     at == plane % depth;
		move_piece(piece_at(p.address[1], on ? 1 : 0), piece_at(p.address[PARAM_OUT], index),
			   true);
	}
}
