/* SPDX-License-Identifier: MIT */
/*
 * Timeslices of leases in a trace
 *
 * Work that a lease has under way when its timeslice is to end does not keep it from waiting for
 * the next one. The wait is drawn from the end of that work on, so spans of a lease do not overlap.
 */
#include "trace-slices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "records.h"
#include "trace-events.h"

/* The broker shows a lease a moment after it was opened. */
enum { MAX_TRIES = 100 };

/* --- Reading --- */

/* Return the index of the lease, or where it belongs. */
static size_t place_of(const struct trace_slices *slices, uint32_t number)
{
	size_t low = 0, high = slices->n_leases;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (slices->leases[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct trace_lease *lease_of(const struct trace_slices *slices, uint32_t number)
{
	const size_t at = place_of(slices, number);

	return at < slices->n_leases && slices->leases[at].number == number ? &slices->leases[at]
									    : NULL;
}

/* Return: 0; -ENOMEM */
static int add_lease(struct trace_slices *slices, const struct rbk_stats_slice *slice,
		     unsigned int traced)
{
	const size_t at = place_of(slices, slice->lease);
	const size_t max = slices->max_leases ? 2 * slices->max_leases : 64;
	struct trace_lease *grown;

	if (at < slices->n_leases && slices->leases[at].number == slice->lease)
		return 0;
	if (slices->n_leases == slices->max_leases) {
		grown = reallocarray(slices->leases, max, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		slices->leases = grown;
		slices->max_leases = max;
	}
	memmove(&slices->leases[at + 1], &slices->leases[at],
		(slices->n_leases - at) * sizeof(slices->leases[0]));
	slices->leases[at] = (struct trace_lease){
		.number = slice->lease, .traced = traced, .device = slice->device};
	slices->n_leases++;
	return 0;
}

/* Return: 0; -ENOMEM */
static int add_entry(struct trace_slices *slices, const struct rbk_stats_slice *slice,
		     unsigned int traced)
{
	const size_t room = slices->room ? 2 * slices->room : 1024;
	struct slice_entry *grown;

	if (slices->n_entries == slices->room) {
		grown = reallocarray(slices->entries, room, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		slices->entries = grown;
		slices->room = room;
	}
	slices->entries[slices->n_entries++] = (struct slice_entry){*slice, traced};
	return 0;
}

void trace_slices_begin(struct trace_slices_place *place, const struct tenant_page *page)
{
	slices_head(page, &place->next);
}

int trace_slices_read(struct trace_slices *slices, const struct tenant_page *page,
		      unsigned int traced, struct trace_slices_place *place)
{
	struct rbk_stats_slice slice;
	uint64_t oldest, head = slices_head(page, &oldest);
	int r = 0;

	/* The tenant has a new page. */
	if (place->next > head)
		place->next = oldest;
	if (place->next < oldest) {
		place->n_lost += oldest - place->next;
		place->next = oldest;
	}
	for (; place->next < head && !r; place->next++) {
		/* A reset removed it, or an earlier page had it. */
		if (!slice_copy(page, place->next, &slice))
			continue;
		if (slices->n_entries == slices->max) {
			slices->n_left_out++;
			continue;
		}
		r = add_lease(slices, &slice, traced);
		if (!r)
			r = add_entry(slices, &slice, traced);
	}
	return r;
}

void trace_slices_find_names(struct trace_slices *slices, const struct pages *pages)
{
	struct trace_lease *traced;
	struct rbk_stats_lease lease;
	bool is_any = false;

	for (size_t i = 0; i < slices->n_leases; i++)
		is_any |= slices->leases[i].name[0] == '\0' &&
			  slices->leases[i].n_tries++ < MAX_TRIES;
	for (unsigned int i = 0; is_any && i <= pages->n_tenants; i++) {
		const struct rbk_stats_view *view =
			i < pages->n_tenants ? &pages->tenants[i].view : &pages->root;

		for (uint32_t k = 0; k < rbk_stats_used(view, RBK_STATS_SECTION_LEASES); k++) {
			traced =
				lease_copy(view, k, &lease) ? lease_of(slices, lease.number) : NULL;
			if (traced)
				memcpy(traced->name, lease.name, sizeof(traced->name));
		}
	}
}

/* --- Spans --- */

static struct span span_of(size_t lease, size_t entry, enum slice_span kind, uint64_t began_ns,
			   uint64_t ended_ns)
{
	return (struct span){.began_ns = began_ns,
			     .ended_ns = ended_ns,
			     .track = (uint32_t)lease,
			     .about = (uint64_t)entry * SLICE_SPANS + kind};
}

size_t trace_slices_spans(struct trace_slices *slices, struct span *spans)
{
	size_t n = 0;

	slices_sort(slices->entries, slices->n_entries);
	for (size_t i = 0; i < slices->n_entries; i++) {
		const struct rbk_stats_slice *slice = &slices->entries[i].slice;
		const size_t at = place_of(slices, slice->lease);
		struct trace_lease *lease = &slices->leases[at];
		uint64_t wanted_ns = slice->wanted_at_ns, ended_ns = slice->ended_at_ns;

		if (wanted_ns > 0 && wanted_ns < lease->ended_ns)
			wanted_ns = lease->ended_ns;
		if (wanted_ns > 0 && wanted_ns < slice->began_at_ns)
			spans[n++] = span_of(at, i, SLICE_WAIT, wanted_ns, slice->began_at_ns);
		if (slice->flags & RBK_STATS_SLICE_OVERDUE &&
		    slice->closed_at_ns >= slice->began_at_ns) {
			ended_ns = slice->closed_at_ns;
			spans[n++] = span_of(at, i, SLICE_OVERDUE, ended_ns, slice->ended_at_ns);
		}
		spans[n++] = span_of(at, i, SLICE_HELD, slice->began_at_ns, ended_ns);
		lease->ended_ns = slice->ended_at_ns;
	}
	return n;
}

void trace_slices_free(struct trace_slices *slices)
{
	free(slices->leases);
	free(slices->entries);
}

/* --- Writing --- */

enum slice_span trace_slices_kind(const struct span *span)
{
	return (enum slice_span)(span->about % SLICE_SPANS);
}

void trace_slices_track(const struct trace_lease *lease, char *text, size_t bytes)
{
	snprintf(text, bytes, "lease %u%s%s on %s", lease->number, lease->name[0] ? " " : "",
		 lease->name, device_label(lease->device));
}

/* Return what ended a timeslice. */
static const char *end_of(const struct rbk_stats_slice *slice)
{
	if (slice->flags & RBK_STATS_SLICE_LEFT)
		return "left";
	if (slice->flags & RBK_STATS_SLICE_ALONE)
		return "alone";
	if (slice->flags & RBK_STATS_SLICE_FOR_PLANS)
		return "plans";
	return slice->closed_at_ns > 0 ? "lease" : "done";
}

void trace_slices_write(const struct trace_slices *slices, const struct trace_lease *lease,
			const struct span *span,
			const char *(*tenant_of)(const void *data, unsigned int traced),
			const void *data)
{
	static const char *const categories[SLICE_SPANS] = {
		[SLICE_WAIT] = "lease-wait",
		[SLICE_HELD] = "lease",
		[SLICE_OVERDUE] = "lease-overdue",
	};
	const struct slice_entry *entry = &slices->entries[span->about / SLICE_SPANS], *next = NULL;
	const struct rbk_stats_slice *slice = &entry->slice;
	const enum slice_span kind = trace_slices_kind(span);
	uint32_t ended_for = slice->ended_for;

	if (slice->flags & RBK_STATS_SLICE_FOR_OTHERS)
		next = slices_after(slices->entries, slices->n_entries, entry);
	if (next)
		ended_for = next->slice.lease;
	json_string("cat", categories[kind]);
	json_string("name", kind == SLICE_WAIT      ? "waits"
			    : kind == SLICE_OVERDUE ? "overdue"
			    : lease->name[0]        ? lease->name
						    : "?");
	event_time("ts", span->began_ns);
	event_time("dur", span->ended_ns - span->began_ns);
	json_object("args");
	json_string("tenant", tenant_of(data, entry->tenant));
	json_unsigned("index", slice->sequence - 1);
	json_unsigned("lease", slice->lease);
	json_string("lease_name", lease->name[0] ? lease->name : NULL);
	json_string("device", device_label(slice->device));
	json_string("priority", slice_priority(slice->priority));
	json_unsigned("wait_ns",
		      slice->wanted_at_ns ? slice->began_at_ns - slice->wanted_at_ns : 0);
	json_unsigned("wait_for_plans_ns", slice->plans_ns);
	json_boolean("late", slice->flags & RBK_STATS_SLICE_LATE);
	json_unsigned("held_ns", slice->ended_at_ns - slice->began_at_ns);
	json_unsigned("tail_ns",
		      slice->closed_at_ns ? slice->ended_at_ns - slice->closed_at_ns : 0);
	json_boolean("overdue", slice->flags & RBK_STATS_SLICE_OVERDUE);
	json_string("ended_by", end_of(slice));
	json_optional("ended_for", ended_for ? ended_for : UINT64_MAX);
	json_string("ended_for_tenant", next               ? tenant_of(data, next->tenant)
					: slice->ended_for ? tenant_of(data, entry->tenant)
							   : NULL);
	json_object_end();
	json_end();
}
