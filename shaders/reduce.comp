#version 460
/* SPDX-License-Identifier: MIT */
/* ReduceSum, one sum per invocation. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce-common.glsl"

layout(local_size_x_id = 0) in;

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p);
	uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

	if (group >= p.w[REDUCE_GROUPS] || index >= p.w[REDUCE_OUTPUTS])
		return;
	store1(p.address[3], index, share(p, index, 0, 1));
}
