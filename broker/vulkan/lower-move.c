/* SPDX-License-Identifier: MIT */
/*
 * Lowering of operators that only move elements. See lower-private.h.
 *
 * Each move of a node is one step, with elements as wide as possible. A step's args[0] is the index
 * of its move.
 */
#include <assert.h>

#include "plan/move.h"
#include "util/error.h"
#include "vulkan/lower-private.h"

/* MAX_SCATTERED: dimensions with strides on both sides for which a parameter block has room. */
enum { MAX_SCATTERED = (MOVE_VALUE - MOVE_DIMS) / 3, MAX_BYTES = 16 };
_Static_assert((MOVE_VALUE - MOVE_DIMS) / 2 >= (int)MOVE_MAX_DIMS, "any move fits in");
_Static_assert((int)MAX_SCATTERED > (int)RBK_MAX_RANK, "and any but Tile's");

#define MOVE(label, code, log) VK_SPREAD("move, " label, code, 1, 32, 4, log)
static const struct vk_pipe moves[] = {
	MOVE("bytes", move_bytes, 0), MOVE("2 bytes", move_halves, 1), MOVE("4 bytes", move, 2),
	MOVE("8 bytes", move, 3),     MOVE("16 bytes", move, 4),
};
const struct vk_pipe vk_pipe_copy = VK_SPREAD("copy", copy, 4, 64, 4);
/* For tensors whose size is not a multiple of 4 bytes. */
const struct vk_pipe vk_pipe_copy_bytes = VK_SPREAD("copy, bytes", copy_bytes, 4, 64, 4);

/* Return true if the move writes its elements contiguously. */
static bool is_dense(const struct move *move)
{
	uint64_t stride = move->element_bytes;

	for (unsigned int d = move->n_dims; d-- > 0;) {
		if (move->to_stride[d] != (int64_t)stride)
			return false;
		stride *= move->extent[d];
	}
	return true;
}

static void fill_move(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	uint32_t *w = params->w;
	uint64_t total = 1;
	struct move move;
	unsigned int bytes;

	plan_move(plan, step->node, step->args[0], &move);
	move_widen(&move, MAX_BYTES);
	bytes = move.element_bytes;
	w[MOVE_PITCH] = is_dense(&move) ? 2 : 3;
	assert(w[MOVE_PITCH] == 2 || move.n_dims <= MAX_SCATTERED);
	w[MOVE_RANK] = move.n_dims;
	w[MOVE_FROM] = (uint32_t)(move.from_first / bytes);
	w[MOVE_TO] = (uint32_t)(move.to_first / bytes);
	for (unsigned int d = 0; d < move.n_dims; d++) {
		uint32_t *dim = w + MOVE_DIMS + d * w[MOVE_PITCH];

		dim[0] = (uint32_t)move.extent[d] * (d == 0 && move.dynamic ? count : 1);
		dim[1] = (uint32_t)(move.from_stride[d] / (int64_t)bytes);
		if (w[MOVE_PITCH] == 3)
			dim[2] = (uint32_t)(move.to_stride[d] / (int64_t)bytes);
		total *= dim[0];
	}
	w[MOVE_TOTAL] = (uint32_t)total;
	w[MOVE_GROUPS] = div_up(total, step->info->tile_cols);
	w[MOVE_VALUE] = (uint32_t)move.value;
	w[MOVE_VALUE + 1] = (uint32_t)(move.value >> 32);
	vk_set_groups(params, w[MOVE_GROUPS], 1);
}

static int lower_moves(struct lowering *l)
{
	const unsigned int n = plan_n_moves(l->plan, l->node);
	bool is_first = true;
	int r;

	for (unsigned int i = 0; i < n; i++) {
		struct move move;

		if (!plan_move(l->plan, l->node, i, &move))
			continue;
		r = is_first ? 0 : lower_add(l);
		if (r)
			return error_fold(r);
		is_first = false;
		move_widen(&move, MAX_BYTES);
		vk_clear_operands(l->step);
		l->step->operands[0].tensor = move.from;
		l->step->operands[VK_OUT].tensor = move.to;
		lower_pipe(l, &moves[__builtin_ctz(move.element_bytes)]);
		l->step->numbers = VK_FLOATS;
		l->step->is_independent = move.is_independent;
		l->step->fill = fill_move;
		l->step->args[0] = i;
	}
	if (is_first)
		lower_drop(l);
	return 0;
}

static void fill_copy(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	const uint64_t bytes = tensor_bytes(&plan->tensors[step->operands[0].tensor], count);

	params->w[COPY_WORDS] = (uint32_t)(bytes / 4);
	params->w[COPY_REST] = bytes % 4;
	params->w[COPY_GROUPS] = div_up((bytes + 3) / 4, step->info->tile_cols);
	vk_set_groups(params, params->w[COPY_GROUPS], 1);
}

int lower_bytes(struct lowering *l, const struct tensor *tensor)
{
	lower_pipe(l, &vk_pipe_copy);
	l->step->numbers = VK_FLOATS;
	l->step->fill = fill_copy;
	if ((tensor->fixed_bytes | tensor->row_bytes) % 4 == 0)
		return 0;
	lower_pipe(l, &vk_pipe_copy_bytes);
	return l->target.has_bytes ? 0 : EXECUTOR_E_UNSUPPORTED;
}

static int lower_reshape(struct lowering *l)
{
	const struct tensor *tensors = l->plan->tensors;

	if (tensors[l->node->in[0]].root == tensors[l->node->out[0]].root) {
		lower_drop(l);
		return 0;
	}
	return lower_bytes(l, &tensors[l->node->in[0]]);
}

/* clang-format off */
static lower_fn *const lowerers[] = {
	[OP_TRANSPOSE] = lower_moves,
	[OP_SLICE] = lower_moves,
	[OP_CONCAT] = lower_moves,
	[OP_SPLIT] = lower_moves,
	[OP_EXPAND] = lower_moves,
	[OP_TILE] = lower_moves,
	[OP_PAD] = lower_moves,
	[OP_RESHAPE] = lower_reshape,
};
/* clang-format on */
static const struct vk_pipes pipes[] = {VK_PIPES(moves), VK_PIPES(vk_pipe_copy),
					VK_PIPES(vk_pipe_copy_bytes)};
VK_FAMILY(move);
