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

static bool submit(struct client *client)
{
	int r = rbk_submit(client->ring);

	return r >= 0 || client_accept_error(client, "rbk_submit()", r, NULL);
}

static bool drain(struct client *client)
{
	if (!submit(client))
		return false;
	while (client->n_in_flight > 0)
		if (!client_consume(client))
			return false;
	return true;
}

static bool change_plan(struct client *client)
{
	const struct task *any = &client->tasks[sim_below(SLOTS)];
	/* Rather one that tasks in flight use */
	const enum plan_kind kind =
		any->kind == TASK_RUN ? any->plan : (enum plan_kind)sim_below(PLAN_KINDS);
	uint64_t first_left; /* the broker has taken the entries before it */

	if (sim_below(2) && !drain(client))
		return false;
	/* The library waits for those in flight. Of them, only those that wait for memory fail. */
	if (!submit(client))
		return false;
	first_left = client->next_id - rbk_sq_ready(client->ring);
	for (unsigned int i = 0; i < SLOTS; i++)
		if (client->tasks[i].kind == TASK_RUN && client->tasks[i].plan == kind &&
		    (client->tasks[i].id >= first_left || client->tasks[i].waits))
			client->tasks[i].may_fail = true;
	client->stale_plan = client->plans[kind] ? rbk_plan_id(client->plans[kind]) : 0;
	client->plans[kind] = client_free_plan(client, client->plans[kind]);
	return client_make_plan(client, kind);
}

/* Free the arena under the tasks in flight. */
static bool change_arena(struct client *client)
{
	if (!submit(client))
		return false;
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
	client->ring_from_id = client->next_id;
	return client_make_ring(client, &client->ring);
}

static bool consume_some(struct client *client)
{
	if (!submit(client))
		return false;
	for (uint64_t n = sim_below(client->n_in_flight + 1); n > 0 && client->n_in_flight > 0; n--)
		if (!client_consume(client))
			return false;
	return true;
}

/* Put entries until the client does something else. Return: false: the connection is lost. */
static bool put_several(struct client *client)
{
	for (uint64_t n = 1 + sim_below(client->options->mix.burst); n > 0; n--)
		if (!client_put_some(client))
			return false;
	return true;
}

/* Do one thing. Return: false: the connection is lost, or the client leaves. */
static bool act(struct client *client)
{
	switch (sim_pick(client->options->mix.acts, SIM_ACTS)) {
	case SIM_PUT:
		return put_several(client);
	case SIM_SUBMIT:
		return submit(client);
	case SIM_CONSUME:
		return consume_some(client);
	case SIM_USE_SECOND:
		return client_use_second(client);
	case SIM_CHANGE_PLAN:
		return change_plan(client);
	case SIM_CHANGE_RING:
		return change_ring(client);
	case SIM_DRAIN:
		return drain(client);
	case SIM_CHANGE_ARENA:
		return change_arena(client);
	case SIM_CHANGE_CONSTANTS:
		return change_constants(client);
	default:
		return false;
	}
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
