/* SPDX-License-Identifier: MIT */
/*
 * Rules: quantizing and back, and products of what is quantized
 *
 * The catalogue has scales of the data's own type, and integers of 8 bits and of 32. What ONNX has
 * beside that becomes casts: data and scale to the type that ONNX divides or multiplies in, and the
 * result to the one that is asked for. Constants of four bits become bytes, those of 16 have 32.
 *
 * A matrix of four bits stays what it is, as long as nobody reads its elements: products with it
 * are MatMulNBits, which has out channels one behind the other, each in blocks along what is summed
 * up, two elements to a byte, a scale and a zero point of each block. For whoever else reads it, it
 * becomes floats then.
 */
#include <string.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/eval.h"

/* A matrix of four bits as a DequantizeLinear has it; its constants, and what they mean. */
struct nibbles {
	struct tensor *in[3]; /* elements, scales, zero points or NULL */
	struct attr attrs[2];
	struct eval_scales scales;
	bool is_transposed;
	struct tensor *packed[3]; /* likewise, as products have its elements, scales, zero points */
	struct tensor *floats;    /* it as a tensor like others, once somebody wanted that */
};

/* ---- Types that the catalogue does not have ---- */

static bool has_nibbles(const struct tensor *tensor)
{
	return tensor && tensor->constant &&
	       (tensor->dtype == RBK_ONNX_U4 || tensor->dtype == RBK_ONNX_I4);
}

/* @tensor, or the same numbers in a type that devices have. */
static struct tensor *widen(struct graph *graph, struct tensor *tensor)
{
	struct constant *bytes;
	uint8_t *data;

	if (tensor && tensor->constant &&
	    (tensor->dtype == RBK_ONNX_U16 || tensor->dtype == RBK_ONNX_I16))
		return canon_cast(graph, tensor, RBK_ONNX_I32);
	if (!has_nibbles(tensor))
		return tensor;
	bytes = graph_zero(graph, 1, sizeof(*bytes));
	data = graph_take(graph, tensor->constant->n_elems);
	if (!bytes || !data)
		return graph_unknown(graph);
	*bytes = *tensor->constant;
	bytes->dtype = tensor->dtype == RBK_ONNX_U4 ? RBK_ONNX_U8 : RBK_ONNX_I8;
	bytes->n_bytes = bytes->n_elems;
	bytes->data = data;
	for (uint64_t i = 0; i < bytes->n_elems; i++)
		data[i] = (uint8_t)eval_load_int(tensor->dtype, tensor->constant->data, i);
	return graph_constant(graph, bytes);
}

/* ---- Matrices of four bits ---- */

static bool is_same_shape(const struct tensor *a, const struct tensor *b)
{
	return shape_equal(&a->shape, &b->shape);
}

/*
 * The matrix that is not yet floats. Return: NULL: it is none, or its scales are not its own; the
 * catalogue says what is wrong then.
 */
static struct tensor *keep_nibbles(struct graph *graph, struct tensor *const *in,
				   const struct attr *attrs)
{
	struct nibbles *nibbles;
	struct tensor *tensor;

	if (graph->options.disable & RBK_ONNX_OPT_FOLD || !has_nibbles(in[0]) ||
	    in[0]->shape.rank != 2 || in[0]->constant->n_elems == 0 || !in[1]->constant ||
	    in[1]->constant->n_elems == 0)
		return NULL;
	if (in[2] &&
	    (in[2]->dtype != in[0]->dtype || !in[2]->constant || !is_same_shape(in[2], in[1])))
		return NULL;
	nibbles = graph_zero(graph, 1, sizeof(*nibbles));
	if (!nibbles || !eval_find_scales(attrs[0].i, attrs[1].i, in[0]->constant, in[1]->constant,
					  &nibbles->scales))
		return NULL;
	memcpy(nibbles->in, in, sizeof(nibbles->in));
	memcpy(nibbles->attrs, attrs, sizeof(nibbles->attrs));
	tensor = graph_unknown(graph);
	tensor->known = true;
	tensor->dtype = in[1]->dtype;
	tensor->shape = in[0]->shape;
	tensor->nibbles = nibbles;
	return tensor;
}

static struct tensor *dequantize(struct graph *graph, struct tensor *const *in,
				 const struct attr *attrs)
{
	struct tensor *wide[] = {widen(graph, in[0]), in[1], widen(graph, in[2])};

	return graph_emit_1(graph, "DequantizeLinear", wide, wide[2] ? 3 : 2, attrs, 2);
}

struct tensor *nibbles_widen(struct graph *graph, struct tensor *tensor)
{
	static const int64_t columns[] = {1, 0};
	const struct attr perm = ATTR_INTS("perm", columns, 2);
	struct nibbles *nibbles = tensor->nibbles;

	if (!nibbles)
		return tensor;
	if (!nibbles->floats) {
		nibbles->floats = dequantize(graph, nibbles->in, nibbles->attrs);
		if (nibbles->is_transposed)
			nibbles->floats =
				canon_unary(graph, "Transpose", nibbles->floats, &perm, 1);
	}
	return nibbles->floats;
}

struct tensor *nibbles_transpose(struct graph *graph, struct tensor *tensor)
{
	struct nibbles *nibbles = graph_zero(graph, 1, sizeof(*nibbles));
	struct tensor *other = graph_unknown(graph);

	if (!nibbles)
		return other;
	*nibbles = *tensor->nibbles;
	nibbles->is_transposed = !nibbles->is_transposed;
	nibbles->floats = NULL;
	other->known = true;
	other->dtype = tensor->dtype;
	other->shape =
		(struct shape){.rank = 2, .dims = {tensor->shape.dims[1], tensor->shape.dims[0]}};
	other->nibbles = nibbles;
	return other;
}

/* A matrix as MatMulNBits has it. */
struct blocks {
	const struct nibbles *nibbles;
	uint64_t k, n, size, per_column;
};

/* Along what is summed up there is one scale, or one of each of some blocks. */
static bool find_blocks(const struct nibbles *nibbles, uint64_t k, uint64_t n, struct blocks *ret)
{
	const struct eval_scales *scales = &nibbles->scales;
	const unsigned int k_axis = nibbles->is_transposed ? 1 : 0;
	uint64_t size = 128;

	if (!scales->is_single && !scales->is_list && scales->axis == k_axis &&
	    (uint64_t)scales->block < k) {
		size = (uint64_t)scales->block & -(uint64_t)scales->block;
		size = size > 1u << 16 ? 1u << 16 : size;
	} else if (!scales->is_single &&
		   (scales->is_list ? scales->axis == k_axis : scales->axis != k_axis)) {
		return false;
	}
	while (size > 16 && size / 2 >= k)
		size /= 2;
	*ret = (struct blocks){nibbles, k, n, size, (k + size - 1) / size};
	return size >= 16;
}

/* Which one of the matrix's elements that is. */
static uint64_t element_at(const struct blocks *blocks, uint64_t k, uint64_t n)
{
	return blocks->nibbles->is_transposed ? n * blocks->k + k : k * blocks->n + n;
}

static struct tensor *list_of(struct graph *graph, uint32_t dtype, uint64_t n, void **ret_data)
{
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));

	*ret_data = graph_zero(graph, n, onnx_dtype_size(dtype));
	if (!constant || !*ret_data || n > OP_MAX_DIM)
		return NULL;
	*constant = (struct constant){.dtype = dtype, .rank = 1, .dims = {(int64_t)n}};
	constant->data = *ret_data;
	return constant_measure(constant) ? graph_constant(graph, constant) : NULL;
}

/* Elements in halves of bytes, the first in the low one. */
static void put_nibble(uint8_t *data, uint64_t i, int64_t value)
{
	data[i / 2] |= (uint8_t)((value & 15) << (i % 2 * 4));
}

/* Signed ones are kept with 8 added, which is the zero point that need not be given. */
static struct tensor *pack_elements(struct graph *graph, const struct blocks *blocks)
{
	const struct constant *x = blocks->nibbles->in[0]->constant;
	const int64_t above = x->dtype == RBK_ONNX_I4 ? 8 : 0;
	const uint64_t column = blocks->per_column * blocks->size;
	struct tensor *list;
	void *data;

	list = list_of(graph, RBK_ONNX_U8, blocks->n * column / 2, &data);
	for (uint64_t n = 0; list && n < blocks->n; n++)
		for (uint64_t k = 0; k < blocks->k; k++)
			put_nibble(
				data, n * column + k,
				above + eval_load_int(x->dtype, x->data, element_at(blocks, k, n)));
	return list;
}

static struct tensor *pack_scales(struct graph *graph, const struct blocks *blocks)
{
	const struct constant *scale = blocks->nibbles->in[1]->constant;
	struct tensor *list;
	void *data;

	list = list_of(graph, scale->dtype, blocks->n * blocks->per_column, &data);
	for (uint64_t i = 0; list && i < blocks->n * blocks->per_column; i++) {
		const uint64_t k = i % blocks->per_column * blocks->size;
		const uint64_t at = element_at(blocks, k, i / blocks->per_column);

		eval_store(scale->dtype, data, i,
			   eval_load(scale->dtype, scale->data,
				     eval_scale_at(&blocks->nibbles->scales, at)));
	}
	return list;
}

static struct tensor *pack_zeros(struct graph *graph, const struct blocks *blocks)
{
	const struct nibbles *nibbles = blocks->nibbles;
	const struct constant *zero = nibbles->in[2] ? nibbles->in[2]->constant : NULL;
	const int64_t above = nibbles->in[0]->dtype == RBK_ONNX_I4 ? 8 : 0;
	const uint64_t column = (blocks->per_column + 1) / 2 * 2;
	struct tensor *list;
	void *data;

	list = list_of(graph, RBK_ONNX_U8, blocks->n * column / 2, &data);
	for (uint64_t n = 0; list && zero && n < blocks->n; n++) {
		for (uint64_t i = 0; i < blocks->per_column; i++) {
			const uint64_t at = element_at(blocks, i * blocks->size, n);

			put_nibble(data, n * column + i,
				   above + eval_load_int(zero->dtype, zero->data,
							 eval_scale_at(&nibbles->scales, at)));
		}
	}
	return list;
}

/* Once, for all products that have it: its shape says how. */
static bool pack(struct graph *graph, struct nibbles *nibbles, const struct blocks *blocks)
{
	const bool has_zeros = nibbles->in[2] || nibbles->in[0]->dtype == RBK_ONNX_U4;

	if (!nibbles->packed[0])
		nibbles->packed[0] = pack_elements(graph, blocks);
	if (!nibbles->packed[1])
		nibbles->packed[1] = pack_scales(graph, blocks);
	if (has_zeros && !nibbles->packed[2])
		nibbles->packed[2] = pack_zeros(graph, blocks);
	return nibbles->packed[0] && nibbles->packed[1] && (!has_zeros || nibbles->packed[2]);
}

struct tensor *nibbles_multiply(struct graph *graph, struct tensor *a, struct tensor *b,
				struct tensor *bias)
{
	struct nibbles *nibbles = b->nibbles;
	struct tensor *in[6] = {a, NULL, NULL, NULL, NULL, bias};
	struct blocks blocks;

	if (!nibbles || graph->computes_bfloat || a->constant || a->dtype != b->dtype ||
	    a->shape.rank < 2 || a->shape.dims[a->shape.rank - 1] != b->shape.dims[0] ||
	    !find_blocks(nibbles, b->shape.dims[0], b->shape.dims[1], &blocks))
		return NULL;
	if (!pack(graph, nibbles, &blocks))
		return NULL;
	for (unsigned int i = 0; i < 3; i++)
		in[i + 1] = nibbles->packed[i];
	{
		const struct attr attrs[] = {
			ATTR_INT("K", (int64_t)blocks.k),
			ATTR_INT("N", (int64_t)blocks.n),
			ATTR_INT("bits", 4),
			ATTR_INT("block_size", (int64_t)blocks.size),
		};

		return graph_emit_1(graph, "MatMulNBits", in,
				    bias    ? 6
				    : in[3] ? 4
					    : 3,
				    attrs, ARRAY_SIZE(attrs));
	}
}

/* ---- Rules ---- */

void canon_mat_mul(struct graph *graph)
{
	struct tensor *b = canon_narrow_in(graph, 1), *y;

	y = b->nibbles ? nibbles_multiply(graph, canon_in(graph, 0), b, NULL)
		       : canon_whole_product(graph, canon_in(graph, 0), b);
	if (y)
		canon_out(graph, 0, y);
	else
		canon_same(graph);
}

static bool is_float(const struct tensor *tensor)
{
	return OP_FLOATS & OP_TYPE(tensor->dtype);
}

void canon_dequantize(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1), canon_in(graph, 2)}, *y;
	const int64_t asked = canon_int(graph, "output_dtype", 0);
	const struct attr attrs[] = {ATTR_INT("axis", canon_int(graph, "axis", 1)),
				     ATTR_INT("block_size", canon_int(graph, "block_size", 0))};
	uint32_t dtype = in[1]->dtype;

	if (asked < 0 || asked > UINT8_MAX)
		graph_refuse(graph, "attribute \"output_dtype\" is %lld, expected a type",
			     (long long)asked);
	if (graph->is_refused)
		return;
	/* To bfloat16 it is rounded behind, if scales are. */
	if (asked)
		dtype = graph->computes_bfloat && asked == RBK_ONNX_BF16 ? RBK_ONNX_F32
									 : (uint32_t)asked;
	if (is_float(in[1]) && dtype != in[1]->dtype)
		in[1] = canon_cast(graph, in[1], RBK_ONNX_F32);
	if (graph->is_refused)
		return;
	y = dtype == in[1]->dtype && !graph->computes_bfloat ? keep_nibbles(graph, in, attrs)
							     : NULL;
	if (!y)
		y = dequantize(graph, in, attrs);
	canon_out(graph, 0, asked ? canon_cast(graph, y, dtype) : y);
}

/* What is divided in: the type of the scale where nothing else is asked for. */
static uint32_t quotient_type(const struct tensor *x, const struct tensor *scale, int64_t precision)
{
	if (x->dtype == RBK_ONNX_I32)
		return RBK_ONNX_F32;
	return precision ? precision == RBK_ONNX_F16 ? RBK_ONNX_F16 : RBK_ONNX_F32 : scale->dtype;
}

void canon_quantize(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1), canon_in(graph, 2)};
	const int64_t asked = canon_int(graph, "output_dtype", 0);
	const int64_t dtype = in[2] ? in[2]->dtype : asked ? asked : RBK_ONNX_U8;
	const int64_t precision = canon_int(graph, "precision", 0);
	const struct attr attrs[] = {ATTR_INT("axis", canon_int(graph, "axis", 1)),
				     ATTR_INT("block_size", canon_int(graph, "block_size", 0)),
				     ATTR_INT("output_dtype", dtype)};

	/* Of float8 alone. */
	canon_ignore(graph, "saturate");
	if (precision &&
	    !(precision > 0 && precision <= UINT8_MAX && eval_is_float((uint32_t)precision)))
		graph_refuse(graph, "attribute \"precision\" is %lld, expected a type of floats",
			     (long long)precision);
	if (asked && asked != dtype)
		graph_refuse(graph, "attribute \"output_dtype\" is %lld, but its zero point is %s",
			     (long long)asked, rbk_onnx_dtype_name((uint32_t)dtype));
	if (dtype != RBK_ONNX_U8 && dtype != RBK_ONNX_I8)
		graph_refuse(graph, "it quantizes to %s, expected uint8 or int8",
			     rbk_onnx_dtype_name((uint32_t)dtype));
	if (graph->is_refused)
		return;
	if (is_float(in[1]) && (is_float(in[0]) || in[0]->dtype == RBK_ONNX_I32)) {
		const uint32_t divided = quotient_type(in[0], in[1], precision);

		in[0] = canon_cast(graph, in[0], divided);
		in[1] = canon_cast(graph, in[1], divided);
	}
	canon_out(
		graph, 0,
		graph_emit_1(graph, "QuantizeLinear", in, in[2] ? 3 : 2, attrs, ARRAY_SIZE(attrs)));
}

/* ---- Zero points of each matrix ---- */

/* [D1, D2, M, 1] or [D1, D2, 1, N], of matrices that are not all alike? */
static bool is_per_matrix(const struct tensor *zero, const struct tensor *of)
{
	bool differs = false;

	if (!zero || zero->dtype != of->dtype || zero->shape.rank < 3 ||
	    zero->shape.rank != of->shape.rank || shape_is_empty(&zero->shape))
		return false;
	for (unsigned int i = 0; i + 2 < zero->shape.rank; i++)
		differs |= zero->shape.dims[i] != 1 || (i == 0 && zero->shape.dynamic);
	return differs;
}

/* @x along a dimension counted from its end, which is kept. */
static struct tensor *sum_along(struct graph *graph, struct tensor *x, unsigned int from_end)
{
	int64_t *axis = graph_take(graph, sizeof(*axis));
	struct attr attrs[2];

	if (!axis)
		return graph_unknown(graph);
	*axis = x->shape.rank - from_end;
	attrs[0] = ATTR_INTS("axes", axis, 1);
	attrs[1] = ATTR_INT("keepdims", 1);
	return canon_unary(graph, "ReduceSum", canon_cast(graph, x, RBK_ONNX_I32), attrs, 2);
}

static struct tensor *minus_product(struct graph *graph, struct tensor *from, struct tensor *a,
				    struct tensor *b)
{
	return canon_binary(graph, "Sub", from, canon_binary(graph, "Mul", a, b));
}

/*
 * The catalogue has zero points of rows and of columns that are those of all matrices. Others are
 * taken off behind the product: the sum of (a - p)(b - q) is that of ab, less p times that of b,
 * less q times that of a - p.
 */
void canon_mat_mul_integer(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1)}, *y, *z, *sum;
	struct tensor *p = canon_in(graph, 2), *q = canon_in(graph, 3);
	const struct shape *a = &in[0]->shape, *b = &in[1]->shape;
	struct shape column;

	if ((!is_per_matrix(p, in[0]) && !is_per_matrix(q, in[1])) || a->rank < 2 || b->rank < 2 ||
	    shape_is_empty(a) || shape_is_empty(b) || (p && p->dtype != in[0]->dtype) ||
	    (q && q->dtype != in[1]->dtype)) {
		canon_same(graph);
		return;
	}
	z = y = graph_emit_1(graph, "MatMulInteger", in, 2, NULL, 0);
	if (!y->known)
		return;
	sum = sum_along(graph, in[0], 1);
	if (p) {
		column = p->shape;
		if (column.rank == 1 && column.dims[0] != 1)
			column.dims[column.rank++] = 1;
		p = canon_cast(graph, canon_reshape(graph, p, &column), RBK_ONNX_I32);
		z = minus_product(graph, z, p, sum_along(graph, in[1], 2));
		sum = minus_product(graph, sum, p,
				    graph_scalar(graph, RBK_ONNX_I32, a->dims[a->rank - 1]));
	}
	if (q)
		z = minus_product(graph, z, canon_cast(graph, q, RBK_ONNX_I32), sum);
	if (z->known && !shape_equal(&z->shape, &y->shape))
		graph_refuse(graph, "its zero points are not those of %s by %s", SHAPE_TEXT(a),
			     SHAPE_TEXT(b));
	canon_out(graph, 0, z);
}
