#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What statistics pages say beyond counts
 *
 * Puts together what the rooms know that do not know of each other: what placement has learned,
 * what telemetry reads, what the ledger holds, and writes it into the pages, several times a second
 * while a session looks at one, and when one is handed out. Also carries out what administrators
 * change. Reactor thread.
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
struct tenants;

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
};

/* Everything is borrowed. Return: 0 or negative errno. */
int publish_new(const struct publish_options *options, struct publish **ret);
/* After the server is gone, or before publish_start(). Return: NULL. */
struct publish *publish_free(struct publish *publish);

/* For server_new(). */
struct server_publisher publish_hooks(struct publish *publish);
/* Nothing is published before. @server is borrowed. */
void publish_start(struct publish *publish, struct server *server);

/*
 * The configuration was read again: what administrators have set meanwhile stays in force.
 */
void publish_configure(struct publish *publish, const struct place_config *config);

DEFINE_CLEANUP(struct publish *, publish_free)
