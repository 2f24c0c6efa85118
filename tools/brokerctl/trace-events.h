#pragma once
/* SPDX-License-Identifier: MIT */
/* Events of a trace in Chrome's format, one JSON object each */
#include <stdint.h>

/* Begin an event of phase @phase, which json_end() ends, after a comma if it is not the first. */
void event_begin(const char *phase, uint32_t pid, uint32_t tid);
/* Write a time in microseconds, with three decimals for nanoseconds. */
void event_time(const char *name, uint64_t ns);
/* Write an event that names a process or track; @kind: "process_name" or "thread_name". */
void event_name(const char *kind, uint32_t pid, uint32_t tid, const char *name);
/* Likewise, one that sorts it; @kind: "process_sort_index" or "thread_sort_index". */
void event_order(const char *kind, uint32_t pid, uint32_t tid, uint32_t order);
