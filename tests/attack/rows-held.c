/* SPDX-License-Identifier: MIT */
/*
 * Attacks by resources that clients hold, or make the broker hold, for long: rows 21 to 25; see
 * attack.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attack/attack.h"

enum { FDS_PER_RING = 3 };

/* Return the allocated bytes of the file behind a descriptor. */
static uint64_t allocated_bytes(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 ? (uint64_t)status.st_blocks * 512 : 0;
}

/* Return the host memory, in bytes, that all sessions of the attacker are charged now. */
static uint64_t charged_bytes(struct attack *attack, int session)
{
	const struct rbk_wire_request ask = {.type = RBK_WIRE_STATS, .cookie = 7};
	struct rbk_wire_stats stats = {{0}};

	/* Charges on the page may be a tenth of a second old. */
	usleep(200000);
	attack_send(attack, session, &ask, sizeof(ask), NULL, 0);
	attack_receive(attack, session, &stats, sizeof(stats));
	return stats.host_bytes;
}

/*
 * Note how many of @bytes are not charged. @bytes is memory that the broker made and the calling
 * thread holds. The attacker's other threads must hold none.
 */
static void compare_with_charges(struct attack *attack, int session, uint64_t bytes)
{
	uint64_t charged = charged_bytes(attack, session);

	attack_note_uncharged(attack, bytes > charged ? bytes - charged : 0);
}

static void ask_for_ring(struct attack *attack, int fd, uint32_t n_entries)
{
	const struct rbk_wire_ring_add add = {.request = {.type = RBK_WIRE_RING_ADD, .cookie = 2},
					      .n_entries = n_entries};

	attack_send(attack, fd, &add, sizeof(add), NULL, 0);
}

/*
 * Take one answer to RING_ADD.
 * Return: the number of its descriptors; 0 if the connection has no more answers.
 */
static unsigned int take_ring(int fd, int fds[FDS_PER_RING], struct rbk_wire_ring *ret)
{
	unsigned int n_fds = FDS_PER_RING;
	ssize_t n = raw_receive(fd, ret, sizeof(*ret), fds, &n_fds, 10000);

	return n > 0 ? n_fds : 0;
}

static void close_all(const int *fds, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		close(fds[i]);
}

/* ---- 21: answers with descriptors that are never read, in sessions that the broker ended ---- */

void attack_unread(struct attack *attack, unsigned int thread)
{
	enum { N_RINGS = 8, N_ENTRIES = 8192 };
	unsigned int n_dead = 64, n_fds = 0, n;
	int watcher, *dead, *fds;
	struct rbk_wire_ring ring;
	struct pollfd poll_fd;
	uint64_t bytes = 0;

	if (thread > 0) {
		attack_goes_on(attack);
		return;
	}
	watcher = attack_connect(attack);
	dead = calloc(n_dead, sizeof(*dead));
	fds = calloc(n_dead * N_RINGS, FDS_PER_RING * sizeof(*fds));
	for (n = 0; n < n_dead && attack_goes_on(attack); n++) {
		dead[n] = attack_try_connect(attack);
		if (dead[n] < 0) {
			attack_count(attack, -EAGAIN);
			break;
		}
		for (unsigned int i = 0; i < N_RINGS; i++)
			ask_for_ring(attack, dead[n], N_ENTRIES);
		/* Wait for the answers; then a packet of one byte ends the session. */
		usleep(20000);
		raw_send(dead[n], "", 1, NULL, 0);
		poll_fd = (struct pollfd){.fd = dead[n], .events = POLLRDHUP};
		poll(&poll_fd, 1, 5000);
		attack_count(attack, 0);
	}
	/* Keep all connections until all are examined. */
	for (unsigned int i = 0; i < n; i++)
		for (unsigned int k = 0; k < N_RINGS; k++)
			n_fds += take_ring(dead[i], &fds[n_fds], &ring);
	for (unsigned int i = 0; i < n_fds; i++)
		bytes += allocated_bytes(fds[i]);
	compare_with_charges(attack, watcher, bytes);
	close_all(fds, n_fds);
	close_all(dead, n);
}

/* ---- 22: memfds of rings that were removed ---- */

void attack_kept_rings(struct attack *attack, unsigned int thread)
{
	enum { N_KEPT = 64 };
	struct rbk_wire_id remove = {.request = {.type = RBK_WIRE_RING_REMOVE, .cookie = 5}};
	unsigned int n_fds = 0, n;
	struct rbk_wire_ring ring;
	uint64_t bytes = 0;
	int *fds, session;

	if (thread > 0) {
		attack_goes_on(attack);
		return;
	}
	session = attack_connect(attack);
	fds = calloc(N_KEPT, FDS_PER_RING * sizeof(*fds));
	for (unsigned int i = 0; i < N_KEPT && attack_goes_on(attack); i++) {
		ask_for_ring(attack, session, RBK_MAX_RING_ENTRIES);
		n = take_ring(session, &fds[n_fds], &ring);
		attack_count(attack, n > 0 ? 0 : -EDQUOT);
		if (n == 0)
			break;
		n_fds += n;
		remove.id = ring.id;
		attack_send(attack, session, &remove, sizeof(remove), NULL, 0);
		attack_receive(attack, session, NULL, 0);
	}
	for (unsigned int i = 0; i < n_fds; i++)
		bytes += allocated_bytes(fds[i]);
	compare_with_charges(attack, session, bytes);
	close_all(fds, n_fds);
}

/* ---- 23: bells of many rings ---- */

void attack_bells(struct attack *attack, unsigned int thread)
{
	enum { MOST_RINGS = 960 };
	unsigned int n = attack_share(attack, thread, NULL), n_fds = 0;
	unsigned int n_each = MOST_RINGS / attack->n_sessions;
	struct rbk_wire_ring ring;
	int *fds;

	n_each = n_each == 0 ? 1 : n_each < 64 ? n_each : 64;
	fds = calloc(n ? n * n_each : 1, FDS_PER_RING * sizeof(*fds));
	for (unsigned int i = 0; i < n; i++) {
		int session = attack_connect(attack);

		for (unsigned int k = 0; k < n_each; k++) {
			ask_for_ring(attack, session, 8);
			if (take_ring(session, &fds[n_fds], &ring) == FDS_PER_RING)
				n_fds += FDS_PER_RING;
		}
	}
	while (n_fds > 0 && attack_goes_on(attack)) {
		for (unsigned int i = FDS_PER_RING - 1; i < n_fds; i += FDS_PER_RING)
			send(fds[i], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		attack_count(attack, 0);
	}
}

/* ---- 24: queued descriptions, each charged for the largest plan it may become ---- */

void attack_plan_queue(struct attack *attack, unsigned int thread)
{
	enum { N_WAITING = 64 };
	struct rbk_wire_plan_add add = {
		.request = {.type = RBK_WIRE_PLAN_ADD, .cookie = 4},
		.flags = RBK_WIRE_PLAN_FD,
	};
	unsigned int n = attack_share(attack, thread, NULL);
	int *fds = calloc(n ? n : 1, sizeof(*fds));
	int memfd = raw_memfd(RBK_WIRE_PLAN_MAX_BYTES, false, F_SEAL_SHRINK);

	for (unsigned int i = 0; i < n; i++)
		fds[i] = attack_connect(attack);
	while (n > 0 && attack_goes_on(attack)) {
		for (unsigned int k = 0; k < N_WAITING; k++) {
			/* The small descriptions fill the remainder of the large ones. */
			add.desc_bytes = RBK_WIRE_PLAN_MAX_BYTES >> k % 12;
			for (unsigned int i = 0; i < n; i++)
				attack_send(attack, fds[i], &add, sizeof(add), &memfd, 1);
		}
		for (unsigned int i = 0; i < n; i++)
			for (unsigned int k = 0; k < N_WAITING; k++)
				attack_count(attack, attack_receive(attack, fds[i], NULL, 0));
	}
}

/* ---- 25: a socket with very many waiters ---- */

struct waiters {
	int fd;
	_Atomic bool has_begun;
};

static void *wait_many_times(void *data)
{
	enum { N_TIMES = 10000 };
	struct pollfd *poll_fds = calloc(N_TIMES, sizeof(*poll_fds));
	struct waiters *waiters = data;

	/* Wait only for the socket's end: any other event visits all waiters and wakes none. */
	for (unsigned int i = 0; i < N_TIMES; i++)
		poll_fds[i].fd = waiters->fd;
	waiters->has_begun = true;
	poll(poll_fds, N_TIMES, -1);
	free(poll_fds);
	return NULL;
}

void attack_waiters(struct attack *attack, unsigned int thread)
{
	enum { N_THREADS = 32 };
	const struct rbk_wire_request ask = {.type = RBK_WIRE_STATS, .cookie = 7};
	struct waiters waiters = {.fd = -1};
	pthread_t threads[N_THREADS];

	if (thread > 0) {
		attack_goes_on(attack);
		return;
	}
	waiters.fd = attack_connect(attack);
	for (unsigned int i = 0; i < N_THREADS; i++) {
		waiters.has_begun = false;
		if (pthread_create(&threads[i], NULL, wait_many_times, &waiters))
			attack_fail(attack, "no thread");
		while (!waiters.has_begun)
			usleep(1000);
	}
	while (attack_goes_on(attack)) {
		attack_send(attack, waiters.fd, &ask, sizeof(ask), NULL, 0);
		attack_count(attack, attack_receive(attack, waiters.fd, NULL, 0));
	}
	shutdown(waiters.fd, SHUT_RDWR);
	for (unsigned int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	close(waiters.fd);
}
