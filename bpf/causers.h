#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The table of causers of one record: space-saving, see run-queue-layout.h
 *
 * This file is compiled into the probes and into the tests. Its loops have a fixed bound and only
 * an index as a result, which the probes' verifier can follow.
 */
#include "run-queue-layout.h"

/* Identity of a causer: name and cgroup, not process, so that short-lived processes add up. */
struct run_queue_key {
	unsigned long long cgroup;
	unsigned long long comm[RUN_QUEUE_COMM_BYTES / 8]; /* padded with zeros */
};

/*
 * Find @key in @causers.
 * Return: its index; or RUN_QUEUE_CAUSERS, and *ret_least is the index of the entry to be replaced:
 * an unused one if there is one.
 */
static inline unsigned int run_queue_causer_find(const struct run_queue_causer *causers,
						 const struct run_queue_key *key,
						 unsigned int *ret_least)
{
	unsigned long long least_ns = ~0ull;
	unsigned int i, least = 0;

	for (i = 0; i < RUN_QUEUE_CAUSERS; i++) {
		const struct run_queue_causer *causer = &causers[i];
		const unsigned long long *comm = (const unsigned long long *)causer->comm;

		if (causer->cgroup == key->cgroup && comm[0] == key->comm[0] &&
		    comm[1] == key->comm[1])
			return i;
		if (causer->wait_ns < least_ns) {
			least_ns = causer->wait_ns;
			least = i;
		}
	}
	*ret_least = least;
	return RUN_QUEUE_CAUSERS;
}

/* A task that ran while others waited. */
struct run_queue_account {
	struct run_queue_key key;
	unsigned long long owner; /* RUN_QUEUE_OWNER() */
	unsigned long long node;  /* kernel's node of its cgroup */
	unsigned int process;
	unsigned int reserved;
};

/*
 * Charge @ns and @n_preemptions to @account, whose owner is @who now. A new causer takes over the
 * count of the entry that it replaces, as its error.
 * Return: the entry if it is new, for the caller to fill in cgroup_name; otherwise NULL.
 */
static inline struct run_queue_causer *run_queue_charge(struct run_queue_causer *causers,
							const struct run_queue_account *account,
							unsigned int who, unsigned long long ns,
							unsigned int n_preemptions)
{
	struct run_queue_causer *causer, *ret = 0;
	unsigned int i, least = 0;

	i = run_queue_causer_find(causers, &account->key, &least);
	/* The masks only inform the verifier. */
	if (i == RUN_QUEUE_CAUSERS) {
		unsigned long long *comm;

		ret = causer = &causers[least & (RUN_QUEUE_CAUSERS - 1)];
		comm = (unsigned long long *)causer->comm;
		causer->cgroup = account->key.cgroup;
		comm[0] = account->key.comm[0];
		comm[1] = account->key.comm[1];
		causer->overcount_ns = causer->wait_ns;
		causer->n_preemptions = 0;
		causer->process = account->process;
		causer->cgroup_name[0] = 0;
	} else {
		causer = &causers[i & (RUN_QUEUE_CAUSERS - 1)];
	}
	causer->who = who; /* the latest owner: which tasks are watched may change */
	causer->wait_ns += ns;
	causer->n_preemptions += n_preemptions;
	return ret;
}
