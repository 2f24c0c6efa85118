/* SPDX-License-Identifier: MIT */
/* Figures of the broker as a whole. */
#include "shm/stats-figures.h"

#define HEADER(...)     FIGURE(rbk_stats_header, __VA_ARGS__)
#define BROKER(...)     FIGURE(rbk_stats_broker, __VA_ARGS__)
#define CONTENTION(...) FIGURE(rbk_stats_contention, __VA_ARGS__)
#define UPKEEP(...)     FIGURE(rbk_stats_upkeep, __VA_ARGS__)
#define SLICES(...)     FIGURE(rbk_stats_setup_slices, __VA_ARGS__)
#define MENDED(...)     FIGURE(rbk_stats_mended, __VA_ARGS__)

const struct figure header_figures[] = {
	HEADER(pid, 24, .json = "pid"),
	HEADER(started_at_ns, 32, .unit = FIGURE_MOMENT, .json = "started_ns",
	       .metric = "start_time_seconds", .help = "Time at which the broker started"),
	HEADER(updated_at_ns, 56, .unit = FIGURE_MOMENT, .json = "updated_ns",
	       .metric = "statistics_updated_timestamp_seconds",
	       .help = "Time at which the broker last updated these figures; it does so several "
		       "times a second"),
	HEADER(n_resets, 80, .kind = FIGURE_SINCE_START, .json = "resets",
	       .metric = "statistics_resets",
	       .help = "Times that an administrator reset the counts"),
	{.json = NULL},
};

const struct figure broker_figures[] = {
	BROKER(flags, 4, .flag = RBK_STATS_BROKER_FORCE_CPU, .json = "force_cpu",
	       .metric = "force_cpu",
	       .help = "1 if an administrator has set force-cpu, so that every task that can run "
		       "on the CPU does; else 0"),
	BROKER(n_sessions, 16, .json = "sessions", .metric = "sessions",
	       .help = "Connected clients"),
	BROKER(n_rings, 24, .json = "rings", .metric = "rings", .help = "Rings of all clients"),
	BROKER(n_arenas, 32, .json = "arenas", .metric = "arenas", .help = "Arenas of all clients"),
	BROKER(n_plans, 40, .json = "plans", .metric = "plans", .help = "Plans of all clients"),
	BROKER(n_tenants, 48, .json = "tenants", .metric = "tenants", .help = "Tenants"),
	BROKER(n_tenants_unlisted, 112, .json = "tenants_unlisted", .metric = "tenants_unlisted",
	       .help = "Tenants that these figures omit for lack of room"),
	BROKER(n_in_flight, 56, .json = "in_flight", .metric = "tasks_in_flight",
	       .help = "Tasks that were admitted and are not complete"),
	BROKER(n_completed, 80, .kind = FIGURE_SINCE_START, .json = "completed",
	       .metric = "entries_completed",
	       .help = "Submission entries that were answered, including entries that compute "
		       "nothing and refused ones"),
	BROKER(host_bytes, 64, .unit = FIGURE_BYTES, .json = "host_bytes",
	       .metric = "host_memory_charged_bytes",
	       .help = "Host memory that is charged to tenants, and to the broker for its own "
		       "statistics"),
	BROKER(device_bytes, 72, .unit = FIGURE_BYTES, .json = "device_bytes"),
	BROKER(copied_bytes, 88, .kind = FIGURE_SINCE_START, .unit = FIGURE_BYTES,
	       .json = "copied_bytes", .metric = "copied_bytes",
	       .help = "Tensor bytes that the CPU copied"),
	BROKER(transferred_bytes, 96, .kind = FIGURE_SINCE_START, .unit = FIGURE_BYTES,
	       .json = "transferred_bytes", .metric = "transferred_bytes",
	       .help = "Tensor bytes that devices transferred"),
	BROKER(n_ended_hostile, 104, .kind = FIGURE_SINCE_START, .json = "ended_hostile",
	       .metric = "sessions_ended_hostile",
	       .help = "Sessions that the broker ended because the client broke a rule of the "
		       "protocol"),
	BROKER(host_max, 248, .unit = FIGURE_BYTES, .null = FIGURE_ZERO, .json = "host_max_bytes",
	       .metric = "host_memory_max_bytes",
	       .help = "Limit on the host memory of all tenants together; absent if there is no "
		       "limit"),
	BROKER(longest_turn_ns, 120, .unit = FIGURE_NS, .metric = "reactor_longest_turn_seconds",
	       .help = "Longest turn of the reactor, the thread that serves all clients, since "
		       "statistics began"),
	{.json = NULL},
};

const struct figure contention_figures[] = {
	CONTENTION(flags, 8, .flag = RBK_STATS_CONTENDED, .json = "contended",
		   .metric = "contended",
		   .help = "1 if other programs make the broker's workers wait for processors, "
			   "else 0"),
	CONTENTION(factor, 24, .json = "factor", .metric = "contention_ratio",
		   .help = "Factor by which other programs slow tasks down on the CPU"),
	CONTENTION(n_workers, 12, .json = "workers", .metric = "workers_used",
		   .help = "CPU workers in use"),
	CONTENTION(n_workers_total, 16, .json = "workers_total", .metric = "workers",
		   .help = "CPU workers"),
	CONTENTION(n_began, 32, .kind = FIGURE_SINCE_RESET, .json = "n_began",
		   .metric = "contentions", .help = "Times that the CPU became contended"),
	CONTENTION(began_at_ns, 40, .unit = FIGURE_MOMENT, .null = FIGURE_ZERO, .json = "began_ns"),
	CONTENTION(contended_ns, 48, .kind = FIGURE_SINCE_RESET, .unit = FIGURE_NS,
		   .json = "contended_ns", .metric = "contended_seconds",
		   .help = "Time during which the CPU was contended"),
	CONTENTION(n_unwatched, 56, .json = "n_unwatched"),
	CONTENTION(n_dropped, 64, .json = "n_dropped"),
	CONTENTION(n_probe_events, 72, .json = "n_probe_events"),
	CONTENTION(probe_ns, 80, .unit = FIGURE_NS, .json = "probe_ns"),
	{.json = NULL},
};

const struct figure upkeep_figures[] = {
	UPKEEP(n_setup_waiting, 8, .metric = "setup_jobs_waiting",
	       .help = "Jobs that wait for the setup thread"),
	UPKEEP(setup_running.ns, 16, .unit = FIGURE_NS, .metric = "setup_running_seconds",
	       .help = "Time that the setup thread has worked on its current slice of a job; 0 "
		       "while it is idle"),
	UPKEEP(longest_wait.ns, 32, .unit = FIGURE_NS, .metric = "setup_longest_wait_seconds",
	       .help = "Longest time that a job waited for the setup thread, since statistics "
		       "began"),
	UPKEEP(n_closers, 560, .json = "threads", .object = "closing", .metric = "closers",
	       .help = "Threads that close the descriptors of clients"),
	UPKEEP(n_closers_max, 564, .json = "threads_max", .object = "closing",
	       .metric = "closers_max",
	       .help = "Limit on the threads that close the descriptors "
		       "of clients"),
	UPKEEP(n_closers_stuck, 568, .json = "stuck", .object = "closing",
	       .metric = "closers_stuck",
	       .help = "Closing threads that have worked on one descriptor for too long"),
	UPKEEP(n_closings_waiting, 576, .json = "waiting", .object = "closing",
	       .metric = "closings_waiting", .help = "Descriptors that wait for a closing thread"),
	UPKEEP(n_closers_ever_stuck, 584, .kind = FIGURE_SINCE_START, .json = "ever_stuck",
	       .object = "closing", .metric = "closings_stuck",
	       .help = "Descriptors that took a closing thread too long"),
	UPKEEP(longest_turn_cpu_ns, 592, .unit = FIGURE_NS,
	       .metric = "reactor_longest_turn_cpu_seconds",
	       .help = "Longest processor time of a turn of the reactor, the thread that serves "
		       "all clients, except for turns that handled only ring entries"),
	UPKEEP(n_calls_refused, 600, .kind = FIGURE_SINCE_START, .json = "refused_calls",
	       .metric = "refused_system_calls",
	       .help = "System calls of the broker's threads that the sandbox refused or, with "
		       "sandbox = log, reported; each call counts once for each kind of thread"),
	{.json = NULL},
};

const struct figure slices_figures[] = {
	SLICES(n_slices, 0, .kind = FIGURE_SINCE_RESET, .json = "slices", .metric = "setup_slices",
	       .help = "Slices of jobs that the setup thread ran, by kind of work"),
	SLICES(total_ns, 8, .kind = FIGURE_SINCE_RESET, .unit = FIGURE_NS, .json = "total_ns",
	       .metric = "setup_seconds",
	       .help = "Total time of the setup thread's slices, by "
		       "kind of work"),
	SLICES(longest_ns, 16, .unit = FIGURE_NS, .json = "longest_ns",
	       .metric = "setup_longest_slice_seconds",
	       .help = "Longest slice of the setup thread since statistics began, by kind of work"),
	{.json = NULL},
};

const struct figure mended_figures[] = {
	MENDED(n_moved, 16, .kind = FIGURE_SINCE_START, .json = "moved_tasks",
	       .metric = "device_stall_moved_tasks",
	       .help = "Tasks that moved from the device to the CPU after stalls"),
	MENDED(n_recalled, 8, .kind = FIGURE_SINCE_START, .json = "recalled_tasks",
	       .metric = "device_stall_recalled_tasks",
	       .help = "Tasks that were taken back from the device after stalls, before the device "
		       "began them"),
	MENDED(n_slots, 0, .kind = FIGURE_SINCE_START, .json = "slots",
	       .metric = "device_stall_slots",
	       .help = "Slots of plans that were freed after stalls because no task used them"),
	MENDED(n_lost, 24, .kind = FIGURE_SINCE_START, .json = "losses",
	       .metric = "device_stall_losses",
	       .help = "Times that the broker closed the device after stalls, to reopen it"),
	{.json = NULL},
};
