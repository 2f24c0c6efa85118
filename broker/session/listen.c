/* SPDX-License-Identifier: MIT */
/*
 * Listening
 *
 * A path belongs to whoever holds a lock on PATH.lock: the kernel drops the lock with the process,
 * so a socket that a killed broker left behind is told from one in use, and two brokers starting
 * at once cannot both win. The lock file stays: removing it would let a third one in between.
 *
 * A service manager may have made the sockets and hand them over: then it also says who may connect
 * there, and keeps them, with whoever waits there, while the broker is restarted. It holds no lock,
 * so a path where somebody takes connections is not ours either.
 *
 * There are two sockets, one for tenants' clients and one for administrators. All that differs is
 * what a session that comes in there is.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"

enum {
	LISTEN_BACKLOG = 512,
	/* Connections accepted before the other watches have their turn. */
	ACCEPT_BATCH = 32,
	/* The last pause before who listens on a path is taken to be alive; twice that in all. */
	LEFT_MAX_MS = 1024,
};

/* How long to wait when the process is out of descriptors or memory. */
static const uint64_t accept_retry_ns = 100000000;

static void on_connection(void *data, uint32_t events)
{
	struct listener *listener = data;
	struct server *server = listener->server;
	struct session *session;
	uint64_t n_unlogged;
	int fd, r;

	for (unsigned int i = 0; i < ACCEPT_BATCH; i++) {
		fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
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
		r = session_new(server, fd, listener->is_admin, &session);
		if (r < 0 && log_limit_pass(&server->failure_limit, clock_now_ns(), &n_unlogged))
			log_warning(LOG_SESSION_FAILED,
				    "refused a connection, and %llu before it: %s",
				    (unsigned long long)n_unlogged, strerror(-r));
	}
	loop_rewatch(listener->watch);
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

static int take_path(struct listener *listener)
{
	char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof(".lock")];

	snprintf(lock_path, sizeof(lock_path), "%s.lock", listener->path);
	listener->lock_fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (listener->lock_fd < 0)
		return outcome_of(errno);
	if (flock(listener->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? SERVER_E_IN_USE : error_origin(-errno);
	return 0;
}

/* Does anybody take connections there? What a dead process left behind refuses them. */
static bool is_listened_on(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd < 0)
		return false;
	r = connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? errno : 0;
	close(fd);
	/* Also with as many waiting as there may, and by sockets of another kind. */
	return r == 0 || r == EAGAIN || r == EPROTOTYPE;
}

/* Who may try to connect. Before anybody can: nobody listens yet. */
static int set_permissions(const struct listener *listener)
{
	const struct server_options *options = &listener->server->options;
	unsigned int mode = listener->is_admin ? options->admin.socket_mode : options->socket_mode;

	if (listener->is_admin && options->admin.has_group &&
	    lchown(listener->path, (uid_t)-1, options->admin.gid) < 0) {
		log_warning(LOG_ADMIN_SOCKET,
			    "cannot give %s to group %u, whose members cannot connect there: %s",
			    listener->path, (unsigned int)options->admin.gid, strerror(errno));
		mode &= ~070u;
	}
	return chmod(listener->path, mode) < 0 ? error_origin(-errno) : 0;
}

static int listener_bind(struct listener *listener)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat status;
	int r;

	if (strlen(listener->path) >= sizeof(address.sun_path))
		return SERVER_E_PATH;
	strcpy(address.sun_path, listener->path);
	/* Only a socket is removed to make room for ours. */
	if (lstat(listener->path, &status) == 0 && !S_ISSOCK(status.st_mode))
		return SERVER_E_NO_SOCKET;

	r = take_path(listener);
	if (r)
		return r;
	/* The kernel takes a killed broker's ring, and with it the socket, apart after its lock. */
	for (int wait_ms = 1; is_listened_on(&address); wait_ms *= 2) {
		if (wait_ms > LEFT_MAX_MS)
			return SERVER_E_IN_USE;
		poll(NULL, 0, wait_ms);
	}
	if (unlink(listener->path) < 0 && errno != ENOENT)
		return outcome_of(errno);

	listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0)
		return error_origin(-errno);
	if (bind(listener->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EADDRINUSE ? SERVER_E_IN_USE : outcome_of(errno);
	r = set_permissions(listener);
	if (r)
		return r;
	return listen(listener->fd, LISTEN_BACKLOG) < 0 ? error_origin(-errno) : 0;
}

static int listener_take(struct listener *listener, int fd)
{
	listener->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	/* Again: so that clients are told this process, not who made the socket (SO_PEERCRED). */
	return listener->fd < 0 || listen(listener->fd, LISTEN_BACKLOG) < 0 ? error_origin(-errno)
									    : 0;
}

int listener_init(struct listener *listener, struct server *server, bool is_admin)
{
	const struct server_options *options = &server->options;
	int given_fd = is_admin ? options->admin.given_fd : options->given_fd;
	int r;

	listener->server = server;
	listener->is_admin = is_admin;
	listener->path = is_admin ? options->admin.socket_path : options->socket_path;
	listener->is_given = given_fd > 0;
	r = listener->is_given ? listener_take(listener, given_fd) : listener_bind(listener);
	if (r)
		return r;
	return loop_watch(options->loop, listener->fd, POLLIN, on_connection, listener,
			  &listener->watch);
}

void listener_deinit(struct listener *listener)
{
	listener->watch = loop_unwatch(listener->watch);
	if (listener->fd >= 0 && !listener->is_given)
		unlink(listener->path);
	listener->fd = close_fd(listener->fd);
}

void listener_unlock(struct listener *listener)
{
	listener->lock_fd = close_fd(listener->lock_fd);
}
