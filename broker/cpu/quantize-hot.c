/* SPDX-License-Identifier: MIT */
/*
 * QuantizeLinear and DequantizeLinear
 *
 * A tensor has one scale and zero point, or one per index of an axis, or one per block along the
 * axis. All cases are a walk over rows of adjacent elements, along which the scale is either
 * constant or a row itself. Quotients are true divisions, so that ties round as ONNX specifies.
 * Values are clamped before they are rounded, which gives the same results because the limits are
 * integers.
 */
#include "cpu/int8-level.h"

typedef uint8_t i8_lanes_u __attribute__((vector_size(VW)));
typedef int8_t i8_lanes_s __attribute__((vector_size(VW)));

VEC_INLINE vi i8_widen(const void *from, size_t n, const enum cpu_quant_type type)
{
	i8_lanes_u bytes = {0};

	if (type == CPU_QUANT_S32)
		return (vi)vf_load_partial(from, n);
	if (n == VW)
		memcpy(&bytes, from, VW);
	else
		memcpy(&bytes, from, n);
	return type == CPU_QUANT_S8 ? __builtin_convertvector((i8_lanes_s)bytes, vi)
				    : __builtin_convertvector(bytes, vi);
}

VEC_INLINE size_t quant_bytes(const enum cpu_quant_type type)
{
	return type == CPU_QUANT_S32 ? 4 : 1;
}

/* The scales and zero points of a row: one, or one per element. */
struct quant_row {
	const float *scale;
	const uint8_t *zero; /* NULL: 0 */
	bool each;
};

VEC_INLINE vf quant_scale(const struct quant_row *row, size_t i, size_t n)
{
	return row->each ? vf_load_partial(row->scale + i, n) : vf_set(row->scale[0]);
}

VEC_INLINE vi quant_zero(const struct quant_row *row, size_t i, size_t n,
			 const enum cpu_quant_type type)
{
	int32_t word = 0;

	if (!row->zero)
		return (vi){0};
	if (row->each)
		return i8_widen(row->zero + i * quant_bytes(type), n, type);
	memcpy(&word, row->zero, quant_bytes(type));
	return vi_set(type == CPU_QUANT_S32 ? word : i8_value((uint8_t)word, type == CPU_QUANT_S8));
}

VEC_INLINE void quantize_row(const enum cpu_quant_type type, const bool each,
			     const struct quant_row *row, size_t n, const float *x, uint8_t *y)
{
	const vi least = vi_set(type == CPU_QUANT_S8 ? -128 : 0);
	vi zero = quant_zero(row, 0, each ? 0 : 1, type);
	vf scale = quant_scale(row, 0, each ? 0 : 1);

	for (size_t i = 0; i < n; i += VW) {
		const size_t have = n - i < VW ? n - i : VW;
		vf value = have == VW ? vf_load(x + i) : vf_load_partial(x + i, have);
		vi low;

		if (each) {
			zero = quant_zero(row, i, have, type);
			scale = quant_scale(row, i, have);
		}
		low = least - zero;
		value = value / scale;
		i8_store(y + i,
			 i8_round(value, __builtin_convertvector(low, vf),
				  __builtin_convertvector(low + 255, vf), zero),
			 have);
	}
}

VEC_INLINE void dequantize_row(const enum cpu_quant_type type, const bool each,
			       const struct quant_row *row, size_t n, const uint8_t *x, float *y)
{
	vi zero = quant_zero(row, 0, each ? 0 : 1, type);
	vf scale = quant_scale(row, 0, each ? 0 : 1);

	for (size_t i = 0; i < n; i += VW) {
		const size_t have = n - i < VW ? n - i : VW;
		const vi value = i8_widen(x + i * quant_bytes(type), have, type);
		vf result;

		if (each) {
			zero = quant_zero(row, i, have, type);
			scale = quant_scale(row, i, have);
		}
		result = __builtin_convertvector(vi_add(value, -zero), vf) * scale;
		if (have == VW)
			vf_store(y + i, result);
		else
			vf_store_partial(y + i, result, have);
	}
}

enum quant_what { QUANTIZE, DEQUANTIZE };

VEC_INLINE void quant_type_row(const enum quant_what what, const enum cpu_quant_type type,
			       const struct quant_row *row, size_t n, const void *x, void *y)
{
	if (what == QUANTIZE && row->each)
		quantize_row(type, true, row, n, x, y);
	else if (what == QUANTIZE)
		quantize_row(type, false, row, n, x, y);
	else if (row->each)
		dequantize_row(type, true, row, n, x, y);
	else
		dequantize_row(type, false, row, n, x, y);
}

/* Convert elements [from, from + n) of row @r. */
VEC_INLINE void quant_piece(const enum quant_what what, const struct cpu_quantize *args, size_t r,
			    size_t from, size_t n)
{
	const size_t bytes = args->type == CPU_QUANT_S32 ? 4 : 1;
	const size_t scale = r / args->axis * args->scale_outer +
			     r % args->axis / args->block * args->scale_axis +
			     from * args->scale_inner;
	const struct quant_row row = {
		.scale = args->scale + scale,
		.zero = args->zero ? (const uint8_t *)args->zero + scale * bytes : NULL,
		.each = args->scale_inner != 0,
	};
	const size_t at = r * args->inner + from;
	const uint8_t *x = (const uint8_t *)args->x + at * (what == QUANTIZE ? 4 : bytes);
	uint8_t *y = (uint8_t *)args->y + at * (what == QUANTIZE ? bytes : 4);

	switch (args->type) {
	case CPU_QUANT_U8:
		quant_type_row(what, CPU_QUANT_U8, &row, n, x, y);
		break;
	case CPU_QUANT_S8:
		quant_type_row(what, CPU_QUANT_S8, &row, n, x, y);
		break;
	case CPU_QUANT_S32:
		if (what == DEQUANTIZE)
			quant_type_row(what, CPU_QUANT_S32, &row, n, x, y);
		break;
	}
}

VEC_INLINE void quant_units(const enum quant_what what, const struct cpu_quantize *args,
			    size_t begin, size_t end)
{
	const size_t rows = cpu_quantize_rows(args), n_rows = args->outer * args->axis;
	const size_t pieces = div_up(args->inner, CPU_QUANT_PIECE);

	for (size_t unit = begin; unit < end; unit++) {
		const size_t from = unit % pieces * CPU_QUANT_PIECE, left = args->inner - from;
		const size_t first = unit / pieces * rows;
		const size_t last = first + rows < n_rows ? first + rows : n_rows;

		cpu_pause(args->pause);
		for (size_t r = first; r < last; r++)
			quant_piece(what, args, r, from,
				    left < CPU_QUANT_PIECE ? left : CPU_QUANT_PIECE);
	}
}

void CPU_FN(i8_quantize)(const struct cpu_quantize *args, size_t begin, size_t end)
{
	quant_units(QUANTIZE, args, begin, end);
}

void CPU_FN(i8_dequantize)(const struct cpu_quantize *args, size_t begin, size_t end)
{
	quant_units(DEQUANTIZE, args, begin, end);
}

void CPU_FN(i8_range)(size_t n, const float *x, float ret[2])
{
	vf least = {0}, most = {0};

	for (size_t i = 0; i < n; i += VW) {
		const vf value = n - i < VW ? vf_load_partial(x + i, n - i) : vf_load(x + i);

		/* Comparisons with a NaN are false. */
		least = vf_select(value < least, value, least);
		most = vf_select(value > most, value, most);
	}
	ret[0] = ret[1] = 0;
	for (size_t i = 0; i < VW; i++) {
		ret[0] = least[i] < ret[0] ? least[i] : ret[0];
		ret[1] = most[i] > ret[1] ? most[i] : ret[1];
	}
}
