#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Declarations shared by the files that publish figures
 *
 * publish.c goes round and says when; what is computed of tenants and their plans, of sessions and
 * leases, and of devices has a file each. Each function brings one piece of a round up to date.
 */
#include <stdbool.h>

#include "control/publish.h"

/* The next step of a round. */
enum publish_step {
	PUBLISH_NOTHING, /* there is no round */
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
	bool is_stale; /* an update was asked for whenever the last one was */
	int force_cpu; /* as an administrator said; -1: as configured */
	uint64_t updated_ns;
	uint64_t seen_ns[RBK_MAX_DEVICES]; /* device_ns of all at the update before */

	/* The round. */
	struct loop_timer *round_timer; /* goes on in the next turn */
	enum publish_step step;
	uint32_t n_left;     /* pieces of the step */
	uint64_t elapsed_ns; /* since the round before */
	uint64_t used_ns[RBK_MAX_DEVICES];
	unsigned int n_looked, n_changed, n_asked; /* see the limits of one update */
};

/* publish-tenants.c */
void publish_plan(struct publish *publish, struct session_plan *plan);
/*
 * Publish the next record. All records of a kind have their turn in a round where they are few;
 * else as many as there is time for: their shares then cover the time since that.
 */
void publish_next_tenant(struct publish *publish);

/* publish-clients.c */
void publish_next_session(struct publish *publish);
void publish_next_lease(struct publish *publish);

/*
 * publish-devices.c: @elapsed_ns since the update before, in which all tenants used @used_ns of the
 * device.
 */
void publish_device(struct publish *publish, uint32_t index, uint64_t elapsed_ns, uint64_t used_ns);
