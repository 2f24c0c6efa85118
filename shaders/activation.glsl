/* SPDX-License-Identifier: MIT */
/*
 * What follows a product or a convolution and is computed along with it: another slope below zero,
 * and limits. That is Relu, LeakyRelu and Clip. NaN, which compares with nothing, stays.
 */

vec4 activate4(Params p, vec4 x)
{
	if (p.w[ACTIVATION] != 0) {
		vec4 low = vec4(uintBitsToFloat(p.w[ACTIVATION_LOW]));
		vec4 high = vec4(uintBitsToFloat(p.w[ACTIVATION_HIGH]));

		x = mix(x, uintBitsToFloat(p.w[ACTIVATION_SLOPE]) * x, lessThan(x, vec4(0.0)));
		x = mix(x, low, lessThan(x, low));
		x = mix(x, high, greaterThan(x, high));
	}
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
