/* SPDX-License-Identifier: MIT */
/*
 * A tile of a matrix product in shared memory, for GPUs: each invocation computes 4 rows by TILE_SIDES
 * times 4 columns, TILE_LANES of them beside each other, TILE_K steps of k at a time. The includer
 * defines TILE_ID, the number of the first of the three constants, and tile_load(), which fills both
 * tiles with the steps from k on; whole: none of them is beyond the last. lower-matmul.c and
 * lower-window.c have the tables of shapes.
 *
 * The first of them, 64 rows by 128 columns by 256 invocations, was chosen for AMD's GCN, where 48
 * registers let five waves stay on a SIMD (the figures of its compiler are in
 * tests/unit/data/vulkan-statistics.json):
 *
 *  - 32 sums each: a step of k reads three vectors of shared memory for 32 multiply-adds, three
 *    quarters of what shared memory gives. 16 sums, 4 by 4, read two for 16, all that it gives; 64,
 *    8 by 8, take more registers than there are.
 *  - The other waves hide what memory takes: loads ahead of time would need registers that are not
 *    there. So one buffer, two barriers for 512 multiply-adds, and a fifth of a compute unit's shared
 *    memory, 12,800 bytes.
 *  - 16 steps of k are 64 bytes, a line of the cache, where k lies together.
 *  - A line of a tile is one vector longer than its rows or columns, so that invocations that have
 *    four steps of k of the same row write into different banks.
 *
 * The innermost loop is 512 multiply-adds, 48 reads, some 32 waits for them and, for a product of
 * matrices, 65 instructions that load: 0.78 multiply-adds per instruction (0.43 with 4 by 4 sums and
 * single elements loaded one by one). A convolution, which gathers, has 0.57 (0.27).
 *
 * Others are for matrices that fill few such tiles, or leave most of each empty. With 64 invocations a
 * workgroup is one wave there, and barriers cost nothing; but as many waves have to share what there
 * is of shared memory, so they take half as many steps of k.
 */
layout(constant_id = TILE_ID) const uint TILE_LANES = 16;
layout(constant_id = TILE_ID + 1) const uint TILE_SIDES = 2;
layout(constant_id = TILE_ID + 2) const uint TILE_K = 16;

const uint TILE_ROWS = gl_WorkGroupSize.x / TILE_LANES * 4;
const uint TILE_COLS = TILE_LANES * 4 * TILE_SIDES;
/* Vectors of four that each invocation loads of rows; with more lanes than steps, not all do. */
const uint TILE_LOADS_A = (TILE_K + TILE_LANES - 1) / TILE_LANES;

const uint TILE_A_LINE = TILE_ROWS / 4 + 1; /* in vectors */
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
