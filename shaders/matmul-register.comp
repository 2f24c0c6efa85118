#version 460
/* SPDX-License-Identifier: MIT */
/*
 * MatMul and Gemm without shared memory, for software devices: each invocation computes 8 rows by
 * twice 4 columns in registers.
 *
 * There a load through an address is done invocation by invocation and component by component, so
 * loads are what costs, and components of 64 bits halve that. All invocations of a workgroup need
 * the same elements of A: each loads those of one row, and the subgroup, which is the workgroup,
 * hands them around. So none may leave early. Handing around costs, too, but for all columns alike:
 * that is why there are twice 4, where the matrix is wide enough.
 *
 * Edges cost no branch in the loop: rows beyond the last read the last one, and the columns of the
 * last invocations begin early enough to end at N, so that some are computed twice, with the same
 * bits. Fewer than four columns take a path of their own.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul-common.glsl"
#extension GL_KHR_shader_subgroup_ballot : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TRANS_A = 0;
layout(constant_id = 2) const uint TRANS_B = 0;

const uint ROWS = 8; /* the workgroup's and the subgroup's size, too */

#ifdef F16
#define read_quad read4
#else
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Pairs { u64vec2 v; };

vec4 read_quad(uint64_t address)
{
	u64vec2 pairs = Pairs(address).v;

	return vec4(uintBitsToFloat(unpack32(pairs.x)), uintBitsToFloat(unpack32(pairs.y)));
}
#endif

/* Columns [col, col + 4) of rows [k, k + 4) of B. */
void load_b(uint64_t b, uint k, uint col, uint ldb, out vec4 b0, out vec4 b1, out vec4 b2,
	    out vec4 b3)
{
	if (TRANS_B == 0) {
		uint64_t base = b + (uint64_t(k) * ldb + col) * ELEMENT;
		uint64_t step = uint64_t(ldb) * ELEMENT;

		b0 = read_quad(base);
		b1 = read_quad(base + step);
		b2 = read_quad(base + 2ul * step);
		b3 = read_quad(base + 3ul * step);
	} else {
		uint64_t base = b + (uint64_t(col) * ldb + k) * ELEMENT;
		uint64_t step = uint64_t(ldb) * ELEMENT;
		mat4 t = transpose(mat4(read_quad(base), read_quad(base + step),
					read_quad(base + 2ul * step), read_quad(base + 3ul * step)));

		b0 = t[0];
		b1 = t[1];
		b2 = t[2];
		b3 = t[3];
	}
}

float element_a(uint64_t a, uint row, uint k, uint lda)
{
	return read1(a + (TRANS_A == 0 ? uint64_t(row) * lda + k : uint64_t(k) * lda + row) * ELEMENT);
}

float element_b(uint64_t b, uint k, uint col, uint ldb)
{
	return read1(b + (TRANS_B == 0 ? uint64_t(k) * ldb + col : uint64_t(col) * ldb + k) * ELEMENT);
}

void main()
{
	Params p = Params(push.params);
	uint M = p.w[MATMUL_M], N = p.w[MATMUL_N], K = p.w[MATMUL_K];
	uint lda = p.w[MATMUL_LDA], ldb = p.w[MATMUL_LDB];
	uint group = linear_group(p), tiles = p.w[MATMUL_COL_TILES];

	if (group >= p.w[MATMUL_TILES])
		return;

	/* Down the columns first: a strip of B stays in the cache while all of A passes by. */
	uint row_tiles = p.w[MATMUL_TILES] / tiles;
	uint row = group % row_tiles * ROWS;
	uint first = group / row_tiles * gl_WorkGroupSize.x * 8, half_tile = gl_WorkGroupSize.x * 4;
	uint col = first + gl_LocalInvocationID.x * 4;
	uint sides = first + half_tile < N ? 2 : 1;
	uint mine = min(row + gl_LocalInvocationID.x, M - 1);

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint a_at, b_at;
		vec4 sum[2][ROWS];

		batch_offsets(p, z, a_at, b_at);
		uint64_t a = at(p.address[0], a_at), b = at(p.address[1], b_at);
		uint64_t o = p.address[PARAM_OUT] + uint64_t(z) * M * N * ELEMENT;

		[[unroll]] for (uint r = 0; r < ROWS; r++)
			sum[0][r] = sum[1][r] = vec4(0.0);

		if (N >= 4) {
			uint c[2] = uint[](min(col, N - 4), min(col + half_tile, N - 4));
			uint k4 = K & ~3u;
			uint64_t a_mine = a + uint64_t(mine) * lda * ELEMENT;

			for (uint k = 0; k < k4; k += 4) {
				vec4 b0, b1, b2, b3, ours, v[ROWS];

				if (TRANS_A == 0)
					ours = read_quad(a_mine + uint64_t(k) * ELEMENT);
				else
					ours = vec4(element_a(a, mine, k, lda),
						    element_a(a, mine, k + 1, lda),
						    element_a(a, mine, k + 2, lda),
						    element_a(a, mine, k + 3, lda));
				[[unroll]] for (uint r = 0; r < ROWS; r++)
					v[r] = subgroupBroadcast(ours, r);
				[[unroll]] for (uint side = 0; side < 2; side++) {
					if (side >= sides)
						continue;
					load_b(b, k, c[side], ldb, b0, b1, b2, b3);
					[[unroll]] for (uint r = 0; r < ROWS; r++)
						sum[side][r] += v[r].x * b0 + v[r].y * b1 +
								v[r].z * b2 + v[r].w * b3;
				}
			}
			for (uint k = k4; k < K; k++) {
				float ours = element_a(a, mine, k, lda);

				[[unroll]] for (uint side = 0; side < 2; side++) {
					uint n = c[side];
					vec4 v = vec4(element_b(b, k, n, ldb),
						      element_b(b, k, n + 1, ldb),
						      element_b(b, k, n + 2, ldb),
						      element_b(b, k, n + 3, ldb));

					[[unroll]] for (uint r = 0; r < ROWS; r++)
						sum[side][r] += subgroupBroadcast(ours, r) * v;
				}
			}
			[[unroll]] for (uint side = 0; side < 2; side++) {
				[[unroll]] for (uint r = 0; r < ROWS; r++) {
					uint m = row + r, n = c[side];
					vec4 v = sum[side][r];

					if (side < sides && m < M)
						store4(o, m * N + n,
						       vec4(finish(p, v.x, m, n),
							    finish(p, v.y, m, n + 1),
							    finish(p, v.z, m, n + 2),
							    finish(p, v.w, m, n + 3)));
				}
			}
		} else {
			/* One to three columns: each invocation has one row. */
			vec4 total = vec4(0.0);

			for (uint k = 0; k < K; k += 4) {
				[[unroll]] for (uint j = 0; j < 4; j++) {
					uint kj = min(k + j, K - 1);

					if (k + j < K)
						total += element_a(a, mine, kj, lda) *
							 vec4(element_b(b, kj, 0, ldb),
							      element_b(b, kj, min(1, N - 1), ldb),
							      element_b(b, kj, min(2, N - 1), ldb), 0.0);
				}
			}
			for (uint c = 0; c < N && row + gl_LocalInvocationID.x < M; c++)
				store1(o, mine * N + c,
				       finish(p, c == 0 ? total.x : c == 1 ? total.y : total.z, mine,
					      c));
		}
	}
}
