#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Kernel structures that the probes read
 *
 * They are declared by hand, with only the members that are read. At load time, offsets come from
 * the running kernel's type information (CO-RE). So the build needs no kernel with BTF, and no
 * header generated from one. For run-queue.bpf.c alone.
 */

#include "types.h"

/* Part of the interface between programs and kernel: these values do not change. */
enum {
	BPF_MAP_TYPE_TASK_STORAGE = 29,

	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,

	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,

	CLONE_THREAD = 0x10000,
	TASK_RUNNING = 0,
	TASK_COMM_BYTES = 16,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pid_namespace;
struct bpf_local_storage;
struct seq_file;

struct kernfs_node {
	const char *name;
	u64 id;
};

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp; /* cgroup in the unified hierarchy */
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1]; /* one per level */
};

/* A processor's run queue. */
struct rq {
	int cpu;
	u64 clock; /* sched_clock(), as of its last update */
};

struct cfs_rq {
	struct rq *rq;
	int throttle_count; /* of this queue or of a group above it */
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	unsigned int __state;
	int on_cpu;
	int wake_cpu;
	struct sched_entity se;
	bool throttled; /* from 6.18 on: task throttled by itself, not with its group's queue */
	int pid, tgid;
	u64 start_boottime;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	char comm[TASK_COMM_BYTES];
	struct css_set *cgroups;
	struct bpf_local_storage *bpf_storage;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop
