#version 460
/* SPDX-License-Identifier: MIT */
/* LpNormalization: one column per invocation; a column of zeros stays zero. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 0) in;

const uint TURN = 8; /* elements per iteration */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p);
	uint row = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

	if (group >= p.w[ROWS_GROUPS] || row >= p.w[ROWS_TOTAL])
		return;

	uint size = p.w[ROWS_SIZE], inner = p.w[ROWS_INNER];
	uint base = row / inner * size * inner + row % inner;
	bool l1 = p.w[ROWS_P] == 1;
	REAL parts[TURN], norm, inv;

	[[unroll]] for (uint t = 0; t < TURN; t++)
		parts[t] = 0.0;
	for (uint begin = 0; begin < size; begin += TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++)
			if (begin + t < size) {
				REAL x = load1(p.address[0], base + (begin + t) * inner);

				parts[t] += l1 ? abs(x) : x * x;
			}
	norm = ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
	       ((parts[4] + parts[5]) + (parts[6] + parts[7]));
	norm = l1 ? norm : sqrt(norm);
	inv = norm == 0.0 ? 0.0 : 1.0 / norm;
	for (uint begin = 0; begin < size; begin += TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++)
			if (begin + t < size)
				store1(p.address[PARAM_OUT], base + (begin + t) * inner,
				       load1(p.address[0], base + (begin + t) * inner) * inv);
}
