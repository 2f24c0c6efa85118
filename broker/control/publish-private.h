#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Declarations shared by the files that publish figures
 *
 * publish.c runs the rounds; the figures of tenants and their plans, of sessions and leases, and of
 * devices have a file each. Each function updates one piece of a round.
 */
#include <stdbool.h>

#include <ringbroker/stats.h>

#include "control/publish.h"

/* The next step of a round. */
enum publish_step {
	PUBLISH_NOTHING, /* no round is in progress */
	PUBLISH_DEVICES,
	PUBLISH_TENANTS,
	PUBLISH_SESSIONS,
	PUBLISH_LEASES,
	PUBLISH_WHOLE,
};

struct publish {
	struct publish_options options;
	struct server *server;
	struct stats *stats;
	struct loop_timer *timer;
	bool is_watched;
	bool is_stale; /* the next update ignores the time since the last one */
	int force_cpu; /* set by an administrator; -1: as configured */
	struct rbk_stats_reload reload;
	struct rbk_stats_waiting waiting;
	uint64_t updated_ns;
	uint64_t seen_ns[RBK_MAX_DEVICES]; /* all tenants' device_ns at the last update */

	/* The round in progress */
	struct loop_timer *round_timer; /* continues the round in the next turn */
	enum publish_step step;
	uint32_t n_left;     /* pieces left of the step */
	uint64_t elapsed_ns; /* since the last round */
	uint64_t used_ns[RBK_MAX_DEVICES];
	unsigned int n_looked, n_changed, n_asked; /* counts against the limits of one update */
};

/* publish-tenants.c */
void publish_plan(struct publish *publish, struct session_plan *plan);
/*
 * Publish the next record of a kind. If a kind has few records, each has its turn in every round;
 * otherwise as many as there is time for. The tenants' shares then cover the time since a tenant's
 * last turn.
 */
void publish_next_tenant(struct publish *publish);

/* publish-clients.c */
void publish_next_session(struct publish *publish);
void publish_next_lease(struct publish *publish);

/*
 * publish-devices.c: publish a device. All tenants used @used_ns of the device in the @elapsed_ns
 * since the last update.
 */
void publish_device(struct publish *publish, uint32_t index, uint64_t elapsed_ns, uint64_t used_ns);
