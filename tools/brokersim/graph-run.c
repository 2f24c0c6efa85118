/* SPDX-License-Identifier: MIT */
/*
 * Graphs in virtual time; see graph-run.h
 *
 * A device that is idle takes the first node of its queue that has come: of the earliest task, in
 * the policy's order. A static schedule instead waits for its next node. Transfers begin when their
 * node's device is known: at the end of the node before, if the schedule or advice names it, else
 * when the node is placed.
 *
 * GRAPH_OURS does what brokerd does. A node that is ready goes where predicted completion, with
 * backlog and contention, plus bias_ns is least; with several tasks in flight, plus reduced_ns,
 * weighted, instead. A device with nothing to do takes over a queued
 * node that is late, if the node ends earlier there.
 */
#include "graph-run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "place/placer.h"
#include "random.h"
#include "util/cleanup.h"
#include "util/error.h"

const char *const graph_policy_names[GRAPH_POLICIES] = {
	[GRAPH_OURS] = "ours",
	[GRAPH_HEFT] = "heft",
	[GRAPH_PEFT] = "peft",
	[GRAPH_DMDAS] = "dmdas",
};

enum { IDLE = UINT32_MAX, SLOWDOWN = 2, SLOW_NODES = 10 /* mean times of a node */ };
/* A node is late if it would end later than planned by this share of its time. */
#define LATE 0.05

/* A node of a task: instance t * n_nodes + node */
struct instance {
	double arrival_ns, end_ns;
	uint16_t n_needed;
	uint8_t device;
};

struct lane {
	uint32_t *queue; /* instances, in no order */
	uint32_t n_queue;
	uint32_t running; /* instance; IDLE */
	double end_ns, predicted_end_ns;
	/* Static schedules: nodes of this device in a task, in order, and how many have started */
	uint16_t *planned;
	uint32_t n_planned, n_started;
	/* contention: when the present phase ends */
	bool is_slow;
	double phase_end_ns;
	uint64_t n_phases;
};

struct engine {
	const struct graph_run *run;
	struct place_graph *graph;
	enum graph_policy policy;
	struct graph_result *result;
	double now_ns, mean_ns; /* mean time of a node */
	struct instance *instances;
	struct lane lanes[PLACE_GRAPH_DEVICES];
	uint32_t n_begun, n_ended; /* tasks */
	double *begun_ns;          /* of tasks */
	uint32_t *n_left;          /* by task: nodes that have not ended */
	uint32_t n_events;
	uint32_t *to_first, *to; /* edges out of nodes */
	uint16_t *place;         /* of a node in the policy's order */
	uint16_t *sequence;      /* static: nodes by start */
	uint8_t *device;         /* static, ours: of a node */
};

static uint32_t node_of(const struct engine *engine, uint32_t instance)
{
	return instance % engine->graph->n_nodes;
}

static double exec_ns(const struct engine *engine, uint32_t node, uint32_t device)
{
	return (double)engine->graph->exec_ns[(size_t)node * engine->graph->n_devices + device];
}

static bool is_static(const struct engine *engine)
{
	return engine->policy == GRAPH_HEFT || engine->policy == GRAPH_PEFT;
}

/* --- Contention --- */

static void advance_phase(struct engine *engine, uint32_t device)
{
	const uint64_t seed = engine->run->truth.seed;
	struct lane *lane = &engine->lanes[device];

	while (engine->run->truth.is_contended && lane->phase_end_ns <= engine->now_ns) {
		lane->is_slow = !lane->is_slow;
		lane->phase_end_ns += draw_exponential(seed, DRAW_PHASE, device, lane->n_phases++) *
				      engine->mean_ns *
				      (lane->is_slow ? SLOW_NODES : 2 * SLOW_NODES);
	}
}

/* Return how many times as long the device takes now, as telemetry tells. */
static double contention(const struct engine *engine, uint32_t device)
{
	return engine->lanes[device].is_slow ? SLOWDOWN : 1;
}

/* --- Placement --- */

/* Return when all that an instance needs is on @device, if transfers begin at @from_ns or later. */
static double arrival_ns(const struct engine *engine, uint32_t instance, uint32_t device,
			 double from_ns)
{
	const struct place_graph *graph = engine->graph;
	const uint32_t node = node_of(engine, instance), base = instance - node;
	double latest_ns = 0;

	for (uint32_t e = graph->first[node]; e < graph->first[node + 1]; e++) {
		const struct instance *before = &engine->instances[base + graph->from[e]];
		const double begin_ns = fmax(before->end_ns, from_ns);

		latest_ns = fmax(latest_ns, begin_ns + (double)place_graph_transfer_ns(
							       graph, e, before->device, device));
	}
	return latest_ns;
}

static bool is_before(const struct engine *engine, uint32_t a, uint32_t b)
{
	const uint32_t n = engine->graph->n_nodes;

	if (a / n != b / n)
		return a < b;
	return engine->place[a % n] < engine->place[b % n];
}

/* Predict the end of an instance on a device, behind those that go before it. */
static double predict_ns(const struct engine *engine, uint32_t instance, uint32_t device)
{
	const struct lane *lane = &engine->lanes[device];
	const bool is_told = engine->policy == GRAPH_OURS;
	const double factor = is_told ? contention(engine, device) : 1;
	const bool is_planned = is_told && engine->device[node_of(engine, instance)] == device;
	double ns = engine->now_ns;

	if (lane->running != IDLE)
		ns = fmax(ns, lane->predicted_end_ns);
	for (uint32_t i = 0; i < lane->n_queue; i++)
		if (lane->queue[i] != instance && is_before(engine, lane->queue[i], instance))
			ns += exec_ns(engine, node_of(engine, lane->queue[i]), device) * factor;
	return fmax(ns, arrival_ns(engine, instance, device, is_planned ? 0 : engine->now_ns)) +
	       exec_ns(engine, node_of(engine, instance), device) * factor;
}

/* Return what advice adds to the completion of a node on a device. */
static double advised_ns(const struct engine *engine, uint32_t node, uint32_t device)
{
	const struct place_graph *graph = engine->graph;
	const size_t at = (size_t)node * graph->n_devices + device;
	const uint32_t n_in_flight = engine->n_begun - engine->n_ended;

	if (n_in_flight < 2)
		return (double)graph->bias_ns[at];
	return (double)(PLACE_STREAM_WEIGHT * (float)n_in_flight * graph->reduced_ns[at]);
}

static uint8_t choose(const struct engine *engine, uint32_t instance)
{
	const uint32_t node = node_of(engine, instance), n = engine->graph->n_devices;
	double least_ns = INFINITY;
	uint8_t best = 0;

	if (is_static(engine))
		return engine->device[node];
	for (uint32_t d = 0; d < n; d++) {
		double ns = predict_ns(engine, instance, d);

		if (engine->policy == GRAPH_OURS)
			ns += advised_ns(engine, node, d);
		if (ns < least_ns) {
			least_ns = ns;
			best = (uint8_t)d;
		}
	}
	return best;
}

/* Queue an instance on a device, to which its transfers begin. */
static void put(struct engine *engine, uint32_t instance, uint8_t device)
{
	struct instance *of = &engine->instances[instance];
	const struct place_graph *graph = engine->graph;
	const uint32_t node = node_of(engine, instance);
	struct lane *lane = &engine->lanes[device];
	const bool is_known = engine->policy != GRAPH_DMDAS && engine->device[node] == device;

	of->device = device;
	of->arrival_ns = arrival_ns(engine, instance, device, is_known ? 0 : engine->now_ns);
	for (uint32_t e = graph->first[node]; e < graph->first[node + 1]; e++) {
		const uint8_t from = engine->instances[instance - node + graph->from[e]].device;

		if (from == device)
			continue;
		engine->result->moved_bytes += (double)graph->edge_bytes[e];
		engine->result->link_bytes[from][device] += (double)graph->edge_bytes[e];
	}
	lane->queue[lane->n_queue++] = instance;
}

static void take_out(struct lane *lane, uint32_t i)
{
	lane->queue[i] = lane->queue[--lane->n_queue];
}

static void make_ready(struct engine *engine, uint32_t instance)
{
	put(engine, instance, choose(engine, instance));
}

static void begin_tasks(struct engine *engine)
{
	const struct place_graph *graph = engine->graph;

	while (engine->n_begun < engine->run->n_tasks &&
	       engine->n_begun - engine->n_ended < engine->run->n_in_flight) {
		const uint32_t base = engine->n_begun * graph->n_nodes;

		engine->begun_ns[engine->n_begun++] = engine->now_ns;
		for (uint32_t i = 0; i < graph->n_nodes; i++)
			engine->instances[base + i].n_needed =
				(uint16_t)(graph->first[i + 1] - graph->first[i]);
		for (uint32_t i = 0; i < graph->n_nodes; i++)
			if (engine->instances[base + i].n_needed == 0)
				make_ready(engine, base + i);
	}
}

/* Return when the schedule has an instance's end. */
static double planned_ns(const struct engine *engine, uint32_t instance)
{
	return engine->begun_ns[instance / engine->graph->n_nodes] +
	       (double)engine->graph->end_ns[node_of(engine, instance)];
}

/* An idle device looks for a queued node that is late, and ends earlier here. */
static bool take_over(struct engine *engine, uint32_t device)
{
	const uint32_t n = engine->graph->n_devices;
	struct lane *from = NULL;
	double most_ns = 0;
	uint32_t which = 0, which_instance;

	for (uint32_t d = 0; d < n; d++) {
		struct lane *lane = &engine->lanes[d];

		for (uint32_t i = 0; d != device && i < lane->n_queue; i++) {
			const uint32_t instance = lane->queue[i], node = node_of(engine, instance);
			const double ns = exec_ns(engine, node, d), margin_ns = LATE * ns;
			const double there_ns = predict_ns(engine, instance, d);
			double gain_ns;

			if (isinf(exec_ns(engine, node, device)) ||
			    engine->now_ns + ns <= planned_ns(engine, instance) + margin_ns)
				continue;
			gain_ns = there_ns - predict_ns(engine, instance, device) - margin_ns;
			if (gain_ns > most_ns) {
				most_ns = gain_ns;
				from = lane;
				which = i;
			}
		}
	}
	if (!from)
		return false;
	which_instance = from->queue[which];
	take_out(from, which);
	put(engine, which_instance, (uint8_t)device);
	return true;
}

/* --- Devices --- */

static void start(struct engine *engine, uint32_t device, uint32_t i)
{
	struct lane *lane = &engine->lanes[device];
	const uint32_t instance = lane->queue[i], node = node_of(engine, instance);
	const double predicted_ns = exec_ns(engine, node, device);
	const double noise = draw_factor(engine->run->truth.seed, DRAW_NOISE, instance, device,
					 engine->run->truth.noise);

	take_out(lane, i);
	lane->running = instance;
	lane->n_started++;
	lane->end_ns = engine->now_ns + predicted_ns * noise * contention(engine, device);
	lane->predicted_end_ns = engine->now_ns + predicted_ns * contention(engine, device);
	engine->result->busy_ns[device] += lane->end_ns - engine->now_ns;
	if (engine->result->n_run[device]++ == 0)
		engine->result->first_ns[device] = engine->now_ns;
	engine->result->last_ns[device] = lane->end_ns;
	if (engine->run->events)
		engine->run->events[engine->n_events++] = (struct graph_event){
			engine->now_ns, lane->end_ns, instance / engine->graph->n_nodes,
			(uint16_t)node, (uint8_t)device};
}

/* Return true if a static schedule has the instance next on its device. Tasks follow each other. */
static bool is_next(const struct engine *engine, const struct lane *lane, uint32_t instance)
{
	return instance / engine->graph->n_nodes == lane->n_started / lane->n_planned &&
	       node_of(engine, instance) == lane->planned[lane->n_started % lane->n_planned];
}

/* Start a node on an idle device. Return: INFINITY; if none has come: when the next one comes. */
static double start_next(struct engine *engine, uint32_t device)
{
	struct lane *lane = &engine->lanes[device];
	uint32_t best = IDLE;
	double next_ns = INFINITY;

	for (uint32_t i = 0; i < lane->n_queue; i++) {
		const uint32_t instance = lane->queue[i];

		if (is_static(engine) && !is_next(engine, lane, instance))
			continue;
		if (engine->instances[instance].arrival_ns > engine->now_ns)
			next_ns = fmin(next_ns, engine->instances[instance].arrival_ns);
		else if (best == IDLE || is_before(engine, instance, lane->queue[best]))
			best = i;
	}
	if (best == IDLE)
		return next_ns;
	start(engine, device, best);
	return INFINITY;
}

static void finish(struct engine *engine, struct lane *lane)
{
	const struct place_graph *graph = engine->graph;
	const uint32_t instance = lane->running, node = node_of(engine, instance);
	const uint32_t base = instance - node, task = instance / graph->n_nodes;

	lane->running = IDLE;
	engine->instances[instance].end_ns = engine->now_ns;
	for (uint32_t e = engine->to_first[node]; e < engine->to_first[node + 1]; e++)
		if (--engine->instances[base + engine->to[e]].n_needed == 0)
			make_ready(engine, base + engine->to[e]);
	if (--engine->n_left[task] == 0)
		engine->n_ended++;
}

static void run_all(struct engine *engine)
{
	const uint32_t n = engine->graph->n_devices;

	while (engine->n_ended < engine->run->n_tasks) {
		double next_ns = INFINITY;

		for (uint32_t d = 0; d < n; d++)
			advance_phase(engine, d);
		begin_tasks(engine);
		for (uint32_t d = 0; d < n; d++) {
			struct lane *lane = &engine->lanes[d];

			if (lane->running == IDLE)
				next_ns = fmin(next_ns, start_next(engine, d));
			if (engine->policy == GRAPH_OURS && lane->running == IDLE &&
			    lane->n_queue == 0 && take_over(engine, d))
				next_ns = fmin(next_ns, start_next(engine, d));
			if (lane->running != IDLE)
				next_ns = fmin(next_ns, lane->end_ns);
		}
		engine->now_ns = fmax(next_ns, engine->now_ns);
		for (uint32_t d = 0; d < n; d++)
			if (engine->lanes[d].running != IDLE &&
			    engine->lanes[d].end_ns <= engine->now_ns)
				finish(engine, &engine->lanes[d]);
	}
	engine->result->span_ns = engine->now_ns;
}

/* --- Set-up --- */

static void index_edges(struct engine *engine)
{
	const struct place_graph *graph = engine->graph;
	uint32_t *to_first = engine->to_first;

	for (uint32_t e = 0; e < graph->n_edges; e++)
		to_first[graph->from[e] + 1]++;
	for (uint32_t i = 0; i < graph->n_nodes; i++)
		to_first[i + 1] += to_first[i];
	for (uint32_t i = 0; i < graph->n_nodes; i++)
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++)
			engine->to[to_first[graph->from[e]]++] = i;
	for (uint32_t i = graph->n_nodes; i > 0; i--)
		to_first[i] = to_first[i - 1];
	to_first[0] = 0;
}

static int by_key(const void *a, const void *b, void *context)
{
	const uint16_t left = *(const uint16_t *)a, right = *(const uint16_t *)b;
	const float *keys = context;

	if (keys[left] < keys[right] || keys[left] > keys[right])
		return keys[left] < keys[right] ? -1 : 1;
	return left - right;
}

/* Have the policy's order follow @keys, the least first. */
static void order_by(struct engine *engine, float *keys)
{
	const uint32_t n = engine->graph->n_nodes;

	for (uint32_t i = 0; i < n; i++)
		engine->sequence[i] = (uint16_t)i;
	qsort_r(engine->sequence, n, sizeof(*engine->sequence), by_key, keys);
	for (uint32_t i = 0; i < n; i++)
		engine->place[engine->sequence[i]] = (uint16_t)i;
}

/* Compute negative upward ranks in means, as HEFT and dmdas have them. */
static void rank(const struct engine *engine, float *keys)
{
	const struct place_graph *graph = engine->graph;

	for (uint32_t i = graph->n_nodes; i-- > 0;) {
		float sum_ns = 0, after_ns = 0;
		uint32_t n = 0;

		for (uint32_t d = 0; d < graph->n_devices; d++)
			if (!isinf(exec_ns(engine, i, d))) {
				sum_ns += (float)exec_ns(engine, i, d);
				n++;
			}
		for (uint32_t e = engine->to_first[i]; e < engine->to_first[i + 1]; e++)
			after_ns = fmaxf(after_ns, -keys[engine->to[e]]);
		keys[i] = -(sum_ns / (float)n + after_ns);
	}
}

static int prepare_policy(struct engine *engine)
{
	struct place_graph *graph = engine->graph;
	_cleanup_(freep) float *keys = calloc(graph->n_nodes, sizeof(*keys));

	if (!keys)
		return error_origin(-ENOMEM);
	switch (engine->policy) {
	case GRAPH_OURS:
		for (uint32_t i = 0; i < graph->n_nodes; i++) {
			engine->place[graph->order[i]] = (uint16_t)i;
			engine->device[i] = graph->device[i];
		}
		return 0;
	case GRAPH_HEFT:
	case GRAPH_PEFT:
		place_graph_construct(
			graph, engine->policy == GRAPH_HEFT ? PLACE_GRAPH_HEFT : PLACE_GRAPH_PEFT,
			keys, engine->device);
		break;
	default:
		rank(engine, keys);
	}
	order_by(engine, keys);
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		struct lane *lane = &engine->lanes[engine->device[engine->sequence[i]]];

		lane->planned[lane->n_planned++] = engine->sequence[i];
	}
	return 0;
}

static void deinit(struct engine *engine)
{
	for (uint32_t d = 0; d < PLACE_GRAPH_DEVICES; d++) {
		free(engine->lanes[d].queue);
		free(engine->lanes[d].planned);
	}
	free(engine->instances);
	free(engine->begun_ns);
	free(engine->n_left);
	free(engine->to_first);
	free(engine->to);
	free(engine->place);
	free(engine->sequence);
	free(engine->device);
}

static int init(struct engine *engine)
{
	const struct graph_run *run = engine->run;
	const struct place_graph *graph = engine->graph;
	const size_t n = graph->n_nodes, n_all = n * run->n_tasks;
	double sum_ns = 0;
	uint32_t n_times = 0;

	engine->instances = calloc(n_all, sizeof(*engine->instances));
	engine->begun_ns = calloc(run->n_tasks, sizeof(*engine->begun_ns));
	engine->n_left = calloc(run->n_tasks, sizeof(*engine->n_left));
	engine->to_first = calloc(n + 1, sizeof(*engine->to_first));
	engine->to = calloc(graph->n_edges + 1, sizeof(*engine->to));
	engine->place = calloc(n, sizeof(*engine->place));
	engine->sequence = calloc(n, sizeof(*engine->sequence));
	engine->device = calloc(n, sizeof(*engine->device));
	if (!engine->instances || !engine->begun_ns || !engine->n_left || !engine->to_first ||
	    !engine->to || !engine->place || !engine->sequence || !engine->device)
		return error_origin(-ENOMEM);
	for (uint32_t d = 0; d < graph->n_devices; d++) {
		struct lane *lane = &engine->lanes[d];

		lane->running = IDLE;
		lane->is_slow = run->truth.is_contended;
		lane->queue = calloc(n_all, sizeof(*lane->queue));
		lane->planned = calloc(n, sizeof(*lane->planned));
		if (!lane->queue || !lane->planned)
			return error_origin(-ENOMEM);
	}
	for (uint32_t t = 0; t < run->n_tasks; t++)
		engine->n_left[t] = graph->n_nodes;
	for (size_t i = 0; i < n * graph->n_devices; i++)
		if (!isinf(graph->exec_ns[i])) {
			sum_ns += (double)graph->exec_ns[i];
			n_times++;
		}
	engine->mean_ns = fmax(sum_ns / fmax(n_times, 1), 1);
	index_edges(engine);
	return prepare_policy(engine);
}

int graph_run(const struct graph_run *run, enum graph_policy policy, struct graph_result *ret)
{
	struct engine engine = {.run = run, .graph = run->graph, .policy = policy, .result = ret};
	int r;

	*ret = (struct graph_result){0};
	r = init(&engine);
	if (r == 0)
		run_all(&engine);
	for (uint32_t i = 0; r == 0 && i < run->n_tasks * run->graph->n_nodes; i++)
		ret->n_left_plan +=
			policy == GRAPH_OURS &&
			engine.instances[i].device != engine.device[i % run->graph->n_nodes];
	deinit(&engine);
	return r;
}
