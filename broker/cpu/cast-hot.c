/* SPDX-License-Identifier: MIT */
/*
 * Cast
 *
 * Each pair of types has a function. Floats to integers truncate; values beyond the range saturate,
 * and a NaN becomes 0: ONNX leaves both undefined. Integers to narrower integers keep their low
 * bits. To bool: true if not 0; from bool: 0 or 1.
 *
 * Float16 and bfloat16 are converted by way of float32, which is exact in the wider direction. In
 * the direction of float16 no value is rounded twice: integers that float32 rounds become infinite,
 * and float64 is rounded to odd in between. Integers and float64 that become bfloat16 are rounded
 * twice, as in ONNX's own reference. Bfloat16 has float32's denormals, and casts keep them.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec-half.h"
#include "shm/bfloat.h"

static void half_to_float(const struct cpu_map *args, size_t n)
{
	const uint16_t *from = args->in[0];
	float *to = args->out;
	size_t i = 0;

	for (; i + VW <= n; i += VW)
		vf_store(to + i, vf_load_half(from + i));
	if (i < n)
		vf_store_partial(to + i, vf_load_half_partial(from + i, n - i), n - i);
}

static void float_to_half(const struct cpu_map *args, size_t n)
{
	const float *from = args->in[0];
	uint16_t *to = args->out;
	size_t i = 0;

	for (; i + VW <= n; i += VW)
		vf_store_half(to + i, vf_load(from + i));
	if (i < n)
		vf_store_half_partial(to + i, vf_load_partial(from + i, n - i), n - i);
}

/*
 * Saturate at the ends of a range. @end is the first float beyond the range, @last the last integer
 * in it.
 */
VEC_INLINE int32_t to_i32(float x, float begin, float end, int32_t first, int32_t last)
{
	const float inside = x >= begin && x < end ? x : 0;
	const int32_t value = (int32_t)inside;

	return x >= end ? last : x < begin ? first : value;
}

VEC_INLINE int64_t to_i64(float x)
{
	const float inside = x >= -0x1p63f && x < 0x1p63f ? x : 0;
	const int64_t value = (int64_t)inside;

	return x >= 0x1p63f ? INT64_MAX : x < -0x1p63f ? INT64_MIN : value;
}

/* The same for float64, which represents all 32-bit integers. */
VEC_INLINE int32_t double_to_i32(double x, int32_t first, int32_t last)
{
	const double begin = first, end = (double)last + 1;
	const double inside = x >= begin && x < end ? x : 0;
	const int32_t value = (int32_t)inside;

	return x >= end ? last : x < begin ? first : value;
}

VEC_INLINE int64_t double_to_i64(double x)
{
	const double inside = x >= -0x1p63 && x < 0x1p63 ? x : 0;
	const int64_t value = (int64_t)inside;

	return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : value;
}

/*
 * Round to odd: an inexact value becomes the adjacent float whose last bit is 1. Rounding the
 * result again to fewer bits then equals rounding once.
 */
VEC_INLINE float double_to_odd(double x)
{
	float rounded = (float)x;
	const double back = (double)rounded;
	const bool is_exact = !(back < x || back > x);
	uint32_t bits;

	memcpy(&bits, &rounded, sizeof(bits));
	bits += is_exact || bits & 1 ? 0 : __builtin_fabs(back) < __builtin_fabs(x) ? 1 : -1u;
	memcpy(&rounded, &bits, sizeof(bits));
	return rounded;
}

#define CAST(name, T, R, expression)                           \
	static void name(const struct cpu_map *args, size_t n) \
	{                                                      \
		const T *from = args->in[0];                   \
		R *to = args->out;                             \
                                                               \
		CPU_INDEPENDENT                                \
		for (size_t i = 0; i < n; i++) {               \
			const T x = from[i];                   \
                                                               \
			to[i] = (R)(expression);               \
		}                                              \
	}

CAST(f32_to_i32, float, int32_t, to_i32(x, -0x1p31f, 0x1p31f, INT32_MIN, INT32_MAX))
CAST(f32_to_i64, float, int64_t, to_i64(x))
CAST(f32_to_i8, float, int8_t, to_i32(x, -128.0f, 128.0f, -128, 127))
CAST(f32_to_u8, float, uint8_t, to_i32(x, 0.0f, 256.0f, 0, 255))
CAST(f32_to_bool, float, uint8_t, x != 0)
CAST(i32_to_f32, int32_t, float, x)
CAST(i64_to_f32, int64_t, float, x)
CAST(i8_to_f32, int8_t, float, x)
CAST(u8_to_f32, uint8_t, float, x)
CAST(bool_to_f32, uint8_t, float, x != 0)
CAST(f32_to_f64, float, double, x)
CAST(f64_to_f32, double, float, x)
CAST(f64_to_odd, double, float, double_to_odd(x))
CAST(f64_to_i32, double, int32_t, double_to_i32(x, INT32_MIN, INT32_MAX))
CAST(f64_to_i64, double, int64_t, double_to_i64(x))
CAST(f64_to_i8, double, int8_t, double_to_i32(x, INT8_MIN, INT8_MAX))
CAST(f64_to_u8, double, uint8_t, double_to_i32(x, 0, UINT8_MAX))
CAST(f64_to_bool, double, uint8_t, x != 0)
CAST(i32_to_f64, int32_t, double, x)
CAST(i64_to_f64, int64_t, double, x)
CAST(i8_to_f64, int8_t, double, x)
CAST(u8_to_f64, uint8_t, double, x)
CAST(bool_to_f64, uint8_t, double, x != 0)
CAST(i32_to_i64, int32_t, int64_t, x)
CAST(i8_to_i32, int8_t, int32_t, x)
CAST(i8_to_i64, int8_t, int64_t, x)
CAST(u8_to_i32, uint8_t, int32_t, x)
CAST(u8_to_i64, uint8_t, int64_t, x)
CAST(bool_to_i32, uint8_t, int32_t, x != 0)
CAST(bool_to_i64, uint8_t, int64_t, x != 0)
CAST(i64_to_i32, int64_t, int32_t, x)
CAST(i64_to_8, int64_t, uint8_t, x)
CAST(i32_to_8, int32_t, uint8_t, x)
CAST(i32_to_bool, int32_t, uint8_t, x != 0)
CAST(i64_to_bool, int64_t, uint8_t, x != 0)
CAST(byte_to_bool, uint8_t, uint8_t, x != 0)
CAST(copy_8, uint8_t, uint8_t, x)
CAST(copy_16, uint16_t, uint16_t, x)
CAST(copy_32, uint32_t, uint32_t, x)
CAST(copy_64, uint64_t, uint64_t, x)

/* Float32 values per intermediate buffer, which stays in the first-level cache */
enum { BY_FLOAT = 512 };

#define FROM(name, to_float, R, cast_float)                                                  \
	static void name(const struct cpu_map *args, size_t n)                               \
	{                                                                                    \
		const uint16_t *from = args->in[0];                                          \
		float between[BY_FLOAT];                                                     \
		R *to = args->out;                                                           \
                                                                                             \
		for (size_t i = 0; i < n; i += BY_FLOAT) {                                   \
			const size_t some = n - i < BY_FLOAT ? n - i : BY_FLOAT;             \
                                                                                             \
			to_float(&(struct cpu_map){.in = {from + i}, .out = between}, some); \
			cast_float(&(struct cpu_map){.in = {between}, .out = to + i}, some); \
		}                                                                            \
	}

#define TO(name, T, cast_to_float, from_float)                                                    \
	static void name(const struct cpu_map *args, size_t n)                                    \
	{                                                                                         \
		const T *from = args->in[0];                                                      \
		float between[BY_FLOAT];                                                          \
		uint16_t *to = args->out;                                                         \
                                                                                                  \
		for (size_t i = 0; i < n; i += BY_FLOAT) {                                        \
			const size_t some = n - i < BY_FLOAT ? n - i : BY_FLOAT;                  \
                                                                                                  \
			cast_to_float(&(struct cpu_map){.in = {from + i}, .out = between}, some); \
			from_float(&(struct cpu_map){.in = {between}, .out = to + i}, some);      \
		}                                                                                 \
	}

CAST(bf16_to_f32, uint16_t, float, bfloat_to_float(x))
CAST(f32_to_bf16, float, uint16_t, bfloat_from_float(x))

FROM(f16_to_i32, half_to_float, int32_t, f32_to_i32)
FROM(f16_to_i64, half_to_float, int64_t, f32_to_i64)
FROM(f16_to_i8, half_to_float, int8_t, f32_to_i8)
FROM(f16_to_u8, half_to_float, uint8_t, f32_to_u8)
FROM(f16_to_bool, half_to_float, uint8_t, f32_to_bool)
TO(i32_to_f16, int32_t, i32_to_f32, float_to_half)
TO(i64_to_f16, int64_t, i64_to_f32, float_to_half)
TO(i8_to_f16, int8_t, i8_to_f32, float_to_half)
TO(u8_to_f16, uint8_t, u8_to_f32, float_to_half)
TO(bool_to_f16, uint8_t, bool_to_f32, float_to_half)
FROM(bf16_to_i32, bf16_to_f32, int32_t, f32_to_i32)
FROM(bf16_to_i64, bf16_to_f32, int64_t, f32_to_i64)
FROM(bf16_to_i8, bf16_to_f32, int8_t, f32_to_i8)
FROM(bf16_to_u8, bf16_to_f32, uint8_t, f32_to_u8)
FROM(bf16_to_bool, bf16_to_f32, uint8_t, f32_to_bool)
TO(i32_to_bf16, int32_t, i32_to_f32, f32_to_bf16)
TO(i64_to_bf16, int64_t, i64_to_f32, f32_to_bf16)
TO(i8_to_bf16, int8_t, i8_to_f32, f32_to_bf16)
TO(u8_to_bf16, uint8_t, u8_to_f32, f32_to_bf16)
TO(bool_to_bf16, uint8_t, bool_to_f32, f32_to_bf16)
FROM(f16_to_f64, half_to_float, double, f32_to_f64)
TO(f64_to_f16, double, f64_to_odd, float_to_half)
FROM(bf16_to_f64, bf16_to_f32, double, f32_to_f64)
TO(f64_to_bf16, double, f64_to_f32, f32_to_bf16)
FROM(bf16_to_f16, bf16_to_f32, uint16_t, float_to_half)
TO(f16_to_bf16, uint16_t, half_to_float, f32_to_bf16)

cpu_map_fn *const CPU_FN(cast)[CPU_TYPE_COUNT][CPU_TYPE_COUNT] = {
	[CPU_F32] = {[CPU_F64] = f32_to_f64,
		     [CPU_F32] = copy_32,
		     [CPU_F16] = float_to_half,
		     [CPU_BF16] = f32_to_bf16,
		     [CPU_I32] = f32_to_i32,
		     [CPU_I64] = f32_to_i64,
		     [CPU_I8] = f32_to_i8,
		     [CPU_U8] = f32_to_u8,
		     [CPU_BOOL] = f32_to_bool},
	[CPU_F64] = {[CPU_F64] = copy_64,
		     [CPU_F32] = f64_to_f32,
		     [CPU_F16] = f64_to_f16,
		     [CPU_BF16] = f64_to_bf16,
		     [CPU_I32] = f64_to_i32,
		     [CPU_I64] = f64_to_i64,
		     [CPU_I8] = f64_to_i8,
		     [CPU_U8] = f64_to_u8,
		     [CPU_BOOL] = f64_to_bool},
	[CPU_F16] = {[CPU_F64] = f16_to_f64,
		     [CPU_F32] = half_to_float,
		     [CPU_F16] = copy_16,
		     [CPU_BF16] = f16_to_bf16,
		     [CPU_I32] = f16_to_i32,
		     [CPU_I64] = f16_to_i64,
		     [CPU_I8] = f16_to_i8,
		     [CPU_U8] = f16_to_u8,
		     [CPU_BOOL] = f16_to_bool},
	[CPU_BF16] = {[CPU_F64] = bf16_to_f64,
		      [CPU_F32] = bf16_to_f32,
		      [CPU_F16] = bf16_to_f16,
		      [CPU_BF16] = copy_16,
		      [CPU_I32] = bf16_to_i32,
		      [CPU_I64] = bf16_to_i64,
		      [CPU_I8] = bf16_to_i8,
		      [CPU_U8] = bf16_to_u8,
		      [CPU_BOOL] = bf16_to_bool},
	[CPU_I32] = {[CPU_F64] = i32_to_f64,
		     [CPU_F32] = i32_to_f32,
		     [CPU_F16] = i32_to_f16,
		     [CPU_BF16] = i32_to_bf16,
		     [CPU_I32] = copy_32,
		     [CPU_I64] = i32_to_i64,
		     [CPU_I8] = i32_to_8,
		     [CPU_U8] = i32_to_8,
		     [CPU_BOOL] = i32_to_bool},
	[CPU_I64] = {[CPU_F64] = i64_to_f64,
		     [CPU_F32] = i64_to_f32,
		     [CPU_F16] = i64_to_f16,
		     [CPU_BF16] = i64_to_bf16,
		     [CPU_I32] = i64_to_i32,
		     [CPU_I64] = copy_64,
		     [CPU_I8] = i64_to_8,
		     [CPU_U8] = i64_to_8,
		     [CPU_BOOL] = i64_to_bool},
	[CPU_I8] = {[CPU_F64] = i8_to_f64,
		    [CPU_F32] = i8_to_f32,
		    [CPU_F16] = i8_to_f16,
		    [CPU_BF16] = i8_to_bf16,
		    [CPU_I32] = i8_to_i32,
		    [CPU_I64] = i8_to_i64,
		    [CPU_I8] = copy_8,
		    [CPU_U8] = copy_8,
		    [CPU_BOOL] = byte_to_bool},
	[CPU_U8] = {[CPU_F64] = u8_to_f64,
		    [CPU_F32] = u8_to_f32,
		    [CPU_F16] = u8_to_f16,
		    [CPU_BF16] = u8_to_bf16,
		    [CPU_I32] = u8_to_i32,
		    [CPU_I64] = u8_to_i64,
		    [CPU_I8] = copy_8,
		    [CPU_U8] = copy_8,
		    [CPU_BOOL] = byte_to_bool},
	[CPU_BOOL] = {[CPU_F64] = bool_to_f64,
		      [CPU_F32] = bool_to_f32,
		      [CPU_F16] = bool_to_f16,
		      [CPU_BF16] = bool_to_bf16,
		      [CPU_I32] = bool_to_i32,
		      [CPU_I64] = bool_to_i64,
		      [CPU_I8] = byte_to_bool,
		      [CPU_U8] = byte_to_bool,
		      [CPU_BOOL] = byte_to_bool},
};
