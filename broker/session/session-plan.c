/* SPDX-License-Identifier: MIT */
/*
 * Plans of a session
 *
 * A description is verified on the reactor (bounded, no device involved), then every executor
 * prepares the plan on the setup thread, compiling a part at a time with others' jobs in between,
 * then residency brings its memory to a device if there is
 * room; the client is answered after that. Removal stops new tasks at once, waits for those in
 * flight, has the plan's device memory given back, then releases it on the setup thread. An arena
 * keeps its count of plans until then: their constants lie in it.
 */
#include <errno.h>
#include <string.h>

#include "session/residency.h"
#include "session/server-private.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"

enum { PLAN_ID_SLOT_BITS = 16 };

static struct session_plan *plan_of_job(struct offload_job *job)
{
	return container_of(job, struct session_plan, job);
}

static struct session_arena *arena_of_constant(const struct plan_constant *constant)
{
	return container_of(constant->arena, struct session_arena, exec);
}

static void plan_forget(struct session_plan *slot)
{
	struct session *session = slot->session;
	uint32_t index = slot->id & ((1u << PLAN_ID_SLOT_BITS) - 1);

	session->plan_slots[index] = NULL;
	session->plans[index] = NULL;
	session->server->n_plans--;
	session->n_added_plans--;
	for (unsigned int i = 0; i < ARRAY_SIZE(slot->charges); i++)
		charge_deinit(&slot->charges[i]);
	free(slot);
}

static void plan_release_run(struct offload_job *job)
{
	struct session_plan *slot = plan_of_job(job);
	const struct server_options *options = &slot->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++)
		options->executors[i]->ops->plan_release(options->executors[i], slot->plan);
}

static void plan_release_done(struct offload_job *job)
{
	struct session_plan *slot = plan_of_job(job);
	struct session *session = slot->session;
	const struct server_hooks *hooks = &session->server->options.hooks;

	hooks->plan_freed(hooks->context, slot);
	for (unsigned int i = 0; i < slot->plan->n_constants; i++)
		arena_of_constant(&slot->plan->constants[i])->n_plans--;
	slot->plan = plan_free(slot->plan);
	if (slot->wants_reply)
		session_reply_result(session, RBK_WIRE_PLAN_REMOVE, slot->cookie, 0, NULL);
	plan_forget(slot);
	session_job_done(session);
}

/* Its memory is given back. */
static void plan_removed(struct session_plan *slot)
{
	slot->job = (struct offload_job){.run = plan_release_run, .done = plan_release_done};
	offload_submit(slot->session->server->options.offload, &slot->job);
}

static void plan_release(struct session_plan *slot)
{
	slot->state = SLOT_RELEASING;
	session_stats_plan_leaving(slot);
	session_job_started(slot->session);
	residency_remove(slot->session->server->options.residency, slot, plan_removed);
}

/* Another device would pack or mirror constants that no task could use. */
static bool plan_is_for(const struct plan *plan, unsigned int device)
{
	return !plan->pinned || plan->pinned_device == device;
}

/* Compiles a part of it. Return: whether there is more. */
static bool plan_compile(const struct session_plan *slot)
{
	const struct server_options *options = &slot->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		struct executor *executor = options->executors[i];

		if (plan_is_for(slot->plan, i) && executor->ops->plan_compile &&
		    executor->ops->plan_compile(executor, slot->plan) == EXECUTOR_E_MORE)
			return true;
	}
	return false;
}

static void plan_prepare_run(struct offload_job *job)
{
	static struct log_limit failure_limit; /* the setup thread's */
	struct session_plan *slot = plan_of_job(job);
	const struct server_options *options = &slot->session->server->options;
	struct executor *executor;
	uint64_t n_unlogged;
	int r;

	slot->compiles = plan_compile(slot);
	for (unsigned int i = 0; i < options->n_executors && !slot->compiles; i++) {
		if (!plan_is_for(slot->plan, i))
			continue;
		executor = options->executors[i];
		r = executor->ops->plan_prepare(executor, slot->plan);
		if (r == 0 || r == EXECUTOR_E_UNSUPPORTED)
			continue;
		/* A device that fails is one device less, and the plan may still run elsewhere. */
		slot->plan->device_state[i] =
			r == -ENOMEM ? PLAN_DEVICE_NO_MEMORY : PLAN_DEVICE_FAILED;
		if (log_limit_pass(&failure_limit, clock_now_ns(), &n_unlogged))
			log_warning_of(
				LOG_OF_DEVICE(i), LOG_PLAN_NOT_PREPARED,
				"device %u (%s) cannot prepare a plan, nor %llu before it: %s", i,
				executor->info.name, (unsigned long long)n_unlogged, strerror(-r));
	}
}

/* Devices that can run the plan, now or once its memory is there. */
static uint32_t plan_devices(const struct session_plan *slot)
{
	const struct plan *plan = slot->plan;
	uint32_t devices = 0;

	for (unsigned int i = 0; i < slot->session->server->options.n_executors; i++)
		if (plan->device_state[i] == PLAN_DEVICE_READY ||
		    plan->device_state[i] == PLAN_DEVICE_EVICTED)
			devices |= 1u << i;
	return devices;
}

/* Says why no device that may run the plan can. Return: the negative errno sent. */
static int plan_refuse(struct session_plan *slot)
{
	const struct server_options *options = &slot->session->server->options;
	struct session *session = slot->session;
	const struct plan *plan = slot->plan;
	struct residency_about about;

	for (unsigned int i = RBK_DEVICE_GPU; i < options->n_executors; i++) {
		if (plan->device_state[i] != PLAN_DEVICE_NO_MEMORY || !slot->residency ||
		    (plan->pinned && plan->pinned_device != i))
			continue;
		residency_about(options->residency, slot, i, &about);
		session_reply_result(session, RBK_WIRE_PLAN_ADD, slot->cookie, -EDQUOT,
				     "the plan requires %llu bytes of memory on device %u, and "
				     "tenant %s can have %llu there; nothing else can run it",
				     (unsigned long long)about.required_bytes, i,
				     tenant_name(session->tenant),
				     (unsigned long long)about.available_bytes);
		return -EDQUOT;
	}
	if (plan->pinned) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, slot->cookie, -ENODEV,
				     "the plan is pinned to device %u, which cannot run it",
				     plan->pinned_device);
		return -ENODEV;
	}
	if (plan->device_state[RBK_DEVICE_CPU] == PLAN_DEVICE_NO_MEMORY) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, slot->cookie, -ENOMEM,
				     "no device can run the plan: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	session_reply_result(session, RBK_WIRE_PLAN_ADD, slot->cookie, -ENODEV,
			     "no device can run the plan: %s", strerror(ENODEV));
	return -ENODEV;
}

/* Replaces what was charged for scratch by what the executors took. Return: 0; -EDQUOT, sent. */
static int plan_charge_host(struct session_plan *slot)
{
	const struct server_options *options = &slot->session->server->options;
	struct account *account = slot->session->tenant->account;
	char why[ACCOUNT_TEXT_BYTES];
	uint64_t host_bytes = 0;

	for (unsigned int i = 0; i < options->n_executors; i++)
		host_bytes += slot->plan->host_bytes[i];
	charge_deinit(&slot->charges[1]);
	if (account_charge(account, &slot->charges[1], ACCOUNT_HOST_BYTES, host_bytes) == 0)
		return 0;
	session_reply_result(slot->session, RBK_WIRE_PLAN_ADD, slot->cookie, -EDQUOT,
			     "no room for the plan: %s", account_explain(account, why));
	return -EDQUOT;
}

/* Its memory is on a device, or it is clear that it will have to wait. */
static void plan_settled(struct session_plan *slot)
{
	struct session *session = slot->session;
	const struct plan *plan = slot->plan;
	struct rbk_wire_plan reply = {
		.reply = {.type = RBK_WIRE_PLAN_ADD, .cookie = slot->cookie},
		.id = slot->id,
		.devices = plan_devices(slot),
		.constant_bytes = plan->constant_bytes,
		.scratch_bytes = plan->scratch_bytes,
		.flops_fixed = plan->cost.flops_fixed,
		.flops_row = plan->cost.flops_row,
		.bytes_fixed = plan->touched_fixed,
		.bytes_row = plan->touched_row,
	};

	if (session->is_ending)
		return;
	slot->state = SLOT_READY;
	session_stats_plan_added(slot);
	session->plans[slot->id & ((1u << PLAN_ID_SLOT_BITS) - 1)] = slot;
	session_reply(session, &reply.reply, sizeof(reply), NULL, 0);
}

/* Return: 0, plan_settled() will be or was called; negative errno, the client was told. */
static int plan_accept(struct session_plan *slot)
{
	const struct server_options *options = &slot->session->server->options;
	uint32_t devices;
	int r;

	r = plan_charge_host(slot);
	if (r)
		return r;
	r = options->hooks.plan_ready(options->hooks.context, slot);
	if (r == 0)
		r = residency_add(options->residency, slot, plan_settled);
	if (r < 0) {
		session_reply_result(slot->session, RBK_WIRE_PLAN_ADD, slot->cookie, r,
				     "the broker is out of memory");
		return r;
	}
	devices = plan_devices(slot);
	if (slot->plan->pinned)
		devices &= 1u << slot->plan->pinned_device;
	if (devices == 0)
		return plan_refuse(slot);
	if (r == RESIDENCY_E_SETTLED)
		plan_settled(slot);
	return 0;
}

static void plan_prepare_done(struct offload_job *job)
{
	struct session_plan *slot = plan_of_job(job);
	struct session *session = slot->session;

	/* Behind what others have asked for meanwhile. */
	if (slot->compiles && !session->is_ending) {
		offload_submit(session->server->options.offload, job);
		return;
	}
	slot->state = SLOT_LOADING;
	if (!session->is_ending && plan_accept(slot))
		plan_release(slot);
	session_job_done(session);
}

static struct exec_arena *find_arena(void *context, uint16_t arena_id, const char **ret_why)
{
	struct session *session = context;
	struct session_arena *slot =
		arena_id < session->n_arenas ? session->arenas[arena_id] : NULL;

	if (!slot) {
		*ret_why = "there is no such arena";
		return NULL;
	}
	if (!slot->exec.immutable) {
		*ret_why = "the arena is not sealed against writing";
		return NULL;
	}
	return &slot->exec;
}

/*
 * The scratch that the CPU executor will hold, a block per thread and one for the reactor, charged
 * before anything is prepared: a description of a few bytes can ask for terabytes of it.
 * plan_accept() replaces the charge by what all executors took.
 */
static int plan_charge_scratch(const struct session *session, struct session_plan *slot)
{
	const struct executor *cpu = session->server->options.executors[RBK_DEVICE_CPU];
	const struct plan *plan = slot->plan;
	uint64_t bytes;

	if (plan->pinned && plan->pinned_device != RBK_DEVICE_CPU)
		return 0;
	/* Neither is above PLAN_MAX_BYTES. */
	if (!checked_mul(plan->scratch_bytes + plan->work_bytes, cpu->info.n_threads + 1, &bytes))
		bytes = UINT64_MAX;
	return account_charge(session->tenant->account, &slot->charges[1], ACCOUNT_HOST_BYTES,
			      bytes);
}

/* The plan as such, what residency takes to find its constants, and what placement knows of it. */
static int plan_charge_itself(const struct session *session, struct session_plan *slot)
{
	const struct server_options *options = &session->server->options;
	const struct plan *plan = slot->plan;
	uint64_t bytes = sizeof(*slot) + sizeof(*plan) +
			 plan->n_tensors * sizeof(plan->tensors[0]) +
			 plan->n_nodes * sizeof(plan->nodes[0]) +
			 plan->n_constants * sizeof(plan->constants[0]) +
			 options->hooks.plan_bytes(options->hooks.context, plan);

	for (uint32_t i = 0; i < options->n_executors; i++)
		if (options->executors[i]->info.memory_page_bytes > 0)
			bytes += plan->n_constants * (uint64_t)RESIDENCY_CONSTANT_BYTES;
	return account_charge(session->tenant->account, &slot->charges[2], ACCOUNT_HOST_BYTES,
			      bytes);
}

static int plan_make(struct session *session, uint32_t cookie, const void *desc, size_t desc_bytes,
		     struct session_plan *slot)
{
	const struct plan_arena_lookup lookup = {.find = find_arena, .context = session};
	char message[PLAN_MESSAGE_BYTES];
	char why[ACCOUNT_TEXT_BYTES];
	int r;

	if (account_charge(session->tenant->account, &slot->charges[0], ACCOUNT_PLANS, 1)) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -EDQUOT,
				     "no room for the plan: %s",
				     account_explain(session->tenant->account, why));
		return -EDQUOT;
	}
	r = plan_new(desc, desc_bytes, &lookup, message, &slot->plan);
	if (r == PLAN_E_INVALID) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -EINVAL, "%s", message);
		return -EINVAL;
	}
	if (r) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, r,
				     "the broker cannot hold the plan: %s", strerror(-r));
		return r;
	}
	if (plan_charge_itself(session, slot) || plan_charge_scratch(session, slot)) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -EDQUOT,
				     "no room for the plan and its scratch tensors: %s",
				     account_explain(session->tenant->account, why));
		slot->plan = plan_free(slot->plan);
		return -EDQUOT;
	}
	return 0;
}

int session_plan_add(struct session *session, uint32_t cookie, const void *desc, size_t desc_bytes)
{
	struct session_plan *slot;
	uint32_t index;

	for (index = 0; index < session->n_plans && session->plan_slots[index]; index++)
		;
	if (index == session->n_plans) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -EDQUOT,
				     "the session already has %u plans, the most allowed", index);
		return 0;
	}
	slot = calloc(1, sizeof(*slot));
	if (!slot) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -ENOMEM,
				     "the broker is out of memory");
		return 0;
	}
	if (plan_make(session, cookie, desc, desc_bytes, slot)) {
		for (unsigned int i = 0; i < ARRAY_SIZE(slot->charges); i++)
			charge_deinit(&slot->charges[i]);
		free(slot);
		return 0;
	}

	slot->session = session;
	slot->id = (uint32_t)++session->plan_generations[index] << PLAN_ID_SLOT_BITS | index;
	slot->state = SLOT_PREPARING;
	slot->cookie = cookie;
	for (unsigned int i = 0; i < slot->plan->n_constants; i++)
		arena_of_constant(&slot->plan->constants[i])->n_plans++;
	session->plan_slots[index] = slot;
	session->server->n_plans++;
	session->n_added_plans++;
	slot->job = (struct offload_job){.run = plan_prepare_run, .done = plan_prepare_done};
	session_job_started(session);
	offload_submit(session->server->options.offload, &slot->job);
	return 0;
}

struct session_plan *session_plan_find(const struct session *session, uint32_t id)
{
	uint32_t index = id & ((1u << PLAN_ID_SLOT_BITS) - 1);
	struct session_plan *slot = index < session->n_plans ? session->plans[index] : NULL;

	return slot && slot->id == id ? slot : NULL;
}

int session_plan_remove(struct session *session, uint32_t cookie, uint32_t id)
{
	struct session_plan *slot = session_plan_find(session, id);
	const struct server_hooks *hooks = &session->server->options.hooks;

	if (!slot) {
		session_reply_result(session, RBK_WIRE_PLAN_REMOVE, cookie, -ENOENT,
				     "there is no plan %u", id);
		return 0;
	}
	session->plans[id & ((1u << PLAN_ID_SLOT_BITS) - 1)] = NULL;
	slot->state = SLOT_REMOVING;
	slot->cookie = cookie;
	slot->wants_reply = true;
	hooks->plan_removing(hooks->context, slot);
	if (slot->n_in_flight == 0)
		plan_release(slot);
	return 0;
}

void session_plan_idle(struct session_plan *slot)
{
	if (slot->state == SLOT_REMOVING && !slot->session->is_ending)
		plan_release(slot);
}

void session_plan_discard(struct session_plan *slot)
{
	slot->wants_reply = false;
	slot->session->plans[slot->id & ((1u << PLAN_ID_SLOT_BITS) - 1)] = NULL;
	plan_release(slot);
}
