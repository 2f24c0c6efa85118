/* SPDX-License-Identifier: MIT */
/* Step 1: connects and lists devices. cc tutorial-1.c $(pkg-config --cflags --libs ringbroker) */
#include <ringbroker.h>
#include <stdio.h>

int main(void)
{
	struct rbk_device devices[RBK_MAX_DEVICES];
	struct rbk_error error;
	unsigned int n_devices;
	struct rbk *rbk;

	if (rbk_connect(NULL, &rbk, &error) ||
	    rbk_get_devices(rbk, devices, RBK_MAX_DEVICES, &n_devices, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	printf("connected to %s\n", rbk_broker_name(rbk));
	for (unsigned int i = 0; i < n_devices; i++)
		printf("device %u: %s\n", devices[i].index, devices[i].name);
	rbk_disconnect(rbk);
	return 0;
}
