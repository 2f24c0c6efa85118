#version 460
/* SPDX-License-Identifier: MIT */
/*
 * DynamicQuantizeLinear: the minimum and maximum of 0 and a piece, one piece per workgroup; NaNs
 * are skipped. Then, with -DEND, one workgroup computes scale and zero point from all pieces.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "bytes.glsl"
#include "quotient.glsl"
#include "subgroup.glsl"

/* Ranges of pieces; one piece per workgroup */
#define RANGE_TOTAL         0
#define RANGE_PIECES        1
#define RANGE_PIECE         2 /* elements of a piece */

layout(local_size_x_id = 0) in;

#ifdef END
void main()
{
	Params p = Params(push.params);
	float least = 0.0, most = 0.0, scale;

	if (linear_group(p) != 0 || gl_LocalInvocationID.x != 0 || p.w[RANGE_PIECES] == 0)
		return;
	for (uint i = 0; i < p.w[RANGE_PIECES]; i++) {
		least = min(least, load1(p.address[0], 2 * i));
		most = max(most, load1(p.address[0], 2 * i + 1));
	}
	/* If all values are 0, any scale would do. */
	scale = quotient(most - least, 255.0);
	scale = scale > 0.0 ? scale : 1.0;
	store1(p.address[PARAM_OUT + 1], 0, scale);
	store_byte(p.address[PARAM_OUT + 2], 0, to_byte(quotient(-least, scale), 0, false));
}
#else
const uint TURN = 8; /* elements per invocation and iteration */

void main()
{
	Params p = Params(push.params);
	uint piece = linear_group(p), lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
	float least = 0.0, most = 0.0;

	if (piece >= p.w[RANGE_PIECES])
		return;

	uint from = piece * p.w[RANGE_PIECE];
	uint size = min(p.w[RANGE_PIECE], p.w[RANGE_TOTAL] - from);

	for (uint begin = 0; begin < size; begin += lanes * TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;

			if (i < size) {
				float x = load1(p.address[0], from + i);

				if ((floatBitsToUint(x) & 0x7fffffffu) <= 0x7f800000u) {
					least = min(least, x);
					most = max(most, x);
				}
			}
		}
	least = -group_max(-least);
	most = group_max(most);
	if (lane == 0) {
		store1(p.address[PARAM_OUT], 2 * piece, least);
		store1(p.address[PARAM_OUT], 2 * piece + 1, most);
	}
}
#endif
