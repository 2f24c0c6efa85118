/* SPDX-License-Identifier: MIT */
/*
 * libclient/ring-hot.c and shm/ring.h: the real client against a broker that moves entries as
 * dispatch/ does. No side sleeps while it has work, and each entry completes once.
 *
 * The client's system calls are replaced below: its bell is a weak_bell, its clock stands still.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdalign.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "libclient/private.h"
#include "models/weak-memory.h"
#include "models/weak-scenarios.h"
#include "shm/ring.h"

enum { MAX_ENTRIES = 2, BELL_FD = 100 };

static alignas(128) char sq_bytes[RBK_SQ_AREA_BYTES(MAX_ENTRIES)];
static alignas(128) char cq_bytes[RBK_CQ_AREA_BYTES(MAX_ENTRIES)];
static struct rbk_sq_area *const sq = (struct rbk_sq_area *)sq_bytes;
static struct rbk_cq_area *const cq = (struct rbk_cq_area *)cq_bytes;
static struct weak_bell client_bell, broker_bell;
static struct rbk rbk;
static struct rbk_ring ring;
static struct client_ring_cold cold;
static uint32_t n_entries, n_wanted;
static bool may_be_unfenced;

/* --- What the client calls --- */

ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
	weak_check(fd == BELL_FD);
	weak_bell_ring(&broker_bell);
	return (ssize_t)n;
}

ssize_t recv(int fd, void *bytes, size_t n, int flags)
{
	weak_check(fd == BELL_FD);
	if (weak_bell_hear(&client_bell, !(flags & MSG_DONTWAIT)))
		return 1;
	errno = EAGAIN;
	return -1;
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *signals)
{
	weak_check(!"a wait without a time limit does not poll");
	return -1;
}

int sched_getcpu(void)
{
	return 0;
}

int prctl(int operation, ...)
{
	return 0;
}

int client_ring_recover(struct rbk_ring *lost)
{
	weak_check(!"the broker is alive");
	return -ECONNRESET;
}

uint64_t client_now_ns(void)
{
	return 1;
}

/* --- The broker --- */

static struct {
	uint32_t sq_head, cq_tail, sleep_token, rung_token;
	bool sleeps;
} broker;

static bool has_work(void)
{
	const uint32_t unread = broker.cq_tail - rbk_ring_observe(&sq->cq_head);

	return rbk_ring_observe(&sq->sq_tail) != broker.sq_head && unread < n_entries;
}

/* Complete an entry, like dispatch_poll_ring(), ring_publish() and run_wake(). */
static void answer(void)
{
	struct rbk_sqe sqe;
	uint32_t token;

	rbk_sqe_load(&sqe, &sq->sqes[broker.sq_head++ & (n_entries - 1)]);
	cq->cqes[broker.cq_tail++ & (n_entries - 1)] = (struct rbk_cqe){.user_data = sqe.user_data};
	rbk_ring_publish(&cq->sq_head, broker.sq_head);
	rbk_ring_publish(&cq->cq_tail, broker.cq_tail);
	token = rbk_ring_sleep_token(&sq->cq_wait);
	if (token == 0 || token == broker.rung_token ||
	    !rbk_ring_is_wanted(&sq->cq_wanted, broker.cq_tail))
		return;
	broker.rung_token = token;
	weak_bell_ring(&client_bell);
}

/* Announce a sleep like ring_announce_sleep(). */
static void announce_sleep(void)
{
	rbk_ring_announce_sleep(&cq->sq_wait, ++broker.sleep_token);
	if (may_be_unfenced && !rbk_ring_has_fences(&sq->unfenced))
		weak_fence_all();
}

/* Poll and sleep like dispatch_sleep_rings() and ring_activate(). */
static void serve(void)
{
	while (broker.cq_tail < n_wanted) {
		if (broker.sleeps) {
			weak_bell_hear(&broker_bell, true);
			if (!has_work()) {
				announce_sleep();
				if (!has_work())
					continue;
			}
			rbk_ring_announce_awake(&cq->sq_wait);
			broker.sleeps = false;
		}
		if (has_work()) {
			answer();
			continue;
		}
		announce_sleep();
		if (has_work())
			rbk_ring_announce_awake(&cq->sq_wait);
		else
			broker.sleeps = true;
	}
}

/* --- The client --- */

static void begin(uint32_t entries, uint32_t wanted)
{
	may_be_unfenced = false;
	n_entries = entries;
	n_wanted = wanted;
	memset(sq_bytes, 0, sizeof(sq_bytes));
	memset(cq_bytes, 0, sizeof(cq_bytes));
	memset(&client_bell, 0, sizeof(client_bell));
	memset(&broker_bell, 0, sizeof(broker_bell));
	rbk = (struct rbk){.lost = 0};
	cold = (struct client_ring_cold){.rbk = &rbk, .bell = BELL_FD};
	ring = (struct rbk_ring){
		.sq = sq,
		.cq = cq,
		.n_entries = entries,
		.mask = entries - 1,
		.probe_in = 1000,
		.probe_every = 1000,
		.spin_is_fixed = true,
		.cold = &cold,
	};
	/* The broker sleeps on a new ring from the beginning. */
	memset(&broker, 0, sizeof(broker));
	broker.sleeps = true;
	cq->sq_wait = ++broker.sleep_token;
}

static void put(uint64_t user_data)
{
	struct rbk_sqe *sqe = rbk_get_sqe(&ring);

	weak_check(sqe);
	*sqe = (struct rbk_sqe){.user_data = user_data};
	weak_check(rbk_submit(&ring) == 1);
}

static void take(uint64_t user_data)
{
	const struct rbk_cqe *cqe;

	weak_check(rbk_wait_cqe(&ring, &cqe) == 0 && cqe->user_data == user_data);
	rbk_cq_advance(&ring, 1);
}

static void set_up_one(void)
{
	begin(1, 2);
}

static void one_by_one(void)
{
	for (uint64_t i = 1; i <= n_wanted; i++) {
		put(i);
		take(i);
	}
}

/* The broker is awake. */
static void set_up_fenced(void)
{
	begin(1, 1);
	may_be_unfenced = true;
	broker.sleeps = false;
	cq->sq_wait = 0;
}

/* Poll: a client that sleeps would look at the broker's token once more. */
static void poll_for(uint64_t user_data)
{
	const struct rbk_cqe *cqe;

	while (rbk_peek_cqe(&ring, &cqe))
		weak_wait_for_news();
	weak_check(cqe->user_data == user_data);
}

static void without_fences(void)
{
	put(1);
	poll_for(1);
}

/* Like rbk_submit() of a client that publishes often. */
static void leave_fences(void)
{
	rbk_ring_leave_fences(&sq->unfenced);
	ring.is_unfenced = true;
	without_fences();
}

static void set_up_unfenced(void)
{
	set_up_fenced();
	ring.is_unfenced = true;
	sq->unfenced = 1;
}

/* Like a client that has rung for another publication. */
static void keep_fences(void)
{
	put(1);
	rbk_ring_keep_fences(&sq->unfenced);
	ring.is_unfenced = false;
	poll_for(1);
}

static void set_up_full(void)
{
	begin(1, 2);
}

/* Publish an entry behind a completion that has not been taken: the broker has no room for it. */
static void behind_completion(void)
{
	struct rbk_sqe *sqe;

	put(1);
	while (!(sqe = rbk_get_sqe(&ring)))
		weak_wait_for_news();
	*sqe = (struct rbk_sqe){.user_data = 2};
	weak_check(rbk_submit(&ring) == 1);
	take(1);
	take(2);
}

/* An earlier wait, for more completions, was interrupted. */
static void set_up_several(void)
{
	begin(2, 2);
	sq->cq_wanted = 100;
}

static void two_at_once(void)
{
	for (uint64_t i = 1; i <= 2; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(&ring);

		weak_check(sqe);
		*sqe = (struct rbk_sqe){.user_data = i};
	}
	weak_check(rbk_submit_and_wait(&ring, 2) == 2);
	weak_check(ring.cq_tail - ring.cq_head == 2);
	take(1);
	take(2);
}

static void armed(void)
{
	for (uint64_t i = 1; i <= n_wanted; i++) {
		put(i);
		/* An event loop that waits for the descriptor. */
		while (rbk_ring_arm(&ring) == 0)
			weak_bell_hear(&client_bell, true);
		take(i);
	}
}

#define SQ(member)                                                       \
	{                                                                \
		sq_bytes + offsetof(struct rbk_sq_area, member), #member \
	}
#define CQ(member)                                                       \
	{                                                                \
		cq_bytes + offsetof(struct rbk_cq_area, member), #member \
	}

static const struct weak_name names[] = {SQ(sq_tail),
					 SQ(cq_head),
					 SQ(cq_wait),
					 SQ(slept),
					 SQ(unfenced),
					 SQ(cq_wanted),
					 SQ(processor),
					 CQ(cq_tail),
					 CQ(sq_head),
					 CQ(sq_wait),
					 CQ(closed),
					 CQ(due_ns),
					 CQ(rung_ns),
					 {&rbk.lost, "lost"},
					 {&client_bell, "client's bell"},
					 {&broker_bell, "broker's bell"},
					 {NULL, NULL}};

const struct weak_scenario weak_ring = {
	.name = "ring",
	.n_threads = 2,
	.names = names,
	.set_up = set_up_one,
	.threads = {one_by_one, serve},
};

const struct weak_scenario weak_ring_unfenced = {
	.name = "ring-unfenced",
	.n_threads = 2,
	.names = names,
	.set_up = set_up_unfenced,
	.threads = {without_fences, serve},
};

const struct weak_scenario weak_ring_leaving = {
	.name = "ring-leaving",
	.n_threads = 2,
	.names = names,
	.set_up = set_up_fenced,
	.threads = {leave_fences, serve},
};

const struct weak_scenario weak_ring_keeping = {
	.name = "ring-keeping",
	.n_threads = 2,
	.names = names,
	.set_up = set_up_unfenced,
	.threads = {keep_fences, serve},
};

const struct weak_scenario weak_ring_several = {
	.name = "ring-several",
	.n_threads = 2,
	.names = names,
	.set_up = set_up_several,
	.threads = {two_at_once, serve},
};

const struct weak_scenario weak_ring_full = {
	.name = "ring-full",
	.n_threads = 2,
	.names = names,
	.set_up = set_up_full,
	.threads = {behind_completion, serve},
};

const struct weak_scenario weak_ring_armed = {
	.name = "ring-armed",
	.n_threads = 2,
	.names = names,
	.set_up = set_up_one,
	.threads = {armed, serve},
};
