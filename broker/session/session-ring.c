/* SPDX-License-Identifier: MIT */
/*
 * Rings of a session
 *
 * Made on request, announced to the dispatcher, closed when the client asks, breaks a rule or goes
 * away. A closed ring stays in memory until nothing of it is in flight; server_settle() frees it.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "loop/loop.h"
#include "session/ring.h"
#include "session/server-private.h"
#include "shm/ring.h"
#include "util/error.h"

static void on_bell(void *data, uint32_t events)
{
	struct session_ring *ring = data;
	const struct server_hooks *hooks = &ring->session->server->options.hooks;

	if (events & (POLLHUP | POLLERR)) {
		/* The client closed its end; the control connection tells whether it is gone. */
		ring->bell_watch = loop_unwatch(ring->bell_watch);
		return;
	}
	hooks->ring_bell(hooks->context, ring);
}

static int ring_start(struct session_ring *ring)
{
	struct server *server = ring->session->server;
	const struct server_hooks *hooks = &server->options.hooks;
	int r;

	r = hooks->ring_added(hooks->context, ring);
	if (r)
		return r;
	r = loop_watch(server->options.loop, ring->bell_fd, POLLIN, on_bell, ring,
		       &ring->bell_watch);
	if (r) {
		hooks->ring_closing(hooks->context, ring);
		hooks->ring_freed(hooks->context, ring);
	}
	return r;
}

int session_ring_add(struct session *session, uint32_t cookie, uint32_t n_entries)
{
	const struct server_limits *limits = &session->server->options.limits;
	struct rbk_wire_ring reply = {.reply = {.type = RBK_WIRE_RING_ADD, .cookie = cookie}};
	char why[ACCOUNT_TEXT_BYTES];
	struct session_ring *ring;
	struct ring_fds fds;
	uint32_t id;
	int r;

	for (id = 0; id < limits->max_rings && session->rings[id]; id++)
		;
	if (id == limits->max_rings) {
		session_reply_result(session, RBK_WIRE_RING_ADD, cookie, -EDQUOT,
				     "the session already has %u rings, the most allowed", id);
		return 0;
	}

	r = ring_new(session, id, n_entries, &fds, &ring);
	if (r == RING_E_GEOMETRY) {
		session_reply_result(session, RBK_WIRE_RING_ADD, cookie, -EINVAL,
				     "a ring has a power of two of entries, at most %u, not %u",
				     limits->max_ring_entries, n_entries);
		return 0;
	}
	if (r == RING_E_QUOTA) {
		session_reply_result(session, RBK_WIRE_RING_ADD, cookie, -EDQUOT,
				     "no room for a ring of %u entries: %s", n_entries,
				     account_explain(session->tenant->account, why));
		return 0;
	}
	if (r == 0) {
		r = ring_start(ring);
		if (r) {
			ring_free(ring);
			close(fds.sq);
			close(fds.cq);
			close(fds.bell);
		}
	}
	if (r) {
		session_reply_result(session, RBK_WIRE_RING_ADD, cookie, r,
				     "the broker cannot make a ring: %s", strerror(-r));
		return 0;
	}

	session->rings[id] = ring;
	session->server->n_rings++;
	session->n_added_rings++;
	reply.id = id;
	reply.n_entries = n_entries;
	reply.sq_bytes = ring->sq_bytes;
	reply.cq_bytes = ring->cq_bytes;
	session_reply(session, &reply.reply, sizeof(reply), (int[]){fds.sq, fds.cq, fds.bell}, 3);
	close(fds.sq);
	close(fds.cq);
	close(fds.bell);
	return 0;
}

void session_ring_close(struct session_ring *ring)
{
	const struct server_hooks *hooks = &ring->session->server->options.hooks;

	if (ring->is_closing)
		return;
	ring->is_closing = true;
	ring->bell_watch = loop_unwatch(ring->bell_watch);
	hooks->ring_closing(hooks->context, ring);
	__atomic_store_n(&ring->cq->closed, 1, __ATOMIC_RELEASE);
	/* End of file wakes a client that sleeps on its end, whatever it wrote into its area. */
	ring->bell_fd = close_fd(ring->bell_fd);
	if (ring->n_in_flight == 0)
		session_ring_drained(ring);
}

int session_ring_remove(struct session *session, uint32_t cookie, uint32_t id)
{
	struct session_ring *ring =
		id < session->server->options.limits.max_rings ? session->rings[id] : NULL;

	if (!ring || ring->is_closing) {
		session_reply_result(session, RBK_WIRE_RING_REMOVE, cookie, -ENOENT,
				     "there is no ring %u", id);
		return 0;
	}
	ring->wants_reply = true;
	ring->remove_cookie = cookie;
	session_ring_close(ring);
	return 0;
}

void session_ring_mute(struct session_ring *ring, bool is_muted)
{
	if (is_muted || ring->is_closing) {
		ring->bell_watch = loop_unwatch(ring->bell_watch);
		return;
	}
	if (!ring->bell_watch && loop_watch(ring->session->server->options.loop, ring->bell_fd,
					    POLLIN, on_bell, ring, &ring->bell_watch))
		session_end(ring->session, false, "the broker is out of memory");
}

void session_ring_drained(struct session_ring *ring)
{
	ring->is_drained = true;
	ring->session->server->needs_settling = true;
}

void session_ring_discard(struct session_ring *ring)
{
	struct session *session = ring->session;
	const struct server_hooks *hooks = &session->server->options.hooks;

	if (ring->wants_reply)
		session_reply_result(session, RBK_WIRE_RING_REMOVE, ring->remove_cookie, 0, NULL);
	hooks->ring_freed(hooks->context, ring);
	session->rings[ring->id] = NULL;
	session->server->n_rings--;
	session->n_added_rings--;
	ring_free(ring);
}
