/* SPDX-License-Identifier: MIT */
/*
 * Giving up what loading the probes needs
 *
 * Of this thread alone, since capabilities are a thread's; those that it starts inherit. Who is
 * root keeps all others: what brokerd may do besides is not for this place to judge.
 */
#include <errno.h>
#include <sys/capability.h>

#include "telemetry/run-queue-private.h"
#include "util/error.h"

int run_queue_keep_privileges(bool keeps_bpf)
{
	cap_value_t values[] = {CAP_PERFMON, CAP_SYS_RESOURCE, CAP_BPF};
	const int n = keeps_bpf ? 2 : 3;
	cap_t caps = cap_get_proc();
	int r = 0;

	if (!caps)
		return error_origin(-errno);
	/* What is not inheritable cannot be ambient either. */
	if (cap_set_flag(caps, CAP_EFFECTIVE, n, values, CAP_CLEAR) < 0 ||
	    cap_set_flag(caps, CAP_PERMITTED, n, values, CAP_CLEAR) < 0 ||
	    cap_set_flag(caps, CAP_INHERITABLE, n, values, CAP_CLEAR) < 0 || cap_set_proc(caps) < 0)
		r = error_origin(-errno);
	cap_free(caps);
	return r;
}

int run_queue_drop_privileges(void)
{
	return run_queue_keep_privileges(false);
}
