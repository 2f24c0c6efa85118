#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Attribution of tasks' times to causes
 *
 * A task's time, from admission to completion, is divided among causes; the times of several tasks
 * are added up. The logs supply most of the evidence: when a task waited, what ran on its
 * device meanwhile, how long it ran, the predictions for each device, and the CPU contention at
 * that time. The logs lack two things. The time of transfers is therefore the tenant's average or,
 * for segments, what the bytes that they read of each other take on the link. A quota or a plan's
 * reload is assumed to have delayed a task if it ever occurred.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ringbroker/stats.h>

enum cause {
	CAUSE_WORK,         /* execution as predicted */
	CAUSE_OWN_QUEUE,    /* waited while tasks of its own tenant ran on its device */
	CAUSE_OTHERS_QUEUE, /* waited while tasks of other tenants ran on its device */
	CAUSE_QUOTA,        /* waited; the tenant's CPU quota delayed tasks */
	CAUSE_RETURN,       /* waited; the plan had to be loaded into device memory again */
	CAUSE_STREAM,       /* waited; the segment's constants came just for the task */
	CAUSE_WAIT,         /* waited; no log tells the cause */
	CAUSE_TRANSFER,     /* transfer over the link to the device */
	CAUSE_MEMORY,       /* ran on a slower device for lack of device memory */
	CAUSE_BREAKER,      /* ran on a slower device while the faster one's breaker was open */
	CAUSE_FALLBACK,     /* failed on a GPU first */
	CAUSE_LEARNING,     /* ran on a slower device so that the broker learns its speed */
	CAUSE_PREFERENCE,   /* ran on a slower device because the client asked for it */
	CAUSE_CONTENTION,   /* other programs kept the CPU busy */
	CAUSE_SLOWER,       /* took longer than predicted, cause unknown */
	N_CAUSES,
};

/* Return the name that JSON uses: "queue-own". */
const char *cause_name(enum cause cause);
/* Return a phrase that follows "of which 6.9 ms": "waiting behind other tasks of its tenant". */
const char *cause_phrase(enum cause cause);

/* An interval in which a device executed a task. */
struct busy {
	uint64_t began_ns, ended_ns;
	uint8_t device;      /* RBK_DEVICE_* */
	bool is_own;         /* the task belongs to the tenant in question */
	uint64_t task;       /* its index in the decision log */
	unsigned int tenant; /* index in struct pages */
};
/* Sort intervals into the order that struct judge requires. */
void busy_sort(struct busy *busy, size_t n_busy);
struct busy busy_of(const struct rbk_stats_decision *decision, bool is_own);
/* Likewise of a segment that ran; ended_ns 0: it did not. */
struct busy busy_of_segment(const struct rbk_stats_segment *segment, bool is_own);

/* Segments of a task, at most, those of all its micro-batches together */
enum { MAX_SEGMENTS = 64 };

/* Return the number of micro-batches of a segment's task; 1: it had none. */
static inline uint32_t n_batches_of(const struct rbk_stats_segment *segment)
{
	return segment->n_batches > 0 ? segment->n_batches : 1;
}

/* A segment of a task and the task's tenant. */
struct segment_entry {
	struct rbk_stats_segment segment;
	unsigned int tenant; /* index in struct pages, or any number that grows in a list */
};

/* Evidence beside the task's own record. */
struct judge {
	const struct busy *busy; /* sorted by busy_sort() */
	size_t n_busy;
	uint64_t longest_ns; /* longest interval of busy */
	double transfer_ns;  /* average transfer time of a task on a GPU; 0: none, or not known */
	double bytes_per_ns[RBK_MAX_DEVICES]; /* rates of links; 0: not known */
	bool is_throttled;                    /* the tenant's CPU quota has delayed tasks */
	bool has_returned;                    /* the plan has been evicted and loaded again */
};

struct verdict {
	double ns[N_CAUSES]; /* time by cause; the sum is total_ns */
	double total_ns;
	uint64_t n_tasks;
	uint64_t n_late;   /* tasks that missed their deadlines */
	uint64_t n_failed; /* tasks with a negative result */
	uint64_t n_ahead;  /* executions that the tasks waited for */
};

/* Return the factor by which contention prolonged the task on the CPU; 1: not at all. */
double judge_contention(const struct rbk_stats_decision *task);

/*
 * Find the critical path of a task: the segment that ended last, the one whose end it could begin
 * at, and so on. Others ran meanwhile.
 * Return: the segments on it, bit i for @segments[i]; there are at most MAX_SEGMENTS.
 */
uint64_t judge_path(const struct segment_entry *segments, uint32_t n_segments);
/* Return the number of segments that ran beside those on the critical path. */
uint32_t judge_n_beside(const struct segment_entry *segments, uint32_t n_segments);

/*
 * Add a task to the verdict. A task of which @segments are known, @n_segments of them, is judged
 * segment by segment, along its critical path: each waited for its own device, and what crossed to
 * it is known.
 */
void judge_add(const struct judge *judge, const struct rbk_stats_decision *task,
	       const struct segment_entry *segments, uint32_t n_segments, struct verdict *verdict);

/*
 * Add the times in which other tasks ran on the segment's device while it waited to @ahead_ns, an
 * array over the tenants of struct pages.
 */
void judge_ahead(const struct judge *judge, const struct rbk_stats_segment *segment,
		 double *ahead_ns);

/*
 * List the causes that took time, the largest first.
 * Return: the number of causes.
 */
unsigned int judge_order(const struct verdict *verdict, enum cause order[N_CAUSES]);
