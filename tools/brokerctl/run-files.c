/* SPDX-License-Identifier: MIT */
/*
 * brokerctl run: files of inputs and outputs
 *
 * The form is "NAME=FILE". Both an ONNX name and a path may contain '=', so the longest prefix that
 * is a name counts. A file without a name is for the only input or output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/suggest.h"
#include "monitor/text.h"
#include "run.h"

/* Limit of names listed in a message. */
enum { NAMES_SHOWN = 8 };

static const char *option_name(const struct run_file *file)
{
	return file->option == OPT_INPUT    ? "input"
	       : file->option == OPT_EXPECT ? "expect"
					    : "output";
}

static unsigned int n_values(const struct run *run, bool is_input)
{
	return is_input ? rbk_onnx_n_inputs(run->onnx) : rbk_onnx_n_outputs(run->onnx);
}

static struct rbk_onnx_value value_of(const struct run *run, bool is_input, unsigned int index)
{
	struct rbk_onnx_value value = {.name = ""};

	if (is_input)
		rbk_onnx_input(run->onnx, index, &value);
	else
		rbk_onnx_output(run->onnx, index, &value);
	return value;
}

const char *run_output_name(const struct run *run, unsigned int index)
{
	return value_of(run, false, index).name;
}

/* Return a list such as "a, b, c and 12 more". Static storage. */
static const char *list_names(const struct run *run, bool is_input)
{
	static char text[1024];
	unsigned int n = n_values(run, is_input);
	int at = 0;

	text[0] = '\0';
	for (unsigned int i = 0; i < n && i < NAMES_SHOWN; i++)
		at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%.100s", i ? ", " : "",
			       text_name(value_of(run, is_input, i).name));
	if (n > NAMES_SHOWN)
		snprintf(text + at, sizeof(text) - (size_t)at, " and %u more", n - NAMES_SHOWN);
	return text;
}

/*
 * Report an unknown name, with a suggestion.
 * Return: EXIT_USAGE.
 */
static int unknown_name(const struct run *run, bool is_input, const char *word)
{
	unsigned int n = n_values(run, is_input);
	const char **names = calloc(n + 1, sizeof(*names));
	const char *near = NULL;
	char name[256];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	for (unsigned int i = 0; names && i < n; i++)
		names[i] = value_of(run, is_input, i).name;
	if (names)
		near = suggest(name, names);
	if (near)
		control_fail(EXIT_USAGE, "%s has no %s %s; did you mean %s?", text_name(run->path),
			     is_input ? "input" : "output", text_name(name), text_name(near));
	else
		control_fail(EXIT_USAGE, "%s has no %s %s; there %s %s", text_name(run->path),
			     is_input ? "input" : "output", text_name(name), n == 1 ? "is" : "are",
			     list_names(run, is_input));
	free(names);
	return EXIT_USAGE;
}

/*
 * Return the index of the only value, or of the only required one; -1 if there are several or none.
 */
static int only_one(const struct run *run, bool is_input)
{
	unsigned int n = n_values(run, is_input), n_needed = 0;
	int only = -1;

	for (unsigned int i = 0; i < n; i++)
		if (!is_input || !value_of(run, true, i).is_optional) {
			only = (int)i;
			n_needed++;
		}
	return n == 1 ? 0 : n_needed == 1 ? only : -1;
}

/* Split @text into the input or output that it names and the file. */
static int split(const struct run *run, const char *text, struct run_file *ret)
{
	bool is_input = ret->option == OPT_INPUT;
	unsigned int n = n_values(run, is_input);
	size_t longest = 0;
	int only;

	ret->path = NULL;
	if (text[0] == '=')
		return control_misuse(run->arguments,
				      "--%s=%s has no name before the second '='; where there is "
				      "only one %s, --%s=%s will do",
				      option_name(ret), text_name(text),
				      is_input ? "input" : "output", option_name(ret),
				      text[1] ? text_name(text + 1) : "FILE");
	for (unsigned int i = 0; i < n; i++) {
		const char *name = value_of(run, is_input, i).name;
		size_t length = strlen(name);

		if (strncmp(text, name, length) != 0 || text[length] != '=' ||
		    (ret->path && length < longest))
			continue;
		longest = length;
		ret->index = i;
		ret->path = text + length + 1;
	}
	if (ret->path && ret->path[0])
		return EXIT_OK;
	if (ret->path)
		return control_misuse(run->arguments, "--%s=%s names no file", option_name(ret),
				      text_name(text));
	if (strchr(text, '=') && !(is_input && access(text, F_OK) == 0))
		return unknown_name(run, is_input, text);
	if (n == 0)
		return control_fail(EXIT_USAGE, "%s has no %ss", text_name(run->path),
				    is_input ? "input" : "output");
	only = only_one(run, is_input);
	if (only < 0)
		return control_fail(EXIT_USAGE,
				    "%s has %u %ss: --%s=NAME=%s says which; there are %s",
				    text_name(run->path), n, is_input ? "input" : "output",
				    option_name(ret), text_name(text), list_names(run, is_input));
	ret->index = (unsigned int)only;
	ret->path = text;
	return EXIT_OK;
}

/* Return true if one output would overwrite the other; a device file may receive both. */
static bool is_same_place(const struct run_file *file, const struct run_file *other)
{
	struct stat status;

	return file->option == OPT_RUN_OUTPUT && other->option == OPT_RUN_OUTPUT &&
	       strcmp(file->path, other->path) == 0 &&
	       (stat(file->path, &status) < 0 || S_ISREG(status.st_mode));
}

/* Return true if the output would overwrite the file @read. */
static bool is_of_file(const char *path, const char *read)
{
	struct stat a, b;

	return stat(path, &a) == 0 && stat(read, &b) == 0 && S_ISREG(a.st_mode) &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int check_twice(const struct run *run, const struct run_file *file)
{
	if (file->option == OPT_RUN_OUTPUT && is_of_file(file->path, run->path))
		return control_fail(EXIT_USAGE, "output %s would be written over the model, %s",
				    text_name(run_output_name(run, file->index)),
				    text_name(run->path));
	for (const struct run_file *other = run->files; other < file; other++) {
		const char *name =
			text_name(value_of(run, file->option == OPT_INPUT, file->index).name);

		if (other->option == file->option && other->index == file->index)
			return control_fail(EXIT_USAGE, "--%s=%s is given twice: %s and %s",
					    option_name(file), name, text_name(other->path),
					    text_name(file->path));
		if (is_same_place(file, other))
			return control_fail(EXIT_USAGE,
					    "outputs %s and %s would both be written to %s",
					    text_name(run_output_name(run, other->index)), name,
					    text_name(file->path));
	}
	return EXIT_OK;
}

static int read_file(struct run *run, struct run_file *file)
{
	char why[MODEL_WHY_BYTES];

	if (file->option == OPT_RUN_OUTPUT)
		return EXIT_OK;
	/*
	 * Check the input's declaration first, or the error would blame a file of the right type.
	 */
	if (file->option == OPT_INPUT && model_check_input(run->model, file->index, why))
		return control_fail(EXIT_USAGE, "%s: %s", text_name(run->path), text_name(why));
	if (model_read_array(file->path, &file->array, why))
		return control_fail(EXIT_USAGE, "%s", text_name(why));
	if (file->option == OPT_INPUT &&
	    model_give(run->model, file->index, &file->array, file->path, why))
		return control_fail(EXIT_USAGE, "%s", text_name(why));
	return EXIT_OK;
}

int run_files_read(struct run *run)
{
	const struct arguments *arguments = run->arguments;
	int status = EXIT_OK;

	for (unsigned int i = 0; i < arguments->n_given && status == EXIT_OK; i++) {
		struct run_file *file = &run->files[i];

		file->option = arguments->given[i].option;
		run->n_files = i + 1;
		status = split(run, arguments->given[i].value, file);
		if (status == EXIT_OK)
			status = check_twice(run, file);
		if (status == EXIT_OK)
			status = read_file(run, file);
	}
	return status;
}

int run_files_write(const struct run *run)
{
	char why[MODEL_WHY_BYTES];

	for (unsigned int i = 0; i < run->n_files; i++) {
		const struct run_file *file = &run->files[i];

		if (file->option == OPT_RUN_OUTPUT &&
		    model_write_array(file->path, model_output(run->model, file->index),
				      run_output_name(run, file->index), why))
			return control_fail(EXIT_USAGE, "%s", text_name(why));
	}
	return EXIT_OK;
}

bool run_files_compare(struct run *run)
{
	bool is_same = true;

	for (unsigned int i = 0; i < run->n_files; i++) {
		struct run_file *file = &run->files[i];
		double atol = run->atol, rtol = run->rtol;

		if (file->option != OPT_EXPECT)
			continue;
		/* Adjacent bfloat16 numbers differ by up to 0.8%. */
		if (rtol < 0)
			rtol = file->array.dtype == ARRAY_BF16 ? 1e-2 : 1e-3;
		if (atol < 0)
			atol = file->array.dtype == ARRAY_BF16  ? 1e-2
			       : file->array.dtype == ARRAY_F16 ? 1e-3
			       : file->array.dtype == ARRAY_F64 ? 1e-7
								: 1e-6;
		file->result = array_compare(model_output(run->model, file->index), &file->array,
					     rtol, atol, &file->difference);
		is_same &= file->result == 0;
	}
	return is_same;
}
