#version 460
/* SPDX-License-Identifier: MIT */
/*
 * RotaryEmbedding: each invocation rotates pairs of one head or copies elements that are not
 * rotated. The position is loaded once, checked, then used.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* Items: pairs and copied elements */
#define ROTARY_TOTAL       0
#define ROTARY_GROUPS      1
#define ROTARY_HEADS       2
#define ROTARY_SEQ         3
#define ROTARY_HEAD        4 /* elements per head */
#define ROTARY_DIM         5 /* rotated elements per head */
#define ROTARY_INTERLEAVED 6
#define ROTARY_POSITIONS   7 /* rows of the caches; 0: angles are indexed by token */
#define ROTARY_SEQ_STRIDE  8
#define ROTARY_HEAD_STRIDE 9

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ITEMS = 1; /* per invocation */

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Position { uvec2 v; };

/* Return the row of the caches for token @index. */
uint position_of(Params p, uint index)
{
	uvec2 position;

	if (p.w[ROTARY_POSITIONS] == 0)
		return index;
	position = Position(p.address[3] + uint64_t(index) * 8ul).v;
	if ((position.y & 0x80000000u) != 0)
		return 0;
	return position.y != 0 ? p.w[ROTARY_POSITIONS] - 1
			       : min(position.x, p.w[ROTARY_POSITIONS] - 1);
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[ROTARY_TOTAL];

	if (group >= p.w[ROTARY_GROUPS])
		return;

	uint heads = p.w[ROTARY_HEADS], seq = p.w[ROTARY_SEQ], head_size = p.w[ROTARY_HEAD];
	uint half_size = p.w[ROTARY_DIM] / 2, items = head_size - half_size;
	bool interleaved = p.w[ROTARY_INTERLEAVED] != 0;

	for (uint j = 0; j < ITEMS; j++) {
		uint i = (group * ITEMS + j) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;

		if (i >= total)
			break;

		uint item = i % items, line = i / items;
		uint head = line % heads, token = line / heads;
		uint base = token / seq * (heads * seq * head_size) +
			    token % seq * p.w[ROTARY_SEQ_STRIDE] + head * p.w[ROTARY_HEAD_STRIDE];

		if (item >= half_size) {
			uint at = base + item + half_size;

			store1(p.address[PARAM_OUT], at, load1(p.address[0], at));
			continue;
		}

		uint a_at = base + (interleaved ? 2 * item : item);
		uint b_at = base + (interleaved ? 2 * item + 1 : item + half_size);
		uint angle = position_of(p, token) * half_size + item;
		float a = load1(p.address[0], a_at), b = load1(p.address[0], b_at);
		float c = load1(p.address[1], angle), s = load1(p.address[2], angle);

		store1(p.address[PARAM_OUT], a_at, a * c - b * s);
		store1(p.address[PARAM_OUT], b_at, a * s + b * c);
	}
}
