#version 460
/* SPDX-License-Identifier: MIT */
/* Softmax, one row per workgroup: for rows of enough elements to share. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "softmax-common.glsl"
#include "subgroup.glsl"

layout(local_size_x_id = 0) in;

void main()
{
	Params p = Params(push.params);
	uint row = linear_group(p), size = p.w[ROWS_SIZE], inner = p.w[ROWS_INNER];

	if (row >= p.w[ROWS_TOTAL])
		return;

	uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
	uint base = row / inner * size * inner + row % inner;
	REAL most = group_max(share_max(p, base, size, inner, lane, lanes));
	REAL sum = group_add(share_sum(p, base, size, inner, lane, lanes, most));

	share_write(p, base, size, inner, lane, lanes, most, sum);
}
