#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A session on the bench
 *
 * One session of a real server with real rings, arenas, plans and a real dispatcher; only the
 * executors and residency are fakes, which run nothing and finish tasks when, in the order and with
 * the result that the test says, and answer wishes for memory likewise. Everything happens on the
 * caller's thread, and nothing moves unless the test calls. What goes wrong in here aborts. Ends
 * with every charge undone, which the account asserts.
 */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dispatch/dispatch-private.h"
#include "session/closers.h"
#include "session/server-private.h"
#include "support/describe.h"
#include "support/fake-residency.h"
#include "tenant/tenant.h"
#include "util/waker.h"

enum { RIG_MAX_DEVICES = 3, FAKE_MAX_TASKS = 4096 };

/* A device that does as it is told. */
struct fake {
	struct executor executor;
	struct executor_ops ops;
	uint8_t prepare_state; /* enum plan_device_state that plans get */
	unsigned int capacity; /* BUSY beyond it; tasks that are done and not reaped count */

	/* run_inline: the result, and how long it seems to take. */
	int32_t inline_res;
	uint64_t inline_ns;
	unsigned int n_inline;

	uint64_t row_ns; /* how long a queued task seems to take, for each row; 0: 1 us in all */

	/* Submitted and not finished, in the order of submission. */
	struct exec_task *tasks[FAKE_MAX_TASKS];
	unsigned int n_tasks;
	/* Finished and not reaped. */
	struct exec_task *done[FAKE_MAX_TASKS];
	unsigned int n_done;
	unsigned int n_submitted; /* ever */
	unsigned int n_flushed;
};

/* The client's side of a ring. */
struct rig_ring {
	struct session_ring *ring; /* until it is freed */
	struct rbk_sq_area *sq;
	const struct rbk_cq_area *cq;
	size_t sq_bytes, cq_bytes;
	int bell;
	uint32_t n_entries;
	uint32_t sq_tail, cq_head;
};

struct rig {
	struct loop *loop;
	struct waker waker;
	struct offload *offload;
	struct account_book *book;
	struct tenants *tenants;
	struct residency *residency;
	struct server *server;
	struct session *session;
	struct dispatch *dispatch;
	struct fake fakes[RIG_MAX_DEVICES];
	struct executor *executors[RIG_MAX_DEVICES];
	int fd; /* the client's end of the connection */
	uint32_t next_cookie;
	char directory[32];
	char socket_path[64];

	/* rig_run() */
	void (*client)(void *data);
	void *client_data;
	atomic_bool is_client_done;
	int stop_fd;
	struct loop_watch *stop_watch;
};

/* What tests may ask of the dispatcher; 0 and NULL: what rig_init() gives. */
struct rig_placement {
	const struct place_config *config;
	const struct place_profile *profiles[RIG_MAX_DEVICES];
};
void rig_init_placement(struct rig *rig, uint32_t n_devices, const struct rig_placement *placement);

/* Device 0 runs inline. Rings never spin: they sleep as soon as they are idle. */
void rig_init(struct rig *rig, uint32_t n_devices);

/* Ends the session; tasks that fakes have come back cancelled. Everything must drain. */
void rig_deinit(struct rig *rig);
#define RIG(name, n_devices) SCOPED(rig, name, rig_init, rig_deinit, n_devices)

/* --- what a client asks for --- */

void rig_ring_new(struct rig *rig, uint32_t n_entries, struct rig_ring *ret);
/*
 * A ring whose entries are another tenant's, as far as the dispatcher can tell; @tenant is the
 * caller's, with its limits set, until the rig has ended.
 */
void rig_ring_new_for(struct rig *rig, struct tenant *tenant, uint32_t n_entries,
		      struct rig_ring *ret);
/* Unmaps and closes the client's side. */
void rig_ring_deinit(struct rig_ring *ring);
/* All four indices, on both sides, as if that many entries had gone through. Idle rings only. */
void rig_ring_set_index(struct rig_ring *ring, uint32_t index);

/* Return: the slot of the new arena, which is fixed; with @immutable sealed against writing. */
struct session_arena *rig_arena_new(struct rig *rig, uint64_t bytes, bool immutable);
/* One that is not fixed, of the memfd @fd, which stays the caller's. */
struct session_arena *rig_arena_of(struct rig *rig, int fd, uint64_t bytes);
/* A memfd as arenas need it; with @immutable sealed against writing. */
int rig_memfd(uint64_t bytes, bool immutable);

/* Frees @describe. */
struct session_plan *rig_plan_new(struct rig *rig, struct describe *describe);
/* y = Relu(x), both [count,16], with @queued never inline. */
struct session_plan *rig_relu(struct rig *rig, bool queued);

/* The answer to a request, waited for: its result. */
int rig_answer(struct rig *rig, uint32_t type, void *reply, size_t bytes);
/* The same with its descriptor, or -1. */
int rig_answer_fd(struct rig *rig, uint32_t type, void *reply, size_t bytes, int *ret_fd);
/* Is there an answer yet? Turns the loop, and the setup thread has its time. */
bool rig_has_answer(struct rig *rig);

/* --- other connections --- */

int rig_connect_path(const char *path);
int rig_connect(const struct rig *rig);
/* As another user, who may; needs root. */
int rig_connect_as(const struct rig *rig, uid_t uid);
/* Sends @what in a message without a byte. Return: 0; -1 with errno. */
ssize_t rig_try_send_empty(int fd, int what);
/* The same, which must not fail: the kernel lets it, see closers_take_fds(). */
void rig_send_empty(int fd, int what);
/* Receives all answers that have come. Return: how many. */
unsigned int rig_count_answers(int fd);

/* --- entries and completions --- */

/* Writes an entry and publishes it. There must be room. */
void rig_put(struct rig_ring *ring, const struct rbk_sqe *sqe);
/* The next completion, consumed. Return: false if there is none. */
bool rig_take(struct rig_ring *ring, struct rbk_cqe *ret);

/* --- the dispatcher, on this thread --- */

/* Works until there is nothing to do. Return: entries and tasks handled. */
unsigned int rig_work(struct rig *rig);
/* The dispatcher's private part of a ring. */
struct dispatch_ring *rig_dispatch_ring(const struct rig_ring *ring);
/* Settles the server and turns the loop until the server has nothing left to settle. */
void rig_settle(struct rig *rig);

/* A job that keeps the thread of closers.h busy which an account has, until rig_unstick(). */
struct rig_stuck {
	struct closers_job job;
	sem_t gate;
};
void rig_stick(struct rig *rig, struct account *account, struct rig_stuck *stuck);
void rig_unstick(struct rig_stuck *stuck);

/*
 * Runs the dispatcher here, beside @client in a thread of its own, and ends both when that returns;
 * the session, too. Once.
 */
void rig_run(struct rig *rig, void (*client)(void *data), void *data);

/* --- fakes --- */

uint64_t fake_user_data(const struct exec_task *task);
/* The executor starts this task. Return: false if it is not there, or was cancelled. */
bool fake_begin(struct fake *fake, uint64_t user_data);
/* It ends with @res, -ECANCELED if it was cancelled before it began, and can be reaped. */
void fake_finish(struct fake *fake, uint64_t user_data, int32_t res);
/* All that it has, in order. */
void fake_finish_all(struct fake *fake, int32_t res);
