/* SPDX-License-Identifier: MIT */
/*
 * Validation of entries
 *
 * This is the code that decides about a client's entry, and it reads a private copy. Every check
 * names the errno that the client gets; a bad entry harms only its sender. sqe_check() of
 * shm/sqe-check.h makes the same checks once more for a refused entry, and says which one failed. A
 * valid entry is in range: plan, arenas, offsets, lengths, count.
 */
#include <errno.h>

#include "dispatch/validate.h"
#include "shm/ring.h"
#include "util/checked.h"

/*
 * Code that every task needs is one function: calls between its parts would save registers each
 * time.
 */
#define ALWAYS_INLINE inline __attribute__((__always_inline__))

enum { PLAN_ID_SLOT_MASK = 0xffff };

static const uint8_t flags_of_run = RBK_SQE_ARG_TABLE | RBK_SQE_PARTITION;
/* Flags beyond these are looked at apart, so that others cost nothing. */
static const uint8_t usual_flags = RBK_SQE_FLAGS & ~RBK_SQE_AFTER;

/* Return the plan of an id; NULL if there is none, or not any more. */
static inline struct session_plan *find_plan(const struct session *session, uint32_t id)
{
	uint32_t slot = id & PLAN_ID_SLOT_MASK;
	struct session_plan *plan;

	if (slot >= session->n_plans)
		return NULL;
	plan = session->plans[slot];
	return plan && plan->id == id ? plan : NULL;
}

static inline uint64_t binding_bytes(const struct plan_binding *binding, uint32_t count)
{
	return binding->fixed_bytes + binding->row_bytes * count;
}

/* Set *ret, and *ret_end to the end of its range. */
static ALWAYS_INLINE int resolve_ref(const struct session *session, uint64_t ref,
				     const struct plan_binding *binding, uint32_t count,
				     struct exec_ref *ret, uint64_t *ret_end)
{
	uint64_t bytes = binding_bytes(binding, count);
	uint64_t offset = RBK_REF_OFFSET(ref);
	uint32_t id = RBK_REF_ARENA(ref);
	struct session_arena *arena;

	if (id >= session->n_arenas)
		return -EBADF;
	arena = session->arenas[id];
	/* No arena has id 0: a reference that was never set lacks, so their number is wrong. */
	if (!arena)
		return ref ? -EBADF : -EINVAL;
	if (offset % RBK_REF_ALIGN != 0)
		return -EINVAL;
	if (!checked_range(offset, bytes, arena->exec.bytes))
		return -EFAULT;
	if (binding->written && arena->exec.immutable)
		return -EACCES;
	ret->arena = &arena->exec;
	ret->offset = offset;
	*ret_end = offset + bytes;
	return 0;
}

static ALWAYS_INLINE bool is_same_memory(const struct exec_arena *a, const struct exec_arena *b)
{
	return a == b || (a->ino == b->ino && a->dev == b->dev);
}

/*
 * Return true if the range of reference @w, which is written, overlaps any other of the @n. Two ids
 * may name one memfd.
 */
static ALWAYS_INLINE bool output_overlaps(const struct exec_ref *refs, const uint64_t *ends,
					  uint32_t n, uint32_t w)
{
	const uint64_t begin = refs[w].offset, end = ends[w];

	for (uint32_t i = 0; i < n; i++) {
		/* Compare ranges first: they are at hand, and few of them overlap. */
		if (refs[i].offset < end && begin < ends[i] && i != w &&
		    is_same_memory(refs[i].arena, refs[w].arena))
			return true;
	}
	return false;
}

static ALWAYS_INLINE int resolve_all(const struct session *session, const struct plan *plan,
				     uint32_t count, const uint64_t *given, struct exec_ref *refs,
				     uint64_t *ends)
{
	const struct plan_binding *const bindings = plan->bindings;
	const uint32_t n = plan->n_bindings;
	int r;

	for (uint32_t i = 0; i < n; i++) {
		r = resolve_ref(session, given[i], &bindings[i], count, &refs[i], &ends[i]);
		if (r)
			return r;
	}
	for (uint32_t i = 0; i < n; i++)
		if (bindings[i].written && output_overlaps(refs, ends, n, i))
			return -EINVAL;
	return 0;
}

/*
 * Copy the references out of the client's table, each once.
 * Return: 0; VALIDATE_E_TABLE; negative errno.
 */
static int load_table(const struct session *session, const struct rbk_sqe *sqe,
		      uint64_t table[RBK_MAX_REFS])
{
	const struct plan_binding whole = {
		.fixed_bytes = sqe->n_refs * sizeof(uint64_t),
	};
	const uint64_t *shared;
	struct exec_ref ref;
	uint64_t end;
	int r;

	r = resolve_ref(session, sqe->table, &whole, 0, &ref, &end);
	if (r)
		return r;
	shared = (const uint64_t *)(ref.arena->base + ref.offset);
	if (!ref.arena->is_fixed) {
		if (!session->fetched)
			return VALIDATE_E_TABLE;
		shared = session->fetched;
	}
	for (uint32_t i = 0; i < sqe->n_refs; i++)
		table[i] = __atomic_load_n(shared + i, __ATOMIC_RELAXED);
	return 0;
}

/* Not inlined, because only tasks with a table need its stack. */
static __attribute__((__noinline__)) int validate_table(const struct session *session,
							const struct rbk_sqe *sqe,
							const struct plan *plan,
							struct exec_ref *refs)
{
	uint64_t table[RBK_MAX_REFS], ends[RBK_MAX_REFS];
	int r;

	if (sqe->n_refs != plan->n_bindings || sqe->n_refs == 0 || sqe->state_rows ||
	    (sqe->table_reserved[0] | sqe->table_reserved[1] | sqe->table_reserved[2]))
		return -EINVAL;
	r = load_table(session, sqe, table);
	return r ? r : resolve_all(session, plan, sqe->count, table, refs, ends);
}

static ALWAYS_INLINE int validate_run(const struct session *session, const struct rbk_sqe *sqe,
				      struct exec_ref *refs, struct session_plan **ret_plan)
{
	struct session_plan *plan = find_plan(session, sqe->plan_id);
	uint64_t ends[RBK_SQE_REFS];
	const struct plan *parsed;

	if (!plan)
		return -ENOENT;
	parsed = plan->plan;
	if (sqe->count == 0 || sqe->count > parsed->max_count)
		return -ERANGE;
	*ret_plan = plan;

	if (__builtin_expect(sqe->flags & RBK_SQE_ARG_TABLE, 0))
		return validate_table(session, sqe, parsed, refs);

	if (parsed->n_bindings > RBK_SQE_REFS)
		return -EINVAL;
	for (uint32_t i = parsed->n_bindings; i < RBK_SQE_REFS; i++)
		if (sqe->refs[i])
			return -EINVAL;
	return resolve_all(session, parsed, sqe->count, sqe->refs, refs, ends);
}

static inline bool strategy_is_valid(uint8_t strategy)
{
	if (strategy & RBK_STRATEGY_NAMED)
		return (strategy & ~RBK_STRATEGY_NAMED) < RBK_MAX_DEVICES;
	return strategy < RBK_STRATEGY_COUNT;
}

/* Validate a PREFETCH or an EVICT, of a named device or of any. */
static int validate_residency(const struct session *session, const struct rbk_sqe *sqe,
			      struct session_plan **ret_plan)
{
	struct session_plan *plan = find_plan(session, sqe->plan_id);

	if (!plan)
		return -ENOENT;
	if (!(session->features & RBK_FEAT_RESIDENCY))
		return -EOPNOTSUPP;
	if (!(sqe->strategy & RBK_STRATEGY_NAMED) && sqe->strategy != RBK_STRATEGY_AUTO)
		return -EINVAL;
	if (sqe->count | sqe->refs[0] | sqe->refs[1] | sqe->refs[2] | sqe->refs[3] | sqe->refs[4])
		return -EINVAL;
	*ret_plan = plan;
	return 0;
}

/* Check the strategy, the priority, and that the flags, of usual_flags, suit the operation. */
static ALWAYS_INLINE bool head_is_valid(const struct rbk_sqe *sqe)
{
	if (!strategy_is_valid(sqe->strategy) || sqe->priority >= RBK_PRIORITY_COUNT)
		return false;
	return sqe->opcode == RBK_OP_RUN ||
	       !(sqe->flags &
		 (sqe->opcode == RBK_OP_PREFETCH ? flags_of_run
						 : flags_of_run | RBK_SQE_WAIT_MEMORY));
}

/* Validate an entry with RBK_SQE_AFTER, except whether there are the entries that it names. */
static __attribute__((__noinline__)) int validate_after(const struct session *session,
							const struct rbk_sqe *sqe,
							struct exec_ref *refs,
							struct session_plan **ret_plan)
{
	struct rbk_sqe rest;

	rest = rbk_sqe_without_after(sqe);
	if ((sqe->flags & ~RBK_SQE_FLAGS) || sqe->opcode >= RBK_OP_COUNT ||
	    sqe->opcode == RBK_OP_BARRIER || !head_is_valid(&rest))
		return -EINVAL;
	if (!(session->features & RBK_FEAT_AFTER))
		return -EOPNOTSUPP;
	if (!(sqe->refs[RBK_SQE_AFTER_REFS] | sqe->refs[RBK_SQE_AFTER_REFS + 1]))
		return -EINVAL;
	return validate_entry(session, &rest, refs, ret_plan);
}

int validate_any(const struct session *session, const struct rbk_sqe *sqe, struct exec_ref *refs,
		 struct session_plan **ret_plan)
{
	if (__builtin_expect(sqe->flags & ~usual_flags, 0))
		return validate_after(session, sqe, refs, ret_plan);
	if (!head_is_valid(sqe))
		return -EINVAL;

	switch (sqe->opcode) {
	case RBK_OP_NOP:
		return validate_bare(sqe);
	case RBK_OP_RUN:
		return validate_run(session, sqe, refs, ret_plan);
	case RBK_OP_BARRIER:
		/*
		 * In a chain a barrier would wait for its own predecessor and hold back its
		 * successor.
		 */
		return sqe->flags & RBK_SQE_LINK ? -EINVAL : validate_bare(sqe);
	case RBK_OP_CANCEL:
		if (sqe->plan_id | sqe->count | sqe->cancel_reserved[0] | sqe->cancel_reserved[1] |
		    sqe->cancel_reserved[2] | sqe->cancel_reserved[3])
			return -EINVAL;
		return 0;
	case RBK_OP_PREFETCH:
	case RBK_OP_EVICT:
		return validate_residency(session, sqe, ret_plan);
	default:
		return -EINVAL;
	}
}
