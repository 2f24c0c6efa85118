/* SPDX-License-Identifier: MIT */
/*
 * See confine.h. A refused call is reported once for each kind of thread. Threads log refused
 * filters themselves; the statistics show the sandbox as incomplete from then on.
 */
#include "daemon/confine.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "daemon/parts.h"
#include "daemon/steward.h"
#include "loop/loop.h"
#include "util/error.h"
#include "util/log.h"
#include "util/sandbox.h"

static void report(const struct sandbox_refusal *refusal)
{
	char number[24];
	const char *call = refusal->call;

	if (!call) {
		snprintf(number, sizeof(number), "number %d", refusal->number);
		call = number;
	}
	if (refusal->error)
		log_warning(LOG_CALL_REFUSED,
			    "the system call %s of %s was refused (%s): if a driver or a library "
			    "needs it, start brokerd with sandbox = log until that is repaired",
			    call, refusal->thread, strerror(refusal->error));
	else
		log_warning(LOG_CALL_REFUSED,
			    "the system call %s of %s happened because of sandbox = log; sandbox = "
			    "on refuses it",
			    call, refusal->thread);
}

static void on_refused(void *data, uint32_t events)
{
	struct broker *broker = data;
	struct sandbox_refusal refusal;

	while (sandbox_take(&refusal)) {
		broker->self.n_calls_refused++;
		report(&refusal);
	}
	/* After sandbox_take(), which resets the descriptor. */
	if (sandbox_is_incomplete())
		broker->self.sandbox = RBK_STATS_SANDBOX_REFUSED;
}

/* Return the state, and mention it in the log unless calls are refused or nothing was asked for. */
static enum rbk_stats_sandbox explain(int r, enum sandbox_mode wanted)
{
	switch (r) {
	case SANDBOX_E_LACKING:
		log_info(LOG_SANDBOX, "threads may make all system calls: this kernel or container "
				      "has no filters (seccomp)");
		return RBK_STATS_SANDBOX_LACKING;
	case SANDBOX_E_BUILD:
		log_info(LOG_SANDBOX,
			 "threads may make all system calls: this build has no filters, "
			 "which exist for x86-64");
		return RBK_STATS_SANDBOX_NOT_BUILT;
	case SANDBOX_E_SANITIZED:
		return RBK_STATS_SANDBOX_NOT_BUILT;
	}
	switch (wanted) {
	case SANDBOX_LOG:
		log_warning(LOG_SANDBOX,
			    "the sandbox is in mode log: system calls that threads do not need "
			    "happen, and are logged; sandbox = on refuses them");
		return RBK_STATS_SANDBOX_LOG;
	case SANDBOX_OFF:
		log_warning(LOG_SANDBOX, "the sandbox is off: threads may make any system call; "
					 "sandbox = on refuses those that they do not need");
		return RBK_STATS_SANDBOX_OFF;
	case SANDBOX_ON:
		break;
	}
	return RBK_STATS_SANDBOX_ON;
}

int confine_prepare(struct broker *broker)
{
	int r, fd;

	r = sandbox_init(broker->options.sandbox, &fd);
	if (r == 0 && fd >= 0)
		r = loop_watch(broker->loop, fd, POLLIN, on_refused, broker,
			       &broker->sandbox_watch);
	if (r < 0)
		return error_fold(r);
	broker->self.sandbox = explain(r, broker->options.sandbox);
	return 0;
}

int confine_begin(struct broker *broker)
{
	int r = steward_new(&broker->steward);

	if (r)
		return error_fold(r);
	if (sandbox_enter("brokerd"))
		log_warning(LOG_SANDBOX,
			    "threads may make all system calls: the kernel refused the filter");
	return 0;
}

void confine_reactor(struct broker *broker)
{
	if (sandbox_enter("rb-reactor"))
		log_warning(LOG_SANDBOX,
			    "the reactor may make all system calls that brokerd's start needs: the "
			    "kernel refused its filter");
}

void confine_end(struct broker *broker)
{
	if (!broker->sandbox_watch)
		return;
	on_refused(broker, 0);
	broker->sandbox_watch = loop_unwatch(broker->sandbox_watch);
}
