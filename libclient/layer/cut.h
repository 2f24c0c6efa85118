#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cutting: command buffers are recorded in parts that can be submitted one by one
 *
 * While a process shares its device's time, what the program records in a primary command buffer is
 * distributed over several command buffers, the parts, each of which takes about as long as
 * RINGBROKER_LEASE_MAX_PART, so that another program can have the device between two of them. Parts
 * end between dispatches and other actions; a dispatch that takes longer is divided into slices
 * (vkCmdDispatchBase()) where its shader cannot detect that, or can be rewritten (variants.h). What
 * was bound is bound again in the next part.
 *
 * Source: the Vulkan specification, "Command Buffers" and "Dispatching Commands".
 */
#include <stdbool.h>
#include <stdint.h>

#include <vulkan/vulkan_core.h>
#include <vulkan/vk_layer.h>

#include "libclient/layer/duration.h"
#include "libclient/layer/table.h"
#include "libclient/layer/timeslice.h"

struct device;

/* Effect of a recorded command on parts. Those of regions come last. */
enum cut_effect {
	CUT_NOTHING,
	CUT_ACTION,          /* takes time, and uses nothing that was bound */
	CUT_BEGIN,           /* nothing is cut until the matching CUT_END */
	CUT_BEGIN_PASS,      /* the same; it takes time */
	CUT_BEGIN_RENDERING, /* the same; the next command buffer may resume it */
	CUT_END,
	CUT_STATE,       /* sets or uses state that is not set again: nothing is cut from here on */
	CUT_BEGIN_LABEL, /* a region of debug utils; it ends with its part at the latest */
	CUT_END_LABEL,
	CUT_BEGIN_MARKER, /* the same of debug markers */
	CUT_END_MARKER,
};

/* A vkCmd*() function that is passed on to the current part; commands.py writes the table. */
struct cut_command {
	const char *name;
	PFN_vkVoidFunction function;
	enum cut_effect effect;
};
extern const struct cut_command cut_commands[]; /* in the order of their names */
extern const unsigned int n_cut_commands;
/* The device extensions whose commands are all in that table, in the order of their names. */
extern const char *const cut_extensions[];
extern const unsigned int n_cut_extensions;

/* Where a command is to be recorded, and the next layer's function for it. */
struct cut_target {
	VkCommandBuffer commands;
	PFN_vkVoidFunction function;
};
/* Note command number @command of the table. Return: its target. */
struct cut_target cut_forward(VkCommandBuffer handle, unsigned int command);

/* Functions of the next layer; NULL: not available. */
struct cut_next {
	PFN_vkAllocateCommandBuffers allocate;
	PFN_vkFreeCommandBuffers free;
	PFN_vkDestroyCommandPool destroy_pool;
	PFN_vkBeginCommandBuffer begin;
	PFN_vkEndCommandBuffer end;
	PFN_vkResetCommandBuffer reset;
	PFN_vkCreateShaderModule create_module;
	PFN_vkDestroyShaderModule destroy_module;
	PFN_vkCreateComputePipelines create_pipelines;
	PFN_vkDestroyPipeline destroy_pipeline;
	PFN_vkCreatePipelineLayout create_layout;
	PFN_vkDestroyPipelineLayout destroy_layout;
	PFN_vkCmdBindPipeline bind_pipeline;
	PFN_vkCmdBindDescriptorSets bind_sets;
	PFN_vkCmdPushConstants push_constants;
	PFN_vkCmdDispatch dispatch;
	PFN_vkCmdDispatchBase dispatch_base, dispatch_base_khr;
	PFN_vkCmdDispatchIndirect dispatch_indirect;
	PFN_vkCmdExecuteCommands execute;
	PFN_vkCmdPushDescriptorSetKHR push_set;
	PFN_vkCmdPushDescriptorSetWithTemplateKHR push_template;
	PFN_vkCreateDescriptorUpdateTemplate create_template, create_template_khr;
	PFN_vkDestroyDescriptorUpdateTemplate destroy_template, destroy_template_khr;
	PFN_vkCmdEndDebugUtilsLabelEXT end_label;
	PFN_vkCmdDebugMarkerEndEXT end_marker;
};

/* State of a device's recording, in a process that may share its device's time. */
struct cutter {
	bool is_passive; /* nothing is cut */
	bool has_dynamic_rendering;
	bool has_variants; /* shaders that read gl_NumWorkGroups are rewritten for slices */
	struct cut_next next;
	PFN_vkVoidFunction *commands; /* the next layer's, in the order of cut_commands */
	PFN_vkSetDeviceLoaderData set_loader_data;
	PFN_vkCmdDispatchBase slice; /* NULL: dispatches are not divided */
	uint64_t max_part_ns;
	struct table recordings, pools;  /* recording.c */
	struct table modules, pipelines; /* pipelines.c */
	struct table layouts;            /* variants.c */
	struct table templates;          /* descriptors.c */
	struct durations durations;
	/* timeslice.c, ends.c: actions of the submissions under way; n 0: nothing is learned of it
	 */
	struct series series[DURATION_MAX_SERIES];
};

/*
 * Make the device's cutter if its time is shared, or the environment asks for that. @info: as the
 * program gave it. Return: 0; -ENOMEM.
 */
int cut_init(struct device *device, const VkDeviceCreateInfo *info);
/* Look the next layer's functions up, once the device exists. */
void cut_resolve(struct device *device);
/* Free the cutter, which may be NULL, after the device was destroyed. */
void cut_deinit(struct cutter *cutter);
/* Return the layer's function of this name for devices that are cut; NULL: none. */
PFN_vkVoidFunction cut_function(const char *name);
