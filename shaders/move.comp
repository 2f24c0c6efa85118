#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Move a box of elements of any type: Transpose, Slice, Concat and similar operators. Indices are
 * the box's. Each dimension has a source and a destination stride; a negative stride wraps around.
 * Compiled for elements of 4 to 16 bytes, with -DHALVES for 2 bytes, with -DBYTES for 1 byte.
 */
#extension GL_GOOGLE_include_directive : require
#ifdef BYTES
#extension GL_EXT_shader_8bit_storage : require
#elif defined(HALVES)
#extension GL_EXT_shader_16bit_storage : require
#endif
#include "common.glsl"

/* Elements and strides of the box; the source address is 0 for a value */
#define MOVE_TOTAL         0
#define MOVE_GROUPS        1
#define MOVE_RANK          2
#define MOVE_PITCH         3 /* words per dimension: 2 if the output is written in order, else 3 */
#define MOVE_FROM          4 /* the first element */
#define MOVE_TO            5
#define MOVE_DIMS          6 /* [rank]: size, stride from, stride to */
#define MOVE_VALUE         39 /* [2] */

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENTS = 1; /* per invocation */
layout(constant_id = 2) const uint WIDTH = 2;    /* an element has 1 << WIDTH bytes */

#define REFERENCE(name, access, align, type) \
	layout(buffer_reference, std430, buffer_reference_align = align) access buffer name { type v; }

#ifdef BYTES
REFERENCE(From8, readonly, 1, uint8_t);
REFERENCE(To8, writeonly, 1, uint8_t);
#elif defined(HALVES)
REFERENCE(From16, readonly, 2, uint16_t);
REFERENCE(To16, writeonly, 2, uint16_t);
#else
REFERENCE(From32, readonly, 4, uint);
REFERENCE(To32, writeonly, 4, uint);
REFERENCE(From64, readonly, 8, uvec2);
REFERENCE(To64, writeonly, 8, uvec2);
REFERENCE(From128, readonly, 16, uvec4);
REFERENCE(To128, writeonly, 16, uvec4);
#endif

void copy(uint64_t from, uint64_t to)
{
#ifdef BYTES
	To8(to).v = From8(from).v;
#elif defined(HALVES)
	To16(to).v = From16(from).v;
#else
	if (WIDTH == 2)
		To32(to).v = From32(from).v;
	else if (WIDTH == 3)
		To64(to).v = From64(from).v;
	else
		To128(to).v = From128(from).v;
#endif
}

/* Write @value, repeated to fill the element. */
void set(uvec2 value, uint64_t to)
{
#ifdef BYTES
	To8(to).v = uint8_t(value.x & 0xffu);
#elif defined(HALVES)
	To16(to).v = uint16_t(value.x & 0xffffu);
#else
	if (WIDTH == 2)
		To32(to).v = value.x;
	else if (WIDTH == 3)
		To64(to).v = value;
	else
		To128(to).v = value.xyxy;
#endif
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[MOVE_TOTAL], pitch = p.w[MOVE_PITCH];
	bool is_value = p.address[0] == 0ul;
	uvec2 value = uvec2(p.w[MOVE_VALUE], p.w[MOVE_VALUE + 1]);

	if (group >= p.w[MOVE_GROUPS])
		return;
	for (uint i = 0; i < ELEMENTS; i++) {
		uint step = group * ELEMENTS + i;
		uint index = step * gl_WorkGroupSize.x + gl_LocalInvocationID.x, rest = index;
		uint from = p.w[MOVE_FROM], to = p.w[MOVE_TO];

		/* The last group may extend beyond the total, and beyond 32 bits. */
		if (index >= total || step > 0xffffffffu / gl_WorkGroupSize.x)
			break;
		for (uint d = p.w[MOVE_RANK]; d > 0; d--) {
			uint at = MOVE_DIMS + (d - 1) * pitch, size = p.w[at];
			uint coordinate = d == 1 ? rest : rest % size;

			rest = d == 1 ? 0 : rest / size;
			from += coordinate * p.w[at + 1];
			if (pitch == 3)
				to += coordinate * p.w[at + 2];
		}
		if (pitch == 2)
			to += index;
		uint64_t target = p.address[PARAM_OUT] + (uint64_t(to) << WIDTH);

		if (is_value)
			set(value, target);
		else
			copy(p.address[0] + (uint64_t(from) << WIDTH), target);
	}
}
