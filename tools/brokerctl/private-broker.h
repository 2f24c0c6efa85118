#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A broker for one command, where none runs
 */
#include "command.h"

struct broker_process;

enum run_device { RUN_AUTO, RUN_CPU, RUN_GPU };

/*
 * What --device says, which is @option of that command. Return: EXIT_OK; EXIT_USAGE, having said
 * what it may be.
 */
int private_broker_device(const struct arguments *arguments, enum option_id option,
			  enum run_device *ret);
/*
 * Starts one with those devices, and connects to it. It is the caller's, who ends it with
 * broker_process_free(), also after a failure. Return: EXIT_*, having said why.
 */
int private_broker_start(struct control *control, enum run_device device,
			 struct broker_process **ret);
/* --device=gpu where there is none; @broker: the private one, or NULL. Return: EXIT_USAGE. */
int private_broker_no_gpu(const struct broker_process *broker);
