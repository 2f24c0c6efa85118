/* SPDX-License-Identifier: MIT */
/*
 * decision: choosing a task's device by the estimates of its plan
 *
 * Plans of three nodes have run on both devices, so every estimate is trusted. Each decision is
 * about a plan drawn at random: of ten thousand plans, none is in the first-level cache. A task has
 * its plan's own count, or (in one row) any count. The part of a plan that the broker has read
 * before deciding, to check the task, is read before timing. A sample is the mean of a batch of 16,
 * because reading the clock takes as long as a decision.
 *
 * The baseline runs in the same batches of the same plans. It computes the same model anew, the
 * roofline of every node on both devices: the price of deciding without state per plan.
 *
 * Targets: 25 ns at p50, 60 ns at p99, up to 10,000 plans.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "place/placer.h"
#include "place/schedule.h"
#include "util/checked.h"
#include "util/clock.h"

enum { BATCH = 16, N_NODES = 3, ROW_BYTES = 1024, MAX_COUNT = 4096 };

struct side {
	struct placer *placer;
	struct place_flow *flow;
	struct plan *plans;
	struct node *nodes;
	struct place_plan **place_plans;
	uint32_t *counts; /* by plan: the plan's own count */
	uint32_t n_plans;
	bool is_any_count;
	uint64_t random;
	uint32_t picked[BATCH];
	uint32_t count[BATCH];
	double sum; /* sum of results, so that the compiler keeps the computations */
};

static uint32_t draw(struct side *side, uint32_t n)
{
	side->random = side->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((side->random >> 32) * n >> 32);
}

static struct place_profile profile_of(float per_ns, float task_ns)
{
	struct place_profile profile = {
		.is_valid = true, .n_servers = 1, .n_servers_per_task = 1, .task_ns = task_ns};

	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
			profile.rates[i][k] = (struct place_rate){per_ns * (float)(1 + k), per_ns};
	return profile;
}

static void plan_init(struct plan *plan, struct node *nodes)
{
	*plan = (struct plan){
		.max_count = MAX_COUNT,
		.n_nodes = N_NODES,
		.nodes = nodes,
		.touched_row = ROW_BYTES,
		.row_grain = 1,
		.device_state = {PLAN_DEVICE_READY, PLAN_DEVICE_READY},
	};
	for (unsigned int i = 0; i < N_NODES; i++)
		nodes[i] = (struct node){.op = op_by_kind(OP_ADD),
					 .cost = {.flops_row = 64, .bytes_row = ROW_BYTES},
					 .computed_by = PLAN_NO_NODE};
}

/* Feed back times as if the plan had run, so that its estimates are trusted. */
static void run_some(struct side *side, struct place_plan *place_plan)
{
	for (uint32_t count = 1; count <= MAX_COUNT; count *= 2)
		for (uint8_t device = 0; device < 2; device++)
			for (unsigned int i = 0; i < 4; i++)
				place_learn(side->placer, place_plan, device, count, PLACE_DONE,
					    (uint64_t)place_predict_ns(side->placer, place_plan,
								       device, count),
					    0, 0);
}

static void side_deinit(struct side *side)
{
	for (uint32_t i = 0; side->place_plans && i < side->n_plans; i++)
		place_plan_free(side->placer, side->place_plans[i]);
	if (side->flow)
		place_flow_free(side->placer, side->flow);
	placer_free(side->placer);
	free(side->plans);
	free(side->nodes);
	free(side->place_plans);
	free(side->counts);
}

static int side_init(struct side *side, uint32_t n_plans)
{
	const struct place_profile cpu = profile_of(8, 500), gpu = profile_of(64, 10000);
	const struct placer_options options = {
		.config = PLACE_CONFIG_DEFAULT, .n_devices = 2, .profiles = {&cpu, &gpu}};
	const struct place_flow_limits limits = {.weight = 100};
	struct placer_options fixed = options;
	int r;

	*side = (struct side){.n_plans = n_plans, .random = n_plans};
	/* decisions alone, without exploration */
	fixed.config.exploration = 0;
	side->plans = calloc(n_plans, sizeof(*side->plans));
	side->nodes = calloc(n_plans, N_NODES * sizeof(*side->nodes));
	side->place_plans = calloc(n_plans, sizeof(*side->place_plans));
	side->counts = calloc(n_plans, sizeof(*side->counts));
	if (!side->plans || !side->nodes || !side->place_plans || !side->counts)
		return -ENOMEM;
	r = placer_new(&fixed, &side->placer);
	if (!r)
		r = place_flow_new(side->placer, &limits, &side->flow);
	for (uint32_t i = 0; i < n_plans && !r; i++) {
		plan_init(&side->plans[i], &side->nodes[(size_t)i * N_NODES]);
		side->counts[i] = 1 + draw(side, MAX_COUNT);
		placer_prepare(side->placer);
		r = place_plan_new(side->placer, &side->plans[i], &side->place_plans[i]);
		if (!r)
			run_some(side, side->place_plans[i]);
	}
	return r;
}

static void pick(struct side *side)
{
	for (unsigned int i = 0; i < BATCH; i++) {
		side->picked[i] = draw(side, side->n_plans);
		side->count[i] = side->is_any_count ? 1 + draw(side, 1u << draw(side, 13))
						    : side->counts[side->picked[i]];
		/* the read that checks the task */
		side->sum += *(volatile uint32_t *)&side->plans[side->picked[i]].max_count;
	}
}

static void decide(struct side *side)
{
	for (unsigned int i = 0; i < BATCH; i++) {
		struct place_decision decision =
			place_decide(side->placer, side->place_plans[side->picked[i]], side->flow,
				     (struct place_request){.count = side->count[i]}, 0);

		side->sum += (double)decision.predicted_ns;
	}
}

static void compute(struct side *side)
{
	for (unsigned int i = 0; i < BATCH; i++) {
		const struct plan *plan = &side->plans[side->picked[i]];
		double ns[2], count = side->count[i];

		for (uint8_t device = 0; device < 2; device++) {
			const struct place_profile *profile = placer_profile(side->placer, device);

			ns[device] = (double)profile->task_ns;
			for (unsigned int k = 0; k < plan->n_nodes; k++)
				ns[device] += place_profile_node_ns(
					profile, plan->nodes[k].op->family,
					(double)plan->nodes[k].cost.flops_row * count,
					(double)plan->nodes[k].cost.bytes_row * count);
		}
		side->sum += ns[0] < ns[1] ? ns[0] : ns[1];
	}
}

static int round_of(struct side *side, uint64_t budget_ns, struct samples *samples,
		    void (*work)(struct side *side))
{
	uint64_t end_ticks = clock_ticks() + clock_ns_to_ticks(budget_ns), start, end;
	int r;

	r = samples_reserve(samples, budget_ns / 100 + 2);
	if (r)
		return r;
	/* Touch every plan a few times, since the other side's round has filled the caches. */
	for (unsigned int i = 0; i < 64 + side->n_plans / BATCH * 4; i++) {
		pick(side);
		work(side);
	}
	do {
		pick(side);
		start = clock_ticks();
		work(side);
		end = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(start, end) / BATCH);
	} while (end < end_ticks && samples_room(samples) > 0);
	return 0;
}

static int decide_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	return round_of(data, budget_ns, samples, decide);
}

static int compute_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	return round_of(data, budget_ns, samples, compute);
}

static int run_plans(struct bench_env *env, uint32_t n_plans, bool is_any_count)
{
	char params[48];
	const struct bench_row row = {params, "ns", false, "model-anew"};
	struct side side;
	int r;

	snprintf(params, sizeof(params), "plans=%u count=%s", n_plans,
		 is_any_count ? "any" : "own");
	r = side_init(&side, n_plans);
	side.is_any_count = is_any_count;
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){decide_round, &side},
				  (struct bench_side){compute_round, &side});
	if (r)
		bench_fail(env, r, "measuring failed (%s)", params);
	side_deinit(&side);
	return r;
}

static int run(struct bench_env *env)
{
	static const uint32_t n_plans[] = {10, 100, 1000, 10000};
	int r = 0;

	bench_pin(env, env->client_cpu);
	for (size_t i = 0; i < ARRAY_SIZE(n_plans) && !r; i++)
		r = run_plans(env, n_plans[i], false);
	if (!r)
		r = run_plans(env, n_plans[ARRAY_SIZE(n_plans) - 1], true);
	return r;
}

const struct bench bench_decision = {
	.name = "decision",
	.summary = "where a task runs, of 10 to 10,000 plans (target: p50 25 ns, p99 60 ns)",
	.baseline = "the same cost model computed anew for each task",
	.run = run,
};
