#version 460
/* SPDX-License-Identifier: MIT */
/*
 * MatMul and Gemm of float16 by cooperative matrices: the invocations of a subgroup together hold
 * matrices of MATRIX_M by MATRIX_K and MATRIX_K by MATRIX_N, multiply them by special instructions
 * and sum in float32. For devices that have VK_KHR_cooperative_matrix; the device determines the
 * sizes.
 *
 * A workgroup is SUBGROUPS subgroups and computes TILE by TILE elements of the result, each
 * subgroup a quarter of these. For each TILE_K values of k, the parts of A and B are first loaded
 * into shared memory, in their layout in memory. Zeros fill the places beyond the last row, column
 * or k. Edges need nothing else, except that results beyond them are not stored.
 *
 * Subgroups pass their sums through shared memory, one matrix at a time: the epilogue needs to know
 * which invocation holds which elements of a matrix, which is unspecified.
 *
 * glslang 11 has only NVIDIA's older extension; shaders/khr-matrices.py converts the module to
 * Khronos's.
 */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_NV_cooperative_matrix : require
#include "common.glsl"
#include "matmul-common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TRANS_A = 0;
layout(constant_id = 2) const uint TRANS_B = 0;
layout(constant_id = 3) const uint MATRIX_M = 16;
layout(constant_id = 4) const uint MATRIX_N = 16;
layout(constant_id = 5) const uint MATRIX_K = 16;

const uint TILE = 64;
const uint TILE_K = 32; /* a multiple of MATRIX_K */
const uint SUBGROUPS = 4;
const uint PART = 32; /* rows and columns of a subgroup, a multiple of MATRIX_M and MATRIX_N */
const uint M_PARTS = PART / MATRIX_M;
const uint N_PARTS = PART / MATRIX_N;

/*
 * Shared memory has lines of quads: rows of A, or columns if A is transposed, and likewise of B.
 * Lines are two quads longer than needed, so that they begin in different banks.
 */
const uint PAD = 2;
const uint A_QUADS = (TRANS_A == 0 ? TILE_K : TILE) / 4;
const uint B_QUADS = (TRANS_B == 0 ? TILE : TILE_K) / 4;
const uint A_LINE = A_QUADS + PAD;
const uint B_LINE = B_QUADS + PAD;
const uint QUADS = TILE * TILE_K / 4;

shared uvec2 tile_a[(TRANS_A == 0 ? TILE : TILE_K) * A_LINE];
shared uvec2 tile_b[(TRANS_B == 0 ? TILE_K : TILE) * B_LINE];
shared uvec4 sums[SUBGROUPS * MATRIX_M * MATRIX_N / 4];

/* Load elements first to first + 3 of a line of n_elements; missing elements are zero. */
uvec2 load_quad(uint64_t base, uint line, uint n_lines, uint first, uint n_elements, uint distance)
{
	f16vec4 v = f16vec4(0.0);

	if (line >= n_lines || first >= n_elements)
		return uvec2(0);

	uint64_t where = at(base, line * distance + first);

	if (first + 4 <= n_elements)
		v = In4(where).v;
	else
		[[unroll]] for (uint i = 0; i < 3; i++)
			if (first + i < n_elements)
				v[i] = In1(at(where, i)).v;
	return uvec2(packFloat2x16(v.xy), packFloat2x16(v.zw));
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), tiles = p.w[MATMUL_COL_TILES];

	if (group >= p.w[MATMUL_TILES])
		return;

	const uint M = p.w[MATMUL_M], N = p.w[MATMUL_N], K = p.w[MATMUL_K];
	const uint lda = p.w[MATMUL_LDA], ldb = p.w[MATMUL_LDB];
	const uint row = group / tiles * TILE, col = group % tiles * TILE;
	/* The subgroup's part of the tile begins at part_row and part_col. */
	const uint part_row = gl_SubgroupID / 2 * PART, part_col = gl_SubgroupID % 2 * PART;
	const uint mine = gl_SubgroupID * MATRIX_M * MATRIX_N / 4;

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint64_t o = p.address[PARAM_OUT] + uint64_t(z) * M * N * ELEMENT;
		uint a_at, b_at;
		fcoopmatNV<32, gl_ScopeSubgroup, MATRIX_M, MATRIX_N> sum[M_PARTS][N_PARTS];

		batch_offsets(p, z, a_at, b_at);

		uint64_t a = at(p.address[0], a_at), b = at(p.address[1], b_at);

		[[unroll]] for (uint i = 0; i < M_PARTS; i++)
			[[unroll]] for (uint j = 0; j < N_PARTS; j++)
				sum[i][j] = fcoopmatNV<32, gl_ScopeSubgroup, MATRIX_M, MATRIX_N>(0.0);

		for (uint k = 0; k < K; k += TILE_K) {
			for (uint t = gl_LocalInvocationID.x; t < QUADS; t += gl_WorkGroupSize.x) {
				uint line = t / A_QUADS, quad = t % A_QUADS;

				tile_a[line * A_LINE + quad] =
					TRANS_A == 0 ? load_quad(a, row + line, M, k + 4 * quad, K, lda) :
						       load_quad(a, k + line, K, row + 4 * quad, M, lda);
				line = t / B_QUADS;
				quad = t % B_QUADS;
				tile_b[line * B_LINE + quad] =
					TRANS_B == 0 ? load_quad(b, k + line, K, col + 4 * quad, N, ldb) :
						       load_quad(b, col + line, N, k + 4 * quad, K, ldb);
			}
			barrier();
			[[unroll]] for (uint step = 0; step < TILE_K; step += MATRIX_K) {
				fcoopmatNV<16, gl_ScopeSubgroup, MATRIX_M, MATRIX_K> part_a[M_PARTS];

				[[unroll]] for (uint i = 0; i < M_PARTS; i++) {
					uint m = part_row + i * MATRIX_M;

					if (TRANS_A == 0)
						coopMatLoadNV(part_a[i], tile_a, m * A_LINE + step / 4,
							      A_LINE, false);
					else
						coopMatLoadNV(part_a[i], tile_a, step * A_LINE + m / 4,
							      A_LINE, true);
				}
				[[unroll]] for (uint j = 0; j < N_PARTS; j++) {
					fcoopmatNV<16, gl_ScopeSubgroup, MATRIX_K, MATRIX_N> part_b;
					uint n = part_col + j * MATRIX_N;

					if (TRANS_B == 0)
						coopMatLoadNV(part_b, tile_b, step * B_LINE + n / 4,
							      B_LINE, false);
					else
						coopMatLoadNV(part_b, tile_b, n * B_LINE + step / 4,
							      B_LINE, true);
					[[unroll]] for (uint i = 0; i < M_PARTS; i++)
						sum[i][j] = coopMatMulAddNV(part_a[i], part_b, sum[i][j]);
				}
			}
			barrier();
		}

		[[unroll]] for (uint i = 0; i < M_PARTS; i++) {
			[[unroll]] for (uint j = 0; j < N_PARTS; j++) {
				coopMatStoreNV(sum[i][j], sums, mine, MATRIX_N / 4, false);
				subgroupBarrier();
				for (uint t = gl_SubgroupInvocationID; t < MATRIX_M * MATRIX_N / 4;
				     t += gl_SubgroupSize) {
					uint m = row + part_row + i * MATRIX_M + t / (MATRIX_N / 4);
					uint n = col + part_col + j * MATRIX_N + t % (MATRIX_N / 4) * 4;

					if (m >= M || n >= N)
						continue;

					vec4 v = finish4(p, uintBitsToFloat(sums[mine + t]), m, n, N);

					if (n + 4 <= N)
						store4(o, m * N + n, v);
					else
						[[unroll]] for (uint c = 0; c < 3; c++)
							if (n + c < N)
								store1(o, m * N + n + c, v[c]);
				}
				subgroupBarrier();
			}
		}
	}
}
