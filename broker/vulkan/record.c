/* SPDX-License-Identifier: MIT */
/*
 * Plans on a device: see record.h.
 *
 * No descriptor sets: a step's push constant is the address of its parameter block, fixed when
 * recorded; the block holds the tensors' addresses and sizes and, at its beginning, the
 * numbers of workgroups that the indirect dispatch reads. So a recorded command buffer runs any
 * count over any bound tensors, and shaders see bounds that only the broker wrote.
 *
 * Memory of a loaded plan: one allocation of the host, for every slot its parameter blocks, then
 * staging of tensors; and one of the device, for every slot its scratch, then bounce copies. What
 * another owner may have left in it is cleared when the plan is loaded; later only this plan uses
 * it. Slots never share any of it: tasks of one plan may overlap on the device.
 *
 * A recorded command buffer takes memory of the driver's own: RADV has it in VRAM, 96 KiB for the
 * smallest, more than many a plan needs otherwise. What it takes is measured once and counted as
 * a part of each slot, so that it is charged.
 *
 * Barriers: a step waits for earlier ones only where it reads what they write, or writes what they
 * read or write (scratch tensors share memory where their lives do not overlap). Bound tensors of
 * a task are ordered the same way; those of different tasks are the client's to order.
 *
 * A plan in parts (parts.h) has a command buffer per section and slot. A slot is its task's from
 * the first part to the last, also while the reactor has the task; so whoever asks for a slot for a
 * later part has it. Each part begins with a barrier against all that was submitted before.
 *
 * Drivers may compile at the first dispatch: the pipelines are run once at the end of loading, with
 * parameter blocks full of zeros, on which every shader returns at once.
 */
#include "vulkan/record.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "util/error.h"
#include "vulkan/arena-import.h"
#include "vulkan/block.h"
#include "vulkan/compile.h"
#include "vulkan/device.h"
#include "vulkan/lower.h"
#include "vulkan/parts.h"

enum {
	MAX_SLOTS = 32,
	MEASURED_BUFFERS = 4,
	MANY_SLOTS_BYTES = 8 << 20, /* slots of plans that need more than this are two */
	/*
	 * Small tasks are submitted many at once, if there are slots for them. But every plan of
	 * everybody takes what its slots take: beyond four of them, this much at most.
	 */
	SPARE_SLOTS_BYTES = 1 << 20,
};

enum slot_state {
	SLOT_FREE,
	SLOT_BUSY,
	SLOT_BETWEEN, /* two parts of its task */
};

struct vk_slot {
	struct vk_plan *plan;
	VkCommandBuffer *commands;    /* one per section */
	const struct exec_task *task; /* submitting thread: whose it is, unless it is free */
	struct vk_params *params;     /* plan->lowered.n_steps */
	uint8_t *staging;
	VkDeviceAddress params_address, staging_address, scratch_address, bounce_address;
	uint64_t params_offset; /* in plan->host */
	uint32_t count;         /* that the parameter blocks are filled for; 0: none */
	_Atomic uint8_t state;  /* enum slot_state */
};

struct vk_plan {
	struct vk_device *device;
	const struct plan *plan;
	struct vk_lowered lowered;
	struct vk_section *sections;
	uint32_t n_sections;
	uint16_t n_parts;
	VkCommandBuffer *commands; /* MAX_SLOTS times n_sections */
	uint64_t bound_bytes;      /* all bound tensors, each rounded up */
	uint64_t bound_offset[RBK_MAX_REFS];
	bool stages;                                 /* slots have staging */
	bool bounces;                                /* slots have bounce copies */
	bool checks_indices;                         /* one of its steps does */
	uint64_t slot_device_bytes, slot_host_bytes; /* allocated by us */
	struct vk_commands_cost commands_cost;       /* and by the driver */

	/* While it is loaded. */
	uint32_t n_noted; /* slots whose commands_cost is counted */
	struct vk_allocation near, host;
	VkCommandPool pool;
	uint32_t n_slots; /* 0: it is not */
	struct vk_slot slots[MAX_SLOTS];

	uint64_t blocked_turn; /* submitting thread: in which it has no slots */
	/*
	 * Written by the waiting thread, read by the submitting one: how long a unit of work (see
	 * task_work()) takes, by the clock; 0: not known.
	 */
	_Atomic float ticks_per_work;
};

static bool is_bound(const struct tensor *tensor)
{
	return tensor->kind == RBK_TENSOR_INPUT || tensor->kind == RBK_TENSOR_OUTPUT ||
	       tensor->kind == RBK_TENSOR_STATE;
}

static bool is_read(const struct tensor *tensor)
{
	return tensor->kind != RBK_TENSOR_OUTPUT;
}

/* Of one slot. */
static uint64_t scratch_bytes(const struct vk_plan *plan)
{
	return plan->lowered.work_bytes ? vk_work_offset(plan->plan) + plan->lowered.work_bytes
					: plan->plan->scratch_bytes;
}

/* Recording */

/* Return: whether it is in the slot's scratch; and where there. */
static bool in_scratch(const struct plan *plan, struct vk_operand operand, uint64_t *ret_offset,
		       uint64_t *ret_bytes)
{
	if (operand.tensor == VK_WORK) {
		*ret_offset = operand.offset;
		*ret_bytes = operand.bytes;
		return true;
	}
	*ret_offset = plan->tensors[operand.tensor].scratch_offset;
	*ret_bytes = plan->tensors[operand.tensor].max_bytes;
	return plan->tensors[operand.tensor].kind == RBK_TENSOR_SCRATCH;
}

/* May @a and @b be the same memory? Distinct operands of one task never overlap otherwise. */
static bool may_alias(const struct plan *plan, struct vk_operand a, struct vk_operand b)
{
	uint64_t a_offset, a_bytes, b_offset, b_bytes;

	if (a.tensor == b.tensor && a.tensor != VK_WORK)
		return a.bound == b.bound;
	return in_scratch(plan, a, &a_offset, &a_bytes) &&
	       in_scratch(plan, b, &b_offset, &b_bytes) && a_offset < b_offset + b_bytes &&
	       b_offset < a_offset + a_bytes;
}

/* Must @step wait for one of the steps [@from, @step)? Without bounces both places are one. */
static bool has_hazard(const struct vk_plan *plan, uint32_t from, uint32_t step)
{
	const struct vk_step *steps = plan->lowered.steps;
	const struct vk_operand *mine = steps[step].operands;

	for (uint32_t other = from; other < step; other++) {
		if (steps[other].node == steps[step].node && steps[other].is_independent &&
		    steps[step].is_independent)
			continue;
		for (int i = 0; i < PARAM_ADDRESSES; i++)
			for (int j = 0; j < PARAM_ADDRESSES; j++) {
				struct vk_operand theirs = steps[other].operands[j];

				if ((i < VK_OUT && j < VK_OUT) ||
				    mine[i].tensor == PLAN_NO_TENSOR ||
				    theirs.tensor == PLAN_NO_TENSOR)
					continue;
				if (may_alias(plan->plan, mine[i], theirs))
					return true;
			}
	}
	return false;
}

static void barrier(struct vk_device *device, VkCommandBuffer commands, VkAccessFlags to,
		    VkPipelineStageFlags stage)
{
	const VkMemoryBarrier memory = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
		.dstAccessMask = to,
	};

	device->vk.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, stage, 0, 1,
					&memory, 0, NULL, 0, NULL);
}

static int record(struct vk_plan *plan, struct vk_slot *slot, uint32_t index)
{
	const struct vk_section *section = &plan->sections[index];
	VkCommandBuffer commands = slot->commands[index];
	struct vk_device *device = plan->device;
	const VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
	};
	VkPipeline pipeline, last = VK_NULL_HANDLE;
	VkDeviceAddress address;
	uint32_t since = section->first_step;
	int r;

	r = vk_result(device->vk.vkBeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
	if (r)
		return error_fold(r);
	if (plan->n_parts > 1)
		barrier(device, commands, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
			VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT);
	for (uint32_t i = since; i < section->first_step + section->n_steps; i++) {
		r = vk_pipeline_get(device, plan->lowered.steps[i].pipe,
				    plan->lowered.steps[i].numbers, plan->lowered.steps[i].curve,
				    &pipeline);
		if (r)
			return error_fold(r);
		if (has_hazard(plan, since, i)) {
			barrier(device, commands,
				VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
				VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT);
			since = i;
		}
		if (pipeline != last)
			device->vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
						     pipeline);
		last = pipeline;
		address = slot->params_address + i * sizeof(struct vk_params);
		device->vk.vkCmdPushConstants(commands, device->pipelines.layout,
					      VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(address),
					      &address);
		device->vk.vkCmdDispatchIndirect(commands, plan->host.buffer,
						 slot->params_offset +
							 i * sizeof(struct vk_params));
	}
	barrier(device, commands, VK_ACCESS_HOST_READ_BIT, VK_PIPELINE_STAGE_HOST_BIT);
	r = vk_result(device->vk.vkEndCommandBuffer(commands), "vkEndCommandBuffer");
	return r ? error_fold(r) : 0;
}

/* Fills in the addresses that no task changes. */
static void set_addresses(struct vk_plan *plan, struct vk_slot *slot, const struct exec_load *load)
{
	for (uint32_t i = 0; i < plan->lowered.n_steps; i++) {
		struct vk_params *params = &slot->params[i];

		for (int j = 0; j < PARAM_ADDRESSES; j++) {
			struct vk_operand operand = plan->lowered.steps[i].operands[j];
			const struct tensor *tensor;

			if (operand.tensor == PLAN_NO_TENSOR)
				continue;
			if (operand.tensor == VK_WORK) {
				params->address[j] = slot->scratch_address + operand.offset;
				continue;
			}
			tensor = &plan->plan->tensors[operand.tensor];
			if (tensor->kind == RBK_TENSOR_CONSTANT)
				params->address[j] =
					vk_block_address(load->blocks[tensor->constant]) +
					load->offsets[tensor->constant];
			else if (tensor->kind == RBK_TENSOR_SCRATCH)
				params->address[j] = slot->scratch_address + tensor->scratch_offset;
			else if (plan->bounces && !operand.bound)
				params->address[j] =
					slot->bounce_address + plan->bound_offset[tensor->binding];
		}
	}
}

/* Preparing */

static struct vk_plan *plan_free_prepared(struct vk_plan *plan)
{
	if (!plan)
		return NULL;
	assert(plan->n_slots == 0);
	free(plan->commands);
	free(plan->sections);
	vk_lowered_deinit(&plan->lowered);
	free(plan);
	return NULL;
}

/* Compiles what the plan needs, so that what a driver refuses shows now. */
static int compile(struct vk_plan *plan)
{
	int r;

	do {
		r = vk_compile_some(plan->device, &plan->lowered);
	} while (r == EXECUTOR_E_MORE);
	return r ? error_fold(r) : 0;
}

/* Into parts where tasks cannot be split by rows. Return: 0, -ENOMEM. */
static int divide(struct vk_plan *plan)
{
	const struct executor *executor = &plan->device->executor;
	const bool by_rows =
		plan->plan->splits_rows && plan->plan->max_count > plan->plan->row_grain;

	plan->n_sections = vk_sections_make(plan->plan, plan->lowered.steps, plan->lowered.n_steps,
					    by_rows ? 0 : executor->part_flops,
					    by_rows ? 0 : executor->part_bytes, plan->sections,
					    &plan->n_parts);
	plan->commands = calloc(plan->n_sections * MAX_SLOTS, sizeof(VkCommandBuffer));
	return plan->commands ? 0 : error_origin(-ENOMEM);
}

static uint32_t max_slots(const struct vk_plan *plan)
{
	const uint64_t own = plan->slot_device_bytes + plan->slot_host_bytes;
	const uint64_t all =
		own + plan->commands_cost.device_bytes + plan->commands_cost.host_bytes;
	uint32_t n = 4;

	if (own > MANY_SLOTS_BYTES)
		return 2;
	while (2 * n <= MAX_SLOTS && 2 * n * all <= SPARE_SLOTS_BYTES)
		n *= 2;
	return n;
}

/* Return: 0; EXECUTOR_E_UNSUPPORTED; negative errno. */
static int plan_make(struct vk_device *device, const struct plan *source, struct vk_plan **ret)
{
	struct vk_target target;
	struct vk_plan *plan;
	int r;

	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return error_origin(-ENOMEM);
	vk_compile_target(device, &target);
	plan->device = device;
	plan->plan = source;
	plan->bounces = device->bounces;
	plan->stages = !device->imports || device->n_refused_imports > 0;
	r = vk_lower(source, &target, &plan->lowered);
	if (!r) {
		plan->sections = calloc(plan->lowered.n_steps, sizeof(*plan->sections));
		r = plan->sections ? compile(plan) : error_origin(-ENOMEM);
	}
	if (!r)
		r = divide(plan);
	if (r) {
		plan_free_prepared(plan);
		return r;
	}
	for (uint32_t i = 0; i < plan->lowered.n_steps; i++)
		plan->checks_indices |= plan->lowered.steps[i].checks_indices;
	for (uint16_t i = 0; i < source->n_bindings; i++) {
		plan->bound_offset[i] = plan->bound_bytes;
		plan->bound_bytes +=
			vk_memory_aligned(source->tensors[source->bindings[i].tensor].max_bytes);
	}
	plan->slot_device_bytes =
		vk_memory_aligned(scratch_bytes(plan)) + (plan->bounces ? plan->bound_bytes : 0);
	plan->slot_host_bytes = plan->lowered.n_steps * sizeof(struct vk_params) +
				(plan->stages ? plan->bound_bytes : 0);
	for (uint32_t i = 0; i < plan->n_sections; i++) {
		const uint64_t n_chunks = plan->sections[i].n_steps / VK_COMMANDS_STEPS + 1;

		plan->commands_cost.device_bytes += n_chunks * device->commands_cost.device_bytes;
		plan->commands_cost.host_bytes += n_chunks * device->commands_cost.host_bytes;
	}
	*ret = plan;
	return 0;
}

int vk_plan_prepare(struct vk_device *device, struct plan *plan)
{
	unsigned int index = device->executor.index;
	struct vk_plan *made = NULL;
	int r;

	plan->exec[index] = NULL;
	plan->host_bytes[index] = 0;
	plan->device_state[index] = PLAN_DEVICE_FAILED;
	plan->footprint[index] = (struct exec_footprint){0};
	plan->n_parts[index] = 0;

	r = plan_make(device, plan, &made);
	if (r == EXECUTOR_E_UNSUPPORTED)
		plan->device_state[index] = PLAN_DEVICE_UNSUPPORTED;
	if (r == EXECUTOR_E_UNSUPPORTED || r == -EIO)
		return EXECUTOR_E_UNSUPPORTED;
	if (r)
		return error_fold(r);

	plan->exec[index] = made;
	plan->host_bytes[index] =
		sizeof(*made) +
		made->lowered.n_steps * (sizeof(*made->lowered.steps) + sizeof(*made->sections)) +
		made->n_sections * MAX_SLOTS * sizeof(*made->commands);
	plan->n_parts[index] = made->n_parts;
	plan->footprint[index] = (struct exec_footprint){
		.slot_device_bytes = made->slot_device_bytes + made->commands_cost.device_bytes,
		.slot_host_bytes = made->slot_host_bytes + made->commands_cost.host_bytes,
		.max_slots = max_slots(made),
	};
	plan->device_state[index] = PLAN_DEVICE_EVICTED;
	return 0;
}

void vk_plan_release(struct vk_device *device, struct plan *plan)
{
	unsigned int index = device->executor.index;

	plan->exec[index] = plan_free_prepared(plan->exec[index]);
	plan->host_bytes[index] = 0;
	plan->footprint[index] = (struct exec_footprint){0};
	plan->device_state[index] = PLAN_DEVICE_UNSUPPORTED;
}

/* Loading */

static void slot_place(struct vk_plan *plan, uint32_t i)
{
	uint64_t params_bytes = plan->lowered.n_steps * sizeof(struct vk_params);
	uint64_t device_offset = i * plan->slot_device_bytes;
	uint64_t host_offset = i * plan->slot_host_bytes;
	struct vk_slot *slot = &plan->slots[i];

	slot->plan = plan;
	slot->commands = plan->commands + i * plan->n_sections;
	slot->task = NULL;
	slot->count = 0;
	atomic_store_explicit(&slot->state, SLOT_FREE, memory_order_relaxed);
	slot->params_offset = host_offset;
	slot->params = (struct vk_params *)(plan->host.host + host_offset);
	slot->params_address = plan->host.address + host_offset;
	slot->staging = plan->host.host + host_offset + params_bytes;
	slot->staging_address = slot->params_address + params_bytes;
	slot->scratch_address = plan->near.address + device_offset;
	slot->bounce_address = slot->scratch_address + vk_memory_aligned(scratch_bytes(plan));
}

static int record_slots(struct vk_plan *plan, uint32_t n_slots)
{
	struct vk_device *device = plan->device;
	const VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.queueFamilyIndex = device->queue_family,
	};
	VkCommandBufferAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = plan->n_sections,
	};
	int r;

	r = vk_result(device->vk.vkCreateCommandPool(device->handle, &pool, NULL, &plan->pool),
		      "vkCreateCommandPool");
	if (r)
		return error_fold(r);
	info.commandPool = plan->pool;
	for (uint32_t i = 0; i < n_slots; i++) {
		r = vk_result(device->vk.vkAllocateCommandBuffers(device->handle, &info,
								  plan->slots[i].commands),
			      "vkAllocateCommandBuffers");
		for (uint32_t section = 0; !r && section < plan->n_sections; section++)
			r = record(plan, &plan->slots[i], section);
		if (r)
			return error_fold(r);
	}
	return 0;
}

static bool *has_run(struct vk_plan *plan, uint32_t step)
{
	const struct vk_step *of = &plan->lowered.steps[step];
	struct vk_pipelines *pipelines = &plan->device->pipelines;

	return of->curve ? &pipelines->curved_has_run[of->curve - VK_FIRST_CURVE][of->pipe]
						     [of->numbers]
			 : &pipelines->has_run[of->pipe][of->numbers];
}

/* Records a run over nothing of what did not run yet: some drivers compile no sooner. */
static int record_first_runs(struct vk_plan *plan, VkCommandBuffer commands)
{
	struct vk_device *device = plan->device;
	const VkDeviceAddress address = plan->slots[0].params_address;
	VkPipeline pipeline;
	int r;

	for (uint32_t i = 0; i < plan->lowered.n_steps; i++) {
		if (*has_run(plan, i))
			continue;
		r = vk_pipeline_get(device, plan->lowered.steps[i].pipe,
				    plan->lowered.steps[i].numbers, plan->lowered.steps[i].curve,
				    &pipeline);
		if (r)
			return error_fold(r);
		device->vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
		device->vk.vkCmdPushConstants(commands, device->pipelines.layout,
					      VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(address),
					      &address);
		device->vk.vkCmdDispatch(commands, 1, 1, 1);
	}
	return 0;
}

/* Does clearing, or what did not run yet, or an upload that tasks are to come after? */
static bool needs_device(struct vk_plan *plan, bool starts_cold)
{
	if (plan->device->upload.queue || (plan->near.bytes > 0 && !plan->near.host))
		return true;
	for (uint32_t i = 0; i < plan->lowered.n_steps && !starts_cold; i++)
		if (!*has_run(plan, i))
			return true;
	return false;
}

/*
 * Clears what others may have left, and has the driver compile what it puts off. The device is only
 * waited for where it must be: it may be busy for long.
 */
static int warm_up(struct vk_plan *plan, bool starts_cold)
{
	struct vk_device *device = plan->device;
	VkCommandBuffer commands = VK_NULL_HANDLE;
	const bool is_run = needs_device(plan, starts_cold);
	int r = 0;

	if (is_run)
		r = vk_setup_begin(device, &commands);
	if (r)
		return error_fold(r);
	vk_memory_clear(device, &plan->near, commands);
	vk_memory_clear(device, &plan->host, commands);
	if (is_run && !starts_cold)
		r = record_first_runs(plan, commands);
	if (is_run && !r)
		r = vk_setup_run(device);
	if (r)
		return error_fold(r);
	for (uint32_t i = 0; i < plan->lowered.n_steps && !starts_cold; i++)
		*has_run(plan, i) = true;
	return 0;
}

/*
 * Counts what the command buffers of @n slots take, in the tier that the plan is charged in: the
 * driver has its own mind about where it puts them.
 */
static void note_commands(struct vk_plan *plan, uint32_t n, enum exec_tier tier)
{
	int64_t by = (int64_t)n - plan->n_noted;

	vk_memory_note(plan->device, (enum vk_memory_kind)tier,
		       by * (int64_t)plan->commands_cost.device_bytes);
	vk_memory_note(plan->device, VK_MEMORY_HOST, by * (int64_t)plan->commands_cost.host_bytes);
	plan->n_noted = n;
}

int vk_plan_load(struct vk_device *device, struct plan *source, const struct exec_load *load)
{
	struct vk_plan *plan = source->exec[device->executor.index];
	uint64_t n = load->n_slots;
	int r;

	assert(plan->n_slots == 0 && n >= 1 && n <= MAX_SLOTS);
	if (vk_device_is_lost(device))
		return error_origin(-EIO);
	r = vk_memory_alloc(device, (enum vk_memory_kind)load->tier,
			    vk_memory_pages(device, n * plan->slot_device_bytes), &plan->near);
	if (!r)
		r = vk_memory_alloc(device, VK_MEMORY_HOST,
				    vk_memory_pages(device, n * plan->slot_host_bytes),
				    &plan->host);
	for (uint32_t i = 0; !r && i < n; i++)
		slot_place(plan, i);
	note_commands(plan, (uint32_t)n, load->tier);
	if (!r)
		r = record_slots(plan, n);
	if (!r)
		r = warm_up(plan, load->starts_cold);
	if (r) {
		vk_plan_unload(device, source);
		/* All memory that is taken here is the driver's. */
		return r == EXECUTOR_E_NO_MEMORY || r == -ENOMEM ? EXECUTOR_E_NO_MEMORY
								 : error_fold(r);
	}
	for (uint32_t i = 0; i < n; i++)
		set_addresses(plan, &plan->slots[i], load);
	plan->n_slots = n;
	return 0;
}

void vk_plan_unload(struct vk_device *device, struct plan *source)
{
	struct vk_plan *plan = source->exec[device->executor.index];

	if (!plan)
		return;
	vk_device_settle(device);
	/* A task of a lost device may be between two parts: the next one will find nothing. */
	for (uint32_t i = 0; i < plan->n_slots; i++)
		assert(atomic_load_explicit(&plan->slots[i].state, memory_order_acquire) !=
		       SLOT_BUSY);
	plan->n_slots = 0;
	if (plan->pool)
		device->vk.vkDestroyCommandPool(device->handle, plan->pool, NULL);
	plan->pool = VK_NULL_HANDLE;
	note_commands(plan, 0, (enum exec_tier)plan->near.kind);
	vk_memory_free(device, &plan->near);
	vk_memory_free(device, &plan->host);
}

/* Return: usage of the device's own heaps and of the others. */
static struct vk_commands_cost heap_usage(struct vk_device *device)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
	};
	VkPhysicalDeviceMemoryProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = &budget,
	};
	struct vk_commands_cost usage = {0};

	vkGetPhysicalDeviceMemoryProperties2(device->physical, &properties);
	for (uint32_t i = 0; i < device->heaps.memoryHeapCount; i++)
		if (device->is_integrated ||
		    (device->heaps.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT))
			usage.device_bytes += budget.heapUsage[i];
		else
			usage.host_bytes += budget.heapUsage[i];
	return usage;
}

static uint64_t share(struct vk_device *device, uint64_t before, uint64_t after, uint32_t n)
{
	return after > before ? vk_memory_pages(device, (after - before + n - 1) / n) : 0;
}

int vk_commands_measure(struct vk_device *device, struct vk_commands_cost *ret)
{
	struct vk_section section = {.n_steps = 1, .n_ranges = 1, .n_batches = 1};
	struct vk_step step = {.pipe = VK_PIPE_COPY};
	VkCommandBuffer buffers[MEASURED_BUFFERS];
	struct vk_plan plan = {
		.device = device,
		.lowered = {.steps = &step, .n_steps = 1},
		.sections = &section,
		.n_sections = 1,
		.n_parts = 1,
	};
	struct vk_commands_cost before, after;
	VkPipeline pipeline;
	int r;

	*ret = (struct vk_commands_cost){0};
	if (!device->has_budget)
		return 0;
	for (int i = 0; i < MEASURED_BUFFERS; i++)
		plan.slots[i].commands = &buffers[i];
	for (int i = 0; i < PARAM_ADDRESSES; i++)
		step.operands[i].tensor = PLAN_NO_TENSOR;
	r = vk_pipeline_get(device, VK_PIPE_COPY, VK_FLOATS, 0, &pipeline);
	if (!r)
		r = vk_memory_alloc(device, VK_MEMORY_OWN, device->memory.page_bytes, &plan.host);
	if (r)
		return r == EXECUTOR_E_NO_MEMORY ? error_origin(-ENOMEM) : error_fold(r);
	before = heap_usage(device);
	r = record_slots(&plan, MEASURED_BUFFERS);
	after = heap_usage(device);
	if (plan.pool)
		device->vk.vkDestroyCommandPool(device->handle, plan.pool, NULL);
	vk_memory_free(device, &plan.host);
	if (r)
		return error_fold(r);
	ret->device_bytes =
		share(device, before.device_bytes, after.device_bytes, MEASURED_BUFFERS);
	ret->host_bytes = share(device, before.host_bytes, after.host_bytes, MEASURED_BUFFERS);
	return 0;
}

/* Running */

bool vk_plan_is_loaded(const struct vk_plan *plan)
{
	return plan && plan->n_slots > 0;
}

struct vk_slot *vk_plan_find_slot(struct vk_plan *plan, const struct exec_task *task, uint64_t turn)
{
	if (task->part > 0) {
		for (uint32_t i = 0; i < plan->n_slots; i++)
			/* Pairs with the store in vk_slot_finish(). */
			if (atomic_load_explicit(&plan->slots[i].state, memory_order_acquire) ==
				    SLOT_BETWEEN &&
			    plan->slots[i].task == task)
				return &plan->slots[i];
		return NULL;
	}
	if (plan->blocked_turn == turn)
		return NULL;
	for (uint32_t i = 0; i < plan->n_slots; i++)
		/* Pairs with the store in vk_slot_finish(). */
		if (atomic_load_explicit(&plan->slots[i].state, memory_order_seq_cst) == SLOT_FREE)
			return &plan->slots[i];
	plan->blocked_turn = turn;
	return NULL;
}

VkCommandBuffer vk_slot_commands(const struct vk_slot *slot)
{
	const struct vk_plan *plan = slot->plan;
	const struct vk_section *section =
		vk_section_of(plan->sections, plan->n_sections, slot->task->part);

	return slot->commands[section - plan->sections];
}

/* How much a task is, whatever the device: what it computes and moves, roughly balanced. */
static float task_work(const struct exec_task *task)
{
	return 1.0f + (float)plan_flops(task->plan, task->count) +
	       8.0f * (float)plan_touched_bytes(task->plan, task->count);
}

uint64_t vk_plan_expected_ticks(const struct vk_plan *plan, const struct exec_task *task)
{
	float ticks = atomic_load_explicit(&plan->ticks_per_work, memory_order_relaxed);

	return plan->n_parts > 1 ? 0 : (uint64_t)(ticks * task_work(task));
}

void vk_plan_learn(struct vk_plan *plan, struct exec_task *const *tasks, unsigned int n,
		   uint64_t ticks)
{
	float was = atomic_load_explicit(&plan->ticks_per_work, memory_order_relaxed), all = 0;
	double begin = 0, end;
	float now;

	for (unsigned int i = 0; i < n; i++)
		all += task_work(tasks[i]);
	/* By rounded ends, so that together they are exactly what all took. */
	for (unsigned int i = 0; i < n; i++) {
		end = i + 1 < n ? begin + (double)ticks * task_work(tasks[i]) / all : (double)ticks;
		tasks[i]->start_ticks = tasks[i]->end_ticks - ((uint64_t)end - (uint64_t)begin);
		begin = end;
	}
	now = (float)ticks / all;
	atomic_store_explicit(&plan->ticks_per_work, was == 0 ? now : 0.75f * was + 0.25f * now,
			      memory_order_relaxed);
}

static uint8_t *bound_host(const struct exec_task *task, uint16_t binding)
{
	return task->refs[binding].arena->base + task->refs[binding].offset;
}

/* Finds every bound tensor's address, copying those that the device cannot reach. */
static int find_bound(struct vk_plan *plan, struct vk_slot *slot, struct exec_task *task,
		      VkDeviceAddress addresses[RBK_MAX_REFS])
{
	unsigned int index = plan->device->executor.index;

	for (uint16_t i = 0; i < plan->plan->n_bindings; i++) {
		const struct tensor *tensor = &plan->plan->tensors[plan->plan->bindings[i].tensor];
		const struct exec_ref *ref = &task->refs[i];
		if (vk_import_find(ref->arena->import[index], ref->offset,
				   tensor_bytes(tensor, task->count), &addresses[i]))
			continue;
		if (!plan->stages)
			return -EXDEV;
		addresses[i] = slot->staging_address + plan->bound_offset[i];
		if (is_read(tensor)) {
			uint64_t bytes = tensor_bytes(tensor, task->count);

			memcpy(slot->staging + plan->bound_offset[i], bound_host(task, i), bytes);
			task->copied_bytes += bytes;
		}
	}
	return 0;
}

/* Makes the blocks of all steps those of @task. */
static int slot_fill(struct vk_plan *plan, struct vk_slot *slot, struct exec_task *task)
{
	VkDeviceAddress addresses[RBK_MAX_REFS];
	int r;

	r = find_bound(plan, slot, task, addresses);
	if (r)
		return r;
	for (uint32_t i = 0; i < plan->lowered.n_steps; i++) {
		const struct vk_step *step = &plan->lowered.steps[i];
		struct vk_params *params = &slot->params[i];

		if (slot->count != task->count)
			step->fill(step, plan->plan, task->count, params);
		if (step->checks_indices)
			params->w[ALL_OUT_OF_RANGE] = 0;
		for (int j = 0; j < PARAM_ADDRESSES; j++) {
			const struct tensor *tensor;

			if (step->operands[j].tensor == PLAN_NO_TENSOR ||
			    step->operands[j].tensor == VK_WORK)
				continue;
			tensor = &plan->plan->tensors[step->operands[j].tensor];
			if (!is_bound(tensor) || (plan->bounces && !step->operands[j].bound))
				continue;
			params->address[j] = addresses[tensor->binding];
		}
		if (!step->node)
			task->transferred_bytes +=
				4ull * params->w[COPY_WORDS] + params->w[COPY_REST];
	}
	slot->count = task->count;
	return 0;
}

int vk_slot_load(struct vk_plan *plan, struct vk_slot *slot, struct exec_task *task)
{
	const struct vk_section *section =
		vk_section_of(plan->sections, plan->n_sections, task->part);
	const struct vk_step *step = &plan->lowered.steps[section->first_step];
	struct vk_params *params = &slot->params[section->first_step];
	int r = 0;

	/* Between its parts nobody else touches the slot. */
	if (task->part == 0)
		r = slot_fill(plan, slot, task);
	if (r)
		return r;
	if (vk_section_n_parts(section) > 1) {
		step->fill(step, plan->plan, task->count, params);
		vk_params_cut(params, section, task->part - section->first_part);
	}
	slot->task = task;
	atomic_store_explicit(&slot->state, SLOT_BUSY, memory_order_relaxed);
	return 0;
}

/* Copies what was staged back. */
static void slot_store(struct vk_slot *slot, struct exec_task *task)
{
	const struct vk_plan *plan = slot->plan;
	unsigned int index = plan->device->executor.index;
	VkDeviceAddress address;

	if (!plan->stages)
		return;
	for (uint16_t i = 0; i < plan->plan->n_bindings; i++) {
		const struct plan_binding *binding = &plan->plan->bindings[i];
		uint64_t bytes = tensor_bytes(&plan->plan->tensors[binding->tensor], task->count);

		if (!binding->written || vk_import_find(task->refs[i].arena->import[index],
							task->refs[i].offset, bytes, &address))
			continue;
		memcpy(bound_host(task, i), slot->staging + plan->bound_offset[i], bytes);
		task->copied_bytes += bytes;
	}
}

/* Has a shader found an index out of range since the task began? */
static bool is_out_of_range(const struct vk_slot *slot)
{
	const struct vk_lowered *lowered = &slot->plan->lowered;
	bool any = false;

	for (uint32_t i = 0; slot->plan->checks_indices && i < lowered->n_steps; i++)
		any |= lowered->steps[i].checks_indices && slot->params[i].w[ALL_OUT_OF_RANGE] != 0;
	return any;
}

bool vk_slot_finish(struct vk_slot *slot, struct exec_task *task)
{
	bool is_last;

	if (task->res == 0 && is_out_of_range(slot))
		task->res = -EDOM;
	is_last = task->res != 0 || task->part + 1 >= slot->plan->n_parts;
	if (is_last && task->res == 0)
		slot_store(slot, task);
	/* Pairs with the loads in vk_plan_find_slot(). */
	atomic_store_explicit(&slot->state, is_last ? SLOT_FREE : SLOT_BETWEEN,
			      memory_order_seq_cst);
	return is_last;
}

void vk_slot_drop(struct vk_slot *slot)
{
	atomic_store_explicit(&slot->state, SLOT_FREE, memory_order_relaxed);
}
