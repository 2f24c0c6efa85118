#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Indirect buffers: the commands of a submission
 *
 * The simulator computes nothing, but counts the workgroups that a submission dispatches, from
 * which its time follows.
 */
#include "client.h"
#include <stdint.h>

/*
 * Count the workgroups that the commands at @address of the client's GPU address space dispatch,
 * with those of buffers that they chain to. An indirect dispatch counts as one workgroup. Commands
 * that are in no mapped buffer count nothing. Lock held.
 */
uint64_t sim_ib_groups(struct sim_card *card, uint32_t slot, uint64_t address, uint64_t bytes);
