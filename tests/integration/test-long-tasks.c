/* SPDX-License-Identifier: MIT */
/*
 * test-long-tasks [SECONDS]
 *
 * A tenant queues CPU tasks that take seconds and cannot be split by rows. A neighbour's small
 * products do not wait for the tasks' ends. Weights hold between two such tenants. Cancelled tasks,
 * and tasks of ended sessions, stop. The test prints figures, and asserts bounds that hold on a
 * busy machine but not if a request waits for a task's end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "integration/placement.h"
#include "support/test.h"

enum {
	FIRST = 40131,
	SECOND = 40132,
	SIDE = 1536, /* of the matrices: one product takes some 7 * 10^9 operations */
	N_PRODUCTS = 24,
	N_TASKS = 8,
	N_SMALL = 300,
};

static struct broker broker;
static unsigned int share_ms = 1500;

/* A customer with a second plan: a chain of products of whole matrices. */
struct busy {
	struct customer customer;
	struct rbk_plan *plan;
};

static struct rbk_plan *chain_plan(struct rbk *rbk, unsigned int n_products)
{
	const uint32_t square[] = {SIDE, SIDE};
	struct rbk_builder *b = rbk_builder_new("chain");
	unsigned int w = rbk_builder_input(b, "w", RBK_DTYPE_F32, 2, square), x = w, y;
	struct rbk_error error = {""};
	struct rbk_plan *plan = NULL;

	for (unsigned int i = 0; i < n_products; i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%u", i);
		if (i + 1 < n_products)
			y = rbk_builder_scratch(b, name, RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
		else
			y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, square);
		rbk_builder_binary(b, "MatMul", x, w, y);
		x = y;
	}
	if (rbk_plan_new(rbk, b, 1, &plan, &error))
		fail_msg("%s", error.text);
	rbk_builder_free(b);
	return plan;
}

static void busy_init(struct busy *busy, uid_t uid, unsigned int n_products)
{
	customer_init(&busy->customer, &broker,
		      &(struct customer_options){
			      .uid = uid, .width = SIDE, .max_rows = SIDE, .n_entries = 16});
	busy->plan = chain_plan(busy->customer.rbk, n_products);
}

/* Does not wait for the plan's tasks. */
static void busy_deinit(struct busy *busy)
{
	busy->customer.ring = rbk_ring_free(busy->customer.ring);
	rbk_plan_free(busy->plan);
	customer_deinit(&busy->customer);
}

static void busy_put(struct busy *busy, unsigned int slot)
{
	const uint64_t matrix_bytes = (uint64_t)SIDE * SIDE * sizeof(float);
	const uint64_t refs[] = {rbk_arena_ref(busy->customer.arena, 0),
				 rbk_arena_ref(busy->customer.arena, (2 + slot) * matrix_bytes)};
	struct rbk_sqe *sqe = rbk_get_sqe(busy->customer.ring);

	rbk_prep_run(sqe, rbk_plan_id(busy->plan), 1, refs, 2);
	rbk_sqe_set_strategy(sqe, RBK_STRATEGY_ONLY_CPU);
	rbk_sqe_set_data64(sqe, slot);
	assert_int_equal(rbk_submit(busy->customer.ring), 1);
}

static struct rbk_cqe take(struct rbk_ring *ring)
{
	const struct rbk_cqe *cqe;
	struct rbk_cqe copy;

	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, harness_slow_ns(60000000000)), 0);
	copy = *cqe;
	rbk_cqe_seen(ring, cqe);
	return copy;
}

static int compare_ns(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/*
 * Run small products, one after the other. Return: their median time; *ret_often_ns: the 99th
 * percentile.
 */
static uint64_t small_products(struct customer *customer, uint64_t *ret_often_ns)
{
	static uint64_t ns[N_SMALL];

	for (unsigned int i = 0; i < N_SMALL; i++) {
		uint64_t since_ns = harness_now_ns();

		customer_run(customer, 64, RBK_STRATEGY_ONLY_CPU);
		ns[i] = harness_now_ns() - since_ns;
	}
	qsort(ns, N_SMALL, sizeof(ns[0]), compare_ns);
	*ret_often_ns = ns[N_SMALL - 1 - N_SMALL / 100];
	return ns[N_SMALL / 2];
}

/* Each test has a broker of its own, without tasks of earlier tests. */
static int begin(void **state)
{
	broker_start(&broker,
		     &(struct broker_options){
			     .is_undisturbed = true,
			     .policy = "[tenant first]\nmatch-uid = 40131\nweight = 300\n"
				       "[tenant second]\nmatch-uid = 40132\nweight = 100\n"});
	broker_open_to_all(&broker);
	return 0;
}

static int end(void **state)
{
	broker_stop(&broker);
	return 0;
}

TEST(test_neighbour__small_products, begin, end)
{
	uint64_t alone_ns, beside_ns, often_ns;
	struct customer neighbour;
	struct busy busy;

	customer_init(&neighbour, &broker, &(struct customer_options){.uid = SECOND, .width = 128});
	small_products(&neighbour, &often_ns);
	alone_ns = small_products(&neighbour, &often_ns);
	print_message("alone: %.3f ms, 99 %% at most %.3f ms\n", (double)alone_ns / 1e6,
		      (double)often_ns / 1e6);
	busy_init(&busy, FIRST, N_PRODUCTS);
	for (unsigned int i = 0; i < N_TASKS; i++)
		busy_put(&busy, i);
	harness_sleep_ms(100);
	beside_ns = small_products(&neighbour, &often_ns);
	print_message("beside %u tasks of %.1f * 10^9 operations: %.3f ms, 99 %% at most %.3f ms\n",
		      N_TASKS, (double)N_PRODUCTS * 2 * SIDE * SIDE * SIDE / 1e9,
		      (double)beside_ns / 1e6, (double)often_ns / 1e6);
	assert_true(beside_ns < alone_ns + harness_slow_ns(50000000));
	assert_true(often_ns < alone_ns + harness_slow_ns(1000000000));
	busy_deinit(&busy);
	customer_deinit(&neighbour);
}

static uint64_t device_ns(const struct busy *busy)
{
	return customer_totals(&busy->customer).devices[RBK_DEVICE_CPU].device_ns;
}

/* Three to one, in processor time within the tasks, of which hardly one ends meanwhile. */
TEST(test_shares__by_weight, begin, end)
{
	uint64_t before[2], ns[2];
	struct busy busy[2];
	double share = 0;

	busy_init(&busy[0], FIRST, N_PRODUCTS);
	busy_init(&busy[1], SECOND, N_PRODUCTS);
	for (unsigned int i = 0; i < N_TASKS; i++)
		for (unsigned int k = 0; k < 2; k++)
			busy_put(&busy[k], i);
	for (unsigned int attempt = 0; attempt < 5 && (share < 0.65 || share > 0.85); attempt++) {
		for (unsigned int k = 0; k < 2; k++)
			before[k] = device_ns(&busy[k]);
		harness_sleep_ms(share_ms);
		for (unsigned int k = 0; k < 2; k++)
			ns[k] = device_ns(&busy[k]) - before[k];
		share = (double)ns[0] / (double)(ns[0] + ns[1]);
		print_message("weight 3 of 4: %.3f of %.0f ms\n", share,
			      (double)(ns[0] + ns[1]) / 1e6);
	}
	assert_true(share >= 0.65 && share <= 0.85);
	busy_deinit(&busy[0]);
	busy_deinit(&busy[1]);
}

/* The task would take ten times as long as any bound here. */
TEST(test_cancel__in_the_middle, begin, end)
{
	struct rbk_cqe cqe;
	struct busy busy;
	uint64_t since_ns;

	busy_init(&busy, FIRST, 20 * N_PRODUCTS);
	for (unsigned int i = 0; i < 3; i++) {
		struct rbk_sqe *sqe;
		int n_seen = 0;

		busy_put(&busy, 0);
		harness_sleep_ms(200);
		sqe = rbk_get_sqe(busy.customer.ring);
		rbk_prep_cancel(sqe, 0);
		rbk_sqe_set_data64(sqe, 77);
		since_ns = harness_now_ns();
		assert_int_equal(rbk_submit(busy.customer.ring), 1);
		for (; n_seen < 2; n_seen++) {
			cqe = take(busy.customer.ring);
			assert_int_equal(cqe.res, cqe.user_data == 77 ? 0 : -ECANCELED);
		}
		print_message("cancelled after %.3f ms\n",
			      (double)(harness_now_ns() - since_ns) / 1e6);
		assert_true(harness_now_ns() - since_ns < harness_slow_ns(5000000000));
	}
	busy_deinit(&busy);
}

TEST(test_session__ends_in_the_middle, begin, end)
{
	struct rbk *rbk = broker_connect(&broker, "watcher");
	uint64_t since_ns;
	struct busy busy;

	busy_init(&busy, FIRST, 20 * N_PRODUCTS);
	for (unsigned int i = 0; i < N_TASKS; i++)
		busy_put(&busy, i);
	harness_sleep_ms(200);
	since_ns = harness_now_ns();
	busy_deinit(&busy);
	broker_wait_sessions(rbk, 1);
	print_message("ended after %.3f ms\n", (double)(harness_now_ns() - since_ns) / 1e6);
	assert_true(harness_now_ns() - since_ns < harness_slow_ns(10000000000));
	rbk_disconnect(rbk);
}

int main(int argc, char **argv)
{
	if (geteuid() != 0) {
		print_message("only root can be another tenant: skipped\n");
		return 77;
	}
	if (argc > 1)
		share_ms = (unsigned int)atoi(argv[1]) * 1000;
	harness_limit_seconds(120 + 5 * share_ms / 1000);
	return test_run(NULL, NULL);
}
