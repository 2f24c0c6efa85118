#version 460
/* SPDX-License-Identifier: MIT */
/*
 * ScatterElements, ScatterND: each invocation computes elements of the output, and examines in
 * order all updates that may apply to one. So no element is written twice, and the result is
 * deterministic and equal to the CPU's. lower-gather.c limits the number of updates. Also compiled
 * for float64 (-DDOUBLES).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "index.glsl"
#include "types.glsl"

/* Elements of the output in order */
#define SCATTER_TOTAL      0
#define SCATTER_GROUPS     1
#define SCATTER_WIDE       2
#define SCATTER_REDUCTION  3 /* enum op_scatter */
#define SCATTER_N          4 /* ScatterND: components of an index; 0: ScatterElements */
#define SCATTER_COUNT      5 /* updates that may apply to an element */
#define SCATTER_RUN        6 /* ScatterND: elements of a row */
#define SCATTER_LIMITS     8 /* ScatterND: [8] */
#define SCATTER_STRIDES    16 /* ScatterND: [8], in rows */
#define SCATTER_RANK       7 /* ScatterElements */
#define SCATTER_DIMS       8 /* ScatterElements: [8], the output's sizes */
/* ScatterElements: [8], sizes of indices and updates; 1 along the axis */
#define SCATTER_FLAT_DIMS  16
#define SCATTER_FLAT       24 /* ScatterElements: [8], strides of indices and updates */
#define SCATTER_AXIS       32 /* ScatterElements: the axis */
#define SCATTER_STEP       33 /* ScatterElements: stride of indices along the axis */

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENTS = 1; /* per invocation */
/* enum rbk_dtype; without a reduction, any type of the width */
layout(constant_id = 2) const uint TYPE = 1;

const uint NONE = 0, ADD = 1, MUL = 2, MAX = 3, MIN = 4;

#ifdef DOUBLES
#define IS_FLOAT true

double number_of(uint64_t bits)
{
	return double_of(bits);
}

uint64_t bits_of_number(double x)
{
	return bits_of(x);
}
#else
#define IS_FLOAT is_float(TYPE)

bool is_nan(float x)
{
	return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

float number_of(uint64_t bits)
{
	return to_float(TYPE, bits);
}

uint64_t bits_of_number(float x)
{
	return from_float(TYPE, x);
}
#endif

/* Return element @y updated by @u; if either is a NaN, so are the maximum and the minimum. */
REAL reduce_float(uint reduction, REAL y, REAL u)
{
	switch (reduction) {
	case ADD:
		return y + u;
	case MUL:
		return y * u;
	}
	if (is_nan(y))
		return y;
	if (is_nan(u))
		return u;
	return (reduction == MAX ? u > y : u < y) ? u : y;
}

int64_t reduce_integer(uint reduction, int64_t y, int64_t u)
{
	switch (reduction) {
	case ADD:
		return y + u;
	case MUL:
		return y * u;
	}
	return (reduction == MAX ? u > y : u < y) ? u : y;
}

void element(Params p, uint index)
{
	uint n = p.w[SCATTER_N], reduction = p.w[SCATTER_REDUCTION], count = p.w[SCATTER_COUNT];
	uint run = p.w[SCATTER_RUN], wanted, first = 0, limit = 0, at;
	uint64_t bits = load_bits(TYPE, p.address[0], index), update;
	REAL y = 0.0;
	int64_t i = 0l;
	bool is_touched = false, reports;

	if (reduction != NONE && IS_FLOAT)
		y = number_of(bits);
	else if (reduction != NONE)
		i = to_integer(TYPE, bits);
	if (n > 0) {
		/* wanted: the row; first: the element of the row. */
		wanted = index / run;
		first = index % run;
		reports = index == 0;
	} else {
		uint rest = index, axis = p.w[SCATTER_AXIS];
		bool is_flat = true;

		for (uint d = p.w[SCATTER_RANK]; d > 0; d--) {
			uint size = p.w[SCATTER_DIMS + d - 1], coordinate = rest % size;

			rest /= size;
			if (d - 1 == axis) {
				wanted = coordinate;
				limit = size;
				continue;
			}
			is_flat = is_flat && coordinate < p.w[SCATTER_FLAT_DIMS + d - 1];
			first += coordinate * p.w[SCATTER_FLAT + d - 1];
		}
		/* Elements beyond the indices have no updates. */
		if (!is_flat)
			count = 0;
		reports = wanted == 0;
	}
	for (uint k = 0; k < count; k++) {
		bool good = true;
		uint target = 0, from;

		if (n > 0) {
			for (uint d = 0; d < n; d++) {
				good = load_index(p.address[1], p.w[SCATTER_WIDE], k * n + d,
						  p.w[SCATTER_LIMITS + d], at) && good;
				target += at * p.w[SCATTER_STRIDES + d];
			}
			from = k * run + first;
		} else {
			from = k * p.w[SCATTER_STEP] + first;
			good = load_index(p.address[1], p.w[SCATTER_WIDE], from, limit, target);
		}
		if (!good && reports)
			report_out_of_range();
		if (!good || target != wanted)
			continue;
		update = load_bits(TYPE, p.address[2], from);
		is_touched = true;
		if (reduction == NONE)
			bits = update;
		else if (IS_FLOAT)
			y = reduce_float(reduction, y, number_of(update));
		else
			i = reduce_integer(reduction, i, to_integer(TYPE, update));
	}
	if (is_touched && reduction != NONE)
		bits = IS_FLOAT ? bits_of_number(y) : uint64_t(i);
	store_bits(TYPE, p.address[PARAM_OUT], index, bits);
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[SCATTER_TOTAL];

	if (group >= p.w[SCATTER_GROUPS])
		return;
	for (uint i = 0; i < ELEMENTS; i++) {
		uint index = (group * ELEMENTS + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

		if (index >= total)
			break;
		element(p, index);
	}
}
