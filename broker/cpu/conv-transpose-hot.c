/* SPDX-License-Identifier: MIT */
/*
 * ConvTranspose
 *
 * The taps that reach an output position depend only on its remainder by the stride. Positions of
 * one remainder, a phase, are therefore a convolution with stride 1 and the taps of that phase, and
 * it is computed as Conv (window-hot.c): a matrix product for which a block of a phase's pixels is
 * gathered at a time. Rows of the product are ordered tap by tap, so that the weights of one tap
 * are a matrix in place. The result is copied from a tile in the workspace to the phase's pixels.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"
#include "cpu/window.h"

/* Out channels multiplied at a time: whole panels at every level */
#define TRANSPOSE_MC 240

/* Taps outside the phase between two cpu_pause() calls */
enum { TRANSPOSE_TAPS = 1 << 10 };

_Static_assert(((TRANSPOSE_MC + CPU_CONV_PIXELS) * CPU_GEMM_KC + TRANSPOSE_MC * CPU_CONV_PIXELS) *
			       sizeof(float) <=
		       CPU_WORKSPACE_BYTES,
	       "the workspace holds blocks of the weights, the pixels and the result");

/* One phase: output positions first + j * stride along each dimension, j < n */
struct phase {
	size_t first[3], n[3];
};

/* The input of a tap: pixel j of the phase sees position j + from. */
struct view {
	int64_t from[3];
};

size_t CPU_FN(pack_conv_transpose_size)(const struct cpu_window *args)
{
	return args->channels * (args->out_channels / args->group) * cpu_window_taps(args);
}

/* Pack group by group, tap by tap, in blocks of the depth, each in panels of rows. */
size_t CPU_FN(pack_conv_transpose)(const struct cpu_window *args, size_t begin, size_t end,
				   float *to)
{
	const size_t m = args->out_channels / args->group, depth = args->channels / args->group;
	const size_t taps = cpu_window_taps(args);
	const size_t n_rows = div_up(m, WINDOW_PACK_ROWS);
	const size_t n_blocks = div_up(depth, CPU_GEMM_KC);
	const size_t n_units = args->group * taps * n_blocks * n_rows;

	for (size_t unit = begin; unit < min_size(end, n_units); unit++) {
		const size_t i = unit % n_rows * WINDOW_PACK_ROWS;
		const size_t p = unit / n_rows % n_blocks * CPU_GEMM_KC;
		const size_t matrix = unit / n_rows / n_blocks;
		const size_t group = matrix / taps, tap = matrix % taps;
		const size_t kb = min_size(CPU_GEMM_KC, depth - p);

		CPU_FN(gemm_pack_a)
		(min_size(WINDOW_PACK_ROWS, m - i), kb,
		 args->weights + ((group * depth + p) * m + i) * taps + tap, taps, m * taps,
		 to + (matrix * depth + p) * m + i * kb);
	}
	return n_units;
}

/* Return phase number @at. */
static struct phase phase_of(const struct cpu_window *args, size_t at)
{
	const size_t out[3] = {args->out_depth, args->out_height, args->out_width};
	struct phase phase;

	for (unsigned int d = 3; d-- > 0;) {
		const size_t phases = min_size(args->stride[d], out[d]);

		phase.first[d] = at % phases;
		phase.n[d] = (out[d] - phase.first[d] - 1) / args->stride[d] + 1;
		at /= phases;
	}
	return phase;
}

/* Find the input of tap @tap. Return: false if the tap does not reach the phase. */
static bool find_view(const struct cpu_window *args, const struct phase *phase, size_t tap,
		      struct view *ret)
{
	for (unsigned int d = 3; d-- > 0;) {
		const int64_t at = (int64_t)(phase->first[d] + args->pad_begin[d]) -
				   (int64_t)(tap % args->kernel[d] * args->dilation[d]);

		if (at % (int64_t)args->stride[d] != 0)
			return false;
		ret->from[d] = at / (int64_t)args->stride[d];
		tap /= args->kernel[d];
	}
	return true;
}

/* Gather pixels [first, first + n) of a phase for one tap of a channel. */
static void transpose_gather(const struct cpu_window *args, const struct phase *phase,
			     const struct view *view, const float *channel, size_t first, size_t n,
			     float *to)
{
	const size_t width = phase->n[2];
	const int64_t left = -view->from[2], right = (int64_t)args->width - view->from[2];
	size_t row = first / width, j = first % width;

	while (n > 0) {
		const size_t len = min_size(n, width - j);
		const int64_t z = view->from[0] + (int64_t)(row / phase->n[1]);
		const int64_t y = view->from[1] + (int64_t)(row % phase->n[1]);
		int64_t begin = left > (int64_t)j ? left : (int64_t)j;
		int64_t end = right < (int64_t)(j + len) ? right : (int64_t)(j + len);

		if (z < 0 || z >= (int64_t)args->depth || y < 0 || y >= (int64_t)args->height ||
		    begin >= end) {
			memset(to, 0, len * sizeof(float));
		} else {
			const size_t lead = (size_t)begin - j, inside = (size_t)(end - begin);

			memset(to, 0, lead * sizeof(float));
			memcpy(to + lead,
			       channel + ((size_t)z * args->height + (size_t)y) * args->width +
				       (size_t)(view->from[2] + begin),
			       inside * sizeof(float));
			memset(to + lead + inside, 0, (len - lead - inside) * sizeof(float));
		}
		to += len;
		n -= len;
		j = 0;
		row++;
	}
}

/* Pack channels [p, p + kb) of a tap's input as panels of GEMM_NR pixels. */
static void transpose_pack(const struct cpu_window *args, const struct phase *phase,
			   const struct view *view, const float *x, size_t p, size_t kb,
			   size_t first, size_t n, float *to)
{
	float gathered[CPU_CONV_PIXELS];

	for (size_t k = 0; k < kb; k++) {
		cpu_pause(args->pause);
		transpose_gather(args, phase, view, x + (p + k) * cpu_window_in(args), first, n,
				 gathered);
		for (size_t j = 0; j < n; j += GEMM_NR) {
			const size_t len = min_size(GEMM_NR, n - j);
			float *panel = to + j * kb + k * GEMM_NR;

			memcpy(panel, gathered + j, len * sizeof(float));
			memset(panel + len, 0, (GEMM_NR - len) * sizeof(float));
		}
	}
}

/* Copy a tile's rows to their channels, with bias and activation. */
static void transpose_scatter(const struct cpu_window *args, const struct phase *phase, float *tile,
			      const float *bias, size_t m, size_t first, size_t n, float *y)
{
	for (size_t i = 0; i < m; i++) {
		float *from = tile + i * CPU_CONV_PIXELS, add = bias ? bias[i] : 0;
		float *plane = y + i * cpu_window_out(args);
		size_t row = first / phase->n[2], j = first % phase->n[2];

		if (args->activation) {
			for (size_t k = 0; k < n; k++)
				from[k] += add;
			add = 0;
			cpu_activate(args->activation, from, n);
		}
		for (size_t done = 0; done < n; row++, j = 0) {
			const size_t len = min_size(n - done, phase->n[2] - j);
			const size_t oz = phase->first[0] + row / phase->n[1] * args->stride[0];
			const size_t oy = phase->first[1] + row % phase->n[1] * args->stride[1];
			float *line = plane + (oz * args->out_height + oy) * args->out_width +
				      phase->first[2] + j * args->stride[2];

			for (size_t k = 0; k < len; k++)
				line[k * args->stride[2]] = from[done + k] + add;
			done += len;
		}
	}
}

/*
 * Add the contribution of tap @tap to out channels [i, i + mb). Return: true if the tap reaches the
 * phase.
 */
static bool transpose_tap(const struct cpu_window *args, const struct phase *phase, size_t tap,
			  const float *x, const float *weights, size_t i, size_t mb, size_t first,
			  size_t n, bool accumulate, float *workspace)
{
	const size_t m = args->out_channels / args->group, depth = args->channels / args->group;
	const size_t taps = cpu_window_taps(args);
	float *const a_block = workspace, *const b_block = a_block + TRANSPOSE_MC * CPU_GEMM_KC;
	float *const tile = b_block + CPU_CONV_PIXELS * CPU_GEMM_KC;
	struct view view;

	if (!find_view(args, phase, tap, &view))
		return false;
	for (size_t p = 0; p < depth; p += CPU_GEMM_KC) {
		const size_t kb = min_size(CPU_GEMM_KC, depth - p);
		const float *a = weights + tap * depth * m + p * m + i * kb;

		cpu_pause(args->pause);
		transpose_pack(args, phase, &view, x, p, kb, first, n, b_block);
		if (!args->weights_packed) {
			CPU_FN(gemm_pack_a)
			(mb, kb, weights + (p * m + i) * taps + tap, taps, m * taps, a_block);
			a = a_block;
		}
		for (size_t j = 0; j < n; j += GEMM_NR) {
			cpu_pause(args->pause);
			CPU_FN(gemm_panel)
			(mb, min_size(GEMM_NR, n - j), kb, a, b_block + j * kb, tile + j,
			 CPU_CONV_PIXELS, accumulate || p > 0);
		}
	}
	return true;
}

static void transpose_unit(const struct cpu_window *args, size_t batch, size_t group,
			   const struct phase *phase, size_t first, float *workspace)
{
	const size_t m = args->out_channels / args->group, depth = args->channels / args->group;
	const size_t pixels = phase->n[0] * phase->n[1] * phase->n[2], taps = cpu_window_taps(args);
	const float *x = args->x + (batch * args->channels + group * depth) * cpu_window_in(args);
	const float *weights = (args->weights_packed ? args->weights_packed : args->weights) +
			       group * depth * m * taps;
	float *y = args->y + (batch * args->out_channels + group * m) * cpu_window_out(args);
	float *const tile = workspace + (TRANSPOSE_MC + CPU_CONV_PIXELS) * CPU_GEMM_KC;
	size_t n;

	if (first >= pixels)
		return;
	n = min_size(CPU_CONV_PIXELS, pixels - first);
	for (size_t i = 0; i < m; i += TRANSPOSE_MC) {
		const size_t mb = min_size(TRANSPOSE_MC, m - i);
		bool any = false;

		for (size_t tap = 0; tap < taps; tap++) {
			/* Most taps of a wide stride do not reach the phase. */
			cpu_pause_at(args->pause, tap, TRANSPOSE_TAPS);
			any |= transpose_tap(args, phase, tap, x, weights, i, mb, first, n, any,
					     workspace);
		}
		if (!any)
			memset(tile, 0, mb * CPU_CONV_PIXELS * sizeof(float));
		transpose_scatter(args, phase, tile, args->bias ? args->bias + group * m + i : NULL,
				  mb, first, n, y + i * cpu_window_out(args));
	}
}

void CPU_FN(conv_transpose)(const struct cpu_window *args, size_t begin, size_t end,
			    void *workspace)
{
	const size_t phases = cpu_conv_transpose_phases(args);
	const size_t blocks = cpu_conv_transpose_blocks(args);

	for (size_t unit = begin; unit < end; unit++) {
		const size_t image = unit / blocks / phases;
		const struct phase phase = phase_of(args, unit / blocks % phases);

		transpose_unit(args, image / args->group, image % args->group, &phase,
			       unit % blocks * CPU_CONV_PIXELS, workspace);
	}
}
