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
	       .metric = "start_time_seconds", .help = "When the broker started"),
	HEADER(updated_at_ns, 56, .unit = FIGURE_MOMENT, .json = "updated_ns",
	       .metric = "statistics_updated_timestamp_seconds",
	       .help = "When the broker last brought these figures up to date; it does several "
		       "times a second"),
	HEADER(n_resets, 80, .kind = FIGURE_SINCE_START, .json = "resets",
	       .metric = "statistics_resets",
	       .help = "How often all counts began anew, as an administrator asked"),
	{.json = NULL},
};

const struct figure broker_figures[] = {
	BROKER(flags, 4, .flag = RBK_STATS_BROKER_FORCE_CPU, .json = "force_cpu",
	       .metric = "force_cpu",
	       .help = "Is every task that may run on the CPU made to, as an administrator asked"),
	BROKER(n_sessions, 16, .json = "sessions", .metric = "sessions",
	       .help = "Clients that are connected"),
	BROKER(n_rings, 24, .json = "rings", .metric = "rings", .help = "Rings that clients have"),
	BROKER(n_arenas, 32, .json = "arenas", .metric = "arenas",
	       .help = "Arenas that clients have"),
	BROKER(n_plans, 40, .json = "plans", .metric = "plans", .help = "Plans that clients have"),
	BROKER(n_tenants, 48, .json = "tenants", .metric = "tenants",
	       .help = "Tenants that there are"),
	BROKER(n_tenants_unlisted, 112, .json = "tenants_unlisted", .metric = "tenants_unlisted",
	       .help = "Tenants that these figures have no room for"),
	BROKER(n_in_flight, 56, .json = "in_flight", .metric = "tasks_in_flight",
	       .help = "Tasks that were taken and are not complete"),
	BROKER(n_completed, 80, .kind = FIGURE_SINCE_START, .json = "completed",
	       .metric = "entries_completed",
	       .help = "Entries that were answered, those that compute nothing and refused ones "
		       "among them"),
	BROKER(host_bytes, 64, .unit = FIGURE_BYTES, .json = "host_bytes",
	       .metric = "host_memory_charged_bytes",
	       .help = "Host memory that tenants, and the broker for its own statistics, are "
		       "charged for"),
	BROKER(device_bytes, 72, .unit = FIGURE_BYTES, .json = "device_bytes"),
	BROKER(copied_bytes, 88, .kind = FIGURE_SINCE_START, .unit = FIGURE_BYTES,
	       .json = "copied_bytes", .metric = "copied_bytes",
	       .help = "Tensor bytes that a processor copied"),
	BROKER(transferred_bytes, 96, .kind = FIGURE_SINCE_START, .unit = FIGURE_BYTES,
	       .json = "transferred_bytes", .metric = "transferred_bytes",
	       .help = "Bytes that devices moved by themselves"),
	BROKER(n_ended_hostile, 104, .kind = FIGURE_SINCE_START, .json = "ended_hostile",
	       .metric = "sessions_ended_hostile",
	       .help = "Sessions that were ended for breaking a rule"),
	BROKER(host_max, 248, .unit = FIGURE_BYTES, .null = FIGURE_ZERO, .json = "host_max_bytes",
	       .metric = "host_memory_max_bytes",
	       .help = "What that may be of all tenants together; none: there is no limit"),
	BROKER(longest_turn_ns, 120, .unit = FIGURE_NS, .metric = "reactor_longest_turn_seconds",
	       .help = "The longest turn of the thread that serves all clients, since statistics "
		       "began"),
	{.json = NULL},
};

const struct figure contention_figures[] = {
	CONTENTION(flags, 8, .flag = RBK_STATS_CONTENDED, .json = "contended",
		   .metric = "contended",
		   .help = "Do the broker's workers wait for processors because of others"),
	CONTENTION(factor, 24, .json = "factor", .metric = "contention_ratio",
		   .help = "How many times longer tasks take on the CPU because of others"),
	CONTENTION(n_workers, 12, .json = "workers", .metric = "workers_used",
		   .help = "CPU workers that are used"),
	CONTENTION(n_workers_total, 16, .json = "workers_total", .metric = "workers",
		   .help = "CPU workers that there are"),
	CONTENTION(n_began, 32, .kind = FIGURE_SINCE_RESET, .json = "n_began",
		   .metric = "contentions", .help = "How often the CPU became contended"),
	CONTENTION(began_at_ns, 40, .unit = FIGURE_MOMENT, .null = FIGURE_ZERO, .json = "began_ns"),
	CONTENTION(contended_ns, 48, .kind = FIGURE_SINCE_RESET, .unit = FIGURE_NS,
		   .json = "contended_ns", .metric = "contended_seconds",
		   .help = "Time in which the CPU was contended"),
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
	       .help = "How long the setup thread has been at its present slice of a job; 0: it is "
		       "idle"),
	UPKEEP(longest_wait.ns, 32, .unit = FIGURE_NS, .metric = "setup_longest_wait_seconds",
	       .help = "The longest that a job waited for the setup thread, since statistics "
		       "began"),
	UPKEEP(n_closers, 560, .json = "threads", .object = "closing", .metric = "closers",
	       .help = "Threads that close what clients sent or left"),
	UPKEEP(n_closers_max, 564, .json = "threads_max", .object = "closing",
	       .metric = "closers_max", .help = "As many as there can be of them"),
	UPKEEP(n_closers_stuck, 568, .json = "stuck", .object = "closing",
	       .metric = "closers_stuck",
	       .help = "Of them, those that have been at one descriptor for too long"),
	UPKEEP(n_closings_waiting, 576, .json = "waiting", .object = "closing",
	       .metric = "closings_waiting", .help = "Descriptors that wait for one of them"),
	UPKEEP(n_closers_ever_stuck, 584, .kind = FIGURE_SINCE_START, .json = "ever_stuck",
	       .object = "closing", .metric = "closings_stuck",
	       .help = "Descriptors that were found to take one of them for too long"),
	UPKEEP(longest_turn_cpu_ns, 592, .unit = FIGURE_NS,
	       .metric = "reactor_longest_turn_cpu_seconds",
	       .help = "The most processor time that a turn of the thread that serves all clients "
		       "took, but for turns of ring entries alone"),
	{.json = NULL},
};

const struct figure slices_figures[] = {
	SLICES(n_slices, 0, .kind = FIGURE_SINCE_RESET, .json = "slices", .metric = "setup_slices",
	       .help = "Slices of jobs that the setup thread did, by what they were for"),
	SLICES(total_ns, 8, .kind = FIGURE_SINCE_RESET, .unit = FIGURE_NS, .json = "total_ns",
	       .metric = "setup_seconds", .help = "Time that they took, together"),
	SLICES(longest_ns, 16, .unit = FIGURE_NS, .json = "longest_ns",
	       .metric = "setup_longest_slice_seconds",
	       .help = "The longest of them, since statistics began"),
	{.json = NULL},
};

const struct figure mended_figures[] = {
	MENDED(n_moved, 16, .kind = FIGURE_SINCE_START, .json = "moved_tasks",
	       .metric = "device_stall_moved_tasks",
	       .help = "Tasks that went to the CPU in its place, after stalls"),
	MENDED(n_recalled, 8, .kind = FIGURE_SINCE_START, .json = "recalled_tasks",
	       .metric = "device_stall_recalled_tasks",
	       .help = "Tasks that were taken back from it unbegun, after stalls"),
	MENDED(n_slots, 0, .kind = FIGURE_SINCE_START, .json = "slots",
	       .metric = "device_stall_slots",
	       .help = "Slots of plans that were taken back because no task had them, after "
		       "stalls"),
	MENDED(n_lost, 24, .kind = FIGURE_SINCE_START, .json = "losses",
	       .metric = "device_stall_losses",
	       .help = "How often it was given up, to be opened anew, after stalls"),
	{.json = NULL},
};
