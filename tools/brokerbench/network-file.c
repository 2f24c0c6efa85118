/* SPDX-License-Identifier: MIT */
/* Networks of ONNX files: see network.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "network.h"

struct network_file {
	struct model *model;
	struct array *inputs; /* the model refers to them */
	unsigned int n_inputs;
};

struct network_file *network_file_free(struct network_file *file)
{
	if (!file)
		return NULL;
	model_free(file->model);
	for (unsigned int i = 0; i < file->n_inputs; i++)
		array_deinit(&file->inputs[i]);
	free(file->inputs);
	free(file);
	return NULL;
}

static unsigned int count_commas(const char *text)
{
	unsigned int n = 0;

	for (; *text; text++)
		n += *text == ',';
	return n;
}

/* Load the model and its inputs; @paths is cut at its commas. */
static int load(struct network_file *file, char *paths, char why[MODEL_WHY_BYTES])
{
	char *rest = paths, *path = strsep(&rest, ",");
	int r;

	r = model_open(path, &file->model, why);
	while (!r && (path = strsep(&rest, ","))) {
		struct array *input = &file->inputs[file->n_inputs];

		r = model_read_array(path, input, why);
		if (r)
			break;
		r = model_give(file->model, file->n_inputs++, input, path, why);
	}
	return r ? r : model_compile(file->model, 0, why);
}

static int prepare(struct network *network, struct rbk *rbk, const char *model,
		   char why[MODEL_WHY_BYTES])
{
	struct network_file *file = calloc(1, sizeof(*file));
	struct model_task task;
	char *paths;
	int r = -ENOMEM;

	network->file = file;
	if (!file)
		return r;
	paths = strdup(model);
	file->inputs = calloc(count_commas(model) + 1, sizeof(*file->inputs));
	if (paths && file->inputs)
		r = load(file, paths, why);
	free(paths);
	if (!r)
		r = model_prepare(file->model, rbk, why);
	if (r)
		return r;
	model_first_task(file->model, &task);
	network->plan_id = task.plan_id;
	network->count = task.count;
	network->n_refs = task.n_refs;
	for (unsigned int i = 0; i < task.n_refs && i < RBK_SQE_REFS; i++) {
		network->refs[i] = task.refs[i];
		network->tensors[i] = task.tensors[i];
		network->bytes[i] = task.bytes[i];
	}
	return 0;
}

int network_file_new(struct network *network, struct bench_env *env, struct rbk *rbk,
		     const char *model)
{
	char why[MODEL_WHY_BYTES] = "out of memory", sentence[MODEL_WHY_BYTES + 256];
	int r;

	r = prepare(network, rbk, model, why);
	if (r) {
		snprintf(sentence, sizeof(sentence), "--model=%.*s: %s", (int)strcspn(model, ","),
			 model, why);
		return bench_refused(env, r < 0 ? r : -EINVAL, sentence);
	}
	if (network->n_refs > RBK_SQE_REFS)
		return bench_skip(env, model, "it has %u inputs and outputs, and mid takes %u",
				  network->n_refs, RBK_SQE_REFS);
	return 0;
}
