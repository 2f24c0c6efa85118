/* SPDX-License-Identifier: MIT */
/*
 * The layer's thread that moves memory: how often it looks at programs
 *
 * The test is the driver, and replaces the pause between two looks: a pause takes no time, and its
 * milliseconds are counted. After two seconds of pauses the thread waits for the next test.
 */
#include <poll.h>
#include <semaphore.h>

#include <ringbroker/abi.h>

#include "libclient/layer/dispatch.h"
#include "libclient/layer/mover.h"
#include "libclient/layer/process.h"
#include "support/test.h"

/* A look takes at least half a second of these, or a tenth of a second if the next one is soon. */
enum { LIMIT_MS = 2000, MOST_RARE = 5, LEAST_SOON = 10 };

static struct rbk_lease_page page;
static struct gpu gpu;
static struct device device;
static struct mover mover;
static struct movable movable;

/* The thread's. */
static sem_t begins, ended;
static int passed_ms;
static unsigned int n_pauses;

/* The driver's. */
static VkResult submit_result, fence_result;
static unsigned int n_submits;

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	(void)fds;
	if (n > 0 || timeout_ms <= 0)
		return -1;
	if (passed_ms >= LIMIT_MS) {
		sem_post(&ended);
		while (sem_wait(&begins))
			;
	}
	passed_ms += timeout_ms;
	n_pauses++;
	return 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_fence(VkDevice handle, const VkFenceCreateInfo *info,
						   const VkAllocationCallbacks *allocator,
						   VkFence *ret)
{
	(void)handle;
	(void)info;
	(void)allocator;
	*ret = VK_NULL_HANDLE;
	return fence_result;
}

static VKAPI_ATTR VkResult VKAPI_CALL fence_status(VkDevice handle, VkFence fence)
{
	(void)handle;
	(void)fence;
	return VK_NOT_READY;
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t n, const VkSubmitInfo *infos,
					     VkFence fence)
{
	(void)queue;
	(void)n;
	(void)infos;
	(void)fence;
	n_submits++;
	return submit_result;
}

/* Make a device whose memory should go, and which has been used. */
static int begin(void **state)
{
	(void)state;
	submit_result = fence_result = VK_SUCCESS;
	n_submits = 0;
	page = (struct rbk_lease_page){.sleep = RBK_LEASE_SLEEPS};
	gpu = (struct gpu){.is_ours = 1, .account.page = &page};
	device = (struct device){
		.submit = submit,
		.create_fence = create_fence,
		.fence_status = fence_status,
		.n_gpus = 1,
		.gpus = {&gpu},
		.mover = &mover,
	};
	mover = (struct mover){
		.device = &device,
		.using = PTHREAD_RWLOCK_INITIALIZER,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.returning = PTHREAD_MUTEX_INITIALIZER,
		.movables = &movable,
	};
	return 0;
}

/* Submit to a queue, be idle for two seconds, and return how often the thread looked. */
static unsigned int idle(void)
{
	static bool has_begun;

	mover_enter_submit(&device, VK_NULL_HANDLE);
	mover_leave(&mover);
	passed_ms = 0;
	n_pauses = 0;
	mover_start(&mover);
	if (has_begun)
		sem_post(&begins);
	has_begun = true;
	while (sem_wait(&ended))
		;
	mover_stop(&mover);
	return n_pauses;
}

TEST(test_looks__soon_while_work_is_under_way, begin)
{
	assert_true(idle() >= LEAST_SOON);
	assert_int_equal(n_submits, 1);
	assert_false(mover.is_dead || mover.has_unknown_queue);
}

TEST(test_looks__rare_with_an_unknown_queue, begin)
{
	fence_result = VK_ERROR_OUT_OF_HOST_MEMORY;
	assert_true(idle() <= MOST_RARE);
	assert_true(mover.has_unknown_queue);
	assert_int_equal(n_submits, 0);
}

/* The look that finds this out is followed by one that is soon. */
TEST(test_looks__rare_at_a_failed_device, begin)
{
	submit_result = VK_ERROR_DEVICE_LOST;
	assert_true(idle() <= MOST_RARE + 1);
	assert_true(mover.is_dead);
	assert_int_equal(n_submits, 1);
}

static int begin_all(void **state)
{
	(void)state;
	return process_init() || sem_init(&begins, 0, 0) || sem_init(&ended, 0, 0);
}

TEST_MAIN(begin_all, NULL)
