/* SPDX-License-Identifier: MIT */
/*
 * Attributes of a node
 *
 * Every attribute that is read is marked. An attribute that is unmarked after its rule has run is
 * unknown, which is a refusal. No attribute is therefore silently ignored.
 */
#include <errno.h>
#include <stdlib.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/eval.h"

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
 * Check an attribute's type. Old files have no types: the type is then that of the value present.
 * Callers still check the value, because a type is only a claim.
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
		graph_refuse(graph, "attribute \"%s\" has too many elements: %zu", name,
			     attr->n_ints);
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
		graph_refuse(graph, "attribute \"%s\" has too many elements: %zu", name,
			     attr->n_floats);
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
		graph_refuse(graph, "attribute \"%s\" has too many bytes: %zu", name, attr->s.len);
		return fallback;
	}
	text = graph_zero(graph, attr->s.len + 1, 1);
	if (!text)
		return fallback;
	if (attr->s.len > 0)
		memcpy(text, attr->s.data, attr->s.len);
	return text;
}

/* Decode the tensor: a valid file has one of @t and @sparse. */
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
