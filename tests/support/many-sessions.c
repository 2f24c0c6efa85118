/* SPDX-License-Identifier: MIT */
/*
 * many-sessions SOCKET TENANTS EACH: open EACH sessions for each of TENANTS tenants, and keep them
 * until standard input ends. The tenants are the users from 40001 on, so the program needs root. It
 * prints a line after each tenth of the sessions, and continues when it has read a line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ringbroker.h>

enum { FIRST_UID = 40001 };

int main(int argc, char **argv)
{
	const unsigned int n_tenants = argc == 4 ? (unsigned int)atoi(argv[2]) : 0;
	const unsigned int n_each = argc == 4 ? (unsigned int)atoi(argv[3]) : 0;
	const unsigned int n = n_tenants * n_each;
	const struct rlimit limit = {n + 100, n + 100};
	struct rbk_options options = {
		.size = sizeof(options),
		.name = "one of many",
		.flags = RBK_CONNECT_NO_REATTACH, /* takes a descriptor less */
	};
	struct rbk_error error = {""};
	struct rbk *rbk;

	if (n < 10)
		return 2;
	options.socket_path = argv[1];
	setrlimit(RLIMIT_NOFILE, &limit);
	for (unsigned int i = 0; i < n; i++) {
		/* Open one session per tenant in turn, so that all tenants grow together. */
		if (seteuid(FIRST_UID + i % n_tenants) || rbk_connect(&options, &rbk, &error) ||
		    seteuid(0)) {
			fprintf(stderr, "session %u: %s\n", i, error.text);
			return 1;
		}
		if ((i + 1) % (n / 10) == 0) {
			printf("%u\n", i + 1);
			fflush(stdout);
			getchar();
		}
	}
	while (getchar() != EOF)
		;
	return 0;
}
