#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The ringbroker ABI: entries, rings and constants
 *
 * This file defines the data that a client and brokerd exchange through shared memory, and the
 * constants that both sides and the control protocol (shm/wire.h) use. All types are fixed-width
 * and little endian, and the assertions below pin every offset. The file is installed as
 * <ringbroker/abi.h>.
 *
 * The rules are those of a kernel uapi header. Fields never move and never change meaning. Reserved
 * bytes are zero on submission (otherwise brokerd answers -EINVAL) and zero on completion. A new
 * capability gets a feature bit, an incompatible change a new RBK_ABI_MAJOR.
 */
#include <stddef.h>
#include <stdint.h>

/*
 * ABI version. A broker serves a client of the same major and of any minor up to its own.
 *   1.1  RBK_FEAT_RESIDENCY: RBK_OP_PREFETCH, RBK_OP_EVICT, RBK_SQE_WAIT_MEMORY; RBK_FEAT_TENANTS
 *   1.2  RBK_FEAT_STRATEGIES, RBK_FEAT_STATS; RBK_CQE_PARTITIONED, RBK_CQE_EXPLORED
 *   1.3  RBK_FEAT_CATALOGUE, RBK_FEAT_ADMIN, RBK_FEAT_ADMIN_CHANGE
 *   1.4  RBK_FEAT_LEASES; later, RBK_FEAT_FIXED_ARENAS, RBK_FEAT_ADMIN_LIMITS, RBK_FEAT_REATTACH,
 *        RBK_FEAT_UNDO, RBK_FEAT_RESTORE, RBK_FEAT_RESTART, RBK_FEAT_AFTER,
 *        RBK_FEAT_TIMESLICE, RBK_FEAT_SHARES, RBK_FEAT_PARTS, RBK_FEAT_UNSHARE, RBK_FEAT_ENDING,
 *        RBK_FEAT_LOST, RBK_FEAT_SLEEP
 */
#define RBK_ABI_MAJOR 1
#define RBK_ABI_MINOR 4

/*
 * Feature bits: the broker offers them in its handshake; the base set of this ABI requires none. If
 * a feature was not offered, entries that ask for an action of it complete with -EOPNOTSUPP. Hints
 * (a priority, permission to split) are then checked for their form and otherwise ignored.
 */
#define RBK_FEAT_RESIDENCY  (1ull << 0) /* PREFETCH, EVICT, WAIT_MEMORY; RBK_WIRE_PLAN_MEMORY */
#define RBK_FEAT_PARTITION  (1ull << 1) /* the broker honours RBK_SQE_PARTITION */
#define RBK_FEAT_PRIORITY   (1ull << 2) /* the broker honours struct rbk_sqe.priority */
#define RBK_FEAT_STATE_ROWS (1ull << 3) /* the broker honours struct rbk_sqe.state_rows */
#define RBK_FEAT_TENANTS    (1ull << 4) /* the broker answers RBK_WIRE_TENANT */
#define RBK_FEAT_STRATEGIES (1ull << 5) /* RBK_STRATEGY_LATENCY, ENERGY and PARTITION */
#define RBK_FEAT_STATS      (1ull << 6) /* statistics pages, <ringbroker/stats.h> */
#define RBK_FEAT_CATALOGUE  (1ull << 7) /* the broker answers RBK_WIRE_CATALOGUE */
/* Offered on the administrators' socket: see <ringbroker/admin.h>. */
#define RBK_FEAT_ADMIN        (1ull << 8)  /* may read the statistics of all tenants */
#define RBK_FEAT_ADMIN_CHANGE (1ull << 9)  /* may change limits, devices and settings */
#define RBK_FEAT_ADMIN_LIMITS (1ull << 12) /* the broker answers RBK_WIRE_ADMIN_LIMIT */
#define RBK_FEAT_RESTART      (1ull << 16) /* the broker answers RBK_WIRE_ADMIN_RESTART */
/* Offered on the clients' socket: see <ringbroker/lease.h>. */
#define RBK_FEAT_LEASES (1ull << 10)
/* RBK_WIRE_ARENA_FIX of ARENA_ADD: the broker prevents pages from being removed from an arena. */
#define RBK_FEAT_FIXED_ARENAS (1ull << 11)
/*
 * The broker keeps records of unfinished tasks in each completion area, and the next broker takes
 * rings over: struct rbk_task_record, RBK_WIRE_WANT_ID, RBK_WIRE_RING_RESTORE.
 */
#define RBK_FEAT_REATTACH (1ull << 13)
/*
 * With RBK_FEAT_REATTACH: a completion area has room for states as they were before tasks that the
 * broker has begun, so that the next one runs these tasks again: RBK_TASK_UNDO.
 */
#define RBK_FEAT_UNDO (1ull << 14)
/*
 * The next broker restores arenas in memory of a device, and leases that were resized:
 * RBK_WIRE_ARENA_DMA_BUF, RBK_WIRE_LEASE_RESIZED.
 */
#define RBK_FEAT_RESTORE (1ull << 15)
/* Entries may wait for several earlier ones: RBK_SQE_AFTER. */
#define RBK_FEAT_AFTER (1ull << 17)
/* Leased programs share a device's time: RBK_WIRE_LEASE_TIMESLICE, rbk_lease_page.timeslice. */
#define RBK_FEAT_TIMESLICE (1ull << 18)
/* Leases have shares of their tenant's time: RBK_WIRE_LEASE_SHARE, rbk_lease_page.share. */
#define RBK_FEAT_SHARES (1ull << 19)
/* Leased programs report how their work is divided: RBK_WIRE_LEASE_PARTS. */
#define RBK_FEAT_PARTS (1ull << 20)
/* Leased programs can stop sharing a device's time: RBK_WIRE_TIMESLICE_LEAVE. */
#define RBK_FEAT_UNSHARE (1ull << 21)
/* Leased programs tell that a timeslice ends before it has: RBK_WIRE_TIMESLICE_ENDING. */
#define RBK_FEAT_ENDING (1ull << 22)
/* Leased programs whose device was lost learn who reset it: RBK_WIRE_LEASE_LOST. */
#define RBK_FEAT_LOST (1ull << 23)
/* Idle programs' memory goes to host memory on demand: rbk_lease_sleep(), rbk_lease_page.sleep. */
#define RBK_FEAT_SLEEP (1ull << 24)

/* Limits of the ABI; a broker may set lower limits (see struct rbk_wire_welcome). */
#define RBK_MAX_RING_ENTRIES 32768u /* entries of one ring, a power of two */
#define RBK_MAX_RANK         8u     /* dimensions of one tensor */
#define RBK_MAX_REFS         64u    /* buffer references of one task, through a table */
#define RBK_SQE_REFS         5u     /* buffer references that fit into an entry */
#define RBK_SQE_AFTER_REFS   3u     /* the same with RBK_SQE_AFTER */
#define RBK_SQE_AFTER_MAX    8u     /* earlier entries that an entry can wait for */
#define RBK_NAME_BYTES       32u /* bytes of a name of a tensor, node or operator, with the NUL */
#define RBK_REF_ALIGN        64u /* alignment of every buffer reference, in bytes */
#define RBK_MAX_PLAN_TENSORS 4096u
#define RBK_MAX_PLAN_NODES   4096u
#define RBK_MAX_DIM          2147483647u /* size of one dimension of a tensor */
#define RBK_MAX_GPU_ELEMENTS 4294836225u /* elements of one tensor of a task that runs on a GPU */

/* struct rbk_sqe.opcode */
enum rbk_op {
	RBK_OP_NOP = 0,      /* completes with 0, on the same path as a RUN */
	RBK_OP_RUN = 1,      /* runs plan_id over count rows */
	RBK_OP_PREFETCH = 2, /* RBK_FEAT_RESIDENCY: loads plan_id into a device's memory */
	RBK_OP_EVICT = 3,    /* RBK_FEAT_RESIDENCY: releases plan_id's device memory */
	/*
	 * Cancels the oldest task of this ring whose user_data equals target. A task that has begun
	 * on the CPU is stopped, unless it updates a state; its outputs may then hold anything.
	 */
	RBK_OP_CANCEL = 4,
	RBK_OP_BARRIER = 5, /* completes after all earlier entries; later ones start after it */
};
#define RBK_OP_COUNT 6

/*
 * struct rbk_sqe.flags
 *
 * Chains: an entry with RBK_SQE_LINK and the entry after it belong to one chain. A chain ends with
 * the first entry without the flag, and may span several submissions. Each entry starts after its
 * predecessor succeeded. Once an entry has failed, been rejected or been cancelled, the rest of the
 * chain completes with -ECANCELED. Entries not in the same chain are unordered. A BARRIER cannot be
 * in a chain.
 *
 * Joins (RBK_FEAT_AFTER): an entry with RBK_SQE_AFTER names up to RBK_SQE_AFTER_MAX earlier entries
 * of its ring in struct rbk_sqe.after, each by its distance: 1 is the entry before this one. It
 * starts after all of them succeeded. If one of them failed, was rejected or was cancelled, it
 * completes with -ECANCELED once all of them have completed. An entry may be named any number of
 * times, before and after its completion. A distance that exceeds the number of entries of the
 * ring, or that reaches before the ring's first entry, names no entry: -EINVAL. An entry can be in
 * a chain and name others; it then waits for both, unless its chain has failed before the broker
 * takes it. Since only earlier entries can be named, there are no cycles. A NOP with RBK_SQE_AFTER
 * joins more than RBK_SQE_AFTER_MAX entries step by step. A BARRIER names none.
 */
#define RBK_SQE_LINK        (1u << 0) /* the next entry starts after this entry succeeded */
#define RBK_SQE_PARTITION   (1u << 1) /* rows may be split over devices, or stream (brokerd(8)) */
#define RBK_SQE_ARG_TABLE   (1u << 2) /* references are in a table: struct rbk_sqe.table */
#define RBK_SQE_WAIT_MEMORY (1u << 3) /* RUN, PREFETCH: wait for device memory, see below */
#define RBK_SQE_AFTER       (1u << 4) /* starts after the entries of struct rbk_sqe.after */
#define RBK_SQE_FLAGS \
	(RBK_SQE_LINK | RBK_SQE_PARTITION | RBK_SQE_ARG_TABLE | RBK_SQE_WAIT_MEMORY | RBK_SQE_AFTER)

/*
 * Residency (RBK_FEAT_RESIDENCY)
 *
 * A plan's device memory is loaded and evicted over time; rbk_plan_memory() returns its state. The
 * same applies to each segment of a plan that the broker cut (brokerd(8)): an entry's state is that
 * of the segment that it has reached, and PREFETCH loads as many segments as there is room for.
 * While a plan is not resident on a device, a RUN that would have run on that device runs on the
 * CPU with RBK_REASON_MEMORY_CONSTRAINT. With RBK_SQE_WAIT_MEMORY the RUN waits until the plan is
 * resident, without a time limit, and then runs on the device; missing its deadline only sets a
 * flag of the completion. A RUN that may run on no other device (pinned, RBK_STRATEGY_ONLY_GPU)
 * loads its plan at once, evicting other plans where that is allowed, or completes with -ENOMEM;
 * with the flag it waits. A task never waits for a plan that can never fit.
 *
 * PREFETCH loads a plan's memory now, evicting other plans where that is allowed. It completes with
 * 0 and the device when the plan is resident; with RBK_SQE_WAIT_MEMORY it waits for room. EVICT
 * releases the memory once no task uses it, and completes when the memory is released; the plan
 * stays evicted until a task needs it again. Strategy: RBK_STRATEGY_DEVICE(index), or
 * RBK_STRATEGY_AUTO: any device that can run the plan, for EVICT all of them. PREFETCH and EVICT
 * are tasks: they can be in chains, barriers wait for them, and they can be cancelled, as can a RUN
 * that waits. When a plan is removed, the tasks that wait for its memory complete with -ECANCELED,
 * or with -ENOMEM if they have updated a state. After a segment has updated a state, the RUN does
 * not wait in later segments: these run on the CPU, or, where no device but a GPU may run them,
 * load their memory at once, or the RUN completes with -ENOMEM.
 */

/*
 * struct rbk_sqe.strategy: where a task should run.
 *
 * PREFER_* and a named device fall back to the other device, and the completion says why; ONLY_*
 * completes with -ENODEV instead of running on another device.
 */
enum rbk_strategy {
	RBK_STRATEGY_AUTO = 0,
	RBK_STRATEGY_PREFER_GPU = 1,
	RBK_STRATEGY_PREFER_CPU = 2,
	RBK_STRATEGY_ONLY_GPU = 3,
	RBK_STRATEGY_ONLY_CPU = 4,
	/* RBK_FEAT_STRATEGIES: criterion by which the broker chooses the device. */
	RBK_STRATEGY_LATENCY = 5,   /* the earliest completion that is reliable */
	RBK_STRATEGY_ENERGY = 6,    /* the least energy, unless the task takes much longer */
	RBK_STRATEGY_PARTITION = 7, /* RBK_SQE_PARTITION, whatever the size and the gain */
};
#define RBK_STRATEGY_COUNT     8
#define RBK_STRATEGY_NAMED     0x80u /* ORed with a device index below 16 */
#define RBK_STRATEGY_DEVICE(i) (RBK_STRATEGY_NAMED | (i))

/* struct rbk_sqe.priority: the task's class within its tenant's share. */
enum rbk_priority {
	RBK_PRIORITY_NORMAL = 0,
	RBK_PRIORITY_LOW = 1,
	RBK_PRIORITY_HIGH = 2,
	RBK_PRIORITY_URGENT = 3,
	/* of rbk_lease_share() only: the lease does not share its device's time */
	RBK_PRIORITY_NONE = 255,
};
#define RBK_PRIORITY_COUNT 4 /* of those that order work */

/* struct rbk_cqe.device, and the index of a named device. 0 is always the CPU. */
#define RBK_DEVICE_CPU  0u
#define RBK_DEVICE_GPU  1u   /* the first GPU; further ones follow */
#define RBK_DEVICE_NONE 255u /* the entry ran on no device (NOP, CANCEL, BARRIER, rejected) */
#define RBK_MAX_DEVICES 16u

/* struct rbk_cqe.reason: why the task ran where it ran. */
enum rbk_reason {
	RBK_REASON_NONE = 0,              /* the broker placed no task */
	RBK_REASON_GPU_AVAILABLE = 1,     /* large enough, and a GPU can run it */
	RBK_REASON_GPU_UNAVAILABLE = 2,   /* no GPU, or none that can run this plan */
	RBK_REASON_CPU_FALLBACK = 3,      /* failed on a GPU, then ran on the CPU */
	RBK_REASON_COST_MODEL = 4,        /* earlier predicted completion */
	RBK_REASON_MEMORY_CONSTRAINT = 5, /* does not fit into device memory or budget */
	RBK_REASON_USER_PREFERENCE = 6,   /* as the entry's strategy or the plan asked */
	RBK_REASON_BELOW_THRESHOLD = 7,   /* too small to be worth a transfer */
	RBK_REASON_CONTENTION = 8,        /* the CPU has no time for it */
	RBK_REASON_BREAKER_OPEN = 9,      /* the GPU failed too often */
};
#define RBK_REASON_COUNT 10

/* struct rbk_stats_plan.cut: why a plan is cut into segments, or is whole (SEGMENTS in brokerd(8))
 */
enum rbk_cut {
	RBK_CUT_UNKNOWN = 0,   /* a broker before statistics 1.18 */
	RBK_CUT_FASTER = 1,    /* it is predicted to end earlier in segments */
	RBK_CUT_TO_FIT = 2,    /* no device has memory, or all operators, for it whole */
	RBK_CUT_AT_RANDOM = 3, /* brokerd --cut */
	RBK_CUT_NO_GAIN = 4,   /* whole: not predicted to end earlier by enough in segments */
	RBK_CUT_SMALL =
		5, /* whole: its tasks are too small, or those of few rows would be slower */
	RBK_CUT_NO_DEVICE = 6, /* whole: only the CPU can have anything of it */
	RBK_CUT_FITS = 7,      /* whole: no times are known, and a device can have it, or no part */
	RBK_CUT_PINNED = 8,    /* whole: as its client asked */
	RBK_CUT_REFUSED = 9,   /* whole: no host memory for segments, or too many references */
};
#define RBK_CUT_COUNT 10

/* struct rbk_cqe.flags */
#define RBK_CQE_DEADLINE_MISSED (1u << 0) /* completed after the entry's deadline */
/* ran on several devices; device had the most rows, or worked longest on segments of the plan */
#define RBK_CQE_PARTITIONED (1u << 1)
/* ran on this device so that the broker learns its cost */
#define RBK_CQE_EXPLORED (1u << 2)

/*
 * A buffer reference: the place of a tensor in an arena of this session.
 * - Bits 63..48: arena id, from 1. No arena has id 0, so a reference that was never set (0) is
 * rejected with -EINVAL.
 * - Bits 47..0: offset in bytes, a multiple of RBK_REF_ALIGN.
 */
#define RBK_REF_OFFSET_BITS 48
#define RBK_REF(arena_id, offset) \
	(((uint64_t)(uint16_t)(arena_id) << RBK_REF_OFFSET_BITS) | (uint64_t)(offset))
#define RBK_REF_ARENA(ref)  ((uint16_t)((ref) >> RBK_REF_OFFSET_BITS))
#define RBK_REF_OFFSET(ref) ((ref) & ((1ull << RBK_REF_OFFSET_BITS) - 1))

/*
 * Submission entry: 64 bytes, one cache line. The client writes it, the broker copies it once.
 *
 * Errors, as struct rbk_cqe.res; the session continues after each of them:
 *   -EINVAL      unknown opcode, flag, strategy or priority; reserved bits set; a misaligned
 *                reference; an unused reference that is not 0; an output that overlaps another
 *                reference; a number of references that is not the plan's: a reference beyond it
 *                that is not 0, or one of the plan's that is 0; RBK_SQE_AFTER: a distance that
 *                names no entry, no distance at all, or a plan with more than RBK_SQE_AFTER_REFS
 *                references without a table
 *   -ENOENT      no such plan; CANCEL: no such task
 *   -EBADF       no such arena, or not any more; RBK_REF_INVALID
 *   -EFAULT      a reference reaches beyond its arena
 *   -EACCES      an output or a state in an immutable arena
 *   -ERANGE      count is 0 or above the plan's maximum
 *   -EDOM        an index in a tensor's contents (Gather, for example) is out of range, on any
 *                device; outputs may hold anything
 *   -ENODEV      the task or its plan is for the GPU alone, and no GPU can run the plan, or the GPU
 *                is lost and not open again; PREFETCH, EVICT: the device does not exist, cannot
 *                run the plan, or has no memory of its own (the CPU)
 *   -EOPNOTSUPP  needs a feature that was not offered
 *   -EALREADY    CANCEL: the task has begun on a GPU, or updates a state, and cannot be stopped;
 *                it had begun to update a state when an earlier broker died, and is to run again
 *   -ECANCELED   cancelled, or an earlier task of its chain or one that it names in after failed,
 *                or it waited for the memory of a plan that was removed. States are as they were.
 *                PREFETCH: EVICT or an administrator evicted the plan while it was being loaded
 *   -EIO         every device that may run the task failed, or the one that was to update its
 *                states; PREFETCH: the device was lost
 *   -EXDEV       the device cannot reach one of the task's arenas, and no other device may run the
 *                task. A plan that is made afterwards reaches the arena by copies
 *   -ENOMEM      out of memory while running it; no room for the plan's memory, now or ever, on
 *                the devices that may run it. After this error, -EDOM and -EIO, states of a task
 *                that has begun may hold anything: its updates, some of them, or half of one
 *   -ECONNRESET  the broker died when the task had begun to update states without RBK_FEAT_UNDO, or
 *                without room for them, or the task failed at the next broker before they were
 *                written back: they may hold anything now; or after the task's table had
 *                been read, and the table has changed since
 *   -ECONNABORTED  brokers crashed while they ran the task, and it is not run again; its outputs
 * and states may hold anything
 */
struct rbk_sqe {
	uint8_t opcode;   /* enum rbk_op */
	uint8_t flags;    /* RBK_SQE_* */
	uint8_t strategy; /* enum rbk_strategy or RBK_STRATEGY_DEVICE(index) */
	uint8_t priority; /* enum rbk_priority */
	uint32_t plan_id; /* RUN, PREFETCH, EVICT; otherwise 0 */
	/* returned in the completion, uninterpreted (but see target); "brokerctl why task N" takes
	 * it */
	uint64_t user_data;
	uint32_t count;       /* RUN: rows of the dynamic leading dimension, 1 if there is none */
	uint32_t deadline_us; /* relative to admission, in microseconds; 0: none */
	union {
		/*
		 * RUN: inputs, outputs and states in the order in which the plan declares them;
		 * references beyond the plan's number are 0.
		 */
		uint64_t refs[RBK_SQE_REFS];
		/* RUN with RBK_SQE_ARG_TABLE. */
		struct {
			uint64_t table;  /* reference to uint64_t[n_refs], copied at admission */
			uint32_t n_refs; /* 1..RBK_MAX_REFS */
			/* RBK_FEAT_STATE_ROWS: valid rows of states; otherwise 0 */
			uint32_t state_rows;
			uint64_t table_reserved[3];
		};
		/* CANCEL */
		struct {
			uint64_t target; /* user_data of the task to cancel */
			uint64_t cancel_reserved[4];
		};
		/*
		 * RBK_SQE_AFTER, with each operation but BARRIER: distances to earlier entries in
		 * place of the last two words above; 0: unused.
		 */
		struct {
			uint64_t after_refs[RBK_SQE_AFTER_REFS]; /* as refs, or as above */
			uint16_t after[RBK_SQE_AFTER_MAX];
		};
	};
};

/* Completion entry: 32 bytes, two per cache line. Only the broker writes it. */
struct rbk_cqe {
	uint64_t user_data; /* user_data of the submission entry */
	int32_t res;        /* 0, or -errno as above */
	uint8_t device;     /* device that ran it, RBK_DEVICE_*; PREFETCH: device that was loaded */
	uint8_t reason;     /* enum rbk_reason */
	uint16_t flags;     /* RBK_CQE_* */
	uint64_t queue_ns;  /* time from admission to start, plus pauses of the execution */
	/*
	 * time from start to end of execution, without pauses; where tiny tasks of one plan follow
	 * each other, the mean of several
	 */
	uint64_t exec_ns;
};

/*
 * A ring is two memfds.
 *
 * The client maps the submission area read-write, the broker maps it read-only: it holds all that
 * the client publishes. The completion area is the reverse, and a seal keeps the client from
 * mapping it writable: it holds all that the broker publishes. Indices count entries since set-up,
 * wrap around at 2^32 and are masked on access. Each cache line has one writer; the lines are 128
 * bytes apart, because processors prefetch lines in pairs.
 *
 * Sleeping: a side that is about to sleep writes a token (non-zero, different for each sleep) into
 * its wait word, executes a sequentially consistent fence and checks the ring once more. A side
 * that publishes stores its index with release, executes such a fence and reads the other side's
 * wait word. So either the sleeper sees the entry or the publisher sees the token. Because tokens
 * differ, the publisher rings once per sleep, not once per entry. A byte through the ring's bell, a
 * socket pair, wakes either side; end of file on the bell means that the other side is gone. A
 * client sleeps for completions: that its entries were consumed does not wake it.
 *
 * The broker sleeps on a new ring from the beginning. At the first bell it adds F_SEAL_FUTURE_WRITE
 * to the submission area's memfd, so the client maps both areas before it rings: afterwards the
 * memfd can neither be mapped writable again nor have pages removed.
 *
 * An entry is consumed only if its completion has room, so the broker may also sleep on entries
 * that wait for the client to consume completions. A client that has published more entries than
 * the completion ring has room for publishes cq_head like sq_tail: fence, check, ring.
 *
 * A client that publishes often may leave its fences to the broker, where rbk_cq_area.has_barriers
 * is set. Its process has registered with membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED). It
 * sets rbk_sq_area.unfenced and executes one more fence; from then on it only keeps the compiler
 * from moving the load before the store. A broker that is about to sleep and finds the word set
 * after its own fence has all processors that run such processes execute a fence
 * (MEMBARRIER_CMD_GLOBAL_EXPEDITED) before it checks the ring once more. To execute fences again,
 * the client clears the word with release before the next publication. With each new completion
 * area it begins with fences.
 */
struct rbk_sq_area {
	uint32_t sq_tail; /* entries published by the client */
	uint32_t pad0[31];
	uint32_t cq_head; /* completions consumed by the client */
	uint32_t pad1[31];
	/* the client's sleep token; 0: awake; the broker rings at the next completion, or later: */
	uint32_t cq_wait;
	/*
	 * 1 + the number of the processor on which the client last rang or waited; 0: not known. A
	 * hint: a broker on the same processor does not poll there, and moves away if entries
	 * follow each other. Its workers there leave tasks of a client that polls to others.
	 */
	uint32_t processor;
	/*
	 * The token of the last sleep, also while the client is awake: tells a client that slept
	 * during its task from one that polls. A hint; 0 in clients that do not write it.
	 */
	uint32_t slept;
	uint32_t unfenced; /* 1: the client executes no fences, see "Sleeping" */
	/*
	 * The broker rings once cq_tail has reached this index; 0: at the next completion. Written
	 * before the token. Since 0 has this meaning, a client that waits for index 0 writes the
	 * one before. A broker that does not know the word rings earlier.
	 */
	uint32_t cq_wanted;
	uint32_t pad2[59];
	struct rbk_sqe sqes[];
};

/*
 * Everything before these indices is finished for the next broker. They count from the set-up of
 * the ring and do not wrap.
 */
struct rbk_commit {
	uint64_t sq_head; /* entries: each has a completion, or a live record */
	uint64_t cq_tail; /* completions that count, published or not */
};

/*
 * struct rbk_cq_area.commit: the low 32 bits of sq_head, the low 30 bits of cq_tail, and the state
 * of the chain. Each index is the number closest to its member of commit_base that has these bits;
 * the broker moves the base before an index is 2^28 away. So one store commits both.
 */
#define RBK_COMMIT_CQ_SHIFT     32
#define RBK_COMMIT_CQ_BITS      30
#define RBK_COMMIT_CHAIN_OPEN   (1ull << 62) /* the next entry belongs to the last one's chain */
#define RBK_COMMIT_CHAIN_BROKEN (1ull << 63) /* an entry of that chain has failed */

/* struct rbk_cq_area.closed */
enum rbk_ring_end {
	RBK_RING_OPEN = 0,
	RBK_RING_CLOSED = 1,  /* the ring was removed, or its session ended for good */
	RBK_RING_STOPPED = 2, /* the broker stops: the next one takes the ring over */
};

struct rbk_cq_area {
	uint32_t cq_tail; /* completions published by the broker */
	uint32_t pad0[31];
	uint32_t sq_head; /* entries consumed by the broker */
	uint32_t reserved;
	/* RBK_FEAT_REATTACH: RBK_COMMIT_*; written before both indices are published */
	uint64_t commit;
	struct rbk_commit commit_base;
	/* 1 + the index of the entry during whose admission the broker crashed; 0: none */
	uint64_t crash_end;
	uint32_t pad1[22];
	/* the broker's sleep token; 0: awake; the client rings at the next entry */
	uint32_t sq_wait;
	uint32_t closed; /* enum rbk_ring_end; non-zero: the broker consumes no more entries */
	/*
	 * Hints for a client that waits; times are ns of CLOCK_MONOTONIC. When the broker last rang
	 * the bell: a client that was awake would have seen its completion by then.
	 */
	uint64_t rung_ns;
	/*
	 * When a task that began as the only one in flight is predicted to complete. 0: not known,
	 * or a client that spins would take a processor from it.
	 */
	uint64_t due_ns;
	/*
	 * 1 + the processor on which the broker was when it last began to poll the ring, rang its
	 * bell, or found itself moved; 0: not known. A hint: a client there does not spin, since
	 * the broker could not answer.
	 */
	uint32_t processor;
	uint32_t has_barriers; /* 1: the broker respects rbk_sq_area.unfenced; never changes */
	uint32_t pad2[56];
	struct rbk_cqe cqes[];
};

/* struct rbk_task_record.flags */
#define RBK_TASK_TAKEN        (1u << 0) /* the record has an entry */
#define RBK_TASK_POSTED       (1u << 1) /* the entry's completion has cq_index */
#define RBK_TASK_CANCELLED    (1u << 2) /* the entry with cancel_index stopped the task */
#define RBK_TASK_BEGUN        (1u << 3) /* the task began to update a state */
#define RBK_TASK_TABLE        (1u << 4) /* the task's table was read, and had table_hash */
#define RBK_TASK_UNDO         (1u << 5) /* BEGUN, and the earlier states are at undo_first */
#define RBK_TASK_FAILED       (1u << 6) /* the entry has failed, if the record is not live */
#define RBK_TASK_AFTER_FAILED (1u << 7) /* an entry that the entry names has failed */

/*
 * RBK_FEAT_REATTACH: a task that did not complete at once. The records are at
 * RBK_CQ_RECORDS_OFFSET of the completion area, one for each task that may be in flight, in no
 * order. Only the broker writes them; they outlive it.
 *
 * A record is live if it is TAKEN, its sq_index is below the committed sq_head, and it is not
 * POSTED with a cq_index below the committed cq_tail. The unfinished entries of a ring are the live
 * records, and all entries from the committed sq_head to the client's sq_tail. A cancellation
 * counts if cancel_index is below the committed sq_head and no live record has that sq_index.
 */
struct rbk_task_record {
	struct rbk_sqe sqe; /* as the broker copied it */
	uint64_t sq_index;  /* indices as in struct rbk_commit */
	uint64_t cq_index;
	/* sq_index of the CANCEL, or of the entry whose failure broke the task's chain */
	uint64_t cancel_index;
	/* admission, CLOCK_MONOTONIC, from which the entry's deadline counts; 0: it has none */
	uint64_t admit_ns;
	uint64_t table_hash; /* of the references in the table; for brokers */
	uint32_t flags;      /* RBK_TASK_* */
	/*
	 * RBK_FEAT_UNDO: units of RBK_UNDO_UNIT_BYTES that hold the task's states: as many bytes of
	 * each as the task's count takes, in the order of its references, each at a multiple of
	 * RBK_REF_ALIGN.
	 */
	uint16_t undo_first, n_undo;
	uint16_t n_crashes; /* of brokers, for which the task is to blame; for brokers */
	uint16_t pad;
	uint32_t reserved[3];
};

/* Bytes of an area of @n entries; the memfd is that size, rounded up to a page. */
#define RBK_SQ_AREA_BYTES(n) (sizeof(struct rbk_sq_area) + (size_t)(n) * sizeof(struct rbk_sqe))
#define RBK_CQ_AREA_BYTES(n) (sizeof(struct rbk_cq_area) + (size_t)(n) * sizeof(struct rbk_cqe))
/* With RBK_FEAT_REATTACH, records follow the completions, and the area has so many bytes: */
#define RBK_CQ_RECORDS_OFFSET(n) ((RBK_CQ_AREA_BYTES(n) + 127) & ~(size_t)127)
#define RBK_CQ_REATTACH_BYTES(n) \
	(RBK_CQ_RECORDS_OFFSET(n) + (size_t)(n) * sizeof(struct rbk_task_record))
/* With RBK_FEAT_UNDO, states of tasks follow the records. */
#define RBK_UNDO_UNIT_BYTES   1024
#define RBK_UNDO_UNITS        64
#define RBK_CQ_UNDO_OFFSET(n) RBK_CQ_REATTACH_BYTES(n)
#define RBK_CQ_UNDO_BYTES(n)  (RBK_CQ_UNDO_OFFSET(n) + RBK_UNDO_UNITS * RBK_UNDO_UNIT_BYTES)
/*
 * With RBK_FEAT_REATTACH and RBK_FEAT_AFTER follow the failures, uint64_t[2 * n], also where the
 * room for states is not used: element i is 1 + the largest index of an entry that failed, of the
 * indices that are i modulo 2 * n. It is written before the failure is committed, and counts if the
 * index is below the committed sq_head and no live record has it. Such indices may have replaced
 * others, but none that entries from the committed sq_head on can name: these are n apart at most.
 * An entry with a live record may have been taken long before. If an entry that it names has
 * failed, either its record says so (RBK_TASK_AFTER_FAILED), or that of the other entry does
 * (RBK_TASK_FAILED), which is kept until then.
 */
#define RBK_CQ_FAILED_OFFSET(n) RBK_CQ_UNDO_BYTES(n)
#define RBK_CQ_AFTER_BYTES(n)   (RBK_CQ_FAILED_OFFSET(n) + 2 * (size_t)(n) * sizeof(uint64_t))

/* Element types; the numbers are those of ONNX's TensorProto. All are below 32. */
enum rbk_dtype {
	RBK_DTYPE_F32 = 1, /* IEEE 754 binary32 */
	RBK_DTYPE_U8 = 2,
	RBK_DTYPE_I8 = 3, /* two's complement, as are all signed types */
	RBK_DTYPE_I32 = 6,
	RBK_DTYPE_I64 = 7,
	RBK_DTYPE_BOOL = 9,  /* one byte: 0 is false, other values true; operators write 0 or 1 */
	RBK_DTYPE_F16 = 10,  /* IEEE 754 binary16 */
	RBK_DTYPE_F64 = 11,  /* IEEE 754 binary64 */
	RBK_DTYPE_BF16 = 16, /* upper half of a binary32; operators only move and cast it */
};

/* Use of a tensor by a plan. */
enum rbk_tensor_kind {
	RBK_TENSOR_INPUT = 0,    /* read; a reference in each task */
	RBK_TENSOR_OUTPUT = 1,   /* written completely; a reference in each task */
	RBK_TENSOR_CONSTANT = 2, /* read; in an immutable arena, named when the plan is prepared */
	RBK_TENSOR_STATE = 3,    /* read, then updated in place; a reference in each task */
	RBK_TENSOR_SCRATCH = 4,  /* between nodes; owned by the broker, shape inferred */
};
#define RBK_TENSOR_KIND_COUNT 5

/*
 * State of a plan on a device, as RBK_WIRE_PLAN_MEMORY and rbk_plan_memory() return it. On the CPU
 * a plan is always RESIDENT.
 */
enum rbk_memory_state {
	RBK_MEMORY_UNSUPPORTED = 0, /* the device cannot run the plan */
	RBK_MEMORY_RESIDENT = 1,    /* the plan, or a segment of it, can run there now */
	RBK_MEMORY_EVICTED = 2,     /* the plan is not in the device's memory now */
	/* the plan needs more than the device has or the tenant may have */
	RBK_MEMORY_NEVER_FITS = 3,
	RBK_MEMORY_LOST = 4, /* the device is lost, or refused the plan */
};
#define RBK_MEMORY_STATE_COUNT 5

/* Memory that holds a resident plan. */
enum rbk_memory_tier {
	RBK_TIER_NONE = 0, /* not resident, or the device has no memory of its own (the CPU) */
	RBK_TIER_VRAM = 1, /* device memory */
	RBK_TIER_GTT = 2,  /* host memory that the device reads over its bus */
};
#define RBK_TIER_COUNT 3

/*
 * The page that tells all members about their lease. Only the broker writes it. Each field from
 * max_bytes on is an aligned integer of 32 or 64 bits, to be read by __atomic_load_n(); two of them
 * may be of different moments.
 */
#define RBK_LEASE_PAGE_MAGIC 0x4c425252u /* "RRBL" */
struct rbk_lease_page {
	uint32_t magic; /* RBK_LEASE_PAGE_MAGIC */
	uint32_t lease; /* number of the lease */
	uint64_t max_bytes;
	uint64_t granted_bytes; /* bytes that the lease has */
	/*
	 * Bytes to which the lease should shrink, or may grow. Members report at most that many as
	 * their budget. If it is below granted_bytes, members give back what they can.
	 */
	uint64_t wish_bytes;
	/* part of granted_bytes that members have, shared objects included */
	uint64_t credited_bytes;
	/* Since the lease was opened, for all members together: */
	uint64_t peak_bytes;          /* the most bytes that members reported as used */
	uint64_t peak_credited_bytes; /* the most bytes that members were given, used or not */
	uint64_t n_refused;           /* refused allocations, as members report */
	uint64_t resized_bytes;       /* last wish of rbk_lease_resize(); 0: none, or not told */
	/*
	 * RBK_FEAT_TIMESLICE: an enum rbk_timeslice in the lowest two bits, and above them a number
	 * that each change increments. A futex: FUTEX_WAIT on this word, not private, waits for a
	 * change. To be read as an aligned 32-bit integer.
	 */
	uint32_t timeslice;
	/*
	 * RBK_FEAT_SHARES: the priority with which members share the device's time that do not name
	 * one themselves, 1 + an enum rbk_priority; 0: they do not share it. With
	 * RBK_LEASE_SET_PRIORITY it applies to all members.
	 */
	uint32_t priority;
	uint32_t share; /* of its tenant's time, 1 to 10000; 0: an older broker */
	/* longest part of all members' command buffers that name none; 0: not given */
	uint32_t max_part_us;
	uint32_t set; /* RBK_LEASE_SET_*: what rbk_lease_share() has set */
	/*
	 * RBK_FEAT_SLEEP: an enum rbk_lease_sleep. A futex, as timeslice; to be read as an aligned
	 * 32-bit integer.
	 */
	uint32_t sleep;
	/*
	 * RBK_FEAT_PARTS: time for which the lease had the device while it shared it, and waited
	 * for it, in ns, as of the last change of a member's credit, or of its last report. 0: it
	 * has not shared it, or the broker does not tell.
	 */
	uint64_t slice_ns, slice_wait_ns;
	uint64_t reserved[2];
};

/* struct rbk_lease_page.set */
#define RBK_LEASE_SET_PRIORITY (1u << 0) /* priority applies to members that name one, too */
#define RBK_LEASE_SET_SHARE    (1u << 1)

/* RBK_FEAT_SLEEP: whether the memory of a lease's programs should be in the device. */
enum rbk_lease_sleep {
	RBK_LEASE_AWAKE = 0,
	/* members whose programs are idle should have their memory elsewhere, and give it back */
	RBK_LEASE_SLEEPS = 1,
	/* the same; and they should submit nothing until that changes, or the broker has ended */
	RBK_LEASE_HELD = 2,
	/* as RBK_LEASE_SLEEPS, because another lease waits for room; the broker ends it by itself
	 */
	RBK_LEASE_ASKED = 3,
};

/*
 * RBK_FEAT_TIMESLICE: whether members of a lease that share a device's time may submit work to it.
 * Members that do not share (RBK_TIMESLICE_JOIN) ignore it.
 */
enum rbk_timeslice {
	/* no other lease shares the device */
	RBK_TIMESLICE_OPEN = 0,
	/* the lease has the timeslice: only work that ends soon should be under way */
	RBK_TIMESLICE_HELD = 1,
	/* as HELD, but others wait: a member without work should end its use at once */
	RBK_TIMESLICE_WANTED = 2,
	/* another lease has it, or is next: submit nothing, and tell when nothing is under way */
	RBK_TIMESLICE_CLOSED = 3,
};
#define RBK_TIMESLICE_STATE(word) ((enum rbk_timeslice)((word)&3u))

#ifndef __cplusplus
_Static_assert(sizeof(struct rbk_sqe) == 64, "a submission entry is one cache line");
_Static_assert(offsetof(struct rbk_sqe, opcode) == 0, "abi");
_Static_assert(offsetof(struct rbk_sqe, flags) == 1, "abi");
_Static_assert(offsetof(struct rbk_sqe, strategy) == 2, "abi");
_Static_assert(offsetof(struct rbk_sqe, priority) == 3, "abi");
_Static_assert(offsetof(struct rbk_sqe, plan_id) == 4, "abi");
_Static_assert(offsetof(struct rbk_sqe, user_data) == 8, "abi");
_Static_assert(offsetof(struct rbk_sqe, count) == 16, "abi");
_Static_assert(offsetof(struct rbk_sqe, deadline_us) == 20, "abi");
_Static_assert(offsetof(struct rbk_sqe, refs) == 24, "abi");
_Static_assert(offsetof(struct rbk_sqe, table) == 24, "abi");
_Static_assert(offsetof(struct rbk_sqe, n_refs) == 32, "abi");
_Static_assert(offsetof(struct rbk_sqe, state_rows) == 36, "abi");
_Static_assert(offsetof(struct rbk_sqe, table_reserved) == 40, "abi");
_Static_assert(offsetof(struct rbk_sqe, target) == 24, "abi");
_Static_assert(offsetof(struct rbk_sqe, cancel_reserved) == 32, "abi");
_Static_assert(offsetof(struct rbk_sqe, after) == 48, "abi");
_Static_assert(sizeof(struct rbk_cqe) == 32, "two completion entries per cache line");
_Static_assert(offsetof(struct rbk_cqe, user_data) == 0, "abi");
_Static_assert(offsetof(struct rbk_cqe, res) == 8, "abi");
_Static_assert(offsetof(struct rbk_cqe, device) == 12, "abi");
_Static_assert(offsetof(struct rbk_cqe, reason) == 13, "abi");
_Static_assert(offsetof(struct rbk_cqe, flags) == 14, "abi");
_Static_assert(offsetof(struct rbk_cqe, queue_ns) == 16, "abi");
_Static_assert(offsetof(struct rbk_cqe, exec_ns) == 24, "abi");
_Static_assert(sizeof(struct rbk_lease_page) == 128, "abi");
_Static_assert(sizeof(struct rbk_sq_area) == 512, "abi");
_Static_assert(offsetof(struct rbk_sq_area, sq_tail) == 0, "abi");
_Static_assert(offsetof(struct rbk_sq_area, cq_head) == 128, "abi");
_Static_assert(offsetof(struct rbk_sq_area, cq_wait) == 256, "abi");
_Static_assert(offsetof(struct rbk_sq_area, processor) == 260, "abi");
_Static_assert(offsetof(struct rbk_sq_area, slept) == 264, "abi");
_Static_assert(offsetof(struct rbk_sq_area, unfenced) == 268, "abi");
_Static_assert(offsetof(struct rbk_sq_area, cq_wanted) == 272, "abi");
_Static_assert(offsetof(struct rbk_sq_area, sqes) == 512, "abi");
_Static_assert(sizeof(struct rbk_cq_area) == 512, "abi");
_Static_assert(offsetof(struct rbk_cq_area, cq_tail) == 0, "abi");
_Static_assert(offsetof(struct rbk_cq_area, sq_head) == 128, "abi");
_Static_assert(offsetof(struct rbk_cq_area, commit) == 136, "abi");
_Static_assert(offsetof(struct rbk_cq_area, commit_base) == 144, "abi");
_Static_assert(offsetof(struct rbk_cq_area, crash_end) == 160, "abi");
_Static_assert(offsetof(struct rbk_cq_area, sq_wait) == 256, "abi");
_Static_assert(offsetof(struct rbk_cq_area, closed) == 260, "abi");
_Static_assert(offsetof(struct rbk_cq_area, rung_ns) == 264, "abi");
_Static_assert(offsetof(struct rbk_cq_area, due_ns) == 272, "abi");
_Static_assert(offsetof(struct rbk_cq_area, processor) == 280, "abi");
_Static_assert(offsetof(struct rbk_cq_area, has_barriers) == 284, "abi");
_Static_assert(offsetof(struct rbk_cq_area, cqes) == 512, "abi");
_Static_assert(sizeof(struct rbk_commit) == 16, "abi");
_Static_assert(sizeof(struct rbk_task_record) == 128, "abi");
_Static_assert(offsetof(struct rbk_task_record, sq_index) == 64, "abi");
_Static_assert(offsetof(struct rbk_task_record, cq_index) == 72, "abi");
_Static_assert(offsetof(struct rbk_task_record, cancel_index) == 80, "abi");
_Static_assert(offsetof(struct rbk_task_record, admit_ns) == 88, "abi");
_Static_assert(offsetof(struct rbk_task_record, table_hash) == 96, "abi");
_Static_assert(offsetof(struct rbk_task_record, flags) == 104, "abi");
_Static_assert(offsetof(struct rbk_task_record, undo_first) == 108, "abi");
_Static_assert(offsetof(struct rbk_task_record, n_undo) == 110, "abi");
_Static_assert(offsetof(struct rbk_task_record, n_crashes) == 112, "abi");
#endif
