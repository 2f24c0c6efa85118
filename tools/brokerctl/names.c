/* SPDX-License-Identifier: MIT */
/*
 * brokerctl names: the names of a broker's objects, one per line, for completions of shells
 *
 * Clients choose names of plans. A name that would not stay the same word in a terminal is left
 * out: completions must not offer another name than that of the object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "monitor/text.h"
#include "records.h"

enum names_of { NAMES_TENANTS, NAMES_PLANS, NAMES_DEVICES, NAMES_SESSIONS, NAMES_LEASES };

/* NULL ends the list for control_wrong_word(). */
static const char *const kinds[] = {"tenants", "plans", "devices", "sessions", "leases", NULL};

static void print_name(const char *name)
{
	if (name[0] && strcmp(text_name(name), name) == 0)
		puts(name);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Print each of @n names once, sorted. */
static void print_sorted(const char **names, size_t n)
{
	qsort(names, n, sizeof(*names), compare);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
			print_name(names[i]);
}

static int print_plans(struct control *control, const char *tenant)
{
	struct rbk_error error = {""};
	const char **names = NULL;
	struct pages pages;
	union plan_copy copy;
	int status = EXIT_OK, r;
	size_t n = 0;

	r = pages_map(control->rbk, tenant, &pages, &error);
	if (r)
		return control_refused(control, r, &error);
	for (unsigned int i = 0; i < pages.n_tenants; i++)
		n += rbk_stats_count(&pages.tenants[i].view, RBK_STATS_SECTION_PLANS);
	names = calloc(n + 1, sizeof(*names));
	n = 0;
	for (unsigned int i = 0; names && i < pages.n_tenants; i++) {
		const struct rbk_stats_view *view = &pages.tenants[i].view;

		for (uint32_t k = 0; k < rbk_stats_count(view, RBK_STATS_SECTION_PLANS); k++) {
			if (!page_copy_plan(view, k, &copy) ||
			    copy.plan.state != RBK_STATS_PLAN_LIVE)
				continue;
			names[n] = strdup(copy.plan.name);
			n += names[n] != NULL;
		}
	}
	if (names)
		print_sorted(names, n);
	else
		status = control_fail(EXIT_FAILED, "out of memory");
	while (names && n > 0)
		free((char *)names[--n]);
	free(names);
	pages_unmap(&pages);
	return status;
}

static void print_tenants(const struct rbk_stats_view *view)
{
	struct tenant_head head;

	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_TENANTS); i++)
		if (page_copy_tenant_head(view, i, &head))
			print_name(head.name);
}

/* Print the numbers of the sessions or leases of tenant @of; 0: of all. */
static void print_numbers(const struct rbk_stats_view *view, enum names_of kind, uint32_t of)
{
	struct rbk_stats_session session;
	struct rbk_stats_lease lease;

	if (kind == NAMES_SESSIONS && view->sections[RBK_STATS_SECTION_SESSIONS].offset)
		for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_SESSIONS); i++)
			if (session_copy(view, i, &session) && (!of || session.tenant == of))
				printf("%u\n", session.number);
	if (kind == NAMES_LEASES && view->sections[RBK_STATS_SECTION_LEASES].offset)
		for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_LEASES); i++)
			if (lease_copy(view, i, &lease) && (!of || lease.tenant == of))
				printf("%u\n", lease.number);
}

static int print_names(struct control *control, enum names_of kind, const char *tenant)
{
	/* RBK_STATS_OWN: all records of the page */
	unsigned int whose = RBK_STATS_OWN;
	const struct rbk_stats_view *view;
	struct rbk_error error = {""};
	struct pages pages;
	uint32_t number = 0;
	int r;

	if (kind == NAMES_PLANS)
		return print_plans(control, tenant);
	/* Without waiting until a young page lists all of a thousand sessions. */
	r = pages_map_root(control->rbk, &pages, &error);
	if (r)
		return control_refused(control, r, &error);
	if (tenant)
		r = pages_find_tenant(control->rbk, tenant, &whose, &number, &error);
	view = pages.has_all ? &pages.root : &pages.tenants[0].view;
	if (r == 0 && kind == NAMES_TENANTS)
		print_tenants(view);
	else if (r == 0 && kind == NAMES_DEVICES)
		for (uint32_t i = 0; i < view->n_devices; i++)
			print_name(device_label(i));
	else if (r == 0)
		print_numbers(view, kind, whose == RBK_STATS_OWN ? 0 : number);
	pages_unmap(&pages);
	return r ? control_refused(control, r, &error) : EXIT_OK;
}

int run_names(struct control *control, const struct arguments *arguments)
{
	unsigned int kind = 0;
	int status;

	while (kinds[kind] && strcmp(kinds[kind], arguments->operands[0]) != 0)
		kind++;
	if (!kinds[kind])
		return control_wrong_word(arguments, arguments->operands[0], kinds);
	status = control_connect(control);
	return status ? status
		      : print_names(control, (enum names_of)kind, arguments->values[OPT_TENANT]);
}
