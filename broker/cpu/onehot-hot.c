/* SPDX-License-Identifier: MIT */
/*
 * OneHot
 *
 * For an index out of range, all elements are off.
 */
#include "cpu/compile.h"
#include "cpu/index.h"

enum { FILL_BLOCK = 1 << 13 /* elements filled between two polls */ };

/* OneHot: y[outer][depth][inner] from indices [outer][inner]; values[0] is off, values[1] on. */
struct cpu_one_hot {
	struct cpu_indices indices;
	const uint8_t *values;
	uint8_t *y;
	size_t outer, depth, inner;
	size_t size; /* bytes per element */
	struct cpu_pause *pause;
};

struct cpu_step_one_hot {
	struct cpu_one_hot args;
	struct cpu_extent outer;
};

VEC_INLINE void fill_known(uint8_t *y, size_t n, const uint8_t *value, const size_t size)
{
	for (size_t i = 0; i < n; i++)
		memcpy(y + i * size, value, size);
}

/* Fill @n elements of @size bytes: 1, 2, 4 or 8. */
static void fill(uint8_t *y, size_t n, const uint8_t *value, size_t size)
{
	if (size == 1)
		fill_known(y, n, value, 1);
	else if (size == 2)
		fill_known(y, n, value, 2);
	else if (size == 4)
		fill_known(y, n, value, 4);
	else
		fill_known(y, n, value, 8);
}

/* Units: outer. */
static void one_hot(const struct cpu_one_hot *args, size_t begin, size_t end)
{
	const size_t plane = args->depth * args->inner, size = args->size;
	uint8_t off[8], on[8];

	/* Read both values once: clients may change them meanwhile. */
	memcpy(off, args->values, size);
	memcpy(on, args->values + size, size);
	for (size_t outer = begin; outer < end; outer++) {
		uint8_t *y = args->y + outer * plane * size;

		for (size_t i = 0; i < plane; i += FILL_BLOCK) {
			cpu_pause(args->pause);
			fill(y + i * size, plane - i < FILL_BLOCK ? plane - i : FILL_BLOCK, off,
			     size);
		}
		for (size_t i = 0; i < args->inner; i++) {
			const int64_t index = index_load(args->indices.data, args->indices.wide,
							 outer * args->inner + i);
			size_t at;

			cpu_pause_at(args->pause, i, INDEX_PAUSE);
			if (index_resolve(index, args->depth, &at))
				memcpy(y + (at * args->inner + i) * size, on, size);
		}
	}
}

static size_t units_one_hot(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_one_hot *s = cpu_step_args(step);

	return cpu_extent_at(&s->outer, count);
}

static void run_one_hot(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			size_t end, const struct cpu_context *context)
{
	const struct cpu_step_one_hot *s = cpu_step_args(step);
	struct cpu_one_hot args = s->args;

	args.outer = cpu_extent_at(&s->outer, frame->count);
	args.pause = context->pause;
	args.indices.data = cpu_operand_at(&step->in[0], frame);
	args.values = cpu_operand_at(&step->in[1], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	one_hot(&args, begin, min_size(end, args.outer));
}

const struct cpu_routine CPU_FN(one_hot) = {run_one_hot, units_one_hot};

#ifdef CPU_DESCRIBES
CPU_STEP_HOLDS(struct cpu_step_one_hot);
CPU_ROUTINES(one_hot);

static int compile_one_hot(struct compiler *c)
{
	const struct shape *y = &node_out(c, 0)->shape;
	const unsigned int axis = c->node->params.one_hot.axis;
	struct cpu_step_one_hot *step = compile_args(c);

	compile_level(c, one_hot_routines);
	step->outer = extent_range(y, 0, axis);
	step->args.indices = node_indices(node_in(c, 0));
	step->args.depth = y->dims[axis];
	step->args.inner = shape_stride(y, axis);
	step->args.size = dtype_bytes(node_out(c, 0)->dtype);
	return 0;
}

const struct cpu_op cpu_op_one_hot = {
	.compile = compile_one_hot, .takes_half = compile_half_as_it_is, .overhead = {15, 0, 12}};
#endif
