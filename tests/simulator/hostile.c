/* SPDX-License-Identifier: MIT */
/* Hostile clients: see hostile.h */
#include "simulator/hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libclient/private.h"
#include "shm/ring.h"
#include "simulator/machine.h"

enum {
	WIDTH = 16,
	MAX_ROWS = 8,
	ARENA_BYTES = 64 << 10,
	ENTRIES = 16,
	MESSAGE_BYTES = 512,
	MAX_FDS = 3,
};

struct hostile {
	const char *path;
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
};

static bool must_stop __attribute__((__section__("sim_variables")));

void sim_hostile_stop(void)
{
	must_stop = true;
}

static void pause_ns(uint64_t ns)
{
	const struct timespec time = {.tv_nsec = (long)(ns % 1000000000u)};

	nanosleep(&time, NULL);
}

/* --- Valid beginnings --- */

static bool begin(struct hostile *hostile)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = hostile->path,
		.flags = sim_below(2) ? RBK_CONNECT_NO_REATTACH : 0,
		.timeout_ns = 100000000,
		.reattach_ns = 100000000,
	};
	const uint32_t rows[] = {RBK_DIM_COUNT, WIDTH};
	struct rbk_builder *builder;
	unsigned int x, y;

	if (rbk_connect(&options, &hostile->rbk, NULL))
		return false;
	if (rbk_arena_new(hostile->rbk, ARENA_BYTES, &hostile->arena, NULL))
		return true;
	builder = rbk_builder_new("hostile");
	if (!builder)
		return true;
	x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 2, rows);
	y = rbk_builder_output(builder, "y", RBK_DTYPE_F32, 2, rows);
	rbk_builder_unary(builder, "Neg", x, y);
	rbk_plan_new(hostile->rbk, builder, MAX_ROWS, &hostile->plan, NULL);
	rbk_builder_free(builder);
	rbk_ring_new(hostile->rbk, ENTRIES, &hostile->ring, NULL);
	return true;
}

static void end(struct hostile *hostile)
{
	if (hostile->ring)
		rbk_ring_free(hostile->ring);
	if (hostile->plan)
		rbk_plan_free(hostile->plan);
	if (hostile->arena)
		rbk_arena_free(hostile->arena);
	if (hostile->rbk)
		rbk_disconnect(hostile->rbk);
}

/* --- Entries --- */

static uint64_t any_number(void)
{
	static const uint64_t notable[] = {0,          1,          UINT32_MAX, UINT64_MAX,
					   1ull << 31, 1ull << 63, 64};

	return sim_below(2) ? notable[sim_below(sizeof(notable) / sizeof(*notable))] : sim_random();
}

/* Write an entry into any place of the ring: valid, or with a field changed. */
static void write_entry(struct hostile *hostile, struct rbk_sq_area *area)
{
	struct rbk_sqe *sqe = &area->sqes[sim_below(ENTRIES)];
	const uint64_t number = any_number();
	const size_t bytes = (size_t)1 << sim_below(4);
	const size_t at = sim_below(sizeof(*sqe) / bytes) * bytes;
	const uint64_t refs[2] = {
		rbk_arena_ref(hostile->arena, 0),
		rbk_arena_ref(hostile->arena, 4096),
	};

	switch (sim_below(6)) {
	case 0:
		rbk_prep_nop(sqe);
		break;
	case 1:
		rbk_prep_cancel(sqe, sim_below(8));
		break;
	case 2:
		rbk_prep_barrier(sqe);
		break;
	case 3:
		rbk_prep_run_table(sqe, rbk_plan_id(hostile->plan), 1,
				   rbk_arena_ref(hostile->arena, 8192), 2);
		if (!hostile->arena->sealed)
			memcpy((char *)rbk_arena_data(hostile->arena) + 8192, refs, sizeof(refs));
		break;
	default:
		rbk_prep_run(sqe, rbk_plan_id(hostile->plan), 1 + (uint32_t)sim_below(MAX_ROWS),
			     refs, 2);
	}
	rbk_sqe_set_data64(sqe, sim_below(8));
	sqe->flags = (uint8_t)(sqe->flags | (sim_below(4) ? 0 : RBK_SQE_LINK));
	if (sim_below(3))
		memcpy((char *)sqe + at, &number, bytes);
}

/* The next entry, or any index */
static uint32_t next_index(uint32_t index)
{
	return sim_below(16) ? index + (uint32_t)sim_below(ENTRIES + 1) : (uint32_t)any_number();
}

static void work_on_ring(struct hostile *hostile)
{
	struct rbk_sq_area *area = hostile->ring->sq;

	if (!hostile->plan || hostile->ring->lost)
		return;
	for (uint64_t n = 1 + sim_below(ENTRIES); n > 0; n--)
		write_entry(hostile, area);
	if (sim_below(2))
		rbk_ring_publish(&area->sq_tail, next_index(area->sq_tail));
	if (sim_below(2))
		rbk_ring_publish(&area->cq_head, next_index(area->cq_head));
	if (sim_below(8) == 0)
		((uint32_t *)area)[sim_below(offsetof(struct rbk_sq_area, sqes) / 4)] =
			(uint32_t)any_number();
	/* The bell, whether it is wanted or not */
	if (sim_below(2))
		send(hostile->ring->cold->bell, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- Messages --- */

static int any_descriptor(const struct hostile *hostile)
{
	switch (sim_below(5)) {
	case 0:
		return eventfd(0, EFD_CLOEXEC);
	case 1:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 2:
		return hostile->arena && hostile->arena->fd >= 0
			       ? fcntl(hostile->arena->fd, F_DUPFD_CLOEXEC, 3)
			       : -1;
	case 3:
		return hostile->ring ? fcntl(hostile->ring->cold->sq_fd, F_DUPFD_CLOEXEC, 3) : -1;
	default:
		return memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	}
}

/* Send a message of any type and length, with any descriptors. */
static void send_message(const struct hostile *hostile, int fd)
{
	uint32_t words[MESSAGE_BYTES / 4];
	union {
		char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = words, .iov_len = 8 + sim_below(MESSAGE_BYTES - 8)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	unsigned int n_fds = 0;
	int fds[MAX_FDS];
	struct cmsghdr *cmsg;

	for (unsigned int i = 0; i < MESSAGE_BYTES / 4; i++)
		words[i] = sim_below(3) ? (uint32_t)sim_below(8) : (uint32_t)any_number();
	words[0] = (uint32_t)sim_below(RBK_WIRE_RING_RESTORE + 2);
	/* Messages of about the length that such a request has */
	if (sim_below(2))
		part.iov_len = 16;
	for (uint64_t n = sim_below(2) ? sim_below(MAX_FDS + 1) : 0; n > 0; n--) {
		fds[n_fds] = any_descriptor(hostile);
		n_fds += fds[n_fds] >= 0;
	}
	if (n_fds > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&message);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof(int));
	}
	sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	for (unsigned int i = 0; i < n_fds; i++)
		close(fds[i]);
}

/* Connect without the library, say anything, and leave. */
static void say_anything(const struct hostile *hostile)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char bytes[MESSAGE_BYTES];

	strncpy(address.sun_path, hostile->path, sizeof(address.sun_path) - 1);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
		for (uint64_t n = sim_below(4); n > 0; n--)
			send_message(hostile, fd);
		if (sim_below(2))
			pause_ns(sim_below(1000000));
		if (sim_below(2))
			recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	}
	if (fd >= 0)
		close(fd);
}

/* Break the session of @hostile, in steps, until it ends or the client has had enough. */
static void break_session(struct hostile *hostile)
{
	for (uint64_t n = sim_below(60); n > 0 && !must_stop; n--) {
		switch (sim_below(8)) {
		case 0:
			send_message(hostile, hostile->rbk->fd);
			break;
		case 1:
			pause_ns(sim_below(3000000));
			break;
		case 2:
			/* Behind the library's back */
			if (hostile->arena && sim_below(8) == 0)
				rbk_arena_seal(hostile->arena, NULL);
			break;
		default:
			if (hostile->ring && hostile->arena)
				work_on_ring(hostile);
		}
	}
}

void sim_hostile_main(void *data)
{
	while (!must_stop) {
		struct hostile hostile = {.path = data};

		if (sim_below(4) == 0) {
			say_anything(&hostile);
		} else if (begin(&hostile)) {
			break_session(&hostile);
			/* Or leave all as it is, with the process */
			if (sim_below(4) == 0)
				return;
			end(&hostile);
		}
		pause_ns(sim_below(20000000));
	}
}
