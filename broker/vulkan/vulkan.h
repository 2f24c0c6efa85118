#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan executor: runs plans on GPUs or on a software device
 *
 * vulkan_open() looks for devices and makes one struct executor (plan/executor.h) per usable
 * device. It also makes sentences for people: what is missing, and what that costs. A machine
 * without Vulkan is a result, not an error. Only this room uses volk; libvulkan is loaded at run
 * time.
 *
 * The executors promise, beyond plan/executor.h:
 * - Device memory: block_load() and plan_load() take exactly the bytes that they were told. Each
 *   block, and each plan's working memory, is one allocation of the driver. Sizes are multiples of
 *   info.memory_page_bytes, which is measured when the device is opened, so that the driver adds
 *   nothing to them. Besides, an executor holds at most 4 MiB of host memory for itself, to stage
 *   constants.
 * - plan_prepare() works on a lost device too, without compiling.
 * - reopen() looks for the device in a new instance if the old instance no longer lists it. The
 *   measurements and probes of the first opening are assumed to hold.
 * - PLAN_DEVICE_UNSUPPORTED are: tensors of 2^32 or more elements, tensors of types that the device
 *   lacks (info.types), and TopK with k above 256. On a software device so are sums and selections
 *   over more elements than its limit on loops allows (about 260,000 for MatMul, more for the
 *   others).
 * - A task completes with -EXDEV, to be run elsewhere, if its arena could not be imported, the
 *   device imports other arenas, and the plan was prepared before that arena was registered.
 * - A part of a task is at most part_flops and part_bytes of work at max_count. Exceptions: a
 *   single workgroup is more, or the whole task is more than 13,000 times that. Parts take no
 *   device memory beyond one command buffer for each node that is cut and for each run of steps
 *   between them.
 * - Short tasks of one plan that wait next to each other are submitted together if all of them are
 *   expected to take at most 200 us. They complete, or fail, together.
 * - A device is marked lost when a wait outlasts the timeout or the driver reports a lost device.
 *   Later tasks and loads fail with -EIO. A task that the device has begun completes only after the
 *   device has finished it or is known to be dead, so memory that the task may still touch is not
 *   reused before.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/executor.h"
#include "util/cleanup.h"

struct vulkan;
struct waker;

enum vulkan_mode {
	VULKAN_AUTO,           /* real GPUs only */
	VULKAN_SOFTWARE,       /* software devices only */
	VULKAN_SOFTWARE_TWICE, /* likewise, each as two devices: for tests of several GPUs */
	VULKAN_ANY,            /* real GPUs; software devices if no real GPU is usable */
	VULKAN_NONE,           /* no device; libvulkan is not even loaded */
};

/* Paths by which devices reach arenas, in order of preference: see vulkan/arena-import.h. */
enum vulkan_path {
	VULKAN_PATH_AUTO, /* best path that the probe sees working; not a path itself */
	VULKAN_PATH_HOST_IMPORT,
	VULKAN_PATH_UDMABUF,
	VULKAN_PATH_EXPORTED,
	VULKAN_PATH_STAGED, /* always works */
	VULKAN_PATH_COUNT,
};

/* Overrides, for tests, of choices that a device makes by itself. */
enum {
	VULKAN_FORCE_STAGED = 1u << 0, /* no import of arenas; constants staged */
	VULKAN_FORCE_UPLOAD = 1u << 1, /* bound tensors copied into device memory and back */
	VULKAN_FORCE_SHARED = 1u << 2, /* shader variants for GPUs (shared memory, subgroups) */
	VULKAN_FORCE_PLAIN = 1u << 3,  /* shader variants for software devices */
	/* memory paths count as working once memory is imported: for drivers that run nothing */
	VULKAN_FORCE_UNPROVEN = 1u << 5,
	/* constants copied by the device, never by the processor alone */
	VULKAN_FORCE_DMA = 1u << 4,
	VULKAN_FORCE_NO_DOUBLES = 1u << 6, /* as if the device had no shaderFloat64 */
};

/* The points at which vulkan_options.fault is called, and the answers that it may give. */
enum vulkan_fault_point {
	VULKAN_FAULT_SUBMIT, /* before each submission */
	VULKAN_FAULT_WAIT,   /* before each wait */
	VULKAN_FAULT_ALLOC,  /* before each allocation of device or host memory by the driver */
	VULKAN_FAULT_OPEN,   /* before a device is opened or reopened */
};
enum vulkan_fault {
	VULKAN_FAULT_NONE,
	VULKAN_FAULT_LOST,      /* the device is lost or gone, as if the driver had said so */
	VULKAN_FAULT_TIMEOUT,   /* waits only: as if the timeout had passed */
	VULKAN_FAULT_NO_MEMORY, /* allocations only: as if no memory were left */
};

struct vulkan_options {
	enum vulkan_mode mode;
	const char *cache_dir; /* existing folder of the pipeline cache; NULL: no cache on disk */
	uint64_t timeout_ns;   /* timeout of one wait; 0: 10 s, on a software device 300 s */
	uint64_t memory_cap_bytes; /* limit of device memory; 0: the device's own size */
	enum vulkan_path path;     /* only path to use besides staged; AUTO: the best that works */
	uint32_t force;            /* VULKAN_FORCE_* */
	/* Simulator of failures, or NULL. Called by the device's threads and the setup thread. */
	enum vulkan_fault (*fault)(void *context, enum vulkan_fault_point point);
	void *fault_context;
};

/*
 * Open every usable device, at most RBK_MAX_DEVICES - 1. @waker is borrowed; it is rung when a
 * finished task can be reaped. @options is copied, but what it points to is not: these objects must
 * outlive the call, and fault_context must outlive the result. The caller sets executor->index of
 * each executor before using the executor. Call on the setup thread, or before threads are started.
 * Return: 0, also if no device was found; negative errno if out of memory or threads.
 */
int vulkan_open(const struct vulkan_options *options, struct waker *waker, struct vulkan **ret);

unsigned int vulkan_n_executors(const struct vulkan *vulkan);
/*
 * Return executor @i, which @vulkan owns until the executor's ops->free() is called.
 * Return: NULL after ops->free().
 */
struct executor *vulkan_executor(struct vulkan *vulkan, unsigned int i);

/*
 * Sentences for people about what is missing and what that costs; none if nothing is missing. They
 * live as long as @vulkan.
 */
unsigned int vulkan_n_sentences(const struct vulkan *vulkan);
const char *vulkan_sentence(const struct vulkan *vulkan, unsigned int i);

/*
 * Check whether the path in options.path works on every device, and on at least one device.
 * Return: NULL if it does, and for AUTO and staged; else a sentence that names the device and the
 * reason, which lives as long as @vulkan.
 */
const char *vulkan_path_refusal(const struct vulkan *vulkan);

/*
 * Check whether @executor reaches arenas by @path.
 * Return: NULL if it does; else a static phrase with the reason.
 */
const char *vulkan_path_why_not(struct executor *executor, enum vulkan_path path);

/* Free the remaining executors, then @vulkan. Return: NULL. */
struct vulkan *vulkan_free(struct vulkan *vulkan);

DEFINE_CLEANUP(struct vulkan *, vulkan_free)

/*
 * Memory and objects that an executor of this room holds now, for tests and listings. Setup thread.
 */
struct vulkan_usage {
	uint64_t device_bytes; /* blocks, scratch, bounce copies, driver's command buffers */
	uint64_t host_bytes;   /* parameter blocks, staging of tensors, driver's command buffers */
	uint32_t n_blocks;
	uint32_t n_imports;
	bool lost;
};
void vulkan_usage(struct executor *executor, struct vulkan_usage *ret);

/*
 * Rates at which constants are copied into an executor's memory and back, in bytes per second. 0:
 * the way does not exist, or could not be measured. They are measured when the device is first
 * opened, on 2 MiB that fit into the processor's caches at best, so they are rather too high than
 * too low:
 *   direct  the processor writes mapped device memory, and reads it
 *   staged  the device copies from the broker's host memory, which the processor fills
 *   arena   the device copies from an imported arena
 * A block uses the fastest way that is open to it; on a software device always direct.
 */
struct vulkan_rate {
	uint64_t up_bytes_per_s, down_bytes_per_s;
};
struct vulkan_rates {
	struct vulkan_rate direct, staged, arena;
	bool has_queue; /* the device has a queue for copies alone */
};
/* Any thread. */
void vulkan_rates(struct executor *executor, struct vulkan_rates *ret);

/*
 * Search all memory that plans hold and the processor can read for these @n bytes, at multiples of
 * 4. For tests of isolation. Setup thread, while no task runs.
 * Return: true if the bytes were found.
 */
bool vulkan_find_bytes(struct executor *executor, const void *bytes, size_t n);

/*
 * Copy all bytes of a loaded block to @to, by the device. For tests. Setup thread.
 * Return: 0; EXECUTOR_E_NO_MEMORY; negative errno.
 */
int vulkan_block_read(struct executor *executor, struct exec_block *block, uint8_t *to);
