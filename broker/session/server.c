/* SPDX-License-Identifier: MIT */
/* What all sessions share: their list, the sockets that they come from, and how they end. */
#include "session/server.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "loop/loop.h"
#include "loop/offload.h"
#include "session/server-private.h"
#include "session/sigbus.h"
#include "util/clock.h"
#include "util/error.h"

enum {
	/*
	 * Work for clients gets this part of a turn's budget, also where more of it is left: an
	 * entry that comes meanwhile waits for that work.
	 */
	SETTLE_PART = 4,
	/* Sessions that are looked at in one go: for each of its rings, arenas and plans. */
	FAULT_BATCH = 4,
	/* As much as the heaviest tenant: who faults is to go. */
	FAULT_WEIGHT = 10000,
	/* Connections that wait to be identified: a part of the descriptors, within these. */
	NEWCOMERS_PART = 16,
	MIN_NEWCOMERS = 8,
	MAX_NEWCOMERS = 1024,
};

/* The time between two looks whether sessions that end are gone. */
static const uint64_t end_look_ns = 100000000;

/*
 * The longest wait at the end for threads that close descriptors and of which none is stuck: there
 * may be very many descriptors to close.
 */
static const uint64_t end_patience_ns = 2000000000;

static void on_end_timer(void *data);

static void on_retry(void *data)
{
	struct server *server = data;

	listeners_take_spare(server);
	if (server->clients.watch)
		loop_rewatch(server->clients.watch);
	if (server->admins.watch)
		loop_rewatch(server->admins.watch);
}

/* So many connections may wait to be identified; while some are shed, twice as many do. */
static uint32_t max_newcomers(void)
{
	struct rlimit limit = {.rlim_cur = 0};
	rlim_t n;

	getrlimit(RLIMIT_NOFILE, &limit);
	n = limit.rlim_cur / NEWCOMERS_PART;
	n = n < MIN_NEWCOMERS ? MIN_NEWCOMERS : n;
	return n > MAX_NEWCOMERS ? MAX_NEWCOMERS : (uint32_t)n;
}

static uint32_t max_uncharged(void)
{
	/* As many again are being closed. */
	return 3 * max_newcomers() + SERVER_ADMIN_NEWCOMERS + SERVER_REFUSALS;
}

int server_new(const struct server_options *options, struct server **ret)
{
	_cleanup_(server_freep) struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return error_origin(-ENOMEM);
	server->options = *options;
	server->clients = server->admins = LISTENER_INIT;
	server->spare_fd = -1;
	server->max_newcomers = max_newcomers();
	server->max_uncharged = max_uncharged();
	list_init(&server->sessions);
	list_init(&server->refusals);
	list_init(&server->newcomers);
	server_work_init(server);

	r = server_stats_init(server);
	if (r)
		return error_fold(r);
	server_know_tenants(server);
	r = holds_init(server);
	if (r)
		return error_fold(r);
	r = closers_new(options->loop, &server->closers);
	if (r)
		return error_fold(r);
	r = discards_init(server);
	if (r)
		return error_fold(r);
	r = greet_init(server);
	if (r)
		return error_fold(r);
	r = refusals_init(server);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_retry, server, &server->retry);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_end_timer, server, &server->end_timer);
	if (r)
		return error_fold(r);
	r = listener_init(&server->clients, server, false);
	if (r)
		return r;
	if (options->admin.socket_path) {
		r = listener_init(&server->admins, server, true);
		if (r)
			return r < 0 ? r : r + SERVER_E_ADMIN;
	}
	listeners_take_spare(server);
	*ret = steal_ptr(server);
	return 0;
}

uint32_t server_own_fds(void)
{
	return max_uncharged() + closers_max_threads();
}

void server_stop_accepting(struct server *server)
{
	server->spare_fd = close_fd(server->spare_fd);
	listener_deinit(&server->clients);
	listener_deinit(&server->admins);
	server->retry = loop_timer_free(server->retry);
	refusals_deinit(server);
}

void server_end_sessions(struct server *server, const char *reason)
{
	if (!server->end_ns)
		server->end_ns = clock_now_ns();
	list_for_each (node, &server->sessions)
		session_end(container_of(node, struct session, link), false, reason);
	if (server->n_sessions == 0)
		holds_close(server);
	/* The timer wakes the loop, which looks again: threads that are stuck do not wake it. */
	if (server->n_sessions > 0 || closers_n_jobs(server->closers) > 0)
		loop_timer_arm(server->end_timer, end_look_ns);
}

static void on_end_timer(void *data)
{
}

bool server_is_empty(const struct server *server)
{
	if (server->n_sessions == 0 && closers_n_jobs(server->closers) == 0)
		return true;
	if (!closers_is_stuck(server->closers) &&
	    (!server->end_ns || clock_now_ns() - server->end_ns < end_patience_ns))
		return false;
	list_for_each (node, &server->sessions)
		if (!session_waits_for_closers(container_of(node, struct session, link)))
			return false;
	return true;
}

uint64_t server_n_discards(const struct server *server)
{
	return closers_n_jobs(server->closers);
}

void server_describe_closers(struct server *server, struct closers_report *ret)
{
	closers_describe(server->closers, ret);
}

/*
 * Find the session whose page faulted, which was not recorded. Checking all sessions takes long
 * where there are many, so each job checks some of them in turn.
 */
static void run_check_faults(struct turn_job *job)
{
	struct server *server = container_of(job, struct server, fault_job);

	for (unsigned int i = 0; i < FAULT_BATCH && server->n_to_check > 0; i++) {
		struct list_node *node = server->sessions.next;

		if (node == &server->sessions)
			return;
		server->n_to_check--;
		list_remove(node);
		list_append(&server->sessions, node);
		session_check_faults(container_of(node, struct session, link));
	}
	if (server->n_to_check > 0)
		turn_queue_submit(&server->work, &server->fault_owner, job);
}

void server_work_init(struct server *server)
{
	owners_init(server);
	turn_owner_init(&server->fault_owner, FAULT_WEIGHT, 0);
	turn_job_init(&server->fault_job, RBK_TURN_OTHER, run_check_faults);
}

void server_settle(struct server *server)
{
	const struct turn *turn = server->work.turn;

	if (sigbus_happened()) {
		server->n_to_check = server->n_sessions;
		turn_queue_submit(&server->work, &server->fault_owner, &server->fault_job);
	}
	if (!turn_queue_is_empty(&server->work))
		turn_queue_run(&server->work,
			       turn_used_ticks(turn) + turn->budget_ticks / SETTLE_PART);
}

bool server_is_settling(const struct server *server)
{
	return !turn_queue_is_empty(&server->work);
}

struct server_stats *server_stats(struct server *server)
{
	return &server->stats;
}

void server_unlock(struct server *server)
{
	listener_unlock(&server->clients);
	listener_unlock(&server->admins);
}

struct server *server_free(struct server *server)
{
	if (!server)
		return NULL;
	server_stop_accepting(server);
	server_unlock(server);
	loop_timer_free(server->end_timer);
	greet_deinit(server);
	closers_free(server->closers);
	holds_deinit(server);
	discards_deinit(server);
	owners_deinit(server);
	server_stats_deinit(server);
	free(server);
	return NULL;
}
