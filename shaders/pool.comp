#version 460
/* SPDX-License-Identifier: MIT */
/*
 * MaxPool, AveragePool, LpPool: one output per invocation. Taps outside the input are skipped. Also
 * compiled for bytes (-DBYTES), which floats hold exactly.
 *
 * MaxPool takes the first of equal maxima; a NaN is never the maximum.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "window.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint KIND = POOL_MAX;
layout(constant_id = 2) const uint SIGNED = 0; /* bytes */

layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer Index { uvec2 v; };

#ifdef BYTES
#extension GL_EXT_shader_8bit_storage : require
layout(buffer_reference, std430, buffer_reference_align = 1) readonly buffer InByte { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 1) writeonly buffer OutByte { uint8_t v; };

REAL load(uint64_t base, uint index)
{
	int bits = int(uint(InByte(base + uint64_t(index)).v));

	return REAL(SIGNED != 0 && bits > 127 ? bits - 256 : bits);
}

void store(uint64_t base, uint index, REAL value)
{
	OutByte(base + uint64_t(index)).v = uint8_t(uint(int(value)) & 0xffu);
}

const REAL LEAST = SIGNED != 0 ? -128.0 : 0.0;
#else
REAL load(uint64_t base, uint index)
{
	return load1(base, index);
}

void store(uint64_t base, uint index, REAL value)
{
	store1(base, index, value);
}

#define LEAST REAL(uintBitsToFloat(0xff800000u))
#endif

#ifdef DOUBLES
#include "double-exp.glsl"

double root_of(double x, uint p)
{
	return exp_of(log_of(x) / double(p));
}
#else
float root_of(float x, uint p)
{
	return pow(x, 1.0 / float(p));
}
#endif

/* Return |x| to the power @p, by squaring. */
REAL power_of(REAL x, uint p)
{
	REAL power = abs(x), product = 1.0;

	for (uint bits = p; bits != 0; bits >>= 1) {
		if ((bits & 1u) != 0)
			product *= power;
		power *= power;
	}
	return product;
}

/* Return the first tap of a window that falls into [0, limit), and the one behind the last. */
uvec2 taps_of(uint o, uint d, uint pad, uint limit, Params p)
{
	uint dilation = p.w[WINDOW_OF(WINDOW_DILATION_H, d)];
	int from = int(o * p.w[WINDOW_OF(WINDOW_STRIDE_H, d)]) - int(pad);
	uint begin = from < 0 ? (uint(-from) + dilation - 1) / dilation : 0;
	uint end = from >= int(limit) ? 0 :
		   min(p.w[WINDOW_OF(WINDOW_KERNEL_H, d)], uint(int(limit) - 1 - from) / dilation + 1);

	return uvec2(min(begin, end), end);
}

/* Return the index of pixel @pixel of a channel; @pixel is in C order. */
uint index_of(uint pixel, uint in_d, uint in_h, uint in_w, Params p)
{
	uint x = pixel % in_w, row = pixel / in_w;

	if ((p.w[POOL_FLAGS] & POOL_COLUMN_MAJOR) == 0)
		return pixel;
	return (x * in_h + row % in_h) * in_d + row / in_h;
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p);
	uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

	if (group >= (p.w[WINDOW_TOTAL] + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x ||
	    index >= p.w[WINDOW_TOTAL])
		return;

	uint rest = index, counted = 1, best = 0;
	uint out_at[3], pixels = 1;
	uvec2 taps[3];
	REAL value = KIND == POOL_MAX ? LEAST : 0.0;

	[[unroll]] for (uint d = 3; d-- > 0;) {
		uint limit = p.w[WINDOW_OF(WINDOW_IN_H, d)], pad = p.w[WINDOW_OF(WINDOW_PAD_H, d)];

		out_at[d] = rest % p.w[WINDOW_OF(WINDOW_OUT_H, d)];
		rest /= p.w[WINDOW_OF(WINDOW_OUT_H, d)];
		pixels *= limit;
		taps[d] = taps_of(out_at[d], d, pad, limit, p);
		if (KIND == POOL_AVERAGE) {
			uvec2 counts = taps[d];

			if ((p.w[POOL_FLAGS] & POOL_INCLUDES_PAD) != 0)
				counts = taps_of(out_at[d], d, 0,
						 limit + pad + p.w[POOL_PAD_END + d], p);
			counted *= counts.y - counts.x;
		}
	}

	uint in_h = p.w[WINDOW_IN_H], in_w = p.w[WINDOW_IN_W], image = rest * pixels;
	bool found = false;

	for (uint kz = taps[0].x; kz < taps[0].y; kz++) {
		uint iz = window_at(out_at[0], kz, p.w[WINDOW_STRIDE_D], p.w[WINDOW_DILATION_D],
				    p.w[WINDOW_PAD_D]);

		for (uint ky = taps[1].x; ky < taps[1].y; ky++) {
			uint iy = window_at(out_at[1], ky, p.w[WINDOW_STRIDE_H],
					    p.w[WINDOW_DILATION_H], p.w[WINDOW_PAD_H]);

			for (uint kx = taps[2].x; kx < taps[2].y; kx++) {
				uint pixel = (iz * in_h + iy) * in_w +
					     window_at(out_at[2], kx, p.w[WINDOW_STRIDE_W],
						       p.w[WINDOW_DILATION_W], p.w[WINDOW_PAD_W]);
				REAL v = load(p.address[0], image + pixel);

				if (KIND == POOL_AVERAGE) {
					value += v;
				} else if (KIND == POOL_LP) {
					value += power_of(v, p.w[POOL_P]);
				} else {
					bool more = v > value;

					best = more || !found ? pixel : best;
					value = more ? v : value;
					found = true;
				}
			}
		}
	}
	if (KIND == POOL_AVERAGE)
		value /= REAL(max(counted, 1u));
	if (KIND == POOL_LP && p.w[POOL_P] == 2)
		value = sqrt(value);
	else if (KIND == POOL_LP && p.w[POOL_P] != 1)
		value = value == 0.0 ? REAL(0.0) : root_of(value, p.w[POOL_P]);
	store(p.address[PARAM_OUT], index, value);
	if (KIND == POOL_MAX && (p.w[POOL_FLAGS] & POOL_HAS_INDEX) != 0)
		Index(p.address[PARAM_OUT + 1] + uint64_t(index) * 8ul).v =
			uvec2(image + index_of(best, p.w[WINDOW_IN_D], in_h, in_w, p), 0);
}
