/* SPDX-License-Identifier: MIT */
/*
 * The client library beside a real brokerd
 *
 *	test-client-brokerd BROKERD
 *
 * Tests what the fake broker of the unit tests cannot: both sides' sleeping together, the order in
 * which objects are freed, and how fast a client notices a killed broker.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/private.h"
#include "support/scaled.h"
#include "support/test.h"

static const char *brokerd_path;

/* Limit on waits for events that always happen, even on a slow machine; a longer wait is a hang. */
static const uint64_t patience_ns = 60000000000;

struct broker {
	pid_t pid;
	char directory[64];
	char path[128];
	struct rbk *rbk;
	struct rbk_error error;
};

static void sleep_us(long us)
{
	struct timespec time = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&time, NULL);
}

/* Start a broker with --spin=@spin, and connect to it. */
static void broker_begin(struct broker *broker, const char *spin)
{
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = broker->path,
		.flags = RBK_CONNECT_NO_REATTACH,
	};
	uint64_t start_ns = client_now_ns();

	*broker = (struct broker){.pid = -1};
	strcpy(broker->directory, "/tmp/test-client-brokerd-XXXXXX");
	assert_non_null(mkdtemp(broker->directory));
	snprintf(broker->path, sizeof(broker->path), "%s/socket", broker->directory);
	broker->pid = fork();
	if (broker->pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		/* A broker that outlived a failed test would hold the test's output open. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		execl(brokerd_path, "brokerd", "--gpu=none", "--cache=none", "--contention=none",
		      "--socket", broker->path, "--spin", spin, (char *)NULL);
		_exit(127);
	}
	assert_true(broker->pid > 0);
	while (rbk_connect(&options, &broker->rbk, &broker->error)) {
		if (client_now_ns() - start_ns > patience_ns || waitpid(broker->pid, NULL, WNOHANG))
			fail_msg("%s", broker->error.text);
		sleep_us(5000);
	}
}

static void broker_end(struct broker *broker, int signal, int expected)
{
	static const char *const names[] = {"socket", "socket.lock", "socket.admin",
					    "socket.admin.lock"};
	char path[sizeof(broker->directory) + 32];
	int status;

	rbk_disconnect(broker->rbk);
	kill(broker->pid, signal);
	assert_int_equal(waitpid(broker->pid, &status, 0), broker->pid);
	assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), expected);
	/* A lock file stays after every end, a socket after a kill. */
	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", broker->directory, names[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(broker->directory), 0);
}

static struct rbk_ring *ring_make(struct broker *broker, unsigned int entries, uint64_t spin_ns)
{
	struct rbk_ring *ring = NULL;

	assert_int_equal(rbk_ring_new(broker->rbk, entries, &ring, &broker->error), 0);
	if (spin_ns != UINT64_MAX)
		rbk_ring_set_spin_ns(ring, spin_ns);
	return ring;
}

/*
 * Make a plan that multiplies rows of eight numbers by an identity, whose arena is freed at once.
 */
static struct rbk_plan *plan_make(struct broker *broker, uint32_t max_count)
{
	const uint32_t dims[] = {8, 8}, rows[] = {RBK_DIM_COUNT, 8};
	struct rbk_builder *b = rbk_builder_new("identity");
	struct rbk_plan *plan = NULL;
	struct rbk_arena *arena;
	unsigned int x, w, y;
	float *identity;

	assert_int_equal(rbk_arena_new(broker->rbk, 4096, &arena, &broker->error), 0);
	identity = rbk_arena_alloc(arena, 8 * 8 * sizeof(float));
	for (int i = 0; i < 8; i++)
		identity[i * 9] = 1;
	assert_int_equal(rbk_arena_seal(arena, &broker->error), 0);
	x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, rows);
	w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, dims, arena, 0);
	y = rbk_builder_output(b, "y", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	rbk_builder_binary(b, "MatMul", x, w, y);
	if (rbk_plan_new(broker->rbk, b, max_count, &plan, &broker->error))
		fail_msg("%s", broker->error.text);
	rbk_builder_free(b);
	rbk_arena_free(arena);
	return plan;
}

/* ---- rbk_sqe_check() ---- */

enum { CHECK_ENTRIES = 64, CHECK_BYTES = 65536 };

/* The objects that valid entries name. */
struct checked {
	struct rbk_arena *arena, *sealed, *gone;
	struct rbk_plan *two, *six;
	struct rbk_ring *ring;
	uint64_t gone_ref;
};

/* Plan six reads four rows, and writes two, one of which has an inferred shape. */
static struct rbk_plan *plan_six(struct broker *broker)
{
	static const char *const inputs[] = {"a", "b", "c", "d"};
	const uint32_t rows[] = {RBK_DIM_COUNT, 16};
	struct rbk_builder *b = rbk_builder_new("six");
	struct rbk_plan *plan = NULL;
	unsigned int in[4], y, z;

	for (unsigned int i = 0; i < 4; i++)
		in[i] = rbk_builder_input(b, inputs[i], RBK_DTYPE_F32, 2, rows);
	y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows);
	z = rbk_builder_output(b, "z", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	rbk_builder_binary(b, "Add", in[0], in[1], y);
	rbk_builder_binary(b, "Add", in[2], in[3], z);
	if (rbk_plan_new(broker->rbk, b, 8, &plan, &broker->error))
		fail_msg("%s", broker->error.text);
	rbk_builder_free(b);
	return plan;
}

static void checked_begin(struct checked *checked, struct broker *broker)
{
	struct rbk_error *error = &broker->error;
	uint64_t *table;

	assert_int_equal(rbk_arena_new(broker->rbk, CHECK_BYTES, &checked->arena, error), 0);
	assert_int_equal(rbk_arena_new(broker->rbk, CHECK_BYTES, &checked->sealed, error), 0);
	assert_int_equal(rbk_arena_seal(checked->sealed, error), 0);
	checked->two = plan_make(broker, 8);
	checked->six = plan_six(broker);
	/* After the plans: a plan's constants keep an arena, and would take the id. */
	assert_int_equal(rbk_arena_new(broker->rbk, 4096, &checked->gone, error), 0);
	checked->gone_ref = rbk_arena_ref(checked->gone, 0);
	checked->gone = rbk_arena_free(checked->gone);
	checked->ring = ring_make(broker, CHECK_ENTRIES, UINT64_MAX);
	table = rbk_arena_data(checked->arena);
	for (unsigned int i = 0; i < 6; i++)
		table[i] = rbk_arena_ref(checked->arena, 4096 + i * 4096);
}

static void checked_end(struct checked *checked)
{
	rbk_ring_free(checked->ring);
	rbk_plan_free(checked->two);
	rbk_plan_free(checked->six);
	rbk_arena_free(checked->arena);
	rbk_arena_free(checked->sealed);
}

/* Prepare a valid entry of kind @kind. */
static void prep_valid(const struct checked *checked, struct rbk_sqe *sqe, unsigned int kind)
{
	const uint64_t refs[2] = {rbk_arena_ref(checked->arena, 4096),
				  rbk_arena_ref(checked->arena, 8192)};

	switch (kind % 6) {
	case 0:
		rbk_prep_nop(sqe);
		break;
	case 1:
		rbk_prep_barrier(sqe);
		break;
	case 2:
		rbk_prep_cancel(sqe, UINT64_MAX);
		break;
	case 3:
		rbk_prep_run_table(sqe, rbk_plan_id(checked->six), 2,
				   rbk_arena_ref(checked->arena, 0), 6);
		break;
	default:
		rbk_prep_run(sqe, rbk_plan_id(checked->two), 2, refs, 2);
	}
}

static int complete(const struct checked *checked)
{
	const struct rbk_cqe *cqe;
	int res;

	assert_int_equal(rbk_submit(checked->ring), 1);
	assert_int_equal(rbk_wait_cqe(checked->ring, &cqe), 0);
	res = cqe->res;
	rbk_cqe_seen(checked->ring, cqe);
	return res;
}

/* An errno that admission gives, and not the run of a valid entry. */
static bool is_refusal(const struct rbk_sqe *sqe, int res)
{
	return res && res != -ENODEV && !(sqe->opcode == RBK_OP_CANCEL && res == -ENOENT);
}

/*
 * Valid entries with one field changed: what the check refuses, the broker refuses with the same
 * errno, and the other way round. Only the size of an inferred tensor is unknown to the check.
 */
TEST(test_check__agrees_with_the_broker)
{
	const uint64_t n_entries = test_scaled(20000);
	uint64_t odd[10], seed = 88172645463325252u;
	unsigned int n_refused = 0, n_bad = 0, n_unread = 0;
	struct checked checked;
	struct rbk_error error;
	struct broker broker;

	broker_begin(&broker, "0");
	checked_begin(&checked, &broker);
	odd[0] = checked.gone_ref;
	odd[1] = RBK_REF_INVALID;
	odd[2] = rbk_arena_ref(checked.sealed, 0);
	odd[3] = rbk_arena_ref(checked.arena, 4096 + 64);
	odd[4] = rbk_arena_ref(checked.arena, CHECK_BYTES - 64);
	odd[5] = rbk_arena_ref(checked.arena, 0) + 8;
	odd[6] = rbk_plan_id(checked.six);
	odd[7] = 0;
	odd[8] = 6;
	odd[9] = UINT64_MAX;
	for (uint64_t i = 0; i < n_entries; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(checked.ring), copy;
		int res, r;

		assert_non_null(sqe);
		prep_valid(&checked, sqe, (unsigned int)i);
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		if (seed >> 63)
			((uint8_t *)sqe)[(seed >> 32) % sizeof(*sqe)] ^=
				(uint8_t)(1 << (seed >> 40) % 8);
		else
			((uint64_t *)sqe)[(seed >> 32) % 8] = odd[(seed >> 40) % 10];
		/* Nothing waits for ever, and no chain is left open. */
		sqe->flags &= (uint8_t)~RBK_SQE_LINK;
		sqe->user_data = i;
		copy = *sqe;
		error.text[0] = '\0';
		r = rbk_sqe_check(broker.rbk, sqe, &error);
		assert_true(!r == !error.text[0]);
		res = complete(&checked);
		/* A table in the arena of the constants, which was freed, cannot be read here. */
		if (!r && copy.flags & RBK_SQE_ARG_TABLE &&
		    RBK_REF_ARENA(copy.table) != RBK_REF_ARENA(odd[3]) &&
		    RBK_REF_ARENA(copy.table) != RBK_REF_ARENA(odd[2]))
			n_unread++;
		else if (r != (is_refusal(&copy, res) ? res : 0))
			fail_msg("entry %llu, opcode %u: the check says %d (%s), the broker %d",
				 (unsigned long long)i, copy.opcode, r, error.text, res);
		n_refused += r != 0;
		n_bad += r == -EINVAL || r == -EBADF;
	}
	assert_true(n_bad > n_entries / 8 && n_refused < n_entries * 7 / 8);
	assert_true(n_unread < n_entries / 100);
	checked_end(&checked);
	broker_end(&broker, SIGTERM, 0);
}

static void expect_checked(const struct checked *checked, const struct broker *broker, int res,
			   const char *text)
{
	struct rbk_sqe sqe =
		checked->ring->sq->sqes[(checked->ring->sq_tail - 1) & checked->ring->mask];
	struct rbk_error error = {""};

	assert_int_equal(rbk_sqe_check(broker->rbk, &sqe, &error), res);
	if (!strstr(error.text, text))
		fail_msg("\"%s\" does not say \"%s\"", error.text, text);
	assert_int_equal(complete(checked), res);
}

/* A wrong number of references is -EINVAL, whatever it is, and names what would be right. */
TEST(test_check__number_of_references)
{
	static const char *const said[] = {"refs[0]: x has no",
					   "refs[1]: y has no",
					   "",
					   "refs[2]: the plan takes 2",
					   "refs[2]: the plan takes 2",
					   "refs[2]: the plan takes 2",
					   "rbk_prep_run() passes 5 at most"};
	struct checked checked;
	struct broker broker;
	uint64_t refs[7];

	broker_begin(&broker, "0");
	checked_begin(&checked, &broker);
	for (unsigned int n = 0; n < 7; n++) {
		refs[n] = rbk_arena_ref(checked.arena, 4096 + n * 4096);
		rbk_prep_run(rbk_get_sqe(checked.ring), rbk_plan_id(checked.two), 1, refs, n);
		expect_checked(&checked, &broker, n == 2 ? 0 : -EINVAL, said[n]);
	}
	/* The plan takes as many as do not fit. */
	rbk_prep_run(rbk_get_sqe(checked.ring), rbk_plan_id(checked.six), 1, refs, 6);
	expect_checked(&checked, &broker, -EINVAL, "n_refs: ");
	rbk_prep_run(rbk_get_sqe(checked.ring), rbk_plan_id(checked.six), 1, refs, 5);
	expect_checked(&checked, &broker, -EINVAL, "flags: the plan takes 6");
	rbk_prep_run_table(rbk_get_sqe(checked.ring), rbk_plan_id(checked.six), 1,
			   rbk_arena_ref(checked.arena, 0), 5);
	expect_checked(&checked, &broker, -EINVAL, "5 references, and the plan takes 6");
	rbk_prep_run_table(rbk_get_sqe(checked.ring), rbk_plan_id(checked.six), 1,
			   rbk_arena_ref(checked.arena, 0), 6);
	expect_checked(&checked, &broker, 0, "");
	assert_int_equal(rbk_sqe_check(broker.rbk, NULL, NULL), -EINVAL);
	checked_end(&checked);
	broker_end(&broker, SIGTERM, 0);
}

/* ---- One entry in flight ---- */

/*
 * After the completion of a full ring's only entry, its slot is free at once. Both sides spin all
 * the time: on a busy machine a round trip takes milliseconds of two processors, so the time is
 * bounded, too.
 */
TEST(test_room__free_after_completion)
{
	const uint64_t n_tasks = test_scaled(40000), end_ns = client_now_ns() + 1000000000;
	struct broker broker;
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;

	broker_begin(&broker, "1000000");
	ring = ring_make(&broker, 1, 1000000000);
	for (unsigned int i = 0; i < n_tasks && client_now_ns() < end_ns; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		if (!sqe)
			fail_msg("no room for task %u", i);
		rbk_prep_nop(sqe);
		assert_int_equal(rbk_submit(ring), 1);
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
		rbk_cqe_seen(ring, cqe);
	}
	rbk_ring_free(ring);
	broker_end(&broker, SIGTERM, 0);
}

/* ---- Sleeping ---- */

/*
 * Both sides sleep, at once or after a while. The pauses vary, so that each side falls asleep at
 * every moment of the other's work. A lost wake-up shows as a timeout.
 */
TEST(test_sleep__no_wakeup_is_lost)
{
	static const char *const spins[] = {"0", "20", "auto"};

	for (int c = 0; c < 3; c++) {
		struct rbk_plan *plan;
		struct rbk_arena *arena;
		struct rbk_ring *ring;
		struct broker broker;
		uint64_t refs[2];
		float *x, *y;

		broker_begin(&broker, spins[c]);
		ring = ring_make(&broker, 8, c == 0 ? 0 : UINT64_MAX);
		plan = plan_make(&broker, 1024);
		assert_int_equal(rbk_arena_new(broker.rbk, 1 << 17, &arena, &broker.error), 0);
		x = rbk_arena_alloc(arena, 1024 * 32);
		y = rbk_arena_alloc(arena, 1024 * 32);
		refs[0] = rbk_ref(arena, x);
		refs[1] = rbk_ref(arena, y);

		for (unsigned int i = 0; i < 1500; i++) {
			uint32_t count = i % 3 ? 1 : 1 + i % 1024;
			const struct rbk_cqe *cqe;
			int r;

			for (uint32_t k = 0; k < count * 8; k++)
				x[k] = (float)(i + k);
			rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(plan), count, refs, 2);
			assert_int_equal(rbk_submit(ring), 1);
			r = rbk_wait_cqe_timeout(ring, &cqe, patience_ns);
			if (r)
				fail_msg("--spin %s, task %u: %d", spins[c], i, r);
			assert_int_equal(cqe->res, 0);
			rbk_cqe_seen(ring, cqe);
			for (uint32_t k = 0; k < count * 8; k++)
				assert_true(y[k] == (float)(i + k));
			if (i % 7 == 0)
				sleep_us(i % 5 * 30);
		}
		rbk_plan_free(plan);
		rbk_arena_free(arena);
		rbk_ring_free(ring);
		broker_end(&broker, SIGTERM, 0);
	}
}

/* Poll for @n completions: a client that sleeps would look at the broker's token once more. */
static void poll_for(struct rbk_ring *ring, unsigned int n)
{
	const uint64_t end_ns = client_now_ns() + patience_ns;
	const struct rbk_cqe *cqe;

	while (n > 0) {
		if (rbk_peek_cqe(ring, &cqe)) {
			assert_true(client_now_ns() < end_ns);
			continue;
		}
		rbk_cqe_seen(ring, cqe);
		n--;
	}
}

/*
 * The broker falls asleep while a client publishes that has left its fences to it. The pauses
 * follow the moment at which it does.
 */
TEST(test_sleep__beside_a_client_without_fences)
{
	unsigned int n_awake = 0, n_asleep = 0, pause_ns = 20000;
	struct rbk_ring *ring;
	struct broker broker;

	broker_begin(&broker, "20");
	ring = ring_make(&broker, 32, UINT64_MAX);
	/* The kernel, or a container, may lack the call. */
	for (unsigned int i = 0; ring->may_be_unfenced && i < test_scaled(2500); i++) {
		uint64_t end_ns;

		/* As if it had published for long */
		ring->n_fenced = CLIENT_FENCES;
		for (unsigned int k = 0; k < 16; k++) {
			rbk_prep_nop(rbk_get_sqe(ring));
			assert_int_equal(rbk_submit(ring), 1);
		}
		poll_for(ring, 16);
		end_ns = client_now_ns() + pause_ns;
		while (client_now_ns() < end_ns)
			;
		if (!ring->is_unfenced)
			continue;
		rbk_prep_nop(rbk_get_sqe(ring));
		assert_int_equal(rbk_submit(ring), 1);
		if (ring->is_unfenced) {
			n_awake++;
			pause_ns += pause_ns / 64 + i % 64;
		} else {
			n_asleep++;
			pause_ns -= pause_ns / 64;
		}
		poll_for(ring, 1);
	}
	/* On a processor that both share, the broker is never awake. */
	print_message("awake %u, asleep %u\n", n_awake, n_asleep);
	rbk_ring_free(ring);
	broker_end(&broker, SIGTERM, 0);
}

/* More entries than completions have room for: the client announces that it has consumed some. */
TEST(test_sleep__client_announces_room)
{
	struct rbk_ring *ring;
	struct broker broker;
	uint64_t n_sent = 0, n_seen = 0;

	broker_begin(&broker, "0");
	ring = ring_make(&broker, 4, 0);
	for (int i = 0; i < 300; i++) {
		const struct rbk_cqe *cqe;
		struct rbk_sqe *sqe;
		unsigned int head;

		while ((sqe = rbk_get_sqe(ring))) {
			rbk_prep_nop(sqe);
			rbk_sqe_set_data64(sqe, n_sent++);
		}
		assert_true(rbk_submit(ring) >= 0);
		if (i % 8 == 0)
			sleep_us(2000);
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
		rbk_for_each_cqe (ring, head, cqe) {
			assert_int_equal(cqe->user_data, n_seen + head);
			if (head == (unsigned int)i % 3)
				break;
		}
		head += cqe != NULL;
		rbk_cq_advance(ring, head);
		n_seen += head;
	}
	while (n_seen < n_sent) {
		const struct rbk_cqe *cqe;

		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
		assert_int_equal(cqe->user_data, n_seen++);
		rbk_cqe_seen(ring, cqe);
	}
	rbk_ring_free(ring);
	broker_end(&broker, SIGTERM, 0);
}

/* ---- Objects ---- */

/* The broker keeps nothing, in whichever order objects are freed. */
TEST(test_objects__any_order)
{
	struct rbk_stats before, stats;
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	struct rbk_plan *plan;
	struct broker broker;

	broker_begin(&broker, "auto");
	assert_int_equal(rbk_stats(broker.rbk, &before), 0);
	for (int i = 0; i < 10; i++) {
		plan = plan_make(&broker, 16);
		assert_int_equal(rbk_arena_new(broker.rbk, 1 << 16, &arena, &broker.error), 0);
		ring = ring_make(&broker, 8, UINT64_MAX);
		assert_int_equal(rbk_stats(broker.rbk, &stats), 0);
		/* The constants' arena was freed already, but the plan refers to it. */
		assert_fields(stats, (arenas, before.arenas + 2), (plans, before.plans + 1));
		if (i % 2)
			rbk_plan_free(plan);
		rbk_arena_free(arena);
		rbk_ring_free(ring);
		if (i % 2 == 0)
			rbk_plan_free(plan);
	}
	assert_int_equal(rbk_stats(broker.rbk, &stats), 0);
	assert_fields(stats, (arenas, before.arenas), (plans, before.plans), (rings, before.rings),
		      (host_bytes, before.host_bytes));
	broker_end(&broker, SIGTERM, 0);
}

/*
 * If the process may not receive all descriptors of a reply, the library closes the rest and
 * removes the object; the session goes on.
 */
TEST(test_objects__no_descriptor_left)
{
	struct rbk_stats before, stats;
	struct rlimit limit, low;
	struct rbk_ring *ring = NULL;
	struct broker broker;
	uint64_t end_ns;
	int r, next;

	broker_begin(&broker, "auto");
	assert_int_equal(rbk_stats(broker.rbk, &before), 0);
	next = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	/* A ring has three descriptors; 0, 1 or 2 of them can be received. */
	for (rlim_t n = 0; n < 3; n++) {
		low.rlim_cur = (rlim_t)next + n;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
		r = rbk_ring_new(broker.rbk, 8, &ring, &broker.error);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		assert_int_equal(r, -EMFILE);
		assert_non_null(strstr(broker.error.text, "ulimit -n"));
	}
	/* The library does not wait for the removal, which the broker does later. */
	end_ns = client_now_ns() + patience_ns;
	do {
		sleep_us(1000);
		assert_int_equal(rbk_stats(broker.rbk, &stats), 0);
		assert_true(client_now_ns() < end_ns);
	} while (stats.rings != before.rings);
	ring = ring_make(&broker, 8, UINT64_MAX);
	rbk_ring_free(ring);
	broker_end(&broker, SIGTERM, 0);
}

/* Sealing waits for the tasks that use the arena, and all of them complete. */
TEST(test_seal__with_tasks_in_flight)
{
	enum { N_TASKS = 64, ROWS = 3968, FLOATS = ROWS * 8 };
	struct rbk_plan *plan;
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	struct broker broker;
	uint64_t refs[2];
	float *x, *y[N_TASKS];

	broker_begin(&broker, "auto");
	ring = ring_make(&broker, 64, UINT64_MAX);
	plan = plan_make(&broker, 4096);
	assert_int_equal(rbk_arena_new(broker.rbk, 9 << 20, &arena, &broker.error), 0);
	x = rbk_arena_alloc(arena, FLOATS * sizeof(*x));
	for (int i = 0; i < FLOATS; i++)
		x[i] = (float)i;
	refs[0] = rbk_ref(arena, x);
	for (int i = 0; i < N_TASKS; i++) {
		y[i] = rbk_arena_alloc(arena, FLOATS * sizeof(*x));
		assert_non_null(y[i]);
		refs[1] = rbk_ref(arena, y[i]);
		rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(plan), ROWS, refs, 2);
	}
	assert_int_equal(rbk_submit(ring), N_TASKS);
	/* Wait until all tasks are admitted; a task admitted after the seal fails. */
	while (rbk_sq_ready(ring) > 0)
		sleep_us(100);
	assert_int_equal(rbk_arena_seal(arena, &broker.error), 0);
	for (int i = 0; i < N_TASKS; i++) {
		const struct rbk_cqe *cqe;

		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
		assert_int_equal(cqe->res, 0);
		rbk_cqe_seen(ring, cqe);
	}
	for (int i = 0; i < N_TASKS; i++)
		assert_memory_equal(y[i], x, FLOATS * sizeof(*x));
	/* A task may read a sealed arena, but not write it. */
	refs[0] = rbk_ref(arena, x);
	refs[1] = rbk_ref(arena, y[0]);
	for (int i = 0; i < 2; i++) {
		const struct rbk_cqe *cqe;

		rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(plan), 1, refs, 2);
		assert_int_equal(rbk_submit_and_wait(ring, 1), 1);
		assert_int_equal(rbk_peek_cqe(ring, &cqe), 0);
		assert_int_equal(cqe->res, -EACCES);
		rbk_cqe_seen(ring, cqe);
	}
	rbk_ring_free(ring);
	rbk_plan_free(plan);
	rbk_arena_free(arena);
	broker_end(&broker, SIGTERM, 0);
}

/* ---- A lost broker ---- */

/*
 * A client that sleeps, spins or waits for a reply learns that the broker died, and so does each
 * later call.
 */
TEST(test_lost__killed)
{
	for (int how = 0; how < 4; how++) {
		const struct rbk_cqe *cqe;
		struct rbk_arena *arena;
		struct rbk_ring *ring;
		struct broker broker;
		pid_t killer;
		int r = 0;

		broker_begin(&broker, "auto");
		ring = ring_make(&broker, 8, how == 1 ? UINT64_MAX / 2 : 0);
		killer = fork();
		if (killer == 0) {
			sleep_us(50000);
			kill(broker.pid, SIGKILL);
			_exit(0);
		}
		switch (how) {
		case 0:
		case 1:
			r = rbk_wait_cqe(ring, &cqe);
			break;
		case 2:
			r = rbk_wait_cqe_timeout(ring, &cqe, patience_ns);
			break;
		case 3:
			while (!(r = rbk_arena_new(broker.rbk, 4096, &arena, &broker.error)))
				rbk_arena_free(arena);
			break;
		}
		assert_int_equal(r, -ECONNRESET);
		waitpid(killer, NULL, 0);
		assert_int_equal(rbk_wait_cqe(ring, &cqe), -ECONNRESET);
		assert_int_equal(rbk_arena_new(broker.rbk, 4096, &arena, NULL), -ECONNRESET);
		rbk_ring_free(ring);
		broker_end(&broker, SIGKILL, SIGKILL);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "test-client-brokerd BROKERD\n");
		return 2;
	}
	brokerd_path = argv[1];
	return test_run(NULL, NULL);
}
