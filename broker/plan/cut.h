#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cuts: a plan as segments, which are plans of their own
 *
 * A segment is a run of consecutive nodes. It has a description like the ones that clients send, so
 * that everything that verifies, charges, prepares, loads and runs plans does the same for
 * segments. They compute what the plan computes if each runs after those that it needs, be it one
 * after the other, in order, or several at once.
 *
 * A tensor of the plan in a segment:
 *   - inputs, constants and states stay what they are;
 *   - an output is an output of the segment that writes it, and an input of later ones, bound
 *     to the reference that the plan's task has for it;
 *   - a scratch tensor that one segment writes and a later one reads crosses: it is an output of
 * the first and an input of the others, and has a place in the crossing block, of which each task
 *     in flight needs one. Crossing tensors share bytes of the block where whoever uses one has to
 *     wait for all who use the other.
 *
 * A cut borrows the plan and its description. Any thread, one at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"
#include "util/cleanup.h"

struct cut;

enum {
	CUT_E_REFS = 1, /* a segment would have more than RBK_MAX_REFS references */
	CUT_E_BYTES,    /* the crossing block would have more than PLAN_MAX_BYTES */
	CUT_MAX_SEGMENTS = 64,
	/* Micro-batches of one task, at most; together with segments at most CUT_MAX_SEGMENTS */
	CUT_MAX_BATCHES = 8,
	CUT_NO_BINDING = 0xffff,
	CUT_NO_WRITER = 0xffff,
};

/* The reference that a task of a segment has for one of the segment's bindings. */
struct cut_ref {
	uint16_t tensor;  /* of the plan */
	uint16_t binding; /* reference of the plan's task; CUT_NO_BINDING: the tensor crosses */
	/* earlier segment that wrote what this one reads; CUT_NO_WRITER: none, or a state */
	uint16_t writer;
	uint64_t offset; /* of a tensor that crosses: in the crossing block, in bytes */
	/* likewise, in the bytes that a grain of rows has there, if cut_n_batches() is above 1 */
	uint64_t grain_offset;
};

struct cut_segment {
	uint16_t first_node, n_nodes;
	/* bit i: it reads or overwrites what segment i, an earlier one, wrote or reads */
	uint64_t needs;
	/*
	 * Some tensor has the task's count as its leading dimension: tasks of the segment have the
	 * count of the plan's task; otherwise count and max_count are 1.
	 */
	bool is_counted;
	uint16_t n_refs; /* the segment's bindings, in their order */
	struct cut_ref refs[RBK_MAX_REFS];
};

/*
 * Cut @plan, which plan_new() made of @desc, before each node of @firsts: @n_firsts indices of
 * nodes, ascending, from 1 to the plan's last node; at most CUT_MAX_SEGMENTS - 1.
 * Return: 0; CUT_E_*; -ENOMEM.
 */
int cut_new(const void *desc, size_t desc_bytes, const struct plan *plan, const uint16_t *firsts,
	    uint32_t n_firsts, struct cut **ret);
/* Free a cut, or NULL; the plan and the description are the caller's. Return: NULL. */
struct cut *cut_free(struct cut *cut);

uint32_t cut_n_segments(const struct cut *cut);
/* Return how many segments may run at once; never too few. */
uint32_t cut_width(const struct cut *cut);
/* Return segment @i, below cut_n_segments(), which the cut owns. */
const struct cut_segment *cut_segment(const struct cut *cut, uint32_t i);

/*
 * Return the tensors of all segments together. Segments share those that cross, and may share
 * constants and the task's own.
 */
uint32_t cut_n_tensors(const struct cut *cut);

/*
 * Return the bytes of the crossing block, at the plan's max_count, and with micro-batches: a
 * multiple of PLAN_SCRATCH_ALIGN.
 */
uint64_t cut_crossing_bytes(const struct cut *cut);

/*
 * Return how many micro-batches a task may have: a part of its rows each, which pass through the
 * segments at the same time. 1: its rows are not independent or too few, or the plan has too many
 * segments or a state.
 */
uint32_t cut_n_batches(const struct cut *cut);
/* Return the rows of a grain: a micro-batch has a multiple of them, but for the last one. */
uint32_t cut_grain_rows(const struct cut *cut);
/*
 * Return the bytes that tensors which cross have for a grain, a multiple of PLAN_SCRATCH_ALIGN.
 * Tensors share bytes within a micro-batch, but not with those of another one: a micro-batch of n
 * grains, or a part of the last, has n times these bytes, after those of the micro-batches before,
 * and its tensors begin there at n times grain_offset.
 */
uint64_t cut_grain_bytes(const struct cut *cut);

/*
 * Describe segment @i in the format of shm/plan-wire.h. plan_new() accepts the description with the
 * look-up of arenas that it had for the plan. The caller frees *ret_desc.
 * Return: 0; -ENOMEM.
 */
int cut_describe(const struct cut *cut, uint32_t i, void **ret_desc, size_t *ret_bytes);

DEFINE_CLEANUP(struct cut *, cut_free)
