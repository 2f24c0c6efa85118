/* SPDX-License-Identifier: MIT */
/*
 * brokersim: placement in virtual time
 *
 * Exit status: 0; 1 if a figure was missed (--check) or an operation failed; 2 if the command line,
 * a scenario or a profile is wrong.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "graph-family.h"
#include "graph-outcome.h"
#include "report.h"
#include "run.h"
#include "starpu-compare.h"
#include "svg.h"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/streams.h"

#define SOLVER_SECONDS       10.0
#define GRAPH_SOLVER_SECONDS 1.0 /* there are hundreds of graphs */

static const char help[] =
	"Usage: brokersim [OPTION...] FILE...\n"
	"       brokersim [OPTION...] --all\n"
	"\n"
	"Runs scenarios in virtual time: the placement engine of brokerd beside other policies, "
	"on\n"
	"simulated devices. brokersim(1) describes scenarios, figures and policies.\n"
	"\n"
	"  -a, --all            all installed scenarios: one table, each figure beside its\n"
	"                       expected value\n"
	"  -q, --quick          with --all: only scenarios that take a few seconds, one run each\n"
	"  -c, --check          exit with 1 if a figure is not what its scenario expects\n"
	"  -j, --json           one JSON object per scenario and policy and line\n"
	"  -S, --svg=DIR        write DIR/SCENARIO-ours.svg, a timeline of the first run, and\n"
	"                       DIR/SCENARIO.svg, a comparison of policies; of graphs only a\n"
	"                       timeline, DIR/SCENARIO.svg\n"
	"  -m, --misses=N       list the N decisions that lost most in the first run\n"
	"  -p, --policies=LIST  only these policies, separated by commas; by default all\n"
	"  -s, --seed=N         seed of the first run; by default the scenario's\n"
	"  -n, --runs=N         number of runs, with consecutive seeds; by default the scenario's\n"
	"  -u, --utilization    of graphs also what devices and links did under ours\n"
	"      --cpu=PROFILE    a device instead of the scenario's: a name or a file\n"
	"      --gpu=PROFILE\n"
	"      --models=DIR     the folder of the models that scenarios name\n"
	"      --starpu         also run the tasks on StarPU's schedulers, in real time\n"
	"  -l, --list           list policies, families of graphs, profiles and scenarios, then\n"
	"                       exit\n"
	"  -h, --help           show this text, then exit\n"
	"  -V, --version        show the version, then exit\n"
	"\n"
	"Exit status: 0; 1, a figure was missed (--check), or something failed; 2, the command\n"
	"line, a scenario or a profile is wrong.\n";

enum { OPTION_CPU = 256, OPTION_GPU, OPTION_MODELS, OPTION_STARPU };

static const struct option long_options[] = {
	{"all", no_argument, NULL, 'a'},
	{"quick", no_argument, NULL, 'q'},
	{"check", no_argument, NULL, 'c'},
	{"json", no_argument, NULL, 'j'},
	{"svg", required_argument, NULL, 'S'},
	{"misses", required_argument, NULL, 'm'},
	{"policies", required_argument, NULL, 'p'},
	{"seed", required_argument, NULL, 's'},
	{"runs", required_argument, NULL, 'n'},
	{"cpu", required_argument, NULL, OPTION_CPU},
	{"gpu", required_argument, NULL, OPTION_GPU},
	{"models", required_argument, NULL, OPTION_MODELS},
	{"starpu", no_argument, NULL, OPTION_STARPU},
	{"utilization", no_argument, NULL, 'u'},
	{"list", no_argument, NULL, 'l'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

struct options {
	bool all, quick, check, json, starpu, utilization;
	bool is_of_plans; /* an option that has no effect on graphs */
	const char *svg, *cpu, *gpu, *models;
	uint32_t n_misses;
	struct run_options run;
	char data[4096], profiles[4200];
	struct report_checks checks;
	bool is_svg_refused; /* svg_path could not be written */
	char svg_path[SVG_PATH_BYTES];
};

static int parse_whole(const char *name, const char *text, unsigned long long max,
		       unsigned long long *ret)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || value < 1 || value > max) {
		fprintf(stderr, "brokersim: %s: \"%s\" is not a number between 1 and %llu\n", name,
			text, max);
		return 2;
	}
	*ret = value;
	return 0;
}

static int parse_policies(struct run_options *run, char *text)
{
	char *save = NULL;
	unsigned int n = 0;

	memset(run->policies, 0, sizeof(run->policies));
	for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		const struct policy *policy = policy_by_name(word);

		if (!policy || n == RUN_MAX_POLICIES - 1) {
			fprintf(stderr, "brokersim: there is no policy \"%s\"; --list names them\n",
				word);
			return 2;
		}
		run->policies[n++] = policy;
	}
	if (!n)
		fputs("brokersim: --policies names no policy\n", stderr);
	return n ? 0 : 2;
}

static int list_names(const char *data, const char *folder, const char *suffix)
{
	char path[4200], **names;
	size_t n;
	int r;

	snprintf(path, sizeof(path), "%s/%s", data, folder);
	r = data_names(path, suffix, &names, &n);
	if (r) {
		fprintf(stderr, "brokersim: %s: %s\n", path, strerror(-r));
		return 1;
	}
	printf("%s:\n", folder);
	for (size_t i = 0; i < n; i++)
		printf("  %.*s\n", (int)(strlen(names[i]) - strlen(suffix)), names[i]);
	data_names_free(names, n);
	return 0;
}

static int list(const char *data)
{
	int status;

	puts("policies:");
	for (unsigned int i = 0; policies[i]; i++)
		printf("  %-12s %s\n", policies[i]->name, policies[i]->about);
	puts("policies of graphs:");
	for (unsigned int p = 0; p < GRAPH_POLICIES; p++)
		printf("  %s\n", graph_policy_names[p]);
	puts("families of graphs:");
	for (uint32_t i = 0; i < n_graph_families; i++)
		printf("  %-16s %s\n", graph_families[i].name, graph_families[i].about);
	status = list_names(data, "profiles", ".profile");
	return status ? status : list_names(data, "scenarios", ".scenario");
}

static int show_run(void *context, const struct sim *sim)
{
	struct options *options = context;
	int r = 0;

	if (strcmp(sim->policy->name, "ours"))
		return 0;
	if (options->n_misses)
		r = report_misses(stdout, sim, options->n_misses);
	if (r || !options->svg)
		return r;
	r = svg_timeline(options->svg, sim, options->svg_path);
	options->is_svg_refused = r != 0;
	return r;
}

static bool find_measure(const void *context, const struct scenario *scenario, const char *name,
			 double *ret)
{
	return measures_find(context, scenario, name, ret);
}

static bool find_graph_figure(const void *context, const struct scenario *scenario,
			      const char *name, double *ret)
{
	return graph_figure_find(context, name, ret);
}

/* Check that every expected figure exists; an unknown figure would always count as missed. */
static int check_expected(const struct scenario *scenario)
{
	report_find *find = scenario->graphs.n ? find_graph_figure : find_measure;
	struct measures measures;
	double value;
	int r;

	r = measures_init(&measures, scenario, NULL);
	if (r)
		return error_fold(r);
	for (uint32_t i = 0; !r && i < scenario->n_expected; i++) {
		const struct scenario_expected *expected = &scenario->expected[i];

		const char *lacks =
			scenario->graphs.n ? graph_figure_lacks(scenario, expected->figure) : NULL;

		if (!lacks &&
		    find(scenario->graphs.n ? NULL : &measures, scenario, expected->figure, &value))
			continue;
		if (lacks)
			fprintf(stderr, "%s:%u: %s needs %s\n", scenario->path, expected->line,
				expected->figure, lacks);
		else
			fprintf(stderr, "%s:%u: there is no figure \"%s\"\n", scenario->path,
				expected->line, expected->figure);
		r = SCENARIO_E_INVALID;
	}
	measures_deinit(&measures);
	return r;
}

static void add_checks(struct options *options, struct report_checks checks)
{
	options->checks.n_met += checks.n_met;
	options->checks.n_missed += checks.n_missed;
	options->checks.n_short += checks.n_short;
}

static int failed(const char *path, int error, const char *message)
{
	if (error == SCENARIO_E_INVALID) {
		fprintf(stderr, "%s\n", message ? message : path);
		return 2;
	}
	fprintf(stderr, "brokersim: %s: %s\n", path, strerror(-error));
	return 1;
}

static int run_pair(struct options *options, const struct scenario *scenario)
{
	char message[SCENARIO_MESSAGE_BYTES] = "";
	struct outcome outcome;
	char devices[2 * SCENARIO_NAME_BYTES + 4];
	int r;

	r = outcome_run(&outcome, scenario, &options->run, message);
	if (r && options->is_svg_refused)
		return failed(options->svg_path, r, NULL);
	if (r) {
		/* A policy that leaves tasks undone is a failure of brokersim, not of the file. */
		int status = failed(scenario->path, r, message);

		return strstr(message, "undone") ? 1 : status;
	}
	if (options->json)
		report_json(stdout, &outcome);
	else if (!options->all)
		report_table(stdout, &outcome);
	snprintf(devices, sizeof(devices), "%s + %s", scenario->profile_names[RBK_DEVICE_CPU],
		 scenario->profile_names[RBK_DEVICE_GPU]);
	if ((!options->json || options->check) && outcome_of(&outcome, "ours"))
		add_checks(options,
			   report_checks(options->json ? stderr : stdout, scenario, devices,
					 find_measure, outcome_of(&outcome, "ours")));
	r = options->svg ? svg_comparison(options->svg, &outcome, options->svg_path) : 0;
	outcome_deinit(&outcome);
	if (r)
		return failed(options->svg_path, r, NULL);
	return options->starpu ? starpu_compare(stdout, scenario, &options->run) : 0;
}

static int run_graphs(struct options *options, const struct scenario *scenario)
{
	char message[SCENARIO_MESSAGE_BYTES] = "";
	struct graph_outcome outcome;
	char devices[32];
	int r;

	if (!options->all && options->is_of_plans) {
		fprintf(stderr,
			"%s: --cpu, --gpu, --misses, --policies, --runs and --starpu do not go "
			"with [graphs]\n",
			scenario->path);
		return 2;
	}
	if (options->all && scenario->graphs.n_models > 0 && !options->models) {
		fprintf(stderr, "brokersim: %s is left out: --models=DIR names no folder\n",
			scenario->name);
		return 0;
	}
	r = graph_outcome_run(&outcome, scenario, options->models, options->run.seed,
			      GRAPH_SOLVER_SECONDS, message);
	if (r)
		return failed(scenario->path, r, message);
	if (options->json)
		graph_report_json(stdout, &outcome);
	else if (!options->all)
		graph_report_table(stdout, &outcome);
	snprintf(devices, sizeof(devices), "%u graphs", outcome.n_graphs);
	if (!options->json || options->check)
		add_checks(options, report_checks(options->json ? stderr : stdout, scenario,
						  devices, find_graph_figure, &outcome));
	r = options->utilization ? graph_utilization(stdout, options->json, scenario,
						     options->models, options->run.seed, message)
				 : 0;
	if (r)
		return failed(scenario->path, r, message);
	if (!options->svg)
		return 0;
	r = graph_svg(options->svg, scenario, options->models, options->run.seed, options->svg_path,
		      sizeof(options->svg_path), message);
	return r ? failed(options->svg_path, r, message) : 0;
}

static int run_file(struct options *options, const char *path)
{
	_cleanup_(scenario_freep) struct scenario *scenario = NULL;
	char message[SCENARIO_MESSAGE_BYTES] = "";
	uint32_t n_pairs;
	int r;

	r = scenario_load(path, options->profiles, options->cpu, options->gpu, message, &scenario);
	if (r)
		return failed(path, r, message);
	r = check_expected(scenario);
	if (r)
		return r == SCENARIO_E_INVALID ? 2 : failed(path, r, NULL);
	if (options->all && options->quick && !scenario->is_quick)
		return 0;
	if (scenario->graphs.n)
		return run_graphs(options, scenario);
	if (options->utilization && !options->all) {
		fprintf(stderr, "%s: --utilization goes only with [graphs]\n", scenario->path);
		return 2;
	}
	n_pairs = options->cpu || options->gpu ? 0 : scenario->n_pairs;
	if (!n_pairs)
		return run_pair(options, scenario);
	for (uint32_t i = 0; i < n_pairs; i++) {
		_cleanup_(scenario_freep) struct scenario *pair = NULL;
		int status;

		r = scenario_load(path, options->profiles, scenario->pairs[i][RBK_DEVICE_CPU],
				  scenario->pairs[i][RBK_DEVICE_GPU], message, &pair);
		if (r)
			return failed(path, r, message);
		/* The pair's name distinguishes its objects, figures and pictures. */
		snprintf(pair->name, sizeof(pair->name), "%.24s-%.22s", scenario->name,
			 pair->profile_names[RBK_DEVICE_GPU]);
		status = run_pair(options, pair);
		if (status)
			return status;
	}
	return 0;
}

static int run_scenarios(struct options *options)
{
	char folder[4200], path[4600], **names;
	int status = 0, r;
	size_t n;

	snprintf(folder, sizeof(folder), "%s/scenarios", options->data);
	r = data_names(folder, ".scenario", &names, &n);
	if (r)
		return failed(folder, r, NULL);
	if (!options->json)
		report_checks_header(stdout);
	for (size_t i = 0; !status && i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		status = run_file(options, path);
	}
	data_names_free(names, n);
	return status;
}

static int parse_options(struct options *options, int argc, char **argv)
{
	unsigned long long value;
	int c, status = 0;

	while (!status &&
	       (c = getopt_long(argc, argv, "aqcjS:m:p:s:n:ulhV", long_options, NULL)) >= 0) {
		options->is_of_plans |= c == 'm' || c == 'p' || c == 'n' || c == OPTION_CPU ||
					c == OPTION_GPU || c == OPTION_STARPU;
		switch (c) {
		case 'a':
			options->all = true;
			break;
		case 'q':
			options->quick = true;
			break;
		case 'c':
			options->check = true;
			break;
		case 'j':
			options->json = true;
			break;
		case 'S':
			options->svg = optarg;
			break;
		case 'm':
			status = parse_whole("--misses", optarg, 1000000, &value);
			options->n_misses = status ? 0 : (uint32_t)value;
			break;
		case 'p':
			status = parse_policies(&options->run, optarg);
			break;
		case 's':
			status = parse_whole("--seed", optarg, 1000000000000000ull, &value);
			options->run.seed = status ? 0 : value;
			break;
		case 'n':
			status = parse_whole("--runs", optarg, 1000, &value);
			options->run.n_runs = status ? 0 : (uint32_t)value;
			break;
		case 'u':
			options->utilization = true;
			break;
		case OPTION_CPU:
			options->cpu = optarg;
			break;
		case OPTION_GPU:
			options->gpu = optarg;
			break;
		case OPTION_MODELS:
			options->models = optarg;
			break;
		case OPTION_STARPU:
			options->starpu = true;
			break;
		case 'l':
			exit(streams_finish("brokersim", list(options->data)));
		case 'h':
			fputs(help, stdout);
			exit(streams_finish("brokersim", 0));
		case 'V':
			puts("brokersim " RINGBROKER_VERSION);
			exit(streams_finish("brokersim", 0));
		default:
			status = 2;
			break;
		}
	}
	return status;
}

int main(int argc, char **argv)
{
	struct options options = {.run = {.solver_seconds = SOLVER_SECONDS}};
	int status;

	streams_init();
	for (unsigned int i = 0; policies[i]; i++)
		options.run.policies[i] = policies[i];
	if (!data_find(options.data, sizeof(options.data))) {
		fprintf(stderr,
			"brokersim: no profiles in %s; $BROKERSIM_DATA names where they are\n",
			options.data);
		return 2;
	}
	snprintf(options.profiles, sizeof(options.profiles), "%s/profiles", options.data);
	status = parse_options(&options, argc, argv);
	if (status)
		return status;
	if (options.svg || options.n_misses)
		options.run.show = show_run;
	options.run.context = &options;
	/* One run shows whether a figure is within reach; the full table shows means. */
	if (options.quick && !options.run.n_runs)
		options.run.n_runs = 1;
	if (options.all != (optind == argc) || (options.quick && !options.all)) {
		fputs("brokersim: give scenario files, or --all; --quick needs --all\n", stderr);
		return 2;
	}
	if (options.all)
		status = run_scenarios(&options);
	for (int i = optind; !status && i < argc; i++)
		status = run_file(&options, argv[i]);
	if (!status && (options.all || options.check) && !options.json)
		printf("%u figures reached, %u missed, %u short of an aim\n", options.checks.n_met,
		       options.checks.n_missed, options.checks.n_short);
	if (!status && options.check && options.checks.n_missed)
		status = 1;
	return streams_finish("brokersim", status);
}
