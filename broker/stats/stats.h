#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics: counting, and the pages that show the counts
 *
 * What is counted, and how readers see it, is <ringbroker/stats.h>'s. Here is the writing side. The
 * hot path counts straight into the page that readers map, by plain stores: nothing is copied or
 * published later, and nobody knows who looks. Everything that has to be computed first is set by
 * whoever computes it (control/publish.c), a few times a second while somebody watches.
 *
 * A tenant counts from its first session until it is gone from the policy; it has a page as long as
 * it has sessions, if its account has room for one. Without one its totals are counted in private
 * memory, its plans' figures into a record that nobody reads, and its log has one record; the hot
 * path sees no difference.
 *
 * Whoever makes a page has charged it first: this room knows nothing of accounts. Reactor thread
 * only, but for what says otherwise. @now_ns is the broker's clock,
 * clock_ticks_to_ns(clock_ticks()).
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
	STATS_MAX_GATHERING = 256, /* plans of a tenant, for one stats_flush() */
	STATS_LOG_RECORDS = 4096,
	STATS_MAX_TENANTS = 1024,   /* records of the root page */
	STATS_MAX_SESSIONS = 16384, /* likewise */
	STATS_OWN_SESSIONS = 64,    /* records of a tenant's page */
	STATS_MAX_LEASES = 2048,    /* records of the root page */
	STATS_OWN_LEASES = 64,      /* records of a tenant's page */
	STATS_MAX_THREADS = 512,    /* likewise */
	STATS_INLINE_SAMPLE = 64,   /* of so many tasks run inline, one is logged */
	STATS_NO_SLOT = 0xffff,
	STATS_BACKED_WORDS = 4,
};

/* All tenants' tasks on one device. */
struct stats_device_counts {
	uint64_t n_tasks, n_failed, n_explored, exec_ns, device_ns;
	uint64_t reasons[RBK_STATS_MAX_REASONS];
};

struct stats_page {
	struct rbk_stats_header *header;     /* our mapping; NULL: there is none */
	uint64_t bytes;                      /* of it */
	int fd;                              /* for who is handed the page */
	uint64_t backed[STATS_BACKED_WORDS]; /* pieces that have memory, see stats_page_back() */
};

/* A tenant's counts. */
struct stats_tenant {
	/* Hot. */
	struct rbk_stats_tenant *totals; /* in the page, or own */
	struct rbk_stats_decision *log;  /* likewise */
	uint64_t log_mask;
	struct stats_device_counts *devices;
	struct list_node gathered; /* plans with tasks to be counted, the oldest first, */
	uint32_t n_gathering;      /* and how many these are */

	/* Cold. */
	struct stats *stats;
	struct list_node link;     /* in stats, see stats_first_tenant() */
	struct stats_tenant *next; /* in one of its buckets */
	struct list_node plans;    /* struct stats_plan, in no particular order */
	struct list_node resets;   /* the same, the one that was reset last at the end */
	uint32_t n_plans;          /* length of each of the two */
	struct stats_page page;
	struct list_node sessions;    /* struct stats_session */
	uint64_t own_sessions;        /* bit i: record i of the page's is somebody's */
	struct list_node leases;      /* struct stats_lease */
	uint64_t own_leases;          /* as own_sessions */
	struct rbk_stats_plan *spill; /* counts of plans without a slot, for nobody */
	struct rbk_stats_decision own_log;
	uint32_t next_slot;       /* below it every slot of the page was used, */
	uint32_t n_gone;          /* and so many are of plans that are gone */
	uint64_t n_unlisted;      /* plans without a slot */
	bool has_delay;           /* the record of it is used */
	bool is_changed;          /* something but the counts, since the root page was updated */
	uint64_t published_tasks; /* n_tasks then */
	uint32_t root_slot;       /* in the root page; STATS_NO_SLOT */
	uint64_t seen_ns[RBK_MAX_DEVICES]; /* the publisher's: device_ns when it computed shares */
	struct rbk_stats_tenant own;
};

/* A plan's counts; embedded in its owner's. Zeroed: not initialised. */
struct stats_plan {
	/* Hot. */
	struct stats_tenant *tenant;
	struct rbk_stats_plan *record;
	uint32_t plan_id;
	uint32_t session;
	uint16_t slot; /* in the page; STATS_NO_SLOT */
	uint8_t gathered_reason;
	uint32_t n_gathered; /* tasks that ran on the reactor, to be counted */
	uint64_t gathered_ns;

	/* Cold. */
	struct list_node link;
	struct list_node reset;    /* in stats_tenant.resets */
	struct list_node gathered; /* in stats_tenant.gathered, if n_gathered > 0 */
	void *owner;
	uint64_t fingerprint;
	uint64_t made_ns;
	uint64_t seen_tasks; /* the publisher's: so many had completed when it set figures, */
	uint64_t seen_state; /* and that was where it was */
	char name[RBK_NAME_BYTES];
};

/* A session's records; embedded in its owner's. Zeroed: not initialised. */
struct stats_session {
	struct list_node link; /* in stats, see stats_first_session() */
	struct stats *stats;
	struct stats_tenant *tenant; /* NULL: none */
	struct list_node of_tenant;  /* in it */
	uint32_t root_slot;          /* STATS_NO_SLOT */
	uint32_t own_slot;           /* in the tenant's page; likewise */
	void *owner;
};

/* Likewise a lease's. */
struct stats_lease {
	struct list_node link; /* in stats, see stats_first_lease() */
	struct stats *stats;
	struct stats_tenant *tenant;
	struct list_node of_tenant; /* in it */
	uint32_t root_slot;         /* STATS_NO_SLOT */
	uint32_t own_slot;          /* in the tenant's page; likewise */
	void *owner;
};

/* --- Hot: one call per completed task --- */

/* What became of a task. */
struct stats_task {
	uint64_t user_data;
	uint64_t ended_ns; /* the broker's clock */
	uint64_t queue_ns, exec_ns;
	float predicted_ns, other_ns; /* of its struct place_decision */
	uint32_t count, split_count;
	uint16_t flags; /* RBK_DECISION_*, so also RBK_CQE_* */
	uint8_t device; /* RBK_DEVICE_NONE: it ran nowhere */
	uint8_t reason; /* enum rbk_reason */
	int32_t res;
};

/* The one writer of a word that others load. */
static inline void stats_store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void stats_add(uint64_t *word, uint64_t amount)
{
	__atomic_store_n(word, *word + amount, __ATOMIC_RELAXED);
}

/*
 * Around changes of what belongs together in a record: pairs with rbk_stats_copy(). What is changed
 * in between is changed by atomic stores.
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

/* Times are below 2^63; converting signed numbers takes one instruction. */
static inline uint64_t stats_time_bits(uint64_t ns)
{
	return stats_float_bits((float)(int64_t)ns);
}

/* Words, because a record put together in memory would be loaded before it has got there. */
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
 * A device's servers have worked that long, all together, for a task, which may take several
 * devices and several submissions.
 */
static inline void stats_device_time(struct stats_tenant *tenant, uint8_t device, uint64_t ns)
{
	stats_add(&tenant->totals->devices[device].device_ns, ns);
	tenant->devices[device].device_ns += ns;
}

/* A task that was queued has completed, wherever it ran and whatever came of it. */
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

/* stats-hot.c: counts what stats_task_inline() has gathered. Nothing happens if that is nothing. */
void stats_inline_flush(struct stats_plan *plan);
/* stats-hot.c: begins to gather, with a task that is logged. */
void stats_inline_begin(struct stats_plan *plan, const struct stats_task *task);

/*
 * The parts of stats_task_inline(), for a caller that describes a task only if it is to be logged:
 * stats_inline_begin() where it is due, then stats_inline_gather() in any case.
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

/*
 * Likewise for one that ran on the reactor itself. Those take less time than counting would, so
 * STATS_INLINE_SAMPLE of them are gathered, or as many as come until stats_flush(), and then
 * counted at once; the first of them is logged.
 */
static inline void stats_task_inline(struct stats_plan *plan, const struct stats_task *task)
{
	if (stats_inline_is_due(plan, task->reason, task->res, task->flags))
		stats_inline_begin(plan, task);
	stats_inline_gather(plan, task->exec_ns);
}

/* Tensor bytes that a task had copied, or moved. */
static inline void stats_bytes(struct stats_tenant *tenant, uint64_t copied, uint64_t transferred)
{
	stats_add(&tenant->totals->copied_bytes, copied);
	stats_add(&tenant->totals->transferred_bytes, transferred);
}

/* Its quota held the tenant up; @n_begun: 1 if that began now, 0 if it goes on. */
static inline void stats_throttled(struct stats_tenant *tenant, uint64_t ns, uint64_t n_begun)
{
	stats_add(&tenant->totals->throttled_ns, ns);
	stats_add(&tenant->totals->n_throttled, n_begun);
}

/* --- Making and freeing --- */

/* Return: 0 or negative errno. */
int stats_new(uint32_t n_devices, uint64_t now_ns, struct stats **ret);
/* Tenants that are left are freed; they have no plans. Return: NULL. */
struct stats *stats_free(struct stats *stats);

/*
 * @name is cut to RBK_STATS_NAME_BYTES, without what cannot be printed. The number identifies the
 * tenant. Return: 0 or -ENOMEM.
 */
int stats_tenant_new(struct stats *stats, uint32_t number, const char *name,
		     struct stats_tenant **ret);
/* What all tenants did on a device. */
const struct stats_device_counts *stats_device_counts(const struct stats *stats, uint32_t device);

/* No plan may be left. Return: NULL. */
struct stats_tenant *stats_tenant_free(struct stats_tenant *tenant);
/* NULL: there is none. */
struct stats_tenant *stats_tenant_find(const struct stats *stats, uint32_t number);
/* The first tenant, the one after @tenant; NULL: none. In no particular order. */
struct stats_tenant *stats_first_tenant(const struct stats *stats);
struct stats_tenant *stats_next_tenant(const struct stats *stats,
				       const struct stats_tenant *tenant);
uint32_t stats_n_tenants(const struct stats *stats);
/* Makes it the last one, for who goes over them a few at a time. */
void stats_tenant_last(struct stats_tenant *tenant);

/* What a page takes: a multiple of the page size. Also one descriptor and one mapping. */
uint64_t stats_tenant_page_bytes(const struct stats *stats);
uint64_t stats_root_page_bytes(const struct stats *stats);

/*
 * Makes memory for a tenant's page, for stats_tenant_map(). May sleep. Any thread, while @stats is
 * there. Return: 0 or negative errno.
 */
int stats_tenant_page_new(const struct stats *stats, struct stats_page *ret);
/* Unmaps and closes a page that no tenant has. May sleep. Any thread. No page is fine. */
void stats_page_free(struct stats_page *page);

/*
 * Gives a tenant without a page @page, which has been charged and was never given before; plans
 * that are there get their slots. tenant->page.fd is what readers are handed.
 */
void stats_tenant_map(struct stats_tenant *tenant, const struct stats_page *page, uint64_t now_ns);
/*
 * Takes it away, marked RBK_STATS_CLOSED; who has mapped it keeps it. The totals go on.
 * Return: the page, to be freed by the caller; its header is NULL if the tenant had none.
 */
struct stats_page stats_tenant_unmap(struct stats_tenant *tenant, uint64_t now_ns);

/*
 * Makes the root page, stats_root(), and takes it away: at once, which may sleep.
 * Return: 0 or negative errno: there is none.
 */
int stats_root_map(struct stats *stats, uint64_t now_ns);
void stats_root_unmap(struct stats *stats, uint64_t now_ns);
const struct stats_page *stats_root(const struct stats *stats);

/*
 * Begins to count a plan; @name is copied as it is, and @owner is what stats_plan.owner says.
 * Never fails: without a free slot its figures go nowhere but to the totals.
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
/* Its slot says that it is gone, until it is needed. Nothing happens to one not initialised. */
void stats_plan_deinit(struct stats_plan *plan);

/*
 * Begins to show a session, of @tenant or of none (NULL). It has records as long as there are some;
 * they show nothing until stats_set_session().
 */
void stats_session_init(struct stats_session *session, struct stats *stats,
			struct stats_tenant *tenant, void *owner);
/* Its records are free. Nothing happens to one not initialised. */
void stats_session_deinit(struct stats_session *session);
/* The first one; NULL: none. In no particular order. */
struct stats_session *stats_first_session(const struct stats *stats);
uint32_t stats_n_sessions(const struct stats *stats);
/* Makes it the last one, for who goes over them a few at a time. */
void stats_session_last(struct stats_session *session);
/* All but the sequence. Into the pages that there are. */
void stats_set_session(struct stats_session *session, const struct rbk_stats_session *figures);

/* Likewise a lease of @tenant. */
void stats_lease_init(struct stats_lease *lease, struct stats_tenant *tenant, void *owner);
void stats_lease_deinit(struct stats_lease *lease);
struct stats_lease *stats_first_lease(const struct stats *stats);
uint32_t stats_n_leases(const struct stats *stats);
void stats_lease_last(struct stats_lease *lease);
void stats_set_lease(struct stats_lease *lease, const struct rbk_stats_lease *figures);

/*
 * Counts what was gathered of tasks that ran on the reactor: before an update, or before somebody
 * is handed a page.
 */
void stats_flush(struct stats *stats);

/*
 * Begins a tenant's counts anew, but for those of its plans. Computed figures stay until they are
 * set again.
 */
void stats_tenant_reset(struct stats_tenant *tenant, uint64_t now_ns);
/*
 * Forgets what one plan has gathered; the next call takes the next plan. After tenant->n_plans
 * calls each plan that was there at the first has had its turn, whoever else calls meanwhile.
 * Return: the plan; NULL: there is none.
 */
struct stats_plan *stats_tenant_reset_plan(struct stats_tenant *tenant);
/*
 * Clears record @slot of a plan in the tenant's page, whether the plan is still there or not.
 * Return: false if no record from @slot on is used.
 */
bool stats_tenant_reset_record(struct stats_tenant *tenant, uint32_t slot);
/* Begins the devices' counts anew, after those of all tenants. */
void stats_reset(struct stats *stats, uint64_t now_ns);

/* --- What is computed --- */

/*
 * Take the figures of @figures that are computed for each update, of the tenant and on each device,
 * and all flags but RBK_STATS_TENANT_USED and RBK_STATS_TENANT_PAGE.
 */
void stats_set_tenant(struct stats_tenant *tenant, const struct rbk_stats_tenant *figures);

/* Members of struct rbk_stats_plan that are computed, of all devices together. */
struct stats_plan_memory {
	uint64_t n_evictions, n_returns, n_constraints;
};
/* Likewise of a plan; @figures is one for each device, of which counts are not taken. */
void stats_set_plan(struct stats_plan *plan, const struct rbk_stats_plan_device *figures,
		    uint32_t n_devices, const struct stats_plan_memory *memory);

/*
 * All but the sequence and the counts of @figures is taken; also kept for tenant pages made later,
 * as far as these show it.
 */
void stats_set_device(struct stats *stats, uint32_t device, const struct rbk_stats_device *figures);
/* All but the sequence. Into the root page, if there is one. */
void stats_set_broker(struct stats *stats, const struct rbk_stats_broker *figures);
void stats_set_upkeep(struct stats *stats, const struct rbk_stats_upkeep *figures);

/*
 * stats-delay.c: who waits for a processor. All but the sequences; into the pages that there are.
 * Of threads, those from @n on are no more.
 */
void stats_set_contention(struct stats *stats, const struct rbk_stats_contention *figures);
void stats_set_thread(struct stats *stats, uint32_t index, const struct rbk_stats_thread *figures);
void stats_set_n_threads(struct stats *stats, uint32_t n);
/* @own is what the tenant sees itself; in the root page it is as of the last stats_update_root().
 */
void stats_set_delay(struct stats_tenant *tenant, const struct rbk_stats_delay *figures,
		     const struct rbk_stats_delay *own);

/*
 * Copies what has changed of tenants into the root page, if there is one: of some tenants at a
 * time, first of those in front, see stats_tenant_last().
 */
void stats_update_root(struct stats *stats);

/* All pages show that the broker was alive @now_ns, and what its clock is worth. */
void stats_heartbeat(struct stats *stats, uint64_t now_ns, int64_t monotonic_offset_ns,
		     int64_t realtime_offset_ns);
/* Between two heartbeats while somebody reads; for pages made from now on. */
void stats_set_period(struct stats *stats, uint64_t period_ns);

DEFINE_CLEANUP(struct stats *, stats_free)
