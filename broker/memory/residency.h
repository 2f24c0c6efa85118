#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Residency: which plans are in device memory
 *
 * The reactor's memory manager. For every plan and device it knows whether the plan's memory is
 * resident: its working memory, and its constants, which lie in blocks shared with other plans of
 * the same owner. It charges the ledger before it tells the executor to load, and it evicts plans:
 * first those of tenants above vram-high, then those of tenants above their reserve, the least
 * wanted plan first. A plan leaves a device only when none of its tasks is in flight there.
 * memory/residency-policy.h decides which plan may displace which; this module carries the decision
 * out. Reactor thread only.
 *
 * Placement reads the state of a plan on a device from plan->device_state:
 *   EVICTED    not resident; also while the plan is being loaded or unloaded
 *   READY      resident
 *   NO_MEMORY  larger than the device or the tenant's maximum: only a changed limit helps
 *   FAILED     the device is lost, and all charges for it are refunded; or it is drained
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

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

/* Upper bound of residency's host memory for each constant of a plan on each device. */
#define RESIDENCY_CONSTANT_BYTES 256u

/* ---- Plans: for session-plan.c ------------------------------------------------------------- */

/* Events of a tenant's plans since brokerd started. */
struct residency_counts {
	uint64_t n_evictions, n_returns;
	/* tasks refused or placed elsewhere for lack of memory; the dispatcher counts */
	uint64_t n_constraints;
};
const struct residency_counts *residency_counts(const struct residency *residency,
						const struct tenant *tenant);

/*
 * Residency's record of a plan. The plan's owner embeds the record, zeroes it, and fills in the
 * members under "Set by the owner" before residency_add().
 */
struct plan_memory {
	/*
	 * The dispatcher counts; residency reads and clears. n_wanted is the number of tasks since
	 * then that a device with memory ran, or would have run if the plan had been resident.
	 */
	uint32_t n_wanted;
	bool is_wanted; /* added to residency_demand since the last review */
	/* The dispatcher's: a segment that may make way for another by RESIDENCY_STREAM */
	bool is_streamed;
	uint16_t leaving;      /* bit i: call residency_plan_idle() when n_on_device[i] becomes 0 */
	uint64_t wanted_ticks; /* admission time of the last task in n_wanted */
	uint64_t n_constrained; /* tasks refused or placed elsewhere for lack of memory */
	uint32_t n_on_device[RBK_MAX_DEVICES]; /* tasks in flight, by device */
	struct plan_memory *next_wanted;
	struct residency_counts *counts;  /* the tenant's */
	struct residency_plan *residency; /* private; NULL: not added */

	/* Set by the owner. */
	struct plan *plan;
	struct tenant *tenant;
	uint32_t session, id;  /* for residency_evict() */
	uint64_t *n_evictions; /* the session's counter of evictions; incremented by residency */
};

enum {
	RESIDENCY_E_SETTLED = 1,
	RESIDENCY_E_IMPOSSIBLE =
		2, /* residency_restore(): the bytes are none of residency_save() */
};

/*
 * Append to @stream which plans are in which device's memory. @keys tells devices
 * apart, across restarts. Errors are those of the stream.
 */
void residency_save(const struct residency *residency, const uint64_t *keys, FILE *stream);
/*
 * Have plans that are added from now on be where they were when residency_save() wrote @bytes, just
 * before the last broker ended. The bytes are copied.
 * Return: 0; RESIDENCY_E_IMPOSSIBLE, and nothing has changed; -ENOMEM.
 */
int residency_restore(struct residency *residency, const uint64_t *keys, const void *bytes,
		      size_t n_bytes);

/*
 * Add a prepared plan, and load it if it fits now. @done is called once, later, when the plan is
 * resident or it is clear that the plan has to wait for memory.
 * Return: 0; RESIDENCY_E_SETTLED: the plan is not being loaded, and @done will not be called; a
 * negative errno: nothing happened.
 */
int residency_add(struct residency *residency, struct plan_memory *memory,
		  void (*done)(struct plan_memory *memory));
/*
 * Refund a plan's memory on all devices and forget the plan. No task of the plan may be in flight.
 * Loads are cancelled, and waiters complete with -ECANCELED. @done is called once, perhaps inside
 * this call; by then the executors hold nothing of the plan except what plan_prepare() made. A plan
 * that was never added is accepted.
 */
void residency_remove(struct residency *residency, struct plan_memory *memory,
		      void (*done)(struct plan_memory *memory));

/* Figures of a plan on a device. */
struct residency_about {
	uint8_t device_state; /* enum plan_device_state */
	enum exec_tier tier;  /* if READY */
	/* bytes that the plan needs to be resident with one slot: constants and working memory */
	uint64_t required_bytes;
	/* largest number of bytes that the plan could have now by its tenant's limits */
	uint64_t available_bytes;
	/* bytes that the plan holds now, counting its share of shared blocks */
	uint64_t resident_bytes;
	uint64_t n_evictions, n_returns;
};
void residency_about(const struct residency *residency, const struct plan_memory *memory,
		     unsigned int device, struct residency_about *ret);

/*
 * Return the largest number of bytes that a plan of @tenant could have on a device now, by the
 * device's and the tenant's limits; 0: no plan can be loaded there. UINT64_MAX: the device has no
 * memory of its own.
 */
uint64_t residency_room(const struct residency *residency, unsigned int device,
			const struct tenant *tenant);

/*
 * Return how many ns it takes to bring the plan into a device's memory, or to end a load under way,
 * by the last loads of plans, their evictions included; 0: nothing is known. Constant time.
 */
uint64_t residency_bring_ns(const struct plan_memory *memory, unsigned int device);

/*
 * Return true if an added plan is prepared for a device that is lost or drained: the plan may be
 * loaded when the device is back.
 */
bool residency_waits_for_device(const struct plan_memory *memory, unsigned int device);

/*
 * Return the VRAM bytes that an added plan holds on a device, counting its share of shared blocks.
 * Unlike residency_about(), this reads that plan only.
 */
uint64_t residency_vram_bytes(const struct plan_memory *memory, unsigned int device);

/* ---- Tasks: for the dispatcher -------------------------------------------------------------- */

/*
 * Plans for which a task found no device memory since the last residency_turn(). The dispatcher
 * adds a plan with residency_want(), and calls residency_turn() once per turn.
 */
struct residency_demand {
	struct plan_memory *first;
};
struct residency_demand *residency_demand(struct residency *residency);

/* Hot: note that a task of @memory's plan was refused or placed elsewhere for lack of memory. */
static inline void residency_want(struct residency_demand *demand, struct plan_memory *memory)
{
	memory->n_constrained++;
	if (memory->is_wanted)
		return;
	memory->is_wanted = true;
	memory->next_wanted = demand->first;
	demand->first = memory;
}

/* Cold; call if demand->first is set. Schedule a review, which loads the plans that fit. */
void residency_turn(struct residency *residency);

enum residency_wish {
	/* load now, evicting what the policy allows; -ENOMEM if that is not enough */
	RESIDENCY_PREFETCH,
	/*
	 * load a segment now, evicting idle streamed segments of the same plan, the last used
	 * first; -ENOMEM if that is not enough
	 */
	RESIDENCY_STREAM,
	RESIDENCY_WAIT,  /* load when there is room, however long that takes */
	RESIDENCY_EVICT, /* evict, and stay evicted until a task or a client wants the plan */
	RESIDENCY_WISHES,
};

/* A request about a plan, embedded by the requester. */
struct residency_waiter {
	struct list_node link;
	struct plan_memory *memory;
	/*
	 * @res is 0: the plan is resident (EVICT: evicted); -ENOMEM: there is no room, or never
	 * will be; -ENODEV: no device can run the plan; -EIO: the device was lost; -EINTR:
	 * PREFETCH or STREAM, and the plan was evicted by hand while it was being loaded;
	 * -ECANCELED: the plan is being removed. The callback may submit a new request.
	 */
	void (*done)(struct residency_waiter *waiter, int res);
	uint8_t wish;   /* enum residency_wish */
	uint8_t device; /* RBK_DEVICE_NONE: any that can run the plan (EVICT: all) */

	/* Private to residency. */
	bool is_asked;     /* queued to be handled */
	bool was_deferred; /* handled before, and put off because too many waiters were held */
};

/*
 * Queue a request about a plan. done() is called exactly once, never inside this call, unless the
 * waiter is withdrawn. Requests of one tenant are handled in order. Tenants take turns, and all
 * requests together take a small part of the reactor's time.
 */
void residency_ask(struct residency *residency, struct plan_memory *memory,
		   struct residency_waiter *waiter, enum residency_wish wish, uint8_t device);
/* Remove a waiter whose done() has not been called. */
void residency_withdraw(struct residency *residency, struct residency_waiter *waiter);

/*
 * Report that the plan's last task on @device completed. Call if memory->leaving has the device's
 * bit.
 */
void residency_plan_idle(struct residency *residency, struct plan_memory *memory,
			 unsigned int device);

/* ---- Leases: for session-lease.c ------------------------------------------------------------ */

/* Return the leases of all devices. */
struct leases *residency_leases(struct residency *residency);
/*
 * Make a lease as lease_new() does. Every lease that residency is to grant memory to must be made
 * here.
 */
int residency_lease_new(struct residency *residency, const struct lease_about *about,
			struct lease **ret);
/*
 * Return true if @device exists and has memory of which leases can be granted. @device may be out
 * of range.
 */
bool residency_has_memory(const struct residency *residency, unsigned int device);
/*
 * Grant the lease of @wait what it needs, after the earlier waits of its tenant were served. If the
 * grant takes the lease above its tenant's part of the device, earlier waits of other tenants
 * within their parts are served first, too. Plans are evicted for the grant where
 * residency-policy.h allows it.
 *
 * The wait lasts up to @patience_ns, at most LEASE_MAX_WAIT_NS. Without patience (0) it lasts only
 * while plans are being evicted for it. @wait's done() is called once, perhaps inside this call. If
 * done() gets 0, the bytes are granted until the caller changes the lease.
 */
void residency_lease_ask(struct residency *residency, struct lease_wait *wait,
			 uint64_t patience_ns);
/* Remove a wait whose done() has not been called. */
void residency_lease_withdraw(struct residency *residency, struct lease_wait *wait);
/* Grow the lease towards its wish, within the free memory that the waits leave to it. */
void residency_lease_grow(struct residency *residency, struct lease *lease);
/*
 * Note that a member of a lease of an earlier broker has come back. Others are about to: for a
 * moment, no lease is granted more but what restored members hold. Later members of an old broker
 * change nothing.
 */
void residency_leases_return(struct residency *residency);
/*
 * Return the bytes on a device that a client of the tenant may have held under a broker that ended:
 * the free bytes and those that unknown processes use, within the tenant's maximum.
 */
uint64_t residency_lease_believed(struct residency *residency, unsigned int device,
				  struct tenant *tenant);
/*
 * Prepare to grant @bytes, at most as many as residency_lease_believed() returned. Bytes beyond the
 * free room were counted as used by unknown processes, and no longer are.
 */
void residency_lease_believe(struct residency *residency, unsigned int device,
			     struct tenant *tenant, uint64_t bytes);
/*
 * Report that less is granted or credited on the device than before, or that it is divided
 * otherwise.
 */
void residency_leases_changed(struct residency *residency, unsigned int device);
/*
 * Set wait->available_bytes and wait->ahead_bytes, which say why there is no room for the wait. For
 * a refused wait they are set already.
 */
void residency_lease_look(struct residency *residency, struct lease_wait *wait);

/* ---- Events from outside -------------------------------------------------------------------- */

/*
 * Set the bytes of a device that all tenants together may use now: its total, less headroom and
 * outside use. If the VRAM shrank, memory is taken back at once.
 */
void residency_set_usable(struct residency *residency, unsigned int device, uint64_t vram_bytes,
			  uint64_t gtt_bytes);

/*
 * Set the sum of all tenants' reserves on a device, including tenants without sessions. Leases keep
 * out of the reserves of other tenants.
 */
void residency_set_reserved(struct residency *residency, unsigned int device, uint64_t vram_bytes);

/*
 * Set the VRAM bytes that processes use that are neither the broker nor, as far as is known,
 * members of leases.
 */
void residency_set_outside(struct residency *residency, unsigned int device, uint64_t vram_bytes);

/*
 * Report that a task failed on a device. If the device is lost, the dispatcher takes its tasks back
 * (executors return the tasks of a lost device). Once none is in flight, all memory of the device
 * is refunded and the device is reopened, with back-off; then plans return.
 * Return: true if the device is lost.
 */
bool residency_device_lost(struct residency *residency, unsigned int device);

/*
 * Treat a device as lost that has disappeared or lost its memory although no task has failed. @why
 * is for the log.
 */
void residency_device_gone(struct residency *residency, unsigned int device, const char *why);
/*
 * Report that a device that had disappeared is present again. If its last reopening failed, it is
 * reopened without further delay.
 */
void residency_device_present(struct residency *residency, unsigned int device);
/*
 * Drain a device, or end the draining, at an administrator's request. While the device drains, its
 * plans are evicted when their tasks have completed, and no plan is loaded. Placement sees
 * PLAN_DEVICE_FAILED, as for a lost device.
 */
void residency_set_drained(struct residency *residency, unsigned int device, bool is_drained);
/*
 * Report that tenant->is_emptied of a tenant has changed. While it is set, the tenant's plans are
 * evicted from all devices, and none is loaded.
 */
void residency_emptied(struct residency *residency);
/*
 * Return true if a plan of @tenant (NULL: of any tenant) is in the memory of @device
 * (RBK_DEVICE_NONE: of any device), or is being loaded or unloaded there.
 */
bool residency_holds_plans(const struct residency *residency, const struct tenant *tenant,
			   uint8_t device);
/*
 * Return true if the device is neither lost, nor being reopened, nor drained. Devices without
 * memory of their own are always up.
 */
bool residency_is_up(const struct residency *residency, unsigned int device);
/*
 * Begin a load by the broker itself beside the resident plans; the caller charges it. A lost
 * device, on which nothing may be loaded, is not reopened before residency_guest_leave().
 * Return: false if the device is not up.
 */
bool residency_guest_enter(struct residency *residency, unsigned int device);
void residency_guest_leave(struct residency *residency, unsigned int device);
/* Return the number of times that a device was reopened. */
uint32_t residency_n_reopened(const struct residency *residency, unsigned int device);
/* Set the function that is called after each reopening; NULL: none. */
void residency_on_reopened(struct residency *residency,
			   void (*reopened)(void *context, unsigned int device), void *context);

/*
 * A selection of plans for residency_evict(). All plans are selected if only device is set, to
 * RBK_DEVICE_NONE.
 */
struct residency_victims {
	const struct tenant *tenant; /* NULL: all tenants */
	uint32_t session; /* session number, used with plan_id; 0: all plans of the tenant */
	uint32_t plan_id;
	uint8_t device; /* RBK_DEVICE_NONE: all */
};
/*
 * Evict plans as RESIDENCY_EVICT does, without a waiter. *ret_n is the number of plans that are
 * evicted, *ret_bytes the bytes that they will give back.
 * Return: true if the selection has a plan, resident or not.
 */
bool residency_evict(struct residency *residency, const struct residency_victims *victims,
		     uint64_t *ret_n, uint64_t *ret_bytes);

/*
 * Reload the plan that has been resident longest of those loaded before @before_ns
 * (CLOCK_MONOTONIC). The driver may have moved part of a device's memory to the host without saying
 * which part; allocating it anew brings it back. Plans without tasks in flight are preferred. Plans
 * that share memory with the chosen plan are reloaded with it, which may take several turns. The
 * figures do not count this as an eviction. If loads or evictions are under way, nothing happens
 * yet.
 * Return: true if there is such a plan, or if other work delays the search.
 */
bool residency_renew(struct residency *residency, unsigned int device, uint64_t before_ns);

/*
 * Return true if a plan was evicted because of outside memory use, or was wanted lately and is not
 * resident. Such a plan is loaded as soon as there is room, so the caller should sample the devices
 * often.
 */
bool residency_is_pressed(const struct residency *residency);

/* Apply new limits of tenants. */
void residency_limits_changed(struct residency *residency);

DEFINE_CLEANUP(struct residency *, residency_free)
