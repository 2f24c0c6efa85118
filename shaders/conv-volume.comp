#version 460
/* SPDX-License-Identifier: MIT */
/* Conv over depth, height and width: one output per invocation. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "activation.glsl"
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

	uint channels = p.w[CONV_IN_CHANNELS], filters = p.w[CONV_OUT_CHANNELS] * p.w[CONV_GROUPS];
	uint in_d = p.w[WINDOW_IN_D], in_h = p.w[WINDOW_IN_H], in_w = p.w[WINDOW_IN_W];
	uint x = index % p.w[WINDOW_OUT_W], rest = index / p.w[WINDOW_OUT_W];
	uint y = rest % p.w[WINDOW_OUT_H];

	rest /= p.w[WINDOW_OUT_H];

	uint z = rest % p.w[WINDOW_OUT_D];

	rest /= p.w[WINDOW_OUT_D];

	uint filter_at = rest % filters;
	/* The group's first channel, counted over all images. */
	uint channel = (rest / filters * p.w[CONV_GROUPS] + filter_at / p.w[CONV_OUT_CHANNELS]) *
		       channels;
	uint tap = filter_at * channels * p.w[WINDOW_KERNEL_D] * p.w[WINDOW_KERNEL_H] *
		   p.w[WINDOW_KERNEL_W];
	REAL sum = p.w[CONV_HAS_BIAS] != 0 ? load1(p.address[2], filter_at) : 0.0;

	for (uint c = 0; c < channels; c++)
		for (uint kz = 0; kz < p.w[WINDOW_KERNEL_D]; kz++) {
			uint iz = window_at(z, kz, p.w[WINDOW_STRIDE_D], p.w[WINDOW_DILATION_D],
					    p.w[WINDOW_PAD_D]);

			for (uint ky = 0; ky < p.w[WINDOW_KERNEL_H]; ky++) {
				uint iy = window_at(y, ky, p.w[WINDOW_STRIDE_H],
						    p.w[WINDOW_DILATION_H], p.w[WINDOW_PAD_H]);
				uint line = (((channel + c) * in_d + iz) * in_h + iy) * in_w;
				bool is_line = iz < in_d && iy < in_h;

				for (uint kx = 0; kx < p.w[WINDOW_KERNEL_W]; kx++, tap++) {
					uint ix = window_at(x, kx, p.w[WINDOW_STRIDE_W],
							    p.w[WINDOW_DILATION_W],
							    p.w[WINDOW_PAD_W]);

					if (is_line && ix < in_w)
						sum += load1(p.address[1], tap) *
						       load1(p.address[0], line + ix);
				}
			}
		}
	store1(p.address[PARAM_OUT], index, activate(p, sum));
}
