#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Segments: a plan of a session that is cut into plans of their own (plan/cut.h)
 *
 * A plan that is cut is never prepared, loaded or run itself: each of its segments is, with records
 * of its own at residency and at the placer. So every segment is placed by itself, and leaves and
 * returns to a device by itself. The plan keeps what its client knows: the id, the references of
 * tasks, the statistics. It owns the segments, which no task can name, and the memory of the
 * tensors that cross between them: one crossing block for each task that runs at a time.
 *
 * The setup thread cuts a plan once it is verified (segments_make()), to save time
 * (server_hooks.cut_choose()) or for want of memory (cut_points()), and makes the memory before
 * executors prepare the segments (segments_map()). The reactor charges the plan's tenant in
 * between. Cutting is optional: a plan for which there is no room in segments stays whole.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/cut.h"
#include "plan/executor.h"
#include "session/session.h"

struct segment_slot; /* the dispatcher's */
struct place_graph;
struct task;

enum {
	/* Segments of one task that run at once, on several devices and workers, at most */
	SEGMENTS_AT_ONCE = 4,
	/* Room for a struct segment_slot */
	SEGMENT_SLOT_BYTES = 1792,
};

struct session_segment {
	struct session_plan plan;
	struct cut_segment cut;

	/* The dispatcher's */
	bool updates_state;           /* a node writes to a state */
	uint8_t came_to;              /* device to which it came just for a task; 0: none */
	uint64_t from;                /* bit i: it reads what segment i wrote */
	uint64_t crossed_fixed_bytes; /* bytes of these tensors, without those of rows, */
	uint64_t crossed_row_bytes;   /* and those of each row of a task */
};

/* A segment of a task, or of one of its micro-batches, as it ended; the dispatcher's. */
struct segment_run {
	/* end of the last of those before, or the task's admission */
	uint64_t ready_ticks;
	uint64_t start_ticks, end_ticks; /* 0: it did not run */
	float predicted_ns, other_ns;
	uint16_t flags;            /* RBK_DECISION_* */
	uint8_t device;            /* RBK_DEVICE_* */
	uint8_t reason;            /* enum rbk_reason */
	uint8_t begun_device;      /* RBK_DEVICE_NONE: none has begun it */
	bool is_shared;            /* that device had other tasks, which had not returned */
	struct stats_moment begun; /* when it did */
};

/*
 * A crossing block, and the state of the task that has it; the dispatcher's. Until the task ends
 * its slot describes the present segment, and the set keeps what the slot said of the whole task.
 * If segments run at once, further slots describe those that the task's own does not.
 */
struct segment_set {
	struct segment_set *next; /* in free_sets */
	uint64_t offset;          /* of the block in the arena */
	struct exec_ref refs[RBK_MAX_REFS];
	uint32_t count;
	/* first start, later by the pauses between segments, and last end; 0: nothing ran */
	uint64_t start_ticks, end_ticks;
	uint64_t ran_ticks[RBK_MAX_DEVICES];        /* time of segments, by device */
	struct stats_moment ended[RBK_MAX_DEVICES]; /* the last segment on each device */
	uint8_t last_device;        /* of the segment that ended last; RBK_DEVICE_NONE: none */
	uint64_t longest_ticks;     /* of the segment that reason is of */
	float predicted_ns;         /* sum over the segments so far */
	uint8_t reason;             /* enum rbk_reason; see segment-hot.c */
	bool is_explored, is_moved; /* one of the segments was */
	bool is_partitioned;        /* a segment ran on two devices */
	bool has_updated;           /* a segment that updates a state has ended */
	/* one per segment of the plan and micro-batch: see segments_instance() */
	struct segment_run *runs;
	uint64_t noted; /* bit i: runs[i] is of this task */

	uint32_t n_batches;         /* micro-batches of the task; 1: it has all rows at once */
	uint32_t batch_rows;        /* rows of each, but for the last, which may have fewer */
	uint32_t n_slots;           /* that the task may use; 1: one segment after the other */
	struct segment_slot *slots; /* those beside its own */
	/* If n_slots > 1 */
	struct task *task;
	uint64_t begin_ns;    /* when the task got the set */
	float stream_ns;      /* predicted time of the task, if there are several */
	uint64_t begun, done; /* bit i: segment i has begun; has ended well (segments_instance()) */
	uint32_t n_busy;      /* slots that have a segment */
	int32_t res;          /* of the first segment that failed, or -ECANCELED; else 0 */
};

struct session_segments {
	/* The dispatcher's */
	struct segment_set *free_sets;
	uint32_t n_begun;         /* sets that tasks have */
	struct list_node waiting; /* tasks that wait for a set, oldest first */
	uint32_t n_streams;       /* tasks that were worth micro-batches; wraps */
	uint8_t streamed_to;      /* device for whose memory a task has waited; 0: none */
	bool is_coming;           /* @ahead waits for a segment that no task needs yet */
	uint8_t coming;           /* that segment, */
	uint8_t coming_to;        /* and its device */
	uint32_t n_streamed;      /* runs of segments that came just for them; wraps */
	struct residency_waiter ahead;
	uint32_t n_tasks;          /* for which there was advice; wraps */
	uint32_t n_steps_left;     /* of the search for a better schedule */
	uint32_t advised_count;    /* rows of the task that the schedule was made for */
	struct place_graph *graph; /* segments with predicted times, and advice; NULL: none */

	uint32_t n;
	uint32_t n_sets;
	struct session_segment *of;
	struct segment_set *sets;
	struct segment_run *runs; /* those of all sets */
	uint32_t n_at_once; /* segments of a task, or of a micro-batch, that may run at once */
	bool is_random;     /* cut by a seed, for a test */
	uint32_t n_batches; /* micro-batches that a task may have; 1: none */
	/* If several: each has a multiple of this many rows, which cross in this many bytes */
	uint32_t grain_rows;
	uint64_t grain_bytes;    /* see plan/cut.h */
	uint32_t n_slots;        /* of each set, with the task's own */
	void *slots;             /* those of all sets, each of SEGMENT_SLOT_BYTES */
	struct exec_arena arena; /* the blocks of all sets */
	int map_result;          /* of segments_map() */
	uint64_t n_bytes_done;   /* bytes of the arena that were faulted in */
	bool may_wrap;           /* dma-bufs of the arena are charged */
	bool is_imported;        /* executors know the arena */

	/* While the setup thread cuts */
	struct cut *cut;
	void *desc; /* of the segment that is being made; NULL: none */
	size_t desc_bytes;
	struct plan_maker *maker;
};

/*
 * Return the number of plans that are prepared and run for @plan: 1 if it is not cut. This function
 * and the next two: any thread that may read @plan.
 */
static inline uint32_t plan_n_segments(const struct session_plan *plan)
{
	return plan->segments ? plan->segments->n : 1;
}

/* Return the @i-th of these plans, in the order in which they run. */
static inline struct session_plan *plan_segment(struct session_plan *plan, uint32_t i)
{
	return plan->segments ? &plan->segments->of[i].plan : plan;
}

/* Return the plan that clients know. */
static inline struct session_plan *plan_whole(struct session_plan *plan)
{
	return plan->whole ? plan->whole : plan;
}

/* Set the state of the plan and of its segments. Reactor. */
void plan_set_state(struct session_plan *plan, enum slot_state state);

/*
 * Set *ret to what the plans of @session can have of a device at the moment: of the one where its
 * tenant has the largest room. Reactor.
 * Return: false: no device has room, and no seed is set, so plans stay whole.
 */
bool segments_wish(const struct session *session, struct cut_wish *ret);

/*
 * Return an upper bound of the bytes that segments_make() allocates for a plan of a description of
 * @desc_bytes, so that they can be charged first. Any thread.
 */
uint64_t segments_most_bytes(size_t desc_bytes);

/*
 * Do a part of the work of cutting a verified plan, whose description still has its bytes. Setup
 * thread. Sets the description's result: 0, and plan->segments is set if the plan is cut;
 * -ECANCELED until the last part. Return: true if parts remain.
 */
bool segments_make(struct session_plan *plan);

/* Return the bytes of the segments' own records, without those of their plans. Any thread. */
uint64_t segments_bytes(const struct session_segments *segments);
/* Return the bytes of the arena that segments_map() makes; 0: nothing crosses. Any thread. */
uint64_t segments_arena_bytes(const struct session_segments *segments);

/*
 * Return the number of dma-bufs of that arena that executors keep, to be charged before may_wrap is
 * set. Any thread.
 */
uint64_t segments_n_wraps(const struct session_plan *plan);

/*
 * Do a part of the work of making the memory of crossing tensors, and of importing it into the
 * executors. Setup thread. Sets map_result: 0 or a negative errno. Return: true if parts remain.
 */
bool segments_map(struct session_plan *plan);
/* Do a part of the reverse. Setup thread. Return: true if parts remain. */
bool segments_unmap(struct session_plan *plan);

/*
 * Free what segments_make() has made, or NULL, after plan_unprepare() of all segments that were
 * prepared and after segments_unmap(). Setup thread. Return: NULL.
 */
struct session_segments *segments_free(struct session_segments *segments);

/*
 * Set *ret to the figures of a plan's memory on a device: of a plan that is cut to the sums over
 * its segments, the largest room of one, and READY if any segment is resident. Reactor.
 */
void plan_describe(const struct session_plan *plan, unsigned int device,
		   struct residency_about *ret);

/* Return the number of segments in the memory of at least one device; 1 or 0 if whole. Reactor. */
uint32_t plan_n_resident(const struct session_plan *plan);

/* Return the tasks refused or placed elsewhere for lack of memory, or parts of tasks. Reactor. */
uint64_t plan_n_constrained(const struct session_plan *plan);
