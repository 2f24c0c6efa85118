/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: products and convolutions of quantized tensors
 *
 * MatMulInteger, QLinearMatMul, ConvInteger and QLinearConv have the shapes of MatMul and Conv,
 * with scales and zero points: per tensor, per row of the left operand, per column of the right
 * operand, or per output channel. MatMulNBits is ONNX Runtime's: the right operand is transposed
 * and has four bits per element, in blocks along the depth with one scale each.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

/* Apply another operator's rule to some of the inputs. */
static int infer_as(struct op_call *call, int (*infer)(struct op_call *call), unsigned int n_in,
		    const unsigned int *in)
{
	struct op_call other = *call;
	int r;

	other.n_in = n_in;
	for (unsigned int i = 0; i < 3; i++)
		other.in[i] = i < n_in && in[i] < call->n_in ? call->in[in[i]] : NULL;
	r = infer(&other);
	call->params = other.params;
	call->out_shape[0] = other.out_shape[0];
	call->mixes_rows |= other.mixes_rows;
	return r;
}

/*
 * Check that @tensor has one element, or one per element of dimension @each of @of, counted from
 * its end. It may also have the rank of @of, with ones in the other dimensions.
 */
static int check_each(struct op_call *call, const struct op_tensor *tensor,
		      const struct op_tensor *of, unsigned int each)
{
	const struct dim dim = of->shape.rank > each
				       ? shape_get(&of->shape, of->shape.rank - 1 - each)
				       : (struct dim){.n = 1};
	const struct shape *shape = tensor ? &tensor->shape : NULL;
	bool one = true, fits;

	if (!tensor)
		return 0;
	for (unsigned int i = 0; i < shape->rank; i++)
		one &= dim_is(shape_get(shape, i), 1);
	if (one)
		return 0;
	fits = shape->rank == 1 && dim_equal(shape_get(shape, 0), dim);
	if (shape->rank == of->shape.rank && shape->rank > each) {
		fits = true;
		for (unsigned int i = 0; i < shape->rank; i++) {
			const struct dim have = shape_get(shape, i);

			fits &= i == shape->rank - 1 - each ? dim_equal(have, dim)
							    : dim_is(have, 1);
		}
	}
	if (fits)
		return 0;
	return op_call_refuse(
		call,
		"input \"%s\" is %s, expected one element, or %s along dimension %u of "
		"\"%s\" %s",
		tensor->name, SHAPE_TEXT(shape), DIM_TEXT(dim),
		(unsigned int)(of->shape.rank > each ? of->shape.rank - 1 - each : 0), of->name,
		SHAPE_TEXT(&of->shape));
}

/*
 * Check that @tensor has one element, or one per element of dimension 0 of a convolution's weights.
 */
static int check_channels(struct op_call *call, const struct op_tensor *tensor,
			  const struct op_tensor *weights)
{
	return check_each(call, tensor, weights, weights->shape.rank - 1u);
}

static int check_one(struct op_call *call, const struct op_tensor *tensor)
{
	if (!tensor || (!tensor->shape.dynamic && shape_elems(&tensor->shape, 1) == 1))
		return 0;
	return op_call_refuse(call, "input \"%s\" is %s, expected one element", tensor->name,
			      SHAPE_TEXT(&tensor->shape));
}

/* Return an upper limit of the bytes of packed eight-bit constants: two bytes each. */
static uint64_t packed_bytes(uint64_t n, uint64_t depth)
{
	return round_up(((depth + 4) * 2 + 4) * round_up(n, 32), OP_WORK_ALIGN);
}

static int matmul_integer_infer(struct op_call *call)
{
	int r;

	r = infer_as(call, op_matmul_infer, 2, (const unsigned int[]){0, 1});
	if (!r)
		r = check_each(call, op_call_input(call, 2), call->in[0], 1);
	if (!r)
		r = check_each(call, op_call_input(call, 3), call->in[1], 0);
	return r;
}

static int qlinear_matmul_infer(struct op_call *call)
{
	int r;

	r = infer_as(call, op_matmul_infer, 2, (const unsigned int[]){0, 3});
	for (unsigned int i = 1; i <= 2 && !r; i++)
		r = check_each(call, call->in[i], call->in[0], 1);
	for (unsigned int i = 4; i <= 5 && !r; i++)
		r = check_each(call, call->in[i], call->in[3], 0);
	for (unsigned int i = 6; i <= 7 && !r; i++)
		r = check_one(call, call->in[i]);
	return r;
}

/* Sums, before they are quantized. */
static uint64_t qlinear_matmul_work(const struct op_call *call)
{
	const struct shape *out = &call->out_shape[0];

	return round_up(shape_elems(out, out->dims[0]) * sizeof(int32_t), OP_WORK_ALIGN);
}

/* Convolutions of eight-bit numbers have no depth dimension. */
static int check_plane(struct op_call *call)
{
	if (call->in[0]->shape.rank <= 4)
		return 0;
	return op_call_refuse(call,
			      "input \"%s\" is %s, expected batch, channels and one or two spatial "
			      "dimensions",
			      call->in[0]->name, SHAPE_TEXT(&call->in[0]->shape));
}

static int conv_integer_infer(struct op_call *call)
{
	int r;

	r = check_plane(call);
	if (!r)
		r = infer_as(call, op_conv_infer, 2, (const unsigned int[]){0, 1});
	if (!r)
		r = check_one(call, op_call_input(call, 2));
	if (!r)
		r = check_channels(call, op_call_input(call, 3), call->in[1]);
	return r;
}

static void conv_cost(const struct op_call *call, const struct shape *weights, struct cost *ret)
{
	uint64_t taps = 1;

	for (unsigned int i = 1; i < weights->rank; i++)
		taps *= weights->dims[i];
	cost_elems(ret, &call->out_shape[0], 2 * taps);
	cost_tensors(call, ret);
}

/* A packed word holds one tap on the CPU, or one channel: an additional channel covers both. */
static uint64_t conv_packed_bytes(const struct shape *weights)
{
	uint64_t taps = 1;

	for (unsigned int i = 2; i < weights->rank; i++)
		taps *= weights->dims[i];
	return packed_bytes(weights->dims[0], taps * (weights->dims[1] + 1ull));
}

static void conv_integer_cost(const struct op_call *call, struct cost *ret)
{
	conv_cost(call, &call->in[1]->shape, ret);
}

static uint64_t conv_integer_work(const struct op_call *call)
{
	return conv_packed_bytes(&call->in[1]->shape);
}

static int qlinear_conv_infer(struct op_call *call)
{
	int r;

	r = check_plane(call);
	if (!r)
		r = infer_as(call, op_conv_infer, 3, (const unsigned int[]){0, 3, 8});
	for (unsigned int i = 1; i <= 2 && !r; i++)
		r = check_one(call, call->in[i]);
	for (unsigned int i = 4; i <= 5 && !r; i++)
		r = check_channels(call, call->in[i], call->in[3]);
	for (unsigned int i = 6; i <= 7 && !r; i++)
		r = check_one(call, call->in[i]);
	return r;
}

static void qlinear_conv_cost(const struct op_call *call, struct cost *ret)
{
	conv_cost(call, &call->in[3]->shape, ret);
}

static uint64_t qlinear_conv_work(const struct op_call *call)
{
	const struct shape *out = &call->out_shape[0];

	return conv_packed_bytes(&call->in[3]->shape) +
	       round_up(shape_elems(out, out->dims[0]) * sizeof(int32_t), OP_WORK_ALIGN);
}

/* Check that @tensor has @n elements, in one dimension or in any shape that ONNX Runtime uses. */
static int check_elems(struct op_call *call, const struct op_tensor *tensor, uint64_t n)
{
	if (!tensor || (!tensor->shape.dynamic && shape_elems(&tensor->shape, 1) == n))
		return 0;
	return op_call_refuse(call, "input \"%s\" is %s, expected %llu elements", tensor->name,
			      SHAPE_TEXT(&tensor->shape), (unsigned long long)n);
}

static int nbits_infer(struct op_call *call)
{
	const struct op_tensor *a = call->in[0], *zeros = op_call_input(call, 3);
	int64_t k = 0, n = 0, bits, block = 0, ignored;
	uint64_t blocks;
	int r;

	r = op_call_int(call, "K", 1, OP_MAX_DIM, 0, &k);
	if (!r)
		r = op_call_int(call, "N", 1, OP_MAX_DIM, 0, &n);
	if (!r)
		r = op_call_int(call, "bits", 4, 4, 4, &bits);
	if (!r)
		r = op_call_int(call, "block_size", 16, 1 << 16, 0, &block);
	if (!r)
		r = op_call_int(call, "accuracy_level", 0, 4, 0, &ignored);
	if (r)
		return r;
	if (block & (block - 1))
		return op_call_refuse(call,
				      "attribute \"block_size\" is %lld, expected a power of two",
				      (long long)block);
	if (a->shape.rank == 0 || !dim_is(shape_get(&a->shape, a->shape.rank - 1u), (uint32_t)k))
		return op_call_refuse(call,
				      "input \"%s\" is %s, expected its last dimension to be "
				      "%lld, K",
				      a->name, SHAPE_TEXT(&a->shape), (long long)k);
	if (op_call_input(call, 4))
		return op_call_refuse(call, "input \"%s\", g_idx, is given, expected none",
				      call->in[4]->name);
	blocks = ((uint64_t)k + (uint64_t)block - 1) / (uint64_t)block;
	r = check_elems(call, call->in[1], (uint64_t)n * blocks * (uint64_t)block / 2);
	if (!r)
		r = check_elems(call, call->in[2], (uint64_t)n * blocks);
	if (!r && zeros)
		r = check_elems(call, zeros,
				zeros->dtype == RBK_DTYPE_U8 ? (uint64_t)n * ((blocks + 1) / 2)
							     : (uint64_t)n * blocks);
	if (!r)
		r = check_elems(call, op_call_input(call, 5), (uint64_t)n);
	if (r)
		return r;
	call->params.nbits.block = (uint32_t)block;
	call->params.nbits.n = (uint32_t)n;
	call->out_shape[0] = a->shape;
	call->out_shape[0].dims[a->shape.rank - 1] = (uint32_t)n;
	return 0;
}

/* Packed weights, with a scale and a zero point per block. */
static uint64_t nbits_work(const struct op_call *call)
{
	const struct shape *a = &call->in[0]->shape;
	const uint64_t block = call->params.nbits.block, k = a->dims[a->rank - 1];
	const uint64_t blocks = div_up(k, block);
	const uint64_t n = round_up(call->params.nbits.n, 32);

	return round_up(n * blocks * (2 + block / 8) * sizeof(uint32_t), OP_WORK_ALIGN);
}

const struct op op_matmul_integer = {
	.kind = OP_MATMUL_INTEGER,
	.family = OP_FAMILY_MATMUL,
	.name = "MatMulInteger",
	.opset = 10,
	.min_in = 2,
	.max_in = 4,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'A', OP_BYTES, OP_BYTES},
		    {'B', OP_BYTES, OP_BYTES},
		    {'I', OP_TYPE(RBK_DTYPE_I32), OP_TYPE(RBK_DTYPE_I32)}},
	.in_classes = "ABAB",
	.out_classes = "I",
	.data_independent = true,
	.splits_rows = true,
	.attrs = op_no_attrs,
	.infer = matmul_integer_infer,
	.cost = op_matmul_cost,
};

const struct op op_qlinear_matmul = {
	.kind = OP_QLINEAR_MATMUL,
	.family = OP_FAMILY_MATMUL,
	.name = "QLinearMatMul",
	.opset = 21,
	.min_in = 8,
	.max_in = 8,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'A', OP_BYTES, OP_BYTES},
		    {'B', OP_BYTES, OP_BYTES},
		    {'S', OP_FLOATS, OP_FLOATS},
		    {'Y', OP_BYTES, OP_BYTES}},
	.in_classes = "ASABSBSY",
	.out_classes = "Y",
	.data_independent = true,
	.splits_rows = true,
	.attrs = op_no_attrs,
	.infer = qlinear_matmul_infer,
	.cost = op_matmul_cost,
	.work = qlinear_matmul_work,
};

const struct op op_conv_integer = {
	.kind = OP_CONV_INTEGER,
	.family = OP_FAMILY_CONVOLUTION,
	.name = "ConvInteger",
	.opset = 10,
	.min_in = 2,
	.max_in = 4,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'A', OP_BYTES, OP_BYTES},
		    {'B', OP_BYTES, OP_BYTES},
		    {'I', OP_TYPE(RBK_DTYPE_I32), OP_TYPE(RBK_DTYPE_I32)}},
	.in_classes = "ABAB",
	.out_classes = "I",
	.data_independent = true,
	.splits_rows = true,
	.attrs = op_conv_attrs,
	.infer = conv_integer_infer,
	.cost = conv_integer_cost,
	.work = conv_integer_work,
};

const struct op op_qlinear_conv = {
	.kind = OP_QLINEAR_CONV,
	.family = OP_FAMILY_CONVOLUTION,
	.name = "QLinearConv",
	.opset = 10,
	.min_in = 8,
	.max_in = 9,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'A', OP_BYTES, OP_BYTES},
		    {'B', OP_BYTES, OP_BYTES},
		    {'S', OP_FLOAT32, OP_FLOAT32},
		    {'Y', OP_BYTES, OP_BYTES},
		    {'I', OP_TYPE(RBK_DTYPE_I32), OP_TYPE(RBK_DTYPE_I32)}},
	.in_classes = "ASABSBSYI",
	.out_classes = "Y",
	.data_independent = true,
	.splits_rows = true,
	.attrs = op_conv_attrs,
	.infer = qlinear_conv_infer,
	.cost = qlinear_conv_cost,
	.work = qlinear_conv_work,
};

static const struct op_attr nbits_attrs[] = {
	{"K", RBK_ATTR_INT, true},
	{"N", RBK_ATTR_INT, true},
	{"accuracy_level", RBK_ATTR_INT, false},
	{"bits", RBK_ATTR_INT, false},
	{"block_size", RBK_ATTR_INT, true},
	{0},
};

const struct op op_matmul_nbits = {
	.kind = OP_MATMUL_NBITS,
	.family = OP_FAMILY_MATMUL,
	.name = "MatMulNBits",
	.opset = 1,
	.min_in = 3,
	.max_in = 6,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'T', OP_FLOATS, OP_FLOATS},
		    {'B', OP_TYPE(RBK_DTYPE_U8), OP_TYPE(RBK_DTYPE_U8)},
		    {'Z', OP_TYPE(RBK_DTYPE_U8) | OP_FLOATS, OP_TYPE(RBK_DTYPE_U8) | OP_FLOATS},
		    {'I', OP_TYPE(RBK_DTYPE_I32), OP_TYPE(RBK_DTYPE_I32)}},
	.in_classes = "TBTZIT",
	.out_classes = "T",
	.data_independent = true,
	.splits_rows = true,
	.attrs = nbits_attrs,
	.infer = nbits_infer,
	.cost = op_matmul_cost,
	.work = nbits_work,
};
