#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Records as JSON: one object on one line each, as brokerctl(1) describes them, whichever
 * subcommand prints them.
 */
#include "monitor/pages.h"

void json_broker(const struct rbk_stats_view *root);
void json_device(const struct rbk_stats_device *device);
void json_tenant(const struct rbk_stats_tenant *tenant, uint32_t n_devices);
/* @tenant: of which it is. */
void json_plan(const char *tenant, const union plan_copy *plan, uint32_t n_devices);
/* @view: the page that it is from, for the clock. */
void json_session(const struct rbk_stats_view *view, const struct rbk_stats_session *session);
void json_lease(const struct rbk_stats_view *view, const struct rbk_stats_lease *lease);
/* A point on the broker's clock as nanoseconds since 1970. */
int64_t since_1970_ns(const struct rbk_stats_view *view, uint64_t at_ns);
