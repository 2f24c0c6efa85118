/* SPDX-License-Identifier: MIT */
/* Tile shapes of an executor: see executor.h. */
#include "plan/executor.h"

void executor_set_tiles(struct executor *executor, const struct exec_tiles *tiles)
{
	struct exec_tile tile;

	if (!executor->ops->tile)
		return;
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++)
		for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++)
			if (executor->ops->tile(executor, op, tiles->of[op][class], &tile))
				/* Pairs with any load: no other data depends on the number. */
				atomic_store_explicit(&executor->tiles[op][class],
						      tiles->of[op][class], memory_order_relaxed);
}

void executor_get_tiles(const struct executor *executor, struct exec_tiles *ret)
{
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++)
		for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++)
			/* Pairs with executor_set_tiles(). */
			ret->of[op][class] = atomic_load_explicit(&executor->tiles[op][class],
								  memory_order_relaxed);
}

const char *exec_tile_class_name(enum exec_tile_class class)
{
	static const char *const names[EXEC_TILE_CLASSES] = {
		[EXEC_TILE_LARGE] = "large",
		[EXEC_TILE_SMALL] = "small",
		[EXEC_TILE_FEW_ROWS] = "few_rows",
		[EXEC_TILE_FEW_COLS] = "few_columns",
	};

	return names[class];
}

const char *exec_tile_op_name(enum exec_tile_op op)
{
	static const char *const names[EXEC_TILE_OPS] = {
		[EXEC_TILE_MATMUL] = "MatMul",
		[EXEC_TILE_CONV] = "Conv",
		[EXEC_TILE_MATMUL_HALF] = "MatMul_float16",
	};

	return names[op];
}
