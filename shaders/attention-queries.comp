#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Attention for software devices: one query per invocation. The queries of a workgroup share keys,
 * which they process together, one after another. On such devices a load by address is executed per
 * invocation, and so is every access to shared memory. So each invocation loads a part of a key,
 * and the subgroup, which is the workgroup, broadcasts the parts. No invocation may return early.
 *
 * Queries and outputs are CHUNKS vectors in registers, with 0 beyond their size. Otherwise as
 * attention.comp.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint CHUNKS = 16;

const uint LANES = 8; /* also the size of the workgroup and of the subgroup */
const uint PARTS = CHUNKS / LANES;

/*
 * Load elements [at, at + 4) of @size at @base; 0 beyond @size, which is at least 4. A branch would
 * not save the loads that it skips.
 */
vec4 chunk(uint64_t base, uint at, uint size)
{
	uint from = min(at, size - 4), beyond = at - from;
	vec4 v = load4(base, from);

	v = (beyond & 1u) != 0 ? vec4(v.yzw, 0.0) : v;
	v = (beyond & 2u) != 0 ? vec4(v.zw, 0.0, 0.0) : v;
	return beyond < 4 ? v : vec4(0.0);
}

float product(Params p, uint from, uint size, vec4 q[CHUNKS])
{
	uint lane = gl_LocalInvocationID.x;
	uint64_t base = at(p.address[1], from);
	vec4 part[PARTS], sum = vec4(0.0);

	[[unroll]] for (uint i = 0; i < PARTS; i++)
		part[i] = chunk(base, (i * LANES + lane) * 4, size);
	[[unroll]] for (uint c = 0; c < CHUNKS; c++)
		sum += q[c] * subgroupBroadcast(part[c / LANES], c % LANES);
	return (sum.x + sum.y) + (sum.z + sum.w);
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), lane = gl_LocalInvocationID.x;

	if (group >= p.w[ATTENTION_GROUPS])
		return;

	uint rows = p.w[ATTENTION_Q_LEN], kv_heads = p.w[ATTENTION_KV_HEADS];
	uint shared_by = p.w[ATTENTION_Q_HEADS] / kv_heads, blocks = p.w[ATTENTION_BLOCKS];
	uint n = group % blocks * LANES + lane, kv = group / blocks;
	bool is_one = n < shared_by * rows;
	uint i_query = min(n, shared_by * rows - 1);
	Query query = query_of(p, kv / kv_heads, kv % kv_heads * shared_by + i_query / rows,
			       i_query % rows);
	uint size = p.w[ATTENTION_HEAD], value_size = p.w[ATTENTION_VALUE];
	uint total = p.w[ATTENTION_KEYS], mode = p.w[ATTENTION_QK_MODE];
	bool writes = (p.w[ATTENTION_FLAGS] & ATTENTION_HAS_QK) != 0;
	uint n_keys = writes ? total : subgroupMax(query.limit);
	float most = NONE, sum = 0.0;
	vec4 q[CHUNKS], values[CHUNKS];

	[[unroll]] for (uint c = 0; c < CHUNKS; c++) {
		q[c] = chunk(at(p.address[0], query.q), c * 4, size) * scale_of(p);
		values[c] = vec4(0.0);
	}
	for (uint key = 0; key < n_keys; key++) {
		float dot_product = product(p, query.k + key * p.w[ATTENTION_K_ROW], size, q);
		float s = score_of(p, query, key, dot_product, writes && is_one), weight = 0.0;
		bool does_count = counts(s);
		uint64_t base = at(p.address[2], query.v + key * p.w[ATTENTION_V_ROW]);
		vec4 part[PARTS];

		/* A NaN is not the maximum, but makes the sum a NaN. */
		if (subgroupBallot(s > most) != uvec4(0)) {
			float top = s > most ? s : most;
			float factor = top > most ? counts(most) ? exp(most - top) : 0.0 : 1.0;

			sum *= factor;
			[[unroll]] for (uint c = 0; c < CHUNKS; c++)
				values[c] = factor == 0.0 ? vec4(0.0) : values[c] * factor;
			most = top;
		}
		if (does_count)
			weight = exp(s - most);
		sum += weight;
		[[unroll]] for (uint i = 0; i < PARTS; i++)
			part[i] = chunk(base, (i * LANES + lane) * 4, value_size);
		[[unroll]] for (uint c = 0; c < CHUNKS; c++) {
			vec4 term = weight * subgroupBroadcast(part[c / LANES], c % LANES);

			values[c] += does_count ? term : vec4(0.0);
		}
	}

	float inv = sum == 0.0 ? 0.0 : 1.0 / sum;

	[[unroll]] for (uint c = 0; c < CHUNKS; c++) {
		vec4 value = sum == 0.0 ? vec4(0.0) : values[c] * inv;

		[[unroll]] for (uint i = 0; i < 4; i++)
			if (is_one && c * 4 + i < value_size)
				store1(p.address[PARAM_OUT], query.y + c * 4 + i, value[i]);
	}
	if (!writes || mode != 3)
		return;
	for (uint key = 0; key < total; key++) {
		float dot_product = product(p, query.k + key * p.w[ATTENTION_K_ROW], size, q);
		float s = score_of(p, query, key, dot_product, false);

		if (is_one)
			store1(p.address[PARAM_OUT + 1], query.qk + key,
			       counts(s) ? exp(s - most) * inv : 0.0);
	}
}
