/* SPDX-License-Identifier: MIT */
/*
 * The device gate: keeps processes without a lease from opening the GPU
 *
 * The program is attached to a cgroup. The kernel calls it whenever a process in that cgroup or
 * below opens or creates a device node. The program lets a process open or create nodes of GPUs
 * only if the process is in a cgroup that holds a lease, or below one, and belongs to the lease's
 * user. All other nodes pass. Nodes that are open already stay open, and if other programs are
 * attached as well (BPF_F_ALLOW_MULTI), all have to agree.
 *
 * The program does not depend on the layout of the kernel's structures: it needs no BTF of the
 * kernel.
 */
#include "types.h"

#include <bpf/bpf_helpers.h>

#include "device-gate-layout.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { REFUSE, PASS };

/* Declared as in the kernel; it does not change. */
struct bpf_cgroup_dev_ctx {
	u32 access_type; /* requested access << 16 | DEVICE_* */
	u32 major, minor;
};
enum { DEVICE_BLOCK = 1, DEVICE_CHAR = 2 };

/* Set before the program is loaded. */
const volatile struct device_gate_range ranges[DEVICE_GATE_MAX_RANGES];
const volatile unsigned int n_ranges;
/* Helpers that this kernel offers to programs of this type. */
const volatile bool has_comm, has_pid;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DEVICE_GATE_MAX_HOLDERS);
	__type(key, struct device_gate_key);
	__type(value, struct device_gate_holder);
} holders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, unsigned int);
	__type(value, struct device_gate_record);
} record SEC(".maps");

static bool is_gated(unsigned int major, unsigned int minor)
{
	for (unsigned int i = 0; i < DEVICE_GATE_MAX_RANGES && i < n_ranges; i++)
		if (ranges[i].major == major && ranges[i].first_minor <= minor &&
		    minor <= ranges[i].last_minor)
			return true;
	return false;
}

/*
 * Return true if the process or an ancestor cgroup holds a lease. Level 0 is the root, which
 * contains all.
 */
static bool is_holder(void)
{
	struct device_gate_key key = {.uid = (unsigned int)bpf_get_current_uid_gid()};

	for (int level = 1; level <= DEVICE_GATE_MAX_LEVELS; level++) {
		key.cgroup = bpf_get_current_ancestor_cgroup_id(level);
		if (!key.cgroup)
			break;
		if (bpf_map_lookup_elem(&holders, &key))
			return true;
	}
	return false;
}

static void note_refusal(struct device_gate_record *to, unsigned int major, unsigned int minor)
{
	unsigned long long number = __sync_fetch_and_add(&to->n_refused, 1) + 1;
	struct device_gate_refusal *refusal = &to->refusals[number % DEVICE_GATE_REFUSALS];

	refusal->number = number;
	refusal->at_ns = bpf_ktime_get_boot_ns();
	refusal->pid = has_pid ? bpf_get_current_pid_tgid() >> 32 : 0;
	refusal->uid = (unsigned int)bpf_get_current_uid_gid();
	refusal->major = major;
	refusal->minor = minor;
	if (has_comm)
		bpf_get_current_comm(refusal->comm, sizeof(refusal->comm));
}

SEC("cgroup/dev")
int device_gate(struct bpf_cgroup_dev_ctx *ctx)
{
	unsigned int major = ctx->major, minor = ctx->minor, zero = 0;
	struct device_gate_record *to;
	bool passes;

	if ((ctx->access_type & 0xffff) != DEVICE_CHAR || !is_gated(major, minor))
		return PASS;
	passes = is_holder();
	to = bpf_map_lookup_elem(&record, &zero);
	if (to && passes)
		__sync_fetch_and_add(&to->n_passed, 1);
	else if (to)
		note_refusal(to, major, minor);
	return passes ? PASS : REFUSE;
}
