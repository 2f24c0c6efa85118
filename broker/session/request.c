/* SPDX-License-Identifier: MIT */
/*
 * Requests: messages from a client's control connection
 *
 * Only this file checks the form of a message: its length matches its type, reserved fields are
 * zero, names end within their field, and the number of descriptors matches its type. A message of
 * wrong form ends the session. A well-formed request that cannot be done is answered.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/residency.h"
#include "session/segments.h"
#include "session/server-private.h"
#include "shm/reset-verdict.h"
#include "util/error.h"
#include "util/log.h"
#include "util/utf8.h"

/* Features that a client may request beyond the base set. */
#define CLIENT_FEATURES                                                                   \
	(RBK_FEAT_RESIDENCY | RBK_FEAT_PARTITION | RBK_FEAT_PRIORITY | RBK_FEAT_TENANTS | \
	 RBK_FEAT_STRATEGIES | RBK_FEAT_STATS | RBK_FEAT_CATALOGUE | RBK_FEAT_LEASES |    \
	 RBK_FEAT_FIXED_ARENAS | RBK_FEAT_REATTACH | RBK_FEAT_UNDO | RBK_FEAT_RESTORE |   \
	 RBK_FEAT_AFTER | RBK_FEAT_TIMESLICE | RBK_FEAT_SHARES | RBK_FEAT_PARTS |         \
	 RBK_FEAT_UNSHARE | RBK_FEAT_ENDING | RBK_FEAT_LOST | RBK_FEAT_SLEEP)
/* Features on the administrators' socket, beside the user's rights. */
#define ADMIN_FEATURES                                                                    \
	(RBK_FEAT_STATS | RBK_FEAT_CATALOGUE | RBK_FEAT_ADMIN_LIMITS | RBK_FEAT_RESTART | \
	 RBK_FEAT_SHARES | RBK_FEAT_UNSHARE | RBK_FEAT_SLEEP)

struct request {
	struct session *session;
	const void *bytes;
	size_t n_bytes;
	int *fds;
	unsigned int n_fds;
	const char *why; /* a rule that the client broke */
};

static int hostile(struct request *request, const char *why)
{
	request->why = why;
	return SESSION_E_HOSTILE;
}

static bool is_terminated(const char *text, size_t bytes)
{
	return memchr(text, '\0', bytes) != NULL;
}

/*
 * Return the greatest common divisor of the devices' segment sizes, in bytes; 0: no device has
 * segments.
 */
static uint64_t common_segment_bytes(const struct server_options *options)
{
	uint64_t common = 0;

	for (uint32_t i = 0; i < options->n_executors; i++) {
		uint64_t bytes = options->executors[i]->info.arena_segment_bytes, rest;

		while (bytes != 0) {
			rest = common % bytes;
			common = bytes;
			bytes = rest;
		}
	}
	return common;
}

static int handle_hello(struct request *request)
{
	struct session *session = request->session;
	const struct server_options *options = &session->server->options;
	const struct rbk_wire_hello *hello = request->bytes;
	struct rbk_wire_welcome welcome = {
		.reply = {.type = RBK_WIRE_HELLO, .cookie = hello->request.cookie},
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
		.n_devices = options->n_executors,
		.max_ring_entries = options->limits.max_ring_entries,
		.max_rings = options->limits.max_rings,
		.max_arenas = options->limits.max_arenas,
		.max_plans = options->limits.max_plans,
		.max_arena_bytes = options->limits.max_arena_bytes,
		.arena_segment_bytes = common_segment_bytes(options),
		.flags = session_exporter(session) ? RBK_WIRE_WELCOME_EXPORTS : 0,
		.broker = "ringbroker " RINGBROKER_VERSION,
	};

	if (session->is_greeted)
		return hostile(request, "the client sent a second hello");
	if (hello->magic != RBK_WIRE_MAGIC)
		return hostile(request, "the client's hello has a wrong magic number");
	if (!is_terminated(hello->name, sizeof(hello->name)))
		return hostile(request, "the client's name is not NUL-terminated");
	copy_printable(hello->name, sizeof(hello->name), session->name, sizeof(session->name));
	if (hello->abi_major != RBK_ABI_MAJOR || hello->abi_minor > RBK_ABI_MINOR) {
		session_reply_result(
			session, RBK_WIRE_HELLO, hello->request.cookie, -EPROTONOSUPPORT,
			"the client speaks version %u.%u of the protocol, this broker "
			"%u.%u",
			hello->abi_major, hello->abi_minor, RBK_ABI_MAJOR, RBK_ABI_MINOR);
		return hostile(request, "the client speaks another version of the protocol");
	}

	session->is_greeted = true;
	greet_done(session);
	closers_take_fds(session->fd, true);
	session->features = hello->features &
			    (session->tenant ? CLIENT_FEATURES : ADMIN_FEATURES | session->rights);
	/* Request the page now, so that the tenant's charge does not depend on later requests. */
	if (session->tenant && session->features & RBK_FEAT_STATS)
		session_stats_want(session);
	welcome.features = session->features;
	session_reply(session, &welcome.reply, sizeof(welcome));
	return 0;
}

static int handle_ring_add(struct request *request)
{
	const struct rbk_wire_ring_add *add = request->bytes;

	if (add->reserved)
		return hostile(request, "reserved bytes of the client's ring request are not 0");
	turn_set_cause(request->session->server->work.turn, RBK_TURN_RINGS);
	return session_ring_add(request->session, add->request.cookie, add->n_entries);
}

static int handle_ring_restore(struct request *request)
{
	const struct rbk_wire_ring_add *add = request->bytes;

	if (add->reserved || !(request->session->features & RBK_FEAT_REATTACH))
		return hostile(request, "the client's request to restore a ring has reserved bytes "
					"that are not 0, or lacks the feature");
	restraint_returns(request->session->owner);
	turn_set_cause(request->session->server->work.turn, RBK_TURN_RINGS);
	return session_ring_restore(request->session, add->request.cookie, add->n_entries,
				    request->fds);
}

static int handle_want_id(struct request *request)
{
	const struct rbk_wire_id *want = request->bytes;
	struct session *session = request->session;

	if (want->reserved || !(session->features & RBK_FEAT_REATTACH))
		return hostile(request, "the client's request for an id has reserved bytes that "
					"are not 0, or lacks the feature");
	restraint_returns(session->owner);
	session->wanted_id = want->id;
	session->wants_id = true;
	session_plan_continue(session, want->id);
	session_reply_result(session, RBK_WIRE_WANT_ID, want->request.cookie, 0, NULL);
	return 0;
}

static int handle_arena_add(struct request *request)
{
	const struct rbk_wire_arena_add *add = request->bytes;
	bool fixes;

	if ((request->session->features & RBK_FEAT_RESTORE) &&
	    (add->bytes & RBK_WIRE_ARENA_DMA_BUF))
		return session_arena_restore(request->session, add->request.cookie,
					     &request->fds[0], add->bytes - RBK_WIRE_ARENA_DMA_BUF);
	/*
	 * Check for a memfd here, because the setup thread closes the descriptor: closing a memfd
	 * waits for no process.
	 */
	if (fcntl(request->fds[0], F_GET_SEALS) < 0) {
		session_reply_result(request->session, RBK_WIRE_ARENA_ADD, add->request.cookie,
				     -EINVAL, "the arena is not a memfd");
		return hostile(request, "the client's arena is not a memfd");
	}
	fixes = (request->session->features & RBK_FEAT_FIXED_ARENAS) &&
		(add->bytes & RBK_WIRE_ARENA_FIX);
	return session_arena_add(request->session, add->request.cookie, &request->fds[0],
				 fixes ? add->bytes - RBK_WIRE_ARENA_FIX : add->bytes, fixes);
}

static int handle_arena_new(struct request *request)
{
	const struct rbk_wire_arena_new *make = request->bytes;

	return session_arena_new(request->session, make->request.cookie, make->bytes);
}

static int remove_object(struct session *session, const struct rbk_wire_id *remove)
{
	const uint32_t cookie = remove->request.cookie;

	switch (remove->request.type) {
	case RBK_WIRE_RING_REMOVE:
		return session_ring_remove(session, cookie, remove->id);
	case RBK_WIRE_ARENA_REMOVE:
		return session_arena_remove(session, cookie, remove->id);
	default:
		return session_plan_remove(session, cookie, remove->id);
	}
}

static void resume_remove(struct session *session)
{
	const struct rbk_wire_id remove = session->waiting.remove;

	remove_object(session, &remove);
}

/* RING_REMOVE, ARENA_REMOVE, PLAN_REMOVE */
static int handle_remove(struct request *request)
{
	const struct rbk_wire_id *remove = request->bytes;
	struct session *session = request->session;

	if (remove->reserved)
		return hostile(request,
			       "reserved bytes of the client's request to remove something are not "
			       "0");
	if (session->n_restoring == 0 || remove->request.type == RBK_WIRE_RING_REMOVE)
		return remove_object(session, remove);
	session->waiting.remove = *remove;
	session->awaits_restoring = true;
	session_suspend(session, resume_remove);
	return 0;
}

/* Check the memfd's seals and size, which takes no time; its contents are read elsewhere. */
static int check_description(struct request *request, uint32_t desc_bytes)
{
	int seals = fcntl(request->fds[0], F_GET_SEALS);
	struct stat status;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return hostile(request,
			       "the client's plan description is not in a memfd that is sealed "
			       "against shrinking");
	if (fstat(request->fds[0], &status) < 0 || status.st_size < (off_t)desc_bytes)
		return hostile(request,
			       "the client's plan description is shorter than its request says");
	return 0;
}

static int handle_plan_add(struct request *request)
{
	const struct rbk_wire_plan_add *add = request->bytes;
	size_t inline_bytes = request->n_bytes - sizeof(*add);
	int r;

	turn_set_cause(request->session->server->work.turn, RBK_TURN_PLANS);
	if (add->flags & ~RBK_WIRE_PLAN_FD)
		return hostile(request, "the client's plan request has unknown flags");
	if (!(add->flags & RBK_WIRE_PLAN_FD)) {
		if (request->n_fds != 0 || inline_bytes != add->desc_bytes)
			return hostile(request,
				       "the client's plan description has another length than its "
				       "request says");
		return session_plan_add(request->session, add->request.cookie, add + 1,
					inline_bytes);
	}

	if (request->n_fds != 1 || inline_bytes != 0 || add->desc_bytes == 0 ||
	    add->desc_bytes > RBK_WIRE_PLAN_MAX_BYTES)
		return hostile(request,
			       "the client's plan request has a wrong descriptor, length or inline "
			       "part");
	r = check_description(request, add->desc_bytes);
	if (r)
		return r;
	return session_plan_add_fd(request->session, add->request.cookie, &request->fds[0],
				   add->desc_bytes);
}

static int handle_devices(struct request *request)
{
	const struct rbk_wire_request *header = request->bytes;
	const struct server_options *options = &request->session->server->options;
	struct rbk_wire_devices reply = {
		.reply = {.type = RBK_WIRE_DEVICES, .cookie = header->cookie},
		.n_devices = options->n_executors,
	};

	for (uint32_t i = 0; i < options->n_executors; i++) {
		const struct executor_info *info = &options->executors[i]->info;
		struct rbk_wire_device *device = &reply.devices[i];

		device->index = i;
		device->kind = info->kind == EXECUTOR_CPU   ? RBK_WIRE_DEVICE_CPU
			       : info->kind == EXECUTOR_GPU ? RBK_WIRE_DEVICE_GPU
							    : RBK_WIRE_DEVICE_SOFTWARE_GPU;
		device->memory_bytes = info->memory_bytes;
		snprintf(device->name, sizeof(device->name), "%s", info->name);
		snprintf(device->driver, sizeof(device->driver), "%s", info->driver);
		snprintf(device->paths, sizeof(device->paths), "%s", info->paths);
	}
	session_reply(request->session, &reply.reply, sizeof(reply));
	return 0;
}

static int handle_stats(struct request *request)
{
	const struct rbk_wire_request *header = request->bytes;
	const struct session *session = request->session;
	struct rbk_stats_broker sums = {0};
	struct rbk_wire_stats reply = {
		.reply = {.type = RBK_WIRE_STATS, .cookie = header->cookie},
		.session_errors = session->stats.errors,
		.session_copied_bytes = session->stats.copied_bytes,
		.session_transferred_bytes = session->stats.transferred_bytes,
	};

	session_describe(session, &sums);
	reply.sessions = sums.n_sessions;
	reply.rings = sums.n_rings;
	reply.arenas = sums.n_arenas;
	reply.plans = sums.n_plans;
	reply.tasks_in_flight = sums.n_in_flight;
	reply.host_bytes = sums.host_bytes;
	reply.device_bytes = sums.device_bytes;
	reply.tasks_completed = sums.n_completed;
	reply.copied_bytes = sums.copied_bytes;
	reply.transferred_bytes = sums.transferred_bytes;
	reply.sessions_ended_hostile = sums.n_ended_hostile;
	memcpy(reply.session_tasks, session->stats.tasks, sizeof(reply.session_tasks));
	memcpy(reply.session_reasons, session->stats.reasons, sizeof(reply.session_reasons));
	session_reply(request->session, &reply.reply, sizeof(reply));
	return 0;
}

static uint32_t memory_state(uint8_t device_state)
{
	switch (device_state) {
	case PLAN_DEVICE_READY:
		return RBK_MEMORY_RESIDENT;
	case PLAN_DEVICE_EVICTED:
		return RBK_MEMORY_EVICTED;
	case PLAN_DEVICE_NO_MEMORY:
		return RBK_MEMORY_NEVER_FITS;
	case PLAN_DEVICE_FAILED:
		return RBK_MEMORY_LOST;
	default:
		return RBK_MEMORY_UNSUPPORTED;
	}
}

static void describe_memory(const struct session_plan *plan, unsigned int device,
			    struct rbk_wire_plan_device *ret)
{
	struct residency_about about;

	plan_describe(plan, device, &about);
	ret->state = memory_state(about.device_state);
	if (device == RBK_DEVICE_CPU)
		return;
	if (about.device_state == PLAN_DEVICE_READY)
		ret->tier = about.tier == EXEC_TIER_GTT ? RBK_TIER_GTT : RBK_TIER_VRAM;
	ret->required_bytes = about.required_bytes;
	ret->available_bytes = about.available_bytes;
	ret->resident_bytes = about.resident_bytes;
	ret->n_evictions = about.n_evictions;
	ret->n_returns = about.n_returns;
}

static int handle_plan_memory(struct request *request)
{
	const struct rbk_wire_id *id = request->bytes;
	struct session *session = request->session;
	const struct server_options *options = &session->server->options;
	const struct session_plan *plan = session_plan_find(session, id->id);
	struct rbk_wire_plan_memory reply = {
		.reply = {.type = RBK_WIRE_PLAN_MEMORY, .cookie = id->request.cookie},
		.n_devices = options->n_executors,
	};

	if (id->reserved)
		return hostile(request,
			       "reserved bytes of the client's request for a plan's memory are not "
			       "0");
	if (!plan) {
		session_reply_result(session, RBK_WIRE_PLAN_MEMORY, id->request.cookie, -ENOENT,
				     "there is no plan %u", id->id);
		return 0;
	}
	reply.n_constrained = plan_n_constrained(plan);
	for (uint32_t i = 0; i < options->n_executors; i++)
		describe_memory(plan, i, &reply.devices[i]);
	session_reply(session, &reply.reply, sizeof(reply));
	return 0;
}

static struct rbk_wire_use use_of(const struct account *account, enum account_slot slot)
{
	return (struct rbk_wire_use){account_used(account, slot), account_limit(account, slot)};
}

static int handle_tenant(struct request *request)
{
	const struct rbk_wire_request *header = request->bytes;
	struct session *session = request->session;
	const struct server_options *options = &session->server->options;
	const struct tenant *tenant = session->tenant;
	const struct account *account = tenant->account;
	const struct residency_counts *counts = residency_counts(options->residency, tenant);
	struct rbk_wire_tenant reply = {
		.reply = {.type = RBK_WIRE_TENANT, .cookie = header->cookie},
		.host_bytes = use_of(account, ACCOUNT_HOST_BYTES),
		.arena_bytes = use_of(account, ACCOUNT_ARENA_BYTES),
		.arenas = use_of(account, ACCOUNT_ARENAS),
		.plans = use_of(account, ACCOUNT_PLANS),
		.sessions = use_of(account, ACCOUNT_SESSIONS),
		.n_evictions = counts->n_evictions,
		.n_returns = counts->n_returns,
		.n_memory_constraints = counts->n_constraints,
		.n_refused = account_n_refused(tenant->account),
		.n_devices = options->n_executors,
	};

	copy_printable(tenant_name(tenant), SIZE_MAX, reply.name, sizeof(reply.name));
	for (uint32_t i = RBK_DEVICE_GPU; i < options->n_executors; i++) {
		const struct tenant_share *share = &tenant->shares[i];

		reply.devices[i] = (struct rbk_wire_tenant_device){
			.vram = {account_used(account, account_vram(i)), share->max},
			.vram_reserve = share->reserve,
			.vram_high = share->high,
			.gtt = use_of(account, account_gtt(i)),
		};
	}
	session_reply(session, &reply.reply, sizeof(reply));
	return 0;
}

/* STATS_PAGE, STATS_RESET */
static int handle_stats_of(struct request *request)
{
	const struct rbk_wire_stats_of *of = request->bytes;

	if (of->whose > RBK_WIRE_STATS_TENANT ||
	    (of->whose != RBK_WIRE_STATS_TENANT && of->tenant != 0))
		return hostile(request,
			       "the client's request for statistics names no valid tenant");
	if (of->request.type == RBK_WIRE_STATS_PAGE)
		return session_stats_page(request->session, of);
	return session_stats_reset(request->session, of);
}

static int handle_control(struct request *request)
{
	const struct rbk_wire_control *control = request->bytes;

	if ((control->flags & ~RBK_WIRE_CONTROL_SET) || (control->flags == 0 && control->value))
		return hostile(request, "reserved bytes of the client's control request are not 0");
	return session_control(request->session, control);
}

static int handle_admin_set(struct request *request)
{
	const struct rbk_wire_admin_set *set = request->bytes;

	if (set->reserved)
		return hostile(request,
			       "reserved bytes of the client's request to change a limit are not "
			       "0");
	if (!is_terminated(set->key, sizeof(set->key)) ||
	    !is_terminated(set->value, sizeof(set->value)))
		return hostile(request,
			       "the key or the value in the client's request to change a limit is "
			       "not NUL-terminated");
	session_admin_set(request->session, set);
	return 0;
}

static int handle_admin_limit(struct request *request)
{
	session_admin_limit(request->session, request->bytes);
	return 0;
}

static int handle_admin_evict(struct request *request)
{
	const struct rbk_wire_admin_evict *evict = request->bytes;

	if ((evict->session == 0 && evict->plan_id != 0) ||
	    (evict->tenant == 0 && evict->session != 0))
		return hostile(request,
			       "the client's request to evict a plan lacks the plan's session or "
			       "tenant");
	session_admin_evict(request->session, evict);
	return 0;
}

static int handle_admin_drain(struct request *request)
{
	const struct rbk_wire_admin_drain *drain = request->bytes;

	if (drain->reserved || drain->action > RBK_WIRE_DRAIN_END ||
	    (drain->what != RBK_WIRE_DRAIN_TENANT && drain->what != RBK_WIRE_DRAIN_DEVICE))
		return hostile(request,
			       "the client's drain request has an unknown action or target, or "
			       "reserved bytes that are not 0");
	session_admin_drain(request->session, drain);
	return 0;
}

static int handle_admin_restart(struct request *request)
{
	const struct rbk_wire_admin_restart *restart = request->bytes;

	if (restart->action > RBK_WIRE_RESTART_BEGIN ||
	    restart->drain_ms > RBK_WIRE_RESTART_MOST_MS ||
	    (restart->action == RBK_WIRE_RESTART_ASK && restart->drain_ms > 0))
		return hostile(request, "the client's restart request has an unknown action, or an "
					"impossible time");
	session_admin_restart(request->session, restart);
	return 0;
}

static int handle_catalogue(struct request *request)
{
	const struct rbk_wire_request *header = request->bytes;

	session_catalogue(request->session, header->cookie);
	return 0;
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

static int handle_lease_open(struct request *request)
{
	const struct rbk_wire_lease_open *open = request->bytes;
	bool joins = open->flags & RBK_WIRE_LEASE_JOIN;
	bool restores = open->flags & RBK_WIRE_LEASE_RESTORE;
	bool by_uuid = open->flags & RBK_WIRE_LEASE_BY_UUID;
	uint32_t known = RBK_WIRE_LEASE_JOIN | RBK_WIRE_LEASE_RESTORE | RBK_WIRE_LEASE_BY_UUID;

	if (restores && (request->session->features & RBK_FEAT_RESTORE))
		known |= RBK_WIRE_LEASE_RESIZED | RBK_WIRE_LEASE_OPENER;
	if (open->flags & ~known)
		return hostile(request, "the client's lease request has unknown flags");
	if ((joins && restores) || (joins || restores) != (open->number != 0))
		return hostile(request,
			       "the client's lease request combines joining, restoring and a lease "
			       "number wrongly");
	if ((by_uuid && open->device != 0) || (!by_uuid && !is_zero(open->uuid, 16)) ||
	    (joins && (open->wish_bytes || open->max_bytes)) || (!restores && open->held_bytes))
		return hostile(request, "unused fields of the client's lease request are not 0");
	if (!is_terminated(open->program, sizeof(open->program)))
		return hostile(request, "the program's name in the client's lease request is not "
					"NUL-terminated");
	if (restores)
		restraint_returns(request->session->owner);
	session_lease_open(request->session, open);
	return 0;
}

static int handle_lease_credit(struct request *request)
{
	const struct rbk_wire_lease_credit *credit = request->bytes;

	if (credit->least_bytes > credit->want_bytes ||
	    (credit->return_bytes && credit->want_bytes))
		return hostile(request,
			       "the client's credit request returns and wants credit at once, or "
			       "its minimum exceeds what it wants");
	session_lease_credit(request->session, credit);
	return 0;
}

static int handle_lease_object(struct request *request)
{
	const struct rbk_wire_lease_object *object = request->bytes;

	if (object->action != RBK_WIRE_OBJECT_ADD && object->action != RBK_WIRE_OBJECT_DROP)
		return hostile(request, "the client's object request has an unknown action");
	if (object->action == RBK_WIRE_OBJECT_DROP && (object->bytes || object->from_credit_bytes))
		return hostile(request, "unused fields of the client's object request are not 0");
	session_lease_object(request->session, object);
	return 0;
}

static int handle_lease_resize(struct request *request)
{
	const struct rbk_wire_lease_resize *resize = request->bytes;

	if (resize->reserved)
		return hostile(request,
			       "reserved bytes of the client's request to resize a lease are not "
			       "0");
	session_lease_resize(request->session, resize);
	return 0;
}

static int handle_lease_cgroup(struct request *request)
{
	const struct rbk_wire_lease_cgroup *cgroup = request->bytes;

	if (cgroup->reserved)
		return hostile(request, "reserved bytes of the client's cgroup request are not 0");
	session_lease_cgroup(request->session, cgroup, &request->fds[0]);
	return 0;
}

static int handle_lease_timeslice(struct request *request)
{
	const struct rbk_wire_lease_timeslice *timeslice = request->bytes;
	bool joins = timeslice->action == RBK_WIRE_TIMESLICE_JOIN;
	bool is_ending = timeslice->action == RBK_WIRE_TIMESLICE_ENDING;
	bool is_done = timeslice->action == RBK_WIRE_TIMESLICE_DONE ||
		       timeslice->action == RBK_WIRE_TIMESLICE_GIVE_UP || is_ending;
	uint64_t required = 0;

	if (timeslice->action < RBK_WIRE_TIMESLICE_JOIN ||
	    timeslice->action > RBK_WIRE_TIMESLICE_ENDING)
		return hostile(request, "the client's timeslice request has an unknown action");
	if (timeslice->action == RBK_WIRE_TIMESLICE_GIVE_UP)
		required = RBK_FEAT_SHARES;
	if (timeslice->action == RBK_WIRE_TIMESLICE_LEAVE)
		required = RBK_FEAT_UNSHARE;
	if (is_ending)
		required = RBK_FEAT_ENDING;
	if ((request->session->features & required) != required)
		return hostile(request, "the client's timeslice request lacks the feature of its "
					"action");
	if (!is_ending && timeslice->priority >= RBK_PRIORITY_COUNT)
		return hostile(request, "the client's timeslice request has an unknown priority");
	if ((!joins && !is_ending && timeslice->priority) || (!is_done && timeslice->word))
		return hostile(request,
			       "unused fields of the client's timeslice request are not 0");
	session_timeslice(request->session, timeslice);
	return 0;
}

static int handle_lease_share(struct request *request)
{
	const struct rbk_wire_lease_share *share = request->bytes;

	if (share->reserved || !(request->session->features & RBK_FEAT_SHARES))
		return hostile(request, "the client's request to share a lease's time has reserved "
					"bytes that are not 0, or lacks the feature");
	session_lease_share(request->session, share);
	return 0;
}

static int handle_lease_parts(struct request *request)
{
	const struct rbk_wire_lease_parts *parts = request->bytes;

	if (parts->reserved || !(request->session->features & RBK_FEAT_PARTS))
		return hostile(request, "the client's report of parts has reserved bytes that are "
					"not 0, or lacks the feature");
	session_parts(request->session, parts);
	return 0;
}

static int handle_lease_lost(struct request *request)
{
	const struct rbk_wire_lease_lost *lost = request->bytes;

	if (lost->verdict >= RESET_VERDICT_COUNT || !(request->session->features & RBK_FEAT_LOST))
		return hostile(request, "the client's report of a lost device has an unknown "
					"verdict, or lacks the feature");
	session_lost(request->session, lost);
	return 0;
}

static int handle_lease_sleep(struct request *request)
{
	if (!(request->session->features & RBK_FEAT_SLEEP))
		return hostile(request, "the client's request to let a lease sleep lacks the "
					"feature");
	session_lease_sleep(request->session, request->bytes);
	return 0;
}

static int handle_lease_moved(struct request *request)
{
	const struct rbk_wire_lease_moved *moved = request->bytes;

	if (moved->reserved || !(request->session->features & RBK_FEAT_SLEEP))
		return hostile(request, "the client's report of moved memory has reserved bytes "
					"that are not 0, or lacks the feature");
	session_lease_moved(request->session, moved);
	return 0;
}

/* Sockets on which a request is valid. */
enum request_place {
	ANYWHERE,
	FOR_TENANTS,
	FOR_WORK, /* FOR_TENANTS, and not for new sessions of a drained tenant */
	FOR_ADMINS,
};

/* Form of each request; PLAN_ADD checks its variable part itself. */
static const struct request_type {
	int (*handle)(struct request *request);
	size_t bytes;
	unsigned int n_fds;
	bool is_variable;
	enum request_place place;
} request_types[] = {
	[RBK_WIRE_HELLO] = {handle_hello, sizeof(struct rbk_wire_hello), 0, false, ANYWHERE},
	[RBK_WIRE_RING_ADD] = {handle_ring_add, sizeof(struct rbk_wire_ring_add), 0, false,
			       FOR_WORK},
	[RBK_WIRE_RING_REMOVE] = {handle_remove, sizeof(struct rbk_wire_id), 0, false, FOR_TENANTS},
	[RBK_WIRE_ARENA_ADD] = {handle_arena_add, sizeof(struct rbk_wire_arena_add), 1, false,
				FOR_WORK},
	[RBK_WIRE_ARENA_NEW] = {handle_arena_new, sizeof(struct rbk_wire_arena_new), 0, false,
				FOR_WORK},
	[RBK_WIRE_ARENA_REMOVE] = {handle_remove, sizeof(struct rbk_wire_id), 0, false,
				   FOR_TENANTS},
	[RBK_WIRE_PLAN_ADD] = {handle_plan_add, sizeof(struct rbk_wire_plan_add), 0, true,
			       FOR_WORK},
	[RBK_WIRE_PLAN_REMOVE] = {handle_remove, sizeof(struct rbk_wire_id), 0, false, FOR_TENANTS},
	[RBK_WIRE_DEVICES] = {handle_devices, sizeof(struct rbk_wire_request), 0, false, ANYWHERE},
	[RBK_WIRE_STATS] = {handle_stats, sizeof(struct rbk_wire_request), 0, false, ANYWHERE},
	[RBK_WIRE_PLAN_MEMORY] = {handle_plan_memory, sizeof(struct rbk_wire_id), 0, false,
				  FOR_TENANTS},
	[RBK_WIRE_TENANT] = {handle_tenant, sizeof(struct rbk_wire_request), 0, false, FOR_TENANTS},
	[RBK_WIRE_STATS_PAGE] = {handle_stats_of, sizeof(struct rbk_wire_stats_of), 0, false,
				 ANYWHERE},
	[RBK_WIRE_STATS_RESET] = {handle_stats_of, sizeof(struct rbk_wire_stats_of), 0, false,
				  ANYWHERE},
	[RBK_WIRE_CONTROL] = {handle_control, sizeof(struct rbk_wire_control), 0, false, ANYWHERE},
	[RBK_WIRE_ADMIN_SET] = {handle_admin_set, sizeof(struct rbk_wire_admin_set), 0, false,
				FOR_ADMINS},
	[RBK_WIRE_ADMIN_EVICT] = {handle_admin_evict, sizeof(struct rbk_wire_admin_evict), 0, false,
				  FOR_ADMINS},
	[RBK_WIRE_ADMIN_DRAIN] = {handle_admin_drain, sizeof(struct rbk_wire_admin_drain), 0, false,
				  FOR_ADMINS},
	[RBK_WIRE_ADMIN_LIMIT] = {handle_admin_limit, sizeof(struct rbk_wire_admin_limit), 0, false,
				  FOR_ADMINS},
	[RBK_WIRE_CATALOGUE] = {handle_catalogue, sizeof(struct rbk_wire_request), 0, false,
				ANYWHERE},
	[RBK_WIRE_LEASE_OPEN] = {handle_lease_open, sizeof(struct rbk_wire_lease_open), 0, false,
				 FOR_TENANTS},
	[RBK_WIRE_LEASE_CREDIT] = {handle_lease_credit, sizeof(struct rbk_wire_lease_credit), 0,
				   false, FOR_TENANTS},
	[RBK_WIRE_LEASE_OBJECT] = {handle_lease_object, sizeof(struct rbk_wire_lease_object), 0,
				   false, FOR_TENANTS},
	[RBK_WIRE_LEASE_RESIZE] = {handle_lease_resize, sizeof(struct rbk_wire_lease_resize), 0,
				   false, ANYWHERE},
	[RBK_WIRE_LEASE_CGROUP] = {handle_lease_cgroup, sizeof(struct rbk_wire_lease_cgroup), 1,
				   false, FOR_TENANTS},
	[RBK_WIRE_LEASE_TIMESLICE] = {handle_lease_timeslice,
				      sizeof(struct rbk_wire_lease_timeslice), 0, false,
				      FOR_TENANTS},
	[RBK_WIRE_LEASE_SHARE] = {handle_lease_share, sizeof(struct rbk_wire_lease_share), 0, false,
				  ANYWHERE},
	[RBK_WIRE_LEASE_PARTS] = {handle_lease_parts, sizeof(struct rbk_wire_lease_parts), 0, false,
				  FOR_TENANTS},
	[RBK_WIRE_LEASE_LOST] = {handle_lease_lost, sizeof(struct rbk_wire_lease_lost), 0, false,
				 FOR_TENANTS},
	[RBK_WIRE_LEASE_SLEEP] = {handle_lease_sleep, sizeof(struct rbk_wire_lease_sleep), 0, false,
				  ANYWHERE},
	[RBK_WIRE_LEASE_MOVED] = {handle_lease_moved, sizeof(struct rbk_wire_lease_moved), 0, false,
				  FOR_TENANTS},
	[RBK_WIRE_WANT_ID] = {handle_want_id, sizeof(struct rbk_wire_id), 0, false, FOR_TENANTS},
	[RBK_WIRE_RING_RESTORE] = {handle_ring_restore, sizeof(struct rbk_wire_ring_add), 2, false,
				   FOR_WORK},
	[RBK_WIRE_ADMIN_RESTART] = {handle_admin_restart, sizeof(struct rbk_wire_admin_restart), 0,
				    false, FOR_ADMINS},
};

int request_refuse(struct session *session, const void *message, size_t n_bytes, int res)
{
	const struct rbk_wire_request *header = message;

	if (n_bytes >= sizeof(*header))
		session_reply_result(session, header->type, header->cookie, res,
				     "the broker cannot take this request: %s", strerror(-res));
	return 0;
}

int request_handle(struct session *session, const void *message, size_t n_bytes, int *fds,
		   unsigned int n_fds, const char **ret_why)
{
	const struct rbk_wire_request *header = message;
	struct request request = {
		.session = session,
		.bytes = message,
		.n_bytes = n_bytes,
		.fds = fds,
		.n_fds = n_fds,
	};
	const struct request_type *type;
	int r;

	if (n_bytes < sizeof(*header) || header->type >= ARRAY_SIZE(request_types) ||
	    !request_types[header->type].handle) {
		*ret_why = "the client sent a request of unknown type";
		return SESSION_E_HOSTILE;
	}
	type = &request_types[header->type];
	if (type->is_variable ? n_bytes < type->bytes
			      : n_bytes != type->bytes || n_fds != type->n_fds) {
		*ret_why = "the client sent a request of the wrong length or with the wrong number "
			   "of descriptors";
		return SESSION_E_HOSTILE;
	}
	if (!session->is_greeted && header->type != RBK_WIRE_HELLO) {
		*ret_why = "the client did not send its hello first";
		return SESSION_E_HOSTILE;
	}

	if (type->place == FOR_ADMINS && session->tenant) {
		session_reply_result(session, header->type, header->cookie, -EPERM,
				     "only the administrators' socket accepts this request");
		return 0;
	}
	if ((type->place == FOR_TENANTS || type->place == FOR_WORK) && !session->tenant) {
		session_reply_result(session, header->type, header->cookie, -EPERM,
				     "the administrators' socket does not accept plans and tasks: "
				     "use the broker's other socket");
		return 0;
	}
	if (type->place == FOR_WORK && session->is_late && session->tenant->is_drained) {
		session_reply_result(session, header->type, header->cookie, -EBUSY,
				     "an administrator drains this tenant: until that ends, its "
				     "new sessions can only read, and get no rings, arenas or "
				     "plans");
		return 0;
	}
	r = type->handle(&request);
	if (r)
		*ret_why = request.why;
	return r;
}
