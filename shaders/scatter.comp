#version 460
/* SPDX-License-Identifier: MIT */
/*
 * ScatterElements, ScatterND: every invocation has elements of the output, and looks through all
 * updates that may be meant for one, in their order. So nothing is written twice, the result is the
 * same each time, and it is that of the CPU; lower-gather.c sees to it that there are not too many.
 * Also compiled for float64 (-DDOUBLES).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "index.glsl"
#include "types.glsl"

/* The output in order */
#define SCATTER_TOTAL      0
#define SCATTER_GROUPS     1
#define SCATTER_WIDE       2
#define SCATTER_REDUCTION  3 /* enum op_scatter */
#define SCATTER_N          4 /* ScatterND: numbers that make an index; 0: ScatterElements */
#define SCATTER_COUNT      5 /* updates that may be meant for an element */
#define SCATTER_RUN        6 /* ScatterND: elements of a row */
#define SCATTER_LIMITS     8 /* ScatterND: [8] */
#define SCATTER_STRIDES    16 /* ScatterND: [8], in rows */
#define SCATTER_RANK       7 /* ScatterElements */
#define SCATTER_DIMS       8 /* ScatterElements: [8], of the output */
#define SCATTER_FLAT_DIMS  16 /* ScatterElements: [8], of indices and updates; the axis is 1 long */
#define SCATTER_FLAT       24 /* ScatterElements: [8], strides of these */
#define SCATTER_AXIS       32 /* ScatterElements: which dimension */
#define SCATTER_STEP       33 /* ScatterElements: of indices along the axis */

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENTS = 1; /* per invocation */
layout(constant_id = 2) const uint TYPE = 1;	 /* enum rbk_dtype; any of the width to move */

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

/* What an element @y becomes by an update @u; the larger and the smaller of a NaN is one. */
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
		/* Rows: which one, and which element of it. */
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
		/* Beyond the indices there are no updates. */
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
