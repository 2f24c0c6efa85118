/* SPDX-License-Identifier: MIT */
/* Clients: see client.h */
#include "simulator/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/ringbroker.h"
#include "simulator/compute.h"
#include "simulator/machine.h"

enum {
	WIDTH = 16, /* words of a row */
	MAX_ROWS = 8,
	SLOTS = 24, /* tasks in flight */
	STATES = 2,
	MAX_CHAIN = 4,
	SLOT_BYTES = MAX_ROWS * WIDTH * 4,
	CONSTANT_WORDS = WIDTH * WIDTH,
};

/* Time after which a task or a request counts as lost */
static const uint64_t patience_ns = 120000000000u;

enum plan_kind { PLAN_ELEMENTS, PLAN_PRODUCT, PLAN_STATE, PLAN_KINDS };

enum task_kind { TASK_FREE, TASK_NOP, TASK_RUN, TASK_CANCEL, TASK_BARRIER, TASK_MEMORY };

/* An entry in flight, and what it must give */
struct task {
	enum task_kind kind;
	uint64_t id; /* its user_data */
	enum plan_kind plan;
	uint32_t n_rows;
	uint32_t *x, *y; /* in the arena; of SLOT_BYTES each */
	uint32_t expected[MAX_ROWS * WIDTH];
	unsigned int state;   /* of PLAN_STATE */
	uint64_t predecessor; /* id of the entry before it in its chain; 0: none */
	bool reads_slot;      /* reads y of slot @slot_read */
	unsigned int slot_read;
	bool is_cancelled; /* a CANCEL names it, or its chain has ended */
	uint32_t old_state[WIDTH];
};

struct state {
	uint32_t *words; /* in the arena */
	uint32_t expected[WIDTH];
	bool is_busy;
};

struct client {
	const struct sim_client_options *options;
	struct rbk *rbk;
	struct rbk_arena *arena, *constants;
	struct rbk_plan *plans[PLAN_KINDS];
	struct rbk_ring *ring;
	uint32_t *slots_x[SLOTS], *slots_y[SLOTS];
	struct task tasks[SLOTS];
	bool is_read[SLOTS]; /* a task in flight reads the slot's y */
	unsigned int n_in_flight;
	struct state states[STATES];
	uint64_t next_id;
	uint32_t salt;    /* of the constants */
	uint64_t barrier; /* id of a BARRIER in flight; 0: none */
	bool is_lost;
	bool by_loop;
};

static struct sim_client_figures figures __attribute__((__section__("sim_variables")));
static bool must_stop __attribute__((__section__("sim_variables")));

const struct sim_client_figures *sim_client_figures(void)
{
	return &figures;
}

void sim_clients_stop(bool must_end)
{
	must_stop = must_end;
}

static void sleep_ns(uint64_t ns)
{
	const struct timespec time = {
		.tv_sec = (time_t)(ns / 1000000000u),
		.tv_nsec = (long)(ns % 1000000000u),
	};

	nanosleep(&time, NULL);
}

/*
 * Note an error of a call. Without failures that the simulator causes, there must be none.
 * Return: true if the client goes on with its connection.
 */
static bool accept_error(struct client *client, const char *what, int r,
			 const struct rbk_error *error)
{
	sim_trace("%s: %d %s", what, r, error ? error->text : "");
	if (client->options->is_strict)
		sim_violation("%s: %d: %s", what, r, error ? error->text : "");
	client->is_lost = true;
	figures.n_lost++;
	return false;
}

/* --- Objects --- */

static bool make_arenas(struct client *client)
{
	struct rbk_error error = {""};
	uint32_t *words;
	int r;

	r = rbk_arena_new(client->rbk, 2 * SLOTS * SLOT_BYTES + STATES * 4096, &client->arena,
			  &error);
	if (r)
		return accept_error(client, "rbk_arena_new()", r, &error);
	for (unsigned int i = 0; i < SLOTS; i++) {
		client->slots_x[i] = rbk_arena_alloc(client->arena, SLOT_BYTES);
		client->slots_y[i] = rbk_arena_alloc(client->arena, SLOT_BYTES);
	}
	for (unsigned int i = 0; i < STATES; i++) {
		client->states[i].words = rbk_arena_alloc(client->arena, WIDTH * 4);
		memset(client->states[i].words, 0, WIDTH * 4);
		memset(client->states[i].expected, 0, WIDTH * 4);
		client->states[i].is_busy = false;
	}
	r = rbk_arena_new(client->rbk, CONSTANT_WORDS * 4, &client->constants, &error);
	if (r)
		return accept_error(client, "rbk_arena_new() of constants", r, &error);
	words = rbk_arena_data(client->constants);
	for (unsigned int i = 0; i < CONSTANT_WORDS; i++)
		words[i] = (uint32_t)sim_random();
	client->salt = sim_salt(1, words, CONSTANT_WORDS);
	r = rbk_arena_seal(client->constants, &error);
	return r == 0 || accept_error(client, "rbk_arena_seal()", r, &error);
}

static struct rbk_builder *describe(struct client *client, enum plan_kind kind)
{
	const uint32_t rows[] = {RBK_DIM_COUNT, WIDTH};
	const uint32_t square[] = {WIDTH, WIDTH}, one[] = {1, WIDTH};
	struct rbk_builder *b = rbk_builder_new("simulated");
	unsigned int x, y, w;

	if (!b)
		return NULL;
	switch (kind) {
	case PLAN_ELEMENTS:
		x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, rows);
		y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows);
		rbk_builder_unary(b, "Neg", x, y);
		break;
	case PLAN_PRODUCT:
		x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, rows);
		w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, square, client->constants, 0);
		y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows);
		rbk_builder_binary(b, "MatMul", x, w, y);
		break;
	default:
		x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, one);
		y = rbk_builder_state(b, "s", RBK_DTYPE_F32, 2, one);
		rbk_builder_binary(b, "Add", y, x, y);
	}
	return b;
}

static bool make_plan(struct client *client, enum plan_kind kind)
{
	struct rbk_builder *builder = describe(client, kind);
	struct rbk_error error = {""};
	int r = !builder ? -ENOMEM
			 : rbk_plan_new(client->rbk, builder, kind == PLAN_STATE ? 1 : MAX_ROWS,
					&client->plans[kind], &error);

	rbk_builder_free(builder);
	if (r == 0)
		return true;
	client->plans[kind] = NULL;
	return accept_error(client, "rbk_plan_new()", r, &error);
}

static bool make_ring(struct client *client)
{
	struct rbk_error error = {""};
	int r = rbk_ring_new(client->rbk, 32, &client->ring, &error);

	if (r)
		return accept_error(client, "rbk_ring_new()", r, &error);
	rbk_ring_set_spin_ns(client->ring, sim_below(2) * 20000);
	return true;
}

static void on_reattach(struct rbk *rbk, const struct rbk_reattachment *about, void *data)
{
	sim_trace("re-attached: %d, %u tasks, %.3f ms %s", about->r, about->n_tasks,
		  (double)about->gap_ns / 1e6, about->r ? about->text : "");
	if (about->r == 0)
		figures.n_reattached++;
}

static bool begin(struct client *client)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = client->options->socket_path,
		.timeout_ns = patience_ns,
		.reattach_ns = patience_ns,
		.on_reattach = on_reattach,
	};
	struct rbk_error error = {""};
	int r;

	/* The broker may not be there yet, or just die. */
	for (unsigned int i = 0; (r = rbk_connect(&options, &client->rbk, &error)); i++) {
		sim_trace("rbk_connect(): %d %s", r, error.text);
		if (must_stop)
			return false;
		if (i == 1000)
			sim_violation("no connection in 1000 attempts: %s", error.text);
		sleep_ns(10000000);
	}
	figures.n_sessions++;
	client->next_id = 1;
	client->by_loop = sim_below(2);
	if (!make_arenas(client) || !make_ring(client))
		return false;
	for (unsigned int i = 0; i < PLAN_KINDS; i++)
		if (!make_plan(client, i))
			return false;
	return true;
}

static void end(struct client *client)
{
	rbk_ring_free(client->ring);
	for (unsigned int i = 0; i < PLAN_KINDS; i++)
		rbk_plan_free(client->plans[i]);
	rbk_arena_free(client->arena);
	rbk_arena_free(client->constants);
	rbk_disconnect(client->rbk);
	*client = (struct client){.options = client->options};
}

/* --- Entries --- */

static bool slot_is_free(const struct client *client, unsigned int slot)
{
	return client->tasks[slot].kind == TASK_FREE && !client->is_read[slot];
}

static bool has_room(struct client *client, unsigned int n)
{
	unsigned int n_free = 0;

	for (unsigned int i = 0; i < SLOTS; i++)
		n_free += slot_is_free(client, i);
	return n_free >= n && rbk_sq_space_left(client->ring) >= n;
}

/* Take a slot; there is one. */
static struct task *task_new(struct client *client, enum task_kind kind)
{
	struct task *task = client->tasks;

	while (!slot_is_free(client, (unsigned int)(task - client->tasks)))
		task++;
	*task = (struct task){
		.kind = kind,
		.id = client->next_id++,
		.x = client->slots_x[task - client->tasks],
		.y = client->slots_y[task - client->tasks],
	};
	return task;
}

/* Compute what a RUN must give, from @x, the words of its input. */
static void expect(struct client *client, struct task *task, const uint32_t *x)
{
	struct state *state = &client->states[task->state];
	struct sim_operand operands[2] = {
		{.words = (uint32_t *)x, .n_words = task->n_rows * WIDTH, .row_words = WIDTH},
		{.words = task->expected,
		 .n_words = task->n_rows * WIDTH,
		 .row_words = WIDTH,
		 .is_written = true},
	};

	if (task->plan == PLAN_STATE) {
		operands[0].row_words = 0;
		operands[1] = (struct sim_operand){
			.words = state->expected,
			.n_words = WIDTH,
			.is_written = true,
			.is_state = true,
		};
		state->is_busy = true;
		memcpy(task->old_state, state->expected, sizeof(task->old_state));
	}
	sim_compute(operands, 2, task->plan == PLAN_PRODUCT ? client->salt : 1, false);
}

static void publish(struct client *client, const struct task *task, struct rbk_sqe *sqe)
{
	rbk_sqe_set_data64(sqe, task->id);
	sim_trace("entry %llu: opcode %u, flags %#x, strategy %u, priority %u, plan %u",
		  (unsigned long long)task->id, sqe->opcode, sqe->flags, sqe->strategy,
		  sqe->priority, sqe->plan_id);
	client->n_in_flight++;
	figures.n_entries++;
}

static void choose_device(struct rbk_sqe *sqe)
{
	static const uint8_t strategies[] = {
		RBK_STRATEGY_AUTO,       RBK_STRATEGY_AUTO,    RBK_STRATEGY_PREFER_GPU,
		RBK_STRATEGY_PREFER_CPU, RBK_STRATEGY_LATENCY, RBK_STRATEGY_ONLY_CPU,
	};

	rbk_sqe_set_strategy(sqe, strategies[sim_below(sizeof(strategies))]);
	if (sim_below(8) == 0)
		rbk_sqe_set_priority(sqe, (unsigned int)sim_below(RBK_PRIORITY_COUNT));
	if (sim_below(16) == 0)
		rbk_sqe_set_deadline_us(sqe, 1 + (uint32_t)sim_below(1000000));
	if (sim_below(16) == 0)
		rbk_sqe_set_wait_memory(sqe);
}

/*
 * Put a RUN into the ring, which has room. @before: the task whose result it reads; NULL: none.
 * @links: the next entry belongs to its chain.
 */
static struct task *put_run(struct client *client, enum plan_kind plan, struct task *before,
			    bool links)
{
	struct rbk_sqe *sqe = rbk_get_sqe(client->ring);
	struct task *task = task_new(client, TASK_RUN);
	uint32_t *x;
	uint64_t refs[2];

	sim_check(sqe);
	task->plan = plan;
	task->n_rows = before               ? before->n_rows
		       : plan == PLAN_STATE ? 1
					    : 1 + (uint32_t)sim_below(sim_below(3) ? 2 : MAX_ROWS);
	x = before ? before->y : task->x;
	for (uint32_t i = 0; !before && i < task->n_rows * WIDTH; i++)
		x[i] = (uint32_t)sim_random();
	memset(task->y, 0xee, SLOT_BYTES);
	task->state = (unsigned int)sim_below(STATES);
	if (plan == PLAN_STATE && client->states[task->state].is_busy)
		task->state = STATES - 1 - task->state;
	expect(client, task, before ? before->expected : x);
	if (before) {
		task->predecessor = before->id;
		task->reads_slot = true;
		task->slot_read = (unsigned int)(before - client->tasks);
		client->is_read[task->slot_read] = true;
	}
	refs[0] = rbk_ref(client->arena, x);
	refs[1] = rbk_ref(client->arena,
			  plan == PLAN_STATE ? client->states[task->state].words : task->y);
	rbk_prep_run(sqe, rbk_plan_id(client->plans[plan]), task->n_rows, refs, 2);
	choose_device(sqe);
	if (links)
		sqe->flags |= RBK_SQE_LINK;
	publish(client, task, sqe);
	return task;
}

static void put_chain(struct client *client)
{
	const unsigned int n = 2 + (unsigned int)sim_below(MAX_CHAIN - 1);
	struct task *task = NULL;

	if (!has_room(client, n))
		return;
	for (unsigned int i = 0; i < n; i++)
		task = put_run(client, sim_below(2) ? PLAN_ELEMENTS : PLAN_PRODUCT, task,
			       i + 1 < n);
}

static void put_other(struct client *client, enum task_kind kind)
{
	struct rbk_sqe *sqe;
	struct task *task, *target;

	if (!has_room(client, 1) || (kind == TASK_BARRIER && client->barrier))
		return;
	target = &client->tasks[sim_below(SLOTS)];
	if (kind == TASK_CANCEL && target->kind != TASK_RUN)
		return;
	sqe = rbk_get_sqe(client->ring);
	task = task_new(client, kind);
	sim_check(sqe);
	switch (kind) {
	case TASK_CANCEL:
		target->is_cancelled = true;
		rbk_prep_cancel(sqe, target->id);
		break;
	case TASK_BARRIER:
		client->barrier = task->id;
		rbk_prep_barrier(sqe);
		break;
	case TASK_MEMORY:
		if (sim_below(2))
			rbk_prep_prefetch(sqe, rbk_plan_id(client->plans[sim_below(PLAN_KINDS)]));
		else
			rbk_prep_evict(sqe, rbk_plan_id(client->plans[sim_below(PLAN_KINDS)]));
		break;
	default:
		rbk_prep_nop(sqe);
	}
	publish(client, task, sqe);
}

/* --- Completions --- */

static struct task *task_of(struct client *client, uint64_t id)
{
	for (unsigned int i = 0; id != 0 && i < SLOTS; i++)
		if (client->tasks[i].kind != TASK_FREE && client->tasks[i].id == id)
			return &client->tasks[i];
	return NULL;
}

/* Entries that are cancelled before they start need not wait for others. */
static void check_order(struct client *client, const struct task *task, int res)
{
	if (res == -ECANCELED)
		return;
	if (task->predecessor && task_of(client, task->predecessor))
		sim_violation("entry %llu completed before its predecessor %llu",
			      (unsigned long long)task->id, (unsigned long long)task->predecessor);
	if (client->barrier && task->id > client->barrier)
		sim_violation("entry %llu completed before the BARRIER %llu",
			      (unsigned long long)task->id, (unsigned long long)client->barrier);
	for (unsigned int i = 0; task->kind == TASK_BARRIER && i < SLOTS; i++)
		if (client->tasks[i].kind != TASK_FREE && client->tasks[i].id < task->id)
			sim_violation("the BARRIER %llu completed before entry %llu",
				      (unsigned long long)task->id,
				      (unsigned long long)client->tasks[i].id);
}

static void check_result(const struct client *client, const struct task *task)
{
	const struct state *state = &client->states[task->state];
	const bool is_state = task->plan == PLAN_STATE;
	const uint32_t *is = is_state ? state->words : task->y;
	const uint32_t *wanted = is_state ? state->expected : task->expected;

	for (uint32_t i = 0; i < task->n_rows * WIDTH; i++)
		if (is[i] != wanted[i])
			sim_violation("entry %llu: word %u of the %s is %08x instead of %08x",
				      (unsigned long long)task->id, i,
				      is_state ? "state" : "result", is[i], wanted[i]);
}

/*
 * Check a failed RUN. A task that updates a state fails where its device, or its broker, is lost in
 * the middle: nothing else could run it again.
 */
static void check_failure(struct client *client, struct task *task, int res)
{
	struct state *state = &client->states[task->state];

	if (client->options->is_strict && !(res == -ECANCELED && task->is_cancelled) &&
	    !(task->plan == PLAN_STATE && (res == -ECONNRESET || res == -EIO)))
		sim_violation("entry %llu, a task of plan %d, completed with %d",
			      (unsigned long long)task->id, (int)task->plan, res);
	if (res == -ECANCELED)
		figures.n_cancelled++;
	else
		figures.n_failed++;
	for (unsigned int i = 0; i < SLOTS; i++)
		if (client->tasks[i].predecessor == task->id)
			client->tasks[i].is_cancelled = true;
	if (task->plan != PLAN_STATE)
		return;
	if (res == -ECANCELED && memcmp(state->words, task->old_state, sizeof(task->old_state)))
		sim_violation("entry %llu was cancelled, and has changed its state",
			      (unsigned long long)task->id);
	if (res == -ECONNRESET)
		figures.n_states_lost++;
	/* The state is the old one, the new one, or lost. */
	memcpy(state->expected, state->words, sizeof(state->expected));
}

static void complete(struct client *client, const struct rbk_cqe *cqe)
{
	struct task *task = task_of(client, cqe->user_data);

	if (!task)
		sim_violation("a completion of entry %llu, which is not in flight",
			      (unsigned long long)cqe->user_data);
	sim_trace("entry %llu completes: %d", (unsigned long long)task->id, cqe->res);
	figures.n_completions++;
	check_order(client, task, cqe->res);
	if (task->kind == TASK_RUN) {
		if (task->plan == PLAN_STATE)
			client->states[task->state].is_busy = false;
		if (cqe->res == 0)
			check_result(client, task);
		else
			check_failure(client, task, cqe->res);
	} else if (task->kind == TASK_NOP && cqe->res != 0 && client->options->is_strict) {
		sim_violation("a NOP completed with %d", cqe->res);
	}
	if (task->id == client->barrier)
		client->barrier = 0;
	if (task->reads_slot)
		client->is_read[task->slot_read] = false;
	task->kind = TASK_FREE;
	client->n_in_flight--;
}

/* Wait for a completion and check it. Return: false: the connection is lost. */
static bool consume(struct client *client)
{
	const struct rbk_cqe *cqe;
	int r;

	do {
		r = rbk_wait_cqe_timeout(client->ring, &cqe, patience_ns);
	} while (r == -EINTR);
	if (r == -ETIME)
		sim_violation("%u entries do not complete", client->n_in_flight);
	if (r)
		return accept_error(client, "rbk_wait_cqe()", r, NULL);
	complete(client, cqe);
	rbk_cqe_seen(client->ring, cqe);
	return true;
}

/* --- What a client does --- */

static bool drain(struct client *client)
{
	int r = rbk_submit(client->ring);

	if (r < 0)
		return accept_error(client, "rbk_submit()", r, NULL);
	while (client->n_in_flight > 0)
		if (!consume(client))
			return false;
	return true;
}

static bool change_plan(struct client *client)
{
	const enum plan_kind kind = (enum plan_kind)sim_below(PLAN_KINDS);

	if (!drain(client))
		return false;
	client->plans[kind] = rbk_plan_free(client->plans[kind]);
	return make_plan(client, kind);
}

static bool change_ring(struct client *client)
{
	if (!drain(client))
		return false;
	client->ring = rbk_ring_free(client->ring);
	return make_ring(client);
}

static void put_some(struct client *client)
{
	const bool state_is_free = !client->states[0].is_busy || !client->states[1].is_busy;

	switch (sim_below(12)) {
	case 0:
		put_other(client, TASK_NOP);
		break;
	case 1:
		put_other(client, TASK_BARRIER);
		break;
	case 2:
		put_other(client, TASK_CANCEL);
		break;
	case 3:
		put_other(client, TASK_MEMORY);
		break;
	case 4:
		put_chain(client);
		break;
	case 5:
	case 6:
		if (has_room(client, 1) && state_is_free)
			put_run(client, PLAN_STATE, NULL, false);
		break;
	default:
		if (has_room(client, 1))
			put_run(client, sim_below(2) ? PLAN_ELEMENTS : PLAN_PRODUCT, NULL, false);
	}
}

/* Do one thing. Return: false: the connection is lost, or the client leaves. */
static bool act(struct client *client)
{
	const uint64_t choice = sim_below(100);
	int r;

	if (choice < 60) {
		put_some(client);
		return true;
	}
	if (choice < 75) {
		r = rbk_submit(client->ring);
		return r >= 0 || accept_error(client, "rbk_submit()", r, NULL);
	}
	if (choice < 95) {
		r = rbk_submit(client->ring);
		if (r < 0)
			return accept_error(client, "rbk_submit()", r, NULL);
		for (uint64_t n = sim_below(client->n_in_flight + 1); n > 0; n--)
			if (!consume(client))
				return false;
		return true;
	}
	if (choice < 97)
		return change_plan(client);
	if (choice < 98)
		return change_ring(client);
	if (choice < 99)
		return drain(client);
	return sim_below(8) > 0;
}

void sim_client_main(void *data)
{
	struct client client = {.options = data};

	while (!must_stop) {
		if (begin(&client)) {
			while (!must_stop && act(&client))
				if (client.options->think_ns > 0)
					sleep_ns(sim_below(2 * client.options->think_ns));
			if (!client.is_lost)
				drain(&client);
		}
		end(&client);
	}
}
