#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The depth of a convolution of eight-bit numbers
 *
 * What one output pixel of one group sums up, as words of I8_GROUP elements. A word is one tap of
 * neighbouring channels, so that a tensor rearranged likewise has all of a tap's words side by
 * side; where there are too few channels for that, neighbouring taps of one channel. Planes follow
 * each other, each a channel or a few of them: of each its taps row by row. Elements that a last
 * word has too many are zero.
 */
#include "cpu/int8-level.h"

struct i8_depth {
	size_t channels; /* of a group */
	bool by_taps;    /* a word is of one channel */
	size_t planes;
	size_t row_words, plane_words; /* of a row of the kernel, of all of it */
	size_t words;
	size_t block; /* words that are multiplied before the next ones are looked at */
};

static inline struct i8_depth i8_depth_of(const struct cpu_window *w)
{
	const size_t channels = w->channels / w->group;
	const size_t groups = (channels + I8_GROUP - 1) / I8_GROUP;
	const size_t row_groups = (w->kernel[2] + I8_GROUP - 1) / I8_GROUP;
	struct i8_depth d = {.channels = channels};
	size_t blocks;

	d.by_taps = channels * row_groups < groups * w->kernel[2];
	d.planes = d.by_taps ? channels : groups;
	d.row_words = d.by_taps ? row_groups : w->kernel[2];
	d.plane_words = w->kernel[1] * d.row_words;
	d.words = d.planes * d.plane_words;
	/* About the same number in each. */
	blocks = (d.words + I8_KCW - 1) / I8_KCW;
	d.block = (d.words + blocks - 1) / blocks;
	return d;
}

/* As one block. */
static inline struct i8_depth i8_depth_whole(const struct cpu_window *w)
{
	struct i8_depth d = i8_depth_of(w);

	d.block = d.words;
	return d;
}

/* Element @q of word @k: a channel of the group and a tap. Return: false if there is none. */
static inline bool i8_depth_at(const struct cpu_window *w, const struct i8_depth *d, size_t k,
			       size_t q, size_t *ret_channel, size_t *ret_tap)
{
	const size_t plane = k / d->plane_words, word = k % d->plane_words;
	const size_t row = word / d->row_words, at = word % d->row_words;
	const size_t channel = d->by_taps ? plane : plane * I8_GROUP + q;
	const size_t column = d->by_taps ? at * I8_GROUP + q : at;

	*ret_channel = channel;
	*ret_tap = row * w->kernel[2] + column;
	return channel < d->channels && column < w->kernel[2];
}

/* Output pixels [first, first + n) of one picture: whole rows, or n <= CPU_CONV_PIXELS. */
struct i8_pixels {
	const struct cpu_int8_conv *conv;
	const struct i8_depth *depth;
	const uint8_t *x; /* the first channel of the group */
	size_t first, n;
};

enum {
	/* Words of the input that are rearranged at once, and bytes of one row of it. */
	I8_SLAB_WORDS = 1 << 17,
	/* Beginnings of vectors whose first lanes are not read may be in front of the slab. */
	I8_SLAB_BEFORE = 2 * VW,
	I8_SLAB_ROW = 1 << 14,
};

/* What of a plane is under some pixels: places, a word each. */
struct i8_slab {
	int64_t row, column; /* of the input, of the first place; before the beginning: padding */
	size_t rows, width, plane;
	size_t inside_begin, inside_end; /* columns that are no padding */
	size_t step;                     /* from one word of a row of the kernel to the next */
};

/* A vector's pixels or some of them: lane l of these is place offset + l * stride. */
struct i8_part {
	ptrdiff_t offset;
	uint32_t bits, reads; /* see struct window_lanes */
};

/* A word of a block: the place where the first pixel sees it, and its elements that are taps. */
struct i8_word {
	size_t offset;
	int32_t mask;
};

/* Pixels that are being arranged, with one block of the depth. */
struct i8_arrange {
	bool is_plain;  /* pixels are the input's as they are */
	bool is_slab;   /* there is a slab: of each plane in the block its places */
	bool is_masked; /* words have elements that are no taps */
	struct i8_slab found;
	int32_t slab[I8_SLAB_BEFORE + I8_SLAB_WORDS + 2 * VW + 16];
	uint8_t row[I8_SLAB_ROW + 16];
	uint8_t gathered[I8_GROUP][I8_NR];
	struct i8_part parts[CPU_CONV_PIXELS + 2];
	uint8_t first_part[CPU_CONV_PIXELS / VW + 1]; /* of a vector */
	uint8_t n_parts[CPU_CONV_PIXELS / VW + 1];    /* none: beyond the last pixel */
	struct i8_word words[I8_KCW];
};
_Static_assert(CPU_CONV_PIXELS < 256, "parts are counted in bytes");

/* Up to I8_NR out channels, and what they see of rows of the input; see int8-channels-hot.c. */
struct i8_channels {
	size_t planes, plane;        /* of the slab: how many, and from one to the next */
	const struct i8_word *words; /* of a plane */
	size_t n_words;              /* of these, those that are looked at, */
	size_t n_skipped;            /* and as many more that weights have */
	const int32_t *weights;      /* of the first word that is looked at */
	size_t m;                    /* channels */
	/* NULL: sums lack nothing. Its rows are the channels, its columns the row's pixels. */
	const struct i8_finish *finish;
	void *y;     /* bytes or int32 */
	size_t y_rs; /* from channel to channel */
	struct cpu_pause *pause;
};

/* @n neighbouring pixels of a row: the first is @pixels of the slab, and goes to element @at. */
void CPU_FN(i8_channels_row)(const struct i8_channels *of, bool a_signed, size_t n,
			     const int32_t *pixels, size_t at);
/* Adds up what each of them sees; may write up to I8_NR sums more. */
void CPU_FN(i8_channels_sums)(const struct i8_channels *of, bool a_signed, size_t n,
			      const int32_t *pixels, int32_t *sums);

/* int8-pixels-hot.c: is there room for a slab, or need of none? Else they are arranged slowly. */
bool CPU_FN(i8_arrange_fits)(const struct i8_pixels *pixels);
/* Prepares words [k, k + kw) of the depth, which is one block of it. */
void CPU_FN(i8_arrange_block)(const struct i8_pixels *pixels, size_t k, size_t kw,
			      struct i8_arrange *work);
/*
 * Prepares the whole depth for rows of the output, with one plane's words. Return: false if there
 * is no room for so many rows.
 */
bool CPU_FN(i8_arrange_rows)(const struct i8_pixels *pixels, struct i8_arrange *work);
/* Then, of a block, the panel of I8_NR pixels from @j on. */
void CPU_FN(i8_arrange_panel)(const struct i8_pixels *pixels, size_t k, size_t kw, size_t j,
			      struct i8_arrange *work, int32_t *to);
