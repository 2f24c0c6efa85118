/* SPDX-License-Identifier: MIT */
/*
 * Plans on a device, prepared and run: see record.h. load.c loads them.
 *
 * There are no descriptor sets. A step's push constant is the address of its parameter block, fixed
 * when recorded. The block holds the tensors' addresses and sizes and, at its beginning, the
 * numbers of workgroups that the indirect dispatch reads. So a recorded command buffer runs any
 * count over any bound tensors, and shaders see only bounds that the broker wrote.
 *
 * A plan in parts (parts.h) has a command buffer per section and slot. A task holds its slot from
 * the first part to the last, also while the reactor has the task. So a later part always finds the
 * task's slot. Each part begins with a barrier against everything submitted before.
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
#include "vulkan/compile.h"
#include "vulkan/device.h"
#include "vulkan/parts.h"
#include "vulkan/record-private.h"

enum {
	MANY_SLOTS_BYTES = 8 << 20, /* a plan with larger slots gets two slots */
	/*
	 * Maximum bytes of all slots beyond the first four. More slots let small tasks be submitted
	 * together, but every plan of every tenant pays for its slots.
	 */
	SPARE_SLOTS_BYTES = 1 << 20,
	SHRINK_STEPS = 8192, /* steps that one vk_plan_shrink() frees: less than a millisecond */
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

/* Preparing */

static struct vk_plan *plan_free_prepared(struct vk_plan *plan)
{
	if (!plan)
		return NULL;
	assert(plan->n_slots == 0);
	free(plan->commands);
	free(plan->sections);
	vk_lowering_free(plan->lowering);
	vk_lowered_deinit(&plan->lowered);
	free(plan);
	return NULL;
}

/* Compile the plan's pipelines, so that the driver's refusals show now. */
static int compile(struct vk_plan *plan)
{
	int r;

	do {
		r = vk_compile_some(plan->device, &plan->lowered);
	} while (r == EXECUTOR_E_MORE);
	return r ? error_fold(r) : 0;
}

/* Divide the plan into parts, unless its tasks can be split by rows. Return: 0, -ENOMEM. */
static int divide(struct vk_plan *plan)
{
	const struct executor *executor = &plan->device->executor;
	const bool by_rows =
		plan->plan->splits_rows && plan->plan->max_count > plan->plan->row_grain;

	plan->n_sections = vk_sections_make(plan->plan, plan->lowered.steps, plan->lowered.n_steps,
					    by_rows ? 0 : executor->part_flops,
					    by_rows ? 0 : executor->part_bytes, plan->sections,
					    &plan->n_parts);
	plan->commands = calloc(plan->n_sections * VK_MAX_SLOTS, sizeof(VkCommandBuffer));
	return plan->commands ? 0 : error_origin(-ENOMEM);
}

static uint32_t max_slots(const struct vk_plan *plan)
{
	const uint64_t own = plan->slot_device_bytes + plan->slot_host_bytes;
	const uint64_t all = own + plan->commands_device_bytes + plan->commands_host_bytes;
	uint32_t n = 4;

	if (own > MANY_SLOTS_BYTES)
		return 2;
	while (2 * n <= VK_MAX_SLOTS && 2 * n * all <= SPARE_SLOTS_BYTES)
		n *= 2;
	return n;
}

/* Make a plan that is still to be lowered. Return: 0; -ENOMEM. */
static int plan_begin(struct vk_device *device, struct plan *source)
{
	struct vk_plan *plan = calloc(1, sizeof(*plan));
	struct vk_target target;

	if (!plan)
		return error_origin(-ENOMEM);
	vk_compile_target(device, &target);
	plan->device = device;
	plan->plan = source;
	plan->bounces = target.bounces;
	plan->lower_result = EXECUTOR_E_MORE;
	plan->lowering = vk_lowering_new(source, &target, &plan->lowered);
	if (!plan->lowering) {
		free(plan);
		return error_origin(-ENOMEM);
	}
	source->exec[device->executor.index] = plan;
	return 0;
}

/*
 * Make the plan if necessary and lower a part of it.
 * Return: 0 if the plan is lowered; EXECUTOR_E_MORE; others as vk_lower_some().
 */
static int lower_some(struct vk_device *device, struct plan *source)
{
	struct vk_plan *plan = source->exec[device->executor.index];
	int r = plan ? 0 : plan_begin(device, source);

	if (r)
		return error_fold(r);
	plan = source->exec[device->executor.index];
	if (plan->lower_result == EXECUTOR_E_MORE) {
		plan->lower_result = vk_lower_some(plan->lowering);
		if (plan->lower_result != EXECUTOR_E_MORE)
			plan->lowering = vk_lowering_free(plan->lowering);
	}
	return plan->lower_result;
}

int vk_plan_compile(struct vk_device *device, struct plan *source)
{
	const struct vk_plan *plan;
	int r = lower_some(device, source);

	/* vk_plan_prepare() will report the failure. */
	if (r)
		return r == EXECUTOR_E_MORE ? r : 0;
	plan = source->exec[device->executor.index];
	return vk_compile_next(device, &plan->lowered);
}

/*
 * Finish a lowered plan: compile, divide, compute the sizes of a slot. Return: 0; negative errno.
 */
static int plan_end(struct vk_plan *plan)
{
	const struct vk_commands_cost *cost = &plan->device->commands_cost;
	const struct plan *source = plan->plan;
	struct vk_device *device = plan->device;
	int r;

	plan->stages = !device->imports || device->n_refused_imports > 0;
	plan->sections = calloc(plan->lowered.n_steps, sizeof(*plan->sections));
	r = plan->sections ? compile(plan) : error_origin(-ENOMEM);
	if (!r)
		r = divide(plan);
	if (r)
		return error_fold(r);
	for (uint16_t i = 0; i < source->n_bindings; i++) {
		plan->bound_offset[i] = plan->bound_bytes;
		plan->bound_bytes +=
			vk_memory_aligned(source->tensors[source->bindings[i].tensor].max_bytes);
	}
	plan->slot_device_bytes = vk_memory_aligned(vk_plan_scratch_bytes(plan)) +
				  (plan->bounces ? plan->bound_bytes : 0);
	plan->slot_host_bytes = plan->lowered.n_steps * sizeof(struct vk_params) +
				(plan->stages ? plan->bound_bytes : 0);
	for (uint32_t i = 0; i < plan->n_sections; i++) {
		const uint64_t n_chunks = plan->sections[i].n_steps / VK_COMMANDS_STEPS + 1;

		plan->commands_device_bytes += n_chunks * cost->device_bytes;
		plan->commands_host_bytes += n_chunks * cost->host_bytes;
		plan->command_memory_bytes +=
			cost->buffer_bytes + plan->sections[i].n_steps * cost->dispatch_bytes;
		plan->slot_mappings += (uint32_t)n_chunks * VK_COMMANDS_MAPPINGS *
				       device->executor.info.allocation_mappings;
	}
	plan->commands_host_bytes += plan->command_memory_bytes;
	return 0;
}

int vk_plan_prepare(struct vk_device *device, struct plan *plan)
{
	unsigned int index = device->executor.index;
	struct vk_plan *made;
	int r;

	plan->host_bytes[index] = 0;
	plan->device_state[index] = PLAN_DEVICE_FAILED;
	plan->footprint[index] = (struct exec_footprint){0};
	plan->n_parts[index] = 0;

	do
		r = lower_some(device, plan);
	while (r == EXECUTOR_E_MORE);
	made = plan->exec[index];
	if (!r)
		r = plan_end(made);
	if (r)
		plan->exec[index] = plan_free_prepared(made);
	if (r == EXECUTOR_E_UNSUPPORTED)
		plan->device_state[index] = PLAN_DEVICE_UNSUPPORTED;
	if (r == EXECUTOR_E_UNSUPPORTED || r == -EIO)
		return EXECUTOR_E_UNSUPPORTED;
	if (r)
		return error_fold(r);

	plan->host_bytes[index] =
		sizeof(*made) +
		made->lowered.n_steps * (sizeof(*made->lowered.steps) + sizeof(*made->sections)) +
		made->lowered.n_pipelines * sizeof(*made->lowered.first_uses) +
		made->n_sections * VK_MAX_SLOTS * sizeof(*made->commands);
	plan->n_parts[index] = made->n_parts;
	plan->footprint[index] = (struct exec_footprint){
		.slot_device_bytes = made->slot_device_bytes + made->commands_device_bytes,
		.slot_host_bytes = made->slot_host_bytes + made->commands_host_bytes,
		.slot_mappings = made->slot_mappings,
		.max_slots = max_slots(made),
	};
	plan->device_state[index] = PLAN_DEVICE_EVICTED;
	return 0;
}

/* Free the last steps first: they may take tens of megabytes, which the C library unmaps. */
int vk_plan_shrink(struct vk_device *device, struct plan *plan)
{
	struct vk_plan *made = plan->exec[device->executor.index];
	struct vk_lowered *lowered = made ? &made->lowered : NULL;
	struct vk_step *rest;

	plan->device_state[device->executor.index] = PLAN_DEVICE_UNSUPPORTED;
	if (!made || lowered->n_steps <= SHRINK_STEPS)
		return 0;
	lowered->n_steps -= SHRINK_STEPS;
	rest = reallocarray(lowered->steps, lowered->n_steps, sizeof(*rest));
	if (rest)
		lowered->steps = rest;
	return EXECUTOR_E_MORE;
}

void vk_plan_release(struct vk_device *device, struct plan *plan)
{
	unsigned int index = device->executor.index;

	plan->exec[index] = plan_free_prepared(plan->exec[index]);
	plan->host_bytes[index] = 0;
	plan->footprint[index] = (struct exec_footprint){0};
	plan->device_state[index] = PLAN_DEVICE_UNSUPPORTED;
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

/*
 * Return the work of a task, independent of the device: its operations and its bytes, roughly
 * balanced.
 */
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
	/* Round the ends, not the shares, so that the shares sum up to exactly @ticks. */
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

/* Find every bound tensor's address; copy inputs that the device cannot reach to staging. */
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

/* Fill in the parameter blocks of all steps for @task. */
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

	/* Between its parts, a task's slot is not changed. */
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

/* Copy staged outputs back. */
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

/* Return true if a shader has found an index out of range since the task began. */
static bool is_out_of_range(const struct vk_slot *slot)
{
	const struct vk_lowered *lowered = &slot->plan->lowered;
	bool any = false;

	for (uint32_t i = 0; lowered->checks_indices && i < lowered->n_steps; i++)
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
