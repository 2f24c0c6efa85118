#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Root pages without a broker, for tests of their readers
 *
 * A page in private memory, whose records a test fills in by hand.
 */
#include <stdint.h>
#include <ringbroker/stats.h>

struct metrics_rig {
	void *page;
	struct rbk_stats_view view;
	struct rbk_stats_header *header;
	struct rbk_stats_broker *broker;
	struct rbk_stats_contention *contention;
	struct rbk_stats_upkeep *upkeep;
	struct rbk_stats_device *devices;
	struct rbk_stats_tenant *tenants;
	struct rbk_stats_delay *delays; /* indexed like tenants */
	struct rbk_stats_thread *threads;
	struct rbk_stats_lease *leases;
};

enum { METRICS_RIG_DEVICES = 2, METRICS_RIG_THREADS = 4, METRICS_RIG_LEASES = 6 };

/* Create a page with room for @n_tenants, all unused. */
void metrics_rig_init(struct metrics_rig *rig, uint32_t n_tenants);
void metrics_rig_deinit(struct metrics_rig *rig);
#define METRICS_RIG(name, ...) \
	SCOPED(metrics_rig, name, metrics_rig_init, metrics_rig_deinit, ##__VA_ARGS__)

/* Fill in figures of every kind, all different, except for tenants from the third on. */
void metrics_rig_fill(struct metrics_rig *rig);

/* Mark tenant @index as used, with @name and with figures that depend only on @index. */
void metrics_rig_tenant(struct metrics_rig *rig, uint32_t index, const char *name);
