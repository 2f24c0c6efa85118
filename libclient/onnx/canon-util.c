/* SPDX-License-Identifier: MIT */
/*
 * What rules have in common: reading a node, and emitting what is emitted often
 *
 * Every attribute that is read is marked; what is left over when a rule has run is one that it does
 * not know, and a refusal. So no attribute is ever silently ignored.
 */
#include <errno.h>
#include <stdlib.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/eval.h"

/* ---- Inputs and outputs ---- */

struct tensor *canon_in(struct graph *graph, unsigned int i)
{
	const struct model_node *node = graph->node;

	if (i >= node->n_in || node->in[i] == ONNX_ABSENT)
		return NULL;
	return bfloat_in(graph, nibbles_widen(graph, graph_value(graph, node->in[i])));
}

struct tensor *canon_narrow_in(struct graph *graph, unsigned int i)
{
	const struct model_node *node = graph->node;
	struct tensor *tensor = NULL;

	if (i < node->n_in && node->in[i] != ONNX_ABSENT)
		tensor = graph_value(graph, node->in[i]);
	return tensor && tensor->nibbles ? tensor : canon_in(graph, i);
}

bool canon_wants(const struct graph *graph, unsigned int i)
{
	return i < graph->node->n_out && graph->node->out[i] != ONNX_ABSENT;
}

void canon_out(struct graph *graph, unsigned int i, struct tensor *tensor)
{
	if (!canon_wants(graph, i) || !tensor)
		return;
	tensor = bfloat_out(graph, i, tensor);
	if (!tensor->name[0] && tensor != &graph->nowhere)
		tensor->name = graph->model->values[graph->node->out[i]].name;
	graph->values[graph->node->out[i]] = tensor;
}

/* ---- Attributes ---- */

static const Onnx__AttributeProto *find_attr(const struct graph *graph, const char *name)
{
	const Onnx__NodeProto *proto = graph->node->proto;

	for (size_t i = 0; i < proto->n_attribute; i++) {
		if (strcmp(proto->attribute[i]->name, name))
			continue;
		graph->attr_is_read[i] = true;
		return proto->attribute[i];
	}
	return NULL;
}

/*
 * Files without types are old: the value that is there tells. What is there is checked, because a
 * type is only a claim.
 */
static bool has_type(struct graph *graph, const Onnx__AttributeProto *attr, int type,
		     bool has_value, const char *expected)
{
	if ((attr->has_type && attr->type == (Onnx__AttributeProto__AttributeType)type) ||
	    (!attr->has_type && has_value))
		return true;
	graph_refuse(graph, "attribute \"%s\" is not %s", attr->name, expected);
	return false;
}

bool canon_has_attr(const struct graph *graph, const char *name)
{
	return find_attr(graph, name) != NULL;
}

void canon_ignore(struct graph *graph, const char *name)
{
	find_attr(graph, name);
}

int64_t canon_int(struct graph *graph, const char *name, int64_t fallback)
{
	const Onnx__AttributeProto *attr = find_attr(graph, name);

	if (!attr || !has_type(graph, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, attr->has_i,
			       "an integer"))
		return fallback;
	return attr->i;
}

float canon_float(struct graph *graph, const char *name, float fallback)
{
	const Onnx__AttributeProto *attr = find_attr(graph, name);

	if (!attr || !has_type(graph, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT,
			       attr->has_f, "a number"))
		return fallback;
	return attr->f;
}

const int64_t *canon_ints(struct graph *graph, const char *name, unsigned int *ret_n)
{
	static const int64_t none;
	const Onnx__AttributeProto *attr = find_attr(graph, name);

	*ret_n = 0;
	if (!attr || !has_type(graph, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS,
			       attr->n_ints > 0, "a list of integers"))
		return NULL;
	if (attr->n_ints > UINT16_MAX) {
		graph_refuse(graph, "attribute \"%s\" has %zu elements", name, attr->n_ints);
		return NULL;
	}
	*ret_n = (unsigned int)attr->n_ints;
	return attr->ints ? attr->ints : &none;
}

const float *canon_floats(struct graph *graph, const char *name, unsigned int *ret_n)
{
	static const float none;
	const Onnx__AttributeProto *attr = find_attr(graph, name);

	*ret_n = 0;
	if (!attr || !has_type(graph, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS,
			       attr->n_floats > 0, "a list of numbers"))
		return NULL;
	if (attr->n_floats > UINT16_MAX) {
		graph_refuse(graph, "attribute \"%s\" has %zu elements", name, attr->n_floats);
		return NULL;
	}
	*ret_n = (unsigned int)attr->n_floats;
	return attr->floats ? attr->floats : &none;
}

const char *canon_string(struct graph *graph, const char *name, const char *fallback)
{
	const Onnx__AttributeProto *attr = find_attr(graph, name);
	char *text;

	if (!attr || !has_type(graph, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING,
			       attr->has_s, "a string"))
		return fallback;
	if (attr->s.len > 256) {
		graph_refuse(graph, "attribute \"%s\" has %zu bytes", name, attr->s.len);
		return fallback;
	}
	text = graph_zero(graph, attr->s.len + 1, 1);
	if (!text)
		return fallback;
	if (attr->s.len > 0)
		memcpy(text, attr->s.data, attr->s.len);
	return text;
}

/* One of @t and @sparse is there, where the file is right. */
static const struct constant *read_tensor(struct graph *graph, const Onnx__AttributeProto *attr,
					  const Onnx__TensorProto *t,
					  const Onnx__SparseTensorProto *sparse)
{
	struct external *external = &graph->model->external;
	struct rbk_error error;
	struct constant *constant;
	int r;

	if (!t && !sparse) {
		graph_refuse(graph, "attribute \"%s\" has no value", attr->name);
		return NULL;
	}
	constant = graph_zero(graph, 1, sizeof(*constant));
	if (!constant)
		return NULL;
	r = t ? constant_decode(&graph->mem, external, t, "attribute", constant, &error)
	      : sparse_decode(&graph->mem, external, sparse, "attribute", constant, &error);
	if (!r)
		return constant;
	if (r == -ENOMEM || (r == -EFBIG && graph->mem.limited))
		graph->fatal = r;
	graph_refuse(graph, "%s", error.text);
	return NULL;
}

const struct constant *canon_tensor(struct graph *graph, const char *name)
{
	const Onnx__AttributeProto *attr = find_attr(graph, name);

	if (!attr || !has_type(graph, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR,
			       attr->t != NULL, "a tensor"))
		return NULL;
	return read_tensor(graph, attr, attr->t, NULL);
}

const struct constant *canon_sparse_tensor(struct graph *graph, const char *name)
{
	const Onnx__AttributeProto *attr = find_attr(graph, name);

	if (!attr || !has_type(graph, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR,
			       attr->sparse_tensor != NULL, "a sparse tensor"))
		return NULL;
	return read_tensor(graph, attr, NULL, attr->sparse_tensor);
}

/* ---- Axes ---- */

bool canon_axis(struct graph *graph, int64_t axis, unsigned int rank, unsigned int *ret)
{
	if (axis < -(int64_t)rank || axis >= (int64_t)rank) {
		graph_refuse(graph, "axis %lld is not one of %u dimensions", (long long)axis, rank);
		return false;
	}
	*ret = (unsigned int)(axis < 0 ? axis + rank : axis);
	return true;
}

bool canon_axes(struct graph *graph, const int64_t *axes, unsigned int n, unsigned int rank,
		unsigned int *ret)
{
	uint32_t seen = 0;
	unsigned int axis, n_ret = 0;

	for (unsigned int i = 0; i < n; i++) {
		if (!canon_axis(graph, axes[i], rank, &axis))
			return false;
		if (seen >> axis & 1) {
			graph_refuse(graph, "axis %u comes twice", axis);
			return false;
		}
		seen |= 1u << axis;
	}
	for (axis = 0; axis < rank; axis++)
		if (seen >> axis & 1)
			ret[n_ret++] = axis;
	return true;
}

/* ---- Known elements ---- */

bool canon_known(struct graph *graph, struct tensor *tensor, const char *what)
{
	if (!tensor) {
		graph_refuse(graph, "its %s is missing", what);
		return false;
	}
	if (tensor->constant)
		return true;
	graph_need(graph, tensor);
	if (tensor->input != UINT32_MAX)
		graph_refuse(graph, "the value of input \"%s\" (%s) must be known to make a plan",
			     tensor->name, what);
	else
		graph_refuse(graph, "its %s, \"%s\", must be known to make a plan, but is computed",
			     what, tensor->name);
	return false;
}

const int64_t *canon_known_sizes(struct graph *graph, struct tensor *tensor, const char *what,
				 unsigned int *ret_n, const int64_t **ret_rows)
{
	const struct constant *constant;
	int64_t *values;

	if (!canon_known(graph, tensor, what))
		return NULL;
	constant = tensor->constant;
	if ((constant->dtype != RBK_ONNX_I64 && constant->dtype != RBK_ONNX_I32) ||
	    constant->rank > 1 || constant->n_elems > UINT16_MAX) {
		graph_refuse(graph, "its %s is not a list of integers", what);
		return NULL;
	}
	*ret_n = (unsigned int)constant->n_elems;
	*ret_rows = constant->rows;
	if (constant->dtype == RBK_ONNX_I64)
		return constant->data;
	values = graph_take(graph, constant->n_elems * sizeof(*values));
	for (uint64_t i = 0; values && i < constant->n_elems; i++)
		values[i] = ((const int32_t *)constant->data)[i];
	return values;
}

const int64_t *canon_known_ints(struct graph *graph, struct tensor *tensor, const char *what,
				unsigned int *ret_n)
{
	const int64_t *values, *rows = NULL;

	values = canon_known_sizes(graph, tensor, what, ret_n, &rows);
	if (values && rows) {
		graph_refuse(graph, "its %s depends on the count", what);
		return NULL;
	}
	return values;
}

bool canon_known_number(struct graph *graph, struct tensor *tensor, const char *what, double *ret)
{
	if (!canon_known(graph, tensor, what))
		return false;
	if (tensor->constant->n_elems != 1 || tensor->constant->rows ||
	    onnx_dtype_size(tensor->constant->dtype) == 0) {
		graph_refuse(graph, "its %s is not one number", what);
		return false;
	}
	*ret = eval_load(tensor->constant->dtype, tensor->constant->data, 0);
	return true;
}

bool canon_known_whole(struct graph *graph, struct tensor *tensor, const char *what, int64_t *ret)
{
	const struct constant *constant;
	double number;

	if (!canon_known_number(graph, tensor, what, &number))
		return false;
	constant = tensor->constant;
	if (eval_is_int(constant->dtype)) {
		*ret = eval_load_int(constant->dtype, constant->data, 0);
		return true;
	}
	if (!(fabs(number) < 0x1p63) || number != trunc(number)) {
		graph_refuse(graph, "its %s is %g, expected a whole number", what, number);
		return false;
	}
	*ret = (int64_t)number;
	return true;
}

bool canon_attr_or_input(struct graph *graph, const char *name, unsigned int i, const int64_t **ret,
			 unsigned int *ret_n)
{
	struct tensor *tensor = canon_in(graph, i);
	bool was_refused = graph->is_refused;

	*ret = NULL;
	*ret_n = 0;
	if (tensor) {
		*ret = canon_known_ints(graph, tensor, name, ret_n);
		return *ret != NULL;
	}
	graph->is_refused = false;
	*ret = canon_ints(graph, name, ret_n);
	if (graph->is_refused)
		return false;
	graph->is_refused = was_refused;
	return true;
}

/* ---- Emitting ---- */

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
	/* The rule may read a 0 as another number. */
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

struct tensor *canon_cast(struct graph *graph, struct tensor *a, uint32_t dtype)
{
	struct attr attr = ATTR_INT("to", dtype);

	if (a->known && a->dtype == dtype)
		return canon_nothing(graph, a);
	if (a->known && a->dtype == RBK_ONNX_BF16 && dtype == RBK_ONNX_F32)
		return bfloat_widen(graph, a);
	return graph_emit_1(graph, "Cast", &a, 1, &attr, 1);
}
