/* SPDX-License-Identifier: MIT */
/*
 * A broker to run on
 *
 * The one that is there. Where none is, and neither the command line nor the environment names its
 * socket, one is started for this run alone, with what the run needs: no GPU for --device=cpu, and
 * for --device=gpu one in software where the machine has no other.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "broker-process/broker-process.h"
#include "monitor/text.h"
#include "run.h"

enum { SAID_BYTES = 4096 };

/* The last line of what the broker said, which is why it did not start. */
static const char *last_line(char *said)
{
	char *line = said;

	for (char *c = said; *c; c++)
		if (*c == '\n' && c[1])
			line = c + 1;
	line[strcspn(line, "\n")] = '\0';
	/* Of a log for the journal. */
	if (line[0] == '<' && line[1] && line[2] == '>')
		line += 3;
	return line;
}

static int start(struct run *run, const char *gpu)
{
	const char *const arguments[] = {"--gpu",     gpu, "--contention", "none", "--config",
					 "/dev/null", NULL};
	char said[SAID_BYTES];
	int r = broker_process_try(arguments, -1, &run->broker, said, sizeof(said));

	switch (r) {
	case 0:
		return EXIT_OK;
	case -ENOENT:
		return control_fail(EXIT_NO_BROKER,
				    "no broker runs here, and there is no brokerd to start beside "
				    "brokerctl or in PATH");
	case -ECHILD:
		return control_fail(EXIT_NO_BROKER,
				    "no broker runs here, and one for this run did not start: %s",
				    text_name(last_line(said)));
	}
	return control_fail(EXIT_NO_BROKER,
			    "no broker runs here, and one for this run did not start: %s",
			    strerror(-r));
}

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

/* Return: EXIT_*. */
static int connect_private(struct run *run, struct control *control, const char *gpu)
{
	bool is_nobody_there;
	int status;

	broker_process_init();
	status = start(run, gpu);
	if (status)
		return status;
	control->socket_path = broker_process_socket(run->broker);
	status = control_connect_to_run(control, &is_nobody_there);
	return status ? status : list_devices(run, control);
}

static const char *gpu_of(const struct run *run)
{
	return run->device == RUN_CPU ? "none" : run->device == RUN_GPU ? "any" : "auto";
}

int run_connect(struct run *run, struct control *control)
{
	bool is_nobody_there;
	int status = control_connect_to_run(control, &is_nobody_there);

	if (status == EXIT_OK)
		status = list_devices(run, control);
	else if (is_nobody_there)
		status = connect_private(run, control, gpu_of(run));
	if (status || run->device != RUN_GPU || run->n_devices > 1)
		return status;
	if (run->broker)
		return control_fail(EXIT_USAGE, "there is no GPU here, nor Vulkan in software");
	return control_fail(EXIT_USAGE,
			    "the broker that runs here has no GPU; brokerctl devices says what it "
			    "has");
}
