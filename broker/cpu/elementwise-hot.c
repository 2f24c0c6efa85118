/* SPDX-License-Identifier: MIT */
/*
 * Element by element: Add, Mul, Relu
 *
 * One loop serves every broadcast: its rows either advance along an operand or repeat one element
 * of it, and what lies outside the rows is an odometer over the outer dimensions. The last, partial
 * vector takes the same instructions as the others, so that no element's bits depend on where a
 * split put it.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"

enum binary { BINARY_ADD, BINARY_MUL };

VEC_INLINE vf binary_apply(const enum binary op, vf a, vf b)
{
	return op == BINARY_ADD ? a + b : a * b;
}

VEC_INLINE void binary_row(const enum binary op, size_t n, const float *a, const bool a_steps,
			   const float *b, const bool b_steps, float *y)
{
	const vf a_set = vf_set(a[0]), b_set = vf_set(b[0]);
	size_t i = 0;

	for (; i + 4 * VW <= n; i += 4 * VW) {
		VEC_UNROLL
		for (size_t v = 0; v < 4 * VW; v += VW)
			vf_store(y + i + v, binary_apply(op, a_steps ? vf_load(a + i + v) : a_set,
							 b_steps ? vf_load(b + i + v) : b_set));
	}
	for (; i + VW <= n; i += VW)
		vf_store(y + i, binary_apply(op, a_steps ? vf_load(a + i) : a_set,
					     b_steps ? vf_load(b + i) : b_set));
	if (i < n)
		vf_store_partial(y + i,
				 binary_apply(op, a_steps ? vf_load_partial(a + i, n - i) : a_set,
					      b_steps ? vf_load_partial(b + i, n - i) : b_set),
				 n - i);
}

VEC_INLINE void binary(const enum binary op, size_t n, const float *a, size_t a_step,
		       const float *b, size_t b_step, float *y)
{
	if (a_step && b_step)
		binary_row(op, n, a, true, b, true, y);
	else if (a_step)
		binary_row(op, n, a, true, b, false, y);
	else if (b_step)
		binary_row(op, n, a, false, b, true, y);
	else
		binary_row(op, n, a, false, b, false, y);
}

void CPU_FN(add)(size_t n, const float *a, size_t a_step, const float *b, size_t b_step, float *y)
{
	binary(BINARY_ADD, n, a, a_step, b, b_step, y);
}

void CPU_FN(mul)(size_t n, const float *a, size_t a_step, const float *b, size_t b_step, float *y)
{
	binary(BINARY_MUL, n, a, a_step, b, b_step, y);
}

VEC_INLINE void broadcast(const enum binary op, const struct cpu_broadcast *args, size_t begin,
			  size_t end)
{
	size_t at[CPU_MAX_DIMS], rest = begin, a = 0, b = 0;

	for (unsigned int d = args->n_outer; d-- > 0;) {
		at[d] = rest % args->extent[d];
		rest /= args->extent[d];
		a += at[d] * args->a_stride[d];
		b += at[d] * args->b_stride[d];
	}
	for (size_t row = begin; row < end; row++) {
		for (size_t i = 0; i < args->inner; i += CPU_PAUSE_ELEMS) {
			const size_t n = args->inner - i;

			if (i > 0)
				cpu_pause(args->pause);
			binary(op, n < CPU_PAUSE_ELEMS ? n : CPU_PAUSE_ELEMS,
			       args->a + a + i * args->a_step, args->a_step,
			       args->b + b + i * args->b_step, args->b_step,
			       args->y + row * args->inner + i);
		}
		for (unsigned int d = args->n_outer; d-- > 0;) {
			a += args->a_stride[d];
			b += args->b_stride[d];
			if (++at[d] < args->extent[d])
				break;
			a -= at[d] * args->a_stride[d];
			b -= at[d] * args->b_stride[d];
			at[d] = 0;
		}
	}
}

void CPU_FN(add_broadcast)(const struct cpu_broadcast *args, size_t begin, size_t end)
{
	broadcast(BINARY_ADD, args, begin, end);
}

void CPU_FN(mul_broadcast)(const struct cpu_broadcast *args, size_t begin, size_t end)
{
	broadcast(BINARY_MUL, args, begin, end);
}

void CPU_FN(relu)(size_t n, const float *x, float *y)
{
	const vf zero = {0};
	size_t i = 0;

	/* The comparison is false for a NaN, which therefore stays. */
	for (; i + VW <= n; i += VW) {
		const vf value = vf_load(x + i);

		vf_store(y + i, vf_select((vi)(value < zero), zero, value));
	}
	if (i < n) {
		const vf value = vf_load_partial(x + i, n - i);

		vf_store_partial(y + i, vf_select((vi)(value < zero), zero, value), n - i);
	}
}
