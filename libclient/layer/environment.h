#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Settings of a lease in a program's environment
 *
 * The environment is read once per process, when the program first queries a device's memory. A
 * program with more rights than the user who started it ignores paths in the environment.
 */
#include <stdbool.h>
#include <stdint.h>

struct environment {
	uint32_t lease; /* RINGBROKER_LEASE: the lease to join; 0: open a new one */
	/* for a new lease, as in struct rbk_lease_options */
	uint64_t min_bytes, wish_bytes, max_bytes;
	/* The device's time is shared: RINGBROKER_LEASE_PRIORITY, _SHARE or _MAX_PART is set. */
	bool is_sharing;
	bool has_priority; /* RINGBROKER_LEASE_PRIORITY is set; else the lease's page may have one
			    */
	uint32_t priority; /* enum rbk_priority */
	uint32_t share;    /* RINGBROKER_LEASE_SHARE: of its tenant's time; 0: not set */
	bool has_max_part; /* RINGBROKER_LEASE_MAX_PART: command buffers are always divided */
	uint64_t max_part_ns; /* longest part of a command buffer */
	uint64_t wait_ns;     /* RINGBROKER_LEASE_WAIT; 0: do not wait */
	bool is_movable;      /* RINGBROKER_LEASE_SLEEP: memory goes to host memory on demand */
	const char *log_path; /* RINGBROKER_LEASE_LOG; "-": stderr; NULL: no log */
	char error[256];      /* reason why no lease is possible; "": none */
};

void environment_read(struct environment *ret);

/*
 * Parse a size: "4GiB", "1.5G", "4096". Return: false if @text is not a size; *ret_bytes is then
 * unchanged.
 */
bool environment_parse_size(const char *text, uint64_t *ret_bytes);

/*
 * Parse a priority: "urgent", "normal", "background". Return: false if @text is none;
 * *ret_priority, an enum rbk_priority, is then unchanged.
 */
bool environment_parse_priority(const char *text, uint32_t *ret_priority);

/*
 * Parse a duration: "30s", "500ms", "2min", or seconds, "1.5". Return: false if @text is not a
 * duration; *ret_ns is then unchanged.
 */
bool environment_parse_duration(const char *text, uint64_t *ret_ns);
