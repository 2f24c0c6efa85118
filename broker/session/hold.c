/* SPDX-License-Identifier: MIT */
/*
 * Holds: charges for memory and descriptors that clients may keep
 *
 * The kernel keeps an object that a client received for as long as the client holds it. Such
 * objects are the pages of a ring's areas and of a statistics page, the dma-buf of an exported
 * arena, the other end of a bell, and unread answers in a connection with the descriptors in them.
 * The kernel accounts most of that to brokerd, which created it. A client could therefore make the
 * broker create objects, remove them and keep them uncharged. To prevent that, the charges stay
 * until the client has released the object. The broker detects the release in one of these ways:
 *
 * - A memfd: inotify watches the inode. A watch does not keep the file alive. When the last
 *   descriptor and mapping of any process is gone, including descriptors in messages in flight, the
 *   kernel removes the watch and reports it (IN_IGNORED). A watch costs no descriptor and no
 *   polling. Pages of the memfds cannot be removed while others have them, because
 *   F_SEAL_FUTURE_WRITE keeps all processes from punching holes.
 * - A dma-buf: the broker keeps a descriptor of its own, through which the kernel reports the
 *   number of holders (util/dma-buf.h). The count does not include a client that has imported the
 *   dma-buf with the driver of the same card. The kernel then accounts the memory to the client as
 *   if it had allocated it there, which it could have done without the broker.
 * - A bell: the broker's end stays open and reports when the other one is closed. A client that
 *   shuts its end down and keeps it looks the same. It then has an uncharged socket of some
 *   kilobytes for each of its own descriptors, and no messages in flight.
 * - A connection: the broker's end stays open after the session, and the kernel reports how many
 *   sent bytes are not received. The kernel also counts descriptors in flight, of which our user
 *   may have as many as one process may have open; unread answers contribute to that count.
 *
 * Checking the last three takes one to three system calls each. A timer therefore checks some
 * objects at a time, with a long period while nothing changes. Some are also checked before an
 * account is refused a charge.
 */
#include "session/hold.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "session/server-private.h"
#include "util/dma-buf.h"
#include "util/error.h"

enum {
	/*
	 * Checks at once: reading /proc takes some microseconds, querying a socket less than one.
	 */
	DMA_BUF_BATCH = 16,
	SOCKET_BATCH = 128,
	/*
	 * Nodes of a list visited for an account before a refusal, including those of other
	 * accounts.
	 */
	ACCOUNT_BATCH = 64,
	/*
	 * Watches of one inotify instance. Each causes one event; the kernel queues 16,384 by
	 * default, so no event is lost.
	 */
	WATCHES = 8192,
	EVENT_BATCH = 256,
	/* Fraction of a turn's budget for a timer's checks, however long the turn was. */
	LOOK_PART = 4,
	FILE_BUCKETS = 1024,
	NAME_BUCKETS = 256,
};

static const uint64_t first_period_ns = 2000000, last_period_ns = 250000000;

/* An inotify instance. */
struct watcher {
	struct list_node link; /* in holds.watchers */
	struct holds *holds;
	struct loop_watch *watch;
	unsigned int n_reserved; /* watches that holds have or may still add */
	int fd;
};

struct hold_file {
	struct list_node link; /* in holds.files once the hold has been left */
	struct hold *hold;
	int wd;
};

struct hold {
	struct list_node link; /* in holds.dma_bufs or holds.sockets */
	struct list_node name; /* in holds.names: the hold of the dma-buf (dev, ino) */
	dev_t dev;
	ino_t ino;
	const struct account *account; /* payer of a named dma-buf */
	struct closers_job job;
	struct holds *holds;
	struct charge charges[HOLD_CHARGES];
	struct charge unread; /* host bytes of an ended connection's unread answers */
	struct owner *user;   /* user of a socket's other end; counted */
	struct watcher *watcher;
	struct hold_file files[HOLD_FILES];
	unsigned int n_reserved; /* watches reserved in watcher */
	unsigned int n_files;    /* files watched; setup thread, until the hold is left */
	int fd;
	bool is_bell;
	bool is_admin; /* the connection was an administrator's; the hold keeps its place */
};
_Static_assert(sizeof(struct hold) <= HOLD_BYTES, "what is charged for a hold");

struct holds {
	struct server *server;
	struct loop_timer *timer;
	uint64_t period_ns; /* period of the armed timer; 0: not armed */
	struct list_node dma_bufs, sockets;
	struct list_node senders; /* struct hold_sent */
	struct list_node watchers;
	struct list_node files[FILE_BUCKETS]; /* by watch descriptor */
	struct list_node names[NAME_BUCKETS]; /* by inode */
};

/* --- memfds --- */

static struct list_node *bucket_of(struct holds *holds, int wd)
{
	return &holds->files[(unsigned int)wd % FILE_BUCKETS];
}

static struct hold_file *find_file(const struct watcher *watcher, int wd)
{
	list_for_each (node, bucket_of(watcher->holds, wd)) {
		struct hold_file *file = container_of(node, struct hold_file, link);

		if (file->wd == wd && file->hold->watcher == watcher)
			return file;
	}
	return NULL;
}

static void file_gone(struct watcher *watcher, int wd)
{
	struct hold_file *file;

	/* A memfd that a client has sent twice has one watch, which several holds share. */
	while ((file = find_file(watcher, wd))) {
		list_remove(&file->link);
		if (--file->hold->n_files == 0)
			hold_free(file->hold);
	}
}

/* Return: true if more events may be queued. */
static bool watcher_read(struct watcher *watcher)
{
	_Alignas(struct inotify_event) char bytes[EVENT_BATCH * sizeof(struct inotify_event)];
	ssize_t n = read(watcher->fd, bytes, sizeof(bytes));
	const struct inotify_event *event;

	/* Events of a watched inode itself have no name. */
	for (ssize_t at = 0; at < n; at += (ssize_t)(sizeof(*event) + event->len)) {
		event = (const struct inotify_event *)(bytes + at);
		if (event->mask & IN_IGNORED)
			file_gone(watcher, event->wd);
	}
	return n == (ssize_t)sizeof(bytes);
}

static void on_gone(void *data, uint32_t events)
{
	struct watcher *watcher = data;

	if (watcher_read(watcher))
		loop_rewatch(watcher->watch);
}

static void watcher_free(struct watcher *watcher)
{
	list_remove(&watcher->link);
	loop_unwatch(watcher->watch);
	close_fd(watcher->fd);
	free(watcher);
}

/* Return: 0; -EMFILE: our user has reached its limit of inotify instances; -ENOMEM. */
static int watcher_new(struct holds *holds, struct watcher **ret)
{
	struct watcher *watcher = calloc(1, sizeof(*watcher));
	int r;

	if (!watcher)
		return error_origin(-ENOMEM);
	list_init(&watcher->link);
	watcher->holds = holds;
	watcher->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	r = watcher->fd < 0 ? error_origin(-errno)
			    : loop_watch(holds->server->options.loop, watcher->fd, POLLIN, on_gone,
					 watcher, &watcher->watch);
	if (r) {
		watcher_free(watcher);
		return error_fold(r);
	}
	list_append(&holds->watchers, &watcher->link);
	*ret = watcher;
	return 0;
}

/* Return: as watcher_new(). */
static int watcher_reserve(struct hold *hold, unsigned int n_files)
{
	int r;

	list_for_each (node, &hold->holds->watchers) {
		struct watcher *watcher = container_of(node, struct watcher, link);

		if (watcher->n_reserved + n_files <= WATCHES) {
			hold->watcher = watcher;
			goto found;
		}
	}
	r = watcher_new(hold->holds, &hold->watcher);
	if (r)
		return error_fold(r);
found:
	hold->watcher->n_reserved += n_files;
	hold->n_reserved = n_files;
	return 0;
}

int hold_watch(struct hold *hold, int fd)
{
	struct hold_file *file = &hold->files[hold->n_files];
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* A memfd cannot be moved, so the only event is the end of the watch. */
	file->wd = inotify_add_watch(hold->watcher->fd, path, IN_MOVE_SELF);
	if (file->wd < 0)
		return error_origin(-errno);
	hold->n_files++;
	return 0;
}

/* --- checks --- */

unsigned int hold_unread_bytes(int fd)
{
	int n_bytes = 0;

	return ioctl(fd, SIOCOUTQ, &n_bytes) < 0 || n_bytes < 0 ? 0 : (unsigned int)n_bytes;
}

static void close_run(struct closers_job *job)
{
	struct hold *hold = container_of(job, struct hold, job);

	hold->fd = close_fd(hold->fd);
}

static void close_done(struct closers_job *job)
{
	hold_free(container_of(job, struct hold, job));
}

/* Close the dma-buf on a closers.h thread, because closing frees its pages. */
static void dma_buf_close(struct hold *hold)
{
	hold->job = (struct closers_job){.run = close_run, .done = close_done, .closes = true};
	list_remove(&hold->link);
	list_remove(&hold->name);
	closers_submit(hold->holds->server->closers, hold->charges[0].account, &hold->job);
}

/* Return: false if clients still hold it, or if that is unknown. */
static bool dma_buf_look(struct hold *hold)
{
	uint64_t n_holders;

	if (dma_buf_holders(hold->fd, &n_holders) || n_holders > 1)
		return false;
	dma_buf_close(hold);
	return true;
}

static bool bell_is_closed(int fd)
{
	struct pollfd poll_fd = {.fd = fd};

	return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLHUP);
}

static bool socket_look(struct hold *hold)
{
	if (hold->is_bell ? !bell_is_closed(hold->fd) : hold_unread_bytes(hold->fd) > 0)
		return false;
	discard_connection(hold->holds->server, hold->charges[0].account, hold->user,
			   steal_fd(&hold->fd), &hold->charges[0]);
	hold_free(hold);
	return true;
}

static bool sender_look(struct hold_sent *sent)
{
	if (hold_unread_bytes(sent->fd) > 0)
		return false;
	hold_sent_deinit(sent);
	return true;
}

/* These functions check only objects of @account, or of all accounts if it is NULL. */
static bool look_dma_buf(struct list_node *node, const struct account *account)
{
	struct hold *hold = container_of(node, struct hold, link);

	return (!account || hold->charges[0].account == account) && dma_buf_look(hold);
}

static bool look_socket(struct list_node *node, const struct account *account)
{
	struct hold *hold = container_of(node, struct hold, link);

	return (!account || hold->charges[0].account == account) && socket_look(hold);
}

static bool look_sender(struct list_node *node, const struct account *account)
{
	struct hold_sent *sent = container_of(node, struct hold_sent, link);

	return (!account || sent->charge.account == account) && sender_look(sent);
}

/*
 * Visit at most @n nodes of all accounts, and stop after the first one when this turn has used
 * @stop_ticks. Nodes that stay move to the end of the list, so that all get their turn.
 * Return: true if any node was removed.
 */
static bool look_at_some(struct holds *holds, struct list_node *list,
			 bool (*look)(struct list_node *node, const struct account *account),
			 const struct account *account, unsigned int n, uint64_t stop_ticks)
{
	const struct turn *turn = loop_current(holds->server->options.loop);
	struct list_node *node, *first_kept = NULL;
	bool has_gone = false;

	for (unsigned int i = 0; i < n; i++) {
		if (i > 0 && turn_used_ticks(turn) >= stop_ticks)
			break;
		node = list->next;
		if (node == list || node == first_kept)
			break;
		if (look(node, account)) {
			has_gone = true;
			continue;
		}
		list_remove(node);
		list_append(list, node);
		first_kept = first_kept ? first_kept : node;
	}
	return has_gone;
}

static void on_timer(void *data)
{
	struct holds *holds = data;
	struct turn *turn = loop_current(holds->server->options.loop);
	struct turn_source outer = turn_enter(turn, RBK_TURN_ENDS, 0);
	const uint64_t stop_ticks = turn_stop_ticks(turn, LOOK_PART);
	bool has_gone;

	turn_time_cpu(turn);
	has_gone = look_at_some(holds, &holds->dma_bufs, look_dma_buf, NULL, DMA_BUF_BATCH,
				stop_ticks);
	has_gone |=
		look_at_some(holds, &holds->sockets, look_socket, NULL, SOCKET_BATCH, stop_ticks);
	has_gone |=
		look_at_some(holds, &holds->senders, look_sender, NULL, SOCKET_BATCH, stop_ticks);
	turn_leave(turn, outer);
	if (list_is_empty(&holds->dma_bufs) && list_is_empty(&holds->sockets) &&
	    list_is_empty(&holds->senders)) {
		holds->period_ns = 0;
		return;
	}
	/* One release makes others likely; one turn checks only a few objects. */
	if (has_gone)
		holds->period_ns = first_period_ns;
	else if (holds->period_ns < last_period_ns / 2)
		holds->period_ns *= 2;
	else
		holds->period_ns = last_period_ns;
	loop_timer_arm(holds->timer, holds->period_ns);
}

/* Check new objects soon: most are released within moments. */
static void look_soon(struct holds *holds)
{
	/* Rearming would postpone a timer that is already armed for the first period. */
	if (holds->period_ns == first_period_ns)
		return;
	holds->period_ns = first_period_ns;
	loop_timer_arm(holds->timer, holds->period_ns);
}

void holds_notice(struct server *server)
{
	list_for_each (node, &server->holds->watchers)
		watcher_read(container_of(node, struct watcher, link));
}

bool holds_look(struct server *server, const struct account *account)
{
	struct holds *holds = server->holds;
	uint64_t host_bytes = account_used(account, ACCOUNT_HOST_BYTES);
	uint64_t n_fds = account_used(account, ACCOUNT_FDS);

	holds_notice(server);
	look_at_some(holds, &holds->sockets, look_socket, account, ACCOUNT_BATCH, UINT64_MAX);
	look_at_some(holds, &holds->senders, look_sender, account, ACCOUNT_BATCH, UINT64_MAX);
	return account_used(account, ACCOUNT_HOST_BYTES) < host_bytes ||
	       account_used(account, ACCOUNT_FDS) < n_fds;
}

/* --- descriptors in answers --- */

int hold_sent_add(struct hold_sent *sent, struct server *server, struct account *account)
{
	if (sent->charge.account && hold_unread_bytes(sent->fd) == 0)
		hold_sent_deinit(sent);
	if (sent->charge.amount >= HOLD_SENT_MAX ||
	    account_charge_change(account, &sent->charge, ACCOUNT_FDS, sent->charge.amount + 1))
		return ACCOUNT_E_QUOTA;
	if (list_is_empty(&sent->link))
		list_append(&server->holds->senders, &sent->link);
	look_soon(server->holds);
	return 0;
}

void hold_sent_deinit(struct hold_sent *sent)
{
	list_remove(&sent->link);
	charge_deinit(&sent->charge);
}

/* --- holds --- */

int holds_init(struct server *server)
{
	struct holds *holds = calloc(1, sizeof(*holds));

	if (!holds)
		return error_origin(-ENOMEM);
	server->holds = holds;
	holds->server = server;
	list_init(&holds->dma_bufs);
	list_init(&holds->sockets);
	list_init(&holds->senders);
	list_init(&holds->watchers);
	for (unsigned int i = 0; i < FILE_BUCKETS; i++)
		list_init(&holds->files[i]);
	for (unsigned int i = 0; i < NAME_BUCKETS; i++)
		list_init(&holds->names[i]);
	return loop_timer_new(server->options.loop, on_timer, holds, &holds->timer);
}

/*
 * Free a hold of a socket, whose end may stay open. A client may have sent a TCP socket that
 * lingers. Closing our end frees the socket, which lasts as long as the client wants while the
 * reactor waits. An exiting process does not linger, so such an end stays open until the exit.
 */
static void socket_forget(struct hold *hold)
{
	/* No message arrives after this. */
	shutdown(hold->fd, SHUT_RDWR);
	if (closers_may_have_fds(hold->fd))
		hold->fd = -1;
	hold_free(hold);
}

void holds_close(struct server *server)
{
	list_for_each_safe (node, &server->holds->dma_bufs)
		dma_buf_close(container_of(node, struct hold, link));
}

void holds_deinit(struct server *server)
{
	struct holds *holds = server->holds;

	if (!holds)
		return;
	loop_timer_free(holds->timer);
	list_for_each_safe (node, &holds->dma_bufs)
		hold_free(container_of(node, struct hold, link));
	list_for_each_safe (node, &holds->sockets)
		socket_forget(container_of(node, struct hold, link));
	for (unsigned int i = 0; i < FILE_BUCKETS; i++)
		while (!list_is_empty(&holds->files[i]))
			hold_free(container_of(holds->files[i].next, struct hold_file, link)->hold);
	list_for_each_safe (node, &holds->watchers)
		watcher_free(container_of(node, struct watcher, link));
	free(holds);
	server->holds = NULL;
}

int hold_new(struct server *server, unsigned int n_files, struct hold **ret)
{
	_cleanup_(hold_freep) struct hold *hold = calloc(1, sizeof(*hold));
	int r;

	if (!hold)
		return error_origin(-ENOMEM);
	list_init(&hold->link);
	list_init(&hold->name);
	hold->holds = server->holds;
	hold->fd = -1;
	for (unsigned int i = 0; i < HOLD_FILES; i++) {
		list_init(&hold->files[i].link);
		hold->files[i].hold = hold;
	}
	if (n_files > 0) {
		r = watcher_reserve(hold, n_files);
		if (r)
			return error_fold(r);
	}
	*ret = steal_ptr(hold);
	return 0;
}

struct hold *hold_free(struct hold *hold)
{
	if (!hold)
		return NULL;
	for (unsigned int i = 0; i < ARRAY_SIZE(hold->charges); i++)
		charge_deinit(&hold->charges[i]);
	charge_deinit(&hold->unread);
	list_remove(&hold->link);
	list_remove(&hold->name);
	for (unsigned int i = 0; i < HOLD_FILES; i++)
		list_remove(&hold->files[i].link);
	if (hold->watcher)
		hold->watcher->n_reserved -= hold->n_reserved;
	close_fd(hold->fd);
	owner_unref(hold->user);
	if (hold->is_admin)
		admin_session_end(hold->holds->server);
	free(hold);
	return NULL;
}

static void take_charges(struct hold *hold, struct charge *const charges[HOLD_CHARGES])
{
	for (unsigned int i = 0; i < HOLD_CHARGES; i++)
		if (charges[i])
			hold->charges[i] = charge_steal(charges[i]);
}

void hold_leave_files(struct hold *hold, struct charge *const charges[HOLD_CHARGES])
{
	if (hold->n_files == 0) {
		hold_free(hold);
		return;
	}
	take_charges(hold, charges);
	for (unsigned int i = 0; i < hold->n_files; i++)
		list_append(bucket_of(hold->holds, hold->files[i].wd), &hold->files[i].link);
}

void hold_name_dma_buf(struct hold *hold, dev_t dev, ino_t ino, const struct account *account)
{
	hold->dev = dev;
	hold->ino = ino;
	hold->account = account;
	list_append(&hold->holds->names[ino % NAME_BUCKETS], &hold->name);
}

int hold_find_dma_buf(struct server *server, dev_t dev, ino_t ino, const struct account *account,
		      struct hold **ret)
{
	*ret = NULL;
	list_for_each (node, &server->holds->names[ino % NAME_BUCKETS]) {
		struct hold *hold = container_of(node, struct hold, name);

		if (hold->dev != dev || hold->ino != ino)
			continue;
		if (hold->account != account)
			return HOLD_E_FOREIGN;
		if (hold->fd < 0)
			return HOLD_E_IN_USE;
		*ret = hold;
		return 0;
	}
	return 0;
}

int hold_resume_dma_buf(struct hold *hold, struct charge *const charges[HOLD_CHARGES])
{
	list_remove(&hold->link);
	for (unsigned int i = 0; i < HOLD_CHARGES; i++)
		*charges[i] = charge_steal(&hold->charges[i]);
	return steal_fd(&hold->fd);
}

void hold_leave_dma_buf(struct hold *hold, int fd, struct charge *const charges[HOLD_CHARGES])
{
	if (fd < 0) {
		hold_free(hold);
		return;
	}
	hold->fd = fd;
	take_charges(hold, charges);
	list_append(&hold->holds->dma_bufs, &hold->link);
	if (!dma_buf_look(hold))
		look_soon(hold->holds);
}

void hold_leave_socket(struct hold *hold, int fd, struct owner *user,
		       struct charge *const charges[HOLD_CHARGES])
{
	if (fd < 0) {
		hold_free(hold);
		return;
	}
	hold->fd = fd;
	hold->is_bell = true;
	hold->user = owner_ref(user);
	take_charges(hold, charges);
	list_append(&hold->holds->sockets, &hold->link);
	if (!socket_look(hold))
		look_soon(hold->holds);
}

void hold_leave_connection(struct hold *hold, int fd, struct owner *user, struct account *account,
			   struct charge *const charges[HOLD_CHARGES], bool is_admin)
{
	unsigned int n_bytes = hold_unread_bytes(fd);

	hold->fd = fd;
	hold->is_admin = is_admin;
	hold->user = owner_ref(user);
	take_charges(hold, charges);
	if (n_bytes > 0)
		account_charge_set(account, &hold->unread, ACCOUNT_HOST_BYTES, n_bytes);
	list_append(&hold->holds->sockets, &hold->link);
	if (!socket_look(hold))
		look_soon(hold->holds);
}
