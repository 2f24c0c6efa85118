/* SPDX-License-Identifier: MIT */
/* Tasks of plans beside leased programs, in virtual time: broker/lease/timeslice-plans.c. */
#include "unit/timeslice-scene.h"

#include "util/priority.h"

static void note_plans(bool has_some)
{
	share_plans(2, 0, has_some ? 1u << priority_class(RBK_PRIORITY_NORMAL) : 0);
}

/* Beside plans a lease that is alone keeps little work under way, until they pause for long. */
TEST(test_plans__restrain_a_lease, setup, teardown)
{
	struct program *program = add(0, RBK_PRIORITY_NORMAL, ms, 0);

	run_for(10 * ms);
	assert_int_equal(state_of(program), RBK_TIMESLICE_OPEN);
	timeslice_share_plans(&leases.timeslices, DEVICE + 1, &plans[2], now_ns);
	assert_int_equal(state_of(program), RBK_TIMESLICE_OPEN);
	note_plans(true);
	assert_int_equal(state_of(program), RBK_TIMESLICE_HELD);
	measure(0);
	for (unsigned int i = 0; i < 500; i++) {
		note_plans(true);
		run_for(2 * ms);
		note_plans(false);
		run_for(2 * ms);
		assert_int_equal(state_of(program), RBK_TIMESLICE_HELD);
	}
	assert_true(program->used_ns > 1900 * ms);
	note_plans(true);
	note_plans(false);
	run_for(900 * ms);
	assert_int_equal(state_of(program), RBK_TIMESLICE_HELD);
	run_for(200 * ms);
	assert_int_equal(state_of(program), RBK_TIMESLICE_OPEN);
}

/* Background work waits for plans, also for those that follow each other, but not for ever. */
TEST(test_plans__come_before_background, setup, teardown)
{
	struct program *program = add(0, RBK_PRIORITY_LOW, ms, 0);

	for (unsigned int n_leases = 1; n_leases <= 2; n_leases++) {
		run_for(100 * ms);
		for (unsigned int i = 0; i < 20; i++) {
			note_plans(true);
			if (i == 0)
				assert_int_equal(state_of(program), RBK_TIMESLICE_CLOSED);
			run_for(ms);
			note_plans(false);
			run_for(ms);
			if (i == 2)
				program->used_ns = 0;
		}
		assert_true(program->used_ns == 0);
		run_for(5 * ms);
		assert_int_not_equal(state_of(program), RBK_TIMESLICE_CLOSED);
		note_plans(true);
		run_for(10 * s);
		measure(10 * s);
		assert_true(program->used_ns >= 9 * 5 * ms && program->used_ns <= s);
		note_plans(false);
		measure(s);
		assert_true(program->used_ns >= 900 * ms);
		/* The same beside an idle lease. */
		if (n_leases == 1)
			add(1, URGENT, ms, 1000 * s)->ready_ns = now_ns + 1000 * s;
	}
}

/* A background lease tells how long it waited for plans, and that it ended for them. */
TEST(test_record__beside_plans, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_LOW, ms, 0);
	const struct timeslice_record *record;
	uint64_t began_ns;

	note_plans(true);
	assert_int_equal(state_of(a), RBK_TIMESLICE_CLOSED);
	now_ns += ms;
	tell_done(a);
	assert_fields(*last_of(a), (is_for_plans, 1), (for_lease, 0), (ended_ns, now_ns));
	timeslice_want(&a->member, now_ns);
	began_ns = now_ns;
	now_ns += 10 * ms;
	note_plans(false);
	now_ns += ms;
	note_plans(true);
	now_ns += 4 * ms;
	note_plans(false);
	run_for(10 * ms);
	assert_int_not_equal(state_of(a), RBK_TIMESLICE_CLOSED);
	timeslice_leave(&a->member, now_ns);
	record = last_of(a);
	assert_fields(*record, (wanted_ns, began_ns), (plans_ns, 14 * ms),
		      (began_ns, began_ns + 17 * ms), (is_left, 1));
}

/* Return the part of the time since the last measure() that tasks of a tenant's plans had. */
static double part(const struct client *client, uint64_t ns)
{
	return (double)client->used_ns / (double)ns;
}

/* A client that always has tasks, and a leased program, share the device. */
TEST(test_plans__share_with_a_lease, setup, teardown)
{
	static const uint64_t jobs_ns[] = {200000, 1000000, 9000000};
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct client *b;

	for (unsigned int i = 0; i < 3; i++)
		for (unsigned int j = 0; j < 3; j++) {
			a->job_ns = jobs_ns[i];
			b = add_client(1, RBK_PRIORITY_NORMAL, MAX_TASKS, jobs_ns[j], 0);
			run_for(s);
			measure(5 * s);
			expect_between(.48, part(b, 5 * s), .52);
			expect_between(.95, (double)a->used_ns / (double)b->used_ns, 1.05);
			b->depth = 0;
			b->n_under_way = 0;
			share_plans(1, 0, 0);
			run_for(100 * ms);
		}
}

/* Two programs and a client have 1:1:2, over long and short times. */
TEST(test_plans__share_with_two_leases, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, 700 * us, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	struct client *c = add_client(2, RBK_PRIORITY_NORMAL, MAX_TASKS, 200 * us, 0);

	tenants[2].weight = 200;
	run_for(s);
	measure(5 * s);
	expect_between(.97, ratio(a, b), 1.03);
	expect_between(.485, part(c, 5 * s), .515);
	expect_between(.97, (double)(a->used_ns + b->used_ns) / (double)c->used_ns, 1.03);
	for (unsigned int i = 0; i < 20; i++) {
		measure(250 * ms);
		expect_between(.225, (double)a->used_ns / (double)(250 * ms), .275);
		expect_between(.225, (double)b->used_ns / (double)(250 * ms), .275);
		expect_between(.45, part(c, 250 * ms), .55);
	}
}

/* A tenant's plans and its leases compete as one, and divide its time in equal parts. */
TEST(test_plans__compete_as_one_with_leases, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	struct client *of_a = add_client(0, RBK_PRIORITY_NORMAL, MAX_TASKS, 300 * us, 0);

	run_for(s);
	measure(5 * s);
	expect_between(.97, (double)(a->used_ns + of_a->used_ns) / (double)b->used_ns, 1.03);
	expect_between(.95, (double)a->used_ns / (double)of_a->used_ns, 1.05);

	/* The share of a lease is beside the default one of the plans. */
	timeslice_set(a->lease, 0, 300, now_ns);
	run_for(s);
	measure(5 * s);
	expect_between(.97, (double)(a->used_ns + of_a->used_ns) / (double)b->used_ns, 1.03);
	expect_between(2.85, (double)a->used_ns / (double)of_a->used_ns, 3.15);

	/* A client that uses a fifth of the device leaves its tenant's lease the rest of a half. */
	timeslice_set(a->lease, 0, 100, now_ns);
	do_waits_count = false;
	of_a->n_under_way = 0;
	share_plans(0, 0, 0);
	of_a = add_client(0, RBK_PRIORITY_NORMAL, 1, ms, 3 * ms);
	run_for(s);
	measure(10 * s);
	expect_between(.95, (double)(a->used_ns + of_a->used_ns) / (double)b->used_ns, 1.05);
	assert_true(of_a->used_ns > 10 * s / 10);
}

/* A tenant does not get more than its share by urgent tasks. */
TEST(test_plans__owe_little, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	struct client *of_a = add_client(0, URGENT, MAX_TASKS, 300 * us, 0);

	do_waits_count = false;
	run_for(s);
	measure(10 * s);
	expect_between(.9, (double)(a->used_ns + of_a->used_ns) / (double)b->used_ns, 1.1);
	of_a->depth = 0;
	share_plans(0, 0, 0);
	run_for(s);
	measure(3 * s);
	expect_between(.95, ratio(a, b), 1.05);
}

/* Two clients with many tasks have their parts of the plans' turns. */
TEST(test_plans__of_two_tenants, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct client *b = add_client(1, RBK_PRIORITY_NORMAL, MAX_TASKS, 200 * us, 0);
	struct client *c = add_client(2, RBK_PRIORITY_NORMAL, MAX_TASKS, 200 * us, 0);

	run_for(s);
	measure(6 * s);
	expect_between(1.8 * s, (double)a->used_ns, 2.2 * s);
	expect_between(.9, (double)b->used_ns / (double)c->used_ns, 1.1);
}

/* Tasks wait while an urgent lease has work, but for what is under way and for their patience. */
TEST(test_plans__wait_for_urgent_leases, setup, teardown)
{
	struct program *urgent = add(0, URGENT, 2 * ms, 5 * ms);
	struct client *client = add_client(1, RBK_PRIORITY_NORMAL, MAX_TASKS, 400 * us, 0);

	tenants[0].weight = 10000;
	run_for(s);
	measure(5 * s);
	/* Two tasks are under way. */
	assert_true(urgent->longest_ns <= 2 * ms + 2 * 400 * us + 200 * us);
	expect_between(.68, part(client, 5 * s), .76);
	expect_between(.93, part(client, 5 * s) + (double)urgent->used_ns / (double)(5 * s), 1);

	/* They are not starved. */
	urgent->pause_ns = 0;
	run_for(2 * s);
	measure(10 * s);
	assert_true(client->longest_ns <= TIMESLICE_PATIENCE_NS + 20 * ms);
	/* The urgent tenant is ahead now and then. */
	expect_between(.004, part(client, 10 * s), .02);
	assert_true(urgent->longest_ns <= 15 * ms);

	/* With an equal share, the urgent tenant is soon ahead. */
	tenants[0].weight = 100;
	run_for(5 * s);
	measure(5 * s);
	expect_between(.45, part(client, 5 * s), .55);
}

/* Tasks that have waited long behind an urgent lease come next beside other leases. */
TEST(test_plans__late_among_leases, setup, teardown)
{
	struct client *client = add_client(1, RBK_PRIORITY_NORMAL, MAX_TASKS, 400 * us, 0);
	struct program *a, *b;

	tenants[0].weight = 10000;
	add(0, URGENT, 2 * ms, 0);
	a = add(2, RBK_PRIORITY_LOW, ms, 0);
	b = add(2, RBK_PRIORITY_LOW, ms, 0);
	run_for(5 * s);
	measure(12 * s);
	assert_true(client->used_ns >= 2 * 5 * ms && a->used_ns >= 2 * 5 * ms &&
		    b->used_ns >= 2 * 5 * ms);
	assert_true(client->longest_ns <= 5 * TIMESLICE_PATIENCE_NS);
}

/* Urgent tasks wait for what is under way, whoever has the device. */
TEST(test_plans__urgent_ones_pass, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *background = add(1, RBK_PRIORITY_LOW, ms, 0);
	struct client *urgent = add_client(2, URGENT, 1, 200 * us, 4 * ms);
	struct client *normal = add_client(1, RBK_PRIORITY_NORMAL, MAX_TASKS, 200 * us, 0);

	tenants[2].weight = 1000;
	run_for(s);
	measure(5 * s);
	/* A job, even of background work that has waited long, and three tasks beside it. */
	assert_true(urgent->longest_ns <= ms + 3 * 200 * us + 200 * us + 100 * us);
	assert_true(urgent->n_done >= 5 * s / (5500 * us));
	expect_between(.9, (double)a->used_ns / (double)(normal->used_ns + background->used_ns),
		       1.1);
}

/* A client that uses less than its share does not wait for timeslices of equal leases. */
TEST(test_plans__of_a_client_that_is_behind, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0), *b;
	struct client *client = add_client(2, RBK_PRIORITY_NORMAL, 1, 100 * us, 2 * ms);

	do_waits_count = false;
	run_for(s);
	measure(5 * s);
	assert_true(client->longest_ns <= ms + 100 * us + 100 * us);
	assert_true(a->used_ns > 9 * s / 2);

	b = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	run_for(s);
	measure(5 * s);
	assert_true(client->longest_ns <= 2 * ms + 100 * us + 100 * us);
	expect_between(.97, ratio(a, b), 1.03);
	/* Its tasks end no timeslices. */
	assert_true(a->used_ns + b->used_ns > 9 * s / 2);
}

/* Background work waits while a client sends one task after the other. */
TEST(test_plans__beside_background, setup, teardown)
{
	struct program *background = add(0, RBK_PRIORITY_LOW, ms, 0);
	struct client *client = add_client(1, RBK_PRIORITY_NORMAL, 1, 500 * us, 500 * us);

	run_for(3 * s);
	measure(5 * s);
	assert_true(client->longest_ns <= 2 * ms + 100 * us);
	assert_true(client->n_done >= 4500);
	expect_between(4 * 5 * ms, (double)background->used_ns, 6 * 8 * ms);

	/* Tasks in the background have equal parts. */
	client->class = priority_class(RBK_PRIORITY_LOW);
	client->pause_ns = 0;
	run_for(3 * s);
	measure(5 * s);
	expect_between(.45, part(client, 5 * s), .55);
	/* And they wait for a normal lease. */
	add(2, RBK_PRIORITY_NORMAL, ms, 0);
	run_for(3 * s);
	measure(5 * s);
	assert_true(client->used_ns + background->used_ns < s / 4);
	assert_true(client->longest_ns <= 2 * (TIMESLICE_PATIENCE_NS + 20 * ms));
}

/* Tasks wait for a lease that hangs as long as a lease would, and not at all for one that left. */
TEST(test_plans__beside_a_lease_that_hangs, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	struct client *client = add_client(2, RBK_PRIORITY_NORMAL, MAX_TASKS, 200 * us, 0);

	run_for(s);
	a->is_deaf = true;
	measure(s);
	assert_true(client->longest_ns <= 2 * TIMESLICE_NS + TIMESLICE_GRACE_NS + 10 * ms);
	run_for(s);
	measure(2 * s);
	expect_between(.45, part(client, 2 * s), .52);
	assert_true(client->longest_ns <= 20 * ms);

	/* The other one is killed while it has the device. */
	while (state_of(b) == RBK_TIMESLICE_CLOSED)
		run_for(100 * us);
	timeslice_leave(&b->member, now_ns);
	assert_int_not_equal(plans[2].n_open, 0);
	timeslice_leave(&a->member, now_ns);
	a->pause_ns = b->pause_ns = 1000 * s;
	run_for(10 * ms);
	assert_int_equal(plans[2].n_open, TIMESLICE_CLASSES);
	assert_false(plans[2].is_known);
	measure(s);
	expect_between(.98, part(client, s), 1);
}

/* A client that comes back has little credit, and owes nothing. */
TEST(test_plans__come_back, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct client *client = add_client(1, RBK_PRIORITY_NORMAL, MAX_TASKS, 200 * us, 0);

	run_for(5 * s);
	for (unsigned int i = 0; i < 3; i++) {
		client->depth = client->n_under_way = 0;
		share_plans(1, 0, 0);
		run_for(2 * s);
		assert_int_equal(state_of(a), RBK_TIMESLICE_OPEN);
		assert_int_equal(plans[1].n_open, TIMESLICE_CLASSES);
		client = add_client(1, RBK_PRIORITY_NORMAL, MAX_TASKS, 200 * us, 0);
		measure(200 * ms);
		assert_true(client->longest_ns <= 20 * ms);
		expect_between(.45, part(client, 200 * ms), .8);
		measure(200 * ms);
		expect_between(.45, part(client, 200 * ms), .55);
	}
}

TEST_MAIN(NULL, NULL)
