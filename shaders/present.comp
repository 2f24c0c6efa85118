#version 460
/* SPDX-License-Identifier: MIT */
/* Attention's present keys or values: the past ones, followed by the new ones, per head. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#define PRESENT_TOTAL       0
#define PRESENT_GROUPS      1
#define PRESENT_HEADS       2
#define PRESENT_PAST        3
#define PRESENT_SEQ         4
#define PRESENT_SIZE        5
#define PRESENT_HEAD_STRIDE 6
#define PRESENT_ROW_STRIDE  7

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENTS = 1; /* per invocation */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[PRESENT_TOTAL];

	if (group >= p.w[PRESENT_GROUPS])
		return;

	uint size = p.w[PRESENT_SIZE], past = p.w[PRESENT_PAST], seq = p.w[PRESENT_SEQ];
	uint heads = p.w[PRESENT_HEADS];

	for (uint j = 0; j < ELEMENTS; j++) {
		uint i = (group * ELEMENTS + j) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

		if (i >= total)
			break;

		uint d = i % size, row = i / size % (past + seq), head = i / size / (past + seq);
		float value;

		if (row < past)
			value = load1(p.address[0], (head * past + row) * size + d);
		else
			value = load1(p.address[1], head / heads * (heads * seq * size) +
							    head % heads * p.w[PRESENT_HEAD_STRIDE] +
							    (row - past) * p.w[PRESENT_ROW_STRIDE] + d);
		store1(p.address[PARAM_OUT], i, value);
	}
}
