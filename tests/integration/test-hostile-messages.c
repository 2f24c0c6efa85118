/* SPDX-License-Identifier: MIT */
/*
 * Control messages from hostile clients, against a live broker
 *
 * Sends a hundred thousand messages: valid ones with changed bytes, length, order, or number and
 * kind of descriptors. The broker must answer each message or end its session, at once, and keep
 * nothing. The unit tests know which of the two is right.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "shm/plan-wire.h"
#include "support/describe.h"
#include "support/test.h"

enum {
	ARENA_BYTES = 16384,
	MAX_MESSAGE = 4096,
	N_FDS = 14,
};

/* ---- Messages ---- */

struct message {
	_Alignas(8) uint8_t bytes[MAX_MESSAGE];
	size_t n_bytes;
	int fds[RBK_WIRE_MAX_FDS + 2];
	unsigned int n_fds;
};

/* Descriptors of every kind, and the objects that good messages need. */
struct kit {
	int fds[N_FDS];
	int arena, constants, description;
	int area;      /* either area of an idle ring of up to 16 entries */
	uint8_t *plan; /* a description with constants in arena 2 */
	size_t plan_bytes;
	uint64_t seed;
};

static uint32_t pick(struct kit *kit, uint32_t n)
{
	return n ? (uint32_t)(harness_random(&kit->seed) >> 33) % n : 0;
}

static void kit_init(struct kit *kit)
{
	struct describe *d = describe_new("plan", 64);
	int pipes[2], huge;

	memset(kit, 0, sizeof(*kit));
	kit->seed = 0x2545f4914f6cdd1du;
	kit->arena = raw_memfd(ARENA_BYTES, false, SHRINK_GROW);
	kit->constants = raw_memfd(ARENA_BYTES, false, IMMUTABLE);
	kit->area = raw_memfd(4096, false, SHRINK_GROW | F_SEAL_FUTURE_WRITE);
	assert_int_equal(pipe(pipes), 0);
	huge = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	kit->fds[0] = pipes[0];
	kit->fds[1] = pipes[1];
	kit->fds[2] = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	kit->fds[3] = socket(AF_INET, SOCK_STREAM, 0);
	kit->fds[4] = open("/", O_RDONLY | O_DIRECTORY);
	kit->fds[5] = hostile_reopen(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), O_PATH);
	kit->fds[6] = hostile_reopen(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), O_RDONLY);
	kit->fds[7] = raw_memfd(ARENA_BYTES, false, 0);
	kit->fds[8] = raw_memfd(ARENA_BYTES, false, SHRINK_GROW | F_SEAL_FUTURE_WRITE);
	kit->fds[9] = raw_memfd(1 << 30, true, SHRINK_GROW);
	kit->fds[10] = raw_memfd(0, true, SHRINK_GROW);
	kit->fds[11] = huge >= 0 ? huge : open("/dev/null", O_RDWR);
	kit->fds[12] = eventfd(0, 0);
	kit->fds[13] = hostile_reopen(raw_memfd(ARENA_BYTES, false, SHRINK_GROW), O_WRONLY);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_constant(d, "w", RBK_REF(2, 0), DESCRIBE_DIMS(8, 4));
	describe_constant(d, "b", RBK_REF(2, 128), DESCRIBE_DIMS(4));
	describe_scratch(d, "s");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_node(d, "Gemm", "one", "x,w,b", "s");
	describe_attr_float(d, "alpha", 0.5f);
	describe_node(d, "Softmax", "two", "s", "y");
	describe_attr_int(d, "axis", -1);
	kit->plan = describe_finish(d, &kit->plan_bytes);
	kit->description = raw_memfd(ARENA_BYTES, false, 0);
	assert_int_equal(pwrite(kit->description, kit->plan, kit->plan_bytes, 0), kit->plan_bytes);
	assert_int_equal(fcntl(kit->description, F_ADD_SEALS, F_SEAL_SHRINK), 0);
}

static void kit_deinit(struct kit *kit)
{
	for (unsigned int i = 0; i < N_FDS; i++)
		close(kit->fds[i]);
	close(kit->arena);
	close(kit->constants);
	close(kit->description);
	close(kit->area);
	free(kit->plan);
}

#define PUT(message, ...)                                                      \
	do {                                                                   \
		(message)->n_bytes = sizeof(__VA_ARGS__);                      \
		memcpy((message)->bytes, &(__VA_ARGS__), sizeof(__VA_ARGS__)); \
	} while (0)

/*
 * Make a good message of @type. Its description, if any, needs the constants of victim()'s second
 * arena.
 */
static void make_good(struct kit *kit, enum rbk_wire_type type, struct message *m)
{
	const struct rbk_wire_request head = {.type = type, .cookie = pick(kit, 1000)};

	memset(m, 0, sizeof(*m));
	switch (type) {
	case RBK_WIRE_HELLO:
		PUT(m, (struct rbk_wire_hello){.request = head,
					       .magic = RBK_WIRE_MAGIC,
					       .abi_major = RBK_ABI_MAJOR,
					       .abi_minor = RBK_ABI_MINOR,
					       .features = harness_random(&kit->seed),
					       .name = "hostile\n\x1b[2J"});
		break;
	case RBK_WIRE_RING_ADD:
		PUT(m,
		    (struct rbk_wire_ring_add){.request = head, .n_entries = 1u << pick(kit, 9)});
		break;
	case RBK_WIRE_ARENA_ADD:
		PUT(m, (struct rbk_wire_arena_add){.request = head, .bytes = ARENA_BYTES});
		m->fds[m->n_fds++] = pick(kit, 2) ? kit->arena : kit->constants;
		break;
	case RBK_WIRE_ARENA_NEW:
		PUT(m, (struct rbk_wire_arena_new){.request = head, .bytes = ARENA_BYTES});
		break;
	case RBK_WIRE_PLAN_ADD:
		if (pick(kit, 4) == 0) {
			PUT(m, (struct rbk_wire_plan_add){.request = head,
							  .desc_bytes = (uint32_t)kit->plan_bytes,
							  .flags = RBK_WIRE_PLAN_FD});
			m->fds[m->n_fds++] = kit->description;
			break;
		}
		PUT(m, (struct rbk_wire_plan_add){.request = head,
						  .desc_bytes = (uint32_t)kit->plan_bytes});
		memcpy(m->bytes + m->n_bytes, kit->plan, kit->plan_bytes);
		m->n_bytes += kit->plan_bytes;
		break;
	case RBK_WIRE_RING_RESTORE:
		PUT(m,
		    (struct rbk_wire_ring_add){.request = head, .n_entries = 1u << pick(kit, 9)});
		for (unsigned int i = 0; i < 2; i++)
			m->fds[m->n_fds++] = pick(kit, 2) ? kit->fds[pick(kit, N_FDS)] : kit->area;
		break;
	case RBK_WIRE_WANT_ID:
	case RBK_WIRE_RING_REMOVE:
	case RBK_WIRE_ARENA_REMOVE:
		PUT(m, (struct rbk_wire_id){.request = head, .id = pick(kit, 4)});
		break;
	case RBK_WIRE_PLAN_REMOVE:
	case RBK_WIRE_PLAN_MEMORY:
		PUT(m, (struct rbk_wire_id){.request = head,
					    .id = (1 + pick(kit, 3)) << 16 | pick(kit, 3)});
		break;
	default:
		PUT(m, head);
		break;
	}
}

static uint32_t odd_number(struct kit *kit)
{
	static const uint32_t odd[] = {0,
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

	return pick(kit, 3) ? odd[pick(kit, sizeof(odd) / sizeof(*odd))]
			    : (uint32_t)harness_random(&kit->seed);
}

static void mutate(struct kit *kit, struct message *m)
{
	uint32_t number, at;

	switch (pick(kit, 8)) {
	case 0:
		m->bytes[pick(kit, (uint32_t)m->n_bytes)] ^= (uint8_t)(1u << pick(kit, 8));
		break;
	case 1:
	case 2:
		number = odd_number(kit);
		at = pick(kit, (uint32_t)(m->n_bytes / 4)) * 4;
		memcpy(m->bytes + at, &number, sizeof(number));
		break;
	case 3:
		m->n_bytes = pick(kit, (uint32_t)m->n_bytes + 1);
		break;
	case 4:
		m->n_bytes += 1 + pick(kit, (uint32_t)(MAX_MESSAGE - m->n_bytes));
		break;
	case 5:
		if (m->n_fds)
			m->n_fds--;
		else
			m->fds[m->n_fds++] = kit->fds[pick(kit, N_FDS)];
		break;
	case 6:
		if (!m->n_fds)
			m->n_fds = 1;
		m->fds[0] = kit->fds[pick(kit, N_FDS)];
		break;
	case 7:
		while (m->n_fds < RBK_WIRE_MAX_FDS + 2 && pick(kit, 3))
			m->fds[m->n_fds++] = kit->fds[pick(kit, N_FDS)];
		break;
	}
}

/* ---- The hundred thousand ---- */

/* Open a session with a few objects, so that later messages can refer to them. */
static int victim(struct kit *kit)
{
	int fd = hostile_session_with(RBK_FEAT_FIXED_ARENAS | RBK_FEAT_REATTACH);

	/*
	 * A random message may have made the broker fix the memfd, to which no new session can then
	 * write.
	 */
	if (fcntl(kit->arena, F_GET_SEALS) & F_SEAL_FUTURE_WRITE) {
		close(kit->arena);
		kit->arena = raw_memfd(ARENA_BYTES, false, SHRINK_GROW);
	}
	if (pick(kit, 2)) {
		assert_int_equal(raw_arena_add(fd, kit->arena, ARENA_BYTES, NULL, NULL), 0);
		assert_int_equal(raw_arena_add(fd, kit->constants, ARENA_BYTES, NULL, NULL), 0);
	}
	if (pick(kit, 8) == 0) {
		struct raw_ring ring;

		raw_ring_add(fd, 8, &ring);
		raw_ring_close(&ring);
	}
	return fd;
}

TEST(test_messages__hundred_thousand, hostile_begin, hostile_end)
{
	uint64_t n_total = test_scaled(100000), n_closed = 0, n_answered = 0;
	uint64_t longest_ns = 0, start_ns;
	uint32_t type;
	struct rbk_wire_devices answer;
	struct message m;
	struct kit kit;
	ssize_t n;
	int fd;

	kit_init(&kit);
	fd = victim(&kit);
	for (uint64_t i = 0; i < n_total; i++) {
		/* HELLO is valid only once per session. */
		type = pick(&kit, RBK_WIRE_TENANT + 3);
		type = type > RBK_WIRE_TENANT ? RBK_WIRE_WANT_ID + type - RBK_WIRE_TENANT - 1
					      : RBK_WIRE_HELLO + type;
		make_good(&kit, type, &m);
		mutate(&kit, &m);
		if (pick(&kit, 8) == 0)
			mutate(&kit, &m);
		start_ns = harness_now_ns();
		n = raw_send(fd, m.bytes, m.n_bytes, m.fds, m.n_fds);
		if (n >= 0)
			n = raw_receive(fd, &answer, sizeof(answer), NULL, NULL, 20000);
		if (n == -ETIME) {
			struct rbk_wire_request head;

			memcpy(&head, m.bytes, sizeof(head));
			fail_msg("message %llu, type %u, %zu bytes, %u descriptors: no answer",
				 (unsigned long long)i, head.type, m.n_bytes, m.n_fds);
		}
		if (harness_now_ns() - start_ns > longest_ns)
			longest_ns = harness_now_ns() - start_ns;
		n_answered += n > 0;
		if (n > 0 && answer.reply.res == 0)
			assert_int_equal(answer.reply.text[0], 0);
		if (n > 0 && answer.reply.res != 0)
			assert_int_not_equal(answer.reply.text[0], 0);
		if (n > 0 && pick(&kit, 50))
			continue;
		n_closed += n <= 0;
		close(fd);
		/* Sometimes the session begins without HELLO. */
		fd = pick(&kit, 10) ? victim(&kit) : raw_connect(&broker);
	}
	close(fd);
	kit_deinit(&kit);
	print_message(
		"%llu messages: %llu answered, %llu sessions ended; the longest took %.1f ms; "
		"the neighbour got %llu results\n",
		(unsigned long long)n_total, (unsigned long long)n_answered,
		(unsigned long long)n_closed, (double)longest_ns / 1e6,
		(unsigned long long)(neighbour_results(neighbour) - results_before));
	assert_true(n_closed > n_total / 10);
	assert_true(n_answered > n_total / 10);
}

/* ---- One rule at a time, with its reason in the log ---- */

static void expect_closed_because(const struct message *m, bool greeted, const char *reason)
{
	int fd = raw_connect(&broker);

	if (greeted)
		raw_hello(fd);
	assert_int_equal(raw_send(fd, m->bytes, m->n_bytes, m->fds, m->n_fds), m->n_bytes);
	raw_expect_closed(fd);
	close(fd);
	broker_wait_log(&broker, reason);
}

TEST(test_rules__reason_in_the_log, hostile_begin, hostile_end)
{
	struct rbk_stats stats;
	struct message m;
	struct kit kit;

	kit_init(&kit);
	make_good(&kit, RBK_WIRE_STATS, &m);
	expect_closed_because(&m, false, "the client did not send its hello first");
	make_good(&kit, RBK_WIRE_HELLO, &m);
	expect_closed_because(&m, true, "the client sent a second hello");
	m.bytes[offsetof(struct rbk_wire_hello, magic)] ^= 1;
	expect_closed_because(&m, false, "the client's hello has a wrong magic number");
	make_good(&kit, RBK_WIRE_HELLO, &m);
	m.bytes[offsetof(struct rbk_wire_hello, abi_major)]++;
	expect_closed_because(&m, false, "the client speaks another version of the protocol");
	make_good(&kit, RBK_WIRE_HELLO, &m);
	memset(m.bytes + offsetof(struct rbk_wire_hello, name), 'x', RBK_WIRE_NAME_BYTES);
	expect_closed_because(&m, false, "the client's name is not NUL-terminated");
	make_good(&kit, 4711, &m);
	expect_closed_because(&m, true, "a request of unknown type");
	make_good(&kit, RBK_WIRE_STATS, &m);
	m.n_bytes++;
	expect_closed_because(&m, true, "a request of the wrong length or with");
	make_good(&kit, RBK_WIRE_STATS, &m);
	m.n_fds = RBK_WIRE_MAX_FDS + 1;
	for (unsigned int i = 0; i < m.n_fds; i++)
		m.fds[i] = kit.arena;
	expect_closed_because(&m, true, "the client sent a message with too many descriptors");
	make_good(&kit, RBK_WIRE_RING_ADD, &m);
	m.bytes[offsetof(struct rbk_wire_ring_add, reserved)] = 1;
	expect_closed_because(&m, true, "reserved bytes of the client's ring request are not 0");
	make_good(&kit, RBK_WIRE_PLAN_REMOVE, &m);
	m.bytes[offsetof(struct rbk_wire_id, reserved)] = 1;
	expect_closed_because(&m, true,
			      "reserved bytes of the client's request to remove something are not "
			      "0");
	PUT(&m, (struct rbk_wire_plan_add){.request.type = RBK_WIRE_PLAN_ADD, .flags = 2});
	expect_closed_because(&m, true, "the client's plan request has unknown flags");
	PUT(&m, (struct rbk_wire_plan_add){.request.type = RBK_WIRE_PLAN_ADD, .desc_bytes = 1});
	expect_closed_because(&m, true, "another length than its request says");
	PUT(&m, (struct rbk_wire_plan_add){.request.type = RBK_WIRE_PLAN_ADD,
					   .desc_bytes = 64,
					   .flags = RBK_WIRE_PLAN_FD});
	expect_closed_because(&m, true, "has a wrong descriptor");
	m.n_fds = 1;
	m.fds[0] = kit.fds[7];
	expect_closed_because(&m, true, "not in a memfd that is sealed against shrinking");
	m.fds[0] = kit.fds[10];
	expect_closed_because(&m, true, "is shorter than its request says");
	m.fds[0] = kit.fds[13];
	expect_closed_because(&m, true, "the broker cannot read");
	m.n_fds = 0;
	m.n_bytes = 0;
	m.fds[m.n_fds++] = kit.arena;
	expect_closed_because(&m, true, "the client sent an empty message with descriptors");
	kit_deinit(&kit);
	assert_int_equal(rbk_stats(observer, &stats), 0);
	assert_int_equal(stats.sessions_ended_hostile, 17);
	/* The log shows a client's name only without control characters. */
	assert_false(broker_log_has(&broker, "\x1b"));
}

/* A client that breaks a rule again and again does not fill the log. */
TEST(test_rules__log_is_bounded, hostile_begin, hostile_end)
{
	const uint64_t n = test_scaled(2000), begin_ns = harness_now_ns();
	unsigned int before = broker_log_lines(&broker);
	const uint32_t unknown[2] = {4711, 0};
	uint64_t seconds;

	for (uint64_t i = 0; i < n; i++) {
		int fd = raw_connect(&broker);

		assert_int_equal(raw_send(fd, unknown, sizeof(unknown), NULL, 0), sizeof(unknown));
		raw_expect_closed(fd);
		close(fd);
	}
	seconds = (harness_now_ns() - begin_ns) / 1000000000;
	assert_in_range(broker_log_lines(&broker) - before, 1, 2 * (seconds + 2));
}

TEST(test_rules__message_too_long, hostile_begin, hostile_end)
{
	size_t n_bytes = RBK_WIRE_MAX_BYTES + 1;
	uint8_t *bytes = calloc(1, n_bytes);
	int fd = raw_connect(&broker);

	assert_non_null(bytes);
	raw_hello(fd);
	bytes[0] = RBK_WIRE_PLAN_ADD;
	assert_int_equal(raw_send(fd, bytes, n_bytes, NULL, 0), n_bytes);
	raw_expect_closed(fd);
	broker_wait_log(&broker, "a message that is longer than any request");
	close(fd);
	free(bytes);
}

TEST(test_answers__never_read, hostile_begin, hostile_end)
{
	const struct rbk_wire_request stats = {.type = RBK_WIRE_STATS};
	int fd = raw_connect(&broker);
	unsigned int n = 0;

	raw_hello(fd);
	while (raw_send(fd, &stats, sizeof(stats), NULL, 0) > 0)
		assert_true(n++ < 1000000);
	close(fd);
	broker_wait_log(&broker, "the client does not read its answers");
}

/* ---- Many ---- */

TEST(test_connections__thousands, hostile_begin, hostile_end)
{
	enum { N = 3000 };
	static int fds[N];
	struct rlimit old;
	struct rbk_stats stats;

	getrlimit(RLIMIT_NOFILE, &old);
	if (old.rlim_max < N + 500) {
		print_message("needs %d descriptors\n", N + 500);
		skip();
	}
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){N + 500, old.rlim_max});
	for (unsigned int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < N; i++) {
			fds[i] = raw_connect(&broker);
			if (i % 10 == 0)
				raw_hello(fds[i]);
		}
		broker_wait_sessions(observer, N + 2);
		assert_int_equal(rbk_stats(observer, &stats), 0);
		for (unsigned int i = 0; i < N; i++)
			close(fds[i]);
		broker_wait_sessions(observer, 2);
	}
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(110))
