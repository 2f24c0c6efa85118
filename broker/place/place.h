#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Placement: where a task runs, and why
 *
 * The first rules, in order: the plan's pin; the entry's explicit wish, falling back with the
 * reason where the device is not there; below the transfer threshold, the CPU; no usable GPU, the
 * CPU; its memory is not in the device, or never fits, the CPU; else the GPU. Pure functions of the
 * plan's cached numbers: no allocation, no clock, no walk. Reactor thread only.
 */
#include <stdbool.h>
#include <stdint.h>
#include <ringbroker/abi.h>

struct plan;

/* Tasks that touch fewer bytes stay on the CPU, unless asked otherwise. */
#define PLACE_THRESHOLD_BYTES (1ull << 20)

/* A device that failed this many tasks in a row gets no more. */
#define PLACE_MAX_FAILURES 3

struct placer {
	uint64_t threshold_bytes;
	uint32_t n_devices;                   /* device 0 is the CPU */
	uint32_t n_failures[RBK_MAX_DEVICES]; /* in a row, by place_report() */
};

/*
 * One word, because bytes are stored one by one and loaded together, which waits for the stores:
 * some 8 ns of each task.
 */
struct place_decision {
	/*
	 * RBK_DEVICE_NONE: no device; the task is refused with -ENOMEM if the reason is
	 * RBK_REASON_MEMORY_CONSTRAINT, else with -ENODEV.
	 */
	uint32_t device : 8;
	uint32_t reason : 8; /* enum rbk_reason */
	/*
	 * Where it would have run, had the plan's memory been there (PLAN_DEVICE_EVICTED); a device
	 * with memory of its own, or RBK_DEVICE_NONE: any of several. 0: nothing is missing, or it
	 * will never be there. Set only with RBK_REASON_MEMORY_CONSTRAINT.
	 */
	uint32_t wanted : 8;
};

void placer_init(struct placer *placer, uint32_t n_devices, uint64_t threshold_bytes);

/* @strategy has been validated. */
struct place_decision place_task(const struct placer *placer, const struct plan *plan,
				 uint32_t count, uint8_t strategy);

/* The device is as good as new: what it failed before does not count any more. */
void place_reset(struct placer *placer, unsigned int device);

/* What became of a task on @device: failures in a row take the device out. */
void place_report(struct placer *placer, uint8_t device, bool is_failure);
