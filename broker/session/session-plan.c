/* SPDX-License-Identifier: MIT */
/*
 * Plans of a session
 *
 * A description is verified on the reactor (bounded, no device involved), then every executor
 * prepares the plan on the setup thread. Removal stops new tasks at once, waits for those in
 * flight, then releases on the setup thread, which works in order: a plan is always released
 * before an arena that its constants lie in.
 */
#include <errno.h>
#include <string.h>

#include "session/plan-load.h"
#include "session/server-private.h"
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
	for (unsigned int i = 0; i < ARRAY_SIZE(slot->charges); i++)
		charge_deinit(&slot->charges[i]);
	for (unsigned int i = 0; i < ARRAY_SIZE(slot->device_charges); i++)
		charge_deinit(&slot->device_charges[i]);
	free(slot);
}

static void plan_release_run(struct offload_job *job)
{
	struct session_plan *slot = plan_of_job(job);
	const struct server_options *options = &slot->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		slot->blocks[i] = plan_unload(options->executors[i], slot->plan, slot->blocks[i]);
		options->executors[i]->ops->plan_release(options->executors[i], slot->plan);
	}
	slot->plan = plan_free(slot->plan);
}

static void plan_release_done(struct offload_job *job)
{
	struct session_plan *slot = plan_of_job(job);
	struct session *session = slot->session;

	if (slot->wants_reply)
		session_reply_result(session, RBK_WIRE_PLAN_REMOVE, slot->cookie, 0, NULL);
	plan_forget(slot);
	session_job_done(session);
}

static void plan_release(struct session_plan *slot)
{
	slot->state = SLOT_RELEASING;
	for (unsigned int i = 0; i < slot->plan->n_constants; i++)
		arena_of_constant(&slot->plan->constants[i])->n_plans--;
	slot->job = (struct offload_job){.run = plan_release_run, .done = plan_release_done};
	session_job_started(slot->session);
	offload_submit(slot->session->server->options.offload, &slot->job);
}

static void plan_prepare_run(struct offload_job *job)
{
	struct session_plan *slot = plan_of_job(job);
	const struct server_options *options = &slot->session->server->options;
	struct executor *executor;
	int r;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		/* Another device would pack or mirror constants that no task could use. */
		if (slot->plan->pinned && i != slot->plan->pinned_device)
			continue;
		executor = options->executors[i];
		r = executor->ops->plan_prepare(executor, slot->plan);
		if (r == 0 && slot->plan->device_state[i] == PLAN_DEVICE_EVICTED)
			slot->blocks[i] = plan_load(executor, slot->plan);
		if (r == 0 || r == EXECUTOR_E_UNSUPPORTED)
			continue;
		/* A device that fails is one device less, and the plan may still run elsewhere. */
		slot->plan->device_state[i] =
			r == -ENOMEM ? PLAN_DEVICE_NO_MEMORY : PLAN_DEVICE_FAILED;
		log_warning("device %u (%s) cannot prepare a plan: %s", i, executor->info.name,
			    strerror(-r));
	}
}

/* Return: 0; ACCOUNT_E_QUOTA. */
static int plan_charge_devices(struct session_plan *slot)
{
	const struct server_options *options = &slot->session->server->options;
	struct account *account = slot->session->tenant->account;
	int r = 0;

	for (unsigned int i = 0; i < options->n_executors && r == 0; i++)
		r = account_charge(account, &slot->device_charges[i], account_vram(i),
				   slot->plan->device_bytes[i]);
	return r;
}

/* Return: 0, or a negative errno with the sentence sent. */
static int plan_accept(struct session_plan *slot, uint32_t *ret_devices)
{
	const struct server_options *options = &slot->session->server->options;
	struct session *session = slot->session;
	const struct plan *plan = slot->plan;
	uint64_t host_bytes = 0;
	char why[ACCOUNT_TEXT_BYTES];
	uint32_t devices = 0;
	int r = 0;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		host_bytes += plan->host_bytes[i];
		if (plan->device_state[i] == PLAN_DEVICE_READY)
			devices |= 1u << i;
	}

	charge_deinit(&slot->charges[1]);
	if (plan->pinned && !(devices & 1u << plan->pinned_device)) {
		r = -ENODEV;
		session_reply_result(session, RBK_WIRE_PLAN_ADD, slot->cookie, r,
				     "the plan is pinned to device %u, which cannot run it",
				     plan->pinned_device);
	} else if (devices == 0) {
		r = plan->device_state[RBK_DEVICE_CPU] == PLAN_DEVICE_NO_MEMORY ? -ENOMEM : -ENODEV;
		session_reply_result(session, RBK_WIRE_PLAN_ADD, slot->cookie, r,
				     "no device can run the plan: %s", strerror(-r));
	} else if (account_charge(session->tenant->account, &slot->charges[1], ACCOUNT_HOST_BYTES,
				  host_bytes) ||
		   plan_charge_devices(slot)) {
		r = -EDQUOT;
		session_reply_result(session, RBK_WIRE_PLAN_ADD, slot->cookie, r,
				     "no room for the plan: %s",
				     account_explain(session->tenant->account, why));
	}
	*ret_devices = devices;
	return r;
}

static void plan_prepare_done(struct offload_job *job)
{
	struct session_plan *slot = plan_of_job(job);
	struct session *session = slot->session;
	const struct server_hooks *hooks = &session->server->options.hooks;
	const struct plan *plan = slot->plan;
	struct rbk_wire_plan reply = {
		.reply = {.type = RBK_WIRE_PLAN_ADD, .cookie = slot->cookie},
		.id = slot->id,
		.constant_bytes = plan->constant_bytes,
		.scratch_bytes = plan->scratch_bytes,
		.flops_fixed = plan->cost.flops_fixed,
		.flops_row = plan->cost.flops_row,
		.bytes_fixed = plan->touched_fixed,
		.bytes_row = plan->touched_row,
	};

	slot->state = SLOT_READY;
	if (!session->is_ending && plan_accept(slot, &reply.devices) == 0) {
		hooks->plan_ready(hooks->context, slot);
		session->plans[slot->id & ((1u << PLAN_ID_SLOT_BITS) - 1)] = slot;
		session_reply(session, &reply.reply, sizeof(reply), NULL, 0);
	} else if (!session->is_ending) {
		plan_release(slot);
	}
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
	if (!checked_mul(plan->scratch_bytes, cpu->info.n_threads + 1, &bytes))
		bytes = UINT64_MAX;
	return account_charge(session->tenant->account, &slot->charges[1], ACCOUNT_HOST_BYTES,
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
	if (plan_charge_scratch(session, slot)) {
		session_reply_result(session, RBK_WIRE_PLAN_ADD, cookie, -EDQUOT,
				     "no room for the plan's scratch tensors: %s",
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
		charge_deinit(&slot->charges[0]);
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
	slot->job = (struct offload_job){.run = plan_prepare_run, .done = plan_prepare_done};
	session_job_started(session);
	offload_submit(session->server->options.offload, &slot->job);
	return 0;
}

int session_plan_remove(struct session *session, uint32_t cookie, uint32_t id)
{
	uint32_t index = id & ((1u << PLAN_ID_SLOT_BITS) - 1);
	struct session_plan *slot = index < session->n_plans ? session->plans[index] : NULL;
	const struct server_hooks *hooks = &session->server->options.hooks;

	if (!slot || slot->id != id) {
		session_reply_result(session, RBK_WIRE_PLAN_REMOVE, cookie, -ENOENT,
				     "there is no plan %u", id);
		return 0;
	}
	session->plans[index] = NULL;
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
