#version 460
/* SPDX-License-Identifier: MIT */
/*
 * ConvTranspose: one output per invocation, which sums the input elements that each tap would
 * scatter to it.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "activation.glsl"

layout(local_size_x_id = 0) in;

/*
 * Return the input position that tap @tap scatters to output @o along dimension @d; if there is
 * none, a position beyond the input.
 */
uint source_of(uint o, uint tap, uint d, Params p)
{
	uint at = o + p.w[WINDOW_OF(WINDOW_PAD_H, d)];
	uint back = tap * p.w[WINDOW_OF(WINDOW_DILATION_H, d)];
	uint stride = p.w[WINDOW_OF(WINDOW_STRIDE_H, d)];

	if (back > at || (at - back) % stride != 0)
		return 0xffffffffu;
	return (at - back) / stride;
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p);
	uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

	if (group >= (p.w[WINDOW_TOTAL] + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x ||
	    index >= p.w[WINDOW_TOTAL])
		return;

	uint channels = p.w[CONV_IN_CHANNELS], filters = p.w[CONV_OUT_CHANNELS];
	uint in_d = p.w[WINDOW_IN_D], in_h = p.w[WINDOW_IN_H], in_w = p.w[WINDOW_IN_W];
	uint pixels = in_d * in_h * in_w, rest = index;
	uint taps = p.w[WINDOW_KERNEL_D] * p.w[WINDOW_KERNEL_H] * p.w[WINDOW_KERNEL_W];
	uint x = rest % p.w[WINDOW_OUT_W];

	rest /= p.w[WINDOW_OUT_W];

	uint y = rest % p.w[WINDOW_OUT_H];

	rest /= p.w[WINDOW_OUT_H];

	uint z = rest % p.w[WINDOW_OUT_D];

	rest /= p.w[WINDOW_OUT_D];

	/* part and filter_at count all batches. */
	uint part = rest / filters, filter_at = rest % filters;
	uint from_filter = part % p.w[CONV_GROUPS] * channels * filters + filter_at;
	REAL sum = 0.0;

	if (p.w[CONV_HAS_BIAS] != 0)
		sum = load1(p.address[2], part % p.w[CONV_GROUPS] * filters + filter_at);
	for (uint kz = 0; kz < p.w[WINDOW_KERNEL_D]; kz++) {
		uint iz = source_of(z, kz, 0, p);

		if (iz >= in_d)
			continue;
		for (uint ky = 0; ky < p.w[WINDOW_KERNEL_H]; ky++) {
			uint iy = source_of(y, ky, 1, p);

			if (iy >= in_h)
				continue;
			for (uint kx = 0; kx < p.w[WINDOW_KERNEL_W]; kx++) {
				uint ix = source_of(x, kx, 2, p);
				uint tap = (kz * p.w[WINDOW_KERNEL_H] + ky) * p.w[WINDOW_KERNEL_W] +
					   kx;
				uint from = part * channels * pixels + (iz * in_h + iy) * in_w + ix;
				uint weight = from_filter * taps + tap;

				if (ix >= in_w)
					continue;
				for (uint c = 0; c < channels; c++) {
					sum += load1(p.address[0], from) *
					       load1(p.address[1], weight);
					from += pixels;
					weight += filters * taps;
				}
			}
		}
	}
	store1(p.address[PARAM_OUT], index, activate(p, sum));
}
