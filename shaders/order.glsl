/* SPDX-License-Identifier: MIT */
/*
 * REALs as unsigned numbers in the same order, for maxima and minima. Both zeros and all denormals
 * are equal, and a NaN is above everything. Shaders compare these numbers, because GLSL leaves
 * comparisons and max() of such values undefined.
 *
 *   order_of()     number of a value; with @flip 0xffffffff instead of 0, in reverse order
 *   order_value()  value of a number, with the same @flip
 *   order_start()  initial number, which no element's number is below
 */
#ifdef DOUBLES
#define ORDER uint64_t
const uint64_t ORDER_NAN = ~0ul;

ORDER order_of(double value, uint flip)
{
	uint64_t bits = bits_of(flushed(value)), turn = flip != 0u ? ~0ul : 0ul;

	if (is_nan(value))
		return ORDER_NAN;
	if (bits == DOUBLE_SIGN)
		bits = 0ul;
	return ((bits & DOUBLE_SIGN) != 0ul ? ~bits : bits | DOUBLE_SIGN) ^ turn;
}

double order_value(ORDER order, uint flip)
{
	uint64_t bits = order ^ (flip != 0u ? ~0ul : 0ul);

	if (order == ORDER_NAN)
		return no_number();
	return double_of((bits & DOUBLE_SIGN) != 0ul ? bits & ~DOUBLE_SIGN : ~bits);
}

ORDER order_start(uint flip)
{
	return order_of(flip != 0u ? infinity() : -infinity(), flip);
}
#else
#define ORDER uint
const uint ORDER_NAN = 0xffffffffu;

uint order_of(float value, uint flip)
{
	uint bits = floatBitsToUint(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return ORDER_NAN;
	if ((bits & 0x7f800000u) == 0)
		bits = 0;
	return ((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u) ^ flip;
}

float order_value(uint order, uint flip)
{
	uint bits = order ^ flip;

	if (order == ORDER_NAN)
		return uintBitsToFloat(0x7fc00000u);
	return uintBitsToFloat((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}

uint order_start(uint flip)
{
	return order_of(uintBitsToFloat(0xff800000u ^ (flip & 0x80000000u)), flip);
}
#endif
