/* SPDX-License-Identifier: MIT */
/* Have the broker log at level debug, and print the level. */
#include <ringbroker.h>
#include <ringbroker/admin.h>
#include <stdio.h>

int main(void)
{
	struct rbk_error error;
	struct rbk *rbk;
	int level;

	if (rbk_admin_connect(NULL, &rbk, &error) || rbk_admin_log_level(rbk, 7, &level, &error)) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	printf("level %d\n", level);
	rbk_disconnect(rbk);
	return 0;
}
