#version 460
/* SPDX-License-Identifier: MIT */
/* Trilu: elements on the other side of the diagonal become 0. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "pieces.glsl"

/* Elements of the output in order */
#define TRILU_TOTAL        0
#define TRILU_GROUPS       1
#define TRILU_ROWS         2
#define TRILU_COLUMNS      3
#define TRILU_K            4 /* two's complement */
#define TRILU_UPPER        5

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENTS = 1; /* per invocation */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[TRILU_TOTAL];

	if (group >= p.w[TRILU_GROUPS])
		return;

	/*
	 * All three numbers are between -2^31 and 2^31: the difference of two fits an int, a sum of
	 * three may not.
	 */
	int k = int(p.w[TRILU_K]);

	for (uint i = 0; i < ELEMENTS; i++) {
		uint index = (group * ELEMENTS + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
		int column, row;

		if (index >= total)
			break;
		column = int(index % p.w[TRILU_COLUMNS]);
		row = int(index / p.w[TRILU_COLUMNS] % p.w[TRILU_ROWS]);
		move_piece(piece_at(p.address[0], index), piece_at(p.address[PARAM_OUT], index),
			   p.w[TRILU_UPPER] != 0 ? column - row >= k : column - row <= k);
	}
}
