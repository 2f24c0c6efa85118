#pragma once
/* SPDX-License-Identifier: MIT */
/* What tenant.c and override.c share; nobody outside tenant/ includes it. */
#include "tenant/tenant.h"

/* What a tenant may have: its section of the policy in force, or of one to be, with its overrides.
 */
void overrides_apply(const struct tenant *tenant, const struct tenant_policy *policy,
		     struct tenant_policy *ret);
/*
 * Its section was like @before and is to be like @now: those that this makes meaningless do not
 * count any more, and are dropped or count again with overrides_settle().
 */
void overrides_mark(struct tenant *tenant, const struct tenant_policy *before,
		    const struct tenant_policy *now);
void overrides_settle(struct tenant *tenant, bool drops);
/*
 * Sets one, or (@value is "default") takes it back; nothing is applied. @index is the tenant's in
 * @policy. Return: 0; POLICY_E_INVALID with a sentence; negative errno.
 */
int overrides_set(struct tenant *tenant, const struct policy *policy, uint32_t index,
		  const char *key, const char *value, char **ret_errors);
void overrides_free(struct tenant *tenant);
/*
 * Copies them into @ret, for overrides_keep(), which ends that and goes back to them unless what
 * has become of them is right. Return: 0 or -ENOMEM.
 */
int overrides_copy(const struct tenant *tenant, struct list_node *ret);
void overrides_keep(struct tenant *tenant, struct list_node *before, bool is_right);
