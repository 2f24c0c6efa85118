/* SPDX-License-Identifier: MIT */
/* The kernels of a plan, called in a loop: see plan-loop.h. */
#include "plan-loop.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/kernels.h"
#include "model-broker.h"
#include "session/session.h"
#include "util/clock.h"

struct plan_loop {
	struct bench_env *env;
	const char *model;
	struct model_broker *broker;
	struct rbk *rbk;
	struct network network;
	struct executor *executor;
	struct exec_ref refs[RBK_SQE_REFS];
	struct exec_task task;
};

/* The broker's client, in a thread of its own. Return: as network_init(). */
static int prepare(void *data)
{
	struct plan_loop *loop = data;
	struct bench_env *env = loop->env;
	struct rbk_options options = {.size = sizeof(options),
				      .socket_path = model_broker_socket(loop->broker)};
	struct rbk_error error;
	int r;

	r = rbk_connect(&options, &loop->rbk, &error);
	if (r)
		return bench_refused(env, r, error.text);
	return network_init(&loop->network, env, loop->rbk, loop->model);
}

/* Find the broker's records of the network's plan and arenas; the broker does not run now. */
static int find_task(struct plan_loop *loop)
{
	const struct network *network = &loop->network;
	const struct session_plan *found = model_broker_plan(loop->broker, network->plan_id);

	if (!found || found->plan->n_bindings != network->n_refs)
		return -ENOENT;
	loop->executor = model_broker_device(loop->broker, RBK_DEVICE_CPU);
	for (unsigned int i = 0; i < network->n_refs; i++) {
		const uint16_t id = RBK_REF_ARENA(network->refs[i]);

		if (id >= found->session->n_arenas || !found->session->arenas[id])
			return -ENOENT;
		loop->refs[i].arena = &found->session->arenas[id]->exec;
		loop->refs[i].offset = RBK_REF_OFFSET(network->refs[i]);
	}
	loop->task = (struct exec_task){
		.plan = found->plan, .refs = loop->refs, .count = network->count};
	cpu_flush_denormals();
	return 0;
}

int plan_loop_new(struct bench_env *env, const char *model, struct plan_loop **ret)
{
	const struct model_broker_options options = {.n_devices = 1, .computes = true};
	struct plan_loop *loop = calloc(1, sizeof(*loop));
	int r;

	if (!loop)
		return bench_fail(env, -ENOMEM, "no memory for a plan");
	loop->env = env;
	loop->model = model;
	r = model_broker_new(&options, &loop->broker);
	if (r) {
		plan_loop_free(loop);
		return bench_fail(env, r, "cannot make a broker in this process");
	}
	r = model_broker_serve(loop->broker, prepare, loop);
	if (!r) {
		r = find_task(loop);
		if (r)
			bench_fail(env, r, "the plan is not among the broker's");
	}
	if (r)
		loop = plan_loop_free(loop);
	*ret = loop;
	return r;
}

struct plan_loop *plan_loop_free(struct plan_loop *loop)
{
	if (!loop)
		return NULL;
	/* Ends the session, so that the client's objects are freed without asking the broker. */
	model_broker_free(loop->broker);
	network_deinit(&loop->network);
	rbk_disconnect(loop->rbk);
	free(loop);
	return NULL;
}

const struct network *plan_loop_network(const struct plan_loop *loop)
{
	return &loop->network;
}

int plan_loop_run(void *data)
{
	struct plan_loop *loop = data;

	loop->task.start_ticks = clock_ticks();
	loop->executor->ops->run_inline(loop->executor, &loop->task);
	return loop->task.res;
}
