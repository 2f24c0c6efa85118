#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages that a program for people looks at
 *
 * Administrators see the root page and every tenant's; others their own tenant's. Which of the two
 * this is shows when the root page is asked for.
 *
 * Functions that return an int return 0, a negative errno of the library with its sentence in
 * @error, or what is listed. None of them prints.
 */
#include <stdbool.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

/* There is no such tenant, or none that has a page: @error says which. */
enum { PAGES_E_NO_TENANT = 1 };

/* A tenant's page. */
struct tenant_page {
	struct rbk_stats_view view;
	uint32_t number;
	char name[RBK_STATS_NAME_BYTES]; /* as the page has it, but it ends */
};

struct pages {
	struct rbk_stats_view root; /* page NULL: not permitted */
	struct tenant_page *tenants;
	unsigned int n_tenants;
	bool has_all; /* every tenant that has a page is meant */
};

/*
 * Connects, for a program called @name, to a broker that has statistics pages; @socket_path NULL:
 * the library's choice. @timeout_ns as of struct rbk_options.
 */
int pages_connect(const char *socket_path, const char *name, uint64_t timeout_ns, struct rbk **ret,
		  struct rbk_error *error);

/*
 * The same on the administrators' socket, beside @socket_path, if this user may use that; else on
 * the ordinary one.
 */
int pages_connect_best(const char *socket_path, const char *name, uint64_t timeout_ns,
		       struct rbk **ret, struct rbk_error *error);

/*
 * Maps the root page, if it is permitted, and the pages of @tenant, a name or a number, or of all
 * that may be seen (NULL). Tenants without a page are left out.
 * Return: also PAGES_E_NO_TENANT; -EPERM: @tenant is another one than the user's own.
 */
int pages_map(struct rbk *rbk, const char *tenant, struct pages *ret, struct rbk_error *error);

/*
 * The same without the pages of tenants, as long as the root page is there: one request to the
 * broker, however many tenants it has.
 */
int pages_map_root(struct rbk *rbk, struct pages *ret, struct rbk_error *error);

void pages_unmap(struct pages *pages);

/* Looks for tenants that have a page now and had none, and forgets those whose page is closed. */
int pages_update(struct rbk *rbk, struct pages *pages, struct rbk_error *error);

/*
 * The same in steps, for who reads @pages while the broker is asked: what is missing of a broker
 * whose every tenant is meant (to be freed; -ENOMEM), asking for it, into pages of their own, and
 * taking these over (-ENOMEM: they stay there).
 */
void pages_forget_closed(struct pages *pages);
int pages_missing(const struct pages *pages, uint32_t **ret_numbers, unsigned int *ret_n);
int pages_fetch(struct rbk *rbk, const uint32_t *numbers, unsigned int n, struct pages *pages,
		struct rbk_error *error);
int pages_take(struct pages *pages, struct pages *from);

/*
 * The tenant that @text stands for: its number, or 0 and RBK_STATS_OWN for one's own, in *ret_whose
 * and *ret_number. Return: as pages_map().
 */
int pages_find_tenant(struct rbk *rbk, const char *text, unsigned int *ret_whose,
		      uint32_t *ret_number, struct rbk_error *error);

/*
 * The same in the root page alone, without asking the broker. Return: is there such a tenant, with
 * its number in *ret_number?
 */
bool pages_find_number(const struct pages *pages, const char *text, uint32_t *ret_number);

/*
 * Copies record @index of a section; the members that the broker does not have are 0. Waits while
 * the broker changes it; of one that stopped or died there the copy may mix old and new.
 */
void page_copy(const struct rbk_stats_view *view, unsigned int section, uint32_t index, void *to,
	       size_t bytes);

/*
 * Waits until the root page shows everybody: whoever has just come sees some of a thousand sessions
 * and tenants, and more with each update. Returns after a few updates without more, 12 s at most.
 */
void pages_await_listing(const struct rbk_stats_view *root);

/*
 * How long ago the page was brought up to date, by this machine's CLOCK_MONOTONIC; nonsense, also
 * negative, of a page that another machine wrote.
 */
int64_t page_age_ns(const struct rbk_stats_header *page);

/* What a tenant's record begins with: the rest is long, and tenants are many. */
struct tenant_head {
	uint32_t sequence, number, flags, weight;
	char name[RBK_STATS_NAME_BYTES];
};
/* The name ends, whatever the page says. Return: is there such a tenant? */
bool page_copy_tenant_head(const struct rbk_stats_view *view, uint32_t index,
			   struct tenant_head *ret);

/* A plan's slot with what is known of each device; those that there are not are 0. */
union plan_copy {
	struct rbk_stats_plan plan;
	uint64_t words[(sizeof(struct rbk_stats_plan) +
			RBK_MAX_DEVICES * sizeof(struct rbk_stats_plan_device)) /
		       sizeof(uint64_t)];
};
/* Return: false if the slot was never used. */
bool page_copy_plan(const struct rbk_stats_view *view, uint32_t slot, union plan_copy *ret);

/* A whole number from @text. Return: false if it is none, or above @max. */
bool pages_number(const char *text, uint64_t max, uint64_t *ret);
