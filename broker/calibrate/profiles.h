#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the broker's devices are able to do
 *
 * At the start each device's profile is read from the cache, or measured within a budget that all
 * devices share. Having none of a device is a result, not an error: placement then learns from what
 * tasks take.
 */
#include <stdint.h>

#include "calibrate/calibrate-cache.h"
#include "calibrate/calibrate.h"
#include "place/profile.h"
#include "plan/executor.h"
#include "util/cleanup.h"

struct profiles;
struct waker;

enum profiles_mode {
	PROFILES_AUTO, /* from the cache, or measured */
	PROFILES_NONE, /* nothing is known of any device */
	PROFILES_NOW,  /* measured, whatever the cache has */
};

/* Of wall time for measuring: while clients wait to be served; where somebody asks for a list. */
#define PROFILES_BUDGET_NS      250000000ull
#define PROFILES_LIST_BUDGET_NS 5000000000ull

struct profiles_options {
	enum profiles_mode mode;
	const char *folder; /* of the cache; NULL: none */
	struct executor *const *executors;
	uint32_t n_executors;
	/* Copied, and never measured; NULL: ask the device. */
	const struct place_profile *given[RBK_MAX_DEVICES];
	uint64_t budget_ns;
	struct waker *waker; /* that the executors ring; nobody else waits for it yet */
	/* What all servers of the CPU, or of one GPU, draw while they work; 0: unknown. */
	float cpu_watts, gpu_watts;
};

/*
 * Before there are other threads than the executors' own. What @options points to is borrowed. Logs
 * a line that says where profiles come from, and one for each file that could not be used.
 * Return: 0 or -ENOMEM.
 */
int profiles_new(const struct profiles_options *options, struct profiles **ret);
struct profiles *profiles_free(struct profiles *profiles);

/* The profile of a device; NULL: it has none. Valid until profiles_free(). */
const struct place_profile *profiles_get(const struct profiles *profiles, unsigned int device);

/*
 * Devices, as a mask, that are to be measured again: of which nothing is known, or not everything
 * was measured, or that a week ago. None if nothing is wanted.
 */
uint32_t profiles_stale(const struct profiles *profiles, uint64_t now_s);

/*
 * Takes what a device was measured again as; the pointer that profiles_get() gave shows it from now
 * on. Return: false, nothing changed, if it says nothing.
 */
bool profiles_take(struct profiles *profiles, unsigned int device,
		   const struct calibrate_samples *samples, uint64_t now_s);

/* What is known of a device, to be kept by another thread. */
struct profiles_copy {
	const char *folder;
	const struct executor_info *info; /* the executor's: it does not change */
	char key[CALIBRATE_KEY_BYTES];
	struct calibrate_cached cached;
};
void profiles_copy(const struct profiles *profiles, unsigned int device, struct profiles_copy *ret);
/* Keeps it in the cache, if there is one; logs a line if that fails. Any thread. */
void profiles_copy_write(const struct profiles_copy *copy);

/*
 * Tells executors how much work may be in one part of a plan that takes at most @part_ns; see
 * executor.part_flops. Before the first plan is prepared.
 */
void profiles_set_parts(const struct profiles *profiles, uint64_t part_ns);

DEFINE_CLEANUP(struct profiles *, profiles_free)
