#version 460
/* SPDX-License-Identifier: MIT */
/*
 * TopK: one row per workgroup.
 *
 * Values are compared as unsigned keys in the same order (not-a-number below everything, both
 * zeros and denormals alike; inverted for the smallest, except what is no number), together with
 * the index: of equal values the lower index comes first. An index that is written is always one of the row, whatever the values are.
 *
 * Small k (up to 8): every invocation keeps the best eight of its share in registers; then, k times,
 * the workgroup takes the best head of all lists. Large k: k passes over the row, each looking
 * for the best one after the last.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SMALL = 1;

#ifdef F16
uint bits(uint64_t address)
{
	return floatBitsToUint(read1(address));
}
#else
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Bits { uint v; };

uint bits(uint64_t address)
{
	return Bits(address).v;
}
#endif

layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer Index { uvec2 v; };

const uint KEEP = 8;
const uint TURN = 8; /* elements per invocation and turn */
const uint NOTHING = 0xffffffffu;

shared uvec2 heads[256];

uint flip;

uint key_of(uint bits)
{
	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return 0;
	if ((bits & 0x7f800000u) == 0)
		bits = 0;
	return ((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u) ^ flip;
}

bool is_before(uint key, uint index, uint other_key, uint other_index)
{
	return key > other_key || (key == other_key && index < other_index);
}

/* The best (key, index) of the workgroup's. */
uvec2 group_best(uint key, uint index)
{
	uint lane = gl_LocalInvocationID.x;
	uvec2 best;

	heads[lane] = uvec2(key, index);
	barrier();
	for (uint step = gl_WorkGroupSize.x / 2; step > 0; step /= 2) {
		if (lane < step && is_before(heads[lane + step].x, heads[lane + step].y,
					     heads[lane].x, heads[lane].y))
			heads[lane] = heads[lane + step];
		barrier();
	}
	best = heads[0];
	barrier();
	return best;
}

/* Puts a pair into its place; the last one falls out. */
void insert(inout uint keys[KEEP], inout uint indices[KEEP], uint key, uint index)
{
	keys[KEEP - 1] = key;
	indices[KEEP - 1] = index;
	[[unroll]] for (uint j = KEEP - 1; j > 0; j--)
		if (is_before(keys[j], indices[j], keys[j - 1], indices[j - 1])) {
			uint t = keys[j];

			keys[j] = keys[j - 1];
			keys[j - 1] = t;
			t = indices[j];
			indices[j] = indices[j - 1];
			indices[j - 1] = t;
		}
}

void main()
{
	Params p = Params(push.params);
	uint row = linear_group(p);

	if (row >= p.w[ROWS_TOTAL])
		return;

	uint size = p.w[ROWS_SIZE], inner = p.w[ROWS_INNER], k = p.w[ROWS_K];
	uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x, turn = lanes * TURN;
	uint64_t from = at(p.address[0], row / inner * size * inner + row % inner);
	uint64_t step = uint64_t(inner) * ELEMENT;
	uint out_at = row / inner * k * inner + row % inner;
	uint keys[KEEP], indices[KEEP];
	uvec2 last = uvec2(NOTHING, 0);

	flip = p.w[ROWS_FLIP];
	if (SMALL != 0) {
		[[unroll]] for (uint j = 0; j < KEEP; j++) {
			keys[j] = 0;
			indices[j] = NOTHING;
		}
		for (uint begin = 0; begin < size; begin += turn) {
			uint turn_keys[TURN];

			[[unroll]] for (uint t = 0; t < TURN; t++) {
				uint i = begin + t * lanes + lane;

				turn_keys[t] = 0;
				if (i < size)
					turn_keys[t] = key_of(bits(from + uint64_t(i) * step));
			}
			[[unroll]] for (uint t = 0; t < TURN; t++) {
				uint i = begin + t * lanes + lane;

				/* Of equal ones the earlier is there already. */
				if (i < size && (turn_keys[t] > keys[KEEP - 1] ||
						 indices[KEEP - 1] == NOTHING))
					insert(keys, indices, turn_keys[t], i);
			}
		}
	}

	for (uint n = 0; n < k; n++) {
		uvec2 best;

		if (SMALL != 0) {
			best = group_best(keys[0], indices[0]);
			if (best.y == indices[0]) {
				[[unroll]] for (uint j = 1; j < KEEP; j++) {
					keys[j - 1] = keys[j];
					indices[j - 1] = indices[j];
				}
				keys[KEEP - 1] = 0;
				indices[KEEP - 1] = NOTHING;
			}
		} else {
			uint key = 0, index = NOTHING;

			for (uint begin = 0; begin < size; begin += turn)
				[[unroll]] for (uint t = 0; t < TURN; t++) {
					uint i = begin + t * lanes + lane, other = 0;

					if (i < size)
						other = key_of(bits(from + uint64_t(i) * step));
					if (i < size && is_before(other, i, key, index) &&
					    (n == 0 || is_before(last.x, last.y, other, i))) {
						key = other;
						index = i;
					}
				}
			best = group_best(key, index);
			last = best;
		}

		/* A client that writes to its input meanwhile may leave nothing to be found. */
		uint index = min(best.y, size - 1);

		if (lane == 0) {
			uint o = out_at + n * inner;

			store1(p.address[PARAM_OUT], o, read1(from + uint64_t(index) * step));
			Index(p.address[PARAM_OUT + 1] + uint64_t(o) * 8ul).v = uvec2(index, 0);
		}
	}
}
