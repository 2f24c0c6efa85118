#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Profiles of the broker's devices
 *
 * At the start each device's profile is read from the cache, or measured within a budget that all
 * devices share. A device without a profile is no error: placement then learns from the times of
 * tasks.
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
	PROFILES_NONE, /* no profile of any device */
	PROFILES_NOW,  /* measured, even if the cache has a profile */
};

/* Wall time for measuring: while clients wait to be served; for a list on request */
#define PROFILES_BUDGET_NS      250000000ull
#define PROFILES_LIST_BUDGET_NS 5000000000ull

struct profiles_options {
	enum profiles_mode mode;
	const char *folder; /* of the cache; NULL: none */
	struct executor *const *executors;
	uint32_t n_executors;
	/* Copied, and never measured; NULL: measure the device. */
	const struct place_profile *given[RBK_MAX_DEVICES];
	uint64_t budget_ns;
	struct waker *waker; /* signalled by the executors; not in use elsewhere yet */
	/* Power of all working servers of the CPU, or of one GPU; 0: unknown */
	float cpu_watts, gpu_watts;
};

/*
 * Make the profiles, before there are other threads than the executors' own. Borrows what @options
 * points to. Logs a line with the profiles' origins, and one for each file that could not be used.
 * Return: 0 or -ENOMEM.
 */
int profiles_new(const struct profiles_options *options, struct profiles **ret);
struct profiles *profiles_free(struct profiles *profiles);

/* Return the profile of a device; NULL: it has none. Valid until profiles_free(). */
const struct place_profile *profiles_get(const struct profiles *profiles, unsigned int device);

/*
 * Return the devices, as a mask, that should be measured again: without profile, not completely
 * measured, or measured more than a week ago. None in mode PROFILES_NONE.
 */
uint32_t profiles_stale(const struct profiles *profiles, uint64_t now_s);

/*
 * Derive a device's profile from @samples. The pointer from profiles_get() shows it from now on.
 * Return: false, with nothing changed, if the samples are insufficient.
 */
bool profiles_take(struct profiles *profiles, unsigned int device,
		   const struct calibrate_samples *samples, uint64_t now_s);

/* A copy of a device's profile, which another thread keeps on disk */
struct profiles_copy {
	const char *folder;
	const struct executor_info *info; /* the executor's, constant */
	char key[CALIBRATE_KEY_BYTES];
	struct calibrate_cached cached;
};
void profiles_copy(const struct profiles *profiles, unsigned int device, struct profiles_copy *ret);
/* Write the copy to the cache, if there is one; log a line if that fails. Any thread. */
void profiles_copy_write(const struct profiles_copy *copy);

/*
 * Tell executors how much work fits into a part of a plan that takes at most @part_ns; see
 * executor.part_flops. Call before the first plan is prepared.
 */
void profiles_set_parts(const struct profiles *profiles, uint64_t part_ns);

DEFINE_CLEANUP(struct profiles *, profiles_free)
