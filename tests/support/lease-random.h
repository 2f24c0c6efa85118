#pragma once
/* SPDX-License-Identifier: MIT */
/* The interface between a test and lease-random.c: inherited descriptors */
#include <stdatomic.h>
#include <stdint.h>

enum {
	LEASE_RANDOM_COUNTS_FD = 3,  /* a memfd with struct lease_random_counts */
	LEASE_RANDOM_SEND_FD = 4,    /* datagram socket: sends to other programs */
	LEASE_RANDOM_RECEIVE_FD = 5, /* its other end: receives from them */
};

/* Sums over all programs. */
struct lease_random_counts {
	atomic_uint n_devices, n_refused_devices; /* vkCreateDevice() */
	atomic_uint n_allocated, n_refused, n_freed;
	atomic_uint n_exported, n_imported, n_refused_imports;
	atomic_uint n_pools; /* descriptor pools, which lie in device memory */
	atomic_uint n_asked; /* budget queries */
	atomic_uint n_wrong; /* violations of Vulkan or of the lease */
	atomic_int wrong;    /* the last violation: a VkResult, or a line number */
	atomic_uint n_ended; /* programs that ended by themselves */
};
