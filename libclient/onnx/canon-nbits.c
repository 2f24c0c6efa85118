/* SPDX-License-Identifier: MIT */
/*
 * Rules: MatMulNBits, of domain com.microsoft
 *
 * The catalogue has MatMulNBits for weights of four bits in contiguous blocks. Weights of two and
 * of eight bits, and weights assigned to blocks by a list, become bytes that DequantizeLinear
 * converts to floats. B is [N, K], with each row padded to whole blocks, as are scales and zero
 * points, one for each block. Zero points that are left out are half of the range.
 */
#include "libclient/onnx/canon.h"
#include "shm/number.h"

struct product {
	uint32_t k, n, bits, block, n_blocks;
	struct tensor *b, *scales, *zeros, *groups;
};

/*
 * Unpack a constant with several numbers per byte, the first in the low bits, into one byte each.
 */
static struct tensor *unpacked(struct graph *graph, struct tensor *tensor, const char *what,
			       uint32_t bits, uint32_t rows, uint32_t per_row, uint32_t kept)
{
	const uint32_t per_byte = 8 / bits;
	const uint64_t row_bytes = div_up((uint64_t)per_row, per_byte);
	struct constant *bytes;
	uint8_t *data;

	if (!canon_known(graph, tensor, what))
		return NULL;
	if (tensor->dtype != RBK_ONNX_U8 || tensor->constant->n_elems != rows * row_bytes) {
		graph_refuse(graph, "its %s is %s of %s, expected uint8 of %llu elements", what,
			     rbk_onnx_dtype_name(tensor->dtype), SHAPE_TEXT(&tensor->shape),
			     (unsigned long long)(rows * row_bytes));
		return NULL;
	}
	bytes = graph_zero(graph, 1, sizeof(*bytes));
	data = graph_take(graph, (uint64_t)rows * kept);
	if (!bytes || !data)
		return NULL;
	*bytes = (struct constant){
		.dtype = RBK_ONNX_U8, .rank = 2, .dims = {rows, kept}, .data = data};
	if (!constant_measure(bytes))
		return NULL;
	for (uint64_t i = 0; i < (uint64_t)rows * kept; i++) {
		const uint64_t row = i / kept, at = i % kept;
		const uint8_t byte =
			((const uint8_t *)tensor->constant->data)[row * row_bytes + at / per_byte];

		data[i] = (uint8_t)(byte >> at % per_byte * bits & ((1u << bits) - 1));
	}
	return graph_constant(graph, bytes);
}

/* Return the default zero points. */
static struct tensor *middle(struct graph *graph, const struct product *product)
{
	struct constant *bytes = graph_zero(graph, 1, sizeof(*bytes));
	uint8_t *data = graph_take(graph, (uint64_t)product->n * product->n_blocks);

	if (!bytes || !data)
		return NULL;
	*bytes = (struct constant){.dtype = RBK_ONNX_U8,
				   .rank = 2,
				   .dims = {product->n, product->n_blocks},
				   .data = data};
	if (!constant_measure(bytes))
		return NULL;
	memset(data, 1 << (product->bits - 1), bytes->n_elems);
	return graph_constant(graph, bytes);
}

static bool read_int(struct graph *graph, const char *name, int64_t fallback, int64_t max,
		     uint32_t *ret)
{
	const int64_t value = canon_int(graph, name, fallback);

	if (value < 1 || value > max) {
		graph_refuse(graph, "attribute \"%s\" is %lld, expected 1 to %lld", name,
			     (long long)value, (long long)max);
		return false;
	}
	*ret = (uint32_t)value;
	return true;
}

static bool read_product(struct graph *graph, struct product *ret)
{
	struct shape scales = {.rank = 2};

	canon_ignore(graph, "accuracy_level");
	if (!read_int(graph, "K", 0, OP_MAX_DIM, &ret->k) ||
	    !read_int(graph, "N", 0, OP_MAX_DIM, &ret->n) ||
	    !read_int(graph, "bits", 4, 8, &ret->bits) ||
	    !read_int(graph, "block_size", 0, 1 << 16, &ret->block))
		return false;
	if ((ret->bits != 2 && ret->bits != 4 && ret->bits != 8) || ret->block < 16 ||
	    (ret->block & (ret->block - 1))) {
		graph_refuse(graph,
			     "it has %u bits in blocks of %u, expected 2, 4 or 8, in blocks of a "
			     "power of two from 16 on",
			     ret->bits, ret->block);
		return false;
	}
	ret->n_blocks = div_up(ret->k, ret->block);
	if ((uint64_t)ret->n * ret->n_blocks * ret->block > OP_MAX_DIM) {
		graph_refuse(graph, "%u by %u is too large", ret->n, ret->k);
		return false;
	}
	ret->b = unpacked(graph, canon_in(graph, 1), "B", ret->bits, ret->n,
			  ret->n_blocks * ret->block, ret->k);
	if (!ret->b)
		return false;
	ret->scales = canon_in(graph, 2);
	scales.dims[0] = ret->n;
	scales.dims[1] = ret->n_blocks;
	if (ret->scales->shape.dynamic ||
	    shape_elems(&ret->scales->shape, 1) != (uint64_t)ret->n * ret->n_blocks) {
		graph_refuse(graph, "its scales are %s, expected %u by %u",
			     SHAPE_TEXT(&ret->scales->shape), ret->n, ret->n_blocks);
		return false;
	}
	ret->scales = canon_reshape(graph, ret->scales, &scales);
	ret->zeros = canon_in(graph, 3);
	if (ret->zeros && ret->zeros->dtype != RBK_ONNX_U8) {
		graph_refuse(graph, "its input \"%s\", zero_points, is %s, expected uint8",
			     ret->zeros->name, rbk_onnx_dtype_name(ret->zeros->dtype));
		return false;
	}
	ret->zeros = ret->zeros ? unpacked(graph, ret->zeros, "zero_points", ret->bits, ret->n,
					   ret->n_blocks, ret->n_blocks)
				: middle(graph, ret);
	ret->groups = canon_in(graph, 4);
	return ret->zeros != NULL;
}

/* Expand @x from one per block to one per element of the reduced dimension. */
static struct tensor *by_group(struct graph *graph, const struct product *product, struct tensor *x)
{
	const struct attr axis = ATTR_INT("axis", 1);
	struct tensor *in[] = {x, product->groups};

	return graph_emit_1(graph, "Gather", in, 2, &axis, 1);
}

/* Check the block of each element of K, which must be known and valid. */
static bool check_groups(struct graph *graph, struct product *product)
{
	struct shape shape = {.rank = 1};
	const int64_t *values;
	unsigned int n;

	values = canon_known_ints(graph, product->groups, "g_idx", &n);
	if (!values)
		return false;
	shape.dims[0] = product->k;
	for (unsigned int i = 0; i < n; i++) {
		if (n == product->k && values[i] >= 0 && values[i] < product->n_blocks)
			continue;
		graph_refuse(graph, "its g_idx has %lld of %u, expected %u below %u",
			     (long long)values[i], n, product->k, product->n_blocks);
		return false;
	}
	product->groups = canon_reshape(graph, product->groups, &shape);
	return true;
}

/* Return the weights as floats, one row for each column of the product. */
static struct tensor *weights(struct graph *graph, struct product *product)
{
	struct tensor *in[] = {product->b, product->scales, product->zeros}, *y;
	const struct attr attrs[] = {ATTR_INT("axis", 1), ATTR_INT("block_size", product->block)};

	if (!product->groups)
		return graph_emit_1(graph, "DequantizeLinear", in, 3, attrs, ARRAY_SIZE(attrs));
	if (!check_groups(graph, product))
		return graph_unknown(graph);
	y = canon_binary(graph, "Sub", canon_cast(graph, product->b, product->scales->dtype),
			 by_group(graph, product,
				  canon_cast(graph, product->zeros, product->scales->dtype)));
	return canon_binary(graph, "Mul", y, by_group(graph, product, product->scales));
}

void canon_mat_mul_nbits(struct graph *graph)
{
	static const int64_t swapped[] = {1, 0};
	const struct attr perm = ATTR_INTS("perm", swapped, 2);
	struct product product;
	struct tensor *y, *bias = canon_in(graph, 5);

	if (canon_int(graph, "bits", 4) == 4 && !canon_in(graph, 4)) {
		canon_same(graph);
		return;
	}
	if (!read_product(graph, &product))
		return;
	y = canon_unary(graph, "Transpose", weights(graph, &product), &perm, 1);
	y = canon_binary(graph, "MatMul", canon_in(graph, 0), y);
	canon_out(graph, 0, bias ? canon_binary(graph, "Add", y, bias) : y);
}
