#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the scheduler probes and the broker share
 *
 * Included by run-queue.bpf.c and by broker/telemetry. Everything below is in arrays that the
 * broker maps and reads with plain loads; times are CLOCK_MONOTONIC, in ns. Run-queue delay is the
 * time from when a task could run to when it did.
 *
 * Every record has one writer at a time: a thread's is written where that thread is switched, a
 * tenant's and a processor's are one per processor and written there with interrupts off. Readers
 * may see a record between two stores of one event, so figures of one record can differ by that
 * event; each word by itself is whole.
 */

enum {
	RUN_QUEUE_MAX_THREADS = 512,    /* of the broker, one by one */
	RUN_QUEUE_MAX_TENANTS = 64,     /* watched at a time */
	RUN_QUEUE_MAX_CGROUPS = 256,    /* watched at a time */
	RUN_QUEUE_MAX_PROCESSES = 4096, /* watched at a time; those that they start count no more */

	/* Log-linear: 16 buckets per doubling, from 2^8 ns; the first holds all that is shorter. */
	RUN_QUEUE_SUB_BITS = 4,
	RUN_QUEUE_MIN_BITS = 8,
	RUN_QUEUE_MAX_BITS = 36, /* 68 s; the last bucket holds all that is longer */
	RUN_QUEUE_BUCKETS = 1 + ((RUN_QUEUE_MAX_BITS - RUN_QUEUE_MIN_BITS) << RUN_QUEUE_SUB_BITS),

	/* Causers kept per record: any that has more than an eighth of the total is among them. */
	RUN_QUEUE_CAUSERS = 8,
	RUN_QUEUE_COMM_BYTES = 16,
	RUN_QUEUE_CGROUP_BYTES = 32, /* the last part of its path, cut */
};

/* Of a task, in enum run_queue_kind << RUN_QUEUE_KIND_SHIFT | slot; 0: not watched. */
enum run_queue_kind {
	RUN_QUEUE_NOBODY = 0,
	RUN_QUEUE_THREAD = 1, /* of the broker; slot: of threads */
	RUN_QUEUE_TENANT = 2, /* a client's; slot: of tenants */
	RUN_QUEUE_KIND_SHIFT = 16,
	RUN_QUEUE_SLOT_MASK = 0xffff,
	RUN_QUEUE_NO_SLOT = 0xffff, /* a thread of the broker that was not given one yet */
};

/*
 * Who ran instead, kept by the space-saving algorithm (Metwally, Agrawal, El Abbadi, ICDT 2005): a
 * new one takes the place of the one with the least count and goes on from there, by which it may
 * be over-counted by overcount_ns.
 */
struct run_queue_causer {
	unsigned long long cgroup;  /* id in the unified hierarchy: its inode number */
	unsigned long long wait_ns; /* that others waited while it ran */
	unsigned long long overcount_ns;
	unsigned long long n_preemptions; /* times that it was put in place of one that ran */
	unsigned int
		process;  /* when first seen here, in the broker's pid namespace; 0: not there */
	unsigned int who; /* as of a task: the broker's own, a tenant, or 0 */
	char comm[RUN_QUEUE_COMM_BYTES];
	char cgroup_name[RUN_QUEUE_CGROUP_BYTES];
};

/* A thread of the broker, or what a tenant's tasks did on one processor. Counts since loading. */
struct run_queue_record {
	/* Threads only; 0: not now. So a delay is seen while it goes on. */
	unsigned long long waiting_since_ns;
	unsigned long long running_since_ns;

	unsigned long long run_ns;  /* on a processor, of stretches that ended */
	unsigned long long wait_ns; /* run-queue delay, of those that ended, because others ran */
	unsigned long long n_waits;
	/* Of delays while the processor was idle, or the task throttled by a quota: nobody's doing.
	 */
	unsigned long long idle_wait_ns;
	unsigned long long n_idle_waits;
	unsigned long long max_wait_ns;
	unsigned long long n_involuntary; /* switched out while it could have run */
	unsigned long long n_preemptions; /* of those, for a task of somebody else */
	unsigned long long n_throttled;   /* of those, by a quota */
	unsigned long long n_migrations;
	/* Tenants only: delay of the broker's threads that this tenant's tasks caused. */
	unsigned long long caused_ns;
	unsigned int buckets[RUN_QUEUE_BUCKETS]; /* of the delays in wait_ns and idle_wait_ns */
	unsigned int reserved;
	struct run_queue_causer causers[RUN_QUEUE_CAUSERS];
};

/* What a processor did: of everybody, so that the broker knows whether there is room for it. */
struct run_queue_processor {
	unsigned long long since_ns; /* the last change of use */
	unsigned long long idle_ns, own_ns, others_ns;
	unsigned int now;              /* what runs since then: enum run_queue_use */
	unsigned int n_waiting;        /* watched tasks, behind others; the probes' own */
	unsigned long long n_switches; /* seen: grows as long as the probes are attached */
	unsigned long long n_dropped;  /* tasks that could not be watched: no memory */
	unsigned int epoch;            /* of n_waiting: grows when it begins anew at 0 */
	unsigned int reserved;
	/* The probes' own, see clock.h. */
	unsigned long long clock_ahead_ns, clock_checked_ns, clock_woken_ns;
	/* The probes' own: who runs, if it is watched, and since when. 0: nobody who is. */
	unsigned long long running_owner, running_since_ns;
	unsigned long long padding[3]; /* two cache lines: a neighbour's switches cost nothing */
};

enum run_queue_use {
	RUN_QUEUE_UNKNOWN = 0,
	RUN_QUEUE_IDLE = 1,
	RUN_QUEUE_OWN = 2,
	RUN_QUEUE_OTHERS = 3,
};

/*
 * Who a task counts for, and which of those that had that slot one after another: one word, so that
 * it is never read half changed. 0: nobody.
 */
#define RUN_QUEUE_OWNER(who, generation) ((unsigned long long)(generation) << 32 | (who))

/* What the broker says of a process; threads and cgroups have an owner alone. */
struct run_queue_process {
	unsigned long long owner;
	unsigned long long start_ns; /* of what has that number; 0: not walked over yet */
};

/* The bucket of a delay. No loop and no division: also the probes' verifier has to follow it. */
static inline unsigned int run_queue_bucket(unsigned long long ns)
{
	unsigned int log2 = 0, bucket;
	unsigned long long rest = ns >> RUN_QUEUE_MIN_BITS;

	if (rest == 0)
		return 0;
	if (rest >> (RUN_QUEUE_MAX_BITS - RUN_QUEUE_MIN_BITS))
		return RUN_QUEUE_BUCKETS - 1;
	if (rest >> 16) {
		log2 += 16;
		rest >>= 16;
	}
	if (rest >> 8) {
		log2 += 8;
		rest >>= 8;
	}
	if (rest >> 4) {
		log2 += 4;
		rest >>= 4;
	}
	if (rest >> 2) {
		log2 += 2;
		rest >>= 2;
	}
	log2 += rest >> 1;
	bucket = 1 + (log2 << RUN_QUEUE_SUB_BITS);
	bucket += (ns >> (log2 + RUN_QUEUE_MIN_BITS - RUN_QUEUE_SUB_BITS)) &
		  ((1u << RUN_QUEUE_SUB_BITS) - 1);
	return bucket < RUN_QUEUE_BUCKETS ? bucket : RUN_QUEUE_BUCKETS - 1;
}

/* The least delay in a bucket. */
static inline unsigned long long run_queue_bucket_ns(unsigned int bucket)
{
	unsigned int log2, sub;

	if (bucket == 0)
		return 0;
	log2 = (bucket - 1) >> RUN_QUEUE_SUB_BITS;
	sub = (bucket - 1) & ((1u << RUN_QUEUE_SUB_BITS) - 1);
	return ((1ull << RUN_QUEUE_SUB_BITS) + sub)
	       << (log2 + RUN_QUEUE_MIN_BITS - RUN_QUEUE_SUB_BITS);
}
