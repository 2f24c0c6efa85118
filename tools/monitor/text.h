#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Figures and names for people
 *
 * Results are in static storage and stay valid during the next fifteen calls. Single-threaded.
 */
#include <stdint.h>

#include <ringbroker/stats.h>

/* Format as "1.5 ms", "12 GiB" or "3.4%"; "-" for a value that is not known. */
const char *text_ns(double ns);
const char *text_bytes(uint64_t bytes);
const char *text_percent(double part, double whole);
/*
 * Replace characters other than printable ASCII by "?", so that no name can send commands to a
 * terminal.
 */
const char *text_name(const char *name);
/*
 * Write why the plan is cut into segments or whole: a sentence, or "" if the broker does not say.
 */
enum { TEXT_CUT_BYTES = 160 };
void text_cut(const struct rbk_stats_plan *plan, char text[TEXT_CUT_BYTES]);
/* Return words such as "over waiting"; "" if there is nothing to report. */
const char *text_lease_states(const struct rbk_stats_lease *lease);
