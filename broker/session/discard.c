/* SPDX-License-Identifier: MIT */
/*
 * Closing descriptors from clients, and the connections over which they came
 *
 * close() can take as long as the creator of the file wants: a socket lingers, a FUSE file system
 * delays its answer, the last reference to a large memfd frees all its pages. Neither the reactor
 * nor the setup thread therefore closes a client's descriptor unless it is known to be a memfd. The
 * same holds for a connection with unreceived messages, because the kernel closes the descriptors
 * in them. The pool of closers.h closes both. Until then the descriptors are charged to the tenant,
 * which reaches its own limit. Descriptors of a tenant at its limit are counted as uncharged. When
 * those that wait exceed a fraction of the process's descriptors, no connection is accepted.
 */
#include <errno.h>
#include <stdlib.h>

#include "session/server-private.h"
#include "util/error.h"

struct discard {
	struct closers_job job;
	struct server *server;
	struct charge charge;
	int fd;
	bool is_connection;
	bool is_uncharged;    /* counted in server->n_uncharged */
	bool is_spare;        /* element of server->discards */
	struct discard *next; /* in server->spare_discards */
};

/* Discards preallocated for use without memory. */
enum { SPARE_DISCARDS = 64 };

int discards_init(struct server *server)
{
	server->discards = calloc(SPARE_DISCARDS, sizeof(*server->discards));
	if (!server->discards)
		return error_origin(-ENOMEM);
	for (unsigned int i = 0; i < SPARE_DISCARDS; i++) {
		server->discards[i].next = server->spare_discards;
		server->spare_discards = &server->discards[i];
	}
	return 0;
}

void discards_deinit(struct server *server)
{
	free(server->discards);
	server->discards = server->spare_discards = NULL;
}

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
	struct server *server = discard->server;

	charge_deinit(&discard->charge);
	if (discard->is_uncharged) {
		server->n_uncharged--;
		listener_resume(&server->clients);
		listener_resume(&server->admins);
	}
	if (!discard->is_spare) {
		free(discard);
		return;
	}
	discard->next = server->spare_discards;
	server->spare_discards = discard;
}

/* Return: NULL if no memory and no spare is left. */
static struct discard *discard_new(struct server *server)
{
	struct discard *discard = calloc(1, sizeof(*discard));

	if (discard || !server->spare_discards)
		return discard;
	discard = server->spare_discards;
	server->spare_discards = discard->next;
	*discard = (struct discard){.is_spare = true};
	return discard;
}

/* Return: NULL if no memory and no spare is left; @fd is closed then. */
static struct discard *discard_begin(struct server *server, struct account *account, int fd,
				     bool is_connection)
{
	struct discard *discard = discard_new(server);

	if (discard) {
		discard->job = (struct closers_job){
			.run = discard_run, .done = discard_done, .closes = true};
		discard->server = server;
		discard->fd = fd;
		discard->is_connection = is_connection;
		closers_submit(server->closers, account, &discard->job);
		return discard;
	}
	/* The reactor must close @fd itself, with the precautions of closers.h. */
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

/*
 * Return: true if the connection was closed, because closing takes no longer than waking the
 * client.
 */
static bool close_at_once(struct server *server, struct owner *user, int fd)
{
	const uint64_t begin_ticks = turn_now(server->work.turn);

	/* The client sees the end now, and no message can arrive any more. */
	shutdown(fd, SHUT_RDWR);
	if (user)
		owner_judge(server, user, begin_ticks);
	if ((user && user->is_slow) || closers_may_have_fds(fd))
		return false;
	close(fd);
	return true;
}

void discard_connection(struct server *server, struct account *account, struct owner *user, int fd,
			struct charge *charge)
{
	struct discard *discard;

	if (!(user && user->is_slow) && close_at_once(server, user, fd)) {
		charge_deinit(charge);
		return;
	}
	discard = discard_begin(server, account, fd, true);
	if (!discard) {
		charge_deinit(charge);
		return;
	}
	discard->charge = charge_steal(charge);
	/* Charge a rejected client's connection to its tenant, within the tenant's limit. */
	if (!discard->charge.account &&
	    (account == tenants_broker_account(server->options.tenants) ||
	     account_charge(account, &discard->charge, ACCOUNT_FDS, 1))) {
		discard->is_uncharged = true;
		server->n_uncharged++;
	}
}
