/* SPDX-License-Identifier: MIT */
/*
 * Administrators' requests
 *
 * The form and the socket of each request were checked; the functions here check the right to
 * change. server_control carries out the requests. The log states each change and the user who
 * requested it.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease/lease.h"
#include "memory/residency.h"
#include "session/server-private.h"
#include "shm/operators/op.h"
#include "util/log.h"
#include "util/number.h"
#include "util/plural.h"
#include "util/size.h"
#include "util/utf8.h"

/* Refuse the request if no tenant has this number. */
static struct tenant *find_tenant(struct session *session, uint32_t number, uint32_t type,
				  uint32_t cookie)
{
	struct tenant *tenant = tenants_get(session->server->options.tenants, number);

	if (!tenant)
		session_reply_result(session, type, cookie, -ENOENT, "there is no tenant %u",
				     number);
	return tenant;
}

static bool can_control(struct session *session, uint32_t type, uint32_t cookie)
{
	if (session->server->options.control.set)
		return true;
	session_reply_result(session, type, cookie, -EOPNOTSUPP,
			     "this broker does not support this request");
	return false;
}

void session_admin_set(struct session *session, const struct rbk_wire_admin_set *set)
{
	const struct server_control *control = &session->server->options.control;
	uint32_t cookie = set->request.cookie;
	char key[sizeof(set->key)], value[sizeof(set->value)];
	struct tenant *tenant;
	char *why = NULL;
	int r;

	if (!session_may_change(session, RBK_WIRE_ADMIN_SET, cookie) ||
	    !can_control(session, RBK_WIRE_ADMIN_SET, cookie))
		return;
	tenant = find_tenant(session, set->tenant, RBK_WIRE_ADMIN_SET, cookie);
	if (!tenant)
		return;
	/* A sentence that quotes them is one line. */
	copy_printable(set->key, SIZE_MAX, key, sizeof(key));
	copy_printable(set->value, SIZE_MAX, value, sizeof(value));
	r = control->set(control->context, tenant, key, value, &why);
	if (r == SERVER_E_INVALID)
		session_reply_result(session, RBK_WIRE_ADMIN_SET, cookie, -EINVAL, "%s", why);
	else if (r)
		session_reply_result(session, RBK_WIRE_ADMIN_SET, cookie, r,
				     "cannot change tenant %s: %s", tenant_name(tenant),
				     strerror(-r));
	if (r) {
		free(why);
		return;
	}
	log_info_of(SESSION_ABOUT(session), LOG_TENANT_CHANGED,
		    "tenant %s: %s is %s, as uid %u (pid %d) asked", tenant_name(tenant), key,
		    value, (unsigned int)session->uid, (int)session->pid);
	session_reply_result(session, RBK_WIRE_ADMIN_SET, cookie, 0, "%s", why ? why : "");
	free(why);
}

void session_admin_limit(struct session *session, const struct rbk_wire_admin_limit *limit)
{
	const struct tenants *tenants = session->server->options.tenants;
	uint32_t cookie = limit->request.cookie;
	struct rbk_wire_limit reply = {
		.reply = {.type = RBK_WIRE_ADMIN_LIMIT, .cookie = cookie},
		.n_limits = tenants_n_keys(),
	};
	const struct tenant *tenant =
		find_tenant(session, limit->tenant, RBK_WIRE_ADMIN_LIMIT, cookie);
	struct tenant_key key;

	if (!tenant)
		return;
	if (!tenants_key(tenants, tenant, limit->index, &key)) {
		session_reply_result(session, RBK_WIRE_ADMIN_LIMIT, cookie, -ENOENT,
				     "the policy names tenant %s no more, or has no key %u",
				     tenant_name(tenant), limit->index);
		return;
	}
	snprintf(reply.key, sizeof(reply.key), "%s", key.name);
	snprintf(reply.value, sizeof(reply.value), "%s", key.value);
	snprintf(reply.policy, sizeof(reply.policy), "%s", key.policy_value);
	reply.is_changed = key.is_changed;
	session_reply(session, &reply.reply, sizeof(reply));
}

void session_admin_evict(struct session *session, const struct rbk_wire_admin_evict *evict)
{
	const struct server_options *options = &session->server->options;
	struct rbk_wire_admin_result reply = {
		.reply = {.type = RBK_WIRE_ADMIN_EVICT, .cookie = evict->request.cookie},
	};
	struct residency_victims victims = {
		.session = evict->session,
		.plan_id = evict->plan_id,
		.device = (uint8_t)evict->device,
	};
	uint32_t cookie = evict->request.cookie;

	if (!session_may_change(session, RBK_WIRE_ADMIN_EVICT, cookie))
		return;
	if (evict->device != RBK_DEVICE_NONE &&
	    (evict->device == RBK_DEVICE_CPU || evict->device >= options->n_executors)) {
		session_reply_result(session, RBK_WIRE_ADMIN_EVICT, cookie, -EINVAL,
				     "device %u does not exist, or it has no memory of its own",
				     evict->device);
		return;
	}
	if (evict->tenant) {
		victims.tenant = find_tenant(session, evict->tenant, RBK_WIRE_ADMIN_EVICT, cookie);
		if (!victims.tenant)
			return;
	}
	if (!residency_evict(options->residency, &victims, &reply.n, &reply.bytes) &&
	    evict->session) {
		session_reply_result(session, RBK_WIRE_ADMIN_EVICT, cookie, -ENOENT,
				     "there is no plan %u of session %u", evict->plan_id,
				     evict->session);
		return;
	}
	log_info_of(SESSION_ABOUT(session), LOG_PLANS_EVICTED,
		    "%llu plan%s with %s leave%s device memory, as uid %u (pid %d) asked",
		    ull(reply.n), plural(reply.n), SIZE_ROUNDED(reply.bytes),
		    reply.n == 1 ? "s" : "", (unsigned int)session->uid, (int)session->pid);
	session_reply(session, &reply.reply, sizeof(reply));
}

static void log_drain(const struct session *session, const struct rbk_wire_admin_drain *drain,
		      const char *name)
{
	log_info_of(SESSION_ABOUT(session), LOG_DRAIN, "%s %s %s, as uid %u (pid %d) asked",
		    drain->what == RBK_WIRE_DRAIN_TENANT ? "tenant" : "device", name,
		    drain->action == RBK_WIRE_DRAIN_BEGIN ? "is drained" : "is resumed",
		    (unsigned int)session->uid, (int)session->pid);
}

/* A text of a fixed size, to which items are added. */
struct item_list {
	char *text;
	size_t bytes, length;
	unsigned int n, n_left_out;
};

__attribute__((format(printf, 2, 3))) static void add_item(struct item_list *list,
							   const char *format, ...)
{
	/* room at the end for "; and 4294967295 more" */
	enum { MORE_BYTES = 24 };
	char item[160];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(item, sizeof(item), format, args);
	va_end(args);
	if (n < 0 || list->n_left_out > 0 ||
	    list->length + 2 + strlen(item) + MORE_BYTES >= list->bytes) {
		list->n_left_out++;
		return;
	}
	list->length += (size_t)snprintf(list->text + list->length, list->bytes - list->length,
					 "%s%s", list->n++ ? "; " : "", item);
}

/* Return the device whose memory the session's exported arenas are charged to; 0: none is. */
static uint32_t exported_on(const struct session *session)
{
	const struct executor *exporter =
		session->exported_bytes ? session_exporter(session) : NULL;

	return exporter && exporter->info.gtt_bytes > 0 ? exporter->index : RBK_DEVICE_CPU;
}

/*
 * Say which clients hold the remaining memory of a tenant (NULL: of all tenants) on @device
 * (RBK_DEVICE_NONE: on all devices), which is @bytes.
 */
static void say_holders(const struct server *server, const struct tenant *tenant, uint8_t device,
			uint64_t bytes, struct item_list *ret)
{
	const struct leases *leases = residency_leases(server->options.residency);
	uint64_t named_bytes = 0;

	list_for_each (node, &leases->all) {
		const struct lease *lease = container_of(node, struct lease, link);

		if ((tenant && lease->tenant != tenant) || lease_granted(lease) == 0 ||
		    (device != RBK_DEVICE_NONE && lease->device != device))
			continue;
		named_bytes += lease_granted(lease);
		add_item(ret, "lease %u of %s, process %d (%s)", lease->number, lease->name,
			 (int)lease->pid, SIZE_ROUNDED(lease_granted(lease)));
	}
	list_for_each (node, &server->sessions) {
		const struct session *session = container_of(node, struct session, link);
		const uint32_t index = exported_on(session);

		if ((tenant && session->tenant != tenant) || index == RBK_DEVICE_CPU ||
		    (device != RBK_DEVICE_NONE && index != device))
			continue;
		named_bytes += session->exported_bytes;
		add_item(ret, "exported memory of session %u, process %d (%s)", session->number,
			 (int)session->pid, SIZE_ROUNDED(session->exported_bytes));
	}
	if (bytes > named_bytes)
		add_item(ret, "exported memory that processes keep after their sessions (%s)",
			 SIZE_ROUNDED(bytes - named_bytes));
	if (ret->n_left_out > 0)
		snprintf(ret->text + ret->length, ret->bytes - ret->length, "%sand %u more",
			 ret->n ? "; " : "", ret->n_left_out);
}

void session_admin_drain(struct session *session, const struct rbk_wire_admin_drain *drain)
{
	const struct server_options *options = &session->server->options;
	const struct server_control *control = &options->control;
	struct rbk_wire_admin_result reply = {
		.reply = {.type = RBK_WIRE_ADMIN_DRAIN, .cookie = drain->request.cookie},
	};
	enum rbk_wire_drain_action action = (enum rbk_wire_drain_action)drain->action;
	uint32_t cookie = drain->request.cookie;
	struct tenant *tenant = NULL;
	uint8_t device = RBK_DEVICE_NONE;
	struct server_drained drained;
	const char *name;

	/* Reading the progress needs no right to change. */
	if (action != RBK_WIRE_DRAIN_ASK &&
	    !session_may_change(session, RBK_WIRE_ADMIN_DRAIN, cookie))
		return;
	if (!can_control(session, RBK_WIRE_ADMIN_DRAIN, cookie))
		return;
	if (drain->what == RBK_WIRE_DRAIN_TENANT) {
		tenant = find_tenant(session, drain->number, RBK_WIRE_ADMIN_DRAIN, cookie);
		if (!tenant)
			return;
		name = tenant_name(tenant);
		control->drain_tenant(control->context, tenant, action, &drained);
	} else if (drain->number == RBK_DEVICE_CPU) {
		session_reply_result(session, RBK_WIRE_ADMIN_DRAIN, cookie, -EINVAL,
				     "the CPU cannot be drained: it runs the tasks that no other "
				     "device can");
		return;
	} else if (drain->number >= options->n_executors) {
		session_reply_result(session, RBK_WIRE_ADMIN_DRAIN, cookie, -ENOENT,
				     "there is no device %u", drain->number);
		return;
	} else {
		device = (uint8_t)drain->number;
		name = options->executors[device]->info.name;
		control->drain_device(control->context, device, action, &drained);
	}
	if (action != RBK_WIRE_DRAIN_ASK)
		log_drain(session, drain, name);
	reply.n = drained.n_tasks;
	reply.bytes = drained.device_bytes;
	reply.is_drained = drained.is_drained;
	reply.is_held = drained.is_drained && drained.n_tasks == 0 && !drained.holds_plans &&
			drained.device_bytes > 0;
	if (reply.is_held)
		say_holders(session->server, tenant, device, drained.device_bytes,
			    &(struct item_list){.text = reply.reply.text,
						.bytes = sizeof(reply.reply.text)});
	session_reply(session, &reply.reply, sizeof(reply));
}

/* Count the sessions whose clients will bring their rings to the next broker. */
static uint32_t n_reattachable(const struct server *server)
{
	uint32_t n = 0;

	list_for_each (node, &server->sessions) {
		const struct session *session = container_of(node, struct session, link);

		if (!(session->features & RBK_FEAT_REATTACH) || session->is_ending)
			continue;
		for (uint32_t i = 0; i < server->options.limits.max_rings; i++)
			if (session->rings[i] && !session->rings[i]->is_closing) {
				n++;
				break;
			}
	}
	return n;
}

static void reply_restart(struct session *session, uint32_t cookie,
			  const struct rbk_wire_restart *about)
{
	const struct server *server = session->server;
	struct rbk_wire_restart reply = *about;

	reply.reply.type = RBK_WIRE_ADMIN_RESTART;
	reply.reply.cookie = cookie;
	reply.n_sessions = n_reattachable(server);
	reply.n_restored = server->n_restored_sessions;
	reply.restored_ns = server->restored_ns;
	session_reply(session, &reply.reply, sizeof(reply));
}

void server_restart_answer(struct server *server, uint32_t number, uint32_t cookie, int res,
			   const char *why, const struct rbk_wire_restart *about)
{
	list_for_each (node, &server->sessions) {
		struct session *session = container_of(node, struct session, link);

		if (session->number != number || session->is_ending)
			continue;
		if (res)
			session_reply_result(session, RBK_WIRE_ADMIN_RESTART, cookie, res, "%s",
					     why);
		else
			reply_restart(session, cookie, about);
		return;
	}
}

void session_admin_restart(struct session *session, const struct rbk_wire_admin_restart *restart)
{
	const struct server_restarter *restarter = &session->server->options.restarter;
	struct rbk_wire_restart about = {.ready_ns = 0};
	uint32_t cookie = restart->request.cookie;
	int r;

	if (restart->action == RBK_WIRE_RESTART_ASK) {
		if (restarter->describe)
			restarter->describe(restarter->context, &about);
		reply_restart(session, cookie, &about);
		return;
	}
	if (!session_may_change(session, RBK_WIRE_ADMIN_RESTART, cookie))
		return;
	if (!restarter->begin) {
		session_reply_result(session, RBK_WIRE_ADMIN_RESTART, cookie, -EOPNOTSUPP,
				     "this broker does not support this request");
		return;
	}
	r = restarter->begin(restarter->context, session->number, cookie,
			     restart->drain_ms * 1000000ull);
	if (r) {
		session_reply_result(session, RBK_WIRE_ADMIN_RESTART, cookie, r,
				     r == -EBUSY ? "the broker is restarting or stopping already"
						 : "the broker is out of memory");
		return;
	}
	log_info_of(
		SESSION_ABOUT(session), LOG_RESTART,
		"checking whether the next broker would start: uid %u (pid %d) asked for a restart",
		(unsigned int)session->uid, (int)session->pid);
}

void session_log_level(struct session *session, const struct rbk_wire_control *control)
{
	static const char *const names[] = {
		[LOG_LEVEL_ERROR] = "error",
		[LOG_LEVEL_WARNING] = "warning",
		[LOG_LEVEL_INFO] = "info",
		[LOG_LEVEL_DEBUG] = "debug",
	};
	struct rbk_wire_setting reply = {
		.reply = {.type = RBK_WIRE_CONTROL, .cookie = control->request.cookie},
	};
	uint32_t cookie = control->request.cookie;
	enum log_level level;

	if (control->flags & RBK_WIRE_CONTROL_SET) {
		if (!session_may_change(session, RBK_WIRE_CONTROL, cookie))
			return;
		if (control->value >= ARRAY_SIZE(names) || !names[control->value]) {
			session_reply_result(session, RBK_WIRE_CONTROL, cookie, -EINVAL,
					     "log level %llu is unknown, expected 3 (error), 4 "
					     "(warning), 6 (info) or 7 (debug)",
					     ull(control->value));
			return;
		}
		level = (enum log_level)control->value;
		/* Log at the more verbose of the two levels, so that the line is visible. */
		if (level > log_get_level())
			log_set_level(level);
		log_info_of(SESSION_ABOUT(session), LOG_LEVEL_CHANGED,
			    "the log level becomes %s, as uid %u (pid %d) asked", names[level],
			    (unsigned int)session->uid, (int)session->pid);
		log_set_level(level);
	}
	reply.value = log_get_level();
	session_reply(session, &reply.reply, sizeof(reply));
}

/* Return the element types, as bits, on which the executor computes the operator. */
static uint32_t types_on(const struct op *op, const struct executor *executor)
{
	const uint32_t types = executor->info.types ? executor->info.types : OP_ANY_TYPE;

	return types & op_types(op, executor->info.kind == EXECUTOR_CPU ? OP_ON_CPU : OP_ON_VULKAN);
}

void session_catalogue(struct session *session, uint32_t cookie)
{
	const struct server_options *options = &session->server->options;
	struct {
		struct {
			struct rbk_wire_reply reply;
			uint32_t n_operators, n_devices;
		} head;
		struct rbk_wire_operator operators[OP_KIND_COUNT];
	} answer = {.head = {
			    .reply = {.type = RBK_WIRE_CATALOGUE, .cookie = cookie},
			    .n_operators = OP_KIND_COUNT,
			    .n_devices = options->n_executors,
		    }};

	for (unsigned int i = 0; i < OP_KIND_COUNT; i++) {
		const struct op *op = op_by_kind((enum op_kind)i);
		struct rbk_wire_operator *at = &answer.operators[i];

		snprintf(at->name, sizeof(at->name), "%s", op->name);
		at->opset = op->opset;
		for (uint32_t k = 0; k < options->n_executors; k++)
			at->types[k] = types_on(op, options->executors[k]);
	}
	session_reply(session, &answer.head.reply, sizeof(answer));
}
_Static_assert(OP_KIND_COUNT <= RBK_WIRE_MAX_OPERATORS, "there is room in an answer");
