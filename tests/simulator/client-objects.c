/* SPDX-License-Identifier: MIT */
/* Objects of clients: see client.h */
#include "simulator/client-private.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "simulator/compute.h"
#include "simulator/machine.h"

bool client_make_constants(struct client *client)
{
	struct rbk_error error = {""};
	uint32_t *words;
	int r;

	r = rbk_arena_new(client->rbk, 2 * CONSTANT_WORDS * 4, &client->constants, &error);
	if (r)
		return client_accept_error(client, "rbk_arena_new() of constants", r, &error);
	words = rbk_arena_data(client->constants);
	for (unsigned int i = 0; i < 2 * CONSTANT_WORDS; i++)
		words[i] = (uint32_t)sim_random();
	client->salts[PLAN_ELEMENTS] = client->salts[PLAN_STATE] = client->salts[PLAN_BRANCHES] = 1;
	client->salts[PLAN_PRODUCT] = sim_salt(1, words, CONSTANT_WORDS);
	client->salts[PLAN_SECOND] = sim_salt(1, words + CONSTANT_WORDS, CONSTANT_WORDS);
	r = rbk_arena_seal(client->constants, &error);
	return r == 0 || client_accept_error(client, "rbk_arena_seal()", r, &error);
}

bool client_make_arena(struct client *client)
{
	struct rbk_error error = {""};
	int r;

	r = rbk_arena_new(client->rbk, SLOTS * (2 * SLOT_BYTES + TABLE_BYTES) + STATES * 4096,
			  &client->arena, &error);
	if (r)
		return client_accept_error(client, "rbk_arena_new()", r, &error);
	for (unsigned int i = 0; i < SLOTS; i++) {
		client->slots_x[i] = rbk_arena_alloc(client->arena, SLOT_BYTES);
		client->slots_y[i] = rbk_arena_alloc(client->arena, SLOT_BYTES);
		client->tables[i] = rbk_arena_alloc(client->arena, TABLE_BYTES);
	}
	for (unsigned int i = 0; i < STATES; i++) {
		client->states[i].words = rbk_arena_alloc(client->arena, STATE_WORDS * 4);
		memset(client->states[i].words, 0, STATE_WORDS * 4);
		memset(client->states[i].expected, 0, STATE_WORDS * 4);
		client->states[i].is_busy = false;
	}
	return true;
}

struct rbk_builder *client_build_plan(struct rbk_arena *constants, enum plan_kind kind)
{
	const uint32_t rows[] = {RBK_DIM_COUNT, WIDTH};
	const uint32_t square[] = {WIDTH, WIDTH}, one[] = {1, WIDTH};
	const uint64_t second = CONSTANT_WORDS * 4;
	struct rbk_builder *b = rbk_builder_new("simulated");
	unsigned int x, y, w, s, t;

	if (!b)
		return NULL;
	x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, kind == PLAN_STATE ? one : rows);
	switch (kind) {
	case PLAN_ELEMENTS:
		y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows);
		rbk_builder_unary(b, "Neg", x, y);
		break;
	case PLAN_PRODUCT:
	case PLAN_SECOND:
		w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, square, constants,
					 kind == PLAN_SECOND ? second : 0);
		y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows);
		rbk_builder_binary(b, "MatMul", x, w, y);
		break;
	case PLAN_BOTH:
		w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, square, constants, 0);
		s = rbk_builder_scratch(b, "s", RBK_DTYPE_F32, 2, rows);
		rbk_builder_binary(b, "MatMul", x, w, s);
		w = rbk_builder_constant(b, "v", RBK_DTYPE_F32, 2, square, constants, second);
		y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows);
		rbk_builder_binary(b, "MatMul", s, w, y);
		break;
	case PLAN_BRANCHES:
		w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, square, constants, 0);
		s = rbk_builder_scratch(b, "s", RBK_DTYPE_F32, 2, rows);
		rbk_builder_binary(b, "MatMul", x, w, s);
		w = rbk_builder_constant(b, "v", RBK_DTYPE_F32, 2, square, constants, second);
		t = rbk_builder_scratch(b, "t", RBK_DTYPE_F32, 2, rows);
		rbk_builder_binary(b, "MatMul", x, w, t);
		y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, rows);
		rbk_builder_binary(b, "Mul", s, t, y);
		break;
	default:
		/* Each of two segments updates one of the states, if the plan is cut. */
		y = rbk_builder_state(b, "s", RBK_DTYPE_F32, 2, one);
		rbk_builder_binary(b, "Add", y, x, y);
		y = rbk_builder_state(b, "t", RBK_DTYPE_F32, 2, one);
		rbk_builder_binary(b, "Add", y, x, y);
	}
	return b;
}

bool client_make_plan(struct client *client, enum plan_kind kind)
{
	struct rbk_builder *builder = client_build_plan(client->constants, kind);
	struct rbk_error error = {""};
	int r = !builder ? -ENOMEM
			 : rbk_plan_new(client->rbk, builder, kind == PLAN_STATE ? 1 : MAX_ROWS,
					&client->plans[kind], &error);

	rbk_builder_free(builder);
	if (r == 0)
		return true;
	client->plans[kind] = NULL;
	return client_accept_error(client, "rbk_plan_new()", r, &error);
}

bool client_make_ring(struct client *client, struct rbk_ring **ret)
{
	struct rbk_error error = {""};
	int r = rbk_ring_new(client->rbk, 4u << sim_below(client->options->mix.max_ring_shift + 1),
			     ret, &error);

	if (r)
		return client_accept_error(client, "rbk_ring_new()", r, &error);
	if (sim_below(2))
		rbk_ring_set_spin_ns(*ret, sim_below(2) * 20000);
	return true;
}

static void on_reattach(struct rbk *rbk, const struct rbk_reattachment *about, void *data)
{
	sim_trace("re-attached: %d, %u tasks, %.3f ms %s", about->r, about->n_tasks,
		  (double)about->gap_ns / 1e6, about->r ? about->text : "");
	if (about->r == 0)
		client_figures.n_reattached++;
}

/* Note the time since @begin_ns, in which a call must not have waited until its timeout. */
static void check_time(const struct client *client, const char *what, uint64_t begin_ns)
{
	if (client->options->is_strict && sim_now_ns() - begin_ns >= PATIENCE_NS)
		sim_violation("%s takes too long", what);
}

struct rbk_plan *client_free_plan(const struct client *client, struct rbk_plan *plan)
{
	const uint64_t begin_ns = sim_now_ns();

	rbk_plan_free(plan);
	check_time(client, "rbk_plan_free()", begin_ns);
	return NULL;
}

struct rbk_arena *client_free_arena(const struct client *client, struct rbk_arena *arena)
{
	const uint64_t begin_ns = sim_now_ns();

	rbk_arena_free(arena);
	check_time(client, "rbk_arena_free()", begin_ns);
	return NULL;
}

bool client_begin(struct client *client)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = client->options->socket_path,
		.timeout_ns = PATIENCE_NS,
		.reattach_ns = PATIENCE_NS,
		.on_reattach = on_reattach,
	};
	unsigned int generation = 0;
	struct rbk_error error = {""};
	int r;

	/* The broker may not be there yet, or just die. */
	for (unsigned int i = 0; (r = rbk_connect(&options, &client->rbk, &error)); i++) {
		sim_trace("rbk_connect(): %d %s", r, error.text);
		if (client_must_stop)
			return false;
		/* Some rounds have no broker that lives for long. */
		if (generation != sim_process_generation(SIM_BROKER))
			i = 0;
		generation = sim_process_generation(SIM_BROKER);
		if (i == 1000)
			sim_violation("no connection in 1000 attempts: %s", error.text);
		client_sleep_ns(10000000);
	}
	client->next_id = 1;
	if (!client_make_constants(client) || !client_make_arena(client))
		return false;
	if ((sim_below(2) && !client_make_ring(client, &client->second)) ||
	    !client_make_ring(client, &client->ring))
		return false;
	for (uint64_t n = sim_below(client->options->mix.n_helpers + 1);
	     n > 0 &&
	     pthread_create(&client->helpers[client->n_helpers], NULL, client_help, client) == 0;
	     n--)
		client->n_helpers++;
	return true;
}

void client_end(struct client *client)
{
	client->helpers_must_end = true;
	while (client->n_helpers > 0)
		pthread_join(client->helpers[--client->n_helpers], NULL);
	rbk_ring_free(client->ring);
	rbk_ring_free(client->second);
	for (unsigned int i = 0; i < PLAN_KINDS; i++)
		client_free_plan(client, client->plans[i]);
	client_free_arena(client, client->arena);
	client_free_arena(client, client->constants);
	rbk_disconnect(client->rbk);
	*client = (struct client){.options = client->options};
}
