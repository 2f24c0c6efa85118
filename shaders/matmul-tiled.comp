#version 460
/* SPDX-License-Identifier: MIT */
/* MatMul and Gemm in shared-memory tiles, for GPUs. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul-common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TRANS_A = 0;
layout(constant_id = 2) const uint TRANS_B = 0;
#define TILE_ID 3
#include "tile.glsl"

uint M, N, K, lda, ldb, row, col;
uint64_t a, b;

/*
 * Edges cost no branch in the loop. Rows and columns beyond the last read the last one, and their
 * results are not stored. A contiguous quad that would extend beyond the last element is moved to
 * end with it, so that some elements are computed twice, with the same bits. Matrices with fewer
 * than four elements in that direction are read element by element, as all matrices are in the last
 * steps of k.
 */
uint quad_row(uint at)
{
	return TRANS_A == 0 || M < 4 ? at : min(at, M - 4);
}

uint quad_col(uint at)
{
	return TRANS_B != 0 || N < 4 ? at : min(at, N - 4);
}

vec4 elements_a(uint m, uint k)
{
	vec4 v = vec4(0.0);

	[[unroll]] for (uint i = 0; i < 4; i++) {
		uint mi = TRANS_A == 0 ? m : m + i, ki = TRANS_A == 0 ? k + i : k;

		if (mi < M && ki < K)
			v[i] = load1(a, TRANS_A == 0 ? mi * lda + ki : ki * lda + mi);
	}
	return v;
}

vec4 elements_b(uint k, uint n)
{
	vec4 v = vec4(0.0);

	[[unroll]] for (uint i = 0; i < 4; i++) {
		uint ni = TRANS_B == 0 ? n + i : n, ki = TRANS_B == 0 ? k : k + i;

		if (ni < N && ki < K)
			v[i] = load1(b, TRANS_B == 0 ? ki * ldb + ni : ni * ldb + ki);
	}
	return v;
}

/* Store four elements that are adjacent in memory into the tile of A; store_b() likewise. */
void store_a(uint at, uint part, vec4 v)
{
	if (TRANS_A != 0)
		tile_as[at] = v;
	else
		[[unroll]] for (uint i = 0; i < 4; i++)
			tile_as[at + i * TILE_A_LINE][part] = v[i];
}

void store_b(uint at, uint part, vec4 v)
{
	if (TRANS_B == 0)
		tile_bs[at] = v;
	else
		[[unroll]] for (uint i = 0; i < 4; i++)
			tile_bs[at + i * TILE_B_LINE][part] = v[i];
}

/*
 * Load the quads of A and B, several per invocation. Subexpressions that several quads share, or
 * all invocations, are written separately, so that the compiler recognises them.
 */
void tile_load(uint k0, bool whole)
{
	const uint size = gl_WorkGroupSize.x, col_quads = TILE_COLS / 4, row_quads = TILE_ROWS / 4;
	const uint k_quads = TILE_K / 4;
	uint t = gl_LocalInvocationID.x;

	[[unroll]] for (uint i = 0; i < TILE_LOADS_A; i++) {
		uint r = TRANS_A == 0 ? t / k_quads : t % row_quads * 4;
		uint k = TRANS_A == 0 ? t % k_quads * 4 : t / row_quads;
		uint r_more = TRANS_A == 0 ? size / k_quads * i : 0;
		uint k_more = TRANS_A == 0 ? 0 : TILE_LANES * i;

		if (TILE_K < TILE_LANES && t >= TILE_ROWS * k_quads)
			break;

		uint m = TRANS_A == 0 ? min(row + r + r_more, M - 1) : quad_row(row + r);
		vec4 v = whole ? load4(a, (TRANS_A == 0 ? m * lda + k : k * lda + m) +
						  (TRANS_A == 0 ? k0 : (k0 + k_more) * lda)) :
				 elements_a(m, k0 + k_more + k);

		store_a(k * TILE_A_LINE + r / 4 + k_more * TILE_A_LINE + r_more / 4, r % 4, v);
	}
	[[unroll]] for (uint i = 0; i < TILE_COLS * TILE_K / 4 / size; i++) {
		uint c = TRANS_B == 0 ? t % col_quads * 4 : t / k_quads;
		uint k = TRANS_B == 0 ? t / col_quads : t % k_quads * 4;
		uint c_more = TRANS_B == 0 ? 0 : size / k_quads * i;
		uint k_more = TRANS_B == 0 ? size / col_quads * i : 0;
		uint n = TRANS_B == 0 ? quad_col(col + c) : min(col + c + c_more, N - 1);
		vec4 v = whole ? load4(b, (TRANS_B == 0 ? k * ldb + n : n * ldb + k) +
						  (TRANS_B == 0 ? (k0 + k_more) * ldb : k0)) :
				 elements_b(k0 + k_more + k, n);

		store_b(k * TILE_B_LINE + c / 4 + k_more * TILE_B_LINE + c_more / 4, c % 4, v);
	}
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), tiles = p.w[MATMUL_COL_TILES];

	if (group >= p.w[MATMUL_TILES])
		return;
	M = p.w[MATMUL_M];
	N = p.w[MATMUL_N];
	K = p.w[MATMUL_K];
	lda = p.w[MATMUL_LDA];
	ldb = p.w[MATMUL_LDB];
	row = group / tiles * TILE_ROWS;
	col = group % tiles * TILE_COLS;

	bool is_thin = (TRANS_A != 0 && M < 4) || (TRANS_B == 0 && N < 4);
	uint whole = is_thin ? 0 : K & ~(TILE_K - 1);

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint64_t o = p.address[PARAM_OUT] + uint64_t(z) * M * N * ELEMENT;
		uint a_at, b_at;
		vec4 sum[TILE_SIDES][4];

		batch_offsets(p, z, a_at, b_at);
		a = at(p.address[0], a_at);
		b = at(p.address[1], b_at);
		[[unroll]] for (uint r = 0; r < 4; r++)
			[[unroll]] for (uint side = 0; side < TILE_SIDES; side++)
				sum[side][r] = vec4(0.0);
		for (uint k = 0; k < whole; k += TILE_K)
			tile_step(k, true, sum);
		for (uint k = whole; k < K; k += TILE_K)
			tile_step(k, false, sum);

		uint x = gl_LocalInvocationID.x % TILE_LANES;
		uint y = gl_LocalInvocationID.x / TILE_LANES;
		uint m = quad_row(row + 4 * y);

		[[unroll]] for (uint side = 0; side < TILE_SIDES; side++) {
			uint first = col + 4 * x + 4 * TILE_LANES * side, n = quad_col(first);

			[[unroll]] for (uint r = 0; r < 4; r++) {
				if (row + 4 * y >= M || first >= N || m + r >= M)
					continue;

				vec4 v = finish4(p, sum[side][r], m + r, n, N);

				if (n + 4 <= N)
					store4(o, (m + r) * N + n, v);
				else
					[[unroll]] for (uint c = 0; c < 3; c++)
						if (n + c < N)
							store1(o, (m + r) * N + n + c, v[c]);
			}
		}
	}
}
