#version 460
/* SPDX-License-Identifier: MIT */
/*
 * ConvInteger: like conv-direct.comp, each invocation computes ROWS output channels of a group at
 * POSITIONS positions, which are a workgroup's size apart. Positions outside the image count as the
 * image's zero point.
 *
 * Weights are the same for all invocations: each invocation loads the weight of one row, and the
 * subgroup, if it is large enough, broadcasts them. No invocation may return early.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "window.glsl"
#include "integer.glsl"
#extension GL_KHR_shader_subgroup_ballot : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 1;
layout(constant_id = 2) const uint POSITIONS = 2;
/* 1: the subgroup is known to have ROWS invocations */
layout(constant_id = 3) const uint LARGE = 0;

int weight_at(Params p, uint filter_at, uint taps, uint tap, int zero)
{
	uint byte = load_byte(p.address[1] + uint64_t(filter_at) * taps, tap);

	return int(byte ^ p.w[INTEGER_B_FLIP]) - zero;
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), tiles = p.w[CONV_COL_TILES];

	if (group >= p.w[CONV_TILES])
		return;

	uint in_h = p.w[WINDOW_IN_H], in_w = p.w[WINDOW_IN_W], out_w = p.w[WINDOW_OUT_W];
	uint dilation_h = p.w[WINDOW_DILATION_H], dilation_w = p.w[WINDOW_DILATION_W];
	uint kernel_h = p.w[WINDOW_KERNEL_H] * dilation_h;
	uint kernel_w = p.w[WINDOW_KERNEL_W] * dilation_w;
	uint channels = p.w[CONV_IN_CHANNELS], filters = p.w[CONV_OUT_CHANNELS];
	uint taps = channels * p.w[WINDOW_KERNEL_H] * p.w[WINDOW_KERNEL_W];
	uint pixels = p.w[WINDOW_OUT_H] * out_w;
	uint row = group / tiles * ROWS;
	uint col = group % tiles * gl_WorkGroupSize.x * POSITIONS + gl_LocalInvocationID.x;
	uint x_flip = p.w[INTEGER_A_FLIP];
	int x_zero = zero_of_a(p, 0);
	uint x[POSITIONS], y[POSITIONS];

	[[unroll]] for (uint i = 0; i < POSITIONS; i++) {
		uint pixel = min(col + gl_WorkGroupSize.x * i, pixels - 1);

		x[i] = window_at(pixel % out_w, 0, p.w[WINDOW_STRIDE_W], 0, p.w[WINDOW_PAD_W]);
		y[i] = window_at(pixel / out_w, 0, p.w[WINDOW_STRIDE_H], 0, p.w[WINDOW_PAD_H]);
	}

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint part = z % p.w[CONV_GROUPS], plane = 0, tap = 0;
		uint64_t image = p.address[0] + uint64_t(z) * (channels * in_h * in_w);
		uint64_t o = p.address[PARAM_OUT] + uint64_t(z) * (filters * pixels) * 4ul;
		uint mine = part * filters +
			    min(row + gl_SubgroupInvocationID % ROWS, filters - 1);
		int zero = zero_of_b(p, mine), sum[ROWS][POSITIONS];

		[[unroll]] for (uint r = 0; r < ROWS; r++) {
			uint filter_at = part * filters + min(row + r, filters - 1);
			int bias = 0;

			if (p.w[CONV_HAS_BIAS] != 0)
				bias = InInt(p.address[4] + uint64_t(filter_at) * 4ul).v;
			[[unroll]] for (uint i = 0; i < POSITIONS; i++)
				sum[r][i] = bias;
		}
		for (uint c = 0; c < channels; c++) {
			for (uint ky = 0; ky < kernel_h; ky += dilation_h) {
				for (uint kx = 0; kx < kernel_w; kx += dilation_w) {
					int v[POSITIONS];
					int ours = weight_at(p, mine, taps, tap, zero);

					[[unroll]] for (uint i = 0; i < POSITIONS; i++) {
						uint at_y = y[i] + ky, at_x = x[i] + kx;
						bool inside = at_y < in_h && at_x < in_w;
						uint byte = load_byte(image, inside ? plane + at_y * in_w + at_x : 0);

						v[i] = inside ? int(byte ^ x_flip) - x_zero : 0;
					}
					[[unroll]] for (uint r = 0; r < ROWS; r++) {
						uint filter_at = part * filters +
								 min(row + r, filters - 1);
						int weight = LARGE != 0 || gl_SubgroupSize >= ROWS ?
								     subgroupBroadcast(ours, r) :
								     weight_at(p, filter_at, taps, tap,
									       zero_of_b(p, filter_at));

						[[unroll]] for (uint i = 0; i < POSITIONS; i++)
							sum[r][i] += weight * v[i];
					}
					tap++;
				}
			}
			plane += in_h * in_w;
		}

		[[unroll]] for (uint r = 0; r < ROWS; r++)
			[[unroll]] for (uint i = 0; i < POSITIONS; i++) {
				uint n = col + gl_WorkGroupSize.x * i;

				if (row + r < filters && n < pixels)
					OutInt(o + uint64_t((row + r) * pixels + n) * 4ul).v = sum[r][i];
			}
	}
}
