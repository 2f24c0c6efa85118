/* SPDX-License-Identifier: MIT */
/*
 * Statistics of the driver's compiler on every pipeline, as JSON
 *
 *   vulkan-statistics > FILE
 *   vulkan-statistics --digest
 *
 * The output has registers, spills, occupancy, local memory, code size and, where the driver has
 * one, a disassembly. It covers the very code and specialisation constants that brokerd, in
 * broker/vulkan/lower-*.c, gives the first device that is not software. Under RADV with
 * RADV_FORCE_FAMILY no card is needed. The figures come from VK_KHR_pipeline_executable_properties.
 * brokerd does not use that extension; this program changes the arguments of the two calls
 * concerned by replacing them in volk's tables.
 *
 * With --digest, nothing is compiled: the program prints a digest of everything that it would give
 * the compiler. As long as that and the driver are the same, so are the figures.
 *
 * tests/unit/vulkan-statistics.py judges the figures. The program exits with 77 and a reason if
 * there are none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vulkan/device.h"
#include "vulkan/physical.h"
#include "vulkan/shaders.h"

enum { SKIPPED = 77, MAX_PHYSICAL = 8, MAX_EXTENSIONS = 16, MAX_FIGURES = 64 };

static PFN_vkCreateDevice create_device;
static PFN_vkCreateComputePipelines create_pipelines;

static VkResult create_device_telling(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
				      const VkAllocationCallbacks *allocator, VkDevice *ret)
{
	VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR tell = {
		.sType =
			VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
		.pNext = (void *)info->pNext,
		.pipelineExecutableInfo = VK_TRUE,
	};
	const char *extensions[MAX_EXTENSIONS + 1];
	VkDeviceCreateInfo more = *info;
	uint32_t n = info->enabledExtensionCount;

	if (n > MAX_EXTENSIONS)
		return VK_ERROR_TOO_MANY_OBJECTS;
	if (n > 0)
		memcpy(extensions, info->ppEnabledExtensionNames, n * sizeof(extensions[0]));
	extensions[n] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
	more.enabledExtensionCount = n + 1;
	more.ppEnabledExtensionNames = extensions;
	more.pNext = &tell;
	return create_device(physical, &more, allocator, ret);
}

/* Compile without a pipeline cache: cached pipelines have no statistics. */
static VkResult create_pipelines_telling(VkDevice device, VkPipelineCache cache, uint32_t n,
					 const VkComputePipelineCreateInfo *infos,
					 const VkAllocationCallbacks *allocator, VkPipeline *ret)
{
	VkComputePipelineCreateInfo more = infos[0];

	(void)cache;
	if (n != 1)
		return VK_ERROR_TOO_MANY_OBJECTS;
	more.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
		      VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
	return create_pipelines(device, VK_NULL_HANDLE, 1, &more, allocator, ret);
}

/* ---- The digest ---- */

static bool is_digest;
static uint64_t digest = 0xcbf29ce484222325; /* FNV-1a */
static PFN_vkCreateShaderModule create_module;

static void add_bytes(const void *data, size_t n)
{
	for (const uint8_t *at = data; n > 0; n--)
		digest = (digest ^ *at++) * 0x100000001b3;
}

static VkResult create_module_adding(VkDevice device, const VkShaderModuleCreateInfo *info,
				     const VkAllocationCallbacks *allocator, VkShaderModule *ret)
{
	add_bytes(info->pCode, info->codeSize);
	return create_module(device, info, allocator, ret);
}

/* Add what vk_pipeline_compile() varies, and make no pipeline. */
static VkResult create_pipelines_adding(VkDevice device, VkPipelineCache cache, uint32_t n,
					const VkComputePipelineCreateInfo *infos,
					const VkAllocationCallbacks *allocator, VkPipeline *ret)
{
	const VkSpecializationInfo *spec = infos[0].stage.pSpecializationInfo;
	const VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT *subgroups =
		infos[0].stage.pNext;

	if (n != 1)
		return VK_ERROR_TOO_MANY_OBJECTS;
	add_bytes(&infos[0].flags, sizeof(infos[0].flags));
	add_bytes(&infos[0].stage.flags, sizeof(infos[0].stage.flags));
	add_bytes(infos[0].stage.pName, strlen(infos[0].stage.pName));
	add_bytes(spec->pData, spec->dataSize);
	for (uint32_t i = 0; i < spec->mapEntryCount; i++)
		add_bytes(&spec->pMapEntries[i].constantID, sizeof(uint32_t));
	if (subgroups)
		add_bytes(&subgroups->requiredSubgroupSize, sizeof(uint32_t));
	*ret = VK_NULL_HANDLE; /* which may be destroyed */
	return VK_SUCCESS;
}

/* ---- Output ---- */

static void print_string(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void print_figure(const VkPipelineExecutableStatisticKHR *figure)
{
	print_string(figure->name);
	switch (figure->format) {
	case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
		printf(": %s", figure->value.b32 ? "true" : "false");
		break;
	case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
		printf(": %lld", (long long)figure->value.i64);
		break;
	case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
		printf(": %llu", (unsigned long long)figure->value.u64);
		break;
	default:
		printf(": %.17g", figure->value.f64);
	}
}

/* Return the representation that is machine code as text, or NULL. */
static char *assembly_of(struct vk_device *device, const VkPipelineExecutableInfoKHR *which)
{
	VkPipelineExecutableInternalRepresentationKHR all[16];
	uint32_t n = sizeof(all) / sizeof(all[0]);
	char *text = NULL;

	for (uint32_t i = 0; i < n; i++)
		all[i] = (VkPipelineExecutableInternalRepresentationKHR){
			.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR,
		};
	if (device->vk.vkGetPipelineExecutableInternalRepresentationsKHR(device->handle, which, &n,
									 all) < 0)
		return NULL;
	for (uint32_t i = 0; i < n && !text; i++)
		if (all[i].isText && all[i].dataSize > 0 && strcmp(all[i].name, "Assembly") == 0) {
			all[i].pData = text = calloc(1, all[i].dataSize + 1);
			if (!text)
				return NULL;
			for (uint32_t k = 0; k < n; k++)
				if (k != i)
					all[k].dataSize = 0;
		}
	if (text && device->vk.vkGetPipelineExecutableInternalRepresentationsKHR(
			    device->handle, which, &n, all) < 0) {
		free(text);
		text = NULL;
	}
	return text;
}

static bool print_pipeline(struct vk_device *device, const struct vk_pipe_info *info,
			   enum vk_numbers numbers, uint32_t curve)
{
	VkPipelineExecutableStatisticKHR figures[MAX_FIGURES];
	VkPipelineExecutableInfoKHR which = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
	};
	VkPipelineInfoKHR whole = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR};
	VkPipelineExecutablePropertiesKHR part = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR,
	};
	uint32_t n = MAX_FIGURES, n_parts = 1;
	char *assembly, name[64];

	snprintf(name, sizeof(name), "%s%s", info->name, numbers == VK_DOUBLES ? ", float64" : "");
	if (vk_pipeline_compile(device, info, numbers, curve, &which.pipeline))
		return false;
	if (is_digest) {
		add_bytes(name, strlen(name));
		return true;
	}
	whole.pipeline = which.pipeline;
	for (uint32_t i = 0; i < n; i++)
		figures[i] = (VkPipelineExecutableStatisticKHR){
			.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR,
		};
	if (device->vk.vkGetPipelineExecutableStatisticsKHR(device->handle, &which, &n, figures) <
	    0)
		n = 0;
	if (device->vk.vkGetPipelineExecutablePropertiesKHR(device->handle, &whole, &n_parts,
							    &part) < 0)
		part.subgroupSize = 0;
	assembly = assembly_of(device, &which);
	device->vk.vkDestroyPipeline(device->handle, which.pipeline, NULL);

	printf("{\"name\": ");
	print_string(name);
	printf(", \"constants\": [");
	for (uint32_t i = 0; i < info->n_spec; i++)
		printf("%s%u", i ? ", " : "", info->spec[i]);
	if (curve)
		printf(", %u", curve);
	printf("], \"subgroup\": %u,\n\"statistics\": {", part.subgroupSize);
	for (uint32_t i = 0; i < n; i++) {
		printf("%s", i ? ", " : "");
		print_figure(&figures[i]);
	}
	printf("},\n\"assembly\": ");
	print_string(assembly ? assembly : "");
	printf("}");
	free(assembly);
	return true;
}

static bool can_tell(VkPhysicalDevice physical)
{
	static VkExtensionProperties extensions[512];
	uint32_t n = sizeof(extensions) / sizeof(extensions[0]);

	if (vkEnumerateDeviceExtensionProperties(physical, NULL, &n, extensions) < 0)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(extensions[i].extensionName,
			   VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME) == 0)
			return true;
	return false;
}

static void print_comma(void)
{
	if (!is_digest)
		printf(",\n");
}

static int skip(const char *why)
{
	fprintf(stderr, "skipped: %s\n", why);
	return SKIPPED;
}

/* Print the pipeline with the permitted activation that takes the most registers. */
static bool print_curved(struct vk_device *device, const struct vk_pipe_info *info, uint32_t curve)
{
	if (!curve)
		return true;
	print_comma();
	return print_pipeline(device, info, VK_FLOATS, curve);
}

static bool print_double(struct vk_device *device, const struct vk_pipe_info *info)
{
	if (!vk_pipeline_can_compile(device, info, VK_DOUBLES))
		return true;
	print_comma();
	return print_pipeline(device, info, VK_DOUBLES, 0);
}

/* Compile the pipeline for @numbers if the device has them. */
static bool compile(struct vk_device *device, const struct vk_pipe_info *info,
		    enum vk_numbers numbers)
{
	VkPipeline pipeline;

	if (!vk_pipeline_can_compile(device, info, numbers))
		return true;
	if (vk_pipeline_compile(device, info, numbers, 0, &pipeline))
		return false;
	device->vk.vkDestroyPipeline(device->handle, pipeline, NULL);
	return true;
}

/*
 * Pipelines of which no figures are printed only have to compile. typed.comp is one of them: no
 * workload depends on the speed of its integers.
 */
static bool print_info(struct vk_device *device, const struct vk_pipe_info *info, uint32_t curve,
		       bool *is_first)
{
	if (!info->shader->code[VK_FLOATS].words || info->shader == &vk_shader_typed ||
	    info->shader == &vk_shader_typed_double)
		return compile(device, info, VK_FLOATS) && compile(device, info, VK_HALVES) &&
		       compile(device, info, VK_DOUBLES);
	if (!*is_first)
		print_comma();
	*is_first = false;
	return print_pipeline(device, info, VK_FLOATS, 0) && print_curved(device, info, curve) &&
	       print_double(device, info) && compile(device, info, VK_HALVES);
}

static bool print_table(struct vk_device *device, const struct vk_pipes *table, bool *is_first)
{
	for (size_t i = 0; i < table->n; i++) {
		const struct vk_pipe_info *info = &table->pipes[i].of[device->variant];

		if (info->shader && !print_info(device, info, table->curve, is_first)) {
			fprintf(stderr, "%s does not compile %s\n", device->name, info->name);
			return false;
		}
	}
	return true;
}

static bool print_device(struct vk_device *device)
{
	bool is_first = true;

	printf("{\"device\": ");
	print_string(device->name);
	printf(", \"driver\": ");
	print_string(device->driver);
	printf(", \"pipelines\": [");
	for (unsigned int k = 0; vk_pipes_at(k); k++)
		if (!print_table(device, vk_pipes_at(k), &is_first))
			return false;
	printf("]");
	if (is_digest)
		printf(", \"digest\": \"%016" PRIx64 "\"", digest);
	printf("}\n");
	return true;
}

int main(int argc, char **argv)
{
	const VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.apiVersion = VK_API_VERSION_1_2,
	};
	const VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};
	const struct vulkan_options options = {.mode = VULKAN_AUTO};
	VkPhysicalDevice physicals[MAX_PHYSICAL], physical = VK_NULL_HANDLE;
	uint32_t n = MAX_PHYSICAL;
	struct vk_device *device;
	VkInstance instance;
	bool is_done;

	is_digest = argc > 1 && strcmp(argv[1], "--digest") == 0;
	if (volkInitialize() != VK_SUCCESS || volkGetInstanceVersion() < VK_API_VERSION_1_2)
		return skip("no Vulkan 1.2 loader");
	if (vkCreateInstance(&info, NULL, &instance) != VK_SUCCESS)
		return skip("no Vulkan driver");
	volkLoadInstanceOnly(instance);
	if (vkEnumeratePhysicalDevices(instance, &n, physicals) < 0)
		n = 0;
	for (uint32_t i = 0; i < n && !physical; i++)
		if (!vk_physical_is_software(physicals[i]) && !vk_device_missing(physicals[i]))
			physical = physicals[i];
	if (!physical)
		return skip("no Vulkan device but in software");
	if (!can_tell(physical))
		return skip("the driver lacks VK_KHR_pipeline_executable_properties");

	create_device = vkCreateDevice;
	vkCreateDevice = create_device_telling;
	if (vk_device_new(physical, &options, true, &device)) {
		fprintf(stderr, "the device cannot be opened\n");
		return 1;
	}
	create_pipelines = device->vk.vkCreateComputePipelines;
	create_module = device->vk.vkCreateShaderModule;
	device->vk.vkCreateComputePipelines =
		is_digest ? create_pipelines_adding : create_pipelines_telling;
	if (is_digest)
		device->vk.vkCreateShaderModule = create_module_adding;
	is_done = print_device(device);
	vk_device_free(device);
	vkDestroyInstance(instance, NULL);
	return is_done ? 0 : 1;
}
