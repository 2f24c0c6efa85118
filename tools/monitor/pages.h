#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages for monitoring programs
 *
 * Administrators read the root page and every tenant's page; other users read their own tenant's.
 * The answer to a request for the root page shows which of the two applies.
 *
 * Functions that return an int return 0, a negative errno of the library with its sentence in
 * @error, or the values listed. None of them prints.
 */
#include <stdbool.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

#include "monitor/admin-socket.h"

/* The tenant does not exist, or has no page: @error says which. */
enum { PAGES_E_NO_TENANT = 1 };

/* A tenant's page. */
struct tenant_page {
	struct rbk_stats_view view;
	uint32_t number;
	char name[RBK_STATS_NAME_BYTES]; /* as in the page, but terminated */
};

struct pages {
	struct rbk_stats_view root; /* page NULL: not permitted */
	struct tenant_page *tenants;
	unsigned int n_tenants;
	bool has_all; /* the pages of all tenants were requested */
};

/*
 * Connect, as a program called @name, to a broker that has statistics pages. @socket_path NULL: the
 * library's default. @timeout_ns: as in struct rbk_options.
 */
int pages_connect(const char *socket_path, const char *name, uint64_t timeout_ns, struct rbk **ret,
		  struct rbk_error *error);

/*
 * Connect like pages_connect(), to the administrators' socket of @socket_path's broker if this user
 * may use it, else to the ordinary socket. *@ret_attempt receives the first attempt; its r is 0 if
 * the connection is to the administrators' socket.
 */
int pages_connect_best(const char *socket_path, const char *name, uint64_t timeout_ns,
		       struct rbk **ret, struct admin_attempt *ret_attempt,
		       struct rbk_error *error);

/*
 * Map the root page, if permitted, and the page of @tenant (a name or a number), or all tenants'
 * pages that this user may read (NULL). Tenants without a page are skipped.
 * Return: also PAGES_E_NO_TENANT; -EPERM: @tenant is not the user's own.
 */
int pages_map(struct rbk *rbk, const char *tenant, struct pages *ret, struct rbk_error *error);

/*
 * Map the root page alone, if permitted, with one request regardless of the number of tenants; else
 * map the page of the user's own tenant.
 */
int pages_map_root(struct rbk *rbk, struct pages *ret, struct rbk_error *error);

void pages_unmap(struct pages *pages);

/* Map pages of tenants that have gained one, and unmap closed pages. */
int pages_update(struct rbk *rbk, struct pages *pages, struct rbk_error *error);

/*
 * Perform pages_update() in steps, for callers that read @pages while the broker is asked.
 * pages_missing() lists the tenants whose pages are missing, if all are wanted (the caller frees
 * the list; -ENOMEM). pages_fetch() requests them into separate pages. pages_take() moves these
 * into @pages (-ENOMEM: they stay where they are).
 */
void pages_forget_closed(struct pages *pages);
int pages_missing(const struct pages *pages, uint32_t **ret_numbers, unsigned int *ret_n);
int pages_fetch(struct rbk *rbk, const uint32_t *numbers, unsigned int n, struct pages *pages,
		struct rbk_error *error);
int pages_take(struct pages *pages, struct pages *from);

/*
 * Find the tenant that @text names. *@ret_whose and *@ret_number receive 0 and its number, or
 * RBK_STATS_OWN for the user's own tenant.
 * Return: as pages_map().
 */
int pages_find_tenant(struct rbk *rbk, const char *text, unsigned int *ret_whose,
		      uint32_t *ret_number, struct rbk_error *error);

/*
 * Find the tenant in the root page alone, without a request.
 * Return: true if it exists, with its number in *@ret_number.
 */
bool pages_find_number(const struct pages *pages, const char *text, uint32_t *ret_number);

/*
 * Copy record @index of a section. Members that the broker does not have are 0. Waits while the
 * broker changes the record; if the broker has stopped or died meanwhile, the copy may mix old and
 * new values.
 */
void page_copy(const struct rbk_stats_view *view, unsigned int section, uint32_t index, void *to,
	       size_t bytes);

/*
 * Wait until the root page lists all sessions, leases and tenants. After connecting, a page may
 * list only some of more than 32, and more with each turn of the broker. Return after a few updates
 * without new ones, or after 12 s.
 */
void pages_await_listing(const struct rbk_stats_view *root);

/*
 * Return the page's age by this machine's CLOCK_MONOTONIC. The value is meaningless, and may be
 * negative, for a page that another machine wrote.
 */
int64_t page_age_ns(const struct rbk_stats_header *page);

/* Copy a lease's record. A broker before statistics 1.20 does not tell the time of its programs. */
void page_copy_lease(const struct rbk_stats_view *view, uint32_t index,
		     struct rbk_stats_lease *ret);

/* Beginning of a tenant's record, to avoid copying long records of many tenants. */
struct tenant_head {
	uint32_t sequence, number, flags, weight;
	char name[RBK_STATS_NAME_BYTES];
};
/*
 * Copy the beginning of a tenant's record, with the name terminated.
 * Return: true if such a tenant exists.
 */
bool page_copy_tenant_head(const struct rbk_stats_view *view, uint32_t index,
			   struct tenant_head *ret);

/* A plan's slot with its per-device data; 0 for devices that do not exist. */
union plan_copy {
	struct rbk_stats_plan plan;
	uint64_t words[(sizeof(struct rbk_stats_plan) +
			RBK_MAX_DEVICES * sizeof(struct rbk_stats_plan_device)) /
		       sizeof(uint64_t)];
};
/* Return: false if the slot was never used. */
bool page_copy_plan(const struct rbk_stats_view *view, uint32_t slot, union plan_copy *ret);

/*
 * Return the GPU with the least time of a task, RBK_DEVICE_*: the learned time, without contention,
 * or (@is_now) the predicted time now. 0: no GPU has one.
 */
uint32_t plan_fastest_gpu(const struct rbk_stats_plan *plan, uint32_t n_devices, bool is_now);

/*
 * Parse a whole number.
 * Return: false if @text is no number, or above @max.
 */
bool pages_number(const char *text, uint64_t max, uint64_t *ret);
