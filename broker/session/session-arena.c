/* SPDX-License-Identifier: MIT */
/*
 * Arenas of a session
 *
 * A memfd is mapped, its pages are faulted in a step at a time, it is wrapped for the devices that
 * need that, and the devices import it. The setup thread only imports it, because a client can
 * delay the rest. Faulting in waits for processes that punch holes into the memfd, and wrapping,
 * from Linux 6.13 on, for processes that write to it. A closers.h thread therefore does that, in
 * the lane of the account.
 *
 * An arena that is to be fixed is sealed only after the import, because some kernels import no
 * memfd with that seal. Sealing happens in the lane, too: it waits for processes that write to the
 * memfd. Until the seal the client may have removed pages, so the arena is faulted in once more,
 * which is cheap where all pages are present.
 *
 * A slot is PREPARING meanwhile and cannot be named by a task; it becomes READY when the client is
 * answered. Removal waits for the tasks that use the arena (REMOVING), then for the setup thread to
 * undo the import (RELEASING). The client is answered after that, so that it can seal the memfd.
 *
 * Unmapping waits for processes that traverse the mappings of the memfd, as punching holes does. If
 * the client has closed its memfd, dropping the last reference frees all pages at once. A closers.h
 * thread therefore unmaps the arena, a step at a time, and closes its descriptor. The arena stays
 * charged until then.
 *
 * An arena that a device makes takes the same steps. It differs in the source of its memory, in its
 * descriptor, which stays open, and in its charges, which outlive it: see hold.c. A client whose
 * broker died hands such a dma-buf to the next broker, which imports it again. The broker cannot
 * know that a broker made it, but it takes only memory that a client could have had from one: of a
 * driver whose memory a device here exports too, and, as far as the reactor touches it, memory that
 * this device imports as its own. Of a device that is gone, threads that may wait use the memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "session/server-private.h"
#include "session/sigbus.h"
#include "shm/number.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"
#include "util/plural.h"
#include "util/size.h"

/* For work of an earlier broker; after that, the client's library tries again */
static const uint64_t restore_wait_ns = 2000000000;
/* Time in ms for which one job waits; the tenant's other jobs in the lane run in between. */
enum { RESTORE_SLICE_MS = 2 };

static struct session_arena *arena_of_job(struct offload_job *job)
{
	return container_of(job, struct session_arena, job);
}

/* List the charges of an exported arena that the client may keep. */
static void list_kept(struct session_arena *arena, struct charge *ret[HOLD_CHARGES])
{
	ret[0] = &arena->charges[ARENA_CHARGE_HOST_BYTES];
	ret[1] = &arena->charges[ARENA_CHARGE_FD];
	ret[2] = &arena->charges[ARENA_CHARGE_GTT];
}

static void arena_free(struct session_arena *arena)
{
	struct charge *kept[HOLD_CHARGES];

	list_kept(arena, kept);
	if (arena->hold)
		hold_leave_dma_buf(arena->hold, steal_fd(&arena->fd), kept);
	close_fd(arena->fd);
	for (unsigned int i = 0; i < ARRAY_SIZE(arena->charges); i++)
		charge_deinit(&arena->charges[i]);
	free(arena);
}

static void arena_forget(struct session_arena *arena)
{
	struct session *session = arena->session;

	session->arena_slots[arena->id] = NULL;
	session->arenas[arena->id] = NULL;
	session->arena_bytes -= arena->bytes;
	session->exported_bytes -= arena->is_exported ? arena->bytes : 0;
	session->server->n_arenas--;
	session->n_added_arenas--;
	arena_free(arena);
}

static uint32_t arena_request(const struct session_arena *arena)
{
	return arena->is_exported && !arena->is_restored ? RBK_WIRE_ARENA_NEW : RBK_WIRE_ARENA_ADD;
}

static void arena_refuse(struct session_arena *arena)
{
	struct session *session = arena->session;
	uint32_t type = arena_request(arena);
	int r = arena->map_result;

	if (type == RBK_WIRE_ARENA_NEW && r == EXECUTOR_E_NO_MEMORY) {
		session_reply_result(session, type, arena->cookie, -ENOMEM,
				     "the device has no memory for an arena of %s",
				     SIZE_ROUNDED(arena->bytes));
	} else if (type == RBK_WIRE_ARENA_NEW) {
		/* Refused, lost, or too much for the process: the client can use a memfd. */
		session_reply_result(session, type, arena->cookie, r == -ENOMEM ? r : -EOPNOTSUPP,
				     "the device cannot make an arena of %s now",
				     SIZE_ROUNDED(arena->bytes));
	} else if (r == ARENA_E_UNSUITABLE) {
		session_reply_result(session, type, arena->cookie, -EINVAL, "%s",
				     arena->map_message);
		session_end(session, true, arena->map_message);
	} else {
		session_reply_result(session, type, arena->cookie, r,
				     "the broker cannot map the arena: %s", strerror(-r));
	}
}

static void arena_leave(struct session_arena *arena);

/* Release a step of the memory. */
static void arena_leave_run(struct closers_job *job)
{
	struct session_arena *arena = container_of(job, struct session_arena, lane_job);

	exec_arena_unwrap(&arena->exec);
	if (arena_unmap(&arena->exec) && !arena->is_exported)
		arena->fd = close_fd(arena->fd);
}

static void arena_leave_done(struct closers_job *job)
{
	struct session_arena *arena = container_of(job, struct session_arena, lane_job);
	struct session *session = arena->session;

	/* A job per step lets the tenant's other jobs in the lane run in between. */
	if (arena->exec.base) {
		arena_leave(arena);
		session_lane_done(session);
		return;
	}
	if (arena->map_result)
		arena_refuse(arena);
	else if (arena->wants_reply)
		session_reply_result(session, RBK_WIRE_ARENA_REMOVE, arena->cookie, 0, NULL);
	arena_forget(arena);
	session_lane_done(session);
}

/* Release the memory of an arena that no executor knows any more. */
static void arena_leave(struct session_arena *arena)
{
	struct session *session = arena->session;

	arena->state = SLOT_RELEASING;
	arena->lane_job = (struct closers_job){
		.run = arena_leave_run, .done = arena_leave_done, .closes = true};
	session_submit_to_lane(session, &arena->lane_job);
}

static void arena_release_run(struct offload_job *job)
{
	struct session_arena *arena = arena_of_job(job);
	const struct server_options *options = &arena->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++)
		options->executors[i]->ops->arena_release(options->executors[i], &arena->exec);
	sigbus_remove(arena->fault_slot);
}

static void arena_release_done(struct offload_job *job)
{
	struct session_arena *arena = arena_of_job(job);
	struct session *session = arena->session;

	arena_leave(arena);
	session_job_done(session);
}

static void arena_release(struct session_arena *arena)
{
	arena->state = SLOT_RELEASING;
	arena->job = (struct offload_job){
		.run = arena_release_run,
		.done = arena_release_done,
		.cause = OFFLOAD_ARENA_UNMAP,
	};
	session_job_started(arena->session);
	session_submit(arena->session, &arena->job);
}

static bool arena_is_populated(const struct session_arena *arena)
{
	return arena->n_bytes_done == arena->bytes;
}

/* Return true if the arena is to be sealed now. */
static bool arena_wants_seal(const struct session_arena *arena)
{
	return arena->is_imported && arena->fixes && !arena->exec.immutable && !arena->was_sealed;
}

/* Finish an arena that no longer needs its descriptor. */
static void arena_finish(struct session_arena *arena)
{
	arena->exec.is_fixed = arena->exec.immutable ||
			       (arena->is_sealed && arena_is_whole(arena->fd, arena->bytes));
	arena->fd = close_fd(arena->fd);
}

static void arena_import_run(struct offload_job *job)
{
	struct session_arena *arena = arena_of_job(job);
	const struct session *session = arena->session;
	const struct server_options *options = &session->server->options;

	arena->exec.fd = arena->fd;
	arena->exec.owner = tenant_owner(session->tenant, session->uid);
	arena->exec.exporter = arena->exporter;
	for (unsigned int i = 0; i < options->n_executors; i++)
		options->executors[i]->ops->arena_import(options->executors[i], &arena->exec);
	arena->is_imported = true;
	if (arena->is_restored) {
		/* Other memory of that driver may make the processor wait. */
		arena->exec.is_fixed =
			arena->exporter && arena->exec.import[arena->exporter->index];
		return;
	}
	arena->exec.fd = -1;
	if (!arena_wants_seal(arena))
		arena_finish(arena);
}

/*
 * Map a dma-buf that an earlier broker had a device make. Work that this broker submitted goes on
 * after its death, and its late writes must not meet those of the tasks that run again. A client
 * that keeps the memory busy delays only its own tenant's lane. The wait is in slices, so a
 * tenant's arenas wait at the same time: the work in all of them ends at about the same time.
 */
static void arena_map_run(struct closers_job *job)
{
	struct session_arena *arena = container_of(job, struct session_arena, lane_job);

	const int r = dma_buf_wait(arena->fd, RESTORE_SLICE_MS);

	if (r == DMA_BUF_E_BUSY) {
		arena->map_result = clock_now_ns() < arena->wait_end_ns ? 0 : -EBUSY;
		return;
	}
	if (r) {
		arena->map_result = r;
		return;
	}
	arena->map_result =
		arena_map_dma_buf(arena->fd, arena->bytes, &arena->exec, arena->map_message);
}

/* Map the arena, or seal it when that is due, and fault in a step. */
static void arena_fill_run(struct closers_job *job)
{
	struct session_arena *arena = container_of(job, struct session_arena, lane_job);
	uint64_t bytes;

	if (!arena->exec.base)
		arena->map_result =
			arena_map(arena->fd, arena->bytes, &arena->exec, arena->map_message);
	if (arena->map_result)
		return;
	if (arena_wants_seal(arena)) {
		arena->was_sealed = true;
		arena->is_sealed = arena_fix(arena->fd);
		if (arena->is_sealed)
			arena->n_bytes_done = 0;
	}
	bytes = arena->bytes - arena->n_bytes_done;
	bytes = bytes < ARENA_STEP_BYTES ? bytes : ARENA_STEP_BYTES;
	arena_populate(&arena->exec, arena->n_bytes_done, bytes);
	arena->n_bytes_done += bytes;
	if (arena->is_imported && arena_is_populated(arena))
		arena_finish(arena);
}

/* Return true if executor @i imports dma-bufs of the arena. */
static bool arena_is_wrapped_for(const struct session_arena *arena, unsigned int i)
{
	const struct executor *executor = arena->session->server->options.executors[i];

	return executor->ops->arena_wrap && executor->info.arena_segment_bytes > 0 &&
	       !arena->exec.immutable;
}

static void arena_wrap_run(struct closers_job *job)
{
	struct session_arena *arena = container_of(job, struct session_arena, lane_job);
	const struct server_options *options = &arena->session->server->options;

	arena->exec.fd = arena->fd;
	for (unsigned int i = 0; i < options->n_executors; i++)
		if (arena_is_wrapped_for(arena, i))
			options->executors[i]->ops->arena_wrap(options->executors[i], &arena->exec);
	arena->exec.fd = -1;
}

/* Make an arena on a device. No other process has the memory before the client is answered. */
static void arena_make_run(struct offload_job *job)
{
	struct session_arena *arena = arena_of_job(job);
	const struct session *session = arena->session;
	const struct server_options *options = &session->server->options;
	struct executor *exporter = session_exporter(session);

	arena->map_result =
		exporter->ops->arena_export(exporter, arena->bytes, &arena->exec, &arena->fd);
	if (arena->map_result)
		return;
	arena->exec.owner = tenant_owner(session->tenant, session->uid);
	arena->exec.fd = arena->fd;
	/* A dma-buf has no holes. */
	arena->exec.is_fixed = true;
	for (unsigned int i = 0; i < options->n_executors; i++)
		if (options->executors[i] != exporter)
			options->executors[i]->ops->arena_import(options->executors[i],
								 &arena->exec);
	arena->is_imported = true;
}

/* Hide the arena from new tasks; release it when no task uses it. */
static void arena_withdraw(struct session_arena *arena)
{
	arena->session->arenas[arena->id] = NULL;
	arena->session->n_unfixed -= !arena->exec.is_fixed;
	arena->state = SLOT_REMOVING;
	if (arena->n_in_flight == 0)
		arena_release(arena);
}

/* Complete the preparation: the arena becomes ready or is released. */
static void arena_prepared(struct session_arena *arena)
{
	struct session *session = arena->session;
	uint32_t type = arena_request(arena), cookie = arena->cookie;
	struct rbk_wire_id_reply reply = {
		.reply = {.type = type, .cookie = cookie},
		.id = arena->id,
	};
	int r;

	/* The session is ending: an arena that is not imported is only unmapped. */
	if (arena->map_result == 0 && !arena->is_imported) {
		arena_leave(arena);
		return;
	}
	/* The descriptor was closed after the import, unless the preparation was cut short. */
	if (!arena->is_exported && arena->fd < 0)
		charge_deinit(&arena->charges[ARENA_CHARGE_FD]);
	if (arena->map_result) {
		arena_leave(arena);
		return;
	}

	/* Add the mapping before any task can access the arena. */
	r = sigbus_add(arena->exec.base, arena->exec.bytes, &arena->is_faulted, &arena->fault_slot);
	if (r) {
		session_reply_result(session, type, cookie, r,
				     "the broker has reached its limit of arenas");
		arena_release(arena);
		return;
	}
	arena->state = SLOT_READY;
	session->arenas[arena->id] = arena;
	session->n_unfixed += !arena->exec.is_fixed;
	if (type == RBK_WIRE_ARENA_NEW)
		hold_name_dma_buf(arena->hold, arena->exec.dev, arena->exec.ino,
				  session->tenant->account);
	if (type == RBK_WIRE_ARENA_ADD)
		session_reply(session, &reply.reply, sizeof(reply));
	else if (session_reply_fd(session, &reply.reply, sizeof(reply), arena->fd, false))
		arena_withdraw(arena);
}

static void arena_fill_done(struct closers_job *job);
static void arena_import_done(struct offload_job *job);

/* Do one step in the lane; the tenant's other jobs there run in between. */
static void arena_fill(struct session_arena *arena)
{
	arena->lane_job = (struct closers_job){.run = arena_fill_run, .done = arena_fill_done};
	session_submit_to_lane(arena->session, &arena->lane_job);
}

/*
 * Begin to make dma-bufs for executors that need them.
 * Return: true if a job was submitted; false if none are needed, or the tenant has no room for
 * them.
 */
static bool arena_wrap(struct session_arena *arena)
{
	const struct server_options *options = &arena->session->server->options;
	uint64_t n_fds = 0;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		uint64_t bytes = options->executors[i]->info.arena_segment_bytes;

		if (arena_is_wrapped_for(arena, i))
			n_fds += div_up(arena->bytes, bytes);
	}
	arena->was_wrapped = true;
	if (n_fds == 0 || account_charge(arena->session->tenant->account,
					 &arena->charges[ARENA_CHARGE_WRAPS], ACCOUNT_FDS, n_fds))
		return false;
	arena->lane_job = (struct closers_job){.run = arena_wrap_run, .done = arena_fill_done};
	session_submit_to_lane(arena->session, &arena->lane_job);
	return true;
}

/* Have the executors import the arena. */
static void arena_import(struct session_arena *arena)
{
	arena->job = (struct offload_job){
		.run = arena_import_run,
		.done = arena_import_done,
		.cause = OFFLOAD_ARENA_MAP,
	};
	session_job_started(arena->session);
	session_submit(arena->session, &arena->job);
}

static void arena_import_done(struct offload_job *job)
{
	struct session_arena *arena = arena_of_job(job);
	struct session *session = arena->session;

	if (arena_wants_seal(arena) && !session->is_ending)
		arena_fill(arena);
	else
		arena_prepared(arena);
	session_job_done(session);
}

static void arena_fill_done(struct closers_job *job)
{
	struct session_arena *arena = container_of(job, struct session_arena, lane_job);
	struct session *session = arena->session;

	if (arena->map_result || session->is_ending) {
		arena_prepared(arena);
	} else if (!arena_is_populated(arena)) {
		arena_fill(arena);
	} else if (arena->is_imported) {
		arena_prepared(arena);
	} else if (arena->was_wrapped || !arena_wrap(arena)) {
		arena_import(arena);
	}
	session_lane_done(session);
}

static void arena_map_done(struct closers_job *job);

/* Map a dma-buf, or wait for a slice of time, in the lane. */
static void arena_map_restored(struct session_arena *arena)
{
	arena->lane_job = (struct closers_job){.run = arena_map_run, .done = arena_map_done};
	session_submit_to_lane(arena->session, &arena->lane_job);
}

static void arena_map_done(struct closers_job *job)
{
	struct session_arena *arena = container_of(job, struct session_arena, lane_job);
	struct session *session = arena->session;

	if (arena->map_result || session->is_ending)
		arena_prepared(arena);
	else if (arena->exec.base)
		arena_import(arena);
	else
		arena_map_restored(arena);
	session_lane_done(session);
}

/*
 * Charge @amount, or what is missing if an earlier arena of the memory has left a charge. That one
 * stays in its slot and does not shrink: the memory is the same.
 */
static int charge_at_least(struct account *account, struct charge *charge, enum account_slot slot,
			   uint64_t amount)
{
	if (!charge->account)
		return account_charge(account, charge, slot, amount);
	if (amount <= charge->amount)
		return 0;
	return account_charge_change(account, charge, charge->slot, amount);
}

/* Charge for an arena in @memory_bytes of memory: a driver may have rounded its size up. */
static int arena_charge(struct session_arena *arena, uint64_t memory_bytes,
			const struct executor *exporter)
{
	struct account *account = arena->session->tenant->account;
	struct charge *charges = arena->charges;
	const uint64_t left_bytes = charges[ARENA_CHARGE_HOST_BYTES].amount;

	if (account_charge(account, &charges[ARENA_CHARGE_ONE], ACCOUNT_ARENAS, 1) ||
	    account_charge(account, &charges[ARENA_CHARGE_ARENA_BYTES], ACCOUNT_ARENA_BYTES,
			   memory_bytes) ||
	    account_charge(account, &charges[ARENA_CHARGE_MAPPING], ACCOUNT_MAPPINGS, 1) ||
	    charge_at_least(account, &charges[ARENA_CHARGE_FD], ACCOUNT_FDS, 1) ||
	    charge_at_least(account, &charges[ARENA_CHARGE_HOST_BYTES], ACCOUNT_HOST_BYTES,
			    memory_bytes))
		return ACCOUNT_E_QUOTA;
	if (exporter && exporter->info.gtt_bytes > 0 &&
	    charge_at_least(account, &charges[ARENA_CHARGE_GTT], account_gtt(exporter->index),
			    memory_bytes)) {
		/* The memory stays charged as the earlier arena has left it. */
		account_charge_set(account, &charges[ARENA_CHARGE_HOST_BYTES], ACCOUNT_HOST_BYTES,
				   left_bytes);
		return ACCOUNT_E_QUOTA;
	}
	return 0;
}

/* Take the id that the client wants. Return: false: the client was refused. */
static bool arena_want(struct session *session, uint32_t type, uint32_t cookie, uint32_t *ret_id)
{
	const uint32_t id = session->wanted_id;

	session->wants_id = false;
	if (id == 0 || id >= session->n_arenas) {
		session_reply_result(session, type, cookie, -EINVAL, "no arena can have the id %u",
				     id);
		return false;
	}
	if (session->arena_slots[id]) {
		session_reply_result(session, type, cookie, -EBUSY, "an arena has the id %u", id);
		return false;
	}
	*ret_id = id;
	return true;
}

/*
 * Make an arena of a memfd, of a dma-buf that @exporter will make, or, with @is_restored, of one
 * whose like @exporter, if not NULL, makes. It has @memory_bytes of memory. @left, if not NULL, is
 * the hold that an earlier arena of that dma-buf has left: this arena takes it over, and a refusal
 * leaves it as it was. Return: a charged arena, owned by the session; NULL: the client was refused.
 */
static struct session_arena *arena_begin(struct session *session, uint32_t cookie, uint64_t bytes,
					 uint64_t memory_bytes, struct executor *exporter,
					 bool is_restored, struct hold *left)
{
	const uint32_t type = exporter && !is_restored ? RBK_WIRE_ARENA_NEW : RBK_WIRE_ARENA_ADD;
	const struct server_limits *limits = &session->server->options.limits;
	const bool is_exported = exporter || is_restored;
	struct charge *kept[HOLD_CHARGES];
	char why[ACCOUNT_TEXT_BYTES];
	struct session_arena *arena;
	uint32_t id;

	/* Ids begin with 1: an uninitialised reference (0) must name no arena. */
	for (id = 1; id < session->n_arenas && session->arena_slots[id]; id++)
		;
	if (session->wants_id && !arena_want(session, type, cookie, &id))
		return NULL;
	if (id == session->n_arenas) {
		session_reply_result(session, type, cookie, -EDQUOT,
				     "the session already has %u arenas, which is the limit",
				     id - 1);
		return NULL;
	}
	if (bytes > limits->max_arena_bytes ||
	    session->arena_bytes > limits->max_arena_bytes - bytes) {
		session_reply_result(session, type, cookie, -EDQUOT,
				     "the session's arenas would exceed %s, the most of a session",
				     SIZE_ROUNDED(limits->max_arena_bytes));
		return NULL;
	}

	arena = calloc(1, sizeof(*arena));
	if (arena) {
		arena->fd = -1;
		if (is_exported && !left && hold_new(session->server, 0, &arena->hold)) {
			free(arena);
			arena = NULL;
		}
	}
	if (!arena) {
		session_reply_result(session, type, cookie, -ENOMEM, "the broker is out of memory");
		return NULL;
	}
	arena->session = session;
	arena->id = (uint16_t)id;
	arena->fault_slot = -1;
	arena->bytes = bytes;
	arena->cookie = cookie;
	arena->state = SLOT_PREPARING;
	arena->is_exported = is_exported;
	arena->is_restored = is_restored;
	arena->exporter = is_restored ? exporter : NULL;
	if (left) {
		list_kept(arena, kept);
		arena->hold = left;
		arena->fd = hold_resume_dma_buf(left, kept);
	}
	if (arena_charge(arena, memory_bytes, exporter)) {
		session_reply_result(session, type, cookie, -EDQUOT,
				     "no room for an arena of %s: %s", SIZE_ROUNDED(bytes),
				     account_explain(session->tenant->account, why));
		arena_free(arena);
		return NULL;
	}
	session->arena_slots[id] = arena;
	session->arena_bytes += bytes;
	session->exported_bytes += is_exported ? bytes : 0;
	session->server->n_arenas++;
	session->n_added_arenas++;
	return arena;
}

int session_arena_add(struct session *session, uint32_t cookie, int *fd, uint64_t bytes, bool fixes)
{
	struct session_arena *arena = arena_begin(session, cookie, bytes, bytes, NULL, false, NULL);

	if (!arena)
		return 0;
	/*
	 * Check here, because pages are charged while the arena waits for a thread, and must exist.
	 */
	arena->map_result = arena_check(*fd, bytes, arena->map_message);
	if (arena->map_result) {
		arena_refuse(arena);
		arena_forget(arena);
		return 0;
	}
	arena->fd = steal_fd(fd);
	arena->fixes = fixes;
	arena_fill(arena);
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

/* Return the executor whose exported memory is of the driver @name; NULL: there is none. */
static struct executor *find_exporter(const struct session *session, const char *name)
{
	const struct server_options *options = &session->server->options;

	for (uint32_t i = 0; i < options->n_executors; i++) {
		const char *own = options->executors[i]->info.export_name;

		if (own && own[0] && strcmp(own, name) == 0)
			return options->executors[i];
	}
	return NULL;
}

/* Answer a request for an arena that is not made. */
static void arena_deny(struct session *session, uint32_t cookie, int res, const char *text)
{
	session->wants_id = false;
	session_reply_result(session, RBK_WIRE_ARENA_ADD, cookie, res, "%s", text);
}

int session_arena_restore(struct session *session, uint32_t cookie, int *fd, uint64_t bytes)
{
	char text[ARENA_MESSAGE_BYTES];
	struct session_arena *arena;
	struct dma_buf_about about;
	struct executor *exporter;
	struct hold *left;
	int r;

	if (arena_check_dma_buf(*fd, bytes, &about, text)) {
		arena_deny(session, cookie, -EINVAL, text);
		session_end(session, true, text);
		return 0;
	}
	exporter = find_exporter(session, about.exporter);
	if (!exporter && !arena_is_host_memory(about.exporter)) {
		snprintf(text, sizeof(text), "this broker has no device that makes memory of %s",
			 about.exporter);
		arena_deny(session, cookie, -ENODEV, text);
		return 0;
	}
	r = hold_find_dma_buf(session->server, about.dev, about.ino, session->tenant->account,
			      &left);
	if (r == HOLD_E_IN_USE) {
		arena_deny(session, cookie, -EBUSY, "this dma-buf is the memory of an arena");
		return 0;
	}
	if (r) {
		arena_deny(session, cookie, -EPERM,
			   "this dma-buf is the memory of an arena of another tenant");
		return 0;
	}
	arena = arena_begin(session, cookie, bytes, about.bytes, exporter, true, left);
	if (!arena)
		return 0;
	if (left) {
		/* Closing frees nothing: the arena has a descriptor of the same dma-buf. */
		*fd = close_fd(*fd);
	} else {
		hold_name_dma_buf(arena->hold, about.dev, about.ino, session->tenant->account);
		arena->fd = steal_fd(fd);
	}
	arena->wait_end_ns = clock_now_ns() + restore_wait_ns;
	arena_map_restored(arena);
	return 0;
}

int session_arena_new(struct session *session, uint32_t cookie, uint64_t bytes)
{
	struct executor *exporter = session_exporter(session);
	struct session_arena *arena;

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
				     ull(bytes));
		return 0;
	}
	arena = arena_begin(session, cookie, bytes, bytes, exporter, false, NULL);
	if (!arena)
		return 0;
	arena->job = (struct offload_job){
		.run = arena_make_run,
		.done = arena_import_done,
		.cause = OFFLOAD_ARENA_MAP,
	};
	session_job_started(session);
	session_submit(session, &arena->job);
	return 0;
}

int session_arena_remove(struct session *session, uint32_t cookie, uint32_t id)
{
	struct session_arena *arena = id < session->n_arenas ? session->arenas[id] : NULL;

	if (!arena) {
		session_reply_result(session, RBK_WIRE_ARENA_REMOVE, cookie, -ENOENT,
				     "there is no arena %u", id);
		return 0;
	}
	if (arena->n_plans > 0) {
		session_reply_result(session, RBK_WIRE_ARENA_REMOVE, cookie, -EBUSY,
				     "arena %u holds constants of %u plan%s: remove %s first", id,
				     arena->n_plans, plural(arena->n_plans),
				     arena->n_plans == 1 ? "it" : "them");
		return 0;
	}

	arena->cookie = cookie;
	arena->wants_reply = true;
	arena_withdraw(arena);
	return 0;
}

void session_arena_idle(struct session_arena *arena)
{
	if (arena->state == SLOT_REMOVING && !arena->session->is_ending)
		arena_release(arena);
}

void session_arena_cancel(struct session_arena *arena)
{
	if (arena->state == SLOT_PREPARING)
		offload_cancel(arena->session->server->options.offload, &arena->job);
}

void session_arena_discard(struct session_arena *arena)
{
	arena->wants_reply = false;
	arena->session->arenas[arena->id] = NULL;
	arena_release(arena);
}
