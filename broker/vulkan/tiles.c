/* SPDX-License-Identifier: MIT */
/*
 * Shapes of tiles: see tiles.h.
 *
 * The tables are in pipeline.c. What a device may have to leave out are the narrower shapes of
 * convolutions and cooperative matrices, which stand behind the others there, so that numbers have
 * no gaps.
 */
#include "vulkan/tiles.h"

#include "vulkan/device.h"

static const enum vk_pipe first_pipe[EXEC_TILE_OPS] = {
	[EXEC_TILE_MATMUL] = VK_PIPE_MATMUL,
	[EXEC_TILE_CONV] = VK_PIPE_CONV,
	[EXEC_TILE_MATMUL_HALF] = VK_PIPE_MATMUL,
};

/* Pipelines from one shape to the next. */
static const unsigned int n_pipes[EXEC_TILE_OPS] = {
	[EXEC_TILE_MATMUL] = 4,
	[EXEC_TILE_CONV] = 1,
	[EXEC_TILE_MATMUL_HALF] = 4,
};

bool vk_tile(const struct vk_device *device, enum exec_tile_op op, unsigned int i,
	     struct exec_tile *ret)
{
	const struct vk_pipe_info *info;

	if (i >= EXEC_MAX_TILES)
		return false;
	info = vk_pipe_info(first_pipe[op] + n_pipes[op] * i, device->variant);
	if (!info || !vk_pipeline_can_compile(device, info,
					      op == EXEC_TILE_MATMUL_HALF ? VK_HALVES : VK_FLOATS))
		return false;
	/* A subgroup gathers the same taps: see conv-tiled.comp. */
	if (op == EXEC_TILE_CONV && device->variant == VK_VARIANT_SHARED &&
	    info->tile_cols < device->subgroup_size)
		return false;
	*ret = (struct exec_tile){(uint8_t)info->tile_rows, (uint8_t)info->tile_cols,
				  vk_pipe_is_of_matrices(info)};
	return true;
}

void vk_tiles_guess(const struct vk_device *device, struct exec_tiles *ret)
{
	/* Of a software device, the one that is compiled soonest. */
	static const struct exec_tiles guesses[VK_VARIANT_COUNT] = {
		[VK_VARIANT_SHARED] =
			{{[EXEC_TILE_MATMUL] = {[EXEC_TILE_SMALL] = 2,
						[EXEC_TILE_FEW_ROWS] = 3,
						[EXEC_TILE_FEW_COLS] = 2},
			  [EXEC_TILE_CONV] = {[EXEC_TILE_SMALL] = 2, [EXEC_TILE_FEW_COLS] = 2},
			  [EXEC_TILE_MATMUL_HALF] = {[EXEC_TILE_SMALL] = 2,
						     [EXEC_TILE_FEW_ROWS] = 3,
						     [EXEC_TILE_FEW_COLS] = 2}}},
	};

	*ret = guesses[device->variant];
}

enum vk_pipe vk_tiles_pipe(const struct exec_tiles *tiles, enum vk_pipe pipe, bool half,
			   uint64_t rows, uint64_t cols, uint64_t batch)
{
	const enum exec_tile_op op = pipe >= VK_PIPE_CONV ? EXEC_TILE_CONV
				     : half               ? EXEC_TILE_MATMUL_HALF
							  : EXEC_TILE_MATMUL;

	return pipe + n_pipes[op] * tiles->of[op][exec_tile_class(rows, cols, batch)];
}
