/* SPDX-License-Identifier: MIT */
/*
 * Run queues without a kernel
 *
 * Workers and hogs share the processors evenly (world_share()). A busy worker runs for its share of
 * the time and waits for the rest. Hogs use the processor time that workers leave, at most one
 * processor each. A waiting worker was preempted once per TURN_NS.
 */
#include "judge.h"

#include <math.h>

#define TURN_NS 3e6

void judge_init(struct judge *judge, const struct sim *sim)
{
	const struct contention_config config = CONTENTION_CONFIG_DEFAULT;
	const uint32_t n_servers = sim->devices[RBK_DEVICE_CPU].n_servers;

	*judge = (struct judge){.share = 1, .next_ns = JUDGE_PERIOD_NS};
	contention_judge_init(&judge->contention, &config, n_servers);
	judge->sample = (struct contention_sample){
		.has_workers = true,
		.has_processors = true,
		.n_processors = n_servers,
	};
}

void judge_count(struct judge *judge, const struct sim *sim)
{
	const struct device *device = &sim->devices[RBK_DEVICE_CPU];
	const double ns = sim->now_ns - judge->counted_ns;
	const double busy_ns = device->busy_ns - judge->busy_ns, all_ns = ns * device->n_servers;
	const double run_ns = busy_ns / judge->share;
	const double others_ns = fmin(judge->n_hogs * ns, fmax(all_ns - run_ns, 0));

	judge->run_ns += run_ns;
	judge->wait_ns += busy_ns - run_ns;
	judge->others_ns += others_ns;
	judge->idle_ns += fmax(all_ns - run_ns - others_ns, 0);
	judge->counted_ns = sim->now_ns;
	judge->busy_ns = device->busy_ns;
	judge->share = world_share(sim->world);
	judge->n_hogs = sim->world->n_hogs;
}

const struct contention_verdict *judge_look(struct judge *judge, const struct sim *sim)
{
	struct contention_sample *sample = &judge->sample;

	judge_count(judge, sim);
	judge->next_ns = sim->now_ns + JUDGE_PERIOD_NS;
	sample->at_ns = 1000000000ull + (uint64_t)sim->now_ns;
	sample->run_ns = (uint64_t)judge->run_ns;
	sample->wait_ns = (uint64_t)judge->wait_ns;
	sample->n_preemptions = (uint64_t)(judge->wait_ns / TURN_NS);
	sample->others_ns = (uint64_t)judge->others_ns;
	sample->idle_ns = (uint64_t)judge->idle_ns;
	return contention_judge_feed(&judge->contention, sample);
}
