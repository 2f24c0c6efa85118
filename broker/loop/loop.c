/* SPDX-License-Identifier: MIT */
/*
 * The event loop on io_uring
 *
 * A watch is one poll request and a small state machine. Most poll requests are multishot: they
 * stay until they are cancelled. A multishot request costs the reactor kernel time for each event,
 * however many arrive. Therefore a descriptor whose events a client can cause has a request for one
 * event at a time. The request ends with its event, and its watch is IDLE until loop_rewatch().
 *
 * A change of a watch does not reach the kernel at once. The watch joins the list of changes. The
 * next turn converts the list into submission entries, as many as fit, and enters the kernel once.
 * So loop_watch(), loop_rewatch() and loop_unwatch() cost no system call, and a full submission
 * queue cannot make them fail.
 *
 *	IDLE -> ADD -> ARMED -> CANCEL -> CANCELLING -> IDLE
 *	         ^      |                     |
 *	         +------+---------------------+  the kernel ended a request that is still needed
 *	         |      v
 *	         +--- FAILED                     the kernel lacked memory: retried after retry_ns
 *
 * Invariants:
 * - A watch has at most one request in the kernel, whose user_data is the watch's address. The
 * completion without IORING_CQE_F_MORE is the request's last. The watch's memory is freed at that
 * completion only, or at once if the kernel has no request.
 * - The kernel takes submission entries in order. A cancellation that was queued before the last
 * completion was seen thus runs before any request of a later watch at the same address, and finds
 * no request.
 * - Watches are cancelled with ASYNC_CANCEL, which always ends a poll. POLL_REMOVE returns
 * -EALREADY and leaves the poll armed if an event is being delivered at that moment.
 * - A kernel that is out of completion entries ends a multishot poll (-ECANCELED up to 6.1, the
 * events themselves later). The loop adds the poll again; adding checks the descriptor's state, so
 * no event is lost.
 *
 * Timers are a binary heap. One TIMEOUT request stands for the nearest deadline. It is moved to an
 * earlier deadline and otherwise left alone: a request that fires too early runs no timer.
 */
#include "loop/loop.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop/turn.h"
#include "util/clock.h"
#include "util/error.h"

enum {
	LOOP_SQ_ENTRIES = 256,
	LOOP_CQ_ENTRIES = 4096,
	/* Watch changes per turn. Adding a watch takes the kernel up to a microsecond. */
	LOOP_CHANGES = 64,
	/* Handlers get 1 / LOOP_PART of a turn's budget. */
	LOOP_PART = 2,
};

/* Marks functions that most turns do not call, so that idle turns do not save their registers. */
#define OUT_OF_LINE __attribute__((__noinline__))

enum watch_state {
	WATCH_IDLE,       /* the kernel has no request */
	WATCH_ADD,        /* in the list of changes, to be added */
	WATCH_ARMED,      /* the kernel has a request */
	WATCH_CANCEL,     /* in the list of changes, to be cancelled */
	WATCH_CANCELLING, /* cancellation queued, last completion pending */
	WATCH_FAILED,     /* in the list of failed watches, to be added again */
};

struct loop_watch {
	struct loop *loop;
	loop_watch_fn fn;
	void *data;
	int fd;
	uint32_t events;
	enum watch_state state;
	bool is_once;                                 /* added again by loop_rewatch() only */
	bool is_closed;                               /* unwatched; freed at the last completion */
	struct loop_watch *change_prev, *change_next; /* in one of the loop's lists */
	struct loop_watch *all_prev, *all_next;
};

struct loop_timer {
	struct loop *loop;
	loop_timer_fn fn;
	void *data;
	uint64_t deadline_ns;
	size_t position; /* in the heap; SIZE_MAX: not armed */
};

struct watch_list {
	struct loop_watch *first, *last;
};

struct loop {
	struct io_uring ring;
	struct turn turn;
	struct watch_list changes;
	struct watch_list failed; /* the kernel had no memory for their requests */
	struct loop_timer *retry; /* armed while a watch is in the failed list */
	struct loop_watch *all;
	size_t n_watches; /* watches that are not closed */

	struct loop_timer **heap; /* has room for all n_timers timers */
	size_t heap_used, heap_room, n_timers;
	struct __kernel_timespec timeout;
	uint64_t timeout_ns; /* deadline of the kernel's request */
	bool timeout_armed;
};

/* user_data of requests without a watch. A watch's address is aligned, hence neither 0 nor 1. */
static const uint64_t loop_data_ignore = 0;
static const uint64_t loop_data_timeout = 1;

/* Delay before the loop repeats a request for which the kernel had no memory */
static const uint64_t retry_ns = 10000000;

/* ---- Lists of changes and of failed watches ---- */

__attribute__((__unused__)) static bool is_listed(const struct loop_watch *watch)
{
	return watch->state == WATCH_ADD || watch->state == WATCH_CANCEL ||
	       watch->state == WATCH_FAILED;
}

static struct watch_list *list_of(struct loop *loop, enum watch_state state)
{
	return state == WATCH_FAILED ? &loop->failed : &loop->changes;
}

static void change_link(struct loop_watch *watch, enum watch_state state)
{
	struct watch_list *list = list_of(watch->loop, state);

	assert(!is_listed(watch));
	watch->state = state;
	watch->change_prev = list->last;
	watch->change_next = NULL;
	if (list->last)
		list->last->change_next = watch;
	else
		list->first = watch;
	list->last = watch;
}

static void change_unlink(struct loop_watch *watch, enum watch_state state)
{
	struct watch_list *list = list_of(watch->loop, watch->state);

	assert(is_listed(watch));
	watch->state = state;
	if (watch->change_prev)
		watch->change_prev->change_next = watch->change_next;
	else
		list->first = watch->change_next;
	if (watch->change_next)
		watch->change_next->change_prev = watch->change_prev;
	else
		list->last = watch->change_prev;
}

static void watch_destroy(struct loop_watch *watch)
{
	assert(watch->is_closed);
	if (watch->all_prev)
		watch->all_prev->all_next = watch->all_next;
	else
		watch->loop->all = watch->all_next;
	if (watch->all_next)
		watch->all_next->all_prev = watch->all_prev;
	free(watch);
}

/* ---- Timer heap ---- */

static void heap_place(struct loop *loop, size_t position, struct loop_timer *timer)
{
	loop->heap[position] = timer;
	timer->position = position;
}

/* Move @timer from the free place @position to its place in the heap. */
static void heap_sift(struct loop *loop, size_t position, struct loop_timer *timer)
{
	size_t other;

	while (position > 0) {
		other = (position - 1) / 2;
		if (loop->heap[other]->deadline_ns <= timer->deadline_ns)
			break;
		heap_place(loop, position, loop->heap[other]);
		position = other;
	}
	for (;;) {
		other = 2 * position + 1;
		if (other >= loop->heap_used)
			break;
		if (other + 1 < loop->heap_used &&
		    loop->heap[other + 1]->deadline_ns < loop->heap[other]->deadline_ns)
			other++;
		if (loop->heap[other]->deadline_ns >= timer->deadline_ns)
			break;
		heap_place(loop, position, loop->heap[other]);
		position = other;
	}
	heap_place(loop, position, timer);
}

static void heap_remove(struct loop *loop, struct loop_timer *timer)
{
	size_t position = timer->position;
	struct loop_timer *last = loop->heap[--loop->heap_used];

	timer->position = SIZE_MAX;
	if (last != timer)
		heap_sift(loop, position, last);
}

/* ---- Loop ---- */

static void on_retry(void *data)
{
	struct loop *loop = data;
	struct loop_watch *watch;

	while ((watch = loop->failed.first)) {
		change_unlink(watch, WATCH_IDLE);
		change_link(watch, WATCH_ADD);
	}
}

/*
 * Let the ring do for ever only what this file asks for. A filter of system calls does not see what
 * a ring does, which could otherwise open files and make sockets. A kernel that does not restrict
 * rings still serves. Return: 0; negative errno.
 */
static int restrict_ring(struct io_uring *ring)
{
	struct io_uring_restriction allowed[] = {
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_POLL_ADD},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_TIMEOUT},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_TIMEOUT_REMOVE},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_ASYNC_CANCEL},
		{.opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED,
		 .sqe_flags = IOSQE_CQE_SKIP_SUCCESS},
	};

	/* liburing 2.3 declares functions for these calls, and does not export them. */
	(void)syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_RESTRICTIONS, allowed,
		      sizeof(allowed) / sizeof(allowed[0]));
	return syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL,
		       0) < 0
		       ? -errno
		       : 0;
}

int loop_new(struct loop **ret)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_R_DISABLED |
			 IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN |
			 IORING_SETUP_TASKRUN_FLAG,
		.cq_entries = LOOP_CQ_ENTRIES,
	};
	_cleanup_(freep) struct loop *loop = NULL;
	int r;

	loop = calloc(1, sizeof(*loop));
	if (!loop)
		return error_origin(-ENOMEM);

	r = io_uring_queue_init_params(LOOP_SQ_ENTRIES, &loop->ring, &params);
	if (r == -EINVAL) {
		/* A kernel before 6.0: fewer flags, and an interrupt for each completion. */
		params = (struct io_uring_params){
			.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_R_DISABLED,
			.cq_entries = LOOP_CQ_ENTRIES,
		};
		r = io_uring_queue_init_params(LOOP_SQ_ENTRIES, &loop->ring, &params);
	}
	if (r < 0)
		return error_origin(r);

	r = restrict_ring(&loop->ring);
	if (r < 0)
		r = error_origin(r);
	else
		r = loop_timer_new(loop, on_retry, loop, &loop->retry);
	if (r) {
		io_uring_queue_exit(&loop->ring);
		free(loop->heap);
		return error_fold(r);
	}
	turn_init(&loop->turn, TURN_BUDGET_US * 1000ull);
	/* Programs that brokerd starts must not inherit the ring. */
	io_uring_ring_dontfork(&loop->ring);
	*ret = steal_ptr(loop);
	return 0;
}

struct loop *loop_free(struct loop *loop)
{
	if (!loop)
		return NULL;

	loop->retry = loop_timer_free(loop->retry);
	assert(loop->n_watches == 0);
	assert(loop->n_timers == 0);
	/* The kernel holds the addresses of closed watches but does not read through them. */
	io_uring_queue_exit(&loop->ring);
	while (loop->all)
		watch_destroy(loop->all);
	free(loop->heap);
	free(loop);
	return NULL;
}

struct turn *loop_current(struct loop *loop)
{
	return &loop->turn;
}

/* ---- Watches ---- */

static int watch_new(struct loop *loop, int fd, uint32_t events, bool is_once, loop_watch_fn fn,
		     void *data, struct loop_watch **ret)
{
	struct loop_watch *watch;

	assert(fd >= 0);
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return error_origin(-ENOMEM);

	*watch = (struct loop_watch){
		.loop = loop,
		.fn = fn,
		.data = data,
		.fd = fd,
		.events = events,
		.is_once = is_once,
		.all_next = loop->all,
	};
	if (loop->all)
		loop->all->all_prev = watch;
	loop->all = watch;
	loop->n_watches++;
	change_link(watch, WATCH_ADD);
	*ret = watch;
	return 0;
}

int loop_watch(struct loop *loop, int fd, uint32_t events, loop_watch_fn fn, void *data,
	       struct loop_watch **ret)
{
	return watch_new(loop, fd, events, false, fn, data, ret);
}

int loop_watch_once(struct loop *loop, int fd, uint32_t events, loop_watch_fn fn, void *data,
		    struct loop_watch **ret)
{
	return watch_new(loop, fd, events, true, fn, data, ret);
}

void loop_rewatch(struct loop_watch *watch)
{
	assert(!watch->is_closed);
	switch (watch->state) {
	case WATCH_IDLE:
		change_link(watch, WATCH_ADD);
		break;
	case WATCH_ARMED:
		/* A one-event request has checked the descriptor, and ended if it was ready. */
		if (!watch->is_once)
			change_link(watch, WATCH_CANCEL);
		break;
	case WATCH_ADD:
	case WATCH_CANCEL:
	case WATCH_CANCELLING:
	case WATCH_FAILED:
		/* The watch is going to be added, which checks the descriptor. */
		break;
	}
}

struct loop_watch *loop_unwatch(struct loop_watch *watch)
{
	if (!watch)
		return NULL;

	assert(!watch->is_closed);
	watch->is_closed = true;
	watch->loop->n_watches--;
	switch (watch->state) {
	case WATCH_ADD:
	case WATCH_FAILED:
		change_unlink(watch, WATCH_IDLE);
		watch_destroy(watch);
		break;
	case WATCH_IDLE:
		watch_destroy(watch);
		break;
	case WATCH_ARMED:
		change_link(watch, WATCH_CANCEL);
		break;
	case WATCH_CANCEL:
	case WATCH_CANCELLING:
		break;
	}
	return NULL;
}

static bool is_for_want_of_memory(int32_t res)
{
	return res == -ENOMEM || res == -ENOBUFS || res == -EAGAIN;
}

/*
 * Handle a completion of @watch's request.
 * Return: 1 if the handler ran, else 0.
 */
static int watch_complete(struct loop_watch *watch, int32_t res, uint32_t flags)
{
	bool is_last = !(flags & IORING_CQE_F_MORE);
	uint32_t events = 0;

	if (is_last) {
		if (watch->state == WATCH_CANCEL)
			change_unlink(watch, WATCH_IDLE);
		watch->state = WATCH_IDLE;
	}
	if (watch->is_closed) {
		if (is_last)
			watch_destroy(watch);
		return 0;
	}

	if (is_last && is_for_want_of_memory(res)) {
		change_link(watch, WATCH_FAILED);
		if (watch->loop->retry->position == SIZE_MAX)
			loop_timer_arm(watch->loop->retry, retry_ns);
		return 0;
	}
	if (res > 0)
		events = (uint32_t)res;
	else if (res < 0 && res != -ECANCELED)
		events = res == -EBADF ? POLLNVAL : POLLERR;

	/*
	 * Link before the handler runs: it may unwatch, which unlinks the watch. Do not add again
	 * after an error, which would repeat for ever.
	 */
	if (is_last && (res == -ECANCELED || (res >= 0 && !watch->is_once)))
		change_link(watch, WATCH_ADD);
	if (!events)
		return 0;
	watch->fn(watch->data, events);
	return 1;
}

/* ---- Timers ---- */

int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret)
{
	struct loop_timer *timer, **heap;
	size_t room;

	/* Grow the heap here, so that arming cannot fail. */
	if (loop->n_timers == loop->heap_room) {
		room = loop->heap_room ? 2 * loop->heap_room : 16;
		heap = reallocarray(loop->heap, room, sizeof(struct loop_timer *));
		if (!heap)
			return error_origin(-ENOMEM);
		loop->heap = heap;
		loop->heap_room = room;
	}

	timer = calloc(1, sizeof(*timer));
	if (!timer)
		return error_origin(-ENOMEM);

	*timer = (struct loop_timer){
		.loop = loop,
		.fn = fn,
		.data = data,
		.position = SIZE_MAX,
	};
	loop->n_timers++;
	*ret = timer;
	return 0;
}

void loop_timer_arm(struct loop_timer *timer, uint64_t delay_ns)
{
	struct loop *loop = timer->loop;
	uint64_t now_ns = clock_now_ns();

	if (timer->position != SIZE_MAX)
		heap_remove(loop, timer);
	/* The kernel takes seconds as a signed number. A deadline past INT64_MAX never comes. */
	timer->deadline_ns = delay_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + delay_ns;
	heap_sift(loop, loop->heap_used++, timer);
}

void loop_timer_disarm(struct loop_timer *timer)
{
	if (timer->position != SIZE_MAX)
		heap_remove(timer->loop, timer);
}

struct loop_timer *loop_timer_free(struct loop_timer *timer)
{
	if (!timer)
		return NULL;

	loop_timer_disarm(timer);
	timer->loop->n_timers--;
	free(timer);
	return NULL;
}

/*
 * Run expired timers until the turn has used @stop_ticks. A new kernel request covers the remaining
 * timers.
 * Return: the number of handlers run.
 */
static int timers_expire(struct loop *loop, uint64_t stop_ticks)
{
	struct turn_source outer = turn_enter(&loop->turn, RBK_TURN_TIMERS, 0);
	uint64_t now_ns = clock_now_ns();
	struct loop_timer *timer;
	int n = 0;

	/* Ends, since a handler that arms a timer gives it a later deadline. */
	while (loop->heap_used && loop->heap[0]->deadline_ns <= now_ns) {
		timer = loop->heap[0];
		heap_remove(loop, timer);
		timer->fn(timer->data);
		n++;
		if (turn_used_ticks(&loop->turn) >= stop_ticks)
			break;
	}
	turn_leave(&loop->turn, outer);
	return n;
}

/* ---- Turns ---- */

static struct io_uring_sqe *loop_sqe(struct loop *loop)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&loop->ring);

	if (sqe)
		return sqe;
	/* Where the kernel does not take all entries, the other changes wait for the next turn. */
	io_uring_submit(&loop->ring);
	return io_uring_get_sqe(&loop->ring);
}

/* Return true if no timer is armed, or the kernel wakes the loop in time for the first one. */
static inline bool timeout_is_set(const struct loop *loop)
{
	return loop->heap_used == 0 ||
	       (loop->timeout_armed && loop->timeout_ns <= loop->heap[0]->deadline_ns);
}

/* Return: false if the submission queue is full. */
static OUT_OF_LINE bool loop_push_timeout(struct loop *loop)
{
	uint64_t nearest_ns = loop->heap[0]->deadline_ns;
	struct io_uring_sqe *sqe;

	sqe = loop_sqe(loop);
	if (!sqe)
		return false;

	/* The kernel reads the deadline when the entry is submitted, so the latest value counts. */
	loop->timeout.tv_sec = (int64_t)(nearest_ns / 1000000000u);
	loop->timeout.tv_nsec = (long long)(nearest_ns % 1000000000u);
	loop->timeout_ns = nearest_ns;
	if (loop->timeout_armed) {
		/* If the request is not found, it has fired, and its completion leads back here. */
		io_uring_prep_timeout_update(sqe, &loop->timeout, loop_data_timeout,
					     IORING_TIMEOUT_ABS);
		io_uring_sqe_set_data64(sqe, loop_data_ignore);
		return true;
	}
	io_uring_prep_timeout(sqe, &loop->timeout, 0, IORING_TIMEOUT_ABS);
	io_uring_sqe_set_data64(sqe, loop_data_timeout);
	loop->timeout_armed = true;
	return true;
}

/*
 * Convert changes into submission entries.
 * Return: false if changes remain.
 */
static OUT_OF_LINE bool loop_push_changes(struct loop *loop)
{
	struct loop_watch *watch;
	struct io_uring_sqe *sqe;

	for (unsigned int n = 0; loop->changes.first; n++) {
		sqe = n < LOOP_CHANGES ? loop_sqe(loop) : NULL;
		if (!sqe)
			return false;
		watch = loop->changes.first;
		if (watch->state == WATCH_ADD) {
			change_unlink(watch, WATCH_ARMED);
			if (watch->is_once)
				io_uring_prep_poll_add(sqe, watch->fd, watch->events);
			else
				io_uring_prep_poll_multishot(sqe, watch->fd, watch->events);
			io_uring_sqe_set_data(sqe, watch);
		} else {
			change_unlink(watch, WATCH_CANCELLING);
			io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)watch, 0);
			io_uring_sqe_set_data64(sqe, loop_data_ignore);
			io_uring_sqe_set_flags(sqe, IOSQE_CQE_SKIP_SUCCESS);
		}
	}
	return true;
}

/*
 * Run the handlers of the present completions, within the turn's limit.
 * Return: the number of handlers run.
 */
static OUT_OF_LINE int loop_reap(struct loop *loop)
{
	struct turn_source outer = turn_enter(&loop->turn, RBK_TURN_OTHER, 0);
	const uint64_t stop_ticks =
		turn_used_ticks(&loop->turn) + loop->turn.budget_ticks / LOOP_PART;
	unsigned int n_ready = io_uring_cq_ready(&loop->ring);
	struct io_uring_cqe *at, cqe;
	int n = 0;

	turn_time_cpu(&loop->turn);
	for (; n_ready > 0; n_ready--) {
		if (io_uring_peek_cqe(&loop->ring, &at) < 0)
			break;
		cqe = *at;
		io_uring_cqe_seen(&loop->ring, at);
		if (cqe.user_data == loop_data_ignore)
			continue;
		if (cqe.user_data == loop_data_timeout) {
			loop->timeout_armed = false;
			n += timers_expire(loop, stop_ticks);
		} else {
			n += watch_complete((struct loop_watch *)(uintptr_t)cqe.user_data, cqe.res,
					    cqe.flags);
		}
		if (turn_used_ticks(&loop->turn) >= stop_ticks)
			break;
	}
	turn_leave(&loop->turn, outer);
	return n;
}

static OUT_OF_LINE int loop_submit(struct loop *loop)
{
	struct turn_source outer = turn_enter(&loop->turn, RBK_TURN_KERNEL, 0);
	int r;

	turn_time_cpu(&loop->turn);
	r = io_uring_submit(&loop->ring);
	turn_leave(&loop->turn, outer);
	return r;
}

/* Return true if the kernel has completions that it can deliver only when it is entered. */
static bool is_kernel_waiting(const struct loop *loop)
{
	return __atomic_load_n(loop->ring.sq.kflags, __ATOMIC_RELAXED) &
	       (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

bool loop_has_news(const struct loop *loop)
{
	return io_uring_cq_ready(&loop->ring) > 0 || is_kernel_waiting(loop);
}

int loop_turn(struct loop *loop, bool block)
{
	int r = 0;

	turn_end(&loop->turn);
	/* A change that the kernel does not know of cannot wake the loop: do not sleep then. */
	if (loop->changes.first && !loop_push_changes(loop))
		block = false;
	if (!timeout_is_set(loop) && !loop_push_timeout(loop))
		block = false;

	if (block && io_uring_cq_ready(&loop->ring) == 0) {
		turn_rest(&loop->turn);
		r = io_uring_submit_and_wait(&loop->ring, 1);
	} else if (io_uring_sq_ready(&loop->ring) > 0) {
		r = loop_submit(loop);
	}
	/* Interrupted, or short of memory or completion entries: handle present completions. */
	if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY)
		return error_origin(r);

	if (is_kernel_waiting(loop)) {
		r = io_uring_get_events(&loop->ring);
		if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY)
			return error_origin(r);
	}

	return io_uring_cq_ready(&loop->ring) ? loop_reap(loop) : 0;
}
