#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Leases: device memory for programs that drive a device themselves
 *
 * A lease is a charge in the ledger, of granted bytes, to its tenant. Members are sessions; each
 * has credit, which is a part of what is granted and out of which its process allocates without
 * asking. What processes share is an object, paid for by one lease of each tenant that has it, out
 * of what it was granted. A lease is gone with its last member.
 *
 * Here is the book-keeping: whether there is room on a device for more to be granted is asked of
 * residency, who is a member is found out by sessions. Reactor thread only.
 *
 * Invariants: granted = the charge, and a part of leases.granted_bytes and tenant_leases.granted;
 * credited = the credit of all members + the objects that the lease pays for <= granted; of each
 * object of a tenant one lease pays, and no member of that tenant that has the object says that the
 * object is larger.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

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
	LEASE_E_LACKING,    /* more than there is: of credit, or ungiven in the lease */
	LEASE_E_EXISTS,     /* the member has named this object */
	LEASE_E_UNKNOWN,    /* it has not */
	LEASE_E_HOST_QUOTA, /* account_explain() says which */
	LEASE_E_TAKEN,      /* the cgroup is another lease's */
};

enum {
	LEASE_NAME_BYTES = 64,
	LEASE_MAX_HOLDINGS = 4096, /* objects of a member */
	LEASE_MAX_WAITS = 1024,    /* of a tenant for a device: whoever asks sees to that */
};

/* Nobody waits longer for room, whatever he asks for. */
#define LEASE_MAX_WAIT_NS (3600ull * 1000 * 1000 * 1000)

/* A search for those who wait for each other: see lease-wait.c. */
struct lease_search {
	uint8_t device;
	uint64_t usable_bytes, bytes; /* what leases have in thought */
	struct heap_node *leases;     /* that may be served, by what they lack */
	struct list_node *at;         /* the wait that is looked at next, newest first */
};

/* The search's notes about a lease. */
struct lease_thought {
	struct heap_node node;
	struct heap_node **heap;    /* that it is in; NULL: none */
	struct heap_node *unserved; /* struct lease_wait, by least_bytes */
	uint32_t n_keeping;         /* members who wait, */
	uint64_t credit_bytes;      /* and their credit */
	uint64_t kept_bytes, bytes; /* of them, and of the lease */
	uint64_t lacking_bytes;     /* beside that, for the smallest request */
};

/* A tenant that has or had leases, as the lease room knows it. */
struct tenant_leases {
	struct list_node link; /* in leases.tenants if n_all > 0 */
	struct tenant *tenant;
	uint32_t n_all;                       /* leases, on all devices */
	uint32_t n[RBK_MAX_DEVICES];          /* likewise, */
	uint32_t n_waits[RBK_MAX_DEVICES];    /* requests that wait for room for them, */
	uint64_t granted[RBK_MAX_DEVICES];    /* bytes of VRAM that they were granted, */
	uint64_t of_reserve[RBK_MAX_DEVICES]; /* and of these, within the tenant's reserve */
	uint64_t thought_bytes;               /* see lease-wait.c, */
	struct heap_node *thought_leases;     /* likewise: those for which it has no room */
	/* Residency's: what each may keep, and when that was found. */
	uint64_t part_number, part_bytes;
};
/* The record of a tenant that never had any: all zero. */
const struct tenant_leases *leases_of(const struct tenant *tenant);

/* All leases of the broker. */
struct leases {
	struct list_node all;
	struct list_node tenants;                /* struct tenant_leases of those who have some */
	struct list_node waits[RBK_MAX_DEVICES]; /* struct lease_wait, oldest first */
	uint32_t n_waits[RBK_MAX_DEVICES];       /* in them */
	uint64_t granted_bytes[RBK_MAX_DEVICES]; /* by all leases of a device */
	uint32_t n, next_number;
	/* The kernel calls the regions of a device's memory so (util/dmem.h); empty: not known. */
	char dmem_memory[RBK_MAX_DEVICES][DMEM_REGION_BYTES];
	uint64_t of_reserves_bytes[RBK_MAX_DEVICES]; /* granted within their tenants' reserves */
	uint32_t n_tenants[RBK_MAX_DEVICES];         /* who have leases of a device, or want one */
	uint64_t n_changes; /* of what members have, or say of themselves */
	uint64_t n_looks;   /* at waits and leases, to see who waits for whom; for tests */
	/* Objects by what they are, with a secret seed: clients choose that. */
	struct lease_object **buckets;
	uint32_t n_buckets, n_objects;
	uint64_t seed;
	struct lease_search search;
	/*
	 * A lease has its cgroup from now on, or, no more in @all, has ended with it; NULL: nobody
	 * wants to know.
	 */
	void (*cgroup_changed)(void *context, const struct lease *lease);
	void *cgroup_context;
};

struct lease {
	struct list_node link; /* in leases.all */
	struct leases *leases;
	struct tenant *tenant; /* counted */
	uid_t uid;
	pid_t pid; /* of who opened it */
	uint32_t number;
	uint32_t restored_number; /* that it had of a broker that ended; 0: it is new */
	uint8_t device;
	uint64_t opened_ns; /* the owner's, for listings */
	char name[LEASE_NAME_BYTES];

	uint64_t min_bytes, wish_bytes, max_bytes;
	uint64_t limit_bytes;   /* it grows no further: max_bytes, or what was wished since then */
	uint64_t allowed_bytes; /* what its tenant's limits leave it */
	uint64_t credited_bytes, object_bytes; /* the latter a part of the former */
	struct charge charge;                  /* what is granted */

	struct list_node members;
	uint32_t n_members;
	uint32_t n_waits;        /* in leases.waits */
	uint64_t blocked_number; /* residency's: of the last pass in which one had to stay */
	struct lease_thought thought;

	/* What members say, all together. */
	uint64_t used_bytes, extra_bytes, peak_bytes;
	uint64_t peak_credited_bytes; /* not what they say: what they had */
	uint64_t n_objects, n_refused;
	uint64_t waiting_bytes; /* that they wait for */

	/* What the kernel says of their processes, if anybody knows. */
	bool is_seen;
	uint64_t seen_bytes;
	bool is_over;           /* more than was granted, and its drivers may need: see audit.h */
	uint64_t audited_bytes; /* the most that was granted since the last audit */

	/*
	 * The folder of the cgroup that its programs are in, members or not, which belongs to the
	 * lease's user: whoever is in there and not the user's and the tenant's is not the lease's.
	 */
	int cgroup_fd;      /* -1: none is known */
	uint64_t cgroup_id; /* the kernel's; 0 */
	struct charge cgroup_charge;
	bool has_outside;   /* a member's process uses the device, and is not in there */
	bool is_capped;     /* the kernel lets nobody of it have more, as of the last look, */
	uint64_t cap_round; /* which was in this round of its owner's */

	struct rbk_lease_page *page; /* the owner's: members read it; NULL: there is none */
	void *owner;
};

/* Embedded by who has it. */
struct lease_member {
	struct list_node link; /* in lease.members */
	struct lease *lease;   /* NULL: of none */
	uint64_t credit_bytes;
	struct list_node holdings; /* objects that it has named */
	uint32_t n_holdings;
	uint32_t n_waits;    /* in leases.waits */
	uint32_t n_unserved; /* see lease-wait.c */
	pid_t pid;
	uint64_t
		joined_ns; /* CLOCK_BOOTTIME, the owner's; 0: its process is not known by its pid */
	bool is_inside;    /* the lease's cgroup, as of the last look */
	uint64_t used_bytes, extra_bytes; /* as it says, */
	uint32_t n_objects, n_refused;    /* likewise */
	/* Of one that came back from a broker that ended: see audit_confirm(). */
	uint64_t restored_ns;     /* when, by clock_now_ns(), the owner's; 0: it did not */
	uint64_t corrected_bytes; /* of its credit, what it did not tell, and has */
	bool is_corrected;        /* it has been, and that was said */
};

/*
 * Somebody who waits for a lease to have more to give, in the order of asking. Embedded by who
 * asks.
 */
struct lease_wait {
	struct list_node link; /* in leases.waits */
	struct lease *lease;
	struct lease_member *member; /* whose credit it will be; NULL: the lease is being opened */
	uint64_t least_bytes, want_bytes; /* to be ungiven, or opening: granted */
	bool is_served;                   /* see lease-wait.c */
	struct heap_node thought_node;    /* likewise */

	/* Residency's. */
	uint64_t until_ns;      /* gives up then, or if others leave for it, */
	uint64_t grace_ns;      /* then */
	uint64_t awaited_bytes; /* set aside for it, from which others are leaving */
	bool is_patient;        /* it waits also if nobody leaves */
	uint64_t failed_number; /* of the last round in which there was no room for it */
	/*
	 * Bytes that earlier waits left to this one, and wanted, at the last look; once this wait
	 * is refused, available_bytes is what there was for it.
	 */
	uint64_t available_bytes, ahead_bytes;
	/* 0; -ENOMEM, -ETIMEDOUT, -EDEADLK. May free the wait, and nothing else of leases. */
	void (*done)(struct lease_wait *wait, int res);
};

/* Return: 0 or -ENOMEM. */
int leases_init(struct leases *leases);
/* None may be left. */
void leases_deinit(struct leases *leases);

struct lease_about {
	struct tenant *tenant;
	uid_t uid;
	pid_t pid;
	uint8_t device;
	uint32_t restored_number; /* 0: it is new */
	uint64_t min_bytes, wish_bytes, max_bytes;
	const char *name; /* printable */
};
/* Nothing is granted yet, and nobody is a member. Return: 0 or -ENOMEM. */
int lease_new(struct leases *leases, const struct lease_about *about, struct lease **ret);
/* Nobody may be a member or wait. What is granted is given back. Return: NULL. */
struct lease *lease_free(struct lease *lease);

/*
 * The lease of a number; or else one that had that number of a broker that ended, if it is
 * @tenant's and @uid's. NULL: there is none.
 */
struct lease *lease_find(const struct leases *leases, uint32_t number, const struct tenant *tenant,
			 uid_t uid);

static inline uint64_t lease_granted(const struct lease *lease)
{
	return lease->charge.amount;
}

/* Granted, and given to nobody. */
static inline uint64_t lease_ungiven(const struct lease *lease)
{
	return lease->charge.amount - lease->credited_bytes;
}

/*
 * Has it granted @bytes, not less than are credited. Return: 0; LEASE_E_QUOTA, nothing changed;
 * not, with @is_forced: it is there already, whatever the limits.
 */
int lease_grant(struct lease *lease, uint64_t bytes, bool is_forced);
/* Gives back what is neither given to anybody nor within the wish. Return: how much. */
uint64_t lease_trim(struct lease *lease);
/*
 * Another wish, not above the maximum: it grows no further, and what is above it and given to
 * nobody is given back.
 */
void lease_resize(struct lease *lease, uint64_t wish_bytes);
/* Its tenants' reserves may have changed. */
void leases_count_reserves(struct leases *leases, uint8_t device);
/* What its tenant's limits leave to it. */
void lease_allow(struct lease *lease, uint64_t bytes);
/* Has it more than it should have by now? */
bool lease_is_shrinking(const struct lease *lease);

/*
 * What a tenant's leases that were restored have of a device, and gave to nobody: they grow to
 * their wishes as soon as they are there, and others may not have told yet what they have in truth.
 */
uint64_t leases_restored_ungiven(const struct leases *leases, const struct tenant *tenant,
				 uint8_t device);
/* So much of it is given back, as far as it is there, by all of them @but one, which may be NULL.
 */
void leases_take_back(struct leases *leases, const struct lease *but, const struct tenant *tenant,
		      uint8_t device, uint64_t bytes);

/*
 * Its programs are in the cgroup of that folder from now on. Takes *fd, and sets it to -1; if that
 * is its cgroup already, nothing is done.
 * Return: 0; LEASE_E_EXISTS: it has another; LEASE_E_TAKEN; LEASE_E_HOST_QUOTA.
 */
int lease_set_cgroup(struct lease *lease, int *fd, uint64_t id);
/* The lease of a device whose cgroup that is. NULL: there is none. */
struct lease *lease_of_cgroup(const struct leases *leases, uint8_t device, uint64_t id);

void lease_join(struct lease *lease, struct lease_member *member, pid_t pid);
/* Gives back its credit and its objects. One that is a member of nothing is fine. */
void lease_leave(struct lease_member *member);
/* Return: 0; LEASE_E_LACKING. */
int lease_take(struct lease_member *member, uint64_t bytes);
int lease_give(struct lease_member *member, uint64_t bytes);

/* The credit that it knows of, and may give back. */
static inline uint64_t lease_own_credit(const struct lease_member *member)
{
	return member->credit_bytes - member->corrected_bytes;
}
/*
 * @bytes of device memory are the member's beside its own credit: they are credited to it, whatever
 * the limits, as far as the lease's maximum goes. Less than before, or 0, gives them back.
 */
void lease_correct(struct lease_member *member, uint64_t bytes);

/* What a member says of itself. */
struct lease_use {
	uint64_t used_bytes, extra_bytes;
	uint32_t n_objects, n_refused;
	uint64_t peak_bytes; /* the most that both were since the last time; 0: as they are */
};
void lease_report(struct lease_member *member, const struct lease_use *use);

/*
 * What must be ungiven for lease_object_add(), beside what the member's credit pays; 0: somebody
 * else pays for it.
 */
uint64_t lease_object_cost(const struct lease_member *member, uint64_t dev, uint64_t ino,
			   uint64_t bytes, uint64_t from_credit_bytes);
/*
 * The member has an object of @bytes. Of its credit @from_credit_bytes go to its lease, which pays
 * for the object if nobody does, or if who does believes it smaller. *ret_bytes: what it pays.
 * Return: 0; LEASE_E_LACKING, LEASE_E_EXISTS, LEASE_E_HOST_QUOTA; -ENOMEM. Then nothing changed.
 */
int lease_object_add(struct lease_member *member, uint64_t dev, uint64_t ino, uint64_t bytes,
		     uint64_t from_credit_bytes, uint64_t *ret_bytes);
/*
 * It has it no more. If its lease paid, another one of the tenant who has it does from now on, and
 * gets from this lease what its own lacks for that.
 * Return: 0; LEASE_E_UNKNOWN.
 */
int lease_object_drop(struct lease_member *member, uint64_t dev, uint64_t ino);

/* Joins those who wait for its lease's device, at the end; and leaves them. */
void lease_wait_begin(struct lease_wait *wait);
void lease_wait_end(struct lease_wait *wait);
/*
 * The newest of those on a device who wait for nobody but each other, if the leases there can have
 * at most @usable_bytes together. NULL: there are none. Takes about as long as there are waits.
 */
struct lease_wait *lease_find_deadlocked(struct leases *leases, uint8_t device,
					 uint64_t usable_bytes);
/* The next one, if the last one waits no more and nothing else has changed. NULL: none is left. */
struct lease_wait *lease_find_next_deadlocked(struct leases *leases);
/* Could it not be served even if it were alone, with at most @usable_bytes? */
bool lease_wait_is_hopeless(const struct lease_wait *wait, uint64_t usable_bytes);
/* What must be granted for it, and what it would have. */
static inline uint64_t lease_wait_need(const struct lease_wait *wait)
{
	return wait->lease->credited_bytes + wait->least_bytes;
}
static inline uint64_t lease_wait_goal(const struct lease_wait *wait)
{
	uint64_t goal = wait->lease->credited_bytes + wait->want_bytes;

	return goal < wait->lease->limit_bytes ? goal : wait->lease->limit_bytes;
}

/* Lets go of all objects of a member, for lease_leave(). */
void lease_objects_drop(struct lease_member *member);
/* Shows members on the lease's page how things are. */
void lease_show(const struct lease *lease);

DEFINE_CLEANUP(struct lease *, lease_free)
