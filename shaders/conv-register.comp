#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Conv without shared memory: each invocation computes SETS times ROWS output channels at four
 * consecutive positions. Used on software devices, and everywhere for few channels per group.
 *
 * With more than one row, the workgroup is one subgroup of ROWS invocations: each loads the weights
 * of one row of each set and broadcasts them, as in matmul-register.comp. No invocation may return
 * early.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "activation.glsl"
#include "window.glsl"
#extension GL_KHR_shader_subgroup_ballot : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 8;
layout(constant_id = 2) const uint SETS = 1;

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), tiles = p.w[CONV_COL_TILES];

	if (group >= p.w[CONV_TILES])
		return;

	uint in_h = p.w[WINDOW_IN_H], in_w = p.w[WINDOW_IN_W], out_w = p.w[WINDOW_OUT_W];
	uint kernel_h = p.w[WINDOW_KERNEL_H], kernel_w = p.w[WINDOW_KERNEL_W];
	uint channels = p.w[CONV_IN_CHANNELS], filters = p.w[CONV_OUT_CHANNELS];
	uint pixels = p.w[WINDOW_OUT_H] * out_w;
	uint row = group / tiles * ROWS * SETS;
	uint col = (group % tiles * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * 4;

	uvec4 pixel = min(col + uvec4(0, 1, 2, 3), uvec4(pixels - 1));
	uvec4 oy = pixel / out_w, ox = pixel % out_w;

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint part = z % p.w[CONV_GROUPS];
		uint64_t image = p.address[0] + uint64_t(z) * channels * in_h * in_w * ELEMENT;
		uint64_t weights[SETS];
		vec4 sum[ROWS * SETS];

		[[unroll]] for (uint set = 0; set < SETS; set++) {
			uint mine = min(row + ROWS * set + gl_LocalInvocationID.x % ROWS, filters - 1);
			uint filter_at = part * filters + mine;
			float bias = p.w[CONV_HAS_BIAS] != 0 ? load1(p.address[2], filter_at) : 0.0;

			weights[set] = p.address[1] + uint64_t(filter_at) * channels * kernel_h *
							      kernel_w * ELEMENT;
			[[unroll]] for (uint r = 0; r < ROWS; r++)
				sum[ROWS * set + r] =
					vec4(ROWS == 1 ? bias : subgroupBroadcast(bias, r));
		}
		for (uint c = 0; c < channels; c++) {
			for (uint ky = 0; ky < kernel_h; ky++) {
				uvec4 iy = oy * p.w[WINDOW_STRIDE_H] +
					   ky * p.w[WINDOW_DILATION_H] - p.w[WINDOW_PAD_H];
				uvec4 line = (c * in_h + iy) * in_w;

				for (uint kx = 0; kx < kernel_w; kx++) {
					uvec4 ix = ox * p.w[WINDOW_STRIDE_W] +
						   kx * p.w[WINDOW_DILATION_W] - p.w[WINDOW_PAD_W];
					bvec4 inside = bvec4(uvec4(lessThan(iy, uvec4(in_h))) &
							     uvec4(lessThan(ix, uvec4(in_w))));
					uint tap = (c * kernel_h + ky) * kernel_w + kx;
					vec4 v = vec4(0.0);

					if (inside.x)
						v.x = load1(image, line.x + ix.x);
					if (inside.y)
						v.y = load1(image, line.y + ix.y);
					if (inside.z)
						v.z = load1(image, line.z + ix.z);
					if (inside.w)
						v.w = load1(image, line.w + ix.w);

					[[unroll]] for (uint set = 0; set < SETS; set++) {
						float ours = load1(weights[set], tap);

						if (ROWS == 1)
							sum[set] += ours * v;
						else
							[[unroll]] for (uint r = 0; r < ROWS; r++)
								sum[ROWS * set + r] +=
									subgroupBroadcast(ours, r) * v;
					}
				}
			}
		}

		Activation activation = activation_of(p);
		uint64_t o = p.address[PARAM_OUT] + uint64_t(z) * filters * pixels * ELEMENT;

		/* A loop that selects the row's sums, to reduce the code to compile. */
		for (uint r = 0; r < ROWS * SETS && row + r < filters; r++) {
			vec4 v = sum[0];

			[[unroll]] for (uint i = 1; i < ROWS * SETS; i++)
				v = r == i ? sum[i] : v;
			v = activate4(activation, v);
			[[unroll]] for (uint i = 0; i < 4; i++)
				if (col + i < pixels)
					store1(o, (row + r) * pixels + col + i, v[i]);
		}
	}
}
