#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Conv for few output channels per group, as in depthwise convolution, for GPUs. Each invocation
 * computes ROWS output channels at POSITIONS positions, which are a workgroup's size apart, so that
 * adjacent invocations load adjacent elements.
 *
 * Weights are the same for all invocations: AMD's compiler loads them into scalar registers, and a
 * multiply-add can use one of these directly. Positions outside the image read the image's first
 * element and become zero: there are no branches, and the waits of the loads overlap.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "activation.glsl"
#include "window.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 1;
layout(constant_id = 2) const uint POSITIONS = 2;

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
	uint x[POSITIONS], y[POSITIONS];

	[[unroll]] for (uint i = 0; i < POSITIONS; i++) {
		uint pixel = min(col + gl_WorkGroupSize.x * i, pixels - 1);

		x[i] = window_at(pixel % out_w, 0, p.w[WINDOW_STRIDE_W], 0, p.w[WINDOW_PAD_W]);
		y[i] = window_at(pixel / out_w, 0, p.w[WINDOW_STRIDE_H], 0, p.w[WINDOW_PAD_H]);
	}

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint part = z % p.w[CONV_GROUPS], plane = 0, tap = 0;
		uint64_t image = at(p.address[0], z * channels * in_h * in_w);
		uint64_t o = at(p.address[PARAM_OUT], z * filters * pixels);
		uint64_t weight_at[ROWS];
		float sum[ROWS][POSITIONS];

		[[unroll]] for (uint r = 0; r < ROWS; r++) {
			uint filter_at = part * filters + min(row + r, filters - 1);

			weight_at[r] = at(p.address[1], filter_at * taps);
			[[unroll]] for (uint i = 0; i < POSITIONS; i++)
				sum[r][i] = p.w[CONV_HAS_BIAS] != 0 ?
						    load1(p.address[2], filter_at) :
						    0.0;
		}
		for (uint c = 0; c < channels; c++) {
			for (uint ky = 0; ky < kernel_h; ky += dilation_h) {
				uint line[POSITIONS];
				bool is_line[POSITIONS];

				[[unroll]] for (uint i = 0; i < POSITIONS; i++) {
					line[i] = plane + (y[i] + ky) * in_w + x[i];
					is_line[i] = y[i] + ky < in_h;
				}
				for (uint kx = 0; kx < kernel_w; kx += dilation_w) {
					float v[POSITIONS];

					[[unroll]] for (uint i = 0; i < POSITIONS; i++) {
						bool inside = is_line[i] && x[i] + kx < in_w;
						float loaded = load1(image, inside ? line[i] + kx : 0);

						v[i] = inside ? loaded : 0.0;
					}
					[[unroll]] for (uint r = 0; r < ROWS; r++) {
						float weight = load1(weight_at[r], tap);

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
					store1(o, (row + r) * pixels + n, activate(p, sum[r][i]));
			}
	}
}
