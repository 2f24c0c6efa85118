/* SPDX-License-Identifier: MIT */
/*
 * Products of bytes: zero points, and sums as they are stored
 *
 * Bytes that have a sign are flipped to count from 0 on, and their zero points with them, which
 * leaves differences as they are. Sums wrap around, as whole numbers of 32 bits do.
 */
#include "bytes.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer InInt { int v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer OutInt { int v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer OutInt4 { ivec4 v; };

/* Zero point @index of A, which has p.w[INTEGER_A_ZEROS] of them; flipped. */
int zero_of_a(Params p, uint index)
{
	uint n = p.w[INTEGER_A_ZEROS], zero = 0;

	if (n != 0)
		zero = load_byte(p.address[2], index % n);
	return int(zero ^ p.w[INTEGER_A_FLIP]);
}

int zero_of_b(Params p, uint index)
{
	uint n = p.w[INTEGER_B_ZEROS], zero = 0;

	if (n != 0)
		zero = load_byte(p.address[3], index % n);
	return int(zero ^ p.w[INTEGER_B_FLIP]);
}

/* The same for all bytes of a word. */
uint flip_of(uint flip)
{
	return flip * 0x01010101u;
}
