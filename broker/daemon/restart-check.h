#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The check of the next program
 *
 * A process of the program that is to take over checks its options and its configuration. Reactor
 * thread.
 */
#include <stdbool.h>

struct loop;
struct offload;
struct restart_check;
struct steward;

struct restart_check_options {
	struct loop *loop;
	struct offload *offload; /* waits until the process has started */
	struct steward *steward; /* starts the thread that starts the process, and ends it */
	/* borrowed until done() */
	const char *path;
	char **argv, **environment;
	/*
	 * Called once in a turn, after restart_check_new() has returned: @why is NULL if the check
	 * succeeded, otherwise a sentence without its end, which lives as long as the call. The
	 * check is freed afterwards.
	 */
	void (*done)(void *context, const char *why);
	void *context;
};

/* Start a check. Return: NULL without memory. */
struct restart_check *restart_check_new(const struct restart_check_options *options);

/* End the process; done() is called soon, with @why, which must be a constant. */
void restart_check_give_up(struct restart_check *check, const char *why);
