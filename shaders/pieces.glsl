/* SPDX-License-Identifier: MIT */
/*
 * Moving pieces of 1 to 16 bytes of any type. WIDTH is the logarithm of the size. Compiled with
 * -DNARROW for pieces of 1 and 2 bytes, which not every device can address.
 */
layout(constant_id = 2) const uint WIDTH = 2;

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer From2 { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer To2 { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer From3 { uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer To3 { uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer From4 { uvec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer To4 { uvec4 v; };

#ifdef NARROW
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
layout(buffer_reference, std430, buffer_reference_align = 1) readonly buffer From0 { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 1) writeonly buffer To0 { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 2) readonly buffer From1 { uint16_t v; };
layout(buffer_reference, std430, buffer_reference_align = 2) writeonly buffer To1 { uint16_t v; };
#endif

uint64_t piece_at(uint64_t base, uint index)
{
	return base + (uint64_t(index) << WIDTH);
}

/* Copy a piece or, without @keeps, write zeros. */
void move_piece(uint64_t from, uint64_t to, bool keeps)
{
#ifdef NARROW
	if (WIDTH == 0) {
		uint piece = 0;

		if (keeps)
			piece = uint(From0(from).v);
		To0(to).v = uint8_t(piece & 0xffu);
		return;
	}
	if (WIDTH == 1) {
		uint piece = 0;

		if (keeps)
			piece = uint(From1(from).v);
		To1(to).v = uint16_t(piece & 0xffffu);
		return;
	}
#endif
	if (WIDTH == 2) {
		uint piece = 0;

		if (keeps)
			piece = From2(from).v;
		To2(to).v = piece;
	} else if (WIDTH == 3) {
		uvec2 piece = uvec2(0);

		if (keeps)
			piece = From3(from).v;
		To3(to).v = piece;
	} else {
		uvec4 piece = uvec4(0);

		if (keeps)
			piece = From4(from).v;
		To4(to).v = piece;
	}
}
