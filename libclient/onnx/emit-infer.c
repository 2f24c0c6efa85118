/* SPDX-License-Identifier: MIT */
/*
 * Types and shapes of a step
 *
 * The catalogue's own shape rule infers them, by the same function with which the broker verifies
 * plans. A graph that compiles here is therefore accepted by the broker. The rule's sentence begins
 * with a title of the node, which is removed, because refusals have their own.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/emit.h"

/* A step's attribute values in the form of plan descriptions: all in one blob. */
struct wire_attrs {
	struct rbk_plan_attr attrs[STEP_MAX_ATTRS];
	uint8_t *blob;
};

static uint64_t attr_bytes(const struct attr *attr)
{
	switch (attr->type) {
	case RBK_ATTR_INT:
	case RBK_ATTR_INTS:
		return (uint64_t)attr->n * sizeof(int64_t);
	case RBK_ATTR_FLOAT:
	case RBK_ATTR_FLOATS:
		return (uint64_t)attr->n * sizeof(float);
	default:
		return attr->n;
	}
}

static const void *attr_data(const struct attr *attr)
{
	switch (attr->type) {
	case RBK_ATTR_INT:
		return &attr->i;
	case RBK_ATTR_FLOAT:
		return &attr->f;
	default:
		return attr->ints;
	}
}

static bool wire_attrs_make(struct graph *graph, const struct step *step, struct wire_attrs *ret)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < step->n_attrs; i++)
		bytes += (attr_bytes(&step->attrs[i]) + 7) / 8 * 8;
	if (bytes > UINT32_MAX) {
		graph_refuse(graph, "its attributes are too large");
		return false;
	}
	ret->blob = graph_zero(graph, bytes, 1);
	if (!ret->blob)
		return false;
	bytes = 0;
	memset(ret->attrs, 0, sizeof(ret->attrs));
	for (unsigned int i = 0; i < step->n_attrs; i++) {
		const struct attr *attr = &step->attrs[i];
		uint64_t n = attr_bytes(attr);

		snprintf(ret->attrs[i].name, sizeof(ret->attrs[i].name), "%s", attr->name);
		ret->attrs[i].type = attr->type;
		ret->attrs[i].n = attr->n;
		ret->attrs[i].blob_offset = (uint32_t)bytes;
		if (n > 0)
			memcpy(ret->blob + bytes, attr_data(attr), n);
		bytes += (n + 7) / 8 * 8;
	}
	return true;
}

/* Return the rule's sentence without its title, "node 0 (MatMul): ". */
static const char *without_title(const char *message, const struct op *row)
{
	char title[64];
	int n = snprintf(title, sizeof(title), "node 0 (%s): ", row->name);

	return strncmp(message, title, (size_t)n) ? message : message + n;
}

/*
 * Return ", bfloat16" if the sentence ends in a list of types with float32: bfloat16 is accepted
 * there, too.
 */
static const char *bfloat_also(const char *message)
{
	const char *list = strstr(message, ", expected one of float32, ");

	return list && !strstr(list, "bfloat16") ? ", bfloat16" : "";
}

/*
 * Return true if the step computes each row of the count from that row alone. This is required of
 * every step if leading dimensions of 1 become the count.
 */
static bool keeps_rows(const struct step *step, const struct op_call *call)
{
	bool reads = false, writes = true;

	for (unsigned int i = 0; i < step->n_in; i++)
		reads |= step->in[i] && step->in[i]->shape.dynamic;
	for (unsigned int i = 0; i < step->n_out; i++)
		writes &= !step->out[i] || call->out_shape[i].dynamic;
	return !reads || (writes && step->row->splits_rows && !call->mixes_rows);
}

/* Largest tensor that brokers accept in a plan; sums of such sizes do not overflow. */
#define TENSOR_MAX_BYTES (1ull << 47)

static bool check_type(struct graph *graph, const struct tensor *in)
{
	if (OP_ANY_TYPE & OP_TYPE(in->dtype))
		return true;
	graph_refuse(graph, "its input \"%s\" is %s, which no device computes with%s", in->name,
		     rbk_onnx_dtype_name(in->dtype),
		     in->dtype == RBK_ONNX_I4 || in->dtype == RBK_ONNX_U4
			     ? ": only DequantizeLinear may read it, as a constant"
			     : "");
	return false;
}

static bool check_size(struct graph *graph, const char *what, uint32_t dtype,
		       const struct shape *shape)
{
	uint64_t bytes = onnx_dtype_size(dtype);

	for (unsigned int i = 0; i < shape->rank; i++) {
		if (shape->dims[i] == 0) {
			graph_refuse(graph, "%s %s has no elements whatever the count is", what,
				     SHAPE_TEXT(shape));
			return false;
		}
		if (__builtin_mul_overflow(bytes, (uint64_t)shape->dims[i], &bytes) ||
		    bytes > TENSOR_MAX_BYTES) {
			graph_refuse(graph, "%s would be %s %s, which is too large for any memory",
				     what, rbk_onnx_dtype_name(dtype), SHAPE_TEXT(shape));
			return false;
		}
	}
	return true;
}

bool emit_infer(struct graph *graph, struct step *step)
{
	struct op_tensor in[OP_MAX_INPUTS], out[OP_MAX_OUTPUTS];
	char message[OP_MESSAGE_BYTES] = "";
	struct op_call call = {
		.op = step->row,
		.node_name = "",
		.n_in = step->n_in,
		.n_out = step->n_out,
		.n_attrs = step->n_attrs,
		.message = message,
	};
	struct wire_attrs attrs;

	if (!wire_attrs_make(graph, step, &attrs))
		return false;
	call.attrs = attrs.attrs;
	call.blob = attrs.blob;
	for (unsigned int i = 0; i < step->n_in; i++) {
		if (!step->in[i])
			continue;
		if (!check_type(graph, step->in[i]) ||
		    !check_size(graph, "its input", step->in[i]->dtype, &step->in[i]->shape))
			return false;
		in[i] = (struct op_tensor){
			.name = step->in[i]->name,
			.dtype = step->in[i]->dtype,
			.shape = step->in[i]->shape,
		};
		call.in[i] = &in[i];
	}
	for (unsigned int i = 0; i < step->n_out; i++) {
		out[i] = (struct op_tensor){.name = ""};
		call.out[i] = step->out[i] ? &out[i] : NULL;
	}
	if (op_call_infer(&call)) {
		graph_refuse(graph, "%s%s", without_title(message, step->row),
			     bfloat_also(message));
		return false;
	}
	step->mixes_rows = !keeps_rows(step, &call);
	if (graph->makes_batch && step->mixes_rows) {
		graph_refuse(graph,
			     "a row of its output depends on more than one row of its input");
		return false;
	}
	for (unsigned int i = 0; i < step->n_out; i++) {
		if (!step->out[i])
			continue;
		if (!check_size(graph, "its output", call.out_dtype[i], &call.out_shape[i]))
			return false;
		step->out[i]->dtype = call.out_dtype[i];
		step->out[i]->shape = call.out_shape[i];
		step->out[i]->known = true;
	}
	return true;
}
