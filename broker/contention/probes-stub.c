/* SPDX-License-Identifier: MIT */
/* The scheduler probes in a build without libbpf: unavailable. */
#include <stdio.h>

#include "contention/probes.h"

int probes_new(char ret_why[RUN_QUEUE_WHY_BYTES], struct probes **ret)
{
	snprintf(ret_why, RUN_QUEUE_WHY_BYTES,
		 "brokerd was built without libbpf: build it with -Dbpf=enabled.");
	return PROBES_E_UNAVAILABLE;
}

struct probes *probes_free(struct probes *probes)
{
	return NULL;
}

uint32_t probes_n_processors(const struct probes *probes)
{
	return 0;
}

const struct run_queue_record *probes_thread(const struct probes *probes, uint32_t slot)
{
	return NULL;
}

const struct run_queue_record *probes_tenant(const struct probes *probes, uint16_t slot,
					     uint32_t processor)
{
	return NULL;
}

const struct run_queue_processor *probes_processor(const struct probes *probes, uint32_t processor)
{
	return NULL;
}

int probes_set_thread(struct probes *probes, uint32_t slot, pid_t tid)
{
	return 0;
}

int probes_set_process(struct probes *probes, pid_t pid, uint16_t tenant)
{
	return 0;
}

int probes_unset_process(struct probes *probes, pid_t pid)
{
	return 0;
}

int probes_set_cgroup(struct probes *probes, uint64_t cgroup, uint16_t tenant)
{
	return 0;
}

int probes_unset_cgroup(struct probes *probes, uint64_t cgroup)
{
	return 0;
}

void probes_clear_tenant(struct probes *probes, uint16_t tenant)
{
}

int probes_walk(struct probes *probes)
{
	return 0;
}

uint32_t probes_n_tasks(const struct probes *probes)
{
	return 0;
}

void probes_cost(struct probes *probes, struct run_queue_cost *ret)
{
	*ret = (struct run_queue_cost){0};
}

bool probes_need_privilege(const struct probes *probes)
{
	return false;
}
