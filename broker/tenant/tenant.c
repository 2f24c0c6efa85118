/* SPDX-License-Identifier: MIT */
/*
 * Tenants
 *
 * A tenant is in the list from the policy that first names it until no policy in force names it and
 * it has no references. A tenant that is no longer named, but referenced by a session, keeps its
 * limits. If a later policy names it again, the same object is used.
 *
 * A reload first prepares everything that can fail (the check of the reserves, new tenants), and
 * only then changes anything.
 *
 * Descriptors and mappings are limited by the process, not by a policy. They are divided evenly
 * among the named tenants, so that no tenant can use up the others' part.
 */
#include "tenant/tenant-private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tenant/policy-private.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/number.h"
#include "util/size.h"

enum {
	/* Rings per session; the limits of descriptors and mappings are reached first. */
	TENANT_RINGS_PER_SESSION = 4,
	TENANTS_BUCKETS = 256,
	/* Minimum for each tenant, enough to connect and work, however many tenants there are. */
	TENANT_MIN_FDS = 64,
	TENANT_MIN_MAPPINGS = 64,
	TENANT_MIN_WATCHES = 64,
};

struct tenants {
	struct account_book *book;
	struct tenants_machine machine;
	struct policy *policy;
	struct account *broker_account;
	struct list_node list;
	struct tenant *buckets[TENANTS_BUCKETS]; /* by number */
	struct tenant **by_index;                /* by index in the policy */
	uint32_t last_number;
};

static void limits_of(const struct tenants_machine *machine, const struct tenant_policy *policy,
		      uint32_t n_tenants, struct account_limits *ret)
{
	*ret = (struct account_limits){{
		[ACCOUNT_SESSIONS] = policy->sessions_max,
		[ACCOUNT_ARENAS] = policy->arenas_max,
		[ACCOUNT_PLANS] = policy->plans_max,
		[ACCOUNT_TASKS] = policy->tasks_max,
		[ACCOUNT_ARENA_BYTES] = policy->arena_bytes_max,
		[ACCOUNT_HOST_BYTES] = policy_size_bytes(policy->host_max, machine->host_bytes),
		[ACCOUNT_FDS] = max_u64(machine->n_fds / n_tenants,
					min_u64(machine->n_fds, TENANT_MIN_FDS)),
		[ACCOUNT_MAPPINGS] = max_u64(machine->n_mappings / n_tenants, TENANT_MIN_MAPPINGS),
		[ACCOUNT_WATCHES] =
			machine->n_watches == 0
				? UINT64_MAX
				: max_u64(machine->n_watches / n_tenants, TENANT_MIN_WATCHES),
	}};
	if (!checked_mul(policy->sessions_max, TENANT_RINGS_PER_SESSION, &ret->max[ACCOUNT_RINGS]))
		ret->max[ACCOUNT_RINGS] = UINT64_MAX;
	for (uint32_t i = 0; i < machine->n_devices; i++) {
		ret->max[account_vram(i)] =
			policy_size_bytes(policy->vram_max, machine->vram_bytes[i]);
		ret->max[account_gtt(i)] =
			policy_size_bytes(policy->gtt_max, machine->gtt_bytes[i]);
	}
}

void tenant_set_lowered(struct tenant *tenant, bool is_lowered)
{
	tenant->is_lowered = is_lowered;
	tenant->weight = is_lowered ? max_u64(tenant->full_weight / 10, 1) : tenant->full_weight;
	tenant->priority_max = is_lowered ? RBK_PRIORITY_LOW : tenant->full_priority_max;
}

/* Cannot fail. */
static void tenant_apply(struct tenant *tenant, const struct tenants_machine *machine,
			 const struct tenant_policy *wanted, uint32_t n_tenants)
{
	struct account_limits limits;

	limits_of(machine, wanted, n_tenants, &limits);
	account_set_limits(tenant->account, &limits);
	for (uint32_t i = 0; i < machine->n_devices; i++) {
		struct tenant_share *share = &tenant->shares[i];
		uint64_t bytes = machine->vram_bytes[i];

		share->max = min_u64(policy_size_bytes(wanted->vram_max, bytes), bytes);
		/* A device without memory of its own has no reserve, since max is 0. */
		share->reserve =
			min_u64(policy_size_bytes(wanted->vram_reserve, bytes), share->max);
		/* One may be a percentage and the other bytes: clamp to the nearest valid value. */
		share->high = max_u64(policy_size_bytes(wanted->vram_high, bytes), share->reserve);
		share->high = min_u64(share->high, share->max);
	}
	tenant->full_weight = wanted->weight;
	tenant->full_priority_max = wanted->priority_max;
	tenant_set_lowered(tenant, tenant->is_lowered);
	tenant->cpu_max = wanted->cpu_max;
	tenant->lease_audit = wanted->lease_audit;
	tenant->is_lease_required = wanted->lease_required;
	tenant->lease_tolerance = wanted->lease_tolerance;
	tenant->exec_priority = wanted->exec_priority;
	tenant->exec_max_part_ns = wanted->exec_max_part_ns;
	tenant->is_named = true;
}

static void forget_number(struct tenant *tenant)
{
	struct tenant **at = &tenant->tenants->buckets[tenant->number % TENANTS_BUCKETS];

	while (*at != tenant)
		at = &(*at)->next;
	*at = tenant->next;
}

static struct tenant *tenant_free(struct tenant *tenant)
{
	if (!tenant)
		return NULL;
	if (tenant->number)
		forget_number(tenant);
	assert(fair_flow_is_idle(&tenant->setup));
	assert(list_is_empty(&tenant->checks) && !tenant->is_checking);
	list_remove(&tenant->link);
	overrides_free(tenant);
	account_unref(tenant->account);
	free(tenant->memory);
	free(tenant->leases);
	free(tenant);
	return NULL;
}

static int tenant_new(struct account_book *book, const char *name, struct tenant **ret)
{
	static const struct account_limits none;
	struct tenant *tenant = calloc(1, sizeof(*tenant));
	int r;

	if (!tenant)
		return error_origin(-ENOMEM);
	list_init(&tenant->link);
	list_init(&tenant->overrides);
	list_init(&tenant->checks);
	fair_flow_init(&tenant->setup);
	r = account_new(book, name, &none, &tenant->account);
	if (r) {
		tenant_free(tenant);
		return error_fold(r);
	}
	*ret = tenant;
	return 0;
}

static struct tenant *find_by_name(const struct tenants *tenants, const char *name)
{
	list_for_each (node, &tenants->list) {
		struct tenant *tenant = container_of(node, struct tenant, link);

		if (strcmp(tenant_name(tenant), name) == 0)
			return tenant;
	}
	return NULL;
}

static void tenants_drop_unused(struct tenants *tenants)
{
	list_for_each_safe (node, &tenants->list) {
		struct tenant *tenant = container_of(node, struct tenant, link);

		if (!tenant->is_named && tenant->n_refs == 0)
			tenant_free(tenant);
	}
}

/* Undo collect(): free the tenants that it created, which have no number yet. */
static void forget_collected(struct tenant **by_index, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (by_index[i] && by_index[i]->number == 0)
			tenant_free(by_index[i]);
	free(by_index);
}

/* Find or create the tenants of @policy. On failure the created ones are freed. */
static int collect(const struct tenants *tenants, const struct policy *policy,
		   struct tenant ***ret_by_index)
{
	uint32_t n = policy_n_tenants(policy);
	struct tenant **by_index = calloc(n, sizeof(struct tenant *));
	int r = 0;

	if (!by_index)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < n && r == 0; i++) {
		const char *name = policy_tenant(policy, i)->name;

		by_index[i] = find_by_name(tenants, name);
		if (!by_index[i])
			r = tenant_new(tenants->book, name, &by_index[i]);
	}
	if (r) {
		forget_collected(by_index, n);
		return r;
	}
	*ret_by_index = by_index;
	return 0;
}

/*
 * Return the limits that the tenants of @policy would have with it in force, by index, after
 * checking that they fit the devices.
 * Return: 0: *ret is to be freed; POLICY_E_INVALID; -ENOMEM.
 */
static int make_wanted(const struct tenants *tenants, const struct policy *policy,
		       struct tenant *const *by_index, struct tenant_policy **ret,
		       char **ret_errors)
{
	uint32_t n = policy_n_tenants(policy);
	struct tenant_policy *wanted = calloc(n, sizeof(*wanted));
	int r;

	if (!wanted)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < n; i++)
		overrides_apply(by_index[i], policy_tenant(policy, i), &wanted[i]);
	r = policy_check_changed(policy, wanted, tenants->machine.vram_bytes,
				 tenants->machine.n_devices, ret_errors);
	if (r) {
		free(wanted);
		return r;
	}
	*ret = wanted;
	return 0;
}

/* Return a tenant's index in the policy in force, or UINT32_MAX. */
static uint32_t index_of(const struct tenants *tenants, const struct tenant *tenant)
{
	for (uint32_t i = 0; tenants->policy && i < policy_n_tenants(tenants->policy); i++)
		if (tenants->by_index[i] == tenant)
			return i;
	return UINT32_MAX;
}

/*
 * Drop overrides of keys whose value in the file changed. If the new reserves do not fit beside the
 * remaining overrides, drop all overrides.
 * Return: 0; -ENOMEM: nothing changed.
 */
static int reload_overrides(struct tenants *tenants, const struct policy *policy,
			    struct tenant *const *by_index)
{
	uint32_t n = policy_n_tenants(policy);
	struct tenant_policy *wanted = NULL;
	char *errors = NULL;
	bool is_any = false;
	int r;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t before = UINT32_MAX;

		if (by_index[i]->is_changed)
			before = index_of(tenants, by_index[i]);
		is_any |= by_index[i]->is_changed;
		if (before != UINT32_MAX)
			overrides_mark(by_index[i], policy_tenant(tenants->policy, before),
				       policy_tenant(policy, i));
	}
	if (!is_any)
		return 0;
	r = make_wanted(tenants, policy, by_index, &wanted, &errors);
	for (uint32_t i = 0; i < n; i++) {
		if (r > 0)
			overrides_free(by_index[i]);
		else
			overrides_settle(by_index[i], r == 0);
	}
	free(errors);
	free(wanted);
	return r < 0 ? r : 0;
}

/* Apply the limits to all tenants of the policy. Cannot fail. */
static void apply_all(struct tenants *tenants, const struct tenant_policy *wanted)
{
	uint32_t n = policy_n_tenants(tenants->policy);

	for (uint32_t i = 0; i < n; i++)
		tenant_apply(tenants->by_index[i], &tenants->machine, &wanted[i], n);
}

int tenants_set(struct tenants *tenants, struct tenant *tenant, const char *key, const char *value,
		char **ret_errors)
{
	uint32_t index = index_of(tenants, tenant);
	struct tenant_policy *wanted = NULL;
	struct list_node before;
	int r;

	if (index == UINT32_MAX) {
		*ret_errors = strdup("the policy no longer names this tenant");
		return *ret_errors ? POLICY_E_INVALID : error_origin(-ENOMEM);
	}
	r = overrides_copy(tenant, &before);
	if (r)
		return error_fold(r);
	r = overrides_set(tenant, tenants->policy, index, key, value, ret_errors);
	if (r == 0)
		r = make_wanted(tenants, tenants->policy, tenants->by_index, &wanted, ret_errors);
	overrides_keep(tenant, &before, r == 0);
	if (r)
		return r;
	apply_all(tenants, wanted);
	free(wanted);
	return 0;
}

uint32_t tenants_n_keys(void)
{
	uint32_t n = 0;

	for (unsigned int i = 0; i < POLICY_KEY_COUNT; i++)
		n += policy_key_rows[i].kind != POLICY_VALUE_MATCH;
	return n;
}

/* Return the key of an index that leaves match keys out; POLICY_KEY_COUNT: there is none. */
static enum policy_key key_at(uint32_t index)
{
	enum policy_key key = 0;

	for (; key < POLICY_KEY_COUNT; key++)
		if (policy_key_rows[key].kind != POLICY_VALUE_MATCH && index-- == 0)
			break;
	return key;
}

bool tenants_key(const struct tenants *tenants, const struct tenant *tenant, uint32_t index,
		 struct tenant_key *ret)
{
	const enum policy_key key = key_at(index);
	const uint32_t at = index_of(tenants, tenant);
	const uint64_t host_bytes = tenants->machine.host_bytes;
	const struct tenant_policy *policy;
	struct tenant_policy now;

	if (at == UINT32_MAX || key == POLICY_KEY_COUNT)
		return false;
	policy = policy_tenant(tenants->policy, at);
	overrides_apply(tenant, policy, &now);
	ret->name = policy_key_rows[key].name;
	ret->is_changed = overrides_has(tenant, key);
	return policy_key_text(key, &now, host_bytes, ret->value, sizeof(ret->value)) &&
	       policy_key_text(key, policy, host_bytes, ret->policy_value,
			       sizeof(ret->policy_value));
}

/* Name the devices of which @size is more than all of the memory. Return: text to be freed. */
static char *note_devices(struct policy_size size, const uint64_t *device_bytes, uint32_t n_devices,
			  const char *what)
{
	char *text = NULL;
	size_t n_bytes;
	unsigned int n = 0;
	FILE *stream;

	/* A percentage is at most the whole. */
	if (size.is_percent)
		return NULL;
	stream = open_memstream(&text, &n_bytes);
	if (!stream)
		return NULL;
	for (uint32_t i = 0; i < n_devices; i++)
		if (device_bytes[i] > 0 && size.value > device_bytes[i])
			fprintf(stream, "%s%s of %sdevice %u", n++ ? ", " : "above the ",
				SIZE_BESIDE(device_bytes[i], size.value), what, i);
	if (n > 0)
		fputs(n == 1 ? ", which limits it there" : ", which limit it there", stream);
	if (fclose(stream) == 0 && n > 0)
		return text;
	free(text);
	return NULL;
}

char *tenants_note(const struct tenants *tenants, const struct tenant *tenant, const char *key)
{
	const struct tenants_machine *machine = &tenants->machine;
	const uint32_t index = index_of(tenants, tenant);
	struct tenant_policy now;
	char *text = NULL;

	if (index == UINT32_MAX)
		return NULL;
	overrides_apply(tenant, policy_tenant(tenants->policy, index), &now);
	if (strcmp(key, "vram-max") == 0)
		return note_devices(now.vram_max, machine->vram_bytes, machine->n_devices, "");
	if (strcmp(key, "vram-high") == 0)
		return note_devices(now.vram_high, machine->vram_bytes, machine->n_devices, "");
	if (strcmp(key, "gtt-max") == 0)
		return note_devices(now.gtt_max, machine->gtt_bytes, machine->n_devices, "GTT of ");
	if (strcmp(key, "host-max") != 0 || now.host_max.is_percent ||
	    now.host_max.value <= machine->host_bytes)
		return NULL;
	if (asprintf(&text,
		     "above the %s of all tenants together, the broker's host-max, which "
		     "limits it",
		     SIZE_BESIDE(machine->host_bytes, now.host_max.value)) < 0)
		return NULL;
	return text;
}

int tenants_reload(struct tenants *tenants, struct policy *policy, struct policy_errors *ret_errors)
{
	struct tenant **by_index = NULL;
	struct tenant_policy *wanted = NULL;
	int r;

	r = policy_check_devices(policy, tenants->machine.vram_bytes, tenants->machine.n_devices,
				 ret_errors);
	if (r)
		return r;
	wanted = calloc(policy_n_tenants(policy), sizeof(*wanted));
	if (!wanted)
		return error_origin(-ENOMEM);
	r = collect(tenants, policy, &by_index);
	if (r) {
		free(wanted);
		return error_fold(r);
	}
	r = reload_overrides(tenants, policy, by_index);
	if (r) {
		forget_collected(by_index, policy_n_tenants(policy));
		free(wanted);
		return r;
	}

	list_for_each (node, &tenants->list)
		container_of(node, struct tenant, link)->is_named = false;
	for (uint32_t i = 0; i < policy_n_tenants(policy); i++) {
		struct tenant *tenant = by_index[i];

		if (tenant->number == 0) {
			tenant->number = ++tenants->last_number;
			assert(tenant->number != 0);
			list_append(&tenants->list, &tenant->link);
			tenant->tenants = tenants;
			tenant->next = tenants->buckets[tenant->number % TENANTS_BUCKETS];
			tenants->buckets[tenant->number % TENANTS_BUCKETS] = tenant;
		}
		overrides_apply(tenant, policy_tenant(policy, i), &wanted[i]);
	}
	free(tenants->by_index);
	tenants->by_index = by_index;
	policy_free(tenants->policy);
	tenants->policy = policy;
	apply_all(tenants, wanted);
	free(wanted);
	tenants_drop_unused(tenants);
	return 0;
}

int tenants_new(struct account_book *book, const struct tenants_machine *machine,
		struct policy *policy, struct tenants **ret, struct policy_errors *ret_errors)
{
	_cleanup_(tenants_freep) struct tenants *tenants = calloc(1, sizeof(*tenants));
	struct account_limits none;
	int r;

	if (!tenants)
		return error_origin(-ENOMEM);
	tenants->book = book;
	tenants->machine = *machine;
	list_init(&tenants->list);
	for (unsigned int i = 0; i < ACCOUNT_SLOT_COUNT; i++)
		none.max[i] = UINT64_MAX;
	r = account_new(book, "broker", &none, &tenants->broker_account);
	if (r)
		return error_fold(r);
	r = tenants_reload(tenants, policy, ret_errors);
	if (r)
		return r;
	*ret = steal_ptr(tenants);
	return 0;
}

struct tenants *tenants_free(struct tenants *tenants)
{
	if (!tenants)
		return NULL;
	list_for_each_safe (node, &tenants->list) {
		struct tenant *tenant = container_of(node, struct tenant, link);

		assert(tenant->n_refs == 0);
		tenant_free(tenant);
	}
	account_unref(tenants->broker_account);
	policy_free(tenants->policy);
	free(tenants->by_index);
	free(tenants);
	return NULL;
}

struct account_book *tenants_book(const struct tenants *tenants)
{
	return tenants->book;
}

const struct policy *tenants_policy(const struct tenants *tenants)
{
	return tenants->policy;
}

struct account *tenants_broker_account(struct tenants *tenants)
{
	return tenants->broker_account;
}

uint64_t tenants_device_bytes(const struct tenants *tenants, uint32_t device)
{
	const enum account_slot vram = account_vram(device), gtt = account_gtt(device);
	const struct account *broker = tenants->broker_account;

	return account_book_total(tenants->book, vram) - account_used(broker, vram) +
	       account_book_total(tenants->book, gtt) - account_used(broker, gtt);
}

struct tenant *tenants_find(struct tenants *tenants, const struct peer *peer)
{
	return tenant_ref(tenants->by_index[policy_match(tenants->policy, peer)]);
}

bool tenants_is_cgroup(const struct tenants *tenants, const struct tenant *tenant)
{
	for (uint32_t i = 0; i < policy_n_tenants(tenants->policy); i++)
		if (tenants->by_index[i] == tenant)
			return policy_tenant_kinds(tenants->policy, i) == POLICY_MATCH_CGROUP;
	return false;
}

struct tenant *tenant_ref(struct tenant *tenant)
{
	tenant->n_refs++;
	assert(tenant->n_refs != 0);
	return tenant;
}

struct tenant *tenant_unref(struct tenant *tenant)
{
	if (!tenant)
		return NULL;
	assert(tenant->n_refs > 0);
	if (--tenant->n_refs == 0 && !tenant->is_named)
		tenant_free(tenant);
	return NULL;
}

const char *tenant_name(const struct tenant *tenant)
{
	return account_name(tenant->account);
}

struct tenant *tenants_get(const struct tenants *tenants, uint32_t number)
{
	struct tenant *tenant = tenants->buckets[number % TENANTS_BUCKETS];

	while (tenant && tenant->number != number)
		tenant = tenant->next;
	return tenant;
}

struct tenant *tenants_first(const struct tenants *tenants)
{
	return list_is_empty(&tenants->list)
		       ? NULL
		       : container_of(tenants->list.next, struct tenant, link);
}

struct tenant *tenants_next(const struct tenants *tenants, const struct tenant *tenant)
{
	return tenant->link.next == &tenants->list
		       ? NULL
		       : container_of(tenant->link.next, struct tenant, link);
}
