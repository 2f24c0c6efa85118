/* SPDX-License-Identifier: MIT */
/*
 * Correctly rounded quotients
 *
 * The last bit of a quotient can decide to which eight-bit number a value is rounded. Devices
 * divide to within a few units in the last place, so the quotient is corrected by the remainder.
 * The remainder needs an exact product, for which the factors are split into halves of 12 bits
 * (Dekker): a fused multiply-add is not fused on every device.
 */
float quotient(float x, float y)
{
	precise float q = x / y, part, q_high, q_low, y_high, y_low, product, rest;
	float least = min(abs(x), min(abs(y), abs(q))), most = max(abs(x), max(abs(y), abs(q)));

	/* Outside this range, the halves would overflow or underflow. */
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

/*
 * Round to the nearest integer, ties to even, saturated to the range of a byte with this zero
 * point.
 */
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
