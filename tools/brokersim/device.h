#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A device in virtual time
 *
 * Servers take what was released to the device in order. A submission begins on one server; free
 * ones join the oldest submission that has work to share until that is done. Nanoseconds.
 */
#include <stdbool.h>
#include <stdint.h>

#include "world.h"

struct device_run {
	struct sim_part *part;
	double serial_ns, shared_ns; /* left, at one server's speed */
	double begin_ns, busy_ns;
	uint32_t n_servers; /* that work on it now */
	uint32_t lane;
	bool fails;
};

struct device {
	const struct world *world;
	uint8_t index;
	uint32_t n_servers, n_per_task;
	uint32_t n_in_use;          /* of its servers; those beyond end what they are at */
	struct device_run *running; /* by begin */
	uint32_t n_running;
	struct sim_part *first, *last; /* released, not begun */
	double now_ns;
	double busy_ns; /* of all servers, so far */
	uint64_t n_begun;
	struct list_node listed; /* parts with rows that have not begun, in order of assignment */
	uint32_t n_listed;
	double listed_ns; /* sum of their waiting_ns */
	struct device_run *scratch;
	bool *lanes;
};

/* Return: 0 or -ENOMEM. */
int device_init(struct device *device, const struct world *world, uint8_t index);
void device_deinit(struct device *device);

/* A part is to run here, here rather than where it was, or no more. */
void device_assign(struct device *device, struct sim_part *part, double now_ns);
void device_unassign(struct device *device, struct sim_part *part);

/* Hands over part->n_now rows of an assigned part. */
void device_release(struct device *device, struct sim_part *part);

/* When something changes next; INFINITY: never. */
double device_next_ns(const struct device *device);

/*
 * Works until @now_ns, which is not after device_next_ns(), and begins what can begin.
 * Return: true, *ret being a submission that has ended; call again until false.
 */
bool device_advance(struct device *device, double now_ns, struct device_run *ret);

/* Ends all that runs, failed. Return: true, *ret being one of them; call again until false. */
bool device_fail_one(struct device *device, struct device_run *ret);

/* What is known of noise: of this task's and of all before it; nothing, as the best estimates. */
enum knowledge { KNOW_ALL, KNOW_MEANS };

/*
 * When a task of that cost would have ended if it were handed over now behind everything that is
 * assigned here, and nothing else came.
 */
double device_probe_ns(const struct device *device, struct world_cost cost,
		       enum knowledge knowledge);
