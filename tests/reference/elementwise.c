/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: elementwise operators
 *
 * An element is a number in double precision or an integer of 64 bits, whatever its type. Functions
 * are libm's, by their definitions. Where ONNX leaves a result open, broker/cpu/map.h defines it.
 * reference.c has converted float16 to float32 (so a float64 cast to float16 is rounded twice).
 * Arithmetic, not bits, rounds to bfloat16; only NaNs keep some of their bits.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/elementwise.h"
#include "shm/dtype.h"

struct value {
	bool is_float;
	double f;
	int64_t i;
};

static bool is_float(uint8_t dtype)
{
	return dtype == RBK_DTYPE_F32 || dtype == RBK_DTYPE_F16 || dtype == RBK_DTYPE_F64 ||
	       dtype == RBK_DTYPE_BF16;
}

static struct value of_float(double f)
{
	return (struct value){.is_float = true, .f = f};
}

static struct value of_integer(int64_t i)
{
	return (struct value){.i = i};
}

static uint32_t bits_of(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

/* Round to a multiple of the last place, at least that of the least normal number; return bits. */
static uint16_t bfloat_of(float f)
{
	double place;

	if (isnan(f))
		return (uint16_t)(bits_of(f) >> 16 | 0x40);
	if (isinf(f) || f == 0)
		return (uint16_t)(bits_of(f) >> 16);
	place = ldexp(1, (fabsf(f) < 0x1p-126f ? -126 : ilogb((double)f)) - 7);
	return (uint16_t)(bits_of((float)(nearbyint((double)f / place) * place)) >> 16);
}

static double of_bfloat(uint16_t bfloat)
{
	const uint32_t bits = (uint32_t)bfloat << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return (double)f;
}

static struct value load(uint8_t dtype, const void *data, uint64_t index)
{
	switch (dtype) {
	case RBK_DTYPE_U8:
		return of_integer(((const uint8_t *)data)[index]);
	case RBK_DTYPE_I8:
		return of_integer(((const int8_t *)data)[index]);
	case RBK_DTYPE_I32:
		return of_integer(((const int32_t *)data)[index]);
	case RBK_DTYPE_I64:
		return of_integer(((const int64_t *)data)[index]);
	case RBK_DTYPE_BOOL:
		return of_integer(((const uint8_t *)data)[index] != 0);
	case RBK_DTYPE_BF16:
		return of_float(of_bfloat(((const uint16_t *)data)[index]));
	case RBK_DTYPE_F64:
		return of_float(((const double *)data)[index]);
	default:
		return of_float((double)((const float *)data)[index]);
	}
}

/* Flush denormals to zero of the same sign. Denormals of float16 have become normal float32s. */
static struct value flushed(struct value value, uint8_t dtype)
{
	const double least = dtype == RBK_DTYPE_F64 ? DBL_MIN : (double)FLT_MIN;

	if (value.is_float && fabs(value.f) < least)
		value.f = copysign(0, value.f);
	return value;
}

static void store(uint8_t dtype, void *data, uint64_t index, struct value value)
{
	switch (dtype) {
	case RBK_DTYPE_U8:
	case RBK_DTYPE_I8:
	case RBK_DTYPE_BOOL:
		((uint8_t *)data)[index] = (uint8_t)value.i;
		return;
	case RBK_DTYPE_I32:
		((uint32_t *)data)[index] = (uint32_t)value.i;
		return;
	case RBK_DTYPE_I64:
		((int64_t *)data)[index] = value.i;
		return;
	case RBK_DTYPE_BF16:
		((uint16_t *)data)[index] =
			value.is_float ? bfloat_of((float)value.f) : (uint16_t)value.i;
		return;
	case RBK_DTYPE_F64:
		((double *)data)[index] = value.f;
		return;
	default:
		((float *)data)[index] = (float)value.f;
		return;
	}
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double limited(double x, double low, double high)
{
	return isnan(x) ? x : fmin(fmax(x, low), high);
}

/* Compute functions of floats that give a float. */
static double of_floats(const struct node *node, uint8_t dtype, double x, double y)
{
	const bool is_double = dtype == RBK_DTYPE_F64;
	const double a =
		is_double ? node->params.elementwise.d[0] : (double)node->params.elementwise.f[0];
	const double b =
		is_double ? node->params.elementwise.d[1] : (double)node->params.elementwise.f[1];

	switch (node->op->kind) {
	case OP_ADD:
		return x + y;
	case OP_SUB:
		return x - y;
	case OP_MUL:
		return x * y;
	case OP_DIV:
		return x / y;
	case OP_POW:
		return pow(x, y);
	case OP_MOD:
		return fmod(x, y);
	case OP_MIN:
		return isnan(x) || isnan(y) ? NAN : fmin(x, y);
	case OP_MAX:
		return isnan(x) || isnan(y) ? NAN : fmax(x, y);
	case OP_PRELU:
		return x < 0 ? x * y : x;
	case OP_CLIP:
		return limited(x, a, b);
	case OP_ABS:
		return fabs(x);
	case OP_NEG:
		return -x;
	case OP_SIGN:
		return isnan(x) || x == 0 ? x : copysign(1, x);
	case OP_FLOOR:
		return floor(x);
	case OP_CEIL:
		return ceil(x);
	case OP_ROUND:
		return rint(x);
	case OP_SQRT:
		return sqrt(x);
	case OP_RECIPROCAL:
		return 1 / x;
	case OP_EXP:
		return exp(x);
	case OP_LOG:
		return log(x);
	case OP_ERF:
		return erf(x);
	case OP_SIN:
		return sin(x);
	case OP_COS:
		return cos(x);
	case OP_TAN:
		return tan(x);
	case OP_ASIN:
		return asin(x);
	case OP_ACOS:
		return acos(x);
	case OP_ATAN:
		return atan(x);
	case OP_SINH:
		return sinh(x);
	case OP_COSH:
		return cosh(x);
	case OP_TANH:
		return tanh(x);
	case OP_ASINH:
		return asinh(x);
	case OP_ACOSH:
		return acosh(x);
	case OP_ATANH:
		return atanh(x);
	case OP_RELU:
		return x < 0 ? 0 : x;
	case OP_LEAKY_RELU:
		return x < 0 ? a * x : x;
	case OP_THRESHOLDED_RELU:
		return x > a ? x : 0;
	case OP_ELU:
		return x < 0 ? a * expm1(x) : x;
	case OP_SELU:
		return b * (x < 0 ? a * expm1(x) : x);
	case OP_CELU:
		return x < 0 ? a * expm1(x / a) : x;
	case OP_GELU:
		if (node->params.elementwise.form)
			return x * sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
		return x * 0.5 * erfc(-x * M_SQRT1_2);
	case OP_SIGMOID:
		return sigmoid(x);
	case OP_HARD_SIGMOID:
		return limited(a * x + b, 0, 1);
	case OP_HARD_SWISH:
		return x * limited(x / 6 + 0.5, 0, 1);
	case OP_SWISH:
		return x * sigmoid(a * x);
	case OP_MISH:
		return x * tanh(x > 30 ? x : log1p(exp(x)));
	case OP_SOFTPLUS:
		return x > 30 ? x + exp(-x) : log1p(exp(x));
	case OP_SOFTSIGN:
		return x / (1 + fabs(x));
	case OP_SHRINK:
		return x < -a ? x + b : x > a ? x - b : 0;
	default:
		abort();
	}
}

static int64_t power(int64_t x, int64_t y)
{
	uint64_t result = 1;

	if (y < 0)
		return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
	for (uint64_t n = (uint64_t)y, base = (uint64_t)x; n > 0; n /= 2, base *= base)
		result *= n % 2 ? base : 1;
	return (int64_t)result;
}

static int64_t modulus(int64_t x, int64_t y, bool c)
{
	const int64_t rest = y == 0 || y == -1 ? 0 : x % y;

	return rest != 0 && !c && (rest < 0) != (y < 0) ? rest + y : rest;
}

/* Compute functions of integers and bools that give the same type. */
static int64_t of_integers(const struct node *node, int64_t x, int64_t y)
{
	const int64_t *limits = node->params.elementwise.i;
	const bool form = node->params.elementwise.form;

	switch (node->op->kind) {
	case OP_ADD:
		return (int64_t)((uint64_t)x + (uint64_t)y);
	case OP_SUB:
		return (int64_t)((uint64_t)x - (uint64_t)y);
	case OP_MUL:
		return (int64_t)((uint64_t)x * (uint64_t)y);
	case OP_DIV:
		return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
	case OP_POW:
		return power(x, y);
	case OP_MOD:
		return modulus(x, y, form);
	case OP_MIN:
		return x < y ? x : y;
	case OP_MAX:
		return x > y ? x : y;
	case OP_PRELU:
		return x < 0 ? (int64_t)((uint64_t)x * (uint64_t)y) : x;
	case OP_CLIP:
		x = x < limits[0] ? limits[0] : x;
		return x > limits[1] ? limits[1] : x;
	case OP_ABS:
		return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
	case OP_NEG:
		return (int64_t)(0 - (uint64_t)x);
	case OP_SIGN:
		return (x > 0) - (x < 0);
	case OP_RELU:
		return x < 0 ? 0 : x;
	case OP_AND:
	case OP_BITWISE_AND:
		return x & y;
	case OP_OR:
	case OP_BITWISE_OR:
		return x | y;
	case OP_XOR:
	case OP_BITWISE_XOR:
		return x ^ y;
	case OP_BIT_SHIFT:
		return y > 7 ? 0 : form ? x >> y : x << y;
	case OP_NOT:
		return !x;
	case OP_BITWISE_NOT:
		return ~x;
	default:
		abort();
	}
}

static bool compares(enum op_kind kind, struct value x, struct value y)
{
	const bool equal = x.is_float ? x.f == y.f : x.i == y.i;
	const bool less = x.is_float ? x.f < y.f : x.i < y.i;
	const bool greater = x.is_float ? x.f > y.f : x.i > y.i;

	switch (kind) {
	case OP_EQUAL:
		return equal;
	case OP_LESS:
		return less;
	case OP_LESS_OR_EQUAL:
		return less || equal;
	case OP_GREATER:
		return greater;
	default:
		return greater || equal;
	}
}

static struct value cast(uint8_t from, uint8_t to, struct value x)
{
	static const struct {
		double end;
		int64_t least, most;
	} ranges[] = {
		[RBK_DTYPE_U8] = {256, 0, 255},
		[RBK_DTYPE_I8] = {128, -128, 127},
		[RBK_DTYPE_I32] = {0x1p31, INT32_MIN, INT32_MAX},
		[RBK_DTYPE_I64] = {0x1p63, INT64_MIN, INT64_MAX},
	};

	if (to == RBK_DTYPE_BOOL)
		return of_integer(x.is_float ? x.f != 0 : x.i != 0);
	if (is_float(to) && !x.is_float)
		return of_float(to == RBK_DTYPE_F64 ? (double)x.i : (double)(float)x.i);
	if (to == RBK_DTYPE_BF16 && from == RBK_DTYPE_F64)
		return flushed(of_float((double)(float)x.f), RBK_DTYPE_F32);
	if (is_float(to))
		return x;
	if (!x.is_float)
		return x;
	if (isnan(x.f))
		return of_integer(0);
	if (x.f >= ranges[to].end)
		return of_integer(ranges[to].most);
	if (x.f < (double)ranges[to].least)
		return of_integer(ranges[to].least);
	return of_integer((int64_t)x.f);
}

static struct value apply(const struct node *node, uint8_t from, uint8_t to,
			  const struct value in[3])
{
	const int64_t finds = node->params.elementwise.i[0];

	switch (node->op->kind) {
	case OP_WHERE:
		return in[0].i ? in[1] : in[2];
	case OP_CAST:
		return cast(from, to, in[0]);
	case OP_IS_NAN:
		return of_integer(isnan(in[0].f));
	case OP_IS_INF:
		return of_integer(isinf(in[0].f) && (finds & (in[0].f < 0 ? 1 : 2)));
	case OP_EQUAL:
	case OP_LESS:
	case OP_LESS_OR_EQUAL:
	case OP_GREATER:
	case OP_GREATER_OR_EQUAL:
		return of_integer(compares(node->op->kind, in[0], in[1]));
	default:
		if (in[0].is_float)
			return of_float(of_floats(node, from, in[0].f, in[1].f));
		return of_integer(of_integers(node, in[0].i, in[1].i));
	}
}

/* Return the index in a tensor of @shape of the element that output element @at reads. */
static uint64_t index_of(const struct shape *shape, const struct shape *out, uint32_t count,
			 const uint32_t at[RBK_MAX_RANK])
{
	uint64_t index = 0;

	for (unsigned int i = 0; i < shape->rank; i++) {
		const uint32_t size = shape_dim(shape, i, count);

		index = index * size + (size == 1 ? 0 : at[i + out->rank - shape->rank]);
	}
	return index;
}

void reference_elementwise(const struct plan *plan, const struct node *node, uint32_t count,
			   const void *const *in, void *out)
{
	const struct tensor *y = &plan->tensors[node->out[0]];
	const uint64_t n = shape_elems(&y->shape, count);
	const uint8_t from = plan->tensors[node->in[0]].dtype, to = y->dtype;
	const bool casts = node->op->kind == OP_CAST;
	const bool copies = casts && from == RBK_DTYPE_BF16 && to == from;
	/* Float32 and bfloat16 have the same denormals. */
	const bool keeps = casts && ((from == RBK_DTYPE_BF16 && to == RBK_DTYPE_F32) ||
				     (from == RBK_DTYPE_F32 && to == RBK_DTYPE_BF16));

	for (uint64_t i = 0; i < n; i++) {
		struct value operands[3] = {{0}};
		uint32_t at[RBK_MAX_RANK];
		uint64_t rest = i;

		for (unsigned int d = y->shape.rank; d-- > 0;) {
			at[d] = (uint32_t)(rest % shape_dim(&y->shape, d, count));
			rest /= shape_dim(&y->shape, d, count);
		}
		assert(node->n_in <= 3);
		for (unsigned int j = 0; j < node->n_in; j++) {
			const struct tensor *x = &plan->tensors[node->in[j]];
			const uint64_t index = index_of(&x->shape, &y->shape, count, at);
			/* Moved elements keep their bits. */
			const bool moves = copies || (node->op->kind == OP_WHERE && j > 0);

			if (moves && x->dtype == RBK_DTYPE_BF16)
				operands[j] = of_integer(((const uint16_t *)in[j])[index]);
			else
				operands[j] =
					load(moves && x->dtype == RBK_DTYPE_BOOL ? RBK_DTYPE_U8
										 : x->dtype,
					     in[j], index);
			if (!moves && !keeps)
				operands[j] = flushed(operands[j], x->dtype);
		}
		if (copies)
			store(y->dtype, out, i, operands[0]);
		else
			store(y->dtype, out, i, apply(node, from, to, operands));
	}
}
