/* SPDX-License-Identifier: MIT */
/*
 * brokerctl run: run a model
 *
 * All errors in the model, the files and the command line are found before the broker is asked for
 * anything. The model then runs --repeat times. Outputs are those of the last run. Times are those
 * of the tasks, without reading and writing files.
 */
#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker-process/broker-process.h"
#include "monitor/text.h"
#include "output.h"
#include "util/clock.h"

enum { MAX_REPEATS = 1000000, PROFILE_REPEATS = 5 };
static const double max_seconds = 86400;

/* ---- The command line --------------------------------------------------------------------- */

/*
 * Parse a tolerance; NULL leaves *@ret unchanged.
 * Return: false if @text is no tolerance.
 */
static bool take_tolerance(const char *text, double *ret)
{
	double value;
	char *end;

	if (!text)
		return true;
	value = strtod(text, &end);
	if (end == text || *end || !isfinite(value) || value < 0)
		return false;
	*ret = value;
	return true;
}

static bool take_number(const char *text, uint64_t max, uint64_t *ret)
{
	return !text || (pages_number(text, max, ret) && *ret > 0);
}

static const struct {
	const char *name;
	uint32_t bits;
} optimisations[] = {
	{"fold", RBK_ONNX_OPT_FOLD},
	{"no-ops", RBK_ONNX_OPT_NO_OPS},
	{"dead", RBK_ONNX_OPT_DEAD},
	{"share", RBK_ONNX_OPT_SHARE},
	{"conv-bn", RBK_ONNX_OPT_CONV_BN},
	{"norm", RBK_ONNX_OPT_NORM},
	{"activation", RBK_ONNX_OPT_ACTIVATION},
	{"attention", RBK_ONNX_OPT_ATTENTION},
	{"bias", RBK_ONNX_OPT_BIAS},
	{"fusion", RBK_ONNX_OPT_FUSION},
	{"all", RBK_ONNX_OPT_ALL},
};

/*
 * Parse names separated by commas.
 * Return: NULL, or the first unknown name.
 */
static const char *take_optimisations(const char *text, uint32_t *ret)
{
	while (text) {
		const size_t n = strcspn(text, ",");
		uint32_t bits = 0;

		for (size_t i = 0; i < sizeof(optimisations) / sizeof(optimisations[0]); i++)
			if (strlen(optimisations[i].name) == n &&
			    !strncmp(optimisations[i].name, text, n))
				bits = optimisations[i].bits;
		if (!bits)
			return text;
		*ret |= bits;
		text = text[n] ? text + n + 1 : NULL;
	}
	return NULL;
}

/*
 * Reject options that need a run, since --check runs nothing.
 * Return: EXIT_*, after an error message if it is not EXIT_OK.
 */
static int check_alone(const struct arguments *arguments)
{
	static const struct {
		enum option_id option;
		const char *name;
	} of_runs[] = {
		{OPT_RUN_OUTPUT, "output"}, {OPT_EXPECT, "expect"}, {OPT_RUN_DEVICE, "device"},
		{OPT_COUNT, "count"},       {OPT_REPEAT, "repeat"}, {OPT_PROFILE, "profile"},
		{OPT_RTOL, "rtol"},         {OPT_ATOL, "atol"},     {OPT_RUN_SECONDS, "seconds"},
	};

	for (size_t i = 0; i < sizeof(of_runs) / sizeof(of_runs[0]); i++)
		if (arguments->values[of_runs[i].option])
			return control_misuse(arguments,
					      "--check runs nothing: it cannot be combined with "
					      "--%s",
					      of_runs[i].name);
	return EXIT_OK;
}

static int read_options(const struct arguments *arguments, struct run *run)
{
	const char *seconds = arguments->values[OPT_RUN_SECONDS], *unknown;
	uint64_t n_repeats = 1, max_rows = 0;

	run->arguments = arguments;
	run->path = arguments->operands[0];
	run->rtol = run->atol = -1;
	if (private_broker_device(arguments, OPT_RUN_DEVICE, &run->device))
		return EXIT_USAGE;
	if (!take_tolerance(arguments->values[OPT_RTOL], &run->rtol))
		return control_misuse(arguments, "--rtol takes a number such as 1e-3, not %s",
				      text_name(arguments->values[OPT_RTOL]));
	if (!take_tolerance(arguments->values[OPT_ATOL], &run->atol))
		return control_misuse(arguments, "--atol takes a number such as 1e-6, not %s",
				      text_name(arguments->values[OPT_ATOL]));
	if (!take_number(arguments->values[OPT_REPEAT], MAX_REPEATS, &n_repeats))
		return control_misuse(arguments, "--repeat takes a number from 1 to %d, not %s",
				      (int)MAX_REPEATS, text_name(arguments->values[OPT_REPEAT]));
	if (seconds && (!control_seconds(seconds, max_seconds, &run->seconds) || run->seconds == 0))
		return control_misuse(arguments,
				      "--seconds takes seconds above 0, up to %g, not %s",
				      max_seconds, text_name(seconds));
	if (seconds && arguments->values[OPT_REPEAT])
		return control_misuse(arguments,
				      "--repeat and --seconds both say how often to run: give one");
	if (!take_number(arguments->values[OPT_COUNT], INT32_MAX, &max_rows))
		return control_misuse(arguments, "--count takes a number from 1 to %d, not %s",
				      INT32_MAX, text_name(arguments->values[OPT_COUNT]));
	unknown = take_optimisations(arguments->values[OPT_DISABLE], &run->disable);
	if (unknown)
		return control_misuse(arguments,
				      "--disable-optimisation takes names with commas between "
				      "them, as --help lists them, not %s",
				      text_name(unknown));
	if (arguments->values[OPT_CHECK] && check_alone(arguments))
		return EXIT_USAGE;
	run->n_repeats = seconds ? MAX_REPEATS : (unsigned int)n_repeats;
	run->max_rows = (uint32_t)max_rows;
	run->times = calloc(run->n_repeats, sizeof(*run->times));
	return run->times ? EXIT_OK : control_fail(EXIT_USAGE, "out of memory");
}

/* ---- The run ------------------------------------------------------------------------------ */

/*
 * Report an error of the models library.
 * Return: EXIT_*.
 */
static int failed(const struct run *run, int error, const char *why)
{
	if (run->arguments->values[OPT_JSON])
		run_print_json_refused(run, error == MODEL_E_REFUSED ? NULL : why);
	if (error == MODEL_E_REFUSED) {
		run_print_refusals(run);
		return EXIT_USAGE;
	}
	if (run->n_unable) {
		run_print_unable(run);
		return EXIT_USAGE;
	}
	if (error == MODEL_E_DEVICE)
		return control_fail(EXIT_USAGE,
				    "%s cannot run on %s: %s; brokerctl devices --capabilities "
				    "says what each device runs",
				    text_name(run->path), run_where_not(run), text_name(why));
	return control_fail(EXIT_USAGE, "%s: %s", text_name(run->path), text_name(why));
}

/* Report an error of a function that asked the broker, which may be gone. */
static int failed_there(const struct run *run, const struct control *control, int error,
			const char *why)
{
	struct rbk_error text;

	if (error != -ECONNRESET && error != -ETIME)
		return failed(run, error, why);
	snprintf(text.text, sizeof(text.text), "%.*s", (int)sizeof(text.text) - 1, why);
	return control_refused(control, error, &text);
}

static unsigned int strategy_of(const struct run *run)
{
	static const unsigned int strategies[] = {
		[RUN_AUTO] = RBK_STRATEGY_AUTO,
		[RUN_CPU] = RBK_STRATEGY_ONLY_CPU,
		[RUN_GPU] = RBK_STRATEGY_ONLY_GPU,
		[RUN_PREFER_GPU] = RBK_STRATEGY_PREFER_GPU,
		[RUN_PARTITION] = RBK_STRATEGY_PARTITION,
	};

	return strategies[run->device];
}

/* Return the permitted devices as bits 1 << RBK_DEVICE_*. */
static uint32_t devices_of(const struct run *run)
{
	return run->device == RUN_CPU   ? 1u << RBK_DEVICE_CPU
	       : run->device == RUN_GPU ? ~(1u << RBK_DEVICE_CPU)
					: ~0u;
}

/* Explain why a device does not run steps that it supports. */
static void explain_away(const struct run *run, struct control *control, char why[MODEL_WHY_BYTES])
{
	const char *who = run->device == RUN_GPU   ? "the GPU"
			  : run->device == RUN_CPU ? "the CPU"
						   : "a device";
	int is_forced = 0;

	if (rbk_force_cpu(control->rbk, RBK_ASK, &is_forced, NULL) == 0 && is_forced)
		snprintf(why, MODEL_WHY_BYTES,
			 "%s could run it, but force-cpu is on now: no task runs on a GPU "
			 "(brokerctl force-cpu off)",
			 who);
	else
		snprintf(why, MODEL_WHY_BYTES,
			 "%s could run it, but is switched off or failing now (brokerctl devices)",
			 who);
}

/*
 * Find the nodes that no permitted device runs. @why explains the other causes: no single node, or
 * the present state of the devices.
 * Return: MODEL_E_DEVICE, or MODEL_E_AWAY if a device could run the model, but not now.
 */
static int find_unable(struct run *run, struct control *control, char why[MODEL_WHY_BYTES])
{
	struct run_progress progress;
	struct model_how how = {strategy_of(run), run_progress_show, &progress};
	char other[MODEL_WHY_BYTES];
	int r;

	run_progress_begin(&progress, "planning nodes", rbk_onnx_n_steps(run->onnx));
	r = model_find_unable(run->model, control->rbk, devices_of(run), &how, &run->unable,
			      &run->n_unable, other);
	run_progress_end(&progress);
	if (r == MODEL_E_AWAY) {
		explain_away(run, control, why);
		return r;
	}
	if (r)
		snprintf(why, MODEL_WHY_BYTES, "cannot tell which of its nodes prevent it: %.900s",
			 other);
	else if (!run->n_unable)
		snprintf(why, MODEL_WHY_BYTES,
			 "each of its nodes can run there alone, but all of them as one plan "
			 "cannot");
	return MODEL_E_DEVICE;
}

static int run_all(struct run *run, struct control *control)
{
	struct run_progress progress;
	struct model_how how = {strategy_of(run), run_progress_show, &progress};
	char why[MODEL_WHY_BYTES];
	int r = model_prepare(run->model, control->rbk, why);
	const double end_ns = (double)clock_now_ns() + 1e9 * run->seconds;
	unsigned int n = 0;

	/* The number of runs in some seconds is not known. */
	run_progress_begin(&progress, "running",
			   run->seconds > 0 ? 0 : model_rows(run->model) * run->n_repeats);
	while (n < run->n_repeats && r == 0 &&
	       (n == 0 || run->seconds == 0 || (double)clock_now_ns() < end_ns)) {
		r = model_run(run->model, &how, &run->times[n++], why);
		progress.before += model_rows(run->model);
	}
	run_progress_end(&progress);
	run->n_repeats = n > 0 ? n : 1;
	if (r == -EDOM)
		model_find_index(run->model, control->rbk, how.strategy, why);
	if (r == MODEL_E_DEVICE)
		r = find_unable(run, control, why);
	return r ? failed_there(run, control, r, why) : EXIT_OK;
}

static const char *step_name(const void *data, uint32_t node)
{
	struct rbk_onnx_step step;

	return rbk_onnx_step(data, node, &step) ? "?" : text_name(step.name);
}

/* Read the segments of the last task from the log, if the broker has cut the plan. */
static void read_segments(struct run *run, struct control *control)
{
	const uint64_t user_data = run->times[run->n_repeats - 1].user_data;
	struct tenant_page page = {.number = 0};
	const struct pages pages = {.tenants = &page, .n_tenants = 1};
	struct rbk_stats_decision decision;
	bool was_found = false;
	uint64_t head, oldest;
	size_t n;

	if (rbk_stats_map(control->rbk, RBK_STATS_OWN, 0, &page.view, NULL))
		return;
	head = log_head(&page);
	oldest = log_oldest(&page, head);
	while (head > oldest && !was_found)
		was_found = rbk_stats_decision(&page.view, --head, &decision) &&
			    decision.user_data == user_data;
	if (was_found && segments_read(&pages, &run->segments, &n) == 0) {
		run->last.of = segments_find(run->segments, n, 0, &decision, &run->last.n);
		run->last.node_name = step_name;
		run->last.data = run->onnx;
	}
	rbk_stats_unmap(&page.view);
}

static int profile(struct run *run, struct control *control)
{
	struct run_progress progress;
	struct model_how how = {RBK_STRATEGY_AUTO, run_progress_show, &progress};
	char why[MODEL_WHY_BYTES];
	unsigned int n_repeats =
		run->arguments->values[OPT_REPEAT] ? run->n_repeats : PROFILE_REPEATS;
	int r;

	run_progress_begin(&progress, "measuring nodes", rbk_onnx_n_steps(run->onnx));
	r = model_profile(run->model, control->rbk, devices_of(run), n_repeats, &how, &run->nodes,
			  why);
	run_progress_end(&progress);
	return r ? failed_there(run, control, r, why) : EXIT_OK;
}

/*
 * Report that the file is no model, and suggest the right command if it is an array.
 * Return: EXIT_USAGE.
 */
static int not_opened(const struct run *run, const char *why)
{
	char ignored[MODEL_WHY_BYTES];
	struct array array;

	if (run->arguments->values[OPT_JSON])
		run_print_json_refused(run, why);
	if (model_read_array(run->path, &array, ignored))
		return control_fail(EXIT_USAGE, "%s", text_name(why));
	array_deinit(&array);
	return control_fail(EXIT_USAGE, "%s; brokerctl run MODEL.onnx --input=%s runs one over it",
			    text_name(why), text_name(run->path));
}

static int load(struct run *run)
{
	char why[MODEL_WHY_BYTES];
	int status, r;

	r = model_open(run->path, &run->model, why);
	if (r)
		return not_opened(run, why);
	run->onnx = model_onnx(run->model);
	status = run_files_read(run);
	if (status)
		return status;
	model_disable(run->model, run->disable);
	if (run->arguments->values[OPT_CHECK])
		return run_check_model(run);
	r = model_compile(run->model, run->max_rows, why);
	if (r)
		return failed(run, r, why);
	run_warn(run);
	return EXIT_OK;
}

static int run_loaded(struct run *run, struct control *control)
{
	bool is_same;
	int status;

	status = run_connect(run, control);
	if (status == EXIT_OK)
		status = run_all(run, control);
	if (status == EXIT_OK)
		status = run_files_write(run);
	if (status)
		return status;
	is_same = run_files_compare(run);
	/* Without rows no node does any work that could be measured. */
	if (run->arguments->values[OPT_PROFILE] && model_rows(run->model)) {
		read_segments(run, control);
		status = profile(run, control);
	}
	if (status)
		return status;
	if (run->arguments->values[OPT_JSON])
		run_print_json(run);
	else
		run_print(run);
	return is_same ? EXIT_OK : EXIT_FAILED;
}

int run_model(struct control *control, const struct arguments *arguments)
{
	struct run *run = calloc(1, sizeof(*run));
	int status;

	if (!run)
		return control_fail(EXIT_USAGE, "out of memory");
	clock_init();
	status = read_options(arguments, run);
	if (status == EXIT_OK)
		status = load(run);
	if (status == EXIT_OK && !arguments->values[OPT_CHECK])
		status = run_loaded(run, control);
	model_free(run->model);
	control_disconnect(control);
	broker_process_free(run->broker);
	for (unsigned int i = 0; i < run->n_files; i++)
		array_deinit(&run->files[i].array);
	free(run->times);
	free(run->nodes);
	free(run->segments);
	free(run->unable);
	free(run);
	return status;
}

bool run_made_operator(unsigned int i, struct made_operator *ret)
{
	struct rbk_onnx_operator operator;

	if (rbk_onnx_operator(i, &operator))
		return false;
	*ret = (struct made_operator){operator.name, operator.since, operator.until };
	return true;
}
