/* SPDX-License-Identifier: MIT */
/* Entries of clients: see client.h */
#include "simulator/client-private.h"

#include <errno.h>
#include <string.h>

#include "simulator/compute.h"
#include "simulator/machine.h"

static bool slot_is_free(const struct client *client, unsigned int slot)
{
	return client->tasks[slot].kind == TASK_FREE && client->n_uses[slot] == 0;
}

static bool has_room(struct client *client, unsigned int n)
{
	unsigned int n_free = 0;

	for (unsigned int i = 0; i < SLOTS; i++)
		n_free += slot_is_free(client, i);
	return n_free >= n && client->n_in_flight + n <= client->options->mix.n_slots &&
	       rbk_sq_space_left(client->ring) >= n;
}

/* Take a slot; there is one. */
static struct task *task_new(struct client *client, enum task_kind kind)
{
	unsigned int slot = 0;

	while (!slot_is_free(client, slot))
		slot++;
	client->tasks[slot] = (struct task){
		.kind = kind,
		.id = client->next_id++,
		.in = client->slots_x[slot],
		.out = client->slots_y[slot],
		.in_slot = slot,
		.out_slot = slot,
	};
	return &client->tasks[slot];
}

/* Count the uses of other tasks' slots, or no longer. */
void client_count_uses(struct client *client, const struct task *task, int n)
{
	const unsigned int slot = (unsigned int)(task - client->tasks);

	if (task->in_slot != slot)
		client->n_uses[task->in_slot] += (unsigned int)n;
	if (task->out_slot != slot)
		client->n_uses[task->out_slot] += (unsigned int)n;
}

/* Compute the rows of @y from those of one or two operands, @b is NULL then, as a node does. */
static void expect_node(const struct client *client, const struct task *task, const uint32_t *a,
			const uint32_t *b, enum plan_kind salt, uint32_t *y)
{
	struct sim_operand operands[3];
	unsigned int n = 0;

	operands[n++] = (struct sim_operand){
		.words = (uint32_t *)a, .n_words = task->n_rows * WIDTH, .row_words = WIDTH};
	operands[n] = operands[0];
	operands[n].words = (uint32_t *)b;
	n += b != NULL;
	operands[n] = operands[0];
	operands[n].words = y;
	operands[n++].is_written = true;
	sim_compute(operands, n, client->salts[salt], false);
}

/* Compute the next value of a task's state. */
static void expect_state(struct client *client, struct task *task, const uint32_t *x)
{
	struct state *state = &client->states[task->state];
	struct sim_operand operands[2] = {
		{.words = (uint32_t *)x, .n_words = task->n_rows * WIDTH},
		{.words = state->expected, .n_words = WIDTH, .is_written = true, .is_state = true},
	};

	state->is_busy = true;
	memcpy(task->old_state, state->expected, sizeof(task->old_state));
	for (unsigned int i = 0; i < 2; i++) {
		sim_compute(operands, 2, client->salts[PLAN_STATE], false);
		operands[1].words += WIDTH;
	}
}

/* Compute what a RUN must give, from @x, the words of its input. */
static void expect(struct client *client, struct task *task, const uint32_t *x)
{
	uint32_t between[2][MAX_ROWS * WIDTH];

	switch (task->plan) {
	case PLAN_STATE:
		expect_state(client, task, x);
		break;
	case PLAN_BOTH:
		expect_node(client, task, x, NULL, PLAN_PRODUCT, between[0]);
		expect_node(client, task, between[0], NULL, PLAN_SECOND, task->expected);
		break;
	case PLAN_BRANCHES:
		expect_node(client, task, x, NULL, PLAN_PRODUCT, between[0]);
		expect_node(client, task, x, NULL, PLAN_SECOND, between[1]);
		expect_node(client, task, between[0], between[1], PLAN_BRANCHES, task->expected);
		break;
	default:
		expect_node(client, task, x, NULL, task->plan, task->expected);
	}
}

static void publish(struct client *client, struct task *task, struct rbk_sqe *sqe)
{
	rbk_sqe_set_data64(sqe, task->id);
	task->index = rbk_sqe_index(client->ring, sqe);
	client->last_sqe = sqe;
	sim_trace("entry %llu: opcode %u, flags %#x, strategy %u, priority %u, plan %u",
		  (unsigned long long)task->id, sqe->opcode, sqe->flags, sqe->strategy,
		  sqe->priority, sqe->plan_id);
	client->n_in_flight++;
	client_figures.n_entries++;
}

static void choose_device(const struct client *client, struct rbk_sqe *sqe, struct task *task)
{
	static const uint8_t strategies[3][4] = {
		{RBK_STRATEGY_AUTO, RBK_STRATEGY_AUTO, RBK_STRATEGY_PARTITION,
		 RBK_STRATEGY_LATENCY},
		{RBK_STRATEGY_PREFER_GPU, RBK_STRATEGY_PREFER_GPU, RBK_STRATEGY_PREFER_GPU,
		 RBK_STRATEGY_AUTO},
		{RBK_STRATEGY_PREFER_CPU, RBK_STRATEGY_ONLY_CPU, RBK_STRATEGY_PREFER_CPU,
		 RBK_STRATEGY_ONLY_CPU},
	};
	const unsigned int device = sim_pick(client->options->mix.devices, 3);

	rbk_sqe_set_strategy(sqe, strategies[device][sim_below(4)]);
	if (sim_below(8) == 0)
		rbk_sqe_set_priority(sqe, (unsigned int)sim_below(RBK_PRIORITY_COUNT));
	if (sim_below(16) == 0)
		rbk_sqe_set_deadline_us(sqe, 1 + (uint32_t)sim_below(1000000));
	task->waits = sim_below(16) == 0;
	if (task->waits)
		rbk_sqe_set_wait_memory(sqe);
	if (sim_below(2))
		rbk_sqe_set_flags(sqe, RBK_SQE_PARTITION);
}

/* Describe a RUN with its references, in the entry or in a table. */
static void prep_run(struct client *client, struct rbk_sqe *sqe, uint32_t plan_id,
		     const struct task *task, const uint32_t *out)
{
	uint64_t *table = client->tables[task - client->tasks];
	const uint32_t n = task->plan == PLAN_STATE ? 3 : 2;
	uint64_t refs[3] = {rbk_ref(client->arena, task->in), rbk_ref(client->arena, out)};

	if (n == 3)
		refs[2] = rbk_ref(client->arena, out + WIDTH);
	if (sim_pick(client->options->mix.tables, 2) == 0) {
		rbk_prep_run(sqe, plan_id, task->n_rows, refs, n);
		return;
	}
	memcpy(table, refs, sizeof(refs));
	rbk_prep_run_table(sqe, plan_id, task->n_rows, rbk_ref(client->arena, table), n);
}

/*
 * Have @task read the result of @before, and write to a slot of its own, or over the input of
 * @before.
 */
static void follow(struct client *client, struct task *task, const struct task *before,
		   bool overwrites)
{
	task->n_rows = before->n_rows;
	task->in = before->out;
	task->in_slot = before->out_slot;
	if (overwrites) {
		task->out = before->in;
		task->out_slot = before->in_slot;
	}
	for (unsigned int i = 0; overwrites && i < SLOTS; i++)
		if (&client->tasks[i] != task && client->tasks[i].out == task->out)
			client->tasks[i].is_overwritten = true;
	client_count_uses(client, task, 1);
}

/* Have @task, which has a slot, follow @before in its chain without reading its result. */
static void succeed(struct task *task, const struct task *before)
{
	if (before)
		task->predecessor = before->id;
}

/* Return any state that no task uses; STATES: there is none. */
static unsigned int free_state(const struct client *client)
{
	const unsigned int first = (unsigned int)sim_below(STATES);

	for (unsigned int i = 0; i < STATES; i++)
		if (!client->states[(first + i) % STATES].is_busy)
			return (first + i) % STATES;
	return STATES;
}

static bool state_is_free(const struct client *client)
{
	return free_state(client) < STATES;
}

/*
 * Put a RUN into the ring, which has room. @before: its predecessor, of which it reads the result
 * if there is one in the arena; NULL: none. @links: the next entry belongs to its chain.
 * @may_overwrite: it may write over what @before has read.
 */
static struct task *put_run(struct client *client, enum plan_kind plan, struct task *before,
			    bool links, bool may_overwrite)
{
	struct rbk_sqe *sqe = rbk_get_sqe(client->ring);
	struct task *task = task_new(client, TASK_RUN);
	const bool reads = before && before->kind == TASK_RUN && before->plan != PLAN_STATE &&
			   plan != PLAN_STATE;
	const bool overwrites = reads && may_overwrite && sim_below(2);

	sim_check(sqe);
	task->plan = plan;
	task->n_rows =
		plan == PLAN_STATE ? 1 : 1 + (uint32_t)sim_below(sim_below(3) ? 2 : MAX_ROWS);
	succeed(task, before);
	if (reads)
		follow(client, task, before, overwrites);
	for (uint32_t i = 0; !reads && i < task->n_rows * WIDTH; i++)
		task->in[i] = (uint32_t)sim_random();
	if (!overwrites)
		memset(task->out, 0xee, SLOT_BYTES);
	task->state = plan == PLAN_STATE ? free_state(client) : 0;
	expect(client, task, reads ? before->expected : task->in);
	prep_run(client, sqe, rbk_plan_id(client->plans[plan]), task,
		 plan == PLAN_STATE ? client->states[task->state].words : task->out);
	choose_device(client, sqe, task);
	if (links)
		sqe->flags |= RBK_SQE_LINK;
	publish(client, task, sqe);
	return task;
}

/* Put a RUN that is rejected, in any of several ways, into the ring, which has room. */
static struct task *put_invalid(struct client *client, enum plan_kind plan, struct task *before,
				bool links)
{
	const uint32_t plan_id = rbk_plan_id(client->plans[plan]);
	struct rbk_sqe *sqe = rbk_get_sqe(client->ring);
	struct task *task = task_new(client, TASK_INVALID);
	uint64_t *table = client->tables[task - client->tasks];

	sim_check(sqe);
	task->n_rows = 1;
	succeed(task, before);
	switch (sim_below(4)) {
	case 0:
		prep_run(client, sqe, UINT32_MAX, task, task->out);
		break;
	case 1:
		/* An output over an input */
		prep_run(client, sqe, plan_id, task, task->in);
		break;
	case 2:
		table[0] = table[1] = RBK_REF_INVALID;
		rbk_prep_run_table(sqe, plan_id, 1, rbk_ref(client->arena, table), 2);
		break;
	default:
		task->n_rows = MAX_ROWS + 1;
		prep_run(client, sqe, plan_id, task, task->out);
	}
	if (links)
		sqe->flags |= RBK_SQE_LINK;
	publish(client, task, sqe);
	return task;
}

static struct task *put_nop(struct client *client, struct task *before, bool links)
{
	struct rbk_sqe *sqe = rbk_get_sqe(client->ring);
	struct task *task = task_new(client, TASK_NOP);

	sim_check(sqe);
	succeed(task, before);
	rbk_prep_nop(sqe);
	if (links)
		sqe->flags |= RBK_SQE_LINK;
	publish(client, task, sqe);
	return task;
}

/* Make the plan if it does not exist. Return: false: the connection is lost. */
static bool need_plan(struct client *client, enum plan_kind kind)
{
	return client->plans[kind] || client_make_plan(client, kind);
}

/* Return a plan that exists, any that clients of the round use or @otherwise. */
static enum plan_kind any_plan(const struct client *client, enum plan_kind otherwise)
{
	const struct sim_client_mix *mix = &client->options->mix;
	enum plan_kind kind = (enum plan_kind)sim_pick(mix->plans, SIM_PLANS);

	if (mix->entries[SIM_STATE] > 0 && state_is_free(client) && sim_below(3) == 0)
		kind = PLAN_STATE;
	return client->plans[kind] ? kind : otherwise;
}

static void put_other(struct client *client, enum task_kind kind, enum plan_kind plan);

static void put_chain(struct client *client, enum plan_kind first)
{
	const struct sim_client_mix *mix = &client->options->mix;
	/* Short ones are more likely. */
	const unsigned int n = 2 + (unsigned int)sim_below(1 + sim_below(MAX_CHAIN - 1));
	struct task *task = NULL;

	if (!has_room(client, n))
		return;
	for (unsigned int i = 0; i < n; i++) {
		const enum plan_kind kind = i == 0 ? first : any_plan(client, first);
		const bool links = i + 1 < n;

		if (sim_below(16) < mix->entries[SIM_INVALID])
			task = put_invalid(client, kind, task, links);
		else if (sim_below(16) < mix->entries[SIM_NOP])
			task = put_nop(client, task, links);
		else
			task = put_run(client, kind, task, links, true);
		/* The broker may find a part of the chain; the next call tells of an error. */
		if (sim_below(3) > 0)
			continue;
		rbk_submit(client->ring);
		if (mix->pause_ns > 0 && sim_below(2))
			client_sleep_ns(1 + sim_below(mix->pause_ns));
	}
	if (sim_below(16) < mix->entries[SIM_CANCEL])
		put_other(client, TASK_CANCEL, first);
}

/*
 * Let the last entry, that of @task, wait for the entry of @id, too. Return: false if it names
 * enough others, or if the ring has forgotten the entry.
 */
static bool wait_for(struct client *client, struct task *task, uint64_t id, uint32_t index)
{
	uint32_t indices[RBK_SQE_AFTER_MAX];
	unsigned int n = 0;
	int r;

	while (n < RBK_SQE_AFTER_MAX && task->named[n] != 0) {
		indices[n] = task->index - client->last_sqe->after[n];
		n++;
	}
	if (n == RBK_SQE_AFTER_MAX || id < client->ring_from_id)
		return false;
	indices[n] = index;
	r = rbk_sqe_set_after(client->ring, client->last_sqe, indices, n + 1);
	if (r == 0)
		task->named[n] = id;
	else if (r != -ERANGE)
		sim_violation("rbk_sqe_set_after() returned %d", r);
	return r == 0;
}

/* Wait for any entries, in flight or ended, of which the ring may have forgotten some. */
static void wait_for_any(struct client *client, struct task *task)
{
	const unsigned int n = 1 + (unsigned int)sim_below(RBK_SQE_AFTER_MAX / 2);

	for (unsigned int i = 0; i < n; i++) {
		const struct task *other = &client->tasks[sim_below(SLOTS)];
		const struct ended *ended = &client->ended[sim_below(ENDED)];

		if (sim_below(2) && other->kind != TASK_FREE && other != task)
			wait_for(client, task, other->id, other->index);
		else if (ended->id != 0 && wait_for(client, task, ended->id, ended->index) &&
			 ended->res < 0)
			task->is_cancelled = task->must_fail = true;
	}
}

/*
 * Put two tasks that read the result of a first one, and a last one that waits for both and may
 * write over that result; or a NOP that waits for any entries.
 */
static void put_join(struct client *client, enum plan_kind plan)
{
	const bool is_diamond = sim_below(2);
	struct task *tasks[4];

	if (!has_room(client, 4) || plan == PLAN_STATE)
		return;
	if (!is_diamond) {
		wait_for_any(client, put_nop(client, NULL, false));
		return;
	}
	tasks[0] = put_run(client, plan, NULL, false, false);
	for (unsigned int i = 1; i < 4; i++) {
		const struct task *before = tasks[i < 3 ? 0 : 1];

		tasks[i] = put_run(client, plan, tasks[i < 3 ? 0 : 1], false, i == 3);
		wait_for(client, tasks[i], before->id, before->index);
		if (i == 3)
			wait_for(client, tasks[i], tasks[2]->id, tasks[2]->index);
		if (sim_below(4) == 0)
			wait_for_any(client, tasks[i]);
		if (sim_below(4) == 0)
			rbk_submit(client->ring);
	}
}

/* Put a RUN of a plan that was removed. */
static void put_stale(struct client *client)
{
	struct rbk_sqe *sqe;
	struct task *task;

	if (client->stale_plan == 0 || !has_room(client, 1))
		return;
	sqe = rbk_get_sqe(client->ring);
	task = task_new(client, TASK_STALE);
	sim_check(sqe);
	task->n_rows = 1;
	prep_run(client, sqe, client->stale_plan, task, task->out);
	publish(client, task, sqe);
}

/* Return any RUN in flight, rather one within a chain; NULL: there is none. */
static struct task *any_run(struct client *client)
{
	const unsigned int first = (unsigned int)sim_below(SLOTS);
	const bool is_choosy = sim_below(2);
	struct task *any = NULL;

	for (unsigned int i = 0; i < SLOTS; i++) {
		struct task *task = &client->tasks[(first + i) % SLOTS];

		if (task->kind != TASK_RUN)
			continue;
		if (!is_choosy || task->predecessor)
			return task;
		any = task;
	}
	return any;
}

/* Put a CANCEL, a BARRIER, or a PREFETCH or EVICT of the plan @plan. */
static void put_other(struct client *client, enum task_kind kind, enum plan_kind plan)
{
	struct rbk_sqe *sqe;
	struct task *task, *target = NULL;

	if (!has_room(client, 1) || (kind == TASK_BARRIER && client->barrier))
		return;
	if (kind == TASK_CANCEL) {
		target = any_run(client);
		if (!target)
			return;
	}
	sqe = rbk_get_sqe(client->ring);
	task = task_new(client, kind);
	sim_check(sqe);
	switch (kind) {
	case TASK_CANCEL:
		target->is_cancelled = true;
		task->target = target->id;
		rbk_prep_cancel(sqe, target->id);
		break;
	case TASK_BARRIER:
		client->barrier = task->id;
		rbk_prep_barrier(sqe);
		break;
	default:
		if (sim_below(2))
			rbk_prep_prefetch(sqe, rbk_plan_id(client->plans[plan]));
		else
			rbk_prep_evict(sqe, rbk_plan_id(client->plans[plan]));
	}
	publish(client, task, sqe);
}

bool client_put_some(struct client *client)
{
	const struct sim_client_mix *mix = &client->options->mix;
	const enum sim_entry what = (enum sim_entry)sim_pick(mix->entries, SIM_ENTRIES);
	const enum plan_kind kind =
		what == SIM_STATE ? PLAN_STATE : (enum plan_kind)sim_pick(mix->plans, SIM_PLANS);

	if (!need_plan(client, kind))
		return false;
	switch (what) {
	case SIM_NOP:
		if (has_room(client, 1))
			put_nop(client, NULL, false);
		break;
	case SIM_BARRIER:
		put_other(client, TASK_BARRIER, kind);
		break;
	case SIM_CANCEL:
		put_other(client, TASK_CANCEL, kind);
		break;
	case SIM_MEMORY:
		put_other(client, TASK_MEMORY, kind);
		break;
	case SIM_CHAIN:
		put_chain(client, kind);
		break;
	case SIM_JOIN:
		put_join(client, kind);
		break;
	case SIM_STALE:
		put_stale(client);
		break;
	case SIM_INVALID:
		if (has_room(client, 1))
			put_invalid(client, kind, NULL, false);
		break;
	default:
		if (has_room(client, 1) && (kind != PLAN_STATE || state_is_free(client)))
			put_run(client, kind, NULL, false, false);
	}
	return true;
}
