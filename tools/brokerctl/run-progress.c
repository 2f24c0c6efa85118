/* SPDX-License-Identifier: MIT */
/*
 * brokerctl run: a progress bar
 *
 * No bar is drawn for short work, or if standard error is not a terminal that can return to the
 * beginning of its line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "monitor/text.h"
#include "run.h"
#include "util/clock.h"

enum { BAR_COLUMNS = 30 };

#define LONG_NS 700000000u
#define STEP_NS 100000000u

void run_progress_begin(struct run_progress *progress, const char *what, uint64_t total)
{
	const char *terminal = getenv("TERM");

	*progress = (struct run_progress){.what = what, .total = total};
	progress->began_ns = clock_now_ns();
	progress->is_terminal = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
}

void run_progress_show(void *data, uint64_t done)
{
	struct run_progress *progress = data;
	uint64_t now_ns = clock_now_ns();
	double part;
	int full;

	if (!progress->is_terminal || progress->total == 0 ||
	    now_ns - progress->began_ns < LONG_NS || now_ns - progress->drawn_ns < STEP_NS)
		return;
	part = (double)(progress->before + done) / (double)progress->total;
	part = part > 1 ? 1 : part;
	full = (int)(part * BAR_COLUMNS);
	fprintf(stderr, "\r%s [%.*s%*s] %3d%%", progress->what, full,
		"##############################", BAR_COLUMNS - full, "", (int)(part * 100));
	if (part > 0 && part < 1)
		fprintf(stderr, ", %s left",
			text_ns((double)(now_ns - progress->began_ns) * (1 - part) / part));
	fputs("\033[K", stderr);
	fflush(stderr);
	progress->drawn_ns = now_ns;
	progress->is_drawn = true;
}

void run_progress_end(struct run_progress *progress)
{
	if (progress->is_drawn)
		fputs("\r\033[K", stderr);
	progress->is_drawn = false;
}
