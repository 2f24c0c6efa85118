/* SPDX-License-Identifier: MIT */
/*
 * Time of verifying a plan: about four times as much for a graph four times as large
 *
 * CPU time of this thread is compared only with itself, so the machine's speed does not matter.
 * Sanitizers take new pages for the larger plan, which cost a slow machine more than the work: no
 * times are judged with them.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/big-plan.h"
#include "support/one-op.h"
#include "support/test.h"
#include "util/clock.h"

enum { SMALL = 1000, LARGE = 4 * SMALL };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TRIES = 1, IS_JUDGED = false };
#else
enum { TRIES = 10, IS_JUDGED = true };
#endif

/* Return the minimum of several times: disturbances only add time. */
static uint64_t verify_ns(enum big_plan kind, unsigned int n)
{
	uint64_t least_ns = UINT64_MAX;
	size_t bytes;
	void *desc = big_plan(kind, n, &bytes);

	for (unsigned int i = 0; i < 5; i++) {
		const uint64_t begin_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
		char message[PLAN_MESSAGE_BYTES];
		struct plan *plan = NULL;
		int r = plan_new(desc, bytes, &one_op_arenas, message, &plan);
		const uint64_t ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;

		if (!big_plan_is_legal(kind))
			assert_int_equal(r, PLAN_E_INVALID);
		else if (r)
			fail_msg("%s: %s", big_plan_name(kind), message);
		plan_free(plan);
		if (ns < least_ns)
			least_ns = ns;
	}
	free(desc);
	return least_ns;
}

TEST(test_work__linear)
{
	for (unsigned int kind = 0; kind < BIG_PLANS; kind++) {
		uint64_t small_ns = 0, large_ns = UINT64_MAX;

		/* Caches hold less of the larger plan, so more than four times is accepted. */
		for (unsigned int i = 0; i < TRIES && large_ns >= 8 * small_ns; i++) {
			small_ns = verify_ns((enum big_plan)kind, SMALL);
			large_ns = verify_ns((enum big_plan)kind, LARGE);
		}
		print_message("%-32s %6.2f ms, %6.2f ms: %.1f times\n",
			      big_plan_name((enum big_plan)kind), (double)small_ns / 1e6,
			      (double)large_ns / 1e6, (double)large_ns / (double)small_ns);
		assert_true(large_ns < 8 * small_ns || !IS_JUDGED);
	}
}
