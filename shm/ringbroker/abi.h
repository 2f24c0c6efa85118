#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The ringbroker ABI: entries, rings and constants
 *
 * Everything that a client and brokerd exchange through shared memory, and every constant that both
 * sides and the control protocol (shm/wire.h) name. Fixed-width, little endian, every offset
 * asserted below; installed as <ringbroker/abi.h>.
 *
 * Rules of this file, as of a kernel uapi header: fields never move and never change meaning;
 * reserved bytes are zero on submission (brokerd answers -EINVAL otherwise) and are zero on
 * completion; a new capability gets a feature bit, an incompatible change a new RBK_ABI_MAJOR.
 */
#include <stddef.h>
#include <stdint.h>

/*
 * A broker serves a client of the same major and of any minor up to its own.
 *   1.1  RBK_FEAT_RESIDENCY: RBK_OP_PREFETCH, RBK_OP_EVICT, RBK_SQE_WAIT_MEMORY; RBK_FEAT_TENANTS
 *   1.2  RBK_FEAT_STRATEGIES, RBK_FEAT_STATS; RBK_CQE_PARTITIONED, RBK_CQE_EXPLORED
 *   1.3  RBK_FEAT_CATALOGUE, RBK_FEAT_ADMIN, RBK_FEAT_ADMIN_CHANGE
 *   1.4  RBK_FEAT_LEASES; later, RBK_FEAT_FIXED_ARENAS
 */
#define RBK_ABI_MAJOR 1
#define RBK_ABI_MINOR 4

/*
 * Feature bits: offered by the broker in its handshake, never required by this ABI's base set.
 * Where a feature was not offered, entries that ask for an action complete with -EOPNOTSUPP, and
 * wishes (a priority, leave to split) are checked for their form and otherwise ignored.
 */
#define RBK_FEAT_RESIDENCY  (1ull << 0) /* PREFETCH, EVICT, WAIT_MEMORY; RBK_WIRE_PLAN_MEMORY */
#define RBK_FEAT_PARTITION  (1ull << 1) /* RBK_SQE_PARTITION is acted upon */
#define RBK_FEAT_PRIORITY   (1ull << 2) /* struct rbk_sqe.priority is acted upon */
#define RBK_FEAT_STATE_ROWS (1ull << 3) /* struct rbk_sqe.state_rows is acted upon */
#define RBK_FEAT_TENANTS    (1ull << 4) /* RBK_WIRE_TENANT is answered */
#define RBK_FEAT_STRATEGIES (1ull << 5) /* RBK_STRATEGY_LATENCY, ENERGY and PARTITION */
#define RBK_FEAT_STATS      (1ull << 6) /* statistics pages, <ringbroker/stats.h> */
#define RBK_FEAT_CATALOGUE  (1ull << 7) /* RBK_WIRE_CATALOGUE is answered */
/* On the administrators' socket: see <ringbroker/admin.h>. */
#define RBK_FEAT_ADMIN        (1ull << 8) /* everybody's statistics may be read */
#define RBK_FEAT_ADMIN_CHANGE (1ull << 9) /* and limits, devices and settings changed */
/* On the clients' socket: see <ringbroker/lease.h>. */
#define RBK_FEAT_LEASES (1ull << 10)
/* RBK_WIRE_ARENA_FIX of ARENA_ADD: the broker keeps pages from being taken out of an arena. */
#define RBK_FEAT_FIXED_ARENAS (1ull << 11)

/* Limits of the ABI; a broker may set lower ones (see struct rbk_wire_welcome). */
#define RBK_MAX_RING_ENTRIES 32768u /* entries of one ring, a power of two */
#define RBK_MAX_RANK         8u     /* dimensions of one tensor */
#define RBK_MAX_REFS         64u    /* buffer references of one task, through a table */
#define RBK_SQE_REFS         5u     /* buffer references that fit into an entry */
#define RBK_NAME_BYTES       32u    /* names of tensors, nodes and operators, with the NUL */
#define RBK_REF_ALIGN        64u    /* alignment of every buffer reference, in bytes */
#define RBK_MAX_PLAN_TENSORS 4096u
#define RBK_MAX_PLAN_NODES   4096u
#define RBK_MAX_DIM          2147483647u /* size of one dimension of a tensor */
#define RBK_MAX_GPU_ELEMENTS 4294836225u /* of one tensor of a task that runs on a GPU */

/* struct rbk_sqe.opcode */
enum rbk_op {
	RBK_OP_NOP = 0,      /* completes with 0; takes the same path as a RUN of nothing */
	RBK_OP_RUN = 1,      /* runs plan_id over count rows */
	RBK_OP_PREFETCH = 2, /* RBK_FEAT_RESIDENCY: bring plan_id's memory to a device */
	RBK_OP_EVICT = 3,    /* RBK_FEAT_RESIDENCY: give plan_id's device memory back */
	/*
	 * Cancels the oldest task of this ring whose user_data is target. One that has begun on the
	 * CPU is stopped, unless it updates a state; its outputs may hold anything then.
	 */
	RBK_OP_CANCEL = 4,
	RBK_OP_BARRIER = 5, /* completes after all earlier entries; later ones start after it */
};
#define RBK_OP_COUNT 6

/*
 * struct rbk_sqe.flags
 *
 * Chains: an entry with RBK_SQE_LINK and the entry after it belong to one chain, which ends with
 * the first entry without the flag, however many submissions it takes. Each starts after the one
 * before it succeeded; once one has failed, been refused or been cancelled, the rest of the chain
 * completes with -ECANCELED. Entries that are not in one chain are unordered. A BARRIER cannot be
 * in a chain.
 */
#define RBK_SQE_LINK        (1u << 0) /* the next entry starts after this one succeeded */
#define RBK_SQE_PARTITION   (1u << 1) /* this task may be split over devices */
#define RBK_SQE_ARG_TABLE   (1u << 2) /* references are in a table, see struct rbk_sqe.table */
#define RBK_SQE_WAIT_MEMORY (1u << 3) /* RUN, PREFETCH: wait for device memory, see below */
#define RBK_SQE_FLAGS       (RBK_SQE_LINK | RBK_SQE_PARTITION | RBK_SQE_ARG_TABLE | RBK_SQE_WAIT_MEMORY)

/*
 * Residency (RBK_FEAT_RESIDENCY)
 *
 * What a plan needs in a device's memory comes and goes; rbk_plan_memory() tells. While it is not
 * there, a RUN that would have run on that device runs on the CPU with
 * RBK_REASON_MEMORY_CONSTRAINT. With RBK_SQE_WAIT_MEMORY it waits instead until the memory is
 * there, however long that takes, and then runs on the device; its deadline only marks it. A RUN
 * that may run nowhere else (pinned, RBK_STRATEGY_ONLY_GPU) has its memory brought at once,
 * evicting what may be evicted, or completes with -ENOMEM; with the flag it waits. Nothing waits
 * for a plan that can never fit.
 *
 * PREFETCH brings a plan's memory now, evicting what may be evicted, and completes with 0 and the
 * device when it is there; with RBK_SQE_WAIT_MEMORY it waits for room. EVICT gives the memory back
 * once no task uses it, and completes when it is gone; it stays away until somebody wants it.
 * Strategy: RBK_STRATEGY_DEVICE(index), or RBK_STRATEGY_AUTO: any device that can run the plan,
 * for EVICT all of them. They are tasks: they can be in chains, are waited for by barriers and can
 * be cancelled, as can a RUN that waits. A plan that is removed ends what waits for its memory with
 * -ECANCELED.
 */

/*
 * struct rbk_sqe.strategy: where a task should run.
 *
 * PREFER_* and a named device fall back to the other device, and the completion says why; ONLY_*
 * completes with -ENODEV instead of running elsewhere.
 */
enum rbk_strategy {
	RBK_STRATEGY_AUTO = 0,
	RBK_STRATEGY_PREFER_GPU = 1,
	RBK_STRATEGY_PREFER_CPU = 2,
	RBK_STRATEGY_ONLY_GPU = 3,
	RBK_STRATEGY_ONLY_CPU = 4,
	/* RBK_FEAT_STRATEGIES: how the broker chooses. */
	RBK_STRATEGY_LATENCY = 5,   /* the earliest completion that can be relied upon */
	RBK_STRATEGY_ENERGY = 6,    /* the least energy, if that does not take much longer */
	RBK_STRATEGY_PARTITION = 7, /* split over CPU and GPU wherever that is possible */
};
#define RBK_STRATEGY_COUNT     8
#define RBK_STRATEGY_NAMED     0x80u /* or-ed with a device index below 16 */
#define RBK_STRATEGY_DEVICE(i) (RBK_STRATEGY_NAMED | (i))

/* struct rbk_sqe.priority: a class within the tenant's own share. */
enum rbk_priority {
	RBK_PRIORITY_NORMAL = 0,
	RBK_PRIORITY_LOW = 1,
	RBK_PRIORITY_HIGH = 2,
	RBK_PRIORITY_URGENT = 3,
};
#define RBK_PRIORITY_COUNT 4

/* struct rbk_cqe.device; also the index of a named device. 0 is always the CPU. */
#define RBK_DEVICE_CPU  0u
#define RBK_DEVICE_GPU  1u   /* the first GPU; further ones follow */
#define RBK_DEVICE_NONE 255u /* the entry ran nowhere (NOP, CANCEL, BARRIER, refused) */
#define RBK_MAX_DEVICES 16u

/* struct rbk_cqe.reason: why the task ran where it ran. */
enum rbk_reason {
	RBK_REASON_NONE = 0,              /* nothing was placed */
	RBK_REASON_GPU_AVAILABLE = 1,     /* large enough, and a GPU can run it */
	RBK_REASON_GPU_UNAVAILABLE = 2,   /* no GPU, or none that can run this plan */
	RBK_REASON_CPU_FALLBACK = 3,      /* failed on a GPU, then ran on the CPU */
	RBK_REASON_COST_MODEL = 4,        /* the earlier predicted completion */
	RBK_REASON_MEMORY_CONSTRAINT = 5, /* does not fit into device memory or budget */
	RBK_REASON_USER_PREFERENCE = 6,   /* as the entry's strategy or the plan asked */
	RBK_REASON_BELOW_THRESHOLD = 7,   /* too small to be worth a transfer */
	RBK_REASON_CONTENTION = 8,        /* the CPU has no time */
	RBK_REASON_BREAKER_OPEN = 9,      /* the GPU failed too often */
};
#define RBK_REASON_COUNT 10

/* struct rbk_cqe.flags */
#define RBK_CQE_DEADLINE_MISSED (1u << 0) /* completed after the entry's deadline */
#define RBK_CQE_PARTITIONED     (1u << 1) /* ran on several devices; device had the most rows */
#define RBK_CQE_EXPLORED        (1u << 2) /* ran where it did so that the broker learns */

/*
 * A buffer reference: where a tensor lies in an arena of this session.
 * Bits 63..48: arena id, from 1: no arena has id 0, so a reference that was never set is refused.
 * Bits 47..0: offset in bytes, a multiple of RBK_REF_ALIGN.
 */
#define RBK_REF_OFFSET_BITS 48
#define RBK_REF(arena_id, offset) \
	(((uint64_t)(uint16_t)(arena_id) << RBK_REF_OFFSET_BITS) | (uint64_t)(offset))
#define RBK_REF_ARENA(ref)  ((uint16_t)((ref) >> RBK_REF_OFFSET_BITS))
#define RBK_REF_OFFSET(ref) ((ref) & ((1ull << RBK_REF_OFFSET_BITS) - 1))

/*
 * Submission entry: 64 bytes, one cache line. Written by the client, copied once by the broker.
 *
 * Errors, as struct rbk_cqe.res; the session goes on after each of them:
 *   -EINVAL      unknown opcode, flag, strategy or priority; reserved bits set; a misaligned
 *                reference; an unused reference that is not 0; an output overlapping another
 *                reference; the number of references is not the plan's
 *   -ENOENT      no such plan; CANCEL: no such task
 *   -EBADF       no such arena
 *   -EFAULT      a reference reaches beyond its arena
 *   -EACCES      an output or a state in an immutable arena
 *   -ERANGE      count is 0 or above the plan's maximum
 *   -EDOM        an index in a tensor's contents (as Gather has them) is out of range, on any
 *                device; outputs may hold anything
 *   -ENODEV      RBK_STRATEGY_ONLY_GPU and no GPU can run the plan; PREFETCH, EVICT: there is no
 *                such device, it cannot run the plan, or it has no memory of its own (the CPU)
 *   -EOPNOTSUPP  needs a feature that was not offered
 *   -EALREADY    CANCEL: the task is running and cannot be stopped
 *   -ECANCELED   cancelled, or an earlier task of its chain failed, or it waited for the memory of
 *                a plan that was removed; PREFETCH: the plan was evicted on its way to the device,
 *                by EVICT or an administrator
 *   -EIO         every device that may run the task failed; PREFETCH: the device was lost
 *   -ENOMEM      out of memory while running it; no room for the plan's memory, or never, on the
 *                devices that may run it
 */
struct rbk_sqe {
	uint8_t opcode;       /* enum rbk_op */
	uint8_t flags;        /* RBK_SQE_* */
	uint8_t strategy;     /* enum rbk_strategy or RBK_STRATEGY_DEVICE(index) */
	uint8_t priority;     /* enum rbk_priority */
	uint32_t plan_id;     /* RUN, PREFETCH, EVICT; else 0 */
	uint64_t user_data;   /* returned in the completion, never looked at (but see target) */
	uint32_t count;       /* RUN: rows of the dynamic leading dimension, 1 if there is none */
	uint32_t deadline_us; /* relative to admission, in microseconds; 0: none */
	union {
		/*
		 * RUN: inputs, outputs and states in the order in which the plan declares them;
		 * those beyond the plan's number are 0.
		 */
		uint64_t refs[RBK_SQE_REFS];
		/* RUN with RBK_SQE_ARG_TABLE. */
		struct {
			uint64_t table;  /* reference to uint64_t[n_refs], copied at admission */
			uint32_t n_refs; /* 1..RBK_MAX_REFS */
			uint32_t state_rows; /* RBK_FEAT_STATE_ROWS: valid rows of states; else 0 */
			uint64_t table_reserved[3];
		};
		/* CANCEL */
		struct {
			uint64_t target; /* user_data of the task to cancel */
			uint64_t cancel_reserved[4];
		};
	};
};

/* Completion entry: 32 bytes, two per cache line. Written by the broker only. */
struct rbk_cqe {
	uint64_t user_data; /* of the submission entry */
	int32_t res;        /* 0, or -errno as above */
	uint8_t device;     /* where it ran, RBK_DEVICE_*; PREFETCH: where the memory is */
	uint8_t reason;     /* enum rbk_reason */
	uint16_t flags;     /* RBK_CQE_* */
	uint64_t queue_ns;  /* from admission to the start of execution, and while it was stopped */
	uint64_t exec_ns;   /* from the start of execution to its end, but for such pauses */
};

/*
 * A ring is two memfds.
 *
 * The submission area is mapped read-write by the client and read-only by the broker: everything
 * that the client says. The completion area is the other way round, and sealed so that the client
 * cannot map it writable: everything that the broker says. Indices count entries since set-up,
 * wrap at 2^32 and are masked on access. Each line has one writer; 128 bytes apart, because
 * processors prefetch lines in pairs.
 *
 * Sleeping: whoever is about to sleep writes a token (non-zero, another one for each sleep) into
 * its wait word, executes a sequentially consistent fence and looks once more; whoever publishes
 * stores its index with release, executes such a fence and reads the other's wait word. So either
 * the sleeper sees the entry or the publisher sees the token, and because tokens differ it rings
 * once per sleep, not once per entry. Both are woken by one byte through the ring's bell, a socket
 * pair: end of file on it means that the other side is gone.
 *
 * The broker sleeps on a new ring from the beginning. At the first bell it adds F_SEAL_FUTURE_WRITE
 * to the submission area's memfd, so the client maps both areas before it rings: afterwards the
 * memfd can neither be mapped writable again nor have its pages taken away.
 *
 * An entry is consumed only if its completion has room, so the broker may also sleep on entries
 * that wait for the client to consume completions. A client that has published more entries than
 * the completion ring has room for publishes cq_head like sq_tail: fence, look, ring.
 */
struct rbk_sq_area {
	uint32_t sq_tail; /* entries published by the client */
	uint32_t pad0[31];
	uint32_t cq_head; /* completions consumed by the client */
	uint32_t pad1[31];
	uint32_t cq_wait; /* the client's sleep token, 0: awake; rung for at the next completion */
	uint32_t pad2[63];
	struct rbk_sqe sqes[];
};

struct rbk_cq_area {
	uint32_t cq_tail; /* completions published by the broker */
	uint32_t pad0[31];
	uint32_t sq_head; /* entries consumed by the broker */
	uint32_t pad1[31];
	uint32_t sq_wait; /* the broker's sleep token, 0: awake; ring the bell at the next entry */
	uint32_t closed;  /* non-zero: the broker ended this ring, no entry will be consumed */
	uint32_t pad2[62];
	struct rbk_cqe cqes[];
};

/* What an area of @n entries occupies, in bytes; the memfd is this rounded up to a page. */
#define RBK_SQ_AREA_BYTES(n) (sizeof(struct rbk_sq_area) + (size_t)(n) * sizeof(struct rbk_sqe))
#define RBK_CQ_AREA_BYTES(n) (sizeof(struct rbk_cq_area) + (size_t)(n) * sizeof(struct rbk_cqe))

/* Element types; the numbers are those of ONNX's TensorProto. All below 32. */
enum rbk_dtype {
	RBK_DTYPE_F32 = 1, /* IEEE 754 binary32 */
	RBK_DTYPE_U8 = 2,
	RBK_DTYPE_I8 = 3, /* two's complement, as all signed ones */
	RBK_DTYPE_I32 = 6,
	RBK_DTYPE_I64 = 7,
	RBK_DTYPE_BOOL = 9,  /* a byte: 0, or else true; operators write 0 and 1 */
	RBK_DTYPE_F16 = 10,  /* IEEE 754 binary16 */
	RBK_DTYPE_F64 = 11,  /* IEEE 754 binary64 */
	RBK_DTYPE_BF16 = 16, /* the upper half of a binary32; operators move and cast it only */
};

/* How a plan uses a tensor. */
enum rbk_tensor_kind {
	RBK_TENSOR_INPUT = 0,    /* read; given with each task */
	RBK_TENSOR_OUTPUT = 1,   /* written completely; given with each task */
	RBK_TENSOR_CONSTANT = 2, /* read; in an immutable arena, named when the plan is prepared */
	RBK_TENSOR_STATE = 3,    /* read, then updated in place; given with each task */
	RBK_TENSOR_SCRATCH = 4,  /* between nodes; owned by the broker, shape inferred */
};
#define RBK_TENSOR_KIND_COUNT 5

/* Where a plan stands on a device; what RBK_WIRE_PLAN_MEMORY and rbk_plan_memory() say. */
enum rbk_memory_state {
	RBK_MEMORY_UNSUPPORTED = 0, /* the device cannot run the plan */
	RBK_MEMORY_RESIDENT = 1,    /* it can run there now; on the CPU always */
	RBK_MEMORY_EVICTED = 2,     /* what it needs is not in the device's memory now */
	RBK_MEMORY_NEVER_FITS = 3,  /* it needs more than the device has or the tenant may have */
	RBK_MEMORY_LOST = 4,        /* the device is lost, or refused the plan */
};
#define RBK_MEMORY_STATE_COUNT 5

/* In which memory a resident plan is. */
enum rbk_memory_tier {
	RBK_TIER_NONE = 0, /* not resident, or the device has no memory of its own (the CPU) */
	RBK_TIER_VRAM = 1, /* the device's own */
	RBK_TIER_GTT = 2,  /* the host's, which the device reads over its bus */
};
#define RBK_TIER_COUNT 3

/*
 * What the broker tells all members of a lease, in memory that only it writes: each member an
 * aligned 64-bit integer, to be read by __atomic_load_n(); two of them may be of different moments.
 */
#define RBK_LEASE_PAGE_MAGIC 0x4c425252u /* "RRBL" */
struct rbk_lease_page {
	uint32_t magic; /* RBK_LEASE_PAGE_MAGIC */
	uint32_t lease; /* its number */
	uint64_t max_bytes;
	uint64_t granted_bytes; /* what the lease has */
	/*
	 * What it should come down to, or may grow to: members report no more than that as their
	 * budget. Below granted_bytes: give back what can be given back.
	 */
	uint64_t wish_bytes;
	uint64_t credited_bytes; /* of granted_bytes: given to members, shared objects included */
	/* Since it was opened, of all members together: */
	uint64_t peak_bytes;          /* the most that they said they use */
	uint64_t peak_credited_bytes; /* the most that they were given, of which they use a part */
	uint64_t n_refused;           /* allocations, as they say */
	uint64_t reserved[8];
};

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
_Static_assert(offsetof(struct rbk_sq_area, sqes) == 512, "abi");
_Static_assert(sizeof(struct rbk_cq_area) == 512, "abi");
_Static_assert(offsetof(struct rbk_cq_area, cq_tail) == 0, "abi");
_Static_assert(offsetof(struct rbk_cq_area, sq_head) == 128, "abi");
_Static_assert(offsetof(struct rbk_cq_area, sq_wait) == 256, "abi");
_Static_assert(offsetof(struct rbk_cq_area, closed) == 260, "abi");
_Static_assert(offsetof(struct rbk_cq_area, cqes) == 512, "abi");
#endif
