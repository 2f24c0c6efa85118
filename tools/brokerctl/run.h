#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerctl run: an ONNX model over arrays in files
 *
 * run.c is the subcommand; run-files.c finds out which file belongs to what, and reads, compares
 * and writes them; run-broker.c connects; run-report.c prints; run-check.c is --check, for which
 * nothing is run.
 */
#include <stdbool.h>
#include <stdint.h>

#include "command.h"
#include "models/model.h"
#include "private-broker.h"

/* A file that the command line names for an input or an output. */
struct run_file {
	enum option_id option; /* OPT_INPUT, OPT_RUN_OUTPUT, OPT_EXPECT */
	const char *path;
	unsigned int index; /* of the input or output */
	struct array array; /* what was read of it */
	/* OPT_EXPECT, after run_files_compare(): */
	int result;
	struct array_difference difference;
};

struct run {
	const struct arguments *arguments;
	const char *path; /* of the model */
	enum run_device device;
	double rtol, atol; /* below 0: as of the type */
	uint32_t max_rows; /* 0: not said */
	uint32_t disable;  /* RBK_ONNX_OPT_* */
	unsigned int n_repeats;
	struct model *model;
	struct rbk_onnx *onnx; /* the model's */
	unsigned int n_files;
	struct run_file files[MAX_GIVEN];
	struct broker_process *broker; /* NULL: it was there */
	unsigned int n_devices;
	struct rbk_device devices[RBK_MAX_DEVICES];
	struct model_times *times; /* n_repeats of them */
	struct model_node *nodes;  /* --profile */
	/* What keeps the model from where it is to run. */
	unsigned int n_unable;
	struct model_unable *unable;
};

/* run-files.c. Return: EXIT_OK; EXIT_USAGE, having said why. */
int run_files_read(struct run *run);
int run_files_write(const struct run *run);
/* Return: are all as expected? */
bool run_files_compare(struct run *run);
const char *run_output_name(const struct run *run, unsigned int index);

/* run-broker.c. Return: EXIT_*, having said why. */
int run_connect(struct run *run, struct control *control);

/* run-report.c */
void run_print(const struct run *run);
void run_print_json(const struct run *run);
/* What the file says of outputs that is not so, to standard error. The model is compiled. */
void run_warn(const struct run *run);
/* Everything that the loader refuses, to standard error. */
void run_print_refusals(const struct run *run);
/* "the GPU", or whatever else the model is to run on and cannot. */
const char *run_where_not(const struct run *run);
/* What no device runs that it is to run on, likewise. */
void run_print_unable(const struct run *run);
/*
 * The same as the member "refusals" of a JSON object: with @why, that is the only one, as is what
 * kept the model from being read.
 */
void run_json_refusals(const struct run *run, const char *why);
/* The object of a model that is not run. */
void run_print_json_refused(const struct run *run, const char *why);

/* run-check.c. Return: EXIT_OK: it can be run; EXIT_USAGE, having said why not. */
int run_check_model(struct run *run);

/* run-progress.c: a bar on the terminal, where standard error is one, once it takes long. */
struct run_progress {
	const char *what; /* "running" */
	uint64_t total, before;
	uint64_t began_ns, drawn_ns;
	bool is_terminal, is_drawn;
};
void run_progress_begin(struct run_progress *progress, const char *what, uint64_t total);
/* @done beside what was before. As model_how.progress, of which it is the data. */
void run_progress_show(void *progress, uint64_t done);
void run_progress_end(struct run_progress *progress);
