#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Agents of time-lease: Vulkan programs in processes of their own
 *
 * The layer reads its environment once in a process, so each agent is a child of this one. It does
 * what it is told (lease-program.h) and ends with this process.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lease-program.h"
#include "samples.h"
#include "util/cleanup.h"

struct lease_agent;

/*
 * Start an agent and wait until it has its device. If it fails, @said gets the reason.
 * Return: 0; an error of lease_program_run(); another negative errno.
 */
int lease_agent_new(const struct lease_program *program, struct lease_agent **ret, char *said,
		    size_t said_bytes);

/* End the agent and wait for its end. Return: NULL. */
struct lease_agent *lease_agent_free(struct lease_agent *agent);

/* Return true if the agent's device is a renderer on the CPU. */
bool lease_agent_is_cpu(const struct lease_agent *agent);

/* Return the reason why a call has failed, a sentence without a period. */
const char *lease_agent_said(const struct lease_agent *agent);

/*
 * Have the agent measure for @ns and add its samples.
 * Return: 0; a negative errno, and the agent is of no more use.
 */
int lease_agent_measure(struct lease_agent *agent, enum lease_action action, uint64_t ns,
			struct samples *samples);

/*
 * Have the agent keep its device busy, until lease_agent_rest() adds the rate with which it did
 * so. In between the agent takes no other command.
 * Return: as lease_agent_measure().
 */
int lease_agent_work(struct lease_agent *agent);
int lease_agent_rest(struct lease_agent *agent, struct samples *samples);

DEFINE_CLEANUP(struct lease_agent *, lease_agent_free)
