/* SPDX-License-Identifier: MIT */
/*
 * Constants of four bits, and of 16
 *
 * A four-bit matrix keeps its format for products, which become MatMulNBits. Its layout has one
 * output channel after the other, each in blocks along the reduced dimension, two elements per
 * byte, with a scale and a zero point for each block. For all other readers the matrix is converted
 * to floats.
 */
#include <string.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/eval.h"
#include "shm/number.h"

/* A four-bit matrix in the form of DequantizeLinear. */
struct nibbles {
	struct tensor *in[3]; /* elements, scales, zero points or NULL */
	struct attr attrs[2];
	struct eval_scales scales;
	bool is_transposed;
	struct tensor *packed[3]; /* elements, scales, zero points in the form of MatMulNBits */
	struct tensor *floats;    /* the matrix as floats, once a node needs them; else NULL */
};

/* ---- Types that the catalogue lacks ---- */

static bool has_nibbles(const struct tensor *tensor)
{
	return tensor && tensor->constant &&
	       (tensor->dtype == RBK_ONNX_U4 || tensor->dtype == RBK_ONNX_I4);
}

/* Return @tensor, or its numbers in a type that the catalogue has. */
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

/* ---- Four-bit matrices ---- */

static bool is_same_shape(const struct tensor *a, const struct tensor *b)
{
	return shape_equal(&a->shape, &b->shape);
}

struct tensor *nibbles_keep(struct graph *graph, struct tensor *const *in, const struct attr *attrs)
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

struct tensor *nibbles_dequantize(struct graph *graph, struct tensor *const *in,
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
		nibbles->floats = nibbles_dequantize(graph, nibbles->in, nibbles->attrs);
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

/* Dimensions of a matrix in the form of MatMulNBits. */
struct blocks {
	const struct nibbles *nibbles;
	uint64_t k, n, size, per_column;
};

/* Find a block size. Along the reduced dimension there must be one scale, or one per block. */
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
	*ret = (struct blocks){nibbles, k, n, size, div_up(k, size)};
	return size >= 16;
}

/* Return the index of element (k, n) in the stored matrix. */
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

/* Store a four-bit element, the first of a byte in the low half. */
static void put_nibble(uint8_t *data, uint64_t i, int64_t value)
{
	data[i / 2] |= (uint8_t)((value & 15) << (i % 2 * 4));
}

/* Pack the elements. Signed ones are stored with 8 added, which is the default zero point. */
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

/*
 * Pack a matrix once, for all products that read the matrix: the layout depends on its shape only.
 */
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
