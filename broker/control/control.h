#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Changes by administrators
 *
 * session/ receives the requests and checks permissions; this file informs the parts of the broker
 * that a change concerns: tenants of other limits, the dispatcher, placement and residency of
 * drained tenants and devices. Every change takes effect at once, and none outlives the broker.
 * Reactor thread only.
 */
#include "session/server.h"
#include "util/cleanup.h"

struct control;
struct dispatch;
struct loop;
struct publish;

struct control_options {
	struct loop *loop;
	struct tenants *tenants;
	struct dispatch *dispatch;
	struct residency *residency;
	struct publish *publish;
	uint32_t n_executors;
	/* Called when limits of tenants have changed, as after the policy was read again. */
	void (*limits_changed)(void *context);
	void *context;
};

/*
 * Make a control, which borrows everything that @options points to.
 * Return: 0 or negative errno.
 */
int control_new(const struct control_options *options, struct control **ret);
/* Return the hooks for server_new(), valid as long as @control. */
struct server_control control_hooks(struct control *control);
/*
 * Free the control.
 * Return: NULL.
 */
struct control *control_free(struct control *control);

DEFINE_CLEANUP(struct control *, control_free)
