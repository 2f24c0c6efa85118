#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Elementwise operators that involve types other than floats: integers, bools, comparisons, Cast,
 * Where; with -DDOUBLES, also float64 (typed-double.glsl). Types are constants of the pipeline.
 * Integers are computed with 64 bits and truncated to their type's width. broker/cpu/map.h defines
 * the results that ONNX leaves undefined.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "map.glsl"
#include "types.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OPERATION = MAP_WHERE;
layout(constant_id = 2) const uint ELEMENTS = 1; /* per invocation */
/* enum rbk_dtype of the operands, except Where's condition */
layout(constant_id = 3) const uint TYPE = 1;
layout(constant_id = 4) const uint TO = 1;	 /* enum rbk_dtype of the result */

const bool BINARY = OPERATION <= MAP_BIT_SHIFT || OPERATION == MAP_FMOD || OPERATION == MAP_SHIFT_RIGHT;

#ifdef DOUBLES
#include "typed-double.glsl"
#else
/* Truncate to an integer type; saturate beyond its range; 0 for a NaN. */
int64_t truncate_to(uint type, float x)
{
	float limit = type == I64 ? 9223372036854775808.0 : type == I32 ? 2147483648.0
			      : type == I8 ? 128.0 : 256.0;
	int64_t most = type == I64 ? 0x7fffffffffffffffl : type == I32 ? 0x7fffffffl
			      : type == I8 ? 127l : 255l;
	bool number = (floatBitsToUint(x) & 0x7fffffffu) <= 0x7f800000u;

	if (!number)
		return 0l;
	if (x >= limit)
		return most;
	if (type == U8 && x < 0.0)
		return 0l;
	if (x < -limit)
		return -most - 1l;
	return int64_t(x);
}

uint64_t convert(uint64_t bits)
{
	if (is_float(TYPE) && TYPE == TO)
		return bits;
	/* Denormals are kept: this conversion computes nothing. */
	if ((TYPE == F32 && TO == BF16) || (TYPE == BF16 && TO == F32))
		return from_float(TO, to_float(TYPE, bits));
	if (is_float(TYPE)) {
		float x = flushed(to_float(TYPE, bits));

		if (is_float(TO))
			return from_float(TO, x);
		if (TO == BOOL)
			return (floatBitsToUint(x) & 0x7fffffffu) != 0u ? 1ul : 0ul;
		return uint64_t(truncate_to(TO, x));
	}
	int64_t i = to_integer(TYPE, bits);

	if (is_float(TO))
		return from_float(TO, float(i));
	return TO == BOOL ? (i != 0l ? 1ul : 0ul) : uint64_t(i);
}

int64_t quotient(int64_t x, int64_t y)
{
	if (y == 0l)
		return 0l;
	return y == -1l ? -x : x / y;
}

int64_t remainder(int64_t x, int64_t y)
{
	return y == 0l || y == -1l ? 0l : x - x / y * y;
}

int64_t modulus(int64_t x, int64_t y)
{
	int64_t rest = remainder(x, y);

	return rest != 0l && (rest < 0l) != (y < 0l) ? rest + y : rest;
}

int64_t power(int64_t x, int64_t y)
{
	uint64_t base = uint64_t(x), result = 1ul;
	bool odd = (y & 1l) != 0l;

	if (y < 0l)
		return x == 1l || (x == -1l && !odd) ? 1l : x == -1l ? -1l : 0l;
	for (uint bit = 0; bit < 63; bit++) {
		if ((uint64_t(y) >> bit & 1ul) != 0ul)
			result *= base;
		base *= base;
	}
	return int64_t(result);
}

bool compare_floats(float x, float y)
{
	switch (OPERATION) {
	case MAP_EQUAL:
		return x == y;
	case MAP_LESS:
		return x < y;
	case MAP_LESS_OR_EQUAL:
		return x <= y;
	case MAP_GREATER:
		return x > y;
	case MAP_GREATER_OR_EQUAL:
		return x >= y;
	}
	return false;
}

bool of_floats(float x, float y, uint finds)
{
	uint bits = floatBitsToUint(x);

	switch (OPERATION) {
	case MAP_IS_NAN:
		return (bits & 0x7fffffffu) > 0x7f800000u;
	case MAP_IS_INF:
		return (bits == 0x7f800000u && (finds & 2u) != 0u) ||
		       (bits == 0xff800000u && (finds & 1u) != 0u);
	}
	/* Drivers may ignore that comparisons with NaNs are false, so check the bits. */
	if ((bits & 0x7fffffffu) > 0x7f800000u ||
	    (floatBitsToUint(y) & 0x7fffffffu) > 0x7f800000u)
		return false;
	return compare_floats(flushed(x), flushed(y));
}

int64_t of_integers(int64_t x, int64_t y, int64_t low, int64_t high)
{
	switch (OPERATION) {
	case MAP_ADD:
		return x + y;
	case MAP_SUB:
		return x - y;
	case MAP_MUL:
		return x * y;
	case MAP_DIV:
		return quotient(x, y);
	case MAP_POW:
		return power(x, y);
	case MAP_FMOD:
		return remainder(x, y);
	case MAP_MOD:
		return modulus(x, y);
	case MAP_MIN:
		return x < y ? x : y;
	case MAP_MAX:
		return x > y ? x : y;
	case MAP_PRELU:
		return x < 0l ? x * y : x;
	case MAP_CLIP:
		x = x < low ? low : x;
		return x > high ? high : x;
	case MAP_ABS:
		return x < 0l ? -x : x;
	case MAP_NEG:
		return -x;
	case MAP_SIGN:
		return x > 0l ? 1l : x < 0l ? -1l : 0l;
	case MAP_RELU:
		return x < 0l ? 0l : x;
	case MAP_EQUAL:
		return x == y ? 1l : 0l;
	case MAP_LESS:
		return x < y ? 1l : 0l;
	case MAP_LESS_OR_EQUAL:
		return x <= y ? 1l : 0l;
	case MAP_GREATER:
		return x > y ? 1l : 0l;
	case MAP_GREATER_OR_EQUAL:
		return x >= y ? 1l : 0l;
	case MAP_AND:
	case MAP_BITWISE_AND:
		return x & y;
	case MAP_OR:
	case MAP_BITWISE_OR:
		return x | y;
	case MAP_XOR:
	case MAP_BITWISE_XOR:
		return x ^ y;
	case MAP_BIT_SHIFT:
		return y < 8l ? x << y : 0l;
	case MAP_SHIFT_RIGHT:
		return y < 8l ? x >> y : 0l;
	case MAP_BITWISE_NOT:
		return ~x;
	case MAP_NOT:
		return x == 0l ? 1l : 0l;
	}
	return x;
}

int64_t parameter(Params p, uint i)
{
	return int64_t(uint64_t(p.w[ELEMENTWISE_PARAMS + 2 * i]) |
		       uint64_t(p.w[ELEMENTWISE_PARAMS + 2 * i + 1]) << 32);
}

uint64_t result_of(Params p, uint64_t x, uint64_t y)
{
	if (OPERATION == MAP_CAST)
		return convert(x);
	if (is_float(TYPE))
		return of_floats(to_float(TYPE, x), to_float(TYPE, y), p.w[ELEMENTWISE_PARAMS]) ? 1ul
											       : 0ul;
	return uint64_t(of_integers(to_integer(TYPE, x), to_integer(TYPE, y), parameter(p, 0),
				    parameter(p, 1)));
}
#endif

void element(Params p, uint index)
{
	uint rest = index, at[3] = uint[](0, 0, 0), coordinate, size;
	uint64_t x, y = 0ul;

	if (p.w[ELEMENTWISE_RANK] == 0)
		at = uint[](index, index, index);
	for (uint d = p.w[ELEMENTWISE_RANK]; d > 0; d--) {
		size = p.w[ELEMENTWISE_DIMS + d - 1];
		coordinate = d == 1 ? rest : rest % size;
		rest = d == 1 ? 0 : rest / size;
		at[0] += coordinate * p.w[ELEMENTWISE_A + d - 1];
		at[1] += coordinate * p.w[ELEMENTWISE_B + d - 1];
		at[2] += coordinate * p.w[ELEMENTWISE_C + d - 1];
	}
	if (OPERATION == MAP_WHERE) {
		if (load_bits(BOOL, p.address[0], at[0]) != 0ul)
			x = load_bits(TYPE, p.address[1], at[1]);
		else
			x = load_bits(TYPE, p.address[2], at[2]);
		store_bits(TO, p.address[PARAM_OUT], index, x);
		return;
	}
	x = load_bits(TYPE, p.address[0], at[0]);
	if (BINARY)
		y = load_bits(TYPE, p.address[1], at[1]);
	store_bits(TO, p.address[PARAM_OUT], index, result_of(p, x, y));
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[ELEMENTWISE_TOTAL];

	if (group >= p.w[ELEMENTWISE_GROUPS])
		return;
	for (uint i = 0; i < ELEMENTS; i++) {
		uint index = (group * ELEMENTS + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

		if (index >= total)
			break;
		element(p, index);
	}
}
