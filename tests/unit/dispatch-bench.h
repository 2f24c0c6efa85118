#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What tests of the dispatcher share
 *
 * A session-rig.h with a ring, an arena and two plans, and entries and completions by their
 * user_data. For cmocka tests: the expect_ functions fail the running test.
 */
#include "support/session-rig.h"

enum { N_ENTRIES = 16, CPU = RBK_DEVICE_CPU, GPU = RBK_DEVICE_GPU };

struct bench {
	struct rig rig;
	struct rig_ring ring;
	struct session_arena *arena;
	struct session_plan *tiny, *queued; /* the one runs inline, the other never */
	struct fake *cpu, *gpu;
};

void bench_begin(struct bench *bench, uint32_t n_devices, uint32_t n_entries);
/* The same, with devices whose time is the bytes that a task touches divided by @bytes_per_ns. */
struct bench_speed {
	float bytes_per_ns; /* of one server; 0: nothing is known of the device */
	uint32_t n_servers; /* 0 counts as 1 */
};
void bench_begin_placement(struct bench *bench, uint32_t n_devices, uint32_t n_entries,
			   const struct place_config *config, const struct bench_speed *speeds);
void bench_end(struct bench *bench);
#define BENCH(name, ...) SCOPED(bench, name, bench_begin, bench_end, __VA_ARGS__)

/* NOP, BARRIER */
void put_bare(struct bench *bench, uint8_t opcode, uint64_t user_data, uint8_t flags);

/* One row, from offset 0 of the arena to offset 4096. */
struct rbk_sqe run_entry(const struct bench *bench, const struct session_plan *plan,
			 uint64_t user_data);
void put_run(struct bench *bench, const struct session_plan *plan, uint64_t user_data,
	     uint8_t flags);
void put_strategy(struct bench *bench, uint64_t user_data, uint8_t strategy);

/* A RUN that is refused with -ERANGE. */
void put_bad(struct bench *bench, uint64_t user_data, uint8_t flags);

void put_cancel(struct bench *bench, uint64_t user_data, uint64_t target, uint8_t flags);

/* y = Relu(x), both [count,@width], never inline. */
struct session_plan *bench_relu(struct bench *bench, uint32_t width, uint32_t max_count);
/* A RUN of such a plan: x from the beginning of @arena, y from @y_offset. */
struct rbk_sqe bench_entry(const struct session_plan *plan, const struct session_arena *arena,
			   uint64_t y_offset, uint32_t count, uint64_t user_data);

/* The next completion must be this one. Return: it. */
#define expect_cqe(bench, user_data, res) expect_cqe_(bench, user_data, res, __LINE__)
struct rbk_cqe expect_cqe_(struct bench *bench, uint64_t user_data, int res, int line);

#define expect_none(bench) expect_none_(bench, __LINE__)
void expect_none_(struct bench *bench, int line);

/* Ends a task that a fake has, and does what follows from it. */
void finish(struct bench *bench, struct fake *fake, uint64_t user_data, int res);

/* The GPU fails until it is not used any more. The plan "queued" must be ready there. */
void bench_break_gpu(struct bench *bench);

/* Pins a plan that nothing is in flight of, or with RBK_DEVICE_NONE lets it go. */
void bench_pin(struct bench *bench, struct session_plan *plan, uint8_t device);
