/* SPDX-License-Identifier: MIT */
/* Lease audits: see audit.h. */
#include "lease/audit.h"

#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/number.h"

static bool is_of(const struct lease_member *member, pid_t pid, uint64_t started_ns)
{
	return member->pid == pid && started_ns <= member->joined_ns;
}

struct lease *audit_find_lease(const struct leases *leases, uint8_t device, pid_t pid,
			       uint64_t started_ns)
{
	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (lease->device != device)
			continue;
		list_for_each (member, &lease->members)
			if (is_of(container_of(member, struct lease_member, link), pid, started_ns))
				return lease;
	}
	return NULL;
}

/* Return the credit of a process, over all of its connections. */
static uint64_t credit_of(const struct lease *lease, const struct audit_process *process)
{
	uint64_t credit = 0;

	list_for_each (node, &lease->members) {
		const struct lease_member *member = container_of(node, struct lease_member, link);

		if (is_of(member, process->pid, process->started_ns))
			credit = saturating_add(credit, member->credit_bytes);
	}
	return credit;
}

struct lease_member *audit_confirm(struct lease *lease, const struct audit_process *process,
				   uint64_t list_ns, bool is_off)
{
	struct lease_member *restored = NULL;
	uint64_t own = 0, beyond;

	list_for_each (node, &lease->members) {
		struct lease_member *member = container_of(node, struct lease_member, link);

		if (!is_of(member, process->pid, process->started_ns))
			continue;
		own = saturating_add(own, lease_own_credit(member));
		if (!restored && member->restored_ns && member->restored_ns < list_ns)
			restored = member;
	}
	if (!restored)
		return NULL;
	beyond = process->bytes > own ? process->bytes - own : 0;
	lease_correct(restored, is_off || beyond <= lease->tenant->lease_tolerance ? 0 : beyond);
	if (restored->is_corrected || restored->corrected_bytes == 0)
		return NULL;
	restored->is_corrected = true;
	return restored;
}

void audit_add_up(const struct lease *lease, const struct audit_process *processes, uint32_t n,
		  struct audit_sum *ret)
{
	uint64_t granted = lease_granted(lease), most = 0;

	*ret = (struct audit_sum){
		.allowed_bytes = granted > lease->audited_bytes ? granted : lease->audited_bytes,
		.worst = UINT32_MAX,
	};
	for (uint32_t i = 0; i < n; i++) {
		uint64_t credit, beyond;

		if (processes[i].lease != lease)
			continue;
		credit = credit_of(lease, &processes[i]);
		beyond = processes[i].bytes > credit ? processes[i].bytes - credit : 0;
		ret->seen_bytes = saturating_add(ret->seen_bytes, processes[i].bytes);
		ret->allowed_bytes =
			saturating_add(ret->allowed_bytes, lease->tenant->lease_tolerance);
		if (ret->worst != UINT32_MAX && beyond <= most)
			continue;
		ret->worst = i;
		most = beyond;
	}
}

void audit_begin_anew(struct lease *lease)
{
	lease->audited_bytes = lease_granted(lease);
}

unsigned int audit_step(struct audit_case *audit_case, enum policy_audit action, uint64_t list_ns,
			uint64_t now_ns)
{
	unsigned int steps = 0;

	if (action == POLICY_AUDIT_OFF || list_ns <= audit_case->noticed_ns)
		return 0;
	if (!audit_case->told_ns) {
		audit_case->told_ns = now_ns;
		steps |= AUDIT_TELL;
	}
	if (action != POLICY_AUDIT_STOP)
		return steps;
	if (!audit_case->terminated_ns) {
		audit_case->terminated_ns = now_ns;
		return steps | AUDIT_TERMINATE;
	}
	if (audit_case->is_killed || now_ns - audit_case->terminated_ns < AUDIT_KILL_NS)
		return steps;
	audit_case->is_killed = true;
	return steps | AUDIT_KILL;
}

const char *audit_spares(const struct audit_suspect *suspect, pid_t broker_pid,
			 uint64_t broker_started_ns)
{
	if (suspect->pid <= 1)
		return "it is the first process of the system";
	if (suspect->pid == broker_pid)
		return "it is the broker";
	/* Display servers and other programs that a machine needs run as root. */
	if (suspect->uid == 0)
		return "it runs as root";
	/* The process may have a lease of a broker that ended, and come back when it needs more. */
	if (!suspect->has_lease && suspect->started_ns < broker_started_ns)
		return "it started before the broker";
	return NULL;
}
