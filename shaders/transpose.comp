#version 460
/* SPDX-License-Identifier: MIT */
/* Transpose: the output in order, the input by permuted strides. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint QUADS = 1; /* per invocation, four elements apart by group */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[ELEMENTWISE_TOTAL];

	if (group >= p.w[ELEMENTWISE_GROUPS])
		return;
	for (uint i = 0; i < QUADS * 4; i++) {
		uint step = group * QUADS * 4 + i;
		uint index = step * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
		uint rest = index, from = 0;

		if (index >= total || step > 0xffffffffu / gl_WorkGroupSize.x)
			break;
		for (uint d = p.w[ELEMENTWISE_RANK]; d > 1; d--) {
			uint size = p.w[ELEMENTWISE_DIMS + d - 1];

			from += rest % size * p.w[ELEMENTWISE_A + d - 1];
			rest /= size;
		}
		from += rest * p.w[ELEMENTWISE_A];
		store1(p.address[PARAM_OUT], index, load1(p.address[0], from));
	}
}
