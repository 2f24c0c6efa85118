#version 460
/* SPDX-License-Identifier: MIT */
/*
 * TopK: one row per workgroup.
 *
 * Values are compared as unsigned keys in the same order. A NaN is below everything; both zeros and
 * all denormals are equal. For the smallest, keys are inverted, except those of NaNs. Of equal
 * values the lower index comes first. Every index written is one of the row, whatever the values
 * are. Also compiled for integers and float64 (-DINTEGERS), whose keys are two words.
 *
 * Small k (up to 8): every invocation keeps the best eight of its share in registers; then the
 * workgroup takes the best head of all lists, k times. Large k: k passes over the row, each of
 * which finds the best element after the previous one.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#ifdef INTEGERS
#include "types.glsl"
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SMALL = 1;
layout(constant_id = 2) const uint TYPE = 6; /* with -DINTEGERS: enum rbk_dtype */

#ifdef INTEGERS
/* Two words, the more significant one first. */
#define KEY uvec2
#elif defined(F16)
#define KEY uint

uint bits(uint64_t address)
{
	return floatBitsToUint(read1(address));
}
#else
#define KEY uint

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Bits { uint v; };

uint bits(uint64_t address)
{
	return Bits(address).v;
}
#endif

layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer Index { uvec2 v; };

const uint KEEP = 8;
const uint TURN = 8; /* elements per invocation and iteration */
const uint NOTHING = 0xffffffffu;

struct Found {
	KEY key;
	uint index;
};

shared Found heads[256];

uint flip;

#ifdef INTEGERS
KEY key_at(uint64_t base, uint index)
{
	uint64_t order = order_of_bits(TYPE, load_bits(TYPE, base, index));

	if (TYPE == F64 && order == ~0ul)
		return uvec2(0);
	return uvec2(uint(order >> 32), uint(order & 0xfffffffful)) ^ flip;
}

bool is_more(KEY a, KEY b)
{
	return a.x > b.x || (a.x == b.x && a.y > b.y);
}
#else
KEY key_at(uint64_t base, uint index)
{
	uint value = bits(at(base, index));

	if ((value & 0x7fffffffu) > 0x7f800000u)
		return 0;
	if ((value & 0x7f800000u) == 0)
		value = 0;
	return ((value & 0x80000000u) != 0 ? ~value : value | 0x80000000u) ^ flip;
}

bool is_more(KEY a, KEY b)
{
	return a > b;
}
#endif

bool is_before(KEY key, uint index, KEY other_key, uint other_index)
{
	return is_more(key, other_key) || (key == other_key && index < other_index);
}

/* Return the best of the workgroup's elements. */
Found group_best(KEY key, uint index)
{
	uint lane = gl_LocalInvocationID.x;
	Found best;

	heads[lane] = Found(key, index);
	barrier();
	for (uint step = gl_WorkGroupSize.x / 2; step > 0; step /= 2) {
		if (lane < step && is_before(heads[lane + step].key, heads[lane + step].index,
					     heads[lane].key, heads[lane].index))
			heads[lane] = heads[lane + step];
		barrier();
	}
	best = heads[0];
	barrier();
	return best;
}

/* Insert a pair in order, dropping the last pair. */
void insert(inout KEY keys[KEEP], inout uint indices[KEEP], KEY key, uint index)
{
	keys[KEEP - 1] = key;
	indices[KEEP - 1] = index;
	[[unroll]] for (uint j = KEEP - 1; j > 0; j--)
		if (is_before(keys[j], indices[j], keys[j - 1], indices[j - 1])) {
			KEY other_key = keys[j];
			uint other_index = indices[j];

			keys[j] = keys[j - 1];
			keys[j - 1] = other_key;
			indices[j] = indices[j - 1];
			indices[j - 1] = other_index;
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
	uint64_t from = p.address[0];
	uint first = row / inner * size * inner + row % inner;
	uint out_at = row / inner * k * inner + row % inner;
	KEY keys[KEEP];
	uint indices[KEEP];
	Found last = Found(KEY(0), 0);

	flip = p.w[ROWS_FLIP];
	if (SMALL != 0) {
		[[unroll]] for (uint j = 0; j < KEEP; j++) {
			keys[j] = KEY(0);
			indices[j] = NOTHING;
		}
		for (uint begin = 0; begin < size; begin += turn) {
			KEY turn_keys[TURN];

			[[unroll]] for (uint t = 0; t < TURN; t++) {
				uint i = begin + t * lanes + lane;

				turn_keys[t] = KEY(0);
				if (i < size)
					turn_keys[t] = key_at(from, first + i * inner);
			}
			[[unroll]] for (uint t = 0; t < TURN; t++) {
				uint i = begin + t * lanes + lane;

				/* The earlier of equal elements is kept already. */
				if (i < size && (is_more(turn_keys[t], keys[KEEP - 1]) ||
						 indices[KEEP - 1] == NOTHING))
					insert(keys, indices, turn_keys[t], i);
			}
		}
	}

	for (uint n = 0; n < k; n++) {
		Found best;

		if (SMALL != 0) {
			best = group_best(keys[0], indices[0]);
			if (best.index == indices[0]) {
				[[unroll]] for (uint j = 1; j < KEEP; j++) {
					keys[j - 1] = keys[j];
					indices[j - 1] = indices[j];
				}
				keys[KEEP - 1] = KEY(0);
				indices[KEEP - 1] = NOTHING;
			}
		} else {
			KEY key = KEY(0);
			uint index = NOTHING;

			for (uint begin = 0; begin < size; begin += turn)
				[[unroll]] for (uint t = 0; t < TURN; t++) {
					uint i = begin + t * lanes + lane;
					KEY other = KEY(0);

					if (i < size)
						other = key_at(from, first + i * inner);
					if (i < size && is_before(other, i, key, index) &&
					    (n == 0 || is_before(last.key, last.index, other, i))) {
						key = other;
						index = i;
					}
				}
			best = group_best(key, index);
			last = best;
		}

		/* If a client changes its input meanwhile, there may be no element left to find. */
		uint index = min(best.index, size - 1);

		if (lane == 0) {
			uint o = out_at + n * inner;

#ifdef INTEGERS
			store_bits(TYPE, p.address[PARAM_OUT], o,
				   load_bits(TYPE, from, first + index * inner));
#else
			store1(p.address[PARAM_OUT], o, load1(from, first + index * inner));
#endif
			Index(p.address[PARAM_OUT + 1] + uint64_t(o) * 8ul).v = uvec2(index, 0);
		}
	}
}
