/* SPDX-License-Identifier: MIT */
/*
 * Quotients, to the last bit
 *
 * Where a number of eight bits falls between two depends on the last bit of a quotient. Devices
 * divide to within a few units of it, so the quotient is put right by what is left, which is found
 * without a rounding error: the product's by splitting its factors into halves of 12 bits (Dekker), as
 * a fused multiply-add is not fused everywhere.
 */
float quotient(float x, float y)
{
	precise float q = x / y, part, q_high, q_low, y_high, y_low, product, rest;
	float least = min(abs(x), min(abs(y), abs(q))), most = max(abs(x), max(abs(y), abs(q)));

	/* Beyond, halves would overflow or vanish. */
	if (!(least > 1e-20 && most < 1e20))
		return q;
	part = q * 4097.0;
	q_high = part - (part - q);
	q_low = q - q_high;
	part = y * 4097.0;
	y_high = part - (part - y);
	y_low = y - y_high;
	product = q * y;
	rest = ((q_high * y_high - product) + q_high * y_low + q_low * y_high) + q_low * y_low;
	rest = (x - product) - rest;
	q = q + rest / y;
	return q;
}

/* The nearest whole number, to even, of those that a byte with this zero point can be. */
uint to_byte(float value, int zero, bool is_signed)
{
	int least = is_signed ? -128 : 0;
	float low = float(least - zero), high = low + 255.0;
	bool number = (floatBitsToUint(value) & 0x7fffffffu) <= 0x7f800000u;

	if (!number || value < low)
		value = low;
	if (value > high)
		value = high;
	return uint(int(roundEven(value)) + zero) & 0xffu;
}
