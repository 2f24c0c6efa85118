/* SPDX-License-Identifier: MIT */
/*
 * ScatterElements, ScatterND
 *
 * An earlier step has copied the data. Updates that may meet in one element are applied by one
 * thread, in the order of the indices: for ScatterElements, these are a column along the axis; for
 * ScatterND, the same position of all rows. So the result does not depend on how units are split,
 * and without a reduction the last of several updates stays. If the update or the element is a NaN,
 * the result is a NaN, also of max and min. Integers wrap around.
 */
#include "cpu/index.h"
#include "cpu/level.h"

#define SCATTER(name, T, expression)                                                               \
	VEC_INLINE bool name##_block(const struct cpu_elements *args, const bool wide,             \
				     size_t flat, size_t table, size_t n)                          \
	{                                                                                          \
		const T *from = args->from;                                                        \
		T *to = (T *)args->to + table;                                                     \
		bool all = true;                                                                   \
                                                                                                   \
		for (size_t row = 0; row < args->len; row++, flat += args->flat_step) {            \
			cpu_pause_at(args->pause, row, INDEX_PAUSE / CPU_COLUMN_BLOCK);            \
			for (size_t i = 0; i < n; i++) {                                           \
				size_t at;                                                         \
				const bool is_good = index_resolve(                                \
					index_load(args->indices.data, wide, flat + i),            \
					args->limit, &at);                                         \
				const T u = from[flat + i];                                        \
				T *element;                                                        \
                                                                                                   \
				all &= is_good;                                                    \
				if (!is_good)                                                      \
					continue;                                                  \
				element = to + at * args->table_step + i;                          \
				{                                                                  \
					const T y = *element;                                      \
                                                                                                   \
					(void)y;                                                   \
					*element = (T)(expression);                                \
				}                                                                  \
			}                                                                          \
		}                                                                                  \
		return all;                                                                        \
	}                                                                                          \
	static bool name(const struct cpu_elements *args, size_t begin, size_t end)                \
	{                                                                                          \
		bool all = true;                                                                   \
                                                                                                   \
		for (size_t unit = begin; unit < end; unit++) {                                    \
			size_t flat, table;                                                        \
			const size_t n = index_unit(args, unit, &flat, &table);                    \
                                                                                                   \
			cpu_pause(args->pause);                                                    \
			all &= args->indices.wide ? name##_block(args, true, flat, table, n)       \
						  : name##_block(args, false, flat, table, n);     \
		}                                                                                  \
		return all;                                                                        \
	}                                                                                          \
	static void name##_row(size_t n, const T *from, T *to)                                     \
	{                                                                                          \
		CPU_INDEPENDENT                                                                    \
		for (size_t i = 0; i < n; i++) {                                                   \
			const T u = from[i], y = to[i];                                            \
                                                                                                   \
			(void)y;                                                                   \
			to[i] = (T)(expression);                                                   \
		}                                                                                  \
	}                                                                                          \
	static bool name##_nd(const struct cpu_scatter_nd *args, size_t begin, size_t end)         \
	{                                                                                          \
		const size_t first = begin * CPU_SCATTER_BLOCK;                                    \
		const size_t last =                                                                \
			end * CPU_SCATTER_BLOCK < args->run ? end * CPU_SCATTER_BLOCK : args->run; \
		bool all = true;                                                                   \
                                                                                                   \
		for (size_t row = 0; first < last && row < args->rows; row++) {                    \
			size_t offset;                                                             \
			const bool is_good = index_offset(&args->indices, args->indices.wide,      \
							  row * args->n_index, args->n_index,      \
							  args->limit, args->stride, &offset);     \
                                                                                                   \
			all &= is_good;                                                            \
			if (is_good)                                                               \
				name##_row(last - first,                                           \
					   (const T *)args->updates + row * args->run + first,     \
					   (T *)args->y + offset + first);                         \
			cpu_pause_at(args->pause, row, INDEX_PAUSE / 16);                          \
		}                                                                                  \
		return all;                                                                        \
	}

#define LARGER_FLOAT(x, y)  ((x) > (y) || (x) != (x) ? (x) : (y))
#define SMALLER_FLOAT(x, y) ((x) < (y) || (x) != (x) ? (x) : (y))
#define LARGER(x, y)        ((x) > (y) ? (x) : (y))
#define SMALLER(x, y)       ((x) < (y) ? (x) : (y))

/* U: the narrowest type in which the arithmetic has no undefined overflow. */
#define REDUCTIONS(name, T, U, larger, smaller) \
	SCATTER(name##_add, T, (U)y + (U)u)     \
	SCATTER(name##_mul, T, (U)y *(U)u)      \
	SCATTER(name##_max, T, larger(u, y))    \
	SCATTER(name##_min, T, smaller(u, y))

SCATTER(move_1, uint8_t, u)
SCATTER(move_2, uint16_t, u)
SCATTER(move_4, uint32_t, u)
SCATTER(move_8, uint64_t, u)
REDUCTIONS(f32, float, float, LARGER_FLOAT, SMALLER_FLOAT)
REDUCTIONS(f64, double, double, LARGER_FLOAT, SMALLER_FLOAT)
REDUCTIONS(i32, int32_t, uint32_t, LARGER, SMALLER)
REDUCTIONS(i64, int64_t, uint64_t, LARGER, SMALLER)
REDUCTIONS(i8, int8_t, uint32_t, LARGER, SMALLER)
REDUCTIONS(u8, uint8_t, uint32_t, LARGER, SMALLER)

#define EACH(first, name, suffix)                                         \
	[first] = name##_add##suffix, [(first) + 1] = name##_mul##suffix, \
	[(first) + 2] = name##_max##suffix, [(first) + 3] = name##_min##suffix

static bool (*const elements_by_kind[CPU_SCATTER_COUNT])(const struct cpu_elements *args,
							 size_t begin, size_t end) = {
	[CPU_SCATTER_BYTE] = move_1,  [CPU_SCATTER_2] = move_2,     [CPU_SCATTER_4] = move_4,
	[CPU_SCATTER_8] = move_8,     EACH(CPU_SCATTER_F32, f32, ), EACH(CPU_SCATTER_F64, f64, ),
	EACH(CPU_SCATTER_I32, i32, ), EACH(CPU_SCATTER_I64, i64, ), EACH(CPU_SCATTER_I8, i8, ),
	EACH(CPU_SCATTER_U8, u8, ),
};

static bool (*const nd_by_kind[CPU_SCATTER_COUNT])(const struct cpu_scatter_nd *args, size_t begin,
						   size_t end) = {
	[CPU_SCATTER_BYTE] = move_1_nd,  [CPU_SCATTER_2] = move_2_nd,
	[CPU_SCATTER_4] = move_4_nd,     [CPU_SCATTER_8] = move_8_nd,
	EACH(CPU_SCATTER_F32, f32, _nd), EACH(CPU_SCATTER_F64, f64, _nd),
	EACH(CPU_SCATTER_I32, i32, _nd), EACH(CPU_SCATTER_I64, i64, _nd),
	EACH(CPU_SCATTER_I8, i8, _nd),   EACH(CPU_SCATTER_U8, u8, _nd),
};

static size_t units_scatter_elements(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_elements args = index_elements(step, count);

	return cpu_elements_units(&args, false);
}

static void run_scatter_elements(const struct cpu_step *step, const struct cpu_frame *frame,
				 size_t begin, size_t end, const struct cpu_context *context)
{
	const struct cpu_step_elements *s = cpu_step_args(step);
	struct cpu_elements args = index_elements(step, frame->count);

	args.pause = context->pause;
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.from = cpu_operand_at(&step->in[2], frame);
	args.to = cpu_operand_at(&step->out[0], frame);
	index_note(frame, elements_by_kind[s->kind](
				  &args, begin, min_size(end, cpu_elements_units(&args, false))));
}

const struct cpu_routine CPU_FN(scatter_elements) = {run_scatter_elements, units_scatter_elements};

static size_t units_scatter_nd(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_scatter_nd *s = cpu_step_args(step);

	return cpu_scatter_nd_units(&s->args);
}

static void run_scatter_nd(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			   size_t end, const struct cpu_context *context)
{
	const struct cpu_step_scatter_nd *s = cpu_step_args(step);
	struct cpu_scatter_nd args = s->args;

	args.rows = cpu_extent_at(&s->rows, frame->count);
	args.pause = context->pause;
	args.indices.data = cpu_operand_at(&step->in[1], frame);
	args.updates = cpu_operand_at(&step->in[2], frame);
	args.y = cpu_operand_at(&step->out[0], frame);
	index_note(frame,
		   nd_by_kind[s->kind](&args, begin, min_size(end, cpu_scatter_nd_units(&args))));
}

const struct cpu_routine CPU_FN(scatter_nd) = {run_scatter_nd, units_scatter_nd};
