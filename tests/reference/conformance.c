/* SPDX-License-Identifier: MIT */
/*
 * ONNX's own test cases
 */
#include <dirent.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/conformance.h"
#include "shm/plan-wire.h"

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
	va_list args;

	fputs("conformance: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	abort();
}

static struct json_object *member(struct json_object *object, const char *key)
{
	struct json_object *value = NULL;

	json_object_object_get_ex(object, key, &value);
	return value;
}

static const char *member_string(struct json_object *object, const char *key)
{
	struct json_object *value = member(object, key);

	if (!value)
		die("no \"%s\"", key);
	return json_object_get_string(value);
}

/*
 * Read the elements of a .npy file of version 1.0 in C order, which must be of type @descr and
 * @bytes long.
 */
static void read_npy(const char *path, const char *descr, void *data, size_t bytes)
{
	unsigned char magic[10];
	char header[4096];
	size_t header_bytes;
	FILE *file = fopen(path, "rb");

	if (!file || fread(magic, 1, sizeof(magic), file) != sizeof(magic) ||
	    memcmp(magic, "\x93NUMPY\x01", 7) != 0)
		die("%s: not a .npy file of version 1", path);
	header_bytes = magic[8] | (size_t)magic[9] << 8;
	if (header_bytes >= sizeof(header) || fread(header, 1, header_bytes, file) != header_bytes)
		die("%s: no header", path);
	header[header_bytes] = 0;
	if (!strstr(header, descr) || !strstr(header, "'fortran_order': False"))
		die("%s: not %s in C order", path, descr);
	if (fread(data, 1, bytes, file) != bytes || fgetc(file) != EOF)
		die("%s: not %zu bytes of elements", path, bytes);
	fclose(file);
}

static unsigned int read_shape(struct json_object *tensor, uint32_t dims[RBK_MAX_RANK])
{
	struct json_object *shape = member(tensor, "shape");
	unsigned int rank = (unsigned int)json_object_array_length(shape);

	if (rank > RBK_MAX_RANK)
		die("rank %u", rank);
	for (unsigned int i = 0; i < rank; i++)
		dims[i] = (uint32_t)json_object_get_int64(json_object_array_get_idx(shape, i));
	return rank;
}

static const struct {
	const char *name, *descr;
	enum rbk_dtype dtype;
} types[] = {
	{"float32", "<f4", RBK_DTYPE_F32}, {"int64", "<i8", RBK_DTYPE_I64},
	{"int32", "<i4", RBK_DTYPE_I32},   {"uint8", "|u1", RBK_DTYPE_U8},
	{"int8", "|i1", RBK_DTYPE_I8},     {"bool", "|b1", RBK_DTYPE_BOOL},
	{"float16", "<f2", RBK_DTYPE_F16},
};

/* Return the index in types, or -1 if no tensor of a plan has that type. */
static int type_of(struct json_object *tensor)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(member_string(tensor, "dtype"), types[i].name))
			return (int)i;
	return -1;
}

/* Return true if plans can have the types of all tensors. */
static bool has_types(struct json_object *json)
{
	static const char *const lists[] = {"inputs", "outputs"};

	for (unsigned int l = 0; l < 2; l++) {
		struct json_object *list = member(json, lists[l]);

		for (size_t i = 0; i < json_object_array_length(list); i++) {
			struct json_object *tensor = json_object_array_get_idx(list, i);

			if (tensor && type_of(tensor) < 0)
				return false;
		}
	}
	return true;
}

/* Return true if this input or output is part of the plan; see the header. */
static bool is_used(const struct op *op, struct json_object *tensor, bool output, size_t i)
{
	return tensor && i < (output ? op->max_out : op->max_in);
}

static void describe_value(struct describe *describe, const struct op_attr *attr,
			   struct json_object *value)
{
	int64_t ints[2 * RBK_MAX_RANK];
	size_t n;

	switch (attr->type) {
	case RBK_ATTR_INT:
		describe_attr_int(describe, attr->name, json_object_get_int64(value));
		return;
	case RBK_ATTR_FLOAT:
		describe_attr_float(describe, attr->name, (float)json_object_get_double(value));
		return;
	case RBK_ATTR_STRING:
		describe_attr_string(describe, attr->name, json_object_get_string(value));
		return;
	case RBK_ATTR_INTS:
		n = json_object_array_length(value);
		if (n > sizeof(ints) / sizeof(ints[0]))
			die("%s has %zu values", attr->name, n);
		for (size_t i = 0; i < n; i++)
			ints[i] = json_object_get_int64(json_object_array_get_idx(value, i));
		describe_attr_ints(describe, attr->name, (unsigned int)n, ints);
		return;
	}
	die("attribute %s", attr->name);
}

static void describe_attrs(struct describe *describe, const struct op *op, struct json_object *json)
{
	struct json_object *given = member(json, "attributes"),
			   *resolved = member(json, "resolved");

	for (const struct op_attr *attr = op->attrs; attr->name; attr++) {
		struct json_object *value = member(given, attr->name);

		if (!strcmp(attr->name, "k") || !strcmp(attr->name, "axes") ||
		    op->kind == OP_SLICE || (op->kind == OP_CLIP && attr->type == RBK_ATTR_FLOAT))
			value = member(resolved, attr->name);
		if (op->kind == OP_SPLIT && attr->type == RBK_ATTR_INTS)
			value = member(resolved, "sizes");
		if (value)
			describe_value(describe, attr, value);
	}
}

static struct describe *describe_case(const struct op *op, struct json_object *json)
{
	struct describe *describe = describe_new("", 1);
	char names[2][64] = {"", ""};
	char next[2] = "a";

	for (unsigned int output = 0; output < 2; output++) {
		struct json_object *list = member(json, output ? "outputs" : "inputs");

		for (size_t i = 0; i < json_object_array_length(list); i++) {
			struct json_object *tensor = json_object_array_get_idx(list, i);
			uint32_t dims[RBK_MAX_RANK];

			/* An absent tensor is named "-"; absent tensors at the end are omitted. */
			if (!tensor && i < (output ? op->max_out : op->max_in))
				strcat(names[output], names[output][0] ? ",-" : "-");
			if (!is_used(op, tensor, output, i))
				continue;
			describe_tensor(
				describe, next, output ? RBK_TENSOR_OUTPUT : RBK_TENSOR_INPUT,
				types[type_of(tensor)].dtype, 0, read_shape(tensor, dims), dims);
			strcat(names[output], names[output][0] ? "," : "");
			strcat(names[output], next);
			next[0]++;
		}
	}
	describe_node(describe, op->name, "case", names[0], names[1]);
	describe_attrs(describe, op, json);
	return describe;
}

/*
 * Make the plan.
 * Return: false if it is rejected because a tensor has no elements.
 */
static bool make_plan(const struct op *op, struct json_object *json, const char *name,
		      struct plan **ret)
{
	struct plan_arena_lookup lookup = reference_arena_lookup(NULL);
	char message[PLAN_MESSAGE_BYTES];
	size_t bytes;
	void *desc = describe_finish(describe_case(op, json), &bytes);
	int r = plan_new(desc, bytes, &lookup, message, ret);

	free(desc);
	if (r == PLAN_E_INVALID &&
	    (strstr(message, "without elements") || strstr(message, "is float16, expected")))
		return false;
	if (r)
		die("%s: %d: %s", name, r, message);
	return true;
}

static void read_buffers(const struct op *op, struct json_object *json, const char *path,
			 struct conformance_case *test)
{
	unsigned int binding = 0;
	char file[4096 + 64];

	reference_buffers_init(&test->buffers, test->plan, 1, 1);
	for (unsigned int output = 0; output < 2; output++) {
		struct json_object *list = member(json, output ? "outputs" : "inputs");

		for (size_t i = 0; i < json_object_array_length(list); i++) {
			struct json_object *tensor = json_object_array_get_idx(list, i);

			if (!is_used(op, tensor, output, i))
				continue;
			snprintf(file, sizeof(file), "%s/%s", path, member_string(tensor, "file"));
			read_npy(file, types[type_of(tensor)].descr,
				 test->buffers.bindings[binding], test->buffers.bytes[binding]);
			if (output && i == 0) {
				test->rtol = json_object_get_double(member(tensor, "rtol"));
				test->atol = json_object_get_double(member(tensor, "atol"));
			}
			binding++;
		}
	}
	if (binding != test->plan->n_bindings)
		die("%s: %u of %u bindings", path, binding, test->plan->n_bindings);
}

static void read_pads(struct json_object *json, struct conformance_case *test)
{
	struct json_object *pads = member(member(json, "resolved"), "pads");
	size_t n = pads ? json_object_array_length(pads) / 2 : 0, skip = OP_MAX_SPATIAL - n;

	for (size_t i = 0; i < 2 * OP_MAX_SPATIAL; i++)
		test->pads[i] = n > 0 ? 0 : -1;
	for (size_t i = 0; i < n && n <= OP_MAX_SPATIAL; i++) {
		test->pads[skip + i] = json_object_get_int64(json_object_array_get_idx(pads, i));
		test->pads[OP_MAX_SPATIAL + skip + i] =
			json_object_get_int64(json_object_array_get_idx(pads, n + i));
	}
}

/* Run a case; return false if it was rejected because a tensor has no elements. */
static bool run_case(const struct op *op, const char *path, const char *name,
		     void (*run)(const struct conformance_case *, void *), void *context)
{
	struct conformance_case test = {.name = name};
	struct json_object *json;
	char file[4096 + 16];
	bool made;

	snprintf(file, sizeof(file), "%s/case.json", path);
	json = json_object_from_file(file);
	if (!json)
		die("%s: %s", file, json_util_get_last_err());
	if (!has_types(json)) {
		json_object_put(json);
		return false;
	}
	made = make_plan(op, json, name, &test.plan);
	if (made) {
		read_buffers(op, json, path, &test);
		read_pads(json, &test);
		run(&test, context);
		reference_buffers_deinit(&test.buffers);
		plan_free(test.plan);
	}
	json_object_put(json);
	return made;
}

int conformance_each(const char *data_dir, void (*run)(const struct conformance_case *, void *),
		     void *context, unsigned int *ret_refused)
{
	unsigned int n_refused = 0;
	int n_run = 0;

	for (unsigned int kind = 0; kind < OP_KIND_COUNT; kind++) {
		const struct op *op = op_by_kind((enum op_kind)kind);
		char folder[2048], path[4096], name[512];
		struct dirent *entry;
		DIR *directory;

		snprintf(folder, sizeof(folder), "%s/onnx-ops/%s", data_dir, op->name);
		directory = opendir(folder);
		if (!directory && kind == 0)
			return -ENOENT;
		/* Operators that ONNX lacks, and operators without a case in this directory. */
		if (!directory && errno == ENOENT)
			continue;
		if (!directory)
			die("%s: %s", folder, strerror(errno));
		while ((entry = readdir(directory))) {
			if (entry->d_name[0] == '.')
				continue;
			snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
			snprintf(name, sizeof(name), "%s/%s", op->name, entry->d_name);
			if (run_case(op, path, name, run, context))
				n_run++;
			else
				n_refused++;
		}
		closedir(directory);
	}
	*ret_refused = n_refused;
	return n_run;
}
