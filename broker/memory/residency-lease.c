/* SPDX-License-Identifier: MIT */
/*
 * Residency: leases, and waits for leases
 *
 * A request to grant a lease more memory waits, if only for this turn, behind the requests made
 * before it. Whenever something may have changed, a pass visits all waits in that order. A wait
 * that finds no room blocks the later waits of its tenant; if its lease's own maximum is in the
 * way, it blocks only those of its lease. A wait that could not be served even if it were alone
 * blocks no other lease.
 *
 * Across tenants, waits are ordered by parts. A tenant's part of a device is its reserve and an
 * equal share of the unreserved memory, which is divided among the tenants that have or want leases
 * there. A wait for memory within its tenant's part keeps other tenants from exceeding their parts.
 * No wait keeps a tenant from memory within its part. A wait for more than its tenant's part
 * restricts no other tenant.
 *
 * The sum of all parts does not exceed the device's memory. So a wait for memory within its part
 * waits for tenants above their parts: these get no more meanwhile, and the wait gets what they
 * give back. A tenant can deprive others only of memory above their parts, and only of as much as
 * it could take itself.
 *
 * When members of leases come back from a broker that ended, what they hold is charged without
 * waiting. Other requests wait until no member has come back for a moment, because the memory of
 * those that are still to come looks free. A client that claims to come back can delay others only
 * while the broker is young.
 *
 * Plans are evicted by the rules of residency-policy.h. The bytes to be freed are set aside (as for
 * an AWAITED plan). The wait lasts until the evictions have completed, which takes as long as the
 * tasks in flight, even if the request has no patience.
 */
#include <assert.h>
#include <errno.h>

#include "memory/residency-private.h"
#include "tenant/tenant.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"

/* Time that a wait may last while plans are being evicted, or loaded before they can be evicted. */
static const uint64_t grace_ns = 5ull * 1000 * 1000 * 1000;

/*
 * The library tries to come back every 20 ms, and is restored in less than that. Members that come
 * later find what is left.
 */
static const uint64_t return_ns = 300ull * 1000 * 1000;
/* A lease that is asked to sleep has a while to do so, before the next one is asked. */
static const uint64_t ask_pause_ns = 2ull * 1000 * 1000 * 1000;
/* Age of a broker up to which members come back to it. */
static const uint64_t return_age_ns = 5ull * 1000 * 1000 * 1000;

/* Limits of one pass; the next pass does the rest. */
enum {
	MAX_ENDED = 64,
	MAX_VISITS = 2 * RESIDENCY_SLICE, /* visits of plans; the last search may exceed it */
};

static struct seeker seeker_of(struct residency_device *device, const struct lease_wait *wait)
{
	return (struct seeker){
		.device = device,
		.tenant = wait->lease->tenant,
		.awaited_bytes = wait->awaited_bytes,
	};
}

static void set_awaited(struct residency_device *device, struct lease_wait *wait, uint64_t bytes)
{
	uint64_t *awaited = &wait->lease->tenant->memory->awaited[device->index];

	*awaited += bytes - wait->awaited_bytes;
	device->awaited_bytes += bytes - wait->awaited_bytes;
	wait->awaited_bytes = bytes;
}

/* ---- Parts, and which waits come first ---- */

/* Divide the unreserved memory among the tenants that have or want leases on the device. */
static void divide(struct residency_device *device)
{
	uint64_t unreserved =
		saturating_sub(device->usable_bytes[EXEC_TIER_VRAM], device->reserved_bytes);
	uint32_t n = device->residency->leases.n_tenants[device->index];

	device->lease_part_bytes = n > 0 ? unreserved / n : unreserved;
}

/*
 * Return the bytes that a tenant's leases can still be granted within its part. Call divide()
 * first.
 */
static uint64_t left_of_part(const struct residency_device *device, const struct tenant *tenant,
			     uint64_t awaited_bytes)
{
	unsigned int i = device->index;
	uint64_t part = min_u64(tenant->shares[i].reserve + device->lease_part_bytes,
				device->usable_bytes[EXEC_TIER_VRAM]);

	return saturating_sub(part, leases_of(tenant)->granted[i] + memory_of(tenant)->awaited[i] -
					    awaited_bytes);
}

/* Return the bytes to be granted beside those that the lease has. */
static uint64_t more_for(const struct lease_wait *wait)
{
	return saturating_sub(lease_wait_need(wait), lease_granted(wait->lease));
}

static bool is_within_part(const struct residency_device *device, const struct lease_wait *wait)
{
	return more_for(wait) <= left_of_part(device, wait->lease->tenant, wait->awaited_bytes);
}

/* Return true if the wait keeps other tenants within their parts while there is no room for it. */
static bool holds_others(struct residency_device *device, const struct lease_wait *wait)
{
	const struct seeker seeker = seeker_of(device, wait);

	/*
	 * A wait stopped by its lease's or its tenant's own limits does not restrict other tenants.
	 */
	return lease_wait_need(wait) <= wait->lease->limit_bytes &&
	       seeker_tenant_free(&seeker) >= (int64_t)more_for(wait) &&
	       is_within_part(device, wait);
}

/* Return the bytes that all leases of a tenant could have if there were no other leases. */
static uint64_t most_alone(const struct residency_device *device, struct tenant *tenant)
{
	return residency_lease_room(device, tenant) +
	       device->residency->leases.granted_bytes[device->index];
}

/* ---- Memory that waits leave to later waits ---- */

static void sums_begin(struct residency_device *device)
{
	device->residency->n_wait_sums++;
	device->holding_bytes = 0;
}

static struct tenant_memory *sums_of(const struct residency_device *device, struct tenant *tenant)
{
	struct tenant_memory *memory = tenant->memory;

	if (memory->wait_number != device->residency->n_wait_sums)
		memory->ahead_bytes = memory->holding_bytes = 0;
	memory->wait_number = device->residency->n_wait_sums;
	return memory;
}

/* Add the next wait, in the order of the requests. Call divide() first. */
static void sums_add(struct residency_device *device, const struct lease_wait *wait)
{
	struct tenant *tenant = wait->lease->tenant;
	struct tenant_memory *memory = sums_of(device, tenant);
	uint64_t more = more_for(wait);

	device->residency->leases.n_looks++;
	if (more == 0)
		return;
	if (!lease_wait_is_hopeless(wait, most_alone(device, tenant)))
		memory->ahead_bytes += more;
	if (holds_others(device, wait)) {
		memory->holding_bytes += more;
		device->holding_bytes += more;
	}
}

/*
 * Return the bytes that the added waits leave to a tenant's leases. *ret_ahead_bytes is the number
 * of bytes that they wait for. Call divide() first.
 */
static uint64_t left_by_sums(const struct residency_device *device, struct tenant *tenant,
			     uint64_t *ret_ahead_bytes)
{
	const struct tenant_memory *memory = sums_of(device, tenant);
	uint64_t own = memory->ahead_bytes;
	uint64_t others = device->holding_bytes - memory->holding_bytes;

	*ret_ahead_bytes = own + others;
	if (own > 0)
		return 0;
	return others > 0 ? left_of_part(device, tenant, 0) : UINT64_MAX;
}

/* Return the same for the waits before @wait; for all waits if @wait is NULL. */
static uint64_t left_by_waits(struct residency_device *device, struct tenant *tenant,
			      const struct lease_wait *wait, uint64_t *ret_ahead_bytes)
{
	sums_begin(device);
	list_for_each (node, &device->residency->leases.waits[device->index]) {
		if (lease_wait_of(node) == wait)
			break;
		sums_add(device, lease_wait_of(node));
	}
	return left_by_sums(device, tenant, ret_ahead_bytes);
}

static uint64_t lease_available(const struct residency_device *device, struct tenant *tenant)
{
	return min_u64(residency_available(device, tenant), residency_lease_room(device, tenant));
}

/*
 * Lower wait->available_bytes from the bytes that earlier waits leave to the bytes that are
 * available.
 */
static void look_closer(struct residency_device *device, struct lease_wait *wait)
{
	const struct lease *lease = wait->lease;

	if (device->state != RESIDENCY_DEVICE_UP)
		wait->available_bytes = 0;
	else
		wait->available_bytes =
			min_u64(wait->available_bytes, lease_available(device, lease->tenant));
	if (!wait->member)
		return;
	/*
	 * A member is also served from ungiven bytes, and the lease is granted no more than its
	 * limit.
	 */
	wait->available_bytes = min_u64(wait->available_bytes,
					saturating_sub(lease->limit_bytes, lease_granted(lease))) +
				lease_ungiven(lease);
}

void residency_lease_look(struct residency *residency, struct lease_wait *wait)
{
	struct residency_device *device = &residency->devices[wait->lease->device];

	divide(device);
	wait->available_bytes =
		left_by_waits(device, wait->lease->tenant, wait, &wait->ahead_bytes);
	look_closer(device, wait);
}

/* ---- Granting ---- */

/* End a wait in a pass, which has set available_bytes to the bytes that earlier waits leave. */
static void finish(struct residency_device *device, struct lease_wait *wait, int res)
{
	set_awaited(device, wait, 0);
	if (res) {
		divide(device);
		look_closer(device, wait);
	}
	lease_wait_end(wait);
	wait->done(wait, res);
}

/* Grant free memory, up to @goal_bytes in all. */
static void grow(struct residency_device *device, struct lease *lease, uint64_t goal_bytes)
{
	const struct seeker seeker = {.device = device, .tenant = lease->tenant};
	uint64_t granted = lease_granted(lease), room = seeker_room(&seeker);

	if (goal_bytes <= granted)
		return;
	if (room > goal_bytes - granted)
		room = goal_bytes - granted;
	if (lease_grant(lease, granted + room, false))
		assert(!"the room was looked at");
}

enum verdict {
	GRANTED,
	LEAVING, /* plans are being evicted for the wait */
	NO_ROOM,
};

static void grant(struct residency_device *device, struct lease_wait *wait, uint64_t more_bytes)
{
	set_awaited(device, wait, 0);
	if (lease_grant(wait->lease, lease_granted(wait->lease) + more_bytes, false))
		assert(!"the room was looked at");
}

/* Grant @bytes more, or up to @most if they are free; otherwise evict plans for @bytes. */
static enum verdict try_bytes(struct residency_device *device, struct lease_wait *wait,
			      uint64_t bytes, uint64_t most)
{
	const struct seeker seeker = seeker_of(device, wait);
	uint64_t room = seeker_room(&seeker);

	if (room >= bytes) {
		grant(device, wait, room < most ? room : most);
		return GRANTED;
	}
	if (bytes > residency_lease_room(device, seeker.tenant) ||
	    !seeker_displace(&seeker, &bytes, RESIDENCY_BY_HAND))
		return NO_ROOM;
	set_awaited(device, wait, bytes);
	return LEAVING;
}

/*
 * Grant an opening lease as much of its wish as possible. The plans that it may displace depend on
 * the amount: a request within the reserve or below vram-high may displace more of them.
 */
static enum verdict try_wish(struct residency_device *device, struct lease_wait *wait,
			     uint64_t least, uint64_t most)
{
	struct tenant *tenant = wait->lease->tenant;
	const struct tenant_share *share = &tenant->shares[device->index];
	const struct seeker seeker = seeker_of(device, wait);
	uint64_t has = share->max - (uint64_t)(seeker_tenant_free(&seeker) < 0
						       ? (int64_t)share->max
						       : seeker_tenant_free(&seeker));
	const uint64_t tries[] = {
		most,
		lease_available(device, tenant),
		share->high > has ? share->high - has : 0,
		share->reserve > has ? share->reserve - has : 0,
		seeker_room(&seeker),
		least,
	};
	uint64_t last = UINT64_MAX;

	for (;;) {
		uint64_t next = 0;
		enum verdict verdict;

		/* The largest amount not tried yet. */
		for (unsigned int i = 0; i < ARRAY_SIZE(tries); i++) {
			uint64_t bytes = tries[i] < most ? tries[i] : most;

			if (bytes >= least && bytes < last && bytes > next)
				next = bytes;
		}
		if (next == 0)
			return NO_ROOM;
		verdict = try_bytes(device, wait, next, next);
		if (verdict != NO_ROOM)
			return verdict;
		last = next;
	}
}

/* Return true if evictions are under way that may still serve the wait. */
static bool is_still_awaited(struct residency_device *device, struct lease_wait *wait)
{
	const struct seeker seeker = seeker_of(device, wait);

	if (seeker_tenant_free(&seeker) < (int64_t)wait->awaited_bytes)
		return false;
	if (residency_device_free(device) < 0 &&
	    !seeker_is_owed(&seeker, wait->awaited_bytes, true))
		return false;
	return device->leaving_bytes > 0 || device->n_jobs > 0;
}

/* Grant at least what the wait needs, and at most @goal bytes in all. */
static enum verdict try_grant(struct residency_device *device, struct lease_wait *wait,
			      uint64_t goal)
{
	uint64_t granted = lease_granted(wait->lease), least = more_for(wait);
	uint64_t most = goal > granted + least ? goal - granted : least;

	if (wait->awaited_bytes >= least) {
		const struct seeker seeker = seeker_of(device, wait);

		if (seeker_room(&seeker) >= wait->awaited_bytes)
			return try_bytes(device, wait, wait->awaited_bytes,
					 wait->awaited_bytes > most ? wait->awaited_bytes : most);
		if (is_still_awaited(device, wait))
			return LEAVING;
	}
	set_awaited(device, wait, 0);
	/* No eviction can make enough room. */
	if (least > residency_lease_room(device, wait->lease->tenant))
		return NO_ROOM;
	if (!wait->member)
		return try_wish(device, wait, least, most);
	return try_bytes(device, wait, least, most);
}

/*
 * Try to serve a wait, and note what it blocks if there is no room. *is_held: a wait keeps other
 * tenants within their parts.
 * Return: GRANTED, LEAVING or NO_ROOM.
 */
static enum verdict look_at(struct residency_device *device, struct lease_wait *wait, bool *is_held)
{
	struct lease *lease = wait->lease;
	struct tenant *tenant = lease->tenant;
	uint64_t number = device->residency->n_passes, goal = lease_wait_goal(wait);
	uint64_t need = lease_wait_need(wait), more = more_for(wait);
	enum verdict verdict = NO_ROOM;
	bool can_grow;

	if (lease->blocked_number == number)
		return NO_ROOM;
	lease->blocked_number = number;
	can_grow = tenant->memory->blocked_number != number && device->state == RESIDENCY_DEVICE_UP;
	if (*is_held)
		goal = min_u64(goal, lease_granted(lease) +
					     left_of_part(device, tenant, wait->awaited_bytes));
	if (more == 0) {
		lease->blocked_number = 0;
		if (can_grow)
			grow(device, lease, goal);
		return GRANTED;
	}
	if (need > lease->limit_bytes || !can_grow ||
	    lease_wait_is_hopeless(wait, most_alone(device, tenant))) {
		set_awaited(device, wait, 0);
		return NO_ROOM;
	}
	if ((!*is_held || is_within_part(device, wait)) && wait->failed_number != device->n_rounds)
		verdict = try_grant(device, wait, goal);
	if (verdict == GRANTED)
		lease->blocked_number = 0;
	if (verdict != NO_ROOM)
		return verdict;
	wait->failed_number = device->n_rounds;
	tenant->memory->blocked_number = number;
	if (holds_others(device, wait))
		*is_held = true;
	return NO_ROOM;
}

/*
 * Return the time until which a wait may last. It is later while plans are being evicted or loaded,
 * since a plan can be evicted once it is loaded.
 */
static uint64_t stays_until(const struct residency_device *device, const struct lease_wait *wait,
			    enum verdict verdict)
{
	const struct tenant *tenant = wait->lease->tenant;

	return verdict == LEAVING || tenant->memory->n_loads[device->index] > 0 ? wait->grace_ns
										: wait->until_ns;
}

/* Let residency_leases_changed() notice when less is granted. */
static void note_granted(struct residency_device *device)
{
	uint64_t granted = device->residency->leases.granted_bytes[device->index];

	if (granted > device->leased_bytes)
		device->leased_bytes = granted;
}

/* Refuse waits that wait only for each other, when no eviction or load can help them. */
static void refuse_deadlocked(struct residency_device *device)
{
	struct leases *leases = &device->residency->leases;
	struct lease_wait *wait =
		lease_find_deadlocked(leases, device->index, device->usable_bytes[EXEC_TIER_VRAM]);

	for (unsigned int n = 0; wait && n < MAX_ENDED; n++) {
		finish(device, wait, -EDEADLK);
		/* The refused wait has kept other waits from being served. */
		residency_review_in(device->residency, 0);
		wait = lease_find_next_deadlocked(leases);
	}
	device->has_new_waits = wait != NULL;
}

/* Return the time of the next pass. Passes in a row take a small part of the reactor's time. */
static uint64_t pause_after(uint64_t begin_ns)
{
	uint64_t now_ns = clock_now_ns();

	return now_ns + RESIDENCY_PAUSE * (now_ns - begin_ns);
}

/* Return true if @lease may be asked, or kept, to sleep for the wait. Call divide() first. */
static bool may_ask(struct residency_device *device, const struct lease *lease,
		    const struct lease_wait *wait)
{
	const struct tenant *tenant = lease->tenant;

	if (lease->device != device->index || lease == wait->lease ||
	    lease->sleep.movable_bytes <= lease->sleep.moved_bytes)
		return false;
	return tenant == wait->lease->tenant ||
	       (left_of_part(device, tenant, 0) == 0 && holds_others(device, wait));
}

/* Return true if @lease should sleep rather than @other, which may be NULL. */
static bool is_worth_less(const struct lease *lease, const struct lease *other)
{
	const bool is_busy = lease->has_busy && lease->busy_percent > 0;
	const bool other_is_busy = other && other->has_busy && other->busy_percent > 0;

	if (!other || is_busy != other_is_busy)
		return !other || !is_busy;
	return lease->sleep.movable_bytes - lease->sleep.moved_bytes >
	       other->sleep.movable_bytes - other->sleep.moved_bytes;
}

/*
 * Return the lease that should be asked next for the wait, and in *ret_can_help whether leases that
 * are or may be asked can give what the wait lacks. Call divide() first.
 */
static struct lease *find_sleeper(struct residency_device *device, const struct lease_wait *wait,
				  bool *ret_can_help)
{
	const struct seeker seeker = seeker_of(device, wait);
	uint64_t bytes = seeker_room(&seeker);
	struct lease *chosen = NULL;

	list_for_each (node, &device->residency->leases.all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (!may_ask(device, lease, wait))
			continue;
		bytes += lease->sleep.movable_bytes - lease->sleep.moved_bytes;
		if (!lease->sleep.is_asked && is_worth_less(lease, chosen))
			chosen = lease;
	}
	*ret_can_help = bytes >= more_for(wait);
	return chosen;
}

/*
 * While requests wait for room that others can give, ask leases to sleep, one after the other:
 * those that use the device least, and then those that can give most.
 */
static void ask_sleepers(struct residency_device *device, uint64_t now_ns)
{
	enum { MAX_WAITS = 8 };
	struct leases *leases = &device->residency->leases;
	const struct lease_wait *helped = NULL;
	const struct tenant *before = NULL;
	struct lease *chosen = NULL;
	bool can_help = false;
	unsigned int n = 0;

	if (device->leaving_bytes > 0 || device->state != RESIDENCY_DEVICE_UP)
		return;
	divide(device);
	list_for_each (at, &leases->waits[device->index]) {
		const struct lease_wait *wait = lease_wait_of(at);
		bool is_helped;

		/* Only the first request of a tenant is next. */
		if (wait->lease->tenant == before ||
		    lease_wait_is_hopeless(wait, most_alone(device, wait->lease->tenant)))
			continue;
		before = wait->lease->tenant;
		if (n++ == MAX_WAITS)
			break;
		chosen = find_sleeper(device, wait, &is_helped);
		can_help |= is_helped;
		helped = wait;
		if (is_helped && chosen)
			break;
		chosen = NULL;
	}
	if (!can_help) {
		if (device->asked_ns > 0)
			sleep_end_asking(leases, (uint8_t)device->index);
		device->asked_ns = 0;
		return;
	}
	if (!chosen || now_ns < device->asked_ns + ask_pause_ns)
		return;
	device->asked_ns = now_ns;
	sleep_ask(chosen);
	log_info_of(LOG_OF(.tenant = tenant_name(chosen->tenant), .has_device = true,
			   .device = chosen->device),
		    LOG_LEASE_SLEEPS,
		    "lease %u of \"%s\", tenant %s: its programs are asked for the %llu bytes that "
		    "they can move to host memory while they are idle, since lease %u of tenant %s "
		    "waits for room",
		    chosen->number, chosen->name, tenant_name(chosen->tenant),
		    ull(chosen->sleep.movable_bytes - chosen->sleep.moved_bytes),
		    helped->lease->number, tenant_name(helped->lease->tenant));
	residency_review_in(device->residency, ask_pause_ns);
}

/*
 * Start or continue a round. A long round takes several passes. Each pass visits all waits, because
 * a refusal decides what is left to later waits. A wait that found no room in this round is not
 * tried again, or long rounds would never reach the last waits.
 */
void residency_leases_serve(struct residency_device *device)
{
	struct residency *residency = device->residency;
	struct list_node *waits = &residency->leases.waits[device->index];
	uint64_t now_ns = clock_now_ns(), next_ns = UINT64_MAX;
	const uint64_t n_visits = residency->n_visits;
	const bool may_return = now_ns < residency->returning_ns;
	unsigned int n_ended = 0;
	bool is_held = false;

	if (residency->is_serving)
		return;
	device->n_pass_visits = 0;
	device->must_serve = false;
	if (list_is_empty(waits)) {
		ask_sleepers(device, now_ns);
		return;
	}
	residency->is_serving = true;
	residency->n_passes++;
	if (!device->is_round_cut)
		device->n_rounds++;
	device->is_round_cut = false;
	divide(device);
	sums_begin(device);
	list_for_each_safe (node, waits) {
		struct lease_wait *wait = lease_wait_of(node);
		struct lease *lease = wait->lease;
		const uint64_t of_lease = lease->blocked_number;
		const uint64_t of_tenant = lease->tenant->memory->blocked_number;
		const bool was_held = is_held;
		enum verdict verdict;
		uint64_t until_ns;

		if (n_ended == MAX_ENDED || residency->n_visits - n_visits > MAX_VISITS) {
			device->is_round_cut = true;
			break;
		}
		residency->leases.n_looks++;
		if (may_return) {
			verdict = more_for(wait) > 0 ? NO_ROOM : GRANTED;
			until_ns = max_u64(wait->until_ns, residency->returning_ns);
		} else {
			verdict = look_at(device, wait, &is_held);
			until_ns = stays_until(device, wait, verdict);
		}
		wait->available_bytes =
			left_by_sums(device, wait->lease->tenant, &wait->ahead_bytes);
		if (verdict != GRANTED && until_ns > now_ns) {
			sums_add(device, wait);
			next_ns = min_u64(next_ns, until_ns);
			continue;
		}
		n_ended++;
		if (verdict == GRANTED) {
			finish(device, wait, 0);
			continue;
		}
		/* A wait that has ended blocks no other wait. */
		lease->blocked_number = of_lease;
		lease->tenant->memory->blocked_number = of_tenant;
		is_held = was_held;
		finish(device, wait, wait->is_patient ? -ETIMEDOUT : -ENOMEM);
	}
	if (device->has_new_waits && device->leaving_bytes == 0 && device->n_jobs == 0 &&
	    !device->is_round_cut && !may_return)
		refuse_deadlocked(device);
	ask_sleepers(device, now_ns);
	residency->is_serving = false;
	device->n_pass_visits = residency->n_visits - n_visits;
	device->serve_ns = pause_after(now_ns);
	note_granted(device);
	if (device->is_round_cut)
		residency_leases_serve_later(device);
	else if (may_return || next_ns != UINT64_MAX)
		residency_review_in(residency, min_u64(next_ns, may_return ? residency->returning_ns
									   : UINT64_MAX) -
						       now_ns);
}

void residency_leases_serve_due(struct residency_device *device)
{
	if (device->must_serve && clock_now_ns() >= device->serve_ns)
		residency_leases_serve(device);
}

struct leases *residency_leases(struct residency *residency)
{
	return &residency->leases;
}

int residency_lease_new(struct residency *residency, const struct lease_about *about,
			struct lease **ret)
{
	if (tenant_memory_make(about->tenant))
		return error_origin(-ENOMEM);
	return lease_new(&residency->leases, about, ret);
}

/*
 * Serve waits at once, unless passes take long; then after a pause in proportion to their length. A
 * review, of all plans of all tenants, may be much later.
 */
static void serve_soon(struct residency_device *device)
{
	enum { AT_ONCE = 16, VISITS_AT_ONCE = RESIDENCY_SLICE };
	struct residency *residency = device->residency;

	if (residency->leases.n_waits[device->index] <= AT_ONCE &&
	    device->n_pass_visits <= VISITS_AT_ONCE && !residency->is_serving)
		residency_leases_serve(device);
	else
		residency_leases_serve_later(device);
}

void residency_lease_ask(struct residency *residency, struct lease_wait *wait, uint64_t patience_ns)
{
	struct residency_device *device = &residency->devices[wait->lease->device];

	if (patience_ns > LEASE_MAX_WAIT_NS)
		patience_ns = LEASE_MAX_WAIT_NS;
	wait->awaited_bytes = 0;
	wait->failed_number = 0;
	wait->is_patient = patience_ns > 0;
	wait->until_ns = clock_now_ns() + patience_ns;
	wait->grace_ns = wait->until_ns + (patience_ns < grace_ns ? grace_ns - patience_ns : 0);
	lease_wait_begin(wait);
	device->has_new_waits = true;
	serve_soon(device);
}

void residency_lease_withdraw(struct residency *residency, struct lease_wait *wait)
{
	set_awaited(&residency->devices[wait->lease->device], wait, 0);
	lease_wait_end(wait);
	/* The withdrawn wait may have blocked other waits, and plans. */
	residency_leases_serve_later(&residency->devices[wait->lease->device]);
	residency_review_in(residency, 0);
}

void residency_leases_changed(struct residency *residency, unsigned int index)
{
	struct residency_device *device = &residency->devices[index];
	uint64_t granted = residency->leases.granted_bytes[index];
	bool is_less = granted < device->leased_bytes;

	device->leased_bytes = granted;
	serve_soon(device);
	/* Plans may have room now. */
	if (is_less || residency->has_large_leases)
		residency_review_in(residency, 0);
}

void residency_lease_grow(struct residency *residency, struct lease *lease)
{
	struct residency_device *device = &residency->devices[lease->device];
	uint64_t left, ahead;

	/* Its members ask for what they use when they are awake. */
	if (sleep_is_sleeping(&lease->sleep))
		return;
	divide(device);
	left = left_by_waits(device, lease->tenant, NULL, &ahead);
	if (left > lease->max_bytes)
		left = lease->max_bytes;
	if (device->state == RESIDENCY_DEVICE_UP)
		grow(device, lease, min_u64(lease->wish_bytes, lease_granted(lease) + left));
	note_granted(device);
}

void residency_leases_return(struct residency *residency)
{
	const uint64_t now_ns = clock_now_ns();

	if (now_ns - residency->started_ns < return_age_ns)
		residency->returning_ns = now_ns + return_ns;
}

uint64_t residency_lease_believed(struct residency *residency, unsigned int index,
				  struct tenant *tenant)
{
	const struct residency_device *device = &residency->devices[index];
	const struct seeker seeker = {.device = &residency->devices[index], .tenant = tenant};
	uint64_t bytes = seeker_room(&seeker) + device->outside_bytes;
	int64_t of_tenant = seeker_tenant_free(&seeker);

	if (of_tenant < 0)
		return 0;
	return bytes < (uint64_t)of_tenant ? bytes : (uint64_t)of_tenant;
}

void residency_lease_believe(struct residency *residency, unsigned int index, struct tenant *tenant,
			     uint64_t bytes)
{
	struct residency_device *device = &residency->devices[index];
	const struct seeker seeker = {.device = device, .tenant = tenant};
	uint64_t room = seeker_room(&seeker), more = bytes > room ? bytes - room : 0;

	/* The next sample will show the same. */
	if (more > device->outside_bytes)
		more = device->outside_bytes;
	device->outside_bytes -= more;
	device->usable_bytes[EXEC_TIER_VRAM] += more;
}

bool residency_has_memory(const struct residency *residency, unsigned int device)
{
	return device < residency->options.n_executors &&
	       residency->devices[device].state != RESIDENCY_DEVICE_NONE;
}

/* Limits */

/*
 * Return the bytes that each of a tenant's leases may keep, so that they have @max_bytes together.
 * A lease with less than this part keeps all it has. With many leases of many sizes the part may be
 * a little too small.
 */
static uint64_t fair_part(const struct leases *leases, const struct tenant *tenant, uint8_t device,
			  uint64_t max_bytes)
{
	enum { PASSES = 8 };
	uint64_t part = 0, before;

	for (unsigned int i = 0; i < PASSES; i++) {
		uint64_t left = max_bytes;
		uint32_t n = 0;

		before = part;
		list_for_each (node, &leases->all) {
			const struct lease *lease = container_of(node, struct lease, link);

			if (lease->tenant != tenant || lease->device != device)
				continue;
			if (lease_granted(lease) <= before)
				left -= lease_granted(lease);
			else
				n++;
		}
		part = n > 0 ? left / n : before;
		if (part <= before)
			break;
	}
	return part;
}

/*
 * Return the bytes that a lease may keep. The part is computed once for all leases of a tenant on a
 * device.
 */
static uint64_t allowed_to(struct residency *residency, const struct lease *lease)
{
	struct tenant *tenant = lease->tenant;
	struct tenant_leases *of_tenant = tenant->leases;
	uint64_t max = tenant->shares[lease->device].max;

	if (of_tenant->granted[lease->device] <= max)
		return max;
	residency->has_large_leases = true;
	if (of_tenant->part_number != residency->n_parts) {
		of_tenant->part_number = residency->n_parts;
		of_tenant->part_bytes = fair_part(&residency->leases, tenant, lease->device, max);
	}
	return of_tenant->part_bytes;
}

void residency_leases_limit(struct residency *residency)
{
	residency->has_large_leases = false;
	for (unsigned int i = 1; i < residency->options.n_executors; i++) {
		residency->n_parts++;
		list_for_each (node, &residency->leases.all) {
			struct lease *lease = container_of(node, struct lease, link);

			if (lease->device == i)
				lease_allow(lease, allowed_to(residency, lease));
		}
	}
}
