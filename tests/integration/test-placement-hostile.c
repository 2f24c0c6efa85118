/* SPDX-License-Identifier: MIT */
/*
 * Clients that exceed their share or submit arbitrary entries: other clients do not notice, and
 * nothing is left after the clients' end
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/placement.h"
#include "support/test.h"

enum { CPU = RBK_DEVICE_CPU, GPU = RBK_DEVICE_GPU, FIRST = 40031, SECOND = 40032 };

static struct broker broker;

/* --- Everything an entry can say --- */

static uint32_t any_of(uint64_t *seed, const uint32_t *values, unsigned int n)
{
	return values[harness_random(seed) % n];
}

/* Make an entry with the slot's own output and extreme but well-formed fields. */
static void make_extreme(struct customer *customer, struct rbk_sqe *sqe, uint64_t *seed)
{
	static const uint32_t counts[] = {0, 1, 2, 63, 64, 255, 256, 257, UINT32_MAX};
	static const uint32_t deadlines[] = {0, 0, 1, 2, 1000, INT32_MAX, UINT32_MAX};
	const uint64_t slot = sqe->user_data;

	sqe->count = any_of(seed, counts, 9);
	customer->counts[slot] = sqe->count;
	sqe->deadline_us = any_of(seed, deadlines, 7);
	sqe->priority = (uint8_t)(harness_random(seed) % 16 ? harness_random(seed) % 4 : 255);
	sqe->strategy = (uint8_t)(harness_random(seed) % 4 ? harness_random(seed) % 8
							   : harness_random(seed) % 256);
	if (harness_random(seed) % 4 == 0)
		sqe->flags |= RBK_SQE_PARTITION;
	if (harness_random(seed) % 16 == 0)
		sqe->flags |= (uint8_t)(1u << harness_random(seed) % 8);
	switch (harness_random(seed) % 16) {
	case 0:
		memset(&sqe->refs, 0, sizeof(sqe->refs));
		sqe->opcode = (uint8_t)(harness_random(seed) % 8);
		break;
	case 1:
		rbk_prep_cancel(sqe, harness_random(seed) % customer->options.n_entries);
		sqe->user_data = slot;
		break;
	case 2:
		rbk_prep_prefetch(sqe, rbk_plan_id(customer->plan));
		sqe->user_data = slot;
		break;
	case 3:
		rbk_prep_evict(sqe, rbk_plan_id(customer->plan));
		sqe->user_data = slot;
		break;
	}
}

/* Return true if a completion's result is documented. */
static bool is_documented(int res)
{
	static const int results[] = {0,       -EINVAL, -ENOENT,    -EBADF,    -EFAULT,
				      -EACCES, -ERANGE, -ENODEV,    -EALREADY, -ECANCELED,
				      -EIO,    -ENOMEM, -EOPNOTSUPP};

	for (unsigned int i = 0; i < sizeof(results) / sizeof(*results); i++)
		if (results[i] == res)
			return true;
	return false;
}

TEST(test_entries__extreme)
{
	const struct customer_options options = {.n_entries = 128, .is_careless = true};
	const char *const args[] = {"--gpu=software", NULL};
	const uint64_t n = test_scaled(10000);
	struct rbk_stats_decision decision;
	struct neighbour *neighbour;
	struct customer customer;
	const struct rbk_cqe *cqe;
	uint64_t seed = 20261120, n_sent = 0, n_done = 0;
	struct rbk_sqe *sqe;

	broker_start(&broker, &(struct broker_options){.args = args});
	neighbour = neighbour_start(&broker);
	customer_init(&customer, &broker, &options);
	while (n_done < n) {
		while (n_sent < n && (sqe = customer_prepare(&customer, 1))) {
			make_extreme(&customer, sqe, &seed);
			n_sent++;
		}
		assert_true(rbk_submit(customer.ring) >= 0);
		assert_int_equal(rbk_wait_cqe_timeout(customer.ring, &cqe, 120000000000), 0);
		assert_true(is_documented(cqe->res));
		assert_true(cqe->reason < RBK_REASON_COUNT);
		customer.free_slots[customer.n_free++] = (uint32_t)cqe->user_data;
		rbk_cqe_seen(customer.ring, cqe);
		n_done++;
		/* Predictions are finite for every entry. */
		while (n_done % 64 == 0 && customer_next_decision(&customer, &decision)) {
			assert_true(isfinite(decision.predicted_ns) && decision.predicted_ns >= 0);
			assert_true(isfinite(decision.other_ns) && decision.other_ns >= 0);
			assert_true(decision.split_count <= decision.count);
		}
	}
	customer.options.is_careless = false;
	for (unsigned int i = 0; i < 20; i++)
		customer_run(&customer, 200, i % 8 == RBK_STRATEGY_ONLY_GPU ? 0 : i % 8);
	customer_deinit(&customer);
	neighbour_stop(neighbour);
	broker_stop(&broker);
}

/* --- More than one's share --- */

static uint64_t work_ns(const struct customer *customer)
{
	return customer_totals(customer).devices[CPU].device_ns;
}

static bool is_half(double share)
{
	return share >= 0.45 && share <= 0.55;
}

/*
 * A tenant with as many rings as possible gets the same share as a tenant with one ring. All rings
 * are always full. A tenant whose worker was interrupted has to be compensated, which may take all
 * of a measurement; the more measurements, the more of them have the interruptions, too.
 */
TEST(test_rings__do_not_raise_the_share)
{
	enum { RINGS = 64, EACH = 8, ATTEMPTS = 20 };
	const struct customer_options one = {
		.uid = FIRST, .width = 128, .n_entries = 256, .is_careless = true};
	const struct customer_options many = {
		.uid = SECOND, .width = 128, .n_entries = EACH, .is_careless = true};
	const char *const args[] = {"--gpu=none", "--workers=1", NULL};
	const uint64_t n_tasks = test_scaled(4000);
	const uint32_t n_rows = test_is_scaled_down() ? 64 : 256;
	struct customer customers[1 + RINGS];
	uint64_t before[2], ns[2] = {0, 0}, n_done;
	double share = -1;
	bool is_fed;

	if (!broker_start_for_all(
		    &broker, args,
		    "[tenant first]\nmatch-uid = 40031\n[tenant second]\nmatch-uid = 40032\n"))
		skip();
	customer_init(&customers[0], &broker, &one);
	for (unsigned int i = 1; i <= RINGS; i++)
		customer_init(&customers[i], &broker, &many);
	for (unsigned int attempt = 0; attempt <= ATTEMPTS && !is_half(share); attempt++) {
		is_fed = true;
		before[0] = work_ns(&customers[0]);
		before[1] = work_ns(&customers[1]);
		for (unsigned int i = 0; i <= RINGS; i++)
			customers[i].n_done = 0;
		for (n_done = 0; is_fed && n_done < n_tasks;) {
			bool has_any = false;

			n_done = 0;
			is_fed = customer_feed(&customers[0], 256, n_rows, RBK_STRATEGY_ONLY_CPU);
			for (unsigned int i = 1; i <= RINGS; i++) {
				has_any |= customer_feed(&customers[i], EACH, n_rows,
							 RBK_STRATEGY_ONLY_CPU);
				n_done += customers[i].n_done;
			}
			n_done += customers[0].n_done;
			is_fed &= has_any;
			is_fed |= attempt == 0;
		}
		if (!is_fed || attempt == 0)
			continue;
		ns[0] += work_ns(&customers[0]) - before[0];
		ns[1] += work_ns(&customers[1]) - before[1];
		share = (double)ns[1] / (double)(ns[0] + ns[1]);
	}
	for (unsigned int i = 0; i <= RINGS; i++)
		customer_drain(&customers[i]);
	for (unsigned int i = 0; i <= RINGS; i++)
		customer_deinit(&customers[i]);
	broker_stop(&broker);
	if (share < 0) {
		print_message("no time to feed it\n");
		skip();
	}
	if (!is_half(share))
		fail_msg("with %d rings the share is %.3f", RINGS, share);
}

/* Return the CPU time of the tenant's tasks, in ns, from the root page. */
static uint64_t used_by_first(const struct rbk_stats_view *root)
{
	struct rbk_stats_tenant tenant;

	for (uint32_t i = 0; i < rbk_stats_count(root, RBK_STATS_SECTION_TENANTS); i++)
		if (harness_stats_copy(root, RBK_STATS_SECTION_TENANTS, i, &tenant,
				       sizeof(tenant)) &&
		    strcmp(tenant.name, "first") == 0)
			return tenant.devices[CPU].device_ns;
	return 0;
}

/*
 * Quotas are the tenant's: a new session inherits the debt. The session's first task completes only
 * after the debt is paid. The time used before its submission never exceeds the bucket's inflow
 * until its completion, plus the initial 5 ms (the inflow of 100 ms).
 */
TEST(test_quota__debt_outlives_sessions)
{
	const struct customer_options options = {
		.uid = FIRST, .width = 128, .max_rows = 512, .is_careless = true};
	const char *const args[] = {"--gpu=none", NULL};
	/* A quota of 5% makes twenty times the task's time of it, which a sanitizer multiplies. */
	const uint32_t n_rows = test_is_scaled_down() ? 64 : 512;
	uint64_t start_ns, took_ns, used_ns = 0;
	struct rbk_stats_view root;
	struct customer customer;
	struct rbk *rbk;

	if (!broker_start_for_all(&broker, args,
				  "[tenant first]\nmatch-uid = 40031\ncpu-max = 5%\n"))
		skip();
	rbk = broker_connect_admin(&broker, "watcher");
	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_ALL, 0, &root, NULL), 0);
	start_ns = harness_now_ns();
	while (used_ns < 20000000) {
		customer_init(&customer, &broker, &options);
		used_ns = used_by_first(&root);
		while (customer_in_flight(&customer) < 64)
			customer_put(&customer, n_rows, RBK_STRATEGY_ONLY_CPU);
		customer_take(&customer);
		took_ns = harness_now_ns() - start_ns;
		if (used_ns > took_ns / 20 + 5000000)
			fail_msg("%llu us in %llu us", (unsigned long long)used_ns / 1000,
				 (unsigned long long)took_ns / 1000);
		for (unsigned int i = 0; i < 7; i++)
			customer_take(&customer);
		/* End the session with most tasks in flight. */
		customer_deinit(&customer);
	}
	rbk_stats_unmap(&root);
	rbk_disconnect(rbk);
	broker_stop(&broker);
}

/*
 * Entries other than tasks are charged as work of the broker, so that a flood of them is throttled.
 * The ring is large: the entries that gather while the broker does not run are worth a bucket.
 */
TEST(test_floods__are_charged)
{
	const struct customer_options options = {.uid = FIRST};
	const char *const args[] = {"--gpu=software", NULL};
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(60000000000);
	struct rbk_stats_tenant totals;
	struct neighbour *neighbour;
	struct customer customer;
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	struct rbk_sqe *sqe;

	for (unsigned int kind = 0; kind < 3; kind++) {
		if (!broker_start_for_all(&broker, args,
					  "[tenant first]\nmatch-uid = 40031\ncpu-max = 1%\n"))
			skip();
		/* Before the neighbour starts: becoming another user interrupts other threads. */
		customer_init(&customer, &broker, &options);
		assert_int_equal(rbk_ring_new(customer.rbk, 16384, &ring, NULL), 0);
		neighbour = neighbour_start(&broker);
		do {
			while ((sqe = rbk_get_sqe(ring))) {
				if (kind == 0)
					rbk_prep_nop(sqe);
				else if (kind == 1)
					rbk_prep_prefetch(sqe, rbk_plan_id(customer.plan));
				else
					rbk_prep_evict(sqe, rbk_plan_id(customer.plan));
			}
			assert_true(rbk_submit(ring) >= 0);
			while (rbk_peek_cqe(ring, &cqe) == 0)
				rbk_cqe_seen(ring, cqe);
			totals = customer_totals(&customer);
			if (harness_now_ns() > end_ns)
				fail_msg("kind %u is not held up", kind);
		} while (totals.n_throttled == 0);
		neighbour_stop(neighbour);
		rbk_ring_free(ring);
		customer_deinit(&customer);
		broker_stop(&broker);
	}
}

/* --- All at once, and killed --- */

static void cancel_all(struct customer *customer)
{
	struct rbk_sqe *sqe;

	for (uint32_t i = 0; i < customer->options.n_entries; i++) {
		sqe = rbk_get_sqe(customer->ring);
		if (!sqe)
			break;
		rbk_prep_cancel(sqe, i);
		rbk_sqe_set_data64(sqe, UINT64_MAX);
	}
	rbk_submit(customer->ring);
}

/* Submit tasks of all kinds, cancel them and remove their plans, without end. */
static void live(unsigned int number)
{
	const struct customer_options options = {.width = 128,
						 .max_rows = 512,
						 .n_entries = 64,
						 .is_careless = true,
						 .has_constant = number % 2};
	uint64_t seed = number * 2654435761u + 1;
	struct customer customer;
	const struct rbk_cqe *cqe;
	struct rbk_plan *plan;
	struct rbk_sqe *sqe;

	customer_init(&customer, &broker, &options);
	plan = customer.plan;
	for (unsigned int round = 0;; round++) {
		while ((sqe = customer_prepare(&customer, 1 + harness_random(&seed) % 512))) {
			sqe->strategy = harness_random(&seed) % 2 ? RBK_STRATEGY_PARTITION
								  : harness_random(&seed) % 8;
			sqe->priority = harness_random(&seed) % 4;
			sqe->deadline_us = harness_random(&seed) % 3 ? 0 : 1;
		}
		rbk_submit(customer.ring);
		if (round % 3 == 0)
			cancel_all(&customer);
		if (round % 5 == 0) {
			/* Remove the plan of queued and split tasks, which complete first. */
			rbk_plan_free(plan);
			customer.plan = plan = customer_plan(&customer, 0);
		}
		if (round % 7 == 0)
			rbk_stats_reset(customer.rbk, RBK_STATS_OWN, 0, NULL);
		while (rbk_peek_cqe(customer.ring, &cqe) == 0) {
			if (cqe->user_data < options.n_entries)
				customer.free_slots[customer.n_free++] = (uint32_t)cqe->user_data;
			rbk_cqe_seen(customer.ring, cqe);
		}
	}
}

static const char *const policies[] = {
	"[tenant default]\nweight = 100\ncpu-max = 150%\n",
	"[tenant default]\nweight = 7\npriority-max = low\n",
	"[tenant default]\nweight = 10000\ncpu-max = 20%\nvram-max = 1MiB\n",
};

/*
 * Start and kill @n_clients clients, and change the policy meanwhile. Return: the charges
 * afterwards.
 */
static struct rbk_stats kill_clients(struct rbk *rbk, unsigned int n_clients)
{
	enum { AT_A_TIME = 4 };
	struct rbk_stats stats = {0};
	pid_t pids[AT_A_TIME] = {0};
	uint64_t seed = 4;

	for (unsigned int i = 0; i < n_clients + AT_A_TIME; i++) {
		pid_t *pid = &pids[i % AT_A_TIME];

		if (*pid > 0) {
			harness_sleep_ms((unsigned int)(harness_random(&seed) % 30));
			kill(*pid, SIGKILL);
			assert_int_equal(waitpid(*pid, NULL, 0), *pid);
			*pid = 0;
		}
		if (i % 8 == 0 || i == n_clients) {
			broker_write_policy(&broker, policies[i == n_clients ? 0 : i / 8 % 3]);
			broker_reload(&broker, "again");
		}
		if (i >= n_clients)
			continue;
		*pid = fork();
		assert_true(*pid >= 0);
		if (*pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			live(i);
			_exit(1);
		}
	}
	broker_wait_sessions(rbk, 1);
	assert_int_equal(rbk_stats(rbk, &stats), 0);
	return stats;
}

TEST(test_killed__nothing_is_left)
{
	const char *const args[] = {"--gpu=software", "--submission-max=0.2ms", NULL};
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(60000000000);
	struct rbk_stats before, after;
	struct rbk *rbk;

	broker_start(&broker, &(struct broker_options){.args = args, .policy = policies[0]});
	rbk = broker_connect(&broker, "watcher");
	before = kill_clients(rbk, 4);
	after = kill_clients(rbk, (unsigned int)test_scaled(40));
	while (after.host_bytes > before.host_bytes || after.device_bytes > 0 || after.plans > 0 ||
	       after.tasks_in_flight > 0) {
		if (harness_now_ns() > end_ns)
			fail_msg("%llu bytes were charged, %llu are, and %llu of devices",
				 (unsigned long long)before.host_bytes,
				 (unsigned long long)after.host_bytes,
				 (unsigned long long)after.device_bytes);
		harness_sleep_ms(5);
		assert_int_equal(rbk_stats(rbk, &after), 0);
	}
	assert_int_equal(after.sessions_ended_hostile, 0);
	rbk_disconnect(rbk);
	broker_stop(&broker);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(120))
