/* SPDX-License-Identifier: MIT */
/*
 * Bare rings
 *
 * The bench measures the price of moving a submission entry to another core and a completion entry
 * back: two cache lines and two indices each way at a batch of one, and the part of that price that
 * batches hide. The code does, as well as possible, what any pair of programs that uses these rings
 * must do. The other side copies an entry once, writes a whole completion, and publishes its
 * indices once per batch. Each side caches the other's index and reloads it only when necessary.
 *
 * Between rounds the other side's thread sleeps, so that it does not take the processor from a
 * broker pinned to the same one. A futex word puts it to sleep and wakes it. The thread also polls
 * the word once per empty look at the ring; the word's cache line is shared and unmodified during a
 * round.
 */
#include "bare-ring.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ringbroker/abi.h>
#include "shm/ring.h"
#include "util/clock.h"
#include "util/thread.h"

/* entries that the other side takes before it publishes: the broker's bound per turn */
#define PEER_BATCH 64u

/* Most samples of one round; the array stays in the second-level cache. */
#define ROUND_SAMPLES 8192u

/* round trips before the first sample of a round */
#define WARM_UP 512u

enum bare_ring_mode { MODE_SLEEP, MODE_RUN, MODE_EXIT };

struct bare_ring {
	/* used by both sides */
	uint32_t n_entries;
	uint32_t mask;
	struct rbk_sq_area *sq;
	struct rbk_cq_area *cq;
	size_t sq_bytes, cq_bytes;

	/* used by the measuring side */
	uint32_t sq_tail;
	uint32_t cq_head;
	uint32_t cq_tail_seen;
	pthread_t peer;
	bool has_peer;
	int peer_cpu;

	_Alignas(128) _Atomic uint32_t mode;
	_Atomic uint32_t asleep;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/*
 * Answer every entry on the other side. Return when the mode is no longer MODE_RUN, with both rings
 * empty.
 */
static void peer_run(struct bare_ring *ring, uint32_t *sq_head_io, uint32_t *cq_tail_io)
{
	struct rbk_sq_area *sq = ring->sq;
	struct rbk_cq_area *cq = ring->cq;
	uint32_t sq_head = *sq_head_io, cq_tail = *cq_tail_io;
	uint32_t mask = ring->mask;
	uint32_t n, i;
	struct rbk_sqe sqe;

	for (;;) {
		n = rbk_ring_observe(&sq->sq_tail) - sq_head;
		if (n == 0) {
			if (atomic_load_explicit(&ring->mode, memory_order_relaxed) != MODE_RUN)
				break;
			thread_relax();
			continue;
		}
		if (n > PEER_BATCH)
			n = PEER_BATCH;
		for (i = 0; i < n; i++) {
			rbk_sqe_load(&sqe, &sq->sqes[(sq_head + i) & mask]);
			cq->cqes[(cq_tail + i) & mask] = (struct rbk_cqe){
				.user_data = sqe.user_data,
				.queue_ns = sqe.refs[0],
				.exec_ns = sqe.refs[4],
			};
		}
		/* There is room: the measuring side keeps at most n_entries in flight. */
		sq_head += n;
		cq_tail += n;
		rbk_ring_publish(&cq->cq_tail, cq_tail);
		rbk_ring_publish(&cq->sq_head, sq_head);
	}
	*sq_head_io = sq_head;
	*cq_tail_io = cq_tail;
}

static void *peer_main(void *data)
{
	struct bare_ring *ring = data;
	uint32_t sq_head = 0, cq_tail = 0, mode;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(ring->peer_cpu, &cpus);
	pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);

	for (;;) {
		mode = atomic_load_explicit(&ring->mode, memory_order_acquire);
		if (mode == MODE_EXIT)
			return NULL;
		if (mode == MODE_SLEEP) {
			atomic_store_explicit(&ring->asleep, 1, memory_order_release);
			futex_wait(&ring->mode, MODE_SLEEP);
			continue;
		}
		atomic_store_explicit(&ring->asleep, 0, memory_order_release);
		peer_run(ring, &sq_head, &cq_tail);
	}
}

static void peer_start(struct bare_ring *ring)
{
	atomic_store_explicit(&ring->mode, MODE_RUN, memory_order_release);
	futex_wake(&ring->mode);
	while (atomic_load_explicit(&ring->asleep, memory_order_acquire))
		thread_relax();
}

static void peer_stop(struct bare_ring *ring)
{
	atomic_store_explicit(&ring->mode, MODE_SLEEP, memory_order_release);
	while (!atomic_load_explicit(&ring->asleep, memory_order_acquire))
		thread_relax();
}

/* Map memory as a session does: a shared memfd with every page present. */
static int map_area(size_t bytes, void **ret)
{
	void *area;
	int fd, r;

	fd = memfd_create("bare-ring", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	r = area == MAP_FAILED ? -errno : 0;
	close(fd);
	if (r)
		return r;
	*ret = area;
	return 0;
}

struct bare_ring *bare_ring_free(struct bare_ring *ring)
{
	if (!ring)
		return NULL;
	if (ring->has_peer) {
		atomic_store_explicit(&ring->mode, MODE_EXIT, memory_order_release);
		futex_wake(&ring->mode);
		pthread_join(ring->peer, NULL);
	}
	if (ring->sq)
		munmap(ring->sq, ring->sq_bytes);
	if (ring->cq)
		munmap(ring->cq, ring->cq_bytes);
	free(ring);
	return NULL;
}

int bare_ring_new(uint32_t n_entries, int peer_cpu, struct bare_ring **ret)
{
	struct bare_ring *ring;
	int r;

	ring = aligned_alloc(128, (sizeof(*ring) + 127) / 128 * 128);
	if (!ring)
		return -ENOMEM;
	memset(ring, 0, sizeof(*ring));
	ring->n_entries = n_entries;
	ring->mask = n_entries - 1;
	ring->peer_cpu = peer_cpu;
	ring->sq_bytes = RBK_SQ_AREA_BYTES(n_entries);
	ring->cq_bytes = RBK_CQ_AREA_BYTES(n_entries);
	atomic_store(&ring->mode, MODE_SLEEP);

	r = map_area(ring->sq_bytes, (void **)&ring->sq);
	if (r)
		goto error;
	r = map_area(ring->cq_bytes, (void **)&ring->cq);
	if (r)
		goto error;
	r = -pthread_create(&ring->peer, NULL, peer_main, ring);
	if (r)
		goto error;
	ring->has_peer = true;
	while (!atomic_load_explicit(&ring->asleep, memory_order_acquire))
		thread_relax();
	*ret = ring;
	return 0;

error:
	bare_ring_free(ring);
	return r;
}

static void put_entry(struct bare_ring *ring)
{
	ring->sq->sqes[ring->sq_tail & ring->mask] = (struct rbk_sqe){
		.opcode = RBK_OP_NOP,
		.user_data = ring->sq_tail,
	};
	ring->sq_tail++;
}

static void publish_entries(struct bare_ring *ring)
{
	rbk_ring_publish(&ring->sq->sq_tail, ring->sq_tail);
}

/*
 * Read all arrived completions and release their entries.
 * Return: the number of completions.
 */
static uint32_t take_completions(struct bare_ring *ring, uint64_t *sum)
{
	uint32_t n, i;

	ring->cq_tail_seen = rbk_ring_observe(&ring->cq->cq_tail);
	n = ring->cq_tail_seen - ring->cq_head;
	if (n == 0)
		return 0;
	for (i = 0; i < n; i++)
		*sum += ring->cq->cqes[(ring->cq_head + i) & ring->mask].user_data;
	ring->cq_head += n;
	rbk_ring_publish(&ring->sq->cq_head, ring->cq_head);
	return n;
}

static void round_trip(struct bare_ring *ring, uint64_t *sum)
{
	put_entry(ring);
	publish_entries(ring);
	while (take_completions(ring, sum) == 0)
		;
}

int bare_ring_round_trips(void *data, uint64_t budget_ns, struct samples *samples)
{
	struct bare_ring *ring = data;
	uint64_t sum = 0, start, last, now, budget;
	unsigned int i;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (r)
		return r;
	peer_start(ring);
	for (i = 0; i < WARM_UP; i++)
		round_trip(ring, &sum);
	budget = clock_ns_to_ticks(budget_ns);
	start = last = clock_ticks();
	for (i = 0; i < ROUND_SAMPLES && last - start < budget; i++) {
		round_trip(ring, &sum);
		now = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(last, now));
		last = now;
	}
	peer_stop(ring);
	__asm__ volatile("" ::"r"(sum));
	return 0;
}

/* Move @n entries through the rings, with as many in flight as fit. */
static void stream(struct bare_ring *ring, uint32_t batch, uint32_t n, uint64_t *sum)
{
	uint32_t sent = 0, got = 0, i;

	while (got < n) {
		while (sent < n && sent - got + batch <= ring->n_entries) {
			for (i = 0; i < batch; i++)
				put_entry(ring);
			publish_entries(ring);
			sent += batch;
		}
		got += take_completions(ring, sum);
	}
}

int bare_ring_throughput(void *data, uint64_t budget_ns, struct samples *samples)
{
	const struct bare_ring_batch *at = data;
	uint64_t sum = 0, start, last, now, budget;
	/* Entries of one sample: enough that filling and draining the rings is negligible. */
	uint32_t n = at->ring->n_entries * 16;
	unsigned int i;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (r)
		return r;
	peer_start(at->ring);
	stream(at->ring, at->batch, n, &sum);
	budget = clock_ns_to_ticks(budget_ns);
	start = last = clock_ticks();
	for (i = 0; i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		stream(at->ring, at->batch, n, &sum);
		now = clock_ticks();
		samples_add(samples, n * 1e3 / (double)clock_elapsed_ns(last, now));
		last = now;
	}
	peer_stop(at->ring);
	__asm__ volatile("" ::"r"(sum));
	return 0;
}
