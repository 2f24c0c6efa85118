/* SPDX-License-Identifier: MIT */
/*
 * REALs as unsigned numbers of the same order, for the largest and the smallest: both zeros and
 * denormals alike, what is no number above everything. Shaders compare these, because what
 * comparisons and max() make of such values is left open.
 *
 *	order_of()	of a value; with @flip, which is 0xffffffff then, in the order turned round
 *	order_value()	back from one of the same @flip
 *	order_start()	before the first element: less than all of them
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
