/* SPDX-License-Identifier: MIT */
/*
 * Closing what clients sent
 *
 * close() can take as long as whoever made the file likes: a socket lingers, a FUSE file system
 * answers when it wants to, the last reference to a large memfd frees all its pages. So neither the
 * reactor nor the setup thread closes a descriptor from a client that it has not seen to be a
 * memfd; a thread does that has nothing else to do. Whoever keeps it busy keeps only those
 * waiting that send descriptors which nobody asked for, and runs into its own limit.
 */
#include <errno.h>

#include "session/server-private.h"
#include "util/error.h"

struct discard {
	struct offload_job job;
	struct server *server;
	struct charge charge;
	int fd;
};

static void discard_run(struct offload_job *job)
{
	struct discard *discard = container_of(job, struct discard, job);

	close(discard->fd);
}

static void discard_done(struct offload_job *job)
{
	struct discard *discard = container_of(job, struct discard, job);

	discard->server->n_discards--;
	charge_deinit(&discard->charge);
	free(discard);
}

int discard_fd(struct server *server, struct account *account, int fd)
{
	struct discard *discard = calloc(1, sizeof(*discard));
	int r;

	if (!discard) {
		close(fd);
		return error_origin(-ENOMEM);
	}
	*discard = (struct discard){
		.job = {.run = discard_run, .done = discard_done},
		.server = server,
		.fd = fd,
	};
	r = account_charge(account, &discard->charge, ACCOUNT_FDS, 1);
	server->n_discards++;
	offload_submit(server->closer, &discard->job);
	return r ? SESSION_E_HOSTILE : 0;
}
