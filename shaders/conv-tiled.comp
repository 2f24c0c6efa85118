#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Conv as an implicit matrix product, filters by taps times taps by positions, in shared-memory
 * tiles, for GPUs.
 *
 * In each step, an invocation gathers several taps of one position. These taps are the same for all
 * invocations of a subgroup, which is no larger than a tile's columns. So scalar instructions
 * advance the taps' channel and place in the window, without division, and one or two vector
 * instructions add them to the window's origin. Positions outside the image read its first element
 * and become zero.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "activation.glsl"
#include "window.glsl"
#extension GL_KHR_shader_subgroup_ballot : require

layout(local_size_x_id = 0) in;
#define TILE_ID 1
#include "tile.glsl"

uint filters, pixels, taps, row, col, in_h, in_w, plane;
uint64_t weights, image;

/* A tap's channel and place in the window, in elements of the image. */
struct Tap {
	uint x, y, channel;
};
Tap next;  /* next tap of this subgroup */
Tap stride; /* step between this subgroup's taps */
Tap end, unit; /* unit: step from a tap to its neighbour */
uint window_x, window_y; /* window's origin at this invocation's position */

void step_tap(Tap by)
{
	next.x += by.x;
	next.y += by.y;
	next.channel += by.channel;
	if (next.x >= end.x) {
		next.x -= end.x;
		next.y += unit.y;
	}
	if (next.y >= end.y) {
		next.y -= end.y;
		next.channel += unit.channel;
	}
}

vec4 weights_at(uint m, uint k, bool whole)
{
	vec4 v = vec4(0.0);

	if (whole)
		return load4(weights, m * taps + k);
	[[unroll]] for (uint i = 0; i < 4; i++)
		if (k + i < taps)
			v[i] = load1(weights, m * taps + k + i);
	return v;
}

void tile_load(uint k0, bool whole)
{
	uint t = gl_LocalInvocationID.x, window = window_y * in_w + window_x;
	const uint size = gl_WorkGroupSize.x, k_quads = TILE_K / 4;
	uint c = t % TILE_COLS, kb = t / TILE_COLS, r = t / k_quads, k = t % k_quads * 4;

	[[unroll]] for (uint i = 0; i < TILE_COLS * TILE_K / size; i++) {
		bool inside = window_y + next.y < in_h && window_x + next.x < in_w &&
			      (whole || next.channel < end.channel);
		uint from = next.channel + next.y * in_w + next.x;
		float v = load1(image, inside ? window + from : 0);

		tile_bs[(kb + size / TILE_COLS * i) * TILE_B_LINE + c / 4][c % 4] = inside ? v : 0.0;
		step_tap(stride);
	}

	[[unroll]] for (uint load = 0; load < TILE_LOADS_A; load++) {
		uint more = size / k_quads * load;

		if (TILE_K < TILE_LANES && t >= TILE_ROWS * k_quads)
			break;

		vec4 v = weights_at(min(row + r + more, filters - 1), k0 + k, whole);

		[[unroll]] for (uint i = 0; i < 4; i++)
			tile_as[(k + i) * TILE_A_LINE + r / 4 + more / 4][r % 4] = v[i];
	}
}

/* Return the tap @n after the first, in the same units. */
Tap tap_at(Params p, uint n)
{
	uint kernel_w = p.w[WINDOW_KERNEL_W], kernel_h = p.w[WINDOW_KERNEL_H];
	uint lines = n / kernel_w;

	return Tap(n % kernel_w * p.w[WINDOW_DILATION_W], lines % kernel_h * unit.y,
		   lines / kernel_h * unit.channel);
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), tiles = p.w[CONV_COL_TILES];

	if (group >= p.w[CONV_TILES])
		return;

	uint out_w = p.w[WINDOW_OUT_W], channels = p.w[CONV_IN_CHANNELS];

	filters = p.w[CONV_OUT_CHANNELS];
	in_h = p.w[WINDOW_IN_H];
	in_w = p.w[WINDOW_IN_W];
	pixels = p.w[WINDOW_OUT_H] * out_w;
	taps = channels * p.w[WINDOW_KERNEL_H] * p.w[WINDOW_KERNEL_W];
	unit = Tap(p.w[WINDOW_DILATION_W], p.w[WINDOW_DILATION_H], in_h * in_w);
	end = Tap(p.w[WINDOW_KERNEL_W] * unit.x, p.w[WINDOW_KERNEL_H] * unit.y,
		  channels * unit.channel);
	stride = tap_at(p, gl_WorkGroupSize.x / TILE_COLS);
	row = group / tiles * TILE_ROWS;
	col = group % tiles * TILE_COLS;

	uint position = min(col + gl_LocalInvocationID.x % TILE_COLS, pixels - 1);

	window_x = window_at(position % out_w, 0, p.w[WINDOW_STRIDE_W], 0, p.w[WINDOW_PAD_W]);
	window_y = window_at(position / out_w, 0, p.w[WINDOW_STRIDE_H], 0, p.w[WINDOW_PAD_H]);

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint part = z % p.w[CONV_GROUPS], whole = taps & ~(TILE_K - 1);
		uint64_t o = p.address[PARAM_OUT] + uint64_t(z) * filters * pixels * ELEMENT;
		vec4 sum[TILE_SIDES][4];

		weights = p.address[1] + uint64_t(part) * filters * taps * ELEMENT;
		image = p.address[0] + uint64_t(z) * channels * unit.channel * ELEMENT;
		next = tap_at(p, subgroupBroadcastFirst(gl_LocalInvocationID.x / TILE_COLS));
		[[unroll]] for (uint r = 0; r < 4; r++)
			[[unroll]] for (uint side = 0; side < TILE_SIDES; side++)
				sum[side][r] = vec4(0.0);
		for (uint k = 0; k < whole; k += TILE_K)
			tile_step(k, true, sum);
		if (whole < taps)
			tile_step(whole, false, sum);

		uint x = gl_LocalInvocationID.x % TILE_LANES;
		uint m = row + 4 * (gl_LocalInvocationID.x / TILE_LANES);

		[[unroll]] for (uint r = 0; r < 4; r++) {
			if (m + r >= filters)
				break;

			float bias = p.w[CONV_HAS_BIAS] != 0 ?
					     load1(p.address[2], part * filters + m + r) :
					     0.0;

			[[unroll]] for (uint side = 0; side < TILE_SIDES; side++) {
				uint n = col + 4 * (x + TILE_LANES * side);
				vec4 v = activate4(p, sum[side][r] + bias);

				if (n + 4 <= pixels)
					store4(o, (m + r) * pixels + n, v);
				else
					[[unroll]] for (uint i = 0; i < 3; i++)
						if (n + i < pixels)
							store1(o, (m + r) * pixels + n + i, v[i]);
			}
		}
	}
}
