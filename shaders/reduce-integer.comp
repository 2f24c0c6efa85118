#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Reductions of integers and bools: one result per invocation, or per workgroup if results have
 * many elements. Results are computed with 64 bits and truncated to the type's width, so any order
 * gives the same.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce-common.glsl"
#include "types.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 2) const uint TYPE = 6;	/* enum rbk_dtype */
layout(constant_id = 3) const uint SHARES = 0; /* 1: a workgroup shares a result */

shared uvec2 parts[SHARES * 255 + 1];

int64_t merge_integers(uint kind, int64_t a, int64_t b)
{
	if (kind == MOST)
		return b > a ? b : a;
	if (kind == LEAST)
		return b < a ? b : a;
	return kind == PROD ? a * b : a + b;
}

/* Return the neutral element. */
int64_t neutral(uint kind)
{
	if (kind == MOST)
		return -0x7fffffffffffffffl - 1l;
	if (kind == LEAST)
		return 0x7fffffffffffffffl;
	return kind == PROD ? 1l : 0l;
}

uvec2 words_of(int64_t value)
{
	return uvec2(uint(uint64_t(value) & 0xfffffffful), uint(uint64_t(value) >> 32));
}

int64_t value_of(uvec2 words)
{
	return int64_t(uint64_t(words.x) | uint64_t(words.y) << 32);
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), kind = p.w[REDUCE_KIND];
	uint lanes = SHARES != 0 ? gl_WorkGroupSize.x : 1;
	uint lane = SHARES != 0 ? gl_LocalInvocationID.x : 0;
	uint index = SHARES != 0 ? group : group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

	if (group >= p.w[REDUCE_GROUPS] || index >= p.w[REDUCE_OUTPUTS])
		return;

	uint base = strided(p, index, p.w[REDUCE_KEPT], REDUCE_KEPT_DIMS, REDUCE_KEPT_STRIDE);
	uint size = p.w[REDUCE_SIZE], n = p.w[REDUCE_SUMMED];
	int64_t value = neutral(kind);

	for (uint begin = 0; begin < size; begin += lanes * TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;

			if (i < size) {
				uint from = base + strided(p, i, n, REDUCE_SUM_DIMS,
							   REDUCE_SUM_STRIDE);

				value = merge_integers(kind, value,
						       to_integer(TYPE, load_bits(TYPE, p.address[0],
										  from)));
			}
		}
	if (SHARES != 0) {
		parts[lane] = words_of(value);
		barrier();
		for (uint step = lanes / 2; step > 0; step /= 2) {
			if (lane < step)
				parts[lane] = words_of(merge_integers(kind, value_of(parts[lane]),
								      value_of(parts[lane + step])));
			barrier();
		}
		value = value_of(parts[0]);
	}
	if (lane == 0)
		store_bits(TYPE, p.address[PARAM_OUT], index, uint64_t(value));
}
