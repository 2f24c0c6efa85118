/* SPDX-License-Identifier: MIT */
/* Print the number of tasks of the tenant, and its last refused entries. */
#include <ringbroker.h>
#include <ringbroker/stats.h>
#include <stdio.h>

/* The reason may hold names that clients chose: a byte such as ESC could steer the terminal. */
static void print_text(const char *text)
{
	for (; *text; text++)
		putchar(*text >= ' ' && *text <= '~' ? *text : '?');
}

int main(void)
{
	struct rbk_stats_refused refused;
	struct rbk_stats_tenant tenant;
	struct rbk_stats_view view;
	struct rbk_error error;
	struct rbk *rbk;

	if (rbk_connect(NULL, &rbk, &error) ||
	    rbk_stats_map(rbk, RBK_STATS_OWN, 0, &view, &error)) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	rbk_stats_copy_record(&view, RBK_STATS_SECTION_TENANTS, 0, &tenant, sizeof(tenant));
	printf("%llu tasks\n", (unsigned long long)tenant.n_tasks);
	for (uint32_t i = 0; i < rbk_stats_count(&view, RBK_STATS_SECTION_REFUSED); i++) {
		if (!rbk_stats_refused(&view, i, &refused))
			continue;
		printf("%llu: %s: ", (unsigned long long)refused.user_data, refused.field);
		print_text(refused.reason);
		putchar('\n');
	}
	rbk_stats_unmap(&view);
	rbk_disconnect(rbk);
	return 0;
}
