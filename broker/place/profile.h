#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Device profiles: the performance of a device, in numbers
 *
 * A profile states how fast each family of operators runs at each size, and the cost of starting a
 * task. It also has the rate of transfers to the device and back, and the energy of a second of
 * work. It is measured when the broker starts (calibrate.h), kept on disk and refreshed while
 * running, or read from a file: simulated devices differ from real ones only in the source of their
 * profile. Predictions for plans that were never run are based on the profile alone.
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
	 * Rates are kept for nodes that read and write 2^(12 + 3 * i) bytes: 4 KiB, 32 KiB, 256
	 * KiB, 2 MiB, 16 MiB, 128 MiB. Between two of these sizes rates are interpolated by the
	 * logarithm of the size; beyond the ends the end's rate counts.
	 */
	PLACE_SIZE_CLASSES = 6,
	PLACE_SIZE_FIRST_LOG2 = 12,
	PLACE_SIZE_STEP_LOG2 = 3,
};

/*
 * Ranges of figures. Wide enough for any device, narrow enough that sums and products of figures
 * stay finite in single precision.
 */
#define PLACE_MIN_RATE         1e-6f /* GFLOP/s, GB/s: of rates and the link */
#define PLACE_MAX_RATE         1e7f  /* 10 PFLOP/s */
#define PLACE_MAX_LATENCY_NS   1e9f  /* each fixed time: 1 s */
#define PLACE_MAX_WATTS        1e6f
#define PLACE_MAX_MEMORY_BYTES (1ull << 56)

/*
 * The speed of one server for a node of some family and size. The time is the larger of flops /
 * flops_per_ns and bytes / bytes_per_ns. Both rates are above 0 and finite in a profile that
 * is_valid.
 */
struct place_rate {
	float flops_per_ns; /* = GFLOP/s */
	float bytes_per_ns; /* = GB/s */
};

struct place_profile {
	char name[PLACE_NAME_BYTES];   /* of the device: "AMD Radeon RX 580 Series" */
	char source[PLACE_NAME_BYTES]; /* origin of the figures: "measured", a data sheet */
	bool is_valid;                 /* false: nothing is known of the device */

	/* Tasks that run at the same time: CPU workers; 1 for a GPU */
	uint32_t n_servers;
	/*
	 * Servers that one large task can use: all, where the servers help each other; 1: a task
	 * runs on one.
	 */
	uint32_t n_servers_per_task;
	/* A node that takes longer than this on one server is shared among servers. */
	float share_min_ns;

	float task_ns; /* fixed time of starting and ending a task */
	float node_ns; /* fixed time of each node */
	struct place_rate rates[OP_FAMILY_COUNT][PLACE_SIZE_CLASSES];

	/*
	 * The rate of the link that bound tensors (inputs, outputs, states) cross, each way, in
	 * bytes per ns. 0: there is no link; the device works on host memory in place, and the
	 * rates include that.
	 */
	float up_bytes_per_ns, down_bytes_per_ns;
	float link_ns; /* fixed time of one transfer */

	uint64_t memory_bytes; /* of the device; 0: it uses host memory */

	/* Power of a working server beyond that of an idle one, in watts; 0: unknown */
	float active_watts;
};

/*
 * Return the time of one server for one node: the roofline at that family and size, plus node_ns.
 * In nanoseconds, finite and above 0 for every input, even for a profile that is not valid.
 */
double place_profile_node_ns(const struct place_profile *profile, enum op_family family,
			     double flops, double bytes);

/*
 * Return the time of @n nodes whose total cost for @count rows is @cost, with as many servers as
 * may share each; *ret_work_ns: that of all servers together. In nanoseconds.
 */
double place_profile_cost_ns(const struct place_profile *profile, enum op_family family,
			     const struct cost *cost, double n, double count, double *ret_work_ns);

/*
 * Check that all figures are in their ranges. Every profile from outside must pass this check
 * before use.
 * Return: NULL if they are; otherwise a static phrase that names the first bad figure.
 */
const char *place_profile_refusal(const struct place_profile *profile);
