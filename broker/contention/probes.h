#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The scheduler probes, as run-queue.c uses them
 *
 * Loads bpf/run-queue.bpf.c through its skeleton: open, set read-only data and sizes, load, attach.
 * What the probes count is read through the functions below with plain loads, see
 * bpf/run-queue-layout.h for who writes it. Everything else may make system calls and is for one
 * thread at a time: run-queue.c's.
 *
 * A task is watched if it has task storage, which says what it counts for. The probes only look it
 * up. It is made by probes_walk(), an iterator over all tasks of the machine, and where a watched
 * task makes another; so nothing is ever looked up by number while the scheduler holds its locks,
 * and a task that ends takes what is known of it along: a number that is used again means nothing.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../bpf/run-queue-layout.h"
#include "contention/run-queue.h"
#include "util/cleanup.h"

struct probes;

enum {
	PROBES_E_UNAVAILABLE = 1, /* not on this machine, or not to us */
};

/*
 * Loads and attaches. Return: 0; PROBES_E_UNAVAILABLE with one sentence in @ret_why that says what
 * is missing and what would help; -ENOMEM. What the verifier or libbpf said goes to the log at
 * debug level.
 */
int probes_new(char ret_why[RUN_QUEUE_WHY_BYTES], struct probes **ret);
struct probes *probes_free(struct probes *probes);

/* Reading. @slot below RUN_QUEUE_MAX_THREADS or _TENANTS, @processor below the number of them. */
uint32_t probes_n_processors(const struct probes *probes);
const struct run_queue_record *probes_thread(const struct probes *probes, uint32_t slot);
const struct run_queue_record *probes_tenant(const struct probes *probes, uint16_t slot,
					     uint32_t processor);
const struct run_queue_processor *probes_processor(const struct probes *probes, uint32_t processor);

/*
 * Says what a thread of this process, a process, or a cgroup (by its id) and those below it count
 * for; @tid, @pid or @cgroup of 0 says that a slot means nobody any more. Takes effect for tasks
 * that exist with the next probes_walk(). Return: 0; -ENOSPC; negative errno.
 */
int probes_set_thread(struct probes *probes, uint32_t slot, pid_t tid);
int probes_set_process(struct probes *probes, pid_t pid, uint16_t tenant);
int probes_unset_process(struct probes *probes, pid_t pid);
int probes_set_cgroup(struct probes *probes, uint64_t cgroup, uint16_t tenant);
int probes_unset_cgroup(struct probes *probes, uint64_t cgroup);
/* Figures of the slot begin at 0; tasks that counted for it do not any more. */
void probes_clear_tenant(struct probes *probes, uint16_t tenant);

/*
 * Looks at all tasks of the machine once. Costs about a microsecond for each. Return: 0 or negative
 * errno.
 */
int probes_walk(struct probes *probes);

/* How many tasks are watched, as the last walk found. */
uint32_t probes_n_tasks(const struct probes *probes);

/* Together, of all probes; 0 if kernel.bpf_stats_enabled is not set. */
void probes_cost(struct probes *probes, struct run_queue_cost *ret);

/* Does walking again need CAP_BPF on this kernel? */
bool probes_need_privilege(const struct probes *probes);

DEFINE_CLEANUP(struct probes *, probes_free)
