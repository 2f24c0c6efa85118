/* SPDX-License-Identifier: MIT */
/*
 * Arenas of a session
 *
 * A memfd is mapped, its pages are faulted in, a step at a time, it is wrapped for those devices
 * that want that, and the devices import it. The setup thread does no more than import it, because
 * a client can make the rest last: faulting in waits for whoever punches holes into the memfd, and
 * wrapping, from Linux 6.13 on, for whoever writes to it. So a thread of closers.h does that, in
 * the lane of the account. An arena that is to be fixed is sealed only after the import, because of
 * kernels that import nothing with that seal, in the lane, too: sealing waits for whoever writes to
 * the memfd. Up to then the client may have taken pages away, so the arena is gone through once
 * more, which takes little where all are there. A slot is PREPARING meanwhile and cannot be named
 * by a task; it becomes READY when the client is answered. Removal waits for the tasks that use it
 * (REMOVING), then for the setup thread to undo what it did (RELEASING); the client is answered
 * after that, so that it can seal the memfd.
 *
 * Unmapping waits for whoever goes through the mappings of the memfd, as punching holes does, and
 * the client may have closed its memfd: whoever lets go of it last frees all of its pages, in one
 * go. So a thread of closers.h unmaps the arena, a step at a time, and closes what is still open;
 * the arena stays charged until then.
 *
 * An arena that a device makes goes the same way; what differs is where its memory comes from, that
 * its descriptor stays open, and that its charges outlive it: see hold.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "session/server-private.h"
#include "session/sigbus.h"
#include "util/error.h"
#include "util/log.h"
#include "util/plural.h"

static struct session_arena *arena_of_job(struct offload_job *job)
{
	return container_of(job, struct session_arena, job);
}

static void arena_free(struct session_arena *slot)
{
	/* What the client may keep of an exported arena stays charged. */
	struct charge *const kept[HOLD_CHARGES] = {
		&slot->charges[ARENA_CHARGE_HOST_BYTES],
		&slot->charges[ARENA_CHARGE_FD],
		&slot->charges[ARENA_CHARGE_GTT],
	};

	if (slot->hold)
		hold_leave_dma_buf(slot->hold, steal_fd(&slot->fd), kept);
	close_fd(slot->fd);
	for (unsigned int i = 0; i < ARRAY_SIZE(slot->charges); i++)
		charge_deinit(&slot->charges[i]);
	free(slot);
}

static void arena_forget(struct session_arena *slot)
{
	struct session *session = slot->session;

	session->arena_slots[slot->id] = NULL;
	session->arenas[slot->id] = NULL;
	session->arena_bytes -= slot->bytes;
	session->server->n_arenas--;
	session->n_added_arenas--;
	arena_free(slot);
}

static uint32_t arena_request(const struct session_arena *slot)
{
	return slot->is_exported ? RBK_WIRE_ARENA_NEW : RBK_WIRE_ARENA_ADD;
}

static void arena_refuse(struct session_arena *slot)
{
	struct session *session = slot->session;
	uint32_t type = arena_request(slot);
	int r = slot->map_result;

	if (type == RBK_WIRE_ARENA_NEW && r == EXECUTOR_E_NO_MEMORY) {
		session_reply_result(session, type, slot->cookie, -ENOMEM,
				     "the device has no memory for an arena of %llu bytes",
				     (unsigned long long)slot->bytes);
	} else if (type == RBK_WIRE_ARENA_NEW) {
		/* Refused, lost, or too much for the process: a memfd will do. */
		session_reply_result(session, type, slot->cookie, r == -ENOMEM ? r : -EOPNOTSUPP,
				     "the device cannot make an arena of %llu bytes now",
				     (unsigned long long)slot->bytes);
	} else if (r == ARENA_E_UNSUITABLE) {
		session_reply_result(session, type, slot->cookie, -EINVAL, "%s", slot->map_message);
		session_end(session, true, slot->map_message);
	} else {
		session_reply_result(session, type, slot->cookie, r,
				     "the broker cannot map the arena: %s", strerror(-r));
	}
}

static void arena_leave(struct session_arena *slot);

/* Lets go of the memory: of a step of it. */
static void arena_leave_run(struct closers_job *job)
{
	struct session_arena *slot = container_of(job, struct session_arena, lane_job);

	exec_arena_unwrap(&slot->exec);
	if (arena_unmap(&slot->exec) && !slot->is_exported)
		slot->fd = close_fd(slot->fd);
}

static void arena_leave_done(struct closers_job *job)
{
	struct session_arena *slot = container_of(job, struct session_arena, lane_job);
	struct session *session = slot->session;

	/* The tenant's other jobs in the lane get in between. */
	if (slot->exec.base) {
		arena_leave(slot);
		session_lane_done(session);
		return;
	}
	if (slot->map_result)
		arena_refuse(slot);
	else if (slot->wants_reply)
		session_reply_result(session, RBK_WIRE_ARENA_REMOVE, slot->cookie, 0, NULL);
	arena_forget(slot);
	session_lane_done(session);
}

/* No executor knows the arena any more. */
static void arena_leave(struct session_arena *slot)
{
	struct session *session = slot->session;

	slot->state = SLOT_RELEASING;
	slot->lane_job = (struct closers_job){.run = arena_leave_run, .done = arena_leave_done};
	session_submit_to_lane(session, &slot->lane_job);
}

static void arena_release_run(struct offload_job *job)
{
	struct session_arena *slot = arena_of_job(job);
	const struct server_options *options = &slot->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++)
		options->executors[i]->ops->arena_release(options->executors[i], &slot->exec);
	sigbus_remove(slot->fault_slot);
}

static void arena_release_done(struct offload_job *job)
{
	struct session_arena *slot = arena_of_job(job);
	struct session *session = slot->session;

	arena_leave(slot);
	session_job_done(session);
}

static void arena_release(struct session_arena *slot)
{
	slot->state = SLOT_RELEASING;
	slot->job = (struct offload_job){
		.run = arena_release_run,
		.done = arena_release_done,
		.cause = OFFLOAD_ARENA_UNMAP,
	};
	session_job_started(slot->session);
	session_submit(slot->session, &slot->job);
}

static bool arena_is_populated(const struct session_arena *slot)
{
	return slot->n_bytes_done == slot->bytes;
}

/* Is it to be sealed now? */
static bool arena_wants_seal(const struct session_arena *slot)
{
	return slot->is_imported && slot->fixes && !slot->exec.immutable && !slot->was_sealed;
}

/* Needs the descriptor no more. */
static void arena_finish(struct session_arena *slot)
{
	slot->exec.is_fixed =
		slot->exec.immutable || (slot->is_sealed && arena_is_whole(slot->fd, slot->bytes));
	slot->fd = close_fd(slot->fd);
}

static void arena_import_run(struct offload_job *job)
{
	struct session_arena *slot = arena_of_job(job);
	const struct session *session = slot->session;
	const struct server_options *options = &session->server->options;

	slot->exec.fd = slot->fd;
	slot->exec.owner = tenant_owner(session->tenant, session->uid);
	for (unsigned int i = 0; i < options->n_executors; i++)
		options->executors[i]->ops->arena_import(options->executors[i], &slot->exec);
	slot->exec.fd = -1;
	slot->is_imported = true;
	if (!arena_wants_seal(slot))
		arena_finish(slot);
}

/* Maps it, or seals it when that is due, and faults in a step of it. */
static void arena_fill_run(struct closers_job *job)
{
	struct session_arena *slot = container_of(job, struct session_arena, lane_job);
	uint64_t bytes;

	if (!slot->exec.base)
		slot->map_result = arena_map(slot->fd, slot->bytes, &slot->exec, slot->map_message);
	if (slot->map_result)
		return;
	if (arena_wants_seal(slot)) {
		slot->was_sealed = true;
		slot->is_sealed = arena_fix(slot->fd);
		if (slot->is_sealed)
			slot->n_bytes_done = 0;
	}
	bytes = slot->bytes - slot->n_bytes_done;
	bytes = bytes < ARENA_STEP_BYTES ? bytes : ARENA_STEP_BYTES;
	arena_populate(&slot->exec, slot->n_bytes_done, bytes);
	slot->n_bytes_done += bytes;
	if (slot->is_imported && arena_is_populated(slot))
		arena_finish(slot);
}

/* Does executor @i import dma-bufs of it? */
static bool arena_is_wrapped_for(const struct session_arena *slot, unsigned int i)
{
	const struct executor *executor = slot->session->server->options.executors[i];

	return executor->ops->arena_wrap && executor->info.arena_segment_bytes > 0 &&
	       !slot->exec.immutable;
}

static void arena_wrap_run(struct closers_job *job)
{
	struct session_arena *slot = container_of(job, struct session_arena, lane_job);
	const struct server_options *options = &slot->session->server->options;

	slot->exec.fd = slot->fd;
	for (unsigned int i = 0; i < options->n_executors; i++)
		if (arena_is_wrapped_for(slot, i))
			options->executors[i]->ops->arena_wrap(options->executors[i], &slot->exec);
	slot->exec.fd = -1;
}

/* The job of an arena that a device makes. Nobody else knows the memory before it is answered. */
static void arena_make_run(struct offload_job *job)
{
	struct session_arena *slot = arena_of_job(job);
	const struct session *session = slot->session;
	const struct server_options *options = &session->server->options;
	struct executor *exporter = session_exporter(session);

	slot->map_result =
		exporter->ops->arena_export(exporter, slot->bytes, &slot->exec, &slot->fd);
	if (slot->map_result)
		return;
	slot->exec.owner = tenant_owner(session->tenant, session->uid);
	slot->exec.fd = slot->fd;
	/* A dma-buf has no holes. */
	slot->exec.is_fixed = true;
	for (unsigned int i = 0; i < options->n_executors; i++)
		if (options->executors[i] != exporter)
			options->executors[i]->ops->arena_import(options->executors[i],
								 &slot->exec);
	slot->is_imported = true;
}

/* No new task finds it; it is released when nothing uses it. */
static void arena_withdraw(struct session_arena *slot)
{
	slot->session->arenas[slot->id] = NULL;
	slot->session->n_unfixed -= !slot->exec.is_fixed;
	slot->state = SLOT_REMOVING;
	if (slot->n_in_flight == 0)
		arena_release(slot);
}

/* Nothing more is done for it: it is ready, or goes again. */
static void arena_prepared(struct session_arena *slot)
{
	struct session *session = slot->session;
	uint32_t type = arena_request(slot), cookie = slot->cookie;
	struct rbk_wire_id_reply reply = {
		.reply = {.type = type, .cookie = cookie},
		.id = slot->id,
	};
	int r;

	/* Its session has ended: what is not imported needs no more than unmapping. */
	if (slot->map_result == 0 && !slot->is_imported) {
		arena_leave(slot);
		return;
	}
	/* The descriptor was closed when the memory was imported, unless that was cut short. */
	if (!slot->is_exported && slot->fd < 0)
		charge_deinit(&slot->charges[ARENA_CHARGE_FD]);
	if (slot->map_result) {
		arena_leave(slot);
		return;
	}

	/* Before any task can touch it. */
	r = sigbus_add(slot->exec.base, slot->exec.bytes, &slot->is_faulted, &slot->fault_slot);
	if (r) {
		session_reply_result(session, type, cookie, r, "the broker has too many arenas");
		arena_release(slot);
		return;
	}
	slot->state = SLOT_READY;
	session->arenas[slot->id] = slot;
	session->n_unfixed += !slot->exec.is_fixed;
	if (!slot->is_exported)
		session_reply(session, &reply.reply, sizeof(reply));
	else if (session_reply_fds(session, &reply.reply, sizeof(reply), &slot->fd, 1, false))
		arena_withdraw(slot);
}

static void arena_fill_done(struct closers_job *job);

/* The lane does a step at a time: the tenant's other jobs there get in between. */
static void arena_fill(struct session_arena *slot)
{
	slot->lane_job = (struct closers_job){.run = arena_fill_run, .done = arena_fill_done};
	session_submit_to_lane(slot->session, &slot->lane_job);
}

/* Return: has it dma-bufs made first? Not where its tenant has no room for them. */
static bool arena_wrap(struct session_arena *slot)
{
	const struct server_options *options = &slot->session->server->options;
	uint64_t n_fds = 0;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		uint64_t bytes = options->executors[i]->info.arena_segment_bytes;

		if (arena_is_wrapped_for(slot, i))
			n_fds += (slot->bytes + bytes - 1) / bytes;
	}
	slot->was_wrapped = true;
	if (n_fds == 0 || account_charge(slot->session->tenant->account,
					 &slot->charges[ARENA_CHARGE_WRAPS], ACCOUNT_FDS, n_fds))
		return false;
	slot->lane_job = (struct closers_job){.run = arena_wrap_run, .done = arena_fill_done};
	session_submit_to_lane(slot->session, &slot->lane_job);
	return true;
}

static void arena_import_done(struct offload_job *job)
{
	struct session_arena *slot = arena_of_job(job);
	struct session *session = slot->session;

	if (arena_wants_seal(slot) && !session->is_ending)
		arena_fill(slot);
	else
		arena_prepared(slot);
	session_job_done(session);
}

static void arena_fill_done(struct closers_job *job)
{
	struct session_arena *slot = container_of(job, struct session_arena, lane_job);
	struct session *session = slot->session;

	if (slot->map_result || session->is_ending) {
		arena_prepared(slot);
	} else if (!arena_is_populated(slot)) {
		arena_fill(slot);
	} else if (slot->is_imported) {
		arena_prepared(slot);
	} else if (slot->was_wrapped || !arena_wrap(slot)) {
		slot->job = (struct offload_job){
			.run = arena_import_run,
			.done = arena_import_done,
			.cause = OFFLOAD_ARENA_MAP,
		};
		session_job_started(session);
		session_submit(session, &slot->job);
	}
	session_lane_done(session);
}

static int arena_charge(struct session_arena *slot, const struct executor *exporter)
{
	struct account *account = slot->session->tenant->account;
	struct charge *charges = slot->charges;
	uint64_t bytes = slot->bytes;

	if (account_charge(account, &charges[ARENA_CHARGE_ONE], ACCOUNT_ARENAS, 1) ||
	    account_charge(account, &charges[ARENA_CHARGE_ARENA_BYTES], ACCOUNT_ARENA_BYTES,
			   bytes) ||
	    account_charge(account, &charges[ARENA_CHARGE_HOST_BYTES], ACCOUNT_HOST_BYTES, bytes) ||
	    account_charge(account, &charges[ARENA_CHARGE_MAPPING], ACCOUNT_MAPPINGS, 1) ||
	    account_charge(account, &charges[ARENA_CHARGE_FD], ACCOUNT_FDS, 1))
		return ACCOUNT_E_QUOTA;
	if (exporter && exporter->info.gtt_bytes > 0 &&
	    account_charge(account, &charges[ARENA_CHARGE_GTT], account_gtt(exporter->index),
			   bytes))
		return ACCOUNT_E_QUOTA;
	return 0;
}

/* Return: a charged slot, of the session from now on; NULL if the client was refused. */
static struct session_arena *arena_begin(struct session *session, uint32_t cookie, uint64_t bytes,
					 const struct executor *exporter)
{
	const struct server_limits *limits = &session->server->options.limits;
	uint32_t type = exporter ? RBK_WIRE_ARENA_NEW : RBK_WIRE_ARENA_ADD;
	char why[ACCOUNT_TEXT_BYTES];
	struct session_arena *slot;
	uint32_t id;

	/* Not 0: a reference that somebody forgot to set must name no arena. */
	for (id = 1; id < session->n_arenas && session->arena_slots[id]; id++)
		;
	if (id == session->n_arenas) {
		session_reply_result(session, type, cookie, -EDQUOT,
				     "the session already has %u arenas, the most allowed", id - 1);
		return NULL;
	}
	if (bytes > limits->max_arena_bytes ||
	    session->arena_bytes > limits->max_arena_bytes - bytes) {
		session_reply_result(session, type, cookie, -EDQUOT,
				     "the session's arenas would exceed %llu bytes",
				     (unsigned long long)limits->max_arena_bytes);
		return NULL;
	}

	slot = calloc(1, sizeof(*slot));
	if (slot) {
		slot->fd = -1;
		if (exporter && hold_new(session->server, 0, &slot->hold)) {
			free(slot);
			slot = NULL;
		}
	}
	if (!slot) {
		session_reply_result(session, type, cookie, -ENOMEM, "the broker is out of memory");
		return NULL;
	}
	slot->session = session;
	slot->id = (uint16_t)id;
	slot->fault_slot = -1;
	slot->bytes = bytes;
	slot->cookie = cookie;
	slot->state = SLOT_PREPARING;
	slot->is_exported = exporter != NULL;
	if (arena_charge(slot, exporter)) {
		session_reply_result(
			session, type, cookie, -EDQUOT, "no room for an arena of %llu bytes: %s",
			(unsigned long long)bytes, account_explain(session->tenant->account, why));
		arena_free(slot);
		return NULL;
	}
	session->arena_slots[id] = slot;
	session->arena_bytes += bytes;
	session->server->n_arenas++;
	session->n_added_arenas++;
	return slot;
}

int session_arena_add(struct session *session, uint32_t cookie, int *fd, uint64_t bytes, bool fixes)
{
	struct session_arena *slot = arena_begin(session, cookie, bytes, NULL);

	if (!slot)
		return 0;
	/* The pages that are charged while the arena waits for a thread must exist. */
	slot->map_result = arena_check(*fd, bytes, slot->map_message);
	if (slot->map_result) {
		arena_refuse(slot);
		arena_forget(slot);
		return 0;
	}
	slot->fd = steal_fd(fd);
	slot->fixes = fixes;
	arena_fill(slot);
	return 0;
}

struct executor *session_exporter(const struct session *session)
{
	const struct server_options *options = &session->server->options;

	for (uint32_t i = 0; i < options->n_executors; i++)
		if (options->executors[i]->info.exports_arenas)
			return options->executors[i];
	return NULL;
}

int session_arena_new(struct session *session, uint32_t cookie, uint64_t bytes)
{
	struct executor *exporter = session_exporter(session);
	struct session_arena *slot;

	if (!exporter) {
		session_reply_result(session, RBK_WIRE_ARENA_NEW, cookie, -EOPNOTSUPP,
				     "no device makes arenas here: register a memfd");
		return 0;
	}
	if (bytes == 0 || bytes % (uint64_t)sysconf(_SC_PAGESIZE) != 0 ||
	    bytes > 1ull << RBK_REF_OFFSET_BITS) {
		session_reply_result(session, RBK_WIRE_ARENA_NEW, cookie, -EINVAL,
				     "an arena has a positive multiple of the page size that a "
				     "reference can reach, not %llu bytes",
				     (unsigned long long)bytes);
		return 0;
	}
	slot = arena_begin(session, cookie, bytes, exporter);
	if (!slot)
		return 0;
	slot->job = (struct offload_job){
		.run = arena_make_run,
		.done = arena_import_done,
		.cause = OFFLOAD_ARENA_MAP,
	};
	session_job_started(session);
	session_submit(session, &slot->job);
	return 0;
}

int session_arena_remove(struct session *session, uint32_t cookie, uint32_t id)
{
	struct session_arena *slot = id < session->n_arenas ? session->arenas[id] : NULL;

	if (!slot) {
		session_reply_result(session, RBK_WIRE_ARENA_REMOVE, cookie, -ENOENT,
				     "there is no arena %u", id);
		return 0;
	}
	if (slot->n_plans > 0) {
		session_reply_result(session, RBK_WIRE_ARENA_REMOVE, cookie, -EBUSY,
				     "arena %u holds constants of %u plan%s: remove %s first", id,
				     slot->n_plans, plural(slot->n_plans),
				     slot->n_plans == 1 ? "it" : "them");
		return 0;
	}

	slot->cookie = cookie;
	slot->wants_reply = true;
	arena_withdraw(slot);
	return 0;
}

void session_arena_idle(struct session_arena *slot)
{
	if (slot->state == SLOT_REMOVING && !slot->session->is_ending)
		arena_release(slot);
}

void session_arena_cancel(struct session_arena *slot)
{
	if (slot->state == SLOT_PREPARING)
		offload_cancel(slot->session->server->options.offload, &slot->job);
}

void session_arena_discard(struct session_arena *slot)
{
	slot->wants_reply = false;
	slot->session->arenas[slot->id] = NULL;
	arena_release(slot);
}
