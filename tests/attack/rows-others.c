/* SPDX-License-Identifier: MIT */
/* Attacks by leases, by administrators and scrapers, and by odd descriptors: rows 15, 18, 19. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <linux/io_uring.h>
#include <unistd.h>

#include "attack/attack.h"

/* ---- 15: leases ---- */

/*
 * Open leases, which end with their sessions. The tenant has little memory, and its other sessions
 * want some.
 */
void attack_leases(struct attack *attack, unsigned int thread)
{
	const struct rbk_wire_lease_open open_lease = {
		.request = {.type = RBK_WIRE_LEASE_OPEN, .cookie = 8},
		.device = RBK_DEVICE_NONE,
		.min_bytes = 1 << 20,
		.wish_bytes = 8 << 20,
		.max_bytes = 64 << 20,
		.program = "attack",
	};
	unsigned int n = attack_share(attack, thread, NULL);
	int *fds = calloc(n ? n : 1, sizeof(*fds));

	while (n > 0 && attack_goes_on(attack)) {
		for (unsigned int i = 0; i < n; i++) {
			fds[i] = attack_connect(attack);
			attack_send(attack, fds[i], &open_lease, sizeof(open_lease), NULL, 0);
		}
		for (unsigned int i = 0; i < n; i++) {
			attack_count(attack, attack_receive(attack, fds[i], NULL, 0));
			close(fds[i]);
		}
	}
	free(fds);
}

/* ---- 18: administrators, and scrapers of metrics ---- */

static int connect_to(const char *path, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(address.sun_path, path, strnlen(path, sizeof(address.sun_path) - 1));
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void send_text(int fd, const char *text, size_t bytes)
{
	if (fd >= 0)
		send(fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Connect as an administrator that asks for as much as possible and reads nothing. */
static int connect_admin(const struct attack *attack)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO, .cookie = 1},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
		.features = UINT64_MAX,
		.name = "attack",
	};
	const struct rbk_wire_request ask[] = {{.type = RBK_WIRE_STATS, .cookie = 2},
					       {.type = RBK_WIRE_DEVICES, .cookie = 3}};
	int fd = connect_to(attack->admin_path, SOCK_SEQPACKET);

	if (fd < 0)
		return fd;
	send(fd, &hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT);
	for (unsigned int i = 0; i < 1000; i++)
		if (send(fd, &ask[i % 2], sizeof(ask[0]), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
	return fd;
}

/*
 * Hold some connections per session for a while without reading. They are scrapers that sent all or
 * half of a request, administrators, and connections without a HELLO.
 */
void attack_observers(struct attack *attack, unsigned int thread)
{
	enum { N_EACH = 16 };
	static const char whole[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
	static const size_t halves[] = {1, sizeof(whole) / 2, sizeof(whole) - 2, sizeof(whole) - 1};
	unsigned int n = attack_share(attack, thread, NULL) * N_EACH;
	int *fds = calloc(n ? n : 1, sizeof(*fds));

	memset(fds, 0xff, n * sizeof(*fds));
	for (unsigned int round = 0; n > 0 && attack_goes_on(attack); round++)
		for (unsigned int i = 0; i < n && attack_goes_on(attack); i++) {
			if (fds[i] >= 0)
				close(fds[i]);
			switch ((i + round) % 4) {
			case 0:
				fds[i] = connect_admin(attack);
				break;
			case 1:
				fds[i] = connect_to(attack->admin_path, SOCK_SEQPACKET);
				send_text(fds[i], whole, 4);
				break;
			default:
				fds[i] = connect_to(attack->metrics_path, SOCK_STREAM);
				send_text(fds[i], whole, halves[(i + round) / 4 % 4]);
			}
			attack_count(attack, fds[i] < 0 ? -EAGAIN : 0);
			if (fds[i] < 0)
				usleep(1000);
		}
	for (unsigned int i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(fds);
}

/* ---- 19: descriptors that are no memory ---- */

enum { N_ODD = 6 };

/* Open odd descriptors; an entry is -1 if the kernel lacks that kind. */
static void make_odd(int session, int fds[N_ODD])
{
	struct io_uring_params params = {.flags = 0};
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};

	fds[0] = epoll_create1(EPOLL_CLOEXEC);
	/* The epoll descriptor watches the connection that it is sent through. */
	epoll_ctl(fds[0], EPOLL_CTL_ADD, session, &event);
	fds[1] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	timerfd_settime(fds[1], 0,
			&(struct itimerspec){.it_interval = {0, 1000}, .it_value = {0, 1000}},
			NULL);
	fds[2] = (int)syscall(SYS_pidfd_open, getpid(), 0);
	fds[3] = (int)syscall(SYS_io_uring_setup, 8, &params);
	fds[4] = eventfd(1, EFD_CLOEXEC);
	fds[5] = session;
}

/*
 * Send the request with odd descriptors, which the broker must not accept.
 * Return: true if an answer or the end of the session refused it.
 */
static bool is_refused(struct attack *attack, const void *request, size_t bytes, unsigned int odd)
{
	int session = attack_connect(attack), fds[N_ODD];
	struct rbk_wire_devices answer;
	bool is_refused = true;
	ssize_t n;

	make_odd(session, fds);
	if (fds[odd] >= 0 && raw_send(session, request, bytes, &fds[odd], 1) == (ssize_t)bytes) {
		n = raw_receive(session, &answer, sizeof(answer), NULL, NULL, 60000);
		if (n == -ETIME)
			attack_fail(attack, "row %u: no answer to descriptor %u", attack->row, odd);
		if (n >= (ssize_t)sizeof(answer.reply))
			is_refused = answer.reply.res != 0;
	}
	for (unsigned int i = 0; i < N_ODD; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return is_refused;
}

void attack_oddities(struct attack *attack, unsigned int thread)
{
	const struct rbk_wire_arena_add arena = {
		.request = {.type = RBK_WIRE_ARENA_ADD, .cookie = 3}, .bytes = 4096};
	const struct rbk_wire_plan_add plan = {
		.request = {.type = RBK_WIRE_PLAN_ADD, .cookie = 4},
		.desc_bytes = 4096,
		.flags = RBK_WIRE_PLAN_FD,
	};
	const struct rbk_wire_lease_cgroup cgroup = {
		.request = {.type = RBK_WIRE_LEASE_CGROUP, .cookie = 9}, .lease = 1};
	unsigned int n = attack_share(attack, thread, NULL);

	for (unsigned int i = 0; n > 0 && attack_goes_on(attack); i++) {
		bool well = is_refused(attack, &arena, sizeof(arena), i % N_ODD) &&
			    is_refused(attack, &plan, sizeof(plan), i % N_ODD) &&
			    is_refused(attack, &cgroup, sizeof(cgroup), i % N_ODD);

		if (!well)
			attack_fail(attack, "row %u: descriptor %u was accepted", attack->row,
				    i % N_ODD);
		attack_count(attack, -EINVAL);
	}
}
