#version 460
/* SPDX-License-Identifier: MIT */
/*
 * MatMulInteger in shared-memory tiles, for GPUs: 64 rows by 64 columns by 256 invocations, each of
 * which computes 4 by 4, in steps of 64 values of k. Loops are not unrolled, to save registers.
 *
 * Bytes stay packed in the tiles, four values of k in a word, which gives four times the throughput
 * that floats get from shared memory. They are multiplied as unsigned numbers, because AMD has a
 * fast instruction for products of numbers known to have at most 24 bits, and for no others. The
 * zero points' contribution follows from the sums of rows and columns, which the invocations that
 * load a tile add up.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul-common.glsl"
#include "integer.glsl"

layout(local_size_x_id = 0) in;

const uint SIDE = 64;
const uint LANES = 16;		 /* invocations side by side */
const uint WORDS = 16;		 /* words of k */
const uint LINE = SIDE / 4 + 1; /* vectors: one more, to use different banks */

shared uvec4 tile_as[WORDS * LINE];
shared uvec4 tile_bs[WORDS * LINE];
shared uint row_sums[SIDE];
shared uint col_sums[SIDE];
shared uint row_zeros[SIDE];
shared uint col_zeros[SIDE];

uint sum_of(uint word)
{
	uint pairs = (word & 0x00ff00ffu) + (word >> 8 & 0x00ff00ffu);

	return (pairs & 0xffffu) + (pairs >> 16);
}

void main()
{
	Params p = Params(push.params);
	uint group = linear_group(p), tiles = p.w[MATMUL_COL_TILES];

	if (group >= p.w[MATMUL_TILES])
		return;

	uint M = p.w[MATMUL_M], N = p.w[MATMUL_N], K = p.w[MATMUL_K];
	uint row = group / tiles * SIDE, col = group % tiles * SIDE;
	uint t = gl_LocalInvocationID.x, x = t % LANES, y = t / LANES;
	uint a_flip = flip_of(p.w[INTEGER_A_FLIP]), b_flip = flip_of(p.w[INTEGER_B_FLIP]);
	/* Rows beyond the last read the last row; columns beyond the last are not read. */
	uint a_row = min(row + t / 4, M - 1) * K, b_col = col + 4 * x;
	uint b_n = b_col < N ? min(N - b_col, 4) : 0;

	for (uint z = p.w[BATCH_BEGIN] + gl_WorkGroupID.z; z < p.w[BATCH_END]; z += p.groups.z) {
		uint a_at, b_at, row_sum = 0;
		uvec4 sum[4];

		batch_offsets(p, z, a_at, b_at);
		uint64_t a = p.address[0] + uint64_t(a_at), b = p.address[1] + uint64_t(b_at);

		[[unroll]] for (uint r = 0; r < 4; r++)
			sum[r] = uvec4(0);
		if (t < SIDE) {
			row_sums[t] = 0;
			col_sums[t] = 0;
			row_zeros[t] = uint(zero_of_a(p, min(row + t, M - 1)));
			col_zeros[t] = uint(zero_of_b(p, min(col + t, N - 1)));
		}
		barrier();
		for (uint k0 = 0; k0 < K; k0 += 4 * WORDS) {
			uvec4 words = uvec4(0);

			[[dont_unroll]] for (uint i = 0; i < 4; i++) {
				uint k = k0 + t % 4 * 16 + 4 * i, n = k < K ? min(K - k, 4) : 0;
				uint word = 0;

				if (n == 4)
					word = load_quad(a, a_row + k, (K & 3u) == 0) ^ a_flip;
				else if (n != 0)
					word = (load_some(a, a_row + k, n) ^ a_flip) &
					       (1u << (8 * n)) - 1u;
				row_sum += sum_of(word);
				tile_as[(t % 4 * 4 + i) * LINE + t / 16][t / 4 % 4] = word;
			}
			[[dont_unroll]] for (uint i = 0; i < 4; i++) {
				uint k = k0 + 4 * y + i, word;

				if (k >= K)
					break;
				if (b_n == 4)
					word = load_quad(b, k * N + b_col, (N & 3u) == 0) ^ b_flip;
				else
					word = load_some(b, k * N + b_col, b_n) ^ b_flip;
				words |= bytes_of(word) << (8 * i);
			}
			[[unroll]] for (uint i = 0; i < 4; i++)
				atomicAdd(col_sums[4 * x + i], sum_of(words[i]));
			tile_bs[y * LINE + x] = words;
			barrier();
			[[dont_unroll]] for (uint j = 0; j < WORDS; j++) {
				uvec4 va = tile_as[j * LINE + y], vb = tile_bs[j * LINE + x];

				[[dont_unroll]] for (uint i = 0; i < 4; i++) {
					uvec4 ba = va & 0xffu, bb = vb & 0xffu;

					va >>= 8;
					vb >>= 8;

					[[unroll]] for (uint r = 0; r < 4; r++)
						sum[r] += ba[r] * bb;
				}
			}
			barrier();
		}
		atomicAdd(row_sums[t / 4], row_sum);
		barrier();

		uint64_t o = p.address[PARAM_OUT] + uint64_t(z) * M * N * 4ul;

		[[unroll]] for (uint r = 0; r < 4; r++) {
			uint m = row + 4 * y + r;

			if (m >= M)
				continue;

			uint a_zero = row_zeros[4 * y + r];
			uint rest = row_sums[4 * y + r] - K * a_zero;

			[[unroll]] for (uint i = 0; i < 4; i++) {
				uint n = col + 4 * x + i;

				if (n >= N)
					continue;

				OutInt(o + uint64_t(m * N + n) * 4ul).v =
					int(sum[r][i] - a_zero * col_sums[4 * x + i] -
					    rest * col_zeros[4 * x + i]);
			}
		}
		barrier();
	}
}
