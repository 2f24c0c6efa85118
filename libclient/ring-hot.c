/* SPDX-License-Identifier: MIT */
/*
 * Submitting to rings and consuming from them
 *
 * The client's indices are private and only published. The broker's indices are read with acquire,
 * checked against the client's, and cached, so that most entries touch no cache line that the
 * broker writes.
 *
 * A wait has three steps. First it polls a few hundred times without reading the clock, which
 * suffices for a small task. Then it spins for as long as a sleep and its wake-up take, unless
 * recent waits were longer. Finally it sleeps as abi.h defines: announce a token, look once more,
 * and wait for a byte through the bell. Where the broker predicts the end of the task, the wait
 * spins until a near end, and a timer ends the sleep shortly before an end that is far.
 *
 * A broker that dies sends nothing. A sleeping thread sees the end of file on the bell. A thread
 * that only peeks, counts or submits would not, so ring_tick() reads the clock now and then and,
 * when enough time has passed, checks the bell. Completions that were published before are still
 * returned: after the loss is noticed, the index is read once more. While the connection
 * re-attaches the ring is away (ring-recover.c): it works as with a broker that takes no entries.
 *
 * In a fork()ed child the struct is all zero. No entry is free, none was taken and no completion is
 * there, so each function ends in its slow path, which checks for the missing ring->cold.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include "libclient/private.h"
#include "shm/ring.h"

#define likely(x)           __builtin_expect(!!(x), 1)
#define unlikely(x)         __builtin_expect(!!(x), 0)
#define cold_path           __attribute__((__cold__, __noinline__))

#define LOOKS_WITHOUT_CLOCK 256u      /* before spinning: 0.1 to 0.3 us */
#define LOOKS_PER_CLOCK     16u       /* polls between two reads of the clock while spinning */
#define PROBE_EVERY_MAX     64u       /* calls between two reads of the clock */
#define PROBE_CLOCK_NS      10000000u /* goal: at most this time between two reads of the clock */
#define PROBE_BELL_NS       20000000u /* time between two checks of the bell */
#define BELL_DRAIN_MAX      64        /* recv() calls of one bell_drain() */
#define SPIN_TRY_AFTER      16u       /* waits without spinning before one spins again */
#define SPIN_MAX_PART       2u        /* factor of the spin limit where sleeps end late */
#define DUE_NS              3000u     /* time in which a broker that is awake begins a task */
#define DUE_CREDIT          8u        /* waits without a prediction after which none is awaited */
#define NAP_NS              5000u     /* sleep that lets a broker run on this processor */
#define CLAIM_AHEAD         12u       /* slots between the next entry and one fetched early */

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* ---- Losing the broker ---- */

/* The broker is gone, or the ring was away and may have a broker again: set ring->lost. */
static cold_path void ring_recover(struct rbk_ring *ring)
{
	ring->lost = client_ring_recover(ring);
}

/*
 * Discard the bytes in the bell. Only for a thread that does not sleep: the bytes would wake it.
 * Sets ring->lost at the end of file.
 */
static void bell_drain(struct rbk_ring *ring)
{
	char bytes[64];

	for (int i = 0; i < BELL_DRAIN_MAX; i++) {
		ssize_t n = recv(ring->cold->bell, bytes, sizeof(bytes), MSG_DONTWAIT);

		if (n > 0 || (n < 0 && errno == EINTR))
			continue;
		/* A reset is an end too: the broker died before it read this side's last byte. */
		if ((n == 0 || errno != EAGAIN) && !ring->lost)
			ring_recover(ring);
		return;
	}
}

/* Look for the end of file of an armed ring's bell, whose bytes are the event loop's. */
static void bell_check(struct rbk_ring *ring)
{
	char byte;
	ssize_t n = recv(ring->cold->bell, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	if ((n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) && !ring->lost)
		ring_recover(ring);
}

/*
 * Return true if the ring is lost for good, and set ring->lost. Checks the bell only if @and_bell.
 * The ring may be away before, after, or both: look at it afterwards.
 */
static bool ring_is_over(struct rbk_ring *ring, bool and_bell)
{
	if (ring->lost < 0)
		return true;
	if (ring->lost || __atomic_load_n(&ring->cold->rbk->lost, __ATOMIC_ACQUIRE) ||
	    __atomic_load_n(&ring->cq->closed, __ATOMIC_ACQUIRE))
		ring_recover(ring);
	else if (and_bell)
		bell_drain(ring);
	return ring->lost < 0;
}

/*
 * Tell the broker on which processor this thread is: before the thread rings or waits, and now and
 * then while it only polls. Only changes are written: the broker reads the cache line at each
 * completion.
 */
static void tell_processor(struct rbk_ring *ring)
{
	const uint32_t processor = (uint32_t)(sched_getcpu() + 1);

	if (processor == ring->processor)
		return;
	ring->processor = processor;
	__atomic_store_n(&ring->sq->processor, processor, __ATOMIC_RELAXED);
}

/*
 * Read the clock after at most PROBE_EVERY_MAX calls, more often if calls are rare, and check the
 * bell every PROBE_BELL_NS.
 */
static cold_path void ring_probe(struct rbk_ring *ring)
{
	uint64_t now_ns = client_now_ns();

	if (now_ns - ring->probe_clock_ns > PROBE_CLOCK_NS)
		ring->probe_every = 1;
	else if (ring->probe_every < PROBE_EVERY_MAX)
		ring->probe_every *= 2;
	ring->probe_in = ring->probe_every;
	ring->probe_clock_ns = now_ns;
	tell_processor(ring);
	if (now_ns - ring->probe_bell_ns > PROBE_BELL_NS) {
		ring->probe_bell_ns = now_ns;
		if (ring->armed)
			bell_check(ring);
		ring_is_over(ring, !ring->armed);
	}
}

/* Return true if the ring was looked after, and may have another broker now. */
static inline bool ring_tick(struct rbk_ring *ring)
{
	if (likely(--ring->probe_in != 0))
		return false;
	ring_probe(ring);
	return true;
}

/* Have the broker execute the fences of the next publications. */
static cold_path void leave_fences(struct rbk_ring *ring)
{
	ring->is_unfenced = true;
	rbk_ring_leave_fences(&ring->sq->unfenced);
}

/* Wake the broker if it sleeps, once per sleep. */
static inline void wake_broker(struct rbk_ring *ring)
{
	uint32_t token = ring->is_unfenced ? rbk_ring_sleep_token_unfenced(&ring->cq->sq_wait)
					   : rbk_ring_sleep_token(&ring->cq->sq_wait);

	if (likely(token == 0 || token == ring->sq_rung))
		return;
	ring->sq_rung = token;
	/* Before the next sleep there may be few publications, and a broker's fence costs more. */
	ring->n_fenced = 0;
	if (ring->is_unfenced) {
		ring->is_unfenced = false;
		rbk_ring_keep_fences(&ring->sq->unfenced);
	}
	tell_processor(ring);
	/* EAGAIN: the socket is full of bytes that will wake the broker. */
	if (send(ring->cold->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN &&
	    errno != EINTR && !ring->lost)
		ring_recover(ring);
}

/*
 * Before sleeping, wake a broker that sleeps on entries without room for their completions. Without
 * such entries the bell would only disturb the broker.
 * Return: true if the ring has another broker now, whose completions are still to be looked for.
 */
static inline bool wake_broker_for_rest(struct rbk_ring *ring)
{
	const int bell = ring->cold->bell;

	if (rbk_ring_observe(&ring->cq->sq_head) != ring->sq_published)
		wake_broker(ring);
	return unlikely(ring->cold->bell != bell);
}

/*
 * Look after a ring that a program only counts, which would otherwise count in the pages of a dead
 * broker for ever. The counts take the ring as constant, because callers regard them as reads. Only
 * here do they change it, as every function on the ring's thread may. An armed ring stays armed.
 */
static void look_after(const struct rbk_ring *counted)
{
	struct rbk_ring *ring = (struct rbk_ring *)counted;

	ring_tick(ring);
	if (unlikely(ring->lost || __atomic_load_n(&ring->cq->closed, __ATOMIC_RELAXED)))
		ring_is_over(ring, false);
}

/* ---- Submitting ---- */

static cold_path struct rbk_sqe *get_sqe_slow(struct rbk_ring *ring)
{
	uint32_t n_used;

	if (!ring->cold)
		return NULL;
	look_after(ring);
	/* Pairs with the broker's publication after it copied the entries. */
	ring->sq_head = rbk_ring_observe(&ring->cq->sq_head);
	n_used = ring->sq_tail - ring->sq_head;
	if (n_used > ring->n_entries && !ring->lost)
		ring->lost = -EPROTO;
	if (n_used >= ring->n_entries)
		return NULL;
	return &ring->sq->sqes[ring->sq_tail++ & ring->mask];
}

RBK_EXPORT struct rbk_sqe *rbk_get_sqe(struct rbk_ring *ring)
{
	if (unlikely(ring->sq_tail - ring->sq_head >= ring->n_entries))
		return get_sqe_slow(ring);
	return &ring->sq->sqes[ring->sq_tail++ & ring->mask];
}

RBK_EXPORT uint32_t rbk_sqe_index(const struct rbk_ring *ring, const struct rbk_sqe *sqe)
{
	const uint32_t slot = (uint32_t)(sqe - ring->sq->sqes), last = ring->sq_tail - 1;

	return last - ((last - slot) & ring->mask);
}

RBK_EXPORT int rbk_sqe_set_after(const struct rbk_ring *ring, struct rbk_sqe *sqe,
				 const uint32_t *indices, unsigned int n)
{
	uint16_t after[RBK_SQE_AFTER_MAX] = {0};
	uint32_t distance;

	if (!ring->cold)
		return -ECHILD;
	if (n > RBK_SQE_AFTER_MAX || sqe->opcode == RBK_OP_BARRIER ||
	    (!(sqe->flags & RBK_SQE_AFTER) &&
	     (sqe->refs[RBK_SQE_AFTER_REFS] | sqe->refs[RBK_SQE_AFTER_REFS + 1])))
		return -EINVAL;
	for (unsigned int i = 0; i < n; i++) {
		distance = rbk_sqe_index(ring, sqe) - indices[i];
		if (distance == 0 || distance > INT32_MAX)
			return -EINVAL;
		if (distance > ring->n_entries)
			return -ERANGE;
		after[i] = (uint16_t)distance;
	}
	memcpy(sqe->after, after, sizeof(after));
	if (n > 0)
		sqe->flags |= RBK_SQE_AFTER;
	else
		sqe->flags &= (uint8_t)~RBK_SQE_AFTER;
	return 0;
}

static cold_path int submit_nothing(struct rbk_ring *ring)
{
	if (!ring->cold)
		return -ECHILD;
	ring_tick(ring);
	return ring->lost && ring_is_over(ring, false) ? ring->lost : 0;
}

RBK_EXPORT int rbk_submit(struct rbk_ring *ring)
{
	uint32_t n = ring->sq_tail - ring->sq_published;

	if (unlikely(n == 0))
		return submit_nothing(ring);
	if (unlikely(ring->lost) && ring_is_over(ring, false))
		return ring->lost;
	/*
	 * A fence waits for all earlier stores. A client that publishes single entries in a row
	 * would wait for each entry's line to come from the broker's processor. A client that waits
	 * for each completion gains nothing, and the lines that it fetches would be in the way of
	 * the others. The broker's fence is paid for once the client has waited as long itself.
	 */
	if (ring->sq_tail - ring->cq_head > CLAIM_AHEAD) {
		rbk_ring_claim(&ring->sq->sqes[(ring->sq_tail + CLAIM_AHEAD) & ring->mask]);
		if (!ring->is_unfenced && ring->may_be_unfenced &&
		    ring->sq_published - ring->cq_head > CLAIM_AHEAD &&
		    ++ring->n_fenced > CLIENT_FENCES)
			leave_fences(ring);
	}
	/* Pairs with the broker's acquire load: the entries are complete. */
	rbk_ring_publish(&ring->sq->sq_tail, ring->sq_tail);
	ring->sq_published = ring->sq_tail;
	wake_broker(ring);
	if (unlikely(__atomic_load_n(&ring->cq->closed, __ATOMIC_RELAXED)) && !ring->lost)
		ring_recover(ring);
	ring_tick(ring);
	return unlikely(ring->lost < 0) ? ring->lost : (int)n;
}

RBK_EXPORT unsigned int rbk_sq_ready(const struct rbk_ring *ring)
{
	if (!ring->cold)
		return 0;
	look_after(ring);
	return ring->sq_tail - rbk_ring_observe(&ring->cq->sq_head);
}

RBK_EXPORT unsigned int rbk_sq_space_left(const struct rbk_ring *ring)
{
	unsigned int n_used = rbk_sq_ready(ring);

	return n_used < ring->n_entries ? ring->n_entries - n_used : 0;
}

/* ---- Consuming ---- */

/* End an event loop's sleep. */
static cold_path void disarm(struct rbk_ring *ring)
{
	ring->armed = false;
	rbk_ring_announce_awake(&ring->sq->cq_wait);
	bell_drain(ring);
}

/*
 * Read the broker's index of completions.
 * Return: the number that can be consumed; 0 with ring->lost set if the index is impossible.
 */
static inline uint32_t look(struct rbk_ring *ring)
{
	/* Pairs with the broker's publication after it wrote the completions. */
	uint32_t tail = rbk_ring_observe(&ring->cq->cq_tail);

	if (unlikely(tail - ring->cq_head > ring->n_entries)) {
		ring->lost = -EPROTO;
		return 0;
	}
	ring->cq_tail = tail;
	return tail - ring->cq_head;
}

/*
 * Look for completions when the last look found none. Return: 0 if there are some; errors as
 * rbk_peek_cqe().
 */
static __attribute__((__noinline__)) int refill(struct rbk_ring *ring)
{
	if (unlikely(!ring->cold))
		return -ECHILD;
	if (unlikely(ring->armed))
		disarm(ring);
	if (look(ring) > 0)
		return 0;
	if (unlikely(ring_tick(ring)) && look(ring) > 0)
		return 0;
	if (likely(!ring->lost && !__atomic_load_n(&ring->cq->closed, __ATOMIC_RELAXED)))
		return -EAGAIN;
	/* Return completions that were published before the loss was noticed. */
	ring_is_over(ring, false);
	if (ring->lost != -EPROTO && look(ring) > 0)
		return 0;
	return ring->lost < 0 ? ring->lost : -EAGAIN;
}

RBK_EXPORT int rbk_peek_cqe(struct rbk_ring *ring, const struct rbk_cqe **ret)
{
	if (ring->cq_head == ring->cq_tail) {
		int r = refill(ring);

		if (r)
			return r;
	}
	*ret = &ring->cq->cqes[ring->cq_head & ring->mask];
	return 0;
}

RBK_EXPORT int rbk_peek_batch_cqe(struct rbk_ring *ring, const struct rbk_cqe **cqes,
				  unsigned int max_cqes)
{
	uint32_t n = ring->cq_tail - ring->cq_head;

	if (n < max_cqes) {
		int r = refill(ring);

		if (r && n == 0)
			return r == -EAGAIN ? 0 : r;
		n = ring->cq_tail - ring->cq_head;
	}
	if (n > max_cqes)
		n = max_cqes;
	for (uint32_t i = 0; i < n; i++)
		cqes[i] = &ring->cq->cqes[(ring->cq_head + i) & ring->mask];
	return (int)n;
}

RBK_EXPORT const struct rbk_cqe *rbk_cq_at(struct rbk_ring *ring, unsigned int index)
{
	if (unlikely(index >= ring->cq_tail - ring->cq_head)) {
		if (refill(ring) || index >= ring->cq_tail - ring->cq_head)
			return NULL;
	}
	return &ring->cq->cqes[(ring->cq_head + index) & ring->mask];
}

RBK_EXPORT void rbk_cq_advance(struct rbk_ring *ring, unsigned int n)
{
	uint32_t n_ready = ring->cq_tail - ring->cq_head;
	bool was_full = ring->sq_published - ring->cq_head > ring->n_entries;

	if (unlikely(n > n_ready))
		n = n_ready;
	if (unlikely(n == 0))
		return;
	ring->cq_head += n;
	/* Pairs with the broker's acquire load: the slots are the broker's again. */
	rbk_ring_publish(&ring->sq->cq_head, ring->cq_head);
	/*
	 * More entries are in flight than completions have room: the broker may sleep until there
	 * is room.
	 */
	if (unlikely(was_full))
		wake_broker(ring);
}

RBK_EXPORT unsigned int rbk_cq_ready(const struct rbk_ring *ring)
{
	uint32_t n;

	if (!ring->cold)
		return 0;
	look_after(ring);
	n = rbk_ring_observe(&ring->cq->cq_tail) - ring->cq_head;
	return n <= ring->n_entries ? n : 0;
}

/* ---- Waiting ---- */

/*
 * Announce a sleep until @n completions are there, with a token that differs from the last sleep's
 * and is not 0. A nap does not count as one: the client keeps its processor busy before and after.
 */
static void announce_sleep(struct rbk_ring *ring, uint32_t n, bool is_nap)
{
	uint32_t wanted = n > 1 ? ring->cq_head + n : 0;

	if (n > 1 && wanted == 0)
		wanted--;
	if (++ring->sleep_token == 0)
		ring->sleep_token = 1;
	if (!is_nap)
		__atomic_store_n(&ring->sq->slept, ring->sleep_token, __ATOMIC_RELAXED);
	rbk_ring_want(&ring->sq->cq_wanted, wanted);
	rbk_ring_announce_sleep(&ring->sq->cq_wait, ring->sleep_token);
}

/*
 * Return the longest time that a wait spins. A wait that spins for as long as a sleep and its
 * wake-up take costs at most twice what the better of the two costs.
 */
static uint64_t spin_limit_ns(const struct rbk_ring *ring)
{
	const uint64_t most_ns = SPIN_MAX_PART * ring->spin_ns;

	if (ring->spin_is_fixed || ring->wake_lag_ns <= ring->spin_ns)
		return ring->spin_ns;
	return ring->wake_lag_ns < most_ns ? ring->wake_lag_ns : most_ns;
}

/* Return the time that this wait may spin. */
static uint64_t spin_budget_ns(struct rbk_ring *ring)
{
	const uint64_t limit_ns = spin_limit_ns(ring);

	if (ring->spin_is_fixed || ring->wait_mean_ns < limit_ns)
		return limit_ns;
	/* Spin now and then, to learn whether waits became shorter. */
	if (++ring->spin_skipped >= SPIN_TRY_AFTER) {
		ring->spin_skipped = 0;
		return limit_ns;
	}
	/* A broker that is awake soon predicts the end, if it did so lately. */
	return ring->due_credit > 0 && __atomic_load_n(&ring->cq->sq_wait, __ATOMIC_RELAXED) == 0
		       ? DUE_NS
		       : 0;
}

/*
 * Average over about eight waits. A very long wait counts as twice the limit only, so that it is
 * forgotten soon.
 */
static void learn_wait(struct rbk_ring *ring, uint64_t wait_ns)
{
	const uint64_t most_ns = 2 * spin_limit_ns(ring);

	if (wait_ns > most_ns)
		wait_ns = most_ns;
	ring->wait_mean_ns = (7 * ring->wait_mean_ns + wait_ns) / 8;
}

/* Wait until @fd is readable. Return: 0; -ETIME; -EINTR and other errors of ppoll(). */
static int sleep_on(int fd, uint64_t deadline_ns)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	struct timespec left, *timeout = NULL;
	int n;

	if (deadline_ns != CLIENT_NEVER) {
		uint64_t now_ns = client_now_ns();
		uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;

		if (left_ns == 0)
			return -ETIME;
		left.tv_sec = (time_t)(left_ns / 1000000000u);
		left.tv_nsec = (long)(left_ns % 1000000000u);
		timeout = &left;
	}
	n = ppoll(&poll_fd, 1, timeout, NULL);
	if (n < 0)
		return -errno;
	return n == 0 ? -ETIME : 0;
}

/*
 * Wait for a byte, or, if the ring is away, for the end of the re-attachment.
 * Return: 0 to look again; -ETIME; -EINTR. Sets ring->lost at the end of file.
 */
static int sleep_on_bell(struct rbk_ring *ring, uint64_t deadline_ns)
{
	char bytes[64];
	ssize_t n;
	int r;

	if (ring->lost < 0)
		return 0;
	if (ring->lost)
		return sleep_on(ring->cold->rbk->reattach.news_fd, deadline_ns);
	/* Without a deadline one system call suffices, unless the socket is non-blocking. */
	if (deadline_ns == CLIENT_NEVER) {
		n = recv(ring->cold->bell, bytes, sizeof(bytes), 0);
		if (n > 0)
			return 0;
		if (n < 0 && errno == EINTR)
			return -EINTR;
		if (n == 0 || errno != EAGAIN) {
			ring_recover(ring);
			return 0;
		}
	}
	r = sleep_on(ring->cold->bell, deadline_ns);
	if (!r)
		bell_drain(ring);
	return r;
}

/* Wait asleep. Return: 0 once @n completions are there; errors as rbk_wait_cqe_timeout(). */
static cold_path int wait_asleep(struct rbk_ring *ring, uint32_t n, uint64_t deadline_ns,
				 bool is_nap)
{
	int r = 0;

	while (!r) {
		announce_sleep(ring, n, is_nap);
		if (ring_is_over(ring, false)) {
			r = ring->lost != -EPROTO && look(ring) >= n ? 0 : ring->lost;
			break;
		}
		if (look(ring) >= n)
			break;
		if (!wake_broker_for_rest(ring))
			r = sleep_on_bell(ring, deadline_ns);
	}
	rbk_ring_announce_awake(&ring->sq->cq_wait);
	/* A completion that arrived together with the signal or the timeout is not missed. */
	if ((r == -ETIME || r == -EINTR) && look(ring) >= n)
		r = 0;
	return r;
}

/* A wait that polls did not end at once */
struct wait {
	uint32_t n; /* completions wanted */
	uint64_t start_ns, deadline_ns;
	uint64_t now_ns; /* last reading of the clock */
	bool has_spun;   /* the broker had time to predict the end */
	uint64_t spin_end_ns;
	uint64_t due_ns;   /* the broker's prediction; 0: none was seen */
	uint64_t alarm_ns; /* when a sleep ends, before the predicted end; 0: with the bell */
};

/*
 * Follow the broker's prediction, if there is one for the last completion that is wanted: spin
 * until a near end, and as much longer as a wait without a prediction would, and sleep until
 * shortly before one that is far.
 */
static void follow_prediction(struct rbk_ring *ring, struct wait *wait)
{
	const uint64_t due_ns = __atomic_load_n(&ring->cq->due_ns, __ATOMIC_RELAXED);
	uint64_t limit_ns, ahead_ns;

	wait->alarm_ns = 0;
	if (ring->spin_is_fixed || due_ns <= wait->now_ns || look(ring) + 1 < wait->n)
		return;
	wait->due_ns = due_ns;
	limit_ns = spin_limit_ns(ring);
	/* A task that is late is likely to end soon, and a sleep would cost as much. */
	wait->spin_end_ns = due_ns + limit_ns;
	ahead_ns = ring->wake_lag_ns + ring->early_ns;
	if (due_ns - wait->now_ns > limit_ns)
		wait->alarm_ns = due_ns - (ahead_ns < limit_ns ? ahead_ns : limit_ns);
}

/* Return true if the broker waits for the processor of this client. */
static bool broker_is_here(const struct rbk_ring *ring)
{
	const uint32_t processor = __atomic_load_n(&ring->cq->processor, __ATOMIC_RELAXED);

	return !ring->spin_is_fixed && processor != 0 && processor == ring->processor;
}

/* Spin as long as it pays. Return: true once the completions are there. */
static bool wait_awake(struct rbk_ring *ring, struct wait *wait)
{
	follow_prediction(ring, wait);
	while (wait->alarm_ns == 0 && wait->now_ns < wait->spin_end_ns &&
	       wait->now_ns < wait->deadline_ns && !broker_is_here(ring)) {
		for (unsigned int i = 0; i < LOOKS_PER_CLOCK; i++) {
			if (look(ring) >= wait->n)
				return true;
			relax();
		}
		wait->now_ns = client_now_ns();
		if (wait->now_ns - ring->probe_bell_ns > PROBE_BELL_NS) {
			ring->probe_bell_ns = wait->now_ns;
			ring_is_over(ring, true);
		}
		if (ring->lost || __atomic_load_n(&ring->cq->closed, __ATOMIC_RELAXED))
			break;
		follow_prediction(ring, wait);
	}
	return false;
}

/* Follow a time of which the longest counts at once, and is forgotten slowly. */
static void learn_longest(const struct rbk_ring *ring, uint64_t *longest_ns, uint64_t from_ns,
			  uint64_t to_ns)
{
	const uint64_t most_ns = SPIN_MAX_PART * ring->spin_ns;
	uint64_t ns = to_ns > from_ns ? to_ns - from_ns : 0;

	if (ns > most_ns)
		ns = most_ns;
	if (ns > *longest_ns)
		*longest_ns = ns;
	else
		*longest_ns -= (*longest_ns - ns) / 8;
}

/* Sleep until wait->alarm_ns at most. Return: as wait_asleep(). */
static cold_path int sleep_until_alarm(struct rbk_ring *ring, struct wait *wait, bool is_nap)
{
	/* Timers of most threads may be late by 50 us, so that the kernel saves wake-ups. */
	const int slack_ns = prctl(PR_GET_TIMERSLACK);
	int r;

	if (slack_ns > 0)
		prctl(PR_SET_TIMERSLACK, 1ul);
	r = wait_asleep(ring, wait->n, wait->alarm_ns, is_nap);
	if (slack_ns > 0)
		prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns);
	/* The thread may have been woken elsewhere. */
	tell_processor(ring);
	wait->now_ns = client_now_ns();
	return r;
}

static int wait_for_alarm(struct rbk_ring *ring, struct wait *wait)
{
	int r = sleep_until_alarm(ring, wait, false);

	if (r == -ETIME)
		learn_longest(ring, &ring->wake_lag_ns, wait->alarm_ns, wait->now_ns);
	return r;
}

/*
 * Take a nap if this client has woken the broker, which still sleeps. The kernel often wakes a
 * thread on the processor of the one that wakes it, and there the broker would wait until this
 * client stops spinning. A nap, unlike sched_yield(), leaves the processor to other programs only
 * for as long. A wait that neither spins nor expects a prediction sleeps soon anyway, and does not
 * pay for a timer. Return: as wait_asleep(); -ETIME after the nap, or without one.
 */
static int let_broker_run(struct rbk_ring *ring, struct wait *wait)
{
	const uint32_t token = rbk_ring_sleep_token(&ring->cq->sq_wait);
	const uint64_t begin_ns = wait->now_ns;
	int r;

	if (ring->spin_is_fixed || token == 0 || token != ring->sq_rung ||
	    wait->deadline_ns - wait->now_ns < NAP_NS || (!wait->has_spun && ring->due_credit == 0))
		return -ETIME;
	wait->alarm_ns = begin_ns + NAP_NS;
	r = sleep_until_alarm(ring, wait, true);
	wait->spin_end_ns += wait->now_ns - begin_ns;
	return r;
}

/* Learn from a wait whose completions were there at @end_ns. */
static void learn_end(struct rbk_ring *ring, const struct wait *wait, uint64_t end_ns)
{
	learn_wait(ring, end_ns - wait->start_ns);
	if (wait->due_ns)
		learn_longest(ring, &ring->early_ns, end_ns, wait->due_ns);
	if (wait->due_ns)
		ring->due_credit = DUE_CREDIT;
	else if (wait->has_spun && ring->due_credit > 0)
		ring->due_credit--;
}

/* Learn from a wait that slept. Its own wake-up, after the broker rang, is no part of the wait. */
static void learn_sleep(struct rbk_ring *ring, const struct wait *wait)
{
	const uint64_t rung_ns = __atomic_load_n(&ring->cq->rung_ns, __ATOMIC_RELAXED);
	const uint64_t now_ns = client_now_ns();

	if (rung_ns <= wait->start_ns) {
		learn_end(ring, wait, now_ns);
		return;
	}
	learn_longest(ring, &ring->wake_lag_ns, rung_ns, now_ns);
	learn_end(ring, wait, rung_ns);
}

static int wait_n(struct rbk_ring *ring, uint32_t n, uint64_t timeout_ns)
{
	struct wait wait = {.n = n};
	uint64_t budget_ns;
	int r;

	if (ring->cq_tail - ring->cq_head >= n)
		return 0;
	r = refill(ring);
	if (r && r != -EAGAIN)
		return r;

	budget_ns = spin_budget_ns(ring);
	if (!ring->spin_is_fixed || budget_ns > 0)
		for (unsigned int i = 0; i < LOOKS_WITHOUT_CLOCK; i++)
			if (look(ring) >= n) {
				learn_wait(ring, 0);
				return 0;
			}

	tell_processor(ring);
	wait.start_ns = wait.now_ns = client_now_ns();
	wait.deadline_ns =
		timeout_ns > CLIENT_NEVER - wait.now_ns ? CLIENT_NEVER : wait.now_ns + timeout_ns;
	wait.has_spun = budget_ns > 0;
	wait.spin_end_ns =
		budget_ns > CLIENT_NEVER - wait.now_ns ? CLIENT_NEVER : wait.now_ns + budget_ns;
	r = let_broker_run(ring, &wait);
	while (r == -ETIME) {
		if (wait_awake(ring, &wait)) {
			learn_end(ring, &wait, wait.now_ns);
			return 0;
		}
		if (wait.alarm_ns == 0 || wait.alarm_ns >= wait.deadline_ns) {
			r = wait_asleep(ring, n, wait.deadline_ns, false);
			break;
		}
		r = wait_for_alarm(ring, &wait);
	}
	if (r)
		learn_wait(ring, client_now_ns() - wait.start_ns);
	else
		learn_sleep(ring, &wait);
	return r;
}

RBK_EXPORT int rbk_wait_cqe_timeout(struct rbk_ring *ring, const struct rbk_cqe **ret,
				    uint64_t timeout_ns)
{
	int r = wait_n(ring, 1, timeout_ns);

	if (r)
		return r;
	*ret = &ring->cq->cqes[ring->cq_head & ring->mask];
	return 0;
}

RBK_EXPORT int rbk_wait_cqe(struct rbk_ring *ring, const struct rbk_cqe **ret)
{
	return rbk_wait_cqe_timeout(ring, ret, CLIENT_NEVER);
}

RBK_EXPORT int rbk_submit_and_wait(struct rbk_ring *ring, unsigned int wait_number)
{
	int n, r;

	if (wait_number > ring->n_entries && ring->cold)
		return -EINVAL;
	n = rbk_submit(ring);
	if (n < 0 || wait_number == 0)
		return n;
	r = wait_n(ring, wait_number, CLIENT_NEVER);
	return n > 0 || !r ? n : r;
}

RBK_EXPORT int rbk_ring_arm(struct rbk_ring *ring)
{
	int r;

	if (ring->cq_head != ring->cq_tail)
		return 1;
	r = refill(ring);
	if (r != -EAGAIN)
		return r ? r : 1;
	if (ring_is_over(ring, false))
		return look(ring) > 0 ? 1 : ring->lost;
	ring->armed = true;
	announce_sleep(ring, 1, false);
	if (!ring_is_over(ring, false) && look(ring) == 0 && !wake_broker_for_rest(ring))
		return 0;
	disarm(ring);
	/* With another broker, the caller looks and arms once more. */
	return look(ring) > 0 || ring->lost >= 0 ? 1 : ring->lost;
}
