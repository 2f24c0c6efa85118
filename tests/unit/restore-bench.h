#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Two brokers, the second of which restores the ring of the first: for tests of what outlives a
 * broker
 *
 * A broker dies in that its areas are copied, and another one restores a ring from the copies. A
 * broker that is stepped is a process which executes one instruction at a time, and dies after each
 * one that changes memory which outlives it. For cmocka tests.
 */
#include "unit/dispatch-bench.h"

struct brokers {
	struct bench first, second;
};

/* Begin a broker without rings, which will restore one. */
void heir_begin(struct bench *bench, uint32_t n_devices);
void heir_end(struct bench *bench);
#define HEIR(name, n_devices) SCOPED(bench, name, heir_begin, heir_end, n_devices)

void brokers_begin(struct brokers *brokers, uint32_t n_devices);
void brokers_end(struct brokers *brokers);
#define BROKERS(name, n_devices) SCOPED(brokers, name, brokers_begin, brokers_end, n_devices)

/* Remove the ring of @bench. */
void remove_ring(struct bench *bench);

/* Have @heir restore the ring of @dying as it is now. */
void bequeath(const struct bench *dying, struct bench *heir);

/* The first broker dies now; the ring of the second one goes on from there. */
void die(struct brokers *brokers);

enum { MAX_ENTRIES = 24, FAILING = 13 /* user_data of a task that fails */ };

/* Entries with user_data 1, 2, ... and the results that they have, whoever dies */
struct script {
	void (*put)(struct bench *bench);
	/* what the client submits once the last broker is there, such as the rest of a chain */
	void (*put_rest)(struct bench *bench);
	/* runs a broker until nothing is left to do; NULL: run_all() */
	void (*run)(struct bench *bench);
	/* bytes of the arena that outlive a broker, from its beginning on, and their check */
	size_t arena_bytes;
	void (*check)(const uint8_t *arena, unsigned int n_stores);
	unsigned int n_entries;
	int res[MAX_ENTRIES + 1];
	bool is_for_sanitizers; /* a sanitized build steps it, too; see step() */
};

/* Run a ring until nothing is left to do. */
void run_all(struct bench *bench);

/* Check that the client loses nothing that is published. */
void check_published(const struct rbk_cq_area *cq);

/*
 * Let @dying run in a process of its own, one instruction after the other, and have @heir take its
 * ring over after each store to the completion area, or to the arena; in a sanitized build, unless
 * the script is for them, only before the first store and after the last.
 * Return: how often @heir took the ring over; 0: processes cannot be traced here, or a build with
 * ThreadSanitizer, which does nothing.
 */
unsigned int step(const struct script *script, struct bench *dying, struct bench *heir);
