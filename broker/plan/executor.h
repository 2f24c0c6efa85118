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
 *
 * Device memory: an executor allocates what it was told to and nothing else, so that the ledger is
 * charged first and in full. Preparing a plan takes no device memory; it says what running will
 * need (struct exec_footprint). The reactor then decides what is resident: blocks of constants
 * (exec-block.h), shared by plans of one tenant, and the working memory of a plan. Loading and
 * unloading them are setup functions. Executors whose memory is the processor's (the CPU) have no
 * such functions: what they prepared is ready.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan/exec-block.h"
#include "plan/plan.h"
#include "util/cleanup.h"

struct executor;
struct waker;

/* A memfd as dma-bufs, in order, each but the last of a device's arena_segment_bytes. */
struct exec_wraps {
	uint32_t n;
	int fds[];
};

/* A registered arena, as executors see it. Owned by the session; lives as long as any user. */
struct exec_arena {
	uint8_t *base; /* the broker's mapping; read-only where immutable */
	uint64_t bytes;
	bool immutable;
	/*
	 * No process can take pages away, so touching them never waits for one that does. Where
	 * this is not so only threads that may sleep touch the memory. Set before the first task
	 * can name it.
	 */
	bool is_fixed;
	dev_t dev; /* of the memfd: (dev, ino) identifies the bytes for sharing */
	ino_t ino;
	uint64_t owner;                /* opaque id of tenant and user, for isolation */
	void *import[RBK_MAX_DEVICES]; /* executor's, set by arena_import; NULL: not imported */
	struct exec_wraps *wraps[RBK_MAX_DEVICES]; /* of arena_wrap(), the owner's; NULL: none */
	/* Borrowed: the memfd while arena_wrap or arena_import run, else -1; an exported one's
	 * always. */
	int fd;
	/*
	 * Made by that executor's arena_export(): fd is a dma-buf and base a mapping of it, which
	 * is valid until the owner unmaps it whatever becomes of the device. NULL: a memfd.
	 */
	struct executor *exporter;
};

struct exec_ref {
	struct exec_arena *arena;
	uint64_t offset;
};

enum exec_state {
	EXEC_IDLE = 0,
	EXEC_QUEUED, /* submitted; the executor moves it to RUNNING by compare-and-swap */
	EXEC_RUNNING,
	/*
	 * Set by the reactor by compare-and-swap from QUEUED; where the executor can stop a task
	 * that has begun (executor_ops.abandon), also from RUNNING and STOPPING.
	 */
	EXEC_CANCELLED,
	/* There only: set by compare-and-swap from RUNNING; the task is to be handed back soon. */
	EXEC_STOPPING,
	EXEC_ENDED, /* there only: set by the executor, from whatever it was; too late to cancel */
};

/* exec_task.res of a task that was stopped before its end. */
enum { EXEC_UNFINISHED = 1 };

/* The place where an unfinished task goes on; the executor's. */
struct exec_progress {
	uint32_t step, round, n_chunks, front, back;
	uint16_t block;
	bool is_out_of_range;
};

/* One execution. Preallocated by the dispatcher; the executor borrows it from submit to reap. */
struct exec_task {
	struct plan *plan;
	const struct exec_ref *refs; /* plan->n_bindings, checked */
	uint32_t count;
	/*
	 * Which of the plan's n_parts on this device this submission runs, from 0. The parts of a
	 * task are submitted one after the other, each when the one before it is back with 0; other
	 * tasks run in between. From the first part to the last, or to the one that fails, the
	 * executor keeps what it needs to go on; all of them are submitted unless one fails, and
	 * only the first can be cancelled.
	 */
	uint16_t part;
	/*
	 * Starts before all tasks that were submitted without it and have not started; on a CPU
	 * also in the middle of one that has. Does not change from submit to reap.
	 */
	bool is_urgent;
	_Atomic uint8_t state; /* enum exec_state */
	/*
	 * An executor that can stop tasks stops this one by itself once it has run that long, in
	 * clock_ticks(); 0: it does not.
	 */
	uint64_t slice_ticks;
	/*
	 * False when a task is submitted for the first time. The executor sets it where it hands
	 * the task back with EXEC_UNFINISHED: the next submission, of the same task with the same
	 * plan, references and count, goes on where it was stopped, and gives the same results bit
	 * for bit. A task that is not to go on is given to executor_ops.abandon(); one that was
	 * cancelled after it had stopped comes back unfinished, too.
	 */
	bool has_progress;
	struct exec_progress progress;

	/* Set by the executor before it hands the task back. */
	/*
	 * 0; -ECANCELED; -EDOM, an index in its data is out of range; -EIO, the device failed;
	 * -ENOMEM; -EXDEV, a tensor lies where this device cannot reach it. After all but the first
	 * three the task may be run elsewhere. EXEC_UNFINISHED: see has_progress; times and bytes
	 * are of this submission alone.
	 */
	int32_t res;
	/*
	 * clock_ticks(). end_ticks - start_ticks is what this task alone took: where tasks of one
	 * submission are told apart by their share only, or urgent ones got in between on the
	 * thread that ran it, start_ticks is later by as much.
	 */
	uint64_t start_ticks;
	uint64_t end_ticks;
	/*
	 * What all threads of the device together worked on it, without what they did in between;
	 * 0: end_ticks - start_ticks.
	 */
	uint64_t busy_ticks;
	uint64_t copied_bytes;      /* of tensors, by a CPU, beyond the operators themselves */
	uint64_t transferred_bytes; /* of tensors, by a device's own engine */

	void *executor_private[2]; /* the executor's, between submit and reap */
};

enum executor_kind { EXECUTOR_CPU, EXECUTOR_GPU, EXECUTOR_SOFTWARE_GPU };

/* Which piece of hardware an executor drives, for matching it with what the kernel says of it. */
struct exec_identity {
	bool has_pci; /* VK_EXT_pci_bus_info */
	uint32_t pci_domain;
	uint8_t pci_bus, pci_device, pci_function;
	bool has_render; /* VK_EXT_physical_device_drm: the render node */
	uint32_t render_major, render_minor;
	uint8_t uuid[16]; /* of the device; all 0: none */
};

/* For listings; strings live as long as the executor. */
struct executor_info {
	enum executor_kind kind;
	const char *name;   /* "AMD Radeon RX 580 Series (RADV POLARIS10)" */
	const char *driver; /* "Mesa 22.3.6 (LLVM 15.0.6)" */
	const char *paths;  /* "host-import,staged"; for the CPU its SIMD level */
	/*
	 * Sizes of float16 matrices that threads multiply together by instructions of their own, as
	 * "16x16x16"; NULL or "": none, or nobody tells.
	 */
	const char *matrices;
	uint32_t types; /* OP_TYPE() of those that it can have in memory; 0: all */
	uint64_t memory_bytes;
	/* How the memory is handed out: sizes are rounded up to the page, offsets to the align. */
	uint64_t memory_page_bytes; /* 0: the executor has no memory of its own */
	uint64_t memory_align_bytes;
	uint32_t allocation_mappings; /* virtual memory areas that an allocation is; 0 or 1 */
	uint64_t gtt_bytes; /* host memory that the device can use as EXEC_TIER_GTT; 0: none */
	bool is_integrated; /* VRAM is a part of the host's memory */
	/*
	 * In a memfd of several times that size, a tensor that lies on both sides of a multiple of
	 * it cannot be reached in place; 0: any can. A multiple of the page size.
	 */
	uint64_t arena_segment_bytes;
	bool exports_arenas; /* arena_export() is its best way to share memory with clients */
	struct exec_identity identity;
	uint32_t n_threads; /* that compute, for the spin policy; a GPU: 0 */
	/*
	 * Floating-point operations per nanosecond that one thread surely reaches in MatMul, Gemm
	 * and Conv on data in cache; 0: unknown. For predicting what may run inline.
	 */
	uint32_t blocked_flops_per_ns;
	/*
	 * An operator that takes one thread longer than this, in nanoseconds as its flops and bytes
	 * suggest, is computed by all n_threads that have nothing else to do; shorter ones by one.
	 * 0: never shared, or the device knows no threads.
	 */
	float share_min_ns;
};

/*
 * How much of its result a group of a device's threads computes at once: of which shapes a device
 * has several, the fastest is found by measuring, for each class of problems.
 */
enum exec_tile_op {
	EXEC_TILE_MATMUL,      /* and Gemm, and Conv whose window is one element */
	EXEC_TILE_CONV,        /* of both types */
	EXEC_TILE_MATMUL_HALF, /* as EXEC_TILE_MATMUL, of float16 */
	EXEC_TILE_OPS,
};
enum exec_tile_class {
	EXEC_TILE_LARGE,
	EXEC_TILE_SMALL,    /* less than EXEC_TILE_LARGE_ELEMS elements of the result */
	EXEC_TILE_FEW_ROWS, /* up to EXEC_TILE_ROWS; of a Conv, output channels */
	EXEC_TILE_FEW_COLS, /* else up to EXEC_TILE_COLS; of a Conv, positions */
	EXEC_TILE_CLASSES,
};
enum {
	EXEC_TILE_ROWS = 16,
	EXEC_TILE_COLS = 64,
	EXEC_TILE_LARGE_ELEMS = 65536,
	EXEC_MAX_TILES = 6, /* shapes that a device has for an operator */
};
struct exec_tile {
	uint8_t rows, cols;
	bool of_matrices; /* by the instructions that executor_info.matrices is about */
};
/* Numbers of shapes, executor_ops.tile()'s. */
struct exec_tiles {
	uint8_t of[EXEC_TILE_OPS][EXEC_TILE_CLASSES];
};

enum { EXEC_PIECE_BYTES = 1536 }; /* see exec_translation_bytes() */

enum {
	EXECUTOR_E_BUSY = 1,        /* submit: the queue is full, try again after a reap */
	EXECUTOR_E_UNSUPPORTED = 2, /* plan_prepare: not on this device, see device_state */
	EXECUTOR_E_MORE = 3,        /* a part is done: call it again */
	EXECUTOR_E_NO_MEMORY = 4,   /* the driver has no memory left, although it was charged */
	EXECUTOR_E_CANCELLED = 5,   /* block_load: somebody set is_cancelled */
};

/* What the driver says of a device's memory (VK_EXT_memory_budget), in bytes. */
struct exec_memory {
	bool has_budget;
	uint64_t budget_bytes; /* what this process may use before the driver moves things */
	uint64_t usage_bytes;  /* what this process uses, by the driver's count */
};

/* Working memory of a plan on a device: what plan_load() is told to allocate. */
struct exec_load {
	enum exec_tier tier;
	uint32_t n_slots; /* 1..footprint.max_slots: tasks of the plan that can be on their way */
	/* By constant, plan->n_constants: a loaded block of this device and the offset within. */
	const struct exec_block **blocks;
	const uint64_t *offsets;
	/* What a driver compiles when something first runs, the first task waits for, and not this.
	 */
	bool starts_cold;
};

struct executor_ops {
	/*
	 * Where info.arena_segment_bytes is set: has the kernel wrap a memfd for arena_import(),
	 * and for the import when a lost device is opened anew, into arena->wraps[index], all of it
	 * or nothing. That waits for whoever writes to the memfd, as long as that takes, so it is
	 * any thread that nobody else waits for, before arena_import(). NULL: imports need none.
	 */
	void (*arena_wrap)(struct executor *executor, struct exec_arena *arena);
	/*
	 * setup: makes an arena usable by tasks of this device, sets arena->import[index].
	 * Failure is not an error of the client: the executor then stages, or plan_prepare says no.
	 * Called, and paired with arena_release(), also while a device is lost.
	 */
	void (*arena_import)(struct executor *executor, struct exec_arena *arena);
	/* setup: the reverse. On all executors, the exporter too, before base is unmapped. */
	void (*arena_release)(struct executor *executor, struct exec_arena *arena);

	/*
	 * setup: makes an arena of memory that this device and the processor share, zeroed, where
	 * info.exports_arenas. @bytes is a positive multiple of the page size. Fills *ret: base
	 * (mapped here, the caller unmaps it; *ret stays where it is until then), bytes, dev, ino,
	 * exporter, its own import[]; fd is -1. *ret_fd is the dma-buf, the caller's, for the
	 * client and for arena_import() of other devices. The memory exists until arena_release(),
	 * the mappings and all descriptors are gone, everybody's; a device that is lost leaves it
	 * to them. Return: 0; EXECUTOR_E_NO_MEMORY; EXECUTOR_E_UNSUPPORTED; -EIO, the device is
	 * lost; other negative errno. NULL: no memory of its own.
	 */
	int (*arena_export)(struct executor *executor, uint64_t bytes, struct exec_arena *ret,
			    int *ret_fd);

	/*
	 * setup: finds out how much host memory plan_prepare() will take, at most, before any of it
	 * is: sets host_bytes[index]. Does a bounded part of that at each call, so that others get
	 * in between. What it takes itself is no more than exec_translation_bytes(), and
	 * plan_release(), which may follow any part, gives it back. plan_prepare() need not be
	 * called afterwards. Return: 0; EXECUTOR_E_MORE; EXECUTOR_E_UNSUPPORTED, as plan_prepare();
	 * negative errno: plan_prepare() is not to be called. NULL: plan_prepare() takes no more
	 * than that either.
	 */
	int (*plan_measure)(struct executor *executor, struct plan *plan);

	/*
	 * setup: translates, compiles or packs a bounded part of what plan_prepare() would have to,
	 * so that others get in between, after plan_measure() where there is one; need not be
	 * called until nothing is left, and plan_release() may follow any part. plan_prepare() will
	 * say what is wrong with the plan or the device.
	 * Return: 0, nothing is left; EXECUTOR_E_MORE. NULL: plan_prepare() does not take long.
	 */
	int (*plan_compile)(struct executor *executor, struct plan *plan);

	/*
	 * setup: compiles and packs; sets plan->exec[index], device_state[index],
	 * host_bytes[index] and footprint[index]. Takes no device memory. On an executor with
	 * memory of its own (memory_page_bytes > 0) device_state becomes PLAN_DEVICE_EVICTED, and
	 * READY only by whoever loads it; on others READY.
	 * Return: 0; EXECUTOR_E_UNSUPPORTED, with device_state saying why; negative errno.
	 */
	int (*plan_prepare)(struct executor *executor, struct plan *plan);

	/*
	 * setup: gives back a bounded part of what plan_release() would have to, so that others get
	 * in between; the plan is unloaded, and plan_release() is all that may follow. Accepts a
	 * plan never prepared. Return: 0, little is left; EXECUTOR_E_MORE. NULL: plan_release()
	 * does not take long.
	 */
	int (*plan_shrink)(struct executor *executor, struct plan *plan);

	/* setup: the reverse; the plan is unloaded. Accepts a plan never prepared. */
	void (*plan_release)(struct executor *executor, struct plan *plan);

	/*
	 * setup: allocates exactly block->bytes in block->tier and fills them from the arenas, a
	 * bounded part at each call, so that others get in between. The first call finds
	 * block->memory NULL. A load that failed or was cancelled may leave a part of the block,
	 * for block_shrink() and block_unload(), unless block->memory is NULL. Return: 0 when all
	 * is there; EXECUTOR_E_MORE; EXECUTOR_E_NO_MEMORY; EXECUTOR_E_CANCELLED; -EIO, the device
	 * is lost; other negative errno. NULL: no memory of its own.
	 */
	int (*block_load)(struct executor *executor, struct exec_block *block);
	/*
	 * setup: gives back a bounded part of what block_unload() would have to, so that others get
	 * in between; no plan uses the block, and block_unload() is all that may follow. Return: 0,
	 * little is left; EXECUTOR_E_MORE. NULL: block_unload() does not take long.
	 */
	int (*block_shrink)(struct executor *executor, struct exec_block *block);
	/* setup: frees a block, also one of a lost device or half loaded; no plan uses it. */
	void (*block_unload)(struct executor *executor, struct exec_block *block);

	/*
	 * setup: allocates the working memory of a prepared plan, cleared, and gets everything
	 * ready for tasks, a bounded part at each call, so that others get in between:
	 * exec_footprint_device_bytes() and exec_footprint_host_bytes() of load->n_slots are what
	 * it takes, exactly. @load is borrowed for the call and the same at each, its blocks until
	 * plan_unload(), which may follow a load of which more is left and must follow one that
	 * failed.
	 * Return: 0 when all is there; EXECUTOR_E_MORE; EXECUTOR_E_NO_MEMORY; -EIO, the device is
	 * lost; other negative errno.
	 */
	int (*plan_load)(struct executor *executor, struct plan *plan,
			 const struct exec_load *load);
	/*
	 * setup: gives back a bounded part of what plan_unload() would have to, so that others get
	 * in between; no task of the plan is in flight here, and plan_unload() is all that may
	 * follow. Accepts a plan half or never loaded. Return: 0, little is left; EXECUTOR_E_MORE.
	 * NULL: plan_unload() does not take long.
	 */
	int (*plan_unload_some)(struct executor *executor, struct plan *plan);
	/*
	 * setup: the reverse of plan_load(); no task of the plan is in flight here. Accepts one
	 * half or never loaded.
	 */
	void (*plan_unload)(struct executor *executor, struct plan *plan);

	/*
	 * setup: opens a lost device anew. Nothing is loaded; prepared plans stay prepared, and
	 * arenas imported as far as the executor can do that by itself. Return: 0; -EIO, try later;
	 * other negative errno.
	 */
	int (*reopen)(struct executor *executor);
	/*
	 * any thread: somebody knows, without a task having failed, that the device is gone or has
	 * lost what it held; @why is for the log. It is lost from now on. NULL: cannot be lost.
	 */
	void (*lose)(struct executor *executor, const char *why);
	/* any thread: has the device been lost, and not been reopened since? */
	bool (*is_lost)(struct executor *executor);

	/* any thread: asks the driver. May take some microseconds. NULL: nobody to ask. */
	void (*memory_sample)(struct executor *executor, struct exec_memory *ret);
	/* any thread: bytes allocated now by block_load() and plan_load(), of @tier. */
	uint64_t (*memory_used)(struct executor *executor, enum exec_tier tier);

	/*
	 * reactor: runs a task to completion in the caller, or NULL if this device cannot.
	 * Only for plans that are data-independent and predicted to be tiny. The caller has set
	 * start_ticks, so that tasks run one after the other share a reading of the clock. Of what
	 * an executor sets, res and end_ticks are set and nothing else.
	 */
	void (*run_inline)(struct executor *executor, struct exec_task *task);

	/* reactor: queues a task. Return: 0; EXECUTOR_E_BUSY. */
	int (*submit)(struct executor *executor, struct exec_task *task);

	/* reactor, once per turn: starts what was queued (wakes threads, submits batches). */
	void (*flush)(struct executor *executor);

	/* reactor: takes back finished tasks. Return: how many of @max were stored in @ret. */
	unsigned int (*reap)(struct executor *executor, struct exec_task **ret, unsigned int max);

	/*
	 * reactor: frees what an unfinished task holds, which has_progress and is not submitted;
	 * has_progress is false afterwards. NULL: the executor stops no task that has begun.
	 */
	void (*abandon)(struct executor *executor, struct exec_task *task);

	/*
	 * any thread: shape @i of those that it can take for an operator, from 0 without gaps;
	 * which of them are faster is not known. Return: false, there is no such shape. NULL: none.
	 */
	bool (*tile)(struct executor *executor, enum exec_tile_op op, unsigned int i,
		     struct exec_tile *ret);

	/* Ends its threads; nothing may be in flight. Return: NULL. */
	struct executor *(*free)(struct executor *executor);
};

/* The common head of every executor. */
struct executor {
	const struct executor_ops *ops;
	struct executor_info info;
	uint8_t index; /* RBK_DEVICE_*; set by who creates it */
	/*
	 * Plans whose tasks cannot be split by rows are prepared in parts (struct exec_task.part)
	 * of at most that much work each, as far as the device can; 0: in one. Set by who creates
	 * it, before the first plan is prepared.
	 */
	uint64_t part_flops, part_bytes;
	/*
	 * Which shapes plans take that are prepared from now on: the executor's best guess until
	 * somebody has measured. Any thread; each number stands for itself.
	 */
	_Atomic uint8_t tiles[EXEC_TILE_OPS][EXEC_TILE_CLASSES];
	struct waker *waker; /* borrowed: rung after a finished task can be reaped */
};

static inline struct exec_wraps *exec_wraps_free(struct exec_wraps *wraps)
{
	for (uint32_t i = 0; wraps && i < wraps->n; i++)
		close_fd(wraps->fds[i]);
	free(wraps);
	return NULL;
}

/* Gives back what arena_wrap() made, after arena_release(). Any thread. */
static inline void exec_arena_unwrap(struct exec_arena *arena)
{
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		arena->wraps[i] = exec_wraps_free(arena->wraps[i]);
}

/* Host memory that an executor takes at most to translate a plan, before tensors come into it. */
static inline uint64_t exec_translation_bytes(const struct plan *plan)
{
	return ((uint64_t)plan->n_nodes + plan->n_pieces) * EXEC_PIECE_BYTES;
}

/* Numbers that the executor has no shape for are left out. */
void executor_set_tiles(struct executor *executor, const struct exec_tiles *tiles);
void executor_get_tiles(const struct executor *executor, struct exec_tiles *ret);

/* "large", "small", "few_rows", "few_columns"; "MatMul", "Conv", "MatMul_float16". */
const char *exec_tile_class_name(enum exec_tile_class class);
const char *exec_tile_op_name(enum exec_tile_op op);

/* Of a result of @rows times @cols elements, @batch of them. */
static inline enum exec_tile_class exec_tile_class(uint64_t rows, uint64_t cols, uint64_t batch)
{
	if (rows <= EXEC_TILE_ROWS)
		return EXEC_TILE_FEW_ROWS;
	if (cols <= EXEC_TILE_COLS)
		return EXEC_TILE_FEW_COLS;
	return rows * cols * batch < EXEC_TILE_LARGE_ELEMS ? EXEC_TILE_SMALL : EXEC_TILE_LARGE;
}

/* The executor's side of the QUEUED race. Return: false if the reactor cancelled it first. */
static inline bool exec_task_begin(struct exec_task *task)
{
	uint8_t expected = EXEC_QUEUED;

	return atomic_compare_exchange_strong_explicit(&task->state, &expected, EXEC_RUNNING,
						       memory_order_acq_rel, memory_order_acquire);
}

/*
 * The same at the end of a task, for executors that can stop tasks. Return: false if the reactor
 * cancelled it first.
 */
static inline bool exec_task_end(struct exec_task *task)
{
	return atomic_exchange_explicit(&task->state, EXEC_ENDED, memory_order_acq_rel) !=
	       EXEC_CANCELLED;
}

/*
 * The reactor's side: has a task that has begun, on an executor that can stop it, put into
 * EXEC_STOPPING or EXEC_CANCELLED. Return: false if it has not begun, has ended, or is so already.
 */
static inline bool exec_task_stop(struct exec_task *task, enum exec_state state)
{
	uint8_t from = atomic_load_explicit(&task->state, memory_order_relaxed);

	/* Pairs with exec_task_end(): one of the two wins. */
	while (from == EXEC_RUNNING || (from == EXEC_STOPPING && state == EXEC_CANCELLED))
		if (atomic_compare_exchange_weak_explicit(&task->state, &from, (uint8_t)state,
							  memory_order_acq_rel,
							  memory_order_relaxed))
			return true;
	return false;
}
