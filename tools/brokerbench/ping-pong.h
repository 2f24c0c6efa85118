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
	int pong_fd; /* wakes us */
	pid_t pid;
};

#define PING_PONG_INIT     \
	{                  \
		-1, -1, -1 \
	}

/* Starts the other process, pinned to @cpu. Return: 0; negative errno. */
int ping_pong_init(struct ping_pong *ping_pong, int cpu);
void ping_pong_deinit(struct ping_pong *ping_pong);

/* Both sides wake once. Return: 0; negative errno. */
int ping_pong_once(const struct ping_pong *ping_pong);
