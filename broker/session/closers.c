/* SPDX-License-Identifier: MIT */
/*
 * The pool of closers.h
 *
 * A lane is the queue of one account's jobs. Lanes with jobs and without a thread wait in line for
 * a thread. Submitting a job takes no memory and cannot fail. Only the reactor touches lanes. A
 * thread is an offload with one job at a time, so that no account's job waits behind another
 * account's stuck job.
 *
 * Starting a thread maps its stack, and its end unmaps it. Both wait for threads that hold the
 * process's memory map, and one that touches a page of a memfd holds it for as long as a client
 * punches holes there. A thread of its own, the starter, therefore starts and ends the others, one
 * at a time.
 *
 * The kernel closes descriptors of a message on behalf of its receiver if the receiver has no room
 * for them. When it frees a socket, it closes those of all unread messages. Before a connection is
 * closed, all messages in flight to it are therefore received here, and each socket in them is set
 * not to linger. Descriptors that still block on closing (a file whose file system does not answer,
 * a socket within a socket) occupy the account's thread until the kernel returns.
 */
#include "session/closers.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "loop/loop.h"
#include "loop/offload.h"
#include "tenant/account.h"
#include "util/clock.h"
#include "util/error.h"

enum {
	MIN_THREADS = 4,
	/* Threads kept when idle. */
	KEPT_THREADS = 32,
	/* Accounts with jobs at the same time; beyond that, accounts share lanes. */
	MAX_LANES = 512,
	/* Each thread has a descriptor: a fraction of the process's limit, within these bounds. */
	THREADS_PART = 16,
	LEAST_MAX_THREADS = 64,
	/* Some threads remain when every lane is stuck. */
	MAX_THREADS = MAX_LANES + MIN_THREADS,
};

/* Time with one job after which a thread counts as stuck. */
static const uint64_t patience_ns = 100000000;
/* Time with one job after which the ending broker no longer waits for a thread. */
static const uint64_t stuck_ns = 500000000;

struct worker {
	struct offload_job job;
	struct closers *closers;
	struct offload *offload;
	struct closers_job *current; /* NULL: idle */
	uint64_t since_ns;
	bool is_stuck; /* the current job is stuck and was counted */
};

struct closers_lane {
	struct list_node waiting; /* jobs, oldest first */
	struct list_node line;    /* in closers.line if jobs wait and none runs */
	struct account *account;  /* counted; NULL: the lane is free */
	unsigned int n_closing;   /* jobs that close something and are not done */
	bool is_running;
};

struct closers {
	struct loop *loop;
	struct loop_timer *timer; /* armed while the line is not empty or a thread is spare */
	bool is_armed;            /* timer is armed; later events do not postpone it */
	struct list_node line;
	struct closers_lane lanes[MAX_LANES];
	unsigned int n_lanes; /* lanes ever used */
	struct worker workers[MAX_THREADS];
	unsigned int n_workers, max_workers;
	struct offload *starter;
	struct offload_job change; /* the starter's */
	bool is_changing;          /* change was submitted */
	bool is_ending;            /* the pool ends: no thread is started any more */
	struct offload *changed;   /* thread that change starts or ends */
	int start_result;
	uint64_t n_jobs;
	uint64_t n_ever_stuck;
};

/* --- closing --- */

static void set_no_linger(int fd)
{
	const struct linger none = {.l_onoff = 0};

	/* No effect on a file that is not a socket. */
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

void closers_close(int fd)
{
	set_no_linger(fd);
	close(fd);
}

/* Add credentials to each message, so that only the end of the stream has no control data. */
static bool tell_messages_apart(int fd)
{
	const int yes = 1;

	return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0;
}

bool closers_take_fds(int fd, bool takes)
{
	const int value = takes;

	return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value)) == 0;
}

/* Return false if the kernel has refused descriptors from the beginning. */
static bool takes_fds(int fd)
{
	socklen_t bytes = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, &bytes) < 0 || value;
}

bool closers_may_have_fds(int fd)
{
	struct msghdr message = {.msg_iov = NULL};

	if (!takes_fds(fd))
		return false;
	if (!tell_messages_apart(fd))
		return true;
	return recvmsg(fd, &message, MSG_DONTWAIT | MSG_PEEK) >= 0 &&
	       (message.msg_flags & MSG_CTRUNC);
}

unsigned int closers_receive(int fd, struct iovec *iov, struct closers_message *ret)
{
	struct msghdr message = {
		.msg_iov = iov,
		.msg_iovlen = 1,
		.msg_control = ret->control,
		.msg_controllen = sizeof(ret->control),
	};

	ret->n_fds = 0;
	ret->n_bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	ret->error = ret->n_bytes < 0 ? errno : 0;
	ret->flags = message.msg_flags;
	ret->has_control = ret->n_bytes >= 0 && message.msg_controllen > 0;
	if (ret->n_bytes < 0)
		return 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		const int *fds = (const int *)CMSG_DATA(c);
		size_t n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n_fds && ret->n_fds < CLOSERS_MESSAGE_FDS; i++)
			ret->fds[ret->n_fds++] = fds[i];
	}
	return ret->n_fds;
}

void closers_hang_up(int fd)
{
	struct closers_message message;
	char byte;
	bool is_over = !tell_messages_apart(fd);

	shutdown(fd, SHUT_RDWR);
	while (!is_over) {
		struct iovec iov = {.iov_base = &byte, .iov_len = 1};

		closers_receive(fd, &iov, &message);
		for (unsigned int i = 0; i < message.n_fds; i++)
			closers_close(message.fds[i]);
		is_over = message.n_bytes < 0 || !message.has_control;
	}
	close(fd);
}

/* --- the pool --- */

static void worker_run(struct offload_job *job)
{
	struct worker *worker = container_of(job, struct worker, job);

	worker->current->run(worker->current);
}

static void lane_queue(struct closers *closers, struct closers_lane *lane)
{
	if (!lane->is_running && !list_is_empty(&lane->waiting) && list_is_empty(&lane->line))
		list_append(&closers->line, &lane->line);
}

static struct worker *find_idle(struct closers *closers)
{
	for (unsigned int i = 0; i < closers->n_workers; i++)
		if (!closers->workers[i].current)
			return &closers->workers[i];
	return NULL;
}

static void arm(struct closers *closers)
{
	if (closers->is_armed || !closers->timer)
		return;
	closers->is_armed = true;
	loop_timer_arm(closers->timer, patience_ns);
}

/* Return true if the last thread is spare. Earlier threads get jobs first. */
static bool has_spare_worker(const struct closers *closers)
{
	return closers->n_workers > KEPT_THREADS &&
	       !closers->workers[closers->n_workers - 1].current;
}

/* Assign idle threads to the first lanes in line; the timer handles the lanes that remain. */
static void start(struct closers *closers)
{
	struct worker *worker;

	while (!list_is_empty(&closers->line) && (worker = find_idle(closers))) {
		struct closers_lane *lane =
			container_of(closers->line.next, struct closers_lane, line);

		worker->current = container_of(lane->waiting.next, struct closers_job, link);
		worker->since_ns = clock_now_ns();
		worker->is_stuck = false;
		list_remove(&worker->current->link);
		list_remove(&lane->line);
		lane->is_running = true;
		offload_submit(worker->offload, &worker->job);
	}
	if (!list_is_empty(&closers->line) || has_spare_worker(closers))
		arm(closers);
}

static void worker_done(struct offload_job *job)
{
	struct worker *worker = container_of(job, struct worker, job);
	struct closers *closers = worker->closers;
	struct closers_job *current = steal_ptr(worker->current);
	struct closers_lane *lane = current->lane;

	closers->n_jobs--;
	lane->n_closing -= current->closes;
	lane->is_running = false;
	account_add_closing(lane->account, job->cpu_ns);
	current->done(current);
	lane_queue(closers, lane);
	if (!lane->is_running && list_is_empty(&lane->waiting))
		lane->account = account_unref(lane->account);
	start(closers);
}

/* --- its threads --- */

/* Use the thread of @offload. */
static void worker_add(struct closers *closers, struct offload *offload)
{
	closers->workers[closers->n_workers++] = (struct worker){
		.job = {.run = worker_run, .done = worker_done},
		.closers = closers,
		.offload = offload,
	};
}

static void change_workers(struct closers *closers);

static void start_run(struct offload_job *job)
{
	struct closers *closers = container_of(job, struct closers, change);

	closers->start_result = offload_start(closers->changed, "rb-closer");
}

static void start_done(struct offload_job *job)
{
	struct closers *closers = container_of(job, struct closers, change);
	struct offload *offload = steal_ptr(closers->changed);

	closers->is_changing = false;
	/* Without a thread, the line keeps waiting, and the timer tries again. */
	if (closers->start_result) {
		offload_free(offload);
		return;
	}
	worker_add(closers, offload);
	start(closers);
	change_workers(closers);
}

static void end_run(struct offload_job *job)
{
	offload_stop(container_of(job, struct closers, change)->changed);
}

static void end_done(struct offload_job *job)
{
	struct closers *closers = container_of(job, struct closers, change);

	closers->is_changing = false;
	closers->changed = offload_free(closers->changed);
	change_workers(closers);
}

static void change(struct closers *closers, struct offload *offload,
		   void (*run)(struct offload_job *job), void (*done)(struct offload_job *job))
{
	closers->is_changing = true;
	closers->changed = offload;
	closers->change = (struct offload_job){.run = run, .done = done};
	offload_submit(closers->starter, &closers->change);
}

/* Return true if a job is stuck, and count it the first time. */
static bool worker_is_stuck(struct closers *closers, struct worker *worker, uint64_t now_ns)
{
	if (!worker->current || now_ns - worker->since_ns < patience_ns)
		return false;
	closers->n_ever_stuck += !worker->is_stuck;
	worker->is_stuck = true;
	return true;
}

/*
 * Return true if the line needs a thread: up to twice the stuck ones, but at least MIN_THREADS that
 * are not stuck.
 */
static bool wants_worker(struct closers *closers)
{
	uint64_t now_ns = clock_now_ns();
	unsigned int n_stuck = 0, n_wanted;

	for (unsigned int i = 0; i < closers->n_workers; i++)
		n_stuck += worker_is_stuck(closers, &closers->workers[i], now_ns);
	n_wanted = n_stuck + (n_stuck < MIN_THREADS ? MIN_THREADS : n_stuck);
	if (n_wanted > closers->max_workers)
		n_wanted = closers->max_workers;
	return !list_is_empty(&closers->line) && closers->n_workers < n_wanted;
}

/* Have the starter start a thread for the line, or end a spare one. */
static void change_workers(struct closers *closers)
{
	struct offload *offload;

	if (closers->is_changing || closers->is_ending)
		return;
	if (has_spare_worker(closers))
		change(closers, closers->workers[--closers->n_workers].offload, end_run, end_done);
	else if (wants_worker(closers) && offload_new_idle(closers->loop, &offload) == 0)
		change(closers, offload, start_run, start_done);
}

static void on_timer(void *data)
{
	struct closers *closers = data;

	closers->is_armed = false;
	change_workers(closers);
	start(closers);
}

/* Each account may block one thread, and other accounts still need some. */
unsigned int closers_max_threads(void)
{
	struct rlimit limit = {.rlim_cur = 0};
	rlim_t n;

	getrlimit(RLIMIT_NOFILE, &limit);
	n = limit.rlim_cur / THREADS_PART;
	n = n < LEAST_MAX_THREADS ? LEAST_MAX_THREADS : n;
	return n > MAX_THREADS ? MAX_THREADS : (unsigned int)n;
}

int closers_new(struct loop *loop, struct closers **ret)
{
	_cleanup_(closers_freep) struct closers *closers = calloc(1, sizeof(*closers));
	struct offload *offload;
	int r;

	if (!closers)
		return error_origin(-ENOMEM);
	closers->loop = loop;
	closers->max_workers = closers_max_threads();
	list_init(&closers->line);
	r = loop_timer_new(loop, on_timer, closers, &closers->timer);
	if (r == 0)
		r = offload_new_named(loop, "rb-starter", &closers->starter);
	while (r == 0 && closers->n_workers < MIN_THREADS) {
		r = offload_new_named(loop, "rb-closer", &offload);
		if (r == 0)
			worker_add(closers, offload);
	}
	if (r)
		return error_fold(r);
	*ret = steal_ptr(closers);
	return 0;
}

struct closers *closers_free(struct closers *closers)
{
	if (!closers)
		return NULL;
	closers->is_ending = true;
	/* offload_free() waits for its thread's jobs, and for jobs that these submit. */
	closers->starter = offload_free(closers->starter);
	while (closers->n_workers > 0) {
		struct worker *worker = &closers->workers[closers->n_workers - 1];

		offload_free(worker->offload);
		closers->n_workers--;
	}
	if (closers->timer)
		loop_timer_free(closers->timer);
	free(closers);
	return NULL;
}

/*
 * Return the lane of an account that has jobs, or a free one for it. If no lane is free, the
 * account shares another account's lane.
 */
static struct closers_lane *find_lane(struct closers *closers, const struct account *account)
{
	struct closers_lane *found = NULL;

	for (unsigned int i = 0; i < closers->n_lanes; i++) {
		if (closers->lanes[i].account == account)
			return &closers->lanes[i];
		if (!closers->lanes[i].account)
			found = &closers->lanes[i];
	}
	if (!found && closers->n_lanes < MAX_LANES)
		found = &closers->lanes[closers->n_lanes++];
	return found ? found : &closers->lanes[(uintptr_t)account / 64 % MAX_LANES];
}

void closers_submit(struct closers *closers, struct account *account, struct closers_job *job)
{
	struct closers_lane *lane = find_lane(closers, account);

	if (!lane->account) {
		list_init(&lane->line);
		list_init(&lane->waiting);
		lane->account = account_ref(account);
	}
	job->lane = lane;
	closers->n_jobs++;
	lane->n_closing += job->closes;
	list_append(&lane->waiting, &job->link);
	lane_queue(closers, lane);
	start(closers);
}

void closers_let_close(struct closers_job *job)
{
	job->lane->n_closing += !job->closes;
	job->closes = true;
}

bool closers_is_stuck(const struct closers *closers)
{
	const uint64_t now_ns = clock_now_ns();

	for (unsigned int i = 0; i < closers->n_workers; i++)
		if (closers->workers[i].current && now_ns - closers->workers[i].since_ns > stuck_ns)
			return true;
	return false;
}

uint64_t closers_n_jobs(const struct closers *closers)
{
	return closers->n_jobs;
}

bool closers_is_closing(const struct closers *closers, const struct account *account)
{
	for (unsigned int i = 0; i < closers->n_lanes; i++)
		if (closers->lanes[i].account == account)
			return closers->lanes[i].n_closing > 0;
	return false;
}

void closers_describe(struct closers *closers, struct closers_report *ret)
{
	const uint64_t now_ns = clock_now_ns();
	uint64_t n_busy = 0;

	*ret = (struct closers_report){
		.n_threads = closers->n_workers,
		.n_threads_max = closers->max_workers,
	};
	for (unsigned int i = 0; i < closers->n_workers; i++) {
		n_busy += closers->workers[i].current != NULL;
		ret->n_stuck += worker_is_stuck(closers, &closers->workers[i], now_ns);
	}
	ret->n_waiting = closers->n_jobs - n_busy;
	ret->n_ever_stuck = closers->n_ever_stuck;
}
