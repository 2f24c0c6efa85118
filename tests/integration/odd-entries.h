#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Entries that are valid but for one field, and their results
 *
 * A client without the library that puts entries into a ring as fast as the broker takes them.
 * Three of four are valid entries with one field changed, to a boundary or to a random value. Each
 * must complete exactly once, with the result that abi.h documents: odd_entries_predict() is a
 * second implementation of that documentation, and shares no code with the broker. A scribbling
 * client changes entries and argument tables after publishing them: the results are then unknown,
 * but each entry still completes once.
 *
 * The oracle is that of a broker without a GPU. Making the objects fails the running test on
 * errors; odd_entries_step() returns a sentence instead.
 */
#include <stdbool.h>
#include <stdint.h>

#include "integration/raw.h"

enum {
	ODD_ENTRIES = 1024, /* entries of the ring */
	ODD_WINDOW = 2 * ODD_ENTRIES,
	ODD_PLANS = 4,
	ODD_ARENAS = 7,    /* ids of arenas, with 0 */
	ODD_TABLES_ID = 6, /* arena of argument tables, which no task writes */
	ODD_ERRORS = 134,
};

/* A plan, as the oracle knows it. */
struct odd_plan {
	uint32_t id;
	uint32_t max_count;
	uint32_t n_refs;
	uint64_t fixed_bytes, row_bytes; /* bytes of each tensor */
	uint64_t written;                /* bit i: reference i is written */
};

/* An arena, as the oracle knows it. Arenas with the same memory overlap. */
struct odd_arena {
	bool exists, immutable;
	uint64_t bytes;
	int memory;
};

struct odd_entries {
	int fd, memfd, tables_fd;
	uint8_t *base;
	uint8_t *tables;
	struct raw_ring ring;
	struct odd_plan plans[ODD_PLANS];
	struct odd_arena arenas[ODD_ARENAS];
	uint64_t seed;
	bool is_scribbling;
	/* The oracle's state of the open chain. */
	bool chain_open, chain_broken;
	uint64_t n_sent, n_done, n_changed;
	uint64_t n_results[ODD_ERRORS]; /* completions, indexed by -res */
	/* Indexed by sequence number modulo ODD_WINDOW. */
	int16_t wanted[ODD_WINDOW];
	uint8_t is_due[ODD_WINDOW];
	struct rbk_sqe sent[ODD_WINDOW];
	char failure[256]; /* last sentence of odd_entries_step() */
};

/*
 * Add arenas, plans and a ring to the new session @fd, which has RBK_FEAT_FIXED_ARENAS,
 * RBK_FEAT_AFTER and, unless @is_scribbling, RBK_FEAT_RESIDENCY. Takes @fd over.
 */
void odd_entries_begin(struct odd_entries *odd, int fd, uint64_t seed, bool is_scribbling);
void odd_entries_end(struct odd_entries *odd);

/* Make a valid entry. */
void odd_entries_make(struct odd_entries *odd, struct rbk_sqe *sqe);
/* Return a random number below @n. */
uint32_t odd_entries_pick(struct odd_entries *odd, uint32_t n);

/*
 * Put entries while there is room, at most @n_most, and take the completions that there are. The
 * number of completions is added to n_done.
 * Return: NULL, or a sentence about what went wrong, valid until the next call.
 */
const char *odd_entries_step(struct odd_entries *odd, uint64_t n_most);
