#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The executor interface
 *
 * An executor represents one device to the dispatcher. It runs whole plans, and knows plans and
 * nothing above them. The interface is narrow on purpose: one tenant's executor can move into a
 * process of its own later.
 *
 * Threads: "setup" functions run on the setup thread and may take long (packing, compiling,
 * uploading). "Reactor" functions run on the reactor and must never block it. Setup functions of
 * one executor never run concurrently with each other; they do run beside tasks.
 *
 * Device memory: an executor allocates only what it was told to, so that the ledger is charged
 * first and in full. Preparing a plan takes no device memory; it reports what running will need
 * (struct exec_footprint). The reactor then decides what is resident: blocks of constants
 * (exec-block.h), shared by plans of one tenant, and the working memory of a plan. Loading and
 * unloading them are setup functions. An executor without memory of its own (the CPU's) has no such
 * functions: a prepared plan is ready.
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

/* A memfd as dma-bufs, in order; each but the last has the device's arena_segment_bytes. */
struct exec_wraps {
	uint32_t n;
	int fds[];
};

/* A registered arena, as executors see it. Owned by the session; lives as long as any user. */
struct exec_arena {
	uint8_t *base; /* the broker's mapping; read-only if immutable */
	uint64_t bytes;
	bool immutable;
	/*
	 * No process can take pages away, so an access never waits for a process that does. If
	 * false, only threads that may sleep access the memory. Set before the first task can name
	 * the arena.
	 */
	bool is_fixed;
	dev_t dev; /* device number of the memfd; (dev, ino) identifies the bytes for sharing */
	ino_t ino;
	uint64_t owner;                /* opaque id of tenant and user, for isolation */
	void *import[RBK_MAX_DEVICES]; /* executor's, set by arena_import; NULL: not imported */
	/* the owner's, made by arena_wrap(); NULL: none */
	struct exec_wraps *wraps[RBK_MAX_DEVICES];
	/*
	 * Borrowed: the memfd during arena_wrap and arena_import, otherwise -1; of an exported
	 * arena always the dma-buf.
	 */
	int fd;
	/*
	 * The executor whose arena_export() made the arena, or the arenas of whose driver are like
	 * a restored one: fd is a dma-buf and base is a mapping of it. The mapping is valid until
	 * the owner unmaps it, even if the device is lost. NULL: fd is a memfd, or such a device
	 * does not exist.
	 */
	struct executor *exporter;
	/* A client has used the bytes already, so arena_import() must not change them. */
	bool is_restored;
};

struct exec_ref {
	struct exec_arena *arena;
	uint64_t offset;
};

enum exec_state {
	EXEC_IDLE = 0,
	EXEC_QUEUED, /* submitted; the executor changes it to RUNNING by compare-and-swap */
	EXEC_RUNNING,
	/*
	 * Set by the reactor by compare-and-swap from QUEUED. If the executor can stop a task that
	 * has begun (executor_ops.abandon), also from RUNNING and STOPPING.
	 */
	EXEC_CANCELLED,
	/*
	 * Only on executors that can stop tasks: set by compare-and-swap from RUNNING; the task is
	 * to be handed back soon.
	 */
	EXEC_STOPPING,
	/*
	 * Only on executors that can stop tasks: set by the executor, from any state; too late to
	 * cancel.
	 */
	EXEC_ENDED,
};

/* exec_task.res of a task that was stopped before its end. */
enum { EXEC_UNFINISHED = 1 };

/* The point at which an unfinished task continues; the executor's. */
struct exec_progress {
	uint32_t step, round, n_chunks, front, back;
	uint16_t block;
	bool is_out_of_range;
};

/*
 * One execution of a plan. Preallocated by the dispatcher; the executor borrows it from submit to
 * reap.
 */
struct exec_task {
	struct plan *plan;
	const struct exec_ref *refs; /* plan->n_bindings references, checked */
	uint32_t count;
	/*
	 * Index of the part that this submission runs, of the plan's n_parts on this device. The
	 * parts of a task are submitted one after the other, each when the part before it was
	 * handed back with 0. Other tasks run in between. The executor keeps what it needs from the
	 * first part to the last, or to the one that fails. All parts are submitted unless one
	 * fails, and only the first can be cancelled.
	 */
	uint16_t part;
	/*
	 * Starts before all tasks that are not urgent and have not started; on a CPU it also
	 * preempts one that has. Does not change from submit to reap.
	 */
	bool is_urgent;
	/* For run_inline(): end_ticks is set, so that the clock need not be read. */
	bool has_end;
	_Atomic uint8_t state; /* enum exec_state */
	/*
	 * 1 + a processor that another thread keeps busy while the task runs, such as a client that
	 * polls; 0: none. A CPU executor's worker that is pinned to it does not help with the task,
	 * and is not chosen for it if there is another: the task would wait for its share of time.
	 * It may still take the task if it is idle first.
	 */
	uint32_t busy_processor;
	/*
	 * Time slice in clock_ticks(), after which an executor that can stop tasks stops this one;
	 * 0: none.
	 */
	uint64_t slice_ticks;
	/*
	 * False at the first submission of a task. The executor sets it when it hands the task back
	 * with EXEC_UNFINISHED. The next submission, with the same plan, references and count, then
	 * continues where the task was stopped. The results are the same bit for bit. A task that
	 * is not to be continued is given to executor_ops.abandon(). A task that was cancelled
	 * after it had stopped is handed back unfinished, too.
	 */
	bool has_progress;
	struct exec_progress progress;
	/*
	 * Called when the task begins, not when it resumes, by the executor's thread, which may
	 * sleep on memory that the task names. NULL: nothing to do.
	 */
	void (*on_begin)(struct exec_task *task);

	/* Set by the executor before it hands the task back. */
	/*
	 * 0; -ECANCELED; -EDOM: an index in the task's data is out of range; -EIO: the device
	 * failed; -ENOMEM; -EXDEV: the device cannot reach a tensor. After -EIO, -ENOMEM and -EXDEV
	 * the task may be run on another device. EXEC_UNFINISHED: see has_progress; times and bytes
	 * are those of this submission alone.
	 */
	int32_t res;
	/*
	 * Times in clock_ticks(). end_ticks - start_ticks is the time that this task alone took.
	 * start_ticks is adjusted to be later where tasks of one submission are known only by their
	 * shares of it, or where urgent tasks ran in between on the same thread.
	 */
	uint64_t start_ticks;
	uint64_t end_ticks;
	/*
	 * Time that all threads of the device together worked on the task, without other work in
	 * between; 0: end_ticks - start_ticks.
	 */
	uint64_t busy_ticks;
	uint64_t copied_bytes;      /* copied by a CPU, beyond the operators themselves */
	uint64_t transferred_bytes; /* copied by the device's own engine */

	void *executor_private[2]; /* the executor's, between submit and reap */
};

enum executor_kind { EXECUTOR_CPU, EXECUTOR_GPU, EXECUTOR_SOFTWARE_GPU };

/* The hardware that an executor drives, to match it with the kernel's devices. */
struct exec_identity {
	bool has_pci; /* from VK_EXT_pci_bus_info */
	uint32_t pci_domain;
	uint8_t pci_bus, pci_device, pci_function;
	bool has_render; /* render node, from VK_EXT_physical_device_drm */
	uint32_t render_major, render_minor;
	uint8_t uuid[16]; /* the device's; all 0: none */
};

/* For listings; strings live as long as the executor. */
struct executor_info {
	enum executor_kind kind;
	const char *name;   /* "AMD Radeon RX 580 Series (RADV POLARIS10)" */
	const char *driver; /* "Mesa 22.3.6 (LLVM 15.0.6)" */
	const char *paths;  /* "host-import,staged"; for the CPU its SIMD level */
	/*
	 * Sizes of the float16 matrices that the device's matrix instructions multiply, as
	 * "16x16x16"; NULL or "": none, or not known.
	 */
	const char *matrices;
	uint32_t types; /* OP_TYPE() of the element types that its memory can hold; 0: all */
	uint64_t memory_bytes;
	/* Sizes in memory are rounded up to the page, offsets to the align. */
	uint64_t memory_page_bytes; /* 0: the executor has no memory of its own */
	uint64_t memory_align_bytes;
	uint32_t allocation_mappings; /* virtual memory areas per allocation: 0 or 1 */
	uint64_t gtt_bytes;           /* host memory for EXEC_TIER_GTT; 0: none */
	bool is_integrated;           /* VRAM is a part of the host's memory */
	/*
	 * In a memfd of several segments of this size, a tensor that crosses a segment boundary
	 * cannot be reached in place; 0: every tensor can. A multiple of the page size.
	 */
	uint64_t arena_segment_bytes;
	bool exports_arenas; /* arena_export() is the best way to share memory with clients */
	/*
	 * The kernel's name of the driver that makes dma-bufs of arena_export(); NULL or "": that
	 * does not work, or the name is not known.
	 */
	const char *export_name;
	struct exec_identity identity;
	uint32_t n_threads; /* computing threads, for the spin policy; a GPU: 0 */
	/*
	 * Floating-point operations per nanosecond that one thread reaches at least in MatMul, Gemm
	 * and Conv on data in cache; 0: unknown. Used to predict which tasks may run inline.
	 */
	uint32_t blocked_flops_per_ns;
	/*
	 * Time in nanoseconds, estimated from flops and bytes, above which an operator is computed
	 * by all idle threads of n_threads instead of one. 0: operators are never shared, or the
	 * device has no threads.
	 */
	float share_min_ns;
};

/*
 * Tile shapes: how much of its result a group of a device's threads computes at once. A device has
 * several shapes; measurements find the fastest for each class of problems.
 */
enum exec_tile_op {
	EXEC_TILE_MATMUL,      /* MatMul, Gemm, and Conv whose window is one element */
	EXEC_TILE_CONV,        /* Conv of both types */
	EXEC_TILE_MATMUL_HALF, /* EXEC_TILE_MATMUL of float16 */
	EXEC_TILE_OPS,
};
enum exec_tile_class {
	EXEC_TILE_LARGE,
	EXEC_TILE_SMALL,    /* results of less than EXEC_TILE_LARGE_ELEMS elements */
	EXEC_TILE_FEW_ROWS, /* at most EXEC_TILE_ROWS rows; for Conv, output channels */
	EXEC_TILE_FEW_COLS, /* otherwise at most EXEC_TILE_COLS columns; for Conv, positions */
	EXEC_TILE_CLASSES,
};
enum {
	EXEC_TILE_ROWS = 16,
	EXEC_TILE_COLS = 64,
	EXEC_TILE_LARGE_ELEMS = 65536,
	EXEC_MAX_TILES = 6, /* shapes of a device for an operator */
};
struct exec_tile {
	uint8_t rows, cols;
	bool of_matrices; /* uses the instructions of executor_info.matrices */
};
/* Shapes by the numbers of executor_ops.tile(). */
struct exec_tiles {
	uint8_t of[EXEC_TILE_OPS][EXEC_TILE_CLASSES];
};

enum { EXEC_PIECE_BYTES = 1536 }; /* see exec_translation_bytes() */

enum {
	EXECUTOR_E_BUSY = 1,        /* submit: the queue is full, retry after a reap */
	EXECUTOR_E_UNSUPPORTED = 2, /* plan_prepare: not on this device, see device_state */
	EXECUTOR_E_MORE = 3,        /* a part is done: call the function again */
	EXECUTOR_E_NO_MEMORY = 4,   /* the driver has no memory left, although it was charged */
	EXECUTOR_E_CANCELLED = 5,   /* block_load: is_cancelled was set */
};

/* The driver's figures of a device's memory (VK_EXT_memory_budget), in bytes. */
struct exec_memory {
	bool has_budget;
	uint64_t budget_bytes; /* bytes that this process may use before the driver moves memory */
	uint64_t usage_bytes;  /* bytes that this process uses, by the driver's count */
};

/* Working memory of a plan on a device, which plan_load() allocates. */
struct exec_load {
	enum exec_tier tier;
	uint32_t n_slots; /* 1..footprint.max_slots: tasks of the plan that can be in flight */
	/* By constant, plan->n_constants: a loaded block of this device, and the offset within. */
	const struct exec_block **blocks;
	const uint64_t *offsets;
	/*
	 * Pipelines that the driver compiles at their first run are compiled by the first task, not
	 * by the load.
	 */
	bool starts_cold;
};

/* See executor_ops.run_here. */
typedef void exec_look_fn(void *context);

struct executor_ops {
	/*
	 * Wraps a memfd into arena->wraps[index], all of it or nothing, where
	 * info.arena_segment_bytes is set. The dma-bufs are for arena_import(), and for imports
	 * when a lost device is reopened. The kernel waits for processes that write to the memfd,
	 * as long as that takes. So this is called before arena_import(), on any thread that no
	 * other thread waits for. NULL: imports need no dma-bufs.
	 */
	void (*arena_wrap)(struct executor *executor, struct exec_arena *arena);
	/*
	 * setup: makes an arena usable by tasks of this device, and sets arena->import[index].
	 * Failure is not the client's error: the executor then uses staging buffers, or
	 * plan_prepare refuses. Called, and paired with arena_release(), also while a device is
	 * lost.
	 */
	void (*arena_import)(struct executor *executor, struct exec_arena *arena);
	/*
	 * setup: the reverse. Called on all executors, including the exporter, before base is
	 * unmapped.
	 */
	void (*arena_release)(struct executor *executor, struct exec_arena *arena);

	/*
	 * setup: makes an arena of zeroed memory that this device and the CPU share, where
	 * info.exports_arenas. @bytes is a positive multiple of the page size. Fills *ret: base
	 * (mapped here, unmapped by the caller; *ret does not move until then), bytes, dev, ino,
	 * exporter, its own import[]; fd is -1. *ret_fd is the dma-buf, owned by the caller, for
	 * the client and for arena_import() of other devices. The memory exists until
	 * arena_release() and until all mappings and descriptors are gone, those of other processes
	 * included. If the device is lost, its users keep the memory.
	 * Return: 0; EXECUTOR_E_NO_MEMORY; EXECUTOR_E_UNSUPPORTED; -EIO: the device is lost; other
	 * negative errno. NULL: no memory of its own.
	 */
	int (*arena_export)(struct executor *executor, uint64_t bytes, struct exec_arena *ret,
			    int *ret_fd);

	/*
	 * setup: finds an upper bound of the host memory that plan_prepare() will take, before it
	 * takes any: sets host_bytes[index]. Each call does a bounded part, so that other work can
	 * run in between. The search itself takes at most exec_translation_bytes(); plan_release(),
	 * which may follow any part, gives that back. plan_prepare() need not be called afterwards.
	 * Return: 0; EXECUTOR_E_MORE; EXECUTOR_E_UNSUPPORTED, as plan_prepare(); negative errno:
	 * plan_prepare() must not be called. NULL: plan_prepare() takes no more than
	 * exec_translation_bytes() either.
	 */
	int (*plan_measure)(struct executor *executor, struct plan *plan);

	/*
	 * setup: translates, compiles or packs a bounded part of the work of plan_prepare(), so
	 * that other work can run in between. Called after plan_measure(), if there is one. It need
	 * not be called until no work is left, and plan_release() may follow any part. Errors of
	 * the plan or the device are left to plan_prepare().
	 * Return: 0: no work is left; EXECUTOR_E_MORE. NULL: plan_prepare() does not take long.
	 */
	int (*plan_compile)(struct executor *executor, struct plan *plan);

	/*
	 * setup: compiles and packs; sets plan->exec[index], device_state[index], host_bytes[index]
	 * and footprint[index]. Takes no device memory. On an executor with memory of its own
	 * (memory_page_bytes > 0) device_state becomes PLAN_DEVICE_EVICTED, and the caller sets
	 * READY once the plan is loaded. On other executors it becomes READY.
	 * Return: 0; EXECUTOR_E_UNSUPPORTED: device_state says why; negative errno.
	 */
	int (*plan_prepare)(struct executor *executor, struct plan *plan);

	/*
	 * setup: does a bounded part of the work of plan_release(), so that other work can run in
	 * between. The plan is unloaded, and only plan_release() may follow. Accepts a plan never
	 * prepared.
	 * Return: 0: little is left; EXECUTOR_E_MORE. NULL: plan_release() does not take long.
	 */
	int (*plan_shrink)(struct executor *executor, struct plan *plan);

	/*
	 * setup: the reverse of plan_prepare(); the plan is unloaded. Accepts a plan never
	 * prepared.
	 */
	void (*plan_release)(struct executor *executor, struct plan *plan);

	/*
	 * setup: allocates exactly block->bytes in block->tier and fills them from the arenas. Each
	 * call does a bounded part, so that other work can run in between. At the first call
	 * block->memory is NULL. A load that failed or was cancelled may leave a part of the block
	 * for block_shrink() and block_unload(), unless block->memory is NULL.
	 * Return: 0: all is loaded; EXECUTOR_E_MORE; EXECUTOR_E_NO_MEMORY; EXECUTOR_E_CANCELLED;
	 * -EIO: the device is lost; other negative errno. NULL: no memory of its own.
	 */
	int (*block_load)(struct executor *executor, struct exec_block *block);
	/*
	 * setup: does a bounded part of the work of block_unload(), so that other work can run in
	 * between. No plan uses the block, and only block_unload() may follow.
	 * Return: 0: little is left; EXECUTOR_E_MORE. NULL: block_unload() does not take long.
	 */
	int (*block_shrink)(struct executor *executor, struct exec_block *block);
	/* setup: frees a block, which may be partly loaded or of a lost device; no plan uses it. */
	void (*block_unload)(struct executor *executor, struct exec_block *block);

	/*
	 * setup: allocates and clears the working memory of a prepared plan, and makes the plan
	 * ready for tasks. Each call does a bounded part, so that other work can run in between. It
	 * takes exactly exec_footprint_device_bytes() and exec_footprint_host_bytes() of
	 * load->n_slots. @load is borrowed for the call and the same at each call; its blocks are
	 * borrowed until plan_unload(). plan_unload() may follow an unfinished load, and must
	 * follow a failed one.
	 * Return: 0: all is loaded; EXECUTOR_E_MORE; EXECUTOR_E_NO_MEMORY; -EIO: the device is
	 * lost; other negative errno.
	 */
	int (*plan_load)(struct executor *executor, struct plan *plan,
			 const struct exec_load *load);
	/*
	 * setup: does a bounded part of the work of plan_unload(), so that other work can run in
	 * between. No task of the plan is in flight on the device, and only plan_unload() may
	 * follow. Accepts a plan partly or never loaded.
	 * Return: 0: little is left; EXECUTOR_E_MORE. NULL: plan_unload() does not take long.
	 */
	int (*plan_unload_some)(struct executor *executor, struct plan *plan);
	/*
	 * setup: the reverse of plan_load(); no task of the plan is in flight on the device.
	 * Accepts a plan partly or never loaded.
	 */
	void (*plan_unload)(struct executor *executor, struct plan *plan);

	/*
	 * setup: reopens a lost device. Nothing is loaded afterwards. Prepared plans stay prepared;
	 * arenas stay imported as far as the executor can reimport them by itself.
	 * Return: 0; -EIO: try later; other negative errno.
	 */
	int (*reopen)(struct executor *executor);
	/*
	 * any thread: declares the device lost, because it is known to be gone or to have lost its
	 * memory although no task has failed. @why is for the log. NULL: cannot be lost.
	 */
	void (*lose)(struct executor *executor, const char *why);
	/* any thread: returns true if the device was lost and has not been reopened since. */
	bool (*is_lost)(struct executor *executor);

	/* any thread: asks the driver; may take some microseconds. NULL: no figures. */
	void (*memory_sample)(struct executor *executor, struct exec_memory *ret);
	/* any thread: returns the bytes of @tier allocated now by block_load() and plan_load(). */
	uint64_t (*memory_used)(struct executor *executor, enum exec_tier tier);

	/*
	 * reactor: runs a task to completion in the caller; NULL if this device cannot. Only for
	 * plans that are data-independent and predicted to be tiny. The caller has set start_ticks,
	 * so that consecutive tasks share a reading of the clock. Of the members that an executor
	 * sets, only res and end_ticks are set; end_ticks may stay as it is if has_end.
	 */
	void (*run_inline)(struct executor *executor, struct exec_task *task);

	/*
	 * reactor: runs a task in the caller, instead of submit() and reap(): until the task ends
	 * or is stopped, it is as any task that the executor holds, and afterwards as one that
	 * reap() has handed back. Calls @look between pieces of work, about every ten microseconds
	 * where the kernels allow it. @look may cancel or stop the task, and may call every reactor
	 * function but this one. At most @n_helpers other threads of the device compute parts of
	 * the task meanwhile. NULL: this device cannot. Needs abandon().
	 */
	void (*run_here)(struct executor *executor, struct exec_task *task, unsigned int n_helpers,
			 exec_look_fn *look, void *context);

	/* reactor: queues a task. Return: 0; EXECUTOR_E_BUSY. */
	int (*submit)(struct executor *executor, struct exec_task *task);

	/* reactor, once per turn: starts the queued tasks (wakes threads, submits batches). */
	void (*flush)(struct executor *executor);

	/* reactor: hands finished tasks back. Return: the number stored in @ret, at most @max. */
	unsigned int (*reap)(struct executor *executor, struct exec_task **ret, unsigned int max);

	/*
	 * reactor: frees what an unfinished task holds, and clears has_progress. The task has
	 * has_progress and is not submitted. NULL: the executor cannot stop a task that has begun.
	 */
	void (*abandon)(struct executor *executor, struct exec_task *task);

	/*
	 * any thread: describes shape @i that the device can use for an operator, from 0 without
	 * gaps, in no order of speed. Return: false: there is no such shape. NULL: no shapes.
	 */
	bool (*tile)(struct executor *executor, enum exec_tile_op op, unsigned int i,
		     struct exec_tile *ret);

	/* Ends the executor's threads; no task may be in flight. Return: NULL. */
	struct executor *(*free)(struct executor *executor);
};

/* The common head of every executor. */
struct executor {
	const struct executor_ops *ops;
	struct executor_info info;
	uint8_t index; /* RBK_DEVICE_*; set by the creator */
	/*
	 * Bounds on the work of a part (struct exec_task.part). Plans whose tasks cannot be split
	 * by rows are prepared in parts of at most this much work, as far as the device can; 0: in
	 * one part. Set by the creator before the first plan is prepared.
	 */
	uint64_t part_flops, part_bytes;
	/*
	 * Numbers of the tile shapes for plans prepared from now on: the executor's best guess
	 * until they are measured. Any thread; each number is independent.
	 */
	_Atomic uint8_t tiles[EXEC_TILE_OPS][EXEC_TILE_CLASSES];
	/*
	 * A GPU's threads may poll for a moment instead of sleeping: a processor is left for them.
	 * Written by the dispatcher, false before; read by any thread.
	 */
	_Atomic bool may_poll;
	struct waker *waker; /* borrowed; rung after a finished task can be reaped */
};

static inline struct exec_wraps *exec_wraps_free(struct exec_wraps *wraps)
{
	for (uint32_t i = 0; wraps && i < wraps->n; i++)
		close_fd(wraps->fds[i]);
	free(wraps);
	return NULL;
}

/* Free the dma-bufs of arena_wrap(), after arena_release(). Any thread. */
static inline void exec_arena_unwrap(struct exec_arena *arena)
{
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		arena->wraps[i] = exec_wraps_free(arena->wraps[i]);
}

/*
 * Return an upper bound of the host memory that an executor takes to translate a plan, not counting
 * tensors.
 */
static inline uint64_t exec_translation_bytes(const struct plan *plan)
{
	return ((uint64_t)plan->n_nodes + plan->n_pieces) * EXEC_PIECE_BYTES;
}

/* Set the numbers of tile shapes; numbers without a shape are ignored. */
void executor_set_tiles(struct executor *executor, const struct exec_tiles *tiles);
void executor_get_tiles(const struct executor *executor, struct exec_tiles *ret);

/* Return "large", "small", "few_rows" or "few_columns"; "MatMul", "Conv" or "MatMul_float16". */
const char *exec_tile_class_name(enum exec_tile_class class);
const char *exec_tile_op_name(enum exec_tile_op op);

/* Return the class of a problem with @batch results of @rows times @cols elements. */
static inline enum exec_tile_class exec_tile_class(uint64_t rows, uint64_t cols, uint64_t batch)
{
	if (rows <= EXEC_TILE_ROWS)
		return EXEC_TILE_FEW_ROWS;
	if (cols <= EXEC_TILE_COLS)
		return EXEC_TILE_FEW_COLS;
	return rows * cols * batch < EXEC_TILE_LARGE_ELEMS ? EXEC_TILE_SMALL : EXEC_TILE_LARGE;
}

/* Begin a queued task, on the executor's side. Return: false if the reactor cancelled it first. */
static inline bool exec_task_begin(struct exec_task *task)
{
	uint8_t expected = EXEC_QUEUED;

	if (!atomic_compare_exchange_strong_explicit(&task->state, &expected, EXEC_RUNNING,
						     memory_order_acq_rel, memory_order_acquire))
		return false;
	if (task->on_begin && !task->has_progress)
		task->on_begin(task);
	return true;
}

/*
 * End a task, on the side of an executor that can stop tasks. Return: false if the reactor
 * cancelled it first.
 */
static inline bool exec_task_end(struct exec_task *task)
{
	return atomic_exchange_explicit(&task->state, EXEC_ENDED, memory_order_acq_rel) !=
	       EXEC_CANCELLED;
}

/*
 * Put a task that has begun into EXEC_STOPPING or EXEC_CANCELLED: the reactor's side, on an
 * executor that can stop it.
 * Return: false if the task has not begun, has ended, or has that state already.
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
