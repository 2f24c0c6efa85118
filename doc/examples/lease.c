/* SPDX-License-Identifier: MIT */
/*
 * A lease: device memory for a program that uses the GPU by itself, beside the broker's tenants.
 *
 *	cc lease.c -o lease $(pkg-config --cflags --libs ringbroker)
 *
 * Unmodified Vulkan programs need none of this: "brokerctl exec" gives them a lease.
 */
#include <errno.h>
#include <inttypes.h>
#include <ringbroker.h>
#include <ringbroker/lease.h>
#include <stdio.h>

#define MIB       (UINT64_C(1) << 20)
#define SECOND_NS UINT64_C(1000000000)

/* Print the lease's page, which the broker keeps up to date in shared memory. */
static void show(const char *when, const struct rbk_lease *lease)
{
	const struct rbk_lease_page *page = rbk_lease_page(lease);

	printf("%s: granted %" PRIu64 " MiB, in credit %" PRIu64 " MiB, at most %" PRIu64 " MiB\n",
	       when, __atomic_load_n(&page->granted_bytes, __ATOMIC_RELAXED) / MIB,
	       __atomic_load_n(&page->credited_bytes, __ATOMIC_RELAXED) / MIB,
	       __atomic_load_n(&page->max_bytes, __ATOMIC_RELAXED) / MIB);
}

int main(void)
{
	const struct rbk_lease_options options = {
		.device = RBK_DEVICE_NONE, /* the first device with memory of its own */
		.min_bytes = 4 * MIB,      /* with less the program cannot run */
		.wish_bytes = 8 * MIB,
		.max_bytes = 16 * MIB,
		.wait_ns = 2 * SECOND_NS, /* other tenants' plans may have to be evicted */
	};
	struct rbk_error error;
	struct rbk_lease_use use = {0};
	struct rbk_lease *lease;
	uint64_t credit = 0, more = 0;
	struct rbk *rbk;
	int r;

	if (rbk_connect(NULL, &rbk, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	r = rbk_lease_open(rbk, &options, &lease, &error);
	if (r == -ENODEV)
		return fprintf(stderr, "no lease without a GPU: %s\n", error.text), 1;
	if (r)
		return fprintf(stderr, "%s\n", error.text), 1;
	show("opened", lease);

	/* Credit comes first, then the allocation: vkAllocateMemory() of 6 MiB in a real program.
	 */
	r = rbk_lease_take(lease, 6 * MIB, 6 * MIB, 0, NULL, &credit, &error);
	if (r)
		return fprintf(stderr, "%s\n", error.text), 1;
	use.used_bytes = 6 * MIB;
	use.n_objects = 1;
	show("allocated", lease);

	/* More than the lease's maximum: the program does with what it has. */
	r = rbk_lease_take(lease, 32 * MIB, 32 * MIB, 0, &use, &more, &error);
	if (r != -ENOMEM)
		return fprintf(stderr, "32 MiB should not fit: %d\n", r), 1;
	printf("refused: %s\n", error.text);
	use.n_refused = 1;

	/* The memory is freed before its credit is given back. */
	use.used_bytes = 0;
	use.n_objects = 0;
	r = rbk_lease_give(lease, credit, &use);
	if (r)
		return fprintf(stderr, "the credit was not given back: %d\n", r), 1;
	show("freed", lease);
	r = __atomic_load_n(&rbk_lease_page(lease)->credited_bytes, __ATOMIC_RELAXED) != 0;
	rbk_lease_close(lease);
	rbk_disconnect(rbk); /* ends the lease: this session was its last member */
	return r;
}
