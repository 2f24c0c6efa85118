#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerctl run: run an ONNX model over arrays in files
 *
 * run.c is the subcommand. run-files.c assigns files to inputs and outputs, and reads, compares and
 * writes them. run-broker.c connects. run-report.c prints. run-check.c implements --check, which
 * runs nothing.
 */
#include <stdbool.h>
#include <stdint.h>

#include "command.h"
#include "models/model.h"
#include "private-broker.h"
#include "segments.h"

/* A file that the command line names for an input or an output. */
struct run_file {
	enum option_id option; /* OPT_INPUT, OPT_RUN_OUTPUT, OPT_EXPECT */
	const char *path;
	unsigned int index; /* index of the input or output */
	struct array array; /* contents of the file */
	/* for OPT_EXPECT, set by run_files_compare() */
	int result;
	struct array_difference difference;
};

struct run {
	const struct arguments *arguments;
	const char *path; /* path of the model */
	enum run_device device;
	double rtol, atol; /* tolerances; negative: the default of the type */
	uint32_t max_rows; /* 0: not given */
	uint32_t disable;  /* RBK_ONNX_OPT_* */
	unsigned int n_repeats;
	double seconds; /* --seconds; 0: not given */
	struct model *model;
	struct rbk_onnx *onnx; /* owned by the model */
	unsigned int n_files;
	struct run_file files[MAX_GIVEN];
	struct broker_process *broker; /* the private broker; NULL: a broker ran already */
	unsigned int n_devices;
	struct rbk_device devices[RBK_MAX_DEVICES];
	struct model_times *times;      /* array of n_repeats */
	struct model_node *nodes;       /* --profile */
	struct segment_entry *segments; /* --profile: those of the tenant's tasks */
	struct task_segments last;      /* of these, those of the last task */
	/* steps that the chosen devices cannot run */
	unsigned int n_unable;
	struct model_unable *unable;
};

/*
 * run-files.c.
 * Return: EXIT_OK, or EXIT_USAGE after an error message.
 */
int run_files_read(struct run *run);
int run_files_write(const struct run *run);
/* Return: true if all outputs are as expected. */
bool run_files_compare(struct run *run);
const char *run_output_name(const struct run *run, unsigned int index);

/*
 * run-broker.c.
 * Return: EXIT_*, after an error message if it is not EXIT_OK.
 */
int run_connect(struct run *run, struct control *control);

/* run-report.c */
void run_print(const struct run *run);
void run_print_json(const struct run *run);
/*
 * Warn on standard error about outputs that differ from the file's declarations. The model is
 * compiled.
 */
void run_warn(const struct run *run);
/* Print everything that the loader rejects, to standard error. */
void run_print_refusals(const struct run *run);
/* Return the chosen device for a message: "the GPU", "the CPU" or "any device". */
const char *run_where_not(const struct run *run);
/* Print the steps that no chosen device runs, to standard error. */
void run_print_unable(const struct run *run);
/*
 * Print the member "refusals" of a JSON object: the steps that no chosen device runs; @why, if it
 * is not NULL and there are no such steps; the loader's refusals, if @why is NULL.
 */
void run_json_refusals(const struct run *run, const char *why);
/* Print the JSON object of a model that is not run. */
void run_print_json_refused(const struct run *run, const char *why);

/*
 * Check a model without running it (run-check.c).
 * Return: EXIT_OK if the model can be run, or EXIT_USAGE after an error message.
 */
int run_check_model(struct run *run);

/*
 * A progress bar on standard error, if that is a terminal, for work that takes long
 * (run-progress.c).
 */
struct run_progress {
	const char *what; /* label, such as "running" */
	uint64_t total, before;
	uint64_t began_ns, drawn_ns;
	bool is_terminal, is_drawn;
};
void run_progress_begin(struct run_progress *progress, const char *what, uint64_t total);
/*
 * Show @done, added to the work of earlier calls. Suits model_how.progress; @progress is its data.
 */
void run_progress_show(void *progress, uint64_t done);
void run_progress_end(struct run_progress *progress);
