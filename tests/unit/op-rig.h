#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A rig for tests of operators
 *
 * A problem is computed on each device of a list, and compared with the plain reference.
 *
 * "cpu" is the CPU executor at each SIMD level that this processor has. "plain" and "shared" are
 * the Vulkan executor with one kind of shaders; "-staged" and "-upload" force its memory paths.
 * Every tensor lies at the end of its own memory: a write beside the tensor shows, and a read
 * beyond it faults on a CPU. On a CPU, results must have the same bits in one piece, in random
 * pieces, and by several workers; and with AVX2 and AVX-512.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"
#include "reference/reference.h"
#include "support/describe.h"

enum { OP_RIG_MAX_COUNT = 8, OP_RIG_ARENA_BYTES = 4 << 20 };

struct op_check {
	const char *what;  /* name in messages; NULL: the first operator's */
	double rtol, atol; /* tolerances of reference_buffers_close() */
	/* @rtol is relative to the largest number of each tensor, instead of to each number. */
	bool is_of_largest;
	/* A CPU also computes with channels last wherever that is possible. */
	bool has_layouts;
	bool may_refuse; /* a GPU may reject it as too large */
	uint32_t count;  /* rows, run once; 0: the plan's largest count and a random one */
	/* Change the random contents of the inputs; NULL: no change. */
	void (*fill)(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		     uint64_t *seed);
	/*
	 * Make contents for which the task fails with -EDOM.
	 * Return: false if no contents do. NULL: none.
	 */
	bool (*spoil)(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *seed);
};

/*
 * Open the devices that @name stands for.
 * Return: 0, or main()'s exit status after printing the reason: 77 if the devices are missing here,
 * 2 if the name is unknown.
 */
int op_rig_open(const char *name);
void op_rig_close(void);
bool op_rig_is_gpu(void);

/*
 * Let op_rig_rounds() return a percentage of the rounds. @rounds: its number, or "short": all
 * rounds but those that a short run on a GPU leaves out.
 */
void op_rig_set_rounds(const char *rounds);
/* Return true if the device is a GPU, and the run is short or has less than 100 percent. */
bool op_rig_is_short(void);
/*
 * Return true if a row is to be run: a short run of "shared" has types but float32 for tiles alone,
 * since "plain" has the rest.
 */
bool op_rig_wants(const char *op, enum rbk_dtype floats);
/* Return true if one of the devices computes @op with elements of @type. */
bool op_rig_takes(const struct op *op, uint8_t type);
/*
 * Return true if random cases have an elementwise @op with elements of @type. Shaders compute all
 * integers with 64 bits and float16 as float32, and convert them alike for all operators: so a
 * short run has int64 and one other type for each operator, for each of these types a third of the
 * operators, and float16 for half of them.
 */
bool op_rig_samples(const struct op *op, uint8_t type);
/*
 * Return the scaled number of rounds (see scaled.h) for this kind of device: of @cpu, or of @gpu,
 * which has at least two, if it has as many. GPUs take long to prepare plans.
 */
unsigned int op_rig_rounds(unsigned int cpu, unsigned int gpu);
/* Return true if @name is the Vulkan executor's device, or the first level of a CPU. */
bool op_rig_is(const char *name);

/* Return: a random number of [from, to]; the same sequence in every run. */
uint32_t op_rig_pick(uint32_t from, uint32_t to);
/* Return the state of the random numbers, for functions that take one. */
uint64_t *op_rig_seed(void);

/*
 * Begin the random numbers of a short run again, with a seed that was chosen so that the run takes
 * all branches that a long one takes, by gcov.
 */
void op_rig_set_seed(uint64_t of_short_run);

/* Return constants of REFERENCE_ARENA for plans whose floats are of type @floats: from -1 to 1. */
struct exec_arena *op_rig_arena(enum rbk_dtype floats);

/*
 * Compute @plan on all devices, and free it. A device must reject the plan if and only if it does
 * not support one of its types (or check->may_refuse is set).
 * Return: the number of devices that computed it.
 */
unsigned int op_check(struct plan *plan, const struct op_check *check);
