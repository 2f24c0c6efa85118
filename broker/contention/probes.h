#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The scheduler probes, as run-queue.c uses them
 *
 * This module loads bpf/run-queue.bpf.c through its skeleton: open, set read-only data and sizes,
 * load, attach. The functions below read the probes' counts with plain loads;
 * bpf/run-queue-layout.h names their writers. All other functions may make system calls and are for
 * one thread at a time: run-queue.c's.
 *
 * A task is watched if it has task storage, which names the slot that it counts for. The probes
 * only look the storage up. It is created by probes_walk(), an iterator over all tasks of the
 * machine, and when a watched task creates another. So no lookup by number happens while the
 * scheduler holds its locks. A task's storage ends with the task: a reused number has none.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../bpf/run-queue-layout.h"
#include "contention/run-queue.h"
#include "util/cleanup.h"

struct probes;

enum {
	PROBES_E_UNAVAILABLE = 1, /* not on this machine, or not allowed to this process */
};

/*
 * Load and attach the probes. Messages of the verifier and of libbpf are logged at debug level.
 * Return: 0; PROBES_E_UNAVAILABLE with a sentence in @ret_why on what is missing and the remedy;
 * -ENOMEM.
 */
int probes_new(char ret_why[RUN_QUEUE_WHY_BYTES], struct probes **ret);
struct probes *probes_free(struct probes *probes);

/*
 * Reading. @slot is below RUN_QUEUE_MAX_THREADS or _TENANTS, @processor below the number of
 * processors.
 */
uint32_t probes_n_processors(const struct probes *probes);
const struct run_queue_record *probes_thread(const struct probes *probes, uint32_t slot);
const struct run_queue_record *probes_tenant(const struct probes *probes, uint16_t slot,
					     uint32_t processor);
const struct run_queue_processor *probes_processor(const struct probes *probes, uint32_t processor);

/*
 * Set the slot that a thread of this process, a process, or a cgroup (by its id) with its
 * descendants counts for. A @tid of 0 frees the thread's slot; probes_unset_*() end the counting of
 * a process or a cgroup. Existing tasks are affected from the next probes_walk().
 * Return: 0; -ENOSPC; negative errno.
 */
int probes_set_thread(struct probes *probes, uint32_t slot, pid_t tid);
int probes_set_process(struct probes *probes, pid_t pid, uint16_t tenant);
int probes_unset_process(struct probes *probes, pid_t pid);
int probes_set_cgroup(struct probes *probes, uint64_t cgroup, uint16_t tenant);
int probes_unset_cgroup(struct probes *probes, uint64_t cgroup);
/* Zero the figures of the slot; its former tasks no longer count for it. */
void probes_clear_tenant(struct probes *probes, uint16_t tenant);

/*
 * Visit all tasks of the machine once. Costs about a microsecond per task.
 * Return: 0 or negative errno.
 */
int probes_walk(struct probes *probes);

/* Return the number of watched tasks that the last walk found. */
uint32_t probes_n_tasks(const struct probes *probes);

/* Get the sums over all probes; 0 if kernel.bpf_stats_enabled is not set. */
void probes_cost(struct probes *probes, struct run_queue_cost *ret);

/* Return true if walking again needs CAP_BPF on this kernel. */
bool probes_need_privilege(const struct probes *probes);

DEFINE_CLEANUP(struct probes *, probes_free)
