/* SPDX-License-Identifier: MIT */
/*
 * Operand offsets of a MatMul's batches, and its epilogue: alpha * sum + beta * C, and an
 * activation.
 */
#include "activation.glsl"

/* Compute the element offsets of A and B for batch @z. */
void batch_offsets(Params p, uint z, out uint a, out uint b)
{
	uint rest = z, coordinate;

	a = 0;
	b = 0;
	for (uint d = p.w[MATMUL_BATCH_DIMS]; d > 0; d--) {
		coordinate = rest % p.w[MATMUL_DIMS + d - 1];
		rest /= p.w[MATMUL_DIMS + d - 1];
		a += coordinate * p.w[MATMUL_A_STRIDES + d - 1];
		b += coordinate * p.w[MATMUL_B_STRIDES + d - 1];
	}
}

REAL finish(Params p, REAL sum, uint row, uint col)
{
	REAL beta = uintBitsToFloat(p.w[MATMUL_BETA]);
	REAL result = uintBitsToFloat(p.w[MATMUL_ALPHA]) * sum;

	if (beta != 0.0)
		result += beta * load1(p.address[2], row * p.w[MATMUL_C_ROW] +
							     col * p.w[MATMUL_C_COL]);
	return activate(p, result);
}

#ifndef DOUBLES
/* Like finish(), for four columns; columns beyond the last get arbitrary values. */
vec4 finish4(Params p, vec4 sum, uint row, uint col, uint n_cols)
{
	float beta = uintBitsToFloat(p.w[MATMUL_BETA]);
	vec4 result = uintBitsToFloat(p.w[MATMUL_ALPHA]) * sum;

	if (beta != 0.0)
		[[unroll]] for (uint c = 0; c < 4; c++)
			result[c] += beta * load1(p.address[2], row * p.w[MATMUL_C_ROW] +
									min(col + c, n_cols - 1) *
										p.w[MATMUL_C_COL]);
	return activate4(p, result);
}
#endif
