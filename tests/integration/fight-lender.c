/* SPDX-License-Identifier: MIT */
/*
 * A lender: a process with a lease on the device that the plans of its tenant are on
 *
 * It opens a lease, takes credit and gives some back ten times a second, and now and then leaves.
 * Its tenant's plans have what the lease leaves them.
 */
#include "integration/fight.h"

#include <errno.h>
#include <string.h>

#include <ringbroker/lease.h>

#include "integration/harness.h"

#define MIB (1ull << 20)

enum { PAUSE_MS = 100, STEPS = 30, MOST_MIB = 48 };

struct lender {
	struct fight *fight;
	struct fight_loan *loan;
	unsigned int member;
	uint64_t random;
};

static uint64_t below(struct lender *lender, uint64_t n)
{
	return (harness_random(&lender->random) >> 16) % n;
}

/* Count a request for memory. Return: true if it was granted. */
static bool is_granted(struct lender *lender, int r)
{
	/* -EBUSY: the card is lost; -EDQUOT: the maximum was lowered. */
	if (r && r != -ENOMEM && r != -ETIMEDOUT && r != -EDEADLK && r != -EDQUOT &&
	    !(r == -EBUSY && lender->fight->may_be_lost))
		fight_fail(lender->fight, lender->member, "a lease is refused: %s", strerror(-r));
	lender->loan->n_refused += r != 0;
	return r == 0;
}

static void pause_as_told(struct lender *lender)
{
	struct fight *fight = lender->fight;

	harness_sleep_ms((unsigned int)below(lender, 2 * PAUSE_MS));
	lender->loan->is_quiet = true;
	while (fight->pause && !fight->stop)
		harness_sleep_ms(2);
	lender->loan->is_quiet = false;
}

static void use(struct lender *lender, struct rbk_lease *lease)
{
	uint64_t credit_bytes = 0, bytes;

	for (uint64_t i = 0, n = below(lender, STEPS); i < n && !lender->fight->stop; i++) {
		pause_as_told(lender);
		bytes = (1 + below(lender, MOST_MIB / 4)) * MIB;
		if (credit_bytes > 0 && below(lender, 2)) {
			bytes = bytes < credit_bytes ? bytes : credit_bytes;
			if (rbk_lease_give(lease, bytes, NULL))
				fight_fail(lender->fight, lender->member,
					   "credit is not taken back");
			credit_bytes -= bytes;
			lender->loan->n_given++;
		} else if (is_granted(lender,
				      rbk_lease_take(lease, bytes, MIB, below(lender, 2) * 50000000,
						     NULL, &bytes, NULL))) {
			credit_bytes += bytes;
			lender->loan->n_taken++;
		}
	}
}

int fight_lender(struct fight *fight, unsigned int member)
{
	struct lender lender = {
		.fight = fight,
		.loan = &fight->loans[member - FIGHT_FIRST_LENDER],
		.member = member,
		.random = (fight->seed + member * 1000003ull) * 0x9e3779b97f4a7c15ull | 1,
	};

	while (!fight->stop) {
		const struct rbk_lease_options wanted = {
			.device = RBK_DEVICE_GPU,
			.min_bytes = MIB,
			.wish_bytes = (1 + below(&lender, 8)) * MIB,
			.max_bytes = MOST_MIB * MIB,
		};
		struct rbk *rbk = fight_connect(fight, member, "lender");
		struct rbk_lease *lease;

		if (is_granted(&lender, rbk_lease_open(rbk, &wanted, &lease, NULL))) {
			lender.loan->n_opened++;
			use(&lender, lease);
			rbk_lease_close(lease);
		}
		rbk_disconnect(rbk);
		pause_as_told(&lender);
	}
	return 0;
}
