#version 460
/* SPDX-License-Identifier: MIT */
/* BatchNormalization with given mean and variance. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENTS = 1; /* per invocation */

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[NORM_ROWS];

	if (group >= p.w[NORM_GROUPS])
		return;
	for (uint j = 0; j < ELEMENTS; j++) {
		uint i = (group * ELEMENTS + j) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

		if (i >= total)
			break;

		uint c = i / p.w[NORM_RUN] % p.w[NORM_PERIOD];
		REAL inv = 1.0 / sqrt(load1(p.address[4], c) + uintBitsToFloat(p.w[NORM_EPSILON]));

		store1(p.address[PARAM_OUT], i,
		       (load1(p.address[0], i) - load1(p.address[3], c)) * inv * load1(p.address[1], c) +
			       load1(p.address[2], c));
	}
}
