#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What administrators change, done
 *
 * session/ hears them out and says who may; here the rooms that a change concerns are told of it:
 * tenants of other limits, the dispatcher, placement and residency of what is drained. Everything
 * takes effect at once, and nothing outlives the broker. Reactor thread only.
 */
#include "session/server.h"
#include "util/cleanup.h"

struct control;
struct dispatch;

struct control_options {
	struct tenants *tenants;
	struct dispatch *dispatch;
	struct residency *residency;
	uint32_t n_executors;
	/* Limits of tenants have changed, as when the policy was read again. */
	void (*limits_changed)(void *context);
	void *context;
};

/* Everything pointed to is borrowed. Return: 0 or -ENOMEM. */
int control_new(const struct control_options *options, struct control **ret);
/* For server_new(); valid as long as @control. */
struct server_control control_hooks(struct control *control);
/* Return: NULL. */
struct control *control_free(struct control *control);

DEFINE_CLEANUP(struct control *, control_free)
