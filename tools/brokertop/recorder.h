#pragma once
/* SPDX-License-Identifier: MIT */
/* Writing recordings: recording.h describes the file. */
#include <stdint.h>
#include <stdio.h>

#include "monitor/pages.h"

/* A page that later pages are stored as differences from. */
struct recorder_base {
	uint32_t tenant;    /* number of the tenant; 0: the root page */
	uint32_t n_moments; /* moments that refer to it */
	uint64_t offset;    /* of its struct recording_page in the file */
	uint64_t bytes;
	char *page;
};

struct recorder {
	FILE *file; /* not owned */
	uint64_t offset;
	struct recorder_base *bases;
	unsigned int n_bases;
	char *data; /* one page's difference */
	size_t n_data, n_room;
};

/* Begin a recording in an empty file. */
void recorder_init(struct recorder *recorder, FILE *file);
void recorder_deinit(struct recorder *recorder);

/*
 * Append all mapped pages.
 * Return: 0, -ENOMEM or -errno.
 */
int recorder_write(struct recorder *recorder, const struct pages *pages);
