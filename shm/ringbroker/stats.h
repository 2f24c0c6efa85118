#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages: what the broker counts, in shared memory
 *
 * A page is a memfd that only the broker writes and everybody else can map read-only. Reading one
 * is loads from memory: the broker does not notice, however many look and however often. There are
 * two kinds:
 *
 *   RBK_STATS_TENANT  one tenant's own figures: totals, a slot for each of its plans, a log of
 *                     decisions, and how its processes waited for processors. Handed to sessions of
 *                     that tenant, and to administrators.
 *   RBK_STATS_ROOT    the whole broker's: devices, the totals of every tenant, and who waited for a
 *                     processor. For administrators: root, and the user that brokerd runs as.
 *
 * A page begins with struct rbk_stats_header, which says where its sections are. A section is an
 * array of records of one type; rbk_stats_record() finds them. Pages grow: a broker of the same
 * major may have more sections, larger records (new members at their ends) and larger arrays than
 * this file knows, never smaller or rearranged ones. So a reader takes offset, stride and count
 * from the header and never from sizeof. Everything is little endian and aligned to 8 bytes;
 * members that are not known are 0, unless RBK_STATS_ABSENT stands for "cannot be had".
 *
 * Reading while the broker writes. Each record begins with a sequence: odd while the broker changes
 * what belongs together (names, states, everything that is computed, a reset); rbk_stats_copy()
 * copies a record and tells whether it was left in peace. Members marked "count" below are changed
 * outside that, as tasks complete: each by itself is exact, two of them may be one task apart.
 * Records of the decision log carry their index, so that a reader knows a record that was
 * overwritten under its hands. Nobody ever waits for anybody.
 *
 * Times named _ns are durations; those named _at_ns are points on the broker's own clock, which
 * starts anywhere and never jumps: add header.monotonic_offset_ns for CLOCK_MONOTONIC, or
 * header.realtime_offset_ns for CLOCK_REALTIME (as they were at the last update).
 *
 * Counts go up from the broker's start, or the last reset (header.n_resets), as tasks complete;
 * tasks that ran on the reactor itself are counted with the next update. Computed members follow
 * several times a second (header.period_ns) as long as some session that was handed a page is
 * connected, so a reader stays connected. A page whose header.updated_at_ns is much older than that
 * belongs to a broker that is dead or hung; a dead one's page stays readable. After the last
 * session of a tenant has ended its page is not written any more (RBK_STATS_CLOSED); its totals go
 * on in the root page.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <ringbroker/abi.h>

#define RBK_STATS_MAGIC       0x53425252u /* "RRBS" */
#define RBK_STATS_ABI_MAJOR   1           /* another one: not this layout at all */
#define RBK_STATS_ABI_MINOR   9           /* grows with what is added */

#define RBK_STATS_ABSENT      UINT64_MAX /* a value that cannot be had here */
#define RBK_STATS_NAME_BYTES  64         /* of tenants, devices and drivers, with the NUL */
#define RBK_STATS_MAX_REASONS 16         /* room for RBK_REASON_COUNT to grow */
#define RBK_STATS_BUCKETS     128        /* of a histogram */

enum rbk_stats_kind {
	RBK_STATS_TENANT = 1,
	RBK_STATS_ROOT = 2,
};

/* Whose figures: of rbk_stats_map() and rbk_stats_reset(). */
enum rbk_stats_whose {
	RBK_STATS_OWN = 0,       /* the session's tenant's */
	RBK_STATS_ALL = 1,       /* the root page; to reset, every page's */
	RBK_STATS_OF_TENANT = 2, /* those of the tenant of a number */
};

/* What is in a page: index of struct rbk_stats_header.sections. */
enum rbk_stats_section_id {
	RBK_STATS_SECTION_TENANTS = 0,   /* rbk_stats_tenant; a tenant page has one, its own */
	RBK_STATS_SECTION_PLANS = 1,     /* rbk_stats_plan; tenant pages */
	RBK_STATS_SECTION_DECISIONS = 2, /* rbk_stats_decision, a ring; tenant pages */
	RBK_STATS_SECTION_BROKER = 3,    /* rbk_stats_broker, one; root pages */
	RBK_STATS_SECTION_DEVICES = 4,   /* rbk_stats_device; both */
	/* Since 1.1. */
	RBK_STATS_SECTION_CONTENTION = 5, /* rbk_stats_contention, one; root pages */
	RBK_STATS_SECTION_THREADS = 6,    /* rbk_stats_thread; root pages */
	RBK_STATS_SECTION_DELAYS = 7,     /* rbk_stats_delay, of the record of TENANTS with the same
					     index */
	/* Since 1.2. */
	RBK_STATS_SECTION_SESSIONS = 8, /* rbk_stats_session; of a tenant page its own */
	/* Since 1.3. */
	RBK_STATS_SECTION_LEASES = 9, /* rbk_stats_lease; of a tenant page its own */
	/* Since 1.8. */
	RBK_STATS_SECTION_UPKEEP = 10, /* rbk_stats_upkeep, one; root pages */
};
#define RBK_STATS_SECTION_COUNT  11
#define RBK_STATS_LEAST_SECTIONS 5 /* of 1.0: every page has them */
#define RBK_STATS_MAX_SECTIONS   16

struct rbk_stats_section {
	uint32_t offset; /* of the first record, from the page's first byte; 0: no such section */
	uint32_t stride; /* from one record to the next */
	uint32_t count;  /* of records; a power of two in DECISIONS */
	uint32_t n_free; /* so many of them, the last ones, are free now: rbk_stats_used(); since
			    1.4, 0 before */
};

/* struct rbk_stats_header.flags */
#define RBK_STATS_CLOSED (1u << 0) /* complete, and not written any more */

struct rbk_stats_header {
	uint32_t magic; /* RBK_STATS_MAGIC */
	uint16_t abi_major, abi_minor;
	uint32_t kind;       /* enum rbk_stats_kind */
	uint32_t n_devices;  /* of the broker */
	uint64_t page_bytes; /* of the memfd, to map whole */
	uint32_t pid;        /* the broker's */
	uint32_t n_sections; /* valid ones in sections */
	uint64_t started_at_ns;
	uint64_t period_ns; /* between two updates, at most, while a reader is connected */

	/* The rest changes, by single stores. */
	/*
	 * Count of updates, 1 at least: the heartbeat. A long update is written in pieces, so two
	 * records may be of different moments, also while this count stays the same.
	 */
	uint64_t n_updates;
	uint64_t updated_at_ns; /* the last one */
	int64_t monotonic_offset_ns;
	int64_t realtime_offset_ns;
	uint64_t n_resets;    /* how often the counts began anew */
	uint64_t reset_at_ns; /* the last time; started_at_ns: never */
	uint32_t flags;       /* RBK_STATS_CLOSED */
	uint32_t reserved[7];

	struct rbk_stats_section sections[RBK_STATS_MAX_SECTIONS];
};

/* A tenant's part of one device. */
struct rbk_stats_tenant_device {
	uint64_t n_tasks;    /* count of tasks completed there, split ones where most rows ran */
	uint64_t n_failed;   /* count of those whose result was negative */
	uint64_t n_explored; /* count of those that ran there so that the broker learns */
	uint64_t exec_ns;    /* count: their times from start to end, together */
	uint64_t device_ns;  /* count: what the device's servers worked on them, together */

	double share;            /* of the device time of all tenants, since the update before */
	uint64_t memory_used;    /* bytes of the device's own memory; on the CPU host memory */
	uint64_t memory_max;     /* UINT64_MAX: no limit */
	uint64_t memory_reserve; /* never denied */
	uint64_t memory_high;    /* above it, evicted first */
	uint64_t gtt_used;       /* bytes of host memory that the device uses */
	uint64_t gtt_max;        /* UINT64_MAX: no limit */
	uint64_t reserved[4];
};

/* struct rbk_stats_tenant.flags */
#define RBK_STATS_TENANT_USED    (1u << 0) /* the record stands for a tenant */
#define RBK_STATS_TENANT_NAMED   (1u << 1) /* the policy in force names it */
#define RBK_STATS_TENANT_PAGE    (1u << 2) /* it has a page; without one, no plans and no log */
#define RBK_STATS_TENANT_DRAINED (1u << 3) /* takes no new work: an administrator drains it */
#define RBK_STATS_TENANT_CHANGED (1u << 4) /* an administrator set limits beside the policy's */

/*
 * Histograms are log-linear: 4 buckets per doubling, from units of 64 ns, so that a bucket is at
 * most a quarter of its lower end wide. rbk_stats_bucket() and rbk_stats_bucket_ns() convert.
 */
struct rbk_stats_tenant {
	uint32_t sequence;
	uint32_t number; /* of the tenant: never 0, never given to another one */
	uint32_t flags;  /* RBK_STATS_TENANT_* */
	uint32_t weight;
	char name[RBK_STATS_NAME_BYTES]; /* NUL-terminated, printable */

	/* Tasks that were placed, and completed. */
	uint64_t n_tasks;                        /* count */
	uint64_t n_inline;                       /* count of those run on the reactor itself */
	uint64_t n_errors;                       /* count of those whose result was negative */
	uint64_t n_deadlines_missed;             /* count */
	uint64_t n_partitioned;                  /* count of those split over devices */
	uint64_t n_explored;                     /* count */
	uint64_t queue_ns;                       /* count: times from admission to start */
	uint64_t exec_ns;                        /* count: times from start to end */
	uint64_t reasons[RBK_STATS_MAX_REASONS]; /* count by enum rbk_reason */
	uint64_t copied_bytes;                   /* count of tensor bytes copied by a CPU */
	uint64_t transferred_bytes;              /* count, moved by a device's own engine */
	uint64_t throttled_ns;                   /* count: time in which its CPU quota held it up */
	uint64_t n_throttled;                    /* count of times that this began */

	/* The decision log: record i, for log_first <= i < log_head, is at i % count. */
	uint64_t log_head;  /* count of records ever written */
	uint64_t log_first; /* those before it are from before the last reset */

	uint64_t n_evictions;          /* of its plans, since the broker's start */
	uint64_t n_returns;            /* of plans that came back, likewise */
	uint64_t n_memory_constraints; /* tasks that went elsewhere for want of memory, likewise */
	uint64_t n_refused;            /* requests beyond a limit, likewise */
	uint64_t n_sessions;           /* now */
	uint64_t n_plans;              /* now */
	uint64_t n_plans_unlisted;     /* now, of them those without a slot in PLANS */
	uint64_t host_used, host_max;  /* bytes; UINT64_MAX: no limit */
	/* Since 1.2. */
	uint64_t inline_ns; /* count: of exec_ns, that of tasks that are in no histogram: inline */
	/* Since 1.9. */
	uint64_t arena_bytes; /* of arenas that its clients have registered, now */
	uint64_t reserved[13];

	struct rbk_stats_tenant_device devices[RBK_MAX_DEVICES];
	uint64_t queue_histogram[RBK_STATS_BUCKETS];   /* count by time in the queue; not inline */
	uint64_t latency_histogram[RBK_STATS_BUCKETS]; /* by time from admission to end; not inline
							*/
};

/* How a plan fares on one device. */
struct rbk_stats_plan_device {
	uint64_t n_tasks;    /* count of tasks completed there */
	uint64_t n_failed;   /* count of those whose result was negative */
	uint64_t n_explored; /* count */
	uint64_t exec_ns;    /* count: their times from start to end, together */
	/* Of those with a prediction that ran on this device alone: */
	uint64_t n_predicted;       /* count */
	uint64_t predicted_ns;      /* count: sum of the predictions */
	uint64_t predicted_exec_ns; /* count: sum of what they took */
	uint64_t error_ns;          /* count: sum of the differences, whichever the sign */

	/* What the broker has learned, as of the last update; all 0: nothing. */
	double estimate_ns;  /* of a task of struct rbk_stats_plan.count rows, undisturbed */
	double spread;       /* of it, relative */
	double mean_ns;      /* over the window of the last executions */
	double mean_error;   /* |predicted - observed| / observed, likewise */
	double speedup;      /* over the CPU */
	uint32_t break_even; /* least count at which it beats the CPU; 0: at none */
	uint8_t is_trusted;  /* enough executions were seen */
	uint8_t state;       /* enum rbk_memory_state */
	uint8_t tier;        /* enum rbk_memory_tier */
	uint8_t reserved8;
	uint64_t resident_bytes;  /* its part of what is in the device's memory */
	uint64_t footprint_bytes; /* that it takes there when it is resident; since 1.2 */
};

enum rbk_stats_plan_state {
	RBK_STATS_PLAN_FREE = 0, /* the slot was never used */
	RBK_STATS_PLAN_LIVE = 1,
	RBK_STATS_PLAN_GONE = 2, /* removed; its figures stay until the slot is needed */
};

struct rbk_stats_plan {
	uint32_t sequence;
	uint32_t state;            /* enum rbk_stats_plan_state */
	uint32_t session;          /* its session's number, as in the broker's log */
	uint32_t plan_id;          /* as the session names it */
	char name[RBK_NAME_BYTES]; /* NUL-terminated, as the client wrote it: not to be trusted */
	uint64_t fingerprint;      /* plans of the same shape have the same */
	uint64_t made_at_ns;
	uint64_t n_inline;                       /* count of its tasks run on the reactor itself */
	uint64_t reasons[RBK_STATS_MAX_REASONS]; /* count by enum rbk_reason */
	uint32_t count;                          /* of its last task */
	uint8_t last_device;                     /* where that ran, RBK_DEVICE_* */
	uint8_t last_reason;                     /* and why, enum rbk_reason */
	uint16_t last_flags;                     /* RBK_DECISION_* */
	/* Since 1.2. */
	uint64_t n_evictions;          /* from any device, since it was made */
	uint64_t n_returns;            /* to one, likewise */
	uint64_t n_memory_constraints; /* tasks that went elsewhere for want of memory, likewise */
	uint64_t reserved[3];
	struct rbk_stats_plan_device devices[]; /* header.n_devices */
};

/* struct rbk_stats_decision.flags; the lower eight bits are RBK_CQE_*. */
#define RBK_DECISION_DEADLINE_MISSED RBK_CQE_DEADLINE_MISSED
#define RBK_DECISION_PARTITIONED     RBK_CQE_PARTITIONED
#define RBK_DECISION_EXPLORED        RBK_CQE_EXPLORED
#define RBK_DECISION_INLINE          (1u << 8) /* ran on the reactor; stands for up to 64 such */
#define RBK_DECISION_MOVED           (1u << 9) /* queued on another device at first */
/* The upper six bits, of a task on the CPU: others kept that busy when the task ended, so that it
 * took two to the power of a ninth of this number times as long; 0: they did not. */
#define RBK_DECISION_CONTENTION_SHIFT 10
#define RBK_DECISION_CONTENTION_MAX   63u

/*
 * One task, as it completed. Times are single-precision: exact to one part in sixteen million. All
 * tasks that were queued are logged; of those of a plan that ran on the reactor the first, and then
 * one of at most 64.
 */
struct rbk_stats_decision {
	uint64_t sequence; /* 0 while it is written, else its index + 1 */
	uint64_t ended_at_ns;
	uint64_t user_data;
	uint32_t plan_id;
	uint32_t session;
	uint32_t count;
	uint32_t split_count; /* rows, from the first on, that a GPU had, the CPU the rest; 0: not
				 split */
	float predicted_ns;   /* execution where it ran, as predicted; 0: nobody asked */
	float other_ns;       /* the same on the best of the other devices; 0: there is none */
	float queue_ns;       /* from admission to start */
	float exec_ns;        /* from start to end */
	uint8_t device;       /* RBK_DEVICE_* */
	uint8_t reason;       /* enum rbk_reason */
	uint16_t flags;       /* RBK_DECISION_* */
	int16_t res;          /* 0 or -errno */
	uint16_t plan;        /* slot in PLANS; 0xffff: it has none */
};

enum rbk_stats_breaker {
	RBK_STATS_BREAKER_CLOSED = 0, /* the device is used */
	RBK_STATS_BREAKER_OPEN = 1,   /* it failed too often, and is not */
	RBK_STATS_BREAKER_PROBING = 2,
};

enum rbk_stats_tile_operator {
	/* Of float32: MatMul, Gemm, and Conv whose window is one element. */
	RBK_STATS_TILE_MATMUL = 0,
	RBK_STATS_TILE_CONV = 1,       /* other Conv, of float32 and of float16 */
	RBK_STATS_TILE_MATMUL_F16 = 2, /* as RBK_STATS_TILE_MATMUL, of float16 */
};

/* How much of a result a device computes at once where that is the fastest; 0: it has no choice. */
#define RBK_STATS_TILE_OPERATORS 3
#define RBK_STATS_TILE_CLASSES   4
struct rbk_stats_tile {
	uint8_t rows, columns;
};

/* In tenant pages: sequence, index, kind, names and memory_total only, the rest is 0. */
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
	uint64_t reasons[RBK_STATS_MAX_REASONS]; /* why they ran there, by enum rbk_reason */

	uint64_t backlog_ns; /* predicted time until it is idle */
	uint64_t n_queued;   /* tasks that wait in the broker */
	uint64_t n_released; /* tasks that the device has */
	uint64_t n_opened;   /* how often the breaker opened */
	double success_rate; /* over the window */
	double contention; /* how many times longer execution takes than undisturbed; 1 at least */
	double explored_share; /* of execution time, lost to exploring */
	double utilization;    /* of its servers, since the update before; 0 to 1 */

	/* Its profile's main figures; 0: not known. */
	uint32_t n_servers; /* tasks that it works on at once */
	uint32_t reserved32;
	double flops_per_ns;    /* the best of its families, one server */
	double bytes_per_ns;    /* likewise */
	double up_bytes_per_ns; /* of the link to the device; 0: it works in place */
	double down_bytes_per_ns;
	double launch_ns; /* of one task beside its work */
	double active_watts;

	/* Bytes, RBK_STATS_ABSENT where nobody tells. */
	uint64_t memory_total;
	uint64_t memory_used;    /* by everybody */
	uint64_t memory_outside; /* by others than the broker */
	uint64_t memory_budget;  /* that all tenants together can have now */
	uint64_t memory_charged; /* to tenants */
	uint64_t gtt_total;
	uint64_t gtt_used;

	/* Sensors, RBK_STATS_ABSENT likewise. */
	uint64_t load_percent;
	uint64_t memory_load_percent;
	uint64_t clock_hz;
	uint64_t memory_clock_hz;
	uint64_t temperature_millicelsius;
	uint64_t power_microwatts;

	/* Since 1.2. */
	char paths[RBK_STATS_NAME_BYTES]; /* memory paths in use; of the CPU the SIMD level */
	uint64_t n_driver_evictions;      /* by the driver, since it was loaded; or absent */
	uint32_t flags;                   /* RBK_STATS_DEVICE_* */
	/* stalls, in which it had work and made no progress; 0 from brokers that do not check */
	uint32_t n_stalls;

	/*
	 * Since 1.5. By enum rbk_stats_tile_operator, of which float16's is there since 1.6: large,
	 * small, of few rows, of few columns.
	 */
	struct rbk_stats_tile tiles[RBK_STATS_TILE_OPERATORS][RBK_STATS_TILE_CLASSES];
};

/* struct rbk_stats_device.flags */
#define RBK_STATS_DEVICE_DRAINED  (1u << 0) /* nothing new is placed there: it is drained */
#define RBK_STATS_DEVICE_LOST     (1u << 1) /* it is gone, and is being reopened */
#define RBK_STATS_DEVICE_MATRICES (1u << 2) /* multiplies float16 matrices cooperatively */
/* Since 1.6. MatMul of float16 does so, by class as in tiles; of the first one, others follow. */
#define RBK_STATS_DEVICE_TILES_OF_MATRICES (1u << 8)

/* struct rbk_stats_session.flags */
#define RBK_STATS_SESSION_ADMIN  (1u << 0) /* on the administrators' socket; of no tenant */
#define RBK_STATS_SESSION_ENDING (1u << 1) /* its client is gone, its tasks are waited for */

/*
 * A client that is connected, as of the last update. Records are taken from the first on: who has
 * seen as many as rbk_stats_broker.n_sessions says has seen all, and need not look at the rest.
 */
struct rbk_stats_session {
	uint32_t sequence;
	uint32_t number; /* as in the broker's log; 0: the record is free */
	uint32_t tenant; /* its number; 0: none */
	uint32_t flags;  /* RBK_STATS_SESSION_* */
	uint32_t pid;    /* in the broker's pid namespace; 0: in none that it sees */
	uint32_t uid;
	char name[RBK_STATS_NAME_BYTES]; /* as the client calls itself; printable ASCII */
	char comm[16];                   /* its process's when it connected; likewise; or empty */
	uint64_t began_at_ns;
	uint64_t n_tasks;     /* completed, as the next three */
	uint64_t n_gpu_tasks; /* on any other device than the CPU */
	uint64_t n_errors;    /* with a negative result */
	uint64_t n_fallbacks; /* RBK_REASON_CPU_FALLBACK */
	uint64_t copied_bytes, transferred_bytes;
	uint64_t n_in_flight; /* now, as the next five */
	uint64_t n_rings;
	uint64_t n_arenas;
	uint64_t arena_bytes;
	uint64_t n_plans;
	uint64_t n_plans_resident; /* on some device with memory of its own */
	/* Since 1.5. */
	uint64_t memory_used; /* bytes of devices' own memory that its plans have */
	uint64_t n_evictions; /* of its plans, since it began */
	uint64_t gpu_ns;      /* what GPUs' servers worked on its tasks, together */
	/* Times from admission to end, of tasks that ended in the last second or, where there are
	 * many sessions, some seconds; not inline ones. 0: none did. */
	uint64_t p50_ns, p99_ns;
	uint64_t reserved[1];
};

/* struct rbk_stats_lease.flags */
#define RBK_STATS_LEASE_WAITING   (1u << 0) /* some member waits for more */
#define RBK_STATS_LEASE_SHRINKING (1u << 1) /* it was asked for more than it has given back */
#define RBK_STATS_LEASE_RESTORED  (1u << 2) /* it comes from a broker that ended */
#define RBK_STATS_LEASE_OVER \
	(1u << 3) /* more than it was granted is in use, and than drivers may need besides */
/*
 * The kernel holds it, too: all who use it are in its cgroup, whose dmem.max is not more, as the
 * broker has seen a second ago, or some seconds where there are many leases.
 */
#define RBK_STATS_LEASE_CAPPED (1u << 4)

/*
 * Device memory of programs that drive the device themselves (<ringbroker/lease.h>), as of the last
 * update. Records are taken from the first on, as those of sessions; the first free one ends them.
 */
struct rbk_stats_lease {
	uint32_t sequence;
	uint32_t number; /* 0: the record is free */
	uint32_t tenant; /* its number */
	uint32_t device; /* RBK_DEVICE_* */
	uint32_t flags;  /* RBK_STATS_LEASE_* */
	uint32_t pid;    /* of who opened it, in the broker's pid namespace; 0: gone, or not seen */
	uint32_t uid;
	uint32_t n_members;              /* sessions */
	char name[RBK_STATS_NAME_BYTES]; /* the program, as it calls itself; printable ASCII */
	uint64_t opened_at_ns;
	uint64_t min_bytes;
	uint64_t wish_bytes;
	uint64_t max_bytes;
	uint64_t granted_bytes;  /* charged to the tenant */
	uint64_t credited_bytes; /* of that given to members */
	uint64_t object_bytes;   /* of that for what processes share */
	uint64_t used_bytes;     /* as members say */
	uint64_t extra_bytes;    /* what drivers took beside it, as members say */
	uint64_t peak_bytes;     /* the most that used and extra were together */
	uint64_t seen_bytes;     /* what the kernel says of members' processes; RBK_STATS_ABSENT */
	uint64_t waiting_bytes;  /* asked for and waited for, by all members */
	uint64_t n_objects;      /* allocations, as members say */
	uint64_t n_refused;      /* allocations refused, as members say */
	uint64_t reserved[6];
};

/* struct rbk_stats_broker.flags */
#define RBK_STATS_BROKER_FORCE_CPU (1u << 0) /* every task that may runs on the CPU */

/*
 * Cause of the time that a turn of the reactor took. The reactor is the broker's one thread that
 * serves all clients.
 */
enum rbk_turn_cause {
	RBK_TURN_ENTRIES = 0,     /* entries of rings, and tasks that run inline */
	RBK_TURN_COMPLETIONS = 1, /* tasks that come back from devices, and those that go there */
	RBK_TURN_MESSAGES = 2,    /* requests on sessions' connections but for the next two kinds */
	RBK_TURN_PLANS = 3,       /* verifying and describing plans */
	RBK_TURN_RINGS = 4,       /* making rings */
	RBK_TURN_CONNECTIONS = 5, /* accepting, identifying and refusing */
	RBK_TURN_ENDS = 6,        /* what sessions that end, and rings that go, leave */
	RBK_TURN_BELLS = 7,       /* waking, and being woken */
	RBK_TURN_RESIDENCY = 8,   /* what is in device memory */
	RBK_TURN_JOBS = 9,        /* what the setup thread has done */
	RBK_TURN_TIMERS = 10,     /* the broker's own, but for the next */
	RBK_TURN_STATISTICS = 11, /* bringing statistics pages up to date */
	RBK_TURN_KERNEL = 12,     /* telling the kernel what is watched */
	RBK_TURN_OTHER = 13,
	RBK_TURN_CAUSES,
};

/* The whole broker, as of the last update. */
struct rbk_stats_broker {
	uint32_t sequence;
	uint32_t flags;
	uint32_t strategy; /* enum rbk_strategy: what RBK_STRATEGY_AUTO means */
	uint32_t reserved32;
	uint64_t n_sessions; /* now, as the next five */
	uint64_t n_rings;
	uint64_t n_arenas;
	uint64_t n_plans;
	uint64_t n_tenants;
	uint64_t n_in_flight;
	uint64_t host_bytes; /* charged now, also to the broker for this page; as the next */
	uint64_t device_bytes;
	uint64_t n_completed; /* entries, since start, NOPs and refused ones among them */
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t n_ended_hostile;    /* sessions closed for breaking a rule */
	uint64_t n_tenants_unlisted; /* now: beyond the records of TENANTS */
	/* Since 1.7. From start, or from the last reset of everything. */
	uint64_t longest_turn_ns;     /* that the reactor took; 0: not known */
	uint32_t longest_turn_cause;  /* enum rbk_turn_cause */
	uint32_t longest_turn_tenant; /* number of the tenant that it was for; 0: not known */
	uint64_t n_turn_overruns[14]; /* turns of more than ten budgets, by enum rbk_turn_cause */
	/* Since 1.8: what host_bytes may be; UINT64_MAX: no limit; 0: not known. */
	uint64_t host_max;
};

/* ---- The broker's own work ---------------------------------------------------------------- */

/*
 * Cause of a slice of the setup thread, which does for all clients what takes long: a job is one or
 * more slices.
 */
enum rbk_setup_cause {
	RBK_SETUP_OTHER = 0,
	RBK_SETUP_PLAN_VERIFY = 1,
	RBK_SETUP_PLAN_MEASURE = 2, /* finding out what packing will take */
	RBK_SETUP_PLAN_PREPARE = 3, /* packing, compiling shaders */
	RBK_SETUP_PLAN_RELEASE = 4,
	RBK_SETUP_ARENA_MAP = 5, /* with all its pages */
	RBK_SETUP_ARENA_UNMAP = 6,
	RBK_SETUP_RING = 7, /* making and unmaking */
	RBK_SETUP_LOAD = 8, /* into device memory */
	RBK_SETUP_UNLOAD = 9,
	RBK_SETUP_REOPEN = 10, /* a device that was lost */
	RBK_SETUP_CALIBRATION = 11,
	RBK_SETUP_FILE = 12, /* the policy, profiles */
	RBK_SETUP_CAUSES,
};

#define RBK_STATS_MAX_SETUP_CAUSES 16 /* room for RBK_SETUP_CAUSES to grow */

/* A time of the setup thread. */
struct rbk_stats_setup_time {
	uint64_t ns;     /* 0: there is none */
	uint32_t cause;  /* enum rbk_setup_cause */
	uint32_t tenant; /* number of the tenant that it was for; 0: none */
};

/* Slices of one cause. */
struct rbk_stats_setup_slices {
	uint64_t n_slices;
	uint64_t total_ns;
	uint64_t longest_ns; /* also of the slice that runs now, so far */
	uint32_t longest_tenant;
	uint32_t reserved32;
};

/* Counts of the broker's repairs after stalls of a device, since the broker's start. */
struct rbk_stats_mended {
	uint64_t n_slots;    /* of plans, that no task had although they were said to be taken */
	uint64_t n_recalled; /* tasks taken back that the device had not begun */
	uint64_t n_moved;    /* tasks that went to the CPU */
	uint64_t n_lost;     /* how often the device was given up, to be reopened */
};

/* The broker's work beside tasks, as of the last update. */
struct rbk_stats_upkeep {
	uint32_t sequence;
	uint32_t flags; /* 0 */

	/* The setup thread. But for the first two from start, or the last reset of everything. */
	uint64_t n_setup_waiting;                  /* jobs that wait now */
	struct rbk_stats_setup_time setup_running; /* the slice that runs now, so far */
	struct rbk_stats_setup_time longest_wait;  /* of a job for a slice */
	struct rbk_stats_setup_slices setup[RBK_STATS_MAX_SETUP_CAUSES]; /* by rbk_setup_cause */

	/* Threads that close what clients sent or left: how long that takes is up to clients. */
	uint32_t n_closers, n_closers_max;
	uint32_t n_closers_stuck; /* that have been at one descriptor for too long, now */
	uint32_t reserved32;
	uint64_t n_closings_waiting;   /* for a thread, now */
	uint64_t n_closers_ever_stuck; /* descriptors that were found to be such, since start */

	uint64_t longest_turn_cpu_ns; /* of a processor's time that a turn took; 0: not known */
	uint64_t reserved[7];

	struct rbk_stats_mended mended[RBK_MAX_DEVICES]; /* by device */
};

/* ---- Waiting for a processor -------------------------------------------------------------- */

#define RBK_STATS_COMM_BYTES     16  /* of a process, with the NUL */
#define RBK_STATS_CGROUP_BYTES   128 /* of a cgroup's path, cut, with the NUL */
#define RBK_STATS_MAX_CAUSES     3
#define RBK_STATS_MAX_SENTENCES  6
#define RBK_STATS_SENTENCE_BYTES 256

/* Where the broker knows from who waits for a processor; the later ones know less. */
enum rbk_stats_source {
	RBK_STATS_SOURCE_NONE = 0,
	RBK_STATS_SOURCE_EBPF = 1,      /* probes in the scheduler: all of the below */
	RBK_STATS_SOURCE_SCHEDSTAT = 2, /* /proc/PID/schedstat: counts, but not who caused them */
	RBK_STATS_SOURCE_PSI = 3,       /* /proc/pressure/cpu: whether somebody waits */
	RBK_STATS_SOURCE_STAT = 4,      /* /proc/stat: how busy the processors are */
};

/* struct rbk_stats_contention.flags */
#define RBK_STATS_CONTENDED       (1u << 0) /* the broker's workers wait for processors */
#define RBK_STATS_CONTENTION_ACTS (1u << 1) /* and placement takes that into account */

#define RBK_STATS_MAX_FACTOR      100 /* struct rbk_stats_contention.factor: so much, or more */

/* The CPU, as of the last look; while no task is there to run nobody looks. */
struct rbk_stats_contention {
	uint32_t sequence;
	uint32_t source;                     /* enum rbk_stats_source */
	uint32_t flags;                      /* RBK_STATS_CONTENDED, RBK_STATS_CONTENTION_ACTS */
	uint32_t n_workers, n_workers_total; /* CPU workers that are used, that there are */
	uint32_t reserved32;
	double factor;           /* how many times longer tasks take on the CPU for it */
	uint64_t n_began;        /* how often it became contended, since start or the last reset */
	uint64_t began_at_ns;    /* the last time; 0: never */
	uint64_t contended_ns;   /* together */
	uint64_t n_unwatched;    /* tenants beyond those that can be watched at a time */
	uint64_t n_dropped;      /* threads and processes that could not be watched */
	uint64_t n_probe_events; /* of the probes; 0 unless kernel.bpf_stats_enabled is set */
	uint64_t probe_ns;       /* that these took, together */
	uint64_t reserved[13];
	/* Why no better source is used; those after the last are empty. */
	char sentences[RBK_STATS_MAX_SENTENCES][RBK_STATS_SENTENCE_BYTES];
};

/* struct rbk_stats_cause.flags */
#define RBK_STATS_CAUSE_BROKER (1u << 0) /* a thread of the broker itself */
#define RBK_STATS_CAUSE_OWN    (1u << 1) /* of the tenant whose record this is */

/*
 * Who ran instead. In tenant pages, of those that are neither the broker's nor the tenant's own,
 * comm and cgroup only, which /proc shows to everybody; and nothing but the counts where /proc is
 * mounted so that it does not (hidepid).
 */
struct rbk_stats_cause {
	char comm[RBK_STATS_COMM_BYTES];     /* what is not printable is '?' */
	char cgroup[RBK_STATS_CGROUP_BYTES]; /* likewise; its last part if it is gone */
	uint32_t pid; /* the process when first seen; 0: not in the broker's pid namespace, or not
			 told */
	uint32_t tenant; /* number of the tenant that it belongs to; 0: of none */
	uint32_t flags;  /* RBK_STATS_CAUSE_* */
	uint32_t reserved32;
	uint64_t wait_ns; /* that it made others wait */
	uint64_t n_preemptions;
};

/* struct rbk_stats_delay.flags */
#define RBK_STATS_DELAY_USED  (1u << 0) /* it is watched; else all is 0 */
#define RBK_STATS_DELAY_KNOWN (1u << 1) /* also preemptions, percentiles and causes are known */

/*
 * Run-queue delay: from when a thread could run to when it did. Of a thread of the broker, or of
 * all processes of a tenant's clients together. Counts are as of the last report, since the broker
 * watches, or the last reset of the whole broker; percentiles, the maximum and the causes are of
 * the last ten seconds.
 */
struct rbk_stats_delay {
	uint32_t sequence;
	uint32_t flags;        /* RBK_STATS_DELAY_* */
	uint64_t run_ns;       /* on a processor */
	uint64_t wait_ns;      /* because others ran */
	uint64_t idle_wait_ns; /* although its processor was idle: throttled by a quota, or late */
	uint64_t n_waits;
	uint64_t n_preemptions; /* it ran, and somebody else was put in its place */
	uint64_t n_involuntary; /* it could have run on, and was stopped */
	uint64_t n_throttled;   /* of these, so that nobody ran */
	uint64_t n_migrations;  /* to another processor */
	uint64_t caused_ns;     /* tenants: that the broker's threads waited because of it */
	uint64_t throttled_ns;  /* by the quota of its cgroup; 0 also if nobody knows */
	uint64_t p50_ns, p99_ns, max_ns;
	uint32_t n_causes;
	uint32_t reserved32;
	uint64_t reserved[9];
	struct rbk_stats_cause causes[RBK_STATS_MAX_CAUSES]; /* the first is the worst */
};

enum rbk_stats_role {
	RBK_STATS_ROLE_OTHER = 0,
	RBK_STATS_ROLE_REACTOR = 1,
	RBK_STATS_ROLE_WORKER = 2,
};

/* A thread of the broker. */
struct rbk_stats_thread {
	uint32_t sequence;
	uint32_t tid;  /* 0: no such thread now */
	uint32_t role; /* enum rbk_stats_role */
	uint32_t reserved32;
	char name[RBK_STATS_COMM_BYTES];
	uint64_t reserved[4];
	struct rbk_stats_delay delay; /* its sequence is not used */
};

/* ---- Reading ----------------------------------------------------------------------------- */

/*
 * A page that is mapped, and where its sections are: a private copy, checked once, so that nothing
 * that is read later can lead outside. rbk_stats_map() of libringbroker fills one.
 */
struct rbk_stats_view {
	const struct rbk_stats_header *page; /* NULL: none is mapped */
	uint64_t bytes;
	uint32_t n_devices;
	uint32_t reserved;
	/* As many as a page can have, so that this never grows; of those that it has not, all 0. */
	struct rbk_stats_section sections[RBK_STATS_MAX_SECTIONS];
};

/*
 * Is @page, of which @bytes are mapped, a page that this file describes, with every section inside?
 * Return: 1 if so, with *ret filled; 0.
 */
static inline int rbk_stats_view(struct rbk_stats_view *ret, const void *page, uint64_t bytes)
{
	/* Records never become smaller than those of the minor version that had them first. */
	static const uint32_t least_strides[RBK_STATS_SECTION_COUNT] = {
		(uint32_t)sizeof(struct rbk_stats_tenant),
		(uint32_t)sizeof(struct rbk_stats_plan),
		(uint32_t)sizeof(struct rbk_stats_decision),
		(uint32_t)sizeof(struct rbk_stats_broker),
		(uint32_t)sizeof(struct rbk_stats_device),
		(uint32_t)sizeof(struct rbk_stats_contention),
		(uint32_t)sizeof(struct rbk_stats_thread),
		(uint32_t)sizeof(struct rbk_stats_delay),
		(uint32_t)sizeof(struct rbk_stats_session),
		(uint32_t)sizeof(struct rbk_stats_lease),
		(uint32_t)sizeof(struct rbk_stats_upkeep),
	};
	const struct rbk_stats_header *header = (const struct rbk_stats_header *)page;
	const struct rbk_stats_section *section;
	struct rbk_stats_view view;
	uint64_t least, all;
	unsigned int i, n;

	if (bytes < sizeof(*header) || header->magic != RBK_STATS_MAGIC ||
	    header->abi_major != RBK_STATS_ABI_MAJOR || header->page_bytes != bytes)
		return 0;
	/* A broker of another minor version may have fewer than this file knows, or more. */
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
		if (i == RBK_STATS_SECTION_DECISIONS &&
		    (section->count & (section->count - 1)) != 0)
			return 0;
	}
	*ret = view;
	return 1;
}

/* How many records a section has; 0: there is no such section. @id is enum rbk_stats_section_id. */
static inline uint32_t rbk_stats_count(const struct rbk_stats_view *view, unsigned int id)
{
	return id < RBK_STATS_SECTION_COUNT && view->sections[id].offset ? view->sections[id].count
									 : 0;
}

/*
 * How many records of a section can be in use now: those behind are free, and reading them would
 * only take memory. It changes, and whoever comes in between is seen with the next look.
 */
static inline uint32_t rbk_stats_used(const struct rbk_stats_view *view, unsigned int id)
{
	uint32_t count = rbk_stats_count(view, id), n_free;

	if (count == 0)
		return 0;
	n_free = __atomic_load_n(&view->page->sections[id].n_free, __ATOMIC_RELAXED);
	return n_free < count ? count - n_free : 0;
}

/* Record @index of a section, to be copied or loaded from; NULL beyond its end. */
static inline const void *rbk_stats_record(const struct rbk_stats_view *view, unsigned int id,
					   uint32_t index)
{
	if (index >= rbk_stats_count(view, id))
		return NULL;
	return (const char *)view->page + view->sections[id].offset +
	       (uint64_t)view->sections[id].stride * index;
}

/* One member of 8 bytes, marked "count" or of the header. */
static inline uint64_t rbk_stats_load(const uint64_t *member)
{
	return __atomic_load_n(member, __ATOMIC_RELAXED);
}

#define RBK_STATS_TRIES 64

/*
 * Copies the first @bytes of a record, a multiple of 8, into @to, aligned to 8 (for a plan:
 * sizeof(struct rbk_stats_plan) and a struct rbk_stats_plan_device for each of the n_devices).
 * Return: 1; 0 if the broker was at it whenever it was tried, or died there: the copy may then mix
 * old and new.
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
 * Copies record @index of the decision log of a tenant page (an index that counts up for ever,
 * below log_head). Return: 1; 0: it was overwritten, or is being written.
 */
static inline int rbk_stats_decision(const struct rbk_stats_view *view, uint64_t index,
				     struct rbk_stats_decision *ret)
{
	uint32_t n = rbk_stats_count(view, RBK_STATS_SECTION_DECISIONS);
	uint64_t words[sizeof(*ret) / sizeof(uint64_t)];
	const uint64_t *from;
	size_t i;

	if (n == 0)
		return 0;
	from = (const uint64_t *)rbk_stats_record(view, RBK_STATS_SECTION_DECISIONS,
						  (uint32_t)(index & (n - 1)));
	/* Pairs with the release store that ended the record. */
	words[0] = __atomic_load_n(from, __ATOMIC_ACQUIRE);
	if (words[0] != index + 1)
		return 0;
	for (i = 1; i < sizeof(words) / sizeof(words[0]); i++)
		words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
	/* Pairs with the release fence after the sequence became 0. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(from, __ATOMIC_RELAXED) != words[0])
		return 0;
	memcpy(ret, words, sizeof(*ret));
	return 1;
}

/* The bucket of a histogram that counts @ns. */
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

/* The least time that a bucket counts; what it counts is below that of the next one. */
static inline uint64_t rbk_stats_bucket_ns(unsigned int bucket)
{
	uint64_t units = bucket < 4 ? bucket : (uint64_t)(4 + bucket % 4) << (bucket / 4 - 1);

	return units << 6;
}
