/* SPDX-License-Identifier: MIT */
/*
 * Loading plans onto a device and unloading them: see record.h.
 *
 * A loaded plan has two allocations. The host allocation holds, for every slot, parameter blocks,
 * then staging of tensors. The device allocation holds, for every slot, scratch, then bounce
 * copies. Stale data of earlier owners are cleared when the plan is loaded; afterwards only this
 * plan uses the memory. Slots share no memory: tasks of one plan may overlap on the device.
 *
 * A recorded command buffer takes memory of the driver. RADV uses VRAM, at least 96 KiB, which is
 * more than many plans need otherwise; a software driver uses the broker's memory. Both are
 * measured once and counted as a part of each slot, so that they are charged.
 *
 * Barriers: a step waits for earlier steps only if it reads what they write, or writes what they
 * read or write (scratch tensors share memory if their lives do not overlap). Bound tensors of one
 * task are ordered the same way; the client orders those of different tasks.
 *
 * Drivers may compile at the first dispatch, so the pipelines run once at the end of loading, with
 * parameter blocks of zeros, on which every shader returns at once. Each run is a submission of its
 * own: the device serves no other task while its driver compiles.
 *
 * All tenants share the setup thread. So a call of vk_plan_load() records, clears and fills in a
 * bounded part, and waits only shortly for a device that may be busy; vk_plan_unload_some() frees a
 * part. Some driver calls cannot be divided and take longer: vkFreeCommandBuffers() of one large
 * command buffer, vkDestroyCommandPool() and, for memory on a card, vkFreeMemory().
 */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>

#include "plan/executor.h"
#include "shm/number.h"
#include "util/error.h"
#include "vulkan/block.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/parts.h"
#include "vulkan/record-private.h"
#include "vulkan/setup.h"

enum {
	MEASURED_BUFFERS = 4,
	MEASURED_STEPS = 32,
	/* Maximum steps that one call records or frees: about a millisecond. */
	PART_STEPS = 1024,
	PART_ADDRESSED = 8192, /* maximum parameter blocks that one call fills in */
	BUFFER_STEPS = 16,     /* overhead of a command buffer, counted in steps */
	/* Steps after which a barrier is recorded in any case; bounds the search for hazards. */
	UNORDERED_STEPS = 64,
	SETUP_WAIT_NS = 1000000,
};

/* Recording */

/* Return: true if the operand is in the slot's scratch, with its range there. */
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

/*
 * Return true if @a and @b may be the same memory. Distinct operands of one task overlap only in
 * scratch.
 */
static bool may_alias(const struct plan *plan, struct vk_operand a, struct vk_operand b)
{
	uint64_t a_offset, a_bytes, b_offset, b_bytes;

	if (a.tensor == b.tensor && a.tensor != VK_WORK)
		return a.bound == b.bound;
	return in_scratch(plan, a, &a_offset, &a_bytes) &&
	       in_scratch(plan, b, &b_offset, &b_bytes) && a_offset < b_offset + b_bytes &&
	       b_offset < a_offset + a_bytes;
}

/*
 * Return true if @step must wait for one of the steps [@from, @step). Without bounces, no operand
 * is marked bound.
 */
static bool has_hazard(const struct vk_plan *plan, uint32_t from, uint32_t step)
{
	const struct vk_step *steps = plan->lowered.steps;
	const struct vk_operand *mine = steps[step].operands;

	if (step - from >= UNORDERED_STEPS)
		return true;
	for (uint32_t other = from; other < step; other++) {
		if (steps[other].node == steps[step].node && steps[other].is_independent &&
		    steps[step].is_independent)
			continue;
		for (int j = 0; j < PARAM_ADDRESSES; j++) {
			const struct vk_operand theirs = steps[other].operands[j];

			if (theirs.tensor == PLAN_NO_TENSOR)
				continue;
			for (int i = j < VK_OUT ? VK_OUT : 0; i < PARAM_ADDRESSES; i++)
				if (mine[i].tensor != PLAN_NO_TENSOR &&
				    may_alias(plan->plan, mine[i], theirs))
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

static const struct vk_section *section_of_buffer(const struct vk_plan *plan, uint32_t buffer)
{
	return &plan->sections[buffer % plan->n_sections];
}

/* Allocate and begin the next command buffer. */
static int record_begin(struct vk_plan *plan)
{
	const VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
	};
	const VkCommandBufferAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.commandPool = plan->pool,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = 1,
	};
	VkCommandBuffer *commands = &plan->commands[plan->n_buffers];
	struct vk_device *device = plan->device;
	int r;

	r = vk_result(device->vk.vkAllocateCommandBuffers(device->handle, &info, commands),
		      "vkAllocateCommandBuffers");
	if (r)
		return error_fold(r);
	plan->next_step = plan->barrier_step = section_of_buffer(plan, plan->n_buffers)->first_step;
	plan->last = VK_NULL_HANDLE;
	plan->n_buffers++;
	plan->is_recording = true;
	r = vk_result(device->vk.vkBeginCommandBuffer(*commands, &begin), "vkBeginCommandBuffer");
	if (r)
		return error_fold(r);
	if (plan->n_parts > 1)
		barrier(device, *commands, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
			VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT);
	return 0;
}

/* Record step @i into the last command buffer. */
static int record_step(struct vk_plan *plan, uint32_t i)
{
	const struct vk_slot *slot = &plan->slots[(plan->n_buffers - 1) / plan->n_sections];
	VkCommandBuffer commands = plan->commands[plan->n_buffers - 1];
	const VkDeviceAddress address = slot->params_address + i * sizeof(struct vk_params);
	const struct vk_step *step = &plan->lowered.steps[i];
	struct vk_device *device = plan->device;
	VkPipeline pipeline;
	int r;

	r = vk_pipeline_get(device, step->pipeline, &pipeline);
	if (r)
		return error_fold(r);
	if (has_hazard(plan, plan->barrier_step, i)) {
		barrier(device, commands, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
			VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT);
		plan->barrier_step = i;
	}
	if (pipeline != plan->last)
		device->vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
	plan->last = pipeline;
	device->vk.vkCmdPushConstants(commands, device->pipelines.layout,
				      VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(address), &address);
	device->vk.vkCmdDispatchIndirect(commands, plan->host.buffer,
					 slot->params_offset + i * sizeof(struct vk_params));
	return 0;
}

static int record_end(struct vk_plan *plan)
{
	VkCommandBuffer commands = plan->commands[plan->n_buffers - 1];

	plan->is_recording = false;
	barrier(plan->device, commands, VK_ACCESS_HOST_READ_BIT, VK_PIPELINE_STAGE_HOST_BIT);
	return vk_result(plan->device->vk.vkEndCommandBuffer(commands), "vkEndCommandBuffer");
}

/*
 * Record some more of the command buffers of @n_slots.
 * Return: 0 if all are recorded; EXECUTOR_E_MORE; negative errno.
 */
static int record_some(struct vk_plan *plan, uint32_t n_slots)
{
	const struct vk_section *section;
	uint32_t n_steps = 0;
	int r = 0;

	while (!r && n_steps < PART_STEPS) {
		if (!plan->is_recording) {
			if (plan->n_buffers == n_slots * plan->n_sections)
				return 0;
			n_steps += BUFFER_STEPS;
			r = record_begin(plan);
			continue;
		}
		section = section_of_buffer(plan, plan->n_buffers - 1);
		if (plan->next_step == section->first_step + section->n_steps) {
			r = record_end(plan);
			continue;
		}
		r = record_step(plan, plan->next_step++);
		n_steps++;
	}
	return r ? error_fold(r) : EXECUTOR_E_MORE;
}

/* Fill in the addresses of step @i that no task changes. */
static void set_addresses(struct vk_plan *plan, struct vk_slot *slot, uint32_t i,
			  const struct exec_load *load)
{
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
			params->address[j] = vk_block_address(load->blocks[tensor->constant]) +
					     load->offsets[tensor->constant];
		else if (tensor->kind == RBK_TENSOR_SCRATCH)
			params->address[j] = slot->scratch_address + tensor->scratch_offset;
		else if (plan->bounces && !operand.bound)
			params->address[j] =
				slot->bounce_address + plan->bound_offset[tensor->binding];
	}
}

/* Return: 0 if the parameter blocks of all slots have their addresses; EXECUTOR_E_MORE. */
static int set_some_addresses(struct vk_plan *plan, const struct exec_load *load)
{
	const uint32_t n_steps = plan->lowered.n_steps, n = load->n_slots * n_steps;
	const uint32_t left = n - plan->n_addressed;
	const uint32_t end = plan->n_addressed + (left < PART_ADDRESSED ? left : PART_ADDRESSED);

	for (; plan->n_addressed < end; plan->n_addressed++)
		set_addresses(plan, &plan->slots[plan->n_addressed / n_steps],
			      plan->n_addressed % n_steps, load);
	return end < n ? EXECUTOR_E_MORE : 0;
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
	slot->bounce_address =
		slot->scratch_address + vk_memory_aligned(vk_plan_scratch_bytes(plan));
}

/* Make the command pool for @n_slots; pool_free() frees it. Return: 0; negative errno. */
static int pool_new(struct vk_plan *plan, uint64_t n_slots)
{
	struct vk_device *device = plan->device;
	const VkCommandPoolCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.queueFamilyIndex = device->queue_family,
	};
	int r;

	vk_command_memory_init(&plan->command_memory, &device->command_chunks,
			       n_slots * plan->command_memory_bytes);
	r = vk_result(device->vk.vkCreateCommandPool(device->handle, &info,
						     &plan->command_memory.callbacks, &plan->pool),
		      "vkCreateCommandPool");
	if (!r)
		return 0;
	plan->pool = VK_NULL_HANDLE;
	vk_command_memory_deinit(&plan->command_memory);
	return error_fold(r);
}

/* Free the command pool. Accepts a plan without a pool. */
static void pool_free(struct vk_plan *plan)
{
	struct vk_device *device = plan->device;

	if (!plan->pool)
		return;
	device->vk.vkDestroyCommandPool(device->handle, plan->pool,
					&plan->command_memory.callbacks);
	plan->pool = VK_NULL_HANDLE;
	vk_command_memory_deinit(&plan->command_memory);
}

/* Find the first step whose pipeline did not run yet. Return: n_steps if there is none. */
static uint32_t find_cold(struct vk_plan *plan)
{
	const struct vk_lowered *lowered = &plan->lowered;

	for (uint32_t i = 0; i < lowered->n_pipelines; i++)
		if (!lowered->steps[lowered->first_uses[i]].pipeline->has_run)
			return lowered->first_uses[i];
	return lowered->n_steps;
}

/* Record a run of step @i on an empty parameter block: some drivers compile no sooner. */
static int record_first_run(struct vk_plan *plan, uint32_t i, VkCommandBuffer commands)
{
	const struct vk_step *step = &plan->lowered.steps[i];
	const VkDeviceAddress address = plan->slots[0].params_address;
	struct vk_device *device = plan->device;
	VkPipeline pipeline;
	int r;

	r = vk_pipeline_get(device, step->pipeline, &pipeline);
	if (r)
		return error_fold(r);
	device->vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
	device->vk.vkCmdPushConstants(commands, device->pipelines.layout,
				      VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(address), &address);
	device->vk.vkCmdDispatch(commands, 1, 1, 1);
	return 0;
}

/*
 * Return true if the device has nothing left to clear or compile, and need not be ordered after an
 * upload.
 */
static bool is_warm(struct vk_plan *plan, bool starts_cold)
{
	if (!plan->is_ordered &&
	    (plan->device->upload.queue || (plan->near.bytes > 0 && !plan->near.host)))
		return false;
	return starts_cold || find_cold(plan) == plan->lowered.n_steps;
}

static int start_setup(struct vk_plan *plan, bool starts_cold)
{
	struct vk_device *device = plan->device;
	VkCommandBuffer commands;
	int r;

	r = vk_setup_begin(device, &commands);
	if (r)
		return error_fold(r);
	if (!plan->is_ordered) {
		vk_memory_clear_unmapped(device, &plan->near, commands);
		vk_memory_clear_unmapped(device, &plan->host, commands);
	}
	plan->cold_step = starts_cold ? plan->lowered.n_steps : find_cold(plan);
	if (plan->cold_step < plan->lowered.n_steps)
		r = record_first_run(plan, plan->cold_step, commands);
	if (!r)
		r = vk_setup_start(device, &plan->setup_result);
	plan->is_started = !r;
	return r ? error_fold(r) : 0;
}

/* Return: 0 if no setup work of the plan runs; EXECUTOR_E_MORE; negative errno. */
static int end_setup(struct vk_plan *plan)
{
	if (!plan->is_started)
		return 0;
	/*
	 * With another result, the work has ended: do not wait for work that another plan has
	 * started since.
	 */
	if (plan->setup_result == VK_SETUP_E_RUNS && !vk_setup_await(plan->device, SETUP_WAIT_NS))
		return EXECUTOR_E_MORE;
	plan->is_started = false;
	if (plan->setup_result)
		return error_fold(plan->setup_result);
	plan->is_ordered = true;
	if (plan->cold_step < plan->lowered.n_steps)
		plan->lowered.steps[plan->cold_step].pipeline->has_run = true;
	return 0;
}

/*
 * Let the device clear memory that is not mapped, and let the driver compile what it deferred, one
 * pipeline per submission. Submit only if necessary: the device may be busy for long.
 * Return: 0 if nothing is left to do; EXECUTOR_E_MORE; negative errno.
 */
static int warm_up(struct vk_plan *plan, bool starts_cold)
{
	int r;

	r = end_setup(plan);
	if (r)
		return r;
	if (is_warm(plan, starts_cold))
		return 0;
	/* Wait for setup work of other plans. */
	if (!vk_setup_await(plan->device, SETUP_WAIT_NS))
		return EXECUTOR_E_MORE;
	r = start_setup(plan, starts_cold);
	if (!r)
		r = end_setup(plan);
	if (r)
		return r;
	return is_warm(plan, starts_cold) ? 0 : EXECUTOR_E_MORE;
}

/*
 * Return the host memory of the command buffers of @n slots, in addition to the slots' own, in
 * whole pages.
 */
static uint64_t commands_bytes(const struct vk_plan *plan, uint64_t n)
{
	const uint64_t own_bytes = n * plan->slot_host_bytes;

	return vk_memory_pages(plan->device, own_bytes + n * plan->commands_host_bytes) -
	       vk_memory_pages(plan->device, own_bytes);
}

/*
 * Count the memory of the command buffers of @n slots as used, in the tier that the plan is charged
 * in, wherever the driver allocates it.
 */
static void note_commands(struct vk_plan *plan, uint32_t n, enum exec_tier tier)
{
	int64_t by = (int64_t)n - plan->n_noted;

	vk_memory_note(plan->device, (enum vk_memory_kind)tier,
		       by * (int64_t)plan->commands_device_bytes);
	vk_memory_note(plan->device, VK_MEMORY_HOST,
		       (int64_t)(commands_bytes(plan, n) - commands_bytes(plan, plan->n_noted)));
	plan->n_noted = n;
}

static int begin_load(struct vk_plan *plan, const struct exec_load *load)
{
	struct vk_device *device = plan->device;
	const uint64_t n = load->n_slots;
	int r;

	plan->is_begun = true;
	r = vk_memory_alloc(device, (enum vk_memory_kind)load->tier,
			    vk_memory_pages(device, n * plan->slot_device_bytes), &plan->near);
	if (!r)
		r = vk_memory_alloc(device, VK_MEMORY_HOST,
				    vk_memory_pages(device, n * plan->slot_host_bytes),
				    &plan->host);
	for (uint32_t i = 0; !r && i < n; i++)
		slot_place(plan, i);
	note_commands(plan, (uint32_t)n, load->tier);
	return r ? r : pool_new(plan, n);
}

/* Return: 0 if all is loaded; EXECUTOR_E_MORE; EXECUTOR_E_NO_MEMORY; negative errno. */
static int load_some(struct vk_plan *plan, const struct exec_load *load)
{
	int r;

	/* A device that was reopened has no pipelines. */
	r = plan->is_begun ? 0 : vk_compile_next(plan->device, &plan->lowered);
	if (!r && !plan->is_begun)
		r = begin_load(plan, load);
	if (!r)
		r = record_some(plan, load->n_slots);
	if (!r && (vk_memory_clear_mapped(&plan->near) || vk_memory_clear_mapped(&plan->host)))
		r = EXECUTOR_E_MORE;
	if (!r)
		r = warm_up(plan, load->starts_cold);
	return r ? r : set_some_addresses(plan, load);
}

int vk_plan_load(struct vk_device *device, struct plan *source, const struct exec_load *load)
{
	struct vk_plan *plan = source->exec[device->executor.index];
	int r;

	assert(plan->n_slots == 0 && load->n_slots >= 1 && load->n_slots <= VK_MAX_SLOTS);
	/* Wait even on a lost device: it may still touch memory that would be freed. */
	if (plan->setup_result == VK_SETUP_E_RUNS && !vk_setup_await(device, SETUP_WAIT_NS))
		return EXECUTOR_E_MORE;
	r = vk_device_is_lost(device) ? error_origin(-EIO) : load_some(plan, load);
	if (r == EXECUTOR_E_MORE)
		return r;
	/*
	 * -ENOMEM is the driver's here: this code allocates nothing else. The caller frees the rest
	 * in parts.
	 */
	if (r)
		return r == EXECUTOR_E_NO_MEMORY || r == -ENOMEM ? EXECUTOR_E_NO_MEMORY
								 : error_fold(r);
	plan->n_slots = load->n_slots;
	return 0;
}

/* Mark the plan not loaded; none of its tasks runs or will run. */
static void end_tasks(struct vk_plan *plan)
{
	vk_device_settle(plan->device);
	/* A task of a lost device may be between two parts: its next part finds no slot. */
	for (uint32_t i = 0; i < plan->n_slots; i++)
		assert(atomic_load_explicit(&plan->slots[i].state, memory_order_acquire) !=
		       SLOT_BUSY);
	plan->n_slots = 0;
}

int vk_plan_unload_some(struct vk_device *device, struct plan *source)
{
	struct vk_plan *plan = source->exec[device->executor.index];
	uint32_t n_steps = 0;

	if (!plan || !plan->is_begun)
		return 0;
	if (plan->setup_result == VK_SETUP_E_RUNS && !vk_setup_await(device, SETUP_WAIT_NS))
		return EXECUTOR_E_MORE;
	end_tasks(plan);
	for (; plan->n_buffers > 0 && n_steps < PART_STEPS; n_steps += BUFFER_STEPS) {
		plan->n_buffers--;
		n_steps += section_of_buffer(plan, plan->n_buffers)->n_steps;
		device->vk.vkFreeCommandBuffers(device->handle, plan->pool, 1,
						&plan->commands[plan->n_buffers]);
	}
	/* Drivers keep the memory of freed command buffers for the pool's next ones. */
	if (n_steps > 0)
		device->vk.vkTrimCommandPool(device->handle, plan->pool, 0);
	/*
	 * Destroying the pool takes as long as freeing the last of its buffers, so it gets a call
	 * of its own. cleared_bytes covers all written bytes: both allocations are cleared before
	 * anything else is written to them.
	 */
	if (n_steps > 0 || vk_memory_drop_some(device, &plan->near, plan->near.cleared_bytes) ||
	    vk_memory_drop_some(device, &plan->host, plan->host.cleared_bytes))
		return EXECUTOR_E_MORE;
	return 0;
}

void vk_plan_unload(struct vk_device *device, struct plan *source)
{
	struct vk_plan *plan = source->exec[device->executor.index];

	if (!plan)
		return;
	if (plan->setup_result == VK_SETUP_E_RUNS)
		vk_setup_await(device, UINT64_MAX);
	end_tasks(plan);
	pool_free(plan);
	plan->is_begun = plan->is_recording = plan->is_started = plan->is_ordered = false;
	plan->n_buffers = plan->n_addressed = 0;
	plan->setup_result = 0;
	note_commands(plan, 0, (enum exec_tier)plan->near.kind);
	vk_memory_free(device, &plan->near);
	vk_memory_free(device, &plan->host);
}

/* Return the usage of the device-local heaps and of the other heaps. */
static struct vk_commands_cost heap_usage(const struct vk_device *device)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
	};
	VkPhysicalDeviceMemoryProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = &budget,
	};
	struct vk_commands_cost usage = {0};

	if (!device->has_budget)
		return usage;
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
	return after > before ? vk_memory_pages(device, div_up(after - before, n)) : 0;
}

/* Return the pipe of step @i: two pipes alternate if the device has both. */
static const struct vk_pipe *measured_pipe(const struct vk_device *device, uint32_t i)
{
	return i % 2 && device->has_bytes ? &vk_pipe_copy_bytes : &vk_pipe_copy;
}

/* Record @n_buffers of @n_steps dispatches each, and measure them. Return: 0 or negative errno. */
static int record_measured(struct vk_device *device, const struct vk_allocation *params,
			   uint32_t n_buffers, uint32_t n_steps, struct vk_commands_cost *ret)
{
	struct vk_section section = {.n_steps = n_steps, .n_ranges = 1, .n_batches = 1};
	struct vk_step steps[1 + MEASURED_STEPS];
	VkCommandBuffer buffers[MEASURED_BUFFERS];
	struct vk_plan plan = {
		.device = device,
		.lowered = {.steps = steps, .n_steps = n_steps},
		.sections = &section,
		.n_sections = 1,
		.commands = buffers,
		.n_parts = 1,
		.host = *params,
	};
	struct vk_commands_cost before, after;
	int r;

	/* Each step binds a pipeline and needs a barrier: all steps write the same place. */
	for (uint32_t i = 0; i < n_steps; i++) {
		const struct vk_pipe *pipe = measured_pipe(device, i);

		/* vk_commands_measure() has compiled both pipelines. */
		steps[i] = (struct vk_step){.pipeline = vk_pipeline_find(&device->pipelines,
									 &pipe->of[device->variant],
									 VK_FLOATS, 0)};
		for (int j = 0; j < PARAM_ADDRESSES; j++)
			steps[i].operands[j].tensor = PLAN_NO_TENSOR;
		steps[i].operands[VK_OUT] = (struct vk_operand){.tensor = VK_WORK, .bytes = 4};
	}
	*ret = (struct vk_commands_cost){0};
	before = heap_usage(device);
	r = pool_new(&plan, n_buffers);
	if (r)
		return error_fold(r);
	do
		r = record_some(&plan, n_buffers);
	while (r == EXECUTOR_E_MORE);
	after = heap_usage(device);
	ret->device_bytes = share(device, before.device_bytes, after.device_bytes, n_buffers);
	ret->host_bytes = share(device, before.host_bytes, after.host_bytes, n_buffers);
	ret->buffer_bytes = div_up(plan.command_memory.used_bytes, n_buffers);
	pool_free(&plan);
	return r ? error_fold(r) : 0;
}

int vk_commands_measure(struct vk_device *device, struct vk_commands_cost *ret)
{
	struct vk_allocation params = {0};
	struct vk_commands_cost shorter, longer;
	VkPipeline pipeline;
	int r;

	/* Compile first, or the compiler's allocations are counted. */
	r = vk_pipeline_of(device, &measured_pipe(device, 0)->of[device->variant], &pipeline);
	if (!r)
		r = vk_pipeline_of(device, &measured_pipe(device, 1)->of[device->variant],
				   &pipeline);
	if (!r)
		r = vk_memory_alloc(
			device, VK_MEMORY_OWN,
			vk_memory_pages(device, (1 + MEASURED_STEPS) * sizeof(struct vk_params)),
			&params);
	if (r)
		return r == EXECUTOR_E_NO_MEMORY ? error_origin(-ENOMEM) : error_fold(r);
	r = record_measured(device, &params, MEASURED_BUFFERS, 1, ret);
	if (!r)
		r = record_measured(device, &params, 1, 1, &shorter);
	if (!r)
		r = record_measured(device, &params, 1, 1 + MEASURED_STEPS, &longer);
	vk_memory_free(device, &params);
	if (r)
		return error_fold(r);
	/* Include the pool: a plan may have one slot. */
	ret->buffer_bytes = shorter.buffer_bytes;
	if (longer.buffer_bytes > shorter.buffer_bytes)
		ret->dispatch_bytes =
			div_up(longer.buffer_bytes - shorter.buffer_bytes, MEASURED_STEPS);
	return 0;
}
