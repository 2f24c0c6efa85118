/* SPDX-License-Identifier: MIT */
/*
 * Draining
 *
 * Draining loses nothing. A drained tenant's admitted tasks complete, and its other entries stay in
 * its rings, which are the client's own memory, until an administrator resumes it. When its tasks
 * have completed, its plans are evicted from all devices; until then a task may need them. A
 * drained device completes its running tasks; queued tasks are placed anew; then the plans there
 * are evicted. Tasks that may run nowhere else are rejected, as if the device did not exist.
 *
 * Draining does not take memory that clients hold: leases, and arenas that a device has exported.
 */
#include "control/control.h"

#include <errno.h>
#include <stdlib.h>

#include "control/publish.h"
#include "dispatch/dispatch.h"
#include "loop/loop.h"
#include "memory/residency.h"
#include "tenant/tenant.h"
#include "util/error.h"

struct control {
	struct control_options options;
	struct loop_timer *timer; /* armed while drained tenants have tasks */
};

/* Interval at which the tasks of drained tenants are counted */
static const uint64_t count_ns = 20000000;

static int on_set(void *context, struct tenant *tenant, const char *key, const char *value,
		  char **ret_why)
{
	struct control *control = context;
	int r = tenants_set(control->options.tenants, tenant, key, value, ret_why);

	if (r)
		return r == POLICY_E_INVALID ? SERVER_E_INVALID : error_fold(r);
	control->options.limits_changed(control->options.context);
	publish_changed(control->options.publish, tenant);
	*ret_why = tenants_note(control->options.tenants, tenant, key);
	return 0;
}

/* Return true if the drained tenant has tasks; if not, have its plans evicted. */
static bool is_busy(const struct control *control, struct tenant *tenant)
{
	if (tenant->is_emptied)
		return false;
	if (dispatch_tenant_in_flight(control->options.dispatch, tenant) > 0)
		return true;
	tenant->is_emptied = true;
	residency_emptied(control->options.residency);
	return false;
}

static void on_count(void *data)
{
	const struct control *control = data;
	const struct tenants *tenants = control->options.tenants;
	bool is_any_busy = false;

	for (struct tenant *tenant = tenants_first(tenants); tenant;
	     tenant = tenants_next(tenants, tenant))
		is_any_busy |= tenant->is_drained && is_busy(control, tenant);
	if (is_any_busy)
		loop_timer_arm(control->timer, count_ns);
}

/* Begin to drain a tenant, or end that. */
static void set_drained(struct control *control, struct tenant *tenant, bool is_drained)
{
	const bool was_emptied = tenant->is_emptied;

	tenant->is_drained = is_drained;
	tenant->is_emptied = is_drained && was_emptied;
	dispatch_drain_changed(control->options.dispatch, tenant);
	if (is_drained)
		on_count(control);
	else if (was_emptied)
		residency_emptied(control->options.residency);
}

static void on_drain_tenant(void *context, struct tenant *tenant, enum rbk_wire_drain_action action,
			    struct server_drained *ret)
{
	struct control *control = context;

	if (action != RBK_WIRE_DRAIN_ASK) {
		set_drained(control, tenant, action == RBK_WIRE_DRAIN_BEGIN);
		publish_changed(control->options.publish, tenant);
	}
	*ret = (struct server_drained){
		.is_drained = tenant->is_drained,
		.n_tasks = dispatch_tenant_in_flight(control->options.dispatch, tenant),
		.holds_plans =
			residency_holds_plans(control->options.residency, tenant, RBK_DEVICE_NONE),
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
		publish_changed(control->options.publish, NULL);
	}
	*ret = (struct server_drained){
		.is_drained = placer_is_drained(dispatch_placer(dispatch), device),
		.n_tasks = dispatch_device_in_flight(dispatch, device),
		.device_bytes = tenants_device_bytes(control->options.tenants, device),
		.holds_plans = residency_holds_plans(control->options.residency, NULL, device),
	};
}

int control_new(const struct control_options *options, struct control **ret)
{
	_cleanup_(control_freep) struct control *control = calloc(1, sizeof(*control));
	int r;

	if (!control)
		return error_origin(-ENOMEM);
	control->options = *options;
	r = loop_timer_new(options->loop, on_count, control, &control->timer);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(control);
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
	if (!control)
		return NULL;
	loop_timer_free(control->timer);
	free(control);
	return NULL;
}
