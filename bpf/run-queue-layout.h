#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Data shared by the scheduler probes and the broker
 *
 * Included by run-queue.bpf.c and by broker/contention. All data below are in arrays that the
 * broker maps and reads with plain loads; times are CLOCK_MONOTONIC, in ns. Run-queue delay is the
 * time from when a task could run until it ran.
 *
 * Every record has one writer at a time. A thread's record is written where that thread is
 * switched; tenants and processors have one record per processor, written there with interrupts
 * off. Readers may see a record between two stores of one event, so figures of one record can
 * differ by that event. A single word is always consistent.
 */

enum {
	RUN_QUEUE_MAX_THREADS = 512, /* threads of the broker, one by one */
	RUN_QUEUE_MAX_TENANTS = 64,  /* watched at a time */
	RUN_QUEUE_MAX_CGROUPS = 256, /* watched at a time */
	/* watched at a time; processes started by them not included */
	RUN_QUEUE_MAX_PROCESSES = 4096,

	/* Log-linear: 16 buckets per doubling, from 2^8 ns; the first holds all shorter delays. */
	RUN_QUEUE_SUB_BITS = 4,
	RUN_QUEUE_MIN_BITS = 8,
	RUN_QUEUE_MAX_BITS = 36, /* 68 s; the last bucket holds all longer delays */
	RUN_QUEUE_BUCKETS = 1 + ((RUN_QUEUE_MAX_BITS - RUN_QUEUE_MIN_BITS) << RUN_QUEUE_SUB_BITS),

	/* Causers kept per record: any with more than an eighth of the total is among them. */
	RUN_QUEUE_CAUSERS = 8,
	RUN_QUEUE_COMM_BYTES = 16,
	RUN_QUEUE_CGROUP_BYTES = 32, /* last part of its path, cut */
};

/* Owner of a task, as enum run_queue_kind << RUN_QUEUE_KIND_SHIFT | slot; 0: not watched. */
enum run_queue_kind {
	RUN_QUEUE_NOBODY = 0,
	RUN_QUEUE_THREAD = 1, /* a thread of the broker, by slot */
	RUN_QUEUE_TENANT = 2, /* a client's task, by tenant's slot */
	RUN_QUEUE_KIND_SHIFT = 16,
	RUN_QUEUE_SLOT_MASK = 0xffff,
	RUN_QUEUE_NO_SLOT = 0xffff, /* a thread of the broker that has no slot yet */
};

/*
 * A causer: a task that ran while others waited. The table uses the space-saving algorithm
 * (Metwally, Agrawal, El Abbadi, ICDT 2005). A new causer replaces the one with the least count and
 * continues from that count, so it may be over-counted by overcount_ns.
 */
struct run_queue_causer {
	unsigned long long cgroup;  /* id in the unified hierarchy: its inode number */
	unsigned long long wait_ns; /* delay of others while it ran */
	unsigned long long overcount_ns;
	unsigned long long n_preemptions; /* times that it replaced a running task */
	/* process id when first seen here, in the broker's pid namespace; 0: not in it */
	unsigned int process;
	unsigned int who; /* owner: a thread of the broker, a tenant, or 0 */
	char comm[RUN_QUEUE_COMM_BYTES];
	char cgroup_name[RUN_QUEUE_CGROUP_BYTES];
};

/* Counts, since loading, of a thread of the broker, or of a tenant's tasks on one processor. */
struct run_queue_record {
	/* Threads only; 0: not now. They show a delay in progress. */
	unsigned long long waiting_since_ns;
	unsigned long long running_since_ns;

	unsigned long long run_ns;  /* completed time on a processor */
	unsigned long long wait_ns; /* completed run-queue delay because others ran */
	unsigned long long n_waits;
	/*
	 * Delay while the processor was idle, or the task throttled by a quota: it has no causer.
	 */
	unsigned long long idle_wait_ns;
	unsigned long long n_idle_waits;
	unsigned long long max_wait_ns;
	unsigned long long n_involuntary; /* switched out while runnable */
	/* part of n_involuntary, in favour of another owner's task */
	unsigned long long n_preemptions;
	/* part of n_involuntary, throttled by a quota or with the processor idle afterwards */
	unsigned long long n_throttled;
	unsigned long long n_migrations;
	/* Tenants only: delay of the broker's threads caused by this tenant's tasks. */
	unsigned long long caused_ns;
	unsigned int buckets[RUN_QUEUE_BUCKETS]; /* delays in wait_ns and idle_wait_ns */
	unsigned int reserved;
	struct run_queue_causer causers[RUN_QUEUE_CAUSERS];
};

/* Use of a processor by all tasks, so that the broker knows its free capacity. */
struct run_queue_processor {
	unsigned long long since_ns; /* last change of use */
	unsigned long long idle_ns, own_ns, others_ns;
	unsigned int now;              /* use since then: enum run_queue_use */
	unsigned int n_waiting;        /* watched tasks that wait behind others; the probes' own */
	unsigned long long n_switches; /* switches seen: grows while the probes are attached */
	unsigned long long n_dropped;  /* tasks that could not be watched: no memory */
	unsigned int epoch;            /* number of restarts of n_waiting at 0 */
	unsigned int reserved;
	/* The probes' own, see clock.h. */
	unsigned long long clock_ahead_ns, clock_checked_ns, clock_woken_ns;
	/*
	 * The probes' own: the owner of the running task, if it is watched, and since when. 0: not
	 * watched.
	 */
	unsigned long long running_owner, running_since_ns;
	unsigned long long padding[3]; /* fills two cache lines: no false sharing with neighbours */
};

enum run_queue_use {
	RUN_QUEUE_UNKNOWN = 0,
	RUN_QUEUE_IDLE = 1,
	RUN_QUEUE_OWN = 2,
	RUN_QUEUE_OTHERS = 3,
};

/*
 * Owner of a task, with the generation of its slot: one word, so that it is never read half
 * changed. 0: none.
 */
#define RUN_QUEUE_OWNER(who, generation) ((unsigned long long)(generation) << 32 | (who))

/* Entry for a process, set by the broker; threads and cgroups have an owner only. */
struct run_queue_process {
	unsigned long long owner;
	/* start time of the process with that number; 0: not walked yet */
	unsigned long long start_ns;
};

/*
 * Return the bucket of a delay, without loops or divisions, so that the probes' verifier can
 * follow.
 */
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

/* Return the least delay in a bucket. */
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
