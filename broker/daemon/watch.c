/* SPDX-License-Identifier: MIT */
/*
 * Devices of executors under telemetry
 *
 * Executors and telemetry do not know each other. This file finds the telemetry device by the
 * executor's identity. If the kernel's driver is not amdgpu, VK_EXT_memory_budget replaces it.
 */
#include "daemon/watch.h"

#include <stdio.h>

/*
 * Sample a device through its memory budget: the total that this process may use before the driver
 * moves memory. The rest of the heap is used by other processes or kept by the driver.
 */
static void sample_budget(void *context, struct device_reading *reading)
{
	struct executor *executor = context;
	uint64_t total = executor->info.memory_bytes;
	struct exec_memory memory = {.has_budget = false};

	executor->ops->memory_sample(executor, &memory);
	if (!memory.has_budget)
		return;
	snprintf(reading->source, sizeof(reading->source), "VK_EXT_memory_budget");
	reading->is_integrated = executor->info.is_integrated;
	reading->vram.total = (struct reading){total, true};
	reading->vram.own = (struct reading){memory.usage_bytes, true};
	reading->vram.used = reading->vram.own;
	if (memory.budget_bytes < total)
		reading->vram.used.value += total - memory.budget_bytes;
	if (executor->info.gtt_bytes > 0)
		reading->gtt.total = (struct reading){executor->info.gtt_bytes, true};
}

static bool has_budget(struct executor *executor)
{
	struct exec_memory memory = {.has_budget = false};

	if (executor->ops->memory_sample)
		executor->ops->memory_sample(executor, &memory);
	return memory.has_budget;
}

int watch_devices(struct executor *const *executors, uint32_t n_executors, struct waker *waker,
		  struct telemetry **ret)
{
	struct telemetry_device devices[RBK_MAX_DEVICES];
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_executors && n < RBK_MAX_DEVICES; i++) {
		struct executor *executor = executors[i];
		const struct exec_identity *identity = &executor->info.identity;
		bool is_asked;

		/* Skip the CPU and the test device: there is nothing to watch. */
		if (executor->info.memory_page_bytes == 0)
			continue;
		is_asked = has_budget(executor);
		if (executor->info.kind == EXECUTOR_SOFTWARE_GPU && !is_asked)
			continue;
		devices[n++] = (struct telemetry_device){
			.index = executor->index,
			.has_pci = identity->has_pci,
			.pci_domain = identity->pci_domain,
			.pci_bus = identity->pci_bus,
			.pci_device = identity->pci_device,
			.pci_function = identity->pci_function,
			.has_render = identity->has_render,
			.render_major = identity->render_major,
			.render_minor = identity->render_minor,
			.driver = {is_asked ? sample_budget : NULL, executor},
		};
	}
	return telemetry_new(devices, n, waker, ret);
}

void watch_name_memory(struct executor *const *executors, uint32_t n_executors, const char *name,
		       struct leases *leases)
{
	for (uint32_t i = 0; i < n_executors && i < RBK_MAX_DEVICES; i++) {
		const struct executor_info *info = &executors[i]->info;
		const struct exec_identity *identity = &info->identity;

		if (info->memory_page_bytes == 0)
			continue;
		if (name[0])
			snprintf(leases->dmem_memory[i], DMEM_REGION_BYTES, "%s", name);
		/*
		 * On an integrated GPU, leases are of host memory, which the dmem controller does
		 * not cover.
		 */
		else if (identity->has_pci && !info->is_integrated)
			dmem_name_memory(identity->pci_domain, identity->pci_bus,
					 identity->pci_device, identity->pci_function,
					 leases->dmem_memory[i]);
	}
}
