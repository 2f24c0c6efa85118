/* SPDX-License-Identifier: MIT */
/*
 * Variants of pipelines, and the layouts that have room for their numbers
 *
 * The test is the driver. A layout of the driver is known by its handle, and destroyed once.
 */
#include <string.h>

#include "libclient/layer/cut.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/variants.h"
#include "support/test.h"
#include "support/torture-shaders.h"

enum { MAX_LAYOUTS = 8, PUSH_BYTES = 128 };

static struct physical physical = {.max_push_bytes = PUSH_BYTES};
static struct cutter cutter;
static struct device device = {.physical = &physical, .cutter = &cutter};

/* The driver's. */
static VkPushConstantRange made_ranges[MAX_LAYOUTS][4];
static unsigned int n_layouts, n_destroyed, n_pipelines;
static bool is_destroyed[MAX_LAYOUTS];
static VkResult pipeline_result;

static VKAPI_ATTR VkResult VKAPI_CALL create_layout(VkDevice handle,
						    const VkPipelineLayoutCreateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkPipelineLayout *ret)
{
	(void)handle;
	(void)allocator;
	memcpy(made_ranges[n_layouts], info->pPushConstantRanges,
	       info->pushConstantRangeCount * sizeof(VkPushConstantRange));
	is_destroyed[n_layouts] = false;
	*ret = (VkPipelineLayout)(uintptr_t)++n_layouts;
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_layout(VkDevice handle, VkPipelineLayout layout,
						 const VkAllocationCallbacks *allocator)
{
	(void)handle;
	(void)allocator;
	assert_false(is_destroyed[(uintptr_t)layout - 1]);
	is_destroyed[(uintptr_t)layout - 1] = true;
	n_destroyed++;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice handle,
						    const VkShaderModuleCreateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkShaderModule *ret)
{
	(void)handle;
	(void)info;
	(void)allocator;
	*ret = (VkShaderModule)(uintptr_t)1;
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_module(VkDevice handle, VkShaderModule module,
						 const VkAllocationCallbacks *allocator)
{
	(void)handle;
	(void)module;
	(void)allocator;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice handle, VkPipelineCache cache,
						       uint32_t n,
						       const VkComputePipelineCreateInfo *infos,
						       const VkAllocationCallbacks *allocator,
						       VkPipeline *ret)
{
	(void)handle;
	(void)cache;
	(void)allocator;
	assert_int_equal(n, 1);
	assert_false(is_destroyed[(uintptr_t)infos->layout - 1]);
	n_pipelines += pipeline_result == VK_SUCCESS;
	*ret = pipeline_result == VK_SUCCESS ? (VkPipeline)(uintptr_t)1 : VK_NULL_HANDLE;
	return pipeline_result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_pipeline(VkDevice handle, VkPipeline pipeline,
						   const VkAllocationCallbacks *allocator)
{
	(void)handle;
	(void)pipeline;
	(void)allocator;
	n_pipelines--;
}

static int setup(void **state)
{
	(void)state;
	n_layouts = n_destroyed = n_pipelines = 0;
	pipeline_result = VK_SUCCESS;
	cutter = (struct cutter){
		.has_variants = true,
		.next = {.create_layout = create_layout,
			 .destroy_layout = destroy_layout,
			 .create_module = create_module,
			 .destroy_module = destroy_module,
			 .create_pipelines = create_pipelines,
			 .destroy_pipeline = destroy_pipeline},
	};
	variants_init(&cutter);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	variants_deinit(&cutter);
	return 0;
}

static VkPipelineLayout make_layout(uint32_t n, const VkPushConstantRange *ranges)
{
	const VkPipelineLayoutCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.pushConstantRangeCount = n,
		.pPushConstantRanges = ranges,
	};
	VkPipelineLayout ret;

	assert_int_equal(variants_create_layout(&device, &info, NULL, &ret), VK_SUCCESS);
	return ret;
}

/* Prepare a variant of a pipeline whose shader reads all numbers. */
static struct variant *prepare(VkPipelineLayout layout, VkPipelineCreateFlags flags)
{
	const VkComputePipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.flags = flags,
		.stage.pName = "main",
		.layout = layout,
	};

	return variants_prepare(&device, &info, torture_shaders[TORTURE_SHADER_NUMBER_ALL_2].words,
				torture_shaders[TORTURE_SHADER_NUMBER_ALL_2].bytes /
					sizeof(uint32_t));
}

/* The program may destroy a layout as soon as its pipeline is made, long before the variant is. */
TEST(test_layout__outlives_the_program_s_use, setup, teardown)
{
	const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 32};
	VkPipelineLayout layout = make_layout(1, &range);
	struct variant *first = prepare(layout, 0), *second = prepare(layout, 0);

	assert_non_null(first);
	assert_non_null(second);
	variants_destroy_layout(&device, layout, NULL);
	assert_int_equal(n_destroyed, 0);
	assert_true(variants_make(&device, first));
	assert_int_equal(n_pipelines, 1);
	variants_destroy(&device, first);
	assert_int_equal(n_destroyed, 0);
	variants_destroy(&device, second);
	assert_int_equal(n_destroyed, 1);
	assert_int_equal(n_pipelines, 0);
}

TEST(test_layout__ends_with_the_program_s_use, setup, teardown)
{
	const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 32};
	VkPipelineLayout layout = make_layout(1, &range);
	struct variant *variant = prepare(layout, 0);

	/* A driver that refuses is not asked again. */
	pipeline_result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
	assert_false(variants_make(&device, variant));
	pipeline_result = VK_SUCCESS;
	assert_false(variants_make(&device, variant));
	variants_destroy(&device, variant);
	assert_int_equal(n_destroyed, 0);
	variants_destroy_layout(&device, layout, NULL);
	assert_int_equal(n_destroyed, 1);
	variants_destroy_layout(&device, make_layout(0, NULL), NULL);
	assert_int_equal(n_destroyed, 2);
}

/* The room is compute's, behind all push constants of the program. */
TEST(test_layout__room, setup, teardown)
{
	static const VkPushConstantRange graphics = {VK_SHADER_STAGE_FRAGMENT_BIT, 0, 20};
	static const VkPushConstantRange both[] = {
		{VK_SHADER_STAGE_VERTEX_BIT, 0, 16},
		{VK_SHADER_STAGE_COMPUTE_BIT | VK_SHADER_STAGE_FRAGMENT_BIT, 16, 8}};
	static const VkPushConstantRange first[] = {{VK_SHADER_STAGE_COMPUTE_BIT, 0, 16},
						    {VK_SHADER_STAGE_VERTEX_BIT, 16, 8}};
	static const VkPushConstantRange little = {VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSH_BYTES - 12};
	static const VkPushConstantRange full = {VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSH_BYTES - 8};
	struct variant *variant;

	make_layout(0, NULL);
	assert_fields(made_ranges[0][0], (stageFlags, VK_SHADER_STAGE_COMPUTE_BIT), (offset, 0),
		      (size, 12));
	make_layout(1, &graphics);
	assert_fields(made_ranges[1][0], (stageFlags, VK_SHADER_STAGE_FRAGMENT_BIT), (offset, 0),
		      (size, 20));
	/* A structure, an array or a matrix that ends at 20 may have padding up to 32. */
	assert_fields(made_ranges[1][1], (stageFlags, VK_SHADER_STAGE_COMPUTE_BIT), (offset, 32),
		      (size, 12));
	make_layout(2, both);
	assert_fields(made_ranges[2][0], (stageFlags, VK_SHADER_STAGE_VERTEX_BIT), (size, 16));
	assert_fields(made_ranges[2][1], (offset, 16), (size, 28));
	/* Where another stage's are behind compute's, or there is no room, nothing changes. */
	variant = prepare(make_layout(2, first), 0);
	assert_null(variant);
	assert_fields(made_ranges[3][0], (offset, 0), (size, 16));
	variant = prepare(make_layout(1, &full), 0);
	assert_null(variant);
	assert_fields(made_ranges[4][0], (offset, 0), (size, PUSH_BYTES - 8));
	/* Little room is used without it. */
	make_layout(1, &little);
	assert_fields(made_ranges[5][0], (offset, 0), (size, PUSH_BYTES));
	for (unsigned int i = 1; i <= n_layouts; i++)
		variants_destroy_layout(&device, (VkPipelineLayout)(uintptr_t)i, NULL);
	assert_int_equal(n_destroyed, n_layouts);
}

/* Flags that a variant cannot copy are the program's business: it has none then. */
TEST(test_prepare__unknown_flags, setup, teardown)
{
	VkPipelineLayout layout = make_layout(0, NULL);

	assert_null(prepare(layout, VK_PIPELINE_CREATE_LIBRARY_BIT_KHR));
	variants_destroy_layout(&device, layout, NULL);
	assert_int_equal(n_destroyed, 1);
}

TEST_MAIN(NULL, NULL)
