/* SPDX-License-Identifier: MIT */
/*
 * Attacks by resources that clients hold, or make the broker hold, for long: rows 21 to 23; see
 * attack.h.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attack/attack.h"

enum { FDS_PER_RING = 3 };

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

/* ---- 21: bells of many rings ---- */

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
	free(fds);
}

/* ---- 22: queued descriptions, each charged for the largest plan it may become ---- */

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
	free(fds);
}

/* ---- 23: a socket with very many waiters ---- */

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
