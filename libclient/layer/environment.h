#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What a program's environment says of its lease
 *
 * Read once per process, when the program first asks for a device's memory. Paths are not taken
 * from the environment of a program that has more rights than who started it.
 */
#include <stdbool.h>
#include <stdint.h>

struct environment {
	uint32_t lease; /* RINGBROKER_LEASE: the number of one to join; 0: one of its own */
	uint64_t min_bytes, wish_bytes, max_bytes; /* else, as in struct rbk_lease_options */
	uint64_t wait_ns;                          /* RINGBROKER_LEASE_WAIT; 0: not at all */
	const char *log_path;                      /* RINGBROKER_LEASE_LOG; "-": stderr; NULL */
	char error[256]; /* why there can be no lease; "": nothing is wrong */
};

void environment_read(struct environment *ret);

/* "4GiB", "1.5G", "4096". Return: false, and *ret_bytes is untouched, if @text is no size. */
bool environment_parse_size(const char *text, uint64_t *ret_bytes);

/* "30s", "500ms", "2min", "1.5", which is seconds. Return: likewise. */
bool environment_parse_duration(const char *text, uint64_t *ret_ns);
