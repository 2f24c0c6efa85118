#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Declarations shared by the files that write a page as metrics
 *
 * metrics-page.c copies a page; metrics-sample.c writes samples of any record, by the table of its
 * figures. The families of the broker, of its upkeep, of its devices and of its tenants have a file
 * each.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/stats.h>

#include "control/metrics-text.h"
#include "shm/stats-figures.h"
#include "shm/stats-names.h"

/* Bytes of a label with a name, each character escaped, and a suffix that makes it unique */
enum { METRICS_LABEL_BYTES = 2 * RBK_STATS_NAME_BYTES + 32 };
/* Bytes of a label with a word of the broker's own */
enum { METRICS_WORD_BYTES = 32 };

/*
 * Sums over all leases of a tenant on a device. A lease has no series of its own, because programs
 * come and go.
 */
struct lease_sum {
	uint64_t n, granted_bytes, capped_bytes, credited_bytes, used_bytes, seen_bytes,
		moved_bytes;
	bool is_seen;
	uint64_t longest_part_ns; /* of any of them, not a sum */
};

struct tenant_copy {
	struct rbk_stats_tenant figures;
	struct rbk_stats_delay delay;
	char label[METRICS_LABEL_BYTES];
	struct lease_sum leases[RBK_MAX_DEVICES];
};

/* Keys of the search for tenants, in an array of their own */
struct tenant_key {
	uint64_t hash; /* of the label */
	uint32_t number;
};

struct metrics_page {
	struct rbk_stats_header header; /* used members only */
	struct rbk_stats_broker broker;
	struct rbk_stats_contention contention;
	bool has_contention;
	struct rbk_stats_upkeep upkeep;
	bool has_upkeep;
	struct rbk_stats_delay roles[2]; /* sums over reactor threads, and over workers */
	bool has_roles;
	uint32_t n_devices;
	struct rbk_stats_device devices[RBK_MAX_DEVICES];
	bool has_leases;
	uint32_t n_tenants, max_tenants;
	struct tenant_key *keys; /* of the tenants */
	struct tenant_copy tenants[];
};

/* ---- Samples ---- */

/*
 * Begin the family of a figure.
 * Return: false if the figure is not in metrics.
 */
bool metrics_begin_figure(struct metrics_text *text, const struct figure *figure);

/*
 * Write samples of the current family; metrics_write_figures() begins a family for each figure.
 * @labels and @more may be NULL. @kind: of counters, whose begin depends on it.
 */
void metrics_write_created(const struct metrics_page *page, struct metrics_text *text,
			   enum figure_kind kind, const char *labels, const char *more);
void metrics_write_figure(const struct metrics_page *page, struct metrics_text *text,
			  const struct figure *figure, const void *record, const char *labels,
			  const char *more);
void metrics_write_figures(const struct metrics_page *page, struct metrics_text *text,
			   const struct figure *figures, const void *record);
void metrics_write_delay(const struct metrics_page *page, struct metrics_text *text,
			 const struct rbk_stats_delay *delay, const char *labels);
/* Return the label of a device, whose index is below RBK_MAX_DEVICES. */
const char *metrics_device_label(uint32_t index);

/* ---- Families ---- */

void metrics_write_broker(const struct metrics_page *page, const char *version,
			  struct metrics_text *text);
void metrics_write_upkeep(const struct metrics_page *page, struct metrics_text *text);
void metrics_write_devices(const struct metrics_page *page, struct metrics_text *text);
void metrics_write_tenants(const struct metrics_page *page, struct metrics_text *text);
