/* SPDX-License-Identifier: MIT */
/*
 * Finding and mapping statistics pages
 *
 * A tenant's page may be closed after it was listed and before it is requested. When all pages are
 * requested, a tenant without one is therefore no error.
 */
#include "monitor/pages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ringbroker/admin.h>

#include "shm/stats-figures.h"
#include "util/clock.h"
#include "util/number.h"
#include "util/plural.h"
#include "util/suggest.h"
#include "monitor/text.h"

/* Limit of a wait for a broker that was preempted in the middle of a change. */
static const int64_t patience_ns = 3000000000;

static int fail(struct rbk_error *error, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct rbk_error *error, int r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return r;
}

bool pages_number(const char *text, uint64_t max, uint64_t *ret)
{
	unsigned long long value;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end != '\0' || value > max)
		return false;
	*ret = value;
	return true;
}

/* --- Copies of records --- */

int64_t page_age_ns(const struct rbk_stats_header *page)
{
	/* Unsigned, so that any value in the page wraps around. */
	return (int64_t)(clock_now_ns() - rbk_stats_load(&page->updated_at_ns) -
			 (uint64_t)__atomic_load_n(&page->monotonic_offset_ns, __ATOMIC_RELAXED));
}

/* Return true if the page was updated recently, so that its broker will complete the change. */
static bool is_fresh(const struct rbk_stats_header *page)
{
	const int64_t age_ns = page_age_ns(page);

	return age_ns >= 0 && age_ns < patience_ns;
}

void page_copy(const struct rbk_stats_view *view, unsigned int section, uint32_t index, void *to,
	       size_t bytes)
{
	static const struct timespec nap = {.tv_nsec = 1000000};
	const bool is_there = index < rbk_stats_count(view, section);

	memset(to, 0, bytes);
	/* A record that its writer left half written is better than none. */
	while (is_there && !rbk_stats_copy_record(view, section, index, to, bytes) &&
	       is_fresh(view->page))
		nanosleep(&nap, NULL);
}

void page_copy_lease(const struct rbk_stats_view *view, uint32_t index, struct rbk_stats_lease *ret)
{
	page_copy(view, RBK_STATS_SECTION_LEASES, index, ret, sizeof(*ret));
	if (view->page->abi_minor < 20)
		ret->busy_ns = ret->busy_percent = RBK_STATS_ABSENT;
	if (view->page->abi_minor < 23)
		ret->n_submissions = ret->n_parts = ret->n_slices = ret->n_whole = ret->n_unsliced =
			RBK_STATS_ABSENT;
}

bool page_copy_plan(const struct rbk_stats_view *view, uint32_t slot, union plan_copy *ret)
{
	memset(ret, 0, sizeof(*ret));
	page_copy(view, RBK_STATS_SECTION_PLANS, slot, ret->words,
		  sizeof(ret->plan) + view->n_devices * sizeof(struct rbk_stats_plan_device));
	ret->plan.name[sizeof(ret->plan.name) - 1] = '\0';
	return ret->plan.state != RBK_STATS_PLAN_FREE;
}

uint32_t plan_fastest_gpu(const struct rbk_stats_plan *plan, uint32_t n_devices, bool is_now)
{
	double least_ns = 0;
	uint32_t fastest = 0;

	for (uint32_t i = RBK_DEVICE_GPU; i < n_devices; i++) {
		const struct rbk_stats_plan_device *device = &plan->devices[i];
		const double ns = is_now ? stats_now_ns(device) : device->estimate_ns;

		if (device->state == RBK_MEMORY_UNSUPPORTED || !(ns > 0) ||
		    (fastest && ns >= least_ns))
			continue;
		fastest = i;
		least_ns = ns;
	}
	return fastest;
}

_Static_assert(offsetof(struct tenant_head, name) == offsetof(struct rbk_stats_tenant, name),
	       "the same");

bool page_copy_tenant_head(const struct rbk_stats_view *view, uint32_t index,
			   struct tenant_head *ret)
{
	page_copy(view, RBK_STATS_SECTION_TENANTS, index, ret, sizeof(*ret));
	ret->name[sizeof(ret->name) - 1] = '\0';
	return ret->flags & RBK_STATS_TENANT_USED;
}

/* --- Waiting for listings --- */

/*
 * The broker writes PUBLISH_PIECES pieces of a page in one turn (control/publish.c), and the others
 * in later turns. A piece is a device, a tenant, a session or a lease.
 */
enum { FIRST_PIECES = 32 };
static const uint64_t listing_patience_ns = 12000000000;
static const uint64_t first_nap_ns = 1000000, longest_nap_ns = 300000000;

static uint64_t count_used(const struct rbk_stats_view *root, unsigned int section)
{
	const uint32_t n = rbk_stats_used(root, section);
	uint32_t head[2]; /* sequence, number */
	uint64_t n_used = 0;

	for (uint32_t i = 0; i < n; i++) {
		page_copy(root, section, i, head, sizeof(head));
		n_used += head[1] != 0;
	}
	return n_used;
}

/* Return the number of records that the page lists now. */
static uint64_t count_listed(const struct rbk_stats_view *root,
			     const struct rbk_stats_broker *broker, bool *ret_is_complete)
{
	const uint64_t n_sessions = count_used(root, RBK_STATS_SECTION_SESSIONS),
		       n_leases = count_used(root, RBK_STATS_SECTION_LEASES);
	uint64_t n_tenants = 0;

	if (broker->n_tenants > FIRST_PIECES)
		n_tenants = count_used(root, RBK_STATS_SECTION_TENANTS);
	/*
	 * The number of tenants that had a session is not published; wait until no more are added.
	 * A broker before statistics 1.22 does not tell the number of leases, and writes 0.
	 */
	*ret_is_complete = (broker->n_tenants <= FIRST_PIECES || n_tenants >= broker->n_tenants ||
			    (n_tenants > 0 && n_tenants < FIRST_PIECES)) &&
			   n_sessions >= broker->n_sessions && n_leases >= broker->n_leases;
	return n_tenants + n_sessions + n_leases;
}

void pages_await_listing(const struct rbk_stats_view *root)
{
	uint64_t n, n_before = 0, n_updates = rbk_stats_load(&root->page->n_updates);
	uint64_t waited_ns = 0, nap_ns = first_nap_ns;
	struct rbk_stats_broker broker;
	bool is_complete;

	while (waited_ns < listing_patience_ns) {
		page_copy(root, RBK_STATS_SECTION_BROKER, 0, &broker, sizeof(broker));
		if (root->n_devices + broker.n_tenants + broker.n_sessions + broker.n_leases <=
		    FIRST_PIECES)
			return;
		n = count_listed(root, &broker, &is_complete);
		if (is_complete)
			return;
		/* The broker has had time for two more updates. */
		if (n == n_before && rbk_stats_load(&root->page->n_updates) >= n_updates + 2)
			return;
		if (n != n_before)
			n_updates = rbk_stats_load(&root->page->n_updates);
		n_before = n;
		/* An idle broker takes its next turn at once; a busy one is not asked often. */
		nanosleep(&(const struct timespec){.tv_nsec = (long)nap_ns}, NULL);
		waited_ns += nap_ns;
		nap_ns = min_u64(2 * nap_ns, longest_nap_ns);
	}
}

/* --- Which tenants --- */

/* Return: 0 with *@ret_number set, or -ENOENT. */
static int find_in_root(const struct rbk_stats_view *root, const char *text, uint32_t *ret_number)
{
	struct tenant_head tenant;
	uint64_t number = 0;
	bool is_number = pages_number(text, UINT32_MAX, &number);

	for (uint32_t i = 0; i < rbk_stats_used(root, RBK_STATS_SECTION_TENANTS); i++) {
		if (!page_copy_tenant_head(root, i, &tenant))
			continue;
		if (strcmp(tenant.name, text) == 0 || (is_number && tenant.number == number)) {
			*ret_number = tenant.number;
			return 0;
		}
	}
	return -ENOENT;
}

bool pages_find_number(const struct pages *pages, const char *text, uint32_t *ret_number)
{
	return pages->root.page && find_in_root(&pages->root, text, ret_number) == 0;
}

/*
 * Report an unknown tenant, with a suggestion or a list of tenants.
 * Return: PAGES_E_NO_TENANT.
 */
static int refuse_tenant(const struct rbk_stats_view *root, const char *text,
			 struct rbk_error *error)
{
	/* number of names that fit into a readable line */
	enum { MAX_LISTED = 8 };
	uint32_t n = root->page ? rbk_stats_used(root, RBK_STATS_SECTION_TENANTS) : 0, n_names = 0;
	const char **names = calloc((size_t)n + 1, sizeof(*names)), *near;
	struct tenant_head *heads = calloc((size_t)n + 1, sizeof(*heads));
	char list[sizeof(error->text)] = "";
	size_t at = 0;

	for (uint32_t i = 0; names && heads && i < n; i++)
		if (page_copy_tenant_head(root, i, &heads[n_names])) {
			names[n_names] = heads[n_names].name;
			n_names++;
		}
	near = n_names ? suggest(text, names) : NULL;
	for (uint32_t i = 0; i < n_names && n_names <= MAX_LISTED && at < sizeof(list); i++)
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "",
				       text_name(names[i]));
	if (near)
		fail(error, 0, "there is no tenant %s; did you mean %s?", text, near);
	else if (list[0])
		fail(error, 0, "there is no tenant %s; there %s %s", text,
		     n_names == 1 ? "is" : "are", list);
	else
		fail(error, 0, "there is no tenant %s; see brokerctl tenants", text);
	free(names);
	free(heads);
	return PAGES_E_NO_TENANT;
}

static int find_tenant(struct rbk *rbk, const struct rbk_stats_view *root, const char *text,
		       unsigned int *ret_whose, uint32_t *ret_number, struct rbk_error *error)
{
	struct rbk_tenant own;
	int r;

	*ret_number = 0;
	/* An administrator's connection belongs to no tenant. */
	if (!(rbk_features(rbk) & RBK_FEAT_ADMIN)) {
		r = rbk_tenant(rbk, &own);
		if (r)
			return fail(error, r, "%s", strerror(-r));
		if (strcmp(own.name, text) == 0) {
			*ret_whose = RBK_STATS_OWN;
			return 0;
		}
		if (!root->page)
			return fail(error, -EPERM, "you may see the statistics of tenant %s only",
				    own.name);
	}
	*ret_whose = RBK_STATS_OF_TENANT;
	if (find_in_root(root, text, ret_number))
		return refuse_tenant(root, text, error);
	return 0;
}

/* Return: 0, also if not permitted, with view->page NULL; or a negative errno. */
static int map_root(struct rbk *rbk, struct rbk_stats_view *ret, struct rbk_error *error)
{
	int r = rbk_stats_map(rbk, RBK_STATS_ALL, 0, ret, error);

	if (r == 0)
		return 0;
	memset(ret, 0, sizeof(*ret));
	return r == -EPERM ? 0 : r;
}

int pages_find_tenant(struct rbk *rbk, const char *text, unsigned int *ret_whose,
		      uint32_t *ret_number, struct rbk_error *error)
{
	struct rbk_stats_view root;
	int r = map_root(rbk, &root, error);

	if (r)
		return r;
	r = find_tenant(rbk, &root, text, ret_whose, ret_number, error);
	rbk_stats_unmap(&root);
	return r;
}

/* --- Mapping --- */

int pages_connect(const char *socket_path, const char *name, uint64_t timeout_ns, struct rbk **ret,
		  struct rbk_error *error)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = socket_path,
		.name = name,
		.timeout_ns = timeout_ns,
		.flags = RBK_CONNECT_NO_REATTACH,
	};
	struct rbk *rbk;
	int r;

	r = rbk_connect(&options, &rbk, error);
	if (r)
		return r;
	if (!(rbk_features(rbk) & RBK_FEAT_STATS)) {
		rbk_disconnect(rbk);
		return fail(error, -EOPNOTSUPP, "this broker has no statistics pages");
	}
	*ret = rbk;
	return 0;
}

int pages_connect_best(const char *socket_path, const char *name, uint64_t timeout_ns,
		       struct rbk **ret, struct admin_attempt *ret_attempt, struct rbk_error *error)
{
	struct admin_attempt *attempt = ret_attempt;
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = attempt->path,
		.name = name,
		.timeout_ns = timeout_ns,
		.flags = RBK_CONNECT_NO_REATTACH,
	};

	*attempt = (struct admin_attempt){.r = 0};
	attempt->r = rbk_admin_socket_path(socket_path, attempt->path, sizeof(attempt->path));
	if (attempt->r == 0)
		attempt->r = rbk_admin_connect(&options, ret, &attempt->error);
	if (attempt->r == 0)
		return 0;
	return pages_connect(socket_path, name, timeout_ns, ret, error);
}

/*
 * Explain why the tenant of a number has no page. A tenant with sessions has none if it has no room
 * for one: then the broker's sentence stays.
 */
static void explain_no_page(const struct rbk_stats_view *root, uint32_t number,
			    struct rbk_error *error)
{
	struct rbk_stats_tenant tenant;
	const char *name;

	for (uint32_t i = 0; root->page && i < rbk_stats_used(root, RBK_STATS_SECTION_TENANTS);
	     i++) {
		page_copy(root, RBK_STATS_SECTION_TENANTS, i, &tenant, sizeof(tenant));
		if (!(tenant.flags & RBK_STATS_TENANT_USED) || tenant.number != number ||
		    tenant.n_sessions > 0)
			continue;
		tenant.name[sizeof(tenant.name) - 1] = '\0';
		name = text_name(tenant.name);
		fail(error, 0,
		     "tenant %s has no session now, so it has no plans and no logged tasks; it has "
		     "run %llu task%s since the broker started or its counts were reset (brokerctl "
		     "why tenant %s)",
		     name, (unsigned long long)tenant.n_tasks, plural(tenant.n_tasks), name);
		return;
	}
}

/* Return: 0; also if @is_optional and the tenant has no page. */
static int add_page(struct rbk *rbk, struct pages *pages, unsigned int whose, uint32_t number,
		    bool is_optional, struct rbk_error *error)
{
	struct tenant_page *page, *grown;
	struct tenant_head head;
	int r;

	grown = realloc(pages->tenants, (pages->n_tenants + 1) * sizeof(*grown));
	if (!grown)
		return fail(error, -ENOMEM, "out of memory");
	pages->tenants = grown;
	page = &grown[pages->n_tenants];
	r = rbk_stats_map(rbk, whose, number, &page->view, error);
	if (r == -ENOENT && !is_optional)
		explain_no_page(&pages->root, number, error);
	if (r == -ENOENT)
		return is_optional ? 0 : PAGES_E_NO_TENANT;
	if (r)
		return r;
	page_copy_tenant_head(&page->view, 0, &head);
	memcpy(page->name, head.name, sizeof(page->name));
	page->number = head.number;
	pages->n_tenants++;
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

int pages_missing(const struct pages *pages, uint32_t **ret_numbers, unsigned int *ret_n)
{
	const uint32_t n_records =
		pages->has_all ? rbk_stats_used(&pages->root, RBK_STATS_SECTION_TENANTS) : 0;
	uint32_t *numbers, *present;
	struct tenant_head tenant;
	unsigned int n = 0;

	numbers = malloc((pages->n_tenants + n_records + 1) * sizeof(*numbers));
	if (!numbers)
		return -ENOMEM;
	/* A binary search, since there may be a thousand pages and a thousand records. */
	present = numbers + n_records;
	for (unsigned int i = 0; i < pages->n_tenants; i++)
		present[i] = pages->tenants[i].number;
	qsort(present, pages->n_tenants, sizeof(*present), compare_numbers);
	for (uint32_t i = 0; i < n_records; i++)
		if (page_copy_tenant_head(&pages->root, i, &tenant) &&
		    (tenant.flags & RBK_STATS_TENANT_PAGE) &&
		    !bsearch(&tenant.number, present, pages->n_tenants, sizeof(*present),
			     compare_numbers))
			numbers[n++] = tenant.number;
	*ret_numbers = numbers;
	*ret_n = n;
	return 0;
}

int pages_fetch(struct rbk *rbk, const uint32_t *numbers, unsigned int n, struct pages *pages,
		struct rbk_error *error)
{
	int r = 0;

	for (unsigned int i = 0; i < n && r == 0; i++)
		r = add_page(rbk, pages, RBK_STATS_OF_TENANT, numbers[i], true, error);
	return r;
}

static int add_all(struct rbk *rbk, struct pages *pages, struct rbk_error *error)
{
	uint32_t *numbers = NULL;
	unsigned int n = 0;
	int r = pages_missing(pages, &numbers, &n);

	if (r)
		return fail(error, r, "out of memory");
	r = pages_fetch(rbk, numbers, n, pages, error);
	free(numbers);
	return r;
}

int pages_map_root(struct rbk *rbk, struct pages *ret, struct rbk_error *error)
{
	struct pages pages = {.tenants = NULL};
	int r;

	r = map_root(rbk, &pages.root, error);
	pages.has_all = pages.root.page != NULL;
	if (r == 0 && !pages.has_all)
		r = add_page(rbk, &pages, RBK_STATS_OWN, 0, false, error);
	if (r)
		pages_unmap(&pages);
	else
		*ret = pages;
	return r;
}

int pages_map(struct rbk *rbk, const char *tenant, struct pages *ret, struct rbk_error *error)
{
	struct pages pages = {.tenants = NULL};
	unsigned int whose = RBK_STATS_OWN;
	uint32_t number = 0;
	int r;

	r = map_root(rbk, &pages.root, error);
	if (r == 0 && tenant)
		r = find_tenant(rbk, &pages.root, tenant, &whose, &number, error);
	pages.has_all = pages.root.page && !tenant;
	if (r == 0 && pages.has_all)
		r = add_all(rbk, &pages, error);
	else if (r == 0)
		r = add_page(rbk, &pages, whose, number, false, error);
	if (r)
		pages_unmap(&pages);
	else
		*ret = pages;
	return r;
}

void pages_forget_closed(struct pages *pages)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		struct tenant_page page = pages->tenants[i];

		if (__atomic_load_n(&page.view.page->flags, __ATOMIC_ACQUIRE) & RBK_STATS_CLOSED)
			rbk_stats_unmap(&page.view);
		else
			pages->tenants[n++] = page;
	}
	pages->n_tenants = n;
}

int pages_take(struct pages *pages, struct pages *from)
{
	const size_t n = (size_t)pages->n_tenants + from->n_tenants;
	struct tenant_page *grown = realloc(pages->tenants, (n + 1) * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	if (from->n_tenants)
		memcpy(grown + pages->n_tenants, from->tenants, from->n_tenants * sizeof(*grown));
	pages->tenants = grown;
	pages->n_tenants = (unsigned int)n;
	free(from->tenants);
	from->tenants = NULL;
	from->n_tenants = 0;
	return 0;
}

int pages_update(struct rbk *rbk, struct pages *pages, struct rbk_error *error)
{
	pages_forget_closed(pages);
	return pages->has_all ? add_all(rbk, pages, error) : 0;
}

void pages_unmap(struct pages *pages)
{
	for (unsigned int i = 0; i < pages->n_tenants; i++)
		rbk_stats_unmap(&pages->tenants[i].view);
	free(pages->tenants);
	rbk_stats_unmap(&pages->root);
	*pages = (struct pages){.tenants = NULL};
}
