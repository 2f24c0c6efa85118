#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Parts: how the work of leased programs is divided, as their members report, for listings
 *
 * Reactor thread.
 */
#include <stdbool.h>
#include <stdint.h>

struct lease_member;

enum parts_count {
	PARTS_SUBMISSIONS, /* of command buffers to the driver, in parts or whole */
	PARTS_DIVIDED,     /* parts behind the first one of a command buffer */
	PARTS_SLICES,
	PARTS_WHOLE,    /* command buffers that stayed whole from a command on */
	PARTS_UNSLICED, /* dispatches that take longer than a part and stayed whole */
	PARTS_COUNTS,
};

#define PARTS_RECENT_NS 10000000000ull /* 10 s: least time for which a largest value is kept */

/* The largest of the values of the last PARTS_RECENT_NS, or up to twice that; zeroed at first. */
struct recent {
	uint64_t begin_ns;  /* begin of the present period; 0: no value yet */
	uint64_t most;      /* in the present period */
	uint64_t most_then; /* in the period before */
};

/* Note a value. @now_ns never decreases. */
void recent_note(struct recent *recent, uint64_t value, uint64_t now_ns);
/* Return the largest value; 0: none. */
uint64_t recent_most(const struct recent *recent, uint64_t now_ns);

/* A lease's part; zeroed at first. Members that have left count as well. */
struct lease_parts {
	bool is_reported;
	uint64_t counts[PARTS_COUNTS];
	struct recent longest; /* time of a part, in ns */
};

/* A member's part: counts of its last report; zeroed at first. */
struct member_parts {
	uint64_t counts[PARTS_COUNTS];
};

/* A member's report: counts since it joined, and the longest part since its last report. */
struct parts_report {
	uint64_t counts[PARTS_COUNTS];
	uint64_t longest_ns; /* 0: none was measured */
};
/* Add a member's report to the sums of its lease and its tenant. Any values are accepted. */
void parts_report(struct lease_member *member, const struct parts_report *report, uint64_t now_ns);
