/* SPDX-License-Identifier: MIT */
/*
 * Tile shapes: see tiles.h.
 *
 * The tables are in lower-matmul.c and lower-window.c. A device may lack the narrower shapes of
 * convolutions and the cooperative matrices. The tables have these last, so that a device's shapes
 * are numbered without gaps.
 */
#include "vulkan/tiles.h"

#include "vulkan/device.h"
#include "vulkan/lower-private.h"

const struct vk_pipe_info *vk_tile_info(int variant, enum exec_tile_op op, unsigned int i)
{
	const struct vk_pipe *pipe =
		op == EXEC_TILE_CONV ? &vk_conv_tiles[i] : &vk_matmul_tiles[i][0];

	return pipe->of[variant].shader ? &pipe->of[variant] : NULL;
}

bool vk_tile(const struct vk_device *device, enum exec_tile_op op, unsigned int i,
	     struct exec_tile *ret)
{
	const struct vk_pipe_info *info;

	if (i >= EXEC_MAX_TILES)
		return false;
	info = vk_tile_info(device->variant, op, i);
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
	/* A software device uses shape 0, which compiles fastest. */
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
