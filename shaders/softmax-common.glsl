/* SPDX-License-Identifier: MIT */
/* Softmax, LogSoftmax: the three passes over elements lane, lane + lanes, ... of a row. */

const uint TURN = 8; /* elements per invocation and turn */

float share_max(Params p, uint base, uint size, uint inner, uint lane, uint lanes)
{
	float most = load1(p.address[0], base);

	for (uint begin = 0; begin < size; begin += lanes * TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;

			if (i < size)
				most = max(most, load1(p.address[0], base + i * inner));
		}
	return most;
}

float share_sum(Params p, uint base, uint size, uint inner, uint lane, uint lanes, float most)
{
	float parts[TURN];

	[[unroll]] for (uint t = 0; t < TURN; t++)
		parts[t] = 0.0;
	for (uint begin = 0; begin < size; begin += lanes * TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;

			if (i < size)
				parts[t] += exp(load1(p.address[0], base + i * inner) - most);
		}
	return ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
	       ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

/* The exponential is computed again: outputs are write-only, and may lie in slower memory. */
void share_write(Params p, uint base, uint size, uint inner, uint lane, uint lanes, float most,
		 float sum)
{
	bool is_log = p.w[ROWS_LOG] != 0;
	float scale = is_log ? log(sum) : 1.0 / sum;

	for (uint begin = 0; begin < size; begin += lanes * TURN)
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;

			if (i < size) {
				float d = load1(p.address[0], base + i * inner) - most;

				store1(p.address[PARAM_OUT], base + i * inner,
				       is_log ? d - scale : exp(d) * scale);
			}
		}
}
