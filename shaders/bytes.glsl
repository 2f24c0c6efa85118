/* SPDX-License-Identifier: MIT */
/* Elements of eight bits, signed or not, one by one or in quads, which form a word. */
#extension GL_EXT_shader_8bit_storage : require

layout(buffer_reference, std430, buffer_reference_align = 1) readonly buffer InByte { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 1) writeonly buffer OutByte { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer InWord { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer InWords { uvec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer OutWord { uint v; };

uint load_byte(uint64_t base, uint index)
{
	return uint(InByte(base + uint64_t(index)).v);
}

void store_byte(uint64_t base, uint index, uint byte)
{
	OutByte(base + uint64_t(index)).v = uint8_t(byte & 0xffu);
}

uint load_word(uint64_t base, uint index)
{
	return InWord(base + uint64_t(index) * 4ul).v;
}

uvec4 bytes_of(uint word)
{
	return uvec4(word, word >> 8, word >> 16, word >> 24) & 0xffu;
}

/*
 * Load four bytes from @index on as a word. @aligned: all quads of the tensor that do not cross its
 * end are aligned.
 */
uint load_quad(uint64_t base, uint index, bool aligned)
{
	if (aligned)
		return InWord(base + uint64_t(index)).v;
	return load_byte(base, index) | load_byte(base, index + 1) << 8 |
	       load_byte(base, index + 2) << 16 | load_byte(base, index + 3) << 24;
}

/* Load @n bytes, at most 4, as a word; the remaining bytes are 0. */
uint load_some(uint64_t base, uint index, uint n)
{
	uint word = 0;

	[[unroll]] for (uint i = 0; i < 4; i++)
		if (i < n)
			word |= load_byte(base, index + i) << (8 * i);
	return word;
}

/* Store four elements from @index on, a multiple of four, but none beyond @total. */
void store_quad(uint64_t base, uint index, uint total, uvec4 bytes)
{
	bytes &= 0xffu;
	if (index + 4 <= total) {
		OutWord(base + uint64_t(index)).v =
			bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
		return;
	}
	[[unroll]] for (uint i = 0; i < 3; i++)
		if (index + i < total)
			store_byte(base, index + i, bytes[i]);
}

/* Load four elements of 32 bits from @index on; beyond @total, the last element is repeated. */
uvec4 load_words(uint64_t base, uint index, uint total)
{
	uvec4 words;

	if (index + 4 <= total)
		return InWords(base + uint64_t(index) * 4ul).v;
	[[unroll]] for (uint i = 0; i < 4; i++)
		words[i] = load_word(base, min(index + i, total - 1));
	return words;
}

/* Return the value of a byte. */
int signed_byte(uint byte, bool is_signed)
{
	return int(is_signed ? byte ^ 0x80u : byte) - (is_signed ? 128 : 0);
}
