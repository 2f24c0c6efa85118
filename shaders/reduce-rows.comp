#version 460
/* SPDX-License-Identifier: MIT */
/* ReduceSum, one sum per workgroup: for sums long enough to be shared. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce-common.glsl"
#include "subgroup.glsl"

layout(local_size_x_id = 0) in;

void main()
{
	Params p = Params(push.params);
	uint index = linear_group(p);

	if (index >= p.w[REDUCE_OUTPUTS])
		return;

	float sum = group_add(share(p, index, gl_LocalInvocationID.x, gl_WorkGroupSize.x));

	if (gl_LocalInvocationID.x == 0)
		store1(p.address[3], index, sum);
}
