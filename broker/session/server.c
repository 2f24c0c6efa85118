/* SPDX-License-Identifier: MIT */
/* What all sessions share: their list, the sockets that they come from, and how they end. */
#include "session/server.h"

#include <errno.h>
#include <stdlib.h>

#include "loop/loop.h"
#include "loop/offload.h"
#include "session/server-private.h"
#include "session/sigbus.h"
#include "util/clock.h"
#include "util/error.h"

static void on_retry(void *data)
{
	struct server *server = data;

	if (server->clients.watch)
		loop_rewatch(server->clients.watch);
	if (server->admins.watch)
		loop_rewatch(server->admins.watch);
}

int server_new(const struct server_options *options, struct server **ret)
{
	_cleanup_(server_freep) struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return error_origin(-ENOMEM);
	server->options = *options;
	server->clients = server->admins = LISTENER_INIT;
	list_init(&server->sessions);
	list_init(&server->refusals);
	list_init(&server->holds);

	r = server_stats_init(server);
	if (r)
		return error_fold(r);
	server_know_tenants(server);
	r = holds_init(server);
	if (r)
		return error_fold(r);
	r = offload_new(options->loop, &server->closer);
	if (r)
		return error_fold(r);
	r = refusals_init(server);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_retry, server, &server->retry);
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
	*ret = steal_ptr(server);
	return 0;
}

void server_stop_accepting(struct server *server)
{
	listener_deinit(&server->clients);
	listener_deinit(&server->admins);
	server->retry = loop_timer_free(server->retry);
	refusals_deinit(server);
}

void server_end_sessions(struct server *server, const char *reason)
{
	list_for_each (node, &server->sessions)
		session_end(container_of(node, struct session, link), false, reason);
}

bool server_is_empty(const struct server *server)
{
	return server->n_sessions == 0;
}

uint64_t server_n_discards(const struct server *server)
{
	return server->n_discards;
}

void server_settle(struct server *server)
{
	if (sigbus_happened())
		list_for_each (node, &server->sessions)
			session_check_faults(container_of(node, struct session, link));

	if (!server->needs_settling)
		return;
	server->needs_settling = false;
	server->settling_ns = clock_now_ns();
	list_for_each_safe (node, &server->sessions)
		session_settle(container_of(node, struct session, link));
}

bool server_is_settling(const struct server *server)
{
	return server->needs_settling;
}

struct server_stats *server_stats(struct server *server)
{
	return &server->stats;
}

struct server *server_free(struct server *server)
{
	if (!server)
		return NULL;
	server_stop_accepting(server);
	listener_unlock(&server->clients);
	listener_unlock(&server->admins);
	holds_deinit(server);
	offload_free(server->closer);
	server_stats_deinit(server);
	free(server);
	return NULL;
}
