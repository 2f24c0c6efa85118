/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing rbk_onnx_load_bytes() and rbk_onnx_compile()
 *
 * The input is a model file. A rejected file must yield a message. A compiled model must be
 * consistent: bound tensors have types and sizes, steps have names. Each model is compiled for one
 * row and for several rows, with and without optimisations.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "libclient/ringbroker/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_value(const struct rbk_onnx_value *value)
{
	assert(value->name[0]);
	assert(value->rank >= -1 && value->rank <= RBK_ONNX_MAX_RANK);
	for (int32_t i = 0; i < value->rank; i++)
		assert(value->dims[i] >= -1 && value->dims[i] <= INT32_MAX);
}

static void check_compiled(const struct rbk_onnx *model, uint32_t max_count)
{
	struct rbk_onnx_bound bound;
	struct rbk_onnx_step step;

	assert(rbk_onnx_n_steps(model) > 0 && rbk_onnx_n_bound(model) > 0);
	for (unsigned int i = 0; i < rbk_onnx_n_steps(model); i++) {
		assert(!rbk_onnx_step(model, i, &step));
		assert(step.op[0]);
	}
	for (unsigned int i = 0; i < rbk_onnx_n_bound(model); i++) {
		uint64_t n = 1;

		assert(!rbk_onnx_bound(model, i, &bound));
		assert(bound.rank <= RBK_MAX_RANK && bound.name[0]);
		assert(rbk_onnx_dtype_bytes(bound.dtype, 1) > 0);
		assert((bound.per_count > 0) == (bound.rank > 0 && bound.dims[0] == RBK_DIM_COUNT));
		assert(bound.per_count == 0 || max_count > 1);
		for (unsigned int j = 0; j < bound.rank; j++)
			n *= j == 0 && bound.per_count ? bound.per_count : bound.dims[j];
		assert((bound.per_count ? bound.bytes_row : bound.bytes_fixed) ==
		       rbk_onnx_dtype_bytes(bound.dtype, n));
	}
}

static void check_refused(const struct rbk_onnx *model, const struct rbk_error *error)
{
	struct rbk_onnx_refusal refusal;

	assert(rbk_onnx_n_refusals(model) > 0 && error->text[0]);
	assert(rbk_onnx_n_steps(model) == 0 && rbk_onnx_n_bound(model) == 0);
	for (unsigned int i = 0; i < rbk_onnx_n_refusals(model); i++) {
		assert(!rbk_onnx_refusal(model, i, &refusal));
		assert(refusal.reason[0] && refusal.name && refusal.op);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const uint32_t counts[] = {1, 5}, disables[] = {0, RBK_ONNX_OPT_ALL};
	struct rbk_onnx_tensor tensor;
	struct rbk_onnx_value value;
	struct rbk_error error = {""};
	struct rbk_onnx *model;
	int r;

	if (!rbk_onnx_tensor_load_bytes(data, bytes, &tensor, NULL))
		rbk_onnx_tensor_free(&tensor);
	r = rbk_onnx_load_bytes(data, bytes, NULL, &model, &error);
	if (r) {
		assert(r == -EBADMSG || r == -EOPNOTSUPP || r == -EFBIG);
		assert(error.text[0]);
		return 0;
	}
	for (unsigned int i = 0; i < rbk_onnx_n_inputs(model); i++) {
		assert(!rbk_onnx_input(model, i, &value));
		check_value(&value);
	}
	for (unsigned int i = 0; i < rbk_onnx_n_outputs(model); i++) {
		assert(!rbk_onnx_output(model, i, &value));
		check_value(&value);
	}
	for (unsigned int i = 0; i < 2; i++) {
		const struct rbk_onnx_options options = {
			.size = sizeof(options), .max_count = counts[i], .disable = disables[i]};

		r = rbk_onnx_compile(model, &options, &error);
		assert(r == 0 || r == -EOPNOTSUPP || r == -EFBIG);
		if (!r)
			check_compiled(model, counts[i]);
		else if (r == -EOPNOTSUPP)
			check_refused(model, &error);
	}
	rbk_onnx_free(model);
	return 0;
}
