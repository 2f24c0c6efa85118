/* SPDX-License-Identifier: MIT */
/* Steps that many rules emit. */
#include "libclient/onnx/canon.h"

static struct tensor *emit_reshape(struct graph *graph, struct tensor *tensor,
				   const struct shape *shape)
{
	int64_t *dims = graph_take(graph, RBK_MAX_RANK * sizeof(*dims));
	struct tensor *out;
	struct attr attr;

	if (!dims)
		return graph_unknown(graph);
	for (unsigned int i = 0; i < shape->rank; i++)
		dims[i] = i == 0 && shape->dynamic ? -1 : (int64_t)shape->dims[i];
	attr = ATTR_INTS("shape", dims, shape->rank);
	out = graph_emit_1(graph, "Reshape", &tensor, 1, &attr, 1);
	/* The catalogue's rule may read a 0 as another number. */
	if (out->known && !shape_equal(&out->shape, shape)) {
		graph_refuse(graph, "%s cannot become %s", SHAPE_TEXT(&tensor->shape),
			     SHAPE_TEXT(shape));
		return graph_unknown(graph);
	}
	return out;
}

struct tensor *canon_reshape(struct graph *graph, struct tensor *tensor, const struct shape *shape)
{
	if (!tensor->known)
		return graph_unknown(graph);
	if (shape_equal(&tensor->shape, shape))
		return tensor;
	return emit_reshape(graph, tensor, shape);
}

struct tensor *canon_nothing(struct graph *graph, struct tensor *tensor)
{
	if (graph->options.disable & RBK_ONNX_OPT_NO_OPS && tensor->known && !tensor->constant)
		return canon_copy(graph, tensor);
	return tensor;
}

struct tensor *canon_copy(struct graph *graph, struct tensor *tensor)
{
	struct tensor *copy;

	graph->keeps_constants = true;
	copy = emit_reshape(graph, tensor, &tensor->shape);
	graph->keeps_constants = false;
	return copy;
}

struct tensor *canon_unary(struct graph *graph, const char *op, struct tensor *a,
			   const struct attr *attrs, unsigned int n_attrs)
{
	return graph_emit_1(graph, op, &a, 1, attrs, n_attrs);
}

struct tensor *canon_binary(struct graph *graph, const char *op, struct tensor *a, struct tensor *b)
{
	struct tensor *in[] = {a, b};

	return graph_emit_1(graph, op, in, 2, NULL, 0);
}

struct tensor *bfloat_widen(struct graph *graph, struct tensor *tensor)
{
	const struct attr to = ATTR_INT("to", RBK_ONNX_F32);

	if (!tensor->widened)
		tensor->widened = graph_emit_1(graph, "Cast", &tensor, 1, &to, 1);
	return tensor->widened;
}

struct tensor *canon_cast(struct graph *graph, struct tensor *a, uint32_t dtype)
{
	struct attr attr = ATTR_INT("to", dtype);

	if (a->known && a->dtype == dtype)
		return canon_nothing(graph, a);
	if (a->known && a->dtype == RBK_ONNX_BF16 && dtype == RBK_ONNX_F32)
		return bfloat_widen(graph, a);
	return graph_emit_1(graph, "Cast", &a, 1, &attr, 1);
}
