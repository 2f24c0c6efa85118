#version 460
/* SPDX-License-Identifier: MIT */
/* MatMul and Gemm in shared-memory tiles, for GPUs. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul-common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TRANS_A = 0;
layout(constant_id = 2) const uint TRANS_B = 0;

uint M, N, K, lda, ldb;
uint64_t a, b;

#define TILE_A_K_FIRST (TRANS_A == 0)
#define TILE_B_K_FIRST (TRANS_B != 0)

float tile_a(uint row, uint k)
{
	if (row >= M || k >= K)
		return 0.0;
	return In1(a + (TRANS_A == 0 ? uint64_t(row) * lda + k : uint64_t(k) * lda + row) * 4ul).v;
}

float tile_b(uint k, uint col)
{
	if (col >= N || k >= K)
		return 0.0;
	return In1(b + (TRANS_B == 0 ? uint64_t(k) * ldb + col : uint64_t(col) * ldb + k) * 4ul).v;
}

#include "tile.glsl"

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), tiles = p.w[MATMUL_COL_TILES];
	uint x = gl_LocalInvocationID.x % 16, y = gl_LocalInvocationID.x / 16;

	if (group >= p.w[MATMUL_TILES])
		return;
	M = p.w[MATMUL_M];
	N = p.w[MATMUL_N];
	K = p.w[MATMUL_K];
	lda = p.w[MATMUL_LDA];
	ldb = p.w[MATMUL_LDB];

	uint row = group / tiles * TILE, col = group % tiles * TILE;

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint a_at, b_at;
		vec4 sum[4];

		batch_offsets(p, z, a_at, b_at);
		a = at(p.address[0], a_at);
		b = at(p.address[1], b_at);
		uint64_t o = p.address[3] + uint64_t(z) * M * N * 4ul;

		tile_product(row, col, K, sum);
		[[unroll]] for (uint r = 0; r < 4; r++)
			[[unroll]] for (uint c = 0; c < 4; c++) {
				uint m = row + 4 * y + r, n = col + x + 16 * c;

				if (m < M && n < N)
					store1(o, m * N + n, finish(p, sum[r][c], m, n));
			}
	}
}
