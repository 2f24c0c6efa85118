#version 460
/* SPDX-License-Identifier: MIT */
/* Softmax, one row per invocation. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "softmax-common.glsl"

layout(local_size_x_id = 0) in;

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), size = p.w[ROWS_SIZE], inner = p.w[ROWS_INNER];
	uint row = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

	if (group >= p.w[ROWS_GROUPS] || row >= p.w[ROWS_TOTAL])
		return;

	uint base = row / inner * size * inner + row % inner;
	REAL most = share_max(p, base, size, inner, 0, 1);
	REAL sum = share_sum(p, base, size, inner, 0, 1, most);

	share_write(p, base, size, inner, 0, 1, most, sum);
}
