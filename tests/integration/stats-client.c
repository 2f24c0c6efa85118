/* SPDX-License-Identifier: MIT */
/*
 * stats-client SOCKET NAME: a client for brokerctl.py
 *
 * Reads lines "SMALL LARGE" from standard input, runs that many tasks of its small plan, named
 * NAME, and of its large plan, and answers each line with "ok". Ends with the input.
 */
#include <stdio.h>

#include "integration/stats-load.h"

int main(int argc, char **argv)
{
	unsigned int n_small, n_large;
	struct stats_load load;

	if (argc != 3)
		return 2;
	stats_load_init(&load, argv[1], argv[2]);
	while (scanf("%u %u", &n_small, &n_large) == 2) {
		stats_load_run(&load, n_small, n_large);
		puts("ok");
		fflush(stdout);
	}
	stats_load_deinit(&load);
	return 0;
}
