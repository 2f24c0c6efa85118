/* SPDX-License-Identifier: MIT */
/* Resets in virtual time: broker/lease/resets.h. */
#include <stdlib.h>
#include <string.h>

#include "lease/lease.h"
#include "support/test.h"
#include "tenant/tenant.h"

enum { DEVICE = 1, N_TENANTS = 3, MAX_PROGRAMS = 40, MAX_TOLD = 64 };

static const uint64_t ms = 1000000, s = 1000000000;

static struct account_book *book;
static struct tenant tenants[N_TENANTS];
static struct leases leases;
static uint64_t now_ns;

static struct program {
	struct lease *lease;
	struct lease_member member;
} programs[MAX_PROGRAMS];
static unsigned int n_programs;

/* Calls of judged(). */
static struct told {
	uint32_t lease, culprit; /* culprit: number of its lease; UINT32_MAX: none */
	bool is_own, is_certain;
} told[MAX_TOLD];
static unsigned int n_told;

static void on_judged(void *context, uint8_t device, const struct resets_party *party,
		      const struct resets_answer *answer)
{
	assert_int_equal(device, DEVICE);
	assert_true(answer->is_final && n_told < MAX_TOLD);
	told[n_told++] = (struct told){
		.lease = party->lease,
		.culprit = answer->culprit ? answer->culprit->lease : UINT32_MAX,
		.is_own = answer->is_own,
		.is_certain = answer->is_certain,
	};
}

static int setup(void **state)
{
	const struct account_limits none = {{0}};

	assert_int_equal(account_book_new(&book), 0);
	for (unsigned int i = 0; i < N_TENANTS; i++) {
		tenants[i] = (struct tenant){.number = i + 1,
					     .n_refs = 1,
					     .weight = 100,
					     .priority_max = RBK_PRIORITY_URGENT};
		assert_int_equal(account_new(book, "t", &none, &tenants[i].account), 0);
	}
	assert_int_equal(leases_init(&leases), 0);
	leases.resets.judged = on_judged;
	now_ns = 100 * s;
	n_programs = n_told = 0;
	resets_seen(&leases.resets, DEVICE, 3, now_ns);
	return 0;
}

static int teardown(void **state)
{
	for (unsigned int i = 0; i < n_programs; i++) {
		timeslice_leave(&programs[i].member, now_ns);
		lease_leave(&programs[i].member);
		lease_free(programs[i].lease);
	}
	leases_deinit(&leases);
	for (unsigned int i = 0; i < N_TENANTS; i++) {
		account_unref(tenants[i].account);
		free(tenants[i].leases);
	}
	account_book_free(book);
	return 0;
}

static struct program *add(unsigned int tenant)
{
	const struct lease_about about = {.tenant = &tenants[tenant],
					  .device = DEVICE,
					  .min_bytes = 1,
					  .wish_bytes = 1,
					  .max_bytes = 1,
					  .name = "test"};
	struct program *program = &programs[n_programs++];

	assert_int_equal(lease_new(&leases, &about, &program->lease), 0);
	lease_join(program->lease, &program->member, (pid_t)(1000 + n_programs));
	return program;
}

static struct resets_answer report(struct program *program, enum reset_verdict verdict)
{
	return resets_report(&program->member, verdict, now_ns);
}

static void see(uint64_t n)
{
	resets_seen(&leases.resets, DEVICE, n, now_ns);
}

/* Let time pass. */
static void pass(uint64_t ns)
{
	const uint64_t end_ns = now_ns + ns;
	uint64_t next_ns;

	while ((next_ns = resets_next_ns(&leases.resets)) <= end_ns) {
		now_ns = next_ns > now_ns ? next_ns : now_ns;
		resets_run(&leases.resets, now_ns);
		assert_true(resets_next_ns(&leases.resets) > now_ns);
	}
	now_ns = end_ns;
}

/* A timeslice of the program ends now, after @took_ns. */
static void slice(const struct program *program, uint64_t took_ns)
{
	const struct timeslice_record record = {.began_ns = now_ns - took_ns, .ended_ns = now_ns};

	resets_note_slice(&leases.resets, program->lease, &record);
}

static void expect_told(unsigned int i, const struct program *program,
			const struct program *culprit, bool is_certain)
{
	assert_true(i < n_told);
	assert_int_equal(told[i].lease, program->lease->number);
	assert_int_equal(told[i].culprit, culprit ? culprit->lease->number : UINT32_MAX);
	assert_int_equal(told[i].is_own, program == culprit);
	assert_int_equal(told[i].is_certain, is_certain);
}

/* The guilty one is named to those that report before and after it. */
TEST(test_statement, setup, teardown)
{
	struct program *first = add(0), *guilty = add(1), *late = add(2);
	struct resets_answer answer = report(first, RESET_VERDICT_INNOCENT);

	assert_false(answer.is_final || answer.culprit);
	now_ns += 100 * ms;
	answer = report(guilty, RESET_VERDICT_GUILTY);
	assert_true(answer.is_final && answer.is_own && answer.is_certain);
	expect_told(0, first, guilty, true);
	expect_told(1, guilty, guilty, true);
	answer = report(first, RESET_VERDICT_INNOCENT);
	assert_true(answer.is_final && !answer.is_own &&
		    answer.culprit->lease == guilty->lease->number);
	see(4);
	pass(5 * s);
	assert_true(resets_next_ns(&leases.resets) == UINT64_MAX);
	answer = report(late, RESET_VERDICT_INNOCENT);
	assert_true(answer.is_final && answer.is_seen);
	expect_told(2, late, guilty, true);
	/* A program may notice it minutes later, or never. */
	pass(300 * s);
	report(late, RESET_VERDICT_INNOCENT);
	assert_int_equal(n_told, 3);
}

/* Without a statement, the one that had the device for longest is named, if there was a reset. */
TEST(test_slices, setup, teardown)
{
	struct program *slow = add(0), *behind = add(1), *brief = add(2);

	/* It waited behind the slow one. */
	slice(behind, 1900 * ms);
	slice(slow, 2000 * ms);
	slice(brief, 400 * ms);
	report(behind, RESET_VERDICT_INNOCENT);
	report(brief, RESET_VERDICT_UNKNOWN);
	pass(s);
	assert_int_equal(n_told, 0);
	see(4);
	pass(s);
	assert_int_equal(n_told, 3);
	expect_told(0, slow, slow, false);
	expect_told(1, behind, slow, false);
	expect_told(2, brief, slow, false);
	assert_true(leases.resets.devices[DEVICE].culprit_ns == 2000 * ms);
}

/* A reset that only a program tells of accuses no lease, nor do slices that ended long before. */
TEST(test_unseen, setup, teardown)
{
	struct program *slow = add(0), *liar = add(1);

	slice(slow, 3 * s);
	report(liar, RESET_VERDICT_INNOCENT);
	pass(2 * s);
	expect_told(0, liar, NULL, false);
	pass(60 * s);
	slice(slow, 3 * s);
	pass(2 * s);
	see(4);
	report(liar, RESET_VERDICT_INNOCENT);
	pass(2 * s);
	expect_told(1, liar, NULL, false);
	assert_int_equal(n_told, 2);
}

/* A lease that has not ended its timeslice, and a reset of which no program tells. */
TEST(test_hung, setup, teardown)
{
	struct program *hung = add(0), *other = add(1);

	assert_int_equal(timeslice_join(&hung->member, RBK_PRIORITY_NORMAL, now_ns), 0);
	assert_int_equal(timeslice_join(&other->member, RBK_PRIORITY_NORMAL, now_ns), 0);
	timeslice_want(&hung->member, now_ns);
	timeslice_want(&other->member, now_ns);
	now_ns += 3 * s;
	see(4);
	pass(2 * s);
	assert_int_equal(n_told, 1);
	expect_told(0, hung, hung, false);
}

/* The broker's own work, as the culprit and as what is lost. */
TEST(test_plans, setup, teardown)
{
	struct program *program = add(0);

	resets_own_lost(&leases.resets, DEVICE, RESET_VERDICT_UNKNOWN, now_ns);
	assert_true(resets_next_ns(&leases.resets) == UINT64_MAX);
	report(program, RESET_VERDICT_INNOCENT);
	resets_own_lost(&leases.resets, DEVICE, RESET_VERDICT_GUILTY, now_ns);
	assert_int_equal(n_told, 2);
	assert_int_equal(told[0].culprit, 0);
	assert_false(told[0].is_own);
	assert_true(told[1].is_own && told[1].lease == 0);
	see(4);
	pass(20 * s);
	see(5);
	report(program, RESET_VERDICT_GUILTY);
	resets_own_lost(&leases.resets, DEVICE, RESET_VERDICT_INNOCENT, now_ns);
	assert_int_equal(n_told, 4);
	assert_int_equal(told[3].lease, 0);
	assert_int_equal(told[3].culprit, program->lease->number);
}

/* Reports without end, and of many programs: little is noted, and others are noted, too. */
TEST(test_many, setup, teardown)
{
	struct program *many[30], *other = add(1);

	for (unsigned int i = 0; i < 30; i++)
		many[i] = add(0);
	for (unsigned int i = 0; i < 30000; i++)
		report(many[i % 30], i % 4 == 0 ? RESET_VERDICT_GUILTY : RESET_VERDICT_INNOCENT);
	assert_int_equal(n_told, RESETS_MAX_OF_TENANT);
	report(other, RESET_VERDICT_INNOCENT);
	assert_int_equal(n_told, RESETS_MAX_OF_TENANT + 1);
	assert_int_equal(leases.resets.devices[DEVICE].n_parties, RESETS_MAX_OF_TENANT + 1);
	/* A program that changes its mind is as guilty as before, and not heard again. */
	assert_true(report(many[0], RESET_VERDICT_INNOCENT).is_own);
	pass(RESETS_JOIN_NS - 2 * s);
	assert_int_equal(n_told, RESETS_MAX_OF_TENANT + 1);
}

TEST_MAIN(NULL, NULL)
