#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A test bench for sessions
 *
 * One session of a real server with real rings, arenas, plans and a real dispatcher. Only executors
 * and residency are fakes. The fakes compute nothing: they complete tasks and answer memory
 * requests when, in the order and with the result that the test says. All code runs on the caller's
 * thread, and only in calls of the test. Errors inside the rig abort. At the end every charge must
 * be refunded, which the account asserts.
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

/* A scripted device. */
struct fake {
	struct executor executor;
	struct executor_ops ops;
	uint8_t prepare_state; /* enum plan_device_state that plans get */
	/* submissions beyond it get BUSY; completed tasks that are not reaped count */
	unsigned int capacity;

	/* Result of run_inline(), and its simulated duration. */
	int32_t inline_res;
	uint64_t inline_ns;
	unsigned int n_inline;
	void (*on_inline)(void *data); /* called as a task begins; NULL: nothing */
	void *on_inline_data;

	uint64_t row_ns; /* simulated duration of a queued task per row; 0: 1 us in all */

	/* Tasks submitted and not completed, in the order of submission. */
	struct exec_task *tasks[FAKE_MAX_TASKS];
	unsigned int n_tasks;
	/* Tasks completed and not reaped. */
	struct exec_task *done[FAKE_MAX_TASKS];
	unsigned int n_done;
	unsigned int n_submitted; /* tasks submitted since the beginning */
	unsigned int n_flushed;
};

/* The client's side of a ring. */
struct rig_ring {
	struct session_ring *ring; /* session's ring, valid until it is freed */
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

	/* Members of rig_run(). */
	void (*client)(void *data);
	void *client_data;
	atomic_bool is_client_done;
	int stop_fd;
	struct loop_watch *stop_watch;
};

/* Configuration of placement; for 0 and NULL, the values of rig_init() apply. */
struct rig_placement {
	const struct place_config *config;
	const struct place_profile *profiles[RIG_MAX_DEVICES];
};
void rig_init_placement(struct rig *rig, uint32_t n_devices, const struct rig_placement *placement);

/* Begin a session; device 0 runs inline. Rings never spin: they sleep as soon as they are idle. */
void rig_init(struct rig *rig, uint32_t n_devices);

/* End the session; tasks on fakes complete as cancelled. Everything must drain. */
void rig_deinit(struct rig *rig);
#define RIG(name, n_devices) SCOPED(rig, name, rig_init, rig_deinit, n_devices)

/* --- requests of the client --- */

void rig_ring_new(struct rig *rig, uint32_t n_entries, struct rig_ring *ret);
/*
 * Make a ring whose entries belong to another tenant for the dispatcher. The caller owns @tenant,
 * sets its limits, and keeps it until the rig has ended.
 */
void rig_ring_new_for(struct rig *rig, struct tenant *tenant, uint32_t n_entries,
		      struct rig_ring *ret);

/* A ring's areas as a broker leaves them when it dies */
struct rig_areas {
	int fds[2]; /* submission area, completion area */
	void *sq;   /* the client's mapping of the first; NULL: a restored ring has it */
	size_t sq_bytes;
};
/* Copy the areas, so that the ring itself can go on. */
void rig_areas_copy(const struct rig_ring *ring, struct rig_areas *ret);
void rig_areas_deinit(struct rig_areas *areas);
/* Take over a ring that had @areas and @n_entries. */
void rig_ring_restore(struct rig *rig, struct rig_areas *areas, uint32_t n_entries,
		      struct rig_ring *ret);

/* Unmap and close the client's side. */
void rig_ring_deinit(struct rig_ring *ring);
/* Set all four indices on both sides, as if that many entries had passed. Idle rings only. */
void rig_ring_set_index(struct rig_ring *ring, uint32_t index);

/* Return the slot of a new fixed arena; with @immutable it is sealed against writing. */
struct session_arena *rig_arena_new(struct rig *rig, uint64_t bytes, bool immutable);
/* Return the slot of a new arena of the memfd @fd, which is not fixed. The caller keeps @fd. */
struct session_arena *rig_arena_of(struct rig *rig, int fd, uint64_t bytes);
/* Return a memfd that arenas accept; with @immutable it is sealed against writing. */
int rig_memfd(uint64_t bytes, bool immutable);

/* Prepare a plan. Frees @describe. */
struct session_plan *rig_plan_new(struct rig *rig, struct describe *describe);
/* Prepare the plan y = Relu(x), both [count,16]; with @queued it never runs inline. */
struct session_plan *rig_relu(struct rig *rig, bool queued);

/*
 * Wait for the answer to a request.
 * Return: its result.
 */
int rig_answer(struct rig *rig, uint32_t type, void *reply, size_t bytes);
/* Do as rig_answer(); *ret_fd is the answer's descriptor, or -1. */
int rig_answer_fd(struct rig *rig, uint32_t type, void *reply, size_t bytes, int *ret_fd);
/*
 * Turn the loop and let the setup thread run.
 * Return: true if an answer has come.
 */
bool rig_has_answer(struct rig *rig);

/* --- other connections --- */

int rig_connect_path(const char *path);
int rig_connect(const struct rig *rig);
/* Connect as another user, after opening the socket to all users; needs root. */
int rig_connect_as(const struct rig *rig, uid_t uid);
/*
 * Send a message of no bytes that carries the descriptor @what.
 * Return: 0; -1 with errno.
 */
ssize_t rig_try_send_empty(int fd, int what);
/* Do as rig_try_send_empty(), which must succeed: the kernel permits it, see closers_take_fds(). */
void rig_send_empty(int fd, int what);
/*
 * Receive all answers that have come.
 * Return: their number.
 */
unsigned int rig_count_answers(int fd);

/* --- entries and completions --- */

/* Write an entry and publish it. The ring must have room. */
void rig_put(struct rig_ring *ring, const struct rbk_sqe *sqe);
/*
 * Consume the next completion.
 * Return: false if there is none.
 */
bool rig_take(struct rig_ring *ring, struct rbk_cqe *ret);

/* --- the dispatcher, on this thread --- */

/*
 * Run the dispatcher until it has nothing to do.
 * Return: the number of entries and tasks handled.
 */
unsigned int rig_work(struct rig *rig);
/* Return the dispatcher's private part of a ring. */
struct dispatch_ring *rig_dispatch_ring(const struct rig_ring *ring);
/* Settle the server and turn the loop until the server has nothing left to settle. */
void rig_settle(struct rig *rig);

/*
 * A job that closes something, and blocks an account's closer thread until rig_unstick(); with
 * rig_stick_live() one that closes nothing.
 */
struct rig_stuck {
	struct closers_job job;
	sem_t gate;
};
void rig_stick(struct rig *rig, struct account *account, struct rig_stuck *stuck);
void rig_stick_live(struct rig *rig, struct account *account, struct rig_stuck *stuck);
void rig_unstick(struct rig_stuck *stuck);

/*
 * Run the dispatcher on this thread and @client in its own thread. When @client returns, end both,
 * and the session. At most once per rig.
 */
void rig_run(struct rig *rig, void (*client)(void *data), void *data);

/* --- fakes --- */

uint64_t fake_user_data(const struct exec_task *task);
/*
 * Begin this task on the executor.
 * Return: false if the task is not on the executor, or was cancelled.
 */
bool fake_begin(struct fake *fake, uint64_t user_data);
/*
 * Complete a task with @res, or with -ECANCELED if it was cancelled before it began. The task can
 * then be reaped.
 */
void fake_finish(struct fake *fake, uint64_t user_data, int32_t res);
/* Do as fake_finish() with the @i-th of the fake's tasks. */
void fake_finish_at(struct fake *fake, unsigned int i, int32_t res);
/* Complete all tasks of the fake, in order. */
void fake_finish_all(struct fake *fake, int32_t res);
