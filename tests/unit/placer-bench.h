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

/* All rates the same, whatever the family and the size. */
struct place_profile placer_bench_profile(float per_ns, float task_ns);

/* @profiles: NULL: as above; the plan's max_count is 2^31. */
void placer_bench_init(struct placer_bench *bench, uint32_t n_devices,
		       const struct place_profile *profiles);
void placer_bench_deinit(struct placer_bench *bench);
#define PLACER_BENCH(name, ...) \
	SCOPED(placer_bench, name, placer_bench_init, placer_bench_deinit, __VA_ARGS__)

/* The configuration in use, to be changed. */
void placer_bench_configure(struct placer_bench *bench, struct place_config config);

/* Makes bench->plan of one node and @place_plan anew, after the test has changed it. */
void placer_bench_renew(struct placer_bench *bench);

/* A plan like the bench's. */
void placer_bench_plan_init(struct plan *plan, struct node *node, uint32_t n_devices);

struct place_decision placer_bench_decide(struct placer_bench *bench, uint32_t count,
					  uint8_t strategy);

/* An execution at @now_ns, which goes on by it. */
void placer_bench_learn(struct placer_bench *bench, uint8_t device, uint32_t count, double exec_ns);
void placer_bench_fail(struct placer_bench *bench, uint8_t device);

/* Both estimates at that count are trusted, at what they predict. */
void placer_bench_trust(struct placer_bench *bench, uint32_t count);

/* xorshift: the same numbers each time. Below @n. */
uint32_t placer_bench_random(struct placer_bench *bench, uint32_t n);
/* 1 give or take @share, about normally distributed. */
double placer_bench_noise(struct placer_bench *bench, double share);
