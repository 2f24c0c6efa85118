#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Attention for GPUs: each workgroup computes four queries of the same keys, which are the
 * components of vectors. Keys are processed in blocks of one key per invocation, so that keys and
 * values are loaded once for all four queries. Otherwise as attention.comp.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(local_size_x_id = 0) in;

const uint QUERIES = 4;
const uint MAX_LANES = 64;
const uint MAX_VALUE = 128; /* twice VK_ATTENTION_HEAD */

shared vec4 weights[MAX_LANES]; /* weights of a block's keys; negative: the key does not count */
shared vec4 sums[MAX_VALUE];
shared vec4 parts[MAX_LANES];

vec4 group_max(vec4 value)
{
	vec4 most = subgroupMax(value);

	if (subgroupElect())
		parts[gl_SubgroupID] = most;
	barrier();
	for (uint i = 0; i < gl_NumSubgroups; i++)
		most = max(most, parts[i]);
	barrier();
	return most;
}

vec4 group_add(vec4 value)
{
	vec4 part = subgroupAdd(value), sum = vec4(0.0);

	if (subgroupElect())
		parts[gl_SubgroupID] = part;
	barrier();
	for (uint i = 0; i < gl_NumSubgroups; i++)
		sum += parts[i];
	barrier();
	return sum;
}

/* Return the products of all queries with @key. */
vec4 products(Params p, Query query[QUERIES], uint key)
{
	uint size = p.w[ATTENTION_HEAD], at_k = query[0].k + key * p.w[ATTENTION_K_ROW], d = 0;
	vec4 part[QUERIES], result = vec4(0.0);
	float scale = scale_of(p);

	[[unroll]] for (uint i = 0; i < QUERIES; i++)
		part[i] = vec4(0.0);
	for (; d + 4 <= size; d += 4) {
		vec4 k = load4(p.address[1], at_k + d) * scale;

		[[unroll]] for (uint i = 0; i < QUERIES; i++)
			part[i] += load4(p.address[0], query[i].q + d) * k;
	}
	for (; d < size; d++) {
		float k = load1(p.address[1], at_k + d) * scale;

		[[unroll]] for (uint i = 0; i < QUERIES; i++)
			result[i] += load1(p.address[0], query[i].q + d) * k;
	}
	[[unroll]] for (uint i = 0; i < QUERIES; i++)
		result[i] += (part[i].x + part[i].y) + (part[i].z + part[i].w);
	return result;
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;

	if (group >= p.w[ATTENTION_GROUPS])
		return;

	uint rows = p.w[ATTENTION_Q_LEN], kv_heads = p.w[ATTENTION_KV_HEADS];
	uint shared_by = p.w[ATTENTION_Q_HEADS] / kv_heads, blocks = p.w[ATTENTION_BLOCKS];
	uint first = group % blocks * QUERIES, kv = group / blocks;
	uint n_queries = min(shared_by * rows - first, QUERIES);
	uint size = p.w[ATTENTION_VALUE], total = p.w[ATTENTION_KEYS], mode = p.w[ATTENTION_QK_MODE];
	bool writes = (p.w[ATTENTION_FLAGS] & ATTENTION_HAS_QK) != 0;
	uint n_keys = 0;
	vec4 most = vec4(NONE), sum = vec4(0.0);
	Query query[QUERIES];

	/* With fewer than four queries, the last one is repeated, and written once. */
	[[unroll]] for (uint i = 0; i < QUERIES; i++) {
		uint n = first + min(i, n_queries - 1);

		query[i] = query_of(p, kv / kv_heads, kv % kv_heads * shared_by + n / rows, n % rows);
		n_keys = max(n_keys, query[i].limit);
	}
	n_keys = writes ? total : n_keys;
	for (uint d = lane; d < size; d += lanes)
		sums[d] = vec4(0.0);
	for (uint begin = 0; begin < n_keys; begin += lanes) {
		uint key = begin + lane;
		vec4 s = vec4(NONE), best = vec4(NONE), top, factor, weight, counted;

		if (key < n_keys) {
			vec4 product = products(p, query, key);

			[[unroll]] for (uint i = 0; i < QUERIES; i++)
				s[i] = score_of(p, query[i], key, product[i], writes && i < n_queries);
		}
		/* A NaN is not the maximum, but makes the sum a NaN. */
		[[unroll]] for (uint i = 0; i < QUERIES; i++)
			best[i] = isnan(s[i]) ? NONE : s[i];
		top = max(most, group_max(best));
		[[unroll]] for (uint i = 0; i < QUERIES; i++) {
			weight[i] = counts(s[i]) ? exp(s[i] - top[i]) : -1.0;
			counted[i] = counts(s[i]) ? weight[i] : 0.0;
			factor[i] = top[i] > most[i] ?
					    (counts(most[i]) ? exp(most[i] - top[i]) : 0.0) :
					    1.0;
		}
		weights[lane] = weight;
		sum = sum * factor + group_add(counted);
		for (uint d = lane; d < size; d += lanes) {
			vec4 value = sums[d] * factor;

			[[unroll]] for (uint i = 0; i < QUERIES; i++)
				value[i] = factor[i] == 0.0 ? 0.0 : value[i];
			for (uint j = 0; j < min(lanes, n_keys - begin); j++) {
				vec4 w = weights[j];
				float v = load1(p.address[2],
						query[0].v + (begin + j) * p.w[ATTENTION_V_ROW] + d);

				/* The comparison is written so that NaN weights count. */
				[[unroll]] for (uint i = 0; i < QUERIES; i++)
					value[i] += w[i] < 0.0 ? 0.0 : w[i] * v;
			}
			sums[d] = value;
		}
		most = top;
		barrier();
	}

	vec4 inv;

	[[unroll]] for (uint i = 0; i < QUERIES; i++)
		inv[i] = sum[i] == 0.0 ? 0.0 : 1.0 / sum[i];
	for (uint d = lane; d < size; d += lanes)
		[[unroll]] for (uint i = 0; i < QUERIES; i++)
			if (i < n_queries)
				store1(p.address[PARAM_OUT], query[i].y + d,
				       sum[i] == 0.0 ? 0.0 : sums[d][i] * inv[i]);
	if (!writes || mode != 3)
		return;
	for (uint key = lane; key < total; key += lanes) {
		vec4 product = products(p, query, key);

		[[unroll]] for (uint i = 0; i < QUERIES; i++) {
			float s = score_of(p, query[i], key, product[i], false);

			if (i < n_queries)
				store1(p.address[PARAM_OUT + 1], query[i].qk + key,
				       counts(s) ? exp(s - most[i]) * inv[i] : 0.0);
		}
	}
}
