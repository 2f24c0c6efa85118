#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A broker in this process, over devices that only take time
 *
 * It is brokerd without devices, telemetry and policy file, for benches that compare two policies
 * or measure the reactor's own time. Several brokers may run side by side if clients connect and
 * disconnect one after the other.
 */
#include <stdbool.h>
#include <stdint.h>

#include "dispatch/dispatch.h"
#include "memory/residency.h"
#include "model-executor.h"

struct model_broker;
struct session_plan;

struct model_broker_options {
	enum residency_policy policy;
	struct model_options devices[RBK_MAX_DEVICES]; /* index and waker are filled in */
	uint32_t n_devices;
	bool computes; /* device 0 is not modelled: it is the processor, with one worker */

	/*
	 * Return the bytes of device 1 that other programs hold, @elapsed_ns after
	 * model_broker_run(); NULL: none. If @is_told the broker sees the bytes some ten
	 * milliseconds before they are allocated.
	 */
	uint64_t (*outside)(uint64_t elapsed_ns);
	bool is_told;
};

/*
 * The functions below belong to the calling thread, the broker's thread, unless stated otherwise.
 */
/* Return: 0 or a negative errno. */
int model_broker_new(const struct model_broker_options *options, struct model_broker **ret);

/*
 * Serve @client, which runs in a thread of its own, until it returns. Afterwards the broker has no
 * files left, so later clients cannot connect.
 * Return: the result of @client, or a negative errno.
 */
int model_broker_serve(struct model_broker *broker, int (*client)(void *data), void *data);

/*
 * Serve like brokerd until model_broker_stop(). Call at most once.
 * Return: 0 or a negative errno.
 */
int model_broker_run(struct model_broker *broker);
/* Stop model_broker_run(). Any thread, at most once in the lifetime of the broker. */
void model_broker_stop(struct model_broker *broker);

const char *model_broker_socket(const struct model_broker *broker);
struct executor *model_broker_device(const struct model_broker *broker, unsigned int index);
struct dispatch *model_broker_dispatch(const struct model_broker *broker);
struct residency *model_broker_residency(const struct model_broker *broker);

/*
 * Return the plan of a client by its id; NULL if there is none. If several clients have plans of
 * this id, it is one of them.
 */
const struct session_plan *model_broker_plan(const struct model_broker *broker, uint32_t id);

/*
 * End the remaining sessions and free the broker.
 * Return: NULL.
 */
struct model_broker *model_broker_free(struct model_broker *broker);
