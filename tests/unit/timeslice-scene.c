/* SPDX-License-Identifier: MIT */
/* Shared devices in virtual time: see timeslice-scene.h. */
#include "unit/timeslice-scene.h"

#include <stdlib.h>

#include "util/number.h"
#include "util/priority.h"

struct account_book *book;
struct tenant tenants[N_TENANTS];
struct leases leases;
uint64_t now_ns, device_free_ns;
struct program programs[MAX_PROGRAMS];
unsigned int n_programs;
struct client clients[N_TENANTS];
struct timeslice_plans plans[N_TENANTS];
bool do_waits_count;
struct scene_record records[MAX_RECORDS];
unsigned int n_records;

/* Time used by tasks, as the dispatcher knows it; end of the last task. */
static uint64_t charged_ns[N_TENANTS], plans_end_ns;

static void on_ended(void *context, const struct lease *lease,
		     const struct timeslice_record *record)
{
	assert_ptr_equal(context, records);
	/* Each timeslice ends once, after what came before its end. */
	assert_true(record->wanted_ns <= record->began_ns && record->began_ns <= record->ended_ns);
	assert_true(record->ended_ns == now_ns);
	if (record->closed_ns)
		assert_in_range(record->closed_ns, record->began_ns, record->ended_ns);
	assert_int_equal(record->closed_ns > 0, record->for_lease > 0 || record->is_for_plans);
	assert_false(record->for_lease > 0 && record->is_for_plans);
	assert_int_not_equal(record->for_lease, lease->number);
	if (record->wanted_ns)
		assert_true(record->plans_ns <= record->began_ns - record->wanted_ns);
	else
		assert_int_equal(record->plans_ns, 0);
	if (record->is_overdue)
		assert_true(record->ended_ns >= record->closed_ns + TIMESLICE_GRACE_NS);
	if (!record->is_overdue)
		assert_true(leases.timeslices.devices[lease->device].holder == lease);
	records[n_records % MAX_RECORDS].record = *record;
	records[n_records++ % MAX_RECORDS].lease = lease->number;
}

const struct timeslice_record *last_of(const struct program *program)
{
	const unsigned int last = (n_records - 1) % MAX_RECORDS;

	assert_true(n_records > 0);
	assert_int_equal(records[last].lease, program->lease->number);
	return &records[last].record;
}

static uint64_t plans_used(void *context, const struct tenant *tenant, uint8_t device,
			   float *ret_factor)
{
	uint64_t all_ns = 0;

	assert_int_equal(device, DEVICE);
	*ret_factor = 1;
	for (unsigned int i = 0; i < N_TENANTS; i++)
		all_ns += charged_ns[i];
	return tenant ? charged_ns[tenant - tenants] : all_ns;
}

int setup(void **state)
{
	const struct account_limits none = {{0}};

	assert_int_equal(account_book_new(&book), 0);
	for (unsigned int i = 0; i < N_TENANTS; i++) {
		tenants[i] = (struct tenant){
			.number = i + 1, .n_refs = 1, .weight = 100, .priority_max = URGENT};
		assert_int_equal(account_new(book, "t", &none, &tenants[i].account), 0);
		assert_int_equal(leases_know(&tenants[i]), 0);
		clients[i] = (struct client){.depth = 0};
		plans[i] = (struct timeslice_plans){.tenant = &tenants[i],
						    .n_open = TIMESLICE_CLASSES};
		charged_ns[i] = 0;
	}
	assert_int_equal(leases_init(&leases), 0);
	leases.timeslices.ended = on_ended;
	leases.timeslices.context = records;
	leases.timeslices.plans_used = plans_used;
	now_ns = device_free_ns = s;
	n_programs = n_records = 0;
	plans_end_ns = 0;
	do_waits_count = true;
	return 0;
}

int teardown(void **state)
{
	for (unsigned int i = 0; i < n_programs; i++) {
		timeslice_leave(&programs[i].member, now_ns);
		lease_leave(&programs[i].member);
		lease_free(programs[i].lease);
	}
	assert_int_equal(leases.timeslices.devices[DEVICE].n_leases, 0);
	assert_true(timeslice_next_ns(&leases.timeslices, now_ns) == UINT64_MAX);
	leases_deinit(&leases);
	for (unsigned int i = 0; i < N_TENANTS; i++) {
		assert_int_equal(leases_of(&tenants[i])->n_sharing[DEVICE], 0);
		account_unref(tenants[i].account);
		free(tenants[i].leases);
	}
	account_book_free(book);
	return 0;
}

struct program *add(unsigned int tenant, uint32_t priority, uint64_t job_ns, uint64_t pause_ns)
{
	const struct lease_about about = {.tenant = &tenants[tenant],
					  .device = DEVICE,
					  .min_bytes = 1,
					  .wish_bytes = 1,
					  .max_bytes = 1,
					  .name = "test"};
	struct program *program = &programs[n_programs++];

	*program = (struct program){.job_ns = job_ns, .pause_ns = pause_ns, .ready_ns = now_ns};
	assert_int_equal(lease_new(&leases, &about, &program->lease), 0);
	lease_join(program->lease, &program->member, 1);
	if (priority < RBK_PRIORITY_COUNT)
		assert_int_equal(timeslice_join(&program->member, priority, now_ns), 0);
	return program;
}

struct client *add_client(unsigned int tenant, uint32_t priority, unsigned int depth,
			  uint64_t task_ns, uint64_t pause_ns)
{
	struct client *client = &clients[tenant];

	*client = (struct client){.task_ns = task_ns,
				  .pause_ns = pause_ns,
				  .depth = depth,
				  .class = priority_class(priority)};
	for (unsigned int i = 0; i < depth; i++)
		client->tasks[i].ready_ns = now_ns;
	return client;
}

enum rbk_timeslice state_of(const struct program *program)
{
	return RBK_TIMESLICE_STATE(program->lease->timeslice.word);
}

void tell_done(struct program *program)
{
	uint32_t word = program->lease->timeslice.word;

	if (program->is_deaf || program->done_word == word)
		return;
	program->done_word = word;
	timeslice_done(&program->member, word, now_ns);
}

/* Do what the layer does. */
static void program_step(struct program *program)
{
	bool is_ready;

	if (program->end_ns && now_ns >= program->end_ns) {
		program->used_ns += program->job_ns;
		if (now_ns - program->ready_ns > program->longest_ns)
			program->longest_ns = now_ns - program->ready_ns;
		program->end_ns = 0;
		program->ready_ns = now_ns + program->pause_ns;
	}
	if (program->end_ns)
		return;
	is_ready = now_ns >= program->ready_ns;
	if (state_of(program) == RBK_TIMESLICE_CLOSED ||
	    (state_of(program) == RBK_TIMESLICE_WANTED && !is_ready))
		tell_done(program);
	if (is_ready && state_of(program) == RBK_TIMESLICE_CLOSED)
		timeslice_want(&program->member, now_ns);
	if (is_ready && state_of(program) != RBK_TIMESLICE_CLOSED) {
		device_free_ns = device_free_ns > now_ns ? device_free_ns : now_ns;
		program->end_ns = device_free_ns += program->job_ns;
	}
}

void share_plans(unsigned int tenant, uint8_t waiting, uint8_t under_way)
{
	plans[tenant].waiting = waiting;
	plans[tenant].under_way = under_way;
	plans[tenant].next_changed = NULL;
	timeslice_share_plans(&leases.timeslices, DEVICE, &plans[tenant], now_ns);
}

/* Take back the tasks that have ended: their times include waits for leases' work. */
static void client_reap(unsigned int tenant)
{
	struct client *client = &clients[tenant];

	for (unsigned int i = 0; i < client->depth; i++) {
		const uint64_t end_ns = client->tasks[i].end_ns;

		if (!end_ns || now_ns < end_ns)
			continue;
		if (do_waits_count)
			charged_ns[tenant] += end_ns -
					      max_u64(client->tasks[i].begin_ns, plans_end_ns) -
					      client->task_ns;
		plans_end_ns = end_ns;
		client->used_ns += client->task_ns;
		client->longest_ns =
			max_u64(client->longest_ns, now_ns - client->tasks[i].ready_ns);
		client->n_done++;
		client->n_under_way--;
		client->tasks[i].end_ns = 0;
		client->tasks[i].ready_ns = now_ns + client->pause_ns;
	}
}

/* Submit the tasks that may start. Return: true if some wait. */
static bool client_submit(unsigned int tenant)
{
	struct client *client = &clients[tenant];
	bool is_any_left = false;

	for (unsigned int i = 0; i < client->depth; i++) {
		if (client->tasks[i].end_ns || now_ns < client->tasks[i].ready_ns)
			continue;
		if (plans[tenant].n_open <= client->class ||
		    (client->n_under_way > 0 &&
		     client->n_under_way * client->task_ns >= 500 * us)) {
			is_any_left = true;
			continue;
		}
		device_free_ns = max_u64(device_free_ns, now_ns);
		client->tasks[i].begin_ns = now_ns;
		client->tasks[i].end_ns = device_free_ns += client->task_ns;
		client->n_under_way++;
		charged_ns[tenant] += client->task_ns;
	}
	return is_any_left;
}

/* Do what the dispatcher does in a turn. */
static void client_step(unsigned int tenant)
{
	const uint8_t bit = (uint8_t)(1u << clients[tenant].class);
	uint8_t waiting, under_way;

	client_reap(tenant);
	for (unsigned int i = 0; i < 4; i++) {
		waiting = client_submit(tenant) ? bit : 0;
		under_way = clients[tenant].n_under_way > 0 ? bit : 0;
		if (waiting == plans[tenant].waiting && under_way == plans[tenant].under_way)
			break;
		share_plans(tenant, waiting, under_way);
	}
}

void run_for(uint64_t ns)
{
	const uint64_t end_ns = now_ns + ns;

	while (now_ns < end_ns) {
		uint64_t next_ns = timeslice_next_ns(&leases.timeslices, now_ns);

		/* Something is due only after what was due has been done. */
		assert_true(next_ns > now_ns);
		next_ns = next_ns < now_ns + 50 * us ? next_ns : now_ns + 50 * us;
		now_ns = next_ns < end_ns ? next_ns : end_ns;
		timeslice_run(&leases.timeslices, now_ns);
		for (unsigned int i = 0; i < n_programs; i++)
			program_step(&programs[i]);
		for (unsigned int i = 0; i < N_TENANTS; i++)
			if (clients[i].depth > 0)
				client_step(i);
		timeslice_run(&leases.timeslices, now_ns);
	}
}

void measure(uint64_t ns)
{
	for (unsigned int i = 0; i < n_programs; i++)
		programs[i].used_ns = programs[i].longest_ns = 0;
	for (unsigned int i = 0; i < N_TENANTS; i++)
		clients[i].used_ns = clients[i].longest_ns = clients[i].n_done = 0;
	run_for(ns);
}

double ratio(const struct program *a, const struct program *b)
{
	return (double)a->used_ns / (double)b->used_ns;
}

void expect_between(double least, double value, double most)
{
	if (value < least || value > most)
		fail_msg("%.3f is not between %.3f and %.3f", value, least, most);
}
