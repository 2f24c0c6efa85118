#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Attention: one query per workgroup. Keys are processed in blocks of one key per invocation. The
 * maximum score so far and the sum of exponentials relative to it are kept. When a block has a
 * larger maximum, the output so far, which is in shared memory, is scaled down. Keys that do not
 * count are skipped. The matrix of scores is written only on request; writing it after the softmax
 * takes a second pass over the keys, when the sum is known.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "subgroup.glsl"
#include "attention.glsl"

layout(local_size_x_id = 0) in;

const uint MAX_VALUE = 1024;  /* ATTENTION_MAX_VALUE of lower-attention.c */
const uint MAX_LANES = 256;

shared float weights[MAX_LANES]; /* weights of a block's keys; negative: the key does not count */
shared float sums[MAX_VALUE];

float product(Params p, Query query, uint key)
{
	uint size = p.w[ATTENTION_HEAD], at_k = query.k + key * p.w[ATTENTION_K_ROW], d = 0;
	vec4 sum = vec4(0.0);
	float rest = 0.0, scale = scale_of(p);

	for (; d + 8 <= size; d += 8) {
		sum += load4(p.address[0], query.q + d) * scale * load4(p.address[1], at_k + d);
		sum += load4(p.address[0], query.q + d + 4) * scale *
		       load4(p.address[1], at_k + d + 4);
	}
	for (; d < size; d++)
		rest += load1(p.address[0], query.q + d) * scale * load1(p.address[1], at_k + d);
	return (sum.x + sum.y) + (sum.z + sum.w) + rest;
}

void main()
{
	Params p = Params(push.params);
	uint index = linear_group(p);

	if (index >= p.w[ATTENTION_QUERIES])
		return;

	uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
	uint size = p.w[ATTENTION_VALUE], total = p.w[ATTENTION_KEYS], mode = p.w[ATTENTION_QK_MODE];
	uint rows = p.w[ATTENTION_Q_LEN], heads = p.w[ATTENTION_Q_HEADS];
	Query query = query_of(p, index / rows / heads, index / rows % heads, index % rows);
	bool writes = (p.w[ATTENTION_FLAGS] & ATTENTION_HAS_QK) != 0;
	/* Compute the scores of keys that do not count only if scores are requested. */
	uint n_keys = writes ? total : query.limit;
	float most = NONE, sum = 0.0;

	for (uint d = lane; d < size; d += lanes)
		sums[d] = 0.0;
	for (uint begin = 0; begin < n_keys; begin += lanes) {
		uint key = begin + lane;
		float s = key < n_keys ? score_of(p, query, key, product(p, query, key), writes) : NONE;
		/* A NaN is not the maximum, but makes the sum a NaN. */
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
				/* The comparison is written so that NaN weights count. */
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
			float s = score_of(p, query, key, product(p, query, key), false);

			store1(p.address[PARAM_OUT + 1], query.qk + key,
			       counts(s) ? exp(s - most) * inv : 0.0);
		}
}
