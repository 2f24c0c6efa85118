/* SPDX-License-Identifier: MIT */
/*
 * Scenarios: the file
 *
 * The file consists of sections and of lines "key = value". '#' and ';' begin a comment at the
 * start of a line or after a blank. Reading stops at the first mistake and reports its file and
 * line, because a scenario that is partly understood would prove something other than what it says.
 * Plans may be named before they are described, so tenants' shares and the trace are resolved at
 * the end.
 */
#include "scenario-private.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "calibrate/profile-file.h"
#include "graph-exact.h"
#include "plans.h"
#include "random.h"
#include "util/checked.h"
#include "util/error.h"

enum { LINE_BYTES = 2048 };

static const char *const section_names[SECTION_COUNT] = {
	[SECTION_NONE] = "",
	[SECTION_SCENARIO] = "scenario",
	[SECTION_PLACEMENT] = "placement",
	[SECTION_TRUTH] = "truth",
	[SECTION_PLAN] = "plan",
	[SECTION_GENERATE] = "generate",
	[SECTION_TENANT] = "tenant",
	[SECTION_EVENT] = "event",
	[SECTION_GRAPHS] = "graphs",
	[SECTION_EXPECT] = "expect",
	[SECTION_AIM] = "aim",
};

struct scenario *scenario_free(struct scenario *scenario)
{
	if (scenario) {
		free(scenario->plans);
		free(scenario->tenants);
		free(scenario->trace);
		free(scenario);
	}
	return NULL;
}

/*
 * Cut off the comment, and white space at both ends.
 * Return: the first character left.
 */
static char *trim(char *text)
{
	char *end;

	for (char *c = text; *c; c++) {
		if ((*c == '#' || *c == ';') && (c == text || isspace((unsigned char)c[-1]))) {
			*c = '\0';
			break;
		}
	}
	while (isspace((unsigned char)*text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text;
}

static bool is_name(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");

	return n > 0 && !text[n] && n < SCENARIO_NAME_BYTES;
}

static int begin_plan(struct reader *reader, const char *name)
{
	struct scenario *scenario = reader->scenario;
	struct scenario_plan *plan;

	for (uint32_t i = 0; i < scenario->n_plans; i++) {
		if (!strcmp(scenario->plans[i].name, name))
			return reader_refuse(reader, "there is a plan \"%s\" already", name);
	}
	if (scenario->n_plans == SCENARIO_MAX_PLANS)
		return reader_refuse(reader, "more than %u plans", SCENARIO_MAX_PLANS);
	plan = &scenario->plans[scenario->n_plans++];
	*plan = (struct scenario_plan){
		.op = OP_KIND_COUNT, .share = 1, .is_constant = true, .line = reader->line};
	strcpy(plan->name, name);
	return 0;
}

static int begin_tenant(struct reader *reader, const char *name)
{
	struct scenario *scenario = reader->scenario;
	struct scenario_tenant *tenant;

	for (uint32_t i = 0; i < scenario->n_tenants; i++) {
		if (!strcmp(scenario->tenants[i].name, name))
			return reader_refuse(reader, "there is a tenant \"%s\" already", name);
	}
	if (scenario->n_tenants == SCENARIO_MAX_TENANTS)
		return reader_refuse(reader, "more than %u tenants", SCENARIO_MAX_TENANTS);
	tenant = &scenario->tenants[scenario->n_tenants++];
	*tenant = (struct scenario_tenant){.weight = 100, .line = reader->line};
	strcpy(tenant->name, name);
	return 0;
}

/* Read "[kind]" or "[kind name]". */
static int begin_section(struct reader *reader, char *text)
{
	struct scenario *scenario = reader->scenario;
	size_t n = strlen(text);
	char *name;

	if (n < 2 || text[n - 1] != ']')
		return reader_refuse(reader, "a section's line ends with ']'");
	text[n - 1] = '\0';
	text++;
	name = text + strcspn(text, " \t");
	if (*name) {
		*name++ = '\0';
		name += strspn(name, " \t");
	}
	reader->section = SECTION_NONE;
	for (unsigned int i = SECTION_NONE + 1; i < SECTION_COUNT; i++) {
		if (!strcmp(section_names[i], text))
			reader->section = i;
	}
	if (reader->section_lines[reader->section] == 0)
		reader->section_lines[reader->section] = reader->line;
	switch (reader->section) {
	case SECTION_NONE:
		return reader_refuse(reader, "there is no section [%s]", text);
	case SECTION_PLAN:
	case SECTION_TENANT:
		if (!is_name(name))
			return reader_refuse(
				reader, "[%s] needs a name of letters, digits, '-' and '_'", text);
		return reader->section == SECTION_PLAN ? begin_plan(reader, name)
						       : begin_tenant(reader, name);
	case SECTION_TRUTH:
		reader->devices = !*name                 ? 3
				  : !strcmp(name, "cpu") ? 1 << RBK_DEVICE_CPU
				  : !strcmp(name, "gpu") ? 1 << RBK_DEVICE_GPU
							 : 0;
		if (!reader->devices)
			return reader_refuse(reader, "[truth] is of cpu, gpu, or of both");
		return 0;
	case SECTION_EVENT:
		if (scenario->n_events == SCENARIO_MAX_EVENTS)
			return reader_refuse(reader, "more than %u events", SCENARIO_MAX_EVENTS);
		scenario->events[scenario->n_events++] =
			(struct scenario_event){.device = RBK_DEVICE_GPU, .kind = EVENT_BACK};
		return 0;
	case SECTION_GRAPHS:
		if (scenario->graphs.n > 0)
			return reader_refuse(reader, "there is a section [graphs] already");
		scenario->graphs = (struct scenario_graphs){
			.n = 10, .n_steps = 16384, .n_tasks = 1, .n_in_flight = 1};
		__attribute__((fallthrough));
	default:
		if (*name)
			return reader_refuse(reader, "[%s] takes no name", text);
		return 0;
	}
}

/* Check that nothing goes with [graphs] that has no effect on graphs. */
static int check_beside_graphs(struct reader *reader)
{
	static const enum section others[] = {SECTION_PLACEMENT, SECTION_TRUTH,  SECTION_PLAN,
					      SECTION_GENERATE,  SECTION_TENANT, SECTION_EVENT};
	const struct scenario *scenario = reader->scenario;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		reader->line = reader->section_lines[others[i]];
		if (reader->line > 0)
			return reader_refuse(reader, "[%s] does not go with [graphs]",
					     section_names[others[i]]);
	}
	reader->line = reader->section_lines[SECTION_SCENARIO];
	if (scenario->n_pairs || scenario->n_runs > 1 || scenario->warm_up || scenario->has_alone ||
	    scenario->memory_bytes || *reader->trace || *reader->profiles[0] ||
	    *reader->profiles[1])
		return reader_refuse(reader, "only about, seed, exact and quick go with [graphs]");
	return 0;
}

/* Return a key that does not go with models, which bring nodes, and profiles, which bring times. */
static const char *find_not_of_models(const struct scenario *scenario)
{
	const struct scenario_graphs *graphs = &scenario->graphs;

	return graphs->families      ? "families"
	       : graphs->n_nodes     ? "nodes"
	       : graphs->devices_max ? "devices"
	       : graphs->devices_min ? "devices-min"
	       : graphs->n_ratios    ? "communication"
	       : scenario->is_exact  ? "exact"
				     : NULL;
}

static int check_models(struct reader *reader)
{
	const struct scenario_graphs *graphs = &reader->scenario->graphs;
	const char *key = find_not_of_models(reader->scenario);

	if (graphs->n_models == 0) {
		reader->line = reader->profiles_line;
		return reader_refuse(reader, "profiles are for models, and there is no key models");
	}
	if (graphs->n_profiles < 2) {
		reader->line = graphs->n_profiles ? reader->profiles_line : graphs->models_line;
		return reader_refuse(reader,
				     "models need two profiles or more, such as \"profiles = "
				     "cpu-8core, rx580\": that of the CPU, then others");
	}
	reader->line = graphs->models_line;
	return key ? reader_refuse(reader, "%s does not go with models", key) : 0;
}

static void set_graph_defaults(struct scenario_graphs *graphs, uint32_t n_of_each)
{
	/* Graphs of a family differ. */
	graphs->n = n_of_each ? n_of_each : graphs->n_models > 0 ? 1 : 10;
	if (graphs->n_nodes == 0)
		graphs->n_nodes = 50;
	if (graphs->devices_max == 0)
		graphs->devices_max = 2;
	if (graphs->devices_min == 0)
		graphs->devices_min = graphs->devices_max;
	if (graphs->n_ratios == 0)
		graphs->ratios[graphs->n_ratios++] = 1;
}

/* Check a scenario of graphs. */
static int check_graphs(struct reader *reader)
{
	struct scenario *scenario = reader->scenario;
	struct scenario_graphs *graphs = &scenario->graphs;
	int r;

	r = check_beside_graphs(reader);
	if (r)
		return r;
	reader->line = reader->section_lines[SECTION_GRAPHS];
	if (graphs->n_models > 0 || graphs->n_profiles > 0) {
		r = check_models(reader);
		if (r)
			return r;
	}
	set_graph_defaults(graphs, reader->n_of_each);
	if (graphs->devices_min > graphs->devices_max)
		return reader_refuse(reader, "devices-min is more than devices, which is %u",
				     graphs->devices_max);
	if (graphs->n_in_flight > graphs->n_tasks)
		return reader_refuse(reader, "in-flight is more than tasks, which is %u",
				     graphs->n_tasks);
	if (!scenario->is_exact)
		return 0;
	if (graphs->n_nodes > GRAPH_EXACT_NODES || graphs->devices_max > GRAPH_EXACT_DEVICES)
		return reader_refuse(reader,
				     "exact = yes needs at most %u nodes and %u devices, not %u "
				     "and %u",
				     GRAPH_EXACT_NODES, GRAPH_EXACT_DEVICES, graphs->n_nodes,
				     graphs->devices_max);
	if (!graph_times_are_known(graphs))
		return reader_refuse(reader, "exact = yes needs known times and one task: no "
					     "noise, contention or tasks");
	return 0;
}

static int read_line(struct reader *reader, char *text)
{
	char *value;

	text = trim(text);
	if (!*text)
		return 0;
	if (*text == '[')
		return begin_section(reader, text);
	if (reader->section == SECTION_NONE)
		return reader_refuse(reader, "a section such as [scenario] comes first");
	if (reader->section == SECTION_EXPECT || reader->section == SECTION_AIM)
		return reader_expected(reader, text);
	value = strchr(text, '=');
	if (!value)
		return reader_refuse(reader, "neither a section nor \"key = value\"");
	*value++ = '\0';
	return reader_key(reader, trim(text), trim(value));
}

enum { LINE_READ = 100, LINE_END };

/*
 * Read one line without its line break.
 * Return: LINE_READ, LINE_END or SCENARIO_E_INVALID.
 */
static int next_line(struct reader *reader, FILE *file, char line[LINE_BYTES])
{
	size_t n = 0;
	int c;

	while ((c = getc(file)) != EOF && c != '\n') {
		if (c == '\0' || n == LINE_BYTES - 1)
			return reader_refuse(
				reader, c ? "a line is longer than %u bytes" : "not a text file",
				LINE_BYTES - 1);
		line[n++] = (char)c;
	}
	line[n] = '\0';
	return c != EOF || n > 0 ? LINE_READ : LINE_END;
}

static int read_lines(struct reader *reader)
{
	_cleanup_(fclosep) FILE *file = fopen(reader->path, "re");
	char line[LINE_BYTES];
	int r;

	if (!file)
		return reader_refuse(reader, "cannot be read: %s", strerror(errno));
	for (;;) {
		reader->line++;
		r = next_line(reader, file, line);
		if (r == LINE_END)
			break;
		if (r == LINE_READ)
			r = read_line(reader, line);
		if (r)
			return r;
	}
	reader->line = 0;
	if (ferror(file))
		return reader_refuse(reader, "cannot be read: %s", strerror(errno));
	return 0;
}

static void beside(const char *path, const char *name, char *ret, size_t n)
{
	const char *slash = strrchr(path, '/');

	if (*name == '/' || !slash)
		snprintf(ret, n, "%s", name);
	else
		snprintf(ret, n, "%.*s%s", (int)(slash + 1 - path), path, name);
}

/* Write the path of the profile @name, which is one if it has a slash. */
static void profile_path(const char *name, const char *profiles_dir, char ret[1024])
{
	if (strchr(name, '/'))
		snprintf(ret, 1024, "%s", name);
	else
		snprintf(ret, 1024, "%s/%s.profile", profiles_dir, name);
}

/* Load the profile @name, and shorten the name to its file's. */
static int load_profile(struct reader *reader, const char *name, const char *profiles_dir,
			struct place_profile *ret, char ret_name[SCENARIO_NAME_BYTES])
{
	const char *base = strrchr(name, '/');
	static const size_t suffix = sizeof(".profile") - 1;
	_cleanup_(freep) char *errors = NULL;
	char path[1024];
	size_t n;
	int r;

	profile_path(name, profiles_dir, path);
	r = place_profile_load(path, ret, &errors);
	if (r == PLACE_PROFILE_E_INVALID) {
		snprintf(reader->message, SCENARIO_MESSAGE_BYTES, "%.*s",
			 (int)strcspn(errors, "\n"), errors);
		return SCENARIO_E_INVALID;
	}
	if (r)
		return error_fold(r);
	base = base && base[1] ? base + 1 : name;
	n = strlen(base);
	if (n > suffix && !strcmp(base + n - suffix, ".profile"))
		n -= suffix;
	snprintf(ret_name, SCENARIO_NAME_BYTES, "%.*s", (int)n, base);
	return 0;
}

/* Load the profiles of the CPU and the GPU. */
static int load_pair(struct reader *reader, const char *profiles_dir)
{
	struct scenario *scenario = reader->scenario;

	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
		int r;

		if (!*reader->profiles[d])
			return reader_refuse(reader, "[scenario] needs \"%s = PROFILE\"",
					     d ? "gpu" : "cpu");
		r = load_profile(reader, reader->profiles[d], profiles_dir, &scenario->profiles[d],
				 scenario->profile_names[d]);
		if (r)
			return r;
	}
	if (scenario->memory_bytes)
		scenario->profiles[RBK_DEVICE_GPU].memory_bytes = scenario->memory_bytes;
	return 0;
}

/* Load the profiles of the devices on which models run. A profile that comes again has a number. */
static int load_list(struct reader *reader, const char *profiles_dir)
{
	struct scenario_graphs *graphs = &reader->scenario->graphs;

	reader->line = reader->profiles_line;
	for (uint32_t i = 0; i < graphs->n_profiles; i++) {
		const char *wanted = reader->model_profiles[i];
		char name[SCENARIO_NAME_BYTES], path[1024];
		unsigned int n_same = 1;
		int r;

		profile_path(wanted, profiles_dir, path);
		if (access(path, R_OK))
			return reader_refuse(reader,
					     "profiles: there is no \"%s\"; brokersim --list names "
					     "profiles, and a file of your own has a slash",
					     wanted);
		r = load_profile(reader, wanted, profiles_dir, &graphs->profiles[i], name);
		if (r)
			return r;
		for (uint32_t k = 0; k < i; k++)
			n_same += !strcmp(wanted, reader->model_profiles[k]);
		if (n_same == 1)
			memcpy(graphs->profile_names[i], name, sizeof(name));
		else
			snprintf(graphs->profile_names[i], SCENARIO_NAME_BYTES, "%.40s #%u", name,
				 n_same);
	}
	if (graphs->n_profiles > 0 &&
	    (graphs->profiles[0].memory_bytes > 0 || graphs->profiles[0].up_bytes_per_ns > 0))
		return reader_refuse(reader,
				     "profiles: the first is to be the CPU, and %s has a link or "
				     "memory of its own",
				     graphs->profile_names[0]);
	return 0;
}

static int check_plan(struct reader *reader, struct scenario_plan *plan)
{
	static const char *const names[N_DIMS] = {"rows",   "inner", "columns", "channels",
						  "height", "width", "filters", "kernel"};
	uint32_t needed;

	reader->line = plan->line;
	if (plan->op == OP_KIND_COUNT)
		return reader_refuse(reader, "plan \"%s\" needs \"op = OPERATOR\"", plan->name);
	needed = plans_dims(plan->op);
	for (unsigned int i = 0; i < N_DIMS; i++) {
		bool is_needed = needed & 1u << i;

		if (is_needed && !plan->dims[i])
			return reader_refuse(reader, "plan \"%s\" needs \"%s\"", plan->name,
					     names[i]);
		if (!is_needed && plan->dims[i])
			return reader_refuse(reader, "plan \"%s\": %s has no \"%s\"", plan->name,
					     op_by_kind(plan->op)->name, names[i]);
	}
	if (!plan->count_max)
		plan->count_min = plan->count_max = plan->dims[ROWS];
	if (plan->count_max > plan->dims[ROWS])
		return reader_refuse(reader, "plan \"%s\": count is more than its rows",
				     plan->name);
	return 0;
}

static int check_tenant(struct reader *reader, const struct scenario_tenant *tenant)
{
	reader->line = tenant->line;
	if (!tenant->n_tasks)
		return reader_refuse(reader, "tenant \"%s\" needs \"tasks\", at least 1",
				     tenant->name);
	if (tenant->rate_per_s <= 0 &&
	    (tenant->arrivals == ARRIVALS_POISSON || tenant->arrivals == ARRIVALS_BURSTY))
		return reader_refuse(reader, "tenant \"%s\" needs a rate", tenant->name);
	return 0;
}

/* Read "seconds tenant plan count", separated by blanks or commas. */
static int read_trace_line(struct reader *reader, char *line)
{
	char *words[4], *at = trim(line), *save = NULL;
	struct scenario *scenario = reader->scenario;
	struct scenario_arrival arrival = {0};
	uint32_t tenant, plan;
	unsigned int n = 0;
	double seconds, count;

	if (!*at)
		return 0;
	for (char *word = strtok_r(at, " \t,", &save); word; word = strtok_r(NULL, " \t,", &save)) {
		if (n < 4)
			words[n] = word;
		n++;
	}
	if (n != 4)
		return reader_refuse(reader, "expected \"SECONDS TENANT PLAN COUNT\"");
	for (tenant = 0; tenant < scenario->n_tenants; tenant++) {
		if (!strcmp(scenario->tenants[tenant].name, words[1]))
			break;
	}
	for (plan = 0; plan < scenario->n_plans; plan++) {
		if (!strcmp(scenario->plans[plan].name, words[2]))
			break;
	}
	if (!reader_parse_number(words[0], &seconds) || seconds < 0 || seconds > 1e6)
		return reader_refuse(reader, "\"%s\" is not a time in seconds", words[0]);
	if (tenant == scenario->n_tenants)
		return reader_refuse(reader, "there is no tenant \"%s\"", words[1]);
	if (plan == scenario->n_plans)
		return reader_refuse(reader, "there is no plan \"%s\"", words[2]);
	if (!reader_parse_number(words[3], &count) || count < 1 ||
	    count > scenario->plans[plan].dims[ROWS] || count != floor(count))
		return reader_refuse(reader, "\"%s\" is not a count of plan \"%s\"", words[3],
				     words[2]);
	if (scenario->n_trace && scenario->trace[scenario->n_trace - 1].at_ns > seconds * 1e9)
		return reader_refuse(reader, "the time is earlier than that of the line before");
	if (scenario->n_trace == SCENARIO_MAX_TASKS)
		return reader_refuse(reader, "more than %u tasks", SCENARIO_MAX_TASKS);
	if (scenario->n_trace % 1024 == 0) {
		struct scenario_arrival *trace =
			reallocarray(scenario->trace, scenario->n_trace + 1024, sizeof(*trace));

		if (!trace)
			return error_origin(-ENOMEM);
		scenario->trace = trace;
	}
	arrival.at_ns = seconds * 1e9;
	arrival.tenant = (uint16_t)tenant;
	arrival.plan = (uint16_t)plan;
	arrival.count = (uint32_t)count;
	scenario->trace[scenario->n_trace++] = arrival;
	return 0;
}

static int read_trace(struct reader *reader)
{
	_cleanup_(fclosep) FILE *file = NULL;
	struct reader inner = *reader;
	char path[1024], line[LINE_BYTES];
	int r;

	beside(reader->path, reader->trace, path, sizeof(path));
	file = fopen(path, "re");
	reader->line = reader->trace_line;
	if (!file)
		return reader_refuse(reader, "cannot read the trace %s: %s", path, strerror(errno));
	inner.path = path;
	inner.line = 0;
	for (;;) {
		inner.line++;
		r = next_line(&inner, file, line);
		if (r == LINE_END)
			break;
		if (r == LINE_READ)
			r = read_trace_line(&inner, line);
		if (r)
			return r;
	}
	if (!reader->scenario->n_trace)
		return reader_refuse(reader, "the trace %s holds no task", path);
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct scenario_event *left = a, *right = b;

	return left->at_ns < right->at_ns ? -1 : left->at_ns > right->at_ns;
}

static int check(struct reader *reader)
{
	struct scenario *scenario = reader->scenario;
	int r;

	if (scenario->graphs.n > 0)
		return check_graphs(reader);
	if (reader->n_generated)
		scenario_generate(scenario, reader->n_generated, reader->ops, reader->bytes_min,
				  reader->bytes_max, reader->generate_seed);
	for (uint32_t i = 0; i < scenario->n_plans; i++) {
		r = check_plan(reader, &scenario->plans[i]);
		if (r)
			return r;
	}
	r = reader_shares(reader);
	if (r)
		return r;
	reader->line = 0;
	if (!scenario->n_plans)
		return reader_refuse(reader, "no plan: [plan NAME] or [generate] is missing");
	if (!scenario->n_tenants)
		return reader_refuse(reader, "no tenant, so there is nothing to run");
	if (*reader->trace) {
		r = read_trace(reader);
		if (r)
			return r;
	} else {
		uint64_t n_tasks = 0;

		for (uint32_t i = 0; i < scenario->n_tenants; i++) {
			r = check_tenant(reader, &scenario->tenants[i]);
			if (r)
				return r;
			n_tasks += scenario->tenants[i].n_tasks;
		}
		reader->line = 0;
		if (n_tasks > SCENARIO_MAX_TASKS)
			return reader_refuse(reader, "more than %u tasks", SCENARIO_MAX_TASKS);
	}
	for (unsigned int i = 0; i < SCENARIO_DEVICES; i++) {
		if (scenario->truth[i].drift > 0 && scenario->truth[i].drift_period_ns <= 0)
			return reader_refuse(reader, "[truth]: drift needs a drift-period");
	}
	for (uint32_t i = 0; i < scenario->n_events; i++) {
		if (scenario->events[i].kind != EVENT_HOGS)
			continue;
		scenario->events[i].device = RBK_DEVICE_CPU;
		scenario->has_hogs = true;
	}
	qsort(scenario->events, scenario->n_events, sizeof(scenario->events[0]), by_time);
	return 0;
}

int scenario_load(const char *path, const char *profiles_dir, const char *cpu, const char *gpu,
		  char message[SCENARIO_MESSAGE_BYTES], struct scenario **ret)
{
	_cleanup_(scenario_freep) struct scenario *scenario = calloc(1, sizeof(*scenario));
	_cleanup_(freep) void *shares = calloc(SCENARIO_MAX_TENANTS, 1024);
	struct reader reader = {.scenario = scenario,
				.path = path,
				.message = message,
				.shares = shares,
				.ops = {[OP_MATMUL] = true, [OP_CONV] = true, [OP_ADD] = true},
				.bytes_min = 1 << 14,
				.bytes_max = 1 << 26,
				.generate_seed = 1};
	const char *overrides[SCENARIO_DEVICES] = {cpu, gpu};
	const char *base = strrchr(path, '/');
	int r;

	if (!scenario || !shares)
		return error_origin(-ENOMEM);
	scenario->plans = calloc(SCENARIO_MAX_PLANS, sizeof(*scenario->plans));
	scenario->tenants = calloc(SCENARIO_MAX_TENANTS, sizeof(*scenario->tenants));
	if (!scenario->plans || !scenario->tenants)
		return error_origin(-ENOMEM);
	base = base ? base + 1 : path;
	snprintf(scenario->name, sizeof(scenario->name), "%.*s",
		 (int)(strrchr(base, '.') ? strrchr(base, '.') - base : (long)strlen(base)), base);
	snprintf(scenario->path, sizeof(scenario->path), "%s", path);
	scenario->seed = 1;
	scenario->n_runs = 1;
	scenario->config = PLACE_CONFIG_DEFAULT;
	for (unsigned int i = 0; i < SCENARIO_DEVICES; i++)
		scenario->truth[i].cache_factor = 1;

	r = read_lines(&reader);
	if (!r)
		r = check(&reader);
	for (unsigned int i = 0; i < SCENARIO_DEVICES; i++)
		if (overrides[i])
			snprintf(reader.profiles[i], sizeof(reader.profiles[i]), "%s",
				 overrides[i]);
	if (!r)
		r = scenario->graphs.n ? load_list(&reader, profiles_dir)
				       : load_pair(&reader, profiles_dir);
	if (r)
		return r == SCENARIO_E_INVALID ? r : error_fold(r);
	*ret = steal_ptr(scenario);
	return 0;
}
