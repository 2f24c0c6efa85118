#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A broker for a hostile client, a neighbour that computes meanwhile, and an observer
 *
 * hostile_begin() and hostile_end() are set-up and tear-down of a test, or of all tests of a
 * program. Whatever the client does between them, the neighbour's results are right and the broker
 * frees what the client held.
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

/* The broker's figures before the hostile client connects. */
extern struct rbk_stats stats_before;
extern struct broker_usage usage_before;
extern uint64_t results_before; /* right results of the neighbour */

int hostile_begin(void **state);
/* Begin with @options, as of broker_start_gpu(). Return: 0. */
int hostile_begin_with(const struct broker_options *options);
int hostile_end(void **state);

/* Wait until the broker holds no more than before; fails the test if that takes too long. */
void hostile_expect_nothing_left(void);

/* Connect and send HELLO. */
int hostile_session(void);
/* With these features, RBK_FEAT_*. */
int hostile_session_with(uint64_t features);

/* Open a session and send one packet, for which the broker must end the session. */
void hostile_expect_ended(const void *bytes, size_t n_bytes, const int *fds, unsigned int n_fds);

/*
 * Add the plan that @describe describes, which must succeed. Frees @describe. Return: the plan's
 * id.
 */
uint32_t hostile_plan(int fd, struct describe *describe);

/* Describe x + y = z of 16 floats each. */
struct describe *hostile_add(void);

/* Open the file of @fd again with other flags, and close @fd. Return: the new descriptor. */
int hostile_reopen(int fd, int flags);
