/* SPDX-License-Identifier: MIT */
/*
 * See fake-probes.h. While the probes are attached, each read of a processor finds one more switch.
 */
#include "fake-probes.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SAID = 64 };

struct said {
	uint64_t key; /* 0: free slot */
	int tenant;
};

struct fake_probes fake_probes;
static struct said processes[MAX_SAID], cgroups[MAX_SAID];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void fake_probes_reset(void)
{
	memset(&fake_probes, 0, sizeof(fake_probes));
	memset(processes, 0, sizeof(processes));
	memset(cgroups, 0, sizeof(cgroups));
}

static int say(struct said *list, uint64_t key, int tenant)
{
	int r = -ENOSPC;

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < MAX_SAID; i++)
		if (list[i].key == key) {
			list[i].tenant = tenant;
			r = 0;
			break;
		}
	for (unsigned int i = 0; i < MAX_SAID && r; i++)
		if (list[i].key == 0) {
			list[i] = (struct said){key, tenant};
			r = 0;
		}
	pthread_mutex_unlock(&lock);
	return r;
}

static int look_up(const struct said *list, uint64_t key)
{
	int tenant = -1;

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < MAX_SAID; i++)
		if (list[i].key == key)
			tenant = list[i].tenant;
	pthread_mutex_unlock(&lock);
	return tenant;
}

int fake_probes_process(pid_t pid)
{
	return look_up(processes, (uint64_t)pid);
}

int fake_probes_cgroup(uint64_t id)
{
	return look_up(cgroups, id);
}

struct run_queue_record *fake_probes_of(pid_t tid)
{
	for (unsigned int i = 0; i < RUN_QUEUE_MAX_THREADS; i++)
		if (atomic_load(&fake_probes.tids[i]) == tid)
			return &fake_probes.threads[i];
	return NULL;
}

/* ---- The interface of probes.h ---- */

int probes_new(char ret_why[RUN_QUEUE_WHY_BYTES], struct probes **ret)
{
	if (fake_probes.has_no_memory)
		return -ENOMEM;
	if (fake_probes.is_unavailable) {
		snprintf(ret_why, RUN_QUEUE_WHY_BYTES, "not here; elsewhere they would do.");
		return PROBES_E_UNAVAILABLE;
	}
	*ret = (struct probes *)&fake_probes;
	return 0;
}

struct probes *probes_free(struct probes *probes)
{
	if (probes)
		fake_probes.n_freed++;
	return NULL;
}

uint32_t probes_n_processors(const struct probes *probes)
{
	return FAKE_PROCESSORS;
}

const struct run_queue_record *probes_thread(const struct probes *probes, uint32_t slot)
{
	return &fake_probes.threads[slot];
}

const struct run_queue_record *probes_tenant(const struct probes *probes, uint16_t slot,
					     uint32_t processor)
{
	return &fake_probes.tenants[slot][processor];
}

const struct run_queue_processor *probes_processor(const struct probes *probes, uint32_t processor)
{
	if (!fake_probes.is_detached)
		__atomic_fetch_add(&fake_probes.processors[processor].n_switches, 1,
				   __ATOMIC_RELAXED);
	return &fake_probes.processors[processor];
}

int probes_set_thread(struct probes *probes, uint32_t slot, pid_t tid)
{
	atomic_store(&fake_probes.tids[slot], tid);
	return 0;
}

int probes_set_process(struct probes *probes, pid_t pid, uint16_t tenant)
{
	return say(processes, (uint64_t)pid, tenant);
}

int probes_unset_process(struct probes *probes, pid_t pid)
{
	return say(processes, (uint64_t)pid, -1);
}

int probes_set_cgroup(struct probes *probes, uint64_t cgroup, uint16_t tenant)
{
	return say(cgroups, cgroup, tenant);
}

int probes_unset_cgroup(struct probes *probes, uint64_t cgroup)
{
	return say(cgroups, cgroup, -1);
}

void probes_clear_tenant(struct probes *probes, uint16_t tenant)
{
	fake_probes.cleared[tenant]++;
}

int probes_walk(struct probes *probes)
{
	fake_probes.n_walks++;
	return fake_probes.walk_fails ? -EPERM : 0;
}

void probes_cost(struct probes *probes, struct run_queue_cost *ret)
{
	*ret = (struct run_queue_cost){1000, 50000};
}

bool probes_need_privilege(const struct probes *probes)
{
	return true;
}
