#pragma once
/* SPDX-License-Identifier: MIT */
/* A broker for one command when none runs */
#include "command.h"

struct broker_process;

enum run_device { RUN_AUTO, RUN_CPU, RUN_GPU, RUN_PREFER_GPU, RUN_PARTITION };

/*
 * Read the device from --device, which is @option of the command.
 * Return: EXIT_OK, or EXIT_USAGE after a message that lists the valid values.
 */
int private_broker_device(const struct arguments *arguments, enum option_id option,
			  enum run_device *ret);
/*
 * Start a broker with the given devices and connect to it. The caller ends the broker with
 * broker_process_free(), also after a failure.
 * Return: EXIT_*, after an error message if it is not EXIT_OK.
 */
int private_broker_start(struct control *control, enum run_device device,
			 struct broker_process **ret);
/*
 * Report that --device=gpu was given but there is no GPU. @broker: the private broker, or NULL.
 * Return: EXIT_USAGE.
 */
int private_broker_no_gpu(const struct broker_process *broker);
