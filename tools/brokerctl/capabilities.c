/* SPDX-License-Identifier: MIT */
/*
 * brokerctl devices --capabilities: operators and types that devices support
 *
 * The broker reports operators and the element types that each device supports for them.
 * Requirements of device kinds and the largest tensors are the same in all brokers of this ABI. The
 * operators of ONNX files come from this program's own library.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <ringbroker/admin.h>

#include "command.h"
#include "objects.h"
#include "output.h"
#include "records.h"
#include "shm/device-needs.h"
#include "shm/dtype.h"

enum { MAX_OPERATORS = 512 };

/* Requirements that a kind of device must meet to run any operator on the given element types. */
static const struct need {
	const char *backend;   /* "CPU", or the API of GPUs */
	const char *types;     /* comma-separated */
	uint64_t max_elements; /* elements of a tensor; UINT64_MAX: limited by memory only */
	/* Vulkan features from first to end - 1; the CPU needs the minimum SIMD level instead */
	enum vulkan_feature first, end;
} needs[] = {
	{"CPU", "float32,uint8,int8,int32,int64,bool,float16,float64,bfloat16", UINT64_MAX, 0, 0},
	{"Vulkan", "float32,int32,int64", RBK_MAX_GPU_ELEMENTS, 0, VULKAN_FEATURE_REQUIRED},
	{"Vulkan", "float16,bfloat16", RBK_MAX_GPU_ELEMENTS, VULKAN_STORAGE_16_BIT,
	 VULKAN_STORAGE_16_BIT + 1},
	{"Vulkan", "uint8,int8,bool", RBK_MAX_GPU_ELEMENTS, VULKAN_STORAGE_8_BIT,
	 VULKAN_STORAGE_8_BIT + 1},
	{"Vulkan", "float64", RBK_MAX_GPU_ELEMENTS, VULKAN_FLOAT64, VULKAN_FLOAT64 + 1},
};

/* Write the names of the required features to @ret, comma-separated. */
static void list_features(const struct need *need, char *ret, size_t bytes)
{
	size_t used = 0;

	if (need->first == need->end) {
		snprintf(ret, bytes, "SSE2");
		return;
	}
	for (unsigned int i = need->first; i < need->end && used < bytes; i++)
		used += snprintf(ret + used, bytes - used, "%s%s", used ? "," : "",
				 vulkan_feature_name(i));
}

static void json_list(const char *name, const char *list)
{
	char text[256], *item, *rest = text;

	snprintf(text, sizeof(text), "%s", list);
	json_array(name);
	while ((item = strsep(&rest, ",")) && item[0])
		json_string(NULL, item);
	json_array_end();
}

static void show_needs(bool is_json)
{
	static const char *const heads[] = {
		"<BACKEND", "<TYPES OF ELEMENTS", "LARGEST DIMENSION", "LARGEST TENSOR", "<NEEDS",
		NULL};

	if (!is_json)
		table_begin("Largest tensors, in elements, and required device features", heads);
	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
		const struct need *need = &needs[i];
		char features[256];

		list_features(need, features, sizeof(features));
		if (is_json) {
			json_begin();
			json_string("type", "need");
			json_string("backend", need->backend);
			json_list("types", need->types);
			json_unsigned("largest_dimension", RBK_MAX_DIM);
			json_optional("largest_tensor", need->max_elements);
			json_list("features", features);
			json_end();
			continue;
		}
		table_cell("%s", need->backend);
		table_cell("%s", need->types);
		table_cell("%u", RBK_MAX_DIM);
		if (need->max_elements == UINT64_MAX)
			table_cell("limited by memory");
		else
			table_cell("%llu", (unsigned long long)need->max_elements);
		table_cell("%s", features);
	}
	if (!is_json)
		table_end();
}

/* Print the operators that ONNX files may use in addition to the catalogue's. */
static void show_made(bool is_json)
{
	static const char *const heads[] = {"<OPERATOR", "SINCE OPSET", "UNTIL", NULL};
	struct made_operator made;

	if (!is_json)
		table_begin(
			"Further operators of ONNX files, composed of these or computed in advance",
			heads);
	for (unsigned int i = 0; run_made_operator(i, &made); i++) {
		if (is_json) {
			json_begin();
			json_string("type", "made-operator");
			json_string("operator", made.name);
			json_unsigned("since", made.since);
			json_optional("until", made.until ? made.until : UINT64_MAX);
			json_end();
			continue;
		}
		table_cell("%s", made.name);
		table_cell("%u", made.since);
		if (made.until)
			table_cell("%u", made.until);
		else
			table_cell("-");
	}
	if (!is_json)
		table_end();
}

/* Format a set of types as "float32,int64"; an unknown type is shown by its number. */
static const char *types_text(uint32_t types, char *text, size_t bytes)
{
	size_t n = 0;

	text[0] = '\0';
	for (unsigned int bit = 0; bit < 32 && n < bytes; bit++) {
		if (!(types & 1u << bit))
			continue;
		n += dtype_bytes(bit)
			     ? (size_t)snprintf(text + n, bytes - n, "%s%s", n ? "," : "",
						dtype_name(bit))
			     : (size_t)snprintf(text + n, bytes - n, "%s%u", n ? "," : "", bit);
	}
	return n ? text : "-";
}

static void json_operator(const struct rbk_operator *op, unsigned int first, unsigned int end)
{
	char text[256];

	json_begin();
	json_string("type", "operator");
	json_string("operator", op->name);
	json_unsigned("opset", op->opset);
	json_array("devices");
	for (unsigned int i = first; i < end; i++) {
		json_item();
		json_unsigned("device", i);
		json_list("types",
			  op->types[i] ? types_text(op->types[i], text, sizeof(text)) : "");
		json_object_end();
	}
	json_array_end();
	json_end();
}

static void print_operators(const struct arguments *arguments, const struct rbk_operator *operators,
			    unsigned int n, unsigned int first, unsigned int end)
{
	const char *heads[RBK_MAX_DEVICES + 3] = {"<OPERATOR", "OPSET"};
	static char labels[RBK_MAX_DEVICES][8];
	const unsigned int n_shown =
		end - first < TABLE_COLUMNS - 2 ? end - first : TABLE_COLUMNS - 2;
	char text[256];

	for (unsigned int i = 0; i < n_shown; i++) {
		snprintf(labels[i], sizeof(labels[i]), "<%s", device_label(first + i));
		heads[i + 2] = labels[i];
	}
	heads[n_shown + 2] = NULL;
	table_begin(arguments->values[OPT_NO_HEADER] ? NULL
						     : "Operators, and the types of elements",
		    heads);
	for (unsigned int i = 0; i < n; i++) {
		table_cell("%s", text_name(operators[i].name));
		table_cell("%u", operators[i].opset);
		for (unsigned int k = 0; k < n_shown; k++)
			table_cell("%s",
				   types_text(operators[i].types[first + k], text, sizeof(text)));
	}
	table_end();
	if (!arguments->values[OPT_NO_HEADER])
		puts("  OPSET is the version of the operator's form in plans; models may use older "
		     "versions, and\n"
		     "  bfloat16 wherever float32 is listed. See brokerctl(1), run.\n");
}

int show_capabilities(struct control *control, const struct arguments *arguments,
		      unsigned int first, unsigned int end)
{
	static struct rbk_operator operators[MAX_OPERATORS];
	const struct rbk_error none = {""};
	unsigned int n;
	int r = rbk_catalogue(control->rbk, operators, MAX_OPERATORS, &n);

	if (r == -EOPNOTSUPP)
		return control_fail(EXIT_FAILED,
				    "this broker (%s) is older: it does not say what devices run",
				    text_name(rbk_broker_name(control->rbk)));
	if (r)
		return control_refused(control, r, &none);
	if (n > MAX_OPERATORS)
		n = MAX_OPERATORS;
	for (unsigned int i = 0; i < n; i++)
		operators[i].name[sizeof(operators[i].name) - 1] = '\0';
	if (!arguments->values[OPT_JSON])
		print_operators(arguments, operators, n, first, end);
	else
		for (unsigned int i = 0; i < n; i++)
			json_operator(&operators[i], first, end);
	/* Without heads the rows of several tables could not be told apart. */
	if (!arguments->values[OPT_NO_HEADER]) {
		show_made(arguments->values[OPT_JSON]);
		show_needs(arguments->values[OPT_JSON]);
	}
	return EXIT_OK;
}
