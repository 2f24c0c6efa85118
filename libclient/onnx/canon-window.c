/* SPDX-License-Identifier: MIT */
/*
 * Rules: sliding windows
 *
 * Pooling a whole channel into one number is a reduction over the dimensions after the second. A
 * norm that is no reduction becomes a window as large as these dimensions.
 */
#include "libclient/onnx/canon.h"

void canon_global_pool(struct graph *graph)
{
	const char *name = graph->node->proto->op_type;
	struct tensor *x = canon_in(graph, 0);
	unsigned int rank = x->shape.rank, n = rank > 2 ? rank - 2 : 0;
	int64_t *list = graph_zero(graph, RBK_MAX_RANK, sizeof(*list));
	const bool is_norm = !strcmp(name, "GlobalLpPool");
	/* In opset 1 this attribute is a float. */
	const int64_t p = is_norm ? canon_int(graph, "p", 2) : 0;
	struct attr attrs[2];

	if (!list)
		return;
	if (n == 0) {
		graph_refuse(graph, "%s has no dimensions behind batch and channels",
			     SHAPE_TEXT(&x->shape));
		return;
	}
	if (is_norm && p != 1 && p != 2) {
		for (unsigned int i = 0; i < n; i++)
			list[i] = x->shape.dims[2 + i];
		attrs[0] = ATTR_INTS("kernel_shape", list, n);
		attrs[1] = ATTR_INT("p", p);
		canon_out(graph, 0, canon_unary(graph, "LpPool", x, attrs, 2));
		return;
	}
	for (unsigned int i = 0; i < n; i++)
		list[i] = 2 + i;
	attrs[0] = ATTR_INTS("axes", list, n);
	attrs[1] = ATTR_INT("keepdims", 1);
	name = is_norm ? (p == 1 ? "ReduceL1" : "ReduceL2")
		       : (!strcmp(name, "GlobalMaxPool") ? "ReduceMax" : "ReduceMean");
	canon_out(graph, 0, canon_unary(graph, name, x, attrs, 2));
}
