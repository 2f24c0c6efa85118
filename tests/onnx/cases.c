/* SPDX-License-Identifier: MIT */
/*
 * Finding and reading cases
 *
 * A folder at any depth with a model.onnx is a case. case.json beside the model names its arrays;
 * without it each test_data_set_N below the folder is a case.
 */
#include "onnx/cases.h"

#include <dirent.h>
#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrays/array.h"
#include "onnx/first-operator.h"

enum { MAX_DEPTH = 8 };

void cases_tolerance(unsigned int dtype, double *ret_rtol, double *ret_atol)
{
	/*
	 * Some bfloat16 references were truncated instead of rounded, so the next value is
	 * accepted.
	 */
	*ret_rtol = dtype == ARRAY_BF16 ? 1e-2 : 1e-3;
	*ret_atol = dtype == ARRAY_BF16 ? 1e-2 : dtype == ARRAY_F16 ? 1e-3 : 1e-6;
}

static void complain(struct onnx_case *test, const char *what)
{
	if (!test->complaint[0])
		snprintf(test->complaint, sizeof(test->complaint), "%s", what);
}

/* Return: NULL if memory is exhausted. */
static struct onnx_case *add_case(struct onnx_cases *cases, const char *folder, const char *name)
{
	char path[PATH_MAX], op[64];
	struct onnx_case *test;

	if (cases->n == cases->n_room) {
		size_t n_room = 2 * cases->n_room + 16;
		void *more = realloc(cases->cases, n_room * sizeof(*cases->cases));

		if (!more)
			return NULL;
		cases->cases = more;
		cases->n_room = n_room;
	}
	test = &cases->cases[cases->n];
	memset(test, 0, sizeof(*test));
	snprintf(path, sizeof(path), "%s/model.onnx", folder);
	if (!first_operator(path, op, sizeof(op)))
		snprintf(op, sizeof(op), "unknown");
	test->name = strdup(name);
	test->op = strdup(op);
	test->model = strdup(path);
	/* A partly allocated case is freed with the others. */
	cases->n++;
	return test->name && test->op && test->model ? test : NULL;
}

/* ---- case.json ---------------------------------------------------------------------------- */

static struct json_object *member(struct json_object *object, const char *key)
{
	struct json_object *value = NULL;

	json_object_object_get_ex(object, key, &value);
	return value;
}

static double number(struct json_object *object, const char *key)
{
	struct json_object *value = member(object, key);

	return value ? json_object_get_double(value) : -1;
}

static bool has_flag(struct json_object *json, const char *flag)
{
	struct json_object *flags = member(json, "flags");
	size_t n = flags && json_object_is_type(flags, json_type_array)
			   ? json_object_array_length(flags)
			   : 0;

	for (size_t i = 0; i < n; i++)
		if (strcmp(json_object_get_string(json_object_array_get_idx(flags, i)), flag) == 0)
			return true;
	return false;
}

static unsigned int read_list(struct onnx_case *test, const char *folder, struct json_object *json,
			      const char *key, struct case_tensor *ret)
{
	struct json_object *list = member(json, key);
	char path[PATH_MAX];
	size_t n;

	if (!list || !json_object_is_type(list, json_type_array)) {
		complain(test, "case.json has not both inputs and outputs");
		return 0;
	}
	n = json_object_array_length(list);
	if (n > CASE_MAX_TENSORS) {
		complain(test, "case.json has too many arrays");
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		struct json_object *entry = json_object_array_get_idx(list, i);
		struct json_object *file = entry ? member(entry, "file") : NULL,
				   *name = entry ? member(entry, "name") : NULL;

		if (!entry)
			continue;
		if (!file) {
			complain(test, "case.json has an array without a file");
			continue;
		}
		snprintf(path, sizeof(path), "%s/%s", folder, json_object_get_string(file));
		ret[i].file = strdup(path);
		ret[i].name = name ? strdup(json_object_get_string(name)) : NULL;
		ret[i].rtol = number(entry, "rtol");
		ret[i].atol = number(entry, "atol");
		ret[i].is_any_order = has_flag(json, "order_free");
		if (!ret[i].file)
			complain(test, "out of memory");
	}
	return (unsigned int)n;
}

static int read_case(struct onnx_cases *cases, const char *folder, const char *name)
{
	struct onnx_case *test = add_case(cases, folder, name);
	struct json_object *json, *op;
	char path[PATH_MAX];

	if (!test)
		return -ENOMEM;
	snprintf(path, sizeof(path), "%s/case.json", folder);
	json = json_object_from_file(path);
	if (!json) {
		complain(test, "case.json cannot be read");
		return 0;
	}
	op = member(json, "operator");
	if (op) {
		free(test->op);
		test->op = strdup(json_object_get_string(op));
	}
	test->n_inputs = read_list(test, folder, json, "inputs", test->inputs);
	test->n_outputs = read_list(test, folder, json, "outputs", test->outputs);
	if (test->n_outputs == 0)
		complain(test, "case.json has no outputs");
	json_object_put(json);
	return test->op ? 0 : -ENOMEM;
}

/* ---- test_data_set_N ---------------------------------------------------------------------- */

/*
 * Find the arrays "input_0.pb", "input_1.pb" and so on, or the same as .npy.
 * Return: the number found.
 */
static unsigned int find_numbered(const char *folder, const char *what, struct case_tensor *ret)
{
	static const char *const endings[] = {"pb", "npy"};
	char path[PATH_MAX];
	unsigned int n = 0;

	for (unsigned int i = 0; i < CASE_MAX_TENSORS; i++) {
		ret[i].rtol = ret[i].atol = -1;
		for (unsigned int k = 0; k < 2 && !ret[i].file; k++) {
			snprintf(path, sizeof(path), "%s/%s_%u.%s", folder, what, i, endings[k]);
			if (access(path, F_OK) == 0)
				ret[i].file = strdup(path);
		}
		if (!ret[i].file)
			break;
		n++;
	}
	return n;
}

static int read_sets(struct onnx_cases *cases, const char *folder, const char *name)
{
	char path[PATH_MAX], set_name[PATH_MAX];
	struct onnx_case *test;
	struct stat status;
	unsigned int n = 0;

	for (;; n++) {
		if ((size_t)snprintf(path, sizeof(path), "%s/test_data_set_%u", folder, n) >=
		    sizeof(path))
			return -ENAMETOOLONG;
		if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode))
			break;
		snprintf(set_name, sizeof(set_name), n ? "%.3000s/%u" : "%.3000s", name, n);
		test = add_case(cases, folder, set_name);
		if (!test)
			return -ENOMEM;
		test->n_inputs = find_numbered(path, "input", test->inputs);
		test->n_outputs = find_numbered(path, "output", test->outputs);
		if (test->n_outputs == 0)
			complain(test, "there is no output_0.pb");
	}
	if (n > 0)
		return 0;
	test = add_case(cases, folder, name);
	if (!test)
		return -ENOMEM;
	complain(test, "there is neither case.json nor test_data_set_0 beside model.onnx");
	return 0;
}

/* ---- Folders ------------------------------------------------------------------------------ */

static bool has_file(const char *folder, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return access(path, F_OK) == 0;
}

static int find_below(struct onnx_cases *cases, const char *folder, const char *name,
		      unsigned int depth)
{
	char path[PATH_MAX], below[PATH_MAX];
	struct dirent *entry;
	struct stat status;
	DIR *directory;
	int r = 0;

	/* A case.json without a model is a damaged case, which loading reports. */
	if (has_file(folder, "case.json"))
		return read_case(cases, folder, name);
	if (has_file(folder, "model.onnx"))
		return read_sets(cases, folder, name);
	directory = opendir(folder);
	if (!directory)
		return -errno;
	while (r == 0 && depth < MAX_DEPTH && (entry = readdir(directory))) {
		if (entry->d_name[0] == '.')
			continue;
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >=
			    sizeof(path) ||
		    (size_t)snprintf(below, sizeof(below), "%s%s%s", name, name[0] ? "/" : "",
				     entry->d_name) >= sizeof(below))
			r = -ENAMETOOLONG;
		else if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
			r = find_below(cases, path, below, depth + 1);
	}
	closedir(directory);
	return r;
}

static int compare_cases(const void *first, const void *second)
{
	const struct onnx_case *a = first, *b = second;
	int order = strcmp(a->op, b->op);

	return order ? order : strcmp(a->name, b->name);
}

int cases_find(const char *folder, struct onnx_cases *ret)
{
	struct onnx_cases cases = {NULL};
	int r = find_below(&cases, folder, "", 0);

	if (r) {
		cases_deinit(&cases);
		return r;
	}
	/* If @folder itself is a case, its name below @folder is empty: use the folder's path. */
	for (size_t i = 0; i < cases.n; i++)
		if (!cases.cases[i].name[0]) {
			free(cases.cases[i].name);
			cases.cases[i].name = strdup(folder);
			if (!cases.cases[i].name) {
				cases_deinit(&cases);
				return -ENOMEM;
			}
		}
	if (cases.n)
		qsort(cases.cases, cases.n, sizeof(*cases.cases), compare_cases);
	*ret = cases;
	return 0;
}

void cases_deinit(struct onnx_cases *cases)
{
	for (size_t i = 0; i < cases->n; i++) {
		struct onnx_case *test = &cases->cases[i];

		for (unsigned int k = 0; k < CASE_MAX_TENSORS; k++) {
			free(test->inputs[k].file);
			free(test->inputs[k].name);
			free(test->outputs[k].file);
			free(test->outputs[k].name);
		}
		free(test->name);
		free(test->op);
		free(test->model);
	}
	free(cases->cases);
	*cases = (struct onnx_cases){NULL};
}
