#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Figures of statistics pages beyond counts
 *
 * This file combines what other parts of the broker know separately: estimates of placement,
 * readings of telemetry, charges of the ledger. It writes them into the pages several times a
 * second while a session watches one, and when a page is handed out. It also carries out changes by
 * administrators. Reactor thread.
 */
#include <stdint.h>

#include "place/placer.h"
#include "plan/executor.h"
#include "session/server.h"
#include "util/cleanup.h"

struct budget;
struct contention;
struct dispatch;
struct loop;
struct offload;
struct publish;
struct residency;
struct telemetry;
struct tenant;
struct tenants;

/* Figures of brokerd's own state, in the root page from the next update on. */
struct publish_self {
	uint32_t sandbox;         /* enum rbk_stats_sandbox */
	uint64_t n_calls_refused; /* refusals that were logged */
	/* beginning and latest end of a restart's drain, by clock_ticks(); 0: there is none */
	uint64_t restart_at_ns, restart_until_ns;
};

struct publish_options {
	struct loop *loop;
	struct offload *offload; /* the setup thread */
	struct tenants *tenants;
	struct telemetry *telemetry;
	struct budget *budget;
	struct contention *contention;
	struct residency *residency;
	struct dispatch *dispatch;
	struct executor *const *executors;
	uint32_t n_executors;
	const struct publish_self *self; /* read at each update */
};

/*
 * Make a publisher, which borrows everything that @options points to.
 * Return: 0 or negative errno.
 */
int publish_new(const struct publish_options *options, struct publish **ret);
/*
 * Free the publisher, after the server, or before publish_start().
 * Return: NULL.
 */
struct publish *publish_free(struct publish *publish);

/* Return the hooks for server_new(). */
struct server_publisher publish_hooks(struct publish *publish);
/* Begin to publish; @server is borrowed. */
void publish_start(struct publish *publish, struct server *server);

/*
 * Apply a configuration that was read again; settings that administrators have changed stay in
 * force.
 */
void publish_configure(struct publish *publish, const struct place_config *config);

/*
 * Publish the limits and flags of a tenant at once, because an administrator has changed them. The
 * next request for a page updates everything else.
 * @tenant NULL: only the latter.
 */
void publish_changed(struct publish *publish, const struct tenant *tenant);

/*
 * Note that the policy was read again: accepted, or refused for @n_errors errors, of which the
 * first is the first line of @errors. The root page shows the last of each. @keys: names of the
 * @n_keys keys that wait for the next start.
 */
void publish_reloaded(struct publish *publish, const char *keys, uint32_t n_keys);
void publish_reload_refused(struct publish *publish, const char *errors, uint32_t n_errors);

DEFINE_CLEANUP(struct publish *, publish_free)
