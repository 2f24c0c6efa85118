/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: what works element by element
 *
 * Operators of several inputs broadcast as numpy does: shapes are aligned at their last dimension
 * and a dimension of 1 repeats. The task's count is no number that a fixed dimension other than 1
 * could equal. PRelu's slope repeats to its input, never the other way.
 *
 * The rows say which types ONNX allows, of those that there are here. Parameters are put in the
 * form in which kernels and shaders take them: see union op_params.
 */
#include <math.h>
#include <string.h>

#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

/* What a device does per element: a few instructions, a polynomial or two, more than that. */
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

/* Times float32's. Float64's functions are libm's, which computes one element at a time. */
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
	cost_tensors(ret, call);
}

/* Rules of operators with parameters */

static int floats_infer(struct op_call *call, const char *a, float a_default, const char *b,
			float b_default)
{
	float values[2] = {0};
	int r;

	r = op_call_float(call, a, a_default, &values[0]);
	if (!r && b)
		r = op_call_float(call, b, b_default, &values[1]);
	if (r)
		return r;
	for (unsigned int i = 0; i < 2; i++) {
		if (call->in[0]->dtype == RBK_DTYPE_F64)
			call->params.elementwise.d[i] = (double)values[i];
		else
			call->params.elementwise.f[i] = values[i];
	}
	return unary_infer(call);
}

#define FLOATS_RULE(row, ...)                           \
	static int row##_infer(struct op_call *call)    \
	{                                               \
		return floats_infer(call, __VA_ARGS__); \
	}

FLOATS_RULE(leaky_relu, "alpha", 0.01f, NULL, 0)
FLOATS_RULE(thresholded_relu, "alpha", 1, NULL, 0)
FLOATS_RULE(elu, "alpha", 1, NULL, 0)
FLOATS_RULE(selu, "alpha", 1.67326319217681884765625f, "gamma", 1.05070102214813232421875f)
FLOATS_RULE(celu, "alpha", 1, NULL, 0)
FLOATS_RULE(hard_sigmoid, "alpha", 0.2f, "beta", 0.5f)
FLOATS_RULE(swish, "alpha", 1, NULL, 0)

/* The integers that floating limits leave. */
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

	r = floats_infer(call, "min", -INFINITY, "max", INFINITY);
	if (r || (OP_ALL_FLOATS & OP_TYPE(dtype)))
		return r;
	memcpy(floats, call->params.elementwise.f, sizeof(floats));
	for (unsigned int i = 0; i < 2; i++) {
		r = op_call_int(call, names[i], INT64_MIN, INT64_MAX, clip_limit(floats[i], i > 0),
				&limits[i]);
		if (r)
			return r;
		/* Limits that the type does not reach do not limit, and none wraps. */
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
		return op_call_refuse(call, "\"to\" is %d, which is no type that tensors have here",
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

/* The condition's shape with what the other two give. */
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

/* Rows */

static const struct op_attr alpha_attrs[] = {{"alpha", RBK_ATTR_FLOAT}, {0}};
static const struct op_attr selu_attrs[] = {
	{"alpha", RBK_ATTR_FLOAT}, {"gamma", RBK_ATTR_FLOAT}, {0}};
static const struct op_attr hard_sigmoid_attrs[] = {
	{"alpha", RBK_ATTR_FLOAT}, {"beta", RBK_ATTR_FLOAT}, {0}};
static const struct op_attr gelu_attrs[] = {{"approximate", RBK_ATTR_STRING}, {0}};
static const struct op_attr clip_attrs[] = {{"min", RBK_ATTR_FLOAT},
					    {"max", RBK_ATTR_FLOAT},
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
/* These are fused, too. */
#define SPEED_FUSED_ELEMENTWISE SPEED_ELEMENTWISE, .is_activation = true
#define SPEED_FUSED_ACTIVATION  SPEED_ACTIVATION, .is_activation = true

/* The classes come last. */
#define ROW(KIND, row, onnx, since, speed, n, ins, outs, attr_table, rule, ...) \
	const struct op op_##row = {                                            \
		.kind = OP_##KIND,                                              \
		SPEED_##speed,                                                  \
		.name = onnx,                                                   \
		.opset = since,                                                 \
		.min_in = n,                                                    \
		.max_in = n,                                                    \
		.min_out = 1,                                                   \
		.max_out = 1,                                                   \
		.in_classes = ins,                                              \
		.out_classes = outs,                                            \
		.in_place = true,                                               \
		.data_independent = true,                                       \
		.splits_rows = true,                                            \
		.attrs = attr_table,                                            \
		.infer = rule,                                                  \
		.cost = elementwise_cost,                                       \
		.classes = {__VA_ARGS__},                                       \
	}

/* clang-format off */
#define T(types)                {'T', types, types}
/* GPUs have no such function of float64. */
#define T_FLOAT64_ON_CPU(types) {'T', types, (types) & ~OP_FLOAT64}
#define BOOLS                   {'B', OP_BOOL, OP_BOOL}
#define ANY                     T(OP_ANY_TYPE)
#define ANY_TO                  {'U', OP_ANY_TYPE, OP_ANY_TYPE}
/* clang-format on */

#define UNARY_WITH(KIND, row, onnx, since, speed, types, attrs, rule) \
	ROW(KIND, row, onnx, since, speed, 1, "T", "T", attrs, rule, T(types))
#define UNARY(KIND, row, onnx, since, speed, types) \
	UNARY_WITH(KIND, row, onnx, since, speed, types, op_no_attrs, unary_infer)
#define ANGLE(KIND, row, onnx)                                                      \
	ROW(KIND, row, onnx, 22, ACTIVATION, 1, "T", "T", op_no_attrs, unary_infer, \
	    T_FLOAT64_ON_CPU(OP_ALL_FLOATS))
#define BINARY_WITH(KIND, row, onnx, since, types, attrs, rule) \
	ROW(KIND, row, onnx, since, ELEMENTWISE, 2, "T", "T", attrs, rule, T(types))
#define BINARY_FLOAT64_ON_CPU(KIND, row, onnx, since, types)                             \
	ROW(KIND, row, onnx, since, ELEMENTWISE, 2, "T", "T", op_no_attrs, binary_infer, \
	    T_FLOAT64_ON_CPU(types))
#define BINARY(KIND, row, onnx, since, types) \
	BINARY_WITH(KIND, row, onnx, since, types, op_no_attrs, binary_infer)
#define COMPARISON(KIND, row, onnx, since, types)                                                  \
	ROW(KIND, row, onnx, since, ELEMENTWISE, 2, "T", "B", op_no_attrs, binary_infer, T(types), \
	    BOOLS)

#define PREDICATE(KIND, row, onnx, since, attrs, rule) \
	ROW(KIND, row, onnx, since, ELEMENTWISE, 1, "T", "B", attrs, rule, T(OP_ALL_FLOATS), BOOLS)

BINARY(ADD, add, "Add", 14, OP_ALL_NUMBERS);
BINARY(SUB, sub, "Sub", 14, OP_ALL_NUMBERS);
BINARY(MUL, mul, "Mul", 14, OP_ALL_NUMBERS);
BINARY(DIV, div, "Div", 14, OP_ALL_NUMBERS);
BINARY_FLOAT64_ON_CPU(POW, pow, "Pow", 15, OP_ALL_FLOATS | OP_INDICES);
BINARY_WITH(MOD, mod, "Mod", 13, OP_ALL_NUMBERS, mod_attrs, mod_infer);
BINARY(MIN, min, "Min", 13, OP_ALL_NUMBERS);
BINARY(MAX, max, "Max", 13, OP_ALL_NUMBERS);
BINARY_WITH(PRELU, prelu, "PRelu", 16, OP_ALL_FLOATS | OP_INDICES, op_no_attrs, prelu_infer);
COMPARISON(EQUAL, equal, "Equal", 19, OP_COMPUTABLE | OP_FLOAT64);
COMPARISON(LESS, less, "Less", 13, OP_ALL_NUMBERS);
COMPARISON(LESS_OR_EQUAL, less_or_equal, "LessOrEqual", 16, OP_ALL_NUMBERS);
COMPARISON(GREATER, greater, "Greater", 13, OP_ALL_NUMBERS);
COMPARISON(GREATER_OR_EQUAL, greater_or_equal, "GreaterOrEqual", 16, OP_ALL_NUMBERS);
BINARY(AND, and, "And", 7, OP_BOOL);
BINARY(OR, or, "Or", 7, OP_BOOL);
BINARY(XOR, xor, "Xor", 7, OP_BOOL);
BINARY(BITWISE_AND, bitwise_and, "BitwiseAnd", 18, INTEGERS);
BINARY(BITWISE_OR, bitwise_or, "BitwiseOr", 18, INTEGERS);
BINARY(BITWISE_XOR, bitwise_xor, "BitwiseXor", 18, INTEGERS);
BINARY_WITH(BIT_SHIFT, bit_shift, "BitShift", 11, OP_TYPE(RBK_DTYPE_U8), bit_shift_attrs,
	    bit_shift_infer);

ROW(WHERE, where, "Where", 16, ELEMENTWISE, 3, "BT", "T", op_no_attrs, where_infer, ANY, BOOLS);
ROW(CAST, cast, "Cast", 25, ELEMENTWISE, 1, "T", "U", cast_attrs, cast_infer, ANY, ANY_TO);

UNARY_WITH(CLIP, clip, "Clip", 13, FUSED_ELEMENTWISE, OP_ALL_NUMBERS, clip_attrs, clip_infer);
UNARY(ABS, abs, "Abs", 13, ELEMENTWISE, OP_ALL_NUMBERS);
UNARY(NEG, neg, "Neg", 13, ELEMENTWISE, OP_ALL_FLOATS | SIGNED_INTEGERS);
UNARY(SIGN, sign, "Sign", 13, ELEMENTWISE, OP_ALL_NUMBERS);
UNARY(FLOOR, floor, "Floor", 13, ELEMENTWISE, OP_ALL_FLOATS);
UNARY(CEIL, ceil, "Ceil", 13, ELEMENTWISE, OP_ALL_FLOATS);
UNARY(ROUND, round, "Round", 22, ELEMENTWISE, OP_ALL_FLOATS);
UNARY(SQRT, sqrt, "Sqrt", 13, ELEMENTWISE, OP_ALL_FLOATS);
UNARY(RECIPROCAL, reciprocal, "Reciprocal", 13, ELEMENTWISE, OP_ALL_FLOATS);
UNARY(EXP, exp, "Exp", 13, ACTIVATION, OP_ALL_FLOATS);
UNARY(LOG, log, "Log", 13, ACTIVATION, OP_ALL_FLOATS);
UNARY(ERF, erf, "Erf", 13, ACTIVATION, OP_ALL_FLOATS);
ANGLE(SIN, sin, "Sin");
ANGLE(COS, cos, "Cos");
ANGLE(TAN, tan, "Tan");
ANGLE(ASIN, asin, "Asin");
ANGLE(ACOS, acos, "Acos");
ANGLE(ATAN, atan, "Atan");
UNARY(SINH, sinh, "Sinh", 22, ACTIVATION, OP_ALL_FLOATS);
UNARY(COSH, cosh, "Cosh", 22, ACTIVATION, OP_ALL_FLOATS);
UNARY(TANH, tanh, "Tanh", 13, FUSED_ACTIVATION, OP_ALL_FLOATS);
UNARY(ASINH, asinh, "Asinh", 22, ACTIVATION, OP_ALL_FLOATS);
UNARY(ACOSH, acosh, "Acosh", 22, ACTIVATION, OP_ALL_FLOATS);
UNARY(ATANH, atanh, "Atanh", 22, ACTIVATION, OP_ALL_FLOATS);
UNARY(RELU, relu, "Relu", 14, FUSED_ACTIVATION, OP_ALL_FLOATS | SIGNED_INTEGERS);
UNARY_WITH(LEAKY_RELU, leaky_relu, "LeakyRelu", 16, FUSED_ACTIVATION, OP_ALL_FLOATS, alpha_attrs,
	   leaky_relu_infer);
UNARY_WITH(THRESHOLDED_RELU, thresholded_relu, "ThresholdedRelu", 22, ACTIVATION, OP_ALL_FLOATS,
	   alpha_attrs, thresholded_relu_infer);
UNARY_WITH(ELU, elu, "Elu", 22, FUSED_ACTIVATION, OP_ALL_FLOATS, alpha_attrs, elu_infer);
UNARY_WITH(SELU, selu, "Selu", 22, ACTIVATION, OP_ALL_FLOATS, selu_attrs, selu_infer);
UNARY_WITH(CELU, celu, "Celu", 12, ACTIVATION, OP_ALL_FLOATS, alpha_attrs, celu_infer);
UNARY_WITH(GELU, gelu, "Gelu", 20, FUSED_ACTIVATION, OP_ALL_FLOATS, gelu_attrs, gelu_infer);
UNARY(SIGMOID, sigmoid, "Sigmoid", 13, FUSED_ACTIVATION, OP_ALL_FLOATS);
UNARY_WITH(HARD_SIGMOID, hard_sigmoid, "HardSigmoid", 22, FUSED_ACTIVATION, OP_ALL_FLOATS,
	   hard_sigmoid_attrs, hard_sigmoid_infer);
UNARY(HARD_SWISH, hard_swish, "HardSwish", 22, FUSED_ACTIVATION, OP_ALL_FLOATS);
UNARY_WITH(SWISH, swish, "Swish", 24, FUSED_ACTIVATION, OP_ALL_FLOATS, alpha_attrs, swish_infer);
UNARY(MISH, mish, "Mish", 22, FUSED_ACTIVATION, OP_ALL_FLOATS);
UNARY(SOFTPLUS, softplus, "Softplus", 22, ACTIVATION, OP_ALL_FLOATS);
UNARY(SOFTSIGN, softsign, "Softsign", 22, ACTIVATION, OP_ALL_FLOATS);

PREDICATE(IS_NAN, is_nan, "IsNaN", 20, op_no_attrs, unary_infer);
PREDICATE(IS_INF, is_inf, "IsInf", 20, is_inf_attrs, is_inf_infer);
UNARY(NOT, not, "Not", 1, ELEMENTWISE, OP_BOOL);
UNARY(BITWISE_NOT, bitwise_not, "BitwiseNot", 18, ELEMENTWISE, INTEGERS);
