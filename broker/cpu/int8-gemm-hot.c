/* SPDX-License-Identifier: MIT */
/*
 * Eight-bit matrix product
 *
 * The product is blocked like the float product (gemm-hot.c): panels of b, I8_NR columns wide and
 * one block of the depth long, pass a register tile of I8_MR rows. The differences:
 *
 * Sums are integers modulo 2^32, so every order gives the same sums. Zero points never enter the
 * inner loop: sum (a - az)(b - bz) = sum ab - bz * (sum of a's row) - az * (sum of b's column) + k
 * az bz. Column sums of a constant are stored with its panels; other sums are computed on the way.
 * The last block of the depth adds the correction while the tile is in registers, and converts to
 * bytes if requested.
 *
 * With dot products of bytes one operand must be unsigned and the other signed. a is used
 * unchanged, so that its rows can be read in place. b gets the opposite sign when it is packed: top
 * bits are inverted if both signs are equal, which moves b's zero point by 128.
 */
#include "cpu/int8-level.h"
#include "cpu/int8-words.h"
#include "util/number.h"

/* Columns from which a packed copy of a pays although a can be read in place */
#define I8_PACK_A_MIN 640
#define I8_MC         240
/* Columns whose sums stay in the second-level cache and fit the workspace */
#define I8_NC 512

_Static_assert(I8_MC % I8_MR == 0 && I8_NC % I8_NR == 0, "whole register tiles");

/* Workspace of a block */
struct i8_workspace {
	int32_t a[I8_MC * I8_KCW];
	int32_t panel[I8_KCW * I8_NR];
	int32_t sums[I8_MC * I8_NC];
	int32_t col_sums[I8_NC], col_add[I8_NR], col_zero[I8_NR], col_term[I8_NR];
	int32_t row_sums[I8_MC], row_zero[I8_MC];
	float col_scale[I8_NR];
};
_Static_assert(sizeof(struct i8_workspace) <= CPU_WORKSPACE_BYTES, "fits");

VEC_INLINE vi i8_word(const uint8_t *from)
{
	int32_t word;

	memcpy(&word, from, sizeof(word));
	return vi_set(word);
}

/* Destination of a tile's sums, and their correction */
struct i8_end {
	int32_t *y;
	size_t y_rs, n;
	bool accumulate;
	size_t first_row;
	const struct i8_finish *finish;
};

/* Convert one row of a tile to bytes: @n columns from vector @v on. */
VEC_INLINE void i8_end_bytes(vi sum, const struct i8_finish *f, size_t row, size_t v, size_t n)
{
	const vf of_row = vf_set(f->row_scale ? f->row_scale[row] : 1);
	vf scale = f->col_scale ? vf_load(f->col_scale + v * VW) : of_row;

	if (f->col_scale && f->row_scale)
		scale = of_row * scale / vf_set(f->y_scale);
	i8_store(f->y + row * f->y_rs + v * VW, i8_requantized(sum, scale, f), n);
}

/* Correct and store a tile. The constants select the corrections. @full: all columns exist. */
VEC_INLINE void i8_end_as(const bool full, const bool outer, const bool to_bytes,
			  const int32_t *tile, size_t mr, const struct i8_end *end)
{
	/* Copies: the compiler sees that no store changes them. */
	const struct i8_finish finish = *end->finish, *const f = &finish;
	const struct i8_end to = *end;

	for (size_t i = 0; i < mr; i++) {
		const size_t row = to.first_row + i;

		VEC_UNROLL
		for (size_t v = 0; v < 2; v++) {
			const size_t left = to.n - v * VW, n = full || left > VW ? VW : left;
			float *y = (float *)to.y + i * to.y_rs + v * VW;
			vi sum = vi_load(tile + i * I8_NR + v * VW);

			if (!full && to.n <= v * VW)
				break;
			if (to.accumulate)
				sum = vi_add(sum, (vi)(full ? vf_load(y) : vf_load_partial(y, n)));
			if (f->col_add)
				sum = vi_add(sum, vi_load(f->col_add + v * VW));
			if (f->row_add)
				sum = vi_add(sum, vi_set(f->row_add[row]));
			for (unsigned int t = 0; outer && t < f->n_outer; t++)
				sum = vi_add(sum, vi_mul(vi_set(f->row[t][row]),
							 vi_load(f->col[t] + v * VW)));
			if (to_bytes)
				i8_end_bytes(sum, f, row, v, n);
			else if (full)
				vf_store(y, (vf)sum);
			else
				vf_store_partial(y, (vf)sum, n);
		}
	}
}

/* Add the corrections to a tile's sums and store them. Out of line: shared by all tiles. */
static __attribute__((noinline)) void i8_end(const int32_t *tile, size_t mr,
					     const struct i8_end *end)
{
	const bool full = end->n == I8_NR, outer = end->finish->n_outer > 0;

	if (end->finish->to_bytes && full && !outer)
		i8_end_as(true, false, true, tile, mr, end);
	else if (end->finish->to_bytes)
		i8_end_as(false, true, true, tile, mr, end);
	else if (full && !outer)
		i8_end_as(true, false, false, tile, mr, end);
	else
		i8_end_as(false, true, false, tile, mr, end);
}

/* Make words of the elements after the last whole word of each row. */
static __attribute__((noinline)) void i8_tail_words(const uint8_t *from, size_t a_rs, size_t rows,
						    size_t tail, int32_t *to)
{
	for (size_t i = 0; i < rows; i++) {
		uint8_t bytes[4] = {0};

		for (size_t q = 0; q < tail; q++)
			bytes[q] = from[i * a_rs + q];
		memcpy(to + i, bytes, sizeof(*to));
	}
}

/* Add the product of @mr rows and @nv vectors to a register tile. */
VEC_INLINE void i8_add(const size_t mr, const size_t nv, const bool a_signed, const size_t a_cs,
		       size_t kw, const uint8_t *a, size_t a_rs, const int32_t *b, vi acc[I8_MR][2])
{
	for (size_t p = 0; p < kw; p++) {
		const vi b0 = vi_load(b);
		vi b1 = {0};

		if (nv == 2)
			b1 = vi_load(b + VW);
		VEC_UNROLL
		for (size_t i = 0; i < mr; i++) {
			const vi av = i8_word(a + i * a_rs);

			acc[i][0] = i8_dot(a_signed, acc[i][0], av, b0);
			if (nv == 2)
				acc[i][1] = i8_dot(a_signed, acc[i][1], av, b1);
		}
		a += a_cs;
		b += I8_NR;
	}
}

/*
 * Compute the sums of one register tile, @nv vectors wide, and store them in rows @to_rs apart.
 * @tail: one more word per row; NULL: none.
 */
VEC_INLINE void i8_micro(const size_t mr, const size_t nv, const bool a_signed, const size_t a_cs,
			 size_t kw, const uint8_t *a, size_t a_rs, const int32_t *tail,
			 const int32_t *b, int32_t *to, size_t to_rs)
{
	vi acc[I8_MR][2] = {0};

	i8_add(mr, nv, a_signed, a_cs, kw, a, a_rs, b, acc);
	if (tail) {
		b += kw * I8_NR;
		VEC_UNROLL
		for (size_t i = 0; i < mr; i++) {
			VEC_UNROLL
			for (size_t v = 0; v < nv; v++)
				acc[i][v] = i8_dot(a_signed, acc[i][v], vi_set(tail[i]),
						   vi_load(b + v * VW));
		}
	}
	VEC_UNROLL
	for (size_t i = 0; i < mr; i++) {
		VEC_UNROLL
		for (size_t v = 0; v < nv; v++)
			vi_store(to + i * to_rs + v * VW, acc[i][v]);
	}
}

typedef void i8_micro_fn(size_t kw, const uint8_t *a, size_t a_rs, const int32_t *tail,
			 const int32_t *b, int32_t *to, size_t to_rs);

/* Height and width are constants in each instance, so that the tile stays in registers. */
#define I8_INSTANCE(mr, nv, is_signed)                                                            \
	static void i8_packed_##mr##_##nv##_##is_signed(size_t kw, const uint8_t *a, size_t a_rs, \
							const int32_t *tail, const int32_t *b,    \
							int32_t *to, size_t to_rs)                \
	{                                                                                         \
		i8_micro(mr, nv, is_signed, 4 * mr, kw, a, 4, NULL, b, to, to_rs);                \
	}                                                                                         \
	static void i8_rows_##mr##_##nv##_##is_signed(size_t kw, const uint8_t *a, size_t a_rs,   \
						      const int32_t *tail, const int32_t *b,      \
						      int32_t *to, size_t to_rs)                  \
	{                                                                                         \
		i8_micro(mr, nv, is_signed, 4, kw, a, a_rs, tail, b, to, to_rs);                  \
	}

#define I8_FOR_ROWS_6(X, nv, s) \
	X(1, nv, s) X(2, nv, s) X(3, nv, s) X(4, nv, s) X(5, nv, s) X(6, nv, s)
#if I8_MR == 12
#define I8_FOR_ROWS(X, nv, s)   \
	I8_FOR_ROWS_6(X, nv, s) \
	X(7, nv, s) X(8, nv, s) X(9, nv, s) X(10, nv, s) X(11, nv, s) X(12, nv, s)
#else
#define I8_FOR_ROWS(X, nv, s) I8_FOR_ROWS_6(X, nv, s)
#endif

I8_FOR_ROWS(I8_INSTANCE, 1, 0)
I8_FOR_ROWS(I8_INSTANCE, 2, 0)
#define I8_PACKED(mr, nv, s) i8_packed_##mr##_##nv##_##s,
#define I8_ROWS(mr, nv, s)   i8_rows_##mr##_##nv##_##s,

/* [a is signed][in place][one vector, two][rows - 1]. Widened operands need no variant by sign. */
#if I8_VNNI
I8_FOR_ROWS(I8_INSTANCE, 1, 1)
I8_FOR_ROWS(I8_INSTANCE, 2, 1)
static i8_micro_fn *const i8_micros[2][2][2][I8_MR] = {
	{{{I8_FOR_ROWS(I8_PACKED, 1, 0)}, {I8_FOR_ROWS(I8_PACKED, 2, 0)}},
	 {{I8_FOR_ROWS(I8_ROWS, 1, 0)}, {I8_FOR_ROWS(I8_ROWS, 2, 0)}}},
	{{{I8_FOR_ROWS(I8_PACKED, 1, 1)}, {I8_FOR_ROWS(I8_PACKED, 2, 1)}},
	 {{I8_FOR_ROWS(I8_ROWS, 1, 1)}, {I8_FOR_ROWS(I8_ROWS, 2, 1)}}},
};
#else
static i8_micro_fn *const i8_micros[1][2][2][I8_MR] = {
	{{{I8_FOR_ROWS(I8_PACKED, 1, 0)}, {I8_FOR_ROWS(I8_PACKED, 2, 0)}},
	 {{I8_FOR_ROWS(I8_ROWS, 1, 0)}, {I8_FOR_ROWS(I8_ROWS, 2, 0)}}},
};
#endif

#if defined(__SSE2__)

/* Convert one whole register tile to bytes without storing its sums. */
VEC_INLINE void i8_to_bytes_tile(const bool a_signed, const bool fits, size_t kw, const uint8_t *a,
				 const int32_t *b, const struct i8_finish *f,
				 const struct i8_packing *packing, size_t row)
{
	vi acc[I8_MR][2];

	VEC_UNROLL
	for (size_t i = 0; i < I8_MR; i++)
		acc[i][0] = acc[i][1] = vi_set(f->row_add[row + i]);
	i8_add(I8_MR, 2, a_signed, 4 * I8_MR, kw, a, 4, b, acc);
	VEC_UNROLL
	for (size_t i = 0; i < I8_MR; i += 2) {
		uint8_t *y = f->y + (row + i) * f->y_rs;
		vi rows[2][2];

		VEC_UNROLL
		for (size_t r = 0; r < 2; r++) {
			const vf scale = vf_set(f->row_scale[row + i + r]);

			VEC_UNROLL
			for (size_t v = 0; v < 2; v++)
				rows[r][v] = i8_whole(
					fits, __builtin_convertvector(acc[i + r][v], vf) * scale,
					packing);
		}
		i8_store_rows(y, y + f->y_rs, rows, packing);
	}
}

VEC_INLINE size_t i8_to_bytes_tiles(const bool a_signed, const bool fits, size_t m, size_t kw,
				    const uint8_t *a, const int32_t *b,
				    const struct i8_finish *finish)
{
	/* A copy: the compiler sees that no store changes it. */
	const struct i8_finish copy = *finish;
	const struct i8_packing packing = i8_packing_of(&copy);
	size_t row = 0;

	for (; row + I8_MR <= m; row += I8_MR, a += kw * I8_MR * 4)
		i8_to_bytes_tile(a_signed, fits, kw, a, b, &copy, &packing, row);
	return row;
}

/*
 * Compute the whole tiles of a panel, as bytes. Supports panels that cover the whole depth, are
 * I8_NR columns wide, and need corrections by row only, as in most convolutions. Return: the rows
 * computed.
 */
static size_t i8_to_bytes(size_t m, size_t kw, const void *a, bool a_signed, const int32_t *b,
			  const struct i8_finish *f)
{
	if (!f->to_bytes || !f->row_add || !f->row_scale || f->col_add || f->n_outer > 0 ||
	    f->col_scale)
		return 0;
	if (I8_VNNI && a_signed && f->is_scaled_down)
		return i8_to_bytes_tiles(true, true, m, kw, a, b, f);
	if (I8_VNNI && a_signed)
		return i8_to_bytes_tiles(true, false, m, kw, a, b, f);
	if (f->is_scaled_down)
		return i8_to_bytes_tiles(false, true, m, kw, a, b, f);
	return i8_to_bytes_tiles(false, false, m, kw, a, b, f);
}

#else

static size_t i8_to_bytes(size_t m, size_t kw, const void *a, bool a_signed, const int32_t *b,
			  const struct i8_finish *f)
{
	return 0;
}

#endif

void CPU_FN(i8_panel)(size_t m, size_t n, size_t kw, const void *a, bool a_signed, bool in_place,
		      size_t a_rs, size_t tail, const int32_t *b, int32_t *y, size_t y_rs,
		      bool accumulate, const struct i8_finish *finish)
{
	static const struct i8_finish nothing = {0};
	i8_micro_fn *const *micros = i8_micros[I8_VNNI && a_signed][in_place][n > VW];

	const size_t width = n > VW ? I8_NR : VW;
	int32_t sums[I8_MR * I8_NR], tails[I8_MR];
	size_t i = 0;

	if (finish && !accumulate && !in_place && n == I8_NR)
		i = i8_to_bytes(m, kw, a, a_signed, b, finish);
	for (; i < m; i += I8_MR) {
		const size_t mr = min_size(I8_MR, m - i);
		const uint8_t *from =
			(const uint8_t *)a + (in_place ? i * a_rs : i * (kw + (tail > 0)) * 4);
		const bool direct = !finish && !accumulate && n == width;
		const struct i8_end end = {
			.y = y ? y + i * y_rs : NULL,
			.y_rs = y_rs,
			.n = n,
			.accumulate = accumulate,
			.first_row = i,
			.finish = finish ? finish : &nothing,
		};

		/* Prefetch the lines that the tile is stored to. */
		for (size_t r = 0; direct && r < mr; r++) {
			__builtin_prefetch(end.y + r * y_rs, 1);
			__builtin_prefetch(end.y + r * y_rs + VW, 1);
		}
		if (tail > 0)
			i8_tail_words(from + kw * 4, a_rs, mr, tail, tails);
		micros[mr - 1](kw, from, a_rs, tail > 0 ? tails : NULL, b, direct ? end.y : sums,
			       direct ? y_rs : I8_NR);
		if (!direct)
			i8_end(sums, mr, &end);
	}
}

/* Return one word of a row: @n <= I8_GROUP elements. */
VEC_INLINE int32_t i8_pack_word(const uint8_t *from, size_t n, bool is_signed)
{
	uint32_t word = 0;

	for (size_t i = 0; i < n; i++) {
		if (I8_GROUP == 4)
			word |= (uint32_t)from[i] << 8 * i;
		else
			word |= ((uint32_t)i8_value(from[i], is_signed) & 0xffff) << 16 * i;
	}
	return (int32_t)word;
}

/* Return four words of one row. The float type serves the shuffles only. */
VEC_INLINE v4 i8_pack_words(const uint8_t *from, bool is_signed)
{
#if I8_GROUP == 4
	return (v4) * (const i8_bytes_unaligned *)from;
#else
	typedef uint8_t u8x8 __attribute__((vector_size(8)));
	typedef int8_t s8x8 __attribute__((vector_size(8)));
	typedef int16_t s16x8 __attribute__((vector_size(16)));
	u8x8 bytes;

	memcpy(&bytes, from, sizeof(bytes));
	return is_signed ? (v4) __builtin_convertvector((s8x8)bytes, s16x8)
			 : (v4) __builtin_convertvector(bytes, s16x8);
#endif
}

size_t CPU_FN(i8_pack_a)(size_t m, size_t k, const uint8_t *a, size_t a_rs, bool a_signed,
			 int32_t *to)
{
	const size_t kw = div_up(k, I8_GROUP);

	for (size_t first = 0; first < m; first += I8_MR) {
		const size_t rows = min_size(I8_MR, m - first);
		const uint8_t *from = a + first * a_rs;
		size_t p = 0;

		for (; (p + 4) * I8_GROUP <= k; p += 4) {
			size_t i = 0;

			for (; i + 4 <= rows; i += 4) {
				v4 in[4], out[4];

				VEC_UNROLL
				for (size_t q = 0; q < 4; q++)
					in[q] = i8_pack_words(from + (i + q) * a_rs + p * I8_GROUP,
							      a_signed);
				v4_transpose(in, out);
				VEC_UNROLL
				for (size_t q = 0; q < 4; q++)
					memcpy(to + (p + q) * rows + i, &out[q], sizeof(out[q]));
			}
			for (; i < rows; i++)
				for (size_t q = 0; q < 4; q++)
					to[(p + q) * rows + i] =
						i8_pack_word(from + i * a_rs + (p + q) * I8_GROUP,
							     I8_GROUP, a_signed);
		}
		for (; p < kw; p++)
			for (size_t i = 0; i < rows; i++)
				to[p * rows + i] = i8_pack_word(
					from + i * a_rs + p * I8_GROUP,
					min_size(I8_GROUP, k - p * I8_GROUP), a_signed);
		to += rows * kw;
	}
	return m * kw;
}

void CPU_FN(i8_pack_group)(const uint8_t *const row[I8_GROUP], size_t n, bool b_signed,
			   uint8_t flip, int32_t *to)
{
	int32_t words[16];

	for (size_t j = 0; j < I8_NR; j += 16) {
		const size_t have = j < n ? min_size(16, n - j) : 0;
		const uint8_t *from[I8_GROUP];

		for (size_t q = 0; q < I8_GROUP; q++)
			from[q] = row[q] && have ? row[q] + j : NULL;
		if (I8_NR - j >= 16) {
			i8_words_16(from, have, b_signed, flip, to + j);
		} else {
			i8_words_16(from, have, b_signed, flip, words);
			memcpy(to + j, words, (I8_NR - j) * sizeof(*words));
		}
	}
}

void CPU_FN(i8_column_sums)(size_t kw, const int32_t *panel, bool a_signed, int32_t sums[I8_NR])
{
	const vi ones = vi_set(I8_ONES);
	vi acc[2] = {vi_load(sums), vi_load(sums + VW)};

	for (size_t p = 0; p < kw; p++, panel += I8_NR) {
		acc[0] = i8_dot(a_signed, acc[0], ones, vi_load(panel));
		acc[1] = i8_dot(a_signed, acc[1], ones, vi_load(panel + VW));
	}
	vi_store(sums, acc[0]);
	vi_store(sums + VW, acc[1]);
}

/* Return the sum of one row. @flip makes its bytes unsigned. */
VEC_INLINE int32_t i8_row_sum(size_t k, const uint8_t *a, uint8_t flip)
{
	uint64_t sum = 0;
	size_t p = 0;

#if VW == 16
	__m512i acc = _mm512_setzero_si512();

	for (; p + 64 <= k; p += 64)
		acc = _mm512_add_epi64(
			acc, _mm512_sad_epu8(_mm512_xor_si512(_mm512_loadu_si512(a + p),
							      _mm512_set1_epi8((char)flip)),
					     _mm512_setzero_si512()));
	sum = (uint64_t)_mm512_reduce_add_epi64(acc);
#elif VW == 8
	__m256i acc = _mm256_setzero_si256();
	uint64_t lanes[4];

	for (; p + 32 <= k; p += 32)
		acc = _mm256_add_epi64(
			acc, _mm256_sad_epu8(_mm256_xor_si256(
						     _mm256_loadu_si256((const __m256i_u *)(a + p)),
						     _mm256_set1_epi8((char)flip)),
					     _mm256_setzero_si256()));
	memcpy(lanes, &acc, sizeof(lanes));
	sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
#elif defined(__SSE2__)
	__m128i acc = _mm_setzero_si128();
	uint64_t lanes[2];

	for (; p + 16 <= k; p += 16)
		acc = _mm_add_epi64(
			acc, _mm_sad_epu8(_mm_xor_si128(_mm_loadu_si128((const __m128i_u *)(a + p)),
							_mm_set1_epi8((char)flip)),
					  _mm_setzero_si128()));
	memcpy(lanes, &acc, sizeof(lanes));
	sum = lanes[0] + lanes[1];
#endif
	for (; p < k; p++)
		sum += (uint8_t)(a[p] ^ flip);
	return (int32_t)(uint32_t)(sum - (flip ? 128 * (uint64_t)k : 0));
}

void CPU_FN(i8_row_sums)(size_t m, size_t k, const uint8_t *a, size_t a_rs, bool a_signed,
			 int32_t *sums)
{
	for (size_t i = 0; i < m; i++)
		sums[i] = i8_row_sum(k, a + i * a_rs, a_signed ? 0x80 : 0);
}

void CPU_FN(i8_finish_bytes)(const struct cpu_requantize *requantize, struct i8_finish *finish)
{
	const struct cpu_zeros zero = {.of = requantize->y_zero};

	finish->to_bytes = true;
	finish->zero = i8_zero(&zero, 0, requantize->y_signed, 0);
	finish->low = (float)((requantize->y_signed ? -128 : 0) - finish->zero);
	finish->high = (float)((requantize->y_signed ? 127 : 255) - finish->zero);
	finish->y_scale = requantize->y[0];
}

static size_t i8_padded(size_t n)
{
	return round_up(n, I8_NR);
}

static size_t i8_words(size_t k)
{
	return div_up(k, I8_GROUP);
}

/* The sums of the columns, followed by the words, block by block and panel by panel */
size_t CPU_FN(i8_pack_b_size)(size_t k, size_t n)
{
	return (i8_words(k) + 1) * i8_padded(n) * sizeof(int32_t);
}

/* Pack rows [p, p + kb) and the columns from @j of b. */
static void i8_pack_panel(const struct cpu_int8_gemm *gemm, size_t p, size_t kb, size_t j,
			  int32_t *to)
{
	const uint8_t flip = i8_flip(gemm->a_signed, gemm->b_signed);
	const uint8_t *from = (const uint8_t *)gemm->b + p * gemm->b_rs + j;
	const size_t n = min_size(I8_NR, gemm->n - j);
	const uint8_t *row[I8_GROUP];

	for (size_t q = 0; q < kb; q += I8_GROUP, to += I8_NR) {
		for (size_t i = 0; i < I8_GROUP; i++)
			row[i] = q + i < kb ? from + (q + i) * gemm->b_rs : NULL;
		CPU_FN(i8_pack_group)(row, n, gemm->b_signed, flip, to);
	}
}

size_t CPU_FN(i8_pack_b)(const struct cpu_int8_gemm *gemm, size_t begin, size_t end, void *to)
{
	const size_t n_padded = i8_padded(gemm->n), n_panels = n_padded / I8_NR;
	const size_t n_units = div_up(gemm->k, I8_KC) * n_panels;
	int32_t *const sums = to;

	if (begin == 0 && end > 0)
		memset(sums, 0, n_padded * sizeof(*sums));
	for (size_t unit = begin; unit < min_size(end, n_units); unit++) {
		const size_t p = unit / n_panels * I8_KC, j = unit % n_panels * I8_NR;
		const size_t kb = min_size(I8_KC, gemm->k - p), kw = i8_words(kb);
		int32_t *const words = sums + n_padded + p / I8_GROUP * n_padded + j * kw;

		i8_pack_panel(gemm, p, kb, j, words);
		CPU_FN(i8_column_sums)(kw, words, gemm->a_signed, sums + j);
	}
	return n_units;
}

/* Properties of a block of rows that are known before its panels */
struct i8_block {
	size_t m_begin, m;
	uint8_t flip;
	bool b_zeros; /* zero points may differ from 0 */
	struct i8_finish finish;
};

static void i8_block_rows(const struct cpu_int8_gemm *gemm, struct i8_block *block,
			  struct i8_workspace *work)
{
	const struct cpu_requantize *requantize = gemm->requantize;
	const uint8_t *a = (const uint8_t *)gemm->a + block->m_begin * gemm->a_rs;

	block->flip = i8_flip(gemm->a_signed, gemm->b_signed);
	block->b_zeros = block->flip || gemm->b_zero.of;
	/* A single zero point may be 0. */
	if (block->b_zeros && !gemm->b_zero.each)
		block->b_zeros = i8_zero(&gemm->b_zero, 0, gemm->b_signed, block->flip) != 0;
	if (block->b_zeros) {
		CPU_FN(i8_row_sums)
		(block->m, gemm->k, a, gemm->a_rs, gemm->a_signed, work->row_sums);
		block->finish.row[block->finish.n_outer] = work->row_sums;
		block->finish.col[block->finish.n_outer++] = work->col_zero;
	}
	if (gemm->a_zero.each) {
		for (size_t i = 0; i < block->m; i++)
			work->row_zero[i] =
				i8_zero(&gemm->a_zero, block->m_begin + i, gemm->a_signed, 0);
		block->finish.row[block->finish.n_outer] = work->row_zero;
		block->finish.col[block->finish.n_outer++] = work->col_term;
	} else if (gemm->a_zero.of && i8_zero(&gemm->a_zero, 0, gemm->a_signed, 0) != 0) {
		block->finish.col_add = work->col_add;
	}
	if (!requantize)
		return;
	CPU_FN(i8_finish_bytes)(requantize, &block->finish);
	block->finish.col_scale = work->col_scale;
	if (requantize->a.each)
		block->finish.row_scale = requantize->a.of + block->m_begin;
}

/* Set the corrections of the columns from @j for the last block of the depth. */
static void i8_finish_columns(const struct cpu_int8_gemm *gemm, struct i8_block *block, size_t j,
			      const int32_t *sums, struct i8_workspace *work)
{
	const struct cpu_requantize *requantize = gemm->requantize;
	const size_t n = min_size(I8_NR, gemm->n - j);
	struct i8_finish *finish = &block->finish;
	const uint32_t k = (uint32_t)gemm->k;

	if (finish->n_outer > 0 || finish->col_add) {
		const uint32_t a_zero =
			gemm->a_zero.each ? 0
					  : (uint32_t)i8_zero(&gemm->a_zero, 0, gemm->a_signed, 0);

		for (size_t i = 0; i < I8_NR; i++) {
			const uint32_t zero = i < n ? (uint32_t)i8_zero(&gemm->b_zero, j + i,
									gemm->b_signed, block->flip)
						    : 0;
			const uint32_t term = k * zero - (uint32_t)sums[i];

			work->col_zero[i] = (int32_t)-zero;
			work->col_term[i] = (int32_t)term;
			work->col_add[i] = (int32_t)(a_zero * term);
		}
	}
	if (!requantize)
		return;
	for (size_t i = 0; i < I8_NR; i++) {
		const float scale = i < n ? requantize->b.of[requantize->b.each ? j + i : 0] : 0;

		work->col_scale[i] =
			requantize->a.each ? scale : requantize->a.of[0] * scale / finish->y_scale;
	}
	finish->y_rs = gemm->y_rs;
	finish->y = (uint8_t *)gemm->y + block->m_begin * gemm->y_rs + j;
}

static void i8_block(const struct cpu_int8_gemm *gemm, const struct cpu_gemm_tile *tile,
		     struct i8_workspace *work)
{
	const size_t n_padded = i8_padded(gemm->n), columns = tile->n_end - tile->n_begin;
	const int32_t *const packed =
		gemm->b_packed ? (const int32_t *)gemm->b_packed + n_padded : NULL;
	const uint8_t *a = (const uint8_t *)gemm->a + tile->m_begin * gemm->a_rs;
	struct i8_block block = {.m_begin = tile->m_begin, .m = tile->m_end - tile->m_begin};
	const bool in_place = I8_VNNI && (columns < I8_PACK_A_MIN || block.m == 1);
	int32_t *const y =
		gemm->requantize ? work->sums
				 : (int32_t *)gemm->y + tile->m_begin * gemm->y_rs + tile->n_begin;
	const size_t y_rs = gemm->requantize ? I8_NC : gemm->y_rs;
	bool need_sums;

	i8_block_rows(gemm, &block, work);
	need_sums = block.finish.n_outer > 0 || block.finish.col_add;
	if (need_sums && !packed)
		memset(work->col_sums, 0, i8_padded(columns) * sizeof(int32_t));

	/* Runs once even if k is 0: an empty sum is 0. */
	for (size_t p = 0; p == 0 || p < gemm->k; p += I8_KC) {
		const size_t kb = min_size(I8_KC, gemm->k - p), kw = i8_words(kb);
		const bool is_last = p + kb == gemm->k;

		if (!in_place)
			CPU_FN(i8_pack_a)(block.m, kb, a + p, gemm->a_rs, gemm->a_signed, work->a);
		for (size_t j = tile->n_begin; j < tile->n_end; j += I8_NR) {
			const size_t nr = min_size(I8_NR, tile->n_end - j);
			int32_t *const sums = work->col_sums + (j - tile->n_begin);
			const int32_t *b = work->panel;

			cpu_pause(gemm->pause);
			if (packed) {
				b = packed + p / I8_GROUP * n_padded + j * kw;
			} else {
				i8_pack_panel(gemm, p, kb, j, work->panel);
				if (need_sums)
					CPU_FN(i8_column_sums)(kw, b, gemm->a_signed, sums);
			}
			if (is_last)
				i8_finish_columns(
					gemm, &block, j,
					packed ? (const int32_t *)gemm->b_packed + j : sums, work);
			CPU_FN(i8_panel)
			(block.m, nr, in_place ? kb / I8_GROUP : kw,
			 in_place ? (const void *)(a + p) : work->a, gemm->a_signed, in_place,
			 gemm->a_rs, in_place ? kb % I8_GROUP : 0, b, y + (j - tile->n_begin), y_rs,
			 p > 0, is_last && (need_sums || gemm->requantize) ? &block.finish : NULL);
		}
	}
}

void CPU_FN(i8_gemm)(const struct cpu_int8_gemm *gemm, const struct cpu_gemm_tile *tile,
		     void *workspace)
{
	for (size_t j = tile->n_begin; j < tile->n_end; j += I8_NC)
		for (size_t i = tile->m_begin; i < tile->m_end; i += I8_MC)
			i8_block(gemm,
				 &(struct cpu_gemm_tile){i, min_size(tile->m_end, i + I8_MC), j,
							 min_size(tile->n_end, j + I8_NC)},
				 workspace);
}
