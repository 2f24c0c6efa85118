/* SPDX-License-Identifier: MIT */
/* Softmax, LogSoftmax: three passes over elements lane, lane + lanes, ... of a row. */

#include "real-exp.glsl"

const uint TURN = 8; /* elements per invocation and iteration */

/* Issue all loads before the first result is used; beyond the last element, repeat it. */
void load_turn(Params p, uint base, uint size, uint inner, uint begin, uint lane, uint lanes,
	       out REAL turn[TURN])
{
	[[unroll]] for (uint t = 0; t < TURN; t++)
		turn[t] = load1(p.address[0],
				base + min(begin + t * lanes + lane, size - 1) * inner);
}

REAL share_max(Params p, uint base, uint size, uint inner, uint lane, uint lanes)
{
	REAL most = load1(p.address[0], base), turn[TURN];

	for (uint begin = 0; begin < size; begin += lanes * TURN) {
		load_turn(p, base, size, inner, begin, lane, lanes, turn);
		[[unroll]] for (uint t = 0; t < TURN; t++)
			most = max(most, turn[t]);
	}
	return most;
}

REAL share_sum(Params p, uint base, uint size, uint inner, uint lane, uint lanes, REAL most)
{
	REAL parts[TURN], turn[TURN];

	[[unroll]] for (uint t = 0; t < TURN; t++)
		parts[t] = 0.0;
	for (uint begin = 0; begin < size; begin += lanes * TURN) {
		load_turn(p, base, size, inner, begin, lane, lanes, turn);
		[[unroll]] for (uint t = 0; t < TURN; t++)
			parts[t] += begin + t * lanes + lane < size ? EXP(turn[t] - most) : REAL(0.0);
	}
	return ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
	       ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

/*
 * Write the results. Exponentials are recomputed: outputs are write-only, and may be in slower
 * memory.
 */
void share_write(Params p, uint base, uint size, uint inner, uint lane, uint lanes, REAL most,
		 REAL sum)
{
	bool is_log = p.w[ROWS_LOG] != 0;
	REAL scale = is_log ? LOG(sum) : 1.0 / sum, turn[TURN];

	for (uint begin = 0; begin < size; begin += lanes * TURN) {
		load_turn(p, base, size, inner, begin, lane, lanes, turn);
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;
			REAL d = turn[t] - most;

			if (i < size)
				store1(p.address[PARAM_OUT], base + i * inner,
				       is_log ? d - scale : EXP(d) * scale);
		}
	}
}
