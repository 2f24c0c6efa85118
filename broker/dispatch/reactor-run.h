#pragma once
/* SPDX-License-Identifier: MIT */
/* Tasks that the reactor runs itself, see reactor-run-hot.c. Private to broker/dispatch. */
#include <stdbool.h>
#include <stdint.h>

struct exec_task;
struct flow;
struct run;

enum {
	REACTOR_RUNS = 8,
	/* Most active rings: each look and each decision visits them all. */
	REACTOR_RUN_RINGS = 32,
	/* Time of a switch to a worker and back */
	REACTOR_SWITCH_NS = 50000,
	/* Longest predicted time of a small task, which runs inline if the reactor has the time */
	SMALL_NS = 8000,
	/* Tasks of each worker with which the reactor helps with others */
	FULL_TASKS = 2,
};

struct reactor_run {
	uint64_t most_ns;   /* longest predicted time of such a task; 0: none runs */
	uint32_t n_held;    /* runs taken: running and waiting */
	uint32_t n_waiting; /* the first ones of waiting */
	struct {
		struct run *run;
		uint64_t work_ns;   /* predicted when it was taken */
	} waiting[REACTOR_RUNS];    /* oldest first */
	struct run *running;        /* NULL: none */
	struct exec_task *returned; /* to be taken back by dispatch_reap(); NULL: none */
	const struct flow *flow;    /* of all runs held */
	uint64_t work_ns;           /* predicted, of all runs held */

	/* These describe the running one. */
	bool is_overrun;       /* a piece took too long */
	bool is_in_the_way;    /* a worker got a neighbour's task, and needs a processor */
	uint32_t n_calls;      /* looks that found a neighbour's entries */
	int kernel_result;     /* negative: look_at_kernel() failed during a task */
	uint64_t looked_ticks; /* end of the last look */
	uint64_t reaped_ticks; /* when executors were last asked for finished tasks */
	uint64_t stop_ticks;   /* when it is stopped */
	/* answers until then were followed by dispatch_give_way(); when it may sleep again */
	uint64_t way_ticks, next_way_ticks;
	/* the times of reactor-run-hot.c in ticks */
	uint64_t long_piece_ticks, forgive_ticks, reap_ticks, quiet_ticks;
};
