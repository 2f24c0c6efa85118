/* SPDX-License-Identifier: MIT */
/*
 * A computation in the measuring thread
 *
 * Short computations are timed several at a time, so that reading the clock is negligible.
 */
#include "direct.h"

#include "cost.h"
#include "util/clock.h"

#define SAMPLE_NS     2000u
#define ROUND_SAMPLES 4096u

int direct_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	const struct direct *direct = data;
	uint64_t start, last, now, budget, once_ns;
	unsigned int i, j, n_calls;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (r)
		return r;
	bench_pin(direct->env, direct->cpu);
	/* Undo the other side's effect on the caches; then time one call. */
	r = direct->run(direct->data);
	if (r)
		return r;
	start = clock_ticks();
	r = direct->run(direct->data);
	once_ns = clock_elapsed_ns(start, clock_ticks());
	n_calls = once_ns >= SAMPLE_NS ? 1 : SAMPLE_NS / (unsigned int)(once_ns + 1) + 1;

	budget = clock_ns_to_ticks(budget_ns);
	cost_begin(direct->cost);
	start = last = clock_ticks();
	for (i = 0; i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		for (j = 0; j < n_calls && !r; j++)
			r = direct->run(direct->data);
		if (r)
			return r;
		now = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(last, now) / (1e3 * n_calls));
		last = now;
	}
	cost_end(direct->cost, (uint64_t)i * n_calls);
	return 0;
}
