#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Declarations shared by the files that write a page as metrics
 *
 * metrics-page.c copies a page; metrics-sample.c writes samples of any record, by tables of its
 * members; the families of the broker, of its upkeep, of its devices and of its
 * tenants have a file each.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ringbroker/stats.h>

#include "control/metrics-text.h"

/* A name, each character escaped, with what makes it unique. */
enum { METRICS_LABEL_BYTES = 2 * RBK_STATS_NAME_BYTES + 32 };

/*
 * The sums over all leases that a tenant has of a device. A lease has no series of its own, because
 * programs come and go.
 */
struct lease_sum {
	uint64_t n, granted_bytes, capped_bytes, credited_bytes, used_bytes, seen_bytes;
	bool is_seen;
};

struct tenant_copy {
	struct rbk_stats_tenant figures;
	struct rbk_stats_delay delay;
	char label[METRICS_LABEL_BYTES];
	struct lease_sum leases[RBK_MAX_DEVICES];
};

struct metrics_page {
	struct rbk_stats_header header; /* those members that are used */
	struct rbk_stats_broker broker;
	struct rbk_stats_contention contention;
	bool has_contention;
	struct rbk_stats_upkeep upkeep;
	bool has_upkeep;
	struct rbk_stats_delay roles[2]; /* of reactor and workers, as far as they are summed up */
	bool has_roles;
	uint32_t n_devices;
	struct rbk_stats_device devices[RBK_MAX_DEVICES];
	bool has_leases;
	uint32_t n_tenants, max_tenants;
	uint64_t *hashes; /* of the tenants' labels */
	struct tenant_copy tenants[];
};

/* ---- Tables ---- */

/* The type and unit of a member. */
enum scale {
	COUNT,   /* a number as it is */
	NUMBER,  /* likewise, of 32 bits */
	NS,      /* in seconds */
	PERCENT, /* of 1 */
	MILLI,
	MICRO,
	REAL,
	MOMENT, /* on the broker's clock; CLOCK_REALTIME in seconds */
	FLAG,   /* of 32 bits: is it set? */
};

enum since {
	SINCE_NOTHING = 0, /* not a count, or its beginning is not known */
	SINCE_START,
	SINCE_RESET,
};

/* A family of which each record has one sample. */
struct member {
	struct metrics_family family;
	enum scale scale;
	size_t offset;
	uint32_t flag;
	enum since since;
};

#define GAUGE(type, member, scale, name, help)                                     \
	{                                                                          \
		{name, help, METRICS_GAUGE}, scale, offsetof(struct type, member), \
	}
#define FLAG_OF(type, member, flag, name, help)                                         \
	{                                                                               \
		{name, help, METRICS_GAUGE}, FLAG, offsetof(struct type, member), flag, \
	}
#define COUNTER(type, member, scale, since, name, help)                                        \
	{                                                                                      \
		{name, help, METRICS_COUNTER}, scale, offsetof(struct type, member), 0, since, \
	}

/* ---- Samples ---- */

/*
 * Each writes samples of the family that was begun last, but for metrics_write_members(), which
 * begins one for each member. @labels and @more may be NULL.
 */
void metrics_write_created(const struct metrics_page *page, struct metrics_text *text,
			   enum since since, const char *labels, const char *more);
void metrics_write_member(const struct metrics_page *page, struct metrics_text *text,
			  const struct member *member, const void *record, const char *labels,
			  const char *more);
void metrics_write_members(const struct metrics_page *page, struct metrics_text *text,
			   const struct member *members, size_t n, const void *record);
void metrics_write_reasons(const struct metrics_page *page, struct metrics_text *text,
			   const uint64_t *reasons, const char *labels);
void metrics_write_delay(const struct metrics_page *page, struct metrics_text *text,
			 const struct rbk_stats_delay *delay, const char *labels);
void metrics_device_label(char label[static 32], uint32_t index);

/* ---- Families ---- */

void metrics_write_broker(const struct metrics_page *page, const char *version,
			  struct metrics_text *text);
void metrics_write_upkeep(const struct metrics_page *page, struct metrics_text *text);
void metrics_write_devices(const struct metrics_page *page, struct metrics_text *text);
void metrics_write_tenants(const struct metrics_page *page, struct metrics_text *text);
