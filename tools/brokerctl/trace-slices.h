#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Timeslices of leases in a trace
 *
 * Each lease has a track below the tasks of its tenant, with a span for each wait for the device,
 * for each timeslice, and for the time that an overdue one took after it was to end.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "logs.h"
#include "timeline.h"

enum slice_span { SLICE_WAIT, SLICE_HELD, SLICE_OVERDUE };
enum { SLICE_SPANS = 3 };

/* A lease that had a timeslice. */
struct trace_lease {
	uint32_t number;
	unsigned int traced;             /* index of its tenant in the trace */
	uint8_t device;                  /* RBK_DEVICE_* */
	unsigned int n_tries;            /* searches for its name */
	char name[RBK_STATS_NAME_BYTES]; /* "": not known */
	uint64_t ended_ns;               /* end of its last span */
};

/* Zeroed at first, except for @max. */
struct trace_slices {
	struct trace_lease *leases; /* by number */
	size_t n_leases, max_leases;
	struct slice_entry *entries; /* tenant: index in the trace */
	size_t n_entries, room;
	size_t max; /* entries to hold at most */
	uint64_t n_left_out;
};

/* The place of a tenant in the reading of its log. */
struct trace_slices_place {
	uint64_t next; /* index in its timeslices */
	uint64_t n_lost;
};

/* Begin with the oldest timeslice that the page still has. */
void trace_slices_begin(struct trace_slices_place *place, const struct tenant_page *page);
/* Read the new timeslices of a tenant. Return: 0; -ENOMEM. */
int trace_slices_read(struct trace_slices *slices, const struct tenant_page *page,
		      unsigned int traced, struct trace_slices_place *place);
/* Find the names of leases that were opened meanwhile. */
void trace_slices_find_names(struct trace_slices *slices, const struct pages *pages);
/*
 * Sort the timeslices, and make at most SLICE_SPANS spans for each. The track of a span is the
 * index of its lease.
 * Return: the number of spans.
 */
size_t trace_slices_spans(struct trace_slices *slices, struct span *spans);
void trace_slices_free(struct trace_slices *slices);

/* Return what kind of span it is, and its lease. */
enum slice_span trace_slices_kind(const struct span *span);
/* Write the name of a lease's track: "lease 3 game on GPU1". */
void trace_slices_track(const struct trace_lease *lease, char *text, size_t bytes);
/*
 * Write the members of a span's event, without its place. @tenant_of returns the name of a tenant
 * of the trace.
 */
void trace_slices_write(const struct trace_slices *slices, const struct trace_lease *lease,
			const struct span *span,
			const char *(*tenant_of)(const void *data, unsigned int traced),
			const void *data);
