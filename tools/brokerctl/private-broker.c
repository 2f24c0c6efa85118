/* SPDX-License-Identifier: MIT */
/*
 * Brokers for commands that query or run models
 *
 * A running broker is used if there is one. If none runs, and neither the command line nor the
 * environment names a socket, a broker is started for this command alone, with the devices that it
 * needs: no GPU for --device=cpu; for --device=gpu a software GPU if the machine has no other.
 */
#include "private-broker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "broker-process/broker-process.h"
#include "monitor/text.h"

enum { SAID_BYTES = 4096 };

int private_broker_device(const struct arguments *arguments, enum option_id option,
			  enum run_device *ret)
{
	const char *device = arguments->values[option];
	const bool may_prefer = option == OPT_RUN_DEVICE;

	*ret = RUN_AUTO;
	if (device && strcmp(device, "cpu") == 0)
		*ret = RUN_CPU;
	else if (device && strcmp(device, "gpu") == 0)
		*ret = RUN_GPU;
	else if (device && may_prefer && strcmp(device, "prefer-gpu") == 0)
		*ret = RUN_PREFER_GPU;
	else if (device && may_prefer && strcmp(device, "partition") == 0)
		*ret = RUN_PARTITION;
	else if (device && strcmp(device, "auto") != 0)
		return control_misuse(arguments, "--device is auto, cpu%s, not %s",
				      may_prefer ? ", gpu, prefer-gpu or partition" : " or gpu",
				      text_name(device));
	return EXIT_OK;
}

/* Return the last line of the broker's output: the reason why it did not start. */
static const char *last_line(char *said)
{
	char *line = said;

	for (char *c = said; *c; c++)
		if (*c == '\n' && c[1])
			line = c + 1;
	line[strcspn(line, "\n")] = '\0';
	return line;
}

static int start(const char *gpu, struct broker_process **ret)
{
	const char *const arguments[] = {"--gpu",     gpu, "--contention", "none", "--config",
					 "/dev/null", NULL};
	char said[SAID_BYTES];
	int r = broker_process_try(arguments, -1, ret, said, sizeof(said));

	switch (r) {
	case 0:
		return EXIT_OK;
	case -ENOENT:
		return control_fail(EXIT_NO_BROKER,
				    "no broker runs here, and there is no brokerd to start beside "
				    "brokerctl or in PATH");
	case -ECHILD:
	case -ENOTDIR:
		return control_fail(EXIT_NO_BROKER,
				    "no broker runs here, and one for this did not start: %s",
				    text_name(last_line(said)));
	}
	return control_fail(EXIT_NO_BROKER,
			    "no broker runs here, and one for this did not start: %s",
			    strerror(-r));
}

int private_broker_start(struct control *control, enum run_device device,
			 struct broker_process **ret)
{
	bool is_nobody_there;
	int status;

	broker_process_init();
	status = start(device == RUN_CPU ? "none" : device == RUN_GPU ? "any" : "auto", ret);
	if (status)
		return status;
	control->socket_path = broker_process_socket(*ret);
	return control_connect_to_run(control, &is_nobody_there);
}

int private_broker_no_gpu(const struct broker_process *broker)
{
	if (broker)
		return control_fail(EXIT_USAGE, "there is no GPU here, nor Vulkan in software");
	return control_fail(EXIT_USAGE,
			    "the broker that runs here has no GPU; brokerctl devices says what it "
			    "has");
}
