#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Add, Mul and Relu, four consecutive elements at a time. Operands that lie like the output are read
 * as vectors; broadcast ones by strides, decomposing the index of the first of four.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OPERATION = 0;
layout(constant_id = 2) const uint QUADS = 1; /* per invocation */

const uint ADD = 0, MUL = 1, RELU = 2;

vec4 apply(vec4 a, vec4 b)
{
	if (OPERATION == ADD)
		return a + b;
	if (OPERATION == MUL)
		return a * b;
	/* Written so that not-a-number stays what it is. */
	return mix(a, vec4(0.0), lessThan(a, vec4(0.0)));
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

void quad_flat(Params p, uint index, uint total)
{
	if (index + 4 <= total) {
		vec4 a = load4(p.address[0], index);
		vec4 b = OPERATION == RELU ? a : load4(p.address[1], index);

		store4(p.address[3], index, apply(a, b));
		return;
	}
	for (uint i = index; i < total; i++) {
		float a = load1(p.address[0], i);
		float b = OPERATION == RELU ? a : load1(p.address[1], i);

		store1(p.address[3], i, apply(vec4(a), vec4(b)).x);
	}
}

void quad_strided(Params p, uint index, uint total)
{
	uint rank = p.w[ELEMENTWISE_RANK];
	uint size = p.w[ELEMENTWISE_DIMS + rank - 1];
	uint a_step = p.w[ELEMENTWISE_A + rank - 1], b_step = p.w[ELEMENTWISE_B + rank - 1];
	uint a_at, b_at, last;

	offsets(p, index, a_at, b_at, last);
	if (last + 4 <= size) {
		vec4 a = vec4(load1(p.address[0], a_at), load1(p.address[0], a_at + a_step),
			      load1(p.address[0], a_at + 2 * a_step),
			      load1(p.address[0], a_at + 3 * a_step));
		vec4 b = vec4(load1(p.address[1], b_at), load1(p.address[1], b_at + b_step),
			      load1(p.address[1], b_at + 2 * b_step),
			      load1(p.address[1], b_at + 3 * b_step));

		store4(p.address[3], index, apply(a, b));
		return;
	}
	for (uint i = index; i < min(index + 4, total); i++) {
		offsets(p, i, a_at, b_at, last);
		store1(p.address[3], i,
		       apply(vec4(load1(p.address[0], a_at)), vec4(load1(p.address[1], b_at))).x);
	}
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[ELEMENTWISE_TOTAL];

	if (group >= p.w[ELEMENTWISE_GROUPS])
		return;
	for (uint i = 0; i < QUADS; i++) {
		uint quad = (group * QUADS + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
		uint index = quad * 4;

		/* The last group may reach beyond the total, and beyond 32 bits. */
		if (index >= total || quad > 0x3fffffffu)
			break;
		if (p.w[ELEMENTWISE_RANK] == 0)
			quad_flat(p, index, total);
		else
			quad_strided(p, index, total);
	}
}
