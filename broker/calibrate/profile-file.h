#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Profiles as files
 *
 * A profile is an ini file, written by people for simulated devices, or by brokerd for devices that
 * it has measured. ringbroker-profile(5) has the format:
 *
 *	[device]
 *	name = AMD Radeon RX 580 Series
 *	source = https://www.techpowerup.com/gpu-specs/radeon-rx-580.c2938
 *	servers = 1
 *	task = 12us
 *	node = 1.5us
 *	memory = 8GiB
 *	active-watts = 150
 *
 *	[link]
 *	up = 6.2 GB/s
 *	down = 6 GB/s
 *	latency = 8us
 *
 *	[rates]
 *	matmul.flops = 4KiB:20, 2MiB:900, 128MiB:2600 GFLOP/s
 *	others.flops = 1 TFLOP/s
 *	others.bytes = 180 GB/s
 *
 * A file is read and checked as a whole, as policies are: the result is a valid profile, or
 * sentences that name each error and its line. Any thread.
 */
#include <stddef.h>
#include <stdio.h>

#include "place/profile.h"

enum {
	PLACE_PROFILE_E_INVALID = 1, /* the sentences say what is wrong */
	PLACE_PROFILE_FILE_BYTES = 1 << 16,
};

/*
 * Read the profile in a file; *ret is valid then, otherwise untouched.
 * Return: 0; PLACE_PROFILE_E_INVALID, with sentences in *ret_errors ("FILE:LINE: KEY: what is
 * wrong; what is allowed", one a line, each with a line break, to be freed), also if there is no
 * such file; -ENOMEM.
 */
int place_profile_load(const char *path, struct place_profile *ret, char **ret_errors);

/* Parse @n_text bytes of @text as place_profile_load() does; errors call the file @name. */
int place_profile_parse(const char *name, const char *text, size_t n_text,
			struct place_profile *ret, char **ret_errors);

/*
 * Write a valid profile so that reading it gives the same figures, to the last bit. Characters that
 * a name cannot have in a file (control characters, ';') become '?'. Errors stay in @stream.
 */
void place_profile_write(FILE *stream, const struct place_profile *profile);
