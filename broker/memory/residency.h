#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Residency: what is in device memory, and why
 *
 * The reactor's memory manager. For every plan and device it knows whether the plan's memory is
 * there (constants in blocks shared with other plans of the same owner, and working memory),
 * charges the ledger before the executor is told to load, and takes memory back: from tenants above
 * vram-high first, then from those above their reserve, the least wanted plan first, never one with
 * a task in flight on the device. Who may take from whom is decided in memory/residency-policy.h;
 * here it is done. Reactor thread only.
 *
 * A plan on a device is shown to placement as plan->device_state:
 *   EVICTED    not there; also while it is being loaded or is leaving
 *   READY      there
 *   NO_MEMORY  more than the device or the tenant's maximum can hold: only a changed limit helps
 *   FAILED     the device is lost; everything charged to it is given back
 */
#include <stdbool.h>
#include <stdint.h>

#include "lease/lease.h"
#include "memory/residency-policy.h"
#include "plan/executor.h"
#include "util/cleanup.h"
#include "util/list.h"

struct loop;
struct offload;
struct plan;
struct residency;
struct residency_plan;
struct tenant;

struct residency_options {
	enum residency_policy policy;
	struct loop *loop;
	struct offload *offload;
	struct executor *const *executors;
	uint32_t n_executors;
};

int residency_new(const struct residency_options *options, struct residency **ret);
/* No plan may be left. Return: NULL. */
struct residency *residency_free(struct residency *residency);

/* Host memory that residency takes at most for each constant of a plan on each device. */
#define RESIDENCY_CONSTANT_BYTES 256u

/* ---- Plans: for session-plan.c ------------------------------------------------------------- */

/* Events of a tenant's plans since start. */
struct residency_counts {
	uint64_t n_evictions, n_returns;
	uint64_t n_constraints; /* tasks that went elsewhere for want of memory; the dispatcher's */
};
const struct residency_counts *residency_counts(const struct residency *residency,
						const struct tenant *tenant);

/*
 * A plan, for residency and those who use it. Embedded by who has the plan, and zero until he fills
 * in what residency_add() is to be told.
 */
struct plan_memory {
	/* The dispatcher counts, residency reads and clears. */
	uint32_t n_wanted;     /* tasks, since the last look, that a device with memory has or would
				  have had */
	bool is_wanted;        /* in residency_demand */
	uint16_t leaving;      /* bit i: residency_plan_idle() when n_on_device[i] becomes 0 */
	uint64_t wanted_ticks; /* when the last of them was admitted */
	uint64_t n_constrained;                /* tasks that went elsewhere for want of memory */
	uint32_t n_on_device[RBK_MAX_DEVICES]; /* in flight there */
	struct plan_memory *next_wanted;
	struct residency_counts *counts;  /* its tenant's; */
	struct residency_plan *residency; /* residency's own; NULL: the plan was not added */

	/* Whoever adds it says. */
	struct plan *plan;
	struct tenant *tenant;
	uint32_t session, id;  /* for residency_evict() */
	uint64_t *n_evictions; /* of the session's plans: counted there, too */
};

enum { RESIDENCY_E_SETTLED = 1 };

/*
 * A prepared plan comes into being: loads it where it fits now. @done is called once, later, when
 * the plan is resident or it is clear that it will have to wait.
 * Return: 0; RESIDENCY_E_SETTLED, that is clear already and @done will not be called; negative
 * errno, nothing happened.
 */
int residency_add(struct residency *residency, struct plan_memory *memory,
		  void (*done)(struct plan_memory *memory));
/*
 * Gives back a plan's memory everywhere and forgets the plan; no task of it is in flight. Loading
 * is cut short, waiters complete with -ECANCELED. @done is called once, perhaps from in here, after
 * which no executor has anything of it but what plan_prepare() made. Accepts a plan that was never
 * added.
 */
void residency_remove(struct residency *residency, struct plan_memory *memory,
		      void (*done)(struct plan_memory *memory));

/* What may be known of a plan on a device. */
struct residency_about {
	uint8_t device_state;     /* enum plan_device_state */
	enum exec_tier tier;      /* where READY */
	uint64_t required_bytes;  /* to be resident, with one slot: constants and working memory */
	uint64_t available_bytes; /* that the plan could have at most now, by its tenant's right */
	uint64_t resident_bytes;  /* its share of what is there now */
	uint64_t n_evictions, n_returns;
};
void residency_about(const struct residency *residency, const struct plan_memory *memory,
		     unsigned int device, struct residency_about *ret);

/*
 * What a plan that has a residency has of a device's own memory now, its share of what it shares
 * with others. Unlike residency_about() it looks at that plan only.
 */
uint64_t residency_vram_bytes(const struct plan_memory *memory, unsigned int device);

/* ---- Tasks: for the dispatcher -------------------------------------------------------------- */

/*
 * Plans that tasks wanted on a device in vain, since the last residency_turn(). The dispatcher puts
 * a plan in with residency_want(); it looks at first once per turn.
 */
struct residency_demand {
	struct plan_memory *first;
};
struct residency_demand *residency_demand(struct residency *residency);

/* Hot: a task of @memory's plan went elsewhere, or is refused, for want of memory. */
static inline void residency_want(struct residency_demand *demand, struct plan_memory *memory)
{
	memory->n_constrained++;
	if (memory->is_wanted)
		return;
	memory->is_wanted = true;
	memory->next_wanted = demand->first;
	demand->first = memory;
}

/* Cold; if demand->first: loads what there is room for, soon. */
void residency_turn(struct residency *residency);

enum residency_wish {
	RESIDENCY_PREFETCH, /* bring it now, evicting what it may; -ENOMEM if that is not enough */
	RESIDENCY_WAIT,     /* bring it as soon as there is room, however long that takes */
	RESIDENCY_EVICT,    /* give its memory back, and leave it out until somebody wants it */
	RESIDENCY_WISHES,
};

/* Embedded by who asks. */
struct residency_waiter {
	struct list_node link;
	struct plan_memory *memory;
	/*
	 * 0: it is there (EVICT: gone); -ENOMEM: no room, or never; -ENODEV: no device can run it;
	 * -EIO: the device was lost; -EINTR: PREFETCH, it was evicted by hand while it was on its
	 * way; -ECANCELED: the plan is being removed. May ask again at once.
	 */
	void (*done)(struct residency_waiter *waiter, int res);
	uint8_t wish;   /* enum residency_wish */
	uint8_t device; /* RBK_DEVICE_NONE: any that can run the plan (EVICT: all) */

	/* Residency's. */
	bool is_asked;     /* to be looked at */
	bool was_deferred; /* once before, when there were too many of its kind */
};

/*
 * done() is called exactly once, never from inside this call, unless the waiter is withdrawn. What
 * one tenant asks is looked at in that order; tenants take turns, and all of it together takes a
 * small part of the reactor's time.
 */
void residency_ask(struct residency *residency, struct plan_memory *memory,
		   struct residency_waiter *waiter, enum residency_wish wish, uint8_t device);
/* Before done() was called. */
void residency_withdraw(struct residency *residency, struct residency_waiter *waiter);

/* The last task of the plan on @device came back, and memory->leaving has the device's bit. */
void residency_plan_idle(struct residency *residency, struct plan_memory *memory,
			 unsigned int device);

/* ---- Leases: for session-lease.c ------------------------------------------------------------ */

/* Those of all devices. */
struct leases *residency_leases(struct residency *residency);
/* As lease_new(), for one that is to be granted anything here. */
int residency_lease_new(struct residency *residency, const struct lease_about *about,
			struct lease **ret);
/* Has that device, which there may not be, memory that leases can be of? */
bool residency_has_memory(const struct residency *residency, unsigned int device);
/*
 * Has the lease of @wait granted what it needs, when those who come before it have been served:
 * those of its tenant who asked before, and where it would be above its tenant's part of the
 * device, those of others who wait for what is within theirs. For it plans leave where
 * residency-policy.h allows it. With @patience_ns it waits that long for room,
 * but no longer than LEASE_MAX_WAIT_NS, else only for who is leaving. @wait's done() is called
 * once, perhaps from inside; 0: it is granted, until the caller does something else.
 */
void residency_lease_ask(struct residency *residency, struct lease_wait *wait,
			 uint64_t patience_ns);
/* Before done() was called. */
void residency_lease_withdraw(struct residency *residency, struct lease_wait *wait);
/* Up to its wish into what is free, and what those who wait leave to it. */
void residency_lease_grow(struct residency *residency, struct lease *lease);
/*
 * What somebody of the tenant can be believed to have had there of a broker that ended: what is
 * free, or in use by nobody knows whom.
 */
uint64_t residency_lease_believed(struct residency *residency, unsigned int device,
				  struct tenant *tenant);
/* So much is granted for it now: what it takes of others' use is theirs no longer. */
void residency_lease_believe(struct residency *residency, unsigned int device,
			     struct tenant *tenant, uint64_t bytes);
/* What was granted or given there is less, or otherwise, than before. */
void residency_leases_changed(struct residency *residency, unsigned int device);
/*
 * Why there is no room for it: sets wait->available_bytes, and wait->ahead_bytes. Of one that is
 * refused this has been done.
 */
void residency_lease_look(struct residency *residency, struct lease_wait *wait);

/* ---- What happens around it ------------------------------------------------------------------ */

/*
 * What all tenants together can have of a device now, in bytes: its total without headroom and
 * without what others use. If it shrank, memory is given back at once.
 */
void residency_set_usable(struct residency *residency, unsigned int device, uint64_t vram_bytes,
			  uint64_t gtt_bytes);

/*
 * What all tenants' reserves on it come to, of those who are away, too: leases leave that to them.
 */
void residency_set_reserved(struct residency *residency, unsigned int device, uint64_t vram_bytes);

/* What others than the broker and members of leases, as far as is known, use on it. */
void residency_set_outside(struct residency *residency, unsigned int device, uint64_t vram_bytes);

/*
 * A task failed on a device. If that was lost: once nothing is in flight on it (the dispatcher sees
 * to that: executors hand tasks of a lost device back) all its memory is given back and it is
 * reopened, with back-off; then plans return. Return: is it lost?
 */
bool residency_device_lost(struct residency *residency, unsigned int device);

/*
 * It is known from elsewhere that a device is gone or has lost what it held, though no task has
 * failed: it is lost, as above. @why is for the log.
 */
void residency_device_gone(struct residency *residency, unsigned int device, const char *why);
/* A device that was gone is there again: if it is lost, it is reopened without further delay. */
void residency_device_present(struct residency *residency, unsigned int device);
/*
 * An administrator wants nothing on the device, or does again: what is there leaves when its tasks
 * have ended, and nothing comes until then. Placement sees PLAN_DEVICE_FAILED, as of a lost one.
 */
void residency_set_drained(struct residency *residency, unsigned int device, bool is_drained);
/* It is not lost, nor being reopened, nor drained; true of those without memory of their own. */
bool residency_is_up(const struct residency *residency, unsigned int device);
/*
 * The broker itself loads something beside what is resident, and charges it. Until it leaves, a
 * device that is lost is not reopened, for nothing may be loaded then.
 * Return: false if the device is lost or being reopened.
 */
bool residency_guest_enter(struct residency *residency, unsigned int device);
void residency_guest_leave(struct residency *residency, unsigned int device);
/* How often a device was reopened. */
uint32_t residency_n_reopened(const struct residency *residency, unsigned int device);
/* @reopened is called after each time; NULL: nobody is told any more. */
void residency_on_reopened(struct residency *residency,
			   void (*reopened)(void *context, unsigned int device), void *context);

/* What residency_evict() takes. Zero-initialised but for device: everything. */
struct residency_victims {
	const struct tenant *tenant; /* NULL: every one */
	uint32_t session;            /* its number, with plan_id; 0: every plan of the tenant */
	uint32_t plan_id;
	uint8_t device; /* RBK_DEVICE_NONE: all */
};
/*
 * Plans give their memory back as by RESIDENCY_EVICT, for somebody who waits for nothing. How many
 * leave, and what that will give back, goes to *ret_n and *ret_bytes. Return: is there any such
 * plan, on a device or not?
 */
bool residency_evict(struct residency *residency, const struct residency_victims *victims,
		     uint64_t *ret_n, uint64_t *ret_bytes);

/*
 * The driver may have moved some of what is on a device out of its memory, without saying what. The
 * plan that has been there longest, of those that came before @before_ns (CLOCK_MONOTONIC), goes
 * and comes back at once, with those that share memory with it, which may take some turns; those
 * that no task uses right now are first. Figures do not count that as an eviction. Return: is
 * there, or was there, such a plan? It may have to wait for what is under way: then nothing happens
 * yet.
 */
bool residency_renew(struct residency *residency, unsigned int device, uint64_t before_ns);

/*
 * Is there a plan that was pushed out of a device's memory from outside, or was wanted in vain of
 * late? It comes back as soon as there is room, so whoever watches the devices should look closely.
 */
bool residency_is_pressed(const struct residency *residency);

/* New limits of tenants are in force. */
void residency_limits_changed(struct residency *residency);

DEFINE_CLEANUP(struct residency *, residency_free)
