#version 460
/* SPDX-License-Identifier: MIT */
/*
 * MatMulNBits: each invocation computes ROWS rows of one column, whose weights are contiguous,
 * eight to a word. Rows are the same for all invocations. The terms of a block are summed
 * separately, which keeps the error of long sums small.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "bytes.glsl"

#define NBITS_M             0
#define NBITS_N             1
#define NBITS_K             2
#define NBITS_BLOCKS        3
#define NBITS_BLOCK_WORDS   4 /* words of eight terms */
#define NBITS_COL_TILES     5
#define NBITS_TILES         6
#define NBITS_ZEROS         7 /* 0: none, 1: of four bits, 2: float32, 3: float16 */
#define NBITS_HAS_BIAS      8

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 1;

float zero_of(Params p, uint column, uint block)
{
	uint blocks = p.w[NBITS_BLOCKS], at = column * blocks + block;

	/* The zero points' type need not be the scales' type. */
	if (p.w[NBITS_ZEROS] == 2)
		return uintBitsToFloat(load_word(p.address[3], at));
	if (p.w[NBITS_ZEROS] == 3)
		return unpackHalf2x16(load_word(p.address[3], at / 2))[at % 2];
	if (p.w[NBITS_ZEROS] == 0)
		return 8.0;
	return float(load_byte(p.address[3], column * ((blocks + 1) / 2) + block / 2) >>
			     (block % 2 * 4) & 15u);
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), tiles = p.w[NBITS_COL_TILES];

	if (group >= p.w[NBITS_TILES])
		return;

	uint M = p.w[NBITS_M], N = p.w[NBITS_N], K = p.w[NBITS_K], blocks = p.w[NBITS_BLOCKS];
	uint block_words = p.w[NBITS_BLOCK_WORDS];
	uint row = group / tiles * ROWS;
	uint column = group % tiles * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
	float sum[ROWS];

	if (column >= N)
		return;
	[[unroll]] for (uint r = 0; r < ROWS; r++)
		sum[r] = 0.0;
	for (uint block = 0; block < blocks; block++) {
		float scale = load1(p.address[2], column * blocks + block);
		float zero = zero_of(p, column, block);
		float part[ROWS];

		[[unroll]] for (uint r = 0; r < ROWS; r++)
			part[r] = 0.0;
		for (uint i = 0; i < block_words; i++) {
			uint k = (block * block_words + i) * 8;
			uint word;

			if (k >= K)
				break;
			word = load_word(p.address[1], (column * blocks + block) * block_words + i);
			if (k + 8 <= K) {
				vec4 low = vec4(uvec4(word, word >> 4, word >> 8, word >> 12) & 15u) -
					   zero;
				vec4 high = vec4(uvec4(word >> 16, word >> 20, word >> 24, word >> 28) &
						 15u) -
					    zero;

				low *= scale;
				high *= scale;
				[[unroll]] for (uint r = 0; r < ROWS; r++) {
					uint from = min(row + r, M - 1) * K + k;

					part[r] += dot(load4(p.address[0], from), low) +
						   dot(load4(p.address[0], from + 4), high);
				}
				continue;
			}
			[[unroll]] for (uint j = 0; j < 7; j++) {
				float weight = (float(word >> (4 * j) & 15u) - zero) * scale;

				if (k + j < K)
					[[unroll]] for (uint r = 0; r < ROWS; r++)
						part[r] += weight * load1(p.address[0],
									  min(row + r, M - 1) * K +
										  k + j);
			}
		}
		[[unroll]] for (uint r = 0; r < ROWS; r++)
			sum[r] += part[r];
	}

	float bias = 0.0;

	if (p.w[NBITS_HAS_BIAS] != 0)
		bias = load1(p.address[4], column);
	[[unroll]] for (uint r = 0; r < ROWS; r++)
		if (row + r < M)
			store1(p.address[PARAM_OUT], (row + r) * N + column, sum[r] + bias);
}
