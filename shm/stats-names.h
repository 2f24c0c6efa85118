#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Names for the numbers in statistics pages
 *
 * Metrics and JSON use the names, sentences use the texts. Any thread: constant.
 */
#include <stdint.h>

struct stats_word {
	const char *name, *text;
};

/* Return the words for @cause, an enum rbk_turn_cause; "unknown" for a later one. */
const struct stats_word *stats_turn_cause(uint32_t cause);
/* Return the words for @cause, an enum rbk_setup_cause; "unknown" for a later one. */
const struct stats_word *stats_setup_cause(uint32_t cause);
/*
 * @state: enum rbk_stats_breaker; @kind: of a device, 0 to 2 as in struct rbk_stats_device.
 * "unknown" for a later one.
 */
const char *stats_breaker_name(uint32_t state);
const char *stats_device_kind_name(uint32_t kind);
/* @state: enum rbk_memory_state; @tier: enum rbk_memory_tier; "unknown" for a later one. */
const char *stats_memory_state_name(uint32_t state);
const char *stats_memory_tier_name(uint32_t tier);
