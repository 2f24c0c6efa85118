/* SPDX-License-Identifier: MIT */
/*
 * Elementwise kernels: integers, bools, comparisons, Where
 *
 * Each function of each type is a plain loop, written as one line, which the compiler vectorises.
 * No operation rounds, so every level gives the same bits. Signed arithmetic is done in unsigned
 * types, so that it wraps around.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/map-common.h"

#define UNARY(name, T, R, expression)                          \
	static void name(const struct cpu_map *args, size_t n) \
	{                                                      \
		const int64_t a = args->i[0], b = args->i[1];  \
		const T *from = args->in[0];                   \
		R *to = args->out;                             \
                                                               \
		(void)a, (void)b;                              \
		CPU_INDEPENDENT                                \
		for (size_t i = 0; i < n; i++) {               \
			const T x = from[i];                   \
                                                               \
			to[i] = (R)(expression);               \
		}                                              \
	}

#define ROW(name, T, R, expression)                                                                \
	VEC_INLINE void name##_row(size_t n, const T *x_from, const bool x_steps, const T *y_from, \
				   const bool y_steps, R *to)                                      \
	{                                                                                          \
		const T x_set = x_from[0], y_set = y_from[0];                                      \
                                                                                                   \
		CPU_INDEPENDENT                                                                    \
		for (size_t i = 0; i < n; i++) {                                                   \
			const T x = x_steps ? x_from[i] : x_set, y = y_steps ? y_from[i] : y_set;  \
                                                                                                   \
			to[i] = (R)(expression);                                                   \
		}                                                                                  \
	}

#define BINARY(name, T, R, expression) \
	ROW(name, T, R, expression)    \
	MAP_BINARY(name)

#define LESSER(x, y)  ((x) < (y) ? (x) : (y))
#define GREATER(x, y) ((x) > (y) ? (x) : (y))

/* C's quotient and remainder where defined, else 0; the least number divided by -1 wraps around. */
#define QUOTIENT(x, y, U) ((y) == 0 ? 0 : (y) == -1 ? (int64_t)(U)(0 - (U)(x)) : (x) / (y))
#define REMAINDER(x, y)   ((y) == 0 || (y) == -1 ? 0 : (x) % (y))
/* The remainder with the sign of the divisor */
#define MODULUS(x, y) modulus(REMAINDER(x, y), (y))

VEC_INLINE int64_t modulus(int64_t remainder, int64_t y)
{
	return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}

VEC_INLINE uint64_t power(int64_t x, int64_t y)
{
	uint64_t base = (uint64_t)x, result = 1;

	if (y < 0)
		return x == 1 ? 1 : x == -1 ? (y & 1 ? UINT64_MAX : 1) : 0;
	for (; y > 0; y >>= 1, base *= base) {
		if (y & 1)
			result *= base;
	}
	return result;
}

#define COMPARISONS(suffix, T)                          \
	BINARY(equal_##suffix, T, uint8_t, x == y)      \
	BINARY(less_##suffix, T, uint8_t, x < y)        \
	BINARY(less_equal_##suffix, T, uint8_t, x <= y) \
	BINARY(greater_##suffix, T, uint8_t, x > y)     \
	BINARY(greater_equal_##suffix, T, uint8_t, x >= y)

/* @U: unsigned, and as wide as T's arithmetic */
#define NUMBERS(suffix, T, U)                                      \
	UNARY(clip_##suffix, T, T, LESSER(GREATER(x, (T)a), (T)b)) \
	UNARY(bitwise_not_##suffix, T, T, ~x)                      \
	BINARY(add_##suffix, T, T, (U)x + (U)y)                    \
	BINARY(sub_##suffix, T, T, (U)x - (U)y)                    \
	BINARY(mul_##suffix, T, T, (U)x *(U)y)                     \
	BINARY(min_##suffix, T, T, LESSER(x, y))                   \
	BINARY(max_##suffix, T, T, GREATER(x, y))                  \
	BINARY(bitwise_and_##suffix, T, T, x &y)                   \
	BINARY(bitwise_or_##suffix, T, T, x | y)                   \
	BINARY(bitwise_xor_##suffix, T, T, x ^ y)                  \
	COMPARISONS(suffix, T)

#define SIGNED_NUMBERS(suffix, T, U)                             \
	NUMBERS(suffix, T, U)                                    \
	UNARY(abs_##suffix, T, T, x < 0 ? 0 - (U)x : (U)x)       \
	UNARY(neg_##suffix, T, T, 0 - (U)x)                      \
	UNARY(sign_##suffix, T, T, (x > 0) - (x < 0))            \
	UNARY(relu_##suffix, T, T, x < 0 ? 0 : x)                \
	BINARY(prelu_##suffix, T, T, x < 0 ? (U)x * (U)y : (U)x) \
	BINARY(div_##suffix, T, T, QUOTIENT(x, y, U))            \
	BINARY(fmod_##suffix, T, T, REMAINDER(x, y))             \
	BINARY(mod_##suffix, T, T, MODULUS(x, y))                \
	BINARY(pow_##suffix, T, T, power(x, y))

#define NUMBERS_TABLE(suffix)                                                                     \
	[CPU_MAP_ABS] = abs_##suffix, [CPU_MAP_SIGN] = sign_##suffix,                             \
	[CPU_MAP_CLIP] = clip_##suffix, [CPU_MAP_BITWISE_NOT] = bitwise_not_##suffix,             \
	[CPU_MAP_ADD] = add_##suffix, [CPU_MAP_SUB] = sub_##suffix, [CPU_MAP_MUL] = mul_##suffix, \
	[CPU_MAP_DIV] = div_##suffix, [CPU_MAP_FMOD] = fmod_##suffix,                             \
	[CPU_MAP_MOD] = mod_##suffix, [CPU_MAP_MIN] = min_##suffix, [CPU_MAP_MAX] = max_##suffix, \
	[CPU_MAP_BITWISE_AND] = bitwise_and_##suffix, [CPU_MAP_BITWISE_OR] = bitwise_or_##suffix, \
	[CPU_MAP_BITWISE_XOR] = bitwise_xor_##suffix, [CPU_MAP_EQUAL] = equal_##suffix,           \
	[CPU_MAP_LESS] = less_##suffix, [CPU_MAP_LESS_OR_EQUAL] = less_equal_##suffix,            \
	[CPU_MAP_GREATER] = greater_##suffix, [CPU_MAP_GREATER_OR_EQUAL] = greater_equal_##suffix

#define SIGNED_TABLE(suffix)                                                                 \
	NUMBERS_TABLE(suffix), [CPU_MAP_NEG] = neg_##suffix, [CPU_MAP_RELU] = relu_##suffix, \
			       [CPU_MAP_PRELU] = prelu_##suffix, [CPU_MAP_POW] = pow_##suffix

SIGNED_NUMBERS(i32, int32_t, uint32_t)
SIGNED_NUMBERS(i64, int64_t, uint64_t)
SIGNED_NUMBERS(i8, int8_t, uint32_t)
NUMBERS(u8, uint8_t, uint32_t)
COMPARISONS(f32, float)

UNARY(abs_u8, uint8_t, uint8_t, x)
UNARY(sign_u8, uint8_t, uint8_t, x != 0)
BINARY(div_u8, uint8_t, uint8_t, y ? x / y : 0)
BINARY(fmod_u8, uint8_t, uint8_t, y ? x % y : 0)
BINARY(mod_u8, uint8_t, uint8_t, y ? x % y : 0)
BINARY(shift_left_u8, uint8_t, uint8_t, y < 8 ? x << (y & 7) : 0)
BINARY(shift_right_u8, uint8_t, uint8_t, y < 8 ? x >> (y & 7) : 0)

UNARY(not_bool, uint8_t, uint8_t, x == 0)
BINARY(and_bool, uint8_t, uint8_t, (x != 0) & (y != 0))
BINARY(or_bool, uint8_t, uint8_t, (x | y) != 0)
BINARY(xor_bool, uint8_t, uint8_t, (x != 0) != (y != 0))
BINARY(equal_bool, uint8_t, uint8_t, (x != 0) == (y != 0))

/* On the bits of floats */
UNARY(is_nan_f32, uint32_t, uint8_t, (x & 0x7fffffff) > 0x7f800000)
UNARY(is_inf_f32, uint32_t, uint8_t, (x == 0x7f800000 && (a & 2)) || (x == 0xff800000 && (a & 1)))

/* Exported for map-float-hot.c's table */
#define EXPORT(name)                                            \
	void CPU_FN(name)(const struct cpu_map *args, size_t n) \
	{                                                       \
		name(args, n);                                  \
	}

EXPORT(equal_f32)
EXPORT(less_f32)
EXPORT(less_equal_f32)
EXPORT(greater_f32)
EXPORT(greater_equal_f32)
EXPORT(is_nan_f32)
EXPORT(is_inf_f32)

cpu_map_fn *const CPU_FN(map_i32)[CPU_MAP_COUNT] = {SIGNED_TABLE(i32)};
cpu_map_fn *const CPU_FN(map_i64)[CPU_MAP_COUNT] = {SIGNED_TABLE(i64)};
cpu_map_fn *const CPU_FN(map_i8)[CPU_MAP_COUNT] = {SIGNED_TABLE(i8)};

cpu_map_fn *const CPU_FN(map_u8)[CPU_MAP_COUNT] = {
	NUMBERS_TABLE(u8),
	[CPU_MAP_SHIFT_LEFT] = shift_left_u8,
	[CPU_MAP_SHIFT_RIGHT] = shift_right_u8,
};

cpu_map_fn *const CPU_FN(map_bool)[CPU_MAP_COUNT] = {
	[CPU_MAP_NOT] = not_bool, [CPU_MAP_AND] = and_bool,     [CPU_MAP_OR] = or_bool,
	[CPU_MAP_XOR] = xor_bool, [CPU_MAP_EQUAL] = equal_bool,
};

/* Where, by the width of an element */
#define WHERE_ROW(T)                                                                            \
	VEC_INLINE void where_##T##_row(size_t n, const uint8_t *condition, const bool c_steps, \
					const T *x, const bool x_steps, const T *y,             \
					const bool y_steps, T *to)                              \
	{                                                                                       \
		const uint8_t c_set = condition[0];                                             \
		const T x_set = x[0], y_set = y[0];                                             \
                                                                                                \
		CPU_INDEPENDENT                                                                 \
		for (size_t i = 0; i < n; i++) {                                                \
			const T a = x_steps ? x[i] : x_set, b = y_steps ? y[i] : y_set;         \
                                                                                                \
			to[i] = (c_steps ? condition[i] : c_set) ? a : b;                       \
		}                                                                               \
	}

#define WHERE(T)                                                                   \
	WHERE_ROW(T)                                                               \
	static void where_##T(const struct cpu_map *args, size_t n)                \
	{                                                                          \
		const uint8_t *c = args->in[0];                                    \
		const T *x = args->in[1], *y = args->in[2];                        \
		T *to = args->out;                                                 \
                                                                                   \
		switch (args->step[0] | args->step[1] << 1 | args->step[2] << 2) { \
		case 1:                                                            \
			where_##T##_row(n, c, true, x, false, y, false, to);       \
			break;                                                     \
		case 2:                                                            \
			where_##T##_row(n, c, false, x, true, y, false, to);       \
			break;                                                     \
		case 3:                                                            \
			where_##T##_row(n, c, true, x, true, y, false, to);        \
			break;                                                     \
		case 4:                                                            \
			where_##T##_row(n, c, false, x, false, y, true, to);       \
			break;                                                     \
		case 5:                                                            \
			where_##T##_row(n, c, true, x, false, y, true, to);        \
			break;                                                     \
		case 6:                                                            \
			where_##T##_row(n, c, false, x, true, y, true, to);        \
			break;                                                     \
		default:                                                           \
			where_##T##_row(n, c, true, x, true, y, true, to);         \
			break;                                                     \
		}                                                                  \
	}

WHERE(uint8_t)
WHERE(uint16_t)
WHERE(uint32_t)
WHERE(uint64_t)

cpu_map_fn *const CPU_FN(where)[4] = {where_uint8_t, where_uint16_t, where_uint32_t,
				      where_uint64_t};
