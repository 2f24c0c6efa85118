/* SPDX-License-Identifier: MIT */
/*
 * TopK
 *
 * The k best elements so far form a heap in the output itself, with the worst of them at the root.
 * The column is read once, a few vectors at a time, and compared with that worst value. In data
 * without a trend almost no element passes, so the cost is that of reading. Elements that pass are
 * processed in order; each replaces the root. Since elements come in the order of their indices, an
 * equal value never replaces a kept one, as ONNX's rule for ties requires. At the end the heap is
 * sorted in place.
 *
 * The output may be memory that its owner changes meanwhile. No value read back from it is used as
 * a position, so corrupted output stays harmless.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"

/* heap operations between two polls: each step of one may miss the cache */
enum { TOP_K_PAUSE = 1 << 7 };

_Static_assert(8 * VW <= TOP_K_PAUSE, "a look after vectors of which all pass is enough");

struct heap {
	float *values;
	int64_t *indices;
	size_t stride;
};

/* Return true if a comes before b in the result. A NaN comes last. */
VEC_INLINE bool top_k_before(const bool largest, float a, int64_t a_index, float b, int64_t b_index)
{
	if (largest ? a > b : a < b)
		return true;
	if (largest ? a < b : a > b)
		return false;
	if (a != a || b != b) {
		if (a == a)
			return true;
		if (b == b)
			return false;
	}
	return a_index < b_index;
}

/* Replace the root of a heap of @n by an entry, and restore the heap order. */
VEC_INLINE void top_k_sift(const bool largest, const struct heap *heap, size_t n, float value,
			   int64_t index)
{
	const size_t s = heap->stride;
	size_t at = 0;

	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= n)
			break;
		if (child + 1 < n &&
		    top_k_before(largest, heap->values[child * s], heap->indices[child * s],
				 heap->values[(child + 1) * s], heap->indices[(child + 1) * s]))
			child++;
		if (!top_k_before(largest, value, index, heap->values[child * s],
				  heap->indices[child * s]))
			break;
		heap->values[at * s] = heap->values[child * s];
		heap->indices[at * s] = heap->indices[child * s];
		at = child;
	}
	heap->values[at * s] = value;
	heap->indices[at * s] = index;
}

/* Insert an entry into a heap of @n entries. */
VEC_INLINE void top_k_push(const bool largest, const struct heap *heap, size_t n, float value,
			   int64_t index)
{
	const size_t s = heap->stride;
	size_t at = n;

	while (at > 0) {
		const size_t up = (at - 1) / 2;

		if (!top_k_before(largest, heap->values[up * s], heap->indices[up * s], value,
				  index))
			break;
		heap->values[at * s] = heap->values[up * s];
		heap->indices[at * s] = heap->indices[up * s];
		at = up;
	}
	heap->values[at * s] = value;
	heap->indices[at * s] = index;
}

/*
 * Offer an element: it replaces @worst, the worst of the kept values, if it is better.
 * Return: the worst of the values that are kept now.
 */
VEC_INLINE float top_k_offer(const bool largest, const struct heap *heap, size_t k, float worst,
			     float value, size_t index)
{
	if (largest ? value > worst : value < worst)
		;
	else if (worst == worst || value != value)
		return worst;
	top_k_sift(largest, heap, k, value, (int64_t)index);
	return heap->values[0];
}

VEC_INLINE void top_k_column(const bool largest, const struct cpu_top_k *args, const float *x,
			     const struct heap *heap)
{
	const size_t step = args->inner, k = args->k, s = heap->stride;
	float worst;
	size_t i = 0, looked = 0;

	for (; i < k; i++) {
		cpu_pause_at(args->pause, i, TOP_K_PAUSE);
		top_k_push(largest, heap, i, x[i * step], (int64_t)i);
	}
	worst = heap->values[0];

	if (step == 1) {
		while (i + 8 * VW <= args->len) {
			const vf limit = vf_set(worst);
			vi pass = {0};

			if (i - looked >= CPU_PAUSE_ELEMS) {
				cpu_pause(args->pause);
				looked = i;
			}
			/* While a NaN is kept, every number passes. */
			VEC_UNROLL
			for (size_t v = 0; v < 8 * VW; v += VW) {
				const vf value = vf_load(x + i + v);

				pass |= largest ? (vi)(value > limit) : (vi)(value < limit);
			}
			if (vi_any(pass) || worst != worst) {
				for (size_t e = i; e < i + 8 * VW; e++)
					worst = top_k_offer(largest, heap, k, worst, x[e], e);
				cpu_pause(args->pause);
			}
			i += 8 * VW;
		}
	}
	for (; i < args->len; i++) {
		cpu_pause_at(args->pause, i, TOP_K_PAUSE);
		worst = top_k_offer(largest, heap, k, worst, x[i * step], i);
	}

	for (size_t n = k; n > 1; n--) {
		const float value = heap->values[(n - 1) * s];
		const int64_t index = heap->indices[(n - 1) * s];

		cpu_pause_at(args->pause, n, TOP_K_PAUSE);
		heap->values[(n - 1) * s] = heap->values[0];
		heap->indices[(n - 1) * s] = heap->indices[0];
		top_k_sift(largest, heap, n - 1, value, index);
	}
}

void CPU_FN(top_k)(const struct cpu_top_k *args, size_t begin, size_t end)
{
	for (size_t unit = begin; unit < end; unit++) {
		const size_t outer = unit / args->inner, inner = unit % args->inner;
		const float *x = args->x + outer * args->len * args->inner + inner;
		const struct heap heap = {
			.values = args->values + outer * args->k * args->inner + inner,
			.indices = args->indices + outer * args->k * args->inner + inner,
			.stride = args->inner,
		};

		if (args->largest)
			top_k_column(true, args, x, &heap);
		else
			top_k_column(false, args, x, &heap);
	}
}
