/* SPDX-License-Identifier: MIT */
/*
 * Products of bytes: zero points and stored sums
 *
 * Signed bytes are flipped to unsigned ones, and so are their zero points, which leaves their
 * differences unchanged. Sums are 32-bit integers and wrap around.
 */
#include "bytes.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer InInt { int v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer OutInt { int v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer OutInt4 { ivec4 v; };

/* Return zero point @index of A, flipped; A has p.w[INTEGER_A_ZEROS] zero points. */
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

/* Return the flip mask for all four bytes of a word. */
uint flip_of(uint flip)
{
	return flip * 0x01010101u;
}
