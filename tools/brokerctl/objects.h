#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Records as JSON
 *
 * Every subcommand prints a record as one object on one line, as described in brokerctl(1).
 */
#include "monitor/pages.h"

void json_broker(const struct rbk_stats_view *root);
void json_device(const struct rbk_stats_device *device);
void json_tenant(const struct rbk_stats_tenant *tenant, uint32_t n_devices);
/* @tenant: name of the plan's tenant. */
void json_plan(const char *tenant, const union plan_copy *plan, uint32_t n_devices);
/* @view: the page of the record, for its clock. */
void json_session(const struct rbk_stats_view *view, const struct rbk_stats_session *session);
void json_lease(const struct rbk_stats_view *view, const struct rbk_stats_lease *lease);
/* Convert a time of the broker's clock to nanoseconds since 1970. */
int64_t since_1970_ns(const struct rbk_stats_view *view, uint64_t at_ns);
