#version 460
/* SPDX-License-Identifier: MIT */
/*
 * Layer-, RMS-, Instance- and GroupNormalization: one row per workgroup. Passes: the mean, then the
 * variance from the differences to the mean, then the output.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "subgroup.glsl"

layout(local_size_x_id = 0) in;

/* Means and inverse deviations are float32, whatever the type of the elements. */
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer OutStatistic { float v; };

const uint TURN = 8; /* elements per invocation and iteration */

REAL sum_of(REAL parts[TURN])
{
	return ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
	       ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

/* Issue all loads before the first result is used; beyond the last element, repeat it. */
void load_turn(Params p, uint base, uint len, uint begin, out REAL turn[TURN])
{
	[[unroll]] for (uint t = 0; t < TURN; t++)
		turn[t] = load1(p.address[0], base + min(begin + t * gl_WorkGroupSize.x +
								 gl_LocalInvocationID.x,
							 len - 1));
}

void main()
{
	Params p = Params(push.params);
	uint row = linear_group(p), len = p.w[NORM_LEN];

	if (row >= p.w[NORM_ROWS])
		return;

	uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x, base = row * len;
	uint flags = p.w[NORM_FLAGS], run = p.w[NORM_RUN], period = row % p.w[NORM_PERIOD];
	REAL mean = 0.0, inv, parts[TURN], turn[TURN];

	if ((flags & NORM_RMS) == 0) {
		[[unroll]] for (uint t = 0; t < TURN; t++)
			parts[t] = 0.0;
		for (uint begin = 0; begin < len; begin += lanes * TURN) {
			load_turn(p, base, len, begin, turn);
			[[unroll]] for (uint t = 0; t < TURN; t++)
				parts[t] += begin + t * lanes + lane < len ? turn[t] : REAL(0.0);
		}
		mean = group_add(sum_of(parts)) / REAL(len);
	}
	[[unroll]] for (uint t = 0; t < TURN; t++)
		parts[t] = 0.0;
	for (uint begin = 0; begin < len; begin += lanes * TURN) {
		load_turn(p, base, len, begin, turn);
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			REAL d = begin + t * lanes + lane < len ? turn[t] - mean : REAL(0.0);

			parts[t] += d * d;
		}
	}
	inv = 1.0 / sqrt(group_add(sum_of(parts)) / REAL(len) + uintBitsToFloat(p.w[NORM_EPSILON]));
	for (uint begin = 0; begin < len; begin += lanes * TURN) {
		load_turn(p, base, len, begin, turn);
		[[unroll]] for (uint t = 0; t < TURN; t++) {
			uint i = begin + t * lanes + lane;

			if (i < len) {
				uint each = period * len + i, shared_by = period * (len / run) + i / run;
				REAL scale = 1.0, bias = 0.0;

				if ((flags & NORM_SCALE) != 0)
					scale = load1(p.address[1], (flags & NORM_SCALE_EACH) != 0
									    ? each
									    : shared_by);
				if ((flags & NORM_BIAS) != 0)
					bias = load1(p.address[2],
						     (flags & NORM_BIAS_EACH) != 0 ? each : shared_by);
				store1(p.address[PARAM_OUT], base + i,
				       (turn[t] - mean) * inv * scale + bias);
			}
		}
	}
	if (lane == 0) {
		if ((flags & NORM_MEAN) != 0)
			OutStatistic(p.address[PARAM_OUT + 1] + uint64_t(row) * 4ul).v = float(mean);
		if ((flags & NORM_INV) != 0)
			OutStatistic(p.address[PARAM_OUT + 2] + uint64_t(row) * 4ul).v = float(inv);
	}
}
