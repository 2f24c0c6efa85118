/* SPDX-License-Identifier: MIT */
/*
 * What shape rules have in common
 *
 * Refusals are sentences for whoever wrote the model: they name the node, the tensor and what was
 * expected. Attribute readers know the node, so a rule only says which attribute it wants and what
 * range it may have. All text goes through one bounded buffer of the caller's; names in it were
 * checked to be printable before any rule runs.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan/op-call.h"
#include "util/checked.h"

bool shape_equal(const struct shape *a, const struct shape *b)
{
	if (a->rank != b->rank || a->dynamic != b->dynamic)
		return false;
	for (unsigned int i = 0; i < a->rank; i++) {
		if (!dim_equal(shape_get(a, i), shape_get(b, i)))
			return false;
	}
	return true;
}

const char *dim_print(struct dim dim, char text[SHAPE_TEXT_BYTES])
{
	if (dim.is_count)
		snprintf(text, SHAPE_TEXT_BYTES, "count");
	else
		snprintf(text, SHAPE_TEXT_BYTES, "%u", dim.n);
	return text;
}

const char *shape_print(const struct shape *shape, char text[SHAPE_TEXT_BYTES])
{
	size_t used = 0;

	text[used++] = '[';
	for (unsigned int i = 0; i < shape->rank; i++) {
		char number[SHAPE_TEXT_BYTES];

		used += (size_t)snprintf(text + used, SHAPE_TEXT_BYTES - used, "%s%s", i ? "," : "",
					 dim_print(shape_get(shape, i), number));
	}
	snprintf(text + used, SHAPE_TEXT_BYTES - used, "]");
	return text;
}

int plan_refuse(char message[PLAN_MESSAGE_BYTES], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(message, PLAN_MESSAGE_BYTES, format, args);
	va_end(args);
	return PLAN_E_INVALID;
}

int op_call_refuse(struct op_call *call, const char *format, ...)
{
	va_list args;
	int used;

	if (call->node_name[0])
		used = snprintf(call->message, PLAN_MESSAGE_BYTES,
				"node %u \"%s\" (%s): ", call->node_index, call->node_name,
				call->op->name);
	else
		used = snprintf(call->message, PLAN_MESSAGE_BYTES,
				"node %u (%s): ", call->node_index, call->op->name);
	va_start(args, format);
	vsnprintf(call->message + used, PLAN_MESSAGE_BYTES - (size_t)used, format, args);
	va_end(args);
	return OP_E_INVALID;
}

static const struct rbk_plan_attr *find_attr(const struct op_call *call, const char *name)
{
	for (unsigned int i = 0; i < call->n_attrs; i++) {
		if (!strcmp(call->attrs[i].name, name))
			return &call->attrs[i];
	}
	return NULL;
}

static int64_t attr_int(const struct op_call *call, const struct rbk_plan_attr *attr,
			unsigned int i)
{
	int64_t value;

	memcpy(&value, call->blob + attr->blob_offset + i * sizeof(value), sizeof(value));
	return value;
}

int op_call_int(struct op_call *call, const char *name, int64_t min, int64_t max, int64_t fallback,
		int64_t *ret)
{
	const struct rbk_plan_attr *attr = find_attr(call, name);
	int64_t value;

	*ret = fallback;
	if (!attr)
		return 0;
	value = attr_int(call, attr, 0);
	if (value < min || value > max)
		return op_call_refuse(call,
				      "attribute \"%s\" is %lld, expected a number from %lld to "
				      "%lld",
				      name, (long long)value, (long long)min, (long long)max);
	*ret = value;
	return 0;
}

int op_call_bool(struct op_call *call, const char *name, bool fallback, bool *ret)
{
	int64_t value;
	int r;

	r = op_call_int(call, name, 0, 1, fallback, &value);
	if (!r)
		*ret = value;
	return r;
}

int op_call_float(struct op_call *call, const char *name, float fallback, float *ret)
{
	const struct rbk_plan_attr *attr = find_attr(call, name);

	*ret = fallback;
	if (attr)
		memcpy(ret, call->blob + attr->blob_offset, sizeof(*ret));
	return 0;
}

int op_call_ints(struct op_call *call, const char *name, unsigned int n, int64_t min, int64_t max,
		 int64_t fallback, int64_t *ret, bool *ret_given)
{
	const struct rbk_plan_attr *attr = find_attr(call, name);

	if (ret_given)
		*ret_given = attr != NULL;
	if (attr && attr->n != n)
		return op_call_refuse(call, "attribute \"%s\" has %u values, expected %u", name,
				      attr->n, n);
	for (unsigned int i = 0; i < n; i++) {
		ret[i] = attr ? attr_int(call, attr, i) : fallback;
		if (attr && (ret[i] < min || ret[i] > max))
			return op_call_refuse(call,
					      "attribute \"%s\" has the value %lld, expected "
					      "numbers from %lld to %lld",
					      name, (long long)ret[i], (long long)min,
					      (long long)max);
	}
	return 0;
}

int op_call_axis(struct op_call *call, const char *name, int64_t fallback, uint8_t *ret)
{
	int64_t rank = call->in[0]->shape.rank, axis;
	int r;

	if (rank == 0)
		return op_call_refuse(call, "input \"%s\" is a scalar, expected a dimension \"%s\"",
				      call->in[0]->name, name);
	r = op_call_int(call, name, -rank, rank - 1, fallback, &axis);
	if (!r)
		*ret = (uint8_t)(axis < 0 ? axis + rank : axis);
	return r;
}

int op_call_axes(struct op_call *call, const char *name, uint8_t *ret)
{
	const struct rbk_plan_attr *attr = find_attr(call, name);
	int64_t rank = call->in[0]->shape.rank;
	uint8_t bits = 0;

	for (unsigned int i = 0; attr && i < attr->n; i++) {
		int64_t axis = attr_int(call, attr, i);

		if (axis < -rank || axis >= rank)
			return op_call_refuse(call,
					      "attribute \"%s\" has the value %lld, but input "
					      "\"%s\" has %lld dimensions",
					      name, (long long)axis, call->in[0]->name,
					      (long long)rank);
		if (axis < 0)
			axis += rank;
		if (bits & 1u << axis)
			return op_call_refuse(call, "attribute \"%s\" names dimension %lld twice",
					      name, (long long)axis);
		bits |= (uint8_t)(1u << axis);
	}
	*ret = bits;
	return 0;
}

/* The first bytes of a string, which nobody has checked, in a form that can be shown. */
static const char *string_print(const struct op_call *call, const struct rbk_plan_attr *attr,
				char text[33])
{
	unsigned int n = attr->n < 32 ? attr->n : 32;

	for (unsigned int i = 0; i < n; i++) {
		uint8_t c = call->blob[attr->blob_offset + i];

		text[i] = c >= 0x20 && c <= 0x7e ? (char)c : '?';
	}
	text[n] = 0;
	return text;
}

int op_call_choice(struct op_call *call, const char *name, const char *const *values,
		   unsigned int *ret)
{
	const struct rbk_plan_attr *attr = find_attr(call, name);
	char expected[128] = "", given[33];
	size_t used = 0;

	*ret = 0;
	if (!attr)
		return 0;
	for (unsigned int i = 0; values[i]; i++) {
		if (strlen(values[i]) == attr->n &&
		    !memcmp(values[i], call->blob + attr->blob_offset, attr->n)) {
			*ret = i;
			return 0;
		}
		if (used < sizeof(expected))
			used += (size_t)snprintf(expected + used, sizeof(expected) - used, "%s%s",
						 i ? ", " : "", values[i]);
	}
	return op_call_refuse(call, "attribute \"%s\" is \"%s\", expected one of %s", name,
			      string_print(call, attr, given), expected);
}

int op_call_floats(struct op_call *call)
{
	for (unsigned int i = 0; i < call->n_in; i++) {
		if (call->in[i] && call->in[i]->dtype != RBK_DTYPE_F32)
			return op_call_refuse(call, "input \"%s\" is %s, expected float32",
					      call->in[i]->name, dtype_name(call->in[i]->dtype));
	}
	return 0;
}

/* Dimension @i of a shape seen as having @rank dimensions, the missing ones in front being 1. */
static struct dim dim_aligned(const struct shape *shape, unsigned int used, unsigned int rank,
			      unsigned int i)
{
	if (i < rank - used)
		return (struct dim){.n = 1};
	return shape_get(shape, i - (rank - used));
}

int op_call_broadcast(struct op_call *call, unsigned int skip, struct shape *ret)
{
	const struct tensor *a = call->in[0], *b = call->in[1];
	unsigned int a_rank = a->shape.rank > skip ? a->shape.rank - skip : 0;
	unsigned int b_rank = b->shape.rank > skip ? b->shape.rank - skip : 0;
	unsigned int rank = a_rank > b_rank ? a_rank : b_rank;

	*ret = (struct shape){.rank = (uint8_t)rank};
	for (unsigned int i = 0; i < rank; i++) {
		struct dim x = dim_aligned(&a->shape, a_rank, rank, i);
		struct dim y = dim_aligned(&b->shape, b_rank, rank, i);
		struct dim dim = dim_is(x, 1) ? y : x;

		if (!dim_is(x, 1) && !dim_is(y, 1) && !dim_equal(x, y))
			return op_call_refuse(call,
					      "inputs \"%s\" %s and \"%s\" %s do not broadcast: "
					      "dimension %u would be %s and %s, expected equal "
					      "numbers or a 1",
					      a->name, SHAPE_TEXT(&a->shape), b->name,
					      SHAPE_TEXT(&b->shape), i, DIM_TEXT(x), DIM_TEXT(y));
		if (dim.is_count && i != 0)
			return op_call_refuse(call,
					      "inputs \"%s\" %s and \"%s\" %s would make count "
					      "dimension %u of the output, expected it to stay the "
					      "leading one",
					      a->name, SHAPE_TEXT(&a->shape), b->name,
					      SHAPE_TEXT(&b->shape), i);
		ret->dims[i] = dim.n;
		ret->dynamic |= dim.is_count;
	}
	return 0;
}

static uint64_t saturating_add(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return checked_add(a, b, &sum) ? sum : UINT64_MAX;
}

static uint64_t saturating_mul(uint64_t a, uint64_t b)
{
	uint64_t product;

	return checked_mul(a, b, &product) ? product : UINT64_MAX;
}

/* Elements of a row of a dynamic shape, of everything else. */
static uint64_t shape_unit_elems(const struct shape *shape)
{
	uint64_t n = 1;

	for (unsigned int i = shape->dynamic; i < shape->rank; i++)
		n = saturating_mul(n, shape->dims[i]);
	return n;
}

void cost_add(struct cost *sum, const struct cost *cost)
{
	sum->flops_fixed = saturating_add(sum->flops_fixed, cost->flops_fixed);
	sum->flops_row = saturating_add(sum->flops_row, cost->flops_row);
	sum->bytes_fixed = saturating_add(sum->bytes_fixed, cost->bytes_fixed);
	sum->bytes_row = saturating_add(sum->bytes_row, cost->bytes_row);
}

void cost_elems(struct cost *cost, const struct shape *shape, uint64_t flops)
{
	uint64_t *sum = shape->dynamic ? &cost->flops_row : &cost->flops_fixed;

	*sum = saturating_add(*sum, saturating_mul(shape_unit_elems(shape), flops));
}

static void cost_bytes(struct cost *cost, const struct shape *shape, uint8_t dtype)
{
	uint64_t *sum = shape->dynamic ? &cost->bytes_row : &cost->bytes_fixed;

	*sum = saturating_add(*sum, saturating_mul(shape_unit_elems(shape), dtype_bytes(dtype)));
}

void cost_tensors(struct cost *cost, const struct op_call *call)
{
	for (unsigned int i = 0; i < call->n_in; i++) {
		if (call->in[i])
			cost_bytes(cost, &call->in[i]->shape, call->in[i]->dtype);
	}
	for (unsigned int i = 0; i < call->n_out; i++) {
		if (call->out[i])
			cost_bytes(cost, &call->out_shape[i], call->out_dtype[i]);
	}
}

uint64_t dtype_bytes(uint8_t dtype)
{
	switch (dtype) {
	case RBK_DTYPE_F32:
		return 4;
	case RBK_DTYPE_I64:
		return 8;
	}
	return 0;
}

const char *dtype_name(uint8_t dtype)
{
	switch (dtype) {
	case RBK_DTYPE_F32:
		return "float32";
	case RBK_DTYPE_I64:
		return "int64";
	}
	return "unknown";
}
