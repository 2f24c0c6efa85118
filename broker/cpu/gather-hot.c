/* SPDX-License-Identifier: MIT */
/*
 * Gather, GatherND, GatherElements
 *
 * Short rows are moved by loops of constant length. Long rows, such as those of an embedding table,
 * are moved by memcpy(), while the rows of the next indices are prefetched: the processor cannot
 * predict their addresses.
 */
#include "cpu/index.h"
#include "cpu/level.h"

/* Rows to prefetch ahead, and bytes of each */
enum { AHEAD = 8, AHEAD_BYTES = 256, CACHE_LINE = 64 };
/* Prefetch the row of index @i. Only a hint: the loaded index is not used otherwise. */
VEC_INLINE void gather_ahead(const struct cpu_gather *args, const bool wide, const uint8_t *x,
			     size_t i, size_t run)
{
	const int64_t index = index_load(args->indices.data, wide, i);
	const uintptr_t at = (uintptr_t)x + (size_t)index * args->stride[0];

	for (size_t line = 0; line < run && line < AHEAD_BYTES; line += CACHE_LINE)
		__builtin_prefetch((const void *)(at + line));
}

/*
 * Gather rows [begin, end) of outer position @outer. @known: the row's bytes if it is short, else
 * 0.
 */
VEC_INLINE bool gather_rows(const struct cpu_gather *args, const bool wide, const size_t known,
			    size_t outer, size_t begin, size_t end)
{
	const size_t first = outer * args->index_outer, run = known ? known : args->run;
	const uint8_t *x = args->x + outer * args->x_outer;
	uint8_t *y = args->y + outer * args->rows * run;
	const bool is_single = args->n_index == 1;
	size_t every = 1;
	bool all = true;

	while (every < INDEX_PAUSE && every * run < INDEX_PIECE_BYTES)
		every *= 2;
	for (size_t row = begin; row < end; row++) {
		size_t offset;
		bool is_good;

		if (is_single) {
			is_good = index_resolve(index_load(args->indices.data, wide, first + row),
						args->limit[0], &offset);
			offset *= args->stride[0];
			if (row + AHEAD < end)
				gather_ahead(args, wide, x, first + row + AHEAD, run);
		} else {
			is_good = index_offset(&args->indices, wide, first + row * args->n_index,
					       args->n_index, args->limit, args->stride, &offset);
		}
		all &= is_good;
		offset = is_good ? offset : 0;
		if (known)
			memcpy(y + row * known, x + offset, known);
		else
			index_copy(args->pause, run, x + offset, y + row * run);
		cpu_pause_at(args->pause, row, every);
	}
	return all;
}

VEC_INLINE bool gather_any(const struct cpu_gather *args, const bool wide, size_t outer,
			   size_t begin, size_t end)
{
	switch (args->run) {
	case 1:
		return gather_rows(args, wide, 1, outer, begin, end);
	case 2:
		return gather_rows(args, wide, 2, outer, begin, end);
	case 4:
		return gather_rows(args, wide, 4, outer, begin, end);
	case 8:
		return gather_rows(args, wide, 8, outer, begin, end);
	case 16:
		return gather_rows(args, wide, 16, outer, begin, end);
	default:
		return gather_rows(args, wide, 0, outer, begin, end);
	}
}

static bool gather(const struct cpu_gather *args, size_t begin, size_t end)
{
	bool all = true;

	while (begin < end) {
		const size_t outer = begin / args->rows, from = begin % args->rows;
		const size_t n = end - begin < args->rows - from ? end - begin : args->rows - from;

		all &= args->indices.wide ? gather_any(args, true, outer, from, from + n)
					  : gather_any(args, false, outer, from, from + n);
		begin += n;
	}
	return all;
}

static struct cpu_gather gather_args(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_gather *s = cpu_step_args(step);
	struct cpu_gather args = s->args;

	args.outer = cpu_extent_at(&s->outer, count);
	args.rows = cpu_extent_at(&s->rows, count);
	return args;
}

static size_t units_gather(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_gather args = gather_args(step, count);

	return args.outer * args.rows;
}

static void run_gather(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
		       size_t end, const struct cpu_context *context)
{
	struct cpu_gather args = gather_args(step, frame->count);

	args.pause = context->pause;
	args.x = cpu_operand_at(&step->in[0], frame);
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	index_note(frame, gather(&args, begin, min_size(end, args.outer * args.rows)));
}

const struct cpu_routine CPU_FN(gather) = {run_gather, units_gather};

/* Gather one row of a unit's adjacent columns at a time. */
#define GATHER_ELEMENTS(name, T)                                                                \
	VEC_INLINE bool name##_block(const struct cpu_elements *args, const bool wide,          \
				     size_t flat, size_t table, size_t n_rows, size_t n)        \
	{                                                                                       \
		const T *from = (const T *)args->from + table;                                  \
		T *to = args->to;                                                               \
		bool all = true;                                                                \
                                                                                                \
		for (size_t row = 0; row < n_rows; row++, flat += args->flat_step) {            \
			cpu_pause_at(args->pause, row, INDEX_PAUSE / CPU_COLUMN_BLOCK);         \
			for (size_t i = 0; i < n; i++) {                                        \
				size_t at;                                                      \
				const bool is_good = index_resolve(                             \
					index_load(args->indices.data, wide, flat + i),         \
					args->limit, &at);                                      \
                                                                                                \
				all &= is_good;                                                 \
				to[flat + i] = from[(is_good ? at : 0) * args->table_step + i]; \
			}                                                                       \
		}                                                                               \
		return all;                                                                     \
	}                                                                                       \
	static bool name(const struct cpu_elements *args, size_t begin, size_t end)             \
	{                                                                                       \
		const size_t cuts = div_up(args->len, CPU_GATHER_BLOCK);                        \
		bool all = true;                                                                \
                                                                                                \
		for (size_t unit = begin; unit < end; unit++) {                                 \
			const size_t row = unit % cuts * CPU_GATHER_BLOCK;                      \
			const size_t n_rows = args->len - row < CPU_GATHER_BLOCK                \
						      ? args->len - row                         \
						      : CPU_GATHER_BLOCK;                       \
			size_t flat, table;                                                     \
			const size_t n = index_unit(args, unit / cuts, &flat, &table);          \
                                                                                                \
			flat += row * args->flat_step;                                          \
			cpu_pause(args->pause);                                                 \
			all &= args->indices.wide                                               \
				       ? name##_block(args, true, flat, table, n_rows, n)       \
				       : name##_block(args, false, flat, table, n_rows, n);     \
		}                                                                               \
		return all;                                                                     \
	}

GATHER_ELEMENTS(gather_elements_1, uint8_t)
GATHER_ELEMENTS(gather_elements_2, uint16_t)
GATHER_ELEMENTS(gather_elements_4, uint32_t)
GATHER_ELEMENTS(gather_elements_8, uint64_t)

/* By log2 of an element's bytes */
static bool (*const by_bytes[])(const struct cpu_elements *args, size_t begin, size_t end) = {
	gather_elements_1,
	gather_elements_2,
	gather_elements_4,
	gather_elements_8,
};

static size_t units_gather_elements(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_elements args = index_elements(step, count);

	return cpu_elements_units(&args, true);
}

static void run_gather_elements(const struct cpu_step *step, const struct cpu_frame *frame,
				size_t begin, size_t end, const struct cpu_context *context)
{
	const struct cpu_step_elements *s = cpu_step_args(step);
	struct cpu_elements args = index_elements(step, frame->count);

	args.pause = context->pause;
	args.from = cpu_operand_at(&step->in[0], frame);
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.to = cpu_operand_at(&step->out[0], frame);
	index_note(frame,
		   by_bytes[s->kind](&args, begin, min_size(end, cpu_elements_units(&args, true))));
}

const struct cpu_routine CPU_FN(gather_elements) = {run_gather_elements, units_gather_elements};
