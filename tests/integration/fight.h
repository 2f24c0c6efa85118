#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Three tenants that compete for one device's memory, in processes of their own
 *
 * The referee (test-fight.c), the fighters (fight-fighter.c), the watchers (fight-watcher.c) and
 * the lenders (fight-lender.c) share a mapping, which the referee makes and the others inherit. The
 * others are no cmocka tests: they record a failure with fight_fail(), which ends the process.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <ringbroker.h>

enum {
	FIGHT_TENANTS = 3,
	FIGHT_FIGHTERS = 5,
	FIGHT_LENDERS = 2,
	FIGHT_FIRST_LENDER = FIGHT_FIGHTERS + FIGHT_TENANTS, /* one watcher per tenant */
	FIGHT_MEMBERS = FIGHT_FIRST_LENDER + FIGHT_LENDERS,
	FIGHT_TEXT_BYTES = 512,
};

/* Limit in ns, before scaling, on each wait that must end. */
#define FIGHT_BOUND_NS 30000000000ull

struct fight_tenant {
	char name[16];
	uid_t uid;
	uint64_t max_bytes; /* vram-max in the mildest policy */
	uint64_t high_bytes;
	uint64_t reserve_bytes;
	/* size of each home plan, which fits into the reserve; 0: no reserve */
	uint32_t home_parts;
	/* the tenant has one fighter, which makes all requests of the tenant */
	bool is_alone;
};

/* Sums over all lives of a fighter, which alone writes them. */
struct fight_score {
	_Atomic uint64_t n_tasks;   /* tasks completed, of any kind */
	_Atomic uint64_t n_results; /* RUN tasks with result 0 */
	_Atomic uint64_t n_on_gpu;
	_Atomic uint64_t n_partitioned; /* of the results, those of several devices */
	_Atomic uint64_t n_checked;     /* their outputs were computed, by other than a card */
	_Atomic uint64_t n_refused;     /* tasks with -ENOMEM */
	_Atomic uint64_t n_cancelled;
	_Atomic uint64_t n_plans;
	_Atomic uint64_t n_plans_refused; /* plans rejected with -EDQUOT */
	_Atomic uint64_t n_claims;        /* claims of the reserve that were granted */
	_Atomic uint64_t longest_claim_ns;
	_Atomic uint64_t n_lives;
	_Atomic bool is_quiet; /* nothing is in flight or requested */
};

/* A watcher's last readings of its tenant's statistics. */
struct fight_sight {
	_Atomic uint64_t n_looks;
	_Atomic uint64_t used_bytes, gtt_bytes, max_bytes;
	_Atomic uint64_t most_bytes;
	_Atomic uint64_t n_over; /* readings above a maximum that had been lowered */
	_Atomic uint64_t n_evictions, n_returns, n_constraints;
};

/* A lender's requests, which it alone counts. */
struct fight_loan {
	_Atomic uint64_t n_opened, n_taken, n_given, n_refused;
	_Atomic bool is_quiet;
};

struct fight {
	char socket_path[96];
	uint64_t seed;
	bool is_card;     /* the GPU is a simulated card, which executes nothing */
	bool is_large;    /* it has gigabytes, and plans are of that size */
	bool has_graphs;  /* plans are cut into segments; there are lenders */
	bool may_be_lost; /* the card is reset now and then */
	unsigned int n_members;
	struct fight_tenant tenants[FIGHT_TENANTS];

	/* Written by the referee. */
	_Atomic bool stop, pause;

	_Atomic bool has_failed;
	char failure[FIGHT_TEXT_BYTES];
	struct fight_score scores[FIGHT_FIGHTERS];
	struct fight_sight sights[FIGHT_TENANTS];
	struct fight_loan loans[FIGHT_LENDERS];
};

/*
 * Return the tenant of a member; members from FIGHT_FIGHTERS on are watchers, those from
 * FIGHT_FIRST_LENDER on lenders.
 */
unsigned int fight_tenant_of(unsigned int member);

/* Record a failure for the referee to report, and end the process. */
void fight_fail(struct fight *fight, unsigned int member, const char *format, ...)
	__attribute__((format(printf, 3, 4), noreturn));

/* Connect; retry while other clients fill a limit. */
struct rbk *fight_connect(struct fight *fight, unsigned int member, const char *name);

/* Fight until the referee sets stop or the process is killed. Return: the exit status. */
int fight_fighter(struct fight *fight, unsigned int member);

/* Watch the tenant's memory until the referee sets stop. Return: the exit status. */
int fight_watcher(struct fight *fight, unsigned int member);

/*
 * Open a lease, make it larger and smaller and close it, until the referee sets stop.
 * Return: the exit status.
 */
int fight_lender(struct fight *fight, unsigned int member);
