/* SPDX-License-Identifier: MIT */
/*
 * Statistics for sessions: the tenant for which a session counts, and the figures that it may see
 *
 * A tenant is counted from its first session, or from server_know_tenants(), until the policy no
 * longer names it. While it has sessions it has a page. The page is charged to the tenant's
 * account, like all objects of its clients, and freed with the last session. A page is made when a
 * client that supports pages sends HELLO, so that the charge does not depend on what its sessions
 * do later. A tenant without room for a page is tried again with each plan and each request.
 *
 * The root page belongs to the broker. It exists while an administrator watches it, or while the
 * broker does on behalf of another reader (server_watch_root()). An administrator's session belongs
 * to no tenant. It has no figures of its own and may request those of all tenants. A tenant must
 * not learn what other tenants do, how much and when: RBK_WIRE_STATS reports to each tenant its own
 * figures, and only administrators get those of all.
 *
 * A session that receives a page becomes a watcher. While a watcher exists, derived figures are
 * computed. A watcher that continues to read after its session has ended sees constant figures.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "lease/lease.h"
#include "loop/loop.h"
#include "memory/residency.h"
#include "session/server-private.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/number.h"
#include "util/size.h"

enum {
	/* A tenant's page takes at most this fraction of its limit of host memory. */
	PAGE_PART_OF_LIMIT = 8,
	/* A tenant with more sessions gets sums up to sum_age_ns old. */
	SUM_SESSIONS = 16,
	/* Plans and records that one job resets. */
	RESET_BATCH = 16,
};

/* Timeout of an administrator's wait for a page that is being made. */
static const uint64_t page_patience_ns = 500000000;

/* Computing sums visits each session; this bounds how often. */
static const uint64_t sum_age_ns = 100000000;

/* A tenant's page, which a closers.h thread makes and finally unmaps. */
struct tenant_page {
	struct closers_job job;
	struct server *server;
	struct stats_user *user; /* NULL: the last session has ended */
	struct charge charges[4];
	struct hold *hold;
	struct stats_page page;   /* until it is mapped for the tenant */
	struct list_node waiters; /* sessions with a request that waits for the page */
	int result;
	bool is_made;
};

/* A tenant with sessions. */
struct stats_user {
	struct list_node link; /* in server->stats_users */
	struct stats_tenant *stats;
	uint32_t n_sessions;
	struct tenant_page *page; /* NULL: neither made nor being made */
	/* last sums of session_describe(), and their time in ns; 0: none yet */
	struct rbk_stats_broker sums;
	uint64_t summed_at_ns;
};

static uint64_t now_ns(void)
{
	return clock_ticks_to_ns(clock_ticks());
}

int server_stats_init(struct server *server)
{
	for (unsigned int i = 0; i < SERVER_STATS_USERS; i++)
		list_init(&server->stats_users[i]);
	return stats_new(server->options.n_executors, now_ns(), &server->pages);
}

static void uncharge(struct charge charges[4])
{
	for (unsigned int i = 0; i < 4; i++)
		charge_deinit(&charges[i]);
}

void server_stats_deinit(struct server *server)
{
	server->pages = stats_free(server->pages);
	uncharge(server->root_charges);
}

struct stats *server_stats_pages(struct server *server)
{
	return server->pages;
}

void server_stats_leased_time(struct server *server, const struct tenant *tenant, uint8_t device,
			      uint64_t ns)
{
	struct stats_tenant *shown = stats_tenant_find(server->pages, tenant->number);

	if (shown)
		stats_leased_time(shown, device, ns);
}

void server_stats_slice(struct server *server, const struct tenant *tenant,
			const struct rbk_stats_slice *slice)
{
	struct stats_tenant *shown = stats_tenant_find(server->pages, tenant->number);

	if (shown)
		stats_slice_ended(shown, slice);
}

void server_forget_tenants(struct server *server)
{
	struct stats_tenant *tenant = stats_first_tenant(server->pages), *next;

	for (; tenant; tenant = next) {
		next = stats_next_tenant(server->pages, tenant);
		if (!tenants_get(server->options.tenants, tenant->own.number))
			stats_tenant_free(tenant);
	}
}

/*
 * Count all tenants of the policy, whether connected or not: a tenant just added to the policy must
 * be visible, so that it can be changed and drained. If they are more than a new root page shows,
 * each is counted from its first session on.
 */
void server_know_tenants(struct server *server)
{
	enum { MAX_KNOWN = 256 };
	const struct tenants *tenants = server->options.tenants;
	unsigned int n = 0;

	for (struct tenant *tenant = tenants_first(tenants); tenant;
	     tenant = tenants_next(tenants, tenant))
		n++;
	if (n > MAX_KNOWN)
		return;
	for (struct tenant *tenant = tenants_first(tenants); tenant;
	     tenant = tenants_next(tenants, tenant)) {
		struct stats_tenant *shown = stats_tenant_find(server->pages, tenant->number);

		/* Without memory, the tenant's first session tries again. */
		if (!shown &&
		    stats_tenant_new(server->pages, tenant->number, tenant_name(tenant), &shown))
			return;
	}
}

/* --- Sessions --- */

static struct stats_user *find_user(struct server *server, uint32_t number)
{
	list_for_each (node, &server->stats_users[number % SERVER_STATS_USERS]) {
		struct stats_user *user = container_of(node, struct stats_user, link);

		if (user->stats->own.number == number)
			return user;
	}
	return NULL;
}

int session_stats_join(struct session *session)
{
	struct server *server = session->server;
	struct stats_user *user;
	uint32_t number;
	int r;

	session->began_ns = now_ns();
	if (!session->tenant) {
		stats_shown_init(&session->shown, STATS_SESSIONS, server->pages, NULL, session);
		return 0;
	}
	number = session->tenant->number;
	user = find_user(server, number);
	if (user)
		goto found;
	user = calloc(1, sizeof(*user));
	if (!user)
		return error_origin(-ENOMEM);
	user->stats = stats_tenant_find(server->pages, number);
	if (!user->stats) {
		server_forget_tenants(server);
		r = stats_tenant_new(server->pages, number, tenant_name(session->tenant),
				     &user->stats);
		if (r) {
			free(user);
			return error_fold(r);
		}
	}
	list_append(&server->stats_users[number % SERVER_STATS_USERS], &user->link);
found:
	user->n_sessions++;
	session->stats_user = user;
	session->tenant_stats = user->stats;
	stats_shown_init(&session->shown, STATS_SESSIONS, server->pages, user->stats, session);
	return 0;
}

static void end_watching_root(struct server *server)
{
	if (--server->n_root_watchers > 0)
		return;
	stats_root_unmap(server->pages, now_ns());
	uncharge(server->root_charges);
}

static void end_watching(struct server *server)
{
	const struct server_publisher *publisher = &server->options.publisher;

	if (--server->n_watchers == 0 && publisher->set_watched)
		publisher->set_watched(publisher->context, false);
}

static void stop_watching(struct session *session)
{
	if (session->watches_root)
		end_watching_root(session->server);
	if (session->watches_stats)
		end_watching(session->server);
	session->watches_stats = session->watches_root = false;
}

static uint64_t n_completed(const struct session *session)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < RBK_REASON_COUNT; i++)
		n += session->stats.reasons[i];
	return n;
}

static void page_unmake_run(struct closers_job *job)
{
	stats_page_free(&container_of(job, struct tenant_page, job)->page);
}

static void page_unmake_done(struct closers_job *job)
{
	struct tenant_page *page = container_of(job, struct tenant_page, job);

	uncharge(page->charges);
	free(page);
}

/* Unmap a page. Its memory stays charged until no client has it any more. */
static void page_leave(struct tenant_page *page)
{
	struct account *account = page->charges[1].account;

	if (page->user)
		page->user->page = NULL;
	page->user = NULL;
	if (page->hold)
		hold_leave_files(steal_ptr(page->hold),
				 (struct charge *[]){&page->charges[0], &page->charges[3], NULL});
	page->job = (struct closers_job){
		.run = page_unmake_run, .done = page_unmake_done, .closes = true};
	closers_submit(page->server->closers, account, &page->job);
}

static void stop_waiting(struct session *session)
{
	list_remove(&session->page_wait);
	session->page_timer = loop_timer_free(session->page_timer);
}

static void page_make_run(struct closers_job *job)
{
	struct tenant_page *page = container_of(job, struct tenant_page, job);

	page->result = stats_tenant_page_new(page->server->pages, &page->page);
	if (page->result == 0)
		page->result = hold_watch(page->hold, page->page.fd);
}

static void page_make_done(struct closers_job *job)
{
	struct tenant_page *page = container_of(job, struct tenant_page, job);

	page->is_made = true;
	list_for_each_safe (node, &page->waiters) {
		struct session *session = container_of(node, struct session, page_wait);

		stop_waiting(session);
		session->page_result = page->result;
		session_resume(session);
	}
	if (!page->user || page->result) {
		page_leave(page);
		return;
	}
	stats_tenant_map(page->user->stats, &page->page, now_ns());
	page->page = (struct stats_page){.fd = -1};
}

void session_stats_leave(struct session *session)
{
	struct stats_user *user = session->stats_user;

	stop_waiting(session);
	stop_watching(session);
	stats_shown_deinit(&session->shown);
	if (!user)
		return;
	session->tenant->past.n_completed += n_completed(session);
	session->tenant->past.copied_bytes += session->stats.copied_bytes;
	session->tenant->past.transferred_bytes += session->stats.transferred_bytes;
	session->stats_user = NULL;
	session->tenant_stats = NULL;
	if (--user->n_sessions > 0)
		return;
	if (user->page && user->page->is_made) {
		user->page->page = stats_tenant_unmap(user->stats, now_ns());
		page_leave(user->page);
	} else if (user->page) {
		/* page_make_done() unmaps it. */
		closers_let_close(&user->page->job);
		user->page->user = NULL;
	}
	list_remove(&user->link);
	free(user);
}

/* Charge for a page of @bytes. Return: 0; ACCOUNT_E_QUOTA. */
static int charge_page(struct account *account, struct charge charges[4], uint64_t bytes)
{
	if (account_charge(account, &charges[0], ACCOUNT_HOST_BYTES,
			   bytes + HOLD_FILE_BYTES + HOLD_BYTES) ||
	    account_charge(account, &charges[1], ACCOUNT_FDS, 1) ||
	    account_charge(account, &charges[2], ACCOUNT_MAPPINGS, 1) ||
	    account_charge(account, &charges[3], ACCOUNT_WATCHES, 1)) {
		uncharge(charges);
		return ACCOUNT_E_QUOTA;
	}
	return 0;
}

int session_stats_want(struct session *session)
{
	struct account *account = session->tenant->account;
	struct stats_user *user = session->stats_user;
	uint64_t bytes = stats_tenant_page_bytes(session->server->pages);
	struct tenant_page *page;
	int r;

	if (user->page)
		return 0;
	if (bytes > account_limit(account, ACCOUNT_HOST_BYTES) / PAGE_PART_OF_LIMIT)
		return ACCOUNT_E_QUOTA;
	page = calloc(1, sizeof(*page));
	if (!page)
		return error_origin(-ENOMEM);
	r = charge_page(account, page->charges, bytes);
	if (r && holds_look(session->server, account))
		r = charge_page(account, page->charges, bytes);
	if (r == 0)
		r = hold_new(session->server, 1, &page->hold);
	if (r) {
		uncharge(page->charges);
		free(page);
		return r;
	}
	page->server = session->server;
	page->page.fd = -1;
	list_init(&page->waiters);
	page->user = user;
	user->page = page;
	page->job = (struct closers_job){.run = page_make_run, .done = page_make_done};
	closers_submit(session->server->closers, account, &page->job);
	return 0;
}

void session_stats_plan_added(struct session_plan *plan)
{
	struct session *session = plan->session;
	const struct stats_plan_about about = {
		.name = plan->plan->name,
		.plan_id = plan->id,
		.session = session->number,
		.fingerprint = plan->plan->fingerprint,
		.owner = plan,
	};

	/* Without a page the plan still runs. */
	session_stats_want(session);
	stats_plan_init(&plan->stats, session->tenant_stats, &about, now_ns());
}

void session_stats_plan_leaving(struct session_plan *plan)
{
	const struct server_publisher *publisher = &plan->session->server->options.publisher;

	if (plan->stats.tenant && publisher->plan_leaving)
		publisher->plan_leaving(publisher->context, plan);
	stats_plan_deinit(&plan->stats);
}

/* --- Requests --- */

/*
 * Find the tenant of a request about figures, and refuse the request if the session has no right to
 * them.
 * Return: 0; SESSION_E_REFUSED. *ret is NULL for RBK_WIRE_STATS_ALL.
 */
static int find_tenant(struct session *session, const struct rbk_wire_stats_of *of,
		       struct stats_tenant **ret)
{
	bool resets = of->request.type == RBK_WIRE_STATS_RESET;

	*ret = session->tenant_stats;
	if (session->tenant &&
	    (of->whose == RBK_WIRE_STATS_OWN ||
	     (of->whose == RBK_WIRE_STATS_TENANT && of->tenant == session->tenant->number)))
		return 0;
	if (session->tenant) {
		session_reply_result(session, of->request.type, of->request.cookie, -EPERM,
				     "the clients' socket shows statistics of tenant %s only: use "
				     "the administrators' socket for others",
				     tenant_name(session->tenant));
		return SESSION_E_REFUSED;
	}
	if (of->whose == RBK_WIRE_STATS_OWN) {
		session_reply_result(session, of->request.type, of->request.cookie, -EPERM,
				     "an administrator's session has no statistics of its own");
		return SESSION_E_REFUSED;
	}
	if (resets && !session_may_change(session, of->request.type, of->request.cookie))
		return SESSION_E_REFUSED;
	if (of->whose == RBK_WIRE_STATS_ALL)
		return 0;
	*ret = stats_tenant_find(session->server->pages, of->tenant);
	if (*ret)
		return 0;
	session_reply_result(session, of->request.type, of->request.cookie, -ENOENT,
			     "there is no tenant %u", of->tenant);
	return SESSION_E_REFUSED;
}

static void begin_watching(struct server *server)
{
	const struct server_publisher *publisher = &server->options.publisher;

	if (server->n_watchers++ == 0 && publisher->set_watched)
		publisher->set_watched(publisher->context, true);
}

static void update(struct server *server)
{
	const struct server_publisher *publisher = &server->options.publisher;

	stats_flush(server->pages);
	if (publisher->update)
		publisher->update(publisher->context);
}

static void reply_page(struct session *session, const struct rbk_wire_stats_of *of,
		       const struct stats_page *page, uint32_t tenant)
{
	struct rbk_wire_stats_page reply = {
		.reply = {.type = RBK_WIRE_STATS_PAGE, .cookie = of->request.cookie},
		.bytes = page->header->page_bytes,
		.kind = page->header->kind,
		.tenant = tenant,
	};

	if (!session->watches_stats) {
		session->watches_stats = true;
		begin_watching(session->server);
	}
	update(session->server);
	(void)session_reply_fd(session, &reply.reply, sizeof(reply), page->fd, true);
}

/* Create the root page unless it exists. Return: 0; ACCOUNT_E_QUOTA; a negative errno. */
static int open_root(struct server *server)
{
	struct account *account = tenants_broker_account(server->options.tenants);
	int r;

	if (stats_root(server->pages)->header)
		return 0;
	r = charge_page(account, server->root_charges, stats_root_page_bytes(server->pages));
	if (r == 0)
		r = stats_root_map(server->pages, now_ns());
	if (r)
		uncharge(server->root_charges);
	return r;
}

static void reply_root(struct session *session, const struct rbk_wire_stats_of *of)
{
	struct server *server = session->server;
	char text[ACCOUNT_TEXT_BYTES];
	int r = open_root(server);

	if (r) {
		session_reply_result(
			session, RBK_WIRE_STATS_PAGE, of->request.cookie, r < 0 ? r : -EDQUOT,
			"no memory for a statistics page: %s",
			r < 0 ? strerror(-r)
			      : account_explain(tenants_broker_account(server->options.tenants),
						text));
		return;
	}
	if (!session->watches_root) {
		session->watches_root = true;
		server->n_root_watchers++;
	}
	reply_page(session, of, stats_root(server->pages), 0);
}

/* The request has waited for the page, and does not wait again. */
enum { PAGE_E_AWAITED = ACCOUNT_E_QUOTA + 1 };

static int answer_page(struct session *session, const struct rbk_wire_stats_of *of, int r);

/*
 * Continue a request that waited for a page: the page is made, cannot be made or is no longer
 * needed, or the timeout has expired.
 */
static void resume_page(struct session *session)
{
	const struct rbk_wire_stats_of of = session->waiting.stats_of;

	(void)answer_page(session, &of,
			  session->page_result ? session->page_result : PAGE_E_AWAITED);
}

static void on_impatient(void *data)
{
	struct session *session = data;

	stop_waiting(session);
	session->page_result = 0;
	session_resume(session);
}

/* Suspend the request until @page is made. Return: false if it cannot wait. */
static bool await_page(struct session *session, const struct rbk_wire_stats_of *of,
		       struct tenant_page *page)
{
	/* A tenant decides how long its thread is busy, but an administrator's wait is limited. */
	if (!session->tenant) {
		if (loop_timer_new(session->server->options.loop, on_impatient, session,
				   &session->page_timer))
			return false;
		loop_timer_arm(session->page_timer, page_patience_ns);
	}
	session->waiting.stats_of = *of;
	list_append(&page->waiters, &session->page_wait);
	session_suspend(session, resume_page);
	return true;
}

int session_stats_page(struct session *session, const struct rbk_wire_stats_of *of)
{
	return answer_page(session, of, 0);
}

/* @r: the result of making the tenant's page, 0 if that was not tried, or PAGE_E_AWAITED. */
static int answer_page(struct session *session, const struct rbk_wire_stats_of *of, int r)
{
	struct stats_tenant *tenant;
	struct stats_user *user;

	if (find_tenant(session, of, &tenant))
		return 0;
	if (!tenant) {
		reply_root(session, of);
		return 0;
	}
	if (r == 0 && tenant == session->tenant_stats)
		r = session_stats_want(session);
	user = find_user(session->server, tenant->own.number);
	if (r == 0 && user && user->page && !user->page->is_made &&
	    await_page(session, of, user->page))
		return 0;
	if (tenant->page.header) {
		reply_page(session, of, &tenant->page, tenant->own.number);
		return 0;
	}
	if (r < 0)
		session_reply_result(session, RBK_WIRE_STATS_PAGE, of->request.cookie, r,
				     "cannot make a statistics page: %s", strerror(-r));
	else if (r == ACCOUNT_E_QUOTA)
		session_reply_result(session, RBK_WIRE_STATS_PAGE, of->request.cookie, -EDQUOT,
				     "tenant %s has no room for a statistics page of %s, which may "
				     "use at most 1/%d of "
				     "its host memory",
				     tenant->own.name,
				     SIZE_ROUNDED(stats_tenant_page_bytes(session->server->pages)),
				     PAGE_PART_OF_LIMIT);
	else
		session_reply_result(session, RBK_WIRE_STATS_PAGE, of->request.cookie, -ENOENT,
				     "tenant %s has no statistics page: it has no session, it has "
				     "no room for the page, or the broker is still making it",
				     tenant->own.name);
	return 0;
}

int server_watch_root(struct server *server, struct rbk_stats_view *ret)
{
	const struct stats_page *page = stats_root(server->pages);
	int r = open_root(server);

	if (r)
		return r < 0 ? error_fold(r) : error_origin(-EDQUOT);
	server->n_root_watchers++;
	begin_watching(server);
	update(server);
	if (!rbk_stats_view(ret, page->header, page->header->page_bytes))
		assert(!"a page of our own");
	return 0;
}

void server_unwatch_root(struct server *server)
{
	end_watching_root(server);
	end_watching(server);
}

void server_rest_root(struct server *server, bool rests)
{
	if (rests) {
		end_watching(server);
		return;
	}
	begin_watching(server);
	update(server);
}

/* --- Resets --- */

/*
 * A tenant may have thousands of plans, and clients may request resets at any rate. Each job
 * therefore resets a few plans, and then a few records of the page, which include those of removed
 * plans.
 */
static void begin_tenant(struct session_reset *reset, struct stats_tenant *tenant)
{
	reset->tenant = tenant->own.number;
	reset->n_plans = tenant->n_plans;
	reset->next_record = 0;
}

/*
 * Return the tenant with the lowest number from @number on, or NULL. Tenants may be removed between
 * jobs.
 */
static struct stats_tenant *tenant_from(const struct stats *pages, uint64_t number)
{
	struct stats_tenant *tenant = stats_first_tenant(pages), *lowest = NULL;

	for (; tenant; tenant = stats_next_tenant(pages, tenant))
		if (tenant->own.number >= number &&
		    (!lowest || tenant->own.number < lowest->own.number))
			lowest = tenant;
	return lowest;
}

/* Reset one plan or record. Return: false if none of the tenant's is left. */
static bool reset_one(const struct server *server, struct session_reset *reset)
{
	const struct server_publisher *publisher = &server->options.publisher;
	struct stats_tenant *tenant = stats_tenant_find(server->pages, reset->tenant);
	struct stats_plan *plan;

	if (!tenant)
		return false;
	plan = reset->n_plans > 0 ? stats_tenant_reset_plan(tenant) : NULL;
	if (!plan) {
		if (stats_tenant_reset_record(tenant, reset->next_record++))
			return true;
		stats_tenant_reset(tenant, now_ns());
		return false;
	}
	reset->n_plans--;
	if (publisher->plan_reset)
		publisher->plan_reset(publisher->context, plan->owner);
	return true;
}

/* Reset a batch. Return: false if the reset is complete. */
static bool reset_some(struct server *server, struct session_reset *reset)
{
	struct stats_tenant *tenant;

	for (unsigned int i = 0; i < RESET_BATCH; i++)
		if (!reset_one(server, reset)) {
			tenant = reset->is_of_all
					 ? tenant_from(server->pages, (uint64_t)reset->tenant + 1)
					 : NULL;
			if (!tenant)
				return false;
			begin_tenant(reset, tenant);
			return true;
		}
	return true;
}

static void run_reset(struct turn_job *job)
{
	struct session_reset *reset = container_of(job, struct session_reset, job);
	struct session *session = container_of(reset, struct session, reset);
	struct server *server = session->server;

	if (reset_some(server, reset)) {
		session_queue(session, job);
		return;
	}
	if (reset->is_of_all) {
		stats_reset(server->pages, now_ns());
		if (server->options.publisher.reset)
			server->options.publisher.reset(server->options.publisher.context);
	}
	reset->is_begun = false;
	session_reply_result(session, RBK_WIRE_STATS_RESET, reset->cookie, 0, NULL);
	if (!session->is_ending)
		session_queue(session, &session->read_job);
}

void session_reset_init(struct session *session)
{
	turn_job_init(&session->reset.job, RBK_TURN_MESSAGES, run_reset);
}

int session_stats_reset(struct session *session, const struct rbk_wire_stats_of *of)
{
	struct session_reset *reset = &session->reset;
	struct stats_tenant *tenant;

	if (find_tenant(session, of, &tenant))
		return 0;
	reset->is_begun = true;
	reset->is_of_all = !tenant;
	reset->cookie = of->request.cookie;
	reset->tenant = 0;
	reset->n_plans = reset->next_record = 0;
	if (!tenant)
		tenant = tenant_from(session->server->pages, 0);
	if (tenant)
		begin_tenant(reset, tenant);
	run_reset(&reset->job);
	return 0;
}

int session_control(struct session *session, const struct rbk_wire_control *control)
{
	const struct server_publisher *publisher = &session->server->options.publisher;
	struct rbk_wire_setting reply = {
		.reply = {.type = RBK_WIRE_CONTROL, .cookie = control->request.cookie},
	};
	uint32_t cookie = control->request.cookie;
	int value = -1;

	if (control->setting == RBK_WIRE_LOG_LEVEL) {
		session_log_level(session, control);
		return 0;
	}
	if (control->setting != RBK_WIRE_FORCE_CPU) {
		session_reply_result(session, RBK_WIRE_CONTROL, cookie, -ENOENT,
				     "there is no setting %u", control->setting);
		return 0;
	}
	if (!publisher->force_cpu) {
		session_reply_result(session, RBK_WIRE_CONTROL, cookie, -EOPNOTSUPP,
				     "this broker does not support force-cpu");
		return 0;
	}
	if (control->flags & RBK_WIRE_CONTROL_SET) {
		if (!session_may_change(session, RBK_WIRE_CONTROL, cookie))
			return 0;
		if (control->value > 1) {
			session_reply_result(session, RBK_WIRE_CONTROL, cookie, -EINVAL,
					     "force-cpu is 0 or 1, not %llu", ull(control->value));
			return 0;
		}
		value = (int)control->value;
		log_info_of(SESSION_ABOUT(session), LOG_FORCE_CPU,
			    "force-cpu is %s, as uid %u (pid %d) asked", value ? "on" : "off",
			    (unsigned int)session->uid, (int)session->pid);
	}
	reply.value = (uint64_t)publisher->force_cpu(publisher->context, value);
	session_reply(session, &reply.reply, sizeof(reply));
	return 0;
}

/* --- The whole broker --- */

uint64_t server_device_bytes(const struct server *server)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < server->options.n_executors; i++)
		bytes += tenants_device_bytes(server->options.tenants, i);
	return bytes;
}

static void describe_outside(const struct server *server, struct rbk_stats_broker *ret)
{
	const struct leases *leases = residency_leases(server->options.residency);
	const struct beside_users *users = &leases->beside;
	uint32_t n = 0;

	_Static_assert(BESIDE_MAX_USERS == RBK_STATS_MAX_OUTSIDE, "each has its place");
	for (uint32_t i = 0; i < users->n; i++) {
		const struct beside_user *user = &users->users[i];

		/* The list changes only while there are leases. */
		if (leases->timeslices.devices[user->device].n_leases == 0)
			continue;
		ret->outside[n] = (struct rbk_stats_outside){
			.pid = (uint32_t)user->pid,
			.uid = user->uid,
			.device = user->device,
			.busy_percent = (uint32_t)user->busy_percent,
		};
		memcpy(ret->outside[n++].comm, user->comm, sizeof(user->comm));
	}
}

void server_describe(const struct server *server, struct rbk_stats_broker *ret)
{
	const struct server_hooks *hooks = &server->options.hooks;
	struct tenants *tenants = server->options.tenants;

	ret->n_sessions = server->n_sessions;
	ret->n_rings = server->n_rings;
	ret->n_arenas = server->n_arenas;
	ret->n_plans = server->n_plans;
	ret->n_in_flight = hooks->tasks_in_flight(hooks->context);
	ret->host_bytes = account_book_total(tenants_book(tenants), ACCOUNT_HOST_BYTES);
	ret->host_max = account_book_max(tenants_book(tenants), ACCOUNT_HOST_BYTES);
	ret->device_bytes = server_device_bytes(server);
	ret->n_completed = server->stats.tasks_completed;
	ret->copied_bytes = server->stats.copied_bytes;
	ret->transferred_bytes = server->stats.transferred_bytes;
	ret->n_ended_hostile = server->stats.sessions_ended_hostile;
	describe_outside(server, ret);
}

static void add_session(const struct session *session, struct rbk_stats_broker *sums)
{
	sums->n_completed += n_completed(session);
	sums->copied_bytes += session->stats.copied_bytes;
	sums->transferred_bytes += session->stats.transferred_bytes;
	for (uint32_t i = 0; i < session->server->options.limits.max_rings; i++)
		sums->n_in_flight += session->rings[i] ? session->rings[i]->n_in_flight : 0;
}

static void sum_up(const struct tenant *tenant, const struct stats_user *user,
		   struct rbk_stats_broker *sums)
{
	*sums = (struct rbk_stats_broker){
		.n_completed = tenant->past.n_completed,
		.copied_bytes = tenant->past.copied_bytes,
		.transferred_bytes = tenant->past.transferred_bytes,
	};
	list_for_each (node, &user->stats->shown[STATS_SESSIONS].list) {
		const struct stats_shown *shown = container_of(node, struct stats_shown, of_tenant);

		add_session(shown->owner, sums);
	}
}

void session_describe(const struct session *session, struct rbk_stats_broker *ret)
{
	const struct server *server = session->server;
	struct stats_user *user = session->stats_user;
	const struct account *account;
	uint64_t time_ns;

	if (!session->tenant) {
		server_describe(server, ret);
		return;
	}
	time_ns = now_ns();
	if (user->n_sessions <= SUM_SESSIONS || user->summed_at_ns == 0 ||
	    time_ns - user->summed_at_ns >= sum_age_ns) {
		sum_up(session->tenant, user, &user->sums);
		user->summed_at_ns = time_ns;
	}
	account = session->tenant->account;
	*ret = user->sums;
	ret->n_sessions = user->n_sessions;
	ret->n_rings = account_used(account, ACCOUNT_RINGS);
	ret->n_arenas = account_used(account, ACCOUNT_ARENAS);
	ret->n_plans = account_used(account, ACCOUNT_PLANS);
	ret->host_bytes = account_used(account, ACCOUNT_HOST_BYTES);
	for (uint32_t i = 0; i < server->options.n_executors; i++)
		ret->device_bytes += account_used(account, account_vram(i)) +
				     account_used(account, account_gtt(i));
	ret->n_ended_hostile = session->tenant->past.n_ended_hostile;
}
