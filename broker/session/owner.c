/* SPDX-License-Identifier: MIT */
/*
 * Owners of the reactor's work
 *
 * Tenants share the reactor's work for clients beside their rings by weight. A newly accepted
 * connection is not identified yet, and identification is most of its cost. Until then the
 * connection counts for the user that the kernel reports.
 *
 * An owner outlives its sessions until it owes no time; otherwise a client that connects and
 * disconnects in a loop would start with no debt each time. There are no more owners than tenants
 * and users. Clients whose owner cannot be allocated share one owner.
 */
#include <stdlib.h>

#include "loop/loop.h"
#include "session/server-private.h"

/* Weight of a user without a tenant, equal to a tenant's default. */
enum { USER_WEIGHT = 100 };

enum owner_kind {
	OWNER_TENANT,
	OWNER_USER,
	OWNER_ADMIN,  /* a user on the administrators' socket */
	OWNER_CLIENT, /* a user in a tenant, without work of its own */
};

void owners_init(struct server *server)
{
	turn_queue_init(&server->work, loop_current(server->options.loop));
	for (unsigned int i = 0; i < SERVER_OWNERS; i++)
		list_init(&server->owners[i]);
	list_init(&server->restrained);
	server->common = (struct owner){.n_users = 1};
	restraint_init(&server->common.restraint);
	turn_owner_init(&server->common.share, USER_WEIGHT, 0);
}

void owners_deinit(struct server *server)
{
	for (unsigned int i = 0; i < SERVER_OWNERS; i++)
		list_for_each_safe (node, &server->owners[i]) {
			list_remove(node);
			free(container_of(node, struct owner, link));
		}
}

/* Free the owners of a list that have no references and owe no time. */
static void sweep(struct server *server, struct list_node *list)
{
	list_for_each_safe (node, list) {
		struct owner *owner = container_of(node, struct owner, link);

		if (owner->n_users > 0 || owner->is_slow ||
		    !turn_owner_is_idle(&server->work, &owner->share) ||
		    !restraint_is_idle(server, owner))
			continue;
		list_remove(&owner->restraint.link);
		owner_unref(owner->last);
		list_remove(node);
		free(owner);
	}
}

static struct owner *owner_get(struct server *server, enum owner_kind kind, uint32_t tenant,
			       uint32_t number, uint32_t weight)
{
	const uint64_t key = (uint64_t)kind << 60 ^ (uint64_t)tenant << 32 ^ number;
	struct list_node *list = &server->owners[(number + kind) % SERVER_OWNERS];
	struct owner *owner;

	list_for_each (node, list) {
		owner = container_of(node, struct owner, link);
		if (owner->key != key)
			continue;
		owner->n_users++;
		return owner;
	}
	sweep(server, list);
	owner = calloc(1, sizeof(*owner));
	if (!owner) {
		server->common.n_users++;
		return &server->common;
	}
	owner->key = key;
	owner->n_users = 1;
	turn_owner_init(&owner->share, weight, kind == OWNER_TENANT ? number : 0);
	restraint_init(&owner->restraint);
	list_append(list, &owner->link);
	return owner;
}

struct owner *owner_of_user(struct server *server, uid_t uid)
{
	return owner_get(server, OWNER_USER, 0, (uint32_t)uid, USER_WEIGHT);
}

struct owner *owner_of_client(const struct session *session)
{
	return owner_get(session->server, OWNER_CLIENT,
			 session->tenant ? session->tenant->number : 0, (uint32_t)session->uid,
			 USER_WEIGHT);
}

struct owner *owner_of_session(const struct session *session)
{
	const struct tenant *tenant = session->tenant;

	if (!tenant)
		return owner_get(session->server, OWNER_ADMIN, 0, (uint32_t)session->uid,
				 USER_WEIGHT);
	return owner_get(session->server, OWNER_TENANT, 0, tenant->number, tenant->weight);
}

struct owner *owner_ref(struct owner *owner)
{
	owner->n_users++;
	return owner;
}

void owner_unref(struct owner *owner)
{
	/* A later sweep() frees the owner: the caller may be a job of the owner. */
	if (owner)
		owner->n_users--;
}

void owner_follow(struct owner *user, struct owner *last)
{
	if (user->last == last)
		return;
	owner_unref(user->last);
	user->last = owner_ref(last);
}

void session_queue(struct session *session, struct turn_job *job)
{
	if (session->tenant && session->owner != &session->server->common)
		session->owner->share.flow.weight = session->tenant->weight;
	turn_queue_submit(&session->server->work, &session->owner->share, job);
}

void listener_resume(struct listener *listener)
{
	if (!listener->is_paused)
		return;
	listener->is_paused = false;
	turn_queue_submit(&listener->server->work, &listener->owner, &listener->job);
}
