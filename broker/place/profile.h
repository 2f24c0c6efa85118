#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Device profiles: what a device is able to do, in numbers
 *
 * A profile says how fast each family of operators runs at each size, what starting a task costs,
 * how fast tensors come to the device and back, and what a second of work costs in energy. It is
 * measured when the broker starts (calibrate.h), kept on disk and refreshed while running, or read
 * from a file: devices that are simulated only differ from real ones by where their profile comes
 * from. Predictions for plans that were never run come from here alone.
 *
 * Source of the model: the roofline (Williams, Waterman, Patterson, CACM 52(4), 2009), with a
 * ceiling per family and size instead of one peak.
 */
#include <stdbool.h>
#include <stdint.h>

#include "shm/operators/op.h"

enum {
	PLACE_NAME_BYTES = 96,
	PLACE_MAX_SERVERS = 1024,
	/*
	 * Rates are kept for nodes of 2^(12 + 3 * i) bytes of what they read and write: 4 KiB,
	 * 32 KiB, 256 KiB, 2 MiB, 16 MiB, 128 MiB. Between two of them they are interpolated by the
	 * logarithm of the size; beyond the ends the end counts.
	 */
	PLACE_SIZE_CLASSES = 6,
	PLACE_SIZE_FIRST_LOG2 = 12,
	PLACE_SIZE_STEP_LOG2 = 3,
};

/*
 * What figures may be. Wide enough for anything that computes, narrow enough that sums and products
 * of them stay finite in single precision.
 */
#define PLACE_MIN_RATE         1e-6f /* GFLOP/s, GB/s: of rates and the link */
#define PLACE_MAX_RATE         1e7f  /* 10 PFLOP/s */
#define PLACE_MAX_LATENCY_NS   1e9f  /* of each time that is not work: 1 s */
#define PLACE_MAX_WATTS        1e6f
#define PLACE_MAX_MEMORY_BYTES (1ull << 56)

/*
 * How fast one server of a device works through a node of some family and size: the time is the
 * larger of flops / flops_per_ns and bytes / bytes_per_ns. Both are above 0 and finite in a profile
 * that is_valid.
 */
struct place_rate {
	float flops_per_ns; /* = GFLOP/s */
	float bytes_per_ns; /* = GB/s */
};

struct place_profile {
	char name[PLACE_NAME_BYTES];   /* of the device: "AMD Radeon RX 580 Series" */
	char source[PLACE_NAME_BYTES]; /* where the figures come from: "measured", a data sheet */
	bool is_valid;                 /* false: nothing is known of the device */

	/* Tasks that it runs at the same time: CPU workers; 1 for a GPU. */
	uint32_t n_servers;
	/*
	 * Of how many servers one large task can make use: all, where the servers help each other.
	 * 1: a task runs on one.
	 */
	uint32_t n_servers_per_task;
	/* A node that takes longer than this on one server is shared among servers. */
	float share_min_ns;

	float task_ns; /* of starting and ending a task, beside its nodes */
	float node_ns; /* of each node beside its work */
	struct place_rate rates[OP_FAMILY_COUNT][PLACE_SIZE_CLASSES];

	/*
	 * The link that bound tensors (inputs, outputs, states) cross, both ways, in bytes per ns;
	 * 0: there is none, the device works on host memory in place and rates say how fast.
	 */
	float up_bytes_per_ns, down_bytes_per_ns;
	float link_ns; /* of one transfer beside its bytes */

	uint64_t memory_bytes; /* of its own; 0: the host's */

	/* Energy: what a server draws while it works, beyond what it draws while idle. 0: unknown.
	 */
	float active_watts;
};

/*
 * How long one server takes for one node: the roofline at that family and size, and node_ns.
 * Return: nanoseconds, finite and above 0 for every input, also for a profile that is not valid.
 */
double place_profile_node_ns(const struct place_profile *profile, enum op_family family,
			     double flops, double bytes);

/*
 * Are all figures in their ranges? A profile from anywhere outside passes here before it is used.
 * Return: NULL if so; else a static phrase that names the first figure that is not.
 */
const char *place_profile_refusal(const struct place_profile *profile);
