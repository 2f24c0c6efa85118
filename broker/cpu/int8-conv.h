#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The depth of an eight-bit convolution
 *
 * The depth is the terms of one output pixel of one group, as words of I8_GROUP elements. A word is
 * one tap of adjacent channels; if the tensor is rearranged in the same way, all words of a tap are
 * adjacent. If there are too few channels, a word is adjacent taps of one channel. The words form a
 * sequence of planes. A plane is one channel or the channels of a word, with its taps row by row.
 * Excess elements of a last word are zero.
 */
#include "cpu/int8-level.h"
#include "shm/number.h"

struct i8_depth {
	size_t channels; /* channels of a group */
	bool by_taps;    /* a word has taps of one channel */
	size_t planes;
	size_t row_words, plane_words; /* words of a kernel row, and of a whole plane */
	size_t words;
	size_t block; /* words that are multiplied before the next block is arranged */
};

static inline struct i8_depth i8_depth_of(const struct cpu_window *w)
{
	const size_t channels = w->channels / w->group;
	const size_t groups = div_up(channels, I8_GROUP);
	const size_t row_groups = div_up(w->kernel[2], I8_GROUP);
	struct i8_depth d = {.channels = channels};
	size_t blocks;

	d.by_taps = channels * row_groups < groups * w->kernel[2];
	d.planes = d.by_taps ? channels : groups;
	d.row_words = d.by_taps ? row_groups : w->kernel[2];
	d.plane_words = w->kernel[1] * d.row_words;
	d.words = d.planes * d.plane_words;
	/* Blocks of about equal size */
	blocks = div_up(d.words, I8_KCW);
	d.block = div_up(d.words, blocks);
	return d;
}

/* Return the depth as one block. */
static inline struct i8_depth i8_depth_whole(const struct cpu_window *w)
{
	struct i8_depth d = i8_depth_of(w);

	d.block = d.words;
	return d;
}

/* Compute the channel and tap of element @q of word @k. Return: false if the element is padding. */
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

/* Output pixels [first, first + n) of one picture: whole rows, or n <= CPU_CONV_PIXELS */
struct i8_pixels {
	const struct cpu_int8_conv *conv;
	const struct i8_depth *depth;
	const uint8_t *x; /* the group's first channel */
	size_t first, n;
};

enum {
	/* Words of the input that are rearranged together. I8_SLAB_ROW: bytes of one input row. */
	I8_SLAB_WORDS = 1 << 17,
	/* Words before the slab: vectors whose first lanes are not used may start there. */
	I8_SLAB_BEFORE = 2 * VW,
	I8_SLAB_ROW = 1 << 14,
};

/* The part of a plane that some pixels see: places of one word each */
struct i8_slab {
	int64_t row, column; /* of the first place, in the input; negative: padding */
	size_t rows, width, plane;
	size_t inside_begin, inside_end; /* columns inside the input */
	size_t step;                     /* from one word of a kernel row to the next */
};

/* Some or all pixels of a vector: lane l is at place offset + l * stride. */
struct i8_part {
	ptrdiff_t offset;
	uint32_t bits, reads; /* see struct window_lanes */
};

/* A word of a block: its place for the first pixel, and the mask of the elements that are taps */
struct i8_word {
	size_t offset;
	int32_t mask;
};

/* Arrangement of pixels with one block of the depth */
struct i8_arrange {
	bool is_plain;  /* pixels are the input's, unchanged */
	bool is_slab;   /* the slab is in use: places of each plane of the block */
	bool is_masked; /* words have elements that are not taps */
	struct i8_slab found;
	int32_t slab[I8_SLAB_BEFORE + I8_SLAB_WORDS + 2 * VW + 16];
	uint8_t row[I8_SLAB_ROW + 16];
	uint8_t gathered[I8_GROUP][I8_NR];
	struct i8_part parts[CPU_CONV_PIXELS + 2];
	uint8_t first_part[CPU_CONV_PIXELS / VW + 1]; /* of a vector */
	uint8_t n_parts[CPU_CONV_PIXELS / VW + 1];    /* 0: beyond the last pixel */
	struct i8_word words[I8_KCW];
};
_Static_assert(CPU_CONV_PIXELS < 256, "parts are counted in bytes");

/* Up to I8_NR out channels and the input rows that they see; see int8-channels-hot.c */
struct i8_channels {
	size_t planes, plane;        /* planes of the slab, and words per plane */
	const struct i8_word *words; /* words of a plane */
	size_t n_words;              /* number of words inside the input */
	size_t n_skipped;            /* words outside, which the weights still have */
	const int32_t *weights;      /* weights of the first word inside */
	size_t m;                    /* channels */
	/* NULL: the sums are complete. Rows are the channels, columns the pixels of the row. */
	const struct i8_finish *finish;
	void *y;     /* bytes or int32 */
	size_t y_rs; /* stride between channels */
	struct cpu_pause *pause;
};

/*
 * Compute @n adjacent pixels of a row. The first pixel sees @pixels of the slab and is stored at
 * element @at.
 */
void CPU_FN(i8_channels_row)(const struct i8_channels *of, bool a_signed, size_t n,
			     const int32_t *pixels, size_t at);
/* Sum the elements that each pixel sees. May write up to I8_NR sums more. */
void CPU_FN(i8_channels_sums)(const struct i8_channels *of, bool a_signed, size_t n,
			      const int32_t *pixels, int32_t *sums);

/*
 * int8-pixels-hot.c: return true if the pixels need no slab or fit into one; otherwise the slow
 * path arranges them.
 */
bool CPU_FN(i8_arrange_fits)(const struct i8_pixels *pixels);
/* Prepare words [k, k + kw) of the depth, which are one block. */
void CPU_FN(i8_arrange_block)(const struct i8_pixels *pixels, size_t k, size_t kw,
			      struct i8_arrange *work);
/*
 * Prepare the whole depth for rows of the output, with one plane's words. Return: false if the rows
 * do not fit into the slab.
 */
bool CPU_FN(i8_arrange_rows)(const struct i8_pixels *pixels, struct i8_arrange *work);
/* Pack the panel of I8_NR pixels from @j on, of a prepared block. */
void CPU_FN(i8_arrange_panel)(const struct i8_pixels *pixels, size_t k, size_t kw, size_t j,
			      struct i8_arrange *work, int32_t *to);
