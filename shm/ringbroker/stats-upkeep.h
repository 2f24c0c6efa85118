#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages: the broker's work beside tasks, and its own state, a part of
 * <ringbroker/stats.h>, which explains how records are read
 */
#include <stdint.h>

#include <ringbroker/abi.h>

/*
 * Cause of the time that a turn of the reactor took. The reactor is the thread of the broker that
 * serves all clients.
 */
enum rbk_turn_cause {
	RBK_TURN_ENTRIES = 0,     /* entries of rings, and inline tasks */
	RBK_TURN_COMPLETIONS = 1, /* completions from devices, and dispatch to devices */
	RBK_TURN_MESSAGES = 2,    /* requests on sessions' connections, except PLANS and RINGS */
	RBK_TURN_PLANS = 3,       /* verifying and describing plans */
	RBK_TURN_RINGS = 4,       /* making rings */
	RBK_TURN_CONNECTIONS = 5, /* accepting, identifying and refusing */
	RBK_TURN_ENDS = 6,        /* cleanup after sessions and rings that end */
	RBK_TURN_BELLS = 7,       /* waking, and being woken */
	RBK_TURN_RESIDENCY = 8,   /* loading and evicting plans */
	RBK_TURN_JOBS = 9,        /* results of the setup thread */
	RBK_TURN_TIMERS = 10,     /* the broker's timers, except STATISTICS */
	RBK_TURN_STATISTICS = 11, /* updating statistics pages */
	RBK_TURN_KERNEL = 12,     /* telling the kernel which processes to watch */
	RBK_TURN_OTHER = 13,
	RBK_TURN_CAUSES,
};

/*
 * Cause of a slice of the setup thread, which does the long work of all clients. A job is one or
 * more slices.
 */
enum rbk_setup_cause {
	RBK_SETUP_OTHER = 0,
	RBK_SETUP_PLAN_VERIFY = 1,
	RBK_SETUP_PLAN_MEASURE = 2, /* computing the memory that packing takes */
	RBK_SETUP_PLAN_PREPARE = 3, /* packing, compiling shaders */
	RBK_SETUP_PLAN_RELEASE = 4,
	RBK_SETUP_ARENA_MAP = 5, /* mapping an arena with all its pages */
	RBK_SETUP_ARENA_UNMAP = 6,
	RBK_SETUP_RING = 7, /* making and removing */
	RBK_SETUP_LOAD = 8, /* loading into device memory */
	RBK_SETUP_UNLOAD = 9,
	RBK_SETUP_REOPEN = 10, /* reopening a lost device */
	RBK_SETUP_CALIBRATION = 11,
	RBK_SETUP_FILE = 12, /* reading the policy and profiles */
	RBK_SETUP_CAUSES,
};

#define RBK_STATS_MAX_SETUP_CAUSES 16 /* room for RBK_SETUP_CAUSES to grow */

/* A duration in the setup thread. */
struct rbk_stats_setup_time {
	uint64_t ns;     /* 0: there is none */
	uint32_t cause;  /* enum rbk_setup_cause */
	uint32_t tenant; /* number of the tenant that it was for; 0: none */
};

/* Slices of one cause. */
struct rbk_stats_setup_slices {
	uint64_t n_slices;
	uint64_t total_ns;
	uint64_t longest_ns; /* including the slice that runs now */
	uint32_t longest_tenant;
	uint32_t reserved32;
};

/* Counts of the broker's repairs after stalls of a device, since the broker's start. */
struct rbk_stats_mended {
	uint64_t n_slots;    /* slots of plans marked taken that no task had */
	uint64_t n_recalled; /* tasks taken back before the device began them */
	uint64_t n_moved;    /* tasks moved to the CPU */
	uint64_t n_lost;     /* times that the device was given up, to be reopened */
};

/* Fate of system calls that the broker's threads do not need. */
enum rbk_stats_sandbox {
	RBK_STATS_SANDBOX_UNKNOWN = 0,
	RBK_STATS_SANDBOX_ON = 1,      /* they fail */
	RBK_STATS_SANDBOX_LOG = 2,     /* they happen, and the log names them */
	RBK_STATS_SANDBOX_OFF = 3,     /* they happen */
	RBK_STATS_SANDBOX_LACKING = 4, /* they happen: the kernel or the container has no filters */
	RBK_STATS_SANDBOX_NOT_BUILT = 5, /* they happen: this build of the broker has no filters */
	RBK_STATS_SANDBOX_REFUSED = 6,   /* some happen: the kernel refused a filter */
	RBK_STATS_SANDBOXES,
};

/* The broker's work beside tasks, as of the last update. */
struct rbk_stats_upkeep {
	uint32_t sequence;
	uint32_t flags; /* 0 */

	/*
	 * The setup thread. Except for the first two members: from start, or from the last reset of
	 * all pages.
	 */
	uint64_t n_setup_waiting;                  /* jobs that wait now */
	struct rbk_stats_setup_time setup_running; /* the slice that runs now, so far */
	struct rbk_stats_setup_time longest_wait;  /* longest wait of a job for a slice */
	/* by enum rbk_setup_cause */
	struct rbk_stats_setup_slices setup[RBK_STATS_MAX_SETUP_CAUSES];

	/* Threads that close clients' descriptors: how long a close takes is up to the client. */
	uint32_t n_closers, n_closers_max;
	uint32_t n_closers_stuck; /* threads that have worked on one descriptor for too long, now */
	uint32_t sandbox;         /* enum rbk_stats_sandbox; since 1.12 */
	uint64_t n_closings_waiting;   /* descriptors that wait for a thread now */
	uint64_t n_closers_ever_stuck; /* descriptors on which a thread was stuck, since start */

	/* most processor time of a turn, except turns of ring entries only; 0: unknown */
	uint64_t longest_turn_cpu_ns;

	/* Since 1.12. */
	/*
	 * System calls that the sandbox refused or, in mode LOG, reported since the broker's start:
	 * each call counts once for each kind of thread.
	 */
	uint64_t n_calls_refused;
	uint64_t restart_at_ns; /* time since which nothing is admitted, for a restart; 0: none */
	uint64_t restart_until_ns; /* time until which the broker waits for tasks */
	uint64_t reserved[4];

	struct rbk_stats_mended mended[RBK_MAX_DEVICES]; /* by device */
};
