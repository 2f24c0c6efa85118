/* SPDX-License-Identifier: MIT */
/*
 * Lease enforcement: see enforce.h.
 *
 * A process is identified by a pidfd only. The pidfd is opened when a list of processes names a
 * process that exceeds its lease. If a list begun later names the process again, and the pidfd
 * still refers to a living process, then the list means this process. So a signal never hits
 * another process that got the same number meanwhile.
 *
 * The owner of a process (its tenant, whether it is root's) is read while its pidfd is open. It is
 * read from the contents of /proc, not from the owner of the /proc folder: the folder of a process
 * that forbids inspection belongs to root, so any process could hide behind that.
 *
 * At most MAX_CASES processes are followed at a time; others follow when a place is free. Nothing
 * is done while there are no leases and no tenant requires them.
 */
#include "lease/enforce.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lease/audit.h"
#include "lease/process.h"
#include "loop/loop.h"
#include "tenant/tenant.h"
#include "util/clock.h"
#include "util/dmem.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"

enum {
	MAX_CASES = 64,
	MAX_LOOKS = 32, /* members' cgroups read in a turn */
	MAX_CAPS = 128, /* leases' limits read in a turn */
};
static const uint64_t interval_ns = 1000000000, urgent_interval_ns = 100000000;
/* Duration of fast lists after a change, and pause between two such periods. */
static const uint64_t hurry_ns = 3000000000, hurry_pause_ns = 10000000000u;
/* Processes that use less are ignored. */
static const uint64_t least_bytes = 1 << 20;

/* A process that exceeds what it may use of a device. */
struct suspect {
	struct audit_case audit;
	pid_t pid;
	int pidfd; /* -1: free entry */
	uint8_t device;
	bool is_current;       /* named by the list being looked at */
	bool is_settled;       /* no further step is possible */
	uint32_t lease;        /* lease number; 0: none */
	struct tenant *tenant; /* counted */
	bool is_logged;
	char comm[TELEMETRY_COMM_BYTES];
};

struct enforce {
	struct enforce_options options;
	struct loop_timer *timer;
	bool is_armed;
	bool has_required; /* some tenant's programs must have leases */
	uint64_t started_ns;
	bool is_hurry_due;
	uint64_t hurry_until_ns, hurried_ns;
	/* number of the current round, in which each lease's limit is read once */
	uint64_t cap_round;
	uint64_t list_ns[RBK_MAX_DEVICES]; /* begin of the last list of processes looked at */
	struct log_limit limit;
	bool has_said_powerless;
	uint32_t n_suspects;
	struct suspect suspects[MAX_CASES];
	struct audit_process processes[TELEMETRY_MAX_PROCESSES]; /* processes of the current look */
	struct process_view view;
};

/* ---- Suspects ---- */

static void drop(struct enforce *enforce, struct suspect *suspect)
{
	close_fd(suspect->pidfd);
	tenant_unref(suspect->tenant);
	*suspect = (struct suspect){.pidfd = -1};
	enforce->n_suspects--;
}

static struct suspect *find_suspect(struct enforce *enforce, uint8_t device, pid_t pid)
{
	for (uint32_t i = 0; i < MAX_CASES; i++) {
		struct suspect *suspect = &enforce->suspects[i];

		if (suspect->pidfd >= 0 && suspect->device == device && suspect->pid == pid)
			return suspect;
	}
	return NULL;
}

/* Return: NULL: the process is gone, or there are too many suspects. */
static struct suspect *add_suspect(struct enforce *enforce, uint8_t device, pid_t pid)
{
	struct suspect *suspect = enforce->suspects;
	int fd;

	if (enforce->n_suspects == MAX_CASES || pid <= 0)
		return NULL;
	while (suspect->pidfd >= 0)
		suspect++;
	/* Debian 12's libc has pidfd_open(), but older headers do not. */
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return NULL;
	*suspect = (struct suspect){
		.pidfd = fd, .pid = pid, .device = device, .audit.noticed_ns = clock_now_ns()};
	enforce->n_suspects++;
	return suspect;
}

static bool is_alive(const struct suspect *suspect)
{
	struct pollfd poll_fd = {.fd = suspect->pidfd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 0;
}

/* ---- Steps ---- */

/* @what: "uses X bytes of device 1, ..." */
static void tell(struct enforce *enforce, struct suspect *suspect, uid_t uid, const char *what,
		 uint64_t now_ns)
{
	const char *name = tenant_name(suspect->tenant);
	const struct log_about *about = LOG_OF(.tenant = name, .pid = suspect->pid, .uid = uid,
					       .has_device = true, .device = suspect->device);
	uint64_t n_unlogged;

	if (!log_limit_pass(&enforce->limit, now_ns, &n_unlogged))
		return;
	suspect->is_logged = true;
	log_warning_of(about, suspect->lease ? LOG_LEASE_EXCEEDED : LOG_LEASE_LACKING,
		       "process %d (%s) of tenant %s %s%s", (int)suspect->pid, suspect->comm, name,
		       what, n_unlogged > 0 ? "; warnings before it were not logged" : "");
}

static void spare(struct suspect *suspect, const char *why)
{
	suspect->is_settled = true;
	log_warning_of(LOG_OF(.tenant = tenant_name(suspect->tenant), .pid = suspect->pid),
		       LOG_PROCESS_SPARED, "process %d (%s) is not stopped: %s", (int)suspect->pid,
		       suspect->comm, why);
}

static void stop(struct enforce *enforce, struct suspect *suspect, uid_t uid, bool kills,
		 uint64_t now_ns)
{
	const char *name = tenant_name(suspect->tenant);
	int r = (int)syscall(SYS_pidfd_send_signal, suspect->pidfd, kills ? SIGKILL : SIGTERM, NULL,
			     0);

	if (r < 0 && errno == ESRCH)
		return;
	if (r < 0) {
		suspect->is_settled = true;
		if (enforce->has_said_powerless)
			return;
		enforce->has_said_powerless = true;
		log_warning_of(LOG_OF(.tenant = name, .pid = suspect->pid), LOG_PROCESS_SPARED,
			       "process %d (%s) cannot be stopped: %s; lease-audit = stop needs "
			       "CAP_KILL for other users' processes (logged once)",
			       (int)suspect->pid, suspect->comm, strerror(errno));
		return;
	}
	/* Each process is logged at most twice. */
	log_warning_of(LOG_OF(.tenant = name, .pid = suspect->pid, .uid = uid, .has_device = true,
			      .device = suspect->device),
		       LOG_PROCESS_STOPPED, "process %d (%s) of tenant %s is stopped with %s",
		       (int)suspect->pid, suspect->comm, name, kills ? "SIGKILL" : "SIGTERM");
}

static void act(struct enforce *enforce, struct suspect *suspect, uint64_t started_ns,
		const char *what, uint64_t list_ns, uint64_t now_ns)
{
	enum policy_audit action = suspect->tenant->lease_audit;
	struct peer peer = {.pid = suspect->pid};
	gid_t groups[PROCESS_MAX_GROUPS];
	unsigned int steps;
	const char *why;

	suspect->is_current = true;
	steps = audit_step(&suspect->audit, action, list_ns, now_ns);
	/* The contents of /proc belong to the process only if it is still alive. */
	if ((!steps && (suspect->is_logged || !suspect->audit.told_ns)) ||
	    !process_user(&enforce->view, &peer, groups) || !is_alive(suspect))
		return;
	/* One message per second; suspects not logged now are logged later. */
	if (suspect->audit.told_ns && !suspect->is_logged)
		tell(enforce, suspect, peer.uid, what, now_ns);
	if (!(steps & (AUDIT_TERMINATE | AUDIT_KILL)) || suspect->is_settled)
		return;
	why = audit_spares(&(struct audit_suspect){.pid = suspect->pid,
						   .uid = peer.uid,
						   .has_lease = suspect->lease != 0,
						   .started_ns = started_ns},
			   getpid(), enforce->started_ns);
	if (why)
		spare(suspect, why);
	else
		stop(enforce, suspect, peer.uid, steps & AUDIT_KILL, now_ns);
}

/* ---- Looks ---- */

/*
 * Follow a process that uses more than its lease allows or, with @lease NULL, than it may without.
 */
static void suspect_process(struct enforce *enforce, uint8_t device,
			    const struct process_reading *reading,
			    const struct audit_process *process, const struct lease *lease,
			    const char *what, uint64_t list_ns, uint64_t now_ns)
{
	struct suspect *suspect = find_suspect(enforce, device, process->pid);
	struct tenant *tenant;

	if (suspect && (!is_alive(suspect) || (suspect->lease != 0) != (lease != NULL))) {
		drop(enforce, suspect);
		suspect = NULL;
	}
	if (!suspect)
		suspect = add_suspect(enforce, device, process->pid);
	if (!suspect)
		return;
	tenant = lease ? tenant_ref(lease->tenant) : process_tenant(&enforce->view, process->pid);
	if (!tenant) {
		drop(enforce, suspect);
		return;
	}
	tenant_unref(suspect->tenant);
	suspect->tenant = tenant;
	suspect->lease = lease ? lease->number : 0;
	snprintf(suspect->comm, sizeof(suspect->comm), "%s", reading->comm);
	/* The process may have moved to a tenant that may use what it likes. */
	if (tenant->lease_audit == POLICY_AUDIT_OFF ||
	    (!lease && (!tenant->is_lease_required || process->bytes <= tenant->lease_tolerance)))
		return;
	act(enforce, suspect, process->started_ns, what, list_ns, now_ns);
}

/* Return true if the process uses next to nothing, as far as the list tells. */
static bool is_missing(const struct enforce *enforce, pid_t pid, const struct lease *lease,
		       uint32_t n, const struct device_reading *reading)
{
	for (uint32_t i = 0; i < n; i++)
		if (enforce->processes[i].pid == pid && enforce->processes[i].lease == lease)
			return false;
	return !reading->processes_are_partial;
}

/*
 * Correct the credit of members that came back from a broker that ended and use more than they
 * told.
 */
static void confirm_lease(struct enforce *enforce, struct lease *lease, uint32_t n,
			  const struct device_reading *reading, uint64_t now_ns)
{
	uint64_t before = lease->credited_bytes, n_unlogged;
	const char *name = tenant_name(lease->tenant);

	for (uint32_t i = 0; i < n; i++) {
		const struct audit_process *process = &enforce->processes[i];
		const struct lease_member *member;

		if (process->lease != lease)
			continue;
		member = audit_confirm(lease, process, reading->processes_ns.value,
				       lease->tenant->lease_audit == POLICY_AUDIT_OFF);
		if (member && log_limit_pass(&enforce->limit, now_ns, &n_unlogged))
			log_warning_of(
				LOG_OF(.tenant = name, .pid = process->pid, .has_device = true,
				       .device = lease->device),
				LOG_LEASE_CORRECTED,
				"process %d (%s) of tenant %s reconnected with %llu bytes "
				"of lease %u, and uses %llu bytes of device %u: it is "
				"charged for %llu%s",
				(int)process->pid, reading->processes[i].comm, name,
				ull(lease_own_credit(member)), lease->number, ull(process->bytes),
				lease->device, ull(member->credit_bytes),
				n_unlogged > 0 ? "; corrections before it were not logged" : "");
	}
	list_for_each (node, &lease->members) {
		struct lease_member *member = container_of(node, struct lease_member, link);

		if (member->corrected_bytes > 0 &&
		    is_missing(enforce, member->pid, lease, n, reading))
			lease_correct(member, 0);
	}
	if (lease->credited_bytes != before)
		enforce->options.corrected(enforce->options.context, lease->device);
}

static void look_at_lease(struct enforce *enforce, struct lease *lease, uint32_t n,
			  const struct device_reading *reading, uint64_t now_ns)
{
	struct audit_sum sum;
	char what[256];

	confirm_lease(enforce, lease, n, reading, now_ns);
	audit_add_up(lease, enforce->processes, n, &sum);
	lease->is_over = sum.seen_bytes > sum.allowed_bytes;
	if (lease->is_over) {
		snprintf(what, sizeof(what),
			 "uses %llu bytes of device %u, and lease %u allows all of its processes "
			 "together %llu, including driver overhead, but they use %llu",
			 ull(enforce->processes[sum.worst].bytes), lease->device, lease->number,
			 ull(sum.allowed_bytes), ull(sum.seen_bytes));
		suspect_process(enforce, lease->device, &reading->processes[sum.worst],
				&enforce->processes[sum.worst], lease, what,
				reading->processes_ns.value, now_ns);
	}
	audit_begin_anew(lease);
}

static void look_at_others(struct enforce *enforce, uint8_t device, uint32_t n,
			   const struct device_reading *reading, uint64_t now_ns)
{
	char what[256];

	for (uint32_t i = 0; i < n; i++) {
		const struct audit_process *process = &enforce->processes[i];

		if (process->lease || process->started_ns == 0)
			continue;
		snprintf(what, sizeof(what), "uses %llu bytes of device %u, and has no lease of it",
			 ull(process->bytes), device);
		suspect_process(enforce, device, &reading->processes[i], process, NULL, what,
				reading->processes_ns.value, now_ns);
	}
}

/* Drop suspects that the list does not name any more. */
static void forget_others(struct enforce *enforce, uint8_t device)
{
	for (uint32_t i = 0; i < MAX_CASES; i++) {
		struct suspect *suspect = &enforce->suspects[i];

		if (suspect->pidfd < 0 || suspect->device != device)
			continue;
		if (suspect->is_current)
			suspect->is_current = false;
		else
			drop(enforce, suspect);
	}
}

/*
 * Return true if a process of the tenant was warned about, and the tenant's policy is to lower it.
 */
static bool is_to_be_lowered(const struct enforce *enforce, const struct tenant *tenant)
{
	if (tenant->lease_audit != POLICY_AUDIT_PRIORITY)
		return false;
	for (uint32_t i = 0; i < MAX_CASES; i++) {
		const struct suspect *suspect = &enforce->suspects[i];

		if (suspect->pidfd >= 0 && suspect->tenant == tenant && suspect->audit.told_ns)
			return true;
	}
	return false;
}

static void lower_tenants(struct enforce *enforce)
{
	struct tenants *tenants = enforce->options.tenants;
	bool is_any = false;

	for (struct tenant *tenant = tenants_first(tenants); tenant;
	     tenant = tenants_next(tenants, tenant)) {
		bool is_lowered = is_to_be_lowered(enforce, tenant);

		if (is_lowered == tenant->is_lowered)
			continue;
		is_any = true;
		tenant_set_lowered(tenant, is_lowered);
		log_warning_of(LOG_OF(.tenant = tenant_name(tenant)), LOG_TENANT_LOWERED,
			       is_lowered ? "tenant %s is served after other tenants until its "
					    "processes keep to their leases"
					  : "tenant %s is served normally again: its processes "
					    "keep to their leases",
			       tenant_name(tenant));
	}
	if (is_any)
		enforce->options.lowered(enforce->options.context);
}

/* Return the lease of a process by its connections, or else by its cgroup. */
static struct lease *find_lease(struct enforce *enforce, uint8_t device, pid_t pid,
				uint64_t started_ns)
{
	const struct leases *leases = enforce->options.leases;
	struct lease *lease = audit_find_lease(leases, device, pid, started_ns);

	if (!lease)
		return process_find_lease(&enforce->view, leases, device, pid);
	if (lease->cgroup_id && !process_is_in(&enforce->view, pid, lease->cgroup_id))
		lease->has_outside = true;
	return lease;
}

struct lease *enforce_find_lease(struct enforce *enforce, uint8_t device, pid_t pid,
				 bool *ret_is_member)
{
	const struct leases *leases = enforce->options.leases;
	const uint64_t started_ns = process_start(&enforce->view, pid);
	struct lease *lease = started_ns ? audit_find_lease(leases, device, pid, started_ns) : NULL;

	*ret_is_member = lease != NULL;
	return lease ? lease : process_find_lease(&enforce->view, leases, device, pid);
}

void enforce_look(struct enforce *enforce, uint8_t device, const struct device_reading *reading,
		  uint64_t now_ns)
{
	uint32_t n = 0;

	if (!reading->processes_ns.is_valid ||
	    reading->processes_ns.value == enforce->list_ns[device])
		return;
	enforce->list_ns[device] = reading->processes_ns.value;
	list_for_each (node, &enforce->options.leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		lease->has_outside &= lease->device != device;
	}
	for (; n < reading->n_processes; n++) {
		const struct process_reading *process = &reading->processes[n];
		struct audit_process *seen = &enforce->processes[n];

		*seen = (struct audit_process){.pid = process->pid};
		/* The pool that leases are taken from: see telemetry_pool(). */
		seen->bytes =
			process->vram_bytes + (reading->is_integrated ? process->gtt_bytes : 0);
		if (seen->bytes < least_bytes || process->pid == getpid())
			continue;
		seen->started_ns = process_start(&enforce->view, process->pid);
		if (seen->started_ns)
			seen->lease = find_lease(enforce, device, process->pid, seen->started_ns);
	}
	list_for_each (node, &enforce->options.leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (lease->device == device)
			look_at_lease(enforce, lease, n, reading, now_ns);
	}
	if (enforce->has_required)
		look_at_others(enforce, device, n, reading, now_ns);
	forget_others(enforce, device);
	lower_tenants(enforce);
}

/* ---- Limits that the kernel enforces ---- */

/*
 * Return true if all members with credit are in the lease's cgroup. A call reads some members'
 * cgroups, in turns. For the others the last result counts; a member that has just joined counts as
 * outside.
 */
static bool look_at_members(struct enforce *enforce, struct lease *lease, uint32_t *n_left)
{
	bool is_any_outside = false;

	for (uint32_t n = lease->n_members; n > 0 && *n_left > 0; n--) {
		struct lease_member *member =
			container_of(lease->members.next, struct lease_member, link);

		list_remove(&member->link);
		list_append(&lease->members, &member->link);
		if (member->credit_bytes == 0)
			continue;
		member->is_inside = process_is_in(&enforce->view, member->pid, lease->cgroup_id);
		--*n_left;
	}
	list_for_each (node, &lease->members) {
		const struct lease_member *member = container_of(node, struct lease_member, link);

		is_any_outside |= member->credit_bytes > 0 && !member->is_inside;
	}
	return !is_any_outside;
}

/* Return true if the kernel limits the lease's cgroup, whatever its members do. */
static bool is_held_to(const struct lease *lease)
{
	const char *memory = lease->leases->dmem_memory[lease->device];
	uint64_t most = lease->limit_bytes < lease->allowed_bytes ? lease->limit_bytes
								  : lease->allowed_bytes;
	char region[DMEM_REGION_BYTES];
	uint64_t bytes;

	if (most < lease_granted(lease))
		most = lease_granted(lease);
	return memory[0] && dmem_find(lease->cgroup_fd, memory, region) == 0 &&
	       dmem_read(lease->cgroup_fd, "dmem.max", region, &bytes) == 0 && bytes <= most;
}

/* Look at some leases, in turns: there may be many, and each takes system calls. */
void enforce_look_at_caps(struct enforce *enforce)
{
	uint32_t n_members = MAX_LOOKS, n_leases = 0;

	list_for_each (node, &enforce->options.leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (!lease->cgroup_id || lease->cap_round == enforce->cap_round)
			continue;
		if (n_leases++ == MAX_CAPS)
			return;
		lease->cap_round = enforce->cap_round;
		lease->is_capped = is_held_to(lease) &&
				   look_at_members(enforce, lease, &n_members) &&
				   !lease->has_outside;
	}
	enforce->cap_round++;
}

static bool is_wanted(const struct enforce *enforce)
{
	return enforce->has_required || enforce->options.leases->n > 0 || enforce->n_suspects > 0;
}

/* Return true if a suspect is still to be confirmed by a list, logged, or killed. */
bool enforce_is_urgent(const struct enforce *enforce)
{
	if (!enforce || !is_wanted(enforce))
		return false;
	for (uint32_t i = 0; i < MAX_CASES; i++) {
		const struct suspect *suspect = &enforce->suspects[i];
		const struct audit_case *audit = &suspect->audit;

		if (suspect->pidfd < 0 || suspect->is_settled)
			continue;
		if (!audit->told_ns || !suspect->is_logged ||
		    (audit->terminated_ns && !audit->is_killed))
			return true;
	}
	return enforce->hurry_until_ns > 0 && clock_now_ns() < enforce->hurry_until_ns;
}

/* Begin a period of fast lists, unless the last one began too recently. */
static void hurry(struct enforce *enforce)
{
	uint64_t now_ns = clock_now_ns();

	if (!enforce->is_hurry_due ||
	    (enforce->hurried_ns && now_ns - enforce->hurried_ns < hurry_pause_ns))
		return;
	enforce->is_hurry_due = false;
	enforce->hurried_ns = now_ns;
	enforce->hurry_until_ns = now_ns + hurry_ns;
}

static void on_timer(void *data)
{
	struct enforce *enforce = data;
	struct device_reading reading;

	enforce->is_armed = false;
	for (uint32_t i = RBK_DEVICE_GPU; i < enforce->options.n_devices; i++) {
		if (telemetry_read(enforce->options.telemetry, i, &reading))
			enforce_look(enforce, (uint8_t)i, &reading, clock_now_ns());
	}
	enforce_look_at_caps(enforce);
	if (!enforce->has_required && enforce->options.leases->n == 0) {
		for (uint32_t i = 0; i < MAX_CASES; i++)
			if (enforce->suspects[i].pidfd >= 0)
				drop(enforce, &enforce->suspects[i]);
		lower_tenants(enforce);
	}
	hurry(enforce);
	enforce_wake(enforce);
}

void enforce_wake(struct enforce *enforce)
{
	bool is_wanted_now = is_wanted(enforce);

	if (enforce->is_armed || !is_wanted_now || !enforce->timer)
		return;
	enforce->is_armed = true;
	loop_timer_arm(enforce->timer,
		       enforce_is_urgent(enforce) ? urgent_interval_ns : interval_ns);
}

void enforce_outside_changed(struct enforce *enforce)
{
	if (!is_wanted(enforce))
		return;
	enforce->is_hurry_due = true;
	hurry(enforce);
}

void enforce_policy_changed(struct enforce *enforce)
{
	const struct tenants *tenants = enforce->options.tenants;

	enforce->has_required = false;
	for (struct tenant *tenant = tenants_first(tenants); tenant;
	     tenant = tenants_next(tenants, tenant))
		enforce->has_required |= tenant->is_named && tenant->is_lease_required &&
					 tenant->lease_audit != POLICY_AUDIT_OFF;
	enforce_wake(enforce);
}

int enforce_new(const struct enforce_options *options, struct enforce **ret)
{
	_cleanup_(enforce_freep) struct enforce *enforce = calloc(1, sizeof(*enforce));
	int r;

	if (!enforce)
		return error_origin(-ENOMEM);
	enforce->options = *options;
	enforce->started_ns = clock_boot_ns();
	enforce->cap_round = 1; /* new leases have round 0 */
	process_view_init(&enforce->view, options->proc, options->cgroups, options->tenants);
	for (uint32_t i = 0; i < MAX_CASES; i++)
		enforce->suspects[i].pidfd = -1;
	if (options->loop) {
		r = loop_timer_new(options->loop, on_timer, enforce, &enforce->timer);
		if (r)
			return error_fold(r);
	}
	enforce_policy_changed(enforce);
	*ret = steal_ptr(enforce);
	return 0;
}

struct enforce *enforce_free(struct enforce *enforce)
{
	if (!enforce)
		return NULL;
	loop_timer_free(enforce->timer);
	for (uint32_t i = 0; i < MAX_CASES; i++)
		if (enforce->suspects[i].pidfd >= 0)
			drop(enforce, &enforce->suspects[i]);
	free(enforce);
	return NULL;
}
