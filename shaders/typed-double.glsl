/* SPDX-License-Identifier: MIT */
/* Functions of typed.comp where an operand or the result is float64. */
#include "curves.glsl"

/* Truncate to an integer type; saturate beyond its range; 0 for a NaN. */
int64_t truncate_to(uint type, double x)
{
	double limit = type == I64 ? 9223372036854775808.0lf : type == I32 ? 2147483648.0lf
			       : type == I8 ? 128.0lf : 256.0lf;
	int64_t most = type == I64 ? 0x7fffffffffffffffl : type == I32 ? 0x7fffffffl
			      : type == I8 ? 127l : 255l;

	if (is_nan(x))
		return 0l;
	if (x >= limit)
		return most;
	if (type == U8 && x < 0.0lf)
		return 0l;
	if (x < -limit)
		return -most - 1l;
	return int64_t(x);
}

/* Convert float64 to type TO. */
uint64_t narrow(uint64_t bits)
{
	uint64_t sign = bits >> 63;

	switch (TO) {
	case F64:
		return bits;
	case F32:
		return uint64_t(narrowed(bits, 23u, 127, 255, false)) | sign << 31;
	case F16:
		return uint64_t(narrowed(bits, 10u, 15, 31, true)) | sign << 15;
	case BF16: /* rounded twice, as on the CPU */
		return uint64_t(float_to_bfloat(uintBitsToFloat(narrowed(bits, 23u, 127, 255, false)))) |
		       sign << 15;
	case BOOL:
		return flushed(double_of(bits)) != 0.0lf || is_nan(double_of(bits)) ? 1ul : 0ul;
	}
	return uint64_t(truncate_to(TO, flushed(double_of(bits))));
}

/* Convert type TYPE to float64. */
uint64_t widen(uint64_t bits)
{
	if (!is_float(TYPE))
		return bits_of(double(to_integer(TYPE, bits)));

	float x = to_float(TYPE, bits);
	uint64_t sign = uint64_t(floatBitsToUint(x) >> 31) << 63;

	if ((floatBitsToUint(x) & 0x7f800000u) == 0x7f800000u)
		return sign | ((floatBitsToUint(x) & 0x7fffffu) != 0u ? 0x7ff8ul << 48 : DOUBLE_INF);
	return bits_of(double(flushed(x))) | sign;
}

bool compares(double x, double y, uint finds)
{
	switch (OPERATION) {
	case MAP_IS_NAN:
		return is_nan(x);
	case MAP_IS_INF:
		return (bits_of(x) == DOUBLE_INF && (finds & 2u) != 0u) ||
		       (bits_of(x) == (DOUBLE_INF | DOUBLE_SIGN) && (finds & 1u) != 0u);
	}
	if (is_nan(x) || is_nan(y))
		return false;
	switch (OPERATION) {
	case MAP_EQUAL:
		return x == y;
	case MAP_LESS:
		return x < y;
	case MAP_LESS_OR_EQUAL:
		return x <= y;
	case MAP_GREATER:
		return x > y;
	}
	return x >= y;
}

/* Return the remainder of finite x >= y > 0, by long division, eleven bits at a time. */
double long_remainder(double x, double y)
{
	const uint64_t one = 1ul << 52;
	int x_exponent = int(uint(bits_of(x) >> 52)), y_exponent = int(uint(bits_of(y) >> 52));
	uint64_t by = (bits_of(y) & (one - 1ul)) | one;
	uint64_t rest = ((bits_of(x) & (one - 1ul)) | one) % by;

	for (int shift = x_exponent - y_exponent; shift > 0; shift -= 11)
		rest = (rest << min(shift, 11)) % by;
	if (rest == 0ul)
		return 0.0lf;
	/* Normalise, as far as exponents of normal numbers allow. */
	[[unroll]] for (int step = 32; step > 0; step /= 2)
		if (rest >> (53 - step) == 0ul && y_exponent > step) {
			rest <<= step;
			y_exponent -= step;
		}
	return rest < one ? 0.0lf : double_of((rest & (one - 1ul)) | uint64_t(uint(y_exponent)) << 52);
}

double fmod_of(double x, double y)
{
	double a = magnitude(x), b = magnitude(y);

	if (is_nan(y))
		return y;
	if (!is_finite(x) || b == 0.0lf)
		return is_nan(x) ? x : no_number();
	return with_sign(a < b ? a : long_remainder(a, b), x);
}

/* Apply the operator; @a and @b are its parameters. */
double function_of(double x, double y, double a, double b)
{
	switch (OPERATION) {
	case MAP_ADD:
		return x + y;
	case MAP_SUB:
		return x - y;
	case MAP_MUL:
		return x * y;
	case MAP_DIV:
		return divide(x, y);
	case MAP_FMOD:
		return fmod_of(x, y);
	case MAP_MIN:
		return is_nan(x) ? x : lesser(x, y);
	case MAP_MAX:
		return is_nan(x) ? x : greater(x, y);
	case MAP_PRELU:
		return x < 0.0lf ? x * y : x;
	case MAP_CLIP:
		return is_nan(x) ? x : limit(x, a, b);
	case MAP_ABS:
		return magnitude(x);
	case MAP_NEG:
		return double_of(bits_of(x) ^ DOUBLE_SIGN);
	case MAP_SIGN:
		return magnitude(x) > 0.0lf ? with_sign(1.0lf, x) : x;
	case MAP_FLOOR:
		return floor_of(x);
	case MAP_CEIL:
		return ceil_of(x);
	case MAP_ROUND:
		return round_of(x);
	case MAP_SQRT:
		return root(x);
	case MAP_RECIPROCAL:
		return divide(1.0lf, x);
	case MAP_EXP:
		return exp_of(x);
	case MAP_LOG:
		return log_of(x);
	case MAP_ERF:
		return erf_of(x);
	case MAP_SINH:
		return sinh_of(x);
	case MAP_COSH:
		return cosh_of(x);
	case MAP_ASINH:
		return asinh_of(x);
	case MAP_ACOSH:
		return acosh_of(x);
	case MAP_ATANH:
		return atanh_of(x);
	case MAP_SELU:
		return b * (x < 0.0lf ? a * expm1_of(x) : x);
	case MAP_CELU:
		return greater(0.0lf, x) + lesser(0.0lf, a * expm1_of(divide(x, a)));
	case MAP_SOFTPLUS:
		return greater(0.0lf, x) + log1p_of(exp_of(-magnitude(x)));
	case MAP_RELU:
		return x < 0.0lf ? 0.0lf : x;
	case MAP_LEAKY_RELU:
		return x < 0.0lf ? a * x : x;
	case MAP_THRESHOLDED_RELU:
		return x > a ? x : 0.0lf;
	case MAP_SOFTSIGN:
		return divide(x, 1.0lf + magnitude(x));
	}
	return curve(OPERATION, x, a, b);
}

double double_parameter(Params p, uint i)
{
	return double_of(uint64_t(p.w[ELEMENTWISE_PARAMS + 2 * i]) |
			 uint64_t(p.w[ELEMENTWISE_PARAMS + 2 * i + 1]) << 32);
}

uint64_t result_of(Params p, uint64_t x_bits, uint64_t y_bits)
{
	double x, y;

	if (OPERATION == MAP_CAST)
		return TYPE == F64 ? narrow(x_bits) : widen(x_bits);
	x = flushed(double_of(x_bits));
	y = flushed(double_of(y_bits));
	if (TO == BOOL)
		return compares(x, y, p.w[ELEMENTWISE_PARAMS]) ? 1ul : 0ul;
	return bits_of(function_of(x, y, double_parameter(p, 0), double_parameter(p, 1)));
}
