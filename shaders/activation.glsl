/* SPDX-License-Identifier: MIT */
/*
 * What follows a product or a convolution and is computed along with it: another slope below zero,
 * and limits. That is Relu, LeakyRelu and Clip. NaN, which compares with nothing, stays.
 *
 * With the parameters in hand, for who applies it many times: software devices compile each access to
 * memory to a loop over invocations.
 */
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
	if (a.is_any) {
		x = mix(x, a.slope * x, lessThan(x, vec4(0.0)));
		x = mix(x, vec4(a.low), lessThan(x, vec4(a.low)));
		x = mix(x, vec4(a.high), greaterThan(x, vec4(a.high)));
	}
	return x;
}

vec4 activate4(Params p, vec4 x)
{
	if (p.w[ACTIVATION] != 0)
		x = activate4(activation_of(p), x);
	return x;
}

float activate(Params p, float x)
{
	if (p.w[ACTIVATION] != 0) {
		float low = uintBitsToFloat(p.w[ACTIVATION_LOW]);
		float high = uintBitsToFloat(p.w[ACTIVATION_HIGH]);

		x = x < 0.0 ? uintBitsToFloat(p.w[ACTIVATION_SLOPE]) * x : x;
		x = x < low ? low : x;
		x = x > high ? high : x;
	}
	return x;
}
