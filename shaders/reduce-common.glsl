/* SPDX-License-Identifier: MIT */
/* Reductions: offsets of a result's elements, and an invocation's share of one result. */
#include "order.glsl"
#include "real-exp.glsl"

/* Sums and means have specialised pipelines; other pipelines read the kind at run time. */
layout(constant_id = 1) const uint SUMS_ONLY = 0;

/* In the order of enum cpu_reduce_kind, which lower-reduce.c relies on. */
const uint SUM = 0, MEAN = 1, SUM_SQUARE = 2, L1 = 3, L2 = 4, LOG_SUM = 5, LOG_SUM_EXP = 6, PROD = 7,
	   MOST = 8, LEAST = 9;

uint reduce_kind(Params p)
{
	return SUMS_ONLY != 0 ? min(p.w[REDUCE_KIND], MEAN) : p.w[REDUCE_KIND];
}

/*
 * Return the offset of @index over @n <= 4 dimensions, whose sizes are at @dims and strides at
 * @strides.
 */
uint strided(Params p, uint index, uint n, uint dims, uint strides)
{
	uint rest = index, offset = 0;

	[[unroll]] for (uint d = 3; d > 0; d--)
		if (d < n) {
			offset += rest % p.w[dims + d] * p.w[strides + d];
			rest /= p.w[dims + d];
		}
	return n > 0 ? offset + rest * p.w[strides] : 0;
}

const uint TURN = 8; /* elements per invocation and iteration */

REAL term(uint kind, REAL x, REAL shift)
{
	if (SUMS_ONLY != 0)
		return x;
	if (kind == SUM_SQUARE || kind == L2)
		return x * x;
	if (kind == L1)
		return abs(x);
	return kind == LOG_SUM_EXP ? EXP(x - shift) : x;
}

REAL merge(uint kind, REAL a, REAL b)
{
	return SUMS_ONLY == 0 && kind == PROD ? a * b : a + b;
}

/*
 * Load the elements of an iteration: begin + lane, begin + lane + lanes, ... of the result that
 * begins at @base. All loads are issued before the first result is used; beyond the last element,
 * that element is repeated.
 */
void load_turn(Params p, uint base, uint begin, uint lane, uint lanes, out REAL turn[TURN])
{
	uint size = p.w[REDUCE_SIZE], n = p.w[REDUCE_SUMMED];

	[[unroll]] for (uint t = 0; t < TURN; t++) {
		uint i = min(begin + t * lanes + lane, size - 1);

		turn[t] = load1(p.address[0],
				base + strided(p, i, n, REDUCE_SUM_DIMS, REDUCE_SUM_STRIDE));
	}
}

/*
 * Reduce elements lane, lane + lanes, ... of result @index, in several parts, which keeps the error
 * of long sums small.
 */
REAL share(Params p, uint kind, uint index, uint lane, uint lanes, REAL shift)
{
	uint base = strided(p, index, p.w[REDUCE_KEPT], REDUCE_KEPT_DIMS, REDUCE_KEPT_STRIDE);
	uint size = p.w[REDUCE_SIZE];
	REAL parts[TURN], turn[TURN];

	[[unroll]] for (uint t = 0; t < TURN; t++)
		parts[t] = SUMS_ONLY == 0 && kind == PROD ? 1.0 : 0.0;
	for (uint begin = 0; begin < size; begin += lanes * TURN) {
		load_turn(p, base, begin, lane, lanes, turn);
		[[unroll]] for (uint t = 0; t < TURN; t++)
			if (begin + t * lanes + lane < size)
				parts[t] = merge(kind, parts[t], term(kind, turn[t], shift));
	}
	return merge(kind, merge(kind, merge(kind, parts[0], parts[1]), merge(kind, parts[2], parts[3])),
		     merge(kind, merge(kind, parts[4], parts[5]), merge(kind, parts[6], parts[7])));
}

/* Return the maximum order of the same elements; with @flip, of the minimum. */
ORDER share_order(Params p, uint index, uint lane, uint lanes, uint flip)
{
	uint base = strided(p, index, p.w[REDUCE_KEPT], REDUCE_KEPT_DIMS, REDUCE_KEPT_STRIDE);
	uint size = p.w[REDUCE_SIZE];
	ORDER best = order_start(flip);
	REAL turn[TURN];

	for (uint begin = 0; begin < size; begin += lanes * TURN) {
		load_turn(p, base, begin, lane, lanes, turn);
		[[unroll]] for (uint t = 0; t < TURN; t++)
			if (begin + t * lanes + lane < size)
				best = max(best, order_of(turn[t], flip));
	}
	return best;
}

bool is_ordered(uint kind)
{
	return SUMS_ONLY == 0 && (kind == MOST || kind == LEAST);
}

uint flip_of(uint kind)
{
	return kind == LEAST ? 0xffffffffu : 0u;
}

/* Return true for infinities and NaNs. */
bool is_infinite(REAL x)
{
#ifdef DOUBLES
	return !is_finite(x);
#else
	return (floatBitsToUint(x) & 0x7f800000u) == 0x7f800000u;
#endif
}

/* Return the shift of LogSumExp: the maximum element, or 0 if that is not finite. */
REAL shift_of(REAL most)
{
	return is_infinite(most) ? REAL(0.0) : most;
}

REAL finish(Params p, uint kind, REAL value, REAL most)
{
	if (kind == MEAN)
		return p.w[REDUCE_SIZE] == 0 ? REAL(uintBitsToFloat(0x7fc00000u))
					     : value / REAL(p.w[REDUCE_SIZE]);
	if (SUMS_ONLY != 0)
		return value;
	if (kind == L2)
		return sqrt(value);
	if (kind == LOG_SUM)
		return LOG(flushed(value));
	if (kind == LOG_SUM_EXP)
		return is_infinite(most) ? most : LOG(value) + most;
	return value;
}
