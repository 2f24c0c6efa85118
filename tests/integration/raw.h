#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A client without the library
 *
 * Speaks the control protocol and the rings directly, so that tests can send what the library never
 * sends. For cmocka tests: functions that return nothing fail the running test.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ringbroker/abi.h>

#include "integration/harness.h"
#include "shm/wire.h"

/* Connect without sending anything. Return: the socket. */
int raw_connect(const struct broker *broker);

/* Send one packet with descriptors. Return: the result of sendmsg(), or -errno. */
ssize_t raw_send(int fd, const void *bytes, size_t n_bytes, const int *fds, unsigned int n_fds);

/*
 * Receive one packet; descriptors beyond *n_fds are closed.
 * Return: its length; 0 at the end of the connection; -ETIME.
 */
ssize_t raw_receive(int fd, void *bytes, size_t n_bytes, int *fds, unsigned int *n_fds,
		    unsigned int timeout_ms);

/* Send a request, wait for the reply, and store the first @reply_bytes of it in @reply. */
void raw_ask(int fd, const void *request, size_t n_bytes, const int *fds, unsigned int n_fds,
	     void *reply, size_t reply_bytes);

void raw_hello(int fd);
void raw_hello_with(int fd, uint64_t features);

/*
 * Require that the broker closes the connection within ten seconds; replies before that are
 * skipped.
 */
void raw_expect_closed(int fd);

/* The client's side of a ring. */
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

/* Return the next entry's place. The ring must have room. */
struct rbk_sqe *raw_ring_next(struct raw_ring *ring);
/* Publish the entries of raw_ring_next(), and ring the doorbell if the broker sleeps. */
void raw_ring_publish(struct raw_ring *ring);
/* Spin until there is a completion, for ten seconds at most. Return: false without a completion. */
bool raw_ring_take(struct raw_ring *ring, struct rbk_cqe *ret);

/* Make a sealed memfd of @bytes, allocated unless @is_sparse. */
int raw_memfd(size_t bytes, bool is_sparse, unsigned int seals);

/*
 * Send ARENA_ADD. *ret_id is written on success; *ret_text (RBK_WIRE_TEXT_BYTES) may be NULL.
 * Return: the reply's result.
 */
int raw_arena_add(int fd, int memfd, uint64_t bytes, uint32_t *ret_id, char *ret_text);

/* Send PLAN_ADD with an inline description. Return: the reply's result. */
int raw_plan_add(int fd, const void *desc, size_t desc_bytes, uint32_t *ret_id);

/* Send RING_REMOVE, ARENA_REMOVE or PLAN_REMOVE. Return: the reply's result. */
int raw_remove(int fd, enum rbk_wire_type type, uint32_t id);
