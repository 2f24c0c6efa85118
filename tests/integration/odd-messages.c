/* SPDX-License-Identifier: MIT */
/* Control messages that are valid but for one detail; see odd-messages.h. */
#include "integration/odd-messages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "shm/plan-wire.h"
#include "support/describe.h"
#include "support/test.h"

enum { PATIENCE_MS = 20000, MOST_IN_BURST = 16 };

/* ---- Messages ---- */

/* Return a socket that waits in its own queue. */
static int make_self(void)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(raw_send(pair[1], "", 1, &pair[0], 1), 1);
	close(pair[1]);
	return pair[0];
}

static uint32_t pick(struct odd_messages *odd, uint32_t n)
{
	return n ? (uint32_t)(harness_random(&odd->seed) >> 33) % n : 0;
}

void odd_messages_begin(struct odd_messages *odd, const struct broker *to, uint64_t seed)
{
	struct describe *d = describe_new("plan", 64);
	int pipes[2], huge;

	memset(odd, 0, sizeof(*odd));
	odd->broker = to;
	odd->seed = seed;
	odd->fd = -1;
	odd->arena = raw_memfd(ODD_ARENA_BYTES, false, SHRINK_GROW);
	odd->constants = raw_memfd(ODD_ARENA_BYTES, false, IMMUTABLE);
	odd->area = raw_memfd(4096, false, SHRINK_GROW | F_SEAL_FUTURE_WRITE);
	assert_int_equal(pipe(pipes), 0);
	huge = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	odd->fds[ODD_FD_PIPE_READ] = pipes[0];
	odd->fds[ODD_FD_PIPE_WRITE] = pipes[1];
	odd->fds[ODD_FD_SOCKET] = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	odd->fds[ODD_FD_TCP] = socket(AF_INET, SOCK_STREAM, 0);
	odd->fds[ODD_FD_FOLDER] = open("/", O_RDONLY | O_DIRECTORY);
	odd->fds[ODD_FD_PATH] =
		hostile_reopen(raw_memfd(ODD_ARENA_BYTES, false, SHRINK_GROW), O_PATH);
	odd->fds[ODD_FD_READ_ONLY] =
		hostile_reopen(raw_memfd(ODD_ARENA_BYTES, false, SHRINK_GROW), O_RDONLY);
	odd->fds[ODD_FD_UNSEALED] = raw_memfd(ODD_ARENA_BYTES, false, 0);
	odd->fds[ODD_FD_FUTURE_WRITE] =
		raw_memfd(ODD_ARENA_BYTES, false, SHRINK_GROW | F_SEAL_FUTURE_WRITE);
	odd->fds[ODD_FD_SPARSE] = raw_memfd(1 << 30, true, SHRINK_GROW);
	odd->fds[ODD_FD_EMPTY] = raw_memfd(0, true, SHRINK_GROW);
	odd->fds[ODD_FD_HUGE] = huge >= 0 ? huge : open("/dev/null", O_RDWR);
	odd->fds[ODD_FD_EVENT] = eventfd(0, 0);
	odd->fds[ODD_FD_EPOLL] = epoll_create1(EPOLL_CLOEXEC);
	odd->fds[ODD_FD_SELF] = make_self();
	odd->fds[ODD_FD_WRITE_ONLY] =
		hostile_reopen(raw_memfd(ODD_ARENA_BYTES, false, SHRINK_GROW), O_WRONLY);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_constant(d, "w", RBK_REF(2, 0), DESCRIBE_DIMS(8, 4));
	describe_constant(d, "b", RBK_REF(2, 128), DESCRIBE_DIMS(4));
	describe_scratch(d, "s");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_node(d, "Gemm", "one", "x,w,b", "s");
	describe_attr_float(d, "alpha", 0.5f);
	describe_node(d, "Softmax", "two", "s", "y");
	describe_attr_int(d, "axis", -1);
	odd->plan = describe_finish(d, &odd->plan_bytes);
	odd->description = raw_memfd(ODD_ARENA_BYTES, false, 0);
	assert_int_equal(pwrite(odd->description, odd->plan, odd->plan_bytes, 0), odd->plan_bytes);
	assert_int_equal(fcntl(odd->description, F_ADD_SEALS, F_SEAL_SHRINK), 0);
}

void odd_messages_end(struct odd_messages *odd)
{
	if (odd->fd >= 0)
		close(odd->fd);
	for (unsigned int i = 0; i < ODD_N_FDS; i++)
		close(odd->fds[i]);
	close(odd->arena);
	close(odd->constants);
	close(odd->description);
	close(odd->area);
	free(odd->plan);
}

void odd_message_make(struct odd_messages *odd, enum rbk_wire_type type, struct odd_message *m)
{
	const struct rbk_wire_request head = {.type = type, .cookie = pick(odd, 1000)};

	bool is_drop;

	memset(m, 0, sizeof(*m));
	switch (type) {
	case RBK_WIRE_HELLO:
		ODD_PUT(m, (struct rbk_wire_hello){.request = head,
						   .magic = RBK_WIRE_MAGIC,
						   .abi_major = RBK_ABI_MAJOR,
						   .abi_minor = RBK_ABI_MINOR,
						   .features = harness_random(&odd->seed),
						   .name = "hostile\n\x1b[2J"});
		break;
	case RBK_WIRE_RING_ADD:
		ODD_PUT(m, (struct rbk_wire_ring_add){.request = head,
						      .n_entries = 1u << pick(odd, 9)});
		break;
	case RBK_WIRE_ARENA_ADD:
		ODD_PUT(m, (struct rbk_wire_arena_add){.request = head, .bytes = ODD_ARENA_BYTES});
		m->fds[m->n_fds++] = pick(odd, 2) ? odd->arena : odd->constants;
		break;
	case RBK_WIRE_ARENA_NEW:
		ODD_PUT(m, (struct rbk_wire_arena_new){.request = head, .bytes = ODD_ARENA_BYTES});
		break;
	case RBK_WIRE_PLAN_ADD:
		if (pick(odd, 4) == 0) {
			ODD_PUT(m,
				(struct rbk_wire_plan_add){.request = head,
							   .desc_bytes = (uint32_t)odd->plan_bytes,
							   .flags = RBK_WIRE_PLAN_FD});
			m->fds[m->n_fds++] = odd->description;
			break;
		}
		ODD_PUT(m, (struct rbk_wire_plan_add){.request = head,
						      .desc_bytes = (uint32_t)odd->plan_bytes});
		memcpy(m->bytes + m->n_bytes, odd->plan, odd->plan_bytes);
		m->n_bytes += odd->plan_bytes;
		break;
	case RBK_WIRE_RING_RESTORE:
		ODD_PUT(m, (struct rbk_wire_ring_add){.request = head,
						      .n_entries = 1u << pick(odd, 9)});
		for (unsigned int i = 0; i < 2; i++)
			m->fds[m->n_fds++] =
				pick(odd, 2) ? odd->fds[pick(odd, ODD_N_FDS)] : odd->area;
		break;
	case RBK_WIRE_WANT_ID:
	case RBK_WIRE_RING_REMOVE:
	case RBK_WIRE_ARENA_REMOVE:
		ODD_PUT(m, (struct rbk_wire_id){.request = head, .id = pick(odd, 4)});
		break;
	case RBK_WIRE_PLAN_REMOVE:
	case RBK_WIRE_PLAN_MEMORY:
		ODD_PUT(m, (struct rbk_wire_id){.request = head,
						.id = (1 + pick(odd, 3)) << 16 | pick(odd, 3)});
		break;
	case RBK_WIRE_STATS_PAGE:
	case RBK_WIRE_STATS_RESET:
		ODD_PUT(m,
			(struct rbk_wire_stats_of){.request = head, .whose = RBK_WIRE_STATS_OWN});
		break;
	case RBK_WIRE_CONTROL:
		ODD_PUT(m,
			(struct rbk_wire_control){.request = head, .setting = RBK_WIRE_FORCE_CPU});
		break;
	case RBK_WIRE_LEASE_OPEN:
		ODD_PUT(m, (struct rbk_wire_lease_open){.request = head,
							.device = RBK_DEVICE_NONE,
							.wait_ms = pick(odd, 4) ? 0 : 5,
							.min_bytes = 1 << pick(odd, 25),
							.wish_bytes = 1 << 25,
							.max_bytes = 1 << 26,
							.program = "odd"});
		break;
	case RBK_WIRE_LEASE_CREDIT:
		ODD_PUT(m, (struct rbk_wire_lease_credit){.request = head,
							  .lease = 1 + pick(odd, 64),
							  .want_bytes = 1 << pick(odd, 25),
							  .used_bytes = 4096,
							  .n_objects = 1});
		break;
	case RBK_WIRE_LEASE_OBJECT:
		is_drop = pick(odd, 2);
		ODD_PUT(m, (struct rbk_wire_lease_object){.request = head,
							  .lease = 1 + pick(odd, 64),
							  .action = is_drop ? RBK_WIRE_OBJECT_DROP
									    : RBK_WIRE_OBJECT_ADD,
							  .dev = 1,
							  .ino = pick(odd, 4),
							  .bytes = is_drop ? 0 : 4096});
		break;
	case RBK_WIRE_LEASE_RESIZE:
		ODD_PUT(m, (struct rbk_wire_lease_resize){.request = head,
							  .lease = 1 + pick(odd, 64),
							  .wish_bytes = 1 << pick(odd, 27)});
		break;
	case RBK_WIRE_LEASE_CGROUP:
		ODD_PUT(m, (struct rbk_wire_lease_cgroup){.request = head,
							  .lease = 1 + pick(odd, 64)});
		m->fds[m->n_fds++] = odd->fds[ODD_FD_FOLDER];
		break;
	case RBK_WIRE_ADMIN_SET:
		ODD_PUT(m, (struct rbk_wire_admin_set){
				   .request = head, .key = "vram-max", .value = "1MiB"});
		break;
	case RBK_WIRE_ADMIN_LIMIT:
	case RBK_WIRE_ADMIN_RESTART:
		ODD_PUT(m, (struct rbk_wire_admin_limit){.request = head});
		break;
	case RBK_WIRE_ADMIN_EVICT:
		ODD_PUT(m,
			(struct rbk_wire_admin_evict){.request = head, .device = RBK_DEVICE_NONE});
		break;
	case RBK_WIRE_ADMIN_DRAIN:
		ODD_PUT(m, (struct rbk_wire_admin_drain){
				   .request = head, .what = RBK_WIRE_DRAIN_TENANT, .action = 1});
		break;
	default:
		ODD_PUT(m, head);
		break;
	}
}

static uint32_t odd_number(struct odd_messages *odd)
{
	static const uint32_t edges[] = {0,
					 1,
					 2,
					 3,
					 7,
					 8,
					 63,
					 64,
					 255,
					 4096,
					 65535,
					 65536,
					 (2u << 20) + 1,
					 INT32_MAX,
					 1u << 31,
					 UINT32_MAX};

	return pick(odd, 3) ? edges[pick(odd, sizeof(edges) / sizeof(*edges))]
			    : (uint32_t)harness_random(&odd->seed);
}

/* Change one word, the length, or the descriptors. */
static void mutate(struct odd_messages *odd, struct odd_message *m)
{
	uint32_t number, at;

	switch (pick(odd, 8)) {
	case 0:
		m->bytes[pick(odd, (uint32_t)m->n_bytes)] ^= (uint8_t)(1u << pick(odd, 8));
		break;
	case 1:
	case 2:
		number = odd_number(odd);
		at = pick(odd, (uint32_t)(m->n_bytes / 4)) * 4;
		memcpy(m->bytes + at, &number, sizeof(number));
		break;
	case 3:
		m->n_bytes = pick(odd, (uint32_t)m->n_bytes + 1);
		break;
	case 4:
		m->n_bytes += 1 + pick(odd, (uint32_t)(ODD_MESSAGE_BYTES - m->n_bytes));
		break;
	case 5:
		if (m->n_fds)
			m->n_fds--;
		else
			m->fds[m->n_fds++] = odd->fds[pick(odd, ODD_N_FDS)];
		break;
	case 6:
		if (!m->n_fds)
			m->n_fds = 1;
		m->fds[0] = odd->fds[pick(odd, ODD_N_FDS)];
		break;
	case 7:
		while (m->n_fds < ODD_MESSAGE_FDS && pick(odd, 3))
			m->fds[m->n_fds++] = odd->fds[pick(odd, ODD_N_FDS)];
		break;
	}
}

/* Open a session with a few objects, so that later messages can refer to them. */
static void open_session(struct odd_messages *odd)
{
	int fd = raw_connect(odd->broker);

	odd->fd = fd;
	/* Some sessions begin without HELLO. */
	odd->is_in_doubt = false;
	odd->is_greeted = pick(odd, 10) > 0;
	if (!odd->is_greeted)
		return;
	raw_hello_with(fd, RBK_FEAT_FIXED_ARENAS | RBK_FEAT_REATTACH | RBK_FEAT_RESIDENCY |
				   RBK_FEAT_LEASES | RBK_FEAT_STATS | RBK_FEAT_RESTORE);
	/*
	 * A random message may have made the broker fix the memfd, to which no new session can then
	 * write.
	 */
	if (fcntl(odd->arena, F_GET_SEALS) & F_SEAL_FUTURE_WRITE) {
		close(odd->arena);
		odd->arena = raw_memfd(ODD_ARENA_BYTES, false, SHRINK_GROW);
	}
	if (pick(odd, 2)) {
		assert_int_equal(raw_arena_add(fd, odd->arena, ODD_ARENA_BYTES, NULL, NULL), 0);
		assert_int_equal(raw_arena_add(fd, odd->constants, ODD_ARENA_BYTES, NULL, NULL), 0);
	}
	if (pick(odd, 8) == 0) {
		struct raw_ring ring;

		raw_ring_add(fd, 8, &ring);
		raw_ring_close(&ring);
	}
}

/* ---- Bursts ---- */

struct burst {
	unsigned int n_sent, n_may_wait;
	bool is_valid; /* true: no message gives the broker a reason to end the session */
	uint32_t last_type;
};

/*
 * Send one message.
 * Return: false if the session has ended.
 */
static bool send_one(struct odd_messages *odd, struct burst *burst)
{
	/* Types 28 and 29 do not exist, and are as wrong as others. */
	const uint32_t type = RBK_WIRE_HELLO + pick(odd, ODD_TYPES - RBK_WIRE_HELLO);
	struct rbk_wire_request head = {0};
	struct odd_message m;
	ssize_t n;

	odd_message_make(odd, type, &m);
	if (pick(odd, 8)) {
		mutate(odd, &m);
		if (pick(odd, 8) == 0)
			mutate(odd, &m);
		odd->n_changed++;
		burst->is_valid = false;
	} else if (type == RBK_WIRE_HELLO || type == 28 || type == 29 ||
		   type == RBK_WIRE_RING_RESTORE) {
		burst->is_valid = false;
	}
	memcpy(&head, m.bytes, m.n_bytes < sizeof(head) ? m.n_bytes : sizeof(head));
	n = raw_send(odd->fd, m.bytes, m.n_bytes, m.fds, m.n_fds);
	/* The kernel limits descriptors that are under way. */
	if (n == -ETOOMANYREFS)
		return true;
	if (n < 0)
		return false;
	burst->n_sent++;
	burst->n_may_wait += head.type == RBK_WIRE_LEASE_OPEN || head.type == RBK_WIRE_LEASE_CREDIT;
	burst->last_type = head.type;
	odd->n_sent++;
	odd->n_of_type[type]++;
	return true;
}

static const char *say(struct odd_messages *odd, const struct burst *burst, const char *what)
{
	snprintf(odd->failure, sizeof(odd->failure),
		 "a burst of %u messages, the last of type %u: %s", burst->n_sent, burst->last_type,
		 what);
	return odd->failure;
}

/* Take the answers to a burst; *ret_is_over is set if the session has ended. */
static const char *take_answers(struct odd_messages *odd, const struct burst *burst,
				bool *ret_is_over)
{
	unsigned int n_left = burst->n_sent - burst->n_may_wait;
	struct rbk_wire_devices answer;
	bool is_refused = false;

	while (n_left > 0) {
		ssize_t n = raw_receive(odd->fd, &answer, sizeof(answer), NULL, NULL,
					(unsigned int)harness_slow_ns(PATIENCE_MS));

		if (n == -ETIME)
			return say(odd, burst, "no answer");
		*ret_is_over = n < (ssize_t)sizeof(answer.reply);
		if (*ret_is_over)
			return burst->is_valid && odd->is_greeted && !odd->is_in_doubt
				       ? say(odd, burst, "the session ended for valid messages")
				       : NULL;
		if ((answer.reply.res != 0) != (answer.reply.text[0] != 0))
			return say(odd, burst, "a result without its text, or the reverse");
		odd->n_answered++;
		is_refused |= answer.reply.res != 0;
		/* An earlier request that waited is answered at any time. */
		if (answer.reply.type != RBK_WIRE_LEASE_OPEN &&
		    answer.reply.type != RBK_WIRE_LEASE_CREDIT)
			n_left--;
	}
	/*
	 * The session may end later: for a message whose answer this function does not wait for, or
	 * behind the answer to a wrong arena. Further answers show that the session has not ended.
	 */
	if (!burst->is_valid && (burst->n_may_wait > 0 || is_refused))
		odd->is_in_doubt = true;
	else if (burst->n_sent > burst->n_may_wait)
		odd->is_in_doubt = false;
	return NULL;
}

const char *odd_messages_step(struct odd_messages *odd)
{
	const unsigned int n = pick(odd, 4) ? 1 : 2 + pick(odd, MOST_IN_BURST - 1);
	const uint64_t begin_ns = harness_now_ns();
	struct burst burst = {.is_valid = true};
	const char *sentence;
	bool is_over = false;
	uint64_t ns;

	if (odd->fd < 0)
		open_session(odd);
	while (burst.n_sent < n && !is_over)
		is_over = !send_one(odd, &burst);
	/* Answers that were sent before the end are still there. */
	sentence = take_answers(odd, &burst, &is_over);
	ns = harness_now_ns() - begin_ns;
	if (ns > odd->longest_ns)
		odd->longest_ns = ns;
	odd->n_ended += is_over;
	if (is_over || pick(odd, 50) == 0) {
		close(odd->fd);
		odd->fd = -1;
	}
	return sentence;
}
