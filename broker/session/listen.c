/* SPDX-License-Identifier: MIT */
/*
 * Listening
 *
 * A path belongs to the process that holds a lock on PATH.lock. The kernel drops the lock with the
 * process, so a socket left behind by a killed broker differs from one in use, and of two brokers
 * starting at once only one succeeds. The lock file stays, because removing it would let a third
 * broker in between. It names the process that holds the lock. A killed process keeps the lock
 * while a driver or the kernel is busy with its memory, and the broker waits for that.
 *
 * A service manager may have made the sockets and pass them to the broker. It then determines who
 * may connect, and keeps the sockets and their waiting connections while the broker restarts. It
 * holds no lock, so a path on which connections are accepted does not belong to the broker either.
 *
 * An accepted connection waits for identification, in its user's share of the reactor's time. The
 * number of these newcomers is bounded. At the bound further connections wait in the socket, where
 * their users are unknown. This lasts if users have more connections than are served. The broker
 * then drops connections whose clients have left and holds more than the bound. A user with more
 * newcomers than its part of the bound has further connections refused. At most twice the bound are
 * therefore held.
 *
 * A client may disconnect and connect again, over and over, faster than the broker closes what the
 * earlier sessions had. If these leave its tenant no room for another session, a newcomer waits for
 * some time until they do. The number of newcomers that wait in this way is bounded, but one of
 * each user, and one of each tenant, may wait in any case: others do not take its place.
 *
 * From Linux 6.16 on a client cannot send descriptors before HELLO. A refused connection is
 * therefore closed at once and takes no room from other users, whatever its user sends. Earlier
 * kernels accept all descriptors. Refused connections that may have some then wait for a closers.h
 * thread, within the bound.
 *
 * There are two sockets, one for tenants' clients and one for administrators. They differ in the
 * kind of their sessions. Administrators also have a bound of their own: an administrator can
 * connect even if clients' descriptors are slow to close.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "shm/number.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"

enum {
	LISTEN_BACKLOG = 512,
	/* Connections accepted by one job. */
	ACCEPT_BATCH = 4,
	/* Accepting serves all clients; its weight equals a tenant's default. */
	LISTENER_WEIGHT = 100,
	/* Time in ms after which a process that listens on a path counts as alive */
	ALIVE_MS = 2000,
	/*
	 * Longest wait for a process that has ended, or is ending, and its sockets. The kernel
	 * frees its memory and its io_uring first, which takes seconds on a busy machine.
	 */
	ENDING_MAX_MS = 20000,
	/* Wait that is worth a line of the log, and the longest pause between two looks */
	ENDING_TOLD_MS = 200,
	LOOK_MAX_MS = 512,
	/* The bound of newcomers that wait for ends of sessions: a fraction of all */
	AWAITING_PART = 16,
	PID_BYTES = 16, /* text of a process id in a lock file */
	PROC_BYTES = 512,
	/* Fields of /proc/PID/stat, counted in words after the name, and flags in them. */
	STAT_FLAGS = 6,
	STAT_PENDING = 28,
	FLAG_EXITING = 4, /* PF_EXITING */
	PENDING_KILL = 1 << 8,
};

/* Pause when the process is out of descriptors or memory. */
static const uint64_t accept_retry_ns = 100000000;

/* Longest time that connections wait in the socket because of accepted ones. */
static const uint64_t patience_ns = 100000000;

/* Time for which a newcomer waits for ends of sessions, and between two looks */
static const uint64_t await_ns = 2000000000, await_look_ns = 4000000;

/* A connection that was accepted and is not identified yet. */
struct newcomer {
	struct turn_job job;
	struct list_node link;   /* in server->newcomers */
	struct list_node awaits; /* in listener->awaiting */
	struct session_lag lag;  /* the ends that it waits for; none if it does not wait */
	uint64_t await_end_ns;   /* when it has waited for long enough; 0: it has not waited */
	struct server *server;
	struct owner *owner;
	struct listener *listener;
	int fd;
};

static void listener_pause(struct listener *listener)
{
	listener->is_paused = true;
	if (listener->is_behind)
		return;
	listener->is_behind = true;
	loop_timer_arm(listener->patience, patience_ns);
}

/* Begin to shed: other users' connections may be waiting behind those of one user. */
static void on_impatient(void *data)
{
	struct listener *listener = data;

	if (!listener->is_behind)
		return;
	listener->is_shedding = true;
	listener_resume(listener);
}

/* Return true if one more connection may be held. */
static bool may_accept(const struct listener *listener)
{
	const struct server *server = listener->server;
	const uint64_t n = (uint64_t)listener->n_newcomers + server->n_uncharged;

	/* Administrators may ask meanwhile how far it is. */
	if (server->holds_connections && !listener->is_admin)
		return false;
	/* Clients cannot reach the administrators' bound; other users of that socket can. */
	if (listener->is_admin)
		return listener->n_newcomers < SERVER_ADMIN_NEWCOMERS &&
		       (uint64_t)server->n_newcomers + server->n_refusals + server->n_uncharged <
			       server->max_uncharged;
	/*
	 * Users' parts of the bound, granted one after the other, may sum to more than the bound.
	 */
	return n < server->max_newcomers ||
	       (listener->is_shedding && server->n_uncharged < server->max_newcomers &&
		listener->n_newcomers < 2 * server->max_newcomers);
}

void server_hold_connections(struct server *server, bool holds)
{
	server->holds_connections = holds;
	listener_resume(&server->clients);
}

bool server_is_welcoming(const struct server *server)
{
	return server->n_newcomers > 0 || !list_is_empty(&server->silent);
}

void listeners_take_spare(struct server *server)
{
	/* A copy of any open file serves. */
	if (server->spare_fd < 0 && server->clients.fd >= 0)
		server->spare_fd = fcntl(server->clients.fd, F_DUPFD_CLOEXEC, 0);
}

/* End a newcomer's wait for ends of sessions, if it waits. */
static void await_end(struct newcomer *newcomer)
{
	if (!newcomer->lag.account)
		return;
	newcomer->lag.owner->n_awaiting--;
	session_lag_deinit(&newcomer->lag);
	list_remove(&newcomer->awaits);
	newcomer->owner->n_awaiting--;
	newcomer->listener->n_awaiting--;
}

/* Free a newcomer whose descriptor was taken or closed. */
static void newcomer_free(struct newcomer *newcomer)
{
	struct server *server = newcomer->server;

	await_end(newcomer);
	turn_queue_withdraw(&server->work, &newcomer->job);
	list_remove(&newcomer->link);
	if (--newcomer->owner->n_newcomers == 0)
		server->n_newcomer_users--;
	server->n_newcomers--;
	newcomer->listener->n_newcomers--;
	owner_unref(newcomer->owner);
	free(newcomer);
	listener_resume(&server->clients);
	listener_resume(&server->admins);
}

/*
 * Return true if the client has disconnected without sending anything. A client that connects and
 * disconnects in a loop must cost little, and identification costs most.
 */
static bool has_left(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLRDHUP};
	char byte;

	/* An empty message looks like the end, and it or later ones may have descriptors. */
	return poll(&poll_fd, 1, 0) > 0 && poll_fd.revents & (POLLRDHUP | POLLHUP) &&
	       recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0 && !closers_may_have_fds(fd);
}

/* Return: true if the client has left and @newcomer is freed. */
static bool newcomer_drop_left(struct newcomer *newcomer)
{
	struct server *server = newcomer->server;
	uint64_t begin_ticks;

	if (!has_left(newcomer->fd))
		return false;
	/* The socket holds no message, so no descriptors are closed with it. */
	if (newcomer->owner->is_slow) {
		discard_connection(server, tenants_broker_account(server->options.tenants),
				   newcomer->owner, newcomer->fd,
				   &(struct charge){.account = NULL});
	} else {
		begin_ticks = turn_now(server->work.turn);
		close_fd(newcomer->fd);
		owner_judge(server, newcomer->owner, begin_ticks);
	}
	newcomer_free(newcomer);
	return true;
}

/*
 * Make room at the bound: drop up to N_LOOKS newcomers whose clients have left. Otherwise waiting
 * clients of the same user might be refused because of them.
 */
static void drop_some_that_left(struct server *server)
{
	enum { N_LOOKS = 8 };
	struct list_node *node;

	for (unsigned int i = 0; i < N_LOOKS && !list_is_empty(&server->newcomers); i++) {
		node = server->newcomers.next;
		list_remove(node);
		list_append(&server->newcomers, node);
		newcomer_drop_left(container_of(node, struct newcomer, link));
	}
}

/* Let the newcomer wait for newcomer->lag. */
static void await_begin(struct newcomer *newcomer)
{
	struct listener *listener = newcomer->listener;

	if (newcomer->await_end_ns == 0)
		newcomer->await_end_ns = clock_now_ns() + await_ns;
	list_append(&listener->awaiting, &newcomer->awaits);
	newcomer->owner->n_awaiting++;
	newcomer->lag.owner->n_awaiting++;
	if (listener->n_awaiting++ == 0)
		loop_timer_arm(listener->await_timer, await_look_ns);
}

/* Return: NULL: the newcomer may not wait; for session_new(). */
static struct session_lag *may_await(struct newcomer *newcomer)
{
	const struct listener *listener = newcomer->listener;

	if (listener->is_admin ||
	    (newcomer->await_end_ns > 0 && clock_now_ns() >= newcomer->await_end_ns))
		return NULL;
	newcomer->lag.has_place =
		listener->n_awaiting < div_up(listener->server->max_newcomers, AWAITING_PART) ||
		newcomer->owner->n_awaiting == 0;
	return &newcomer->lag;
}

/*
 * Try again with the first newcomer whose tenant has room now, or waits in vain, and with those
 * that have waited for long enough. Each try costs an identification, so those of one tenant try
 * one after the other.
 */
static void on_await(void *data)
{
	struct listener *listener = data;
	struct server *server = listener->server;
	const uint64_t now_ns = clock_now_ns();
	bool has_tried = false;

	list_for_each_safe (node, &listener->awaiting) {
		struct newcomer *newcomer = container_of(node, struct newcomer, awaits);
		const bool tries = !has_tried && session_lag_is_over(server, &newcomer->lag);

		if (!tries && now_ns < newcomer->await_end_ns)
			continue;
		has_tried |= tries;
		await_end(newcomer);
		turn_queue_submit(&server->work, &newcomer->owner->share, &newcomer->job);
	}
	if (listener->n_awaiting > 0)
		loop_timer_arm(listener->await_timer, await_look_ns);
}

static void run_newcomer(struct turn_job *job)
{
	struct newcomer *newcomer = container_of(job, struct newcomer, job);
	struct server *server = newcomer->server;
	struct session *session;
	uint64_t n_unlogged;
	int r;

	if (newcomer_drop_left(newcomer))
		return;
	if (!newcomer->listener->is_admin && restraint_holds(server, newcomer->owner, NULL, job))
		return;
	r = session_new(server, newcomer->fd, newcomer->listener->is_admin, &session,
			may_await(newcomer));
	if (r == SESSION_E_LAGS) {
		await_begin(newcomer);
		return;
	}
	if (r < 0 && log_limit_pass(&server->failure_limit, clock_now_ns(), &n_unlogged))
		log_warning(LOG_SESSION_FAILED, "refused a connection, and %llu before it: %s",
			    ull(n_unlogged), strerror(-r));
	if (r == 0)
		owner_follow(newcomer->owner, session->owner);
	newcomer_free(newcomer);
}

/* Without credentials session_new() fails, too. */
static struct ucred credentials_of(int fd)
{
	struct ucred credentials = {.uid = (uid_t)-1};
	socklen_t bytes = sizeof(credentials);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) < 0)
		log_debug(LOG_DETAIL, "cannot read the credentials of a connection: %s",
			  strerror(errno));
	return credentials;
}

/* Return true if too many newcomers wait and the user has more than its part of the bound. */
static bool is_too_many(const struct listener *listener, const struct owner *owner)
{
	const struct server *server = listener->server;

	return !listener->is_admin && listener->n_newcomers > server->max_newcomers &&
	       (uint64_t)owner->n_newcomers * server->n_newcomer_users > server->max_newcomers;
}

static void newcomer_refuse(struct newcomer *newcomer, const struct ucred *credentials)
{
	struct server *server = newcomer->server;
	struct account *account = tenants_broker_account(server->options.tenants);
	char why[128];

	snprintf(why, sizeof(why),
		 "user %u has %u connections that wait to be served: try again later",
		 (unsigned int)credentials->uid, newcomer->owner->n_newcomers - 1);
	refuse_connection(server, account, newcomer->fd, credentials->pid, credentials->uid,
			  -EAGAIN, why);
	newcomer_free(newcomer);
}

/* Take over @fd; all members of @newcomer are 0. */
static void newcomer_begin(struct newcomer *newcomer, struct listener *listener, int fd)
{
	const struct ucred credentials = credentials_of(fd);
	struct server *server = listener->server;

	if (server->n_newcomers >= server->max_newcomers)
		drop_some_that_left(server);
	newcomer->server = server;
	newcomer->owner = owner_of_user(server, credentials.uid);
	if (newcomer->owner->n_newcomers++ == 0)
		server->n_newcomer_users++;
	server->n_newcomers++;
	listener->n_newcomers++;
	newcomer->fd = fd;
	newcomer->listener = listener;
	list_init(&newcomer->awaits);
	turn_job_init(&newcomer->job, RBK_TURN_CONNECTIONS, run_newcomer);
	list_append(&server->newcomers, &newcomer->link);
	/*
	 * Free a newcomer whose client has left rather than hold it. A client that still waits is
	 * refused only without room.
	 */
	if (server->n_newcomers > server->max_newcomers && newcomer_drop_left(newcomer))
		return;
	if (is_too_many(listener, newcomer->owner))
		newcomer_refuse(newcomer, &credentials);
	else
		turn_queue_submit(&server->work, &newcomer->owner->share, &newcomer->job);
}

/* Close the connections without a session: the broker ends. */
static void drop_newcomers(struct listener *listener)
{
	struct server *server = listener->server;
	struct account *account = tenants_broker_account(server->options.tenants);

	list_for_each_safe (node, &server->newcomers) {
		struct newcomer *newcomer = container_of(node, struct newcomer, link);

		if (newcomer->listener != listener)
			continue;
		/* Messages may have descriptors. */
		discard_connection(server, account, newcomer->owner, newcomer->fd,
				   &(struct charge){.account = NULL});
		newcomer_free(newcomer);
	}
}

static void on_connection(void *data, uint32_t events)
{
	struct listener *listener = data;

	if (!listener->is_paused)
		turn_queue_submit(&listener->server->work, &listener->owner, &listener->job);
}

static int accept_one(const struct listener *listener)
{
	return accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/*
 * Refuse a connection for which no descriptor is left, using the spare one.
 * Return: true if there is a spare descriptor again.
 */
static bool refuse_at_limit(struct listener *listener)
{
	struct server *server = listener->server;
	struct ucred credentials;
	int fd;

	if (server->spare_fd < 0)
		return false;
	server->spare_fd = close_fd(server->spare_fd);
	fd = accept_one(listener);
	if (fd >= 0) {
		credentials = credentials_of(fd);
		refuse_connection(server, tenants_broker_account(server->options.tenants), fd,
				  credentials.pid, credentials.uid, -EMFILE,
				  "the broker has reached its limit of open files (LimitNOFILE= in "
				  "its unit, or ulimit -n)");
	}
	listeners_take_spare(server);
	return server->spare_fd >= 0;
}

/* Clients can exhaust the broker's descriptors, so log at most one line a second. */
static void log_pause(struct server *server, int error)
{
	char before[48] = "";
	uint64_t n_unlogged;

	if (!log_limit_pass(&server->accept_limit, clock_now_ns(), &n_unlogged))
		return;
	if (n_unlogged > 0)
		snprintf(before, sizeof(before), ", as %llu times before", ull(n_unlogged));
	log_warning(LOG_ACCEPT_PAUSED, "cannot accept a connection%s: %s%s; trying again in 100 ms",
		    before, strerror(error),
		    error == EMFILE ? " (LimitNOFILE= in the unit, or ulimit -n)" : "");
}

/* Accept a connection, or pause or refuse. Return: true to continue. */
static bool listener_accept(struct listener *listener)
{
	struct newcomer *newcomer;
	int fd, error;

	if (!may_accept(listener)) {
		listener_pause(listener);
		return false;
	}
	/* Allocate first: a connection that was accepted can only be closed with memory. */
	newcomer = calloc(1, sizeof(*newcomer));
	fd = newcomer ? accept_one(listener) : -1;
	error = errno;
	if (fd >= 0) {
		newcomer_begin(newcomer, listener, fd);
		return true;
	}
	free(newcomer);
	if (error == EAGAIN || error == EWOULDBLOCK) {
		listener->is_behind = listener->is_shedding = false;
		return false;
	}
	if (error == EMFILE && refuse_at_limit(listener))
		return true;
	if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS)
		return true; /* the connection has ended already */
	log_pause(listener->server, error);
	loop_timer_arm(listener->server->retry, accept_retry_ns);
	return false;
}

static void run_accept(struct turn_job *job)
{
	struct listener *listener = container_of(job, struct listener, job);

	for (unsigned int i = 0; i < ACCEPT_BATCH; i++)
		if (!listener_accept(listener))
			return;
	turn_queue_submit(&listener->server->work, &listener->owner, job);
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

/* Read a small file in one call. Return: its length; 0 if it cannot be read. */
static size_t read_small(int fd, char *text, size_t bytes)
{
	ssize_t n = fd < 0 ? 0 : pread(fd, text, bytes - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return n > 0 ? (size_t)n : 0;
}

/* Return true if a process has this id. */
static bool is_process(int pid)
{
	return kill(pid, 0) == 0 || errno != ESRCH;
}

/* Return true if the process appears to be exiting, or if no process has this id. */
static bool is_process_ending(int pid)
{
	char text[PROC_BYTES], path[64], *at, *word, *rest = NULL;
	unsigned long flags = 0, pending = 0;
	int fd, i = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) /* It may also be hidden from this user. */
		return !is_process(pid);
	read_small(fd, text, sizeof(text));
	close_fd(fd);
	/* The fields follow the command's name, which may contain any character. */
	at = strrchr(text, ')');
	if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
		return true;
	for (word = strtok_r(at + 1, " ", &rest); word; word = strtok_r(NULL, " ", &rest), i++) {
		flags = i == STAT_FLAGS ? strtoul(word, NULL, 10) : flags;
		pending = i == STAT_PENDING ? strtoul(word, NULL, 10) : pending;
	}
	return flags & FLAG_EXITING || pending & PENDING_KILL;
}

/*
 * Return the id of the process that holds the lock; 0 if the file is empty because the holder has
 * only just taken the lock.
 */
static int holder_of(int lock_fd)
{
	char text[PID_BYTES];
	int pid;

	return read_small(lock_fd, text, sizeof(text)) > 0 && sscanf(text, "%d", &pid) == 1 &&
			       pid > 0
		       ? pid
		       : 0;
}

/* A wait for the end of a process that listens on a path */
struct patience {
	const char *path;
	uint64_t begin_ns; /* 0: the wait has not begun */
	unsigned int pause_ms;
	bool is_told;
};

/*
 * Return true if this process is asked to end. Its signals are blocked for the loop, which does not
 * run yet.
 */
static bool is_asked_to_end(void)
{
	sigset_t pending;

	return sigpending(&pending) == 0 &&
	       (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

/*
 * Wait a little longer. @is_ending: the process appears to be.
 * Return: 0; SERVER_E_IN_USE after @most_ms; SERVER_E_STOPPED.
 */
static int wait_longer(struct patience *patience, bool is_ending, unsigned int most_ms)
{
	const uint64_t now_ns = clock_now_ns();
	uint64_t waited_ms;

	if (!patience->begin_ns)
		patience->begin_ns = now_ns;
	waited_ms = (now_ns - patience->begin_ns) / 1000000;
	if (waited_ms >= most_ms)
		return SERVER_E_IN_USE;
	if (is_asked_to_end())
		return SERVER_E_STOPPED;
	if (is_ending && waited_ms >= ENDING_TOLD_MS && !patience->is_told) {
		patience->is_told = true;
		log_info(LOG_START_WAITS,
			 "the process that listened on %s has ended, but the kernel is still "
			 "freeing what it held; waiting %u s at most",
			 patience->path, ENDING_MAX_MS / 1000);
	}
	patience->pause_ms = !patience->pause_ms                ? 1
			     : patience->pause_ms < LOOK_MAX_MS ? 2 * patience->pause_ms
								: LOOK_MAX_MS;
	poll(NULL, 0, (int)patience->pause_ms);
	return 0;
}

/*
 * Write the holder into the lock file. If that fails, the next broker waits as for an exiting
 * holder.
 */
static void name_holder(int lock_fd)
{
	char text[PID_BYTES];
	int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	if (ftruncate(lock_fd, 0) == 0 && pwrite(lock_fd, text, (size_t)n, 0) != n)
		log_debug(LOG_DETAIL, "cannot write the process ID to the lock file");
}

static int take_path(struct listener *listener)
{
	char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof(".lock")];
	struct patience patience = {.path = listener->path};
	bool is_ending = false;
	int holder, r;

	snprintf(lock_path, sizeof(lock_path), "%s.lock", listener->path);
	listener->lock_fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (listener->lock_fd < 0)
		return outcome_of(errno);
	while (flock(listener->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return error_origin(-errno);
		holder = holder_of(listener->lock_fd);
		if (holder > 0 && !is_process_ending(holder))
			return SERVER_E_IN_USE;
		/*
		 * The id of a holder in another PID namespace means nothing here. A holder that was
		 * ending may have no id any more, and no lock.
		 */
		is_ending = is_ending || (holder > 0 && is_process(holder));
		r = wait_longer(&patience, is_ending, is_ending ? ENDING_MAX_MS : ALIVE_MS);
		if (r)
			return r;
	}
	name_holder(listener->lock_fd);
	return 0;
}

/*
 * Return true if a process accepts connections there. The socket of a dead process refuses them,
 * once the kernel has closed it. @pid: set to the id of the process that listens, if it is known.
 */
static bool is_listened_on(const struct sockaddr_un *address, int *pid)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;
	struct ucred peer;
	socklen_t n = sizeof(peer);

	if (fd < 0)
		return false;
	r = connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? errno : 0;
	if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0)
		*pid = peer.pid;
	close(fd);
	/* A full backlog (EAGAIN) and a socket of another type (EPROTOTYPE) count, too. */
	return r == 0 || r == EAGAIN || r == EPROTOTYPE;
}

/*
 * Wait until no process listens there. After a kill the kernel drops the lock before the io_uring,
 * and with it the socket; the process may have no id any more then.
 * Return: 0; SERVER_E_IN_USE; SERVER_E_STOPPED.
 */
static int await_listener(const struct sockaddr_un *address)
{
	struct patience patience = {.path = address->sun_path};
	int pid = 0, r;

	while (is_listened_on(address, &pid)) {
		const bool is_ending = pid > 0 && is_process_ending(pid);

		r = wait_longer(&patience, is_ending, is_ending ? ENDING_MAX_MS : ALIVE_MS);
		if (r)
			return r;
	}
	return 0;
}

/* Set who may try to connect, before listen() makes connecting possible. */
static int set_permissions(const struct listener *listener)
{
	const struct server_options *options = &listener->server->options;
	unsigned int mode = listener->is_admin ? options->admin.socket_mode : options->socket_mode;

	if (listener->is_admin && options->admin.has_group &&
	    lchown(listener->path, (uid_t)-1, options->admin.gid) < 0) {
		log_warning(LOG_ADMIN_SOCKET,
			    "cannot give %s to group %u, so the group's members cannot connect "
			    "there: %s",
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
	/* Remove only a socket to make room for ours. */
	if (lstat(listener->path, &status) == 0 && !S_ISSOCK(status.st_mode))
		return SERVER_E_NO_SOCKET;

	r = take_path(listener);
	if (r)
		return r;
	r = await_listener(&address);
	if (r)
		return r;
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
	/*
	 * Listen again, so that clients see this process, not the socket's creator (SO_PEERCRED).
	 */
	return listener->fd < 0 || listen(listener->fd, LISTEN_BACKLOG) < 0 ? error_origin(-errno)
									    : 0;
}

int listener_init(struct listener *listener, struct server *server, bool is_admin)
{
	const struct server_options *options = &server->options;
	int given_fd = is_admin ? options->admin.given_fd : options->given_fd;
	int r;

	listener->server = server;
	turn_owner_init(&listener->owner, LISTENER_WEIGHT, 0);
	turn_job_init(&listener->job, RBK_TURN_CONNECTIONS, run_accept);
	listener->is_admin = is_admin;
	listener->path = is_admin ? options->admin.socket_path : options->socket_path;
	listener->is_given = given_fd > 0 && !options->owns_given;
	if (given_fd > 0 && options->owns_given) {
		r = take_path(listener);
		if (r)
			return r;
	}
	r = given_fd > 0 ? listener_take(listener, given_fd) : listener_bind(listener);
	if (r)
		return r;
	closers_take_fds(listener->fd, false);
	list_init(&listener->awaiting);
	r = loop_timer_new(options->loop, on_impatient, listener, &listener->patience);
	if (r == 0)
		r = loop_timer_new(options->loop, on_await, listener, &listener->await_timer);
	if (r)
		return error_fold(r);
	return loop_watch(options->loop, listener->fd, POLLIN, on_connection, listener,
			  &listener->watch);
}

void listener_deinit(struct listener *listener)
{
	listener->watch = loop_unwatch(listener->watch);
	listener->patience = loop_timer_free(listener->patience);
	listener->await_timer = loop_timer_free(listener->await_timer);
	if (listener->server) {
		drop_newcomers(listener);
		listener->is_paused = false;
		turn_queue_withdraw(&listener->server->work, &listener->job);
	}
	if (listener->fd >= 0 && !listener->is_given)
		unlink(listener->path);
	/* The service manager may pass the socket to a version that does not use SO_PASSRIGHTS. */
	if (listener->fd >= 0 && listener->is_given)
		closers_take_fds(listener->fd, true);
	listener->fd = close_fd(listener->fd);
}

void listener_unlock(struct listener *listener)
{
	listener->lock_fd = close_fd(listener->lock_fd);
}
