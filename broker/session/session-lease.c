/* SPDX-License-Identifier: MIT */
/*
 * Leases: requests of members
 *
 * A session is a member of at most one lease of each device, until the session ends. A request that
 * waits for room is kept until it is answered; the session continues meanwhile. All memory of
 * leases is charged to the tenant: a lease with its page, a member, a waiting request, an object.
 * The tenant's limits therefore bound their number.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "memory/residency.h"
#include "session/lease-page.h"
#include "session/server-private.h"
#include "util/cgroup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"
#include "util/size.h"
#include "util/utf8.h"

/* Bound of a session's waiting requests. */
enum { MAX_REQUESTS = 64 };

/* A session's membership of a lease, or of a lease that is being opened. */
struct session_lease {
	struct list_node link; /* in session->leases */
	struct session *session;
	struct lease_member member;
	struct charge charge;
	uint8_t device;
};

/* A request that is not answered yet. */
struct lease_request {
	struct list_node link; /* in session->lease_waits */
	struct lease_wait wait;
	struct session_lease *held;
	struct charge charge;
	uint32_t type, cookie;
	union {
		uint64_t want_bytes;                 /* LEASE_CREDIT */
		struct rbk_wire_lease_object object; /* LEASE_OBJECT */
	};
};

static struct residency *residency_of(const struct session *session)
{
	return session->server->options.residency;
}

static void lease_discard(struct session *session, struct lease *lease)
{
	struct lease_page *page = lease->owner;

	log_debug_of(SESSION_ABOUT(session), LOG_LEASE_ENDED,
		     "lease %u of \"%s\" on device %u ended; it used %llu bytes at most",
		     lease->number, lease->name, lease->device, ull(lease->peak_bytes));
	stats_shown_deinit(&page->shown);
	lease_free(lease);
	lease_page_free(page);
}

/* ---- Members ---- */

static struct session_lease *held_free(struct session_lease *held)
{
	if (!held)
		return NULL;
	list_remove(&held->link);
	charge_deinit(&held->charge);
	free(held);
	return NULL;
}

/* End a membership, whose waiting requests must be gone. The last one ends the lease. */
static void held_leave(struct session_lease *held)
{
	struct residency *residency = residency_of(held->session);
	struct lease *lease = held->member.lease;
	uint8_t device = held->device;

	timeslices_leave(held->session->server, &held->member);
	lease_leave(&held->member);
	if (lease && lease->n_members == 0 && lease->n_waits == 0)
		lease_discard(held->session, lease);
	held_free(held);
	if (lease)
		residency_leases_changed(residency, device);
}

static struct session_lease *held_of_device(const struct session *session, uint32_t device)
{
	list_for_each (node, &session->leases) {
		struct session_lease *held = container_of(node, struct session_lease, link);

		if (held->device == device)
			return held;
	}
	return NULL;
}

/* Return: NULL: the session is no member of that lease, and the client was told. */
static struct session_lease *find_held(struct session *session,
				       const struct rbk_wire_request *request, uint32_t number)
{
	list_for_each (node, &session->leases) {
		struct session_lease *held = container_of(node, struct session_lease, link);

		if (held->member.lease && held->member.lease->number == number)
			return held;
	}
	session_reply_result(session, request->type, request->cookie, -ENOENT,
			     "this session is not a member of lease %u", number);
	return NULL;
}

struct lease_member *session_lease_member(struct session *session,
					  const struct rbk_wire_request *request, uint32_t number)
{
	struct session_lease *held = find_held(session, request, number);

	return held ? &held->member : NULL;
}

/* ---- Waiting requests ---- */

static struct lease_request *request_of(struct lease_wait *wait)
{
	return container_of(wait, struct lease_request, wait);
}

static void request_free(struct lease_request *request)
{
	list_remove(&request->link);
	charge_deinit(&request->charge);
	free(request);
}

/* Return: NULL: no room for the request; the client was answered. */
static struct lease_request *request_new(struct session_lease *held,
					 const struct rbk_wire_request *head)
{
	struct session *session = held->session;
	struct charge charge = CHARGE_INIT;
	struct lease_request *request;
	char text[ACCOUNT_TEXT_BYTES];
	unsigned int n = 0;

	list_for_each (node, &session->lease_waits)
		n++;
	if (n >= MAX_REQUESTS) {
		session_reply_result(session, head->type, head->cookie, -EBUSY,
				     "%d requests of this session already wait for memory, which "
				     "is the limit",
				     MAX_REQUESTS);
		return NULL;
	}
	/* Each check visits all waiting requests, so their number is bounded. */
	if (leases_of(session->tenant)->n_waits[held->device] >= LEASE_MAX_WAITS) {
		session_reply_result(session, head->type, head->cookie, -EBUSY,
				     "tenant %s: %d of its requests already wait for memory of "
				     "device %u, which is the limit",
				     tenant_name(session->tenant), LEASE_MAX_WAITS, held->device);
		return NULL;
	}
	if (account_charge(session->account, &charge, ACCOUNT_HOST_BYTES, sizeof(*request))) {
		session_reply_result(session, head->type, head->cookie, -EDQUOT, "%s",
				     account_explain(session->account, text));
		return NULL;
	}
	request = calloc(1, sizeof(*request));
	if (!request) {
		charge_deinit(&charge);
		session_reply_result(session, head->type, head->cookie, -ENOMEM,
				     "the broker is out of memory");
		return NULL;
	}
	request->held = held;
	request->type = head->type;
	request->cookie = head->cookie;
	request->charge = charge;
	list_append(&session->lease_waits, &request->link);
	return request;
}

static void ask(struct lease_request *request, struct lease *lease, uint64_t least_bytes,
		uint64_t want_bytes, uint32_t wait_ms,
		void (*done)(struct lease_wait *wait, int res))
{
	request->wait.lease = lease;
	request->wait.member = request->held->member.lease ? &request->held->member : NULL;
	request->wait.least_bytes = least_bytes;
	request->wait.want_bytes = want_bytes;
	request->wait.done = done;
	residency_lease_ask(residency_of(request->held->session), &request->wait,
			    wait_ms * 1000000ull);
}

/* Refuse a request with the sizes of request->wait, to the client and in the log. */
static void refuse(struct lease_request *request, const struct lease *lease,
		   uint64_t required_bytes, int res)
{
	struct session *session = request->held->session;
	struct server *server = session->server;
	const char *how = res == -ETIMEDOUT ? ", and the rest did not become available in time"
			  : res == -EDEADLK ? ", and the leases that have the rest wait for more "
					      "memory, too"
					    : "";
	char ahead[80] = "", text[320];
	uint64_t n_unlogged;

	if (request->wait.ahead_bytes > 0)
		snprintf(ahead, sizeof(ahead), "; requests before it have asked for %s",
			 SIZE_ROUNDED(request->wait.ahead_bytes));
	snprintf(text, sizeof(text),
		 "tenant %s: a lease of device %u requires %s, of which %s are available%s%s",
		 tenant_name(lease->tenant), lease->device,
		 SIZE_BESIDE(required_bytes, request->wait.available_bytes),
		 SIZE_BESIDE(request->wait.available_bytes, required_bytes), how, ahead);
	if (request->type == RBK_WIRE_LEASE_OPEN &&
	    log_limit_pass(&server->lease_limit, clock_now_ns(), &n_unlogged))
		log_info_of(SESSION_ABOUT(session), LOG_LEASE_REFUSED,
			    "lease of \"%s\" refused: %s%s", lease->name, text,
			    n_unlogged > 0 ? "; refusals before it were not logged" : "");
	session_reply_result(session, request->type, request->cookie, res, "%s", text);
}

/* Refuse a member's request without waiting. */
static void refuse_at_once(struct lease_request *request, struct lease *lease,
			   uint64_t required_bytes)
{
	request->wait.lease = lease;
	request->wait.member = &request->held->member;
	residency_lease_look(residency_of(request->held->session), &request->wait);
	refuse(request, lease, required_bytes, -ENOMEM);
	request_free(request);
}

/* ---- LEASE_OPEN ---- */

/* Answer LEASE_OPEN. May end the membership. */
static void reply_opened(struct session_lease *held, uint32_t cookie)
{
	const struct lease *lease = held->member.lease;
	const struct lease_page *page = lease->owner;
	struct rbk_wire_lease reply = {
		.reply = {.type = RBK_WIRE_LEASE_OPEN, .cookie = cookie},
		.number = lease->number,
		.device = lease->device,
		.granted_bytes = lease_granted(lease),
		.max_bytes = lease->max_bytes,
		.page_bytes = page->bytes,
	};

	/* Without the page a member could not know how much memory it may use. */
	if (session_reply_fd(held->session, &reply.reply, sizeof(reply), page->fd, true))
		held_leave(held);
}

static void join(struct session_lease *held, struct lease *lease, uint32_t cookie)
{
	held->device = lease->device;
	lease_join(lease, &held->member, held->session->pid);
	held->member.joined_ns = clock_boot_ns();
	reply_opened(held, cookie);
}

static void on_opened(struct lease_wait *wait, int res)
{
	struct lease_request *request = request_of(wait);
	struct session_lease *held = request->held;
	struct lease *lease = wait->lease;

	if (res == 0) {
		log_debug_of(SESSION_ABOUT(held->session), LOG_LEASE_OPENED,
			     "lease %u of \"%s\" on device %u: %llu of %llu bytes", lease->number,
			     lease->name, lease->device, ull(lease_granted(lease)),
			     ull(lease->max_bytes));
		join(held, lease, request->cookie);
	} else {
		refuse(request, lease, lease->min_bytes, res);
		lease_discard(held->session, lease);
		held_free(held);
	}
	request_free(request);
}

static int reply_error(struct session *session, const struct rbk_wire_request *request, int res,
		       const char *text)
{
	session_reply_result(session, request->type, request->cookie, res, "%s", text);
	return SESSION_E_REFUSED;
}

/* Return: 0; SESSION_E_REFUSED: the client was answered. */
static int find_device(struct session *session, const struct rbk_wire_lease_open *open,
		       uint8_t *ret)
{
	const struct server_options *options = &session->server->options;

	for (uint32_t i = RBK_DEVICE_GPU; i < options->n_executors; i++) {
		const struct exec_identity *identity = &options->executors[i]->info.identity;
		bool is_it;

		if (!residency_has_memory(options->residency, i))
			continue;
		if (open->flags & RBK_WIRE_LEASE_BY_UUID)
			is_it = memcmp(identity->uuid, open->uuid, sizeof(open->uuid)) == 0;
		else
			is_it = open->device == RBK_DEVICE_NONE || open->device == i;
		if (!is_it)
			continue;
		*ret = (uint8_t)i;
		return 0;
	}
	return reply_error(session, &open->request, -ENODEV,
			   "the broker has no such device, or the device has no memory of its own; "
			   "see brokerctl devices");
}

/* Check the sizes of a new lease. Return: 0; SESSION_E_REFUSED: the client was answered. */
static int check_sizes(struct session *session, const struct rbk_wire_lease_open *open,
		       uint8_t device)
{
	const struct executor_info *info = &session->server->options.executors[device]->info;
	uint64_t most = session->tenant->shares[device].max;
	const char *limit = "vram-max";

	if (open->min_bytes == 0 || open->wish_bytes < open->min_bytes ||
	    open->max_bytes < open->wish_bytes) {
		session_reply_result(session, open->request.type, open->request.cookie, -EINVAL,
				     "a lease's minimum, wish and maximum are %llu, %llu and %llu "
				     "bytes, which should be above 0 and in that order",
				     ull(open->min_bytes), ull(open->wish_bytes),
				     ull(open->max_bytes));
		return SESSION_E_REFUSED;
	}
	if (most >= info->memory_bytes) {
		most = info->memory_bytes;
		limit = "the device's memory";
	}
	if (open->min_bytes <= most)
		return 0;
	session_reply_result(
		session, open->request.type, open->request.cookie, -EDQUOT,
		"tenant %s: a lease of device %u requires %s, of which it may never have "
		"more than %s (%s)",
		tenant_name(session->tenant), device, SIZE_BESIDE(open->min_bytes, most),
		SIZE_BESIDE(most, open->min_bytes), limit);
	return SESSION_E_REFUSED;
}

/*
 * Check for a lease of @device, which may be drained or lost.
 * Return: 0; SESSION_E_REFUSED: the client was answered.
 */
static int check_state(struct session *session, const struct rbk_wire_request *request,
		       uint8_t device)
{
	struct residency *residency = residency_of(session);

	if (held_of_device(session, device))
		return reply_error(session, request, -EALREADY,
				   "this session already has a lease of this device");
	if (session->tenant->is_drained)
		return reply_error(session, request, -EBUSY,
				   "an administrator drains this tenant: until that ends, it gets "
				   "no new leases");
	if (!residency_is_up(residency, device))
		return reply_error(session, request, -EBUSY,
				   "an administrator drains this device, or it is lost: until that "
				   "ends, it gives no new leases");
	return 0;
}

/* Return: NULL: the client was answered. */
static struct session_lease *held_new(struct session *session,
				      const struct rbk_wire_request *request, uint8_t device)
{
	struct charge charge = CHARGE_INIT;
	struct session_lease *held;
	char text[ACCOUNT_TEXT_BYTES];

	if (account_charge(session->account, &charge, ACCOUNT_HOST_BYTES, sizeof(*held))) {
		reply_error(session, request, -EDQUOT, account_explain(session->account, text));
		return NULL;
	}
	held = calloc(1, sizeof(*held));
	if (!held) {
		charge_deinit(&charge);
		reply_error(session, request, -ENOMEM, "the broker is out of memory");
		return NULL;
	}
	held->session = session;
	held->device = device;
	held->charge = charge;
	list_append(&session->leases, &held->link);
	return held;
}

/* Restart the request when its page is made, or cannot be made. */
static void resume_open(struct session *session)
{
	const struct rbk_wire_lease_open open = session->waiting.lease_open;

	session_lease_open(session, &open);
	session->lease_page = lease_page_free(session->lease_page);
}

/*
 * Begin to make a lease's page, and suspend the request, of which nothing may have been done yet.
 */
static void await_page(struct session *session, const struct rbk_wire_lease_open *open)
{
	char text[ACCOUNT_TEXT_BYTES];
	int r = lease_page_new(session, &session->lease_page);

	if (r > 0)
		reply_error(session, &open->request, -EDQUOT,
			    account_explain(session->account, text));
	else if (r < 0)
		session_reply_result(session, open->request.type, open->request.cookie, r,
				     "cannot make a lease: %s", strerror(-r));
	if (r)
		return;
	session->waiting.lease_open = *open;
	session_suspend(session, resume_open);
}

/* Return: NULL: the client was answered, or the request waits for the lease's page. */
static struct lease *make_lease(struct session *session, const struct rbk_wire_lease_open *open,
				uint8_t device)
{
	uint64_t memory_bytes = session->server->options.executors[device]->info.memory_bytes;
	struct lease_page *page = steal_ptr(session->lease_page);
	struct rbk_lease_page *shown;
	char name[LEASE_NAME_BYTES];
	struct lease_about about = {
		.tenant = session->tenant,
		.uid = session->uid,
		.pid = session->pid,
		.device = device,
		.restored_number = open->flags & RBK_WIRE_LEASE_RESTORE ? open->number : 0,
		.min_bytes = open->min_bytes,
		/* No lease can have more, and sums do not overflow. */
		.wish_bytes = open->wish_bytes < memory_bytes ? open->wish_bytes : memory_bytes,
		.max_bytes = open->max_bytes < memory_bytes ? open->max_bytes : memory_bytes,
		.name = name,
	};
	struct lease *lease;
	int r;

	if (!page) {
		await_page(session, open);
		return NULL;
	}
	copy_printable(open->program, sizeof(open->program), name, sizeof(name));
	if (!name[0])
		memcpy(name, session->name, sizeof(name));
	r = page->result;
	if (r == 0)
		r = residency_lease_new(residency_of(session), &about, &lease);
	if (r) {
		lease_page_free(page);
		session_reply_result(session, open->request.type, open->request.cookie, r,
				     "cannot make a lease: %s", strerror(-r));
		return NULL;
	}
	shown = page->map;
	shown->magic = RBK_LEASE_PAGE_MAGIC;
	shown->lease = lease->number;
	lease->page = shown;
	lease->owner = page;
	lease->opened_ns = clock_ticks_to_ns(clock_ticks());
	lease_show(lease);
	stats_shown_init(&page->shown, STATS_LEASES, session->server->pages, session->tenant_stats,
			 lease);
	return lease;
}
_Static_assert(RBK_WIRE_NAME_BYTES <= LEASE_NAME_BYTES, "names fit");

static void open_joining(struct session *session, const struct rbk_wire_lease_open *open)
{
	struct lease *lease = lease_find(residency_leases(residency_of(session)), open->number,
					 session->tenant, session->uid);
	struct session_lease *held;
	uint8_t device;

	/* A lease that is still being opened has no members. */
	if (!lease || lease->n_members == 0) {
		session_reply_result(session, open->request.type, open->request.cookie, -ENOENT,
				     "there is no lease %u", open->number);
		return;
	}
	if (lease->uid != session->uid) {
		session_reply_result(session, open->request.type, open->request.cookie, -EPERM,
				     "lease %u belongs to another user", lease->number);
		return;
	}
	if (lease->tenant != session->tenant) {
		session_reply_result(
			session, open->request.type, open->request.cookie, -EPERM,
			"lease %u is tenant %s's, and this program tenant %s's "
			"(match- keys of brokerd.conf(5)): it needs a lease of its own, "
			"by RINGBROKER_LEASE_VRAM without brokerctl exec",
			lease->number, tenant_name(lease->tenant), tenant_name(session->tenant));
		return;
	}
	if (open->flags & RBK_WIRE_LEASE_BY_UUID) {
		if (find_device(session, open, &device))
			return;
		if (device != lease->device) {
			session_reply_result(session, open->request.type, open->request.cookie,
					     -ENODEV, "lease %u is of device %u, not of device %u",
					     lease->number, lease->device, device);
			return;
		}
	}
	if (check_state(session, &open->request, lease->device))
		return;
	held = held_new(session, &open->request, lease->device);
	if (held)
		join(held, lease, open->request.cookie);
}

/*
 * Return the lease that other members have restored from a broker that ended, or NULL. Each broker
 * starts its numbers elsewhere; a lease of this broker's own is a different lease.
 */
static struct lease *find_restored(struct session *session, const struct rbk_wire_lease_open *open,
				   uint8_t device)
{
	struct lease *lease = lease_find_restored(residency_leases(residency_of(session)),
						  open->number, session->tenant, session->uid);

	return lease && lease->n_members > 0 && lease->device == device ? lease : NULL;
}

/*
 * Check a member's claim of memory that it had from a broker that ended. The memory is in use, so
 * the claim neither waits nor evicts. But any client can make such a claim. It is believed within
 * the tenant's maximum, and only for memory that no other lease or plan has or is promised. Memory
 * that the tenant's other restored leases were granted but have not given to members is no such
 * promise: these leases merely came first.
 *
 * Return: 0; SESSION_E_REFUSED: the client was answered.
 */
static int check_held(struct session *session, const struct rbk_wire_lease_open *open,
		      uint8_t device)
{
	struct residency *residency = residency_of(session);
	uint64_t ungiven =
		leases_restored_ungiven(residency_leases(residency), session->tenant, device);
	uint64_t used = account_used(session->account, account_vram(device)) - ungiven;
	uint64_t max = session->tenant->shares[device].max, believed;
	uint64_t available = used < max ? max - used : 0;

	if (open->held_bytes > available) {
		session_reply_result(session, open->request.type, open->request.cookie, -EDQUOT,
				     "tenant %s: a lease of device %u had %s, of which %s are "
				     "available (vram-max)",
				     tenant_name(session->tenant), device,
				     SIZE_BESIDE(open->held_bytes, available),
				     SIZE_BESIDE(available, open->held_bytes));
		return SESSION_E_REFUSED;
	}
	believed = ungiven + residency_lease_believed(residency, device, session->tenant);
	if (open->held_bytes <= believed)
		return 0;
	session_reply_result(
		session, open->request.type, open->request.cookie, -ENOMEM,
		"tenant %s: a lease of device %u had %s, of which it can have at most %s again, "
		"because the rest is used or promised to others",
		tenant_name(session->tenant), device, SIZE_BESIDE(open->held_bytes, believed),
		SIZE_BESIDE(believed, open->held_bytes));
	return SESSION_E_REFUSED;
}

/* Grant @lease the checked claim of a member, in addition to the credit given to other members. */
static void grant_held(struct session *session, struct lease *lease, uint64_t held_bytes)
{
	struct residency *residency = residency_of(session);
	uint8_t device = lease->device;
	uint64_t used = account_used(session->account, account_vram(device));
	uint64_t max = session->tenant->shares[device].max;
	uint64_t room = residency_lease_believed(residency, device, session->tenant), more;

	if (held_bytes <= lease_ungiven(lease))
		return;
	more = held_bytes - lease_ungiven(lease);
	if (used >= max || room > max - used)
		room = used < max ? max - used : 0;
	if (more > room)
		leases_take_back(residency_leases(residency), lease, session->tenant, device,
				 more - room);
	residency_lease_believe(residency, device, session->tenant, more);
	lease_grant(lease, lease->credited_bytes + held_bytes, true);
}

static void open_restoring(struct session *session, const struct rbk_wire_lease_open *open,
			   uint8_t device)
{
	struct lease *lease = find_restored(session, open, device);
	struct session_lease *held;
	struct lease_page *page;

	if (check_held(session, open, device))
		return;
	held = held_new(session, &open->request, device);
	if (!held)
		return;
	if (!lease) {
		lease = make_lease(session, open, device);
		if (!lease) {
			held_free(held);
			return;
		}
		page = lease->owner;
		if (session->features & RBK_FEAT_RESTORE)
			page->opener = 0;
	}
	page = lease->owner;
	if ((open->flags & RBK_WIRE_LEASE_OPENER) && page->opener == 0)
		page->opener = session->number;
	/* All members know of the last LEASE_RESIZE; there may have been another one since. */
	if ((open->flags & RBK_WIRE_LEASE_RESIZED) && lease->resized_bytes == 0)
		lease_resize(lease, min_u64(open->wish_bytes, lease->max_bytes));
	lease_join(lease, &held->member, session->pid);
	held->member.joined_ns = clock_boot_ns();
	held->member.restored_ns = clock_now_ns();
	residency_leases_return(residency_of(session));
	grant_held(session, lease, open->held_bytes);
	if (lease_take(&held->member, open->held_bytes))
		assert(!"it was granted");
	residency_lease_grow(residency_of(session), lease);
	reply_opened(held, open->request.cookie);
	residency_leases_changed(residency_of(session), device);
}

void session_lease_open(struct session *session, const struct rbk_wire_lease_open *open)
{
	struct lease_request *request;
	struct session_lease *held;
	struct lease *lease;
	uint8_t device;

	if (open->flags & RBK_WIRE_LEASE_JOIN) {
		open_joining(session, open);
		return;
	}
	if (find_device(session, open, &device) || check_sizes(session, open, device) ||
	    check_state(session, &open->request, device))
		return;
	if (open->flags & RBK_WIRE_LEASE_RESTORE) {
		open_restoring(session, open, device);
		return;
	}
	held = held_new(session, &open->request, device);
	if (!held)
		return;
	lease = make_lease(session, open, device);
	if (!lease) {
		held_free(held);
		return;
	}
	request = request_new(held, &open->request);
	if (!request) {
		lease_discard(session, lease);
		held_free(held);
		return;
	}
	ask(request, lease, lease->min_bytes, lease->wish_bytes, open->wait_ms, on_opened);
}

/* ---- LEASE_CREDIT ---- */

static void reply_given(struct session *session, uint32_t type, uint32_t cookie,
			const struct lease *lease, uint64_t given_bytes)
{
	struct rbk_wire_lease_given reply = {
		.reply = {.type = type, .cookie = cookie},
		.given_bytes = given_bytes,
		.granted_bytes = lease_granted(lease),
	};

	session_reply(session, &reply.reply, sizeof(reply));
}

/* Give up to @want_bytes of the ungiven bytes. */
static void give_credit(struct session_lease *held, uint32_t cookie, uint64_t want_bytes)
{
	struct lease *lease = held->member.lease;
	uint64_t bytes = lease_ungiven(lease) < want_bytes ? lease_ungiven(lease) : want_bytes;

	if (lease_take(&held->member, bytes))
		assert(!"that is there");
	reply_given(held->session, RBK_WIRE_LEASE_CREDIT, cookie, lease, bytes);
}

static void on_credit(struct lease_wait *wait, int res)
{
	struct lease_request *request = request_of(wait);

	if (res == 0)
		give_credit(request->held, request->cookie, request->want_bytes);
	else if (wait->least_bytes == 0)
		give_credit(request->held, request->cookie, 0);
	else
		refuse(request, wait->lease, wait->least_bytes, res);
	request_free(request);
}

void session_lease_credit(struct session *session, const struct rbk_wire_lease_credit *credit)
{
	struct session_lease *held = find_held(session, &credit->request, credit->lease);
	const struct lease_use use = {
		.used_bytes = credit->used_bytes,
		.extra_bytes = credit->extra_bytes,
		.n_objects = credit->n_objects,
		.n_refused = credit->n_refused,
		.peak_bytes = credit->peak_bytes,
	};
	uint32_t cookie = credit->request.cookie;
	struct lease_request *request;
	struct lease *lease;

	if (!held)
		return;
	lease = held->member.lease;
	if (credit->return_bytes > lease_own_credit(&held->member)) {
		session_reply_result(session, RBK_WIRE_LEASE_CREDIT, cookie, -EINVAL,
				     "this member returns %llu bytes of credit, but has only %llu",
				     ull(credit->return_bytes),
				     ull(lease_own_credit(&held->member)));
		return;
	}
	lease_report(&held->member, &use);
	if (credit->return_bytes > 0) {
		if (lease_give(&held->member, credit->return_bytes))
			assert(!"it has that");
		reply_given(session, RBK_WIRE_LEASE_CREDIT, cookie, lease, 0);
		residency_leases_changed(residency_of(session), lease->device);
		return;
	}
	/* A request of 0 bytes can always be answered. */
	if (credit->want_bytes == 0 ||
	    (lease->n_waits == 0 && lease_ungiven(lease) >= credit->want_bytes)) {
		give_credit(held, cookie, credit->want_bytes);
		return;
	}
	request = request_new(held, &credit->request);
	if (!request)
		return;
	request->want_bytes = credit->want_bytes;
	/* Bytes above the limit could not be released by other members. */
	if (credit->least_bytes > lease->limit_bytes) {
		refuse_at_once(request, lease, credit->least_bytes);
		return;
	}
	ask(request, lease, credit->least_bytes,
	    credit->want_bytes < lease->limit_bytes ? credit->want_bytes : lease->limit_bytes,
	    credit->wait_ms, on_credit);
}

/* ---- LEASE_OBJECT ---- */

static void add_object(struct session_lease *held, const struct rbk_wire_lease_object *object)
{
	struct session *session = held->session;
	struct lease *lease = held->member.lease;
	uint32_t cookie = object->request.cookie;
	char text[ACCOUNT_TEXT_BYTES];
	uint64_t charged;
	int r;

	r = lease_object_add(&held->member, object->dev, object->ino, object->bytes,
			     object->from_credit_bytes, &charged);
	if (r == 0)
		reply_given(session, RBK_WIRE_LEASE_OBJECT, cookie, lease, charged);
	else if (r == LEASE_E_EXISTS)
		session_reply_result(session, RBK_WIRE_LEASE_OBJECT, cookie, -EALREADY,
				     "this member has already reported this object");
	else if (r == LEASE_E_HOST_QUOTA)
		session_reply_result(session, RBK_WIRE_LEASE_OBJECT, cookie, -EDQUOT, "%s",
				     account_explain(session->account, text));
	else
		session_reply_result(session, RBK_WIRE_LEASE_OBJECT, cookie, -ENOMEM,
				     "tenant %s: lease %u has no room for an object of %s",
				     tenant_name(lease->tenant), lease->number,
				     SIZE_ROUNDED(object->bytes));
	if (r == 0)
		residency_leases_changed(residency_of(session), lease->device);
}

static void on_object(struct lease_wait *wait, int res)
{
	struct lease_request *request = request_of(wait);

	if (res == 0)
		add_object(request->held, &request->object);
	else
		refuse(request, wait->lease, request->object.bytes, res);
	request_free(request);
}

static void drop_object(struct session_lease *held, const struct rbk_wire_lease_object *object)
{
	struct session *session = held->session;
	struct lease *lease = held->member.lease;

	if (lease_object_drop(&held->member, object->dev, object->ino)) {
		reply_error(session, &object->request, -ENOENT,
			    "this member has not reported this object");
		return;
	}
	reply_given(session, RBK_WIRE_LEASE_OBJECT, object->request.cookie, lease, 0);
	residency_leases_changed(residency_of(session), lease->device);
}

void session_lease_object(struct session *session, const struct rbk_wire_lease_object *object)
{
	struct session_lease *held = find_held(session, &object->request, object->lease);
	struct lease_request *request;
	struct lease *lease;
	uint64_t cost;

	if (!held)
		return;
	if (object->action == RBK_WIRE_OBJECT_DROP) {
		drop_object(held, object);
		return;
	}
	lease = held->member.lease;
	if (object->bytes == 0 || object->from_credit_bytes > lease_own_credit(&held->member)) {
		session_reply_result(session, RBK_WIRE_LEASE_OBJECT, object->request.cookie,
				     -EINVAL,
				     "an object of %llu bytes cannot be paid with %llu of the "
				     "member's %llu bytes of credit",
				     ull(object->bytes), ull(object->from_credit_bytes),
				     ull(lease_own_credit(&held->member)));
		return;
	}
	if (held->member.n_holdings >= LEASE_MAX_HOLDINGS) {
		session_reply_result(session, RBK_WIRE_LEASE_OBJECT, object->request.cookie,
				     -ENOSPC,
				     "this member already has %u objects, which is the limit",
				     (unsigned int)LEASE_MAX_HOLDINGS);
		return;
	}
	cost = lease_object_cost(&held->member, object->dev, object->ino, object->bytes,
				 object->from_credit_bytes);
	if (cost <= lease_ungiven(lease)) {
		add_object(held, object);
		return;
	}
	request = request_new(held, &object->request);
	if (!request)
		return;
	request->object = *object;
	if (cost > lease->limit_bytes) {
		refuse_at_once(request, lease, object->bytes);
		return;
	}
	ask(request, lease, cost, cost, 0, on_object);
}
_Static_assert((int)LEASE_MAX_HOLDINGS == (int)RBK_WIRE_LEASE_MAX_OBJECTS, "the same number");

/* ---- LEASE_RESIZE ---- */

struct lease *session_own_lease(struct session *session, const struct rbk_wire_request *request,
				uint32_t number, const char *what)
{
	struct lease *lease = lease_find(residency_leases(residency_of(session)), number,
					 session->tenant, session->uid);
	const struct lease_page *page;

	if (!session->tenant && !session_may_change(session, request->type, request->cookie))
		return NULL;
	if (!lease || lease->n_members == 0) {
		session_reply_result(session, request->type, request->cookie, -ENOENT,
				     "there is no lease %u", number);
		return NULL;
	}
	page = lease->owner;
	if (!session->tenant || page->opener == session->number)
		return lease;
	session_reply_result(session, request->type, request->cookie, -EPERM,
			     "only the session that opened a lease, or an administrator, can %s "
			     "it",
			     what);
	return NULL;
}

void session_lease_resize(struct session *session, const struct rbk_wire_lease_resize *resize)
{
	struct residency *residency = residency_of(session);
	struct lease *lease = session_own_lease(session, &resize->request, resize->lease, "resize");

	if (!lease)
		return;
	if (resize->wish_bytes == 0 || resize->wish_bytes > lease->max_bytes) {
		session_reply_result(session, resize->request.type, resize->request.cookie, -EINVAL,
				     "lease %u can have 1 byte to %s, its maximum, not %s",
				     lease->number,
				     SIZE_BESIDE(lease->max_bytes, resize->wish_bytes),
				     SIZE_BESIDE(resize->wish_bytes, lease->max_bytes));
		return;
	}
	lease_resize(lease, resize->wish_bytes);
	residency_lease_grow(residency, lease);
	if (!session->tenant)
		log_info_of(SESSION_ABOUT(session), LOG_LEASE_RESIZED,
			    "lease %u of \"%s\", tenant %s: its wish is now %llu bytes, and it has "
			    "%llu, as uid %u (pid %d) asked",
			    lease->number, lease->name, tenant_name(lease->tenant),
			    ull(lease->wish_bytes), ull(lease_granted(lease)),
			    (unsigned int)session->uid, (int)session->pid);
	reply_given(session, RBK_WIRE_LEASE_RESIZE, resize->request.cookie, lease, 0);
	residency_leases_changed(residency, lease->device);
}

/* ---- LEASE_CGROUP ---- */

static void reply_region(struct session *session, const struct rbk_wire_request *request,
			 uint8_t device)
{
	const struct leases *leases = residency_leases(residency_of(session));
	struct rbk_wire_lease_region reply = {
		.reply = {.type = request->type, .cookie = request->cookie},
	};

	memcpy(reply.region, leases->dmem_memory[device], sizeof(reply.region));
	session_reply(session, &reply.reply, sizeof(reply));
}

void session_lease_cgroup(struct session *session, const struct rbk_wire_lease_cgroup *cgroup,
			  int *fd)
{
	const struct rbk_wire_request *request = &cgroup->request;
	struct session_lease *held = find_held(session, request, cgroup->lease);
	char text[ACCOUNT_TEXT_BYTES];
	struct cgroup_about about;
	int r;

	if (!held)
		return;
	if (!cgroup_of_fd(*fd, &about)) {
		reply_error(session, request, -ENOTDIR,
			    "this descriptor is not a directory of a cgroup v2 hierarchy that the "
			    "broker sees");
		return;
	}
	/* Other users' processes would count as the lease's. */
	if (about.owner != session->uid) {
		session_reply_result(session, request->type, request->cookie, -EPERM,
				     "this cgroup belongs to uid %u, and the lease to uid %u",
				     (unsigned int)about.owner, (unsigned int)session->uid);
		return;
	}
	r = lease_set_cgroup(held->member.lease, fd, about.id);
	if (r == LEASE_E_EXISTS)
		reply_error(session, request, -EALREADY, "this lease already has another cgroup");
	else if (r == LEASE_E_TAKEN)
		reply_error(session, request, -EBUSY,
			    "another lease of this device already has this cgroup");
	else if (r)
		reply_error(session, request, -EDQUOT, account_explain(session->account, text));
	else
		reply_region(session, request, held->device);
}
_Static_assert((int)RBK_WIRE_NAME_BYTES == (int)DMEM_REGION_BYTES, "names fit");

/* ---- The end ---- */

void session_leases_discard(struct session *session)
{
	session->lease_page = lease_page_free(session->lease_page);
	while (!list_is_empty(&session->lease_waits)) {
		struct lease_request *request =
			container_of(session->lease_waits.next, struct lease_request, link);
		struct lease *lease = request->wait.lease;

		residency_lease_withdraw(residency_of(session), &request->wait);
		request_free(request);
		if (lease->n_members == 0)
			lease_discard(session, lease);
	}
	while (!list_is_empty(&session->leases))
		held_leave(container_of(session->leases.next, struct session_lease, link));
}
