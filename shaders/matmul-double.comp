#version 460
/* SPDX-License-Identifier: MIT */
/*
 * MatMul and Gemm of float64: each invocation computes ROWS rows by COLS columns in registers. Its
 * columns are a workgroup's width apart, so that adjacent invocations read adjacent elements. Rows
 * and columns beyond the last read the last one; their results are not stored.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul-common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TRANS_A = 0;
layout(constant_id = 2) const uint TRANS_B = 0;

const uint ROWS = 4, COLS = 3, UNROLL = 4;

struct Tile {
	double sums[ROWS][COLS];
	uint rows[ROWS], cols[COLS]; /* offsets of term 0 in A and B */
};

void add_term(inout Tile tile, uint64_t a, uint64_t b, uint a_at, uint b_at)
{
	double y[COLS];

	[[unroll]] for (uint j = 0; j < COLS; j++)
		y[j] = load1(b, tile.cols[j] + b_at);
	[[unroll]] for (uint i = 0; i < ROWS; i++) {
		double x = load1(a, tile.rows[i] + a_at);

		[[unroll]] for (uint j = 0; j < COLS; j++)
			tile.sums[i][j] = fma(x, y[j], tile.sums[i][j]);
	}
}

void product(Params p, uint z, uint row, uint col)
{
	uint m = p.w[MATMUL_M], n = p.w[MATMUL_N], terms = p.w[MATMUL_K], k = 0;
	uint lda = p.w[MATMUL_LDA], ldb = p.w[MATMUL_LDB];
	uint a_step = TRANS_A == 0 ? 1 : lda, b_step = TRANS_B == 0 ? ldb : 1;
	uint64_t a, b, out_at = p.address[PARAM_OUT] + uint64_t(z) * m * n * ELEMENT;
	uint a_first, b_first;
	Tile tile;

	batch_offsets(p, z, a_first, b_first);
	a = at(p.address[0], a_first);
	b = at(p.address[1], b_first);
	[[unroll]] for (uint i = 0; i < ROWS; i++) {
		tile.rows[i] = min(row + i, m - 1) * (TRANS_A == 0 ? lda : 1);
		[[unroll]] for (uint j = 0; j < COLS; j++)
			tile.sums[i][j] = 0.0lf;
	}
	[[unroll]] for (uint j = 0; j < COLS; j++)
		tile.cols[j] = min(col + j * gl_WorkGroupSize.x, n - 1) * (TRANS_B == 0 ? 1 : ldb);
	for (; k + UNROLL <= terms; k += UNROLL)
		[[unroll]] for (uint u = 0; u < UNROLL; u++)
			add_term(tile, a, b, (k + u) * a_step, (k + u) * b_step);
	for (; k < terms; k++)
		add_term(tile, a, b, k * a_step, k * b_step);
	[[unroll]] for (uint i = 0; i < ROWS; i++)
		[[unroll]] for (uint j = 0; j < COLS; j++) {
			uint c = col + j * gl_WorkGroupSize.x;

			if (row + i < m && c < n)
				store1(out_at, (row + i) * n + c,
				       finish(p, tile.sums[i][j], row + i, c));
		}
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p);

	if (group >= p.w[MATMUL_TILES])
		return;

	uint row = group / p.w[MATMUL_COL_TILES] * ROWS;
	uint col = group % p.w[MATMUL_COL_TILES] * COLS * gl_WorkGroupSize.x +
		   gl_LocalInvocationID.x;

	if (col >= p.w[MATMUL_N])
		return;
	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z)
		product(p, z, row, col);
}
