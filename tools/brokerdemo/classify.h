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

struct classifier;

struct classify_options {
	const char *socket_path; /* NULL: the library's default */
	unsigned int strategy;   /* of every task: enum rbk_strategy */
	unsigned int batch;      /* images of a task, 1..CLASSIFY_MAX_BATCH */
	/* Called after each task with the number of images done so far; nonzero ends the run. */
	int (*progress)(void *data, struct classifier *classifier, size_t n_done);
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

/* What the client's tenant has of device memory, and where the classifier's plan stands. */
struct classify_memory {
	struct rbk_tenant tenant;
	struct rbk_plan_memory plan; /* on RBK_DEVICE_GPU */
};

/*
 * Connects to a broker and prepares the search among @train for all of @images; both are borrowed.
 * Where tasks may run follows from the strategy: "only" prepares the plan for that kind of device.
 * Return: 0; a negative errno, with a sentence in @error.
 */
int classifier_new(const struct classify_options *options, const struct images *train,
		   const struct images *images, struct classifier **ret, struct rbk_error *error);
/* Accepts NULL. Return: NULL. */
struct classifier *classifier_free(struct classifier *classifier);

/*
 * Classifies all images once; can be repeated until it fails.
 * Return: 0; a negative errno, with a sentence in @error; what progress() returned.
 */
int classifier_run(struct classifier *classifier, struct classify_result *ret,
		   struct rbk_error *error);

/*
 * Asks the broker about memory; also while classifier_run() is in progress().
 * Return: 0; -ENODEV without a GPU, or another negative errno, with a sentence in @error.
 */
int classifier_memory(struct classifier *classifier, struct classify_memory *ret,
		      struct rbk_error *error);
