/* SPDX-License-Identifier: MIT */
/*
 * Plans of a session
 *
 * The reactor takes a description (description.h), which waits for its tenant's turn: one plan of a
 * tenant at a time is charged for the maximum that it may need. The setup thread reads and verifies
 * the description, and cuts the plan if segments of it serve better (segments.h). Each executor
 * then reports the host memory that it will take for the plan. The reactor charges that memory
 * before any of it is allocated, and ends the turn. Then each executor prepares the plan, and
 * residency loads its memory onto a device if there is room. The client is answered after that.
 * Each of these steps is done in parts, with other jobs in between.
 *
 * A tenant that adds many plans at once is therefore charged for those that it has and for one
 * more.
 *
 * Removal stops new tasks at once, waits for those in flight, releases the plan's device memory,
 * and then frees the plan on the setup thread. An arena with constants of the plan counts the plan
 * until then.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "memory/residency.h"
#include "session/description.h"
#include "session/plan-charge.h"
#include "session/plan-executors.h"
#include "session/segments.h"
#include "session/server-private.h"
#include "util/error.h"
#include "util/size.h"

enum {
	PLAN_ID_SLOT_BITS = 16,
	ENTER_BATCH = 8, /* segments entered in one turn of the reactor */
};

static struct session_plan *plan_of_job(struct offload_job *job)
{
	return container_of(job, struct session_plan, job);
}

/* Submit a job of the plan to the setup thread; the plan's session is kept meanwhile. */
static void plan_submit(struct session_plan *plan, enum offload_cause cause,
			void (*run)(struct offload_job *job), void (*done)(struct offload_job *job))
{
	plan->job = (struct offload_job){.run = run, .done = done, .cause = (uint8_t)cause};
	session_submit(plan->session, &plan->job);
}

static void plan_read_run(struct offload_job *job);
static void plan_read_done(struct offload_job *job);
static void plan_verify_run(struct offload_job *job);
static void plan_verify_done(struct offload_job *job);

/* Have the setup thread begin with a description. */
static void plan_check(struct session_plan *plan)
{
	if (plan->description->fd >= 0)
		plan_submit(plan, OFFLOAD_PLAN_VERIFY, plan_read_run, plan_read_done);
	else
		plan_submit(plan, OFFLOAD_PLAN_VERIFY, plan_verify_run, plan_verify_done);
}

/* Set the limits that decide where the plan is cut, and the bytes to charge for cutting it. */
static void plan_wish(struct session_plan *plan)
{
	const struct server_hooks *hooks = &plan->session->server->options.hooks;
	struct description *description = plan->description;

	plan->cut = RBK_CUT_NO_DEVICE;
	if (!segments_wish(plan->session, &description->wish))
		return;
	/* Until the setup thread cuts it, if there is memory for that. */
	plan->cut = RBK_CUT_REFUSED;
	description->cut_bytes = segments_most_bytes(description->n_bytes);
	if (hooks->cut_begin && description->wish.seed == 0)
		description->cut_basis =
			hooks->cut_begin(hooks->context, plan->session, description->n_bytes,
					 &description->cut_bytes);
}

/*
 * Begin the tenant's next turn. A plan that exceeds the tenant's memory limit passes through the
 * setup thread, too, which does no work for it. One turn of the reactor therefore refuses at most a
 * batch of such plans.
 */
static void plan_check_next(struct tenant *tenant)
{
	struct description *description;
	struct session_plan *plan;
	char why[ACCOUNT_TEXT_BYTES];

	tenant->is_checking = !list_is_empty(&tenant->checks);
	if (!tenant->is_checking)
		return;
	plan = container_of(tenant->checks.next, struct session_plan, check);
	list_remove(&plan->check);
	plan->is_checking = true;
	description = plan->description;
	plan_wish(plan);
	if (description_charge_check(description, tenant->account)) {
		description->result = -EDQUOT;
		snprintf(description->message, sizeof(description->message),
			 "no room for the plan: %s", account_explain(tenant->account, why));
	}
	plan_check(plan);
}

/*
 * End the turn of a plan, which is charged only for its actual use from now on, and begin the next.
 */
static void plan_checked(struct session_plan *plan)
{
	if (!plan->is_checking)
		return;
	plan->is_checking = false;
	plan_check_next(plan->session->tenant);
}

static void plan_forget(struct session_plan *plan)
{
	struct session *session = plan->session;
	uint32_t index = plan->id & ((1u << PLAN_ID_SLOT_BITS) - 1);
	const bool was_checking = plan->is_checking;

	session->plan_slots[index] = NULL;
	session->plans[index] = NULL;
	session->server->n_plans--;
	session->n_added_plans--;
	plan_pins_deinit(&plan->pins);
	description_free(plan->description);
	segments_free(plan->segments);
	plan_free(plan->plan);
	for (unsigned int i = 0; i < ARRAY_SIZE(plan->charges); i++)
		charge_deinit(&plan->charges[i]);
	free(plan);
	if (was_checking)
		plan_check_next(session->tenant);
}

static void plan_release_run(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);

	for (uint32_t i = 0; i < plan_n_segments(plan); i++) {
		struct session_plan *segment = plan_segment(plan, i);

		if (!segment->plan)
			continue;
		/* Other jobs run between two segments. */
		job->has_more = plan_unprepare(segment) || plan->segments;
		if (job->has_more)
			return;
	}
	if (!plan->segments)
		return;
	job->has_more = segments_unmap(plan);
	if (job->has_more)
		return;
	plan->segments = segments_free(plan->segments);
	plan->plan = plan_free(plan->plan);
}

static void plan_release_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	struct session *session = plan->session;
	const uint32_t cookie = plan->cookie;
	const bool wants_reply = plan->wants_reply;

	/* Forget the plan first: the answered client may remove the arenas of its constants. */
	plan_forget(plan);
	if (wants_reply)
		session_reply_result(session, RBK_WIRE_PLAN_REMOVE, cookie, 0, NULL);
	session_job_done(session);
}

static struct session_plan *plan_of_memory(struct plan_memory *memory)
{
	return container_of(memory, struct session_plan, memory);
}

/* Residency has released the plan's memory, or a segment's: with the last, free the plan. */
static void plan_removed(struct plan_memory *memory)
{
	struct session_plan *plan = plan_whole(plan_of_memory(memory));
	const struct server_hooks *hooks = &plan->session->server->options.hooks;

	if (--plan->n_leaving > 0)
		return;
	/* Call before the setup thread frees the plan, which dispatcher and placer use. */
	for (uint32_t i = 0; i < plan_n_segments(plan); i++)
		hooks->plan_freed(hooks->context, plan_segment(plan, i));
	if (plan->segments)
		hooks->plan_freed(hooks->context, plan);
	plan_submit(plan, OFFLOAD_PLAN_RELEASE, plan_release_run, plan_release_done);
}

static void plan_release(struct session_plan *plan)
{
	struct residency *residency = plan->session->server->options.residency;
	const uint32_t n = plan_n_segments(plan);

	plan_set_state(plan, SLOT_RELEASING);
	session_stats_plan_leaving(plan);
	session_job_started(plan->session);
	plan->n_leaving = n;
	for (uint32_t i = 0; i < n; i++)
		residency_remove(residency, &plan_segment(plan, i)->memory, plan_removed);
}

static void plan_measure_run(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	const uint32_t n = plan_n_segments(plan);

	for (uint32_t i = 0; i < n && !job->has_more; i++) {
		struct session_plan *segment = plan_segment(plan, i);
		const bool is_measured =
			segment->n_measured == segment->session->server->options.n_executors;

		if (!is_measured)
			job->has_more = plan_measure(segment) || i + 1 < n;
	}
}

static void plan_prepare_run(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	const uint32_t n = plan_n_segments(plan);

	for (uint32_t i = 0; i < n && !job->has_more; i++) {
		struct session_plan *segment = plan_segment(plan, i);

		if (!segment->is_prepared)
			job->has_more = plan_prepare(segment) || i + 1 < n;
	}
}

/*
 * Return the devices, as bits, that can run a whole plan or a segment now, once its memory is
 * resident, or once the device is back: it is lost, or drained.
 */
static uint32_t plan_devices(const struct session_plan *plan)
{
	const struct plan *parsed = plan->plan;
	uint32_t devices = 0;

	for (unsigned int i = 0; i < plan->session->server->options.n_executors; i++)
		if (parsed->device_state[i] == PLAN_DEVICE_READY ||
		    parsed->device_state[i] == PLAN_DEVICE_EVICTED ||
		    residency_waits_for_device(&plan->memory, i))
			devices |= 1u << i;
	if (parsed->pinned)
		devices &= 1u << parsed->pinned_device;
	return devices;
}

/* Return the devices, as bits, that can run the plan, or each of its segments. */
static uint32_t plan_all_devices(struct session_plan *plan)
{
	uint32_t devices = UINT32_MAX;

	for (uint32_t i = 0; i < plan_n_segments(plan); i++)
		devices &= plan_devices(plan_segment(plan, i));
	return devices;
}

/*
 * Tell the client why no permitted device can run the plan, or one of its segments.
 * Return: the negative errno sent.
 */
static int plan_refuse(struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;
	const uint32_t cookie = plan_whole(plan)->cookie;
	struct session *session = plan->session;
	const struct plan *parsed = plan->plan;
	struct residency_about about;

	for (unsigned int i = RBK_DEVICE_GPU; i < options->n_executors; i++) {
		if (parsed->device_state[i] != PLAN_DEVICE_NO_MEMORY || !plan->memory.residency ||
		    (parsed->pinned && parsed->pinned_device != i))
			continue;
		residency_about(options->residency, &plan->memory, i, &about);
		session_reply_result(
			session, RBK_WIRE_PLAN_ADD, cookie, -EDQUOT,
			"the plan requires %s of memory on device %u, and tenant %s can "
			"have %s there; no other device can run it",
			SIZE_BESIDE(about.required_bytes, about.available_bytes), i,
			tenant_name(session->tenant),
			SIZE_BESIDE(about.available_bytes, about.required_bytes));
		return -EDQUOT;
	}
	if (parsed->pinned) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -ENODEV,
				     "the plan is pinned to device %u, which cannot run it",
				     parsed->pinned_device);
		return -ENODEV;
	}
	if (parsed->device_state[RBK_DEVICE_CPU] == PLAN_DEVICE_NO_MEMORY) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -ENOMEM,
				     "no device can run the plan: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -ENODEV,
			     "no device can run the plan: %s", strerror(ENODEV));
	return -ENODEV;
}

/*
 * A whole plan or a segment is resident, or residency knows that it must wait: with the last one,
 * answer the client.
 */
static void plan_settled(struct plan_memory *memory)
{
	struct session_plan *plan = plan_whole(plan_of_memory(memory));
	struct session *session = plan->session;
	const struct plan *parsed = plan->plan;
	struct rbk_wire_plan reply = {
		.reply = {.type = RBK_WIRE_PLAN_ADD, .cookie = plan->cookie},
		.id = plan->id,
		.constant_bytes = parsed->constant_bytes,
		.scratch_bytes = parsed->scratch_bytes,
		.flops_fixed = parsed->cost.flops_fixed,
		.flops_row = parsed->cost.flops_row,
		.bytes_fixed = parsed->touched_fixed,
		.bytes_row = parsed->touched_row,
	};

	if (--plan->n_loading > 0 || session->is_ending)
		return;
	/* Only now are all segments known. */
	reply.devices = plan_all_devices(plan);
	plan_set_state(plan, SLOT_READY);
	session_stats_plan_added(plan);
	session->plans[plan->id & ((1u << PLAN_ID_SLOT_BITS) - 1)] = plan;
	session_reply(session, &reply.reply, sizeof(reply));
}

/*
 * Tell dispatcher and residency of a prepared plan or segment.
 * Return: as residency_add().
 */
static int plan_enter(struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;
	int r;

	plan->id = plan_whole(plan)->id;
	r = options->hooks.plan_ready(options->hooks.context, plan);
	plan->memory.plan = plan->plan;
	plan->memory.tenant = plan->session->tenant;
	plan->memory.session = plan->session->number;
	plan->memory.id = plan->id;
	plan->memory.n_evictions = &plan->session->stats.n_evictions;
	if (r == 0)
		r = residency_add(options->residency, &plan->memory, plan_settled);
	return r < 0 ? error_fold(r) : r;
}

/* Begin to enter a prepared plan. Return: 0; a negative errno. */
static int plan_begin_entering(struct session_plan *plan)
{
	const struct server_hooks *hooks = &plan->session->server->options.hooks;

	/* One more, so that no segment answers before all are known. */
	plan->n_loading = 1;
	return plan->segments ? hooks->plan_ready(hooks->context, plan) : 0;
}

/*
 * Enter the next segments: other tenants' work waits while the placer and residency make records.
 * Return: 0; a negative errno.
 */
static int plan_enter_some(struct session_plan *plan)
{
	int r = plan->n_entered == 0 ? plan_begin_entering(plan) : 0;

	for (uint32_t i = 0; r >= 0 && i < ENTER_BATCH && plan->n_entered < plan_n_segments(plan);
	     i++) {
		r = plan_enter(plan_segment(plan, plan->n_entered++));
		plan->n_loading += r == 0;
	}
	return r < 0 ? error_fold(r) : 0;
}

/*
 * Accept a prepared plan, or some segments of it.
 * Return: 0: plan_settled() was or will be called; PLAN_E_MORE: segments are left; a negative
 * errno: the client was told.
 */
static int plan_accept(struct session_plan *plan)
{
	int r = plan->n_entered == 0 ? plan_charge_host(plan, false) : 0;

	if (r)
		return r;
	r = plan_enter_some(plan);
	if (r < 0) {
		session_reply_result(plan->session, RBK_WIRE_PLAN_ADD, plan->cookie, r,
				     "the broker is out of memory");
		return r;
	}
	if (plan->n_entered < plan_n_segments(plan))
		return PLAN_E_MORE;
	for (uint32_t i = 0; i < plan_n_segments(plan); i++)
		if (plan_devices(plan_segment(plan, i)) == 0)
			return plan_refuse(plan_segment(plan, i));
	plan_settled(&plan_segment(plan, 0)->memory);
	return 0;
}

/* Do nothing: the job returns to the reactor after its other work. */
static void plan_pause_run(struct offload_job *job)
{
}

static void plan_prepare_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	struct session *session = plan->session;
	int r;

	plan_set_state(plan, SLOT_LOADING);
	if (!session->is_ending) {
		r = plan_accept(plan);
		if (r == PLAN_E_MORE) {
			plan_submit(plan, OFFLOAD_OTHER, plan_pause_run, plan_prepare_done);
			return;
		}
		if (r)
			plan_release(plan);
	}
	session_job_done(session);
}

/* Prepare a measured plan if its tenant may have the memory. */
static void plan_measure_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	struct session *session = plan->session;

	if (!session->is_ending && !plan_charge_host(plan, true)) {
		plan_submit(plan, OFFLOAD_PLAN_PREPARE, plan_prepare_run, plan_prepare_done);
		plan_checked(plan);
		return;
	}
	plan_set_state(plan, SLOT_LOADING);
	plan_checked(plan);
	if (!session->is_ending)
		plan_release(plan);
	session_job_done(session);
}

void session_plan_cancel(struct session_plan *plan)
{
	if (plan->state != SLOT_PREPARING)
		return;
	/*
	 * Submit it without a turn: it returns like the plans that were begun, some in each turn of
	 * the reactor.
	 */
	if (!list_is_empty(&plan->check)) {
		list_remove(&plan->check);
		plan_check(plan);
	}
	offload_cancel(plan->session->server->options.offload, &plan->job);
}

/* Tell the client why its description was rejected, and free the slot. */
static void plan_refuse_description(struct session_plan *plan, int res, const char *why)
{
	struct session *session = plan->session;

	session_reply_result(session, RBK_WIRE_PLAN_ADD, plan->cookie, res, "%s", why);
	plan_forget(plan);
	session_job_done(session);
}

static void plan_drop_run(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);

	job->has_more = plan->segments && segments_unmap(plan);
	if (job->has_more)
		return;
	plan->segments = segments_free(plan->segments);
	plan->plan = plan_free(plan->plan);
	description_free_bytes(plan->description);
}

static void plan_drop_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);

	plan_refuse_description(plan, plan->description->result, plan->description->message);
}

/*
 * Reject a plan with the description's message. First the setup thread frees its memory: for large
 * blocks the C library unmaps memory, which may wait.
 */
static void plan_drop(struct session_plan *plan, int res)
{
	struct description *description = plan->description;

	description->result = res;
	if (!plan->plan && !description->bytes) {
		plan_refuse_description(plan, res, description->message);
		return;
	}
	/*
	 * Not PREPARING: if it were cancelled at the session's end, the reactor would free the
	 * memory.
	 */
	plan->state = SLOT_RELEASING;
	plan_submit(plan, OFFLOAD_PLAN_VERIFY, plan_drop_run, plan_drop_done);
}

static void plan_verify_run(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	struct description *description = plan->description;

	if (description_may_check(description)) {
		if (!plan->plan)
			job->has_more = description_verify(description, &plan->plan);
		if (!job->has_more && plan->plan && description->cut_bytes > 0)
			job->has_more = segments_make(plan);
	}
	if (!job->has_more)
		description_free_bytes(description);
}

/* Give a verified plan its id, and have it measured. */
static void plan_number(struct session_plan *plan)
{
	struct session *session = plan->session;
	const uint32_t index = plan->id;

	session->plan_generations[index]++;
	if (plan->wanted_id != index)
		session->plan_generations[index] = (uint16_t)(plan->wanted_id >> PLAN_ID_SLOT_BITS);
	plan->id = (uint32_t)session->plan_generations[index] << PLAN_ID_SLOT_BITS | index;
	plan->pins = description_take_pins(plan->description);
	plan->description = description_free(plan->description);
	plan_submit(plan, OFFLOAD_PLAN_MEASURE, plan_measure_run, plan_measure_done);
}

static void plan_verified(struct session_plan *plan);

static void plan_uncut_run(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);

	job->has_more = segments_unmap(plan);
	if (!job->has_more)
		plan->segments = segments_free(plan->segments);
}

static void plan_uncut_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);

	for (unsigned int i = PLAN_CHARGE_EXECUTORS; i < PLAN_CHARGES; i++)
		charge_deinit(&plan->charges[i]);
	/* The session may have ended before the job began. */
	if (plan->segments)
		plan_drop(plan, -ECANCELED);
	else
		plan_verified(plan);
}

/* Leave a plan whole for whose segments there is no room. */
static void plan_uncut(struct session_plan *plan)
{
	plan->cut = RBK_CUT_REFUSED;
	plan_submit(plan, OFFLOAD_PLAN_VERIFY, plan_uncut_run, plan_uncut_done);
}

static void plan_map_run(struct offload_job *job)
{
	job->has_more = segments_map(plan_of_job(job));
}

static void plan_map_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);

	if (plan->session->is_ending)
		plan_drop(plan, -ECANCELED);
	else if (plan->segments->map_result)
		plan_uncut(plan);
	else
		plan_number(plan);
}

/* Charge for a verified plan, and go on with it: in segments, if there is room for them. */
static void plan_verified(struct session_plan *plan)
{
	int r = plan->session->is_ending ? -ECANCELED : plan_charge(plan);

	if (r == -EDQUOT && plan->segments)
		plan_uncut(plan);
	else if (r)
		plan_drop(plan, r);
	else if (plan->segments && segments_arena_bytes(plan->segments) > 0)
		plan_submit(plan, OFFLOAD_PLAN_PREPARE, plan_map_run, plan_map_done);
	else
		plan_number(plan);
}

static void plan_verify_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	struct description *description = plan->description;
	const int r = description->result;

	if (r == PLAN_E_INVALID) {
		plan_refuse_description(plan, -EINVAL, description->message);
		return;
	}
	if (r) {
		if (r != -EDQUOT)
			snprintf(description->message, sizeof(description->message),
				 "the broker cannot store the plan: %s", strerror(-r));
		plan_drop(plan, r);
		return;
	}
	plan_verified(plan);
}

static void plan_read_run(struct offload_job *job)
{
	struct description *description = plan_of_job(job)->description;

	if (description_may_check(description))
		description_read(description);
}

static void plan_read_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	struct session *session = plan->session;
	struct description *description = plan->description;
	const int r = description->result;

	if (discard_fd(session->server, session->account, description_take_fd(description)))
		session_fail(session, "the broker cannot close the client's descriptors", ENOMEM);
	/* A plan whose session is over gets no answer. */
	if (r == DESCRIPTION_E_UNREADABLE)
		session_end(session, true, "the broker cannot read the client's plan description");
	if (r == -EDQUOT) {
		plan_drop(plan, r);
	} else if (r || session->is_ending) {
		snprintf(description->message, sizeof(description->message),
			 "the broker is out of memory");
		plan_drop(plan, -ENOMEM);
	} else {
		description_pin(description, session);
		plan_submit(plan, OFFLOAD_PLAN_VERIFY, plan_verify_run, plan_verify_done);
	}
}

/* Return true if generation @a is later than @b: generations begin again after the last. */
static bool is_later(uint16_t a, uint16_t b)
{
	return (int16_t)(a - b) > 0;
}

void session_plan_continue(struct session *session, uint32_t id)
{
	const uint16_t generation = (uint16_t)(id >> PLAN_ID_SLOT_BITS);

	if (generation == 0 ||
	    (session->least_generation && !is_later(generation, session->least_generation)))
		return;
	session->least_generation = generation;
	/* A slot without a plan has had none in this session, or an earlier one. */
	for (uint32_t i = 0; i < session->n_plans; i++)
		if (session->plan_generations[i] == 0 ||
		    is_later(generation, session->plan_generations[i]))
			session->plan_generations[i] = generation;
}

/* Find the slot of the id that the client wants. Return: false: the client was refused. */
static bool plan_want(struct session *session, uint32_t cookie, uint32_t id, uint32_t *ret_index)
{
	const uint32_t index = id & ((1u << PLAN_ID_SLOT_BITS) - 1);

	if (index >= session->n_plans || session->plan_slots[index]) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie,
				     index >= session->n_plans ? -EINVAL : -EBUSY,
				     index >= session->n_plans ? "no plan can have the id %u"
							       : "a plan has the slot of id %u",
				     id);
		return false;
	}
	*ret_index = index;
	return true;
}

/*
 * Take a free slot of the session, and charge for one plan.
 * Return: NULL: the client was refused.
 */
static struct session_plan *plan_begin(struct session *session, uint32_t cookie)
{
	const bool is_wanted = session->wants_id;
	char why[ACCOUNT_TEXT_BYTES];
	struct session_plan *plan;
	uint32_t index;

	for (index = 0; index < session->n_plans && session->plan_slots[index]; index++)
		;
	session->wants_id = false;
	if (is_wanted && !plan_want(session, cookie, session->wanted_id, &index))
		return NULL;
	if (index == session->n_plans) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -EDQUOT,
				     "the session already has %u plans, which is the limit", index);
		return NULL;
	}
	plan = calloc(1, sizeof(*plan));
	if (!plan) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -ENOMEM,
				     "the broker is out of memory");
		return NULL;
	}
	if (account_charge(session->tenant->account, &plan->charges[PLAN_CHARGE_ONE], ACCOUNT_PLANS,
			   1)) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -EDQUOT,
				     "no room for the plan: %s",
				     account_explain(session->tenant->account, why));
		free(plan);
		return NULL;
	}
	plan->session = session;
	plan->id = index; /* without a generation, so tasks cannot name it yet */
	plan->wanted_id = is_wanted ? session->wanted_id : index;
	plan->state = SLOT_PREPARING;
	plan->cookie = cookie;
	list_init(&plan->check);
	return plan;
}

/*
 * Create the description of a plan. Charge the memory that it holds while it waits and, if the turn
 * is free, the maximum of its verification. *@fd is taken on success.
 * Return: 0; ACCOUNT_E_QUOTA; -ENOMEM.
 */
static int plan_begin_description(struct session_plan *plan, const void *desc, size_t desc_bytes,
				  int *fd)
{
	struct tenant *tenant = plan->session->tenant;
	int r = description_new(tenant->account, desc, desc_bytes, fd, &plan->description);

	if (r || tenant->is_checking)
		return r;
	plan_wish(plan);
	r = description_charge_check(plan->description, tenant->account);
	if (r == 0)
		return 0;
	/* The caller has the descriptor closed. */
	if (!desc)
		*fd = description_take_fd(plan->description);
	plan->description = description_free(plan->description);
	return r;
}

static int plan_add(struct session *session, uint32_t cookie, const void *desc, size_t desc_bytes,
		    int *fd)
{
	struct session_plan *plan = plan_begin(session, cookie);
	char why[ACCOUNT_TEXT_BYTES];
	int r;

	if (!plan)
		return 0;
	r = plan_begin_description(plan, desc, desc_bytes, fd);
	if (r) {
		if (r == ACCOUNT_E_QUOTA)
			session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -EDQUOT,
					     "no room for the plan: %s",
					     account_explain(session->tenant->account, why));
		else
			session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, r,
					     "the broker is out of memory");
		charge_deinit(&plan->charges[PLAN_CHARGE_ONE]);
		free(plan);
		return 0;
	}
	session->plan_slots[plan->id] = plan;
	session->server->n_plans++;
	session->n_added_plans++;
	session_job_started(session);
	/* Pin the arenas from now on; a description still to be read names none yet. */
	if (desc)
		description_pin(plan->description, session);
	if (session->tenant->is_checking) {
		list_append(&session->tenant->checks, &plan->check);
		return 0;
	}
	session->tenant->is_checking = plan->is_checking = true;
	plan_check(plan);
	return 0;
}

int session_plan_add(struct session *session, uint32_t cookie, const void *desc, size_t desc_bytes)
{
	return plan_add(session, cookie, desc, desc_bytes, NULL);
}

int session_plan_add_fd(struct session *session, uint32_t cookie, int *fd, size_t desc_bytes)
{
	return plan_add(session, cookie, NULL, desc_bytes, fd);
}

struct session_plan *session_plan_find(const struct session *session, uint32_t id)
{
	uint32_t index = id & ((1u << PLAN_ID_SLOT_BITS) - 1);
	struct session_plan *plan = index < session->n_plans ? session->plans[index] : NULL;

	return plan && plan->id == id ? plan : NULL;
}

int session_plan_remove(struct session *session, uint32_t cookie, uint32_t id)
{
	struct session_plan *plan = session_plan_find(session, id);
	const struct server_hooks *hooks = &session->server->options.hooks;

	if (!plan) {
		session_reply_result(session, RBK_WIRE_PLAN_REMOVE, cookie, -ENOENT,
				     "there is no plan %u", id);
		return 0;
	}
	session->plans[id & ((1u << PLAN_ID_SLOT_BITS) - 1)] = NULL;
	plan_set_state(plan, SLOT_REMOVING);
	plan->cookie = cookie;
	plan->wants_reply = true;
	hooks->plan_removing(hooks->context, plan);
	if (plan->n_in_flight == 0)
		plan_release(plan);
	return 0;
}

void session_plan_idle(struct session_plan *plan)
{
	if (plan->state == SLOT_REMOVING && !plan->session->is_ending)
		plan_release(plan);
}

void session_plan_discard(struct session_plan *plan)
{
	plan->wants_reply = false;
	plan->session->plans[plan->id & ((1u << PLAN_ID_SLOT_BITS) - 1)] = NULL;
	plan_release(plan);
}
