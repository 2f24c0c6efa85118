#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The executor interface
 *
 * What the dispatcher knows of a device. An executor runs whole plans; it knows plans and nothing
 * above them. Narrow on purpose: one tenant's executor can move into a process of its own later.
 *
 * Threads: "setup" functions run on the setup thread (they may take long: packing, compiling,
 * uploading), "reactor" functions on the reactor, which they must never block. Setup functions of
 * one executor never run concurrently with each other; they do run beside tasks.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan/plan.h"

struct executor;
struct waker;

/* A registered arena, as executors see it. Owned by the session; lives as long as any user. */
struct exec_arena {
	uint8_t *base; /* the broker's mapping; read-only where immutable */
	uint64_t bytes;
	bool immutable;
	dev_t dev; /* of the memfd: (dev, ino) identifies the bytes for sharing */
	ino_t ino;
	uint32_t owner;                /* opaque id of the tenant, for isolation */
	void *import[RBK_MAX_DEVICES]; /* executor's, set by arena_import; NULL: not imported */
};

struct exec_ref {
	struct exec_arena *arena;
	uint64_t offset;
};

enum exec_state {
	EXEC_IDLE = 0,
	EXEC_QUEUED, /* submitted; the executor moves it to RUNNING by compare-and-swap */
	EXEC_RUNNING,
	EXEC_CANCELLED, /* set by the reactor by compare-and-swap from QUEUED */
};

/* One execution. Preallocated by the dispatcher; the executor borrows it from submit to reap. */
struct exec_task {
	struct plan *plan;
	const struct exec_ref *refs; /* plan->n_bindings, checked */
	uint32_t count;
	_Atomic uint8_t state; /* enum exec_state */

	/* Set by the executor before it hands the task back. */
	int32_t res;          /* 0, -ECANCELED, -EIO (may be re-run elsewhere), -ENOMEM */
	uint64_t start_ticks; /* clock_ticks() */
	uint64_t end_ticks;
	uint64_t copied_bytes;      /* of tensors, by a CPU, beyond the operators themselves */
	uint64_t transferred_bytes; /* of tensors, by a device's own engine */

	void *executor_private[2]; /* the executor's, between submit and reap */
};

enum executor_kind { EXECUTOR_CPU, EXECUTOR_GPU, EXECUTOR_SOFTWARE_GPU };

/* For listings; strings live as long as the executor. */
struct executor_info {
	enum executor_kind kind;
	const char *name;   /* "AMD Radeon RX 580 Series (RADV POLARIS10)" */
	const char *driver; /* "Mesa 22.3.6 (LLVM 15.0.6)" */
	const char *paths;  /* "host-import,staged"; for the CPU its SIMD level */
	uint64_t memory_bytes;
	uint32_t n_threads; /* that compute, for the spin policy; a GPU: 0 */
	/*
	 * Floating-point operations per nanosecond that one thread surely reaches in MatMul, Gemm
	 * and Conv on data in cache; 0: unknown. For predicting what may run inline.
	 */
	uint32_t blocked_flops_per_ns;
};

enum {
	EXECUTOR_E_BUSY = 1,        /* submit: the queue is full, try again after a reap */
	EXECUTOR_E_UNSUPPORTED = 2, /* plan_prepare: not on this device, see device_state */
};

struct executor_ops {
	/*
	 * setup: makes an arena usable by tasks of this device, sets arena->import[index].
	 * Failure is not an error of the client: the executor then stages, or plan_prepare says no.
	 */
	void (*arena_import)(struct executor *executor, struct exec_arena *arena);
	void (*arena_release)(struct executor *executor, struct exec_arena *arena);

	/*
	 * setup: compiles, packs, uploads; sets plan->exec[index], device_state[index],
	 * host_bytes[index], device_bytes[index]. Return: 0; EXECUTOR_E_UNSUPPORTED, with
	 * device_state saying why; negative errno.
	 */
	int (*plan_prepare)(struct executor *executor, struct plan *plan);

	/* setup: the reverse; no task of the plan is in flight. Accepts a plan never prepared. */
	void (*plan_release)(struct executor *executor, struct plan *plan);

	/*
	 * reactor: runs a task to completion in the caller, or NULL if this device cannot.
	 * Only for plans that are data-independent and predicted to be tiny. The caller has set
	 * start_ticks, so that tasks run one after the other share a reading of the clock.
	 */
	void (*run_inline)(struct executor *executor, struct exec_task *task);

	/* reactor: queues a task. Return: 0; EXECUTOR_E_BUSY. */
	int (*submit)(struct executor *executor, struct exec_task *task);

	/* reactor, once per turn: starts what was queued (wakes threads, submits batches). */
	void (*flush)(struct executor *executor);

	/* reactor: takes back finished tasks. Return: how many of @max were stored in @ret. */
	unsigned int (*reap)(struct executor *executor, struct exec_task **ret, unsigned int max);

	/* Ends its threads; nothing may be in flight. Return: NULL. */
	struct executor *(*free)(struct executor *executor);
};

/* The common head of every executor. */
struct executor {
	const struct executor_ops *ops;
	struct executor_info info;
	uint8_t index;       /* RBK_DEVICE_*; set by who creates it */
	struct waker *waker; /* borrowed: rung after a finished task can be reaped */
};

/* The host address of a bound or constant tensor. Scratch is the executor's own affair. */
static inline uint8_t *exec_task_host(const struct exec_task *task, const struct tensor *tensor)
{
	const struct plan_constant *constant;
	const struct exec_ref *ref;

	if (tensor->kind == RBK_TENSOR_CONSTANT) {
		constant = &task->plan->constants[tensor->constant];
		return constant->arena->base + constant->offset;
	}
	ref = &task->refs[tensor->binding];
	return ref->arena->base + ref->offset;
}

/* The executor's side of the QUEUED race. Return: false if the reactor cancelled it first. */
static inline bool exec_task_begin(struct exec_task *task)
{
	uint8_t expected = EXEC_QUEUED;

	return atomic_compare_exchange_strong_explicit(&task->state, &expected, EXEC_RUNNING,
						       memory_order_acq_rel, memory_order_acquire);
}
