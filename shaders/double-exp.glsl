/* SPDX-License-Identifier: MIT */
/*
 * Exponential function and logarithm of float64, and functions built from them
 *
 * GLSL has these for float32 only. Arguments are reduced by powers of two to a short range about 0,
 * where the series converge to the last bits. Special values give the results of exp.glsl and
 * math.glsl.
 */
/* ends in zero bits: its product with n is exact */
const double LN2_HIGH = 0.693147180369123816490lf;
const double LN2_LOW = 1.90821492927058770002e-10lf;

/* x = n ln 2 + r with |r| <= ln 2 / 2 */
void reduce_exp(double x, out double n, out double r)
{
	n = roundEven(x * 1.44269504088896340736lf);
	precise double high = x - n * LN2_HIGH;
	precise double all = high - n * LN2_LOW;
	r = all;
}

/* r^k / k! from k = 1 to 14: for |r| <= ln 2 / 2 the next is less than 2^-53 of r. */
double expm1_small(double r)
{
	double p = 1.0lf;

	[[unroll]] for (int k = 14; k > 1; k--)
		p = 1.0lf + p * r * (1.0lf / double(k));
	return p * r;
}

/* p * 2^n for |n| < 2000 */
double scale_by(double p, double n)
{
	int i = int(n), part = i >> 1;

	return p * double_of(uint64_t(uint(part + 1023)) << 52) *
	       double_of(uint64_t(uint(i - part + 1023)) << 52);
}

/* e^x 2^shift */
double exp_shifted(double x, double shift)
{
	double n, r;

	if (is_nan(x))
		return x;
	reduce_exp(lesser(712.0lf, greater(-750.0lf, x)), n, r);
	return scale_by(1.0lf + expm1_small(r), n + shift);
}

double exp_of(double x)
{
	return exp_shifted(x, 0.0lf);
}

double expm1_of(double x)
{
	double n, r, scale;

	if (is_nan(x))
		return x;
	reduce_exp(lesser(710.0lf, greater(-50.0lf, x)), n, r);
	scale = double_of(uint64_t(uint(int(n) + 1022)) << 52);
	return 2.0lf * (expm1_small(r) * scale + (scale - 0.5lf));
}

/*
 * Return the logarithm of 2^e (1 + f), with |f| small enough for s = f / (2 + f) to be below 0.172.
 */
double log_parts(double e, double f)
{
	double s = divide(f, 2.0lf + f), z = s * s, p = 0.0lf;

	/* 2 atanh(s) = 2 s + 2 s (z / 3 + z^2 / 5 + ...) */
	[[unroll]] for (int k = 11; k > 0; k--)
		p = z * (1.0lf / double(2 * k + 1) + p);
	return e * LN2_HIGH + (2.0lf * s + (2.0lf * s * p + e * LN2_LOW));
}

double log_of(double x)
{
	uint64_t bits;
	int e;

	x = flushed(x);
	if (is_nan(x) || bits_of(x) == DOUBLE_INF)
		return x;
	if (x == 0.0lf)
		return -infinity();
	if (x < 0.0lf)
		return no_number();
	/* The mantissa is in [sqrt(1/2), sqrt(2)). */
	bits = bits_of(x) - 0x3fe6a09e667f3bcdul;
	e = int(uint(bits >> 32)) >> 20;
	return log_parts(double(e), double_of((bits & ((1ul << 52) - 1ul)) + 0x3fe6a09e667f3bcdul) - 1.0lf);
}

double log1p_of(double x)
{
	precise double sum = x + 1.0lf;
	precise double back = sum - 1.0lf;
	precise double rest = x - back;
	double y = log_of(sum);

	return is_finite(y) ? y + divide(rest, sum) : y;
}
