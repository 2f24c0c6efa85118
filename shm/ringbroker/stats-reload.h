#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages: reloads of the configuration, a part of <ringbroker/stats.h>, which explains
 * how records are read
 */
#include <stdint.h>

/* Reason of a refused reload, or names of keys, with the NUL */
#define RBK_STATS_RELOAD_BYTES 512

/* Reading the configuration again (SIGHUP), since the broker's start. */
struct rbk_stats_reload {
	uint32_t sequence;
	uint32_t flags; /* 0 */
	uint64_t n_accepted;
	uint64_t n_refused;      /* refused reloads leave the configuration as it was */
	uint64_t accepted_at_ns; /* time of the last accepted reload; 0: never */
	uint64_t refused_at_ns;  /* time of the last refused reload; 0: never */
	uint64_t n_errors;       /* errors of the last refused reload */
	uint64_t reserved[2];
	/* first of these errors, as in the log: "FILE:LINE: KEY: what is wrong"; printable */
	char reason[RBK_STATS_RELOAD_BYTES];
};

/* Keys of section [broker] that have changed in the configuration since the broker's start. */
struct rbk_stats_waiting {
	uint32_t sequence;
	uint32_t flags;  /* 0 */
	uint64_t n_keys; /* keys that take effect at the next start */
	uint64_t reserved[2];
	/* their names, printable, separated by ", "; cut if they are too many */
	char keys[RBK_STATS_RELOAD_BYTES];
};
