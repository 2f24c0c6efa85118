/* SPDX-License-Identifier: MIT */
/* Parts of the scheduler probes that run without the kernel: buckets, tables of causers, clocks. */
#include <stdio.h>
#include <string.h>

#include "bpf/causers.h"
#include "bpf/clock.h"
#include "bpf/run-queue-layout.h"
#include "support/test.h"

/* Return a random number; the same sequence in every run. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

TEST(test_bucket__edges)
{
	unsigned int i;

	assert_int_equal(run_queue_bucket(0), 0);
	assert_int_equal(run_queue_bucket(255), 0);
	assert_int_equal(run_queue_bucket(256), 1);
	assert_int_equal(run_queue_bucket(~0ull), RUN_QUEUE_BUCKETS - 1);
	assert_int_equal(run_queue_bucket(1ull << RUN_QUEUE_MAX_BITS), RUN_QUEUE_BUCKETS - 1);
	assert_int_equal(run_queue_bucket((1ull << RUN_QUEUE_MAX_BITS) - 1), RUN_QUEUE_BUCKETS - 1);
	for (i = 1; i < RUN_QUEUE_BUCKETS; i++) {
		uint64_t from = run_queue_bucket_ns(i), before = run_queue_bucket_ns(i - 1);

		assert_int_equal(run_queue_bucket(from), i);
		assert_int_equal(run_queue_bucket(from - 1), i - 1);
		assert_true(from > before);
		/* Buckets are fine enough for 5% precision at their middle. */
		if (i > 1)
			assert_true((double)(from - before) / (double)before <= 1.0 / 16);
	}
}

TEST(test_bucket__any)
{
	uint64_t seed = 1;
	int i;

	for (i = 0; i < 1000000; i++) {
		uint64_t ns = next_random(&seed) >> (next_random(&seed) % 64);
		unsigned int bucket = run_queue_bucket(ns);

		assert_true(bucket < RUN_QUEUE_BUCKETS);
		assert_true(run_queue_bucket_ns(bucket) <= ns);
		if (bucket + 1 < RUN_QUEUE_BUCKETS)
			assert_true(ns < run_queue_bucket_ns(bucket + 1));
	}
}

static struct run_queue_account account(unsigned int number, unsigned long long cgroup)
{
	struct run_queue_account made = {.process = number, .owner = number};
	char comm[RUN_QUEUE_COMM_BYTES] = {0};

	snprintf(comm, sizeof(comm), "hog-%u\x01\n", number);
	made.key.cgroup = cgroup;
	memcpy(made.key.comm, comm, sizeof(comm));
	return made;
}

TEST(test_causers__few)
{
	struct run_queue_causer causers[RUN_QUEUE_CAUSERS] = {0};
	struct run_queue_account hogs[RUN_QUEUE_CAUSERS];
	struct run_queue_causer *causer;
	unsigned int i, least;

	for (i = 0; i < RUN_QUEUE_CAUSERS; i++) {
		hogs[i] = account(i + 1, 7);
		/* A new causer is returned, so that its cgroup's name can be added. */
		assert_non_null(run_queue_charge(causers, &hogs[i], 0, 0, 1));
		assert_null(run_queue_charge(causers, &hogs[i], i, 100 * (i + 1), 0));
		run_queue_charge(causers, &hogs[i], i, 1, 2);
	}
	/* No causer is lost while the table has room, nor one that has only preempted. */
	for (i = 0; i < RUN_QUEUE_CAUSERS; i++) {
		unsigned int at = run_queue_causer_find(causers, &hogs[i].key, &least);

		assert_true(at < RUN_QUEUE_CAUSERS);
		assert_fields(causers[at], (wait_ns, 100 * (i + 1) + 1), (n_preemptions, 3),
			      (overcount_ns, 0), (who, i), (process, i + 1));
		assert_memory_equal(causers[at].comm, hogs[i].key.comm, RUN_QUEUE_COMM_BYTES);
	}

	/* A ninth causer replaces the least one. */
	struct run_queue_account ninth = account(99, 7);

	causer = run_queue_charge(causers, &ninth, 5, 10, 0);
	assert_int_equal(run_queue_causer_find(causers, &hogs[0].key, &least), RUN_QUEUE_CAUSERS);
	i = run_queue_causer_find(causers, &ninth.key, &least);
	assert_ptr_equal(causer, &causers[i]);
	assert_fields(causers[i], (wait_ns, 111), (overcount_ns, 101), (n_preemptions, 0));
	assert_string_equal(causers[i].comm, "hog-99\x01\n");
	assert_string_equal(causers[i].cgroup_name, "");
}

TEST(test_causers__same_name)
{
	struct run_queue_causer causers[RUN_QUEUE_CAUSERS] = {0};
	struct run_queue_account here = account(1, 7), there = account(1, 8), again = here;
	unsigned int least;

	/* Short-lived processes of one name and cgroup add up; other cgroups are separate. */
	run_queue_charge(causers, &here, 0, 5, 0);
	run_queue_charge(causers, &there, 0, 6, 0);
	again.process = 1234;
	run_queue_charge(causers, &again, 0, 7, 0);
	assert_int_equal(causers[run_queue_causer_find(causers, &here.key, &least)].wait_ns, 12);
	assert_int_equal(causers[run_queue_causer_find(causers, &here.key, &least)].process, 1);
	assert_int_equal(causers[run_queue_causer_find(causers, &there.key, &least)].wait_ns, 6);
}

/*
 * Check the algorithm's guarantee on a random stream: each count is at least the true sum, and at
 * most its error above it.
 */
static void check_stream(unsigned int n_hogs, unsigned int n_charges, uint64_t seed)
{
	struct run_queue_causer causers[RUN_QUEUE_CAUSERS] = {0};
	uint64_t ran_ns[64] = {0}, total_ns = 0, kept_ns = 0;
	unsigned int i, j, least;

	assert_true(n_hogs <= 64);
	for (i = 0; i < n_charges; i++) {
		/* The first hogs occur much more often. */
		unsigned int hog =
			(unsigned int)(next_random(&seed) % (next_random(&seed) % n_hogs + 1));
		uint64_t ns = next_random(&seed) % 1000;
		struct run_queue_account one = account(hog, 1);

		run_queue_charge(causers, &one, 0, ns, 0);
		ran_ns[hog] += ns;
		total_ns += ns;
	}
	for (j = 0; j < RUN_QUEUE_CAUSERS; j++)
		kept_ns += causers[j].wait_ns;
	assert_int_equal(kept_ns, total_ns);
	for (i = 0; i < n_hogs; i++) {
		struct run_queue_account one = account(i, 1);

		j = run_queue_causer_find(causers, &one.key, &least);
		if (j == RUN_QUEUE_CAUSERS) {
			assert_true(ran_ns[i] <= total_ns / RUN_QUEUE_CAUSERS);
			continue;
		}
		assert_true(causers[j].wait_ns >= ran_ns[i]);
		assert_true(causers[j].wait_ns - causers[j].overcount_ns <= ran_ns[i]);
		assert_true(causers[j].overcount_ns <= total_ns / RUN_QUEUE_CAUSERS);
	}
}

TEST(test_causers__many)
{
	uint64_t seed;

	for (seed = 1; seed <= 300; seed++)
		check_stream((unsigned int)(1 + seed % 64), 2000, seed);
}

/* --- The scheduler's clock, and CLOCK_MONOTONIC --- */

/*
 * While clocks are slewed, late readings in a row leave an error of at most a few times the slew.
 */
TEST(test_clock__slewed)
{
	struct run_queue_processor processor = {0};
	uint64_t clock_ns = 5000000000u, ahead_ns = 77000000000u, seed = 3;
	unsigned int i;

	for (i = 0; i < 20000; i++) {
		uint64_t passed_ns = RUN_QUEUE_RECHECK_NS + next_random(&seed) % 1000000;
		uint64_t slewed_ns = passed_ns / 2000, late_ns = 60;
		int64_t wrong_ns;

		clock_ns += passed_ns;
		ahead_ns += i / 5000 % 2 ? slewed_ns : -slewed_ns;
		/* Sometimes there is a delay between the scheduler and the probe. */
		if (i && next_random(&seed) % 16 == 0)
			late_ns += next_random(&seed) % 5000000;
		run_queue_check_clock(&processor, clock_ns, clock_ns + ahead_ns + late_ns);
		wrong_ns = (int64_t)(processor.clock_ahead_ns - ahead_ns);
		assert_true(wrong_ns >= 60 && wrong_ns < 20000);
	}
}

/* The first reading may be late; the next one corrects it. */
TEST(test_clock__first_late)
{
	struct run_queue_processor processor = {0};

	run_queue_check_clock(&processor, 1000000, 5000000);
	assert_int_equal(processor.clock_ahead_ns, 4000000);
	run_queue_check_clock(&processor, 3000000, 3000050);
	assert_int_equal(processor.clock_ahead_ns, 50);
}

/* The clocks jump, as after a suspend. */
TEST(test_clock__set)
{
	struct run_queue_processor processor = {0};

	run_queue_check_clock(&processor, 1000000000, 1000000050);
	run_queue_check_clock(&processor, 1010000000, 9010000050);
	assert_int_equal(processor.clock_ahead_ns, 8000000050);
	/* The scheduler's clock may also jump back. */
	run_queue_check_clock(&processor, 1000000, 9010000100);
	assert_int_equal(processor.clock_ahead_ns, 9009000100);
}
