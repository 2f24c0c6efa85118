/* SPDX-License-Identifier: MIT */
/*
 * Residency: searches for plans to evict
 *
 * Clients can have as many plans on a device as they can add, but the cost of a request must not
 * grow with their number. So a request that all plans together could not satisfy is refused by
 * sums, without a search. A search visits no plan that holds nothing. Of each tenant it visits the
 * large plans, of which a device can hold only RESIDENCY_LARGE, and RESIDENCY_SMALL of the small
 * ones. Visited small plans are moved to the end of their tenant's list, so that the next search
 * visits others. One tenant's plans do not hide another's.
 *
 * A plan counts as large by the bytes that no other plan shared when it was loaded. These bytes are
 * charged while the plan is resident, and count for no other large plan. So the number of large
 * plans is bounded.
 */
#include <math.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "memory/residency-private.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/number.h"

/* Taking memory back takes at most 1/TAKE_PART of a turn's budget. */
enum { TAKE_PART = 4 };

/* Claims */

static void claim_of(const struct residence *residence, uint64_t bytes, struct residency_claim *ret)
{
	struct residency_plan *plan = residence->plan;

	residency_look_at(plan);
	*ret = (struct residency_claim){
		.share = residence->plan->tenant->shares[residence->device->index],
		.tenant = plan->tenant->number,
		.used = residency_tenant_used(residence->device, plan->tenant),
		.bytes = bytes,
		.value = residency_value_heard(plan->value, plan->folded_ns - plan->used_ns),
		.used_ns = plan->used_ns,
	};
}

void seeker_claim(const struct seeker *seeker, uint64_t bytes, struct residency_claim *ret)
{
	if (seeker->residence)
		claim_of(seeker->residence, bytes, ret);
	else
		*ret = (struct residency_claim){
			.share = seeker->tenant->shares[seeker->device->index],
			.tenant = seeker->tenant->number,
			.used = residency_tenant_used(seeker->device, seeker->tenant),
			.bytes = bytes,
			.is_lease = true,
		};
	ret->used += seeker_tenant_awaited(seeker);
}

/* Victims */

struct victim {
	struct residence *residence;
	struct residency_claim claim;
	int rank;
};

/* A search for plans to evict: the request and its claim. */
struct wish {
	const struct seeker *seeker; /* NULL: outside pressure */
	struct residency_claim claim;
	enum residency_force force;
	bool own_only; /* the tenant's maximum is short, not the device's memory */
	/* bytes requested: they grow with blocks that leave, up to most_bytes */
	uint64_t bytes, most_bytes;
};

static int rank_of(const struct residency_device *device, const struct wish *wish,
		   const struct residency_claim *holder)
{
	struct residency_claim claim = wish->claim;

	if (!wish->seeker)
		return residency_rank_pressure(holder);
	if (wish->force != RESIDENCY_BY_VALUE && holder->tenant == claim.tenant)
		claim.value = INFINITY;
	return residency_rank(device->residency->options.policy, &claim, holder);
}

/*
 * Return true if the request may displace any plan of a tenant. The test uses the plan that is
 * easiest to displace: it has no value, and evicting it takes nothing from its tenant.
 */
static bool may_give(const struct residency_device *device, const struct wish *wish,
		     const struct tenant *tenant)
{
	const struct residency_claim least_wanted = {
		.share = tenant->shares[device->index],
		.tenant = tenant->number,
		.used = residency_tenant_used(device, tenant),
	};

	if ((wish->own_only || wish->force == RESIDENCY_OWN_SEGMENTS) &&
	    tenant != wish->seeker->tenant)
		return false;
	return rank_of(device, wish, &least_wanted) != RESIDENCY_KEEP;
}

/*
 * Return the bytes of the blocks that the requesting plan counts on, that @other uses, and that at
 * most @most plans keep. The last draft must be that of the requesting plan.
 */
static uint64_t shared_with(const struct seeker *seeker, const struct residence *other,
			    uint32_t most)
{
	uint64_t number = other->device->residency->n_drafts, bytes = 0;

	if (!seeker->residence)
		return 0;
	for (uint32_t i = 0; i < other->n_sharing; i++)
		if (other->sharing[i]->draft_number == number && other->sharing[i]->n_there <= most)
			bytes += other->sharing[i]->exec.bytes;
	return bytes;
}

/* Return true if the plan must stay, because blocks that the request counts on would go with it. */
static bool is_needed(const struct seeker *seeker, const struct residence *other)
{
	return !seeker->gives_up_shared && shared_with(seeker, other, 1) > 0;
}

/* Plans found by a search, in the order of eviction. */
struct finding {
	const struct residency_device *device;
	const struct wish *wish;
	struct victim *victims;
	uint32_t n, max;
};

/* Return true if both are segments of one plan, and @other may make way at present. */
static bool is_idle_sibling(const struct residence *residence, const struct residence *other)
{
	const struct plan_memory *of = residence->plan->memory, *memory = other->plan->memory;

	return memory->session == of->session && memory->id == of->id && memory->is_streamed &&
	       memory->n_on_device[other->device->index] == 0;
}

/*
 * Return true if @a is evicted before @b. Tasks need the segments of their plan in turn, so the one
 * that was used last is the one that is needed last.
 */
static bool goes_first(const struct finding *finding, const struct victim *a,
		       const struct victim *b)
{
	if (finding->wish->force == RESIDENCY_OWN_SEGMENTS)
		return a->claim.used_ns > b->claim.used_ns;
	return residency_goes_first(finding->device->residency->options.policy, a->rank, &a->claim,
				    b->rank, &b->claim);
}

static void find(struct residence *other, uint64_t bytes, void *data)
{
	struct finding *finding = data;
	const struct wish *wish = finding->wish;
	struct victim victim = {.residence = other}, *victims = finding->victims;
	uint32_t at;

	if (wish->seeker && is_needed(wish->seeker, other))
		return;
	if (wish->force == RESIDENCY_OWN_SEGMENTS &&
	    !is_idle_sibling(wish->seeker->residence, other))
		return;
	claim_of(other, bytes, &victim.claim);
	victim.rank = rank_of(finding->device, wish, &victim.claim);
	if (victim.rank == RESIDENCY_KEEP)
		return;
	for (at = finding->n; at > 0 && goes_first(finding, &victim, &victims[at - 1]); at--)
		if (at < finding->max)
			victims[at] = victims[at - 1];
	if (at < finding->max)
		victims[at] = victim;
	if (finding->n < finding->max)
		finding->n++;
}

/* List plans that may be evicted, in the order of eviction. Return: their number, at most @max. */
static uint32_t find_victims(struct residency_device *device, const struct wish *wish,
			     struct victim *victims, uint32_t max)
{
	struct finding finding = {.device = device, .wish = wish, .victims = victims, .max = max};

	list_for_each (node, &device->residency->holders) {
		struct tenant_memory *memory = container_of(node, struct tenant_memory, link);

		if (may_give(device, wish, memory->tenant))
			residency_visit_holders(memory, device->index, find, &finding);
	}
	return finding.n;
}

/* Count a plan as leaving in the sums, or no longer. */
static void victim_mark(struct victim *victim, bool is_leaving)
{
	struct residence *residence = victim->residence;
	struct residency_device *device = residence->device;
	uint64_t *leaving = &residence->plan->tenant->memory->leaving[device->index];
	uint64_t bytes = victim->claim.bytes;

	residence->state = is_leaving ? RESIDENCE_DRAINING : RESIDENCE_IN;
	for (uint32_t i = 0; i < residence->n_sharing; i++)
		residence->sharing[i]->n_there += is_leaving ? -1u : 1u;
	device->leaving_bytes += is_leaving ? bytes : -bytes;
	*leaving += is_leaving ? bytes : -bytes;
}

/*
 * Return true if the plan may still be evicted after those marked as leaving. Its tenant may be
 * within its due by now, and the plan may have become the last sharer of a block.
 */
static bool may_go(const struct residency_device *device, const struct wish *wish,
		   struct victim *victim)
{
	if (wish->seeker && is_needed(wish->seeker, victim->residence))
		return false;
	claim_of(victim->residence, residence_bytes(victim->residence), &victim->claim);
	return rank_of(device, wish, &victim->claim) != RESIDENCY_KEEP;
}

static bool is_enough(const struct seeker *seeker, uint64_t bytes, bool *ret_own_only)
{
	*ret_own_only = seeker_tenant_free(seeker) < (int64_t)bytes;
	return !*ret_own_only && residency_device_free(seeker->device) >= (int64_t)bytes;
}

/*
 * Return the bytes that a tenant is owed of those that it holds or has set aside, or the bytes of
 * its leases if they are more: leases are not evicted.
 */
static uint64_t owed_to(const struct residency_device *device, const struct tenant *tenant)
{
	uint64_t leased = leases_of(tenant)->granted[device->index];
	uint64_t owed = min_u64(residency_tenant_used(device, tenant) +
					memory_of(tenant)->awaited[device->index],
				tenant->shares[device->index].reserve);

	return owed > leased ? owed : leased;
}

/* Return: owed_to(), or 0 if the current sum has counted the tenant. */
static uint64_t owed_once(const struct residency_device *device, struct tenant *tenant)
{
	const uint64_t number = device->residency->n_sums;

	if (tenant->memory->sum_number == number)
		return 0;
	tenant->memory->sum_number = number;
	return owed_to(device, tenant);
}

static uint64_t owed_to_others(const struct residency_device *device, struct tenant *tenant)
{
	struct residency *residency = device->residency;
	uint64_t sum = 0;

	/* Each tenant counts once, whether it is listed for plans or for leases. */
	residency->n_sums++;
	tenant->memory->sum_number = residency->n_sums;
	list_for_each (node, &residency->holders)
		sum += owed_once(device, container_of(node, struct tenant_memory, link)->tenant);
	list_for_each (node, &residency->leases.tenants)
		sum += owed_once(device, container_of(node, struct tenant_leases, link)->tenant);
	return sum;
}

struct giving {
	const struct seeker *seeker;
	uint64_t bytes;
};

static void give(struct residence *residence, uint64_t bytes, void *data)
{
	struct giving *giving = data;

	if (giving->seeker->gives_up_shared ||
	    shared_with(giving->seeker, residence, UINT32_MAX) == 0)
		giving->bytes += bytes;
}

/*
 * Return the bytes that evicting the tenant's own plans by hand would free; too few where plans are
 * many and small.
 */
static uint64_t own_giving(const struct seeker *seeker)
{
	struct giving giving = {.seeker = seeker};

	if (!seeker->residence)
		return memory_of(seeker->tenant)->evictable[seeker->device->index];
	residency_visit_holders(seeker->tenant->memory, seeker->device->index, give, &giving);
	return giving.bytes;
}

bool seeker_is_owed(const struct seeker *seeker, uint64_t bytes, bool by_hand)
{
	const struct residency_device *device = seeker->device;
	uint64_t reserve = seeker->tenant->shares[device->index].reserve;
	uint64_t own =
		residency_tenant_used(device, seeker->tenant) + seeker_tenant_awaited(seeker);

	if (device->residency->options.policy == RESIDENCY_STAY || bytes > reserve)
		return false;
	if (by_hand)
		own -= own_giving(seeker);
	return checked_range(own, bytes, reserve) &&
	       checked_range(own + owed_to_others(device, seeker->tenant), bytes,
			     device->usable_bytes[EXEC_TIER_VRAM]);
}

/* Return true if evicting all plans that may be displaced would free enough. */
static bool could_be_enough(const struct seeker *seeker, uint64_t bytes, bool by_hand)
{
	const struct residency_device *device = seeker->device;
	const uint64_t own = memory_of(seeker->tenant)->evictable[device->index];
	struct wish wish = {.seeker = seeker,
			    .force = by_hand ? RESIDENCY_BY_HAND : RESIDENCY_BY_VALUE};
	int64_t lacking = (int64_t)bytes - residency_device_free(device);

	if (seeker_tenant_free(seeker) + (int64_t)own < (int64_t)bytes)
		return false;
	/* A tenant above its maximum is losing plans; those that want to return need not search. */
	if (!by_hand && residency_tenant_free(device, seeker->tenant) < 0)
		return false;
	if (lacking > (int64_t)device->evictable_bytes)
		return false;
	/*
	 * The more of its tenant's own plans are evicted, the more it may take from other tenants.
	 */
	seeker_claim(seeker, bytes, &wish.claim);
	wish.claim.used -= own;
	list_for_each (node, &device->residency->holders) {
		const struct tenant *tenant =
			container_of(node, struct tenant_memory, link)->tenant;

		if (lacking <= 0)
			break;
		if (may_give(device, &wish, tenant))
			lacking -= (int64_t)memory_of(tenant)->evictable[device->index];
	}
	return lacking <= 0;
}

/*
 * Evict plans for the bytes of @wish if that frees enough, or if the request is owed. Its bytes are
 * then those that it needs without the plans that were evicted.
 */
static bool displace(const struct seeker *seeker, struct wish *wish)
{
	struct residency_device *device = seeker->device;
	struct victim found[RESIDENCY_MAX_VICTIMS], victims[RESIDENCY_MAX_VICTIMS];
	bool enough = is_enough(seeker, wish->bytes, &wish->own_only);
	const bool by_hand = wish->force == RESIDENCY_BY_HAND;
	bool is_promised = wish->force != RESIDENCY_OWN_SEGMENTS &&
			   seeker_is_owed(seeker, wish->most_bytes, by_hand);
	uint32_t n = 0, n_found, n_before;

	if (!is_promised && !could_be_enough(seeker, wish->bytes, by_hand))
		return false;
	/* First make room below the tenant's own maximum, then on the device. */
	do {
		bool own_only = wish->own_only;

		n_before = n;
		seeker_claim(seeker, wish->bytes, &wish->claim);
		n_found = find_victims(device, wish, found, RESIDENCY_MAX_VICTIMS - n);
		for (uint32_t i = 0; i < n_found && !enough && wish->own_only == own_only; i++) {
			seeker_claim(seeker, wish->bytes, &wish->claim);
			if (!may_go(device, wish, &found[i]))
				continue;
			wish->bytes =
				min_u64(wish->bytes + shared_with(seeker, found[i].residence, 1),
					wish->most_bytes);
			victims[n] = found[i];
			victim_mark(&victims[n++], true);
			enough = is_enough(seeker, wish->bytes, &wish->own_only);
		}
	} while (!enough && n > n_before && n < RESIDENCY_MAX_VICTIMS);
	for (uint32_t i = 0; i < n; i++)
		victim_mark(&victims[i], false);
	if (!enough)
		wish->bytes = wish->most_bytes;
	is_promised |= enough;
	for (uint32_t i = 0; i < n && is_promised; i++)
		residence_evict(victims[i].residence);
	return is_promised;
}

bool seeker_displace(const struct seeker *seeker, uint64_t *bytes, enum residency_force force)
{
	struct seeker alone = *seeker;
	struct wish wish = {
		.seeker = seeker, .force = force, .bytes = *bytes, .most_bytes = *bytes};

	if (displace(seeker, &wish))
		return true;
	/*
	 * The plans that keep the shared blocks may be all that is in the way. Without them the
	 * request needs its own copies.
	 */
	if (!seeker->shares)
		return false;
	alone.gives_up_shared = true;
	wish.seeker = &alone;
	wish.bytes = *bytes;
	/* Blocks are rounded up: it may need no more bytes than now. */
	if (seeker->residence->required_bytes > *bytes)
		wish.most_bytes = seeker->residence->required_bytes;
	if (!displace(&alone, &wish))
		return false;
	*bytes = wish.bytes;
	return true;
}

/* Taking back */

struct surplus {
	struct residence *found[RESIDENCY_MAX_VICTIMS]; /* the least wanted first */
	uint32_t n;
};

static void add_by_value(struct residence *residence, uint64_t bytes, void *data)
{
	struct surplus *surplus = data;
	struct residence **found = surplus->found;
	uint32_t at;

	residency_look_at(residence->plan);
	if (surplus->n == RESIDENCY_MAX_VICTIMS &&
	    residence->plan->value >= found[surplus->n - 1]->plan->value)
		return;
	if (surplus->n < RESIDENCY_MAX_VICTIMS)
		surplus->n++;
	for (at = surplus->n - 1; at > 0 && residence->plan->value < found[at - 1]->plan->value;
	     at--)
		found[at] = found[at - 1];
	found[at] = residence;
}

/* Evict some plans of a tenant above its maximum. Return: true if there were any. */
static bool take_some_surplus(struct residency_device *device, struct tenant_memory *memory)
{
	struct surplus surplus = {.n = 0};

	residency_visit_holders(memory, device->index, add_by_value, &surplus);
	for (uint32_t i = 0; i < surplus.n && residency_tenant_free(device, memory->tenant) < 0;
	     i++)
		residence_evict(surplus.found[i]);
	return surplus.n > 0;
}

bool residency_take_surplus(struct residency_device *device)
{
	const struct turn *turn = loop_current(device->residency->options.loop);
	const uint64_t stop_ticks = turn_stop_ticks(turn, TAKE_PART);
	bool is_any_taken = false;

	list_for_each (node, &device->residency->holders) {
		struct tenant_memory *memory = container_of(node, struct tenant_memory, link);
		bool has_more = true;

		while (has_more && residency_tenant_free(device, memory->tenant) < 0) {
			if (is_any_taken && turn_used_ticks(turn) >= stop_ticks)
				return false;
			has_more = take_some_surplus(device, memory);
			is_any_taken |= has_more;
		}
	}
	return true;
}

/* Return true if the last @n_searches searches have visited every plan of every tenant. */
static bool have_visited_all(const struct residency *residency, uint32_t n_searches)
{
	list_for_each (node, &residency->holders)
		if (container_of(node, struct tenant_memory, link)->n_plans / RESIDENCY_SMALL >=
		    n_searches)
			return false;
	return true;
}

bool residency_take_back(struct residency_device *device)
{
	const struct turn *turn = loop_current(device->residency->options.loop);
	const uint64_t stop_ticks = turn_stop_ticks(turn, TAKE_PART);
	const struct wish wish = {.seeker = NULL};
	struct victim victims[RESIDENCY_MAX_VICTIMS];
	uint32_t n, n_gone;

	while (residency_device_free(device) < 0) {
		n = find_victims(device, &wish, victims, RESIDENCY_MAX_VICTIMS);
		n_gone = 0;
		for (uint32_t i = 0; i < n && residency_device_free(device) < 0; i++)
			if (may_go(device, &wish, &victims[i])) {
				victims[i].residence->is_pressed = true;
				residence_evict(victims[i].residence);
				n_gone++;
			}
		device->n_vain_searches = n_gone > 0 ? 0 : device->n_vain_searches + 1;
		/* Plans not visited yet may be small enough to leave their tenant its reserve. */
		if (have_visited_all(device->residency, device->n_vain_searches))
			break;
		if (turn_used_ticks(turn) >= stop_ticks && residency_device_free(device) < 0)
			return false;
	}
	device->n_vain_searches = 0;
	return true;
}
