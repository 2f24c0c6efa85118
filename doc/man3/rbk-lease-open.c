/* SPDX-License-Identifier: MIT */
/* Lease 8 MiB of the first device with memory of its own, draw 6 MiB of credit and give it back. */
#include <ringbroker.h>
#include <ringbroker/lease.h>
#include <stdio.h>

#define MIB ((uint64_t)1 << 20)

int main(void)
{
	const struct rbk_lease_options options = {
		.device = RBK_DEVICE_NONE,
		.min_bytes = 4 * MIB,
		.wish_bytes = 8 * MIB,
	};
	struct rbk_lease *lease;
	struct rbk_error error;
	uint64_t credit_bytes;
	struct rbk *rbk;

	if (rbk_connect(NULL, &rbk, &error) || rbk_lease_open(rbk, &options, &lease, &error) ||
	    rbk_lease_take(lease, 6 * MIB, 1 * MIB, 0, NULL, &credit_bytes, &error)) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	/* Allocate up to credit_bytes, with vkAllocateMemory() for example; free them again. */
	rbk_lease_give(lease, credit_bytes, NULL);
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	return 0;
}
