#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Threads for what clients can make last
 *
 * Closing a descriptor that came from a client, or receiving one, can take as long as the client
 * likes. A few threads, "rb-closer", do that; each account has one of them at a time, so whoever
 * keeps its thread busy keeps only itself waiting. A thread that is busy for long is taken to be
 * stuck, and another one is started in its place: there can be as many as accounts with jobs, or as
 * the process has descriptors for. Reactor, but for run().
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "util/cleanup.h"
#include "util/list.h"

struct account;
struct closers;
struct closers_lane;
struct loop;

/* Embedded in the caller's object, which must live until done() was called. */
struct closers_job {
	void (*run)(struct closers_job *job);  /* one of the threads; may block */
	void (*done)(struct closers_job *job); /* reactor; may free the job */
	/* The pool's. */
	struct closers_lane *lane;
	struct list_node link;
};

/* @loop must outlive it. Return: 0; negative errno, as offload_new(). */
int closers_new(struct loop *loop, struct closers **ret);

/* Return how many threads there can be, as the limit of open files is: each has one. Any thread. */
unsigned int closers_max_threads(void);

/* Waits for all jobs, however long they take. Return: NULL. */
struct closers *closers_free(struct closers *closers);

/* Jobs of one account run in order. */
void closers_submit(struct closers *closers, struct account *account, struct closers_job *job);

/*
 * Is a thread busy with one job for so long that whoever ends need not wait for it? Nothing but the
 * kernel can end that; the process can.
 */
bool closers_is_stuck(const struct closers *closers);

/* Jobs that were submitted and are not done. */
uint64_t closers_n_jobs(const struct closers *closers);

struct closers_report {
	uint32_t n_threads, n_threads_max;
	uint32_t n_stuck;      /* threads now that have been at one job for too long */
	uint64_t n_waiting;    /* jobs that no thread has begun */
	uint64_t n_ever_stuck; /* jobs that were found to take a thread for too long */
};

/* Report what the threads are at. Reactor. */
void closers_describe(struct closers *closers, struct closers_report *ret);

/* A message and all of its descriptors: the kernel closes none of them. */
enum { CLOSERS_MESSAGE_FDS = 253 /* the kernel's SCM_MAX_FD */ };
struct closers_message {
	ssize_t n_bytes; /* negative: none was received, and error says why */
	int error;
	int flags; /* MSG_TRUNC, MSG_CTRUNC: too few descriptors were left to the process */
	bool has_control;
	unsigned int n_fds;
	int fds[CLOSERS_MESSAGE_FDS];
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * CLOSERS_MESSAGE_FDS) +
					      CMSG_SPACE(32)];
};

/* Receives a message of a Unix socket, without waiting. run(). Return: ret->n_fds, the caller's. */
unsigned int closers_receive(int fd, struct iovec *iov, struct closers_message *ret);

/* Closes a descriptor that came from a client, after telling a socket not to linger. run(). */
void closers_close(int fd);

/*
 * Closes a connection of ours, which must be a Unix socket, after receiving and closing what is
 * under way to us. run().
 */
void closers_hang_up(int fd);

/* Linux 6.16; the C library may be older. */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/*
 * Has the kernel take descriptors from the peer of a connection, or refuse them with EPERM; on a
 * listening socket, of all connections that come in there later. Never take them away from a
 * connection that had them. Return: false before Linux 6.16, which always takes them.
 */
bool closers_take_fds(int fd, bool takes);

/*
 * May there be descriptors in messages that were not received over such a connection, which the
 * peer can send nothing to any more? If not, it can be closed by any thread. Reactor.
 */
bool closers_may_have_fds(int fd);

DEFINE_CLEANUP(struct closers *, closers_free)
