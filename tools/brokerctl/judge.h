#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Why tasks took as long as they did
 *
 * A task's time, from its admission to its end, is divided among causes; those of several tasks are
 * added up. It is judged by what is in decision logs: when a task waited, and what ran on its
 * device meanwhile; how long it ran, what was predicted there and elsewhere, and how busy others
 * kept the CPU then. Two things the log does not have: what moving data took is an average of the
 * tenant's, and whether a quota or a plan's return held a task up follows from their having done so
 * at some time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ringbroker/stats.h>

enum cause {
	CAUSE_WORK,         /* what it takes, as predicted */
	CAUSE_OWN_QUEUE,    /* waited while tasks of its own tenant ran on its device */
	CAUSE_OTHERS_QUEUE, /* waited while those of other tenants did */
	CAUSE_QUOTA,        /* waited, and its tenant's CPU quota held tasks up */
	CAUSE_RETURN,       /* waited, and its plan had to come back into device memory */
	CAUSE_WAIT,         /* waited; no log says for what */
	CAUSE_TRANSFER,     /* moved over the link to the device */
	CAUSE_MEMORY,       /* ran on a slower device for want of device memory */
	CAUSE_BREAKER,      /* ran on a slower device while the other one rested */
	CAUSE_FALLBACK,     /* failed on a GPU first */
	CAUSE_LEARNING,     /* ran on a slower device so that the broker learns */
	CAUSE_PREFERENCE,   /* ran on a slower device because the client asked for it */
	CAUSE_CONTENTION,   /* others kept the CPU busy */
	CAUSE_SLOWER,       /* took longer than predicted */
	N_CAUSES,
};

/* As in JSON: "queue-own". */
const char *cause_name(enum cause cause);
/* After "of which 6.9 ms": "waiting behind other tasks of its tenant". */
const char *cause_phrase(enum cause cause);

/* A time in which a device worked on a task. */
struct busy {
	uint64_t began_ns, ended_ns;
	uint8_t device; /* RBK_DEVICE_* */
	bool is_own;    /* a task of the tenant in question */
};
/* In the order that struct judge wants. */
void busy_sort(struct busy *busy, size_t n_busy);
struct busy busy_of(const struct rbk_stats_decision *decision, bool is_own);

/* What is known beside the task itself. */
struct judge {
	const struct busy *busy; /* sorted by busy_sort() */
	size_t n_busy;
	uint64_t longest_ns; /* of them */
	double transfer_ns;  /* of a task on a GPU, on average; 0: none, or not known */
	bool is_throttled;   /* the tenant's CPU quota has held it up */
	bool has_returned;   /* the plan had left device memory, and came back */
};

struct verdict {
	double ns[N_CAUSES]; /* by cause: together total_ns */
	double total_ns;
	uint64_t n_tasks;
	uint64_t n_late;   /* missed their deadlines */
	uint64_t n_failed; /* with a negative result */
	uint64_t n_ahead;  /* executions that they waited for */
};

/* How many times longer the CPU took for it because of others; 1: no longer. */
double judge_contention(const struct rbk_stats_decision *task);

/* Adds a task. */
void judge_add(const struct judge *judge, const struct rbk_stats_decision *task,
	       struct verdict *verdict);

/* The causes that took time, the largest first. Return: how many. */
unsigned int judge_order(const struct verdict *verdict, enum cause order[N_CAUSES]);
