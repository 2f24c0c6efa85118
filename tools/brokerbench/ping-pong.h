#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Two processes that wake each other through eventfds: the floor under every sleeping wait
 */
#include <stdint.h>
#include <sys/types.h>

#include "samples.h"

struct ping_pong {
	int ping_fd; /* wakes the child */
	int pong_fd; /* wakes this process */
	pid_t pid;
};

#define PING_PONG_INIT     \
	{                  \
		-1, -1, -1 \
	}

/*
 * Start the other process, pinned to @cpu.
 * Return: 0; a negative errno.
 */
int ping_pong_init(struct ping_pong *ping_pong, int cpu);
void ping_pong_deinit(struct ping_pong *ping_pong);

/*
 * Wake both sides once.
 * Return: 0; a negative errno.
 */
int ping_pong_once(const struct ping_pong *ping_pong);
