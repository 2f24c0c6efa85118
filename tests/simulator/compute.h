#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The computation of simulated devices, for them and for clients that check them
 *
 * Each result depends on every operand, on its place, and on the constants, whatever the plan's
 * operators are: a wrong address, an old version, a second update of a state, or a constant that is
 * not where it should be gives another result. A row of a result depends on the same row of
 * operands alone, since the broker may divide a task by rows.
 */
#include <stdbool.h>
#include <stdint.h>

struct sim_operand {
	uint32_t *words;
	uint64_t n_words;   /* at least 1 */
	uint64_t row_words; /* words of each row; 0: the tensor has no rows */
	bool is_written;    /* an output or a state */
	bool is_state;
};

/*
 * Compute a task. @salt stands for the constants. The results are stored one after the other, with
 * steps in between if @in_steps, so that the process can be killed within.
 */
void sim_compute(const struct sim_operand *operands, unsigned int n_operands, uint32_t salt,
		 bool in_steps);

/* Return the salt after a constant of @n words was added. */
uint32_t sim_salt(uint32_t salt, const uint32_t *words, uint64_t n_words);
