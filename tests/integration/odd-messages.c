/* SPDX-License-Identifier: MIT */
/* Control messages that are valid but for one detail; see odd-messages.h. */
#include "integration/odd-messages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
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

enum { PATIENCE_MS = 20000 };

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
	odd->own = raw_memfd(ODD_ARENA_BYTES, false, SHRINK_GROW);
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
	close(odd->own);
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
	case RBK_WIRE_LEASE_SHARE:
		ODD_PUT(m, (struct rbk_wire_lease_share){.request = head,
							 .lease = 1 + pick(odd, 64),
							 .priority = pick(odd, 6),
							 .share = pick(odd, 10002)});
		break;
	case RBK_WIRE_LEASE_TIMESLICE:
		ODD_PUT(m, (struct rbk_wire_lease_timeslice){.request = head,
							     .lease = 1 + pick(odd, 64),
							     .action = 1 + pick(odd, 2)});
		break;
	case RBK_WIRE_LEASE_PARTS:
		ODD_PUT(m, (struct rbk_wire_lease_parts){.request = head,
							 .lease = 1 + pick(odd, 64),
							 .n_parts = harness_random(&odd->seed),
							 .longest_ns = harness_random(&odd->seed)});
		break;
	case RBK_WIRE_LEASE_LOST:
		ODD_PUT(m, (struct rbk_wire_lease_lost){.request = head,
							.lease = 1 + pick(odd, 64),
							.verdict = pick(odd, 3)});
		break;
	case RBK_WIRE_LEASE_SLEEP:
		ODD_PUT(m, (struct rbk_wire_lease_sleep){.request = head,
							 .lease = 1 + pick(odd, 64),
							 .sleep = pick(odd, 5)});
		break;
	case RBK_WIRE_LEASE_MOVED:
		ODD_PUT(m,
			(struct rbk_wire_lease_moved){.request = head,
						      .lease = 1 + pick(odd, 64),
						      .movable_bytes = harness_random(&odd->seed),
						      .moved_bytes = harness_random(&odd->seed)});
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

static struct rbk_wire_request head_of(const struct odd_message *m)
{
	struct rbk_wire_request head = {0};

	memcpy(&head, m->bytes, m->n_bytes < sizeof(head) ? m->n_bytes : sizeof(head));
	return head;
}

static uint32_t type_of(const struct odd_message *m)
{
	return head_of(m).type;
}

/*
 * Change the message. Most changes leave its form right: with a wrong one, the session ends before
 * the broker looks at the content, and with the session what earlier messages have made.
 */
static void change(struct odd_messages *odd, struct odd_message *m)
{
	const struct odd_message valid = *m;

	do {
		*m = valid;
		mutate(odd, m);
		if (pick(odd, 8) == 0)
			mutate(odd, m);
	} while ((m->n_bytes != valid.n_bytes || m->n_fds != valid.n_fds ||
		  type_of(m) != type_of(&valid)) &&
		 pick(odd, 16));
}

/* ---- Sessions ---- */

static const char *complain(struct odd_messages *odd, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static const char *complain(struct odd_messages *odd, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(odd->failure, sizeof(odd->failure), format, arguments);
	va_end(arguments);
	return odd->failure;
}

static const char *send_hello(struct odd_messages *odd)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO, .cookie = 1},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
		.features = RBK_FEAT_FIXED_ARENAS | RBK_FEAT_REATTACH | RBK_FEAT_RESIDENCY |
			    RBK_FEAT_LEASES | RBK_FEAT_STATS | RBK_FEAT_RESTORE | RBK_FEAT_SHARES |
			    RBK_FEAT_PARTS | RBK_FEAT_LOST | RBK_FEAT_SLEEP,
		.name = "odd",
	};
	const ssize_t n = raw_send(odd->fd, &hello, sizeof(hello), NULL, 0);

	odd->n_expected = 1;
	odd->stage = ODD_GREETS;
	return n == (ssize_t)sizeof(hello) ? NULL : complain(odd, "cannot send a hello: %zd", n);
}

/* Connect. Some sessions begin without HELLO. */
static const char *open_session(struct odd_messages *odd)
{
	odd->fd = raw_connect(odd->broker);
	odd->is_in_doubt = false;
	odd->is_greeted = pick(odd, 10) > 0;
	if (odd->is_greeted)
		return send_hello(odd);
	odd->stage = ODD_OPEN;
	return NULL;
}

/* Ask for a few objects, so that later messages can refer to them. */
static const char *send_objects(struct odd_messages *odd)
{
	const struct rbk_wire_arena_add add = {.request = {.type = RBK_WIRE_ARENA_ADD, .cookie = 3},
					       .bytes = ODD_ARENA_BYTES};
	const struct rbk_wire_ring_add ring = {.request = {.type = RBK_WIRE_RING_ADD, .cookie = 2},
					       .n_entries = 8};
	const int arenas[] = {odd->own, odd->constants};
	ssize_t n = 0;

	odd->stage = ODD_OPEN;
	odd->n_expected = 0;
	for (unsigned int i = 0; i < 2 && n >= 0; i++, odd->n_expected++)
		n = raw_send(odd->fd, &add, sizeof(add), &arenas[i], 1);
	if (n >= 0 && pick(odd, 4) == 0) {
		n = raw_send(odd->fd, &ring, sizeof(ring), NULL, 0);
		odd->n_expected++;
	}
	return n < 0 ? complain(odd, "cannot send a request for objects: %zd", n) : NULL;
}

/* Take the answers to hello, or to a request for objects: no other message may spoil them. */
static const char *take_expected(struct odd_messages *odd)
{
	for (; odd->n_expected > 0; odd->n_expected--) {
		struct rbk_wire_devices answer;
		const ssize_t n = raw_receive(odd->fd, &answer, sizeof(answer), NULL, NULL,
					      (unsigned int)harness_slow_ns(PATIENCE_MS));

		if (n < (ssize_t)sizeof(answer.reply))
			return complain(odd, "%zd bytes for a valid request of a new session", n);
		if (answer.reply.res)
			return complain(odd, "a new session's valid request of type %u: %d, %s",
					answer.reply.type, answer.reply.res, answer.reply.text);
	}
	if (odd->stage == ODD_GREETS)
		odd->stage = pick(odd, 8) ? ODD_OPEN : ODD_LACKS_OBJECTS;
	return NULL;
}

/* ---- Bursts ---- */

/*
 * A changed message may have the broker fix the memfd, also after the session's end. Then no new
 * session could write to it.
 */
static void renew_arena(struct odd_messages *odd, const struct odd_message *m)
{
	for (unsigned int i = 0; i < m->n_fds; i++) {
		if (m->fds[i] != odd->arena)
			continue;
		close(odd->arena);
		odd->arena = raw_memfd(ODD_ARENA_BYTES, false, SHRINK_GROW);
		return;
	}
}

/* Return true if every message of this type ends a session. Type 29 does not exist. */
static bool ends_session(uint32_t type)
{
	return type == RBK_WIRE_HELLO || type == 29;
}

/* Return true if a request of this type may wait for memory. */
static bool may_wait(uint32_t type)
{
	return type == RBK_WIRE_LEASE_OPEN || type == RBK_WIRE_LEASE_CREDIT;
}

/* Pick the type of a message; few end the session in any case. */
static uint32_t pick_type(struct odd_messages *odd)
{
	uint32_t type;

	do
		type = RBK_WIRE_HELLO + pick(odd, ODD_TYPES - RBK_WIRE_HELLO);
	while (ends_session(type) && pick(odd, 16));
	return type;
}

/*
 * Send one message.
 * Return: false if the session has ended.
 */
static bool send_one(struct odd_messages *odd, struct odd_burst *burst)
{
	const uint32_t type = pick_type(odd);
	const bool is_changed = pick(odd, 8) > 2;
	uint32_t sent_type;
	struct odd_message m;
	ssize_t n;

	odd_message_make(odd, type, &m);
	if (is_changed) {
		change(odd, &m);
		burst->is_valid = false;
	} else if (ends_session(type) || type == RBK_WIRE_RING_RESTORE) {
		burst->is_valid = false;
	}
	sent_type = type_of(&m);
	n = raw_send(odd->fd, m.bytes, m.n_bytes, m.fds, m.n_fds);
	if (is_changed)
		renew_arena(odd, &m);
	/* The kernel limits descriptors that are under way. */
	if (n == -ETOOMANYREFS)
		return true;
	if (n < 0)
		return false;
	burst->changed |= (uint32_t)is_changed << burst->n_sent;
	burst->unanswered |= 1u << burst->n_sent;
	burst->heads[burst->n_sent] = head_of(&m);
	burst->n_sent++;
	burst->n_may_wait += may_wait(sent_type);
	burst->last_type = sent_type;
	return true;
}

static const char *say(struct odd_messages *odd, const char *what)
{
	return complain(odd, "a burst of %u messages, the last of type %u: %s", odd->burst.n_sent,
			odd->burst.last_type, what);
}

/* Count the first @n messages of the burst as handled. */
static void count_handled(struct odd_messages *odd, unsigned int n)
{
	odd->n_handled += n;
	odd->n_changed += (unsigned int)__builtin_popcount(odd->burst.changed & ((1u << n) - 1));
}

/* Return false if the answer belongs to no message of the burst that has none yet. */
static bool take_answer(struct odd_burst *burst, const struct rbk_wire_reply *reply)
{
	for (unsigned int i = 0; i < burst->n_sent; i++)
		if (burst->unanswered >> i & 1 && burst->heads[i].type == reply->type &&
		    burst->heads[i].cookie == reply->cookie) {
			burst->unanswered &= ~(1u << i);
			return true;
		}
	/* An earlier request that waited is answered at any time. */
	return may_wait(reply->type);
}

/* Take the answers to the burst; *ret_is_over is set if the session has ended. */
static const char *take_answers(struct odd_messages *odd, bool *ret_is_over)
{
	struct odd_burst *burst = &odd->burst;
	const unsigned int n_wanted = burst->n_sent - burst->n_may_wait;
	struct rbk_wire_devices answer;
	unsigned int n_taken = 0;
	bool is_refused = false;

	while (n_taken < n_wanted) {
		ssize_t n = raw_receive(odd->fd, &answer, sizeof(answer), NULL, NULL,
					(unsigned int)harness_slow_ns(PATIENCE_MS));

		if (n == -ETIME)
			return say(odd, "no answer");
		if (n < (ssize_t)sizeof(answer.reply)) {
			*ret_is_over = true;
			/* The broker has not looked at those behind the one that ended the session.
			 */
			count_handled(odd, n_taken + 1);
			return burst->is_valid && odd->is_greeted && !odd->is_in_doubt
				       ? say(odd, "the session ended for valid messages")
				       : NULL;
		}
		if ((answer.reply.res != 0) != (answer.reply.text[0] != 0))
			return say(odd, "a result without its text, or the reverse");
		is_refused |= answer.reply.res != 0;
		if (!take_answer(burst, &answer.reply))
			return complain(odd,
					"an answer of type %u, cookie %u, to no message, or a "
					"second one: %d, %s",
					answer.reply.type, answer.reply.cookie, answer.reply.res,
					answer.reply.text);
		n_taken += !may_wait(answer.reply.type);
	}
	count_handled(odd, burst->n_sent);
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

const char *odd_messages_send(struct odd_messages *odd)
{
	const unsigned int n = pick(odd, 2) ? 1 : 2 + pick(odd, ODD_MOST_IN_BURST - 1);

	odd->begin_ns = harness_now_ns();
	odd->burst = (struct odd_burst){.is_valid = true};
	odd->has_ended = false;
	if (odd->fd < 0) {
		const char *sentence = open_session(odd);

		if (sentence || odd->stage == ODD_GREETS)
			return sentence;
	} else if (odd->stage == ODD_LACKS_OBJECTS) {
		return send_objects(odd);
	}
	while (odd->burst.n_sent < n && !odd->has_ended)
		odd->has_ended = !send_one(odd, &odd->burst);
	return NULL;
}

const char *odd_messages_take(struct odd_messages *odd)
{
	const char *sentence;
	uint64_t ns;

	if (odd->n_expected > 0)
		return take_expected(odd);
	/* Answers that were sent before the end are still there. */
	sentence = take_answers(odd, &odd->has_ended);
	ns = harness_now_ns() - odd->begin_ns;
	if (ns > odd->longest_ns)
		odd->longest_ns = ns;
	odd->n_ended += odd->has_ended;
	if (odd->has_ended || pick(odd, 50) == 0) {
		close(odd->fd);
		odd->fd = -1;
	}
	return sentence;
}
