/* SPDX-License-Identifier: MIT */
/* Lowering of MatMul, Gemm, and of Conv that is a product. See lower-private.h. */
#include "vulkan/lower-private.h"
#include "vulkan/map.glsl"

/* The device sets the last three constants: see vk_pipe_is_of_matrices(). */
#define MATRICES(trans) \
	VK_INFO("MatMul, matrices", matmul_matrices, 64, 64, 4, (trans) % 2, (trans) / 2, 0, 0, 0)
#define REGISTERS(trans, sets, sides)                                                           \
	VK_INFO("MatMul, registers", matmul_register, 8 * (sets), 32 * (sides), 8, (trans) % 2, \
		(trans) / 2, sets, sides, 8)
#define TILES(trans, size, lanes, sides, steps)                                               \
	VK_INFO("MatMul, tiles", matmul_tiled, (size) / (lanes)*4, (lanes)*4 * (sides), size, \
		(trans) % 2, (trans) / 2, lanes, sides, steps)
#define EACH_TRANS(pipe)                           \
	{                                          \
		pipe(0), pipe(1), pipe(2), pipe(3) \
	}

#define TILE_0(trans) VK_PIPE(REGISTERS(trans, 1, 2), TILES(trans, 256, 16, 2, 16))
#define TILE_1(trans) VK_PIPE(REGISTERS(trans, 2, 2), TILES(trans, 256, 16, 1, 16))
#define TILE_2(trans) VK_PIPE(REGISTERS(trans, 1, 4), TILES(trans, 128, 16, 1, 16))
#define TILE_3(trans) VK_PIPE(MATRICES(trans), TILES(trans, 64, 16, 1, 8))
#define TILE_4(trans) VK_PIPE(VK_NONE, TILES(trans, 64, 8, 1, 8))
#define TILE_5(trans) VK_PIPE(VK_NONE, MATRICES(trans))
const struct vk_pipe vk_matmul_tiles[EXEC_MAX_TILES][4] = {
	EACH_TRANS(TILE_0), EACH_TRANS(TILE_1), EACH_TRANS(TILE_2),
	EACH_TRANS(TILE_3), EACH_TRANS(TILE_4), EACH_TRANS(TILE_5),
};

#define ONE_ROW(trans)                                                                             \
	VK_PIPE(VK_INFO("MatMul, one row", matmul_register, 1, 64, 8, (trans) % 2, (trans) / 2, 1, \
			2, 1),                                                                     \
		VK_NONE)
static const struct vk_pipe one_row[] = EACH_TRANS(ONE_ROW);

/* float64 has one tile shape. */
#define OF_DOUBLES(trans)                                                                      \
	VK_PIPE(VK_INFO("MatMul, float64", matmul_double, 4, 24, 8, (trans) % 2, (trans) / 2), \
		VK_INFO("MatMul, float64", matmul_double, 4, 192, 64, (trans) % 2, (trans) / 2))
static const struct vk_pipe of_doubles[] = EACH_TRANS(OF_DOUBLES);

const struct vk_pipe vk_pipe_naive_matmul = VK_EACH("MatMul, naive", naive_matmul);

static void set_matmul(const struct vk_pipe_info *info, struct vk_params *params, uint32_t m,
		       uint32_t n, uint32_t k, uint32_t lda, uint32_t ldb, uint32_t batch)
{
	uint32_t *w = params->w;

	w[MATMUL_M] = m;
	w[MATMUL_N] = n;
	w[MATMUL_K] = k;
	w[MATMUL_LDA] = lda;
	w[MATMUL_LDB] = ldb;
	w[MATMUL_COL_TILES] = div_up(n, info->tile_cols);
	w[MATMUL_TILES] = w[MATMUL_COL_TILES] * div_up(m, info->tile_rows);
	w[MATMUL_BATCH_DIMS] = 0;
	w[MATMUL_ALPHA] = vk_float_bits(1.0f);
	w[MATMUL_BETA] = 0;
	w[MATMUL_C_ROW] = 0;
	w[MATMUL_C_COL] = 0;
	w[ACTIVATION] = 0;
	vk_set_groups(params, w[MATMUL_TILES], batch);
}

void vk_fill_bare_matmul(const struct vk_pipe_info *info, uint32_t m, uint32_t n, uint32_t k,
			 struct vk_params *params)
{
	set_matmul(info, params, m, n, k, k, n, 1);
}

void vk_set_product(const struct vk_step *step, const struct plan *plan, uint32_t count,
		    uint16_t a_tensor, uint16_t b_tensor, struct vk_params *params)
{
	const struct shape *a = vk_shape_of(plan, a_tensor), *b = vk_shape_of(plan, b_tensor);
	uint32_t m = a->rank > 1 ? shape_dim(a, a->rank - 2, count) : 1;
	uint32_t k = shape_dim(a, a->rank - 1, count);
	uint32_t n = b->rank > 1 ? shape_dim(b, b->rank - 1, count) : 1;
	unsigned int a_batch = a->rank > 2 ? a->rank - 2 : 0;
	unsigned int b_batch = b->rank > 2 ? b->rank - 2 : 0;
	unsigned int rank = a_batch > b_batch ? a_batch : b_batch;
	uint64_t a_stride = (uint64_t)m * k, b_stride = (uint64_t)k * n, batch = 1, b_elems = 1;
	uint64_t a_elems = 1;

	for (unsigned int i = rank; i-- > 0;) {
		/* Dimensions are aligned at the end; absent dimensions are 1. */
		uint32_t a_dim = i + a_batch >= rank ? shape_dim(a, i + a_batch - rank, count) : 1;
		uint32_t b_dim = i + b_batch >= rank ? shape_dim(b, i + b_batch - rank, count) : 1;
		uint32_t dim = a_dim > b_dim ? a_dim : b_dim;

		params->w[MATMUL_DIMS + i] = dim;
		params->w[MATMUL_A_STRIDES + i] = a_dim > 1 ? a_stride : 0;
		params->w[MATMUL_B_STRIDES + i] = b_dim > 1 ? b_stride : 0;
		a_stride *= a_dim;
		b_stride *= b_dim;
		batch *= dim;
		a_elems *= a_dim;
		b_elems *= b_dim;
	}
	/* A single B for all of A: the batch only adds rows. */
	if (b_elems == 1 && a_elems == batch) {
		set_matmul(step->info, params, m * batch, n, k, k, n, 1);
		return;
	}
	set_matmul(step->info, params, m, n, k, k, n, batch);
	params->w[MATMUL_BATCH_DIMS] = rank;
}

static void fill_matmul(const struct vk_step *step, const struct plan *plan, uint32_t count,
			struct vk_params *params)
{
	const uint16_t addend = step->node->in[2];
	const struct shape *c;
	uint32_t cols = 1;

	vk_set_product(step, plan, count, step->node->in[0], step->node->in[1], params);
	vk_set_activation(step, params);
	if (addend == PLAN_NO_TENSOR)
		return;
	/* The fused addend has the same row for every row, or the size of the single product. */
	c = vk_shape_of(plan, addend);
	if (c->rank > 0)
		cols = shape_dim(c, c->rank - 1, count);
	params->w[MATMUL_BETA] = vk_float_bits(1.0f);
	params->w[MATMUL_C_ROW] = shape_elems(c, count) > cols ? cols : 0;
	params->w[MATMUL_C_COL] = cols > 1;
}

static void fill_gemm(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *a = vk_shape_of(plan, node->in[0]), *b = vk_shape_of(plan, node->in[1]);
	const struct shape *c;
	uint32_t lda = shape_dim(a, 1, count), ldb = shape_dim(b, 1, count);
	uint32_t m = node->params.gemm.trans_a ? lda : shape_dim(a, 0, count);
	uint32_t k = node->params.gemm.trans_a ? shape_dim(a, 0, count) : lda;
	uint32_t n = node->params.gemm.trans_b ? shape_dim(b, 0, count) : ldb;
	uint32_t rows = 1, cols = 1;

	set_matmul(step->info, params, m, n, k, lda, ldb, 1);
	vk_set_activation(step, params);
	params->w[MATMUL_ALPHA] = vk_float_bits(node->params.gemm.alpha);
	if (!vk_has_operand(step, 2))
		return;
	c = vk_shape_of(plan, node->in[2]);
	if (c->rank > 0)
		cols = shape_dim(c, c->rank - 1, count);
	if (c->rank > 1)
		rows = shape_dim(c, c->rank - 2, count);
	params->w[MATMUL_BETA] = vk_float_bits(node->params.gemm.beta);
	params->w[MATMUL_C_ROW] = rows > 1 ? cols : 0;
	params->w[MATMUL_C_COL] = cols > 1;
}

/*
 * Count K / 4 or K / 8 turns, the remainder of K, the batch dimensions, and rows times columns at
 * the end.
 */
static uint64_t turns_matmul(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;
	const uint64_t batches = div_up(w[BATCH_END], VK_MAX_GROUPS);

	return batches * (w[MATMUL_K] / 4 + w[MATMUL_BATCH_DIMS] + 64);
}

/* Set all of the step but the operands; @trans: 1 if A is transposed, plus 2 if B is. */
static void set_step(struct lowering *l, unsigned int trans,
		     void (*fill)(const struct vk_step *step, const struct plan *plan,
				  uint32_t count, struct vk_params *params))
{
	const bool is_half = l->step->numbers == VK_HALVES;
	const enum exec_tile_op op = is_half ? EXEC_TILE_MATMUL_HALF : EXEC_TILE_MATMUL;
	struct vk_params params = {0};
	const uint32_t *w = params.w;

	l->step->fill = fill;
	l->step->turns = turns_matmul;
	if (l->numbers == VK_DOUBLES) {
		l->step->numbers = VK_FLOATS;
		lower_pipe(l, &of_doubles[trans]);
		return;
	}
	lower_pipe(l, &vk_matmul_tiles[0][trans]);
	fill(l->step, l->plan, l->plan->max_count, &params);
	if (w[MATMUL_M] == 1 && one_row[trans].of[l->target.variant].shader)
		lower_pipe(l, &one_row[trans]);
	else
		lower_pipe(l, &vk_matmul_tiles[lower_tile(l, op, w[MATMUL_M], w[MATMUL_N],
							  w[BATCH_END])][trans]);
}

static int lower_matmul(struct lowering *l)
{
	set_step(l, 0, fill_matmul);
	return 0;
}

static int lower_gemm(struct lowering *l)
{
	const union op_params *op = &l->node->params;

	set_step(l, op->gemm.trans_a + 2u * op->gemm.trans_b, fill_gemm);
	return 0;
}

/*
 * Fill in one product per image and group: filters by channels times channels by positions, plus
 * the bias.
 */
static void fill_pointwise(const struct vk_step *step, const struct plan *plan, uint32_t count,
			   struct vk_params *params)
{
	const struct shape *in = vk_shape_of(plan, step->node->in[0]);
	const struct shape *weights = vk_shape_of(plan, step->node->in[1]);
	uint32_t images = shape_dim(in, 0, count), groups = step->node->params.window.group;
	uint32_t filters = shape_dim(weights, 0, count) / groups;
	uint32_t channels = shape_dim(weights, 1, count), pixels = vk_elems(in, count, 2, in->rank);
	uint32_t *w = params->w;

	set_matmul(step->info, params, filters, pixels, channels, channels, pixels,
		   images * groups);
	vk_set_activation(step, params);
	w[MATMUL_BATCH_DIMS] = 2;
	w[MATMUL_DIMS] = images;
	w[MATMUL_DIMS + 1] = groups;
	w[MATMUL_A_STRIDES] = 0;
	w[MATMUL_A_STRIDES + 1] = filters * channels;
	w[MATMUL_B_STRIDES] = groups * channels * pixels;
	w[MATMUL_B_STRIDES + 1] = channels * pixels;
	if (!vk_has_operand(step, 2))
		return;
	w[MATMUL_BETA] = vk_float_bits(1.0f);
	w[MATMUL_C_ROW] = 1;
}

bool lower_pointwise(struct lowering *l)
{
	const union op_params *op = &l->node->params;
	const struct vk_operand in = l->step->operands[0];

	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++)
		if (op->window.kernel[i] != 1 || op->window.stride[i] != 1 ||
		    op->window.pad_begin[i] != 0 || op->window.pad_end[i] != 0)
			return false;
	/* A product has one bias for all of its batch. */
	if (op->window.group > 1 && vk_has_operand(l->step, 2))
		return false;
	set_step(l, 0, fill_pointwise);
	l->step->operands[0] = l->step->operands[1];
	l->step->operands[1] = in;
	return true;
}

static lower_fn *const lowerers[] = {[OP_MATMUL] = lower_matmul, [OP_GEMM] = lower_gemm};
static const struct vk_pipes pipes[] = {
	VK_CURVED_PIPES(vk_matmul_tiles, MAP_GELU),
	VK_CURVED_PIPES(one_row, MAP_GELU),
	VK_PIPES(of_doubles),
	VK_PIPES(vk_pipe_naive_matmul),
};
VK_FAMILY(matmul);
