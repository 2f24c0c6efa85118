#pragma once
/* SPDX-License-Identifier: MIT */
/* Entries that wait for several earlier ones (RBK_SQE_AFTER): see join-hot.c. Reactor. */
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker/abi.h>

#include "util/list.h"

struct dispatch;
struct dispatch_ring;
struct task;

/* A task as a predecessor, and as one that waits. */
struct join_task {
	uint64_t end;       /* 1 + its entry's index from the ring's set-up on; 0: completed */
	uint32_t followers; /* circle of the edges to it; 0: no task waits for it */
	uint8_t n_awaited;  /* predecessors that it named and that are in flight */
	bool is_chained;    /* n_awaited > 0, and its predecessor in a chain is in flight, too */
};

/*
 * An edge is a task that waits and the number of one of its distances, slot * RBK_SQE_AFTER_MAX +
 * i. Edges are in circles, which join in constant time: a circle is 1 + its last edge, and each
 * edge's element of edges is the edge after it. So any number of tasks may wait for one, and what
 * its completion takes does not depend on them.
 */
struct join_ring {
	uint64_t n_taken;  /* entries taken from the ring, without those of this batch */
	uint64_t *failed;  /* see RBK_CQ_FAILED_OFFSET() */
	uint16_t *slots;   /* slot of the last task whose entry's index is i modulo n_entries */
	uint32_t *edges;   /* the edge after each one in its circle */
	uint32_t ended[2]; /* circles of edges whose predecessors succeeded, and failed */
	/* List of slots whose records are needed until ended[1] is empty */
	struct task *kept, *kept_last;
	uint32_t n_kept;
	struct list_node link; /* in dispatch.joining while a circle in ended is not empty */
};

/* The entries that an entry names, as far as they are in flight. */
struct join {
	uint32_t n;
	struct task *tasks[RBK_SQE_AFTER_MAX];
	bool is_failed; /* one of the others has failed */
};

/*
 * Return the index of the entry of @ring that is being admitted, counted from the ring's set-up;
 * the same number of entries precede it.
 */
uint64_t join_entry_index(const struct dispatch_ring *ring);

/* Return the largest distance that names an entry before the one with @index. */
uint32_t join_most_distance(const struct dispatch_ring *ring, uint64_t index);

/*
 * Find the entries that a validated entry with RBK_SQE_AFTER names.
 * Return: 0; -EINVAL: one of them does not exist.
 */
int join_find(const struct dispatch_ring *ring, const struct rbk_sqe *sqe, struct join *ret);

/* Note that @task has the slot of the entry that is being admitted. */
void join_take(struct task *task);

/* Let @task, which is held, wait for those that were found. */
void join_wait(struct task *task, const struct join *join);

/* Note that the entry that is being admitted has failed. Its failure is not committed yet. */
void join_note_failed(struct dispatch_ring *ring);

/* @task has completed with @res, which is not committed yet: let those that wait for it go on. */
void join_complete(struct dispatch *dispatch, struct task *task, int res);

/*
 * Return true if the slot of a task that has completed with @res is to be kept: its record tells
 * the next broker of a failure that the records of those that wait for it do not tell yet.
 */
bool join_keeps_slot(const struct task *task, int res);

/* Keep the slot, which stays in flight, until join_next() has visited all edges to the task. */
void join_keep_slot(struct task *task);

/*
 * Visit the next edge of dispatch.joining, which must not be empty.
 * Return: the task that has its turn now; NULL: there is none.
 */
struct task *join_next(struct dispatch *dispatch);
