#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Names of what statistics pages have numbers for
 *
 * Metrics and JSON have the names, sentences the texts. Any thread: constant.
 */
#include <stdint.h>

struct stats_word {
	const char *name, *text;
};

/* @cause: enum rbk_turn_cause; "unknown" for a later one. */
const struct stats_word *stats_turn_cause(uint32_t cause);
/* @cause: enum rbk_setup_cause; likewise. */
const struct stats_word *stats_setup_cause(uint32_t cause);
/* @state: enum rbk_stats_breaker; @kind: of a device, enum rbk_stats_device_kind; likewise. */
const char *stats_breaker_name(uint32_t state);
const char *stats_device_kind_name(uint32_t kind);
/* @state: enum rbk_memory_state; @tier: enum rbk_memory_tier; likewise. */
const char *stats_memory_state_name(uint32_t state);
const char *stats_memory_tier_name(uint32_t tier);
