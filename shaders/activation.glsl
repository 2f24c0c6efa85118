/* SPDX-License-Identifier: MIT */
/*
 * Activations fused with a product or a convolution. A constant of the pipeline selects the
 * function, so that a pipeline contains only the one that it needs. 0 selects a slope below zero
 * and limits, or nothing: Relu, LeakyRelu and Clip. A NaN, which compares with nothing, stays.
 *
 * Callers that apply an activation many times load the parameters once: software devices compile
 * each memory access to a loop over invocations.
 *
 * Nothing is fused with float64.
 */
#ifdef DOUBLES
double activate(Params p, double x)
{
	return x;
}
#else
#include "curves.glsl"

layout(constant_id = ACTIVATION_ID) const uint CURVE = 0;

struct Activation {
	bool is_any;
	float slope, low, high;
};

Activation activation_of(Params p)
{
	return Activation(p.w[ACTIVATION] != 0, uintBitsToFloat(p.w[ACTIVATION_SLOPE]),
			  uintBitsToFloat(p.w[ACTIVATION_LOW]),
			  uintBitsToFloat(p.w[ACTIVATION_HIGH]));
}

vec4 activate4(Activation a, vec4 x)
{
	if (CURVE != 0) {
		/* One component at a time, for fewer registers. */
		[[unroll]] for (uint i = 0; i < 4; i++)
			x[i] = curve(CURVE, vec4(x[i]), a.low, a.high).x;
	} else if (a.is_any) {
		x = mix(x, a.slope * x, lessThan(x, vec4(0.0)));
		x = mix(x, vec4(a.low), lessThan(x, vec4(a.low)));
		x = mix(x, vec4(a.high), greaterThan(x, vec4(a.high)));
	}
	return x;
}

vec4 activate4(Params p, vec4 x)
{
	if (CURVE != 0 || p.w[ACTIVATION] != 0)
		x = activate4(activation_of(p), x);
	return x;
}

float activate(Params p, float x)
{
	if (CURVE != 0)
		return curve(CURVE, vec4(x), uintBitsToFloat(p.w[ACTIVATION_LOW]),
			     uintBitsToFloat(p.w[ACTIVATION_HIGH])).x;
	if (p.w[ACTIVATION] != 0) {
		float low = uintBitsToFloat(p.w[ACTIVATION_LOW]);
		float high = uintBitsToFloat(p.w[ACTIVATION_HIGH]);

		x = x < 0.0 ? uintBitsToFloat(p.w[ACTIVATION_SLOPE]) * x : x;
		x = x < low ? low : x;
		x = x > high ? high : x;
	}
	return x;
}
#endif
