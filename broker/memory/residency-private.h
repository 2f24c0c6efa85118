#pragma once
/* SPDX-License-Identifier: MIT */
/* What the residency-*.c files share; nobody else includes it. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lease/lease.h"
#include "loop/offload.h"
#include "memory/residency-policy.h"
#include "memory/residency.h"
#include "plan/executor.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/list.h"
#include "util/log.h"

struct loop_timer;

enum {
	RESIDENCY_MAX_LOADS = 2,    /* at once, of one tenant on one device */
	RESIDENCY_MAX_AWAITED = 64, /* likewise: promises that others leave for */
	RESIDENCY_MAX_DRAFTS = 8,   /* candidates looked at closely in one review, of each kind */
	RESIDENCY_MAX_VICTIMS = 64, /* that one wish may displace */
	RESIDENCY_PAUSE = 20,       /* between reviews, and passes over who waits for a lease: times
				       what the last one took */
	RESIDENCY_MAX_HELD = 256,   /* waiters for a plan that are told at once, by wish */
	RESIDENCY_SLICE = 256,      /* plans, or blocks of one, looked at in one turn, at most */
	RESIDENCY_LARGE = 512,      /* a plan is large if a device cannot hold so many like it */
	RESIDENCY_SMALL = 256,      /* others, of a tenant, that one search visits */
	RESIDENCY_FIRST_HOLDOFF_NS = 250000000, /* before a plan that had to leave comes back */
};
static const uint64_t residency_max_holdoff_ns = 10ull * 1000 * 1000 * 1000;

/* Bytes of a device, and the mappings that go with them; host is empty unless they are in GTT. */
struct memory_charge {
	struct charge device, host, mappings;
};

/* A constant in a block, found by what it is. */
struct resident_constant {
	struct resident_constant *next; /* in its bucket */
	struct resident_constant **at;  /* what points to it there */
	struct resident_block *block;
	dev_t dev;
	ino_t ino;
	uint64_t offset, bytes;
	uint64_t block_offset;
};

enum {
	RESIDENT_INDEX_SEGMENT = 1024, /* buckets */
	RESIDENT_INDEX_SEGMENTS = 4096,
};

/* Finds constants on a device by what they are: see residency-index.c. */
struct resident_index {
	struct resident_constant **segments[RESIDENT_INDEX_SEGMENTS]; /* of buckets */
	uint32_t n_buckets;
	uint32_t n_constants;
	/* Constants of the bucket that is being split, between it and the last one. */
	struct resident_constant *splitting;
	uint64_t seed;
};

/* A block of constants on a device. Other plans join once it is loaded; freed with the last. */
struct resident_block {
	struct exec_block exec;
	struct resident_constant *constants; /* exec.n_constants of them */
	uint64_t owner;                      /* struct exec_arena.owner */
	uint64_t draft_number;               /* see draft_init() */
	uint32_t n_sharers;                  /* who pays for it */
	uint32_t n_there;                    /* those that are LOADING or IN; at 0 it is leaving */
	uint32_t n_in;                       /* those that are IN */
	uint32_t n_staying; /* those that are not UNLOADING; at 0 nobody finds it any more */
	bool is_loaded;
	uint64_t renewal_number; /* of the last renewal that is to free it */
	struct memory_charge charge;
};

enum residence_state {
	RESIDENCE_OUT,
	RESIDENCE_AWAITED,   /* others were asked to leave so that it can come */
	RESIDENCE_LOADING,   /* charged; the setup thread works */
	RESIDENCE_IN,        /* READY */
	RESIDENCE_DRAINING,  /* leaves when its tasks on the device have ended */
	RESIDENCE_UNLOADING, /* the setup thread works */
};

/* A plan on a device. */
struct residence {
	struct list_node link;      /* in residency_device.awaiting or .residences, unless OUT */
	struct list_node returning; /* in residency_holding.returning if must_return */
	struct list_node holding;   /* in a residency_holding while it is IN and holds VRAM, in
				       residency_device.second_tier while it is IN in GTT */
	struct list_node aging;     /* in residency_device.by_age, likewise, but not in GTT */
	struct residency_plan *plan;
	struct residency_device *device;
	enum residence_state state;
	enum exec_tier tier;
	uint32_t n_slots;
	uint64_t required_bytes; /* residence_required() */
	uint64_t awaited_bytes;
	uint64_t tried_number; /* residency.n_reviews when one tried to bring it */
	uint64_t asked_number; /* residency.n_asked_turns when it was tried for a waiter, */
	int asked_result;      /* and what came of it */
	bool is_retry;         /* the driver had no memory; this is the second attempt */
	bool must_leave;       /* as soon as it has come */
	bool is_moving;        /* it is leaving in order to come back at once: not counted */
	bool must_return;      /* it has left so, and is to come back */
	bool is_pressed;       /* others outside use what it needs */
	bool is_own_filled;    /* block_load() of @own returned 0; the setup thread's, LOADING */

	/* While it is neither OUT nor AWAITED. */
	struct resident_block *own;      /* made for it; NULL: all constants were there already */
	struct resident_block **sharing; /* every block it uses, its own too, each once */
	uint32_t n_sharing;
	uint32_t n_freeing;               /* UNLOADING: the first so many are to be freed with it */
	bool is_work_freed;               /* UNLOADING: plan_unload() was called */
	const struct exec_block **blocks; /* by constant */
	uint64_t *offsets;
	struct memory_charge work_charge;
	struct charge host_charge; /* what the processor writes for the device */
	uint64_t leaving_bytes;    /* of its working memory */
	struct offload_job job;
	int job_result;
	int load_result; /* not 0: what is being unloaded has never quite come */

	uint64_t came_ns, left_ns;
	uint64_t holdoff_ns; /* after leaving, before it may come back by itself */
	uint32_t n_lost;     /* loads in a row that ended with the loss of the device */
	uint64_t n_evictions, n_returns;
};

struct residency_plan {
	struct list_node link;   /* in residency.plans, or, without @supported, in .unable */
	struct list_node waited; /* in residency.waited if a held task waits for it */
	struct residency *residency;
	struct plan_memory *memory;
	struct tenant *tenant; /* counted */
	/* Who was looked at and waits, by wish; those beyond RESIDENCY_MAX_HELD are asked again. */
	struct list_node held[RESIDENCY_WISHES], deferred[RESIDENCY_WISHES];
	uint32_t n_held[RESIDENCY_WISHES];
	uint32_t n_asked;   /* waiters that are to be looked at, deferred ones among them */
	uint16_t is_named;  /* bit i: somebody who is held may want device i and no other */
	double value;       /* see residency_value() */
	uint64_t folded_ns; /* when it was true */
	uint64_t used_ns;   /* when the plan was wanted last */
	uint16_t supported; /* bit i: prepared for device i */
	bool is_parked;     /* evicted by hand, until it is wanted again */
	uint16_t must_go;   /* bit i: the next walk is to evict it from device i, by hand */
	void (*added)(struct plan_memory *memory);
	void (*removed)(struct plan_memory *memory);
	struct residence on[]; /* by device */
};

/* A tenant's plans that may make way on a device: see residency-seek.c. */
struct residency_holding {
	struct list_node large, small; /* residences; those to be visited next at the front */
	struct list_node returning;    /* residences that left in order to come back */
	uint64_t round_number;         /* device.n_bring_rounds when they had their turn */
};

/* A tenant that has or had plans or leases, as residency knows it. */
struct tenant_memory {
	struct list_node link; /* in residency.holders if n_plans > 0 */
	struct tenant *tenant;
	uint32_t n_plans;
	uint64_t evictable[RBK_MAX_DEVICES]; /* the sum of residence_bytes() of plans that are IN
						in VRAM, */
	uint64_t leaving[RBK_MAX_DEVICES];   /* bytes of VRAM on their way out, */
	uint64_t awaited[RBK_MAX_DEVICES];   /* bytes set aside, */
	uint32_t n_awaited[RBK_MAX_DEVICES]; /* plans for which they are, */
	uint32_t n_loads[RBK_MAX_DEVICES];   /* and plans loading */
	uint64_t sum_number;                 /* of the last sum over tenants that has it */
	uint64_t blocked_number; /* of the last pass over who waits in which it had no room */
	/* Sums over the waits that a pass has met so far: see residency-lease.c. */
	uint64_t wait_number, ahead_bytes, holding_bytes;
	struct list_node asked;  /* what was asked of it and not looked at */
	struct list_node asking; /* in residency.asking, unless that is empty */
	struct residency_counts counts;
	struct residency_holding on[RBK_MAX_DEVICES]; /* while n_plans > 0 */
};

/* The record of a tenant that never had any, in residency-seek.c: all zero. */
extern const struct tenant_memory tenant_memory_none;

static inline const struct tenant_memory *memory_of(const struct tenant *tenant)
{
	return tenant->memory ? tenant->memory : &tenant_memory_none;
}

enum residency_device_state {
	RESIDENCY_DEVICE_NONE, /* no memory of its own */
	RESIDENCY_DEVICE_UP,
	RESIDENCY_DEVICE_DRAINED, /* is_drained, and not lost */
	RESIDENCY_DEVICE_LOST,    /* draining */
	RESIDENCY_DEVICE_REOPENING,
	RESIDENCY_DEVICE_AWAY, /* reopening failed; the timer tries again */
};

struct residency_device {
	struct residency *residency;
	struct executor *executor;
	enum residency_device_state state;
	bool is_drained; /* an administrator wants nothing there */
	uint8_t index;
	uint64_t usable_bytes[EXEC_TIER_COUNT];
	uint64_t charged_bytes[EXEC_TIER_COUNT]; /* by plans and blocks of this file */
	uint64_t leaving_bytes;                  /* of VRAM, a part of it, blocks once each */
	uint64_t evictable_bytes;                /* as tenant_memory.evictable, of all tenants */
	uint64_t awaited_bytes;                  /* of VRAM, to be charged when others have left */
	uint64_t reserved_bytes;                 /* of VRAM, the reserves of all tenants */
	uint64_t outside_bytes;                  /* of VRAM, used by others */
	uint64_t refused_bytes;    /* of VRAM, while a load that was refused is tried again */
	uint64_t leased_bytes;     /* at the last look, or more: leases may have given back since */
	uint64_t lease_part_bytes; /* of each tenant, beside its reserve; see residency-lease.c */
	uint64_t holding_bytes;    /* as tenant_memory.holding_bytes, of all tenants */
	uint64_t n_pass_visits;    /* in the last pass over who waits for a lease */
	uint64_t n_rounds;         /* see residency_leases_serve() */
	bool is_round_cut;         /* the next pass goes on with the last round */
	bool must_serve;           /* a pass is to come, */
	uint64_t serve_ns;         /* not before that time */
	bool has_new_waits;        /* who may wait for each other: leases */
	uint64_t n_bring_rounds;   /* over promises */
	struct list_node *bring_next; /* in awaiting: to be tried next in the last round, */
	bool is_bringing;             /* which is not yet at its end */
	bool must_bring_again;        /* a review has asked for another round since */
	bool is_above;                /* more is to leave: the turn was over */
	uint32_t n_vain_searches;     /* for what is to leave, in a row */
	uint32_t n_jobs;
	uint32_t n_guests; /* who loads beside us */
	uint32_t n_moving; /* residences that are on their way out in order to come back */
	uint64_t n_renewals;
	struct list_node *renew_next; /* in by_age, for the last renewal; NULL: it is over */
	uint32_t n_renew_sweeps;      /* over by_age, of the last renewal, */
	bool has_renew_grown;         /* and more blocks are to be freed since the last began */
	uint32_t n_reopened;
	struct list_node residences;  /* those that are neither OUT nor AWAITED */
	struct list_node awaiting;    /* AWAITED; the one to be tried first at the front */
	struct list_node by_age;      /* residences IN VRAM that hold some; the oldest first */
	struct list_node second_tier; /* residences IN GTT; to be looked at next at the front */
	uint32_t n_second_tier;
	uint32_t n_to_promote; /* of them, to be looked at since the last review */
	struct list_node
		*evict_next; /* in residences: all from there on are to leave; NULL: none */
	struct resident_index index_of_constants; /* of blocks in which somebody stays */
	struct offload_job job;
	int job_result;
	uint64_t reopen_ns, backoff_ns;
};

struct candidate {
	struct residence *residence;
	struct residency_claim claim;
};

struct candidates {
	struct candidate of[RESIDENCY_MAX_DRAFTS]; /* best first */
	uint32_t n, n_tried;
	bool in_turn; /* those come first that were not tried for longest */
	bool is_full; /* there were more */
};

/* The part of a review that looks at every plan: slices, in turns of their own. */
struct residency_walk {
	struct loop_timer *timer;
	struct list_node *next; /* the plan to look at next; NULL: no walk is under way */
	uint32_t n_left;        /* plans: those that come later wait for the next walk */
	bool is_outdated;       /* another review has begun since */
	bool is_showing;        /* residence_show() of each plan */
	struct candidates waiting, wanted; /* of the plans looked at */
	bool is_wishing, is_pressed;       /* likewise */
	uint64_t next_ns;                  /* likewise: when the first hold-off ends */
};

struct residency {
	struct residency_options options;
	struct leases leases;
	uint64_t n_parts;      /* see tenant_leases.part_bytes */
	bool has_large_leases; /* more than their tenants may have by now */
	uint64_t n_passes;     /* over who waits for a lease; see tenant_memory.blocked_number */
	uint64_t n_wait_sums;  /* over who waits; see tenant_memory.wait_number */
	bool is_serving;
	struct residency_demand demand;
	struct list_node plans;  /* those that a device with memory can run */
	struct list_node unable; /* the others */
	struct list_node waited; /* plans, see there */
	struct list_node told;   /* in waited, in front of plans that residency_tell_hopeless() has
				    been through; else in no list */
	struct list_node holders;
	struct list_node asking; /* tenants who asked something, each in its turn */
	uint32_t n_plans;
	bool must_show; /* residence_show() of each plan, in the next walk */
	uint64_t n_drafts, n_asked_turns, n_reviews;
	uint64_t n_visits; /* of plans, to see whether they make way */
	uint64_t n_sums;   /* over tenants; see tenant_memory.sum_number */
	uint64_t look_ns,
		look_ticks; /* for when plans' values are compared; see residency_look() */
	struct residency_walk walk;
	struct loop_timer *timer;
	uint64_t timer_ns;    /* when it is set for; 0: not set */
	bool is_put_off;      /* the timer's review */
	uint64_t reviewed_ns; /* when the last review began, */
	uint64_t review_ns;   /* how long it took, and those in the course of one walk, */
	uint64_t asked_ns;    /* and looking at what was asked before it */
	bool is_reviewing;
	struct log_limit failure_limit;
	bool is_pressed; /* at the last review */
	/* A load has failed with that result, and was undone: residency_load_failed(). */
	void (*load_failed)(struct residence *residence, int r);
	void (*reopened)(void *context, unsigned int device);
	void *reopened_context;
	struct residency_device devices[RBK_MAX_DEVICES];
};

/* ---- residency-index.c ---- */

/* Return: 0 or negative errno. */
int resident_index_init(struct resident_index *index);
void resident_index_deinit(struct resident_index *index);
/* Never fails: without memory to grow it gets slower. */
void resident_index_add(struct resident_index *index, struct resident_block *block);
void resident_index_remove(struct resident_index *index, struct resident_block *block);
/* Return: NULL if no block of that owner in that tier has it. */
struct resident_constant *resident_index_find(const struct resident_index *index, uint64_t owner,
					      enum exec_tier tier,
					      const struct plan_constant *wanted);

/* ---- residency-figures.c: what there is, and what it is worth ---- */

/* The state that placement sees, from what is the case. */
void residence_show(struct residence *residence);
/* Is the plan on none of the devices, or not on @device? */
bool residency_plan_is_gone(const struct residency_plan *plan, uint8_t device);
/* Bytes that evicting the plan would give back, with blocks that all other sharers leave. */
uint64_t residence_bytes(const struct residence *residence);
/* Could the plan ever be there? */
static inline bool residence_fits(const struct residence *residence)
{
	const struct tenant *tenant = residence->plan->tenant;

	return residence->required_bytes <= tenant->shares[residence->device->index].max &&
	       residence->required_bytes <= residence->device->executor->info.memory_bytes;
}
/* What it would take alone, with one slot and nothing shared; UINT64_MAX: more than that. */
uint64_t residence_required(const struct residence *residence);
/* What it could have at most now, by its tenant's right. */
uint64_t residence_available(const struct residence *residence);
/*
 * Has plans compared by what they are worth from now on: the value of each is brought up to date
 * when it is compared, once between two calls of this.
 */
void residency_look(struct residency *residency);
/* Counts what was wanted of a plan until now, or until then. */
void residency_fold_plan(struct residency_plan *plan);
void residency_fold_plan_at(struct residency_plan *plan, uint64_t now_ns, uint64_t now_ticks);
/* As of the last residency_look(), so that plans are compared as of the same time. */
static inline void residency_look_at(struct residency_plan *plan)
{
	const struct residency *residency = plan->residency;

	if (plan->folded_ns < residency->look_ns)
		residency_fold_plan_at(plan, residency->look_ns, residency->look_ticks);
}

/* Who wishes for room on a device: a plan, or a lease. */
struct seeker {
	struct residency_device *device;
	struct tenant *tenant;
	struct residence *residence; /* NULL: a lease */
	uint64_t awaited_bytes;      /* set aside for it already */
};
/* Return: the bytes set aside for other wishes of its tenant. */
uint64_t seeker_tenant_awaited(const struct seeker *seeker);
/* What it could have at this moment, without anybody having to leave. */
uint64_t seeker_room(const struct seeker *seeker);
/* What leases of the tenant could have beside theirs at most, whatever plans make way. */
uint64_t residency_lease_room(const struct residency_device *device, const struct tenant *tenant);
/* What its tenant may have beside what it has and was promised. */
int64_t seeker_tenant_free(const struct seeker *seeker);
/* Bytes of a device that are promised to no tenant; negative: too little. */
int64_t residency_device_free(const struct residency_device *device);
/* Bytes that a tenant could have at most now, by its right: its own plans make way. */
uint64_t residency_available(const struct residency_device *device, const struct tenant *tenant);
/* Bytes that a tenant holds there and is not giving back. */
uint64_t residency_tenant_used(const struct residency_device *device, const struct tenant *tenant);
int64_t residency_tenant_free(const struct residency_device *device, const struct tenant *tenant);

/* ---- residency-timer.c ---- */

/* No review is earlier, however many plans there are: reviews take little of the reactor's time. */
uint64_t residency_paused_until_ns(const struct residency *residency);
/* Calls residency_review() not later than @delay_ns from now. */
void residency_review_in(struct residency *residency, uint64_t delay_ns);
/* Is there more to do in the next turn: of a review, or of what concerns many plans? */
bool residency_goes_on(const struct residency *residency);
/* The next turns do the rest, without a pause. */
void residency_go_on_soon(struct residency *residency);
/* As residency_leases_serve(), in a later turn. */
void residency_leases_serve_later(struct residency_device *device);

/* ---- residency-wait.c ---- */

static inline struct residency_waiter *waiter_of(struct list_node *node)
{
	return container_of(node, struct residency_waiter, link);
}
/* It waits no more, and is told. */
void waiter_finish(struct residency_waiter *waiter, int res);
/* It was looked at, and waits for its plan from now on. */
void waiter_stay(struct residency_waiter *waiter);
/* Return: 0, or what to tell who waits for a plan that can never come. */
int waiter_verdict(const struct residency_plan *plan, const struct residency_waiter *waiter);
/* Tells who waits for the plan that @residence has come, or, with a negative @res, that it will
 * not. */
void residency_tell(struct residence *residence, int res);
/* Tells who asked for it to be brought that it was evicted by hand. */
void residency_tell_interrupted(struct residence *residence);
/* Tells who added the plan, if he does not know yet, that it need not be waited for any longer. */
void residency_tell_added(struct residency_plan *plan);
/* Tells who waits for it to be gone, if it is. */
void residency_tell_gone(struct residence *residence);
/*
 * Tells who waits for what can no longer come: limits were lowered, or a device was lost. Where
 * many wait, some are told now and the others in the next turns.
 */
void residency_tell_hopeless(struct residency *residency);
void residency_tell_on(struct residency *residency);

/* ---- residency-reopen.c ---- */

bool residency_device_is_lost(const struct residency_device *device);
/* Goes on with a device that is not UP; after anything on it has ended. */
void residency_device_settle(struct residency_device *device);
/* Reopens those whose time has come. */
void residency_devices_turn(struct residency *residency);

/* ---- residency-plan.c: records ---- */

/* Makes the record of a tenant that has none. Return: 0 or -ENOMEM. */
int tenant_memory_make(struct tenant *tenant);
/* Return: NULL: no memory. */
struct residency_plan *residency_plan_new(struct residency *residency, struct plan_memory *memory);
/* The plan has nothing left anywhere and is being removed: forgets it. Return: true if so. */
bool residency_plan_settle(struct residency_plan *plan);
/* It has come: it may be visited from now on, until residence_release(). */
void residence_hold(struct residence *residence);
void residence_release(struct residence *residence);
typedef void (*residency_holder_fn)(struct residence *residence, uint64_t bytes, void *data);
/* Calls @fn for a tenant's plans that may make way, all or some. It must change nothing. */
void residency_visit_holders(struct tenant_memory *memory, unsigned int device,
			     residency_holder_fn fn, void *data);

/* ---- residency-load.c: one plan comes or goes ---- */

/* What loading would take; draft_deinit() unless residence_begin() succeeded. */
struct draft {
	struct residence *residence;
	enum exec_tier tier;
	struct resident_block *own;
	struct resident_block **sharing;
	const struct exec_block **blocks;
	uint64_t *offsets;
	uint32_t n_sharing;
	uint64_t block_bytes;
	bool must_wait; /* another plan is loading one of its constants */
};
/* Return: 0 or negative errno. */
int draft_init(struct draft *draft, struct residence *residence, enum exec_tier tier);
void draft_deinit(struct draft *draft);
uint64_t draft_device_bytes(const struct draft *draft, uint32_t n_slots);

enum { RESIDENCE_E_QUOTA = 1 };

/* Charges and starts to load. Return: 0; RESIDENCE_E_QUOTA, nothing charged. */
int residence_begin(struct draft *draft, uint32_t n_slots);
/* Lets it go as soon as possible. Fine in any state. */
void residence_evict(struct residence *residence);
/* The same for somebody who says so: who had asked for it to be brought is told. */
void residence_evict_by_hand(struct residence *residence);
/* Lets one that is IN go so that it comes back, elsewhere or anew; it is no eviction. */
void residence_move(struct residence *residence);
/* One that was to come back stays out after all: that is an eviction. */
void residence_stay_out(struct residence *residence);
/* Nothing of its plan is in flight on the device: a DRAINING one goes. */
void residence_drained(struct residence *residence);
void residence_forget_awaited(struct residence *residence);

/* ---- residency-device.c: plans leave a device ---- */

/* Goes on with residency_renew(). */
void residency_renew_on(struct residency_device *device);
/* Goes on with what leaves a device that is drained or lost. */
void residency_empty_on(struct residency_device *device);

/* ---- residency-seek.c: who makes way ---- */

/* The claim of who is not there: what its tenant was promised counts like what it has. */
void seeker_claim(const struct seeker *seeker, uint64_t bytes, struct residency_claim *ret);
/*
 * Is it within what its tenant is owed, on a device that can hold what everybody is owed? By hand,
 * the tenant's own plans make way first.
 */
bool seeker_is_owed(const struct seeker *seeker, uint64_t bytes, bool by_hand);
/*
 * Sends away who may be, for @bytes, if that is enough, or if it is owed to it.
 * Return: is it?
 */
bool seeker_displace(const struct seeker *seeker, uint64_t bytes, bool by_hand);
/*
 * Tenants above a maximum that was lowered: their least wanted plans go, reserve or not.
 * Return: false: there are more, but the turn has no time for them.
 */
bool residency_take_surplus(struct residency_device *device);
/* Evicts plans that the device can no longer hold, down to the reserves. Return: likewise. */
bool residency_take_back(struct residency_device *device);

/* ---- residency-lease.c: who waits for a lease ---- */

/* Grants what there is room for, in the order of asking. */
void residency_leases_serve(struct residency_device *device);
/* Serves leases now if residency_leases_serve_later() asked for that and it is time. */
void residency_leases_serve_due(struct residency_device *device);
/* Leases are told what the limits of their tenants leave to them. */
void residency_leases_limit(struct residency *residency);

/* ---- residency-room.c: who comes and who goes ---- */

enum try_result {
	TRY_STARTED,
	TRY_AWAITED, /* others are leaving for it */
	TRY_LATER,   /* something is in the way that passes */
	TRY_NO_ROOM,
};
/* With @by_hand memory of its own tenant is taken whatever it is worth. */
enum try_result residence_try(struct residence *residence, bool by_hand);
/* A load that failed has been undone: is it tried again, and who is told what? */
void residency_load_failed(struct residence *residence, int r);
/* Where a plan should be: where it is or comes, else the device with most room. NULL: nowhere. */
struct residence *residency_choose(struct residency_plan *plan);
/* Yields, and brings what there is room for: now, or where there are many plans, soon. */
void residency_review(struct residency *residency);
/* For walk.timer: goes on with what turns had no time for, and with who waits for leases. */
void residency_walk_on(struct residency *residency);
