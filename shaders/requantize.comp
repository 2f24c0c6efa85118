#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Conversion of the sums of QLinearMatMul and QLinearConv to bytes: multiply by the operands'
 * scales, divide by the result's scale, add its zero point. Four adjacent elements per invocation
 * and iteration.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "bytes.glsl"
#include "quotient.glsl"

/* Scales: element i has scale i / run % n, of n scales */
#define REQUANTIZE_TOTAL    0
#define REQUANTIZE_GROUPS   1
#define REQUANTIZE_A_RUN    2
#define REQUANTIZE_A        3
#define REQUANTIZE_B_RUN    4
#define REQUANTIZE_B        5
#define REQUANTIZE_HAS_ZERO 6

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint QUADS = 1; /* per invocation */
layout(constant_id = 2) const uint SIGNED = 0;

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[REQUANTIZE_TOTAL];
	int zero = 0;

	if (group >= p.w[REQUANTIZE_GROUPS])
		return;
	if (p.w[REQUANTIZE_HAS_ZERO] != 0)
		zero = signed_byte(load_byte(p.address[4], 0), SIGNED != 0);

	uint n_a = p.w[REQUANTIZE_A], n_b = p.w[REQUANTIZE_B];
	float result = load1(p.address[3], 0);
	float scale = quotient(load1(p.address[1], 0) * load1(p.address[2], 0), result);

	for (uint j = 0; j < QUADS; j++) {
		uint i = ((group * QUADS + j) * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * 4;
		uvec4 sums, bytes;

		if (i >= total)
			break;
		sums = load_words(p.address[0], i, total);
		[[unroll]] for (uint c = 0; c < 4; c++) {
			uint index = min(i + c, total - 1);

			if (n_a > 1 || n_b > 1)
				scale = quotient(load1(p.address[1],
						       index / p.w[REQUANTIZE_A_RUN] % n_a) *
							 load1(p.address[2],
							       index / p.w[REQUANTIZE_B_RUN] % n_b),
						 result);
			bytes[c] = to_byte(float(int(sums[c])) * scale, zero,
					   SIGNED != 0);
		}
		store_quad(p.address[PARAM_OUT], i, total, bytes);
	}
}
