/* SPDX-License-Identifier: MIT */
/*
 * Models and their inputs
 *
 * The shapes of the given arrays settle the dimensions that a file leaves open. Two ways are tried
 * in this order. With rows, the leading dimension follows each task's count, so that many rows are
 * divided among several tasks. The file must leave that dimension open or set it to 1, and the
 * loader must find that every row is computed by itself. Without rows, every dimension is that of
 * the arrays.
 *
 * Values on which shapes depend (the "starts" of Slice) become constants. The loader names these
 * inputs when it compiles without knowing them, so compiling is repeated until it names no more.
 */
#include "models/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model-private.h"
#include "util/cleanup.h"

_Static_assert((int)ARRAY_F32 == (int)RBK_ONNX_F32 && (int)ARRAY_U8 == (int)RBK_ONNX_U8 &&
		       (int)ARRAY_I8 == (int)RBK_ONNX_I8 && (int)ARRAY_I32 == (int)RBK_ONNX_I32 &&
		       (int)ARRAY_I64 == (int)RBK_ONNX_I64 &&
		       (int)ARRAY_BOOL == (int)RBK_ONNX_BOOL &&
		       (int)ARRAY_F16 == (int)RBK_ONNX_F16 && (int)ARRAY_F64 == (int)RBK_ONNX_F64,
	       "ONNX's numbers");
_Static_assert((int)ARRAY_MAX_RANK == RBK_ONNX_MAX_RANK, "one rank");

/* Default limits of a task: enough rows to keep a device busy, few enough to show progress. */
enum { TASK_ROWS = 1024, TASK_BYTES = 32 << 20 };

int model_fail(char why[MODEL_WHY_BYTES], int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, MODEL_WHY_BYTES, format, args);
	va_end(args);
	return error;
}

/* ---- Opening ---- */

void prepared_deinit(struct prepared *prepared)
{
	rbk_ring_free(prepared->ring);
	rbk_plan_free(prepared->plan);
	rbk_arena_free(prepared->arena);
	*prepared = (struct prepared){.n_bound = 0};
}

struct model *model_free(struct model *model)
{
	if (!model)
		return NULL;
	prepared_deinit(&model->prepared);
	for (unsigned int i = 0; model->outputs && i < model->n_outputs; i++)
		array_deinit(&model->outputs[i]);
	rbk_onnx_free(model->onnx);
	free(model->inputs);
	free(model->outputs);
	free(model);
	return NULL;
}

DEFINE_CLEANUP(struct model *, model_free)

int model_open(const char *path, struct model **ret, char why[MODEL_WHY_BYTES])
{
	_cleanup_(model_freep) struct model *model = calloc(1, sizeof(*model));
	struct rbk_error error = {""};
	int r;

	if (!model)
		return model_fail(why, -ENOMEM, "out of memory");
	r = rbk_onnx_load(path, &model->onnx, &error);
	if (r)
		return model_fail(why, r, "%s", error.text);
	model->n_inputs = rbk_onnx_n_inputs(model->onnx);
	model->n_outputs = rbk_onnx_n_outputs(model->onnx);
	model->inputs = calloc(model->n_inputs + 1, sizeof(*model->inputs));
	model->outputs = calloc(model->n_outputs + 1, sizeof(*model->outputs));
	if (!model->inputs || !model->outputs)
		return model_fail(why, -ENOMEM, "out of memory");
	for (unsigned int i = 0; i < model->n_inputs; i++) {
		r = rbk_onnx_input(model->onnx, i, &model->inputs[i].value);
		if (r)
			return model_fail(why, r, "input %u: %s", i, strerror(-r));
	}
	*ret = steal_ptr(model);
	return 0;
}

struct rbk_onnx *model_onnx(const struct model *model)
{
	return model->onnx;
}

/* ---- Inputs ---- */

/* Write the type and shape that the file declares, such as "float32 [batch,1,28,28]". */
static void declared_text(const struct rbk_onnx_value *value, char ret[ARRAY_TEXT_BYTES])
{
	int n = snprintf(ret, ARRAY_TEXT_BYTES, "%s ", rbk_onnx_dtype_name(value->dtype));

	if (value->rank < 0) {
		snprintf(ret + n, (size_t)(ARRAY_TEXT_BYTES - n), "of any shape");
		return;
	}
	n += snprintf(ret + n, (size_t)(ARRAY_TEXT_BYTES - n), "[");
	for (int i = 0; i < value->rank && n < ARRAY_TEXT_BYTES - 32; i++) {
		n += snprintf(ret + n, (size_t)(ARRAY_TEXT_BYTES - n), i ? "," : "");
		if (value->dims[i] >= 0)
			n += snprintf(ret + n, (size_t)(ARRAY_TEXT_BYTES - n), "%" PRId64,
				      value->dims[i]);
		else
			n += snprintf(ret + n, (size_t)(ARRAY_TEXT_BYTES - n), "%.20s",
				      value->dim_names[i] ? value->dim_names[i] : "?");
	}
	snprintf(ret + n, (size_t)(ARRAY_TEXT_BYTES - n), "]");
}

/* Return true if an array of that shape may be given. A leading 1 may stand for any number. */
static bool allows(const struct rbk_onnx_value *value, const struct array *array)
{
	if (value->rank < 0)
		return true;
	if ((unsigned int)value->rank != array->rank)
		return false;
	for (unsigned int i = 0; i < array->rank; i++)
		if (value->dims[i] >= 0 && value->dims[i] != array->dims[i] &&
		    !(i == 0 && value->dims[i] == 1))
			return false;
	return true;
}

int model_check_input(const struct model *model, unsigned int index, char why[MODEL_WHY_BYTES])
{
	const struct rbk_onnx_value *value = &model->inputs[index].value;

	if (array_dtype_bytes(value->dtype))
		return 0;
	return model_fail(
		why, MODEL_E_INPUT,
		"its input %.200s is %s, which no device computes with: export the model "
		"with float32, float16, float64, int8, uint8, int32, int64 or bool instead",
		value->name, rbk_onnx_dtype_name(value->dtype));
}

int model_give(struct model *model, unsigned int index, const struct array *array, const char *name,
	       char why[MODEL_WHY_BYTES])
{
	struct model_input *input = &model->inputs[index];
	char want[ARRAY_TEXT_BYTES], have[ARRAY_TEXT_BYTES];

	if (input->value.dtype != array->dtype || !allows(&input->value, array)) {
		declared_text(&input->value, want);
		array_describe(array, have);
		return model_fail(why, MODEL_E_INPUT, "input %.200s is %s, but %.200s has %s%s",
				  input->value.name, want, name, have,
				  input->value.dtype == ARRAY_BF16 && array->dtype != ARRAY_BF16
					  ? "; bfloat16 is given as a TensorProto in a .pb file"
					  : "");
	}
	input->array = array;
	input->called = name;
	return 0;
}

/* ---- Compiling ---- */

/*
 * Return true if the input's leading dimension may follow the count. A dimension of 1 may stand for
 * any number.
 */
static bool may_have_rows(const struct model_input *input)
{
	return input->array && input->array->rank > 0 && input->value.rank > 0 &&
	       (input->value.dims[0] < 0 || input->value.dims[0] == 1);
}

/*
 * Return the rows of the arrays whose leading dimension may follow the count; 0 if they disagree or
 * if there are none.
 */
static uint64_t count_rows(const struct model *model)
{
	uint64_t n_rows = 0;

	for (unsigned int i = 0; i < model->n_inputs; i++) {
		const struct model_input *input = &model->inputs[i];
		uint64_t n;

		if (!may_have_rows(input))
			continue;
		n = (uint64_t)input->array->dims[0];
		/* An input that is 1 in the file and the array may be broadcast. */
		if (n == 1 && input->value.dims[0] == 1)
			continue;
		if (n_rows && n != n_rows)
			return 0;
		n_rows = n;
	}
	return n_rows;
}

/*
 * Set the shapes of the model's inputs to those of their arrays, with @keep_leading except for
 * leading dimensions.
 */
static int set_shapes(struct model *model, bool keep_leading, char why[MODEL_WHY_BYTES])
{
	struct rbk_error error = {""};
	int64_t dims[RBK_ONNX_MAX_RANK];
	int r;

	for (unsigned int i = 0; i < model->n_inputs; i++) {
		const struct model_input *input = &model->inputs[i];

		if (!input->array || input->value.is_set)
			continue;
		memcpy(dims, input->array->dims, sizeof(dims));
		if (keep_leading && input->array->rank > 0)
			dims[0] = RBK_ONNX_DIM_OPEN;
		r = rbk_onnx_set_shape(model->onnx, input->value.name, (int)input->array->rank,
				       dims, &error);
		if (r == -EINVAL)
			return model_fail(why, MODEL_E_INPUT, "%s", error.text);
		if (r)
			return model_fail(why, r, "%s", error.text);
	}
	return 0;
}

static int set_value(struct model *model, struct model_input *input, char why[MODEL_WHY_BYTES])
{
	struct rbk_onnx_tensor tensor = {
		.dtype = input->array->dtype,
		.rank = (int)input->array->rank,
		.data = input->array->data,
		.n_bytes = input->array->bytes,
		.name = "",
	};
	struct rbk_error error = {""};
	int r;

	memcpy(tensor.dims, input->array->dims, sizeof(tensor.dims));
	r = rbk_onnx_set_input(model->onnx, input->value.name, &tensor, &error);
	if (r)
		return model_fail(why, r == -EINVAL ? MODEL_E_INPUT : r, "%s", error.text);
	input->value.is_set = 1;
	return 0;
}

/*
 * Make constants of the inputs whose values the loader asks for. *ret_n is their number.
 * Return: 0, or as model_compile().
 */
static int set_values(struct model *model, unsigned int *ret_n, char why[MODEL_WHY_BYTES])
{
	int r;

	*ret_n = 0;
	for (unsigned int i = 0; i < model->n_inputs; i++) {
		struct model_input *input = &model->inputs[i];

		r = rbk_onnx_input(model->onnx, i, &input->value);
		if (r)
			return model_fail(why, r, "input %u: %s", i, strerror(-r));
		if (!input->value.value_needed || input->value.is_set || !input->array)
			continue;
		r = set_value(model, input, why);
		if (r)
			return r;
		++*ret_n;
	}
	return 0;
}

/* Make constants of given inputs that have a default in the file. */
static int set_defaults(struct model *model, char why[MODEL_WHY_BYTES])
{
	int r = 0;

	for (unsigned int i = 0; i < model->n_inputs && r == 0; i++) {
		struct model_input *input = &model->inputs[i];

		if (input->value.is_optional && input->array && !input->value.is_set)
			r = set_value(model, input, why);
	}
	return r;
}

uint32_t model_max_count(const struct model *model, uint32_t rows)
{
	/* With a maximum of one row shapes would have no count. */
	return model->has_rows && rows < 2 ? 2 : rows;
}

static int compile(struct model *model, uint32_t rows, char why[MODEL_WHY_BYTES])
{
	struct rbk_error error = {""};
	unsigned int n_set = 0;
	int r;

	model->options = (struct rbk_onnx_options){
		.size = sizeof(model->options),
		.max_count = model_max_count(model, rows),
		.disable = model->disable,
		.keep_batch = !model->has_rows,
	};
	for (;;) {
		r = rbk_onnx_compile(model->onnx, &model->options, &error);
		if (r == 0)
			return 0;
		if (r != -EOPNOTSUPP)
			return model_fail(why, r, "%s", error.text);
		r = set_values(model, &n_set, why);
		if (r)
			return r;
		if (n_set == 0)
			break;
	}
	return model_fail(why, MODEL_E_REFUSED, "%s", error.text);
}

uint64_t bound_bytes(const struct rbk_onnx_bound *bound, uint64_t rows)
{
	return bound->bytes_fixed + rows * bound->bytes_row;
}

uint64_t bound_describe(const struct rbk_onnx_bound *bound, uint64_t rows,
			char text[ARRAY_TEXT_BYTES])
{
	struct array array = {.dtype = bound->dtype, .rank = bound->rank};
	uint64_t n_elems = 1;

	for (unsigned int i = 0; i < bound->rank; i++) {
		array.dims[i] = i == 0 && bound->dims[i] == RBK_DIM_COUNT
					? (int64_t)(rows * bound->per_count)
					: bound->dims[i];
		n_elems *= (uint64_t)array.dims[i];
	}
	array_describe(&array, text);
	return n_elems;
}

/* Check that the compiled model's inputs have exactly the bytes of the given arrays. */
static int check_bound(const struct model *model, uint64_t *ret_bytes_row,
		       char why[MODEL_WHY_BYTES])
{
	struct rbk_onnx_bound bound;
	uint64_t bytes_row = 0;

	for (unsigned int i = 0; i < rbk_onnx_n_bound(model->onnx); i++) {
		const struct model_input *input;

		if (rbk_onnx_bound(model->onnx, i, &bound))
			return model_fail(why, -EPROTO, "bound tensor %u is missing", i);
		bytes_row += bound.bytes_row;
		if (bound.is_output)
			continue;
		if (bound.index >= model->n_inputs)
			return model_fail(why, -EPROTO, "%.200s is no input of the model",
					  bound.name);
		input = &model->inputs[bound.index];
		if (!input->array)
			return model_fail(why, MODEL_E_INPUT, "input %.200s is missing",
					  bound.name);
		if (bound_bytes(&bound, model->n_rows) != input->array->bytes)
			return model_fail(
				why, MODEL_E_INPUT,
				"%.200s has %" PRId64 " rows, but the model computes %" PRIu64
				": its nodes do not work row by row",
				input->called, input->array->dims[0],
				bound.dims[0] == RBK_DIM_COUNT ? model->n_rows : (uint64_t)1);
	}
	*ret_bytes_row = bytes_row;
	return 0;
}

/* Return the rows of a task, for rows of @bytes_row bytes. */
static uint32_t rows_of_task(uint64_t n_rows, uint64_t bytes_row)
{
	uint64_t rows = TASK_BYTES / (bytes_row ? bytes_row : 1);

	rows = rows > TASK_ROWS ? TASK_ROWS : rows;
	rows = rows > n_rows ? n_rows : rows;
	return rows ? (uint32_t)rows : 1;
}

/*
 * Find the first step that computes rows from other rows.
 * Return: false if there is none.
 */
static bool find_mixing(const struct model *model, struct rbk_onnx_step *ret)
{
	for (unsigned int i = 0; i < rbk_onnx_n_steps(model->onnx); i++)
		if (rbk_onnx_step(model->onnx, i, ret) == 0 && ret->mixes_rows)
			return true;
	return false;
}

/* Return true if tasks read or write any element. */
static bool has_elements(const struct model *model)
{
	struct rbk_onnx_bound bound;

	for (unsigned int i = 0; i < rbk_onnx_n_bound(model->onnx); i++)
		if (rbk_onnx_bound(model->onnx, i, &bound) || bound_bytes(&bound, 1))
			return true;
	return false;
}

static int compile_fixed(struct model *model, char why[MODEL_WHY_BYTES])
{
	uint64_t bytes_row;
	int r;

	model->has_rows = false;
	model->n_rows = model->task_rows = 1;
	r = set_shapes(model, false, why);
	if (r == 0)
		r = compile(model, 1, why);
	if (r == 0)
		r = check_bound(model, &bytes_row, why);
	if (r == 0 && !has_elements(model))
		model->n_rows = 0;
	return r;
}

static int compile_rows(struct model *model, uint64_t n_rows, uint32_t max_rows,
			char why[MODEL_WHY_BYTES])
{
	struct rbk_onnx_step mixing;
	uint64_t bytes_row;
	int r;

	model->has_rows = true;
	model->n_rows = n_rows;
	r = set_shapes(model, true, why);
	if (r)
		return r;
	model->task_rows = max_rows && max_rows < n_rows ? max_rows : (uint32_t)n_rows;
	r = compile(model, model->task_rows, why);
	if (r == 0)
		r = check_bound(model, &bytes_row, why);
	/* The tensor with the rows is part of the plan, because shapes depend on its elements. */
	if (r == 0 && bytes_row == 0)
		return compile_fixed(model, why);
	if (r == 0 && find_mixing(model, &mixing)) {
		if (model->task_rows == n_rows)
			return 0;
		return model_fail(why, -EINVAL,
				  "%s %.200s computes rows from other rows, so tasks of %" PRIu32
				  " rows would give something else: all %" PRIu64 " are one task",
				  mixing.op, mixing.name, model->task_rows, n_rows);
	}
	if (r || max_rows || rows_of_task(n_rows, bytes_row) == model->task_rows)
		return r;
	model->task_rows = rows_of_task(n_rows, bytes_row);
	return compile(model, model->task_rows, why);
}

void model_disable(struct model *model, uint32_t optimisations)
{
	model->disable = optimisations;
}

/* Check that all inputs are given. The sentence names as many missing inputs as fit. */
static int check_given(const struct model *model, char why[MODEL_WHY_BYTES])
{
	char names[MODEL_WHY_BYTES - 64] = "";
	unsigned int n = 0;
	size_t used = 0;

	for (unsigned int i = 0; i < model->n_inputs; i++) {
		if (model->inputs[i].array || model->inputs[i].value.is_optional)
			continue;
		if (used < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%.200s",
						 n ? ", " : "", model->inputs[i].value.name);
		n++;
	}
	if (n == 0)
		return 0;
	return model_fail(why, MODEL_E_INPUT,
			  n == 1 ? "input %s is missing" : "inputs %s are missing", names);
}

int model_compile(struct model *model, uint32_t max_rows, char why[MODEL_WHY_BYTES])
{
	uint64_t n_rows;
	int r;

	model->is_compiled = false;
	r = check_given(model, why);
	if (!r)
		r = set_defaults(model, why);
	if (r)
		return r;
	r = MODEL_E_REFUSED;
	n_rows = count_rows(model);
	if (n_rows > 1 && n_rows <= INT32_MAX)
		r = compile_rows(model, n_rows, max_rows, why);
	if (r == MODEL_E_REFUSED || r == MODEL_E_INPUT) {
		char fixed_why[MODEL_WHY_BYTES];
		int fixed = compile_fixed(model, fixed_why);

		/* Report the first failure if the arrays do not fit fixed shapes either. */
		if (fixed != MODEL_E_INPUT || n_rows <= 1) {
			r = fixed;
			memcpy(why, fixed_why, sizeof(fixed_why));
		}
	}
	if (r == 0 && max_rows && !model->has_rows && model->n_rows && count_rows(model) != 1)
		r = model_fail(why, -EINVAL,
			       "its shapes are fixed, so that no tasks of %" PRIu32
			       " rows can be made of it: everything is one task",
			       max_rows);
	model->is_compiled = r == 0;
	return r;
}

/* ---- Without arrays ---- */

/* Return the size of dimension @name in a given array; @size if no array has it. */
static int64_t size_of(const struct model *model, const char *name, int64_t size)
{
	for (unsigned int i = 0; name && i < model->n_inputs; i++) {
		const struct model_input *input = &model->inputs[i];

		for (int k = 0; input->array && k < input->value.rank; k++)
			if (input->value.dim_names[k] && !strcmp(input->value.dim_names[k], name))
				return input->array->dims[k];
	}
	return size;
}

/* Set the open dimensions of inputs without an array. */
static int set_sizes(struct model *model, bool keep_leading, int64_t size,
		     char why[MODEL_WHY_BYTES])
{
	struct rbk_error error = {""};
	int64_t dims[RBK_ONNX_MAX_RANK];

	for (unsigned int i = 0; i < model->n_inputs; i++) {
		const struct rbk_onnx_value *value = &model->inputs[i].value;
		int r;

		if (model->inputs[i].array || value->is_set || value->rank < 0)
			continue;
		for (int k = 0; k < value->rank; k++) {
			dims[k] = value->dims[k];
			if (dims[k] < 0 && (k > 0 || !keep_leading))
				dims[k] = size_of(model, value->dim_names[k], k > 0 ? size : 1);
		}
		r = rbk_onnx_set_shape(model->onnx, value->name, value->rank, dims, &error);
		if (r)
			return model_fail(why, r, "%s", error.text);
	}
	return 0;
}

int model_try(struct model *model, uint32_t size, char why[MODEL_WHY_BYTES])
{
	int r = set_defaults(model, why);

	model->is_compiled = false;
	model->n_rows = model->task_rows = 1;
	for (int keep_leading = 1; r == 0 && keep_leading >= 0; keep_leading--) {
		model->has_rows = keep_leading;
		r = set_shapes(model, keep_leading, why);
		if (r == 0)
			r = set_sizes(model, keep_leading, size, why);
		if (r == 0)
			r = compile(model, 1, why);
		if (r != MODEL_E_REFUSED || !keep_leading)
			break;
		r = 0;
	}
	return r;
}

uint64_t model_rows(const struct model *model)
{
	return model->n_rows;
}

uint32_t model_task_rows(const struct model *model)
{
	return model->task_rows;
}

bool model_has_rows(const struct model *model)
{
	return model->has_rows;
}

/* ---- The file's declarations of outputs ---- */

/* Return true if the declared leading dimension is neither 1 nor that of the given rows. */
static bool rows_differ(const struct model *model, int64_t declared,
			const struct rbk_onnx_bound *bound)
{
	return model->is_compiled && declared != 1 &&
	       (uint64_t)declared != bound->per_count * model->n_rows;
}

static bool differs(const struct model *model, const struct rbk_onnx_value *declared,
		    const struct rbk_onnx_bound *bound)
{
	if (declared->dtype && declared->dtype != bound->dtype)
		return true;
	if (declared->rank < 0)
		return false;
	if ((uint32_t)declared->rank != bound->rank)
		return true;
	for (uint32_t i = 0; i < bound->rank; i++)
		if (declared->dims[i] >= 0 &&
		    (bound->dims[i] == RBK_DIM_COUNT ? rows_differ(model, declared->dims[i], bound)
						     : declared->dims[i] != bound->dims[i]))
			return true;
	return false;
}

bool model_contradicts(const struct model *model, unsigned int index, char why[MODEL_WHY_BYTES])
{
	char declared_as[ARRAY_TEXT_BYTES], computed_as[ARRAY_TEXT_BYTES];
	struct rbk_onnx_value declared;
	struct rbk_onnx_bound bound;

	if (rbk_onnx_output(model->onnx, index, &declared))
		return false;
	for (unsigned int i = 0; rbk_onnx_bound(model->onnx, i, &bound) == 0; i++) {
		if (!bound.is_output || bound.index != index || !differs(model, &declared, &bound))
			continue;
		declared_text(&declared, declared_as);
		bound_describe(&bound, model->n_rows, computed_as);
		model_fail(why, 0,
			   "the file declares output %.200s as %s, but it is computed as %s",
			   declared.name, declared_as, computed_as);
		return true;
	}
	return false;
}
