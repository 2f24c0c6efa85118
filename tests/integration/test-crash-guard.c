/* SPDX-License-Identifier: MIT */
/*
 * A task that crashes each broker: it is given up after two crashes, and other tasks complete
 *
 * The task is one of the test device, which crashes in a thread of its own, as a driver does.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "integration/harness.h"
#include "support/test.h"

enum { WIDTH = 16, N_TASKS = 4, MAX_CRASHES = 2 };

struct client {
	pthread_t thread;
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_plan *plans[2]; /* the second one crashes */
	struct rbk_ring *ring;
	bool crashes;
	int res[N_TASKS];
	char failure[256]; /* empty: none */
};

static void no_core(void)
{
	const struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
}

static struct rbk_plan *make_plan(struct rbk *rbk, const char *name)
{
	const uint32_t dims[] = {RBK_DIM_COUNT, WIDTH};
	struct rbk_builder *b = rbk_builder_new(name);
	unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims);
	unsigned int y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims);
	struct rbk_plan *plan;

	rbk_builder_node(b, "Neg", "", &x, 1, &y, 1);
	assert_int_equal(rbk_plan_new(rbk, b, 1, &plan, NULL), 0);
	rbk_builder_free(b);
	return plan;
}

static void begin(struct client *client, const char *socket_path, bool crashes)
{
	const struct rbk_options options = {.size = sizeof(options), .socket_path = socket_path};

	*client = (struct client){.crashes = crashes};
	assert_int_equal(rbk_connect(&options, &client->rbk, NULL), 0);
	assert_int_equal(
		rbk_arena_new_flags(client->rbk, 65536, RBK_ARENA_MEMFD, &client->arena, NULL), 0);
	client->plans[0] = make_plan(client->rbk, "calm");
	client->plans[1] = make_plan(client->rbk, "crash");
	assert_int_equal(rbk_ring_new(client->rbk, 16, &client->ring, NULL), 0);
}

/* Put the task that crashes among others. */
static void submit(struct client *client)
{
	for (unsigned int i = 0; i < N_TASKS; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(client->ring);

		rbk_prep_run(sqe, rbk_plan_id(client->plans[client->crashes && i == 1]), 1,
			     (const uint64_t[]){rbk_arena_ref(client->arena, 0),
						rbk_arena_ref(client->arena, 4096)},
			     2);
		rbk_sqe_set_data64(sqe, i);
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_ONLY_GPU);
	}
	assert_int_equal(rbk_submit(client->ring), N_TASKS);
}

static void *wait_all(void *data)
{
	struct client *client = data;
	const struct rbk_cqe *cqe;
	int r;

	for (unsigned int i = 0; i < N_TASKS; i++) {
		r = rbk_wait_cqe(client->ring, &cqe);
		if (r) {
			snprintf(client->failure, sizeof(client->failure), "waiting failed: %d", r);
			return NULL;
		}
		client->res[cqe->user_data] = cqe->res;
		rbk_cqe_seen(client->ring, cqe);
	}
	return NULL;
}

static void end(struct client *client)
{
	rbk_ring_free(client->ring);
	rbk_plan_free(client->plans[0]);
	rbk_plan_free(client->plans[1]);
	rbk_arena_free(client->arena);
	rbk_disconnect(client->rbk);
}

TEST(test_crash__is_given_up)
{
	static const char *const args[] = {"--gpu=none", "--test-device=100ms", NULL};
	struct broker_options options = {.args = args, .in_child = no_core};
	struct broker first, broker;
	struct client clients[2];

	broker_start(&first, &options);
	broker = first;
	options.socket_path = first.socket_path;
	/* The broker may crash 100 ms after the first task, which fails requests of that moment. */
	for (unsigned int i = 0; i < 2; i++)
		begin(&clients[i], first.socket_path, i == 0);
	for (unsigned int i = 0; i < 2; i++) {
		submit(&clients[i]);
		assert_int_equal(pthread_create(&clients[i].thread, NULL, wait_all, &clients[i]),
				 0);
	}
	for (unsigned int i = 0; i < MAX_CRASHES; i++) {
		const int status = broker_wait(&broker);

		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
		if (i > 0)
			broker_remove(&broker);
		broker_start(&broker, &options);
	}
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
		assert_string_equal(clients[i].failure, "");
		for (unsigned int k = 0; k < N_TASKS; k++)
			assert_int_equal(clients[i].res[k], i == 0 && k == 1 ? -ECONNABORTED : 0);
		end(&clients[i]);
	}
	broker_wait_log(&broker, "gave up a task of plan \"crash\"");
	broker_stop(&broker);
	broker_remove(&first);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(55))
