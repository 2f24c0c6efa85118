/* SPDX-License-Identifier: MIT */
/* brokerctl run: the broker that runs the model, and its devices */
#include "run.h"

static int list_devices(struct run *run, struct control *control)
{
	const struct rbk_error none = {""};
	int r = rbk_devices(control->rbk, run->devices, RBK_MAX_DEVICES, &run->n_devices);

	if (r)
		return control_refused(control, r, &none);
	if (run->n_devices > RBK_MAX_DEVICES)
		run->n_devices = RBK_MAX_DEVICES;
	return EXIT_OK;
}

int run_connect(struct run *run, struct control *control)
{
	bool is_nobody_there;
	int status = control_connect_to_run(control, &is_nobody_there);

	if (is_nobody_there)
		status = private_broker_start(control, run->device, &run->broker);
	if (status == EXIT_OK)
		status = list_devices(run, control);
	if (status || run->device != RUN_GPU || run->n_devices > 1)
		return status;
	return private_broker_no_gpu(run->broker);
}
