/* SPDX-License-Identifier: MIT */
/* Diagnosis of submission entries: the order of the checks is that of validate_entry(). */
#include "shm/sqe-check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "shm/ring.h"

/* A reference with its place in the entry or in the entry's table. */
struct place {
	const char *array; /* "refs" or "table" */
	uint32_t index;
	uint64_t ref;
	struct sqe_binding binding;
	struct sqe_arena arena;
};

__attribute__((__format__(__printf__, 4, 5))) static int fault(struct sqe_fault *ret, int res,
							       const char *field,
							       const char *format, ...)
{
	va_list args;

	snprintf(ret->field, sizeof(ret->field), "%s", field);
	va_start(args, format);
	vsnprintf(ret->reason, sizeof(ret->reason), format, args);
	va_end(args);
	return res;
}

/* Report a fault of an element of an array. */
__attribute__((__format__(__printf__, 5, 6))) static int fault_at(struct sqe_fault *ret, int res,
								  const char *array, uint32_t index,
								  const char *format, ...)
{
	va_list args;

	snprintf(ret->field, sizeof(ret->field), "%s[%" PRIu32 "]", array, index);
	va_start(args, format);
	vsnprintf(ret->reason, sizeof(ret->reason), format, args);
	va_end(args);
	return res;
}

const char *sqe_op_name(uint8_t opcode)
{
	static const char *const names[RBK_OP_COUNT] = {
		[RBK_OP_NOP] = "NOP",           [RBK_OP_RUN] = "RUN",
		[RBK_OP_PREFETCH] = "PREFETCH", [RBK_OP_EVICT] = "EVICT",
		[RBK_OP_CANCEL] = "CANCEL",     [RBK_OP_BARRIER] = "BARRIER",
	};

	return opcode < RBK_OP_COUNT ? names[opcode] : "unknown";
}

const char *sqe_errno_name(int res)
{
	static const struct {
		int res;
		const char *name;
	} names[] = {
		{-EINVAL, "-EINVAL"},     {-ENOENT, "-ENOENT"},       {-EBADF, "-EBADF"},
		{-EFAULT, "-EFAULT"},     {-EACCES, "-EACCES"},       {-ERANGE, "-ERANGE"},
		{-EDOM, "-EDOM"},         {-ENODEV, "-ENODEV"},       {-EOPNOTSUPP, "-EOPNOTSUPP"},
		{-EALREADY, "-EALREADY"}, {-ECANCELED, "-ECANCELED"}, {-EIO, "-EIO"},
		{-ENOMEM, "-ENOMEM"},
	};

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].res == res)
			return names[i].name;
	return "an error";
}

static const char *flag_name(unsigned int flags)
{
	if (flags & RBK_SQE_ARG_TABLE)
		return "RBK_SQE_ARG_TABLE";
	if (flags & RBK_SQE_PARTITION)
		return "RBK_SQE_PARTITION";
	if (flags & RBK_SQE_AFTER)
		return "RBK_SQE_AFTER";
	return "RBK_SQE_WAIT_MEMORY";
}

/* ---- Members that every entry has ---- */

static int check_strategy(const struct rbk_sqe *sqe, struct sqe_fault *ret)
{
	if (sqe->strategy & RBK_STRATEGY_NAMED) {
		if ((sqe->strategy & ~RBK_STRATEGY_NAMED) < RBK_MAX_DEVICES)
			return 0;
		return fault(ret, -EINVAL, "strategy",
			     "RBK_STRATEGY_DEVICE(%u) names no device: indices are 0 to %u",
			     sqe->strategy & ~RBK_STRATEGY_NAMED, RBK_MAX_DEVICES - 1);
	}
	if (sqe->strategy < RBK_STRATEGY_COUNT)
		return 0;
	return fault(ret, -EINVAL, "strategy",
		     "%u is no strategy: enum rbk_strategy has 0 to %u, and "
		     "RBK_STRATEGY_DEVICE(index) names a device",
		     sqe->strategy, RBK_STRATEGY_COUNT - 1);
}

static int check_flags(const struct rbk_sqe *sqe, struct sqe_fault *ret)
{
	unsigned int misplaced = RBK_SQE_ARG_TABLE | RBK_SQE_PARTITION | RBK_SQE_WAIT_MEMORY;

	if (sqe->flags & ~RBK_SQE_FLAGS)
		return fault(ret, -EINVAL, "flags", "the bits 0x%x are unknown: RBK_SQE_* are 0x%x",
			     sqe->flags & ~RBK_SQE_FLAGS, RBK_SQE_FLAGS);
	if (sqe->opcode == RBK_OP_BARRIER)
		misplaced |= RBK_SQE_AFTER;
	if (sqe->opcode == RBK_OP_RUN)
		misplaced = 0;
	if (sqe->opcode == RBK_OP_PREFETCH)
		misplaced &= ~RBK_SQE_WAIT_MEMORY;
	if (sqe->flags & misplaced)
		return fault(ret, -EINVAL, "flags", "a %s cannot have %s", sqe_op_name(sqe->opcode),
			     flag_name(sqe->flags & misplaced));
	return 0;
}

static int check_head(const struct rbk_sqe *sqe, struct sqe_fault *ret)
{
	int res;

	if (sqe->opcode >= RBK_OP_COUNT)
		return fault(ret, -EINVAL, "opcode", "%u is no operation: enum rbk_op has 0 to %u",
			     sqe->opcode, RBK_OP_COUNT - 1);
	res = check_flags(sqe, ret);
	if (!res)
		res = check_strategy(sqe, ret);
	if (!res && sqe->priority >= RBK_PRIORITY_COUNT)
		res = fault(ret, -EINVAL, "priority",
			    "%u is no priority: enum rbk_priority has 0 to %u", sqe->priority,
			    RBK_PRIORITY_COUNT - 1);
	return res;
}

/* Check that count, and the references from @first on, are 0, for an operation without them. */
static int check_unused(const struct rbk_sqe *sqe, const char *array, uint32_t first,
			struct sqe_fault *ret)
{
	if (sqe->count)
		return fault(ret, -EINVAL, "count", "a %s has no rows: %" PRIu32 " is to be 0",
			     sqe_op_name(sqe->opcode), sqe->count);
	for (uint32_t i = first; i < RBK_SQE_REFS; i++)
		if (sqe->refs[i])
			return fault_at(ret, -EINVAL, array, i - first,
					"a %s has no such argument: 0x%" PRIx64 " is to be 0",
					sqe_op_name(sqe->opcode), sqe->refs[i]);
	return 0;
}

/* Check an operation that names no plan. */
static int check_bare(const struct rbk_sqe *sqe, const char *array, uint32_t first,
		      struct sqe_fault *ret)
{
	if (sqe->plan_id)
		return fault(ret, -EINVAL, "plan_id", "a %s names no plan: %" PRIu32 " is to be 0",
			     sqe_op_name(sqe->opcode), sqe->plan_id);
	return check_unused(sqe, array, first, ret);
}

static int check_barrier(const struct sqe_session *session, const struct rbk_sqe *sqe,
			 struct sqe_fault *ret)
{
	if (sqe->flags & RBK_SQE_LINK)
		return fault(ret, -EINVAL, "flags",
			     "a BARRIER cannot be in a chain: it cannot have RBK_SQE_LINK");
	if (session->is_in_chain)
		return fault(ret, -EINVAL, "opcode",
			     "a BARRIER cannot be in a chain: the entry before it has "
			     "RBK_SQE_LINK");
	return check_bare(sqe, "refs", 0, ret);
}

/* ---- References ---- */

/*
 * Check the arena, the offset and the range of a reference, and set place->arena.
 * Return: as sqe_check().
 */
static int check_ref(const struct sqe_session *session, struct place *place, struct sqe_fault *ret)
{
	const uint64_t offset = RBK_REF_OFFSET(place->ref), bytes = place->binding.bytes;
	const struct sqe_arena *arena = &place->arena;
	const uint32_t id = RBK_REF_ARENA(place->ref);
	const char *name = place->binding.name;

	if (!session->find_arena(session->context, id, &place->arena)) {
		if (place->ref == 0)
			return fault_at(ret, -EINVAL, place->array, place->index,
					"%s has no reference: 0 names no arena", name);
		if (place->ref == RBK_REF(0xffffu, 0))
			return fault_at(ret, -EBADF, place->array, place->index,
					"%s has RBK_REF_INVALID, which rbk_ref() returns for a "
					"place outside the arena",
					name);
		return fault_at(ret, -EBADF, place->array, place->index,
				"%s is in arena %" PRIu32 ", which the session does not have", name,
				id);
	}
	if (offset % RBK_REF_ALIGN)
		return fault_at(ret, -EINVAL, place->array, place->index,
				"%s is at offset %" PRIu64 " of arena %" PRIu32
				", which is no multiple of %u; rbk_arena_alloc() aligns",
				name, offset, id, RBK_REF_ALIGN);
	if (bytes > arena->bytes || offset > arena->bytes - bytes)
		return fault_at(ret, -EFAULT, place->array, place->index,
				"%s has %" PRIu64 " bytes at offset %" PRIu64 " of arena %" PRIu32
				", which has %" PRIu64 " bytes",
				name, bytes, offset, id, arena->bytes);
	if (place->binding.is_written && arena->is_immutable)
		return fault_at(ret, -EACCES, place->array, place->index,
				"%s is written, and arena %" PRIu32 " is sealed", name, id);
	return 0;
}

static bool is_overlap(const struct place *a, const struct place *b)
{
	const uint64_t a_at = RBK_REF_OFFSET(a->ref), b_at = RBK_REF_OFFSET(b->ref);

	return a->arena.memory[0] == b->arena.memory[0] &&
	       a->arena.memory[1] == b->arena.memory[1] && a_at < b_at + b->binding.bytes &&
	       b_at < a_at + a->binding.bytes;
}

static int check_refs(const struct sqe_session *session, const struct sqe_plan *plan,
		      uint32_t count, const char *array, const uint64_t *refs,
		      struct sqe_fault *ret)
{
	struct place places[RBK_MAX_REFS];
	int res;

	for (uint32_t i = 0; i < plan->n_refs; i++) {
		places[i] = (struct place){
			.array = array,
			.index = i,
			/* The client may write a table meanwhile. */
			.ref = __atomic_load_n(&refs[i], __ATOMIC_RELAXED),
		};
		session->find_binding(plan->plan, i, count, &places[i].binding);
		res = check_ref(session, &places[i], ret);
		if (res)
			return res;
	}
	for (uint32_t i = 0; i < plan->n_refs; i++)
		for (uint32_t k = 0; k < plan->n_refs && places[i].binding.is_written; k++)
			if (i != k && is_overlap(&places[i], &places[k]))
				return fault_at(ret, -EINVAL, array, i,
						"%s is written, and overlaps %s (%s[%" PRIu32 "])",
						places[i].binding.name, places[k].binding.name,
						array, k);
	return 0;
}

/* ---- Joins ---- */

static int check_after(const struct sqe_session *session, const struct rbk_sqe *sqe,
		       struct sqe_fault *ret)
{
	if (!(session->features & RBK_FEAT_AFTER))
		return fault(ret, -EOPNOTSUPP, "flags",
			     "RBK_SQE_AFTER needs RBK_FEAT_AFTER, which the broker does not offer");
	if (!(sqe->refs[RBK_SQE_AFTER_REFS] | sqe->refs[RBK_SQE_AFTER_REFS + 1]))
		return fault(ret, -EINVAL, "after",
			     "RBK_SQE_AFTER names no entry: 1 is the entry before this one");
	return 0;
}

static int check_distances(const struct sqe_session *session, const struct rbk_sqe *sqe,
			   struct sqe_fault *ret)
{
	for (uint32_t i = 0; i < RBK_SQE_AFTER_MAX; i++)
		if (sqe->after[i] > session->n_nameable)
			return fault_at(ret, -EINVAL, "after", i,
					"there is no entry %u places before this one: it can name "
					"one of the last %" PRIu32,
					sqe->after[i], session->n_nameable);
	return 0;
}

/* ---- Operations on a plan ---- */

static int check_table(const struct sqe_session *session, const struct rbk_sqe *sqe,
		       const struct sqe_plan *plan, struct sqe_fault *ret)
{
	struct place place = {.array = "table", .ref = sqe->table};
	const uint64_t *table = session->table;
	int res;

	if (sqe->n_refs == 0)
		return fault(ret, -EINVAL, "n_refs",
			     "the table has no references, and the plan takes %" PRIu32
			     "; rbk_prep_run() passes %u at most",
			     plan->n_refs, RBK_SQE_REFS);
	if (sqe->n_refs != plan->n_refs)
		return fault(ret, -EINVAL, "n_refs",
			     "the table has %" PRIu32 " references, and the plan takes %" PRIu32,
			     sqe->n_refs, plan->n_refs);
	if (sqe->state_rows)
		return fault(ret, -EINVAL, "state_rows",
			     "%" PRIu32 " is to be 0: the broker does not offer "
			     "RBK_FEAT_STATE_ROWS",
			     sqe->state_rows);
	for (uint32_t i = 0; i < sizeof(sqe->table_reserved) / sizeof(sqe->table_reserved[0]); i++)
		if (sqe->table_reserved[i])
			return fault_at(ret, -EINVAL, "table_reserved", i,
					"0x%" PRIx64 " is to be 0", sqe->table_reserved[i]);
	place.binding = (struct sqe_binding){
		.bytes = sqe->n_refs * sizeof(uint64_t),
		.name = "the table",
	};
	res = check_ref(session, &place, ret);
	if (res) {
		snprintf(ret->field, sizeof(ret->field), "table");
		return res;
	}
	if (!table && place.arena.base)
		table = (const uint64_t *)(place.arena.base + RBK_REF_OFFSET(place.ref));
	return table ? check_refs(session, plan, sqe->count, "table", table, ret) : 0;
}

static int check_run(const struct sqe_session *session, const struct rbk_sqe *sqe,
		     const struct sqe_plan *plan, bool has_after, struct sqe_fault *ret)
{
	struct sqe_plan first = *plan;
	int res;

	if (sqe->count == 0 || sqe->count > plan->max_count)
		return fault(ret, -ERANGE, "count",
			     "%" PRIu32 " rows, and the plan takes 1 to %" PRIu32, sqe->count,
			     plan->max_count);
	if (sqe->flags & RBK_SQE_ARG_TABLE)
		return check_table(session, sqe, plan, ret);
	if (plan->n_refs > RBK_SQE_REFS)
		return fault(ret, -EINVAL, "flags",
			     "the plan takes %" PRIu32
			     " references: more than %u need a table, by rbk_prep_run_table()",
			     plan->n_refs, RBK_SQE_REFS);
	for (uint32_t i = plan->n_refs; i < RBK_SQE_REFS; i++)
		if (sqe->refs[i])
			return fault_at(ret, -EINVAL, "refs", i,
					"the plan takes %" PRIu32 " references: 0x%" PRIx64
					" is to be 0",
					plan->n_refs, sqe->refs[i]);
	if (plan->n_refs <= RBK_SQE_AFTER_REFS || !has_after)
		return check_refs(session, plan, sqe->count, "refs", sqe->refs, ret);
	first.n_refs = RBK_SQE_AFTER_REFS;
	res = check_refs(session, &first, sqe->count, "refs", sqe->refs, ret);
	return res ? res
		   : fault(ret, -EINVAL, "flags",
			   "the plan takes %" PRIu32
			   " references: beside RBK_SQE_AFTER, more than %u need a table, by "
			   "rbk_prep_run_table()",
			   plan->n_refs, RBK_SQE_AFTER_REFS);
}

static int check_residency(const struct sqe_session *session, const struct rbk_sqe *sqe,
			   struct sqe_fault *ret)
{
	if (!(session->features & RBK_FEAT_RESIDENCY))
		return fault(ret, -EOPNOTSUPP, "opcode",
			     "a %s needs RBK_FEAT_RESIDENCY, which the broker does not offer",
			     sqe_op_name(sqe->opcode));
	if (!(sqe->strategy & RBK_STRATEGY_NAMED) && sqe->strategy != RBK_STRATEGY_AUTO)
		return fault(ret, -EINVAL, "strategy",
			     "a %s takes RBK_STRATEGY_AUTO or RBK_STRATEGY_DEVICE(index), not %u",
			     sqe_op_name(sqe->opcode), sqe->strategy);
	return check_unused(sqe, "refs", 0, ret);
}

/* Check what depends on the operation. @has_after: RBK_SQE_AFTER was taken from @sqe. */
static int check_operation(const struct sqe_session *session, const struct rbk_sqe *sqe,
			   bool has_after, struct sqe_fault *ret)
{
	struct sqe_plan plan;

	switch (sqe->opcode) {
	case RBK_OP_NOP:
		return check_bare(sqe, "refs", 0, ret);
	case RBK_OP_BARRIER:
		return check_barrier(session, sqe, ret);
	case RBK_OP_CANCEL:
		return check_bare(sqe, "cancel_reserved", 1, ret);
	default:
		break;
	}
	if (!session->find_plan(session->context, sqe->plan_id, &plan))
		return fault(ret, -ENOENT, "plan_id", "the session has no plan %" PRIu32,
			     sqe->plan_id);
	return sqe->opcode == RBK_OP_RUN ? check_run(session, sqe, &plan, has_after, ret)
					 : check_residency(session, sqe, ret);
}

int sqe_check(const struct sqe_session *session, const struct rbk_sqe *sqe, struct sqe_fault *ret)
{
	const bool has_after = sqe->flags & RBK_SQE_AFTER;
	const struct rbk_sqe rest = has_after ? rbk_sqe_without_after(sqe) : *sqe;
	int res = check_head(sqe, ret);

	if (!res && has_after)
		res = check_after(session, sqe, ret);
	if (!res)
		res = check_operation(session, &rest, has_after, ret);
	return !res && has_after ? check_distances(session, sqe, ret) : res;
}
