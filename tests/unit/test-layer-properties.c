/* SPDX-License-Identifier: MIT */
/* The list of a device's extensions, to which a lease adds the budget's. */
#include <pthread.h>
#include <string.h>

#include "libclient/layer/dispatch.h"
#include "libclient/layer/layer.h"
#include "support/test.h"

enum { N_DRIVER = 2 };

static struct gpu gpu;
static struct instance instance;
static struct physical physical;

struct gpu *__wrap_dispatch_gpu(struct physical *asked, bool waits);

struct gpu *__wrap_dispatch_gpu(struct physical *asked, bool waits)
{
	(void)waits;
	assert_ptr_equal(asked, &physical);
	return &gpu;
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate(VkPhysicalDevice handle, const char *layer,
						uint32_t *n, VkExtensionProperties *ret)
{
	uint32_t n_room = *n;

	(void)handle;
	(void)layer;
	*n = ret && n_room < N_DRIVER ? n_room : N_DRIVER;
	for (uint32_t i = 0; ret && i < *n; i++)
		strcpy(ret[i].extensionName, "VK_driver");
	return *n < N_DRIVER ? VK_INCOMPLETE : VK_SUCCESS;
}

static int begin(void **state)
{
	(void)state;
	instance = (struct instance){.enumerate_extensions = enumerate};
	physical = (struct physical){.instance = &instance, .can_budget = true};
	gpu = (struct gpu){.state = GPU_WITHOUT};
	return 0;
}

static uint32_t length(void)
{
	uint32_t n = 0;

	assert_int_equal(properties_extensions(&physical, NULL, &n, NULL), VK_SUCCESS);
	return n;
}

/* Ask for the list with room for @n_room. Return: the result; the number of entries. */
static VkResult list(uint32_t n_room, uint32_t *ret_n, bool *ret_has_budget)
{
	VkExtensionProperties list[N_DRIVER + 2];
	VkResult result;

	memset(list, 0, sizeof(list));
	*ret_n = n_room;
	result = properties_extensions(&physical, NULL, ret_n, list);
	*ret_has_budget = false;
	for (uint32_t i = 0; i < *ret_n; i++)
		*ret_has_budget |= strcmp(list[i].extensionName, "VK_EXT_memory_budget") == 0;
	return result;
}

static void expect_list(uint32_t n_room, VkResult result, uint32_t n, bool has_budget)
{
	uint32_t n_listed;
	bool is_listed;

	assert_int_equal(list(n_room, &n_listed, &is_listed), result);
	assert_int_equal(n_listed, n);
	assert_int_equal(is_listed, has_budget);
}

TEST(test_extensions__of_lease, begin)
{
	assert_int_equal(length(), N_DRIVER);
	expect_list(N_DRIVER, VK_SUCCESS, N_DRIVER, false);
	gpu.state = GPU_LEASED;
	assert_int_equal(length(), N_DRIVER + 1);
	expect_list(N_DRIVER + 1, VK_SUCCESS, N_DRIVER + 1, true);
	expect_list(N_DRIVER, VK_INCOMPLETE, N_DRIVER, false);
	physical.has_budget = true;
	assert_int_equal(length(), N_DRIVER);
}

/* The loader asks for the length, then for the list: a lease that comes in between adds nothing. */
TEST(test_extensions__lease_comes_in_between, begin)
{
	assert_int_equal(length(), N_DRIVER);
	gpu.state = GPU_LEASED;
	expect_list(N_DRIVER, VK_SUCCESS, N_DRIVER, false);
	expect_list(N_DRIVER + 2, VK_SUCCESS, N_DRIVER + 1, true);
	assert_int_equal(length(), N_DRIVER + 1);
	gpu.state = GPU_WITHOUT;
	expect_list(N_DRIVER + 1, VK_SUCCESS, N_DRIVER, false);
}

static void *ask_for_length(void *ret)
{
	*(uint32_t *)ret = length();
	return NULL;
}

/* Another thread that is told of the lease changes nothing for this one. */
TEST(test_extensions__of_several_threads, begin)
{
	pthread_t thread;
	uint32_t n = 0;

	assert_int_equal(length(), N_DRIVER);
	gpu.state = GPU_LEASED;
	assert_int_equal(pthread_create(&thread, NULL, ask_for_length, &n), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(n, N_DRIVER + 1);
	expect_list(N_DRIVER, VK_SUCCESS, N_DRIVER, false);
}

TEST_MAIN(NULL, NULL, (void)0)
