/* SPDX-License-Identifier: MIT */
/*
 * The placer: setup and reports
 *
 * Configuration comes from people: a value that makes no sense is replaced by the nearest valid one
 * here, once, so that decisions need no checks.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "place/placer-private.h"
#include "util/checked.h"
#include "util/error.h"

#define MAX_CONTENTION 100.0f
#define MAX_WINDOW     65536u

static float limited(float value, float min, float max, float instead)
{
	if (!isfinite(value))
		return instead;
	return value < min ? min : value > max ? max : value;
}

static uint32_t n_servers_of(const struct place_profile *profile)
{
	if (profile->n_servers < 1)
		return 1;
	return profile->n_servers < PLACE_MAX_SERVERS ? profile->n_servers : PLACE_MAX_SERVERS;
}

static void set_profile(struct place_device *device, const struct place_profile *profile)
{
	device->profile = profile ? *profile : (struct place_profile){0};
	device->is_known = device->profile.is_valid;
	device->n_servers = n_servers_of(&device->profile);
}

void placer_configure(struct placer *placer, const struct place_config *config)
{
	const struct place_config usual = PLACE_CONFIG_DEFAULT;
	struct place_config *own = &placer->config;

	*own = *config;
	if (own->window < 1)
		own->window = 1;
	if (own->window > MAX_WINDOW)
		own->window = MAX_WINDOW;
	own->speedup_threshold = limited(own->speedup_threshold, 0, 1e6f, usual.speedup_threshold);
	own->success_rate = limited(own->success_rate, 0, 1, usual.success_rate);
	own->exploration = limited(own->exploration, 0, 1, usual.exploration);
	own->partition_min_gain =
		limited(own->partition_min_gain, 0, 1e6f, usual.partition_min_gain);
	own->energy_slack = limited(own->energy_slack, 1, 1e6f, usual.energy_slack);
	if (own->submission_max_ns < 1)
		own->submission_max_ns = 1;
	if (own->strategy != RBK_STRATEGY_LATENCY && own->strategy != RBK_STRATEGY_ENERGY)
		own->strategy = RBK_STRATEGY_AUTO;
	placer_update(placer);
}

const struct place_config *placer_config(const struct placer *placer)
{
	return &placer->config;
}

int placer_new(const struct placer_options *options, struct placer **ret)
{
	_cleanup_(placer_freep) struct placer *placer = calloc(1, sizeof(*placer));
	int r;

	if (!placer)
		return error_origin(-ENOMEM);
	placer->n_devices = options->n_devices;
	placer->moved = options->moved;
	placer->context = options->context;
	list_init(&placer->plans);
	list_init(&placer->histories);
	r = place_slab_init(&placer->lines);
	if (r == 0)
		r = place_slab_init(&placer->rests);
	if (r)
		return error_fold(r);
	for (uint32_t i = 0; i < placer->n_devices; i++) {
		struct place_device *device = &placer->devices[i];

		set_profile(device, options->profiles[i]);
		device->contention = device->slowdown = device->most_contention = 1;
		place_queue_init(&device->queue, &device->profile);
	}
	placer_configure(placer, &options->config);
	*ret = steal_ptr(placer);
	return 0;
}

struct placer *placer_free(struct placer *placer)
{
	if (!placer)
		return NULL;
	list_for_each_safe (node, &placer->histories)
		free(container_of(node, struct place_history, link));
	place_slab_deinit(&placer->lines);
	place_slab_deinit(&placer->rests);
	free(placer->saved);
	free(placer);
	return NULL;
}

void placer_set_profile(struct placer *placer, uint8_t device, const struct place_profile *profile)
{
	if (device >= placer->n_devices)
		return;
	set_profile(&placer->devices[device], profile);
	place_queue_set_profile(&placer->devices[device].queue, profile,
				placer->devices[device].n_in_use);
	/* Ratios are of the old profile. */
	place_estimate_forget(placer, NULL);
	list_for_each (node, &placer->plans)
		place_plan_derive(placer, container_of(node, struct place_history, link), device);
}

const struct place_profile *placer_profile(const struct placer *placer, uint8_t device)
{
	return &placer->devices[device].profile;
}

void placer_set_contention(struct placer *placer, uint8_t device, float factor, uint64_t now_ns)
{
	struct place_device *of;

	if (device >= placer->n_devices)
		return;
	of = &placer->devices[device];
	factor = limited(factor, 1, MAX_CONTENTION, factor > 0 ? MAX_CONTENTION : 1);
	if (factor > PLACE_MILD_CONTENTION && of->contention <= PLACE_MILD_CONTENTION)
		place_estimate_undo(placer, device, now_ns);
	of->contention = factor;
	if (factor >= of->most_contention) {
		of->most_contention = factor;
		of->fell_ns = 0;
	} else if (of->fell_ns && factor > of->fallen_to) {
		of->fallen_to = factor;
	}
	place_device_update(of);
	placer->is_contended = false;
	for (uint32_t i = 0; i < placer->n_devices; i++)
		placer->is_contended |= placer->devices[i].contention > 1;
}

void placer_limit_servers(struct placer *placer, uint8_t device, uint32_t n_servers)
{
	struct place_device *of;

	if (device >= placer->n_devices)
		return;
	of = &placer->devices[device];
	of->n_in_use = n_servers < of->n_servers ? n_servers : 0;
	place_queue_set_profile(&of->queue, &of->profile, of->n_in_use);
}

bool placer_is_needed(struct placer *placer, uint8_t device)
{
	struct place_queue *queue;
	bool was_needed;

	if (device >= placer->n_devices)
		return false;
	queue = &placer->devices[device].queue;
	was_needed = queue->was_needed || queue->n_without_choice > 0;
	queue->was_needed = false;
	return was_needed;
}

void placer_set_drained(struct placer *placer, uint8_t device, bool is_drained)
{
	if (is_drained)
		placer->drained |= 1u << device;
	else
		placer->drained &= ~(1u << device);
	placer_update(placer);
}

bool placer_is_drained(const struct placer *placer, uint8_t device)
{
	return placer->drained >> device & 1;
}

void placer_reset_device(struct placer *placer, uint8_t device)
{
	struct place_device *on;
	uint64_t n_opened;

	if (device >= placer->n_devices)
		return;
	on = &placer->devices[device];
	n_opened = on->breaker.n_opened;
	on->breaker = (struct place_breaker_state){.n_opened = n_opened};
	on->results = (struct place_results){0};
	list_for_each (node, &placer->plans) {
		struct place_history *history = container_of(node, struct place_history, link);

		history->records[device].breaker = (struct place_breaker_state){0};
		place_plan_set_broken(history->place_plan,
				      history->place_plan->rest->broken & ~(1u << device));
	}
	placer_update(placer);
}

void placer_device_report(const struct placer *placer, uint8_t device, uint64_t now_ns,
			  struct place_device_report *ret)
{
	const struct place_device *on = &placer->devices[device];
	double executed_ns = 0;

	for (uint32_t i = 0; i < placer->n_devices; i++)
		executed_ns += placer->devices[i].executed_ns;
	*ret = (struct place_device_report){
		.breaker = (enum place_breaker)on->breaker.state,
		.success_rate = place_results_rate(&on->results),
		.n_opened = on->breaker.n_opened,
		.backlog_ns = place_queue_backlog_ns(placer, device, now_ns),
		.n_queued = on->queue.n_queued,
		.n_released = on->queue.n_released,
		.contention = (double)on->contention,
		.explored_share = executed_ns > 0 ? on->explored_ns / executed_ns : 0,
	};
}
