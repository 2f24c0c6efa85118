#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A rig for tests of operators: a problem is computed on each of a list of devices and compared
 * with the plain reference
 *
 * "cpu" is the CPU executor at each SIMD level that this processor has; "plain" and "shared" are
 * the Vulkan executor with one of its kinds of shaders, "-staged" and "-upload" force ways of its
 * memory. Every tensor lies at the end of memory of its own: writing beside it shows, and reading
 * beyond it on a CPU is a fault. On a CPU results must be the same bits in one go, in pieces that
 * are cut anywhere, and by several workers; with AVX2 and with AVX-512.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"
#include "reference/reference.h"
#include "support/describe.h"

enum { OP_RIG_MAX_COUNT = 8, OP_RIG_ARENA_BYTES = 4 << 20 };

struct op_check {
	const char *what;  /* what messages call the problem; NULL: its first operator */
	double rtol, atol; /* as of reference_buffers_close() */
	/* The largest number of each tensor takes the place of each number for @rtol. */
	bool is_of_largest;
	/* A CPU also computes with channels last wherever that is possible. */
	bool has_layouts;
	bool may_refuse; /* a GPU may refuse it, too large for it */
	uint32_t count;  /* 0: the plan's largest and another one */
	/* Changes the random contents of what is read; NULL: nothing. */
	void (*fill)(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		     uint64_t *seed);
	/* Makes contents for which the task fails with -EDOM, if there are some; NULL: none. */
	bool (*spoil)(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *seed);
};

/*
 * Open the devices that @name stands for. Return: 0, or what main() is to return, having printed
 * why: 77 if there are none here, 2 if no devices have that name.
 */
int op_rig_open(const char *name);
void op_rig_close(void);
bool op_rig_is_gpu(void);
/* Is that the Vulkan executor's device, or the first level of a CPU? */
bool op_rig_is(const char *name);

/* Return: a random number of [from, to]; the same sequence in every run. */
uint32_t op_rig_pick(uint32_t from, uint32_t to);
/* The random numbers' state, for what takes one. */
uint64_t *op_rig_seed(void);

/* Constants of REFERENCE_ARENA for plans whose floats are of that type: numbers from -1 to 1. */
struct exec_arena *op_rig_arena(enum rbk_dtype floats);

/*
 * Compute @plan, which is freed, on all devices. A device refuses it if and only if it does not
 * take one of its types. Return: the number of devices that computed it.
 */
unsigned int op_check(struct plan *plan, const struct op_check *check);
