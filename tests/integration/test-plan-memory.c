/* SPDX-License-Identifier: MIT */
/*
 * Memory of a plan in a real broker: it is charged before it is allocated
 *
 * Constants may overlap, so that a small arena holds any number of different matrices, each of
 * which the CPU packs. A tenant with a limit requests far more. The broker rejects the plan, and at
 * no time uses more memory than the limit and a margin.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "support/test.h"

enum {
	MIB = 1 << 20,
	N = 1024,              /* width and height of a matrix of 4 MiB */
	N_NODES = 150,         /* 600 MiB of packed matrices */
	HOST_MAX = 128 * MIB,  /* host-max of the tenant */
	ARENA_BYTES = 5 * MIB, /* a matrix, rounded up */
	MARGIN = 64 * MIB,
};

static struct broker broker;

static uint64_t idle_bytes; /* charge of one empty session */

static uint64_t host_bytes(struct rbk *rbk)
{
	struct rbk_tenant tenant;

	assert_int_equal(rbk_tenant(rbk, &tenant), 0);
	return tenant.host_bytes.used;
}

/*
 * Wait until the tenant is charged @bytes: the broker answers a rejected plan first, then refunds
 * its charge.
 */
static void expect_host_bytes(struct rbk *rbk, uint64_t bytes)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(10000000000);

	while (host_bytes(rbk) != bytes && harness_now_ns() < end_ns)
		harness_sleep_ms(1);
	assert_int_equal(host_bytes(rbk), bytes);
}

/* Wait until clients that have gone are charged nothing, and until their arenas are unmapped. */
static void await_idle(void)
{
	struct rbk *rbk = broker_connect(&broker, "observer");

	broker_wait_sessions(rbk, 1);
	expect_host_bytes(rbk, idle_bytes);
	rbk_disconnect(rbk);
}

static int begin(void **state)
{
	static const char *const args[] = {"--gpu=none", NULL};
	static const struct broker_options options = {
		.args = args,
		.policy = "[tenant default]\nhost-max = 128MiB\n",
	};

	struct rbk *rbk;

	broker_start(&broker, &options);
	rbk = broker_connect(&broker, "observer");
	idle_bytes = host_bytes(rbk);
	rbk_disconnect(rbk);
	return 0;
}

static int end(void **state)
{
	broker_stop(&broker);
	return 0;
}

/* Return the broker's peak memory since the last call. */
static uint64_t take_most_bytes(void)
{
	char path[64], line[128];
	unsigned long long kib = 0;
	FILE *file;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)broker.pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
			break;
	fclose(file);
	assert_true(kib > 0);
	snprintf(path, sizeof(path), "/proc/%d/clear_refs", (int)broker.pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "5", 1) != 1) {
		print_message("the peak of a process cannot be reset here: %s\n", strerror(errno));
		_exit(77);
	}
	close(fd);
	return kib * 1024;
}

/*
 * Make x * W0 * W1 * ... with all matrices in one arena, each 64 bytes after the one before, or all
 * equal.
 * Return: the result of rbk_plan_new().
 */
static int chain_new(struct rbk *rbk, struct rbk_arena *constants, enum rbk_dtype dtype,
		     unsigned int n_nodes, bool are_same, struct rbk_plan **ret,
		     struct rbk_error *error)
{
	const uint32_t in[] = {RBK_DIM_COUNT, N}, dims[] = {N, N};
	struct rbk_builder *b = rbk_builder_new("chain");
	unsigned int at = rbk_builder_input(b, "x", dtype, 2, in), w, to;
	char name[16];
	int r;

	for (unsigned int i = 0; i < n_nodes; i++) {
		snprintf(name, sizeof(name), "w%u", i);
		w = rbk_builder_constant(b, name, dtype, 2, dims, constants,
					 are_same ? 0 : (uint64_t)i * 64);
		snprintf(name, sizeof(name), "y%u", i);
		to = i + 1 < n_nodes ? rbk_builder_scratch(b, name, dtype, 2, in)
				     : rbk_builder_output(b, name, dtype, 2, in);
		rbk_builder_binary(b, "MatMul", at, w, to);
		at = to;
	}
	r = rbk_plan_new(rbk, b, 1, ret, error);
	rbk_builder_free(b);
	return r;
}

static struct rbk_arena *constants_new(struct rbk *rbk)
{
	struct rbk_arena *constants;

	assert_int_equal(rbk_arena_new(rbk, ARENA_BYTES, &constants, NULL), 0);
	assert_int_equal(rbk_arena_seal(constants, NULL), 0);
	return constants;
}

static void expect_refusal(enum rbk_dtype dtype, unsigned int n_nodes)
{
	struct rbk *rbk = broker_connect(&broker, "greedy");
	struct rbk_arena *constants = constants_new(rbk);
	struct rbk_error error = {""};
	struct rbk_plan *plan = NULL;
	uint64_t before = host_bytes(rbk), most;
	int r;

	take_most_bytes();
	most = take_most_bytes();
	r = chain_new(rbk, constants, dtype, n_nodes, false, &plan, &error);
	most = take_most_bytes() - most;
	assert_int_equal(r, -EDQUOT);
	if (!strstr(error.text, "no room for the plan") || !strstr(error.text, "(host-max)"))
		fail_msg("%s", error.text);
	/* The broker knew that the plan would not fit, and allocated nothing. */
	if (most > MARGIN)
		fail_msg("the broker had %llu MiB more at a time", (unsigned long long)most / MIB);
	expect_host_bytes(rbk, before);

	/* A smaller plan fits. */
	assert_int_equal(chain_new(rbk, constants, dtype, 8, false, &plan, &error), 0);
	assert_true(host_bytes(rbk) >= before + (uint64_t)8 * N * N * sizeof(float));
	rbk_plan_free(plan);
	expect_host_bytes(rbk, before);
	most = take_most_bytes();
	assert_true(most <= HOST_MAX + 2 * (uint64_t)MARGIN);
	rbk_arena_free(constants);
	rbk_disconnect(rbk);
	await_idle();
}

TEST(test_packed__charged_before)
{
	expect_refusal(RBK_DTYPE_F32, N_NODES);
}

/* Refuse plans of float16, whose matrices are converted before they are packed. */
TEST(test_packed__half)
{
	expect_refusal(RBK_DTYPE_F16, N_NODES);
}

/* One matrix of several nodes is packed and charged once. */
TEST(test_packed__equal_views)
{
	struct rbk *rbk = broker_connect(&broker, "modest");
	struct rbk_arena *constants = constants_new(rbk);
	struct rbk_error error = {""};
	struct rbk_plan *plan = NULL;
	uint64_t before = host_bytes(rbk);

	if (chain_new(rbk, constants, RBK_DTYPE_F32, N_NODES, true, &plan, &error))
		fail_msg("%s", error.text);
	assert_in_range(host_bytes(rbk) - before, N * N * sizeof(float), 16 * MIB);
	rbk_plan_free(plan);
	expect_host_bytes(rbk, before);
	rbk_arena_free(constants);
	rbk_disconnect(rbk);
	await_idle();
}

/* A client that ends while its plan is packed leaves nothing. */
TEST(test_packed__client_goes)
{
	struct rbk *observer = broker_connect(&broker, "observer");

	broker_wait_sessions(observer, 1);
	for (unsigned int i = 0; i < 10; i++) {
		struct rbk *rbk = broker_connect(&broker, "hasty");
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0) {
			struct rbk *own = broker_connect(&broker, "hastier");
			struct rbk_plan *plan = NULL;

			alarm(0);
			ualarm(1000 + i * 3000, 0);
			chain_new(own, constants_new(own), RBK_DTYPE_F32, 20, false, &plan, NULL);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		rbk_disconnect(rbk);
	}
	rbk_disconnect(observer);
	await_idle();
}

TEST_MAIN(begin, end, harness_limit_seconds(100))
