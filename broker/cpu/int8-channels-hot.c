/* SPDX-License-Identifier: MIT */
/*
 * Pixels times out channels, with adjacent lanes for out channels
 *
 * A tile is some adjacent pixels of an output row and two vectors of out channels. Pixels are read
 * in place from the slab, a word at a time for all channels; weights are read vector by vector.
 * Corrections are added before the tile is transposed, while per-channel values fill vectors, too.
 */
#include "cpu/int8-conv.h"

/* Pixels of a tile, limited by the registers */
#if VW == 16
#define CHANNELS_PIXELS 14
#elif VW == 8
#define CHANNELS_PIXELS 6
#else
#define CHANNELS_PIXELS 4
#endif
_Static_assert(CHANNELS_PIXELS <= VW, "pixels of one channel are one vector");

VEC_INLINE void channels_micro(const size_t np, const size_t nv, const bool a_signed,
			       const struct i8_channels *of, const int32_t *pixels,
			       const int32_t *weights, int32_t *to)
{
	vi acc[CHANNELS_PIXELS][2] = {0};

	for (size_t plane = 0; plane < of->planes; plane++) {
		for (const struct i8_word *word = of->words, *end = word + of->n_words; word < end;
		     word++) {
			const int32_t *from = pixels + word->offset;
			const vi w0 = vi_load(weights);
			vi w1 = {0};

			if (nv == 2)
				w1 = vi_load(weights + VW);
			VEC_UNROLL
			for (size_t i = 0; i < np; i++) {
				const vi pixel = vi_set(from[i]);

				acc[i][0] = i8_dot(a_signed, acc[i][0], w0, pixel);
				if (nv == 2)
					acc[i][1] = i8_dot(a_signed, acc[i][1], w1, pixel);
			}
			weights += nv * VW;
		}
		pixels += of->plane;
		weights += of->n_skipped * nv * VW;
	}
	VEC_UNROLL
	for (size_t i = 0; i < np; i++) {
		VEC_UNROLL
		for (size_t v = 0; v < nv; v++)
			vi_store(to + i * I8_NR + v * VW, acc[i][v]);
	}
}

typedef void channels_micro_fn(const struct i8_channels *of, const int32_t *pixels,
			       const int32_t *weights, int32_t *to);

#define CHANNELS_INSTANCE(np, nv, is_signed)                                                \
	static void channels_##np##_##nv##_##is_signed(const struct i8_channels *of,        \
						       const int32_t *pixels,               \
						       const int32_t *weights, int32_t *to) \
	{                                                                                   \
		channels_micro(np, nv, is_signed, of, pixels, weights, to);                 \
	}
#define CHANNELS_NAME(np, nv, is_signed) channels_##np##_##nv##_##is_signed,

#define CHANNELS_FOR_4(X, nv, s)         X(1, nv, s) X(2, nv, s) X(3, nv, s) X(4, nv, s)
#if CHANNELS_PIXELS == 14
#define CHANNELS_FOR(X, nv, s)   \
	CHANNELS_FOR_4(X, nv, s) \
	X(5, nv, s)              \
	X(6, nv, s)              \
	X(7, nv, s)              \
	X(8, nv, s) X(9, nv, s) X(10, nv, s) X(11, nv, s) X(12, nv, s) X(13, nv, s) X(14, nv, s)
#elif CHANNELS_PIXELS == 6
#define CHANNELS_FOR(X, nv, s) CHANNELS_FOR_4(X, nv, s) X(5, nv, s) X(6, nv, s)
#else
#define CHANNELS_FOR(X, nv, s) CHANNELS_FOR_4(X, nv, s)
#endif

/* [weights are signed][one vector, two][pixels - 1]. Widened operands need no variant by sign. */
CHANNELS_FOR(CHANNELS_INSTANCE, 1, 0)
CHANNELS_FOR(CHANNELS_INSTANCE, 2, 0)
#if I8_VNNI
CHANNELS_FOR(CHANNELS_INSTANCE, 1, 1)
CHANNELS_FOR(CHANNELS_INSTANCE, 2, 1)
#endif
static channels_micro_fn *const channels_micros[1 + I8_VNNI][2][CHANNELS_PIXELS] = {
	{{CHANNELS_FOR(CHANNELS_NAME, 1, 0)}, {CHANNELS_FOR(CHANNELS_NAME, 2, 0)}},
#if I8_VNNI
	{{CHANNELS_FOR(CHANNELS_NAME, 1, 1)}, {CHANNELS_FOR(CHANNELS_NAME, 2, 1)}},
#endif
};

void CPU_FN(i8_channels_sums)(const struct i8_channels *of, bool a_signed, size_t n,
			      const int32_t *pixels, int32_t *sums)
{
	const vi ones = vi_set(I8_ONES);

	for (size_t i = 0; i < n; i += I8_NR) {
		const int32_t *plane = pixels + i;
		vi acc[2] = {0};

		for (size_t p = 0; p < of->planes; p++, plane += of->plane) {
			for (size_t t = 0; t < of->n_words; t++) {
				const int32_t *from = plane + of->words[t].offset;

				acc[0] = i8_dot(a_signed, acc[0], ones, vi_load(from));
				acc[1] = i8_dot(a_signed, acc[1], ones, vi_load(from + VW));
			}
		}
		vi_store(sums + i, acc[0]);
		vi_store(sums + i + VW, acc[1]);
	}
}

/* Add the corrections to a tile's sums. Its rows are the pixels from @first on. */
VEC_INLINE void channels_finish_as(const bool outer, const bool to_bytes, int32_t *tile, size_t np,
				   size_t nv, const struct i8_finish *finish, size_t first)
{
	/* A copy: the compiler sees that no store changes it. */
	const struct i8_finish copy = *finish, *f = &copy;

	for (size_t v = 0; v < nv; v++) {
		const vi add = vi_load(f->row_add + v * VW);
		vi zero = {0};
		vf scale = {0};

		if (outer)
			zero = vi_load(f->row[0] + v * VW);
		if (to_bytes)
			scale = vf_load(f->row_scale + v * VW);
		for (size_t i = 0; i < np; i++) {
			int32_t *at = tile + i * I8_NR + v * VW;
			vi sum = vi_add(vi_load(at), add);

			if (outer)
				sum = vi_add(sum, vi_mul(zero, vi_set(f->col[0][first + i])));
			if (to_bytes)
				sum = i8_requantized(sum, scale, f);
			vi_store(at, sum);
		}
	}
}

/*
 * Transpose four vectors. In @in, each four lanes are four rows of one vector; in @out, four
 * columns.
 */
#if VW == 16
VEC_INLINE void channels_turn_lanes(const vi in[4], vi out[4])
{
	const __m512i a = _mm512_unpacklo_epi32((__m512i)in[0], (__m512i)in[1]);
	const __m512i b = _mm512_unpackhi_epi32((__m512i)in[0], (__m512i)in[1]);
	const __m512i c = _mm512_unpacklo_epi32((__m512i)in[2], (__m512i)in[3]);
	const __m512i d = _mm512_unpackhi_epi32((__m512i)in[2], (__m512i)in[3]);

	out[0] = (vi)_mm512_unpacklo_epi64(a, c);
	out[1] = (vi)_mm512_unpackhi_epi64(a, c);
	out[2] = (vi)_mm512_unpacklo_epi64(b, d);
	out[3] = (vi)_mm512_unpackhi_epi64(b, d);
}
#endif

/*
 * Return four channels of VW pixels, a vector each. Each four lanes of @out come from four rows of
 * a tile.
 */
VEC_INLINE void channels_turn(const int32_t *tile, vi out[4])
{
#if VW == 16
	vi in[4];

	VEC_UNROLL
	for (size_t q = 0; q < 4; q++) {
		const __m128i_u *from = (const __m128i_u *)(tile + q * I8_NR);
		__m512i rows = _mm512_castsi128_si512(_mm_loadu_si128(from));

		rows = _mm512_inserti32x4(rows, _mm_loadu_si128(from + I8_NR), 1);
		rows = _mm512_inserti32x4(rows, _mm_loadu_si128(from + 2 * I8_NR), 2);
		in[q] = (vi)_mm512_inserti32x4(rows, _mm_loadu_si128(from + 3 * I8_NR), 3);
	}
	channels_turn_lanes(in, out);
#elif VW == 8
	__m256i in[4];

	VEC_UNROLL
	for (size_t q = 0; q < 4; q++) {
		const int32_t *from = tile + q * I8_NR;

		in[q] = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i_u *)from));
		in[q] = _mm256_inserti128_si256(
			in[q], _mm_loadu_si128((const __m128i_u *)(from + 4 * I8_NR)), 1);
	}
	const __m256i a = _mm256_unpacklo_epi32(in[0], in[1]);
	const __m256i b = _mm256_unpackhi_epi32(in[0], in[1]);
	const __m256i c = _mm256_unpacklo_epi32(in[2], in[3]);
	const __m256i d = _mm256_unpackhi_epi32(in[2], in[3]);

	out[0] = (vi)_mm256_unpacklo_epi64(a, c);
	out[1] = (vi)_mm256_unpackhi_epi64(a, c);
	out[2] = (vi)_mm256_unpacklo_epi64(b, d);
	out[3] = (vi)_mm256_unpackhi_epi64(b, d);
#else
	v4 in[4], turned[4];

	VEC_UNROLL
	for (size_t q = 0; q < 4; q++)
		in[q] = (v4)vi_load(tile + q * I8_NR);
	v4_transpose(in, turned);
	VEC_UNROLL
	for (size_t q = 0; q < 4; q++)
		out[q] = (vi)turned[q];
#endif
}

VEC_INLINE void channels_store_as(const bool to_bytes, const int32_t *tile, size_t np,
				  const struct i8_channels *of, size_t at)
{
	for (size_t c = 0; c < of->m; c += 4) {
		vi out[4];

		channels_turn(tile + c, out);
		VEC_UNROLL
		for (size_t q = 0; q < 4; q++) {
			const size_t to = at + (c + q) * of->y_rs;

			if (c + q >= of->m)
				break;
			if (to_bytes)
				i8_store((uint8_t *)of->y + to, out[q], np);
			else
				vf_store_partial((float *)of->y + to, (vf)out[q], np);
		}
	}
}

#if VW == 16

/* Return lanes [4 * @l, 4 * @l + 4). */
VEC_INLINE __m128i channels_lanes(vi value, size_t l)
{
	switch (l) {
	case 0:
		return _mm512_castsi512_si128((__m512i)value);
	case 1:
		return _mm512_extracti32x4_epi32((__m512i)value, 1);
	case 2:
		return _mm512_extracti32x4_epi32((__m512i)value, 2);
	default:
		return _mm512_extracti32x4_epi32((__m512i)value, 3);
	}
}

/*
 * Convert a tile's sums to bytes, four pixels at a time, and transpose the bytes. @fits: as for
 * i8_whole().
 */
VEC_INLINE void channels_bytes_as(const bool fits, const bool outer, const int32_t *tile, size_t np,
				  size_t nv, const struct i8_channels *of, size_t first, size_t at)
{
	/* Gather the same four channels of four pixels, then each channel's four pixels. */
	const __m512i by_channel = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
	/* A copy: the compiler sees that no store changes it. */
	const struct i8_finish copy = *of->finish, *f = &copy;
	const struct i8_packing packing = i8_packing_of(f);
	const __mmask16 pixels = (__mmask16)((1u << np) - 1);

	for (size_t v = 0; v < nv; v++, tile += VW) {
		const vi add = vi_load(f->row_add + v * VW);
		const vf scale = vf_load(f->row_scale + v * VW);
		const size_t m = of->m - v * VW;
		uint8_t *y = (uint8_t *)of->y + at + v * VW * of->y_rs;
		vi zero = {0}, four[4], turned[4];

		if (outer)
			zero = vi_load(f->row[0] + v * VW);
		VEC_UNROLL
		for (size_t g = 0; g < 4; g++) {
			vi rows[2][2];

			VEC_UNROLL
			for (size_t q = 0; q < 4; q++) {
				const size_t i = 4 * g + q;
				vi sum = vi_add(vi_load(tile + i * I8_NR), add);

				if (outer && i < np)
					sum = vi_add(sum,
						     vi_mul(zero, vi_set(f->col[0][first + i])));
				rows[q / 2][q % 2] = i8_whole(
					fits, __builtin_convertvector(sum, vf) * scale, &packing);
			}
			four[g] = (vi)_mm512_shuffle_epi8((__m512i)i8_pack_rows(rows, &packing),
							  by_channel);
		}
		channels_turn_lanes(four, turned);
		VEC_UNROLL
		for (size_t c = 0; c < VW; c++, y += of->y_rs) {
			if (c < m)
				_mm_mask_storeu_epi8(y, pixels,
						     channels_lanes(turned[c % 4], c / 4));
		}
	}
}

static void channels_bytes(const int32_t *tile, size_t np, size_t nv, const struct i8_channels *of,
			   size_t first, size_t at)
{
	const struct i8_finish *f = of->finish;

	if (f->n_outer > 0)
		channels_bytes_as(false, true, tile, np, nv, of, first, at);
	else if (f->is_scaled_down)
		channels_bytes_as(true, false, tile, np, nv, of, first, at);
	else
		channels_bytes_as(false, false, tile, np, nv, of, first, at);
}

#else

static void channels_bytes(int32_t *tile, size_t np, size_t nv, const struct i8_channels *of,
			   size_t first, size_t at)
{
	if (of->finish->n_outer > 0)
		channels_finish_as(true, true, tile, np, nv, of->finish, first);
	else
		channels_finish_as(false, true, tile, np, nv, of->finish, first);
	channels_store_as(true, tile, np, of, at);
}

#endif

void CPU_FN(i8_channels_row)(const struct i8_channels *of, bool a_signed, size_t n,
			     const int32_t *pixels, size_t at)
{
	const size_t nv = of->m > VW ? 2 : 1;
	const size_t n_tiles = div_up(n, CHANNELS_PIXELS);
	const struct i8_finish *finish = of->finish;
	/* Zeroed, since rows after the last pixel are transposed, too. */
	int32_t tile[VW * I8_NR];

	memset(tile, 0, sizeof(tile));
	for (size_t t = 0, i = 0; t < n_tiles; t++) {
		/* Divide into tiles of about equal size. */
		const size_t np = (n - i + n_tiles - t - 1) / (n_tiles - t);

		cpu_pause(of->pause);
		channels_micros[I8_VNNI && a_signed][nv - 1][np - 1](of, pixels + i, of->weights,
								     tile);
		if (finish && finish->to_bytes) {
			channels_bytes(tile, np, nv, of, i, at + i);
		} else {
			if (finish && finish->n_outer > 0)
				channels_finish_as(true, false, tile, np, nv, finish, i);
			else if (finish)
				channels_finish_as(false, false, tile, np, nv, finish, i);
			channels_store_as(false, tile, np, of, at + i);
		}
		i += np;
	}
}
