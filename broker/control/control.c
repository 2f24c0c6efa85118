/* SPDX-License-Identifier: MIT */
/*
 * Draining
 *
 * Draining loses nothing. A drained tenant's admitted tasks complete, and its other entries stay in
 * its rings, which are the client's own memory, until an administrator resumes it. A drained device
 * completes its running tasks; queued tasks are placed anew; then the plans there are evicted.
 * Tasks that may run nowhere else are rejected, as if the device did not exist.
 */
#include "control/control.h"

#include <errno.h>
#include <stdlib.h>

#include "dispatch/dispatch.h"
#include "memory/residency.h"
#include "tenant/tenant.h"
#include "util/error.h"

struct control {
	struct control_options options;
};

static int on_set(void *context, struct tenant *tenant, const char *key, const char *value,
		  char **ret_why)
{
	struct control *control = context;
	int r = tenants_set(control->options.tenants, tenant, key, value, ret_why);

	if (r)
		return r == POLICY_E_INVALID ? SERVER_E_INVALID : error_fold(r);
	control->options.limits_changed(control->options.context);
	return 0;
}

static void on_drain_tenant(void *context, struct tenant *tenant, enum rbk_wire_drain_action action,
			    struct server_drained *ret)
{
	struct control *control = context;
	struct dispatch *dispatch = control->options.dispatch;

	if (action != RBK_WIRE_DRAIN_ASK) {
		tenant->is_drained = action == RBK_WIRE_DRAIN_BEGIN;
		dispatch_drain_changed(dispatch, tenant);
	}
	*ret = (struct server_drained){
		.is_drained = tenant->is_drained,
		.n_tasks = dispatch_tenant_in_flight(dispatch, tenant),
	};
	for (uint32_t i = RBK_DEVICE_GPU; i < control->options.n_executors; i++)
		ret->device_bytes += account_used(tenant->account, account_vram(i)) +
				     account_used(tenant->account, account_gtt(i));
}

static void on_drain_device(void *context, uint8_t device, enum rbk_wire_drain_action action,
			    struct server_drained *ret)
{
	struct control *control = context;
	struct dispatch *dispatch = control->options.dispatch;
	bool is_drained = action == RBK_WIRE_DRAIN_BEGIN;

	if (action != RBK_WIRE_DRAIN_ASK) {
		/* First bar new tasks, then move queued tasks, then evict plans. */
		dispatch_drain_device(dispatch, device, is_drained);
		residency_set_drained(control->options.residency, device, is_drained);
	}
	*ret = (struct server_drained){
		.is_drained = placer_is_drained(dispatch_placer(dispatch), device),
		.n_tasks = dispatch_device_in_flight(dispatch, device),
		.device_bytes = tenants_device_bytes(control->options.tenants, device),
	};
}

int control_new(const struct control_options *options, struct control **ret)
{
	struct control *control = calloc(1, sizeof(*control));

	if (!control)
		return error_origin(-ENOMEM);
	control->options = *options;
	*ret = control;
	return 0;
}

struct server_control control_hooks(struct control *control)
{
	return (struct server_control){
		.set = on_set,
		.drain_tenant = on_drain_tenant,
		.drain_device = on_drain_device,
		.context = control,
	};
}

struct control *control_free(struct control *control)
{
	free(control);
	return NULL;
}
