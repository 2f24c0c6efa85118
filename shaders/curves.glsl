/* SPDX-License-Identifier: MIT */
/*
 * Activations that are no straight lines, by number: those that can also be computed along with a
 * product or a convolution (broker/plan/fuse.c), @a and @b being their parameters. What they give for
 * special values is what broker/cpu/map-float-hot.c says.
 */
#include "map.glsl"
#include "exp.glsl"

vec4 limit(vec4 x, vec4 low, vec4 high)
{
	return lesser(high, greater(low, x));
}

vec4 hard_sigmoid(vec4 x, float a, float b)
{
	return limit(a * x + b, vec4(0.0), vec4(1.0));
}

vec4 mish(vec4 x)
{
	vec4 e = exp_of(lesser(vec4(20.0), x)), n = e * (e + 2.0);

	return x * (n / (n + 2.0));
}

vec4 curve(uint function, vec4 x, float a, float b)
{
	switch (function) {
	case MAP_TANH:
		return tanh_of(x);
	case MAP_ELU:
		return mix(x, a * expm1_of(x), lessThan(x, vec4(0.0)));
	case MAP_GELU:
		return x * normal_cdf(x);
	case MAP_GELU_TANH:
		return x * sigmoid_of(2.0 * (x * (0.797884561 + 0.0356774081 * (x * x))));
	case MAP_SIGMOID:
		return sigmoid_of(x);
	case MAP_HARD_SIGMOID:
		return hard_sigmoid(x, a, b);
	case MAP_HARD_SWISH:
		return x * hard_sigmoid(x, 1.0 / 6.0, 0.5);
	case MAP_SWISH:
		return x * sigmoid_of(a * x);
	case MAP_MISH:
		return mish(x);
	}
	return x;
}
