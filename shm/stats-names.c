/* SPDX-License-Identifier: MIT */
/* Names of causes, breakers, device kinds, memory states and memory tiers. */
#include "shm/stats-names.h"

#include <ringbroker/stats.h>

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct stats_word unknown = {"unknown", "unknown"};

const struct stats_word *stats_turn_cause(uint32_t cause)
{
	static const struct stats_word words[RBK_TURN_CAUSES] = {
		[RBK_TURN_ENTRIES] = {"entries", "ring entries"},
		[RBK_TURN_COMPLETIONS] = {"completions", "submitting and completing tasks"},
		[RBK_TURN_MESSAGES] = {"messages", "requests"},
		[RBK_TURN_PLANS] = {"plans", "plan verification"},
		[RBK_TURN_RINGS] = {"rings", "making rings"},
		[RBK_TURN_CONNECTIONS] = {"connections", "accepting connections"},
		[RBK_TURN_ENDS] = {"ends", "ends of sessions and rings"},
		[RBK_TURN_BELLS] = {"bells", "bells"},
		[RBK_TURN_RESIDENCY] = {"residency", "device memory"},
		[RBK_TURN_JOBS] = {"jobs", "results of the setup thread"},
		[RBK_TURN_TIMERS] = {"timers", "timers"},
		[RBK_TURN_STATISTICS] = {"statistics", "publishing statistics"},
		[RBK_TURN_KERNEL] = {"kernel", "registering files with the kernel"},
		[RBK_TURN_OTHER] = {"other", "other work"},
	};

	return cause < N_OF(words) && words[cause].name ? &words[cause] : &unknown;
}

const struct stats_word *stats_setup_cause(uint32_t cause)
{
	static const struct stats_word words[RBK_SETUP_CAUSES] = {
		[RBK_SETUP_OTHER] = {"other", "other work"},
		[RBK_SETUP_PLAN_VERIFY] = {"verify", "plan verification"},
		[RBK_SETUP_PLAN_MEASURE] = {"measure", "measuring a plan"},
		[RBK_SETUP_PLAN_PREPARE] = {"prepare", "plan preparation"},
		[RBK_SETUP_PLAN_RELEASE] = {"release", "releasing a plan"},
		[RBK_SETUP_ARENA_MAP] = {"map", "mapping an arena"},
		[RBK_SETUP_ARENA_UNMAP] = {"unmap", "unmapping an arena"},
		[RBK_SETUP_RING] = {"ring", "making or removing a ring"},
		[RBK_SETUP_LOAD] = {"load", "loading into device memory"},
		[RBK_SETUP_UNLOAD] = {"unload", "unloading from device memory"},
		[RBK_SETUP_REOPEN] = {"reopen", "reopening a device"},
		[RBK_SETUP_CALIBRATION] = {"calibration", "calibration"},
		[RBK_SETUP_FILE] = {"file", "the broker's own files"},
	};

	return cause < N_OF(words) && words[cause].name ? &words[cause] : &unknown;
}

const struct stats_word *stats_sandbox(uint32_t sandbox)
{
	static const struct stats_word words[RBK_STATS_SANDBOXES] = {
		[RBK_STATS_SANDBOX_ON] = {"on", "on: threads may make only the system calls that "
						"they need"},
		[RBK_STATS_SANDBOX_LOG] = {"log", "in mode log: system calls that threads do not "
						  "need happen, and are logged"},
		[RBK_STATS_SANDBOX_OFF] = {"off", "off: threads may make all system calls"},
		[RBK_STATS_SANDBOX_LACKING] = {"lacking", "not available: this kernel or container "
							  "has no filters of system calls "
							  "(seccomp)"},
		[RBK_STATS_SANDBOX_NOT_BUILT] = {"not-built", "not available: this build of "
							      "brokerd has no filters of system "
							      "calls"},
		[RBK_STATS_SANDBOX_REFUSED] = {"refused", "incomplete: the kernel refused a filter "
							  "of system calls"},
	};

	return sandbox < N_OF(words) && words[sandbox].name ? &words[sandbox] : &unknown;
}

const char *stats_breaker_name(uint32_t state)
{
	static const char *const names[RBK_STATS_BREAKER_PROBING + 1] = {
		[RBK_STATS_BREAKER_CLOSED] = "closed",
		[RBK_STATS_BREAKER_OPEN] = "open",
		[RBK_STATS_BREAKER_PROBING] = "probing",
	};

	return state < N_OF(names) ? names[state] : unknown.name;
}

const char *stats_device_kind_name(uint32_t kind)
{
	static const char *const names[] = {"cpu", "gpu", "software-gpu"};

	return kind < N_OF(names) ? names[kind] : unknown.name;
}

const char *stats_memory_state_name(uint32_t state)
{
	static const char *const names[] = {
		[RBK_MEMORY_UNSUPPORTED] = "unsupported",
		[RBK_MEMORY_RESIDENT] = "resident",
		[RBK_MEMORY_EVICTED] = "evicted",
		[RBK_MEMORY_NEVER_FITS] = "never-fits",
		[RBK_MEMORY_LOST] = "lost",
	};

	return state < N_OF(names) ? names[state] : unknown.name;
}

const char *stats_cut_name(uint32_t cut)
{
	static const char *const names[] = {
		[RBK_CUT_UNKNOWN] = "unknown",     [RBK_CUT_FASTER] = "faster",
		[RBK_CUT_TO_FIT] = "to-fit",       [RBK_CUT_AT_RANDOM] = "at-random",
		[RBK_CUT_NO_GAIN] = "no-gain",     [RBK_CUT_SMALL] = "small",
		[RBK_CUT_NO_DEVICE] = "no-device", [RBK_CUT_FITS] = "fits",
		[RBK_CUT_PINNED] = "pinned",       [RBK_CUT_REFUSED] = "refused",
	};

	_Static_assert(N_OF(names) == RBK_CUT_COUNT, "each has a name");
	return cut < N_OF(names) ? names[cut] : unknown.name;
}

const char *stats_memory_tier_name(uint32_t tier)
{
	static const char *const names[] = {
		[RBK_TIER_NONE] = "none",
		[RBK_TIER_VRAM] = "vram",
		[RBK_TIER_GTT] = "gtt",
	};

	return tier < N_OF(names) ? names[tier] : unknown.name;
}
