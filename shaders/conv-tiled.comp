#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Conv as a matrix product that is never laid out: filters by taps times taps by positions, in
 * shared-memory tiles, for GPUs.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "window.glsl"

layout(local_size_x_id = 0) in;

uint filters, pixels, taps, out_w, in_h, in_w, kernel_h, kernel_w;
uint stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
uint64_t weights, image;

#define TILE_A_K_FIRST true
#define TILE_B_K_FIRST false

float tile_a(uint row, uint k)
{
	return row < filters && k < taps ? In1(weights + (uint64_t(row) * taps + k) * 4ul).v : 0.0;
}

float tile_b(uint k, uint col)
{
	if (k >= taps || col >= pixels)
		return 0.0;

	uint kx = k % kernel_w, rest = k / kernel_w;
	uint ky = rest % kernel_h, c = rest / kernel_h;
	uint iy = window_at(col / out_w, ky, stride_h, dilation_h, pad_h);
	uint ix = window_at(col % out_w, kx, stride_w, dilation_w, pad_w);

	return iy < in_h && ix < in_w ? load1(image, (c * in_h + iy) * in_w + ix) : 0.0;
}

#include "tile.glsl"

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), tiles = p.w[CONV_COL_TILES];
	uint x = gl_LocalInvocationID.x % 16, y = gl_LocalInvocationID.x / 16;

	if (group >= p.w[CONV_TILES])
		return;
	filters = p.w[CONV_OUT_CHANNELS];
	in_h = p.w[WINDOW_IN_H];
	in_w = p.w[WINDOW_IN_W];
	out_w = p.w[WINDOW_OUT_W];
	kernel_h = p.w[WINDOW_KERNEL_H];
	kernel_w = p.w[WINDOW_KERNEL_W];
	stride_h = p.w[WINDOW_STRIDE_H];
	stride_w = p.w[WINDOW_STRIDE_W];
	dilation_h = p.w[WINDOW_DILATION_H];
	dilation_w = p.w[WINDOW_DILATION_W];
	pad_h = p.w[WINDOW_PAD_H];
	pad_w = p.w[WINDOW_PAD_W];
	pixels = p.w[WINDOW_OUT_H] * out_w;
	taps = p.w[CONV_IN_CHANNELS] * kernel_h * kernel_w;

	uint row = group / tiles * TILE, col = group % tiles * TILE;

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint part = z % p.w[CONV_GROUPS];
		uint64_t o = p.address[3] + uint64_t(z) * filters * pixels * 4ul;
		vec4 sum[4];

		weights = p.address[1] + uint64_t(part) * filters * taps * 4ul;
		image = p.address[0] + uint64_t(z) * p.w[CONV_IN_CHANNELS] * in_h * in_w * 4ul;
		tile_product(row, col, taps, sum);
		[[unroll]] for (uint r = 0; r < 4; r++) {
			uint m = row + 4 * y + r;
			float bias = m < filters && p.w[CONV_HAS_BIAS] != 0 ?
					     load1(p.address[2], part * filters + m) :
					     0.0;

			[[unroll]] for (uint c = 0; c < 4; c++) {
				uint n = col + x + 16 * c;

				if (m < filters && n < pixels)
					store1(o, m * pixels + n, sum[r][c] + bias);
			}
		}
	}
}
