/* SPDX-License-Identifier: MIT */
/*
 * brokerctl watch: a listing again and again, until interrupted
 *
 * The connection stays, so that the broker keeps figures up to date; if it is lost a new one is
 * tried each time. A terminal is written to in one go, so that it does not flicker.
 */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "output.h"

static const double default_interval_s = 2, min_interval_s = 0.1, max_interval_s = 86400;
static const char home_and_clear[] = "\033[H\033[2J\033[3J";

static void wait_s(double seconds)
{
	struct timespec pause = {.tv_sec = (time_t)seconds};

	pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
	nanosleep(&pause, NULL);
}

int run_watch(struct control *control, const struct arguments *arguments)
{
	const char *interval = arguments->values[OPT_INTERVAL];
	const bool is_terminal = isatty(STDOUT_FILENO);
	double interval_s = default_interval_s;
	const struct command *command;
	struct arguments watched;
	char buffer[1 << 16];
	int status;

	if (interval && (!control_seconds(interval, max_interval_s, &interval_s) ||
			 interval_s < min_interval_s))
		return control_misuse(arguments, "--interval takes seconds, from %g to %g",
				      min_interval_s, max_interval_s);
	command = command_find(arguments->operands[0]);
	if (!command)
		return EXIT_USAGE;
	if (!command->is_listing)
		return control_misuse(arguments, "%s is not for watching", command->name);
	status = arguments_read(command, (int)arguments->n_operands, arguments->operands, &watched);
	if (status)
		return status;
	if (watched.values[OPT_FOLLOW] || watched.values[OPT_HELP])
		return control_misuse(arguments, "%s with that option is not for watching",
				      command->name);

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	for (;;) {
		if (is_terminal)
			fputs(home_and_clear, stdout);
		status = command->run(control, &watched);
		if (status == EXIT_NO_BROKER)
			control_disconnect(control);
		else if (status == EXIT_USAGE || status == EXIT_NOT_PERMITTED)
			break;
		if (!output_flush()) {
			status = EXIT_OK;
			break;
		}
		wait_s(interval_s);
	}
	setvbuf(stdout, NULL, _IONBF, 0);
	return status;
}
