/* SPDX-License-Identifier: MIT */
/* Timeslices in virtual time: broker/lease/timeslice.h. */
#include "unit/timeslice-scene.h"

TEST(test_alone__is_open, setup, teardown)
{
	struct program *only = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *other;

	assert_int_equal(state_of(only), RBK_TIMESLICE_OPEN);
	measure(100 * ms);
	assert_true(only->used_ns >= 99 * ms);
	assert_int_equal(only->lease->timeslice.used_ns, 0);

	/* It is restrained while there is another one. */
	other = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	assert_int_equal(state_of(only), RBK_TIMESLICE_HELD);
	assert_int_equal(state_of(other), RBK_TIMESLICE_CLOSED);
	measure(s);
	expect_between(0.95, ratio(only, other), 1.05);
	timeslice_leave(&other->member, now_ns);
	assert_int_equal(state_of(only), RBK_TIMESLICE_OPEN);
	assert_int_equal(state_of(other), RBK_TIMESLICE_OPEN);
}

TEST(test_not_sharing__is_not_restrained, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_COUNT, ms, 0), *b = add(1, URGENT, ms, 0);

	run_for(10 * ms);
	assert_int_equal(state_of(a), RBK_TIMESLICE_OPEN);
	assert_int_equal(state_of(b), RBK_TIMESLICE_OPEN);
}

TEST(test_weights__divide_the_device, setup, teardown)
{
	struct program *a, *b, *c;

	tenants[0].weight = 300;
	a = add(0, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	b = add(1, RBK_PRIORITY_NORMAL, 700 * us, 0);
	measure(5 * s);
	expect_between(2.91, ratio(a, b), 3.09);
	expect_between(0.95, (double)(a->used_ns + b->used_ns) / (double)(5 * s), 1);
	/* A program that uses little does not hold the others' virtual time back, however long. */
	add(2, URGENT, ms, 19 * ms);
	run_for(60 * s);
	measure(5 * s);
	expect_between(2.91, ratio(a, b), 3.09);
	timeslice_leave(&programs[2].member, now_ns);

	/* Leases of a tenant share what the tenant has. */
	c = add(1, RBK_PRIORITY_NORMAL, 3 * ms, 0);
	measure(5 * s);
	b->used_ns += c->used_ns;
	expect_between(2.91, ratio(a, b), 3.09);
	/* b->used_ns is that of both. */
	expect_between(1.94, ratio(b, c), 2.06);
}

/* A tenant's time is divided among its leases by their shares, whatever other tenants have. */
TEST(test_shares__divide_a_tenants_time, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0), *b, *other;

	b = add(0, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	timeslice_set(a->lease, 0, 75, now_ns);
	timeslice_set(b->lease, 0, 25, now_ns);
	measure(5 * s);
	expect_between(2.91, ratio(a, b), 3.09);

	other = add(1, RBK_PRIORITY_NORMAL, 700 * us, 0);
	run_for(s);
	measure(5 * s);
	expect_between(2.91, ratio(a, b), 3.09);
	expect_between(0.97, (double)(a->used_ns + b->used_ns) / (double)other->used_ns, 1.03);
	timeslice_set(b->lease, 0, 225, now_ns);
	measure(5 * s);
	expect_between(0.32, ratio(a, b), 0.345);
}

TEST(test_shares__with_pauses, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *b = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *other = add(1, RBK_PRIORITY_NORMAL, ms, 0);

	timeslice_set(a->lease, 0, 300, now_ns);
	timeslice_set(b->lease, 0, 1, now_ns);
	b->ready_ns = now_ns + 5 * s;
	run_for(5 * s + ms);
	timeslice_set(b->lease, 0, 100, now_ns);
	measure(s);
	expect_between(2.6, ratio(a, b), 3.2);
	measure(5 * s);
	expect_between(2.91, ratio(a, b), 3.09);
	expect_between(0.97, (double)(a->used_ns + b->used_ns) / (double)other->used_ns, 1.03);
}

/* The priority that is set for a lease comes before what its members ask for. */
TEST(test_set_priority__of_a_running_lease, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *b = add(0, URGENT, ms, 20 * ms);

	measure(s);
	assert_true(b->longest_ns < 3 * ms);
	timeslice_set(b->lease, 1 + RBK_PRIORITY_LOW, 0, now_ns);
	measure(3 * s);
	assert_true(b->longest_ns > 900 * ms);
	timeslice_set(b->lease, 1 + RBK_PRIORITY_HIGH, 0, now_ns);
	run_for(s);
	measure(s);
	assert_true(b->longest_ns < 3 * ms);
	/* A member that joins does not change it. */
	assert_int_equal(timeslice_join(&b->member, RBK_PRIORITY_LOW, now_ns), 0);
	measure(s);
	assert_true(b->longest_ns < 3 * ms && a->used_ns > 900 * ms);
}

/* A program that pauses between long submissions keeps its share. */
TEST(test_weights__with_pauses, setup, teardown)
{
	struct program *a, *b;

	tenants[0].weight = 300;
	a = add(0, RBK_PRIORITY_NORMAL, 95 * ms, 9 * ms);
	b = add(1, RBK_PRIORITY_NORMAL, 10 * ms, 0);
	measure(20 * s);
	expect_between(2.7, ratio(a, b), 3.2);
}

TEST(test_pause__saves_up_little, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, 2 * ms, 10 * s);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, 2 * ms, 0);

	run_for(9 * s);
	a->pause_ns = 0;
	run_for(2 * s);
	b->longest_ns = 0;
	measure(s);
	assert_true(b->longest_ns <= TIMESLICE_LAG_NS);
	expect_between(0.95, ratio(a, b), 1.05);
}

TEST(test_urgent__waits_for_one_job, setup, teardown)
{
	struct program *urgent = add(0, URGENT, ms, 9 * ms);
	struct program *background = add(0, RBK_PRIORITY_LOW, 2 * ms, 0);

	run_for(s);
	measure(5 * s);
	assert_true(urgent->longest_ns <= 3 * ms + 200 * us);
	assert_true(urgent->used_ns >= 5 * s / 13);
	expect_between(0.93, (double)(urgent->used_ns + background->used_ns) / (double)(5 * s), 1);
}

/* A tenant cannot have more than its share by being urgent. */
TEST(test_urgent__owes, setup, teardown)
{
	struct program *urgent = add(0, URGENT, 2 * ms, 0);
	struct program *normal = add(1, RBK_PRIORITY_NORMAL, 2 * ms, 0);

	run_for(s);
	measure(5 * s);
	expect_between(0.9, ratio(urgent, normal), 1.1);
}

/* An urgent lease that always has work is no longer urgent when it is ahead, also within a
 * timeslice. */
TEST(test_urgent__owes_within_a_timeslice, setup, teardown)
{
	struct program *urgent, *normal;

	tenants[1].weight = 300;
	urgent = add(0, URGENT, 2 * ms, 0);
	normal = add(1, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	measure(s);
	assert_true(normal->longest_ns <= TIMESLICE_LAG_NS + 20 * ms);
	measure(2 * s);
	assert_true(urgent->longest_ns <= 400 * ms);
	expect_between(2.8, ratio(normal, urgent), 3.2);
}

TEST(test_priority_max__lowers, setup, teardown)
{
	struct program *a, *b;

	tenants[0].priority_max = RBK_PRIORITY_LOW;
	a = add(0, URGENT, 2 * ms, 0);
	b = add(1, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	run_for(s);
	measure(5 * s);
	assert_true(a->used_ns < b->used_ns / 20);
	tenants[0].priority_max = URGENT;
	timeslice_run(&leases.timeslices, now_ns);
	run_for(s);
	measure(5 * s);
	assert_true(a->used_ns > b->used_ns / 2);
}

TEST(test_background__is_not_starved, setup, teardown)
{
	struct program *normal = add(0, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	struct program *background = add(1, RBK_PRIORITY_LOW, 3 * ms, 0);

	run_for(2 * s);
	measure(10 * s);
	assert_true(background->longest_ns <= TIMESLICE_PATIENCE_NS + 20 * ms);
	assert_true(background->used_ns >= 9 * 3 * ms);
	assert_true(normal->used_ns >= 9 * s);
}

TEST(test_deaf__is_overdue, setup, teardown)
{
	struct program *deaf = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *other = add(1, RBK_PRIORITY_NORMAL, ms, 0);

	deaf->is_deaf = true;
	measure(s);
	assert_true(other->longest_ns <= TIMESLICE_NS + TIMESLICE_GRACE_NS + 5 * ms);
	assert_true(other->used_ns > 900 * ms);
	assert_int_equal(deaf->lease->timeslice.n_overdue, 1);
	assert_int_equal(state_of(deaf), RBK_TIMESLICE_CLOSED);

	/* It comes back when it tells DONE, and has to make up for a bounded time. */
	deaf->is_deaf = false;
	run_for(4 * s);
	measure(2 * s);
	expect_between(0.9, ratio(deaf, other), 1.1);
}

/* Weights and priorities go on to hold beside a lease that never ends its timeslice. */
TEST(test_deaf__changes_no_shares, setup, teardown)
{
	struct program *a, *b, *urgent;

	tenants[0].weight = 300;
	add(2, RBK_PRIORITY_NORMAL, ms, 0)->is_deaf = true;
	a = add(0, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	b = add(1, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	urgent = add(2, URGENT, ms, 30 * ms);
	run_for(30 * s);
	measure(10 * s);
	expect_between(2.9, ratio(a, b), 3.1);
	assert_true(urgent->longest_ns <= 4 * ms);
}

/* Long submissions count for the tenant that made them, not for those behind them. */
TEST(test_long__count_to_their_end, setup, teardown)
{
	static const uint64_t jobs_ns[] = {500000000, 5000000000};
	struct program *a = add(0, RBK_PRIORITY_NORMAL, 0, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	struct program *c = add(2, RBK_PRIORITY_NORMAL, 2 * ms, 0);

	for (unsigned int i = 0; i < 2; i++) {
		a->job_ns = jobs_ns[i];
		run_for(30 * s);
		measure(120 * s);
		expect_between(0.85, ratio(a, b), 1.15);
		expect_between(0.85, ratio(b, c), 1.15);
	}
}

/* Only a timeslice whose work has ended shows that nothing of an overdue lease is in front of it.
 */
TEST(test_overdue__others_give_up, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, 300 * ms, 0);
	uint64_t used_ns;

	while (b->lease->timeslice.n_overdue == 0 || state_of(a) == RBK_TIMESLICE_CLOSED)
		run_for(ms);
	used_ns = b->lease->timeslice.used_ns;
	timeslice_give_up(&a->member, a->lease->timeslice.word, now_ns);
	assert_false(b->lease->timeslice.is_overtaken);
	now_ns += 10 * ms;
	timeslice_want(&a->member, now_ns);
	assert_true(b->lease->timeslice.used_ns >= used_ns + 10 * ms);
	assert_int_equal(state_of(a), RBK_TIMESLICE_HELD);
	timeslice_done(&a->member, a->lease->timeslice.word, now_ns);
	assert_true(b->lease->timeslice.is_overtaken);
}

TEST(test_weights__beside_background, setup, teardown)
{
	static const uint32_t weights[][2] = {{300, 100}, {30, 10}, {3, 1}, {9000, 3000}};
	struct program *a = add(0, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, 20 * ms, 0);

	add(2, RBK_PRIORITY_LOW, 3 * ms, 0);
	for (unsigned int i = 0; i < 4; i++) {
		tenants[0].weight = weights[i][0];
		tenants[1].weight = weights[i][1];
		run_for(30 * s);
		measure(30 * s);
		expect_between(2.85, ratio(a, b), 3.15);
	}
}

/* However many background leases a tenant has, they delay others once a second. */
TEST(test_background__many, setup, teardown)
{
	struct program *urgent = add(0, URGENT, ms, 19 * ms);
	struct program *normal = add(1, RBK_PRIORITY_NORMAL, 2 * ms, 0);

	for (unsigned int i = 0; i < TIMESLICE_MAX_LEASES; i++)
		add(2, RBK_PRIORITY_LOW, 49 * ms, 0);
	run_for(5 * s);
	measure(10 * s);
	assert_true(urgent->longest_ns <= 60 * ms);
	assert_true(urgent->used_ns >= 400 * ms && normal->used_ns >= 8 * s);
}

/* A member that has nothing under way may be stopped. */
TEST(test_members__idle_one_is_stopped, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	struct lease_member idle = {.lease = NULL};

	lease_join(a->lease, &idle, 2);
	assert_int_equal(timeslice_join(&idle, RBK_PRIORITY_NORMAL, now_ns), 0);
	measure(5 * s);
	expect_between(0.9, ratio(a, b), 1.1);
	timeslice_leave(&idle, now_ns);
	lease_leave(&idle);
}

/* A program that comes back to a device that another one had for long does not get that time. */
TEST(test_pause__without_events, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, 2 * ms, 1000 * s);

	run_for(s);
	assert_int_equal(state_of(a), RBK_TIMESLICE_HELD);
	/* The timer does not run while none waits. */
	now_ns += 30 * s;
	b->pause_ns = 0;
	b->ready_ns = now_ns;
	timeslice_want(&b->member, now_ns);
	run_for(5 * ms);
	measure(2 * s);
	assert_true(a->longest_ns <= TIMESLICE_LAG_NS + 10 * ms);
	expect_between(0.8, ratio(a, b), 1.2);
}

/* The holder need not make up for time in which the broker did not run. */
TEST(test_broker__was_stopped, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, 2 * ms, 0);

	run_for(s);
	now_ns += 8 * s;
	timeslice_skip(&leases.timeslices, now_ns);
	timeslice_run(&leases.timeslices, now_ns);
	measure(s);
	expect_between(0.9, ratio(a, b), 1.1);
}

/* Figures advance between events, and a wait that ends in vain counts. */
TEST(test_figures__are_up_to_date, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, 50 * ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 1000 * s);
	const struct lease_timeslice *of_a = &a->lease->timeslice, *of_b = &b->lease->timeslice;
	const struct tenant_shared *shared = &leases_of(&tenants[1])->shared;
	uint64_t used_ns, waited_ns;

	b->ready_ns = 1000 * s;
	run_for(20 * ms);
	assert_int_equal(state_of(a), RBK_TIMESLICE_HELD);
	timeslice_count_time(&leases.timeslices, now_ns);
	used_ns = of_a->used_ns;
	timeslice_want(&b->member, now_ns);
	now_ns += 3 * ms;
	timeslice_count_time(&leases.timeslices, now_ns);
	assert_int_equal(of_a->used_ns, used_ns + 3 * ms);
	assert_int_equal(of_b->waited_ns, 3 * ms);
	timeslice_count_time(&leases.timeslices, now_ns);
	assert_int_equal(of_b->waited_ns, 3 * ms);
	assert_int_equal(recent_most(&of_b->longest_wait, now_ns), 0);
	run_for(100 * ms);
	assert_int_equal(of_b->n_wanting, 0);
	waited_ns = of_b->waited_ns;
	expect_between(3e6, (double)waited_ns, 60e6);
	assert_int_equal(recent_most(&of_b->longest_wait, now_ns), waited_ns);
	assert_int_equal(shared->waited_ns, waited_ns);
	assert_int_equal(leases_of(&tenants[0])->shared.used_ns, of_a->used_ns);

	/* It stops waiting. */
	tell_done(b);
	run_for(5 * ms);
	assert_int_equal(state_of(b), RBK_TIMESLICE_CLOSED);
	timeslice_want(&b->member, now_ns);
	now_ns += ms;
	timeslice_leave(&b->member, now_ns);
	assert_int_equal(of_b->waited_ns, waited_ns + ms);
	assert_int_equal(shared->waited_ns, waited_ns + ms);
}

TEST(test_holder__leaves, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *c = add(2, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *holder = a;

	run_for(102 * ms);
	for (struct program *each = a; each <= c; each++)
		if (leases.timeslices.devices[DEVICE].holder == each->lease)
			holder = each;
	timeslice_leave(&holder->member, now_ns);
	assert_non_null(leases.timeslices.devices[DEVICE].holder);
	assert_ptr_not_equal(leases.timeslices.devices[DEVICE].holder, holder->lease);
	assert_int_equal(state_of(holder), RBK_TIMESLICE_OPEN);
	assert_int_equal(timeslice_join(&holder->member, RBK_PRIORITY_NORMAL, now_ns), 0);
	measure(3 * s);
	expect_between(0.9, ratio(a, b), 1.1);
	expect_between(0.9, ratio(a, c), 1.1);
}

/* All members of a lease have to tell DONE, for the present word. */
TEST(test_members__have_to_tell, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	struct lease_member second = {.lease = NULL};
	uint32_t word;

	lease_join(a->lease, &second, 2);
	assert_int_equal(timeslice_join(&second, RBK_PRIORITY_HIGH, now_ns), 0);
	assert_int_equal(state_of(a), RBK_TIMESLICE_HELD);
	/* It has not used the timeslice before it wants. */
	timeslice_want(&second, now_ns);
	word = a->lease->timeslice.word;
	timeslice_want(&b->member, now_ns);
	/* It has a higher priority by its second member: it may go on. */
	assert_int_equal(state_of(a), RBK_TIMESLICE_WANTED);
	now_ns += ms;
	timeslice_done(&a->member, word, now_ns);
	timeslice_done(&second, word, now_ns);
	assert_int_equal(state_of(a), RBK_TIMESLICE_WANTED);
	word = a->lease->timeslice.word;
	timeslice_done(&a->member, word, now_ns);
	timeslice_done(&a->member, word, now_ns);
	assert_int_equal(state_of(b), RBK_TIMESLICE_CLOSED);
	/* A member that told DONE goes on, since the other has not. */
	timeslice_want(&a->member, now_ns);
	timeslice_done(&second, word, now_ns);
	assert_int_equal(state_of(a), RBK_TIMESLICE_WANTED);
	timeslice_done(&a->member, word, now_ns);
	assert_int_equal(state_of(a), RBK_TIMESLICE_CLOSED);
	assert_int_equal(state_of(b), RBK_TIMESLICE_HELD);

	/* The second one does nothing any more, and so need not tell again. */
	timeslice_want(&a->member, now_ns);
	assert_int_equal(state_of(b), RBK_TIMESLICE_CLOSED);
	timeslice_done(&b->member, b->lease->timeslice.word, now_ns);
	assert_int_equal(state_of(a), RBK_TIMESLICE_HELD);
	timeslice_done(&a->member, a->lease->timeslice.word, now_ns);
	assert_int_equal(state_of(a), RBK_TIMESLICE_CLOSED);
	timeslice_want(&b->member, now_ns);
	assert_int_equal(state_of(b), RBK_TIMESLICE_HELD);

	/* A member that leaves need not tell. */
	timeslice_want(&a->member, now_ns);
	now_ns += TIMESLICE_NS;
	timeslice_run(&leases.timeslices, now_ns);
	assert_int_equal(state_of(b), RBK_TIMESLICE_CLOSED);
	timeslice_done(&b->member, b->lease->timeslice.word, now_ns);
	assert_int_equal(state_of(a), RBK_TIMESLICE_HELD);
	timeslice_leave(&second, now_ns);
	lease_leave(&second);
	assert_int_equal(state_of(a), RBK_TIMESLICE_HELD);
	assert_int_equal(a->lease->timeslice.class, 2);
}

/* A timeslice is recorded when it has ended, with its wait and the lease that it ended for. */
TEST(test_record__of_a_timeslice, setup, teardown)
{
	struct program *a = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *c = add(0, URGENT, ms, 0);
	const uint64_t began_ns = now_ns;

	timeslice_want(&a->member, now_ns);
	now_ns += ms;
	timeslice_want(&b->member, now_ns);
	now_ns = began_ns + 5 * ms;
	timeslice_run(&leases.timeslices, now_ns);
	assert_int_equal(state_of(a), RBK_TIMESLICE_CLOSED);
	assert_int_equal(n_records, 0);
	/* A wait that begins before the end belongs to the next timeslice. */
	timeslice_want(&a->member, now_ns);
	now_ns += ms;
	tell_done(a);
	assert_int_equal(n_records, 1);
	assert_fields(*last_of(a), (wanted_ns, 0), (began_ns, began_ns),
		      (closed_ns, began_ns + 5 * ms), (ended_ns, began_ns + 6 * ms),
		      (for_lease, b->lease->number), (for_tenant, 2), (class, 2), (is_late, 0),
		      (is_overdue, 0), (is_for_plans, 0), (is_left, 0), (is_alone, 0));
	assert_int_equal(state_of(b), RBK_TIMESLICE_WANTED);

	/* The urgent one ends it at once. */
	now_ns += ms;
	timeslice_want(&c->member, now_ns);
	tell_done(b);
	assert_fields(*last_of(b), (wanted_ns, began_ns + ms), (began_ns, began_ns + 6 * ms),
		      (closed_ns, began_ns + 7 * ms), (ended_ns, began_ns + 7 * ms),
		      (for_lease, c->lease->number), (for_tenant, 1));

	/* It has no more to do, and ends its timeslice itself. */
	now_ns += ms;
	tell_done(c);
	assert_fields(*last_of(c), (wanted_ns, began_ns + 7 * ms), (closed_ns, 0), (for_lease, 0),
		      (class, 0));
	assert_int_equal(state_of(a), RBK_TIMESLICE_HELD);
	timeslice_leave(&b->member, now_ns);
	assert_int_equal(n_records, 3);

	/* Others leave, and it goes on unrestrained. */
	now_ns += ms;
	timeslice_leave(&c->member, now_ns);
	assert_int_equal(state_of(a), RBK_TIMESLICE_OPEN);
	assert_int_equal(n_records, 4);
	assert_fields(*last_of(a), (wanted_ns, began_ns + 5 * ms), (began_ns, began_ns + 8 * ms),
		      (ended_ns, began_ns + 9 * ms), (closed_ns, 0), (is_alone, 1), (is_left, 0));
	timeslice_leave(&a->member, now_ns);
	assert_int_equal(n_records, 4);
}

TEST(test_record__of_a_lease_that_left, setup, teardown)
{
	struct program *a = add(0, URGENT, ms, 0);
	struct program *b = add(1, RBK_PRIORITY_NORMAL, ms, 0);

	now_ns += ms;
	timeslice_want(&b->member, now_ns);
	timeslice_leave(&a->member, now_ns);
	assert_int_equal(n_records, 1);
	assert_fields(*last_of(a), (is_left, 1), (is_alone, 0), (closed_ns, 0), (class, 0),
		      (ended_ns, now_ns));
}

/* The record of an overdue timeslice has its whole tail. */
TEST(test_record__of_an_overdue_one, setup, teardown)
{
	struct program *deaf = add(0, RBK_PRIORITY_NORMAL, ms, 0);
	struct program *other = add(1, RBK_PRIORITY_NORMAL, ms, 0);
	const struct timeslice_record *record;

	deaf->is_deaf = true;
	run_for(s);
	for (unsigned int i = 0; i < n_records && i < MAX_RECORDS; i++)
		assert_int_equal(records[i].lease, other->lease->number);
	deaf->is_deaf = false;
	tell_done(deaf);
	record = last_of(deaf);
	assert_fields(*record, (is_overdue, 1), (ended_ns, now_ns), (for_tenant, 2));
	assert_true(record->closed_ns <= s + 20 * ms && record->ended_ns == 2 * s);
}

TEST(test_record__of_one_that_was_late, setup, teardown)
{
	struct program *background;
	bool was_late = false;

	add(0, RBK_PRIORITY_NORMAL, 2 * ms, 0);
	background = add(1, RBK_PRIORITY_LOW, 3 * ms, 0);
	run_for(3 * s);
	for (unsigned int i = 0; i < MAX_RECORDS; i++)
		if (records[i].lease == background->lease->number) {
			assert_true(records[i].record.is_late);
			assert_int_equal(records[i].record.class, 3);
			was_late = true;
		}
	assert_true(was_late);
}

/* The members of a lease that share are bounded, and others are not visited. */
TEST(test_members__are_bounded, setup, teardown)
{
	static struct lease_member members[TIMESLICE_MAX_MEMBERS + 1];
	struct program *program = add(0, RBK_PRIORITY_COUNT, ms, 0);

	for (unsigned int i = 0; i <= TIMESLICE_MAX_MEMBERS; i++) {
		members[i] = (struct lease_member){.lease = NULL};
		lease_join(program->lease, &members[i], (pid_t)i + 2);
		assert_int_equal(timeslice_join(&members[i], RBK_PRIORITY_NORMAL, now_ns),
				 i < TIMESLICE_MAX_MEMBERS ? 0 : TIMESLICE_E_FULL);
	}
	timeslice_leave(&members[5], now_ns);
	assert_int_equal(
		timeslice_join(&members[TIMESLICE_MAX_MEMBERS], RBK_PRIORITY_NORMAL, now_ns), 0);
	for (unsigned int i = 0; i <= TIMESLICE_MAX_MEMBERS; i++) {
		timeslice_leave(&members[i], now_ns);
		lease_leave(&members[i]);
	}
	assert_int_equal(program->lease->timeslice.n_members, 0);
}

TEST(test_tenant__shares_with_few_leases, setup, teardown)
{
	struct program *one_more;

	for (unsigned int i = 0; i < TIMESLICE_MAX_LEASES; i++)
		add(0, RBK_PRIORITY_NORMAL, ms, 0);
	one_more = add(0, RBK_PRIORITY_COUNT, ms, 0);
	assert_int_equal(timeslice_join(&one_more->member, RBK_PRIORITY_NORMAL, now_ns),
			 TIMESLICE_E_FULL);
	timeslice_leave(&programs[3].member, now_ns);
	assert_int_equal(timeslice_join(&one_more->member, RBK_PRIORITY_NORMAL, now_ns), 0);
	add(1, RBK_PRIORITY_NORMAL, ms, 0);
	timeslice_leave(&programs[4].member, now_ns);
}

TEST_MAIN(NULL, NULL)
