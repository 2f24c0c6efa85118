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
void bench_end(struct bench *bench);

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

/* The next completion must be this one. Return: it. */
#define expect_cqe(bench, user_data, res) expect_cqe_(bench, user_data, res, __LINE__)
struct rbk_cqe expect_cqe_(struct bench *bench, uint64_t user_data, int res, int line);

#define expect_none(bench) expect_none_(bench, __LINE__)
void expect_none_(struct bench *bench, int line);

/* Ends a task that a fake has, and does what follows from it. */
void finish(struct bench *bench, struct fake *fake, uint64_t user_data, int res);
