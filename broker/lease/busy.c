/* SPDX-License-Identifier: MIT */
/*
 * Busy time: see busy.h
 *
 * A driver may count a submission from the moment at which the hardware has it, with the time for
 * which it waits there behind others' (amdgpu_ctx_fence_time()). So processes that compete may have
 * several times the elapsed time together. They are scaled down to what there was.
 */
#include "lease/busy.h"

#include "util/number.h"

static const struct reading *find(const struct busy_seen *seen, pid_t pid)
{
	for (uint32_t i = 0; i < seen->n_processes; i++)
		if (seen->processes[i].pid == pid)
			return &seen->processes[i].busy_ns;
	return NULL;
}

/*
 * Return the time since the last look, at most @elapsed_ns. A smaller value is that of another
 * process with the pid; a much larger one may be that of a descriptor that it got from another
 * process. A process that was listed without a time had not used the device.
 */
static struct reading since(const struct busy_seen *seen, const struct process_reading *process,
			    uint64_t elapsed_ns)
{
	const struct reading *before = find(seen, process->pid);
	const struct reading *now = &process->busy_ns;

	if (!before || !now->is_valid || now->value < before->value)
		return (struct reading){0, false};
	return (struct reading){min_u64(now->value - before->value, elapsed_ns), true};
}

static void remember(struct busy_seen *seen, const struct device_reading *reading)
{
	seen->list_ns = reading->processes_ns.value;
	seen->n_processes = reading->n_processes;
	for (uint32_t i = 0; i < reading->n_processes; i++) {
		seen->processes[i].pid = reading->processes[i].pid;
		seen->processes[i].busy_ns = reading->processes[i].busy_ns;
	}
}

bool busy_look(struct busy_seen *seen, const struct device_reading *reading, pid_t own,
	       struct busy_times *ret)
{
	uint64_t sum_ns = 0;

	*ret = (struct busy_times){.since_ns = seen->list_ns};
	if (!reading->processes_ns.is_valid) {
		seen->list_ns = 0;
		seen->n_processes = 0;
		return false;
	}
	if (reading->processes_ns.value == seen->list_ns)
		return false;
	if (seen->list_ns > 0 && reading->processes_ns.value > seen->list_ns)
		ret->elapsed_ns = reading->processes_ns.value - seen->list_ns;
	for (uint32_t i = 0; i < reading->n_processes && ret->elapsed_ns > 0; i++) {
		ret->processes[i] = since(seen, &reading->processes[i], ret->elapsed_ns);
		sum_ns = saturating_add(sum_ns, ret->processes[i].value);
	}
	for (uint32_t i = 0; i < reading->n_processes; i++) {
		struct reading *time = &ret->processes[i];

		if (sum_ns > ret->elapsed_ns)
			time->value = (uint64_t)((unsigned __int128)time->value * ret->elapsed_ns /
						 sum_ns);
		if (reading->processes[i].pid == own)
			ret->own_ns += time->value;
		else
			ret->others_ns += time->value;
	}
	remember(seen, reading);
	return true;
}
