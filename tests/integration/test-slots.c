/* SPDX-License-Identifier: MIT */
/*
 * More tasks of a plan in parts than it has slots of working memory
 *
 * A GPU runs a plan whose tasks cannot be split by rows in parts, and keeps a slot of working
 * memory for each task that has begun. If clients submit more tasks than there are slots, all tasks
 * complete, beside each other and beside other clients' tasks. Nothing of a client that ends is
 * left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integration/harness.h"
#include "support/test.h"

enum {
	ENTRIES = 64,
	/* A small plan has 32 slots; a plan with more than 8 MiB of scratch has two. */
	MANY_SLOTS = 32,
	FEW_SLOTS = 2,
	SIDE = 192,
	LONG = 1600,
	THIN = 8,
};

struct client {
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	uint64_t refs[4];
	unsigned int n_refs;
};

static struct broker broker;

static unsigned int tensor(struct rbk_builder *builder, const char *name, uint32_t rows,
			   uint32_t cols)
{
	const uint32_t dims[] = {rows, cols};

	if (name[0] == 'y')
		return rbk_builder_output(builder, name, RBK_DTYPE_F32, 2, dims);
	if (name[0] == 'p')
		return rbk_builder_scratch(builder, name, RBK_DTYPE_F32, 2, dims);
	return rbk_builder_input(builder, name, RBK_DTYPE_F32, 2, dims);
}

/* Make a client of y = a b, or of y = (a b) c, where a b is large. */
static void client_init(struct client *client, bool is_large)
{
	struct rbk_builder *builder = rbk_builder_new("parts");
	const uint64_t most = (uint64_t)SIDE * SIDE * sizeof(float); /* LONG * THIN is less */
	struct rbk_error error = {""};
	unsigned int a, b, c, y, product;

	memset(client, 0, sizeof(*client));
	client->rbk = broker_connect(&broker, "parts");
	assert_int_equal(rbk_arena_new(client->rbk, 4 * most, &client->arena, NULL), 0);
	if (is_large) {
		a = tensor(builder, "a", LONG, THIN);
		b = tensor(builder, "b", THIN, LONG);
		c = tensor(builder, "c", LONG, THIN);
		y = tensor(builder, "y", LONG, THIN);
		product = tensor(builder, "product", LONG, LONG);
		rbk_builder_binary(builder, "MatMul", a, b, product);
		rbk_builder_binary(builder, "MatMul", product, c, y);
	} else {
		a = tensor(builder, "a", SIDE, SIDE);
		b = tensor(builder, "b", SIDE, SIDE);
		y = tensor(builder, "y", SIDE, SIDE);
		rbk_builder_binary(builder, "MatMul", a, b, y);
	}
	if (rbk_plan_new(client->rbk, builder, 1, &client->plan, &error))
		fail_msg("%s", error.text);
	rbk_builder_free(builder);
	client->n_refs = is_large ? 4 : 3;
	for (unsigned int i = 0; i < client->n_refs; i++)
		client->refs[i] = rbk_arena_ref(client->arena, i * most);
	assert_int_equal(rbk_ring_new(client->rbk, ENTRIES, &client->ring, NULL), 0);
}

static void client_deinit(struct client *client)
{
	rbk_ring_free(client->ring);
	rbk_plan_free(client->plan);
	rbk_arena_free(client->arena);
	rbk_disconnect(client->rbk);
}

static void publish(struct client *client, unsigned int n, unsigned int strategy)
{
	for (unsigned int i = 0; i < n; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(client->ring);

		assert_non_null(sqe);
		rbk_prep_run(sqe, rbk_plan_id(client->plan), 1, client->refs, client->n_refs);
		rbk_sqe_set_strategy(sqe, strategy);
	}
	assert_true(rbk_submit(client->ring) >= 0);
}

/* Take @n completions. Return: the number of tasks that a GPU ran. */
static unsigned int take(struct client *client, unsigned int n)
{
	const struct rbk_cqe *cqe;
	unsigned int n_gpu = 0;

	for (unsigned int i = 0; i < n; i++) {
		/* Far longer than any task here takes, even in slow builds. */
		if (rbk_wait_cqe_timeout(client->ring, &cqe, 90000000000))
			fail_msg("%u of %u tasks are complete", i, n);
		assert_int_equal(cqe->res, 0);
		n_gpu += cqe->device != RBK_DEVICE_CPU;
		rbk_cqe_seen(client->ring, cqe);
	}
	return n_gpu;
}

static void start(const char *cache)
{
	const char *const args[] = {"--gpu=software",
				    "--submission-max=0.3ms",
				    "--calibration=auto",
				    "--cache",
				    cache,
				    NULL};

	broker_start(&broker, &(struct broker_options){.args = args, .is_undisturbed = true});
}

static bool has_gpu(void)
{
	struct rbk *rbk = broker_connect(&broker, "look");
	bool has_one = broker_has_gpu(rbk);

	rbk_disconnect(rbk);
	return has_one;
}

/* Start brokerd once to measure the devices: the size of a part follows from the measurement. */
static int setup(void **state)
{
	static char cache[] = "/tmp/rbk-slots-XXXXXX";

	assert_non_null(mkdtemp(cache));
	start(cache);
	if (has_gpu()) {
		broker_wait_log(&broker, "device 1 was measured while it was idle");
		*state = cache;
	}
	broker_stop(&broker);
	broker_remove(&broker);
	return 0;
}

static int teardown(void **state)
{
	char command[64];

	if (!*state)
		return 0;
	snprintf(command, sizeof(command), "rm -rf %s", (const char *)*state);
	return system(command);
}

static void begin(void **state)
{
	if (!*state)
		skip();
	start(*state);
}

static void end(void)
{
	broker_stop(&broker);
	assert_false(broker_log_has(&broker, "has completed no task for"));
	broker_remove(&broker);
}

TEST(test_slots__more_tasks_than_slots)
{
	struct client many, few;

	begin(state);
	client_init(&many, false);
	client_init(&few, true);
	publish(&many, MANY_SLOTS + 2, RBK_STRATEGY_ONLY_GPU);
	assert_int_equal(take(&many, MANY_SLOTS + 2), MANY_SLOTS + 2);
	publish(&few, FEW_SLOTS + 2, RBK_STRATEGY_ONLY_GPU);
	assert_int_equal(take(&few, FEW_SLOTS + 2), FEW_SLOTS + 2);
	publish(&many, ENTRIES, RBK_STRATEGY_PREFER_GPU);
	publish(&few, 3 * FEW_SLOTS, RBK_STRATEGY_PREFER_GPU);
	take(&many, ENTRIES);
	take(&few, 3 * FEW_SLOTS);
	client_deinit(&many);
	client_deinit(&few);
	end();
}

/*
 * A client ends with tasks in every state: the device then serves the other client, and the broker
 * can end.
 */
TEST(test_slots__client_ends)
{
	struct client going, staying;

	begin(state);
	client_init(&staying, true);
	for (unsigned int i = 0; i < 3; i++) {
		client_init(&going, i == 1);
		publish(&going, i == 1 ? 3 * FEW_SLOTS : ENTRIES, RBK_STRATEGY_ONLY_GPU);
		if (i > 0)
			take(&going, 1);
		client_deinit(&going);
		publish(&staying, 2, RBK_STRATEGY_ONLY_GPU);
		assert_int_equal(take(&staying, 2), 2);
	}
	broker_wait_sessions(staying.rbk, 1);
	client_deinit(&staying);
	end();
}

TEST_MAIN(setup, teardown, harness_limit_seconds(180))
