/* SPDX-License-Identifier: MIT */
/* Clients: see client.h */
#include "simulator/client-private.h"

#include <errno.h>
#include <time.h>

#include "simulator/machine.h"

struct sim_client_figures client_figures __attribute__((__section__("sim_variables")));
bool client_must_stop __attribute__((__section__("sim_variables")));

const struct sim_client_figures *sim_client_figures(void)
{
	return &client_figures;
}

void sim_clients_stop(void)
{
	client_must_stop = true;
}

void client_sleep_ns(uint64_t ns)
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
bool client_accept_error(struct client *client, const char *what, int r,
			 const struct rbk_error *error)
{
	sim_trace("%s: %d %s", what, r, error ? error->text : "");
	if (client->options->is_strict)
		sim_violation("%s: %d: %s", what, r, error ? error->text : "");
	client->is_lost = true;
	client_figures.n_lost++;
	return false;
}

static bool drain(struct client *client)
{
	int r = rbk_submit(client->ring);

	if (r < 0)
		return client_accept_error(client, "rbk_submit()", r, NULL);
	while (client->n_in_flight > 0)
		if (!client_consume(client))
			return false;
	return true;
}

static bool change_plan(struct client *client)
{
	const enum plan_kind kind = (enum plan_kind)sim_below(PLAN_KINDS);
	int r;

	if (sim_below(2) && !drain(client))
		return false;
	/* The library waits for those in flight. Of the others, none that was admitted fails. */
	r = rbk_submit(client->ring);
	if (r < 0)
		return client_accept_error(client, "rbk_submit()", r, NULL);
	for (unsigned int i = 0; i < SLOTS; i++)
		if (client->tasks[i].kind == TASK_RUN && client->tasks[i].plan == kind)
			client->tasks[i].may_fail = true;
	client->stale_plan = client->plans[kind] ? rbk_plan_id(client->plans[kind]) : 0;
	client->plans[kind] = client_free_plan(client, client->plans[kind]);
	client->stale_n_reattached = rbk_n_reattached(client->rbk);
	return client_make_plan(client, kind);
}

/* Free the arena under the tasks in flight. */
static bool change_arena(struct client *client)
{
	int r = rbk_submit(client->ring);

	if (r < 0)
		return client_accept_error(client, "rbk_submit()", r, NULL);
	for (unsigned int i = 0; i < SLOTS; i++)
		client->tasks[i].is_void = true;
	client->arena = client_free_arena(client, client->arena);
	return drain(client) && client_make_arena(client);
}

static bool change_constants(struct client *client)
{
	if (!drain(client))
		return false;
	client->constants = client_free_arena(client, client->constants);
	client->stale_plan = 0;
	for (unsigned int i = 0; i < PLAN_KINDS; i++)
		client->plans[i] = client_free_plan(client, client->plans[i]);
	return client_make_constants(client);
}

/* Free a ring, and make another. */
static bool change_ring(struct client *client)
{
	if (client->second && sim_below(2)) {
		client->n_second = 0;
		client->second = rbk_ring_free(client->second);
		return client_make_ring(client, &client->second);
	}
	if (!drain(client))
		return false;
	client->ring = rbk_ring_free(client->ring);
	return client_make_ring(client, &client->ring);
}

/* Do one thing. Return: false: the connection is lost, or the client leaves. */
static bool act(struct client *client)
{
	const uint64_t choice = sim_below(100);
	int r;

	if (choice < 60)
		return client_put_some(client);
	if (choice < 75) {
		r = rbk_submit(client->ring);
		return r >= 0 || client_accept_error(client, "rbk_submit()", r, NULL);
	}
	if (choice < 93) {
		r = rbk_submit(client->ring);
		if (r < 0)
			return client_accept_error(client, "rbk_submit()", r, NULL);
		for (uint64_t n = sim_below(client->n_in_flight + 1);
		     n > 0 && client->n_in_flight > 0; n--)
			if (!client_consume(client))
				return false;
		return true;
	}
	if (choice < 95)
		return client_use_second(client);
	if (choice < 97)
		return change_plan(client);
	if (choice < 98)
		return change_ring(client);
	if (choice < 99)
		return sim_below(2)   ? drain(client)
		       : sim_below(2) ? change_arena(client)
				      : change_constants(client);
	return sim_below(8) > 0;
}

void sim_client_main(void *data)
{
	const unsigned int number = sim_process();
	const uint64_t heap_bytes = sim_heap_bytes(number);
	struct client client = {.options = data};

	while (!client_must_stop) {
		if (client_begin(&client)) {
			while (!client_must_stop && act(&client))
				if (client.options->think_ns > 0)
					client_sleep_ns(sim_below(2 * client.options->think_ns));
			if (!client.is_lost && (client_must_stop || sim_below(2)))
				drain(&client);
		}
		client_end(&client);
		/* A ring that cannot be mapped at its address leaves its old one: replace_area().
		 */
		if (sim_heap_bytes(number) != heap_bytes || sim_n_fds_of(number) > 0 ||
		    (client.options->is_strict && sim_n_mappings_of(number) > 0))
			sim_violation("the library leaves %lld bytes, %u descriptors and %u "
				      "mappings",
				      (long long)(sim_heap_bytes(number) - heap_bytes),
				      sim_n_fds_of(number), sim_n_mappings_of(number));
	}
}
