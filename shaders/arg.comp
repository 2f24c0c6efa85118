#version 460
/* SPDX-License-Identifier: MIT */
/*
 * ArgMax, ArgMin: one column per invocation, or one row per workgroup if rows are long. The value's
 * order decides, then the index, so the result does not depend on the distribution over
 * invocations. Also compiled for integers and float64 (-DINTEGERS), whose order takes two words.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "order.glsl"
#ifdef INTEGERS
#include "types.glsl"
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SHARES = 0; /* 1: a workgroup shares a row */

layout(constant_id = 2) const uint TYPE = 6;   /* with -DINTEGERS: enum rbk_dtype */

layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer Index { uvec2 v; };

const uint TURN = 8; /* elements per invocation and iteration */

#ifdef INTEGERS
shared uvec3 bests[SHARES * 255 + 1];

uvec2 order_at(uint64_t base, uint index, uint flip)
{
	uint64_t order = order_of_bits(TYPE, load_bits(TYPE, base, index));
	uvec2 words = uvec2(uint(order >> 32), uint(order & 0xfffffffful));

	/* A NaN wins for ArgMax and ArgMin alike. */
	return TYPE == F64 && order == ~0ul ? words : words ^ flip;
}
#else
shared uvec2 bests[SHARES * 255 + 1];

uvec2 order_at(uint64_t base, uint index, uint flip)
{
	return uvec2(order_of(load1(base, index), flip), 0);
}
#endif

/* Return true if (order, index) @a beats @b. */
bool beats(uvec3 a, uvec3 b, bool last)
{
	if (a.x != b.x)
		return a.x > b.x;
	if (a.y != b.y)
		return a.y > b.y;
	return last ? a.z > b.z : a.z < b.z;
}

void share(uint lane, uvec3 best)
{
#ifdef INTEGERS
	bests[lane] = best;
#else
	bests[lane] = best.xz;
#endif
}

uvec3 shared_by(uint lane)
{
#ifdef INTEGERS
	return bests[lane];
#else
	return uvec3(bests[lane].x, 0, bests[lane].y);
#endif
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
	/* The least order, and an index that every other index beats. */
	uvec3 best = uvec3(0, 0, last ? 0u : 0xffffffffu);

	for (uint begin = 0; begin < size; begin += lanes * TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;

			if (i < size) {
				uvec3 next = uvec3(order_at(p.address[0], base + i * inner, flip),
						   i);

				if (beats(next, best, last))
					best = next;
			}
		}
	if (SHARES != 0) {
		share(lane, best);
		barrier();
		for (uint step = lanes / 2; step > 0; step /= 2) {
			if (lane < step && beats(shared_by(lane + step), shared_by(lane), last))
				share(lane, shared_by(lane + step));
			barrier();
		}
		best = shared_by(0);
	}
	if (lane == 0)
		Index(p.address[PARAM_OUT] + uint64_t(row) * 8ul).v = uvec2(best.z, 0);
}
