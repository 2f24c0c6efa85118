/* SPDX-License-Identifier: MIT */
/*
 * Overrides: an administrator's values in place of the policy file's
 *
 * An administrator gives a tenant another value for a key of its section. The tenant's limits are
 * then its section with the overridden values, read and checked by the functions that read the
 * file. An override lasts until it is removed, the tenant is freed, or the file's value of its key
 * changes: a later edit of the file takes precedence.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tenant/policy-private.h"
#include "tenant/tenant-private.h"
#include "util/error.h"

struct override {
	struct list_node link; /* in tenant.overrides */
	enum policy_key key;
	bool is_marked;             /* without effect; dropped if the reload succeeds */
	struct tenant_policy value; /* only the key's member is meaningful */
};

static struct override *find(const struct tenant *tenant, enum policy_key key)
{
	list_for_each (node, &tenant->overrides) {
		struct override *override = container_of(node, struct override, link);

		if (override->key == key)
			return override;
	}
	return NULL;
}

bool overrides_has(const struct tenant *tenant, enum policy_key key)
{
	return find(tenant, key) != NULL;
}

static void drop(struct tenant *tenant, struct override *override)
{
	list_remove(&override->link);
	free(override);
	tenant->is_changed = !list_is_empty(&tenant->overrides);
}

static void free_all(struct list_node *list)
{
	list_for_each_safe (node, list) {
		list_remove(node);
		free(container_of(node, struct override, link));
	}
}

void overrides_free(struct tenant *tenant)
{
	free_all(&tenant->overrides);
	tenant->is_changed = false;
}

void overrides_apply(const struct tenant *tenant, const struct tenant_policy *policy,
		     struct tenant_policy *ret)
{
	*ret = *policy;
	list_for_each (node, &tenant->overrides) {
		const struct override *override = container_of(node, struct override, link);

		if (!override->is_marked)
			policy_key_copy(override->key, ret, &override->value);
	}
	/* Keep vram-high equal to vram-max where the section has them equal. */
	if (policy_size_is_same(policy->vram_high, policy->vram_max) &&
	    !find(tenant, POLICY_KEY_VRAM_HIGH))
		ret->vram_high = ret->vram_max;
}

void overrides_mark(struct tenant *tenant, const struct tenant_policy *before,
		    const struct tenant_policy *now)
{
	list_for_each (node, &tenant->overrides) {
		struct override *override = container_of(node, struct override, link);

		override->is_marked = !policy_key_is_same(override->key, before, now);
	}
}

void overrides_settle(struct tenant *tenant, bool drops)
{
	list_for_each_safe (node, &tenant->overrides) {
		struct override *override = container_of(node, struct override, link);

		if (override->is_marked && drops)
			drop(tenant, override);
		else
			override->is_marked = false;
	}
}

int overrides_set(struct tenant *tenant, const struct policy *policy, uint32_t index,
		  const char *key, const char *value, char **ret_errors)
{
	bool is_default = strcmp(value, "default") == 0;
	struct tenant_policy now;
	struct override *override;
	enum policy_key which;
	int r;

	overrides_apply(tenant, policy_tenant(policy, index), &now);
	r = policy_key_change(policy, index, key, is_default ? NULL : value, &which, &now,
			      ret_errors);
	if (r)
		return r;
	override = find(tenant, which);
	if (is_default) {
		if (override)
			drop(tenant, override);
		return 0;
	}
	if (!override) {
		override = calloc(1, sizeof(*override));
		if (!override)
			return error_origin(-ENOMEM);
		override->key = which;
		list_append(&tenant->overrides, &override->link);
		tenant->is_changed = true;
	}
	override->value = now;
	return 0;
}

int overrides_copy(const struct tenant *tenant, struct list_node *ret)
{
	list_init(ret);
	list_for_each (node, &tenant->overrides) {
		struct override *copy = malloc(sizeof(*copy));

		if (!copy) {
			free_all(ret);
			return error_origin(-ENOMEM);
		}
		*copy = *container_of(node, struct override, link);
		list_append(ret, &copy->link);
	}
	return 0;
}

void overrides_keep(struct tenant *tenant, struct list_node *before, bool is_right)
{
	if (!is_right) {
		free_all(&tenant->overrides);
		list_splice(&tenant->overrides, before);
	}
	free_all(before);
	tenant->is_changed = !list_is_empty(&tenant->overrides);
}
