/* SPDX-License-Identifier: MIT */
/*
 * Knowledge about plans: priors, histories, reports
 *
 * Priors are computed from the plan's works at each bucket's edges once, when a plan or a better
 * profile arrives; in between they are straight lines. A freed plan's history is kept for a while,
 * for a client that comes back; a new plan of the same fingerprint and shape takes it over, or else
 * one that an earlier broker has saved (saved.c).
 */
#include <errno.h>
#include <stdlib.h>

#include "place/placer-private.h"
#include "shm/number.h"
#include "util/checked.h"
#include "util/error.h"

/* --- Priors --- */

static double link_ns(const struct place_profile *profile, const struct plan *plan, double count)
{
	double ns = 0;

	if (!(profile->up_bytes_per_ns > 0) || !(profile->down_bytes_per_ns > 0))
		return 0;
	for (uint16_t i = 0; i < plan->n_bindings; i++) {
		const struct plan_binding *binding = &plan->bindings[i];
		double bytes = (double)binding->fixed_bytes + (double)binding->row_bytes * count;
		bool is_state =
			plan->tensors && plan->tensors[binding->tensor].kind == RBK_TENSOR_STATE;

		if (!binding->written || is_state)
			ns += (double)profile->link_ns + bytes / (double)profile->up_bytes_per_ns;
		if (binding->written)
			ns += (double)profile->link_ns + bytes / (double)profile->down_bytes_per_ns;
	}
	return ns;
}

/* Predicted time of one task, and of all servers for it together, in ns. */
struct prior {
	double exec_ns, work_ns;
};

/* Add @n nodes whose total cost is @cost. */
static void prior_add(struct prior *prior, const struct place_profile *profile,
		      enum op_family family, const struct cost *cost, double n, double count)
{
	double work_ns;

	prior->exec_ns += place_profile_cost_ns(profile, family, cost, n, count, &work_ns);
	prior->work_ns += work_ns;
}

/*
 * Predict a task of @count rows. @ret_work_ns: the time of all servers together.
 * Return: the execution.
 */
static double prior_ns(const struct place_profile *profile, const struct plan *plan, uint8_t device,
		       double count, double *ret_work_ns)
{
	double begin_ns = (double)profile->task_ns;
	struct prior prior;

	if (plan->n_parts[device] > 1)
		begin_ns *= plan->n_parts[device];
	if (!(begin_ns >= 0))
		begin_ns = 0;
	prior.exec_ns = prior.work_ns = begin_ns + link_ns(profile, plan, count);
	for (uint32_t i = 0; i < plan->n_works; i++)
		prior_add(&prior, profile, plan->works[i].family, &plan->works[i].cost,
			  plan->works[i].n, count);
	for (uint32_t i = 0; !plan->works && i < plan->n_nodes; i++)
		if (plan->nodes[i].computed_by == PLAN_NO_NODE)
			prior_add(&prior, profile, plan->nodes[i].op->family, &plan->nodes[i].cost,
				  1, count);
	*ret_work_ns = prior.work_ns;
	return prior.exec_ns;
}

/* Return the least count of a bucket, which is its lower edge. */
static double edge(uint32_t bucket)
{
	const uint32_t n = 1u << PLACE_BUCKET_BITS;

	return (double)(1ull << bucket / n) * (1 + (double)(bucket % n) / n);
}

/* Return the prior work in the middle of a bucket. */
static float prior_work_ns(const struct place_estimate *estimate)
{
	return (estimate->prior_base_ns + estimate->prior_slope_ns / 2) * estimate->prior_servers;
}

void place_plan_derive(struct placer *placer, struct place_history *history, uint8_t device)
{
	const struct place_device *on = &placer->devices[device];
	const struct plan *plan = history->place_plan->plan;
	double low_ns, high_ns, low_work_ns, high_work_ns;
	float before_ns, after_ns;

	low_ns = prior_ns(&on->profile, plan, device, edge(0), &low_work_ns);
	for (uint32_t i = 0; i < history->n_buckets; i++) {
		struct place_estimate *estimate =
			&history->estimates[i * history->n_devices + device];

		before_ns = prior_work_ns(estimate);
		high_ns = prior_ns(&on->profile, plan, device, edge(i + 1), &high_work_ns);
		estimate->prior_servers =
			(float)((low_work_ns + high_work_ns) / (low_ns + high_ns));
		estimate->prior_base_ns = place_clamp_ns((float)low_ns);
		estimate->prior_slope_ns = place_clamp_ns((float)high_ns) - estimate->prior_base_ns;
		/* The new prior must not change the observed times: adapt the ratios. */
		after_ns = prior_work_ns(estimate);
		if (estimate->n) {
			estimate->ratio *= before_ns / after_ns;
			for (uint32_t k = 0; k < PLACE_TRUST; k++)
				estimate->first[k] *= before_ns / after_ns;
		}
		low_ns = high_ns;
		low_work_ns = high_work_ns;
	}
	place_estimate_show_all(history->place_plan, device, on->is_known);
}

/* --- Histories --- */

static size_t history_bytes(uint32_t n_buckets, uint32_t n_devices)
{
	return sizeof(struct place_history) + n_devices * sizeof(struct place_record) +
	       (size_t)n_buckets * n_devices * sizeof(struct place_estimate);
}

static struct place_history *history_new(uint32_t n_buckets, uint32_t n_devices)
{
	struct place_history *history = calloc(1, history_bytes(n_buckets, n_devices));

	if (!history)
		return NULL;
	history->n_buckets = n_buckets;
	history->n_devices = n_devices;
	history->records = (struct place_record *)(history + 1);
	history->estimates = (struct place_estimate *)(history->records + n_devices);
	return history;
}

static struct place_history *take_history(struct placer *placer, uint64_t fingerprint,
					  uint32_t n_buckets)
{
	if (!fingerprint)
		return NULL;
	/* Newest first: it knows most. */
	for (struct list_node *node = placer->histories.prev; node != &placer->histories;
	     node = node->prev) {
		struct place_history *history = container_of(node, struct place_history, link);

		if (history->fingerprint != fingerprint || history->n_buckets != n_buckets)
			continue;
		list_remove(node);
		placer->n_histories--;
		return history;
	}
	return NULL;
}

static void history_free(struct placer *placer, struct place_history *history)
{
	place_estimate_forget(placer, history);
	free(history);
}

static void keep_history(struct placer *placer, struct place_history *history)
{
	list_remove(&history->link);
	history->place_plan = NULL;
	if (!history->fingerprint || !history->n_done) {
		history_free(placer, history);
		return;
	}
	for (uint32_t i = 0; i < history->n_devices; i++) {
		history->records[i].is_exploring = false;
		history->records[i].breaker = (struct place_breaker_state){0};
	}
	list_append(&placer->histories, &history->link);
	if (++placer->n_histories <= PLACE_MAX_HISTORIES)
		return;
	history = container_of(placer->histories.next, struct place_history, link);
	list_remove(&history->link);
	placer->n_histories--;
	history_free(placer, history);
}

static uint32_t count_buckets(const struct plan *plan)
{
	const struct place_plan all = {.n_buckets = PLACE_MAX_BUCKETS};

	return place_spot(&all, plan->max_count).bucket + 1;
}

/* Return the kind with as many entries as the next power of two of buckets has. */
static unsigned int kind_of_rest(uint32_t n_buckets)
{
	unsigned int kind = 0;

	while (1u << kind < n_buckets)
		kind++;
	return kind;
}

/* Compute the bytes before the gates. */
static size_t entries_bytes(uint32_t n_buckets, uint32_t n_devices)
{
	size_t n = (size_t)n_devices << kind_of_rest(n_buckets);

	_Static_assert(sizeof(struct place_rest) % _Alignof(struct place_gate) == 0 &&
			       sizeof(struct place_entry) % _Alignof(struct place_gate) == 0,
		       "gates follow entries");
	return sizeof(struct place_rest) + n * sizeof(struct place_entry);
}

/* Return the bytes of a struct place_rest, a multiple of its alignment. */
static size_t rest_bytes(uint32_t n_buckets, uint32_t n_devices)
{
	size_t bytes = entries_bytes(n_buckets, n_devices) + n_devices * sizeof(struct place_gate);

	return round_up(bytes, 64);
}

uint64_t place_plan_bytes(const struct placer *placer, const struct plan *plan)
{
	uint32_t n_buckets = count_buckets(plan);

	return sizeof(struct place_plan) + rest_bytes(n_buckets, placer->n_devices) +
	       history_bytes(n_buckets, placer->n_devices);
}

void place_plan_configure(const struct placer *placer, struct place_plan *place_plan)
{
	const struct plan *plan = place_plan->plan;
	uint64_t threshold_bytes = placer->config.threshold_bytes, count;

	if (plan->touched_fixed >= threshold_bytes)
		count = 0;
	else if (plan->touched_row == 0)
		count = UINT32_MAX;
	else
		count = 1 + (threshold_bytes - plan->touched_fixed - 1) / plan->touched_row;
	if (place_plan->is_dynamic && count < placer->config.min_count)
		count = placer->config.min_count;
	place_plan->below_count = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

static int make_plan(struct placer *placer, const struct plan *plan, uint32_t n_buckets,
		     struct place_plan *place_plan)
{
	struct place_history *history;
	struct place_rest *rest;

	rest = place_slab_take(&placer->rests, kind_of_rest(n_buckets),
			       rest_bytes(n_buckets, placer->n_devices));
	if (!rest)
		return error_origin(-ENOMEM);
	history = take_history(placer, plan->fingerprint, n_buckets);
	if (!history) {
		history = history_new(n_buckets, placer->n_devices);
		if (history)
			place_saved_take(placer, plan->fingerprint, history);
	}
	if (!history) {
		place_slab_give(&placer->rests, kind_of_rest(n_buckets), rest);
		return error_origin(-ENOMEM);
	}
	*rest = (struct place_rest){
		.history = history,
		.gates = (void *)((char *)rest + entries_bytes(n_buckets, placer->n_devices)),
	};
	for (uint32_t i = 0; i < placer->n_devices; i++)
		rest->gates[i] = (struct place_gate){.n_slots = &plan->n_slots[i]};
	*place_plan = (struct place_plan){
		.plan = plan,
		.rest = rest,
		.n_buckets = (uint8_t)n_buckets,
		.near_bucket = UINT16_MAX,
		.wish_bucket = UINT16_MAX,
		.n_devices = (uint8_t)placer->n_devices,
		.is_dynamic = plan->max_count > 1,
		.is_pinned = plan->pinned,
	};
	history->place_plan = place_plan;
	history->fingerprint = plan->fingerprint;
	list_append(&placer->plans, &history->link);
	return 0;
}

void placer_prepare(struct placer *placer)
{
	place_slab_prepare(&placer->lines);
	place_slab_prepare(&placer->rests);
}

int place_plan_new(struct placer *placer, const struct plan *plan, struct place_plan **ret)
{
	struct place_plan *place_plan =
		place_slab_take(&placer->lines, 0, sizeof(struct place_plan));
	int r;

	if (!place_plan)
		return error_origin(-ENOMEM);
	r = make_plan(placer, plan, count_buckets(plan), place_plan);
	if (r) {
		place_slab_give(&placer->lines, 0, place_plan);
		return error_fold(r);
	}
	place_plan_set_broken(place_plan, 0);
	place_plan_configure(placer, place_plan);
	for (uint32_t i = 0; i < placer->n_devices; i++)
		place_plan_derive(placer, place_plan->rest->history, (uint8_t)i);
	*ret = place_plan;
	return 0;
}

struct place_plan *place_plan_free(struct placer *placer, struct place_plan *place_plan)
{
	if (!place_plan)
		return NULL;
	for (uint32_t i = 0; i < placer->n_devices; i++)
		place_results_forget(&placer->devices[i].results, place_plan);
	keep_history(placer, place_plan->rest->history);
	place_slab_give(&placer->rests, kind_of_rest(place_plan->n_buckets), place_plan->rest);
	place_slab_give(&placer->lines, 0, place_plan);
	return NULL;
}

void place_plan_reset(struct placer *placer, struct place_plan *place_plan)
{
	struct place_history *history = place_plan->rest->history;

	place_estimate_forget(placer, history);
	memset(history->records, 0, history->n_devices * sizeof(*history->records));
	/* Priors stay: deriving them takes time for each node of the plan. */
	for (uint32_t i = 0; i < history->n_buckets * history->n_devices; i++) {
		struct place_estimate *estimate = &history->estimates[i];

		*estimate = (struct place_estimate){
			.prior_base_ns = estimate->prior_base_ns,
			.prior_slope_ns = estimate->prior_slope_ns,
			.prior_servers = estimate->prior_servers,
		};
	}
	history->n_done = history->wished = 0;
	history->budget_ns = 0;
	place_plan->wish_bucket = UINT16_MAX;
	place_plan_set_broken(place_plan, 0);
	for (uint32_t i = 0; i < history->n_devices; i++)
		place_estimate_show_all(place_plan, (uint8_t)i, placer->devices[i].is_known);
}

/* --- Reports --- */

/*
 * Return the least count in [@low, @high] of a bucket at which the device is faster than the CPU;
 * 0: none.
 */
static uint32_t crossing(const struct placer *placer, const struct place_plan *place_plan,
			 uint8_t device, uint32_t low, uint32_t high)
{
	uint32_t middle;

	if (place_predict_ns(placer, place_plan, device, low) <
	    place_predict_ns(placer, place_plan, RBK_DEVICE_CPU, low))
		return low;
	if (place_predict_ns(placer, place_plan, device, high) >=
	    place_predict_ns(placer, place_plan, RBK_DEVICE_CPU, high))
		return 0;
	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (place_predict_ns(placer, place_plan, device, middle) <
		    place_predict_ns(placer, place_plan, RBK_DEVICE_CPU, middle))
			high = middle;
		else
			low = middle;
	}
	return high;
}

static uint32_t break_even(const struct placer *placer, const struct place_plan *place_plan,
			   uint8_t device)
{
	uint32_t max_count = place_plan->plan->max_count, low, high, count;

	if (device == RBK_DEVICE_CPU)
		return 0;
	for (uint32_t i = 0; i < place_plan->n_buckets; i++) {
		/* Buckets of the first octave may contain no whole number. */
		double first = edge(i), next = edge(i + 1);

		low = (uint32_t)first + ((double)(uint32_t)first < first);
		high = next > max_count ? max_count
					: (uint32_t)next - ((double)(uint32_t)next >= next);
		if (low > high || low < 1)
			continue;
		count = crossing(placer, place_plan, device, low, high);
		if (count)
			return count;
	}
	return 0;
}

void place_plan_report(const struct placer *placer, const struct place_plan *place_plan,
		       uint8_t device, uint32_t count, struct place_report *ret)
{
	const struct place_record *record = &place_plan->rest->history->records[device];
	struct place_spot spot = place_spot(place_plan, count);
	const struct place_entry *entry = place_entry(place_plan, spot.bucket, device);
	double exec_ns = (double)place_predict_ns(placer, place_plan, device, count);
	double contention = (double)place_felt(entry, placer->devices[device].contention);

	*ret = (struct place_report){
		.n_done = record->n_done,
		.n_failed = record->n_failed,
		.n_explored = record->n_explored,
		.exec_ns = exec_ns,
		.contention = contention,
		.spread = entry->spread / 1024.0,
		.is_trusted = entry->flags & PLACE_ENTRY_TRUSTED,
		.mean_ns = record->mean_ns,
		.mean_error = record->mean_error,
		.speedup = (double)place_predict_ns(placer, place_plan, RBK_DEVICE_CPU, count) /
			   exec_ns,
		.break_even = break_even(placer, place_plan, device),
	};
}
