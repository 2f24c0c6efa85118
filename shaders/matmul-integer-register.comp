#version 460
/* SPDX-License-Identifier: MIT */
/*
 * MatMulInteger without shared memory, for software devices: each invocation computes 8 rows by 4
 * columns, like matmul-register.comp, and for the same reasons.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul-common.glsl"
#include "integer.glsl"
#extension GL_KHR_shader_subgroup_ballot : require

layout(local_size_x_id = 0) in;

const uint ROWS = 8; /* also the size of the workgroup and of the subgroup */

void main()
{
	Params p = Params(push.params);
	uint M = p.w[MATMUL_M], N = p.w[MATMUL_N], K = p.w[MATMUL_K];
	uint group = linear_group(p), tiles = p.w[MATMUL_COL_TILES];

	if (group >= p.w[MATMUL_TILES])
		return;

	uint row_tiles = p.w[MATMUL_TILES] / tiles;
	uint row = group % row_tiles * ROWS;
	uint col = (group / row_tiles * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * 4;
	uint mine = min(row + gl_LocalInvocationID.x, M - 1);
	uint a_flip = flip_of(p.w[INTEGER_A_FLIP]), b_flip = flip_of(p.w[INTEGER_B_FLIP]);
	int a_zero = zero_of_a(p, mine);

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint a_at, b_at;
		ivec4 sum[ROWS];

		batch_offsets(p, z, a_at, b_at);
		uint64_t a = p.address[0] + uint64_t(a_at) + uint64_t(mine) * K;
		uint64_t b = p.address[1] + uint64_t(b_at);
		uint64_t o = p.address[PARAM_OUT] + uint64_t(z) * M * N * 4ul;

		[[unroll]] for (uint r = 0; r < ROWS; r++)
			sum[r] = ivec4(0);
		if (N >= 4) {
			uint c = min(col, N - 4);
			bool a_aligned = (K & 3u) == 0, b_aligned = (N & 3u) == 0;
			ivec4 b_zero = ivec4(zero_of_b(p, c), zero_of_b(p, c + 1),
					     zero_of_b(p, c + 2), zero_of_b(p, c + 3));

			for (uint k = 0; k < K; k += 4) {
				uint n = min(K - k, 4);
				uint ours = n == 4 ? load_quad(a, k, a_aligned) : load_some(a, k, n);

				ivec4 ours4 = ivec4(bytes_of(ours ^ a_flip)) - a_zero;

				[[unroll]] for (uint i = 0; i < 4; i++) {
					/* Beyond the last k, the factor from A is 0. */
					uint line = min(k + i, K - 1) * N;
					ivec4 v = ivec4(bytes_of(load_quad(b, line + c, b_aligned) ^
								 b_flip)) -
						  b_zero;
					int one = i < n ? ours4[i] : 0;

					[[unroll]] for (uint r = 0; r < ROWS; r++)
						sum[r] += subgroupBroadcast(one, r) * v;
				}
			}
			[[unroll]] for (uint r = 0; r < ROWS; r++)
				if (row + r < M)
					OutInt4(o + uint64_t((row + r) * N + c) * 4ul).v = sum[r];
		} else {
			/* With one to three columns, each invocation computes one row. */
			ivec3 total = ivec3(0);
			ivec3 b_zero = ivec3(zero_of_b(p, 0), zero_of_b(p, min(1, N - 1)),
					     zero_of_b(p, N - 1));

			for (uint k = 0; k < K; k++) {
				uvec3 v = uvec3(load_byte(b, k * N),
						load_byte(b, k * N + min(1, N - 1)),
						load_byte(b, k * N + N - 1));

				total += (int(load_byte(a, k) ^ p.w[INTEGER_A_FLIP]) - a_zero) *
					 (ivec3(v ^ p.w[INTEGER_B_FLIP]) - b_zero);
			}
			for (uint c = 0; c < N && row + gl_LocalInvocationID.x < M; c++)
				OutInt(o + uint64_t(mine * N + c) * 4ul).v =
					c == 0 ? total.x : c == 1 ? total.y : total.z;
		}
	}
}
