/* SPDX-License-Identifier: MIT */
/* The roofline: the time of one node by a profile */
#include <math.h>

#include "place/profile.h"
#include "support/test.h"

#define MIB (1 << 20)

static void assert_ns(const struct place_profile *profile, double flops, double bytes, double ns)
{
	double got = place_profile_node_ns(profile, OP_FAMILY_MATMUL, flops, bytes);

	if (!(fabs(got - ns) <= 1e-6 * ns))
		fail_msg("%g FLOP and %g bytes take %g ns, not %g", flops, bytes, got, ns);
}

TEST(test_node__the_larger_counts)
{
	struct place_profile profile = {.is_valid = true, .node_ns = 100};

	for (unsigned int i = 0; i < PLACE_SIZE_CLASSES; i++)
		profile.rates[OP_FAMILY_MATMUL][i] = (struct place_rate){50, 10};
	assert_ns(&profile, 1e6, 1000, 100 + 1e6 / 50);
	assert_ns(&profile, 1000, 1e6, 100 + 1e6 / 10);
	/* The point where the two lines meet. */
	assert_ns(&profile, 5e6, 1e6, 100 + 1e5);
}

TEST(test_node__between_sizes)
{
	struct place_profile profile = {.is_valid = true};

	for (unsigned int i = 0; i < PLACE_SIZE_CLASSES; i++)
		profile.rates[OP_FAMILY_MATMUL][i] = (struct place_rate){1e9f, (float)(i + 1)};
	assert_ns(&profile, 0, 4096, 4096);
	assert_ns(&profile, 0, 32768, 32768.0 / 2);
	/* Half-way on a logarithmic scale. */
	assert_ns(&profile, 0, 4096 * sqrt(8), 4096 * sqrt(8) / 1.5);
	assert_ns(&profile, 0, 128.0 * MIB, 128.0 * MIB / 6);
	/* Beyond the ends of the table the end's value counts. */
	assert_ns(&profile, 0, 1024, 1024);
	assert_ns(&profile, 0, 1e12, 1e12 / 6);
}

TEST(test_node__always_a_number)
{
	static const double amounts[] = {0, -1, 1, 1e300, INFINITY, -INFINITY, NAN, 1e-300};
	static const float rates[] = {0, -1, NAN, INFINITY, 1e-38f, 1e38f, 1};
	struct place_profile profile = {0};
	double ns;

	for (unsigned int r = 0; r < 7 * 7; r++) {
		for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
			for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
				profile.rates[i][k] =
					(struct place_rate){rates[r % 7], rates[r / 7]};
		profile.node_ns = rates[r % 7];
		for (unsigned int i = 0; i < 64; i++) {
			ns = place_profile_node_ns(&profile, (enum op_family)(i % 13),
						   amounts[i % 8], amounts[i / 8]);
			assert_true(isfinite(ns) && ns > 0);
		}
	}
}
