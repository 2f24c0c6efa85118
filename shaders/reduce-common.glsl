/* SPDX-License-Identifier: MIT */
/* ReduceSum: where a sum's elements lie, and a share of one sum. */

/* Decomposes @index over @n <= 4 dimensions whose sizes and strides stand at @dims and @strides. */
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

const uint TURN = 8; /* elements per invocation and turn */

/*
 * Adds up elements lane, lane + lanes, ... of sum @index, in several parts, which keeps the error of
 * long sums small.
 */
float share(Params p, uint index, uint lane, uint lanes)
{
	uint base = strided(p, index, p.w[REDUCE_KEPT], REDUCE_KEPT_DIMS, REDUCE_KEPT_STRIDE);
	uint size = p.w[REDUCE_SIZE], n = p.w[REDUCE_SUMMED];
	float parts[TURN];

	[[unroll]] for (uint t = 0; t < TURN; t++)
		parts[t] = 0.0;
	for (uint begin = 0; begin < size; begin += lanes * TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;

			if (i < size)
				parts[t] += load1(p.address[0],
						  base + strided(p, i, n, REDUCE_SUM_DIMS,
								 REDUCE_SUM_STRIDE));
		}
	return ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
	       ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}
