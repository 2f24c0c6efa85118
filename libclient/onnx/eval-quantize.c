/* SPDX-License-Identifier: MIT */
/*
 * Computing DequantizeLinear of constants
 *
 * Weights stored in bytes and multiplied as floats are dequantized once here. They are then packed
 * like other weights, instead of being dequantized in every task. Inputs that the catalogue would
 * not accept are left to its rule, which reports the reason. Results that would take more than half
 * of the remaining memory become steps.
 */
#include <string.h>

#include "libclient/onnx/eval.h"
#include "shm/number.h"

static bool has_only_known_attributes(const struct step *step)
{
	static const char *const known[] = {"axis", "block_size"};

	for (unsigned int i = 0; i < step->n_attrs; i++) {
		bool is_known = false;

		for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
			is_known |= !strcmp(step->attrs[i].name, known[k]) &&
				    step->attrs[i].type == RBK_ATTR_INT;
		if (!is_known)
			return false;
	}
	return true;
}

bool eval_find_scales(int64_t axis, int64_t block, const struct constant *x,
		      const struct constant *scale, struct eval_scales *ret)
{
	*ret = (struct eval_scales){.inner = 1, .size = 1, .block = block ? block : 1};
	ret->is_single = scale->rank <= 1 && scale->n_elems == 1;
	if (ret->is_single)
		return true;
	ret->is_list = block == 0;
	if (block < 0 || block > OP_MAX_DIM || axis < -(int64_t)x->rank ||
	    axis >= (int64_t)x->rank || scale->rank != (ret->is_list ? 1 : x->rank))
		return false;
	axis += axis < 0 ? x->rank : 0;
	ret->axis = (unsigned int)axis;
	ret->size = x->dims[axis];
	for (uint32_t i = (uint32_t)axis + 1; i < x->rank; i++)
		ret->inner *= x->dims[i];
	if (ret->is_list)
		return scale->dims[0] == ret->size;
	for (uint32_t i = 0; i < x->rank; i++)
		if (scale->dims[i] != (i == axis ? (ret->size + block - 1) / block : x->dims[i]))
			return false;
	return true;
}

uint64_t eval_scale_at(const struct eval_scales *scales, uint64_t i)
{
	const uint64_t inner = (uint64_t)scales->inner, size = (uint64_t)scales->size;
	const uint64_t block = (uint64_t)scales->block, at = i / inner % size / block;

	if (scales->is_single)
		return 0;
	return scales->is_list ? at
			       : (i / inner / size * div_up(size, block) + at) * inner + i % inner;
}

int eval_dequantize(struct graph *graph, struct step *step, int arg)
{
	const struct constant *x = step->in[0]->constant, *scale = step->in[1]->constant;
	const struct constant *zero = step->n_in > 2 ? step->in[2]->constant : NULL;
	struct eval_scales scales;
	struct constant out;
	int r;

	if (x->n_elems == 0 ||
	    (x->dtype != RBK_ONNX_U8 && x->dtype != RBK_ONNX_I8 && x->dtype != RBK_ONNX_I32) ||
	    (scale->dtype != RBK_ONNX_F32 && scale->dtype != RBK_ONNX_F16) ||
	    !has_only_known_attributes(step) ||
	    (zero && (zero->dtype != x->dtype || zero->rank != scale->rank ||
		      memcmp(zero->dims, scale->dims, scale->rank * sizeof(*scale->dims)))) ||
	    !eval_find_scales(eval_int(step, "axis", 1), eval_int(step, "block_size", 0), x, scale,
			      &scales))
		return EVAL_E_UNKNOWN;
	if (x->n_elems * sizeof(float) > (graph->mem.max_bytes - graph->mem.used_bytes) / 2)
		return EVAL_E_UNKNOWN;
	r = eval_result(graph, scale->dtype, x->rank, x->dims, false, &out);
	for (uint64_t i = 0; !r && i < out.n_elems; i++) {
		const uint64_t at = eval_scale_at(&scales, i);
		const int64_t from = zero ? eval_load_int(zero->dtype, zero->data, at) : 0;
		const int64_t distance = eval_load_int(x->dtype, x->data, i) - from;

		eval_store(out.dtype, (void *)out.data, i,
			   (double)distance * eval_load(scale->dtype, scale->data, at));
	}
	return r ? r : eval_publish(graph, step->out[0], &out);
}
