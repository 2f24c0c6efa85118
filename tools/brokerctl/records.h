#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Copies of records in statistics pages, and names for their values
 *
 * Strings of copies are always terminated, whatever the page contains.
 */
#include <stdbool.h>
#include <stdint.h>

#include "monitor/pages.h"
#include "shm/stats-names.h"

/*
 * Wait for two updates, at most a second: the one that is under way may have begun before a change.
 * A broker that hangs leaves its last figures.
 */
void await_updates(const struct rbk_stats_view *view);
void broker_copy(const struct rbk_stats_view *root, struct rbk_stats_broker *ret);
/* Return: false if the broker is too old to report upkeep. */
bool upkeep_copy(const struct rbk_stats_view *root, struct rbk_stats_upkeep *ret);
/* Return: false if the broker is too old to report reloads. */
bool reload_copy(const struct rbk_stats_view *root, struct rbk_stats_reload *ret);
bool waiting_copy(const struct rbk_stats_view *root, struct rbk_stats_waiting *ret);
void device_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_device *ret);
/* Return: true if such a tenant, session or lease exists. */
bool tenant_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_tenant *ret);
bool session_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_session *ret);
bool lease_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_lease *ret);
void contention_copy(const struct rbk_stats_view *root, struct rbk_stats_contention *ret);
/*
 * Copy a tenant's delays and their causes.
 * Return: true if the tenant is watched.
 */
bool delay_copy(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_delay *ret);
void delay_end_strings(struct rbk_stats_delay *delay);

/* Return the name of tenant @number, or NULL if the page does not have it. Static storage. */
const char *tenant_name(const struct rbk_stats_view *view, uint32_t number);

/* Return "CPU" or "GPU1"; "-" for no device. */
const char *device_label(uint32_t index);
/*
 * Parse a device: "CPU", "GPU1" or "1".
 * Return: false if @text is no device.
 */
bool device_number(const char *text, uint32_t *ret);

/* Names of enumerators; "unknown" for other values. See also shm/stats-names.h. */
const char *tiles_name(uint32_t op); /* operator and class of rbk_stats_device.tiles */
const char *tile_class_name(uint32_t class);
const char *strategy_name(uint32_t strategy);
const char *contention_source_name(uint32_t source);

/*
 * Describe an element of rbk_stats_device.tiles: "64x128", or "64x64 matrices" for cooperative
 * matrices. Valid until the next call.
 */
const char *text_tile(const struct rbk_stats_device *device, uint32_t op, uint32_t class);

/* Return the mean; 0 if @n is 0. */
double mean_of(uint64_t sum, uint64_t n);
