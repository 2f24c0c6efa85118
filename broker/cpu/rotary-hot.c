/* SPDX-License-Identifier: MIT */
/*
 * RotaryEmbedding
 *
 * The first elements of every head form pairs that are rotated by an angle, which depends on the
 * position in the sequence and the pair's number: (a, b) becomes (a cos - b sin, a sin + b cos). A
 * pair is either two adjacent elements or one element of each half. A unit is one position, whose
 * angles all heads share.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"

/* short heads between two polls; within long heads the loops poll themselves */
enum { ROTARY_PAUSE_HEADS = 256 };

static void rotary_halves(const float *x, float *y, const float *cosine, const float *sine,
			  size_t half, struct cpu_pause *pause)
{
	for (size_t i = 0; i < half; i += VW) {
		const size_t n = half - i < VW ? half - i : VW;
		const vf a = vf_load_partial(x + i, n), b = vf_load_partial(x + half + i, n);
		const vf c = vf_load_partial(cosine + i, n), s = vf_load_partial(sine + i, n);

		cpu_pause_at(pause, i, CPU_PAUSE_ELEMS);
		vf_store_partial(y + i, a * c - b * s, n);
		vf_store_partial(y + half + i, a * s + b * c, n);
	}
}

static void rotary_neighbours(const float *x, float *y, const float *cosine, const float *sine,
			      size_t half, struct cpu_pause *pause)
{
	size_t i = 0;

	for (; i + 4 <= half; i += 4) {
		const v4 low = *(const v4_unaligned *)(x + 2 * i);
		const v4 high = *(const v4_unaligned *)(x + 2 * i + 4);
		const v4 a = __builtin_shufflevector(low, high, 0, 2, 4, 6);
		const v4 b = __builtin_shufflevector(low, high, 1, 3, 5, 7);
		const v4 c = *(const v4_unaligned *)(cosine + i);
		const v4 s = *(const v4_unaligned *)(sine + i);
		const v4 first = a * c - b * s, second = a * s + b * c;

		cpu_pause_at(pause, i, CPU_PAUSE_ELEMS);
		*(v4_unaligned *)(y + 2 * i) = __builtin_shufflevector(first, second, 0, 4, 1, 5);
		*(v4_unaligned *)(y + 2 * i + 4) =
			__builtin_shufflevector(first, second, 2, 6, 3, 7);
	}
	for (; i < half; i++) {
		const float a = x[2 * i], b = x[2 * i + 1];

		y[2 * i] = a * cosine[i] - b * sine[i];
		y[2 * i + 1] = a * sine[i] + b * cosine[i];
	}
}

/* Copy the elements that are not rotated. */
static void rotary_copy(const float *x, float *y, size_t n, struct cpu_pause *pause)
{
	for (size_t i = 0; i < n; i += CPU_PAUSE_ELEMS) {
		cpu_pause(pause);
		memcpy(y + i, x + i,
		       (n - i < CPU_PAUSE_ELEMS ? n - i : CPU_PAUSE_ELEMS) * sizeof(float));
	}
}

/* Return the row of the caches for position @at of @batch; the position is read once. */
static size_t rotary_position(const struct cpu_rotary *args, size_t batch, size_t at)
{
	const size_t index = batch * args->seq + at;
	int64_t position;

	if (!args->positions)
		return index;
	position = *(const volatile int64_t *)&args->positions[index];
	if (position < 0)
		return 0;
	return (uint64_t)position < args->n_positions ? (size_t)position : args->n_positions - 1;
}

void CPU_FN(rotary)(const struct cpu_rotary *args, size_t begin, size_t end)
{
	const size_t half = args->rotary / 2;

	for (size_t unit = begin; unit < end; unit++) {
		const size_t batch = unit / args->seq, at = unit % args->seq;
		const size_t position = rotary_position(args, batch, at);
		const float *cosine = args->cos + position * half;
		const float *sine = args->sin + position * half;
		size_t offset = batch * args->batch_stride + at * args->seq_stride;

		for (size_t head = 0; head < args->heads; head++, offset += args->head_stride) {
			const float *x = args->x + offset;
			float *y = args->y + offset;

			cpu_pause_at(args->pause, head, ROTARY_PAUSE_HEADS);
			if (args->interleaved)
				rotary_neighbours(x, y, cosine, sine, half, args->pause);
			else
				rotary_halves(x, y, cosine, sine, half, args->pause);
			rotary_copy(x + args->rotary, y + args->rotary, args->head - args->rotary,
				    args->pause);
		}
	}
}
