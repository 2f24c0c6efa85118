/* SPDX-License-Identifier: MIT */
/* Time of a device beside timeslices: see beside.h. */
#include "lease/beside.h"

#include <string.h>

#include "lease/lease.h"
#include "util/number.h"

/* Return true if the times since the last look can be compared, and remember this one. */
static bool is_comparable(struct lease *lease)
{
	const struct timeslice_device *device = &lease->leases->timeslices.devices[lease->device];
	const struct lease_timeslice *slice = &lease->timeslice;
	struct lease_beside *beside = &lease->beside;
	const bool is_restrained =
		slice->n_members > 0 && RBK_TIMESLICE_STATE(slice->word) != RBK_TIMESLICE_OPEN;
	/* Its work goes on after its timeslice, for which it is charged only up to a limit. */
	const bool is_overdue = slice->is_under_way && device->holder != lease;
	const bool is_same = beside->has_before && slice->n_opened == beside->n_opened &&
			     slice->n_overdue == beside->n_overdue &&
			     device->plans_total_ns == beside->plans_ns;

	beside->has_before = is_restrained && !is_overdue;
	beside->n_opened = slice->n_opened;
	beside->n_overdue = slice->n_overdue;
	beside->plans_ns = device->plans_total_ns;
	return is_same && beside->has_before;
}

uint64_t beside_look_at_lease(struct lease *lease, const struct beside_times *times)
{
	struct lease_beside *beside = &lease->beside;
	const uint64_t before_ns = beside->used_ns;
	uint64_t excess_ns;

	beside->used_ns = lease->timeslice.used_ns;
	if (!is_comparable(lease))
		return 0;
	beside->elapsed_ns += times->elapsed_ns;
	beside->busy_ns += times->busy_ns;
	beside->other_ns += times->other_ns;
	beside->slice_ns += saturating_sub(lease->timeslice.used_ns, before_ns);
	if (beside->elapsed_ns < BESIDE_WINDOW_NS)
		return 0;
	excess_ns = saturating_sub(beside->busy_ns, beside->slice_ns) + beside->other_ns;
	if (excess_ns < beside->elapsed_ns / BESIDE_LEASE_PART)
		excess_ns = 0;
	beside->total_ns += excess_ns;
	beside->elapsed_ns = beside->busy_ns = beside->slice_ns = beside->other_ns = 0;
	return excess_ns;
}

void beside_add_user(struct beside_device *device, const struct process_reading *process,
		     uint64_t busy_ns)
{
	uint32_t i = 0;

	while (i < device->n && device->processes[i].pid != process->pid)
		i++;
	if (i == TELEMETRY_MAX_PROCESSES)
		return;
	if (i == device->n) {
		device->n++;
		device->processes[i].pid = process->pid;
		device->processes[i].busy_ns = 0;
	}
	device->processes[i].uid = process->uid;
	memcpy(device->processes[i].comm, process->comm, sizeof(process->comm));
	device->processes[i].busy_ns += busy_ns;
}

static const struct beside_user *find_user(const struct beside_users *users, uint8_t device,
					   pid_t pid)
{
	for (uint32_t i = 0; i < users->n; i++)
		if (users->users[i].device == device && users->users[i].pid == pid)
			return &users->users[i];
	return NULL;
}

/* Remove the device's users from the list. */
static void clear_users(struct beside_users *users, uint8_t device)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < users->n; i++)
		if (users->users[i].device != device)
			users->users[n++] = users->users[i];
	users->n = n;
}

static void list_users(struct beside_users *users, const struct beside_device *device,
		       uint8_t index)
{
	const struct beside_users before = *users;

	clear_users(users, index);
	for (uint32_t i = 0; i < device->n && users->n < BESIDE_MAX_USERS; i++) {
		const uint64_t busy_ns = device->processes[i].busy_ns;
		const pid_t pid = device->processes[i].pid;
		const struct beside_user *known = find_user(&before, index, pid);
		struct beside_user *user = &users->users[users->n];

		if (busy_ns < device->elapsed_ns / BESIDE_USER_PART)
			continue;
		*user = (struct beside_user){
			.device = index,
			.pid = pid,
			.uid = device->processes[i].uid,
			.busy_percent = busy_ns * 100 / device->elapsed_ns,
			.is_told = known && known->is_told,
		};
		memcpy(user->comm, device->processes[i].comm, sizeof(user->comm));
		users->n++;
	}
}

void beside_end_look(struct beside_users *users, struct beside_device *device, uint8_t index,
		     bool is_shared, uint64_t elapsed_ns)
{
	if (!is_shared) {
		clear_users(users, index);
		device->elapsed_ns = device->n = 0;
		return;
	}
	device->elapsed_ns += elapsed_ns;
	if (device->elapsed_ns < BESIDE_WINDOW_NS)
		return;
	list_users(users, device, index);
	device->elapsed_ns = device->n = 0;
}
