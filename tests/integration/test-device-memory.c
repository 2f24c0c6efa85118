/* SPDX-License-Identifier: MIT */
/*
 * Device memory through a real broker, with a software Vulkan device limited to 6 MiB
 *
 * Plans are products with a constant matrix: two of 4 MiB, of which one fits, and one of 16 MiB,
 * which never fits. All numbers are small integers, so that every device computes the same sums.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"

enum {
	ROWS = 2,
	FITS = 1024,  /* width and height of a matrix of 4 MiB */
	LARGE = 2048, /* 16 MiB */
	DEVICE_MIB = 6,
	OUT_AT = 256 << 10,
	ARENA_BYTES = 512 << 10,
	N_ENTRIES = 64,
};

#define GPU RBK_DEVICE_GPU

static struct broker broker;
static struct rbk *rbk;
static struct rbk_ring *ring;
static struct rbk_arena *arena;

/* A product, and the seed of its matrix. */
struct product {
	uint32_t n;
	int seed;
	struct rbk_plan *plan;
};

static struct product first = {FITS, 1, NULL}, second = {FITS, 2, NULL}, large = {LARGE, 3, NULL};

static int weight(const struct product *product, uint32_t k, uint32_t j)
{
	return (int)((k * 7 + j * (uint32_t)(product->seed + 2) + k * j % 11) % 5) - 2;
}

static int input(uint32_t row, uint32_t k)
{
	return (int)((row * 5 + k * 3) % 7) - 3;
}

static void product_new(struct rbk *connection, struct product *product)
{
	struct rbk_arena *constants;
	struct rbk_error error;
	float *at;

	assert_int_equal(rbk_arena_new(connection, (size_t)product->n * product->n * sizeof(float),
				       &constants, NULL),
			 0);
	at = rbk_arena_data(constants);
	for (uint32_t k = 0; k < product->n; k++)
		for (uint32_t j = 0; j < product->n; j++)
			*at++ = (float)weight(product, k, j);
	assert_int_equal(rbk_arena_seal(constants, NULL), 0);
	if (plan_product(connection, ROWS, product->n, product->n, constants, &product->plan,
			 &error))
		fail_msg("%s", error.text);
	rbk_arena_free(constants);
}

static struct rbk_sqe *put(const struct product *product, uint8_t opcode, unsigned int strategy)
{
	const uint64_t refs[] = {rbk_arena_ref(arena, 0), rbk_arena_ref(arena, OUT_AT)};
	struct rbk_sqe *sqe = rbk_get_sqe(ring);
	float *x = rbk_arena_data(arena);

	assert_non_null(sqe);
	if (opcode == RBK_OP_PREFETCH) {
		rbk_prep_prefetch(sqe, rbk_plan_id(product->plan));
	} else if (opcode == RBK_OP_EVICT) {
		rbk_prep_evict(sqe, rbk_plan_id(product->plan));
	} else {
		for (uint32_t row = 0; row < ROWS; row++)
			for (uint32_t k = 0; k < product->n; k++)
				*x++ = (float)input(row, k);
		memset((char *)rbk_arena_data(arena) + OUT_AT, 0xff, ROWS * LARGE * sizeof(float));
		rbk_prep_run(sqe, rbk_plan_id(product->plan), ROWS, refs, 2);
	}
	rbk_sqe_set_strategy(sqe, strategy);
	return sqe;
}

static struct rbk_cqe take(void)
{
	const struct rbk_cqe *cqe = NULL;
	struct rbk_cqe copy;

	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, harness_slow_ns(20000000000)), 0);
	copy = *cqe;
	rbk_cqe_seen(ring, cqe);
	return copy;
}

static void expect_right(const struct product *product)
{
	const float *y = (const float *)((const char *)rbk_arena_data(arena) + OUT_AT);

	for (uint32_t row = 0; row < ROWS; row++) {
		/*
		 * Every 13th column: checking all columns would take longer than the broker's work.
		 */
		for (uint32_t j = row; j < product->n; j += 13) {
			int sum = 0;

			for (uint32_t k = 0; k < product->n; k++)
				sum += input(row, k) * weight(product, k, j);
			if (y[row * product->n + j] != (float)sum)
				fail_msg("row %u, column %u: %g instead of %d", row, j,
					 (double)y[row * product->n + j], sum);
		}
	}
}

/* Run one task, with no other in flight, and check its result. */
static struct rbk_cqe run(const struct product *product, unsigned int strategy)
{
	struct rbk_cqe cqe;

	put(product, RBK_OP_RUN, strategy);
	assert_int_equal(rbk_submit(ring), 1);
	cqe = take();
	assert_int_equal(cqe.res, 0);
	expect_right(product);
	return cqe;
}

static struct rbk_cqe move(const struct product *product, uint8_t opcode)
{
	put(product, opcode, RBK_STRATEGY_DEVICE(GPU));
	assert_int_equal(rbk_submit(ring), 1);
	return take();
}

static struct rbk_plan_memory memory_of(const struct product *product)
{
	struct rbk_plan_memory devices[RBK_MAX_DEVICES];
	unsigned int n;

	assert_int_equal(rbk_plan_memory(product->plan, devices, RBK_MAX_DEVICES, &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_fields(devices[RBK_DEVICE_CPU], (state, RBK_MEMORY_RESIDENT), (required_bytes, 0));
	return devices[GPU];
}

static uint64_t constrained(const struct product *product)
{
	unsigned int n;
	uint64_t n_constrained;

	assert_int_equal(rbk_plan_memory(product->plan, NULL, 0, &n, &n_constrained), 0);
	return n_constrained;
}

static int begin(void **state)
{
	char size[32];

	snprintf(size, sizeof(size), "%dMiB", DEVICE_MIB);
	rbk = broker_start_gpu(
		&broker,
		&(struct broker_options){.args = (const char *const[]){"--gpu=software",
								       "--device-memory", size,
								       NULL}},
		"residency");
	assert_true(rbk_features(rbk) & RBK_FEAT_RESIDENCY);
	assert_int_equal(rbk_arena_new(rbk, ARENA_BYTES, &arena, NULL), 0);
	assert_int_equal(rbk_ring_new(rbk, N_ENTRIES, &ring, NULL), 0);
	product_new(rbk, &first);
	product_new(rbk, &second);
	product_new(rbk, &large);
	return 0;
}

static int end(void **state)
{
	struct rbk_stats stats;

	rbk_plan_free(first.plan);
	rbk_plan_free(second.plan);
	rbk_plan_free(large.plan);
	rbk_ring_free(ring);
	rbk_arena_free(arena);
	assert_int_equal(rbk_stats(rbk, &stats), 0);
	assert_fields(stats, (device_bytes, 0), (plans, 0));
	rbk_disconnect(rbk);
	broker_stop(&broker);
	return 0;
}

TEST(test_by_hand__evict_and_prefetch)
{
	struct rbk_plan_memory memory;
	uint64_t n_evictions, n_constrained;
	struct rbk_cqe cqe;

	assert_int_equal(move(&second, RBK_OP_EVICT).res, 0);
	cqe = move(&first, RBK_OP_PREFETCH);
	assert_fields(cqe, (res, 0), (device, GPU));
	memory = memory_of(&first);
	assert_fields(memory, (state, RBK_MEMORY_RESIDENT), (tier, RBK_TIER_VRAM));
	assert_true(memory.required_bytes >= 4u << 20);
	assert_true(memory.resident_bytes >= memory.required_bytes);
	assert_true(memory.available_bytes >= memory.required_bytes);
	assert_true(memory.available_bytes <= (uint64_t)DEVICE_MIB << 20);
	assert_int_equal(run(&first, RBK_STRATEGY_PREFER_GPU).device, GPU);

	n_evictions = memory.n_evictions;
	n_constrained = constrained(&first);
	assert_int_equal(move(&first, RBK_OP_EVICT).res, 0);
	memory = memory_of(&first);
	assert_fields(memory, (state, RBK_MEMORY_EVICTED), (tier, RBK_TIER_NONE),
		      (resident_bytes, 0), (n_evictions, n_evictions + 1));
	cqe = run(&first, RBK_STRATEGY_PREFER_GPU);
	assert_fields(cqe, (device, RBK_DEVICE_CPU), (reason, RBK_REASON_MEMORY_CONSTRAINT));
	assert_int_equal(constrained(&first), n_constrained + 1);

	assert_int_equal(move(&first, RBK_OP_PREFETCH).res, 0);
	assert_int_equal(run(&first, RBK_STRATEGY_PREFER_GPU).device, GPU);
	/* PREFETCH of a resident plan and EVICT of an evicted plan succeed. */
	assert_int_equal(move(&first, RBK_OP_PREFETCH).res, 0);
	assert_int_equal(move(&first, RBK_OP_EVICT).res, 0);
	assert_int_equal(move(&first, RBK_OP_EVICT).res, 0);
}

/* An evicted plan is loaded again without a PREFETCH: tasks that need it suffice. */
TEST(test_evicted__comes_back)
{
	uint64_t start_ns = harness_now_ns(), n_returns = memory_of(&first).n_returns;
	struct rbk_cqe cqe;

	assert_int_equal(move(&first, RBK_OP_EVICT).res, 0);
	assert_int_equal(move(&second, RBK_OP_EVICT).res, 0);
	do {
		cqe = run(&first, RBK_STRATEGY_PREFER_GPU);
		assert_true(cqe.device == GPU || cqe.reason == RBK_REASON_MEMORY_CONSTRAINT);
		assert_true(harness_now_ns() - start_ns < harness_slow_ns(20000000000));
	} while (cqe.device != GPU);
	assert_int_equal(memory_of(&first).state, RBK_MEMORY_RESIDENT);
	assert_true(memory_of(&first).n_returns > n_returns);
}

TEST(test_never_fits__runs_on_the_cpu)
{
	struct rbk_plan_memory memory = memory_of(&large);
	struct rbk_plan_info info;
	struct rbk_cqe cqe;

	assert_int_equal(memory.state, RBK_MEMORY_NEVER_FITS);
	assert_true(memory.required_bytes >= 16u << 20);
	assert_true(memory.available_bytes <= (uint64_t)DEVICE_MIB << 20);
	assert_int_equal(memory.resident_bytes, 0);
	rbk_plan_info(large.plan, &info);
	assert_true(info.devices & 1u << RBK_DEVICE_CPU);

	cqe = run(&large, RBK_STRATEGY_PREFER_GPU);
	assert_fields(cqe, (device, RBK_DEVICE_CPU), (reason, RBK_REASON_MEMORY_CONSTRAINT));
	/* WAIT_MEMORY does not wait for a plan that never fits. */
	rbk_sqe_set_wait_memory(put(&large, RBK_OP_RUN, RBK_STRATEGY_PREFER_GPU));
	assert_int_equal(rbk_submit(ring), 1);
	cqe = take();
	assert_fields(cqe, (res, 0), (device, RBK_DEVICE_CPU));
	expect_right(&large);
	put(&large, RBK_OP_RUN, RBK_STRATEGY_ONLY_GPU);
	assert_int_equal(rbk_submit(ring), 1);
	assert_int_equal(take().res, -ENOMEM);
	assert_int_equal(move(&large, RBK_OP_PREFETCH).res, -ENOMEM);
	assert_int_equal(constrained(&large), 3);
}

/*
 * The other plan is evicted while the task waits, by the broker or by the EVICT, whichever is
 * first. The task then runs on the GPU.
 */
TEST(test_wait__runs_on_the_device)
{
	struct rbk_cqe cqe;

	assert_int_equal(move(&second, RBK_OP_PREFETCH).res, 0);
	for (unsigned int i = 0; i < 2; i++) {
		const struct product *there = i ? &first : &second, *waits = i ? &second : &first;

		assert_int_equal(memory_of(there).state, RBK_MEMORY_RESIDENT);
		rbk_sqe_set_wait_memory(put(waits, RBK_OP_RUN, RBK_STRATEGY_PREFER_GPU));
		assert_int_equal(rbk_submit(ring), 1);
		harness_sleep_ms(5);
		rbk_sqe_set_data64(put(there, RBK_OP_EVICT, RBK_STRATEGY_AUTO), 1);
		assert_int_equal(rbk_submit(ring), 1);
		for (unsigned int k = 0; k < 2; k++) {
			cqe = take();
			assert_int_equal(cqe.res, 0);
			if (cqe.user_data == 0)
				assert_int_equal(cqe.device, GPU);
		}
		expect_right(waits);
	}
}

/* Each plan displaces the other, in the order of the requests. */
TEST(test_two_plans__displace_each_other)
{
	struct rbk_plan_memory before = memory_of(&first);

	for (unsigned int i = 0; i < 8; i++) {
		const struct product *product = i % 2 ? &second : &first;
		struct rbk_cqe cqe;

		if (i >= 4) {
			cqe = move(product, RBK_OP_PREFETCH);
			assert_int_equal(cqe.res, 0);
		}
		cqe = run(product, i < 4 ? RBK_STRATEGY_ONLY_GPU : RBK_STRATEGY_PREFER_GPU);
		assert_int_equal(cqe.device, GPU);
		assert_int_equal(memory_of(product).state, RBK_MEMORY_RESIDENT);
		assert_int_equal(memory_of(i % 2 ? &first : &second).state, RBK_MEMORY_EVICTED);
	}
	assert_true(memory_of(&first).n_evictions >= before.n_evictions + 3);
	assert_true(memory_of(&first).n_returns >= before.n_returns + 3);
}

/* Return the record of the tenant's only session. */
static struct rbk_stats_session session_of(const struct rbk_stats_view *view)
{
	struct rbk_stats_session session = {.number = 0};

	for (uint32_t i = 0; i < rbk_stats_count(view, RBK_STATS_SECTION_SESSIONS); i++)
		if (harness_stats_copy(view, RBK_STATS_SECTION_SESSIONS, i, &session,
				       sizeof(session)) &&
		    session.number != 0)
			break;
	harness_sleep_ms(5);
	return session;
}

TEST(test_session__has_its_plans_memory)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	struct rbk_stats_session session = {.number = 0};
	struct rbk_stats_view view;
	struct rbk_plan_memory memory;
	struct rbk_error error = {""};

	assert_int_equal(move(&second, RBK_OP_EVICT).res, 0);
	assert_int_equal(move(&first, RBK_OP_PREFETCH).res, 0);
	memory = memory_of(&first);
	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_OWN, 0, &view, &error), 0);
	while (session.memory_used != memory.resident_bytes ||
	       session.n_evictions < memory.n_evictions) {
		assert_true(harness_now_ns() < end_ns);
		session = session_of(&view);
	}
	assert_int_equal(session.n_plans_resident, 1);
	assert_int_equal(move(&first, RBK_OP_EVICT).res, 0);
	while (session.memory_used > 0 || session.n_evictions <= memory.n_evictions) {
		assert_true(harness_now_ns() < end_ns);
		session = session_of(&view);
	}
	rbk_stats_unmap(&view);
}

TEST(test_tenant__reports_all_memory)
{
	struct rbk_plan_memory memory;
	struct rbk_tenant tenant;

	assert_int_equal(move(&second, RBK_OP_EVICT).res, 0);
	assert_int_equal(move(&first, RBK_OP_PREFETCH).res, 0);
	memory = memory_of(&first);
	assert_int_equal(rbk_tenant(rbk, &tenant), 0);
	assert_string_equal(tenant.name, "default");
	assert_fields(tenant, (n_devices, 2), (sessions.used, 1), (plans.used, 3));
	assert_true(tenant.arenas.used >= 4);
	assert_true(tenant.arena_bytes.used >= 24u << 20);
	assert_true(tenant.host_bytes.used >= tenant.arena_bytes.used);
	assert_true(tenant.host_bytes.max >= tenant.host_bytes.used);
	assert_int_equal(tenant.devices[GPU].vram.used, memory.resident_bytes);
	assert_true(tenant.devices[GPU].vram.max >= memory.resident_bytes);
	assert_int_equal(tenant.devices[RBK_DEVICE_CPU].vram.used, 0);
	assert_true(tenant.n_evictions >= memory.n_evictions);
	assert_true(tenant.n_memory_constraints >= constrained(&large));
}

/* ---- Clients that die ---- */

/*
 * Keep tasks of two plans waiting, of which only one fits, without end. Each task has its own
 * output.
 */
static void be_waiting(void)
{
	enum { OUT_BYTES = ROWS * FITS * sizeof(float) };
	struct rbk_options options = {.size = sizeof(options), .socket_path = broker.socket_path};
	struct product mine[] = {{FITS, 4, NULL}, {FITS, 5, NULL}};
	struct rbk_arena *tensors;
	struct rbk_ring *tasks;
	struct rbk *own;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (rbk_connect(&options, &own, NULL) ||
	    rbk_arena_new(own, (N_ENTRIES + 1) * OUT_BYTES, &tensors, NULL) ||
	    rbk_ring_new(own, N_ENTRIES, &tasks, NULL))
		_exit(1);
	product_new(own, &mine[0]);
	product_new(own, &mine[1]);
	do {
		for (unsigned int i = 0; i < N_ENTRIES; i++) {
			const uint64_t refs[] = {rbk_arena_ref(tensors, 0),
						 rbk_arena_ref(tensors, (i + 1) * OUT_BYTES)};
			const uint32_t id = rbk_plan_id(mine[i % 2].plan);
			struct rbk_sqe *sqe = rbk_get_sqe(tasks);

			if (i % 16 == 15)
				rbk_prep_prefetch(sqe, id);
			else
				rbk_prep_run(sqe, id, ROWS, refs, 2);
			rbk_sqe_set_wait_memory(sqe);
		}
		if (rbk_submit_and_wait(tasks, N_ENTRIES) != N_ENTRIES)
			_exit(1);
		rbk_cq_advance(tasks, N_ENTRIES);
	} while (true);
}

TEST(test_killed__leaves_no_charge)
{
	enum { ROUNDS = 6 };
	struct rbk_stats before, stats;
	unsigned int n_in_flight = 0;
	struct rbk_tenant tenant;
	uint64_t start_ns;
	int status;
	pid_t pid;

	assert_int_equal(move(&first, RBK_OP_EVICT).res, 0);
	assert_int_equal(move(&second, RBK_OP_EVICT).res, 0);
	assert_int_equal(rbk_stats(rbk, &before), 0);
	assert_fields(before, (device_bytes, 0), (tasks_in_flight, 0));
	for (unsigned int i = 0; i < ROUNDS; i++) {
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			be_waiting();
		/* Kill the client some milliseconds after half of its tasks are in flight. */
		start_ns = harness_now_ns();
		do {
			harness_sleep_ms(1);
			assert_int_equal(rbk_stats(rbk, &stats), 0);
			assert_true(harness_now_ns() - start_ns < harness_slow_ns(20000000000));
		} while (stats.tasks_in_flight < N_ENTRIES / 2);
		harness_sleep_ms(i * 3);
		assert_int_equal(rbk_stats(rbk, &stats), 0);
		n_in_flight += stats.tasks_in_flight > 0;
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));

		broker_wait_sessions(rbk, 1);
		assert_int_equal(rbk_stats(rbk, &stats), 0);
		assert_fields(stats, (tasks_in_flight, 0), (device_bytes, 0),
			      (host_bytes, before.host_bytes), (plans, before.plans),
			      (arenas, before.arenas));
		assert_int_equal(rbk_tenant(rbk, &tenant), 0);
		assert_fields(tenant.devices[GPU], (vram.used, 0), (gtt.used, 0));
	}
	assert_true(n_in_flight > 0);
	/* The broker still works. */
	assert_int_equal(run(&first, RBK_STRATEGY_ONLY_GPU).device, GPU);
}

TEST_MAIN(begin, end, harness_limit_seconds(60))
