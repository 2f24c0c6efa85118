#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A placer, a flow and a plan without a broker, for tests of decisions and learning
 *
 * Device 0 moves 8 bytes/ns; GPUs move 64, their link 32, and take 10 us to start a task. The plan
 * has one elementwise node that reads and writes 1 KiB per row, all of it bound.
 */
#include "place/placer-private.h"
#include "place/schedule.h"

enum { BENCH_CPU = RBK_DEVICE_CPU, BENCH_GPU = RBK_DEVICE_GPU, BENCH_GPU2 = 2 };

struct placer_bench {
	struct placer *placer;
	struct place_flow *flow;
	struct plan plan;
	struct node node;
	struct place_plan *place_plan;
	uint64_t now_ns;
	uint32_t random;
};

/* Return a profile whose rates are the same for all families and sizes. */
struct place_profile placer_bench_profile(float per_ns, float task_ns);

/* Begin. @profiles: NULL for the devices above. The plan's max_count is 2^31. */
void placer_bench_init(struct placer_bench *bench, uint32_t n_devices,
		       const struct place_profile *profiles);
void placer_bench_deinit(struct placer_bench *bench);
#define PLACER_BENCH(name, ...) \
	SCOPED(placer_bench, name, placer_bench_init, placer_bench_deinit, __VA_ARGS__)

/* Use @config from now on, also for the plan. */
void placer_bench_configure(struct placer_bench *bench, struct place_config config);

/* Make @place_plan anew from bench->plan (one node), after the test has changed it. */
void placer_bench_renew(struct placer_bench *bench);

/* Fill in a plan like the bench's. */
void placer_bench_plan_init(struct plan *plan, struct node *node, uint32_t n_devices);

struct place_decision placer_bench_decide(struct placer_bench *bench, uint32_t count,
					  uint8_t strategy);

/*
 * Report an execution that ends @exec_ns (a failure: 1 us) after now_ns, and advance now_ns to its
 * end.
 */
void placer_bench_learn(struct placer_bench *bench, uint8_t device, uint32_t count, double exec_ns);
void placer_bench_fail(struct placer_bench *bench, uint8_t device);

/* Learn a time within a third of the prediction, or, once in 50 times, any time up to 1 ms. */
void placer_bench_learn_some(struct placer_bench *bench, uint8_t device, uint32_t count);

/* Let the estimates at @count become trusted on all devices, with the values that they predict. */
void placer_bench_trust(struct placer_bench *bench, uint32_t count);

/* Return a number below @n (xorshift): the same sequence in each run. */
uint32_t placer_bench_random(struct placer_bench *bench, uint32_t n);
/* Return 1 plus noise of standard deviation @share, about normally distributed. */
double placer_bench_noise(struct placer_bench *bench, double share);
