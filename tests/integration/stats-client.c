/* SPDX-License-Identifier: MIT */
/*
 * stats-client SOCKET NAME: a client for brokerctl.py
 *
 * Reads lines "SMALL LARGE" from standard input, runs that many tasks of its small plan, named
 * NAME, and of its large plan, and answers each line with "ok". "refuse N" submits N entries that
 * the broker refuses, with user_data from 1000000 on; "leave N" submits N tasks to the first device
 * beside the CPU, and does not wait for them. Ends with the input.
 */
#include <stdio.h>

#include "integration/stats-load.h"

int main(int argc, char **argv)
{
	unsigned int n_small, n_large;
	char line[64];
	struct stats_load load;

	if (argc != 3)
		return 2;
	stats_load_init(&load, argv[1], argv[2]);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%u %u", &n_small, &n_large) == 2)
			stats_load_run(&load, n_small, n_large);
		else if (sscanf(line, "refuse %u", &n_small) == 1)
			stats_load_refuse(&load, n_small);
		else if (sscanf(line, "leave %u", &n_small) == 1)
			stats_load_leave(&load, n_small);
		else
			break;
		puts("ok");
		fflush(stdout);
	}
	stats_load_deinit(&load);
	return 0;
}
