#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Closers: threads for operations whose duration clients control
 *
 * Closing a descriptor that came from a client, or receiving one, can take as long as the client
 * wants. A pool of threads, "rb-closer", does that. Each account has at most one of them at a time,
 * so an account that keeps its thread busy delays only itself. A thread that is busy for long
 * counts as stuck, and another one is started in its place. The number of threads is bounded by the
 * accounts with jobs and by the process's descriptors. Reactor thread only, except run().
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

/* A job, embedded in the caller's object, which must live until done() was called. */
struct closers_job {
	void (*run)(struct closers_job *job);  /* pool thread; may block */
	void (*done)(struct closers_job *job); /* reactor; may free the job */
	bool closes; /* true: it ends what a client has left, whose charges end with it */
	/* Private to the pool. */
	struct closers_lane *lane;
	struct list_node link;
};

/* Create a pool; @loop must outlive it. Return: 0, or a negative errno as offload_new(). */
int closers_new(struct loop *loop, struct closers **ret);

/*
 * Return the most threads that the limit of open files permits, beside the starter: each has one
 * descriptor. Any thread.
 */
unsigned int closers_max_threads(void);

/* Free the pool after all jobs are done, however long they take. Return: NULL. */
struct closers *closers_free(struct closers *closers);

/* Submit a job. Jobs of one account run in order. */
void closers_submit(struct closers *closers, struct account *account, struct closers_job *job);

/*
 * Count a submitted job that is not done among those that close something: its done() submits a job
 * that closes what this one makes.
 */
void closers_let_close(struct closers_job *job);

/*
 * Return true if a thread has been busy with one job for so long that the ending broker need not
 * wait for it. Only the kernel can end such a job; the process can exit.
 */
bool closers_is_stuck(const struct closers *closers);

/* Return the number of jobs that were submitted and are not done. */
uint64_t closers_n_jobs(const struct closers *closers);

/* Return true if jobs of @account that close something were submitted and are not done. */
bool closers_is_closing(const struct closers *closers, const struct account *account);

struct closers_report {
	uint32_t n_threads, n_threads_max;
	uint32_t n_stuck;      /* threads that are stuck now */
	uint64_t n_waiting;    /* jobs that no thread has begun */
	uint64_t n_ever_stuck; /* jobs that were found stuck, since start */
};

/* Report on the threads. Reactor. */
void closers_describe(struct closers *closers, struct closers_report *ret);

/* A received message with all of its descriptors, none of which the kernel closed. */
enum { CLOSERS_MESSAGE_FDS = 253 /* the kernel's SCM_MAX_FD */ };
struct closers_message {
	ssize_t n_bytes; /* negative: none received; see error */
	int error;
	int flags; /* MSG_TRUNC; MSG_CTRUNC: the process had too few descriptors left */
	bool has_control;
	unsigned int n_fds;
	int fds[CLOSERS_MESSAGE_FDS];
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * CLOSERS_MESSAGE_FDS) +
					      CMSG_SPACE(32)];
};

/*
 * Receive a message of a Unix socket, without waiting. run().
 * Return: ret->n_fds, the number of descriptors, which the caller owns.
 */
unsigned int closers_receive(int fd, struct iovec *iov, struct closers_message *ret);

/* Close a descriptor that came from a client; a socket is set not to linger first. run(). */
void closers_close(int fd);

/*
 * Close a connection of ours, a Unix socket, after receiving all messages in flight to us and
 * closing their descriptors. run().
 */
void closers_hang_up(int fd);

/* Linux 6.16; the C library may be older. */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/*
 * Set whether the kernel accepts descriptors from the peer of a connection or refuses them with
 * EPERM. On a listening socket this applies to all connections accepted later. Do not revoke it
 * from a connection that had it.
 * Return: false before Linux 6.16, which always accepts descriptors.
 */
bool closers_take_fds(int fd, bool takes);

/*
 * Return true if unreceived messages of such a connection, to which the peer can send no more, may
 * have descriptors. Otherwise any thread can close it. Reactor.
 */
bool closers_may_have_fds(int fd);

DEFINE_CLEANUP(struct closers *, closers_free)
