/* SPDX-License-Identifier: MIT */
/* Describe y = x * w, with w a matrix of 64 by 64 at the start of a sealed arena. */
#include <ringbroker.h>
#include <stdio.h>

static struct rbk_builder *describe(const struct rbk_arena *constants)
{
	const uint32_t rows[] = {RBK_DIM_COUNT, 64}, square[] = {64, 64};
	struct rbk_builder *b = rbk_builder_new("product");
	unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, rows);
	unsigned int w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, square, constants, 0);
	unsigned int y = rbk_builder_output(b, "y", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);

	rbk_builder_binary(b, "MatMul", x, w, y);
	if (rbk_builder_error(b))
		fprintf(stderr, "%s\n", rbk_builder_error(b));
	return b;
}

int main(void)
{
	struct rbk_arena *arena;
	struct rbk *rbk;

	if (rbk_connect(NULL, &rbk, NULL) || rbk_arena_new(rbk, 16384, &arena, NULL) ||
	    rbk_arena_seal(arena, NULL))
		return 1;
	rbk_builder_free(describe(arena));
	return 0;
}
