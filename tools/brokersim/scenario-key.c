/* SPDX-License-Identifier: MIT */
/*
 * Scenarios: keys and values
 *
 * A table lists the keys of each section and how their values are read. Numbers must be finite and
 * in the table's range; other values are rejected with a message that names the allowed values.
 */
#include "scenario-private.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "graph-family.h"
#include "plans.h"
#include "util/checked.h"
#include "util/size.h"

int reader_refuse(struct reader *reader, const char *format, ...)
{
	size_t n = 0;
	va_list args;

	if (reader->line)
		n = (size_t)snprintf(reader->message, SCENARIO_MESSAGE_BYTES,
				     "%s:%u: ", reader->path, reader->line);
	else
		n = (size_t)snprintf(reader->message, SCENARIO_MESSAGE_BYTES, "%s: ", reader->path);
	if (n >= SCENARIO_MESSAGE_BYTES)
		n = 0;
	va_start(args, format);
	vsnprintf(reader->message + n, SCENARIO_MESSAGE_BYTES - n, format, args);
	va_end(args);
	return SCENARIO_E_INVALID;
}

bool reader_parse_number(const char *text, double *ret)
{
	double value;
	char *end;

	errno = 0;
	value = strtod(text, &end);
	if (end == text || *end || errno || !isfinite(value))
		return false;
	*ret = value;
	return true;
}

bool reader_parse_time(const char *text, double *ret_ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
	double value;
	char *end;

	value = strtod(text, &end);
	if (end == text || !isfinite(value) || value < 0)
		return false;
	while (isspace((unsigned char)*end))
		end++;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (!strcmp(end, units[i].name) && value * units[i].ns <= 1e15) {
			*ret_ns = value * units[i].ns;
			return true;
		}
	}
	return false;
}

enum value_kind { NUMBER, WHOLE, TIME, BYTES, YES_NO, OTHER };

/* type of the member that receives a number */
enum member_type { U32, U64, FLOAT, DOUBLE, BOOL };

struct key {
	enum section section;
	const char *name;
	enum value_kind kind;
	double min, max;
	size_t offset; /* offset in the section's record, see record_of() */
	enum member_type type;
	int (*read)(struct reader *reader, const char *key, char *value);
};

/* clang-format off */
#define MEMBER_TYPE(member) \
	_Generic((member), uint32_t: U32, uint64_t: U64, float: FLOAT, double: DOUBLE, bool: BOOL)
/* clang-format on */
/* record type of each section, see record_of() */
#define RECORD_SCENARIO  struct scenario
#define RECORD_PLACEMENT struct place_config
#define RECORD_TRUTH     struct scenario_truth
#define RECORD_PLAN      struct scenario_plan
#define RECORD_GENERATE  struct reader
#define RECORD_TENANT    struct scenario_tenant
#define RECORD_EVENT     struct scenario_event
#define RECORD_GRAPHS    struct scenario_graphs

/* a key whose number is stored in the section's record */
#define KEY(section, name, kind, min, max, member)                                           \
	{                                                                                    \
		SECTION_##section, name, kind, min, max, offsetof(RECORD_##section, member), \
			MEMBER_TYPE(((RECORD_##section *)0)->member), NULL                   \
	}
#define READ(section, name, read)                                  \
	{                                                          \
		SECTION_##section, name, OTHER, 0, 0, 0, U32, read \
	}

static struct scenario_plan *plan_of(struct reader *reader)
{
	return &reader->scenario->plans[reader->scenario->n_plans - 1];
}

static struct scenario_tenant *tenant_of(struct reader *reader)
{
	return &reader->scenario->tenants[reader->scenario->n_tenants - 1];
}

static struct scenario_event *event_of(struct reader *reader)
{
	return &reader->scenario->events[reader->scenario->n_events - 1];
}

static int read_about(struct reader *reader, const char *key, char *value)
{
	snprintf(reader->scenario->about, sizeof(reader->scenario->about), "%s", value);
	return 0;
}

static int read_profile(struct reader *reader, const char *key, char *value)
{
	snprintf(reader->profiles[!strcmp(key, "gpu")], sizeof(reader->profiles[0]), "%s", value);
	return 0;
}

/* Read "CPU+GPU, CPU+GPU"; the file's own run uses the first pair. */
static int read_pairs(struct reader *reader, const char *key, char *value)
{
	struct scenario *scenario = reader->scenario;
	char *save = NULL;

	for (char *word = strtok_r(value, " ,", &save); word; word = strtok_r(NULL, " ,", &save)) {
		char *plus = strchr(word, '+');

		if (!plus || plus == word || !plus[1] || strlen(word) >= SCENARIO_NAME_BYTES)
			return reader_refuse(reader, "%s: \"%s\" is not CPU+GPU", key, word);
		if (scenario->n_pairs == SCENARIO_MAX_PAIRS)
			return reader_refuse(reader, "more than %u pairs", SCENARIO_MAX_PAIRS);
		*plus = '\0';
		strcpy(scenario->pairs[scenario->n_pairs][RBK_DEVICE_CPU], word);
		strcpy(scenario->pairs[scenario->n_pairs][RBK_DEVICE_GPU], plus + 1);
		scenario->n_pairs++;
	}
	for (unsigned int d = 0; scenario->n_pairs && d < SCENARIO_DEVICES; d++)
		snprintf(reader->profiles[d], sizeof(reader->profiles[d]), "%s",
			 scenario->pairs[0][d]);
	return 0;
}

static int read_trace_name(struct reader *reader, const char *key, char *value)
{
	snprintf(reader->trace, sizeof(reader->trace), "%s", value);
	reader->trace_line = reader->line;
	return 0;
}

static int read_op(struct reader *reader, const char *key, char *value)
{
	const struct op *op = op_by_name(value);

	/* An operator that plans.c cannot describe is unknown, too. */
	if (!op || !plans_dims(op->kind))
		return reader_refuse(reader, "there is no operator \"%s\"", value);
	plan_of(reader)->op = op->kind;
	return 0;
}

/* Read "a" or "a..b". */
static int read_range(struct reader *reader, const char *key, char *value, bool is_bytes,
		      double *ret_min, double *ret_max)
{
	char *dots = strstr(value, "..");
	double numbers[2];

	if (dots)
		*dots = '\0';
	for (unsigned int i = 0; i < 2; i++) {
		const char *text = i && dots ? dots + 2 : value;
		uint64_t bytes;
		bool ok;

		if (is_bytes) {
			ok = size_parse(text, &bytes);
			numbers[i] = ok ? (double)bytes : 0;
		} else {
			ok = reader_parse_number(text, &numbers[i]);
		}
		if (!ok || numbers[i] < 1 || numbers[i] > 1e12)
			return reader_refuse(reader, "%s: \"%s\" is not a positive number", key,
					     text);
	}
	if (numbers[0] > numbers[1])
		return reader_refuse(reader, "%s: the range is empty", key);
	*ret_min = numbers[0];
	*ret_max = numbers[1];
	return 0;
}

static int read_count(struct reader *reader, const char *key, char *value)
{
	double min = 0, max = 0;
	int r = read_range(reader, key, value, false, &min, &max);

	if (r)
		return r;
	if (max > INT32_MAX)
		return reader_refuse(reader, "%s: the value is above 2^31 - 1", key);
	plan_of(reader)->count_min = (uint32_t)min;
	plan_of(reader)->count_max = (uint32_t)max;
	return 0;
}

static int read_bytes(struct reader *reader, const char *key, char *value)
{
	return read_range(reader, key, value, true, &reader->bytes_min, &reader->bytes_max);
}

static int read_ops(struct reader *reader, const char *key, char *value)
{
	bool any = false;
	char *save = NULL;

	memset(reader->ops, 0, sizeof(reader->ops));
	for (char *word = strtok_r(value, " ,", &save); word; word = strtok_r(NULL, " ,", &save)) {
		const struct op *op = op_by_name(word);

		if (!op || !plans_dims(op->kind))
			return reader_refuse(reader, "there is no operator \"%s\"", word);
		reader->ops[op->kind] = any = true;
	}
	if (!any)
		return reader_refuse(reader, "%s: no operator", key);
	return 0;
}

static int read_plans(struct reader *reader, const char *key, char *value)
{
	snprintf(reader->shares[reader->scenario->n_tenants - 1], sizeof(reader->shares[0]), "%s",
		 value);
	return 0;
}

static int choose(struct reader *reader, const char *key, const char *value,
		  const char *const *names, unsigned int n, unsigned int *ret)
{
	char all[256] = "";

	for (unsigned int i = 0; i < n; i++) {
		if (!strcmp(names[i], value)) {
			*ret = i;
			return 0;
		}
		strncat(all, i ? ", " : "", sizeof(all) - strlen(all) - 1);
		strncat(all, names[i], sizeof(all) - strlen(all) - 1);
	}
	return reader_refuse(reader, "%s: \"%s\" is none of %s", key, value, all);
}

static int read_priority(struct reader *reader, const char *key, char *value)
{
	static const char *const names[] = {"normal", "low", "high", "urgent"};
	unsigned int i = 0;
	int r = choose(reader, key, value, names, ARRAY_SIZE(names), &i);

	tenant_of(reader)->priority = (uint8_t)i;
	return r;
}

static int read_strategy(struct reader *reader, const char *key, char *value)
{
	static const char *const names[] = {"auto",     "prefer-gpu", "prefer-cpu", "only-gpu",
					    "only-cpu", "latency",    "energy",     "partition"};
	unsigned int i = 0;
	int r = choose(reader, key, value, names, ARRAY_SIZE(names), &i);

	tenant_of(reader)->strategy = (uint8_t)i;
	return r;
}

static int read_arrivals(struct reader *reader, const char *key, char *value)
{
	struct scenario_tenant *tenant = tenant_of(reader);
	char *words[4] = {0}, *save = NULL;
	unsigned int n = 0;
	double number;

	for (char *word = strtok_r(value, " \t", &save); word; word = strtok_r(NULL, " \t", &save))
		if (n < ARRAY_SIZE(words))
			words[n++] = word;
	if (n == 1 && !strcmp(words[0], "all")) {
		tenant->arrivals = ARRIVALS_ALL;
		return 0;
	}
	if (n == 2 && !strcmp(words[0], "closed") && reader_parse_number(words[1], &number) &&
	    number >= 1 && number <= 100000) {
		tenant->arrivals = ARRIVALS_CLOSED;
		tenant->n_outstanding = (uint32_t)number;
		return 0;
	}
	if (n >= 2 && reader_parse_number(words[1], &number) && number > 0 && number <= 1e9) {
		tenant->rate_per_s = number;
		if (n == 2 && !strcmp(words[0], "poisson")) {
			tenant->arrivals = ARRIVALS_POISSON;
			return 0;
		}
		if (n == 4 && !strcmp(words[0], "bursty") &&
		    reader_parse_time(words[2], &tenant->on_ns) && tenant->on_ns > 0 &&
		    reader_parse_time(words[3], &tenant->off_ns)) {
			tenant->arrivals = ARRIVALS_BURSTY;
			return 0;
		}
	}
	return reader_refuse(reader,
			     "%s: expected \"all\", \"poisson RATE\", \"bursty RATE ON "
			     "OFF\" or \"closed N\", rates per second",
			     key);
}

static int read_device(struct reader *reader, const char *key, char *value)
{
	static const char *const names[] = {"cpu", "gpu"};
	unsigned int i = 0;
	int r = choose(reader, key, value, names, ARRAY_SIZE(names), &i);

	event_of(reader)->device = (uint8_t)i;
	return r;
}

static int read_event(struct reader *reader, const char *key, char *value)
{
	static const struct {
		const char *name;
		enum scenario_event_kind kind;
		double min, max;
	} kinds[] = {{"slow", EVENT_SLOW, 0.001, 1e6},
		     {"contention", EVENT_CONTENTION, 0.01, 100},
		     {"hogs", EVENT_HOGS, 0, 100000},
		     {"fail-every", EVENT_FAIL_EVERY, 0, 1e9}};
	struct scenario_event *event = event_of(reader);

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(kinds[i].name, key))
			continue;
		if (!reader_parse_number(value, &event->value) || event->value < kinds[i].min ||
		    event->value > kinds[i].max)
			return reader_refuse(reader, "%s: \"%s\" is not a number between %g and %g",
					     key, value, kinds[i].min, kinds[i].max);
		event->kind = kinds[i].kind;
		return 0;
	}
	if (!strcmp(value, "lost")) {
		event->kind = EVENT_LOST;
		return 0;
	}
	if (!strcmp(value, "back")) {
		event->kind = EVENT_BACK;
		return 0;
	}
	return reader_refuse(reader, "%s: \"%s\" is neither lost nor back", key, value);
}

/* Read names of families of graphs. */
static int read_families(struct reader *reader, const char *key, char *value)
{
	char *save = NULL;

	reader->scenario->graphs.families = 0;
	if (!strcmp(value, "all"))
		return 0;
	for (char *word = strtok_r(value, " ,", &save); word; word = strtok_r(NULL, " ,", &save)) {
		uint32_t i;

		for (i = 0; i < n_graph_families; i++)
			if (!strcmp(graph_families[i].name, word))
				break;
		if (i == n_graph_families)
			return reader_refuse(reader,
					     "%s: there is no family \"%s\"; --list names "
					     "them",
					     key, word);
		reader->scenario->graphs.families |= 1ull << i;
	}
	return 0;
}

/* Read @max names of fewer than @bytes bytes at most into @names, and set *ret_n. */
static int read_names(struct reader *reader, const char *key, char *value, uint32_t max,
		      char *names, size_t bytes, uint32_t *ret_n)
{
	char *save = NULL;

	*ret_n = 0;
	for (char *word = strtok_r(value, " ,", &save); word; word = strtok_r(NULL, " ,", &save)) {
		if (strlen(word) >= bytes)
			return reader_refuse(reader, "%s: \"%s\" is longer than %zu characters",
					     key, word, bytes - 1);
		if (*ret_n == max)
			return reader_refuse(reader, "%s: more than %u names", key, max);
		strcpy(names + (*ret_n)++ * bytes, word);
	}
	return *ret_n > 0 ? 0 : reader_refuse(reader, "%s: no name", key);
}

static int read_n_of_each(struct reader *reader, const char *key, char *value)
{
	double n;

	if (!reader_parse_number(value, &n) || n < 1 || n > 10000 || n != floor(n))
		return reader_refuse(reader, "%s: \"%s\" is not a number from 1 to 10000", key,
				     value);
	reader->n_of_each = (uint32_t)n;
	return 0;
}

static int read_models(struct reader *reader, const char *key, char *value)
{
	struct scenario_graphs *graphs = &reader->scenario->graphs;

	graphs->models_line = reader->line;
	return read_names(reader, key, value, SCENARIO_MAX_MODELS, graphs->models[0],
			  sizeof(graphs->models[0]), &graphs->n_models);
}

static int read_profiles(struct reader *reader, const char *key, char *value)
{
	reader->profiles_line = reader->line;
	return read_names(reader, key, value, SCENARIO_MAX_PROFILES, reader->model_profiles[0],
			  sizeof(reader->model_profiles[0]), &reader->scenario->graphs.n_profiles);
}

/* Read ratios of communication to execution. */
static int read_ratios(struct reader *reader, const char *key, char *value)
{
	struct scenario_graphs *graphs = &reader->scenario->graphs;
	char *save = NULL;

	graphs->n_ratios = 0;
	for (char *word = strtok_r(value, " ,", &save); word; word = strtok_r(NULL, " ,", &save)) {
		double ratio;

		if (graphs->n_ratios == SCENARIO_MAX_RATIOS)
			return reader_refuse(reader, "%s: more than %u ratios", key,
					     SCENARIO_MAX_RATIOS);
		if (!reader_parse_number(word, &ratio) || ratio < 0 || ratio > 1000)
			return reader_refuse(reader, "%s: \"%s\" is not a ratio from 0 to 1000",
					     key, word);
		graphs->ratios[graphs->n_ratios++] = ratio;
	}
	if (graphs->n_ratios == 0)
		return reader_refuse(reader, "%s: no ratio", key);
	return 0;
}

#define COUNT_MAX 2147483647.0
static const struct key keys[] = {
	READ(SCENARIO, "about", read_about),
	READ(SCENARIO, "cpu", read_profile),
	READ(SCENARIO, "gpu", read_profile),
	READ(SCENARIO, "pairs", read_pairs),
	KEY(SCENARIO, "seed", WHOLE, 0, 1e15, seed),
	KEY(SCENARIO, "runs", WHOLE, 1, 1000, n_runs),
	KEY(SCENARIO, "warm-up", WHOLE, 0, 1e6, warm_up),
	KEY(SCENARIO, "exact", YES_NO, 0, 1, is_exact),
	KEY(SCENARIO, "quick", YES_NO, 0, 1, is_quick),
	KEY(SCENARIO, "alone", YES_NO, 0, 1, has_alone),
	KEY(SCENARIO, "memory", BYTES, 1, 1e15, memory_bytes),
	READ(SCENARIO, "trace", read_trace_name),

	KEY(PLACEMENT, "threshold", BYTES, 0, 1e15, threshold_bytes),
	KEY(PLACEMENT, "min-count", WHOLE, 0, COUNT_MAX, min_count),
	KEY(PLACEMENT, "window", WHOLE, 1, 10000, window),
	KEY(PLACEMENT, "speedup", NUMBER, 0.01, 1000, speedup_threshold),
	KEY(PLACEMENT, "success-rate", NUMBER, 0, 1, success_rate),
	KEY(PLACEMENT, "exploration", NUMBER, 0, 1, exploration),
	KEY(PLACEMENT, "partition-bytes", BYTES, 0, 1e15, partition_min_bytes),
	KEY(PLACEMENT, "partition-gain", NUMBER, 0, 100, partition_min_gain),
	KEY(PLACEMENT, "balance-high", NUMBER, 1, 1000, balance_high),
	KEY(PLACEMENT, "balance-low", NUMBER, 0, 1, balance_low),
	KEY(PLACEMENT, "submission", TIME, 1000, 1e12, submission_max_ns),
	KEY(PLACEMENT, "energy-slack", NUMBER, 1, 1000, energy_slack),

	KEY(TRUTH, "noise", NUMBER, 0, 2, noise),
	KEY(TRUTH, "efficiency", NUMBER, 0, 2, efficiency),
	KEY(TRUTH, "jitter", TIME, 0, 1e9, jitter_ns),
	KEY(TRUTH, "drift", NUMBER, 0, 0.9, drift),
	KEY(TRUTH, "drift-period", TIME, 1000, 1e13, drift_period_ns),
	KEY(TRUTH, "cache", BYTES, 1, 1e15, cache_bytes),
	KEY(TRUTH, "cache-factor", NUMBER, 0.01, 100, cache_factor),
	KEY(TRUTH, "tile", WHOLE, 1, 65536, tile_rows),

	READ(PLAN, "op", read_op),
	KEY(PLAN, "rows", WHOLE, 1, COUNT_MAX, dims[ROWS]),
	KEY(PLAN, "inner", WHOLE, 1, COUNT_MAX, dims[INNER]),
	KEY(PLAN, "columns", WHOLE, 1, COUNT_MAX, dims[COLUMNS]),
	KEY(PLAN, "channels", WHOLE, 1, COUNT_MAX, dims[CHANNELS]),
	KEY(PLAN, "height", WHOLE, 1, COUNT_MAX, dims[HEIGHT]),
	KEY(PLAN, "width", WHOLE, 1, COUNT_MAX, dims[WIDTH]),
	KEY(PLAN, "filters", WHOLE, 1, COUNT_MAX, dims[FILTERS]),
	KEY(PLAN, "kernel", WHOLE, 1, COUNT_MAX, dims[KERNEL]),
	KEY(PLAN, "constant", YES_NO, 0, 1, is_constant),
	READ(PLAN, "count", read_count),
	KEY(PLAN, "share", NUMBER, 0, 1e6, share),

	KEY(GENERATE, "plans", WHOLE, 1, SCENARIO_MAX_PLANS, n_generated),
	READ(GENERATE, "ops", read_ops),
	READ(GENERATE, "bytes", read_bytes),
	KEY(GENERATE, "seed", WHOLE, 0, 1e15, generate_seed),

	KEY(TENANT, "weight", WHOLE, 1, 10000, weight),
	READ(TENANT, "priority", read_priority),
	READ(TENANT, "strategy", read_strategy),
	KEY(TENANT, "cpu-max", NUMBER, 0, 1024, cpu_max),
	READ(TENANT, "arrivals", read_arrivals),
	KEY(TENANT, "tasks", WHOLE, 1, SCENARIO_MAX_TASKS, n_tasks),
	KEY(TENANT, "start", TIME, 0, 1e15, start_ns),
	KEY(TENANT, "deadline", TIME, 1, 1e15, deadline_ns),
	KEY(TENANT, "partition", YES_NO, 0, 1, may_partition),
	READ(TENANT, "plans", read_plans),

	KEY(EVENT, "at", TIME, 0, 1e15, at_ns),
	READ(EVENT, "device", read_device),
	READ(EVENT, "slow", read_event),
	READ(EVENT, "contention", read_event),
	READ(EVENT, "hogs", read_event),
	READ(EVENT, "fail-every", read_event),
	READ(EVENT, "device-is", read_event),

	READ(GRAPHS, "families", read_families),
	READ(GRAPHS, "models", read_models),
	READ(GRAPHS, "profiles", read_profiles),
	READ(GRAPHS, "graphs", read_n_of_each),
	KEY(GRAPHS, "nodes", WHOLE, 3, 4000, n_nodes),
	KEY(GRAPHS, "devices", WHOLE, 1, PLACE_GRAPH_DEVICES, devices_max),
	KEY(GRAPHS, "devices-min", WHOLE, 1, PLACE_GRAPH_DEVICES, devices_min),
	READ(GRAPHS, "communication", read_ratios),
	KEY(GRAPHS, "steps", WHOLE, 0, 1e6, n_steps),
	KEY(GRAPHS, "noise", NUMBER, 0, 2, noise),
	KEY(GRAPHS, "contention", YES_NO, 0, 1, is_contended),
	KEY(GRAPHS, "tasks", WHOLE, 1, 10000, n_tasks),
	KEY(GRAPHS, "in-flight", WHOLE, 1, 10000, n_in_flight),
};

/* Return the record of the current section; the record of @device if the section is [truth]. */
static void *record_of(struct reader *reader, unsigned int device)
{
	switch (reader->section) {
	case SECTION_PLACEMENT:
		return &reader->scenario->config;
	case SECTION_TRUTH:
		return &reader->scenario->truth[device];
	case SECTION_PLAN:
		return plan_of(reader);
	case SECTION_GENERATE:
		return reader;
	case SECTION_TENANT:
		return tenant_of(reader);
	case SECTION_EVENT:
		return event_of(reader);
	case SECTION_GRAPHS:
		return &reader->scenario->graphs;
	default:
		return reader->scenario;
	}
}

static void store(const struct key *key, void *record, double value)
{
	void *at = (char *)record + key->offset;

	switch (key->type) {
	case U32:
		*(uint32_t *)at = (uint32_t)value;
		break;
	case U64:
		*(uint64_t *)at = (uint64_t)value;
		break;
	case FLOAT:
		*(float *)at = (float)value;
		break;
	case DOUBLE:
		*(double *)at = value;
		break;
	case BOOL:
		*(bool *)at = value > 0;
		break;
	}
}

static bool parse_value(enum value_kind kind, const char *value, double *ret)
{
	uint64_t bytes;

	switch (kind) {
	case TIME:
		return reader_parse_time(value, ret);
	case BYTES:
		if (!size_parse(value, &bytes))
			return false;
		*ret = (double)bytes;
		return true;
	case YES_NO:
		*ret = !strcmp(value, "yes");
		return *ret > 0 || !strcmp(value, "no");
	case WHOLE:
		return reader_parse_number(value, ret) && *ret == floor(*ret);
	default:
		return reader_parse_number(value, ret);
	}
}

int reader_key(struct reader *reader, const char *key, char *value)
{
	static const char *const kinds[] = {
		[NUMBER] = "a number",           [WHOLE] = "a whole number",
		[TIME] = "a time such as 1.5ms", [BYTES] = "a size such as 64KiB",
		[YES_NO] = "yes or no",          [OTHER] = "",
	};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		double number = 0;

		if (keys[i].section != reader->section || strcmp(keys[i].name, key))
			continue;
		if (!*value)
			return reader_refuse(reader, "%s: no value", key);
		if (keys[i].kind == OTHER)
			return keys[i].read(reader, key, value);
		if (!parse_value(keys[i].kind, value, &number))
			return reader_refuse(reader, "%s: \"%s\" is not %s", key, value,
					     kinds[keys[i].kind]);
		if (keys[i].kind != YES_NO && (number < keys[i].min || number > keys[i].max))
			return reader_refuse(reader, "%s: \"%s\" is not between %g and %g", key,
					     value, keys[i].min, keys[i].max);
		if (reader->section != SECTION_TRUTH)
			store(&keys[i], record_of(reader, 0), number);
		for (unsigned int d = 0; reader->section == SECTION_TRUTH && d < SCENARIO_DEVICES;
		     d++)
			if (reader->devices & 1u << d)
				store(&keys[i], record_of(reader, d), number);
		return 0;
	}
	return reader_refuse(reader, "there is no key \"%s\" in this section", key);
}

int reader_expected(struct reader *reader, const char *text)
{
	struct scenario *scenario = reader->scenario;
	struct scenario_expected *expected = &scenario->expected[scenario->n_expected];
	char figure[96], relation[4], value[32], rest[2];

	if (scenario->n_expected == SCENARIO_MAX_EXPECTED)
		return reader_refuse(reader, "more than %u figures", SCENARIO_MAX_EXPECTED);
	if (sscanf(text, "%95s %3s %31s %1s", figure, relation, value, rest) != 3 ||
	    (strcmp(relation, ">=") && strcmp(relation, "<=")) ||
	    !reader_parse_number(value, &expected->value))
		return reader_refuse(reader, "expected \"FIGURE >= NUMBER\" or \"FIGURE <= "
					     "NUMBER\"");
	strcpy(expected->figure, figure);
	expected->relation = relation[0] == '>' ? AT_LEAST : AT_MOST;
	expected->line = reader->line;
	expected->is_aim = reader->section == SECTION_AIM;
	scenario->n_expected++;
	return 0;
}

int reader_shares(struct reader *reader)
{
	struct scenario *scenario = reader->scenario;

	for (uint32_t t = 0; t < scenario->n_tenants; t++) {
		struct scenario_tenant *tenant = &scenario->tenants[t];
		char *save = NULL;

		reader->line = tenant->line;
		for (char *word = strtok_r(reader->shares[t], " ,", &save); word;
		     word = strtok_r(NULL, " ,", &save)) {
			char *colon = strchr(word, ':');
			double share = 1;
			uint32_t p;

			if (colon)
				*colon = '\0';
			for (p = 0; p < scenario->n_plans; p++) {
				if (!strcmp(scenario->plans[p].name, word))
					break;
			}
			if (p == scenario->n_plans)
				return reader_refuse(reader, "there is no plan \"%s\"", word);
			if (colon && (!reader_parse_number(colon + 1, &share) || share <= 0))
				return reader_refuse(reader, "\"%s\" is not a share", colon + 1);
			tenant->shares[p] = share;
			tenant->has_shares = true;
		}
		if (tenant->has_shares)
			continue;
		for (uint32_t p = 0; p < scenario->n_plans; p++)
			tenant->shares[p] = scenario->plans[p].share;
	}
	return 0;
}
