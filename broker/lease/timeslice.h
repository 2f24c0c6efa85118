#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: which leased programs may submit work to a device
 *
 * Members that share a device's time submit work to it only while their lease has the timeslice,
 * which the broker gives to one lease after the other (enum rbk_timeslice on the lease's page). A
 * lease that is alone is not restrained.
 *
 * The next lease is one of the highest priority that waits; among these, the one whose tenant has
 * used least, by weight; among those of one tenant, the one that has used least, by its share. A
 * lease that waits ends the timeslice of a lower one at once, and that of an equal one after
 * TIMESLICE_NS, once the holder's tenant has used more, or the holder within one tenant. A
 * timeslice has ended when the members that used it have told that nothing of theirs is under way,
 * or is overdue after TIMESLICE_GRACE_NS.
 *
 * Time counts from the begin of a timeslice until these members have told so. A tenant that did not
 * wait may be behind others by TIMESLICE_LAG_NS at most, and so much ahead before its leases lose
 * a priority above normal. A lease that waits behind higher priorities for TIMESLICE_PATIENCE_NS
 * comes next, but only one in that time on each device.
 *
 * The tasks of a tenant's plans take part as if they were another lease of it, by their priorities
 * (timeslice-plans.h). While no lease has the device, it is the plans' turn. Tasks of a higher
 * priority than the lease's that has it do not wait, nor do the single tasks of a tenant that is
 * far behind. While a device has tasks, even a lease that is alone keeps little work under way, and
 * background leases wait for those of higher priorities, and until there were none for
 * TIMESLICE_PLANS_NS. Their time puts a tenant ahead of others by TIMESLICE_DEBT_NS at most. That
 * of tasks that ran in a lease's timeslice is taken from the lease's time. A lease that waits
 * because its tenant's plans use the tenant's share has the same patience.
 *
 * This module decides only; its caller has the clock and calls timeslice_run() in time. Reactor
 * thread.
 */
#include <stdbool.h>
#include <stdint.h>
#include <ringbroker/abi.h>

#include "lease/parts.h"
#include "lease/timeslice-plans.h"
#include "util/list.h"

struct lease;
struct lease_member;
struct tenant;

enum {
	/* TIMESLICE_MAX_LEASES of the tenant share the device, or TIMESLICE_MAX_MEMBERS the lease
	 */
	TIMESLICE_E_FULL = 1,
};

enum {
	TIMESLICE_MAX_LEASES = 16,
	TIMESLICE_MAX_MEMBERS = 64, /* each change of a timeslice visits them */
};

#define TIMESLICE_NS           5000000ull    /* 5 ms: least timeslice while an equal lease waits */
#define TIMESLICE_GRACE_NS     50000000ull   /* 50 ms: longest wait for members' last work */
#define TIMESLICE_REST_NS      1000000ull    /* 1 ms: longest rest of members' work that counts */
#define TIMESLICE_LAG_NS       100000000ull  /* 100 ms: about the longest single submissions */
#define TIMESLICE_PATIENCE_NS  1000000000ull /* 1 s: longest wait behind higher priorities */
#define TIMESLICE_DEBT_NS      1000000000ull /* 1 s: longest time that plans put their tenant ahead */
#define TIMESLICE_LOOK_NS      5000000ull    /* 5 ms: interval of looks at what plans have used */
#define TIMESLICE_TURN_LOOK_NS 1000000ull    /* 1 ms: the same in the plans' turn */
#define TIMESLICE_PLANS_NS     2000000ull /* 2 ms: pause of plans in which background work waits */
#define TIMESLICE_PAUSE_NS     1000000000ull /* 1 s: pause of plans until a lease is alone */

/* Virtual time among tenants on a device, or among the leases of one tenant there. */
struct timeslice_clock {
	uint64_t virtual_ns; /* least tag of those that are served, see timeslice.c */
	uint64_t least;      /* scratch of device_advance() */
	uint8_t best;
};

/* One device. */
struct timeslice_device {
	struct list_node leases; /* struct lease_timeslice.link: leases that share the device */
	uint32_t n_leases;
	struct lease *holder; /* has the timeslice, or is ending it; NULL: none */
	struct timeslice_clock clock;
	uint64_t late_ns; /* when one last came next because it had waited long; 0: never */
	uint8_t number;   /* index in timeslices.devices */

	/* timeslice-plans.c's: tasks of plans */
	struct list_node plans; /* struct timeslice_plans.link, once each was active */
	uint8_t plans_classes;  /* classes of tasks that wait or are under way, as bits */
	bool is_plans_turn;     /* the plans have the device, and no lease; see timeslice-plans.c */
	bool was_plans_late;    /* because they had waited too long */
	uint64_t class_ns[TIMESLICE_CLASSES]; /* last time at which tasks of it are known; 0: never
					       */
	uint64_t turn_ns, turn_closed_ns; /* begin of the turn; end of its last start; 0: none */
	uint64_t turn_checked_ns;         /* last decision about its end */
	uint64_t turn_charged_ns;         /* time up to which turn_used_ns counts */
	uint64_t turn_used_ns;            /* of the turn, not charged yet */
	uint64_t looked_ns;               /* when plans_used() was last asked */
	uint64_t plans_used_ns;           /* what it said, of all tenants */
	uint64_t plans_owed_ns;  /* of that, what is still to be taken from the holders' time */
	uint64_t noted_ns;       /* time up to which the next two count, while leases share it */
	uint64_t plans_total_ns; /* time with tasks that background leases wait for */
	uint64_t turns_total_ns; /* time of the plans' turns */
};

/* A timeslice, for the log of its tenant. */
struct timeslice_record {
	uint64_t wanted_ns; /* begin of the wait for it; 0: no member waited */
	uint64_t plans_ns;  /* part of the wait in which tasks of plans came first */
	uint64_t began_ns;
	uint64_t closed_ns;  /* when the members were told to end it; 0: never */
	uint64_t ended_ns;   /* when they had told DONE, or the last one left */
	uint32_t for_lease;  /* number of the lease that it was closed for; 0: none */
	uint32_t for_tenant; /* number of that lease's tenant */
	uint8_t class;       /* timeslice_class() of the lease as it began */
	bool is_for_plans;   /* it was closed for tasks of plans */
	bool is_late;        /* the lease had waited too long */
	bool is_overdue;     /* others were given the device before it ended */
	bool is_left;        /* it ended with the last member */
	bool is_alone;       /* it ended because the lease is not restrained any more */
};

/* All devices; part of struct leases. */
struct timeslices {
	struct timeslice_device devices[RBK_MAX_DEVICES];
	uint32_t n_leases;       /* leases that share a device */
	uint32_t shared_devices; /* the devices that they share, as bits; the dispatcher reads it */
	/* Called when a timeslice has ended, before the next one begins; NULL: not called. */
	void (*ended)(void *context, const struct lease *lease,
		      const struct timeslice_record *record);
	void *context;
	/*
	 * Return the time of a device that tasks of a tenant's plans have used so far, or with NULL
	 * those of all tenants, in ns; *ret_factor: that time for each ns in which the device
	 * worked for them. NULL: not called.
	 */
	uint64_t (*plans_used)(void *context, const struct tenant *tenant, uint8_t device,
			       float *ret_factor);
	void *plans_context;
};

/* A lease's part; zeroed at first. */
struct lease_timeslice {
	struct list_node link;
	struct list_node members; /* struct member_timeslice.link; valid if n_members > 0 */
	uint32_t n_members;       /* members that share */
	uint32_t n_done;          /* of these, those that have told DONE, and not WANT since */
	uint32_t n_wanting;       /* of these, those that wait for the timeslice */
	uint32_t word;            /* rbk_lease_page.timeslice */
	uint32_t n_opened;        /* times that it was left unrestrained */
	uint8_t class; /* priority_class() of @set_priority, or of its members' highest priority */
	/* of timeslice_set(): 1 + enum rbk_priority; 0: its members', as with RBK_PRIORITY_NONE */
	uint32_t set_priority;
	uint32_t share;     /* of its tenant's time, 1..10000; 0: FAIR_WEIGHT */
	uint64_t tag;       /* the time it has had, divided by its share, see timeslice.c */
	bool is_under_way;  /* its members have not told that their work has ended */
	bool has_given_up;  /* a member gave it up with work under way */
	bool is_overtaken;  /* a later timeslice has ended meanwhile: its work hardly delays others
			     */
	bool was_late;      /* it has the timeslice because it waited too long */
	uint64_t wanted_ns; /* begin of the wait */
	uint64_t wanted_plans_ns; /* plans_total_ns() for wanted_class then */
	uint8_t wanted_class;
	uint64_t lacking_ns; /* begin of the first wait since it could use the device; 0: none */
	uint64_t held_ns;    /* begin of the timeslice */
	uint64_t closed_ns;  /* end of the timeslice */
	uint64_t done_ns;    /* when its members had told DONE; 0: never */
	uint64_t charged_ns; /* time up to which the tenant was charged */
	struct timeslice_record record; /* of the timeslice; valid if is_under_way */

	/* Figures since the lease was opened. */
	uint64_t used_ns, waited_ns; /* charged to the tenant; waited for the timeslice */
	uint64_t n_overdue;
	uint64_t counted_ns;        /* time up to which a wait is in waited_ns */
	struct recent longest_wait; /* that has ended, in ns */
};

/* A member's part; zeroed at first. */
struct member_timeslice {
	struct list_node link; /* in lease_timeslice.members if it shares */
	bool is_sharing, is_wanting, is_done;
	uint8_t class;
};

void timeslices_init(struct timeslices *timeslices);

/*
 * Have a member of a lease share the device's time with @priority, an enum rbk_priority.
 * Return: 0; TIMESLICE_E_FULL.
 */
int timeslice_join(struct lease_member *member, uint32_t priority, uint64_t now_ns);
/*
 * Set the priority of a lease, whatever its members ask for: 1 + enum rbk_priority; and its share
 * of its tenant's time, 1..10000. 0 leaves either as it is. With RBK_PRIORITY_NONE the lease's page
 * asks its members to leave, and they have their own priorities until they do.
 */
void timeslice_set(struct lease *lease, uint32_t priority, uint32_t share, uint64_t now_ns);
/* Return a lease's share of its tenant's time, 1..10000. */
uint32_t timeslice_share(const struct lease *lease);
/* Note that a sharing member waits for the timeslice. */
void timeslice_want(struct lease_member *member, uint64_t now_ns);
/* Note that nothing of a sharing member is under way, as of @word of its lease's page. */
void timeslice_done(struct lease_member *member, uint32_t word, uint64_t now_ns);
/* The same, but some of the member's work is still under way, and waits for something. */
void timeslice_give_up(struct lease_member *member, uint32_t word, uint64_t now_ns);
/*
 * The same, but some of the member's work is still under way for about @rest_ns, for which the
 * lease is charged, at most for TIMESLICE_REST_NS.
 */
void timeslice_ending(struct lease_member *member, uint32_t word, uint64_t rest_ns,
		      uint64_t now_ns);
/* End a member's part, also before it leaves its lease. Does nothing if it does not share. */
void timeslice_leave(struct lease_member *member, uint64_t now_ns);

/* Return the priority_class() of a lease that shares its device, bounded by its tenant's. */
uint8_t timeslice_class(const struct lease *lease);

/*
 * Note which tasks of plans there are on a device, from @changed on by next_changed; their tenants
 * have a struct tenant_leases. Does nothing while no lease shares the device. It is also the only
 * function that looks at what the dispatcher has set; any function here may change n_open.
 */
void timeslice_share_plans(struct timeslices *timeslices, uint8_t device,
			   struct timeslice_plans *changed, uint64_t now_ns);

/*
 * Charge no tenant for the time since the last call of any function: the broker did not run, and
 * cannot tell who used the devices.
 */
void timeslice_skip(struct timeslices *timeslices, uint64_t now_ns);

/* Bring the figures of all leases up to date; decides nothing. */
void timeslice_count_time(struct timeslices *timeslices, uint64_t now_ns);

/* Do what is due. */
void timeslice_run(struct timeslices *timeslices, uint64_t now_ns);
/*
 * Return the time of the next timeslice_run(), which is after @now_ns if everything that was due
 * then is done; UINT64_MAX: none is needed.
 */
uint64_t timeslice_next_ns(const struct timeslices *timeslices, uint64_t now_ns);
