/* SPDX-License-Identifier: MIT */
/*
 * A hostile client and device memory
 *
 * A tenant requests as much device memory as it can, as often as it can. Beside it run a neighbour
 * and a tenant with a reserve, on a real broker with a software Vulkan device of 6 MiB. The client
 * is a process of another group, to which the policy gives 5 MiB. The reserve's owner holds 4 MiB
 * throughout. Whatever the client does, the neighbour's results are right, the reserve stays
 * resident, and no tenant exceeds its maximum. After the client has ended, all its charges are
 * gone.
 */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"

enum {
	GPU = RBK_DEVICE_GPU,
	HOSTILE_GID = 54321,
	N = 1024, /* width and height of a matrix of 4 MiB */
	MIB = 1 << 20,
};

static struct broker broker;
static struct rbk *owner;
static struct rbk *observer; /* administrator: tenants see only their own figures */
static struct rbk_plan *reserved;

/* ---- Plans ---- */

/* Make x * W with W at the beginning of @constants. Return: NULL if it is rejected. */
static struct rbk_plan *product_new(struct rbk *rbk, struct rbk_arena *constants, uint32_t n)
{
	struct rbk_plan *plan = NULL;

	plan_product(rbk, 1, n, n, constants, &plan, NULL);
	return plan;
}

/* Make x plus @n constants of 64 bytes, which lie one after the other from @first on. */
static struct rbk_plan *sum_new(struct rbk *rbk, struct rbk_arena *constants, unsigned int first,
				unsigned int n)
{
	const uint32_t in[] = {RBK_DIM_COUNT, 16}, dims[] = {16};
	struct rbk_builder *b = rbk_builder_new("sum");
	unsigned int at = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, in);
	struct rbk_error error = {""};
	struct rbk_plan *plan = NULL;

	for (unsigned int i = 0; i < n; i++) {
		const char name[] = {'c',
				     's',
				     (char)('a' + i / 676),
				     (char)('a' + i / 26 % 26),
				     (char)('a' + i % 26),
				     '\0'};
		unsigned int c = rbk_builder_constant(b, name, RBK_DTYPE_F32, 1, dims, constants,
						      (uint64_t)(first + i) * 64);
		unsigned int to = i + 1 < n ? rbk_builder_scratch(b, name + 1, RBK_DTYPE_F32, 2, in)
					    : rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, in);

		rbk_builder_binary(b, "Add", at, c, to);
		at = to;
	}
	if (rbk_plan_new(rbk, b, 1, &plan, &error))
		fprintf(stderr, "%s\n", error.text);
	rbk_builder_free(b);
	return plan;
}

static struct rbk_arena *constants_new(struct rbk *rbk, size_t bytes)
{
	struct rbk_arena *constants;

	if (plan_constants(rbk, bytes, &constants))
		_exit(2);
	return constants;
}

/* ---- The hostile client, in a process of its own ---- */

struct hostile {
	struct rbk *rbk;
	struct rbk_arena *large, *tensors; /* constants of a product; tasks' inputs and outputs */
	uint64_t end_ns;
};

static bool goes_on(const struct hostile *hostile)
{
	return harness_now_ns() < hostile->end_ns;
}

static struct rbk_ring *ring_of(const struct hostile *hostile, unsigned int n_entries)
{
	struct rbk_ring *ring;

	if (rbk_ring_new(hostile->rbk, n_entries, &ring, NULL))
		_exit(3);
	return ring;
}

/* Submit @n tasks that wait for memory. */
static void fill_waiting(const struct hostile *hostile, struct rbk_ring *ring, unsigned int n,
			 const struct rbk_plan *plan)
{
	const uint64_t refs[] = {rbk_arena_ref(hostile->tensors, 0),
				 rbk_arena_ref(hostile->tensors, N * sizeof(float))};

	for (unsigned int i = 0; i < n; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		if (!sqe) {
			rbk_submit(ring);
			i--;
			continue;
		}
		rbk_prep_run(sqe, rbk_plan_id(plan), 1, refs, 2);
		rbk_sqe_set_wait_memory(sqe);
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_ONLY_GPU);
		sqe->user_data = i;
	}
	rbk_submit(ring);
}

enum { N_RINGS = 8 };

/* Return the tasks per ring; fewer in slow builds. */
static unsigned int n_waiting(void)
{
	uint64_t n = test_scaled(32000);

	return n < 32000 ? (unsigned int)n : 32000;
}

/* Let as many tasks as possible wait, then remove their plan, which ends all of them at once. */
static void wait_then_remove(const struct hostile *hostile)
{
	struct rbk_ring *rings[N_RINGS];

	for (int i = 0; i < N_RINGS; i++)
		rings[i] = ring_of(hostile, 32768);
	do {
		struct rbk_plan *plan = product_new(hostile->rbk, hostile->large, N);

		if (!plan)
			_exit(4);
		for (int i = 0; i < N_RINGS; i++)
			fill_waiting(hostile, rings[i], n_waiting(), plan);
		harness_sleep_ms(100);
		rbk_plan_free(plan);
		for (int i = 0; i < N_RINGS; i++) {
			const struct rbk_cqe *cqe;

			for (int k = 0; k < (int)n_waiting(); k++) {
				if (rbk_wait_cqe(rings[i], &cqe))
					_exit(5);
				rbk_cqe_seen(rings[i], cqe);
			}
		}
	} while (goes_on(hostile));
}

/* Let as many tasks as possible wait, then free half of the rings, then end. */
static void wait_then_leave(const struct hostile *hostile)
{
	struct rbk_plan *plan = product_new(hostile->rbk, hostile->large, N);

	if (!plan)
		_exit(4);
	do {
		struct rbk_ring *rings[N_RINGS];

		for (int i = 0; i < N_RINGS; i++) {
			rings[i] = ring_of(hostile, 32768);
			fill_waiting(hostile, rings[i], n_waiting(), plan);
		}
		harness_sleep_ms(100);
		for (int i = 0; i < N_RINGS / 2; i++)
			rbk_ring_free(rings[i]);
		break;
	} while (goes_on(hostile));
}

/* Cancel tasks that do not exist, among many that wait. */
static void cancel(const struct hostile *hostile)
{
	struct rbk_plan *plan = product_new(hostile->rbk, hostile->large, N);
	struct rbk_ring *rings[N_RINGS];

	if (!plan)
		_exit(4);
	for (int i = 0; i < N_RINGS; i++) {
		rings[i] = ring_of(hostile, 32768);
		fill_waiting(hostile, rings[i], n_waiting(), plan);
	}
	do {
		for (int i = 0; i < N_RINGS; i++) {
			const struct rbk_cqe *cqe;
			struct rbk_sqe *sqe;

			while (rbk_peek_cqe(rings[i], &cqe) == 0)
				rbk_cqe_seen(rings[i], cqe);
			while ((sqe = rbk_get_sqe(rings[i])))
				rbk_prep_cancel(sqe, UINT64_MAX);
			rbk_submit(rings[i]);
		}
	} while (goes_on(hostile));
}

/*
 * Prefetch and evict large plans and plans of many constants, in random order, through several
 * rings.
 */
static void storm(const struct hostile *hostile)
{
	enum { N_PLANS = 24, N_CONSTANTS = 2000 };
	struct rbk_arena *constants = constants_new(hostile->rbk, N_CONSTANTS * 64 * 4);
	struct rbk_plan *plans[N_PLANS];
	struct rbk_ring *rings[N_RINGS];
	uint64_t seed = 42;

	for (int i = 0; i < N_PLANS; i++) {
		plans[i] =
			i % 2 ? product_new(hostile->rbk, hostile->large, N)
			      : sum_new(hostile->rbk, constants, (unsigned int)i * 3, N_CONSTANTS);
		if (!plans[i])
			_exit(4);
	}
	for (int i = 0; i < N_RINGS; i++)
		rings[i] = ring_of(hostile, 4096);
	do {
		for (int i = 0; i < N_RINGS; i++) {
			const struct rbk_cqe *cqe;
			struct rbk_sqe *sqe;

			while (rbk_peek_cqe(rings[i], &cqe) == 0)
				rbk_cqe_seen(rings[i], cqe);
			while ((sqe = rbk_get_sqe(rings[i]))) {
				uint64_t random = harness_random(&seed);
				uint32_t id = rbk_plan_id(plans[(random >> 8) % N_PLANS]);

				if (random % 4 == 0)
					rbk_prep_evict(sqe, id);
				else
					rbk_prep_prefetch(sqe, id);
				if (random % 16 == 1)
					rbk_sqe_set_wait_memory(sqe);
			}
			rbk_submit(rings[i]);
		}
	} while (goes_on(hostile));
}

/* Make and remove plans, each in the place of another. */
static void churn(const struct hostile *hostile)
{
	enum { N_PLANS = 16, N_CONSTANTS = 500 };
	struct rbk_arena *constants = constants_new(hostile->rbk, N_CONSTANTS * 64 * 4);
	struct rbk_plan *plans[N_PLANS] = {NULL};
	uint64_t seed = 43;

	do {
		uint64_t random = harness_random(&seed);
		struct rbk_plan **plan = &plans[random % N_PLANS];

		if (*plan)
			rbk_plan_free(*plan);
		*plan = random >> 32 & 1 ? product_new(hostile->rbk, hostile->large, N)
					 : sum_new(hostile->rbk, constants, (random >> 40) % 512,
						   N_CONSTANTS);
	} while (goes_on(hostile));
}

static const struct attack {
	const char *name;
	void (*run)(const struct hostile *hostile);
} attacks[] = {
	{"wait, then remove the plan", wait_then_remove},
	{"wait, then leave", wait_then_leave},
	{"cancel", cancel},
	{"storm", storm},
	{"churn", churn},
};

static void be_hostile(const struct attack *attack, uint64_t ns)
{
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = broker.socket_path,
		.timeout_ns = 60000000000,
	};
	struct hostile hostile = {.end_ns = harness_now_ns() + ns};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setgroups(0, NULL) < 0 || setgid(HOSTILE_GID) < 0)
		_exit(1);
	if (rbk_connect(&options, &hostile.rbk, NULL))
		_exit(1);
	hostile.large = constants_new(hostile.rbk, (size_t)N * N * sizeof(float));
	if (rbk_arena_new(hostile.rbk, MIB, &hostile.tensors, NULL))
		_exit(2);
	attack->run(&hostile);
	/* End without disconnecting. */
	_exit(0);
}

/* ---- The other clients ---- */

static int begin(void **state)
{
	static const char *const args[] = {"--gpu=software", "--device-memory", "6MiB", NULL};
	static const struct broker_options options = {
		.args = args,
		.policy = "[tenant default]\nvram-reserve = 4MiB\n"
			  "[tenant hostile]\nmatch-gid = 54321\nvram-max = 5MiB\n",
	};
	struct rbk_plan_memory devices[RBK_MAX_DEVICES];
	unsigned int n;

	broker_start(&broker, &options);
	assert_int_equal(chmod(broker.dir, 0755), 0);
	owner = broker_connect(&broker, "owner");
	observer = broker_connect_admin(&broker, "observer");
	if (!broker_has_gpu(owner) || geteuid() != 0) {
		rbk_disconnect(observer);
		rbk_disconnect(owner);
		broker_stop(&broker);
		print_message("no software Vulkan device here, or not root\n");
		_exit(77);
	}
	reserved = product_new(owner, constants_new(owner, (size_t)N * N * sizeof(float)), N);
	assert_non_null(reserved);
	assert_int_equal(rbk_plan_memory(reserved, devices, RBK_MAX_DEVICES, &n, NULL), 0);
	assert_int_equal(devices[GPU].state, RBK_MEMORY_RESIDENT);
	return 0;
}

static int end(void **state)
{
	rbk_disconnect(observer);
	rbk_disconnect(owner);
	broker_stop(&broker);
	return 0;
}

static void expect_mine(void)
{
	struct rbk_plan_memory devices[RBK_MAX_DEVICES];
	struct rbk_tenant tenant;
	unsigned int n;

	assert_int_equal(rbk_plan_memory(reserved, devices, RBK_MAX_DEVICES, &n, NULL), 0);
	assert_fields(devices[GPU], (state, RBK_MEMORY_RESIDENT), (n_evictions, 0));
	assert_int_equal(rbk_tenant(owner, &tenant), 0);
	assert_string_equal(tenant.name, "default");
}

TEST(test_attacks)
{
	const uint64_t ns = test_scaled(1000) * 1000000;

	for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
		struct neighbour *neighbour = neighbour_start(&broker);
		struct rbk_stats before, stats;
		uint64_t alone_ns;
		int status = 0;
		pid_t pid;

		assert_int_equal(rbk_stats(observer, &before), 0);
		harness_sleep_ms(200);
		alone_ns = neighbour_take_longest_ns(neighbour);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			be_hostile(&attacks[i], ns);
		while (waitpid(pid, &status, WNOHANG) == 0) {
			expect_mine();
			harness_sleep_ms(1);
		}
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			fail_msg("%s: status %x", attacks[i].name, (unsigned int)status);
		broker_wait_sessions(observer, before.sessions);
		broker_wait_host_bytes(observer, before.host_bytes);
		assert_int_equal(rbk_stats(observer, &stats), 0);
		assert_fields(stats, (device_bytes, before.device_bytes), (plans, before.plans));
		print_message("%s: a neighbour waited %llu us at most, %llu us alone\n",
			      attacks[i].name,
			      (unsigned long long)neighbour_take_longest_ns(neighbour) / 1000,
			      (unsigned long long)alone_ns / 1000);
		neighbour_stop(neighbour);
	}
}

/* A plan's description is charged as host memory, including constants that no node uses. */
TEST(test_plan__is_charged)
{
	enum { N_CONSTANTS = 2000 };
	struct rbk_arena *constants = constants_new(owner, N_CONSTANTS * 64);
	const uint32_t in[] = {RBK_DIM_COUNT, 16}, dims[] = {16};
	struct rbk_builder *b = rbk_builder_new("unused");
	struct rbk_stats before, with, after;
	struct rbk_plan *plan;
	unsigned int last = 0;

	for (unsigned int i = 0; i < N_CONSTANTS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "c%u", i);
		last = rbk_builder_constant(b, name, RBK_DTYPE_F32, 1, dims, constants, i * 64ull);
	}
	rbk_builder_binary(b, "Add", rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, in), last,
			   rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, in));
	assert_int_equal(rbk_stats(owner, &before), 0);
	assert_int_equal(rbk_plan_new(owner, b, 1, &plan, NULL), 0);
	rbk_builder_free(b);
	assert_int_equal(rbk_stats(owner, &with), 0);
	assert_true(with.host_bytes >= before.host_bytes + N_CONSTANTS * 256);
	rbk_plan_free(plan);
	assert_int_equal(rbk_stats(owner, &after), 0);
	assert_int_equal(after.host_bytes, before.host_bytes);
	rbk_arena_free(constants);
}

TEST_MAIN(begin, end, harness_limit_seconds(120))
