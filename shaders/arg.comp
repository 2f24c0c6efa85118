#version 460
/* SPDX-License-Identifier: MIT */
/*
 * ArgMax, ArgMin: one column per invocation, or one row per workgroup where it is long. What wins is
 * decided by the value's order and then by the index, so it does not matter who looks at what.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "order.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SHARES = 0; /* 1: a workgroup shares a row */

layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer Index { uvec2 v; };

const uint TURN = 8; /* elements per invocation and turn */

shared uvec2 bests[256];

/* Is (order, index) @a better than @b? */
bool beats(uvec2 a, uvec2 b, bool last)
{
	return a.x > b.x || (a.x == b.x && (last ? a.y > b.y : a.y < b.y));
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), lanes = SHARES != 0 ? gl_WorkGroupSize.x : 1;
	uint lane = SHARES != 0 ? gl_LocalInvocationID.x : 0;
	uint row = SHARES != 0 ? group : group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

	if (group >= p.w[ROWS_GROUPS] || row >= p.w[ROWS_TOTAL])
		return;

	uint size = p.w[ROWS_SIZE], inner = p.w[ROWS_INNER], flip = p.w[ROWS_FLIP];
	uint base = row / inner * size * inner + row % inner;
	bool last = p.w[ROWS_LAST] != 0;
	/* An order that no element has; the index is replaced by any. */
	uvec2 best = uvec2(0, last ? 0u : 0xffffffffu);

	for (uint begin = 0; begin < size; begin += lanes * TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;

			if (i < size) {
				uvec2 next = uvec2(order_of(load1(p.address[0], base + i * inner),
							    flip),
						   i);

				if (beats(next, best, last))
					best = next;
			}
		}
	if (SHARES != 0) {
		bests[lane] = best;
		barrier();
		for (uint step = lanes / 2; step > 0; step /= 2) {
			if (lane < step && beats(bests[lane + step], bests[lane], last))
				bests[lane] = bests[lane + step];
			barrier();
		}
		best = bests[0];
	}
	if (lane == 0)
		Index(p.address[PARAM_OUT] + uint64_t(row) * 8ul).v = uvec2(best.y, 0);
}
