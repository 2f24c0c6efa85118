/* SPDX-License-Identifier: MIT */
/*
 * lease-member: a process of a leased program
 *
 *     lease-member MIB USED_MIB [STATUS]
 *
 * Joins the lease that its environment names, draws MIB of credit, reports USED_MIB of it as used,
 * and prints "ready". It ends with STATUS at the end of its standard input, or by a signal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <ringbroker/lease.h>

#define MIB (1ull << 20)

int main(int argc, char **argv)
{
	const char *number = getenv("RINGBROKER_LEASE");
	struct rbk_lease_options options = {.device = RBK_DEVICE_NONE};
	struct rbk_lease_use use = {.n_objects = 1};
	struct rbk_error error = {""};
	struct rbk_lease *lease;
	struct rbk *rbk;
	uint64_t bytes;
	char byte;
	int r;

	if (argc < 3 || !number) {
		fputs("usage: RINGBROKER_LEASE=NUMBER lease-member MIB USED_MIB [STATUS]\n",
		      stderr);
		return 2;
	}
	options.join = (uint32_t)strtoul(number, NULL, 10);
	bytes = strtoull(argv[1], NULL, 10) * MIB;
	use.used_bytes = strtoull(argv[2], NULL, 10) * MIB;
	r = rbk_connect(NULL, &rbk, &error);
	if (!r)
		r = rbk_lease_open(rbk, &options, &lease, &error);
	if (!r)
		r = rbk_lease_take(lease, bytes, bytes, 0, NULL, &bytes, &error);
	if (!r)
		r = rbk_lease_give(lease, 0, &use);
	if (r) {
		fprintf(stderr, "lease-member: %s\n", error.text);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	/* End without disconnecting. */
	_exit(argc > 3 ? atoi(argv[3]) : 0);
}
