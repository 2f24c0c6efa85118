/* SPDX-License-Identifier: MIT */
/*
 * Lowering of quantization, and of products and convolutions of quantized tensors. See
 * lower-private.h.
 *
 * A product whose result is requantized to bytes takes two steps, with sums in scratch between
 * them: no single step can have all inputs of such a node.
 */
#include "util/error.h"
#include "vulkan/lower-private.h"

enum { VK_NBITS_ROWS = 8 };

#define QUANTIZE(label, back, type) VK_SPREAD(label, quantize, 4, 8, 1, back, type)
static const struct vk_pipe quantize_u8 = QUANTIZE("QuantizeLinear, uint8", 0, RBK_DTYPE_U8);
static const struct vk_pipe quantize_i8 = QUANTIZE("QuantizeLinear, int8", 0, RBK_DTYPE_I8);
static const struct vk_pipe dequantize_u8 = QUANTIZE("DequantizeLinear, uint8", 1, RBK_DTYPE_U8);
static const struct vk_pipe dequantize_i8 = QUANTIZE("DequantizeLinear, int8", 1, RBK_DTYPE_I8);
static const struct vk_pipe dequantize_i32 = QUANTIZE("DequantizeLinear, int32", 1, RBK_DTYPE_I32);
static const struct vk_pipe ranges_of_pieces =
	VK_ROWS("DynamicQuantizeLinear, ranges", range, 8, 256);
static const struct vk_pipe range_of_all =
	VK_ROWS("DynamicQuantizeLinear, scale", range_end, 8, 64);

static const struct vk_pipe matmul_integer =
	VK_PIPE(VK_INFO("MatMulInteger, registers", matmul_integer_register, 8, 32, 8),
		VK_INFO("MatMulInteger, tiles", matmul_integer_tiled, 64, 64, 256));
#define CONV(label, rows)                                              \
	VK_PIPE(VK_INFO(label, conv_integer, rows, 32, 8, rows, 4, 1), \
		VK_INFO(label, conv_integer, rows, 128, 64, rows, 2, 0))
static const struct vk_pipe conv_integer = CONV("ConvInteger", 8);
static const struct vk_pipe conv_integer_narrow = CONV("ConvInteger, narrow", 1);
static const struct vk_pipe requantize_u8 = VK_SPREAD("sums to uint8", requantize, 4, 8, 1, 0);
static const struct vk_pipe requantize_i8 = VK_SPREAD("sums to int8", requantize, 4, 8, 1, 1);

#define NBITS(label, rows)                                      \
	VK_PIPE(VK_INFO(label, matmul_nbits, rows, 8, 8, rows), \
		VK_INFO(label, matmul_nbits, rows, 64, 64, rows))
static const struct vk_pipe nbits = NBITS("MatMulNBits", VK_NBITS_ROWS);
static const struct vk_pipe nbits_row = NBITS("MatMulNBits, one row", 1); /* for few rows */

/* Return the number of elements of a tensor; 0 if it is absent. */
static uint32_t n_of(const struct plan *plan, uint16_t tensor, uint32_t count)
{
	return tensor == PLAN_NO_TENSOR ? 0
					: (uint32_t)shape_elems(vk_shape_of(plan, tensor), count);
}

/* ---- QuantizeLinear, DequantizeLinear ---- */

/* Use one scale for all elements. */
static void fill_quantize_one(const struct vk_step *step, const struct plan *plan, uint32_t count,
			      struct vk_params *params)
{
	uint32_t *w = params->w;

	w[QUANTIZE_TOTAL] = n_of(plan, step->node->in[0], count);
	w[QUANTIZE_GROUPS] = div_up(w[QUANTIZE_TOTAL], step->info->tile_cols);
	w[QUANTIZE_INNER] = w[QUANTIZE_TOTAL];
	w[QUANTIZE_AXIS] = 1;
	w[QUANTIZE_BLOCK] = 1;
	w[QUANTIZE_OUTER_STEP] = w[QUANTIZE_AXIS_STEP] = w[QUANTIZE_INNER_STEP] = 0;
	w[QUANTIZE_HAS_ZERO] = vk_has_operand(step, 2);
	vk_set_groups(params, w[QUANTIZE_GROUPS], 1);
}

static void fill_quantize(const struct vk_step *step, const struct plan *plan, uint32_t count,
			  struct vk_params *params)
{
	const struct shape *x = vk_shape_of(plan, step->node->in[0]);
	const union op_params *op = &step->node->params;
	const unsigned int axis = op->quantize.axis;
	uint32_t *w = params->w;

	fill_quantize_one(step, plan, count, params);
	if (op->quantize.block == 0)
		return;
	w[QUANTIZE_INNER] = vk_elems(x, count, axis + 1, x->rank);
	w[QUANTIZE_AXIS] = shape_dim(x, axis, count);
	w[QUANTIZE_BLOCK] = op->quantize.block;
	w[QUANTIZE_AXIS_STEP] = 1;
	if (!op->quantize.is_blocked)
		return;
	w[QUANTIZE_INNER_STEP] = 1;
	w[QUANTIZE_AXIS_STEP] = w[QUANTIZE_INNER];
	w[QUANTIZE_OUTER_STEP] = w[QUANTIZE_INNER] * div_up(w[QUANTIZE_AXIS], w[QUANTIZE_BLOCK]);
}

static int lower_quantize(struct lowering *l)
{
	const bool is_back = l->node->op->kind == OP_DEQUANTIZE_LINEAR;
	const uint8_t type = l->plan->tensors[is_back ? l->node->in[0] : l->node->out[0]].dtype;

	if (is_back)
		lower_pipe(l, type == RBK_DTYPE_I32  ? &dequantize_i32
			      : type == RBK_DTYPE_I8 ? &dequantize_i8
						     : &dequantize_u8);
	else
		lower_pipe(l, type == RBK_DTYPE_I8 ? &quantize_i8 : &quantize_u8);
	l->step->fill = fill_quantize;
	return 0;
}

/* args[0]: compute the range of the whole tensor from the ranges of the pieces. */
static void fill_range(const struct vk_step *step, const struct plan *plan, uint32_t count,
		       struct vk_params *params)
{
	/* Minimum number of elements for a workgroup. */
	const uint32_t worth = 2048, total = n_of(plan, step->node->in[0], count);
	const uint32_t most = div_up(total, worth);
	uint32_t *w = params->w;

	w[RANGE_TOTAL] = total;
	w[RANGE_PIECE] = div_up(total, most < OP_RANGES ? most : OP_RANGES);
	w[RANGE_PIECES] = div_up(total, w[RANGE_PIECE]);
	vk_set_groups(params, step->args[0] ? 1 : w[RANGE_PIECES], 1);
}

static uint64_t turns_range(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t lanes = step->info->spec[0];

	return params->w[RANGE_PIECE] / (8 * lanes) + 1 + 2 * lanes;
}

static int lower_dynamic_quantize(struct lowering *l)
{
	const struct node *node = l->node;
	const struct vk_operand ranges = lower_work(l, OP_RANGES * 2 * sizeof(float));
	int r;

	vk_clear_operands(l->step);
	l->step->operands[0].tensor = node->in[0];
	l->step->operands[VK_OUT] = ranges;
	lower_pipe(l, &ranges_of_pieces);
	l->step->fill = fill_range;
	l->step->turns = turns_range;
	r = lower_add(l);
	if (r)
		return error_fold(r);
	vk_clear_operands(l->step);
	l->step->operands[0] = ranges;
	l->step->operands[VK_OUT + 1].tensor = node->out[1];
	l->step->operands[VK_OUT + 2].tensor = node->out[2];
	lower_pipe(l, &range_of_all);
	l->step->fill = fill_range;
	l->step->args[0] = true;
	r = lower_add(l);
	if (r)
		return error_fold(r);
	vk_clear_operands(l->step);
	l->step->operands[0].tensor = node->in[0];
	l->step->operands[1].tensor = node->out[1];
	l->step->operands[2].tensor = node->out[2];
	l->step->operands[VK_OUT].tensor = node->out[0];
	lower_pipe(l, &quantize_u8);
	l->step->fill = fill_quantize_one;
	return 0;
}

/* ---- Products and convolutions ---- */

enum role { A, B, A_ZERO, B_ZERO, BIAS, A_SCALE, B_SCALE, Y_SCALE, Y_ZERO, N_ROLES };

/* Return the input of the node that has @role; PLAN_NO_TENSOR if none has. */
static uint16_t tensor_of(const struct node *node, enum role role)
{
	static const int8_t inputs[2][N_ROLES] = {
		{0, 1, 2, 3, -1, -1, -1, -1, -1}, /* MatMulInteger, ConvInteger */
		{0, 3, 2, 5, 8, 1, 4, 6, 7},      /* QLinearMatMul, QLinearConv */
	};
	const bool is_linear =
		node->op->kind == OP_QLINEAR_MATMUL || node->op->kind == OP_QLINEAR_CONV;
	const int i = inputs[is_linear][role];

	return i < 0 ? PLAN_NO_TENSOR : vk_node_in(node, (unsigned int)i);
}

static uint32_t flip_of(const struct plan *plan, uint16_t tensor)
{
	return plan->tensors[tensor].dtype == RBK_DTYPE_I8 ? 0x80 : 0;
}

static void set_integer(const struct vk_step *step, const struct plan *plan, uint32_t count,
			struct vk_params *params)
{
	const struct node *node = step->node;
	uint32_t *w = params->w;

	w[INTEGER_A_FLIP] = flip_of(plan, tensor_of(node, A));
	w[INTEGER_B_FLIP] = flip_of(plan, tensor_of(node, B));
	w[INTEGER_A_ZEROS] = n_of(plan, tensor_of(node, A_ZERO), count);
	w[INTEGER_B_ZEROS] = n_of(plan, tensor_of(node, B_ZERO), count);
}

static void fill_matmul_integer(const struct vk_step *step, const struct plan *plan, uint32_t count,
				struct vk_params *params)
{
	vk_set_product(step, plan, count, tensor_of(step->node, A), tensor_of(step->node, B),
		       params);
	set_integer(step, plan, count, params);
}

static void fill_conv_integer(const struct vk_step *step, const struct plan *plan, uint32_t count,
			      struct vk_params *params)
{
	vk_set_conv(step, plan, count, tensor_of(step->node, B), params);
	params->w[CONV_HAS_BIAS] = vk_has_operand(step, 4);
	set_integer(step, plan, count, params);
}

/*
 * Count the turns: tiles take 109 for 64 steps of k; registers take one for four steps, or for one
 * step if N < 4.
 */
static uint64_t turns_matmul_integer(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;
	const uint64_t batches = div_up(w[BATCH_END], VK_MAX_GROUPS);
	const uint64_t k = w[MATMUL_K];
	const uint64_t steps = step->info->tile_rows == 64 ? k * 7 / 4 + 109
			       : w[MATMUL_N] < 4           ? k
							   : k / 4;

	return batches * (steps + w[MATMUL_BATCH_DIMS] + 32);
}

static void fill_requantize(const struct vk_step *step, const struct plan *plan, uint32_t count,
			    struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *y = vk_shape_of(plan, node->out[0]);
	const struct shape *b = vk_shape_of(plan, tensor_of(node, B));
	const bool is_conv = node->op->kind == OP_QLINEAR_CONV;
	uint32_t *w = params->w;

	w[REQUANTIZE_TOTAL] = n_of(plan, node->out[0], count);
	w[REQUANTIZE_GROUPS] = div_up(w[REQUANTIZE_TOTAL], step->info->tile_cols);
	/*
	 * Scales of A are per row of a product. Scales of B are per column of a product, per
	 * channel of a convolution.
	 */
	w[REQUANTIZE_A_RUN] = is_conv || b->rank < 2 ? 1 : shape_dim(b, b->rank - 1u, count);
	w[REQUANTIZE_A] = n_of(plan, tensor_of(node, A_SCALE), count);
	w[REQUANTIZE_B_RUN] = is_conv ? vk_elems(y, count, 2, y->rank) : 1;
	w[REQUANTIZE_B] = n_of(plan, tensor_of(node, B_SCALE), count);
	w[REQUANTIZE_HAS_ZERO] = vk_has_operand(step, 4);
	vk_set_groups(params, w[REQUANTIZE_GROUPS], 1);
}

/*
 * Set the operands of the product's step; add the step that requantizes its sums to bytes, if there
 * is one.
 */
static int add_product(struct lowering *l)
{
	const struct node *node = l->node;
	const uint16_t y = node->out[0];
	struct vk_operand sums = {.tensor = y};
	int r;

	vk_clear_operands(l->step);
	l->step->numbers = VK_FLOATS;
	for (unsigned int role = A; role <= BIAS; role++)
		l->step->operands[role].tensor = tensor_of(node, (enum role)role);
	if (tensor_of(node, Y_SCALE) == PLAN_NO_TENSOR) {
		l->step->operands[VK_OUT] = sums;
		return 0;
	}
	sums = lower_work(l, n_of(l->plan, y, l->plan->max_count) * sizeof(int32_t));
	l->step->operands[VK_OUT] = sums;
	r = lower_add(l);
	if (r)
		return error_fold(r);
	vk_clear_operands(l->step);
	l->step->operands[0] = sums;
	for (unsigned int role = A_SCALE; role <= Y_ZERO; role++)
		l->step->operands[1 + role - A_SCALE].tensor = tensor_of(node, (enum role)role);
	l->step->operands[VK_OUT].tensor = y;
	lower_pipe(l, l->plan->tensors[y].dtype == RBK_DTYPE_I8 ? &requantize_i8 : &requantize_u8);
	l->step->fill = fill_requantize;
	return 0;
}

static int lower_matmul_integer(struct lowering *l)
{
	lower_pipe(l, &matmul_integer);
	l->step->fill = fill_matmul_integer;
	l->step->turns = turns_matmul_integer;
	return add_product(l);
}

static int lower_conv_integer(struct lowering *l)
{
	const struct shape *weights = vk_shape_of(l->plan, tensor_of(l->node, B));
	const uint32_t filters = weights->dims[0] / l->node->params.window.group;

	lower_pipe(l, filters < VK_CONV_FEW ? &conv_integer_narrow : &conv_integer);
	l->step->fill = fill_conv_integer;
	l->step->turns = vk_turns_conv;
	return add_product(l);
}

/* ---- MatMulNBits ---- */

static uint32_t zeros_form(uint8_t dtype)
{
	return dtype == RBK_DTYPE_U8 ? 1 : dtype == RBK_DTYPE_F32 ? 2 : 3;
}

static void fill_nbits(const struct vk_step *step, const struct plan *plan, uint32_t count,
		       struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *a = vk_shape_of(plan, node->in[0]);
	const uint32_t block = node->params.nbits.block;
	uint32_t *w = params->w;

	w[NBITS_M] = vk_elems(a, count, 0, a->rank - 1u);
	w[NBITS_N] = node->params.nbits.n;
	w[NBITS_K] = shape_dim(a, a->rank - 1u, count);
	w[NBITS_BLOCKS] = div_up(w[NBITS_K], block);
	w[NBITS_BLOCK_WORDS] = block / 8;
	w[NBITS_COL_TILES] = div_up(w[NBITS_N], step->info->tile_cols);
	w[NBITS_TILES] = w[NBITS_COL_TILES] * div_up(w[NBITS_M], step->info->tile_rows);
	w[NBITS_ZEROS] = vk_has_operand(step, 3) ? zeros_form(plan->tensors[node->in[3]].dtype) : 0;
	w[NBITS_HAS_BIAS] = vk_has_operand(step, 4);
	vk_set_groups(params, w[NBITS_TILES], 1);
}

static uint64_t turns_nbits(const struct vk_step *step, const struct vk_params *params)
{
	return params->w[NBITS_BLOCKS] * (1 + (uint64_t)params->w[NBITS_BLOCK_WORDS]);
}

static int lower_nbits(struct lowering *l)
{
	const struct shape *a = vk_shape_of(l->plan, l->node->in[0]);
	const uint32_t rows = vk_elems(a, l->plan->max_count, 0, a->rank - 1u);

	l->step->numbers =
		l->plan->tensors[l->node->in[0]].dtype == RBK_DTYPE_F16 ? VK_HALVES : VK_FLOATS;
	l->step->operands[4].tensor = vk_node_in(l->node, 5);
	lower_pipe(l, rows < VK_NBITS_ROWS / 2 ? &nbits_row : &nbits);
	l->step->fill = fill_nbits;
	l->step->turns = turns_nbits;
	return 0;
}

/* clang-format off */
static lower_fn *const lowerers[] = {
	[OP_QUANTIZE_LINEAR] = lower_quantize,
	[OP_DEQUANTIZE_LINEAR] = lower_quantize,
	[OP_DYNAMIC_QUANTIZE_LINEAR] = lower_dynamic_quantize,
	[OP_MATMUL_INTEGER] = lower_matmul_integer,
	[OP_QLINEAR_MATMUL] = lower_matmul_integer,
	[OP_CONV_INTEGER] = lower_conv_integer,
	[OP_QLINEAR_CONV] = lower_conv_integer,
	[OP_MATMUL_NBITS] = lower_nbits,
};
/* clang-format on */
static const struct vk_pipes pipes[] = {
	VK_PIPES(quantize_u8),    VK_PIPES(quantize_i8),
	VK_PIPES(dequantize_u8),  VK_PIPES(dequantize_i8),
	VK_PIPES(dequantize_i32), VK_PIPES(ranges_of_pieces),
	VK_PIPES(range_of_all),   VK_PIPES(matmul_integer),
	VK_PIPES(conv_integer),   VK_PIPES(conv_integer_narrow),
	VK_PIPES(requantize_u8),  VK_PIPES(requantize_i8),
	VK_PIPES(nbits),          VK_PIPES(nbits_row),
};
VK_FAMILY(quantize);
