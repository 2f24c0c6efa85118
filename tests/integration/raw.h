#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A client without the library
 *
 * Speaks the control protocol and the rings directly, so that tests can say what the library never
 * would. For cmocka tests: the functions that return nothing fail the running test.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ringbroker/abi.h>

#include "integration/harness.h"
#include "shm/wire.h"

/* Connects without a word. Return: the socket. */
int raw_connect(const struct broker *broker);

/* Sends one packet with descriptors. Return: as sendmsg(), with -errno. */
ssize_t raw_send(int fd, const void *bytes, size_t n_bytes, const int *fds, unsigned int n_fds);

/*
 * Receives one packet; descriptors beyond *n_fds are closed.
 * Return: its length; 0 at the end of the connection; -ETIME.
 */
ssize_t raw_receive(int fd, void *bytes, size_t n_bytes, int *fds, unsigned int *n_fds,
		    unsigned int timeout_ms);

/* Sends a request and waits for its answer, of which the head goes to @reply. */
void raw_ask(int fd, const void *request, size_t n_bytes, const int *fds, unsigned int n_fds,
	     void *reply, size_t reply_bytes);

void raw_hello(int fd);

/* The broker must close the connection within ten seconds, answers in between are skipped. */
void raw_expect_closed(int fd);

/* A ring as its client holds it. */
struct raw_ring {
	uint32_t id;
	uint32_t n_entries;
	int sq_fd, cq_fd, bell;
	size_t sq_bytes, cq_bytes;
	struct rbk_sq_area *sq;
	const struct rbk_cq_area *cq;
	uint32_t tail, head; /* entries published, completions consumed */
};

void raw_ring_add(int fd, uint32_t n_entries, struct raw_ring *ret);
void raw_ring_close(struct raw_ring *ring);

/* The next entry's place. There must be room. */
struct rbk_sqe *raw_ring_next(struct raw_ring *ring);
/* Publishes what raw_ring_next() gave and rings the bell if the broker sleeps. */
void raw_ring_publish(struct raw_ring *ring);
/* Spins for a completion, ten seconds at most. Return: false without one. */
bool raw_ring_take(struct raw_ring *ring, struct rbk_cqe *ret);

/* A memfd of @bytes, allocated unless @is_sparse, then sealed. */
int raw_memfd(size_t bytes, bool is_sparse, unsigned int seals);

/* ARENA_ADD. Return: the result; *ret_id if 0, *ret_text (RBK_WIRE_TEXT_BYTES) may be NULL. */
int raw_arena_add(int fd, int memfd, uint64_t bytes, uint32_t *ret_id, char *ret_text);

/* PLAN_ADD with an inline description. Return: the result. */
int raw_plan_add(int fd, const void *desc, size_t desc_bytes, uint32_t *ret_id);

/* RING_REMOVE, ARENA_REMOVE, PLAN_REMOVE. Return: the result. */
int raw_remove(int fd, enum rbk_wire_type type, uint32_t id);
