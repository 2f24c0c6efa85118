/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: element-wise operators
 *
 * Operators of several inputs broadcast as numpy does: shapes are aligned at their last dimension
 * and a dimension of 1 repeats. The task's count never equals a fixed dimension; it only broadcasts
 * with 1. PRelu's slope broadcasts to its input, never the reverse.
 *
 * The rows listed in op-elementwise.h are built here from these rules. Parameters are converted to
 * the form that kernels and shaders take: see union op_params.
 */
#include <math.h>
#include <string.h>

#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

/* Work per element, in flops: a few instructions; a polynomial or two; more. */
enum { LIGHT = 1, HEAVY = 16, VERY_HEAVY = 64 };

#define SIGNED_INTEGERS (OP_INDICES | OP_TYPE(RBK_DTYPE_I8))
#define INTEGERS        (OP_INDICES | OP_BYTES)

static int unary_infer(struct op_call *call)
{
	call->out_shape[0] = call->in[0]->shape;
	return 0;
}

static int binary_infer(struct op_call *call)
{
	return op_call_broadcast(call, 0, &call->out_shape[0]);
}

/* Factors over float32. Functions of float64 are libm's, which computes one element at a time. */
enum { FLOAT64 = 2, FLOAT64_FUNCTION = 16 };

static uint64_t flops_of(const struct op *op)
{
	switch (op->kind) {
	case OP_POW:
	case OP_TAN:
	case OP_MOD:
		return VERY_HEAVY;
	default:
		return op->family == OP_FAMILY_ACTIVATION ? HEAVY : LIGHT;
	}
}

static void elementwise_cost(const struct op_call *call, struct cost *ret)
{
	const uint64_t flops = flops_of(call->op);
	const bool is_double = call->in[call->n_in - 1]->dtype == RBK_DTYPE_F64;

	cost_elems(ret, &call->out_shape[0],
		   flops * (!is_double      ? 1
			    : flops > LIGHT ? FLOAT64_FUNCTION
					    : FLOAT64));
	cost_tensors(call, ret);
}

/* ---- Rules of operators with parameters ---- */

/* Read the first attributes, which are floats, at most two. */
static int floats_infer(struct op_call *call)
{
	const struct op_attr *attrs = call->op->attrs;
	float values[2] = {0};

	for (unsigned int i = 0; i < 2 && attrs[i].name; i++) {
		const int r = op_call_float(call, attrs[i].name, attrs[i].otherwise, &values[i]);

		if (r)
			return r;
	}
	for (unsigned int i = 0; i < 2; i++) {
		if (call->in[0]->dtype == RBK_DTYPE_F64)
			call->params.elementwise.d[i] = (double)values[i];
		else
			call->params.elementwise.f[i] = values[i];
	}
	return unary_infer(call);
}

/* Round a floating limit to the integers that satisfy it. */
static int64_t clip_limit(float limit, bool is_upper)
{
	int64_t whole;

	if (isnan(limit))
		return is_upper ? INT64_MAX : INT64_MIN;
	if (limit >= 0x1p63f)
		return INT64_MAX;
	if (limit < -0x1p63f)
		return INT64_MIN;
	whole = (int64_t)limit;
	if (is_upper)
		return (float)whole > limit ? whole - 1 : whole;
	return (float)whole < limit ? whole + 1 : whole;
}

static int clip_infer(struct op_call *call)
{
	const uint8_t dtype = call->in[0]->dtype;
	const unsigned int bits = 8 * (unsigned int)dtype_bytes(dtype);
	const int64_t most = dtype == RBK_DTYPE_U8 ? 255 : (int64_t)(UINT64_MAX >> (65 - bits));
	const int64_t least = dtype == RBK_DTYPE_U8 ? 0 : -most - 1;
	static const char *const names[] = {"int_min", "int_max"};
	int64_t *limits = call->params.elementwise.i;
	float floats[2];
	int r;

	r = floats_infer(call);
	if (r || (OP_ALL_FLOATS & OP_TYPE(dtype)))
		return r;
	memcpy(floats, call->params.elementwise.f, sizeof(floats));
	for (unsigned int i = 0; i < 2; i++) {
		r = op_call_int(call, names[i], INT64_MIN, INT64_MAX, clip_limit(floats[i], i > 0),
				&limits[i]);
		if (r)
			return r;
		/* Clamp limits to the type's range, so that none wraps around. */
		limits[i] = limits[i] < least ? least : limits[i] > most ? most : limits[i];
	}
	return 0;
}

static int gelu_infer(struct op_call *call)
{
	static const char *const forms[] = {"none", "tanh", NULL};
	unsigned int form = 0;
	int r;

	r = op_call_choice(call, "approximate", forms, &form);
	if (r)
		return r;
	call->params.elementwise.form = (uint8_t)form;
	return unary_infer(call);
}

static int is_inf_infer(struct op_call *call)
{
	bool negative = true, positive = true;
	int r;

	r = op_call_bool(call, "detect_negative", true, &negative);
	if (!r)
		r = op_call_bool(call, "detect_positive", true, &positive);
	if (r)
		return r;
	call->params.elementwise.i[0] = (negative ? 1 : 0) | (positive ? 2 : 0);
	return unary_infer(call);
}

static int cast_infer(struct op_call *call)
{
	int64_t to = 0;
	int r;

	r = op_call_int(call, "to", 0, 31, 0, &to);
	if (r)
		return r;
	if (!(OP_ANY_TYPE & OP_TYPE(to)))
		return op_call_refuse(call,
				      "attribute \"to\" is %d, expected an element type that "
				      "tensors can have",
				      (int)to);
	call->out_dtype[0] = (uint8_t)to;
	return unary_infer(call);
}

static int mod_infer(struct op_call *call)
{
	bool c = false;
	int r;

	r = op_call_bool(call, "fmod", false, &c);
	if (r)
		return r;
	if (!c && (OP_ALL_FLOATS & OP_TYPE(call->in[0]->dtype)))
		return op_call_refuse(call, "\"fmod\" is 0, expected 1 for %s",
				      dtype_name(call->in[0]->dtype));
	call->params.elementwise.form = c;
	return binary_infer(call);
}

static int bit_shift_infer(struct op_call *call)
{
	static const char *const directions[] = {"LEFT", "RIGHT", NULL};
	unsigned int direction = 0;
	int r;

	r = op_call_choice(call, "direction", directions, &direction);
	if (r)
		return r;
	call->params.elementwise.form = (uint8_t)direction;
	return binary_infer(call);
}

static int prelu_infer(struct op_call *call)
{
	struct shape *out = &call->out_shape[0];
	int r;

	r = binary_infer(call);
	if (r)
		return r;
	if (!shape_equal(out, &call->in[0]->shape))
		return op_call_refuse(call,
				      "the slope \"%s\" is %s, expected one that repeats to %s",
				      call->in[1]->name, SHAPE_TEXT(&call->in[1]->shape),
				      SHAPE_TEXT(&call->in[0]->shape));
	return 0;
}

/* Broadcast the condition's shape with the broadcast shape of the other two inputs. */
static int where_infer(struct op_call *call)
{
	const struct op_tensor *in[3] = {call->in[0], call->in[1], call->in[2]};
	struct op_tensor both = {.name = in[1]->name};
	int r;

	call->in[0] = in[1];
	call->in[1] = in[2];
	r = op_call_broadcast(call, 0, &both.shape);
	if (!r) {
		call->in[0] = in[0];
		call->in[1] = &both;
		r = op_call_broadcast(call, 0, &call->out_shape[0]);
	}
	call->in[0] = in[0];
	call->in[1] = in[1];
	return r;
}

/* ---- Rows ---- */

#define FLOAT(attribute, value)                                 \
	{                                                       \
		attribute, RBK_ATTR_FLOAT, .otherwise = (value) \
	}

static const struct op_attr gelu_attrs[] = {{"approximate", RBK_ATTR_STRING}, {0}};
static const struct op_attr clip_attrs[] = {FLOAT("min", -INFINITY),
					    FLOAT("max", INFINITY),
					    {"int_min", RBK_ATTR_INT},
					    {"int_max", RBK_ATTR_INT},
					    {0}};
static const struct op_attr is_inf_attrs[] = {
	{"detect_negative", RBK_ATTR_INT}, {"detect_positive", RBK_ATTR_INT}, {0}};
static const struct op_attr cast_attrs[] = {{"to", RBK_ATTR_INT, .required = true}, {0}};
static const struct op_attr mod_attrs[] = {{"fmod", RBK_ATTR_INT}, {0}};
static const struct op_attr bit_shift_attrs[] = {{"direction", RBK_ATTR_STRING, .required = true},
						 {0}};

#define SPEED_ELEMENTWISE .family = OP_FAMILY_ELEMENTWISE
#define SPEED_ACTIVATION  .family = OP_FAMILY_ACTIVATION
/* Operators that can be fused. */
#define SPEED_FUSED_ELEMENTWISE SPEED_ELEMENTWISE, .is_activation = true
#define SPEED_FUSED_ACTIVATION  SPEED_ACTIVATION, .is_activation = true

/* Members of a row, the classes last. */
#define ROW(since, speed, ins, outs, attr_table, rule, ...)                    \
	.opset = since, SPEED_##speed, .in_classes = ins, .out_classes = outs, \
	.attrs = attr_table, .infer = rule, .classes = {__VA_ARGS__}

/* clang-format off */
#define T(types)                {'T', types, types}
/* GPUs lack the function for float64. */
#define T_FLOAT64_ON_CPU(types) {'T', types, (types) & ~OP_FLOAT64}
#define BOOLS                   {'B', OP_BOOL, OP_BOOL}
#define ANY                     T(OP_ANY_TYPE)
#define ANY_TO                  {'U', OP_ANY_TYPE, OP_ANY_TYPE}
/* clang-format on */

#define UNARY_WITH(since, speed, types, attrs, rule) \
	ROW(since, speed, "T", "T", attrs, rule, T(types))
#define UNARY(since, speed, types) UNARY_WITH(since, speed, types, op_no_attrs, unary_infer)
#define FLOATS_WITH(since, speed, ...)                                                        \
	UNARY_WITH(since, speed, OP_ALL_FLOATS, ((const struct op_attr[]){__VA_ARGS__, {0}}), \
		   floats_infer)
#define ANGLE(since) \
	ROW(since, ACTIVATION, "T", "T", op_no_attrs, unary_infer, T_FLOAT64_ON_CPU(OP_ALL_FLOATS))
#define BINARY_WITH(since, types, attrs, rule) \
	ROW(since, ELEMENTWISE, "T", "T", attrs, rule, T(types))
#define BINARY_FLOAT64_ON_CPU(since, types) \
	ROW(since, ELEMENTWISE, "T", "T", op_no_attrs, binary_infer, T_FLOAT64_ON_CPU(types))
#define BINARY(since, types) BINARY_WITH(since, types, op_no_attrs, binary_infer)
#define COMPARISON(since, types) \
	ROW(since, ELEMENTWISE, "T", "B", op_no_attrs, binary_infer, T(types), BOOLS)
#define PREDICATE(since, attrs, rule) \
	ROW(since, ELEMENTWISE, "T", "B", attrs, rule, T(OP_ALL_FLOATS), BOOLS)

#define OP(KIND, row, onnx, n, first, ...) \
	op_##row = {                       \
		.kind = OP_##KIND,         \
		.name = onnx,              \
		.min_in = n,               \
		.max_in = n,               \
		.min_out = 1,              \
		.max_out = 1,              \
		.in_place = true,          \
		.data_independent = true,  \
		.splits_rows = true,       \
		.cost = elementwise_cost,  \
		__VA_ARGS__,               \
	}
const struct op OP_ELEMENTWISE(OP);
