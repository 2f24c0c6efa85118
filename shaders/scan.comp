#version 460
/* SPDX-License-Identifier: MIT */
/*
 * CumSum: one column per invocation. The sum has two parts, the current piece and all earlier
 * pieces, which keeps the error of long columns small. Also compiled for integers (-DINTEGERS).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#ifdef INTEGERS
#include "types.glsl"
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TYPE = 6; /* with -DINTEGERS: enum rbk_dtype */

const uint TURN = 16; /* elements of a piece */

#ifdef INTEGERS
#define NUMBER int64_t

NUMBER load(uint64_t base, uint index)
{
	return to_integer(TYPE, load_bits(TYPE, base, index));
}

void store(uint64_t base, uint index, NUMBER value)
{
	store_bits(TYPE, base, index, uint64_t(value));
}
#else
#define NUMBER REAL

NUMBER load(uint64_t base, uint index)
{
	return load1(base, index);
}

void store(uint64_t base, uint index, NUMBER value)
{
	store1(base, index, value);
}
#endif

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
	NUMBER before = NUMBER(0);

	for (uint begin = 0; begin < size; begin += TURN) {
		NUMBER piece = NUMBER(0);

		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t;

			if (i < size) {
				uint at = base + (reverse ? size - 1 - i : i) * inner;
				NUMBER value = load(p.address[0], at);

				if (exclusive)
					store(p.address[PARAM_OUT], at, before + piece);
				piece += value;
				if (!exclusive)
					store(p.address[PARAM_OUT], at, before + piece);
			}
		}
		before += piece;
	}
}
