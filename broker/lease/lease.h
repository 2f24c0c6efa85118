#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Leases: device memory for programs that drive a device themselves
 *
 * A lease is a charge in the ledger, of granted bytes, to its tenant. Its members are sessions.
 * Each member has credit, a part of the granted bytes, out of which its process allocates without
 * asking. An allocation that processes share is an object. In each tenant that has the object, one
 * lease pays for it out of its granted bytes. A lease ends with its last member.
 *
 * This module does the book-keeping only. Residency decides whether a device has room for more to
 * be granted, and sessions find out who is a member. Reactor thread only.
 *
 * Invariants:
 * - granted = the charge, and a part of leases.granted_bytes and tenant_leases.granted
 * - credited = the credit of all members + the objects that the lease pays for <= granted
 * - one lease of each tenant pays for an object of that tenant, and no member of the tenant reports
 * a larger size for it
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

#include "lease/beside.h"
#include "lease/parts.h"
#include "lease/resets.h"
#include "lease/sleep.h"
#include "lease/timeslice.h"
#include "tenant/account.h"
#include "util/cleanup.h"
#include "util/dmem.h"
#include "util/heap.h"
#include "util/list.h"

struct lease;
struct lease_object;
struct tenant;

enum {
	LEASE_E_QUOTA = 1,  /* the tenant's limit */
	LEASE_E_LACKING,    /* too little credit, or too few ungiven bytes in the lease */
	LEASE_E_EXISTS,     /* the member has named this object already */
	LEASE_E_UNKNOWN,    /* the member has not named this object */
	LEASE_E_HOST_QUOTA, /* account_explain() says which */
	LEASE_E_TAKEN,      /* another lease has the cgroup */
};

enum {
	LEASE_NAME_BYTES = 64,
	LEASE_MAX_HOLDINGS = 4096, /* objects of a member */
	LEASE_MAX_WAITS = 1024,    /* waits of a tenant for a device; the caller enforces it */
};

/* Longest wait for room. */
#define LEASE_MAX_WAIT_NS (3600ull * 1000 * 1000 * 1000)

/* A search for deadlocked waits: see lease-wait.c. */
struct lease_search {
	uint8_t device;
	uint64_t usable_bytes, bytes; /* usable by all leases; held by the leases in the search */
	struct heap_node *leases;     /* leases that may be served, by lacking_bytes */
	struct list_node *at;         /* wait to be visited next, from the newest to the oldest */
};

/* A lease in the search. */
struct lease_thought {
	struct heap_node node;
	struct heap_node **heap;    /* heap that node is in; NULL: none */
	struct heap_node *unserved; /* struct lease_wait, by least_bytes */
	uint32_t n_keeping;         /* members with unserved waits */
	uint64_t credit_bytes;      /* credit of these members */
	uint64_t kept_bytes, bytes; /* held by these members; held by the lease */
	uint64_t lacking_bytes;     /* bytes that the smallest request needs beyond bytes */
};

/* Sums over a tenant's leases, those that have ended included. */
struct tenant_shared {
	uint64_t used_ns, waited_ns, n_overdue; /* as struct lease_timeslice */
	uint64_t parts[PARTS_COUNTS];
	/* programs whose device was reset, for work of their lease or not */
	uint64_t n_lost_own, n_lost;
	uint64_t beside_ns; /* beside the timeslices of leases, see lease_beside.total_ns */
};

/* The lease module's record of a tenant that has or had leases. */
struct tenant_leases {
	struct list_node link; /* in leases.tenants if n_all > 0 */
	struct tenant *tenant;
	uint32_t n_all;                       /* leases on all devices */
	uint32_t n[RBK_MAX_DEVICES];          /* leases, by device */
	uint32_t n_waits[RBK_MAX_DEVICES];    /* waits for room */
	uint64_t granted[RBK_MAX_DEVICES];    /* VRAM bytes granted to the leases */
	uint64_t of_reserve[RBK_MAX_DEVICES]; /* granted bytes within the tenant's reserve */
	uint64_t thought_bytes;               /* sum of lease_thought.bytes */
	struct heap_node *thought_leases; /* leases for which the tenant has no room, in a search */
	/* timeslice.c's: leases that share the device, the tenant's tag, and the clock of its
	 * leases */
	uint32_t n_sharing[RBK_MAX_DEVICES];
	uint64_t timeslice_ns[RBK_MAX_DEVICES];
	uint64_t plans_used_ns[RBK_MAX_DEVICES]; /* what the tenant's plans had used when looked */
	uint64_t plans_charged_ns[RBK_MAX_DEVICES]; /* when they had last used something */
	struct timeslice_clock timeslice_clocks[RBK_MAX_DEVICES];
	struct tenant_shared shared;
	/*
	 * Residency's: number of the last computation of part_bytes, and bytes that each lease may
	 * keep.
	 */
	uint64_t part_number, part_bytes;
};
/* Return the record of a tenant; all zero if the tenant never had leases. */
const struct tenant_leases *leases_of(const struct tenant *tenant);

/* Make the record of a tenant, if it has none. Return: 0 or -ENOMEM. */
int leases_know(struct tenant *tenant);

/* All leases of the broker. */
struct leases {
	struct list_node all;
	struct list_node tenants;                /* struct tenant_leases with n_all > 0 */
	struct list_node waits[RBK_MAX_DEVICES]; /* struct lease_wait, oldest first */
	uint32_t n_waits[RBK_MAX_DEVICES];       /* entries of waits */
	uint64_t granted_bytes[RBK_MAX_DEVICES]; /* bytes granted to all leases of a device */
	uint32_t n, next_number;
	/* The kernel's names of the devices' memory regions (util/dmem.h); empty: not known. */
	char dmem_memory[RBK_MAX_DEVICES][DMEM_REGION_BYTES];
	uint64_t of_reserves_bytes[RBK_MAX_DEVICES]; /* granted within tenants' reserves */
	uint32_t n_tenants[RBK_MAX_DEVICES]; /* tenants that have or want leases of a device */
	uint64_t n_changes; /* changes of grants, of credit and of members' reports */
	uint64_t n_looks;   /* waits and leases visited by passes and searches; for tests */
	/*
	 * Hash table of objects by tenant, device and inode. Clients choose the keys, so its seed
	 * is secret.
	 */
	struct lease_object **buckets;
	uint32_t n_buckets, n_objects;
	uint64_t seed;
	struct lease_search search;
	struct timeslices timeslices;
	struct resets resets;
	struct beside_users beside;
	/*
	 * Called when a lease has got its cgroup, or has ended with it and is no longer in @all;
	 * NULL: not called.
	 */
	void (*cgroup_changed)(void *context, const struct lease *lease);
	void *cgroup_context;
};

struct lease {
	struct list_node link; /* in leases.all */
	struct leases *leases;
	struct tenant *tenant; /* counted */
	uid_t uid;
	pid_t pid; /* process that opened the lease */
	uint32_t number;
	uint32_t restored_number; /* number under a broker that ended; 0: a new lease */
	uint8_t device;
	uint64_t opened_ns; /* set by the owner, for listings */
	char name[LEASE_NAME_BYTES];

	uint64_t min_bytes, wish_bytes, max_bytes;
	uint64_t limit_bytes;   /* bound of growth: max_bytes, or the last lease_resize() */
	uint64_t resized_bytes; /* last lease_resize(); 0: none */
	uint64_t allowed_bytes; /* bytes that its tenant's limits leave to it */
	uint64_t credited_bytes, object_bytes; /* object_bytes is a part of credited_bytes */
	struct charge charge;                  /* granted bytes */

	struct list_node members;
	uint32_t n_members;
	struct lease_timeslice timeslice;
	struct lease_parts parts;
	struct lease_beside beside;
	struct lease_sleep sleep;
	uint32_t n_waits; /* entries of leases.waits */
	/* Residency's: number of the last pass in which a wait of the lease found no room. */
	uint64_t blocked_number;
	struct lease_thought thought;

	/* Sums of the members' reports. */
	uint64_t used_bytes, extra_bytes, peak_bytes;
	uint64_t peak_credited_bytes; /* most bytes credited so far, not a report */
	uint64_t n_objects, n_refused;
	uint64_t waiting_bytes; /* bytes that members wait for */

	/* The kernel's figures for the members' processes; is_seen: they are known. */
	bool is_seen;
	uint64_t seen_bytes;
	/*
	 * The time of the device that its programs used, as the kernel tells: since it was opened,
	 * and as a percentage between the last two looks, the later of which is busy_at_ns.
	 */
	bool has_busy; /* it is known */
	uint64_t busy_ns, busy_percent, busy_at_ns;
	bool is_over;           /* more than was granted and than drivers may need: see audit.h */
	uint64_t audited_bytes; /* most bytes granted since the last audit */

	/*
	 * The folder of the cgroup of its programs, members or not. The folder belongs to the
	 * lease's user. A process in it of another user or tenant is not the lease's.
	 */
	int cgroup_fd;      /* -1: not known */
	uint64_t cgroup_id; /* the kernel's number; 0: not known */
	struct charge cgroup_charge;
	bool has_outside;   /* a member's process uses the device outside of the cgroup */
	bool is_capped;     /* the kernel limits all its processes, as of the last look */
	uint64_t cap_round; /* number of the owner's round in which it was looked at last */

	struct rbk_lease_page *page; /* the owner's, read by members; NULL: none */
	void *owner;
};

/* A member of a lease, embedded by its owner. */
struct lease_member {
	struct list_node link; /* in lease.members */
	struct lease *lease;   /* NULL: no member */
	uint64_t credit_bytes;
	struct list_node holdings; /* objects that the member has named */
	uint32_t n_holdings;
	struct member_timeslice timeslice;
	struct member_parts parts;
	struct member_sleep sleep;
	uint32_t n_waits;    /* entries of leases.waits */
	uint32_t n_unserved; /* see lease-wait.c */
	pid_t pid;
	/* CLOCK_BOOTTIME, set by the owner; 0: pid does not identify the process */
	uint64_t joined_ns;
	bool is_inside;                   /* in the lease's cgroup, as of the last look */
	uint64_t used_bytes, extra_bytes; /* reported by the member */
	uint32_t n_objects, n_refused;    /* reported by the member */
	/* Set by the owner for a member that came back from a broker that ended: audit_confirm().
	 */
	uint64_t restored_ns;     /* clock_now_ns() of its return; 0: did not come back */
	uint64_t corrected_bytes; /* part of its credit that it did not report, but uses */
	bool is_corrected;        /* a correction was made and logged */
};

/*
 * A request that waits until its lease has more bytes to give, in the order of the requests.
 * Embedded by the requester.
 */
struct lease_wait {
	struct list_node link; /* in leases.waits */
	struct lease *lease;
	struct lease_member *member; /* member to be credited; NULL: the lease is being opened */
	uint64_t least_bytes, want_bytes; /* ungiven bytes to obtain; when opening, granted bytes */
	bool is_served;                   /* see lease-wait.c */
	struct heap_node thought_node;    /* see lease-wait.c */

	/* Private to residency. */
	uint64_t until_ns;      /* end of the wait, if no plan is leaving for it */
	uint64_t grace_ns;      /* end of the wait otherwise */
	uint64_t awaited_bytes; /* bytes set aside for it while plans are being evicted */
	bool is_patient;        /* waits even if no plan is leaving for it */
	uint64_t failed_number; /* last round in which there was no room for it */
	/*
	 * As of the last look: bytes that earlier waits leave to this one, and bytes that they
	 * want. After a refusal available_bytes is the number of bytes that were available.
	 */
	uint64_t available_bytes, ahead_bytes;
	/*
	 * @res is 0, -ENOMEM, -ETIMEDOUT or -EDEADLK. The callback may free the wait, but no lease
	 * and no other wait.
	 */
	void (*done)(struct lease_wait *wait, int res);
};

/* Return the wait whose link is @node. */
static inline struct lease_wait *lease_wait_of(struct list_node *node)
{
	return container_of(node, struct lease_wait, link);
}

/* Return: 0 or -ENOMEM. */
int leases_init(struct leases *leases);
/* No lease may be left. */
void leases_deinit(struct leases *leases);

struct lease_about {
	struct tenant *tenant;
	uid_t uid;
	pid_t pid;
	uint8_t device;
	uint32_t restored_number; /* 0: a new lease */
	uint64_t min_bytes, wish_bytes, max_bytes;
	const char *name; /* printable */
};
/* Make a lease without granted bytes and without members. Return: 0 or -ENOMEM. */
int lease_new(struct leases *leases, const struct lease_about *about, struct lease **ret);
/* Free a lease without members and waits, and give back its granted bytes. Return: NULL. */
struct lease *lease_free(struct lease *lease);

/* Return the lease of @tenant and @uid that had a number under a broker that ended, or NULL. */
struct lease *lease_find_restored(const struct leases *leases, uint32_t number,
				  const struct tenant *tenant, uid_t uid);
/*
 * Return the lease of @tenant and @uid with a number; otherwise lease_find_restored(); otherwise
 * the lease of others with the number. NULL: there is none.
 */
struct lease *lease_find(const struct leases *leases, uint32_t number, const struct tenant *tenant,
			 uid_t uid);

static inline uint64_t lease_granted(const struct lease *lease)
{
	return lease->charge.amount;
}

/* Return the granted bytes that are credited to no member and pay for no object. */
static inline uint64_t lease_ungiven(const struct lease *lease)
{
	return lease->charge.amount - lease->credited_bytes;
}

/*
 * Set the granted bytes to @bytes, which must not be below the credited bytes. With @is_forced no
 * limit applies, because the memory is in use already.
 * Return: 0; LEASE_E_QUOTA: nothing changed.
 */
int lease_grant(struct lease *lease, uint64_t bytes, bool is_forced);
/* Give back ungiven bytes beyond the wish, or all of a lease that sleeps. Return: the bytes given
 * back. */
uint64_t lease_trim(struct lease *lease);
/*
 * Set another wish, not above the maximum. The wish also bounds growth, and ungiven bytes beyond it
 * are given back.
 */
void lease_resize(struct lease *lease, uint64_t wish_bytes);
/* Count the bytes granted within reserves anew, after reserves may have changed. */
void leases_count_reserves(struct leases *leases, uint8_t device);
/* Set the bytes that its tenant's limits leave to a lease. */
void lease_allow(struct lease *lease, uint64_t bytes);
/* Return true if the lease has more than its limits allow by now. */
bool lease_is_shrinking(const struct lease *lease);

/*
 * Return the ungiven bytes of a tenant's restored leases on a device. A restored lease grows to its
 * wish at once, before all members have told how much they hold.
 */
uint64_t leases_restored_ungiven(const struct leases *leases, const struct tenant *tenant,
				 uint8_t device);
/*
 * Give back up to @bytes of the ungiven bytes of all restored leases of a tenant on a device,
 * except those of @but, which may be NULL.
 */
void leases_take_back(struct leases *leases, const struct lease *but, const struct tenant *tenant,
		      uint8_t device, uint64_t bytes);

/*
 * Set the cgroup of a lease's programs. *fd is the cgroup's folder; it is taken over and set to -1,
 * unless the lease has this cgroup already.
 * Return: 0; LEASE_E_EXISTS: the lease has another cgroup; LEASE_E_TAKEN: another lease of the
 * device has this cgroup; LEASE_E_HOST_QUOTA.
 */
int lease_set_cgroup(struct lease *lease, int *fd, uint64_t id);
/* Return the lease of a device that has a cgroup. NULL: there is none. */
struct lease *lease_of_cgroup(const struct leases *leases, uint8_t device, uint64_t id);

void lease_join(struct lease *lease, struct lease_member *member, pid_t pid);
/*
 * Give back a member's credit and objects, and remove it from its lease. A member of no lease is
 * accepted.
 */
void lease_leave(struct lease_member *member);
/* Move bytes from the lease to the member's credit, or back. Return: 0; LEASE_E_LACKING. */
int lease_take(struct lease_member *member, uint64_t bytes);
int lease_give(struct lease_member *member, uint64_t bytes);

/* Return the credit that the member knows of and may give back. */
static inline uint64_t lease_own_credit(const struct lease_member *member)
{
	return member->credit_bytes - member->corrected_bytes;
}
/*
 * Set the bytes of device memory that a member uses beyond its own credit. They are credited to it
 * whatever the limits, up to the lease's maximum. Fewer bytes than before, or 0, give the
 * difference back.
 */
void lease_correct(struct lease_member *member, uint64_t bytes);

/* A member's report of its use. */
struct lease_use {
	uint64_t used_bytes, extra_bytes;
	uint32_t n_objects, n_refused;
	/* the most of used_bytes + extra_bytes since the last report; 0: as now */
	uint64_t peak_bytes;
};
void lease_report(struct lease_member *member, const struct lease_use *use);

/*
 * Return the ungiven bytes that lease_object_add() needs beside the member's credit; 0: another
 * holder pays for the object.
 */
uint64_t lease_object_cost(const struct lease_member *member, uint64_t dev, uint64_t ino,
			   uint64_t bytes, uint64_t from_credit_bytes);
/*
 * Add an object of @bytes to a member, whose lease takes @from_credit_bytes of its credit back. The
 * lease pays for the object if no holder does, or if the paying holder reported a smaller size.
 * *ret_bytes is the number of bytes that it pays.
 * Return: 0; LEASE_E_LACKING, LEASE_E_EXISTS, LEASE_E_HOST_QUOTA or -ENOMEM: nothing changed.
 */
int lease_object_add(struct lease_member *member, uint64_t dev, uint64_t ino, uint64_t bytes,
		     uint64_t from_credit_bytes, uint64_t *ret_bytes);
/*
 * Remove an object from a member. If the member's lease paid for the object, the lease of another
 * holder of the tenant pays from now on. That lease gets the bytes that it lacks from this lease.
 * Return: 0; LEASE_E_UNKNOWN.
 */
int lease_object_drop(struct lease_member *member, uint64_t dev, uint64_t ino);

/* Add a wait to the end of the waits for its lease's device; remove it. */
void lease_wait_begin(struct lease_wait *wait);
void lease_wait_end(struct lease_wait *wait);
/*
 * Return the newest of the waits on a device that wait only for each other, given that the leases
 * of the device can have at most @usable_bytes together. NULL: there is none. The time is about
 * proportional to the number of waits.
 */
struct lease_wait *lease_find_deadlocked(struct leases *leases, uint8_t device,
					 uint64_t usable_bytes);
/*
 * Return the next such wait, provided that the last one has ended and nothing else has changed.
 * NULL: none is left.
 */
struct lease_wait *lease_find_next_deadlocked(struct leases *leases);
/* Return true if the wait could not be served even if it were alone, with at most @usable_bytes. */
bool lease_wait_is_hopeless(const struct lease_wait *wait, uint64_t usable_bytes);
/*
 * Return the bytes that must be granted to its lease for the wait; lease_wait_goal(): those that
 * the wait aims at.
 */
static inline uint64_t lease_wait_need(const struct lease_wait *wait)
{
	return wait->lease->credited_bytes + wait->least_bytes;
}
static inline uint64_t lease_wait_goal(const struct lease_wait *wait)
{
	uint64_t goal = wait->lease->credited_bytes + wait->want_bytes;

	return goal < wait->lease->limit_bytes ? goal : wait->lease->limit_bytes;
}

/* Drop all objects of a member, for lease_leave(). */
void lease_objects_drop(struct lease_member *member);
/* Publish the lease's figures on its page, for the members. */
void lease_show(const struct lease *lease);
/* The same for all leases, after limits of tenants have changed. */
void leases_show(const struct leases *leases);

DEFINE_CLEANUP(struct lease *, lease_free)
