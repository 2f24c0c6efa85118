/* SPDX-License-Identifier: MIT */
/*
 * Why there are no probes
 *
 * The kernel returns EPERM or EINVAL for nearly every reason. So known facts are checked first, in
 * the order in which an administrator would have to fix them.
 */
#include "contention/probes-why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *probes_why(const struct probes_facts *facts, char *buffer, size_t n)
{
	const char *error = strerror(-facts->error);

	if (!facts->has_btf)
		snprintf(buffer, n,
			 "The kernel has no type information (/sys/kernel/btf/vmlinux): "
			 "boot one that was built with CONFIG_DEBUG_INFO_BTF.");
	else if (!facts->has_privilege)
		snprintf(buffer, n,
			 "brokerd has neither CAP_BPF and CAP_PERFMON nor CAP_SYS_ADMIN: start it "
			 "as root, or give it both (AmbientCapabilities= in its unit, or setcap).");
	else if (facts->lacks_files)
		snprintf(buffer, n,
			 "The limit of open files is too low for the probes: raise it "
			 "(LimitNOFILE=65536 in the unit, or ulimit -n 65536).");
	else if (facts->missing)
		snprintf(buffer, n,
			 "The kernel has no trace point %s in a known form: boot Linux 5.15 or "
			 "newer, or install a newer brokerd.",
			 facts->missing);
	else if (facts->is_locked_down)
		snprintf(buffer, n,
			 "The kernel is locked down and lets no program read its memory: "
			 "boot with lockdown=integrity or none.");
	else if (facts->error == -ENOSYS)
		snprintf(buffer, n,
			 "The kernel has no bpf() system call: boot one that was built with "
			 "CONFIG_BPF_SYSCALL.");
	else if (facts->error == -EPERM && !facts->may_make_map)
		snprintf(buffer, n,
			 "The kernel refuses BPF although brokerd has the capabilities: for a "
			 "container or user namespace, grant them, and allow bpf(), outside of "
			 "it.");
	else if (facts->error == -EPERM && facts->has_locked_limit)
		snprintf(buffer, n,
			 "The limit of locked memory is too low for the probes' maps: raise it "
			 "(LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited).");
	else if (!facts->has_storage)
		snprintf(buffer, n,
			 "The kernel has no task storage for BPF: boot Linux 5.15 or newer.");
	else if (facts->error == -EAGAIN)
		snprintf(buffer, n,
			 "The kernel interrupted loading the probes each time (%s), as it does for "
			 "a process that is traced or frozen: restart brokerd once it is neither.",
			 error);
	else if (facts->is_refused)
		snprintf(buffer, n,
			 "The kernel's verifier refused the probes (%s): its reasons are logged "
			 "with --log-level debug; please report them.",
			 error);
	else if (facts->error == -ENOMEM)
		snprintf(buffer, n,
			 "There is not enough memory for the probes' maps: raise the memory limit "
			 "of "
			 "brokerd's cgroup.");
	else
		snprintf(buffer, n,
			 "The probes could not be %s (%s): libbpf's messages are logged with "
			 "--log-level debug.",
			 facts->is_loaded ? "attached" : "loaded", error);
	return buffer;
}
