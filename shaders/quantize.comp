#version 460
/* SPDX-License-Identifier: MIT */
/* QuantizeLinear and DequantizeLinear: four adjacent elements per invocation and iteration. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "bytes.glsl"
#include "quotient.glsl"

/* Elements are [outer][axis][inner]; the words give their numbers and the steps of their scales. */
#define QUANTIZE_TOTAL      0
#define QUANTIZE_GROUPS     1
#define QUANTIZE_INNER      2
#define QUANTIZE_AXIS       3
#define QUANTIZE_BLOCK      4 /* elements along the axis per scale */
#define QUANTIZE_OUTER_STEP 5 /* steps of scales; 0: repeated */
#define QUANTIZE_AXIS_STEP  6
#define QUANTIZE_INNER_STEP 7
#define QUANTIZE_HAS_ZERO   8

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint QUADS = 1; /* per invocation */
layout(constant_id = 2) const uint BACK = 0;	/* DequantizeLinear */
layout(constant_id = 3) const uint TYPE = 2;	/* enum rbk_dtype of the quantized tensor */

const uint I8 = 3, I32 = 6;

int load_integer(uint64_t base, uint index)
{
	if (TYPE == I32)
		return int(load_word(base, index));
	return signed_byte(load_byte(base, index), TYPE == I8);
}

/* Load four elements from @index on; beyond @total, the last element is repeated. */
vec4 load_floats(uint64_t base, uint index, uint total)
{
	vec4 values;

	if (index + 4 <= total)
		return load4(base, index);
	[[unroll]] for (uint i = 0; i < 4; i++)
		values[i] = load1(base, min(index + i, total - 1));
	return values;
}

ivec4 load_integers(uint64_t base, uint index, uint total)
{
	uvec4 bytes;

	if (TYPE == I32)
		return ivec4(load_words(base, index, total));
	bytes = bytes_of(index + 4 <= total ? load_quad(base, index, true) :
					      load_some(base, index, total - index));
	return ivec4(TYPE == I8 ? bytes ^ 0x80u : bytes) - (TYPE == I8 ? 128 : 0);
}

void store_floats(uint64_t base, uint index, uint total, vec4 values)
{
	if (index + 4 <= total) {
		store4(base, index, values);
		return;
	}
	[[unroll]] for (uint i = 0; i < 3; i++)
		if (index + i < total)
			store1(base, index + i, values[i]);
}

/* Return the offset of element @index's scale. */
uint scale_at(Params p, uint index)
{
	uint inner = p.w[QUANTIZE_INNER], axis = p.w[QUANTIZE_AXIS];
	uint line = index / inner;

	return line / axis * p.w[QUANTIZE_OUTER_STEP] +
	       line % axis / p.w[QUANTIZE_BLOCK] * p.w[QUANTIZE_AXIS_STEP] +
	       index % inner * p.w[QUANTIZE_INNER_STEP];
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), total = p.w[QUANTIZE_TOTAL];

	if (group >= p.w[QUANTIZE_GROUPS])
		return;

	bool is_one = (p.w[QUANTIZE_OUTER_STEP] | p.w[QUANTIZE_AXIS_STEP] |
		       p.w[QUANTIZE_INNER_STEP]) == 0;
	bool has_zero = p.w[QUANTIZE_HAS_ZERO] != 0;
	float scale = load1(p.address[1], 0);
	int zero = 0;

	if (has_zero)
		zero = load_integer(p.address[2], 0);
	for (uint j = 0; j < QUADS; j++) {
		uint i = ((group * QUADS + j) * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * 4;
		ivec4 integers = ivec4(0);
		uvec4 bytes = uvec4(0);
		vec4 values = vec4(0.0);

		if (i >= total)
			break;
		if (BACK == 0)
			values = load_floats(p.address[0], i, total);
		else
			integers = load_integers(p.address[0], i, total);
		[[unroll]] for (uint c = 0; c < 4; c++) {
			if (!is_one) {
				uint from = scale_at(p, min(i + c, total - 1));

				scale = load1(p.address[1], from);
				if (has_zero)
					zero = load_integer(p.address[2], from);
			}
			if (BACK == 0)
				bytes[c] = to_byte(quotient(values[c], scale), zero, TYPE == I8);
			else
				values[c] = float(integers[c] - zero) * scale;
		}
		if (BACK == 0)
			store_quad(p.address[PARAM_OUT], i, total, bytes);
		else
			store_floats(p.address[PARAM_OUT], i, total, values);
	}
}
