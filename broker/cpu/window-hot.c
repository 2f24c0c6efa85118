/* SPDX-License-Identifier: MIT */
/*
 * Conv
 *
 * A convolution is a matrix product of the weights, [out channels][channels * taps], by an implicit
 * matrix. Its columns are output pixels; its rows are the input under each tap of each channel. For
 * a unit of pixels, one block of rows at a time is gathered into the workspace, in the layout that
 * the register tile reads and with zeros for the padding. Packed weights are multiplied by the
 * block.
 *
 * A depthwise convolution has one row of weights per matrix and would waste most of a register
 * tile: see slide-hot.c.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"
#include "cpu/window.h"

_Static_assert((GEMM_MC + CPU_CONV_PIXELS) * CPU_GEMM_KC * sizeof(float) <= CPU_WORKSPACE_BYTES,
	       "the workspace holds a block of the weights and a block of the pixels");
_Static_assert(CPU_CONV_PIXELS % GEMM_NR == 0, "whole panels");

size_t CPU_FN(pack_conv_size)(const struct cpu_window *args)
{
	return args->out_channels * cpu_conv_terms(args);
}

/*
 * Pack the weights group by group, in blocks of the depth, each in panels of rows. A unit is some
 * rows of a block.
 */
size_t CPU_FN(pack_conv)(const struct cpu_window *args, size_t begin, size_t end, float *to)
{
	const size_t depth = cpu_conv_terms(args), m = args->out_channels / args->group;
	const size_t n_rows = div_up(m, WINDOW_PACK_ROWS);
	const size_t n_blocks = div_up(depth, CPU_GEMM_KC);
	const size_t n_units = args->group * n_blocks * n_rows;

	for (size_t unit = begin; unit < min_size(end, n_units); unit++) {
		const size_t i = unit % n_rows * WINDOW_PACK_ROWS;
		const size_t p = unit / n_rows % n_blocks * CPU_GEMM_KC;
		const size_t first = unit / n_rows / n_blocks * m; /* row of the group */
		const size_t kb = min_size(CPU_GEMM_KC, depth - p);

		CPU_FN(gemm_pack_a)
		(min_size(WINDOW_PACK_ROWS, m - i), kb, args->weights + (first + i) * depth + p,
		 depth, 1, to + first * depth + p * m + i * kb);
	}
	return n_units;
}

/* Contiguous lanes of a vector of pixels under one tap: lane l is channel[offset + l * stride]. */
struct conv_part {
	ptrdiff_t offset;
	struct window_lanes lanes; /* other lanes are not read */
};

/* The view of one tap from a unit's pixels, vector by vector; the same in every channel. */
struct conv_view {
	struct conv_part parts[CPU_CONV_PIXELS];
	uint8_t n_parts[CPU_CONV_PIXELS / VW]; /* lanes in no part are padding */
};

/* Compute the view of tap @tap from output pixels [first, first + n). */
static void conv_find_view(const struct cpu_window *args, size_t tap, size_t first, size_t n,
			   struct conv_view *ret)
{
	const size_t s = tap % args->kernel[2], r = tap / args->kernel[2] % args->kernel[1];
	const size_t q = tap / args->kernel[2] / args->kernel[1], stride = args->stride[2];
	size_t row = first / args->out_width, ox = first % args->out_width, from, until;
	struct conv_part *part = ret->parts;
	size_t v = 0, lane = 0;

	memset(ret->n_parts, 0, sizeof(ret->n_parts));
	window_positions(s, stride, args->pad_begin[2], args->dilation[2], args->out_width,
			 args->width, &from, &until);
	while (n > 0) {
		const size_t len = min_size(min_size(n, args->out_width - ox), VW - lane);
		/* Positions before the beginning wrap around to numbers beyond the end. */
		const size_t iz = row / args->out_height * args->stride[0] + q * args->dilation[0] -
				  args->pad_begin[0];
		const size_t iy = row % args->out_height * args->stride[1] + r * args->dilation[1] -
				  args->pad_begin[1];
		const size_t begin = from < ox ? ox : from, end = min_size(until, ox + len);

		if (iz < args->depth && iy < args->height && begin < end) {
			const size_t line = (iz * args->height + iy) * args->width;

			/*
			 * Wraps around likewise: lane 0 may lie before the channel, and is not read
			 * then.
			 */
			*part++ = (struct conv_part){
				.offset = (ptrdiff_t)(line + s * args->dilation[2] -
						      args->pad_begin[2] + (ox - lane) * stride),
				.lanes = window_lanes_of(
					((1u << (end - begin)) - 1) << (lane + begin - ox), stride),
			};
			ret->n_parts[v]++;
		}
		n -= len;
		lane += len;
		ox += len;
		if (lane == VW) {
			lane = 0;
			v++;
		}
		if (ox == args->out_width) {
			ox = 0;
			row++;
		}
	}
}

/* Gather a view of one channel into row k of panels of GEMM_NR pixels that have @kb rows. */
VEC_INLINE void conv_look(const struct conv_view *view, const float *channel, const size_t stride,
			  size_t any_stride, size_t n, size_t kb, float *to)
{
	const struct conv_part *part = view->parts;

	for (size_t v = 0; v * VW < n; v += 2) {
		VEC_UNROLL
		for (size_t half = 0; half < 2; half++) {
			vi value = {0};

			for (size_t i = 0; i < view->n_parts[v + half]; i++, part++)
				value |= (vi)window_load(channel + part->offset, part->lanes,
							 stride, any_stride);
			vf_store(to + v * VW * kb + half * VW, (vf)value);
		}
	}
}

/* Gather rows [p, p + kb) of the implicit matrix as panels of GEMM_NR pixels. */
static void conv_pack_pixels(const struct cpu_window *args, const float *x, size_t p, size_t kb,
			     size_t first, size_t n, float *to)
{
	const size_t taps = args->kernel[0] * args->kernel[1] * args->kernel[2];
	const size_t stride = args->stride[2], plane = cpu_window_in(args);
	struct cpu_window flat;
	struct conv_view view;

	if (cpu_window_is_plain(args)) {
		flat = cpu_window_line(args);
		args = &flat;
	}
	/* The rows of one tap, one channel after another, share a view. */
	for (size_t tap = 0; tap < taps && tap < p + kb; tap++) {
		const size_t channel = tap >= p ? 0 : div_up(p - tap, taps);
		size_t k = channel * taps + tap;
		const float *from = x + channel * plane;

		if (k >= p + kb)
			continue;
		conv_find_view(args, tap, first, n, &view);
		for (; k < p + kb; k += taps, from += plane) {
			float *row = to + (k - p) * GEMM_NR;

			if (stride == 1)
				conv_look(&view, from, 1, 1, n, kb, row);
			else if (stride == 2)
				conv_look(&view, from, 2, 2, n, kb, row);
			else
				conv_look(&view, from, 0, stride, n, kb, row);
		}
	}
}

static void conv_piece(const struct cpu_window *args, const struct cpu_conv_piece *piece,
		       float *workspace)
{
	const size_t depth = cpu_conv_terms(args), pixels = cpu_window_out(args);
	const size_t k_end = args->k_end ? args->k_end : depth;
	const size_t m = args->out_channels / args->group,
		     in_channels = args->channels / args->group;
	const size_t batch = piece->batch, group = piece->group, first = piece->first, n = piece->n;
	const float *x =
		args->x + (batch * args->channels + group * in_channels) * cpu_window_in(args);
	const float *weights =
		(args->weights_packed ? args->weights_packed : args->weights) + group * m * depth;
	float *y = args->y + (batch * args->out_channels + group * m) * pixels + first;
	float *const a_block = workspace, *const b_block = workspace + GEMM_MC * CPU_GEMM_KC;

	for (size_t p = args->k_begin; p < k_end; p += CPU_GEMM_KC) {
		const size_t kb = min_size(CPU_GEMM_KC, k_end - p);

		cpu_pause(args->pause);
		conv_pack_pixels(args, x, p, kb, first, n, b_block);
		for (size_t i = piece->m_begin; i < piece->m_end; i += GEMM_MC) {
			const size_t mb = min_size(GEMM_MC, piece->m_end - i);
			const float *a = weights + m * p + i * kb;

			if (!args->weights_packed) {
				CPU_FN(gemm_pack_a)
				(mb, kb, weights + i * depth + p, depth, 1, a_block);
				a = a_block;
			}
			for (size_t j = 0; j < n; j += GEMM_NR) {
				cpu_pause(args->pause);
				CPU_FN(gemm_panel)
				(mb, min_size(GEMM_NR, n - j), kb, a, b_block + j * kb,
				 y + i * pixels + j, pixels, p > 0);
			}
		}
	}
	if (k_end < depth)
		return;
	for (size_t i = piece->m_begin; i < piece->m_end && (args->bias || args->activation); i++) {
		float *row = y + i * pixels;
		struct cpu_map add = {.in = {row}, .out = row, .step = {1, 0}};

		if (args->bias) {
			add.in[1] = args->bias + group * m + i;
			CPU_FN(map_f32)[CPU_MAP_ADD](&add, n);
		}
		cpu_activate(args->activation, row, n);
	}
}

void CPU_FN(conv)(const struct cpu_window *args, size_t begin, size_t end, void *workspace)
{
	if (cpu_conv_is_depthwise(args)) {
		CPU_FN(conv_depthwise)(args, begin, end);
		return;
	}
	while (begin < end) {
		const struct cpu_conv_piece piece = cpu_conv_piece(args, &begin, end);

		conv_piece(args, &piece, workspace);
	}
}
