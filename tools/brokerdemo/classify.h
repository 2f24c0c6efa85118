#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Classifying images through brokerd
 */
#include <stddef.h>
#include <stdint.h>

#include <ringbroker.h>

#include "images.h"

enum {
	CLASSIFY_NEIGHBOURS = 5,
	CLASSIFY_MAX_BATCH = 256, /* images of one task */
	CLASSIFY_IN_FLIGHT = 2,   /* tasks: one runs while the next one waits */
};

struct classify_options {
	const char *socket_path; /* NULL: the library's default */
	unsigned int strategy;   /* of every task: enum rbk_strategy */
	unsigned int batch;      /* images of a task, 1..CLASSIFY_MAX_BATCH */
	/* Called after each task with the number of images done so far. */
	void (*progress)(void *data, size_t n_done);
	void *data;
};

struct classify_result {
	size_t n_right;         /* by CLASSIFY_NEIGHBOURS neighbours */
	size_t n_right_nearest; /* by the nearest neighbour alone */
	uint64_t fingerprint;   /* of all neighbours: see neighbours_fingerprint() */
	unsigned int n_tasks;
	unsigned int tasks[RBK_MAX_DEVICES][RBK_REASON_COUNT]; /* by device and reason */
	uint64_t prepare_ns;       /* making the arena of constants and the plan */
	uint64_t run_ns;           /* from the first submission to the last completion */
	uint64_t round_trip_ns[2]; /* p50, p99: from a task's submission to its completion */
	uint64_t exec_ns[2];       /* p50, p99: on the device */
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t constant_bytes; /* of the plan: what every device holds once */
	uint64_t host_bytes;     /* charged by the broker to all of its clients */
	uint64_t device_bytes;
	struct rbk_device devices[RBK_MAX_DEVICES];
};

/*
 * Classifies all of @images by their nearest neighbours in @train.
 * Return: 0; a negative errno, with a sentence in @error.
 */
int classify(const struct classify_options *options, const struct images *train,
	     const struct images *images, struct classify_result *ret, struct rbk_error *error);
