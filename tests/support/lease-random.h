#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What a test and lease-random.c have in common: descriptors that the program is started with
 */
#include <stdatomic.h>
#include <stdint.h>

enum {
	LEASE_RANDOM_COUNTS_FD = 3,  /* a memfd with struct lease_random_counts */
	LEASE_RANDOM_SEND_FD = 4,    /* a pair of datagram sockets, the same for all programs, */
	LEASE_RANDOM_RECEIVE_FD = 5, /* for what they hand to each other */
};

/* Of all programs, together. */
struct lease_random_counts {
	atomic_uint n_devices, n_refused_devices; /* vkCreateDevice() */
	atomic_uint n_allocated, n_refused, n_freed;
	atomic_uint n_exported, n_imported, n_refused_imports;
	atomic_uint n_pools; /* of descriptors, which the driver keeps in the device's memory */
	atomic_uint n_asked; /* for the budget */
	atomic_uint n_wrong; /* what Vulkan does not allow, or no lease should do */
	atomic_int wrong;    /* the last: a VkResult, or a line's number */
	atomic_uint n_ended; /* by themselves */
};
