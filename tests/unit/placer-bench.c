/* SPDX-License-Identifier: MIT */
/* See placer-bench.h. */
#include "placer-bench.h"
#include "support/test.h"

#define ROW_BYTES 1024u

struct place_profile placer_bench_profile(float per_ns, float task_ns)
{
	struct place_profile profile = {
		.is_valid = true,
		.n_servers = 1,
		.n_servers_per_task = 1,
		.task_ns = task_ns,
		.active_watts = 100,
	};

	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
			profile.rates[i][k] = (struct place_rate){per_ns, per_ns};
	return profile;
}

void placer_bench_plan_init(struct plan *plan, struct node *node, uint32_t n_devices)
{
	*node = (struct node){
		.op = op_by_kind(OP_ADD),
		.cost = {.flops_row = ROW_BYTES / 12, .bytes_row = ROW_BYTES},
		.computed_by = PLAN_NO_NODE,
	};
	*plan = (struct plan){
		.max_count = 1u << 31,
		.n_nodes = 1,
		.nodes = node,
		.n_bindings = 2,
		.bindings = {{.row_bytes = ROW_BYTES / 2}, {.row_bytes = ROW_BYTES / 2}},
		.cost = node->cost,
		.touched_row = ROW_BYTES,
		.splits_rows = true,
		.row_grain = 8,
	};
	plan->bindings[1].written = true;
	for (uint32_t i = 0; i < n_devices; i++)
		plan->device_state[i] = PLAN_DEVICE_READY;
}

void placer_bench_init(struct placer_bench *bench, uint32_t n_devices,
		       const struct place_profile *profiles)
{
	struct place_profile usual[RBK_MAX_DEVICES];
	struct placer_options options = {.config = PLACE_CONFIG_DEFAULT, .n_devices = n_devices};
	struct place_flow_limits limits = {.weight = 100, .priority_max = RBK_PRIORITY_URGENT};

	*bench = (struct placer_bench){.now_ns = 1000000000, .random = 88172645};
	for (uint32_t i = 0; i < n_devices; i++) {
		usual[i] = placer_bench_profile(i ? 64 : 8, i ? 10000 : 500);
		if (i)
			usual[i].up_bytes_per_ns = usual[i].down_bytes_per_ns = 32;
		options.profiles[i] = profiles ? &profiles[i] : &usual[i];
	}
	placer_bench_plan_init(&bench->plan, &bench->node, n_devices);
	assert_int_equal(placer_new(&options, &bench->placer), 0);
	assert_int_equal(place_flow_new(bench->placer, &limits, &bench->flow), 0);
	assert_int_equal(place_plan_new(bench->placer, &bench->plan, &bench->place_plan), 0);
}

void placer_bench_deinit(struct placer_bench *bench)
{
	place_plan_free(bench->placer, bench->place_plan);
	place_flow_free(bench->placer, bench->flow);
	placer_free(bench->placer);
}

void placer_bench_configure(struct placer_bench *bench, struct place_config config)
{
	placer_configure(bench->placer, &config);
	place_plan_configure(bench->placer, bench->place_plan);
}

void placer_bench_renew(struct placer_bench *bench)
{
	place_plan_free(bench->placer, bench->place_plan);
	bench->plan.cost = bench->node.cost;
	assert_int_equal(place_plan_new(bench->placer, &bench->plan, &bench->place_plan), 0);
}

struct place_decision placer_bench_decide(struct placer_bench *bench, uint32_t count,
					  uint8_t strategy)
{
	struct place_request request = {.count = count, .strategy = strategy};

	return place_decide(bench->placer, bench->place_plan, bench->flow, request, bench->now_ns);
}

void placer_bench_learn(struct placer_bench *bench, uint8_t device, uint32_t count, double exec_ns)
{
	bench->now_ns += (uint64_t)exec_ns;
	place_learn(bench->placer, bench->place_plan, device, count, PLACE_DONE, (uint64_t)exec_ns,
		    0, bench->now_ns);
}

void placer_bench_learn_some(struct placer_bench *bench, uint8_t device, uint32_t count)
{
	const float contention = bench->placer->devices[device].contention;
	double ns = (double)place_predict_now_ns(bench->placer, bench->place_plan, device, count,
						 contention);

	ns *= (64 + placer_bench_random(bench, 65)) / 96.0;
	if (placer_bench_random(bench, 50) == 0)
		ns = placer_bench_random(bench, 1000000);
	placer_bench_learn(bench, device, count, ns);
}

void placer_bench_fail(struct placer_bench *bench, uint8_t device)
{
	bench->now_ns += 1000;
	place_learn(bench->placer, bench->place_plan, device, 1, PLACE_FAILED, 1000, 0,
		    bench->now_ns);
}

void placer_bench_trust(struct placer_bench *bench, uint32_t count)
{
	for (uint8_t i = 0; i < bench->placer->n_devices; i++)
		for (unsigned int k = 0; k < PLACE_TRUST; k++)
			placer_bench_learn(bench, i, count,
					   (double)place_predict_ns(bench->placer,
								    bench->place_plan, i, count));
}

uint32_t placer_bench_random(struct placer_bench *bench, uint32_t n)
{
	bench->random ^= bench->random << 13;
	bench->random ^= bench->random >> 17;
	bench->random ^= bench->random << 5;
	return bench->random % n;
}

double placer_bench_noise(struct placer_bench *bench, double share)
{
	double sum = 0;

	/* The sum of twelve uniform numbers has a variance of 1. */
	for (unsigned int i = 0; i < 12; i++)
		sum += placer_bench_random(bench, 1u << 20) / (double)(1u << 20);
	return 1 + share * (sum - 6);
}
