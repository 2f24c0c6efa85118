/* SPDX-License-Identifier: MIT */
/*
 * Closing what clients sent, and the connections that they sent it over
 *
 * close() can take as long as whoever made the file likes: a socket lingers, a FUSE file system
 * answers when it wants to, the last reference to a large memfd frees all its pages. So neither the
 * reactor nor the setup thread closes a descriptor from a client that it has not seen to be a
 * memfd, nor a connection that messages are under way to, since the kernel closes the descriptors
 * in them with it. The pool of closers.h does. Until then they are charged to the tenant, which
 * runs into its own limit.
 */
#include <errno.h>

#include "session/server-private.h"
#include "util/error.h"

struct discard {
	struct closers_job job;
	struct server *server;
	struct charge charge;
	int fd;
	bool is_connection;
};

static void discard_run(struct closers_job *job)
{
	struct discard *discard = container_of(job, struct discard, job);

	if (discard->is_connection)
		closers_hang_up(discard->fd);
	else
		closers_close(discard->fd);
}

static void discard_done(struct closers_job *job)
{
	struct discard *discard = container_of(job, struct discard, job);

	charge_deinit(&discard->charge);
	free(discard);
}

/* Return: NULL without memory; @fd is closed then. */
static struct discard *discard_begin(struct server *server, struct account *account, int fd,
				     bool is_connection)
{
	struct discard *discard = calloc(1, sizeof(*discard));

	if (discard) {
		*discard = (struct discard){
			.job = {.run = discard_run, .done = discard_done},
			.server = server,
			.fd = fd,
			.is_connection = is_connection,
		};
		closers_submit(server->closers, account, &discard->job);
		return discard;
	}
	/* The reactor has to, and does what it can for it not to last. */
	if (is_connection)
		closers_hang_up(fd);
	else
		closers_close(fd);
	return NULL;
}

int discard_fd(struct server *server, struct account *account, int fd)
{
	struct discard *discard = discard_begin(server, account, fd, false);

	if (!discard)
		return error_origin(-ENOMEM);
	return account_charge(account, &discard->charge, ACCOUNT_FDS, 1) ? SESSION_E_HOSTILE : 0;
}

void discard_connection(struct server *server, struct account *account, int fd,
			struct charge *charge)
{
	struct discard *discard;

	/* The client sees its end now; and nothing can come in any more. */
	shutdown(fd, SHUT_RDWR);
	if (!closers_has_unread(fd)) {
		close(fd);
		charge_deinit(charge);
		return;
	}
	discard = discard_begin(server, account, fd, true);
	if (discard)
		discard->charge = charge_steal(charge);
	else
		charge_deinit(charge);
}
