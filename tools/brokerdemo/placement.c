/* SPDX-License-Identifier: MIT */
/*
 * placement: the client of "tools/demo placement", one scene per run
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"
#include "scenes.h"

enum { EXIT_USAGE = 2 };

static const char usage_text[] =
	"Usage: placement [OPTION...] SCENE\n"
	"Shows what a broker decides about tasks, and why; see tools/demo.\n"
	"\n"
	"Scenes:\n"
	"  task        one task, described\n"
	"  profiles    the devices' profiles\n"
	"  table       where five tasks of different sizes run\n"
	"  batch       a mixed batch of tasks, submitted at once\n"
	"  split       one task on two devices\n"
	"  strategies  strategies of submission entries, and force-CPU\n"
	"  service     runs some plans, says \"ready\", and stays until it is stopped\n"
	"\n"
	"  --socket PATH     the broker's socket (default: the client library's)\n"
	"  --profiles DIR    folder of the broker's profile files\n"
	"  --beside FILE     for table: lines of \"TASK<tab>TEXT\", shown beside\n"
	"  --brokerctl FILE  for strategies: the brokerctl to run\n"
	"  --help\n"
	"\n"
	"Exit status: 0 every check holds, 1 a check or something else failed, 2 wrong use.\n";

static const struct {
	const char *name;
	int (*run)(struct lab *lab, const struct scene_options *options);
} scenes[] = {
	{"task", scene_task},       {"profiles", scene_profiles}, {"table", scene_table},
	{"batch", scene_batch},     {"split", scene_split},       {"strategies", scene_strategies},
	{"service", scene_service},
};

static int refuse(const char *what, const char *value)
{
	fprintf(stderr, "placement: %s%s; see placement --help\n", what, value);
	return EXIT_USAGE;
}

static int run(const char *socket_path, unsigned int scene, const struct scene_options *options)
{
	struct lab lab;
	int r;

	r = lab_init(&lab, socket_path);
	if (r == 0)
		r = scenes[scene].run(&lab, options);
	lab_deinit(&lab);
	fflush(stdout);
	if (r)
		fprintf(stderr, "placement: %s: %s\n", scenes[scene].name, lab.error.text);
	return r || lab.n_wrong || ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	enum { SOCKET = 1, PROFILES, BESIDE, BROKERCTL, HELP };
	static const struct option known[] = {
		{"socket", required_argument, NULL, SOCKET},
		{"profiles", required_argument, NULL, PROFILES},
		{"beside", required_argument, NULL, BESIDE},
		{"brokerctl", required_argument, NULL, BROKERCTL},
		{"help", no_argument, NULL, HELP},
		{0},
	};
	struct scene_options options = {.brokerctl = "brokerctl"};
	const char *socket_path = NULL;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case SOCKET:
			socket_path = optarg;
			break;
		case PROFILES:
			options.profiles = optarg;
			break;
		case BESIDE:
			options.beside = optarg;
			break;
		case BROKERCTL:
			options.brokerctl = optarg;
			break;
		case HELP:
			fputs(usage_text, stdout);
			return EXIT_SUCCESS;
		default:
			return EXIT_USAGE;
		}
	}
	if (argc - optind != 1)
		return refuse("name one scene", "");
	for (unsigned int i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		if (strcmp(scenes[i].name, argv[optind]) == 0)
			return run(socket_path, i, &options);
	return refuse("no such scene: ", argv[optind]);
}
