/* SPDX-License-Identifier: MIT */
/* Server: the list of sessions, their sockets, and their ends. */
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
	 * Fraction of a turn's budget for clients' work, even if more of the budget is left:
	 * entries that arrive meanwhile wait for this work.
	 */
	SETTLE_PART = 4,
	/* Sessions checked by one job, each with all of its rings and arenas. */
	FAULT_BATCH = 4,
	/* Equal to the heaviest tenant, so that a faulting session ends soon. */
	FAULT_WEIGHT = 10000,
	/* Bound of unidentified connections: a fraction of the descriptors, within these limits. */
	NEWCOMERS_PART = 16,
	MIN_NEWCOMERS = 8,
	MAX_NEWCOMERS = 1024,
};

/* Interval between checks whether ending sessions are gone. */
static const uint64_t end_look_ns = 100000000;

/*
 * Timeout at the end for closers.h threads of which none is stuck: there may be very many
 * descriptors to close.
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

/*
 * Return the bound of connections waiting for identification. While some are shed, up to twice as
 * many wait.
 */
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
	/* Twice as many newcomers while some are shed, and as many connections being closed. */
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
	r = restraints_init(server);
	if (r)
		return error_fold(r);
	r = timeslices_start(server);
	if (r)
		return error_fold(r);
	r = server_resets_start(server);
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
	return max_uncharged() + closers_max_threads() + 1;
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
	/* The timer wakes the loop, which checks again: stuck threads do not wake it. */
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
 * Find the session whose page faulted, which was not recorded. Checking many sessions takes long,
 * so each job checks a few of them.
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

void server_sockets(const struct server *server, int *ret_fd, int *ret_admin_fd)
{
	*ret_fd = server->clients.fd;
	*ret_admin_fd = server->admins.fd;
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
	restraints_deinit(server);
	server_resets_stop(server);
	timeslices_stop(server);
	closers_free(server->closers);
	holds_deinit(server);
	discards_deinit(server);
	owners_deinit(server);
	server_stats_deinit(server);
	free(server);
	return NULL;
}
