/* SPDX-License-Identifier: MIT */
/*
 * Helpers of shape rules
 *
 * A refusal is a sentence for the model's author: it names the node, the tensor and what was
 * expected. Attribute readers know the node, so a rule names only an attribute and its range. All
 * text goes into one bounded buffer of the caller's; names in it were checked to be printable
 * before any rule runs.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "shm/operators/op-call.h"

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

int op_call_refuse(struct op_call *call, const char *format, ...)
{
	va_list args;
	int used;

	if (call->node_name[0])
		used = snprintf(call->message, OP_MESSAGE_BYTES,
				"node %u \"%s\" (%s): ", call->node_index, call->node_name,
				call->op->name);
	else
		used = snprintf(call->message, OP_MESSAGE_BYTES, "node %u (%s): ", call->node_index,
				call->op->name);
	va_start(args, format);
	vsnprintf(call->message + used, OP_MESSAGE_BYTES - (size_t)used, format, args);
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

bool op_call_has(const struct op_call *call, const char *name)
{
	return find_attr(call, name) != NULL;
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
		return op_call_refuse(call, "attribute \"%s\" has %u value%s, expected %u", name,
				      attr->n, attr->n == 1 ? "" : "s", n);
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

int op_call_list(struct op_call *call, const char *name, unsigned int max, int64_t min,
		 int64_t limit, int64_t *ret, unsigned int *ret_n)
{
	const struct rbk_plan_attr *attr = find_attr(call, name);

	*ret_n = attr ? attr->n : 0;
	if (*ret_n > max)
		return op_call_refuse(call, "attribute \"%s\" has %u values, expected at most %u",
				      name, *ret_n, max);
	return op_call_ints(call, name, *ret_n, min, limit, 0, ret, NULL);
}

int op_call_axis(struct op_call *call, int64_t fallback, uint8_t *ret)
{
	int64_t rank = call->in[0]->shape.rank, axis;
	int r;

	if (rank == 0)
		return op_call_refuse(call,
				      "input \"%s\" is a scalar, expected a dimension \"axis\"",
				      call->in[0]->name);
	r = op_call_int(call, "axis", -rank, rank - 1, fallback, &axis);
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

/* Print the first bytes of an unchecked string; '?' replaces unprintable bytes. */
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

/* Return dimension @i of a shape extended to @rank dimensions by ones in front. */
static struct dim dim_aligned(const struct shape *shape, unsigned int used, unsigned int rank,
			      unsigned int i)
{
	if (i < rank - used)
		return (struct dim){.n = 1};
	return shape_get(shape, i - (rank - used));
}

int op_call_broadcast(struct op_call *call, unsigned int skip, struct shape *ret)
{
	const struct op_tensor *a = call->in[0], *b = call->in[1];
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

static uint64_t saturating_mul(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Return the elements of a row of a dynamic shape, or all elements of a fixed one. */
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

void cost_bytes(struct cost *cost, const struct shape *shape, uint8_t dtype)
{
	uint64_t *sum = shape->dynamic ? &cost->bytes_row : &cost->bytes_fixed;

	*sum = saturating_add(*sum, saturating_mul(shape_unit_elems(shape), dtype_bytes(dtype)));
}

void cost_tensors(const struct op_call *call, struct cost *cost)
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

static int refuse_count(struct op_call *call, const char *what, unsigned int n, const char *bound,
			unsigned int limit)
{
	return op_call_refuse(call, "%u %s%s, expected at %s %u", n, what, n == 1 ? "" : "s", bound,
			      limit);
}

int op_call_check_arity(struct op_call *call)
{
	const struct op *op = call->op;

	if (call->n_in < op->min_in)
		return refuse_count(call, "input", call->n_in, "least", op->min_in);
	if (call->n_out < op->min_out)
		return refuse_count(call, "output", call->n_out, "least", op->min_out);
	if (call->n_in > op->max_in)
		return refuse_count(call, "input", call->n_in, "most", op->max_in);
	if (call->n_out > op->max_out)
		return refuse_count(call, "output", call->n_out, "most", op->max_out);
	return 0;
}

static int check_required(struct op_call *call)
{
	const struct op *op = call->op;

	for (unsigned int i = 0; i < op->min_in; i++) {
		if (!call->in[i])
			return op_call_refuse(call, "input %u is absent, but required", i);
	}
	for (unsigned int i = 0; i < op->min_out; i++) {
		if (!call->out[i])
			return op_call_refuse(call, "output %u is absent, but required", i);
	}
	return 0;
}

/* Check that attributes are known to the operator, of its type, not repeated, and complete. */
static int check_attrs(struct op_call *call)
{
	const struct op_attr *known;

	for (unsigned int i = 0; i < call->n_attrs; i++) {
		const struct rbk_plan_attr *attr = &call->attrs[i];

		for (known = call->op->attrs; known->name; known++) {
			if (!strcmp(known->name, attr->name))
				break;
		}
		if (!known->name) {
			char list[128] = "none";
			size_t used = 0;

			for (known = call->op->attrs; known->name && used < sizeof(list); known++)
				used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
							 used ? ", " : "", known->name);
			return op_call_refuse(call, "unknown attribute \"%s\", expected %s%s",
					      attr->name, used ? "one of " : "", list);
		}
		if (attr->type != known->type)
			return op_call_refuse(call,
					      "attribute \"%s\" has type %u, expected %u (1 int, 2 "
					      "float, 3 ints, 4 floats, 5 string)",
					      attr->name, attr->type, known->type);
		for (unsigned int j = 0; j < i; j++) {
			if (!strcmp(call->attrs[j].name, attr->name))
				return op_call_refuse(call, "attribute \"%s\" is given twice",
						      attr->name);
		}
	}
	for (known = call->op->attrs; known->name; known++) {
		unsigned int i = 0;

		while (i < call->n_attrs && strcmp(call->attrs[i].name, known->name))
			i++;
		if (known->required && i == call->n_attrs)
			return op_call_refuse(call, "attribute \"%s\" is missing", known->name);
	}
	return 0;
}

/* Return the index in op->classes of input or output @i. */
static unsigned int class_of(const struct op *op, const char *letters, unsigned int i)
{
	size_t last = strlen(letters) - 1;
	char letter = letters[i < last ? i : last];
	unsigned int class = 0;

	while (op->classes[class].name != letter)
		class ++;
	return class;
}

static uint32_t class_types(const struct op_class *class)
{
	return class->cpu | class->vulkan;
}

/* Print "float32" or "one of float32, float16". */
static const char *types_print(uint32_t types, char text[128])
{
	size_t used = 0;

	if (types & (types - 1))
		used = (size_t)snprintf(text, 128, "one of ");
	for (unsigned int bit = 0; bit < 32 && used < 128; bit++) {
		if (types >> bit & 1)
			used += (size_t)snprintf(text + used, 128 - used, "%s%s",
						 types & ((1u << bit) - 1) ? ", " : "",
						 dtype_name(bit));
	}
	return text;
}

/* Check the inputs' types; @first gets, by class, the first input of that class. */
static int check_types(struct op_call *call, const struct op_tensor *first[OP_MAX_CLASSES])
{
	const struct op *op = call->op;
	char text[128];

	for (unsigned int i = 0; i < call->n_in; i++) {
		const struct op_tensor *in = call->in[i];
		unsigned int class;

		if (!in)
			continue;
		class = class_of(op, op->in_classes, i);
		if (!(class_types(&op->classes[class]) >> in->dtype & 1))
			return op_call_refuse(call, "input \"%s\" is %s, expected %s", in->name,
					      dtype_name(in->dtype),
					      types_print(class_types(&op->classes[class]), text));
		if (!first[class])
			first[class] = in;
		if (first[class]->dtype != in->dtype)
			return op_call_refuse(call, "input \"%s\" is %s, expected %s as \"%s\"",
					      in->name, dtype_name(in->dtype),
					      dtype_name(first[class]->dtype), first[class]->name);
	}
	return 0;
}

int op_call_infer(struct op_call *call)
{
	const struct op_tensor *first[OP_MAX_CLASSES] = {NULL};
	const struct op *op = call->op;
	int r;

	r = op_call_check_arity(call);
	if (!r)
		r = check_required(call);
	if (!r)
		r = check_attrs(call);
	if (!r)
		r = check_types(call, first);
	if (r)
		return r;
	for (unsigned int i = 0; i < op->max_out; i++) {
		unsigned int class = class_of(op, op->out_classes, i);
		uint32_t types = class_types(&op->classes[class]);

		if (first[class])
			call->out_dtype[i] = first[class]->dtype;
		else if (!(types & (types - 1)))
			call->out_dtype[i] = (uint8_t)__builtin_ctz(types);
	}
	r = op->infer(call);
	if (r)
		return r;

	call->devices = OP_ON_CPU | OP_ON_VULKAN;
	for (unsigned int i = 0; i < call->n_in + call->n_out; i++) {
		bool is_in = i < call->n_in;
		unsigned int k = is_in ? i : i - call->n_in;
		const struct op_class *class;
		uint8_t dtype;

		if (!(is_in ? call->in[k] : call->out[k]))
			continue;
		class = &op->classes[class_of(op, is_in ? op->in_classes : op->out_classes, k)];
		dtype = is_in ? call->in[k]->dtype : call->out_dtype[k];
		if (!(class->cpu >> dtype & 1))
			call->devices &= (uint8_t)~OP_ON_CPU;
		if (!(class->vulkan >> dtype & 1))
			call->devices &= (uint8_t)~OP_ON_VULKAN;
	}
	return 0;
}
