/* SPDX-License-Identifier: MIT */
/* Time beside timeslices: broker/lease/beside.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease/lease.h"
#include "support/test.h"

enum { DEVICE = 1 };

static const uint64_t ms = 1000000, s = 1000000000;

static struct leases leases;
static struct lease lease;
static uint64_t other_ns; /* in each second */

static void begin(void)
{
	memset(&leases, 0, sizeof(leases));
	memset(&lease, 0, sizeof(lease));
	other_ns = 0;
	lease.leases = &leases;
	lease.device = DEVICE;
	lease.timeslice.n_members = 1;
	lease.timeslice.word = RBK_TIMESLICE_CLOSED;
}

/* Look each second @n times. Return: the time noticed. */
static uint64_t look(unsigned int n, uint64_t busy_ns, uint64_t slice_ns)
{
	uint64_t sum_ns = 0;

	for (unsigned int i = 0; i < n; i++) {
		lease.timeslice.used_ns += slice_ns;
		sum_ns += beside_look_at_lease(
			&lease, &(struct beside_times){
					.elapsed_ns = s, .busy_ns = busy_ns, .other_ns = other_ns});
	}
	return sum_ns;
}

TEST(test_beside__windows)
{
	begin();
	/* The first look has nothing before it, and a window has ten seconds. */
	assert_true(look(10, 900 * ms, 100 * ms) == 0);
	assert_true(look(1, 900 * ms, 100 * ms) == 8 * s);
	assert_true(look(9, 900 * ms, 100 * ms) == 0);
	assert_true(look(1, 900 * ms, 100 * ms) == 8 * s);
	assert_true(lease.beside.total_ns == 16 * s);
	/* Times are a little wrong, and a program may have less than its timeslices. */
	assert_true(look(40, 290 * ms, 100 * ms) == 0);
	assert_true(look(40, 100 * ms, 900 * ms) == 0);
	assert_true(look(10, 310 * ms, 100 * ms) == 2100 * ms);
	/* Processes that do not share have no timeslices. */
	other_ns = 150 * ms;
	assert_true(look(10, 100 * ms, 900 * ms) == 0);
	other_ns = 400 * ms;
	assert_true(look(10, 100 * ms, 900 * ms) == 4 * s);
}

/* Times that cannot be compared are left out. */
TEST(test_beside__left_out)
{
	begin();
	for (unsigned int i = 0; i < 60; i++) {
		/* It is alone in between. */
		lease.timeslice.n_opened++;
		assert_true(look(1, s, 0) == 0);
		lease.timeslice.n_overdue++;
		assert_true(look(1, s, 0) == 0);
		leases.timeslices.devices[DEVICE].plans_total_ns++;
		assert_true(look(1, s, 0) == 0);
		/* Its last timeslice goes on while another lease is the holder. */
		lease.timeslice.is_under_way = true;
		assert_true(look(1, s, 0) == 0);
		lease.timeslice.is_under_way = false;
		assert_true(look(1, s, 0) == 0);
		lease.timeslice.word = RBK_TIMESLICE_OPEN;
		assert_true(look(1, s, 0) == 0);
		lease.timeslice.word = RBK_TIMESLICE_CLOSED;
		lease.timeslice.n_members = 0;
		assert_true(look(1, s, 0) == 0);
		lease.timeslice.n_members = 1;
	}
	assert_true(lease.beside.elapsed_ns == 0);
	assert_true(look(11, s, 0) == 10 * s);
}

static void add(struct beside_device *device, pid_t pid, uint64_t busy_ns)
{
	struct process_reading process = {.pid = pid, .uid = 7};

	snprintf(process.comm, sizeof(process.comm), "p%d", (int)pid);
	beside_add_user(device, &process, busy_ns);
}

TEST(test_beside__users)
{
	struct beside_users users = {.n = 0};
	struct beside_device device = {.n = 0}, other = {.n = 0};

	for (unsigned int i = 0; i < 10; i++) {
		add(&device, 11, 400 * ms);
		add(&device, 12, 40 * ms);
		add(&other, 11, 60 * ms);
		beside_end_look(&users, &other, 2, true, s);
		assert_int_equal(users.n, i == 9);
		beside_end_look(&users, &device, DEVICE, true, s);
	}
	assert_int_equal(users.n, 2);
	assert_int_equal(users.users[1].pid, 11);
	assert_int_equal(users.users[1].uid, 7);
	assert_int_equal(users.users[1].device, DEVICE);
	assert_int_equal(users.users[1].busy_percent, 40);
	assert_string_equal(users.users[1].comm, "p11");
	/* It is logged once while it goes on. */
	users.users[1].is_told = true;
	add(&device, 13, 9 * s);
	add(&device, 11, 5 * s);
	beside_end_look(&users, &device, DEVICE, true, 10 * s);
	assert_int_equal(users.n, 3);
	assert_int_equal(users.users[0].device, 2);
	assert_true(users.users[2].pid == 11 && users.users[2].is_told);
	assert_false(users.users[1].is_told);
	/* More than fit. */
	for (pid_t pid = 100; pid < 200; pid++)
		add(&device, pid, s);
	beside_end_look(&users, &device, DEVICE, true, 10 * s);
	assert_int_equal(users.n, BESIDE_MAX_USERS);
	beside_end_look(&users, &device, DEVICE, false, s);
	assert_int_equal(users.n, 1);
	assert_int_equal(users.users[0].device, 2);
}

TEST_MAIN(NULL, NULL)
