/* SPDX-License-Identifier: MIT */
/* Connections: defaults, versions, requests of several threads, and every wrong answer. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringbroker/admin.h>

#include "support/client-fixture.h"
#include "support/stopwatch.h"
#include "support/test.h"

TEST(test_connect__answers)
{
	struct rbk_device devices[RBK_MAX_DEVICES] = {0};
	struct rbk_stats stats;
	unsigned int n;

	FIXTURE(fixture, NULL);
	/* The fake offers two known features and an unknown one. */
	assert_int_equal(rbk_features(fixture.rbk), RBK_FEAT_RESIDENCY | RBK_FEAT_TENANTS);
	assert_string_equal(rbk_broker_name(fixture.rbk), "fake");

	assert_int_equal(rbk_devices(fixture.rbk, devices, RBK_MAX_DEVICES, &n), 0);
	assert_int_equal(n, 2);
	assert_string_equal(devices[0].name, "cpu");
	assert_fields(devices[1], (kind, RBK_DEVICE_KIND_GPU), (memory_bytes, 1 << 30));
	assert_string_equal(devices[1].paths, "staged");
	memset(devices, 0, sizeof(devices));
	assert_int_equal(rbk_devices(fixture.rbk, devices, 1, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(devices[1].index, 0);
	assert_int_equal(rbk_devices(fixture.rbk, NULL, 0, &n), 0);

	assert_int_equal(rbk_stats(fixture.rbk, &stats), 0);
	assert_fields(stats, (session_tasks[0], 11), (session_reasons[RBK_REASON_COUNT - 1], 22),
		      (host_bytes, 33), (sessions_ended_hostile, 44));
}

TEST(test_connect__default_path)
{
	struct rbk_options options = {.size = sizeof(options)};
	struct rbk *rbk = NULL;
	struct rbk_error error;
	struct fixture fixture;
	char path[256], directory[128];

	fixture_begin(&fixture, NULL);
	/* The environment variable comes first. */
	setenv("RINGBROKER_SOCKET", fake_broker_path(fixture.fake), 1);
	setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
	assert_int_equal(rbk_connect(NULL, &rbk, NULL), 0);
	assert_string_equal(fake_broker_client(fixture.fake), program_invocation_short_name);
	rbk_disconnect(rbk);
	/* The runtime directory comes next, if it has the socket. */
	unsetenv("RINGBROKER_SOCKET");
	assert_int_not_equal(rbk_connect(NULL, &rbk, &error), 0);
	assert_non_null(strstr(error.text, "/run/ringbroker/brokerd.sock"));
	snprintf(directory, sizeof(directory), "/tmp/test-client-XXXXXX");
	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/ringbroker", directory);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/ringbroker/brokerd.sock", directory);
	assert_int_equal(symlink(fake_broker_path(fixture.fake), path), 0);
	setenv("XDG_RUNTIME_DIR", directory, 1);
	assert_int_equal(rbk_connect(&options, &rbk, NULL), 0);
	assert_string_equal(fake_broker_client(fixture.fake), program_invocation_short_name);
	rbk_disconnect(rbk);
	unlink(path);
	snprintf(path, sizeof(path), "%s/ringbroker", directory);
	rmdir(path);
	rmdir(directory);
	fixture_end(&fixture);
}

/* The administrators' socket is named after the clients' socket. */
TEST(test_admin__default_path)
{
	static const struct {
		const char *other, *admin;
	} cases[] = {
		{"/nonexistent/ringbroker/brokerd.sock",
		 "/nonexistent/ringbroker-admin/admin.sock"},
		{"/nonexistent/ringbroker/x.sock", "/nonexistent/ringbroker-admin/x.admin.sock"},
		{"/nonexistent/ringbroker//x", "/nonexistent/ringbroker-admin//x.admin"},
		{"ringbroker/brokerd.sock", "ringbroker-admin/admin.sock"},
		{"/tmp/myringbroker/brokerd.sock", "/tmp/myringbroker/admin.sock"},
		{"/ringbroker/x/brokerd.sock", "/ringbroker/x/admin.sock"},
		{"ringbroker", "ringbroker.admin"},
		{"brokerd.sock", "admin.sock"},
		{"/tmp/x.sock", "/tmp/x.admin.sock"},
		{"/tmp/x", "/tmp/x.admin"},
		{"x.sock", "x.admin.sock"},
		{"/tmp/a.sock/x", "/tmp/a.sock/x.admin"},
		{"/tmp/.sock", "/tmp/.sock.admin"},
		{"/tmp/admin.sock", "/tmp/admin.admin.sock"},
		{"/tmp/mybrokerd.sock", "/tmp/mybrokerd.admin.sock"},
		{"", ".admin"},
	};
	char path[256], text[120];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const size_t n = strlen(cases[i].admin);

		assert_int_equal(rbk_admin_socket_path(cases[i].other, path, n + 1), 0);
		assert_string_equal(path, cases[i].admin);
		assert_int_equal(rbk_admin_socket_path(cases[i].other, path, n), -ENAMETOOLONG);
	}
	assert_int_equal(rbk_admin_socket_path("x", path, 0), -EINVAL);
	assert_int_equal(rbk_admin_socket_path("x", NULL, 8), -EINVAL);

	/* Without a path, the default is that of rbk_admin_connect(). */
	setenv("RINGBROKER_SOCKET", "/tmp/b.sock", 1);
	assert_int_equal(rbk_admin_socket_path(NULL, path, sizeof(path)), 0);
	assert_string_equal(path, "/tmp/b.admin.sock");
	setenv("RINGBROKER_ADMIN_SOCKET", "/tmp/other", 1);
	assert_int_equal(rbk_admin_socket_path(NULL, path, sizeof(path)), 0);
	assert_string_equal(path, "/tmp/other");
	assert_int_equal(rbk_admin_socket_path(NULL, path, 10), -ENAMETOOLONG);
	/* The variable names another broker's socket, and does not apply to a given path. */
	assert_int_equal(rbk_admin_socket_path("/tmp/x", path, sizeof(path)), 0);
	assert_string_equal(path, "/tmp/x.admin");
	unsetenv("RINGBROKER_ADMIN_SOCKET");
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	setenv("RINGBROKER_SOCKET", text, 1);
	assert_int_equal(rbk_admin_socket_path(NULL, path, sizeof(path)), -ENAMETOOLONG);
	unsetenv("RINGBROKER_SOCKET");
}

static void touch(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
}

/* A broker of an earlier version is found where it listens, beside the clients' socket. */
TEST(test_admin__earlier_path)
{
	char folder[] = "/tmp/test-client-XXXXXX", clients[64], old[64], own[64], path[64];

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/ringbroker", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(clients, sizeof(clients), "%s/ringbroker/brokerd.sock", folder);
	snprintf(old, sizeof(old), "%s/ringbroker/admin.sock", folder);
	snprintf(own, sizeof(own), "%s/ringbroker-admin/admin.sock", folder);
	assert_int_equal(rbk_admin_socket_path(clients, path, sizeof(path)), 0);
	assert_string_equal(path, own);
	touch(old);
	assert_int_equal(rbk_admin_socket_path(clients, path, sizeof(path)), 0);
	assert_string_equal(path, old);
	/* The link of a newer broker, in a container that has no other folder. */
	assert_int_equal(unlink(old), 0);
	assert_int_equal(symlink("../ringbroker-admin/admin.sock", old), 0);
	assert_int_equal(rbk_admin_socket_path(clients, path, sizeof(path)), 0);
	assert_string_equal(path, own);
	/*
	 * Where a newer broker has been, its socket is meant, whether it runs or not: another
	 * program may have made the earlier one.
	 */
	unlink(old);
	touch(old);
	*strrchr(own, '/') = '\0';
	assert_int_equal(mkdir(own, 0700), 0);
	own[strlen(own)] = '/';
	assert_int_equal(rbk_admin_socket_path(clients, path, sizeof(path)), 0);
	assert_string_equal(path, own);
	touch(own);
	assert_int_equal(rbk_admin_socket_path(clients, path, sizeof(path)), 0);
	assert_string_equal(path, own);
	unlink(old);
	unlink(own);
	*strrchr(own, '/') = '\0';
	rmdir(own);
	*strrchr(old, '/') = '\0';
	rmdir(old);
	assert_int_equal(rmdir(folder), 0);
}

TEST(test_connect__impossible)
{
	struct rbk_options options = {.size = sizeof(options),
				      .socket_path = "/nonexistent/socket"};
	struct rbk *rbk = (struct rbk *)1;
	struct rbk_error error;
	char text[256];
	int n_fds = count_fds();

	assert_int_equal(rbk_connect(&options, &rbk, &error), -ENOENT);
	assert_string_equal(error.text,
			    "cannot connect to a broker at /nonexistent/socket: No such file or "
			    "directory; is brokerd running, and does it listen at this path?");
	assert_int_equal(rbk_connect(&options, &rbk, NULL), -ENOENT);
	memset(text, 'x', 255);
	text[255] = '\0';
	options.socket_path = text;
	assert_int_equal(rbk_connect(&options, &rbk, &error), -ENAMETOOLONG);
	options.socket_path = "/nonexistent/socket";
	options.name = text;
	assert_int_equal(rbk_connect(&options, &rbk, &error), -EINVAL);
	options.name = NULL;
	options.size = 0;
	assert_int_equal(rbk_connect(&options, &rbk, &error), -EINVAL);
	assert_ptr_equal(rbk, (struct rbk *)1);
	assert_int_equal(count_fds(), n_fds);
	assert_null(rbk_disconnect(NULL));
}

/* A broker that listens but does not accept, with a full queue of connections. */
TEST(test_connect__not_accepted)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct rbk_options options = {.size = sizeof(options), .timeout_ns = 50000000};
	struct rbk *rbk;
	struct rbk_error error;
	struct stopwatch stopwatch;
	uint64_t start_ns;
	int listener, first, r = 0;

	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/test-client-%d.sock", getpid());
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	first = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 0), 0);
	assert_int_equal(connect(first, (struct sockaddr *)&address, sizeof(address)), 0);

	options.socket_path = address.sun_path;
	start_ns = client_now_ns();
	stopwatch_start(&stopwatch);
	r = rbk_connect(&options, &rbk, &error);
	assert_true(stopwatch_stop_ms(&stopwatch) < 5000);
	assert_int_equal(r, -ETIME);
	assert_true(since_ms(start_ns) >= 45);
	assert_non_null(strstr(error.text, "did not accept the connection"));
	close(first);
	close(listener);
	unlink(address.sun_path);
}

/* One wrong answer to a request of a type, and the expected result. */
struct fault_case {
	enum fake_fault fault;
	uint32_t type;
	int expected;
	const char *sentence;
};

static int do_request(struct fixture *fixture, uint32_t type)
{
	struct rbk_device devices[RBK_MAX_DEVICES];
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	struct rbk_stats stats;
	unsigned int n;
	int r = -ENOTRECOVERABLE;

	switch (type) {
	case RBK_WIRE_RING_ADD:
		r = rbk_ring_new(fixture->rbk, 4, &ring, &fixture->error);
		if (!r)
			rbk_ring_free(ring);
		break;
	case RBK_WIRE_ARENA_ADD:
	case RBK_WIRE_ARENA_NEW:
		r = rbk_arena_new(fixture->rbk, 4096, &arena, &fixture->error);
		if (!r)
			rbk_arena_free(arena);
		break;
	case RBK_WIRE_DEVICES:
		r = rbk_devices(fixture->rbk, devices, RBK_MAX_DEVICES, &n);
		break;
	case RBK_WIRE_STATS:
		r = rbk_stats(fixture->rbk, &stats);
		break;
	}
	return r;
}

/*
 * A rejected request ends at once. The machine may stand still for a moment, or keep one of the two
 * threads waiting, but not each time; a wait of the library's comes each time.
 */
enum { PROMPT_MS = 100, PROMPT_TRIES = 5 };

/* Send a request to a broker that answers wrongly. Return: the milliseconds that it took. */
static double answer_wrongly(size_t i, const struct fault_case *c)
{
	struct fake_options options = {
		.fault = c->fault,
		.fault_type = c->type,
		.exports = c->type == RBK_WIRE_ARENA_NEW,
	};
	struct stopwatch stopwatch;
	struct fixture fixture;
	double ms;
	int r;

	fixture_begin(&fixture, &options);
	if (c->type != RBK_WIRE_HELLO)
		assert_int_equal(fixture_connect(&fixture, 0), 0);
	stopwatch_start(&stopwatch);
	r = c->type == RBK_WIRE_HELLO ? fixture_connect(&fixture, 0)
				      : do_request(&fixture, c->type);
	ms = stopwatch_stop_ms(&stopwatch);
	if (r != c->expected)
		fail_msg("case %zu: %d (%s) instead of %d", i, r, fixture.error.text, c->expected);
	if (c->sentence && !strstr(fixture.error.text, c->sentence))
		fail_msg("case %zu: \"%s\" does not say \"%s\"", i, fixture.error.text,
			 c->sentence);
	/* After a rejection the connection works; any other fault ends it for good. */
	if (fixture.rbk && (r == -EDQUOT || r == -EBUSY))
		assert_int_equal(do_request(&fixture, c->type), 0);
	else if (fixture.rbk)
		assert_int_equal(do_request(&fixture, RBK_WIRE_STATS), r);
	fixture_end(&fixture);
	return ms;
}

TEST(test_request__wrong_answers)
{
	static const struct fault_case cases[] = {
		{FAKE_SHORT, RBK_WIRE_HELLO, -EPROTO, "644 bytes instead of 648"},
		{FAKE_EMPTY, RBK_WIRE_HELLO, -EPROTO, "protocol"},
		{FAKE_LONG, RBK_WIRE_HELLO, -EPROTO, "656 bytes instead of 648"},
		{FAKE_HUGE, RBK_WIRE_HELLO, -EPROTO, "protocol"},
		{FAKE_COOKIE, RBK_WIRE_HELLO, -EPROTO, "protocol"},
		{FAKE_TYPE, RBK_WIRE_HELLO, -EPROTO, "with type 9"},
		{FAKE_POSITIVE, RBK_WIRE_HELLO, -EPROTO, "result 1"},
		{FAKE_ENDLESS, RBK_WIRE_HELLO, -EPROTO, "not NUL-terminated"},
		{FAKE_VERSION, RBK_WIRE_HELLO, -EPROTO, "answered with 2.0"},
		{FAKE_FDS_TOO_MANY, RBK_WIRE_HELLO, -EPROTO, "1 descriptors"},
		{FAKE_FDS_FLOOD, RBK_WIRE_HELLO, -EPROTO, "protocol"},
		{FAKE_REFUSE, RBK_WIRE_HELLO, -EDQUOT, "that is too much"},
		{FAKE_REFUSE_BARE, RBK_WIRE_HELLO, -EBUSY, "without a reason"},
		{FAKE_DIE, RBK_WIRE_HELLO, -ECONNRESET, "gone"},
		{FAKE_SHORT, RBK_WIRE_RING_ADD, -EPROTO, "548 bytes instead of 552"},
		{FAKE_FDS_MISSING, RBK_WIRE_RING_ADD, -EPROTO, "0 descriptors"},
		{FAKE_FDS_TOO_MANY, RBK_WIRE_RING_ADD, -EPROTO, "4 descriptors"},
		{FAKE_FDS_FLOOD, RBK_WIRE_RING_ADD, -EPROTO, "protocol"},
		{FAKE_FDS_WRONG, RBK_WIRE_RING_ADD, -EPROTO, "cannot map the submission area"},
		{FAKE_COOKIE, RBK_WIRE_RING_ADD, -EPROTO, "protocol"},
		{FAKE_ENTRIES_0, RBK_WIRE_RING_ADD, -EPROTO, "ring of 0 entries"},
		{FAKE_ENTRIES_3, RBK_WIRE_RING_ADD, -EPROTO, "ring of 3 entries"},
		{FAKE_ENTRIES_OTHER, RBK_WIRE_RING_ADD, -EPROTO, "of 8 entries, not of 4"},
		{FAKE_AREA_SMALL, RBK_WIRE_RING_ADD, -EPROTO, "and 512 bytes"},
		{FAKE_AREA_HUGE, RBK_WIRE_RING_ADD, -EPROTO, "areas of 1099511627776"},
		{FAKE_FILE_SHORT, RBK_WIRE_RING_ADD, -EPROTO, "cannot map"},
		{FAKE_REFUSE, RBK_WIRE_RING_ADD, -EDQUOT, "that is too much"},
		{FAKE_DIE, RBK_WIRE_RING_ADD, -ECONNRESET, "gone"},
		{FAKE_ID, RBK_WIRE_ARENA_ADD, -EPROTO, "arena number 65535"},
		{FAKE_FDS_TOO_MANY, RBK_WIRE_ARENA_ADD, -EPROTO, "1 descriptors"},
		{FAKE_ID, RBK_WIRE_ARENA_NEW, -EPROTO, "arena number 65535"},
		{FAKE_SHORT, RBK_WIRE_ARENA_NEW, -EPROTO, "532 bytes instead of 536"},
		{FAKE_FDS_MISSING, RBK_WIRE_ARENA_NEW, -EPROTO, "0 descriptors"},
		{FAKE_FDS_TOO_MANY, RBK_WIRE_ARENA_NEW, -EPROTO, "2 descriptors"},
		{FAKE_FDS_WRONG, RBK_WIRE_ARENA_NEW, -EPROTO, "of 0 bytes instead of 4096"},
		{FAKE_ARENA_SHORT, RBK_WIRE_ARENA_NEW, -EPROTO, "of 0 bytes instead of 4096"},
		{FAKE_DIE, RBK_WIRE_ARENA_NEW, -ECONNRESET, "gone"},
		{FAKE_SEGMENT_ODD, RBK_WIRE_HELLO, -EPROTO, "segments have 4097"},
		{FAKE_REFUSE, RBK_WIRE_ARENA_ADD, -EDQUOT, "that is too much"},
		{FAKE_DIE, RBK_WIRE_ARENA_ADD, -ECONNRESET, "gone"},
		{FAKE_DEVICES_17, RBK_WIRE_DEVICES, -EPROTO, NULL},
		{FAKE_NAME_ENDLESS, RBK_WIRE_DEVICES, -EPROTO, NULL},
		{FAKE_TYPE, RBK_WIRE_STATS, -EPROTO, NULL},
		{FAKE_DIE, RBK_WIRE_STATS, -ECONNRESET, NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (unsigned int n = 1; answer_wrongly(i, &cases[i]) >= PROMPT_MS; n++)
			assert_true(n < PROMPT_TRIES);
}

/* A second answer to one request is a protocol error. */
TEST(test_request__answered_twice)
{
	struct fake_options options = {.fault = FAKE_TWICE, .fault_type = RBK_WIRE_STATS};

	FIXTURE(fixture, &options);
	assert_int_equal(do_request(&fixture, RBK_WIRE_STATS), 0);
	assert_int_equal(do_request(&fixture, RBK_WIRE_STATS), -EPROTO);
}

TEST(test_request__dies_after_answer)
{
	struct fake_options options = {.fault = FAKE_DIE_AFTER, .fault_type = RBK_WIRE_ARENA_ADD};
	struct rbk_arena *arena;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_arena_new(fixture.rbk, 100, &arena, NULL), 0);
	/* The arena's memory outlives the broker. */
	memset(rbk_arena_data(arena), 1, rbk_arena_bytes(arena));
	assert_int_equal(rbk_arena_seal(arena, &fixture.error), -ECONNRESET);
	assert_int_equal(do_request(&fixture, RBK_WIRE_ARENA_ADD), -ECONNRESET);
	assert_null(rbk_arena_free(arena));
}

/* A late answer is no protocol error, and the object that it made is given back. */
TEST(test_request__late_answer)
{
	struct fake_options options = {.fault = FAKE_HELD, .fault_type = RBK_WIRE_ARENA_ADD};
	struct rbk_arena *arena;
	struct stopwatch stopwatch;
	uint64_t start_ns;
	char wanted[128];

	FIXTURE(fixture, &options);
	fixture.rbk->timeout_ns = 50000000;
	start_ns = client_now_ns();
	stopwatch_start(&stopwatch);
	assert_int_equal(rbk_arena_new(fixture.rbk, 100, &arena, &fixture.error), -ETIME);
	assert_true(stopwatch_stop_ms(&stopwatch) < 10000);
	assert_true(since_ms(start_ns) >= 49);
	snprintf(wanted, sizeof(wanted),
		 "the broker (process %d) is running, but did not answer within 0.05 s", getpid());
	assert_string_equal(fixture.error.text, wanted);
	/* The fake broker may answer even later than it was told to. */
	for (int i = 0; i < 60000 && fake_broker_objects(fixture.fake) == 0; i++)
		sleep_ms(1);
	assert_int_equal(fake_broker_objects(fixture.fake), 1);

	fixture.rbk->timeout_ns = 60000000000u;
	fake_broker_release(fixture.fake);
	assert_int_equal(do_request(&fixture, RBK_WIRE_STATS), 0);
	assert_int_equal(do_request(&fixture, RBK_WIRE_STATS), 0);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_REMOVE), 1);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

TEST(test_request__silence)
{
	struct fake_options options = {.fault = FAKE_SILENT, .fault_type = RBK_WIRE_HELLO};
	struct stopwatch stopwatch;
	struct fixture fixture;

	fixture_begin(&fixture, &options);
	stopwatch_start(&stopwatch);
	assert_int_equal(fixture_connect(&fixture, 30000000), -ETIME);
	assert_true(stopwatch_stop_ms(&stopwatch) < 1000);
	fixture_end(&fixture);
}

struct thread_argument {
	struct fixture *fixture;
	struct rbk_plan *plan;
	int r;
	bool done; /* accessed atomically */
};

static void *make_plan(void *data)
{
	struct thread_argument *argument = data;
	struct rbk_builder *builder = rbk_builder_new("slow");
	unsigned int x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 0, NULL);
	unsigned int y = rbk_builder_output(builder, "y", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);

	rbk_builder_unary(builder, "Relu", x, y);
	argument->r = rbk_plan_new(argument->fixture->rbk, builder, 1, &argument->plan, NULL);
	rbk_builder_free(builder);
	__atomic_store_n(&argument->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* A slow plan does not delay other requests, whichever thread reads the answers for all. */
TEST(test_request__out_of_order)
{
	struct fake_options options = {.fault = FAKE_HELD, .fault_type = RBK_WIRE_PLAN_ADD};
	struct thread_argument argument = {0};
	pthread_t thread;

	FIXTURE(fixture, &options);
	argument.fixture = &fixture;
	assert_int_equal(pthread_create(&thread, NULL, make_plan, &argument), 0);
	while (fake_broker_requests(fixture.fake, RBK_WIRE_PLAN_ADD) == 0)
		sleep_ms(1);
	for (int i = 0; i < 100; i++)
		assert_int_equal(do_request(&fixture, RBK_WIRE_STATS), 0);
	assert_false(__atomic_load_n(&argument.done, __ATOMIC_ACQUIRE));
	fake_broker_release(fixture.fake);
	pthread_join(thread, NULL);
	assert_int_equal(argument.r, 0);
	assert_null(rbk_plan_free(argument.plan));
}

/* A thread that waits for an answer returns -ECONNRESET when another thread disconnects. */
TEST(test_request__disconnect_meanwhile)
{
	struct fake_options options = {.fault = FAKE_SILENT, .fault_type = RBK_WIRE_PLAN_ADD};
	struct thread_argument argument = {0};
	struct rbk_arena *arena;
	pthread_t thread;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_arena_new(fixture.rbk, 1, &arena, NULL), 0);
	argument.fixture = &fixture;
	assert_int_equal(pthread_create(&thread, NULL, make_plan, &argument), 0);
	while (fake_broker_requests(fixture.fake, RBK_WIRE_PLAN_ADD) == 0)
		sleep_ms(1);
	client_lose(fixture.rbk, -ECONNRESET);
	pthread_join(thread, NULL);
	assert_int_equal(argument.r, -ECONNRESET);
	/* Objects outlive the connection. */
	fixture.rbk = rbk_disconnect(fixture.rbk);
	memset(rbk_arena_data(arena), 1, 1);
	assert_int_equal(rbk_arena_seal(arena, NULL), -ECONNRESET);
	assert_null(rbk_arena_free(arena));
}

static void *make_many(void *data)
{
	struct thread_argument *argument = data;

	for (int i = 0; i < 200 && !argument->r; i++)
		argument->r = do_request(argument->fixture,
					 i % 2 ? RBK_WIRE_ARENA_ADD : RBK_WIRE_RING_ADD);
	return NULL;
}

TEST(test_request__threads)
{
	struct thread_argument arguments[4];
	struct fixture fixture, copies[4];
	pthread_t threads[4];

	fixture_begin_connected(&fixture, NULL);
	for (int i = 0; i < 4; i++) {
		copies[i] = fixture;
		arguments[i] = (struct thread_argument){.fixture = &copies[i]};
		assert_int_equal(pthread_create(&threads[i], NULL, make_many, &arguments[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(arguments[i].r, 0);
	}
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_RING_REMOVE), 400);
	fixture_end(&fixture);
}

static void on_signal(int number)
{
}

/* Signals do not disturb requests. */
static void *send_signals(void *data)
{
	pthread_t *target = data;

	for (int i = 0; i < 50; i++) {
		sleep_ms(1);
		pthread_kill(*target, SIGUSR1);
	}
	return NULL;
}

TEST(test_request__interrupted)
{
	struct fake_options options = {.fault = FAKE_SILENT, .fault_type = RBK_WIRE_STATS};
	struct sigaction action = {.sa_handler = on_signal};
	pthread_t self = pthread_self(), thread;
	uint64_t start_ns;

	sigaction(SIGUSR1, &action, NULL);
	FIXTURE(fixture, &options);
	fixture.rbk->timeout_ns = 100000000;
	assert_int_equal(pthread_create(&thread, NULL, send_signals, &self), 0);
	start_ns = client_now_ns();
	assert_int_equal(do_request(&fixture, RBK_WIRE_STATS), -ETIME);
	assert_true(since_ms(start_ns) >= 99);
	pthread_join(thread, NULL);
}

TEST(test_reason__names)
{
	for (unsigned int i = 0; i < RBK_REASON_COUNT; i++)
		for (unsigned int j = 0; j < i; j++)
			assert_string_not_equal(rbk_reason_name(i), rbk_reason_name(j));
	assert_string_equal(rbk_reason_name(RBK_REASON_COST_MODEL), "cost-model");
	assert_string_equal(rbk_reason_name(RBK_REASON_COUNT), "unknown");
}
