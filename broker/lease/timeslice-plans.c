/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: tasks of plans beside leased programs
 *
 * The dispatcher submits tasks itself, so plans have no page and no members. It is told by class
 * which tasks of a tenant may start (struct timeslice_plans.n_open), and tells which tasks wait
 * nevertheless.
 *
 * While no lease has the device and there are tasks, it is the plans' turn: one for all tenants,
 * whose tasks the dispatcher orders among themselves. A tenant takes part in the turn while it
 * comes before the lease that comes next, and for TIMESLICE_NS at least. When no tenant with tasks
 * takes part any more, no more tasks start, and the lease begins once those under way have ended,
 * or after TIMESLICE_GRACE_NS: then each of both is charged for its own time. A lease of a higher
 * priority does not wait for that.
 *
 * While a lease has the device, tasks of a higher priority start at once, and end its timeslice if
 * more of them wait than the device takes. So do those of the same priority if their tenant is
 * behind by BEHIND_NS: a client that sends one small task after the other, and uses less than its
 * share, waits for what the lease has under way, and its tasks do not end timeslices. All other
 * tasks wait for the plans' turn, as a lease would; so do those of a client that has had some for
 * TIMESLICE_NS without a pause.
 *
 * A turn's time is divided among the tenants by the times of their tasks. Beside a lease, these
 * times say how much of the lease's time was the tasks', as far as they do not include waits for
 * the lease's work (struct timeslices.plans_used).
 */
#include "lease/timeslice-private.h"

/* Longest pause between two tasks of a client that sends one after the other. */
static const uint64_t most_pause_ns = 200000;

/* Time of tasks that the dispatcher has under way: about its PLACE_RELEASE_NS. */
static const uint64_t under_way_ns = 500000;

/* Behind by more than what rounding to timeslices makes of equal shares. */
#define BEHIND_NS (4 * TIMESLICE_NS)

static uint8_t classes_before(uint8_t class)
{
	return (uint8_t)((1u << class) - 1);
}

static uint8_t classes_of(const struct timeslice_plans *plans)
{
	return plans->waiting | plans->under_way;
}

/* Return when a pause that the tasks make now is too long to belong to their work. */
static uint64_t pause_end_ns(const struct timeslice_plans *plans)
{
	return plans->idle_ns + min_u64(most_pause_ns, 2 * (plans->idle_ns - plans->busy_ns));
}

static const struct timeslices *timeslices_of(const struct timeslice_device *device)
{
	return &lease_of(device->leases.next)->leases->timeslices;
}

/* ---- Which tasks there are ---- */

uint64_t plans_last_ns(const struct timeslice_device *device, uint8_t class)
{
	uint64_t last_ns = 0;

	for (uint8_t i = 0; i < class; i++)
		last_ns = max_u64(last_ns, device->class_ns[i]);
	return last_ns;
}

bool plans_come_before(const struct timeslice_device *device, uint8_t class, uint64_t pause_ns,
		       uint64_t now_ns)
{
	const uint64_t last_ns = plans_last_ns(device, class);

	return device->plans_classes & classes_before(class) ||
	       (last_ns > 0 && now_ns < last_ns + pause_ns);
}

bool plans_are_there(const struct timeslice_device *device, uint64_t pause_ns, uint64_t now_ns)
{
	return plans_come_before(device, TIMESLICE_CLASSES, pause_ns, now_ns);
}

uint64_t plans_total_ns(const struct timeslice_device *device, uint8_t class, uint64_t now_ns)
{
	const uint64_t ns = saturating_sub(now_ns, device->noted_ns);
	const uint8_t normal = priority_class(RBK_PRIORITY_NORMAL);

	if (class <= normal)
		return device->turns_total_ns + (device->is_plans_turn ? ns : 0);
	return device->plans_total_ns +
	       (device->plans_classes & classes_before(normal + 1) ? ns : 0);
}

/* Bring the sums up to date, before what they are of changes. */
static void note_time(struct timeslice_device *device, uint64_t now_ns)
{
	const uint8_t normal = priority_class(RBK_PRIORITY_NORMAL);

	device->turns_total_ns = plans_total_ns(device, normal, now_ns);
	device->plans_total_ns = plans_total_ns(device, normal + 1, now_ns);
	device->noted_ns = now_ns;
}

/*
 * Return the time that plans of a tenant, or of all, have used since *known, which is brought up to
 * date. A prediction may be corrected downwards, and a tenant begins at 0 again: these count 0.
 */
static uint64_t used_since(const struct timeslice_device *device, const struct tenant *tenant,
			   uint64_t *known)
{
	const struct timeslices *timeslices = timeslices_of(device);
	float factor = 1;
	uint64_t used_ns, more_ns;

	if (!timeslices->plans_used)
		return 0;
	used_ns =
		timeslices->plans_used(timeslices->plans_context, tenant, device->number, &factor);
	more_ns = used_ns > *known ? used_ns - *known : 0;
	*known = used_ns;
	return (uint64_t)((double)more_ns / (double)(factor > 1 ? factor : 1));
}

static uint64_t *known_of(const struct timeslice_device *device, const struct tenant *tenant)
{
	return &tenant->leases->plans_used_ns[device->number];
}

void plans_begin_account(const struct lease *lease)
{
	struct timeslice_device *device = device_of(lease);

	if (device->n_leases == 0)
		used_since(device, NULL, &device->plans_used_ns);
}

static void begin_to_know(struct timeslice_device *device, struct timeslice_plans *plans)
{
	plans->is_known = true;
	plans->is_in_turn = false;
	list_append(&device->plans, &plans->link);
	used_since(device, plans->tenant, known_of(device, plans->tenant));
}

void plans_note(struct timeslice_device *device, struct timeslice_plans *changed, uint64_t now_ns)
{
	uint8_t classes = 0;

	note_time(device, now_ns);
	for (struct timeslice_plans *plans = changed; plans; plans = plans->next_changed) {
		if (!plans->is_known)
			begin_to_know(device, plans);
		if (!plans->is_active && classes_of(plans)) {
			/* It did not wait so far. */
			catch_up(&device->clock, plans->tenant->weight,
				 tenant_tag(device, plans->tenant));
			catch_up(tenant_clock(device, plans->tenant), FAIR_WEIGHT, &plans->tag);
			if (now_ns > pause_end_ns(plans))
				plans->busy_ns = now_ns;
		}
		if (plans->is_active && !classes_of(plans))
			plans->idle_ns = now_ns;
		plans->is_active = classes_of(plans);
		if (plans->is_active)
			plans->class = (uint8_t)__builtin_ctz(classes_of(plans));
	}
	list_for_each (node, &device->plans)
		classes |= classes_of(plans_of(node));
	for (unsigned int i = 0; i < TIMESLICE_CLASSES; i++)
		if ((classes | device->plans_classes) & 1u << i)
			device->class_ns[i] = now_ns;
	device->plans_classes = classes;
}

void plans_forget(struct timeslice_device *device)
{
	list_for_each_safe (node, &device->plans) {
		struct timeslice_plans *plans = plans_of(node);

		list_remove(node);
		plans->is_known = plans->is_active = plans->is_in_turn = false;
		plans->waiting = plans->under_way = 0;
		plans->waiting_ns = 0;
		plans->n_open = TIMESLICE_CLASSES;
	}
	device->plans_classes = 0;
	device->is_plans_turn = false;
	for (unsigned int i = 0; i < TIMESLICE_CLASSES; i++)
		device->class_ns[i] = 0;
}

void plans_forgive(struct timeslice_device *device, const struct lease *lease)
{
	uint64_t *tag = tenant_tag(device, lease->tenant);

	*tag = max_u64(*tag, device->clock.virtual_ns);
	list_for_each (node, &device->plans) {
		struct timeslice_plans *plans = plans_of(node);

		if (plans->tenant == lease->tenant)
			plans->tag = min_u64(plans->tag, lease->timeslice.tag);
		else
			*tenant_tag(device, plans->tenant) =
				min_u64(*tenant_tag(device, plans->tenant), *tag);
	}
}

/* ---- Accounts ---- */

static void charge_one(struct timeslice_device *device, struct timeslice_plans *plans, uint64_t ns)
{
	const struct tenant *tenant = plans->tenant;
	const uint64_t virtual_ns = device->clock.virtual_ns,
		       inner_ns = tenant_clock(device, tenant)->virtual_ns;
	uint64_t *tag = tenant_tag(device, tenant), most;

	if (ns == 0)
		return;
	most = virtual_ns + virtual_of(tenant->weight, TIMESLICE_DEBT_NS);
	*tag = max_u64(*tag, min_u64(*tag + virtual_of(tenant->weight, ns), most));
	most = inner_ns + virtual_of(FAIR_WEIGHT, TIMESLICE_DEBT_NS);
	plans->tag = max_u64(plans->tag, min_u64(plans->tag + virtual_of(FAIR_WEIGHT, ns), most));
	tenant->leases->plans_charged_ns[device->number] = device->looked_ns;
}

/* Divide the time of a turn among the tenants, by what their tasks have used since the last look.
 */
static void charge_turn(struct timeslice_device *device, uint64_t sum_ns, bool is_over)
{
	unsigned int n = 0;

	/* A task that runs was counted as used when it began. */
	if (sum_ns == 0 && !is_over)
		return;
	list_for_each (node, &device->plans)
		n += plans_of(node)->had_turn;
	list_for_each (node, &device->plans) {
		struct timeslice_plans *plans = plans_of(node);

		if (sum_ns > 0)
			charge_one(device, plans,
				   (uint64_t)((double)device->turn_used_ns *
					      (double)plans->more_ns / (double)sum_ns));
		else if (plans->had_turn)
			charge_one(device, plans, device->turn_used_ns / n);
		if (is_over)
			plans->had_turn = false;
	}
	device->turn_used_ns = 0;
}

/*
 * Look at what plans have used since the last look. @begins, @is_over: a turn is about to begin, or
 * is over.
 */
static void look(struct timeslice_device *device, bool has_user, bool begins, bool is_over,
		 uint64_t now_ns)
{
	uint64_t all_ns, sum_ns = 0;

	device->looked_ns = now_ns;
	all_ns = used_since(device, NULL, &device->plans_used_ns);
	list_for_each (node, &device->plans) {
		struct timeslice_plans *plans = plans_of(node);

		plans->more_ns = used_since(device, plans->tenant, known_of(device, plans->tenant));
		sum_ns += plans->more_ns;
		plans->had_turn |= device->is_plans_turn && plans->more_ns > 0;
	}
	if (device->is_plans_turn) {
		charge_turn(device, sum_ns, is_over);
		return;
	}
	if (has_user)
		device->plans_owed_ns = min_u64(device->plans_owed_ns + all_ns, TIMESLICE_LAG_NS);
	list_for_each (node, &device->plans) {
		struct timeslice_plans *plans = plans_of(node);

		/* The rest runs in the turn that begins. */
		if (begins && plans->under_way)
			plans->more_ns = saturating_sub(plans->more_ns, under_way_ns);
		plans->had_turn = begins && plans->under_way;
		charge_one(device, plans, plans->more_ns);
	}
}

void plans_charge(struct timeslice_device *device, bool is_user, uint64_t now_ns)
{
	const uint64_t interval_ns =
		device->is_plans_turn ? TIMESLICE_TURN_LOOK_NS : TIMESLICE_LOOK_NS;

	if (device->is_plans_turn && !is_user)
		device->turn_used_ns += saturating_sub(now_ns, device->turn_charged_ns);
	device->turn_charged_ns = now_ns;
	/* Otherwise none have ended since. */
	if (now_ns >= device->looked_ns + interval_ns &&
	    plans_are_there(device, now_ns - device->looked_ns + 1, now_ns))
		look(device, is_user, false, false, now_ns);
}

uint64_t plans_settle(struct timeslice_device *device, uint64_t now_ns)
{
	uint64_t owed_ns, later_ns = 0;

	if (plans_are_there(device, now_ns - device->looked_ns + 1, now_ns))
		look(device, true, false, false, now_ns);
	/* Tasks that are under way run after the lease's work. */
	list_for_each (node, &device->plans)
		later_ns += plans_of(node)->under_way ? under_way_ns : 0;
	owed_ns = saturating_sub(device->plans_owed_ns, later_ns);
	device->plans_owed_ns -= owed_ns;
	return owed_ns;
}

void plans_begin_clocks(struct timeslice_device *device)
{
	list_for_each (node, &device->plans)
		clock_begin(tenant_clock(device, plans_of(node)->tenant));
}

void plans_advance(struct timeslice_device *device)
{
	const uint8_t normal = priority_class(RBK_PRIORITY_NORMAL);

	list_for_each (node, &device->plans) {
		const struct timeslice_plans *plans = plans_of(node);
		uint8_t class;

		/* The dispatcher may have changed the classes since it told. */
		if (!plans->is_active || !classes_of(plans))
			continue;
		class = (uint8_t)__builtin_ctz(classes_of(plans));
		class = class < normal ? normal : class;
		clock_note(&device->clock, class, *tenant_tag(device, plans->tenant));
		clock_note(tenant_clock(device, plans->tenant), class, plans->tag);
	}
}

void plans_end_clocks(struct timeslice_device *device)
{
	list_for_each (node, &device->plans)
		clock_end(tenant_clock(device, plans_of(node)->tenant));
}

/* ---- Whose turn it is ---- */

static struct timeslice_contender contender_of(const struct timeslice_device *device,
					       const struct timeslice_plans *plans, uint8_t class)
{
	return (struct timeslice_contender){
		.tenant = plans->tenant,
		.tag = *tenant_tag(device, plans->tenant),
		.inner_tag = plans->tag,
		.since_ns = plans->waiting_ns,
		.late_from_ns = plans->waiting_ns > 0
					? max_u64(plans->waiting_ns, device->late_ns) +
						  TIMESLICE_PATIENCE_NS
					: UINT64_MAX,
		.class = counted_class(device, plans->tenant, class),
		.full_class = class,
	};
}

struct timeslice_contender plans_contender(const struct timeslice_device *device,
					   const struct timeslice_plans *plans)
{
	const uint8_t class =
		plans->waiting ? (uint8_t)__builtin_ctz(plans->waiting) : plans->class;

	return contender_of(device, plans, class);
}

uint64_t plans_contend_ns(const struct timeslice_plans *plans)
{
	if (plans->waiting)
		return 0;
	return plans->under_way ? plans->busy_ns + TIMESLICE_NS : UINT64_MAX;
}

uint64_t plans_next_contender_ns(const struct timeslice_device *device, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;

	for (const struct list_node *node = device->plans.next; node != &device->plans;
	     node = node->next) {
		const struct timeslice_plans *plans =
			container_of(node, struct timeslice_plans, link);

		if (plans->is_active && now_ns < plans->busy_ns + TIMESLICE_NS)
			next_ns = min_u64(next_ns, plans->busy_ns + TIMESLICE_NS);
	}
	return next_ns;
}

struct timeslice_plans *plans_choose(struct timeslice_device *device,
				     const struct timeslice_contender *next, bool is_next_late,
				     uint64_t now_ns, bool *ret_is_late)
{
	struct timeslice_plans *best = NULL, *late = NULL;
	struct timeslice_contender first = {.class = 0}, latest = first;

	list_for_each (node, &device->plans) {
		struct timeslice_plans *plans = plans_of(node);
		struct timeslice_contender contender;

		if (now_ns < plans_contend_ns(plans))
			continue;
		contender = plans_contender(device, plans);
		if (!best || is_before(&contender, &first)) {
			best = plans;
			first = contender;
		}
		if (next && now_ns >= contender.late_from_ns &&
		    (is_next_late || next->class < contender.class) &&
		    (!late || contender.since_ns < latest.since_ns)) {
			late = plans;
			latest = contender;
		}
	}
	*ret_is_late = late;
	return late ? late : best;
}

void plans_begin_turn(struct timeslice_device *device, struct timeslice_plans *late,
		      uint64_t now_ns)
{
	note_time(device, now_ns);
	look(device, false, true, false, now_ns);
	device->is_plans_turn = true;
	device->was_plans_late = late;
	device->turn_ns = device->turn_charged_ns = now_ns;
	device->turn_used_ns = device->turn_closed_ns = 0;
	device->plans_owed_ns = 0;
	if (late) {
		device->late_ns = now_ns;
		late->waiting_ns = 0;
	}
	list_for_each (node, &device->plans)
		plans_of(node)->is_in_turn = plans_of(node) == late;
}

void plans_end_turn(struct timeslice_device *device, bool is_user, uint64_t now_ns)
{
	plans_charge(device, is_user, now_ns);
	look(device, is_user, false, true, now_ns);
	note_time(device, now_ns);
	device->is_plans_turn = false;
	list_for_each (node, &device->plans)
		plans_of(node)->is_in_turn = false;
}

/* Return true if the tenant takes part in the turn, and has tasks, or had some a moment ago. */
static bool takes_part(const struct timeslice_device *device, const struct timeslice_plans *plans,
		       const struct timeslice_contender *next, bool is_late, bool is_user,
		       uint64_t now_ns)
{
	const bool is_early = now_ns < device->turn_ns + TIMESLICE_NS;
	struct timeslice_contender contender;

	if (!plans->is_active && (!plans->is_in_turn || now_ns >= pause_end_ns(plans)))
		return false;
	if (device->was_plans_late && is_early)
		return plans->is_in_turn;
	contender = plans_contender(device, plans);
	if (contender.class != next->class)
		return contender.class < next->class && !is_late && plans->is_active;
	if (plans->is_in_turn && is_early)
		return true;
	/* While work of an overdue lease is in front of the tasks, none of them is charged. */
	return !is_late && !is_user && is_before(&contender, next);
}

bool plans_go_on(struct timeslice_device *device, const struct timeslice_contender *next,
		 bool is_late, bool is_user, uint64_t now_ns)
{
	bool is_any = false, is_under_way = false;

	device->turn_checked_ns = now_ns;
	list_for_each (node, &device->plans) {
		struct timeslice_plans *plans = plans_of(node);

		if (!next)
			continue;
		plans->is_in_turn = takes_part(device, plans, next, is_late, is_user, now_ns);
		is_any |= plans->is_in_turn;
		for (uint8_t i = 0; i < TIMESLICE_CLASSES; i++)
			is_under_way |= plans->under_way & 1u << i &&
					counted_class(device, plans->tenant, i) == next->class;
	}
	if (!next)
		return device->plans_classes;
	if (is_any) {
		device->turn_closed_ns = 0;
		return true;
	}
	if (device->turn_closed_ns == 0)
		device->turn_closed_ns = now_ns;
	return is_under_way && now_ns < device->turn_closed_ns + TIMESLICE_GRACE_NS;
}

uint64_t plans_turn_ns(const struct timeslice_device *device, uint64_t now_ns)
{
	uint64_t next_ns;

	if (device->turn_closed_ns > 0)
		return device->turn_closed_ns + TIMESLICE_GRACE_NS;
	if (!device->plans_classes) {
		next_ns = UINT64_MAX;
		for (const struct list_node *node = device->plans.next; node != &device->plans;
		     node = node->next) {
			const struct timeslice_plans *plans =
				container_of(node, struct timeslice_plans, link);

			if (plans->is_in_turn)
				next_ns = min_u64(next_ns, pause_end_ns(plans));
		}
		return max_u64(next_ns, now_ns + 1);
	}
	/* From then on it depends on what the tasks use. */
	if (now_ns < device->turn_ns + TIMESLICE_NS)
		return device->turn_ns + TIMESLICE_NS;
	return device->turn_checked_ns + TIMESLICE_TURN_LOOK_NS;
}

/* ---- Which tasks may start ---- */

/* Return true if the tenant is so much behind another one, or within it, that it need not wait. */
static bool is_far_behind(const struct timeslice_contender *plans,
			  const struct timeslice_contender *holder)
{
	if (plans->tenant == holder->tenant)
		return plans->inner_tag + virtual_of(FAIR_WEIGHT, BEHIND_NS) <= holder->inner_tag;
	return plans->tag + virtual_of(plans->tenant->weight, BEHIND_NS) <= holder->tag;
}

static bool may_start(const struct timeslice_device *device, const struct timeslice_plans *plans,
		      uint8_t class, const struct timeslice_contender *holder,
		      const struct timeslice_contender *next, uint64_t now_ns)
{
	const struct timeslice_contender own = contender_of(device, plans, class);

	if (device->is_plans_turn) {
		if (!next || own.class < next->class)
			return true;
		return plans->is_in_turn && device->turn_closed_ns == 0;
	}
	/* Clients that always have tasks would be charged for waits in the device. */
	if (holder && own.class >= holder->class &&
	    (own.class > holder->class || !is_far_behind(&own, holder) ||
	     (plans->is_active && now_ns >= plans->busy_ns + TIMESLICE_NS)))
		return false;
	return !next || own.class < next->class || (holder && is_before(&own, next));
}

void plans_show(struct timeslice_device *device, const struct timeslice_contender *holder,
		const struct timeslice_contender *next, uint64_t now_ns)
{
	list_for_each (node, &device->plans) {
		struct timeslice_plans *plans = plans_of(node);
		uint8_t n = 0;

		while (n < TIMESLICE_CLASSES && may_start(device, plans, n, holder, next, now_ns))
			n++;
		plans->n_open = n;
		if (!plans->waiting || plans->waiting & classes_before(n))
			plans->waiting_ns = 0;
		else if (plans->waiting_ns == 0)
			plans->waiting_ns = now_ns;
	}
}
