/* SPDX-License-Identifier: MIT */
/*
 * Computing steps of constants: shape arithmetic, and small constants
 *
 * This is an interpreter of canonical operators. Integers have 64 bits and wrap around when they
 * are stored. Floats are double and are rounded when they are stored; for +, -, *, / and sqrt of
 * float32 and float16 the result is correctly rounded. The interpreter serves to compute shapes, so
 * its work is bounded. Unsupported operators and too large results become steps of the plan.
 *
 * Integers may depend on the count (struct constant: rows). Few operators preserve this: those that
 * move elements, sums, products with numbers, and comparisons with the same result for every count.
 */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "libclient/onnx/eval.h"
#include "shm/bfloat.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Element by element ---- */

static int64_t wrap_add(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t wrap_sub(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

static int64_t wrap_mul(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a * (uint64_t)b);
}

enum binary {
	BIN_ADD,
	BIN_SUB,
	BIN_MUL,
	BIN_DIV,
	BIN_MOD,
	BIN_POW,
	BIN_MIN,
	BIN_MAX,
	BIN_AND,
	BIN_OR,
	BIN_XOR,
	BIN_EQUAL,
	BIN_GREATER,
	BIN_GREATER_EQUAL,
	BIN_LESS,
	BIN_LESS_EQUAL,
};

static bool binary_double(enum binary op, bool c_mod, double a, double b, double *ret)
{
	switch (op) {
	case BIN_ADD:
		*ret = a + b;
		return true;
	case BIN_SUB:
		*ret = a - b;
		return true;
	case BIN_MUL:
		*ret = a * b;
		return true;
	case BIN_DIV:
		*ret = a / b;
		return true;
	case BIN_MOD:
		*ret = fmod(a, b);
		return c_mod;
	case BIN_POW:
		*ret = pow(a, b);
		return true;
	case BIN_MIN:
		*ret = isnan(a) || isnan(b) ? (double)NAN : fmin(a, b);
		return true;
	case BIN_MAX:
		*ret = isnan(a) || isnan(b) ? (double)NAN : fmax(a, b);
		return true;
	case BIN_EQUAL:
		*ret = a == b;
		return true;
	case BIN_GREATER:
		*ret = a > b;
		return true;
	case BIN_GREATER_EQUAL:
		*ret = a >= b;
		return true;
	case BIN_LESS:
		*ret = a < b;
		return true;
	case BIN_LESS_EQUAL:
		*ret = a <= b;
		return true;
	default:
		return false;
	}
}

static bool int_divide(enum binary op, bool c_mod, int64_t a, int64_t b, int64_t *ret)
{
	if (b == 0)
		return false;
	if (b == -1) {
		*ret = op == BIN_DIV ? wrap_sub(0, a) : 0;
		return true;
	}
	*ret = op == BIN_DIV ? a / b : a % b;
	if (op == BIN_MOD && !c_mod && *ret && (*ret < 0) != (b < 0))
		*ret += b;
	return true;
}

static bool binary_int(enum binary op, bool c_mod, int64_t a, int64_t b, int64_t *ret)
{
	switch (op) {
	case BIN_ADD:
		*ret = wrap_add(a, b);
		return true;
	case BIN_SUB:
		*ret = wrap_sub(a, b);
		return true;
	case BIN_MUL:
		*ret = wrap_mul(a, b);
		return true;
	case BIN_DIV:
	case BIN_MOD:
		return int_divide(op, c_mod, a, b, ret);
	case BIN_POW:
		if (b < 0 || b > 64)
			return false;
		for (*ret = 1; b > 0; b--)
			*ret = wrap_mul(*ret, a);
		return true;
	case BIN_MIN:
		*ret = a < b ? a : b;
		return true;
	case BIN_MAX:
		*ret = a > b ? a : b;
		return true;
	case BIN_AND:
		*ret = a & b;
		return true;
	case BIN_OR:
		*ret = a | b;
		return true;
	case BIN_XOR:
		*ret = a ^ b;
		return true;
	case BIN_EQUAL:
		*ret = a == b;
		return true;
	case BIN_GREATER:
		*ret = a > b;
		return true;
	case BIN_GREATER_EQUAL:
		*ret = a >= b;
		return true;
	case BIN_LESS:
		*ret = a < b;
		return true;
	case BIN_LESS_EQUAL:
		*ret = a <= b;
		return true;
	}
	return false;
}

/*
 * Compute a + a_rows * count op b + b_rows * count, for every count from 1 on. Return: false if the
 * result has no such form.
 */
static bool binary_rows(enum binary op, int64_t a, int64_t a_rows, int64_t b, int64_t b_rows,
			int64_t *ret, int64_t *ret_rows)
{
	*ret_rows = 0;
	if (!a_rows && !b_rows)
		return binary_int(op, false, a, b, ret);
	switch (op) {
	case BIN_ADD:
		*ret = wrap_add(a, b);
		*ret_rows = wrap_add(a_rows, b_rows);
		return true;
	case BIN_SUB:
		*ret = wrap_sub(a, b);
		*ret_rows = wrap_sub(a_rows, b_rows);
		return true;
	case BIN_MUL:
		if (a_rows && b_rows)
			return false;
		*ret = wrap_mul(a, b);
		*ret_rows = a_rows ? wrap_mul(a_rows, b) : wrap_mul(b_rows, a);
		return true;
	case BIN_DIV:
		if (b_rows || b <= 0 || a % b || a_rows % b)
			return false;
		*ret = a / b;
		*ret_rows = a_rows / b;
		return true;
	case BIN_EQUAL:
		if (a == b && a_rows == b_rows)
			*ret = 1;
		else if (a >= 0 && a_rows > 0 && !b_rows && b <= 0)
			*ret = 0;
		else if (b >= 0 && b_rows > 0 && !a_rows && a <= 0)
			*ret = 0;
		else
			return false;
		return true;
	case BIN_GREATER:
	case BIN_GREATER_EQUAL:
		if (a < 0 || a_rows <= 0 || b_rows || b > 0)
			return false;
		*ret = 1;
		return true;
	default:
		return false;
	}
}

static int broadcast(const struct constant *const *in, unsigned int n, struct eval_walk *walk)
{
	*walk = (struct eval_walk){.n_in = n};
	for (unsigned int i = 0; i < n; i++)
		if (in[i]->rank > walk->rank)
			walk->rank = in[i]->rank;
	for (unsigned int i = 0; i < n; i++) {
		int64_t stride = in[i]->n_elems > 0;

		for (uint32_t j = in[i]->rank; j-- > 0;) {
			uint32_t at = walk->rank - in[i]->rank + j;
			int64_t dim = in[i]->dims[j], *all = &walk->dims[at];

			if (!walk->is_set[at] || *all == 1)
				*all = dim;
			else if (dim != 1 && dim != *all)
				return EVAL_E_UNKNOWN;
			walk->is_set[at] = true;
			walk->strides[i][at] = dim == 1 ? 0 : stride;
			stride *= in[i]->n_elems > 0 ? dim : 0;
		}
	}
	return 0;
}

static int run_binary(struct graph *graph, struct step *step, int arg)
{
	enum binary op = (enum binary)arg;
	const struct constant *a = step->in[0]->constant, *b = step->in[1]->constant;
	const struct constant *in[] = {a, b};
	bool is_float = eval_is_float(a->dtype) || eval_is_float(b->dtype);
	bool c_mod = eval_int(step, "fmod", 0) != 0;
	uint32_t dtype = op >= BIN_EQUAL ? RBK_ONNX_BOOL : a->dtype;
	bool has_rows = a->rows || b->rows, ok = true;
	struct eval_walk walk;
	struct constant out;
	int r;

	if ((!is_float && (!eval_is_int(a->dtype) || !eval_is_int(b->dtype))) ||
	    (a->dtype != b->dtype && op != BIN_POW) || broadcast(in, 2, &walk))
		return EVAL_E_UNKNOWN;
	r = eval_result(graph, dtype, walk.rank, walk.dims, has_rows, &out);
	for (uint64_t i = 0; !r && i < out.n_elems; i++, eval_step_walk(&walk)) {
		uint64_t at_a = (uint64_t)walk.at[0], at_b = (uint64_t)walk.at[1];
		int64_t value = 0;
		double number = 0;

		if (has_rows)
			ok = binary_rows(
				op, eval_load_int(a->dtype, a->data, at_a),
				a->rows ? a->rows[at_a] : 0, eval_load_int(b->dtype, b->data, at_b),
				b->rows ? b->rows[at_b] : 0, &value, (int64_t *)&out.rows[i]);
		else if (is_float)
			ok = binary_double(op, c_mod, eval_load(a->dtype, a->data, at_a),
					   eval_load(b->dtype, b->data, at_b), &number);
		else
			ok = binary_int(op, c_mod, eval_load_int(a->dtype, a->data, at_a),
					eval_load_int(b->dtype, b->data, at_b), &value);
		if (!ok)
			return EVAL_E_UNKNOWN;
		if (is_float)
			eval_store(dtype, (void *)out.data, i, number);
		else
			eval_store_int(dtype, (void *)out.data, i, value);
	}
	return r ? r : eval_publish(graph, step->out[0], &out);
}

enum unary { UN_NEG, UN_ABS, UN_SQRT, UN_EXP, UN_LOG, UN_FLOOR, UN_CEIL, UN_RECIPROCAL, UN_NOT };

static double unary_double(enum unary op, double a)
{
	switch (op) {
	case UN_NEG:
		return -a;
	case UN_ABS:
		return fabs(a);
	case UN_SQRT:
		return sqrt(a);
	case UN_EXP:
		return exp(a);
	case UN_LOG:
		return log(a);
	case UN_FLOOR:
		return floor(a);
	case UN_CEIL:
		return ceil(a);
	case UN_RECIPROCAL:
		return 1 / a;
	default:
		return NAN;
	}
}

static int run_unary(struct graph *graph, struct step *step, int arg)
{
	enum unary op = (enum unary)arg;
	const struct constant *a = step->in[0]->constant;
	bool is_float = eval_is_float(a->dtype);
	struct constant out;
	int r;

	if (a->rows || (op == UN_NOT) != (a->dtype == RBK_ONNX_BOOL) ||
	    (!is_float && !(eval_is_int(a->dtype) && (op <= UN_ABS || op == UN_NOT))))
		return EVAL_E_UNKNOWN;
	r = eval_result(graph, a->dtype, a->rank, a->dims, false, &out);
	for (uint64_t i = 0; !r && i < out.n_elems; i++) {
		int64_t value;

		if (is_float) {
			eval_store(a->dtype, (void *)out.data, i,
				   unary_double(op, eval_load(a->dtype, a->data, i)));
			continue;
		}
		value = eval_load_int(a->dtype, a->data, i);
		if (op == UN_NOT)
			value = !value;
		else if (op == UN_NEG || value < 0)
			value = wrap_sub(0, value);
		eval_store_int(a->dtype, (void *)out.data, i, value);
	}
	return r ? r : eval_publish(graph, step->out[0], &out);
}

/*
 * Cast between float32 and bfloat16 as bits: they have the same denormals, which a computation
 * would lose.
 */
static bool cast_bits(const struct constant *a, struct constant *out, uint64_t i)
{
	if (a->dtype == RBK_ONNX_F32 && out->dtype == RBK_ONNX_BF16)
		((uint16_t *)out->data)[i] = bfloat_from_float(((const float *)a->data)[i]);
	else if (a->dtype == RBK_ONNX_BF16 && out->dtype == RBK_ONNX_F32)
		((float *)out->data)[i] = bfloat_to_float(((const uint16_t *)a->data)[i]);
	else
		return false;
	return true;
}

static int run_cast(struct graph *graph, struct step *step, int arg)
{
	const struct constant *a = step->in[0]->constant;
	uint32_t dtype = (uint32_t)eval_int(step, "to", 0);
	bool from_float = eval_is_float(a->dtype);
	struct constant out;
	int r;

	if ((!from_float && !eval_is_int(a->dtype)) || a->rows ||
	    (!eval_is_float(dtype) && !eval_is_int(dtype)))
		return EVAL_E_UNKNOWN;
	r = eval_result(graph, dtype, a->rank, a->dims, false, &out);
	for (uint64_t i = 0; !r && i < out.n_elems; i++) {
		if (cast_bits(a, &out, i))
			continue;
		if (from_float || eval_is_float(dtype))
			eval_store(dtype, (void *)out.data, i, eval_load(a->dtype, a->data, i));
		else
			eval_store_int(dtype, (void *)out.data, i,
				       eval_load_int(a->dtype, a->data, i));
	}
	return r ? r : eval_publish(graph, step->out[0], &out);
}

static int run_where(struct graph *graph, struct step *step, int arg)
{
	const struct constant *in[] = {step->in[0]->constant, step->in[1]->constant,
				       step->in[2]->constant};
	bool has_rows = in[1]->rows || in[2]->rows;
	unsigned int size = onnx_dtype_size(in[1]->dtype);
	struct eval_walk walk;
	struct constant out;
	int r;

	if (in[0]->dtype != RBK_ONNX_BOOL || in[1]->dtype != in[2]->dtype || size == 0 ||
	    broadcast(in, 3, &walk))
		return EVAL_E_UNKNOWN;
	r = eval_result(graph, in[1]->dtype, walk.rank, walk.dims, has_rows, &out);
	for (uint64_t i = 0; !r && i < out.n_elems; i++, eval_step_walk(&walk)) {
		unsigned int which = ((const uint8_t *)in[0]->data)[walk.at[0]] ? 1 : 2;
		uint64_t at = (uint64_t)walk.at[which];

		memcpy((char *)out.data + i * size, (const char *)in[which]->data + at * size,
		       size);
		if (in[which]->rows)
			((int64_t *)out.rows)[i] = in[which]->rows[at];
	}
	return r ? r : eval_publish(graph, step->out[0], &out);
}

static int run_clip(struct graph *graph, struct step *step, int arg)
{
	const struct constant *a = step->in[0]->constant;
	const int64_t int_low = eval_int(step, "int_min", INT64_MIN);
	const int64_t int_high = eval_int(step, "int_max", INT64_MAX);
	double low = 0, high = 0;
	bool has_low = eval_float(step, "min", &low), has_high = eval_float(step, "max", &high);
	struct constant out;
	int r;

	if (a->rows ||
	    (!eval_is_float(a->dtype) && (!eval_is_int(a->dtype) || has_low || has_high)))
		return EVAL_E_UNKNOWN;
	r = eval_result(graph, a->dtype, a->rank, a->dims, false, &out);
	for (uint64_t i = 0; !r && i < out.n_elems; i++) {
		double value = eval_load(a->dtype, a->data, i);

		if (eval_is_int(a->dtype)) {
			int64_t whole = eval_load_int(a->dtype, a->data, i);

			whole = whole < int_low ? int_low : whole;
			eval_store_int(a->dtype, (void *)out.data, i,
				       whole > int_high ? int_high : whole);
			continue;
		}
		if (has_low && value < low)
			value = low;
		if (has_high && value > high)
			value = high;
		eval_store(a->dtype, (void *)out.data, i, value);
	}
	return r ? r : eval_publish(graph, step->out[0], &out);
}

/* ---- Reductions ---- */

/*
 * RED_ZERO and RED_LOG are only computed over no elements: the result is 0, or the logarithm of 0.
 */
enum reduce { RED_SUM, RED_PROD, RED_MIN, RED_MAX, RED_MEAN, RED_ZERO, RED_LOG };

/* Map each element to its index in the result: strides are 0 along reduced axes. */
static bool reduce_walk(const struct step *step, const struct constant *a, struct eval_walk *walk,
			int64_t *dims, uint32_t *ret_rank)
{
	bool keepdims = eval_int(step, "keepdims", 1) != 0;
	unsigned int n_axes;
	const int64_t *axes = eval_ints(step, "axes", &n_axes);
	uint32_t reduced = 0, rank = 0;
	/* 0 without elements: products of the dimensions may overflow */
	int64_t stride = a->n_elems > 0;

	*walk = (struct eval_walk){.n_in = 1, .rank = a->rank};
	for (unsigned int i = 0; i < n_axes; i++) {
		if (axes[i] < 0 || axes[i] >= a->rank)
			return false;
		reduced |= 1u << axes[i];
	}
	for (uint32_t i = a->rank; i-- > 0;) {
		walk->dims[i] = a->dims[i];
		if (reduced >> i & 1)
			continue;
		walk->strides[0][i] = stride;
		stride *= stride ? a->dims[i] : 0;
	}
	for (uint32_t i = 0; i < a->rank; i++) {
		if (!(reduced >> i & 1))
			dims[rank++] = a->dims[i];
		else if (keepdims)
			dims[rank++] = 1;
	}
	*ret_rank = rank;
	return true;
}

static int64_t int_limit(uint32_t dtype, bool is_upper)
{
	switch (dtype) {
	case RBK_ONNX_BOOL:
		return is_upper;
	case RBK_ONNX_U8:
		return is_upper ? UINT8_MAX : 0;
	case RBK_ONNX_I8:
		return is_upper ? INT8_MAX : INT8_MIN;
	case RBK_ONNX_I32:
		return is_upper ? INT32_MAX : INT32_MIN;
	default:
		return is_upper ? INT64_MAX : INT64_MIN;
	}
}

/* Reduce no elements: the result is the operator's neutral element. */
static int reduce_nothing(struct graph *graph, struct step *step, enum reduce op, uint32_t rank,
			  const int64_t *dims)
{
	static const double floats[] = {0, 1, INFINITY, -INFINITY, NAN, 0, -INFINITY};
	const uint32_t dtype = step->in[0]->constant->dtype;
	bool is_float = eval_is_float(dtype);
	struct constant out;
	int r;

	if (!is_float && (op == RED_MEAN || op == RED_LOG || !(OP_ANY_TYPE & OP_TYPE(dtype))))
		return EVAL_E_UNKNOWN;
	r = eval_result(graph, dtype, rank, dims, false, &out);
	for (uint64_t i = 0; !r && i < out.n_elems; i++) {
		if (is_float)
			eval_store(dtype, (void *)out.data, i, floats[op]);
		else
			eval_store_int(dtype, (void *)out.data, i,
				       op == RED_MIN || op == RED_MAX
					       ? int_limit(dtype, op == RED_MIN)
					       : op == RED_PROD);
	}
	return r ? r : eval_publish(graph, step->out[0], &out);
}

static int reduce_ints(enum reduce op, const struct constant *a, struct eval_walk *walk,
		       bool *is_started, struct constant *out)
{
	static const enum binary ops[] = {BIN_ADD, BIN_MUL, BIN_MIN, BIN_MAX};
	int64_t *values = (int64_t *)out->data, *rows = (int64_t *)out->rows;

	for (uint64_t i = 0; i < a->n_elems; i++, eval_step_walk(walk)) {
		int64_t value = eval_load_int(a->dtype, a->data, i), sum, sum_rows = 0;
		uint64_t at = (uint64_t)walk->at[0];

		if (!is_started[at]) {
			is_started[at] = true;
			values[at] = value;
			if (rows)
				rows[at] = a->rows[i];
			continue;
		}
		if (!binary_rows(ops[op], values[at], rows ? rows[at] : 0, value,
				 a->rows ? a->rows[i] : 0, &sum, &sum_rows))
			return EVAL_E_UNKNOWN;
		values[at] = sum;
		if (rows)
			rows[at] = sum_rows;
	}
	return 0;
}

static void reduce_floats(enum reduce op, const struct constant *a, struct eval_walk *walk,
			  bool *is_started, double *values, uint64_t n)
{
	static const enum binary ops[] = {BIN_ADD, BIN_MUL, BIN_MIN, BIN_MAX, BIN_ADD};

	for (uint64_t i = 0; i < a->n_elems; i++, eval_step_walk(walk)) {
		double value = eval_load(a->dtype, a->data, i);
		uint64_t at = (uint64_t)walk->at[0];

		if (is_started[at])
			binary_double(ops[op], false, values[at], value, &value);
		is_started[at] = true;
		values[at] = value;
	}
	for (uint64_t i = 0; op == RED_MEAN && i < n; i++)
		values[i] /= (double)(a->n_elems / n);
}

static int run_reduce(struct graph *graph, struct step *step, int arg)
{
	enum reduce op = (enum reduce)arg;
	const struct constant *a = step->in[0]->constant;
	bool is_float = eval_is_float(a->dtype), *is_started;
	int64_t dims[RBK_MAX_RANK];
	struct eval_walk walk;
	struct constant out;
	double *values;
	uint32_t rank;
	int r;

	if (!reduce_walk(step, a, &walk, dims, &rank))
		return EVAL_E_UNKNOWN;
	if (a->n_elems == 0)
		return reduce_nothing(graph, step, op, rank, dims);
	if (op > RED_MEAN || (!is_float && (a->dtype != RBK_ONNX_I64 || op == RED_MEAN)))
		return EVAL_E_UNKNOWN;
	if (a->n_elems > graph->n_evaluable)
		return EVAL_E_UNKNOWN;
	graph->n_evaluable -= a->n_elems;
	r = eval_result(graph, a->dtype, rank, dims, a->rows != NULL, &out);
	if (r)
		return r;
	is_started = graph_zero(graph, out.n_elems, sizeof(*is_started));
	values = graph_zero(graph, is_float ? out.n_elems : 0, sizeof(*values));
	if (!is_started || !values)
		return graph->fatal;
	if (is_float)
		reduce_floats(op, a, &walk, is_started, values, out.n_elems);
	else
		r = reduce_ints(op, a, &walk, is_started, &out);
	for (uint64_t i = 0; is_float && i < out.n_elems; i++)
		eval_store(out.dtype, (void *)out.data, i, values[i]);
	return r ? r : eval_publish(graph, step->out[0], &out);
}

/* ---- The table ---- */

static const struct {
	const char *op;
	int (*run)(struct graph *graph, struct step *step, int arg);
	int arg;
} table[] = {
	{"Add", run_binary, BIN_ADD},
	{"Sub", run_binary, BIN_SUB},
	{"Mul", run_binary, BIN_MUL},
	{"Div", run_binary, BIN_DIV},
	{"Mod", run_binary, BIN_MOD},
	{"Pow", run_binary, BIN_POW},
	{"Min", run_binary, BIN_MIN},
	{"Max", run_binary, BIN_MAX},
	{"And", run_binary, BIN_AND},
	{"Or", run_binary, BIN_OR},
	{"Xor", run_binary, BIN_XOR},
	{"Equal", run_binary, BIN_EQUAL},
	{"Greater", run_binary, BIN_GREATER},
	{"GreaterOrEqual", run_binary, BIN_GREATER_EQUAL},
	{"Less", run_binary, BIN_LESS},
	{"LessOrEqual", run_binary, BIN_LESS_EQUAL},
	{"Neg", run_unary, UN_NEG},
	{"Abs", run_unary, UN_ABS},
	{"Sqrt", run_unary, UN_SQRT},
	{"Exp", run_unary, UN_EXP},
	{"Log", run_unary, UN_LOG},
	{"Floor", run_unary, UN_FLOOR},
	{"Ceil", run_unary, UN_CEIL},
	{"Reciprocal", run_unary, UN_RECIPROCAL},
	{"Not", run_unary, UN_NOT},
	{"Cast", run_cast, 0},
	{"Where", run_where, 0},
	{"Clip", run_clip, 0},
	{"ReduceSum", run_reduce, RED_SUM},
	{"ReduceProd", run_reduce, RED_PROD},
	{"ReduceMin", run_reduce, RED_MIN},
	{"ReduceMax", run_reduce, RED_MAX},
	{"ReduceMean", run_reduce, RED_MEAN},
	{"ReduceSumSquare", run_reduce, RED_ZERO},
	{"ReduceL1", run_reduce, RED_ZERO},
	{"ReduceL2", run_reduce, RED_ZERO},
	{"ReduceLogSum", run_reduce, RED_LOG},
	{"ReduceLogSumExp", run_reduce, RED_LOG},
	{"Reshape", eval_reshape, 0},
	{"Transpose", eval_transpose, 0},
	{"Slice", eval_slice, 0},
	{"Concat", eval_concat, 0},
	{"Gather", eval_gather, 0},
	{"Expand", eval_expand, 0},
	{"Split", eval_split, 0},
	{"DequantizeLinear", eval_dequantize, 0},
	{"Tile", eval_tile, 0},
};

int eval_step(struct graph *graph, struct step *step)
{
	for (unsigned int i = 0; i < step->n_in; i++)
		if (!step->in[i] || !step->in[i]->constant)
			return EVAL_E_UNKNOWN;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (!strcmp(table[i].op, step->op))
			return table[i].run(graph, step, table[i].arg);
	return EVAL_E_UNKNOWN;
}
