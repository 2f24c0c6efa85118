#version 460
/* SPDX-License-Identifier: MIT */
/*
 * GridSample: each result is computed from the pixels around a point of its picture. The grid gives
 * the point in units of half the picture, with 0 at its centre. The conversion to pixels repeats
 * the CPU's, operation by operation: the nearest pixel must not depend on the device. Exceptions
 * are reflections farther than 2^23 pixels, which float32 cannot distinguish.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#ifndef DOUBLES
#define floor_of floor
#define round_of roundEven
#endif

/* Results are [batch][channels][points], pictures [batch][channels][depth][height][width] */
#define SAMPLE_TOTAL       0
#define SAMPLE_GROUPS      1
#define SAMPLE_CHANNELS    2
#define SAMPLE_POINTS      3
#define SAMPLE_SIZES       4 /* [3]: width, height, depth (1 with two dimensions) */
#define SAMPLE_PADDING     7 /* as in enum op_sample_padding */
#define SAMPLE_ZEROS       0
#define SAMPLE_BORDER      1
#define SAMPLE_ALIGN       8 /* align_corners: corners are centres of pixels */

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENTS = 1; /* per invocation */
layout(constant_id = 2) const uint MODE = 0;     /* enum op_sample */
layout(constant_id = 3) const uint RANK = 2;     /* spatial dimensions */

const uint LINEAR = 0, NEAREST = 1;
/* Pixels per result along a dimension, and along the third. */
const uint TAPS = MODE == NEAREST ? 1 : MODE == LINEAR ? 2 : 4;
const uint TAPS_Z = RANK == 3 ? TAPS : 1;

/* Positions of the taps along a dimension, -1: none, and their weights. */
struct Axis {
	int at[4];
	REAL weight[4];
};

/* Round to the nearest integer; ties to even or, in three dimensions, away from 0. */
REAL rounded(REAL x)
{
	REAL size = abs(x), whole = round_of(size);

	if (RANK == 3 && size - whole == REAL(0.5))
		whole += REAL(1);
	return x < REAL(0) ? -whole : whole;
}

/* Reflect @x, which is outside [@low, @high], at both limits. */
REAL mirrored(REAL x, REAL low, REAL high)
{
	precise REAL range = high - low, beside = x < low ? low - x : x - high;
	precise REAL n = floor_of(beside / range), rest = n * range;
	bool odd = n != REAL(2) * floor_of(n * REAL(0.5));

	rest = beside - rest;
	if (!(range > REAL(0)))
		return low;
	return odd == (x < low) ? high - rest : low + rest;
}

/* Return the pixel for position @i of @size; -1: none, which counts as 0. */
int pixel_of(int i, int size, uint padding, bool align)
{
	uint period = align ? 2 * uint(size) - 2 : 2 * uint(size), at;

	if (i >= 0 && i < size)
		return i;
	if (padding == SAMPLE_ZEROS)
		return -1;
	if (padding == SAMPLE_BORDER || period == 0)
		return clamp(i, 0, size - 1);
	at = i < 0 ? period - 1 - uint(-i - 1) % period : uint(i) % period;
	if (at >= uint(size))
		at = align ? period - at : period - 1 - at;
	return int(at);
}

Axis axis_of(REAL n, uint size, uint padding, bool align)
{
	REAL last = REAL(size - 1), low = align ? REAL(0) : REAL(-0.5);
	REAL high = align ? last : last + REAL(0.5);
	precise REAL x = n + REAL(1), t;
	Axis axis;
	int first;

	if (align) {
		x = x * REAL(0.5);
		x = x * last;
	} else {
		x = x * REAL(size);
		x = (x - REAL(1)) * REAL(0.5);
	}
	if (MODE == NEAREST)
		x = rounded(x);
	if (x < low || x > high) {
		if (padding == SAMPLE_BORDER)
			x = clamp(x, REAL(0), last);
		else if (padding != SAMPLE_ZEROS)
			x = mirrored(x, low, high);
	}
	/* A NaN coordinate becomes far below; all taps of far points are outside the picture. */
	x = x > REAL(-4) ? x : REAL(-4);
	x = x < last + REAL(4) ? x : last + REAL(4);
	first = int(floor(x));
	t = x - REAL(first);
	if (MODE == NEAREST) {
		first = int(rounded(x));
		axis.weight[0] = REAL(1);
	} else if (MODE == LINEAR) {
		axis.weight[0] = REAL(1) - t;
		axis.weight[1] = t;
	} else {
		const REAL a = REAL(-0.75);
		REAL u = t + REAL(1), v = REAL(1) - t, w = REAL(2) - t;

		first--;
		axis.weight[0] = ((a * u - 5 * a) * u + 8 * a) * u - 4 * a;
		axis.weight[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
		axis.weight[2] = ((a + 2) * v - (a + 3)) * v * v + 1;
		axis.weight[3] = ((a * w - 5 * a) * w + 8 * a) * w - 4 * a;
	}
	[[unroll]] for (uint k = 0; k < TAPS; k++)
		axis.at[k] = pixel_of(first + int(k), int(size), padding, align);
	return axis;
}

REAL sample_of(Params p, uint plane, uint point)
{
	uint width = p.w[SAMPLE_SIZES], height = p.w[SAMPLE_SIZES + 1], depth = p.w[SAMPLE_SIZES + 2];
	uint padding = p.w[SAMPLE_PADDING];
	bool align = p.w[SAMPLE_ALIGN] != 0;
	uint grid = (plane / p.w[SAMPLE_CHANNELS] * p.w[SAMPLE_POINTS] + point) * RANK;
	Axis x = axis_of(load1(p.address[1], grid), width, padding, align);
	Axis y = axis_of(load1(p.address[1], grid + 1), height, padding, align), z;
	REAL sum = REAL(0);

	z.at[0] = 0;
	z.weight[0] = REAL(1);
	if (RANK == 3)
		z = axis_of(load1(p.address[1], grid + 2), depth, padding, align);
	[[unroll]] for (uint k = 0; k < TAPS_Z; k++)
		[[unroll]] for (uint j = 0; j < TAPS; j++)
			[[unroll]] for (uint i = 0; i < TAPS; i++) {
				REAL weight = z.weight[k] * y.weight[j] * x.weight[i];

				if (z.at[k] < 0 || y.at[j] < 0 || x.at[i] < 0)
					continue;
				sum += weight *
				       load1(p.address[0],
					     ((plane * depth + uint(z.at[k])) * height +
					      uint(y.at[j])) * width + uint(x.at[i]));
			}
	return sum;
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[SAMPLE_TOTAL];

	if (group >= p.w[SAMPLE_GROUPS])
		return;
	for (uint e = 0; e < ELEMENTS; e++) {
		uint index = (group * ELEMENTS + e) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

		if (index >= total)
			break;
		store1(p.address[PARAM_OUT], index,
		       sample_of(p, index / p.w[SAMPLE_POINTS], index % p.w[SAMPLE_POINTS]));
	}
}
