/* SPDX-License-Identifier: MIT */
/*
 * The engine of brokerd in virtual time
 *
 * This policy does what brokerd's dispatcher does around the placer: one flow per tenant, one plan
 * per tenant and plan, one decision per task. Released parts are cut into submissions of bounded
 * length, and the remaining rows are queued again when a submission ends. Split tasks have two
 * parts. Failed parts run again on the CPU and are bound to it. The engine sees the simulation's
 * clock.
 */
#include "policies.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "judge.h"
#include "place/placer.h"
#include "place/schedule.h"
#include "util/checked.h"
#include "util/error.h"

/*
 * Most urgent submissions in a row, as in brokerd's dispatcher; the row ends when a submission that
 * is not urgent has ended.
 */
enum { MAX_URGENT = 8 };

struct ours {
	struct placer *placer;
	struct place_flow **flows;          /* by tenant */
	struct place_plan **plans;          /* by tenant and plan */
	uint32_t *n_held[SCENARIO_DEVICES]; /* by tenant: submissions held by the device */
	uint32_t n_all_held[SCENARIO_DEVICES];
	uint32_t n_urgent[SCENARIO_DEVICES]; /* urgent submissions in a row */
	bool looks;                          /* looks at run queues */
	struct judge judge;
};

static uint64_t now_of(const struct sim *sim)
{
	/* Virtual time begins at 1 s, so that no time is 0, which could be mistaken for "none". */
	return 1000000000ull + (uint64_t)sim->now_ns;
}

static struct place_plan *plan_of(const struct sim *sim, const struct sim_task *task)
{
	const struct ours *ours = sim->state;

	return ours->plans[(size_t)task->tenant * sim->world->scenario->n_plans + task->plan];
}

static void moved(void *context, struct place_task *place, uint8_t from)
{
	struct sim_part *part = container_of(place, struct sim_part, place);
	struct sim *sim = context;

	sim->n_moved++;
	device_unassign(&sim->devices[from], part);
	device_assign(&sim->devices[place->decision.device], part, sim->now_ns);
}

static void end_ours(struct sim *sim)
{
	const struct scenario *scenario = sim->world->scenario;
	struct ours *ours = sim->state;
	size_t n_plans = (size_t)scenario->n_tenants * scenario->n_plans;

	if (!ours)
		return;
	for (size_t i = 0; ours->plans && i < n_plans; i++) {
		if (ours->plans[i])
			place_plan_free(ours->placer, ours->plans[i]);
	}
	for (uint32_t i = 0; ours->flows && i < scenario->n_tenants; i++) {
		if (ours->flows[i])
			place_flow_free(ours->placer, ours->flows[i]);
	}
	placer_free(ours->placer);
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		free(ours->n_held[d]);
	free(ours->flows);
	free(ours->plans);
	free(ours);
	sim->state = NULL;
}

static int make_ours(struct sim *sim, struct ours *ours)
{
	const struct scenario *scenario = sim->world->scenario;
	struct placer_options options = {
		.config = scenario->config,
		.n_devices = SCENARIO_DEVICES,
		.moved = moved,
		.context = sim,
	};
	int r;

	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
		options.profiles[d] = &scenario->profiles[d];
		ours->n_held[d] = calloc(scenario->n_tenants, sizeof(uint32_t));
		if (!ours->n_held[d])
			return error_origin(-ENOMEM);
	}
	r = placer_new(&options, &ours->placer);
	if (r)
		return error_fold(r);
	ours->flows = calloc(scenario->n_tenants, sizeof(struct place_flow *));
	ours->plans = calloc((size_t)scenario->n_tenants * scenario->n_plans,
			     sizeof(struct place_plan *));
	if (!ours->flows || !ours->plans)
		return error_origin(-ENOMEM);
	for (uint32_t t = 0; t < scenario->n_tenants; t++) {
		const struct scenario_tenant *tenant = &scenario->tenants[t];
		struct place_flow_limits limits = {.weight = tenant->weight,
						   .priority_max = RBK_PRIORITY_URGENT,
						   .cpu_max = tenant->cpu_max};

		r = place_flow_new(ours->placer, &limits, &ours->flows[t]);
		for (uint32_t p = 0; !r && p < scenario->n_plans; p++) {
			if (tenant->shares[p] > 0 || scenario->n_trace)
				r = place_plan_new(ours->placer, sim->world->plans[p],
						   &ours->plans[(size_t)t * scenario->n_plans + p]);
		}
		if (r)
			return error_fold(r);
	}
	return 0;
}

static int begin_ours(struct sim *sim)
{
	int r;

	sim->state = calloc(1, sizeof(struct ours));
	if (!sim->state)
		return error_origin(-ENOMEM);
	r = make_ours(sim, sim->state);
	if (r) {
		end_ours(sim);
		return error_fold(r);
	}
	((struct ours *)sim->state)->looks =
		sim->world->scenario->has_hogs && sim->policy != &policy_ours_unaware;
	judge_init(&((struct ours *)sim->state)->judge, sim);
	return 0;
}

static struct sim_choice decide_ours(struct sim *sim, struct sim_task *task)
{
	const struct scenario_tenant *tenant = &sim->world->scenario->tenants[task->tenant];
	struct ours *ours = sim->state;
	struct sim_choice choice;
	struct place_request request = {
		.count = task->count,
		.strategy = tenant->strategy,
		.flags = tenant->may_partition ? PLACE_MAY_PARTITION : 0,
		.deadline_ns = (uint64_t)tenant->deadline_ns,
	};
	struct place_decision decision = place_decide(
		ours->placer, plan_of(sim, task), ours->flows[task->tenant], request, now_of(sim));

	choice = (struct sim_choice){.device = decision.device,
				     .reason = decision.reason,
				     .split_count = decision.split_count,
				     .decision = decision};
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		choice.wait_ns[d] = (float)place_flow_wait_ns(
			ours->placer, ours->flows[task->tenant], (uint8_t)d, now_of(sim));
	return choice;
}

/* Queue the rows of a part that have not begun. */
static void enqueue(struct sim *sim, struct sim_part *part)
{
	struct ours *ours = sim->state;
	struct place_task *place = &part->place;

	place->count = part->n_rows - part->n_begun;
	part->n_cut = place_rows_per_submission(ours->placer, place->place_plan,
						place->decision.device, place->count);
	place->decision.predicted_ns = place_predict_ns(ours->placer, place->place_plan,
							place->decision.device, place->count);
	/* One device runs all rows of a part, unless it fails. */
	if (part->n_begun)
		place->decision.flags |= PLACE_BOUND;
	place_enqueue(ours->placer, place, now_of(sim));
}

static void queue_ours(struct sim *sim, struct sim_task *task, const struct sim_choice *choice)
{
	const struct scenario_tenant *tenant = &sim->world->scenario->tenants[task->tenant];
	struct ours *ours = sim->state;

	for (unsigned int i = 0; i < task->n_parts; i++) {
		struct sim_part *part = &task->parts[i];
		uint8_t device = i ? RBK_DEVICE_CPU : choice->device;

		part->place = (struct place_task){
			.place_plan = plan_of(sim, task),
			.flow = ours->flows[task->tenant],
			.decision = choice->decision,
			.priority = tenant->priority,
			.admit_ns = now_of(sim),
			.deadline_ns = isinf(task->deadline_ns)
					       ? UINT64_MAX
					       : 1000000000ull + (uint64_t)task->deadline_ns,
		};
		part->place.decision.device = device;
		if (task->n_parts > 1)
			part->place.decision.flags |= PLACE_BOUND;
		sim_start_part(sim, task, i, device,
			       task->n_parts == 1 ? task->count
			       : i                ? task->count - choice->split_count
						  : choice->split_count);
		enqueue(sim, part);
	}
}

static uint32_t cut_ours(struct sim *sim, const struct sim_task *task, uint8_t device,
			 uint32_t n_rows)
{
	const struct ours *ours = sim->state;

	return place_rows_per_submission(ours->placer, plan_of(sim, task), device, n_rows);
}

/*
 * Release as many rows of a part as other tasks can wait for. A submission is urgent if its tenant
 * has none on the device while other tenants have some.
 */
static void release(struct sim *sim, struct place_task *place)
{
	struct sim_part *part = container_of(place, struct sim_part, place);
	struct ours *ours = sim->state;
	uint8_t device = place->decision.device;
	uint32_t *n_held = ours->n_held[device], tenant = part->task->tenant;

	part->n_now =
		place_rows_per_submission(ours->placer, place->place_plan, device, place->count);
	part->is_urgent = ours->n_all_held[device] > 0 && n_held[tenant] == 0 &&
			  ours->n_urgent[device] < MAX_URGENT;
	ours->n_urgent[device] += part->is_urgent;
	ours->n_all_held[device]++;
	n_held[tenant]++;
	device_release(&sim->devices[device], part);
}

static void release_all(struct sim *sim)
{
	struct ours *ours = sim->state;
	struct place_task *place;

	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
		while ((place = place_next(ours->placer, (uint8_t)d, now_of(sim))))
			release(sim, place);
	}
}

static void look(struct sim *sim)
{
	struct ours *ours = sim->state;
	const struct contention_verdict *verdict = judge_look(&ours->judge, sim);

	sim->n_flips += verdict->has_begun + verdict->has_ended;
	placer_set_contention(ours->placer, RBK_DEVICE_CPU, verdict->factor, now_of(sim));
	placer_limit_servers(ours->placer, RBK_DEVICE_CPU, verdict->n_workers);
	sim->devices[RBK_DEVICE_CPU].n_in_use = verdict->n_workers;
	sim->world->n_workers = verdict->n_workers;
	judge_count(&ours->judge, sim);
}

static void pump_ours(struct sim *sim)
{
	struct ours *ours = sim->state;

	if (ours->looks && sim->now_ns >= ours->judge.next_ns)
		look(sim);
	release_all(sim);
	if (place_rebalance(ours->placer, now_of(sim)) > 0)
		release_all(sim);
}

static bool ended_ours(struct sim *sim, const struct device_run *run)
{
	struct ours *ours = sim->state;
	struct sim_part *part = run->part;
	struct place_decision *decision = &part->place.decision;

	ours->n_all_held[decision->device]--;
	if (!part->is_urgent || ours->n_all_held[decision->device] == 0)
		ours->n_urgent[decision->device] = 0;
	ours->n_held[decision->device][part->task->tenant]--;
	part->place.count = part->n_now;
	place_done(ours->placer, &part->place, run->fails ? PLACE_FAILED : PLACE_DONE,
		   (uint64_t)(sim->now_ns - run->begin_ns), (uint64_t)run->busy_ns, now_of(sim));
	if (run->fails) {
		decision->device = RBK_DEVICE_CPU;
		decision->reason = RBK_REASON_CPU_FALLBACK;
		decision->flags = PLACE_BOUND;
		decision->other_ns = 0;
		device_assign(&sim->devices[RBK_DEVICE_CPU], part, sim->now_ns);
		enqueue(sim, part);
	} else if (part->n_begun < part->n_rows) {
		enqueue(sim, part);
	}
	return true;
}

static void changed_ours(struct sim *sim, const struct scenario_event *event)
{
	const struct scenario *scenario = sim->world->scenario;
	struct ours *ours = sim->state;

	switch (event->kind) {
	case EVENT_CONTENTION:
		placer_set_contention(ours->placer, event->device, (float)event->value,
				      now_of(sim));
		break;
	case EVENT_HOGS:
		judge_count(&ours->judge, sim);
		break;
	case EVENT_LOST:
	case EVENT_BACK:
		for (uint32_t i = 0; i < scenario->n_plans; i++) {
			uint8_t *state = &sim->world->plans[i]->device_state[event->device];

			if (event->kind == EVENT_LOST && *state == PLAN_DEVICE_READY)
				*state = PLAN_DEVICE_FAILED;
			else if (event->kind == EVENT_BACK && *state == PLAN_DEVICE_FAILED)
				*state = PLAN_DEVICE_READY;
		}
		if (event->kind == EVENT_BACK)
			placer_reset_device(ours->placer, event->device);
		break;
	default:
		break;
	}
}

static double wake_ours(struct sim *sim)
{
	struct ours *ours = sim->state;
	uint64_t refill_ns = place_refill_ns(ours->placer, now_of(sim));
	double at_ns = refill_ns == UINT64_MAX ? INFINITY : (double)refill_ns - 1e9 + 1;

	return ours->looks ? fmin(at_ns, ours->judge.next_ns) : at_ns;
}

const struct policy policy_ours = {
	"ours",
	"the placement engine of brokerd",
	.begin = begin_ours,
	.end = end_ours,
	.decide = decide_ours,
	.cut = cut_ours,
	.queue = queue_ours,
	.pump = pump_ours,
	.ended = ended_ours,
	.changed = changed_ours,
	.wake_ns = wake_ours,
};

const struct policy policy_ours_unaware = {
	"ours-unaware",        "the same, blind to contention",
	.begin = begin_ours,   .end = end_ours,
	.decide = decide_ours, .cut = cut_ours,
	.queue = queue_ours,   .pump = pump_ours,
	.ended = ended_ours,   .changed = changed_ours,
	.wake_ns = wake_ours,
};
