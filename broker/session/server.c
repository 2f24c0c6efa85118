/* SPDX-License-Identifier: MIT */
/*
 * The listening socket
 *
 * A path belongs to whoever holds a lock on PATH.lock: the kernel drops the lock with the process,
 * so a socket that a killed broker left behind is told from one in use, and two brokers starting
 * at once cannot both win. The lock file stays: removing it would let a third one in between.
 */
#include "session/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "loop/loop.h"
#include "loop/offload.h"
#include "session/server-private.h"
#include "session/sigbus.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"

enum {
	SERVER_BACKLOG = 512,
	/* Connections accepted before the other watches have their turn. */
	SERVER_ACCEPT_BATCH = 32,
};

/* How long to wait when the process is out of descriptors or memory. */
static const uint64_t accept_retry_ns = 100000000;

static void on_connection(void *data, uint32_t events)
{
	struct server *server = data;
	struct session *session;
	uint64_t n_unlogged;
	int fd, r;

	for (unsigned int i = 0; i < SERVER_ACCEPT_BATCH; i++) {
		fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (fd < 0 &&
		    (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
			log_warning(LOG_ACCEPT_PAUSED,
				    "cannot accept a connection: %s; trying again in 100 ms",
				    strerror(errno));
			loop_timer_arm(server->retry, accept_retry_ns);
			return;
		}
		if (fd < 0)
			continue; /* that connection is gone already */
		r = session_new(server, fd, &session);
		if (r < 0 && log_limit_pass(&server->failure_limit, clock_now_ns(), &n_unlogged))
			log_warning(LOG_SESSION_FAILED,
				    "refused a connection, and %llu before it: %s",
				    (unsigned long long)n_unlogged, strerror(-r));
	}
	loop_rewatch(server->watch);
}

static void on_retry(void *data)
{
	struct server *server = data;

	if (server->watch)
		loop_rewatch(server->watch);
}

static int outcome_of(int error)
{
	switch (error) {
	case EACCES:
	case EPERM:
	case EROFS:
		return SERVER_E_PERMISSION;
	case ENOENT:
	case ENOTDIR:
	case ENAMETOOLONG:
		return SERVER_E_PATH;
	default:
		return error_origin(-error);
	}
}

static int take_path(struct server *server)
{
	char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof(".lock")];

	snprintf(lock_path, sizeof(lock_path), "%s.lock", server->options.socket_path);
	server->lock_fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (server->lock_fd < 0)
		return outcome_of(errno);
	if (flock(server->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? SERVER_E_IN_USE : error_origin(-errno);
	return 0;
}

static int server_listen(struct server *server)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = server->options.socket_path;
	struct stat status;
	int r;

	if (strlen(path) >= sizeof(address.sun_path))
		return SERVER_E_PATH;
	strcpy(address.sun_path, path);
	/* Only a socket is removed to make room for ours. */
	if (lstat(path, &status) == 0 && !S_ISSOCK(status.st_mode))
		return SERVER_E_NO_SOCKET;

	r = take_path(server);
	if (r)
		return r;
	if (unlink(path) < 0 && errno != ENOENT)
		return outcome_of(errno);

	server->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server->fd < 0)
		return error_origin(-errno);
	if (bind(server->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EADDRINUSE ? SERVER_E_IN_USE : outcome_of(errno);
	if (chmod(path, server->options.socket_mode) < 0 || listen(server->fd, SERVER_BACKLOG) < 0)
		return error_origin(-errno);
	return 0;
}

int server_new(const struct server_options *options, struct server **ret)
{
	_cleanup_(server_freep) struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return error_origin(-ENOMEM);
	server->options = *options;
	server->fd = server->lock_fd = -1;
	list_init(&server->sessions);
	list_init(&server->refusals);
	list_init(&server->holds);

	r = server_listen(server);
	if (r)
		return r;
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
	r = loop_watch(options->loop, server->fd, POLLIN, on_connection, server, &server->watch);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(server);
	return 0;
}

void server_stop_accepting(struct server *server)
{
	server->watch = loop_unwatch(server->watch);
	server->retry = loop_timer_free(server->retry);
	refusals_deinit(server);
	if (server->fd >= 0)
		unlink(server->options.socket_path);
	server->fd = close_fd(server->fd);
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
	close_fd(server->lock_fd);
	holds_deinit(server);
	offload_free(server->closer);
	free(server);
	return NULL;
}
