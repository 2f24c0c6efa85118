#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The figures of statistics pages
 *
 * A table has one row per member of a record that is shown: the member's offset, name, unit and
 * meaning. The broker writes pages and metrics by these rows; brokerctl, brokertop and the manual
 * show figures by these rows. A figure that is added to a record needs a row in the record's table,
 * and is then shown everywhere.
 *
 * Rows are in the order of JSON; the order of JSON members never changes. Any thread: constant.
 */
#include <stddef.h>
#include <stdint.h>

#include <ringbroker/stats.h>

enum figure_type {
	FIGURE_U64 = 0,
	FIGURE_U32,
	FIGURE_U8,
	FIGURE_REAL,
	FIGURE_TEXT,
	FIGURE_TIMES,   /* a histogram of times */
	FIGURE_REASONS, /* counts by enum rbk_reason */
};

/* The unit of a number, as far as output depends on it. */
enum figure_unit {
	FIGURE_COUNT = 0, /* things, events, hertz ... */
	FIGURE_NAME,      /* a number that identifies something */
	FIGURE_BYTES,
	FIGURE_NS,
	FIGURE_MOMENT, /* ns of the broker's clock */
	FIGURE_PERCENT,
	FIGURE_MILLI,
	FIGURE_MICRO,
};

enum figure_kind {
	FIGURE_GAUGE = 0,   /* computed for each update */
	FIGURE_IDENTITY,    /* set when the record is made */
	FIGURE_SINCE_RESET, /* counter since the last reset, incremented by events */
	FIGURE_SINCE_START, /* counter since the broker's start, computed for each update */
	FIGURE_SINCE_LONG,  /* counter since an unknown moment, computed for each update */
};

/* Values that mean "none" or "unknown", and are null in JSON. */
enum figure_null {
	FIGURE_NEVER = 0,
	FIGURE_ABSENT, /* RBK_STATS_ABSENT, which also means no limit */
	FIGURE_ZERO,   /* 0, and RBK_STATS_ABSENT */
};

struct figure {
	uint16_t offset;
	uint8_t type, unit, null;
	uint8_t kind; /* enum figure_kind, for metrics and figures of tenants */
	/* mask: the figure is 1 if any of these bits is set; 0: the figure is a number */
	uint32_t flag;
	const char *json;   /* name of the member in JSON; NULL: not in JSON */
	const char *object; /* name of the JSON object that it is in; NULL: the record's own */
	const char *metric; /* name of the metric, without ringbroker_ and _total; NULL: none */
	const char *help;   /* of the metric: one line, without a full stop */
	/* column head of a number in brokertop, behind the fixed columns; NULL: no column */
	const char *top;
	/* column head of a number in brokerctl, behind the fixed columns; NULL: no column */
	const char *head;
	/* rank at which brokerctl drops the column from a narrow terminal: 9 first; 0: never */
	uint8_t rank;
	uint8_t is_fault; /* brokerctl colours a number other than 0 as a fault */
};

/* Map a member to its figure type. A member of any other type does not compile. */
#define FIGURE_TYPE(member) \
	_Generic((member),            \
		uint64_t: FIGURE_U64, \
		uint32_t: FIGURE_U32, \
		uint8_t: FIGURE_U8,   \
		double: FIGURE_REAL,  \
		char *: FIGURE_TEXT,  \
		uint64_t *: _Generic(&(member), \
			uint64_t(*)[RBK_STATS_BUCKETS]: FIGURE_TIMES, \
			uint64_t(*)[RBK_STATS_MAX_REASONS]: FIGURE_REASONS, \
			default: "no figure has this type"))

/*
 * A row. @at is the member's offset in the pages of all released brokers: a row with another offset
 * does not compile.
 */
#define FIGURE(record, member, at, ...)                                                            \
	{                                                                                          \
		.offset =                                                                          \
			(at) + 0 * sizeof(char[offsetof(struct record, member) == (at) ? 1 : -1]), \
		.type = FIGURE_TYPE(((struct record *)0)->member), __VA_ARGS__                     \
	}

/* Each table ends with a row without names; see figure_is_end(). */
extern const struct figure header_figures[], broker_figures[], contention_figures[];
extern const struct figure upkeep_figures[], slices_figures[], mended_figures[];
extern const struct figure device_figures[], tenant_figures[], tenant_device_figures[];
extern const struct figure session_figures[], lease_figures[], delay_figures[];
extern const struct figure plan_figures[], plan_device_figures[];

static inline int figure_is_end(const struct figure *figure)
{
	return !figure->json && !figure->metric;
}

/* Return the figure whose JSON name is @json; NULL: there is none. */
const struct figure *figure_find(const struct figure *figures, const char *json);

/* Return the figure of a lease's state @i, from the most severe on; NULL: there are no more. */
const struct figure *lease_state_figure(unsigned int i);

/* Return true if the figure is a word that is computed for each update. */
static inline int figure_is_computed(const struct figure *figure)
{
	return (figure->type == FIGURE_U64 || figure->type == FIGURE_U32 ||
		figure->type == FIGURE_REAL) &&
	       figure->kind != FIGURE_IDENTITY && figure->kind != FIGURE_SINCE_RESET;
}

/*
 * Return the figure of @record as a whole number: of a flag 0 or 1; of a text or an array 0. For a
 * real use figure_real().
 */
static inline uint64_t figure_number(const struct figure *figure, const void *record)
{
	const void *at = (const char *)record + figure->offset;
	uint64_t value = 0;

	switch (figure->type) {
	case FIGURE_U64:
		value = __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
		break;
	case FIGURE_U32:
		value = *(const uint32_t *)at;
		break;
	case FIGURE_U8:
		value = *(const uint8_t *)at;
		break;
	}
	return figure->flag ? (value & figure->flag) != 0 : value;
}

/*
 * Return the figure of @record as a number for people: of FIGURE_MILLI and FIGURE_MICRO in whole
 * units; NaN: none, or unknown.
 */
double figure_real(const struct figure *figure, const void *record);

/* Return the factor of rbk_stats_plan_device.contention, and the member for a factor. */
double stats_contention_factor(uint8_t contention);
uint8_t stats_contention(double factor);

/* Return the time that is predicted for a task on a device now: learned x contention; 0: none. */
static inline double stats_now_ns(const struct rbk_stats_plan_device *device)
{
	return device->estimate_ns * stats_contention_factor(device->contention);
}

/* Return true if @value, by figure_number(), means "none" or "unknown". */
static inline int figure_is_null(const struct figure *figure, uint64_t value)
{
	return figure->null != FIGURE_NEVER &&
	       (value == RBK_STATS_ABSENT || (figure->null == FIGURE_ZERO && value == 0));
}
