#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Names for the numbers in statistics pages
 *
 * Metrics and JSON use the names, sentences use the texts. All words are constant: any thread may
 * call these functions.
 */
#include <stdint.h>

/* Names of enum rbk_reason. NAME(end of RBK_REASON_*, name) */
#define STATS_REASON_NAMES(NAME)                     \
	NAME(NONE, "none")                           \
	NAME(GPU_AVAILABLE, "gpu-available")         \
	NAME(GPU_UNAVAILABLE, "gpu-unavailable")     \
	NAME(CPU_FALLBACK, "cpu-fallback")           \
	NAME(COST_MODEL, "cost-model")               \
	NAME(MEMORY_CONSTRAINT, "memory-constraint") \
	NAME(USER_PREFERENCE, "user-preference")     \
	NAME(BELOW_THRESHOLD, "below-threshold")     \
	NAME(CONTENTION, "contention")               \
	NAME(BREAKER_OPEN, "breaker-open")

struct stats_word {
	const char *name, *text;
};

/* Return the words for @cause, an enum rbk_turn_cause; "unknown" for a cause of a newer broker. */
const struct stats_word *stats_turn_cause(uint32_t cause);
/* Return the words for @cause, an enum rbk_setup_cause; otherwise as stats_turn_cause(). */
const struct stats_word *stats_setup_cause(uint32_t cause);
/* Return the words for @sandbox, an enum rbk_stats_sandbox; otherwise as stats_turn_cause(). */
const struct stats_word *stats_sandbox(uint32_t sandbox);
/*
 * Return the name of a breaker's state (enum rbk_stats_breaker), or of a device's kind (0 to 2, as
 * in struct rbk_stats_device); "unknown" for a number of a newer broker.
 */
const char *stats_breaker_name(uint32_t state);
const char *stats_device_kind_name(uint32_t kind);
/* Likewise, of enum rbk_memory_state and of enum rbk_memory_tier. */
const char *stats_memory_state_name(uint32_t state);
const char *stats_cut_name(uint32_t cut); /* enum rbk_cut */
const char *stats_memory_tier_name(uint32_t tier);
