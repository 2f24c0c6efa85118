#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Dispatcher bench: the rig that tests of the dispatcher share
 *
 * A session-rig.h with a ring, an arena and two plans. Entries and completions are known by their
 * user_data. For cmocka tests: the expect_ functions fail the running test.
 */
#include "support/session-rig.h"

enum { N_ENTRIES = 16, CPU = RBK_DEVICE_CPU, GPU = RBK_DEVICE_GPU };

struct bench {
	struct rig rig;
	struct rig_ring ring;
	struct session_arena *arena;
	struct session_plan *tiny, *queued; /* "tiny" runs inline, "queued" never */
	struct fake *cpu, *gpu;
};

void bench_begin(struct bench *bench, uint32_t n_devices, uint32_t n_entries);
/*
 * Like bench_begin(), with devices whose time is the bytes that a task touches over @bytes_per_ns.
 */
struct bench_speed {
	float bytes_per_ns; /* rate of one server; 0: unknown */
	uint32_t n_servers; /* servers; 0 counts as 1 */
};
void bench_begin_placement(struct bench *bench, uint32_t n_devices, uint32_t n_entries,
			   const struct place_config *config, const struct bench_speed *speeds);
void bench_end(struct bench *bench);
#define BENCH(name, ...) SCOPED(bench, name, bench_begin, bench_end, __VA_ARGS__)

/* Put a NOP or a BARRIER. */
void put_bare(struct bench *bench, uint8_t opcode, uint64_t user_data, uint8_t flags);

/* A RUN of one row, with x at offset 0 of the arena and y at offset 4096. */
struct rbk_sqe run_entry(const struct bench *bench, const struct session_plan *plan,
			 uint64_t user_data);
void put_run(struct bench *bench, const struct session_plan *plan, uint64_t user_data,
	     uint8_t flags);
void put_strategy(struct bench *bench, uint64_t user_data, uint8_t strategy);

/* Put a RUN that is rejected with -ERANGE. */
void put_bad(struct bench *bench, uint64_t user_data, uint8_t flags);

void put_cancel(struct bench *bench, uint64_t user_data, uint64_t target, uint8_t flags);

/* Describe y = -|relu(x)|, all [count,64]: a chain of three nodes. */
struct describe *bench_chain(void);

/* Return a number that cuts the plan of @describe before each of its nodes. */
uint64_t bench_cut_seed(struct describe *describe);

/* Prepare the plan of @describe, cut before each of its nodes; @same describes it again. */
struct session_plan *bench_cut_plan(struct bench *bench, struct describe *describe,
				    struct describe *same);

/* Prepare y = Relu(x), both [count,@width], which never runs inline. */
struct session_plan *bench_relu(struct bench *bench, uint32_t width, uint32_t max_count);
/* A RUN of a bench_relu() plan: x at the beginning of @arena, y at @y_offset. */
struct rbk_sqe bench_entry(const struct session_plan *plan, const struct session_arena *arena,
			   uint64_t y_offset, uint32_t count, uint64_t user_data);

/*
 * Assert the user_data and result of the next completion.
 * Return: the completion.
 */
#define expect_cqe(bench, user_data, res) expect_cqe_(bench, user_data, res, __LINE__)
struct rbk_cqe expect_cqe_(struct bench *bench, uint64_t user_data, int res, int line);

#define expect_none(bench) expect_none_(bench, __LINE__)
void expect_none_(struct bench *bench, int line);

/* Complete a task that a fake has in flight, and run the dispatcher on it. */
void finish(struct bench *bench, struct fake *fake, uint64_t user_data, int res);

/* Let the GPU fail until its breaker opens. The plan "queued" must be ready on the GPU. */
void bench_break_gpu(struct bench *bench);

/* Pin an idle plan to a device, or unpin it (RBK_DEVICE_NONE). */
void bench_pin(struct bench *bench, struct session_plan *plan, uint8_t device);
