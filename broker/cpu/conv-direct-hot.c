/* SPDX-License-Identifier: MIT */
/*
 * Conv with channels last, in place
 *
 * A register tile is some adjacent pixels of the output by a panel of GEMM_NR out channels; it
 * stays in registers for all taps of its pixels. If the same taps of all these pixels are inside
 * the picture, the pixels' inputs are a fixed distance apart. Then elements of the input are
 * broadcast from their place: no input is gathered, and padding is not computed.
 *
 * Pixels are therefore grouped by their taps inside: rows of the output that see the same rows of
 * their windows, and in these the columns that see the same columns. The interior is processed by
 * rows, and an edge of one or two columns by columns.
 *
 * A sum begins with the bias and proceeds tap by tap, in each tap channel by channel: the same for
 * every split and tile.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"
#include "cpu/window.h"

/* Pixels of a register tile */
#if VW == 16
#define DIRECT_MR 14
#else
#define DIRECT_MR 6
#endif

_Static_assert(CPU_DIRECT_COLUMNS % GEMM_NR == 0, "whole panels");

/* Operands of a register tile; distances are in elements */
struct direct_tile {
	const float *x; /* first inside tap of the first pixel */
	const float *weights;
	const float *bias; /* NULL: none */
	float *y;
	size_t n;          /* out channels */
	size_t x_rs, y_rs; /* stride between pixels */
	size_t taps[3];    /* taps inside, by dimension */
	size_t x_step[3];  /* stride between taps */
	size_t weights_step[3];
	size_t run; /* elements of a tap */
};

/* Add one run of @mr pixels. */
VEC_INLINE void direct_run(const size_t mr, const size_t nv, size_t run, const float *x, size_t rs,
			   const float *weights, vf acc[DIRECT_MR][2])
{
	/* One pointer per three pixels, which addressing modes reach by multiples of @rs. */
	const float *at[(DIRECT_MR + 2) / 3];

	VEC_UNROLL
	for (size_t i = 0; i < mr; i += 3)
		at[i / 3] = x + i * rs;
	for (; run > 0; run--, weights += GEMM_NR) {
		const vf w0 = vf_load(weights), w1 = nv == 2 ? vf_load(weights + VW) : w0;

		VEC_UNROLL
		for (size_t i = 0; i < mr; i++) {
			const vf v = vf_set(at[i / 3][i % 3 * rs]);

			acc[i][0] += v * w0;
			if (nv == 2)
				acc[i][1] += v * w1;
		}
		VEC_UNROLL
		for (size_t i = 0; i < mr; i += 3)
			at[i / 3]++;
	}
}

VEC_INLINE void direct_micro(const size_t mr, const size_t nv, const struct direct_tile *tile)
{
	const size_t rest = tile->n - (nv - 1) * VW, rs = tile->x_rs, run = tile->run;
	vf acc[DIRECT_MR][2], start[2] = {0};
	float *y = tile->y;

	if (tile->bias) {
		start[nv - 1] = vf_load_partial(tile->bias + (nv - 1) * VW, rest);
		if (nv == 2)
			start[0] = vf_load(tile->bias);
	}
	VEC_UNROLL
	for (size_t i = 0; i < mr; i++) {
		acc[i][0] = start[0];
		acc[i][1] = start[1];
	}
	for (size_t q = 0; q < tile->taps[0]; q++) {
		for (size_t r = 0; r < tile->taps[1]; r++) {
			const float *x = tile->x + q * tile->x_step[0] + r * tile->x_step[1];
			const float *weights = tile->weights + q * tile->weights_step[0] +
					       r * tile->weights_step[1];

			for (size_t s = 0; s < tile->taps[2]; s++) {
				direct_run(mr, nv, run, x, rs, weights, acc);
				x += tile->x_step[2];
				weights += tile->weights_step[2];
			}
		}
	}
	VEC_UNROLL
	for (size_t i = 0; i < mr; i++, y += tile->y_rs)
		vf_store_row(nv, y, acc[i], rest);
}

/* Height and width are constants in each instance, so that the tile stays in registers. */
#define DIRECT_INSTANCE(mr, nv)                                              \
	static void direct_micro_##mr##_##nv(const struct direct_tile *tile) \
	{                                                                    \
		direct_micro(mr, nv, tile);                                  \
	}
#define DIRECT_FOR_6(X, nv) X(1, nv) X(2, nv) X(3, nv) X(4, nv) X(5, nv) X(6, nv)
#if DIRECT_MR == 14
#define DIRECT_FOR(X, nv)   \
	DIRECT_FOR_6(X, nv) \
	X(7, nv) X(8, nv) X(9, nv) X(10, nv) X(11, nv) X(12, nv) X(13, nv) X(14, nv)
#else
#define DIRECT_FOR(X, nv) DIRECT_FOR_6(X, nv)
#endif

DIRECT_FOR(DIRECT_INSTANCE, 1)
DIRECT_FOR(DIRECT_INSTANCE, 2)

#define DIRECT_NAME(mr, nv) direct_micro_##mr##_##nv,

/* [one vector, two][pixels - 1] */
static void (*const direct_micros[2][DIRECT_MR])(const struct direct_tile *tile) = {
	{DIRECT_FOR(DIRECT_NAME, 1)},
	{DIRECT_FOR(DIRECT_NAME, 2)},
};

/* Compute @n pixels from the tile's first one on, in tiles of about equal size. */
static void direct_pixels(struct direct_tile tile, size_t n, struct cpu_pause *pause)
{
	const size_t n_tiles = div_up(n, DIRECT_MR);

	for (size_t t = 0; t < n_tiles; t++) {
		const size_t mr = n * (t + 1) / n_tiles - n * t / n_tiles;

		cpu_pause(pause);
		direct_micros[tile.n > VW][mr - 1](&tile);
		tile.x += mr * tile.x_rs;
		tile.y += mr * tile.y_rs;
	}
}

/* A panel of a group's out channels */
struct direct_panel {
	size_t group;
	size_t first, n; /* out channels, within the group */
};

static struct direct_tile direct_tile_of(const struct cpu_window *args,
					 const struct direct_panel *panel)
{
	const size_t channels = args->channels / args->group;
	const size_t n_all = args->out_channels / args->group;
	const size_t depth = args->kernel[0] * args->kernel[1] * args->kernel[2] * channels;
	const size_t padded = round_up(n_all, GEMM_NR);
	const size_t first = panel->group * n_all + panel->first;

	return (struct direct_tile){
		.x = args->x + panel->group * channels,
		.weights = args->weights_packed + (panel->group * padded + panel->first) * depth,
		.bias = args->bias ? args->bias + first : NULL,
		.y = args->y + first,
		.n = panel->n,
		.x_rs = args->channels,
		.y_rs = args->out_channels,
		.taps = {1, 1, 1},
		.run = channels,
	};
}

/*
 * Rows of the output that see the same rows of their windows, and some columns that see the same
 * columns
 */
struct direct_region {
	size_t row, n_rows;      /* rows of all pictures */
	size_t begin[3], end[3]; /* taps inside */
};

static void direct_columns(const struct cpu_window *args, const struct direct_region *region,
			   size_t first, size_t n, struct direct_tile tile)
{
	const size_t oy = region->row % args->out_height, slice = region->row / args->out_height;
	const size_t oz = slice % args->out_depth, batch = slice / args->out_depth;
	const size_t iz =
		oz * args->stride[0] + region->begin[0] * args->dilation[0] - args->pad_begin[0];
	const size_t iy =
		oy * args->stride[1] + region->begin[1] * args->dilation[1] - args->pad_begin[1];
	const size_t ix =
		first * args->stride[2] + region->begin[2] * args->dilation[2] - args->pad_begin[2];
	const size_t line = args->width * args->channels, out_line = args->out_width * tile.y_rs;
	const size_t weights_tap = tile.run * GEMM_NR;

	for (size_t d = 0; d < 3; d++) {
		tile.taps[d] = region->end[d] - region->begin[d];
		if (tile.taps[d] == 0)
			tile.taps[0] = 0;
	}
	tile.x_step[0] = args->dilation[0] * args->height * line;
	tile.x_step[1] = args->dilation[1] * line;
	tile.x_step[2] = args->dilation[2] * args->channels;
	tile.weights_step[2] = weights_tap;
	tile.weights_step[1] = args->kernel[2] * tile.weights_step[2];
	tile.weights_step[0] = args->kernel[1] * tile.weights_step[1];
	tile.y += (region->row * args->out_width + first) * tile.y_rs;
	if (tile.taps[0] > 0) {
		tile.x += ((batch * args->depth + iz) * args->height + iy) * line +
			  ix * args->channels;
		for (size_t d = 0; d < 3; d++)
			tile.weights += region->begin[d] * tile.weights_step[d];
	}
	/* Merge taps that are adjacent in memory. */
	if (args->group == 1 && args->dilation[2] == 1) {
		tile.run *= tile.taps[2];
		tile.taps[2] = 1;
	}
	if (n >= region->n_rows) {
		tile.x_rs = args->stride[2] * args->channels;
		for (size_t i = 0; i < region->n_rows; i++) {
			direct_pixels(tile, n, args->pause);
			tile.x += args->stride[1] * line;
			tile.y += out_line;
		}
		return;
	}
	tile.x_rs = args->stride[1] * line;
	tile.y_rs = out_line;
	for (size_t i = 0; i < n; i++) {
		direct_pixels(tile, region->n_rows, args->pause);
		tile.x += args->stride[2] * args->channels;
		tile.y += args->out_channels;
	}
}

static void direct_taps(const struct cpu_window *args, unsigned int d, size_t o,
			struct direct_region *region)
{
	const size_t limits[3] = {args->depth, args->height, args->width};

	window_taps(o, args->stride[d], args->pad_begin[d], args->dilation[d], args->kernel[d],
		    limits[d], &region->begin[d], &region->end[d]);
}

/* Compute all columns of rows that see the same rows of their windows. */
static void direct_rows(const struct cpu_window *args, struct direct_region region,
			const struct direct_tile *tile)
{
	const struct window_inner inner = window_find_inner(args);
	size_t ox = 0;

	while (ox < args->out_width) {
		struct direct_region next = region;
		size_t until = ox + 1;

		direct_taps(args, 2, ox, &region);
		if (ox >= inner.begin && ox < inner.end)
			until = inner.end;
		for (; until < args->out_width; until++) {
			direct_taps(args, 2, until, &next);
			if (next.begin[2] != region.begin[2] || next.end[2] != region.end[2])
				break;
		}
		direct_columns(args, &region, ox, until - ox, *tile);
		ox = until;
	}
}

/* Compute rows [begin, end) of all pictures. */
static void direct_panel(const struct cpu_window *args, const struct direct_panel *panel,
			 size_t begin, size_t end)
{
	const struct direct_tile tile = direct_tile_of(args, panel);

	while (begin < end) {
		const size_t oy = begin % args->out_height, slice = begin / args->out_height;
		const size_t most = min_size(end - begin, args->out_height - oy);
		struct direct_region region = {.row = begin, .n_rows = 1}, next;

		direct_taps(args, 0, slice % args->out_depth, &region);
		direct_taps(args, 1, oy, &region);
		for (next = region; region.n_rows < most; region.n_rows++) {
			direct_taps(args, 1, oy + region.n_rows, &next);
			if (next.begin[1] != region.begin[1] || next.end[1] != region.end[1])
				break;
		}
		direct_rows(args, region, &tile);
		begin += region.n_rows;
	}
}

/* Compute pixels [begin, end) of all pictures, where every pixel sees only itself. */
static void direct_plain(const struct cpu_window *args, const struct direct_panel *panel,
			 size_t begin, size_t end)
{
	struct direct_tile tile = direct_tile_of(args, panel);

	tile.x += begin * tile.x_rs;
	tile.y += begin * tile.y_rs;
	direct_pixels(tile, end - begin, args->pause);
}

static void direct_activate(const struct cpu_window *args, const struct cpu_direct_piece *piece)
{
	const size_t n = piece->n_end - piece->n_begin, y_rs = args->out_channels;
	const size_t width = cpu_window_is_plain(args) ? 1 : args->out_width;
	float *y = args->y + piece->begin * width * y_rs + piece->n_begin;
	const size_t m = (piece->end - piece->begin) * width;

	if (!args->activation)
		return;
	if (n == y_rs) {
		cpu_activate(args->activation, y, m * n);
		return;
	}
	for (size_t i = 0; i < m; i++, y += y_rs)
		cpu_activate(args->activation, y, n);
}

void CPU_FN(conv_direct)(const struct cpu_window *args, size_t begin, size_t end)
{
	const bool is_plain = cpu_window_is_plain(args);
	const size_t n_all = args->out_channels / args->group;

	while (begin < end) {
		const struct cpu_direct_piece piece = cpu_direct_piece(args, &begin, end);

		for (size_t j = piece.n_begin; j < piece.n_end;) {
			const size_t group = j / n_all, first = j % n_all;
			const struct direct_panel panel = {group, first,
							   min_size(GEMM_NR, n_all - first)};

			if (is_plain)
				direct_plain(args, &panel, piece.begin, piece.end);
			else
				direct_panel(args, &panel, piece.begin, piece.end);
			j += panel.n;
		}
		direct_activate(args, &piece);
	}
}
