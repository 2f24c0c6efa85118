/* SPDX-License-Identifier: MIT */
/* Busy time of processes between two looks: broker/lease/busy.h */
#include "lease/busy.h"
#include "support/test.h"

#define SECOND_NS 1000000000ull

enum { OWN = 100 };

static void put(struct device_reading *reading, pid_t pid, uint64_t busy_ns)
{
	reading->processes[reading->n_processes++] =
		(struct process_reading){.pid = pid, .busy_ns = {busy_ns, true}};
}

/* Begin a list at a time in seconds. */
static struct device_reading list_at(uint64_t seconds)
{
	return (struct device_reading){.processes_ns = {seconds * SECOND_NS, true}};
}

TEST(test_busy__between_looks)
{
	static struct device_reading reading;
	struct busy_seen seen = {.list_ns = 0};
	struct busy_times times;

	/* The time before the first look is not counted. */
	reading = list_at(1);
	put(&reading, OWN, 5 * SECOND_NS);
	put(&reading, 1, 7 * SECOND_NS);
	assert_true(busy_look(&seen, &reading, OWN, &times));
	assert_fields(times, (elapsed_ns, 0), (own_ns, 0), (others_ns, 0));
	assert_false(times.processes[1].is_valid);
	/* The same list once more */
	assert_false(busy_look(&seen, &reading, OWN, &times));
	/* Several lists may have been made in between. The order of processes changes. */
	reading = list_at(5);
	put(&reading, 2, 900);
	put(&reading, 1, 8 * SECOND_NS);
	put(&reading, OWN, 5 * SECOND_NS + 3);
	assert_true(busy_look(&seen, &reading, OWN, &times));
	assert_fields(times, (elapsed_ns, 4 * SECOND_NS), (own_ns, 3), (others_ns, SECOND_NS));
	assert_false(times.processes[0].is_valid);
	assert_true(times.processes[1].is_valid);
	assert_int_equal(times.processes[1].value, SECOND_NS);
	/* Another process has got the number. */
	reading = list_at(6);
	put(&reading, 1, 12);
	put(&reading, 2, 1000);
	assert_true(busy_look(&seen, &reading, OWN, &times));
	assert_false(times.processes[0].is_valid);
	assert_fields(times, (elapsed_ns, SECOND_NS), (own_ns, 0), (others_ns, 100));
}

/* A process had not used the device at the last look. */
TEST(test_busy__first_use)
{
	static struct device_reading reading;
	struct busy_seen seen = {.list_ns = 0};
	struct busy_times times;

	reading = list_at(1);
	put(&reading, 1, 0);
	reading.processes[0].busy_ns.is_valid = false;
	busy_look(&seen, &reading, OWN, &times);
	reading = list_at(2);
	put(&reading, 1, 700);
	assert_true(busy_look(&seen, &reading, OWN, &times));
	assert_true(times.processes[0].is_valid);
	assert_int_equal(times.processes[0].value, 700);
}

/* Drivers count time for which submissions wait for each other. */
TEST(test_busy__no_more_than_there_is)
{
	static struct device_reading reading;
	struct busy_seen seen = {.list_ns = 0};
	struct busy_times times;

	reading = list_at(1);
	put(&reading, OWN, 0);
	put(&reading, 1, 0);
	put(&reading, 2, 0);
	put(&reading, 3, 0);
	busy_look(&seen, &reading, OWN, &times);
	reading = list_at(2);
	put(&reading, OWN, SECOND_NS);
	put(&reading, 1, SECOND_NS);
	/* A descriptor of another process, with its past */
	put(&reading, 2, 1000 * SECOND_NS);
	put(&reading, 3, SECOND_NS);
	assert_true(busy_look(&seen, &reading, OWN, &times));
	assert_fields(times, (elapsed_ns, SECOND_NS), (own_ns, SECOND_NS / 4),
		      (others_ns, SECOND_NS * 3 / 4));
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(times.processes[i].value, SECOND_NS / 4);
}

/* A device that is gone has no list: what happens until it is back is not known. */
TEST(test_busy__without_a_list)
{
	static struct device_reading reading, none;
	struct busy_seen seen = {.list_ns = 0};
	struct busy_times times;

	reading = list_at(1);
	put(&reading, 1, 0);
	assert_true(busy_look(&seen, &reading, OWN, &times));
	assert_false(busy_look(&seen, &none, OWN, &times));
	reading.processes_ns.value = 100 * SECOND_NS;
	reading.processes[0].busy_ns.value = 50 * SECOND_NS;
	assert_true(busy_look(&seen, &reading, OWN, &times));
	assert_fields(times, (elapsed_ns, 0), (others_ns, 0));
	assert_false(times.processes[0].is_valid);
}

TEST_MAIN(NULL, NULL)
