#version 460
/* SPDX-License-Identifier: MIT */
/* MatMul, one output per invocation: the benchmark's baseline, used by no plan. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 0) in;

void main()
{
	Params p = Params(push.params);
	uint M = p.w[MATMUL_M], N = p.w[MATMUL_N], K = p.w[MATMUL_K];
	uint group = linear_group(p), tiles = p.w[MATMUL_COL_TILES];

	if (group >= p.w[MATMUL_TILES])
		return;

	uint row = group / tiles;
	uint col = group % tiles * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
	float sum = 0.0;

	if (col >= N)
		return;
	for (uint k = 0; k < K; k++)
		sum += load1(p.address[0], row * K + k) * load1(p.address[1], k * N + col);
	store1(p.address[PARAM_OUT], row * N + col, sum);
}
