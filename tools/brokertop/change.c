/* SPDX-License-Identifier: MIT */
/* Requests for changes, and sentences about the results. */
#include "change.h"

#include <stdio.h>
#include <string.h>

#include <ringbroker/admin.h>

#include "figures.h"
#include "util/plural.h"

static int evict(struct rbk *rbk, const struct change *change, char *text, size_t bytes,
		 struct rbk_error *error)
{
	const struct rbk_admin_evict what = {
		.tenant = change->tenant,
		.session = change->session,
		.plan_id = change->plan_id,
		.device = RBK_DEVICE_NONE,
	};
	uint64_t n_plans = 0, n_bytes = 0;
	int r = rbk_admin_evict(rbk, &what, &n_plans, &n_bytes, error);

	snprintf(text, bytes, "%s plan%s of tenant %s evicted, freeing %s",
		 figure_count((double)n_plans).text, plural(n_plans), change->name,
		 figure_bytes((double)n_bytes).text);
	return r;
}

static int drain(struct rbk *rbk, const struct change *change, char *text, size_t bytes,
		 struct rbk_error *error)
{
	const bool begins = change->kind == CHANGE_DRAIN;
	struct rbk_admin_drained drained = {.n_tasks = 0};
	int r = rbk_admin_drain_tenant(rbk, change->tenant,
				       begins ? RBK_DRAIN_BEGIN : RBK_DRAIN_END, &drained, error);

	if (begins)
		snprintf(text, bytes, "tenant %s is drained: %s tasks and %s are left",
			 change->name, figure_count((double)drained.n_tasks).text,
			 figure_bytes((double)drained.device_bytes).text);
	else
		snprintf(text, bytes, "tenant %s gets new work again", change->name);
	return r;
}

int change_carry_out(struct rbk *rbk, const struct change *change, char *text, size_t bytes)
{
	struct rbk_error error = {""};
	int r = 0;

	switch (change->kind) {
	case CHANGE_BUDGET:
		r = rbk_admin_set(rbk, change->tenant, "vram-max", change->value, &error);
		snprintf(text, bytes, "vram-max of tenant %s is %s", change->name, change->value);
		break;
	case CHANGE_EVICT:
		r = evict(rbk, change, text, bytes, &error);
		break;
	case CHANGE_DRAIN:
	case CHANGE_DRAIN_END:
		r = drain(rbk, change, text, bytes, &error);
		break;
	case CHANGE_NONE:
		break;
	}
	if (r)
		snprintf(text, bytes, "%s", error.text[0] ? error.text : strerror(-r));
	return r;
}
