#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Measured profiles, kept on disk
 *
 * One file per device in the folder of compiled pipelines. It is a profile file
 * (ringbroker-profile(5)), which brokersim can read as it is, with comments at its top that state
 * its key and its age. A bad file or folder costs a measurement and a line in the log, no more.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "place/profile.h"
#include "plan/executor.h"

enum {
	CALIBRATE_CACHE_E_ABSENT = 1,  /* no file */
	CALIBRATE_CACHE_E_REFUSED = 2, /* the file cannot be used */
	CALIBRATE_KEY_BYTES = 512,
};

/*
 * Write the key of a profile: the device, its driver, its level of instructions or memory paths,
 * the number of its threads, and @version of the measuring broker.
 */
void calibrate_cache_key(const struct executor_info *info, const char *version,
			 char ret[static CALIBRATE_KEY_BYTES]);

struct calibrate_cached {
	struct place_profile profile;
	uint64_t measured_s; /* since 1970 */
	bool is_complete;    /* no probe was left out for lack of time */
	/* The fastest found; guesses if the profile is not complete */
	struct exec_tiles tiles;
};

/*
 * Read the profile kept for @key of a device. Any thread.
 * Return: 0; CALIBRATE_CACHE_E_ABSENT; CALIBRATE_CACHE_E_REFUSED, with a phrase in @ret_why;
 * -ENOMEM.
 */
int calibrate_cache_read(const char *folder, const struct executor_info *info, const char *key,
			 struct calibrate_cached *ret, const char **ret_why);

/*
 * Keep a valid profile in place of the device's earlier one, atomically. Any thread.
 * Return: 0; negative errno.
 */
int calibrate_cache_write(const char *folder, const struct executor_info *info, const char *key,
			  const struct calibrate_cached *cached);

/* Write the name of a device's file in the folder. */
enum { CALIBRATE_FILE_BYTES = 48 };
void calibrate_cache_file(const struct executor_info *info, char ret[static CALIBRATE_FILE_BYTES]);
