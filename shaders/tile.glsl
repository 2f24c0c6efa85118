/* SPDX-License-Identifier: MIT */
/*
 * A 64 by 64 tile of a matrix product in shared memory, for GPUs: 256 invocations, each 4 rows by 4
 * columns, 16 steps of k at a time. The includer defines
 *
 *   float tile_a(uint row, uint k)    elements, 0 outside the matrix
 *   float tile_b(uint k, uint col)
 *   TILE_A_K_FIRST, TILE_B_K_FIRST    whether consecutive k (else rows or columns) lie together
 */
const uint TILE = 64;
const uint TILE_K = 16;

shared float tile_as[TILE_K][TILE + 1];
shared float tile_bs[TILE_K][TILE];

void tile_step(uint row, uint col, uint k0, inout vec4 sum[4])
{
	uint t = gl_LocalInvocationID.x, x = t % 16, y = t / 16;

	[[unroll]] for (uint i = 0; i < 4; i++) {
		uint n = t + 256 * i;
		uint ak = TILE_A_K_FIRST ? n % TILE_K : n / TILE;
		uint am = TILE_A_K_FIRST ? n / TILE_K : n % TILE;
		uint bk = TILE_B_K_FIRST ? n % TILE_K : n / TILE;
		uint bn = TILE_B_K_FIRST ? n / TILE_K : n % TILE;

		tile_as[ak][am] = tile_a(row + am, k0 + ak);
		tile_bs[bk][bn] = tile_b(k0 + bk, col + bn);
	}
	barrier();
	[[unroll]] for (uint j = 0; j < TILE_K; j++) {
		vec4 b = vec4(tile_bs[j][x], tile_bs[j][x + 16], tile_bs[j][x + 32],
			      tile_bs[j][x + 48]);

		[[unroll]] for (uint r = 0; r < 4; r++)
			sum[r] += tile_as[j][y * 4 + r] * b;
	}
	barrier();
}

/* Invocation (x, y): rows row + 4y + r, columns col + x + 16c of sum[r][c]. */
void tile_product(uint row, uint col, uint K, out vec4 sum[4])
{
	[[unroll]] for (uint r = 0; r < 4; r++)
		sum[r] = vec4(0.0);
	for (uint k = 0; k < K; k += TILE_K)
		tile_step(row, col, k, sum);
}
