#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans of fighters, and the expected results
 *
 * A plan reads parts of one sealed arena, at random offsets that may overlap. A few megabytes of
 * constants thereby fill gigabytes of device memory. All elements are small integers, so their sums
 * are exact on every device.
 */
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker.h>

enum fight_kind {
	FIGHT_PRODUCTS, /* y = x W1 + x W2 + ... */
	FIGHT_SUMS,     /* y = x + c1 + c2 + ... */
	FIGHT_SOFTMAX,  /* y = softmax(x W1 + x W2 + ...) */
};

enum { FIGHT_MAX_PARTS = 384, FIGHT_ROWS = 2 };

struct fight_plan {
	enum fight_kind kind;
	uint32_t k, n; /* W is [k, n], c is [n] */
	uint32_t n_parts;
	uint64_t offsets[FIGHT_MAX_PARTS]; /* of W or c in the constants, in bytes */
	bool is_pinned;                    /* runs on the GPU only */
	struct rbk_plan *plan;             /* NULL: removed from the broker */
	uint32_t id;
	uint32_t n_in_flight; /* maintained by the fighter */
	bool is_used;
	bool is_home;
};

/* Return the bytes of one part. */
uint64_t fight_part_bytes(const struct fight_plan *plan);
/* Return the bytes of one row of the input or of the output. */
uint64_t fight_row_in_bytes(const struct fight_plan *plan);
uint64_t fight_row_out_bytes(const struct fight_plan *plan);

/* Make the sealed constants; make a plan from @plan's kind, k, n, n_parts and offsets. */
int fight_constants_new(struct rbk *rbk, uint64_t bytes, struct rbk_arena **ret,
			struct rbk_error *error);
int fight_plan_new(struct rbk *rbk, struct fight_plan *plan, const struct rbk_arena *constants,
		   struct rbk_error *error);

/* Return element @i of row @row of the input, which is the same for every task. */
float fight_input(uint32_t row, uint32_t i);

/*
 * Check the output of a task over @n_rows rows. Only some elements are checked; @random selects
 * them.
 * Return: NULL if they are right, else a static description of the error.
 */
const char *fight_check(const struct fight_plan *plan, const struct rbk_arena *constants,
			const float *y, uint32_t n_rows, uint64_t *random);
