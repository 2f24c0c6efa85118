/* SPDX-License-Identifier: MIT */
/*
 * Second threads of clients: see client.h
 *
 * Each makes, uses and frees objects of its own, at the same time as the others: requests meet on
 * the socket, and a thread that looks into its ring late finds several brokers' deaths at once.
 */
#include "simulator/client-private.h"

#include <errno.h>

#include "simulator/machine.h"

/* Objects of a thread; NULL: it has none */
struct own {
	struct rbk_plan *plan;
	struct rbk_arena *arena;
	struct rbk_ring *ring;
};

static void pause_some(const struct client *client)
{
	if (sim_below(3))
		client_sleep_ns(sim_below((2 * client->options->think_ns + 1000000) >>
					  client->options->mix.haste));
}

/* Submit NOPs, and wait for some of them later. Return: 0; negative errno. */
static int use_ring(const struct client *client, struct rbk_ring *ring)
{
	const bool may_be_given_up = client->options->has_crashes;
	const struct rbk_cqe *cqe;
	unsigned int n_in_flight = 0;
	struct rbk_sqe *sqe;
	int r = 0;

	for (uint64_t n = sim_below(4); n > 0 && r >= 0; n--) {
		sqe = rbk_get_sqe(ring);
		if (sqe) {
			rbk_prep_nop(sqe);
			n_in_flight++;
		}
		r = rbk_submit(ring);
		pause_some(client);
	}
	for (; r >= 0 && n_in_flight > 0 && sim_below(8); n_in_flight--) {
		r = rbk_wait_cqe_timeout(ring, &cqe, PATIENCE_NS);
		if (r)
			break;
		if (cqe->res && client->options->is_strict &&
		    !(cqe->res == -ECONNABORTED && may_be_given_up))
			sim_violation("a NOP of a second thread completed with %d", cqe->res);
		rbk_cqe_seen(ring, cqe);
	}
	return r < 0 ? r : 0;
}

static int make(const struct client *client, struct own *own)
{
	struct rbk_builder *builder = client_build_plan(NULL, PLAN_ELEMENTS);
	int r = builder ? rbk_plan_new(client->rbk, builder, MAX_ROWS, &own->plan, NULL) : -ENOMEM;

	rbk_builder_free(builder);
	if (r == 0)
		r = rbk_arena_new(client->rbk, 4096, &own->arena, NULL);
	if (r == 0 && sim_below(2))
		r = rbk_arena_seal(own->arena, NULL);
	if (r == 0 && sim_below(2))
		r = rbk_ring_new(client->rbk, 4, &own->ring, NULL);
	return r;
}

void *client_help(void *data)
{
	struct client *client = data;
	struct own own = {NULL};
	int r = 0;

	while (!client->helpers_must_end && !client_must_stop && r == 0) {
		r = make(client, &own);
		for (uint64_t n = sim_below(4); n > 0 && r == 0 && own.ring; n--)
			r = use_ring(client, own.ring);
		pause_some(client);
		own.plan = client_free_plan(client, own.plan);
		own.arena = client_free_arena(client, own.arena);
		own.ring = rbk_ring_free(own.ring);
	}
	if (r && client->options->is_strict)
		sim_violation("an object of a second thread: %d", r);
	return NULL;
}
