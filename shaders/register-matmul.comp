#version 460
/* SPDX-License-Identifier: MIT */
/*
 * MatMul of n by n matrices in registers, from bound buffers: the benchmark's baseline, used by no
 * plan. Each invocation computes 8 rows by 4 columns, without the features that a plan needs: n is
 * a multiple of 32, and there are no edges, batches or addresses.
 */
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = 8) in;
layout(set = 0, binding = 0, std430) readonly buffer A { vec4 v[]; } a;
layout(set = 0, binding = 1, std430) readonly buffer B { vec4 v[]; } b;
layout(set = 0, binding = 2, std430) writeonly buffer C { vec4 v[]; } c;

layout(push_constant) uniform Push
{
	uint n;
} push;

const uint ROWS = 8;

void main()
{
	uint quads = push.n / 4, row = gl_WorkGroupID.y * ROWS;
	uint quad = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
	vec4 sum[ROWS];

	[[unroll]] for (uint r = 0; r < ROWS; r++)
		sum[r] = vec4(0.0);
	for (uint k = 0; k < quads; k++) {
		uint at = 4 * k * quads + quad;
		vec4 b0 = b.v[at], b1 = b.v[at + quads];
		vec4 b2 = b.v[at + 2 * quads], b3 = b.v[at + 3 * quads];

		[[unroll]] for (uint r = 0; r < ROWS; r++) {
			vec4 left = a.v[(row + r) * quads + k];

			sum[r] += left.x * b0 + left.y * b1 + left.z * b2 + left.w * b3;
		}
	}
	[[unroll]] for (uint r = 0; r < ROWS; r++)
		c.v[(row + r) * quads + quad] = sum[r];
}
