/* SPDX-License-Identifier: MIT */
/* Print the plans of a mapped tenant page, and where the last task of each ran. */
#include <ringbroker.h>
#include <ringbroker/stats.h>
#include <stdio.h>

/* Clients choose the names of plans: a byte such as ESC could steer the terminal. */
static void print_name(const char name[RBK_NAME_BYTES])
{
	for (unsigned int i = 0; i < RBK_NAME_BYTES && name[i]; i++)
		putchar(name[i] >= ' ' && name[i] <= '~' ? name[i] : '?');
}

void print_plans(const struct rbk_stats_view *view)
{
	union {
		struct rbk_stats_plan plan;
		char bytes[sizeof(struct rbk_stats_plan) +
			   RBK_MAX_DEVICES * sizeof(struct rbk_stats_plan_device)];
	} copy;
	const size_t bytes =
		sizeof(copy.plan) + view->n_devices * sizeof(struct rbk_stats_plan_device);
	const void *record;

	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_PLANS); i++) {
		record = rbk_stats_record(view, RBK_STATS_SECTION_PLANS, i);
		if (!record || !rbk_stats_copy(&copy, record, bytes) ||
		    copy.plan.state != RBK_STATS_PLAN_LIVE)
			continue;
		print_name(copy.plan.name);
		printf(": device %u, %s\n", copy.plan.last_device,
		       rbk_reason_name(copy.plan.last_reason));
	}
}
