#pragma once
/* SPDX-License-Identifier: MIT */
/* Validation of entries: see validate-hot.c. Reactor. */
#include <errno.h>
#include <string.h>

#include "dispatch/dispatch-private.h"

enum { VALIDATE_E_TABLE = 1 };

/* NOP and BARRIER have no operands. */
static inline int validate_bare(const struct rbk_sqe *sqe)
{
	if (sqe->plan_id | sqe->count | sqe->refs[0] | sqe->refs[1] | sqe->refs[2] | sqe->refs[3] |
	    sqe->refs[4])
		return -EINVAL;
	return 0;
}

/* As validate_entry(), of which it is the greater part. */
int validate_any(const struct session *session, const struct rbk_sqe *sqe, struct exec_ref *refs,
		 struct session_plan **ret_plan);

/*
 * Validate a private copy of an entry of @session. For RUN, PREFETCH and EVICT, set *ret_plan. For
 * RUN, resolve the references into @refs (RBK_MAX_REFS elements).
 * Return: 0; the negative errno that the entry completes with (struct rbk_sqe lists them);
 * VALIDATE_E_TABLE: the entry's table is in memory that only threads that may sleep may read.
 */
static inline int validate_entry(const struct session *session, const struct rbk_sqe *sqe,
				 struct exec_ref *refs, struct session_plan **ret_plan)
{
	uint32_t head;

	/* A call would take as long as everything else that is done for a NOP. */
	_Static_assert(RBK_OP_NOP == 0 && RBK_STRATEGY_AUTO == 0 && RBK_PRIORITY_NORMAL == 0 &&
			       offsetof(struct rbk_sqe, plan_id) == sizeof(head),
		       "a NOP without flags begins with zeros");
	memcpy(&head, sqe, sizeof(head));
	return head == 0 ? validate_bare(sqe) : validate_any(session, sqe, refs, ret_plan);
}
