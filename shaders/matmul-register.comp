#version 460
/* SPDX-License-Identifier: MIT */
/*
 * MatMul and Gemm without shared memory, for software devices: each invocation computes SETS times
 * SET rows by SIDES times 4 columns in registers.
 *
 * On such devices a load by address is executed per invocation and per component. So loads
 * dominate, and components of 64 bits halve their cost. All invocations of a workgroup need the
 * same elements of A: each loads those of one row of a set, and the subgroup, which is the
 * workgroup, broadcasts them. No invocation may return early. A broadcast costs, too, but serves
 * all columns: that is why there may be twice 4 columns where the matrix is wide enough. For a
 * single row, each invocation loads the elements that it needs, which saves seven eighths of the
 * arithmetic and of the code to compile.
 *
 * Edges cost no branch in the loop. Rows beyond the last read the last one. The columns of the last
 * invocations begin early enough to end at N, so that some are computed twice, with the same bits.
 * Fewer than four columns take a separate path.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul-common.glsl"
#extension GL_KHR_shader_subgroup_ballot : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TRANS_A = 0;
layout(constant_id = 2) const uint TRANS_B = 0;

layout(constant_id = 3) const uint SETS = 1;
layout(constant_id = 4) const uint SIDES = 2;
/* rows: also the size of the workgroup and of the subgroup, or 1 */
layout(constant_id = 5) const uint SET = 8;

#ifdef F16
#define read_quad read4
#else
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Pairs { u64vec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer PairsOut
{
	u64vec2 v;
};

vec4 read_quad(uint64_t address)
{
	u64vec2 pairs = Pairs(address).v;

	return vec4(uintBitsToFloat(unpack32(pairs.x)), uintBitsToFloat(unpack32(pairs.y)));
}
#endif

/* Load columns [col, col + 4) of rows [k, k + 4) of B. */
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

/* Load columns [col, col + 4) of row k of B. */
vec4 row_b(uint64_t b, uint k, uint col, uint ldb)
{
	if (TRANS_B == 0)
		return read_quad(b + (uint64_t(k) * ldb + col) * ELEMENT);
	return vec4(element_b(b, k, col, ldb), element_b(b, k, col + 1, ldb),
		    element_b(b, k, col + 2, ldb), element_b(b, k, col + 3, ldb));
}

void store_quad(uint64_t address, vec4 v)
{
#ifdef F16
	store4(address, 0, v);
#else
	uvec4 bits = floatBitsToUint(v);

	PairsOut(address).v = u64vec2(pack64(bits.xy), pack64(bits.zw));
#endif
}

/* Load four adjacent elements of C or, with @step 0, one element four times. */
vec4 quad_c(uint64_t c, uint row, uint col, uint step)
{
	return step == 0 ? vec4(load1(c, row)) : read_quad(at(c, row + col));
}

void main()
{
	Params p = Params(push.params);
	uint M = p.w[MATMUL_M], N = p.w[MATMUL_N], K = p.w[MATMUL_K];
	uint lda = p.w[MATMUL_LDA], ldb = p.w[MATMUL_LDB];
	uint group = linear_group(p), tiles = p.w[MATMUL_COL_TILES];
	uint lane = gl_LocalInvocationID.x;

	if (group >= p.w[MATMUL_TILES])
		return;

	/*
	 * Order workgroups by rows first: a strip of B stays in the cache while all of A is read.
	 */
	uint row_tiles = p.w[MATMUL_TILES] / tiles;
	uint row = group % row_tiles * SET * SETS;
	uint side_cols = gl_WorkGroupSize.x * 4, first = group / row_tiles * side_cols * SIDES;
	uint sides = min((N - first + side_cols - 1) / side_cols, SIDES);
	uint sets = min((M - row + SET - 1) / SET, SETS);
	float alpha = uintBitsToFloat(p.w[MATMUL_ALPHA]), beta = uintBitsToFloat(p.w[MATMUL_BETA]);
	uint c_row = p.w[MATMUL_C_ROW], c_col = p.w[MATMUL_C_COL];
	Activation activation = activation_of(p);

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint a_at, b_at, mine[SETS];
		vec4 sum[SIDES][SET * SETS];

		batch_offsets(p, z, a_at, b_at);
		uint64_t a = at(p.address[0], a_at), b = at(p.address[1], b_at);
		uint64_t o = p.address[PARAM_OUT] + uint64_t(z) * M * N * ELEMENT;

		[[unroll]] for (uint set = 0; set < SETS; set++)
			mine[set] = min(row + SET * set + lane % SET, M - 1);
		[[unroll]] for (uint side = 0; side < SIDES; side++)
			[[unroll]] for (uint r = 0; r < SET * SETS; r++)
				sum[side][r] = vec4(0.0);

		if (N >= 4) {
			uint c[SIDES], k4 = K & ~3u;

			[[unroll]] for (uint side = 0; side < SIDES; side++)
				c[side] = min(first + side_cols * side + lane * 4, N - 4);
			for (uint k = 0; k < k4; k += 4) {
				vec4 b0, b1, b2, b3, v[SET * SETS];

				[[unroll]] for (uint set = 0; set < SETS; set++) {
					uint m = mine[set];
					vec4 ours;

					if (set >= sets)
						continue;
					if (TRANS_A == 0)
						ours = read_quad(a + (uint64_t(m) * lda + k) * ELEMENT);
					else
						ours = vec4(element_a(a, m, k, lda),
							    element_a(a, m, k + 1, lda),
							    element_a(a, m, k + 2, lda),
							    element_a(a, m, k + 3, lda));
					[[unroll]] for (uint r = 0; r < SET; r++)
						v[SET * set + r] = SET == 1 ? ours : subgroupBroadcast(ours, r);
				}
				[[unroll]] for (uint side = 0; side < SIDES; side++) {
					if (side >= sides)
						continue;
					load_b(b, k, c[side], ldb, b0, b1, b2, b3);
					[[unroll]] for (uint r = 0; r < SET * SETS; r++)
						sum[side][r] += v[r].x * b0 + v[r].y * b1 +
								v[r].z * b2 + v[r].w * b3;
				}
			}
			for (uint k = k4; k < K; k++) {
				float ours[SETS];

				[[unroll]] for (uint set = 0; set < SETS; set++)
					ours[set] = element_a(a, mine[set], k, lda);
				[[unroll]] for (uint side = 0; side < SIDES; side++) {
					uint n = c[side];
					vec4 v = row_b(b, k, n, ldb);

					[[unroll]] for (uint r = 0; r < SET * SETS; r++)
						sum[side][r] += (SET == 1 ? ours[r] : subgroupBroadcast(ours[r / SET], r % SET)) * v;
				}
			}
			/* Loops that select the row's sums, to reduce the code to compile. */
			for (uint r = 0; r < SET * sets; r++)
				for (uint side = 0; side < sides; side++) {
					uint m = row + r, n = c[0];
					vec4 v = sum[0][0];

					[[unroll]] for (uint i = 1; i < SET * SETS * SIDES; i++)
						v = r * SIDES + side == i ? sum[i % SIDES][i / SIDES] : v;
					[[unroll]] for (uint i = 1; i < SIDES; i++)
						n = side == i ? c[i] : n;
					if (m >= M)
						continue;
					v *= alpha;
					if (beta != 0.0)
						v += beta * quad_c(p.address[2], m * c_row, n, c_col);
					store_quad(at(o, m * N + n), activate4(activation, v));
				}
		} else {
			/*
			 * With one to three columns, each invocation computes one row of each set.
			 * The invocations broadcast B: each loads an element of one column for
			 * every second k.
			 */
			uint n = min(lane / 2, N - 1);
			vec4 total[SETS];

			[[unroll]] for (uint set = 0; set < SETS; set++)
				total[set] = vec4(0.0);
			for (uint k = 0; k < K; k += 4) {
				float ours[2];

				[[unroll]] for (uint i = 0; i < 2; i++)
					ours[i] = element_b(b, min(k + 2 * i + lane % 2, K - 1), n, ldb);
				[[unroll]] for (uint j = 0; j < 4; j++) {
					vec4 v = vec4(subgroupBroadcast(ours[j / 2], j % 2),
						      subgroupBroadcast(ours[j / 2], 2 + j % 2),
						      subgroupBroadcast(ours[j / 2], 4 + j % 2), 0.0);

					[[unroll]] for (uint set = 0; set < SETS; set++)
						if (k + j < K && set < sets)
							total[set] += element_a(a, mine[set], k + j, lda) * v;
				}
			}
			[[unroll]] for (uint set = 0; set < SETS; set++)
				for (uint c = 0; c < N && row + SET * set + lane < M && lane < SET; c++) {
					vec4 v = vec4(alpha * (c == 0 ? total[set].x :
							       c == 1 ? total[set].y :
									total[set].z));

					if (beta != 0.0)
						v += beta * load1(p.address[2], mine[set] * c_row + c * c_col);
					store1(o, mine[set] * N + c, activate4(activation, v).x);
				}
		}
	}
}
