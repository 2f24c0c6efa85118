#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Gather, GatherND: rows of x one after another, each in pieces of the largest size that divides
 * the row.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "index.glsl"
#include "pieces.glsl"

/* All sizes count pieces; indices are int32 or, if wide, int64 */
#define GATHER_TOTAL       0
#define GATHER_GROUPS      1
#define GATHER_WIDE        2
#define GATHER_RUN         3 /* pieces of a row */
#define GATHER_ROWS        4 /* rows per outer index */
#define GATHER_X_OUTER     5
#define GATHER_INDEX_OUTER 6 /* in indices */
#define GATHER_N           7 /* components of one index */
#define GATHER_LIMITS      8 /* [8] */
#define GATHER_STRIDES     16 /* [8] */

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PIECES = 1; /* per invocation */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[GATHER_TOTAL];

	if (group >= p.w[GATHER_GROUPS])
		return;

	uint run = p.w[GATHER_RUN], rows = p.w[GATHER_ROWS], n = p.w[GATHER_N];

	for (uint i = 0; i < PIECES; i++) {
		uint index = (group * PIECES + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
		uint row, outer, first, from, at;
		bool good = true;

		if (index >= total)
			break;
		row = index / run;
		outer = row / rows;
		first = outer * p.w[GATHER_INDEX_OUTER] + row % rows * n;
		from = 0;
		for (uint k = 0; k < n; k++) {
			good = load_index(p.address[1], p.w[GATHER_WIDE], first + k,
					  p.w[GATHER_LIMITS + k], at) && good;
			from += at * p.w[GATHER_STRIDES + k];
		}
		if (!good) {
			report_out_of_range();
			from = 0;
		}
		from += outer * p.w[GATHER_X_OUTER] + index % run;
		move_piece(piece_at(p.address[0], from), piece_at(p.address[PARAM_OUT], index), true);
	}
}
