#pragma once
/* SPDX-License-Identifier: MIT */
/* Declarations shared by tenant.c and override.c; private to tenant/. */
#include "tenant/policy-private.h"
#include "tenant/tenant.h"

/*
 * Return in @ret the limits of a tenant: its section of the policy in force or of a new one, with
 * the overrides.
 */
void overrides_apply(const struct tenant *tenant, const struct tenant_policy *policy,
		     struct tenant_policy *ret);
/*
 * Mark the overrides whose key has different values in the tenant's old section @before and in its
 * new one @now. Marked overrides have no effect until overrides_settle() drops or unmarks them.
 */
void overrides_mark(struct tenant *tenant, const struct tenant_policy *before,
		    const struct tenant_policy *now);
/* Drop the marked overrides if @drops; unmark them otherwise. */
void overrides_settle(struct tenant *tenant, bool drops);
/*
 * Set an override, or remove it if @value is "default"; the limits in force do not change yet.
 * @index is the tenant's index in @policy.
 * Return: 0; POLICY_E_INVALID: a sentence is in *ret_errors; a negative errno.
 */
int overrides_set(struct tenant *tenant, const struct policy *policy, uint32_t index,
		  const char *key, const char *value, char **ret_errors);
/* Return true if the tenant has an override of @key. */
bool overrides_has(const struct tenant *tenant, enum policy_key key);
void overrides_free(struct tenant *tenant);
/*
 * Copy the overrides into @ret, for overrides_keep(), which frees the copies. With @is_right false,
 * overrides_keep() first restores the tenant's overrides from the copies.
 * Return: 0 or -ENOMEM.
 */
int overrides_copy(const struct tenant *tenant, struct list_node *ret);
void overrides_keep(struct tenant *tenant, struct list_node *before, bool is_right);
