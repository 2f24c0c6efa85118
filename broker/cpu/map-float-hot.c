/* SPDX-License-Identifier: MIT */
/*
 * Elementwise kernels: float32
 *
 * Each function is one line: an expression of a vector x, or x and y, with the parameters a and b.
 * The surrounding loops are the same for all functions. The last, partial vector takes the same
 * instructions as the others, so that an element's bits do not depend on the split.
 *
 * Formulas are those of ONNX's reference, evaluated literally where that is accurate enough. So
 * minus infinity times a vanishing factor is a NaN (Gelu, Swish, Mish, HardSwish of it). A NaN
 * stays a NaN, also in Min, Max and Clip; ThresholdedRelu, which compares x with a threshold, gives
 * 0 for it.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/map-common.h"
#include "cpu/vec-math.h"
#include "cpu/vec-trig.h"

VEC_INLINE vf load_some(const float *from, size_t n)
{
	return n >= VW ? vf_load(from) : vf_load_partial(from, n);
}

VEC_INLINE void store_some(float *to, vf value, size_t n)
{
	if (n >= VW)
		vf_store(to, value);
	else
		vf_store_partial(to, value, n);
}

#define UNARY(name, expression)                                                      \
	static void map_##name(const struct cpu_map *args, size_t n)                 \
	{                                                                            \
		const float *from = args->in[0];                                     \
		float *to = args->out;                                               \
		const vf a = vf_set(args->f[0]), b = vf_set(args->f[1]), zero = {0}; \
		const vf one = vf_set(1.0f);                                         \
                                                                                     \
		(void)a, (void)b, (void)zero, (void)one;                             \
		for (size_t i = 0; i < n; i += VW) {                                 \
			const vf x = load_some(from + i, n - i);                     \
                                                                                     \
			store_some(to + i, (expression), n - i);                     \
		}                                                                    \
	}

/* Functions of few instructions, limited by memory: four vectors per iteration keep it busy. */
#define LIGHT_ROW(name, expression)                                                    \
	VEC_INLINE void name##_row(size_t n, const float *x_from, const bool x_steps,  \
				   const float *y_from, const bool y_steps, float *to) \
	{                                                                              \
		const vf x_set = vf_set(x_from[0]), y_set = vf_set(y_from[0]);         \
		size_t i = 0;                                                          \
                                                                                       \
		for (; i + 4 * VW <= n; i += 4 * VW) {                                 \
			VEC_UNROLL                                                     \
			for (size_t v = i; v < i + 4 * VW; v += VW) {                  \
				const vf x = x_steps ? vf_load(x_from + v) : x_set;    \
				const vf y = y_steps ? vf_load(y_from + v) : y_set;    \
                                                                                       \
				vf_store(to + v, (expression));                        \
			}                                                              \
		}                                                                      \
		for (; i < n; i += VW) {                                               \
			const vf x = x_steps ? load_some(x_from + i, n - i) : x_set;   \
			const vf y = y_steps ? load_some(y_from + i, n - i) : y_set;   \
                                                                                       \
			store_some(to + i, (expression), n - i);                       \
		}                                                                      \
	}

#define LIGHT(name, expression)     \
	LIGHT_ROW(name, expression) \
	MAP_BINARY(name)

#define HEAVY(name, expression)                                                            \
	static void name(const struct cpu_map *args, size_t n)                             \
	{                                                                                  \
		const float *x_from = args->in[0], *y_from = args->in[1];                  \
		const vf x_set = vf_set(x_from[0]), y_set = vf_set(y_from[0]);             \
		float *to = args->out;                                                     \
                                                                                           \
		for (size_t i = 0; i < n; i += VW) {                                       \
			const vf x = args->step[0] ? load_some(x_from + i, n - i) : x_set; \
			const vf y = args->step[1] ? load_some(y_from + i, n - i) : y_set; \
                                                                                           \
			store_some(to + i, (expression), n - i);                           \
		}                                                                          \
	}

/* Return the minimum (most(): the maximum), or a NaN if an operand is one. */
VEC_INLINE vf least(vf x, vf y)
{
	return vf_pick(vm_eq(x, x), vf_min(x, y), x);
}

VEC_INLINE vf most(vf x, vf y)
{
	return vf_pick(vm_eq(x, x), vf_max(x, y), x);
}

/* Return x, limited from below, then from above. A NaN stays a NaN. */
VEC_INLINE vf limit(vf x, vf low, vf high)
{
	return vf_min(high, vf_max(low, x));
}

/* max(0, min(1, a * x + b)) */
VEC_INLINE vf hard_sigmoid(vf x, vf a, vf b)
{
	return limit(a * x + b, (vf){0}, vf_set(1.0f));
}

/* x * tanh(log(1 + e)) with e = exp(x); the hyperbolic tangent is 1 long before e overflows. */
VEC_INLINE vf mish(vf x)
{
	const vf e = vf_exp(vf_min(vf_set(20.0f), x)), n = e * (e + 2);

	return x * (n / (n + 2));
}

/* 0.5 x (1 + tanh(u)), and (1 + tanh(u)) / 2 is the sigmoid of 2 u. */
VEC_INLINE vf gelu_tanh(vf x)
{
	const vf u = x * (0.797884561f + 0.0356774081f * (x * x));

	return x * vf_sigmoid(2 * u);
}

VEC_INLINE vf sign(vf x)
{
	const vf one = vf_signed(vf_set(1.0f), vf_sign(x));

	/* A denormal counts as a signed zero. A NaN stays a NaN. */
	return vf_pick(vm_lt((vf){0}, vf_abs(x)), one, x * (vf){0});
}

/* Return the remainder of finite x >= y > 0, by long division. */
static float f_remainder(float x, float y)
{
	uint32_t x_bits, y_bits;
	uint64_t rest, by, scale_bits;
	int x_exponent, y_exponent;
	double scale;

	memcpy(&x_bits, &x, sizeof(x_bits));
	memcpy(&y_bits, &y, sizeof(y_bits));
	x_exponent = (int)(x_bits >> 23);
	y_exponent = (int)(y_bits >> 23);
	rest = (x_bits & 0x7fffff) | (x_exponent ? 0x800000u : 0);
	by = (y_bits & 0x7fffff) | (y_exponent ? 0x800000u : 0);
	x_exponent += !x_exponent;
	y_exponent += !y_exponent;
	rest %= by;
	for (int shift = x_exponent - y_exponent; shift > 0; shift -= 32)
		rest = (rest << (shift < 32 ? shift : 32)) % by;
	/* The remainder is in units of the divisor's last place. */
	scale_bits = (uint64_t)(y_exponent - 150 + 1023) << 52;
	memcpy(&scale, &scale_bits, sizeof(scale));
	return (float)((double)rest * scale);
}

/*
 * C's fmod(). Below 2^28 a quotient in double precision is never rounded up to an integer above its
 * exact value, and the difference of x and the product is exact.
 */
VEC_INLINE vf remainder_of(vf x, vf y)
{
	const vf a = vf_abs(x), b = vf_abs(y), infinity = vf_set(INFINITY);
	const vm large = vm_lt(vf_set(0x1p27f), a / b);
	struct vd2 rest = vd_widen(a), by = vd_widen(b);
	vf r;

	VEC_UNROLL
	for (unsigned int h = 0; h < 2; h++) {
		const vd q = rest.half[h] / by.half[h], n = q + 0x1p52 - 0x1p52;

		rest.half[h] -= (n - (vd)((vl)(n > q) & (vl)((vd){0} + 1))) * by.half[h];
	}
	r = vd_narrow(rest);
	if (__builtin_expect(vm_any(large), 0)) {
		for (unsigned int i = 0; i < VW; i++) {
			if (a[i] > b[i] && b[i] > 0 && a[i] < INFINITY)
				r[i] = f_remainder(a[i], b[i]);
		}
	}
	r = vf_pick(vm_lt(a, infinity), vf_pick(vm_lt(a, b), a, r), x - x);
	return vf_pick(vm_eq(y, y), vf_signed(r, vf_sign(x)), y);
}

UNARY(abs, vf_abs(x))
UNARY(neg, -x)
UNARY(sign, sign(x))
UNARY(floor, vf_floor(x))
UNARY(ceil, vf_ceil(x))
UNARY(round, vf_rint(x))
UNARY(sqrt, vf_sqrt(x))
UNARY(reciprocal, 1 / x)
UNARY(clip, vf_pick(vm_eq(x, x), limit(x, a, b), x))
UNARY(relu, vf_max(zero, x))
UNARY(leaky_relu, vf_pick(vm_lt(x, zero), a *x, x))
UNARY(thresholded_relu, vf_pick(vm_lt(a, x), x, zero))
UNARY(elu, vf_pick(vm_lt(x, zero), a *vf_expm1(x), x))
UNARY(selu, b *vf_pick(vm_lt(x, zero), a *vf_expm1(x), x))
UNARY(celu, vf_max(zero, x) + vf_min(zero, a *vf_expm1(x / a)))
UNARY(gelu, x *vf_normal_cdf(x))
UNARY(gelu_tanh, gelu_tanh(x))
UNARY(sigmoid, vf_sigmoid(x))
UNARY(hard_sigmoid, hard_sigmoid(x, a, b))
UNARY(hard_swish, x *hard_sigmoid(x, vf_set(1.0f / 6), vf_set(0.5f)))
UNARY(swish, x *vf_sigmoid(a *x))
UNARY(mish, mish(x))
UNARY(softplus, vf_max(zero, x) + vf_log1p(vf_exp(-vf_abs(x))))
UNARY(softsign, x / (one + vf_abs(x)))
UNARY(shrink, vf_pick(vm_lt(x, -a), x + b, vf_pick(vm_lt(a, x), x - b, zero)))
UNARY(exp, vf_exp(x))
UNARY(log, vf_log(x))
UNARY(erf, vf_erf(x))
UNARY(sin, vf_sin(x))
UNARY(cos, vf_cos(x))
UNARY(tan, vf_tan(x))
UNARY(asin, vf_asin(x))
UNARY(acos, vf_acos(x))
UNARY(atan, vf_atan(x))
UNARY(sinh, vf_sinh(x))
UNARY(cosh, vf_cosh(x))
UNARY(tanh, vf_tanh(x))
UNARY(asinh, vf_asinh(x))
UNARY(acosh, vf_acosh(x))
UNARY(atanh, vf_atanh(x))

LIGHT(add, x + y)
LIGHT(sub, x - y)
LIGHT(mul, x *y)
LIGHT(div_, x / y)
LIGHT(min, least(x, y))
LIGHT(max, most(x, y))
LIGHT(prelu, vf_pick(vm_lt(x, (vf){0}), x *y, x))
HEAVY(fmod_, remainder_of(x, y))
HEAVY(pow_any, vf_pow(x, y))

/* Common powers of models, computed directly */
UNARY(square, x *x)
UNARY(root, vf_pick(vm_lt(vf_abs(x), vf_set(INFINITY)), vf_sqrt(x + zero), vf_abs(x)))

static void pow_(const struct cpu_map *args, size_t n)
{
	const float power = *(const float *)args->in[1];

	if (args->step[1] || !args->step[0] || (power != 2.0f && power != 0.5f))
		pow_any(args, n);
	else if (power == 2.0f)
		map_square(args, n);
	else
		map_root(args, n);
}

cpu_map_fn *const CPU_FN(map_f32)[CPU_MAP_COUNT] = {
	MAP_FUNCTIONS,
	[CPU_MAP_EQUAL] = CPU_FN(equal_f32),
	[CPU_MAP_LESS] = CPU_FN(less_f32),
	[CPU_MAP_LESS_OR_EQUAL] = CPU_FN(less_equal_f32),
	[CPU_MAP_GREATER] = CPU_FN(greater_f32),
	[CPU_MAP_GREATER_OR_EQUAL] = CPU_FN(greater_equal_f32),
	[CPU_MAP_IS_NAN] = CPU_FN(is_nan_f32),
	[CPU_MAP_IS_INF] = CPU_FN(is_inf_f32),
};
