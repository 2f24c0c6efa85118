/* SPDX-License-Identifier: MIT */
/*
 * Sessions that have not sent HELLO
 *
 * A client sends HELLO as soon as it has connected. A client that does not occupies a session and a
 * descriptor, and may be one of very many. It has the rest of the period in which it connected, and
 * one whole period. Sessions are listed in the order of connecting, so the timer visits only the
 * sessions that it ends, a batch at a time.
 */
#include "loop/loop.h"
#include "session/server-private.h"

/* Half of the longest time granted. */
static const uint64_t period_ns = 15000000000;
/* Pause between batches. */
static const uint64_t pause_ns = 1000000;

enum { END_BATCH = 8 };

static void on_period(void *data)
{
	struct server *server = data;
	struct session *session;

	if (!server->has_late_silent)
		server->silent_period++;
	server->has_late_silent = false;
	for (unsigned int i = 0; !list_is_empty(&server->silent); i++) {
		session = container_of(server->silent.next, struct session, silent);
		server->has_late_silent = server->silent_period - session->silent_period > 1;
		if (!server->has_late_silent || i == END_BATCH)
			break;
		/* Removes the session from the list. */
		session_end(session, true, "the client did not send its hello in time");
		server->has_late_silent = false;
	}
	if (!list_is_empty(&server->silent))
		loop_timer_arm(server->silent_timer,
			       server->has_late_silent ? pause_ns : server->silent_period_ns);
}

int greet_init(struct server *server)
{
	server->silent_period_ns = period_ns;
	list_init(&server->silent);
	return loop_timer_new(server->options.loop, on_period, server, &server->silent_timer);
}

void greet_deinit(struct server *server)
{
	server->silent_timer = loop_timer_free(server->silent_timer);
}

void greet_expect(struct session *session)
{
	struct server *server = session->server;

	session->silent_period = server->silent_period;
	if (list_is_empty(&server->silent))
		loop_timer_arm(server->silent_timer, server->silent_period_ns);
	list_append(&server->silent, &session->silent);
}
