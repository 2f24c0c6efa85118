/* SPDX-License-Identifier: MIT */
/*
 * Nodes that keep a model from a device
 *
 * A broker reports which devices run a plan, but not why others do not. Each step is therefore
 * planned by itself: the steps that no device runs are the reason. The catalogue tells whether the
 * operator or its type is missing. It does not tell about sizes, attributes, or a device feature
 * that only some types or forms need. Nor does any step tell that a device which runs the whole
 * plan is switched off or failing.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringbroker/admin.h>

#include "models/model-private.h"
#include "models/model.h"
#include "util/cleanup.h"

enum { MAX_OPERATORS = 512 };

/*
 * Types for which the CPU and the devices in question have an operator, as masks of 1 <<
 * RBK_DTYPE_*.
 */
struct has {
	uint32_t on_cpu, there;
};

/*
 * Find an operator's types in the broker's catalogue.
 * Return: false if the catalogue does not have the operator.
 */
static bool find_operator(const struct rbk_operator *operators, unsigned int n, const char *op,
			  uint32_t devices, struct has *ret)
{
	*ret = (struct has){0};
	for (unsigned int i = 0; i < n; i++) {
		if (strncmp(operators[i].name, op, sizeof(operators[i].name)))
			continue;
		ret->on_cpu = operators[i].types[RBK_DEVICE_CPU];
		for (unsigned int k = 0; k < RBK_MAX_DEVICES; k++)
			if (devices & 1u << k)
				ret->there |= operators[i].types[k];
		return true;
	}
	return false;
}

/* Write a list such as "float32, float16 and int64". */
static void list_types(uint32_t types, char *text, size_t bytes)
{
	size_t n = 0;

	text[0] = '\0';
	for (uint32_t type = 0; type < 32 && n < bytes; type++) {
		if (!(types & 1u << type))
			continue;
		types &= ~(1u << type);
		n += (size_t)snprintf(text + n, bytes - n, "%s%s",
				      !n      ? ""
				      : types ? ", "
					      : " and ",
				      rbk_onnx_dtype_name(type));
	}
}

/*
 * Write the reason why no device runs the step that was planned last, from its operator and its
 * bound tensors.
 */
static void explain(const struct model *model, const struct has *has, uint32_t devices,
		    struct model_unable *ret)
{
	const bool is_gpu = !(devices & 1u << RBK_DEVICE_CPU);
	const char *not_taken = is_gpu                            ? "the GPU does not run it"
				: devices == 1u << RBK_DEVICE_CPU ? "the CPU does not run it"
								  : "no device runs it";
	char text[ARRAY_TEXT_BYTES], types[256];
	struct rbk_onnx_bound bound;
	size_t n;

	if (!has->there) {
		snprintf(ret->reason, sizeof(ret->reason), "the operator is not supported");
		return;
	}
	list_types(has->there, types, sizeof(types));
	for (unsigned int i = 0; rbk_onnx_bound(model->onnx, i, &bound) == 0; i++) {
		const uint64_t n_elems = bound_describe(&bound, model->task_rows, text);

		if (has->on_cpu & ~has->there & 1u << bound.dtype % 32) {
			snprintf(ret->reason, sizeof(ret->reason),
				 "the GPU runs it for %s, not for %s", types,
				 rbk_onnx_dtype_name(bound.dtype));
			return;
		}
		if (is_gpu && n_elems > RBK_MAX_GPU_ELEMENTS) {
			snprintf(ret->reason, sizeof(ret->reason),
				 "%.100s is %s: a tensor on a GPU has %u elements at most",
				 bound.name, text, RBK_MAX_GPU_ELEMENTS);
			return;
		}
	}
	n = (size_t)snprintf(ret->reason, sizeof(ret->reason),
			     "%s with these operands: because of a size, an attribute, or a "
			     "missing device feature",
			     not_taken);
	for (unsigned int i = 0;
	     n < sizeof(ret->reason) && rbk_onnx_bound(model->onnx, i, &bound) == 0; i++) {
		bound_describe(&bound, model->task_rows, text);
		n += (size_t)snprintf(ret->reason + n, sizeof(ret->reason) - n, "%s%.100s %s",
				      i ? ", " : "; it has ", bound.name, text);
	}
}

int model_find_unable(struct model *model, struct rbk *rbk, uint32_t devices,
		      const struct model_how *how, struct model_unable **ret, unsigned int *ret_n,
		      char why[MODEL_WHY_BYTES])
{
	const unsigned int n_steps = rbk_onnx_n_steps(model->onnx);
	_cleanup_(freep) struct model_unable *unable = calloc(n_steps + 1, sizeof(*unable));
	_cleanup_(freep) struct rbk_operator *operators = calloc(MAX_OPERATORS, sizeof(*operators));
	struct rbk_onnx_options options = model->options;
	unsigned int n_operators, n = 0;
	struct rbk_plan_info whole;

	if (!unable || !operators)
		return model_fail(why, -ENOMEM, "out of memory");
	model_plan_info(model, &whole);
	if (whole.devices & devices)
		return model_fail(why, MODEL_E_AWAY,
				  "every device that runs it is unavailable now");
	/* Without the catalogue only the reason is unknown, not the node. */
	if (rbk_catalogue(rbk, operators, MAX_OPERATORS, &n_operators))
		n_operators = 0;
	if (n_operators > MAX_OPERATORS)
		n_operators = MAX_OPERATORS;
	prepared_deinit(&model->prepared);
	options.n_steps = 1;
	for (unsigned int i = 0; i < n_steps; i++) {
		struct model_unable *at = &unable[n];
		struct rbk_error error = {""};
		struct rbk_plan_info info;
		struct rbk_plan *plan;
		struct has has;
		int r;

		options.first_step = i;
		if (rbk_onnx_step(model->onnx, i, &at->step))
			return model_fail(why, -EPROTO, "step %u is missing", i);
		r = rbk_onnx_plan(model->onnx, rbk, &options, &plan, &error);
		if (r)
			return model_fail(why, r, "%s", error.text);
		rbk_plan_info(plan, &info);
		rbk_plan_free(plan);
		if (how->progress)
			how->progress(how->data, i + 1);
		if (info.devices & devices)
			continue;
		if (find_operator(operators, n_operators, at->step.op, devices, &has))
			explain(model, &has, devices, at);
		else
			snprintf(at->reason, sizeof(at->reason), "the broker does not say why");
		n++;
	}
	*ret_n = n;
	*ret = steal_ptr(unable);
	return 0;
}
