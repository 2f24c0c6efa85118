/* SPDX-License-Identifier: MIT */
/*
 * A tile of a matrix product in shared memory, for GPUs
 *
 * Each invocation computes 4 rows by TILE_SIDES times 4 columns. TILE_LANES invocations are side by
 * side. A step covers TILE_K values of k. The includer defines TILE_ID, the number of the first of
 * the three constants, and tile_load(), which fills both tiles with the values from k on; whole:
 * none of these is beyond the last. lower-matmul.c and lower-window.c have the tables of shapes.
 *
 * The first shape, 64 rows by 128 columns by 256 invocations, was chosen for AMD's GCN, where 48
 * registers let five waves stay on a SIMD. Its compiler's figures are in
 * tests/unit/data/vulkan-statistics.json. The reasons:
 *
 *  - 32 sums per invocation: a step of k reads three vectors of shared memory for 32 multiply-adds,
 *    three quarters of shared memory's bandwidth. 16 sums, 4 by 4, read two vectors for 16, its full
 *    bandwidth; 64 sums, 8 by 8, take more registers than there are.
 *  - Other waves hide memory latency: prefetching would need registers that are not available. So
 *    there is one buffer, there are two barriers for 512 multiply-adds, and a fifth of a compute
 *    unit's shared memory, 12,800 bytes.
 *  - 16 steps of k are 64 bytes, a cache line, where k is contiguous.
 *  - A line of a tile is one vector longer than its rows or columns, so that invocations that write
 *    four steps of k of the same row access different banks.
 *
 * The innermost loop is 512 multiply-adds, 48 reads, some 32 waits for these and, for a matrix
 * product, 65 load instructions: 0.78 multiply-adds per instruction (0.43 with 4 by 4 sums and
 * elements loaded one by one). A convolution, which gathers, has 0.57 (0.27).
 *
 * The other shapes are for matrices that fill few such tiles, or leave most of each empty. A
 * workgroup of 64 invocations is one wave there, and barriers cost nothing. But as many waves must
 * share the shared memory, so these shapes take half as many steps of k.
 */
layout(constant_id = TILE_ID) const uint TILE_LANES = 16;
layout(constant_id = TILE_ID + 1) const uint TILE_SIDES = 2;
layout(constant_id = TILE_ID + 2) const uint TILE_K = 16;

const uint TILE_ROWS = gl_WorkGroupSize.x / TILE_LANES * 4;
const uint TILE_COLS = TILE_LANES * 4 * TILE_SIDES;
/*
 * Vectors of four elements of A that each invocation loads; with more lanes than steps, not all
 * load.
 */
const uint TILE_LOADS_A = (TILE_K + TILE_LANES - 1) / TILE_LANES;

const uint TILE_A_LINE = TILE_ROWS / 4 + 1; /* vectors */
const uint TILE_B_LINE = TILE_COLS / 4 + 1;

shared vec4 tile_as[TILE_K * TILE_A_LINE];
shared vec4 tile_bs[TILE_K * TILE_B_LINE];

void tile_load(uint k, bool whole);

void tile_step(uint k, bool whole, inout vec4 sum[TILE_SIDES][4])
{
	uint x = gl_LocalInvocationID.x % TILE_LANES, y = gl_LocalInvocationID.x / TILE_LANES;

	tile_load(k, whole);
	barrier();
	[[unroll]] for (uint j = 0; j < TILE_K; j++) {
		vec4 a = tile_as[j * TILE_A_LINE + y];

		[[unroll]] for (uint side = 0; side < TILE_SIDES; side++) {
			vec4 b = tile_bs[j * TILE_B_LINE + TILE_LANES * side + x];

			[[unroll]] for (uint r = 0; r < 4; r++)
				sum[side][r] += a[r] * b;
		}
	}
	barrier();
}
