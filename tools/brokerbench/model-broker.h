#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A broker in this process, over devices that only take time
 *
 * Everything of brokerd but its devices, telemetry and policy file: for benches that compare two
 * ways of deciding, or that look at the reactor's own time. Several may run side by side, as long
 * as clients come and go one after the other.
 */
#include <stdbool.h>
#include <stdint.h>

#include "dispatch/dispatch.h"
#include "memory/residency.h"
#include "model-executor.h"

struct model_broker;

struct model_broker_options {
	enum residency_policy policy;
	struct model_options devices[RBK_MAX_DEVICES]; /* index and waker are filled in */
	uint32_t n_devices;

	/*
	 * Bytes of device 1 that programs outside hold, @elapsed_ns after model_broker_run();
	 * NULL: none. They are there some ten milliseconds after the broker has seen them coming,
	 * if @is_told.
	 */
	uint64_t (*outside)(uint64_t elapsed_ns);
	bool is_told;
};

/* The calling thread is the broker's: the functions below are its alone, unless they say else. */
/* Return: 0 or negative errno. */
int model_broker_new(const struct model_broker_options *options, struct model_broker **ret);

/*
 * Serves @client, which runs in a thread of its own, until it returns; then nothing of the broker
 * is left in the file system, so that later clients cannot connect.
 * Return: what @client returned, or negative errno.
 */
int model_broker_serve(struct model_broker *broker, int (*client)(void *data), void *data);

/* Serves as brokerd does, until somebody stops it. Once. Return: 0 or negative errno. */
int model_broker_run(struct model_broker *broker);
/* Any thread, once, in the lifetime of the broker. */
void model_broker_stop(struct model_broker *broker);

const char *model_broker_socket(const struct model_broker *broker);
struct executor *model_broker_device(const struct model_broker *broker, unsigned int index);
struct dispatch *model_broker_dispatch(const struct model_broker *broker);
struct residency *model_broker_residency(const struct model_broker *broker);

/* Ends the sessions that are left. Return: NULL. */
struct model_broker *model_broker_free(struct model_broker *broker);
