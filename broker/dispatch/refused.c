/* SPDX-License-Identifier: MIT */
/*
 * Entries that were refused: finding the fault, and reporting it
 *
 * A completion has room for an errno only. The broker therefore looks again at an entry that it has
 * refused: the field and the reason go into the tenant's statistics page, where "brokerctl why"
 * finds them, and into the log at level debug. Clients cause this at will, so admission limits how
 * often it is done.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/dispatch-private.h"
#include "shm/sqe-check.h"
#include "util/number.h"

static bool find_plan(const void *context, uint32_t id, struct sqe_plan *ret)
{
	const struct session *session = context;
	uint32_t slot = id & 0xffff;
	const struct session_plan *plan = slot < session->n_plans ? session->plans[slot] : NULL;

	if (!plan || plan->id != id)
		return false;
	*ret = (struct sqe_plan){
		.plan = plan->plan,
		.max_count = plan->plan->max_count,
		.n_refs = plan->plan->n_bindings,
	};
	return true;
}

static bool find_arena(const void *context, uint32_t id, struct sqe_arena *ret)
{
	const struct session *session = context;
	const struct session_arena *arena = id < session->n_arenas ? session->arenas[id] : NULL;

	if (!arena)
		return false;
	*ret = (struct sqe_arena){
		.bytes = arena->exec.bytes,
		.is_immutable = arena->exec.immutable,
		.memory = {arena->exec.dev, arena->exec.ino},
		/* Pages of other arenas may be missing. */
		.base = arena->exec.is_fixed ? arena->exec.base : NULL,
	};
	return true;
}

static void find_binding(const void *context, uint32_t index, uint32_t count,
			 struct sqe_binding *ret)
{
	const struct plan *plan = context;
	const struct plan_binding *binding = &plan->bindings[index];

	*ret = (struct sqe_binding){
		.bytes = binding->fixed_bytes + binding->row_bytes * count,
		.is_written = binding->written,
		.name = plan->tensors ? plan->tensors[binding->tensor].name : "the tensor",
	};
}

int dispatch_find_fault(const struct session *session, const struct rbk_sqe *sqe, bool is_in_chain,
			uint32_t n_nameable, struct sqe_fault *ret)
{
	const struct sqe_session known = {
		.context = session,
		.features = session->features,
		.is_in_chain = is_in_chain,
		.n_nameable = n_nameable,
		.table = session->fetched,
		.find_plan = find_plan,
		.find_arena = find_arena,
		.find_binding = find_binding,
	};

	return sqe_check(&known, sqe, ret);
}

static void log_refused(struct flow *flow, const struct session *session, uint64_t now_ns,
			const struct rbk_stats_refused *record)
{
	uint64_t n_unlogged;

	if (!log_limit_pass(&flow->refused_limit, now_ns, &n_unlogged))
		return;
	log_debug_of(LOG_OF(.tenant = tenant_name(flow->tenant), .session = session->number,
			    .pid = session->pid, .uid = session->uid),
		     LOG_ENTRY_REFUSED,
		     "session %u: the entry with user_data %llu, a %s, is refused with %s: %s: %s "
		     "(%llu more of this tenant since the last line)",
		     session->number, ull(record->user_data), sqe_op_name(record->opcode),
		     sqe_errno_name(record->res), record->field, record->reason, ull(n_unlogged));
}

void dispatch_note_refused(struct dispatch *dispatch, struct dispatch_ring *ring,
			   const struct rbk_sqe *sqe, int res)
{
	const struct session *session = ring->ring->session;
	struct rbk_stats_refused record = {
		.refused_at_ns = dispatch_now_ns(dispatch),
		.user_data = sqe->user_data,
		.session = session->number,
		.plan_id = sqe->plan_id,
		.opcode = sqe->opcode,
		.res = (int16_t)res,
	};
	struct sqe_fault fault = {.field = ""};

	/* A table can change between the two looks; copying it can fail for lack of memory. */
	if (dispatch_find_fault(session, sqe, ring->chain_open,
				join_most_distance(ring, join_entry_index(ring)), &fault) != res) {
		snprintf(fault.field, sizeof(fault.field), "table");
		snprintf(fault.reason, sizeof(fault.reason),
			 res == -ENOMEM ? "the broker has no memory to copy it"
					: "the client changed it while the broker read it");
	}
	memcpy(record.field, fault.field, sizeof(record.field));
	memcpy(record.reason, fault.reason, sizeof(record.reason));
	stats_note_refused(session->tenant_stats, &record);
	if (log_get_level() >= LOG_LEVEL_DEBUG)
		log_refused(ring->flow, session, clock_now_ns(), &record);
}
