/* SPDX-License-Identifier: MIT */
/*
 * Leases: see lease.h.
 *
 * Granted bytes that are ungiven stay with the lease up to its wish: the lease was opened for them,
 * and members will ask for them again. Bytes beyond the wish are given back together with the
 * credit that they were granted for, so that no lease keeps the most that it ever had.
 */
#include "lease/lease.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/number.h"

int leases_init(struct leases *leases)
{
	enum { BASES = 9000, NUMBERS = 1000, FIRST_BUCKETS = 256 };
	uint16_t random = 0;

	*leases = (struct leases){.n = 0};
	list_init(&leases->all);
	list_init(&leases->tenants);
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		list_init(&leases->waits[i]);
	timeslices_init(&leases->timeslices);
	/*
	 * Programs keep the lease numbers of a broker that ended, and other programs join leases by
	 * these numbers. So the next broker should begin with other numbers. Without randomness it
	 * does not.
	 */
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		random = 0;
	leases->next_number = random % BASES * NUMBERS;
	/* Without randomness the seed is the time, which the hash mixes. */
	if (getrandom(&leases->seed, sizeof(leases->seed), GRND_NONBLOCK) != sizeof(leases->seed))
		leases->seed = clock_now_ns();
	leases->n_buckets = FIRST_BUCKETS;
	leases->buckets = calloc(FIRST_BUCKETS, sizeof(*leases->buckets));
	return leases->buckets ? 0 : error_origin(-ENOMEM);
}

void leases_deinit(struct leases *leases)
{
	assert(list_is_empty(&leases->all));
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		assert(list_is_empty(&leases->waits[i]));
		assert(leases->granted_bytes[i] == 0 && leases->of_reserves_bytes[i] == 0);
		assert(leases->n_tenants[i] == 0);
	}
	assert(leases->n_objects == 0);
	free(leases->buckets);
	leases->buckets = NULL;
}

static void store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static void store_half(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

void lease_show(const struct lease *lease)
{
	const struct lease_timeslice *slice = &lease->timeslice;
	struct rbk_lease_page *page = lease->page;
	uint32_t priority = slice->set_priority;

	if (!page)
		return;
	if (priority == 0)
		priority = lease->tenant->exec_priority;
	store(&page->max_bytes, lease->max_bytes);
	store(&page->granted_bytes, lease_granted(lease));
	store(&page->wish_bytes, min_u64(lease->limit_bytes, lease->allowed_bytes));
	store(&page->credited_bytes, lease->credited_bytes);
	store(&page->peak_bytes, lease->peak_bytes);
	store(&page->peak_credited_bytes, lease->peak_credited_bytes);
	store(&page->n_refused, lease->n_refused);
	store(&page->resized_bytes, lease->resized_bytes);
	store_half(&page->priority, priority == 1 + RBK_PRIORITY_NONE ? 0 : priority);
	store_half(&page->share, timeslice_share(lease));
	store_half(&page->max_part_us, (uint32_t)(lease->tenant->exec_max_part_ns / 1000));
	store_half(&page->set, (slice->set_priority > 0 ? RBK_LEASE_SET_PRIORITY : 0) |
				       (slice->share > 0 ? RBK_LEASE_SET_SHARE : 0));
	store_half(&page->sleep, sleep_state(&lease->sleep));
	store(&page->slice_ns, slice->used_ns);
	store(&page->slice_wait_ns, slice->waited_ns);
}

void leases_show(const struct leases *leases)
{
	list_for_each (node, &leases->all)
		lease_show(container_of(node, struct lease, link));
}

static bool is_number_taken(const struct leases *leases, uint32_t number)
{
	list_for_each (node, &leases->all) {
		const struct lease *lease = container_of(node, struct lease, link);

		if (lease->number == number)
			return true;
	}
	return false;
}

static uint32_t take_number(struct leases *leases)
{
	do
		leases->next_number++;
	while (leases->next_number == 0 || is_number_taken(leases, leases->next_number));
	return leases->next_number;
}

const struct tenant_leases *leases_of(const struct tenant *tenant)
{
	static const struct tenant_leases none;

	return tenant->leases ? tenant->leases : &none;
}

int leases_know(struct tenant *tenant)
{
	if (tenant->leases)
		return 0;
	tenant->leases = calloc(1, sizeof(*tenant->leases));
	if (!tenant->leases)
		return error_origin(-ENOMEM);
	tenant->leases->tenant = tenant;
	return 0;
}

int lease_new(struct leases *leases, const struct lease_about *about, struct lease **ret)
{
	struct tenant_leases *of_tenant;
	struct lease *lease;
	int r;

	r = leases_know(about->tenant);
	if (r)
		return error_fold(r);
	of_tenant = about->tenant->leases;
	lease = calloc(1, sizeof(*lease));
	if (!lease)
		return error_origin(-ENOMEM);
	lease->leases = leases;
	lease->tenant = tenant_ref(about->tenant);
	lease->uid = about->uid;
	lease->pid = about->pid;
	lease->device = about->device;
	lease->restored_number = about->restored_number;
	lease->min_bytes = about->min_bytes;
	lease->wish_bytes = about->wish_bytes;
	lease->max_bytes = lease->limit_bytes = about->max_bytes;
	lease->allowed_bytes = about->tenant->shares[about->device].max;
	snprintf(lease->name, sizeof(lease->name), "%s", about->name);
	lease->cgroup_fd = -1;
	list_init(&lease->members);
	/*
	 * Programs that know the lease by its former number find it, unless the number has been
	 * reused.
	 */
	if (about->restored_number && !is_number_taken(leases, about->restored_number))
		lease->number = about->restored_number;
	else
		lease->number = take_number(leases);
	list_append(&leases->all, &lease->link);
	leases->n++;
	if (of_tenant->n_all++ == 0)
		list_append(&leases->tenants, &of_tenant->link);
	if (of_tenant->n[lease->device]++ == 0)
		leases->n_tenants[lease->device]++;
	*ret = lease;
	return 0;
}

/* The callback sees from leases.all whether the lease still exists. */
static void tell_of_cgroup(const struct lease *lease)
{
	if (lease->cgroup_id && lease->leases->cgroup_changed)
		lease->leases->cgroup_changed(lease->leases->cgroup_context, lease);
}

static void count_reserve(struct leases *leases, struct tenant *tenant, uint8_t device)
{
	struct tenant_leases *of_tenant = tenant->leases;
	uint64_t bytes = min_u64(of_tenant->granted[device], tenant->shares[device].reserve);

	leases->of_reserves_bytes[device] += bytes - of_tenant->of_reserve[device];
	of_tenant->of_reserve[device] = bytes;
}

/* Add @more_bytes, which wrap around to subtract. */
static void count_granted(struct lease *lease, uint64_t more_bytes)
{
	lease->leases->granted_bytes[lease->device] += more_bytes;
	lease->tenant->leases->granted[lease->device] += more_bytes;
	count_reserve(lease->leases, lease->tenant, lease->device);
}

void leases_count_reserves(struct leases *leases, uint8_t device)
{
	list_for_each (node, &leases->all)
		count_reserve(leases, container_of(node, struct lease, link)->tenant, device);
}

struct lease *lease_free(struct lease *lease)
{
	struct tenant_leases *of_tenant;

	if (!lease)
		return NULL;
	of_tenant = lease->tenant->leases;
	assert(lease->n_members == 0 && lease->n_waits == 0);
	assert(lease->credited_bytes == 0 && lease->object_bytes == 0);
	count_granted(lease, 0 - lease_granted(lease));
	if (--of_tenant->n_all == 0)
		list_remove(&of_tenant->link);
	if (--of_tenant->n[lease->device] == 0)
		lease->leases->n_tenants[lease->device]--;
	lease->leases->n_changes++;
	charge_deinit(&lease->charge);
	list_remove(&lease->link);
	lease->leases->n--;
	tell_of_cgroup(lease);
	close_fd(lease->cgroup_fd);
	charge_deinit(&lease->cgroup_charge);
	tenant_unref(lease->tenant);
	free(lease);
	return NULL;
}

static bool is_of(const struct lease *lease, const struct tenant *tenant, uid_t uid)
{
	return lease->tenant == tenant && lease->uid == uid;
}

struct lease *lease_find_restored(const struct leases *leases, uint32_t number,
				  const struct tenant *tenant, uid_t uid)
{
	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (lease->restored_number == number && is_of(lease, tenant, uid))
			return lease;
	}
	return NULL;
}

struct lease *lease_find(const struct leases *leases, uint32_t number, const struct tenant *tenant,
			 uid_t uid)
{
	struct lease *found = NULL, *restored;

	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (lease->number == number)
			found = lease;
	}
	if (found && is_of(found, tenant, uid))
		return found;
	restored = lease_find_restored(leases, number, tenant, uid);
	return restored ? restored : found;
}

int lease_grant(struct lease *lease, uint64_t bytes, bool is_forced)
{
	struct account *account = lease->tenant->account;
	enum account_slot slot = account_vram(lease->device);
	uint64_t before = lease_granted(lease);

	assert(bytes >= lease->credited_bytes);
	if (is_forced)
		account_charge_set(account, &lease->charge, slot, bytes);
	else if (account_charge_change(account, &lease->charge, slot, bytes))
		return LEASE_E_QUOTA;
	count_granted(lease, lease_granted(lease) - before);
	lease->leases->n_changes++;
	lease->audited_bytes = max_u64(lease->audited_bytes, lease_granted(lease));
	lease_show(lease);
	return 0;
}

uint64_t lease_trim(struct lease *lease)
{
	uint64_t granted = lease_granted(lease);
	uint64_t wanted = sleep_is_sleeping(&lease->sleep)
				  ? 0
				  : min_u64(lease->wish_bytes, lease->allowed_bytes);
	uint64_t kept = max_u64(lease->credited_bytes, wanted);

	if (kept >= granted)
		return 0;
	/* Fewer bytes are always granted. */
	if (lease_grant(lease, kept, false))
		assert(!"less");
	return granted - kept;
}

void lease_resize(struct lease *lease, uint64_t wish_bytes)
{
	assert(wish_bytes <= lease->max_bytes);
	lease->wish_bytes = lease->limit_bytes = lease->resized_bytes = wish_bytes;
	lease_trim(lease);
	lease_show(lease);
}

void lease_allow(struct lease *lease, uint64_t bytes)
{
	if (bytes == lease->allowed_bytes)
		return;
	lease->allowed_bytes = bytes;
	lease_trim(lease);
	lease_show(lease);
}

bool lease_is_shrinking(const struct lease *lease)
{
	return lease_granted(lease) > min_u64(lease->limit_bytes, lease->allowed_bytes);
}

/* Restored leases */

uint64_t leases_restored_ungiven(const struct leases *leases, const struct tenant *tenant,
				 uint8_t device)
{
	uint64_t bytes = 0;

	list_for_each (node, &leases->all) {
		const struct lease *lease = container_of(node, struct lease, link);

		if (lease->tenant == tenant && lease->device == device && lease->restored_number)
			bytes += lease_ungiven(lease);
	}
	return bytes;
}

void leases_take_back(struct leases *leases, const struct lease *but, const struct tenant *tenant,
		      uint8_t device, uint64_t bytes)
{
	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);
		uint64_t part = min_u64(lease_ungiven(lease), bytes);

		if (lease == but || lease->tenant != tenant || lease->device != device ||
		    !lease->restored_number || part == 0)
			continue;
		/* Fewer bytes are always granted. */
		if (lease_grant(lease, lease_granted(lease) - part, false))
			assert(!"less");
		bytes -= part;
	}
}

/* The cgroup */

struct lease *lease_of_cgroup(const struct leases *leases, uint8_t device, uint64_t id)
{
	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (lease->device == device && lease->cgroup_id == id)
			return lease;
	}
	return NULL;
}

int lease_set_cgroup(struct lease *lease, int *fd, uint64_t id)
{
	assert(id != 0);
	if (lease->cgroup_id)
		return lease->cgroup_id == id ? 0 : LEASE_E_EXISTS;
	if (lease_of_cgroup(lease->leases, lease->device, id))
		return LEASE_E_TAKEN;
	if (account_charge(lease->tenant->account, &lease->cgroup_charge, ACCOUNT_FDS, 1))
		return LEASE_E_HOST_QUOTA;
	lease->cgroup_fd = steal_fd(fd);
	lease->cgroup_id = id;
	tell_of_cgroup(lease);
	return 0;
}
