/* SPDX-License-Identifier: MIT */
/*
 * Dropping the capabilities that loading the probes needs
 *
 * Only the calling thread drops them, since capabilities belong to a thread; the threads that it
 * starts inherit. Root, when it starts brokerd by hand, has more capabilities than the service. The
 * thread also drops capabilities that permit loading the probes in another way, and capabilities
 * that brokerd does not need. It keeps the rest, to read others' processes and files, give its
 * sockets to groups, and stop processes.
 */
#include <errno.h>
#include <sys/capability.h>

#include "contention/run-queue-private.h"
#include "util/error.h"

int run_queue_keep_privileges(bool keeps_bpf)
{
	/* The last two are at the end because they may be kept. */
	cap_value_t values[] = {CAP_PERFMON,   CAP_SYS_RESOURCE, CAP_SYS_MODULE, CAP_SYS_RAWIO,
				CAP_SYS_BOOT,  CAP_SYS_TIME,     CAP_SYS_CHROOT, CAP_NET_ADMIN,
				CAP_NET_RAW,   CAP_MKNOD,        CAP_SETFCAP,    CAP_SETPCAP,
				CAP_MAC_ADMIN, CAP_MAC_OVERRIDE, CAP_SYS_ADMIN,  CAP_BPF};
	int n = (int)(sizeof(values) / sizeof(values[0])), r = 0;
	cap_flag_value_t has_bpf = CAP_CLEAR;
	cap_t caps = cap_get_proc();

	if (!caps)
		return error_origin(-errno);
	/* CAP_SYS_ADMIN replaces CAP_BPF if the latter was not granted. */
	if (keeps_bpf && cap_get_flag(caps, CAP_BPF, CAP_EFFECTIVE, &has_bpf) == 0)
		n -= has_bpf == CAP_SET ? 1 : 2;
	/* A capability that is not inheritable cannot be ambient either. */
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
