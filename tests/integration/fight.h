#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Three tenants who fight for one device's memory, in processes of their own
 *
 * What the referee (test-fight.c), the fighters (fight-fighter.c) and the watchers
 * (fight-watcher.c) share: a mapping that the referee makes and the others inherit. Fighters and
 * watchers are no cmocka tests: what they find wrong they write down with fight_fail() and end.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <ringbroker.h>

enum {
	FIGHT_TENANTS = 3,
	FIGHT_FIGHTERS = 5,
	FIGHT_MEMBERS = FIGHT_FIGHTERS + FIGHT_TENANTS, /* a watcher each */
	FIGHT_TEXT_BYTES = 512,
};

/* Longer than that nothing may take that is not allowed to take for ever. Before scaling. */
#define FIGHT_BOUND_NS 30000000000ull

struct fight_tenant {
	char name[16];
	uid_t uid;
	uint64_t max_bytes; /* in the mildest of the policies */
	uint64_t high_bytes;
	uint64_t reserve_bytes;
	uint32_t home_parts; /* of the plans that stay within the reserve; 0: it has none */
	bool is_alone; /* it has one fighter, so that what that asks for is all the tenant asks */
};

/* Sums over all lives. Written by the fighter alone. */
struct fight_score {
	_Atomic uint64_t n_tasks;   /* completed, of any kind */
	_Atomic uint64_t n_results; /* RUN with 0, checked where results are */
	_Atomic uint64_t n_on_gpu;
	_Atomic uint64_t n_refused; /* -ENOMEM */
	_Atomic uint64_t n_cancelled;
	_Atomic uint64_t n_plans;
	_Atomic uint64_t n_plans_refused; /* -EDQUOT */
	_Atomic uint64_t n_claims;        /* of the reserve, granted */
	_Atomic uint64_t longest_claim_ns;
	_Atomic uint64_t n_lives;
	_Atomic bool is_quiet; /* has nothing in flight, asks for nothing */
};

/* What a watcher saw last. */
struct fight_sight {
	_Atomic uint64_t n_looks;
	_Atomic uint64_t used_bytes, gtt_bytes, max_bytes;
	_Atomic uint64_t most_bytes;
	_Atomic uint64_t n_over; /* looks that saw more than a maximum that was lowered */
	_Atomic uint64_t n_evictions, n_returns, n_constraints;
};

struct fight {
	char socket_path[96];
	uint64_t seed;
	bool is_card; /* simulated: it executes nothing */
	struct fight_tenant tenants[FIGHT_TENANTS];

	/* Written by the referee. */
	_Atomic bool stop, pause;

	_Atomic bool has_failed;
	char failure[FIGHT_TEXT_BYTES];
	struct fight_score scores[FIGHT_FIGHTERS];
	struct fight_sight sights[FIGHT_TENANTS];
};

/* The tenant that a member belongs to; members above FIGHT_FIGHTERS are watchers. */
unsigned int fight_tenant_of(unsigned int member);

/* Writes down what is wrong, for the referee to say, and ends the process. */
void fight_fail(struct fight *fight, unsigned int member, const char *format, ...)
	__attribute__((format(printf, 3, 4), noreturn));

/* Connects, until that succeeds: there may be limits that others fill. */
struct rbk *fight_connect(struct fight *fight, unsigned int member, const char *name);

/* Fights until the referee says stop, or it is killed. Return: status to exit with. */
int fight_fighter(struct fight *fight, unsigned int member);

/* Looks at what its tenant holds until the referee says stop. Return: likewise. */
int fight_watcher(struct fight *fight, unsigned int member);
