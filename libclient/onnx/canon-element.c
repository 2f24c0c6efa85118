/* SPDX-License-Identifier: MIT */
/*
 * Rules: unchanged operators, elementwise operators, and constants
 *
 * Later opsets of most operators only added types and defaults. Their nodes become steps unchanged,
 * and the catalogue checks attributes and inputs.
 */
#include <stdio.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/eval.h"

/* Return true if the attribute has no effect in any operator, at this value. */
static bool is_without_effect(const Onnx__AttributeProto *attr)
{
	/* Sums have float32 accumulators whatever the inputs are. */
	if (!strcmp(attr->name, "stash_type"))
		return attr->i == RBK_ONNX_F32;
	/* These concern 8-bit float types, which plans do not have. */
	return !strcmp(attr->name, "saturate") || !strcmp(attr->name, "round_mode");
}

/*
 * Return the attribute's type. Old files have no types: the type is then that of the value present.
 */
static int attr_type(const Onnx__AttributeProto *proto)
{
	if (proto->has_type)
		return (int)proto->type;
	if (proto->has_i)
		return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
	if (proto->has_f)
		return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
	if (proto->has_s)
		return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
	if (proto->n_ints > 0)
		return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
	return proto->n_floats > 0 ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS
				   : ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED;
}

static bool same_attr(struct graph *graph, const Onnx__AttributeProto *proto, struct attr *ret)
{
	const char *name = proto->name;

	ret->name = name;
	switch (attr_type(proto)) {
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
		*ret = ATTR_INT(name, canon_int(graph, name, 0));
		return true;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
		*ret = ATTR_FLOAT(name, canon_float(graph, name, 0));
		return true;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
		ret->type = RBK_ATTR_INTS;
		ret->ints = canon_ints(graph, name, &ret->n);
		return true;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
		ret->type = RBK_ATTR_FLOATS;
		ret->floats = canon_floats(graph, name, &ret->n);
		return true;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
		*ret = ATTR_STRING(name, canon_string(graph, name, ""));
		return true;
	default:
		return false;
	}
}

void canon_same_without(struct graph *graph, const char *op, uint32_t absent)
{
	const struct model_node *node = graph->node;
	const Onnx__NodeProto *proto = node->proto;
	struct tensor *in[OP_MAX_INPUTS], *out[OP_MAX_OUTPUTS];
	const struct op *row = op_by_name(op);
	struct attr attrs[STEP_MAX_ATTRS];
	unsigned int n_attrs = 0, n_in = node->n_in, n_out = node->n_out;

	while (n_in > 0 && (node->in[n_in - 1] == ONNX_ABSENT ||
			    (n_in <= OP_MAX_INPUTS && absent >> (n_in - 1) & 1)))
		n_in--;
	while (n_out > 0 && !canon_wants(graph, n_out - 1))
		n_out--;
	/* Keep the required outputs even if none is read. */
	if (n_out < (row ? row->min_out : 1u))
		n_out = row ? row->min_out : 1;
	if (n_in > OP_MAX_INPUTS || n_out > OP_MAX_OUTPUTS) {
		graph_refuse(graph, "it has more inputs or outputs than any operator");
		return;
	}
	for (size_t i = 0; i < proto->n_attribute; i++) {
		if (is_without_effect(proto->attribute[i])) {
			canon_ignore(graph, proto->attribute[i]->name);
			continue;
		}
		if (n_attrs == STEP_MAX_ATTRS ||
		    strlen(proto->attribute[i]->name) >= RBK_NAME_BYTES ||
		    !same_attr(graph, proto->attribute[i], &attrs[n_attrs++])) {
			graph_refuse(graph, "attribute \"%s\" is not known",
				     proto->attribute[i]->name);
			return;
		}
	}
	for (unsigned int i = 0; i < n_in; i++)
		in[i] = absent >> i & 1 ? NULL : canon_in(graph, i);
	if (graph->is_refused)
		return;
	graph_emit(graph, op, in, n_in, out, n_out, attrs, n_attrs);
	for (unsigned int i = 0; i < n_out; i++)
		canon_out(graph, i, out[i]);
}

void canon_same(struct graph *graph)
{
	canon_same_without(graph, graph->node->proto->op_type, 0);
}

/* Omit past keys and values that have no elements. */
void canon_attention(struct graph *graph)
{
	struct tensor *keys = canon_in(graph, 4), *values = canon_in(graph, 5);
	const uint32_t past = 1u << 4 | 1u << 5;
	const bool is_new = keys && values && keys->shape.rank == 4 && values->shape.rank == 4 &&
			    keys->shape.dims[2] == 0 && values->shape.dims[2] == 0;

	canon_same_without(graph, "Attention", is_new ? past : 0);
}

void canon_identity(struct graph *graph)
{
	canon_out(graph, 0, canon_nothing(graph, canon_in(graph, 0)));
}

/* Return the mask that keeps all elements. */
static struct tensor *full_mask(struct graph *graph, const struct tensor *x)
{
	struct constant *mask = graph_zero(graph, 1, sizeof(*mask));
	void *data;

	if (x->shape.dynamic) {
		graph_refuse(graph,
			     "its mask would have as many elements as there are rows, which plans "
			     "do not support");
		return NULL;
	}
	if (!mask)
		return NULL;
	*mask = (struct constant){.dtype = RBK_ONNX_BOOL, .rank = x->shape.rank};
	for (unsigned int i = 0; i < x->shape.rank; i++)
		mask->dims[i] = x->shape.dims[i];
	if (!constant_measure(mask) || mask->n_elems > graph->n_evaluable) {
		graph_refuse(graph, "its mask would be too large a constant");
		return NULL;
	}
	graph->n_evaluable -= mask->n_elems;
	data = graph_take(graph, mask->n_bytes);
	if (!data)
		return NULL;
	memset(data, 1, mask->n_bytes);
	mask->data = data;
	return graph_constant(graph, mask);
}

/* Dropout has no effect outside of training, and with a ratio of 0. */
void canon_dropout(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0), *ratio = canon_in(graph, 1);
	struct tensor *mode = canon_in(graph, 2);
	double value = 0, dropped = 0.5;

	canon_ignore(graph, "ratio");
	canon_ignore(graph, "seed");
	canon_ignore(graph, "is_test");
	if (mode && !canon_known_number(graph, mode, "training_mode", &value))
		return;
	if (value != 0 && ratio && !canon_known_number(graph, ratio, "ratio", &dropped))
		return;
	if (value != 0 && dropped != 0) {
		graph_refuse(graph, "it is in training mode, and drops elements at random");
		return;
	}
	if (canon_wants(graph, 1)) {
		struct tensor *mask = full_mask(graph, x);

		/* Before opset 10 the mask had the input's type. */
		if (mask && graph->node->opset < 10)
			mask = canon_cast(graph, mask, x->dtype);
		canon_out(graph, 1, mask);
	}
	canon_out(graph, 0, canon_nothing(graph, x));
}

/*
 * Return the second operand. In opset 6, with broadcast, its dimensions are those of A from axis
 * on. Return: NULL after a refusal.
 */
static struct tensor *second_operand(struct graph *graph)
{
	struct tensor *a = canon_in(graph, 0), *b = canon_in(graph, 1);
	struct shape shape;
	unsigned int axis;

	if (graph->node->opset < 7) {
		int64_t first = canon_int(graph, "axis", (int64_t)a->shape.rank - b->shape.rank);
		bool broadcasts = canon_int(graph, "broadcast", 0) != 0;

		if (first < 0)
			first += a->shape.rank;
		if (b->shape.rank > a->shape.rank || first < 0 ||
		    first + b->shape.rank > a->shape.rank ||
		    (!broadcasts && !shape_equal(&a->shape, &b->shape))) {
			graph_refuse(graph, "its inputs %s and %s do not fit together",
				     SHAPE_TEXT(&a->shape), SHAPE_TEXT(&b->shape));
			return NULL;
		}
		axis = (unsigned int)first;
		shape = b->shape;
		while (axis + shape.rank < a->shape.rank)
			shape.dims[shape.rank++] = 1;
		b = canon_reshape(graph, b, &shape);
	}
	return b;
}

void canon_legacy_binary(struct graph *graph)
{
	struct tensor *a = canon_in(graph, 0), *b = second_operand(graph);

	if (b)
		canon_out(graph, 0, canon_binary(graph, graph->node->proto->op_type, a, b));
}

/*
 * Return the type in which to compute a power whose base and exponent differ in type. It represents
 * every exponent. For integers it is the wider type: truncated to the base's type, the power is the
 * same.
 */
static uint32_t power_type(uint32_t base, uint32_t exponent)
{
	const uint32_t both = OP_TYPE(base) | OP_TYPE(exponent);

	if (OP_FLOAT64 & both)
		return RBK_ONNX_F64;
	if (OP_FLOATS & both)
		return RBK_ONNX_F32;
	return base == RBK_ONNX_I64 || exponent == RBK_ONNX_I64 ? RBK_ONNX_I64 : RBK_ONNX_I32;
}

/* Return true if @tensor is a constant of one element, @value. */
static bool is_number(const struct tensor *tensor, double value)
{
	const struct constant *constant = tensor->constant;

	return constant && constant->n_elems == 1 && !constant->rows &&
	       eval_load(constant->dtype, constant->data, 0) == value;
}

/* Pow: the result has the base's type. */
void canon_pow(struct graph *graph)
{
	struct tensor *a = canon_in(graph, 0), *b = second_operand(graph);
	uint32_t dtype;

	if (!b)
		return;
	/* The square is the same number, and every device has Mul of float64. */
	if (a->known && a->dtype == RBK_ONNX_F64 && is_number(b, 2) &&
	    b->shape.rank <= a->shape.rank) {
		canon_out(graph, 0, canon_binary(graph, "Mul", a, a));
		return;
	}
	if (a->dtype == b->dtype || !b->known) {
		canon_out(graph, 0, canon_binary(graph, "Pow", a, b));
		return;
	}
	if (!((OP_ALL_FLOATS | OP_INDICES) & OP_TYPE(a->dtype)) ||
	    !(OP_ALL_NUMBERS & OP_TYPE(b->dtype))) {
		graph_refuse(graph, "its inputs cannot have the types %s and %s together",
			     rbk_onnx_dtype_name(a->dtype), rbk_onnx_dtype_name(b->dtype));
		return;
	}
	dtype = power_type(a->dtype, b->dtype);
	a = canon_binary(graph, "Pow", canon_cast(graph, a, dtype), canon_cast(graph, b, dtype));
	canon_out(graph, 0, canon_cast(graph, a, canon_in(graph, 0)->dtype));
}

/* PRelu: in opset 6 a list of slopes has one per channel, whatever dimensions follow. */
void canon_prelu(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0), *slope = canon_in(graph, 1);
	struct shape shape = slope->shape;

	if (graph->node->opset < 7 && shape.rank == 1 && shape.dims[0] != 1)
		while (shape.rank + 1 < x->shape.rank)
			shape.dims[shape.rank++] = 1;
	canon_out(graph, 0, canon_binary(graph, "PRelu", x, canon_reshape(graph, slope, &shape)));
}

void canon_variadic(struct graph *graph)
{
	const char *name = graph->node->proto->op_type;
	bool is_mean = !strcmp(name, "Mean");
	const char *op = is_mean || !strcmp(name, "Sum") ? "Add" : name;
	struct tensor *sum = NULL;
	unsigned int n = 0;

	for (uint32_t i = 0; i < graph->node->n_in && !graph->fatal; i++) {
		struct tensor *in = canon_in(graph, i);

		if (!in)
			continue;
		sum = sum ? canon_binary(graph, op, sum, in) : in;
		n++;
	}
	if (is_mean && n > 1)
		sum = canon_binary(graph, "Div", sum, graph_scalar(graph, sum->dtype, n));
	canon_out(graph, 0, sum);
}

/*
 * Clip: bounds that are unknown, or that a float attribute cannot represent, become Max and Min, by
 * which ONNX defines Clip.
 */
void canon_clip(struct graph *graph)
{
	static const char *const names[] = {"min", "max"}, *const ops[] = {"Max", "Min"};
	static const char *const int_names[] = {"int_min", "int_max"};
	struct tensor *x = canon_in(graph, 0), *bounds[2] = {NULL, NULL};
	struct attr attrs[2];
	unsigned int n_attrs = 0;
	double value;

	for (unsigned int i = 0; i < 2; i++) {
		bounds[i] = canon_in(graph, i + 1);
		if (graph->node->opset < 11 && canon_has_attr(graph, names[i])) {
			attrs[n_attrs++] = ATTR_FLOAT(names[i], canon_float(graph, names[i], 0));
		} else if (bounds[i] && bounds[i]->dtype != x->dtype) {
			graph_refuse(graph, "its %s is %s, but its input is %s", names[i],
				     rbk_onnx_dtype_name(bounds[i]->dtype),
				     rbk_onnx_dtype_name(x->dtype));
			return;
		} else if (bounds[i] && bounds[i]->constant) {
			if (!canon_known_number(graph, bounds[i], names[i], &value))
				return;
			/*
			 * Not every float64 fits into the attribute; integers have their own
			 * attributes.
			 */
			if (x->dtype == RBK_ONNX_F64 && value != (double)(float)value)
				continue;
			if (OP_ALL_FLOATS & OP_TYPE(x->dtype))
				attrs[n_attrs++] = ATTR_FLOAT(names[i], (float)value);
			else
				attrs[n_attrs++] = ATTR_INT(
					int_names[i],
					eval_load_int(x->dtype, bounds[i]->constant->data, 0));
			bounds[i] = NULL;
		}
	}
	/* In this order: if min exceeds max, every element becomes max. */
	if (bounds[0])
		x = canon_binary(graph, ops[0], x, bounds[0]);
	if (n_attrs > 0)
		x = canon_unary(graph, "Clip", x, attrs, n_attrs);
	if (bounds[1])
		x = canon_binary(graph, ops[1], x, bounds[1]);
	canon_out(graph, 0, x);
}

/* Shrink: bytes are computed in float32. */
void canon_shrink(struct graph *graph)
{
	const struct attr attrs[] = {ATTR_FLOAT("lambd", canon_float(graph, "lambd", 0.5f)),
				     ATTR_FLOAT("bias", canon_float(graph, "bias", 0))};
	struct tensor *x = canon_in(graph, 0), *y;

	if (!((OP_ALL_FLOATS | OP_BYTES) & OP_TYPE(x->dtype))) {
		graph_refuse(graph,
			     "its input is %s, expected float32, float16, float64, int8 or uint8",
			     rbk_onnx_dtype_name(x->dtype));
		return;
	}
	y = canon_cast(graph, x, OP_BYTES & OP_TYPE(x->dtype) ? RBK_ONNX_F32 : x->dtype);
	y = canon_unary(graph, "Shrink", y, attrs, ARRAY_SIZE(attrs));
	canon_out(graph, 0, canon_cast(graph, y, x->dtype));
}

void canon_cast_node(struct graph *graph)
{
	int64_t to;

	canon_ignore(graph, "saturate");
	canon_ignore(graph, "round_mode");
	to = canon_int(graph, "to", 0);
	if (to < 0 || to > INT32_MAX) {
		graph_refuse(graph,
			     "attribute \"to\" has the value %lld, which is not an element type",
			     (long long)to);
		return;
	}
	canon_out(graph, 0, canon_cast(graph, canon_in(graph, 0), (uint32_t)to));
}

void canon_cast_like(struct graph *graph)
{
	canon_ignore(graph, "saturate");
	canon_ignore(graph, "round_mode");
	canon_out(graph, 0, canon_cast(graph, canon_in(graph, 0), canon_in(graph, 1)->dtype));
}

/* ---- Constants ---- */

void canon_constant(struct graph *graph)
{
	const struct constant *constant = canon_tensor(graph, "value");
	struct tensor *tensor = NULL;
	unsigned int n;

	if (!constant)
		constant = canon_sparse_tensor(graph, "sparse_value");
	if (constant) {
		tensor = graph_constant(graph, constant);
	} else if (canon_has_attr(graph, "value_float")) {
		tensor = graph_scalar(graph, RBK_ONNX_F32, canon_float(graph, "value_float", 0));
	} else if (canon_has_attr(graph, "value_int")) {
		const int64_t value = canon_int(graph, "value_int", 0);
		struct shape scalar = {0};

		tensor = canon_reshape(graph, graph_ints(graph, &value, 1), &scalar);
	} else if (canon_has_attr(graph, "value_ints")) {
		const int64_t *values = canon_ints(graph, "value_ints", &n);

		tensor = values ? graph_ints(graph, values, n) : NULL;
	} else if (canon_has_attr(graph, "value_floats")) {
		const float *values = canon_floats(graph, "value_floats", &n);
		struct constant *list = graph_zero(graph, 1, sizeof(*list));

		if (!values || !list)
			return;
		*list = (struct constant){
			.dtype = RBK_ONNX_F32, .rank = 1, .dims = {n}, .data = values};
		constant_measure(list);
		tensor = graph_constant(graph, list);
	}
	if (!tensor && !graph->is_refused)
		graph_refuse(graph, "its value is not a tensor of numbers");
	canon_out(graph, 0, tensor);
}

void canon_constant_of_shape(struct graph *graph)
{
	struct constant zero = {
		.dtype = RBK_ONNX_F32, .n_elems = 1, .n_bytes = 4, .data = &(float){0}};
	const struct constant *value = canon_tensor(graph, "value");
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));
	const int64_t *dims;
	unsigned int n, size;
	uint8_t *data;

	dims = canon_known_ints(graph, canon_in(graph, 0), "shape", &n);
	if (!value)
		value = &zero;
	size = onnx_dtype_size(value->dtype);
	if (!dims || !constant || graph->is_refused)
		return;
	if (value->n_elems != 1 || size == 0 || n > RBK_MAX_RANK) {
		graph_refuse(graph, "its value is not one element, or its shape has %u dimensions",
			     n);
		return;
	}
	constant->dtype = value->dtype;
	constant->rank = n;
	for (unsigned int i = 0; i < n; i++) {
		if (dims[i] < 0) {
			graph_refuse(graph, "dimension %u would be %lld", i, (long long)dims[i]);
			return;
		}
		constant->dims[i] = dims[i];
	}
	if (!constant_measure(constant) || constant->n_elems > graph->n_evaluable) {
		graph_refuse(graph, "it would make too large a constant");
		return;
	}
	graph->n_evaluable -= constant->n_elems;
	data = graph_take(graph, constant->n_bytes);
	for (uint64_t i = 0; data && i < constant->n_elems; i++)
		memcpy(data + i * size, value->data, size);
	constant->data = data;
	canon_out(graph, 0, data ? graph_constant(graph, constant) : NULL);
}

/* Return the dimensions [@start, @end) of @shape, including the one that depends on the count. */
static struct tensor *sizes(struct graph *graph, const struct shape *shape, unsigned int start,
			    unsigned int end)
{
	int64_t *data = graph_zero(graph, RBK_MAX_RANK, sizeof(*data));
	int64_t *rows = graph_zero(graph, RBK_MAX_RANK, sizeof(*rows));
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));

	if (!data || !rows || !constant)
		return graph_unknown(graph);
	*constant = (struct constant){
		.dtype = RBK_ONNX_I64, .rank = 1, .dims = {end - start}, .data = data};
	for (unsigned int i = start; i < end; i++) {
		if (i == 0 && shape->dynamic) {
			rows[i - start] = 1;
			constant->rows = rows;
		} else {
			data[i - start] = shape->dims[i];
		}
	}
	constant_measure(constant);
	return graph_constant(graph, constant);
}

void canon_shape(struct graph *graph)
{
	const struct shape *shape = &canon_in(graph, 0)->shape;
	int64_t rank = shape->rank, start = canon_int(graph, "start", 0);
	int64_t end = canon_int(graph, "end", rank);

	start = start < 0 ? start + rank : start;
	end = end < 0 ? end + rank : end;
	start = start < 0 ? 0 : start > rank ? rank : start;
	end = end < start ? start : end > rank ? rank : end;
	canon_out(graph, 0, sizes(graph, shape, (unsigned int)start, (unsigned int)end));
}

void canon_size(struct graph *graph)
{
	const struct shape *shape = &canon_in(graph, 0)->shape;
	struct tensor *in = sizes(graph, shape, 0, shape->rank);
	static const int64_t axis;
	const struct attr attrs[] = {ATTR_INTS("axes", &axis, 1), ATTR_INT("keepdims", 0)};

	canon_out(graph, 0, graph_emit_1(graph, "ReduceProd", &in, 1, attrs, 2));
}

/* Return the number of integers of a range with start, limit and nonzero delta. */
static double count_range(const int64_t *range)
{
	const int64_t step = range[2];
	uint64_t distance, width;

	if ((step > 0 && range[1] <= range[0]) || (step < 0 && range[1] >= range[0]))
		return 0;
	/* Differences of 64-bit signed numbers fit into 64 bits without a sign. */
	distance = step > 0 ? (uint64_t)range[1] - (uint64_t)range[0]
			    : (uint64_t)range[0] - (uint64_t)range[1];
	width = step > 0 ? (uint64_t)step : -(uint64_t)step;
	return (double)((distance - 1) / width + 1);
}

void canon_range(struct graph *graph)
{
	static const char *const names[] = {"start", "limit", "delta"};
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));
	const uint32_t dtype = canon_in(graph, 0)->dtype;
	double numbers[3], n;
	const bool is_int = eval_is_int(dtype);
	int64_t whole[3] = {0};
	void *data;

	for (unsigned int i = 0; i < 3; i++) {
		struct tensor *in = canon_in(graph, i);

		if (!canon_known_number(graph, in, names[i], &numbers[i]))
			return;
		if (in->dtype != dtype) {
			graph_refuse(graph, "its %s is %s, but its start is %s", names[i],
				     rbk_onnx_dtype_name(in->dtype), rbk_onnx_dtype_name(dtype));
			return;
		}
		if (is_int)
			whole[i] = eval_load_int(dtype, in->constant->data, 0);
	}
	if (numbers[2] == 0)
		n = NAN;
	else
		n = is_int ? count_range(whole) : ceil((numbers[1] - numbers[0]) / numbers[2]);
	if (!(n <= (double)graph->n_evaluable) || !constant) {
		graph_refuse(graph, "its output would have too many elements: %g", n);
		return;
	}
	*constant = (struct constant){.dtype = dtype, .rank = 1};
	constant->dims[0] = n > 0 ? (int64_t)n : 0;
	constant_measure(constant);
	graph->n_evaluable -= constant->n_elems;
	data = graph_take(graph, constant->n_bytes);
	for (uint64_t i = 0; data && i < constant->n_elems; i++) {
		if (is_int)
			eval_store_int(dtype, data, i,
				       (int64_t)((uint64_t)whole[0] + i * (uint64_t)whole[2]));
		else
			eval_store(dtype, data, i, numbers[0] + (double)i * numbers[2]);
	}
	constant->data = data;
	canon_out(graph, 0, data ? graph_constant(graph, constant) : NULL);
}
