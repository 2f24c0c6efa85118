#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The plans that fighters make, and what comes out of them
 *
 * A plan reads parts of one sealed arena, at random places that may overlap, so that gigabytes of
 * constants take megabytes. All elements are small integers, and sums of them are exact on every
 * device.
 */
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker.h>

enum fight_kind {
	FIGHT_PRODUCTS, /* y = x W1 + x W2 + ... */
	FIGHT_SUMS,     /* y = x + c1 + c2 + ... */
	FIGHT_SOFTMAX,  /* y = softmax(x W1 + x W2 + ...) */
};

enum { FIGHT_MAX_PARTS = 192, FIGHT_ROWS = 2 };

struct fight_plan {
	enum fight_kind kind;
	uint32_t k, n; /* W is [k, n], c is [n] */
	uint32_t n_parts;
	uint64_t offsets[FIGHT_MAX_PARTS]; /* of W or c in the constants */
	bool is_pinned;                    /* runs on the GPU alone */
	struct rbk_plan *plan;             /* NULL: taken from the broker */
	uint32_t id;
	uint32_t n_in_flight; /* for who runs it */
	bool is_used;
	bool is_home;
};

/* Bytes of one part. */
uint64_t fight_part_bytes(const struct fight_plan *plan);
/* Bytes of one row of the input, and of the output. */
uint64_t fight_row_in_bytes(const struct fight_plan *plan);
uint64_t fight_row_out_bytes(const struct fight_plan *plan);

/* Makes the constants, and has a plan made of what kind, k, n, n_parts and offsets say. */
int fight_constants_new(struct rbk *rbk, uint64_t bytes, struct rbk_arena **ret,
			struct rbk_error *error);
int fight_plan_new(struct rbk *rbk, struct fight_plan *plan, const struct rbk_arena *constants,
		   struct rbk_error *error);

/* Inputs are the same for every task: element @i of row @row. */
float fight_input(uint32_t row, uint32_t i);

/*
 * Is the output of a task over @n_rows rows right? Some elements are looked at, others each time by
 * @random. Return: NULL, or what is wrong, static.
 */
const char *fight_check(const struct fight_plan *plan, const struct rbk_arena *constants,
			const float *y, uint32_t n_rows, uint64_t *random);
