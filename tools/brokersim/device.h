#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A device in virtual time
 *
 * Servers take released parts in order. A submission begins on one server; free servers join the
 * oldest submission that has shared work until that work is done. Times are nanoseconds.
 */
#include <stdbool.h>
#include <stdint.h>

#include "world.h"

struct device_run {
	struct sim_part *part;
	double serial_ns, shared_ns; /* work left, at the speed of one server */
	double begin_ns, busy_ns;
	uint32_t n_servers; /* servers working on the submission now */
	uint32_t lane;
	bool fails;
};

struct device {
	const struct world *world;
	uint8_t index;
	uint32_t n_servers, n_per_task;
	/* servers that may take work; the others stop after their current submission */
	uint32_t n_in_use;
	struct device_run *running; /* in order of beginning */
	uint32_t n_running;
	struct sim_part *first, *last; /* queue of released parts that have not begun */
	double now_ns;
	double busy_ns; /* server time spent so far, sum of all servers */
	uint64_t n_begun;
	struct list_node listed; /* parts with rows that have not begun, in order of assignment */
	uint32_t n_listed;
	double listed_ns; /* sum of the listed parts' waiting_ns */
	struct device_run *scratch;
	bool *lanes;
};

/* Return: 0 or -ENOMEM. */
int device_init(struct device *device, const struct world *world, uint8_t index);
void device_deinit(struct device *device);

/*
 * Add a part to the device's list of assigned parts, or remove a part from the list. A part moves
 * by device_unassign() from its old device and device_assign() to its new device.
 */
void device_assign(struct device *device, struct sim_part *part, double now_ns);
void device_unassign(struct device *device, struct sim_part *part);

/* Release part->n_now rows of an assigned part to the device. */
void device_release(struct device *device, struct sim_part *part);

/* Return the time of the device's next change, INFINITY if there is none. */
double device_next_ns(const struct device *device);

/*
 * Advance the device to @now_ns, which is at most device_next_ns(), and begin released parts for
 * which a server is free.
 * Return: true with an ended submission in *ret: call again until false.
 */
bool device_advance(struct device *device, double now_ns, struct device_run *ret);

/*
 * Fail one running submission.
 * Return: true with the failed submission in *ret: call again until false, when no submission runs.
 */
bool device_fail_one(struct device *device, struct device_run *ret);

/*
 * KNOW_ALL: the noise of the probed task and of all tasks before it is known. KNOW_MEANS: no noise
 * is known, as for the best possible estimates.
 */
enum knowledge { KNOW_ALL, KNOW_MEANS };

/*
 * Return the time at which a task of @cost would end if it were released now behind all parts
 * assigned to the device and no later task arrived.
 */
double device_probe_ns(const struct device *device, struct world_cost cost,
		       enum knowledge knowledge);
