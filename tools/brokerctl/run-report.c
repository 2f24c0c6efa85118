/* SPDX-License-Identifier: MIT */
/*
 * brokerctl run: the report
 *
 * The text for people shows where the model ran and how long it took. For each output it shows the
 * comparison, or the first elements if the output is neither compared nor written. A table of nodes
 * follows. The JSON form has the same facts in one object.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/text.h"
#include "output.h"
#include "records.h"
#include "run.h"

enum { SHOWN_ELEMENTS = 6 };

/* ---- Times -------------------------------------------------------------------------------- */

struct spread {
	double median, least, most;
};

static int compare_doubles(const void *first, const void *second)
{
	const double *a = first, *b = second;

	return *a < *b ? -1 : *a > *b;
}

/* Summarise the tasks' time per run, in wall time of the client or execution time of the device. */
static struct spread spread_of(const struct run *run, bool is_wall)
{
	double *all = malloc(run->n_repeats * sizeof(*all));
	struct spread spread = {0};
	unsigned int n = run->n_repeats;

	if (!all)
		exit(control_fail(EXIT_USAGE, "out of memory"));
	for (unsigned int i = 0; i < n; i++)
		all[i] = (double)(is_wall ? run->times[i].wall_ns : run->times[i].exec_ns);
	qsort(all, n, sizeof(*all), compare_doubles);
	spread = (struct spread){n % 2 ? all[n / 2] : (all[n / 2 - 1] + all[n / 2]) / 2, all[0],
				 all[n - 1]};
	free(all);
	return spread;
}

/* Count the tasks that ran on a device, over all runs. */
static uint64_t tasks_on(const struct run *run, unsigned int device)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < run->n_repeats; i++)
		n += run->times[i].n_tasks_on[device];
	return n;
}

/* Count the tasks that ran on several devices, over all runs. */
static uint64_t partitioned_tasks(const struct run *run)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < run->n_repeats; i++)
		n += run->times[i].n_partitioned;
	return n;
}

static void print_where(const struct run *run)
{
	uint64_t n_tasks = run->times[0].n_tasks, n_partitioned = partitioned_tasks(run);
	const struct spread wall = spread_of(run, true), exec = spread_of(run, false);
	unsigned int n_devices = 0;

	if (model_rows(run->model) == 0) {
		puts("ran nowhere: there are no elements to compute");
		return;
	}
	printf("ran on");
	for (unsigned int i = 0; i < run->n_devices; i++) {
		if (!tasks_on(run, i))
			continue;
		printf("%s %s", n_devices++ ? " and" : "", device_label(i));
		if (run->devices[i].kind != RBK_DEVICE_KIND_CPU)
			printf(" (%s)", text_name(run->devices[i].name));
	}
	printf("%s", run->broker ? " of a broker for this run" : "");
	if (n_partitioned > 0)
		printf(", %" PRIu64 " of %" PRIu64 " tasks on several devices", n_partitioned,
		       n_tasks * run->n_repeats);
	if (model_rows(run->model) > 1)
		printf(", %" PRIu64 " rows in %" PRIu64 " task%s", model_rows(run->model), n_tasks,
		       n_tasks == 1 ? "" : "s");
	if (run->n_repeats == 1)
		printf(": %s, of which the device worked %s\n", text_ns(wall.median),
		       text_ns(exec.median));
	else
		printf("\n%u runs: %s in the median, %s to %s; the device worked %s\n",
		       run->n_repeats, text_ns(wall.median), text_ns(wall.least),
		       text_ns(wall.most), text_ns(exec.median));
}

/* ---- Outputs ------------------------------------------------------------------------------ */

static void print_elements(const struct array *array)
{
	char text[ARRAY_TEXT_BYTES];

	fputs(array->n_elems ? ":" : "", stdout);
	for (uint64_t i = 0; i < array->n_elems && i < SHOWN_ELEMENTS; i++) {
		array_element_text(array, i, text);
		printf(" %s", text);
	}
	puts(array->n_elems > SHOWN_ELEMENTS ? " ..." : "");
}

static void print_compared(const struct run_file *file, const struct array *got)
{
	char text[ARRAY_WHY_BYTES];

	if (file->result == 0) {
		printf("  as expected in %s: %" PRIu64 " element%s", text_name(file->path),
		       file->difference.n_elems, file->difference.n_elems == 1 ? "" : "s");
		if (file->difference.largest > 0)
			printf(", off by %.3g at most, where %.6g was expected",
			       file->difference.largest, file->difference.largest_of);
		putchar('\n');
		return;
	}
	array_difference_text(file->result, got, &file->array, &file->difference, text);
	printf("  NOT as expected in %s: %s\n", text_name(file->path), text);
}

static void print_output(const struct run *run, unsigned int index)
{
	const struct array *array = model_output(run->model, index);
	char text[ARRAY_TEXT_BYTES];
	bool is_used = false;

	array_describe(array, text);
	for (unsigned int i = 0; i < run->n_files; i++)
		is_used |= run->files[i].option != OPT_INPUT && run->files[i].index == index;
	printf("%s %s", text_name(run_output_name(run, index)), text);
	if (is_used)
		putchar('\n');
	else
		print_elements(array);
	for (unsigned int i = 0; i < run->n_files; i++) {
		const struct run_file *file = &run->files[i];

		if (file->index != index)
			continue;
		if (file->option == OPT_RUN_OUTPUT)
			printf("  written to %s\n", text_name(file->path));
		else if (file->option == OPT_EXPECT)
			print_compared(file, array);
	}
}

/* ---- Nodes -------------------------------------------------------------------------------- */

static bool is_measured(const struct run *run, unsigned int device)
{
	for (unsigned int i = 0; i < rbk_onnx_n_steps(run->onnx); i++)
		if (run->nodes[i].can[device])
			return true;
	return false;
}

static double total_of(const struct run *run, unsigned int device)
{
	double ns = 0;

	for (unsigned int i = 0; i < rbk_onnx_n_steps(run->onnx); i++)
		ns += (double)run->nodes[i].exec_ns[device];
	return ns;
}

static void print_nodes(const struct run *run)
{
	enum { MAX_SHOWN = (TABLE_COLUMNS - 2) / 2 };
	const char *heads[TABLE_COLUMNS + 1] = {"<NODE", "<OPERATOR"};
	static char labels[MAX_SHOWN][8];
	unsigned int shown[MAX_SHOWN], n_shown = 0;

	for (unsigned int i = 0; i < run->n_devices && n_shown < MAX_SHOWN; i++) {
		if (!is_measured(run, i))
			continue;
		snprintf(labels[n_shown], sizeof(labels[0]), "%s", device_label(i));
		heads[2 + 2 * n_shown] = labels[n_shown];
		heads[3 + 2 * n_shown] = "%";
		shown[n_shown++] = i;
	}
	printf("\nEach node by itself, in one task");
	if (model_has_rows(run->model))
		printf(" of %u row%s", model_task_rows(run->model),
		       model_task_rows(run->model) == 1 ? "" : "s");
	putchar('\n');
	table_begin("", heads);
	for (unsigned int i = 0; i < rbk_onnx_n_steps(run->onnx); i++) {
		const struct model_node *node = &run->nodes[i];

		table_cell("%s", text_name(node->step.name));
		table_cell("%s", text_name(node->step.op));
		for (unsigned int k = 0; k < n_shown; k++) {
			table_cell("%s", node->can[shown[k]]
						 ? text_ns((double)node->exec_ns[shown[k]])
						 : "-");
			table_cell("%s", text_percent((double)node->exec_ns[shown[k]],
						      total_of(run, shown[k])));
		}
	}
	table_cell("together");
	table_cell(" ");
	for (unsigned int k = 0; k < n_shown; k++) {
		table_cell("%s", text_ns(total_of(run, shown[k])));
		table_cell(" ");
	}
	table_end();
}

void run_print(const struct run *run)
{
	print_where(run);
	for (unsigned int i = 0; i < rbk_onnx_n_outputs(run->onnx); i++)
		print_output(run, i);
	if (run->last.n > 0)
		putchar('\n');
	segments_table(&run->last, "The last task, segment by segment");
	if (run->nodes)
		print_nodes(run);
}

void run_warn(const struct run *run)
{
	char why[MODEL_WHY_BYTES];

	for (unsigned int i = 0; i < rbk_onnx_n_outputs(run->onnx); i++)
		if (model_contradicts(run->model, i, why))
			control_fail(EXIT_OK, "%s: %s", text_name(run->path), text_name(why));
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void json_spread(const char *name, struct spread spread)
{
	json_object(name);
	json_number("median", spread.median);
	json_number("min", spread.least);
	json_number("max", spread.most);
	json_object_end();
}

static void json_devices(const struct run *run)
{
	json_array("devices");
	for (unsigned int i = 0; i < run->n_devices; i++) {
		if (!tasks_on(run, i))
			continue;
		json_item();
		json_unsigned("device", i);
		json_string("name", run->devices[i].name);
		json_unsigned("tasks", tasks_on(run, i));
		json_object_end();
	}
	json_array_end();
}

static void json_place(const char *name, const struct array *array, uint64_t index)
{
	int64_t at[ARRAY_MAX_RANK];

	array_place(array, index, at);
	json_array(name);
	for (unsigned int i = 0; i < array->rank; i++)
		json_signed(NULL, at[i]);
	json_array_end();
}

/* Return the largest difference. An unexpected NaN or infinity exceeds any number. */
static double largest_difference(const struct run_file *file, const struct array *got)
{
	double worst;

	if (file->result != ARRAY_E_VALUES)
		return file->difference.largest;
	worst = array_number(got, file->difference.worst) -
		array_number(&file->array, file->difference.worst);
	return isfinite(worst) ? file->difference.largest : worst;
}

static void json_compared(const struct run_file *file, const struct array *got)
{
	char text[ARRAY_WHY_BYTES];

	json_string("expected", file->path);
	json_boolean("matches", file->result == 0);
	json_unsigned("elements", file->difference.n_elems);
	json_unsigned("different", file->difference.n_different);
	json_number("largest_difference", largest_difference(file, got));
	if (file->result == 0)
		return;
	array_difference_text(file->result, got, &file->array, &file->difference, text);
	json_string("why", text);
	if (file->result == ARRAY_E_VALUES) {
		json_place("worst", &file->array, file->difference.worst);
		json_number("got", array_number(got, file->difference.worst));
		json_number("want", array_number(&file->array, file->difference.worst));
	}
}

static void json_output(const struct run *run, unsigned int index)
{
	const struct array *array = model_output(run->model, index);

	json_item();
	json_string("name", run_output_name(run, index));
	json_string("dtype", array_dtype_name(array->dtype));
	json_array("shape");
	for (unsigned int i = 0; i < array->rank; i++)
		json_signed(NULL, array->dims[i]);
	json_array_end();
	for (unsigned int i = 0; i < run->n_files; i++) {
		const struct run_file *file = &run->files[i];

		if (file->index != index)
			continue;
		if (file->option == OPT_RUN_OUTPUT)
			json_string("file", file->path);
		else if (file->option == OPT_EXPECT)
			json_compared(file, array);
	}
	json_object_end();
}

static void json_nodes(const struct run *run)
{
	json_array("nodes");
	for (unsigned int i = 0; i < rbk_onnx_n_steps(run->onnx); i++) {
		const struct model_node *node = &run->nodes[i];

		json_item();
		json_string("name", node->step.name);
		json_string("operator", node->step.op);
		json_array("devices");
		for (unsigned int k = 0; k < run->n_devices; k++) {
			if (!node->can[k])
				continue;
			json_item();
			json_unsigned("device", k);
			json_unsigned("exec_ns", node->exec_ns[k]);
			json_object_end();
		}
		json_array_end();
		json_object_end();
	}
	json_array_end();
}

void run_print_json(const struct run *run)
{
	json_begin();
	json_string("type", "run");
	json_string("model", run->path);
	json_unsigned("opset", rbk_onnx_opset(run->onnx));
	json_unsigned("nodes_in_file", rbk_onnx_n_nodes(run->onnx));
	json_boolean("private_broker", run->broker != NULL);
	json_unsigned("rows", model_rows(run->model));
	json_unsigned("task_rows", model_task_rows(run->model));
	json_unsigned("tasks", run->times[0].n_tasks);
	json_unsigned("runs", run->n_repeats);
	json_spread("wall_ns", spread_of(run, true));
	json_spread("exec_ns", spread_of(run, false));
	json_string("reason", rbk_reason_name(run->times[run->n_repeats - 1].reason));
	json_devices(run);
	json_unsigned("partitioned", partitioned_tasks(run));
	json_array("outputs");
	for (unsigned int i = 0; i < rbk_onnx_n_outputs(run->onnx); i++)
		json_output(run, i);
	json_array_end();
	if (run->nodes) {
		segments_json(&run->last);
		json_nodes(run);
	}
	json_end();
}

/* ---- Refusals ----------------------------------------------------------------------------- */

static void json_place_in_file(uint32_t node)
{
	if (node == UINT32_MAX)
		json_raw("node", "null");
	else
		json_unsigned("node", node);
}

static void json_refusal(const struct rbk_onnx_refusal *refusal)
{
	json_item();
	json_place_in_file(refusal->node);
	if (refusal->node != UINT32_MAX) {
		json_string("name", refusal->name);
		json_string("operator", refusal->op);
		json_unsigned("opset", refusal->opset);
	}
	json_string("reason", refusal->reason);
	json_object_end();
}

/* The operator is one of the plan, without an opset of the file. */
static void json_unable(const struct model_unable *unable)
{
	json_item();
	json_place_in_file(unable->step.node);
	json_string("name", unable->step.name);
	json_string("operator", unable->step.op);
	json_string("reason", unable->reason);
	json_object_end();
}

void run_json_refusals(const struct run *run, const char *why)
{
	struct rbk_onnx_refusal refusal = {.node = UINT32_MAX, .reason = why};

	json_array("refusals");
	for (unsigned int i = 0; i < run->n_unable; i++)
		json_unable(&run->unable[i]);
	if (why && why[0] && !run->n_unable)
		json_refusal(&refusal);
	for (unsigned int i = 0; !why && i < rbk_onnx_n_refusals(run->onnx); i++)
		if (rbk_onnx_refusal(run->onnx, i, &refusal) == 0)
			json_refusal(&refusal);
	json_array_end();
}

void run_print_json_refused(const struct run *run, const char *why)
{
	json_begin();
	json_string("type", "run");
	json_string("model", run->path);
	run_json_refusals(run, why);
	json_end();
}

/* List inputs whose elements must be known, with the option that supplies them. */
static void print_asked(const struct run *run)
{
	struct rbk_onnx_value value;

	for (unsigned int i = 0; i < rbk_onnx_n_inputs(run->onnx); i++)
		if (rbk_onnx_input(run->onnx, i, &value) == 0 && value.value_needed &&
		    !value.is_set)
			fprintf(stderr, "  (--input=%s=FILE supplies the elements of %s)\n",
				text_name(value.name), text_name(value.name));
}

void run_print_refusals(const struct run *run)
{
	unsigned int n = rbk_onnx_n_refusals(run->onnx);
	struct rbk_onnx_refusal refusal;

	control_fail(EXIT_USAGE, "%s cannot be run, for %u reason%s:", text_name(run->path), n,
		     n == 1 ? "" : "s");
	for (unsigned int i = 0; i < n; i++) {
		if (rbk_onnx_refusal(run->onnx, i, &refusal))
			continue;
		if (refusal.node == UINT32_MAX)
			fprintf(stderr, "  the model: %s\n", text_name(refusal.reason));
		else
			fprintf(stderr, "  node %u%s%s, %s of opset %u: %s\n", refusal.node,
				refusal.name[0] ? " " : "", text_name(refusal.name),
				text_name(refusal.op), refusal.opset, text_name(refusal.reason));
	}
	print_asked(run);
	fputs("  (supported operators: brokerctl devices --capabilities)\n", stderr);
}

const char *run_where_not(const struct run *run)
{
	return run->device == RUN_GPU   ? "the GPU"
	       : run->device == RUN_CPU ? "the CPU"
					: "any device";
}

void run_print_unable(const struct run *run)
{
	control_fail(EXIT_USAGE, "%s cannot run on %s, because of %u node%s:", text_name(run->path),
		     run_where_not(run), run->n_unable, run->n_unable == 1 ? "" : "s");
	for (unsigned int i = 0; i < run->n_unable; i++) {
		const struct model_unable *unable = &run->unable[i];

		if (unable->step.node == UINT32_MAX)
			fprintf(stderr, "  %s, made from no node of the file:",
				text_name(unable->step.name));
		else
			fprintf(stderr, "  node %u%s%s, %s:", unable->step.node,
				unable->step.name[0] ? " " : "", text_name(unable->step.name),
				text_name(unable->step.op));
		fprintf(stderr, " %s\n", text_name(unable->reason));
	}
	fputs("  (operators of each device: brokerctl devices --capabilities)\n", stderr);
}
