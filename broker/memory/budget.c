/* SPDX-License-Identifier: MIT */
/*
 * Budget: the memory of each device that all tenants together may use: see budget.h.
 *
 * A sample and the executors' count are read one after the other, and a load may come between. So
 * the overhead is the least of the last OVERHEAD_SAMPLES differences: it changes slowly, and a load
 * between the readings can only add to a difference.
 *
 * The same samples show that a device has lost its memory, is gone, or is present again, which
 * tasks would find out only by failing. They also show that the driver moved device memory to the
 * host (spill.h). While such an event is pending, a timer looks at the samples as well as the
 * waker.
 *
 * The memory of processes with leases is charged to their tenants when it is granted, and the
 * samples contain it, too. So outside use is reduced by the bytes that the processes use according
 * to the kernel, or to themselves, at most the bytes granted. The kernel's list of processes may be
 * seconds old. If the leases have changed since, all bytes credited to members count as used, and
 * samples are taken more often until there is a newer list. If that is too much, other tenants may
 * use the difference meanwhile.
 *
 * EXEC_TIER_GTT has half of the host memory that the driver offers and others do not use, since the
 * CPU's side of the machine uses host memory as well.
 */
#include "memory/budget.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "lease/busy.h"
#include "lease/enforce.h"
#include "loop/loop.h"
#include "memory/residency.h"
#include "memory/spill.h"
#include "tenant/tenant.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"
#include "util/waker.h"

enum { OVERHEAD_SAMPLES = 8, GROWTH_BYTES = 4 << 20 };
static const uint64_t look_again_ns = 20000000;
static const uint64_t look_at_leases_ns = 100000000;
/* Lists of processes, with the times that leased programs used, ring no waker. */
static const uint64_t look_at_times_ns = 1000000000;
/* Telemetry finds a returned device within this time. */
static const uint64_t find_again_ns = 1500000000;

struct budget_device {
	struct charge overhead; /* charge to the broker's account */
	uint64_t overheads[OVERHEAD_SAMPLES];
	uint32_t n_overheads;
	uint32_t n_samples; /* value at the last look */
	uint64_t usable_bytes;
	uint64_t leased_bytes; /* bytes of leases that programs use */
	struct busy_seen busy; /* the last list of processes looked at */
	struct beside_device beside;
	uint64_t n_changes; /* leases.n_changes at that time */
	uint64_t outside_bytes;
	bool has_grown_outside; /* since that time: perhaps leased programs allocated */
	bool has_warned;
	bool was_gone;
	struct reading n_vram_lost; /* value at the last look */
	uint32_t n_reopened;        /* value at the last look */
	/* time at which a reopening was first seen while the device was gone */
	uint64_t reopened_ns;
	struct spill spill;
};

struct budget {
	struct budget_options options;
	struct loop_watch *watch;
	struct loop_timer *timer, *lease_timer;
	uint64_t lease_timer_ns; /* when it is due; UINT64_MAX: not armed */
	enum telemetry_pace pace;
	struct budget_device devices[RBK_MAX_DEVICES];
};

void budget_compute(const struct memory_reading *pool, uint64_t total_bytes,
		    uint64_t headroom_bytes, uint64_t allocated_bytes, uint64_t leased_bytes,
		    struct budget_figures *ret)
{
	uint64_t own = pool->own.is_valid ? pool->own.value : allocated_bytes;
	uint64_t used = pool->used.is_valid ? pool->used.value : own;
	uint64_t device_bytes = pool->usable.is_valid  ? pool->usable.value
				: pool->total.is_valid ? pool->total.value
						       : total_bytes;

	ret->outside_bytes = saturating_sub(saturating_sub(used, own), leased_bytes);
	ret->overhead_bytes = saturating_sub(own, allocated_bytes);
	ret->usable_bytes = saturating_sub(device_bytes, ret->outside_bytes + ret->overhead_bytes +
								 headroom_bytes);
	if (ret->usable_bytes > total_bytes)
		ret->usable_bytes = total_bytes;
}

static uint64_t least_overhead(struct budget_device *device, uint64_t bytes)
{
	uint64_t least = bytes;

	device->overheads[device->n_overheads++ % OVERHEAD_SAMPLES] = bytes;
	for (uint32_t i = 0; i < OVERHEAD_SAMPLES && i < device->n_overheads; i++)
		if (device->overheads[i] < least)
			least = device->overheads[i];
	return least;
}

static void charge_overhead(struct budget *budget, unsigned int index, uint64_t bytes)
{
	struct budget_device *device = &budget->devices[index];

	account_charge_set(tenants_broker_account(budget->options.tenants), &device->overhead,
			   account_vram(index), bytes);
	if (bytes <= BUDGET_OVERHEAD_BYTES || device->has_warned)
		return;
	device->has_warned = true;
	log_warning_of(
		LOG_OF_DEVICE(index), LOG_DEVICE_OVERHEAD,
		"device %u: its driver holds %llu MiB for the broker beyond what tenants are "
		"charged, more than the %llu MiB expected",
		index, ull(bytes >> 20), ull(BUDGET_OVERHEAD_BYTES >> 20));
}

/* Return half of the host memory that the device could use and other processes do not. */
static uint64_t usable_gtt(const struct device_reading *reading, const struct executor_info *info)
{
	const struct memory_reading *gtt = &reading->gtt;
	uint64_t outside = 0;

	if (gtt->used.is_valid && gtt->own.is_valid)
		outside = saturating_sub(gtt->used.value, gtt->own.value);
	return saturating_sub(info->gtt_bytes, outside) / 2;
}

/* Return: true if the device can be used, as far as the sample tells. */
static bool look_at_losses(struct budget *budget, unsigned int index,
			   const struct device_reading *reading)
{
	struct residency *residency = budget->options.residency;
	struct budget_device *device = &budget->devices[index];
	uint32_t n_reopened = residency_n_reopened(residency, index);
	struct reading before = device->n_vram_lost;

	if (reading->state == TELEMETRY_GONE) {
		if (device->was_gone && device->n_reopened != n_reopened)
			device->reopened_ns = clock_now_ns();
		/*
		 * Residency may reopen the device before telemetry finds it; then the device may be
		 * lost again.
		 */
		if (!device->was_gone || reading->sampled_ns > device->reopened_ns + find_again_ns)
			residency_device_gone(residency, index, "the kernel no longer lists it");
		device->was_gone = true;
		device->n_reopened = n_reopened;
		loop_timer_arm(budget->timer, find_again_ns / 2);
		return false;
	}
	device->n_vram_lost = reading->n_vram_lost;
	if (reading->n_resets.is_valid)
		resets_seen(&residency_leases(residency)->resets, (uint8_t)index,
			    reading->n_resets.value, clock_now_ns());
	if (device->was_gone) {
		device->was_gone = false;
		device->n_reopened = n_reopened;
		residency_device_present(residency, index);
		return true;
	}
	/* If the device was reopened meanwhile, a task has found the loss already. */
	if (before.is_valid && reading->n_vram_lost.is_valid &&
	    before.value != reading->n_vram_lost.value && device->n_reopened == n_reopened)
		residency_device_gone(residency, index, "it was reset and lost its memory");
	device->n_reopened = n_reopened;
	return true;
}

/*
 * Reload plans whose memory the driver moved to the host, one plan at a time, when there is room.
 */
static void look_at_spill(struct budget *budget, unsigned int index, uint64_t own_bytes,
			  uint64_t allocated_bytes, uint64_t usable_bytes)
{
	struct spill *spill = &budget->devices[index].spill;
	bool has_more;

	switch (spill_sample(spill, own_bytes, allocated_bytes, clock_now_ns())) {
	case SPILL_NOTICED:
		log_warning_of(
			LOG_OF_DEVICE(index), LOG_DEVICE_SPILLED,
			"device %u: its driver moved %llu MiB that are in use to host memory, "
			"where access is slow; the broker moves them back when there is room",
			index, ull(spill->missing_bytes >> 20));
		break;
	case SPILL_MENDED:
		log_info_of(LOG_OF_DEVICE(index), LOG_DEVICE_UNSPILLED,
			    "device %u: all memory in use is in device memory again", index);
		break;
	default:
		break;
	}
	if (!spill_wants_mending(spill) || usable_bytes < allocated_bytes)
		return;
	has_more = residency_renew(budget->options.residency, index, spill->since_ns);
	if (!has_more)
		log_warning_of(
			LOG_OF_DEVICE(index), LOG_DEVICE_SPILLED,
			"device %u: its driver keeps %llu MiB in host memory although device "
			"memory has room",
			index, ull(spill->missing_bytes >> 20));
	spill_tried(spill, !has_more);
}

/* Return: true if the kernel's list tells how much memory a process holds. */
static bool find_process(const struct device_reading *reading, pid_t pid, uint64_t *ret_bytes)
{
	for (uint32_t i = 0; i < reading->n_processes; i++) {
		const struct process_reading *process = &reading->processes[i];

		if (process->pid != pid)
			continue;
		/*
		 * Add up the memory of the pool that the process allocates from: see
		 * telemetry_pool().
		 */
		*ret_bytes =
			process->vram_bytes + (reading->is_integrated ? process->gtt_bytes : 0);
		return true;
	}
	*ret_bytes = 0;
	return !reading->processes_are_partial && pid > 0;
}

/* Return true for the first of a process's members of a lease, so that the process counts once. */
static bool is_first_of_pid(const struct lease *lease, const struct lease_member *member)
{
	list_for_each (node, &lease->members) {
		const struct lease_member *other = container_of(node, struct lease_member, link);

		if (other->pid == member->pid)
			return other == member;
	}
	return false;
}

/* The lease whose programs a process belongs to; NULL: none. */
struct owner {
	struct lease *lease;
	bool is_member; /* the process is a member; otherwise it is in the lease's cgroup */
};

static bool is_member(const struct lease *lease, pid_t pid)
{
	list_for_each (node, &lease->members)
		if (container_of(node, struct lease_member, link)->pid == pid)
			return true;
	return false;
}

/* Return the first lease of a device that a process is a member of. NULL: there is none. */
static struct lease *find_membership(const struct leases *leases, unsigned int index, pid_t pid)
{
	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (lease->device == index && is_member(lease, pid))
			return lease;
	}
	return NULL;
}

static bool has_leases(const struct leases *leases, unsigned int index)
{
	list_for_each (node, &leases->all)
		if (container_of(node, struct lease, link)->device == index)
			return true;
	return false;
}

static void find_owners(struct budget *budget, unsigned int index,
			const struct device_reading *reading,
			struct owner owners[static TELEMETRY_MAX_PROCESSES])
{
	const struct leases *leases = residency_leases(budget->options.residency);
	struct enforce *enforce = budget->options.enforce;

	/* Finding out about processes takes system calls. */
	for (uint32_t i = 0; i < reading->n_processes && has_leases(leases, index); i++) {
		pid_t pid = reading->processes[i].pid;

		if (enforce) {
			owners[i].lease = enforce_find_lease(enforce, (uint8_t)index, pid,
							     &owners[i].is_member);
			continue;
		}
		owners[i].lease = find_membership(leases, index, pid);
		owners[i].is_member = owners[i].lease != NULL;
	}
}

static void see_lease(struct lease *lease, const struct device_reading *reading,
		      const struct owner owners[static TELEMETRY_MAX_PROCESSES])
{
	lease->is_seen = lease->n_members > 0;
	lease->seen_bytes = 0;
	list_for_each (node, &lease->members) {
		const struct lease_member *member = container_of(node, struct lease_member, link);
		uint64_t bytes;

		if (!is_first_of_pid(lease, member))
			continue;
		lease->is_seen &= find_process(reading, member->pid, &bytes);
		lease->seen_bytes += bytes;
	}
	for (uint32_t i = 0; i < reading->n_processes; i++) {
		uint64_t bytes;

		if (owners[i].lease != lease || is_member(lease, reading->processes[i].pid))
			continue;
		find_process(reading, reading->processes[i].pid, &bytes);
		lease->seen_bytes += bytes;
	}
}

/*
 * Return the part of the time between two lists for which the lease was open; its programs may have
 * used the device before.
 */
static uint64_t open_ns(const struct lease *lease, const struct busy_times *times)
{
	const uint64_t age_ns = clock_ticks_to_ns(clock_ticks()) - lease->opened_ns;
	const uint64_t opened_ns = clock_now_ns() - age_ns;
	const uint64_t end_ns = times->since_ns + times->elapsed_ns;

	if (opened_ns <= times->since_ns)
		return times->elapsed_ns;
	return opened_ns < end_ns ? end_ns - opened_ns : 0;
}

/*
 * Count the time of the device that the programs of a lease have used since the last look, and
 * charge its tenant.
 */
static void time_lease(const struct budget *budget, struct lease *lease,
		       const struct busy_times *times,
		       const struct owner owners[static TELEMETRY_MAX_PROCESSES])
{
	const struct budget_options *options = &budget->options;
	uint64_t busy_ns = 0;

	for (uint32_t i = 0; i < TELEMETRY_MAX_PROCESSES; i++) {
		if (owners[i].lease != lease || !times->processes[i].is_valid)
			continue;
		lease->has_busy = true;
		busy_ns += times->processes[i].value;
	}
	busy_ns = min_u64(busy_ns, open_ns(lease, times));
	lease->busy_percent = times->elapsed_ns > 0 ? busy_ns * 100 / times->elapsed_ns : 0;
	lease->busy_at_ns = clock_now_ns();
	lease->busy_ns += busy_ns;
	if (busy_ns > 0 && options->leased_time)
		options->leased_time(options->context, lease->tenant, lease->device, busy_ns);
}

/* ---- Time beside timeslices ---- */

/* Return the index of the lease's process for which the device worked longest. */
static uint32_t busiest_of(const struct lease *lease, const struct busy_times *times,
			   const struct owner owners[static TELEMETRY_MAX_PROCESSES])
{
	uint32_t best = 0;
	uint64_t most_ns = 0;

	for (uint32_t i = 0; i < TELEMETRY_MAX_PROCESSES; i++)
		if (owners[i].lease == lease && times->processes[i].is_valid &&
		    times->processes[i].value >= most_ns) {
			best = i;
			most_ns = times->processes[i].value;
		}
	return best;
}

static void tell_lease(struct lease *lease, const struct process_reading *process,
		       uint64_t beside_ns)
{
	const char *tenant = tenant_name(lease->tenant);
	const uint64_t now_ns = clock_now_ns();

	if (lease->tenant->lease_audit == POLICY_AUDIT_OFF ||
	    (lease->beside.told_ns && now_ns - lease->beside.told_ns < BESIDE_AGAIN_NS))
		return;
	lease->beside.told_ns = now_ns;
	log_warning_of(LOG_OF(.tenant = tenant, .pid = process->pid, .uid = process->uid,
			      .has_device = true, .device = lease->device),
		       LOG_LEASE_BESIDE,
		       "lease %u of \"%s\", tenant %s: in about 10 s its programs, most of them "
		       "process %d (%s), used device %u for %.1f s beside the lease's timeslices: "
		       "a program without a priority, or one that bypasses the layer",
		       lease->number, lease->name, tenant, (int)process->pid, process->comm,
		       lease->device, (double)beside_ns * 1e-9);
}

static void tell_users(struct beside_users *users)
{
	for (uint32_t i = 0; i < users->n; i++) {
		struct beside_user *user = &users->users[i];

		if (user->is_told)
			continue;
		user->is_told = true;
		log_info_of(LOG_OF(.pid = user->pid, .uid = user->uid, .has_device = true,
				   .device = user->device),
			    LOG_OUTSIDE_TIME,
			    "process %d (%s) of uid %u has no lease, and used device %u, which "
			    "leases share, for %llu%% of about 10 s: it is not held back",
			    (int)user->pid, user->comm, (unsigned int)user->uid, user->device,
			    ull(user->busy_percent));
	}
}

/* Return true if the process shares the device as a member of the lease. */
static bool is_sharing(const struct lease *lease, pid_t pid)
{
	list_for_each (node, &lease->members) {
		const struct lease_member *member = container_of(node, struct lease_member, link);

		if (member->pid == pid && member->timeslice.is_sharing)
			return true;
	}
	return false;
}

/* Compare the time since the last look with that of timeslices, while leases share the device. */
static void look_beside(struct budget *budget, unsigned int index,
			const struct device_reading *reading, const struct busy_times *times,
			const struct owner owners[static TELEMETRY_MAX_PROCESSES])
{
	struct leases *leases = residency_leases(budget->options.residency);
	struct beside_device *device = &budget->devices[index].beside;
	const bool is_shared = leases->timeslices.devices[index].n_leases > 0;

	if (is_shared && budget->options.count_timeslices)
		budget->options.count_timeslices(budget->options.context);
	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);
		struct beside_times beside = {.elapsed_ns = times->elapsed_ns};
		uint64_t beside_ns;

		if (lease->device != index || lease->timeslice.n_members == 0)
			continue;
		for (uint32_t i = 0; i < reading->n_processes; i++) {
			const uint64_t ns = times->processes[i].value;

			if (owners[i].lease != lease)
				continue;
			if (is_sharing(lease, reading->processes[i].pid))
				beside.busy_ns += ns;
			else
				beside.other_ns += ns;
		}
		beside_ns = beside_look_at_lease(lease, &beside);
		lease->tenant->leases->shared.beside_ns += beside_ns;
		if (beside_ns > 0)
			tell_lease(lease, &reading->processes[busiest_of(lease, times, owners)],
				   beside_ns);
	}
	for (uint32_t i = 0; i < reading->n_processes && is_shared; i++)
		if (!owners[i].lease && reading->processes[i].pid != getpid() &&
		    times->processes[i].value > 0)
			beside_add_user(device, &reading->processes[i], times->processes[i].value);
	beside_end_look(&leases->beside, device, (uint8_t)index, is_shared, times->elapsed_ns);
	tell_users(&leases->beside);
}

/* Return true if leases changed after the last list of processes. */
static bool has_lease_changes(const struct budget *budget, unsigned int index)
{
	const struct leases *leases = residency_leases(budget->options.residency);
	const struct budget_device *device = &budget->devices[index];

	return (leases->n > 0 || device->leased_bytes > 0) &&
	       (device->n_changes != leases->n_changes || device->has_grown_outside);
}

/* Return the bytes that programs use of their leases, as far as is known. */
static uint64_t look_at_leases(struct budget *budget, unsigned int index,
			       const struct device_reading *reading)
{
	const struct budget_options *options = &budget->options;
	struct leases *leases = residency_leases(options->residency);
	struct budget_device *device = &budget->devices[index];
	struct owner owners[TELEMETRY_MAX_PROCESSES] = {{.lease = NULL}};
	struct busy_times times;
	bool is_new = busy_look(&device->busy, reading, getpid(), &times);
	uint64_t sum = 0;

	if (is_new || !reading->processes_ns.is_valid) {
		device->n_changes = leases->n_changes;
		device->has_grown_outside = false;
	}
	if (is_new) {
		find_owners(budget, index, reading, owners);
		if (options->engine_time)
			options->engine_time(options->context, (uint8_t)index, times.own_ns,
					     times.others_ns);
	}
	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);
		uint64_t bytes = lease->used_bytes + lease->extra_bytes;

		if (lease->device != index)
			continue;
		if (is_new) {
			see_lease(lease, reading, owners);
			time_lease(budget, lease, &times, owners);
		}
		if (lease->is_seen && lease->seen_bytes > bytes)
			bytes = lease->seen_bytes;
		if (has_lease_changes(budget, index) && lease->credited_bytes > bytes)
			bytes = lease->credited_bytes;
		sum += bytes < lease_granted(lease) ? bytes : lease_granted(lease);
	}
	if (is_new)
		look_beside(budget, index, reading, &times, owners);
	return sum;
}

static void look(struct budget *budget, unsigned int index)
{
	struct executor *executor = budget->options.executors[index];
	const struct policy *policy = tenants_policy(budget->options.tenants);
	const struct executor_info *info = &executor->info;
	struct budget_device *device = &budget->devices[index];
	struct device_reading reading = {.state = TELEMETRY_PRESENT};
	uint64_t headroom_bytes = 0, overhead_bytes, allocated_bytes;
	uint32_t n_samples = telemetry_n_samples(budget->options.telemetry, index);
	struct budget_figures figures;
	struct memory_reading pool;

	if (info->memory_page_bytes == 0)
		return;
	telemetry_read(budget->options.telemetry, index, &reading);
	if (!look_at_losses(budget, index, &reading))
		return;

	if (!budget->options.is_capped && info->kind != EXECUTOR_SOFTWARE_GPU)
		headroom_bytes = policy_size_bytes(policy_headroom(policy), info->memory_bytes);
	pool = telemetry_pool(&reading);
	allocated_bytes = executor->ops->memory_used(executor, EXEC_TIER_VRAM);
	device->leased_bytes = look_at_leases(budget, index, &reading);
	budget_compute(&pool, info->memory_bytes, headroom_bytes, allocated_bytes,
		       device->leased_bytes, &figures);
	if (figures.outside_bytes > device->outside_bytes + GROWTH_BYTES)
		device->has_grown_outside = true;
	device->outside_bytes = figures.outside_bytes;
	overhead_bytes = least_overhead(device, figures.overhead_bytes);
	figures.usable_bytes += figures.overhead_bytes - overhead_bytes;
	if (figures.usable_bytes > info->memory_bytes)
		figures.usable_bytes = info->memory_bytes;
	device->usable_bytes = figures.usable_bytes;
	charge_overhead(budget, index, overhead_bytes);
	log_debug(
		LOG_DETAIL,
		"device %u: %llu KiB used by other programs, %llu by the broker, of which %llu are "
		"allocated: %llu are usable",
		index, ull(figures.outside_bytes >> 10), ull(pool.own.value >> 10),
		ull(allocated_bytes >> 10), ull(figures.usable_bytes >> 10));
	residency_set_outside(budget->options.residency, index, figures.outside_bytes);
	residency_set_usable(budget->options.residency, index, figures.usable_bytes,
			     usable_gtt(&reading, info));
	if (n_samples != device->n_samples && pool.own.is_valid && pool.used.is_valid)
		look_at_spill(budget, index, pool.own.value, allocated_bytes, figures.usable_bytes);
	device->n_samples = n_samples;
	if (spill_is_open(&device->spill))
		loop_timer_arm(budget->timer, look_again_ns);
}

static void look_at_all(struct budget *budget)
{
	for (unsigned int i = RBK_DEVICE_GPU; i < budget->options.n_executors; i++)
		look(budget, i);
}

static void on_timer(void *data)
{
	look_at_all(data);
}

static void on_sample(void *data, uint32_t events)
{
	struct budget *budget = data;

	waker_disarm(budget->options.waker);
	/* Arm before looking, so that a later sample rings again. */
	waker_arm(budget->options.waker);
	look_at_all(budget);
	if (budget->options.enforce)
		enforce_outside_changed(budget->options.enforce);
}

uint64_t budget_usable_bytes(const struct budget *budget, uint32_t device)
{
	return budget->devices[device].usable_bytes;
}

uint64_t budget_leased_bytes(const struct budget *budget, uint32_t device)
{
	return budget->devices[device].leased_bytes;
}

static void on_lease_timer(void *data)
{
	struct budget *budget = data;

	budget->lease_timer_ns = UINT64_MAX;
	budget_look_at_leases(budget);
}

void budget_look_at_leases(struct budget *budget)
{
	const struct leases *leases = residency_leases(budget->options.residency);

	for (unsigned int i = RBK_DEVICE_GPU; i < budget->options.n_executors; i++)
		if (has_lease_changes(budget, i) ||
		    (leases->n > 0 && telemetry_n_samples(budget->options.telemetry, i) !=
					      budget->devices[i].n_samples))
			look(budget, i);
}

/*
 * Schedule a look at leases: at changed ones soon, as members' allocations and reports ring no
 * waker, and at the times that programs use.
 */
static void watch_leases(struct budget *budget)
{
	uint64_t wait_ns = UINT64_MAX, now_ns;

	if (residency_leases(budget->options.residency)->n > 0 &&
	    budget->lease_timer_ns == UINT64_MAX)
		wait_ns = look_at_times_ns;
	for (unsigned int i = RBK_DEVICE_GPU; i < budget->options.n_executors; i++)
		if (has_lease_changes(budget, i))
			wait_ns = look_at_leases_ns;
	if (wait_ns == UINT64_MAX)
		return;
	now_ns = clock_now_ns();
	if (budget->lease_timer_ns <= now_ns + wait_ns)
		return;
	budget->lease_timer_ns = now_ns + wait_ns;
	loop_timer_arm(budget->lease_timer, wait_ns);
}

/* Return the sum of all tenants' reserves, including tenants without sessions. */
static uint64_t reserved_bytes(const struct budget *budget, unsigned int index)
{
	const struct tenants *tenants = budget->options.tenants;
	uint64_t bytes = 0;

	for (const struct tenant *tenant = tenants_first(tenants); tenant;
	     tenant = tenants_next(tenants, tenant))
		if (tenant->is_named)
			bytes += tenant->shares[index].reserve;
	return bytes;
}

void budget_policy_changed(struct budget *budget)
{
	for (unsigned int i = RBK_DEVICE_GPU; i < budget->options.n_executors; i++)
		residency_set_reserved(budget->options.residency, i, reserved_bytes(budget, i));
	look_at_all(budget);
}

/* Return true if an event is pending that only samples show. */
static bool is_watching(const struct budget *budget)
{
	if (residency_is_pressed(budget->options.residency) ||
	    enforce_is_urgent(budget->options.enforce))
		return true;
	for (unsigned int i = RBK_DEVICE_GPU; i < budget->options.n_executors; i++) {
		const struct budget_device *device = &budget->devices[i];

		/*
		 * A task has found the device lost, and the samples have yet to show why. As long
		 * as telemetry holds the device file of a removed card, libdrm finds no other card
		 * in its place.
		 */
		if (!device->was_gone && !residency_is_up(budget->options.residency, i))
			return true;
		if (spill_is_open(&device->spill))
			return true;
		if (has_lease_changes(budget, i))
			return true;
	}
	return false;
}

/* Return true if a device is gone that may return at any time. */
static bool is_missing(const struct budget *budget)
{
	for (unsigned int i = RBK_DEVICE_GPU; i < budget->options.n_executors; i++)
		if (budget->devices[i].was_gone)
			return true;
	return false;
}

void budget_set_pace(void *context, bool is_busy, bool has_sessions)
{
	struct budget *budget = context;
	enum telemetry_pace pace = has_sessions ? TELEMETRY_SESSIONS : TELEMETRY_IDLE;

	if (budget->options.enforce)
		enforce_wake(budget->options.enforce);

	watch_leases(budget);
	/* A program with a lease uses the device at any time. */
	if (residency_leases(budget->options.residency)->n > 0)
		pace = TELEMETRY_LEASES;
	if (is_busy || is_watching(budget))
		pace = TELEMETRY_BUSY;
	else if (pace == TELEMETRY_IDLE && is_missing(budget))
		pace = TELEMETRY_SESSIONS;

	if (pace == budget->pace)
		return;
	budget->pace = pace;
	telemetry_set_pace(budget->options.telemetry, pace);
}

int budget_new(const struct budget_options *options, struct budget **ret)
{
	_cleanup_(budget_freep) struct budget *budget = calloc(1, sizeof(*budget));
	int r;

	if (!budget)
		return error_origin(-ENOMEM);
	budget->options = *options;
	budget->lease_timer_ns = UINT64_MAX;
	r = loop_timer_new(options->loop, on_timer, budget, &budget->timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_lease_timer, budget, &budget->lease_timer);
	if (r)
		return error_fold(r);
	r = loop_watch(options->loop, options->waker->fd, POLLIN, on_sample, budget,
		       &budget->watch);
	if (r)
		return error_fold(r);
	waker_arm(options->waker);
	budget_policy_changed(budget);
	*ret = steal_ptr(budget);
	return 0;
}

struct budget *budget_free(struct budget *budget)
{
	if (!budget)
		return NULL;
	loop_timer_free(budget->timer);
	loop_timer_free(budget->lease_timer);
	loop_unwatch(budget->watch);
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		charge_deinit(&budget->devices[i].overhead);
	free(budget);
	return NULL;
}
