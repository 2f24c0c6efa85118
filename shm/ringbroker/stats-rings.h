#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages: records of the rings beside the decision log, a part of <ringbroker/stats.h>,
 * which explains how records are read
 */
#include <stdint.h>

/*
 * A segment of a task whose plan is cut (SEGMENTS in brokerd(8)). When such a task ends, a record
 * of each segment is written, by number, before the task's own record in the decision log. If the
 * task had micro-batches, each has its segments, after those of the one before. If the task failed,
 * the last one is the last segment that began.
 */
struct rbk_stats_segment {
	uint64_t sequence;    /* 0 while the record is written, otherwise its index + 1 */
	uint64_t task;        /* index of the task in the decision log */
	uint64_t ended_at_ns; /* 0: it failed before it ran, or another one did */
	uint16_t segment;     /* 0 to n_segments - 1 */
	uint16_t n_segments;  /* of the plan */
	uint8_t device;       /* RBK_DEVICE_* */
	uint8_t reason;       /* enum rbk_reason */
	/* RBK_DECISION_MOVED, _EXPLORED, _PARTITIONED, _STREAMED; contention as in a decision */
	uint16_t flags;
	float predicted_ns; /* as in struct rbk_stats_decision */
	float other_ns;
	/*
	 * to its start: from the end of the last segment that it needs, or of the one before if
	 * segments run one after the other, or from admission
	 */
	float queue_ns;
	float exec_ns;
	uint64_t from; /* bit i: it read tensors, other than states, that segment i wrote */
	uint64_t crossed_bytes; /* bytes of these tensors */
	/* its nodes, of the plan's description as the client sent it */
	uint16_t first_node, n_nodes;
	/* 0 to n_batches - 1: its micro-batch; n_batches of the task: 1, 0 before 1.17, if none */
	uint16_t batch, n_batches;
};

/*
 * An entry that was invalid and ran nowhere. A tenant's page has the last ones, as far as they are
 * noted: 16 a second. n_entries_refused of the tenant counts all.
 */
struct rbk_stats_refused {
	uint64_t sequence; /* 0: unused or being written; otherwise 1 more than the last record's */
	uint64_t refused_at_ns;
	uint64_t user_data;
	uint32_t session; /* its session's number, as in the broker's log */
	uint32_t plan_id; /* as the entry names it */
	uint8_t opcode;   /* as the entry names it: an enum rbk_op if valid */
	uint8_t reserved8;
	int16_t res; /* -errno of the completion */
	uint32_t reserved32;
	char field[24]; /* member of struct rbk_sqe at fault; NUL-terminated */
	/* the fault; NUL-terminated; may hold names that the client wrote: untrusted */
	char reason[192];
};

/* struct rbk_stats_slice.flags */
/* its programs did not end it in time: others had the device before it ended */
#define RBK_STATS_SLICE_OVERDUE (1u << 0)
/* the lease had waited so long that it came next whatever its priority */
#define RBK_STATS_SLICE_LATE       (1u << 1)
#define RBK_STATS_SLICE_FOR_OTHERS (1u << 2) /* it was to end for a lease of another tenant */
#define RBK_STATS_SLICE_FOR_PLANS  (1u << 3) /* it was to end for tasks of plans */
/* it ended because the lease's last program that shared the device left, or stopped sharing it */
#define RBK_STATS_SLICE_LEFT (1u << 4)
/* it ended because nothing else used the device any more: the lease went on without timeslices */
#define RBK_STATS_SLICE_ALONE (1u << 5)

/*
 * A timeslice of a lease that shares a device's time (SHARING THE DEVICE in ringbroker-leases(7)),
 * as it ended. Leases of other tenants are not named: an administrator finds them in their pages,
 * by the times.
 */
struct rbk_stats_slice {
	uint64_t sequence;     /* 0 while the record is written, otherwise its index + 1 */
	uint32_t lease;        /* the lease's number */
	uint32_t ended_for;    /* number of the tenant's lease that it was to end for; 0: none */
	uint64_t wanted_at_ns; /* begin of the wait for it; 0: no program waited */
	uint64_t began_at_ns;
	uint64_t closed_at_ns; /* when the programs were told to end it; 0: never */
	uint64_t ended_at_ns;  /* when nothing that they had submitted was under way any more */
	/* part of the wait in which tasks of plans came first, as they do before background leases
	 */
	uint64_t plans_ns;
	uint8_t device;   /* RBK_DEVICE_* */
	uint8_t priority; /* enum rbk_priority of the lease as it began, bounded by its tenant's */
	uint16_t flags;   /* RBK_STATS_SLICE_* */
	uint32_t reserved32;
};

/* struct rbk_stats_reset.cause */
enum rbk_stats_reset_cause {
	RBK_STATS_RESET_UNKNOWN = 0,
	RBK_STATS_RESET_OWN = 1,    /* work of the lease itself */
	RBK_STATS_RESET_LEASE = 2,  /* another lease of the tenant: by_lease */
	RBK_STATS_RESET_OTHERS = 3, /* a lease of another tenant */
	RBK_STATS_RESET_PLANS = 4,  /* the broker's own work for plans */
	RBK_STATS_RESET_CAUSES,
};

/* struct rbk_stats_reset.flags */
/* the culprit's process says so itself; otherwise the broker infers it from timeslices */
#define RBK_STATS_RESET_CERTAIN (1u << 0)
#define RBK_STATS_RESET_SEEN    (1u << 1) /* the broker itself saw that the device was reset */

/*
 * A device was reset under a lease's work, or because of it. In tenants' pages leases of other
 * tenants are not named: an administrator finds the culprit's own record in the root page, by the
 * time.
 */
#define RBK_STATS_RESETS     8u  /* of a tenant, in its page */
#define RBK_STATS_ALL_RESETS 32u /* of all tenants, in the root page */
struct rbk_stats_reset {
	/*
	 * first notice of the reset, the same in all its records, to a millisecond; 0: unused, or
	 * being written
	 */
	uint64_t at_ns;
	uint32_t tenant;   /* number of the lease's tenant */
	uint32_t lease;    /* the lease's number */
	uint32_t pid;      /* its process that told, or caused it; 0: any */
	uint32_t by_lease; /* RBK_STATS_RESET_LEASE: number of the culprit's */
	uint8_t device;    /* RBK_DEVICE_* */
	uint8_t cause;     /* enum rbk_stats_reset_cause */
	uint16_t flags;    /* RBK_STATS_RESET_CERTAIN, _SEEN */
	uint32_t had_ms;   /* without CERTAIN: time for which the culprit had the device before */
	char name[32];     /* the program's, as in struct rbk_stats_lease; NUL-terminated */
};

/*
 * A process without a lease that used a device which leases share, for a twentieth of the last ten
 * seconds or more
 */
#define RBK_STATS_MAX_OUTSIDE 16u
struct rbk_stats_outside {
	uint32_t pid; /* in the broker's pid namespace; 0: unused */
	uint32_t uid;
	uint8_t device; /* RBK_DEVICE_* */
	uint8_t reserved8[3];
	uint32_t busy_percent; /* of that time, as the kernel tells */
	char comm[16];         /* NUL-terminated; as the process likes: untrusted */
};
