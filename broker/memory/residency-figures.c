/* SPDX-License-Identifier: MIT */
/*
 * Residency: figures
 *
 * The sizes and values of plans, and the free memory of devices and tenants. No function here loads
 * or evicts a plan.
 */
#include "memory/residency-private.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/number.h"

/* Plans */

void residency_fold_plan_at(struct residency_plan *plan, uint64_t now_ns, uint64_t now_ticks)
{
	struct plan_memory *memory = plan->memory;
	uint64_t since_ns = clock_elapsed_ns(memory->wanted_ticks, now_ticks);

	if (memory->n_wanted > 0) {
		plan->used_ns = now_ns - since_ns;
		plan->is_parked = false;
	}
	plan->value =
		residency_value(plan->value, memory->n_wanted, now_ns - plan->folded_ns, since_ns);
	plan->folded_ns = now_ns;
	memory->n_wanted = 0;
}

void residency_fold_plan(struct residency_plan *plan)
{
	residency_fold_plan_at(plan, clock_now_ns(), clock_ticks());
}

void residency_look(struct residency *residency)
{
	residency->look_ns = clock_now_ns();
	residency->look_ticks = clock_ticks();
}

uint64_t residence_required(const struct residence *residence)
{
	const struct executor_info *info = &residence->device->executor->info;
	const struct plan *plan = residence->plan->memory->plan;
	const unsigned int index = residence->device->index;
	uint64_t bytes = exec_footprint_device_bytes(&plan->footprint[index], info, 1);

	return checked_add(bytes, plan->block_bytes[index], &bytes) ? bytes : UINT64_MAX;
}

uint64_t residence_bytes(const struct residence *residence)
{
	uint64_t bytes = residence->work_charge.device.amount;

	for (uint32_t i = 0; i < residence->n_sharing; i++)
		if (residence->sharing[i]->n_there == 1)
			bytes += residence->sharing[i]->exec.bytes;
	return bytes;
}

bool residency_plan_is_gone(const struct residency_plan *plan, uint8_t device)
{
	for (unsigned int i = 1; i < plan->residency->options.n_executors; i++)
		if ((device == RBK_DEVICE_NONE || device == i) &&
		    plan->on[i].state != RESIDENCE_OUT)
			return false;
	return true;
}

void residence_show(struct residence *residence)
{
	struct plan_memory *memory = residence->plan->memory;
	unsigned int index = residence->device->index;
	uint8_t state = PLAN_DEVICE_EVICTED;

	if (!(residence->plan->supported & 1u << index))
		return;
	if (residence->device->state != RESIDENCY_DEVICE_UP)
		state = PLAN_DEVICE_FAILED;
	else if (residence->state == RESIDENCE_IN)
		state = PLAN_DEVICE_READY;
	else if (!residence_fits(residence))
		state = PLAN_DEVICE_NO_MEMORY;
	if (state == PLAN_DEVICE_READY)
		memory->plan->n_slots[index] = residence->n_slots;
	memory->plan->device_state[index] = state;
}

/* Room */

const struct tenant_memory tenant_memory_none;

uint64_t residency_tenant_used(const struct residency_device *device, const struct tenant *tenant)
{
	return account_used(tenant->account, account_vram(device->index)) -
	       memory_of(tenant)->leaving[device->index];
}

/* Return the VRAM bytes charged for plans and leases. */
static uint64_t device_charged(const struct residency_device *device)
{
	return device->charged_bytes[EXEC_TIER_VRAM] +
	       device->residency->leases.granted_bytes[device->index];
}

int64_t residency_device_free(const struct residency_device *device)
{
	return (int64_t)device->usable_bytes[EXEC_TIER_VRAM] -
	       (int64_t)(device_charged(device) - device->leaving_bytes) -
	       (int64_t)device->awaited_bytes - (int64_t)device->refused_bytes;
}

uint64_t seeker_tenant_awaited(const struct seeker *seeker)
{
	return memory_of(seeker->tenant)->awaited[seeker->device->index] - seeker->awaited_bytes;
}

int64_t residency_tenant_free(const struct residency_device *device, const struct tenant *tenant)
{
	return (int64_t)tenant->shares[device->index].max -
	       (int64_t)residency_tenant_used(device, tenant);
}

int64_t seeker_tenant_free(const struct seeker *seeker)
{
	return residency_tenant_free(seeker->device, seeker->tenant) -
	       (int64_t)seeker_tenant_awaited(seeker);
}

/* Return the bytes of other tenants' reserves that their leases have not taken. */
static uint64_t reserved_for_others(const struct residency_device *device,
				    const struct tenant *tenant)
{
	const struct leases *leases = &device->residency->leases;
	unsigned int i = device->index;

	return saturating_sub(saturating_sub(device->reserved_bytes, tenant->shares[i].reserve),
			      leases->of_reserves_bytes[i] - leases_of(tenant)->of_reserve[i]);
}

/*
 * Plans are evicted for a request that is owed, leases are not. So leases keep out of the reserves
 * of other tenants, even before those tenants use them.
 */
uint64_t residency_lease_room(const struct residency_device *device, const struct tenant *tenant)
{
	uint64_t granted = device->residency->leases.granted_bytes[device->index];
	uint64_t kept = granted + reserved_for_others(device, tenant);
	uint64_t room = saturating_sub(device->usable_bytes[EXEC_TIER_VRAM], kept);
	uint64_t own = saturating_sub(tenant->shares[device->index].reserve,
				      leases_of(tenant)->granted[device->index]);

	return room > own ? room : own;
}

/*
 * Bytes that are still being freed, and bytes set aside for other requests, do not count as room.
 */
uint64_t seeker_room(const struct seeker *seeker)
{
	const struct residency_device *device = seeker->device;
	const struct account *account = seeker->tenant->account;
	uint64_t max = seeker->tenant->shares[device->index].max;
	uint64_t usable =
		saturating_sub(device->usable_bytes[EXEC_TIER_VRAM], device->refused_bytes);
	uint64_t charged = device_charged(device);
	uint64_t kept =
		charged - device->leaving_bytes + device->awaited_bytes - seeker->awaited_bytes;
	uint64_t used = account_used(account, account_vram(device->index));
	uint64_t promised =
		residency_tenant_used(device, seeker->tenant) + seeker_tenant_awaited(seeker);

	uint64_t room =
		min_u64(min_u64(saturating_sub(usable, charged), saturating_sub(usable, kept)),
			min_u64(saturating_sub(max, used), saturating_sub(max, promised)));

	return seeker->residence ? room
				 : min_u64(room, residency_lease_room(device, seeker->tenant));
}

uint64_t residency_available(const struct residency_device *device, const struct tenant *tenant)
{
	int64_t of_tenant = residency_tenant_free(device, tenant),
		of_device = residency_device_free(device);
	uint64_t evictable = memory_of(tenant)->evictable[device->index];
	uint64_t leased = leases_of(tenant)->granted[device->index];
	uint64_t reserve = tenant->shares[device->index].reserve;

	/*
	 * The tenant's own plans can be evicted; so can those of tenants that hold more than their
	 * due.
	 */
	of_tenant += (int64_t)evictable;
	of_device += (int64_t)evictable;
	if (of_device < (int64_t)saturating_sub(reserve, leased))
		of_device = (int64_t)saturating_sub(reserve, leased);
	if (of_device < 0)
		of_device = 0;
	return (uint64_t)(of_tenant < of_device ? of_tenant > 0 ? of_tenant : 0 : of_device);
}

uint64_t residence_available(const struct residence *residence)
{
	return residency_available(residence->device, residence->plan->tenant);
}
