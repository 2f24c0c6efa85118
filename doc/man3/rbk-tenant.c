/* SPDX-License-Identifier: MIT */
/* Print how much host memory is left to the tenant; UINT64_MAX: no limit. */
#include <ringbroker.h>
#include <inttypes.h>
#include <stdio.h>

static int print_room(struct rbk *rbk)
{
	struct rbk_tenant tenant;
	struct rbk_error error;
	int r = rbk_get_tenant(rbk, &tenant, &error);

	if (r) {
		fprintf(stderr, "%s\n", error.text);
		return r;
	}
	if (tenant.host_bytes.max != UINT64_MAX)
		printf("%s: %" PRIu64 " bytes left\n", tenant.name,
		       tenant.host_bytes.max - tenant.host_bytes.used);
	return 0;
}

int main(void)
{
	struct rbk *rbk;

	return rbk_connect(NULL, &rbk, NULL) || print_room(rbk);
}
