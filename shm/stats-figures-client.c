/* SPDX-License-Identifier: MIT */
/* Figures of sessions, leases and plans, and of the waits of threads. */
#include "shm/stats-figures.h"

#define SESSION(...)     FIGURE(rbk_stats_session, __VA_ARGS__)
#define LEASE(...)       FIGURE(rbk_stats_lease, __VA_ARGS__)
#define PLAN(...)        FIGURE(rbk_stats_plan, __VA_ARGS__)
#define PLAN_DEVICE(...) FIGURE(rbk_stats_plan_device, __VA_ARGS__)
#define DELAY(...)       FIGURE(rbk_stats_delay, __VA_ARGS__)

const struct figure session_figures[] = {
	SESSION(number, 4, .unit = FIGURE_NAME, .json = "session"),
	SESSION(name, 24, .json = "name"),
	SESSION(comm, 88, .json = "comm"),
	SESSION(pid, 16, .unit = FIGURE_NAME, .null = FIGURE_ZERO, .json = "pid"),
	SESSION(uid, 20, .unit = FIGURE_NAME, .json = "uid"),
	SESSION(flags, 12, .flag = RBK_STATS_SESSION_ADMIN, .json = "admin"),
	SESSION(flags, 12, .flag = RBK_STATS_SESSION_ENDING, .json = "ending"),
	SESSION(began_at_ns, 104, .unit = FIGURE_MOMENT, .json = "began_ns"),
	SESSION(n_tasks, 112, .json = "tasks"),
	SESSION(n_gpu_tasks, 120, .json = "gpu_tasks"),
	SESSION(n_errors, 128, .json = "errors", .head = "ERRORS", .rank = 2, .is_fault = 1),
	SESSION(n_fallbacks, 136, .json = "fallbacks"),
	SESSION(copied_bytes, 144, .unit = FIGURE_BYTES, .json = "copied_bytes"),
	SESSION(transferred_bytes, 152, .unit = FIGURE_BYTES, .json = "transferred_bytes"),
	SESSION(n_in_flight, 160, .json = "in_flight", .head = "NOW", .rank = 3),
	SESSION(n_rings, 168, .json = "rings", .head = "RINGS", .rank = 8),
	SESSION(n_arenas, 176, .json = "arenas"),
	SESSION(arena_bytes, 184, .unit = FIGURE_BYTES, .json = "arena_bytes", .head = "ARENAS",
		.rank = 6),
	SESSION(n_plans, 192, .json = "plans", .head = "PLANS", .rank = 6),
	SESSION(n_plans_resident, 200, .json = "plans_resident", .head = "RESIDENT", .rank = 7),
	SESSION(memory_used, 208, .unit = FIGURE_BYTES, .json = "memory_used", .head = "MEMORY",
		.rank = 4),
	SESSION(n_evictions, 216, .json = "evictions", .head = "EVICTED", .rank = 7),
	SESSION(gpu_ns, 224, .unit = FIGURE_NS, .json = "gpu_ns"),
	SESSION(p50_ns, 232, .unit = FIGURE_NS, .null = FIGURE_ZERO, .json = "p50_ns"),
	SESSION(p99_ns, 240, .unit = FIGURE_NS, .null = FIGURE_ZERO, .json = "p99_ns",
		.head = "P99", .rank = 2),
	{.json = NULL},
};

const struct figure lease_figures[] = {
	LEASE(number, 4, .unit = FIGURE_NAME, .json = "lease"),
	LEASE(name, 32, .json = "name"),
	LEASE(device, 12, .json = "device"),
	LEASE(pid, 20, .unit = FIGURE_NAME, .null = FIGURE_ZERO, .json = "pid"),
	LEASE(uid, 24, .unit = FIGURE_NAME, .json = "uid"),
	LEASE(n_members, 28, .json = "members"),
	LEASE(opened_at_ns, 96, .unit = FIGURE_MOMENT, .json = "opened_ns"),
	LEASE(min_bytes, 104, .unit = FIGURE_BYTES, .json = "min_bytes"),
	LEASE(wish_bytes, 112, .unit = FIGURE_BYTES, .json = "wish_bytes"),
	LEASE(max_bytes, 120, .unit = FIGURE_BYTES, .json = "max_bytes"),
	LEASE(granted_bytes, 128, .unit = FIGURE_BYTES, .json = "granted_bytes"),
	LEASE(credited_bytes, 136, .unit = FIGURE_BYTES, .json = "credited_bytes"),
	LEASE(object_bytes, 144, .unit = FIGURE_BYTES, .json = "object_bytes"),
	LEASE(used_bytes, 152, .unit = FIGURE_BYTES, .json = "used_bytes"),
	LEASE(extra_bytes, 160, .unit = FIGURE_BYTES, .json = "extra_bytes"),
	LEASE(peak_bytes, 168, .unit = FIGURE_BYTES, .json = "peak_bytes", .head = "PEAK",
	      .rank = 5),
	LEASE(seen_bytes, 176, .unit = FIGURE_BYTES, .null = FIGURE_ABSENT, .json = "seen_bytes",
	      .head = "SEEN", .rank = 3),
	LEASE(busy_ns, 208, .unit = FIGURE_NS, .null = FIGURE_ABSENT, .json = "busy_ns"),
	LEASE(busy_percent, 216, .unit = FIGURE_PERCENT, .null = FIGURE_ABSENT,
	      .json = "busy_percent", .head = "BUSY", .rank = 2),
	LEASE(waiting_bytes, 184, .unit = FIGURE_BYTES, .json = "waiting_bytes"),
	LEASE(n_objects, 192, .json = "objects"),
	LEASE(n_refused, 200, .json = "refused", .head = "REFUSED", .rank = 2, .is_fault = 1),
	LEASE(flags, 16, .flag = RBK_STATS_LEASE_WAITING, .json = "waiting"),
	LEASE(flags, 16, .flag = RBK_STATS_LEASE_SHRINKING, .json = "shrinking"),
	LEASE(flags, 16, .flag = RBK_STATS_LEASE_RESTORED, .json = "restored"),
	LEASE(flags, 16, .flag = RBK_STATS_LEASE_OVER, .json = "over"),
	LEASE(flags, 16, .flag = RBK_STATS_LEASE_CAPPED, .json = "capped"),
	{.json = NULL},
};

const struct figure plan_figures[] = {
	PLAN(session, 8, .unit = FIGURE_NAME, .json = "session"),
	PLAN(plan_id, 12, .json = "plan_id"),
	PLAN(name, 16, .json = "plan"),
	PLAN(n_inline, 64, .kind = FIGURE_SINCE_RESET, .json = "inline"),
	PLAN(count, 200, .json = "count"),
	PLAN(n_evictions, 208, .json = "evictions"),
	PLAN(n_returns, 216, .json = "returns"),
	PLAN(n_memory_constraints, 224, .json = "memory_constraints"),
	PLAN(n_segments, 232, .json = "segments"),
	PLAN(n_segments_resident, 236, .json = "segments_resident"),
	PLAN(n_streamed, 252, .json = "segments_streamed"),
	PLAN(reasons, 72, .kind = FIGURE_SINCE_RESET, .json = "reasons"),
	{.json = NULL},
};

const struct figure plan_device_figures[] = {
	PLAN_DEVICE(n_tasks, 0, .kind = FIGURE_SINCE_RESET, .json = "tasks"),
	PLAN_DEVICE(n_failed, 8, .kind = FIGURE_SINCE_RESET, .json = "failed"),
	PLAN_DEVICE(n_explored, 16, .kind = FIGURE_SINCE_RESET, .json = "explored"),
	PLAN_DEVICE(exec_ns, 24, .kind = FIGURE_SINCE_RESET, .unit = FIGURE_NS, .json = "exec_ns"),
	PLAN_DEVICE(n_predicted, 32, .kind = FIGURE_SINCE_RESET, .json = "predicted"),
	PLAN_DEVICE(estimate_ns, 64, .unit = FIGURE_NS, .json = "estimate_ns"),
	PLAN_DEVICE(spread, 72, .json = "spread"),
	PLAN_DEVICE(mean_ns, 80, .unit = FIGURE_NS, .json = "window_mean_ns"),
	PLAN_DEVICE(mean_error, 88, .json = "window_error"),
	PLAN_DEVICE(is_trusted, 108, .flag = UINT8_MAX, .json = "trusted"),
	PLAN_DEVICE(speedup, 96, .json = "speedup"),
	PLAN_DEVICE(break_even, 104, .json = "break_even"),
	PLAN_DEVICE(resident_bytes, 112, .unit = FIGURE_BYTES, .json = "resident_bytes"),
	PLAN_DEVICE(footprint_bytes, 120, .unit = FIGURE_BYTES, .json = "footprint_bytes"),
	{.json = NULL},
};

const struct figure delay_figures[] = {
	DELAY(run_ns, 8, .unit = FIGURE_NS, .json = "run_ns"),
	DELAY(wait_ns, 16, .unit = FIGURE_NS, .json = "wait_ns"),
	DELAY(idle_wait_ns, 24, .unit = FIGURE_NS, .json = "idle_wait_ns"),
	DELAY(n_waits, 32, .json = "n_waits"),
	DELAY(n_involuntary, 48, .json = "n_involuntary"),
	DELAY(n_throttled, 56, .json = "n_throttled"),
	DELAY(n_migrations, 64, .json = "n_migrations"),
	DELAY(caused_ns, 72, .unit = FIGURE_NS, .json = "caused_ns"),
	DELAY(throttled_ns, 80, .unit = FIGURE_NS, .json = "throttled_ns"),
	{.json = NULL},
};
