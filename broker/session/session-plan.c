/* SPDX-License-Identifier: MIT */
/*
 * Plans of a session
 *
 * The reactor takes a description (description.h), which waits for its tenant's turn: one plan of a
 * tenant at a time is charged for the maximum that it may need. The setup thread reads and verifies
 * the description. Each executor then reports the host memory that it will take for the plan. The
 * reactor charges that memory before any of it is allocated, and ends the turn. Then each executor
 * prepares the plan, and residency loads its memory onto a device if there is room. The client is
 * answered after that. Each of these steps is done in parts, with other jobs in between.
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
#include "session/server-private.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"
#include "util/size.h"

enum { PLAN_ID_SLOT_BITS = 16 };

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
	const struct server_options *options = &plan->session->server->options;

	for (unsigned int i = 0; i < options->n_executors && !job->has_more; i++) {
		struct executor *executor = options->executors[i];

		job->has_more = executor->ops->plan_shrink &&
				executor->ops->plan_shrink(executor, plan->plan) == EXECUTOR_E_MORE;
	}
	if (job->has_more)
		return;
	for (unsigned int i = 0; i < options->n_executors; i++)
		options->executors[i]->ops->plan_release(options->executors[i], plan->plan);
	/* For the largest plans the C library unmaps memory, which takes long and may wait. */
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

/* Residency has released the plan's memory: free the plan. */
static void plan_removed(struct plan_memory *memory)
{
	struct session_plan *plan = plan_of_memory(memory);
	const struct server_hooks *hooks = &plan->session->server->options.hooks;

	/* Call before the setup thread frees the plan, which dispatcher and placer use. */
	hooks->plan_freed(hooks->context, plan);
	plan_submit(plan, OFFLOAD_PLAN_RELEASE, plan_release_run, plan_release_done);
}

static void plan_release(struct session_plan *plan)
{
	plan->state = SLOT_RELEASING;
	session_stats_plan_leaving(plan);
	session_job_started(plan->session);
	residency_remove(plan->session->server->options.residency, &plan->memory, plan_removed);
}

/*
 * Return true if the device may run the plan. Any other device would pack or mirror constants that
 * no task could use.
 */
static bool plan_is_for(const struct plan *plan, unsigned int device)
{
	return !plan->pinned || plan->pinned_device == device;
}

/* Mark a device as failed for the plan, which may still run elsewhere. Setup thread. */
static void plan_fail(struct session_plan *plan, unsigned int device, int r)
{
	static struct log_limit failure_limit; /* setup thread only */
	const struct executor *executor = plan->session->server->options.executors[device];
	uint64_t n_unlogged;

	plan->plan->device_state[device] =
		r == -ENOMEM ? PLAN_DEVICE_NO_MEMORY : PLAN_DEVICE_FAILED;
	plan->failed |= (uint16_t)(1u << device);
	if (log_limit_pass(&failure_limit, clock_now_ns(), &n_unlogged))
		log_warning_of(LOG_OF_DEVICE(device), LOG_PLAN_NOT_PREPARED,
			       "device %u (%s) cannot prepare a plan, nor %llu before it: %s",
			       device, executor->info.name, ull(n_unlogged), strerror(-r));
}

static void plan_measure_run(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	const struct server_options *options = &plan->session->server->options;
	int r;

	for (; plan->n_measured < options->n_executors; plan->n_measured++) {
		struct executor *executor = options->executors[plan->n_measured];

		if (!plan_is_for(plan->plan, plan->n_measured) || !executor->ops->plan_measure)
			continue;
		r = executor->ops->plan_measure(executor, plan->plan);
		if (r == EXECUTOR_E_MORE) {
			job->has_more = true;
			return;
		}
		if (r < 0)
			plan_fail(plan, plan->n_measured, r);
	}
}

/* Compile a part of the plan. Return: true if parts remain. */
static bool plan_compile(const struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		struct executor *executor = options->executors[i];

		if (plan_is_for(plan->plan, i) && !(plan->failed & 1u << i) &&
		    executor->ops->plan_compile &&
		    executor->ops->plan_compile(executor, plan->plan) == EXECUTOR_E_MORE)
			return true;
	}
	return false;
}

/*
 * Sum up the memory of the plan's constants on devices with memory. The reactor needs these sums at
 * each check.
 */
static void plan_sum_constants(const struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++)
		if (plan->plan->device_state[i] == PLAN_DEVICE_EVICTED)
			plan->plan->block_bytes[i] =
				exec_constants_bytes(plan->plan, &options->executors[i]->info);
}

static void plan_prepare_run(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	const struct server_options *options = &plan->session->server->options;
	struct executor *executor;
	int r;

	job->has_more = plan_compile(plan);
	for (unsigned int i = 0; i < options->n_executors && !job->has_more; i++) {
		if (!plan_is_for(plan->plan, i) || plan->failed & 1u << i)
			continue;
		executor = options->executors[i];
		r = executor->ops->plan_prepare(executor, plan->plan);
		if (r < 0)
			plan_fail(plan, i, r);
	}
	if (job->has_more)
		return;
	plan_sum_constants(plan);
	options->hooks.plan_make(options->hooks.context);
}

/* Return the devices, as bits, that can run the plan now or once its memory is resident. */
static uint32_t plan_devices(const struct session_plan *plan)
{
	const struct plan *parsed = plan->plan;
	uint32_t devices = 0;

	for (unsigned int i = 0; i < plan->session->server->options.n_executors; i++)
		if (parsed->device_state[i] == PLAN_DEVICE_READY ||
		    parsed->device_state[i] == PLAN_DEVICE_EVICTED)
			devices |= 1u << i;
	return devices;
}

/* Tell the client why no permitted device can run the plan. Return: the negative errno sent. */
static int plan_refuse(struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;
	struct session *session = plan->session;
	const struct plan *parsed = plan->plan;
	struct residency_about about;

	for (unsigned int i = RBK_DEVICE_GPU; i < options->n_executors; i++) {
		if (parsed->device_state[i] != PLAN_DEVICE_NO_MEMORY || !plan->memory.residency ||
		    (parsed->pinned && parsed->pinned_device != i))
			continue;
		residency_about(options->residency, &plan->memory, i, &about);
		session_reply_result(
			session, RBK_WIRE_PLAN_ADD, plan->cookie, -EDQUOT,
			"the plan requires %s of memory on device %u, and tenant %s can "
			"have %s there; no other device can run it",
			SIZE_BESIDE(about.required_bytes, about.available_bytes), i,
			tenant_name(session->tenant),
			SIZE_BESIDE(about.available_bytes, about.required_bytes));
		return -EDQUOT;
	}
	if (parsed->pinned) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, plan->cookie, -ENODEV,
				     "the plan is pinned to device %u, which cannot run it",
				     parsed->pinned_device);
		return -ENODEV;
	}
	if (parsed->device_state[RBK_DEVICE_CPU] == PLAN_DEVICE_NO_MEMORY) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, plan->cookie, -ENOMEM,
				     "no device can run the plan: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	session_reply_result(session, RBK_WIRE_PLAN_ADD, plan->cookie, -ENODEV,
			     "no device can run the plan: %s", strerror(ENODEV));
	return -ENODEV;
}

/* Return the bytes of the executors' translations, each of which is kept. */
static uint64_t plan_translation_bytes(const struct session *session, const struct plan *plan)
{
	const struct server_options *options = &session->server->options;
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < options->n_executors; i++)
		bytes += plan_is_for(plan, i) ? exec_translation_bytes(plan) : 0;
	return bytes;
}

/*
 * Replace the charge for scratch, or for the measured use, by the executors' host memory: measured
 * (@is_measured) or actual.
 * Return: 0; -EDQUOT, sent.
 */
static int plan_charge_host(struct session_plan *plan, bool is_measured)
{
	const struct server_options *options = &plan->session->server->options;
	struct account *account = plan->session->tenant->account;
	char why[ACCOUNT_TEXT_BYTES];
	uint64_t host_bytes = 0;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		host_bytes += plan->plan->host_bytes[i];
		/* Add an estimate for each executor that does not measure. */
		if (is_measured && plan_is_for(plan->plan, i) &&
		    !options->executors[i]->ops->plan_measure)
			host_bytes += exec_translation_bytes(plan->plan);
	}
	charge_deinit(&plan->charges[1]);
	if (account_charge(account, &plan->charges[1], ACCOUNT_HOST_BYTES, host_bytes) == 0)
		return 0;
	session_reply_result(plan->session, RBK_WIRE_PLAN_ADD, plan->cookie, -EDQUOT,
			     "no room for the plan: %s", account_explain(account, why));
	return -EDQUOT;
}

/* Answer the client: the plan is resident, or residency knows that it must wait. */
static void plan_settled(struct plan_memory *memory)
{
	struct session_plan *plan = plan_of_memory(memory);
	struct session *session = plan->session;
	const struct plan *parsed = plan->plan;
	struct rbk_wire_plan reply = {
		.reply = {.type = RBK_WIRE_PLAN_ADD, .cookie = plan->cookie},
		.id = plan->id,
		.devices = plan_devices(plan),
		.constant_bytes = parsed->constant_bytes,
		.scratch_bytes = parsed->scratch_bytes,
		.flops_fixed = parsed->cost.flops_fixed,
		.flops_row = parsed->cost.flops_row,
		.bytes_fixed = parsed->touched_fixed,
		.bytes_row = parsed->touched_row,
	};

	if (session->is_ending)
		return;
	plan->state = SLOT_READY;
	session_stats_plan_added(plan);
	session->plans[plan->id & ((1u << PLAN_ID_SLOT_BITS) - 1)] = plan;
	session_reply(session, &reply.reply, sizeof(reply));
}

/* Return: 0: plan_settled() was or will be called; a negative errno: the client was told. */
static int plan_accept(struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;
	uint32_t devices;
	int r;

	r = plan_charge_host(plan, false);
	if (r)
		return r;
	r = options->hooks.plan_ready(options->hooks.context, plan);
	plan->memory.plan = plan->plan;
	plan->memory.tenant = plan->session->tenant;
	plan->memory.session = plan->session->number;
	plan->memory.id = plan->id;
	plan->memory.n_evictions = &plan->session->stats.n_evictions;
	if (r == 0)
		r = residency_add(options->residency, &plan->memory, plan_settled);
	if (r < 0) {
		session_reply_result(plan->session, RBK_WIRE_PLAN_ADD, plan->cookie, r,
				     "the broker is out of memory");
		return r;
	}
	devices = plan_devices(plan);
	if (plan->plan->pinned)
		devices &= 1u << plan->plan->pinned_device;
	if (devices == 0)
		return plan_refuse(plan);
	if (r == RESIDENCY_E_SETTLED)
		plan_settled(&plan->memory);
	return 0;
}

static void plan_prepare_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	struct session *session = plan->session;

	plan->state = SLOT_LOADING;
	if (!session->is_ending && plan_accept(plan))
		plan_release(plan);
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
	plan->state = SLOT_LOADING;
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

/*
 * Charge, in advance, for the plan's translations and for the CPU executor's scratch, a block per
 * thread and one for the reactor. A description of a few bytes can request terabytes.
 * plan_measure_done() replaces the charge by the measured use.
 */
static int plan_charge_scratch(const struct session *session, struct session_plan *plan)
{
	const struct executor *cpu = session->server->options.executors[RBK_DEVICE_CPU];
	const struct plan *parsed = plan->plan;
	uint64_t bytes;

	/* Both are at most PLAN_MAX_BYTES. */
	if (parsed->pinned && parsed->pinned_device != RBK_DEVICE_CPU)
		bytes = 0;
	else if (!checked_mul(parsed->scratch_bytes + parsed->work_bytes, cpu->info.n_threads + 1,
			      &bytes))
		bytes = UINT64_MAX;
	if (!checked_add(bytes, plan_translation_bytes(session, parsed), &bytes))
		bytes = UINT64_MAX;
	return account_charge(session->tenant->account, &plan->charges[1], ACCOUNT_HOST_BYTES,
			      bytes);
}

/* Charge for the plan's own memory, and for residency's and the placer's records of it. */
static int plan_charge_itself(const struct session *session, struct session_plan *plan)
{
	const struct server_options *options = &session->server->options;
	const struct plan *parsed = plan->plan;
	uint64_t bytes = sizeof(*plan) + sizeof(*parsed) +
			 parsed->n_tensors * sizeof(parsed->tensors[0]) +
			 parsed->n_nodes * sizeof(parsed->nodes[0]) +
			 parsed->n_constants * sizeof(parsed->constants[0]) +
			 PLAN_MAX_WORKS * sizeof(parsed->works[0]) +
			 plan->pins.n * sizeof(plan->pins.of[0]) +
			 options->hooks.plan_bytes(options->hooks.context, parsed);

	for (uint32_t i = 0; i < options->n_executors; i++)
		if (options->executors[i]->info.memory_page_bytes > 0)
			bytes += parsed->n_constants * (uint64_t)RESIDENCY_CONSTANT_BYTES;
	return account_charge(session->tenant->account, &plan->charges[2], ACCOUNT_HOST_BYTES,
			      bytes);
}

/*
 * Replace the charge for the maximum by one for the verified plan.
 * Return: 0; -EDQUOT: a sentence is in the description's message, and the charges are unchanged.
 */
static int plan_charge(struct session_plan *plan)
{
	struct session *session = plan->session;
	struct account *account = session->tenant->account;
	struct description *description = plan->description;
	char why[ACCOUNT_TEXT_BYTES];

	description_uncharge(description);
	if (plan_charge_itself(session, plan) == 0 && plan_charge_scratch(session, plan) == 0)
		return 0;
	snprintf(description->message, sizeof(description->message),
		 "no room for the plan and its scratch tensors: %s", account_explain(account, why));
	charge_deinit(&plan->charges[1]);
	charge_deinit(&plan->charges[2]);
	description_charge(description, account);
	return -EDQUOT;
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

	if (description_may_check(plan->description))
		job->has_more = description_verify(plan->description, &plan->plan);
	else
		description_free_bytes(plan->description);
}

static void plan_verify_done(struct offload_job *job)
{
	struct session_plan *plan = plan_of_job(job);
	struct session *session = plan->session;
	struct description *description = plan->description;
	const int r = description->result;
	const uint32_t index = plan->id;

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
	if (session->is_ending || plan_charge(plan)) {
		plan_drop(plan, -EDQUOT);
		return;
	}
	session->plan_generations[index]++;
	if (plan->wanted_id != index)
		session->plan_generations[index] = (uint16_t)(plan->wanted_id >> PLAN_ID_SLOT_BITS);
	plan->id = (uint32_t)session->plan_generations[index] << PLAN_ID_SLOT_BITS | index;
	plan->pins = description_take_pins(description);
	plan->description = description_free(description);
	plan_submit(plan, OFFLOAD_PLAN_MEASURE, plan_measure_run, plan_measure_done);
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
	if (account_charge(session->tenant->account, &plan->charges[0], ACCOUNT_PLANS, 1)) {
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
		charge_deinit(&plan->charges[0]);
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
	plan->state = SLOT_REMOVING;
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
