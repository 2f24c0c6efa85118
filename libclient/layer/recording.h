#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Recordings: command buffers of the program, and the parts of each
 *
 * The program's own handle is the first part. Further ones are allocated from the same pool and
 * kept until the program frees its command buffer. A recording is used by the thread that records
 * it, and then by those that submit it; Vulkan requires that they do not do so at the same time.
 */
#include <stdbool.h>
#include <stdint.h>

#include <vulkan/vulkan_core.h>

#include "libclient/layer/duration.h"
#include "libclient/layer/pipelines.h"

struct cutter;
struct device;

enum {
	RECORDING_BINDS = 16, /* calls that are kept to be repeated; with more, nothing is cut */
	RECORDING_SETS = 8,   /* of one such call */
	RECORDING_OFFSETS = 16,
	RECORDING_PUSHES = 8,
	RECORDING_PUSH_BYTES = 256,
	RECORDING_PIPELINES = 8,
	RECORDING_MAX_PARTS = 4096, /* the last one has the rest */
};

/* A call of vkCmdBindDescriptorSets() or vkCmdPushDescriptorSetKHR() for compute. */
struct bind {
	VkPipelineLayout layout;
	uint32_t first, n;  /* sets */
	uint32_t n_writes;  /* of pushed descriptors; 0: sets are bound */
	size_t writes_at;   /* in recording.pushed */
	uint32_t n_offsets; /* the rest is of sets that are bound */
	VkDescriptorSet sets[RECORDING_SETS];
	uint32_t offsets[RECORDING_OFFSETS];
};

/* A call of vkCmdPushConstants(). */
struct push {
	VkPipelineLayout layout;
	VkShaderStageFlags stages;
	uint32_t offset, n_bytes;
	uint8_t data[RECORDING_PUSH_BYTES];
};

struct part {
	VkCommandBuffer handle;
	uint32_t first_action, n_actions; /* of the recording's actions */
	bool is_endless;                  /* it has more than these, of unknown time */
};

/* A primary command buffer. */
struct recording {
	uint64_t handle;
	struct device *device;
	VkCommandPool pool;
	struct recording *next, *previous; /* of the pool; previous NULL: the first */
	VkCommandBuffer current;           /* the part that is recorded */
	bool is_cut;                       /* since its begin: it may have several parts */
	bool is_whole;       /* no further part begins: from the begin on, or since a command */
	bool is_together;    /* it must be submitted in one piece with those before and after it */
	uint32_t n_brackets; /* queries, render passes and the like that have begun */
	uint32_t n_labels, n_markers;   /* regions that have begun in the current part */
	VkCommandBufferBeginInfo begin; /* for further parts */
	VkResult error;                 /* of a part; VK_SUCCESS: none */

	struct part *parts;
	uint32_t n_parts, n_allocated, n_room;
	struct action *actions;
	uint32_t n_actions, n_actions_room;
	uint64_t part_ns; /* predicted time of the current part */

	/* The bindings; calls from the given number on are still to be made in the current part.
	 */
	struct pipeline pipeline; /* handle 0: none */
	bool has_pipeline;        /* in the current part */
	struct bind binds[RECORDING_BINDS];
	uint32_t n_binds, n_binds_there;
	uint8_t *pushed; /* pushed descriptors, in the form of descriptors.c */
	size_t n_pushed_bytes, n_pushed_room;
	struct push pushes[RECORDING_PUSHES];
	uint32_t n_pushes, n_pushes_there;
	uint64_t push_hash; /* of the last push */

	/* pipelines that were bound lately, by their handles, as of a generation */
	struct pipeline recent[RECORDING_PIPELINES];
	uint32_t recent_generation;
};

/* A command buffer and its recording; each thread remembers its last one. */
struct recorded {
	VkCommandBuffer handle;
	uint32_t generation; /* handles are the same objects as long as it is the same */
	struct device *device;
	struct recording *recording; /* NULL: it is passed on as it is */
};

/* Find the recording of a handle, of a device with a cutter. Valid until the next call. */
const struct recorded *recording_find(VkCommandBuffer handle);

/* End a generation, before a handle is freed that may be given away again. */
void recording_end_generation(void);

VkResult recording_allocate(struct device *device, const VkCommandBufferAllocateInfo *info,
			    VkCommandBuffer *ret);
void recording_free(struct device *device, VkCommandPool pool, uint32_t n,
		    const VkCommandBuffer *handles);
void recording_destroy_pool(struct device *device, VkCommandPool pool,
			    const VkAllocationCallbacks *allocator);
void recording_init(struct cutter *cutter);
/* Free the recordings that the program has not freed, once the device was destroyed. */
void recording_forget(struct cutter *cutter);

VKAPI_ATTR VkResult VKAPI_CALL recording_begin(VkCommandBuffer handle,
					       const VkCommandBufferBeginInfo *info);
VKAPI_ATTR VkResult VKAPI_CALL recording_end(VkCommandBuffer handle);
VKAPI_ATTR VkResult VKAPI_CALL recording_reset(VkCommandBuffer handle,
					       VkCommandBufferResetFlags flags);

/* Begin another part, if one may begin here. Without memory the current one goes on. */
void recording_split(struct recording *recording);
/* Make the calls in the current part that bind the pipeline, sets and constants. */
void recording_restore(struct recording *recording);
/* Begin no further part, since something cannot be set again. Makes all calls that bind. */
void recording_stay_whole(struct recording *recording);
/* Record that nothing is bound any more. */
void recording_unbind(struct recording *recording);
/* Note an action in the current part. Without memory nothing is cut from here on. */
void recording_note(struct recording *recording, const struct action *action);
