#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Simulated devices: plan/executor.h in virtual time
 *
 * Device 0 is a processor: tasks run inline, on the reactor between looks, or on a worker, and can
 * be stopped. Others are cards with memory of their own, which can refuse, stall and be lost.
 */
#include "place/profile.h"
#include "plan/executor.h"

/*
 * Unit of a card's allocations: the least change of other programs' memory that telemetry.h reports
 */
enum { SIM_CARD_PAGE = 4 << 20 };

/* Chances of a card's faults, each of 2^32, at each task or load. */
struct sim_device_faults {
	uint32_t loss;    /* the device is lost */
	uint32_t stall;   /* the device does nothing for seconds */
	uint32_t refusal; /* the driver has no memory */
	uint32_t slow;    /* a part of a load takes a hundred milliseconds */
};

struct sim_device_options {
	bool is_card;
	uint64_t memory_bytes; /* a card's */
	uint64_t gtt_bytes;    /* host memory that it can use; 0: none */
	uint64_t task_ns;      /* duration of a task without its bytes */
	uint64_t row_ns;       /* duration of each row */
	bool is_honest;        /* plans tell these times, so that only short tasks run inline */
	uint64_t spin_ns;      /* for which its thread looks for tasks before it sleeps */
	unsigned int parts;    /* decides which plans run in how many parts on a card; 0: in one */
	uint64_t late_ns;      /* longest time until the reactor takes a task back */
	struct sim_device_faults faults;
};

/* Make a device. Return: 0; -ENOMEM; -EAGAIN: no thread. */
int sim_device_new(const struct sim_device_options *options, uint8_t index, struct waker *waker,
		   struct executor **ret);

/* Return the device's profile, which is right. */
const struct place_profile *sim_device_profile(const struct executor *executor);

/* Return true if no task is with the device. */
bool sim_device_is_idle(const struct executor *executor);

/*
 * Return the time since which the reactor can know that a device has done a task which it has not
 * taken back; 0: there is none, or a device is just telling it. Broker.
 */
uint64_t sim_device_told_ns(void);
/* Return the tasks that all devices have completed since the simulator began. */
uint64_t sim_device_n_tasks(void);
/* Return the losses of devices since the simulator began. */
uint64_t sim_device_n_losses(void);

/*
 * Tasks of a processor since the simulator began: run by the reactor, begun by it and left to the
 * worker, and submitted to the worker
 */
struct sim_device_counts {
	uint64_t n_here, n_left, n_worker;
};
const struct sim_device_counts *sim_device_counts(void);
/* Return the time at which the last task of any device ended. */
uint64_t sim_device_done_ns(void);
/* Let tasks of processors look every @ns from now on; 0: as often as usual. */
void sim_device_set_piece(uint64_t ns);
