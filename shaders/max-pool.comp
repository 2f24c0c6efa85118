#version 460
/* SPDX-License-Identifier: MIT */
/* MaxPool: one output per invocation; padding never wins. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "window.glsl"

layout(local_size_x_id = 0) in;

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p);
	uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

	if (group >= (p.w[WINDOW_TOTAL] + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x ||
	    index >= p.w[WINDOW_TOTAL])
		return;

	uint in_h = p.w[WINDOW_IN_H], in_w = p.w[WINDOW_IN_W];
	uint x = index % p.w[WINDOW_OUT_W], rest = index / p.w[WINDOW_OUT_W];
	uint y = rest % p.w[WINDOW_OUT_H], image = rest / p.w[WINDOW_OUT_H];
	float most = uintBitsToFloat(0xff800000u);

	for (uint ky = 0; ky < p.w[WINDOW_KERNEL_H]; ky++) {
		uint iy = window_at(y, ky, p.w[WINDOW_STRIDE_H], p.w[WINDOW_DILATION_H],
				    p.w[WINDOW_PAD_H]);

		if (iy >= in_h)
			continue;
		for (uint kx = 0; kx < p.w[WINDOW_KERNEL_W]; kx++) {
			uint ix = window_at(x, kx, p.w[WINDOW_STRIDE_W], p.w[WINDOW_DILATION_W],
					    p.w[WINDOW_PAD_W]);

			if (ix < in_w)
				most = max(most, load1(p.address[0], (image * in_h + iy) * in_w + ix));
		}
	}
	store1(p.address[PARAM_OUT], index, most);
}
