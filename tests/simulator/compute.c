/* SPDX-License-Identifier: MIT */
/* The computation of simulated devices: see compute.h */
#include "simulator/compute.h"

#include "simulator/machine.h"

enum { WORDS_PER_STEP = 8 };

/* The finaliser of MurmurHash3 (Appleby, public domain) */
static uint32_t mix(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x85ebca6b;
	x ^= x >> 13;
	x *= 0xc2b2ae35;
	return x ^ x >> 16;
}

uint32_t sim_salt(uint32_t salt, const uint32_t *words, uint64_t n_words)
{
	for (uint64_t i = 0; i < n_words; i += 1 + n_words / 16)
		salt = mix(salt + words[i]);
	return salt;
}

/* Compute word @at of operand @which. */
static uint32_t result(const struct sim_operand *operands, unsigned int n_operands, uint32_t salt,
		       unsigned int which, uint64_t at)
{
	const struct sim_operand *of = &operands[which];
	const uint64_t row = of->row_words ? at / of->row_words : 0;
	const uint64_t place = of->row_words ? at % of->row_words : at;
	uint32_t sum = mix(salt + 0x9e3779b9u * which + (uint32_t)place);

	for (unsigned int i = 0; i < n_operands; i++) {
		const struct sim_operand *operand = &operands[i];

		/* A new state depends on its own old value alone: others may be new already. */
		if (operand->is_written && !(i == which && operand->is_state))
			continue;
		sum = mix(sum + (operand->row_words ? operand->words[row * operand->row_words +
								     place % operand->row_words]
						    : operand->words[place % operand->n_words]));
	}
	return sum;
}

void sim_compute(const struct sim_operand *operands, unsigned int n_operands, uint32_t salt,
		 bool in_steps)
{
	for (unsigned int i = 0; i < n_operands; i++) {
		if (!operands[i].is_written)
			continue;
		for (uint64_t k = 0; k < operands[i].n_words; k++) {
			operands[i].words[k] = result(operands, n_operands, salt, i, k);
			if (in_steps && k % WORDS_PER_STEP == WORDS_PER_STEP - 1)
				sim_step();
		}
	}
}
