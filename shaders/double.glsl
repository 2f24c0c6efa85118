/* SPDX-License-Identifier: MIT */
/*
 * Float64: bits, special values, and functions without curves. Only for devices with shaderFloat64.
 *
 * Special values give the CPU's results. Where a driver may ignore special values, their bits are
 * compared. Denormals count as zero, as everywhere.
 */
const uint64_t DOUBLE_SIGN = 1ul << 63, DOUBLE_INF = 0x7fful << 52, DOUBLE_ONE = 0x3fful << 52;

uint64_t bits_of(double x)
{
	return doubleBitsToUint64(x);
}

double double_of(uint64_t bits)
{
	return uint64BitsToDouble(bits);
}

double infinity()
{
	return double_of(DOUBLE_INF);
}

double no_number()
{
	return double_of(0x7ff8ul << 48);
}

bool is_nan(double x)
{
	return (bits_of(x) & ~DOUBLE_SIGN) > DOUBLE_INF;
}

bool is_finite(double x)
{
	return (bits_of(x) & ~DOUBLE_SIGN) < DOUBLE_INF;
}

double flushed(double x)
{
	uint64_t bits = bits_of(x);

	return (bits & DOUBLE_INF) == 0ul ? double_of(bits & DOUBLE_SIGN) : x;
}

double magnitude(double x)
{
	return double_of(bits_of(x) & ~DOUBLE_SIGN);
}

/* Return @x, which is not negative, with the sign of @sign. */
double with_sign(double x, double sign)
{
	return double_of(bits_of(x) | (bits_of(sign) & DOUBLE_SIGN));
}

/*
 * Round to the nearest integer, ties to even. On processors without AVX-512, Mesa 22's lavapipe
 * computes roundEven(), floor() and ceil() of float64 by way of int32, which is wrong beyond 2^31.
 */
double round_of(double x)
{
	precise double size = magnitude(x), units = 4503599627370496.0lf, whole = size + units;

	/* Numbers of 2^52 and above have no fraction, and units of at least 1. */
	whole = whole - units;
	return size < units ? with_sign(whole, x) : x;
}

double floor_of(double x)
{
	precise double whole = round_of(x);

	return whole > x ? whole - 1.0lf : whole;
}

double ceil_of(double x)
{
	precise double whole = round_of(x), next = whole + 1.0lf;

	/* The integer above a number in (-1, 0) is -0. */
	return whole < x ? with_sign(magnitude(next), x) : whole;
}

/* a < b ? a : b; hence b where either is a NaN */
double lesser(double a, double b)
{
	return a < b ? a : b;
}

double greater(double a, double b)
{
	return a > b ? a : b;
}

/*
 * Divide. The reciprocal of a nearly maximal number may be flushed, so both operands are scaled
 * down.
 */
double divide(double a, double b)
{
	double scale = magnitude(b) > 1.0e300lf ? 5.421010862427522e-20lf : 1.0lf;

	return (a * scale) / (b * scale);
}

double root(double x)
{
	if (is_nan(x) || x == 0.0lf)
		return x;
	if (x < 0.0lf)
		return no_number();
	return is_finite(x) ? sqrt(x) : x;
}

/*
 * Return the bits, without the sign, of the nearest number, ties to even, in a format with
 * @mantissa fraction bits and exponents below @inf. With @has_denormals, numbers below the least
 * normal one have fewer bits; without, they become 0.
 */
uint narrowed(uint64_t bits, uint mantissa, int bias, int inf, bool has_denormals)
{
	uint64_t rest = bits & ~DOUBLE_SIGN, number, cut;
	int exponent = int(uint(rest >> 52)) - 1023 + bias;
	uint shift = 52u - mantissa, low = 0u;

	if (rest > DOUBLE_INF)
		return uint(inf) << mantissa | 1u << (mantissa - 1u);
	if (exponent >= inf)
		return uint(inf) << mantissa;
	if (exponent <= 0) {
		if (!has_denormals || exponent < -60 || (rest & DOUBLE_INF) == 0ul)
			return 0u;
		shift = min(shift + uint(1 - exponent), 60u);
	} else {
		low = uint(exponent - 1) << mantissa;
	}
	number = (rest & ((1ul << 52) - 1ul)) | 1ul << 52;
	cut = number & ((1ul << shift) - 1ul);
	number >>= shift;
	if (cut > 1ul << (shift - 1u) || (cut == 1ul << (shift - 1u) && (number & 1ul) != 0ul))
		number += 1ul;
	return low + uint(number);
}
