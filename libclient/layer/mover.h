#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Memory that moves: device memory of an idle program goes to host memory, and comes back
 *
 * With RINGBROKER_LEASE_SLEEP=1 the layer makes the program's buffers sparse: what is behind a
 * buffer can then be exchanged while its address stays. While the lease's page asks for it
 * (rbk_lease_page.sleep), or the lease has more than it should have, and the program submits
 * nothing, the layer copies the buffers' memory to memory of a host heap, binds the buffers to
 * that, frees the device's memory, and gives the credit back. Before the program's next submission
 * all of it comes back, as far as the lease has room; the rest is used where it is.
 *
 * Memory moves, in either direction, only while fences behind all work of the program are
 * signalled, and no call of it uses a queue or memory. Nothing waits for that: another thread of
 * the program may wait for the call in question.
 *
 * Not moved: memory of images and of the program's own sparse resources, mapped memory, exported
 * and imported memory, and memory for which the program names its own allocator.
 *
 * The program has a handle of the layer's own (a pointer to struct movable) for memory that may be
 * moved. movable.c has the functions that take such handles.
 *
 * A thread of the layer looks after all movers. Locks, from the outermost: process.movers_lock (the
 * list of movers; held while memory moves away) or mover.returning, mover.using (read: calls that
 * use a queue or memory; written: memory moves; only tried for writing), mover.lock.
 *
 * Source: the Vulkan specification, "Sparse Resources".
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <vulkan/vulkan_core.h>
#include <vulkan/vk_layer.h>

#include "libclient/layer/table.h"

struct device;
struct gpu;
struct mover;

enum { MOVER_MAX_QUEUES = 16 };

/* Memory of the program that may be moved. */
struct movable {
	struct movable *next, **link; /* in mover.movables; under mover.lock */
	VkDeviceMemory here;          /* the driver's handle, of the memory where it is */
	VkMemoryAllocateInfo info;    /* pNext is &flags or NULL */
	VkMemoryAllocateFlagsInfo flags;
	uint64_t bytes;                /* in whole pages, as charged */
	uint32_t heap;                 /* of info.memoryTypeIndex */
	bool is_away;                  /* in host memory; under mover.lock */
	uint32_t n_pins;               /* images, mappings: it stays; under mover.lock */
	struct sparse_buffer *buffers; /* bound to it; under mover.lock */
};

/* A buffer that the layer made sparse; a record of mover.buffers points to it. */
struct sparse_buffer {
	struct sparse_buffer *next, **link; /* in movable.buffers; link is NULL if it is in none */
	VkBuffer handle;
	VkDeviceSize bytes; /* VkMemoryRequirements.size */
	VkDeviceSize offset;
	bool is_fixed; /* cannot be bound to host memory */
};

/* Functions of the next layer; NULL: not available. */
struct mover_next {
	PFN_vkGetDeviceQueue get_queue;
	PFN_vkCreateBuffer create_buffer;
	PFN_vkDestroyBuffer destroy_buffer;
	PFN_vkGetBufferMemoryRequirements buffer_needs;
	PFN_vkBindBufferMemory bind_buffer;
	PFN_vkBindImageMemory bind_image;
	PFN_vkBindImageMemory2 bind_image2;
	PFN_vkQueueBindSparse bind_sparse;
	PFN_vkCreateCommandPool create_pool;
	PFN_vkDestroyCommandPool destroy_pool;
	PFN_vkAllocateCommandBuffers allocate_commands;
	PFN_vkBeginCommandBuffer begin;
	PFN_vkEndCommandBuffer end;
	PFN_vkCmdCopyBuffer copy;
};

struct mover {
	struct device *device;
	struct mover *following; /* in process.movers */
	struct mover_next next;
	pthread_rwlock_t using;
	pthread_mutex_t lock;
	struct table memories, buffers; /* of struct mover_record, by the program's handle */
	struct movable *movables;
	uint64_t n_submits;        /* atomic: calls that used a queue */
	uint64_t away_bytes;       /* atomic */
	uint64_t return_at_ns;     /* atomic: memory that is away is not tried before */
	uint32_t n_entering;       /* atomic: threads that wait for @using */
	bool is_dead;              /* atomic: the layer's own work failed, nothing moves any more */
	pthread_mutex_t returning; /* held by the thread that brings memory back */
	bool has_waited;           /* for room, since memory went away; under @returning */

	/* The layer's own queue. */
	uint32_t family, queue_index, host_type;
	VkQueue queue;
	VkCommandPool pool;
	VkCommandBuffer commands;
	VkFence fence;
	PFN_vkSetDeviceLoaderData set_loader_data;
	/* Lists for vkCreateDevice(), freed afterwards. */
	VkDeviceQueueCreateInfo *queue_infos;
	float *priorities;
	void *chain;

	/* The program's queues, and a fence behind all that each was given; under @using, written.
	 */
	uint32_t n_queues;
	VkQueue queues[MOVER_MAX_QUEUES];
	VkFence probes[MOVER_MAX_QUEUES];
	bool has_probes; /* they were submitted after submission number probed_at */
	uint64_t probed_at;
	bool has_unknown_queue; /* atomic: it uses a queue beside these, nothing moves */
	/* Numbers of submissions: nothing was under way; memory went away; at the last look. */
	uint64_t idle_at, away_at, seen_submits;
};

struct mover_record {
	uint64_t handle;
	void *object; /* struct movable or struct sparse_buffer */
};

/*
 * Make the device's mover, if the environment asks for it, and add to *info, a copy of the
 * program's, what the layer needs: a queue, and sparse binding. Return: 0, also if the device's
 * memory cannot be moved, which is then said; -ENOMEM.
 */
int mover_init(struct device *device, VkPhysicalDevice handle, VkDeviceCreateInfo *info);
/* Free the mover's lists for vkCreateDevice(), and make what it needs of the device, if there is
 * one. */
void mover_resolve(struct device *device, bool is_created);
/* End moving, before the device is destroyed. */
void mover_end(struct device *device);
/* Free the mover, which may be NULL, after that. */
void mover_deinit(struct mover *mover);

/*
 * Begin and end a call that uses a queue or memory. With @comes_back memory comes back first, as
 * far as there is room. @mover may be NULL.
 */
void mover_enter(struct mover *mover, bool comes_back);
void mover_leave(struct mover *mover);
/* The same for a submission to the program's queue. Waits while the lease is held. */
void mover_enter_submit(struct device *device, VkQueue queue);

/* Bind buffers to memory, each from its begin. Under mover.lock. @here: NULL: unbind. */
VkResult mover_bind(struct mover *mover, struct sparse_buffer *const *buffers, uint32_t n,
		    VkDeviceMemory here);

/* Have the thread of the layer look after the mover, and no longer. */
void mover_start(struct mover *mover);
void mover_stop(struct mover *mover);

/* ---- movable.c ---- */

/*
 * Decide whether memory may be moved. Return: a record for movable_add(), or for free(), whose info
 * replaces the program's; NULL: it may not, or there is no mover.
 */
struct movable *movable_new(struct device *device, const VkMemoryAllocateInfo *info,
			    const VkAllocationCallbacks *allocator);
/*
 * Return what an allocation that may not be moved is to be made of: @info, or a copy at @ret, whose
 * buffer of a dedicated allocation is left out, since the layer made it sparse.
 */
const VkMemoryAllocateInfo *movable_fix(struct device *device, const VkMemoryAllocateInfo *info,
					struct movable *ret);
/* Note that memory was allocated; the program's handle is the record's address. Return: 0; -ENOMEM.
 */
int movable_add(struct device *device, struct movable *movable, VkDeviceMemory here);
/* Forget memory that is to be freed. Return: its record, to be freed; NULL: it is not movable. */
struct movable *movable_remove(struct device *device, VkDeviceMemory handle);
/* Return the layer's function of this name for devices with a mover; NULL: none. */
PFN_vkVoidFunction movable_function(const char *name);
