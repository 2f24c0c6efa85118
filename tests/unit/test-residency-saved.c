/* SPDX-License-Identifier: MIT */
/* Working sets that outlive the broker, and files that are none. */
#include <stdlib.h>
#include <string.h>

#include "support/residency-rig.h"
#include "support/test.h"

#define MIB (1ull << 20)

static const uint64_t keys[] = {100, 101, 102};

static char *save(const struct residency_rig *rig, size_t *ret_n)
{
	char *bytes;
	FILE *stream = open_memstream(&bytes, ret_n);

	assert_non_null(stream);
	residency_save(rig->residency, keys, stream);
	assert_int_equal(fclose(stream), 0);
	return bytes;
}

static struct plan_memory *come_back(struct residency_rig *rig, unsigned int tenant,
				     uint64_t fingerprint)
{
	struct plan_memory *plan = rig_plan_of(rig, tenant, 40 * MIB);

	plan->plan->fingerprint = fingerprint;
	rig_add(rig, plan);
	rig_settle(rig);
	return plan;
}

/* Plans 2 and 3 of three with 40 MiB have a place on a device of 100 MiB. */
static char *saved(size_t *ret_n)
{
	char *bytes;

	BEGIN(rig);
	come_back(&rig, 0, 2);
	come_back(&rig, 0, 3);
	assert_false(rig_is_ready(come_back(&rig, 0, 1)));
	bytes = save(&rig, ret_n);
	return bytes;
}

/* Whichever plan comes first, those that were in memory are loaded, and the others wait for a task.
 */
TEST(test_saved__working_set_comes_back)
{
	struct plan_memory *out, *in[2];
	size_t n;
	char *bytes = saved(&n);

	BEGIN(rig);
	assert_int_equal(residency_restore(rig.residency, keys, bytes, n), 0);
	out = come_back(&rig, 0, 1);
	assert_false(rig_is_ready(out));
	in[0] = come_back(&rig, 0, 2);
	in[1] = come_back(&rig, 0, 3);
	assert_true(rig_is_ready(in[0]) && rig_is_ready(in[1]));
	assert_false(rig_is_ready(out));
	free(bytes);
}

TEST(test_saved__a_task_brings_the_rest)
{
	struct plan_memory *out;
	size_t n;
	char *bytes = saved(&n);

	BEGIN(rig);
	assert_int_equal(residency_restore(rig.residency, keys, bytes, n), 0);
	out = come_back(&rig, 0, 1);
	assert_false(rig_is_ready(out));
	rig_want(&rig, out, 1);
	rig_settle(&rig);
	assert_true(rig_is_ready(out));
	free(bytes);
}

/* Neither an unknown plan, nor a second one, nor another tenant's is held back. */
TEST(test_saved__others_are_loaded)
{
	size_t n;
	char *bytes = saved(&n);

	BEGIN(rig);
	assert_int_equal(residency_restore(rig.residency, keys, bytes, n), 0);
	assert_true(rig_is_ready(come_back(&rig, 1, 1)));
	assert_false(rig_is_ready(come_back(&rig, 0, 1)));
	assert_true(rig_is_ready(come_back(&rig, 0, 1)));
	free(bytes);
}

TEST(test_saved__unknown_device)
{
	const uint64_t other[] = {100, 999};
	size_t n;
	char *bytes = saved(&n);

	BEGIN(rig);
	assert_int_equal(residency_restore(rig.residency, other, bytes, n), 0);
	/* It was in the memory of a device that is gone, and waits for a task like the others. */
	assert_false(rig_is_ready(come_back(&rig, 0, 2)));
	free(bytes);
}

TEST(test_saved__damaged)
{
	static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	unsigned int n_refused = 0, n_used = 0;
	size_t n;
	char *bytes = saved(&n), *copy = malloc(n);
	int r;

	assert_non_null(copy);
	BEGIN(rig);
	for (size_t length = 0; length < n; length++)
		assert_int_equal(residency_restore(rig.residency, keys, bytes, length),
				 RESIDENCY_E_IMPOSSIBLE);
	for (size_t at = 0; at < n; at++)
		for (unsigned int i = 0; i < sizeof(values); i++) {
			memcpy(copy, bytes, n);
			copy[at] = (char)values[i];
			r = residency_restore(rig.residency, keys, copy, n);
			n_refused += r == RESIDENCY_E_IMPOSSIBLE;
			n_used += r == 0;
			assert_true(r == 0 || r == RESIDENCY_E_IMPOSSIBLE);
		}
	assert_true(n_refused > 0 && n_used > 0);
	come_back(&rig, 0, 2);
	free(copy);
	free(bytes);
}
