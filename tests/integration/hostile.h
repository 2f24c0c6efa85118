#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A broker for a hostile client, a neighbour that computes all the while, and an observer
 *
 * hostile_begin() and hostile_end() are set-up and tear-down of a test, or of all tests of a
 * program. Whatever happens between them, the neighbour's results are right and nothing is left.
 */
#include <fcntl.h>

#include "integration/raw.h"

struct describe;

#define MIB (1ull << 20)
#define GPU RBK_DEVICE_GPU

enum { SHRINK_GROW = F_SEAL_SHRINK | F_SEAL_GROW, IMMUTABLE = SHRINK_GROW | F_SEAL_WRITE };

extern struct broker broker;
extern struct neighbour *neighbour;
extern struct rbk *observer;

/* As it was before the client came. */
extern struct rbk_stats stats_before;
extern struct broker_usage usage_before;
extern uint64_t results_before; /* of the neighbour */

int hostile_begin(void **state);
/* Likewise with @options, as of broker_start_gpu(). Return: 0. */
int hostile_begin_with(const struct broker_options *options);
int hostile_end(void **state);

/* Waits until the broker holds what it held before, and fails the test if that takes too long. */
void hostile_expect_nothing_left(void);

/* Connects and says hello. */
int hostile_session(void);

/* A session that sends one packet, and must be ended for it. */
void hostile_expect_ended(const void *bytes, size_t n_bytes, const int *fds, unsigned int n_fds);

/* PLAN_ADD of what @describe makes, which must become a plan. Frees @describe. Return: its id. */
uint32_t hostile_plan(int fd, struct describe *describe);

/* x + y = z of 16 floats each. */
struct describe *hostile_add(void);

/* Opens what @fd is of anew, with other flags, and closes @fd. Return: the descriptor. */
int hostile_reopen(int fd, int flags);
