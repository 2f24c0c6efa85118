/* SPDX-License-Identifier: MIT */
/*
 * Indices, which are a client's: each is loaded once, checked and then used; negative ones count
 * from the end. One that is out of range is reported in the parameter block, where whoever
 * submitted the task looks.
 */
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Index { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer WideIndex { uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Report { uint v; };

void report_out_of_range()
{
	Report(push.params + uint64_t(16 + 8 * PARAM_ADDRESSES + 4 * ALL_OUT_OF_RANGE)).v = 1;
}

/* Return: whether it is one of @limit, @at being which; 0 otherwise. */
bool load_index(uint64_t base, uint wide, uint i, uint limit, out uint at)
{
	uvec2 bits;
	bool negative, good;

	if (wide != 0) {
		bits = WideIndex(base + uint64_t(i) * 8ul).v;
	} else {
		bits.x = Index(base + uint64_t(i) * 4ul).v;
		bits.y = (bits.x & 0x80000000u) != 0 ? 0xffffffffu : 0;
	}
	negative = bits.y == 0xffffffffu;
	/* Of negative ones those that the limit carries over 2^32 are good. */
	at = negative ? bits.x + limit : bits.x;
	good = (bits.y == 0 || negative) && at < limit;
	if (!good)
		at = 0;
	return good;
}
