#version 460
/* SPDX-License-Identifier: MIT */
/*
 * CumSum: one column per invocation. The sum is kept in two parts, of the current piece and of all
 * before, which keeps the error of long columns small.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 0) in;

const uint TURN = 16; /* elements of a piece */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p);
	uint row = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

	if (group >= p.w[ROWS_GROUPS] || row >= p.w[ROWS_TOTAL])
		return;

	uint size = p.w[ROWS_SIZE], inner = p.w[ROWS_INNER];
	uint base = row / inner * size * inner + row % inner;
	bool exclusive = (p.w[ROWS_SCAN] & 1) != 0, reverse = (p.w[ROWS_SCAN] & 2) != 0;
	float before = 0.0;

	for (uint begin = 0; begin < size; begin += TURN) {
		float piece = 0.0;

		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t;

			if (i < size) {
				uint at = base + (reverse ? size - 1 - i : i) * inner;
				float value = load1(p.address[0], at);

				if (exclusive)
					store1(p.address[PARAM_OUT], at, before + piece);
				piece += value;
				if (!exclusive)
					store1(p.address[PARAM_OUT], at, before + piece);
			}
		}
		before += piece;
	}
}
