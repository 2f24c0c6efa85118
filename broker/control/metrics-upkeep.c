/* SPDX-License-Identifier: MIT */
/*
 * Metrics of what the broker does beside tasks: the setup thread, the threads that close, and what
 * was done about devices without progress.
 *
 * No tenant is a label here: whose slice was the longest is for brokerctl status to say.
 */
#include "control/metrics-private.h"

#include "util/checked.h"

static const struct member upkeep_members[] = {
	GAUGE(rbk_stats_upkeep, n_setup_waiting, COUNT, "setup_jobs_waiting",
	      "Jobs that wait for the setup thread"),
	GAUGE(rbk_stats_upkeep, setup_running.ns, NS, "setup_running_seconds",
	      "How long the setup thread has been at its present slice of a job; 0: it is idle"),
	GAUGE(rbk_stats_upkeep, longest_wait.ns, NS, "setup_longest_wait_seconds",
	      "The longest that a job waited for the setup thread, since statistics began"),
	GAUGE(rbk_stats_upkeep, n_closers, NUMBER, "closers",
	      "Threads that close what clients sent or left"),
	GAUGE(rbk_stats_upkeep, n_closers_max, NUMBER, "closers_max",
	      "As many as there can be of them"),
	GAUGE(rbk_stats_upkeep, n_closers_stuck, NUMBER, "closers_stuck",
	      "Of them, those that have been at one descriptor for too long"),
	GAUGE(rbk_stats_upkeep, n_closings_waiting, COUNT, "closings_waiting",
	      "Descriptors that wait for one of them"),
	COUNTER(rbk_stats_upkeep, n_closers_ever_stuck, COUNT, SINCE_START, "closings_stuck",
		"Descriptors that were found to take one of them for too long"),
	GAUGE(rbk_stats_upkeep, longest_turn_cpu_ns, NS, "reactor_longest_turn_cpu_seconds",
	      "The most processor time that a turn of the thread that serves all clients took, "
	      "but for turns of ring entries alone"),
};

static const struct member slices_members[] = {
	COUNTER(rbk_stats_setup_slices, n_slices, COUNT, SINCE_RESET, "setup_slices",
		"Slices of jobs that the setup thread did, by what they were for"),
	COUNTER(rbk_stats_setup_slices, total_ns, NS, SINCE_RESET, "setup_seconds",
		"Time that they took, together"),
	GAUGE(rbk_stats_setup_slices, longest_ns, NS, "setup_longest_slice_seconds",
	      "The longest of them, since statistics began"),
};

static const struct member mended_members[] = {
	COUNTER(rbk_stats_mended, n_slots, COUNT, SINCE_START, "device_stall_slots",
		"Slots of plans that were taken back because no task had them, after stalls"),
	COUNTER(rbk_stats_mended, n_recalled, COUNT, SINCE_START, "device_stall_recalled_tasks",
		"Tasks that were taken back from it unbegun, after stalls"),
	COUNTER(rbk_stats_mended, n_moved, COUNT, SINCE_START, "device_stall_moved_tasks",
		"Tasks that went to the CPU in its place, after stalls"),
	COUNTER(rbk_stats_mended, n_lost, COUNT, SINCE_START, "device_stall_losses",
		"How often it was given up, to be opened anew, after stalls"),
};

static const char *const causes[RBK_SETUP_CAUSES] = {
	[RBK_SETUP_OTHER] = "cause=\"other\"",
	[RBK_SETUP_PLAN_VERIFY] = "cause=\"verify\"",
	[RBK_SETUP_PLAN_MEASURE] = "cause=\"measure\"",
	[RBK_SETUP_PLAN_PREPARE] = "cause=\"prepare\"",
	[RBK_SETUP_PLAN_RELEASE] = "cause=\"release\"",
	[RBK_SETUP_ARENA_MAP] = "cause=\"map\"",
	[RBK_SETUP_ARENA_UNMAP] = "cause=\"unmap\"",
	[RBK_SETUP_RING] = "cause=\"ring\"",
	[RBK_SETUP_LOAD] = "cause=\"load\"",
	[RBK_SETUP_UNLOAD] = "cause=\"unload\"",
	[RBK_SETUP_REOPEN] = "cause=\"reopen\"",
	[RBK_SETUP_CALIBRATION] = "cause=\"calibration\"",
	[RBK_SETUP_FILE] = "cause=\"file\"",
};

void metrics_write_upkeep(const struct metrics_page *page, struct metrics_text *text)
{
	const struct rbk_stats_upkeep *upkeep = &page->upkeep;
	char device[32];

	if (!page->has_upkeep)
		return;
	metrics_write_members(page, text, upkeep_members, ARRAY_SIZE(upkeep_members), upkeep);
	for (size_t k = 0; k < ARRAY_SIZE(slices_members); k++) {
		metrics_begin(text, &slices_members[k].family);
		for (unsigned int i = 0; i < RBK_SETUP_CAUSES; i++)
			metrics_write_member(page, text, &slices_members[k], &upkeep->setup[i],
					     causes[i], NULL);
	}
	for (size_t k = 0; k < ARRAY_SIZE(mended_members); k++) {
		metrics_begin(text, &mended_members[k].family);
		for (uint32_t i = 0; i < page->n_devices; i++) {
			metrics_device_label(device, i);
			metrics_write_member(page, text, &mended_members[k], &upkeep->mended[i],
					     device, NULL);
		}
	}
}
