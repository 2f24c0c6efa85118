#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Attention: one query per workgroup, over the keys in blocks of one per invocation. The largest
 * score so far and the sum of exponentials relative to it are kept; when a block has a larger one,
 * the output so far, which lies in shared memory, is scaled down. Keys that do not count are left
 * out. The matrix of scores is written only where it is asked for; after the softmax that takes a
 * second time over the keys, when the sum is known.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "subgroup.glsl"

layout(local_size_x_id = 0) in;

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Length { uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Word { uint v; };

#define NONE uintBitsToFloat(0xff800000u)
const uint MAX_VALUE = 1024;  /* ATTENTION_MAX_VALUE of lower-attention.c */
const uint MAX_LANES = 256;

shared float weights[MAX_LANES]; /* of a block's keys; negative: it does not count */
shared float sums[MAX_VALUE];

struct Query {
	uint batch, head, row; /* the query's */
	uint q, k, v, y, qk;   /* where its elements begin */
	uint mask;
	uint limit;            /* keys from here on do not count */
};

Query query_of(Params p, uint index)
{
	uint rows = p.w[ATTENTION_Q_LEN], heads = p.w[ATTENTION_Q_HEADS], total = p.w[ATTENTION_KEYS];
	Query query;
	uint kv_head, valid = total;

	query.row = index % rows;
	query.head = index / rows % heads;
	query.batch = index / rows / heads;
	kv_head = query.head / (heads / p.w[ATTENTION_KV_HEADS]);
	query.q = query.batch * p.w[ATTENTION_Q_BATCH] + query.head * p.w[ATTENTION_Q_HEAD] +
		  query.row * p.w[ATTENTION_Q_ROW];
	query.k = query.batch * p.w[ATTENTION_K_BATCH] + kv_head * p.w[ATTENTION_K_HEAD];
	query.v = query.batch * p.w[ATTENTION_V_BATCH] + kv_head * p.w[ATTENTION_V_HEAD];
	query.y = query.batch * p.w[ATTENTION_Y_BATCH] + query.head * p.w[ATTENTION_Y_HEAD] +
		  query.row * p.w[ATTENTION_Y_ROW];
	query.qk = index * total;
	query.mask = query.batch * p.w[ATTENTION_MASK_BATCH] +
		     query.head * p.w[ATTENTION_MASK_HEAD] + query.row * p.w[ATTENTION_MASK_ROW];

	/* The length is loaded once, then clamped. */
	if ((p.w[ATTENTION_FLAGS] & ATTENTION_HAS_VALID) != 0) {
		uvec2 length = Length(p.address[4] + uint64_t(query.batch) * 8ul).v;

		if ((length.y & 0x80000000u) != 0)
			valid = 0;
		else if (length.y == 0)
			valid = min(length.x, total);
	}
	query.limit = valid;
	if ((p.w[ATTENTION_FLAGS] & ATTENTION_CAUSAL) != 0) {
		/* Below zero wraps to a number that is larger than all lengths. */
		uint seen = query.row + 1 + p.w[ATTENTION_PAST];

		if ((p.w[ATTENTION_FLAGS] & ATTENTION_HAS_VALID) != 0 && p.w[ATTENTION_PAST] == 0)
			seen = query.row + 1 + valid >= rows ? query.row + 1 + valid - rows : 0;
		query.limit = min(valid, seen);
	}
	if ((p.w[ATTENTION_FLAGS] & ATTENTION_HAS_MASK) != 0)
		query.limit = min(query.limit, p.w[ATTENTION_MASK_COLS]);
	return query;
}

float product(Params p, Query query, uint key)
{
	uint size = p.w[ATTENTION_HEAD], at_k = query.k + key * p.w[ATTENTION_K_ROW], d = 0;
	vec4 sum = vec4(0.0);
	float rest = 0.0;

	for (; d + 8 <= size; d += 8) {
		sum += load4(p.address[0], query.q + d) * load4(p.address[1], at_k + d);
		sum += load4(p.address[0], query.q + d + 4) * load4(p.address[1], at_k + d + 4);
	}
	for (; d < size; d++)
		rest += load1(p.address[0], query.q + d) * load1(p.address[1], at_k + d);
	return (sum.x + sum.y) + (sum.z + sum.w) + rest;
}

/* The score of @key, minus infinity where it does not count; what was asked for is written. */
float score(Params p, Query query, uint key, bool write)
{
	uint flags = p.w[ATTENTION_FLAGS], mode = p.w[ATTENTION_QK_MODE];
	float cap = uintBitsToFloat(p.w[ATTENTION_SOFTCAP]);
	float s = product(p, query, key) * uintBitsToFloat(p.w[ATTENTION_SCALE]);

	if (write && mode == 0)
		store1(p.address[PARAM_OUT + 1], query.qk + key, s);
	if (cap > 0.0)
		s = tanh(s / cap) * cap;
	if (write && mode == 1)
		store1(p.address[PARAM_OUT + 1], query.qk + key, s);
	if (key >= query.limit) {
		s = NONE;
	} else if ((flags & ATTENTION_MASK_BOOL) != 0) {
		uint64_t address = p.address[3] + uint64_t(query.mask + key);
		uint word = Word(address & ~3ul).v;

		if ((word >> (uint(address & 3ul) * 8) & 0xffu) == 0)
			s = NONE;
	} else if ((flags & ATTENTION_HAS_MASK) != 0) {
		uint at = query.mask + key;
		float bias;

		/* Its type need not be that of the keys. */
		if ((flags & ATTENTION_MASK_HALF) != 0)
			bias = unpackHalf2x16(Word(p.address[3] + uint64_t(at / 2) * 4ul).v)[at % 2];
		else
			bias = uintBitsToFloat(Word(p.address[3] + uint64_t(at) * 4ul).v);

		s = floatBitsToUint(bias) == 0xff800000u ? NONE : s + bias;
	}
	if (write && mode == 2)
		store1(p.address[PARAM_OUT + 1], query.qk + key, s);
	return s;
}

bool counts(float s)
{
	return floatBitsToUint(s) != 0xff800000u;
}

void main()
{
	Params p = Params(push.params);
	uint index = linear_group(p);

	if (index >= p.w[ATTENTION_QUERIES])
		return;

	uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
	uint size = p.w[ATTENTION_VALUE], total = p.w[ATTENTION_KEYS], mode = p.w[ATTENTION_QK_MODE];
	Query query = query_of(p, index);
	bool writes = (p.w[ATTENTION_FLAGS] & ATTENTION_HAS_QK) != 0;
	/* Scores that nobody wants are not computed. */
	uint n_keys = writes ? total : query.limit;
	float most = NONE, sum = 0.0;

	for (uint d = lane; d < size; d += lanes)
		sums[d] = 0.0;
	for (uint begin = 0; begin < n_keys; begin += lanes) {
		uint key = begin + lane;
		float s = key < n_keys ? score(p, query, key, writes) : NONE;
		/* What is no number is not the largest, but makes the sum none. */
		float top = max(most, group_max(isnan(s) ? NONE : s)), factor = 1.0, weight = -1.0;

		if (counts(s))
			weight = exp(s - top);
		if (top > most)
			factor = counts(most) ? exp(most - top) : 0.0;
		weights[lane] = weight;
		sum = sum * factor + group_add(counts(s) ? weight : 0.0);
		for (uint d = lane; d < size; d += lanes) {
			float value = factor == 0.0 ? 0.0 : sums[d] * factor;

			for (uint j = 0; j < min(lanes, n_keys - begin); j++)
				/* Written so that what is not a number counts. */
				if (!(weights[j] < 0.0))
					value += weights[j] *
						 load1(p.address[2],
						       query.v +
							       (begin + j) * p.w[ATTENTION_V_ROW] +
							       d);
			sums[d] = value;
		}
		most = top;
		barrier();
	}

	float inv = sum == 0.0 ? 0.0 : 1.0 / sum;

	for (uint d = lane; d < size; d += lanes)
		store1(p.address[PARAM_OUT], query.y + d, sum == 0.0 ? 0.0 : sums[d] * inv);
	if (writes && mode == 3)
		for (uint key = lane; key < total; key += lanes) {
			float s = score(p, query, key, false);

			store1(p.address[PARAM_OUT + 1], query.qk + key,
			       counts(s) ? exp(s - most) * inv : 0.0);
		}
}
