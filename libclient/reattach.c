/* SPDX-License-Identifier: MIT */
/*
 * Re-attachment
 *
 * When a broker dies, what its session did is still there: this process has the memory of arenas,
 * the descriptions of plans, and both areas of each ring. The submission area holds the entries
 * that were not taken. The completion area holds the completions that were not consumed, and the
 * records of tasks that the broker had taken and not finished (<ringbroker/abi.h>). The next broker
 * is given all of it, under the same ids, and goes on where the last one ended. Each task completes
 * once; the program notices a pause.
 *
 * A thread that lives only as long as a re-attachment does this. It connects as a program would,
 * through a struct rbk of its own, and restores arenas, plans and rings in this order, because
 * plans name arenas, and entries name both. Leases come first, because their memory is in use. It
 * never touches struct rbk_ring: the ring's own thread installs the new area (ring-recover.c). When
 * all is restored, the new socket replaces the old one under its number, and requests that waited
 * are sent.
 *
 * A broker that dies during this leaves what it made of rings as the state from which the next one
 * restores: its completions count. Everything else is restored from this process's objects again.
 *
 * A memfd that a broker has fixed (RBK_WIRE_ARENA_FIX) cannot be mapped writable by another one, so
 * the arena moves to a new memfd first, at the same address (arena-move.c). The dma-buf of an arena
 * in memory of a device can be mapped by any broker, so it stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libclient/private.h"
#include "shm/ring.h"

/*
 * Pauses between tries last as long as this part of the time without a broker, and are longer after
 * a try that found a broker, because each such try costs it work.
 */
#define PAUSE_PART         16u
#define PAUSE_MIN_NS       1000000u
#define PAUSE_MAX_NS       20000000u
#define PAUSE_FOUND_MAX_NS 200000000u

/* A broker that is found just before the deadline has as long to say hello. */
#define HELLO_MIN_NS 100000000u

/* An id that the session's first arena or plan can have. */
#define FIRST_ID 1u

/* One re-attachment */
struct restoration {
	struct rbk *rbk;
	struct rbk_reattachment about;
	uint64_t deadline_ns; /* for finding a broker */
	uint64_t wait_ns;     /* until the broker was found from which the session is restored */
	bool is_found;        /* the last try found a broker */
	struct rbk_error error;
};

/* ---- Objects ---- */

/* Have the next object that is added get @id. */
static int want_id(struct rbk *fresh, uint32_t id, struct rbk_error *error)
{
	struct rbk_wire_id request = {.request.type = RBK_WIRE_WANT_ID, .id = id};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;

	return client_request(fresh, &message, &answer, error);
}

static int check_id(uint32_t id, uint32_t wanted, struct rbk_error *error)
{
	if (id != wanted)
		return client_error(error, -EPROTO, "the broker made number %" PRIu32 " of it", id);
	return 0;
}

/*
 * Keep the broker from giving ids of removed plans to other plans: entries may name them. A broker
 * that does not know this use of the request forgets the id at the next one.
 */
static int tell_last_plan(const struct rbk *rbk, struct rbk *fresh, struct rbk_error *error)
{
	return rbk->last_plan_id == 0 ? 0 : want_id(fresh, rbk->last_plan_id, error);
}

static int restore_arena(struct rbk *fresh, struct rbk_arena *arena, struct rbk_error *error)
{
	struct client_answer answer;
	int r = 0;

	if (arena->fixed && !arena->sealed) {
		r = client_arena_move(arena, error);
		if (r)
			return r;
	}
	r = want_id(fresh, arena->id, error);
	if (!r)
		r = client_arena_add(fresh, arena, &answer, error);
	if (!r)
		r = check_id(answer.reply.id.id, arena->id, error);
	if (!r && !arena->exported)
		__atomic_store_n(&arena->segment_bytes, fresh->segment_bytes, __ATOMIC_RELAXED);
	/* The thread's own connection ends with its broker, so this request is not repeated. */
	return r == CLIENT_E_GONE ? -ECONNRESET : r;
}

static int restore_plan(struct rbk *fresh, const struct rbk_plan *plan, struct rbk_error *error)
{
	struct client_answer answer;
	int r;

	r = want_id(fresh, plan->info.id, error);
	if (!r)
		r = client_plan_add(fresh, plan->desc, plan->desc_bytes, &answer, error);
	if (!r)
		r = check_id(answer.reply.plan.id, plan->info.id, error);
	return r;
}

/* Return the number of tasks that the broker of a completion area had taken and not finished. */
static uint32_t count_live(const struct rbk_cq_area *cq, uint32_t n_entries)
{
	const struct rbk_task_record *records = rbk_ring_records(cq, n_entries);
	struct rbk_commit commit;
	uint32_t n = 0;

	rbk_commit_load(cq, &commit);
	for (uint32_t i = 0; i < n_entries; i++)
		n += rbk_record_is_live(&records[i], &commit);
	return n;
}

/* Take the descriptors of @answer over into an area for the ring's thread. */
static int area_new(const struct client_ring_cold *cold, struct client_answer *answer,
		    struct client_ring_area **ret, struct rbk_error *error)
{
	const struct rbk_wire_ring *wire = &answer->reply.ring;
	struct client_ring_area *area;
	int r;

	if (wire->n_entries != cold->n_entries || wire->cq_bytes != cold->cq_bytes)
		return client_error(error, -EPROTO,
				    "the broker made %" PRIu32 " entries and a completion area of "
				    "%" PRIu64 " bytes of it",
				    wire->n_entries, wire->cq_bytes);
	r = client_bell_set_up(answer->fds[2], error);
	if (r)
		return r;
	area = calloc(1, sizeof(*area));
	if (!area)
		return client_error(error, -ENOMEM, "out of memory");
	r = client_area_map(answer->fds[1], wire->cq_bytes, PROT_READ, &area->cq_map);
	if (r) {
		free(area);
		return client_error(error, r, "cannot map the completion area: %m");
	}
	area->id = wire->id;
	area->cq_fd = answer->fds[1];
	area->bell = answer->fds[2];
	answer->fds[1] = answer->fds[2] = -1;
	*ret = area;
	return 0;
}

static int restore_ring(struct restoration *restoration, struct rbk *fresh,
			struct client_ring_cold *cold, struct rbk_error *error)
{
	/* Its thread installs no area while the connection is being restored. */
	struct client_ring_area *last = cold->area, *area = NULL;
	struct rbk_wire_ring_add request = {
		.request.type = RBK_WIRE_RING_RESTORE,
		.n_entries = cold->n_entries,
	};
	struct client_message message = {
		.request = &request.request,
		.request_bytes = sizeof(request),
		.fd = cold->sq_fd,
		.has_second_fd = true,
		.second_fd = last ? last->cq_fd : cold->cq_fd,
	};
	struct client_answer answer;
	int r;

	/* A ring whose bell was never rung is not sealed; this process has mapped it. */
	fcntl(cold->sq_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
	restoration->about.n_tasks +=
		count_live(last ? last->cq_map : cold->cq_map, cold->n_entries);
	r = client_request(fresh, &message, &answer, error);
	if (r)
		return r;
	r = area_new(cold, &answer, &area, error);
	for (unsigned int i = 0; i < answer.n_fds; i++)
		client_close(&answer.fds[i]);
	if (r)
		return r;
	pthread_mutex_lock(&restoration->rbk->lock);
	cold->area = area;
	pthread_mutex_unlock(&restoration->rbk->lock);
	client_area_free(last, cold->cq_bytes);
	/*
	 * The bell says that the area is kept, and the broker begins. Before, another broker can be
	 * given the last area; from now on, it would run tasks that have run. If the bell cannot
	 * be rung, the ring's thread rings it when it installs the area.
	 */
	send(area->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	return 0;
}

/* ---- The connection ---- */

/* Check that the broker offers the session's features. */
static int check_features(const struct rbk *rbk, const struct rbk *fresh, struct rbk_error *error)
{
	static const char *const names[] = {
		"RESIDENCY",    "PARTITION", "PRIORITY", "STATE_ROWS",   "TENANTS", "STRATEGIES",
		"STATS",        "CATALOGUE", "ADMIN",    "ADMIN_CHANGE", "LEASES",  "FIXED_ARENAS",
		"ADMIN_LIMITS", "REATTACH",  "UNDO",     "RESTORE",      "RESTART", "AFTER",
	};
	const uint64_t missing = rbk->features & ~fresh->features;
	const unsigned int bit = missing ? (unsigned int)__builtin_ctzll(missing) : 0;

	if (missing == 0)
		return 0;
	return client_error(error, -EOPNOTSUPP,
			    "the new broker (%s) does not offer RBK_FEAT_%s, which the session "
			    "uses",
			    rbk_broker_name(fresh),
			    bit < sizeof(names) / sizeof(names[0]) ? names[bit] : "?");
}

/* Say which object could not be restored. Return: @r. */
static int not_restored(struct restoration *restoration, int r, const char *what, uint32_t id,
			const struct rbk_error *why)
{
	return client_error(&restoration->error, r, "cannot restore %s %" PRIu32 ": %s", what, id,
			    why->text);
}

/* Restore all objects at the next broker. Under objects. */
static int restore_all(struct restoration *restoration, struct rbk *fresh)
{
	struct rbk *rbk = restoration->rbk;
	struct rbk_error why = {""};
	int r;

	restoration->about = (struct rbk_reattachment){.r = 0};
	r = client_leases_restore(rbk, fresh, &restoration->about.n_leases, &why);
	if (r)
		return not_restored(restoration, r, "lease", restoration->about.n_leases, &why);
	r = tell_last_plan(rbk, fresh, &why);
	if (r)
		return not_restored(restoration, r, "the id of plan", rbk->last_plan_id, &why);
	for (struct client_known *known = rbk->arenas; known; known = known->next) {
		struct rbk_arena *arena = client_known_owner(known, struct rbk_arena);

		if (arena->id == RBK_REF_ARENA(RBK_REF_INVALID))
			continue;
		r = restore_arena(fresh, arena, &why);
		if (r)
			return not_restored(restoration, r, "arena", arena->id, &why);
		restoration->about.n_arenas++;
	}
	for (struct client_known *known = rbk->plans; known; known = known->next) {
		const struct rbk_plan *plan = client_known_owner(known, struct rbk_plan);

		r = restore_plan(fresh, plan, &why);
		if (r)
			return not_restored(restoration, r, "plan", plan->info.id, &why);
		restoration->about.n_plans++;
	}
	/* No object was restored, so the next one would get the id of the last plan. */
	if (rbk->last_plan_id && restoration->about.n_arenas + restoration->about.n_plans == 0) {
		r = want_id(fresh, FIRST_ID, &why);
		if (r)
			return not_restored(restoration, r, "the id of plan", rbk->last_plan_id,
					    &why);
	}
	for (struct client_ring_cold *cold = rbk->rings; cold; cold = cold->next) {
		r = restore_ring(restoration, fresh, cold, &why);
		if (r)
			return not_restored(restoration, r, "ring", cold->id, &why);
		restoration->about.n_rings++;
	}
	return 0;
}

/* Put the new socket in the place of the old one. Under objects. Return: 0; negative errno. */
static int take_over(struct restoration *restoration, struct rbk *fresh)
{
	struct rbk *rbk = restoration->rbk;
	struct client_reattach *reattach = &rbk->reattach;
	int r = 0;

	pthread_mutex_lock(&rbk->lock);
	/* The old socket is shut down, so none of them takes long. */
	while (!rbk->lost && (rbk->reading || reattach->n_sending > 0))
		pthread_cond_wait(&rbk->changed, &rbk->lock);
	r = client_check(rbk, &restoration->error);
	if (!r && dup3(fresh->fd, rbk->fd, O_CLOEXEC) < 0)
		r = client_error(&restoration->error, -errno, "cannot use the new socket: %m");
	if (!r) {
		__atomic_store_n(&rbk->max_ring_entries, fresh->max_ring_entries, __ATOMIC_RELAXED);
		__atomic_store_n(&rbk->segment_bytes, fresh->segment_bytes, __ATOMIC_RELAXED);
		__atomic_store_n(&rbk->exports, fresh->exports, __ATOMIC_RELAXED);
		/* Without memory, the old name stays. */
		client_set_name(rbk, fresh->broker);
		client_leases_restored(rbk);
		__atomic_store_n(&reattach->n_done, reattach->n_done + 1, __ATOMIC_RELEASE);
		reattach->is_restoring = false;
		__atomic_store_n(&reattach->is_away, false, __ATOMIC_RELEASE);
		restoration->about.gap_ns = client_now_ns() - reattach->gone_ns;
		restoration->about.wait_ns = restoration->wait_ns;
		eventfd_write(reattach->news_fd, 1);
		pthread_cond_broadcast(&rbk->changed);
	}
	pthread_mutex_unlock(&rbk->lock);
	return r;
}

static void set_restoring(struct rbk *rbk, bool is_restoring)
{
	pthread_mutex_lock(&rbk->lock);
	rbk->reattach.is_restoring = is_restoring;
	pthread_mutex_unlock(&rbk->lock);
}

/*
 * Return true if another try may succeed after errno @r of an object: the broker died, or this
 * process or the broker lacks something that others may free. The broker may also still charge for
 * what it made of the session in the last try.
 */
static bool may_try_again(int r)
{
	switch (r) {
	case -ECONNRESET:
	case -ETIME:
	case -EBUSY:
	case -EAGAIN:
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM:
	case -ENOBUFS:
	case -ENOSPC:
	case -EDQUOT:
		return true;
	default:
		return false;
	}
}

/*
 * Connect, and restore the session. Return: 0; negative errno with a sentence; *@ret_again: another
 * try may succeed.
 */
static int try_once(struct restoration *restoration, bool *ret_again)
{
	struct rbk *rbk = restoration->rbk, *fresh;
	const uint64_t now_ns = client_now_ns();
	uint64_t left_ns;
	int r;

	left_ns = restoration->deadline_ns > now_ns ? restoration->deadline_ns - now_ns : 0;
	if (left_ns < HELLO_MIN_NS)
		left_ns = HELLO_MIN_NS;
	r = client_connect_fresh(rbk, left_ns < rbk->timeout_ns ? left_ns : rbk->timeout_ns,
				 &restoration->error);
	/* Any other failure may be that of a broker which is just starting or ending. */
	*ret_again = r && r != -EPROTO && r != -EPROTONOSUPPORT;
	restoration->is_found = !r;
	if (r)
		return r;
	restoration->wait_ns = client_now_ns() - rbk->reattach.gone_ns;
	fresh = rbk->reattach.fresh;
	r = check_features(rbk, fresh, &restoration->error);
	if (!r) {
		client_objects_lock(rbk);
		set_restoring(rbk, true);
		r = restore_all(restoration, fresh);
		if (!r)
			r = take_over(restoration, fresh);
		if (r)
			set_restoring(rbk, false);
		client_objects_unlock(rbk);
	}
	*ret_again = may_try_again(r);
	client_disconnect_fresh(rbk);
	return r;
}

/* Wait for @pause_ns. Return: false if the connection is lost meanwhile. */
static bool wait_pause(struct rbk *rbk, uint64_t pause_ns)
{
	const uint64_t end_ns = client_now_ns() + pause_ns;
	const struct timespec end = {(time_t)(end_ns / 1000000000u), (long)(end_ns % 1000000000u)};
	bool is_away;

	pthread_mutex_lock(&rbk->lock);
	while (rbk->reattach.is_away && client_now_ns() < end_ns)
		pthread_cond_timedwait(&rbk->changed, &rbk->lock, &end);
	is_away = rbk->reattach.is_away;
	pthread_mutex_unlock(&rbk->lock);
	return is_away;
}

static uint64_t pause_after_ns(uint64_t away_ns, bool is_found)
{
	const uint64_t max_ns = is_found ? PAUSE_FOUND_MAX_NS : PAUSE_MAX_NS;
	const uint64_t pause_ns = away_ns / PAUSE_PART;

	if (pause_ns < PAUSE_MIN_NS)
		return PAUSE_MIN_NS;
	return pause_ns < max_ns ? pause_ns : max_ns;
}

/* Find a broker and restore the session, or lose the connection. */
static void reattach(struct rbk *rbk, uint64_t gone_ns)
{
	struct restoration restoration = {.rbk = rbk};
	const uint64_t wait_ns = rbk->reattach.wait_ns;
	struct rbk_error reason;
	bool again;
	int r;

	restoration.deadline_ns =
		wait_ns > CLIENT_NEVER - gone_ns ? CLIENT_NEVER : gone_ns + wait_ns;
	for (;;) {
		const uint64_t began_ns = client_now_ns();

		/* A process that is stopped during its last try has another one. */
		r = try_once(&restoration, &again);
		if (!r || !again || began_ns >= restoration.deadline_ns)
			break;
		if (!wait_pause(rbk,
				pause_after_ns(client_now_ns() - gone_ns, restoration.is_found)))
			return;
	}
	if (r) {
		if (again && restoration.is_found)
			client_error(&reason, r, "no broker took it over within %.3g s: %s",
				     (double)wait_ns / 1e9, restoration.error.text);
		else if (again)
			r = client_error(&reason, -ETIME, "no broker came back within %.3g s: %s",
					 (double)wait_ns / 1e9, restoration.error.text);
		else
			reason = restoration.error;
		restoration.about = (struct rbk_reattachment){
			.gap_ns = client_now_ns() - gone_ns,
			.r = r,
			.text = reason.text,
		};
		if (!client_give_up(rbk, reason.text))
			return;
	}
	if (rbk->reattach.on_reattach)
		rbk->reattach.on_reattach(rbk, &restoration.about, rbk->reattach.on_reattach_data);
}

static void *reattach_main(void *data)
{
	struct rbk *rbk = data;
	uint64_t gone_ns;

	pthread_setname_np(pthread_self(), "rbk-reattach");
	pthread_mutex_lock(&rbk->lock);
	/* The next broker may die while the program's function runs. */
	while (rbk->reattach.is_away) {
		gone_ns = rbk->reattach.gone_ns;
		pthread_mutex_unlock(&rbk->lock);
		reattach(rbk, gone_ns);
		pthread_mutex_lock(&rbk->lock);
	}
	rbk->reattach.has_thread = false;
	pthread_mutex_unlock(&rbk->lock);
	return NULL;
}

RBK_EXPORT int rbk_connect(const struct rbk_options *options, struct rbk **ret,
			   struct rbk_error *error)
{
	return client_connect(options, reattach_main, false, ret, error);
}
