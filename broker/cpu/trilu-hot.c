/* SPDX-License-Identifier: MIT */
/*
 * Trilu
 *
 * One part of each row is copied, the other is set to zero.
 */
#include "cpu/compile.h"
#include "cpu/index.h"

/*
 * Trilu of batches of matrices. Of row r, the columns from r + k on are kept if @upper; otherwise
 * the columns up to r + k are kept.
 */
struct cpu_trilu {
	const uint8_t *x;
	uint8_t *y;
	size_t batch, rows, columns;
	int64_t k;
	bool upper;
	size_t size; /* bytes per element */
	struct cpu_pause *pause;
};

struct cpu_step_trilu {
	struct cpu_trilu args;
	struct cpu_extent batch, rows; /* at most one depends on the count */
};

/* Units: rows of all matrices. */
static void trilu(const struct cpu_trilu *args, size_t begin, size_t end)
{
	const size_t columns = args->columns, size = args->size;

	for (size_t unit = begin; unit < end; unit++) {
		const int64_t diagonal = (int64_t)(unit % args->rows) + args->k;
		/* the column where the kept elements begin (upper) or end */
		int64_t edge = args->upper ? diagonal : diagonal + 1;
		const uint8_t *x = args->x + unit * columns * size;
		uint8_t *y = args->y + unit * columns * size;
		size_t before;

		edge = edge < 0 ? 0 : edge > (int64_t)columns ? (int64_t)columns : edge;
		before = (size_t)edge * size;
		cpu_pause_at(args->pause, unit, INDEX_PAUSE / 64);
		if (args->upper) {
			memset(y, 0, before);
			index_copy(args->pause, columns * size - before, x + before, y + before);
		} else {
			index_copy(args->pause, before, x, y);
			memset(y + before, 0, columns * size - before);
		}
	}
}

static struct cpu_trilu trilu_args(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_trilu *s = cpu_step_args(step);
	struct cpu_trilu args = s->args;

	args.batch = cpu_extent_at(&s->batch, count);
	args.rows = cpu_extent_at(&s->rows, count);
	return args;
}

static size_t units_trilu(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_trilu args = trilu_args(step, count);

	return args.batch * args.rows;
}

static void run_trilu(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		      size_t end, const struct cpu_context *context)
{
	struct cpu_trilu args = trilu_args(step, frame->count);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	trilu(&args, begin, min_size(end, args.batch * args.rows));
}

const struct cpu_routine CPU_FN(trilu) = {run_trilu, units_trilu};

#ifdef CPU_DESCRIBES
CPU_STEP_HOLDS(struct cpu_step_trilu);
CPU_ROUTINES(trilu);

static int compile_trilu(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape;
	struct cpu_step_trilu *step = compile_args(c);

	compile_level(c, trilu_routines);
	step->batch = extent_range(x, 0, x->rank - 2u);
	step->rows = extent_aligned(x, x->rank, x->rank - 2u);
	step->args.columns = x->dims[x->rank - 1];
	step->args.k = c->node->params.trilu.k;
	step->args.upper = c->node->params.trilu.upper;
	step->args.size = dtype_bytes(node_in(c, 0)->dtype);
	return 0;
}

const struct cpu_op cpu_op_trilu = {.compile = compile_trilu, .takes_half = compile_half_as_it_is};
#endif
