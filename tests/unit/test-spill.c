/* SPDX-License-Identifier: MIT */
/* Detecting that a driver has moved the broker's memory: broker/memory/spill.h */
#include "memory/spill.h"
#include "support/test.h"

#define MIB (1ull << 20)

/*
 * Pass @n equal samples.
 * Return: the event of the last one.
 */
static enum spill_event samples(struct spill *spill, unsigned int n, uint64_t own_bytes,
				uint64_t allocated_bytes)
{
	enum spill_event event = SPILL_NOTHING;

	for (unsigned int i = 0; i < n; i++)
		event = spill_sample(spill, own_bytes, allocated_bytes, 77);
	return event;
}

TEST(test_spill__noticed_and_mended)
{
	struct spill spill = {0};

	assert_int_equal(samples(&spill, 5, 101 * MIB, 100 * MIB), SPILL_NOTHING);
	assert_false(spill_is_open(&spill));
	assert_int_equal(samples(&spill, SPILL_SAMPLES - 1, 60 * MIB, 100 * MIB), SPILL_NOTHING);
	assert_true(spill_is_open(&spill));
	assert_false(spill_wants_mending(&spill));
	assert_int_equal(samples(&spill, 1, 60 * MIB, 100 * MIB), SPILL_NOTICED);
	assert_true(spill_wants_mending(&spill));
	assert_fields(spill, (missing_bytes, 40 * MIB), (since_ns, 77));

	/* The event is reported once. Only later samples show the effect of an attempt. */
	assert_int_equal(samples(&spill, 1, 60 * MIB, 100 * MIB), SPILL_NOTHING);
	spill_tried(&spill, false);
	assert_false(spill_wants_mending(&spill));
	assert_int_equal(samples(&spill, SPILL_SAMPLES, 80 * MIB, 100 * MIB), SPILL_NOTHING);
	assert_true(spill_wants_mending(&spill));
	assert_int_equal(samples(&spill, 1, 100 * MIB, 100 * MIB), SPILL_MENDED);
	assert_false(spill_is_open(&spill) || spill_wants_mending(&spill));
	assert_int_equal(samples(&spill, 1, 100 * MIB, 100 * MIB), SPILL_NOTHING);
}

/* Loading and sampling overlap: own memory is always one step behind. */
TEST(test_spill__not_while_loading)
{
	struct spill spill = {0};

	for (uint64_t i = 1; i < 50; i++)
		assert_int_equal(samples(&spill, 1, (i - 1) * 10 * MIB, i * 10 * MIB),
				 SPILL_NOTHING);
	assert_int_equal(samples(&spill, 9, 490 * MIB - SPILL_BYTES + 1, 490 * MIB), SPILL_NOTHING);
}

TEST(test_spill__hopeless)
{
	struct spill spill = {0};

	assert_int_equal(samples(&spill, SPILL_SAMPLES + 1, 0, 100 * MIB), SPILL_NOTICED);
	spill_tried(&spill, true);
	samples(&spill, 10, 0, 100 * MIB);
	assert_false(spill_is_open(&spill) || spill_wants_mending(&spill));

	/* A later spill is reported again. */
	assert_int_equal(samples(&spill, 1, 0, 0), SPILL_MENDED);
	assert_int_equal(samples(&spill, SPILL_SAMPLES + 1, 0, 100 * MIB), SPILL_NOTICED);
	assert_true(spill_wants_mending(&spill));
}
