#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics: counting, and the pages that show the counts
 *
 * <ringbroker/stats.h> defines the counters and how readers see them; this is the writing side. The
 * hot path counts directly in the page that readers map, with plain stores. Nothing is copied or
 * published later, and the hot path does not know whether a reader exists. Derived figures are set
 * by the code that computes them (control/publish.c), a few times a second while a watcher exists.
 *
 * A tenant counts from its first session, or earlier, until the policy no longer names it. It has a
 * page while it has sessions, if its account has room for one. Without a page its totals are in
 * private memory, its plans' figures go to a record that is never read, and its log has one record.
 * The hot path sees no difference.
 *
 * The creator of a page charges it in advance: this room knows no accounts. Reactor thread only,
 * unless stated otherwise. @now_ns is the broker's clock, clock_ticks_to_ns(clock_ticks()).
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <ringbroker/stats.h>

#include "util/cleanup.h"
#include "util/list.h"

struct stats;

enum {
	STATS_MAX_PLANS = 1024,    /* slots of a tenant's page */
	STATS_MAX_GATHERING = 256, /* plans with uncounted tasks, for one stats_flush() */
	STATS_LOG_RECORDS = 4096,
	STATS_SEGMENT_RECORDS = 1024, /* records of a tenant's page; a power of two */
	STATS_REFUSED_RECORDS = 64,   /* records of a tenant's page */
	STATS_SLICE_RECORDS = 1024,   /* records of a tenant's page; a power of two */
	STATS_MAX_TENANTS = 1024,     /* records of the root page */
	STATS_MAX_SESSIONS = 16384,   /* records of the root page */
	STATS_OWN_SESSIONS = 64,      /* records of a tenant's page */
	STATS_MAX_LEASES = 2048,      /* records of the root page */
	STATS_OWN_LEASES = 64,        /* records of a tenant's page */
	STATS_MAX_THREADS = 512,      /* records of the root page */
	STATS_INLINE_SAMPLE = 64,     /* one of this many inline tasks is logged */
	STATS_NO_SLOT = 0xffff,
	STATS_BACKED_WORDS = 4,
};

/* A time on a device, and how long its servers had worked until then, all together. */
struct stats_moment {
	uint64_t at_ns; /* 0: none */
	uint64_t device_ns;
};

/* Counts of all tenants' tasks on one device. */
struct stats_device_counts {
	uint64_t n_tasks, n_failed, n_explored, exec_ns, device_ns;
	uint64_t reasons[RBK_STATS_MAX_REASONS];
	struct stats_moment counted; /* bubbles before are counted */
};

struct stats_page {
	struct rbk_stats_header *header;     /* our mapping; NULL: no page */
	uint64_t bytes;                      /* length of the mapping */
	int fd;                              /* for readers */
	uint64_t backed[STATS_BACKED_WORDS]; /* bits of pieces with memory; see stats_page_back() */
};

/* Objects that have records of their own. */
enum stats_shown_kind { STATS_SESSIONS, STATS_LEASES, STATS_SHOWN_KINDS };

/* A tenant's counts. */
struct stats_tenant {
	/* Hot. */
	struct rbk_stats_tenant *totals; /* in the page, or @own */
	struct rbk_stats_decision *log;  /* in the page, or @own_log */
	uint64_t log_mask;
	struct rbk_stats_segment *segments; /* in the page, or NULL */
	struct stats_device_counts *devices;
	struct list_node gathered; /* plans with uncounted tasks, oldest first */
	uint32_t n_gathering;      /* length of gathered */

	/* Cold. */
	struct stats *stats;
	struct list_node link;     /* in stats, see stats_first_tenant() */
	struct stats_tenant *next; /* in the same bucket */
	struct list_node plans;    /* struct stats_plan, in no particular order */
	struct list_node resets;   /* the same plans; last reset at the end */
	uint32_t n_plans;          /* length of plans and of resets */
	struct stats_page page;
	struct {
		struct list_node list; /* struct stats_shown */
		uint64_t taken;        /* bit i: record i of the page is taken */
	} shown[STATS_SHOWN_KINDS];
	struct rbk_stats_plan *spill; /* counts of plans without a slot; never read */
	struct rbk_stats_decision own_log;
	uint64_t n_refused;  /* records of refused entries ever written */
	uint32_t next_slot;  /* slots of the page that were ever used */
	uint32_t n_gone;     /* slots of the page whose plan is gone */
	uint64_t n_unlisted; /* plans without a slot */
	bool has_delay;      /* its record of delays is used */
	bool is_changed;     /* figures other than counts changed since the root page's update */
	uint64_t published_tasks;          /* n_tasks at that update */
	uint32_t root_slot;                /* in the root page; or STATS_NO_SLOT */
	uint64_t seen_ns[RBK_MAX_DEVICES]; /* the publisher's: device_ns at its last shares */
	struct rbk_stats_tenant own;
};

/* A plan's counts, embedded in its owner. Zeroed: not initialised. */
struct stats_plan {
	/* Hot. */
	struct stats_tenant *tenant;
	struct rbk_stats_plan *record;
	uint32_t plan_id;
	uint32_t session;
	uint16_t slot; /* in the page; or STATS_NO_SLOT */
	uint8_t gathered_reason;
	uint32_t n_gathered; /* inline tasks not counted yet */
	uint64_t gathered_ns;

	/* Cold. */
	struct list_node link;
	struct list_node reset;    /* in stats_tenant.resets */
	struct list_node gathered; /* in stats_tenant.gathered, if n_gathered > 0 */
	void *owner;
	uint64_t fingerprint;
	uint64_t made_ns;
	uint64_t seen_tasks;      /* the publisher's: tasks at its last figures, plus 1; 0: none */
	uint64_t seen_state;      /* the publisher's: state at that time */
	uint64_t seen_contention; /* the publisher's: contention of the CPU at that time */
	char name[RBK_NAME_BYTES];
};

/* The records of a session or a lease, embedded in its owner. Zeroed: not initialised. */
struct stats_shown {
	struct list_node link; /* in stats, see stats_first_shown() */
	struct stats *stats;
	struct stats_tenant *tenant; /* NULL: an administrator's session */
	struct list_node of_tenant;  /* in the tenant's shown[kind].list */
	enum stats_shown_kind kind;
	uint32_t root_slot; /* or STATS_NO_SLOT */
	uint32_t own_slot;  /* in the tenant's page; or STATS_NO_SLOT */
	void *owner;
};

/* --- Hot: one call per completed task --- */

/* The result of a task. */
struct stats_task {
	uint64_t user_data;
	uint64_t ended_ns; /* the broker's clock */
	uint64_t queue_ns, exec_ns;
	float predicted_ns, other_ns; /* of struct place_decision */
	uint32_t count, split_count;
	uint16_t flags; /* RBK_DECISION_*, which include RBK_CQE_* */
	uint8_t device; /* RBK_DEVICE_NONE: not run */
	uint8_t reason; /* enum rbk_reason */
	int32_t res;
};

/* A segment of a task, as it ended. */
struct stats_segment {
	uint64_t ended_ns; /* the broker's clock; 0: it did not run */
	uint64_t queue_ns, exec_ns;
	float predicted_ns, other_ns; /* of struct place_decision */
	uint16_t segment, n_segments;
	uint16_t batch, n_batches;
	uint16_t flags; /* RBK_DECISION_* */
	uint8_t device; /* RBK_DEVICE_NONE: not run */
	uint8_t reason; /* enum rbk_reason */
	uint64_t from;  /* bit i: it reads what segment i wrote */
	uint64_t crossed_bytes;
	uint16_t first_node, n_nodes;
};

/* Store and add, by the only writer of a word that other threads load. */
static inline void stats_store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void stats_add(uint64_t *word, uint64_t amount)
{
	__atomic_store_n(word, *word + amount, __ATOMIC_RELAXED);
}

/*
 * Enclose changes of members that belong together in a record; pairs with rbk_stats_copy(). The
 * members in between are changed by atomic stores.
 */
static inline void stats_begin(uint32_t *sequence)
{
	__atomic_store_n(sequence, *sequence + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static inline void stats_end(uint32_t *sequence)
{
	__atomic_store_n(sequence, *sequence + 1, __ATOMIC_RELEASE);
}

static inline uint64_t stats_float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Convert as signed numbers, which takes one instruction; times are below 2^63. */
static inline uint64_t stats_time_bits(uint64_t ns)
{
	return stats_float_bits((float)(int64_t)ns);
}

/* Store words: a record assembled in memory would be loaded before its stores have completed. */
static inline void stats_log(const struct stats_plan *plan, const struct stats_task *task,
			     unsigned int flags)
{
	struct stats_tenant *tenant = plan->tenant;
	uint64_t index = tenant->totals->log_head;
	uint64_t *words = (uint64_t *)&tenant->log[index & tenant->log_mask];

	/* Pairs with the acquire fence in rbk_stats_decision(). */
	__atomic_store_n(&words[0], 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	stats_store(&words[1], task->ended_ns);
	stats_store(&words[2], task->user_data);
	stats_store(&words[3], plan->plan_id | (uint64_t)plan->session << 32);
	stats_store(&words[4], task->count | (uint64_t)task->split_count << 32);
	stats_store(&words[5],
		    stats_float_bits(task->predicted_ns) | stats_float_bits(task->other_ns) << 32);
	stats_store(&words[6], stats_time_bits(task->queue_ns) | stats_time_bits(task->exec_ns)
									 << 32);
	stats_store(&words[7],
		    task->device | (uint64_t)task->reason << 8 | (uint64_t)(uint16_t)flags << 16 |
			    (uint64_t)(uint16_t)task->res << 32 | (uint64_t)plan->slot << 48);
	__atomic_store_n(&words[0], index + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&tenant->totals->log_head, index + 1, __ATOMIC_RELEASE);
}

/*
 * Add the time that a device's servers, all together, worked on a task, which may take several
 * devices and several submissions.
 */
static inline void stats_device_time(struct stats_tenant *tenant, uint8_t device, uint64_t ns)
{
	stats_add(&tenant->totals->devices[device].device_ns, ns);
	tenant->devices[device].device_ns += ns;
}

/* Add the time of a device that a tenant's leased programs used. */
static inline void stats_leased_time(struct stats_tenant *tenant, uint8_t device, uint64_t ns)
{
	stats_add(&tenant->totals->devices[device].leased_ns, ns);
}

/* Count a queued task that has completed, on any device and with any result. */
static inline void stats_task_done(struct stats_plan *plan, const struct stats_task *task)
{
	struct stats_tenant *tenant = plan->tenant;
	struct rbk_stats_tenant *totals = tenant->totals;
	struct rbk_stats_plan *record = plan->record;
	uint64_t failed = task->res < 0, explored = !!(task->flags & RBK_DECISION_EXPLORED);
	struct rbk_stats_plan_device *device;
	struct stats_device_counts *all;
	int64_t error;

	stats_add(&totals->n_tasks, 1);
	stats_add(&totals->n_errors, failed);
	stats_add(&totals->reasons[task->reason], 1);
	stats_add(&record->reasons[task->reason], 1);
	__atomic_store_n(&record->count, task->count, __ATOMIC_RELAXED);
	__atomic_store_n(&record->last_device, task->device, __ATOMIC_RELAXED);
	__atomic_store_n(&record->last_reason, task->reason, __ATOMIC_RELAXED);
	__atomic_store_n(&record->last_flags, task->flags, __ATOMIC_RELAXED);
	stats_log(plan, task, task->flags);
	if (task->device >= RBK_MAX_DEVICES)
		return;

	stats_add(&totals->n_deadlines_missed, !!(task->flags & RBK_DECISION_DEADLINE_MISSED));
	stats_add(&totals->n_partitioned, !!(task->flags & RBK_DECISION_PARTITIONED));
	stats_add(&totals->n_explored, explored);
	stats_add(&totals->queue_ns, task->queue_ns);
	stats_add(&totals->exec_ns, task->exec_ns);
	stats_add(&totals->devices[task->device].n_tasks, 1);
	stats_add(&totals->devices[task->device].n_failed, failed);
	stats_add(&totals->devices[task->device].n_explored, explored);
	stats_add(&totals->devices[task->device].exec_ns, task->exec_ns);
	stats_add(&totals->queue_histogram[rbk_stats_bucket(task->queue_ns)], 1);
	stats_add(&totals->latency_histogram[rbk_stats_bucket(task->queue_ns + task->exec_ns)], 1);

	device = &record->devices[task->device];
	stats_add(&device->n_tasks, 1);
	stats_add(&device->n_failed, failed);
	stats_add(&device->n_explored, explored);
	stats_add(&device->exec_ns, task->exec_ns);
	if (task->predicted_ns > 0 && !failed && !(task->flags & RBK_DECISION_PARTITIONED)) {
		error = (int64_t)task->predicted_ns - (int64_t)task->exec_ns;
		stats_add(&device->n_predicted, 1);
		stats_add(&device->predicted_ns, (uint64_t)(int64_t)task->predicted_ns);
		stats_add(&device->predicted_exec_ns, task->exec_ns);
		stats_add(&device->error_ns, (uint64_t)(error < 0 ? -error : error));
	}

	all = &tenant->devices[task->device];
	all->n_tasks++;
	all->n_failed += failed;
	all->n_explored += explored;
	all->exec_ns += task->exec_ns;
	all->reasons[task->reason]++;
}

/*
 * stats-hot.c: log a segment of a task, in the order in which the segments ran, before
 * stats_task_done() of the task itself. The plan is the one that clients know.
 */
void stats_segment_done(struct stats_plan *plan, const struct stats_segment *segment);

/*
 * stats-hot.c: count a segment that ran on @device from @begin on, until @end_ns, CLOCK_MONOTONIC.
 * Time since @last for which the device's servers did not work, as far as tasks have returned, is a
 * bubble. It is counted once, for one tenant, also where several tasks wait.
 * @last: the end of the task's last segment there, or a moment without a time if the time since
 * then is no bubble; set to the end of this segment.
 */
void stats_segment_ran(struct stats_tenant *tenant, uint8_t device, struct stats_moment *last,
		       struct stats_moment begin, uint64_t end_ns);

/* stats-hot.c: count the gathered tasks, if any. */
void stats_inline_flush(struct stats_plan *plan);
/* stats-hot.c: begin to gather, with a task that is logged. */
void stats_inline_begin(struct stats_plan *plan, const struct stats_task *task);

/*
 * Count a task that ran on the reactor: call stats_inline_begin() when stats_inline_is_due(), then
 * always stats_inline_gather(). Such a task takes less time than counting it would.
 * STATS_INLINE_SAMPLE tasks, or fewer at a stats_flush(), are therefore gathered and counted at
 * once; the first of them is logged.
 */
static inline bool stats_inline_is_due(const struct stats_plan *plan, uint8_t reason, int32_t res,
				       uint16_t flags)
{
	return __builtin_expect(plan->n_gathered % STATS_INLINE_SAMPLE == 0 ||
					reason != plan->gathered_reason ||
					((uint32_t)res | flags) != 0,
				0);
}

static inline void stats_inline_gather(struct stats_plan *plan, uint64_t exec_ns)
{
	plan->n_gathered++;
	plan->gathered_ns += exec_ns;
}

/* Add the tensor bytes copied or transferred for a task. */
static inline void stats_bytes(struct stats_tenant *tenant, uint64_t copied, uint64_t transferred)
{
	stats_add(&tenant->totals->copied_bytes, copied);
	stats_add(&tenant->totals->transferred_bytes, transferred);
}

/*
 * Add time in which its quota throttled the tenant; @n_begun: 1 if throttling began, 0 if it
 * continues.
 */
static inline void stats_throttled(struct stats_tenant *tenant, uint64_t ns, uint64_t n_begun)
{
	stats_add(&tenant->totals->throttled_ns, ns);
	stats_add(&tenant->totals->n_throttled, n_begun);
}

/* Count a queued task that the reactor ran instead of a worker. */
static inline void stats_reactor_ran(struct stats_tenant *tenant)
{
	stats_add(&tenant->totals->n_reactor, 1);
}

/* Count an entry that was invalid. */
static inline void stats_entry_refused(struct stats_tenant *tenant)
{
	stats_add(&tenant->totals->n_entries_refused, 1);
}

/*
 * stats-refused.c: show a refused entry in the tenant's page, if it has one, in place of the oldest
 * record. All of @record but the sequence is used. Not hot: the caller limits the number of calls.
 */
void stats_note_refused(struct stats_tenant *tenant, const struct rbk_stats_refused *record);

/*
 * stats-slice.c: log a timeslice of a tenant's lease, if the tenant has a page. All of @record but
 * the sequence is used. Takes constant time.
 */
/*
 * Note that a device was reset under the work of record->tenant, whose counters are @tenant; NULL:
 * it has none. The oldest record is replaced.
 */
void stats_lost(struct stats *stats, struct stats_tenant *tenant,
		const struct rbk_stats_reset *record);
void stats_slice_ended(struct stats_tenant *tenant, const struct rbk_stats_slice *record);

/* --- Making and freeing --- */

/* Return: 0, or a negative errno. */
int stats_new(uint32_t n_devices, uint64_t now_ns, struct stats **ret);
/* Free the remaining tenants, which must have no plans, and @stats. Return: NULL. */
struct stats *stats_free(struct stats *stats);

/*
 * Create a tenant. @name is cut to RBK_STATS_NAME_BYTES, and made printable. The number identifies
 * the tenant.
 * Return: 0 or -ENOMEM.
 */
int stats_tenant_new(struct stats *stats, uint32_t number, const char *name,
		     struct stats_tenant **ret);
/* Return the counts of all tenants on a device. */
const struct stats_device_counts *stats_device_counts(const struct stats *stats, uint32_t device);

/* Free a tenant, which must have no plans. Return: NULL. */
struct stats_tenant *stats_tenant_free(struct stats_tenant *tenant);
/* Return: the tenant; NULL: none has this number. */
struct stats_tenant *stats_tenant_find(const struct stats *stats, uint32_t number);
/* Iterate over the tenants, in no particular order. NULL: no further tenant. */
struct stats_tenant *stats_first_tenant(const struct stats *stats);
struct stats_tenant *stats_next_tenant(const struct stats *stats,
				       const struct stats_tenant *tenant);
uint32_t stats_n_tenants(const struct stats *stats);
/* Move a tenant to the end, for callers that visit a few tenants at a time. */
void stats_tenant_last(struct stats_tenant *tenant);

/*
 * Return the bytes of a page, a multiple of the page size. A page also takes a descriptor and a
 * mapping.
 */
uint64_t stats_tenant_page_bytes(const struct stats *stats);
uint64_t stats_root_page_bytes(const struct stats *stats);

/*
 * Make the memory of a tenant's page, for stats_tenant_map(). May sleep. Any thread, while @stats
 * exists.
 * Return: 0, or a negative errno.
 */
int stats_tenant_page_new(const struct stats *stats, struct stats_page *ret);
/* Unmap and close a page that no tenant has; an empty one is accepted. May sleep. Any thread. */
void stats_page_free(struct stats_page *page);

/*
 * Give @page, which is charged and was never used before, to a tenant without a page. Existing
 * plans get their slots. Readers receive tenant->page.fd.
 */
void stats_tenant_map(struct stats_tenant *tenant, const struct stats_page *page, uint64_t now_ns);
/*
 * Take the page from a tenant, marked RBK_STATS_CLOSED; readers keep their mappings. The totals
 * continue.
 * Return: the page, which the caller frees; its header is NULL if the tenant had no page.
 */
struct stats_page stats_tenant_unmap(struct stats_tenant *tenant, uint64_t now_ns);

/*
 * Create and remove the root page, stats_root(), at once, which may sleep.
 * Return: 0; a negative errno: no page exists.
 */
int stats_root_map(struct stats *stats, uint64_t now_ns);
void stats_root_unmap(struct stats *stats, uint64_t now_ns);
const struct stats_page *stats_root(const struct stats *stats);

/*
 * Begin to count a plan. @name is copied unchanged; @owner becomes stats_plan.owner. Never fails:
 * without a free slot the plan counts only in the totals.
 */
struct stats_plan_about {
	const char *name; /* RBK_NAME_BYTES, NUL-terminated */
	uint32_t plan_id;
	uint32_t session;
	uint64_t fingerprint;
	void *owner;
};
void stats_plan_init(struct stats_plan *plan, struct stats_tenant *tenant,
		     const struct stats_plan_about *about, uint64_t now_ns);
/*
 * End counting a plan. Its slot shows that it is gone, until the slot is reused. A plan that was
 * not initialised is accepted.
 */
void stats_plan_deinit(struct stats_plan *plan);

/*
 * Begin to show a session of @tenant, or of no tenant (NULL), or a lease, which has a tenant. It
 * has records as far as these are free. They are empty until stats_shown_set().
 */
void stats_shown_init(struct stats_shown *shown, enum stats_shown_kind kind, struct stats *stats,
		      struct stats_tenant *tenant, void *owner);
/* Free the records. A session or lease that was not initialised is accepted. */
void stats_shown_deinit(struct stats_shown *shown);
/* Return the first record of a kind, in no particular order; NULL: there is none. */
struct stats_shown *stats_first_shown(const struct stats *stats, enum stats_shown_kind kind);
uint32_t stats_n_shown(const struct stats *stats, enum stats_shown_kind kind);
/* Move @shown to the end of its list, for callers that visit a few records at a time. */
void stats_shown_last(struct stats_shown *shown);
/*
 * Copy all of @figures, a struct rbk_stats_session or rbk_stats_lease, but the sequence into the
 * existing pages.
 */
void stats_shown_set(struct stats_shown *shown, const void *figures);

/*
 * Count the gathered inline tasks of all plans, before an update or before a reader receives a
 * page.
 */
void stats_flush(struct stats *stats);

/*
 * Reset a tenant's counts, except those of its plans. Derived figures stay until they are set
 * again.
 */
void stats_tenant_reset(struct stats_tenant *tenant, uint64_t now_ns);
/*
 * Reset one plan; the next call resets the next plan. After tenant->n_plans calls each plan that
 * existed at the first call was reset, even if other callers intervene.
 * Return: the plan; NULL: the tenant has none.
 */
struct stats_plan *stats_tenant_reset_plan(struct stats_tenant *tenant);
/*
 * Reset record @slot of the tenant's page, unless its plan lives: stats_tenant_reset_plan() resets
 * the record of a live plan.
 * Return: false if no record from @slot on is used.
 */
bool stats_tenant_reset_record(struct stats_tenant *tenant, uint32_t slot);
/* Reset the devices' counts, after those of all tenants. */
void stats_reset(struct stats *stats, uint64_t now_ns);

/* --- Derived figures --- */

/*
 * Set the derived members of @figures, of the tenant and on each device, and all flags but
 * RBK_STATS_TENANT_USED and RBK_STATS_TENANT_PAGE.
 */
void stats_set_tenant(struct stats_tenant *tenant, const struct rbk_stats_tenant *figures);

/* Derived members of struct rbk_stats_plan, summed over all devices. */
struct stats_plan_memory {
	uint64_t n_evictions, n_returns, n_constraints;
	uint32_t n_segments, n_segments_resident, n_streamed;
	uint8_t cut;
	float cut_ns, whole_ns;
};
/*
 * Set the derived figures of a plan; @figures has one element for each device, whose counts are
 * ignored.
 */
void stats_set_plan(struct stats_plan *plan, const struct rbk_stats_plan_device *figures,
		    uint32_t n_devices, const struct stats_plan_memory *memory);

/*
 * Set all of @figures but the sequence and the counts. Tenant pages made later show the parts that
 * they have of them.
 */
void stats_set_device(struct stats *stats, uint32_t device, const struct rbk_stats_device *figures);
/* Set all but the sequence in the root page, if it exists. */
void stats_set_broker(struct stats *stats, const struct rbk_stats_broker *figures);
void stats_set_upkeep(struct stats *stats, const struct rbk_stats_upkeep *figures);
void stats_set_reload(struct stats *stats, const struct rbk_stats_reload *figures);
void stats_set_waiting(struct stats *stats, const struct rbk_stats_waiting *figures);

/*
 * stats-delay.c: set the delays by waiting for a processor, all but the sequences, in the existing
 * pages. stats_set_n_threads() clears the threads from @n on.
 */
void stats_set_contention(struct stats *stats, const struct rbk_stats_contention *figures);
void stats_set_thread(struct stats *stats, uint32_t index, const struct rbk_stats_thread *figures);
void stats_set_n_threads(struct stats *stats, uint32_t n);
/*
 * Set a tenant's delays. @own is the copy for the tenant's page. The root page gets @figures if
 * stats_update_root() has given the tenant a slot.
 */
void stats_set_delay(struct stats_tenant *tenant, const struct rbk_stats_delay *figures,
		     const struct rbk_stats_delay *own);

/*
 * Copy the changed figures of tenants into the root page, if it exists: a limited number of
 * tenants, from the front of the list; see stats_tenant_last().
 */
void stats_update_root(struct stats *stats);
/* Copy the figures of one tenant into the root page at once, if it exists and has room. */
void stats_tenant_show(struct stats_tenant *tenant);

/* Show in all pages that the broker was alive @now_ns, and the offsets of its clock. */
void stats_heartbeat(struct stats *stats, uint64_t now_ns, int64_t monotonic_offset_ns,
		     int64_t realtime_offset_ns);
/* Set the time between two heartbeats while readers exist, for pages made later. */
void stats_set_period(struct stats *stats, uint64_t period_ns);

DEFINE_CLEANUP(struct stats *, stats_free)
