/* SPDX-License-Identifier: MIT */
/*
 * brokerctl run --check: what a model needs, and whether it can be run
 *
 * The check needs no broker, and uses the arrays on the command line. Dimensions that the file
 * leaves open and no array determines are tried with one size, and the output says so: a model that
 * is rejected with that size may work with another.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/text.h"
#include "output.h"
#include "run.h"

/*
 * Size of open dimensions: large enough for the windows of most networks, and divisible by their
 * strides.
 */
enum { TRIED_SIZE = 64 };

struct check {
	const struct run *run;
	int result; /* result of model_try() */
	const char *why;
	struct rbk_onnx_value *inputs; /* as declared by the file; a try sets open dimensions */
};

/* Return true if any value's leading dimension is the count of rows. */
static bool has_rows(const struct check *check)
{
	struct rbk_onnx_bound bound;

	for (unsigned int i = 0; check->result == 0 && i < rbk_onnx_n_bound(check->run->onnx); i++)
		if (rbk_onnx_bound(check->run->onnx, i, &bound) == 0 && bound.per_count)
			return true;
	return false;
}

/* Return true if dimension @k of input @i was tried with TRIED_SIZE. */
static bool was_tried(const struct check *check, unsigned int i, int k)
{
	const struct rbk_onnx_value *value = &check->inputs[i];

	/* A leading dimension is not reported after a failure, or if it is the count of rows. */
	if (value->dims[k] >= 0 || (k == 0 && (check->result || has_rows(check))))
		return false;
	for (unsigned int n = 0; n < check->run->n_files; n++)
		if (check->run->files[n].option == OPT_INPUT && check->run->files[n].index == i)
			return false;
	return true;
}

static const char *dim_name(const struct rbk_onnx_value *value, int k)
{
	return value->dim_names[k] ? value->dim_names[k] : "?";
}

/* Find the type and shape of an output; they are known only if the model can be run. */
static bool find_output(const struct check *check, unsigned int index, struct rbk_onnx_bound *ret)
{
	const struct rbk_onnx *onnx = check->run->onnx;

	for (unsigned int i = 0; check->result == 0 && i < rbk_onnx_n_bound(onnx); i++)
		if (rbk_onnx_bound(onnx, i, ret) == 0 && ret->is_output && ret->index == index)
			return true;
	return false;
}

/* Return: true if a step computes rows from other rows. */
static bool mixes_rows(const struct check *check)
{
	struct rbk_onnx_step step;

	for (unsigned int i = 0; i < rbk_onnx_n_steps(check->run->onnx); i++)
		if (rbk_onnx_step(check->run->onnx, i, &step) == 0 && step.mixes_rows)
			return true;
	return false;
}

/* ---- For people --------------------------------------------------------------------------- */

static void print_declared(const struct rbk_onnx_value *value)
{
	printf("%s ", value->dtype ? rbk_onnx_dtype_name(value->dtype) : "of some type,");
	if (value->rank < 0) {
		fputs("of any shape", stdout);
		return;
	}
	for (int k = 0; k < value->rank; k++) {
		putchar(k ? ',' : '[');
		if (value->dims[k] < 0)
			fputs(text_name(dim_name(value, k)), stdout);
		else
			printf("%" PRId64, value->dims[k]);
	}
	fputs(value->rank ? "]" : "[]", stdout);
}

static void print_inferred(const struct rbk_onnx_bound *bound)
{
	printf("%s ", rbk_onnx_dtype_name(bound->dtype));
	for (uint32_t k = 0; k < bound->rank; k++) {
		putchar(k ? ',' : '[');
		if (bound->dims[k] == RBK_DIM_COUNT)
			fputs("rows", stdout);
		else
			printf("%" PRIu32, bound->dims[k]);
	}
	fputs(bound->rank ? "]" : "[]", stdout);
}

static void print_values(const struct check *check)
{
	const struct rbk_onnx *onnx = check->run->onnx;
	struct rbk_onnx_bound bound;
	struct rbk_onnx_value value;

	for (unsigned int i = 0; i < rbk_onnx_n_inputs(onnx); i++) {
		printf("input %s: ", text_name(check->inputs[i].name));
		print_declared(&check->inputs[i]);
		if (check->inputs[i].is_optional)
			fputs(", has a default in the file", stdout);
		if (rbk_onnx_input(onnx, i, &value) == 0 && value.value_needed)
			fputs(", shapes depend on its elements", stdout);
		putchar('\n');
	}
	for (unsigned int i = 0; i < rbk_onnx_n_outputs(onnx); i++) {
		if (rbk_onnx_output(onnx, i, &value))
			continue;
		printf("output %s: ", text_name(value.name));
		if (find_output(check, i, &bound))
			print_inferred(&bound);
		else
			print_declared(&value);
		putchar('\n');
	}
}

static void print_tried(const struct check *check)
{
	for (unsigned int i = 0; i < rbk_onnx_n_inputs(check->run->onnx); i++)
		for (int k = 0; k < check->inputs[i].rank; k++)
			if (was_tried(check, i, k))
				printf("input %s: dimension %d (%s) is open, and was tried as %d; "
				       "--input gives arrays\n",
				       text_name(check->inputs[i].name), k,
				       text_name(dim_name(&check->inputs[i], k)),
				       k ? (int)TRIED_SIZE : 1);
}

static void print_check(const struct check *check)
{
	const struct run *run = check->run;
	const uint32_t n_nodes = rbk_onnx_n_nodes(run->onnx);
	const unsigned int n_steps = rbk_onnx_n_steps(run->onnx);

	printf("%s: opset %" PRIu32 ", %" PRIu32 " node%s\n", text_name(run->path),
	       rbk_onnx_opset(run->onnx), n_nodes, n_nodes == 1 ? "" : "s");
	print_values(check);
	print_tried(check);
	if (check->result)
		return;
	if (!has_rows(check))
		fputs("shapes are fixed: everything is one task\n", stdout);
	else if (mixes_rows(check))
		fputs("rows are computed from other rows: all of them are one task\n", stdout);
	else
		fputs("every row is computed by itself: there may be any number\n", stdout);
	printf("it can be run, in %u step%s\n", n_steps, n_steps == 1 ? "" : "s");
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void json_dims(const struct rbk_onnx_value *value)
{
	if (value->rank < 0) {
		json_raw("shape", "null");
		return;
	}
	json_array("shape");
	for (int k = 0; k < value->rank; k++) {
		if (value->dims[k] >= 0)
			json_signed(NULL, value->dims[k]);
		else if (value->dim_names[k])
			json_string(NULL, value->dim_names[k]);
		else
			json_raw(NULL, "null");
	}
	json_array_end();
}

static void json_inferred(const struct rbk_onnx_bound *bound)
{
	json_array("shape");
	for (uint32_t k = 0; k < bound->rank; k++) {
		if (bound->dims[k] == RBK_DIM_COUNT)
			json_string(NULL, "rows");
		else
			json_unsigned(NULL, bound->dims[k]);
	}
	json_array_end();
}

static void json_values(const struct check *check)
{
	const struct rbk_onnx *onnx = check->run->onnx;
	struct rbk_onnx_bound bound;
	struct rbk_onnx_value value;

	json_array("inputs");
	for (unsigned int i = 0; i < rbk_onnx_n_inputs(onnx); i++) {
		const struct rbk_onnx_value *input = &check->inputs[i];

		json_item();
		json_string("name", input->name);
		json_string("dtype", rbk_onnx_dtype_name(input->dtype));
		json_dims(input);
		json_boolean("optional", input->is_optional);
		json_boolean("value_needed",
			     rbk_onnx_input(onnx, i, &value) == 0 && value.value_needed);
		json_array("tried");
		for (int k = 0; k < input->rank; k++)
			if (was_tried(check, i, k))
				json_signed(NULL, k);
		json_array_end();
		json_object_end();
	}
	json_array_end();
	json_array("outputs");
	for (unsigned int i = 0; i < rbk_onnx_n_outputs(onnx); i++) {
		if (rbk_onnx_output(onnx, i, &value))
			continue;
		json_item();
		json_string("name", value.name);
		if (find_output(check, i, &bound)) {
			json_string("dtype", rbk_onnx_dtype_name(bound.dtype));
			json_inferred(&bound);
		} else {
			json_string("dtype", rbk_onnx_dtype_name(value.dtype));
			json_dims(&value);
		}
		json_object_end();
	}
	json_array_end();
}

static void json_check(const struct check *check)
{
	const struct run *run = check->run;

	json_begin();
	json_string("type", "model");
	json_string("model", run->path);
	json_boolean("runs", check->result == 0);
	json_unsigned("opset", rbk_onnx_opset(run->onnx));
	json_unsigned("nodes_in_file", rbk_onnx_n_nodes(run->onnx));
	json_values(check);
	if (check->result == 0) {
		json_boolean("rows", has_rows(check));
		json_boolean("mixes_rows", mixes_rows(check));
		json_unsigned("steps", rbk_onnx_n_steps(run->onnx));
	}
	run_json_refusals(run, check->result == MODEL_E_REFUSED ? NULL : check->why);
	json_end();
}

/* ---- The check ---------------------------------------------------------------------------- */

int run_check_model(struct run *run)
{
	const unsigned int n_inputs = rbk_onnx_n_inputs(run->onnx);
	char why[MODEL_WHY_BYTES] = "";
	struct check check = {.run = run, .why = why};

	check.inputs = calloc(n_inputs + 1, sizeof(*check.inputs));
	if (!check.inputs)
		return control_fail(EXIT_USAGE, "out of memory");
	for (unsigned int i = 0; i < n_inputs; i++)
		rbk_onnx_input(run->onnx, i, &check.inputs[i]);
	check.result = model_try(run->model, TRIED_SIZE, why);
	if (run->arguments->values[OPT_JSON])
		json_check(&check);
	else
		print_check(&check);
	free(check.inputs);
	if (check.result == 0)
		run_warn(run);
	if (check.result == MODEL_E_REFUSED)
		run_print_refusals(run);
	else if (check.result)
		control_fail(EXIT_USAGE, "%s: %s", text_name(run->path), text_name(why));
	return check.result ? EXIT_USAGE : EXIT_OK;
}
