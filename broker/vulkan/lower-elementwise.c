/* SPDX-License-Identifier: MIT */
/* From nodes to dispatches: what works element by element. See lowering.h. */
#include <math.h>

#include "shaders/map.glsl"
#include "shm/dtype.h"
#include "vulkan/lowering.h"

enum { MAX_OPERANDS = 3 };

struct dims {
	unsigned int n;
	uint32_t size[RBK_MAX_RANK];
	uint64_t stride[RBK_MAX_RANK][MAX_OPERANDS];
};

/* Appends an inner dimension, joining it with the last one where all operands allow that. */
static void dims_append(struct dims *dims, uint32_t size, const uint64_t stride[MAX_OPERANDS])
{
	bool joins = dims->n > 0;

	if (size == 1)
		return;
	for (unsigned int i = 0; joins && i < MAX_OPERANDS; i++)
		joins = dims->stride[dims->n - 1][i] == stride[i] * size;
	if (joins)
		dims->size[dims->n - 1] *= size;
	else
		dims->size[dims->n++] = size;
	memcpy(dims->stride[dims->n - 1], stride, sizeof(dims->stride[0]));
}

static void set_elementwise(const struct vk_step *step, const struct dims *dims, uint64_t total,
			    struct vk_params *params)
{
	uint32_t *w = params->w;

	w[ELEMENTWISE_TOTAL] = total;
	w[ELEMENTWISE_GROUPS] = vk_divide_up(total, step->info->tile_cols);
	w[ELEMENTWISE_RANK] = dims->n;
	for (unsigned int i = 0; i < dims->n; i++) {
		w[ELEMENTWISE_DIMS + i] = dims->size[i];
		w[ELEMENTWISE_A + i] = (uint32_t)dims->stride[i][0];
		w[ELEMENTWISE_B + i] = (uint32_t)dims->stride[i][1];
		w[ELEMENTWISE_C + i] = (uint32_t)dims->stride[i][2];
	}
	vk_set_groups(params, w[ELEMENTWISE_GROUPS], 1);
}

/* Operands that are not there go along with the first one. */
static void fill_elementwise(const struct vk_step *step, const struct plan *plan, uint32_t count,
			     struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *out = vk_shape_of(plan, node->out[0]);
	uint64_t strides[MAX_OPERANDS][RBK_MAX_RANK];
	struct dims dims = {0};
	bool flat;

	for (unsigned int i = 0; i < MAX_OPERANDS; i++)
		vk_broadcast_strides(vk_shape_of(plan, node->in[i < node->n_in ? i : 0]), count,
				     out->rank, strides[i]);
	for (unsigned int d = 0; d < out->rank; d++)
		dims_append(&dims, shape_dim(out, d, count),
			    (uint64_t[]){strides[0][d], strides[1][d], strides[2][d]});
	flat = dims.n == 1;
	for (unsigned int i = 0; flat && i < MAX_OPERANDS; i++)
		flat = dims.stride[0][i] == 1;
	if (flat)
		dims.n = 0;
	set_elementwise(step, &dims, shape_elems(out, count), params);
	memcpy(&params->w[ELEMENTWISE_PARAMS], node->params.elementwise.i,
	       sizeof(node->params.elementwise.i));
}

#define FUNCTION_OF(KIND, row) [OP_##KIND - OP_ADD] = MAP_##KIND
/* One of two. */
#define MAP_BIT_SHIFT MAP_SHIFT_LEFT
static const uint8_t functions[] = {OP_ELEMENTWISE(FUNCTION_OF)};

static uint32_t function_of(const struct node *node)
{
	const bool form = node->params.elementwise.form;

	switch (node->op->kind) {
	case OP_GELU:
		return form ? MAP_GELU_TANH : MAP_GELU;
	case OP_MOD:
		return form ? MAP_FMOD : MAP_MOD;
	case OP_BIT_SHIFT:
		return form ? MAP_SHIFT_RIGHT : MAP_SHIFT_LEFT;
	default:
		return functions[node->op->kind - OP_ADD];
	}
}

/* The type that stands for all elements of a width. */
static uint8_t type_of_width(uint8_t dtype)
{
	switch (dtype_bytes(dtype)) {
	case 1:
		return RBK_DTYPE_U8;
	case 2:
		return RBK_DTYPE_F16;
	case 4:
		return RBK_DTYPE_F32;
	default:
		return RBK_DTYPE_I64;
	}
}

uint32_t vk_curve_of(const struct node *activation)
{
	switch (activation->op->kind) {
	case OP_RELU:
	case OP_LEAKY_RELU:
	case OP_CLIP:
		return 0;
	default:
		return function_of(activation);
	}
}

void vk_set_activation(const struct vk_step *step, struct vk_params *params)
{
	const struct node *node = step->activation;
	float slope = 1, low = -INFINITY, high = INFINITY;
	uint32_t *w = params->w;

	w[ACTIVATION] = node != NULL;
	if (!node)
		return;
	switch (node->op->kind) {
	case OP_RELU:
		low = 0;
		break;
	case OP_LEAKY_RELU:
		slope = node->params.elementwise.f[0];
		break;
	default:
		low = node->params.elementwise.f[0];
		high = node->params.elementwise.f[1];
	}
	w[ACTIVATION_SLOPE] = vk_float_bits(slope);
	w[ACTIVATION_LOW] = vk_float_bits(low);
	w[ACTIVATION_HIGH] = vk_float_bits(high);
}

int lower_elementwise(struct lowering *l)
{
	const uint32_t function = function_of(l->node);
	uint8_t type = l->plan->tensors[l->node->in[l->node->op->kind == OP_WHERE]].dtype;
	uint8_t to = l->plan->tensors[l->node->out[0]].dtype;

	l->step->fill = fill_elementwise;
	if (function < MAP_FLOATS && to == type && OP_FLOATS & OP_TYPE(type)) {
		l->step->pipe = vk_pipe_map(function);
		return 0;
	}
	if (!l->target.has_half || !l->target.has_bytes)
		return EXECUTOR_E_UNSUPPORTED;
	if (function == MAP_WHERE)
		type = to = type_of_width(type);
	l->step->numbers = VK_FLOATS;
	l->step->pipe = vk_pipe_typed(function, type, to);
	return l->step->pipe == VK_PIPE_COUNT ? EXECUTOR_E_UNSUPPORTED : 0;
}
