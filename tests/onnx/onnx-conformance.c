/* SPDX-License-Identifier: MIT */
/*
 * ONNX's operators, from loader to result
 *
 *	onnx-conformance DIR [--device cpu|gpu|both] [--missing FILE] [--skips FILE] [--verbose]
 *	onnx-conformance --help
 *
 * Each case below DIR (see cases.h) is a model with expected outputs. The loader reads the model,
 * and a private broker prepares it and runs it on each device; the outputs are compared with those
 * that ONNX expects. The report has a line for each operator and device, preceded by its failures,
 * and ends with how many cases, counted per device, passed, failed and were skipped. Exit status:
 * 0; 1 if a case failed; 2 if no case could be run; 77 if DIR does not exist.
 *
 * The GPU is lavapipe, or with RBK_TEST_GPU=real the machine's own. A task of the GPU's cases that
 * ran on the CPU is a failure.
 *
 * --skips names cases that are not run, at most one in fifty. --missing names operators or cases
 * that are known to fail, which are counted separately. A name whose cases all pass is a failure
 * until it is removed, so that the file only shrinks.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker-process/broker-process.h"
#include "models/model.h"
#include "onnx/cases.h"
#include "onnx/names.h"
#include "util/clock.h"

enum { CPU, GPU, N_DEVICES };
enum { MOST_SKIPPED_PERCENT = 2 };

static const char *const device_names[N_DEVICES] = {"cpu", "gpu"};

struct counts {
	size_t n_passed, n_failed, n_skipped, n_missing;
};

struct runner {
	bool wants[N_DEVICES];
	bool is_verbose;
	struct names skips, missing;
	struct broker_process *broker;
	struct rbk *rbk;
	struct counts counts;
};

/* ---- The broker --------------------------------------------------------------------------- */

static void disconnect(struct runner *runner)
{
	runner->rbk = rbk_disconnect(runner->rbk);
	runner->broker = broker_process_free(runner->broker);
}

static bool has_gpu(struct rbk *rbk)
{
	unsigned int n_devices = 0;

	return rbk_devices(rbk, NULL, 0, &n_devices) == 0 && n_devices > 1;
}

/*
 * Start a broker and connect to it.
 * Return: false if it does not start or lacks a required device.
 */
static bool is_connected(struct runner *runner)
{
	const char *wanted = getenv("RBK_TEST_GPU");
	bool is_real = wanted && strcmp(wanted, "real") == 0;
	const char *const arguments[] = {"--gpu",
					 !runner->wants[GPU] ? "none"
					 : is_real           ? "auto"
							     : "software",
					 "--cache",
					 "none",
					 "--calibration",
					 "none",
					 "--contention",
					 "none",
					 "--config",
					 "/dev/null",
					 NULL};
	struct rbk_options options = {
		.size = sizeof(options),
		.name = "onnx-conformance",
		.timeout_ns = 600000000000,
	};
	struct rbk_error error = {""};
	int r;

	if (runner->rbk)
		return true;
	r = broker_process_new(arguments, -1, &runner->broker);
	if (r) {
		fprintf(stderr, "onnx-conformance: no broker: %s\n", strerror(-r));
		return false;
	}
	options.socket_path = broker_process_socket(runner->broker);
	r = rbk_connect(&options, &runner->rbk, &error);
	if (r == 0 && (!runner->wants[GPU] || has_gpu(runner->rbk)))
		return true;
	fprintf(stderr, "onnx-conformance: %s\n", r ? error.text : "there is no GPU");
	disconnect(runner);
	return false;
}

/* ---- One case ----------------------------------------------------------------------------- */

struct running {
	struct model *model;
	struct array inputs[CASE_MAX_TENSORS], outputs[CASE_MAX_TENSORS]; /* arrays of the files */
	unsigned int places[CASE_MAX_TENSORS]; /* output indexes in the model */
};

static void running_deinit(struct running *running)
{
	model_free(running->model);
	for (unsigned int i = 0; i < CASE_MAX_TENSORS; i++) {
		array_deinit(&running->inputs[i]);
		array_deinit(&running->outputs[i]);
	}
}

/* Return the index of the model's input or output @name, or -1 if there is none. */
static int find_place(const struct rbk_onnx *onnx, bool is_output, const char *name)
{
	unsigned int n = is_output ? rbk_onnx_n_outputs(onnx) : rbk_onnx_n_inputs(onnx);
	struct rbk_onnx_value value;

	for (unsigned int i = 0; i < n; i++)
		if ((is_output ? rbk_onnx_output(onnx, i, &value)
			       : rbk_onnx_input(onnx, i, &value)) == 0 &&
		    strcmp(value.name, name) == 0)
			return (int)i;
	return -1;
}

/*
 * Match tensors by name if the model knows all names, else in order.
 * Return: false if the model has fewer.
 */
static bool find_places(const struct rbk_onnx *onnx, bool is_output,
			const struct case_tensor *tensors, unsigned int n_tensors,
			unsigned int *ret_places)
{
	unsigned int n = is_output ? rbk_onnx_n_outputs(onnx) : rbk_onnx_n_inputs(onnx), next = 0;
	bool is_named = true;

	for (unsigned int i = 0; i < n_tensors && is_named; i++) {
		int place = 0;

		if (!tensors[i].file)
			continue;
		place = tensors[i].name ? find_place(onnx, is_output, tensors[i].name) : -1;
		is_named = place >= 0;
		ret_places[i] = (unsigned int)place;
	}
	for (unsigned int i = 0; i < n_tensors && !is_named; i++) {
		if (!tensors[i].file)
			continue;
		if (next == n)
			return false;
		ret_places[i] = next++;
	}
	return true;
}

/*
 * Read the array of a file for input or output @place. When most cases were made, NumPy had no
 * bfloat16, so their files say uint16; the model has the true type.
 */
static int read_array(const struct rbk_onnx *onnx, bool is_output, unsigned int place,
		      const char *file, struct array *ret, char why[MODEL_WHY_BYTES])
{
	struct rbk_onnx_tensor tensor = {.data = NULL};
	struct rbk_onnx_value value = {.name = ""};
	void *data;
	int r;

	if (is_output)
		rbk_onnx_output(onnx, place, &value);
	else
		rbk_onnx_input(onnx, place, &value);
	if (value.dtype != RBK_ONNX_BF16 || rbk_onnx_tensor_load(file, &tensor, NULL))
		return model_read_array(file, ret, why);
	if (tensor.dtype == RBK_ONNX_U16)
		tensor.dtype = RBK_ONNX_BF16;
	r = array_new(tensor.dtype, (unsigned int)tensor.rank, tensor.dims, ret, &data);
	if (r == 0)
		memcpy(data, tensor.data, ret->bytes);
	else
		snprintf(why, MODEL_WHY_BYTES, "%.200s: %s", file, strerror(-r));
	rbk_onnx_tensor_free(&tensor);
	return r;
}

/* Return the loader's first refusal as text. */
static void refusal_text(struct rbk_onnx *onnx, char why[MODEL_WHY_BYTES])
{
	struct rbk_onnx_refusal refusal;

	if (rbk_onnx_n_refusals(onnx) && rbk_onnx_refusal(onnx, 0, &refusal) == 0)
		snprintf(why, MODEL_WHY_BYTES, "%.60s of opset %u: %.400s", refusal.op,
			 refusal.opset, refusal.reason);
}

/* Return: false, with the reason in @why. */
static bool prepare(struct runner *runner, const struct onnx_case *test, struct running *running,
		    char why[MODEL_WHY_BYTES])
{
	unsigned int places[CASE_MAX_TENSORS];
	struct rbk_onnx *onnx;
	int r;

	if (test->complaint[0]) {
		snprintf(why, MODEL_WHY_BYTES, "%s", test->complaint);
		return false;
	}
	if (model_open(test->model, &running->model, why))
		return false;
	onnx = model_onnx(running->model);
	if (!find_places(onnx, false, test->inputs, test->n_inputs, places) ||
	    !find_places(onnx, true, test->outputs, test->n_outputs, running->places)) {
		snprintf(why, MODEL_WHY_BYTES,
			 "the model has fewer inputs or outputs than the case");
		return false;
	}
	for (unsigned int i = 0; i < test->n_inputs; i++) {
		if (!test->inputs[i].file)
			continue;
		if (read_array(onnx, false, places[i], test->inputs[i].file, &running->inputs[i],
			       why) ||
		    model_give(running->model, places[i], &running->inputs[i], test->inputs[i].file,
			       why))
			return false;
	}
	for (unsigned int i = 0; i < test->n_outputs; i++)
		if (test->outputs[i].file &&
		    read_array(onnx, true, running->places[i], test->outputs[i].file,
			       &running->outputs[i], why))
			return false;
	r = model_compile(running->model, 0, why);
	if (r == MODEL_E_REFUSED)
		refusal_text(onnx, why);
	return r == 0 && model_prepare(running->model, runner->rbk, why) == 0;
}

static int compare_numbers(const void *first, const void *second)
{
	const float *a = first, *b = second;

	/* NaN sorts first. */
	if (isnan(*a) || isnan(*b))
		return isnan(*b) - isnan(*a);
	return *a < *b ? -1 : *a > *b;
}

/* Return the array's elements in ascending order, as float32. */
static void sort_elements(const struct array *array, struct array *ret)
{
	void *data;

	if (array_new(ARRAY_F32, array->rank, array->dims, ret, &data))
		abort();
	for (uint64_t i = 0; i < array->n_elems; i++)
		((float *)data)[i] = (float)array_number(array, i);
	if (array->n_elems)
		qsort(data, array->n_elems, sizeof(float), compare_numbers);
}

static bool compare_output(const struct case_tensor *tensor, const struct array *got,
			   const struct array *want, char why[MODEL_WHY_BYTES])
{
	struct array_difference difference;
	struct array sorted[2];
	double rtol, atol;
	int r;

	cases_tolerance(want->dtype, &rtol, &atol);
	rtol = tensor->rtol >= 0 ? tensor->rtol : rtol;
	atol = tensor->atol >= 0 ? tensor->atol : atol;
	r = array_compare(got, want, rtol, atol, &difference);
	if (r == ARRAY_E_VALUES && tensor->is_any_order) {
		sort_elements(got, &sorted[0]);
		sort_elements(want, &sorted[1]);
		r = array_compare(&sorted[0], &sorted[1], rtol, atol, &difference);
		array_deinit(&sorted[0]);
		array_deinit(&sorted[1]);
	}
	if (r)
		array_difference_text(r, got, want, &difference, why);
	return r == 0;
}

/* Return: false if the outputs are not as expected, with the reason in @why. */
static bool run_on(struct running *running, const struct onnx_case *test, int device,
		   char why[MODEL_WHY_BYTES])
{
	const struct model_how how = {.strategy = device == GPU ? RBK_STRATEGY_ONLY_GPU
								: RBK_STRATEGY_ONLY_CPU};
	struct model_times times;
	char what[MODEL_WHY_BYTES];

	if (model_run(running->model, &how, &times, why))
		return false;
	/* A task without elements runs on no device. */
	if (times.n_tasks > 0 &&
	    (times.n_tasks_on[RBK_DEVICE_CPU] == times.n_tasks) != (device == CPU)) {
		snprintf(why, MODEL_WHY_BYTES, "it ran on another device");
		return false;
	}
	for (unsigned int i = 0; i < test->n_outputs; i++) {
		if (!test->outputs[i].file ||
		    compare_output(&test->outputs[i],
				   model_output(running->model, running->places[i]),
				   &running->outputs[i], what))
			continue;
		snprintf(why, MODEL_WHY_BYTES, "output %u: %.800s", i, what);
		return false;
	}
	return true;
}

/* ---- All of them -------------------------------------------------------------------------- */

static void judge(struct runner *runner, const struct onnx_case *test, int device, bool is_good,
		  const char *why, struct counts *counts)
{
	struct named *named =
		names_find(&runner->missing, test->op, test->name, device_names[device]);

	if (named) {
		named->n_used++;
		named->n_good += is_good;
	}
	if (is_good)
		counts->n_passed++;
	else if (named)
		counts->n_missing++;
	else
		counts->n_failed++;
	if (!is_good && (!named || runner->is_verbose))
		printf("%s %s on %s: %s\n", named ? "missing" : "FAILED", test->name,
		       device_names[device], why);
}

static void run_case(struct runner *runner, const struct onnx_case *test,
		     struct counts counts[N_DEVICES])
{
	char why[MODEL_WHY_BYTES] = "there is no broker", run_why[MODEL_WHY_BYTES];
	struct running *running = calloc(1, sizeof(*running));
	bool is_prepared = false, is_tried = false;

	if (!running)
		abort();
	for (int device = 0; device < N_DEVICES; device++) {
		struct named *skip =
			names_find(&runner->skips, test->op, test->name, device_names[device]);

		if (!runner->wants[device])
			continue;
		if (skip) {
			skip->n_used++;
			counts[device].n_skipped++;
			printf("skipped %s on %s: %s\n", test->name, device_names[device],
			       skip->why);
			continue;
		}
		if (!is_tried && is_connected(runner))
			is_prepared = prepare(runner, test, running, why);
		is_tried = true;
		if (!is_prepared)
			judge(runner, test, device, false, why, &counts[device]);
		else
			judge(runner, test, device, run_on(running, test, device, run_why), run_why,
			      &counts[device]);
	}
	running_deinit(running);
	free(running);
}

static void print_counts(const struct runner *runner, const char *op,
			 struct counts counts[N_DEVICES], struct counts *total)
{
	for (int device = 0; device < N_DEVICES; device++) {
		struct counts *of = &counts[device];

		if (!runner->wants[device])
			continue;
		printf("%-24s %s  %zu passed, %zu failed, %zu skipped", op, device_names[device],
		       of->n_passed, of->n_failed, of->n_skipped);
		if (of->n_missing)
			printf(", %zu not there yet", of->n_missing);
		putchar('\n');
		total->n_passed += of->n_passed;
		total->n_failed += of->n_failed;
		total->n_skipped += of->n_skipped;
		total->n_missing += of->n_missing;
		*of = (struct counts){0};
	}
	fflush(stdout);
}

/* Disconnect from a broker that a case has ended, so that another one is started. */
static void check_broker(struct runner *runner)
{
	struct rbk_stats stats;

	if (runner->rbk && rbk_stats(runner->rbk, &stats)) {
		printf("the broker has ended: starting another one\n");
		disconnect(runner);
	}
}

/* Return: false if too many cases are skipped, or all cases of a name in --missing pass. */
static bool check_names(struct runner *runner)
{
	const struct counts *counts = &runner->counts;
	size_t n_all = counts->n_passed + counts->n_failed + counts->n_skipped + counts->n_missing;
	bool is_good = true;

	if (counts->n_skipped * 100 > n_all * MOST_SKIPPED_PERCENT) {
		printf("%zu of %zu are skipped: at most %d%% may be\n", counts->n_skipped, n_all,
		       MOST_SKIPPED_PERCENT);
		is_good = false;
	}
	for (size_t i = 0; i < runner->missing.n; i++) {
		const struct named *named = &runner->missing.named[i];

		if (named->n_used == 0 || named->n_good < named->n_used)
			continue;
		printf("%s%s%s passes: take it out of the list of what is missing (line %u)\n",
		       named->name, named->device[0] ? " " : "", named->device, named->line);
		is_good = false;
	}
	return is_good;
}

static int run_all(struct runner *runner, const struct onnx_cases *cases)
{
	struct counts counts[N_DEVICES] = {{0}};
	bool is_good;

	for (size_t i = 0; i < cases->n; i++) {
		const struct onnx_case *test = &cases->cases[i];

		run_case(runner, test, counts);
		check_broker(runner);
		if (i + 1 == cases->n || strcmp(cases->cases[i + 1].op, test->op) != 0)
			print_counts(runner, test->op, counts, &runner->counts);
	}
	is_good = check_names(runner);
	if (runner->counts.n_missing)
		printf("%zu not there yet, as %s\n", runner->counts.n_missing,
		       "the list of what is missing says");
	printf("%zu passed, %zu failed, %zu skipped\n", runner->counts.n_passed,
	       runner->counts.n_failed, runner->counts.n_skipped);
	return is_good && runner->counts.n_failed == 0 ? 0 : 1;
}

static void print_usage(FILE *file)
{
	fprintf(file, "usage: onnx-conformance DIR [--device cpu|gpu|both] [--missing FILE] "
		      "[--skips FILE] [--verbose]\n");
}

static int usage(const char *what)
{
	fprintf(stderr, "onnx-conformance: %s\n", what);
	print_usage(stderr);
	return 2;
}

/* --help prints the usage only and succeeds. */
static bool wants_help(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return true;
	return false;
}

static int read_options(int argc, char **argv, struct runner *runner)
{
	static const struct option options[] = {{"device", required_argument, NULL, 'd'},
						{"missing", required_argument, NULL, 'm'},
						{"skips", required_argument, NULL, 's'},
						{"verbose", no_argument, NULL, 'v'},
						{NULL, 0, NULL, 0}};
	const char *device = "both", *skips = SKIPS_FILE, *missing = NULL;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'd')
			device = optarg;
		else if (option == 'm')
			missing = optarg;
		else if (option == 's')
			skips = optarg;
		else if (option == 'v')
			runner->is_verbose = true;
		else
			return usage("that is no option");
	}
	if (optind + 1 != argc)
		return usage("one folder is wanted");
	runner->wants[CPU] = strcmp(device, "gpu") != 0;
	runner->wants[GPU] = strcmp(device, "cpu") != 0;
	if (runner->wants[CPU] && runner->wants[GPU] && strcmp(device, "both") != 0)
		return usage("--device is cpu, gpu or both");
	if (!names_read(skips, &runner->skips))
		return 2;
	return missing && !names_read(missing, &runner->missing) ? 2 : 0;
}

int main(int argc, char **argv)
{
	struct runner runner = {.is_verbose = false};
	struct onnx_cases cases = {NULL};
	int status, r;

	if (wants_help(argc, argv)) {
		print_usage(stdout);
		return 0;
	}
	clock_init();
	broker_process_init();
	status = read_options(argc, argv, &runner);
	if (status == 0) {
		r = cases_find(argv[optind], &cases);
		if (r)
			fprintf(stderr, "onnx-conformance: %s: %s\n", argv[optind], strerror(-r));
		else if (cases.n == 0)
			fprintf(stderr, "onnx-conformance: %s: there is no case\n", argv[optind]);
		status = r == -ENOENT                       ? 77
			 : cases.n && is_connected(&runner) ? run_all(&runner, &cases)
							    : 2;
	}
	disconnect(&runner);
	cases_deinit(&cases);
	names_deinit(&runner.skips);
	names_deinit(&runner.missing);
	return status;
}
