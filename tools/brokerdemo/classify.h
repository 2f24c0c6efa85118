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
	CLASSIFY_IN_FLIGHT = 2,   /* tasks in flight: one runs while the next one waits */
};

struct classifier;

struct classify_options {
	const char *socket_path; /* NULL: the library's default */
	unsigned int strategy;   /* strategy of every task, enum rbk_strategy */
	unsigned int batch;      /* images of one task, 1..CLASSIFY_MAX_BATCH */
	/* Called after each task with the number of images done so far; nonzero ends the run. */
	int (*progress)(void *data, struct classifier *classifier, size_t n_done);
	/* as in struct rbk_options */
	void (*on_reattach)(struct rbk *rbk, const struct rbk_reattachment *about, void *data);
	void *on_reattach_data;
	void *data;
};

struct classify_result {
	size_t n_right;         /* right by the vote of CLASSIFY_NEIGHBOURS neighbours */
	size_t n_right_nearest; /* right by the nearest neighbour alone */
	uint64_t fingerprint;   /* sum of all images' neighbours_fingerprint() */
	unsigned int n_tasks;
	unsigned int tasks[RBK_MAX_DEVICES][RBK_REASON_COUNT]; /* by device and reason */
	uint64_t prepare_ns;       /* connecting, and making the arenas, the plan and the ring */
	uint64_t run_ns;           /* from the first submission to the last completion */
	uint64_t round_trip_ns[2]; /* p50, p99: from submission to completion */
	uint64_t exec_ns[2];       /* p50, p99: execution on the device */
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t constant_bytes; /* constants of the plan, held once by every device */
	uint64_t host_bytes;     /* charged by the broker to all of its clients */
	uint64_t device_bytes;
	struct rbk_device devices[RBK_MAX_DEVICES];
};

/* Device memory of the client's tenant, and the state of the classifier's plan. */
struct classify_memory {
	struct rbk_tenant tenant;
	struct rbk_plan_memory plan; /* on RBK_DEVICE_GPU */
};

/*
 * Connect to a broker and prepare to search @train for all of @images; both are borrowed. The
 * strategy determines where tasks may run: "only" prepares the plan for that kind of device alone.
 * Return: 0; a negative errno, with a sentence in @error.
 */
int classifier_new(const struct classify_options *options, const struct images *train,
		   const struct images *images, struct classifier **ret, struct rbk_error *error);
/*
 * Free a classifier, or accept NULL.
 * Return: NULL.
 */
struct classifier *classifier_free(struct classifier *classifier);

/*
 * Classify all images once. The call can be repeated until it fails.
 * Return: 0; a negative errno, with a sentence in @error; the nonzero result of progress().
 */
int classifier_run(struct classifier *classifier, struct classify_result *ret,
		   struct rbk_error *error);

/*
 * Ask the broker about memory. progress() may call this function, too.
 * Return: 0; -ENODEV without a GPU, or another negative errno, with a sentence in @error.
 */
int classifier_memory(struct classifier *classifier, struct classify_memory *ret,
		      struct rbk_error *error);
