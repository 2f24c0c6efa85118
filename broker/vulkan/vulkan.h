#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan executor
 *
 * Runs plans on GPUs, or on a software device where that was asked for. vulkan_open() looks for
 * devices and gives one struct executor (plan/executor.h) per usable one, together with sentences
 * for people: what is missing and what that costs. Having no Vulkan at all is a
 * result, not an error. Only this room uses volk; libvulkan is loaded at run time.
 *
 * What the executors promise beyond plan/executor.h:
 *  - Device memory is what block_load() and plan_load() were told to take, each block and each
 *    plan's working memory one allocation of the driver. Sizes are multiples of
 *    info.memory_page_bytes, measured when the device is opened so that the driver takes no more.
 *    The host memory that it holds for itself beside that, to stage constants, is 4 MiB at most.
 *  - plan_prepare() works on a lost device too, without compiling.
 *  - reopen() looks for the device in a new instance where the old one does not give it any more.
 *    What was measured and probed when it was first opened is taken to hold.
 *  - Tensors of 2^32 or more elements, of types that the device has not (info.types), and TopK
 *    with k above 256 are PLAN_DEVICE_UNSUPPORTED; so are, on a software device,
 * sums and selections over so many elements that its limit on loops would cut them short (about
 *    260,000 for MatMul, more for the others).
 *  - A task whose arena could not be imported, on a device that otherwise imports arenas, for a
 *    plan prepared before that arena was registered, completes with -EXDEV, to be run elsewhere.
 *  - A part of a task is at most part_flops and part_bytes of work at max_count, unless a single
 *    workgroup is more or the whole more than 13,000 times that. Parts take no device memory beyond
 *    a command buffer for each node that is cut and for what lies between.
 *  - Short tasks of one plan that wait next to each other are submitted together, as long as all
 *    of them are expected to take 200 us at most; they complete, or fail, together.
 *  - When a wait outlasts the timeout, or the driver reports a lost device, the device is marked
 *    lost: later tasks complete with -EIO, loading fails with it. A task that the device has begun
 *    completes only once the device has finished it or is known to be lost, so nothing that it
 *    may still touch is reused before.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/executor.h"
#include "util/cleanup.h"

struct vulkan;
struct waker;

enum vulkan_mode {
	VULKAN_AUTO,     /* real GPUs only */
	VULKAN_SOFTWARE, /* software devices only */
	VULKAN_ANY,      /* real GPUs; software devices where there is no real one to be used */
	VULKAN_NONE,     /* does not even load libvulkan */
};

/* How devices reach arenas, in order of preference: see vulkan/arena-import.h. */
enum vulkan_path {
	VULKAN_PATH_AUTO, /* the best that is seen to work; no path itself */
	VULKAN_PATH_HOST_IMPORT,
	VULKAN_PATH_UDMABUF,
	VULKAN_PATH_EXPORTED,
	VULKAN_PATH_STAGED, /* always works */
	VULKAN_PATH_COUNT,
};

/* For tests: what a device would otherwise decide by itself. */
enum {
	VULKAN_FORCE_STAGED = 1u << 0, /* no import of arenas, constants staged */
	VULKAN_FORCE_UPLOAD = 1u << 1, /* bound tensors copied into device memory and back */
	VULKAN_FORCE_SHARED = 1u << 2, /* shader variants for GPUs (shared memory, subgroups) */
	VULKAN_FORCE_PLAIN = 1u << 3,  /* shader variants for software devices */
	/* Takes a memory path for working once memory was imported: for drivers that run nothing.
	 */
	VULKAN_FORCE_UNPROVEN = 1u << 5,
	VULKAN_FORCE_DMA = 1u << 4, /* constants are copied by the device, never by us alone */
	VULKAN_FORCE_NO_DOUBLES = 1u << 6, /* as if the device had no shaderFloat64 */
};

/* Where vulkan_options.fault is asked; what it may answer. */
enum vulkan_fault_point {
	VULKAN_FAULT_SUBMIT, /* before each submission */
	VULKAN_FAULT_WAIT,   /* before each wait */
	VULKAN_FAULT_ALLOC,  /* before each allocation of device or host memory by the driver */
	VULKAN_FAULT_OPEN,   /* before a device is opened or reopened */
};
enum vulkan_fault {
	VULKAN_FAULT_NONE,
	VULKAN_FAULT_LOST,      /* answers for the driver that the device is lost or gone */
	VULKAN_FAULT_TIMEOUT,   /* waits only: pretends that time is up */
	VULKAN_FAULT_NO_MEMORY, /* allocations only: pretends that there is none left */
};

struct vulkan_options {
	enum vulkan_mode mode;
	const char *cache_dir;     /* of compiled pipelines; must exist; NULL: none on disk */
	uint64_t timeout_ns;       /* of one wait; 0: 10 s, 300 s for software */
	uint64_t memory_cap_bytes; /* of device memory to use at most; 0: the device's own size */
	enum vulkan_path path;     /* no other but staged; AUTO: whatever works */
	uint32_t force;            /* VULKAN_FORCE_* */
	/*
	 * Simulates failures, or NULL. Called by the device's threads and the setup thread.
	 */
	enum vulkan_fault (*fault)(void *context, enum vulkan_fault_point point);
	void *fault_context;
};

/*
 * Opens every usable device, at most RBK_MAX_DEVICES - 1. @waker is borrowed and rung after a
 * finished task can be reaped; @options is copied but for what it points to, which must outlive
 * the call (fault_context: the result). Who calls sets executor->index of each executor before
 * using it. Setup thread or before there are threads.
 * Return: 0, also when nothing was found; negative errno when out of memory or threads.
 */
int vulkan_open(const struct vulkan_options *options, struct waker *waker, struct vulkan **ret);

unsigned int vulkan_n_executors(const struct vulkan *vulkan);
/* Owned by @vulkan until its own ops->free() is called. NULL once that happened. */
struct executor *vulkan_executor(struct vulkan *vulkan, unsigned int i);

/*
 * Sentences for people about what is missing and what that costs; none if nothing is. They live as
 * long as @vulkan.
 */
unsigned int vulkan_n_sentences(const struct vulkan *vulkan);
const char *vulkan_sentence(const struct vulkan *vulkan, unsigned int i);

/*
 * Is the path that options.path asks for there, on every device and on one at least? Return: NULL;
 * a sentence that says where it is not and why, which lives as long as @vulkan.
 */
const char *vulkan_path_refusal(const struct vulkan *vulkan);

/* Does @executor reach arenas so? Return: NULL if so; else a phrase, static. */
const char *vulkan_path_why_not(struct executor *executor, enum vulkan_path path);

/* Frees the executors that are left, then itself. Return: NULL. */
struct vulkan *vulkan_free(struct vulkan *vulkan);

DEFINE_CLEANUP(struct vulkan *, vulkan_free)

/* What an executor of this room holds now, for tests and listings. Setup thread. */
struct vulkan_usage {
	uint64_t device_bytes; /* blocks, scratch, bounce copies */
	uint64_t host_bytes;   /* parameter blocks, staging of tensors */
	uint32_t n_blocks;
	uint32_t n_imports;
	bool lost;
};
void vulkan_usage(struct executor *executor, struct vulkan_usage *ret);

/*
 * How fast constants come into an executor's memory, in bytes per second, and back; 0: there is no
 * such way, or it could not be measured. Measured when the device was first opened, of 2 MiB
 * in the processor's caches at best, so rather too fast than too slow:
 *   direct  the processor writes mapped device memory, and reads it
 *   staged  the device copies from host memory of the broker's, the processor into that
 *   arena   the device copies from an imported arena
 * A block takes the fastest of those that it can take; on a software device always direct.
 */
struct vulkan_rate {
	uint64_t up_bytes_per_s, down_bytes_per_s;
};
struct vulkan_rates {
	struct vulkan_rate direct, staged, arena;
	bool has_queue; /* the device's copies have a queue of their own */
};
/* Any thread. */
void vulkan_rates(struct executor *executor, struct vulkan_rates *ret);

/*
 * For tests of isolation: do these @n bytes stand, at a multiple of 4, in any memory that plans
 * hold and the processor can read? Setup thread, while no task runs.
 */
bool vulkan_find_bytes(struct executor *executor, const void *bytes, size_t n);

/*
 * For tests: copies all bytes of a loaded block to @to, by the device where it is not mapped.
 * Setup thread. Return: 0; EXECUTOR_E_NO_MEMORY; negative errno.
 */
int vulkan_block_read(struct executor *executor, struct exec_block *block, uint8_t *to);

/*
 * Compiles every pipeline of a device's variant, for every device of any kind without starting it:
 * also on drivers that can compile but run nothing. Those for elements that a device has not in
 * memory are left out. For tests.
 * Return: 0, with the number of pipelines compiled and of those refused; negative errno.
 */
int vulkan_compile_all(uint32_t *ret_n_compiled, uint32_t *ret_n_refused);
