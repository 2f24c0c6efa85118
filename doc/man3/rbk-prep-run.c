/* SPDX-License-Identifier: MIT */
/*
 * Queue a task of four rows with a deadline of 2 ms. While testing, rbk_sqe_check() says which
 * field of the entry the broker would refuse, and why.
 */
#include <ringbroker.h>
#include <stdio.h>

int put_sum(struct rbk_ring *ring, const struct rbk_plan *add, const uint64_t refs[3],
	    const uint32_t terms[2]);

static void put(struct rbk *rbk, struct rbk_ring *ring, const struct rbk_plan *plan,
		const uint64_t *refs, unsigned int n_refs)
{
	struct rbk_sqe *sqe = rbk_get_sqe(ring);
	struct rbk_error error;

	if (!sqe)
		return; /* full: submit, and consume completions */
	rbk_prep_run(sqe, rbk_plan_id(plan), 4, refs, n_refs);
	rbk_sqe_set_data64(sqe, 42); /* brokerctl why task 42 */
	rbk_sqe_set_strategy(sqe, RBK_STRATEGY_PREFER_GPU);
	rbk_sqe_set_deadline_us(sqe, 2000);
	if (rbk_sqe_check(rbk, sqe, &error))
		fprintf(stderr, "%s\n", error.text);
}

/* Queue a task that adds what two earlier entries write: their rbk_sqe_index() is in @terms. */
int put_sum(struct rbk_ring *ring, const struct rbk_plan *add, const uint64_t refs[3],
	    const uint32_t terms[2])
{
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	if (!sqe)
		return -1;
	rbk_prep_run(sqe, rbk_plan_id(add), 1, refs, 3);
	return rbk_sqe_set_after(ring, sqe, terms, 2);
}

/* Cancel it. */
static void cancel(struct rbk_ring *ring)
{
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	if (sqe)
		rbk_prep_cancel(sqe, 42);
}

void put_and_cancel(struct rbk *rbk, struct rbk_ring *ring, const struct rbk_plan *plan,
		    const uint64_t refs[2])
{
	put(rbk, ring, plan, refs, 2);
	cancel(ring);
	rbk_submit(ring);
}
