/* SPDX-License-Identifier: MIT */
/* Attacks by requests and connections: rows 2, 3, 4, 6, 7, 9, 12 and half of 13; see attack.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attack/attack.h"
#include "support/describe.h"

static int *connect_all(struct attack *attack, unsigned int n)
{
	int *fds = calloc(n ? n : 1, sizeof(*fds));

	for (unsigned int i = 0; i < n; i++)
		fds[i] = attack_connect(attack);
	return fds;
}

static void remove_one(struct attack *attack, int fd, enum rbk_wire_type type, uint32_t id)
{
	const struct rbk_wire_id remove = {.request = {.type = type, .cookie = 5}, .id = id};

	attack_send(attack, fd, &remove, sizeof(remove), NULL, 0);
	attack_receive(attack, fd, NULL, 0);
}

/* Send all sessions' requests, then receive their answers, and remove the granted plans. */
static void ask_for_plans(struct attack *attack, const int *fds, unsigned int n, int plan_fd)
{
	struct rbk_wire_plan plan;

	for (unsigned int i = 0; i < n; i++)
		attack_send_plan(attack, fds[i], plan_fd);
	for (unsigned int i = 0; i < n; i++) {
		int r = attack_receive(attack, fds[i], &plan, sizeof(plan));

		attack_count(attack, r);
		if (r == 0)
			remove_one(attack, fds[i], RBK_WIRE_PLAN_REMOVE, plan.id);
	}
}

/* ---- 2: constants that overlap, each of which is packed ---- */

void attack_constants(struct attack *attack, unsigned int thread)
{
	enum { SIDE = 1024, N_NODES = 96, BYTES = SIDE * SIDE * 4 + (1 << 20) };
	unsigned int n = attack_share(attack, thread, NULL);
	int *fds = connect_all(attack, n);
	int memfd = raw_memfd(BYTES, false, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);

	while (n > 0 && attack_goes_on(attack))
		for (unsigned int i = 0; i < n && attack_goes_on(attack); i++) {
			struct rbk_wire_arena_add add = {
				.request = {.type = RBK_WIRE_ARENA_ADD, .cookie = 3},
				.bytes = BYTES};
			struct describe *d = describe_new("overlap", 1);
			struct rbk_wire_id_reply reply = {{0}};
			char from[RBK_NAME_BYTES] = "x", to[RBK_NAME_BYTES],
			     constant[RBK_NAME_BYTES], in[2 * RBK_NAME_BYTES];
			uint32_t plan_id;
			int r;

			attack_send(attack, fds[i], &add, sizeof(add), &memfd, 1);
			r = attack_receive(attack, fds[i], &reply, sizeof(reply));
			if (r) {
				attack_count(attack, r);
				continue;
			}
			describe_input(d, "x", DESCRIBE_DIMS(1, SIDE));
			describe_output(d, "y", DESCRIBE_DIMS(1, SIDE));
			for (unsigned int k = 0; k < N_NODES; k++) {
				snprintf(constant, sizeof(constant), "c%u", k);
				snprintf(to, sizeof(to), k + 1 < N_NODES ? "s%u" : "y", k);
				snprintf(in, sizeof(in), "%s,%s", from, constant);
				describe_constant(d, constant, RBK_REF(reply.id, 64 * k),
						  DESCRIBE_DIMS(SIDE, SIDE));
				if (k + 1 < N_NODES)
					describe_scratch(d, to);
				describe_node(d, "MatMul", "", in, to);
				memcpy(from, to, sizeof(from));
			}
			r = attack_plan_add(attack, fds[i], d, &plan_id);
			attack_count(attack, r);
			if (r == 0)
				remove_one(attack, fds[i], RBK_WIRE_PLAN_REMOVE, plan_id);
			remove_one(attack, fds[i], RBK_WIRE_ARENA_REMOVE, reply.id);
		}
	free(fds);
}

/* ---- 3: plans that take long to verify ---- */

void attack_verify(struct attack *attack, unsigned int thread)
{
	enum { N_NODES = 4094 };
	unsigned int n = attack_share(attack, thread, NULL);
	int *fds = connect_all(attack, n);
	struct describe *d = describe_new("chain", 1);
	char from[RBK_NAME_BYTES] = "x", to[RBK_NAME_BYTES];
	int plan_fd;

	describe_input(d, "x", DESCRIBE_DIMS(16));
	describe_output(d, "y", DESCRIBE_DIMS(16));
	for (unsigned int i = 0; i < N_NODES; i++) {
		snprintf(to, sizeof(to), i + 1 < N_NODES ? "s%u" : "y", i);
		if (i + 1 < N_NODES)
			describe_scratch(d, to);
		describe_node(d, "Neg", "", from, to);
		memcpy(from, to, sizeof(from));
	}
	plan_fd = attack_plan_fd(d);
	while (n > 0 && attack_goes_on(attack))
		ask_for_plans(attack, fds, n, plan_fd);
	free(fds);
}

/* ---- 4: descriptors whose close() takes long ---- */

/* Return a TCP socket whose close() waits for unsent data; *ret_peer delays the data. */
static int make_lingering(int listener, const struct sockaddr_in *address, int *ret_peer)
{
	const struct linger linger = {.l_onoff = 1, .l_linger = 30};
	static const char bytes[65536];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		goto error;
	*ret_peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	return fd;
error:
	if (fd >= 0)
		close(fd);
	return -1;
}

/*
 * Descriptors that a thread gives away in one turn. Their close() may block the giving thread, but
 * no other.
 */
struct gift {
	struct attack *attack;
	int session;
	int fds[RBK_WIRE_MAX_FDS];
	unsigned int n_fds;
};

static void *gift_main(void *data)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
		.name = "gift",
	};
	const struct rbk_wire_request stats = {.type = RBK_WIRE_STATS, .cookie = 7};
	struct rbk_wire_welcome welcome;
	struct gift *gift = data;

	/* The kernel may refuse descriptors before the broker has answered. */
	raw_send(gift->session, &hello, sizeof(hello), NULL, 0);
	raw_receive(gift->session, &welcome, sizeof(welcome), NULL, NULL, 1000);
	/*
	 * Usually closed before the broker has received them, so that the broker's close() is the
	 * last.
	 */
	raw_send(gift->session, &stats, sizeof(stats), gift->fds, gift->n_fds);
	for (unsigned int i = 0; i < gift->n_fds; i++)
		close(gift->fds[i]);
	close(gift->session);
	attack_count(gift->attack, 0);
	free(gift);
	return NULL;
}

/*
 * Connect without sending.
 * Return: the result of connect().
 */
static int connect_silently(const struct attack *attack, int *ret_fd)
{
	struct sockaddr_un path = {.sun_family = AF_UNIX};
	int r;

	*ret_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(path.sun_path, sizeof(path.sun_path), "%s", attack->socket_path);
	r = *ret_fd < 0 ? -1 : connect(*ret_fd, (struct sockaddr *)&path, sizeof(path));
	return r < 0 ? -errno : 0;
}

/*
 * In each turn, send some descriptors with a request that takes none, which ends the session. Then
 * make many connections that are refused: the policy permits the tenant few sessions.
 */
void attack_descriptors(struct attack *attack, unsigned int thread)
{
	enum { N_REFUSED = 64, N_HELD = 256 };
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unsigned int n = attack_share(attack, thread, NULL), n_held = 0;
	socklen_t length = sizeof(address);
	const int small = 4096;
	int peers[N_HELD];

	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(listener, 64) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &length) < 0)
		attack_fail(attack, "row 4: no TCP socket: %s", strerror(errno));
	while (n > 0 && attack_goes_on(attack)) {
		struct gift *gift = calloc(1, sizeof(*gift));
		pthread_t giver;
		int fd;

		gift->attack = attack;
		while (gift->n_fds < RBK_WIRE_MAX_FDS && n_held < N_HELD) {
			fd = make_lingering(listener, &address, &peers[n_held]);
			if (fd < 0)
				break;
			gift->fds[gift->n_fds++] = fd;
			n_held++;
		}
		if (gift->n_fds == 0 || connect_silently(attack, &gift->session) ||
		    pthread_create(&giver, NULL, gift_main, gift))
			attack_count(attack, -EAGAIN);
		else
			pthread_detach(giver);
		for (unsigned int i = 0; i < N_REFUSED && attack_goes_on(attack); i++) {
			if (connect_silently(attack, &fd))
				usleep(1000);
			close(fd);
		}
	}
}

/* ---- 6: silent connections ---- */

void attack_accepts(struct attack *attack, unsigned int thread)
{
	int fd;

	while (attack_goes_on(attack)) {
		attack_count(attack, connect_silently(attack, &fd));
		close(fd);
	}
	(void)thread;
}

/* ---- 7: large arenas ---- */

void attack_arenas(struct attack *attack, unsigned int thread)
{
	const struct rbk_wire_arena_add add = {.request = {.type = RBK_WIRE_ARENA_ADD, .cookie = 3},
					       .bytes = attack->arena_bytes};
	unsigned int n = attack_share(attack, thread, NULL);
	int *fds = connect_all(attack, n);
	struct rbk_wire_id_reply reply;

	while (n > 0 && attack_goes_on(attack)) {
		/* Allocate after sealing: no page is mapped anywhere. */
		int memfd = raw_memfd(attack->arena_bytes, true, F_SEAL_SHRINK | F_SEAL_GROW);

		if (fallocate(memfd, 0, 0, (off_t)attack->arena_bytes) < 0)
			attack_fail(attack, "row 7: no memory for the arena: %s", strerror(errno));
		for (unsigned int i = 0; i < n; i++)
			attack_send(attack, fds[i], &add, sizeof(add), &memfd, 1);
		/* The broker keeps the last reference, whose release frees all pages. */
		close(memfd);
		for (unsigned int i = 0; i < n; i++) {
			int r = attack_receive(attack, fds[i], &reply, sizeof(reply));

			attack_count(attack, r);
			if (r == 0)
				remove_one(attack, fds[i], RBK_WIRE_ARENA_REMOVE, reply.id);
		}
	}
	free(fds);
}

/* ---- 9: large rings ---- */

void attack_rings(struct attack *attack, unsigned int thread)
{
	const struct rbk_wire_ring_add add = {.request = {.type = RBK_WIRE_RING_ADD, .cookie = 2},
					      .n_entries = RBK_MAX_RING_ENTRIES};
	unsigned int n = attack_share(attack, thread, NULL);
	int *fds = connect_all(attack, n);
	struct rbk_wire_ring reply;

	while (n > 0 && attack_goes_on(attack)) {
		for (unsigned int i = 0; i < n; i++)
			attack_send(attack, fds[i], &add, sizeof(add), NULL, 0);
		for (unsigned int i = 0; i < n; i++) {
			int r = attack_receive(attack, fds[i], &reply, sizeof(reply));

			attack_count(attack, r);
			if (r == 0)
				remove_one(attack, fds[i], RBK_WIRE_RING_REMOVE, reply.id);
		}
	}
	free(fds);
}

/* ---- 12: other tenants' figures, read 50,000 times a second ---- */

void attack_watch(struct attack *attack, unsigned int thread)
{
	const struct rbk_wire_request ask = {.type = RBK_WIRE_STATS, .cookie = 7};
	unsigned int n = attack_share(attack, thread, NULL);
	int *fds = connect_all(attack, n);
	uint64_t n_completed = UINT64_MAX; /* tasks completed earlier, by the friend */
	struct rbk_wire_stats stats;

	while (n > 0 && attack_goes_on(attack)) {
		for (unsigned int i = 0; i < n; i++)
			attack_send(attack, fds[i], &ask, sizeof(ask), NULL, 0);
		for (unsigned int i = 0; i < n; i++) {
			attack_receive(attack, fds[i], &stats, sizeof(stats));
			if (n_completed == UINT64_MAX)
				n_completed = stats.tasks_completed;
			/* The attacker has sessions, and no other resources. */
			if (stats.plans == 0 && stats.rings == 0 && stats.tasks_in_flight == 0 &&
			    stats.tasks_completed == n_completed &&
			    stats.sessions <= attack->n_sessions)
				attack_count(attack, 0);
			else
				attack_count(attack, -EPERM);
		}
	}
	free(fds);
}

/* ---- 13: the setup thread is kept busy ---- */

void attack_setup_flood(struct attack *attack, unsigned int thread)
{
	unsigned int n = attack_share(attack, thread, NULL);
	int *fds = connect_all(attack, n);
	int plan_fd = attack_plan_fd(attack_describe_products(512, 32));

	while (n > 0 && attack_goes_on(attack))
		ask_for_plans(attack, fds, n, plan_fd);
	free(fds);
}
