#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Copies of what is in statistics pages, and words for it
 *
 * Strings of copies end, whatever the page says.
 */
#include <stdbool.h>
#include <stdint.h>

#include "monitor/pages.h"
#include "shm/stats-names.h"

void broker_copy(const struct rbk_stats_view *root, struct rbk_stats_broker *ret);
/* Return: false from older brokers, which do not tell. */
bool upkeep_copy(const struct rbk_stats_view *root, struct rbk_stats_upkeep *ret);
void device_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_device *ret);
/* Return: is there such a tenant, session or lease? */
bool tenant_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_tenant *ret);
bool session_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_session *ret);
bool lease_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_lease *ret);
void contention_copy(const struct rbk_stats_view *root, struct rbk_stats_contention *ret);
/* Also its causes. Return: is it a tenant that is watched? */
bool delay_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_delay *ret);
void delay_end_strings(struct rbk_stats_delay *delay);

/* The name of the tenant of @number; NULL: there is none here. Static storage. */
const char *tenant_name(const struct rbk_stats_view *view, uint32_t number);

/* "CPU", "GPU1"; "-" for none. */
const char *device_label(uint32_t index);
/* A device from "CPU", "GPU1" or "1". Return: false if it is none. */
bool device_number(const char *text, uint32_t *ret);

/* Words for enumerations; "unknown" for what is not known. See also shm/stats-names.h. */
const char *tiles_name(uint32_t op); /* rbk_stats_device.tiles: by operator, by class */
const char *tile_class_name(uint32_t class);
const char *strategy_name(uint32_t strategy);
const char *contention_source_name(uint32_t source);

/*
 * Of rbk_stats_device.tiles: "64x128", or "64x64 matrices" of cooperative matrices. Valid until the
 * next call.
 */
const char *text_tile(const struct rbk_stats_device *device, uint32_t op, uint32_t class);

/* 0 of none. */
double mean_of(uint64_t sum, uint64_t n);
