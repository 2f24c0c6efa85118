/* SPDX-License-Identifier: MIT */
/* Submit @n NOPs, which must fit into the ring, and wait for all completions. */
#include <ringbroker.h>
#include <errno.h>
#include <stdio.h>

static int run(struct rbk_ring *ring, unsigned int n)
{
	const struct rbk_cqe *cqe;
	unsigned int head, n_done = 0;
	struct rbk_sqe *sqe;
	int r;

	for (unsigned int i = 0; i < n && (sqe = rbk_get_sqe(ring)); i++) {
		rbk_prep_nop(sqe);
		rbk_sqe_set_data64(sqe, i);
	}
	r = rbk_submit(ring);
	while (r >= 0 && n_done < n) {
		r = rbk_wait_cqe(ring, &cqe);
		if (r == -EINTR) /* a signal was handled */
			r = 0;
		rbk_for_each_cqe (ring, head, cqe)
			printf("task %llu: %d\n", (unsigned long long)rbk_cqe_get_data64(cqe),
			       cqe->res);
		rbk_cq_advance(ring, head);
		n_done += head;
	}
	return r < 0 ? r : 0;
}

int main(void)
{
	struct rbk_ring *ring;
	struct rbk *rbk;

	return rbk_connect(NULL, &rbk, NULL) || rbk_ring_new(rbk, 64, &ring, NULL) || run(ring, 8);
}
