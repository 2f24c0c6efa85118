/* SPDX-License-Identifier: MIT */
/*
 * Sums and maxima of float64 over a workgroup, whose size is a power of two. A part of
 * subgroup.glsl.
 */
const uint GROUP_SUM = 0, GROUP_PRODUCT = 1, GROUP_MOST = 2, GROUP_ORDER = 3;

/* Declared before gl_WorkGroupSize is used. */
layout(local_size_x_id = 0) in;

shared uvec2 group_words[256];

uint64_t fold(uint how, uint64_t a, uint64_t b)
{
	double x = double_of(a), y = double_of(b);

	if (how == GROUP_ORDER)
		return max(a, b);
	return bits_of(how == GROUP_SUM ? x + y : how == GROUP_PRODUCT ? x * y : greater(x, y));
}

uvec2 words_of(uint64_t bits)
{
	return uvec2(uint(bits & 0xfffffffful), uint(bits >> 32));
}

uint64_t bits_at(uint lane)
{
	return uint64_t(group_words[lane].x) | uint64_t(group_words[lane].y) << 32;
}

uint64_t group_fold(uint how, uint64_t value)
{
	uint lane = gl_LocalInvocationID.x;

	group_words[lane] = words_of(value);
	barrier();
	for (uint step = gl_WorkGroupSize.x / 2; step > 0; step /= 2) {
		if (lane < step)
			group_words[lane] = words_of(fold(how, bits_at(lane), bits_at(lane + step)));
		barrier();
	}
	value = bits_at(0);
	barrier();
	return value;
}

double group_add(double value)
{
	return double_of(group_fold(GROUP_SUM, bits_of(value)));
}

double group_mul(double value)
{
	return double_of(group_fold(GROUP_PRODUCT, bits_of(value)));
}

double group_max(double value)
{
	return double_of(group_fold(GROUP_MOST, bits_of(value)));
}

uint64_t group_max_order(uint64_t order)
{
	return group_fold(GROUP_ORDER, order);
}
