#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Accesses to memory, from weak-calls.c to weak-memory.c
 *
 * Outside of executions, and on the stack of the thread that runs, they are those of the processor.
 * @bytes is at most 8 for atomic accesses; @order is one of __ATOMIC_*.
 */
#include <stdbool.h>
#include <stdint.h>

uint64_t weak_load(const void *address, unsigned int bytes, int order);
void weak_store(void *address, unsigned int bytes, uint64_t value, int order);
/* Return: the value before. */
uint64_t weak_exchange_n(void *address, unsigned int bytes, uint64_t value, int order);
/* Return: the value before. */
enum weak_fetch { WEAK_FETCH_ADD, WEAK_FETCH_AND, WEAK_FETCH_OR };
uint64_t weak_fetch(void *address, unsigned int bytes, enum weak_fetch how, uint64_t operand,
		    int order);
/* Return: whether @value was stored; if not, *expected is the value that was found. */
bool weak_compare_exchange(void *address, unsigned int bytes, void *expected, uint64_t value,
			   int order, int failure_order);
void weak_fence(int order);

/* An access that is not atomic */
void weak_plain(const void *address, unsigned int bytes, bool is_write);
