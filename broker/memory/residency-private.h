#pragma once
/* SPDX-License-Identifier: MIT */
/* Declarations shared by the residency-*.c files; no other file includes this header. */
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
	RESIDENCY_MAX_LOADS = 2,    /* simultaneous loads of one tenant on one device */
	RESIDENCY_MAX_AWAITED = 64, /* AWAITED plans of one tenant on one device */
	RESIDENCY_MAX_DRAFTS = 8,   /* candidates of each kind tried in one review */
	RESIDENCY_MAX_VICTIMS = 64, /* plans that one request may displace */
	/*
	 * pause between reviews, or passes over lease waits, as a multiple of the last one's
	 * duration
	 */
	RESIDENCY_PAUSE = 20,
	RESIDENCY_MAX_HELD = 256, /* held waiters of a plan, by wish; they are answered at once */
	RESIDENCY_SLICE = 256,    /* plans, or blocks of a plan, visited in one turn */
	/* a plan is large if it holds more than 1/512 of a device's memory */
	RESIDENCY_LARGE = 512,
	RESIDENCY_SMALL = 256, /* small plans of one tenant that one search visits */
	RESIDENCY_FIRST_HOLDOFF_NS = 250000000, /* time from an eviction to the earliest return */
};
static const uint64_t residency_max_holdoff_ns = 10ull * 1000 * 1000 * 1000;

/* Charges for bytes of a device and their mappings; host is empty except in GTT. */
struct memory_charge {
	struct charge device, host, mappings;
};

/* A constant in a block, with its key in the index. */
struct resident_constant {
	struct resident_constant *next; /* in its bucket */
	/* pointer in the bucket's list that points to this constant */
	struct resident_constant **at;
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

/* Index of the constants on a device by their keys: see residency-index.c. */
struct resident_index {
	struct resident_constant **segments[RESIDENT_INDEX_SEGMENTS]; /* arrays of buckets */
	uint32_t n_buckets;
	uint32_t n_constants;
	/*
	 * Constants of the bucket being split that are not yet distributed to it and the last
	 * bucket.
	 */
	struct resident_constant *splitting;
	uint64_t seed;
};

/*
 * A block of constants on a device. Other plans share the block once it is loaded; the last of them
 * frees it.
 */
struct resident_block {
	struct exec_block exec;
	struct resident_constant *constants; /* exec.n_constants elements */
	uint64_t owner;                      /* struct exec_arena.owner */
	uint64_t draft_number;               /* see draft_init() */
	uint32_t n_sharers; /* residences that have not given it up; its charge is refunded at 0 */
	uint32_t n_there;   /* sharers that are LOADING or IN; at 0 it is leaving */
	uint32_t n_in;      /* sharers that are IN */
	uint32_t n_staying; /* sharers that are not UNLOADING; at 0 it is not in the index */
	bool is_loaded;
	uint64_t renewal_number; /* number of the last renewal that frees it */
	struct memory_charge charge;
};

enum residence_state {
	RESIDENCE_OUT,
	RESIDENCE_AWAITED,   /* other plans are being evicted to make room */
	RESIDENCE_LOADING,   /* charged; the setup thread loads */
	RESIDENCE_IN,        /* READY */
	RESIDENCE_DRAINING,  /* is unloaded when its tasks on the device have completed */
	RESIDENCE_UNLOADING, /* the setup thread unloads */
};

/* A plan on a device. */
struct residence {
	struct list_node link;      /* in residency_device.awaiting or .residences, unless OUT */
	struct list_node returning; /* in residency_holding.returning if must_return */
	/*
	 * in a residency_holding while it is IN and holds VRAM; in residency_device.second_tier
	 * while it is IN in GTT
	 */
	struct list_node holding;
	struct list_node aging; /* in residency_device.by_age while it is IN and holds VRAM */
	struct residency_plan *plan;
	struct residency_device *device;
	enum residence_state state;
	enum exec_tier tier;
	uint32_t n_slots;
	uint64_t required_bytes; /* residence_required() */
	uint64_t awaited_bytes;
	uint64_t tried_number; /* residency.n_reviews at the last attempt to load it */
	uint64_t asked_number; /* residency.n_asked_turns at the last attempt for a waiter */
	int asked_result;      /* result of that attempt: enum try_result */
	uint8_t asked_force;   /* enum residency_force of that attempt */
	bool is_retry;         /* second attempt, after the driver had no memory */
	bool must_leave;       /* to be evicted as soon as it is loaded */
	bool is_moving;        /* being unloaded in order to be reloaded; not counted */
	bool must_return;      /* unloaded by residence_move(), and to be reloaded */
	bool is_pressed;       /* evicted because of outside memory use */
	/* block_load() of @own returned 0; owned by the setup thread while LOADING */
	bool is_own_filled;

	/* Valid unless OUT or AWAITED. */
	struct resident_block *own;      /* block made for it; NULL: all constants were resident */
	struct resident_block **sharing; /* every block in use, including own, each once */
	uint32_t n_sharing;
	uint32_t n_freeing;               /* UNLOADING: number of leading blocks to be freed */
	bool is_work_freed;               /* UNLOADING: plan_unload() was called */
	const struct exec_block **blocks; /* by constant */
	uint64_t *offsets;
	struct memory_charge work_charge;
	struct charge host_charge; /* host memory that the CPU writes for the device */
	uint64_t leaving_bytes;    /* VRAM bytes of its working memory counted as leaving */
	struct offload_job job;
	int job_result;
	int load_result; /* not 0: the load that is being undone failed */

	uint64_t came_ns, left_ns;
	uint64_t sought_ns; /* time at which the present load was begun, or room set aside for it */
	double bring_ns;    /* how long it came for tasks that waited, a mean; 0: none has */
	uint64_t brought_ns; /* time at which that was learned */
	uint64_t load_ns;    /* time of the present load alone; the setup thread's while LOADING */
	uint64_t holdoff_ns; /* time after left_ns before it may be loaded unasked */
	uint32_t n_lost;     /* consecutive loads that ended with the loss of the device */
	uint64_t n_evictions, n_returns;
};

struct residency_plan {
	struct list_node link;   /* in residency.plans, or in .unable if supported is 0 */
	struct list_node waited; /* in residency.waited while waiters for a load are held */
	struct residency *residency;
	struct plan_memory *memory;
	struct tenant *tenant; /* counted */
	/*
	 * Waiters by wish: held ones have been handled and wait for the plan; deferred ones, beyond
	 * RESIDENCY_MAX_HELD, are handled again.
	 */
	struct list_node held[RESIDENCY_WISHES], deferred[RESIDENCY_WISHES];
	uint32_t n_held[RESIDENCY_WISHES];
	uint32_t n_asked;   /* waiters to be handled, including deferred ones */
	uint16_t is_named;  /* bit i: a held waiter may want device i and no other */
	double value;       /* see residency_value() */
	uint64_t folded_ns; /* time at which value was computed */
	uint64_t used_ns;   /* time of the last request for the plan */
	uint16_t supported; /* bit i: prepared for device i */
	bool is_parked;     /* evicted by hand, and not wanted since */
	uint16_t must_go;   /* bit i: the next walk evicts the plan from device i, by hand */
	void (*added)(struct plan_memory *memory);
	void (*removed)(struct plan_memory *memory);
	struct residence on[]; /* by device */
};

/* A tenant's plans on a device that may be evicted: see residency-seek.c. */
struct residency_holding {
	struct list_node large, small; /* residences; the next to be visited first */
	struct list_node returning;    /* residences with must_return */
	uint64_t round_number;         /* device.n_bring_rounds in which they were tried last */
};

/* Residency's record of a tenant that has or had plans or leases. */
struct tenant_memory {
	struct list_node link; /* in residency.holders if n_plans > 0 */
	struct tenant *tenant;
	uint32_t n_plans;
	/* sum of residence_bytes() of the plans that are IN in VRAM */
	uint64_t evictable[RBK_MAX_DEVICES];
	uint64_t leaving[RBK_MAX_DEVICES];   /* VRAM bytes that are being freed */
	uint64_t awaited[RBK_MAX_DEVICES];   /* VRAM bytes set aside for AWAITED plans and leases */
	uint32_t n_awaited[RBK_MAX_DEVICES]; /* AWAITED plans */
	uint32_t n_loads[RBK_MAX_DEVICES];   /* plans that are LOADING */
	uint64_t sum_number; /* residency.n_sums of the last sum that counted the tenant */
	/*
	 * residency.n_passes of the last pass over lease waits in which a wait of the tenant found
	 * no room
	 */
	uint64_t blocked_number;
	/* Sums over the waits that a pass has visited so far: see residency-lease.c. */
	uint64_t wait_number, ahead_bytes, holding_bytes;
	struct list_node asked;  /* residency_waiters to be handled */
	struct list_node asking; /* in residency.asking while asked is not empty */
	struct residency_counts counts;
	struct residency_holding on[RBK_MAX_DEVICES]; /* valid while n_plans > 0 */
};

/* The record of a tenant without plans and leases, all zero; defined in residency-figures.c. */
extern const struct tenant_memory tenant_memory_none;

static inline const struct tenant_memory *memory_of(const struct tenant *tenant)
{
	return tenant->memory ? tenant->memory : &tenant_memory_none;
}

enum residency_device_state {
	RESIDENCY_DEVICE_NONE, /* no memory of its own */
	RESIDENCY_DEVICE_UP,
	RESIDENCY_DEVICE_DRAINED, /* is_drained, and not lost */
	RESIDENCY_DEVICE_LOST,    /* plans are leaving it */
	RESIDENCY_DEVICE_REOPENING,
	RESIDENCY_DEVICE_AWAY, /* reopening failed; the timer retries */
};

struct residency_device {
	struct residency *residency;
	struct executor *executor;
	enum residency_device_state state;
	bool is_drained; /* drained at an administrator's request */
	uint8_t index;
	uint64_t usable_bytes[EXEC_TIER_COUNT];
	uint64_t charged_bytes[EXEC_TIER_COUNT]; /* bytes charged for plans and blocks */
	uint64_t leaving_bytes;   /* VRAM bytes that are being freed, a part of charged_bytes */
	uint64_t evictable_bytes; /* sum of tenant_memory.evictable */
	uint64_t awaited_bytes;   /* sum of tenant_memory.awaited, to be charged after evictions */
	uint64_t reserved_bytes;  /* VRAM reserves of all tenants */
	uint64_t outside_bytes;   /* VRAM bytes that outside processes use */
	uint64_t refused_bytes;   /* VRAM bytes withheld while a refused load is retried */
	uint64_t leased_bytes;    /* bytes granted to leases at the last look, or more */
	/* sums over the last loads: their times alone, and what was loaded */
	double load_ns, load_bytes;
	uint64_t asked_ns; /* when a lease was last asked to sleep; 0: none is asked */
	/* part of each tenant beside its reserve: see residency-lease.c */
	uint64_t lease_part_bytes;
	uint64_t holding_bytes;  /* sum of tenant_memory.holding_bytes */
	uint64_t n_pass_visits;  /* plans visited in the last pass over lease waits */
	uint64_t n_rounds;       /* number of the round: see residency_leases_serve() */
	bool is_round_cut;       /* the next pass continues the last round */
	bool must_serve;         /* a pass is due */
	uint64_t serve_ns;       /* earliest time of the next pass */
	bool has_new_waits;      /* lease waits may have become deadlocked since the last search */
	uint64_t n_bring_rounds; /* rounds over AWAITED and returning plans */
	struct list_node *bring_next; /* entry of awaiting to be tried next in the current round */
	bool is_bringing;             /* the current round has not ended */
	bool must_bring_again;        /* a review has requested another round */
	bool is_above;                /* the turn ended before enough plans were evicted */
	uint32_t n_vain_searches;     /* consecutive searches for plans to evict that found none */
	uint32_t n_jobs;
	uint32_t n_guests; /* loads by other modules under way: residency_guest_enter() */
	uint32_t n_moving; /* residences with is_moving */
	uint64_t n_renewals;
	/* entry of by_age to be visited next by the last renewal; NULL: it has ended */
	struct list_node *renew_next;
	uint32_t n_renew_sweeps; /* sweeps over by_age that the last renewal has begun */
	bool has_renew_grown;    /* the current sweep has added blocks to be freed */
	uint32_t n_reopened;
	struct list_node residences;  /* residences that are neither OUT nor AWAITED */
	struct list_node awaiting;    /* AWAITED residences, in the order of their requests */
	struct list_node by_age;      /* residences IN that hold VRAM, the oldest first */
	struct list_node second_tier; /* residences IN in GTT, the next to be visited first */
	uint32_t n_second_tier;
	uint32_t n_to_promote; /* entries of second_tier left to visit since the last review */
	/* first entry of residences still to be evicted, with all that follow; NULL: none */
	struct list_node *evict_next;
	struct resident_index index_of_constants; /* constants of blocks with n_staying > 0 */
	struct offload_job job;
	int job_result;
	uint64_t reopen_ns, backoff_ns;
};

struct candidate {
	struct residence *residence;
	struct residency_claim claim;
};

struct candidates {
	struct candidate of[RESIDENCY_MAX_DRAFTS]; /* the best first */
	uint32_t n, n_tried;
	bool in_turn; /* candidates not tried for the longest time come first */
	bool is_full; /* some candidates were dropped */
};

/* The walk over all plans in a review, in slices of one turn each. */
struct residency_walk {
	struct loop_timer *timer;
	/* entry of residency.plans to be visited next; NULL: no walk is under way */
	struct list_node *next;
	uint32_t n_left;  /* plans left to visit; plans added later wait for the next walk */
	bool is_outdated; /* another review has begun since */
	bool is_showing;  /* residence_show() is due for each plan */
	struct candidates waiting, wanted; /* among the plans visited */
	bool is_wishing, is_pressed;       /* results for the plans visited */
	uint64_t next_ns; /* end of the earliest hold-off among the plans visited */
};

struct residency {
	struct residency_options options;
	struct leases leases;
	uint64_t n_parts;      /* number of the last computation of tenant_leases.part_bytes */
	bool has_large_leases; /* some tenant's leases exceed its maximum */
	uint64_t n_passes;     /* passes over lease waits; see tenant_memory.blocked_number */
	uint64_t n_wait_sums;  /* sums over lease waits; see tenant_memory.wait_number */
	bool is_serving;
	uint64_t started_ns;
	uint64_t returning_ns; /* until then, members of an earlier broker may still come back */
	struct residency_demand demand;
	struct list_node plans;  /* plans that some device with memory can run */
	struct list_node unable; /* all other plans */
	struct list_node waited; /* plans, by residency_plan.waited */
	/*
	 * in waited, before the plans that residency_tell_hopeless() has visited; otherwise in no
	 * list
	 */
	struct list_node told;
	struct list_node holders;
	struct list_node asking; /* tenants with waiters to be handled; they take turns */
	uint32_t n_plans;
	bool must_show; /* residence_show() of each plan is due in the next walk */
	uint64_t n_drafts, n_asked_turns, n_reviews;
	uint64_t n_visits; /* plans visited by searches for plans to evict */
	uint64_t n_sums;   /* sums over tenants; see tenant_memory.sum_number */
	uint64_t look_ns,
		look_ticks; /* time as of which plans are compared; see residency_look() */
	struct residency_walk walk;
	struct loop_timer *timer;
	uint64_t timer_ns;    /* expiry of timer; 0: not set */
	bool is_put_off;      /* the review was put off once */
	uint64_t reviewed_ns; /* begin of the last review */
	uint64_t review_ns;   /* duration of the last review, and of those during its walk */
	uint64_t asked_ns;    /* time spent on handling waiters before the last review */
	bool is_reviewing;
	struct log_limit failure_limit;
	bool is_pressed; /* result of the last walk */
	/*
	 * Set to residency_load_failed(): called when a load has failed with @r and has been
	 * undone.
	 */
	void (*load_failed)(struct residence *residence, int r);
	void (*reopened)(void *context, unsigned int device);
	void *reopened_context;
	struct residency_saved *saved; /* the last broker's plans; NULL: not known */
	struct residency_device devices[RBK_MAX_DEVICES];
};

/* ---- residency-saved.c ---- */

/*
 * Let a new plan go on as it was under the last broker, if that has saved it.
 * Return: true if it was in the memory of no device.
 */
bool residency_saved_take(struct residency_plan *plan);

/* ---- residency-index.c ---- */

/* Return: 0 or negative errno. */
int resident_index_init(struct resident_index *index);
void resident_index_deinit(struct resident_index *index);
/*
 * Add a block's constants. Never fails: if the table cannot grow for lack of memory, look-ups
 * become slower.
 */
void resident_index_add(struct resident_index *index, struct resident_block *block);
void resident_index_remove(struct resident_index *index, struct resident_block *block);
/* Return: a constant; NULL if no block of @owner in @tier contains @wanted. */
struct resident_constant *resident_index_find(const struct resident_index *index, uint64_t owner,
					      enum exec_tier tier,
					      const struct plan_constant *wanted);

/* ---- residency-figures.c: sizes, values and free memory ---- */

/* Return the time that the plan's own bytes take over the device's link; 0: unknown. */
static inline double residence_link_ns(const struct residence *residence)
{
	const struct residency_device *device = residence->device;

	return device->load_bytes > 0
		       ? device->load_ns / device->load_bytes * (double)residence->required_bytes
		       : 0;
}

/* Update the state that placement sees. */
void residence_show(struct residence *residence);
/* Return true if the plan is OUT on @device, or with RBK_DEVICE_NONE on all devices. */
bool residency_plan_is_gone(const struct residency_plan *plan, uint8_t device);
/* Return the bytes that evicting the plan would free, including blocks that no other plan keeps. */
uint64_t residence_bytes(const struct residence *residence);
/* Return true if the plan fits into the device and into its tenant's maximum. */
static inline bool residence_fits(const struct residence *residence)
{
	const struct tenant *tenant = residence->plan->tenant;

	return residence->required_bytes <= tenant->shares[residence->device->index].max &&
	       residence->required_bytes <= residence->device->executor->info.memory_bytes;
}
/* Return the bytes that the plan needs with one slot and without sharing; UINT64_MAX: overflow. */
uint64_t residence_required(const struct residence *residence);
/* Return the largest number of bytes that the plan could have now by its tenant's limits. */
uint64_t residence_available(const struct residence *residence);
/*
 * Set the time as of which plans are compared from now on. A plan's value is updated when it is
 * compared, at most once between two calls of this function.
 */
void residency_look(struct residency *residency);
/*
 * Add the tasks counted since the last call to the plan's value, as of now or as of the given time.
 */
void residency_fold_plan(struct residency_plan *plan);
void residency_fold_plan_at(struct residency_plan *plan, uint64_t now_ns, uint64_t now_ticks);
/* Update the plan's value to the time of the last residency_look(). */
static inline void residency_look_at(struct residency_plan *plan)
{
	const struct residency *residency = plan->residency;

	if (plan->folded_ns < residency->look_ns)
		residency_fold_plan_at(plan, residency->look_ns, residency->look_ticks);
}

/* A plan or a lease that requests memory on a device. */
struct seeker {
	struct residency_device *device;
	struct tenant *tenant;
	struct residence *residence; /* NULL: a lease */
	uint64_t awaited_bytes;      /* bytes set aside for it */
	bool shares; /* the last draft was the request's, and counts on blocks of other plans */
	/* true: plans whose blocks the request shares may be evicted, and the blocks with them */
	bool gives_up_shared;
};
/* Return the bytes set aside for other requests of its tenant. */
uint64_t seeker_tenant_awaited(const struct seeker *seeker);
/* Return the bytes that the seeker could have now without an eviction. */
uint64_t seeker_room(const struct seeker *seeker);
/*
 * Return the largest number of bytes that could be granted to leases of the tenant beside those
 * granted, if plans are evicted for them.
 */
uint64_t residency_lease_room(const struct residency_device *device, const struct tenant *tenant);
/*
 * Return the tenant's maximum less the bytes that it uses and that are set aside for its other
 * requests; may be negative.
 */
int64_t seeker_tenant_free(const struct seeker *seeker);
/*
 * Return the VRAM bytes that are neither used nor set aside, counting bytes that are being freed as
 * free; negative: memory must be taken back.
 */
int64_t residency_device_free(const struct residency_device *device);
/*
 * Return the largest number of bytes that a tenant could get now by its limits, evicting its own
 * plans.
 */
uint64_t residency_available(const struct residency_device *device, const struct tenant *tenant);
/* Return the VRAM bytes that a tenant holds on a device and is not giving back. */
uint64_t residency_tenant_used(const struct residency_device *device, const struct tenant *tenant);
int64_t residency_tenant_free(const struct residency_device *device, const struct tenant *tenant);

/* ---- residency-timer.c ---- */

/*
 * Return the time before which no review begins. The pause grows with the duration of reviews, so
 * that they take a small part of the reactor's time.
 */
uint64_t residency_paused_until_ns(const struct residency *residency);
/*
 * Schedule residency_review() for @delay_ns from now, or for the end of the pause if that is later.
 */
void residency_review_in(struct residency *residency, uint64_t delay_ns);
/* Return true if the next turn must continue a review, or work that concerns many plans. */
bool residency_goes_on(const struct residency *residency);
/* Continue the rest in the next turns, without a pause. */
void residency_go_on_soon(struct residency *residency);
/* Call residency_leases_serve() in a later turn. */
void residency_leases_serve_later(struct residency_device *device);

/* ---- residency-wait.c ---- */

static inline struct residency_waiter *waiter_of(struct list_node *node)
{
	return container_of(node, struct residency_waiter, link);
}
/* End the wait and answer the waiter. */
void waiter_finish(struct residency_waiter *waiter, int res);
/* Hold a waiter that has been handled until its plan changes. */
void waiter_stay(struct residency_waiter *waiter);
/* Return: 0, or the negative errno for a waiter whose plan can never be loaded. */
int waiter_verdict(const struct residency_plan *plan, const struct residency_waiter *waiter);
/*
 * Answer the waiters for a load: with 0 when @residence is resident, or with the negative @res when
 * it will not be.
 */
void residency_tell(struct residence *residence, int res);
/* Tell the waiters for a prefetch that the plan was evicted by hand. */
void residency_tell_interrupted(struct residence *residence);
/*
 * Call the done() of residency_add(), unless it has been called: the wait for the first load is
 * over.
 */
void residency_tell_added(struct residency_plan *plan);
/* Answer the waiters for an eviction that has completed. */
void residency_tell_gone(struct residence *residence);
/*
 * Answer the waiters whose plans can no longer be loaded, because limits were lowered or a device
 * was lost. Where many wait, the next turns answer the rest.
 */
void residency_tell_hopeless(struct residency *residency);
void residency_tell_on(struct residency *residency);

/* ---- residency-reopen.c ---- */

bool residency_device_is_lost(const struct residency_device *device);
/* Continue with a lost device; call whenever work on the device has ended. */
void residency_device_settle(struct residency_device *device);
/* Reopen the devices whose back-off has ended. */
void residency_devices_turn(struct residency *residency);

/* ---- residency-plan.c: records ---- */

/* Make the record of a tenant unless it has one. Return: 0 or -ENOMEM. */
int tenant_memory_make(struct tenant *tenant);
/* Return: the record; NULL: no memory. */
struct residency_plan *residency_plan_new(struct residency *residency, struct plan_memory *memory);
/*
 * Forget a plan that is being removed and is on no device any more. Return: true if it was
 * forgotten.
 */
bool residency_plan_settle(struct residency_plan *plan);
/* Let searches visit a residence that is IN, until residence_release(). */
void residence_hold(struct residence *residence);
void residence_release(struct residence *residence);
typedef void (*residency_holder_fn)(struct residence *residence, uint64_t bytes, void *data);
/*
 * Call @fn for all or some of a tenant's plans that may be evicted. @fn must not change any of
 * them.
 */
void residency_visit_holders(struct tenant_memory *memory, unsigned int device,
			     residency_holder_fn fn, void *data);

/* ---- residency-load.c: loading and unloading one plan ---- */

/* A load as it would be made. Call draft_deinit() unless residence_begin() succeeded. */
struct draft {
	struct residence *residence;
	enum exec_tier tier;
	struct resident_block *own;
	struct resident_block **sharing;
	const struct exec_block **blocks;
	uint64_t *offsets;
	uint32_t n_sharing;
	uint64_t block_bytes;
	bool must_wait; /* another plan is loading a constant that the plan needs */
};
/* Return: 0 or negative errno. */
int draft_init(struct draft *draft, struct residence *residence, enum exec_tier tier);
void draft_deinit(struct draft *draft);
uint64_t draft_device_bytes(const struct draft *draft, uint32_t n_slots);

enum { RESIDENCE_E_QUOTA = 1 };

/* Charge and start a load. Return: 0; RESIDENCE_E_QUOTA: nothing was charged. */
int residence_begin(struct draft *draft, uint32_t n_slots);
/* Evict a plan as soon as possible, in any state. */
void residence_evict(struct residence *residence);
/* The same at a client's or an administrator's request: waiters for a prefetch are answered. */
void residence_evict_by_hand(struct residence *residence);
/*
 * Unload a residence that is IN and reload it, on this or another device. Not counted as an
 * eviction.
 */
void residence_move(struct residence *residence);
/* Give up reloading after residence_move(), which makes the unloading an eviction. */
void residence_stay_out(struct residence *residence);
/* Unload a DRAINING residence, if none of its plan's tasks is in flight on the device. */
void residence_drained(struct residence *residence);
void residence_forget_awaited(struct residence *residence);

/* ---- residency-device.c: plans leave a device ---- */

/* Continue residency_renew(). */
void residency_renew_on(struct residency_device *device);
/* Continue to evict the plans of a device that is drained or lost. */
void residency_empty_on(struct residency_device *device);

/* ---- residency-seek.c: which plans are evicted ---- */

/* Plans that a request may evict */
enum residency_force {
	RESIDENCY_BY_VALUE,     /* what the policy allows */
	RESIDENCY_OWN_SEGMENTS, /* idle streamed segments of its plan, the last used first */
	RESIDENCY_BY_HAND,      /* what the policy allows, and all plans of its tenant */
};

/*
 * Fill in the claim of a seeker for @bytes. Bytes set aside for its tenant's other requests count
 * as used.
 */
void seeker_claim(const struct seeker *seeker, uint64_t bytes, struct residency_claim *ret);
/*
 * Return true if the request is owed: it is within its tenant's reserve, on a device that can hold
 * what all tenants are owed. With @by_hand, the tenant's own plans are evicted first.
 */
bool seeker_is_owed(const struct seeker *seeker, uint64_t bytes, bool by_hand);
/*
 * Evict plans for *@bytes if that frees enough, or if the request is owed. Plans that keep blocks
 * which the request shares go only where nothing else helps; *@bytes is then what the request needs
 * without them.
 * Return: true in both cases, otherwise false.
 */
bool seeker_displace(const struct seeker *seeker, uint64_t *bytes, enum residency_force force);
/*
 * Evict the least wanted plans of tenants above a lowered maximum, even below their reserves.
 * Return: false if the turn ended before all were evicted.
 */
bool residency_take_surplus(struct residency_device *device);
/*
 * Evict plans that the device can no longer hold, down to the reserves.
 * Return: false if the turn ended before all were evicted.
 */
bool residency_take_back(struct residency_device *device);

/* ---- residency-lease.c: waits for leases ---- */

/* Serve the waits for leases in the order of the requests. */
void residency_leases_serve(struct residency_device *device);
/* Serve leases if residency_leases_serve_later() asked for that and the pause is over. */
void residency_leases_serve_due(struct residency_device *device);
/* Tell leases what the limits of their tenants leave to them. */
void residency_leases_limit(struct residency *residency);

/* ---- residency-room.c: which plans are loaded and evicted ---- */

enum try_result {
	TRY_STARTED,
	TRY_AWAITED, /* other plans are being evicted for it */
	TRY_LATER,   /* a temporary obstacle, such as a load under way */
	TRY_NO_ROOM,
};
/* Try to load a plan; @force says what is evicted for it. */
enum try_result residence_try(struct residence *residence, enum residency_force force);
/* Decide whether to retry a load that failed and has been undone, and answer the waiters. */
void residency_load_failed(struct residence *residence, int r);
/*
 * Choose the device for a plan: the one where the plan is IN, LOADING or AWAITED, otherwise the one
 * with most free memory. Return: the residence, or NULL: no device is suitable.
 */
struct residence *residency_choose(struct residency_plan *plan);
/*
 * Take back memory where limits require it, then load the plans that fit; with many plans, in later
 * turns.
 */
void residency_review(struct residency *residency);
/* For walk.timer: continue the work that turns had no time for, and serve waits for leases. */
void residency_walk_on(struct residency *residency);
