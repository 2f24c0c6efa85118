/* SPDX-License-Identifier: MIT */
/* Growth of heavy-hitter tables: entries that were replaced, and sums over several tables. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../bpf/causers.h"
#include "contention/delay-causes.h"
#include "support/test.h"

static const uint64_t second_ns = 1000000000u;

struct rig {
	struct delay_causes *causers;
	struct run_queue_causer table[2][RUN_QUEUE_CAUSERS];
	uint64_t now_ns;
};

static struct rig rig_new(void)
{
	struct rig rig = {.now_ns = second_ns};

	rig.causers = calloc(1, delay_causes_bytes(2));
	assert_non_null(rig.causers);
	rig.causers->n_tables = 2;
	return rig;
}

/* Charge a causer, as the probes do. */
static void charge(struct rig *rig, unsigned int i, const char *comm, uint64_t cgroup, uint32_t who,
		   uint64_t ns, unsigned int n_preemptions)
{
	struct run_queue_account account = {.key = {.cgroup = cgroup}, .process = 77};

	snprintf((char *)account.key.comm, sizeof(account.key.comm), "%s", comm);
	run_queue_charge(rig->table[i], &account, who, ns, n_preemptions);
}

static void feed(struct rig *rig)
{
	for (unsigned int i = 0; i < 2; i++)
		delay_causes_feed(rig->causers, rig->now_ns, i, rig->table[i]);
}

static struct delay_causes_sum sum_of(const struct rig *rig)
{
	struct delay_causes_sum sum = {.n = 0};

	delay_causes_add(rig->causers, rig->now_ns, &sum);
	return sum;
}

static uint64_t wait_of(const struct rig *rig, const char *comm, uint32_t who)
{
	struct delay_causes_sum sum = sum_of(rig);

	for (uint32_t i = 0; i < sum.n; i++)
		if (strcmp(sum.causers[i].comm, comm) == 0 && sum.causers[i].who == who)
			return sum.causers[i].wait_ns;
	return 0;
}

TEST(test_feed__growth)
{
	struct rig rig = rig_new();
	struct delay_causes_sum sum;

	charge(&rig, 0, "before", 1, 0, 1000, 5);
	for (unsigned int i = 0; i < 2; i++)
		delay_causes_begin(rig.causers, i, rig.table[i]);
	feed(&rig);
	assert_int_equal(sum_of(&rig).n, 0);
	charge(&rig, 0, "before", 1, 0, 100, 1);
	charge(&rig, 0, "hog", 2, 0, 700, 2);
	/* The same causer on another processor. */
	charge(&rig, 1, "hog", 2, 0, 300, 1);
	feed(&rig);
	feed(&rig);
	assert_int_equal(wait_of(&rig, "before", 0), 100);
	assert_int_equal(wait_of(&rig, "hog", 0), 1000);
	sum = sum_of(&rig);
	assert_int_equal(delay_causes_top(&sum, 3), 2);
	assert_string_equal(sum.causers[0].comm, "hog");
	assert_int_equal(sum.causers[0].n_preemptions, 3);
	assert_int_equal(sum.causers[0].process, 77);
	assert_string_equal(sum.causers[1].comm, "before");
	assert_int_equal(sum.causers[1].n_preemptions, 1);
	free(rig.causers);
}

/* The table is full: a new causer replaces another one, which returns. */
TEST(test_feed__replaced)
{
	struct rig rig = rig_new();
	char name[16];

	for (unsigned int i = 0; i < RUN_QUEUE_CAUSERS; i++) {
		snprintf(name, sizeof(name), "old%u", i);
		charge(&rig, 0, name, i, 0, 1000 + i, 1);
	}
	feed(&rig);
	charge(&rig, 0, "new", 50, 0, 5, 1);
	feed(&rig);
	/* The new entry does not inherit the replaced one's time. */
	assert_int_equal(wait_of(&rig, "new", 0), 5);
	charge(&rig, 0, "new", 50, 0, 6, 0);
	feed(&rig);
	assert_int_equal(wait_of(&rig, "new", 0), 11);
	/* old1 has the least time by now. */
	charge(&rig, 0, "old0", 0, 0, 7, 1);
	feed(&rig);
	assert_int_equal(wait_of(&rig, "old0", 0), 1007);
	/* x is replaced and returns between two readings. */
	charge(&rig, 0, "x", 60, 0, 1000000, 1);
	charge(&rig, 0, "y", 61, 0, 1000000, 1);
	feed(&rig);
	charge(&rig, 0, "z", 62, 0, 1, 1);
	charge(&rig, 0, "x", 60, 0, 1, 1);
	feed(&rig);
	assert_int_equal(wait_of(&rig, "x", 0), 1000001);
	assert_int_equal(wait_of(&rig, "z", 0), 1);
	free(rig.causers);
}

/* Many short-lived causers and three heavy ones, which are reported in order and nearly exactly. */
TEST(test_feed__heavy)
{
	static const uint64_t weights[] = {500, 300, 200};
	struct rig rig = rig_new();
	unsigned int seed = 3;
	struct delay_causes_sum sum;
	char name[16];

	for (unsigned int i = 0; i < 9000; i++) {
		unsigned int j = (unsigned int)rand_r(&seed) % 10;

		snprintf(name, sizeof(name), j < 9 ? "hog%u" : "small%u",
			 j < 9 ? j % 3 : (unsigned int)rand_r(&seed) % 1000);
		charge(&rig, i % 2, name, 1, 0, j < 9 ? weights[j % 3] : 10, 1);
		if (i % 10 == 0)
			feed(&rig);
		if (i % 1000 == 0)
			rig.now_ns += second_ns;
	}
	feed(&rig);
	sum = sum_of(&rig);
	assert_int_equal(delay_causes_top(&sum, 3), 3);
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "hog%u", i);
		assert_string_equal(sum.causers[i].comm, name);
		assert_true(sum.causers[i].wait_ns > 2500 * weights[i] &&
			    sum.causers[i].wait_ns < 3000 * weights[i]);
	}
	free(rig.causers);
}

/* A causer's tenant may change, and the time of a tenant that is gone counts for no tenant. */
TEST(test_feed__tenant_of_causer)
{
	const uint32_t first = RUN_QUEUE_TENANT << 16 | 1, second = RUN_QUEUE_TENANT << 16 | 2;
	struct rig rig = rig_new();

	charge(&rig, 0, "client", 1, 0, 10, 0);
	feed(&rig);
	charge(&rig, 0, "client", 1, first, 100, 0);
	feed(&rig);
	charge(&rig, 0, "client", 1, second, 1000, 0);
	feed(&rig);
	assert_int_equal(wait_of(&rig, "client", 0), 10);
	assert_int_equal(wait_of(&rig, "client", first), 100);
	assert_int_equal(wait_of(&rig, "client", second), 1000);
	delay_causes_forget(rig.causers, first);
	assert_int_equal(wait_of(&rig, "client", first), 0);
	assert_int_equal(wait_of(&rig, "client", 0), 110);
	assert_int_equal(wait_of(&rig, "client", second), 1000);
	free(rig.causers);
}

TEST(test_window)
{
	struct rig rig = rig_new();

	charge(&rig, 0, "early", 1, 0, 10, 0);
	feed(&rig);
	for (unsigned int i = 0; i < 30; i++) {
		rig.now_ns += second_ns / 2;
		charge(&rig, 0, "often", 1, 0, 10, 0);
		feed(&rig);
		assert_int_equal(wait_of(&rig, "early", 0), i < 18   ? 10
							    : i > 22 ? 0
								     : wait_of(&rig, "early", 0));
	}
	assert_true(wait_of(&rig, "often", 0) >= 180 && wait_of(&rig, "often", 0) <= 220);
	/* No reading for an hour. */
	rig.now_ns += 3600 * second_ns;
	assert_int_equal(sum_of(&rig).n, 0);
	free(rig.causers);
}

/* More causers per second, and in all, than there is room for: those with the most time stay. */
TEST(test_bounds)
{
	struct rig rig = rig_new();
	struct delay_causes_sum sum;
	char name[16];

	for (unsigned int i = 0; i < 40; i++) {
		rig.now_ns += second_ns / 10;
		for (unsigned int j = 0; j < RUN_QUEUE_CAUSERS; j++) {
			snprintf(name, sizeof(name), "n%u", i * RUN_QUEUE_CAUSERS + j);
			memset(&rig.table[0][j], 0, sizeof(rig.table[0][j]));
			memcpy(rig.table[0][j].comm, name, sizeof(name));
			rig.table[0][j].wait_ns = (i * 131 + j * 17) % 997 + 1;
		}
		if (i == 20)
			rig.table[0][3].wait_ns = 1000000;
		feed(&rig);
	}
	sum = sum_of(&rig);
	assert_int_equal(sum.n, DELAY_CAUSES_MERGED);
	assert_int_equal(delay_causes_top(&sum, 1), 1);
	assert_int_equal(sum.causers[0].wait_ns, 1000000);
	assert_string_equal(sum.causers[0].comm, "n163");
	free(rig.causers);
}

/* A causer that preempted, but made no thread wait, is no cause. */
TEST(test_top__no_time)
{
	struct rig rig = rig_new();
	struct delay_causes_sum sum;

	charge(&rig, 0, "brief", 1, 0, 0, 3);
	feed(&rig);
	sum = sum_of(&rig);
	assert_int_equal(sum.n, 1);
	assert_int_equal(delay_causes_top(&sum, 3), 0);
	free(rig.causers);
}
