#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages: the broker's figures, in shared memory
 *
 * A page is a memfd that only the broker writes and that others can only map read-only. A reader
 * only loads from memory: readers cost the broker nothing, however many they are and however often
 * they read. There are two kinds of pages:
 *
 *   RBK_STATS_TENANT  figures of one tenant: totals, a slot for each of its plans, a log of
 *                     decisions, and the run-queue delay of its processes. Sessions of that tenant
 *                     and administrators receive it.
 *   RBK_STATS_ROOT    figures of the whole broker: devices, the totals of every tenant, and the
 *                     run-queue delay of all. For administrators: root, and the user that brokerd
 *                     runs as.
 *
 * A page begins with struct rbk_stats_header, which locates its sections. A section is an array of
 * records of one type; rbk_stats_record() finds them. Pages grow: a broker of the same major may
 * have more sections, larger records (new members at their ends) and larger arrays than this file
 * knows, never smaller or rearranged ones. So a reader takes offset, stride and count from the
 * header and never from sizeof, and copies at most a stride of a record, as rbk_stats_copy_record()
 * does: an older broker's records may be smaller than the structs here. Everything is little endian
 * and aligned to 8 bytes. Unknown members are 0, unless RBK_STATS_ABSENT marks a value that cannot
 * be had.
 *
 * Reading while the broker writes. Each record begins with a sequence, which is odd while the
 * broker changes members that belong together (names, states, all computed members, a reset);
 * rbk_stats_copy() copies a record and tells whether the copy is consistent. Members marked "count"
 * below change outside that sequence, as tasks complete: each is exact by itself, two of them may
 * be one task apart. Records of the decision log carry their index, so that a reader recognises a
 * record that was overwritten during the read. Readers and the broker never wait for each other.
 *
 * Times named _ns are durations. Times named _at_ns are points on the broker's own clock, which has
 * an arbitrary origin and never jumps: add header.monotonic_offset_ns for CLOCK_MONOTONIC, or
 * header.realtime_offset_ns for CLOCK_REALTIME (as of the last update).
 *
 * Counts go up from the broker's start, or from the last reset (header.n_resets), as tasks
 * complete; tasks that ran on the reactor itself are counted at the next update. Computed members
 * are updated several times a second (header.period_ns) while a session that was handed a page is
 * connected, so a reader stays connected. A page whose header.updated_at_ns is much older than that
 * belongs to a broker that is dead or hung; the page of a dead broker stays readable. After a
 * tenant's last session has ended its page is no longer written (RBK_STATS_CLOSED); its totals
 * continue in the root page.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <ringbroker/abi.h>
#include <ringbroker/stats-delay.h>
#include <ringbroker/stats-reload.h>
#include <ringbroker/stats-rings.h>
#include <ringbroker/stats-upkeep.h>

#define RBK_STATS_MAGIC       0x53425252u /* "RRBS" */
#define RBK_STATS_ABI_MAJOR   1           /* another major: an incompatible layout */
#define RBK_STATS_ABI_MINOR   24          /* grows with each addition */

#define RBK_STATS_ABSENT      UINT64_MAX /* a value that cannot be had on this machine */
#define RBK_STATS_NAME_BYTES  64         /* names of tenants, devices and drivers, with the NUL */
#define RBK_STATS_MAX_REASONS 16         /* room for RBK_REASON_COUNT to grow */
#define RBK_STATS_BUCKETS     128        /* buckets of a histogram */

enum rbk_stats_kind {
	RBK_STATS_TENANT = 1,
	RBK_STATS_ROOT = 2,
};

/* Selects the figures for rbk_stats_map() and rbk_stats_reset(). */
enum rbk_stats_whose {
	RBK_STATS_OWN = 0,       /* the session's own tenant */
	RBK_STATS_ALL = 1,       /* the root page; for a reset, every page */
	RBK_STATS_OF_TENANT = 2, /* the tenant of a given number */
};

/* Sections of a page: index of struct rbk_stats_header.sections. */
enum rbk_stats_section_id {
	RBK_STATS_SECTION_TENANTS = 0,   /* rbk_stats_tenant; in a tenant page one */
	RBK_STATS_SECTION_PLANS = 1,     /* rbk_stats_plan; tenant pages */
	RBK_STATS_SECTION_DECISIONS = 2, /* rbk_stats_decision, a ring; tenant pages */
	RBK_STATS_SECTION_BROKER = 3,    /* rbk_stats_broker, one; root pages */
	RBK_STATS_SECTION_DEVICES = 4,   /* rbk_stats_device; root and tenant pages */
	/* Since 1.1. */
	RBK_STATS_SECTION_CONTENTION = 5, /* rbk_stats_contention, one; root pages */
	RBK_STATS_SECTION_THREADS = 6,    /* rbk_stats_thread; root pages */
	/* rbk_stats_delay, at the index of the tenant's record in TENANTS */
	RBK_STATS_SECTION_DELAYS = 7,
	/* Since 1.2. */
	RBK_STATS_SECTION_SESSIONS = 8, /* rbk_stats_session; in a tenant page its own */
	/* Since 1.3. */
	RBK_STATS_SECTION_LEASES = 9, /* rbk_stats_lease; in a tenant page its own */
	/* Since 1.8. */
	RBK_STATS_SECTION_UPKEEP = 10, /* rbk_stats_upkeep, one; root pages */
	/* Since 1.10. */
	RBK_STATS_SECTION_REFUSED = 11, /* rbk_stats_refused, in any order; tenant pages */
	RBK_STATS_SECTION_RELOAD = 12,  /* rbk_stats_reload, one; root pages */
	/* Since 1.13. */
	RBK_STATS_SECTION_WAITING = 13, /* rbk_stats_waiting, one; root pages */
	/* Since 1.15. */
	RBK_STATS_SECTION_SEGMENTS = 14, /* rbk_stats_segment, a ring; tenant pages */
	/* Since 1.23. */
	RBK_STATS_SECTION_SLICES = 15, /* rbk_stats_slice, a ring; tenant pages */
};
#define RBK_STATS_SECTION_COUNT  16
#define RBK_STATS_LEAST_SECTIONS 5 /* sections of 1.0, which every page has */
#define RBK_STATS_MAX_SECTIONS   16

struct rbk_stats_section {
	uint32_t offset; /* bytes from the page's start to the first record; 0: no such section */
	uint32_t stride; /* bytes from one record to the next */
	uint32_t count;  /* records; a power of two in DECISIONS, SEGMENTS and SLICES */
	uint32_t n_free; /* last records that are free now: rbk_stats_used(); since 1.4, 0 before */
};

/* struct rbk_stats_header.flags */
#define RBK_STATS_CLOSED (1u << 0) /* the page is complete and no longer written */

struct rbk_stats_header {
	uint32_t magic; /* RBK_STATS_MAGIC */
	uint16_t abi_major, abi_minor;
	uint32_t kind;       /* enum rbk_stats_kind */
	uint32_t n_devices;  /* devices of the broker */
	uint64_t page_bytes; /* bytes of the memfd, to map whole */
	uint32_t pid;        /* process id of the broker */
	uint32_t n_sections; /* valid elements of sections */
	uint64_t started_at_ns;
	uint64_t period_ns; /* longest time between two updates while a reader is connected */

	/* The members from here on change, by single stores. */
	/*
	 * Count of updates, at least 1: the heartbeat. A long update is written in pieces, so two
	 * records may be of different moments while this count stays the same.
	 */
	uint64_t n_updates;
	uint64_t updated_at_ns; /* time of the last update */
	int64_t monotonic_offset_ns;
	int64_t realtime_offset_ns;
	uint64_t n_resets;    /* resets of the counts */
	uint64_t reset_at_ns; /* time of the last reset; started_at_ns: none */
	uint32_t flags;       /* RBK_STATS_CLOSED */
	uint32_t reserved[7];

	struct rbk_stats_section sections[RBK_STATS_MAX_SECTIONS];
};

/* A tenant's figures on one device. */
struct rbk_stats_tenant_device {
	/* count of tasks completed on it; a split task counts where most rows ran */
	uint64_t n_tasks;
	uint64_t n_failed;   /* count of tasks with a negative result */
	uint64_t n_explored; /* count of tasks that ran on it so that the broker learns */
	uint64_t exec_ns;    /* count: sum of the tasks' times from start to end */
	uint64_t device_ns;  /* count: sum of the time that the device's servers worked on them */

	double share;            /* fraction of all tenants' device time since the last update */
	uint64_t memory_used;    /* bytes of device memory; on the CPU host memory */
	uint64_t memory_max;     /* bytes; UINT64_MAX: no limit */
	uint64_t memory_reserve; /* bytes that the tenant is never denied */
	uint64_t memory_high;    /* bytes above which its plans are evicted first */
	uint64_t gtt_used;       /* bytes of host memory that the device uses */
	uint64_t gtt_max;        /* bytes; UINT64_MAX: no limit */
	/* Since 1.16, of tasks in segments. */
	uint64_t n_segments; /* count of segments that ran on it */
	uint64_t bubble_ns;  /* count: time without work between two, while others ran elsewhere */
	uint64_t leased_ns;  /* since 1.20, count: time that its leased programs used */
	uint64_t reserved[1];
};

/* struct rbk_stats_tenant.flags */
#define RBK_STATS_TENANT_USED    (1u << 0) /* the record stands for a tenant */
#define RBK_STATS_TENANT_NAMED   (1u << 1) /* the policy in force names it */
#define RBK_STATS_TENANT_PAGE    (1u << 2) /* it has a page; without a page: no plans, no log */
#define RBK_STATS_TENANT_DRAINED (1u << 3) /* takes no new work: an administrator drains it */
#define RBK_STATS_TENANT_CHANGED (1u << 4) /* an administrator set limits beside the policy's */

/*
 * Histograms are log-linear: 4 buckets per doubling, in units of 64 ns, so that a bucket's width is
 * at most a quarter of its lower end. rbk_stats_bucket() and rbk_stats_bucket_ns() convert.
 */
struct rbk_stats_tenant {
	uint32_t sequence;
	uint32_t number; /* tenant number: never 0, never reused */
	uint32_t flags;  /* RBK_STATS_TENANT_* */
	uint32_t weight;
	char name[RBK_STATS_NAME_BYTES]; /* NUL-terminated, printable */

	/* Tasks that were placed and completed. */
	uint64_t n_tasks;                        /* count */
	uint64_t n_inline;                       /* count of tasks run at once, without a queue */
	uint64_t n_errors;                       /* count of tasks with a negative result */
	uint64_t n_deadlines_missed;             /* count */
	uint64_t n_partitioned;                  /* count of tasks split over devices */
	uint64_t n_explored;                     /* count */
	uint64_t queue_ns;                       /* count: times from admission to start */
	uint64_t exec_ns;                        /* count: times from start to end */
	uint64_t reasons[RBK_STATS_MAX_REASONS]; /* count by enum rbk_reason */
	uint64_t copied_bytes;                   /* count of tensor bytes copied by a CPU */
	uint64_t transferred_bytes; /* count of tensor bytes moved by a device's own engine */
	uint64_t throttled_ns;      /* count: time during which its CPU quota throttled it */
	uint64_t n_throttled;       /* count of such throttlings */

	/* The decision log: record i, for log_first <= i < log_head, is at i % count. */
	uint64_t log_head;  /* count of records ever written */
	uint64_t log_first; /* index of the first record since the last reset */

	uint64_t n_evictions; /* evictions of its plans since the broker's start */
	uint64_t n_returns;   /* reloads of evicted plans since the broker's start */
	/* tasks placed elsewhere for lack of memory, since the broker's start */
	uint64_t n_memory_constraints;
	uint64_t n_refused;           /* requests beyond a limit, since the broker's start */
	uint64_t n_sessions;          /* sessions now */
	uint64_t n_plans;             /* plans now */
	uint64_t n_plans_unlisted;    /* plans now without a slot in PLANS */
	uint64_t host_used, host_max; /* bytes; UINT64_MAX: no limit */
	/* Since 1.2: count: the part of exec_ns of inline tasks, which are in no histogram */
	uint64_t inline_ns;
	uint64_t arena_bytes; /* since 1.9: bytes of the arenas that its clients have registered now
			       */
	uint64_t n_entries_refused; /* since 1.10: count of entries that were invalid */
	uint64_t n_reactor; /* since 1.11: count of queued tasks that the reactor ran itself */
	/* Since 1.15: count of records ever written to SEGMENTS: record i is at i % count. */
	uint64_t segments_head;
	/*
	 * Since 1.23, of the time in which its leases shared a device, since the broker's start;
	 * leases that have ended count as well. See the members of these names of struct
	 * rbk_stats_lease.
	 */
	uint64_t slice_ns, slice_wait_ns, n_overdue, n_submissions, n_parts;
	/* since 1.23: the index that the next record of SLICES gets */
	uint64_t slices_head;
	/* since 1.24: programs of its leases whose device was lost by its own leases' work, or not
	 */
	uint64_t n_lost_own, n_lost;
	uint64_t beside_ns; /* since 1.24: time beside timeslices of its leases, as noticed */
	uint64_t reserved[1];

	struct rbk_stats_tenant_device devices[RBK_MAX_DEVICES];
	uint64_t queue_histogram[RBK_STATS_BUCKETS]; /* count by queue time; no inline tasks */
	/* count by time from admission to end; no inline tasks */
	uint64_t latency_histogram[RBK_STATS_BUCKETS];
};

/* A plan's figures on one device. */
struct rbk_stats_plan_device {
	uint64_t n_tasks;    /* count of tasks completed on it */
	uint64_t n_failed;   /* count of tasks with a negative result */
	uint64_t n_explored; /* count */
	uint64_t exec_ns;    /* count: sum of the tasks' times from start to end */
	/* Tasks with a prediction that ran on this device alone: */
	uint64_t n_predicted;       /* count */
	uint64_t predicted_ns;      /* count: sum of the predictions */
	uint64_t predicted_exec_ns; /* count: sum of their execution times */
	uint64_t error_ns;          /* count: sum of the absolute differences */

	/* Figures that the broker has learned, as of the last update; all 0: none. */
	double estimate_ns; /* undisturbed time of a task of struct rbk_stats_plan.count rows */
	double spread;      /* relative spread of the estimate */
	double mean_ns;     /* mean over the window of the last executions */
	/*
	 * Mean of |predicted - observed| / observed, each at most 1, over that window, without the
	 * first executions, which the estimate begins with
	 */
	double mean_error;
	double speedup;      /* factor over the CPU, both undisturbed */
	uint32_t break_even; /* least count for which it beats the CPU; 0: none */
	/* true if enough executions were seen, and mean_error is at most 0.5 */
	uint8_t is_trusted;
	uint8_t state; /* enum rbk_memory_state */
	uint8_t tier;  /* enum rbk_memory_tier */
	/*
	 * A task takes 2^(n/32) times as long now because of contention, where n is this number:
	 * estimate_ns times that factor is what decisions predict; since 1.10
	 */
	uint8_t contention;
	uint64_t resident_bytes; /* its share of bytes in the device's memory now */
	/* bytes of device memory that it takes when resident; since 1.2 */
	uint64_t footprint_bytes;
};

enum rbk_stats_plan_state {
	RBK_STATS_PLAN_FREE = 0, /* the slot was never used */
	RBK_STATS_PLAN_LIVE = 1,
	RBK_STATS_PLAN_GONE = 2, /* removed; its figures stay until the slot is reused */
};

struct rbk_stats_plan {
	uint32_t sequence;
	uint32_t state;            /* enum rbk_stats_plan_state */
	uint32_t session;          /* its session's number, as in the broker's log */
	uint32_t plan_id;          /* id of the plan in its session */
	char name[RBK_NAME_BYTES]; /* NUL-terminated, written by the client: untrusted */
	uint64_t fingerprint;      /* equal for plans of the same shape */
	uint64_t made_at_ns;
	uint64_t n_inline;                       /* count of its tasks run at once */
	uint64_t reasons[RBK_STATS_MAX_REASONS]; /* count by enum rbk_reason */
	uint32_t count;                          /* rows of its last task */
	uint8_t last_device;                     /* device of its last task, RBK_DEVICE_* */
	uint8_t last_reason;                     /* enum rbk_reason of its last task */
	uint16_t last_flags;                     /* RBK_DECISION_* of its last task */
	/* Since 1.2. */
	uint64_t n_evictions;          /* evictions from any device, since the plan was made */
	uint64_t n_returns;            /* reloads to any device, since the plan was made */
	uint64_t n_memory_constraints; /* tasks, or segments, placed elsewhere for lack of memory */
	/* Since 1.14. */
	uint32_t n_segments;          /* segments that the plan is cut into; 1: it is whole */
	uint32_t n_segments_resident; /* of these, segments in the memory of a device */
	/* Since 1.18. Times predicted for a task of all rows when the plan was made; 0: none */
	float cut_ns, whole_ns; /* in segments; as a whole, on the best device */
	uint8_t cut;            /* enum rbk_cut */
	uint8_t reserved[3];
	uint32_t n_streamed; /* since 1.19, 0 before: RBK_DECISION_STREAMED segments; wraps */
	struct rbk_stats_plan_device devices[]; /* header.n_devices elements */
};

/* struct rbk_stats_decision.flags; the lower seven bits are RBK_CQE_*. */
#define RBK_DECISION_DEADLINE_MISSED RBK_CQE_DEADLINE_MISSED
#define RBK_DECISION_PARTITIONED     RBK_CQE_PARTITIONED
#define RBK_DECISION_EXPLORED        RBK_CQE_EXPLORED
/* since 1.23: waited for leased programs that share the device's time */
#define RBK_DECISION_HELD_BACK (1u << 7)
/* ran on the reactor; represents up to 64 such tasks */
#define RBK_DECISION_INLINE (1u << 8)
/* of a segment, since 1.19: streamed (brokerd(8)): its constants came just for this task */
#define RBK_DECISION_STREAMED (1u << 8)
#define RBK_DECISION_MOVED    (1u << 9) /* was first queued on another device */
/*
 * The upper six bits, for a task on the CPU: 0 if the CPU was uncontended when the task ended.
 * Otherwise the task took 2^(n/9) times as long because other processes kept the CPU busy, where n
 * is this number.
 */
#define RBK_DECISION_CONTENTION_SHIFT 10
#define RBK_DECISION_CONTENTION_MAX   63u

/*
 * A task, as it completed. Times are single-precision: exact to one part in sixteen million. All
 * tasks that were queued are logged. Of a plan's tasks that ran on the reactor, the first is
 * logged, and then at least one in 64.
 */
struct rbk_stats_decision {
	uint64_t sequence; /* 0 while the record is written, otherwise its index + 1 */
	uint64_t ended_at_ns;
	uint64_t user_data;
	uint32_t plan_id;
	uint32_t session;
	uint32_t count;
	/* rows from the first on that a GPU ran, the CPU ran the rest; 0: not split */
	uint32_t split_count;
	float predicted_ns; /* predicted execution time on its device; 0: not predicted */
	float other_ns;     /* the same on the best other device; 0: there is none */
	float queue_ns;     /* time from admission to start */
	float exec_ns;      /* time from start to end */
	uint8_t device;     /* RBK_DEVICE_* */
	uint8_t reason;     /* enum rbk_reason */
	uint16_t flags;     /* RBK_DECISION_* */
	int16_t res;        /* 0 or -errno */
	uint16_t plan;      /* slot in PLANS; 0xffff: none */
};

enum rbk_stats_breaker {
	RBK_STATS_BREAKER_CLOSED = 0, /* the device is used */
	RBK_STATS_BREAKER_OPEN = 1,   /* the device failed too often and is not used */
	RBK_STATS_BREAKER_PROBING = 2,
};

enum rbk_stats_tile_operator {
	/* float32: MatMul, Gemm, and Conv with a window of one element. */
	RBK_STATS_TILE_MATMUL = 0,
	RBK_STATS_TILE_CONV = 1,       /* other Conv, float32 and float16 */
	RBK_STATS_TILE_MATMUL_F16 = 2, /* as RBK_STATS_TILE_MATMUL, float16 */
};

/*
 * The tile of a result that a device computes at once where that is fastest; 0: it has no choice.
 */
#define RBK_STATS_TILE_OPERATORS 3
#define RBK_STATS_TILE_CLASSES   4
struct rbk_stats_tile {
	uint8_t rows, columns;
};

/* Tenant pages hold sequence, index, kind, names and memory_total only; the rest is 0. */
struct rbk_stats_device {
	uint32_t sequence;
	uint32_t index;   /* RBK_DEVICE_* */
	uint32_t kind;    /* 0: processor; 1: GPU; 2: Vulkan in software */
	uint32_t breaker; /* enum rbk_stats_breaker */
	char name[RBK_STATS_NAME_BYTES];
	char driver[RBK_STATS_NAME_BYTES];

	/* All tenants together, as of the last update. */
	uint64_t n_tasks, n_failed, n_explored;
	uint64_t exec_ns;
	uint64_t device_ns;
	/* tasks by enum rbk_reason of their placement on it */
	uint64_t reasons[RBK_STATS_MAX_REASONS];

	uint64_t backlog_ns; /* predicted time until the device is idle */
	uint64_t n_queued;   /* tasks that wait in the broker */
	uint64_t n_released; /* tasks in flight on the device */
	uint64_t n_opened;   /* openings of the breaker */
	double success_rate; /* over the window */
	double contention;   /* factor by which execution is slower than undisturbed; at least 1 */
	double explored_share; /* fraction of execution time spent on exploring */
	double utilization;    /* of its servers, since the last update; 0 to 1 */

	/* Main figures of its profile; 0: unknown. */
	uint32_t n_servers; /* tasks that it works on at once */
	uint32_t reserved32;
	double flops_per_ns;    /* of one server: the highest of any family and size of operators */
	double bytes_per_ns;    /* likewise */
	double up_bytes_per_ns; /* of the link to the device; 0: it works in place */
	double down_bytes_per_ns;
	double launch_ns; /* fixed cost of one task */
	double active_watts;

	/* Bytes; RBK_STATS_ABSENT if unavailable. */
	uint64_t memory_total;
	uint64_t memory_used;    /* by all processes */
	uint64_t memory_outside; /* by processes other than the broker */
	uint64_t memory_budget;  /* available to all tenants together now */
	uint64_t memory_charged; /* charged to tenants */
	uint64_t gtt_total;
	uint64_t gtt_used;

	/* Sensors; RBK_STATS_ABSENT if unavailable. */
	uint64_t load_percent;
	uint64_t memory_load_percent;
	uint64_t clock_hz;
	uint64_t memory_clock_hz;
	uint64_t temperature_millicelsius;
	uint64_t power_microwatts;

	/* Since 1.2. */
	char paths[RBK_STATS_NAME_BYTES]; /* memory paths in use; for the CPU the SIMD level */
	uint64_t n_driver_evictions; /* by the driver, since it was loaded; or RBK_STATS_ABSENT */
	uint32_t flags;              /* RBK_STATS_DEVICE_* */
	/* times that it had work and made no progress; 0 from brokers that do not check */
	uint32_t n_stalls;

	/*
	 * Since 1.5. Rows by enum rbk_stats_tile_operator (float16 since 1.6), columns by class:
	 * large, small, few rows, few columns.
	 */
	struct rbk_stats_tile tiles[RBK_STATS_TILE_OPERATORS][RBK_STATS_TILE_CLASSES];
};

/* struct rbk_stats_device.flags */
#define RBK_STATS_DEVICE_DRAINED  (1u << 0) /* drained: nothing new is placed on it */
#define RBK_STATS_DEVICE_LOST     (1u << 1) /* the device is lost and being reopened */
#define RBK_STATS_DEVICE_MATRICES (1u << 2) /* multiplies float16 matrices cooperatively */
/*
 * Since 1.6. MatMul of float16 multiplies cooperatively. This bit is of the first class of tiles,
 * the next bits are of the next classes.
 */
#define RBK_STATS_DEVICE_TILES_OF_MATRICES (1u << 8)

/* struct rbk_stats_session.flags */
#define RBK_STATS_SESSION_ADMIN  (1u << 0) /* on the administrators' socket; it has no tenant */
#define RBK_STATS_SESSION_ENDING (1u << 1) /* its client is gone, its tasks are still in flight */

/*
 * A connected client, as of the last update. Records are used from the first on: a reader that has
 * seen rbk_stats_broker.n_sessions of them has seen all.
 */
struct rbk_stats_session {
	uint32_t sequence;
	uint32_t number; /* as in the broker's log; 0: the record is free */
	uint32_t tenant; /* number of its tenant; 0: none */
	uint32_t flags;  /* RBK_STATS_SESSION_* */
	uint32_t pid;    /* in the broker's pid namespace; 0: not visible in it */
	uint32_t uid;
	char name[RBK_STATS_NAME_BYTES]; /* name that the client sent; printable ASCII */
	char comm[16]; /* its process's comm at connection; printable ASCII; or empty */
	uint64_t began_at_ns;
	uint64_t n_tasks;     /* tasks completed */
	uint64_t n_gpu_tasks; /* completed tasks on devices other than the CPU */
	uint64_t n_errors;    /* completed tasks with a negative result */
	uint64_t n_fallbacks; /* completed tasks of RBK_REASON_CPU_FALLBACK */
	uint64_t copied_bytes, transferred_bytes;
	uint64_t n_in_flight;                             /* tasks in flight now */
	uint64_t n_rings, n_arenas, arena_bytes, n_plans; /* now */
	uint64_t n_plans_resident; /* plans resident now on some device with memory of its own */
	/* Since 1.5. */
	uint64_t memory_used; /* bytes of device memory that its plans hold */
	uint64_t n_evictions; /* evictions of its plans since the session began */
	uint64_t gpu_ns;      /* sum of the time that GPUs' servers worked on its tasks */
	/*
	 * Percentiles of the time from admission to end of tasks that ended in the last second
	 * (several seconds if there are many sessions), without inline tasks. 0: no task ended.
	 */
	uint64_t p50_ns, p99_ns;
	uint64_t reserved[1];
};

/* struct rbk_stats_lease.flags */
#define RBK_STATS_LEASE_WAITING   (1u << 0) /* a member waits for more */
#define RBK_STATS_LEASE_SHRINKING (1u << 1) /* it was asked for more bytes than it has returned */
#define RBK_STATS_LEASE_RESTORED  (1u << 2) /* restored from a broker that ended */
#define RBK_STATS_LEASE_OVER \
	(1u << 3) /* reported use exceeds the grant, or seen use exceeds it plus overhead */
/*
 * The kernel enforces it too: all programs that use it are in its cgroup, whose dmem.max is not
 * above it, as the broker saw up to a second ago (several seconds if there are many leases).
 */
#define RBK_STATS_LEASE_CAPPED (1u << 4)
/* Since 1.21: it shares the device's time with other leases, and with this priority if not normal
 */
#define RBK_STATS_LEASE_SHARING    (1u << 5)
#define RBK_STATS_LEASE_URGENT     (1u << 6) /* before 1.23 also a high one */
#define RBK_STATS_LEASE_BACKGROUND (1u << 7)
#define RBK_STATS_LEASE_QUEUED     (1u << 8) /* since 1.23: its programs wait for the device */
#define RBK_STATS_LEASE_HIGH       (1u << 9) /* since 1.23: between urgent and normal */
/* since 1.24: idle programs' memory should be in the host; and they should submit nothing */
#define RBK_STATS_LEASE_SLEEPS (1u << 10)
#define RBK_STATS_LEASE_HELD   (1u << 11)

/*
 * A lease: device memory of programs that drive the device themselves (<ringbroker/lease.h>), as of
 * the last update. Records are used from the first on, and the first free record ends them.
 */
struct rbk_stats_lease {
	uint32_t sequence;
	uint32_t number; /* 0: the record is free */
	uint32_t tenant; /* number of its tenant */
	uint32_t device; /* RBK_DEVICE_* */
	uint32_t flags;  /* RBK_STATS_LEASE_* */
	/* process that opened it, in the broker's pid namespace; 0: gone, or not visible */
	uint32_t pid;
	uint32_t uid;
	uint32_t n_members;              /* sessions that are members */
	char name[RBK_STATS_NAME_BYTES]; /* name that the program sent; printable ASCII */
	uint64_t opened_at_ns;
	uint64_t min_bytes;
	uint64_t wish_bytes;
	uint64_t max_bytes;
	uint64_t granted_bytes;  /* charged to the tenant */
	uint64_t credited_bytes; /* part of granted_bytes that members have */
	uint64_t object_bytes;   /* part of granted_bytes for objects that processes share */
	uint64_t used_bytes;     /* as members report */
	uint64_t extra_bytes;    /* driver overhead beside used_bytes, as members report */
	uint64_t peak_bytes;     /* highest sum of used_bytes and extra_bytes */
	uint64_t seen_bytes; /* use of members' processes, from the kernel; or RBK_STATS_ABSENT */
	uint64_t waiting_bytes; /* bytes for which all members wait */
	uint64_t n_objects;     /* allocations, as members report */
	uint64_t n_refused;     /* refused allocations, as members report */
	/* Since 1.20. From the kernel; or RBK_STATS_ABSENT. */
	uint64_t busy_ns;      /* time of the device that its programs used */
	uint64_t busy_percent; /* the same in percent of about the last second */
	/* Since 1.21, of the time in which it shared the device with other leases: */
	uint64_t slice_ns;      /* time for which it had the device, or kept it busy afterwards */
	uint64_t slice_wait_ns; /* time for which its programs waited for the device */
	uint32_t n_overdue;     /* timeslices that its programs did not end in time */
	uint32_t share;         /* since 1.23: of its tenant's time, 1 to 10000; 0: not sharing */
	/* since 1.24: time that its programs used beside its timeslices, as far as it was noticed
	 */
	uint64_t beside_ns;
	/*
	 * Since 1.23. Counts since it was opened, as the layer in its programs reports about once a
	 * second while they share the device; RBK_STATS_ABSENT: none has reported.
	 */
	uint64_t n_submissions; /* of command buffers to the driver, in parts or whole */
	/*
	 * Parts that were recorded behind the first one of a command buffer: one that is divided
	 * into 5 parts counts 4, and one that stays whole 0.
	 */
	uint64_t n_parts;
	uint64_t n_slices;   /* slices into which dispatches were divided */
	uint64_t n_whole;    /* command buffers that stayed whole from some command on */
	uint64_t n_unsliced; /* dispatches that take longer than a part and stayed whole */
	/*
	 * Longest time of a part, and longest wait for the device that has ended, of the last ten
	 * to twenty seconds; 0: none. Parts are measured while more work is queued behind them.
	 */
	uint64_t longest_part_ns, longest_wait_ns;
	uint64_t queued_ns; /* time for which it has waited for the device now; 0: it does not */
	/*
	 * Since 1.24. Bytes of device memory that the layer in its programs can move to host memory
	 * while they are idle, those that are there included; and bytes that are there.
	 */
	uint64_t movable_bytes, moved_bytes;
};

/* struct rbk_stats_broker.flags */
#define RBK_STATS_BROKER_FORCE_CPU (1u << 0) /* every task that may run on the CPU does */

/* The whole broker, as of the last update. */
struct rbk_stats_broker {
	uint32_t sequence;
	uint32_t flags;
	uint32_t strategy;     /* enum rbk_strategy that RBK_STRATEGY_AUTO stands for */
	uint32_t n_leases;     /* since 1.22: now */
	uint64_t n_sessions;   /* now */
	uint64_t n_rings;      /* now */
	uint64_t n_arenas;     /* now */
	uint64_t n_plans;      /* now */
	uint64_t n_tenants;    /* now */
	uint64_t n_in_flight;  /* tasks now */
	uint64_t host_bytes;   /* bytes charged now, including to the broker for this page */
	uint64_t device_bytes; /* charged now */
	uint64_t n_completed;  /* entries since start, including NOPs and rejected entries */
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t n_ended_hostile;    /* sessions closed for breaking a rule */
	uint64_t n_tenants_unlisted; /* tenants beyond the records of TENANTS, now */
	/* Since 1.7. From start, or from the last reset of all pages. */
	uint64_t longest_turn_ns;     /* longest turn of the reactor; 0: unknown */
	uint32_t longest_turn_cause;  /* enum rbk_turn_cause */
	uint32_t longest_turn_tenant; /* number of the tenant that it was for; 0: unknown */
	uint64_t n_turn_overruns[14]; /* turns of more than ten budgets, by enum rbk_turn_cause */
	/* Since 1.8: limit of host_bytes; UINT64_MAX: no limit; 0: unknown. */
	uint64_t host_max;
	/* Since 1.24: the last ones of all tenants, in no order. */
	struct rbk_stats_reset resets[RBK_STATS_ALL_RESETS];
	/*
	 * Since 1.24: processes without a lease that used a device which leases share; the first
	 * unused element ends them.
	 */
	struct rbk_stats_outside outside[RBK_STATS_MAX_OUTSIDE];
};

/* ---- Reading ----------------------------------------------------------------------------- */

/*
 * A mapped page and the locations of its sections: a private copy, checked once, so that no later
 * read can leave the page. rbk_stats_map() of libringbroker fills it.
 */
struct rbk_stats_view {
	const struct rbk_stats_header *page; /* NULL: no page is mapped */
	uint64_t bytes;
	uint32_t n_devices;
	uint32_t reserved;
	/* The maximum number, so that this struct never grows; absent sections are all 0. */
	struct rbk_stats_section sections[RBK_STATS_MAX_SECTIONS];
};

/*
 * Check that @page, of which @bytes are mapped, is a page that this file describes, with every
 * section inside.
 * Return: 1 if so, with *ret filled; otherwise 0.
 */
static inline int rbk_stats_view(struct rbk_stats_view *ret, const void *page, uint64_t bytes)
{
	/* Records never become smaller than in the minor version that introduced them. */
	static const uint32_t least_strides[RBK_STATS_SECTION_COUNT] = {
		(uint32_t)sizeof(struct rbk_stats_tenant),
		(uint32_t)sizeof(struct rbk_stats_plan),
		(uint32_t)sizeof(struct rbk_stats_decision),
		(uint32_t)offsetof(struct rbk_stats_broker, resets),
		(uint32_t)sizeof(struct rbk_stats_device),
		(uint32_t)sizeof(struct rbk_stats_contention),
		(uint32_t)sizeof(struct rbk_stats_thread),
		(uint32_t)sizeof(struct rbk_stats_delay),
		(uint32_t)sizeof(struct rbk_stats_session),
		(uint32_t)offsetof(struct rbk_stats_lease, n_submissions),
		(uint32_t)sizeof(struct rbk_stats_upkeep),
		(uint32_t)sizeof(struct rbk_stats_refused),
		(uint32_t)sizeof(struct rbk_stats_reload),
		(uint32_t)sizeof(struct rbk_stats_waiting),
		(uint32_t)sizeof(struct rbk_stats_segment),
		(uint32_t)sizeof(struct rbk_stats_slice),
	};
	const struct rbk_stats_header *header = (const struct rbk_stats_header *)page;
	const struct rbk_stats_section *section;
	struct rbk_stats_view view;
	uint64_t least, all;
	unsigned int i, n;

	if (bytes < sizeof(*header) || header->magic != RBK_STATS_MAGIC ||
	    header->abi_major != RBK_STATS_ABI_MAJOR || header->page_bytes != bytes)
		return 0;
	/*
	 * A broker of another minor version may have fewer sections than this file knows, or more.
	 */
	n = header->n_sections;
	if (n < RBK_STATS_LEAST_SECTIONS)
		return 0;
	if (n > RBK_STATS_SECTION_COUNT)
		n = RBK_STATS_SECTION_COUNT;
	memset(&view, 0, sizeof(view));
	view.page = header;
	view.bytes = bytes;
	view.n_devices = header->n_devices;
	memcpy(view.sections, header->sections, n * sizeof(view.sections[0]));
	if (view.n_devices > RBK_MAX_DEVICES)
		return 0;
	for (i = 0; i < n; i++) {
		section = &view.sections[i];
		if (section->offset == 0)
			continue;
		least = least_strides[i];
		if (i == RBK_STATS_SECTION_PLANS)
			least += view.n_devices * sizeof(struct rbk_stats_plan_device);
		all = (uint64_t)section->stride * section->count;
		if (section->offset < sizeof(*header) || section->offset % 8 != 0 ||
		    section->stride % 8 != 0 || section->stride < least || all > bytes ||
		    section->offset > bytes - all)
			return 0;
		if ((i == RBK_STATS_SECTION_DECISIONS || i == RBK_STATS_SECTION_SEGMENTS ||
		     i == RBK_STATS_SECTION_SLICES) &&
		    (section->count & (section->count - 1)) != 0)
			return 0;
	}
	*ret = view;
	return 1;
}

/*
 * Return the number of records of a section; 0: no such section. @id is enum rbk_stats_section_id.
 */
static inline uint32_t rbk_stats_count(const struct rbk_stats_view *view, unsigned int id)
{
	return id < RBK_STATS_SECTION_COUNT && view->sections[id].offset ? view->sections[id].count
									 : 0;
}

/*
 * Return the number of records of a section that can be in use now. The records behind them are
 * free, and reading them would only take memory. The number changes: a reader sees a new record at
 * its next look.
 */
static inline uint32_t rbk_stats_used(const struct rbk_stats_view *view, unsigned int id)
{
	uint32_t count = rbk_stats_count(view, id), n_free;

	if (count == 0)
		return 0;
	n_free = __atomic_load_n(&view->page->sections[id].n_free, __ATOMIC_RELAXED);
	return n_free < count ? count - n_free : 0;
}

/* Return record @index of a section, to copy or load from; NULL beyond the section's end. */
static inline const void *rbk_stats_record(const struct rbk_stats_view *view, unsigned int id,
					   uint32_t index)
{
	if (index >= rbk_stats_count(view, id))
		return NULL;
	return (const char *)view->page + view->sections[id].offset +
	       (uint64_t)view->sections[id].stride * index;
}

/* Load a member of 8 bytes, marked "count" or of the header. */
static inline uint64_t rbk_stats_load(const uint64_t *member)
{
	return __atomic_load_n(member, __ATOMIC_RELAXED);
}

#define RBK_STATS_TRIES 64

/*
 * Copy the first @bytes of a record, a multiple of 8 and at most the section's stride, into @to,
 * aligned to 8 (for a plan:
 * sizeof(struct rbk_stats_plan) and a struct rbk_stats_plan_device for each of the n_devices).
 * Return: 1; 0 if the broker was changing the record at every try, or died while changing it: the
 * copy may then mix old and new.
 */
static inline int rbk_stats_copy(void *to, const void *record, size_t bytes)
{
	const uint32_t *sequence = (const uint32_t *)record;
	const uint64_t *from = (const uint64_t *)record;
	uint64_t *words = (uint64_t *)to;
	uint32_t before;
	unsigned int n;
	size_t i;

	for (n = 0; n < RBK_STATS_TRIES; n++) {
		/* Pairs with the release store that ended the change. */
		before = __atomic_load_n(sequence, __ATOMIC_ACQUIRE);
		for (i = 0; i < bytes / sizeof(*words); i++)
			words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
		/* Pairs with the release fence after the change's first store. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (before % 2 == 0 && __atomic_load_n(sequence, __ATOMIC_RELAXED) == before)
			return 1;
	}
	return 0;
}

/*
 * Copy record @index of a section of @view, whose broker may be older: the members that it does not
 * have are 0. @to has room for @bytes, a multiple of 8, and is aligned to 8.
 * Return: 1; 0 as rbk_stats_copy(), or if there is no such record.
 */
static inline int rbk_stats_copy_record(const struct rbk_stats_view *view, unsigned int id,
					uint32_t index, void *to, size_t bytes)
{
	const void *record = rbk_stats_record(view, id, index);
	size_t stride = record ? view->sections[id].stride : 0;

	if (bytes > stride)
		memset((char *)to + stride, 0, bytes - stride);
	return record && rbk_stats_copy(to, record, bytes < stride ? bytes : stride);
}

/*
 * Copy a record that begins with its sequence into @words, @n_words of them; @sequence: 0: any
 * sequence will do.
 * Return: 1; 0 if the record is unused, was overwritten, or is being written.
 */
static inline int rbk_stats_copy_logged(const void *record, uint64_t sequence, uint64_t *words,
					size_t n_words)
{
	const uint64_t *from = (const uint64_t *)record;
	size_t i;

	if (!from)
		return 0;
	/* Pairs with the release store that ended the record. */
	words[0] = __atomic_load_n(from, __ATOMIC_ACQUIRE);
	if (words[0] == 0 || (sequence != 0 && words[0] != sequence))
		return 0;
	for (i = 1; i < n_words; i++)
		words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
	/* Pairs with the release fence after the sequence became 0. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(from, __ATOMIC_RELAXED) == words[0];
}

/*
 * Copy record @index of a section that is a ring, as rbk_stats_copy_logged().
 * Return: 1; 0 if the record was overwritten, or is being written.
 */
static inline int rbk_stats_copy_ring(const struct rbk_stats_view *view, unsigned int id,
				      uint64_t index, uint64_t *words, size_t n_words)
{
	const uint32_t n = rbk_stats_count(view, id);

	if (n == 0 || index == UINT64_MAX)
		return 0;
	return rbk_stats_copy_logged(rbk_stats_record(view, id, (uint32_t)(index & (n - 1))),
				     index + 1, words, n_words);
}

/*
 * Copy record @index of the decision log of a tenant page (an index that only goes up, below
 * log_head).
 * Return: 1; 0 if the record was overwritten, or is being written.
 */
static inline int rbk_stats_decision(const struct rbk_stats_view *view, uint64_t index,
				     struct rbk_stats_decision *ret)
{
	uint64_t words[sizeof(*ret) / sizeof(uint64_t)];

	if (!rbk_stats_copy_ring(view, RBK_STATS_SECTION_DECISIONS, index, words,
				 sizeof(words) / sizeof(words[0])))
		return 0;
	memcpy(ret, words, sizeof(*ret));
	return 1;
}

/* Copy record @index of SEGMENTS of a tenant page, below segments_head, likewise. */
static inline int rbk_stats_segment(const struct rbk_stats_view *view, uint64_t index,
				    struct rbk_stats_segment *ret)
{
	uint64_t words[sizeof(*ret) / sizeof(uint64_t)];

	if (!rbk_stats_copy_ring(view, RBK_STATS_SECTION_SEGMENTS, index, words,
				 sizeof(words) / sizeof(words[0])))
		return 0;
	memcpy(ret, words, sizeof(*ret));
	return 1;
}

/* Copy record @index of SLICES of a tenant page, below slices_head, likewise. */
static inline int rbk_stats_slice(const struct rbk_stats_view *view, uint64_t index,
				  struct rbk_stats_slice *ret)
{
	uint64_t words[sizeof(*ret) / sizeof(uint64_t)];

	if (!rbk_stats_copy_ring(view, RBK_STATS_SECTION_SLICES, index, words,
				 sizeof(words) / sizeof(words[0])))
		return 0;
	memcpy(ret, words, sizeof(*ret));
	return 1;
}

/*
 * Copy one of the last RBK_STATS_RESETS resets of a tenant page, which are in no order, behind its
 * record of TENANTS. The root page has them in struct rbk_stats_broker.
 * Return: 1; 0 if it is unused, or is being written, or the page has none.
 */
static inline int rbk_stats_reset_copy(const struct rbk_stats_view *view, uint32_t index,
				       struct rbk_stats_reset *ret)
{
	const char *record = (const char *)rbk_stats_record(view, RBK_STATS_SECTION_TENANTS, 0);
	const uint32_t stride = view->sections[RBK_STATS_SECTION_TENANTS].stride;
	const size_t offset = sizeof(struct rbk_stats_tenant) + (size_t)index * sizeof(*ret);
	uint64_t words[sizeof(*ret) / sizeof(uint64_t)];

	if (!record || index >= RBK_STATS_RESETS || offset + sizeof(*ret) > stride ||
	    !rbk_stats_copy_logged(record + offset, 0, words, sizeof(words) / sizeof(words[0])))
		return 0;
	memcpy(ret, words, sizeof(*ret));
	ret->name[sizeof(ret->name) - 1] = '\0';
	return 1;
}

/*
 * Copy a record of REFUSED of a tenant page; @index is below rbk_stats_count(). The records are in
 * no order: compare their sequences.
 * Return: 1; 0 if the record is unused, or is being written.
 */
static inline int rbk_stats_refused(const struct rbk_stats_view *view, uint32_t index,
				    struct rbk_stats_refused *ret)
{
	const void *record = rbk_stats_record(view, RBK_STATS_SECTION_REFUSED, index);
	uint64_t words[sizeof(*ret) / sizeof(uint64_t)];

	if (!rbk_stats_copy_logged(record, 0, words, sizeof(words) / sizeof(words[0])))
		return 0;
	memcpy(ret, words, sizeof(*ret));
	ret->field[sizeof(ret->field) - 1] = '\0';
	ret->reason[sizeof(ret->reason) - 1] = '\0';
	return 1;
}

/* Return the bucket of a histogram that counts @ns. */
static inline unsigned int rbk_stats_bucket(uint64_t ns)
{
	uint64_t units = ns >> 6;
	unsigned int octave, bucket;

	if (units < 4)
		return (unsigned int)units;
	octave = 63u - (unsigned int)__builtin_clzll(units);
	bucket = (octave - 1) * 4 + (unsigned int)(units >> (octave - 2) & 3);
	return bucket < RBK_STATS_BUCKETS ? bucket : RBK_STATS_BUCKETS - 1;
}

/* Return the least time that a bucket counts; its times are below that of the next bucket. */
static inline uint64_t rbk_stats_bucket_ns(unsigned int bucket)
{
	uint64_t units = bucket < 4 ? bucket : (uint64_t)(4 + bucket % 4) << (bucket / 4 - 1);

	return units << 6;
}
