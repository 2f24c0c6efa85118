#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The layout of statistics pages, which never changes
 *
 * These assertions pin the offsets of members of <ringbroker/stats.h>, for writers and readers of
 * pages. The tables of figures (stats-figures.h) pin those of members that are shown.
 */
#include <stddef.h>

#include <ringbroker/stats.h>

_Static_assert(sizeof(struct rbk_stats_section) == 16, "abi");
_Static_assert(offsetof(struct rbk_stats_section, offset) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_section, stride) == 4, "abi");
_Static_assert(offsetof(struct rbk_stats_section, count) == 8, "abi");
_Static_assert(sizeof(struct rbk_stats_header) == 384, "abi");
_Static_assert(offsetof(struct rbk_stats_header, magic) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_header, abi_major) == 4, "abi");
_Static_assert(offsetof(struct rbk_stats_header, abi_minor) == 6, "abi");
_Static_assert(offsetof(struct rbk_stats_header, kind) == 8, "abi");
_Static_assert(offsetof(struct rbk_stats_header, n_devices) == 12, "abi");
_Static_assert(offsetof(struct rbk_stats_header, page_bytes) == 16, "abi");
_Static_assert(offsetof(struct rbk_stats_header, n_sections) == 28, "abi");
_Static_assert(offsetof(struct rbk_stats_header, period_ns) == 40, "abi");
_Static_assert(offsetof(struct rbk_stats_header, n_updates) == 48, "abi");
_Static_assert(offsetof(struct rbk_stats_header, monotonic_offset_ns) == 64, "abi");
_Static_assert(offsetof(struct rbk_stats_header, realtime_offset_ns) == 72, "abi");
_Static_assert(offsetof(struct rbk_stats_header, reset_at_ns) == 88, "abi");
_Static_assert(offsetof(struct rbk_stats_header, flags) == 96, "abi");
_Static_assert(offsetof(struct rbk_stats_header, sections) == 128, "abi");
_Static_assert(sizeof(struct rbk_stats_tenant_device) == 128, "abi");
_Static_assert(sizeof(struct rbk_stats_tenant) == 4608, "abi");
_Static_assert(offsetof(struct rbk_stats_tenant, sequence) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_tenant, log_head) == 304, "abi");
_Static_assert(offsetof(struct rbk_stats_tenant, log_first) == 312, "abi");
_Static_assert(offsetof(struct rbk_stats_tenant, inline_ns) == 392, "abi");
_Static_assert(offsetof(struct rbk_stats_tenant, devices) == 512, "abi");
_Static_assert(sizeof(struct rbk_stats_plan_device) == 128, "abi");
_Static_assert(offsetof(struct rbk_stats_plan_device, predicted_ns) == 40, "abi");
_Static_assert(offsetof(struct rbk_stats_plan_device, predicted_exec_ns) == 48, "abi");
_Static_assert(offsetof(struct rbk_stats_plan_device, error_ns) == 56, "abi");
_Static_assert(offsetof(struct rbk_stats_plan_device, state) == 109, "abi");
_Static_assert(offsetof(struct rbk_stats_plan_device, tier) == 110, "abi");
_Static_assert(sizeof(struct rbk_stats_plan) == 256, "abi");
_Static_assert(offsetof(struct rbk_stats_plan, sequence) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_plan, state) == 4, "abi");
_Static_assert(offsetof(struct rbk_stats_plan, fingerprint) == 48, "abi");
_Static_assert(offsetof(struct rbk_stats_plan, made_at_ns) == 56, "abi");
_Static_assert(offsetof(struct rbk_stats_plan, last_device) == 204, "abi");
_Static_assert(offsetof(struct rbk_stats_plan, last_reason) == 205, "abi");
_Static_assert(offsetof(struct rbk_stats_plan, last_flags) == 206, "abi");
_Static_assert(offsetof(struct rbk_stats_plan, devices) == 256, "abi");
_Static_assert(sizeof(struct rbk_stats_decision) == 64, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, sequence) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, ended_at_ns) == 8, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, user_data) == 16, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, plan_id) == 24, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, session) == 28, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, count) == 32, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, split_count) == 36, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, predicted_ns) == 40, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, other_ns) == 44, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, queue_ns) == 48, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, exec_ns) == 52, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, device) == 56, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, reason) == 57, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, flags) == 58, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, res) == 60, "abi");
_Static_assert(offsetof(struct rbk_stats_decision, plan) == 62, "abi");
_Static_assert(sizeof(struct rbk_stats_refused) == 256, "abi");
_Static_assert(offsetof(struct rbk_stats_refused, sequence) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_refused, refused_at_ns) == 8, "abi");
_Static_assert(offsetof(struct rbk_stats_refused, user_data) == 16, "abi");
_Static_assert(offsetof(struct rbk_stats_refused, session) == 24, "abi");
_Static_assert(offsetof(struct rbk_stats_refused, plan_id) == 28, "abi");
_Static_assert(offsetof(struct rbk_stats_refused, opcode) == 32, "abi");
_Static_assert(offsetof(struct rbk_stats_refused, res) == 34, "abi");
_Static_assert(offsetof(struct rbk_stats_refused, field) == 40, "abi");
_Static_assert(offsetof(struct rbk_stats_refused, reason) == 64, "abi");
_Static_assert(sizeof(struct rbk_stats_device) == 640, "abi");
_Static_assert(offsetof(struct rbk_stats_device, sequence) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_device, kind) == 8, "abi");
_Static_assert(offsetof(struct rbk_stats_device, breaker) == 12, "abi");
_Static_assert(sizeof(struct rbk_stats_broker) == 256, "abi");
_Static_assert(offsetof(struct rbk_stats_broker, sequence) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_broker, strategy) == 8, "abi");
_Static_assert(offsetof(struct rbk_stats_broker, longest_turn_cause) == 128, "abi");
_Static_assert(offsetof(struct rbk_stats_broker, longest_turn_tenant) == 132, "abi");
_Static_assert(offsetof(struct rbk_stats_broker, n_turn_overruns) == 136, "abi");
_Static_assert(sizeof(struct rbk_stats_upkeep) == 1168, "abi");
_Static_assert(offsetof(struct rbk_stats_upkeep, setup_running) == 16, "abi");
_Static_assert(offsetof(struct rbk_stats_upkeep, longest_wait) == 32, "abi");
_Static_assert(offsetof(struct rbk_stats_upkeep, setup) == 48, "abi");
_Static_assert(offsetof(struct rbk_stats_upkeep, mended) == 656, "abi");
_Static_assert(sizeof(struct rbk_stats_mended) == 32, "abi");
_Static_assert(sizeof(struct rbk_stats_reload) == 576, "abi");
_Static_assert(offsetof(struct rbk_stats_reload, refused_at_ns) == 32, "abi");
_Static_assert(offsetof(struct rbk_stats_reload, reason) == 64, "abi");
_Static_assert(sizeof(struct rbk_stats_session) == 256, "abi");
_Static_assert(sizeof(struct rbk_stats_contention) == 1728, "abi");
_Static_assert(offsetof(struct rbk_stats_contention, sequence) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_contention, source) == 4, "abi");
_Static_assert(offsetof(struct rbk_stats_contention, sentences) == 192, "abi");
_Static_assert(sizeof(struct rbk_stats_cause) == 176, "abi");
_Static_assert(offsetof(struct rbk_stats_cause, comm) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_cause, cgroup) == 16, "abi");
_Static_assert(offsetof(struct rbk_stats_cause, pid) == 144, "abi");
_Static_assert(offsetof(struct rbk_stats_cause, tenant) == 148, "abi");
_Static_assert(offsetof(struct rbk_stats_cause, flags) == 152, "abi");
_Static_assert(offsetof(struct rbk_stats_cause, wait_ns) == 160, "abi");
_Static_assert(offsetof(struct rbk_stats_cause, n_preemptions) == 168, "abi");
_Static_assert(sizeof(struct rbk_stats_delay) == 720, "abi");
_Static_assert(offsetof(struct rbk_stats_delay, sequence) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_delay, flags) == 4, "abi");
_Static_assert(offsetof(struct rbk_stats_delay, n_preemptions) == 40, "abi");
_Static_assert(offsetof(struct rbk_stats_delay, p50_ns) == 88, "abi");
_Static_assert(offsetof(struct rbk_stats_delay, p99_ns) == 96, "abi");
_Static_assert(offsetof(struct rbk_stats_delay, max_ns) == 104, "abi");
_Static_assert(offsetof(struct rbk_stats_delay, n_causes) == 112, "abi");
_Static_assert(offsetof(struct rbk_stats_delay, causes) == 192, "abi");
_Static_assert(sizeof(struct rbk_stats_thread) == 784, "abi");
_Static_assert(offsetof(struct rbk_stats_thread, sequence) == 0, "abi");
_Static_assert(offsetof(struct rbk_stats_thread, tid) == 4, "abi");
_Static_assert(offsetof(struct rbk_stats_thread, role) == 8, "abi");
_Static_assert(offsetof(struct rbk_stats_thread, name) == 16, "abi");
_Static_assert(offsetof(struct rbk_stats_thread, delay) == 64, "abi");
