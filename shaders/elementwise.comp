#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Elementwise operators on floats, four consecutive elements at a time
 *
 * Operands with the output's layout are read as vectors. Broadcast operands are read by strides,
 * after decomposing the index of the first of the four. The functions and their results for special
 * values are those of broker/cpu/map-float-hot.c.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "curves.glsl"
#include "math.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OPERATION = 0;
layout(constant_id = 2) const uint QUADS = 1; /* per invocation */

const bool BINARY = OPERATION <= MAP_PRELU || OPERATION == MAP_FMOD;

vec4 apply(vec4 x, vec4 y, float a, float b)
{
	const vec4 zero = vec4(0.0);

	switch (OPERATION) {
	case MAP_ADD:
		return x + y;
	case MAP_SUB:
		return x - y;
	case MAP_MUL:
		return x * y;
	case MAP_DIV:
		return divide(x, y);
	case MAP_POW:
		return pow_of(x, y);
	case MAP_FMOD:
		return fmod_of(x, y);
	case MAP_MIN:
		return mix(lesser(x, y), x, is_nan4(x));
	case MAP_MAX:
		return mix(greater(x, y), x, is_nan4(x));
	case MAP_PRELU:
		return mix(x, x * y, lessThan(x, zero));
	case MAP_CLIP:
		return mix(limit(x, vec4(a), vec4(b)), x, is_nan4(x));
	case MAP_ABS:
		return magnitude(x);
	case MAP_NEG:
		return -x;
	case MAP_SIGN:
		return mix(x, with_sign(vec4(1.0), x), lessThan(zero, magnitude(x)));
	case MAP_FLOOR:
		return floor(x);
	case MAP_CEIL:
		return ceil(x);
	case MAP_ROUND:
		return roundEven(x);
	case MAP_SQRT:
		return root(x);
	case MAP_RECIPROCAL:
		return divide(vec4(1.0), x);
	case MAP_EXP:
		return exp_of(x);
	case MAP_LOG:
		return log_of(x);
	case MAP_ERF:
		return erf_of(x);
	case MAP_SIN:
		return sin_of(x);
	case MAP_COS:
		return cos_of(x);
	case MAP_TAN:
		return tan_of(x);
	case MAP_ASIN:
		return asin_of(x);
	case MAP_ACOS:
		return acos_of(x);
	case MAP_ATAN:
		return atan_of(x);
	case MAP_SINH:
		return sinh_of(x);
	case MAP_COSH:
		return cosh_of(x);
	case MAP_ASINH:
		return asinh_of(x);
	case MAP_ACOSH:
		return acosh_of(x);
	case MAP_ATANH:
		return atanh_of(x);
	case MAP_RELU:
		return mix(x, zero, lessThan(x, zero));
	case MAP_LEAKY_RELU:
		return mix(x, a * x, lessThan(x, zero));
	case MAP_THRESHOLDED_RELU:
		return mix(zero, x, greaterThan(x, vec4(a)));
	case MAP_SELU:
		return b * mix(x, a * expm1_of(x), lessThan(x, zero));
	case MAP_CELU:
		return greater(zero, x) + lesser(zero, a * expm1_of(x / a));
	case MAP_SOFTPLUS:
		return greater(zero, x) + log1p_of(exp_of(-magnitude(x)));
	case MAP_SOFTSIGN:
		return divide(x, 1.0 + magnitude(x));
	default:
		return curve(OPERATION, x, a, b);
	}
}

float parameter(Params p, uint i)
{
	return uintBitsToFloat(p.w[ELEMENTWISE_PARAMS + i]);
}

void offsets(Params p, uint index, out uint a, out uint b, out uint last)
{
	uint rest = index, coordinate;

	a = 0;
	b = 0;
	last = 0;
	for (uint d = p.w[ELEMENTWISE_RANK]; d > 0; d--) {
		uint size = p.w[ELEMENTWISE_DIMS + d - 1];

		coordinate = d == 1 ? rest : rest % size;
		rest = d == 1 ? 0 : rest / size;
		if (d == p.w[ELEMENTWISE_RANK])
			last = coordinate;
		a += coordinate * p.w[ELEMENTWISE_A + d - 1];
		b += coordinate * p.w[ELEMENTWISE_B + d - 1];
	}
}

/* Load @n elements of each operand from element @index on; the other components are unchanged. */
void load_quad(Params p, uint index, uint n, inout vec4 x, inout vec4 y)
{
	uint rank = p.w[ELEMENTWISE_RANK];
	uint size = p.w[ELEMENTWISE_DIMS + max(rank, 1) - 1];
	uint x_step = p.w[ELEMENTWISE_A + max(rank, 1) - 1];
	uint y_step = p.w[ELEMENTWISE_B + max(rank, 1) - 1];
	uint x_at = index, y_at = index, last;
	bool together = n == 4; /* all four are adjacent, in each operand */

	if (rank == 0) {
		x_step = 1;
		y_step = 1;
	} else {
		offsets(p, index, x_at, y_at, last);
		together = n == 4 && last + 3 < size && x_step == 1 && (!BINARY || y_step == 1);
	}
	if (together) {
		x = load4(p.address[0], x_at);
		if (BINARY)
			y = load4(p.address[1], y_at);
		return;
	}
	[[unroll]] for (uint i = 0; i < 4; i++) {
		if (i >= n)
			return;
		/* Advance to the next row. */
		if (i > 0 && rank > 0 && ++last >= size)
			offsets(p, index + i, x_at, y_at, last);
		x[i] = load1(p.address[0], x_at);
		if (BINARY)
			y[i] = load1(p.address[1], y_at);
		x_at += x_step;
		y_at += y_step;
	}
}

void quad(Params p, uint index, uint n)
{
	vec4 x = vec4(0.0), y = vec4(0.0);

	load_quad(p, index, n, x, y);
	x = apply(flushed(x), flushed(y), parameter(p, 0), parameter(p, 1));
	if (n == 4) {
		store4(p.address[PARAM_OUT], index, x);
		return;
	}
	[[unroll]] for (uint i = 0; i < 3; i++) {
		if (i < n)
			store1(p.address[PARAM_OUT], index + i, x[i]);
	}
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[ELEMENTWISE_TOTAL];

	if (group >= p.w[ELEMENTWISE_GROUPS])
		return;
	for (uint i = 0; i < QUADS; i++) {
		uint number = (group * QUADS + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

		/* The last group may extend beyond the total, and beyond 32 bits. */
		if (number > 0x3fffffffu || number * 4 >= total)
			break;
		quad(p, number * 4, min(total - number * 4, 4u));
	}
}
