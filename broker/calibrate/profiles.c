/* SPDX-License-Identifier: MIT */
/*
 * Profiles of the broker's devices
 *
 * Devices are measured one after the other, the CPU first, because all others are compared with it.
 * Each may use half of the remaining budget, the last device all of it. Rates for which there was
 * no time are inferred (calibrate/calibrate.h), and measured later (daemon/refresh-profiles.h).
 */
#include "calibrate/profiles.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "vulkan/vulkan.h"

/* Drivers, clocks and cooling change over time. */
static const uint64_t max_age_s = 7 * 24 * 3600;

enum origin { UNKNOWN, CACHED, MEASURED, GIVEN };

struct device_profile {
	struct calibrate_cached cached;
	enum origin origin;
	char key[CALIBRATE_KEY_BYTES];
};

struct profiles {
	struct profiles_options options;
	struct device_profile devices[RBK_MAX_DEVICES];
	struct calibrate_samples samples; /* of the device being measured */
};

static struct executor *executor_of(const struct profiles *profiles, uint32_t device)
{
	return profiles->options.executors[device];
}

/*
 * Describe a device with the link that clients' tensors cross: directly from arenas by the card's
 * copy engine, or copied twice if the card cannot access arenas.
 */
static void describe(struct executor *executor, struct calibrate_device *ret)
{
	struct vulkan_rates rates = {.has_queue = false};
	const struct vulkan_rate *rate = &rates.staged;

	if (executor->info.kind != EXECUTOR_CPU)
		vulkan_rates(executor, &rates);
	if (rates.arena.up_bytes_per_s > 0 && rates.arena.down_bytes_per_s > 0)
		rate = &rates.arena;
	calibrate_describe(executor, (float)rate->up_bytes_per_s / 1e9f,
			   (float)rate->down_bytes_per_s / 1e9f, ret);
}

/* Set the power, which probes cannot measure, from the options. */
static void set_watts(struct profiles *profiles, uint32_t device)
{
	struct place_profile *profile = &profiles->devices[device].cached.profile;
	float watts = executor_of(profiles, device)->info.kind == EXECUTOR_GPU
			      ? profiles->options.gpu_watts
			      : profiles->options.cpu_watts;

	profile->active_watts = watts / (float)profile->n_servers;
}

/* ---- The cache ---- */

static bool read_cache(struct profiles *profiles, uint32_t device)
{
	struct device_profile *at = &profiles->devices[device];
	const struct executor_info *info = &executor_of(profiles, device)->info;
	const char *folder = profiles->options.folder, *why;
	char file[CALIBRATE_FILE_BYTES];
	int r;

	if (!folder || profiles->options.mode == PROFILES_NOW)
		return false;
	r = calibrate_cache_read(folder, info, at->key, &at->cached, &why);
	if (r == 0) {
		at->origin = CACHED;
		set_watts(profiles, device);
		executor_set_tiles(executor_of(profiles, device), &at->cached.tiles);
	}
	calibrate_cache_file(info, file);
	if (r == CALIBRATE_CACHE_E_REFUSED)
		log_info_of(LOG_OF_DEVICE(device), LOG_PROFILE_DISCARDED,
			    "device %u is measured again, because %s/%s cannot be used: %s", device,
			    folder, file, why);
	return r == 0;
}

void profiles_copy(const struct profiles *profiles, unsigned int device, struct profiles_copy *ret)
{
	const struct device_profile *at = &profiles->devices[device];

	*ret = (struct profiles_copy){.folder = profiles->options.folder,
				      .info = &executor_of(profiles, device)->info,
				      .cached = at->cached};
	memcpy(ret->key, at->key, sizeof(ret->key));
}

void profiles_copy_write(const struct profiles_copy *copy)
{
	int r;

	if (!copy->folder)
		return;
	r = calibrate_cache_write(copy->folder, copy->info, copy->key, &copy->cached);
	if (r)
		log_info(LOG_PROFILE_NOT_KEPT, "cannot keep the profile of %s in %s: %s",
			 copy->info->name, copy->folder, strerror(-r));
}

/* ---- Measuring ---- */

static bool take(struct profiles *profiles, uint32_t device,
		 const struct calibrate_samples *samples, uint64_t now_s, bool is_complete)
{
	struct device_profile *at = &profiles->devices[device];
	struct calibrate_device description;

	describe(executor_of(profiles, device), &description);
	if (!calibrate_fit(&description, samples, &at->cached.profile))
		return false;
	set_watts(profiles, device);
	executor_get_tiles(executor_of(profiles, device), &at->cached.tiles);
	at->cached.measured_s = now_s;
	at->cached.is_complete = is_complete;
	at->origin = MEASURED;
	return true;
}

bool profiles_take(struct profiles *profiles, unsigned int device,
		   const struct calibrate_samples *samples, uint64_t now_s)
{
	return take(profiles, device, samples, now_s, true);
}

uint32_t profiles_stale(const struct profiles *profiles, uint64_t now_s)
{
	uint32_t devices = 0;

	for (uint32_t i = 0; i < profiles->options.n_executors; i++) {
		const struct device_profile *at = &profiles->devices[i];

		if (profiles->options.mode == PROFILES_NONE || at->origin == GIVEN)
			continue;
		/* A time in the future was set while the clock was wrong. */
		if (at->origin == UNKNOWN || !at->cached.is_complete ||
		    at->cached.measured_s > now_s || now_s - at->cached.measured_s > max_age_s)
			devices |= 1u << i;
	}
	return devices;
}

/*
 * Measure a device.
 * Return: 0, also if measuring failed; -ENOMEM.
 */
static int measure(struct profiles *profiles, uint32_t device, uint64_t end_ns)
{
	const struct calibrate_world world = calibrate_world_real(profiles->options.waker);
	struct profiles_copy copy;
	int r;

	profiles->samples.measured = 0;
	r = calibrate_measure(&world, executor_of(profiles, device), end_ns, &profiles->samples);
	if (r == -ENOMEM)
		return error_fold(r);
	if (r) {
		log_warning_of(LOG_OF_DEVICE(device), LOG_DEVICE_NOT_MEASURED,
			       "cannot measure device %u: %s", device, strerror(-r));
		return 0;
	}
	if (take(profiles, device, &profiles->samples, (uint64_t)time(NULL), false)) {
		profiles_copy(profiles, device, &copy);
		profiles_copy_write(&copy);
	}
	return 0;
}

static int measure_all(struct profiles *profiles, uint32_t devices)
{
	uint64_t end_ns = clock_now_ns() + profiles->options.budget_ns, now_ns;
	int r;

	for (uint32_t i = 0; i < profiles->options.n_executors; i++) {
		if (!(devices >> i & 1))
			continue;
		now_ns = clock_now_ns();
		if (now_ns < end_ns && devices >> i > 1)
			now_ns += (end_ns - now_ns) / 2;
		else
			now_ns = end_ns;
		r = measure(profiles, i, now_ns);
		if (r)
			return error_fold(r);
	}
	return 0;
}

static void say_origins(const struct profiles *profiles, uint64_t ns)
{
	static const char *const words[] = {[UNKNOWN] = "not measured",
					    [CACHED] = "cached",
					    [MEASURED] = "measured",
					    [GIVEN] = "given"};
	char line[RBK_MAX_DEVICES * 32];
	size_t n = 0;

	for (uint32_t i = 0; i < profiles->options.n_executors && n < sizeof(line); i++)
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%sdevice %u %s", i ? ", " : "",
				      i, words[profiles->devices[i].origin]);
	log_info(LOG_PROFILES_READY, "profiles in %u ms: %s", (unsigned int)(ns / 1000000), line);
}

int profiles_new(const struct profiles_options *options, struct profiles **ret)
{
	_cleanup_(profiles_freep) struct profiles *profiles = calloc(1, sizeof(*profiles));
	uint64_t begin_ns = clock_now_ns();
	uint32_t missing = 0;
	int r;

	if (!profiles)
		return error_origin(-ENOMEM);
	profiles->options = *options;
	for (uint32_t i = 0; i < options->n_executors; i++) {
		if (!options->given[i])
			continue;
		profiles->devices[i].cached.profile = *options->given[i];
		profiles->devices[i].origin = GIVEN;
		set_watts(profiles, i);
	}
	if (options->mode != PROFILES_NONE) {
		for (uint32_t i = 0; i < options->n_executors; i++) {
			if (profiles->devices[i].origin == GIVEN)
				continue;
			calibrate_cache_key(&options->executors[i]->info, RINGBROKER_VERSION,
					    profiles->devices[i].key);
			if (!read_cache(profiles, i))
				missing |= 1u << i;
		}
		r = measure_all(profiles, missing);
		if (r)
			return error_fold(r);
		say_origins(profiles, clock_now_ns() - begin_ns);
	}
	*ret = steal_ptr(profiles);
	return 0;
}

struct profiles *profiles_free(struct profiles *profiles)
{
	free(profiles);
	return NULL;
}

const struct place_profile *profiles_get(const struct profiles *profiles, unsigned int device)
{
	const struct device_profile *at = &profiles->devices[device];

	return at->origin == UNKNOWN ? NULL : &at->cached.profile;
}

void profiles_set_parts(const struct profiles *profiles, uint64_t part_ns)
{
	/* Operators that do more with each byte are about this much slower than addition. */
	const double slowest = 0.1;
	const unsigned int class = PLACE_SIZE_CLASSES - 1;

	for (uint32_t i = 0; i < profiles->options.n_executors; i++) {
		const struct place_profile *profile = profiles_get(profiles, i);
		struct executor *executor = executor_of(profiles, i);

		if (!profile)
			continue;
		executor->part_flops =
			(uint64_t)((double)part_ns *
				   (double)profile->rates[OP_FAMILY_MATMUL][class].flops_per_ns);
		executor->part_bytes =
			(uint64_t)((double)part_ns * slowest *
				   (double)profile->rates[OP_FAMILY_ELEMENTWISE][class]
					   .bytes_per_ns);
	}
}
