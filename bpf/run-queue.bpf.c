/* SPDX-License-Identifier: MIT */
/*
 * Probes in the scheduler: run-queue delays, and their causers
 *
 * A watched task has task storage that names its owner. The storage is created where the scheduler
 * holds no locks (an iterator over all tasks, fork, a move between cgroups) and only looked up
 * where it does. An unwatched task costs a look at one pointer.
 *
 * Run-queue delay begins when a task is woken, or is switched out though runnable, and ends when it
 * is switched in. While watched tasks wait on a processor, and only then, the probes keep accounts
 * of the tasks that run there and for how long (struct stints). A task that begins to wait stores
 * the state of each account; when its wait is over, the difference is its delay by causer. So all
 * tasks that ran meanwhile are named, not only the last, and the cost of a switch does not depend
 * on the number of waiting tasks. When a first task begins to wait the accounts restart, unless
 * they are few and recent: opening one takes longer than all the rest.
 *
 * All figures of a processor are written under its run queue's lock, which the kernel holds at each
 * of the three trace points. The exception is n_waiting of a processor whose waiting task was moved
 * to another, which is therefore atomic.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "causers.h"
#include "clock.h"

/* MIT is compatible with the GPL, which helpers that read kernel memory require. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define MAX_LEVELS   32 /* levels of cgroups, upwards from a task's own */
#define MAX_ACCOUNTS 16 /* accounts per processor while a task waits */
#define FEW_ACCOUNTS 4
#define NO_ACCOUNT   MAX_ACCOUNTS
#define KEEP_NS      10000000 /* time that few accounts are kept when no task waits any more */
#define OWN_WITHOUT_SLOT \
	RUN_QUEUE_OWNER(RUN_QUEUE_THREAD << RUN_QUEUE_KIND_SHIFT | RUN_QUEUE_NO_SLOT, 0)

const volatile unsigned int n_processors = 1;

/*
 * Current generation of each slot: data of an earlier generation are ignored. Only the broker
 * writes them.
 */
struct {
	unsigned int threads[RUN_QUEUE_MAX_THREADS];
	unsigned int tenants[RUN_QUEUE_MAX_TENANTS];
} generations;

/*
 * Number of watched processes and cgroups; forks are checked if it is not 0. The broker writes it.
 */
unsigned int n_watched;

/* Watched tasks found so far by the walk in progress; the broker sets it to 0. */
unsigned int n_tasks;

/*
 * The pid namespace of the process that walks the tasks: the broker's, whose numbers the maps below
 * use.
 */
unsigned long long walker_namespace;
unsigned int walker_level;

/* Return the slot and kind of an owner, see RUN_QUEUE_OWNER(). */
static __always_inline u32 who_of(u64 owner)
{
	return (u32)owner;
}

static __always_inline u32 kind_of(u64 owner)
{
	return who_of(owner) >> RUN_QUEUE_KIND_SHIFT;
}

/* Reason why a task is watched. */
enum { BY_PROCESS = 1, BY_CGROUP = 2 };

/* State of a watched task. */
struct watched {
	u64 owner;
	u32 reason;
	int root;          /* BY_PROCESS: number of the process that it is or descends from */
	u64 root_start_ns; /* start time of root, to detect a reused number */
	u64 waiting_since_ns;
	u32 cpu;         /* last processor + 1; 0: unknown */
	u32 waiting_cpu; /* processor that counts it in n_waiting, + 1; 0: none */
	u32 waiting_epoch;
	u32 is_throttled;
	u32 n_opened; /* n_opened of the accounts when it began to wait */
	u32 reserved;
	u64 ran_ns[MAX_ACCOUNTS]; /* ran_ns of the accounts when it began to wait */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct watched);
} tasks SEC(".maps");

/* Slot and generation of a thread of the broker, by its number in the walker's namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RUN_QUEUE_MAX_THREADS);
	__type(key, int);
	__type(value, u64);
} thread_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RUN_QUEUE_MAX_PROCESSES);
	__type(key, int);
	__type(value, struct run_queue_process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RUN_QUEUE_MAX_CGROUPS);
	__type(key, u64);
	__type(value, u64);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RUN_QUEUE_MAX_THREADS);
	__type(key, u32);
	__type(value, struct run_queue_record);
} threads SEC(".maps");

/* One record per tenant and processor: at slot * n_processors + processor. Sized before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct run_queue_record);
} tenants SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct run_queue_processor);
} processors SEC(".maps");

/*
 * Accounts of the tasks that ran on a processor since a task waits there. If there are too many,
 * the least recently used is dropped.
 */
struct stints {
	u64 began_ns; /* start of the stretch in progress; 0: none is counted */
	u32 current;  /* its account; NO_ACCOUNT: not looked up yet */
	u32 n_accounts;
	u32 n_opened; /* accounts opened so far */
	u64 anew_ns;  /* time when the first of them was opened */
	u64 ran_ns[MAX_ACCOUNTS];
	u64 used_ns[MAX_ACCOUNTS];
	u32 opened[MAX_ACCOUNTS]; /* n_opened at the account's opening */
	struct run_queue_account accounts[MAX_ACCOUNTS];
	struct run_queue_account wanted; /* account to look up, without node and process */
	u64 wanted_task;                 /* a task of it */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stints);
} stints_of SEC(".maps");

/* --- Owners of tasks --- */

/*
 * Return the number of @task's process, or thread, in the walker's namespace; 0: it has none there.
 */
static __always_inline int number_of(struct task_struct *task)
{
	u64 at = (u64)BPF_CORE_READ(task, thread_pid);
	u32 level = walker_level;
	struct {
		int nr;
		u32 reserved;
		u64 namespace;
	} upid = {};

	if (!at || BPF_CORE_READ((struct pid *)at, level) < level)
		return 0;
	at += bpf_core_field_offset(struct pid, numbers) + (u64)level * sizeof(upid);
	if (bpf_probe_read_kernel(&upid, sizeof(upid), (void *)at) ||
	    upid.namespace != walker_namespace)
		return 0;
	return upid.nr;
}

static __always_inline bool is_current(u64 owner)
{
	u32 slot = who_of(owner) & RUN_QUEUE_SLOT_MASK;

	barrier_var(slot);
	switch (kind_of(owner)) {
	case RUN_QUEUE_THREAD:
		if (slot < RUN_QUEUE_MAX_THREADS)
			return generations.threads[slot] == owner >> 32;
		return slot == RUN_QUEUE_NO_SLOT;
	case RUN_QUEUE_TENANT:
		return slot < RUN_QUEUE_MAX_TENANTS && generations.tenants[slot] == owner >> 32;
	default:
		return false;
	}
}

static __always_inline struct watched *watched_of(struct task_struct *task)
{
	/* Most tasks have no storage at all. */
	if (!task->bpf_storage)
		return 0;
	return bpf_task_storage_get(&tasks, task, 0, 0);
}

/* Return the record of @owner for @cpu; NULL: it has none. */
static __always_inline struct run_queue_record *record_of(u64 owner, u32 cpu)
{
	u32 slot = who_of(owner) & RUN_QUEUE_SLOT_MASK;

	if (kind_of(owner) == RUN_QUEUE_THREAD)
		return bpf_map_lookup_elem(&threads, &slot);
	slot = slot * n_processors + cpu;
	return bpf_map_lookup_elem(&tenants, &slot);
}

/* --- The time: see clock.h --- */

/*
 * Return true if a task's run queue can be read, through its group's queue, whatever its class. The
 * symbol of the run queues themselves is not available to programs on all kernels.
 */
static __always_inline bool has_clock(void)
{
	return bpf_core_field_exists(struct sched_entity, cfs_rq) &&
	       bpf_core_field_exists(struct cfs_rq, rq) &&
	       bpf_core_field_exists(struct rq, clock) && bpf_core_field_exists(struct rq, cpu);
}

/* Return the processor on which @task was enqueued. */
static __always_inline u32 processor_of(struct task_struct *task)
{
	return has_clock() ? (u32)task->se.cfs_rq->rq->cpu : (u32)task->wake_cpu;
}

/* Return the time by the scheduler's clock on @processor. */
static __always_inline u64 now_by(struct run_queue_processor *processor, u64 clock_ns)
{
	if (clock_ns - processor->clock_checked_ns > RUN_QUEUE_RECHECK_NS)
		run_queue_check_clock(processor, clock_ns, bpf_ktime_get_ns());
	return clock_ns + processor->clock_ahead_ns;
}

/*
 * Return the time at which @task, which is watched, was enqueued on @processor, whose lock is held.
 */
static __always_inline u64 now_woken(struct run_queue_processor *processor,
				     struct task_struct *task)
{
	u64 clock_ns;

	if (!has_clock())
		return bpf_ktime_get_ns();
	clock_ns = task->se.cfs_rq->rq->clock;
	processor->clock_woken_ns = clock_ns;
	return now_by(processor, clock_ns);
}

/*
 * Return the time at which @processor switches to @next; @is_old: its clock may not have been
 * updated.
 */
static __always_inline u64 now_switched(struct run_queue_processor *processor,
					struct task_struct *next, bool is_old)
{
	u64 clock_ns;

	if (is_old || !has_clock())
		return bpf_ktime_get_ns();
	clock_ns = next->se.cfs_rq->rq->clock;
	if (clock_ns == processor->clock_woken_ns)
		return bpf_ktime_get_ns();
	return now_by(processor, clock_ns);
}

/* --- Accounts of running tasks --- */

/*
 * Functions that are not static are verified once, each by itself, and not on every path to each of
 * their calls: these would be too many. They take memory and numbers only.
 */

/* Read the node of @task's cgroup and the number of its process into @account. */
__noinline int read_task(struct run_queue_account *account, u64 task)
{
	struct task_struct *at = (struct task_struct *)task;

	if (!account)
		return 0;
	account->node = (u64)BPF_CORE_READ(at, cgroups, dfl_cgrp, kn);
	account->process = (u32)number_of(BPF_CORE_READ(at, group_leader));
	return 0;
}

/*
 * Return the account that was used least recently. The code has no branches: the verifier of Linux
 * 6.1 follows every combination of branches, and gives up.
 */
static __always_inline u32 oldest_account(const struct stints *stints)
{
	u64 oldest = stints->used_ns[0] & ~(u64)(MAX_ACCOUNTS - 1);
	u32 i;

	for (i = 1; i < MAX_ACCOUNTS; i++) {
		/* Times are below 2^63, and the lowest bits hold the index. */
		u64 more = ((stints->used_ns[i] & ~(u64)(MAX_ACCOUNTS - 1)) | i) - oldest;
		u64 is_less = (u64)((s64)more >> 63);

		barrier_var(is_less);
		oldest += more & is_less;
	}
	return oldest & (MAX_ACCOUNTS - 1);
}

/*
 * Find the account of stints->wanted, or open one.
 * Return: its index.
 */
__noinline u32 find_account(struct stints *stints, u64 now_ns)
{
	struct run_queue_account *account, *wanted;
	u32 i;

	if (!stints)
		return 0;
	wanted = &stints->wanted;
	for (i = 0; i < MAX_ACCOUNTS && i < stints->n_accounts; i++) {
		account = &stints->accounts[i];
		if (account->key.comm[0] == wanted->key.comm[0] &&
		    account->key.comm[1] == wanted->key.comm[1] &&
		    account->key.cgroup == wanted->key.cgroup && account->owner == wanted->owner) {
			stints->used_ns[i] = now_ns;
			return i;
		}
	}

	if (i < MAX_ACCOUNTS)
		stints->n_accounts++;
	else
		i = oldest_account(stints);
	i &= MAX_ACCOUNTS - 1;
	read_task(wanted, stints->wanted_task);
	stints->accounts[i] = *wanted;
	stints->ran_ns[i] = 0;
	stints->used_ns[i] = now_ns;
	stints->n_opened++;
	stints->opened[i] = stints->n_opened;
	return i;
}

/*
 * Return the index of the account of @task, which is in @cgroup. For each pointer in the kernel's
 * structures that a program follows, the verifier searches all of the kernel's types by name, on
 * each path. So node and process are read when an account is opened, in a function of their own.
 */
static __always_inline u32 account_of(struct stints *stints, struct task_struct *task, u64 cgroup,
				      u64 owner, u64 now_ns)
{
	struct run_queue_account *wanted = &stints->wanted;

	wanted->key.cgroup = cgroup;
	/* Plain loads, since a call to copy it takes longer. */
	wanted->key.comm[0] = *(const u64 *)task->comm;
	wanted->key.comm[1] = *(const u64 *)(task->comm + sizeof(u64));
	wanted->owner = owner;
	stints->wanted_task = (u64)task;
	return find_account(stints, now_ns);
}

/* Begin a wait of @watched on @cpu, behind the running task. */
static __always_inline void begin_waiting(struct watched *watched,
					  struct run_queue_processor *processor,
					  struct stints *stints, u32 cpu, u64 now_ns)
{
	u32 current;

	if ((s32)processor->n_waiting <= 0) {
		processor->n_waiting = 0;
		processor->epoch++;
		if (stints->n_accounts > FEW_ACCOUNTS || now_ns - stints->anew_ns > KEEP_NS) {
			stints->n_accounts = 0;
			stints->n_opened = 0;
			stints->anew_ns = now_ns;
		}
		stints->current = NO_ACCOUNT;
		stints->began_ns = now_ns;
	}
	watched->n_opened = stints->n_opened;
	if (watched->n_opened) {
		/* Mostly there are two or three accounts. */
		__builtin_memcpy(watched->ran_ns, stints->ran_ns, FEW_ACCOUNTS * sizeof(u64));
		if (stints->n_accounts > FEW_ACCOUNTS)
			__builtin_memcpy(watched->ran_ns + FEW_ACCOUNTS,
					 stints->ran_ns + FEW_ACCOUNTS,
					 (MAX_ACCOUNTS - FEW_ACCOUNTS) * sizeof(u64));
		current = stints->current;
		barrier_var(current);
		/*
		 * The stretch in progress is added at its end: exclude its time before this wait.
		 */
		if (current < MAX_ACCOUNTS && stints->began_ns && now_ns > stints->began_ns)
			watched->ran_ns[current] += now_ns - stints->began_ns;
	}
	watched->waiting_cpu = cpu + 1;
	watched->waiting_epoch = processor->epoch;
	__sync_fetch_and_add(&processor->n_waiting, 1);
}

/* Charge @n_preemptions and @ns to @account in @record. */
__noinline int charge(struct run_queue_record *record, struct run_queue_account *account, u64 ns,
		      u32 n_preemptions)
{
	struct run_queue_causer *causer;
	struct kernfs_node *node;

	if (!record || !account)
		return 0;
	causer = run_queue_charge(record->causers, account,
				  is_current(account->owner) ? who_of(account->owner) : 0, ns,
				  n_preemptions);
	if (!causer)
		return 0;
	node = (struct kernfs_node *)account->node;
	bpf_probe_read_kernel_str(causer->cgroup_name, sizeof(causer->cgroup_name),
				  BPF_CORE_READ(node, name));
	/* The node may have been removed meanwhile: the name was then another's. */
	if (BPF_CORE_READ(node, id) != account->key.cgroup)
		causer->cgroup_name[0] = 0;
	return 0;
}

/* Record that a thread of the broker waited for @owner on @cpu. */
__noinline int blame(u64 owner, u32 cpu, u64 ns)
{
	struct run_queue_record *record;

	if (kind_of(owner) != RUN_QUEUE_TENANT || !is_current(owner))
		return 0;
	record = record_of(owner, cpu);
	if (record)
		record->caused_ns += ns;
	return 0;
}

/*
 * Charge the wait of @watched, at most @left_ns, to the causers in its @record. @is_thread: the
 * task is the broker's, so the delay is also recorded for the tenants that caused it.
 * Return: the time accounted for.
 */
__noinline u64 charge_accounts(struct watched *watched, struct run_queue_record *record, u32 cpu,
			       u64 left_ns, u64 now_ns)
{
	struct run_queue_processor *processor;
	u64 wait_ns = left_ns;
	struct stints *stints;
	bool is_thread;
	u32 from, i;

	if (!watched || !record)
		return 0;
	is_thread = kind_of(watched->owner) == RUN_QUEUE_THREAD;
	from = watched->waiting_cpu - 1;
	processor = bpf_map_lookup_elem(&processors, &from);
	stints = bpf_map_lookup_elem(&stints_of, &from);
	if (!processor || !stints || processor->epoch != watched->waiting_epoch)
		return 0;
	for (i = 0; i < MAX_ACCOUNTS && i < stints->n_accounts; i++) {
		struct run_queue_account *account = &stints->accounts[i];
		u64 ran_ns = stints->ran_ns[i];

		/*
		 * The task was moved: the stretch in progress on the other processor is not
		 * recorded yet.
		 */
		if (from != cpu && stints->current == i && now_ns > stints->began_ns)
			ran_ns += now_ns - stints->began_ns;
		if (stints->opened[i] <= watched->n_opened) {
			if (ran_ns <= watched->ran_ns[i])
				continue;
			ran_ns -= watched->ran_ns[i];
		}
		if (ran_ns > left_ns)
			ran_ns = left_ns;
		if (!ran_ns)
			continue;
		left_ns -= ran_ns;
		charge(record, account, ran_ns, 0);
		if (is_thread)
			blame(account->owner, cpu, ran_ns);
	}
	return wait_ns - left_ns;
}

/* --- Waking and switching --- */

/*
 * Return true if a cfs quota throttles the task, as opposed to a preemption after which others run.
 */
static __always_inline bool is_throttled(struct task_struct *task)
{
	if (bpf_core_field_exists(task->throttled))
		return task->throttled;
	if (bpf_core_field_exists(task->se.cfs_rq) &&
	    bpf_core_field_exists(struct cfs_rq, throttle_count))
		return task->se.cfs_rq->throttle_count > 0;
	return false;
}

static __always_inline int woken(struct task_struct *task)
{
	struct run_queue_processor *processor;
	struct run_queue_record *record;
	struct watched *watched;
	struct stints *stints;
	u32 cpu;
	u64 now_ns;

	watched = watched_of(task);
	/* On a processor: it was about to sleep, and continues. */
	if (!watched || task->on_cpu || watched->waiting_since_ns || !is_current(watched->owner))
		return 0;
	/* The processor on which it was just enqueued, whose lock is held. */
	cpu = processor_of(task);
	processor = bpf_map_lookup_elem(&processors, &cpu);
	if (!processor)
		return 0;
	now_ns = now_woken(processor, task);
	watched->waiting_since_ns = now_ns;
	/* The task's group may have used up its quota during the sleep. */
	watched->is_throttled = is_throttled(task);
	if (kind_of(watched->owner) == RUN_QUEUE_THREAD) {
		record = record_of(watched->owner, 0);
		if (record)
			record->waiting_since_ns = now_ns;
	}

	if (processor->now == RUN_QUEUE_IDLE || watched->is_throttled)
		return 0;
	stints = bpf_map_lookup_elem(&stints_of, &cpu);
	if (!stints)
		return 0;
	begin_waiting(watched, processor, stints, cpu, now_ns);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	return woken(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	return woken(task);
}

/* Remove @watched from the waiting tasks. */
static __always_inline void count_off(struct watched *watched)
{
	u32 cpu = watched->waiting_cpu - 1;
	struct run_queue_processor *processor;

	watched->waiting_cpu = 0;
	processor = bpf_map_lookup_elem(&processors, &cpu);
	if (processor && processor->epoch == watched->waiting_epoch)
		__sync_fetch_and_add(&processor->n_waiting, -1);
}

/*
 * Record that @watched runs from now on; @was_idle: the processor was idle before.
 * Return: delay to be charged to the task that ran until now, since nothing else is known.
 */
__noinline u64 switched_in(struct watched *watched, u32 cpu, u32 was_idle, u64 now_ns)
{
	u64 delay_ns = 0, accounted_ns = 0, rest_ns = 0;
	struct run_queue_record *record;
	u32 bucket;

	if (!watched)
		return 0;
	if (!is_current(watched->owner))
		goto done;
	record = record_of(watched->owner, cpu);
	if (!record)
		goto done;

	if (kind_of(watched->owner) == RUN_QUEUE_THREAD) {
		record->waiting_since_ns = 0;
		record->running_since_ns = now_ns;
	}
	if (watched->cpu && watched->cpu != cpu + 1)
		record->n_migrations++;
	if (!watched->waiting_since_ns)
		goto done;

	/* The two clocks differ a little (see clock.h), so it may be earlier. */
	if (now_ns > watched->waiting_since_ns)
		delay_ns = now_ns - watched->waiting_since_ns;
	bucket = run_queue_bucket(delay_ns);
	barrier_var(bucket);
	if (bucket < RUN_QUEUE_BUCKETS)
		record->buckets[bucket]++;
	if (delay_ns > record->max_wait_ns)
		record->max_wait_ns = delay_ns;

	if (!watched->is_throttled && watched->waiting_cpu)
		accounted_ns = charge_accounts(watched, record, cpu, delay_ns, now_ns);
	/* The task may have waited behind others elsewhere before an idle processor took it. */
	if (watched->is_throttled || (was_idle && accounted_ns < delay_ns / 2)) {
		record->idle_wait_ns += delay_ns;
		record->n_idle_waits++;
	} else {
		record->wait_ns += delay_ns;
		record->n_waits++;
		/*
		 * The task was moved here, or this processor was idle when it was woken and took
		 * another task first.
		 */
		if (!was_idle && (!accounted_ns || watched->waiting_cpu != cpu + 1))
			rest_ns = delay_ns - accounted_ns;
	}

done:
	if (watched->waiting_cpu)
		count_off(watched);
	watched->waiting_since_ns = 0;
	watched->cpu = cpu + 1;
	return rest_ns;
}

/*
 * Record that a task of @owner ran on @cpu from @since_ns (0: unknown) until now.
 * Return: its record; NULL: it has none.
 */
static __always_inline struct run_queue_record *ran(u64 owner, u32 cpu, u64 since_ns, u64 now_ns,
						    bool is_runnable)
{
	struct run_queue_record *record = is_current(owner) ? record_of(owner, cpu) : 0;

	if (!record)
		return 0;
	if (since_ns && now_ns > since_ns)
		record->run_ns += now_ns - since_ns;
	if (kind_of(owner) == RUN_QUEUE_THREAD) {
		record->running_since_ns = 0;
		record->waiting_since_ns = is_runnable ? now_ns : 0;
	}
	return record;
}

/*
 * Record that @task was switched out though runnable.
 * Return: true if it waits from now on, behind others.
 */
static __always_inline bool taken_off(struct task_struct *task, struct watched *watched,
				      struct run_queue_record *record, bool next_is_idle)
{
	record->n_involuntary++;
	watched->is_throttled = next_is_idle || is_throttled(task);
	if (watched->is_throttled)
		record->n_throttled++;
	return !watched->is_throttled;
}

static __always_inline int switched(struct task_struct *prev, struct task_struct *next,
				    bool is_runnable)
{
	u32 cpu = bpf_get_smp_processor_id(), use, waits = 0;
	u64 prev_owner, next_owner = 0, since_ns;
	struct watched *prev_watched = 0, *next_watched;
	struct run_queue_processor *processor;
	struct run_queue_record *record = 0;
	struct stints *stints;
	bool is_idle = next->pid == 0;
	u64 now_ns;

	processor = bpf_map_lookup_elem(&processors, &cpu);
	if (!processor)
		return 0;
	processor->n_switches++;

	/* For a task that goes to sleep the processor's data suffice, and are faster to read. */
	prev_owner = processor->running_owner;
	since_ns = processor->running_since_ns;
	if (is_runnable) {
		prev_watched = watched_of(prev);
		if (!prev_watched || prev_watched->owner != prev_owner)
			since_ns = 0; /* its time belongs to another owner */
		prev_owner = prev_watched ? prev_watched->owner : 0;
	}
	next_watched = watched_of(next);
	if (next_watched)
		next_owner = next_watched->owner;
	use = is_idle ? RUN_QUEUE_IDLE
	      : kind_of(next_owner) == RUN_QUEUE_THREAD && is_current(next_owner)
		      ? RUN_QUEUE_OWN
		      : RUN_QUEUE_OTHERS;
	/* Unwatched tasks take turns, and no watched task waits. */
	processor->running_owner = next_owner;
	if (use == processor->now && !prev_owner && !next_owner && !processor->n_waiting)
		return 0;

	now_ns = now_switched(processor, next, is_runnable || prev->pid == 0);
	processor->running_since_ns = now_ns;
	if (use != processor->now) {
		u64 used_ns = now_ns > processor->since_ns ? now_ns - processor->since_ns : 0;

		if (processor->now == RUN_QUEUE_IDLE)
			processor->idle_ns += used_ns;
		else if (processor->now == RUN_QUEUE_OWN)
			processor->own_ns += used_ns;
		else if (processor->now == RUN_QUEUE_OTHERS)
			processor->others_ns += used_ns;
		processor->since_ns = now_ns;
		processor->now = use;
	}
	stints = bpf_map_lookup_elem(&stints_of, &cpu);
	if (!stints)
		return 0;

	/* Record the task that ran until now. */
	if (stints->began_ns && prev->pid) {
		u32 current = stints->current;

		if (current >= MAX_ACCOUNTS)
			current = account_of(stints, prev, bpf_get_current_cgroup_id(), prev_owner,
					     now_ns);
		barrier_var(current);
		if (current < MAX_ACCOUNTS && now_ns > stints->began_ns)
			stints->ran_ns[current] += now_ns - stints->began_ns;
	}
	stints->began_ns = 0;
	stints->current = NO_ACCOUNT;

	if (next_watched) {
		u64 rest_ns = switched_in(next_watched, cpu, prev->pid == 0, now_ns);

		if (rest_ns) {
			u32 i = account_of(stints, prev, bpf_get_current_cgroup_id(), prev_owner,
					   now_ns) &
				(MAX_ACCOUNTS - 1);

			record = record_of(next_owner, cpu);
			charge(record, &stints->accounts[i], rest_ns, 0);
			if (use == RUN_QUEUE_OWN)
				blame(prev_owner, cpu, rest_ns);
			record = 0;
		}
	}
	if (prev_owner)
		record = ran(prev_owner, cpu, since_ns, now_ns, is_runnable);
	if (prev_watched) {
		prev_watched->waiting_since_ns = now_ns;
		if (record && taken_off(prev, prev_watched, record, is_idle)) {
			waits = 1;
			begin_waiting(prev_watched, processor, stints, cpu, now_ns);
		}
	}
	if (is_idle) {
		/* No runnable task waits here; reset errors of the count. */
		processor->n_waiting = 0;
		return 0;
	}
	if ((s32)processor->n_waiting <= 0) {
		processor->n_waiting = 0;
		return 0;
	}

	/* Record the task that runs from now on. */
	stints->began_ns = now_ns;
	stints->current =
		account_of(stints, next, next->cgroups->dfl_cgrp->kn->id, next_owner, now_ns);
	/* Turns between the broker's own threads are no preemptions. */
	if (waits && record && next_owner != prev_owner &&
	    !(kind_of(prev_owner) == RUN_QUEUE_THREAD && use == RUN_QUEUE_OWN)) {
		record->n_preemptions++;
		charge(record, &stints->accounts[stints->current & (MAX_ACCOUNTS - 1)], 0, 1);
	}
	return 0;
}

/* One of the next two is loaded: from 5.18 on the trace point passes the state of @prev. */
SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	return switched(prev, next, preempt || prev_state == TASK_RUNNING);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch_untold, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	/* A sleeping task becomes TASK_RUNNING only after it has left its processor. */
	return switched(prev, next, preempt || prev->__state == TASK_RUNNING);
}

/* --- Watched tasks: outside of the scheduler's locks --- */

/* Return the owner of tasks in @task's cgroup. */
static __always_inline u64 owner_by_cgroup(struct task_struct *task)
{
	struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	u64 *found;
	int i;

	for (i = 0; i < MAX_LEVELS && cgroup; i++) {
		u64 id = BPF_CORE_READ(cgroup, kn, id), parent;

		found = bpf_map_lookup_elem(&cgroups, &id);
		if (found && is_current(*found))
			return *found;
		parent = (u64)BPF_CORE_READ(cgroup, self.parent);
		if (!parent)
			break;
		cgroup = (struct cgroup *)(parent - bpf_core_field_offset(struct cgroup, self));
	}
	return 0;
}

/* Return the owner of the process @root and its descendants, if its start time is @start_ns. */
static __always_inline u64 owner_by_process(int root, u64 start_ns)
{
	struct run_queue_process *process = root ? bpf_map_lookup_elem(&processes, &root) : 0;

	if (process && process->start_ns == start_ns && is_current(process->owner))
		return process->owner;
	return 0;
}

/* Count @task for @owner from now on. */
static __always_inline void watch(struct task_struct *task, struct watched *watched, u64 owner,
				  u32 reason, int root, u64 root_start_ns)
{
	struct watched fresh = {};

	/* A wait under another owner is no longer counted. */
	if (watched && watched->owner != owner && watched->waiting_cpu)
		count_off(watched);
	if (!owner) {
		if (watched)
			bpf_task_storage_delete(&tasks, task);
		return;
	}
	if (!watched) {
		fresh.owner = owner;
		fresh.reason = reason;
		fresh.root = root;
		fresh.root_start_ns = root_start_ns;
		watched =
			bpf_task_storage_get(&tasks, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!watched) {
			u32 cpu = bpf_get_smp_processor_id();
			struct run_queue_processor *processor =
				bpf_map_lookup_elem(&processors, &cpu);

			if (processor)
				__sync_fetch_and_add(&processor->n_dropped, 1);
		}
		return;
	}
	watched->reason = reason;
	watched->root = root;
	watched->root_start_ns = root_start_ns;
	if (watched->owner != owner) {
		/* The former wait belongs to another owner. */
		watched->waiting_since_ns = 0;
		watched->owner = owner;
	}
}

/* Determine @task's owner: a thread of the broker, a process or its descendants, a cgroup. */
static __noinline int look_at(struct task_struct *task)
{
	struct watched *watched = bpf_task_storage_get(&tasks, task, 0, 0);
	struct task_struct *leader = task->group_leader;
	int number = number_of(task), root;
	u64 owner, *slot;
	struct run_queue_process *process;
	u64 start_ns;

	slot = number ? bpf_map_lookup_elem(&thread_slots, &number) : 0;
	if (slot && is_current(*slot)) {
		watch(task, watched, *slot, 0, 0, 0);
		return 0;
	}

	/* A new thread of the broker that has no slot yet. */
	if (watched && watched->owner == OWN_WITHOUT_SLOT)
		return 0;

	root = number_of(leader);
	start_ns = BPF_CORE_READ(leader, start_boottime);
	process = root ? bpf_map_lookup_elem(&processes, &root) : 0;
	if (process && !process->start_ns)
		process->start_ns = start_ns;
	owner = owner_by_process(root, start_ns);
	if (!owner && watched && watched->reason == BY_PROCESS) {
		root = watched->root;
		start_ns = watched->root_start_ns;
		owner = owner_by_process(root, start_ns);
	}
	if (owner) {
		watch(task, watched, owner, BY_PROCESS, root, start_ns);
		return 0;
	}
	watch(task, watched, owner_by_cgroup(task), BY_CGROUP, 0, 0);
	return 0;
}

SEC("iter/task")
int walk(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task, *self;
	u64 at;

	if (!task)
		return 0;
	self = bpf_get_current_task_btf();
	at = (u64)BPF_CORE_READ(self, thread_pid);
	if (!at)
		return 0;
	walker_level = BPF_CORE_READ((struct pid *)at, level);
	at += bpf_core_field_offset(struct pid, numbers) + (u64)walker_level * 16 + 8;
	bpf_probe_read_kernel(&walker_namespace, sizeof(walker_namespace), (void *)at);
	look_at(task);
	if (watched_of(task))
		n_tasks++;
	return 0;
}

/* A task was created, and was not woken yet. */
SEC("tp_btf/task_newtask")
int BPF_PROG(on_new_task, struct task_struct *task, u64 clone_flags)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct watched *watched;
	u64 owner;

	watched = watched_of(parent);
	if (watched && is_current(watched->owner)) {
		owner = watched->owner;
		if (kind_of(owner) == RUN_QUEUE_THREAD) {
			if (!(clone_flags & CLONE_THREAD))
				return 0;
			owner = OWN_WITHOUT_SLOT;
			watch(task, 0, owner, 0, 0, 0);
			return 0;
		}
		if (watched->reason == BY_PROCESS || task->cgroups == parent->cgroups) {
			watch(task, 0, owner, watched->reason, watched->root,
			      watched->root_start_ns);
			return 0;
		}
	}
	/* The child may be in another cgroup, or its parent may not have been walked yet. */
	if (n_watched) {
		struct task_struct *leader = parent->group_leader;
		int root = number_of(leader);
		u64 start_ns = BPF_CORE_READ(leader, start_boottime);

		owner = owner_by_process(root, start_ns);
		if (owner)
			watch(task, 0, owner, BY_PROCESS, root, start_ns);
		else
			watch(task, 0, owner_by_cgroup(task), BY_CGROUP, 0, 0);
	}
	return 0;
}

/*
 * A task, the first of its process, was moved into a cgroup. The next walk finds its other threads.
 */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_cgroup_attach, struct cgroup *cgroup, const char *path, struct task_struct *task,
	     bool threadgroup)
{
	if (n_watched)
		look_at(task);
	return 0;
}
