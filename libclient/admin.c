/* SPDX-License-Identifier: MIT */
/*
 * Requests that change the broker, for administrators
 *
 * The user's rights are checked in the connection's features before a request is sent: a broker
 * that does not know a request ends the session.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ringbroker/admin.h>

#include "libclient/private.h"

_Static_assert((int)RBK_DRAIN_ASK == (int)RBK_WIRE_DRAIN_ASK, "the same numbers");
_Static_assert((int)RBK_DRAIN_BEGIN == (int)RBK_WIRE_DRAIN_BEGIN, "the same numbers");
_Static_assert((int)RBK_DRAIN_END == (int)RBK_WIRE_DRAIN_END, "the same numbers");
_Static_assert(sizeof(struct rbk_admin_limit) ==
		       sizeof(struct rbk_wire_limit) - offsetof(struct rbk_wire_limit, key),
	       "mirrored");
_Static_assert(offsetof(struct rbk_admin_limit, n_limits) ==
		       offsetof(struct rbk_wire_limit, n_limits) -
			       offsetof(struct rbk_wire_limit, key),
	       "mirrored");
_Static_assert(sizeof(struct rbk_operator) == sizeof(struct rbk_wire_operator), "mirrored");
_Static_assert(offsetof(struct rbk_operator, types) == offsetof(struct rbk_wire_operator, types),
	       "mirrored");

RBK_EXPORT int rbk_admin_connect(const struct rbk_options *options, struct rbk **ret,
				 struct rbk_error *error)
{
	return client_connect(options, NULL, true, ret, error);
}

static int check_may_look(const struct rbk *rbk, struct rbk_error *error)
{
	int r = client_check(rbk, error);

	if (r || (rbk->features & RBK_FEAT_ADMIN))
		return r;
	return client_error(error, -EPERM,
			    "this function requires a connection to the administrators' socket");
}

static int check_may_change(const struct rbk *rbk, struct rbk_error *error)
{
	int r = check_may_look(rbk, error);

	if (r || (rbk->features & RBK_FEAT_ADMIN_CHANGE))
		return r;
	return client_error(error, -EPERM, "you may look at this broker, not change anything");
}

/* Copy @text with its NUL. Return: false if it does not fit. */
static bool copy_text(char *to, const char *text, size_t bytes)
{
	size_t n = strlen(text);

	if (n >= bytes)
		return false;
	memcpy(to, text, n + 1);
	return true;
}

RBK_EXPORT int rbk_admin_set(struct rbk *rbk, uint32_t tenant, const char *key, const char *value,
			     struct rbk_error *error)
{
	struct rbk_wire_admin_set request = {
		.request.type = RBK_WIRE_ADMIN_SET,
		.tenant = tenant,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = check_may_change(rbk, error);
	if (r)
		return r;
	if (!key || !copy_text(request.key, key, sizeof(request.key)))
		return client_error(error, -EINVAL, "a key has at most %u characters",
				    RBK_WIRE_KEY_BYTES - 1);
	if (!value || !copy_text(request.value, value, sizeof(request.value)))
		return client_error(error, -EINVAL, "a value has at most %u characters",
				    RBK_WIRE_VALUE_BYTES - 1);
	r = client_request(rbk, &message, &answer, error);
	if (r == 0 && error)
		snprintf(error->text, sizeof(error->text), "%s", answer.reply.head.text);
	return r;
}

RBK_EXPORT int rbk_admin_limit(struct rbk *rbk, uint32_t tenant, uint32_t index,
			       struct rbk_admin_limit *ret, struct rbk_error *error)
{
	struct rbk_wire_admin_limit request = {
		.request.type = RBK_WIRE_ADMIN_LIMIT,
		.tenant = tenant,
		.index = index,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = check_may_look(rbk, error);
	if (r)
		return r;
	if (!(rbk->features & RBK_FEAT_ADMIN_LIMITS))
		return client_error(error, -EOPNOTSUPP, "this broker does not list limits");
	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	memcpy(ret, answer.reply.limit.key, sizeof(*ret));
	return 0;
}

RBK_EXPORT int rbk_admin_evict(struct rbk *rbk, const struct rbk_admin_evict *what,
			       uint64_t *ret_n_plans, uint64_t *ret_bytes, struct rbk_error *error)
{
	struct rbk_wire_admin_evict request = {.request.type = RBK_WIRE_ADMIN_EVICT};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = check_may_change(rbk, error);
	if (r)
		return r;
	if (!what || (what->session == 0 && what->plan_id != 0) ||
	    (what->tenant == 0 && what->session != 0))
		return client_error(error, -EINVAL,
				    "a plan requires its tenant, its session and its id");
	request.tenant = what->tenant;
	request.session = what->session;
	request.plan_id = what->plan_id;
	request.device = what->device;
	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	if (ret_n_plans)
		*ret_n_plans = answer.reply.admin_result.n;
	if (ret_bytes)
		*ret_bytes = answer.reply.admin_result.bytes;
	return 0;
}

static int drain(struct rbk *rbk, uint32_t what, uint32_t number, enum rbk_drain action,
		 struct rbk_admin_drained *ret, struct rbk_error *error)
{
	struct rbk_wire_admin_drain request = {
		.request.type = RBK_WIRE_ADMIN_DRAIN,
		.what = what,
		.number = number,
		.action = action,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = action == RBK_DRAIN_ASK ? check_may_look(rbk, error) : check_may_change(rbk, error);
	if (r)
		return r;
	if ((uint32_t)action > RBK_DRAIN_END)
		return client_error(error, -EINVAL, "unknown drain action %u",
				    (unsigned int)action);
	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	if (ret)
		*ret = (struct rbk_admin_drained){
			.n_tasks = answer.reply.admin_result.n,
			.device_bytes = answer.reply.admin_result.bytes,
			.is_drained = answer.reply.admin_result.is_drained,
			.is_held = answer.reply.admin_result.is_held,
		};
	if (error && answer.reply.admin_result.is_held)
		snprintf(error->text, sizeof(error->text), "%s",
			 answer.reply.admin_result.reply.text);
	return 0;
}

RBK_EXPORT int rbk_admin_drain_tenant(struct rbk *rbk, uint32_t tenant, enum rbk_drain action,
				      struct rbk_admin_drained *ret, struct rbk_error *error)
{
	return drain(rbk, RBK_WIRE_DRAIN_TENANT, tenant, action, ret, error);
}

RBK_EXPORT int rbk_admin_drain_device(struct rbk *rbk, uint32_t device, enum rbk_drain action,
				      struct rbk_admin_drained *ret, struct rbk_error *error)
{
	return drain(rbk, RBK_WIRE_DRAIN_DEVICE, device, action, ret, error);
}

RBK_EXPORT int rbk_admin_restart(struct rbk *rbk, enum rbk_restart action, uint32_t drain_ms,
				 struct rbk_admin_restart *ret, struct rbk_error *error)
{
	struct rbk_wire_admin_restart request = {
		.request.type = RBK_WIRE_ADMIN_RESTART,
		.action = action,
		.drain_ms = drain_ms,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = action == RBK_RESTART_ASK ? check_may_look(rbk, error) : check_may_change(rbk, error);
	if (r)
		return r;
	if ((uint32_t)action > RBK_RESTART_BEGIN || drain_ms > RBK_WIRE_RESTART_MOST_MS ||
	    (action == RBK_RESTART_ASK && drain_ms > 0))
		return client_error(error, -EINVAL, "unknown action %u of a restart, or %u ms",
				    (unsigned int)action, drain_ms);
	if (!(rbk->features & RBK_FEAT_RESTART))
		return client_error(error, -EOPNOTSUPP,
				    "this broker cannot restart itself: stop it, and start it "
				    "again");
	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	if (ret)
		*ret = (struct rbk_admin_restart){
			.ready_ns = answer.reply.restart.ready_ns,
			.restored_ns = answer.reply.restart.restored_ns,
			.n_sessions = answer.reply.restart.n_sessions,
			.n_restored = answer.reply.restart.n_restored,
			.held_ns = answer.reply.restart.held_ns,
			.drain_ns = answer.reply.restart.drain_ns,
			.n_drained = answer.reply.restart.n_drained,
			.n_left = answer.reply.restart.n_left,
		};
	if (error)
		snprintf(error->text, sizeof(error->text), "%s", answer.reply.restart.reply.text);
	return 0;
}

RBK_EXPORT int rbk_admin_log_level(struct rbk *rbk, int level, int *ret_level,
				   struct rbk_error *error)
{
	struct rbk_wire_control request = {
		.request.type = RBK_WIRE_CONTROL,
		.setting = RBK_WIRE_LOG_LEVEL,
		.flags = level == RBK_ASK ? 0 : RBK_WIRE_CONTROL_SET,
		.value = level == RBK_ASK ? 0 : (uint64_t)level,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = level == RBK_ASK ? check_may_look(rbk, error) : check_may_change(rbk, error);
	if (r)
		return r;
	if (level < RBK_ASK)
		return client_error(error, -EINVAL, "there is no log level %d", level);
	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	if (ret_level)
		*ret_level = (int)answer.reply.setting.value;
	return 0;
}

RBK_EXPORT int rbk_catalogue(struct rbk *rbk, struct rbk_operator *operators, unsigned int max,
			     unsigned int *ret_n)
{
	struct rbk_wire_request request = {.type = RBK_WIRE_CATALOGUE};
	struct client_message message = {&request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	unsigned int n;
	int r;

	r = client_check(rbk, NULL);
	if (r)
		return r;
	if (!(rbk->features & RBK_FEAT_CATALOGUE))
		return -EOPNOTSUPP;
	r = client_request(rbk, &message, &answer, NULL);
	if (r)
		return r;
	n = answer.reply.catalogue.n_operators;
	if (max > 0)
		memcpy(operators, answer.operators, (n < max ? n : max) * sizeof(*operators));
	free(answer.operators);
	*ret_n = n;
	return 0;
}
