/* SPDX-License-Identifier: MIT */
/* Charges of a session's plan, with those of its segments */
#include <errno.h>
#include <stdio.h>

#include "session/description.h"
#include "session/plan-charge.h"
#include "session/plan-executors.h"
#include "session/segments.h"
#include "session/server-private.h"
#include "util/checked.h"

/* Return the bytes of the executors' translations of one plan, each of which is kept. */
static uint64_t plan_translation_bytes(const struct session *session, const struct plan *plan)
{
	const struct server_options *options = &session->server->options;
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < options->n_executors; i++)
		bytes += plan_is_for(plan, i) ? exec_translation_bytes(plan) : 0;
	return bytes;
}

int plan_charge_host(struct session_plan *plan, bool is_measured)
{
	const struct server_options *options = &plan->session->server->options;
	struct account *account = plan->session->tenant->account;
	char why[ACCOUNT_TEXT_BYTES];
	uint64_t host_bytes = 0;

	for (uint32_t i = 0; i < plan_n_segments(plan) * options->n_executors; i++) {
		const struct plan *parsed = plan_segment(plan, i / options->n_executors)->plan;
		const uint32_t device = i % options->n_executors;

		host_bytes += parsed->host_bytes[device];
		/* Add an estimate for each executor that does not measure. */
		if (is_measured && plan_is_for(parsed, device) &&
		    !options->executors[device]->ops->plan_measure)
			host_bytes += exec_translation_bytes(parsed);
	}
	charge_deinit(&plan->charges[PLAN_CHARGE_EXECUTORS]);
	if (account_charge(account, &plan->charges[PLAN_CHARGE_EXECUTORS], ACCOUNT_HOST_BYTES,
			   host_bytes) == 0)
		return 0;
	session_reply_result(plan->session, RBK_WIRE_PLAN_ADD, plan->cookie, -EDQUOT,
			     "no room for the plan: %s", account_explain(account, why));
	return -EDQUOT;
}

/*
 * Return the most that executors take for a whole plan or a segment: their translations, and the
 * CPU executor's scratch, a block per thread and one for the reactor.
 */
static uint64_t plan_most_bytes(const struct session *session, const struct plan *parsed)
{
	const struct executor *cpu = session->server->options.executors[RBK_DEVICE_CPU];
	uint64_t bytes;

	/* Both are at most PLAN_MAX_BYTES. */
	if (parsed->pinned && parsed->pinned_device != RBK_DEVICE_CPU)
		bytes = 0;
	else if (!checked_mul(parsed->scratch_bytes + parsed->work_bytes, cpu->info.n_threads + 1,
			      &bytes))
		bytes = UINT64_MAX;
	if (!checked_add(bytes, plan_translation_bytes(session, parsed), &bytes))
		bytes = UINT64_MAX;
	return bytes;
}

/*
 * Charge, in advance, for what executors take at most. A description of a few bytes can request
 * terabytes. plan_measure_done() replaces the charge by the measured use.
 */
static int plan_charge_executors(const struct session *session, struct session_plan *plan)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < plan_n_segments(plan); i++)
		if (!checked_add(bytes, plan_most_bytes(session, plan_segment(plan, i)->plan),
				 &bytes))
			bytes = UINT64_MAX;
	return account_charge(session->tenant->account, &plan->charges[PLAN_CHARGE_EXECUTORS],
			      ACCOUNT_HOST_BYTES, bytes);
}

/* Return the bytes of a whole plan or a segment, and of residency's and the placer's records. */
static uint64_t plan_own_bytes(const struct session *session, const struct session_plan *plan)
{
	const struct plan *parsed = plan->plan;
	const struct server_options *options = &session->server->options;
	uint64_t bytes = sizeof(*parsed) + parsed->n_tensors * sizeof(parsed->tensors[0]) +
			 parsed->n_nodes * sizeof(parsed->nodes[0]) +
			 parsed->n_constants * sizeof(parsed->constants[0]) +
			 PLAN_MAX_WORKS * sizeof(parsed->works[0]) +
			 options->hooks.plan_bytes(options->hooks.context, plan);

	for (uint32_t i = 0; i < options->n_executors; i++)
		if (options->executors[i]->info.memory_page_bytes > 0)
			bytes += parsed->n_constants * (uint64_t)RESIDENCY_CONSTANT_BYTES;
	return bytes;
}

/* Charge for the plan's own memory and that of its segments. */
static int plan_charge_records(const struct session *session, struct session_plan *plan)
{
	uint64_t bytes = sizeof(*plan) + plan->pins.n * sizeof(plan->pins.of[0]) +
			 plan_own_bytes(session, plan);

	if (plan->segments)
		bytes += segments_bytes(plan->segments);
	for (uint32_t i = 0; plan->segments && i < plan->segments->n; i++)
		bytes += plan_own_bytes(session, &plan->segments->of[i].plan);
	return account_charge(session->tenant->account, &plan->charges[PLAN_CHARGE_RECORDS],
			      ACCOUNT_HOST_BYTES, bytes);
}

/* Charge for the memory of tensors that cross between segments. */
static int plan_charge_crossing(const struct session *session, struct session_plan *plan)
{
	struct account *account = session->tenant->account;
	uint64_t bytes = plan->segments ? segments_arena_bytes(plan->segments) : 0;
	uint64_t n_wraps;
	int r;

	if (bytes == 0)
		return 0;
	r = account_charge(account, &plan->charges[PLAN_CHARGE_CROSSING], ACCOUNT_HOST_BYTES,
			   bytes);
	if (r == 0)
		r = account_charge(account, &plan->charges[PLAN_CHARGE_MAPPING], ACCOUNT_MAPPINGS,
				   1);
	if (r)
		return r;
	/* Devices reach the memory without dma-bufs, too, by copies. */
	n_wraps = segments_n_wraps(plan);
	plan->segments->may_wrap =
		n_wraps > 0 && account_charge(account, &plan->charges[PLAN_CHARGE_WRAPS],
					      ACCOUNT_FDS, n_wraps) == 0;
	return 0;
}

int plan_charge(struct session_plan *plan)
{
	struct session *session = plan->session;
	struct account *account = session->tenant->account;
	struct description *description = plan->description;
	char why[ACCOUNT_TEXT_BYTES];

	description_uncharge(description);
	if (plan_charge_records(session, plan) == 0 && plan_charge_executors(session, plan) == 0 &&
	    plan_charge_crossing(session, plan) == 0)
		return 0;
	snprintf(description->message, sizeof(description->message),
		 "no room for the plan and its scratch tensors: %s", account_explain(account, why));
	for (unsigned int i = PLAN_CHARGE_EXECUTORS; i < PLAN_CHARGES; i++)
		charge_deinit(&plan->charges[i]);
	description_charge(description, account);
	return -EDQUOT;
}
