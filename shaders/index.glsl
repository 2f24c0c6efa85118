/* SPDX-License-Identifier: MIT */
/*
 * Indices, which clients provide: each is loaded once, checked, then used. Negative indices count
 * from the end. An index out of range is reported in the parameter block, which the broker reads
 * after the task.
 */
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Index { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer WideIndex { uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Report { uint v; };

void report_out_of_range()
{
	Report(push.params + uint64_t(16 + 8 * PARAM_ADDRESSES + 4 * ALL_OUT_OF_RANGE)).v = 1;
}

/*
 * Load index @i. Return: true if it is in range, with the resolved index in @at; otherwise false,
 * with @at 0.
 */
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
	/* A negative index is in range if adding the limit carries beyond 2^32. */
	at = negative ? bits.x + limit : bits.x;
	good = (bits.y == 0 || negative) && at < limit;
	if (!good)
		at = 0;
	return good;
}
