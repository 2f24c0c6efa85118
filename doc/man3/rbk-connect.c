/* SPDX-License-Identifier: MIT */
/* Connect, and print the devices. */
#include <ringbroker.h>
#include <stdio.h>

int main(void)
{
	struct rbk_device devices[RBK_MAX_DEVICES];
	struct rbk_error error;
	unsigned int n, i;
	struct rbk *rbk;

	if (rbk_connect(NULL, &rbk, &error) ||
	    rbk_get_devices(rbk, devices, RBK_MAX_DEVICES, &n, &error)) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	printf("%s\n", rbk_broker_name(rbk));
	for (i = 0; i < n; i++)
		printf("%u: %s\n", devices[i].index, devices[i].name);
	rbk_disconnect(rbk);
	return 0;
}
